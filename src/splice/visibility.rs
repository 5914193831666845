//! Transactions that the stream has emitted and that no snapshot was yet proved to see (U of the algorithm).
//!
//! A commit is in the log, and so in the stream, before it is visible; with a synchronous standby that hangs,
//! long before. A chunk read in that time would show the row as it was.

use std::collections::HashSet;

use crate::lsn::{Lsn, Xid};
use crate::splice::snapshot::Snapshot;
use crate::store::transactions::{TransactionRecord, Visibility};

/// The set, and up to where it was pruned.
#[derive(Debug, Default)]
pub struct Unproved {
    xids: HashSet<Xid>,
}

impl Unproved {
    /// As the store left it: what a snapshot left over, and all that came after that one.
    pub fn recovered(visibility: &Visibility, after: impl IntoIterator<Item = (Lsn, TransactionRecord)>) -> Self {
        let later = after.into_iter().map(|(_, transaction)| transaction.xid);
        Self { xids: visibility.leftovers.iter().copied().chain(later).collect() }
    }

    /// At its Begin, emitted again or not.
    pub fn begin(&mut self, xid: Xid) {
        self.xids.insert(xid);
    }

    /// It turned out to have no change: nothing of it could be seen.
    pub fn take_back(&mut self, xid: Xid) {
        self.xids.remove(&xid);
    }

    /// Takes out what `snapshot` sees.
    pub fn prove(&mut self, snapshot: &Snapshot) {
        self.xids.retain(|xid| !snapshot.sees(*xid));
    }

    /// Whether `snapshot` sees all of them.
    #[must_use]
    pub fn all_seen_by(&self, snapshot: &Snapshot) -> bool {
        self.xids.iter().all(|xid| snapshot.sees(*xid))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.xids.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.xids.is_empty()
    }

    #[must_use]
    pub fn to_vec(&self) -> Vec<Xid> {
        let mut xids: Vec<Xid> = self.xids.iter().copied().collect();
        xids.sort_unstable();
        xids
    }
}
