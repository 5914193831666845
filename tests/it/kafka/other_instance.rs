//! Two instances of one stream.

use std::time::Duration;

use crate::kafka::{assert_exact, items};
use crate::lab::json::Json;
use crate::lab::kafka::Kafka;
use crate::lab::postgres::Postgres;
use crate::lab::walgate::{Plan, Walgate};

/// The same stream, with a state folder of its own.
fn second(first: &Walgate, kafka: &Kafka, postgres: &Postgres) -> Plan {
    Walgate::of(postgres).into_kafka(kafka).set("sink.topic_prefix", first.topic_prefix())
}

#[test]
fn an_instance_that_was_suspended_and_replaced_delivers_nothing_and_says_so() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    let mut first = Walgate::of(&postgres).into_kafka(&kafka).start();
    first.wait_for_rebuild(1);
    for round in 0..3 {
        // In the middle of its work, and a change that it has not delivered.
        postgres.sql("UPDATE item SET name = name || '.' WHERE id < 500");
        std::thread::sleep(Duration::from_millis(30 * round));
        first.suspend();
        postgres.sql("UPDATE item SET name = 'the second delivers this' WHERE id = 7");
        let mut other = second(&first, &kafka, &postgres).prepare();
        other.start_with(&["--take-over"]);
        other.wait_for_state("streaming");
        other.wait_until_caught_up(&postgres);
        let before = other.events();
        first.go_on();
        assert_eq!(first.wait_exit(Duration::from_mins(1)).code(), Some(21), "{}", first.stderr());
        assert_eq!(other.events().since(&before).of("public.item").len(), 0, "the first delivered nothing any more");
        postgres.sql("DELETE FROM item WHERE id = 900 + (SELECT count(*) FROM item) % 100");
        other.wait_until_caught_up(&postgres);
        assert_exact(&other, &postgres);
        first = other;
    }
}

#[test]
fn a_second_instance_waits_until_the_first_has_ended() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    let mut first = Walgate::of(&postgres).into_kafka(&kafka).start();
    first.wait_for_rebuild(1);
    let mut other = second(&first, &kafka, &postgres).start();
    other.wait_for("it waits for the first", |status| {
        status.get("waiting_for").and_then(Json::as_text).is_some_and(|text| text.contains("another instance"))
    });
    postgres.sql("UPDATE item SET name = 'by the first' WHERE id = 1");
    first.wait_until_caught_up(&postgres);
    first.kill();
    postgres.sql("UPDATE item SET name = 'by the second' WHERE id = 2");
    other.wait_for_state("streaming");
    other.wait_until_caught_up(&postgres);
    assert_exact(&other, &postgres);
    assert_eq!(other.events().of("public.item").len(), 1002);
}
