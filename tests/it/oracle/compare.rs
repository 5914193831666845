//! Events of the peer and ours, topic by topic, in their order: key, and of the value each field, as it is written.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// What changes from run to run.
const VOLATILE: [&str; 7] = ["ts_ms", "ts_us", "ts_ns", "txId", "lsn", "sequence", "id"];

/// An event as text.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) topic: String,
    pub(super) key: String,
    pub(super) value: String,
}

/// Something that is not alike.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) run: String,
    pub(super) topic: String,
    /// The peer's event or, where it has none, ours.
    pub(super) event: Event,
    /// `key`, `before.v`, `source.schema`, or empty for a whole event.
    pub(super) field: String,
    /// `None`: it is not there.
    pub(super) theirs: Option<String>,
    pub(super) ours: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &Option<String>| text.as_deref().map_or("-".to_owned(), |text| text.chars().take(300).collect());
        let Self { run, topic, field, theirs, ours, event } = self;
        write!(f, "{run} {topic} {} {} {field}\n    theirs: {}\n    ours:   {}", event.key, event.op(), shown(theirs), shown(ours))
    }
}

impl Event {
    /// Of a line as the peer's events are recorded.
    pub(super) fn of_record(line: &str) -> Self {
        let fields = fields(line).expect("a recorded event is an object");
        let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, text)| text.clone()).expect("it has its fields");
        Self { topic: serde_json::from_str(&field("topic")).expect("a topic is text"), key: field("key"), value: field("value") }
    }

    /// Of a line of our file sink.
    pub(super) fn of_line(topic: &str, line: &str) -> Self {
        let fields = fields(line).expect("an event is an object");
        let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, text)| text.clone()).expect("it has its fields");
        Self { topic: topic.to_owned(), key: field("key"), value: field("value") }
    }

    pub(super) fn op(&self) -> String {
        let op = fields(&self.value).and_then(|fields| fields.into_iter().find(|(name, _)| name == "op"));
        op.map_or_else(|| "-".to_owned(), |(_, text)| text.trim_matches('"').to_owned())
    }

    fn is_read(&self) -> bool {
        self.op() == "r"
    }
}

/// Compares all topics. `ours` gives our events of a topic.
pub(super) fn all(run: &str, theirs: &[Event], ours: &dyn Fn(&str) -> Vec<Event>) -> Vec<Difference> {
    let mut topics: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in theirs {
        topics.entry(&event.topic).or_default().push(event);
    }
    let mut found = Vec::new();
    for (topic, theirs) in topics {
        let ours = ours(topic);
        let (mut theirs, mut ours) = (theirs.into_iter().peekable(), ours.iter().peekable());
        let whole = |event: &Event, theirs: Option<&Event>, ours: Option<&Event>| Difference {
            run: run.to_owned(),
            topic: topic.to_owned(),
            event: event.clone(),
            field: String::new(),
            theirs: theirs.map(|event| event.value.clone()),
            ours: ours.map(|event| event.value.clone()),
        };
        loop {
            match (theirs.peek(), ours.peek()) {
                (None, None) => break,
                // Where one side reads more rows than the other, what follows is compared all the same.
                (Some(their), Some(our)) if their.is_read() == our.is_read() => {
                    found.extend(one(run, topic, their, our));
                    theirs.next();
                    ours.next();
                }
                (Some(their), our) if our.is_none() || their.is_read() => {
                    found.push(whole(their, Some(their), None));
                    theirs.next();
                }
                (_, Some(our)) => {
                    found.push(whole(our, None, Some(our)));
                    ours.next();
                }
                (Some(_), None) => unreachable!("it is told above"),
            }
        }
    }
    found
}

fn one(run: &str, topic: &str, theirs: &Event, ours: &Event) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differs = |field: String, theirs_text: Option<String>, ours_text: Option<String>| {
        if theirs_text != ours_text {
            let (run, topic, event) = (run.to_owned(), topic.to_owned(), theirs.clone());
            found.push(Difference { run, topic, event, field, theirs: theirs_text, ours: ours_text });
        }
    };
    let is_transaction = topic.ends_with(".transaction");
    let key = |event: &Event| if is_transaction { None } else { Some(event.key.clone()) };
    differs("key".to_owned(), key(theirs), key(ours));
    inside("", &theirs.value, &ours.value, &mut differs);
    found
}

/// Compares two values field by field: names and their order first.
fn inside(path: &str, theirs: &str, ours: &str, differs: &mut impl FnMut(String, Option<String>, Option<String>)) {
    let is_row = |path: &str| path == "before." || path == "after.";
    match (fields(theirs), fields(ours)) {
        (Some(theirs), Some(ours)) => {
            let names = |fields: &[(String, String)], others: &[(String, String)]| {
                let shared = fields.iter().filter(|(name, _)| others.iter().any(|(other, _)| other == name));
                shared.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",")
            };
            differs(format!("{path}(order)"), Some(names(&theirs, &ours)), Some(names(&ours, &theirs)));
            let all = theirs.iter().chain(ours.iter().filter(|(name, _)| !theirs.iter().any(|(other, _)| other == name)));
            for (name, _) in all {
                let of = |fields: &[(String, String)]| fields.iter().find(|(field, _)| field == name).map(|(_, text)| text.clone());
                let (their, our) = (of(&theirs), of(&ours));
                let inner = format!("{path}{name}");
                let is_volatile = VOLATILE.contains(&name.as_str()) && !is_row(path);
                match (&their, &our) {
                    (Some(their), Some(our)) if is_volatile => {
                        let is_null = |text: &str| (text == "null").to_string();
                        differs(inner, Some(is_null(their)), Some(is_null(our)));
                    }
                    (Some(their), Some(our)) if !is_row(path) => inside(&format!("{inner}."), their, our, differs),
                    _ => differs(inner, their, our),
                }
            }
        }
        _ => differs(path.trim_end_matches('.').to_owned(), Some(theirs.to_owned()), Some(ours.to_owned())),
    }
}

/// The fields of an object in their order, each as it is written; `None` where it is no object.
pub(super) fn fields(text: &str) -> Option<Vec<(String, String)>> {
    struct InOrder;

    impl<'de> Visitor<'de> for InOrder {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                fields.push((name, value.get().to_owned()));
            }
            Ok(fields)
        }
    }

    text.starts_with('{').then(|| serde_json::Deserializer::from_str(text).deserialize_map(InOrder).ok()).flatten()
}
