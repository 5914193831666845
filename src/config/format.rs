//! `[format]` as meant: what events look like.

use std::sync::Arc;

use super::meaning::Taking;

/// What stands for a value that the server left out, where nothing else is said.
const UNAVAILABLE: &str = "__debezium_unavailable_value";

/// How changes become events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pub style: Style,
    pub unchanged: Unchanged,
    /// Events are numbered within their transaction, whose begin and end are told in a topic of their own.
    pub transactions: bool,
    /// A delete is followed by a tombstone.
    pub tombstones: bool,
    /// No events are made of these.
    pub skipped: Vec<Operation>,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            style: Style::Plain(Plain::default()),
            unchanged: Unchanged::Omitted,
            transactions: false,
            tombstones: true,
            skipped: Vec::new(),
        }
    }
}

/// What values and images look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As a person expects.
    Plain(Plain),
    /// As Debezium's PostgreSQL connector writes them.
    Debezium(Modes),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain {
    /// `bigint = "string"`: 64-bit integers as JSON strings.
    pub bigint_as_string: bool,
    /// `json = "text"`: JSON as the server's text in a string.
    pub json_as_text: bool,
}

/// The modes of the style `debezium`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    pub decimal: DecimalMode,
    pub time: TimeMode,
    pub binary: BinaryMode,
    pub interval: IntervalMode,
    pub hstore: HstoreMode,
}

/// `decimal.handling.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalMode {
    Precise,
    String,
    Double,
}

/// `time.precision.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMode {
    Adaptive,
    AdaptiveTimeMicros,
    Connect,
    Iso,
    Micros,
    Nanos,
}

/// `binary.handling.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryMode {
    Bytes,
    Base64,
    Base64UrlSafe,
    Hex,
}

/// `interval.handling.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalMode {
    Numeric,
    Iso,
}

/// `hstore.handling.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HstoreMode {
    Json,
    Map,
}

/// A value that an UPDATE left unchanged out of line, so that the log does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// The image does not have the column.
    Omitted,
    /// This stands for it.
    Placeholder(Arc<str>),
}

/// What changes rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Truncate,
}

impl Taking<'_> {
    /// `None`: a fault, which is noted.
    pub(super) fn format(&mut self) -> Option<Format> {
        let is_debezium = self.one_of("format.style", [("plain", false), ("debezium", true)])?;
        if is_debezium {
            self.is_for("plain", &[("format.bigint", "number"), ("format.json", "value")]);
        } else {
            let modes = [
                ("format.decimal", "precise"),
                ("format.time", "adaptive"),
                ("format.binary", "bytes"),
                ("format.interval", "numeric"),
                ("format.hstore", "json"),
            ];
            self.is_for("debezium", &modes);
        }
        let bigint = self.one_of("format.bigint", [("number", false), ("string", true)]);
        let json = self.one_of("format.json", [("value", false), ("text", true)]);
        let modes = self.modes()?;
        let plain = Plain { bigint_as_string: bigint?, json_as_text: json? };
        let style = if is_debezium { Style::Debezium(modes) } else { Style::Plain(plain) };
        let placeholder = self.checked("format.unavailable_value", Some(UNAVAILABLE), |text| {
            if text.is_empty() { Err("is empty: a value could be so too".to_owned()) } else { Ok(Arc::<str>::from(text)) }
        })?;
        let default = if is_debezium { "placeholder" } else { "omit" };
        let unchanged = self.checked("format.toast", Some(default), |text| match text {
            "omit" => Ok(Unchanged::Omitted),
            "placeholder" => Ok(Unchanged::Placeholder(Arc::clone(&placeholder))),
            "reselect" | "stored" => Err("is not in this version: only `omit` and `placeholder` are".to_owned()),
            _ => Err("has to be `omit` or `placeholder`".to_owned()),
        })?;
        let skipped = self.list("format.skipped_operations", |text| match text {
            "c" => Ok(Operation::Create),
            "u" => Ok(Operation::Update),
            "d" => Ok(Operation::Delete),
            "t" => Ok(Operation::Truncate),
            _ => Err("has to be of `c`, `u`, `d` and `t`".to_owned()),
        });
        let transactions = self.boolean("format.transactions", false)?;
        let tombstones = self.boolean("format.tombstones", true)?;
        Some(Format { style, unchanged, transactions, tombstones, skipped })
    }

    fn modes(&mut self) -> Option<Modes> {
        let decimal = [("precise", DecimalMode::Precise), ("string", DecimalMode::String), ("double", DecimalMode::Double)];
        let decimal = self.one_of("format.decimal", decimal);
        let time = self.one_of(
            "format.time",
            [
                ("adaptive", TimeMode::Adaptive),
                ("adaptive_time_microseconds", TimeMode::AdaptiveTimeMicros),
                ("connect", TimeMode::Connect),
                ("isostring", TimeMode::Iso),
                ("microseconds", TimeMode::Micros),
                ("nanoseconds", TimeMode::Nanos),
            ],
        );
        let binary = self.one_of(
            "format.binary",
            [
                ("bytes", BinaryMode::Bytes),
                ("base64", BinaryMode::Base64),
                ("base64-url-safe", BinaryMode::Base64UrlSafe),
                ("hex", BinaryMode::Hex),
            ],
        );
        let interval = self.one_of("format.interval", [("numeric", IntervalMode::Numeric), ("string", IntervalMode::Iso)]);
        let hstore = self.one_of("format.hstore", [("json", HstoreMode::Json), ("map", HstoreMode::Map)]);
        Some(Modes { decimal: decimal?, time: time?, binary: binary?, interval: interval?, hstore: hstore? })
    }

    /// One of some words, the first where none is written.
    fn one_of<T: Copy, const N: usize>(&mut self, key: &str, words: [(&str, T); N]) -> Option<T> {
        let default = words.first().map(|(word, _)| *word);
        self.checked(key, default, |text| {
            let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
            let all = words.map(|(word, _)| format!("`{word}`"));
            let (last, others) = all.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
            found.ok_or_else(|| format!("has to be {} or {last}", others.join(", ")))
        })
    }

    /// Keys that mean something in one style are not taken in the other, but with their defaults.
    fn is_for(&mut self, style: &str, keys: &[(&str, &str)]) {
        for (key, default) in keys {
            let is_other = self.keys.get(*key).is_some_and(|entry| !entry.value.is_text(default));
            if let Some(entry) = self.keys.remove(*key).filter(|_| is_other) {
                self.fault(key, Some(&entry), format!("is for `format.style = \"{style}\"`"));
            }
        }
    }
}
