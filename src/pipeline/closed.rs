//! A batch that is complete: what the sink gets, what the store gets, and how far it goes.

use crate::batch::Batch;
use crate::progress::Progress;
use crate::rebuild::journal::TableJournal;
use crate::store::changes::Changes;

/// A closed batch on its way to the sink. Shared with the emitter, whose look-ups see its changes until they are
/// applied.
#[derive(Debug)]
pub struct Closed {
    /// Counts the batches of a session.
    pub number: u64,
    pub batch: Batch,
    pub progress: Progress,
    /// Records of the tables that it changes.
    pub tables: Vec<TableJournal>,
    pub changes: Changes,
}
