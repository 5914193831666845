//! The dedup window: of each transaction admitted, what a re-sent one has to be equal to; and which of them
//! may still be invisible to a snapshot.
//!
//! ```text
//! key         commit LSN (8)
//! value       version, 1; xid (4), messages (8), digest (16), commit time (8)
//!
//! "visibility"  version, 1; proved LSN (8), xid (4) of each leftover
//! ```

use rocksdb::{ReadOptions, WriteBatch};

use crate::lsn::{Lsn, Xid};
use crate::store::family::Family;
use crate::store::{Store, StoreError, Sync};

const VERSION: u8 = 1;

const WINDOW_KEY: &[u8] = b"window";
const VISIBILITY_KEY: &[u8] = b"visibility";

/// Sorts after every commit LSN.
const AFTER_ALL: [u8; 9] = [0xFF; 9];

/// What is kept of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionRecord {
    pub xid: Xid,
    /// Insert, Update, Delete, Truncate and transactional Message messages: the ordinals it has.
    pub messages: u64,
    /// Of those messages as the server sent them.
    pub digest: u128,
    /// As the server sent it: microseconds since 2000-01-01 UTC.
    pub commit_time_us: i64,
}

/// Which transactions are proved visible to every later snapshot of the same server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visibility {
    /// All transactions with a commit LSN up to here, inclusive, except the leftovers.
    pub proved: Lsn,
    pub leftovers: Vec<Xid>,
}

impl TransactionRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { xid, messages, digest, commit_time_us } = self;
        let mut bytes = Vec::with_capacity(37);
        bytes.push(VERSION);
        bytes.extend_from_slice(&xid.as_u32().to_be_bytes());
        bytes.extend_from_slice(&messages.to_be_bytes());
        bytes.extend_from_slice(&digest.to_be_bytes());
        bytes.extend_from_slice(&commit_time_us.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(&[VERSION])?;
        let (xid, bytes) = bytes.split_first_chunk()?;
        let (messages, bytes) = bytes.split_first_chunk()?;
        let (digest, bytes) = bytes.split_first_chunk()?;
        Some(Self {
            xid: Xid::new(u32::from_be_bytes(*xid)),
            messages: u64::from_be_bytes(*messages),
            digest: u128::from_be_bytes(*digest),
            commit_time_us: i64::from_be_bytes(bytes.try_into().ok()?),
        })
    }
}

impl Visibility {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&stored_lsn(self.proved));
        bytes.extend(self.leftovers.iter().flat_map(|xid| xid.as_u32().to_be_bytes()));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (proved, xids) = bytes.strip_prefix(&[VERSION])?.split_first_chunk()?;
        let (xids, rest) = xids.as_chunks();
        let leftovers = xids.iter().map(|xid| Xid::new(u32::from_be_bytes(*xid))).collect();
        rest.is_empty().then(|| Self { proved: Lsn::new(u64::from_be_bytes(*proved)), leftovers })
    }
}

pub(super) fn stored_lsn(lsn: Lsn) -> [u8; 8] {
    lsn.as_u64().to_be_bytes()
}

