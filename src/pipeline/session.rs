//! One session: look at everything, decide, and stream until something ends it. Every error ends the session; the
//! next one begins from what is durable, so that there is one way to recover, and it is the way of every start.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender};
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::admin::board::{Board, State};
use crate::admin::control::Command;
use crate::batch::Batch;
use crate::config::Config;
use crate::event::envelope::Envelope;
use crate::event::identity::StreamIdentity;
use crate::fault;
use crate::lsn::Lsn;
use crate::pipeline::closed::Closed;
use crate::pipeline::deliver::{self, deliver};
use crate::pipeline::desk::{self, Desk};
use crate::pipeline::emitter::{Emitter, Ended, PublishedAtStart, Setting};
use crate::pipeline::error::SessionError;
use crate::pipeline::index::Index;
use crate::pipeline::input::Input;
use crate::pipeline::reader::{self, Ask};
use crate::pipeline::watch::{WATCH_INTERVAL, WalWatch};
use crate::postgres::publication::Publication;
use crate::postgres::slot::SlotSeen;
use crate::postgres::sql::Sql;
use crate::postgres::system::System;
use crate::postgres::wire::{Purpose, Wire};
use crate::postgres::{publication, quote_literal, replication, slot, system};
use crate::progress::{BatchId, Durable, Fingerprint, InstanceId, PROGRESS_VERSION, Placed, Progress, SlotRecord};
use crate::rebuild::journal::{Mode, RebuildJournal, RebuildStep, TableJournal, TableStep};
use crate::rebuild::reason::{Reason, SlotFate};
use crate::resume::{Decision, Refusal, Seen, StoreSeen, decide};
use crate::sink::{Committed, Record, Sink};
use crate::splice::read::Reader;
use crate::store::changes::Changes;
use crate::store::{Settled, Store};
use crate::telemetry::Chain;

/// Batches that may wait for delivery while one is being delivered.
const BATCHES_WAITING: usize = 1;
/// Between two looks at a slot or lock that another connection has.
const IN_USE_PAUSE: Duration = Duration::from_millis(500);
/// Between two looks at whether the one that has them has taken the stream over from this instance.
const SUCCESSOR_INTERVAL: Duration = Duration::from_secs(5);
/// A session that streamed for so long has worked, whatever ended it.
const WORKED: Duration = Duration::from_mins(1);

