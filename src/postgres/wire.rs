//! A connection that speaks the frontend/backend protocol itself ("Message Flow" and "Message Formats" in the
//! manual): no library hands on `CopyBoth`, and none hands on `CopyData` in large pieces.
//!
//! Bytes of the server cannot panic here; a message is not allocated for before its length was looked at.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::sasl::{self, ChannelBinding, ScramSha256};
use postgres_protocol::message::{backend, frontend};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_postgres::config;

use crate::config::Address;
use crate::postgres::socket::{Socket, places};
use crate::postgres::{LATER_SETTINGS, ServerError, SourceError, fixed_settings};

/// Bytes asked of the socket at a time. A hot walsender sends a message per system call; one read then takes
/// hundreds of them.
const READ_BYTES: usize = 256 * 1024;

/// The greatest answer to an ordinary query (catalog rows), and the limit while no other is set.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Tag and length of a backend message.
const HEADER_BYTES: usize = 5;

/// A row of an answer: the text of each column, `None` for NULL.
pub type AnswerRow = Vec<Option<String>>;

/// What a connection is for; decides the start-up parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `replication=database`: logical decoding of the database named.
    Replication,
    /// Ordinary SQL, read in large pieces.
    Chunks,
}

/// A connection past its start-up.
pub struct Wire {
    socket: Socket,
    inbound: BytesMut,
    outbound: BytesMut,
    message_bytes_max: u64,
    /// Process id of the backend that serves this connection.
    backend_pid: i32,
}

impl Wire {
    /// Connects to the first host of `address` that answers, authenticates and waits until the server is ready.
    ///
    /// # Errors
    /// The last host's error where none answers; authentication; anything the server refuses.
    pub async fn connect(address: &Address, purpose: Purpose, application_name: &str, timeout: Duration) -> Result<Self, SourceError> {
        let mut last = SourceError::Missing { what: "a host to connect to" };
        for place in places(address) {
            let attempt = async {
                let mut wire = Self {
                    socket: Socket::open(&place, address).await?,
                    inbound: BytesMut::with_capacity(16 * 1024),
                    outbound: BytesMut::new(),
                    message_bytes_max: ANSWER_BYTES_MAX,
                    backend_pid: 0,
                };
                wire.start_up(&address.postgres, purpose, application_name).await?;
                wire.query("set the later settings", LATER_SETTINGS).await?;
                Ok(wire)
            };
            match tokio::time::timeout(timeout, attempt).await {
                Ok(Ok(wire)) => return Ok(wire),
                Ok(Err(error)) => last = error,
                Err(_) => last = SourceError::ConnectTimeout { endpoint: place.to_string(), seconds: timeout.as_secs() },
            }
        }
        Err(last)
    }

    #[must_use]
    pub fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    /// From now on a message may have this many bytes; a greater one is an error before it is allocated for.
    pub fn set_message_bytes_max(&mut self, bytes: u64) {
        self.message_bytes_max = bytes;
    }

    async fn start_up(&mut self, config: &tokio_postgres::Config, purpose: Purpose, application_name: &str) -> Result<(), SourceError> {
        let user = config.get_user().ok_or(SourceError::Missing { what: "a user name" })?;
        let settings = match config.get_options() {
            Some(options) => format!("{options} {}", fixed_settings()),
            None => fixed_settings(),
        };
        let mut parameters = vec![
            ("user", user),
            ("database", config.get_dbname().unwrap_or(user)),
            ("application_name", application_name),
            ("client_encoding", "UTF8"),
            ("options", &settings),
        ];
        if purpose == Purpose::Replication {
            parameters.push(("replication", "database"));
        }
        self.encode("start up", |out| frontend::startup_message(parameters, out))?;
        self.flush("start up").await?;
        self.authenticate(config).await?;
        let mut encoding_is_unknown = false;
        loop {
            match self.message("start up").await? {
                backend::Message::BackendKeyData(body) => self.backend_pid = body.process_id(),
                backend::Message::ParameterStatus(body) => {
                    encoding_is_unknown |= matches!((body.name(), body.value()), (Ok("server_encoding"), Ok("SQL_ASCII")));
                }
                backend::Message::NoticeResponse(_) => {}
                backend::Message::ReadyForQuery(_) => break,
                backend::Message::ErrorResponse(body) => return Err(server_error("start up", &body)),
                _ => return Err(protocol("an unexpected message during start-up")),
            }
        }
        if encoding_is_unknown {
            // Such a database takes any bytes; asked for UTF-8, it would refuse to send what is none.
            self.query("ask for bytes as they are", "SET client_encoding = 'SQL_ASCII'").await?;
        }
        Ok(())
    }

