//! Looking at topics and making them. The clients for it live as long as one look: what nobody polls gathers reports.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::FromClientConfig as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::config::Kafka;
use crate::sink::SinkError;
use crate::sink::kafka::client::Clients;
use crate::sink::kafka::fault::KafkaFault;
use crate::sink::kafka::reports::Reports;
use crate::sink::kafka::topics::{Recipe, Use};

/// For one answer of a broker.
const ANSWER: Duration = Duration::from_secs(10);
/// From the order to make a topic until every partition has a leader.
const MAKING: Duration = Duration::from_secs(30);
/// For the next thing that the client reports by itself.
const REASON: Duration = Duration::from_millis(20);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A topic's settings, as far as they concern us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// `max.message.bytes`.
    pub(super) bytes_max: u64,
    /// `cleanup.policy` has `compact`: records without a key are refused.
    pub(super) is_compacted: bool,
}

impl Settings {
    /// Kafka's own defaults: what is assumed where settings may not be read.
    pub(super) const DEFAULT: Self = Self { bytes_max: 1_048_588, is_compacted: false };
}

/// One look.
pub(super) struct Look<'a> {
    clients: &'a Clients,
    kafka: &'a Kafka,
    consumer: BaseConsumer<Reports>,
    admin: OnceCell<AdminClient<DefaultClientContext>>,
}

impl<'a> Look<'a> {
    /// # Errors
    /// The settings are refused.
    pub(super) fn new(clients: &'a Clients, kafka: &'a Kafka) -> Result<Self, SinkError> {
        let consumer = clients.looking().map_err(|fault| SinkError::kafka("make a client", fault))?;
        Ok(Self { clients, kafka, consumer, admin: OnceCell::new() })
    }

