//! The state folder: one RocksDB, one process.
//!
//! ```text
//! column family   key                              value
//! meta            name                             format version, stamp of the stream
//! progress        "progress"                       Progress, JSON
//! stage           "stage"                          version, batch id, RocksDB write batch
//! transactions    commit LSN (8, big-endian)       xid (4), messages (8), digest (16), commit time µs (8)
//!                 "visibility" record              see `transactions`
//! rows            topic number (4), key            row entry, see `rows`
//! rereads         topic number (4), key            empty
//! journal         topic                            TableJournal, JSON
//! schema          topic                            number and index state, JSON
//! ```
//!
//! The sink's record is the truth; this is what makes it fast and what makes rebuilds cheap. All changes of a
//! batch are staged under its id in one synced write before the sink commits, applied after it, or dropped.

pub mod changes;
pub mod rows;
pub mod transactions;
