//! Tables without a key: read in one piece, sent whole by a rebuild.

use std::time::Duration;

use super::super::lab::json::Json;
use super::super::lab::postgres::Postgres;
use super::super::lab::walgate::{SLOT, Walgate};
use super::{events, loaded, meanwhile, ops, rebuilt};

/// Each row twice.
const FULL: &str = "CREATE TABLE log (n int, line text); ALTER TABLE log REPLICA IDENTITY FULL; \
                    INSERT INTO log SELECT n % 1000, 'line ' || n % 1000 FROM generate_series(1, 2000) n";

/// Rows come, change and go, one of equal ones at a time.
fn churn(round: u32) -> String {
    let one = |n: u32| format!("ctid = (SELECT min(ctid) FROM log WHERE n = {n})");
    format!(
        "INSERT INTO log VALUES ({round}, 'new'), ({round}, 'new'); UPDATE log SET line = line || '!' WHERE {}; DELETE FROM log WHERE {}",
        one(round * 7 % 1000),
        one(round * 13 % 1000)
    )
}

#[test]
fn a_table_without_a_key_is_loaded_under_load_each_row_as_often_as_it_is_there() {
    let postgres = Postgres::start();
    postgres.sql(FULL);
    let mut walgate = Walgate::of(&postgres).prepare();
    meanwhile(&postgres, churn, || {
        walgate.start_again();
        walgate.wait_for_rebuild(1);
    });
    events(&mut walgate, &postgres, "public.log");
}

#[test]
fn the_leaves_of_a_partitioned_table_without_a_key_are_read_as_of_one_moment() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE log (n int, line text) PARTITION BY HASH (n); ALTER TABLE log REPLICA IDENTITY FULL");
    for part in 0..5 {
        postgres.sql(&format!("CREATE TABLE log_{part} PARTITION OF log FOR VALUES WITH (MODULUS 5, REMAINDER {part})"));
        postgres.sql(&format!("ALTER TABLE log_{part} REPLICA IDENTITY FULL"));
    }
    postgres.sql("INSERT INTO log SELECT n % 1000, 'line ' || n % 1000 FROM generate_series(1, 2000) n");
    let mut walgate = Walgate::of(&postgres).prepare();
    let churn = |round: u32| {
        format!(
            "INSERT INTO log SELECT {round} * 5 + k, 'new' FROM generate_series(0, 4) k; UPDATE log SET line = line || '!' WHERE n = {round} * 7 % 1000"
        )
    };
    meanwhile(&postgres, churn, || {
        walgate.start_again();
        walgate.wait_for_rebuild(1);
    });
    events(&mut walgate, &postgres, "public.log");
}

#[test]
fn a_lost_state_folder_repeats_no_row_of_a_table_without_a_key() {
    let postgres = Postgres::start();
    postgres.sql(FULL);
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY)");
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    assert!(walgate.stop().success());
    std::fs::remove_dir_all(walgate.state_directory()).unwrap();
    walgate.start_again();
    walgate.wait_for("the index is complete", |status| {
        matches!(status.get("index_complete"), Some(Json::Bool(true))) && status.get("rebuild").is_none()
    });
    postgres.sql("INSERT INTO log VALUES (1, 'after')");
    events(&mut walgate, &postgres, "public.log");
}

#[test]
fn a_kill_while_a_table_without_a_key_is_loaded_repeats_no_row() {
    for step in ["rebuild.place", "deliver.staged*3", "deliver.committed*3", "deliver.applied*3", "rebuild.placed", "rebuild.end"] {
        eprintln!("killed at {step}");
        let postgres = Postgres::start();
        postgres.sql(FULL);
        let mut walgate = Walgate::of(&postgres).prepare();
        meanwhile(&postgres, churn, || {
            walgate.start_again_with_fault(step);
            walgate.wait_exit(Duration::from_mins(1));
            walgate.start_again();
            walgate.wait_for_state("streaming");
        });
        events(&mut walgate, &postgres, "public.log");
    }
}

#[test]
fn a_rebuild_sends_every_row_of_a_table_without_a_key_and_says_that_it_is_not_swept() {
    let postgres = Postgres::start();
    postgres.sql(FULL);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    assert!(walgate.stop().success());
    let before = walgate.events();
    postgres.sql("DELETE FROM log WHERE n < 10; INSERT INTO log VALUES (1, 'a'), (1, 'a')");
    postgres.lose_slot(SLOT);
    meanwhile(&postgres, churn, || {
        walgate.start_again();
        walgate.wait_for_rebuild(2);
    });
    walgate.wait_until_caught_up(&postgres);
    let after = walgate.events();
    after.assert_no_duplicate_ids();
    after.since(&before).assert_equals_table(&postgres, "public.log");
    let end = after.topic("lab.__rebuild").last().and_then(|mark| mark.value.clone()).expect("an end mark");
    let swept = end.get("tables").and_then(|tables| tables.get("lab.public.log")).and_then(|table| table.get("swept"));
    assert_eq!(swept, Some(&Json::Bool(false)));
}

#[test]
fn a_table_without_identity_is_published_with_its_inserts_only() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE log (n int, line text); INSERT INTO log SELECT n, 'before' FROM generate_series(1, 500) n");
    postgres.sql(&format!("CREATE PUBLICATION {SLOT} FOR TABLE log WITH (publish = 'insert')"));
    let mut walgate = Walgate::of(&postgres).tables(&[]).prepare();
    let insert = |round| format!("INSERT INTO log VALUES ({round}, 'new'), ({round}, 'new')");
    meanwhile(&postgres, insert, || {
        walgate.start_again();
        walgate.wait_for_rebuild(1);
    });
    let before = events(&mut walgate, &postgres, "public.log");
    let sent = rebuilt_without(&mut walgate, &postgres);
    assert_eq!(sent, before.of("public.log").len() + 1, "every row is sent again");
}

/// The number of events that a rebuild sends for a table that has grown by a row.
fn rebuilt_without(walgate: &mut Walgate, postgres: &Postgres) -> usize {
    assert!(walgate.stop().success());
    let before = walgate.events();
    postgres.sql("INSERT INTO log VALUES (-1, 'in the gap')");
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_rebuild(2);
    walgate.wait_until_caught_up(postgres);
    let after = walgate.events().since(&before);
    after.assert_equals_table(postgres, "public.log");
    after.of("public.log").len()
}

#[test]
fn an_empty_table_is_loaded_and_rebuilt_without_an_event() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY); CREATE TABLE log (n int); ALTER TABLE log REPLICA IDENTITY FULL");
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    assert_eq!(rebuilt(&mut walgate, &postgres, "public.item", "SELECT 1").len(), 0);
    assert_eq!(walgate.events().of("public.log").len(), 0);
    postgres.sql("INSERT INTO item VALUES (1); INSERT INTO log VALUES (1)");
    assert_eq!(ops(events(&mut walgate, &postgres, "public.item").of("public.item")), "c");
    assert_eq!(ops(events(&mut walgate, &postgres, "public.log").of("public.log")), "c");
}
