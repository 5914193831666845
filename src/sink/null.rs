//! A sink that takes everything and keeps nothing: to measure what comes before it, and to look at a source.
//!
//! It cannot say what it committed, so the position is the store's.

use crate::batch::Batch;
use crate::progress::Progress;
use crate::rebuild::journal::TableJournal;
use crate::sink::{Committed, Receipt, Sink, SinkError};

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn open(&mut self) -> Result<Committed, SinkError> {
        Ok(Committed::CannotSay)
    }

    fn deliver(&mut self, _batch: &Batch, progress: &Progress, _tables: &[TableJournal]) -> Result<Receipt, SinkError> {
        Ok(Receipt { batch: progress.batch.clone() })
    }

    fn event_bytes_max(&self) -> Option<u64> {
        None
    }
}
