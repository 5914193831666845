//! An ordinary SQL connection for catalogs and control functions. Simple protocol throughout: values are the
//! server's text, and no prepared statement can be invalidated by a change of a table.

use std::future::Future;
use std::time::Duration;

use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use crate::config::Address;
use crate::postgres::socket::{AsItIs, Socket, places};
use crate::postgres::{LATER_SETTINGS, SourceError, fixed_settings};

/// A statement on the catalogs that takes longer than this has lost its server.
const PATIENCE: Duration = Duration::from_mins(1);

/// A client and the task that drives its connection.
pub struct Sql {
    client: tokio_postgres::Client,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Sql {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Tables are locked for moments only, to look at their size and to publish them.
const LOCK_TIMEOUT: &str = "2s";

impl Sql {
    /// Connects to the first host of `address` that answers, with the fixed settings.
    ///
    /// # Errors
    /// The last host's error where none answers: unreachable, refused, or not ready within `timeout`.
    pub async fn connect(address: &Address, application_name: &str, timeout: Duration) -> Result<Self, SourceError> {
        let mut config = address.postgres.clone();
        let settings = match config.get_options() {
            Some(options) => format!("{options} {}", fixed_settings()),
            None => fixed_settings(),
        };
        config.options(settings).application_name(application_name);
        // The socket has asked for TLS already, where it is configured.
        config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        let mut last = SourceError::Missing { what: "a host to connect to" };
        for place in places(address) {
            let attempt = async {
                let socket = Socket::open(&place, address).await?;
                let connecting = config.connect_raw(socket, AsItIs).await;
                let (client, connection) = connecting.map_err(|source| SourceError::refused("connect to PostgreSQL", source))?;
                let sql = Self::drive(client, connection);
                sql.run("set the later settings", LATER_SETTINGS).await?;
                // Whoever alters a table does not hold up what is asked of others.
                sql.run("set how long locks are waited for", &format!("SET lock_timeout = '{LOCK_TIMEOUT}'")).await?;
                Ok(sql)
            };
            match tokio::time::timeout(timeout, attempt).await {
                Ok(Ok(sql)) => return Ok(sql),
                Ok(Err(error)) => last = error,
                Err(_) => last = SourceError::ConnectTimeout { endpoint: place.to_string(), seconds: timeout.as_secs() },
            }
        }
        Err(last)
    }

    fn drive(client: tokio_postgres::Client, connection: tokio_postgres::Connection<Socket, Socket>) -> Self {
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = %error, "an SQL connection ended");
            }
        });
        Self { client, driver }
    }

    /// Runs a statement and gives its rows.
    ///
    /// # Errors
    /// The server's error, or the connection's.
    pub async fn rows(&self, doing: &'static str, statement: &str) -> Result<Vec<SqlRow>, SourceError> {
        let messages = within_patience(doing, self.client.simple_query(statement)).await?;
        Ok(messages
            .into_iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(SqlRow { doing, row }),
                _ => None,
            })
            .collect())
    }

    /// Runs a statement that gives one row.
    ///
    /// # Errors
    /// As [`Sql::rows`], and no row.
    pub async fn row(&self, doing: &'static str, statement: &str) -> Result<SqlRow, SourceError> {
        self.rows(doing, statement).await?.into_iter().next().ok_or(SourceError::Missing { what: "the row it was asked for" })
    }

    /// Runs statements for their effect.
    ///
    /// # Errors
    /// The server's error, or the connection's.
    pub async fn run(&self, doing: &'static str, statement: &str) -> Result<(), SourceError> {
        within_patience(doing, self.client.batch_execute(statement)).await
    }
}

async fn within_patience<T>(doing: &'static str, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, SourceError> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(|source| SourceError::Sql { doing, source }),
        Err(_) => Err(SourceError::Silent { seconds: PATIENCE.as_secs() }),
    }
}

/// A row of text columns, read by name.
#[derive(Debug)]
pub struct SqlRow {
    doing: &'static str,
    row: SimpleQueryRow,
}

impl SqlRow {
    /// The text of a column, `None` for NULL.
    ///
    /// # Errors
    /// There is no such column.
    pub fn optional(&self, column: &str) -> Result<Option<&str>, SourceError> {
        self.row.try_get(column).map_err(|source| SourceError::Sql { doing: self.doing, source })
    }

    /// The text of a column that cannot be NULL.
    ///
    /// # Errors
    /// There is no such column, or it is NULL.
    pub fn text(&self, column: &'static str) -> Result<&str, SourceError> {
        self.optional(column)?.ok_or(SourceError::Missing { what: column })
    }

    /// A column that is not NULL, parsed.
    ///
    /// # Errors
    /// There is no such column, it is NULL, or its text does not parse.
    pub fn parsed<T: std::str::FromStr>(&self, column: &'static str) -> Result<T, SourceError> {
        let text = self.text(column)?;
        text.parse().map_err(|_| SourceError::Protocol { what: format!("`{text}` for {column}") })
    }

    /// A column parsed, `None` for NULL.
    ///
    /// # Errors
    /// There is no such column, or its text does not parse.
    pub fn parsed_optional<T: std::str::FromStr>(&self, column: &'static str) -> Result<Option<T>, SourceError> {
        let Some(text) = self.optional(column)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| SourceError::Protocol { what: format!("`{text}` for {column}") })
    }

    /// A boolean column; NULL is false.
    ///
    /// # Errors
    /// There is no such column.
    pub fn is_true(&self, column: &str) -> Result<bool, SourceError> {
        Ok(self.optional(column)? == Some("t"))
    }
}
