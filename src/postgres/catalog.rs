//! What the catalogs say of a published table: its key, its types, its leaves, and what a plan to read it rests on.
//!
//! The catalog is asked when a relation arrives in the stream, so it may already be newer than the change. Names
//! and types come from the Relation message; only the order of the key, domains and array elements come from here.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_128;

use crate::event::plan::TableFacts;
use crate::event::value::TypeFacts;
use crate::lsn::Oid;
use crate::pgoutput::relation::{Relation, RelationColumn, ReplicaIdentity};
use crate::postgres::sql::{Sql, SqlRow};
use crate::postgres::{SourceError, quote_literal};

/// A table as it can be read now.
#[derive(Clone, Debug)]
pub struct CatalogTable {
    /// The same shape that the stream gives: the published columns in attribute order.
    pub relation: Relation,
    pub facts: TableFacts,
    /// The heaps that hold its rows: itself, or the leaves below a partitioned table.
    pub leaves: Vec<Leaf>,
    /// SQL of the publication's row filter.
    pub row_filter: Option<String>,
    /// How a column is compared with a literal, by the column's name.
    pub comparisons: HashMap<String, Comparison>,
    /// See [`fingerprint`].
    pub fingerprint: u128,
}

/// `"column" <equals> 'literal'<cast>`: the operators of an extension's types are not in `pg_catalog`, where alone
/// they are looked for, and a literal of a composite type is not taken without its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// `OPERATOR(public.=)`.
    pub equals: String,
    /// `::public.pair`, or nothing.
    pub cast: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    pub blocks: u32,
}

/// Key and types of a relation, for its encoder. An empty key where the catalog no longer knows the table.
///
/// # Errors
/// The server's.
pub async fn facts(sql: &Sql, oid: Oid) -> Result<TableFacts, SourceError> {
    let keys = sql
        .rows(
            "look for a table's key",
            // The identity index; else the primary key; with REPLICA IDENTITY FULL any index that tells rows apart.
            &format!(
                "SELECT a.attname FROM (SELECT i.indkey, i.indnkeyatts, i.indrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid \
                 WHERE i.indrelid = {oid} AND i.indislive AND (i.indisreplident AND c.relreplident = 'i' OR i.indisprimary AND i.indimmediate AND c.relreplident <> 'i' \
                   OR c.relreplident = 'f' AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL \
                     AND NOT EXISTS (SELECT FROM pg_attribute n WHERE n.attrelid = i.indrelid AND n.attnum = ANY (i.indkey) AND NOT n.attnotnull)) \
                 ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1) k \
                 CROSS JOIN LATERAL unnest(k.indkey) WITH ORDINALITY AS u(attnum, position) \
                 JOIN pg_attribute a ON a.attrelid = k.indrelid AND a.attnum = u.attnum WHERE u.position <= k.indnkeyatts ORDER BY u.position"
            ),
        )
        .await?;
    let key = keys.iter().map(|row| Ok(row.text("attname")?.to_owned())).collect::<Result<_, SourceError>>()?;
    let types = sql
        .rows(
            "look for a table's types",
            &format!(
                // From the types of the columns down: what a domain is made from, what an array holds.
                "WITH RECURSIVE reached(type) AS (SELECT atttypid FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped \
                 UNION SELECT coalesce(nullif(t.typbasetype, 0), e.oid) FROM reached r JOIN pg_type t ON t.oid = r.type \
                 LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid WHERE t.typtype = 'd' OR e.oid IS NOT NULL) \
                 SELECT t.oid AS type, t.typname AS name, t.typtypmod AS typmod, coalesce(nullif(t.typbasetype, 0), t.oid) AS base, e.oid AS element, coalesce(e.typdelim, ',') AS delimiter \
                 FROM reached r JOIN pg_type t ON t.oid = r.type LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid"
            ),
        )
        .await?;
    let mut by_oid = HashMap::new();
    for row in &types {
        let facts = TypeFacts {
            name: row.text("name")?.to_owned(),
            typmod: row.parsed("typmod")?,
            base: Oid::new(row.parsed("base")?),
            element: row.parsed_optional("element")?.map(Oid::new),
            delimiter: row.text("delimiter")?.bytes().next().unwrap_or(b','),
        };
        by_oid.insert(Oid::new(row.parsed("type")?), facts);
    }
    let columns = sql
        .rows(
            "look for columns without NULL",
            &format!(
                "SELECT a.attname FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND a.attnotnull \
                 WHERE c.oid = {oid}"
            ),
        )
        .await?;
    let mut not_null = HashSet::new();
    for column in &columns {
        not_null.extend(column.optional("attname")?.map(str::to_owned));
    }
    Ok(TableFacts { key, types: by_oid, not_null, is_gone: columns.is_empty() })
}

