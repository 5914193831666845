//! One chunk: which rows it asks for, and the statements that read them.

use crate::lsn::Lsn;
use crate::pgoutput::message::Value;
use crate::postgres::catalog::{CatalogTable, Comparison, Leaf};
use crate::postgres::{quote_identifier, quote_literal_bytes, quote_table};
use crate::splice::snapshot::Snapshot;

/// A place in a heap: block and 1-based offset, as in `ctid`.
pub type Tid = (u32, u16);

/// The rows of a chunk. Ranges are half-open, tile their leaf, and the last one has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// Of one leaf: from `from`, before `before`.
    Heap { leaf: Leaf, from: Tid, before: Option<Tid> },
    /// All rows, of all leaves with one snapshot: for tables without a key.
    Whole { leaves: Vec<Leaf> },
    /// Rows with these index keys, in any leaf.
    Keys { leaves: Vec<Leaf>, keys: Vec<Vec<u8>> },
}

/// What a chunk's snapshot has to see before it may be used (step 2c).
#[derive(Clone, Debug, Default)]
pub struct MustSee {
    /// Transactions emitted before noting began.
    pub before: Vec<crate::lsn::Xid>,
    /// The snapshot exported with the slot.
    pub exported: Option<Snapshot>,
    /// The snapshot's xmin has to have reached these transaction ids; 0: none.
    pub fence: u64,
}

impl MustSee {
    /// Whether `snapshot` may be used.
    #[must_use]
    pub fn is_met_by(&self, snapshot: &Snapshot) -> bool {
        self.before.iter().all(|xid| snapshot.sees(*xid)) && self.fence_passed_by(snapshot)
    }

    /// The second and third condition alone: once they held for a slot they hold for good.
    #[must_use]
    pub fn fence_passed_by(&self, snapshot: &Snapshot) -> bool {
        snapshot.xmin() >= self.fence && self.exported.as_ref().is_none_or(|exported| snapshot.sees_all_of(exported))
    }
}

/// The log position that the stream has to pass, from the insert position read with the snapshot (step 3): a
/// position just behind a segment's or page's header is where the record before it ended, and the stream of an
/// idle server stops there. Never rounded from another offset: a record may end close behind a header too.
#[must_use]
pub fn position_to_pass(insert_lsn: Lsn, wal_segment_size: u64, wal_block_size: u64) -> Lsn {
    const LONG_HEADER: u64 = 40;
    const SHORT_HEADER: u64 = 24;
    let lsn = insert_lsn.as_u64();
    if lsn % wal_segment_size == LONG_HEADER {
        Lsn::new(lsn - LONG_HEADER)
    } else if lsn % wal_block_size == SHORT_HEADER {
        Lsn::new(lsn - SHORT_HEADER)
    } else {
        insert_lsn
    }
}

/// The COPY that reads `range` of `table` from `leaf`: ctid, then the published columns in order.
#[must_use]
pub fn copy_statement(table: &CatalogTable, leaf: &Leaf, condition: &str) -> String {
    let columns: Vec<String> = table.relation.columns.iter().map(|column| format!(", {}", quote_identifier(&column.name))).collect();
    let filter = table.row_filter.as_ref().map(|filter| format!(" AND ({filter})")).unwrap_or_default();
    format!(
        "COPY (SELECT ctid{} FROM ONLY {} WHERE {condition}{filter}) TO STDOUT",
        columns.concat(),
        quote_table(&leaf.schema, &leaf.name)
    )
}

/// The condition of a heap range.
#[must_use]
pub fn heap_condition(from: Tid, before: Option<Tid>) -> String {
    let start = format!("ctid >= '({},{})'::tid", from.0, from.1);
    match before {
        Some((block, offset)) => format!("{start} AND ctid < '({block},{offset})'::tid"),
        None => start,
    }
}

/// The condition of a key list; `keys` are the texts of the key columns in key order.
#[must_use]
pub fn keys_condition(table: &CatalogTable, names: &[String], keys: &[Vec<&[u8]>]) -> String {
    let columns: Vec<(String, &str)> = names
        .iter()
        .map(|name| match table.comparisons.get(name) {
            Some(Comparison { equals, cast }) => (format!("{} {equals} ", quote_identifier(name)), cast.as_str()),
            None => (format!("{} = ", quote_identifier(name)), ""),
        })
        .collect();
    let one = |key: &Vec<&[u8]>| {
        let parts = columns.iter().zip(key).map(|((equals, cast), text)| format!("{equals}{}{cast}", quote_literal_bytes(text)));
        format!("({})", parts.collect::<Vec<_>>().join(" AND "))
    };
    if keys.is_empty() { "false".to_owned() } else { format!("({})", keys.iter().map(one).collect::<Vec<_>>().join(" OR ")) }
}

