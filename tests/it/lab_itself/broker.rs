//! The broker of the lab, and its reader.

use std::thread;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::checker::{event, is_seen, put, removed};
use crate::lab::json::Json;
use crate::lab::kafka::Kafka;
use crate::lab::kafka::proxy::END_TXN;
use crate::lab::kafka::reader::Record;
use crate::lab::postgres::Postgres;
use crate::lab::wait;
use crate::lab::walgate::Walgate;

const PATIENCE: Duration = Duration::from_secs(30);

/// A transactional producer that is ready to begin.
#[track_caller]
fn producer(kafka: &Kafka, id: &str, settings: &[(&str, &str)]) -> BaseProducer {
    let producer: BaseProducer = kafka.client(&[&[("transactional.id", id)], settings].concat());
    producer.init_transactions(PATIENCE).unwrap();
    producer
}

/// Begins a transaction and fills it.
#[track_caller]
fn begin(producer: &BaseProducer, topic: &str, values: &[&str]) {
    producer.begin_transaction().unwrap();
    for value in values {
        producer.send(BaseRecord::to(topic).key("k").payload(*value)).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

fn values(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.value.as_deref().unwrap()).collect()
}

#[test]
fn a_killed_broker_keeps_its_topics_and_what_was_committed() {
    let mut kafka = Kafka::start();
    kafka.create_topic("t", 3, &[("cleanup.policy", "compact")]);
    let producer = producer(&kafka, "p", &[]);
    let mut kept = Vec::new();
    for _ in 0..2 {
        begin(&producer, "t", &["kept"]);
        producer.commit_transaction(PATIENCE).unwrap();
        // Before the broker has written its markers, now and then.
        kafka.kill();
        kafka.restart();
        kept.push("kept");
        assert_eq!(values(&kafka.read("t")), kept);
    }
    assert_eq!(kafka.settings("t")["cleanup.policy"], "compact");
    kafka.add_partitions("t", 4);
    kafka.restart();
    assert_eq!(kafka.partitions("t"), Some(4));
    assert_eq!(kafka.topics(), ["t"]);
    kafka.delete_topic("t");
    assert_eq!(kafka.partitions("t"), None);
}

#[test]
fn the_reader_sees_what_is_committed_as_it_was_written() {
    let kafka = Kafka::shared();
    let prefix = Kafka::fresh_prefix();
    let (topic, other, empty) = (format!("{prefix}.t"), format!("{prefix}.other"), format!("{prefix}.empty"));
    for topic in [&topic, &other, &empty, &format!("{prefix}0.t")] {
        kafka.create_topic(topic, 2, &[]);
    }
    let producer = producer(&kafka, &prefix, &[]);
    producer.begin_transaction().unwrap();
    let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some("7") }).insert(Header { key: "id", value: None::<&str> });
    producer.send(BaseRecord::to(&topic).partition(1).key("k").payload("\u{e4}\n\"").headers(headers)).unwrap();
    producer.send(BaseRecord::<str, str>::to(&topic).partition(1).key("")).unwrap();
    producer.send(BaseRecord::<(), str>::to(&topic).partition(1).payload("null")).unwrap();
    producer.send(BaseRecord::to(&format!("{prefix}0.t")).key("k").payload("of another stream")).unwrap();
    producer.commit_transaction(PATIENCE).unwrap();
    begin(&producer, &topic, &["aborted"]);
    producer.abort_transaction(PATIENCE).unwrap();
    begin(&producer, &other, &["other"]);
    producer.commit_transaction(PATIENCE).unwrap();
    begin(&producer, &other, &["open"]);

    let record = |offset, key: Option<&str>, value: Option<&str>| Record {
        topic: topic.clone(),
        partition: 1,
        offset,
        key: key.map(str::to_owned),
        value: value.map(str::to_owned),
        headers: Vec::new(),
    };
    let mut first = record(0, Some("k"), Some("\u{e4}\n\""));
    first.headers = vec![("id".to_owned(), Some("7".to_owned())), ("id".to_owned(), None)];
    assert_eq!(kafka.read(&topic), [first, record(1, Some(""), None), record(2, None, Some("null"))]);
    assert_eq!(kafka.read(&empty), []);
    let of_stream = kafka.reader().read_stream(&prefix);
    assert_eq!(of_stream.len(), 4);
    assert!(of_stream.iter().any(|record| record.value.as_deref() == Some("other")));
}

#[test]
fn a_paused_broker_answers_once_it_goes_on() {
    let kafka = Kafka::start();
    kafka.create_topic("t", 1, &[]);
    let producer = producer(&kafka, "p", &[]);
    begin(&producer, "t", &["kept"]);
    kafka.pause();
    assert!(producer.commit_transaction(Duration::from_secs(1)).is_err());
    kafka.resume();
    producer.commit_transaction(PATIENCE).unwrap();
    assert_eq!(values(&kafka.read("t")), ["kept"]);
}

#[test]
fn the_proxy_keeps_answers_back_until_they_are_released() {
    let kafka = Kafka::start();
    kafka.create_topic("t", 1, &[]);
    let producer = producer(&kafka, "p", &[("bootstrap.servers", &kafka.proxy.brokers())]);
    for hold in [|kafka: &Kafka| kafka.proxy.hold_answers(), |kafka: &Kafka| kafka.proxy.hold_next_answer(END_TXN)] {
        begin(&producer, "t", &["kept"]);
        hold(&kafka);
        assert!(producer.commit_transaction(Duration::from_secs(1)).is_err());
        kafka.proxy.wait_until_holding();
        kafka.proxy.release();
        producer.commit_transaction(PATIENCE).unwrap();
    }
    assert_eq!(values(&kafka.read("t")), ["kept", "kept"]);
}

