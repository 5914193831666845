//! Streaming: the threads and tasks of a session, from their start until the last has ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::admin::board::State;
use crate::admin::control::Command;
use crate::event::envelope::Envelope;
use crate::event::identity::StreamIdentity;
use crate::pipeline::deliver;
use crate::pipeline::desk::{self, Desk};
use crate::pipeline::emitter::{Emitter, Ended, PublishedAtStart, Setting};
use crate::pipeline::error::SessionError;
use crate::pipeline::index::Index;
use crate::pipeline::input::Input;
use crate::pipeline::reader::{self, Ask};
use crate::pipeline::session::{Service, Start};
use crate::pipeline::watch::{WATCH_INTERVAL, WalWatch};
use crate::postgres::slot;
use crate::postgres::slot::SlotSeen;
use crate::postgres::sql::Sql;
use crate::postgres::system::System;
use crate::postgres::wire::Wire;
use crate::progress::Durable;
use crate::sink::Sink;
use crate::splice::read::Reader;

/// For the last position to be sent to the server.
const LAST_POSITION_PATIENCE: Duration = Duration::from_secs(5);
/// A session that streamed for so long has worked, whatever ended it.
const WORKED: Duration = Duration::from_mins(1);
/// Batches that may wait for delivery while one is being delivered.
const BATCHES_WAITING: usize = 1;

impl Service {
    /// Streams: reader and desk as tasks, emitter and delivery as threads. The first to end ends all.
    pub(super) async fn stream(
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
            envelope: Envelope::new(identity, &system.database, &config.sink.topic_prefix, config.sink.event_bytes_max, &config.format),
            prefix: config.sink.topic_prefix.clone(),
            format: config.format.clone(),
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

    /// The slot after `START_REPLICATION`: ours, and not past the position. Where decoding failed at once nobody reads it
    /// any more; the stream says why.
    pub(super) async fn look_again(&self, sql: &Sql, system: &System, start: &Start, backend_pid: i32) -> Result<(), SessionError> {
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
