//! What is published changes: subscribers hold what the publication says, whatever the stream did not carry meanwhile.

use super::lab::events::Events;
use super::lab::postgres::Postgres;
use super::lab::walgate::{SLOT, Walgate};

const ITEMS: &str = "CREATE TABLE item (id int PRIMARY KEY, code int NOT NULL, name text); \
                     INSERT INTO item SELECT n, 1000 + n, 'item ' || n FROM generate_series(1, 100) n; \
                     CREATE TABLE other (id int PRIMARY KEY)";

fn streaming(postgres: &Postgres) -> Walgate {
    postgres.sql(ITEMS);
    let mut walgate = Walgate::of(postgres).start();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(postgres);
    walgate
}

fn differences(walgate: &Walgate, before: &Events, postgres: &Postgres) -> usize {
    let after = walgate.events();
    after.assert_no_duplicate_ids();
    after.assert_order_rises_per_key();
    after.assert_equals_table(postgres, "public.item");
    after.since(before).of("public.item").len()
}

const CHANGES: &str = "UPDATE item SET name = 'x' WHERE id <= 10; DELETE FROM item WHERE id > 95; INSERT INTO item VALUES (200, 200, 'y')";

#[test]
fn a_table_that_was_not_published_for_a_while_is_brought_back_by_its_differences() {
    let postgres = Postgres::start();
    let mut walgate = streaming(&postgres);
    let before = walgate.events();
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} DROP TABLE item"));
    postgres.sql(CHANGES);
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} ADD TABLE item"));
    walgate.wait_for_rebuild(2);
    assert_eq!(differences(&walgate, &before, &postgres), 10 + 2 * 5 + 1);
    // And while nobody looks.
    assert!(walgate.stop().success());
    let before = walgate.events();
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} DROP TABLE item"));
    postgres.sql("DELETE FROM item WHERE id = 50");
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} ADD TABLE item"));
    walgate.start_again();
    walgate.wait_for_rebuild(3);
    assert_eq!(differences(&walgate, &before, &postgres), 2);
}

#[test]
fn rows_that_a_new_row_filter_leaves_out_are_deleted_for_subscribers() {
    let postgres = Postgres::start();
    let mut walgate = streaming(&postgres);
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} SET TABLE other, item WHERE (id <= 30)"));
    walgate.wait_for_rebuild(2);
    assert_eq!(walgate.events().fold("public.item").len(), 30);
}

/// From 18 on the server refuses them once they are published without their generated columns, and virtual ones never are.
#[test]
fn tables_whose_identity_has_generated_columns_go_on_taking_updates_and_deletes() {
    let postgres = Postgres::start();
    let kinds: &[&str] = if postgres.version() >= 18 { &["STORED", "VIRTUAL"] } else { &["STORED"] };
    for kind in kinds {
        postgres.sql(&format!(
            "CREATE TABLE {kind} (id int PRIMARY KEY, name text, twice int GENERATED ALWAYS AS (id * 2) {kind}); \
             ALTER TABLE {kind} REPLICA IDENTITY FULL; INSERT INTO {kind} SELECT n, 'item' FROM generate_series(1, 10) n"
        ));
    }
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_rebuild(1);
    for kind in kinds {
        postgres.sql(&format!("UPDATE {kind} SET name = 'changed' WHERE id = 1; DELETE FROM {kind} WHERE id = 2"));
    }
    walgate.wait_until_caught_up(&postgres);
    walgate.events().assert_equals_table(&postgres, "public.stored");
    assert!(walgate.events().topics().all(|topic| topic != "lab.public.virtual"), "it is left out");
}

#[test]
fn another_primary_key_sends_every_row_under_it() {
    let postgres = Postgres::start();
    let mut walgate = streaming(&postgres);
    let before = walgate.events();
    postgres.sql("ALTER TABLE item DROP CONSTRAINT item_pkey, ADD PRIMARY KEY (code)");
    postgres.sql("UPDATE item SET name = 'new key' WHERE code = 1001");
    walgate.wait_for_rebuild(2);
    postgres.sql("DELETE FROM item WHERE code = 1002; UPDATE item SET code = 5 WHERE code = 1003");
    walgate.wait_until_caught_up(&postgres);
    let after = walgate.events().since(&before);
    after.assert_no_duplicate_ids();
    after.assert_equals_table(&postgres, "public.item");
}

#[test]
fn an_empty_database_is_streamed_and_a_table_made_later_is_published_and_read() {
    let postgres = Postgres::start();
    postgres.sql("ALTER ROLE walgate SET idle_session_timeout = '1s'");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    postgres.sql(ITEMS);
    walgate.wait_for_rebuild(2);
    postgres.sql(CHANGES);
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_equals_table(&postgres, "public.item");
    assert!(!walgate.stderr().contains("session ended"), "one session does all of it");
}
