//! walgate reads a PostgreSQL logical-replication stream, turns every committed change into an event, delivers each
//! once, and brings subscribers back to the table's state by differences when the log is lost.
//!
//! # How a change walks through
//!
//! ```text
//! socket → frames → pgoutput message → admission → encoder → batch → sink → progress → acknowledge
//! postgres::wire     pgoutput          admission   event     batch   sink   progress    pipeline::reader
//! ```
//!
//! Data walks in one direction. Exactly one value travels upstream, [`progress::Durable`]: the end LSN up to which
//! the sink has committed and the store has synced. PostgreSQL is told nothing else.
//!
//! # Map
//!
//! | room | what it holds |
//! |---|---|
//! | [`cli`], [`config`], [`exit`], [`telemetry`] | what people type, write and see |
//! | [`lsn`] | the vocabulary of positions |
//! | [`postgres`] | the only code that holds a connection to the source |
//! | [`pgoutput`] | bytes to messages, pure |
//! | [`admission`] | fresh, repeated, resumed, or in conflict |
//! | [`event`] | identity, values, images, envelope: pure |
//! | [`batch`], [`sink`] | events on their way, and where they go |
//! | [`store`], [`progress`] | what is remembered, and how far things are |
//! | [`splice`] | reading a table beside its stream |
//! | [`rebuild`] | why, in which steps, and the marks |
//! | [`resume`], [`policy`] | the decisions: how to go on, what follows from an error |
//! | [`pipeline`] | the threads and tasks that the rooms run on |
//! | [`admin`] | what operators see and ask |
//!
//! # Invariants
//!
//! - A batch is staged in the store, committed by the sink with its progress record, applied to the store, and only
//!   then acknowledged. A crash between is settled by the sink's record, never guessed.
//! - The row index is that of exactly the prefix of the stream that the sink holds.
//! - An event's id and order are made from durable facts: the same on every retry, restart and re-read.
//! - Rows read from a table are placed only at transaction boundaries, and only where the stream did not touch them.

pub mod cli;
pub mod config;
pub mod exit;
pub mod telemetry;
pub mod lsn;
pub mod postgres;
pub mod pgoutput;
pub mod admission;
pub mod event;
pub mod batch;
pub mod sink;
pub mod store;
pub mod progress;
pub mod splice;
pub mod rebuild;
pub mod resume;
pub mod pipeline;
pub mod policy;
pub mod admin;
pub mod fault;
