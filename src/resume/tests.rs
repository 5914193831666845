//! Every combination of what can be seen against one list: what is named first wins, nothing else matters.

use super::*;
use crate::lsn::Xid;
use crate::progress::{Counted, Split};
use crate::rebuild::journal::RebuildJournal;
use crate::sink::example;

/// The findings, the one that decides first. `resume` is what is left.
const PRECEDENCE: [&str; 19] = [
    "standby",
    "wal_level",
    "foreign_slot",
    "other_system",
    "older_timeline",
    "no_publication",
    "sink_lost_data",
    "first_start",
    "source_accepted",
    "continued",
    "database_replaced",
    "publication_replaced",
    "stream_changed",
    "timeline_diverged",
    "server_went_back",
    "slot_missing",
    "slot_lost",
    "gap",
    "resume",
];

/// Everything in order, delivery at 0/1000 on timeline 2.
#[derive(Clone)]
struct World {
    system: System,
    slot: SlotSeen,
    recorded: Option<Progress>,
    publication: bool,
    sink_lost: bool,
    store: StoreSeen,
    accept_source: bool,
    findings: Vec<&'static str>,
}

type Change = (&'static str, fn(&mut World));

fn world() -> World {
    let mut recorded = example::progress(1);
    recorded.system_identifier = "42".to_owned();
    recorded.timeline = 2;
    recorded.end_lsn = Lsn::new(0x1000);
    World {
        system: System {
            system_identifier: 42,
            timeline: 2,
            timelines: vec![(Lsn::INVALID, 1), (Lsn::new(0x500), 2)],
            flush_lsn: Lsn::new(0x2000),
            version: 150_000,
            database: "shop".to_owned(),
            database_oid: 5,
            in_recovery: false,
            wal_level: "logical".to_owned(),
            wal_segment_size: 1 << 24,
            wal_block_size: 8192,
            block_size: 8192,
            wal_sender_timeout_ms: 60_000,
            started: "now".to_owned(),
        },
        slot: SlotSeen::Present(slot()),
        recorded: Some(recorded),
        publication: true,
        sink_lost: false,
        store: StoreSeen::SameBatch,
        accept_source: false,
        findings: Vec::new(),
    }
}

fn slot() -> Slot {
    Slot {
        plugin: "pgoutput".to_owned(),
        database: "shop".to_owned(),
        temporary: false,
        synced: false,
        two_phase: false,
        confirmed_flush_lsn: Some(Lsn::new(0x1000)),
        restart_lsn: Some(Lsn::new(0x900)),
        wal_status: "reserved".to_owned(),
        safe_wal_size: None,
        invalidation_reason: None,
        active_pid: None,
        kept_bytes: 0,
        lag_bytes: 0,
    }
}

impl World {
    fn decide(&self) -> Decision {
        let publication = Publication { oid: 16_400, all_tables: false, insert: true, update: true, delete: true, truncate: true };
        decide(&Seen {
            slot: &self.slot,
            slot_name: "walgate_shop",
            system: &self.system,
            publication: self.publication.then_some(&publication),
            publication_name: "walgate_shop",
            recorded: self.recorded.as_ref(),
            store: self.store,
            sink_lost: self.sink_lost,
            fingerprint: &example::progress(1).fingerprint,
            accept_source: self.accept_source,
        })
    }

    fn change_slot(&mut self, change: impl FnOnce(&mut Slot)) {
        let mut slot = slot();
        change(&mut slot);
        self.slot = SlotSeen::Present(slot);
    }

    fn record(&mut self, change: impl FnOnce(&mut Progress)) {
        if let Some(recorded) = &mut self.recorded {
            change(recorded);
        }
    }

    fn history(&mut self, timelines: &[(u64, u32)]) {
        self.system.timelines = timelines.iter().map(|(first, timeline)| (Lsn::new(*first), *timeline)).collect();
        self.system.timeline = timelines.last().unwrap().1;
    }
}

fn name(decision: &Decision) -> &'static str {
    match decision {
        Decision::Resume(_) => "resume",
        Decision::Rebuild(reason) => reason.name(),
        Decision::Refuse(refusal) => match refusal {
            Refusal::NoPublication { .. } => "no_publication",
            Refusal::Standby => "standby",
            Refusal::WalLevel { .. } => "wal_level",
            Refusal::ForeignSlot { .. } => "foreign_slot",
            Refusal::OtherSystem { .. } => "other_system",
            Refusal::OlderTimeline { .. } => "older_timeline",
            Refusal::RecordVersion { .. }
            | Refusal::OtherStream { .. }
            | Refusal::NotAutomatic { .. }
            | Refusal::TooManyRebuilds { .. }
            | Refusal::Conflict { .. }
            | Refusal::MayNotCreate { .. } => panic!("not of this decision: {refusal}"),
        },
    }
}