/// A published table with everything that reading it needs; `None` where it is gone, or not published any more.
///
/// # Errors
/// The server's.
pub async fn table(sql: &Sql, version: u32, publication: &str, oid: Oid) -> Result<Option<CatalogTable>, SourceError> {
    let heads = sql
        .rows(
            "look at a table",
            &format!(
                "SELECT n.nspname, c.relname, c.relreplident, {} AS rowfilter FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname AND p.pubname = {} WHERE c.oid = {oid}",
                if version >= 150_000 { "p.rowfilter" } else { "NULL" },
                quote_literal(publication)
            ),
        )
        .await?;
    let Some(head) = heads.first() else { return Ok(None) };
    let identity = match head.text("relreplident")? {
        "f" => ReplicaIdentity::Full,
        "n" => ReplicaIdentity::Nothing,
        "i" => ReplicaIdentity::Index,
        _ => ReplicaIdentity::Default,
    };
    let facts = facts(sql, oid).await?;
    let columns = sql.rows("look at a table's columns", &columns_statement(version, publication, oid)).await?;
    let columns = columns
        .iter()
        .map(|row| {
            let name = row.text("attname")?.to_owned();
            let in_identity = identity == ReplicaIdentity::Full || identity != ReplicaIdentity::Nothing && facts.key.contains(&name);
            Ok(RelationColumn { type_oid: Oid::new(row.parsed("atttypid")?), typmod: row.parsed("atttypmod")?, in_identity, name })
        })
        .collect::<Result<_, SourceError>>()?;
    let leaves = sql
        .rows(
            "look at a table's leaves",
            &format!(
                "SELECT c.oid, n.nspname, c.relname, pg_relation_size(c.oid) / current_setting('block_size')::bigint AS blocks \
                 FROM ({}) l JOIN pg_class c ON c.oid = l.oid JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY c.oid",
                leaves_statement(oid)
            ),
        )
        .await?;
    let leaves = leaves
        .iter()
        .map(|row| {
            Ok(Leaf {
                oid: Oid::new(row.parsed("oid")?),
                schema: row.text("nspname")?.to_owned(),
                name: row.text("relname")?.to_owned(),
                blocks: row.parsed::<u64>("blocks")?.try_into().unwrap_or(u32::MAX),
            })
        })
        .collect::<Result<_, SourceError>>()?;
    let comparisons = sql.rows("look at how a table's columns are compared", &comparisons_statement(oid)).await?;
    let comparison = |row: &SqlRow| {
        let comparison = Comparison { equals: row.text("equals")?.to_owned(), cast: row.text("cast")?.to_owned() };
        Ok((row.text("name")?.to_owned(), comparison))
    };
    let comparisons = comparisons.iter().map(comparison).collect::<Result<_, SourceError>>()?;
    let seen = sql.row("look at what a plan rests on", &fingerprint_statement(version, publication, oid)).await?;
    Ok(Some(CatalogTable {
        relation: Relation { oid, schema: head.text("nspname")?.to_owned(), name: head.text("relname")?.to_owned(), identity, columns },
        facts,
        leaves,
        row_filter: head.optional("rowfilter")?.map(str::to_owned),
        comparisons,
        fingerprint: fingerprint(seen.optional("seen")?),
    }))
}

/// Digest of what [`fingerprint_statement`] answers.
#[must_use]
pub fn fingerprint(seen: Option<&str>) -> u128 {
    xxh3_128(seen.unwrap_or_default().as_bytes())
}

