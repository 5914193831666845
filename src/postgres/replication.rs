//! The replication stream ("Streaming Replication Protocol" in the manual): how it is started, what its frames
//! are, and the one message that goes back.

use bytes::Bytes;

use crate::lsn::Lsn;
use crate::postgres::wire::{Messages, Wire, protocol, server_error_in};
use crate::postgres::{SourceError, quote_identifier, quote_literal};
use crate::progress::Durable;

/// Microseconds between the Unix epoch and PostgreSQL's (2000-01-01).
pub const POSTGRES_EPOCH_MICROSECONDS: i64 = 946_684_800_000_000;

/// The options of `START_REPLICATION` as sent, and as kept in the fingerprint: another set can mean other ordinals.
#[must_use]
pub fn start_options(publication: &str) -> String {
    // An identifier list inside a literal: quoted twice.
    format!("proto_version '1', publication_names {}, messages 'true'", quote_literal(&quote_identifier(publication)))
}

/// Starts streaming at `start`. The server never complains about the position: the slot has to be looked at
/// before, and again after.
///
/// # Errors
/// The server's refusal: slot missing or lost, publication missing, slot in use.
pub async fn start(wire: &mut Wire, slot: &str, start: Lsn, options: &str) -> Result<(), SourceError> {
    let statement = format!("START_REPLICATION SLOT {} LOGICAL {start} ({options})", quote_identifier(slot));
    wire.begin_copy("start replication", &statement).await
}

/// One frame of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message of the output plugin. `wal_start` is the LSN of its record, and 0/0 for some: no position.
    Data { wal_start: Lsn, message: &'a [u8] },
    /// Everything up to `wal_end` has been decoded and sent.
    Keepalive { wal_end: Lsn, reply_requested: bool },
}

/// A run of whole frames as they came from the socket.
#[derive(Clone, Debug)]
pub struct Frames(Bytes);

impl Frames {
    #[must_use]
    pub fn of(messages: Bytes) -> Self {
        Self(messages)
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The frames in order. The first error ends the stream: nothing after it is to be believed.
    pub fn iter(&self) -> impl Iterator<Item = Result<Frame<'_>, SourceError>> {
        // NoticeResponse and ParameterStatus may come at any time and say nothing of the stream.
        Messages::of(&self.0).filter(|(tag, _)| !matches!(tag, b'N' | b'S')).map(|(tag, body)| match tag {
            b'd' => frame(body).ok_or_else(|| protocol("a replication frame that is cut short or unknown")),
            b'E' => Err(server_error_in("stream changes", tag, body)),
            b'c' | b'C' | b'Z' => Err(SourceError::StreamEnded),
            other => Err(protocol(&format!("message `{}` inside the replication stream", other.escape_ascii()))),
        })
    }
}

fn frame(body: &[u8]) -> Option<Frame<'_>> {
    let (tag, rest) = body.split_first()?;
    let lsn = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes).map(Lsn::new);
    match tag {
        // start of the record (8), end of WAL (8), server's clock (8), message
        b'w' => Some(Frame::Data { wal_start: lsn(rest.get(..8)?)?, message: rest.get(24..)? }),
        // end of what was sent (8), server's clock (8), reply requested (1)
        b'k' => Some(Frame::Keepalive { wal_end: lsn(rest.get(..8)?)?, reply_requested: *rest.get(16)? == 1 }),
        _ => None,
    }
}

/// The standby status update: what is durable, as written, flushed and applied alike. With `ask` the server
/// answers with a keepalive at once.
#[must_use]
pub fn status_update(durable: Durable, ask: bool) -> Vec<u8> {
    let lsn = durable.lsn().as_u64().to_be_bytes();
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_micros();
    let clock = i64::try_from(clock).unwrap_or(i64::MAX) - POSTGRES_EPOCH_MICROSECONDS;
    let mut message = Vec::with_capacity(39);
    message.push(b'd');
    message.extend_from_slice(&38_u32.to_be_bytes());
    message.push(b'r');
    message.extend_from_slice(&lsn);
    message.extend_from_slice(&lsn);
    message.extend_from_slice(&lsn);
    message.extend_from_slice(&clock.to_be_bytes());
    message.push(u8::from(ask));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_data(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![b'd'];
        bytes.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn frames_are_read_and_a_short_one_is_an_error() {
        let mut data = vec![b'w'];
        data.extend_from_slice(&7_u64.to_be_bytes());
        data.extend_from_slice(&[0; 16]);
        data.extend_from_slice(b"message");
        let mut keepalive = vec![b'k'];
        keepalive.extend_from_slice(&9_u64.to_be_bytes());
        keepalive.extend_from_slice(&[0; 8]);
        keepalive.push(1);
        let frames = Frames::of([copy_data(&data), copy_data(&keepalive), copy_data(b"w123")].concat().into());
        let read: Vec<_> = frames.iter().collect();
        assert!(matches!(read[0], Ok(Frame::Data { wal_start, message: b"message" }) if wal_start == Lsn::new(7)));
        assert!(matches!(read[1], Ok(Frame::Keepalive { wal_end, reply_requested: true }) if wal_end == Lsn::new(9)));
        assert!(matches!(read[2], Err(SourceError::Protocol { .. })));
    }

    #[test]
    fn publication_names_are_an_identifier_inside_a_literal() {
        assert_eq!(start_options(r#"a"b'c"#), r#"proto_version '1', publication_names '"a""b''c"', messages 'true'"#);
    }
}
