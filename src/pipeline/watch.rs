//! The log that the slot keeps, and the log that may still be written before the slot is lost: watched while a session
//! streams, so that an operator hears of it in time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::admin::board::Board;
use crate::postgres::slot::Slot;

/// Between two looks at the slot.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// The rate at which log is used up is that of so long a time.
const WINDOW: Duration = Duration::from_mins(1);

/// What was seen of one slot.
#[derive(Debug, Default)]
pub struct WalWatch {
    /// `safe_wal_size` over the window, oldest first.
    safe: VecDeque<(Instant, i64)>,
    warned: bool,
}

impl WalWatch {
    /// Shows the slot as seen `now`, and says loudly when it is about to be lost.
    pub fn see(&mut self, slot: &Slot, now: Instant, board: &Board) {
        let seconds_to_loss = self.seconds_to_loss(slot.safe_wal_size, now);
        let in_danger = slot.wal_status == "unreserved";
        if in_danger && !self.warned {
            tracing::error!("the slot is about to be lost: raise `max_slot_wal_keep_size` at the source");
        }
        self.warned = in_danger;
        board.update(|status| {
            status.wal_kept_bytes = Some(slot.kept_bytes);
            status.lag_bytes = Some(slot.lag_bytes);
            status.wal_safe_bytes = slot.safe_wal_size;
            status.seconds_to_loss = seconds_to_loss;
            status.slot.wal_status = Some(slot.wal_status.clone());
            status.slot.active = Some(slot.active_pid.is_some());
        });
    }

    /// At the rate of the last minute; `None` while no log is used up, or where there is no limit.
    fn seconds_to_loss(&mut self, safe_bytes: Option<i64>, now: Instant) -> Option<u64> {
        let Some(left) = safe_bytes else {
            self.safe.clear();
            return None;
        };
        while self.safe.pop_front_if(|(seen, _)| now.duration_since(*seen) > WINDOW).is_some() {}
        self.safe.push_back((now, left));
        let (since, before) = *self.safe.front()?;
        let used = u128::try_from(before - left).ok().filter(|used| *used > 0)?;
        let left = u128::try_from(left).unwrap_or(0);
        u64::try_from(left * now.duration_since(since).as_millis() / used / 1_000).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_from_the_log_used_within_the_last_minute() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut watch = WalWatch::default();
        assert_eq!(watch.seconds_to_loss(Some(1_000), at(0)), None);
        assert_eq!(watch.seconds_to_loss(Some(900), at(10)), Some(90));
        assert_eq!(watch.seconds_to_loss(Some(800), at(20)), Some(80));
        assert_eq!(watch.seconds_to_loss(Some(800), at(75)), None, "none was used since");
        assert_eq!(watch.seconds_to_loss(Some(2_000), at(80)), None, "the slot has advanced");
        assert_eq!(watch.seconds_to_loss(None, at(90)), None);
        assert_eq!(watch.seconds_to_loss(Some(-5), at(95)), None);
        assert_eq!(watch.seconds_to_loss(Some(-10), at(96)), Some(0), "past the limit");
    }
}
