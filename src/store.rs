//! The state folder: one RocksDB, one process.
//!
//! ```text
//! column family   key                              value
//! default         "format"                         version of this layout, decimal text
//!                 "stream"                         the stream that the folder belongs to
//!                 "window"                         first commit LSN of the dedup window (8)
//!                 "visibility"                     see `transactions`
//! progress        "progress"                       Progress, JSON
//! stage           "stage"                          version, progress, RocksDB write batch; see `stage`
//! transactions    commit LSN (8)                   xid, messages, digest, commit time; see `transactions`
//! rows            topic number (4), key            row entry; see `rows`
//! rereads         topic number (4), key            empty
//! journal         topic                            TableJournal, JSON
//! schema          topic                            IndexRecord, JSON; see `index`
//! ```
//!
//! Integers are big-endian, so that keys sort as numbers. Values begin with a version of their own or are
//! JSON; the layout as a whole has [`FORMAT`]. Another format is refused, not guessed.
//!
//! The sink's record is the truth; this is what makes it fast and what makes rebuilds cheap. All changes of a
//! batch are staged under its id in one synced write before the sink commits, applied in one atomic write
//! after it, or dropped: what is applied is always the state of a prefix of the stream.
//!
//! What the store does *not* promise is to notice that it was put back to an older state, by a copy or by
//! RocksDB itself, which after damage to its log keeps what lies before the damage and says nothing. The
//! progress record tells: it is not that of the batch that the sink committed last, and the store is then told
//! so ([`Store::adopt`]) before anyone relies on its index. Whether a batch was committed is never the store's word.
//!
//! After a failed write nothing more is written or read: every call says [`StoreError::Poisoned`].

pub mod changes;
pub mod index;
pub mod rows;
pub mod transactions;

mod family;
pub mod open;
mod stage;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rocksdb::{DB, WriteBatch, WriteOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::lsn::Lsn;
use crate::progress::{BatchId, PROGRESS_VERSION, Progress};
use crate::rebuild::journal::TableJournal;
use crate::store::changes::Changes;
use crate::store::family::Family;
use crate::store::open::FolderLock;
use crate::store::transactions::Visibility;

/// The version of the layout. A folder of another version is refused.
pub const FORMAT: &str = "1";

const PROGRESS: &[u8] = b"progress";
const STAGE: &[u8] = b"stage";

/// What a state folder belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub stream: String,
}

/// The store. Used from several threads: one writes, others look things up.
#[derive(Debug)]
pub struct Store {
    db: DB,
    /// The folder, locked; `None` when the store is open to read only. Let go of after `db` is closed.
    lock: Option<FolderLock>,
    path: PathBuf,
    poisoned: AtomicBool,
    /// The batch that is staged and neither applied nor dropped, if there is one.
    open_stage: Mutex<Option<BatchId>>,
}

/// A batch whose changes are staged. Leads to [`Store::apply`]; a value that is let go leaves the stage open,
/// for [`Store::settle`].
#[derive(Debug)]
#[must_use]
pub struct Staged {
    batch: BatchId,
    changes: Writes,
}

/// The store has applied this batch. Made by the store only.
#[derive(Debug)]
pub struct Applied {
    batch: BatchId,
}

impl Applied {
    #[must_use]
    pub fn batch(&self) -> &BatchId {
        &self.batch
    }
}

/// A stage found in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedBatch {
    pub batch: BatchId,
    pub progress: Progress,
}

/// What became of the stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was the committed batch; the store stands at this progress now.
    Applied(Box<Progress>),
    /// It was not committed; the store stands where it stood.
    Dropped,
    NothingStaged,
}

/// A RocksDB write batch, which says nothing of itself.
struct Writes(WriteBatch);

/// Whether a write waits until the disk has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    Synced,
    /// Survives the process, not the machine.
    Unsynced,
}

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{doing} `{path}`")]
    Io {
        /// What was tried: "create the state folder", …
        doing: &'static str,
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the state folder `{path}` is in use by another process")]
    Locked { path: String },
    #[error("the state folder `{path}` belongs to stream `{found}`, not to `{expected}`")]
    OtherStream { path: String, found: String, expected: String },
    #[error("the state folder `{path}` has format `{found}`, this program reads `{FORMAT}`")]
    UnknownFormat { path: String, found: String },
    #[error("there is no store in `{path}`")]
    Missing { path: String },
    #[error("`{what}` in the state folder `{path}` cannot be understood: {why}")]
    Damaged { path: String, what: String, why: String },
    #[error("{doing} the store in `{path}`")]
    RocksDb {
        /// "read from", "write to", …
        doing: &'static str,
        path: String,
        #[source]
        source: rocksdb::Error,
    },
    #[error("a write to the store in `{path}` failed earlier: nothing in it is used any more")]
    Poisoned { path: String },
    #[error("batch `{staged}` is staged and not settled, so `{batch}` cannot be")]
    StageOpen { staged: BatchId, batch: BatchId },
    #[error("the store in `{path}` is open to read only")]
    ReadOnly { path: String },
}

