//! The tables being read beside the stream: which one is next, which of its chunks is open, and what happens at a
//! boundary. One chunk at a time; everything durable about it is in the journal, in the batch that makes it true.

mod pass;
mod placing;
mod rereads;
mod sweep;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::event::plan::{TablePlan, is_keyed};
use crate::event::topic::{Topic, topic_name};
use crate::pgoutput::message::Value;
use crate::pgoutput::relation::Relation;
use crate::pipeline::desk::Question;
use crate::pipeline::emitter::Emitter;
use crate::pipeline::error::SessionError;
use crate::pipeline::reading::pass::Pass;
use crate::pipeline::table::same_shape;
use crate::postgres::catalog::CatalogTable;
use crate::progress::Progress;
use crate::rebuild::journal::{Counts, LeafJournal, Mode, TableJournal, TableStep};
use crate::splice::chunk::{MustSee, Range};
use crate::splice::notes::Notes;
use crate::splice::read::{Answer, Chunk, Request};

/// Between two tries of a chunk whose snapshot does not see enough yet.
const RETAKE: Duration = Duration::from_millis(100);
/// While the stream has not passed a chunk's position: between two requests for a keepalive, and until an idle
/// server is nudged.
const ASK: Duration = Duration::from_millis(20);
const NUDGE: Duration = Duration::from_secs(1);
/// Until a table that was locked is looked at again.
const LOCKED_PAUSE: Duration = Duration::from_secs(2);
/// A table without a key is read in one piece, held in memory: the greatest.
const KEYLESS_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Times a table may be planned again in one reading.
const PLANS_MAX: u32 = 1_000;

/// The table being read and its open chunk.
#[derive(Default)]
pub struct Reading {
    current: Option<Current>,
    /// Number of the question that an answer is expected to: answers to others come too late.
    asked: u64,
    /// Topics of done tables that have rows known only in part, perhaps.
    incomplete: BTreeSet<String>,
    /// A rebuild has begun, and subscribers are not told of it yet.
    begin_is_due: bool,
    /// Topics of tables that are not to be looked at before.
    later: BTreeMap<String, Instant>,
}

struct Current {
    topic: String,
    /// `None` while it is being looked at.
    table: Option<Planned>,
    chunk: Option<Open>,
    /// Of its re-reads, or of its sweep.
    pass: Option<Pass>,
}

struct Planned {
    catalog: Arc<CatalogTable>,
    plan: Arc<TablePlan>,
}

struct Open {
    request: Request,
    notes: Notes,
    read: Option<Chunk>,
    /// The next try, where the last one has to be repeated.
    retake_at: Option<Instant>,
    waits_since: Option<Instant>,
    asked: Option<Instant>,
    nudged: bool,
}

impl Reading {
    /// Whether the stream has to stand still: a table without a key is being read.
    #[must_use]
    pub fn pauses_stream(&self) -> bool {
        let Some(current) = &self.current else { return false };
        let keyless = current.table.as_ref().is_some_and(|table| !table.plan.has_key());
        keyless && current.chunk.as_ref().is_some_and(|chunk| chunk.retake_at.is_none())
    }

    pub(in crate::pipeline) fn look_later(&mut self, topic: &str, pause: Duration) {
        self.later.insert(topic.to_owned(), Instant::now() + pause);
    }

    fn notes_of(&mut self, plan: &TablePlan) -> Option<&mut Notes> {
        let current = self.current.as_mut().filter(|current| current.topic == plan.topic().name)?;
        current.chunk.as_mut().map(|chunk| &mut chunk.notes)
    }

    pub fn note_settled(&mut self, plan: &TablePlan, key: Option<&[u8]>) {
        if let (Some(key), Some(notes)) = (key, self.notes_of(plan)) {
            notes.settled(key);
        }
    }

