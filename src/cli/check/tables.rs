//! The publication and its tables: what is wanted, what is published, and whether it can be read and told apart.

use crate::cli::check::server::Server;
use crate::cli::check::{Area, Finding};
use crate::config::Source;
use crate::postgres::publication::{self, Publication, Wanted};
use crate::postgres::sql::{Sql, SqlRow};
use crate::postgres::{SourceError, quote_identifier, quote_literal, quote_table};

/// Adds what is found; gives schema and name of the tables that are published or will be.
///
/// # Errors
/// The server's.
pub(super) async fn look(
    source: &Source,
    sql: &Sql,
    server: &Server,
    findings: &mut Vec<Finding>,
) -> Result<Vec<(String, String)>, SourceError> {
    let publication = publication::look(sql, &source.publication).await?;
    let wanted = publication::wanted(sql, &source.publication, &source.tables).await?;
    findings.extend(unmatched(source, &wanted));
    findings.extend(wanted.iter().filter(|table| !table.identifiable && !table.published).map(left_out));
    let missing = publication::to_add(&wanted);
    match &publication {
        None => findings.push(judge_missing_publication(source, server, &missing)),
        Some(publication) => findings.push(judge_publication(&source.publication, publication)),
    }
    if !missing.is_empty() && (publication.is_some() || source.create) {
        findings.extend(look_at_ownership(source, sql, server, &missing, publication.is_some()).await?);
    }
    for heap in sql.rows("look at the published tables' rights", &heaps_statement(&source.publication)).await? {
        judge_heap(&heap, server, findings)?;
    }
    let published = publication::tables(sql, server.version, &source.publication).await?;
    let published = published.into_iter().map(|table| (table.schema, table.name));
    Ok(published.chain(missing.iter().map(|table| (table.schema.clone(), table.name.clone()))).collect())
}

/// Patterns of `source.tables` that no table matches.
fn unmatched(source: &Source, wanted: &[Wanted]) -> Vec<Finding> {
    let matches =
        |schema: &str, name: Option<&str>| wanted.iter().any(|table| table.schema == schema && name.is_none_or(|name| table.name == name));
    let unmatched = source.tables.iter().filter(|pattern| !matches(&pattern.schema, pattern.table.as_deref()));
    unmatched
        .map(|pattern| match &pattern.table {
            Some(table) => {
                Finding::fault(Area::Source, format!("the table `{}.{table}` of `source.tables` does not exist", pattern.schema))
                    .mended_by("correct the name, or name the root of a partitioned table; temporary and unlogged tables have no log")
            }
            None => Finding::warning(Area::Source, format!("no table matches `{}.*` of `source.tables`", pattern.schema)),
        })
        .collect()
}

fn left_out(table: &Wanted) -> Finding {
    let name = quote_table(&table.schema, &table.name);
    Finding::warning(
        Area::Source,
        format!("{name} has no usable replica identity and is left out: once published, its UPDATE and DELETE would fail"),
    )
    .mended_by(identity_statement(&name))
}

fn identity_statement(name: &str) -> String {
    format!("ALTER TABLE {name} ADD PRIMARY KEY (…); or ALTER TABLE {name} REPLICA IDENTITY FULL")
}

fn judge_missing_publication(source: &Source, server: &Server, missing: &[&Wanted]) -> Finding {
    let name = &source.publication;
    let statement = if source.tables.is_empty() {
        format!("CREATE PUBLICATION {} FOR TABLE … WITH ({})", quote_identifier(name), publication::options(server.version))
    } else {
        publication::create_statement(server.version, name, missing)
    };
    if !source.create || source.tables.is_empty() {
        return Finding::fault(Area::Source, format!("the publication `{name}` does not exist")).mended_by(statement);
    }
    if server.may_create {
        Finding::ok(Area::Source, format!("the publication `{name}` will be made with {} tables", missing.len()))
    } else {
        let grant = format!("GRANT CREATE ON DATABASE {} TO {}", quote_identifier(&server.database), server.quoted_role());
        Finding::fault(Area::Source, format!("the publication `{name}` does not exist, and role `{}` may not make it", server.role))
            .mended_by(format!("{grant}; or, as an owner of the tables, {statement}"))
    }
}

fn judge_publication(name: &str, publication: &Publication) -> Finding {
    if publication.all_operations() {
        Finding::ok(Area::Source, format!("the publication `{name}` is there"))
    } else {
        Finding::warning(Area::Source, format!("the publication `{name}` leaves out some operations: subscribers do not see them"))
            .mended_by(format!("ALTER PUBLICATION {} SET (publish = 'insert, update, delete, truncate')", quote_identifier(name)))
    }
}

