//! What a call that blocks shows meanwhile.

use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode;

use crate::admin::board::Board;

/// Shorter waits are nobody's business.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Shows on the board what is waited for, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    board: &'a Board,
    since: Instant,
    is_shown: bool,
}

impl<'a> Waiting<'a> {
    pub(super) fn begin(board: &'a Board) -> Self {
        Self { board, since: Instant::now(), is_shown: false }
    }

    /// Still waiting for `what`; the client reported this of its connections last.
    pub(super) fn see(&mut self, what: &str, reported: Option<&(RDKafkaErrorCode, String)>) {
        if self.since.elapsed() < SHOWN_AFTER {
            return;
        }
        let text = match reported {
            Some((_, reason)) => format!("{what} ({reason})"),
            None => what.to_owned(),
        };
        if !self.is_shown {
            tracing::warn!(waiting_for = text, "waiting");
        }
        self.is_shown = true;
        self.board.update(|status| status.waiting_for = Some(text));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_shown {
            tracing::info!(seconds = self.since.elapsed().as_secs(), "waited");
            self.board.update(|status| status.waiting_for = None);
        }
    }
}
