//! Who an event is: its position, its id and its place in the order. Made from durable facts only, so that
//! the same change has the same identity on every retry, restart, re-read and fail-over.

use std::fmt;
use std::io::Write as _;

use serde::{Deserialize, Serialize};

use crate::lsn::{Lsn, Oid};

/// Where a change stands in its stream: the LSN of its transaction's commit record, and the 0-based count of
/// the change among the Insert, Update, Delete, Truncate and transactional Message messages of that transaction.
/// A row's own record LSN is no identity: one COPY writes many rows under one LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    pub commit_lsn: Lsn,
    pub ordinal: u64,
}

/// The facts of a stream that its event ids and orders carry. Fixed for a replication connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamIdentity {
    /// `stream` of the configuration.
    pub stream: String,
    /// `IDENTIFY_SYSTEM`.
    pub system_identifier: u64,
    /// Rises with each new slot and each new timeline; first part of the order.
    pub stream_epoch: u32,
    /// `(first LSN, timeline)`, ascending: which timeline of the server's history holds an LSN.
    pub timelines: Vec<(Lsn, u32)>,
}

impl StreamIdentity {
    /// The timeline that holds `lsn` in the server's own history.
    #[must_use]
    pub fn timeline_of(&self, lsn: Lsn) -> u32 {
        self.timelines.iter().rev().find(|(first, _)| *first <= lsn).or(self.timelines.first()).map_or(1, |(_, timeline)| *timeline)
    }
}

/// What an event came from, as far as identity is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A message of the stream. `part` tells apart the events that one message becomes: delete (0), tombstone (1)
    /// and create (2) of a key change; the tables of one TRUNCATE.
    Streamed { position: Position, part: u16 },
    /// A row that a TRUNCATE deleted, where that is told row by row: the rows are numbered from 1 on. `table` is that of
    /// the message, counted from 0 on; `part` is 1 for the
    /// tombstone after the delete, else 0.
    Truncated { position: Position, row_number: u32, table: u16, key_digest: u128, part: u16 },
    /// Where a transaction begins, or, after so many messages, ends.
    Transaction { commit_lsn: Lsn, ended_after: Option<u64> },
    /// A logical message outside transactions, which has an LSN of its own.
    Message { lsn: Lsn },
    /// A row placed by a splice at a boundary.
    Placed {
        /// The boundary's LSN and the 0-based count of the event at it.
        boundary: Lsn,
        count: u64,
        table_epoch: u64,
        table: Oid,
        key_digest: u128,
        /// `None` for a delete.
        row_digest: Option<u128>,
        /// 1 for the tombstone after a delete, else 0.
        part: u16,
    },
}

impl Origin {
    /// Writes the event's id, the idempotency key of sinks that take one:
    /// `stream:system_identifier:timeline:commit_lsn:ordinal[.part]` for streamed changes (`.table.key digest`
    /// for rows that a TRUNCATE deleted),
    /// `stream:system_identifier:timeline:commit_lsn:begin` and `end` for those of a transaction,
    /// `stream:system_identifier:timeline:lsn:m` for messages outside transactions,
    /// `stream:system_identifier:table epoch:table oid:key digest:row digest` for placed rows (`d` for deletes).
    pub fn write_id(&self, stream: &StreamIdentity, out: &mut Vec<u8>) {
        let StreamIdentity { stream: name, system_identifier: system, .. } = stream;
        let written = match *self {
            Self::Streamed { position: Position { commit_lsn, ordinal }, part } => {
                let timeline = stream.timeline_of(commit_lsn);
                let base = write!(out, "{name}:{system}:{timeline}:{commit_lsn}:{ordinal}");
                if part == 0 { base } else { base.and_then(|()| write!(out, ".{part}")) }
            }
            Self::Truncated { position: Position { commit_lsn, ordinal }, table, key_digest, part, .. } => {
                let timeline = stream.timeline_of(commit_lsn);
                let base = write!(out, "{name}:{system}:{timeline}:{commit_lsn}:{ordinal}.{table}.{key_digest:032x}");
                if part == 0 { base } else { base.and_then(|()| write!(out, ".{part}")) }
            }
            Self::Transaction { commit_lsn, ended_after } => {
                let which = if ended_after.is_some() { "end" } else { "begin" };
                write!(out, "{name}:{system}:{}:{commit_lsn}:{which}", stream.timeline_of(commit_lsn))
            }
            Self::Message { lsn } => write!(out, "{name}:{system}:{}:{lsn}:m", stream.timeline_of(lsn)),
            Self::Placed { table_epoch, table, key_digest, row_digest, part, .. } => {
                let base = write!(out, "{name}:{system}:{table_epoch}:{table}:{key_digest:032x}:");
                let base = base.and_then(|()| match row_digest {
                    Some(digest) => write!(out, "{digest:032x}"),
                    None => write!(out, "d"),
                });
                if part == 0 { base } else { base.and_then(|()| write!(out, ".{part}")) }
            }
        };
        debug_assert!(written.is_ok(), "writing to memory cannot fail");
    }

