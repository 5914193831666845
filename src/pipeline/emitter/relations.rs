//! What the stream says of its tables: the encoder plan of each, and its place in the row index.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::plan::{TablePlan, is_keyed};
use crate::event::topic::{Topic, topic_name};
use crate::pgoutput::relation::Relation;
use crate::pipeline::emitter::Emitter;
use crate::pipeline::error::SessionError;
use crate::pipeline::reading::is_under_way;
use crate::pipeline::table::{Indexed, Skip, Table};
use crate::rebuild::journal::{Mode, TableJournal, TableStep};
use crate::store::index::{IndexRecord, TopicNumber};

/// A relation with what the catalog says of it.
struct Described {
    plan: TablePlan,
    /// The plan has the key that the table had: the catalog knows of none.
    has_lost_its_key: bool,
    is_gone: bool,
}

impl Emitter {
    pub(super) fn relation(&mut self, relation: Relation) -> Result<(), SessionError> {
        self.reading.relation_came(&relation);
        let described = self.described(relation)?;
        if described.has_lost_its_key {
            self.see_to_its_lost_key(&described.plan);
        } else {
            self.see_to_its_key(&described.plan);
        }
        self.see_to_its_name(&described.plan);
        let table = self.table(described)?;
        self.tables.insert(table);
        Ok(())
    }

    fn described(&self, relation: Relation) -> Result<Described, SessionError> {
        let mut facts = self.desk.facts(relation.oid)?;
        let name = topic_name(&self.setting.prefix, &relation.schema, &relation.name);
        // Where only the catalog tells the key, it is that of now, and the change may be from before: what has no key any
        // more, or is gone, goes on under the one that it had, until it is looked at.
        let had = self.indexes.get(&name).map(|record| &record.key).filter(|key| !key.is_empty());
        let has = |name: &String| relation.columns.iter().any(|column| column.name == *name);
        let had = had.filter(|key| !is_keyed(&relation, &facts) && key.iter().all(has)).cloned();
        let has_lost_its_key = had.is_some() && !facts.is_gone;
        facts.key = had.unwrap_or(facts.key);
        let topic = Arc::new(Topic { name, keyed: is_keyed(&relation, &facts) });
        let is_gone = facts.is_gone;
        let plan = TablePlan::new(relation, &facts, topic, &self.setting.format);
        Ok(Described { plan, has_lost_its_key, is_gone })
    }

    /// A table with its present place in the index. What is delivered of it is kept there from the first event on, also
    /// while it waits to be read: the log may be lost before it is.
    fn table(&mut self, Described { plan, is_gone, .. }: Described) -> Result<Table, SessionError> {
        let record = self.index_of(&plan);
        let is_its_own = plan.has_key() && plan.has_key_of(&record.key, &record.form);
        let number = record.number;
        let journal = self.journals.get(&plan.topic().name);
        let indexed = is_its_own.then(|| Indexed {
            number,
            epoch: journal.map_or(self.progress.table_epoch, |journal| journal.epoch),
            absent_is_complete: journal.is_some_and(|journal| journal.mode == Mode::Index && is_under_way(journal)),
        });
        let skip = match journal.and_then(|journal| Some((journal.skip_snapshot.as_ref()?, journal.skip_until))) {
            Some((snapshot, until)) if until > self.emitted => Some(Skip {
                snapshot: snapshot
                    .parse()
                    .map_err(|_| SessionError::OutOfTurn { what: "a journal with a snapshot that cannot be read" })?,
                until,
            }),
            _ => None,
        };
        Ok(Table { plan, indexed, skip, is_gone })
    }

    /// The index of its topic. One that begins is complete where nothing was delivered before it: where a reading
    /// that the store knows nothing of was begun, something was.
    pub(in crate::pipeline) fn index_of(&mut self, plan: &TablePlan) -> &mut IndexRecord {
        let topic = &plan.topic().name;
        let number = topic_number(&self.indexes, topic);
        let of_operator = self.progress.rebuild.as_ref().is_some_and(|rebuild| rebuild.reason.starts_with("operator"));
        let not_begun = |journal: &TableJournal| journal.step == TableStep::Waiting && journal.mode == Mode::Differences && !of_operator;
        self.indexes.entry(topic.clone()).or_insert_with(|| {
            let complete = plan.has_key() && self.journals.get(topic).is_none_or(not_begun);
            let key = plan.key_names().map(str::to_owned).collect();
            let record = IndexRecord { number, complete, key, form: plan.key_form() };
            self.index.building.put_index(topic, record.clone());
            record
        })
    }

    /// The table is not seen yet, or its reading is not at its end.
    pub(super) fn is_going_to_be_read(&self, plan: &TablePlan) -> bool {
        let Relation { oid, schema, name, .. } = plan.relation();
        let unlisted = self.progress.rebuild.as_ref().is_some_and(|rebuild| rebuild.tables.is_empty());
        match self.journals.get(&plan.topic().name).filter(|journal| journal.oid == *oid) {
            Some(journal) => unlisted || journal.step != TableStep::Done && journal.mode != Mode::Index,
            None => !self.setting.not_loaded.contains(&format!("{schema}.{name}")),
        }
    }

    /// The journal of a topic's table changed: what its tables do with the index follows.
    pub(in crate::pipeline) fn refresh_topic(&mut self, topic: &str) -> Result<(), SessionError> {
        for table in self.tables.take_topic(topic) {
            let described = self.described(table.plan.relation().clone())?;
            let table = self.table(described)?;
            self.tables.insert(table);
        }
        Ok(())
    }
}

/// The number of a topic's index: its own, or the next free one.
pub(in crate::pipeline) fn topic_number(indexes: &BTreeMap<String, IndexRecord>, topic: &str) -> TopicNumber {
    indexes.get(topic).map_or_else(
        || TopicNumber::new(indexes.values().map(|record| record.number.as_u32()).max().map_or(1, |greatest| greatest + 1)),
        |record| record.number,
    )
}
