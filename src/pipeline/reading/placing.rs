//! What is placed at a boundary: the rows of a chunk that the stream left alone, and the ends of rows that are gone.

use std::collections::HashSet;
use std::iter::Peekable;
use std::sync::Arc;

use crate::event::digest::key_digest;
use crate::event::envelope::{Image, Moment, Op};
use crate::event::identity::Origin;
use crate::event::plan::TablePlan;
use crate::fault;
use crate::pgoutput::message::Value;
use crate::pipeline::emitter::relations::topic_number;
use crate::pipeline::emitter::{Emitter, now_ns};
use crate::pipeline::error::SessionError;
use crate::pipeline::reading::{KEYLESS_BYTES_MAX, is_under_way};
use crate::progress::Placed;
use crate::rebuild::journal::{Mode, TableJournal, TableStep};
use crate::splice::chunk::{Range, Tid};
use crate::splice::notes::{Known, Note, Notes};
use crate::splice::place::{Placement, placed_entry, placement};
use crate::splice::read::Chunk;
use crate::store::rows::RowEntry;

impl Emitter {
    pub(super) fn place_delete(&mut self, plan: &Arc<TablePlan>, topic: &str, epoch: u64, key: &[u8]) -> Result<(), SessionError> {
        let number = topic_number(&self.indexes, topic);
        let Some(row) = plan.row_of_index_key(key) else {
            return Err(SessionError::OutOfTurn { what: "an index key of another width than the table's key" });
        };
        let origin = self.placed(plan, epoch, key, None, 0);
        let moment = self.placed_moment();
        self.setting.envelope.row(&mut self.batch, plan, origin, &moment, Op::Delete, Some(Image::Key(&row)), None)?;
        let tombstone = Origin::Placed {
            boundary: self.emitted,
            count: self.progress.placed.count - 1,
            table_epoch: epoch,
            table: plan.relation().oid,
            key_digest: key_digest(key),
            row_digest: None,
            part: 1,
        };
        self.setting.envelope.tombstone(&mut self.batch, plan, tombstone, &row);
        self.index.building.delete_row(number, key);
        self.index.building.delete_reread(number, key);
        Ok(())
    }

    /// The identity of the next placed event; counts on at this boundary.
    fn placed(&mut self, plan: &TablePlan, table_epoch: u64, key: &[u8], row_digest: Option<u128>, part: u16) -> Origin {
        let placed = &mut self.progress.placed;
        if placed.boundary != self.emitted {
            *placed = Placed { boundary: self.emitted, count: 0 };
        }
        let count = placed.count;
        placed.count += 1;
        Origin::Placed {
            boundary: self.emitted,
            count,
            table_epoch,
            table: plan.relation().oid,
            key_digest: key_digest(key),
            row_digest,
            part,
        }
    }

