//! The rooms that a change walks through, and the threads that they are on:
//!
//! ```text
//! reader (task) ── chunks of frames ──> emitter (thread) ── closed batches ──> deliver (thread) ──> sink, store
//!    ^                                     ^    │                                   │
//!    │                            answers  │    │ questions                         │
//!    │                                  desk (task)                                 │
//!    └─────────────────────────────── Durable ──────────────────────────────────────┘
//! ```

pub mod error;
pub mod input;
pub mod closed;
pub mod table;
pub mod index;
pub mod desk;
pub mod reader;
pub mod emitter;
pub mod reading;
pub mod deliver;
pub mod watch;
pub mod session;
