//! The real program on a configuration of its own, in a folder of its own.
//!
//! `Walgate::of(&postgres).tables(&["public.*"]).set("rebuild.chunk_bytes", "64KiB").fault("stage.after*3").start()`.
//! It is killed with the value; what it wrote to standard error is printed where a test fails.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use toml::{Table, Value};

use super::events::{self, Events};
use super::json::Json;
use super::kafka::Kafka;
use super::kafka::reader::Reader;
use super::postgres::Postgres;
use super::schemas::Schema;
use super::{process, wait};

/// Prefix of all topics, name of the stream, and with `walgate_` before it of slot and publication.
pub(crate) const STREAM: &str = "lab";

/// Name of slot and publication.
pub(crate) const SLOT: &str = "walgate_lab";

/// For whatever the program does in a test, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// How the program is to be started.
pub(crate) struct Plan {
    config: Table,
    kafka: Option<Reader>,
    fault: Option<String>,
}

/// The program with its folder, running or not.
pub(crate) struct Walgate {
    folder: TempDir,
    topic_prefix: String,
    /// `None` where it writes to files.
    kafka: Option<Reader>,
    service: Option<Child>,
}

impl Plan {
    /// `[source] tables`; everything in the schema `public` if not said.
    pub(crate) fn tables(self, tables: &[&str]) -> Self {
        self.set("source.tables", tables.to_vec())
    }

    /// Sets a key of the configuration, such as `rebuild.chunk_bytes`.
    pub(crate) fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        set(&mut self.config, key, value.into());
        self
    }

    /// To Kafka instead of files: six partitions a topic, under a prefix that no other test has.
    pub(crate) fn into_kafka(mut self, kafka: &Kafka) -> Self {
        self.kafka = Some(kafka.reader());
        self.set("sink.kind", "kafka")
            .set("sink.topic_prefix", Kafka::fresh_prefix())
            .set("sink.kafka.brokers", kafka.brokers())
            .set("sink.kafka.partitions", 6)
            .set("sink.kafka.replication", 1)
    }

    /// Kills the program at a fail point: `name`, or `name*3` when it is reached for the third time. Only at the first
    /// start: [`Walgate::start_again`] goes on without.
    pub(crate) fn fault(mut self, point: &str) -> Self {
        self.fault = Some(point.to_owned());
        self
    }

    /// Writes the configuration without starting the service.
    pub(crate) fn prepare(self) -> Walgate {
        let folder = tempfile::Builder::new().prefix("walgate-test-").tempdir().expect("the temporary folder is writable");
        let topic_prefix = self.config["sink"]["topic_prefix"].as_str().expect("a prefix is text").to_owned();
        let walgate = Walgate { folder, topic_prefix, kafka: self.kafka.clone(), service: None };
        let plan = self.set("store.directory", walgate.path("state"));
        let plan = if plan.kafka.is_none() { plan.set("sink.file.directory", walgate.path("events")) } else { plan };
        walgate.configure(&plan.config);
        walgate
    }

    /// As [`Plan::start`], with its standard output.
    pub(crate) fn start_into_pipe(self) -> (Walgate, ChildStdout) {
        let mut walgate = self.prepare();
        walgate.spawn_with(&[], None, Stdio::piped());
        let output = walgate.service.as_mut().and_then(|service| service.stdout.take()).expect("its output is piped");
        (walgate, output)
    }

    pub(crate) fn start(mut self) -> Walgate {
        let fault = self.fault.take();
        let mut walgate = self.prepare();
        walgate.spawn(fault.as_deref());
        walgate
    }
}

impl Walgate {
    /// A stream of everything in the schema `public`, to files, with a connection over TCP.
    pub(crate) fn of(postgres: &Postgres) -> Plan {
        let plan = Plan { config: Table::new(), kafka: None, fault: None };
        plan.set("stream", STREAM)
            .set("source.url", postgres.url_tcp())
            .set("source.slot", SLOT)
            .set("source.publication", SLOT)
            .tables(&["public.*"])
            .set("sink.kind", "file")
            .set("sink.topic_prefix", STREAM)
    }

    /// Sets a key of the configuration for the next start.
    pub(crate) fn set(&self, key: &str, value: impl Into<Value>) {
        let text = fs::read_to_string(self.path("consumer.toml")).expect("the configuration is there");
        let mut config: Table = toml::from_str(&text).expect("the configuration is TOML");
        set(&mut config, key, value.into());
        self.configure(&config);
    }

    fn configure(&self, config: &Table) {
        fs::write(self.path("consumer.toml"), toml::to_string(config).expect("a table is TOML")).expect("the folder is writable");
    }

