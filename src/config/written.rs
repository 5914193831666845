//! The configuration as written: a flat map from dotted key to value, each with the place where it stands.
//! Nothing is judged here but TOML itself; a key that nobody takes out in the conversion is one that nobody knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Fault, Origin};

/// Dots that a key may have. Ours have two; the parser keeps a nested table per dot, and leaves it to us to
/// see that nobody runs it out of stack.
const KEY_DOTS_MAX: usize = 16;

/// The name of the one section that is written many times.
pub(super) const TABLES: &str = "table";

/// A configuration as written.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// By dotted key.
    pub(super) keys: BTreeMap<String, Entry>,
    /// Every section that is opened, also the empty ones.
    pub(super) sections: BTreeMap<String, Origin>,
    /// `[[table]]`, each with the place of its first line.
    pub(super) tables: Vec<(Origin, BTreeMap<String, Entry>)>,
}

/// A value and where it was written.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) origin: Origin,
    pub(super) value: Value,
}

/// A value as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    /// From the command line or the environment: it has the type that is asked for.
    Untyped(String),
    /// In decimal; may be larger than any integer type.
    Integer(String),
    Boolean(bool),
    List(Vec<Value>),
    /// What no key of ours takes: a float, a date, a table.
    Other {
        type_name: &'static str,
        text: String,
    },
}

impl Value {
    pub(super) fn is_text(&self, text: &str) -> bool {
        matches!(self, Self::Text(held) | Self::Untyped(held) if held == text)
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::Untyped(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Boolean(_) => "a boolean",
            Self::List(_) => "a list",
            Self::Other { type_name, .. } => type_name,
        }
    }

    /// As a person would write it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("\"{text}\""),
            Self::Untyped(text) | Self::Integer(text) | Self::Other { text, .. } => text.clone(),
            Self::Boolean(boolean) => boolean.to_string(),
            Self::List(values) => format!("[{}]", values.iter().map(Self::shown).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Reads a file's bytes. What can be read is there even where faults were found, so that one look finds all of them.
pub(super) fn parse(path: &Arc<str>, bytes: &[u8]) -> (Written, Vec<Fault>) {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let lines = Lines::new(bytes);
    let fault = |line: usize, why: String| Fault { origin: Origin::File { path: Arc::clone(path), line }, key: None, value: None, why };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let line = lines.of(error.valid_up_to());
            return (Written::default(), vec![fault(line, "is not UTF-8 here: save the file as UTF-8".to_owned())]);
        }
    };
    if let Some(line) = overlong_key(text) {
        return (Written::default(), vec![fault(line, format!("a key has more than {KEY_DOTS_MAX} dots: is this the right file?"))]);
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    let faults = errors.iter().map(|error| {
        let line = lines.of(error.span().map_or(0, |span| span.start));
        fault(line, format!("is not TOML: {}", error.message()))
    });
    let faults = faults.collect();
    let mut reading = Reading { path, lines, written: Written::default() };
    reading.section("", document.get_ref());
    (reading.written, faults)
}

/// A walk through the parsed document.
struct Reading<'a> {
    path: &'a Arc<str>,
    lines: Lines,
    written: Written,
}

impl Reading<'_> {
    fn section(&mut self, name: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let dotted = if name.is_empty() { plain(key.get_ref()) } else { format!("{name}.{}", plain(key.get_ref())) };
            let origin = self.origin(key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) => {
                    self.written.sections.insert(dotted.clone(), origin);
                    self.section(&dotted, inner);
                }
                DeValue::Array(items) if dotted == TABLES && items.iter().all(|item| item.get_ref().is_table()) => {
                    for item in items {
                        let entries = item.get_ref().as_table().map(|table| self.entries(table)).unwrap_or_default();
                        self.written.tables.push((self.origin(item.span().start), entries));
                    }
                }
                other => {
                    self.written.keys.insert(dotted, Entry { origin, value: Self::value(other) });
                }
            }
        }
    }

    /// The keys of one `[[table]]`; a table inside one of these is a value that no key takes.
    fn entries(&self, table: &DeTable<'_>) -> BTreeMap<String, Entry> {
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let key: &Spanned<std::borrow::Cow<'_, str>> = key;
            (plain(key.get_ref()), Entry { origin: self.origin(key.span().start), value: Self::value(value.get_ref()) })
        };
        table.iter().map(entry).collect()
    }

    fn value(value: &DeValue<'_>) -> Value {
        match value {
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Integer(integer) => match i128::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(number) => Value::Integer(number.to_string()),
                Err(_) => Value::Integer(integer.to_string()),
            },
            DeValue::Boolean(boolean) => Value::Boolean(*boolean),
            DeValue::Array(items) => Value::List(items.iter().map(|item| Self::value(item.get_ref())).collect()),
            DeValue::Float(float) => Value::Other { type_name: "a float", text: float.to_string() },
            DeValue::Datetime(datetime) => Value::Other { type_name: "a date or time", text: datetime.to_string() },
            DeValue::Table(_) => Value::Other { type_name: "a table", text: "{…}".to_owned() },
        }
    }

    fn origin(&self, at: usize) -> Origin {
        Origin::File { path: Arc::clone(self.path), line: self.lines.of(at) }
    }
}

