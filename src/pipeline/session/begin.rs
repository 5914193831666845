//! How a stream begins, or begins anew: what is due is recorded first, then the slot is seen to, then its position is recorded.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::batch::Batch;
use crate::fault;
use crate::lsn::Lsn;
use crate::pipeline::closed::Closed;
use crate::pipeline::deliver::deliver;
use crate::pipeline::desk;
use crate::pipeline::error::SessionError;
use crate::pipeline::session::{Service, Start};
use crate::postgres::slot;
use crate::postgres::slot::SlotSeen;
use crate::postgres::sql::Sql;
use crate::postgres::system::System;
use crate::progress::{BatchId, Fingerprint, PROGRESS_VERSION, Placed, Progress, SlotRecord};
use crate::rebuild::journal::{Mode, RebuildJournal, RebuildStep, TableJournal, TableStep};
use crate::rebuild::reason::{Reason, SlotFate};
use crate::resume::Refusal;
use crate::store::changes::Changes;

impl Service {
    /// Notes the reason, replaces the slot where it has to be, and records the stream that begins with it.
    #[expect(clippy::too_many_arguments, clippy::too_many_lines, reason = "all that was seen, in the order of the steps")]
    pub(super) async fn begin_rebuild(
        &mut self,
        reason: &Reason,
        held: Option<(Progress, Vec<TableJournal>)>,
        seen: &SlotSeen,
        sql: &Sql,
        system: &System,
        fingerprint: Fingerprint,
        recorded: bool,
    ) -> Result<Start, SessionError> {
        let config = Arc::clone(&self.config);
        if *reason == Reason::FirstStart {
            tracing::info!(reason = reason.name(), "load is due");
        } else {
            tracing::warn!(reason = reason.name(), seen = %reason, "rebuild is due");
        }
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
        let (held, mut tables) = held.map_or((None, Vec::new()), |(progress, tables)| (Some(progress), tables));
        let mut automatic: Vec<i64> = held.as_ref().map(|held| held.automatic_rebuilds.clone()).unwrap_or_default();
        // A clock that was ahead does not count for ever.
        automatic.retain(|begun| (0..3_600).contains(&(now - begun)));
        if reason.automatic() && !self.rebuild_is_asked_for {
            if matches!(reason, Reason::Conflict { .. }) && config.rebuild.on_conflict == crate::config::OnConflict::Stop {
                return Err(Refusal::Conflict { reason: reason.clone() }.into());
            }
            if !config.rebuild.automatic {
                return Err(Refusal::NotAutomatic { reason: reason.clone() }.into());
            }
            if automatic.len() >= config.rebuild.max_per_hour as usize {
                return Err(Refusal::TooManyRebuilds { reason: reason.clone(), limit: config.rebuild.max_per_hour }.into());
            }
            automatic.push(now);
        }
        let usable = matches!(seen, SlotSeen::Present(slot) if slot.lost().is_none());
        if !usable && !config.source.create {
            return Err(Refusal::MayNotCreate { name: config.source.slot.clone() }.into());
        }
        if !reason.trusts_index() {
            // Subscribers begin anew: nothing kept of what they held counts.
            tables.clear();
        }
        let rebuilds = held.as_ref().map_or(0, |held| held.rebuilds);
        let continued = held.as_ref().and_then(|held| held.rebuild.clone()).filter(|rebuild| rebuild.step == RebuildStep::Noted);
        let mut journal = continued.unwrap_or_else(|| RebuildJournal {
            id: rebuilds + 1,
            reason: reason.name().to_owned(),
            seen: reason.to_string(),
            step: RebuildStep::Noted,
            tables: Vec::new(),
            begun_at: held.as_ref().map_or(Lsn::INVALID, |held| held.end_lsn),
            lost_again: held.as_ref().and_then(|held| held.rebuild.as_ref()).map_or(0, |under_way| under_way.lost_again + 1),
        });
        if let Some(held) = &held {
            let noted =
                Progress { rebuild: Some(journal.clone()), rebuilds: journal.id, automatic_rebuilds: automatic.clone(), ..held.clone() };
            if !reason.trusts_index() {
                self.store.adopt(held, &[])?;
            }
            self.record(noted, Vec::new(), recorded).await?;
        }
        fault::point("rebuild.noted");
        if !usable || reason.slot() == SlotFate::Replace {
            if matches!(seen, SlotSeen::Present(_)) {
                slot::drop_slot(sql, &config.source.slot).await?;
            }
            fault::point("rebuild.slot_dropped");
        }
        let generation = held.as_ref().map_or(1, |held| held.slot.generation + 1);
        let (end_lsn, slot) = match seen {
            SlotSeen::Present(slot) if usable && reason.slot() == SlotFate::Keep => {
                let confirmed = slot.confirmed_flush_lsn.ok_or(SessionError::OutOfTurn { what: "a slot without a position" })?;
                (
                    confirmed,
                    SlotRecord {
                        generation,
                        consistent_point: Lsn::INVALID,
                        exported_snapshot: None,
                        fence: desk::next_xid(sql).await?,
                        passed: false,
                    },
                )
            }
            _ => {
                self.wait("the replication slot to be made: PostgreSQL waits for the transactions that are open now");
                let name = format!("walgate {}", config.stream);
                let made = slot::make(
                    &config.source.postgres,
                    &name,
                    config.source.connect_timeout,
                    &config.source.slot,
                    system.version,
                    config.source.failover,
                    |backend| self.making_slot = Some(backend),
                )
                .await?;
                self.making_slot = None;
                tracing::info!(slot = config.source.slot, consistent_point = %made.consistent_point, "replication slot made");
                (
                    made.consistent_point,
                    SlotRecord {
                        generation,
                        consistent_point: made.consistent_point,
                        exported_snapshot: Some(made.exported_snapshot.to_string()),
                        fence: 0,
                        passed: false,
                    },
                )
            }
        };
        fault::point("rebuild.slot_made");
        journal.step = RebuildStep::Tables;
        journal.tables.clear();
        let mut progress = Progress {
            version: PROGRESS_VERSION,
            stream: config.stream.clone(),
            batch: BatchId { instance: self.instance.clone(), number: 0 },
            fingerprint,
            system_identifier: system.system_identifier.to_string(),
            timeline: system.timeline,
            stream_epoch: held.as_ref().map_or(1, |held| held.stream_epoch + 1),
            position: None,
            end_lsn,
            split: None,
            placed: Placed::default(),
            message_lsn: Lsn::INVALID,
            slot,
            table_epoch: held.as_ref().map_or(0, |held| held.table_epoch),
            rebuild: Some(journal.clone()),
            rebuilds: journal.id,
            automatic_rebuilds: automatic,
            events_total: held.as_ref().map_or(0, |held| held.events_total),
        };
        // Tables under way begin anew: their chunks were read beside another slot.
        for table in &mut tables {
            table.skip_snapshot = None;
            table.skip_until = Lsn::INVALID;
        }
        progress.batch = self.record(progress.clone(), tables.clone(), recorded).await?;
        fault::point("rebuild.begun");
        Ok(Start { progress, tables, recorded })
    }

