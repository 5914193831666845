//! Step 2 of the algorithm: a chunk is read in one short transaction with a snapshot of its own. Nothing stays
//! open on the server afterwards.

use std::time::Duration;

use crate::config::Address;
use crate::event::plan::index_key_values;
use crate::lsn::Lsn;
use crate::postgres::catalog::{CatalogTable, Leaf, fingerprint, fingerprint_statement};
use crate::postgres::system::System;
use crate::postgres::wire::{Messages, Purpose, Wire, protocol, server_error_in};
use crate::postgres::{SourceError, quote_table};
use crate::splice::chunk::{MustSee, Range, Rows, Tid, copy_statement, heap_condition, keys_condition, position_to_pass};
use crate::splice::snapshot::Snapshot;

/// The lock is tried for this long before the transaction is given up and tried again: a table being altered is
/// waited for without anything open.
const LOCK_TIMEOUT: &str = "2s";

/// A chunk as asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub table: std::sync::Arc<CatalogTable>,
    /// Names of the key columns, in key order.
    pub key: Vec<String>,
    pub range: Range,
    pub must_see: MustSee,
    /// Rows past this many bytes are left to another chunk.
    pub bytes_max: usize,
}

/// What came of it.
#[derive(Debug)]
pub enum Answer {
    Read(Chunk),
    /// The snapshot does not yet see what it has to, or the lock was not to be had: ask again, noting goes on.
    Retake {
        why: &'static str,
    },
    /// The table is not what the plan rests on any more: plan it again.
    Changed,
}

/// A chunk as read.
#[derive(Debug)]
pub struct Chunk {
    pub rows: Rows,
    pub snapshot: Snapshot,
    /// The stream has to pass this position before the rows may be placed.
    pub position_to_pass: Lsn,
    /// Where the chunk was cut because it grew too large: the rest begins here.
    pub cut: Option<Tid>,
    /// Of the first chunk of a leaf: the blocks that the leaf had then.
    pub blocks: Option<u32>,
}

/// The connection that chunks are read on; made again after an error or a cut.
pub struct Reader {
    address: Address,
    application_name: String,
    connect_timeout: Duration,
    system: System,
    publication: String,
    message_bytes_max: u64,
    wire: Option<Wire>,
}

impl Reader {
    #[must_use]
    pub fn new(
        address: Address,
        application_name: String,
        connect_timeout: Duration,
        system: System,
        publication: String,
        message_bytes_max: u64,
    ) -> Self {
        Self { address, application_name, connect_timeout, system, publication, message_bytes_max, wire: None }
    }

    /// Reads one chunk.
    ///
    /// # Errors
    /// The connection's or the server's; another server than the one that streams.
    pub async fn read(&mut self, request: &Request) -> Result<Answer, SourceError> {
        let mut wire = if let Some(wire) = self.wire.take() {
            wire
        } else {
            let mut wire = Wire::connect(&self.address, Purpose::Chunks, &self.application_name, self.connect_timeout).await?;
            wire.set_message_bytes_max(self.message_bytes_max);
            wire
        };
        let answer = self.read_on(&mut wire, request).await?;
        // A connection in the middle of a COPY that was cut is not worth draining.
        if !matches!(&answer, Answer::Read(chunk) if chunk.cut.is_some()) {
            self.wire = Some(wire);
        }
        Ok(answer)
    }

