//! Keys and names of every kind.

use std::time::Duration;

use super::super::lab::postgres::Postgres;
use super::super::lab::wait;
use super::super::lab::walgate::Walgate;
use super::{events, loaded, ops, rebuilt};

/// Texts that a careless program would take apart, or for one another.
const TEXTS: &str = r#"(ARRAY['', ' ', 'it''s', '"quoted"', E'tab\there', E'line\nbreak', E'back\\slash', E'\\', E'\\N', E'\\.', E'\r\n',
                       'NULL', 'null', '$1', '--', ';', '{"a":1}', 'ä', E'a\u0308', '𝄞', E'\u200b', E'\u0001\u007f', 'A', 'a', 'a ', '%s', ''''])"#;

/// Loads, streams, re-reads and rebuilds a table `item` with these key columns, a `note`, and 27 rows.
#[track_caller]
fn check(columns: &str, key: &str, values: &str) {
    let postgres = Postgres::start();
    postgres.sql(&format!("CREATE TABLE item ({columns}, name text, note text, PRIMARY KEY ({key}))"));
    postgres.sql("ALTER TABLE item ALTER note SET STORAGE EXTERNAL");
    postgres.sql(&format!(
        "INSERT INTO item SELECT {values}, 'item ' || n, CASE WHEN n % 3 = 0 THEN repeat('x', 5000) END FROM generate_series(1, 27) n"
    ));
    let numbered = "(SELECT *, row_number() OVER (ORDER BY name) FROM item)";
    let of = |range: &str| format!("({key}) IN (SELECT {key} FROM {numbered} i WHERE row_number {range})");
    let mut walgate = loaded(Walgate::of(&postgres).set("rebuild.chunk_bytes", "8KiB"), &postgres);
    assert_eq!(ops(events(&mut walgate, &postgres, "public.item").of("public.item")), "r".repeat(27));
    postgres.sql(&format!("UPDATE item SET name = name || '!' WHERE {}", of("<= 9")));
    events(&mut walgate, &postgres, "public.item");
    let change = format!("DELETE FROM item WHERE {}; UPDATE item SET note = 'changed' WHERE {}", of("<= 4"), of("> 20"));
    let sent = rebuilt(&mut walgate, &postgres, "public.item", &change);
    assert_eq!(ops(&sent).replace("d-", "D").matches('D').count(), 4);
    assert_eq!(sent.len(), 4 * 2 + 3, "only the differences are sent: {}", ops(&sent));
}

#[test]
fn rows_under_a_key_of_any_text() {
    check("id text", "id", &format!("{TEXTS}[n]"));
}

#[test]
fn rows_under_a_key_of_several_columns_in_another_order() {
    check("a int, b text, c bigint", "c, b, a", &format!("n % 2, {TEXTS}[n], n / 2"));
}

#[test]
fn rows_under_a_uuid() {
    check("id uuid", "id", "md5(n::text)::uuid");
}

#[test]
fn rows_under_a_bigint_past_two_to_the_53() {
    check("id bigint", "id", "9223372036854775807 - n");
}

#[test]
fn rows_under_a_numeric() {
    check("id numeric", "id", "CASE n WHEN 1 THEN 'NaN'::numeric WHEN 2 THEN 'Infinity' ELSE n / 7.000 END");
}

#[test]
fn rows_under_a_time_and_bytes() {
    check("at timestamptz, bytes bytea", "at, bytes", "now() + n * interval '1 microsecond', decode(md5(n::text), 'hex')");
}

#[test]
fn a_text_key_of_any_kind_that_changes_is_read_again_under_the_new_one() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id text PRIMARY KEY, note text); ALTER TABLE item ALTER note SET STORAGE EXTERNAL");
    postgres.sql("INSERT INTO item SELECT n::text, repeat(md5(n::text), 100) FROM generate_series(1, 27) n");
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    let before = walgate.events();
    postgres.sql(&format!("UPDATE item SET id = {TEXTS}[id::int]"));
    walgate.wait_until_caught_up(&postgres);
    wait::until(Duration::from_mins(1), "all rows are whole", || walgate.events().since(&before).of("public.item").len() >= 27 * 4);
    let sent = events(&mut walgate, &postgres, "public.item").since(&before);
    assert_eq!(ops(sent.of("public.item")), "d-c".repeat(27) + &"u".repeat(27));
}

#[test]
fn an_identity_of_full_or_of_an_index_beside_generated_columns_and_large_values() {
    for identity in ["FULL", "USING INDEX item_code_key"] {
        let postgres = Postgres::start();
        postgres.sql("CREATE TABLE item (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, code text NOT NULL UNIQUE, name text, note text)");
        postgres.sql(&format!("ALTER TABLE item ALTER note SET STORAGE EXTERNAL, REPLICA IDENTITY {identity}"));
        postgres.sql(
            "INSERT INTO item (id, code, name, note) SELECT n, 'code ' || n, 'item', repeat('x', 5000) FROM generate_series(1, 100) n",
        );
        let mut walgate = loaded(Walgate::of(&postgres).set("rebuild.chunk_bytes", "64KiB"), &postgres);
        postgres.sql("UPDATE item SET id = id + 1000 WHERE id % 3 = 0; UPDATE item SET name = 'changed' WHERE id % 5 = 0");
        postgres.sql("DELETE FROM item WHERE id % 7 = 0; INSERT INTO item VALUES (5000, DEFAULT, 'new', NULL, NULL)");
        let sent = rebuilt(
            &mut walgate,
            &postgres,
            "public.item",
            "UPDATE item SET note = 'changed' WHERE id IN (1, 2, 4); DELETE FROM item WHERE id IN (8, 11)",
        );
        assert_eq!(sent.len(), 3 + 2 * 2, "only the differences are sent: {}", ops(&sent));
    }
}

#[test]
fn names_that_have_to_be_quoted_keep_apart() {
    let postgres = Postgres::start();
    let names = ["Item", "item", "it.em", "it em", "it\"em", "select", "ïtem", "it_x2eem", "item'; --"];
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
    for (number, name) in quoted.iter().enumerate() {
        postgres.sql(&format!("CREATE TABLE {name} (\"Id\" int, \"a.\"\"b\" text, \"select\" text, PRIMARY KEY (\"Id\", \"a.\"\"b\"))"));
        postgres.sql(&format!("INSERT INTO {name} SELECT n, 'row', '{number}' FROM generate_series(1, 10 + {number}) n"));
    }
    let mut walgate = loaded(Walgate::of(&postgres), &postgres);
    for name in &quoted {
        postgres.sql(&format!("UPDATE {name} SET \"select\" = 'changed' WHERE \"Id\" = 1; DELETE FROM {name} WHERE \"Id\" = 2"));
    }
    walgate.wait_until_caught_up(&postgres);
    let mut lengths: Vec<usize> = walgate
        .events()
        .topics()
        .filter(|topic| topic.matches('.').count() == 2)
        .map(|topic| walgate.events().topic(topic).len())
        .collect();
    lengths.sort_unstable();
    assert_eq!(lengths, (0..names.len()).map(|number| 10 + number + 3).collect::<Vec<_>>());
}
