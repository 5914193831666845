//! What follows when something around the service is wrong: it waits and goes on, or stops with the status and the advice
//! that belong to it; nothing is lost, and nothing is sent twice.

mod blocked;
mod conflict;
mod events_folder;
mod refused;
mod source;

use super::lab::events::Event;
use super::lab::json::Json;
use super::lab::postgres::Postgres;
use super::lab::wait;
use super::lab::walgate::{PATIENCE, Plan, Walgate};

/// A server with a table of a hundred rows.
fn server() -> Postgres {
    let postgres = Postgres::start();
    table(&postgres);
    postgres
}

fn table(postgres: &Postgres) {
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY, name text); INSERT INTO item SELECT n, 'item' FROM generate_series(1, 100) n");
}

/// A service that has delivered the table and was stopped.
fn stopped(plan: Plan, postgres: &Postgres) -> Walgate {
    let mut walgate = plan.start();
    walgate.wait_for_rebuild(1);
    walgate.wait_until_caught_up(postgres);
    assert!(walgate.stop().success());
    walgate
}

/// Starts the service: it ends with `status`, and says all of `words`.
#[track_caller]
fn check_start(walgate: &mut Walgate, status: i32, words: &[&str]) {
    walgate.start_again();
    check_end(walgate, status, words);
}

/// The service ends with `status`, and has said all of `words`.
#[track_caller]
fn check_end(walgate: &mut Walgate, status: i32, words: &[&str]) {
    let ended = walgate.wait_exit(PATIENCE);
    let said = walgate.stderr();
    assert_eq!(ended.code(), Some(status), "{said}");
    for expect in words {
        assert!(said.contains(expect), "`{expect}` is missing from: {said}");
    }
}

/// Each change once, and the table as it is.
#[track_caller]
fn assert_whole(walgate: &Walgate, postgres: &Postgres) {
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_equals_table(postgres, "public.item");
}

/// Waits until `status` says that it waits for something with these words.
#[track_caller]
fn wait_for_waiting(walgate: &mut Walgate, words: &str) {
    walgate.wait_for(&format!("it waits for `{words}`"), |status| {
        status.get("waiting_for").and_then(Json::as_text).is_some_and(|what| what.contains(words))
    });
}

/// Waits for the end of a rebuild for this reason.
#[track_caller]
fn wait_for_rebuild_of(walgate: &mut Walgate, reason: &str) {
    wait::until(PATIENCE, &format!("a rebuild for `{reason}` has ended"), || {
        assert!(walgate.ended().is_none(), "the service has ended");
        rebuilds(walgate).last().is_some_and(|last| last == reason)
    });
}

/// Reasons of the rebuilds that have ended.
fn rebuilds(walgate: &Walgate) -> Vec<String> {
    let of = |mark: &Event| {
        let mark = mark.value.as_ref().filter(|mark| mark.get("mark").and_then(Json::as_text) == Some("end"))?;
        mark.get("reason").and_then(Json::as_text).map(str::to_owned)
    };
    walgate.events().topic("lab.__rebuild").iter().filter_map(of).collect()
}
