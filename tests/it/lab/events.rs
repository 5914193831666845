//! Events as a subscriber reads them. Of the file sink's: what `committed.json` calls committed, and nothing else.
//! Of Kafka's: the committed records that its own consumer printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::json::Json;
use super::kafka::reader::Record;
use super::schemas;

/// A row of an event or of a table: its columns by name.
pub(crate) type Row = BTreeMap<String, Json>;

/// One line of a topic, or one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The key as JSON with its fields in alphabetical order; `None` where the table has no key.
    pub(crate) key: Option<String>,
    /// `None` for a tombstone.
    pub(crate) value: Option<Json>,
    pub(crate) id: String,
    pub(crate) place: Place,
}

/// Where an event stands in its topic: its partition, and how far in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Zero in a file.
    pub(crate) partition: u64,
    /// In a file the number of the line, from zero.
    pub(crate) offset: u64,
}

impl Event {
    /// `c u d r t m`; `None` for a tombstone.
    pub(crate) fn op(&self) -> Option<&str> {
        Some(self.value.as_ref()?.get("op").and_then(Json::as_text).expect("a value has an `op`"))
    }

    pub(crate) fn before(&self) -> Option<&Row> {
        self.value.as_ref()?.get("before")?.as_object()
    }

    pub(crate) fn after(&self) -> Option<&Row> {
        self.value.as_ref()?.get("after")?.as_object()
    }

    /// A field of `source`.
    pub(crate) fn source(&self, name: &str) -> Option<&Json> {
        self.value.as_ref()?.get("source")?.get(name)
    }

    /// The place of the event among those of its stream; `None` for a tombstone.
    pub(crate) fn order(&self) -> Option<&str> {
        self.value.as_ref()?;
        Some(
            self.source("order")
                .or_else(|| self.value.as_ref()?.get("order"))
                .and_then(Json::as_text)
                .expect("a value has a `source.order`"),
        )
    }

    /// The columns that `after` leaves out because their value is large and did not change.
    pub(crate) fn unchanged(&self) -> impl Iterator<Item = &str> {
        let names = self.source("unchanged").and_then(Json::as_array).unwrap_or_default();
        names.iter().map(|name| name.as_text().expect("`source.unchanged` holds names"))
    }

    /// The part of the id that the events of one change have in common: all up to the part number.
    pub(crate) fn change(&self) -> &str {
        match self.id.rsplit_once('.') {
            Some((change, part)) if !part.contains(':') => change,
            _ => &self.id,
        }
    }

    fn of_line(line: &str, offset: usize) -> Option<Self> {
        let line = Json::parse(line).ok()?;
        let id = line.get("headers")?.get("id")?.as_text()?.to_owned();
        let place = Place { partition: 0, offset: offset.try_into().ok()? };
        Some(Self { key: line.get("key").map(ToString::to_string), value: line.get("value").cloned(), id, place })
    }

    fn of_record(record: &Record) -> Option<Self> {
        let json = |text: &Option<String>| text.as_deref().map(Json::parse).transpose().ok();
        let key = json(&record.key)?.map(|key| key.to_string());
        let place = Place { partition: record.partition, offset: record.offset };
        Some(Self { key, value: json(&record.value)?, id: record.header("id")?.to_owned(), place })
    }
}

/// The committed lines of a topic, byte for byte; none where it has no events.
#[track_caller]
pub(crate) fn lines(directory: &Path, topic: &str) -> Vec<String> {
    let committed = fs::read_to_string(directory.join("committed.json")).expect("something is committed");
    let committed = Json::parse(&committed).expect("`committed.json` is JSON");
    let Some(last) = committed.get("segments").and_then(|segments| segments.get(topic)) else { return Vec::new() };
    committed_text(&directory.join(topic), last).lines().map(str::to_owned).collect()
}

/// All committed events, by topic and in their order there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    topic_prefix: String,
    topics: BTreeMap<String, Vec<Event>>,
}

impl Events {
    /// Reads a folder of the file sink; no event where nothing was committed yet.
    #[track_caller]
    pub(crate) fn read(directory: &Path, topic_prefix: &str) -> Self {
        let topic_prefix = topic_prefix.to_owned();
        let Ok(committed) = fs::read_to_string(directory.join("committed.json")) else {
            return Self { topic_prefix, ..Self::default() };
        };
        let committed = Json::parse(&committed).expect("`committed.json` is JSON");
        let segments = committed.get("segments").and_then(Json::as_object).expect("`committed.json` has `segments`");
        let read = |(topic, last): (&String, &Json)| {
            let text = committed_text(&directory.join(topic), last);
            assert!(text.is_empty() || text.ends_with('\n'), "the committed part of `{topic}` ends within a line");
            let event =
                |(number, line)| Event::of_line(line, number).unwrap_or_else(|| panic!("`{topic}` has a line that is no event: {line}"));
            (topic.clone(), text.lines().enumerate().map(event).collect())
        };
        Self { topic_prefix, topics: segments.iter().map(read).collect() }
    }

