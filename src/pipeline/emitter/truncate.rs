//! TRUNCATE: one event a table, or, for topics that take no record without a key, a delete for each row that the index knows.

use std::sync::Arc;

use super::Emitter;
use super::changes::moment;
use crate::admission::Transaction;
use crate::event::digest::key_digest;
use crate::event::envelope::{Image, Moment, Op};
use crate::event::identity::{Origin, Position};
use crate::lsn::{Lsn, Oid};
use crate::pipeline::error::SessionError;
use crate::pipeline::table::{Indexed, Table};
use crate::progress::Split;
use crate::store::index::IndexRecord;

/// Rows of the index that are looked at in one go.
const ROWS_PAGE: usize = 1_000;

/// A TRUNCATE that is being delivered.
struct Truncation {
    position: Position,
    wal_start: Lsn,
    /// The one whose rows are deleted, among those of the message.
    table: u16,
    /// Where a batch ends within its deletes: the next one begins with the whole of it once more, for the rows left.
    split: Split,
}

impl Emitter {
    pub(super) fn truncate(&mut self, wal_start: Lsn, bytes: &[u8], oids: &[Oid]) -> Result<(), SessionError> {
        let split = self.transaction.as_ref().map(Transaction::split);
        let position = self.admit(bytes)?;
        let tables = oids.iter().map(|oid| self.known_table(*oid)).collect::<Result<Vec<Arc<Table>>, _>>()?;
        for table in &tables {
            self.reading.note_truncate(&table.plan);
        }
        let (Some(position), Some(split)) = (position, split) else { return Ok(()) };
        if self.setting.envelope.skips(Op::Truncate) {
            return Ok(()); // the index keeps what subscribers hold: a rebuild deletes it
        }
        let by_deletes = |table: &Table| self.setting.truncate_by_deletes && table.plan.has_key();
        let (deleted, told): (Vec<_>, Vec<_>) = (0_u16..).zip(tables).partition(|(_, table)| by_deletes(table));
        // What may end a batch within this message comes first, so that nothing is sent twice after it.
        let begun = self.progress.split.as_ref().filter(|begun| begun.commit_lsn == split.commit_lsn && begun.ordinals == split.ordinals);
        let split = Split { deleted: begun.map_or(0, |begun| begun.deleted), ..split };
        let mut truncation = Truncation { position, wal_start, table: 0, split };
        for (part, table) in deleted {
            if !self.skips(&table) {
                truncation.table = part;
                self.delete_rows(&mut truncation, &table)?;
            }
        }
        for (part, table) in told {
            if self.skips(&table) {
                continue;
            }
            let numbered = self.number_of(&table.plan, Op::Truncate)?;
            let moment = Moment { numbered, ..moment(self.transaction.as_ref(), self.origin.as_ref(), wal_start) };
            self.setting.envelope.truncate(&mut self.batch, &table.plan, Origin::Streamed { position, part }, &moment)?;
            if let Some(Indexed { number, .. }) = table.indexed {
                self.index.building.clear_topic(number);
            }
        }
        self.split_if_large()
    }

    /// A delete and a tombstone for each row that subscribers hold, as far as the index knows.
    fn delete_rows(&mut self, truncation: &mut Truncation, table: &Table) -> Result<(), SessionError> {
        // One that is going to be read from its beginning is compared with the index then.
        let Some(Indexed { number, .. }) = table.indexed else { return Ok(()) };
        let topic = &table.plan.topic().name;
        if !self.indexes.get(topic).is_some_and(IndexRecord::lacks_nothing) {
            tracing::warn!(
                topic,
                "truncated while the row index was incomplete: rows that it does not know stay in the compacted topic; \
                 make the topic again to be rid of them"
            );
        }
        for key in self.index.rows_not_applied(number) {
            self.delete_row(truncation, table, &key)?;
        }
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.index.store().rows_page(number, after.as_deref(), ROWS_PAGE)?;
            let is_last = page.len() < ROWS_PAGE;
            after = page.last().map(|(key, _)| key.clone());
            for (key, _) in page {
                if self.index.row(number, &key)?.is_some() {
                    self.delete_row(truncation, table, &key)?;
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn delete_row(&mut self, truncation: &mut Truncation, table: &Table, key: &[u8]) -> Result<(), SessionError> {
        let Some(row) = table.plan.row_of_index_key(key) else {
            return Err(SessionError::OutOfTurn { what: "an index key of another width than the table's key" });
        };
        let key_digest = key_digest(key);
        truncation.split.deleted += 1;
        let row_number = truncation.split.deleted;
        let table_number = truncation.table;
        let origin = |part| Origin::Truncated { position: truncation.position, row_number, table: table_number, key_digest, part };
        let numbered = self.number_of(&table.plan, Op::Delete)?;
        let moment = Moment { numbered, ..moment(self.transaction.as_ref(), self.origin.as_ref(), truncation.wal_start) };
        self.setting.envelope.row(&mut self.batch, &table.plan, origin(0), &moment, Op::Delete, Some(Image::Key(&row)), None)?;
        self.setting.envelope.tombstone(&mut self.batch, &table.plan, origin(1), &row);
        if let Some(Indexed { number, .. }) = table.indexed {
            self.index.building.delete_row(number, key);
            self.index.building.delete_reread(number, key);
        }
        self.split_if_large_at(|_| truncation.split.clone())
    }
}