/// A key as it stands in a dotted one: quoted where it has dots of its own.
fn plain(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if bare { key.to_owned() } else { format!("\"{key}\"") }
}

/// Where the lines of a text end, to tell the line of a byte.
struct Lines(Vec<usize>);

impl Lines {
    fn new(bytes: &[u8]) -> Self {
        Self(memchr::memchr_iter(b'\n', bytes).collect())
    }

    /// 1-based.
    fn of(&self, at: usize) -> usize {
        1 + self.0.partition_point(|end| *end < at)
    }
}

/// The first line with a key of too many dots; told by its punctuation alone.
fn overlong_key(text: &str) -> Option<usize> {
    let dots = |piece: &str| piece.split('.').filter(|part| !part.trim().is_empty()).count().saturating_sub(1);
    let overlong = |line: &str| line.split([',', '=', '[', ']', '{', '}', '#']).any(|piece| dots(piece) > KEY_DOTS_MAX);
    text.split('\n').position(overlong).map(|line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Written, Vec<String>) {
        let (written, mut faults) = parse(&Arc::from("c.toml"), bytes);
        faults.sort();
        (written, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_key_has_its_line() {
        let (written, faults) =
            read(b"stream = \"a\"\r\n\r\n[source]\r\nslot = \"b\"\r\nsink.file = { directory = 5 }\r\n[[table]]\r\nname = \"x.y\"\r\n");
        assert_eq!(faults, Vec::<String>::new());
        let lines: Vec<_> = written.keys.iter().map(|(key, entry)| format!("{} {key} {}", entry.origin, entry.value.shown())).collect();
        assert_eq!(
            lines,
            ["c.toml:5 source.sink.file.directory 5", "c.toml:4 source.slot \"b\"", "c.toml:1 stream \"a\""].map(str::to_owned)
        );
        assert_eq!(written.tables.len(), 1);
        assert_eq!(written.tables[0].0.to_string(), "c.toml:6");
    }

    #[test]
    fn every_fault_of_the_text_is_found_at_its_line() {
        let check = |text: &[u8], expect: &[&str]| assert_eq!(read(text).1, expect, "{}", text.escape_ascii());
        check(b"", &[]);
        check(b"\xEF\xBB\xBFstream = \"a\"", &[]);
        check(b"a = 1\nb = \"\xFF\"", &["c.toml:2: is not UTF-8 here: save the file as UTF-8"]);
        check(b"a = 1\n\na = 2\n", &["c.toml:3: is not TOML: duplicate key"]);
        check(
            b"a = \nb = 1\nc = [1,\n",
            &[
                "c.toml:1: is not TOML: string values must be quoted, expected literal string",
                "c.toml:3: is not TOML: unclosed array, expected `]`",
            ],
        );
        check(
            format!("x = 1\n{}a = 1", "a.".repeat(100_000)).as_bytes(),
            &["c.toml:2: a key has more than 16 dots: is this the right file?"],
        );
    }

    #[test]
    fn a_comment_may_have_dots() {
        assert_eq!(overlong_key("# .....................................\nstream = \"a\"\n"), None);
    }

    #[test]
    fn a_key_with_a_dot_of_its_own_is_not_taken_for_another() {
        let (written, _) = read(b"\"source.slot\" = 1");
        assert!(written.keys.contains_key("\"source.slot\""));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes: Vec<u8>) {
            let (_, faults) = parse(&Arc::from("c.toml"), &bytes);
            proptest::prop_assert!(faults.iter().all(|fault| !fault.to_string().is_empty()));
        }

        #[test]
        fn no_text_near_toml_is_a_panic(text in "([a-z]{1,3}|[\\[\\]{}=.,\"'#\n ]|[0-9]{1,3}|true|\\$\\{|\\}){0,40}") {
            let (written, faults) = parse(&Arc::from("c.toml"), text.as_bytes());
            proptest::prop_assert!(faults.len() + written.keys.len() <= text.len() * 4);
        }
    }
}