    pub fn note_partial(&mut self, plan: &TablePlan, key: Option<&[u8]>, row: &[Value<'_>]) {
        // Values are noted by their place in the row. Where the table was looked at after a change of its shape that the
        // stream has not come to yet, the places differ: the chunk begins anew until it has.
        if let Some(current) = self.current.as_mut().filter(|current| current.topic == plan.topic().name)
            && current.table.as_ref().is_some_and(|table| !same_shape(&table.catalog.relation, plan.relation()))
        {
            current.chunk = None;
        }
        if let (Some(key), Some(notes)) = (key, self.notes_of(plan)) {
            notes.partial(key, row);
        }
    }

    pub fn note_truncate(&mut self, plan: &TablePlan) {
        if let Some(notes) = self.notes_of(plan) {
            notes.truncate();
        }
    }

    /// A Relation of another shape voids the chunk, and the plan.
    pub fn relation_came(&mut self, relation: &Relation) {
        let changed = |table: &Planned| table.catalog.relation.oid == relation.oid && !same_shape(&table.catalog.relation, relation);
        if self.current.as_ref().and_then(|current| current.table.as_ref()).is_some_and(changed) {
            self.current = None;
        }
    }

    /// What `status` tells of it.
    pub fn show(&self, status: &mut crate::admin::board::Status, progress: &Progress, journals: &BTreeMap<String, TableJournal>) {
        // A rebuild that began after what is delivered has not ended.
        let begun = journals.values().filter(|table| table.rebuild <= progress.rebuilds);
        status.show_rebuild(progress.rebuild.as_ref(), begun);
    }
}

impl Emitter {
    /// Everything that may happen between two transactions. Gives whether there is more to do at once.
    ///
    /// # Errors
    /// Anything that ends the session.
    pub(super) fn boundary(&mut self) -> Result<bool, SessionError> {
        if self.progress.rebuild.as_ref().is_some_and(|rebuild| rebuild.tables.is_empty()) {
            return Ok(false); // what the journals say is of the slot before, until its tables are listed
        }
        if self.reading.current.is_none() {
            let now = Instant::now();
            self.reading.later.retain(|_, at| *at > now);
            let is_due = |journal: &&TableJournal| is_under_way(journal) && !self.reading.later.contains_key(&journal.topic);
            let next = if let Some(journal) = self.journals.values().find(is_due) {
                Some((journal.topic.clone(), journal.oid))
            } else if self.journals.values().any(is_under_way) {
                return Ok(false);
            } else {
                self.end_rebuild()?;
                self.next_incomplete()?
            };
            let Some((topic, oid)) = next else { return Ok(false) };
            self.reading.current = Some(Current { topic, table: None, chunk: None, pass: None });
            self.reading.asked += 1;
            self.desk.question(Question::Table(self.reading.asked, oid));
            return Ok(false);
        }
        let Some(current) = &mut self.reading.current else { return Ok(false) };
        let Some(planned) = &current.table else { return Ok(false) };
        let topic = current.topic.clone();
        let Some(journal) = self.journals.get(&topic) else { return Ok(false) };
        if let Some(chunk) = &mut current.chunk {
            if chunk.notes.overflowed() {
                current.chunk = None;
                return Ok(true);
            }
            let keyless = !planned.plan.has_key();
            match &chunk.read {
                Some(read) if keyless || self.emitted >= read.position_to_pass => {}
                Some(_) => {
                    self.wait_for_position();
                    return Ok(false);
                }
                None => {
                    if chunk.retake_at.is_some_and(|at| at <= Instant::now()) {
                        chunk.retake_at = None;
                        if keyless {
                            // The stream went on meanwhile: what it emitted has to be seen as well.
                            chunk.request.must_see.before = self.unproved.to_vec();
                        }
                        self.reading.asked += 1;
                        self.desk.question(Question::Chunk(self.reading.asked, Box::new(chunk.request.clone())));
                    }
                    return Ok(false);
                }
            }
            self.place()?;
            return Ok(true);
        }
        match journal.step {
            TableStep::Waiting => {
                self.reading.current = None;
                Ok(true)
            }
            // Its rows known only in part come after the tables that are to be read whole.
            TableStep::Done if self.journals.values().any(is_under_way) => {
                self.reading.current = None;
                Ok(true)
            }
            TableStep::Done => self.open_rereads(&topic),
            TableStep::Chunks => self.open_next_chunk(&topic),
            TableStep::Rereads => self.open_rereads(&topic),
            TableStep::Sweep => self.sweep(&topic),
        }
    }

