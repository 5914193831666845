//! TRUNCATE in the stream.

use super::super::lab::postgres::Postgres;
use super::super::lab::walgate::Walgate;
use super::{events, loaded, rebuilt};

#[test]
fn tables_truncated_together_are_empty_and_a_rebuild_after_it_sends_only_the_differences() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY, name text); CREATE TABLE part (id int PRIMARY KEY, item int REFERENCES item)");
    postgres.sql("CREATE TABLE log (n int); ALTER TABLE log REPLICA IDENTITY FULL");
    let fill = "INSERT INTO item SELECT n, 'item' FROM generate_series(1, 50) n; INSERT INTO part SELECT n, n FROM generate_series(1, 50) n; INSERT INTO log SELECT n FROM generate_series(1, 50) n";
    postgres.sql(fill);
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    postgres.sql("TRUNCATE item CASCADE; TRUNCATE log");
    for table in ["public.item", "public.part", "public.log"] {
        let events = events(&mut walgate, &postgres, table);
        assert_eq!(events.of(table).len(), 51);
    }
    postgres.sql(&format!("{fill}; BEGIN; DELETE FROM log; TRUNCATE item, part; INSERT INTO item VALUES (1, 'after'); COMMIT"));
    for table in ["public.item", "public.part", "public.log"] {
        events(&mut walgate, &postgres, table);
    }
    let sent = rebuilt(&mut walgate, &postgres, "public.item", "INSERT INTO item VALUES (2, 'in the gap')");
    assert_eq!(sent.len(), 1, "only the differences are sent");
}

#[test]
fn a_truncate_in_the_gap_becomes_deletes() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY, name text); INSERT INTO item SELECT n, 'item' FROM generate_series(1, 50) n");
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    let sent = rebuilt(&mut walgate, &postgres, "public.item", "TRUNCATE item; INSERT INTO item VALUES (7, 'item'), (51, 'new')");
    assert_eq!(sent.len(), 49 * 2 + 1);
}
