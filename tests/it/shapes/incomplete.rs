//! Rows that subscribers know only in part: a key changed and a large value did not.

use std::time::Duration;

use super::super::lab::events::{Event, Events};
use super::super::lab::postgres::Postgres;
use super::super::lab::wait;
use super::super::lab::walgate::Walgate;
use super::{events, loaded, ops};

const ITEMS: &str = "CREATE TABLE item (id int PRIMARY KEY, name text, note text); \
                     ALTER TABLE item ALTER note SET STORAGE EXTERNAL; \
                     INSERT INTO item SELECT n, 'item ' || n, repeat(md5(n::text), 100) FROM generate_series(1, 50) n";

/// Waits until each of these rows came whole since its key was taken last, however often its key changed before.
#[track_caller]
fn wait_until_whole(walgate: &mut Walgate, postgres: &Postgres, ids: impl Iterator<Item = u32>) -> Events {
    let keys: Vec<String> = ids.map(|id| format!("{{\"id\":{id}}}")).collect();
    wait::until(Duration::from_mins(1), "the rows are whole", || {
        let events = walgate.events();
        let is_whole = |event: &Event| event.after().is_some_and(|row| row.contains_key("note"));
        keys.iter().all(|key| {
            let of_key = events.of("public.item").iter().rev().filter(|event| event.key.as_ref() == Some(key));
            of_key.take_while(|event| event.op().is_some_and(|op| op != "d")).any(is_whole)
        })
    });
    events(walgate, postgres, "public.item")
}

#[test]
fn a_row_whose_key_changed_is_soon_whole_under_the_new_key_however_often() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    let before = walgate.events();
    for _ in 0..2 {
        postgres.sql("UPDATE item SET id = id + 100 WHERE id <= 5");
        wait_until_whole(&mut walgate, &postgres, 101..=105);
        postgres.sql("UPDATE item SET id = id - 100 WHERE id > 100");
        wait_until_whole(&mut walgate, &postgres, 1..=5);
    }
    let after = walgate.events().since(&before);
    assert_eq!(ops(after.of("public.item")), ("d-c".repeat(5) + "uuuuu").repeat(4), "nothing else is sent");
    assert_eq!(after.topic("lab.__rebuild").len(), 0, "it is no rebuild");
}

#[test]
fn a_kill_at_any_step_between_leaves_no_row_in_part_and_sends_none_twice() {
    for step in [
        "deliver.staged",
        "deliver.committed",
        "deliver.applied",
        "rebuild.place",
        "deliver.staged*2",
        "deliver.committed*2",
        "deliver.applied*2",
    ] {
        eprintln!("killed at {step}");
        let postgres = Postgres::start();
        postgres.sql(ITEMS);
        let mut walgate = loaded(Walgate::of(&postgres), &postgres);
        assert!(walgate.stop().success());
        let before = walgate.events();
        walgate.start_again_with_fault(step);
        postgres.sql("UPDATE item SET id = id + 100 WHERE id <= 5");
        walgate.wait_exit(Duration::from_mins(1));
        walgate.start_again();
        let after = wait_until_whole(&mut walgate, &postgres, 101..=105).since(&before);
        assert_eq!(ops(after.of("public.item")), "d-c".repeat(5) + "uuuuu");
    }
}

/// Only the state folder knew which rows they are.
#[test]
fn a_state_folder_lost_between_leaves_no_row_in_part() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    assert!(walgate.stop().success());
    walgate.start_again_with_fault("deliver.applied");
    postgres.sql("UPDATE item SET id = id + 100 WHERE id <= 5");
    walgate.wait_exit(Duration::from_mins(1));
    std::fs::remove_dir_all(walgate.state_directory()).unwrap();
    walgate.start_again();
    wait_until_whole(&mut walgate, &postgres, 101..=105);
    walgate.events().assert_no_duplicate_ids();
}

#[test]
fn a_table_altered_meanwhile_is_not_read_as_a_whole() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    let before = walgate.events();
    for id in 1..=20 {
        postgres.sql(&format!("UPDATE item SET id = id + 100 WHERE id = {id}"));
        postgres.sql(&format!("ALTER TABLE item ALTER name TYPE varchar({})", 100 - id)); // rewrites it
    }
    let after = wait_until_whole(&mut walgate, &postgres, 101..=120).since(&before);
    assert_eq!(after.of("public.item").len(), 20 * 4, "nothing else is sent");
    assert_eq!(after.topic("lab.__rebuild").len(), 0);
    assert!(!walgate.stderr().contains("planned again"), "it is planned as a whole");
}
