//! The row index: of each row that was delivered, its key and what is known of its content.
//!
//! ```text
//! key         topic number (4), the row's key
//! value
//!   byte 0    version (high half, 1) and flags: 1 complete, 2 the digest is known
//!   1 to 10   epoch, in groups of seven bits, lowest first; the high bit of a byte says that more follow
//!   16        digest of the row, if it is known
//!   24 each   column (8) and digest (16) of each large value
//! ```
//!
//! The version stands for the rule of the digests too: digests made by another rule do not compare.
//!
//! Beside it stands the re-read list: keys of rows that subscribers know only in part.

use rocksdb::{DBRawIterator, ReadOptions};

use crate::event::digest::LargeDigest;
use crate::store::family::Family;
use crate::store::index::TopicNumber;
use crate::store::{Store, StoreError};

const VERSION: u8 = 1;
const COMPLETE: u8 = 1;
const DIGEST: u8 = 2;

/// What the index knows of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowEntry {
    /// The table's epoch when the row was last seen, by an event or by a chunk.
    pub epoch: u64,
    /// A subscriber that applied every event holds every column of the row.
    pub complete: bool,
    /// Digest of the whole row; `None`: not known.
    pub digest: Option<u128>,
    /// Digests of its large values, so that an UPDATE that leaves one out still gives the digest of the row.
    pub large: Vec<LargeDigest>,
}

impl RowEntry {
    /// Appends the entry's bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let flags = if self.complete { COMPLETE } else { 0 } | if self.digest.is_some() { DIGEST } else { 0 };
        out.push(VERSION << 4 | flags);
        encode_varint(self.epoch, out);
        if let Some(digest) = self.digest {
            out.extend_from_slice(&digest.to_be_bytes());
        }
        for large in &self.large {
            out.extend_from_slice(&large.column.to_be_bytes());
            out.extend_from_slice(&large.digest.to_be_bytes());
        }
    }

    /// Reads an entry's bytes; the error says what is wrong.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (&first, rest) = bytes.split_first().ok_or("it is empty")?;
        if first >> 4 != VERSION || first & 0xF & !(COMPLETE | DIGEST) != 0 {
            return Err(format!("its first byte is `{first:#04x}`, this program reads version `{VERSION}`"));
        }
        let (epoch, mut rest) = decode_varint(rest).ok_or("its epoch is cut off or too great")?;
        let mut digest = None;
        if first & DIGEST != 0 {
            let (bytes, after) = rest.split_first_chunk().ok_or("its digest is cut off")?;
            digest = Some(u128::from_be_bytes(*bytes));
            rest = after;
        }
        let mut large = Vec::with_capacity(rest.len() / 24);
        while let Some((column, after)) = rest.split_first_chunk() {
            let (digest, after) = after.split_first_chunk().ok_or("the digest of a large value is cut off")?;
            large.push(LargeDigest { column: u64::from_be_bytes(*column), digest: u128::from_be_bytes(*digest) });
            rest = after;
        }
        if !rest.is_empty() {
            return Err(format!("`{}` bytes are left over", rest.len()));
        }
        Ok(Self { epoch, complete: first & COMPLETE != 0, digest, large })
    }
}

fn encode_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "less than seven bits are left")]
    out.push(value as u8);
}

fn decode_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    let mut rest = bytes;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        let group = u64::from(byte & 0x7F);
        if group << shift >> shift != group {
            return None;
        }
        value |= group << shift;
        rest = after;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// The key of a row in the store.
pub(super) fn stored_key(topic: TopicNumber, key: &[u8]) -> Vec<u8> {
    [&topic.prefix(), key].concat()
}