    /// The stream has not passed the position of the chunk: ask the server how far it is; an idle server is nudged.
    fn wait_for_position(&mut self) {
        let Some(chunk) = self.reading.current.as_mut().and_then(|current| current.chunk.as_mut()) else { return };
        let now = Instant::now();
        let since = *chunk.waits_since.get_or_insert(now);
        if chunk.asked.is_none_or(|asked| now.duration_since(asked) >= ASK) {
            chunk.asked = Some(now);
            self.desk.ask_for_keepalive();
        }
        if self.setting.nudge && !chunk.nudged && now.duration_since(since) >= NUDGE {
            chunk.nudged = true;
            self.desk.question(Question::Nudge);
        }
    }

    fn must_see(&self, journal: &TableJournal) -> Result<MustSee, SessionError> {
        let slot = &self.progress.slot;
        let mut must_see = MustSee { before: self.unproved.to_vec(), exported: None, fence: journal.fence };
        if !slot.passed {
            must_see.fence = must_see.fence.max(slot.fence);
            let exported = slot.exported_snapshot.as_deref().map(str::parse).transpose();
            must_see.exported =
                exported.map_err(|_| SessionError::OutOfTurn { what: "a record with an exported snapshot that cannot be read" })?;
        }
        Ok(must_see)
    }

    fn open_chunk(&mut self, topic: &str, range: Range, bytes_max: usize) -> Result<bool, SessionError> {
        let Some(journal) = self.journals.get(topic) else { return Ok(false) };
        let must_see = self.must_see(journal)?;
        let Some(current) = self.reading.current.as_mut() else { return Ok(false) };
        let Some(planned) = &current.table else { return Ok(false) };
        let key = planned.plan.key_names().map(str::to_owned).collect();
        let request = Request { table: Arc::clone(&planned.catalog), key, range, must_see, bytes_max };
        self.reading.asked += 1;
        self.desk.question(Question::Chunk(self.reading.asked, Box::new(request.clone())));
        current.chunk =
            Some(Open { request, notes: Notes::default(), read: None, retake_at: None, waits_since: None, asked: None, nudged: false });
        Ok(false)
    }

    fn open_next_chunk(&mut self, topic: &str) -> Result<bool, SessionError> {
        let Some(planned) = self.reading.current.as_ref().and_then(|current| current.table.as_ref()) else { return Ok(false) };
        let leaves = planned.catalog.leaves.clone();
        if !planned.plan.has_key() {
            return self.open_chunk(topic, Range::Whole { leaves }, KEYLESS_BYTES_MAX);
        }
        let Some(journal) = self.journals.get_mut(topic) else { return Ok(false) };
        let next = journal.leaves.iter().find_map(|leaf| Some((leaf.oid, leaf.next?, leaf.blocks)));
        let Some((oid, from, blocks)) = next else {
            journal.step = TableStep::Rereads;
            self.changed.insert(topic.to_owned());
            return Ok(true);
        };
        let Some(leaf) = leaves.into_iter().find(|leaf| leaf.oid == oid) else {
            return Err(SessionError::OutOfTurn { what: "a journal with a leaf that the plan lacks" });
        };
        // Text takes about as many bytes as the heap; a chunk that turns out larger is cut.
        let step = u32::try_from((self.setting.chunk_bytes as u64 / self.setting.block_size).max(1)).unwrap_or(u32::MAX);
        let end = from.0.saturating_add(step);
        // The first chunk measures the leaf, with the epoch in force: a row that is put past its end later is the
        // stream's, which gives it the epoch. So a reading ends however fast its table grows.
        let measured = from != (0, 0);
        let before = if end < blocks { Some((end, 0)) } else { measured.then_some((blocks, 0)) };
        let bytes_max = self.setting.chunk_bytes.saturating_mul(2);
        self.open_chunk(topic, Range::Heap { leaf, from, before }, bytes_max)
    }

