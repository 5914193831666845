//! The lab: private PostgreSQL clusters, the real program, a workload, and a checker that reads the events as a
//! subscriber does. It shares no code with the program.

pub(crate) mod events;
mod fold;
pub(crate) mod json;
pub(crate) mod ledger;
pub(crate) mod postgres;
mod process;
mod random;
pub(crate) mod sql;
mod table;
mod template;
pub(crate) mod wait;
