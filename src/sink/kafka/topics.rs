//! The topics that events go to: looked at once, made where they are missing.

use std::collections::HashMap;

use crate::config::Kafka;
use crate::sink::SinkError;
use crate::sink::kafka::client::Clients;
use crate::sink::kafka::look::{Look, Settings};
use crate::sink::kafka::reports::{Span, Spans};

/// What a topic is for; it decides what is kept of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Events with keys: `sink.kafka.topic_config` as it is.
    Keyed,
    /// Events of a table without a key, which a compacted topic does not take: one partition is used, for their order.
    Keyless,
    /// The progress records: one partition, compacted in small segments, so that reading it stays short.
    Progress,
}

/// How a topic is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recipe<'k> {
    pub(super) partitions: i32,
    pub(super) replication: i32,
    pub(super) config: Vec<(&'k str, &'k str)>,
}

impl Use {
    pub(super) fn recipe(self, kafka: &Kafka) -> Recipe<'_> {
        let own: &[(&str, &str)] = match self {
            Self::Keyed => &[],
            Self::Keyless => &[("cleanup.policy", "delete")],
            Self::Progress => &[
                ("cleanup.policy", "compact"),
                ("segment.bytes", "8388608"),
                ("segment.ms", "600000"),
                ("min.cleanable.dirty.ratio", "0.5"),
                ("delete.retention.ms", "86400000"),
                ("max.message.bytes", "8388608"),
            ],
        };
        let given = kafka.topic_config.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let config = given.filter(|(key, _)| !own.iter().any(|(own, _)| own == key)).chain(own.iter().copied()).collect();
        Recipe { partitions: if self == Self::Keyed { kafka.partitions } else { 1 }, replication: kafka.replication, config }
    }
}

/// A topic as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownTopic {
    /// Of this sink's own count, from zero.
    pub(super) number: usize,
    pub(super) partitions: i32,
    pub(super) settings: Settings,
}

/// The progress topic is known first.
const PROGRESS_TOPICS: usize = 1;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Topics {
    known: HashMap<String, KnownTopic>,
    /// By number.
    names: Vec<String>,
}

impl Topics {
    pub(super) fn known(&self, name: &str) -> Option<KnownTopic> {
        self.known.get(name).copied()
    }

    /// The topics of events that a transaction wrote to, with their partitions and what it wrote there.
    pub(super) fn of_events<'s>(&'s self, written: &'s Spans) -> impl Iterator<Item = (&'s str, i32, &'s [Span])> {
        let topics = self.names.iter().zip(written).skip(PROGRESS_TOPICS).filter(|(_, spans)| !spans.is_empty());
        topics.filter_map(|(name, spans)| Some((name.as_str(), self.known.get(name)?.partitions, spans.as_slice())))
    }

    /// The least that a topic of those known takes at once; the greatest record that one of them takes.
    pub(super) fn bytes_max(&self) -> (u64, u64) {
        let all = || self.known.values().map(|topic| topic.settings.bytes_max);
        (all().min().unwrap_or(Settings::DEFAULT.bytes_max), all().max().unwrap_or(Settings::DEFAULT.bytes_max))
    }

    /// Sees to it that the topics are there and known; gives those that were not known before.
    ///
    /// # Errors
    /// One is missing and could not be made.
    pub(super) fn see_to<'t>(&mut self, wanted: &[(&'t str, Use)], clients: &Clients, kafka: &Kafka) -> Result<Vec<&'t str>, SinkError> {
        let unknown: Vec<(&str, Use)> = wanted.iter().filter(|(name, _)| !self.known.contains_key(*name)).copied().collect();
        if unknown.is_empty() {
            return Ok(Vec::new());
        }
        let look = Look::new(clients, kafka)?;
        let mut partitions = HashMap::new();
        let mut missing = Vec::new();
        for (name, of) in &unknown {
            match look.partitions(name)? {
                Some(count) => drop(partitions.insert(*name, count)),
                None => missing.push((*name, *of)),
            }
        }
        if !missing.is_empty() {
            look.make(&missing)?;
            for (name, of) in &missing {
                partitions.insert(name, look.wait_for(name)?);
                tracing::info!(topic = name, r#use = ?of, "topic made");
            }
        }
        let names: Vec<&str> = unknown.iter().map(|(name, _)| *name).collect();
        let settings = look.settings(&names)?;
        for name in &names {
            let settings = settings.get(*name).copied().unwrap_or(Settings::DEFAULT);
            let (number, partitions) = (self.names.len(), partitions.get(name).copied().unwrap_or_default());
            self.known.insert((*name).to_owned(), KnownTopic { number, partitions, settings });
            self.names.push((*name).to_owned());
        }
        Ok(names)
    }
}