/// One row, one text: leaves with their filenodes, columns, replica identity, the publication's operations, row
/// filter and column list. While it stays the same, a row that nobody changes keeps its key and its ctid.
#[must_use]
pub fn fingerprint_statement(version: u32, publication: &str, oid: Oid) -> String {
    let publication_name = quote_literal(publication);
    let listed = match version {
        150_000.. => format!(
            "SELECT concat_ws(':', 'published', p.attnames::text, p.rowfilter) FROM pg_publication_tables p \
             JOIN pg_class c ON c.oid = {oid} JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE p.pubname = {publication_name} AND p.schemaname = n.nspname AND p.tablename = c.relname"
        ),
        _ => format!(
            "SELECT 'published' FROM pg_publication_tables p JOIN pg_class c ON c.oid = {oid} JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE p.pubname = {publication_name} AND p.schemaname = n.nspname AND p.tablename = c.relname"
        ),
    };
    format!(
        "SELECT string_agg(part, '|' ORDER BY part) AS seen FROM (\
         SELECT concat_ws(':', 'leaf', c.oid, c.relfilenode) AS part FROM ({leaves}) l JOIN pg_class c ON c.oid = l.oid \
         UNION ALL SELECT concat_ws(':', 'column', attnum, attname, atttypid, atttypmod, attgenerated) FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped \
         UNION ALL SELECT concat_ws(':', 'identity', relreplident) FROM pg_class WHERE oid = {oid} \
         UNION ALL SELECT concat_ws(':', 'key', indexrelid, indisprimary, indisreplident, indkey::text) FROM pg_index WHERE indrelid = {oid} AND (indisprimary OR indisreplident) \
         UNION ALL SELECT concat_ws(':', 'publication', oid, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot) FROM pg_publication WHERE pubname = {publication_name} \
         UNION ALL {listed}) parts",
        leaves = leaves_statement(oid),
    )
}

/// The equality of a type is that of its default B-tree operator class; arrays, enums, ranges and composites share
/// one of `pg_catalog`.
fn comparisons_statement(oid: Oid) -> String {
    format!(
        "WITH RECURSIVE base(name, type) AS (SELECT attname, atttypid FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped \
         UNION ALL SELECT b.name, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd') \
         SELECT b.name, CASE t.typtype WHEN 'c' THEN '::' || format_type(t.oid, -1) ELSE '' END AS cast, \
         coalesce((SELECT format('OPERATOR(%I.%s)', n.nspname, o.oprname) FROM pg_opclass c JOIN pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree' \
           JOIN pg_amop a ON a.amopfamily = c.opcfamily AND a.amopstrategy = 3 AND a.amoplefttype = c.opcintype AND a.amoprighttype = c.opcintype \
           JOIN pg_operator o ON o.oid = a.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace WHERE c.opcdefault AND c.opcintype = t.oid), \
           'OPERATOR(pg_catalog.=)') AS equals \
         FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype <> 'd'"
    )
}

fn leaves_statement(oid: Oid) -> String {
    format!(
        "SELECT c.oid FROM pg_class c WHERE c.oid = {oid} AND c.relkind = 'r' \
         UNION SELECT t.relid FROM pg_partition_tree({oid}) t JOIN pg_class c ON c.oid = t.relid WHERE c.relkind = 'r'"
    )
}

/// The published columns in attribute order. Generated columns are published from 18 on, where the publication says so.
fn columns_statement(version: u32, publication: &str, oid: Oid) -> String {
    let listed = format!(
        "a.attname = ANY (SELECT unnest(p.attnames) FROM pg_publication_tables p JOIN pg_class c ON c.oid = {oid} JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE p.pubname = {} AND p.schemaname = n.nspname AND p.tablename = c.relname)",
        quote_literal(publication)
    );
    let condition = match version {
        180_000.. => listed,
        150_000.. => format!("{listed} AND a.attgenerated = ''"),
        _ => "a.attgenerated = ''".to_owned(),
    };
    format!(
        "SELECT a.attname, a.atttypid, a.atttypmod FROM pg_attribute a WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped AND {condition} ORDER BY a.attnum"
    )
}
