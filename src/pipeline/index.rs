//! The row index as of every event emitted so far: the batch being built, then the batches in flight, then the
//! store. A rebuild that looked at the store alone would delete what a batch in flight has just inserted.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::pipeline::closed::Closed;
use crate::store::changes::{Changes, Lookup};
use crate::store::index::TopicNumber;
use crate::store::rows::RowEntry;
use crate::store::{Store, StoreError};

/// Look-ups and changes of the index.
pub struct Index {
    store: Arc<Store>,
    /// Changes of the batch being built.
    pub building: Changes,
    in_flight: VecDeque<Arc<Closed>>,
}

impl Index {
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, building: Changes::default(), in_flight: VecDeque::new() }
    }

    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The entry of a row.
    ///
    /// # Errors
    /// The store's.
    pub fn row(&self, topic: TopicNumber, key: &[u8]) -> Result<Option<RowEntry>, StoreError> {
        for changes in std::iter::once(&self.building).chain(self.in_flight.iter().rev().map(|closed| &closed.changes)) {
            match changes.row(topic, key) {
                Lookup::Present(entry) => return Ok(Some(entry.clone())),
                Lookup::Absent => return Ok(None),
                Lookup::Unknown => {}
            }
        }
        self.store.row(topic, key)
    }

    /// Keys that are to be read again, at most about `limit`; empty when there are none.
    ///
    /// # Errors
    /// The store's.
    pub fn rereads(&self, topic: TopicNumber, limit: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let layers = || self.in_flight.iter().map(|closed| &closed.changes).chain(std::iter::once(&self.building));
        let mut keys = BTreeSet::new();
        for changes in layers() {
            keys.extend(changes.rereads(topic).take(limit).map(<[u8]>::to_vec));
        }
        // What the newest batch that speaks of a key says, counts; a cleared topic has none.
        let listed = |key: &[u8]| layers().rev().find_map(|changes| changes.reread(topic, key));
        let mut after: Option<Vec<u8>> = None;
        while keys.len() < limit {
            let page = self.store.rereads_page(topic, after.as_deref(), limit)?;
            let full = page.len() == limit;
            after = page.last().cloned();
            keys.extend(page.into_iter().filter(|key| listed(key) != Some(false)));
            if !full {
                break;
            }
        }
        Ok(keys.into_iter().filter(|key| listed(key) != Some(false)).take(limit).collect())
    }

    /// The batch being built is closed: its changes go with it.
    pub fn take_building(&mut self) -> Changes {
        std::mem::take(&mut self.building)
    }

    /// A batch is on its way.
    pub fn closed(&mut self, closed: Arc<Closed>) {
        self.in_flight.push_back(closed);
    }

    /// The batch of this number, and all before it, are applied.
    /// Gives the last of them.
    pub fn applied(&mut self, number: u64) -> Option<Arc<Closed>> {
        let mut last = None;
        while let Some(closed) = self.in_flight.pop_front_if(|closed| closed.number <= number) {
            last = Some(closed);
        }
        last
    }

    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}
