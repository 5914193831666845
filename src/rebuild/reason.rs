//! Why a rebuild is due: each reason by name, with what was seen, and what it means for the slot and the row index.

use std::fmt;

use crate::lsn::Lsn;

/// Why subscribers have to be brought back to the state of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing was ever delivered: the initial load.
    FirstStart,
    SlotMissing,
    /// The server gave the slot up; `why` is its word for it.
    SlotLost {
        why: String,
    },
    /// The slot sends nothing before `confirmed`, delivery stood at `recorded`: what lies between is lost.
    Gap {
        confirmed: Lsn,
        recorded: Lsn,
    },
    /// Delivery went beyond the point at which the server left the timeline that it came from.
    TimelineDiverged {
        delivered: Lsn,
        from: u32,
        /// `None`: the server was never on that timeline.
        switched: Option<Lsn>,
        to: u32,
    },
    /// The server's log ends before what it sent.
    ServerWentBack {
        delivered: Lsn,
        flushed: Lsn,
    },
    /// Another publication than the position was counted with, of the same name or not.
    PublicationReplaced {
        recorded: Vec<(u32, String)>,
        found: Vec<(u32, String)>,
    },
    /// Another database than the position was counted in, by oid.
    DatabaseReplaced {
        recorded: u32,
        found: u32,
    },
    /// Another slot, or other options of `START_REPLICATION`.
    StreamChanged {
        what: Changed,
    },
    /// A person accepted a server that delivery did not come from.
    SourceAccepted {
        recorded: Source,
        found: Source,
    },
    /// The same place in the stream, other content.
    Conflict {
        commit_lsn: Lsn,
        why: String,
    },
    /// The sink holds nothing, and the store knows of deliveries.
    SinkLostData,
    /// A rebuild for this reason (its name) was noted, and its slot perhaps not replaced yet.
    Continued {
        reason: String,
    },
    /// A person asked for it.
    Operator,
    /// The publication carries a table that was not read yet.
    TableAdded {
        table: String,
    },
    /// The row index does not know all rows of the table that subscribers hold.
    IndexIncomplete {
        table: String,
    },
}

/// What is not as it was in the way the stream is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Slot { recorded: String, found: String },
    Options { recorded: String, found: String },
}

/// Which server: its system identifier and timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub system_identifier: String,
    pub timeline: u32,
}

/// What a rebuild does about the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotFate {
    /// Use it where it is usable, with a fence; make it where it is missing or lost.
    Keep,
    /// Drop it, where there is one, and make a new one.
    Replace,
}

impl Reason {
    /// The name under which it is journaled and shown.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::FirstStart => "first_start",
            Self::SlotMissing => "slot_missing",
            Self::SlotLost { .. } => "slot_lost",
            Self::Gap { .. } => "gap",
            Self::TimelineDiverged { .. } => "timeline_diverged",
            Self::ServerWentBack { .. } => "server_went_back",
            Self::PublicationReplaced { .. } => "publication_replaced",
            Self::DatabaseReplaced { .. } => "database_replaced",
            Self::StreamChanged { .. } => "stream_changed",
            Self::SourceAccepted { .. } => "source_accepted",
            Self::Conflict { .. } => "conflict",
            Self::SinkLostData => "sink_lost_data",
            Self::Continued { .. } => "continued",
            Self::Operator => "operator",
            Self::TableAdded { .. } => "table_added",
            Self::IndexIncomplete { .. } => "index_incomplete",
        }
    }

    /// A slot is replaced where what it would send does not follow what was delivered, or repeats it in another count.
    #[must_use]
    pub fn slot(&self) -> SlotFate {
        match self {
            Self::SlotLost { .. }
            | Self::TimelineDiverged { .. }
            | Self::ServerWentBack { .. }
            | Self::PublicationReplaced { .. }
            | Self::DatabaseReplaced { .. }
            | Self::StreamChanged { .. }
            | Self::SourceAccepted { .. }
            | Self::Conflict { .. }
            | Self::Continued { .. } => SlotFate::Replace,
            Self::FirstStart
            | Self::SlotMissing
            | Self::Gap { .. }
            | Self::SinkLostData
            | Self::Operator
            | Self::TableAdded { .. }
            | Self::IndexIncomplete { .. } => SlotFate::Keep,
        }
    }

    /// Whether nobody asked for it: it needs `rebuild.automatic` and counts against `rebuild.max_per_hour`. One that is
    /// continued was counted when it was noted.
    #[must_use]
    pub fn automatic(&self) -> bool {
        match self {
            Self::SlotMissing
            | Self::SlotLost { .. }
            | Self::Gap { .. }
            | Self::TimelineDiverged { .. }
            | Self::ServerWentBack { .. }
            | Self::PublicationReplaced { .. }
            | Self::DatabaseReplaced { .. }
            | Self::StreamChanged { .. }
            | Self::SourceAccepted { .. }
            | Self::Conflict { .. }
            | Self::SinkLostData => true,
            Self::FirstStart | Self::Continued { .. } | Self::Operator | Self::TableAdded { .. } | Self::IndexIncomplete { .. } => false,
        }
    }

    /// Whether subscribers still hold what the row index says they hold.
    #[must_use]
    pub fn trusts_index(&self) -> bool {
        match self {
            Self::SinkLostData => false,
            Self::Continued { reason } => reason != Self::SinkLostData.name(),
            Self::FirstStart
            | Self::SlotMissing
            | Self::SlotLost { .. }
            | Self::Gap { .. }
            | Self::TimelineDiverged { .. }
            | Self::ServerWentBack { .. }
            | Self::PublicationReplaced { .. }
            | Self::DatabaseReplaced { .. }
            | Self::StreamChanged { .. }
            | Self::SourceAccepted { .. }
            | Self::Conflict { .. }
            | Self::Operator
            | Self::TableAdded { .. }
            | Self::IndexIncomplete { .. } => true,
        }
    }
}

