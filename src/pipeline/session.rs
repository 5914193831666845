//! One session: look at everything, decide, and stream until something ends it. Every error ends the session; the
//! next one begins from what is durable, so that there is one way to recover, and it is the way of every start.

mod begin;
mod streaming;
mod turn;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::admin::board::{Board, State};
use crate::admin::control::Command;
use crate::config::Config;
use crate::pipeline::emitter::PublishedAtStart;
use crate::pipeline::error::SessionError;
use crate::postgres::publication::Publication;
use crate::postgres::sql::Sql;
use crate::postgres::wire::{Purpose, Wire};
use crate::postgres::{publication, replication, slot, system};
use crate::progress::{Fingerprint, InstanceId, PROGRESS_VERSION, Progress};
use crate::rebuild::journal::TableJournal;
use crate::rebuild::reason::Reason;
use crate::resume::{Decision, Refusal, Seen, StoreSeen, decide};
use crate::sink::{Committed, Record, Sink};
use crate::store::{Settled, Store};
use crate::telemetry::Chain;

/// What outlives sessions.
pub struct Service {
    pub config: Arc<Config>,
    pub store: Arc<Store>,
    /// Taken by the delivery thread while a session streams; not there after that thread died.
    pub sink: Option<Box<dyn Sink>>,
    pub board: Board,
    /// Of the present session: batches of different sessions never share an id.
    pub instance: InstanceId,
    /// Number of the next batch.
    pub batch_number: u64,
    /// A content conflict that ended the last session.
    pub conflict: Option<Reason>,
    /// By an operator who waits for it: a rebuild that is due needs no leave of the configuration.
    pub rebuild_is_asked_for: bool,
    /// The backend that makes a slot, while it does.
    pub making_slot: Option<i32>,
    /// The present session, or else the last one, has delivered something or streamed for long: what failed before is over.
    pub worked: bool,
    /// Another instance is not waited for, once: it is shut out of the sink and its connections to the source are ended.
    pub take_over: bool,
    pub commands: mpsc::Receiver<Command>,
    pub stop: watch::Receiver<bool>,
}

/// What the sink said of itself, and how the store stands to it.
struct SinkSeen {
    held: Option<(Progress, Vec<TableJournal>)>,
    /// It holds nothing, and the store knows of deliveries.
    sink_lost: bool,
    store_is_same: bool,
    /// Whether the sink can say what it committed.
    recorded: bool,
    lost_topics: HashSet<String>,
}

/// The position that a session goes on from.
struct Start {
    progress: Progress,
    tables: Vec<TableJournal>,
    /// Whether the sink can say what it committed.
    recorded: bool,
}

impl Service {
    /// Runs one session.
    ///
    /// # Errors
    /// Why it ended, other than by a request to stop.
    pub async fn session(&mut self) -> Result<(), SessionError> {
        let config = Arc::clone(&self.config);
        self.board.update(|status| status.state = State::Starting);
        self.worked = false;
        self.instance = InstanceId::random().map_err(SessionError::Randomness)?;
        self.batch_number = 1;
        let name = format!("walgate {}", config.stream);
        let timeout = config.source.connect_timeout;
        let sql = Arc::new(Sql::connect(&config.source.postgres, &name, timeout).await?);
        let mut wire = Wire::connect(&config.source.postgres, Purpose::Replication, &name, timeout).await?;
        let system = system::look(&sql, &mut wire).await?;
        let seen_in_sink = if self.take_over {
            let seen = self.settle().await?;
            self.end_other_instances(&sql, wire.backend_pid()).await?;
            self.wait_for_lock_and_slot(&sql, system.version).await?;
            self.take_over = false;
            seen
        } else {
            self.wait_for_lock_and_slot(&sql, system.version).await?;
            self.settle().await?
        };
        // The sink was waited for, and whoever had it before went on meanwhile.
        let system = system::look(&sql, &mut wire).await?;
        let SinkSeen { mut held, sink_lost, store_is_same, recorded, lost_topics } = seen_in_sink;
        if let Some((progress, tables)) = held.as_mut().filter(|_| !store_is_same && !sink_lost) {
            self.adopt(progress, tables, &sql).await?;
        }

        let mut left_out = BTreeSet::new();
        let is_ours = held.as_ref().is_none_or(|(progress, _)| progress.system_identifier == system.system_identifier.to_string());
        if config.source.create && !system.in_recovery && is_ours {
            let seen = publication::see_to(&sql, system.version, &config.source.publication, &config.source.tables, &mut left_out).await;
            if let Err(error) = seen {
                // The tables that are published already are streamed, whatever may not be done for others.
                if publication::look(&sql, &config.source.publication).await?.is_none() {
                    return Err(error.into());
                }
                tracing::warn!(error = %Chain(&error), "new tables cannot be published");
            }
        }
        let publication = publication::look(&sql, &config.source.publication).await?;
        let options = replication::start_options(&config.source.publication);
        let fingerprint = Fingerprint {
            database: system.database_oid,
            slot: config.source.slot.clone(),
            publications: publication.iter().map(|publication| (publication.oid, config.source.publication.clone())).collect(),
            options: options.clone(),
        };
        let slot = slot::look(&sql, system.version, &config.source.slot).await?;
        let seen = Seen {
            system: &system,
            publication: publication.as_ref(),
            publication_name: &config.source.publication,
            slot: &slot,
            slot_name: &config.source.slot,
            recorded: held.as_ref().map(|(progress, _)| progress).filter(|_| !sink_lost),
            store: if store_is_same { StoreSeen::SameBatch } else { StoreSeen::OtherBatch },
            sink_lost,
            fingerprint: &fingerprint,
            accept_source: false,
        };
        let decision = match (decide(&seen), self.conflict.take()) {
            (Decision::Resume(_), Some(conflict)) => Decision::Rebuild(conflict),
            // Any other rebuild answers the conflict too.
            (decision, _) => decision,
        };
        tracing::info!(?decision, "decided how to go on");
        let mut published = PublishedAtStart {
            tables: publication::tables(&sql, system.version, &config.source.publication).await?,
            all_operations: publication.as_ref().is_some_and(Publication::all_operations),
            covered: HashSet::new(),
            lost_topics,
        };
        let mut start = match (decision, held) {
            (Decision::Refuse(refusal), _) => return Err(refusal.into()),
            (Decision::Resume(_), Some((progress, tables))) => Start { progress, tables, recorded },
            (Decision::Resume(_), None) => return Err(SessionError::OutOfTurn { what: "a position to resume from that nobody recorded" }),
            (Decision::Rebuild(reason), held) => {
                published.covered = published.tables.iter().map(|table| table.oid).collect();
                self.begin_rebuild(&reason, held, &slot, &sql, &system, fingerprint, recorded).await?
            }
        };
        if start.progress.timeline != system.timeline {
            // The same position on another branch of the history: later events sort after earlier ones all the same.
            start.progress.timeline = system.timeline;
            start.progress.stream_epoch += 1;
        }

        replication::start(&mut wire, &config.source.slot, start.progress.end_lsn, &options).await?;
        self.look_again(&sql, &system, &start, wire.backend_pid()).await?;
        wire.set_message_bytes_max(config.sink.event_bytes_max.saturating_mul(2));
        self.stream(start, sql, wire, &system, published, left_out).await
    }

