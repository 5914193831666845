//! What a rebuild writes down, in the sink and in the store, in the batch that makes it true. One record for
//! the rebuild, one for each table: none grows with the data.

use serde::{Deserialize, Serialize};

use crate::lsn::Oid;

/// A rebuild under way. Written into every progress record until its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildJournal {
    /// Counts the rebuilds of this stream.
    pub id: u64,
    /// Name of the reason (`first_start`, `slot_lost`, …).
    pub reason: String,
    /// What was seen, for people.
    pub seen: String,
    pub step: RebuildStep,
    /// Topics of the tables it covers.
    pub tables: Vec<String>,
    /// Boundary LSN at its begin mark, as text.
    pub begun_at: crate::lsn::Lsn,
    /// Times that the slot was lost again under way.
    pub lost_again: u32,
}

/// Entered in this order; each step can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RebuildStep {
    /// The reason is noted; the slot, if it is to be replaced, may still be the old one.
    Noted,
    /// The slot is the one to stream from; tables are being read.
    Tables,
}

/// What a table's reading sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// What differs from the row index: `r`, `u` and `d` events.
    Differences,
    /// Every row as `r`.
    Resend,
    /// Nothing: only the row index is made complete.
    Index,
}

/// Entered in this order. A table goes back to [`TableStep::Chunks`] when it has to be planned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableStep {
    /// Waits for its turn.
    Waiting,
    /// Chunks are read and placed.
    Chunks,
    /// All chunks are placed; rows known only in part are read again by key.
    Rereads,
    /// Rows that no chunk and no event touched are deleted.
    Sweep,
    /// Subscribers hold the table's state and the stream keeps it so.
    Done,
}

/// One table (one topic), from the day it was first read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableJournal {
    pub topic: String,
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    /// See [`crate::postgres::publication::PublishedTable::terms`].
    pub terms: String,
    /// The epoch that its current or last reading gives to the rows it sees.
    pub epoch: u64,
    /// Rebuild that this reading belongs to; 0: none (index completion, table added).
    pub rebuild: u64,
    pub mode: Mode,
    /// Whether rows that vanished are looked for (the index was complete when the reading began).
    pub sweep: bool,
    pub step: TableStep,
    /// 128-bit digest of what a plan rests on (leaves, filenodes, columns, filters), hexadecimal.
    pub fingerprint: String,
    /// Leaves of the table with what is left of each to read.
    pub leaves: Vec<LeafJournal>,
    /// A snapshot has to have an xmin at or past this 64-bit transaction id. 0: none.
    pub fence: u64,
    /// For a table without a key, read in one piece: transactions that this snapshot sees are skipped for the
    /// table until the stream has passed `skip_until`.
    pub skip_snapshot: Option<String>,
    pub skip_until: crate::lsn::Lsn,
    pub counts: Counts,
    /// Times it was planned again in this reading.
    pub planned_again: u32,
    /// Rows that subscribers know only in part are on the re-read list, or were a moment ago.
    #[serde(default)]
    pub has_incomplete_rows: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafJournal {
    pub oid: Oid,
    /// First `(block, offset)` not yet read; rows before it are done. `None`: the leaf is done.
    pub next: Option<(u32, u16)>,
    /// Blocks to read: as planned, and from the first chunk on as it found them.
    pub blocks: u32,
}

/// What a reading has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows read from the table.
    pub rows: u64,
    /// Rows sent as `r`.
    pub read: u64,
    /// Rows sent as `u`.
    pub updated: u64,
    /// Rows deleted.
    pub deleted: u64,
    /// Rows equal to what subscribers hold.
    pub equal: u64,
    /// Rows left to the stream, which touched them meanwhile.
    pub left_to_stream: u64,
}