    /// SCRAM-SHA-256, bound to the server's certificate where both sides can, or nothing where the server trusts us.
    /// What gives the password away has been refused by the socket.
    async fn authenticate(&mut self, config: &tokio_postgres::Config) -> Result<(), SourceError> {
        let refused = |why: &str| SourceError::Authentication { why: why.to_owned() };
        let mut scram: Option<ScramSha256> = None;
        let mut bound = false;
        loop {
            match self.message("authenticate").await? {
                backend::Message::AuthenticationOk if !bound && config.get_channel_binding() == config::ChannelBinding::Require => {
                    return Err(refused(
                        "`channel_binding = \"require\"`, and the server asks for no password that could be bound to its certificate",
                    ));
                }
                backend::Message::AuthenticationOk => return Ok(()),
                backend::Message::AuthenticationSasl(body) => {
                    let offered: Vec<String> =
                        body.mechanisms().map(|name| Ok(name.to_owned())).collect().map_err(|_| protocol("its list of SASL mechanisms"))?;
                    let offers = |mechanism: &str| offered.iter().any(|name| name == mechanism);
                    let end_point = self.socket.end_point().filter(|_| config.get_channel_binding() != config::ChannelBinding::Disable);
                    let (mechanism, binding) = match end_point {
                        Some(hash) if offers(sasl::SCRAM_SHA_256_PLUS) => {
                            bound = true;
                            (sasl::SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash.to_vec()))
                        }
                        // Says that it could have been bound, so that a server whose offer was cut on the way refuses.
                        Some(_) => (sasl::SCRAM_SHA_256, ChannelBinding::unrequested()),
                        None => (sasl::SCRAM_SHA_256, ChannelBinding::unsupported()),
                    };
                    if !offers(mechanism) {
                        return Err(refused(&format!("the server offers {} and not {mechanism}", offered.join(", "))));
                    }
                    if !bound && config.get_channel_binding() == config::ChannelBinding::Require {
                        return Err(refused("`channel_binding = \"require\"`, and the server does not offer SCRAM-SHA-256-PLUS"));
                    }
                    let password = config.get_password();
                    let password = password.ok_or_else(|| refused("the server asks for a password and none is configured"))?;
                    let exchange = ScramSha256::new(password, binding);
                    self.encode("authenticate", |out| frontend::sasl_initial_response(mechanism, exchange.message(), out))?;
                    scram = Some(exchange);
                    self.flush("authenticate").await?;
                }
                backend::Message::AuthenticationSaslContinue(body) => {
                    let exchange = scram.as_mut().ok_or_else(|| protocol("a SASL message out of turn"))?;
                    exchange.update(body.data()).map_err(|error| refused(&error.to_string()))?;
                    let answer = exchange.message().to_vec();
                    self.encode("authenticate", |out| frontend::sasl_response(&answer, out))?;
                    self.flush("authenticate").await?;
                }
                backend::Message::AuthenticationSaslFinal(body) => {
                    let exchange = scram.as_mut().ok_or_else(|| protocol("a SASL message out of turn"))?;
                    exchange
                        .finish(body.data())
                        .map_err(|error| refused(&format!("the server did not prove that it knows the password: {error}")))?;
                }
                backend::Message::ErrorResponse(body) => return Err(server_error("authenticate", &body)),
                backend::Message::NoticeResponse(_) => {}
                _ => return Err(refused("the server asks for a method that is not supported")),
            }
        }
    }

    /// Runs one statement by the simple protocol (works on replication connections as well).
    ///
    /// # Errors
    /// The server's error, after which the connection can be used on.
    pub async fn query(&mut self, doing: &'static str, statement: &str) -> Result<Vec<AnswerRow>, SourceError> {
        self.send_query(doing, statement).await?;
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            match self.message(doing).await? {
                backend::Message::DataRow(body) => rows.push(answer_row(&body)?),
                backend::Message::ErrorResponse(body) => failed = Some(server_error(doing, &body)),
                backend::Message::ReadyForQuery(_) => return failed.map_or(Ok(rows), Err),
                backend::Message::RowDescription(_)
                | backend::Message::CommandComplete(_)
                | backend::Message::EmptyQueryResponse
                | backend::Message::NoticeResponse(_)
                | backend::Message::ParameterStatus(_) => {}
                _ => return Err(protocol("an unexpected message in an answer")),
            }
        }
    }

    /// Runs a statement that answers with a stream of `CopyData` (COPY … TO STDOUT, `START_REPLICATION`) and
    /// waits until the server has begun it.
    ///
    /// # Errors
    /// The server's error, after which the connection can be used on.
    pub async fn begin_copy(&mut self, doing: &'static str, statement: &str) -> Result<(), SourceError> {
        self.send_query(doing, statement).await?;
        let mut failed = None;
        loop {
            // postgres-protocol does not know CopyBothResponse.
            self.fill_until(doing, HEADER_BYTES).await?;
            match self.inbound.first() {
                Some(b'W' | b'H') => {
                    self.whole_message(doing).await?;
                    return Ok(());
                }
                _ => match self.message(doing).await? {
                    backend::Message::ErrorResponse(body) => failed = Some(server_error(doing, &body)),
                    backend::Message::ReadyForQuery(_) => {
                        return Err(failed.unwrap_or_else(|| protocol("no stream where one was asked for")));
                    }
                    _ => {}
                },
            }
        }
    }

    /// All whole messages that have arrived, as they lie in the buffer; waits for at least one. See [`Messages`].
    /// Safe to drop while waiting: what has arrived stays.
    ///
    /// # Errors
    /// [`SourceError::Closed`] at the end of the connection; a message over the limit.
    pub async fn whole_messages(&mut self, doing: &'static str) -> Result<Bytes, SourceError> {
        loop {
            let whole = whole_prefix(&self.inbound, self.message_bytes_max)?;
            if whole > 0 {
                return Ok(self.inbound.split_to(whole).freeze());
            }
            self.fill(doing).await?;
        }
    }

    /// Sends bytes that are messages already.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, doing: &'static str, messages: &[u8]) -> Result<(), SourceError> {
        self.socket.write_all(messages).await.map_err(|source| SourceError::broken(doing, source))?;
        self.socket.flush().await.map_err(|source| SourceError::broken(doing, source))
    }

    /// Reads a COPY's end: everything up to `ReadyForQuery`.
    ///
    /// # Errors
    /// The server's error.
    pub async fn finish_copy(&mut self, doing: &'static str) -> Result<(), SourceError> {
        loop {
            match self.message(doing).await? {
                backend::Message::ReadyForQuery(_) => return Ok(()),
                backend::Message::ErrorResponse(body) => return Err(server_error(doing, &body)),
                _ => {}
            }
        }
    }

    async fn send_query(&mut self, doing: &'static str, statement: &str) -> Result<(), SourceError> {
        self.encode(doing, |out| frontend::query(statement, out))?;
        self.flush(doing).await
    }

    fn encode(&mut self, doing: &'static str, write: impl FnOnce(&mut BytesMut) -> io::Result<()>) -> Result<(), SourceError> {
        write(&mut self.outbound).map_err(|source| SourceError::Io { doing, source })
    }

    async fn flush(&mut self, doing: &'static str) -> Result<(), SourceError> {
        let outbound = self.outbound.split();
        self.send(doing, &outbound).await
    }

    async fn message(&mut self, doing: &'static str) -> Result<backend::Message, SourceError> {
        let mut message = BytesMut::from(self.whole_message(doing).await?);
        match backend::Message::parse(&mut message) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(protocol("a message shorter than it says")),
            Err(error) => Err(protocol(&error.to_string())),
        }
    }

    async fn whole_message(&mut self, doing: &'static str) -> Result<Bytes, SourceError> {
        self.fill_until(doing, HEADER_BYTES).await?;
        let length = message_length(&self.inbound, self.message_bytes_max)?.ok_or_else(|| protocol("no message"))?;
        self.fill_until(doing, length).await?;
        Ok(self.inbound.split_to(length).freeze())
    }

    async fn fill_until(&mut self, doing: &'static str, bytes: usize) -> Result<(), SourceError> {
        while self.inbound.len() < bytes {
            self.fill(doing).await?;
        }
        Ok(())
    }

    async fn fill(&mut self, doing: &'static str) -> Result<(), SourceError> {
        let needed = message_length(&self.inbound, self.message_bytes_max)?.unwrap_or(0).saturating_sub(self.inbound.len());
        self.inbound.reserve(needed.max(READ_BYTES));
        match self.socket.read_buf(&mut self.inbound).await {
            Ok(0) => Err(SourceError::Closed),
            Ok(_) => Ok(()),
            Err(source) => Err(SourceError::broken(doing, source)),
        }
    }
}

