//! Every change once, in order, whole: streamed, after a kill, after a crash of the source.

use std::time::Duration;

use super::lab::json::Json;
use super::lab::ledger::{Committed, Ledger};
use super::lab::postgres::Postgres;
use super::lab::share;
use super::lab::walgate::{SLOT, Walgate};

const ITEMS: &str = "CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(10,2), tags text[], seen timestamptz DEFAULT now())";

#[test]
fn rows_there_before_and_changes_after_are_delivered() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    postgres.sql("INSERT INTO item SELECT n, 'item ' || n, n / 10.0, ARRAY['a', n::text, NULL] FROM generate_series(1, 500) n");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    postgres.sql("UPDATE item SET price = price + 1 WHERE id % 7 = 0; DELETE FROM item WHERE id % 11 = 0; UPDATE item SET id = id + 1000 WHERE id % 13 = 0; INSERT INTO item VALUES (2000, 'tab\tand \"quote\"', 'NaN', '{}', 'infinity')");
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_equals_table(&postgres, "public.item");
    assert!(walgate.stop().success());
}

#[test]
fn five_thousand_rows_of_one_copy_survive_a_kill_in_the_middle_each_once() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut walgate = Walgate::of(&postgres).set("batch.transaction_bytes_max", "64KiB").fault("deliver.committed*15").start();
    walgate.wait_for_state("streaming");
    let rows: Vec<String> = (1..=5000).map(|n| format!("{n}\t{}\t{n}\t\\N\t2026-01-01\n", "x".repeat(200))).collect();
    postgres.copy_in("item", &rows.concat());
    walgate.wait_exit(Duration::from_mins(1));
    let delivered = walgate.events().of("public.item").len();
    assert!((1..5000).contains(&delivered), "the kill was not in the middle: {delivered} rows were delivered");
    walgate.start_again();
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_equals_table(&postgres, "public.item");
    assert_eq!(events.of("public.item").len(), 5000);
}

#[test]
fn kills_at_random_moments_under_load_lose_and_repeat_nothing() {
    let postgres = Postgres::start();
    let mut ledger = Ledger::create(&postgres);
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    let mut committed = Committed::default();
    let round = ledger.start(3, Duration::from_millis(2));
    for kill in 0..share(200) {
        std::thread::sleep(Duration::from_millis(40 + (u64::from(kill) * 37) % 160));
        walgate.kill();
        walgate.start_again();
    }
    round.stop_into(&mut committed);
    walgate.wait_until_caught_up(&postgres);
    walgate.wait_until_rows_are_whole();
    assert!(walgate.stop().success());
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_ledger_complete(&postgres, &committed);
}

#[test]
fn a_source_that_crashed_after_an_acknowledgement_repeats_nothing() {
    let mut postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    for round in 0..3 {
        postgres.sql(&format!("INSERT INTO item SELECT n, 'x' FROM generate_series({round} * 100 + 1, {round} * 100 + 100) n"));
        walgate.wait_until_caught_up(&postgres);
        postgres.crash();
        postgres.restart();
    }
    postgres.sql("INSERT INTO item VALUES (1000, 'last')");
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_equals_table(&postgres, "public.item");
    assert_eq!(events.of("public.item").len(), 301);
}

#[test]
fn a_service_that_is_stopped_acknowledges_what_it_delivered() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut ledger = Ledger::create(&postgres);
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    postgres.sql("INSERT INTO item (id) VALUES (1)");
    for _ in 0..5 {
        let round = ledger.start(2, Duration::ZERO);
        walgate.wait_until_caught_up(&postgres);
        assert!(walgate.stop().success());
        round.stop_into(&mut Committed::default());
        let delivered = walgate.status().expect("the state folder is there");
        let delivered = delivered.get("position").and_then(|position| position.get("commit_lsn")).and_then(Json::as_text);
        let delivered = delivered.expect("something was delivered");
        let is_confirmed = format!("SELECT confirmed_flush_lsn > '{delivered}' FROM pg_replication_slots WHERE slot_name = '{SLOT}'");
        assert_eq!(postgres.sql(&is_confirmed).one(), "t", "{delivered} was delivered");
        walgate.start_again();
    }
}

#[test]
fn an_idle_database_beside_a_busy_one_lets_the_log_go_and_a_fast_shutdown_is_quick() {
    let mut postgres = Postgres::start();
    postgres.sql(ITEMS);
    postgres.sql("CREATE DATABASE busy");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    postgres.sql_in("busy", "CREATE TABLE t AS SELECT repeat('x', 500) FROM generate_series(1, 20000)");
    walgate.wait_until_caught_up(&postgres);
    let stopped = postgres.stop_fast();
    assert!(stopped < Duration::from_secs(10), "the fast shutdown took {stopped:?}");
    postgres.restart();
    assert!(walgate.stop().success());
}
