//! The lab: private PostgreSQL clusters, the real program, a workload, and a checker that reads the events as a
//! subscriber does. It shares no code with the program.

pub(crate) mod postgres;
mod process;
pub(crate) mod sql;
mod template;
pub(crate) mod wait;
