//! Into a real Kafka, exactly once for a `read_committed` reader that is not ours: Kafka's own console consumer.

mod away;
mod check;
mod connection;
mod killed;
mod lost;
mod mechanisms;
mod other_instance;
mod oversize;
mod secured;
mod truncated;
mod under_way;

use std::collections::BTreeMap;

use super::lab::kafka::Kafka;
use super::lab::kafka::reader::Record;
use super::lab::postgres::Postgres;
use super::lab::walgate::{SLOT, Walgate};

const ITEMS: &str = "CREATE TABLE item (id int PRIMARY KEY, name text)";

/// A table of a thousand rows.
fn items(postgres: &Postgres) {
    postgres.sql(ITEMS);
    postgres.sql("INSERT INTO item SELECT n, 'item ' || n FROM generate_series(1, 1000) n");
}

/// What holds of every stream that lost nothing: each event once, in order, and the topic folded is the table.
#[track_caller]
fn assert_exact(walgate: &Walgate, postgres: &Postgres) {
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_equals_table(postgres, "public.item");
}

#[test]
fn a_load_a_stream_and_a_rebuild_make_the_topic_the_table() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).start();
    walgate.wait_for_state("streaming");
    postgres.sql("UPDATE item SET name = name || '!' WHERE id % 7 = 0; DELETE FROM item WHERE id % 11 = 0; UPDATE item SET id = id + 5000 WHERE id % 13 = 0");
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
    assert!(walgate.stop().success());

    let before = walgate.events();
    postgres.sql("DELETE FROM item WHERE id BETWEEN 100 AND 110; INSERT INTO item SELECT n, 'new' FROM generate_series(2001, 2010) n");
    let deleted = (100..=110).filter(|n| n % 11 != 0 && n % 13 != 0).count();
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
    assert_eq!(walgate.events().since(&before).of("public.item").len(), 10 + 2 * deleted, "only the differences are sent");
}

#[test]
fn topics_are_made_as_configured_and_those_of_rows_without_a_key_are_not_compacted() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    postgres.sql("CREATE TABLE log (line text); ALTER TABLE log REPLICA IDENTITY FULL; INSERT INTO log VALUES ('one'), ('one')");
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).set("sink.kafka.partitions", 3).start();
    walgate.wait_for_rebuild(1);
    postgres.sql("INSERT INTO log VALUES ('two'); DELETE FROM log WHERE line = 'one'");
    walgate.wait_until_caught_up(&postgres);
    let topic = |name: &str| format!("{}.{name}", walgate.topic_prefix());
    assert_eq!(kafka.partitions(&topic("public.item")), Some(3));
    assert_eq!(kafka.settings(&topic("public.item"))["cleanup.policy"], "compact");
    assert_eq!(kafka.settings(&topic("public.log"))["cleanup.policy"], "delete");
    assert_eq!(kafka.partitions(&topic("__progress")), Some(1));
    assert_eq!(walgate.events().fold_rows("public.log").len(), 1);
}

/// A producer of Java's gives each key its partition beside ours.
#[test]
fn a_key_goes_to_the_partition_that_java_gives_it() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    postgres.sql(
        "CREATE TABLE item (id text PRIMARY KEY); INSERT INTO item SELECT repeat(chr(32 + n * 61), n) FROM generate_series(1, 50) n; \
         INSERT INTO item VALUES ('')",
    );
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).set("sink.kafka.partitions", 7).start();
    walgate.wait_for_rebuild(1);
    let ours = kafka.read(&format!("{}.public.item", walgate.topic_prefix()));
    let java = format!("{}.java", walgate.topic_prefix());
    kafka.create_topic(&java, 7, &[]);
    kafka.produce_with_java(&java, ours.iter().map(|record| record.key.as_deref().unwrap()));
    let places = |records: &[Record]| records.iter().map(|record| (record.key.clone(), record.partition)).collect::<BTreeMap<_, _>>();
    assert_eq!(places(&ours).len(), 51);
    assert_eq!(places(&ours), places(&kafka.read(&java)));
}

#[test]
fn a_change_is_visible_soon_after_its_commit() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).start();
    walgate.wait_for_rebuild(1);
    let mut times = Vec::new();
    for n in 0..20 {
        let committed = std::time::Instant::now();
        postgres.sql(&format!("INSERT INTO item VALUES ({}, 'quick')", 10_000 + n));
        walgate.wait_until_caught_up(&postgres);
        times.push(committed.elapsed());
    }
    times.sort();
    assert!(times[10] < std::time::Duration::from_secs(1), "the time to delivery is {times:?}");
    assert_exact(&walgate, &postgres);
}