    /// Starts the service after it has ended.
    pub(crate) fn start_again(&mut self) {
        self.spawn(None);
    }

    /// As [`Walgate::start_again`], to be killed at a fail point.
    pub(crate) fn start_again_with_fault(&mut self, point: &str) {
        self.spawn(Some(point));
    }

    /// Starts the service with options of `run`, such as `--take-over`.
    pub(crate) fn start_with(&mut self, options: &[&str]) {
        self.spawn_with(options, None, Stdio::null());
    }

    fn spawn(&mut self, fault: Option<&str>) {
        self.spawn_with(&[], fault, Stdio::null());
    }

    fn spawn_with(&mut self, options: &[&str], fault: Option<&str>, output: Stdio) {
        assert!(self.service.is_none(), "the service runs already");
        let stderr = File::options().create(true).append(true).open(self.path("stderr")).expect("the folder is writable");
        let mut command = self.command(&[&["run"], options].concat());
        command.stdin(Stdio::null()).stdout(output).stderr(stderr);
        if let Some(point) = fault {
            command.env("WALGATE_FAULT", point);
        }
        self.service = Some(command.spawn().expect("the program starts"));
    }

    /// Kills the service with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut service = self.service.take().expect("the service was started");
        service.kill().expect("a child can be killed");
        service.wait().expect("a child can be waited for");
    }

    /// Stops the service with SIGTERM.
    #[track_caller]
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.terminate();
        self.wait_exit(PATIENCE)
    }

    /// Sends SIGTERM, and does not wait.
    pub(crate) fn terminate(&self) {
        process::signal(self.service.as_ref().expect("the service was started"), Signal::TERM);
    }

    /// Stops the service where it is, as a machine does that is starved or suspended; [`Walgate::go_on`] ends it.
    pub(crate) fn suspend(&self) {
        process::signal(self.service.as_ref().expect("the service was started"), Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        process::signal(self.service.as_ref().expect("the service was started"), Signal::CONT);
    }

    /// Waits until the service ends by itself, or at its fail point.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self, deadline: Duration) -> ExitStatus {
        let status = wait::until_some(deadline, "the service has ended", || self.ended());
        self.service = None;
        status
    }

    /// How the service ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.service.as_mut().expect("the service was started").try_wait().expect("a child can be waited for")
    }

    /// What `walgate status --json` says; `None` while it can say nothing.
    pub(crate) fn status(&self) -> Option<Json> {
        let output = self.run(&["status", "--json"]);
        output.status.success().then(|| Json::parse(&String::from_utf8_lossy(&output.stdout)).expect("`status --json` prints JSON"))
    }

    /// Waits until `status` shows what `condition` looks for; fails at once where the service has ended.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str, condition: impl Fn(&Json) -> bool) {
        wait::until(PATIENCE, what, || {
            let holds = self.status().is_some_and(|status| condition(&status));
            if let Some(status) = self.ended() {
                panic!("the service ended with {status} before {what}");
            }
            holds
        });
    }

    /// Waits for a `state` of the status, such as `streaming`.
    #[track_caller]
    pub(crate) fn wait_for_state(&mut self, state: &str) {
        self.wait_for(&format!("its state is `{state}`"), |status| status.get("state").and_then(Json::as_text) == Some(state));
    }

    /// Waits for the end of the rebuild of this number; the first load is number 1.
    #[track_caller]
    pub(crate) fn wait_for_rebuild(&mut self, id: u64) {
        self.wait_for(&format!("rebuild {id} has ended"), |status| {
            let ended = status.get("last_rebuild").and_then(|rebuild| rebuild.get("id"));
            ended.and_then(Json::as_u64) == Some(id) && status.get("rebuild").is_none()
        });
    }

    /// Waits until everything that was written before the call is delivered and acknowledged.
    #[track_caller]
    pub(crate) fn wait_until_caught_up(&mut self, postgres: &Postgres) {
        let end = postgres.sql("SELECT pg_current_wal_insert_lsn()").one().to_owned();
        self.wait_for(&format!("it has caught up with {end}"), |status| {
            let reached = |lsn: Option<&Json>| lsn.and_then(Json::as_text).is_some_and(|lsn| number(lsn) >= number(&end));
            reached(status.get("acknowledged_lsn")) || reached(status.get("position").and_then(|position| position.get("commit_lsn")))
        });
    }

    /// Waits until no row is known only in part, as those are whose key changed while a large value did not.
    #[track_caller]
    pub(crate) fn wait_until_rows_are_whole(&mut self) {
        self.wait_for("its rows are whole", |status| {
            status.get("incomplete_topics").and_then(Json::as_array).is_some_and(<[Json]>::is_empty)
        });
    }

    /// Runs another command of the program on the same configuration.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().expect("the program runs")
    }

    /// As [`Walgate::run`], with environment variables.
    pub(crate) fn run_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
        self.command(arguments).envs(variables.iter().copied()).stdin(Stdio::null()).output().expect("the program runs")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_walgate"));
        let inherited = std::env::vars_os().map(|(name, _)| name).filter(|name| {
            let name = name.to_string_lossy();
            name.starts_with("WALGATE") || name.starts_with("PG")
        });
        for name in inherited {
            command.env_remove(name);
        }
        command.args(arguments).arg("--config").arg(self.path("consumer.toml")).current_dir(self.folder.path());
        command
    }

    /// The committed events, which fit the schemas that subscribers are given.
    #[track_caller]
    pub(crate) fn events(&self) -> Events {
        let events = self.events_of_any_shape();
        events.assert_fit_schemas();
        events
    }

    /// The committed events, whoever wrote them.
    #[track_caller]
    pub(crate) fn events_of_any_shape(&self) -> Events {
        match &self.kafka {
            Some(kafka) => Events::of_records(&kafka.read_stream(&self.topic_prefix), &self.topic_prefix),
            None => Events::read(self.events_directory().as_ref(), &self.topic_prefix),
        }
    }

    /// What the names of all its topics begin with.
    pub(crate) fn topic_prefix(&self) -> &str {
        &self.topic_prefix
    }

    /// The committed lines of a table's topic, byte for byte.
    #[track_caller]
    pub(crate) fn lines(&self, table: &str) -> Vec<String> {
        self.lines_of(&format!("{STREAM}.{table}"))
    }

    /// The committed lines of a topic; none where it has no events.
    pub(crate) fn lines_of(&self, topic: &str) -> Vec<String> {
        events::lines(self.events_directory().as_ref(), topic)
    }

    /// Whether every event of a table fits the schema that `walgate schema` prints for it.
    #[track_caller]
    pub(crate) fn assert_events_fit_table(&self, table: &str) {
        let printed = self.run(&["schema", table]);
        assert!(printed.status.success(), "`walgate schema {table}`: {}", String::from_utf8_lossy(&printed.stderr));
        let schemas: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("it prints JSON");
        let [key, value] = ["key", "value"].map(|part| Schema::compile(table, &schemas[part].to_string()));
        for line in self.lines_of(&format!("{}.{table}", self.topic_prefix)) {
            let line = Json::parse(&line).expect("a line is JSON");
            let Some(event) = line.get("value") else { continue };
            key.assert_fits(line.get("key").unwrap_or(&Json::Null));
            value.assert_fits(event);
        }
    }

    pub(crate) fn events_directory(&self) -> PathBuf {
        self.folder.path().join("events")
    }

    pub(crate) fn state_directory(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// A copy of the state folder, as a backup makes one while the service is stopped.
    pub(crate) fn back_up_state(&self) -> TempDir {
        let backup = tempfile::tempdir().expect("the temporary folder is writable");
        process::copy(&self.state_directory(), &backup.path().join("state"));
        backup
    }

    /// Puts an older copy in the place of the state folder.
    pub(crate) fn restore_state(&self, backup: &TempDir) {
        fs::remove_dir_all(self.state_directory()).expect("a folder can be removed");
        process::copy(&backup.path().join("state"), &self.state_directory());
    }

    /// What the service has written to standard error, over all its starts.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).into_os_string().into_string().expect("the temporary folder's name is UTF-8")
    }
}

impl Drop for Walgate {
    fn drop(&mut self) {
        if let Some(mut service) = self.service.take() {
            service.kill().ok();
            drop(service.wait());
        }
        if thread::panicking() {
            eprintln!("--- standard error of walgate ---\n{}", self.stderr());
        }
    }
}

fn set(config: &mut Table, key: &str, value: Value) {
    let mut path: Vec<&str> = key.split('.').collect();
    let last = path.pop().expect("a key has a name");
    let section = path.into_iter().fold(config, |section, name| {
        let section = section.entry(name).or_insert_with(|| Table::new().into());
        section.as_table_mut().unwrap_or_else(|| panic!("`{name}` of `{key}` is no section"))
    });
    section.insert(last.to_owned(), value);
}

/// An LSN as a number.
#[track_caller]
fn number(lsn: &str) -> u64 {
    let (high, low) = lsn.split_once('/').expect("an LSN has two halves");
    let half = |digits| u64::from_str_radix(digits, 16).expect("an LSN is hexadecimal");
    half(high) << 32 | half(low)
}
