//! Where to go on when a session begins: one pure decision from what was seen. PostgreSQL does not complain about
//! a position that is wrong, so everything that could make it wrong is looked at here.

use crate::lsn::Lsn;
use crate::postgres::publication::Publication;
use crate::postgres::slot::SlotSeen;
use crate::postgres::system::System;
use crate::progress::{Fingerprint, Progress};
use crate::rebuild::journal::RebuildStep;
use crate::rebuild::reason::Reason;

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub system: &'a System,
    pub publication: Option<&'a Publication>,
    pub publication_name: &'a str,
    pub slot: &'a SlotSeen,
    pub slot_name: &'a str,
    /// The sink's record, or the store's where the sink cannot say.
    pub recorded: Option<&'a Progress>,
    /// The store knows of deliveries that the sink does not hold.
    pub sink_lost: bool,
    pub fingerprint: &'a Fingerprint,
    /// A content conflict ended the session before.
    pub conflict: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Resume(Lsn),
    Rebuild(Reason),
    Refuse(Refusal),
}

/// A person has to decide, or to set something right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the publication `{name}` does not exist: create it (`CREATE PUBLICATION \"{name}\" FOR TABLE …`), or set `source.create` and `source.tables`"
    )]
    NoPublication { name: String },
    #[error("the server is a standby: streaming from a standby is not supported, connect to the primary")]
    Standby,
    #[error("`wal_level` is `{found}`: set it to `logical` in postgresql.conf and restart PostgreSQL")]
    WalLevel { found: String },
    #[error("the slot `{name}` is not ours: it is {what}; name another in `source.slot`")]
    ForeignSlot { name: String, what: String },
    #[error(
        "the server is another system ({found}, delivery so far was from {recorded}): if that is meant, begin with an empty state and events folder"
    )]
    OtherSystem { recorded: String, found: u64 },
    #[error("the server is on timeline {found}, delivery so far came from the later timeline {recorded}: is this an old copy?")]
    OlderTimeline { recorded: u32, found: u32 },
    #[error("the record of another version ({found}) was found: this program reads version {expected}")]
    RecordVersion { found: u32, expected: u32 },
    #[error("the record of stream `{found}` was found where that of `{expected}` should be")]
    OtherStream { found: String, expected: String },
    #[error("a rebuild is due ({reason}), and `rebuild.automatic` is false: run `walgate run --set rebuild.automatic=true` to allow it")]
    NotAutomatic { reason: String },
    #[error(
        "a rebuild is due ({reason}), and {count} began within the last hour: raise `max_slot_wal_keep_size` at the source, or `rebuild.max_per_hour`"
    )]
    TooManyRebuilds { reason: String, count: usize },
    #[error("the stream conflicts with what was delivered ({what}), and `rebuild.on_conflict` is `stop`")]
    Conflict { what: String },
    #[error(
        "the slot `{name}` does not exist and `source.create` is false: create it with `SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')`"
    )]
    MayNotCreate { name: String },
}

/// The decision.
#[must_use]
pub fn decide(seen: &Seen<'_>) -> Decision {
    if let Some(refusal) = refusal(seen) {
        return Decision::Refuse(refusal);
    }
    let Some(recorded) = seen.recorded else {
        return Decision::Rebuild(if seen.sink_lost { Reason::SinkLostData } else { Reason::FirstStart });
    };
    match reason(seen, recorded) {
        Some(reason) => Decision::Rebuild(reason),
        None => Decision::Resume(recorded.end_lsn),
    }
}

fn refusal(seen: &Seen<'_>) -> Option<Refusal> {
    let Seen { system, .. } = seen;
    if seen.publication.is_none() {
        return Some(Refusal::NoPublication { name: seen.publication_name.to_owned() });
    }
    if system.in_recovery {
        return Some(Refusal::Standby);
    }
    if system.wal_level != "logical" {
        return Some(Refusal::WalLevel { found: system.wal_level.clone() });
    }
    if let SlotSeen::Present(slot) = seen.slot {
        let foreign = if slot.plugin.is_empty() {
            Some("a physical slot".to_owned())
        } else if slot.plugin != "pgoutput" {
            Some(format!("of the plugin `{}`", slot.plugin))
        } else if slot.database != system.database {
            Some(format!("of the database `{}`", slot.database))
        } else if slot.temporary {
            Some("temporary".to_owned())
        } else if slot.synced {
            Some("synchronised from another server".to_owned())
        } else if slot.two_phase {
            Some("made for two-phase commits".to_owned())
        } else {
            None
        };
        if let Some(what) = foreign {
            return Some(Refusal::ForeignSlot { name: seen.slot_name.to_owned(), what });
        }
    }
    let recorded = seen.recorded?;
    if recorded.system_identifier != system.system_identifier.to_string() {
        return Some(Refusal::OtherSystem { recorded: recorded.system_identifier.clone(), found: system.system_identifier });
    }
    (recorded.timeline > system.timeline).then_some(Refusal::OlderTimeline { recorded: recorded.timeline, found: system.timeline })
}

