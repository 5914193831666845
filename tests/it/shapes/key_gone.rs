//! A key that only the catalog tells (REPLICA IDENTITY FULL) is gone by the time that a change is read.

use crate::lab::postgres::Postgres;
use crate::lab::walgate::{SLOT, Walgate};

const ITEMS: &str = "CREATE TABLE item (id int PRIMARY KEY, name text); ALTER TABLE item REPLICA IDENTITY FULL; \
                     INSERT INTO item SELECT n, 'item ' || n FROM generate_series(1, 20) n";

fn loaded(postgres: &Postgres) -> Walgate {
    postgres.sql(ITEMS);
    let mut walgate = Walgate::of(postgres).start();
    walgate.wait_for_rebuild(1);
    walgate
}

#[test]
fn changes_between_a_key_dropped_and_made_again_are_delivered() {
    let postgres = Postgres::start();
    let mut walgate = loaded(&postgres);
    postgres.sql("ALTER TABLE item DROP CONSTRAINT item_pkey");
    postgres.sql("DELETE FROM item WHERE id <= 5");
    walgate.wait_until_caught_up(&postgres);
    postgres.sql("INSERT INTO item VALUES (30, 'without a key')");
    postgres.sql("ALTER TABLE item ADD PRIMARY KEY (id)");
    postgres.sql("UPDATE item SET name = 'with it again' WHERE id = 6");
    walgate.wait_for_rebuild(2);
    walgate.wait_until_caught_up(&postgres);
    walgate.events().assert_no_duplicate_ids();
    walgate.events().assert_equals_table(&postgres, "public.item");
}

#[test]
fn changes_of_a_table_dropped_since_are_delivered() {
    let postgres = Postgres::start();
    let mut walgate = loaded(&postgres);
    assert!(walgate.stop().success());
    let before = walgate.events();
    postgres.sql("UPDATE item SET name = 'changed' WHERE id = 1");
    postgres.sql("DELETE FROM item WHERE id = 2");
    postgres.sql("DROP TABLE item");
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert_eq!(walgate.events().since(&before).of("public.item").len(), 1 + 2);
}

#[test]
fn rows_of_a_table_without_a_key_that_was_made_filled_and_dropped_are_delivered() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    postgres.sql(&format!("CREATE PUBLICATION {SLOT} FOR ALL TABLES"));
    let mut walgate = Walgate::of(&postgres).tables(&[]).set("source.url", postgres.url_superuser("shop")).start();
    walgate.wait_for_rebuild(1);
    walgate.suspend();
    postgres.sql("BEGIN; CREATE TABLE brief (line text); INSERT INTO brief VALUES ('a'), ('b'); COMMIT; DROP TABLE brief");
    walgate.go_on();
    walgate.wait_until_caught_up(&postgres);
    assert_eq!(walgate.events().of("public.brief").len(), 2);
}

/// Two rows have one key for a moment, so it tells no rows apart.
#[test]
fn a_key_that_may_be_put_off_is_none() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int, pos int PRIMARY KEY DEFERRABLE); ALTER TABLE item REPLICA IDENTITY FULL; INSERT INTO item VALUES (1, 1), (2, 2)");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_rebuild(1);
    postgres.sql("UPDATE item SET pos = 3 - pos");
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    let updates: Vec<_> = events.of("public.item").iter().filter(|event| event.op() == Some("u")).collect();
    assert_eq!(updates.len(), 2);
    assert!(updates.iter().all(|event| event.key.is_none() && event.before().is_some() && event.after().is_some()), "{updates:?}");
}

/// All rows come again under their keys in the new form; the end mark tells that the old ones stay.
#[test]
fn keys_that_are_written_otherwise_are_sent_anew() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id bigint PRIMARY KEY, name text); INSERT INTO item SELECT n, 'x' FROM generate_series(1, 20) n");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_rebuild(1);
    assert!(walgate.stop().success());
    let before = walgate.events();
    walgate.set("format.bigint", "string");
    walgate.start_again();
    walgate.wait_for_state("streaming");
    postgres.sql("DELETE FROM item WHERE id = 1");
    walgate.wait_for_rebuild(2);
    walgate.wait_until_caught_up(&postgres);
    let since = walgate.events().since(&before);
    let keys = since.of("public.item").iter().filter(|event| event.op() == Some("r")).map(|event| event.key.clone().unwrap());
    let keys: std::collections::BTreeSet<String> = keys.collect();
    assert_eq!(keys.len(), 19);
    assert!(keys.contains("{\"id\":\"7\"}"), "{keys:?}");
}