const NOTHING: Change = ("resume", |_| ());

/// Of each group one alternative holds. The record comes first: findings about it need one.
fn groups() -> Vec<Vec<Change>> {
    vec![
        vec![
            NOTHING,
            ("first_start", |world| world.recorded = None),
            ("sink_lost_data", |world| {
                world.recorded = None;
                world.sink_lost = true;
            }),
        ],
        vec![NOTHING, ("no_publication", |world| world.publication = false)],
        vec![NOTHING, ("standby", |world| world.system.in_recovery = true)],
        vec![NOTHING, ("wal_level", |world| world.system.wal_level = "replica".to_owned())],
        vec![
            NOTHING,
            ("resume", |world| world.change_slot(|slot| slot.confirmed_flush_lsn = Some(Lsn::new(0x800)))),
            ("resume", |world| world.change_slot(|slot| slot.confirmed_flush_lsn = None)),
            ("resume", |world| world.change_slot(|slot| slot.wal_status = "unreserved".to_owned())),
            ("slot_missing", |world| world.slot = SlotSeen::Missing),
            ("slot_lost", |world| world.change_slot(|slot| slot.wal_status = "lost".to_owned())),
            ("slot_lost", |world| world.change_slot(|slot| slot.invalidation_reason = Some("idle_timeout".to_owned()))),
            ("gap", |world| world.change_slot(|slot| slot.confirmed_flush_lsn = Some(Lsn::new(0x1001)))),
            ("foreign_slot", |world| world.change_slot(|slot| slot.plugin = "test_decoding".to_owned())),
            ("foreign_slot", |world| world.change_slot(|slot| slot.plugin = String::new())),
            ("foreign_slot", |world| world.change_slot(|slot| slot.temporary = true)),
            ("foreign_slot", |world| world.change_slot(|slot| slot.synced = true)),
            ("foreign_slot", |world| world.change_slot(|slot| slot.two_phase = true)),
            ("foreign_slot", |world| {
                world.change_slot(|slot| {
                    slot.database = "other".to_owned();
                    slot.wal_status = "lost".to_owned();
                });
            }),
        ],
        vec![NOTHING, ("other_system", |world| world.system.system_identifier = 43)],
        vec![
            NOTHING,
            ("resume", |world| world.history(&[(0, 1), (0x500, 2), (0x1000, 3)])),
            ("resume", |world| world.history(&[(0, 1), (0x500, 2), (0x1800, 3), (0x1900, 4)])),
            ("timeline_diverged", |world| world.history(&[(0, 1), (0x500, 2), (0xFFF, 3)])),
            ("timeline_diverged", |world| world.history(&[(0, 1), (0x500, 2), (0xFFF, 3), (0x1900, 4)])),
            ("timeline_diverged", |world| world.history(&[(0, 1), (0x1800, 3)])),
            ("older_timeline", |world| world.history(&[(0, 1)])),
        ],
        vec![
            NOTHING,
            ("database_replaced", |world| world.record(|recorded| recorded.fingerprint.database = 6)),
            ("publication_replaced", |world| {
                world.record(|recorded| recorded.fingerprint.publications = vec![(1, "walgate_shop".to_owned())]);
            }),
            ("stream_changed", |world| world.record(|recorded| recorded.fingerprint.slot = "earlier".to_owned())),
            ("stream_changed", |world| world.record(|recorded| recorded.fingerprint.options = "proto_version '2'".to_owned())),
        ],
        vec![
            NOTHING,
            ("continued", |world| world.record(|recorded| recorded.rebuild = Some(rebuild(RebuildStep::Noted)))),
            ("resume", |world| world.record(|recorded| recorded.rebuild = Some(rebuild(RebuildStep::Tables)))),
        ],
        vec![NOTHING, ("server_went_back", |world| world.system.flush_lsn = Lsn::new(0xFFF))],
        vec![NOTHING, ("resume", |world| world.store = StoreSeen::Empty), ("resume", |world| world.store = StoreSeen::OtherBatch)],
        vec![NOTHING, ("resume", |world| world.accept_source = true)],
    ]
}

