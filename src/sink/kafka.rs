//! Events in Kafka, exactly once for readers that read what is committed.
//!
//! A batch is one transaction: its events, the journals of tables that it changes, where topics ended before it, and the
//! progress record (`records`). So whatever is killed whenever, the progress record names the last batch whose
//! events readers see, and all of them.
//!
//! After an error the outcome is unknown, and the sink has to be opened again: a new producer of the same
//! `transactional.id` aborts what was open and shuts every older one out, then the record is read to its end and decides.
//! The record carries the name of the process that wrote it, and is written again by each that begins: one that is
//! shut out and finds another's name there was replaced; one that finds its own was only too slow for the brokers.
//!
//! Refused: topics whose number of partitions changed; the records of another stream. Found, and left to a rebuild: topics
//! that end before the place where they ended before.

mod client;
pub mod fault;
mod look;
mod partition;
mod producer;
mod records;
mod reports;
pub mod survey;
mod topics;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::message::{Header as KafkaHeader, OwnedHeaders};

use crate::admin::board::Board;
use crate::batch::{Batch, EventView};
use crate::config::{Config, Header, Kafka, Oversize};
use crate::progress::{BatchId, InstanceId, PROGRESS_VERSION, Progress};
use crate::rebuild::journal::{Mode, TableJournal};
use crate::sink::kafka::client::Clients;
use crate::sink::kafka::fault::{KafkaFault, Verdict};
use crate::sink::kafka::look::Look;
use crate::sink::kafka::partition::partition;
use crate::sink::kafka::producer::{Producer, Sent};
use crate::sink::kafka::records::{EndsRecord, Found, RECORD_VERSION, STREAM_KEY, StreamRecord, encoded, ends_key, table_key};
use crate::sink::kafka::reports::Spans;
use crate::sink::kafka::topics::{KnownTopic, Topics, Use};
use crate::sink::kafka::waiting::Waiting;
use crate::sink::{Committed, Receipt, Record, Sink, SinkError};

/// How long brokers that were never reached by this process may be silent in one attempt to open the sink.
const SILENCE_AT_FIRST: Duration = Duration::from_secs(15);
/// A record's own fields, beside key, value and headers, and those of a batch that holds only it: at most.
const RECORD_OVERHEAD: u64 = 160;

/// The Kafka sink.
#[derive(Debug)]
pub struct KafkaSink {
    kafka: Kafka,
    clients: Clients,
    prefix: String,
    stream: String,
    headers: Vec<Header>,
    board: Board,
    /// This process, as the progress record names it.
    writer: InstanceId,
    /// The progress record has had our name.
    has_claimed: bool,
    /// Topics that were seen to be made again, until they are sent anew: their ends may tell nothing.
    made_again: BTreeSet<String>,
    open: Option<Open>,
}

/// A producer, and what is known of the place it writes to.
#[derive(Debug)]
struct Open {
    producer: Producer,
    topics: Topics,
    /// Of the last commit; none before the first.
    last: Option<BatchId>,
    /// Where each topic ends at least, as recorded or as known since.
    ends: BTreeMap<String, EndsRecord>,
    /// Topics of `ends` that are recorded with the next transaction.
    unrecorded: BTreeSet<String>,
    /// Topics that lost something; theirs is recorded when they are begun anew.
    lost: BTreeSet<String>,
}

impl KafkaSink {
    /// Does nothing yet; [`Sink::open`] does. `writer` names this process.
    #[must_use]
    pub fn new(config: &Config, kafka: Kafka, board: Board, writer: InstanceId) -> Self {
        let prefix = config.sink.topic_prefix.clone();
        Self {
            clients: Clients::new(kafka.clone(), &prefix, &config.stream),
            kafka,
            prefix,
            stream: config.stream.clone(),
            headers: config.sink.headers.clone(),
            board,
            writer,
            has_claimed: false,
            made_again: BTreeSet::new(),
            open: None,
        }
    }

    fn progress_topic(&self) -> String {
        progress_topic(&self.prefix)
    }

    /// A new producer, and the records as of its initialisation.
    fn initialised(&self, topics: &Topics, waiting: &mut Waiting<'_>) -> Result<(Producer, Found), SinkError> {
        self.look_for_successor()?;
        let (batch_bytes, record_bytes) = topics.bytes_max();
        let producer =
            Producer::new(&self.clients, batch_bytes, record_bytes).map_err(|fault| SinkError::kafka("make a producer", fault))?;
        producer.initialise(self.patience(), waiting).map_err(|fault| SinkError::kafka("initialise the producer", fault))?;
        Ok((producer, self.read(waiting)?))
    }

