//! Why a session ended. What follows from it is decided in `policy`.

use std::time::Duration;

use crate::admission::Conflict;
use crate::event::envelope::EventTooLarge;
use crate::event::plan::{ColumnMismatch, MissingKey};
use crate::lsn::Oid;
use crate::pgoutput::reader::DecodeError;
use crate::postgres::SourceError;
use crate::resume::Refusal;
use crate::sink::SinkError;
use crate::store::StoreError;

/// One layer; the cause is its source.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("the source failed")]
    Source(#[from] SourceError),
    #[error("the sink failed")]
    Sink(#[from] SinkError),
    #[error("the store failed")]
    Store(#[from] StoreError),
    #[error("a message of the stream cannot be understood")]
    Decode(#[from] DecodeError),
    #[error("a row does not fit its relation")]
    Row(#[from] ColumnMismatch),
    #[error("a row cannot be told from others")]
    Key(#[from] MissingKey),
    #[error("a message for relation {oid} came before its description")]
    UnknownRelation { oid: Oid },
    #[error("{what} was found, which cannot be")]
    OutOfTurn { what: &'static str },
    #[error("an event is too large")]
    EventTooLarge(#[from] EventTooLarge),
    #[error("the stream does not repeat what it sent before")]
    Conflict(#[from] Conflict),
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    #[error("the slot changed between the look at it and the start of the stream")]
    SlotChanged,
    #[error("the publication was dropped, or another one made in its place")]
    PublicationReplaced,
    #[error("the table `{table}` changed too often while it was read")]
    PlannedTooOften { table: String },
    #[error("the table `{table}` has no key and more than {bytes} bytes of rows: it cannot be read in one piece")]
    KeylessTooLarge { table: String, bytes: usize },
    #[error("the sink did not take a batch within {} s", grace.as_secs_f64())]
    SinkBlocks { grace: Duration },
    #[error("the thread that held the sink died")]
    SinkGone,
    #[error("the system has no randomness")]
    Randomness(#[source] getrandom::Error),
    #[error("delivery ended")]
    DeliveryEnded,
    #[error("a thread could not be started")]
    Thread(#[source] std::io::Error),
}
