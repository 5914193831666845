//! Which tables are read, and why: the publication, the operator and the tables themselves ask for it. The marks that
//! tell subscribers of it.

use std::time::Duration;

use crate::admin::control::Verdict;
use crate::event::plan::TablePlan;
use crate::event::topic::topic_name;
use crate::fault;
use crate::lsn::Lsn;
use crate::pipeline::emitter::Emitter;
use crate::pipeline::error::SessionError;
use crate::postgres::publication::PublishedTable;
use crate::progress::Placed;
use crate::rebuild::journal::{Counts, Mode, RebuildJournal, RebuildStep, TableJournal, TableStep};
use crate::rebuild::mark;

/// A key that is dropped is often made again at once.
const KEY_GRACE: Duration = Duration::from_secs(10);

impl Emitter {
    /// What the publication publishes now: tables of a rebuild that are not listed yet, and tables not seen before.
    pub(in crate::pipeline) fn published_tables(&mut self, tables: Vec<PublishedTable>, all_operations: bool, next_xid: u64) {
        self.all_operations = all_operations;
        self.published = tables;
        // What is not published now has missed changes, should it be published again.
        let absent =
            |journal: &&mut TableJournal| !journal.terms.is_empty() && !self.published.iter().any(|table| table.oid == journal.oid);
        for journal in self.journals.values_mut().filter(absent) {
            journal.terms.clear();
            self.changed.insert(journal.topic.clone());
        }
        let unlisted = self
            .progress
            .rebuild
            .as_ref()
            .filter(|rebuild| rebuild.tables.is_empty())
            .map(|rebuild| (rebuild.id, mode_of(&rebuild.reason)));
        for table in self.published.clone() {
            let topic = topic_name(&self.setting.prefix, &table.schema, &table.name);
            let known = self.is_known(&table, &topic);
            let otherwise = self.has_other_terms(&table, &topic);
            // Of a table that is not loaded the index is made: a later rebuild sends what has changed since.
            let sent = self.is_to_be_sent(&table, &topic);
            let mode = |mode| if sent { mode } else { Mode::Index };
            let fence = if self.setting.published.covered.contains(&table.oid) { 0 } else { next_xid };
            match unlisted {
                Some((id, of_reason)) => self.start_table(&table, &topic, id, mode(of_reason), if known && !otherwise { 0 } else { fence }),
                None if !known => {
                    let id = self.rebuild_id("table_added", &format!("`{}.{}` is new in the publication", table.schema, table.name));
                    self.start_table(&table, &topic, id, mode(Mode::Differences), fence);
                }
                None if otherwise => {
                    let seen = format!("`{}.{}` is published again, or otherwise than before", table.schema, table.name);
                    let id = self.rebuild_id("publication_changed", &seen);
                    self.start_table(&table, &topic, id, Mode::Differences, next_xid);
                }
                None => {}
            }
        }
        if self.progress.rebuild.as_ref().is_some_and(|rebuild| rebuild.tables.is_empty()) {
            // Nothing is published: what was due is done.
            self.write_mark(mark::Mark::Begin);
            self.write_mark(mark::Mark::End);
            self.progress.rebuild = None;
        }
        self.send_lost_topics_anew();
        if self.setting.complete_index && self.progress.rebuild.is_none() {
            self.setting.complete_index = false;
            let incomplete: Vec<String> = self
                .indexes
                .iter()
                .filter(|(_, record)| !record.complete && !record.key.is_empty())
                .map(|(topic, _)| topic.clone())
                .collect();
            for table in self.published.clone() {
                let topic = topic_name(&self.setting.prefix, &table.schema, &table.name);
                let lacking = incomplete.contains(&topic) || !self.indexes.contains_key(&topic);
                let done = self.journals.get(&topic).filter(|journal| lacking && journal.step == TableStep::Done);
                if done.is_some_and(|journal| journal.has_incomplete_rows) {
                    // Which ones, only the state folder knew.
                    let id = self.rebuild_id("rows_incomplete", "the state folder was lost while rows were known only in part");
                    self.start_table(&table, &topic, id, Mode::Resend, 0);
                } else if done.is_some() {
                    let id = self.rebuild_id("index_incomplete", "the state folder was lost or is not that of the events");
                    self.start_table(&table, &topic, id, Mode::Index, 0);
                }
            }
        }
        self.tell_begin();
    }

    /// A topic that lost records does not hold what the index says: every row is sent, and the index begins anew.
    fn send_lost_topics_anew(&mut self) {
        let lost = std::mem::take(&mut self.setting.published.lost_topics);
        for table in self.published.clone() {
            let topic = topic_name(&self.setting.prefix, &table.schema, &table.name);
            if !lost.contains(&topic) || !self.is_known(&table, &topic) {
                continue;
            }
            if let Some(record) = self.indexes.get_mut(&topic) {
                record.complete = false;
                self.index.building.put_index(&topic, record.clone());
            }
            let id = self.rebuild_id("topic_lost", &format!("the topic `{topic}` lost records, or was made again"));
            self.start_table(&table, &topic, id, Mode::Resend, 0);
        }
    }

