//! Reading a table beside its running stream: one algorithm for the initial load, for a rebuild, for an added
//! table and for completing the row index.
//!
//! A chunk: note the keys that the stream touches; read the chunk in a short transaction with a snapshot of its
//! own; wait until the stream has passed the log position read with that snapshot; at that transaction boundary
//! place every row whose key was not touched. A row placed so equals the table at that boundary, neither older
//! than what precedes it nor newer than what follows.
//!
//! Each condition is there because a simpler form loses rows: a commit enters the log before snapshots see it,
//! and with synchronous replication the time between can be long.

pub mod snapshot;
pub mod visibility;
pub mod notes;
pub mod chunk;
pub mod read;
pub mod place;
