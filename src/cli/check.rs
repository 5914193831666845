//! `walgate check`: looks at the source, the sink and the store, names each fault and what mends it, changes nothing.

use std::io::Write as _;

use serde::Serialize;

use crate::config::{Config, SinkKind};
use crate::exit::Exit;
use crate::postgres::slot::SlotSeen;
use crate::postgres::sql::Sql;
use crate::postgres::wire::{Purpose, Wire};
use crate::postgres::{SourceError, publication, quote_table, slot, system};
use crate::store::{Stamp, Store, StoreError};
use crate::telemetry::Chain;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    Ok,
    Warning,
    Fault,
}

/// One thing seen.
#[derive(Debug, Serialize)]
struct Finding {
    area: &'static str,
    severity: Severity,
    what: String,
    /// What mends it.
    remedy: Option<String>,
}

pub(super) fn execute(config: &Config, json: bool) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut findings = Vec::new();
    if let Err(error) = runtime.block_on(look_at_source(config, &mut findings)) {
        findings.push(fault("source", Chain(&error).to_string(), None));
    }
    look_at_sink(config, &mut findings);
    look_at_store(config, &mut findings);
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&findings)?)?;
    } else {
        for Finding { area, severity, what, remedy } in &findings {
            let mark = match severity {
                Severity::Ok => "ok",
                Severity::Warning => "warning",
                Severity::Fault => "FAULT",
            };
            writeln!(out, "{mark:<8} {area:<7} {what}")?;
            if let Some(remedy) = remedy {
                writeln!(out, "                 {remedy}")?;
            }
        }
    }
    Ok(if findings.iter().any(|finding| finding.severity == Severity::Fault) { Exit::Findings } else { Exit::Success })
}

fn ok(area: &'static str, what: String) -> Finding {
    Finding { area, severity: Severity::Ok, what, remedy: None }
}

fn warning(area: &'static str, what: String, remedy: Option<String>) -> Finding {
    Finding { area, severity: Severity::Warning, what, remedy }
}

fn fault(area: &'static str, what: String, remedy: Option<String>) -> Finding {
    Finding { area, severity: Severity::Fault, what, remedy }
}

async fn look_at_source(config: &Config, findings: &mut Vec<Finding>) -> Result<(), SourceError> {
    let source = &config.source;
    let sql = Sql::connect(&source.postgres, "walgate check", source.connect_timeout).await?;
    let mut wire = Wire::connect(&source.postgres, Purpose::Replication, "walgate check", source.connect_timeout).await?;
    let system = system::look(&sql, &mut wire).await?;
    findings.push(ok(
        "source",
        format!("PostgreSQL {} answers, database `{}`, timeline {}", system.version / 10_000, system.database, system.timeline),
    ));
    if !(140_000..190_000).contains(&system.version) {
        findings.push(fault("source", format!("PostgreSQL {} is not supported: 14 to 18 are", system.version / 10_000), None));
    }
    if system.in_recovery {
        findings.push(fault("source", "the server is a standby".to_owned(), Some("connect to the primary".to_owned())));
    }
    if system.wal_level != "logical" {
        findings.push(fault(
            "source",
            format!("`wal_level` is `{}`", system.wal_level),
            Some("ALTER SYSTEM SET wal_level = logical; then restart PostgreSQL".to_owned()),
        ));
    }
    let keep = sql.row("look at a setting", "SELECT current_setting('max_slot_wal_keep_size') AS keep").await?;
    if keep.text("keep")? == "-1" {
        let remedy = "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf()".to_owned();
        findings.push(warning(
            "source",
            "`max_slot_wal_keep_size` is unlimited: while walgate is down, the log can fill the disk".to_owned(),
            Some(remedy),
        ));
    }
    match publication::look(&sql, &source.publication).await? {
        None if source.create && !source.tables.is_empty() => {
            findings.push(ok("source", format!("the publication `{}` will be created", source.publication)));
        }
        None => {
            let remedy = format!("CREATE PUBLICATION \"{}\" FOR TABLE …", source.publication);
            findings.push(fault("source", format!("the publication `{}` does not exist", source.publication), Some(remedy)));
        }
        Some(publication) if !publication.all_operations() => {
            findings.push(warning(
                "source",
                "the publication does not publish every operation: a rebuild cannot tell that rows vanished".to_owned(),
                None,
            ));
        }
        Some(_) => findings.push(ok("source", format!("the publication `{}` is there", source.publication))),
    }
    for table in publication::wanted(&sql, &source.publication, &source.tables).await? {
        let name = quote_table(&table.schema, &table.name);
        if !table.identifiable {
            let remedy = format!("ALTER TABLE {name} ADD PRIMARY KEY (…); or ALTER TABLE {name} REPLICA IDENTITY FULL");
            findings.push(warning(
                "source",
                format!("{name} has no key: once published its UPDATE and DELETE fail, so it is left out"),
                Some(remedy),
            ));
        }
    }
    for table in publication::tables(&sql, &source.publication).await? {
        let name = quote_table(&table.schema, &table.name);
        let row = sql
            .row("look at a table's rights", &format!("SELECT has_table_privilege({oid}, 'SELECT') AS readable, (SELECT relrowsecurity FROM pg_class WHERE oid = {oid}) AND NOT (SELECT rolbypassrls OR rolsuper FROM pg_roles WHERE rolname = current_user) AS hidden", oid = table.oid))
            .await?;
        if !row.is_true("readable")? {
            findings.push(fault("source", format!("{name} cannot be read"), Some(format!("GRANT SELECT ON {name} TO CURRENT_USER"))));
        }
        if row.is_true("hidden")? {
            findings.push(fault(
                "source",
                format!("{name} has row security: it could be read only in part"),
                Some("ALTER ROLE CURRENT_USER BYPASSRLS".to_owned()),
            ));
        }
    }
    findings.push(match slot::look(&sql, system.version, &source.slot).await? {
        SlotSeen::Missing => ok("source", format!("the slot `{}` is not there yet", source.slot)),
        SlotSeen::Present(slot) => match slot.lost() {
            Some(why) => {
                warning("source", format!("the slot `{}` is lost ({why})", source.slot), Some("`walgate run` rebuilds".to_owned()))
            }
            None if slot.plugin != "pgoutput" || slot.database != system.database => {
                fault("source", format!("the slot `{}` is not ours", source.slot), Some("name another in `source.slot`".to_owned()))
            }
            None => ok("source", format!("the slot `{}` is {} and keeps {} bytes of log", source.slot, slot.wal_status, slot.kept_bytes)),
        },
    });
    Ok(())
}

fn look_at_sink(config: &Config, findings: &mut Vec<Finding>) {
    let SinkKind::File { directory, .. } = &config.sink.kind else { return };
    let existing = directory.ancestors().find(|folder| folder.exists());
    let writable = existing.is_some_and(|folder| rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok());
    findings.push(if writable {
        ok("sink", format!("events go to `{}`", directory.display()))
    } else {
        fault(
            "sink",
            format!("`{}` cannot be written to", directory.display()),
            Some("give the service's user the right, or name another folder in `sink.file.directory`".to_owned()),
        )
    });
}

fn look_at_store(config: &Config, findings: &mut Vec<Finding>) {
    let shown = config.store.directory.display();
    findings.push(match Store::open_read_only(&config.store.directory, &Stamp { stream: config.stream.clone() }) {
        Ok(_) => ok("store", format!("the state folder `{shown}` is that of this stream")),
        Err(StoreError::Missing { .. }) => ok("store", format!("the state folder `{shown}` is not there yet")),
        Err(error) => fault("store", Chain(&error).to_string(), None),
    });
}
