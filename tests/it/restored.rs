//! The state folder is behind the events, by a kill or because an older copy was put back. What it says is either
//! known to be right or not believed.

use std::time::Duration;

use super::lab::events::Events;
use super::lab::json::Json;
use super::lab::postgres::Postgres;
use super::lab::walgate::{SLOT, Walgate};
use super::rebuild::{assert_only_the_differences, change, table};

#[test]
fn a_kill_between_commit_and_apply_then_a_loss_sends_no_needless_event() {
    let (postgres, mut walgate) = stopped();
    let before = walgate.events();
    walgate.start_again_with_fault("deliver.committed");
    change(&postgres);
    walgate.wait_exit(Duration::from_mins(1));
    assert_only_the_differences(&before, &walgate.events(), &postgres);
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert_only_the_differences(&before, &walgate.events(), &postgres);
    assert_eq!(rebuilds(&walgate.events()), [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)].map(|(mark, id)| (mark.to_owned(), id)));
}

#[test]
fn an_older_copy_repeats_nothing_and_the_next_loss_sends_only_the_differences() {
    let (postgres, mut walgate) = stopped();
    let backup = walgate.back_up_state();
    deliver(&mut walgate, &postgres, LATER);
    let before = walgate.events();
    walgate.restore_state(&backup);
    complete_the_index(&mut walgate, &postgres);
    assert_nothing_since(&before, &walgate);
    lose(&mut walgate, &postgres);
    assert_only_the_differences(&before, &walgate.events(), &postgres);
}

#[test]
fn an_older_copy_is_not_believed_when_the_log_is_lost_too() {
    let (postgres, mut walgate) = stopped();
    let backup = walgate.back_up_state();
    // Rows that the copy holds as they will be again, and rows that it does not hold or holds no more.
    deliver(&mut walgate, &postgres, LATER);
    let before = walgate.events();
    walgate.restore_state(&backup);
    postgres.sql("UPDATE item SET name = 'item ' || id WHERE id BETWEEN 501 AND 600");
    change(&postgres);
    postgres.lose_slot(SLOT);
    walgate.start_again_with_fault("rebuild.placed");
    walgate.wait_exit(Duration::from_mins(1));
    assert!(!index_is_complete(&walgate.status().unwrap()), "the copy's index is taken for complete");
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);

    // Every row is sent as read, and what vanished is not looked for, and said not to be.
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    let sent = events.since(&before);
    assert!(sent.of("public.item").iter().all(|event| event.op() == Some("r")));
    let there: usize = postgres.sql("SELECT count(*) FROM item").one().parse().unwrap();
    assert_eq!(sent.of("public.item").len(), there);
    let end = sent.topic("lab.__rebuild").last().unwrap().value.clone().unwrap();
    let swept = end.get("tables").unwrap().get("lab.public.item").unwrap().get("swept").unwrap();
    assert_eq!((end.get("mark").unwrap(), swept), (&Json::Text("end".to_owned()), &Json::Bool(false)));
    for vanished in 31..=50 {
        // A subscriber that begins anew at the begin mark ends with the table; one that does not is left with these.
        postgres.sql(&format!("INSERT INTO item VALUES ({vanished}, 'again', '')"));
    }
    walgate.wait_until_caught_up(&postgres);
    walgate.events().assert_equals_table(&postgres, "public.item");
    walgate.wait_for("the index is complete", index_is_complete);
}

#[test]
fn an_older_copy_with_a_batch_under_way_is_not_believed() {
    for point in ["deliver.staged", "deliver.committed"] {
        eprintln!("copied when killed at {point}");
        let (postgres, mut walgate) = stopped();
        walgate.start_again_with_fault(point);
        postgres.sql(LATER);
        walgate.wait_exit(Duration::from_mins(1));
        let backup = walgate.back_up_state();
        deliver(&mut walgate, &postgres, "UPDATE item SET name = 'later' WHERE id BETWEEN 700 AND 800");
        let before = walgate.events();
        walgate.restore_state(&backup);
        complete_the_index(&mut walgate, &postgres);
        assert_nothing_since(&before, &walgate);
        lose(&mut walgate, &postgres);
        assert_only_the_differences(&before, &walgate.events(), &postgres);
    }
}

/// Changed, deleted, moved and added; none of it is in a copy made before.
const LATER: &str = "UPDATE item SET name = 'later' WHERE id BETWEEN 501 AND 600; DELETE FROM item WHERE id BETWEEN 601 AND 620; \
                     UPDATE item SET id = id + 4000 WHERE id BETWEEN 621 AND 640; INSERT INTO item SELECT n, 'later', '' FROM generate_series(3001, 3010) n";

/// The table delivered, and the service stopped.
fn stopped() -> (Postgres, Walgate) {
    let postgres = Postgres::start();
    table(&postgres);
    let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "64KiB").start();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert!(walgate.stop().success());
    (postgres, walgate)
}

/// Changes, delivered by a start of their own.
fn deliver(walgate: &mut Walgate, postgres: &Postgres, changes: &str) {
    walgate.start_again();
    postgres.sql(changes);
    walgate.wait_until_caught_up(postgres);
    assert!(walgate.stop().success());
}

/// By a start of its own, in the background.
fn complete_the_index(walgate: &mut Walgate, postgres: &Postgres) {
    walgate.start_again();
    walgate.wait_for("the index is complete", |status| {
        let streams = status.get("state").and_then(Json::as_text) == Some("streaming");
        streams && index_is_complete(status) && status.get("rebuild").is_none()
    });
    walgate.wait_until_caught_up(postgres);
    assert!(walgate.stop().success());
}

/// The log is lost with changes in it, and rebuilt.
fn lose(walgate: &mut Walgate, postgres: &Postgres) {
    change(postgres);
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(postgres);
}

#[track_caller]
fn assert_nothing_since(before: &Events, walgate: &Walgate) {
    assert!(walgate.events().since(before).of("public.item").is_empty(), "what was delivered is repeated");
}

fn index_is_complete(status: &Json) -> bool {
    status.get("index_complete") == Some(&Json::Bool(true))
}

/// The marks of rebuilds, with their numbers.
fn rebuilds(events: &Events) -> Vec<(String, u64)> {
    let mark = |value: &Json| Some((value.get("mark")?.as_text()?.to_owned(), value.get("id")?.as_u64()?));
    events.topic("lab.__rebuild").iter().filter_map(|event| mark(event.value.as_ref()?)).collect()
}