    /// Brokers that were there once come back; an address where they never were may be a wrong one.
    fn patience(&self) -> Duration {
        if self.has_claimed { Duration::MAX } else { SILENCE_AT_FIRST }
    }

    /// Waits for brokers that answer, and sees to the progress topic.
    fn reach(&self, topics: &mut Topics, topic: &str, waiting: &mut Waiting<'_>) -> Result<(), SinkError> {
        let begun = Instant::now();
        loop {
            match topics.see_to(&[(topic, Use::Progress)], &self.clients, &self.kafka) {
                Err(SinkError::Kafka { fault, .. }) if fault.is_silence() && begun.elapsed() < self.patience() => {
                    waiting.see("the Kafka brokers to answer", fault.last_report());
                }
                seen => return seen.map(|_| ()),
            }
        }
    }

    fn read(&self, waiting: &mut Waiting<'_>) -> Result<Found, SinkError> {
        let look = Look::new(&self.clients, &self.kafka)?;
        records::read(&self.clients, look.consumer(), &self.progress_topic(), waiting)
    }

    fn open_anew(&mut self, waiting: &mut Waiting<'_>) -> Result<Committed, SinkError> {
        let topic = self.progress_topic();
        let mut topics = Topics::default();
        self.reach(&mut topics, &topic, waiting)?;
        let (producer, found) = self.initialised(&topics, waiting)?;
        let progress = found.stream.as_ref().and_then(|record| record.progress.clone());
        if let Some(progress) = progress.clone().filter(|progress| progress.stream != self.stream || progress.version != PROGRESS_VERSION) {
            // The session refuses it; until then nothing of it is touched.
            return Ok(Committed::Record(Box::new(Record { progress, tables: Vec::new(), lost: Vec::new() })));
        }
        let (ends, lost) = self.compare(&found)?;
        let changed = ends.iter().filter(|(topic, ends)| found.ends.get(*topic) != Some(ends)).map(|(topic, _)| topic.clone());
        let mut open = Open {
            producer,
            topics,
            last: progress.as_ref().map(|progress| progress.batch.clone()),
            unrecorded: changed.collect(),
            ends,
            lost: lost.iter().cloned().collect(),
        };
        // What is in no table cannot be sent again: it is said once.
        for topic in lost.iter().filter(|topic| !found.tables.contains_key(*topic)) {
            open.forget_loss(topic);
            self.made_again.remove(topic);
        }
        self.claim(&mut open, progress.clone(), waiting)?;
        self.open = Some(open);
        let tables = found.tables.into_values().collect();
        Ok(progress.map_or(Committed::Nothing, |progress| Committed::Record(Box::new(Record { progress, tables, lost }))))
    }

    /// The record once more, changed in the writer's name only: without the position it would replace it.
    fn claim(&mut self, open: &mut Open, progress: Option<Progress>, waiting: &mut Waiting<'_>) -> Result<(), SinkError> {
        let record = StreamRecord { version: RECORD_VERSION, writer: self.writer.clone(), progress };
        let claimed = self.transaction(open, waiting, |_, _| Ok(()), &[], &record);
        let _progress_topic = claimed.map_err(|failure| self.explained("claim the stream", failure))?;
        self.has_claimed = true;
        Ok(())
    }

    /// Where topics end now, and those that end before the place where they ended before, or are gone.
    fn compare(&self, found: &Found) -> Result<(BTreeMap<String, EndsRecord>, Vec<String>), SinkError> {
        let look = Look::new(&self.clients, &self.kafka)?;
        let mut ends = BTreeMap::new();
        let mut lost = Vec::new();
        for (topic, recorded) in &found.ends {
            let partitions = look.partitions(topic)?;
            let present = partitions.map(|partitions| look.ends(topic, partitions)).transpose()?.unwrap_or_default();
            let is_whole = !self.made_again.contains(topic)
                && recorded.ends.iter().enumerate().all(|(n, end)| *end <= present.get(n).copied().unwrap_or_default());
            match partitions {
                Some(partitions) if is_whole && partitions != recorded.partitions && recorded.partitions > 0 => {
                    return Err(SinkError::PartitionsChanged { topic: topic.clone(), recorded: recorded.partitions, found: partitions });
                }
                Some(partitions) if is_whole => drop(ends.insert(topic.clone(), EndsRecord { partitions, ends: present })),
                // Nothing was ever written to it.
                None if is_whole => {}
                _ => {
                    tracing::warn!(topic, recorded = ?recorded.ends, found = ?present, "the topic lost records, or was made again");
                    lost.push(topic.clone());
                }
            }
        }
        Ok((ends, lost))
    }

