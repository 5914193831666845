//! The lab has to do what the tests rely on.

mod broker;
mod checker;

use std::time::Duration;

use crate::lab::ledger::{Committed, Ledger};
use crate::lab::postgres::Postgres;
use crate::lab::sql::Session;
use crate::lab::wait;

#[test]
fn walgate_connects_by_socket_and_by_password() {
    let postgres = Postgres::with("application_name = 'set by the test'").start();
    for url in [postgres.url_socket(), postgres.url_tcp()] {
        let session = Session::open(&url).unwrap();
        assert_eq!(session.sql("SELECT current_user || ' in ' || current_database()").one(), "walgate in shop");
    }
    let wrong = postgres.url_tcp().replace("secret", "guess");
    assert!(Session::open(&wrong).is_err_and(|error| error.code().is_some_and(|code| code.code() == "28P01")));
    assert_eq!(postgres.sql("SHOW application_name").one(), "set by the test");
}

#[test]
fn walgate_may_publish_what_the_superuser_made() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE t (id int PRIMARY KEY)");
    let walgate = Session::open(&postgres.url_tcp()).unwrap();
    walgate.sql("CREATE PUBLICATION p FOR TABLE t");
    walgate.sql("SELECT pg_create_logical_replication_slot('s', 'pgoutput')");
    assert_eq!(walgate.sql("SELECT usesuper FROM pg_user WHERE usename = current_user").one(), "f");
}

#[test]
fn a_crashed_cluster_keeps_what_was_committed() {
    let mut postgres = Postgres::start();
    postgres.sql("CREATE TABLE t (id int)");
    let session = postgres.session();
    for (id, crash) in [Postgres::crash as fn(&mut Postgres), Postgres::stop_immediately].into_iter().enumerate() {
        postgres.sql(&format!("INSERT INTO t VALUES ({id})"));
        let started = postgres.sql("SELECT pg_postmaster_start_time()").one().to_owned();
        crash(&mut postgres);
        assert!(session.run("SELECT 1").is_err(), "the crash ends connections");
        postgres.restart();
        assert_ne!(postgres.sql("SELECT pg_postmaster_start_time()").one(), started);
        assert_eq!(postgres.sql("SELECT count(*) FROM t").one(), (id + 1).to_string());
    }
    assert!(postgres.stop_fast() < Duration::from_secs(30));
}

#[test]
fn a_slot_is_lost_on_demand_and_another_can_follow() {
    let postgres = Postgres::start();
    for slot in ["first", "second"] {
        postgres.sql(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
        assert_eq!(postgres.wal_status(slot).as_deref(), Some("reserved"));
        postgres.lose_slot(slot);
    }
    assert_eq!(postgres.wal_status("missing"), None);
}

#[test]
fn clusters_share_a_system_identifier_unless_a_new_one_is_asked_for() {
    let system = |postgres: &Postgres| postgres.sql("SELECT system_identifier FROM pg_control_system()").one().to_owned();
    let (one, other, new) = (Postgres::start(), Postgres::start(), Postgres::new_system().start());
    assert_eq!(system(&one), system(&other));
    assert_ne!(system(&one), system(&new));
    assert_eq!(new.sql_in("postgres", "SELECT count(*) FROM pg_database WHERE datname = 'shop'").one(), "1");
}

#[test]
#[should_panic(expected = "in vain until pigs fly")]
fn waiting_ends_at_the_deadline() {
    wait::until(Duration::from_millis(1), "pigs fly", || false);
}

#[test]
fn a_ledger_knows_what_was_committed_across_a_crash() {
    let mut postgres = Postgres::start();
    let mut ledger = Ledger::create(&postgres);
    let mut committed = Committed::default();
    for _ in 0..2 {
        let round = ledger.start(2, Duration::ZERO);
        wait::until(Duration::from_secs(30), "the writers have committed", || round.commits() > 100);
        postgres.crash();
        postgres.restart();
        round.stop_into(&mut committed);
    }
    let there = postgres.sql("SELECT writer, txn FROM ledger GROUP BY writer, txn ORDER BY writer, txn");
    let there: Vec<(u32, u32)> =
        there.iter().map(|row| (row[0].as_ref().unwrap().parse().unwrap(), row[1].as_ref().unwrap().parse().unwrap())).collect();
    assert_eq!(committed.transactions().collect::<Vec<_>>(), there);
    assert_eq!(postgres.sql("SELECT count(*) FROM ledger WHERE n < 0").one(), "0");
    assert_ne!(postgres.sql("SELECT count(*) FROM line WHERE id <> line").one(), "0", "some lines are at another key");
}
