//! What each message of a transaction becomes: events, and what they tell the row index and the open chunk.

use std::sync::Arc;

use super::counted::MESSAGES;
use super::{Emitter, now_ns};
use crate::admission::Transaction;
use crate::event::digest::RowDigest;
use crate::event::envelope::{Image, Moment, Op, ReplicatedFrom};
use crate::event::identity::{Origin, Position};
use crate::event::plan::{Columns, TablePlan};
use crate::lsn::{Lsn, Oid};
use crate::pgoutput::message::{OldTuple, Tuple, Value, unix_time_us};
use crate::pipeline::error::SessionError;
use crate::pipeline::table::{Indexed, Table};
use crate::store::rows::RowEntry;

impl Emitter {
    pub(super) fn known_table(&self, oid: Oid) -> Result<Arc<Table>, SessionError> {
        self.tables.get(oid).cloned().ok_or(SessionError::UnknownRelation { oid })
    }

    /// Counts a message of the transaction: its origin where it is to be delivered.
    pub(super) fn admit(&mut self, bytes: &[u8]) -> Result<Option<Position>, SessionError> {
        let transaction = self.transaction.as_mut().ok_or(SessionError::OutOfTurn { what: "a change outside a transaction" })?;
        let commit_lsn = transaction.commit_lsn;
        let position = transaction.message(bytes)?.map(|ordinal| Position { commit_lsn, ordinal });
        if let Some(position) = position {
            self.progress.position = Some(position);
        }
        Ok(position)
    }

    /// Whether the reading of a table without a key contains the present transaction, or is going to.
    pub(super) fn skips(&self, table: &Table) -> bool {
        if !table.plan.has_key() && !table.is_gone && self.is_going_to_be_read(&table.plan) {
            return true;
        }
        let Some(skip) = &table.skip else { return false };
        self.emitted < skip.until && self.transaction.as_ref().is_some_and(|transaction| skip.snapshot.sees(transaction.xid))
    }

    pub(super) fn insert(&mut self, wal_start: Lsn, bytes: &[u8], oid: Oid, new: &Tuple<'_>) -> Result<(), SessionError> {
        let table = self.known_table(oid)?;
        let mut row = Vec::new();
        table.plan.read_row(new, &mut row)?;
        let key = index_key(&table.plan, &row)?;
        self.reading.note_settled(&table.plan, key.as_deref());
        let Some(position) = self.admit(bytes)? else { return Ok(()) };
        if self.skips(&table) {
            return Ok(());
        }
        self.emit(&table.plan, Origin::Streamed { position, part: 0 }, wal_start, Op::Create, None, Some(Image::Full(&row)))?;
        self.index_row(&table, key.as_deref(), &row, Knowledge::Full)?;
        self.split_if_large()
    }

    pub(super) fn update(
        &mut self,
        wal_start: Lsn,
        bytes: &[u8],
        oid: Oid,
        old: Option<OldTuple<'_>>,
        new: &Tuple<'_>,
    ) -> Result<(), SessionError> {
        let table = self.known_table(oid)?;
        let plan = &table.plan;
        let mut row = Vec::new();
        plan.read_row(new, &mut row)?;
        let mut old_row = Vec::new();
        let old_columns = match &old {
            Some(OldTuple::Full(_)) => Columns::All,
            _ => Columns::Identity,
        };
        if let Some(old) = &old {
            plan.read_row(old.tuple(), &mut old_row)?;
            plan.fill_unchanged(&mut row, &old_row, old_columns);
        }
        let whole = !row.contains(&Value::Unchanged);
        let key = index_key(plan, &row)?;
        let old_key = if old.is_some() { index_key(plan, &old_row)? } else { None };
        let moved = old_key.is_some() && old_key != key;
        if moved {
            self.reading.note_settled(plan, old_key.as_deref());
        }
        if whole || moved {
            self.reading.note_settled(plan, key.as_deref());
        } else {
            self.reading.note_partial(plan, key.as_deref(), &row);
        }
        let Some(position) = self.admit(bytes)? else { return Ok(()) };
        if self.skips(&table) {
            return Ok(());
        }
        let before = old.as_ref().map(|old| match old {
            OldTuple::Full(_) => Image::Full(&old_row),
            OldTuple::Key(_) => Image::Identity(&old_row),
        });
        let origin = |part| Origin::Streamed { position, part };
        if moved {
            self.emit(plan, origin(0), wal_start, Op::Delete, before, None)?;
            self.setting.envelope.tombstone(&mut self.batch, plan, origin(1), &old_row);
            self.forget_row(&table, old_key.as_deref());
            self.emit(plan, origin(2), wal_start, Op::Create, None, Some(Image::Full(&row)))?;
            self.index_row(&table, key.as_deref(), &row, if whole { Knowledge::Full } else { Knowledge::Arrived })?;
        } else {
            let before = before.filter(|image| matches!(image, Image::Full(_)));
            self.emit(plan, origin(0), wal_start, Op::Update, before, Some(Image::Full(&row)))?;
            self.index_row(&table, key.as_deref(), &row, if whole { Knowledge::Full } else { Knowledge::Partial })?;
        }
        self.split_if_large()
    }

