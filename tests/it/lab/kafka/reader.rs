//! What a subscriber reads from Kafka, by a reader that shares nothing with the program: the Java console consumer,
//! `read_committed`.
//!
//! It is read up to where the topics ended when it was asked, however long that takes, and not for a time: the consumer
//! commits its offsets only after it has printed what lies before them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{self as this, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rustix::process::Signal;

use super::super::json::Json;
use super::super::{process, wait};
use super::{Kafka, Running, script};

/// For a Java program on a busy machine to read everything.
const PATIENCE: Duration = Duration::from_mins(2);

/// The commit that was just answered becomes visible some 20 ms later, more on a busy machine. A transaction that is
/// open for longer than this is left out.
const TRANSACTION_ENDS: Duration = Duration::from_secs(5);

/// A record as the consumer prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) topic: String,
    pub(crate) partition: u64,
    pub(crate) offset: u64,
    /// `None` where there is no key, which is not an empty one.
    pub(crate) key: Option<String>,
    /// `None` for a tombstone.
    pub(crate) value: Option<String>,
    pub(crate) headers: Vec<(String, Option<String>)>,
}

/// Reads from one broker.
#[derive(Clone)]
pub(crate) struct Reader {
    brokers: String,
}

impl Kafka {
    pub(crate) fn reader(&self) -> Reader {
        Reader { brokers: self.brokers() }
    }

    /// The committed records of a topic: those of each partition in their order.
    #[track_caller]
    pub(crate) fn read(&self, topic: &str) -> Vec<Record> {
        self.reader().read(|name| name == topic)
    }
}

impl Reader {
    /// The committed records of all topics of a stream, those without events of rows included.
    #[track_caller]
    pub(crate) fn read_stream(&self, topic_prefix: &str) -> Vec<Record> {
        self.read(|name| name.strip_prefix(topic_prefix).is_some_and(|rest| rest.starts_with('.')))
    }

    #[track_caller]
    fn read(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Record> {
        let ends = self.ends(is_wanted);
        if ends.count() == 0 {
            return Vec::new();
        }
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let (group, consumer) = self.consume(&ends, folder.path());
        let mut consumer = Running(consumer);
        let progress: BaseConsumer = self.client(&[("group.id", &group)]);
        wait::until(PATIENCE, "the console consumer has read to the end", || {
            if let Some(status) = consumer.0.try_wait().expect("a child can be waited for") {
                let complaint = fs::read_to_string(folder.path().join("stderr")).unwrap_or_default();
                panic!("the console consumer ended with {status}: {complaint}");
            }
            has_reached(&progress, &ends)
        });
        process::signal(&consumer.0, Signal::TERM);
        wait::until(PATIENCE, "the console consumer has ended", || consumer.0.try_wait().expect("a child can be waited for").is_some());
        let printed = fs::read_to_string(folder.path().join("stdout")).expect("the console consumer prints UTF-8");
        printed.lines().map(Record::parse).collect()
    }

    /// Starts the consumer, and returns the name of its group.
    fn consume(&self, ends: &TopicPartitionList, folder: &Path) -> (String, Child) {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let group = format!("lab-{}-{}", this::id(), CALLS.fetch_add(1, Ordering::Relaxed));
        let mut topics: Vec<String> = ends.elements().iter().map(|end| end.topic().replace('.', "\\.")).collect();
        topics.dedup();
        let file = |name| File::create(folder.join(name)).expect("the folder is writable");
        let mut command = Command::new(script("java"));
        command.args(["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", &self.brokers, "--group", &group]);
        command.args(["--include", &topics.join("|"), "--from-beginning", "--isolation-level", "read_committed"]);
        command.args(["--command-property", "auto.commit.interval.ms=50", "--formatter", "JsonLines"]);
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        (group, command.spawn().expect("a script can be run"))
    }

    /// Where each partition that holds something ends for a reader of committed records.
    #[track_caller]
    fn ends(&self, is_wanted: impl Fn(&str) -> bool) -> TopicPartitionList {
        let [all, committed] =
            ["read_uncommitted", "read_committed"].map(|level| self.client::<BaseConsumer>(&[("isolation.level", level)]));
        let metadata = all.fetch_metadata(None, PATIENCE).expect("the broker answers");
        let mut ends = TopicPartitionList::new();
        let begun = Instant::now();
        for topic in metadata.topics().iter().filter(|topic| is_wanted(topic.name())) {
            for partition in topic.partitions() {
                let end = |client: &BaseConsumer| {
                    let watermarks = client.fetch_watermarks(topic.name(), partition.id(), PATIENCE);
                    watermarks.unwrap_or_else(|error| panic!("the end of `{}`: {error}", topic.name()))
                };
                let (_, written) = end(&all);
                let (low, visible) = wait::until_some(PATIENCE, "a partition's end is known", || {
                    let (low, visible) = end(&committed);
                    (visible >= written || begun.elapsed() > TRANSACTION_ENDS).then_some((low, visible))
                });
                if visible > low {
                    ends.add_partition_offset(topic.name(), partition.id(), Offset::Offset(visible))
                        .expect("an offset that the broker gave");
                }
            }
        }
        ends
    }

    fn client<T: rdkafka::config::FromClientConfig>(&self, settings: &[(&str, &str)]) -> T {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        config.create().expect("the settings are right")
    }
}

impl Record {
    /// The text of a header; `None` where there is no such header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name)?.1.as_deref()
    }

    #[track_caller]
    fn parse(line: &str) -> Self {
        let json = Json::parse(line).unwrap_or_else(|error| panic!("the console consumer printed `{line}`: {error}"));
        let text = |name| json.get(name).and_then(Json::as_text).map(str::to_owned);
        let number = |name| json.get(name).and_then(Json::as_u64).unwrap_or_else(|| panic!("`{name}` is missing: {line}"));
        let header = |pair: &Json| match pair.as_array() {
            Some([name, value]) => (name.as_text().expect("a header has a name").to_owned(), value.as_text().map(str::to_owned)),
            _ => panic!("no header: {pair}"),
        };
        Self {
            topic: text("topic").expect("a record has a topic"),
            partition: number("partition"),
            offset: number("offset"),
            key: text("key"),
            value: text("value"),
            headers: json.get("headers").and_then(Json::as_array).unwrap_or_default().iter().map(header).collect(),
        }
    }
}

/// Whether a group has committed all of `ends`.
fn has_reached(group: &BaseConsumer, ends: &TopicPartitionList) -> bool {
    let Ok(committed) = group.committed_offsets(ends.clone(), Duration::from_secs(5)) else { return false };
    ends.elements().iter().all(|end| {
        let reached = committed.find_partition(end.topic(), end.partition()).map(|reached| reached.offset());
        matches!((reached, end.offset()), (Some(Offset::Offset(reached)), Offset::Offset(end)) if reached >= end)
    })
}
