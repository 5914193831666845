//! The lab: private PostgreSQL clusters, the real program, a workload, and a checker that reads the events as a
//! subscriber does. It shares no code with the program.

pub(crate) mod certificates;
pub(crate) mod events;
mod fold;
pub(crate) mod json;
pub(crate) mod kafka;
pub(crate) mod ledger;
mod port;
pub(crate) mod postgres;
mod process;
pub(crate) mod random;
pub(crate) mod room;
pub(crate) mod schemas;
pub(crate) mod sql;
mod table;
mod template;
pub(crate) mod wait;
pub(crate) mod walgate;

/// How many of `full` rounds a torture test runs: `WALGATE_TEST_SHARE` percent of them (100 if unset), at least one.
pub(crate) fn share(full: u32) -> u32 {
    let percent = std::env::var("WALGATE_TEST_SHARE").map_or(100, |text| text.parse().expect("WALGATE_TEST_SHARE is a percentage"));
    (full * percent / 100).max(1)
}
