//! `walgate check` names what the brokers lack, with the command that mends it, and changes nothing.

use crate::kafka::items;
use crate::kafka::secured::plan;
use crate::lab::kafka::Kafka;
use crate::lab::postgres::Postgres;
use crate::lab::walgate::Walgate;

/// The check ends with `status` and prints all of `parts`.
#[track_caller]
fn check(walgate: &Walgate, status: i32, parts: &[&str]) {
    let output = walgate.run(&["check"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(status), "{said}");
    for part in parts {
        assert!(said.contains(part), "`{part}` is missing from: {said}");
    }
}

#[test]
fn topics_are_there_or_will_be_made_and_none_is_made_by_looking() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).set("sink.kafka.partitions", 3).prepare();
    check(&walgate, 0, &["nothing was delivered yet", "topics of tables and progress: 0 are there, 2 will be made"]);
    let topic = format!("{}.public.item", walgate.topic_prefix());
    assert_eq!(kafka.partitions(&topic), None);
    walgate.start_again();
    walgate.wait_for_rebuild(1);
    check(&walgate, 0, &["the progress record is that of this stream", "topics of tables and progress: 2 are there, 0 will be made"]);
    assert!(walgate.stop().success());
    kafka.add_partitions(&topic, 4);
    check(&walgate, 1, &["has 4 partitions, its keys were sent to 3", "→ delete the topic"]);
}

#[test]
fn a_number_of_copies_that_the_brokers_do_not_have_is_named_with_the_setting() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    items(&postgres);
    let walgate = Walgate::of(&postgres).into_kafka(&kafka).set("sink.kafka.replication", 3).prepare();
    check(&walgate, 1, &["cannot be made", "InvalidReplicationFactor", "→ lower `sink.kafka.replication`"]);
}

#[test]
fn brokers_that_are_away_are_named() {
    let postgres = Postgres::start();
    items(&postgres);
    let plan = Walgate::of(&postgres).set("sink.kind", "kafka").set("sink.kafka.brokers", "127.0.0.1:1").set("sink.kafka.replication", 1);
    check(&plan.prepare(), 1, &["→ look whether the brokers in `sink.kafka.brokers` run", "state folder"]);
}

#[test]
fn a_wrong_password_and_rights_that_are_missing_are_named_with_the_commands_that_give_them() {
    let (kafka, postgres, other) = (Kafka::with_security().start(), Postgres::start(), Postgres::start());
    check(&plan(&kafka, &postgres, "a wrong one").prepare(), 1, &["→ correct user and password"]);
    let walgate = plan(&kafka, &other, "secret").prepare();
    let prefix = walgate.topic_prefix();
    let commands = [
        format!("--operation DescribeConfigs --topic {prefix}. --resource-pattern-type prefixed; kafka-acls.sh"),
        format!("--operation Write --transactional-id {prefix}.lab"),
        "--allow-principal User:walgate".to_owned(),
    ];
    check(&walgate, 1, &commands.each_ref().map(String::as_str));
}
