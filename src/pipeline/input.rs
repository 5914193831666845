//! What reaches the emitter besides the stream itself.

use crate::admin::control::Verdict;
use crate::postgres::SourceError;
use crate::postgres::catalog::CatalogTable;
use crate::postgres::publication::PublishedTable;
use crate::splice::read::Answer;
use crate::splice::snapshot::Snapshot;

/// One message to the emitter.
#[derive(Debug)]
pub enum Input {
    /// A batch is delivered and applied.
    Delivered { number: u64 },
    /// A chunk's reading came to its end.
    Chunk(u64, Result<Answer, SourceError>),
    /// A table was looked at in order to plan its reading, and after it the next transaction id; `None`: it is gone.
    Table(u64, Box<Result<Option<(CatalogTable, u64)>, SourceError>>),
    /// The published tables and, read after them, the next transaction id: tables not seen before are fenced by it.
    Published { tables: Vec<PublishedTable>, all_operations: bool, next_xid: u64 },
    /// The publication was dropped, or is another one: PostgreSQL 18 leaves changes out without an error meanwhile.
    PublicationReplaced,
    /// A snapshot taken to see which transactions became visible.
    Snapshot(Snapshot),
    /// An operator asks for a rebuild of these topics' tables (`schema.table`; empty: all).
    Rebuild { tables: Vec<String>, resend: bool, reply: tokio::sync::oneshot::Sender<Verdict> },
    /// Finish the open batch and stop.
    Stop,
}
