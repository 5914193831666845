//! What a batch changes in the store, gathered while the batch is. Until the batch is applied this is also where
//! look-ups go first: what it does not know is asked of the batch before it, and at last of the store.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};

use rocksdb::WriteBatch;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::lsn::Lsn;
use crate::store::family::Family;
use crate::store::index::{IndexRecord, TopicNumber};
use crate::store::rows::{RowEntry, stored_key};
use crate::store::transactions::{TransactionRecord, Visibility, stored_lsn};
use crate::store::{Store, StoreError};

/// Memory of an entry besides its key: box, map slot, entry.
const ENTRY_BYTES: usize = 120;

/// The changes of one batch.
#[derive(Debug, Default)]
pub struct Changes {
    topics: HashMap<TopicNumber, TopicChanges>,
    transactions: BTreeMap<Lsn, TransactionRecord>,
    visibility: Option<Visibility>,
    indexes: BTreeMap<String, IndexRecord>,
    bytes: usize,
}

/// What a batch knows of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The row is in the index once this batch is applied.
    Present(&'a RowEntry),
    /// The row is not in the index once this batch is applied.
    Absent,
    /// The batch does not touch the row: ask further.
    Unknown,
}

/// Keys are those of the rows, without the topic.
#[derive(Debug, Default)]
struct TopicChanges {
    /// All that was there before this batch is gone.
    cleared: bool,
    /// `None`: deleted.
    rows: HashMap<Box<[u8]>, Option<RowEntry>, KeyHash>,
    /// Whether the key is on the re-read list.
    rereads: HashMap<Box<[u8]>, bool, KeyHash>,
    bytes: usize,
}

impl Changes {
    /// The row is in the index with this entry.
    pub fn put_row(&mut self, topic: TopicNumber, key: &[u8], entry: RowEntry) {
        self.set_row(topic, key, Some(entry));
    }

    /// The row is not in the index.
    pub fn delete_row(&mut self, topic: TopicNumber, key: &[u8]) {
        self.set_row(topic, key, None);
    }

    /// Nothing of the topic is in the index, nor on the re-read list (TRUNCATE). What is put later stands.
    pub fn clear_topic(&mut self, topic: TopicNumber) {
        let changes = self.topics.entry(topic).or_default();
        self.bytes -= changes.bytes;
        changes.clear();
        changes.cleared = true;
        changes.bytes = ENTRY_BYTES;
        self.bytes += ENTRY_BYTES;
    }

    /// The row is known only in part and has to be read again.
    pub fn put_reread(&mut self, topic: TopicNumber, key: &[u8]) {
        self.set_reread(topic, key, true);
    }

    /// The row does not have to be read again.
    pub fn delete_reread(&mut self, topic: TopicNumber, key: &[u8]) {
        self.set_reread(topic, key, false);
    }

    /// The transaction was admitted, and is delivered whole with this batch.
    pub fn put_transaction(&mut self, commit_lsn: Lsn, record: TransactionRecord) {
        self.transactions.insert(commit_lsn, record);
        self.bytes += ENTRY_BYTES;
    }

    pub fn set_visibility(&mut self, visibility: Visibility) {
        self.bytes += size_of_val(visibility.leftovers.as_slice());
        self.visibility = Some(visibility);
    }

    /// The index of a topic is new, or another one than before.
    pub fn put_index(&mut self, topic: &str, record: IndexRecord) {
        self.bytes += ENTRY_BYTES + topic.len();
        self.indexes.insert(topic.to_owned(), record);
    }

