//! A table as PostgreSQL itself says it is, in the values that the `plain` style promises, compared row by row with
//! what a subscriber holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::events::{Events, Row};
use super::fold::{Copies, Held};
use super::json::Json;
use super::postgres::Postgres;
use super::sql::Session;

/// Differences that a failed comparison shows.
const SHOWN: usize = 10;

impl Events {
    /// Compares the fold of a table's events with `SELECT`.
    #[track_caller]
    pub(crate) fn assert_equals_table(&self, postgres: &Postgres, table: &str) {
        let session = postgres.session();
        let rows = rows(&session, table);
        let key = key_columns(&session, table);
        if key.is_empty() {
            let mut copies = Copies::new();
            for row in rows {
                *copies.entry(row).or_default() += 1;
            }
            let shown = |copies: Copies| copies.into_iter().map(|(row, count)| (Json::Object(row).to_string(), count)).collect();
            assert_same(table, &shown(copies), &shown(self.fold_rows(table)));
        } else {
            let expected: Held = rows.into_iter().map(|row| (key_of(&row, &key), row)).collect();
            let shown = |held: Held| held.into_iter().map(|(key, row)| (key, Json::Object(row))).collect();
            assert_same(table, &shown(expected), &shown(self.fold(table)));
        }
    }
}

#[track_caller]
fn assert_same<V: Display + PartialEq>(table: &str, expected: &BTreeMap<String, V>, found: &BTreeMap<String, V>) {
    let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let difference = |key: &String| match (expected.get(key), found.get(key)) {
        (Some(expected), Some(found)) if expected == found => None,
        (Some(expected), Some(found)) => Some(format!("{key} differs\n  in the table: {expected}\n  in the events: {found}")),
        (Some(expected), None) => Some(format!("{key} is missing from the events: {expected}")),
        (None, Some(found)) => Some(format!("{key} is not in the table: {found}")),
        (None, None) => None,
    };
    let differences: Vec<String> = keys.into_iter().filter_map(difference).collect();
    let shown: Vec<&str> = differences.iter().take(SHOWN).map(String::as_str).collect();
    assert!(differences.is_empty(), "`{table}` and its events differ in {} rows:\n{}", differences.len(), shown.join("\n"));
}

/// All rows of a table: the columns that walgate's publication publishes, generated ones from 18 on.
#[track_caller]
pub(crate) fn rows(session: &Session, table: &str) -> Vec<Row> {
    let columns = session.sql(&format!(
        "SELECT attname, quote_ident(attname), format_type(coalesce(nullif(typbasetype, 0), t.oid), NULL)
         FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
         WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped AND (attgenerated = '' OR attgenerated = 's' AND current_setting('server_version_num')::int >= 180000) ORDER BY attnum"
    ));
    let column = |column: &Vec<Option<String>>| match column.as_slice() {
        [Some(name), Some(quoted), Some(of_type)] => (name.clone(), plain(quoted, of_type)),
        other => panic!("unexpected row of the catalog: {other:?}"),
    };
    let (names, values): (Vec<String>, Vec<String>) = columns.iter().map(column).unzip();
    session.sql(
        "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET bytea_output = 'hex'; SET extra_float_digits = 1",
    );
    let values = session.sql(&format!("SELECT {} FROM {table}", values.join(", ")));
    let value = |text: &Option<String>| text.as_deref().map_or(Json::Null, |text| Json::parse(text).expect("PostgreSQL makes JSON"));
    values.iter().map(|row| names.iter().cloned().zip(row.iter().map(value)).collect()).collect()
}

/// An expression for the JSON text of a column's value: integers and floats as numbers with all their digits, boolean
/// and JSON as such, times as ISO 8601, bytea as base64, arrays as arrays; every other type as the server's text.
fn plain(column: &str, of_type: &str) -> String {
    let is_array = of_type.ends_with("[]");
    let json = match of_type.trim_end_matches("[]") {
        "smallint"
        | "integer"
        | "bigint"
        | "real"
        | "double precision"
        | "boolean"
        | "json"
        | "jsonb"
        | "date"
        | "timestamp without time zone" => {
            format!("to_json({column})")
        }
        "timestamp with time zone" => format!("replace(to_json({column})::text, '+00:00\"', 'Z\"')"),
        "bytea" if !is_array => format!("to_json(translate(encode({column}, 'base64'), E'\\n', ''))"),
        _ if is_array => format!("to_json({column}::text[])"),
        _ => format!("to_json({column}::text)"),
    };
    format!("{json}::text")
}

/// The columns of the replica identity's index, or of the primary key; none where there is neither.
fn key_columns(session: &Session, table: &str) -> Vec<String> {
    let columns = session.sql(&format!(
        "SELECT attname FROM (
             SELECT indrelid, indkey FROM pg_index WHERE indrelid = '{table}'::regclass AND (indisprimary OR indisreplident)
             ORDER BY indisreplident DESC LIMIT 1
         ) key JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)"
    ));
    columns.iter().flatten().flatten().cloned().collect()
}

fn key_of(row: &Row, columns: &[String]) -> String {
    let field = |name: &String| Some((name.clone(), row.get(name)?.clone()));
    Json::Object(columns.iter().filter_map(field).collect()).to_string()
}