#[test]
fn the_proxy_delivers_a_request_late_or_not_at_all() {
    let kafka = Kafka::start();
    kafka.create_topic("t", 1, &[]);
    let producer = producer(&kafka, "p", &[("bootstrap.servers", &kafka.proxy.brokers())]);
    let commit_while = |held: fn(&Kafka)| {
        thread::scope(|scope| {
            let commit = scope.spawn(|| producer.commit_transaction(PATIENCE));
            kafka.proxy.wait_until_holding();
            held(&kafka);
            commit.join().unwrap().unwrap();
        });
    };
    begin(&producer, "t", &["cut"]);
    kafka.proxy.hold_requests();
    commit_while(|kafka| {
        assert_eq!(kafka.read("t"), [], "the commit did not reach the broker");
        kafka.proxy.cut();
        kafka.proxy.release();
    });
    begin(&producer, "t", &["repeated"]);
    kafka.proxy.hold_next_request(END_TXN);
    commit_while(|kafka| kafka.proxy.cut_clients());
    assert_eq!(values(&kafka.read("t")), ["cut", "repeated"]);

    // What the program guards against: the request that was repeated arrives late and commits half of the next transaction.
    begin(&producer, "t", &["torn"]);
    assert_eq!(values(&kafka.read("t")), ["cut", "repeated"]);
    kafka.proxy.release();
    wait::until(PATIENCE, "the late commit is carried out", || values(&kafka.read("t")) == ["cut", "repeated", "torn"]);
}

#[test]
fn events_of_several_partitions_are_in_the_order_of_the_stream() {
    let (kafka, postgres) = (Kafka::with("log.retention.hours=-1").start(), Postgres::start());
    let walgate = Walgate::of(&postgres).into_kafka(&kafka).prepare();
    let topic = format!("{}.public.t", walgate.topic_prefix());
    kafka.create_topic(&topic, 6, &[("cleanup.policy", "compact")]);
    let producer = producer(&kafka, "p", &[]);
    let write = |partition, line: &str| {
        let line = Json::parse(line).unwrap();
        let (key, value) = (line.get("key").unwrap().to_string(), line.get("value").map(ToString::to_string));
        let id = line.get("headers").unwrap().get("id").unwrap().as_text();
        let record = BaseRecord::<str, str>::to(&topic).partition(partition).key(&key);
        let record = record.headers(OwnedHeaders::new().insert(Header { key: "id", value: id }));
        producer.begin_transaction().unwrap();
        producer.send(if let Some(value) = &value { record.payload(value) } else { record }).unwrap();
        producer.commit_transaction(PATIENCE).unwrap();
    };
    write(5, &put(1, "0", "c", 1, "a"));
    let before = walgate.events_of_any_shape();
    for line in removed(2, "0", 1) {
        write(5, &line);
    }
    write(0, &event(2, "0.2", "c", r#"{"id":9}"#, r#"{"id":9}"#, r#"["text"]"#));
    write(5, &put(3, "0", "c", 1, "b"));

    let events = walgate.events_of_any_shape();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    assert_eq!(events.since(&before).of("public.t").len(), 4);
    postgres.sql("CREATE TABLE t (id int PRIMARY KEY, text text); INSERT INTO t VALUES (9, 'a'), (1, 'b')");
    events.assert_equals_table(&postgres, "public.t");
    events.fold_strictly("public.t");

    write(5, &put(2, "1", "u", 1, "b"));
    assert!(is_seen(|| walgate.events_of_any_shape().assert_order_rises_per_key()));
}

#[test]
fn a_secured_broker_asks_for_password_certificate_and_rights() {
    let kafka = Kafka::with_security().start();
    kafka.create_topic("t", 1, &[]);
    let (brokers, ca, stranger) = (kafka.secure_brokers(), kafka.certificate("ca.pem"), kafka.certificate("stranger.pem"));
    let settings = |mechanism, password, ca| {
        [
            ("bootstrap.servers", brokers.as_str()),
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", mechanism),
            ("sasl.username", "walgate"),
            ("sasl.password", password),
            ("ssl.ca.location", ca),
        ]
    };
    let (ca, stranger) = (ca.to_str().unwrap(), stranger.to_str().unwrap());
    let topics = |settings: &[(&str, &str)], deadline| {
        let consumer: BaseConsumer = kafka.client(settings);
        consumer.fetch_metadata(None, deadline).map(|metadata| metadata.topics().len())
    };
    let shortly = Duration::from_secs(2);
    assert!(topics(&settings("PLAIN", "guess", ca), shortly).is_err());
    assert!(topics(&settings("PLAIN", "secret", stranger), shortly).is_err());
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        assert_eq!(topics(&settings(mechanism, "secret", ca), PATIENCE), Ok(0), "{mechanism}: what one may not describe is not shown");
    }

    let settings = settings("SCRAM-SHA-512", "secret", ca);
    let producer: BaseProducer = kafka.client(&[&[("transactional.id", "p")], &settings[..]].concat());
    assert!(producer.init_transactions(PATIENCE).is_err());
    kafka.allow("walgate", "Write", &["--transactional-id", "p"]);
    kafka.allow("walgate", "Write", &["--topic", "t"]);
    let producer = self::producer(&kafka, "p", &settings);
    begin(&producer, "t", &["allowed"]);
    producer.commit_transaction(PATIENCE).unwrap();
    kafka.forbid("walgate", "Write", &["--topic", "t"]);
    begin(&producer, "t", &["forbidden"]);
    assert!(producer.commit_transaction(PATIENCE).is_err());
    assert_eq!(values(&kafka.read("t")), ["allowed"]);
}
