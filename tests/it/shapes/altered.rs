//! Tables that change while a chunk of them is open: it stays so while a transaction that is older than the table's
//! publication is open.

use super::super::lab::json::Json;
use super::super::lab::postgres::Postgres;
use super::super::lab::walgate::{SLOT, Walgate};
use super::{events, loaded, ops, rebuilt};

const ITEMS: &str = "CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1); \
                     CREATE TABLE item (id int PRIMARY KEY, name varchar(20), spare int, note text); ALTER TABLE item ALTER note SET STORAGE EXTERNAL; \
                     INSERT INTO item SELECT n, 'item ' || n, n, repeat(md5(n::text), 100) FROM generate_series(1, 300) n";

/// Makes `change` while a chunk of `item` is open and gives the service when everything is read.
fn with_an_open_chunk(postgres: &Postgres, change: &[&str]) -> Walgate {
    postgres.sql(ITEMS);
    postgres.sql(&format!("CREATE PUBLICATION {SLOT} FOR TABLE other"));
    let mut walgate = loaded(Walgate::of(postgres).tables(&[]).set("rebuild.chunk_bytes", "8KiB"), postgres);
    let older = postgres.session();
    older.sql("BEGIN; SELECT pg_current_xact_id()");
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} ADD TABLE item"));
    walgate.wait_for("a chunk is open", |status| {
        let tables = status.get("rebuild").and_then(|rebuild| rebuild.get("tables"));
        tables.and_then(|tables| tables.get("lab.public.item")?.get("step")).and_then(Json::as_text) == Some("chunks")
    });
    for statement in change {
        postgres.sql(statement);
    }
    walgate.wait_until_caught_up(postgres);
    older.sql("COMMIT");
    walgate.wait_for_state("streaming");
    assert_eq!(walgate.events().of("public.other").len(), 1, "other tables are left alone");
    walgate
}

/// As [`with_an_open_chunk`]; then the table goes on and is rebuilt by the differences.
#[track_caller]
fn check(change: &[&str]) {
    let postgres = Postgres::start();
    let mut walgate = with_an_open_chunk(&postgres, change);
    events(&mut walgate, &postgres, "public.item");
    postgres.sql("DELETE FROM item WHERE id % 10 = 1; INSERT INTO item (id) VALUES (-1), (-2)");
    events(&mut walgate, &postgres, "public.item");
    let sent = rebuilt(&mut walgate, &postgres, "public.item", "DELETE FROM item WHERE id < 0; INSERT INTO item (id) VALUES (-3)");
    assert_eq!(sent.len(), 2 * 2 + 1, "only the differences are sent: {}", ops(&sent));
}

#[test]
fn rows_changed_in_part_or_whole_and_moved_while_a_chunk_is_open() {
    check(&[
        "UPDATE item SET name = 'in part' WHERE id % 3 = 0",
        "UPDATE item SET note = 'whole' WHERE id % 7 = 0",
        "UPDATE item SET id = id + 1000 WHERE id % 5 = 0",
        "DELETE FROM item WHERE id % 11 = 0; INSERT INTO item VALUES (11, 'again')",
        "UPDATE item SET name = 'in part again' WHERE id % 4 = 0",
    ]);
}

#[test]
fn a_truncate_while_a_chunk_is_open() {
    check(&["UPDATE item SET name = 'x'", "TRUNCATE item", "INSERT INTO item VALUES (11, 'after'), (500, 'new')"]);
}

#[test]
fn a_column_added_while_a_chunk_is_open() {
    check(&[
        "UPDATE item SET name = 'before' WHERE id = 1",
        "ALTER TABLE item ADD added text DEFAULT 'there'",
        "UPDATE item SET name = 'after' WHERE id % 3 = 0",
    ]);
}

#[test]
fn a_column_dropped_while_a_chunk_is_open() {
    check(&["UPDATE item SET name = 'before'", "ALTER TABLE item DROP spare", "UPDATE item SET name = 'after' WHERE id % 3 = 0"]);
}

#[test]
fn a_column_of_another_type_while_a_chunk_is_open() {
    check(&[
        "UPDATE item SET name = 'before'",
        "ALTER TABLE item ALTER spare TYPE text",
        "UPDATE item SET name = 'after' WHERE id % 3 = 0",
    ]);
}

#[test]
fn a_table_vacuumed_in_full_while_a_chunk_is_open() {
    check(&["DELETE FROM item WHERE id < 200", "VACUUM FULL item", "UPDATE item SET name = 'after' WHERE id % 3 = 0"]);
}

#[test]
fn a_table_dropped_while_a_chunk_is_open_ends_its_reading_and_one_made_again_is_read() {
    let postgres = Postgres::start();
    let mut walgate = with_an_open_chunk(&postgres, &["INSERT INTO item VALUES (1000)", "DROP TABLE item"]);
    let again =
        "CREATE TABLE item (id int PRIMARY KEY, name text, spare int, note text); INSERT INTO item VALUES (2, 'new'), (2000, 'new')";
    postgres.sql(again);
    postgres.sql(&format!("ALTER PUBLICATION {SLOT} ADD TABLE item; INSERT INTO item VALUES (3, 'newer')"));
    walgate.wait_for_rebuild(3);
    events(&mut walgate, &postgres, "public.item");
}

#[test]
fn a_table_renamed_while_a_chunk_is_open_is_read_under_its_new_name() {
    let postgres = Postgres::start();
    let change = ["UPDATE item SET name = 'x'", "ALTER TABLE item RENAME TO thing", "UPDATE thing SET name = 'y' WHERE id % 3 = 0"];
    let mut walgate = with_an_open_chunk(&postgres, &change);
    walgate.wait_for("the new name is read", |status| {
        let last = status.get("last_rebuild").filter(|_| status.get("rebuild").is_none());
        last.and_then(|last| last.get("tables")?.get("lab.public.thing")).is_some()
    });
    events(&mut walgate, &postgres, "public.thing");
}