    /// Another producer in the place of one that is not to be trusted with the next transaction.
    fn replace(&self, open: Open, waiting: &mut Waiting<'_>) -> Result<Open, SinkError> {
        tracing::info!("the producer is replaced before the next transaction");
        let Open { producer, topics, last, ends, unrecorded, lost } = open;
        drop(producer);
        let (producer, found) = self.initialised(&topics, waiting)?;
        let found = found.stream.and_then(|record| record.progress).map(|progress| progress.batch);
        if found != last {
            let shown = |batch: Option<BatchId>| batch.map_or("none".to_owned(), |batch| batch.to_string());
            return Err(SinkError::OtherBatch { found: shown(found), expected: shown(last) });
        }
        Ok(Open { producer, topics, last, ends, unrecorded, lost })
    }

    /// One transaction: `events`, then the journals, the ends of topics and the record of the stream.
    fn transaction(
        &self,
        open: &mut Open,
        waiting: &mut Waiting<'_>,
        events: impl FnOnce(&mut Open, &mut Waiting<'_>) -> Result<(), Failure>,
        tables: &[TableJournal],
        record: &StreamRecord,
    ) -> Result<Spans, Failure> {
        open.producer.begin()?;
        events(open, waiting)?;
        for table in tables {
            self.send_record(open, &table_key(&table.topic), &encoded(table)?, waiting)?;
        }
        for topic in std::mem::take(&mut open.unrecorded) {
            if let Some(ends) = open.ends.get(&topic) {
                let ends = encoded(ends)?;
                self.send_record(open, &ends_key(&topic), &ends, waiting)?;
            }
        }
        self.send_record(open, STREAM_KEY, &encoded(record)?, waiting)?;
        let written = open.producer.delivered(waiting)?;
        open.check_for_topics_made_again(&written)?;
        open.producer.commit(waiting)?;
        Ok(written)
    }

    fn send_record(&self, open: &mut Open, key: &str, value: &[u8], waiting: &mut Waiting<'_>) -> Result<(), Failure> {
        let topic = self.progress_topic();
        let known = open.topics.known(&topic).ok_or(SinkError::NotOpen)?;
        let limit = known.settings.bytes_max;
        let bytes = (key.len() + value.len()) as u64 + RECORD_OVERHEAD;
        if bytes > limit {
            return Err(SinkError::TooLargeForTopic { topic, id: key.to_owned(), bytes, limit }.into());
        }
        let sent = Sent { number: known.number, topic: &topic, partition: 0, key: Some(key.as_bytes()), value: Some(value), headers: None };
        Ok(open.producer.send(sent, waiting)?)
    }

    fn send_events(&self, open: &mut Open, batch: &Batch, waiting: &mut Waiting<'_>) -> Result<(), Failure> {
        for event in batch.events() {
            let topic = event.topic.name.as_str();
            let known = open.topics.known(topic).ok_or(SinkError::NotOpen)?;
            if event.key.is_none() && known.settings.is_compacted {
                return Err(SinkError::Compacted { topic: topic.to_owned() }.into());
            }
            let bytes = self.bytes(event);
            let limit = known.settings.bytes_max;
            if bytes > limit {
                let error = SinkError::TooLargeForTopic {
                    topic: topic.to_owned(),
                    id: String::from_utf8_lossy(event.id).into_owned(),
                    bytes,
                    limit,
                };
                match self.kafka.oversize {
                    Oversize::Stop => return Err(error.into()),
                    Oversize::DeadLetter => self.send_dead_letter(open, event, bytes, &error, waiting)?,
                }
                continue;
            }
            match event.key {
                Some(key) => self.send_event(open, known, topic, partition(key, known.partitions), event, waiting)?,
                // A TRUNCATE concerns the rows of every partition.
                None if event.topic.keyed => self.send_to_all(open, known, topic, event, waiting)?,
                // One partition keeps the order of rows that have no key.
                None => self.send_event(open, known, topic, 0, event, waiting)?,
            }
        }
        Ok(())
    }

    fn send_event(
        &self,
        open: &mut Open,
        known: KnownTopic,
        topic: &str,
        partition: i32,
        event: EventView<'_>,
        waiting: &mut Waiting<'_>,
    ) -> Result<(), Failure> {
        let headers = self.headers.iter().fold(OwnedHeaders::new_with_capacity(self.headers.len()), |headers, header| {
            let (key, value) = header_of(*header, event);
            headers.insert(KafkaHeader { key, value: Some(value) })
        });
        let sent = Sent { number: known.number, topic, partition, key: event.key, value: event.value, headers: Some(headers) };
        Ok(open.producer.send(sent, waiting)?)
    }

    /// The same event in each partition, with an id of its own in each.
    fn send_to_all(
        &self,
        open: &mut Open,
        known: KnownTopic,
        topic: &str,
        event: EventView<'_>,
        waiting: &mut Waiting<'_>,
    ) -> Result<(), Failure> {
        for partition in 0..known.partitions {
            let id = [event.id, format!(".p{partition}").as_bytes()].concat();
            self.send_event(open, known, topic, partition, EventView { id: &id, ..event }, waiting)?;
        }
        Ok(())
    }

    /// What is left of an event that its topic refuses. Its key may be as large as it is, and is cut.
    fn send_dead_letter(
        &self,
        open: &mut Open,
        event: EventView<'_>,
        bytes: u64,
        reason: &SinkError,
        waiting: &mut Waiting<'_>,
    ) -> Result<(), Failure> {
        const KEY_BYTES_MAX: usize = 8_192;
        let topic = dead_letter_topic(&self.prefix);
        let known = open.topics.known(&topic).ok_or(SinkError::NotOpen)?;
        let id = String::from_utf8_lossy(event.id);
        let key = event.key.map(|key| String::from_utf8_lossy(key.get(..KEY_BYTES_MAX).unwrap_or(key)));
        let value = serde_json::json!({
            "topic": event.topic.name, "key": key, "id": id, "order": String::from_utf8_lossy(event.order), "bytes": bytes,
            "reason": reason.to_string(),
        });
        tracing::warn!(topic = event.topic.name, %id, bytes, "an event is left out, its topic would refuse it: a dead letter takes its place");
        let (key, value) = (serde_json::json!({ "id": id }).to_string(), value.to_string());
        let letter = EventView { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..event };
        self.send_event(open, known, &topic, partition(key.as_bytes(), known.partitions), letter, waiting)
    }

    /// What an event takes of its topic's `max.message.bytes`, before compression.
    fn bytes(&self, event: EventView<'_>) -> u64 {
        let length = |piece: Option<&[u8]>| piece.map_or(0, <[u8]>::len);
        let headers: usize =
            self.headers.iter().map(|header| header_of(*header, event)).map(|(key, value)| key.len() + value.len() + 8).sum();
        (length(event.key) + length(event.value) + headers) as u64 + RECORD_OVERHEAD
    }

    /// The topics that a batch needs.
    fn topics_of(&self, batch: &Batch) -> BTreeMap<String, Use> {
        let mut topics: BTreeMap<String, Use> = BTreeMap::new();
        let mut last = None;
        for event in batch.events() {
            // Events of one topic come in rows; one that has keys has them in every event but that of a TRUNCATE.
            if last.is_none_or(|last| !std::sync::Arc::ptr_eq(last, event.topic)) {
                let of = if event.topic.keyed { Use::Keyed } else { Use::Keyless };
                topics.insert(event.topic.name.clone(), of);
                last = Some(event.topic);
            }
        }
        if self.kafka.oversize == Oversize::DeadLetter && !batch.is_empty() {
            topics.insert(dead_letter_topic(&self.prefix), Use::Keyed);
        }
        topics
    }

    fn deliver_open(&self, mut open: Open, batch: &Batch, progress: &Progress, tables: &[TableJournal]) -> Result<Open, SinkError> {
        let mut waiting = Waiting::begin(&self.board);
        let wanted = self.topics_of(batch);
        let wanted: Vec<(&str, Use)> = wanted.iter().map(|(name, of)| (name.as_str(), *of)).collect();
        for topic in open.topics.see_to(&wanted, &self.clients, &self.kafka)? {
            if !open.ends.contains_key(topic) {
                let partitions = open.topics.known(topic).map_or(0, |known| known.partitions);
                open.ends.insert(topic.to_owned(), EndsRecord { partitions, ends: Vec::new() });
                open.unrecorded.insert(topic.to_owned());
            }
        }
        if open.producer.is_stale() || !open.producer.suits(&open.topics) {
            open = self.replace(open, &mut waiting)?;
        }
        // A topic that is sent anew holds what it holds now; until then a start has to find what it lost.
        for table in tables.iter().filter(|table| table.mode == Mode::Resend) {
            open.forget_loss(&table.topic);
        }
        let lost = open.lost.clone();
        open.unrecorded.retain(|topic| !lost.contains(topic));
        let record = StreamRecord { version: RECORD_VERSION, writer: self.writer.clone(), progress: Some(progress.clone()) };
        let outcome = self.transaction(&mut open, &mut waiting, |open, waiting| self.send_events(open, batch, waiting), tables, &record);
        match outcome {
            Ok(written) => open.note_ends(&written),
            Err(failure) => return Err(self.explained("deliver a batch", failure)),
        }
        open.last = Some(progress.batch.clone());
        Ok(open)
    }

    /// A producer that was shut out asks the record by whom.
    fn explained(&self, doing: &'static str, failure: Failure) -> SinkError {
        match failure {
            Failure::Sink(error) => error,
            Failure::Kafka(fault) if fault.verdict() == Verdict::Fenced => match self.look_for_successor() {
                Err(error @ SinkError::TakenOver { .. }) => error,
                _ => SinkError::kafka(doing, fault),
            },
            Failure::Kafka(fault) => SinkError::kafka(doing, fault),
        }
    }
}

impl Open {
    /// What the topic holds now is what it is to hold.
    fn forget_loss(&mut self, topic: &str) {
        if self.lost.remove(topic) {
            self.ends.insert(topic.to_owned(), EndsRecord::default());
            self.unrecorded.insert(topic.to_owned());
        }
    }

