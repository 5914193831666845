//! A scenario of the peer, run again: its statements on a server, one stream for each of its modes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::compare::{self, Difference, Event};
use crate::lab::postgres::Postgres;
use crate::lab::walgate::{Plan, Walgate};

/// The peer's name for the server, which is in topics and events.
const PREFIX: &str = "srv";

/// Statements, and what the peer made of them in one mode or several.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    runs: Vec<Run>,
}

/// One mode.
#[derive(Clone)]
pub(super) struct Run {
    name: &'static str,
    settings: Vec<(&'static str, toml::Value)>,
}

impl Run {
    /// `name`: the folder of its events; empty: that of the scenario.
    pub(super) fn of(name: &'static str) -> Self {
        Self { name, settings: Vec::new() }
    }

    pub(super) fn with(mut self, key: &'static str, value: impl Into<toml::Value>) -> Self {
        self.settings.push((key, value.into()));
        self
    }

    pub(super) fn skipping(self, operations: &[&str]) -> Self {
        self.with("skipped_operations", operations.to_vec())
    }

    pub(super) fn without_tombstones(self) -> Self {
        self.with("tombstones", false)
    }

    pub(super) fn with_transactions(self) -> Self {
        self.with("transactions", true)
    }

    fn plan(&self, postgres: &Postgres, number: usize) -> Plan {
        let name = format!("oracle{number}");
        let plan = Walgate::of(postgres)
            .tables(&[])
            .set("stream", name.as_str())
            .set("source.url", postgres.url_superuser("oracle"))
            .set("source.slot", name.as_str())
            .set("source.publication", "dbz_publication")
            .set("sink.topic_prefix", PREFIX)
            .set("format.style", "debezium");
        self.settings.iter().fold(plan, |plan, (key, value)| plan.set(&format!("format.{key}"), value.clone()))
    }
}

impl Scenario {
    pub(super) fn new(name: &'static str, runs: &[Run]) -> Self {
        Self { name, runs: runs.to_vec() }
    }

    /// Every difference between the peer's events and ours.
    pub(super) fn differences(&self) -> Vec<Difference> {
        eprintln!("{}", self.name);
        let postgres = Postgres::start();
        postgres.sql("CREATE DATABASE oracle TEMPLATE template0 ENCODING UTF8 LOCALE 'C.UTF-8'");
        self.psql(&postgres, "schema.sql");
        self.psql(&postgres, "before.sql");
        let mut streams: Vec<Walgate> = self.runs.iter().enumerate().map(|(number, run)| run.plan(&postgres, number).start()).collect();
        for stream in &mut streams {
            stream.wait_for_rebuild(1);
        }
        self.psql(&postgres, "work.sql");
        for stream in &mut streams {
            stream.wait_until_caught_up(&postgres);
        }
        let compared = self.runs.iter().zip(&mut streams).flat_map(|(run, stream)| {
            stream.wait_until_rows_are_whole();
            assert!(stream.stop().success());
            let recorded = fs::read_to_string(self.path(run.name).join("events.jsonl")).expect("the peer's events are there");
            let theirs: Vec<Event> = recorded.lines().map(Event::of_record).collect();
            self.check_schemas(stream, &postgres);
            compare::all(&format!("{}/{}", self.name, run.name), &theirs, &|topic| {
                stream.lines_of(topic).iter().map(|line| Event::of_line(topic, line)).collect()
            })
        });
        compared.collect()
    }

    /// Each table as it is now, where none has changed meanwhile.
    fn check_schemas(&self, stream: &Walgate, postgres: &Postgres) {
        if self.name.starts_with("13") || self.name.starts_with("14") {
            return;
        }
        let tables = "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = 'dbz_publication'";
        for table in postgres.sql_in("oracle", tables).iter().filter_map(|row| row[0].as_deref()) {
            stream.assert_events_fit_table(table);
        }
    }

    /// As a person would type it: one statement after the other, whatever becomes of each.
    fn psql(&self, postgres: &Postgres, file: &str) {
        let path = self.path("").join(file);
        if !path.exists() {
            return;
        }
        let mut psql = Command::new("psql");
        psql.args(["--no-psqlrc", "--quiet", "--dbname", &postgres.url_superuser("oracle"), "--file"]).arg(path);
        let status = psql.env("PGTZ", "UTC").stdout(Stdio::null()).stderr(Stdio::null()).status().expect("psql runs");
        assert!(status.success(), "psql ended with {status}");
    }

    fn path(&self, run: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle").join(self.name).join(run)
    }
}
