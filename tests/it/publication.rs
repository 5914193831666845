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

/// Alike before and after, while nobody looked.
#[test]
fn operations_that_were_not_published_for_a_while_are_brought_back_by_the_differences() {
    let postgres = Postgres::start();
    let mut walgate = streaming(&postgres);
    assert!(walgate.stop().success());
    let before = walgate.events();
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} SET (publish = 'insert')"));
    postgres.sql(CHANGES);
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} SET (publish = 'insert, update, delete, truncate')"));
    walgate.start_again();
    walgate.wait_for_rebuild(2);
    walgate.wait_until_caught_up(&postgres);
    assert_eq!(differences(&walgate, &before, &postgres), 10 + 2 * 5 + 1);
}

#[test]
fn a_table_without_a_log_for_a_while_is_brought_back_by_its_differences() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    postgres.sql(&format!("CREATE PUBLICATION {SLOT} FOR ALL TABLES WITH (publish_via_partition_root)"));
    let mut walgate = Walgate::of(&postgres).tables(&[]).set("source.url", postgres.url_superuser("shop")).start();
    walgate.wait_for_rebuild(1);
    let before = walgate.events();
    postgres.sql("ALTER TABLE item SET UNLOGGED");
    postgres.sql(CHANGES);
    walgate.wait_for("it is seen", |status| status.get("state").is_some());
    // It has been looked at once every table that is published has been.
    postgres.sql("CREATE TABLE later (id int PRIMARY KEY)");
    walgate.wait_for_rebuild(2);
    postgres.sql("ALTER TABLE item SET LOGGED");
    walgate.wait_for_rebuild(3);
    walgate.wait_until_caught_up(&postgres);
    assert_eq!(differences(&walgate, &before, &postgres), 10 + 2 * 5 + 1);
}

/// Its application could not UPDATE nor DELETE any more.
#[test]
fn what_publishing_would_harm_is_left_out() {
    let postgres = Postgres::start();
    postgres.sql(ITEMS);
    postgres.sql(
        "CREATE TABLE put_off (id int PRIMARY KEY DEFERRABLE);
         CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child () INHERITS (parent);
         CREATE TABLE root (id int) PARTITION BY RANGE (id); ALTER TABLE root REPLICA IDENTITY FULL;
         CREATE TABLE leaf PARTITION OF root DEFAULT",
    );
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_rebuild(1);
    for table in ["put_off", "child", "root", "leaf", "parent"] {
        postgres.sql(&format!("INSERT INTO {table} VALUES (1); UPDATE {table} SET id = 2; DELETE FROM {table}"));
    }
    walgate.wait_until_caught_up(&postgres);
    assert_eq!(walgate.events().of("public.parent").len(), 1 + 3 + 2, "the parent is published, without its child");
}

/// Meanwhile the others go on, and no backend of ours stays behind.
#[test]
fn a_table_that_is_locked_holds_up_no_other() {
    let postgres = Postgres::start();
    let mut walgate = streaming(&postgres);
    let lock = postgres.session();
    lock.sql("CREATE TABLE made (id int PRIMARY KEY)");
    lock.sql("BEGIN; LOCK TABLE made IN SHARE MODE; LOCK TABLE other IN ACCESS EXCLUSIVE MODE");
    // Tables are looked at every few seconds, and those that were made are published every quarter of a minute.
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_secs(20) {
        postgres.sql("UPDATE item SET name = name || '.' WHERE id = 1");
        walgate.wait_until_caught_up(&postgres);
    }
    assert_eq!(walgate.status().unwrap().get("last_error"), None);
    lock.sql("COMMIT; INSERT INTO made VALUES (1)");
    walgate.wait_for_rebuild(2);
    walgate.events().assert_equals_table(&postgres, "public.made");
    assert!(!walgate.stderr().contains("session ended"), "{}", walgate.stderr());
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
