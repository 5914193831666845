//! What subscribers read is what the schemas say.

use std::collections::BTreeSet;
use std::fs;

use super::lab::json::Json;
use super::lab::postgres::Postgres;
use super::lab::schemas;
use super::lab::walgate::{SLOT, Walgate};

#[test]
fn events_of_every_kind_and_what_is_committed_fit_the_schemas() {
    let postgres = Postgres::start();
    postgres.sql(
        "CREATE TABLE item (id int PRIMARY KEY, name text, note text, seen timestamptz DEFAULT now(), data jsonb, raw bytea, many int[]); \
         ALTER TABLE item ALTER note SET STORAGE EXTERNAL; CREATE TABLE keyless (line text); ALTER TABLE keyless REPLICA IDENTITY FULL; \
         CREATE TABLE whole (id int PRIMARY KEY, note text); ALTER TABLE whole REPLICA IDENTITY FULL; \
         INSERT INTO item SELECT n, 'n', repeat(md5(n::text), 200), now(), '{\"a\": 1e400}', 'x', '{1,2}' FROM generate_series(1, 50) n; \
         INSERT INTO whole VALUES (1, 'a'), (2, 'b'); INSERT INTO keyless VALUES ('x')",
    );
    let headers = vec!["id", "order"];
    let mut walgate = Walgate::of(&postgres).set("batch.transaction_bytes_max", "4KiB").set("sink.headers", headers).start();
    walgate.wait_for_rebuild(1);
    for change in [
        "UPDATE item SET name = 'changed' WHERE id < 10",
        "UPDATE item SET id = id + 1000 WHERE id < 5",
        "DELETE FROM item WHERE id = 10",
        "INSERT INTO item SELECT n, 'NaN', repeat('y', 300) FROM generate_series(100, 150) n",
        "UPDATE whole SET note = 'c' WHERE id = 1; DELETE FROM whole WHERE id = 2",
        "INSERT INTO keyless VALUES ('y'); UPDATE keyless SET line = 'z'",
        "SELECT pg_logical_emit_message(true, 'within', 'a'), pg_logical_emit_message(false, 'outside', 'b')",
        "TRUNCATE whole, keyless",
    ] {
        postgres.sql(change);
    }
    walgate.wait_until_caught_up(&postgres);
    assert!(walgate.stop().success());
    postgres.sql("DELETE FROM item WHERE id = 20; UPDATE item SET name = 'missed' WHERE id = 21; INSERT INTO item VALUES (7777)");
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_rebuild(2);

    let mut kinds = BTreeSet::new();
    for topic in walgate.events().topics() {
        for line in walgate.lines(topic.strip_prefix("lab.").expect("topics begin with the prefix")) {
            let line = Json::parse(&line).expect("a line is JSON");
            schemas::LINE.assert_fits(&line);
            let value = line.get("value");
            let is_unchanged = value.and_then(|value| value.get("source")?.get("unchanged")).is_some();
            let mark = value.and_then(|value| value.get("mark")?.as_text());
            let op = value.and_then(|value| value.get("op")?.as_text());
            kinds.insert((mark.or(op).unwrap_or("tombstone").to_owned(), is_unchanged));
        }
    }
    let plain = ["c", "u", "d", "r", "t", "m", "tombstone", "begin", "end"].map(|kind| (kind.to_owned(), false));
    assert_eq!(kinds, plain.into_iter().chain([("u".to_owned(), true), ("c".to_owned(), true)]).collect(), "every kind comes");
    let committed = fs::read_to_string(walgate.events_directory().join("committed.json")).expect("something is committed");
    schemas::COMMITTED.assert_fits(&Json::parse(&committed).expect("`committed.json` is JSON"));
}

#[test]
fn the_schemas_refuse_what_is_no_event() {
    let check = |schema: &schemas::Schema, fits: &str, not: &[&str]| {
        assert!(schema.fits(&Json::parse(fits).unwrap()), "{fits}");
        for text in not {
            assert!(!schema.fits(&Json::parse(text).unwrap()), "{text}");
        }
    };
    check(&schemas::KEY, r#"{"id":1}"#, &["{}", "1", "[]"]);
    let mark = r#"{"id":1,"reason":"first_start","seen":"","mark":"end","lsn":"0/A","tables":{},"source":{"order":"00000001.0000000000000001.0.0000000000000000.0000"}}"#;
    check(
        &schemas::REBUILD_MARK,
        mark,
        &[
            &mark.replace("end", "ended"),
            &mark.replace("0/A", "10"),
            &mark.replace("\"id\"", "\"number\""),
            &mark.replace("{}", "{},\"more\":1"),
        ],
    );
    check(
        &schemas::COMMITTED,
        r#"{"version":1,"stream":"a","segments":{},"progress":null,"tables":{}}"#,
        &[
            r#"{"version":2,"stream":"a","segments":{},"progress":null,"tables":{}}"#,
            r#"{"version":1,"stream":"a","segments":{"t":{"file":"1.jsonl","length":1,"next":1}},"progress":null,"tables":{}}"#,
            r#"{"version":1,"stream":"a","segments":{},"progress":{},"tables":{}}"#,
        ],
    );
}