fn rebuild(step: RebuildStep) -> RebuildJournal {
    RebuildJournal {
        id: 1,
        reason: "slot_lost".to_owned(),
        seen: String::new(),
        step,
        tables: Vec::new(),
        begun_at: Lsn::INVALID,
        lost_again: 0,
    }
}

/// What the list says of the findings.
fn expected(world: &World) -> &'static str {
    const WITHOUT_A_RECORD: [&str; 6] = ["no_publication", "standby", "wal_level", "foreign_slot", "sink_lost_data", "first_start"];
    let found = |finding: &&str| *finding == "resume" || world.findings.contains(finding);
    let accepted = |finding: &'static str| match finding {
        "other_system" | "older_timeline" if world.accept_source => "source_accepted",
        finding => finding,
    };
    let rank = |finding: &&str| PRECEDENCE.iter().position(|name| name == finding);
    let holds = PRECEDENCE.into_iter().filter(found).filter(|finding| world.recorded.is_some() || WITHOUT_A_RECORD.contains(finding));
    holds.map(accepted).min_by_key(rank).unwrap()
}

fn every_combination(world: &World, groups: &[Vec<Change>], check: &mut impl FnMut(&World)) {
    let Some((alternatives, rest)) = groups.split_first() else { return check(world) };
    for (finding, change) in alternatives {
        let mut changed = world.clone();
        change(&mut changed);
        changed.findings.push(finding);
        every_combination(&changed, rest, check);
    }
}

#[test]
fn every_combination_is_decided_by_what_comes_first() {
    let mut combinations = 0;
    every_combination(&world(), &groups(), &mut |world| {
        combinations += 1;
        let decision = world.decide();
        assert_eq!(name(&decision), expected(world), "{:?}: {decision:?}", world.findings);
        if let Decision::Resume(lsn) = decision {
            assert_eq!(lsn, Lsn::new(0x1000), "{:?}", world.findings);
        }
    });
    assert_eq!(combinations, groups().iter().map(Vec::len).product::<usize>());
}

#[test]
fn a_part_of_a_transaction_beyond_the_switch_diverges_though_the_end_lsn_lies_before_it() {
    let check = |commit_lsn: u64, expect: &str| {
        let mut world = world();
        world.history(&[(0, 1), (0x500, 2), (0x1100, 3)]);
        let split = Split {
            commit_lsn: Lsn::new(commit_lsn),
            xid: Xid::new(9),
            ordinals: 5,
            digest: String::new(),
            deleted: 0,
            counted: Counted::default(),
        };
        world.record(|recorded| recorded.split = Some(split));
        assert_eq!(name(&world.decide()), expect);
    };
    check(0x10FF, "resume");
    check(0x1100, "timeline_diverged");
}

#[test]
fn a_message_that_the_log_does_not_hold_means_that_the_server_went_back() {
    let check = |message_lsn: u64, expect: &str| {
        let mut world = world();
        world.record(|recorded| recorded.message_lsn = Lsn::new(message_lsn));
        assert_eq!(name(&world.decide()), expect);
    };
    check(0x1FFF, "resume");
    check(0x2000, "server_went_back");
}

#[test]
fn a_reason_carries_what_was_seen() {
    let decided = |change: fn(&mut World)| {
        let mut world = world();
        change(&mut world);
        world.decide()
    };
    assert_eq!(
        decided(|world| world.change_slot(|slot| slot.confirmed_flush_lsn = Some(Lsn::new(0x1001)))),
        Decision::Rebuild(Reason::Gap { confirmed: Lsn::new(0x1001), recorded: Lsn::new(0x1000) })
    );
    assert_eq!(
        decided(|world| world.history(&[(0, 1), (0x500, 2), (0x900, 4)])),
        Decision::Rebuild(Reason::TimelineDiverged { delivered: Lsn::new(0x1000), from: 2, switched: Some(Lsn::new(0x900)), to: 4 })
    );
    assert_eq!(
        decided(|world| world.change_slot(|slot| slot.invalidation_reason = Some("wal_removed".to_owned()))),
        Decision::Rebuild(Reason::SlotLost { why: "wal_removed".to_owned() })
    );
}

#[test]
fn a_missing_publication_is_refused_with_the_statement_that_makes_it() {
    let mut world = world();
    world.publication = false;
    let Decision::Refuse(refusal) = world.decide() else { panic!("not refused") };
    assert!(refusal.to_string().contains("CREATE PUBLICATION \"walgate_shop\" FOR TABLE"), "{refusal}");
}