    #[must_use]
    pub fn row(&self, topic: TopicNumber, key: &[u8]) -> Lookup<'_> {
        let Some(changes) = self.topics.get(&topic) else { return Lookup::Unknown };
        match changes.rows.get(key) {
            Some(Some(entry)) => Lookup::Present(entry),
            Some(None) => Lookup::Absent,
            None if changes.cleared => Lookup::Absent,
            None => Lookup::Unknown,
        }
    }

    /// The keys of a topic's rows that this batch puts.
    pub fn rows(&self, topic: TopicNumber) -> impl Iterator<Item = &[u8]> {
        let changed = self.topics.get(&topic).into_iter().flat_map(|changes| &changes.rows);
        changed.filter(|(_, entry)| entry.is_some()).map(|(key, _)| &**key)
    }

    /// Whether the key is on the re-read list once this batch is applied. `None`: ask further.
    #[must_use]
    pub fn reread(&self, topic: TopicNumber, key: &[u8]) -> Option<bool> {
        let changes = self.topics.get(&topic)?;
        changes.rereads.get(key).copied().or(changes.cleared.then_some(false))
    }

    /// The keys that this batch puts on the re-read list of a topic.
    pub fn rereads(&self, topic: TopicNumber) -> impl Iterator<Item = &[u8]> {
        let listed = self.topics.get(&topic).into_iter().flat_map(|changes| &changes.rereads);
        listed.filter(|(_, put)| **put).map(|(key, _)| &**key)
    }

    /// `None`: ask further.
    #[must_use]
    pub fn transaction(&self, commit_lsn: Lsn) -> Option<&TransactionRecord> {
        self.transactions.get(&commit_lsn)
    }

    /// `None`: ask further.
    #[must_use]
    pub fn index(&self, topic: &str) -> Option<&IndexRecord> {
        self.indexes.get(topic)
    }

    /// About the memory that this takes; the writes it becomes take less.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0 && self.visibility.is_none()
    }

    /// Forgets everything, keeping memory for the next batch.
    pub fn clear(&mut self) {
        self.topics.values_mut().for_each(TopicChanges::clear);
        self.transactions.clear();
        self.visibility = None;
        self.indexes.clear();
        self.bytes = 0;
    }

    /// The same as writes: a topic is cleared first, then its rows are put.
    pub(super) fn write_to(&self, store: &Store, writes: &mut WriteBatch) -> Result<(), StoreError> {
        let (rows, rereads) = (store.family(Family::Rows), store.family(Family::Rereads));
        let mut value = Vec::new();
        for (topic, changes) in &self.topics {
            if changes.cleared {
                writes.delete_range_cf(rows, topic.prefix(), topic.end());
                writes.delete_range_cf(rereads, topic.prefix(), topic.end());
            }
            for (key, entry) in &changes.rows {
                match entry {
                    Some(entry) => {
                        value.clear();
                        entry.encode(&mut value);
                        writes.put_cf(rows, stored_key(*topic, key), &value);
                    }
                    None if changes.cleared => {}
                    None => writes.delete_cf(rows, stored_key(*topic, key)),
                }
            }
            for (key, listed) in &changes.rereads {
                match listed {
                    true => writes.put_cf(rereads, stored_key(*topic, key), b""),
                    false if changes.cleared => {}
                    false => writes.delete_cf(rereads, stored_key(*topic, key)),
                }
            }
        }
        for (commit_lsn, record) in &self.transactions {
            writes.put_cf(store.family(Family::Transactions), stored_lsn(*commit_lsn), record.encode());
        }
        if let Some(visibility) = &self.visibility {
            store.write_visibility(visibility, writes);
        }
        for (topic, record) in &self.indexes {
            store.write_index(topic, record, writes)?;
        }
        Ok(())
    }

    fn set_row(&mut self, topic: TopicNumber, key: &[u8], entry: Option<RowEntry>) {
        let changes = self.topics.entry(topic).or_default();
        let large = |entry: &Option<RowEntry>| entry.as_ref().map_or(0, |entry| size_of_val(entry.large.as_slice()));
        let mut added = large(&entry);
        let mut removed = 0;
        if let Some(present) = changes.rows.get_mut(key) {
            removed = large(present);
            *present = entry;
        } else {
            added += ENTRY_BYTES + key.len();
            changes.rows.insert(key.into(), entry);
        }
        changes.bytes = changes.bytes + added - removed;
        self.bytes = self.bytes + added - removed;
    }

    fn set_reread(&mut self, topic: TopicNumber, key: &[u8], listed: bool) {
        let changes = self.topics.entry(topic).or_default();
        if let Some(present) = changes.rereads.get_mut(key) {
            *present = listed;
        } else {
            changes.rereads.insert(key.into(), listed);
            changes.bytes += ENTRY_BYTES + key.len();
            self.bytes += ENTRY_BYTES + key.len();
        }
    }
}

