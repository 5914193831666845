//! The log is lost again while a table waits to be read. What was delivered of it meanwhile counts: a row that
//! subscribers hold and that is gone is deleted, one that was undone is undone for them.

use super::lab::json::Json;
use super::lab::postgres::Postgres;
use super::lab::walgate::{SLOT, Walgate};

#[test]
fn a_log_lost_while_a_table_waits_for_its_first_reading() {
    let (postgres, mut walgate) = prepared();
    check_lost_while_item_waits(&postgres, &mut walgate, 2);
}

#[test]
fn a_log_lost_while_a_table_waits_to_be_read_again() {
    let (postgres, mut walgate) = prepared();
    walgate.start_again();
    walgate.wait_for_rebuild(1);
    assert!(walgate.stop().success());
    let before = walgate.events();
    postgres.lose_slot(SLOT);
    check_lost_while_item_waits(&postgres, &mut walgate, 3);
    let sent = walgate.events().since(&before);
    // By the stream: 1 inserted, 3 updated, 2 deleted; by the rebuild: 1 deleted, 3 back as they were, 2 there again.
    assert_eq!(sent.of("public.item").len(), (1 + 3 + 2 * 2) + (2 + 3 + 2), "only what changed is sent");
}

/// `first` is read before `item`, in many chunks.
fn prepared() -> (Postgres, Walgate) {
    let postgres = Postgres::start();
    postgres.sql(
        "CREATE TABLE first (id int PRIMARY KEY, content text);
         INSERT INTO first SELECT n, (SELECT string_agg(md5((n + k)::text), '') FROM generate_series(1, 40) k) FROM generate_series(1, 8000) n;
         CREATE TABLE item (id int PRIMARY KEY, name text);
         INSERT INTO item SELECT n, 'item ' || n FROM generate_series(1, 100) n",
    );
    let walgate = Walgate::of(&postgres).prepare();
    (postgres, walgate)
}

fn check_lost_while_item_waits(postgres: &Postgres, walgate: &mut Walgate, rebuild: u64) {
    walgate.set("rebuild.chunk_bytes", "8KiB"); // seconds
    walgate.start_again();
    walgate.wait_for("`first` is read", |status| step_of(status, "first") == Some("chunks"));
    postgres.sql(
        "INSERT INTO item VALUES (101, 'gone before it is read');
         UPDATE item SET name = 'undone before it is read' WHERE id <= 3;
         DELETE FROM item WHERE id IN (4, 5)",
    );
    walgate.wait_until_caught_up(postgres);
    let status = walgate.status().expect("it runs");
    assert_eq!((step_of(&status, "first"), step_of(&status, "item")), (Some("chunks"), Some("waiting")), "{status}");
    walgate.kill();
    walgate.set("rebuild.chunk_bytes", "8MiB");
    postgres.sql(
        "DELETE FROM item WHERE id = 101;
         UPDATE item SET name = 'item ' || id WHERE id <= 3;
         INSERT INTO item SELECT n, 'item ' || n FROM generate_series(4, 5) n",
    );
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_rebuild(rebuild);
    walgate.wait_until_caught_up(postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_equals_table(postgres, "public.item");
}

fn step_of<'s>(status: &'s Json, table: &str) -> Option<&'s str> {
    status.get("rebuild")?.get("tables")?.get(&format!("lab.public.{table}"))?.get("step")?.as_text()
}
