//! Events as subscribers read them, written into a batch: the envelope of Debezium's PostgreSQL connector, with
//! what walgate adds at the end of the source block.
//!
//! ```text
//! {"before":…,"after":…,
//!  "source":{"version":…,"connector":"postgresql","name":…,"ts_ms":…,"snapshot":"false","db":…,"sequence":…,
//!            "ts_us":…,"ts_ns":…,"schema":…,"table":…,"txId":…,"lsn":…,"xmin":null,"origin":…,"origin_lsn":…,
//!            "commit_lsn":…,"ordinal":…,"order":…[,"unchanged":[…]]},
//!  "transaction":null,"op":…,"ts_ms":…,"ts_us":…,"ts_ns":…}
//! ```
//!
//! Where it differs from the peer's:
//! - an image has the columns that are known and no others; columns that an update left unchanged out of line are named in
//!   `unchanged`, not filled with a placeholder;
//! - `sequence` is `[commit LSN, record LSN]` of the change itself, where the peer's first is that of the commit before:
//!   both sort alike, but this one is the same after every restart. `null` where there is no transaction;
//! - `commit_lsn` and `ordinal` are the change's position, `null` for rows that were placed and messages outside transactions;
//!   `order` sorts the events of a key.
//!
//! An event above the limit is refused, and the batch is as if it had never been written.

use std::ops::Range;
use std::sync::Arc;

use super::digest::key_digest;
use super::identity::{Origin, Position, StreamIdentity};
use super::plan::{self, Columns, TablePlan};
use super::topic::Topic;
use super::value::{self, string};
use crate::batch::{Batch, Written};
use crate::config::format::{BinaryMode, Format, Operation, Style};
use crate::lsn::{Lsn, Xid};
use crate::pgoutput::message::Value;
use crate::progress::Counted;

/// When and where a change was made, and when it was seen.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Commit time, microseconds since 1970; of placed rows the time when they were read.
    pub commit_time_us: i64,
    pub xid: Option<Xid>,
    /// LSN of the change's own record; of placed rows the boundary.
    pub lsn: Lsn,
    /// The server that it was replicated from.
    pub replicated_from: Option<ReplicatedFrom<'a>>,
    /// walgate's clock, nanoseconds since 1970.
    pub now_ns: i64,
    /// Whether it was read from the table, not from the log.
    pub snapshot: bool,
    /// Its number in its transaction, where events are counted.
    pub numbered: Option<Numbered>,
}

/// The place of an event among those of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub transaction: TransactionId,
    /// Among all, from 1 on.
    pub total_order: u64,
    /// Among those of its table, from 1 on.
    pub table_order: u64,
}

/// What a transaction is called: the same in its begin, its end and each of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionId {
    pub xid: Xid,
    pub commit_lsn: Lsn,
}

/// A replication origin, as the Origin message names it.
#[derive(Clone, Copy, Debug)]
pub struct ReplicatedFrom<'a> {
    pub name: &'a str,
    /// Commit LSN over there.
    pub lsn: Lsn,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Create,
    Update,
    Delete,
    /// Read from the table.
    Read,
    Truncate,
    /// `pg_logical_emit_message`.
    Message,
}

impl Op {
    fn letter(self) -> &'static [u8] {
        match self {
            Self::Create => b"c",
            Self::Update => b"u",
            Self::Delete => b"d",
            Self::Read => b"r",
            Self::Truncate => b"t",
            Self::Message => b"m",
        }
    }
}

/// A row before or after a change, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum Image<'a> {
    /// Every column but the unchanged ones.
    Full(&'a [Value<'a>]),
    /// The columns of the replica identity, as an old key tuple has them.
    Identity(&'a [Value<'a>]),
    /// The columns of the key, as the row index has them.
    Key(&'a [Value<'a>]),
}

impl<'a> Image<'a> {
    fn row(&self) -> &'a [Value<'a>] {
        match self {
            Self::Full(row) | Self::Identity(row) | Self::Key(row) => row,
        }
    }

    fn columns(&self) -> Columns {
        match self {
            Self::Full(_) => Columns::All,
            Self::Identity(_) => Columns::Identity,
            Self::Key(_) => Columns::Key,
        }
    }
}

