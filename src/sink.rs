//! Where events go. A sink takes a batch and answers with a receipt, and can say what it has committed.
//!
//! A batch enters a sink whole or not at all, its progress record with it. After an error the outcome is
//! unknown until the sink is opened again and its record read.

pub mod file;
pub mod lines;
pub mod null;
pub mod stdout;

#[cfg(test)]
pub(crate) mod example;

use crate::batch::Batch;
use crate::progress::{BatchId, Progress};
use crate::rebuild::journal::TableJournal;

/// The sink has committed this batch. Made by sinks only.
#[derive(Debug)]
pub struct Receipt {
    batch: BatchId,
}

impl Receipt {
    #[must_use]
    pub fn batch(&self) -> &BatchId {
        &self.batch
    }
}

/// What a sink says of itself when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It holds nothing of this stream.
    Nothing,
    /// The last record it committed, and the latest record of each table.
    Record(Box<Record>),
    /// It cannot say (standard output, null): the store's word has to do.
    CannotSay,
}

/// What was committed last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub progress: Progress,
    pub tables: Vec<TableJournal>,
}

/// A place for events.
pub trait Sink: Send + Sync {
    /// Brings the sink to the state it last committed (cuts what lies beyond) and says what that is.
    /// Called at the beginning of every session, so also after each error.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn open(&mut self) -> Result<Committed, SinkError>;

    /// Commits the events of `batch`, its progress record, and the records of the tables that it changes.
    ///
    /// # Errors
    /// Whether the batch was committed is unknown then; [`Sink::open`] settles it.
    fn deliver(&mut self, batch: &Batch, progress: &Progress, tables: &[TableJournal]) -> Result<Receipt, SinkError>;

    /// The greatest event it takes, key and value together, in bytes.
    fn event_bytes_max(&self) -> Option<u64>;
}

/// Why a sink failed.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("{doing} `{path}`")]
    Io {
        /// What was tried: "write to", "synchronise", …
        doing: &'static str,
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the events folder `{path}` is in use by another process")]
    Locked { path: String },
    #[error("the events folder `{path}` holds the events of stream `{found}`, not of `{expected}`")]
    OtherStream { path: String, found: String, expected: String },
    #[error("`{path}` cannot be understood: {why}")]
    Damaged { path: String, why: String },
    #[error("`{path}` is {length} bytes long, but {committed} bytes of it are committed")]
    LostData { path: String, length: u64, committed: u64 },
    #[error("the reader of standard output is gone")]
    Closed,
    /// An error came before, and the sink was not opened again since: it does not know where its files end.
    #[error("the sink has to be opened before it takes a batch")]
    NotOpen,
    /// What the kernel shows of the folder may never reach the disk; only a new process may look again.
    #[error("`{path}` could not be synchronised earlier: this process does not trust it any more")]
    Poisoned { path: String },
}
