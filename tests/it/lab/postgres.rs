//! A private PostgreSQL cluster, on a socket in its own folder and on a TCP port of 127.0.0.1.
//!
//! `Postgres::start()`, or `Postgres::with("max_slot_wal_keep_size = '4MB'").start()`. It ends with the value, and
//! prints the end of its log where a test fails.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::sql::{Rows, Session};
use super::{port, process, template, wait};

/// A killed process leaves the system's page cache as it is: without fsync a crashed cluster loses nothing.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
wal_level = logical
max_wal_senders = 10
max_replication_slots = 10
max_prepared_transactions = 10
min_wal_size = '2MB'
max_wal_size = '256MB'
shared_buffers = '32MB'
log_line_prefix = '%m [%p] %a: '
fsync = off
";

/// For a start that replays log on a busy machine, and for a fast shutdown.
const PATIENCE: Duration = Duration::from_mins(1);

/// Lines of the server's log that a failed test prints.
const LOG_LINES_SHOWN: usize = 40;

/// How a cluster is to be made.
pub(crate) struct Plan {
    settings: String,
    access: Option<String>,
    new_system: bool,
    locale: Option<String>,
}

/// A cluster, running or stopped.
pub(crate) struct Postgres {
    folder: TempDir,
    port: u16,
    /// Folders in which the server looks for locales, where they are not the system's.
    locales: Option<String>,
    server: Option<Child>,
}

impl Plan {
    /// Adds a locale such as `de_DE.UTF-8` to those of the system, which may have none but `C`.
    pub(crate) fn locale(mut self, locale: &str) -> Self {
        self.locale = Some(locale.to_owned());
        self
    }

    /// Adds a line of `postgresql.conf`.
    pub(crate) fn with(mut self, setting: &str) -> Self {
        self.settings.push_str(setting);
        self.settings.push('\n');
        self
    }

    /// Lines of `pg_hba.conf` in the place of the template's, below the superuser's own over the socket.
    pub(crate) fn access(mut self, lines: &str) -> Self {
        self.access = Some(format!("local all postgres trust\n{lines}\n"));
        self
    }

    pub(crate) fn start(self) -> Postgres {
        let folder = tempfile::Builder::new().prefix("walgate-pg-").tempdir_in(socket_root()).expect("the temporary folder is writable");
        process::hand_over(folder.path());
        let mut postgres = Postgres { folder, port: port::free(), locales: None, server: None };
        postgres.locales = self.locale.map(|locale| template::make_locale(postgres.folder.path(), &locale));
        if self.new_system {
            template::initdb(&postgres.data());
        } else {
            template::copy_to(&postgres.data());
        }
        let conf = OpenOptions::new().append(true).open(postgres.data().join("postgresql.conf"));
        let own = format!("{}port = {}\nunix_socket_directories = '{}'\n", self.settings, postgres.port, postgres.folder.path().display());
        conf.and_then(|mut conf| conf.write_all(own.as_bytes())).expect("a new cluster is writable");
        if let Some(access) = self.access {
            fs::write(postgres.data().join("pg_hba.conf"), access).expect("a new cluster is writable");
        }
        postgres.restart();
        if self.new_system {
            template::fill(&postgres.session_in("postgres"));
        }
        postgres
    }
}

impl Postgres {
    pub(crate) fn start() -> Self {
        Self::plan().start()
    }

    /// A cluster with one more line of `postgresql.conf`.
    pub(crate) fn with(setting: &str) -> Plan {
        Self::plan().with(setting)
    }

    /// A cluster with a system identifier of its own; all others share one.
    pub(crate) fn new_system() -> Plan {
        Plan { new_system: true, ..Self::plan() }
    }

    fn plan() -> Plan {
        Plan { settings: SETTINGS.to_owned(), access: None, new_system: false, locale: None }
    }

    /// For `walgate`, over the socket.
    pub(crate) fn url_socket(&self) -> String {
        format!("postgresql://walgate@/shop?host={}&port={}", self.folder.path().display(), self.port)
    }

    /// For `walgate`, over TCP, with SCRAM-SHA-256.
    pub(crate) fn url_tcp(&self) -> String {
        format!("postgresql://walgate:secret@127.0.0.1:{}/shop", self.port)
    }

    /// As [`Postgres::url_tcp`], under a host name that only this URL knows.
    pub(crate) fn url_named(&self, host: &str) -> String {
        format!("postgresql://walgate:secret@{host}:{}/shop?hostaddr=127.0.0.1", self.port)
    }

    /// For the superuser, over the socket.
    pub(crate) fn url_superuser(&self, database: &str) -> String {
        format!("postgresql://postgres@/{database}?host={}&port={}", self.folder.path().display(), self.port)
    }

    /// A connection of the superuser to the database `shop`, to be kept.
    pub(crate) fn session(&self) -> Session {
        self.session_in("shop")
    }

    /// A connection of the superuser to another database.
    pub(crate) fn session_in(&self, database: &str) -> Session {
        Session::open(&self.url_superuser(database)).unwrap_or_else(|error| panic!("connect to `{database}`: {error}"))
    }

    /// Runs statements on a connection of their own, as the superuser in the database `shop`.
    #[track_caller]
    pub(crate) fn sql(&self, statements: &str) -> Rows {
        self.session().sql(statements)
    }

    /// As [`Postgres::sql`], in another database.
    #[track_caller]
    pub(crate) fn sql_in(&self, database: &str, statements: &str) -> Rows {
        self.session_in(database).sql(statements)
    }

