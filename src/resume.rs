//! Where to go on when a session begins: one pure decision from what was seen.
//!
//! PostgreSQL does not complain of a position that is wrong: one before the slot's is moved forward, one after it skips
//! what lies between, one beyond the end of the log waits in silence. So whatever could make it wrong is looked at
//! here. Refusals come first: as long as a person has to decide, nothing is dropped and nothing rebuilt.

use crate::lsn::Lsn;
use crate::postgres::publication::{self, Publication};
use crate::postgres::slot::{Slot, SlotSeen};
use crate::postgres::system::System;
use crate::postgres::{quote_identifier, quote_literal};
use crate::progress::{Fingerprint, Progress};
use crate::rebuild::journal::RebuildStep;
use crate::rebuild::reason::{Changed, Reason, Source};

#[cfg(test)]
mod tests;

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub slot: &'a SlotSeen,
    pub slot_name: &'a str,
    pub system: &'a System,
    pub publication: Option<&'a Publication>,
    pub publication_name: &'a str,
    /// The sink's record; the store's where the sink cannot say.
    pub recorded: Option<&'a Progress>,
    /// Never moves the position, which is the sink's word: see [`StoreSeen::knows_what_was_delivered`].
    pub store: StoreSeen,
    /// The sink holds nothing, and the store knows of deliveries.
    pub sink_lost: bool,
    /// Of the stream as it would be started now.
    pub fingerprint: &'a Fingerprint,
    /// A person accepts the server, whichever it is.
    pub accept_source: bool,
}

/// How the store stands to the sink's record once the stage is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreSeen {
    Empty,
    SameBatch,
    /// An older copy, or another's.
    OtherBatch,
}

impl StoreSeen {
    /// Whether the row index and the transactions not yet visible are those of the record. If not, the index is
    /// incomplete, and a fence is due before a chunk is read.
    #[must_use]
    pub fn knows_what_was_delivered(self) -> bool {
        match self {
            Self::SameBatch => true,
            Self::Empty | Self::OtherBatch => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start the stream at this end LSN.
    Resume(Lsn),
    Rebuild(Reason),
    Refuse(Refusal),
}

/// A person has to decide, or to set something right. The text says what was seen and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the publication `{name}` does not exist: run `CREATE PUBLICATION {} FOR TABLE … WITH ({options})`, or set \
         `source.create` and `source.tables`",
        quote_identifier(name)
    )]
    NoPublication { name: String, options: &'static str },
    #[error("the server is a standby: connect to the primary")]
    Standby,
    #[error("`wal_level` is `{found}`: set it to `logical` and restart PostgreSQL")]
    WalLevel { found: String },
    #[error("the slot `{name}` {what}: it is left alone; name another in `source.slot`")]
    ForeignSlot { name: String, what: ForeignSlot },
    #[error(
        "the server is {found}, delivery so far came from {recorded}: correct the address, or begin with an empty state and events folder"
    )]
    OtherSystem { recorded: Source, found: Source },
    #[error(
        "the server is {found}, an older timeline than delivery so far came from ({recorded}): an old primary or an old copy? Correct the \
         address, or begin with an empty state and events folder"
    )]
    OlderTimeline { recorded: Source, found: Source },
    #[error(
        "the progress record has version {found}, this program reads version {expected}: run the program that wrote it, or a later one"
    )]
    RecordVersion { found: u32, expected: u32 },
    #[error("the progress record is that of stream `{found}`, not of `{expected}`: name another place for the events, or correct `stream`")]
    OtherStream { found: String, expected: String },
    #[error("a rebuild is due ({reason}), and `rebuild.automatic` is off: run `walgate rebuild`")]
    NotAutomatic { reason: Reason },
    #[error(
        "a rebuild is due ({reason}), the {limit} that `rebuild.max_per_hour` allows have begun within the hour: raise `max_slot_wal_keep_size` \
         at the source, then run `walgate rebuild`"
    )]
    TooManyRebuilds { reason: Reason, limit: u32 },
    #[error("{reason}; `rebuild.on_conflict` is `stop`: find out what changed at the source, then run `walgate rebuild`")]
    Conflict { reason: Reason },
    #[error(
        "the slot `{name}` does not exist or is lost, and `source.create` is off: run `SELECT pg_create_logical_replication_slot({}, 'pgoutput')`, \
         after dropping the lost one",
        quote_literal(name)
    )]
    MayNotCreate { name: String },
}

/// Why a slot of the name is not ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignSlot {
    #[error("is a physical slot")]
    Physical,
    #[error("is of the plugin `{found}`, not `pgoutput`")]
    Plugin { found: String },
    #[error("is of the database `{found}`, not `{expected}`")]
    Database { found: String, expected: String },
    #[error("is temporary")]
    Temporary,
    #[error("is synchronised from a primary")]
    Synced,
    #[error("is made for two-phase commit")]
    TwoPhase,
}

/// The decision.
#[must_use]
pub fn decide(seen: &Seen<'_>) -> Decision {
    if let Some(refusal) = refusal(seen) {
        return Decision::Refuse(refusal);
    }
    match seen.recorded {
        _ if seen.sink_lost => Decision::Rebuild(Reason::SinkLostData),
        None => Decision::Rebuild(Reason::FirstStart),
        Some(recorded) => reason(seen, recorded).map_or(Decision::Resume(recorded.end_lsn), Decision::Rebuild),
    }
}

