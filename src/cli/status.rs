//! `walgate status`: what the running service says, or what the store holds when none runs.

use std::io::Write;

use serde_json::Value as Json;

use crate::admin::board::{State, Status};
use crate::admin::control::{ControlError, Request, ask};
use crate::config::Config;
use crate::exit::Exit;
use crate::store::{Stamp, Store, StoreError};
use crate::telemetry::Chain;

pub(super) fn execute(config: &Config, json: bool) -> anyhow::Result<Exit> {
    let status = match ask(&config.store.directory, &Request::Status) {
        Ok(status) => status,
        Err(ControlError::NotRunning | ControlError::NoAnswer) => match stopped(config) {
            Ok(status) => serde_json::to_value(status)?,
            Err(error) => {
                super::complain(&Chain(&error).to_string());
                return Ok(Exit::Store);
            }
        },
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
    config.sink.kind.name().clone_into(&mut status.sink.kind);
    let store = match Store::open_read_only(&config.store.directory, &Stamp { stream: config.stream.clone() }) {
        Ok(store) => store,
        Err(StoreError::Missing { .. }) => {
            status.waiting_for = Some("its first start: there is no state folder yet".to_owned());
            return Ok(status);
        }
        Err(error) => return Err(error),
    };
    status.waiting_for = Some("`walgate run`: no service runs".to_owned());
    if let Some(progress) = store.progress()? {
        status.position = progress.position;
        status.acknowledged_lsn = Some(progress.end_lsn);
        status.events_total = progress.events_total;
        let tables = store.tables()?;
        status.show_rebuild(progress.rebuild.as_ref(), tables.iter());
        // A table whose index is not there at all, as in a new state folder, has no complete one.
        let indexes = store.indexes()?;
        status.index_complete =
            tables.iter().all(|table| indexes.iter().any(|(topic, record)| *topic == table.topic && record.lacks_nothing()));
    }
    Ok(status)
}

/// For people: a line for each thing that is known.
fn print(status: &Json, out: &mut impl Write) -> std::io::Result<()> {
    let mut line = |label: &str, value: Option<String>| match value {
        Some(value) => writeln!(out, "{label:<14} {value}"),
        None => Ok(()),
    };
    line("stream", text(status, "stream"))?;
    line("state", text(status, "state"))?;
    line("waits for", text(status, "waiting_for"))?;
    let position = status.get("position").filter(|position| !position.is_null());
    line(
        "delivered to",
        position.and_then(|position| Some(format!("{} change {}", text(position, "commit_lsn")?, text(position, "ordinal")?))),
    )?;
    line("acknowledged", text(status, "acknowledged_lsn"))?;
    line("events", text(status, "events_total"))?;
    line("lag", bytes(status, "lag_bytes"))?;
    line("log kept", bytes(status, "wal_kept_bytes"))?;
    let loss = text(status, "seconds_to_loss").map(|seconds| format!(", used up in {seconds} s at this rate")).unwrap_or_default();
    line("log left", bytes(status, "wal_safe_bytes").map(|left| format!("{left}{loss}")))?;
    line("slot", slot(status))?;
    line("sink", status.get("sink").and_then(|sink| text(sink, "kind")))?;
    let incomplete = status.get("index_complete") == Some(&Json::Bool(false)) && position.is_some();
    line("row index", incomplete.then(|| "incomplete: it is being completed, or will be at the next start".to_owned()))?;
    let partly = status.get("incomplete_topics").and_then(Json::as_array).filter(|topics| !topics.is_empty());
    let topics = |topics: &Vec<Json>| topics.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(", ");
    line("rows in part", partly.map(|partly| format!("some of {}: they are read again soon", topics(partly))))?;
    line("since", text(status, "since"))?;
    line("last error", text(status, "last_error"))?;
    line("", text(status, "last_error").map(|_| "`walgate check` names what is at fault and what mends it".to_owned()))?;
    if let Some(rebuild) = status.get("rebuild").filter(|rebuild| !rebuild.is_null()) {
        let seen = text(rebuild, "seen").filter(|seen| !seen.is_empty()).map(|seen| format!(": {seen}")).unwrap_or_default();
        line(
            "rebuild",
            Some(format!("{} {}{seen}", text(rebuild, "id").unwrap_or_default(), text(rebuild, "reason").unwrap_or_default())),
        )?;
        print_tables(rebuild, out)?;
    }
    Ok(())
}

fn print_tables(rebuild: &Json, out: &mut impl Write) -> std::io::Result<()> {
    let tables: Vec<(&String, &Json)> = rebuild.get("tables").and_then(Json::as_object).into_iter().flatten().collect();
    let width = tables.iter().map(|(topic, _)| topic.chars().count()).max().unwrap_or(0);
    for (topic, table) in tables {
        let number = |name: &str| table.get(name).and_then(Json::as_u64).unwrap_or(0);
        let step = text(table, "step").unwrap_or_default();
        let percent = percent(&step, number("blocks_done"), number("blocks"));
        writeln!(
            out,
            "  {topic:<width$}  {step:<8} {percent:>3} %  rows {} read {} updated {} deleted {} equal {} left to the stream {}",
            number("rows"),
            number("read"),
            number("updated"),
            number("deleted"),
            number("equal"),
            number("left_to_stream"),
        )?;
    }
    Ok(())
}

/// A table that waits has no plan, so its blocks are not known; an empty one has none.
fn percent(step: &str, blocks_done: u64, blocks: u64) -> u64 {
    match (step, blocks) {
        ("waiting", _) => 0,
        ("done", _) | (_, 0) => 100,
        _ => blocks_done.saturating_mul(100) / blocks,
    }
}

fn slot(status: &Json) -> Option<String> {
    let slot = status.get("slot")?;
    let known = text(slot, "wal_status").map(|status| format!(" {status}")).unwrap_or_default();
    let active = match slot.get("active").and_then(Json::as_bool) {
        Some(true) => ", in use",
        Some(false) => ", not in use",
        None => "",
    };
    Some(format!("{}{known}{active}", text(slot, "name")?))
}

/// A field as text; `None` where it is null or missing.
fn text(of: &Json, name: &str) -> Option<String> {
    match of.get(name)? {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn bytes(of: &Json, name: &str) -> Option<String> {
    let bytes = of.get(name)?.as_i64()?;
    Some(indicatif::BinaryBytes(u64::try_from(bytes).unwrap_or(0)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Json, expect: &str) {
        let mut out = Vec::new();
        print(&status, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn a_stream_that_never_ran_says_so_in_few_lines() {
        let status = serde_json::json!({
            "stream": "shop", "state": "stopped", "waiting_for": "its first start", "position": null, "acknowledged_lsn": null,
            "slot": { "name": "walgate_shop", "wal_status": null, "active": null }, "sink": { "kind": "file" }, "rebuild": null,
            "index_complete": false, "last_error": null, "events_total": 0, "since": null
        });
        check(
            status,
            "stream         shop\nstate          stopped\nwaits for      its first start\nevents         0\nslot           walgate_shop\nsink           file\n",
        );
    }

    #[test]
    fn a_rebuild_is_shown_table_by_table_and_an_error_with_advice() {
        let table = |step: &str, done: u64, blocks: u64| serde_json::json!({ "step": step, "blocks_done": done, "blocks": blocks, "rows": 9, "read": 1, "updated": 2, "deleted": 3, "equal": 3, "left_to_stream": 0 });
        let status = serde_json::json!({
            "state": "rebuilding", "position": { "commit_lsn": "0/10", "ordinal": 2 }, "lag_bytes": 2048, "wal_safe_bytes": 1024,
            "seconds_to_loss": 60, "slot": { "name": "s", "wal_status": "reserved", "active": true }, "last_error": "it broke",
            "rebuild": { "id": 7, "reason": "slot_lost", "seen": "wal_removed", "tables": { "a": table("chunks", 1, 3), "bcd": table("waiting", 0, 0) } }
        });
        check(
            status,
            "state          rebuilding\n\
             delivered to   0/10 change 2\n\
             lag            2.00 KiB\n\
             log left       1.00 KiB, used up in 60 s at this rate\n\
             slot           s reserved, in use\n\
             last error     it broke\n               `walgate check` names what is at fault and what mends it\n\
             rebuild        7 slot_lost: wal_removed\n  \
             a    chunks    33 %  rows 9 read 1 updated 2 deleted 3 equal 3 left to the stream 0\n  \
             bcd  waiting    0 %  rows 9 read 1 updated 2 deleted 3 equal 3 left to the stream 0\n",
        );
    }
}
