//! Rows that subscribers know only in part, such as those whose key changed while a large value did not, are read
//! again by their keys: before a table's reading ends, and soon after in a table that is done.

use crate::fault;
use crate::lsn::Oid;
use crate::pipeline::emitter::Emitter;
use crate::pipeline::emitter::relations::topic_number;
use crate::pipeline::error::SessionError;
use crate::pipeline::reading::is_under_way;
use crate::rebuild::journal::TableStep;
use crate::splice::chunk::Range;

impl Emitter {
    /// A row of this topic is known only in part.
    pub(in crate::pipeline) fn row_is_incomplete(&mut self, topic: &str) {
        if !self.reading.incomplete.contains(topic) {
            self.reading.incomplete.insert(topic.to_owned());
            self.note_incomplete(topic, true);
            self.show_incomplete();
        }
    }

    /// No row of this topic is, or none that could be read.
    pub(super) fn rows_are_whole(&mut self, topic: &str) {
        if self.reading.incomplete.remove(topic) {
            self.note_incomplete(topic, false);
            self.show_incomplete();
        }
    }

    /// In the journal, which the sink keeps, too.
    fn note_incomplete(&mut self, topic: &str, are_some: bool) {
        if let Some(journal) = self.journals.get_mut(topic).filter(|journal| journal.has_incomplete_rows != are_some) {
            journal.has_incomplete_rows = are_some;
            self.changed.insert(topic.to_owned());
        }
    }

    fn show_incomplete(&self) {
        self.board.update(|status| status.incomplete_topics.clone_from(&self.reading.incomplete));
    }

    /// At start: the tables with rows that were left to be read again.
    pub(in crate::pipeline) fn recall_incomplete(&mut self) -> Result<(), SessionError> {
        for (topic, record) in &self.indexes {
            if self.index.has_rereads(record.number)? {
                self.reading.incomplete.insert(topic.clone());
            }
        }
        self.show_incomplete();
        Ok(())
    }

    /// A done table with rows to be read again.
    pub(super) fn next_incomplete(&mut self) -> Result<Option<(String, Oid)>, SessionError> {
        while let Some(topic) = self.reading.incomplete.first().cloned() {
            let number = topic_number(&self.indexes, &topic);
            if let Some(journal) = self.journals.get(&topic)
                && self.index.has_rereads(number)?
            {
                let oid = journal.oid;
                return Ok(Some((topic, oid)));
            }
            self.rows_are_whole(&topic);
        }
        Ok(None)
    }

    /// Opens a chunk of such rows, or takes the table to its next step after one pass over them: those that arrive
    /// meanwhile are read soon after, as in any table that is done, so that a reading ends however many arrive.
    pub(super) fn open_rereads(&mut self, topic: &str) -> Result<bool, SessionError> {
        let Some(next) = self.pass_goes_on()? else { return Ok(false) };
        let number = topic_number(&self.indexes, topic);
        let page = self.index.store().rereads_page(number, next.after.as_deref(), next.keys)?;
        let last = page.last().cloned();
        let mut wanted = Vec::new();
        for key in page {
            match self.index.row(number, &key)? {
                Some(entry) if !entry.complete => wanted.push(key),
                _ => self.index.building.delete_reread(number, &key),
            }
        }
        if !wanted.is_empty() {
            let table = self.reading.current.as_ref().and_then(|current| current.table.as_ref());
            let leaves = table.map(|table| table.catalog.leaves.clone()).unwrap_or_default();
            return self.open_chunk(topic, Range::Keys { leaves, keys: wanted }, self.setting.chunk_bytes.saturating_mul(2));
        }
        if last.is_some() {
            self.pass_reaches(last.as_ref());
            return Ok(true);
        }
        self.end_pass();
        let none_left = !self.index.has_rereads(number)?;
        let Some(journal) = self.journals.get_mut(topic) else { return Ok(false) };
        if !is_under_way(journal) {
            if none_left {
                self.rows_are_whole(topic);
            }
            self.reading.current = None;
            return Ok(true);
        }
        journal.step = if journal.sweep { TableStep::Sweep } else { TableStep::Done };
        self.changed.insert(topic.to_owned());
        if journal.step == TableStep::Done {
            self.table_is_done(topic)?;
        }
        fault::point("rebuild.rereads_done");
        Ok(true)
    }
}
