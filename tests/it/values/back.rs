//! From JSON back to PostgreSQL's value, by the README's rules, with PostgreSQL as the judge.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::thrice::{Column, Form};
use crate::lab::sql::Session;

/// Settings under which the server's text is the one that the README speaks of.
const SETTINGS: &str = "SET client_encoding = 'UTF8'; SET datestyle = 'ISO'; SET timezone = 'UTC'; SET intervalstyle = 'postgres'; \
     SET extra_float_digits = 1; SET bytea_output = 'hex'; SET lc_monetary = 'C'; SET xmloption = 'content'";

/// The values of the rows of the table `value`, read back from their JSON, are what the table has.
#[track_caller]
pub(crate) fn check(session: &Session, columns: &[Column], shown: &[String]) {
    session.sql(SETTINGS);
    let mut wrong = Vec::new();
    for (id, row) in shown.iter().enumerate() {
        let row: BTreeMap<String, &RawValue> = serde_json::from_str(row).expect("a row is an object");
        assert_eq!(row.len(), columns.len(), "every column is there");
        let same = |(at, column): (usize, &Column)| {
            let json = row.get(&format!("c{at}")).expect("the column is there").get();
            // The output function of every type, and NULL as no other value; equality of the type itself would be weaker.
            format!("format('%L', {}) = format('%L', c{at})", sql(column, json))
        };
        let same: Vec<String> = columns.iter().enumerate().map(same).collect();
        let answers = session.sql(&format!("SELECT {} FROM value WHERE id = {id}", same.join(", ")));
        for (at, answer) in answers[0].iter().enumerate() {
            if answer.as_deref() != Some("t") {
                let is = session.sql(&format!("SELECT c{at}::text FROM value WHERE id = {id}"));
                let of_type = &columns[at].of_type;
                wrong.push(format!("{of_type}: {} comes back as another value than {:?}", row[&format!("c{at}")].get(), is.maybe()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An expression for the value that `json` stands for.
fn sql(column: &Column, json: &str) -> String {
    let Column { of_type, form } = column;
    match (form, json.as_bytes()) {
        (_, b"null") => format!("NULL::{of_type}"),
        (Form::Json, _) => format!("{}::{of_type}", literal(json)),
        (Form::Base64, _) => format!("decode({}, 'base64')::{of_type}", literal(&text(json))),
        (Form::Array(element), [b'[', ..]) => format!("{}::{of_type}", array(element, json)),
        (_, [b'{', ..]) => {
            let bytes: BTreeMap<String, String> = serde_json::from_str(json).expect("bytes in base64");
            format!("convert_from(decode({}, 'base64'), 'SQL_ASCII')::{of_type}", literal(&bytes["base64"]))
        }
        (_, [b'"', ..]) => format!("{}::{of_type}", literal(&text(json))),
        _ => format!("{}::{of_type}", literal(json)),
    }
}

fn array(element: &Column, json: &str) -> String {
    let values: Vec<&RawValue> = serde_json::from_str(json).expect("an array");
    let is_dimension = |json: &str| json.starts_with('[') && !matches!(element.form, Form::Array(_) | Form::Json);
    let value = |value: &&RawValue| if is_dimension(value.get()) { array(element, value.get()) } else { sql(element, value.get()) };
    let values: Vec<String> = values.iter().map(value).collect();
    // An element that is an array itself, of a domain, has to stay one.
    if values.is_empty() { "'{}'".to_owned() } else { format!("ARRAY[{}]", values.join(", ")) }
}

fn text(json: &str) -> String {
    serde_json::from_str(json).expect("a string")
}

/// `text` as a literal, whatever is in it.
pub(crate) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