    async fn read_on(&self, wire: &mut Wire, request: &Request) -> Result<Answer, SourceError> {
        let leaves: Vec<&Leaf> = match &request.range {
            Range::Heap { leaf, .. } => vec![leaf],
            Range::Whole { leaves } | Range::Keys { leaves, .. } => leaves.iter().collect(),
        };
        // The lock comes before anything that takes a snapshot; LOCK takes none.
        wire.query("begin a chunk", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        wire.query("begin a chunk", &format!("SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")).await?;
        for leaf in &leaves {
            let lock = format!("LOCK TABLE ONLY {} IN ACCESS SHARE MODE", quote_table(&leaf.schema, &leaf.name));
            if let Err(error) = wire.query("lock a table against being altered", &lock).await {
                let answer = match error.sqlstate() {
                    Some("55P03") => Answer::Retake { why: "the table is locked" },
                    Some("42P01" | "3F000") => Answer::Changed,
                    _ => return Err(error),
                };
                wire.query("give up a chunk", "ROLLBACK").await?;
                return Ok(answer);
            }
        }
        let (snapshot, insert_lsn) = self.take_snapshot(wire).await?;
        if !request.must_see.is_met_by(&snapshot) {
            wire.query("give up a chunk", "COMMIT").await?;
            return Ok(Answer::Retake {
                why: "transactions already in the log are not visible yet: the oldest in pg_stat_activity (by backend_xid and backend_xmin, of any database) or in pg_prepared_xacts holds it up",
            });
        }
        let statement = fingerprint_statement(self.system.version, &self.publication, request.table.relation.oid);
        let seen = wire.query("look at what the plan rests on", &statement).await?;
        if fingerprint(seen.first().and_then(|row| row.first()).and_then(Option::as_deref)) != request.table.fingerprint {
            wire.query("give up a chunk", "COMMIT").await?;
            return Ok(Answer::Changed);
        }
        let mut rows = Rows::with_columns(request.table.relation.columns.len());
        let (mut cut, mut blocks) = (None, None);
        match &request.range {
            Range::Heap { leaf, from, before } => {
                if *from == (0, 0) {
                    blocks = Some(self.blocks_of(wire, leaf).await?);
                }
                let statement = copy_statement(&request.table, leaf, &heap_condition(*from, *before));
                cut = copy(wire, &statement, &mut rows, request.bytes_max).await?;
            }
            Range::Whole { leaves } => {
                for leaf in leaves {
                    cut = copy(wire, &copy_statement(&request.table, leaf, "true"), &mut rows, request.bytes_max).await?;
                    if cut.is_some() {
                        break;
                    }
                }
            }
            Range::Keys { leaves, keys } => {
                // A key that cannot be read finds no row, and is an error when that is placed.
                let texts: Vec<Vec<&[u8]>> = keys.iter().filter_map(|key| index_key_values(key)).collect();
                let condition = keys_condition(&request.table, &request.key, &texts);
                for leaf in leaves {
                    cut = copy(wire, &copy_statement(&request.table, leaf, &condition), &mut rows, request.bytes_max).await?;
                    if cut.is_some() {
                        break;
                    }
                }
            }
        }
        if cut.is_none() {
            wire.query("end a chunk", "COMMIT").await?;
        }
        let position_to_pass = position_to_pass(insert_lsn, self.system.wal_segment_size, self.system.wal_block_size);
        Ok(Answer::Read(Chunk { rows, snapshot, position_to_pass, cut, blocks }))
    }

    /// One statement: its snapshot is taken before its functions run, so every transaction that the snapshot sees
    /// ends at or before the position.
    async fn take_snapshot(&self, wire: &mut Wire) -> Result<(Snapshot, Lsn), SourceError> {
        let answer = wire
            .query(
                "take a snapshot",
                "SELECT pg_current_snapshot()::text, CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_insert_lsn() END::text, pg_postmaster_start_time()::text",
            )
            .await?;
        let row = answer.into_iter().next().unwrap_or_default();
        let column = |index: usize, what: &'static str| row.get(index).cloned().flatten().ok_or(SourceError::Missing { what });
        if column(2, "the server's start time")? != self.system.started {
            return Err(SourceError::Protocol {
                what: "answers of another server, or of another run of it, than the one that streams".to_owned(),
            });
        }
        let snapshot = column(0, "a snapshot")?.parse().map_err(|error| protocol(&format!("{error}")))?;
        let insert_lsn = column(1, "an insert position (is it a standby now?)")?.parse().map_err(|error| protocol(&format!("{error}")))?;
        Ok((snapshot, insert_lsn))
    }

    async fn blocks_of(&self, wire: &mut Wire, leaf: &Leaf) -> Result<u32, SourceError> {
        let statement = format!("SELECT pg_relation_size({}::regclass) / {}", leaf.oid, self.system.block_size);
        let answer = wire.query("measure a table", &statement).await?;
        let blocks = answer.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
        blocks.ok_or(SourceError::Missing { what: "the size of a table" })
    }
}

/// Runs a COPY to its end, or until the rows have `bytes_max` bytes: then gives the first ctid left out.
async fn copy(wire: &mut Wire, statement: &str, rows: &mut Rows, bytes_max: usize) -> Result<Option<Tid>, SourceError> {
    const DOING: &str = "read a chunk";
    wire.begin_copy(DOING, statement).await?;
    let mut last: Option<Tid> = None;
    loop {
        let messages = wire.whole_messages(DOING).await?;
        for (tag, body) in Messages::of(&messages) {
            match tag {
                b'd' => {
                    if let Some((block, offset)) = last
                        && rows.bytes() > bytes_max
                    {
                        return Ok(Some((block, offset + 1)));
                    }
                    let line = body.strip_suffix(b"\n").unwrap_or(body);
                    last = Some(rows.push_line(line).ok_or_else(|| protocol("a row of COPY that is not what was asked for"))?);
                }
                b'E' => return Err(server_error_in(DOING, tag, body)),
                b'Z' => return Ok(None),
                _ => {}
            }
        }
    }
}