/// For the last position to be sent to the server.
const LAST_POSITION_PATIENCE: Duration = Duration::from_secs(5);

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
        let mut left_out = BTreeSet::new();
        if config.source.create && !system.in_recovery {
            publication::see_to(&sql, system.version, &config.source.publication, &config.source.tables, &mut left_out).await?;
        }
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

    /// Ends the connections of other instances of this stream, which are shut out of the sink.
    async fn end_other_instances(&self, sql: &Sql, own_pid: i32) -> Result<(), SessionError> {
        let statement = format!(
            "SELECT count(pg_terminate_backend(pid))::text AS ended FROM pg_stat_activity \
             WHERE application_name = {} AND datname = current_database() AND pid NOT IN (pg_backend_pid(), {own_pid})",
            quote_literal(&format!("walgate {}", self.config.stream))
        );
        let ended = sql.row("end the connections of another instance", &statement).await?.text("ended")?.to_owned();
        tracing::warn!(ended, "taken over: connections of other instances are ended");
        Ok(())
    }

    /// The store is not that of the sink's record. Which emitted transactions are visible is not known any more, so
    /// snapshots wait for all that exist now; tables under way begin anew. First in the sink, then in the store: a
    /// crash between is another start with a store that is not the same.
    async fn adopt(&mut self, progress: &mut Progress, tables: &mut [TableJournal], sql: &Sql) -> Result<(), SessionError> {
        progress.slot.fence = desk::next_xid(sql).await?;
        progress.slot.passed = false;
        progress.batch = BatchId { instance: self.instance.clone(), number: self.batch_number };
        self.batch_number += 1;
        for table in tables.iter_mut().filter(|table| table.step != TableStep::Done) {
            table.step = TableStep::Waiting;
            if table.mode == Mode::Differences {
                table.mode = Mode::Resend;
            }
            table.sweep = false;
            table.leaves.clear();
        }
        let (delivered, of_tables) = (progress.clone(), tables.to_vec());
        let _receipt = self.with_sink(move |sink| sink.deliver(&Batch::default(), &delivered, &of_tables)).await??;
        self.store.adopt(progress, tables)?;
        Ok(())
    }

    /// The stream's advisory lock, held by this connection, then a slot that nobody reads. They are waited for as long as
    /// it takes: another instance stands by like this.
    async fn wait_for_lock_and_slot(&mut self, sql: &Sql, version: u32) -> Result<(), SessionError> {
        let mut looked = None::<Instant>;
        while let Some(what) = self.who_has_the_stream(sql, version).await? {
            self.wait(&what);
            // Whoever has it may have taken it over from us.
            if looked.is_none_or(|looked| looked.elapsed() > SUCCESSOR_INTERVAL) {
                self.with_sink(|sink| sink.look_for_successor()).await??;
                looked = Some(Instant::now());
            }
            tokio::time::sleep(IN_USE_PAUSE).await;
        }
        Ok(())
    }

    /// `None`: we have the lock, and nobody reads the slot.
    async fn who_has_the_stream(&self, sql: &Sql, version: u32) -> Result<Option<String>, SessionError> {
        let lock = format!(
            "SELECT pg_try_advisory_lock(hashtextextended({}, 0)) AS locked",
            quote_literal(&format!("walgate {}", self.config.source.slot))
        );
        if !sql.row("take the stream's lock", &lock).await?.is_true("locked")? {
            return Ok(Some("another instance that has the stream's lock".to_owned()));
        }
        Ok(match slot::look(sql, version, &self.config.source.slot).await? {
            SlotSeen::Present(slot) => slot.active_pid.map(|pid| format!("the slot, in use by process {pid}")),
            SlotSeen::Missing => None,
        })
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

    /// Notes the reason, replaces the slot where it has to be, and records the stream that begins with it.
    #[expect(clippy::too_many_arguments, clippy::too_many_lines, reason = "all that was seen, in the order of the steps")]
    async fn begin_rebuild(
        &mut self,
        reason: &Reason,
        held: Option<(Progress, Vec<TableJournal>)>,
        seen: &SlotSeen,
        sql: &Sql,
        system: &System,
        fingerprint: Fingerprint,
        recorded: bool,
    ) -> Result<Start, SessionError> {
        let config = Arc::clone(&self.config);
        if *reason == Reason::FirstStart {
            tracing::info!(reason = reason.name(), "load is due");
        } else {
            tracing::warn!(reason = reason.name(), seen = %reason, "rebuild is due");
        }
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
        let (held, mut tables) = held.map_or((None, Vec::new()), |(progress, tables)| (Some(progress), tables));
        let mut automatic: Vec<i64> = held.as_ref().map(|held| held.automatic_rebuilds.clone()).unwrap_or_default();
        automatic.retain(|begun| now - begun < 3_600);
        if reason.automatic() && !self.rebuild_is_asked_for {
            if matches!(reason, Reason::Conflict { .. }) && config.rebuild.on_conflict == crate::config::OnConflict::Stop {
                return Err(Refusal::Conflict { reason: reason.clone() }.into());
            }
            if !config.rebuild.automatic {
                return Err(Refusal::NotAutomatic { reason: reason.clone() }.into());
            }
            if automatic.len() >= config.rebuild.max_per_hour as usize {
                return Err(Refusal::TooManyRebuilds { reason: reason.clone(), limit: config.rebuild.max_per_hour }.into());
            }
            automatic.push(now);
        }
        let usable = matches!(seen, SlotSeen::Present(slot) if slot.lost().is_none());
        if !usable && !config.source.create {
            return Err(Refusal::MayNotCreate { name: config.source.slot.clone() }.into());
        }
        if !reason.trusts_index() {
            // Subscribers begin anew: nothing kept of what they held counts.
            tables.clear();
        }
        let rebuilds = held.as_ref().map_or(0, |held| held.rebuilds);
        let continued = held.as_ref().and_then(|held| held.rebuild.clone()).filter(|rebuild| rebuild.step == RebuildStep::Noted);
        let mut journal = continued.unwrap_or_else(|| RebuildJournal {
            id: rebuilds + 1,
            reason: reason.name().to_owned(),
            seen: reason.to_string(),
            step: RebuildStep::Noted,
            tables: Vec::new(),
            begun_at: held.as_ref().map_or(Lsn::INVALID, |held| held.end_lsn),
            lost_again: held.as_ref().and_then(|held| held.rebuild.as_ref()).map_or(0, |under_way| under_way.lost_again + 1),
        });
        if let Some(held) = &held {
            let noted =
                Progress { rebuild: Some(journal.clone()), rebuilds: journal.id, automatic_rebuilds: automatic.clone(), ..held.clone() };
            if !reason.trusts_index() {
                self.store.adopt(held, &[])?;
            }
            self.record(noted, Vec::new(), recorded).await?;
        }
        fault::point("rebuild.noted");
        if !usable || reason.slot() == SlotFate::Replace {
            if matches!(seen, SlotSeen::Present(_)) {
                slot::drop_slot(sql, &config.source.slot).await?;
            }
            fault::point("rebuild.slot_dropped");
        }
        let generation = held.as_ref().map_or(1, |held| held.slot.generation + 1);
        let (end_lsn, slot) = match seen {
            SlotSeen::Present(slot) if usable && reason.slot() == SlotFate::Keep => {
                let confirmed = slot.confirmed_flush_lsn.ok_or(SessionError::OutOfTurn { what: "a slot without a position" })?;
                (
                    confirmed,
                    SlotRecord {
                        generation,
                        consistent_point: Lsn::INVALID,
                        exported_snapshot: None,
                        fence: desk::next_xid(sql).await?,
                        passed: false,
                    },
                )
            }
            _ => {
                self.wait("the replication slot to be made: PostgreSQL waits for the transactions that are open now");
                let name = format!("walgate {}", config.stream);
                let made = slot::make(
                    &config.source.postgres,
                    &name,
                    config.source.connect_timeout,
                    &config.source.slot,
                    system.version,
                    config.source.failover,
                    |backend| self.making_slot = Some(backend),
                )
                .await?;
                self.making_slot = None;
                tracing::info!(slot = config.source.slot, consistent_point = %made.consistent_point, "replication slot made");
                (
                    made.consistent_point,
                    SlotRecord {
                        generation,
                        consistent_point: made.consistent_point,
                        exported_snapshot: Some(made.exported_snapshot.to_string()),
                        fence: 0,
                        passed: false,
                    },
                )
            }
        };
        fault::point("rebuild.slot_made");
        journal.step = RebuildStep::Tables;
        journal.tables.clear();
        let mut progress = Progress {
            version: PROGRESS_VERSION,
            stream: config.stream.clone(),
            batch: BatchId { instance: self.instance.clone(), number: 0 },
            fingerprint,
            system_identifier: system.system_identifier.to_string(),
            timeline: system.timeline,
            stream_epoch: held.as_ref().map_or(1, |held| held.stream_epoch + 1),
            position: None,
            end_lsn,
            split: None,
            placed: Placed::default(),
            message_lsn: Lsn::INVALID,
            slot,
            table_epoch: held.as_ref().map_or(0, |held| held.table_epoch),
            rebuild: Some(journal.clone()),
            rebuilds: journal.id,
            automatic_rebuilds: automatic,
            events_total: held.as_ref().map_or(0, |held| held.events_total),
        };
        // Tables under way begin anew: their chunks were read beside another slot.
        for table in &mut tables {
            table.skip_snapshot = None;
            table.skip_until = Lsn::INVALID;
        }
        progress.batch = self.record(progress.clone(), tables.clone(), recorded).await?;
        fault::point("rebuild.begun");
        Ok(Start { progress, tables, recorded })
    }

    /// Delivers a batch without events: the record alone.
    async fn record(&mut self, mut progress: Progress, tables: Vec<TableJournal>, recorded: bool) -> Result<BatchId, SessionError> {
        let batch = BatchId { instance: self.instance.clone(), number: self.batch_number };
        self.batch_number += 1;
        progress.batch = batch.clone();
        let closed = Closed { number: batch.number, batch: Batch::default(), progress, tables, changes: Changes::default() };
        let store = Arc::clone(&self.store);
        self.with_sink(move |sink| deliver(&closed, sink, &store, recorded)).await??;
        Ok(batch)
    }

    /// The slot after `START_REPLICATION`: ours, and not past the position. Where decoding failed at once nobody reads it
    /// any more; the stream says why.
    async fn look_again(&self, sql: &Sql, system: &System, start: &Start, backend_pid: i32) -> Result<(), SessionError> {
        match slot::look(sql, system.version, &self.config.source.slot).await? {
            SlotSeen::Present(slot)
                if slot.active_pid.is_none_or(|pid| pid == backend_pid)
                    && slot.confirmed_flush_lsn.is_some_and(|confirmed| confirmed <= start.progress.end_lsn) =>
            {
                Ok(())
            }
            _ => Err(SessionError::SlotChanged),
        }
    }

    /// Streams: reader and desk as tasks, emitter and delivery as threads. The first to end ends all.
    async fn stream(
        &mut self,
        start: Start,
        sql: Arc<Sql>,
        wire: Wire,
        system: &System,
        published: PublishedAtStart,
        left_out: BTreeSet<String>,
    ) -> Result<(), SessionError> {
        let config = Arc::clone(&self.config);
        let Start { progress, tables, recorded } = start;
        let identity = StreamIdentity {
            stream: config.stream.clone(),
            system_identifier: system.system_identifier,
            stream_epoch: progress.stream_epoch,
            timelines: system.timelines.clone(),
        };
        let durable_from = Durable::found(&progress);
        let publication_oid = progress.fingerprint.publications.first().map(|(oid, _)| *oid);
        let setting = Setting {
            envelope: Envelope::new(identity, &system.database, &config.sink.topic_prefix, config.sink.event_bytes_max),
            prefix: config.sink.topic_prefix.clone(),
            format: config.format,
            limits: config.batch,
            chunk_bytes: usize::try_from(config.rebuild.chunk_bytes).unwrap_or(usize::MAX),
            block_size: system.block_size,
            nudge: config.source.nudge,
            not_loaded: config.tables.iter().filter(|table| !table.load).map(|table| format!("{}.{}", table.schema, table.name)).collect(),
            instance: self.instance.clone(),
            batch_number: self.batch_number,
            published,
            complete_index: true,
            truncate_by_deletes: config.sink.kind.compacts(),
        };
        self.board.update(|status| {
            status.state = State::Streaming;
            status.waiting_for = None;
            status.last_error = None;
            status.acknowledged_lsn = Some(durable_from.lsn());
            status.position = progress.position;
            status.events_total = progress.events_total;
            status.show_rebuild(progress.rebuild.as_ref(), tables.iter());
        });
        tracing::info!(slot = config.source.slot, lsn = %progress.end_lsn, "streaming started");

        let (durable, durable_seen) = watch::channel(durable_from);
        let (chunks, chunks_in) = crossbeam_channel::unbounded();
        let (inputs, inputs_in) = crossbeam_channel::unbounded();
        let (batches, batches_in) = crossbeam_channel::bounded(BATCHES_WAITING);
        let (questions, questions_in) = mpsc::unbounded_channel();
        let ask = Ask::default();
        let desk = Desk { runtime: tokio::runtime::Handle::current(), sql: Arc::clone(&sql), questions, ask: Arc::clone(&ask) };
        let name = format!("walgate {}", config.stream);
        let chunk_reader = Reader::new(
            config.source.postgres.clone(),
            name,
            config.source.connect_timeout,
            system.clone(),
            config.source.publication.clone(),
            config.sink.event_bytes_max.saturating_mul(2),
        );
        let index = Index::new(Arc::clone(&self.store));
        let emitter = Emitter::new(setting, desk, self.board.clone(), batches, index, progress, tables)?;

        let reading = tokio::spawn(reader::run(
            wire,
            chunks,
            durable_seen.clone(),
            ask,
            Duration::from_millis(system.wal_sender_timeout_ms),
            config.source.silence_timeout,
        ));
        let answering = tokio::spawn(desk::run(
            Arc::clone(&sql),
            system.version,
            desk::Watched {
                publication: config.source.publication.clone(),
                publication_oid,
                sees_to: if config.source.create { config.source.tables.clone() } else { Vec::new() },
                left_out,
            },
            chunk_reader,
            questions_in,
            inputs.clone(),
        ));
        let emitting = spawn_emitter(emitter, chunks_in, inputs_in)?;
        let store = Arc::clone(&self.store);
        let mut taken = self.sink.take().ok_or(SessionError::SinkGone)?;
        let dedup_window = config.store.dedup_window;
        let busy = deliver::Busy::default();
        let delivering = {
            let (inputs, busy) = (inputs.clone(), busy.clone());
            let (done, finished) = oneshot::channel();
            std::thread::Builder::new()
                .name("deliver".to_owned())
                .spawn(move || {
                    let outcome = deliver::run(batches_in, taken.as_mut(), &store, recorded, dedup_window, &durable, &inputs, &busy);
                    let _gone = done.send((outcome, taken)).is_err();
                })
                .map_err(SessionError::Thread)?;
            finished
        };
        self.board.update(|status| status.delivers = true);
        let (outcome, sink) =
            self.supervise(&sql, system.version, &inputs, durable_seen, busy, emitting, delivering, reading, answering).await;
        self.board.update(|status| status.delivers = false);
        self.sink = sink;
        outcome
    }

    /// Waits for the first to end, then for all; gives the sink back.
    #[expect(clippy::too_many_arguments, reason = "the handles of a session, each owned here")]
    async fn supervise(
        &mut self,
        sql: &Sql,
        version: u32,
        inputs: &Sender<Input>,
        mut durable: watch::Receiver<Durable>,
        busy: deliver::Busy,
        mut emitting: oneshot::Receiver<Result<Ended, SessionError>>,
        mut delivering: oneshot::Receiver<(Result<(), SessionError>, Box<dyn Sink>)>,
        mut reading: tokio::task::JoinHandle<Result<(), crate::postgres::SourceError>>,
        mut answering: tokio::task::JoinHandle<Result<(), crate::postgres::SourceError>>,
    ) -> (Result<(), SessionError>, Option<Box<dyn Sink>>) {
        let grace = self.config.sink.grace;
        let overdue = busy.longer_than(grace);
        tokio::pin!(overdue);
        let (begun, found) = (Instant::now(), *durable.borrow());
        let mut watch_wal = tokio::time::interval(WATCH_INTERVAL);
        let mut watch = WalWatch::default();
        let mut stopping = false;
        let mut emitted = None;
        let mut delivered = None;
        let ended: Result<(), SessionError> = loop {
            // A request to stop first; then whoever ended; then what operators ask and see.
            tokio::select! {
                biased;
                changed = self.stop.changed(), if !stopping => {
                    stopping = true;
                    let _gone = changed.is_err() || inputs.send(Input::Stop).is_err();
                    self.board.update(|status| status.state = State::Stopping);
                }
                outcome = &mut emitting, if emitted.is_none() => {
                    let outcome = outcome.unwrap_or(Err(SessionError::DeliveryEnded));
                    let result = match outcome {
                        Ok(Ended::Stopped) => { emitted = Some(()); break Ok(()) }
                        Ok(Ended::NoMoreChunks) => { emitted = Some(()); break Err(SessionError::Source(crate::postgres::SourceError::Closed)) }
                        Err(error) => Err(error),
                    };
                    emitted = Some(());
                    break result;
                }
                outcome = &mut delivering, if delivered.is_none() => {
                    match outcome {
                        Ok((outcome, sink)) => {
                            delivered = Some(sink);
                            break outcome.and(Err(SessionError::DeliveryEnded));
                        }
                        Err(_) => break Err(SessionError::DeliveryEnded),
                    }
                }
                outcome = &mut reading => {
                    break match outcome {
                        Ok(Err(error)) => Err(error.into()),
                        _ => Err(SessionError::Source(crate::postgres::SourceError::Closed)),
                    };
                }
                outcome = &mut answering => {
                    break match outcome {
                        Ok(Err(error)) => Err(error.into()),
                        _ => Err(SessionError::Source(crate::postgres::SourceError::Closed)),
                    };
                }
                () = &mut overdue => break Err(SessionError::SinkBlocks { grace }),
                Some(Command { tables, resend, reply }) = self.commands.recv() => {
                    let _gone = inputs.send(Input::Rebuild { tables, resend, reply }).is_err();
                }
                changed = durable.changed() => {
                    if changed.is_ok() {
                        let lsn = durable.borrow_and_update().lsn();
                        self.board.update(|status| status.acknowledged_lsn = Some(lsn));
                    }
                }
                _ = watch_wal.tick() => {
                    // A server that has gone silent must not keep the others from being heard.
                    let look = slot::look(sql, version, &self.config.source.slot);
                    if let Ok(Ok(SlotSeen::Present(slot))) = tokio::time::timeout(WATCH_INTERVAL, look).await {
                        watch.see(&slot, Instant::now(), &self.board);
                    }
                }
            }
        };
        answering.abort();
        // A reader that cannot acknowledge would hold up the server's shutdown.
        if matches!(ended, Err(SessionError::SinkBlocks { .. })) || ended.is_err() && !stopping {
            reading.abort();
        }
        // The emitter ends for want of chunks or batches; its channel to the delivery closes with it, and the delivery
        // finishes what it has. What is durable by then is acknowledged before the connection goes.
        let _told = inputs.send(Input::Stop).is_err();
        let mut outcome = ended;
        if emitted.is_none() {
            // Asked to stop, the emitter may end the reader before its own end is heard of.
            match self.meanwhile(emitting, &busy, &mut stopping).await {
                Ok(Ok(Ended::Stopped)) if stopping => outcome = Ok(()),
                // The others end because the emitter did: its error is the cause.
                Ok(Err(error)) if !matches!(error, SessionError::DeliveryEnded) => outcome = Err(error),
                _ => {}
            }
        }
        if delivered.is_none()
            && let Ok((result, sink)) = self.meanwhile(delivering, &busy, &mut stopping).await
        {
            delivered = Some(sink);
            if matches!(outcome, Ok(()) | Err(SessionError::DeliveryEnded | SessionError::SinkBlocks { .. })) {
                outcome = result.and(outcome);
            }
        }
        self.worked = *durable.borrow() > found || begun.elapsed() > WORKED;
        if outcome.is_ok() && !reading.is_finished() {
            // It ends by itself once it has sent the last position.
            let _late = tokio::time::timeout(LAST_POSITION_PATIENCE, &mut reading).await.is_err();
        }
        reading.abort();
        (outcome, delivered)
    }

    /// Waits for a thread to end. While it does not, because the sink blocks, that is shown, and a request to stop heard.
    async fn meanwhile<T>(&mut self, ending: oneshot::Receiver<T>, busy: &deliver::Busy, stopping: &mut bool) -> Result<T, RecvError> {
        tokio::pin!(ending);
        let mut shown = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut ending => return ended,
                _ = self.stop.changed(), if !*stopping => {
                    *stopping = true;
                    self.board.update(|status| status.state = State::Stopping);
                }
                () = busy.longer_than(self.config.sink.grace), if !shown => {
                    shown = true;
                    if !*stopping {
                        tracing::warn!("the sink does not answer: the connection to the source is closed until it does");
                        self.wait("the sink to answer");
                    }
                }
            }
        }
    }
}

fn spawn_emitter(
    emitter: Emitter,
    chunks: Receiver<reader::Chunk>,
    inputs: Receiver<Input>,
) -> Result<oneshot::Receiver<Result<Ended, SessionError>>, SessionError> {
    let (done, finished) = oneshot::channel();
    std::thread::Builder::new()
        .name("emit".to_owned())
        .spawn(move || {
            let outcome = emitter.run(&chunks, &inputs);
            let _gone = done.send(outcome).is_err();
        })
        .map_err(SessionError::Thread)?;
    Ok(finished)
}
