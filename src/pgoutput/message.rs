//! One message of pgoutput, protocol version 1, text format (PostgreSQL manual, "Logical Replication Message
//! Formats"): the walsender's bytes in, a typed view of them out.
//!
//! A row is not copied: its [`Tuple`] is validated once here and then iterated without a way to fail. What the
//! manual does not list is a typed error, never a guess: unknown tags, bytes after the end, binary columns
//! (walgate does not ask for them), messages of streamed and prepared transactions (protocol 2 and later).

use std::fmt;

use super::reader::{DecodeError, Reader, Tag};
use super::relation::{self, Relation};
use crate::lsn::{Lsn, Oid, Xid};

/// A message. Times are microseconds since 2000-01-01, UTC; see [`unix_time_us`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A committed transaction begins.
    Begin {
        /// LSN of its commit record: the same as the Commit message's `commit_lsn`.
        final_lsn: Lsn,
        commit_time: i64,
        xid: Xid,
    },
    Commit {
        commit_lsn: Lsn,
        /// End of the commit record: where the stream goes on.
        end_lsn: Lsn,
        commit_time: i64,
    },
    /// The transaction came from another server by replication. May repeat.
    Origin {
        /// Its commit LSN over there.
        lsn: Lsn,
        name: &'a str,
    },
    Relation(Relation),
    /// Names a type that is not built in, before the relation that uses it.
    Type {
        oid: Oid,
        schema: &'a str,
        name: &'a str,
    },
    Insert {
        relation: Oid,
        new: Tuple<'a>,
    },
    Update {
        relation: Oid,
        /// There when the key changed, when the identity is full, or when a key value is stored out of line.
        old: Option<OldTuple<'a>>,
        new: Tuple<'a>,
    },
    Delete {
        relation: Oid,
        old: OldTuple<'a>,
    },
    Truncate {
        relations: Vec<Oid>,
        cascade: bool,
        restart_identity: bool,
    },
    /// `pg_logical_emit_message`.
    Logical {
        transactional: bool,
        lsn: Lsn,
        prefix: &'a str,
        content: &'a [u8],
    },
}

/// A row as it was before an update or a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldTuple<'a> {
    /// The columns of the replica identity; the others come as [`Value::Null`], which here means unknown.
    Key(Tuple<'a>),
    /// Every column.
    Full(Tuple<'a>),
}

impl<'a> OldTuple<'a> {
    #[must_use]
    pub fn tuple(&self) -> &Tuple<'a> {
        match self {
            Self::Key(tuple) | Self::Full(tuple) => tuple,
        }
    }
}

/// The values of a row, in the order of its relation's columns. Their bytes were checked when it was made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tuple<'a> {
    count: usize,
    bytes: &'a [u8],
}

/// One value of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    /// Stored out of line (in a TOAST table) and not touched by the update: the server does not send it.
    Unchanged,
    /// As the type's output function prints it.
    Text(&'a [u8]),
}

/// The message in `bytes`, the payload of one `XLogData`.
///
/// # Errors
/// The bytes are not a message of protocol version 1; see [`DecodeError`].
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, DecodeError> {
    let (tag, mut reader) = Reader::new(bytes)?;
    let message = match tag {
        b'B' => begin(&mut reader),
        b'C' => commit(&mut reader),
        b'O' => origin(&mut reader),
        b'R' => Relation::read(&mut reader).map(Message::Relation),
        b'Y' => type_name(&mut reader),
        b'I' => insert(&mut reader),
        b'U' => update(&mut reader),
        b'D' => delete(&mut reader),
        b'T' => truncate(&mut reader),
        b'M' => logical(&mut reader),
        unknown => Err(DecodeError::UnknownTag(Tag(unknown))),
    }?;
    reader.finish()?;
    Ok(message)
}

/// A time of PostgreSQL, in microseconds since 2000-01-01, as microseconds since 1970-01-01.
#[must_use]
pub fn unix_time_us(postgres_time_us: i64) -> i64 {
    const EPOCH_DISTANCE_US: i64 = 10_957 * 86_400 * 1_000_000;
    postgres_time_us.saturating_add(EPOCH_DISTANCE_US)
}

fn begin<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    let final_lsn = reader.lsn("final LSN")?;
    let commit_time = reader.i64("commit time")?;
    Ok(Message::Begin { final_lsn, commit_time, xid: Xid::new(reader.u32("transaction id")?) })
}

fn commit<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    expect(reader, "flags", |flags| flags == 0, "`\\x00`")?;
    let commit_lsn = reader.lsn("commit LSN")?;
    let end_lsn = reader.lsn("end LSN")?;
    Ok(Message::Commit { commit_lsn, end_lsn, commit_time: reader.i64("commit time")? })
}

