//! The vocabulary of positions: what PostgreSQL counts in, parsed once and never a bare integer afterwards.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A byte position in the write-ahead log, printed as PostgreSQL prints it: `16/B374D848`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// `0/0`, which PostgreSQL calls invalid: no record lies there.
    pub const INVALID: Self = Self(0);

    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Bytes of log from `earlier` to `self`; 0 where `earlier` is not earlier.
    #[must_use]
    pub const fn bytes_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not an LSN of the form `X/X`, each half at most eight hexadecimal digits.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not an LSN: expected two hexadecimal halves such as `16/B374D848`")]
pub struct ParseLsnError(String);

impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let half = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        text.split_once('/')
            .and_then(|(high, low)| Some(Self(u64::from(half(high)?) << 32 | u64::from(half(low)?))))
            .ok_or_else(|| ParseLsnError(text.to_owned()))
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A transaction id as pgoutput sends it: 32 bits that wrap. Never compared by size; see [`Xid::widen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Xid(u32);

impl Xid {
    #[must_use]
    pub const fn new(xid: u32) -> Self {
        Self(xid)
    }

    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// The 64-bit transaction id nearest to `near` that has these low 32 bits.
    /// Right while the two are less than 2³¹ transactions apart, which PostgreSQL enforces.
    #[must_use]
    pub fn widen(self, near: u64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "the low half, as a signed distance")]
        let distance = self.0.wrapping_sub(near as u32) as i32;
        near.wrapping_add_signed(i64::from(distance))
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// An object id of the catalog (`pg_class.oid`, `pg_type.oid`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Oid(u32);

impl Oid {
    #[must_use]
    pub const fn new(oid: u32) -> Self {
        Self(oid)
    }

    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_prints_what_it_parses() {
        for text in ["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"] {
            assert_eq!(text.parse::<Lsn>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn lsn_refuses_what_postgresql_would_not_print() {
        for text in ["", "1", "/", "1/", "/1", "100000000/0", "0/100000000", "+1/0", "1/0/0", "G/0", " 1/0"] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }

    #[test]
    fn xid_widens_to_the_nearest_epoch() {
        let check = |xid: u32, near: u64, expect: u64| assert_eq!(Xid::new(xid).widen(near), expect);
        check(735, 736, 735);
        check(735, 30_064_771_808, 30_064_771_072 + 735);
        check(u32::MAX, 1 << 32, (1 << 32) - 1);
        check(3, (1 << 32) - 1, (1 << 32) + 3);
    }
}