/// What was seen, for people.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstStart => f.write_str("nothing was delivered before"),
            Self::SlotMissing => f.write_str("the replication slot is gone"),
            Self::SlotLost { why } => write!(f, "the server invalidated the replication slot (`{why}`)"),
            Self::Gap { confirmed, recorded } => {
                write!(f, "the slot begins at {confirmed}, beyond {recorded} where delivery stood: someone else made or advanced it")
            }
            Self::TimelineDiverged { delivered, from, switched: Some(switched), to } => {
                write!(f, "delivery reached {delivered} on timeline {from}, which the server, now on timeline {to}, left at {switched}")
            }
            Self::TimelineDiverged { delivered, from, switched: None, to } => {
                write!(f, "delivery reached {delivered} on timeline {from}, on which the server, now on timeline {to}, never was")
            }
            Self::ServerWentBack { delivered, flushed } => {
                write!(f, "the server's log ends at {flushed}, before {delivered} which delivery reached")
            }
            Self::PublicationReplaced { recorded, found } => {
                write!(f, "the publication is {}, it was {}", Publications(found), Publications(recorded))
            }
            Self::DatabaseReplaced { recorded, found } => write!(f, "the database has oid {found}, it had {recorded}: it is another one"),
            Self::StreamChanged { what } => what.fmt(f),
            Self::SourceAccepted { recorded, found } => write!(f, "the server is {found}, delivery so far came from {recorded}: accepted"),
            Self::Conflict { commit_lsn, why } => write!(f, "the transaction at {commit_lsn} is not the one delivered from there: {why}"),
            Self::SinkLostData => f.write_str("the sink holds nothing of what the state folder knows to be delivered"),
            Self::Continued { reason } => write!(f, "a rebuild (`{reason}`) stopped before its slot was known to be the new one"),
            Self::Operator => f.write_str("a person asked for it"),
            Self::TableAdded { table } => write!(f, "the table `{table}` is published and was not read yet"),
            Self::IndexIncomplete { table } => write!(f, "the row index does not hold all rows of `{table}`"),
        }
    }
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot { recorded, found } => {
                write!(f, "the slot is `{found}`, it was `{recorded}`: drop that one, it keeps the server's log")
            }
            Self::Options { recorded, found } => write!(f, "the stream is started with `{found}`, it was with `{recorded}`"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system `{}` on timeline {}", self.system_identifier, self.timeline)
    }
}

struct Publications<'a>(&'a [(u32, String)]);

impl fmt::Display for Publications<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (oid, name)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}`{name}` (oid {oid})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continued_rebuild_trusts_the_index_no_more_than_the_one_it_continues() {
        let continued = |reason: &Reason| Reason::Continued { reason: reason.name().to_owned() };
        assert!(!continued(&Reason::SinkLostData).trusts_index());
        assert!(continued(&Reason::SlotMissing).trusts_index());
    }

    #[test]
    fn a_reason_says_what_was_seen() {
        let check = |reason: Reason, expect: &str| assert_eq!(reason.to_string(), expect);
        check(
            Reason::PublicationReplaced { recorded: vec![(7, "p".to_owned())], found: vec![(8, "p".to_owned()), (9, "q".to_owned())] },
            "the publication is `p` (oid 8), `q` (oid 9), it was `p` (oid 7)",
        );
        check(
            Reason::TimelineDiverged { delivered: Lsn::new(0x501), from: 1, switched: Some(Lsn::new(0x500)), to: 2 },
            "delivery reached 0/501 on timeline 1, which the server, now on timeline 2, left at 0/500",
        );
    }
}