impl Store {
    /// What the index knows of a row, as of the last batch applied. Batches in flight have to be asked first.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn row(&self, topic: TopicNumber, key: &[u8]) -> Result<Option<RowEntry>, StoreError> {
        let Some(bytes) = self.get(Family::Rows, &stored_key(topic, key))? else { return Ok(None) };
        self.decode_row(&bytes).map(Some)
    }

    /// The first rows of a topic whose keys sort after `after` (from the first one on if `None`), at most
    /// `limit`, ascending by the bytes of their keys.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn rows_page(&self, topic: TopicNumber, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Vec<u8>, RowEntry)>, StoreError> {
        self.page(Family::Rows, topic, after, limit, |key, value| Ok((key.to_vec(), self.decode_row(value)?)))
    }

    /// Keys on a topic's re-read list, in the same manner.
    ///
    /// # Errors
    /// See [`Store::progress`].
    pub fn rereads_page(&self, topic: TopicNumber, after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        self.page(Family::Rereads, topic, after, limit, |key, _| Ok(key.to_vec()))
    }

    fn decode_row(&self, bytes: &[u8]) -> Result<RowEntry, StoreError> {
        RowEntry::decode(bytes).map_err(|why| self.damaged("row entry", why))
    }

    fn page<T>(
        &self,
        family: Family,
        topic: TopicNumber,
        after: Option<&[u8]>,
        limit: usize,
        mut read: impl FnMut(&[u8], &[u8]) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.check_usable()?;
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(topic.end());
        // Read once from end to end: the cache is for look-ups.
        options.fill_cache(false);
        let mut entries: DBRawIterator<'_> = self.db.raw_iterator_cf_opt(self.family(family), options);
        match after {
            None => entries.seek(topic.prefix()),
            // The least key that sorts after a key is the key and a zero.
            Some(after) => entries.seek([&topic.prefix(), after, &[0]].concat()),
        }
        let mut page = Vec::new();
        while page.len() < limit
            && let Some((key, value)) = entries.item()
        {
            let (_, key) = key.split_first_chunk::<4>().ok_or_else(|| self.damaged("row key", "it has no topic number"))?;
            page.push(read(key, value)?);
            entries.next();
        }
        entries.status().map_err(|source| self.unreadable(source))?;
        Ok(page)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::{Strategy, any};
    use proptest::{collection::vec, option, prop_assert_eq, proptest};

    use super::*;

    pub(in crate::store) fn entries() -> impl Strategy<Value = RowEntry> {
        let large = (any::<u64>(), any::<u128>()).prop_map(|(column, digest)| LargeDigest { column, digest });
        (any::<u64>(), any::<bool>(), option::of(any::<u128>()), vec(large, 0..3)).prop_map(|(epoch, complete, digest, large)| RowEntry {
            epoch,
            complete,
            digest,
            large,
        })
    }

    fn encoded(entry: &RowEntry) -> Vec<u8> {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn an_entry_reads_as_it_was_written(entry in entries()) {
            prop_assert_eq!(RowEntry::decode(&encoded(&entry)), Ok(entry));
        }

        #[test]
        fn an_entry_cut_off_is_refused_or_ends_after_a_large_value(entry in entries(), cut in any::<proptest::sample::Index>()) {
            let bytes = encoded(&entry);
            let length = cut.index(bytes.len());
            if let Ok(shorter) = RowEntry::decode(&bytes[..length]) {
                prop_assert_eq!((bytes.len() - length) % 24, 0);
                prop_assert_eq!(shorter.large, entry.large[..entry.large.len() - (bytes.len() - length) / 24].to_vec());
            }
        }

        #[test]
        fn any_bytes_are_an_entry_or_an_error(bytes in vec(any::<u8>(), 0..64)) {
            drop(RowEntry::decode(&bytes));
        }
    }

    #[test]
    fn an_entry_of_another_version_or_with_an_epoch_too_great_is_refused() {
        let check = |bytes: &[u8], expect: &str| assert!(RowEntry::decode(bytes).unwrap_err().contains(expect), "{bytes:?}");
        check(&[0x20, 0], "`0x20`");
        check(&[0x14, 0], "`0x14`");
        check(&[0x10, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2], "too great");
        check(&[0x10, 0x80], "cut off");
        check(&[0x10, 0, 7], "left over");
    }
}