fn reason(seen: &Seen<'_>, recorded: &Progress) -> Option<Reason> {
    let Seen { system, .. } = seen;
    if let Some(rebuild) = recorded.rebuild.as_ref().filter(|rebuild| rebuild.step == RebuildStep::Noted) {
        return Some(Reason::Continued { reason: rebuild.reason.clone() });
    }
    if let Some(what) = seen.conflict {
        return Some(Reason::Conflict { what: what.to_owned() });
    }
    if let Some(what) = changed(&recorded.fingerprint, seen.fingerprint) {
        return Some(Reason::StreamChanged { what });
    }
    if recorded.timeline < system.timeline {
        // The end of our timeline is where the one after it begins.
        let switched =
            system.timelines.iter().find(|(_, timeline)| *timeline > recorded.timeline).map_or(Lsn::INVALID, |(first, _)| *first);
        if recorded.end_lsn > switched {
            return Some(Reason::TimelineDiverged { recorded: recorded.end_lsn, switched, timeline: system.timeline });
        }
    }
    if recorded.end_lsn > system.flush_lsn {
        return Some(Reason::ServerWentBack { recorded: recorded.end_lsn, flushed: system.flush_lsn });
    }
    match seen.slot {
        SlotSeen::Missing => Some(Reason::SlotMissing),
        SlotSeen::Present(slot) => match (slot.lost(), slot.confirmed_flush_lsn) {
            (Some(why), _) => Some(Reason::SlotLost { why }),
            (None, Some(confirmed)) if confirmed > recorded.end_lsn => Some(Reason::Gap { recorded: recorded.end_lsn, confirmed }),
            (None, _) => None,
        },
    }
}

