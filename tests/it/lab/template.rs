//! A cluster made once a machine and copied by every test: `initdb` takes seconds, a copy a fraction of one.
//!
//! All copies have one system identifier, as a server and its restored backup have.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::postgres::Postgres;
use super::process;
use super::sql::Session;

/// One-megabyte segments: losing a slot takes few bytes of log.
const INITDB: &[&str] = &["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--wal-segsize=1", "--no-sync"];

/// `walgate` is no superuser; what it may do with others' tables comes from being a member of `postgres`.
const CONTENTS: &[&str] = &[
    "SET password_encryption = 'scram-sha-256'; CREATE ROLE walgate LOGIN REPLICATION PASSWORD 'secret'",
    "GRANT postgres TO walgate",
    "CREATE DATABASE shop OWNER walgate",
];

/// Anyone on the machine over the socket; over TCP only with a password.
const ACCESS: &str = "
local all         all     trust
local replication all     trust
host  all         walgate 127.0.0.1/32 scram-sha-256
host  replication walgate 127.0.0.1/32 scram-sha-256
";

/// A program of the PostgreSQL under test.
pub(crate) fn program(name: &str) -> PathBuf {
    let folder = env::var_os("WALGATE_TEST_PG_BIN").unwrap_or_else(|| "/usr/lib/postgresql/15/bin".into());
    PathBuf::from(folder).join(name)
}

/// Puts a copy of the template at `data`.
pub(crate) fn copy_to(data: &Path) {
    let version = Command::new(program("postgres")).arg("--version").output().expect("PostgreSQL is installed: see scripts/setup").stdout;
    let mut recipe = DefaultHasher::new();
    (version, INITDB, CONTENTS, ACCESS).hash(&mut recipe);
    let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("postgres-{:016x}", recipe.finish()));

    let lock = File::create(template.with_extension("lock")).expect("the target folder is writable");
    lock.lock().expect("a file can be locked");
    if !template.exists() {
        let partial = template.with_extension("partial");
        drop(fs::remove_dir_all(&partial));
        let mut maker = Postgres::new_system().start();
        maker.stop_fast();
        process::copy(&maker.data(), &partial);
        fs::rename(&partial, &template).expect("a folder can be renamed");
    }
    process::copy(&template, data);
}

/// Makes a cluster at `data`, with a system identifier of its own; [`fill`] does the rest once it runs.
pub(crate) fn initdb(data: &Path) {
    let made = process::unprivileged(&program("initdb"))
        .args(INITDB)
        .arg("-D")
        .arg(data)
        .output()
        .expect("PostgreSQL is installed: see scripts/setup");
    assert!(made.status.success(), "initdb fails: {}", String::from_utf8_lossy(&made.stderr));
    fs::write(data.join("pg_hba.conf"), ACCESS).expect("a new cluster is writable");
}

/// Makes roles and database in a cluster that [`initdb`] made.
pub(crate) fn fill(cluster: &Session) {
    for statement in CONTENTS {
        cluster.sql(statement);
    }
}

/// Makes a locale in `folder`; returns where locales are then, in the form of `LOCPATH`.
pub(crate) fn make_locale(folder: &Path, locale: &str) -> String {
    let (language, encoding) = locale.split_once('.').expect("a locale has an encoding");
    let mut command = Command::new("localedef");
    command.args(["-c", "-i", language, "-f", encoding]).arg(folder.join(locale));
    let made = command.output().expect("localedef is installed: see scripts/setup");
    assert!(folder.join(locale).exists(), "localedef fails: {}", String::from_utf8_lossy(&made.stderr));
    format!("{}:/usr/lib/locale", folder.display())
}
