//! The one place where the order of events is decided: messages of the stream become events, and at transaction
//! boundaries the rows of a splice are placed between them. A thread of its own; it computes and never waits for
//! the sink unless two batches are on their way already.

mod changes;
mod counted;
pub(in crate::pipeline) mod relations;
mod truncate;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender};
use tokio::sync::oneshot;

use crate::admin::board::Board;
use crate::admin::control::Verdict;
use crate::admission::Transaction;
use crate::batch::Batch;
use crate::config::BatchLimits;
use crate::config::format::Format;
use crate::event::envelope::{Envelope, TransactionId};
use crate::event::topic::Topic;
use crate::lsn::{Lsn, Oid, Xid};
use crate::pgoutput::message::{Message, decode};
use crate::pipeline::closed::Closed;
use crate::pipeline::desk::{Desk, Question};
use crate::pipeline::error::SessionError;
use crate::pipeline::index::Index;
use crate::pipeline::input::Input;
use crate::pipeline::reader::Chunk;
use crate::pipeline::reading::Reading;
use crate::pipeline::table::Tables;
use crate::postgres::publication::PublishedTable;
use crate::postgres::replication::Frame;
use crate::progress::{Counted, InstanceId, Progress, Split};
use crate::rebuild::journal::TableJournal;
use crate::splice::visibility::Unproved;
use crate::store::index::IndexRecord;
use crate::store::transactions::Visibility;

/// An idle position is recorded when this much log has passed since the last record…
const IDLE_LOG_BYTES: u64 = 16 * 1024 * 1024;
/// …or this much time: the source may then forget the log between.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);
/// Transactions not proved visible before a snapshot is asked for.
const UNPROVED_MAX: usize = 1_000;
/// Changes of the index that a batch may hold, in bytes.
const CHANGES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How often things are looked at that no message announces.
const TICK: Duration = Duration::from_millis(50);

/// What an emitter is given for a session.
pub struct Setting {
    pub envelope: Envelope,
    pub prefix: String,
    pub format: Format,
    pub limits: BatchLimits,
    pub chunk_bytes: usize,
    pub block_size: u64,
    pub nudge: bool,
    /// Tables by `schema.table` of which no row is to be sent when they are first seen.
    pub not_loaded: HashSet<String>,
    pub instance: InstanceId,
    /// Number of the first batch of this session.
    pub batch_number: u64,
    pub published: PublishedAtStart,
    /// The index is to be completed (state folder lost or restored, no gap in the stream).
    pub complete_index: bool,
    /// Topics of tables with a key take no record without one: a TRUNCATE is told by deletes.
    pub truncate_by_deletes: bool,
}

/// The publication when the session began.
pub struct PublishedAtStart {
    pub tables: Vec<PublishedTable>,
    /// Whether it publishes every operation.
    pub all_operations: bool,
    /// Tables that were published before the slot of this session was made: its exported snapshot speaks for them.
    pub covered: HashSet<Oid>,
    /// Topics of which something is gone that was committed; each until its table is begun anew.
    pub lost_topics: HashSet<String>,
}

/// How the emitter came to its end without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to stop, and everything emitted is delivered.
    Stopped,
    /// The reader is gone; its own end tells why.
    NoMoreChunks,
}

/// See the module.
pub struct Emitter {
    pub(super) setting: Setting,
    pub(super) desk: Desk,
    pub(super) board: Board,
    batches: Sender<Arc<Closed>>,
    /// The record of the batch being built.
    pub(super) progress: Progress,
    /// The stream is proved to have passed this position.
    pub(super) emitted: Lsn,
    /// `end_lsn` of the last batch closed, and when.
    recorded: (Lsn, Instant),
    /// Since when the batch being built has something in it.
    opened: Option<Instant>,
    transaction: Option<Transaction>,
    /// Name and commit LSN of the Origin message of this transaction.
    origin: Option<(String, Lsn)>,
    tables: Tables,
    pub(super) index: Index,
    /// Number and state of each topic's index.
    pub(super) indexes: BTreeMap<String, IndexRecord>,
    pub(super) unproved: Unproved,
    last_commit: Lsn,
    snapshot_asked: bool,
    pub(super) batch: Batch,
    number: u64,
    /// Arena length where the present transaction began in this batch.
    transaction_start: usize,
    pub(super) journals: BTreeMap<String, TableJournal>,
    pub(super) changed: BTreeSet<String>,
    pub(super) published: Vec<PublishedTable>,
    pub(super) all_operations: bool,
    pub(super) reading: Reading,
    messages_topic: Arc<Topic>,
    transactions_topic: Arc<Topic>,
    /// Events of the present transaction, where they are counted.
    counted: Counted,
    promised: Vec<Promise>,
    stopping: bool,
}

