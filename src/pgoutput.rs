//! From the bytes of pgoutput, protocol version 1, to messages. Pure: no connection, no allocation per row.

pub mod message;
pub mod reader;
pub mod relation;
