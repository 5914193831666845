//! `walgate status`: what the running service says, or what the store holds when none runs.

use std::io::Write as _;

use crate::admin::board::{State, Status};
use crate::admin::control::{ControlError, Request, ask};
use crate::config::Config;
use crate::exit::Exit;
use crate::store::{Stamp, Store, StoreError};

pub(super) fn execute(config: &Config, json: bool) -> anyhow::Result<Exit> {
    let status = match ask(&config.store.directory, &Request::Status) {
        Ok(status) => status,
        Err(ControlError::NotRunning) => serde_json::to_value(stopped(config)?)?,
        Err(error) => return Err(error.into()),
    };
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{status}")?;
    } else {
        print(&status, &mut out)?;
    }
    Ok(Exit::Success)
}

/// What the store knows while no service runs.
fn stopped(config: &Config) -> Result<Status, StoreError> {
    let mut status =
        Status { stream: config.stream.clone(), state: State::Stopped, version: env!("CARGO_PKG_VERSION").to_owned(), ..Status::default() };
    status.slot.name.clone_from(&config.source.slot);
    let store = match Store::open_read_only(&config.store.directory, &Stamp { stream: config.stream.clone() }) {
        Ok(store) => store,
        Err(StoreError::Missing { .. }) => return Ok(status),
        Err(error) => return Err(error),
    };
    if let Some(progress) = store.progress()? {
        status.position = progress.position;
        status.acknowledged_lsn = Some(progress.end_lsn);
        status.events_total = progress.events_total;
        status.show_rebuild(progress.rebuild.as_ref(), store.tables()?.iter());
    }
    status.index_complete = store.indexes()?.iter().all(|(_, record)| record.complete || record.key.is_empty());
    Ok(status)
}

fn print(status: &serde_json::Value, out: &mut impl std::io::Write) -> std::io::Result<()> {
    let text = |name: &str| match status.get(name) {
        None | Some(serde_json::Value::Null) => "-".to_owned(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    for (label, name) in [
        ("stream", "stream"),
        ("state", "state"),
        ("waiting for", "waiting_for"),
        ("acknowledged", "acknowledged_lsn"),
        ("events", "events_total"),
        ("WAL kept, bytes", "wal_kept_bytes"),
        ("WAL left, bytes", "wal_safe_bytes"),
        ("seconds to loss", "seconds_to_loss"),
        ("index complete", "index_complete"),
        ("last error", "last_error"),
    ] {
        writeln!(out, "{label:<16} {}", text(name))?;
    }
    let Some(rebuild) = status.get("rebuild").filter(|rebuild| !rebuild.is_null()) else { return Ok(()) };
    let field = |of: &serde_json::Value, name: &str| {
        of.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).unwrap_or_default()
    };
    writeln!(out, "rebuild {:<8} {}: {}", field(rebuild, "id"), field(rebuild, "reason"), field(rebuild, "seen"))?;
    for (topic, table) in rebuild.get("tables").and_then(|tables| tables.as_object()).into_iter().flatten() {
        writeln!(
            out,
            "  {topic:<30} {:<8} blocks {}/{} rows {} r {} u {} d {} equal {}",
            field(table, "step"),
            field(table, "blocks_done"),
            field(table, "blocks"),
            field(table, "rows"),
            field(table, "read"),
            field(table, "updated"),
            field(table, "deleted"),
            field(table, "equal"),
        )?;
    }
    Ok(())
}
