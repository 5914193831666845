//! walgate.

pub mod config;
pub mod exit;
pub mod fault;
pub mod lsn;
pub mod pgoutput;
pub mod event;
pub mod batch;
pub mod sink;
pub mod store;
pub mod progress;
pub mod rebuild;
