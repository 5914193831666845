//! The only code that holds a connection to the source.
//!
//! Two kinds of connection, over the same `socket` and with the same fixed settings: [`wire`] speaks the protocol
//! itself, for replication and for reading chunks in large pieces; [`sql`] is an ordinary client for the catalogs.
//! What a value looks like depends on session settings, so none of them is left to a role or a server default.

pub mod tls;
mod socket;
pub mod wire;
pub mod sql;
pub mod system;
pub mod publication;
pub mod slot;
pub mod catalog;
pub mod replication;

use std::error::Error as _;
use std::io;

use crate::postgres::tls::TlsError;

/// Why the source failed us. What it means for the service is decided in `policy`, after a look at the slot
/// and the publication: an SQLSTATE alone cannot tell a lost slot from a mistyped name.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("connect to PostgreSQL at {endpoint}")]
    Connect {
        endpoint: String,
        #[source]
        source: io::Error,
    },
    #[error("PostgreSQL at {endpoint} did not answer within {seconds} s")]
    ConnectTimeout { endpoint: String, seconds: u64 },
    #[error("protect the connection to PostgreSQL at {endpoint}")]
    Tls {
        endpoint: String,
        #[source]
        source: TlsError,
    },
    #[error("authenticate with PostgreSQL: {why}")]
    Authentication { why: String },
    #[error("{doing}")]
    Sql {
        doing: &'static str,
        #[source]
        source: tokio_postgres::Error,
    },
    #[error("{doing}")]
    Server {
        doing: &'static str,
        #[source]
        source: ServerError,
    },
    #[error("the connection to PostgreSQL broke while trying to {doing}")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("PostgreSQL closed the connection")]
    Closed,
    #[error("PostgreSQL ended the replication stream")]
    StreamEnded,
    #[error("nothing came from PostgreSQL for {seconds} s, not even an answer to a request for one")]
    Silent { seconds: u64 },
    #[error("PostgreSQL sent what the protocol does not allow: {what}")]
    Protocol { what: String },
    #[error("PostgreSQL sent a message of {bytes} bytes, more than the {limit} that `sink.event_bytes_max` allows for")]
    MessageTooLarge { bytes: u64, limit: u64 },
    #[error("PostgreSQL answered without {what}")]
    Missing { what: &'static str },
}

/// An error message of the server. Its DETAIL may quote row data and is not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{severity} {sqlstate}: {message}")]
pub struct ServerError {
    pub severity: String,
    pub sqlstate: String,
    pub message: String,
}

impl SourceError {
    /// Why a connection broke; where our own socket broke it off, why that did.
    fn broken(doing: &'static str, error: io::Error) -> Self {
        error.downcast::<Self>().unwrap_or_else(|source| Self::Io { doing, source })
    }

    /// As [`SourceError::broken`], for what tokio-postgres says of it.
    fn refused(doing: &'static str, error: tokio_postgres::Error) -> Self {
        let broken = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        if broken.and_then(io::Error::get_ref).and_then(|ours| ours.downcast_ref::<Self>()).is_none() {
            return Self::Sql { doing, source: error };
        }
        match error.into_source().and_then(|source| source.downcast::<io::Error>().ok()) {
            Some(broken) => Self::broken(doing, *broken),
            None => Self::Closed,
        }
    }

    /// A lock was not to be had in time.
    #[must_use]
    pub fn is_lock_timeout(&self) -> bool {
        self.sqlstate() == Some("55P03")
    }

    /// The SQLSTATE, where the server gave one.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Sql { source, .. } => source.code().map(tokio_postgres::error::SqlState::code),
            Self::Server { source, .. } => Some(&source.sqlstate),
            Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::Tls { .. }
            | Self::Authentication { .. }
            | Self::Io { .. }
            | Self::Closed
            | Self::StreamEnded
            | Self::Silent { .. }
            | Self::Protocol { .. }
            | Self::MessageTooLarge { .. }
            | Self::Missing { .. } => None,
        }
    }
}

/// The settings that decide what a value's text looks like, and those that could end a session early; the
/// same on every connection. In the form of the start-up parameter `options`.
#[must_use]
pub fn fixed_settings() -> String {
    const SETTINGS: [(&str, &str); 18] = [
        ("datestyle", "ISO"),
        ("intervalstyle", "postgres"),
        ("timezone", "UTC"),
        ("extra_float_digits", "3"),
        ("bytea_output", "hex"),
        ("lc_monetary", "C"),
        ("xmloption", "content"),
        ("quote_all_identifiers", "off"),
        ("search_path", "pg_catalog"),
        ("statement_timeout", "0"),
        ("lock_timeout", "0"),
        ("idle_in_transaction_session_timeout", "0"),
        ("idle_session_timeout", "0"),
        ("default_transaction_isolation", "read\\ committed"),
        ("default_transaction_deferrable", "off"),
        ("synchronize_seqscans", "off"),
        ("max_parallel_workers_per_gather", "0"),
        ("row_security", "off"),
    ];
    SETTINGS.iter().map(|(name, value)| format!("-c {name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Of the same kind as [`fixed_settings`], but not known to every server: a statement for after the connection is made.
pub const LATER_SETTINGS: &str =
    "SELECT set_config('transaction_timeout', '0', false) WHERE current_setting('server_version_num')::int >= 170000";

/// An identifier, quoted.
#[must_use]
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string literal, quoted. Backslashes stand for themselves (`standard_conforming_strings` is on wherever
/// nobody turned it off; the escape form is used so that it does not matter).
#[must_use]
pub fn quote_literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') { format!("E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}

/// A string literal of bytes that need not be UTF-8, for a database whose encoding is `SQL_ASCII`.
#[must_use]
pub fn quote_literal_bytes(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return quote_literal(text);
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b' ';
    let escaped = bytes.iter().map(|&byte| if plain(byte) { char::from(byte).to_string() } else { format!("\\x{byte:02x}") });
    format!("E'{}'", escaped.collect::<String>())
}

/// A table's name with its schema, quoted.
#[must_use]
pub fn quote_table(schema: &str, table: &str) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(table))
}
