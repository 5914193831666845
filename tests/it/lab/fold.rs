//! What a subscriber holds after all events of a topic.

use std::collections::BTreeMap;

use super::events::{Event, Events, Row};
use super::json::Json;

/// Rows by key; the key is JSON text with its fields in alphabetical order.
pub(crate) type Held = BTreeMap<String, Row>;

/// Rows of a table without a key, each with the number of its copies.
pub(crate) type Copies = BTreeMap<Row, usize>;

impl Events {
    /// Folds the events of a table with a key: `c`, `u` and `r` put a row, `d` and a tombstone remove one, `t` all.
    #[track_caller]
    pub(crate) fn fold(&self, table: &str) -> Held {
        let mut held = Held::new();
        let mut removed = None;
        for event in self.of(table) {
            step(&mut held, &mut removed, event);
        }
        held
    }

    /// As [`Events::fold`], for a stream that missed nothing: only what is held changes or goes, only what is not
    /// held is created.
    #[track_caller]
    pub(crate) fn fold_strictly(&self, table: &str) -> Held {
        let mut held = Held::new();
        let mut removed = None;
        for event in self.of(table) {
            let is_held = held.contains_key(key(event));
            let expected = match event.op() {
                Some("c" | "r") => !is_held,
                Some("u" | "d") => is_held,
                None => !is_held && removed.as_ref().is_some_and(|(change, _)| change == event.change()),
                Some(_) => true,
            };
            assert!(expected, "an event of `{table}` does not follow from those before it: {event:?}");
            step(&mut held, &mut removed, event);
        }
        held
    }

    /// Folds the events of a table without a key, whose changes carry the whole row before them.
    #[track_caller]
    pub(crate) fn fold_rows(&self, table: &str) -> Copies {
        let mut copies = Copies::new();
        for event in self.of(table) {
            if event.op() == Some("t") {
                copies.clear();
            }
            if let Some(before) = event.before() {
                let left =
                    copies.get_mut(before).unwrap_or_else(|| panic!("an event of `{table}` removes a row that is not held: {event:?}"));
                *left -= 1;
                copies.retain(|_, count| *count > 0);
            }
            if let Some(after) = event.after() {
                *copies.entry(after.clone()).or_default() += 1;
            }
        }
        copies
    }
}

/// `removed` is the change that removed a row last, and the row: a key change goes on with it under another key.
fn step(held: &mut Held, removed: &mut Option<(String, Row)>, event: &Event) {
    match event.op() {
        Some("c" | "u" | "r") => {
            let mut row = event.after().expect("a row put has an `after`").clone();
            let moved = removed.as_ref().filter(|(change, _)| change == event.change()).map(|(_, row)| row);
            if let Some(earlier) = held.get(key(event)).or(moved) {
                let unchanged = |name: &str| Some((name.to_owned(), earlier.get(name)?.clone()));
                row.extend(event.unchanged().filter_map(unchanged).collect::<Vec<(String, Json)>>());
            }
            held.insert(key(event).to_owned(), row);
        }
        Some("d") | None => {
            if let Some(row) = held.remove(key(event)) {
                *removed = Some((event.change().to_owned(), row));
            }
        }
        Some("t") => held.clear(),
        Some(op) => panic!("`{op}` is no operation on a row: {event:?}"),
    }
}

/// Empty for `t`, which has none.
fn key(event: &Event) -> &str {
    match event.key.as_deref() {
        None if event.op() == Some("t") => "",
        key => key.unwrap_or_else(|| panic!("an event of a table with a key has none: {event:?}")),
    }
}
