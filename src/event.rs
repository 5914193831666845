//! From a row as the server prints it to an event as subscribers read it.
//!
//! Everything here is pure: bytes in, bytes out. A table's [`plan::TablePlan`] is made when its relation
//! arrives and then encodes each row straight into a batch's arena; no row becomes a tree.

pub mod digest;
pub mod envelope;
pub mod identity;
pub mod plan;
pub mod schema;
pub mod topic;
pub mod value;