    pub(super) fn delete(&mut self, wal_start: Lsn, bytes: &[u8], oid: Oid, old: &OldTuple<'_>) -> Result<(), SessionError> {
        let table = self.known_table(oid)?;
        let plan = &table.plan;
        let mut row = Vec::new();
        plan.read_row(old.tuple(), &mut row)?;
        let key = index_key(plan, &row)?;
        self.reading.note_settled(plan, key.as_deref());
        let Some(position) = self.admit(bytes)? else { return Ok(()) };
        if self.skips(&table) {
            return Ok(());
        }
        let before = match old {
            OldTuple::Full(_) => Image::Full(&row),
            OldTuple::Key(_) => Image::Identity(&row),
        };
        self.emit(plan, Origin::Streamed { position, part: 0 }, wal_start, Op::Delete, Some(before), None)?;
        if plan.has_key() {
            self.setting.envelope.tombstone(&mut self.batch, plan, Origin::Streamed { position, part: 1 }, &row);
        }
        self.forget_row(&table, key.as_deref());
        self.split_if_large()
    }

    pub(super) fn logical_message(&mut self, lsn: Lsn, bytes: &[u8], prefix: &str, content: &[u8]) -> Result<(), SessionError> {
        let Some(position) = self.admit(bytes)? else { return Ok(()) };
        if is_nudge(prefix, content) {
            return Ok(());
        }
        let numbered = self.number_under(MESSAGES)?;
        let moment = Moment { numbered, ..moment(self.transaction.as_ref(), self.origin.as_ref(), lsn) };
        self.setting.envelope.logical_message(
            &mut self.batch,
            &self.messages_topic,
            Origin::Streamed { position, part: 0 },
            &moment,
            prefix,
            content,
        )?;
        self.split_if_large()
    }

    /// A message outside transactions has an LSN of its own, and a high-water mark of its own.
    pub(super) fn message_outside(&mut self, lsn: Lsn, prefix: &str, content: &[u8]) -> Result<(), SessionError> {
        if lsn <= self.progress.message_lsn {
            return Ok(());
        }
        self.progress.message_lsn = lsn;
        if is_nudge(prefix, content) {
            return Ok(());
        }
        let moment = moment(None, None, lsn);
        self.setting.envelope.logical_message(&mut self.batch, &self.messages_topic, Origin::Message { lsn }, &moment, prefix, content)?;
        if self.batch_is_full() && self.transaction.is_none() { self.close() } else { Ok(()) }
    }

    fn emit(
        &mut self,
        plan: &TablePlan,
        origin: Origin,
        wal_start: Lsn,
        op: Op,
        before: Option<Image<'_>>,
        after: Option<Image<'_>>,
    ) -> Result<(), SessionError> {
        let numbered = self.number_of(plan, op)?;
        let moment = Moment { numbered, ..moment(self.transaction.as_ref(), self.origin.as_ref(), wal_start) };
        self.setting.envelope.row(&mut self.batch, plan, origin, &moment, op, before, after)?;
        Ok(())
    }

    fn index_row(&mut self, table: &Table, key: Option<&[u8]>, row: &[Value<'_>], knowledge: Knowledge) -> Result<(), SessionError> {
        let (Some(Indexed { number, epoch, absent_is_complete }), Some(key)) = (table.indexed, key) else { return Ok(()) };
        let digest = table.plan.digest(row);
        let (complete, digest) = match knowledge {
            Knowledge::Full => (true, digest.completed(&[])),
            Knowledge::Arrived => (false, RowDigest::default()),
            Knowledge::Partial => match self.index.row(number, key)? {
                Some(held) if held.epoch == epoch => {
                    (held.complete, digest.completed(if held.digest.is_some() { &held.large } else { &[] }))
                }
                None if absent_is_complete => (true, digest.completed(&[])),
                Some(_) | None => (false, RowDigest::default()),
            },
        };
        let entry = RowEntry { epoch, complete, digest: digest.total.filter(|_| complete), large: digest.large };
        self.index.building.put_row(number, key, entry);
        if !complete {
            self.index.building.put_reread(number, key);
            self.row_is_incomplete(&table.plan.topic().name);
        }
        Ok(())
    }

    fn forget_row(&mut self, table: &Table, key: Option<&[u8]>) {
        if let (Some(Indexed { number, .. }), Some(key)) = (table.indexed, key) {
            self.index.building.delete_row(number, key);
        }
    }
}

/// What an event tells the index of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    Full,
    /// An UPDATE that left values out.
    Partial,
    /// A row under a new key, with values left out: subscribers do not have them under this key.
    Arrived,
}

/// The key of a row as the index has it; `None` for tables without one.
fn index_key(plan: &TablePlan, row: &[Value<'_>]) -> Result<Option<Vec<u8>>, SessionError> {
    if !plan.has_key() {
        return Ok(None);
    }
    let mut key = Vec::with_capacity(32);
    plan.write_index_key(row, &mut key)?;
    Ok(Some(key))
}

fn is_nudge(prefix: &str, content: &[u8]) -> bool {
    prefix == "walgate" && content.is_empty()
}

pub(super) fn moment<'a>(transaction: Option<&Transaction>, origin: Option<&'a (String, Lsn)>, lsn: Lsn) -> Moment<'a> {
    let now_ns = now_ns();
    Moment {
        commit_time_us: transaction.map_or(now_ns / 1_000, |transaction| unix_time_us(transaction.commit_time)),
        xid: transaction.map(|transaction| transaction.xid),
        lsn,
        replicated_from: origin.map(|(name, lsn)| ReplicatedFrom { name, lsn: *lsn }),
        now_ns,
        snapshot: false,
        numbered: None,
    }
}
