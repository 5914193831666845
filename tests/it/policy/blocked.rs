//! A sink that takes nothing: a pipe that nobody reads.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::ChildStdout;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::wait_for_waiting;
use crate::lab::json::Json;
use crate::lab::postgres::Postgres;
use crate::lab::schemas;
use crate::lab::wait;
use crate::lab::walgate::{PATIENCE, Walgate};

/// More than a pipe holds.
const ROWS: &str = "INSERT INTO item SELECT n, repeat('x', 2000) FROM generate_series(1, 200) n";

#[test]
fn a_sink_that_blocks_leaves_the_source_in_peace_and_is_gone_on_with_once_it_answers() {
    let (mut postgres, mut walgate, output) = blocked("7s");
    let walsender = "SELECT pid FROM pg_stat_replication";
    let first = postgres.sql(walsender).one().to_owned();
    let mut connected = Some(first.clone());
    wait::until(PATIENCE, "the connection to the source is closed", || {
        connected = postgres.sql(walsender).maybe().map(str::to_owned);
        assert!(connected.as_ref().is_none_or(|pid| *pid == first), "the connection was lost before");
        connected.is_none()
    });
    assert!(!postgres.logged().contains("replication timeout"), "keepalives were answered");
    wait_for_waiting(&mut walgate, "the sink to answer");
    let stopped = postgres.stop_fast();
    assert!(stopped < Duration::from_secs(5), "the fast shutdown took {stopped:?}");
    postgres.restart();

    let events = read(output);
    postgres.sql("INSERT INTO item VALUES (1000, 'later')");
    let mut rows = BTreeMap::new();
    while rows.len() < 201 {
        let line = events.recv_timeout(PATIENCE).expect("all rows come");
        let line = Json::parse(&line).expect("a line is JSON");
        schemas::LINE.assert_fits(&line);
        let id = line.get("headers").and_then(|headers| headers.get("id")).cloned();
        let row = line.get("value").and_then(|value| value.get("after")).and_then(|row| row.get("id")).and_then(Json::as_u64);
        if let Some(row) = row {
            let same = rows.entry(row).or_insert_with(|| id.clone());
            assert_eq!(*same, id, "what comes again has the id that it had");
        }
    }
    walgate.wait_for_state("streaming");
    assert!(walgate.stop().success());
}

#[test]
fn a_fast_shutdown_waits_for_a_blocked_sink_no_longer_than_its_grace() {
    let (mut postgres, _walgate, _output) = blocked("2s");
    let stopped = postgres.stop_fast();
    assert!(stopped < Duration::from_secs(6), "the fast shutdown took {stopped:?}");
}

#[test]
fn told_to_stop_once_it_waits_for_a_blocked_sink_and_told_twice_it_leaves_at_once() {
    for grace in ["1s", "1h"] {
        let (postgres, mut walgate, _output) = blocked(grace);
        if grace == "1s" {
            wait_for_waiting(&mut walgate, "the sink to answer");
        }
        walgate.terminate();
        walgate.wait_for_state("stopping");
        assert!(walgate.ended().is_none());
        walgate.terminate();
        assert_eq!(walgate.wait_exit(Duration::from_secs(5)).code(), Some(11), "the open batch is not recorded");
        drop(postgres);
    }
}

#[test]
fn told_to_stop_it_waits_for_a_blocked_sink_as_long_as_configured() {
    let (_postgres, mut walgate, _output) = blocked("1s");
    wait_for_waiting(&mut walgate, "the sink to answer");
    walgate.terminate();
    assert_eq!(walgate.wait_exit(Duration::from_secs(20)).code(), Some(11), "{}", walgate.stderr());
    assert!(walgate.stderr().contains("the sink did not take the open batch"), "{}", walgate.stderr());
}

/// A service with a full pipe.
fn blocked(grace: &str) -> (Postgres, Walgate, ChildStdout) {
    let postgres = Postgres::with("wal_sender_timeout = '2s'").start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY, name text)");
    let plan = Walgate::of(&postgres).set("sink.kind", "stdout").set("sink.grace", grace).set("run.shutdown_timeout", "4s");
    let (mut walgate, output) = plan.start_into_pipe();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    postgres.sql(ROWS);
    let end = postgres.sql("SELECT pg_current_wal_flush_lsn()").one().to_owned();
    let sent = format!("SELECT sent_lsn >= '{end}' FROM pg_stat_replication");
    wait::until(PATIENCE, "the rows are sent", || postgres.sql(&sent).maybe() == Some("t"));
    (postgres, walgate, output)
}

fn read(output: ChildStdout) -> mpsc::Receiver<String> {
    let (lines, events) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    events
}