/// The messages of a run of whole ones: `(tag, body)`.
#[derive(Clone, Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// `bytes` as [`Wire::whole_messages`] gave them.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = message_length(self.0, u64::MAX).ok()??;
        let (message, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((*message.first()?, message.get(HEADER_BYTES..)?))
    }
}

/// Bytes of the whole messages at the start of `buffer`.
fn whole_prefix(buffer: &[u8], bytes_max: u64) -> Result<usize, SourceError> {
    let mut whole = 0;
    while let Some(rest) = buffer.get(whole..)
        && let Some(length) = message_length(rest, bytes_max)?
        && length <= rest.len()
    {
        whole += length;
    }
    Ok(whole)
}

/// Length of the first message in `buffer`, tag included; `None` while its header is not there.
fn message_length(buffer: &[u8], bytes_max: u64) -> Result<Option<usize>, SourceError> {
    let Some(mut header) = buffer.get(1..HEADER_BYTES) else { return Ok(None) };
    let length = header.get_u32();
    if length < 4 || length > i32::MAX as u32 {
        return Err(protocol(&format!("a message of length {length}")));
    }
    let bytes = u64::from(length) + 1;
    if bytes > bytes_max {
        return Err(SourceError::MessageTooLarge { bytes, limit: bytes_max });
    }
    usize::try_from(bytes).map(Some).map_err(|_| protocol("a message larger than memory"))
}

