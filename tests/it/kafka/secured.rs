//! A broker that asks for TLS, a password and rights.

use crate::kafka::{assert_exact, items};
use crate::lab::kafka::Kafka;
use crate::lab::postgres::Postgres;
use crate::lab::walgate::{Plan, Walgate};

pub(super) fn plan(kafka: &Kafka, postgres: &Postgres, password: &str) -> Plan {
    items(postgres);
    let plan = Walgate::of(postgres).into_kafka(kafka).set("sink.kafka.brokers", kafka.secure_brokers());
    [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "walgate"),
        ("sasl.password", password),
        ("ssl.ca.location", kafka.certificate("ca.pem").to_str().unwrap()),
    ]
    .into_iter()
    .fold(plan, |plan, (key, value)| plan.set(&format!("sink.kafka.client.{key}"), value))
}

#[test]
fn a_wrong_password_is_named_and_not_shown() {
    let (kafka, postgres) = (Kafka::with_security().start(), Postgres::start());
    let mut walgate = plan(&kafka, &postgres, "a wrong one").set("retry.total", "3s").start();
    assert_eq!(walgate.wait_exit(std::time::Duration::from_mins(1)).code(), Some(11));
    let said = walgate.stderr();
    assert!(said.contains("uthentication") && said.contains("correct user and password"), "the reason is named: {said}");
    assert!(!said.contains("a wrong one"), "the password is not");
    assert!(!walgate.stderr().contains("brokers are down"), "the cause is told, not what follows from it");
}

#[test]
fn the_rights_that_the_readme_lists_are_enough() {
    let (kafka, postgres) = (Kafka::with_security().start(), Postgres::start());
    let walgate = plan(&kafka, &postgres, "secret").prepare();
    let prefix = walgate.topic_prefix().to_owned();
    let topics = ["--topic", &format!("{prefix}."), "--resource-pattern-type", "prefixed"];
    for operation in ["Create", "Write", "Read", "DescribeConfigs"] {
        kafka.allow("walgate", operation, &topics);
    }
    kafka.allow("walgate", "Write", &["--transactional-id", &format!("{prefix}.lab")]);
    let mut walgate = walgate;
    walgate.start_again();
    walgate.wait_for_rebuild(1);
    postgres.sql("UPDATE item SET name = 'changed' WHERE id < 10");
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
    for missing in ["Authorization", "may not be read"] {
        assert!(!walgate.stderr().contains(missing), "{missing}: {}", walgate.stderr());
    }
}