    /// After a session that was dropped while it waited: nothing of it goes on at the source.
    pub async fn abandon(&mut self) {
        let Some(backend) = self.making_slot.take() else { return };
        let source = &self.config.source;
        let name = format!("walgate {}", self.config.stream);
        let cancelling = slot::cancel(&source.postgres, &name, source.connect_timeout, backend);
        if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(5), cancelling).await {
            tracing::warn!(error = %Chain(&error), "the making of the slot goes on at the source until transactions open now have ended");
        }
    }

    /// Opens the sink, settles the staged batch by its record, and sees whether the store is that of the same batch.
    async fn settle(&mut self) -> Result<SinkSeen, SessionError> {
        let stored =
            |store: &Store| -> Result<_, SessionError> { store.progress()?.map(|progress| Ok((progress, store.tables()?))).transpose() };
        let opened = self.with_sink(|sink| sink.open()).await??;
        let seen =
            |held, sink_lost, store_is_same, recorded| SinkSeen { held, sink_lost, store_is_same, recorded, lost_topics: HashSet::new() };
        match opened {
            Committed::Record(record) => {
                let Record { progress, tables, lost } = *record;
                if progress.version != PROGRESS_VERSION {
                    return Err(Refusal::RecordVersion { found: progress.version, expected: PROGRESS_VERSION }.into());
                }
                if progress.stream != self.config.stream {
                    return Err(Refusal::OtherStream { found: progress.stream, expected: self.config.stream.clone() }.into());
                }
                let settled = self.store.settle(Some(&progress.batch))?;
                let same = self.store.progress()?.is_some_and(|own| own.batch == progress.batch);
                if !same {
                    tracing::warn!(
                        ?settled,
                        "the state folder is not that of the events: the row index is not relied upon until it is complete again"
                    );
                }
                Ok(SinkSeen { lost_topics: lost.into_iter().collect(), ..seen(Some((progress, tables)), false, same, true) })
            }
            Committed::Nothing => {
                let settled = self.store.settle(None)?;
                let held = stored(&self.store)?;
                if held.is_some() || matches!(settled, Settled::Applied(_)) {
                    tracing::warn!("the sink holds nothing, but the state folder knows of deliveries");
                }
                let lost = held.is_some();
                Ok(seen(held, lost, !lost, true))
            }
            Committed::CannotSay => {
                self.store.settle(None)?;
                Ok(seen(stored(&self.store)?, false, true, false))
            }
        }
    }

    /// Calls the sink on a thread where it may block.
    async fn with_sink<T: Send + 'static>(&mut self, call: impl FnOnce(&mut dyn Sink) -> T + Send + 'static) -> Result<T, SessionError> {
        let mut sink = self.sink.take().ok_or(SessionError::SinkGone)?;
        let called = tokio::task::spawn_blocking(move || (call(sink.as_mut()), sink));
        let (answer, sink) = called.await.map_err(|_| SessionError::SinkGone)?;
        self.sink = Some(sink);
        Ok(answer)
    }

    fn wait(&self, what: &str) {
        let news = self.board.snapshot().waiting_for.as_deref() != Some(what);
        if news {
            tracing::info!(waiting_for = what, "waiting");
        }
        self.board.update(|status| {
            status.state = State::Waiting;
            status.waiting_for = Some(what.to_owned());
        });
    }
}
