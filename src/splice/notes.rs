//! What the stream did to the keys of a table while one of its chunks was open.

use std::collections::HashMap;

use crate::event::digest::key_digest;
use crate::pgoutput::message::Value;

/// Memory of a note besides its values.
const NOTE_BYTES: usize = 96;

/// Notes past this are thrown away, and their chunk begins anew.
const NOTES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A value that an UPDATE carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    Null,
    Text(Box<[u8]>),
}

/// The fold of all notes of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The stream placed the row, or its end, itself: a chunk's row is dropped.
    Settled,
    /// Only some columns came: they lie over the chunk's row. Index: column of the relation.
    Partial(Vec<(usize, Known)>),
}

/// The notes of one open chunk, by key digest.
#[derive(Debug, Default)]
pub struct Notes {
    keys: HashMap<u128, Note>,
    /// A TRUNCATE came: every row of the chunk is dropped.
    truncated: bool,
    overflowed: bool,
    bytes: usize,
}

impl Notes {
    /// INSERT, UPDATE with all values, DELETE, either key of a key change.
    pub fn settled(&mut self, index_key: &[u8]) {
        if self.has_room(NOTE_BYTES) {
            self.keys.insert(key_digest(index_key), Note::Settled);
        }
    }

    /// Room for a note; where there is none, none is kept any more.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        if self.bytes > NOTES_BYTES_MAX {
            self.keys = HashMap::new();
            self.overflowed = true;
        }
        !self.overflowed
    }

    /// UPDATE with a value missing. `row` has [`Value::Unchanged`] where it is.
    pub fn partial(&mut self, index_key: &[u8], row: &[Value<'_>]) {
        let carried = |value: &Value<'_>| if let Value::Text(text) = value { text.len() } else { 0 };
        if !self.has_room(NOTE_BYTES + row.iter().map(carried).sum::<usize>()) {
            return;
        }
        let note = self.keys.entry(key_digest(index_key)).or_insert_with(|| Note::Partial(Vec::new()));
        let Note::Partial(values) = note else { return };
        for (column, value) in row.iter().enumerate() {
            let known = match value {
                Value::Unchanged => continue,
                Value::Null => Known::Null,
                Value::Text(text) => Known::Text((*text).into()),
            };
            match values.iter_mut().find(|(of, _)| *of == column) {
                Some((_, held)) => *held = known,
                None => values.push((column, known)),
            }
        }
    }

    pub fn truncate(&mut self) {
        self.truncated = true;
        self.keys.clear();
    }

    /// What became of a key of the chunk; `None`: nothing, its row stands.
    #[must_use]
    pub fn of(&self, index_key: &[u8]) -> Option<&Note> {
        if self.truncated { Some(&Note::Settled) } else { self.keys.get(&key_digest(index_key)) }
    }

    /// Whether notes were thrown away for want of room: the chunk cannot be placed.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_values_lie_over_earlier_ones_and_a_whole_row_settles_it() {
        let mut notes = Notes::default();
        notes.partial(b"k", &[Value::Text(b"1"), Value::Unchanged, Value::Null]);
        notes.partial(b"k", &[Value::Text(b"2"), Value::Unchanged, Value::Null]);
        let expect = Note::Partial(vec![(0, Known::Text((*b"2").into())), (2, Known::Null)]);
        assert_eq!(notes.of(b"k"), Some(&expect));
        notes.settled(b"k");
        notes.partial(b"k", &[Value::Text(b"3"), Value::Unchanged, Value::Null]);
        assert_eq!(notes.of(b"k"), Some(&Note::Settled));
        assert_eq!(notes.of(b"other"), None);
    }

    #[test]
    fn notes_that_grow_too_large_say_so_and_are_kept_no_more() {
        let mut notes = Notes::default();
        let large = vec![b'x'; NOTES_BYTES_MAX / 2];
        notes.partial(b"1", &[Value::Text(&large)]);
        assert!(!notes.overflowed());
        notes.partial(b"2", &[Value::Text(&large)]);
        assert!(notes.overflowed() && notes.of(b"1").is_none());
    }

    #[test]
    fn a_truncate_drops_every_row_of_the_chunk() {
        let mut notes = Notes::default();
        notes.truncate();
        assert_eq!(notes.of(b"never noted"), Some(&Note::Settled));
    }
}