/// An answer to an operator, to be given once a batch is delivered.
struct Promise {
    batch: u64,
    verdict: Verdict,
    reply: oneshot::Sender<Verdict>,
}

impl Promise {
    fn keep(self) {
        if self.reply.send(self.verdict).is_err() {
            tracing::debug!("who asked for a rebuild is gone");
        }
    }
}

impl Emitter {
    /// An emitter that goes on at `progress`.
    ///
    /// # Errors
    /// The store's.
    pub fn new(
        setting: Setting,
        desk: Desk,
        board: Board,
        batches: Sender<Arc<Closed>>,
        index: Index,
        progress: Progress,
        tables: Vec<TableJournal>,
    ) -> Result<Self, SessionError> {
        let visibility = index.store().visibility()?;
        let unproved = Unproved::recovered(&visibility, index.store().transactions_after(visibility.proved)?);
        let indexes = index.store().indexes()?.into_iter().collect();
        let messages_topic = Arc::new(Topic::of_messages(&setting.prefix));
        let transactions_topic = Arc::new(Topic::of_transactions(&setting.prefix));
        let all_operations = setting.published.all_operations;
        let published = setting.published.tables.clone();
        Ok(Self {
            number: setting.batch_number,
            emitted: progress.end_lsn,
            recorded: (progress.end_lsn, Instant::now()),
            opened: None,
            last_commit: progress.position.map_or(Lsn::INVALID, |position| position.commit_lsn),
            setting,
            desk,
            board,
            batches,
            progress,
            transaction: None,
            origin: None,
            tables: Tables::default(),
            index,
            indexes,
            unproved,
            snapshot_asked: false,
            batch: Batch::default(),
            transaction_start: 0,
            journals: tables.into_iter().map(|table| (table.topic.clone(), table)).collect(),
            changed: BTreeSet::new(),
            published,
            all_operations,
            reading: Reading::default(),
            messages_topic,
            transactions_topic,
            counted: Counted::default(),
            promised: Vec::new(),
            stopping: false,
        })
    }

    /// Emits until it is told to stop or the reader is gone.
    ///
    /// # Errors
    /// Anything that ends the session.
    pub fn run(mut self, chunks: &Receiver<Chunk>, inputs: &Receiver<Input>) -> Result<Ended, SessionError> {
        self.show(&self.progress);
        self.recall_incomplete()?;
        let never = crossbeam_channel::never();
        let mut busy = false;
        loop {
            // A table without a key is read while the stream stands still at a boundary.
            let stream = if self.reading.pauses_stream() && self.transaction.is_none() { &never } else { chunks };
            let patience = if busy { Duration::ZERO } else { self.until_due().unwrap_or(TICK).min(TICK) };
            crossbeam_channel::select_biased! {
                recv(inputs) -> input => match input {
                    Ok(input) => self.input(input)?,
                    Err(_) => return Ok(Ended::NoMoreChunks),
                },
                recv(stream) -> chunk => match chunk {
                    Ok(chunk) => self.chunk(&chunk)?,
                    Err(_) => return Ok(Ended::NoMoreChunks),
                },
                default(patience) => {}
            }
            busy = false;
            if self.transaction.is_none() {
                busy = self.boundary()?;
                if self.stopping {
                    if self.has_something_to_record() {
                        self.close()?;
                    }
                    return Ok(Ended::Stopped);
                }
                if self.has_something_to_record() {
                    self.opened.get_or_insert_with(Instant::now);
                }
                let idle = self.recorded.0 < self.emitted && self.recorded.1.elapsed() >= IDLE_INTERVAL;
                if self.until_due() == Some(Duration::ZERO) || idle {
                    self.close()?;
                }
            }
            if self.unproved.len() > UNPROVED_MAX && !self.snapshot_asked {
                self.snapshot_asked = true;
                self.desk.question(Question::Snapshot);
            }
        }
    }