    /// How many partitions a topic has; `None`: it does not exist.
    ///
    /// # Errors
    /// The brokers' answer.
    pub(super) fn partitions(&self, name: &str) -> Result<Option<i32>, SinkError> {
        let failed = |fault: KafkaFault| {
            let reports = self.consumer.client().context();
            // The reason comes by itself, behind lines of the log, which a poll without patience would end at.
            while let Some(polled) = self.consumer.poll(REASON) {
                if let Err(error) = polled {
                    reports.note(&error);
                }
            }
            SinkError::kafka("look at a topic", fault.reported(reports.reported()))
        };
        let metadata = self.consumer.fetch_metadata(Some(name), ANSWER).map_err(|error| failed(KafkaFault::new(&error)))?;
        let Some(topic) = metadata.topics().first() else { return Ok(None) };
        match topic.error().map(Code::from) {
            None => Ok(Some(i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX)).filter(|count| *count > 0)),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(None),
            Some(Code::LeaderNotAvailable) => Ok(Some(self.wait_for(name)?)),
            Some(code) => Err(failed(KafkaFault::of_code(code, format!("topic `{name}`")))),
        }
    }

    /// Where the partitions of a topic end, whatever is committed of them.
    ///
    /// # Errors
    /// The brokers' answer.
    pub(super) fn ends(&self, name: &str, partitions: i32) -> Result<Vec<i64>, SinkError> {
        let end = |partition| {
            let watermarks = self.consumer.fetch_watermarks(name, partition, ANSWER);
            watermarks.map(|(_, end)| end).map_err(|error| SinkError::kafka("find the end of a topic", KafkaFault::new(&error)))
        };
        (0..partitions).map(end).collect()
    }

    /// Makes topics; one that is there meanwhile is well too.
    ///
    /// # Errors
    /// The brokers' answer.
    pub(super) fn make(&self, missing: &[(&str, Use)]) -> Result<(), SinkError> {
        self.order(missing, AdminOptions::new().operation_timeout(Some(MAKING)).request_timeout(Some(MAKING)))
    }

    /// Asks whether the topics could be made, and makes none.
    ///
    /// # Errors
    /// The brokers' answer: they could not.
    pub(super) fn could_make(&self, missing: &[(&str, Use)]) -> Result<(), SinkError> {
        self.order(missing, AdminOptions::new().request_timeout(Some(ANSWER)).validate_only(true))
    }

    fn order(&self, missing: &[(&str, Use)], options: AdminOptions) -> Result<(), SinkError> {
        let recipes: Vec<Recipe<'_>> = missing.iter().map(|(_, of)| of.recipe(self.kafka)).collect();
        let new = missing.iter().zip(&recipes).map(|((name, _), recipe)| {
            let mut topic = NewTopic::new(name, recipe.partitions, TopicReplication::Fixed(recipe.replication));
            topic.config.clone_from(&recipe.config);
            topic
        });
        let new: Vec<NewTopic<'_>> = new.collect();
        let results = wait_for(self.admin()?.create_topics(&new, &options))?;
        let results = results.map_err(|error| SinkError::kafka("make topics", KafkaFault::new(&error)))?;
        for result in results {
            match result {
                Ok(_) | Err((_, Code::TopicAlreadyExists)) => {}
                Err((name, code)) => {
                    return Err(SinkError::kafka("make a topic", KafkaFault::of_code(code, format!("topic `{name}`"))));
                }
            }
        }
        Ok(())
    }

    /// Waits until every partition of a topic has a leader; gives how many there are.
    ///
    /// # Errors
    /// The brokers' answer, or none has one in time.
    pub(super) fn wait_for(&self, name: &str) -> Result<i32, SinkError> {
        let deadline = Instant::now() + MAKING;
        loop {
            let metadata = self.consumer.fetch_metadata(Some(name), ANSWER);
            let metadata = metadata.map_err(|error| SinkError::kafka("look at a topic", KafkaFault::new(&error)))?;
            if let Some(topic) = metadata.topics().first()
                && topic.error().is_none()
                && topic.partitions().iter().all(|partition| partition.leader() >= 0 && partition.error().is_none())
                && let Ok(count @ 1..) = i32::try_from(topic.partitions().len())
            {
                return Ok(count);
            }
            if Instant::now() > deadline {
                let fault = KafkaFault::of_code(Code::LeaderNotAvailable, format!("topic `{name}` has partitions without a leader"));
                return Err(SinkError::kafka("wait for a topic", fault));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The settings of topics; those that may not be read are left out.
    ///
    /// # Errors
    /// The brokers' answer.
    pub(super) fn settings(&self, names: &[&str]) -> Result<HashMap<String, Settings>, SinkError> {
        let wanted: Vec<ResourceSpecifier<'_>> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
        let described = wait_for(self.admin()?.describe_configs(&wanted, &AdminOptions::new().request_timeout(Some(ANSWER))))?;
        let described = described.map_err(|error| SinkError::kafka("read the settings of topics", KafkaFault::new(&error)))?;
        let mut settings = HashMap::new();
        for (name, described) in names.iter().zip(described) {
            match described {
                Ok(found) => {
                    let value = |key| found.get(key).and_then(|entry| entry.value.as_deref());
                    let bytes_max = value("max.message.bytes").and_then(|text| text.parse().ok());
                    let found = Settings {
                        bytes_max: bytes_max.unwrap_or(Settings::DEFAULT.bytes_max),
                        is_compacted: value("cleanup.policy").is_some_and(|policy| policy.contains("compact")),
                    };
                    settings.insert((*name).to_owned(), found);
                }
                Err(code) => tracing::warn!(topic = name, ?code, "the topic's settings may not be read: Kafka's defaults are assumed"),
            }
        }
        Ok(settings)
    }

    /// The client that looks, whatever is committed.
    pub(super) fn consumer(&self) -> &BaseConsumer<Reports> {
        &self.consumer
    }

    fn admin(&self) -> Result<&AdminClient<DefaultClientContext>, SinkError> {
        if let Some(admin) = self.admin.get() {
            return Ok(admin);
        }
        let admin = AdminClient::from_config(&self.clients.administration());
        let admin = admin.map_err(|error| SinkError::kafka("make a client", KafkaFault::new(&error)))?;
        Ok(self.admin.get_or_init(|| admin))
    }
}

/// Runs one request of the administrative client to its end, on this thread.
fn wait_for<F: Future>(request: F) -> Result<F::Output, SinkError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|source| SinkError::Io {
        doing: "wait for an answer of",
        path: "the brokers".to_owned(),
        source,
    })?;
    Ok(runtime.block_on(request))
}