fn origin<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    Ok(Message::Origin { lsn: reader.lsn("origin LSN")?, name: reader.name("origin name")? })
}

fn type_name<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    Ok(Message::Type { oid: reader.oid("type OID")?, schema: relation::schema(reader)?, name: reader.name("type name")? })
}

fn insert<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    let relation = reader.oid("relation OID")?;
    Ok(Message::Insert { relation, new: new_tuple(reader)? })
}

fn update<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    let relation = reader.oid("relation OID")?;
    let old = if reader.left().first() == Some(&b'N') { None } else { Some(old_tuple(reader)?) };
    Ok(Message::Update { relation, old, new: new_tuple(reader)? })
}

fn delete<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    let relation = reader.oid("relation OID")?;
    Ok(Message::Delete { relation, old: old_tuple(reader)? })
}

fn truncate<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    const CASCADE: u8 = 1;
    const RESTART_IDENTITY: u8 = 2;
    const OID_BYTES: usize = 4;
    // The count stands before the flags, and they before the items, so one byte more than the items is due.
    let count = reader.count_of_32_bits("relation count", OID_BYTES)?;
    let flags = reader.u8("flags")?;
    let relations = (0..count).map(|_| reader.oid("relation OID")).collect::<Result<_, _>>()?;
    Ok(Message::Truncate { relations, cascade: flags & CASCADE != 0, restart_identity: flags & RESTART_IDENTITY != 0 })
}

fn logical<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
    let transactional = expect(reader, "flags", |flags| flags <= 1, "`\\x00` or `\\x01`")? == 1;
    let lsn = reader.lsn("LSN")?;
    let prefix = reader.name("prefix")?;
    let length = reader.length("content length")?;
    Ok(Message::Logical { transactional, lsn, prefix, content: reader.take("content", length)? })
}

fn new_tuple<'a>(reader: &mut Reader<'a>) -> Result<Tuple<'a>, DecodeError> {
    expect(reader, "kind of the new tuple", |kind| kind == b'N', "`N`")?;
    Tuple::read(reader)
}

fn old_tuple<'a>(reader: &mut Reader<'a>) -> Result<OldTuple<'a>, DecodeError> {
    match expect(reader, "kind of the old tuple", |kind| matches!(kind, b'K' | b'O'), "`K` or `O`")? {
        b'K' => Tuple::read(reader).map(OldTuple::Key),
        _ => Tuple::read(reader).map(OldTuple::Full),
    }
}

/// The next byte, which has to be one of those that `allowed` knows.
fn expect(reader: &mut Reader<'_>, field: &'static str, allowed: fn(u8) -> bool, expected: &'static str) -> Result<u8, DecodeError> {
    let found = reader.u8(field)?;
    if allowed(found) { Ok(found) } else { Err(DecodeError::Unexpected { tag: reader.tag(), field, found, expected }) }
}

impl<'a> Tuple<'a> {
    /// Values, as many as the relation has columns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[must_use]
    pub fn values(&self) -> Values<'a> {
        Values { bytes: self.bytes }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.count_of_16_bits("value count", 1)?;
        let bytes = reader.left();
        for _ in 0..count {
            match reader.u8("kind of a value")? {
                b'n' | b'u' => {}
                b't' => {
                    let length = reader.length("length of a value")?;
                    reader.take("text of a value", length)?;
                }
                found => {
                    let expected = "`n`, `u` or `t` (binary values are not asked for)";
                    return Err(DecodeError::Unexpected { tag: reader.tag(), field: "kind of a value", found, expected });
                }
            }
        }
        let used = bytes.len() - reader.left().len();
        Ok(Self { count, bytes: bytes.get(..used).unwrap_or_default() })
    }
}

/// The values of a [`Tuple`].
#[derive(Clone)]
pub struct Values<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let (kind, rest) = self.bytes.split_first()?;
        let (value, rest) = match kind {
            b'n' => (Value::Null, rest),
            b'u' => (Value::Unchanged, rest),
            _ => {
                let (length, rest) = rest.split_first_chunk()?;
                let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
                (Value::Text(text), rest)
            }
        };
        self.bytes = rest;
        Some(value)
    }
}

/// Without the values: they may not reach a log.
impl fmt::Debug for Tuple<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tuple({} values)", self.count)
    }
}

/// Without the text: it may not reach a log.
impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Unchanged => f.write_str("Unchanged"),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
        }
    }
}

#[cfg(test)]
mod tests;
