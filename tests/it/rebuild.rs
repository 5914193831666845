//! The log is lost: what subscribers hold is brought back by exactly the differences.

use super::lab::events::Events;
use super::lab::json::Json;
use super::lab::postgres::Postgres;
use super::lab::walgate::{PATIENCE, SLOT, Walgate};

pub(super) fn table(postgres: &Postgres) {
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY, name text, note text)");
    postgres.sql("INSERT INTO item SELECT n, 'item ' || n, (SELECT string_agg(md5((n * 1000 + k)::text), '') FROM generate_series(1, CASE WHEN n % 50 = 0 THEN 200 ELSE 1 END) k) FROM generate_series(1, 1000) n");
}

pub(super) fn change(postgres: &Postgres) {
    postgres.sql("UPDATE item SET name = 'changed' WHERE id BETWEEN 1 AND 30; DELETE FROM item WHERE id BETWEEN 31 AND 50; INSERT INTO item SELECT n, 'new', 'n' FROM generate_series(2001, 2010) n");
}

/// Exactly 30 updated, 20 deleted (each with a tombstone), 10 read.
pub(super) fn assert_only_the_differences(before: &Events, after: &Events, postgres: &Postgres) {
    after.assert_no_duplicate_ids();
    after.assert_order_rises_per_key();
    after.assert_equals_table(postgres, "public.item");
    assert_eq!(after.since(before).of("public.item").len(), 30 + 2 * 20 + 10, "only the differences are sent");
}

#[test]
fn a_slot_lost_while_stopped_is_rebuilt_by_the_differences() {
    check_loss(|postgres| postgres.lose_slot(SLOT));
}

#[test]
fn a_slot_dropped_while_stopped_is_rebuilt_by_the_differences() {
    check_loss(|postgres| drop(postgres.sql(&format!("SELECT pg_drop_replication_slot('{SLOT}')"))));
}

#[test]
fn a_slot_made_again_by_someone_else_is_rebuilt_by_the_differences() {
    check_loss(|postgres| {
        postgres.sql(&format!("SELECT pg_drop_replication_slot('{SLOT}')"));
        postgres.sql(&format!("SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')"));
    });
}

#[test]
fn a_slot_advanced_by_someone_is_rebuilt_by_the_differences() {
    check_loss(|postgres| drop(postgres.sql(&format!("SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())"))));
}

fn check_loss(lose: impl FnOnce(&Postgres)) {
    let postgres = Postgres::start();
    table(&postgres);
    let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "64KiB").start();
    walgate.wait_for_state("streaming");
    postgres.sql("UPDATE item SET name = name || '!' WHERE id > 500");
    walgate.wait_until_caught_up(&postgres);
    assert!(walgate.stop().success());
    let before = walgate.events();
    change(&postgres);
    lose(&postgres);
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert_only_the_differences(&before, &walgate.events(), &postgres);
}

#[test]
fn a_kill_at_every_step_of_a_rebuild_goes_on_and_sends_only_the_differences() {
    for step in [
        "rebuild.noted",
        "rebuild.slot_dropped",
        "rebuild.slot_made",
        "rebuild.begun",
        "rebuild.place",
        "rebuild.placed*2",
        "deliver.staged*3",
        "deliver.committed*3",
        "deliver.applied*3",
        "rebuild.rereads_done",
        "rebuild.sweep",
        "rebuild.end",
    ] {
        eprintln!("killed at {step}");
        let postgres = Postgres::start();
        table(&postgres);
        let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "64KiB").start();
        walgate.wait_for_state("streaming");
        walgate.wait_until_caught_up(&postgres);
        assert!(walgate.stop().success());
        let before = walgate.events();
        change(&postgres);
        postgres.lose_slot(SLOT);
        walgate.start_again_with_fault(step);
        walgate.wait_exit(std::time::Duration::from_mins(1));
        walgate.start_again();
        walgate.wait_for_state("streaming");
        walgate.wait_until_caught_up(&postgres);
        assert_only_the_differences(&before, &walgate.events(), &postgres);
    }
}

#[test]
fn a_state_folder_that_was_lost_repeats_nothing_and_its_index_is_complete_again() {
    let postgres = Postgres::start();
    table(&postgres);
    let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "64KiB").start();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert!(walgate.stop().success());
    let before = walgate.events();
    std::fs::remove_dir_all(walgate.state_directory()).unwrap();
    walgate.start_again();
    walgate.wait_for("the index is complete", |status| {
        matches!(status.get("index_complete"), Some(Json::Bool(true)))
            && status.get("rebuild").is_none_or(|rebuild| matches!(rebuild, Json::Null))
    });
    walgate.wait_until_caught_up(&postgres);
    assert!(walgate.stop().success());
    assert_eq!(walgate.events().since(&before).of("public.item").len(), 0, "nothing is repeated");
    change(&postgres);
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert_only_the_differences(&before, &walgate.events(), &postgres);
}

/// What is read again are other events: none comes twice under one id.
#[test]
fn a_state_folder_lost_in_the_middle_of_a_load_sends_no_event_twice() {
    let postgres = Postgres::start();
    table(&postgres);
    let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "32KiB").fault("rebuild.placed*4").start();
    walgate.wait_exit(PATIENCE);
    std::fs::remove_dir_all(walgate.state_directory()).unwrap();
    walgate.start_again();
    walgate.wait_for_rebuild(1);
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_equals_table(&postgres, "public.item");
    assert!(events.of("public.item").len() > 1000, "some rows were sent before");
}