    /// Takes what was read from the topics of a stream. Progress records are no events.
    #[track_caller]
    pub(crate) fn of_records(records: &[Record], topic_prefix: &str) -> Self {
        let mut topics = BTreeMap::<String, Vec<Event>>::new();
        let progress = format!("{topic_prefix}.__progress");
        for record in records.iter().filter(|record| record.topic != progress) {
            let event = Event::of_record(record).unwrap_or_else(|| panic!("a record is no event: {record:?}"));
            topics.entry(record.topic.clone()).or_default().push(event);
        }
        Self { topic_prefix: topic_prefix.to_owned(), topics: topics.into_iter().map(|(topic, events)| (topic, merged(events))).collect() }
    }

    /// The events of a table, such as `public.orders`.
    pub(crate) fn of(&self, table: &str) -> &[Event] {
        self.topic(&format!("{}.{table}", self.topic_prefix))
    }

    pub(crate) fn topic(&self, topic: &str) -> &[Event] {
        self.topics.get(topic).map(Vec::as_slice).unwrap_or_default()
    }

    /// The names of the topics that have been committed to.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(String::as_str)
    }

    /// What `self` has beyond `earlier`: nothing committed ever changes.
    #[track_caller]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut beyond = self.clone();
        for (topic, known) in &earlier.topics {
            let events = beyond.topics.get_mut(topic).unwrap_or_else(|| panic!("topic `{topic}` has vanished"));
            let mut known: BTreeMap<Place, &Event> = known.iter().map(|event| (event.place, event)).collect();
            events.retain(|event| match known.remove(&event.place) {
                None => true,
                Some(same) => {
                    assert_eq!(same, event, "a committed event of `{topic}` has changed");
                    false
                }
            });
            assert!(known.is_empty(), "committed events of `{topic}` have vanished: {known:?}");
        }
        beyond
    }

    /// Keys and values are what the schemas of `schemas/` say.
    #[track_caller]
    pub(crate) fn assert_fit_schemas(&self) {
        for (topic, events) in &self.topics {
            let value = match topic.strip_prefix(self.topic_prefix.as_str()) {
                Some(".__rebuild") => &schemas::REBUILD_MARK,
                Some(".__dead_letter") => &schemas::DEAD_LETTER,
                Some(".transaction") => &schemas::TRANSACTION,
                _ => &schemas::EVENT,
            };
            for event in events {
                schemas::KEY.assert_fits(&event.key.as_deref().map_or(Json::Null, |key| Json::parse(key).expect("a key is JSON")));
                if let Some(event) = &event.value {
                    value.assert_fits(event);
                }
            }
        }
    }

    #[track_caller]
    pub(crate) fn assert_no_duplicate_ids(&self) {
        let mut seen = BTreeSet::new();
        for (topic, events) in &self.topics {
            for event in events {
                assert!(seen.insert(&event.id), "`{topic}` has an event whose id came before: {event:?}");
            }
        }
    }

    /// The order of a partition rises as a whole: per key, and for rows without one.
    #[track_caller]
    pub(crate) fn assert_order_rises_per_key(&self) {
        for (topic, events) in &self.topics {
            let mut last = BTreeMap::new();
            for event in events {
                let Some(order) = event.order() else { continue };
                let last = last.entry(event.place.partition).or_insert("");
                assert!(*last < order, "the order of `{topic}` falls from `{last}` to `{order}`: {event:?}");
                *last = order;
            }
        }
    }
}

/// The events of a topic's partitions in the order of the stream. Those of one partition stay in theirs, even where it
/// is wrong; a tombstone follows what is before it.
fn merged(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|event| event.place);
    let mut reached = (0, String::new());
    let mut stamped: Vec<(String, Event)> = Vec::with_capacity(events.len());
    for event in events {
        if reached.0 != event.place.partition {
            reached = (event.place.partition, String::new());
        }
        if let Some(order) = event.order().filter(|order| *order > reached.1.as_str()) {
            reached.1 = order.to_owned();
        }
        stamped.push((reached.1.clone(), event));
    }
    stamped.sort_by(|(one, _), (other, _)| one.cmp(other));
    stamped.into_iter().map(|(_, event)| event).collect()
}

/// The whole segments before the last one, and of the last one what is committed.
#[track_caller]
fn committed_text(folder: &Path, last: &Json) -> String {
    let file = last.get("file").and_then(Json::as_text).expect("a segment has a `file`");
    let length = last.get("length").and_then(Json::as_u64).expect("a segment has a `length`");
    let entries = fs::read_dir(folder).expect("a topic with a committed segment has a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("the folder is readable").file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.as_str() <= file);
    names.sort();
    assert_eq!(names.last().map(String::as_str), Some(file), "the committed segment of {} is missing", folder.display());

    let mut bytes = Vec::new();
    for name in &names {
        let mut segment = fs::read(folder.join(name)).expect("a segment is readable");
        if name == file {
            let length = usize::try_from(length).expect("a length is a `usize`");
            assert!(segment.len() >= length, "segment {name} of {} is shorter than its {length} committed bytes", folder.display());
            segment.truncate(length);
        }
        bytes.extend_from_slice(&segment);
    }
    String::from_utf8(bytes).expect("events are UTF-8")
}
