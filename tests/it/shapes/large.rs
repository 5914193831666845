//! Rows and chunks larger than what is configured.

use std::time::Duration;

use super::super::lab::postgres::Postgres;
use super::super::lab::wait;
use super::super::lab::walgate::Walgate;
use super::{events, loaded, meanwhile, rebuilt};

#[test]
fn wide_rows_in_few_blocks_are_read_in_cut_chunks_under_load_each_once() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY, name text, note text)");
    // Compressed to a few bytes in the heap, 20 kB each on the wire: one block holds more than a hundred.
    postgres.sql("INSERT INTO item SELECT n, 'item', repeat('x', 20000) FROM generate_series(1, 600) n");
    let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "8KiB").prepare();
    meanwhile(
        &postgres,
        |round| format!("UPDATE item SET name = 'round {round}' WHERE id = {round} % 600 + 1"),
        || {
            walgate.start_again();
            walgate.wait_for_rebuild(1);
        },
    );
    events(&mut walgate, &postgres, "public.item");
    let sent = rebuilt(
        &mut walgate,
        &postgres,
        "public.item",
        "UPDATE item SET note = repeat('y', 20000) WHERE id % 100 = 0; DELETE FROM item WHERE id = 7",
    );
    assert_eq!(sent.len(), 6 + 2, "only the differences are sent");
}

#[test]
fn a_row_above_the_limit_stops_clearly_and_is_delivered_once_the_limit_is_raised() {
    for insert_first in [true, false] {
        let postgres = Postgres::start();
        postgres.sql("CREATE TABLE item (id int PRIMARY KEY, note text); INSERT INTO item SELECT n, 'small' FROM generate_series(1, 10) n");
        let large = "INSERT INTO item VALUES (100, repeat('x', 3000000)); INSERT INTO item VALUES (101, 'after')";
        if insert_first {
            postgres.sql(large);
        }
        let mut walgate = Walgate::of(&postgres).set("sink.event_bytes_max", "1MiB").start();
        if !insert_first {
            walgate.wait_for_rebuild(1);
            postgres.sql(large);
        }
        assert_eq!(walgate.wait_exit(Duration::from_mins(1)).code(), Some(20));
        assert!(walgate.stderr().contains("event_bytes_max"), "the message names the setting");
        walgate.set("sink.event_bytes_max", "16MiB");
        walgate.start_again();
        if insert_first {
            walgate.wait_for_rebuild(1);
        }
        let events = events(&mut walgate, &postgres, "public.item");
        assert_eq!(events.of("public.item").len(), 12, "each row once");
    }
}

#[test]
fn a_large_row_whose_key_changed_is_read_again_though_it_is_larger_than_a_chunk() {
    let postgres = Postgres::start();
    postgres.sql(
        "CREATE TABLE item (id int PRIMARY KEY, note text); INSERT INTO item SELECT n, repeat('x', 3000000) FROM generate_series(1, 5) n",
    );
    let mut walgate = loaded(Walgate::of(&postgres).set("rebuild.chunk_bytes", "8KiB"), &postgres);
    let before = walgate.events();
    postgres.sql("UPDATE item SET id = id + 100");
    wait::until(Duration::from_mins(1), "all rows are whole", || walgate.events().since(&before).of("public.item").len() >= 20);
    events(&mut walgate, &postgres, "public.item");
}