    /// Whether the table was read before, or is being read.
    fn is_known(&self, table: &PublishedTable, topic: &str) -> bool {
        self.journals.get(topic).is_some_and(|journal| journal.oid == table.oid)
    }

    /// What was published otherwise before, or was not for a while, is not what the stream has carried.
    fn has_other_terms(&self, table: &PublishedTable, topic: &str) -> bool {
        self.journals.get(topic).is_some_and(|journal| journal.oid == table.oid && journal.terms != table.terms)
    }

    /// Whether its rows are sent when it is read next.
    fn is_to_be_sent(&self, table: &PublishedTable, topic: &str) -> bool {
        let is_loaded = !self.setting.not_loaded.contains(&format!("{}.{}", table.schema, table.name));
        // One whose index was not made yet was never sent.
        let is_indexed = |journal: &TableJournal| journal.mode != Mode::Index || journal.step == TableStep::Done;
        is_loaded || self.is_known(table, topic) && self.journals.get(topic).is_some_and(is_indexed)
    }

    /// The rebuild under way, or a new one for this reason.
    fn rebuild_id(&mut self, reason: &str, seen: &str) -> u64 {
        if let Some(rebuild) = &self.progress.rebuild {
            return rebuild.id;
        }
        self.progress.rebuilds += 1;
        let id = self.progress.rebuilds;
        tracing::info!(rebuild = id, reason, seen, "rebuild begins");
        self.progress.rebuild = Some(RebuildJournal {
            id,
            reason: reason.to_owned(),
            seen: seen.to_owned(),
            step: RebuildStep::Tables,
            tables: Vec::new(),
            begun_at: self.emitted,
            lost_again: 0,
        });
        id
    }

    pub(super) fn start_table(&mut self, table: &PublishedTable, topic: &str, rebuild: u64, mode: Mode, fence: u64) {
        if self.reading.current.as_ref().is_some_and(|current| current.topic == topic) {
            self.reading.current = None;
        }
        self.progress.table_epoch += 1;
        let journal = TableJournal {
            topic: topic.to_owned(),
            oid: table.oid,
            schema: table.schema.clone(),
            name: table.name.clone(),
            terms: table.terms.clone(),
            epoch: self.progress.table_epoch,
            rebuild,
            mode,
            sweep: false,
            step: TableStep::Waiting,
            fingerprint: String::new(),
            leaves: Vec::new(),
            fence,
            skip_snapshot: None,
            skip_until: Lsn::INVALID,
            counts: Counts::default(),
            planned_again: 0,
            has_incomplete_rows: self.journals.get(topic).is_some_and(|journal| journal.has_incomplete_rows),
        };
        self.journals.insert(topic.to_owned(), journal);
        self.changed.insert(topic.to_owned());
        if let Some(rebuild) = &mut self.progress.rebuild {
            let first = rebuild.tables.is_empty();
            if !rebuild.tables.iter().any(|held| held == topic) {
                rebuild.tables.push(topic.to_owned());
            }
            self.reading.begin_is_due |= first && rebuild.reason != "index_incomplete";
        }
    }

    /// Once all tables of a rebuild that begins are listed.
    fn tell_begin(&mut self) {
        if std::mem::take(&mut self.reading.begin_is_due) {
            self.write_mark(mark::Mark::Begin);
        }
    }

    /// An operator's `rebuild`: differences, or every row.
    pub(in crate::pipeline) fn operator_asks(&mut self, tables: &[String], resend: bool) -> Verdict {
        let name = |table: &PublishedTable| format!("{}.{}", table.schema, table.name);
        if let Some(unknown) = tables.iter().find(|wanted| !self.published.iter().any(|table| name(table) == **wanted)) {
            return Verdict::Refused { why: format!("`{unknown}` is not in the publication: tables are named `schema.table`") };
        }
        let chosen: Vec<(String, PublishedTable)> = self
            .published
            .iter()
            .filter(|table| tables.is_empty() || tables.contains(&name(table)))
            .map(|table| (topic_name(&self.setting.prefix, &table.schema, &table.name), table.clone()))
            .collect();
        if chosen.is_empty() {
            return Verdict::Refused { why: "the publication has no tables".to_owned() };
        }
        if let Some(rebuild) = &self.progress.rebuild {
            let sends = |mode: Mode| mode == Mode::Resend || !resend && mode == Mode::Differences;
            let covered = |(topic, table): &(String, PublishedTable)| match self.journals.get(topic) {
                // Its tables are not listed yet: they will be these.
                _ if rebuild.tables.is_empty() => self.is_to_be_sent(table, topic) && sends(mode_of(&rebuild.reason)),
                Some(journal) => rebuild.tables.contains(topic) && sends(journal.mode),
                None => false,
            };
            return if chosen.iter().all(covered) {
                Verdict::Accepted { id: rebuild.id }
            } else {
                Verdict::After { id: rebuild.id, reason: rebuild.reason.clone() }
            };
        }
        let id = self.rebuild_id(if resend { "operator_resend" } else { "operator" }, "asked for by an operator");
        let mode = if resend { Mode::Resend } else { Mode::Differences };
        for (topic, table) in chosen {
            self.start_table(&table, &topic, id, mode, 0);
        }
        self.tell_begin();
        Verdict::Accepted { id }
    }

