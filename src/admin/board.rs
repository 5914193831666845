//! Where things stand, kept by the rooms that know it and read by `status`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::event::identity::Position;
use crate::lsn::Lsn;
use crate::rebuild::journal::{Counts, RebuildJournal, TableJournal, TableStep};

/// What the service is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    #[default]
    Starting,
    /// The initial load, while streaming.
    Loading,
    Streaming,
    Rebuilding,
    /// For the source, the sink, another instance…: see `waiting_for`.
    Waiting,
    Stopping,
    Stopped,
    Refused,
}

/// `status --json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    pub stream: String,
    pub state: State,
    pub waiting_for: Option<String>,
    pub position: Option<Position>,
    pub acknowledged_lsn: Option<Lsn>,
    pub lag_bytes: Option<u64>,
    pub wal_kept_bytes: Option<u64>,
    pub wal_safe_bytes: Option<i64>,
    pub seconds_to_loss: Option<u64>,
    pub slot: SlotStatus,
    pub sink: SinkStatus,
    pub rebuild: Option<RebuildStatus>,
    /// Whether every table's row index may be relied upon.
    pub index_complete: bool,
    pub last_error: Option<String>,
    pub events_total: u64,
    /// Start of the process, seconds since 1970.
    pub since: i64,
    pub version: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SlotStatus {
    pub name: String,
    pub wal_status: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SinkStatus {
    pub kind: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct RebuildStatus {
    pub id: u64,
    pub reason: String,
    pub seen: String,
    pub tables: BTreeMap<String, TableStatus>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TableStatus {
    pub step: TableStep,
    pub blocks_done: u64,
    pub blocks: u64,
    #[serde(flatten)]
    pub counts: Counts,
}

impl Status {
    /// The rebuild as its journal has it; the state follows.
    pub fn show_rebuild<'t>(&mut self, rebuild: Option<&RebuildJournal>, tables: impl Iterator<Item = &'t TableJournal>) {
        self.rebuild = rebuild.map(|rebuild| RebuildStatus {
            id: rebuild.id,
            reason: rebuild.reason.clone(),
            seen: rebuild.seen.clone(),
            tables: tables.filter(|table| table.rebuild == rebuild.id).map(|table| (table.topic.clone(), table_status(table))).collect(),
        });
        if matches!(self.state, State::Loading | State::Streaming | State::Rebuilding) {
            self.state = match rebuild.map(|rebuild| rebuild.reason.as_str()) {
                None | Some("index_incomplete") => State::Streaming,
                Some("first_start") => State::Loading,
                Some(_) => State::Rebuilding,
            };
        }
    }
}

fn table_status(table: &TableJournal) -> TableStatus {
    let done = |leaf: &crate::rebuild::journal::LeafJournal| leaf.next.map_or(leaf.blocks, |(block, _)| block.min(leaf.blocks));
    TableStatus {
        step: table.step,
        blocks_done: table.leaves.iter().map(|leaf| u64::from(done(leaf))).sum(),
        blocks: table.leaves.iter().map(|leaf| u64::from(leaf.blocks)).sum(),
        counts: table.counts,
    }
}

/// A shared handle.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Status>>);

impl Board {
    pub fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    #[must_use]
    pub fn snapshot(&self) -> Status {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
