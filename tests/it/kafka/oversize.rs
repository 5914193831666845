//! Events that their topic would refuse.

use std::time::Duration;

use crate::kafka::assert_exact;
use crate::lab::json::Json;
use crate::lab::kafka::Kafka;
use crate::lab::postgres::Postgres;
use crate::lab::walgate::{Plan, Walgate};

/// Into topics that take 20,000 bytes at once.
fn narrow(kafka: &Kafka, postgres: &Postgres) -> Plan {
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY, name text); INSERT INTO item VALUES (1, 'small')");
    Walgate::of(postgres).into_kafka(kafka).set("sink.kafka.topic_config.max.message.bytes", 20_000)
}

/// A transaction of many rows, which compression makes no smaller, and of one that is too large.
const LARGE: &str = "INSERT INTO item SELECT n, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 1 + CASE WHEN n = 50 THEN 999 ELSE 99 END + n % 2)) \
                     FROM generate_series(2, 100) n";

#[test]
fn an_event_too_large_for_its_topic_stops_the_stream_until_the_topic_takes_it() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut walgate = narrow(&kafka, &postgres).start();
    walgate.wait_for_rebuild(1);
    postgres.sql(LARGE);
    assert_eq!(walgate.wait_exit(Duration::from_mins(1)).code(), Some(20));
    let topic = format!("{}.public.item", walgate.topic_prefix());
    for part in [topic.as_str(), "`max.message.bytes` is 20000", "sink.oversize"] {
        assert!(walgate.stderr().contains(part), "{part}");
    }
    assert_eq!(walgate.events().of("public.item").len(), 1, "nothing of the transaction is visible");
    kafka.change_setting(&topic, "max.message.bytes", "1000000");
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
}

#[test]
fn a_dead_letter_takes_the_place_of_an_event_too_large_for_its_topic() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut walgate = narrow(&kafka, &postgres).set("sink.oversize", "dead_letter").start();
    walgate.wait_for_rebuild(1);
    postgres.sql(LARGE);
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    assert_eq!(events.of("public.item").len(), 99);
    let letters = kafka.read(&format!("{}.__dead_letter", walgate.topic_prefix()));
    let [letter] = letters.as_slice() else { panic!("one letter is expected: {letters:?}") };
    let value = Json::parse(letter.value.as_deref().unwrap()).unwrap();
    let text = |name| value.get(name).and_then(Json::as_text).unwrap();
    assert_eq!((text("key"), text("id")), (r#"{"id":50}"#, letter.header("id").unwrap()));
    assert!(value.get("bytes").and_then(Json::as_u64).unwrap() > 32_000);
    assert!(text("reason").contains("`max.message.bytes` is 20000"));
}
