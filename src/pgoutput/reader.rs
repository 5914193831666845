//! A checked cursor over one message: big-endian integers, NUL-terminated names, lengths and counts.
//!
//! The bytes come from the network. Every read is checked, every failure names the message, the field and the
//! bytes; nothing here can panic, and nothing allocates.

use std::fmt;

use crate::lsn::{Lsn, Oid};

/// The first byte of a message, which says what it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub u8);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.escape_ascii(), f)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The server's bytes are not a message of pgoutput, protocol version 1. Values of rows are never quoted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the message is empty")]
    Empty,
    #[error("no message of protocol version 1 has the tag `{0}`")]
    UnknownTag(Tag),
    #[error("message `{tag}` ends inside its {field}: {wanted} bytes are due, {left} are left")]
    Short { tag: Tag, field: &'static str, wanted: usize, left: usize },
    #[error("message `{tag}` ends inside its {field}: no zero byte in the {left} bytes that are left")]
    Unterminated { tag: Tag, field: &'static str, left: usize },
    #[error("message `{tag}` has an invalid {field}: not UTF-8; is the database's encoding SQL_ASCII?")]
    NotUtf8 { tag: Tag, field: &'static str },
    #[error("message `{tag}` has a negative {field}: `{found}`")]
    Negative { tag: Tag, field: &'static str, found: i32 },
    #[error("message `{tag}` has the {field} `{}`: expected {expected}", Tag(*found))]
    Unexpected { tag: Tag, field: &'static str, found: u8, expected: &'static str },
    #[error("message `{tag}` goes on for {left} bytes after its end")]
    Trailing { tag: Tag, left: usize },
}

/// What is left of one message.
pub struct Reader<'a> {
    tag: Tag,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Takes the tag off the front of a message.
    pub(super) fn new(message: &'a [u8]) -> Result<(u8, Self), DecodeError> {
        let (&tag, bytes) = message.split_first().ok_or(DecodeError::Empty)?;
        Ok((tag, Self { tag: Tag(tag), bytes }))
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    pub(super) fn left(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn take(&mut self, field: &'static str, wanted: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, left) = self.bytes.split_at_checked(wanted).ok_or_else(|| self.short(field, wanted))?;
        self.bytes = left;
        Ok(taken)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.chunk(field).map(u8::from_be_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.chunk(field).map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.chunk(field).map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.chunk(field).map(i64::from_be_bytes)
    }

    pub(super) fn lsn(&mut self, field: &'static str) -> Result<Lsn, DecodeError> {
        self.chunk(field).map(u64::from_be_bytes).map(Lsn::new)
    }

    pub(super) fn oid(&mut self, field: &'static str) -> Result<Oid, DecodeError> {
        self.u32(field).map(Oid::new)
    }

    /// A NUL-terminated name.
    pub(super) fn name(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let end = memchr::memchr(0, self.bytes).ok_or(DecodeError::Unterminated { tag: self.tag, field, left: self.bytes.len() })?;
        let name = self.take(field, end)?;
        self.take(field, 1)?;
        std::str::from_utf8(name).map_err(|_| DecodeError::NotUtf8 { tag: self.tag, field })
    }

    /// A 32-bit length in bytes.
    pub(super) fn length(&mut self, field: &'static str) -> Result<usize, DecodeError> {
        let found = self.i32(field)?;
        usize::try_from(found).map_err(|_| DecodeError::Negative { tag: self.tag, field, found })
    }

    /// A 32-bit number of items, each at least `item_bytes` long: no more of them than can be there.
    pub(super) fn count_of_32_bits(&mut self, field: &'static str, item_bytes: usize) -> Result<usize, DecodeError> {
        let found = self.i32(field)?;
        self.count(field, found, item_bytes)
    }

    /// The same with 16 bits.
    pub(super) fn count_of_16_bits(&mut self, field: &'static str, item_bytes: usize) -> Result<usize, DecodeError> {
        let found = self.chunk(field).map(i16::from_be_bytes)?;
        self.count(field, i32::from(found), item_bytes)
    }

    /// Nothing may be left.
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        let left = self.bytes.len();
        if left == 0 { Ok(()) } else { Err(DecodeError::Trailing { tag: self.tag, left }) }
    }

    fn count(&self, field: &'static str, found: i32, item_bytes: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(found).map_err(|_| DecodeError::Negative { tag: self.tag, field, found })?;
        let wanted = count.saturating_mul(item_bytes);
        if wanted <= self.bytes.len() { Ok(count) } else { Err(self.short(field, wanted)) }
    }

    fn chunk<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (chunk, left) = self.bytes.split_first_chunk::<N>().ok_or_else(|| self.short(field, N))?;
        self.bytes = left;
        Ok(*chunk)
    }

    fn short(&self, field: &'static str, wanted: usize) -> DecodeError {
        DecodeError::Short { tag: self.tag, field, wanted, left: self.bytes.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_message_field_and_bytes() {
        let (_, mut reader) = Reader::new(b"B\x00\x01").unwrap();
        let error = reader.lsn("final LSN").unwrap_err();
        assert_eq!(error.to_string(), "message `B` ends inside its final LSN: 8 bytes are due, 2 are left");
        let (_, mut reader) = Reader::new(b"R\xff\xff\xff\xff").unwrap();
        let error = reader.length("length").unwrap_err();
        assert_eq!(error.to_string(), "message `R` has a negative length: `-1`");
    }

    #[test]
    fn a_tag_that_is_no_letter_is_printed_escaped() {
        assert_eq!(DecodeError::UnknownTag(Tag(0x1B)).to_string(), r"no message of protocol version 1 has the tag `\x1b`");
    }

    #[test]
    fn a_failed_read_takes_nothing() {
        let (_, mut reader) = Reader::new(b"X\x01\x02").unwrap();
        assert!(reader.u32("first").is_err());
        assert!(reader.name("second").is_err());
        assert_eq!(reader.left(), b"\x01\x02");
    }
}
