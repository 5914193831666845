//! How the rows of one table are encoded: everything that can be worked out when the relation arrives, so that a
//! row costs nothing but its bytes.
//!
//! A row is a slice of values in the order of the relation's columns, as [`TablePlan::read_row`] makes it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::digest::{ColumnDigest, LARGE_ROW_BYTES, LARGE_VALUE_BYTES, LargeDigest, PartialDigest};
use super::topic::Topic;
use super::value::{self, Kind, TypeFacts};
use crate::config::format::{Format, Style, Unchanged};
use crate::lsn::Oid;
use crate::pgoutput::message::{Tuple, Value};
use crate::pgoutput::relation::{Relation, ReplicaIdentity};

/// What the catalog adds to a Relation message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFacts {
    /// Names of the key's columns in key order; empty: no key.
    pub key: Vec<String>,
    /// The types of its columns that are not built in, and the types those rest on.
    pub types: HashMap<Oid, TypeFacts>,
    /// Names of its columns that hold no NULL.
    pub not_null: HashSet<String>,
    /// The catalog does not know the table any more.
    pub is_gone: bool,
}

/// The encoders of one table's rows. Made anew whenever its relation arrives.
#[derive(Debug)]
pub struct TablePlan {
    relation: Relation,
    topic: Arc<Topic>,
    columns: Vec<Column>,
    /// Positions of the key's columns, in key order.
    key: Vec<usize>,
    /// `"schema":"public","table":"orders"`.
    source: Vec<u8>,
}

#[derive(Debug)]
struct Column {
    /// `,"name":`, the comma to be replaced by the opening brace in the first column of an object.
    label: Vec<u8>,
    kind: Kind,
    digest: ColumnDigest,
    in_identity: bool,
    in_key: bool,
    /// Whether an event may have `null` for it.
    is_nullable: bool,
    /// Stands for a value that an UPDATE left unchanged out of line; empty: the image does not have the column.
    unchanged: Vec<u8>,
    /// Stands for a value that an old row does not have; empty likewise.
    unknown: Vec<u8>,
}

/// Which columns of a row an image shows, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    All,
    /// Those of the replica identity.
    Identity,
    Key,
}

/// A row has no value for a column of its key: the catalog's key is newer than the row, or the server left it out.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a row of `{schema}.{table}` has no value in its key column `{column}`")]
pub struct MissingKey {
    pub schema: String,
    pub table: String,
    pub column: String,
}

/// A row does not have as many values as its relation has columns.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a row of `{schema}.{table}` has {found} values, but its relation has {expected} columns")]
pub struct ColumnMismatch {
    pub schema: String,
    pub table: String,
    pub expected: usize,
    pub found: usize,
}

impl TablePlan {
    /// The columns of the key are those that the relation marks, for the catalog may be newer than the stream; the catalog
    /// gives their order where it has the same ones. Under `REPLICA IDENTITY FULL` and `NOTHING` nothing is marked, so
    /// that the catalog's key is the key.
    #[must_use]
    pub fn new(relation: Relation, facts: &TableFacts, topic: Arc<Topic>, format: &Format) -> Self {
        let key = key_positions(&relation, &facts.key);
        let columns = relation.columns.iter().enumerate().map(|(position, column)| {
            let kind = value::kind_of(column.type_oid, column.typmod, &facts.types, format.style);
            let (mut unchanged, mut unknown) = (Vec::new(), Vec::new());
            if let Unchanged::Placeholder(text) = &format.unchanged {
                value::write_placeholder(&kind, text, &mut unchanged);
            }
            if let Style::Debezium(_) = format.style {
                value::write_filler(&kind, !facts.not_null.contains(&column.name), &mut unknown);
            }
            Column {
                label: label(&column.name),
                is_nullable: !facts.not_null.contains(&column.name) || unchanged == b"null",
                kind,
                digest: ColumnDigest::new(&column.name),
                in_identity: column.in_identity,
                in_key: key.contains(&position),
                unchanged,
                unknown,
            }
        });
        let columns = columns.collect();
        let source = source_fragment(&relation.schema, &relation.name);
        Self { relation, topic, columns, key, source }
    }

    #[must_use]
    pub fn relation(&self) -> &Relation {
        &self.relation
    }

    #[must_use]
    pub fn topic(&self) -> &Arc<Topic> {
        &self.topic
    }

    #[must_use]
    pub fn has_key(&self) -> bool {
        !self.key.is_empty()
    }

    /// Whether the columns of the key are these, in this order, and their values are written in this form.
    #[must_use]
    pub fn has_key_of(&self, names: &[String], form: &str) -> bool {
        self.key_names().eq(names.iter().map(String::as_str)) && self.key_form() == form
    }

