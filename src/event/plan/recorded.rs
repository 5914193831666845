//! What PostgreSQL 15 sent for one row of most types, for updates that leave a value out of line, for a key change
//! and for a delete, recorded with the session settings that walgate uses.

use super::*;
use crate::pgoutput::message::{Message, OldTuple, decode};

const RECORDED: &str = include_str!("recorded.hex");

/// One line for each image, in the order of the stream.
const EXPECTED: &str = include_str!("recorded.jsonl");

/// The catalog of the recorded database, as far as types are concerned.
fn types() -> HashMap<Oid, TypeFacts> {
    let facts = |oid: u32, base: u32, element: Option<u32>| {
        (
            Oid::new(oid),
            TypeFacts { name: String::new(), base: Oid::new(base), typmod: -1, element: element.map(Oid::new), delimiter: b',' },
        )
    };
    let (mood, price, grid) = (16_408, 16_414, 16_416);
    let (moods, prices, grids) = (mood - 1, price - 1, grid - 1);
    let domains = [facts(price, 1700, None), facts(grid, 1007, None)];
    let others =
        [facts(mood, mood, None), facts(moods, moods, Some(mood)), facts(prices, prices, Some(price)), facts(grids, grids, Some(grid))];
    domains.into_iter().chain(others).collect()
}

fn bytes_of(line: &str) -> Vec<u8> {
    let digits: Vec<u8> = line.chars().map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn columns_of(old: &OldTuple<'_>) -> Columns {
    match old {
        OldTuple::Key(_) => Columns::Identity,
        OldTuple::Full(_) => Columns::All,
    }
}

#[test]
fn what_a_server_sent_is_decoded_and_shown_as_expected() {
    let facts = TableFacts { key: vec!["part".to_owned(), "id".to_owned()], types: types(), not_null: HashSet::new(), is_gone: false };
    let topic = Arc::new(Topic { name: "shop.public.types".to_owned(), keyed: true });
    let mut plan = None;
    let mut shown = String::new();
    for line in RECORDED.lines() {
        let bytes = bytes_of(line);
        let mut show = |tuple: Tuple<'_>, columns| {
            let plan: &TablePlan = plan.as_ref().unwrap();
            let (mut row, mut image) = (Vec::new(), Vec::new());
            plan.read_row(&tuple, &mut row).unwrap();
            plan.write_image(&row, columns, &mut image);
            shown.push_str(std::str::from_utf8(&image).unwrap());
            shown.push('\n');
        };
        match decode(&bytes).unwrap() {
            Message::Relation(relation) => {
                plan = Some(TablePlan::new(relation, &facts, Arc::clone(&topic), &Format::default()));
            }
            Message::Insert { new, .. } | Message::Update { old: None, new, .. } => show(new, Columns::All),
            Message::Update { old: Some(old), new, .. } => {
                show(*old.tuple(), columns_of(&old));
                show(new, Columns::All);
            }
            Message::Delete { old, .. } => show(*old.tuple(), columns_of(&old)),
            Message::Begin { .. } | Message::Commit { .. } | Message::Origin { .. } | Message::Type { .. } | Message::Truncate { .. } => {}
            Message::Logical { prefix, content, .. } => assert_eq!((prefix, content), ("audit", b"content".as_slice())),
        }
    }
    assert_eq!(shown, EXPECTED);
}
