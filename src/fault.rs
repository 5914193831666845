//! Fail points for the torture tests. Without the feature `fault` each is an empty function.
//!
//! `WALGATE_FAULT="name"` kills the process (SIGKILL, as a machine would) when the point is reached;
//! `name*3` at the third time.

/// A place where a test may kill the process.
#[cfg(not(feature = "fault"))]
#[inline(always)]
pub fn point(_name: &str) {}

/// A place where a test may kill the process.
///
/// # Panics
/// The process may not kill itself.
#[cfg(feature = "fault")]
pub fn point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static WANTED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("WALGATE_FAULT").ok()?;
        let (name, count) = text.split_once('*').unwrap_or((&text, "1"));
        Some((name.to_owned(), AtomicU64::new(count.parse().ok()?)))
    });
    if let Some((wanted, left)) = wanted
        && wanted == name
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        assert!(killed.is_ok(), "a process may always kill itself");
        std::thread::sleep(std::time::Duration::from_mins(1));
    }
}
