//! The row index as of every event emitted so far: the batch being built, then the batches in flight, then the
//! store. A rebuild that looked at the store alone would delete what a batch in flight has just inserted.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::pipeline::closed::Closed;
use crate::store::changes::{Changes, Lookup};
use crate::store::index::TopicNumber;
use crate::store::rows::RowEntry;
use crate::store::{Store, StoreError};

/// Keys looked at in one go for one that is on the re-read list still.
const REREADS_PAGE: usize = 100;

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

    /// The keys of rows that are in the index and that the store may not know yet.
    #[must_use]
    pub fn rows_not_applied(&self, topic: TopicNumber) -> BTreeSet<Box<[u8]>> {
        let layers = || self.in_flight.iter().map(|closed| &closed.changes).chain(std::iter::once(&self.building));
        let is_present = |key: &&[u8]| {
            let newest = layers().rev().map(|changes| changes.row(topic, key)).find(|found| !matches!(found, Lookup::Unknown));
            matches!(newest, Some(Lookup::Present(_)))
        };
        layers().flat_map(|changes| changes.rows(topic)).filter(is_present).map(Box::from).collect()
    }

    /// Whether any key of a topic is to be read again.
    ///
    /// # Errors
    /// The store's.
    pub fn has_rereads(&self, topic: TopicNumber) -> Result<bool, StoreError> {
        let layers = || self.in_flight.iter().map(|closed| &closed.changes).chain(std::iter::once(&self.building));
        // What the newest batch that speaks of a key says, counts; a cleared topic has none.
        let listed = |key: &[u8]| layers().rev().find_map(|changes| changes.reread(topic, key)) != Some(false);
        if layers().any(|changes| changes.rereads(topic).any(listed)) {
            return Ok(true);
        }
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.rereads_page(topic, after.as_deref(), REREADS_PAGE)?;
            if page.iter().any(|key| listed(key)) {
                return Ok(true);
            }
            after = page.last().cloned();
            if page.len() < REREADS_PAGE {
                return Ok(false);
            }
        }
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

    /// Number of the oldest batch that is not applied yet.
    #[must_use]
    pub fn first_in_flight(&self) -> Option<u64> {
        self.in_flight.front().map(|closed| closed.number)
    }

    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}