    /// The event's place in the order of its stream; see [`Order`].
    #[must_use]
    pub fn order(&self, stream: &StreamIdentity) -> Order {
        let row_number = if let Self::Truncated { row_number, .. } = *self { row_number } else { 0 };
        let (lsn, class, ordinal, part) = match *self {
            Self::Streamed { position, part } | Self::Truncated { position, part, .. } => (position.commit_lsn, 1, position.ordinal, part),
            Self::Transaction { commit_lsn, ended_after } => (commit_lsn, 1, ended_after.unwrap_or(0), 0),
            Self::Message { lsn } => (lsn, 1, 0, 0),
            Self::Placed { boundary, count, part, .. } => (boundary, 0, count, part),
        };
        Order { stream_epoch: stream.stream_epoch, lsn, class, ordinal, row_number, part }
    }
}

/// Stream epoch, LSN, class (0 placed, 1 streamed), ordinal and part: printed with a fixed width, so that the
/// text sorts as bytes. Rows that a TRUNCATE deleted have part 0, and behind it their number and part. A boundary's LSN can equal the next transaction's commit LSN; the class keeps them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    stream_epoch: u32,
    lsn: Lsn,
    class: u8,
    ordinal: u64,
    /// Zero but for rows that a TRUNCATE deleted.
    row_number: u32,
    part: u16,
}

impl Order {
    /// Writes the text, mostly 49 bytes: each event carries it, so it does not go through the formatter.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_hex::<8>(u64::from(self.stream_epoch), out);
        out.push(b'.');
        write_hex::<16>(self.lsn.as_u64(), out);
        out.extend_from_slice(&[b'.', b'0' + self.class, b'.']);
        write_hex::<16>(self.ordinal, out);
        out.push(b'.');
        if self.row_number > 0 {
            out.extend_from_slice(b"0000.");
            write_hex::<8>(u64::from(self.row_number), out);
            out.push(b'.');
        }
        write_hex::<4>(u64::from(self.part), out);
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.write(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// The last `DIGITS` hexadecimal digits of `number`.
fn write_hex<const DIGITS: usize>(number: u64, out: &mut Vec<u8>) {
    let mut text = [b'0'; DIGITS];
    let mut rest = number;
    for digit in text.iter_mut().rev() {
        let nibble = (rest & 0xF) as u8;
        *digit = if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) };
        rest >>= 4;
    }
    out.extend_from_slice(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> StreamIdentity {
        StreamIdentity {
            stream: "shop".to_owned(),
            system_identifier: 42,
            stream_epoch: 3,
            timelines: vec![(Lsn::new(0), 1), (Lsn::new(0x100), 2)],
        }
    }

    fn id(origin: Origin) -> String {
        let mut out = Vec::new();
        origin.write_id(&stream(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn streamed(lsn: u64, ordinal: u64, part: u16) -> Origin {
        Origin::Streamed { position: Position { commit_lsn: Lsn::new(lsn), ordinal }, part }
    }

    fn truncated(lsn: u64, ordinal: u64, row_number: u32, part: u16) -> Origin {
        Origin::Truncated { position: Position { commit_lsn: Lsn::new(lsn), ordinal }, row_number, table: 2, key_digest: 1, part }
    }

    fn placed(boundary: u64, count: u64) -> Origin {
        Origin::Placed {
            boundary: Lsn::new(boundary),
            count,
            table_epoch: 7,
            table: Oid::new(16_385),
            key_digest: 1,
            row_digest: None,
            part: 0,
        }
    }

    #[test]
    fn id_names_the_timeline_that_holds_the_lsn() {
        assert_eq!(id(streamed(0xFF, 0, 0)), "shop:42:1:0/FF:0");
        assert_eq!(id(streamed(0x100, 5, 2)), "shop:42:2:0/100:5.2");
        let truncated = truncated(0x100, 5, 3, 1);
        assert_eq!(id(truncated), "shop:42:2:0/100:5.2.00000000000000000000000000000001.1");
        assert_eq!(id(placed(0, 0)), "shop:42:7:16385:00000000000000000000000000000001:d");
    }

    #[test]
    fn order_sorts_as_bytes_and_a_placed_row_precedes_the_transaction_at_its_boundary() {
        let orders = [
            streamed(0xFF, 12, 0),
            placed(0x100, 0),
            placed(0x100, 1),
            streamed(0x100, 0, 0),
            streamed(0x100, 0, 1),
            streamed(0x100, 16, 0),
        ];
        let texts: Vec<String> = orders.iter().map(|origin| origin.order(&stream()).to_string()).collect();
        assert!(texts.is_sorted(), "{texts:#?}");
        assert_eq!(texts[5], "00000003.0000000000000100.1.0000000000000010.0000");
    }
}
