//! Staged, committed, applied, acknowledged: the four steps of a batch, on a thread of their own because they
//! block. A crash or an error between the first and the third leaves the outcome unknown; the next session opens
//! the sink, reads its record and settles the stage by it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use tokio::sync::watch;

use crate::fault;
use crate::lsn::Lsn;
use crate::pipeline::closed::Closed;
use crate::pipeline::error::SessionError;
use crate::pipeline::input::Input;
use crate::progress::Durable;
use crate::sink::Sink;
use crate::store::Store;

/// The four steps up to the acknowledgement, which the caller passes on. `recorded` sinks keep the progress record
/// themselves, so that the store may apply without a sync of its own.
///
/// # Errors
/// The sink's or the store's.
pub fn deliver(closed: &Closed, sink: &mut dyn Sink, store: &Store, recorded: bool) -> Result<Durable, SessionError> {
    let staged = store.stage(&closed.progress, &closed.tables, &closed.changes)?;
    fault::point("deliver.staged");
    let receipt = sink.deliver(&closed.batch, &closed.progress, &closed.tables)?;
    fault::point("deliver.committed");
    let applied = store.apply(staged, !recorded)?;
    fault::point("deliver.applied");
    Ok(Durable::settled(&closed.progress, &receipt, &applied))
}

/// How often it is noted where the window of known transactions begins, and cut.
const WINDOW_STEP: Duration = Duration::from_mins(1);

/// Since when the batch under delivery is; `None` between two batches. For the session, which knows how long is too long.
#[derive(Clone, Debug, Default)]
pub struct Busy(Arc<Mutex<Option<Instant>>>);

impl Busy {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Ends when one batch has been under delivery for longer than `grace`.
    pub async fn longer_than(&self, grace: Duration) {
        loop {
            let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // What begins after this look is not overdue before the next one.
            let left = since.map_or(grace, |since| grace.saturating_sub(since.elapsed()));
            if left.is_zero() && since.is_some() {
                return;
            }
            tokio::time::sleep(left.max(Duration::from_millis(10))).await;
        }
    }
}

/// Delivers batches in order until their sender is gone; keeps what is known of transactions for `dedup_window`.
///
/// # Errors
/// As [`deliver`].
#[expect(clippy::too_many_arguments, reason = "all that the thread is given, each another thing")]
pub fn run(
    batches: Receiver<Arc<Closed>>,
    sink: &mut dyn Sink,
    store: &Store,
    recorded: bool,
    dedup_window: Duration,
    durable: &watch::Sender<Durable>,
    inputs: &Sender<Input>,
    busy: &Busy,
) -> Result<(), SessionError> {
    let mut steps = VecDeque::from([(Instant::now(), closed_from(store)?)]);
    for closed in batches {
        busy.set(Some(Instant::now()));
        let reached = deliver(&closed, sink, store, recorded)?;
        busy.set(None);
        if steps.back().is_none_or(|(noted, _)| noted.elapsed() >= WINDOW_STEP) {
            steps.push_back((Instant::now(), reached.lsn()));
            while let Some((_, lsn)) = steps.pop_front_if(|(noted, _)| noted.elapsed() >= dedup_window) {
                store.prune_transactions(lsn)?;
            }
        }
        durable.send_replace(reached);
        // An emitter that is gone does not need to know.
        let _gone = inputs.send(Input::Delivered { number: closed.number }).is_err();
    }
    Ok(())
}

/// Where the window stands when a session begins: all of it is kept for another window's time.
fn closed_from(store: &Store) -> Result<Lsn, SessionError> {
    Ok(store.progress()?.map_or(Lsn::INVALID, |progress| progress.end_lsn))
}
