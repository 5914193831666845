//! `[sink.kafka]` as meant. Keys of the client library pass through, but not those that the guarantee rests on.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use super::meaning::Taking;
use super::secret;
use super::{ClientKeys, Kafka, Oversize};

const CLIENT: &str = "sink.kafka.client.";
const TOPIC_CONFIG: &str = "sink.kafka.topic_config.";

/// Keys that are not the user's to set, and why.
const REFUSED: [(&str, &str); 30] = [
    ("enable.idempotence", "without it a record may be written twice: it is always on"),
    ("acks", "a commit that one replica forgets is none: it is always `all`"),
    ("request.required.acks", "a commit that one replica forgets is none: `acks` is always `all`"),
    ("transactional.id", "two instances of a stream have to know each other by it: it is `<topic_prefix>.<stream>`"),
    ("transaction.timeout.ms", "it is `sink.kafka.transaction_timeout`"),
    ("message.timeout.ms", "it is `sink.kafka.transaction_timeout`: what arrives later cannot be committed"),
    ("delivery.timeout.ms", "it is `sink.kafka.transaction_timeout`: what arrives later cannot be committed"),
    ("message.send.max.retries", "what is not repeated is lost: the transaction's time-out is the bound"),
    ("retries", "what is not repeated is lost: the transaction's time-out is the bound"),
    ("enable.gapless.guarantee", "a lost record ends the transaction anyhow"),
    ("partitioner", "a key has to stay in its partition: it is the one of Java's default, murmur2"),
    ("isolation.level", "uncommitted records are nobody's truth"),
    ("delivery.report.only.error", "every delivery is counted before a commit"),
    ("queuing.strategy", "records stay in their order"),
    ("batch.size", "it follows from the topics' `max.message.bytes`"),
    ("message.max.bytes", "it follows from the topics' `max.message.bytes`"),
    ("bootstrap.servers", "it is `sink.kafka.brokers`"),
    ("metadata.broker.list", "it is `sink.kafka.brokers`"),
    ("enable.partition.eof", "the end of the progress topic is found by it"),
    ("enable.auto.commit", "the position is in the progress record"),
    ("auto.commit.enable", "the position is in the progress record"),
    ("enable.auto.offset.store", "the position is in the progress record"),
    ("auto.offset.reset", "the progress record is read from its beginning"),
    ("allow.auto.create.topics", "topics are made with the partitions of `sink.kafka.partitions`"),
    ("topic.blacklist", "the progress topic has to be seen"),
    ("log.queue", "reports of the client are heard by the service"),
    ("log_level", "lines about lost connections have to be heard"),
    ("log.connection.close", "a lost connection has to be heard of"),
    ("test.mock.num.brokers", "a mock proves nothing"),
    ("test.mock.broker.rtt", "a mock proves nothing"),
];

impl Taking<'_> {
    /// `None`: a fault, which is noted.
    pub(super) fn kafka(&mut self, folder: &Path, is_chosen: bool) -> Option<Kafka> {
        let brokers = self.checked("sink.kafka.brokers", (!is_chosen).then_some(""), |text| {
            if is_chosen && text.is_empty() { Err("is empty: name `host:port`".to_owned()) } else { Ok(text.to_owned()) }
        });
        let partitions = self.number("sink.kafka.partitions", 6, 1, 10_000);
        let replication = self.number("sink.kafka.replication", 3, 1, 100);
        let transaction_timeout = self.duration("sink.kafka.transaction_timeout", Duration::from_mins(1)).unwrap_or_default();
        let is_in_range = (Duration::from_secs(1)..=Duration::from_hours(1)).contains(&transaction_timeout);
        if !is_in_range {
            self.fault("sink.kafka.transaction_timeout", None, "has to lie between `1s` and `1h`".to_owned());
        }
        let oversize = self.checked("sink.oversize", Some("stop"), |text| match text {
            "stop" => Ok(Oversize::Stop),
            "dead_letter" if is_chosen => Ok(Oversize::DeadLetter),
            "dead_letter" => Err("is for `sink.kind = \"kafka\"`: other sinks refuse no event".to_owned()),
            _ => Err("has to be `stop` or `dead_letter`".to_owned()),
        });
        let password_file = self.checked("sink.kafka.password_file", Some(""), |text| {
            let path = (!text.is_empty()).then(|| folder.join(text));
            let password = path.map(|path| secret::password_of_file(&path)).transpose().map_err(|error| error.to_string())?;
            password.map(|bytes| String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())).transpose()
        });
        let topic_config = self.free_keys(TOPIC_CONFIG, |_, _| Ok(()));
        let mut client = self.free_keys(CLIENT, allowed);
        if let Some(password) = password_file? {
            client.insert("sasl.password".to_owned(), password);
        }
        let mut topic_config = topic_config;
        topic_config.entry("cleanup.policy".to_owned()).or_insert_with(|| "compact".to_owned());
        Some(Kafka {
            brokers: brokers?,
            partitions: partitions?,
            replication: replication?,
            topic_config,
            client: ClientKeys(client),
            transaction_timeout,
            oversize: oversize?,
        })
    }

    fn number(&mut self, key: &str, default: i32, least: i32, most: i32) -> Option<i32> {
        self.checked(key, Some(&default.to_string()), |text| {
            let number = text.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("has to be a number from {least} to {most}"))
        })
    }

    /// The keys of a section whose names are not ours. A name with dots may be quoted.
    fn free_keys(&mut self, section: &str, check: impl Fn(&str, &str) -> Result<(), String>) -> BTreeMap<String, String> {
        let keys: Vec<String> = self.keys.keys().filter(|key| key.starts_with(section)).cloned().collect();
        let mut taken = BTreeMap::new();
        for key in keys {
            let name = key.trim_start_matches(section).trim_matches('"').to_owned();
            let value = self.checked(&key, None, |text| check(&name, text).map(|()| text.to_owned()));
            taken.extend(value.map(|value| (name, value)));
        }
        taken
    }
}

fn allowed(name: &str, value: &str) -> Result<(), String> {
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err(format!("is not yours to set: {why}"));
    }
    let at_once = ["max.in.flight", "max.in.flight.requests.per.connection"].contains(&name);
    if at_once && !value.parse::<u32>().is_ok_and(|value| (1..=5).contains(&value)) {
        return Err("has to be 1 to 5: with more requests at once records may change their order".to_owned());
    }
    match ClientConfig::new().set(name, value).create_native_config() {
        Err(KafkaError::ClientConfig(_, why, ..)) => Err(format!("is refused by the client library: {why}")),
        _ => Ok(()),
    }
}
