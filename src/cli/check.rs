//! `walgate check`: looks at the source, the sink and the store, names each fault and the statement that mends it.
//! It changes nothing, and goes on after a fault, so that one run names them all.

mod brokers;
mod server;
mod source;
mod tables;

use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::admin::control::{Request, ask};
use crate::config::{Config, SinkKind};
use crate::exit::Exit;
use crate::policy::source_advice;
use crate::progress::Progress;
use crate::store::{Stamp, Store, StoreError};
use crate::telemetry::Chain;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    Ok,
    /// It works, and will not always.
    Warning,
    /// `walgate run` stops at it, or leaves something out.
    Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Area {
    Config,
    Source,
    Sink,
    Store,
}

/// One thing seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    area: Area,
    severity: Severity,
    what: String,
    /// What mends it: SQL, or what to do.
    statement: Option<String>,
}

impl Finding {
    fn ok(area: Area, what: impl Into<String>) -> Self {
        Self { area, severity: Severity::Ok, what: what.into(), statement: None }
    }

    fn warning(area: Area, what: impl Into<String>) -> Self {
        Self { area, severity: Severity::Warning, what: what.into(), statement: None }
    }

    fn fault(area: Area, what: impl Into<String>) -> Self {
        Self { area, severity: Severity::Fault, what: what.into(), statement: None }
    }

    fn mended_by(self, statement: impl Into<String>) -> Self {
        Self { statement: Some(statement.into()), ..self }
    }
}

pub(super) fn execute(config: &Config, json: bool) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let running = ask(&config.store.directory, &Request::Status).is_ok();
    let mut findings = vec![Finding::ok(Area::Config, format!("the configuration is that of stream `{}`", config.stream))];
    let mut topics = Vec::new();
    let delivered = delivered(config, running);
    if let Err(error) = runtime.block_on(source::look(config, running, delivered.as_ref(), &mut findings, &mut topics)) {
        findings.push(Finding::fault(Area::Source, Chain(&error).to_string()).mended_by(source_advice(&error)));
    }
    drop(runtime); // the clients of the brokers have one of their own
    match &config.sink.kind {
        SinkKind::File { directory, .. } => findings.push(look_at_folder(config, directory, delivered.is_some())),
        SinkKind::Kafka(kafka) => findings.extend(brokers::look(config, kafka, &topics)),
        SinkKind::Stdout | SinkKind::Null => {}
    }
    findings.push(look_at_store(config, running));
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&findings)?)?;
    } else {
        print(&findings, &mut out)?;
    }
    let faults = findings.iter().any(|finding| finding.severity == Severity::Fault);
    Ok(if faults { Exit::Findings } else { Exit::Success })
}

fn print(findings: &[Finding], out: &mut impl std::io::Write) -> std::io::Result<()> {
    for Finding { area, severity, what, statement } in findings {
        let mark = match severity {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Fault => "FAULT",
        };
        let area = match area {
            Area::Config => "config",
            Area::Source => "source",
            Area::Sink => "sink",
            Area::Store => "store",
        };
        writeln!(out, "{mark:<8} {area:<7} {what}")?;
        if let Some(statement) = statement {
            writeln!(out, "                 → {statement}")?;
        }
    }
    Ok(())
}

/// How far the stream was, as its state folder has it; `None` where it has delivered nothing, or a service runs.
fn delivered(config: &Config, running: bool) -> Option<Progress> {
    let stamp = Stamp { stream: config.stream.clone() };
    let store = (!running).then(|| Store::open_read_only(&config.store.directory, &stamp).ok()).flatten()?;
    store.progress().ok().flatten()
}

fn look_at_folder(config: &Config, directory: &Path, has_delivered: bool) -> Finding {
    let shown = directory.display();
    let unusable = |what| {
        Finding::fault(Area::Sink, what)
            .mended_by(format!("give the service's user the right to write to `{shown}`, or set `sink.file.directory`"))
    };
    if !is_writable(directory) {
        return unusable(format!("`{shown}` cannot be written to"));
    }
    let bytes = match std::fs::read(directory.join("committed.json")) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && has_delivered => {
            return Finding::warning(
                Area::Sink,
                format!("`{shown}` holds no events, and the stream has delivered some: all are sent anew"),
            )
            .mended_by("put the folder back, if it was moved");
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::ok(Area::Sink, format!("events will go to `{shown}`, which holds none yet"));
        }
        Err(error) => return unusable(format!("`{shown}/committed.json` cannot be read: {error}")),
    };
    let committed: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    match committed.get("stream").and_then(serde_json::Value::as_str) {
        Some(stream) if stream == config.stream => Finding::ok(Area::Sink, format!("events go to `{shown}`")),
        Some(stream) => Finding::fault(Area::Sink, format!("`{shown}` holds the events of stream `{stream}`"))
            .mended_by("set `sink.file.directory` to a folder of this stream's own"),
        None => Finding::fault(Area::Sink, format!("`{shown}/committed.json` cannot be understood"))
            .mended_by("put back a copy of the whole folder, or begin in an empty one"),
    }
}

fn look_at_store(config: &Config, running: bool) -> Finding {
    let directory = &config.store.directory;
    let shown = directory.display();
    if running {
        return Finding::ok(Area::Store, format!("the state folder `{shown}` is in use by the running service"));
    }
    match Store::open_read_only(directory, &Stamp { stream: config.stream.clone() }) {
        _ if !is_writable(directory) => Finding::fault(Area::Store, format!("the state folder `{shown}` cannot be written to"))
            .mended_by("give the service's user the right, or set `store.directory`"),
        Ok(_) => Finding::ok(Area::Store, format!("the state folder `{shown}` is that of this stream")),
        Err(StoreError::Missing { .. }) => Finding::ok(Area::Store, format!("the state folder `{shown}` will be made")),
        Err(error @ StoreError::OtherStream { .. }) => {
            Finding::fault(Area::Store, Chain(&error).to_string()).mended_by("set `store.directory` to a folder of this stream's own")
        }
        Err(error) => Finding::fault(Area::Store, Chain(&error).to_string()),
    }
}

/// Whether we may write to the folder, or make it where it is missing.
fn is_writable(directory: &Path) -> bool {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let existing = directory.ancestors().find(|folder| folder.exists());
    existing.is_some_and(|folder| folder.is_dir() && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_what_mends_it_another() {
        let findings = [Finding::ok(Area::Config, "fine"), Finding::fault(Area::Source, "it is off").mended_by("SELECT 1")];
        let mut out = Vec::new();
        print(&findings, &mut out).unwrap();
        let expect = "ok       config  fine\nFAULT    source  it is off\n                 → SELECT 1\n";
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn a_folder_that_is_missing_is_writable_where_the_one_above_is() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_writable(&folder.path().join("a/b")));
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(!is_writable(&folder.path().join("file")));
        assert!(!is_writable(&folder.path().join("file/a")));
    }
}
