//! Something is taken away from a service that streams: its topic, its rights.

use crate::kafka::{assert_exact, items};
use crate::lab::json::Json;
use crate::lab::kafka::Kafka;
use crate::lab::postgres::Postgres;
use crate::lab::walgate::Walgate;

/// It streams, and has delivered a change after its load.
fn streaming(kafka: &Kafka, postgres: &Postgres) -> Walgate {
    items(postgres);
    let mut walgate = Walgate::of(postgres).into_kafka(kafka).start();
    walgate.wait_for_rebuild(1);
    postgres.sql("UPDATE item SET name = 'changed' WHERE id = 1");
    walgate.wait_until_caught_up(postgres);
    walgate
}

#[test]
fn a_topic_that_is_deleted_under_way_is_sent_anew() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut walgate = streaming(&kafka, &postgres);
    kafka.delete_topic(&format!("{}.public.item", walgate.topic_prefix()));
    postgres.sql("UPDATE item SET name = 'later' WHERE id < 100; DELETE FROM item WHERE id > 950");
    walgate.wait_for_rebuild(2);
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
    assert_eq!(walgate.events().fold("public.item").len(), 950);
}

#[test]
fn a_topic_that_is_deleted_and_made_again_under_way_is_sent_anew() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut walgate = streaming(&kafka, &postgres);
    let topic = format!("{}.public.item", walgate.topic_prefix());
    kafka.delete_topic(&topic);
    kafka.create_topic(&topic, 6, &[("cleanup.policy", "compact")]);
    postgres.sql("UPDATE item SET name = 'later' WHERE id < 100; DELETE FROM item WHERE id > 950");
    walgate.wait_for_rebuild(2);
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
    assert_eq!(walgate.events().fold("public.item").len(), 950);
}

#[test]
fn a_right_that_is_taken_away_under_way_is_named_and_gone_on_with_once_it_is_given_back() {
    let (kafka, postgres) = (Kafka::with_security().start(), Postgres::start());
    items(&postgres);
    let plan = Walgate::of(&postgres).into_kafka(&kafka).set("sink.kafka.brokers", kafka.secure_brokers());
    let authority = kafka.certificate("ca.pem");
    let keys = [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "walgate"),
        ("sasl.password", "secret"),
        ("ssl.ca.location", authority.to_str().unwrap()),
    ];
    let plan = keys.into_iter().fold(plan, |plan, (key, value)| plan.set(&format!("sink.kafka.client.{key}"), value));
    let mut walgate = plan.prepare();
    let prefix = walgate.topic_prefix().to_owned();
    let topics = ["--topic", &format!("{prefix}."), "--resource-pattern-type", "prefixed"];
    for operation in ["Create", "Write", "Read", "DescribeConfigs"] {
        kafka.allow("walgate", operation, &topics);
    }
    let transactional_id = format!("{prefix}.lab");
    kafka.allow("walgate", "Write", &["--transactional-id", &transactional_id]);
    walgate.start_again();
    walgate.wait_for_rebuild(1);
    for (resource, code) in [
        (topics.as_slice(), "TopicAuthorizationFailed"),
        (&["--transactional-id", &transactional_id], "TransactionalIdAuthorizationFailed"),
    ] {
        kafka.forbid("walgate", "Write", resource);
        postgres.sql("UPDATE item SET name = name || '.' WHERE id < 10");
        walgate.wait_for("the right that is missing is named", |status| {
            status.get("last_error").and_then(Json::as_text).is_some_and(|text| text.contains(code))
        });
        kafka.allow("walgate", "Write", resource);
        walgate.wait_until_caught_up(&postgres);
        walgate.wait_for_state("streaming");
        assert_exact(&walgate, &postgres);
    }
}