    /// Loads rows by one `COPY … FROM STDIN`, given in its text format, with PostgreSQL's own client.
    #[track_caller]
    pub(crate) fn copy_in(&self, table: &str, lines: &str) {
        let mut psql = Command::new("psql");
        psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]).args(["--command", &format!("COPY {table} FROM STDIN")]);
        let mut psql = psql.arg(self.url_superuser("shop")).stdin(Stdio::piped()).spawn().expect("psql is installed: see scripts/setup");
        let mut input = psql.stdin.take().expect("its input is piped");
        input.write_all(lines.as_bytes()).expect("psql reads its input");
        drop(input);
        assert!(psql.wait().expect("a child can be waited for").success(), "the COPY fails");
    }

    /// Of the server: 14 to 18.
    pub(crate) fn version(&self) -> u32 {
        let number: u32 = self.sql("SHOW server_version_num").one().parse().expect("a version is a number");
        number / 10_000
    }

    /// Changes a setting of the running server.
    #[track_caller]
    pub(crate) fn set(&self, name: &str, value: &str) {
        let session = self.session();
        session.sql(&format!("ALTER SYSTEM SET {name} = '{value}'"));
        session.sql("SELECT pg_reload_conf()");
    }

    /// Kills all processes of the cluster with SIGKILL.
    pub(crate) fn crash(&mut self) {
        process::kill_with_children(self.server.take().expect("the server runs"));
    }

    /// Stops as `pg_ctl stop -m immediate` does: without a checkpoint, so that the next start recovers from the log.
    pub(crate) fn stop_immediately(&mut self) {
        self.stop(Signal::QUIT);
    }

    /// Stops as `pg_ctl stop -m fast` does, which waits for walsenders; returns how long it took.
    pub(crate) fn stop_fast(&mut self) -> Duration {
        self.stop(Signal::INT)
    }

    fn stop(&mut self, how: Signal) -> Duration {
        let begun = Instant::now();
        let server = self.server.as_mut().expect("the server runs");
        process::signal(server, how);
        wait::until(PATIENCE, "the server has stopped", || has_ended(server));
        self.server = None;
        begun.elapsed()
    }

    /// Starts a cluster that was stopped or crashed; one that runs is stopped first.
    pub(crate) fn restart(&mut self) {
        if self.server.is_some() {
            self.stop_fast();
        }
        let log = || File::options().create(true).append(true).open(self.log()).expect("the log is writable");
        let mut command = process::unprivileged(&template::program("postgres"));
        let command = command.arg("-D").arg(self.data()).stdin(Stdio::null()).stdout(log()).stderr(log());
        if let Some(locales) = &self.locales {
            command.env("LOCPATH", locales);
        }
        let url = self.url_superuser("postgres");
        let server = self.server.insert(command.spawn().expect("PostgreSQL starts"));
        wait::until(PATIENCE, "the server takes connections", || {
            assert!(!has_ended(server), "the server ended while it started");
            Session::open(&url).is_ok()
        });
    }

    /// A copy of the stopped cluster.
    pub(crate) fn back_up(&self) -> TempDir {
        assert!(self.server.is_none(), "the server runs");
        let backup = tempfile::tempdir().expect("the temporary folder is writable");
        process::copy(&self.data(), &backup.path().join("data"));
        backup
    }

    /// Puts an older copy in the place of the stopped cluster.
    pub(crate) fn restore(&self, backup: &TempDir) {
        assert!(self.server.is_none(), "the server runs");
        fs::remove_dir_all(self.data()).expect("a folder can be removed");
        process::copy(&backup.path().join("data"), &self.data());
    }

    /// What `pg_replication_slots` says of the log that a slot needs; `None` where there is no such slot.
    pub(crate) fn wal_status(&self, slot: &str) -> Option<String> {
        self.sql(&format!("SELECT coalesce(wal_status, 'lost') FROM pg_replication_slots WHERE slot_name = '{slot}'"))
            .maybe()
            .map(str::to_owned)
    }

    /// Makes the server give up the log that `slot` needs, as one does whose disk was filling up.
    #[track_caller]
    pub(crate) fn lose_slot(&self, slot: &str) {
        self.set("max_slot_wal_keep_size", "1MB");
        wait::until(PATIENCE, &format!("slot `{slot}` is lost"), || {
            let session = self.session();
            for _ in 0..4 {
                // The record keeps the segment from being empty, which would not be switched.
                session.sql("SELECT pg_create_restore_point('lab')");
                session.sql("SELECT pg_switch_wal()");
            }
            session.sql("CHECKPOINT");
            self.wal_status(slot).expect("the slot exists") == "lost"
        });
        self.set("max_slot_wal_keep_size", "-1");
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What the server has written to its log.
    pub(crate) fn logged(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.logged();
            let lines: Vec<&str> = log.lines().collect();
            let shown = lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or_default();
            eprintln!("--- end of PostgreSQL's log ---\n{}", shown.join("\n"));
        }
        if let Some(mut server) = self.server.take()
            && !has_ended(&mut server)
        {
            process::signal(&server, Signal::QUIT);
            // PostgreSQL itself kills what does not follow within five seconds.
            drop(server.wait());
        }
    }
}

fn has_ended(server: &mut Child) -> bool {
    server.try_wait().expect("a child can be waited for").is_some()
}

/// A socket's path may be 107 bytes long; a longer temporary folder is left alone.
fn socket_root() -> PathBuf {
    let folder = std::env::temp_dir();
    if folder.as_os_str().len() < 60 { folder } else { Path::new("/tmp").to_owned() }
}
