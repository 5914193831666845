//! The end of a reading: rows of an old epoch were touched by no event and read by no chunk, so they are gone.

use std::sync::Arc;

use crate::fault;
use crate::pipeline::emitter::Emitter;
use crate::pipeline::emitter::relations::topic_number;
use crate::pipeline::error::SessionError;
use crate::rebuild::journal::TableStep;

impl Emitter {
    /// Deletes some of them. One pass finds all: nothing gives a row an old epoch any more.
    pub(super) fn sweep(&mut self, topic: &str) -> Result<bool, SessionError> {
        let Some(next) = self.pass_goes_on()? else { return Ok(false) };
        let number = topic_number(&self.indexes, topic);
        let table = self.reading.current.as_ref().and_then(|current| current.table.as_ref());
        let Some(plan) = table.map(|table| Arc::clone(&table.plan)) else { return Ok(false) };
        let Some(epoch) = self.journals.get(topic).map(|journal| journal.epoch) else { return Ok(false) };
        let page = self.index.store().rows_page(number, next.after.as_deref(), next.keys)?;
        let ended = page.len() < next.keys;
        self.pass_reaches(page.last().map(|(key, _)| key));
        let mut deleted = 0;
        for (key, _) in page.into_iter().filter(|(_, entry)| entry.epoch != epoch) {
            // As of every event emitted, not as of the store.
            if self.index.row(number, &key)?.is_some_and(|entry| entry.epoch != epoch) {
                self.place_delete(&plan, topic, epoch, &key)?;
                deleted += 1;
            }
        }
        let Some(journal) = self.journals.get_mut(topic) else { return Ok(false) };
        journal.counts.deleted += deleted;
        if ended {
            journal.step = TableStep::Done;
            self.table_is_done(topic)?;
        }
        if deleted > 0 {
            self.changed.insert(topic.to_owned());
        }
        fault::point("rebuild.sweep");
        if deleted > 0 {
            self.close()?;
        }
        Ok(true)
    }
}
