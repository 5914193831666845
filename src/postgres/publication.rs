//! The publication: which tables the stream carries, and how walgate sees to it that they are in it.

use std::collections::BTreeSet;

use crate::config::TablePattern;
use crate::lsn::Oid;
use crate::postgres::sql::Sql;
use crate::postgres::{SourceError, quote_identifier, quote_literal, quote_table};

/// `pg_publication`'s row for our publication.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "columns of the catalog")]
pub struct Publication {
    pub oid: u32,
    pub all_tables: bool,
    pub insert: bool,
    pub update: bool,
    pub delete: bool,
    pub truncate: bool,
}

impl Publication {
    /// Whether every kind of change is published: only then can a rebuild tell that a row vanished.
    #[must_use]
    pub fn all_operations(&self) -> bool {
        self.insert && self.update && self.delete && self.truncate
    }
}

/// A table as the publication publishes it: a root where `publish_via_partition_root` says so, else a leaf.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishedTable {
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    /// How it is published: by which entries of the catalogs, which operations, rows and columns. While this stays the same
    /// the stream carries every change that it carried before.
    pub terms: String,
}

/// Looks at the publication.
///
/// # Errors
/// The server's.
pub async fn look(sql: &Sql, name: &str) -> Result<Option<Publication>, SourceError> {
    let statement = format!(
        "SELECT oid, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = {}",
        quote_literal(name)
    );
    let rows = sql.rows("look at the publication", &statement).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Publication {
        oid: row.parsed("oid")?,
        all_tables: row.is_true("puballtables")?,
        insert: row.is_true("pubinsert")?,
        update: row.is_true("pubupdate")?,
        delete: row.is_true("pubdelete")?,
        truncate: row.is_true("pubtruncate")?,
    }))
}

/// The tables that the publication publishes, by name.
///
/// # Errors
/// The server's.
pub async fn tables(sql: &Sql, version: u32, name: &str) -> Result<Vec<PublishedTable>, SourceError> {
    // A table dropped from the publication and added again has another row in pg_publication_rel, as has its schema; and the
    // publication is another version of its row once its operations were altered, though they are as they were.
    let (columns, rows, schemas) = match version {
        150_000.. => (
            "r.prattrs::text",
            "t.rowfilter",
            "SELECT concat('schema ', s.oid) FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid IN (SELECT relnamespace FROM family)",
        ),
        _ => ("NULL", "NULL", "SELECT NULL WHERE false"),
    };
    let statement = format!(
        "SELECT c.oid, t.schemaname, t.tablename, concat_ws('|', \
           concat_ws(' ', p.xmin, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot), {rows}, \
           (WITH family AS (SELECT f.oid, f.relnamespace FROM pg_class f WHERE f.oid = c.oid OR f.oid IN (SELECT relid FROM pg_partition_ancestors(c.oid))) \
            SELECT string_agg(entry, '|' ORDER BY entry) FROM ( \
              SELECT concat_ws(' ', 'table', r.oid, {columns}) AS entry FROM pg_publication_rel r \
              WHERE r.prpubid = p.oid AND r.prrelid IN (SELECT oid FROM family) UNION ALL {schemas}) entries)) AS terms \
         FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname \
         JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename \
         WHERE t.pubname = {} ORDER BY t.schemaname, t.tablename",
        quote_literal(name)
    );
    let rows = sql.rows("look at the published tables", &statement).await?;
    rows.iter()
        .map(|row| {
            Ok(PublishedTable {
                oid: Oid::new(row.parsed("oid")?),
                schema: row.text("schemaname")?.to_owned(),
                name: row.text("tablename")?.to_owned(),
                terms: row.text("terms")?.to_owned(),
            })
        })
        .collect()
}

/// A table that the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub schema: String,
    pub name: String,
    /// Named by itself, not by `schema.*`.
    pub by_name: bool,
    /// Its rows can be told apart: UPDATE and DELETE go on working once it is published.
    pub identifiable: bool,
    pub published: bool,
}

/// The ordinary and partitioned tables that match `patterns`, partitions left to their roots.
///
/// # Errors
/// The server's.
pub async fn wanted(sql: &Sql, publication: &str, patterns: &[TablePattern]) -> Result<Vec<Wanted>, SourceError> {
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let condition: Vec<String> = patterns
        .iter()
        .map(|pattern| match &pattern.table {
            Some(table) => format!("(n.nspname = {} AND c.relname = {})", quote_literal(&pattern.schema), quote_literal(table)),
            None => format!("(n.nspname = {})", quote_literal(&pattern.schema)),
        })
        .collect();
    let by_name: Vec<String> = patterns
        .iter()
        .filter_map(|pattern| {
            Some(format!("(n.nspname = {} AND c.relname = {})", quote_literal(&pattern.schema), quote_literal(pattern.table.as_ref()?)))
        })
        .chain(["false".to_owned()])
        .collect();
    let statement = format!(
        "SELECT n.nspname, c.relname, ({by_name}) AS by_name, \
         {identifiable} AS identifiable, \
         EXISTS (SELECT FROM pg_publication p WHERE p.pubname = {publication} AND (p.puballtables \
           OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid) \
           OR EXISTS (SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = n.nspname AND t.tablename = c.relname))) AS published \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition AND ({condition}) \
         ORDER BY 1, 2",
        by_name = by_name.join(" OR "),
        identifiable = identifiable("c", publication),
        publication = quote_literal(publication),
        condition = condition.join(" OR "),
    );
    let rows = sql.rows("look for the tables to publish", &statement).await?;
    rows.iter()
        .map(|row| {
            Ok(Wanted {
                schema: row.text("nspname")?.to_owned(),
                name: row.text("relname")?.to_owned(),
                by_name: row.is_true("by_name")?,
                identifiable: row.is_true("identifiable")?,
                published: row.is_true("published")?,
            })
        })
        .collect()
}