/// An event is larger than the sink or the configuration takes. Names the row by the digest of its key, never by
/// its values.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an event of `{table}` ({}) has {bytes} bytes, more than the {limit} allowed", described(*key_digest))]
pub struct EventTooLarge {
    /// `schema.table`; of a logical message its topic.
    pub table: String,
    /// [`key_digest`] of the index key; `None` where the row has no key.
    pub key_digest: Option<u128>,
    /// Key and value together.
    pub bytes: u64,
    pub limit: u64,
}

fn described(key_digest: Option<u128>) -> String {
    key_digest.map_or_else(|| "without a key".to_owned(), |digest| format!("key digest `{digest:032x}`"))
}

/// Writes the events of one stream.
#[derive(Debug)]
pub struct Envelope {
    stream: StreamIdentity,
    /// Key and value together, in bytes.
    event_bytes_max: u64,
    /// `"source":{` up to the value of `ts_ms`.
    source_start: Vec<u8>,
    /// `,"db":…,"sequence":`.
    source_database: Vec<u8>,
    /// The source block's schema and table of a logical message: both empty.
    source_of_messages: Vec<u8>,
    tombstones: bool,
    skipped: Vec<Operation>,
    binary: BinaryMode,
}

impl Envelope {
    /// `name` is the topic prefix, which the peer calls the logical name of the server.
    #[must_use]
    pub fn new(stream: StreamIdentity, database: &str, name: &str, event_bytes_max: u64, format: &Format) -> Self {
        let mut source_start =
            concat!(r#""source":{"version":""#, env!("CARGO_PKG_VERSION"), r#"","connector":"postgresql","name":"#).as_bytes().to_vec();
        string::write(name, &mut source_start);
        source_start.extend_from_slice(br#","ts_ms":"#);
        let mut source_database = br#","db":"#.to_vec();
        string::write(database, &mut source_database);
        source_database.extend_from_slice(br#","sequence":"#);
        Self {
            stream,
            event_bytes_max,
            source_start,
            source_database,
            source_of_messages: plan::source_fragment("", ""),
            tombstones: format.tombstones,
            skipped: format.skipped.clone(),
            binary: if let Style::Debezium(modes) = format.style { modes.binary } else { BinaryMode::Base64 },
        }
    }

    /// Whether no events are made of an operation.
    #[must_use]
    pub fn skips(&self, op: Op) -> bool {
        let operation = match op {
            Op::Create => Operation::Create,
            Op::Update => Operation::Update,
            Op::Delete => Operation::Delete,
            Op::Truncate => Operation::Truncate,
            Op::Read | Op::Message => return false,
        };
        self.skipped.contains(&operation)
    }

    #[must_use]
    pub fn stream(&self) -> &StreamIdentity {
        &self.stream
    }

    /// Writes the event of a row, unless its operation is skipped. Its key is that of `after` where there is one, else that
    /// of `before`.
    ///
    /// # Errors
    /// The event is above the limit; the batch is unchanged.
    #[expect(clippy::too_many_arguments, reason = "each is another thing, and none goes with another")]
    pub fn row(
        &self,
        batch: &mut Batch,
        plan: &TablePlan,
        origin: Origin,
        moment: &Moment<'_>,
        op: Op,
        before: Option<Image<'_>>,
        after: Option<Image<'_>>,
    ) -> Result<(), EventTooLarge> {
        if self.skips(op) {
            return Ok(());
        }
        let keyed_row = after.as_ref().or(before.as_ref()).map(Image::row).filter(|_| plan.has_key());
        let unchanged_in = match after {
            Some(Image::Full(row)) => Some(row),
            Some(Image::Identity(_) | Image::Key(_)) | None => None,
        };
        let arena = batch.arena();
        let start = arena.len();
        let key = keyed_row.map(|row| piece(arena, |out| plan.write_key(row, out)));
        let value_start = arena.len();
        arena.extend_from_slice(br#"{"before":"#);
        write_image(plan, before, arena);
        arena.extend_from_slice(br#","after":"#);
        write_image(plan, after, arena);
        arena.push(b',');
        let order = self.write_source(plan.source(), origin, moment, unchanged_in.map(|row| (plan, row)), arena);
        arena.extend_from_slice(br#","transaction":"#);
        write_numbered(moment.numbered, arena);
        arena.extend_from_slice(br#","op":""#);
        arena.extend_from_slice(op.letter());
        arena.extend_from_slice(br#"","ts_ms":"#);
        write_number(moment.now_ns.div_euclid(1_000_000), arena);
        arena.extend_from_slice(br#","ts_us":"#);
        write_number(moment.now_ns.div_euclid(1_000), arena);
        arena.extend_from_slice(br#","ts_ns":"#);
        write_number(moment.now_ns, arena);
        arena.push(b'}');
        let value = Some(value_start..arena.len());
        self.push(batch, plan.topic(), origin, start, Pieces { key, value, order }).map_err(|TooLarge { bytes }| {
            let mut index_key = Vec::new();
            let key_digest = keyed_row.and_then(|row| plan.write_index_key(row, &mut index_key).ok()).map(|()| key_digest(&index_key));
            let table = format!("{}.{}", plan.relation().schema, plan.relation().name);
            EventTooLarge { table, key_digest, bytes, limit: self.event_bytes_max }
        })
    }

    /// Writes the event that makes a compacted topic forget the key of `row`. Never above the limit, as the
    /// delete before it was not. Nothing where there was no such delete, or tombstones are not wanted.
    pub fn tombstone(&self, batch: &mut Batch, plan: &TablePlan, origin: Origin, row: &[Value<'_>]) {
        if !self.tombstones || self.skips(Op::Delete) {
            return;
        }
        let arena = batch.arena();
        let key = piece(arena, |out| plan.write_key(row, out));
        let order = piece(arena, |out| origin.order(&self.stream).write(out));
        let id = piece(arena, |out| origin.write_id(&self.stream, out));
        batch.push(Arc::clone(plan.topic()), Written { key: Some(key), value: None, id, order });
    }

    /// Writes the event of a table that was truncated: no key, no rows.
    ///
    /// # Errors
    /// The event is above the limit; the batch is unchanged.
    pub fn truncate(&self, batch: &mut Batch, plan: &TablePlan, origin: Origin, moment: &Moment<'_>) -> Result<(), EventTooLarge> {
        self.row(batch, plan, origin, moment, Op::Truncate, None, None)
    }

    /// Writes the event of a logical message, its content as base64 or as the style has bytes. The key is its prefix.
    ///
    /// # Errors
    /// The event is above the limit; the batch is unchanged.
    pub fn logical_message(
        &self,
        batch: &mut Batch,
        topic: &Arc<Topic>,
        origin: Origin,
        moment: &Moment<'_>,
        prefix: &str,
        content: &[u8],
    ) -> Result<(), EventTooLarge> {
        let arena = batch.arena();
        let start = arena.len();
        let key = piece(arena, |out| {
            out.extend_from_slice(br#"{"prefix":"#);
            string::write(prefix, out);
            out.push(b'}');
        });
        let value_start = arena.len();
        arena.extend_from_slice(br#"{"op":""#);
        arena.extend_from_slice(Op::Message.letter());
        arena.extend_from_slice(br#"","ts_ms":"#);
        write_number(moment.now_ns.div_euclid(1_000_000), arena);
        arena.push(b',');
        let order = self.write_source(&self.source_of_messages, origin, moment, None, arena);
        arena.extend_from_slice(br#","transaction":"#);
        write_numbered(moment.numbered, arena);
        arena.extend_from_slice(br#","message":{"prefix":"#);
        string::write(prefix, arena);
        arena.extend_from_slice(br#","content":"#);
        value::write_bytes(content, self.binary, arena);
        arena.extend_from_slice(b"}}");
        let value = Some(value_start..arena.len());
        self.push(batch, topic, origin, start, Pieces { key: Some(key), value, order }).map_err(|TooLarge { bytes }| EventTooLarge {
            table: topic.name.clone(),
            key_digest: None,
            bytes,
            limit: self.event_bytes_max,
        })
    }

    /// Writes that a transaction begins or, with what was `counted`, ends. The key is its id.
    ///
    /// # Errors
    /// The event is above the limit; the batch is unchanged.
    pub fn transaction(
        &self,
        batch: &mut Batch,
        topic: &Arc<Topic>,
        origin: Origin,
        id: TransactionId,
        commit_time_us: i64,
        counted: Option<&Counted>,
    ) -> Result<(), EventTooLarge> {
        let arena = batch.arena();
        let start = arena.len();
        let key = piece(arena, |out| {
            out.extend_from_slice(br#"{"id":"#);
            write_transaction_id(id, out);
            out.push(b'}');
        });
        let value_start = arena.len();
        arena.extend_from_slice(if counted.is_some() { br#"{"status":"END","id":"# } else { br#"{"status":"BEGIN","id":"# });
        write_transaction_id(id, arena);
        arena.extend_from_slice(br#","event_count":"#);
        write_or_null(counted.map(|counted| counted.total), arena);
        arena.extend_from_slice(br#","data_collections":"#);
        write_counted(counted, arena);
        arena.extend_from_slice(br#","ts_ms":"#);
        write_number(commit_time_us.div_euclid(1_000), arena);
        arena.extend_from_slice(br#","order":""#);
        let order = piece(arena, |out| origin.order(&self.stream).write(out));
        arena.extend_from_slice(br#""}"#);
        let value = Some(value_start..arena.len());
        self.push(batch, topic, origin, start, Pieces { key: Some(key), value, order }).map_err(|TooLarge { bytes }| EventTooLarge {
            table: topic.name.clone(),
            key_digest: None,
            bytes,
            limit: self.event_bytes_max,
        })
    }

    /// Adds the event whose pieces lie in the arena from `start` on, or takes them back.
    fn push(&self, batch: &mut Batch, topic: &Arc<Topic>, origin: Origin, start: usize, pieces: Pieces) -> Result<(), TooLarge> {
        let Pieces { key, value, order } = pieces;
        let arena = batch.arena();
        let bytes = (arena.len() - start) as u64;
        if bytes > self.event_bytes_max {
            batch.truncate_arena(start);
            return Err(TooLarge { bytes });
        }
        let id = piece(arena, |out| origin.write_id(&self.stream, out));
        batch.push(Arc::clone(topic), Written { key, value, id, order });
        Ok(())
    }

    /// Writes the source block and says where in it the text of the order lies.
    fn write_source(
        &self,
        table: &[u8],
        origin: Origin,
        moment: &Moment<'_>,
        row: Option<(&TablePlan, &[Value<'_>])>,
        out: &mut Vec<u8>,
    ) -> Range<usize> {
        let position = match origin {
            Origin::Streamed { position, .. } | Origin::Truncated { position, .. } => Some(position),
            Origin::Transaction { .. } | Origin::Message { .. } | Origin::Placed { .. } => None,
        };
        out.extend_from_slice(&self.source_start);
        write_number(moment.commit_time_us.div_euclid(1_000), out);
        out.extend_from_slice(if moment.snapshot { br#","snapshot":"true""# } else { br#","snapshot":"false""# });
        out.extend_from_slice(&self.source_database);
        write_sequence(position, moment.lsn, out);
        out.extend_from_slice(br#","ts_us":"#);
        write_number(moment.commit_time_us, out);
        out.extend_from_slice(br#","ts_ns":"#);
        write_number(moment.commit_time_us.saturating_mul(1_000), out);
        out.push(b',');
        out.extend_from_slice(table);
        out.extend_from_slice(br#","txId":"#);
        write_or_null(moment.xid.map(Xid::as_u32), out);
        out.extend_from_slice(br#","lsn":"#);
        write_number(moment.lsn.as_u64(), out);
        out.extend_from_slice(br#","xmin":null,"origin":"#);
        match moment.replicated_from {
            Some(from) => string::write(from.name, out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(br#","origin_lsn":"#);
        write_or_null(moment.replicated_from.map(|from| from.lsn.as_u64()), out);
        out.extend_from_slice(br#","commit_lsn":"#);
        write_or_null(position.map(|position| position.commit_lsn.as_u64()), out);
        out.extend_from_slice(br#","ordinal":"#);
        write_or_null(position.map(|position| position.ordinal), out);
        out.extend_from_slice(br#","order":""#);
        let order = piece(out, |out| origin.order(&self.stream).write(out));
        out.push(b'"');
        if let Some((plan, row)) = row {
            write_unchanged(plan, row, out);
        }
        out.push(b'}');
        order
    }
}

/// Where key, value and order of an event lie in the arena; the order inside the value.
struct Pieces {
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    order: Range<usize>,
}

/// Key and value together are above the limit.
struct TooLarge {
    bytes: u64,
}

/// What `write` writes, and where it lies.
fn piece(arena: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
    let start = arena.len();
    write(arena);
    start..arena.len()
}

fn write_numbered(numbered: Option<Numbered>, out: &mut Vec<u8>) {
    let Some(Numbered { transaction, total_order, table_order }) = numbered else {
        out.extend_from_slice(b"null");
        return;
    };
    out.extend_from_slice(br#"{"id":"#);
    write_transaction_id(transaction, out);
    out.extend_from_slice(br#","total_order":"#);
    write_number(total_order, out);
    out.extend_from_slice(br#","data_collection_order":"#);
    write_number(table_order, out);
    out.push(b'}');
}

/// `"xid:commit LSN"`, both decimal.
fn write_transaction_id(id: TransactionId, out: &mut Vec<u8>) {
    out.push(b'"');
    write_number(id.xid.as_u32(), out);
    out.push(b':');
    write_number(id.commit_lsn.as_u64(), out);
    out.push(b'"');
}

fn write_counted(counted: Option<&Counted>, out: &mut Vec<u8>) {
    let Some(counted) = counted else {
        out.extend_from_slice(b"null");
        return;
    };
    let mut opening = b'[';
    for (table, count) in &counted.tables {
        out.push(opening);
        out.extend_from_slice(br#"{"data_collection":"#);
        string::write(table, out);
        out.extend_from_slice(br#","event_count":"#);
        write_number(*count, out);
        out.push(b'}');
        opening = b',';
    }
    out.extend_from_slice(if opening == b'[' { b"[]" } else { b"]" });
}

fn write_image(plan: &TablePlan, image: Option<Image<'_>>, out: &mut Vec<u8>) {
    match image {
        Some(image) => plan.write_image(image.row(), image.columns(), out),
        None => out.extend_from_slice(b"null"),
    }
}

/// A JSON array of two decimal strings, as text inside a string.
fn write_sequence(position: Option<Position>, lsn: Lsn, out: &mut Vec<u8>) {
    match position {
        Some(Position { commit_lsn, .. }) => {
            out.extend_from_slice(br#""[\""#);
            write_number(commit_lsn.as_u64(), out);
            out.extend_from_slice(br#"\",\""#);
        }
        None => out.extend_from_slice(br#""[null,\""#),
    }
    write_number(lsn.as_u64(), out);
    out.extend_from_slice(br#"\"]""#);
}

/// `,"unchanged":[…]`, only where a column is.
fn write_unchanged(plan: &TablePlan, row: &[Value<'_>], out: &mut Vec<u8>) {
    let mut opening: &[u8] = br#","unchanged":["#;
    for name in plan.unchanged(row) {
        out.extend_from_slice(opening);
        string::write(name, out);
        opening = b",";
    }
    if opening == b"," {
        out.push(b']');
    }
}

fn write_number(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn write_or_null(number: Option<impl itoa::Integer>, out: &mut Vec<u8>) {
    match number {
        Some(number) => write_number(number, out),
        None => out.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests;