/// Adding a table asks for ownership of it, and of the publication.
async fn look_at_ownership(
    source: &Source,
    sql: &Sql,
    server: &Server,
    missing: &[&Wanted],
    published: bool,
) -> Result<Vec<Finding>, SourceError> {
    let mut findings = Vec::new();
    let add = publication::add_statement(&source.publication, missing);
    if published && !source.create {
        findings
            .push(Finding::fault(Area::Source, format!("{} tables of `source.tables` are not published", missing.len())).mended_by(add));
        return Ok(findings);
    }
    if published {
        let statement = format!(
            "SELECT pg_has_role(pubowner, 'USAGE') AS owned FROM pg_publication WHERE pubname = {}",
            quote_literal(&source.publication)
        );
        if !sql.row("look at the publication's owner", &statement).await?.is_true("owned")? {
            let what = format!("{} tables are to be added to a publication that role `{}` does not own", missing.len(), server.role);
            findings.push(Finding::fault(Area::Source, what).mended_by(add));
            return Ok(findings);
        }
    }
    for table in missing {
        let statement = format!(
            "SELECT pg_has_role(c.relowner, 'USAGE') AS owned FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = {} AND c.relname = {}",
            quote_literal(&table.schema),
            quote_literal(&table.name)
        );
        let row = sql.rows("look at a table's owner", &statement).await?.into_iter().next();
        if !row.map_or(Ok(true), |row| row.is_true("owned"))? {
            let name = quote_table(&table.schema, &table.name);
            let what = format!("{name} is to be published, and role `{}` does not own it", server.role);
            findings.push(Finding::fault(Area::Source, what).mended_by(format!(
                "as its owner: {}",
                if published {
                    publication::add_statement(&source.publication, &[*table])
                } else {
                    publication::create_statement(server.version, &source.publication, missing)
                }
            )));
        }
    }
    if published && findings.is_empty() {
        findings.push(Finding::ok(Area::Source, format!("{} tables will be added to the publication", missing.len())));
    }
    Ok(findings)
}

/// The heaps that hold the published rows (of a partitioned table its leaves, which is what is read), with what the
/// role may do and whether rows can be told apart.
fn heaps_statement(publication: &str) -> String {
    format!(
        "SELECT hn.nspname, h.relname, has_schema_privilege(hn.oid, 'USAGE') AS enterable, has_table_privilege(h.oid, 'SELECT') AS readable, \
         row_security_active(h.oid) AS hidden, \
         {} AS identifiable \
         FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname \
         JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename \
         CROSS JOIN LATERAL (SELECT c.oid AS relid UNION SELECT t.relid FROM pg_partition_tree(c.oid) t WHERE t.isleaf) l \
         JOIN pg_class h ON h.oid = l.relid AND h.relkind = 'r' JOIN pg_namespace hn ON hn.oid = h.relnamespace \
         WHERE p.pubname = {} ORDER BY 1, 2",
        publication::identifiable("h", publication),
        quote_literal(publication)
    )
}

fn judge_heap(heap: &SqlRow, server: &Server, findings: &mut Vec<Finding>) -> Result<(), SourceError> {
    let schema = heap.text("nspname")?;
    let name = quote_table(schema, heap.text("relname")?);
    let role = server.quoted_role();
    if !heap.is_true("enterable")? {
        let grant = format!("GRANT USAGE ON SCHEMA {} TO {role}", quote_identifier(schema));
        findings.push(Finding::fault(Area::Source, format!("{name} cannot be reached by role `{}`", server.role)).mended_by(grant));
    }
    if !heap.is_true("readable")? {
        let grant = format!("GRANT SELECT ON {name} TO {role}");
        findings.push(Finding::fault(Area::Source, format!("{name} cannot be read by role `{}`", server.role)).mended_by(grant));
    }
    if heap.is_true("hidden")? {
        let what = format!("{name} has row security: role `{}` could read it only in part, so not at all", server.role);
        findings.push(Finding::fault(Area::Source, what).mended_by(format!("ALTER ROLE {role} BYPASSRLS")));
    }
    if !heap.is_true("identifiable")? {
        let what = format!("{name} is published and has no usable replica identity: its UPDATE and DELETE fail");
        findings.push(Finding::warning(Area::Source, what).mended_by(identity_statement(&name)));
    }
    Ok(())
}