impl Store {
    /// What is kept of the transaction with this commit LSN.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn transaction(&self, commit_lsn: Lsn) -> Result<Option<TransactionRecord>, StoreError> {
        let Some(bytes) = self.get(Family::Transactions, &stored_lsn(commit_lsn))? else { return Ok(None) };
        self.decode_transaction(&bytes).map(Some)
    }

    /// The transactions with a greater commit LSN, ascending: with [`Visibility::proved`], those whose xids are not
    /// proved visible besides the leftovers.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn transactions_after(&self, commit_lsn: Lsn) -> Result<Vec<(Lsn, TransactionRecord)>, StoreError> {
        self.check_usable()?;
        let mut transactions = Vec::new();
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let mut entries = self.db.raw_iterator_cf_opt(self.family(Family::Transactions), options);
        entries.seek([&stored_lsn(commit_lsn)[..], &[0]].concat());
        while let Some((key, value)) = entries.item() {
            let key = key.try_into().map_err(|_| self.damaged("transactions", "a key is not an LSN"))?;
            transactions.push((Lsn::new(u64::from_be_bytes(key)), self.decode_transaction(value)?));
            entries.next();
        }
        entries.status().map_err(|source| self.unreadable(source))?;
        Ok(transactions)
    }

    /// Which transactions are proved visible.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn visibility(&self) -> Result<Visibility, StoreError> {
        let Some(bytes) = self.get(Family::Meta, VISIBILITY_KEY)? else { return Ok(Visibility::default()) };
        Visibility::decode(&bytes).ok_or_else(|| self.damaged("visibility", "its length or version is wrong"))
    }

    /// Commit LSN from which on, inclusive, the window holds every transaction admitted. Whether an earlier one was
    /// seen with the same content cannot be told any more.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn window_start(&self) -> Result<Lsn, StoreError> {
        let Some(bytes) = self.get(Family::Meta, WINDOW_KEY)? else { return Ok(Lsn::INVALID) };
        let start = (*bytes).try_into().map_err(|_| self.damaged("window", "it is not an LSN"))?;
        Ok(Lsn::new(u64::from_be_bytes(start)))
    }

    /// Forgets the transactions with a commit LSN below this one. Those not proved visible stay, whatever is asked.
    ///
    /// # Errors
    /// See [`Store::progress`]; or the write failed.
    pub fn prune_transactions(&self, below: Lsn) -> Result<(), StoreError> {
        let proved = self.visibility()?.proved;
        let below = below.min(Lsn::new(proved.as_u64().saturating_add(1)));
        let start = self.window_start()?;
        if below <= start {
            return Ok(());
        }
        let mut writes = WriteBatch::default();
        writes.delete_range_cf(self.family(Family::Transactions), stored_lsn(Lsn::INVALID), stored_lsn(below));
        writes.put_cf(self.family(Family::Meta), WINDOW_KEY, stored_lsn(below));
        self.write(writes, Sync::Unsynced)
    }

    pub(super) fn write_empty_window(&self, start: Lsn, visibility: &Visibility, writes: &mut WriteBatch) {
        writes.delete_range_cf(self.family(Family::Transactions), &stored_lsn(Lsn::INVALID)[..], &AFTER_ALL[..]);
        writes.put_cf(self.family(Family::Meta), WINDOW_KEY, stored_lsn(start));
        self.write_visibility(visibility, writes);
    }

    pub(super) fn write_visibility(&self, visibility: &Visibility, writes: &mut WriteBatch) {
        writes.put_cf(self.family(Family::Meta), VISIBILITY_KEY, visibility.encode());
    }

    fn decode_transaction(&self, bytes: &[u8]) -> Result<TransactionRecord, StoreError> {
        TransactionRecord::decode(bytes).ok_or_else(|| self.damaged("transaction", "its length or version is wrong"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_as_they_were_written_and_no_part_of_them_reads_at_all() {
        let record = TransactionRecord { xid: Xid::new(u32::MAX), messages: 7, digest: u128::MAX - 1, commit_time_us: -5 };
        let bytes = record.encode();
        assert_eq!(TransactionRecord::decode(&bytes), Some(record));
        for length in 0..bytes.len() {
            assert_eq!(TransactionRecord::decode(&bytes[..length]), None, "{length}");
        }
        assert_eq!(TransactionRecord::decode(&[&bytes[..], &[0]].concat()), None);

        let visibility = Visibility { proved: Lsn::new(9), leftovers: vec![Xid::new(1), Xid::new(u32::MAX)] };
        let bytes = visibility.encode();
        assert_eq!(Visibility::decode(&bytes), Some(visibility));
        assert_eq!(Visibility::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Visibility::decode(&bytes[..5]), None);
    }
}
