//! One row read in every way there is: by the first load, from the stream (as it came and as it went), by a rebuild.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lab::postgres::Postgres;
use crate::lab::walgate::{SLOT, Walgate};

/// A column of the table `value`, as far as reading its values back is concerned.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) of_type: String,
    pub(crate) form: Form,
}

/// What the README says that a type looks like.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// A string with the server's text, a number, true or false: the server reads it as it is.
    Text,
    Json,
    Base64,
    /// Of elements of another type.
    Array(Box<Column>),
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    value: Option<Value<'a>>,
}

#[derive(Deserialize)]
struct Value<'a> {
    op: &'a str,
    #[serde(borrow)]
    before: Option<&'a RawValue>,
    #[serde(borrow)]
    after: Option<&'a RawValue>,
}

/// Distance between the ids of a row's copies.
const COPY: usize = 1000;

/// Makes the table `value` in `database`, puts `rows` of SQL expressions in and has each read in every way. Gives the
/// JSON of each row, which has to be the same bytes in all of them.
#[track_caller]
pub(crate) fn read(postgres: &Postgres, database: &str, columns: &[Column], rows: &[Vec<String>]) -> Vec<String> {
    let session = postgres.session_in(database);
    let definitions: Vec<String> = columns.iter().enumerate().map(|(at, column)| format!(", c{at} {}", column.of_type)).collect();
    session.sql(&format!("CREATE TABLE value (id int PRIMARY KEY{})", definitions.concat()));
    session.sql("ALTER TABLE value REPLICA IDENTITY FULL");
    for (id, row) in rows.iter().enumerate() {
        session.sql(&format!("INSERT INTO value VALUES ({id}, {})", row.join(", ")));
    }
    let names: Vec<String> = (0..columns.len()).map(|at| format!(", c{at}")).collect();
    let copy = |by: usize| format!("INSERT INTO value SELECT id + {by}{} FROM value WHERE id < {COPY}", names.concat());

    let url = postgres.url_tcp().replace("/shop", &format!("/{database}"));
    let mut walgate = Walgate::of(postgres).set("source.url", url).start();
    walgate.wait_for_state("streaming");
    session.sql(&copy(COPY));
    session.sql(&format!("DELETE FROM value WHERE id >= {COPY}"));
    walgate.wait_until_caught_up(postgres);
    assert!(walgate.stop().success());
    postgres.lose_slot(SLOT);
    session.sql(&copy(2 * COPY));
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(postgres);
    assert!(walgate.stop().success());

    let lines = walgate.lines("public.value");
    // JSON values may hold halves of surrogate pairs, which no validator reads.
    if !lines.iter().any(|line| line.contains("\\ud8")) {
        walgate.assert_events_fit_table("public.value");
    }
    let images: Vec<(&str, usize, &str)> = lines.iter().filter_map(|line| image(line)).collect();
    let image = |id: usize, op: &str| {
        let mut found = images.iter().filter(|(of_op, of_id, _)| *of_op == op && *of_id == id).map(|(_, _, rest)| *rest);
        let only = found.next().unwrap_or_else(|| panic!("row {id} has no event `{op}`"));
        assert_eq!(found.next(), None, "row {id} has one event `{op}`");
        only
    };
    let shown = |id: usize| {
        let loaded = image(id, "r");
        assert_eq!(image(id + COPY, "c"), loaded, "streamed and loaded row");
        assert_eq!(image(id + COPY, "d"), loaded, "deleted and loaded row");
        assert_eq!(image(id + 2 * COPY, "r"), loaded, "rebuilt and loaded row");
        format!("{{{loaded}")
    };
    (0..rows.len()).map(shown).collect()
}

/// The JSON of a column of a row that [`read`] gave.
#[track_caller]
pub(crate) fn column(row: &str, at: usize) -> &str {
    let row: BTreeMap<String, &RawValue> = serde_json::from_str(row).expect("a row is an object");
    row[&format!("c{at}")].get()
}

/// Operation, id, and the image's bytes from the first column after the id on; `None` for a tombstone.
pub(crate) fn image(line: &str) -> Option<(&str, usize, &str)> {
    let line: Line<'_> = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let value = line.value?;
    let image = value.after.or(value.before).expect("a row has an image").get();
    let (id, rest) = image.strip_prefix("{\"id\":").and_then(|rest| rest.split_once(',')).expect("the id comes first");
    Some((value.op, id.parse().expect("an id is a number"), rest))
}