    /// How the values of the key are written: a digest of the kinds of its columns. Another version of the program may give
    /// another one, at the cost of rows that are sent again.
    #[must_use]
    pub fn key_form(&self) -> String {
        let kinds: Vec<String> = self.key.iter().filter_map(|&position| Some(format!("{:?}", self.columns.get(position)?.kind))).collect();
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64(kinds.join(",").as_bytes()))
    }

    /// Names of the key's columns, in key order.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        self.key.iter().filter_map(|&position| self.relation.columns.get(position)).map(|column| column.name.as_str())
    }

    /// Name and kind of each column, and whether an event may have `null` for it.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Kind, bool)> {
        let columns = self.relation.columns.iter().zip(&self.columns);
        columns.map(|(of_relation, column)| (of_relation.name.as_str(), &column.kind, column.is_nullable))
    }

    /// The values of `tuple` into `row`, whatever was in it before.
    ///
    /// # Errors
    /// The tuple is not one of this relation.
    pub fn read_row<'a>(&self, tuple: &Tuple<'a>, row: &mut Vec<Value<'a>>) -> Result<(), ColumnMismatch> {
        if tuple.len() != self.columns.len() {
            let Relation { schema, name, .. } = self.relation.clone();
            return Err(ColumnMismatch { schema, table: name, expected: self.columns.len(), found: tuple.len() });
        }
        row.clear();
        row.extend(tuple.values());
        Ok(())
    }

    /// Puts values that the server left out of `new` in from `old`, where `old` has them: all columns of a full old
    /// tuple, those of the identity in a key tuple.
    pub fn fill_unchanged<'a>(&self, new: &mut [Value<'a>], old: &[Value<'a>], old_columns: Columns) {
        for ((value, old), column) in new.iter_mut().zip(old).zip(&self.columns) {
            if *value == Value::Unchanged && column.is_in(old_columns) {
                *value = *old;
            }
        }
    }

    /// The key as the row index holds it: for each key column a length (LEB128) and the server's text.
    ///
    /// # Errors
    /// A value of the key is not there; what was written of the key is taken back.
    pub fn write_index_key(&self, row: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), MissingKey> {
        let start = out.len();
        for &position in &self.key {
            let Some(Value::Text(text)) = row.get(position) else {
                out.truncate(start);
                return Err(self.missing_key(position));
            };
            write_leb128(text.len(), out);
            out.extend_from_slice(text);
        }
        Ok(())
    }

    /// The row of which only an index key is left: its key columns have values, the others are unknown
    /// ([`Value::Unchanged`]). `None` if `key` was not written for a key of so many columns.
    #[must_use]
    pub fn row_of_index_key<'k>(&self, key: &'k [u8]) -> Option<Vec<Value<'k>>> {
        let mut row = vec![Value::Unchanged; self.columns.len()];
        let mut rest = key;
        for &position in &self.key {
            let (length, after) = read_leb128(rest)?;
            let (text, after) = after.split_at_checked(length)?;
            *row.get_mut(position)? = Value::Text(text);
            rest = after;
        }
        rest.is_empty().then_some(row)
    }

    /// The key as a JSON object, in key order. A value that is not there is `null`.
    pub fn write_key(&self, row: &[Value<'_>], out: &mut Vec<u8>) {
        let start = out.len();
        for (column, value) in self.key.iter().filter_map(|&position| Some((self.columns.get(position)?, *row.get(position)?))) {
            column.write(value, b"null", out);
        }
        close_object(start, out);
    }

    /// The image of a row as a JSON object, in the order of the table. Columns without a known value are left out, or have
    /// what stands for it.
    pub fn write_image(&self, row: &[Value<'_>], columns: Columns, out: &mut Vec<u8>) {
        let start = out.len();
        for (column, value) in self.columns.iter().zip(row) {
            let known = if column.is_in(columns) { *value } else { Value::Unchanged };
            let instead = if columns == Columns::All { &column.unchanged } else { &column.unknown };
            column.write(known, instead, out);
        }
        close_object(start, out);
    }

    /// Names of the columns whose values the server left out of `row`.
    pub fn unchanged<'s>(&'s self, row: &'s [Value<'_>]) -> impl Iterator<Item = &'s str> {
        let columns = self.relation.columns.iter().zip(row);
        columns.filter(|(_, value)| **value == Value::Unchanged).map(|(column, _)| column.name.as_str())
    }

    /// What `row` says of the row's digest; see [`PartialDigest::completed`].
    #[must_use]
    pub fn digest(&self, row: &[Value<'_>]) -> PartialDigest {
        let is_large = is_large(row);
        let mut digest = PartialDigest { known: 0, unchanged: Vec::new(), large: Vec::new() };
        for (Column { digest: column, .. }, value) in self.columns.iter().zip(row) {
            let part = match value {
                Value::Null => column.null,
                Value::Text(text) => {
                    let part = column.of_text(text);
                    if is_large && text.len() >= LARGE_VALUE_BYTES {
                        digest.large.push(LargeDigest { column: column.column, digest: part });
                    }
                    part
                }
                Value::Unchanged => {
                    digest.unchanged.push(column.column);
                    continue;
                }
            };
            digest.known = digest.known.wrapping_add(part);
        }
        digest
    }

    /// `"schema":…,"table":…`, as the source block of an event has it.
    pub(super) fn source(&self) -> &[u8] {
        &self.source
    }

    fn missing_key(&self, position: usize) -> MissingKey {
        let Relation { schema, name, columns, .. } = &self.relation;
        let column = columns.get(position).map_or_else(String::new, |column| column.name.clone());
        MissingKey { schema: schema.clone(), table: name.clone(), column }
    }
}