    pub(super) fn end_rebuild(&mut self) -> Result<(), SessionError> {
        let Some(rebuild) = self.progress.rebuild.as_ref().filter(|rebuild| !rebuild.tables.is_empty()) else { return Ok(()) };
        if rebuild.reason != "index_incomplete" {
            self.write_mark(mark::Mark::End);
        }
        if let Some(rebuild) = self.progress.rebuild.take() {
            tracing::info!(rebuild = rebuild.id, reason = rebuild.reason, "rebuild ended");
        }
        fault::point("rebuild.end");
        self.close()
    }

    /// Begin and end, for subscribers who wait for a consistent state.
    fn write_mark(&mut self, kind: mark::Mark) {
        let Some(rebuild) = &self.progress.rebuild else { return };
        let placed = &mut self.progress.placed;
        if placed.boundary != self.emitted {
            *placed = Placed { boundary: self.emitted, count: 0 };
        }
        let count = placed.count;
        placed.count += 1;
        let tables = rebuild.tables.iter().filter_map(|topic| self.journals.get(topic));
        mark::write(&mut self.batch, self.setting.envelope.stream(), &self.setting.prefix, rebuild, kind, (self.emitted, count), tables);
    }

    /// Another key makes other topic keys, and another index: all rows are sent under the new one. What subscribers
    /// hold under the old key is theirs to drop; the end mark says that nothing was swept.
    pub(in crate::pipeline) fn see_to_its_key(&mut self, plan: &TablePlan) {
        let topic = plan.topic().name.clone();
        let Some(record) = self.indexes.get_mut(&topic).filter(|record| !plan.has_key_of(&record.key, &record.form)) else { return };
        record.complete = false;
        self.index.building.put_index(&topic, record.clone());
        // One that waits is read so; of another table under the name, the publication tells.
        let same = |journal: &&TableJournal| journal.step != TableStep::Waiting && journal.oid == plan.relation().oid;
        let Some(journal) = self.journals.get(&topic).filter(same) else { return };
        let table =
            PublishedTable { oid: journal.oid, schema: journal.schema.clone(), name: journal.name.clone(), terms: journal.terms.clone() };
        let id = self.rebuild_id("key_changed", &format!("the key of `{}.{}` is another one", table.schema, table.name));
        self.start_table(&table, &topic, id, Mode::Resend, 0);
        self.tell_begin();
    }

    /// A table whose key is gone is looked at: it may have another by then.
    pub(in crate::pipeline) fn see_to_its_lost_key(&mut self, plan: &TablePlan) {
        let topic = plan.topic().name.clone();
        let done = |journal: &&TableJournal| journal.step == TableStep::Done && journal.oid == plan.relation().oid;
        let Some(journal) = self.journals.get(&topic).filter(done) else { return };
        let table =
            PublishedTable { oid: journal.oid, schema: journal.schema.clone(), name: journal.name.clone(), terms: journal.terms.clone() };
        let id = self.rebuild_id("key_changed", &format!("`{}.{}` has no key any more", table.schema, table.name));
        self.start_table(&table, &topic, id, Mode::Differences, 0);
        self.tell_begin();
        self.reading.look_later(&topic, KEY_GRACE);
    }

    /// A table that was renamed goes on in another topic. Should it take its old name again, the old topic has missed changes.
    pub(in crate::pipeline) fn see_to_its_name(&mut self, plan: &TablePlan) {
        let (oid, topic) = (plan.relation().oid, &plan.topic().name);
        let left = |journal: &&mut TableJournal| journal.oid == oid && journal.topic != *topic && !journal.terms.is_empty();
        for journal in self.journals.values_mut().filter(left) {
            journal.terms.clear();
            self.changed.insert(journal.topic.clone());
        }
    }
}

/// What a rebuild for this reason sends.
fn mode_of(reason: &str) -> Mode {
    if reason == "operator_resend" { Mode::Resend } else { Mode::Differences }
}
