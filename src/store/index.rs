//! What is known of a topic's row index: its number, whether it can be trusted, and how its keys are made.

use rocksdb::WriteBatch;
use serde::{Deserialize, Serialize};

use crate::store::family::Family;
use crate::store::{Store, StoreError};

/// A topic's number within a store, in front of the keys of its rows. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicNumber(u32);

impl TopicNumber {
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// In front of every key of the topic.
    pub(super) const fn prefix(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// In front of every key of the next topic. Numbers are given one after the other, so there is a next one.
    pub(super) const fn end(self) -> [u8; 4] {
        self.0.saturating_add(1).to_be_bytes()
    }
}

/// The index of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRecord {
    pub number: TopicNumber,
    /// Every row that was delivered to the topic has an entry: what has none was not delivered. Without it no
    /// rebuild relies on the index.
    pub complete: bool,
    /// Columns of the key, in key order. Other columns make other keys, so another index.
    pub key: Vec<String>,
    /// How its values are written: a digest. Written otherwise, the same rows have other keys.
    #[serde(default)]
    pub form: String,
}

impl IndexRecord {
    /// Whether nothing is wanting: it is complete, or the table has no key and so no index.
    #[must_use]
    pub fn lacks_nothing(&self) -> bool {
        self.complete || self.key.is_empty()
    }
}

impl Store {
    /// The index of a topic, if it has one.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn index(&self, topic: &str) -> Result<Option<IndexRecord>, StoreError> {
        let Some(bytes) = self.get(Family::Schema, topic.as_bytes())? else { return Ok(None) };
        self.parse_json("schema", topic.as_bytes(), &bytes).map(Some)
    }

    /// The indexes of all topics, by topic.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn indexes(&self) -> Result<Vec<(String, IndexRecord)>, StoreError> {
        self.scan(Family::Schema, |topic, bytes| {
            let record = self.parse_json("schema", topic, bytes)?;
            Ok((String::from_utf8_lossy(topic).into_owned(), record))
        })
    }

    /// Every index is incomplete from now on.
    pub(super) fn write_incomplete_indexes(&self, writes: &mut WriteBatch) -> Result<(), StoreError> {
        for (topic, record) in self.indexes()? {
            self.write_index(&topic, &IndexRecord { complete: false, ..record }, writes)?;
        }
        Ok(())
    }

    pub(super) fn write_index(&self, topic: &str, record: &IndexRecord, writes: &mut WriteBatch) -> Result<(), StoreError> {
        writes.put_cf(self.family(Family::Schema), topic, self.to_json("schema", record)?);
        Ok(())
    }
}