impl Column {
    fn is_in(&self, columns: Columns) -> bool {
        match columns {
            Columns::All => true,
            Columns::Identity => self.in_identity,
            Columns::Key => self.in_key,
        }
    }

    /// Name and value; `instead` of a value that is not there, or neither where that is empty.
    fn write(&self, value: Value<'_>, instead: &[u8], out: &mut Vec<u8>) {
        match value {
            Value::Unchanged if instead.is_empty() => {}
            Value::Unchanged => {
                out.extend_from_slice(&self.label);
                out.extend_from_slice(instead);
            }
            Value::Null => {
                out.extend_from_slice(&self.label);
                out.extend_from_slice(b"null");
            }
            Value::Text(text) => {
                out.extend_from_slice(&self.label);
                value::write(&self.kind, text, out);
            }
        }
    }
}

/// Makes an object of the columns written from `start` on.
fn close_object(start: usize, out: &mut Vec<u8>) {
    match out.get_mut(start) {
        Some(comma) => *comma = b'{',
        None => out.push(b'{'),
    }
    out.push(b'}');
}

/// Whether values of this row may be stored out of line; certainly where one is.
fn is_large(row: &[Value<'_>]) -> bool {
    let mut bytes = 0;
    for value in row {
        match value {
            Value::Null => {}
            Value::Text(text) => bytes += text.len(),
            Value::Unchanged => return true,
        }
    }
    bytes >= LARGE_ROW_BYTES
}

fn key_positions(relation: &Relation, key: &[String]) -> Vec<usize> {
    let position_of = |name: &String| relation.columns.iter().position(|column| column.name == *name);
    let of_catalog: Option<Vec<usize>> = key.iter().map(position_of).collect();
    match relation.identity {
        ReplicaIdentity::Full | ReplicaIdentity::Nothing => of_catalog.unwrap_or_default(),
        ReplicaIdentity::Default | ReplicaIdentity::Index => {
            let marked = relation.columns.iter().enumerate().filter(|(_, column)| column.in_identity);
            let marked: Vec<usize> = marked.map(|(position, _)| position).collect();
            of_catalog.filter(|key| key.len() == marked.len() && marked.iter().all(|position| key.contains(position))).unwrap_or(marked)
        }
    }
}

/// Whether rows of the relation can be told apart, see [`TablePlan::new`].
#[must_use]
pub fn is_keyed(relation: &Relation, facts: &TableFacts) -> bool {
    !key_positions(relation, &facts.key).is_empty()
}

fn label(name: &str) -> Vec<u8> {
    let mut label = vec![b','];
    value::string::write(name, &mut label);
    label.push(b':');
    label
}

/// `"schema":…,"table":…` of the source block.
pub(super) fn source_fragment(schema: &str, table: &str) -> Vec<u8> {
    let mut fragment = b"\"schema\":".to_vec();
    value::string::write(schema, &mut fragment);
    fragment.extend_from_slice(b",\"table\":");
    value::string::write(table, &mut fragment);
    fragment
}

#[expect(clippy::cast_possible_truncation, reason = "the low seven bits, then the rest")]
fn write_leb128(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The values of an index key, in key order; `None` if it is not one.
#[must_use]
pub fn index_key_values(key: &[u8]) -> Option<Vec<&[u8]>> {
    let mut values = Vec::new();
    let mut rest = key;
    while !rest.is_empty() {
        let (length, after) = read_leb128(rest)?;
        let (text, after) = after.split_at_checked(length)?;
        values.push(text);
        rest = after;
    }
    Some(values)
}

/// The number at the front and what follows it; only as [`write_leb128`] writes it.
fn read_leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut number = 0;
    let mut rest = bytes;
    for shift in (0..usize::BITS).step_by(7) {
        let (byte, after) = rest.split_first()?;
        let bits = usize::from(byte & 0x7F);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        rest = after;
        if byte & 0x80 == 0 {
            return (*byte != 0 || shift == 0).then_some((number, rest));
        }
    }
    None
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
