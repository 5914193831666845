//! What follows from an error: one table, every case by name.

use std::time::Duration;

use crate::config::Retry;
use crate::exit::Exit;
use crate::pipeline::error::SessionError;
use crate::postgres::SourceError;
use crate::sink::SinkError;

/// What to do after a session ended with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Begin another session after a pause: it looks at slot, publication, sink and store again. When the budget is
    /// spent, stop with this status.
    Retry(Exit),
    /// Begin another session and rebuild by it (or stop, by `rebuild.on_conflict`).
    Conflict,
    /// Stop with this status and advice.
    Stop(Exit, &'static str),
}

/// The table.
#[must_use]
pub fn action(error: &SessionError) -> Action {
    match error {
        SessionError::Source(source) => source_action(source),
        SessionError::Sink(sink) => sink_action(sink),
        SessionError::Store(_) => Action::Stop(
            Exit::Store,
            "the sink's record is the truth: if the state folder is damaged, move it away and start again; nothing is lost",
        ),
        SessionError::Decode(_)
        | SessionError::Row(_)
        | SessionError::Key(_)
        | SessionError::UnknownRelation { .. }
        | SessionError::OutOfTurn { .. } => Action::Retry(Exit::Source),
        SessionError::EventTooLarge(_) => Action::Stop(Exit::Refused, "raise `sink.event_bytes_max`"),
        SessionError::Conflict(_) => Action::Conflict,
        SessionError::Refused(_) => Action::Stop(Exit::Refused, "see above"),
        SessionError::SlotChanged | SessionError::InUse | SessionError::PlannedTooOften { .. } => Action::Retry(Exit::Source),
        SessionError::KeylessTooLarge { .. } => {
            Action::Stop(Exit::Refused, "give the table a primary key, or set `initial = \"none\"` for it")
        }
        SessionError::SinkGone => Action::Stop(Exit::Sink, "start again: what was delivered is known from the sink's record"),
        SessionError::Randomness(_) => Action::Stop(Exit::Store, "look at the system's random source"),
        SessionError::DeliveryEnded => Action::Retry(Exit::Sink),
        SessionError::Thread(_) => Action::Stop(Exit::Store, "raise the limits of processes and memory"),
    }
}

fn source_action(error: &SourceError) -> Action {
    match error {
        SourceError::MessageTooLarge { .. } => Action::Stop(Exit::Refused, "raise `sink.event_bytes_max`"),
        // Passwords are rotated and servers restarted: all of it may pass, within the budget.
        SourceError::Connect { .. }
        | SourceError::ConnectTimeout { .. }
        | SourceError::Authentication { .. }
        | SourceError::Sql { .. }
        | SourceError::Server { .. }
        | SourceError::Io { .. }
        | SourceError::Closed
        | SourceError::StreamEnded
        | SourceError::Silent { .. }
        | SourceError::Protocol { .. }
        | SourceError::Missing { .. } => Action::Retry(Exit::Source),
    }
}

fn sink_action(error: &SinkError) -> Action {
    match error {
        SinkError::Io { .. } | SinkError::NotOpen => Action::Retry(Exit::Sink),
        SinkError::Locked { .. } => Action::Stop(Exit::Sink, "stop the other process, or name another folder"),
        SinkError::OtherStream { .. } => Action::Stop(Exit::Sink, "name another folder in `sink.file.directory`"),
        SinkError::Damaged { .. } | SinkError::LostData { .. } => {
            Action::Stop(Exit::Sink, "restore the events folder, or move it away: then everything is sent again into a new one")
        }
        SinkError::Poisoned { .. } => Action::Stop(Exit::Sink, "the disk failed to keep what was written: look at it, then start again"),
        SinkError::Closed => Action::Stop(Exit::Sink, "start it again with a reader"),
    }
}

/// Pauses that double up to a limit, with jitter, until the budget is spent.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    retry: Retry,
    next: Duration,
    spent: Duration,
}

impl Backoff {
    #[must_use]
    pub fn new(retry: Retry) -> Self {
        Self { retry, next: retry.backoff_min, spent: Duration::ZERO }
    }

    /// The pause before the next attempt, after one that took `attempt`; `None` when the budget is spent. `random`
    /// spreads it between half and the whole.
    pub fn pause(&mut self, attempt: Duration, random: u64) -> Option<Duration> {
        self.spent += attempt;
        if self.spent >= self.retry.total {
            return None;
        }
        let half = self.next / 2;
        let pause = half + half.mul_f64(f64::from(u32::try_from(random % 1_000).unwrap_or(0)) / 1_000.0);
        self.next = (self.next * 2).min(self.retry.backoff_max);
        self.spent += pause;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_end_with_the_budget() {
        let retry =
            Retry { backoff_min: Duration::from_millis(100), backoff_max: Duration::from_millis(400), total: Duration::from_secs(2) };
        let mut backoff = Backoff::new(retry);
        let pauses: Vec<u128> = std::iter::from_fn(|| backoff.pause(Duration::ZERO, 999)).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses.get(..4), Some([99, 199, 399, 399].as_slice()));
        assert!((5..10).contains(&pauses.len()), "{pauses:?}");
    }
}