    /// A topic made again under its name takes records as if nothing had been; they land where others were before.
    fn check_for_topics_made_again(&self, written: &Spans) -> Result<(), SinkError> {
        for (topic, _, spans) in self.topics.of_events(written) {
            let ends = self.ends.get(topic).map_or(&[][..], |record| &record.ends);
            if spans.iter().zip(ends).any(|(span, end)| span.end > 0 && span.first < *end) {
                return Err(SinkError::MadeAgain { topic: topic.to_owned() });
            }
        }
        Ok(())
    }

    /// Where topics end after the transaction, to be recorded with the next one.
    fn note_ends(&mut self, written: &Spans) {
        for (topic, partitions, spans) in self.topics.of_events(written) {
            let record = self.ends.entry(topic.to_owned()).or_default();
            record.partitions = partitions;
            record.ends.resize(usize::try_from(partitions).unwrap_or_default(), 0);
            for (end, span) in record.ends.iter_mut().zip(spans) {
                *end = (*end).max(span.end);
            }
            self.unrecorded.insert(topic.to_owned());
        }
    }
}

impl Sink for KafkaSink {
    fn open(&mut self) -> Result<Committed, SinkError> {
        self.open = None;
        let board = self.board.clone();
        let mut waiting = Waiting::begin(&board);
        self.open_anew(&mut waiting)
    }