fn refusal(seen: &Seen<'_>) -> Option<Refusal> {
    let system = seen.system;
    if system.in_recovery {
        return Some(Refusal::Standby);
    }
    if system.wal_level != "logical" {
        return Some(Refusal::WalLevel { found: system.wal_level.clone() });
    }
    if let SlotSeen::Present(slot) = seen.slot
        && let Some(what) = foreign_slot(slot, &system.database)
    {
        return Some(Refusal::ForeignSlot { name: seen.slot_name.to_owned(), what });
    }
    let other = seen.recorded.and_then(|recorded| other_source(system, recorded)).filter(|_| !seen.accept_source);
    // Last: what is missing at another system is no matter.
    other.or_else(|| {
        let missing = || Refusal::NoPublication { name: seen.publication_name.to_owned(), options: publication::options(system.version) };
        seen.publication.is_none().then(missing)
    })
}

fn foreign_slot(slot: &Slot, database: &str) -> Option<ForeignSlot> {
    if slot.plugin.is_empty() {
        Some(ForeignSlot::Physical)
    } else if slot.plugin != "pgoutput" {
        Some(ForeignSlot::Plugin { found: slot.plugin.clone() })
    } else if slot.database != database {
        Some(ForeignSlot::Database { found: slot.database.clone(), expected: database.to_owned() })
    } else if slot.temporary {
        Some(ForeignSlot::Temporary)
    } else if slot.synced {
        Some(ForeignSlot::Synced)
    } else {
        slot.two_phase.then_some(ForeignSlot::TwoPhase)
    }
}

/// Whether the server cannot be the one that delivery came from, or what became of it.
fn other_source(system: &System, recorded: &Progress) -> Option<Refusal> {
    let (before, found) = (recorded_source(recorded), found_source(system));
    if before.system_identifier == found.system_identifier {
        (before.timeline > found.timeline).then_some(Refusal::OlderTimeline { recorded: before, found })
    } else {
        Some(Refusal::OtherSystem { recorded: before, found })
    }
}

fn recorded_source(recorded: &Progress) -> Source {
    Source { system_identifier: recorded.system_identifier.clone(), timeline: recorded.timeline }
}

fn found_source(system: &System) -> Source {
    Source { system_identifier: system.system_identifier.to_string(), timeline: system.timeline }
}

/// Why the stream cannot go on from `recorded`. The first that holds is named: one rebuild answers all.
fn reason(seen: &Seen<'_>, recorded: &Progress) -> Option<Reason> {
    let system = seen.system;
    if other_source(system, recorded).is_some() {
        return Some(Reason::SourceAccepted { recorded: recorded_source(recorded), found: found_source(system) });
    }
    // Before the fingerprint: a rebuild because of another one was noted beside the old one, and is counted once.
    if let Some(rebuild) = recorded.rebuild.as_ref().filter(|rebuild| rebuild.step == RebuildStep::Noted) {
        return Some(Reason::Continued { reason: rebuild.reason.clone() });
    }
    if let Some(reason) = other_stream(&recorded.fingerprint, seen.fingerprint) {
        return Some(reason);
    }
    if recorded.timeline < system.timeline {
        let switched = switch_from(&system.timelines, recorded.timeline);
        if switched.is_none_or(|switched| reaches_beyond(recorded, switched)) {
            return Some(Reason::TimelineDiverged {
                delivered: delivered(recorded),
                from: recorded.timeline,
                switched,
                to: system.timeline,
            });
        }
    }
    if reaches_beyond(recorded, system.flush_lsn) {
        return Some(Reason::ServerWentBack { delivered: delivered(recorded), flushed: system.flush_lsn });
    }
    match seen.slot {
        SlotSeen::Missing => Some(Reason::SlotMissing),
        SlotSeen::Present(slot) => match (slot.lost(), slot.confirmed_flush_lsn) {
            (Some(why), _) => Some(Reason::SlotLost { why }),
            (None, Some(confirmed)) if confirmed > recorded.end_lsn => Some(Reason::Gap { confirmed, recorded: recorded.end_lsn }),
            // No position: it is still being made by someone, who has it in use; the start of the stream says so.
            (None, _) => None,
        },
    }
}

fn other_stream(recorded: &Fingerprint, found: &Fingerprint) -> Option<Reason> {
    if recorded.database != found.database {
        Some(Reason::DatabaseReplaced { recorded: recorded.database, found: found.database })
    } else if recorded.publications != found.publications {
        Some(Reason::PublicationReplaced { recorded: recorded.publications.clone(), found: found.publications.clone() })
    } else if recorded.slot != found.slot {
        Some(Reason::StreamChanged { what: Changed::Slot { recorded: recorded.slot.clone(), found: found.slot.clone() } })
    } else if recorded.options != found.options {
        Some(Reason::StreamChanged { what: Changed::Options { recorded: recorded.options.clone(), found: found.options.clone() } })
    } else {
        None
    }
}

/// Where the server left `timeline`: the first LSN of the timeline after it. `None`: its history does not have it,
/// so that nothing says how much of what came from there it shares.
fn switch_from(timelines: &[(Lsn, u32)], timeline: u32) -> Option<Lsn> {
    let mut after = timelines.iter().skip_while(|(_, own)| *own != timeline).skip(1);
    after.next().map(|(first, _)| *first)
}

/// Whether anything delivered is not in a log that ends at `end`, exclusive. A transaction delivered in part and a
/// message outside transactions can lie beyond the end LSN; both are known by where their record begins.
fn reaches_beyond(recorded: &Progress, end: Lsn) -> bool {
    let split = recorded.split.as_ref().map(|split| split.commit_lsn);
    let message = Some(recorded.message_lsn).filter(|lsn| *lsn != Lsn::INVALID);
    recorded.end_lsn > end || split.into_iter().chain(message).any(|begins| begins >= end)
}

/// The furthest LSN of which something is delivered.
fn delivered(recorded: &Progress) -> Lsn {
    let split = recorded.split.as_ref().map_or(Lsn::INVALID, |split| split.commit_lsn);
    recorded.end_lsn.max(split).max(recorded.message_lsn)
}