impl TopicChanges {
    fn clear(&mut self) {
        self.cleared = false;
        self.rows.clear();
        self.rereads.clear();
        self.bytes = 0;
    }
}

/// Hashes keys with XXH3, several times faster than the standard hash, and with a seed that nobody who chooses
/// keys can know.
#[derive(Clone, Debug)]
struct KeyHash {
    seed: u64,
}

impl Default for KeyHash {
    fn default() -> Self {
        Self { seed: RandomState::new().hash_one(0) }
    }
}

impl BuildHasher for KeyHash {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { state: self.seed }
    }
}

struct KeyHasher {
    state: u64,
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.state = xxh3_64_with_seed(bytes, self.state);
    }

    /// The length of a slice: one slice is all that a key is.
    fn write_usize(&mut self, length: usize) {
        self.state ^= length as u64;
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: TopicNumber = TopicNumber::new(1);

    fn entry(epoch: u64) -> RowEntry {
        RowEntry { epoch, complete: true, digest: None, large: Vec::new() }
    }

    #[test]
    fn the_last_word_on_a_row_counts_and_what_is_not_touched_is_asked_further() {
        let mut changes = Changes::default();
        assert_eq!(changes.row(TOPIC, b"a"), Lookup::Unknown);
        changes.put_row(TOPIC, b"a", entry(1));
        changes.put_row(TOPIC, b"a", entry(2));
        assert_eq!(changes.row(TOPIC, b"a"), Lookup::Present(&entry(2)));
        assert_eq!(changes.row(TOPIC, b"b"), Lookup::Unknown);
        assert_eq!(changes.row(TopicNumber::new(2), b"a"), Lookup::Unknown);
        changes.delete_row(TOPIC, b"a");
        assert_eq!(changes.row(TOPIC, b"a"), Lookup::Absent);
    }

    #[test]
    fn after_a_truncate_everything_before_is_absent_and_later_rows_stand() {
        let mut changes = Changes::default();
        changes.put_row(TOPIC, b"a", entry(1));
        changes.put_reread(TOPIC, b"a");
        changes.clear_topic(TOPIC);
        changes.put_row(TOPIC, b"b", entry(2));
        changes.put_reread(TOPIC, b"b");
        assert_eq!(changes.row(TOPIC, b"a"), Lookup::Absent);
        assert_eq!(changes.row(TOPIC, b"never seen"), Lookup::Absent);
        assert_eq!(changes.row(TOPIC, b"b"), Lookup::Present(&entry(2)));
        assert_eq!([b"a", b"b"].map(|key| changes.reread(TOPIC, key)), [Some(false), Some(true)]);
        assert_eq!(changes.reread(TopicNumber::new(2), b"a"), None);
    }

    #[test]
    fn bytes_follow_what_is_held() {
        let mut changes = Changes::default();
        assert!(changes.is_empty());
        changes.put_row(TOPIC, &[0; 1000], entry(1));
        let one = changes.bytes();
        assert!((1000..2000).contains(&one), "{one}");
        changes.put_row(TOPIC, &[0; 1000], entry(2));
        assert_eq!(changes.bytes(), one);
        changes.clear_topic(TOPIC);
        assert!(changes.bytes() < 1000 && !changes.is_empty());
        changes.clear();
        assert!(changes.is_empty() && changes.bytes() == 0);
        changes.set_visibility(Visibility::default());
        assert!(!changes.is_empty());
    }
}