    fn deliver(&mut self, batch: &Batch, progress: &Progress, tables: &[TableJournal]) -> Result<Receipt, SinkError> {
        assert!(progress.stream == self.stream, "a batch of stream `{}` for the events of `{}`", progress.stream, self.stream);
        let open = self.open.take().ok_or(SinkError::NotOpen)?;
        match self.deliver_open(open, batch, progress, tables) {
            Ok(open) => self.open = Some(open),
            Err(error) => {
                if let SinkError::MadeAgain { topic } = &error {
                    self.made_again.insert(topic.clone());
                }
                return Err(error);
            }
        }
        for table in tables.iter().filter(|table| table.mode == Mode::Resend) {
            self.made_again.remove(&table.topic);
        }
        Ok(Receipt { batch: progress.batch.clone() })
    }

    fn look_for_successor(&self) -> Result<(), SinkError> {
        if !self.has_claimed {
            return Ok(());
        }
        match self.read(&mut Waiting::begin(&self.board))?.stream {
            Some(record) if record.writer != self.writer => Err(SinkError::TakenOver { writer: record.writer.to_string() }),
            _ => Ok(()),
        }
    }

    fn event_bytes_max(&self) -> Option<u64> {
        None
    }
}

/// Why a transaction came to no end that is known.
enum Failure {
    Kafka(KafkaFault),
    Sink(SinkError),
}

impl From<KafkaFault> for Failure {
    fn from(fault: KafkaFault) -> Self {
        Self::Kafka(fault)
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        Self::Sink(error)
    }
}

fn header_of(header: Header, event: EventView<'_>) -> (&'static str, &[u8]) {
    match header {
        Header::Id => ("id", event.id),
        Header::Order => ("order", event.order),
    }
}

/// Where the progress records are.
#[must_use]
pub fn progress_topic(prefix: &str) -> String {
    format!("{prefix}.__progress")
}

fn dead_letter_topic(prefix: &str) -> String {
    format!("{prefix}.__dead_letter")
}
