//! Where events go. A sink takes a batch and answers with a receipt, and can say what it has committed.
//!
//! A batch enters a sink whole or not at all, its progress record with it. After an error the outcome is
//! unknown until the sink is opened again and its record read.

pub mod file;
pub mod kafka;
pub mod lines;
pub mod null;
pub mod stdout;

#[cfg(test)]
pub(crate) mod example;

use crate::batch::Batch;
use crate::progress::{BatchId, Progress};
use crate::rebuild::journal::TableJournal;
use crate::sink::kafka::fault::KafkaFault;

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
    /// Topics that lost something committed, or were made again: what subscribers held of them is gone.
    pub lost: Vec<String>,
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

    /// Looks whether another instance has taken the stream over since this one opened the sink.
    ///
    /// # Errors
    /// It has: [`SinkError::TakenOver`].
    fn look_for_successor(&self) -> Result<(), SinkError> {
        Ok(())
    }

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
    #[error("Kafka: could not {doing}")]
    Kafka {
        /// What was tried: "commit", "make a topic", …
        doing: &'static str,
        #[source]
        fault: Box<KafkaFault>,
    },
    #[error("another instance (`{writer}`) has taken the stream over")]
    TakenOver { writer: String },
    /// A new producer found something else than the transaction that its predecessor was told is committed.
    #[error("the progress record names batch `{found}`, the last commit was that of `{expected}`")]
    OtherBatch { found: String, expected: String },
    #[error("a transaction in `{topic}` is open, and nobody ends it")]
    HeldOpen { topic: String },
    #[error("the topic `{topic}` has {found} partitions, it had {recorded}: the same key would go to another partition")]
    PartitionsChanged { topic: String, recorded: i32, found: i32 },
    #[error("the topic `{topic}` was made again while it was written to")]
    MadeAgain { topic: String },
    #[error("the topic `{topic}` is compacted and takes no record without a key")]
    Compacted { topic: String },
    #[error("an event of `{topic}` with the id `{id}` has {bytes} bytes, its `max.message.bytes` is {limit}")]
    TooLargeForTopic { topic: String, id: String, bytes: u64, limit: u64 },
}

impl SinkError {
    pub(crate) fn kafka(doing: &'static str, fault: KafkaFault) -> Self {
        Self::Kafka { doing, fault: Box::new(fault) }
    }
}
