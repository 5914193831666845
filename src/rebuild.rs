//! Bringing what subscribers hold back to the state of the tables: why, in which steps, and how far.

pub mod journal;
pub mod mark;
pub mod reason;
