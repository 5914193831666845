//! Tables that come, go, and come back.

use toml::{Table, Value};

use super::super::lab::json::Json;
use super::super::lab::postgres::Postgres;
use super::super::lab::walgate::{SLOT, Walgate};
use super::{events, loaded, meanwhile, ops, rebuilt};

const ITEMS: &str =
    "CREATE TABLE item (id int PRIMARY KEY, name text); INSERT INTO item SELECT n, 'item ' || n FROM generate_series(1, 100) n";

#[test]
fn a_table_made_and_published_while_running_is_loaded_once_under_load_and_others_are_left_alone() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    let before = walgate.events();
    postgres.sql("CREATE TABLE added (id int PRIMARY KEY, name text); INSERT INTO added SELECT n, 'there' FROM generate_series(1, 1000) n");
    // One that began before the publication writes on both sides of it.
    let across = postgres.session();
    across.sql("BEGIN; INSERT INTO added VALUES (-1, 'before')");
    meanwhile(
        &postgres,
        |round| format!("INSERT INTO added VALUES ({round} + 10000, 'meanwhile')"),
        || {
            postgres.sql(&format!("ALTER PUBLICATION {SLOT} ADD TABLE added"));
            across.sql("INSERT INTO added VALUES (-2, 'after'); COMMIT");
            walgate.wait_for_rebuild(2);
        },
    );
    let after = events(&mut walgate, &postgres, "public.added").since(&before);
    assert_eq!(after.of("public.item").len(), 0);
    assert_eq!(after.of("public.added").iter().filter(|event| event.op() == Some("r") && name(event) == "there").count(), 1000);
}

fn name(event: &super::Event) -> &str {
    event.after().and_then(|row| row.get("name")).and_then(Json::as_text).unwrap_or_default()
}

#[test]
fn with_nothing_published_it_streams_and_the_first_table_is_loaded_when_it_comes() {
    let postgres = Postgres::start();
    postgres.sql(&format!("CREATE PUBLICATION {SLOT}"));
    let mut walgate = Walgate::of(&postgres).tables(&[]).start();
    walgate.wait_for_state("streaming");
    postgres.sql(ITEMS);
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} ADD TABLE item; INSERT INTO item VALUES (200, 'new')"));
    walgate.wait_for_rebuild(2);
    events(&mut walgate, &postgres, "public.item");
}

#[test]
fn of_a_table_that_is_not_loaded_only_changes_are_sent_also_by_a_rebuild() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let table = Table::from_iter([("name".to_owned(), Value::from("public.item")), ("initial".to_owned(), Value::from("none"))]);
    let mut walgate = loaded(Walgate::of(&postgres).set("table", vec![Value::from(table)]), &postgres);
    postgres.sql("UPDATE item SET name = 'changed' WHERE id = 1; INSERT INTO item VALUES (200, 'new'); DELETE FROM item WHERE id = 2");
    walgate.wait_until_caught_up(&postgres);
    assert_eq!(ops(walgate.events().of("public.item")), "ucd-");
    assert!(walgate.stop().success());
    let before = walgate.events();
    postgres.sql(
        "UPDATE item SET name = 'in the gap' WHERE id = 3; INSERT INTO item VALUES (300, 'new'); DELETE FROM item WHERE id IN (4, 200)",
    );
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_rebuild(2);
    walgate.wait_until_caught_up(&postgres);
    let mut sent: Vec<char> = ops(walgate.events().since(&before).of("public.item")).chars().collect();
    sent.sort_unstable();
    assert_eq!(String::from_iter(sent), "--ddru", "what changed in the gap, and nothing else");
}

#[test]
fn a_table_dropped_while_running_stops_nothing() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    postgres.sql("CREATE TABLE other (id int PRIMARY KEY)");
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    postgres.sql("INSERT INTO item VALUES (1000, 'last'); DROP TABLE item; INSERT INTO other VALUES (1)");
    assert_eq!(rebuilt(&mut walgate, &postgres, "public.other", "INSERT INTO other VALUES (2)").len(), 1);
    assert_eq!(ops(walgate.events().of("public.item")), "r".repeat(100) + "c");
}

#[test]
fn a_table_dropped_and_made_again_under_its_name_gives_the_new_one_by_differences() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    let before = walgate.events();
    let other = "UPDATE item SET name = 'changed' WHERE id <= 5; DELETE FROM item WHERE id > 90";
    postgres.sql(&format!("DROP TABLE item; {ITEMS}; {other}; ALTER PUBLICATION {SLOT} ADD TABLE item"));
    walgate.wait_for_rebuild(2);
    let after = events(&mut walgate, &postgres, "public.item").since(&before);
    assert_eq!(after.of("public.item").len(), 5 + 2 * 10, "only the differences are sent");
    let other = "CREATE TABLE item (code text PRIMARY KEY); INSERT INTO item VALUES ('of another key')";
    let before = walgate.events();
    postgres.sql(&format!("DROP TABLE item; {other}; ALTER PUBLICATION {SLOT} ADD TABLE item"));
    postgres.sql("INSERT INTO item VALUES ('x')");
    walgate.wait_for_rebuild(3);
    walgate.wait_until_caught_up(&postgres);
    walgate.events().since(&before).assert_equals_table(&postgres, "public.item");
}

#[test]
fn a_table_renamed_goes_on_under_its_new_name_and_is_brought_back_when_it_takes_the_old_one_again() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    postgres.sql("ALTER TABLE item RENAME TO thing; UPDATE thing SET name = 'changed' WHERE id <= 5");
    walgate.wait_for_rebuild(2);
    postgres.sql("DELETE FROM thing WHERE id > 90");
    events(&mut walgate, &postgres, "public.thing");
    let before = walgate.events();
    postgres.sql("ALTER TABLE thing RENAME TO item");
    walgate.wait_for_rebuild(3);
    let after = events(&mut walgate, &postgres, "public.item").since(&before);
    assert_eq!(after.of("public.item").len(), 5 + 2 * 10, "only the differences are sent");
}

#[test]
fn a_table_swapped_with_another_under_its_name_gives_the_other() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    postgres.sql("CREATE TABLE fresh (LIKE item INCLUDING ALL); INSERT INTO fresh SELECT id, CASE WHEN id > 10 THEN name ELSE 'fresh' END FROM item WHERE id <= 80");
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    postgres.sql("BEGIN; ALTER TABLE item RENAME TO old; ALTER TABLE fresh RENAME TO item; COMMIT; INSERT INTO item VALUES (500, 'c')");
    walgate.wait_for_rebuild(2);
    events(&mut walgate, &postgres, "public.item");
    events(&mut walgate, &postgres, "public.old");
}

#[test]
fn columns_that_come_go_and_change_their_type_while_streaming() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    for alter in ["ADD added int DEFAULT 7", "ALTER added TYPE text", "DROP name", "RENAME added TO name", "ADD note text"] {
        postgres
            .sql(&format!("UPDATE item SET id = id WHERE id % 2 = 0; ALTER TABLE item {alter}; UPDATE item SET id = id WHERE id % 3 = 0"));
    }
    postgres.sql("UPDATE item SET name = 'all' WHERE id > 0");
    events(&mut walgate, &postgres, "public.item");
    // What an ALTER does to rows that are there does not reach the stream; a rebuild brings it.
    let sent = rebuilt(&mut walgate, &postgres, "public.item", "ALTER TABLE item ADD late int DEFAULT 1");
    assert_eq!(ops(&sent), "u".repeat(100));
}