impl Store {
    /// How far the store is. `None`: nothing was ever applied.
    ///
    /// # Errors
    /// As for every reading: the store cannot be read, or what is read cannot be understood.
    pub fn progress(&self) -> Result<Option<Progress>, StoreError> {
        let Some(bytes) = self.get(Family::Progress, PROGRESS)? else { return Ok(None) };
        self.parse_progress("progress", &bytes).map(Some)
    }

    /// The latest record of each table, by topic.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn tables(&self) -> Result<Vec<TableJournal>, StoreError> {
        self.scan(Family::Journal, |topic, bytes| self.parse_json("journal", topic, bytes))
    }

    /// The batch that is staged, if there is one.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn staged(&self) -> Result<Option<StagedBatch>, StoreError> {
        let Some((progress, _)) = self.read_stage()? else { return Ok(None) };
        Ok(Some(StagedBatch { batch: progress.batch.clone(), progress }))
    }

    /// Writes down all that the batch of `progress` changes, synced and under its id, without applying it. Comes
    /// before the sink's commit.
    ///
    /// # Errors
    /// A stage is open still, or the write failed.
    pub fn stage(&self, progress: &Progress, tables: &[TableJournal], changes: &Changes) -> Result<Staged, StoreError> {
        let mut open_stage = self.open_stage();
        if let Some(staged) = &*open_stage {
            return Err(StoreError::StageOpen { staged: staged.clone(), batch: progress.batch.clone() });
        }
        let mut writes = WriteBatch::default();
        changes.write_to(self, &mut writes)?;
        self.write_position(progress, tables, &mut writes)?;

        let mut intent = WriteBatch::default();
        let progress_json = self.to_json("stage", progress)?;
        intent.put_cf(self.family(Family::Stage), STAGE, stage::encode(&progress_json, writes.data()));
        self.write(intent, Sync::Synced)?;
        *open_stage = Some(progress.batch.clone());
        crate::fault::point("store.staged");
        Ok(Staged { batch: progress.batch.clone(), changes: Writes(writes) })
    }

    /// Applies a staged batch after the sink's commit, in one atomic write that drops the stage too. `synced` for
    /// sinks that cannot say what they committed: there the store's word is the only one. For others the stage
    /// is on the disk already, and settles the batch if this write is lost.
    ///
    /// # Errors
    /// The write failed.
    ///
    /// # Panics
    /// The stage was settled or replaced since, which only a bug can do.
    pub fn apply(&self, staged: Staged, synced: bool) -> Result<Applied, StoreError> {
        let Staged { batch, changes: Writes(changes) } = staged;
        let mut open_stage = self.open_stage();
        assert!(open_stage.as_ref() == Some(&batch), "batch `{batch}` is applied, but the open stage is {:?}", *open_stage);
        self.write(changes, if synced { Sync::Synced } else { Sync::Unsynced })?;
        *open_stage = None;
        crate::fault::point("store.applied");
        Ok(Applied { batch })
    }

    /// Ends the doubt about a stage, at the beginning of a session: applies it if it is the batch that the sink
    /// committed last, drops it otherwise. A sink that cannot say has `None` here.
    ///
    /// # Errors
    /// The stage cannot be understood, or the write failed.
    pub fn settle(&self, committed: Option<&BatchId>) -> Result<Settled, StoreError> {
        let mut open_stage = self.open_stage();
        let Some((progress, writes)) = self.read_stage()? else { return Ok(Settled::NothingStaged) };
        let settled = if committed == Some(&progress.batch) {
            self.write(writes.0, Sync::Synced)?;
            Settled::Applied(Box::new(progress))
        } else {
            let mut drop_stage = WriteBatch::default();
            drop_stage.delete_cf(self.family(Family::Stage), STAGE);
            self.write(drop_stage, Sync::Synced)?;
            Settled::Dropped
        };
        *open_stage = None;
        Ok(settled)
    }

    /// Takes over the sink's word where the store is not that of the batch the sink committed last: it is new, was
    /// restored, or was lost in part. Progress and tables become the sink's; every index is incomplete; the dedup
    /// window is empty and begins here, all before it taken as visible (a fence has to guard the snapshots); a
    /// stage is dropped. One synced write.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub fn adopt(&self, progress: &Progress, tables: &[TableJournal]) -> Result<(), StoreError> {
        let mut open_stage = self.open_stage();
        let mut writes = WriteBatch::default();
        self.clear_all(Family::Journal, &mut writes)?;
        self.write_incomplete_indexes(&mut writes)?;
        // The transaction that follows may have the end LSN as its commit LSN, so it is not among those before.
        let before = Lsn::new(progress.end_lsn.as_u64().saturating_sub(1));
        self.write_empty_window(progress.end_lsn, &Visibility { proved: before, leftovers: Vec::new() }, &mut writes);
        self.write_position(progress, tables, &mut writes)?;
        self.write(writes, Sync::Synced)?;
        *open_stage = None;
        Ok(())
    }

    /// Progress and tables of a batch; whatever stage there is goes with them.
    fn write_position(&self, progress: &Progress, tables: &[TableJournal], writes: &mut WriteBatch) -> Result<(), StoreError> {
        writes.put_cf(self.family(Family::Progress), PROGRESS, self.to_json("progress", progress)?);
        for table in tables {
            writes.put_cf(self.family(Family::Journal), &table.topic, self.to_json("journal", table)?);
        }
        writes.delete_cf(self.family(Family::Stage), STAGE);
        Ok(())
    }

    fn read_stage(&self) -> Result<Option<(Progress, Writes)>, StoreError> {
        let Some(bytes) = self.get(Family::Stage, STAGE)? else { return Ok(None) };
        let (progress, writes) = stage::decode(&bytes).map_err(|why| self.damaged("stage", why))?;
        Ok(Some((self.parse_progress("stage", progress)?, Writes(WriteBatch::from_data(writes)))))
    }

    fn open_stage(&self) -> MutexGuard<'_, Option<BatchId>> {
        self.open_stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one place where anything is written. A failure is final.
    fn write(&self, writes: WriteBatch, sync: Sync) -> Result<(), StoreError> {
        self.check_usable()?;
        if self.lock.is_none() {
            return Err(StoreError::ReadOnly { path: self.path_text() });
        }
        let mut options = WriteOptions::default();
        options.set_sync(sync == Sync::Synced);
        self.db.write_opt(writes, &options).map_err(|source| {
            self.poisoned.store(true, Ordering::Release);
            StoreError::RocksDb { doing: "write to", path: self.path_text(), source }
        })
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<rocksdb::DBPinnableSlice<'_>>, StoreError> {
        self.check_usable()?;
        self.db.get_pinned_cf(self.family(family), key).map_err(|source| self.unreadable(source))
    }

    /// Every entry of a small column family.
    fn scan<T>(&self, family: Family, mut read: impl FnMut(&[u8], &[u8]) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
        self.check_usable()?;
        let entries = self.db.iterator_cf(self.family(family), rocksdb::IteratorMode::Start);
        entries.map(|entry| entry.map_err(|source| self.unreadable(source)).and_then(|(key, value)| read(&key, &value))).collect()
    }

    /// Deletes every entry of a small column family.
    fn clear_all(&self, family: Family, writes: &mut WriteBatch) -> Result<(), StoreError> {
        self.scan(family, |key, _| {
            writes.delete_cf(self.family(family), key);
            Ok(())
        })
        .map(drop)
    }

    fn check_usable(&self) -> Result<(), StoreError> {
        if self.poisoned.load(Ordering::Acquire) { Err(StoreError::Poisoned { path: self.path_text() }) } else { Ok(()) }
    }

    fn parse_progress(&self, what: &str, bytes: &[u8]) -> Result<Progress, StoreError> {
        let progress: Progress = self.parse_json(what, b"", bytes)?;
        if progress.version == PROGRESS_VERSION {
            Ok(progress)
        } else {
            Err(self.damaged(what, format!("its version is `{}`, this program reads `{PROGRESS_VERSION}`", progress.version)))
        }
    }

    fn parse_json<T: DeserializeOwned>(&self, what: &str, key: &[u8], bytes: &[u8]) -> Result<T, StoreError> {
        serde_json::from_slice(bytes).map_err(|error| self.damaged(&format!("{what} {}", String::from_utf8_lossy(key)), error.to_string()))
    }

    fn to_json(&self, what: &str, value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec(value).map_err(|error| self.damaged(what, error.to_string()))
    }

    fn damaged(&self, what: &str, why: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: self.path_text(), what: what.trim_end().to_owned(), why: why.into() }
    }

    fn unreadable(&self, source: rocksdb::Error) -> StoreError {
        StoreError::RocksDb { doing: "read from", path: self.path_text(), source }
    }

    fn path_text(&self) -> String {
        self.path.display().to_string()
    }
}

impl std::fmt::Debug for Writes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} writes, {} bytes", self.0.len(), self.0.size_in_bytes())
    }
}
