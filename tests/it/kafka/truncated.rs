//! TRUNCATE, which a compacted topic cannot be told in one record.

use std::time::Duration;

use crate::kafka::{assert_exact, items};
use crate::lab::kafka::Kafka;
use crate::lab::postgres::Postgres;
use crate::lab::walgate::Walgate;

const REFILL: &str = "BEGIN; INSERT INTO item VALUES (2001, 'before'); TRUNCATE item; INSERT INTO item VALUES (7, 'after'); COMMIT";

#[test]
fn in_a_compacted_topic_a_truncate_deletes_each_row() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).start();
    walgate.wait_for_rebuild(1);
    let before = walgate.events();
    postgres.sql(REFILL);
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
    let events = walgate.events().since(&before);
    let of = |op| events.of("public.item").iter().filter(|event| event.op() == op).count();
    assert_eq!((of(Some("d")), of(None), of(Some("c"))), (1001, 1001, 2));
}

#[test]
fn a_truncate_larger_than_a_batch_is_split_and_goes_on_after_a_kill() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    postgres.sql("CREATE TABLE log (line text); ALTER TABLE log REPLICA IDENTITY FULL; INSERT INTO log VALUES ('one')");
    let plan = Walgate::of(&postgres).into_kafka(&kafka).set("batch.bytes", "16KiB").set("batch.transaction_bytes_max", "32KiB");
    let mut walgate = plan.start();
    walgate.wait_for_rebuild(1);
    assert!(walgate.stop().success());
    postgres.sql("BEGIN; INSERT INTO log VALUES ('two'); TRUNCATE log, item; INSERT INTO item VALUES (7, 'after'); COMMIT");
    for point in ["deliver.staged*4", "deliver.committed*4", "deliver.applied*4"] {
        walgate.start_again_with_fault(point);
        walgate.wait_exit(Duration::from_mins(1));
    }
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
    assert!(walgate.events().fold_rows("public.log").is_empty());
}

#[test]
fn where_nothing_is_compacted_a_truncate_is_one_event_in_each_partition() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).set("sink.kafka.topic_config.cleanup.policy", "delete").start();
    walgate.wait_for_rebuild(1);
    let before = walgate.events();
    postgres.sql(REFILL);
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
    let events = walgate.events().since(&before);
    let mut partitions: Vec<u64> =
        events.of("public.item").iter().filter(|event| event.op() == Some("t")).map(|event| event.place.partition).collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [0, 1, 2, 3, 4, 5]);
}
