//! Where things stand, kept by the rooms that know it and read by `status`.
//!
//! [`Status`] is a promise: scripts and dashboards read its names. Fields are added, none is renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Serialize, Serializer};

use crate::event::identity::Position;
use crate::lsn::Lsn;
use crate::rebuild::journal::{Counts, LeafJournal, RebuildJournal, RebuildStep, TableJournal, TableStep};

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
    /// The session has what it delivers to finish: it hears a request to stop by itself.
    #[serde(skip)]
    pub delivers: bool,
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
    /// The rebuild that ended last, of those whose tables were not read again since.
    pub last_rebuild: Option<EndedRebuild>,
    /// Whether every table's row index may be relied upon.
    pub index_complete: bool,
    /// Topics with rows that subscribers know only in part; they are read again soon.
    pub incomplete_topics: BTreeSet<String>,
    pub last_error: Option<String>,
    pub events_total: u64,
    /// Start of the process, seconds since 1970; shown as RFC 3339. 0: no process.
    #[serde(serialize_with = "serialize_seconds")]
    pub since: i64,
    pub version: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SlotStatus {
    pub name: String,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: Option<String>,
    /// Whether a connection reads from it; `None` before anyone looked.
    pub active: Option<bool>,
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
    pub step: RebuildStep,
    /// By topic.
    pub tables: BTreeMap<String, TableStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndedRebuild {
    pub id: u64,
    /// By topic.
    pub tables: BTreeMap<String, TableStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
        let tables: Vec<&TableJournal> = tables.collect();
        let of =
            |id: u64| tables.iter().filter(|table| table.rebuild == id).map(|table| (table.topic.clone(), table_status(table))).collect();
        let under_way = rebuild.map(|rebuild| rebuild.id);
        let ended = tables.iter().map(|table| table.rebuild).filter(|id| *id > 0 && Some(*id) != under_way).max();
        self.last_rebuild = ended.map(|id| EndedRebuild { id, tables: of(id) });
        self.rebuild = rebuild.map(|rebuild| RebuildStatus {
            id: rebuild.id,
            reason: rebuild.reason.clone(),
            seen: rebuild.seen.clone(),
            step: rebuild.step,
            tables: of(rebuild.id),
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
    let done = |leaf: &LeafJournal| leaf.next.map_or(leaf.blocks, |(block, _)| block.min(leaf.blocks));
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn serialize_seconds<S: Serializer>(seconds: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    if *seconds == 0 { serializer.serialize_none() } else { serializer.collect_str(&rfc3339(*seconds)) }
}

/// Seconds since 1970 as `2026-01-31T23:59:59Z`. Days become a date of the Gregorian calendar by counting in eras
/// of 400 years from a 1st of March, so that the leap day comes last.
fn rfc3339(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let days = days + 719_468; // from 0000-03-01
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153; // 0: March
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    let year = year + era * 400;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_shown_in_the_calendar_with_its_leap_days() {
        let check = |seconds: i64, expect: &str| assert_eq!(rfc3339(seconds), expect);
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_399, "2000-02-28T23:59:59Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(951_868_800, "2000-03-01T00:00:00Z");
        check(1_767_225_599, "2025-12-31T23:59:59Z");
        check(4_107_542_400, "2100-03-01T00:00:00Z"); // 2100 has no leap day
    }

    #[test]
    fn the_status_has_the_names_that_scripts_rely_on() {
        let board = Board::default();
        board.update(|status| {
            status.since = 951_782_400;
            status.position = Some(Position { commit_lsn: Lsn::new(0x1_0000_0010), ordinal: 3 });
            status.show_rebuild(Some(&journal(7)), [table("a", 6), table("b", 7)].iter());
        });
        let shown = serde_json::to_value(board.snapshot()).unwrap();
        for name in [
            "stream",
            "state",
            "waiting_for",
            "position",
            "acknowledged_lsn",
            "lag_bytes",
            "wal_kept_bytes",
            "wal_safe_bytes",
            "seconds_to_loss",
            "slot",
            "sink",
            "rebuild",
            "index_complete",
            "incomplete_topics",
            "last_error",
            "events_total",
            "since",
            "version",
        ] {
            assert!(shown.get(name).is_some(), "`{name}` is missing");
        }
        assert_eq!(shown["since"], "2000-02-29T00:00:00Z");
        assert_eq!(shown["position"], serde_json::json!({ "commit_lsn": "1/10", "ordinal": 3 }));
        assert_eq!(shown["rebuild"]["step"], "tables");
        let expect = serde_json::json!({
            "b": { "step": "chunks", "rows": 9, "read": 4, "updated": 0, "deleted": 0, "equal": 5, "left_to_stream": 0, "blocks_done": 13, "blocks": 30 }
        });
        assert_eq!(shown["rebuild"]["tables"], expect);
        assert_eq!(shown["last_rebuild"]["id"], 6);
    }

    #[test]
    fn a_rebuild_that_ended_keeps_its_counts() {
        let mut status = Status { state: State::Rebuilding, ..Status::default() };
        status.show_rebuild(None, [table("a", 6), table("b", 7)].iter());
        assert_eq!((status.state, status.rebuild.is_none()), (State::Streaming, true));
        let ended = status.last_rebuild.unwrap();
        assert_eq!((ended.id, ended.tables["b"].counts.equal), (7, 5));
    }

    fn journal(id: u64) -> RebuildJournal {
        serde_json::from_value(serde_json::json!({
            "id": id, "reason": "slot_lost", "seen": "", "step": "tables", "tables": ["a", "b"], "begun_at": "0/0", "lost_again": 0
        }))
        .unwrap()
    }

    fn table(topic: &str, rebuild: u64) -> TableJournal {
        let leaf = |next, blocks| LeafJournal { oid: crate::lsn::Oid::new(1), next, blocks };
        TableJournal {
            topic: topic.to_owned(),
            oid: crate::lsn::Oid::new(1),
            schema: "public".to_owned(),
            terms: String::new(),
            name: topic.to_owned(),
            epoch: 1,
            rebuild,
            mode: crate::rebuild::journal::Mode::Differences,
            sweep: true,
            step: TableStep::Chunks,
            fingerprint: String::new(),
            leaves: vec![leaf(None, 10), leaf(Some((3, 1)), 20)],
            fence: 0,
            skip_snapshot: None,
            skip_until: Lsn::INVALID,
            counts: Counts { rows: 9, read: 4, equal: 5, ..Counts::default() },
            planned_again: 0,
            has_incomplete_rows: false,
        }
    }
}