    /// The answer to [`Question::Chunk`].
    pub(super) fn chunk_was_read(&mut self, number: u64, answer: Answer) -> Result<(), SessionError> {
        if number != self.reading.asked {
            return Ok(());
        }
        let Some(current) = self.reading.current.as_mut() else { return Ok(()) };
        match answer {
            Answer::Changed => self.plan_again(),
            Answer::Retake { why } => {
                tracing::debug!(topic = current.topic, why, "a chunk is read again");
                let waiting_for = format!("`{}` to be read: {why}", current.topic);
                self.board.update(|status| status.waiting_for = Some(waiting_for));
                if let Some(open) = &mut current.chunk {
                    open.retake_at = Some(Instant::now() + RETAKE);
                }
                Ok(())
            }
            Answer::Read(chunk) => {
                let keyless = current.table.as_ref().is_some_and(|table| !table.plan.has_key());
                if let Some(open) = &mut current.chunk {
                    if keyless && !self.unproved.all_seen_by(&chunk.snapshot) {
                        // Left out before the stream stood still: it has to be in the rows.
                        open.retake_at = Some(Instant::now() + RETAKE);
                        return Ok(());
                    }
                    self.board.update(|status| status.waiting_for = None);
                    // The second and third condition held: they hold for this slot for good.
                    self.progress.slot.passed = true;
                    let snapshot = chunk.snapshot.clone();
                    open.read = Some(chunk);
                    self.prove(&snapshot);
                }
                Ok(())
            }
        }
    }

    fn plan_again(&mut self) -> Result<(), SessionError> {
        let Some(current) = self.reading.current.take() else { return Ok(()) };
        let Some(journal) = self.journals.get_mut(&current.topic).filter(|journal| is_under_way(journal)) else { return Ok(()) };
        journal.planned_again += 1;
        journal.leaves.clear();
        if journal.step != TableStep::Waiting {
            journal.step = TableStep::Chunks;
        }
        tracing::warn!(topic = current.topic, "the table changed while it was read: planned again");
        if journal.planned_again > PLANS_MAX {
            return Err(SessionError::PlannedTooOften { table: current.topic });
        }
        self.changed.insert(current.topic);
        Ok(())
    }

    /// The table could not be looked at for a lock that somebody holds: others come first.
    pub(super) fn table_is_locked(&mut self, number: u64) {
        if let Some(current) = self.reading.current.take_if(|_| number == self.reading.asked) {
            let waiting_for = format!("`{}` to be looked at: it is locked", current.topic);
            self.board.update(|status| status.waiting_for = Some(waiting_for));
            self.reading.look_later(&current.topic, LOCKED_PAUSE);
        }
    }