    fn input(&mut self, input: Input) -> Result<(), SessionError> {
        match input {
            Input::Delivered { number } => {
                if let Some(closed) = self.index.applied(number) {
                    self.show(&closed.progress);
                }
                for promise in self.promised.extract_if(.., |promise| promise.batch <= number) {
                    promise.keep();
                }
            }
            Input::Chunk(number, answer) => self.chunk_was_read(number, answer?)?,
            Input::Table(number, answer) => match *answer {
                Err(error) if error.is_lock_timeout() => self.table_is_locked(number),
                answer => self.table_was_looked_at(number, answer?)?,
            },
            Input::Published { tables, all_operations, next_xid } => self.published_tables(tables, all_operations, next_xid),
            Input::PublicationReplaced => return Err(SessionError::PublicationReplaced),
            Input::Snapshot(snapshot) => {
                self.snapshot_asked = false;
                self.prove(&snapshot);
            }
            Input::Rebuild { tables, resend, reply } => {
                if reply.is_closed() {
                    return Ok(()); // who asked was told that nobody listens
                }
                let verdict = self.operator_asks(&tables, resend);
                // Who asked hears of it when it is durable, and not before.
                let batch = if self.has_something_to_record() { self.number } else { self.number - 1 };
                let promise = Promise { batch, verdict, reply };
                if batch == self.number || self.index.in_flight() > 0 {
                    self.promised.push(promise);
                } else {
                    promise.keep();
                }
            }
            Input::Stop => self.stopping = true,
        }
        Ok(())
    }

    /// What a snapshot sees is visible to every later one.
    pub(super) fn prove(&mut self, snapshot: &crate::splice::snapshot::Snapshot) {
        self.unproved.prove(snapshot);
        self.index.building.set_visibility(Visibility { proved: self.last_commit, leftovers: self.unproved.to_vec() });
    }

