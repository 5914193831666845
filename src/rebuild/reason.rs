//! Why a rebuild is due, each reason with what was seen.

use std::fmt;

use crate::lsn::Lsn;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing was ever delivered: the initial load.
    FirstStart,
    SlotMissing,
    /// Invalidated; `why` is the server's word.
    SlotLost {
        why: String,
    },
    /// The slot begins behind our position: dropped and made again, or advanced, by someone else.
    Gap {
        recorded: Lsn,
        confirmed: Lsn,
    },
    /// The server left our timeline before our position.
    TimelineDiverged {
        recorded: Lsn,
        switched: Lsn,
        timeline: u32,
    },
    /// The same timeline ends before our position.
    ServerWentBack {
        recorded: Lsn,
        flushed: Lsn,
    },
    /// Another publication, database, slot or start options than the position was counted with.
    StreamChanged {
        what: String,
    },
    /// The same place in the stream, other content.
    Conflict {
        what: String,
    },
    /// The sink does not hold what the store says was delivered.
    SinkLostData,
    /// A rebuild whose slot was being replaced when the service stopped.
    Continued {
        reason: String,
    },
}

impl Reason {
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::FirstStart => "first_start",
            Self::SlotMissing => "slot_missing",
            Self::SlotLost { .. } => "slot_lost",
            Self::Gap { .. } => "gap",
            Self::TimelineDiverged { .. } => "timeline_diverged",
            Self::ServerWentBack { .. } => "server_went_back",
            Self::StreamChanged { .. } => "stream_changed",
            Self::Conflict { .. } => "conflict",
            Self::SinkLostData => "sink_lost_data",
            Self::Continued { reason } => reason,
        }
    }

    /// Whether a slot that is there and usable has to be replaced: what it would send is not what follows our position,
    /// or would repeat what subscribers have.
    #[must_use]
    pub fn replaces_slot(&self) -> bool {
        match self {
            Self::SlotLost { .. }
            | Self::TimelineDiverged { .. }
            | Self::ServerWentBack { .. }
            | Self::StreamChanged { .. }
            | Self::Conflict { .. }
            | Self::Continued { .. } => true,
            Self::FirstStart | Self::SlotMissing | Self::Gap { .. } | Self::SinkLostData => false,
        }
    }

    /// Whether it needs `rebuild.automatic` and counts against `rebuild.max_per_hour`.
    #[must_use]
    pub fn is_automatic(&self) -> bool {
        !matches!(self, Self::FirstStart | Self::Continued { .. })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstStart => f.write_str("nothing was delivered before"),
            Self::SlotMissing => f.write_str("the replication slot is gone"),
            Self::SlotLost { why } => write!(f, "the replication slot was invalidated ({why})"),
            Self::Gap { recorded, confirmed } => {
                write!(f, "the slot begins at {confirmed}, past {recorded} where delivery stood: someone else made or advanced it")
            }
            Self::TimelineDiverged { recorded, switched, timeline } => {
                write!(f, "the server went over to timeline {timeline} at {switched}, before {recorded} where delivery stood")
            }
            Self::ServerWentBack { recorded, flushed } => {
                write!(f, "the server's log ends at {flushed}, before {recorded} where delivery stood")
            }
            Self::StreamChanged { what } => f.write_str(what),
            Self::Conflict { what } => f.write_str(what),
            Self::SinkLostData => f.write_str("the sink does not hold what was delivered"),
            Self::Continued { reason } => write!(f, "a rebuild ({reason}) was interrupted while its slot was made"),
        }
    }
}
