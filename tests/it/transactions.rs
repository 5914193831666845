//! `format.transactions`: where transactions begin and end, and the numbers of their events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lab::events::Events;
use super::lab::json::Json;
use super::lab::kafka::Kafka;
use super::lab::postgres::Postgres;
use super::lab::walgate::Walgate;

const TABLES: &str = "CREATE TABLE item (id int PRIMARY KEY, name text); CREATE TABLE other (id int PRIMARY KEY); \
                      INSERT INTO item SELECT n, 'item' FROM generate_series(1, 20) n; INSERT INTO other VALUES (1), (2)";

const WORK: [&str; 6] = [
    "BEGIN; INSERT INTO item VALUES (100, 'new'); UPDATE item SET name = 'changed' WHERE id <= 3; INSERT INTO other VALUES (3); COMMIT",
    // A changed key is a delete and a create; a tombstone is no event.
    "BEGIN; UPDATE item SET id = 200 WHERE id = 4; DELETE FROM other WHERE id = 1; COMMIT",
    "BEGIN; SELECT pg_logical_emit_message(true, 'note', 'within'); INSERT INTO item VALUES (101, 'new'); COMMIT",
    // Nothing of it is published.
    "CREATE TABLE unpublished (id int)",
    "BEGIN; INSERT INTO item VALUES (300, 'gone'); ROLLBACK",
    "BEGIN; TRUNCATE other; INSERT INTO other VALUES (9); COMMIT",
];

/// The counts of each transaction, told and found: every END says how many events with its id there are, in all and by
/// table, and these are numbered without gaps.
#[track_caller]
fn assert_told(events: &Events, prefix: &str) -> Vec<BTreeMap<String, u64>> {
    let mut begun = BTreeSet::new();
    let mut ended = Vec::new();
    for record in events.topic(&format!("{prefix}.transaction")) {
        let value = record.value.as_ref().expect("a record has a value");
        let id = value.get("id").and_then(Json::as_text).expect("it has an id").to_owned();
        match value.get("status").and_then(Json::as_text) {
            Some("BEGIN") => assert!(begun.insert(id), "it begins once"),
            Some("END") => {
                assert!(begun.contains(&id), "it begins first");
                let of_table = |count: &Json| {
                    let name = count.get("data_collection").and_then(Json::as_text).expect("a name").to_owned();
                    (name, count.get("event_count").and_then(Json::as_u64).expect("a count"))
                };
                let tables: BTreeMap<_, _> =
                    value.get("data_collections").and_then(Json::as_array).expect("counts").iter().map(of_table).collect();
                assert_eq!(value.get("event_count").and_then(Json::as_u64), Some(tables.values().sum()));
                ended.push((id, tables));
            }
            other => panic!("unexpected status {other:?}"),
        }
    }
    assert_eq!(begun.len(), ended.len(), "what begins ends, once");
    let mut found: BTreeMap<String, BTreeMap<u64, (String, u64)>> = BTreeMap::new();
    for topic in events.topics().filter(|topic| !topic.ends_with(".transaction")) {
        for event in events.topic(topic) {
            let Some(block) = event.value.as_ref().and_then(|value| value.get("transaction")).filter(|block| **block != Json::Null) else {
                continue;
            };
            let number = |name| block.get(name).and_then(Json::as_u64).expect("a number");
            let name = topic.strip_prefix(prefix).and_then(|name| name.strip_prefix('.')).expect("topics begin with the prefix");
            let id = block.get("id").and_then(Json::as_text).expect("an id").to_owned();
            let place = (name.to_owned(), number("data_collection_order"));
            assert!(found.entry(id).or_default().insert(number("total_order"), place).is_none(), "each number once");
        }
    }
    for (id, tables) in &ended {
        let numbered = found.remove(id).expect("a transaction has events");
        assert!(numbered.keys().copied().eq(1..=tables.values().sum()), "{id} is numbered without gaps");
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        for (table, order) in numbered.into_values() {
            let count = counted.entry(table).or_default();
            *count += 1;
            assert_eq!(*count, order, "{id}");
        }
        assert_eq!(counted, *tables, "{id}");
    }
    assert!(found.is_empty(), "no event of a transaction that is not told of: {found:?}");
    ended.into_iter().map(|(_, tables)| tables).collect()
}

fn counts(tables: &[(&str, u64)]) -> BTreeMap<String, u64> {
    tables.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn every_transaction_is_told_with_its_counts_and_numbers_its_events() {
    let postgres = Postgres::start();
    postgres.sql(TABLES);
    let mut walgate = Walgate::of(&postgres).tables(&["public.item", "public.other"]).set("format.transactions", true).start();
    walgate.wait_for_rebuild(1);
    for work in WORK {
        postgres.sql(work);
    }
    walgate.wait_until_caught_up(&postgres);
    let told = assert_told(&walgate.events(), "lab");
    let expected = [
        counts(&[("public.item", 4), ("public.other", 1)]),
        counts(&[("public.item", 2), ("public.other", 1)]),
        counts(&[("message", 1), ("public.item", 1)]),
        counts(&[("public.other", 2)]),
    ];
    assert_eq!(told[..4], expected);
}

#[test]
fn a_transaction_in_parts_is_numbered_on_after_kills_and_begins_and_ends_once() {
    let kafka = Kafka::shared();
    for into_kafka in [false, true] {
        let postgres = Postgres::start();
        postgres.sql(TABLES);
        let plan = Walgate::of(&postgres);
        let plan = if into_kafka { plan.into_kafka(&kafka) } else { plan };
        let plan = plan.set("format.transactions", true).set("batch.bytes", "8KiB").set("batch.transaction_bytes_max", "8KiB");
        let mut walgate = plan.start();
        walgate.wait_for_rebuild(1);
        assert!(walgate.stop().success());
        postgres.sql("BEGIN; INSERT INTO other VALUES (5); INSERT INTO item SELECT n, 'many' FROM generate_series(1000, 1099) n; TRUNCATE item, other; INSERT INTO other VALUES (6); COMMIT");
        for point in ["deliver.staged*3", "deliver.committed*3", "deliver.applied*3"] {
            walgate.start_again_with_fault(point);
            walgate.wait_exit(Duration::from_mins(1));
        }
        walgate.start_again();
        walgate.wait_for_state("streaming");
        walgate.wait_until_caught_up(&postgres);
        let events = walgate.events();
        events.assert_no_duplicate_ids();
        let told = assert_told(&events, walgate.topic_prefix());
        // In a compacted topic a TRUNCATE deletes each row.
        let (items, others) = if into_kafka { (100 + 120, 1 + 3 + 1) } else { (100 + 1, 1 + 1 + 1) };
        assert_eq!(told[0], counts(&[("public.item", items), ("public.other", others)]));
    }
}
