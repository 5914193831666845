//! What an administrator does: topics and their settings. By librdkafka, which takes milliseconds where Kafka's own tools take half
//! a second.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, FromClientConfig};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::metadata::{Metadata, MetadataPartition};

use super::super::wait;
use super::Kafka;

/// For an answer of a broker on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

impl Kafka {
    /// Makes a topic with settings such as `("cleanup.policy", "compact")`.
    #[track_caller]
    pub(crate) fn create_topic(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        let made = wait_for(self.admin().create_topics([&new], &options())).expect("the broker answers");
        assert_done("created", made);
        wait::until(PATIENCE, &format!("topic `{topic}` has leaders"), || self.partitions(topic) == usize::try_from(partitions).ok());
    }

    #[track_caller]
    pub(crate) fn delete_topic(&self, topic: &str) {
        assert_done("deleted", wait_for(self.admin().delete_topics(&[topic], &options())).expect("the broker answers"));
        wait::until(PATIENCE, &format!("topic `{topic}` is gone"), || self.partitions(topic).is_none());
    }

    #[track_caller]
    pub(crate) fn change_setting(&self, topic: &str, name: &str, value: &str) {
        let change = ["--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", &format!("{name}={value}")];
        self.tool("ConfigCommand", &change);
        wait::until(PATIENCE, &format!("`{name}` of `{topic}` is {value}"), || self.settings(topic)[name] == value);
    }

    /// Gives a topic more partitions.
    #[track_caller]
    pub(crate) fn add_partitions(&self, topic: &str, count: usize) {
        let more = NewPartitions::new(topic, count);
        assert_done("enlarged", wait_for(self.admin().create_partitions([&more], &options())).expect("the broker answers"));
        wait::until(PATIENCE, &format!("topic `{topic}` has leaders"), || self.partitions(topic) == Some(count));
    }

    /// The names of all topics that are not the broker's own.
    pub(crate) fn topics(&self) -> Vec<String> {
        let metadata = self.metadata(PATIENCE).expect("the broker answers");
        let mut names: Vec<String> = metadata.topics().iter().map(|topic| topic.name().to_owned()).collect();
        names.retain(|name| name != "__consumer_offsets" && name != "__transaction_state");
        names.sort();
        names
    }

    pub(super) fn broker_count(&self) -> usize {
        self.metadata(PATIENCE).expect("the broker answers").brokers().len()
    }

    /// The leader of a topic's first partition.
    pub(super) fn leader(&self, topic: &str) -> Option<i32> {
        let metadata = self.metadata(PATIENCE).expect("the broker answers");
        let topic = metadata.topics().iter().find(|of| of.name() == topic)?;
        topic.partitions().first().map(MetadataPartition::leader).filter(|leader| *leader >= 0)
    }

    /// How many partitions a topic has, all of them with a leader; `None` where there is no such topic, or not yet.
    pub(crate) fn partitions(&self, topic: &str) -> Option<usize> {
        let metadata = self.metadata(PATIENCE)?;
        let topic = metadata.topics().iter().find(|known| known.name() == topic)?;
        topic.partitions().iter().all(|partition| partition.error().is_none() && partition.leader() >= 0).then(|| topic.partitions().len())
    }

    /// All settings of a topic.
    #[track_caller]
    pub(crate) fn settings(&self, topic: &str) -> BTreeMap<String, String> {
        let described = wait_for(self.admin().describe_configs([&ResourceSpecifier::Topic(topic)], &options()));
        let described = described.expect("the broker answers").pop().expect("one answer for one topic");
        let entries = described.unwrap_or_else(|code| panic!("describe `{topic}`: {code}")).entries;
        entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect()
    }

    /// A client with settings of its own.
    #[track_caller]
    pub(crate) fn client<T: FromClientConfig>(&self, settings: &[(&str, &str)]) -> T {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.brokers());
        for (name, value) in settings {
            config.set(*name, *value);
        }
        config.create().expect("the settings are right")
    }

    /// Whether the broker answers as one that clients can work with.
    pub(super) fn serves(&self) -> bool {
        // The attempt to connect costs nothing; a client that is refused waits before it tries again.
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
            && self.metadata(Duration::from_secs(1)).is_some_and(|metadata| !metadata.brokers().is_empty())
    }

    fn metadata(&self, deadline: Duration) -> Option<Metadata> {
        let consumer: BaseConsumer = self.client(&[]);
        consumer.fetch_metadata(None, deadline).ok()
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client(&[])
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

#[track_caller]
fn assert_done(done: &str, results: Vec<Result<String, (String, rdkafka::types::RDKafkaErrorCode)>>) {
    for result in results {
        result.unwrap_or_else(|(topic, code)| panic!("topic `{topic}` cannot be {done}: {code}"));
    }
}

/// The client's own thread does the work; this one only waits.
fn wait_for<T>(answer: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers").block_on(answer)
}
