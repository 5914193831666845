//! The settings of every client: what the user gave, and over it what the guarantee needs.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::BaseConsumer;
use rdkafka::producer::ThreadedProducer;

use crate::config::Kafka;
use crate::sink::kafka::fault::KafkaFault;
use crate::sink::kafka::reports::Reports;

/// A batch of the protocol is the unit of compression and of the broker's work: smaller ones cost it up to ten times
/// as much. A topic that takes less bounds it further.
pub(super) const BATCH_BYTES: u64 = 1_000_000;
/// What the client may hold, beside the batch itself that we hold.
const QUEUE_KBYTES: u64 = 65_536;
/// After this long without an answer the client asks again on another connection.
const SOCKET_TIMEOUT_MS: u128 = 10_000;

/// Makes clients.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    kafka: Kafka,
    /// `<prefix>.<stream>`: whoever initialises it fences whoever did before.
    transactional_id: String,
}

impl Clients {
    pub(super) fn new(kafka: Kafka, prefix: &str, stream: &str) -> Self {
        Self { kafka, transactional_id: format!("{prefix}.{stream}") }
    }

    /// The time within which a transaction has to end: the client's and the broker's.
    pub(super) fn transaction_timeout_ms(&self) -> u128 {
        self.kafka.transaction_timeout.as_millis()
    }

    /// After this long without an answer the client repeats a request by itself.
    pub(super) fn socket_timeout_ms(&self) -> u128 {
        let given = self.kafka.client.0.get("socket.timeout.ms").and_then(|text| text.parse().ok());
        given.unwrap_or(SOCKET_TIMEOUT_MS).min(self.transaction_timeout_ms())
    }

    fn config(&self, defaults: &[(&str, &str)], needed: &[(&str, &str)]) -> ClientConfig {
        let mut keys: BTreeMap<&str, &str> =
            [("client.id", "walgate"), ("reconnect.backoff.max.ms", "500"), ("broker.address.ttl", "30000")].into();
        keys.extend(defaults.iter().copied());
        keys.extend(self.kafka.client.0.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        keys.extend([("bootstrap.servers", self.kafka.brokers.as_str())]);
        keys.extend(needed.iter().copied());
        let mut config = ClientConfig::new();
        for (key, value) in keys {
            config.set(key, value);
        }
        // Lines about lost connections and lost requests come at this level.
        config.set_log_level(RDKafkaLogLevel::Info);
        config
    }

    /// A transactional producer, not initialised. No topic that it will write to takes less than `topic_bytes_max` in
    /// one batch, and no record is greater than `record_bytes_max`.
    ///
    /// # Errors
    /// The settings are refused.
    pub(super) fn producer(&self, topic_bytes_max: u64, record_bytes_max: u64) -> Result<ThreadedProducer<Reports>, KafkaFault> {
        let timeout = self.transaction_timeout_ms().to_string();
        let socket_timeout = self.socket_timeout_ms().to_string();
        let batch_bytes = BATCH_BYTES.min(topic_bytes_max).to_string();
        let record_bytes = record_bytes_max.clamp(1_000, 1_000_000_000).to_string();
        let queue_kbytes = QUEUE_KBYTES.max(record_bytes_max / 512).to_string();
        let defaults = [
            ("linger.ms", "5"),
            ("compression.codec", "lz4"),
            ("queue.buffering.max.messages", "0"),
            ("queue.buffering.max.kbytes", queue_kbytes.as_str()),
        ];
        let needed = [
            ("transactional.id", self.transactional_id.as_str()),
            ("transaction.timeout.ms", timeout.as_str()),
            ("message.timeout.ms", timeout.as_str()),
            ("socket.timeout.ms", socket_timeout.as_str()),
            ("enable.idempotence", "true"),
            ("acks", "all"),
            ("batch.size", batch_bytes.as_str()),
            ("message.max.bytes", record_bytes.as_str()),
        ];
        let config = self.config(&defaults, &needed);
        config.create_with_context(Reports::default()).map_err(|error| KafkaFault::new(&error))
    }

    /// A client that looks at topics and ends, whatever is committed of them, and makes no topic by looking.
    ///
    /// # Errors
    /// The settings are refused.
    pub(super) fn looking(&self) -> Result<BaseConsumer<Reports>, KafkaFault> {
        self.consumer("read_uncommitted")
    }

    /// A client that reads what is committed, and no more.
    ///
    /// # Errors
    /// The settings are refused.
    pub(super) fn reading(&self) -> Result<BaseConsumer<Reports>, KafkaFault> {
        self.consumer("read_committed")
    }

    fn consumer(&self, isolation: &str) -> Result<BaseConsumer<Reports>, KafkaFault> {
        let defaults = [("group.id", self.transactional_id.as_str())];
        let needed = [
            ("isolation.level", isolation),
            ("enable.partition.eof", "true"),
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "error"),
            ("allow.auto.create.topics", "false"),
        ];
        let mut config = self.config(&defaults, &needed);
        // Of producers only; a consumer warns of each.
        for key in ["linger.ms", "compression.codec", "compression.type"] {
            config.remove(key);
        }
        config.create_with_context(Reports::default()).map_err(|error| KafkaFault::new(&error))
    }

    /// The settings of a client that makes and describes topics.
    pub(super) fn administration(&self) -> ClientConfig {
        self.config(&[], &[])
    }
}