fn answer_row(body: &backend::DataRowBody) -> Result<AnswerRow, SourceError> {
    let broken = || protocol("a row that is not what it says");
    let mut ranges = body.ranges();
    let mut row = Vec::new();
    while let Some(range) = ranges.next().map_err(|_| broken())? {
        let text = match range {
            None => None,
            Some(range) => Some(String::from_utf8_lossy(body.buffer().get(range).ok_or_else(broken)?).into_owned()),
        };
        row.push(text);
    }
    Ok(row)
}

pub(super) fn server_error(doing: &'static str, body: &backend::ErrorResponseBody) -> SourceError {
    let mut error = ServerError { severity: "ERROR".to_owned(), sqlstate: String::new(), message: String::new() };
    let mut fields = body.fields();
    while let Ok(Some(field)) = fields.next() {
        let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'V' => error.severity = text,
            b'C' => error.sqlstate = text,
            b'M' => error.message = text,
            _ => {}
        }
    }
    SourceError::Server { doing, source: error }
}

/// The error that an `ErrorResponse` inside a stream carries; `message` as [`Messages`] gave it.
pub(crate) fn server_error_in(doing: &'static str, tag: u8, body: &[u8]) -> SourceError {
    let mut message = BytesMut::with_capacity(body.len() + HEADER_BYTES);
    message.extend_from_slice(&[tag]);
    message.extend_from_slice(&u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes());
    message.extend_from_slice(body);
    match backend::Message::parse(&mut message) {
        Ok(Some(backend::Message::ErrorResponse(body))) => server_error(doing, &body),
        _ => protocol("an error message that cannot be read"),
    }
}

pub(crate) fn protocol(what: &str) -> SourceError {
    SourceError::Protocol { what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn only_whole_messages_are_taken() {
        let bytes = [message(b'd', b"one"), message(b'd', b""), message(b'd', b"three")].concat();
        let ends = [8, 13, bytes.len()];
        for cut in 0..=bytes.len() {
            let expect = ends.iter().rev().find(|end| **end <= cut).copied().unwrap_or(0);
            assert_eq!(whole_prefix(&bytes[..cut], 100).unwrap(), expect, "cut at {cut}");
        }
        let bodies: Vec<_> = Messages::of(&bytes).map(|(tag, body)| (tag, body.to_vec())).collect();
        assert_eq!(bodies, [(b'd', b"one".to_vec()), (b'd', Vec::new()), (b'd', b"three".to_vec())]);
    }

    #[test]
    fn a_length_that_cannot_be_is_an_error_before_anything_is_allocated() {
        assert!(matches!(message_length(&[b'd', 0, 0, 0, 3], 100), Err(SourceError::Protocol { .. })));
        assert!(matches!(message_length(&[b'd', 0xFF, 0xFF, 0xFF, 0xFF], 100), Err(SourceError::Protocol { .. })));
        assert!(matches!(message_length(&[b'd', 0x3F, 0, 0, 0], 100), Err(SourceError::MessageTooLarge { .. })));
    }
}