fn changed(recorded: &Fingerprint, seen: &Fingerprint) -> Option<String> {
    if recorded.database != seen.database {
        Some("the database was dropped and made again, or is another one".to_owned())
    } else if recorded.publications != seen.publications {
        Some("the publication was dropped and made again, or is another one".to_owned())
    } else if recorded.slot != seen.slot {
        Some(format!("the slot is `{}`, it was `{}`", seen.slot, recorded.slot))
    } else if recorded.options != seen.options {
        Some("the stream is started with other options".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::slot::Slot;
    use crate::rebuild::journal::RebuildJournal;
    use crate::sink::example;

    fn system() -> System {
        System {
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
        }
    }

    fn slot(confirmed: u64) -> Slot {
        Slot {
            plugin: "pgoutput".to_owned(),
            database: "shop".to_owned(),
            temporary: false,
            synced: false,
            two_phase: false,
            confirmed_flush_lsn: Some(Lsn::new(confirmed)),
            restart_lsn: Some(Lsn::new(confirmed)),
            wal_status: "reserved".to_owned(),
            safe_wal_size: None,
            invalidation_reason: None,
            active_pid: None,
            kept_bytes: 0,
        }
    }

    fn fingerprint() -> Fingerprint {
        Fingerprint { database: 5, slot: "s".to_owned(), publications: vec![(7, "p".to_owned())], options: "o".to_owned() }
    }

    /// Everything in order, delivery at 0/1000 on timeline 2.
    struct World {
        system: System,
        slot: SlotSeen,
        recorded: Option<Progress>,
        publication: bool,
        sink_lost: bool,
        conflict: Option<&'static str>,
    }

    fn world() -> World {
        let mut recorded = example::progress(1);
        recorded.system_identifier = "42".to_owned();
        recorded.timeline = 2;
        recorded.end_lsn = Lsn::new(0x1000);
        recorded.fingerprint = fingerprint();
        recorded.rebuild = None;
        World {
            system: system(),
            slot: SlotSeen::Present(slot(0x1000)),
            recorded: Some(recorded),
            publication: true,
            sink_lost: false,
            conflict: None,
        }
    }

    fn decided(change: impl FnOnce(&mut World)) -> Decision {
        let mut world = world();
        change(&mut world);
        let publication = Publication { oid: 7, all_tables: false, insert: true, update: true, delete: true, truncate: true };
        decide(&Seen {
            system: &world.system,
            publication: world.publication.then_some(&publication),
            publication_name: "p",
            slot: &world.slot,
            slot_name: "s",
            recorded: world.recorded.as_ref(),
            sink_lost: world.sink_lost,
            fingerprint: &fingerprint(),
            conflict: world.conflict,
        })
    }

    fn record(world: &mut World) -> &mut Progress {
        world.recorded.as_mut().unwrap()
    }

    fn set_slot(world: &mut World, change: impl FnOnce(&mut Slot)) {
        let mut slot = slot(0x1000);
        change(&mut slot);
        world.slot = SlotSeen::Present(slot);
    }

    #[test]
    fn delivery_goes_on_where_it_stood_when_everything_is_in_order() {
        assert_eq!(decided(|_| ()), Decision::Resume(Lsn::new(0x1000)));
        assert_eq!(
            decided(|world| set_slot(world, |slot| slot.confirmed_flush_lsn = Some(Lsn::new(0x500)))),
            Decision::Resume(Lsn::new(0x1000))
        );
        assert_eq!(decided(|world| set_slot(world, |slot| slot.wal_status = "unreserved".to_owned())), Decision::Resume(Lsn::new(0x1000)));
        let clean_fail_over = |world: &mut World| {
            record(world).timeline = 1;
            record(world).end_lsn = Lsn::new(0x500);
            set_slot(world, |slot| slot.confirmed_flush_lsn = Some(Lsn::new(0x400)));
        };
        assert_eq!(decided(clean_fail_over), Decision::Resume(Lsn::new(0x500)));
    }

    #[test]
    fn each_reason_for_a_rebuild_is_seen() {
        let check = |change: fn(&mut World), name: &str| match decided(change) {
            Decision::Rebuild(reason) => assert_eq!(reason.name(), name),
            other => panic!("{name}: {other:?}"),
        };
        check(|world| world.recorded = None, "first_start");
        check(
            |world| {
                world.recorded = None;
                world.slot = SlotSeen::Missing;
            },
            "first_start",
        );
        check(
            |world| {
                world.recorded = None;
                world.sink_lost = true;
            },
            "sink_lost_data",
        );
        check(|world| world.slot = SlotSeen::Missing, "slot_missing");
        check(|world| set_slot(world, |slot| slot.wal_status = "lost".to_owned()), "slot_lost");
        check(|world| set_slot(world, |slot| slot.invalidation_reason = Some("idle_timeout".to_owned())), "slot_lost");
        check(|world| set_slot(world, |slot| slot.confirmed_flush_lsn = Some(Lsn::new(0x1001))), "gap");
        check(
            |world| {
                record(world).timeline = 1;
                record(world).end_lsn = Lsn::new(0x501);
            },
            "timeline_diverged",
        );
        check(|world| world.system.flush_lsn = Lsn::new(0xFFF), "server_went_back");
        check(|world| world.conflict = Some("seen"), "conflict");
        check(|world| record(world).fingerprint.publications = vec![(8, "p".to_owned())], "stream_changed");
        check(|world| record(world).fingerprint.database = 6, "stream_changed");
        check(|world| record(world).fingerprint.options = "x".to_owned(), "stream_changed");
        check(
            |world| {
                record(world).rebuild = Some(RebuildJournal {
                    id: 1,
                    reason: "slot_lost".to_owned(),
                    seen: String::new(),
                    step: RebuildStep::Noted,
                    tables: Vec::new(),
                    begun_at: Lsn::INVALID,
                    lost_again: 0,
                });
            },
            "slot_lost",
        );
    }

    #[test]
    fn what_a_person_has_to_decide_is_refused() {
        let check = |change: fn(&mut World), expect: fn(&Refusal) -> bool| match decided(change) {
            Decision::Refuse(refusal) => assert!(expect(&refusal), "{refusal}"),
            other => panic!("{other:?}"),
        };
        check(|world| world.publication = false, |refusal| matches!(refusal, Refusal::NoPublication { .. }));
        check(|world| world.system.in_recovery = true, |refusal| matches!(refusal, Refusal::Standby));
        check(|world| world.system.wal_level = "replica".to_owned(), |refusal| matches!(refusal, Refusal::WalLevel { .. }));
        check(|world| record(world).system_identifier = "43".to_owned(), |refusal| matches!(refusal, Refusal::OtherSystem { .. }));
        check(|world| record(world).timeline = 3, |refusal| matches!(refusal, Refusal::OlderTimeline { .. }));
        let foreign = |refusal: &Refusal| matches!(refusal, Refusal::ForeignSlot { .. });
        check(|world| set_slot(world, |slot| slot.plugin = "test_decoding".to_owned()), foreign);
        check(|world| set_slot(world, |slot| slot.plugin = String::new()), foreign);
        check(|world| set_slot(world, |slot| slot.database = "other".to_owned()), foreign);
        check(|world| set_slot(world, |slot| slot.temporary = true), foreign);
        check(|world| set_slot(world, |slot| slot.synced = true), foreign);
        check(|world| set_slot(world, |slot| slot.two_phase = true), foreign);
    }
}
