//! `format.transactions`: each event is numbered within its transaction, and where that begins and ends is told in a topic
//! of its own. A transaction without events is not told of.

use super::Emitter;
use crate::event::envelope::{Numbered, Op, TransactionId};
use crate::event::identity::Origin;
use crate::event::plan::TablePlan;
use crate::pgoutput::message::unix_time_us;
use crate::pipeline::error::SessionError;
use crate::progress::Counted;

/// What logical messages are counted under.
pub(super) const MESSAGES: &str = "message";

impl Emitter {
    /// The number of the next event of a table, if it is going to be one.
    pub(super) fn number_of(&mut self, plan: &TablePlan, op: Op) -> Result<Option<Numbered>, SessionError> {
        if !self.setting.format.transactions || self.setting.envelope.skips(op) {
            return Ok(None);
        }
        self.number_under(&format!("{}.{}", plan.relation().schema, plan.relation().name))
    }

    /// The number of the next event under this name, in the present transaction.
    pub(super) fn number_under(&mut self, name: &str) -> Result<Option<Numbered>, SessionError> {
        let Some(transaction) = self.transaction.as_ref().filter(|_| self.setting.format.transactions) else { return Ok(None) };
        let id = TransactionId { xid: transaction.xid, commit_lsn: transaction.commit_lsn };
        if self.counted.is_empty() {
            let origin = Origin::Transaction { commit_lsn: id.commit_lsn, ended_after: None };
            let commit_time_us = unix_time_us(transaction.commit_time);
            self.setting.envelope.transaction(&mut self.batch, &self.transactions_topic, origin, id, commit_time_us, None)?;
        }
        self.counted.total += 1;
        let of_table = self.counted.tables.entry(name.to_owned()).or_default();
        *of_table += 1;
        Ok(Some(Numbered { transaction: id, total_order: self.counted.total, table_order: *of_table }))
    }

    /// At the Commit of a transaction of so many messages.
    pub(super) fn tell_end(&mut self, id: TransactionId, commit_time: i64, messages: u64) -> Result<(), SessionError> {
        let counted = std::mem::take(&mut self.counted);
        if !counted.is_empty() {
            let origin = Origin::Transaction { commit_lsn: id.commit_lsn, ended_after: Some(messages) };
            let commit_time_us = unix_time_us(commit_time);
            self.setting.envelope.transaction(&mut self.batch, &self.transactions_topic, origin, id, commit_time_us, Some(&counted))?;
        }
        Ok(())
    }

    /// At the Begin of a transaction: what was counted of it before, if it goes on.
    pub(super) fn counted_before(&self) -> Counted {
        let split = self.progress.split.as_ref();
        let same = split.filter(|split| self.transaction.as_ref().is_some_and(|transaction| transaction.commit_lsn == split.commit_lsn));
        same.map(|split| split.counted.clone()).unwrap_or_default()
    }
}
