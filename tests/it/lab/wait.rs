//! Waiting for a condition with a deadline; a test never sleeps a fixed time.

use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at a condition: short against what is waited for (a server's start takes 100 ms).
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Waits until `condition` holds; panics with `what` when `deadline` has passed first.
#[track_caller]
pub(crate) fn until(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    until_some(deadline, what, || condition().then_some(()));
}

/// Waits until `look` sees something and returns it; panics with `what` when `deadline` has passed first.
#[track_caller]
pub(crate) fn until_some<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < deadline, "waited {deadline:?} in vain until {what}");
        thread::sleep(BETWEEN_LOOKS);
    }
}
