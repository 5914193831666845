//! Whatever is killed, whenever: each change once, in order, whole.

use std::time::Duration;

use crate::kafka::{assert_exact, items};
use crate::lab::json::Json;
use crate::lab::kafka::Kafka;
use crate::lab::ledger::{Committed, Ledger};
use crate::lab::postgres::Postgres;
use crate::lab::share;
use crate::lab::walgate::Walgate;

#[test]
fn kills_at_random_moments_under_load_lose_and_repeat_nothing() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut ledger = Ledger::create(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).start();
    walgate.wait_for_state("streaming");
    let mut committed = Committed::default();
    let round = ledger.start(3, Duration::from_millis(2));
    for kill in 0..share(200) {
        // A start takes up to a second, where a transaction was open; some kills fall into it.
        std::thread::sleep(Duration::from_millis(100 + (u64::from(kill) * 137) % 1_700));
        walgate.kill();
        walgate.start_again();
    }
    round.stop_into(&mut committed);
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_ledger_complete(&postgres, &committed);
}

#[test]
fn a_kill_around_the_commit_is_settled_by_the_progress_record() {
    let kafka = Kafka::shared();
    for point in ["deliver.staged*5", "sink.kafka.delivered*8", "deliver.committed*5", "deliver.applied*5"] {
        eprintln!("killed at {point}");
        let postgres = Postgres::start();
        items(&postgres);
        let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).fault(point).start();
        while walgate.ended().is_none() {
            postgres.sql("INSERT INTO item SELECT max(id) + 1, 'x' FROM item; UPDATE item SET name = name || '.' WHERE id % 100 = 0");
        }
        walgate.wait_exit(Duration::from_secs(1));
        walgate.start_again();
        walgate.wait_for_rebuild(1);
        walgate.wait_until_caught_up(&postgres);
        assert_exact(&walgate, &postgres);
    }
}

#[test]
fn a_broker_that_is_killed_during_commits_loses_and_repeats_nothing() {
    let (mut kafka, postgres) = (Kafka::start(), Postgres::start());
    let mut ledger = Ledger::create(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).start();
    walgate.wait_for_state("streaming");
    let mut committed = Committed::default();
    let round = ledger.start(3, Duration::from_millis(2));
    for kill in 0..share(10) {
        std::thread::sleep(Duration::from_millis(500 + (u64::from(kill) * 337) % 900));
        kafka.kill();
        kafka.restart();
    }
    round.stop_into(&mut committed);
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_ledger_complete(&postgres, &committed);
}

#[test]
fn a_broker_that_was_away_longer_than_a_transaction_may_last_is_waited_for() {
    let (mut kafka, postgres) = (Kafka::start(), Postgres::start());
    items(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).set("sink.kafka.transaction_timeout", "2s").start();
    walgate.wait_for_rebuild(1);
    kafka.stop();
    postgres.sql("UPDATE item SET name = 'while it was away' WHERE id < 100");
    walgate.wait_for("it says what it waits for", |status| {
        status.get("waiting_for").and_then(|text| text.as_text()).is_some_and(|text| text.contains("Kafka"))
    });
    std::thread::sleep(Duration::from_secs(15)); // the outage itself
    kafka.restart();
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
}

#[test]
fn a_broker_whose_disk_is_full_is_waited_for() {
    let (mut kafka, postgres) = (Kafka::start(), Postgres::start());
    items(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).start();
    walgate.wait_for_rebuild(1);
    kafka.fill_disk();
    postgres.sql("UPDATE item SET name = 'while the disk was full' WHERE id < 100");
    kafka.wait_until_ended();
    walgate.wait_for("it says that it waits for Kafka", |status| {
        status.get("waiting_for").and_then(Json::as_text).is_some_and(|text| text.contains("Kafka"))
    });
    postgres.sql("DELETE FROM item WHERE id > 900");
    kafka.restart();
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
}

#[test]
fn a_coordinator_that_moves_between_brokers_loses_and_repeats_nothing() {
    let (kafka, postgres) = (Kafka::start(), Postgres::start());
    let mut ledger = Ledger::create(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).start();
    walgate.wait_for_state("streaming");
    let neighbour = kafka.neighbour();
    let mut committed = Committed::default();
    let round = ledger.start(3, Duration::from_millis(2));
    for _ in 0..2 {
        for broker in [2, 1] {
            kafka.move_to("__transaction_state", broker);
        }
    }
    round.stop_into(&mut committed);
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    drop(neighbour);
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_ledger_complete(&postgres, &committed);
}