/// Rows of COPY's text format, unescaped, one after the other: the server's text of each column.
#[derive(Debug, Default)]
pub struct Rows {
    text: Vec<u8>,
    tids: Vec<Tid>,
    /// For each value its start and end in `text`; `None` for NULL.
    values: Vec<Option<(usize, usize)>>,
    columns: usize,
}

impl Rows {
    #[must_use]
    pub fn with_columns(columns: usize) -> Self {
        Self { text: Vec::new(), tids: Vec::new(), values: Vec::new(), columns }
    }

    /// Adds a line of COPY (without its line end). Gives its ctid; `None` where the line is not what was asked for.
    pub fn push_line(&mut self, line: &[u8]) -> Option<Tid> {
        let mut fields = line.split(|byte| *byte == b'\t');
        let tid = parse_tid(fields.next()?)?;
        let held = self.values.len();
        for field in fields {
            if field == b"\\N" {
                self.values.push(None);
                continue;
            }
            let start = self.text.len();
            unescape(field, &mut self.text)?;
            self.values.push(Some((start, self.text.len())));
        }
        if self.values.len() - held == self.columns {
            self.tids.push(tid);
            Some(tid)
        } else {
            self.values.truncate(held);
            None
        }
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.len() + self.tids.len() * size_of::<Tid>() + self.values.len() * size_of::<Option<(usize, usize)>>()
    }

    /// The rows in the order they came, each with its place.
    pub fn iter(&self) -> impl Iterator<Item = (Tid, Vec<Value<'_>>)> {
        let value = |range: &Option<(usize, usize)>| match range {
            None => Value::Null,
            Some((start, end)) => Value::Text(self.text.get(*start..*end).unwrap_or_default()),
        };
        let row = |number: usize| self.values.get(number * self.columns..(number + 1) * self.columns).unwrap_or_default();
        self.tids.iter().enumerate().map(move |(number, tid)| (*tid, row(number).iter().map(value).collect()))
    }
}

fn parse_tid(text: &[u8]) -> Option<Tid> {
    let text = std::str::from_utf8(text).ok()?;
    let (block, offset) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    Some((block.parse().ok()?, offset.parse().ok()?))
}

/// COPY's text escapes ("COPY", File Formats, Text Format in the manual).
fn unescape(field: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = field;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (plain, escaped) = rest.split_at_checked(at)?;
        out.extend_from_slice(plain);
        out.push(match escaped.get(1)? {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            other => *other,
        });
        rest = escaped.get(2..)?;
    }
    out.extend_from_slice(rest);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_text_is_unescaped_and_a_row_of_another_width_refused() {
        let mut rows = Rows::with_columns(3);
        assert_eq!(rows.push_line(b"(3,14)\ta\\tb\\\\c\\n\t\\N\t"), Some((3, 14)));
        assert_eq!(rows.push_line(b"(3,15)\tx"), None);
        assert_eq!(rows.push_line(b"nonsense\t1\t2\t3"), None);
        let read: Vec<_> = rows.iter().collect();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].0, (3, 14));
        assert!(matches!(read[0].1[..], [Value::Text(b"a\tb\\c\n"), Value::Null, Value::Text(b"")]));
    }

    #[test]
    fn rows_of_a_table_without_columns_are_counted() {
        let mut rows = Rows::with_columns(0);
        assert_eq!((rows.push_line(b"(0,1)"), rows.push_line(b"(0,2)")), (Some((0, 1)), Some((0, 2))));
        assert_eq!(rows.iter().count(), 2);
    }

    #[test]
    fn positions_behind_a_header_are_where_the_record_before_ended() {
        let check = |lsn: u64, expect: u64| assert_eq!(position_to_pass(Lsn::new(lsn), 1 << 20, 8192), Lsn::new(expect), "{lsn:x}");
        check(0x0020_0028, 0x0020_0000);
        check(0x0020_2018, 0x0020_2000);
        check(0x0020_2028, 0x0020_2028);
        check(0x0020_0018, 0x0020_0000);
        check(0x0020_2040, 0x0020_2040);
    }
}
