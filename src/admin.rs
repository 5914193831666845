//! What an operator sees of the running service and asks of it.

pub mod board;
pub mod control;
