//! Digests: what the row index remembers of a row, and what the dedup window remembers of a transaction.
//!
//! A row's digest is the sum, modulo 2¹²⁸, of one XXH3 digest per column over the column's name and the server's text.
//! So the order of columns does not matter, nor do formats and styles, and the part of a column can be put in later:
//! an update that leaves a value out of line does not send it, but if the index kept that value's part, the digest
//! of the whole row is still known.
//!
//! XXH3 is no cryptographic hash. Someone who may write to the table could make two values of one digest, and would
//! then see a rebuild leave out a change of their own row; no other row suffers.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed, xxh3_128_with_seed};

/// Stored with every digest and mixed into it: digests of two versions are never equal by accident.
/// Raise it when anything here changes the digest of any row; rows known by an older one are then sent again.
pub const DIGEST_VERSION: u8 = 1;

const SEED: u64 = DIGEST_VERSION as u64;

/// Bytes of text from which on a value may be stored out of line. A shorter one stays in its row in practice.
pub const LARGE_VALUE_BYTES: usize = 64;

/// Bytes of text of all values together from which on a row may have values out of line. PostgreSQL moves values out
/// of rows above 2 kB; text is up to four times shorter than what it stands for (`{0,0}` as `float8[]`). Where this
/// is too high for a table (a low `toast_tuple_target`), digests become unknown, and a rebuild sends a row that
/// did not change; nothing is lost. Where it is too low, the index is larger.
pub const LARGE_ROW_BYTES: usize = 512;

/// What identifies the content of a row. Two rows have the same content when their totals are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowDigest {
    /// The sum over all columns; `None` while the part of a column is unknown.
    pub total: Option<u128>,
    /// The parts of large values, so that they can be taken over by an update that does not send them.
    pub large: Vec<LargeDigest>,
}

/// The part of one large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeDigest {
    /// Hash of the column's name.
    pub column: u64,
    pub digest: u128,
}

/// What one image of a row says of its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialDigest {
    /// The sum over the columns whose values are there.
    pub(super) known: u128,
    /// Hashes of the names of the columns whose values the server left out.
    pub(super) unchanged: Vec<u64>,
    pub(super) large: Vec<LargeDigest>,
}

impl PartialDigest {
    /// Whether the image has every value, so that nothing kept is needed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unchanged.is_empty()
    }

    /// The row's digest, with the parts of unchanged values taken from `kept`: what the index kept of the same row,
    /// nothing if it does not know the row. The total is unknown unless every unchanged column is there.
    #[must_use]
    pub fn completed(self, kept: &[LargeDigest]) -> RowDigest {
        let Self { known, unchanged, mut large } = self;
        let part_of = |column: u64| kept.iter().find(|part| part.column == column).copied();
        let total = unchanged.iter().try_fold(known, |sum, &column| part_of(column).map(|part| sum.wrapping_add(part.digest)));
        large.extend(unchanged.into_iter().filter_map(part_of));
        RowDigest { total, large }
    }
}

/// The digests of one column's values.
#[derive(Clone, Debug)]
pub(super) struct ColumnDigest {
    /// Hash of the column's name: how the index names the column, and the seed of its values.
    pub(super) column: u64,
    /// The part of NULL, which no text has.
    pub(super) null: u128,
}

impl ColumnDigest {
    pub(super) fn new(name: &str) -> Self {
        let column = xxh3_64_with_seed(name.as_bytes(), SEED);
        Self { column, null: xxh3_128_with_seed(&[], !column) }
    }

    pub(super) fn of_text(&self, text: &[u8]) -> u128 {
        xxh3_128_with_seed(text, self.column)
    }
}

/// The digest of a row's key, as ids of placed events and messages about rows name it: never the key itself.
#[must_use]
pub fn key_digest(index_key: &[u8]) -> u128 {
    xxh3_128_with_seed(index_key, SEED)
}

/// The digest of a transaction's messages, in order; its value is there at any point, as a split transaction needs.
#[derive(Clone)]
pub struct TransactionDigest(Xxh3);

impl TransactionDigest {
    #[must_use]
    pub fn new() -> Self {
        Self(Xxh3::with_seed(SEED))
    }

    /// Takes in the next message, and its length, so that the same bytes cut in another way give another digest.
    pub fn update(&mut self, message: &[u8]) {
        self.0.update(&(message.len() as u64).to_le_bytes());
        self.0.update(message);
    }

    /// The digest of the messages so far.
    #[must_use]
    pub fn value(&self) -> u128 {
        self.0.digest128()
    }
}

impl Default for TransactionDigest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_messages(messages: &[&[u8]]) -> u128 {
        let mut digest = TransactionDigest::new();
        for message in messages {
            digest.update(message);
        }
        digest.value()
    }

    #[test]
    fn a_transaction_digest_depends_on_where_messages_end_and_on_their_order() {
        let digests =
            [of_messages(&[]), of_messages(&[b""]), of_messages(&[b"ab", b"c"]), of_messages(&[b"a", b"bc"]), of_messages(&[b"c", b"ab"])];
        for (place, digest) in digests.iter().enumerate() {
            assert!(!digests[..place].contains(digest), "{place}");
        }
    }

    #[test]
    fn a_transaction_digest_is_that_of_its_prefix_at_any_point() {
        let mut digest = TransactionDigest::new();
        let long = [7; 5_000];
        digest.update(&long);
        let prefix = digest.clone();
        digest.update(b"more");
        assert_eq!(prefix.value(), of_messages(&[&long]));
        assert_eq!(digest.value(), of_messages(&[&long, b"more"]));
    }

    /// A store holds these: another value means another [`DIGEST_VERSION`].
    #[test]
    fn digests_of_this_version_are_these() {
        let column = ColumnDigest::new("id");
        assert_eq!(DIGEST_VERSION, 1);
        assert_eq!(format!("{:016x}", column.column), "29ebc00dd72f7d51");
        assert_eq!(format!("{:032x}", column.null), "b268676f8cb0e93682e76c22d8d2db77");
        assert_eq!(format!("{:032x}", column.of_text(b"")), "018026c5e884f2d845550d59b73ce2b0");
        assert_eq!(format!("{:032x}", column.of_text(b"42")), "e7f67f792fd23dd6328a7babb6fbaaf1");
        assert_eq!(format!("{:032x}", key_digest(b"\x0242")), "091a77a7c6620ebddebbaa6ca98c1d9c");
        assert_eq!(format!("{:032x}", of_messages(&[b"I"])), "aaa9e146b47c8a209d036b2faf2cb891");
    }
}