/// Sees to it that the tables that match `patterns` are published: makes the publication where it is missing, adds those
/// that publishing does not harm, and says once which it leaves out (`left_out`).
///
/// # Errors
/// The server's; among them that the role owns neither publication nor tables.
pub async fn see_to(
    sql: &Sql,
    version: u32,
    name: &str,
    patterns: &[TablePattern],
    left_out: &mut BTreeSet<String>,
) -> Result<(), SourceError> {
    let wanted = wanted(sql, name, patterns).await?;
    let unidentifiable = wanted.iter().filter(|table| !table.published && !table.identifiable);
    for table in unidentifiable.map(|table| format!("{}.{}", table.schema, table.name)).filter(|table| left_out.insert(table.clone())) {
        tracing::warn!(table, "not published: it has no primary key and no usable replica identity, so its UPDATE and DELETE would fail");
    }
    let add = to_add(&wanted);
    match look(sql, name).await? {
        None if !patterns.is_empty() => {
            sql.run("create the publication", &create_statement(version, name, &add)).await?;
            tracing::info!(publication = name, tables = add.len(), "publication created");
        }
        Some(publication) if !add.is_empty() && !publication.all_tables => {
            sql.run("add tables to the publication", &add_statement(name, &add)).await?;
            tracing::info!(publication = name, tables = add.len(), "tables added to the publication");
        }
        _ => {}
    }
    Ok(())
}

/// The tables to add: those not published yet that publishing does not harm. A table without identity would
/// from then on refuse its application's UPDATE and DELETE, so it is never added by walgate.
#[must_use]
pub fn to_add(wanted: &[Wanted]) -> Vec<&Wanted> {
    wanted.iter().filter(|table| !table.published && table.identifiable).collect()
}

/// The statement that makes the publication with these tables.
#[must_use]
pub fn create_statement(version: u32, name: &str, tables: &[&Wanted]) -> String {
    let list = table_list(tables);
    let tables = if list.is_empty() { String::new() } else { format!(" FOR TABLE {list}") };
    format!("CREATE PUBLICATION {}{tables} WITH ({})", quote_identifier(name), options(version))
}

/// Partitioned tables are published as their root; generated columns too where the server can: without them, it
/// would refuse UPDATE and DELETE on a table whose replica identity has one.
#[must_use]
pub fn options(version: u32) -> &'static str {
    match version {
        180_000.. => "publish_via_partition_root = true, publish_generated_columns = stored",
        _ => "publish_via_partition_root = true",
    }
}

/// An SQL expression: whether the rows of `table` (an alias of `pg_class`) can be told apart, so that the server takes its
/// UPDATE and DELETE once `publication` publishes it. Of a partitioned table its leaves', which the server asks. From 18
/// on, a replica identity must not have generated columns that are not published, and virtual ones never are.
#[must_use]
pub fn identifiable(table: &str, publication: &str) -> String {
    format!(
        "({} AND NOT EXISTS (SELECT FROM pg_partition_tree({table}.oid) part JOIN pg_class leaf ON leaf.oid = part.relid \
           WHERE part.isleaf AND leaf.oid <> {table}.oid AND NOT {}))",
        has_identity(table, publication),
        has_identity("leaf", publication)
    )
}

fn has_identity(table: &str, publication: &str) -> String {
    // A key whose check may be put off is none: two rows may have it for a while.
    format!(
        "CASE {table}.relreplident WHEN 'n' THEN false \
           WHEN 'f' THEN current_setting('server_version_num')::int < 180000 OR NOT EXISTS ( \
             SELECT FROM pg_attribute g WHERE g.attrelid = {table}.oid AND g.attgenerated <> '' AND NOT g.attisdropped \
             AND (g.attgenerated = 'v' OR EXISTS (SELECT FROM pg_publication o WHERE o.pubname = {} AND to_jsonb(o) ->> 'pubgencols' = 'n'))) \
           WHEN 'i' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = {table}.oid AND i.indisreplident) \
           ELSE EXISTS (SELECT FROM pg_index i WHERE i.indrelid = {table}.oid AND i.indisprimary AND i.indimmediate) END",
        quote_literal(publication)
    )
}

/// The statement that adds tables to the publication.
#[must_use]
pub fn add_statement(name: &str, tables: &[&Wanted]) -> String {
    format!("ALTER PUBLICATION {} ADD TABLE {}", quote_identifier(name), table_list(tables))
}

fn table_list(tables: &[&Wanted]) -> String {
    // Without the tables that inherit from it, which are judged by themselves.
    tables.iter().map(|table| format!("ONLY {}", quote_table(&table.schema, &table.name))).collect::<Vec<_>>().join(", ")
}