    /// The store is not that of the sink's record. Which emitted transactions are visible is not known any more, so
    /// snapshots wait for all that exist now; tables under way begin anew. First in the sink, then in the store: a
    /// crash between is another start with a store that is not the same.
    pub(super) async fn adopt(&mut self, progress: &mut Progress, tables: &mut [TableJournal], sql: &Sql) -> Result<(), SessionError> {
        progress.slot.fence = desk::next_xid(sql).await?;
        progress.slot.passed = false;
        progress.batch = BatchId { instance: self.instance.clone(), number: self.batch_number };
        self.batch_number += 1;
        for table in tables.iter_mut().filter(|table| table.step != TableStep::Done) {
            // What is sent again is another event than before.
            progress.table_epoch += 1;
            table.epoch = progress.table_epoch;
            table.step = TableStep::Waiting;
            if table.mode == Mode::Differences {
                table.mode = Mode::Resend;
            }
            table.sweep = false;
            table.leaves.clear();
        }
        let (delivered, of_tables) = (progress.clone(), tables.to_vec());
        let _receipt = self.with_sink(move |sink| sink.deliver(&Batch::default(), &delivered, &of_tables)).await??;
        self.store.adopt(progress, tables)?;
        Ok(())
    }

    /// Delivers a batch without events: the record alone.
    async fn record(&mut self, mut progress: Progress, tables: Vec<TableJournal>, recorded: bool) -> Result<BatchId, SessionError> {
        let batch = BatchId { instance: self.instance.clone(), number: self.batch_number };
        self.batch_number += 1;
        progress.batch = batch.clone();
        let closed = Closed { number: batch.number, batch: Batch::default(), progress, tables, changes: Changes::default() };
        let store = Arc::clone(&self.store);
        self.with_sink(move |sink| deliver(&closed, sink, &store, recorded)).await??;
        Ok(batch)
    }
}
