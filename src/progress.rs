//! How far a stream is, as it is written beside the events and in the store: one record, always whole.
//!
//! The sink's copy is the truth; the store's copy tells whether the store is that of the same batch. Only
//! this room makes a [`Durable`], and only from a batch that the sink has committed and the store has synced.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::identity::Position;
use crate::lsn::{Lsn, Xid};
use crate::rebuild::journal::RebuildJournal;

/// The version of [`Progress`] that this program writes. It reads this one and refuses others.
pub const PROGRESS_VERSION: u32 = 1;

/// One process's life as a writer of a stream: 128 random bits in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(String);

impl InstanceId {
    /// A new one, from the system's random source.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names one batch: who made it, and its number in that life. Never used twice, so that a staged batch and a
/// committed one are the same exactly when their ids are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchId {
    pub instance: InstanceId,
    /// 1-based.
    pub number: u64,
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.instance, self.number)
    }
}

/// What decides whether ordinals counted earlier still mean the same changes. A change of any part makes
/// another stream of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// `pg_database.oid`.
    pub database: u32,
    pub slot: String,
    /// `(pg_publication.oid, name)`.
    pub publications: Vec<(u32, String)>,
    /// The options of `START_REPLICATION` as sent.
    pub options: String,
}

/// The slot as walgate made or adopted it: what a splice has to know of the time before the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRecord {
    /// Counts the slots of this stream; rises with each one made.
    pub generation: u32,
    /// `consistent_point` of its creation; `0/0` for a slot that walgate did not make.
    pub consistent_point: Lsn,
    /// `pg_current_snapshot()` under the exported snapshot; `None` for a slot that walgate did not make.
    pub exported_snapshot: Option<String>,
    /// A snapshot may be used for a chunk once its xmin has reached this 64-bit transaction id. 0: no fence.
    pub fence: u64,
    /// A snapshot that saw all that the exported one sees, and one past the fence, were found: neither has to
    /// be looked at again for this slot.
    pub passed: bool,
}

/// A transaction larger than a batch, of which a part is delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    pub commit_lsn: Lsn,
    pub xid: Xid,
    /// Messages delivered: ordinals below this one.
    pub ordinals: u64,
    /// 128-bit digest of those messages, hexadecimal.
    pub digest: String,
    /// Of a TRUNCATE that is the next message: the rows whose deletes are delivered.
    #[serde(default)]
    pub deleted: u32,
    /// Its events so far, where they are counted.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub counted: Counted,
}

/// How many events a transaction has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub total: u64,
    /// By `schema.table`.
    pub tables: BTreeMap<String, u64>,
}

impl Counted {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}

/// The last boundary at which rows were placed, and how many: orders go on counting there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    pub boundary: Lsn,
    pub count: u64,
}

/// The progress record of a batch: everything up to here is delivered, nothing beyond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// [`PROGRESS_VERSION`].
    pub version: u32,
    pub stream: String,
    pub batch: BatchId,
    pub fingerprint: Fingerprint,
    /// `IDENTIFY_SYSTEM`; text, because readers round integers past 2⁵³.
    pub system_identifier: String,
    /// The server's timeline when this was written.
    pub timeline: u32,
    /// First part of every event's order.
    pub stream_epoch: u32,
    /// The last change delivered. `None` before the first.
    pub position: Option<Position>,
    /// Where `START_REPLICATION` goes on: the end of the last whole transaction, or a later boundary.
    pub end_lsn: Lsn,
    pub split: Option<Split>,
    pub placed: Placed,
    /// Logical messages outside transactions are delivered up to this LSN, inclusive.
    pub message_lsn: Lsn,
    pub slot: SlotRecord,
    /// The greatest table epoch given so far.
    pub table_epoch: u64,
    /// The rebuild under way.
    pub rebuild: Option<RebuildJournal>,
    /// Rebuilds begun since the stream began: the id of the latest.
    #[serde(default)]
    pub rebuilds: u64,
    /// When those of the last hour that nobody asked for began, seconds since 1970.
    #[serde(default)]
    pub automatic_rebuilds: Vec<i64>,
    /// Events delivered since the stream began.
    pub events_total: u64,
}

/// An end LSN up to which the sink has committed and the store has synced: the one value that travels back
/// to PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Durable(Lsn);

impl Durable {
    /// The sink answered for the batch of `progress`, and the store applied it.
    #[must_use]
    pub(crate) fn settled(progress: &Progress, receipt: &crate::sink::Receipt, applied: &crate::store::Applied) -> Self {
        assert!(*receipt.batch() == progress.batch && *applied.batch() == progress.batch, "sink, store and progress speak of one batch");
        Self(progress.end_lsn)
    }

    /// The position of a record that was found committed and settled when the session began.
    #[must_use]
    pub(crate) fn found(progress: &Progress) -> Self {
        Self(progress.end_lsn)
    }

    #[must_use]
    pub fn lsn(self) -> Lsn {
        self.0
    }
}
