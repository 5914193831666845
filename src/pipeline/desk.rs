//! Questions to the source that the stream does not answer: catalogs, chunks, snapshots, the nudge of an idle
//! server. A task of its own, so that the emitter never waits for SQL unless a row cannot be encoded without.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::TablePattern;
use crate::event::plan::TableFacts;
use crate::lsn::{Oid, Xid};
use crate::pipeline::input::Input;
use crate::pipeline::reader::Ask;
use crate::postgres::catalog::{self, CatalogTable};
use crate::postgres::sql::Sql;
use crate::postgres::{SourceError, publication};
use crate::splice::read::{Reader, Request};
use crate::splice::snapshot::Snapshot;
use crate::telemetry::Chain;

/// How often the published tables are looked at: a table added without traffic is noticed this late.
const PUBLISHED_INTERVAL: Duration = Duration::from_secs(3);

/// A look of which a session has so many times as much rest after it.
const PUBLISHED_SHARE: u32 = 50;

/// How often tables that were made meanwhile are published.
const UNPUBLISHED_INTERVAL: Duration = Duration::from_secs(15);

/// A question; answers come as [`Input`].
#[derive(Debug)]
pub enum Question {
    /// The number comes back with the answer.
    Chunk(u64, Box<Request>),
    Table(u64, Oid),
    Snapshot,
    Nudge,
}

/// The emitter's end.
#[derive(Clone)]
pub struct Desk {
    pub runtime: tokio::runtime::Handle,
    pub sql: Arc<Sql>,
    pub questions: mpsc::UnboundedSender<Question>,
    pub ask: Ask,
}

impl Desk {
    /// Key and types of a relation, waited for: its rows cannot be encoded without.
    ///
    /// # Errors
    /// The server's.
    pub fn facts(&self, oid: Oid) -> Result<TableFacts, SourceError> {
        self.runtime.block_on(catalog::facts(&self.sql, oid))
    }

    /// Asks; a desk that is gone has ended the session already.
    pub fn question(&self, question: Question) {
        if self.questions.send(question).is_err() {
            tracing::debug!("the desk is closed");
        }
    }

    /// Asks the server for a keepalive.
    pub fn ask_for_keepalive(&self) {
        self.ask.notify_one();
    }
}

/// What is looked at unasked.
pub struct Watched {
    pub publication: String,
    /// The stream's. Another one under its name does not have what was written between the two.
    pub publication_oid: Option<u32>,
    /// Tables that walgate sees to being published, those made later among them.
    pub sees_to: Vec<TablePattern>,
    /// Of these, the tables that it was said of that they are not.
    pub left_out: BTreeSet<String>,
}

/// Answers questions, and looks at the published tables from time to time, until the emitter is gone.
///
/// # Errors
/// The server's, where there is no answer to send it in.
pub async fn run(
    sql: Arc<Sql>,
    version: u32,
    mut watched: Watched,
    mut reader: Reader,
    mut questions: mpsc::UnboundedReceiver<Question>,
    inputs: Sender<Input>,
) -> Result<(), SourceError> {
    let mut published = Instant::now();
    let mut unpublished = tokio::time::interval_at(Instant::now() + UNPUBLISHED_INTERVAL, UNPUBLISHED_INTERVAL);
    loop {
        let answer = tokio::select! {
            biased;
            question = questions.recv() => match question {
                None => return Ok(()),
                Some(Question::Chunk(number, request)) => Input::Chunk(number, reader.read(&request).await),
                Some(Question::Table(number, oid)) => Input::Table(number, Box::new(look_at_table(&sql, version, &watched.publication, oid).await)),
                Some(Question::Snapshot) => Input::Snapshot(current_snapshot(&sql).await?),
                Some(Question::Nudge) => {
                    sql.run(
                        "nudge an idle server",
                        "BEGIN; SET LOCAL synchronous_commit = local; SELECT pg_logical_emit_message(true, 'walgate', ''); COMMIT",
                    )
                    .await?;
                    continue;
                }
            },
            _ = unpublished.tick(), if !watched.sees_to.is_empty() => {
                // The tables that are published already go on, whatever may not be done for others.
                if let Err(error) = publication::see_to(&sql, version, &watched.publication, &watched.sees_to, &mut watched.left_out).await {
                    tracing::warn!(error = %Chain(&error), "new tables cannot be published");
                }
                continue;
            }
            () = tokio::time::sleep_until(published) => {
                let begun = Instant::now();
                let looked = look_at_published(&sql, version, &watched).await;
                // With thousands of tables a look takes its time: it is not to be what the server is busy with.
                published = Instant::now() + PUBLISHED_INTERVAL.max(begun.elapsed() * PUBLISHED_SHARE);
                match looked {
                    Err(error) if error.is_lock_timeout() => {
                        tracing::warn!(error = %Chain(&error), "the published tables cannot be looked at: one is locked");
                        continue;
                    }
                    looked => looked?,
                }
            }
        };
        if inputs.send(answer).is_err() {
            return Ok(());
        }
    }
}

async fn look_at_published(sql: &Sql, version: u32, watched: &Watched) -> Result<Input, SourceError> {
    let publication = publication::look(sql, &watched.publication).await?;
    if publication.as_ref().map(|publication| publication.oid) != watched.publication_oid {
        return Ok(Input::PublicationReplaced);
    }
    let all_operations = publication.is_some_and(|publication| publication.all_operations());
    let tables = publication::tables(sql, version, &watched.publication).await?;
    Ok(Input::Published { tables, all_operations, next_xid: next_xid(sql).await? })
}

async fn look_at_table(sql: &Sql, version: u32, publication: &str, oid: Oid) -> Result<Option<(CatalogTable, u64)>, SourceError> {
    match catalog::table(sql, version, publication, oid).await? {
        Some(table) => Ok(Some((table, next_xid(sql).await?))),
        None => Ok(None),
    }
}

async fn current_snapshot(sql: &Sql) -> Result<Snapshot, SourceError> {
    sql.row("take a snapshot", "SELECT pg_current_snapshot()::text AS snapshot").await?.parsed("snapshot")
}

/// The next transaction id of the server, 64 bits wide, without spending one.
///
/// # Errors
/// The server's.
pub async fn next_xid(sql: &Sql) -> Result<u64, SourceError> {
    let statement = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS xmax, age('3'::xid) AS age";
    let row = sql.row("read the next transaction id", statement).await?;
    let age: i32 = row.parsed("age")?;
    #[expect(clippy::cast_sign_loss, reason = "transaction ids are counted modulo 2³²")]
    let next = Xid::new((age as u32).wrapping_add(3));
    Ok(next.widen(row.parsed("xmax")?))
}