    fn placed_moment(&self) -> Moment<'static> {
        let now_ns = now_ns();
        Moment {
            commit_time_us: now_ns / 1_000,
            xid: None,
            lsn: self.emitted,
            replicated_from: None,
            now_ns,
            snapshot: true,
            numbered: None,
        }
    }

    /// Places the rows of the open chunk at this boundary, in as many batches as they fill: each says how far it goes.
    pub(super) fn place(&mut self) -> Result<(), SessionError> {
        let Some(current) = self.reading.current.as_mut() else { return Ok(()) };
        let topic = current.topic.clone();
        let (Some(open), Some(planned)) = (current.chunk.take(), current.table.as_ref()) else { return Ok(()) };
        let Some(chunk) = open.read else { return Ok(()) };
        let plan = Arc::clone(&planned.plan);
        fault::point("rebuild.place");
        let mut rows = chunk.rows.iter().peekable();
        loop {
            let Some(held) = self.journals.remove(&topic) else { return Ok(()) };
            let mut journal = held.clone();
            if plan.has_key() {
                self.place_keyed(&plan, &mut journal, &mut rows, &open.notes)?;
            } else {
                self.place_keyless(&plan, &mut journal, &chunk, &mut rows)?;
            }
            let rest: Option<Tid> = rows.peek().map(|(tid, _)| *tid);
            match &open.request.range {
                Range::Heap { leaf, before, .. } => {
                    if let Some(of) = journal.leaves.iter_mut().find(|of| of.oid == leaf.oid) {
                        of.blocks = chunk.blocks.unwrap_or(of.blocks);
                        of.next = rest.or(chunk.cut).or(*before).filter(|(block, _)| *block < of.blocks);
                    }
                }
                // Where the reading was cut, a row that did not come may be there all the same.
                Range::Keys { keys, .. } if rest.is_none() && chunk.cut.is_none() => {
                    self.place_ends(&plan, &mut journal, &chunk, keys, &open.notes)?;
                    self.pass_reaches(keys.last());
                }
                Range::Keys { keys, .. } if rest.is_none() => self.pass_takes(keys.len() / 2),
                Range::Keys { .. } | Range::Whole { .. } => {}
            }
            if is_under_way(&held) {
                self.journals.insert(topic.clone(), journal);
                self.changed.insert(topic.clone());
            } else {
                // Rows of a done table are read again: its journal tells of the reading that was.
                self.journals.insert(topic.clone(), held);
            }
            if !plan.has_key() {
                self.table_is_done(&topic)?;
            }
            self.close()?;
            fault::point("rebuild.placed");
            if rest.is_none() {
                return Ok(());
            }
        }
    }

    /// Until the batch is full or there are no more rows.
    fn place_keyed<'r>(
        &mut self,
        plan: &Arc<TablePlan>,
        journal: &mut TableJournal,
        rows: &mut Peekable<impl Iterator<Item = (Tid, Vec<Value<'r>>)>>,
        notes: &'r Notes,
    ) -> Result<(), SessionError> {
        let number = topic_number(&self.indexes, &journal.topic);
        let epoch = journal.epoch;
        let mode = if is_under_way(journal) { journal.mode } else { Mode::Differences };
        // A row known only in part may have been placed with the same content in this epoch, before its key left and
        // came back: its event is another one.
        let again = self.progress.table_epoch + 1;
        let mut key = Vec::new();
        while !self.batch_is_full()
            && let Some((_, mut row)) = rows.next()
        {
            journal.counts.rows += 1;
            key.clear();
            plan.write_index_key(&row, &mut key)?;
            match notes.of(&key) {
                None => {}
                Some(Note::Settled) => {
                    journal.counts.left_to_stream += 1;
                    continue;
                }
                Some(Note::Partial(values)) => lay_over(&mut row, values),
            }
            let digest = plan.digest(&row).completed(&[]);
            let entry = self.index.row(number, &key)?;
            match placement(mode, epoch, entry.as_ref(), &digest) {
                Placement::Leave => continue,
                Placement::Equal => {
                    journal.counts.equal += 1;
                    if entry.as_ref().is_some_and(|entry| entry.epoch == epoch) {
                        continue;
                    }
                }
                placement @ (Placement::Read | Placement::Update) => {
                    let op = if placement == Placement::Read { Op::Read } else { Op::Update };
                    *(if op == Op::Read { &mut journal.counts.read } else { &mut journal.counts.updated }) += 1;
                    let is_again = entry.as_ref().is_some_and(|entry| entry.epoch == epoch && !entry.complete);
                    if is_again {
                        self.progress.table_epoch = again;
                    }
                    let origin = self.placed(plan, if is_again { again } else { epoch }, &key, digest.total, 0);
                    let moment = self.placed_moment();
                    self.setting.envelope.row(&mut self.batch, plan, origin, &moment, op, None, Some(Image::Full(&row)))?;
                }
            }
            self.index.building.put_row(number, &key, placed_entry(epoch, digest));
            if entry.is_some_and(|entry: RowEntry| !entry.complete) {
                self.index.building.delete_reread(number, &key);
            }
        }
        Ok(())
    }

    /// Keys that were asked for, neither read nor touched: their rows left before noting began, and their ends were
    /// emitted or never will be.
    fn place_ends(
        &mut self,
        plan: &Arc<TablePlan>,
        journal: &mut TableJournal,
        chunk: &Chunk,
        keys: &[Vec<u8>],
        notes: &Notes,
    ) -> Result<(), SessionError> {
        let number = topic_number(&self.indexes, &journal.topic);
        let again = self.progress.table_epoch + 1;
        let mut read = HashSet::new();
        for (_, row) in chunk.rows.iter() {
            let mut key = Vec::new();
            plan.write_index_key(&row, &mut key)?;
            read.insert(key);
        }
        for key in keys.iter().filter(|key| !read.contains(*key)) {
            if notes.of(key).is_none() && self.index.row(number, key)?.is_some() {
                self.progress.table_epoch = again;
                self.place_delete(plan, &journal.topic, again, key)?;
                journal.counts.deleted += 1;
            }
        }
        Ok(())
    }

    /// The whole of a table without a key, at the boundary where the stream stands still.
    fn place_keyless<'r>(
        &mut self,
        plan: &Arc<TablePlan>,
        journal: &mut TableJournal,
        chunk: &Chunk,
        rows: &mut impl Iterator<Item = (Tid, Vec<Value<'r>>)>,
    ) -> Result<(), SessionError> {
        if chunk.cut.is_some() {
            return Err(SessionError::KeylessTooLarge { table: format!("{}.{}", journal.schema, journal.name), bytes: KEYLESS_BYTES_MAX });
        }
        for (count, (_, row)) in (0_u64..).zip(rows) {
            let digest = plan.digest(&row).completed(&[]);
            // Equal rows are told apart by their count.
            let origin = self.placed(plan, journal.epoch, &count.to_be_bytes(), digest.total, 0);
            let moment = self.placed_moment();
            self.setting.envelope.row(&mut self.batch, plan, origin, &moment, Op::Read, None, Some(Image::Full(&row)))?;
            journal.counts.rows += 1;
            journal.counts.read += 1;
        }
        journal.skip_snapshot = Some(chunk.snapshot.to_string());
        journal.skip_until = chunk.position_to_pass;
        for leaf in &mut journal.leaves {
            leaf.next = None;
        }
        journal.step = TableStep::Done;
        Ok(())
    }
}

/// What UPDATEs carried lies over what was read before them.
fn lay_over<'r>(row: &mut [Value<'r>], values: &'r [(usize, Known)]) {
    for (column, known) in values {
        if let Some(value) = row.get_mut(*column) {
            *value = match known {
                Known::Null => Value::Null,
                Known::Text(text) => Value::Text(text),
            };
        }
    }
}