    /// The answer to [`Question::Table`]: the table is planned, or goes on where its journal says.
    pub(super) fn table_was_looked_at(&mut self, number: u64, catalog: Option<(CatalogTable, u64)>) -> Result<(), SessionError> {
        if number != self.reading.asked {
            return Ok(());
        }
        let Some(topic) = self.reading.current.as_ref().map(|current| current.topic.clone()) else { return Ok(()) };
        let Some(journal) = self.journals.get_mut(&topic) else { return Ok(()) };
        let is_the_topics = |table: &CatalogTable| topic_name(&self.setting.prefix, &table.relation.schema, &table.relation.name) == topic;
        let Some((catalog, next_xid)) = catalog.filter(|(catalog, _)| is_the_topics(catalog)) else {
            tracing::warn!(topic, "the table is gone, renamed or not published any more: it is not read");
            journal.step = TableStep::Done;
            journal.terms.clear(); // should it come back, it is read
            self.rows_are_whole(&topic);
            self.changed.insert(topic);
            self.reading.current = None;
            return Ok(());
        };
        let keyed = is_keyed(&catalog.relation, &catalog.facts);
        let plan =
            TablePlan::new(catalog.relation.clone(), &catalog.facts, Arc::new(Topic { name: topic.clone(), keyed }), &self.setting.format);
        if journal.step != TableStep::Waiting && self.indexes.get(&topic).is_some_and(|record| !plan.has_key_of(&record.key, &record.form))
        {
            self.see_to_its_key(&plan);
            return Ok(());
        }
        let fingerprint = format!("{:032x}", catalog.fingerprint);
        if !journal.fingerprint.is_empty() && journal.fingerprint != fingerprint {
            // Transactions that began before the change may not be published in the way that the table is now.
            journal.fence = journal.fence.max(next_xid);
        }
        if !is_under_way(journal) {
            journal.fingerprint = fingerprint; // only rows are read again
        } else if journal.fingerprint != fingerprint || journal.leaves.is_empty() {
            journal.leaves =
                catalog.leaves.iter().map(|leaf| LeafJournal { oid: leaf.oid, next: Some((0, 0)), blocks: leaf.blocks }).collect();
            journal.fingerprint = fingerprint;
            self.changed.insert(topic.clone());
            if journal.step != TableStep::Waiting {
                journal.step = TableStep::Chunks;
            } else if !self.begin_table(&plan) {
                return self.table_is_done(&topic);
            }
        }
        if let Some(current) = self.reading.current.as_mut() {
            current.table = Some(Planned { catalog: Arc::new(catalog), plan: Arc::new(plan) });
        }
        self.board.update(|status| status.waiting_for = None);
        self.refresh_topic(&topic)
    }

    /// A table that waited is to be read. Gives whether there is anything to do with its rows.
    fn begin_table(&mut self, plan: &TablePlan) -> bool {
        let topic = &plan.topic().name;
        let record = self.index_of(plan);
        if !plan.has_key_of(&record.key, &record.form) {
            record.complete = false;
            record.key = plan.key_names().map(str::to_owned).collect();
            record.form = plan.key_form();
        }
        let record = record.clone();
        self.index.building.put_index(topic, record.clone());
        let Some(journal) = self.journals.get_mut(topic) else { return false };
        journal.sweep = record.complete && self.all_operations && journal.mode != Mode::Index;
        if !record.complete {
            // Nothing kept is to be believed: every row is sent, and the index begins anew.
            self.index.building.clear_topic(record.number);
            if journal.mode == Mode::Differences {
                journal.mode = Mode::Resend;
            }
        }
        let read = plan.has_key() || journal.mode != Mode::Index;
        journal.step = if read { TableStep::Chunks } else { TableStep::Done };
        read
    }

    fn table_is_done(&mut self, topic: &str) -> Result<(), SessionError> {
        if let Some(record) = self.indexes.get_mut(topic) {
            record.complete = !record.key.is_empty();
            self.index.building.put_index(topic, record.clone());
        }
        self.changed.insert(topic.to_owned());
        self.reading.current = None;
        self.refresh_topic(topic)?;
        if let Some(journal) = self.journals.get(topic) {
            let Counts { rows, read, updated, deleted, equal, .. } = journal.counts;
            tracing::info!(topic, rows, read, updated, deleted, equal, "table read");
        }
        Ok(())
    }
}

/// Whether the table is being read or waits for it.
pub(in crate::pipeline) fn is_under_way(journal: &TableJournal) -> bool {
    journal.step != TableStep::Done
}