    fn chunk(&mut self, chunk: &Chunk) -> Result<(), SessionError> {
        for frame in chunk.frames.iter() {
            match frame? {
                Frame::Data { wal_start, message } => self.message(wal_start, message)?,
                Frame::Keepalive { wal_end, reply_requested } => {
                    if self.transaction.is_none() {
                        self.emitted = self.emitted.max(wal_end);
                        let log = self.emitted.bytes_since(self.recorded.0);
                        if log > 0 && (reply_requested || log >= IDLE_LOG_BYTES) {
                            self.boundary()?;
                            self.close()?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, wal_start: Lsn, bytes: &[u8]) -> Result<(), SessionError> {
        match decode(bytes)? {
            Message::Begin { final_lsn, commit_time, xid } => self.begin(final_lsn, commit_time, xid),
            Message::Commit { commit_lsn, end_lsn, .. } => self.commit(commit_lsn, end_lsn),
            Message::Origin { lsn, name } => {
                self.origin = Some((name.to_owned(), lsn));
                Ok(())
            }
            Message::Relation(relation) => self.relation(relation),
            Message::Type { .. } => Ok(()),
            Message::Insert { relation, new } => self.insert(wal_start, bytes, relation, &new),
            Message::Update { relation, old, new } => self.update(wal_start, bytes, relation, old, &new),
            Message::Delete { relation, old } => self.delete(wal_start, bytes, relation, &old),
            Message::Truncate { relations, .. } => self.truncate(wal_start, bytes, &relations),
            Message::Logical { transactional: true, lsn, prefix, content } => self.logical_message(lsn, bytes, prefix, content),
            Message::Logical { transactional: false, lsn, prefix, content } => self.message_outside(lsn, prefix, content),
        }
    }

    fn begin(&mut self, commit_lsn: Lsn, commit_time: i64, xid: Xid) -> Result<(), SessionError> {
        if self.transaction.is_some() {
            return Err(SessionError::OutOfTurn { what: "a Begin inside a transaction" });
        }
        // The commit record lies past all that the stream has passed: the boundary before it.
        self.emitted = self.emitted.max(commit_lsn);
        self.boundary()?;
        self.unproved.begin(xid);
        let known = if commit_lsn < self.progress.end_lsn { self.index.store().transaction(commit_lsn)? } else { None };
        let begun = Transaction::begin((commit_lsn, xid, commit_time), self.progress.end_lsn, self.progress.split.as_ref(), known)?;
        self.transaction = Some(begun);
        self.counted = self.counted_before();
        self.transaction_start = self.batch.bytes();
        self.origin = None;
        Ok(())
    }

    fn commit(&mut self, commit_lsn: Lsn, end_lsn: Lsn) -> Result<(), SessionError> {
        let transaction = self.transaction.take().ok_or(SessionError::OutOfTurn { what: "a Commit outside a transaction" })?;
        if transaction.commit_lsn != commit_lsn {
            return Err(SessionError::OutOfTurn { what: "a Commit of another transaction than the Begin's" });
        }
        let (id, messages) = (TransactionId { xid: transaction.xid, commit_lsn }, transaction.ordinal);
        let commit_time = transaction.commit_time;
        match transaction.commit()? {
            Some(record) if record.messages > 0 => {
                self.index.building.put_transaction(commit_lsn, record);
                self.last_commit = self.last_commit.max(commit_lsn);
            }
            // Before 15 the server sends transactions of which nothing is published.
            Some(record) => self.unproved.take_back(record.xid),
            None => {}
        }
        if self.progress.split.as_ref().is_some_and(|split| split.commit_lsn == commit_lsn) {
            self.progress.split = None;
        }
        self.tell_end(id, commit_time, messages)?;
        self.emitted = self.emitted.max(end_lsn);
        self.progress.end_lsn = self.emitted;
        self.boundary()?;
        if self.batch_is_full() { self.close() } else { Ok(()) }
    }

    pub(super) fn batch_is_full(&self) -> bool {
        self.batch.bytes() as u64 >= self.setting.limits.bytes
            || self.batch.len() as u64 >= self.setting.limits.events
            || self.index.building.bytes() >= CHANGES_BYTES_MAX
    }

    /// How long the batch being built waits for more: until the sink is idle, and then until `batch.delay` is over.
    fn until_due(&self) -> Option<Duration> {
        let opened = self.opened.filter(|_| self.index.in_flight() == 0)?;
        Some(self.setting.limits.delay.saturating_sub(opened.elapsed()))
    }

    /// Number of the batch being built.
    pub(super) fn next_batch(&self) -> u64 {
        self.number
    }

    pub(super) fn has_something_to_record(&self) -> bool {
        !self.batch.is_empty() || !self.index.building.is_empty() || !self.changed.is_empty()
    }

    /// Closes the batch: at a boundary, or inside a transaction that is larger than a batch may be.
    pub(super) fn close(&mut self) -> Result<(), SessionError> {
        if self.transaction.is_none() {
            self.progress.end_lsn = self.emitted;
        }
        self.progress.batch = crate::progress::BatchId { instance: self.setting.instance.clone(), number: self.number };
        self.progress.events_total += self.batch.len() as u64;
        let tables = std::mem::take(&mut self.changed).iter().filter_map(|topic| self.journals.get(topic).cloned()).collect();
        let closed = Arc::new(Closed {
            number: self.number,
            batch: std::mem::take(&mut self.batch),
            progress: self.progress.clone(),
            tables,
            changes: self.index.take_building(),
        });
        self.number += 1;
        self.transaction_start = 0;
        self.opened = None;
        self.recorded = (self.progress.end_lsn, Instant::now());
        self.index.closed(Arc::clone(&closed));
        self.batches.send(closed).map_err(|_| SessionError::DeliveryEnded)
    }

    /// A transaction larger than a batch may be goes on in the next one, marked by its ordinal and prefix digest.
    fn split_if_large(&mut self) -> Result<(), SessionError> {
        self.split_if_large_at(Transaction::split)
    }

    fn split_if_large_at(&mut self, split: impl FnOnce(&Transaction) -> Split) -> Result<(), SessionError> {
        let bytes = (self.batch.bytes() - self.transaction_start.min(self.batch.bytes())) as u64;
        let large = bytes.max(self.index.building.bytes() as u64) >= self.setting.limits.transaction_bytes_max;
        let Some(transaction) = self.transaction.as_ref().filter(|transaction| large && transaction.delivers()) else { return Ok(()) };
        self.progress.split = Some(Split { counted: self.counted.clone(), ..split(transaction) });
        self.close()
    }

    /// Shows `progress`: what is delivered, never what is still on its way.
    fn show(&self, progress: &Progress) {
        let complete = |topic| self.indexes.get(topic).is_some_and(IndexRecord::lacks_nothing);
        let index_complete = self.journals.keys().all(complete);
        self.board.update(|status| {
            status.position = progress.position;
            status.events_total = progress.events_total;
            status.index_complete = index_complete;
            self.reading.show(status, progress, &self.journals);
        });
    }
}

pub(super) fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    i64::try_from(now).unwrap_or(i64::MAX)
}
