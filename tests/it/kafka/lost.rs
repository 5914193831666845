//! Something is gone: the state folder, a topic, the progress topic.

use crate::kafka::{assert_exact, items};
use crate::lab::json::Json;
use crate::lab::kafka::Kafka;
use crate::lab::postgres::Postgres;
use crate::lab::walgate::{PATIENCE, Walgate};

/// A stream that loaded its table, and was stopped.
fn loaded(kafka: &Kafka, postgres: &Postgres) -> Walgate {
    items(postgres);
    let mut walgate = Walgate::of(postgres).into_kafka(kafka).start();
    walgate.wait_for_rebuild(1);
    postgres.sql("UPDATE item SET name = 'changed' WHERE id = 1");
    walgate.wait_until_caught_up(postgres);
    assert!(walgate.stop().success());
    walgate
}

#[test]
fn without_its_state_folder_a_stream_goes_on_where_the_progress_record_says() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut walgate = loaded(&kafka, &postgres);
    let before = walgate.events();
    std::fs::remove_dir_all(walgate.state_directory()).unwrap();
    postgres.sql("UPDATE item SET name = 'later' WHERE id = 2");
    walgate.start_again();
    walgate.wait_for("the index is complete", |status| matches!(status.get("index_complete"), Some(Json::Bool(true))));
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
    assert_eq!(walgate.events().since(&before).of("public.item").len(), 1, "nothing is repeated");
}

#[test]
fn a_topic_that_was_deleted_is_sent_anew() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut walgate = loaded(&kafka, &postgres);
    kafka.delete_topic(&format!("{}.public.item", walgate.topic_prefix()));
    walgate.start_again();
    walgate.wait_for_rebuild(2);
    assert_exact(&walgate, &postgres);
    assert_eq!(walgate.events().fold("public.item").len(), 1000);
}

#[test]
fn a_topic_that_was_deleted_and_made_again_is_sent_anew() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut walgate = loaded(&kafka, &postgres);
    let topic = format!("{}.public.item", walgate.topic_prefix());
    kafka.delete_topic(&topic);
    kafka.create_topic(&topic, 6, &[("cleanup.policy", "compact")]);
    walgate.start_again();
    walgate.wait_for_rebuild(2);
    assert_exact(&walgate, &postgres);
    assert!(walgate.stop().success());
    walgate.start_again();
    walgate.wait_for_state("streaming");
    postgres.sql("UPDATE item SET name = 'later' WHERE id = 2");
    walgate.wait_until_caught_up(&postgres);
    assert_eq!(walgate.status().unwrap().get("rebuild"), None, "it is sent anew once");
    assert_exact(&walgate, &postgres);
}

#[test]
fn another_number_of_partitions_is_refused() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut walgate = loaded(&kafka, &postgres);
    kafka.add_partitions(&format!("{}.public.item", walgate.topic_prefix()), 7);
    walgate.start_again();
    assert_eq!(walgate.wait_exit(PATIENCE).code(), Some(20));
    assert!(walgate.stderr().contains("has 7 partitions, it had 6"));
}

#[test]
fn without_the_progress_topic_everything_is_sent_anew() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let mut walgate = loaded(&kafka, &postgres);
    kafka.delete_topic(&format!("{}.__progress", walgate.topic_prefix()));
    postgres.sql("DELETE FROM item WHERE id = 3");
    walgate.start_again();
    walgate.wait_for_rebuild(2);
    let events = walgate.events();
    events.assert_order_rises_per_key();
    assert_eq!(events.of("public.item").iter().filter(|event| event.op() == Some("r")).count(), 1000 + 999);
}

#[test]
fn the_topics_of_another_stream_are_refused() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start());
    let first = loaded(&kafka, &postgres);
    let plan = Walgate::of(&postgres).into_kafka(&kafka).set("stream", "other").set("sink.topic_prefix", first.topic_prefix());
    let mut second = plan.start();
    assert_eq!(second.wait_exit(PATIENCE).code(), Some(20));
    assert!(second.stderr().contains("stream `lab`, not of `other`"));
}
