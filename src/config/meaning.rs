//! From the configuration as written to the configuration as meant: every key is taken out, checked and turned
//! into its type; what is left over nobody knows. All faults are found at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::environment::Environment;
use super::error::{Fault, Origin};
use super::name::TableName;
use super::units::{parse_duration, parse_size};
use super::written::{Entry, TABLES, Value, Written};
use super::{
    BatchLimits, Config, Header, OnConflict, Rebuild, Retry, Run, Sink, SinkKind, Source, Store, Table, TablePattern, source, tls,
};
use crate::postgres::tls::{TlsError, certificates, private_key};
use crate::telemetry::Chain;

/// Keys of capabilities that this version does not have, and the value that means "without it". Any other value is
/// refused: a setting that does nothing is a lie.
const NOT_IN_THIS_VERSION: [(&str, &[&str]); 6] = [
    ("source.wal_budget", &["none"]),
    ("source.catch_up", &["false"]),
    ("rebuild.index", &["local"]),
    ("rebuild.connections", &["1"]),
    ("rebuild.bytes_per_second", &["none"]),
    ("admin.listen", &[""]),
];

/// Keys that may be set, for "did you mean".
const KEYS: [&str; 60] = [
    "stream",
    "source.url",
    "source.password_file",
    "source.slot",
    "source.publication",
    "source.tables",
    "source.create",
    "source.failover",
    "source.wal_budget",
    "source.nudge",
    "source.connect_timeout",
    "source.silence_timeout",
    "source.tls",
    "source.tls_ca",
    "source.tls_cert",
    "source.tls_key",
    "source.channel_binding",
    "sink.kind",
    "sink.topic_prefix",
    "sink.event_bytes_max",
    "sink.headers",
    "sink.grace",
    "sink.oversize",
    "sink.kafka.brokers",
    "sink.kafka.partitions",
    "sink.kafka.replication",
    "sink.kafka.transaction_timeout",
    "sink.kafka.password_file",
    "sink.kafka.client",
    "sink.file.directory",
    "sink.file.segment_bytes",
    "batch.bytes",
    "batch.events",
    "batch.delay",
    "batch.transaction_bytes_max",
    "store.directory",
    "store.dedup_window",
    "format.bigint",
    "format.json",
    "format.transactions",
    "format.decimal",
    "format.time",
    "format.binary",
    "format.interval",
    "format.hstore",
    "format.toast",
    "format.unavailable_value",
    "format.tombstones",
    "format.skipped_operations",
    "rebuild.automatic",
    "rebuild.max_per_hour",
    "rebuild.chunk_bytes",
    "rebuild.on_conflict",
    "retry.backoff_min",
    "retry.backoff_max",
    "retry.total",
    "retry.start",
    "run.shutdown_timeout",
    "table",
    "format.style",
];

const MIB: u64 = 1 << 20;

/// Takes keys out and gathers faults.
pub(super) struct Taking<'a> {
    pub(super) keys: BTreeMap<String, Entry>,
    faults: Vec<Fault>,
    nowhere: Origin,
    environment: &'a Environment,
}

/// The meaning of `written`, with environment and settings laid over it.
///
/// # Errors
/// Every fault found.
pub(super) fn config(
    mut written: Written,
    settings: &[String],
    path: &Arc<str>,
    folder: &Path,
    environment: &Environment,
) -> Result<Config, Vec<Fault>> {
    let mut faults = Vec::new();
    for (variable, value) in environment.variables.iter().filter(|(name, _)| name.starts_with("WALGATE__")) {
        let key = variable.trim_start_matches("WALGATE__").to_lowercase().replace("__", ".");
        let origin = Origin::Environment { variable: variable.clone() };
        written.keys.insert(key, Entry { origin, value: Value::Untyped(value.clone()) });
    }
    for setting in settings {
        match setting.split_once('=') {
            Some((key, value)) => {
                written.keys.insert(key.trim().to_owned(), Entry { origin: Origin::Setting, value: Value::Untyped(value.to_owned()) });
            }
            None => faults.push(Fault {
                origin: Origin::Setting,
                key: None,
                value: Some(setting.clone()),
                why: format!("`{setting}` is no setting: write `--set key=value`"),
            }),
        }
    }
    let mut taking = Taking { keys: written.keys, faults, nowhere: Origin::Nowhere { path: Arc::clone(path) }, environment };
    let meant = taking.config(folder, written.tables);
    taking.refuse_what_is_left();
    match meant {
        Some(config) if taking.faults.is_empty() => Ok(config),
        _ => Err(taking.faults),
    }
}

impl Taking<'_> {
    fn config(&mut self, folder: &Path, tables: Vec<(Origin, BTreeMap<String, Entry>)>) -> Option<Config> {
        let stream = self.checked("stream", None, |text| {
            is_name(text, 50).then(|| text.to_owned()).ok_or("has to be 1 to 50 of the characters a-z, 0-9 and _".to_owned())
        })?;
        let default_name = format!("walgate_{stream}");
        let slot = self.checked("source.slot", Some(&default_name), |text| {
            is_name(text, 63)
                .then(|| text.to_owned())
                .ok_or("has to be 1 to 63 of the characters a-z, 0-9 and _ (PostgreSQL's rule for slots)".to_owned())
        });
        let publication = self.checked("source.publication", Some(&default_name), |text| {
            ((1..=63).contains(&text.len()) && !text.contains('\0'))
                .then(|| text.to_owned())
                .ok_or("has to be 1 to 63 bytes long".to_owned())
        });
        self.refuse_what_is_not_there();
        let password_file = self.password_file(folder)?;
        let environment = self.environment;
        let tls = self.tls(folder)?;
        let postgres =
            self.checked("source.url", Some("postgresql://"), |url| source::connection(url, password_file.as_deref(), &tls, environment));
        let patterns = self.list("source.tables", |text| TablePattern::from_str(text).map_err(|error| error.to_string()));
        let topic_prefix = self.checked("sink.topic_prefix", Some(&stream), |text| {
            let fits = (1..=100).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
                && !text.starts_with('.');
            fits.then(|| text.to_owned())
                .ok_or("has to be 1 to 100 of the characters A-Z a-z 0-9 . _ - and not begin with a dot".to_owned())
        });
        let file = SinkKind::File {
            directory: self.path("sink.file.directory", "events", folder)?,
            segment_bytes: self.size("sink.file.segment_bytes", 64 * MIB, 1024, u64::MAX)?,
        };
        let kind = self.checked("sink.kind", Some("file"), |text| match text {
            "file" => Ok(Some(file.clone())),
            "stdout" => Ok(Some(SinkKind::Stdout)),
            "null" => Ok(Some(SinkKind::Null)),
            "kafka" => Ok(None),
            _ => Err("has to be `kafka`, `file`, `stdout` or `null`".to_owned()),
        })?;
        let kafka = self.kafka(folder, kind.is_none())?;
        let kind = kind.unwrap_or_else(|| SinkKind::Kafka(Box::new(kafka)));
        let source = Source {
            postgres: postgres?,
            slot: slot?,
            publication: publication?,
            tables: patterns,
            create: self.boolean("source.create", true)?,
            failover: self.boolean("source.failover", false)?,
            nudge: self.boolean("source.nudge", true)?,
            connect_timeout: self.duration("source.connect_timeout", Duration::from_secs(10))?,
            silence_timeout: self.duration("source.silence_timeout", Duration::from_mins(1))?,
        };
        let mut headers = self.list("sink.headers", |text| match text {
            "id" => Ok(Header::Id),
            "order" => Ok(Header::Order),
            _ => Err("has to be `id` or `order`".to_owned()),
        });
        if !headers.contains(&Header::Id) {
            headers.insert(0, Header::Id);
        }
        let sink = Sink {
            kind,
            topic_prefix: topic_prefix?,
            event_bytes_max: self.size("sink.event_bytes_max", 64 * MIB, 1024, 1 << 31)?,
            headers,
            grace: self.checked("sink.grace", Some("30s"), |text| match parse_duration(text) {
                Ok(grace) if grace < Duration::from_secs(1) => Err("has to be at least 1s: a commit takes its time".to_owned()),
                parsed => parsed.map_err(|error| error.to_string()),
            })?,
        };
        let batch = BatchLimits {
            bytes: self.size("batch.bytes", 8 * MIB, 1, 1 << 30)?,
            events: self.size("batch.events", 100_000, 1, 10_000_000)?,
            delay: self.duration("batch.delay", Duration::ZERO)?,
            transaction_bytes_max: self.size("batch.transaction_bytes_max", 16 * MIB, 1024, 1 << 32)?,
        };
        let store = self.store(folder, &sink)?;
        let format = self.format()?;
        let rebuild = Rebuild {
            automatic: self.boolean("rebuild.automatic", true)?,
            max_per_hour: self.checked("rebuild.max_per_hour", Some("3"), |text| {
                text.parse().ok().filter(|number| *number <= 1_000).ok_or_else(|| "has to be a number from 0 to 1000".to_owned())
            })?,
            chunk_bytes: self.size("rebuild.chunk_bytes", 8 * MIB, 8192, 1 << 30)?,
            on_conflict: self.checked("rebuild.on_conflict", Some("rebuild"), |text| match text {
                "rebuild" => Ok(OnConflict::Rebuild),
                "stop" => Ok(OnConflict::Stop),
                _ => Err("has to be `rebuild` or `stop`".to_owned()),
            })?,
        };
        let retry = Retry {
            backoff_min: self.duration("retry.backoff_min", Duration::from_millis(200))?,
            backoff_max: self.duration("retry.backoff_max", Duration::from_secs(15))?,
            total: self.duration("retry.total", Duration::from_hours(24))?,
            start: self.duration("retry.start", Duration::from_mins(10))?,
        };
        let run = Run { shutdown_timeout: self.duration("run.shutdown_timeout", Duration::from_secs(30))? };
        let tables: Vec<Table> = tables.into_iter().filter_map(|(origin, entries)| self.table(origin, entries)).collect();
        self.no_table_twice(&tables);
        Some(Config { stream, source, sink, batch, store, format, rebuild, tables, retry, run })
    }

    #[expect(clippy::option_option, reason = "a fault, or nothing written")]
    fn password_file(&mut self, folder: &Path) -> Option<Option<PathBuf>> {
        self.checked("source.password_file", Some(""), |text| {
            let path = (!text.is_empty()).then(|| folder.join(text));
            // Read again at each connection; here so that the fault is told with its place.
            path.as_deref().map(super::secret::password_of_file).transpose().map_err(|error| error.to_string())?;
            Ok(path)
        })
    }

    fn no_table_twice(&mut self, tables: &[Table]) {
        for (number, table) in tables.iter().enumerate() {
            if tables.iter().take(number).any(|other| (&other.schema, &other.name) == (&table.schema, &table.name)) {
                self.fault("table", None, format!("names `{}.{}` twice", table.schema, table.name));
            }
        }
    }

    fn store(&mut self, folder: &Path, sink: &Sink) -> Option<Store> {
        let directory = self.path("store.directory", "state", folder)?;
        if matches!(&sink.kind, SinkKind::File { directory: events, .. } if *events == directory) {
            self.fault("store.directory", None, "is the folder of the events, too: each wants one of its own".to_owned());
        }
        Some(Store { directory, dedup_window: self.duration("store.dedup_window", Duration::from_hours(24))? })
    }

    fn tls(&mut self, folder: &Path) -> Option<tls::Keys> {
        Some(tls::Keys {
            mode: self.written("source.tls", tls::Mode::from_str)?,
            ca: self.file("source.tls_ca", folder, certificates)?,
            certificate: self.file("source.tls_cert", folder, certificates)?,
            key: self.file("source.tls_key", folder, private_key)?,
            channel_binding: self.written("source.channel_binding", source::parse_channel_binding)?,
        })
    }

    fn table(&mut self, origin: Origin, mut entries: BTreeMap<String, Entry>) -> Option<Table> {
        let mut taking = Taking { keys: std::mem::take(&mut entries), faults: Vec::new(), nowhere: origin, environment: self.environment };
        let name = taking.checked("name", None, |text| TableName::from_str(text).map_err(|error| error.to_string()));
        let load = taking.checked("initial", Some("load"), |text| match text {
            "load" => Ok(true),
            "none" => Ok(false),
            _ => Err("has to be `load` or `none`".to_owned()),
        });
        for (key, entry) in std::mem::take(&mut taking.keys) {
            taking.fault(&key, Some(&entry), "is not a key of a table in this version: `name` and `initial` are".to_owned());
        }
        self.faults.append(&mut taking.faults);
        let name = name?;
        Some(Table { schema: name.schema, name: name.table, load: load? })
    }

    pub(super) fn fault(&mut self, key: &str, entry: Option<&Entry>, why: String) {
        let origin = entry.map_or_else(|| self.nowhere.clone(), |entry| entry.origin.clone());
        // A connection string may hold a password, a client's key be one.
        let is_secret = key == "source.url" || ["pass", "secret", "token"].iter().any(|word| key.contains(word)) && !key.ends_with("_file");
        let value = entry.filter(|_| !is_secret).map(|entry| entry.value.shown());
        self.faults.push(Fault { origin, key: Some(key.to_owned()), value, why });
    }

    /// The text of a key, `${VAR}` replaced.
    fn text(&mut self, key: &str, entry: &Entry) -> Option<String> {
        let text = match &entry.value {
            Value::Text(text) | Value::Untyped(text) | Value::Integer(text) => text.clone(),
            Value::Boolean(boolean) => boolean.to_string(),
            other => {
                let why = format!("is {} where one value is due", other.type_name());
                self.fault(key, Some(entry), why);
                return None;
            }
        };
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else { break };
            let Some(value) = self.environment.variables.get(name) else {
                self.fault(key, Some(entry), format!("needs the environment variable `{name}`, which is not set"));
                return None;
            };
            replaced.push_str(before);
            replaced.push_str(value);
            rest = after;
        }
        replaced.push_str(rest);
        Some(replaced)
    }

    pub(super) fn checked<T>(&mut self, key: &str, default: Option<&str>, check: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let entry = self.keys.remove(key);
        let text = match (&entry, default) {
            (Some(entry), _) => self.text(key, entry)?,
            (None, Some(default)) => default.to_owned(),
            (None, None) => {
                self.fault(key, None, "is missing".to_owned());
                return None;
            }
        };
        check(&text).map_err(|why| self.fault(key, entry.as_ref(), why)).ok()
    }

    /// As [`Taking::checked`], for a key whose default depends on others: inside, `None` where it is not written or empty.
    #[expect(clippy::option_option, reason = "outside, `None` is a fault, as for every key")]
    fn written<T>(&mut self, key: &str, check: impl FnOnce(&str) -> Result<T, String>) -> Option<Option<T>> {
        self.checked(key, Some(""), |text| if text.is_empty() { Ok(None) } else { check(text).map(Some) })
    }

    /// A file that `read` can read.
    #[expect(clippy::option_option, reason = "as `written`")]
    fn file<T>(&mut self, key: &str, folder: &Path, read: impl FnOnce(&Path) -> Result<T, TlsError>) -> Option<Option<PathBuf>> {
        self.written(key, |text| {
            let path = folder.join(text);
            read(&path).map_err(|error| Chain(&error).to_string())?;
            Ok(path)
        })
    }

    pub(super) fn list<T>(&mut self, key: &str, check: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let Some(entry) = self.keys.remove(key) else { return Vec::new() };
        let texts: Vec<String> = match &entry.value {
            Value::List(values) => {
                values.iter().map(|value| if let Value::Text(text) = value { text.clone() } else { value.shown() }).collect()
            }
            Value::Text(text) | Value::Untyped(text) => {
                text.split(',').map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect()
            }
            other => {
                let why = format!("is {} where a list is due", other.type_name());
                self.fault(key, Some(&entry), why);
                return Vec::new();
            }
        };
        texts.iter().filter_map(|text| check(text).map_err(|why| self.fault(key, Some(&entry), format!("`{text}` {why}"))).ok()).collect()
    }

    fn size(&mut self, key: &str, default: u64, least: u64, most: u64) -> Option<u64> {
        self.checked(key, Some(&default.to_string()), |text| {
            let size = parse_size(text).map_err(|error| error.to_string())?;
            (least..=most).contains(&size).then_some(size).ok_or_else(|| format!("has to lie between {least} and {most}"))
        })
    }

    pub(super) fn duration(&mut self, key: &str, default: Duration) -> Option<Duration> {
        self.checked(key, Some(&format!("{}ms", default.as_millis())), |text| parse_duration(text).map_err(|error| error.to_string()))
    }

    pub(super) fn boolean(&mut self, key: &str, default: bool) -> Option<bool> {
        self.checked(key, Some(&default.to_string()), |text| text.parse().map_err(|_| "has to be `true` or `false`".to_owned()))
    }

    fn path(&mut self, key: &str, default: &str, folder: &Path) -> Option<PathBuf> {
        self.checked(
            key,
            Some(default),
            |text| if text.is_empty() { Err("is empty: name a folder".to_owned()) } else { Ok(folder.join(text)) },
        )
    }

    fn refuse_what_is_not_there(&mut self) {
        for (key, without) in NOT_IN_THIS_VERSION {
            if let Some(entry) = self.keys.remove(key)
                && let Some(text) = self.text(key, &entry)
                && !without.contains(&text.as_str())
            {
                self.fault(key, Some(&entry), format!("is not in this version: only `{}` is", without.join("` or `")));
            }
        }
    }

    fn refuse_what_is_left(&mut self) {
        // A key that is known is left only where a fault ended the reading before it.
        for (key, entry) in std::mem::take(&mut self.keys).into_iter().filter(|(key, _)| key == TABLES || !KEYS.contains(&key.as_str())) {
            let why = if key.starts_with("admin.") || key == "source.catch_up_above" {
                "belongs to a capability that this version does not have".to_owned()
            } else if key == TABLES {
                "is written as `[[table]]`, once for each table".to_owned()
            } else {
                match KEYS.iter().map(|known| (distance(known, &key), known)).min() {
                    Some((1..=3, known)) => format!("is not a key: did you mean `{known}`?"),
                    _ => "is not a key".to_owned(),
                }
            };
            self.fault(&key, Some(&entry), why);
        }
    }
}

fn is_name(text: &str, length_max: usize) -> bool {
    (1..=length_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Insertions, deletions and replacements between two texts.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<u8> = other.bytes().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, byte) in one.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (above, of) in row.iter().skip(1).zip(&other) {
            left = (diagonal + usize::from(byte != *of)).min(left + 1).min(above + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::written;

    fn load(text: &str, settings: &[&str]) -> Result<Config, Vec<String>> {
        let path: Arc<str> = Arc::from("c.toml");
        let (written, faults) = written::parse(&path, text.as_bytes());
        assert!(faults.is_empty(), "{faults:?}");
        let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
        let environment = Environment {
            user: Some("me".to_owned()),
            variables: [("SLOT".to_owned(), "from_env".to_owned())].into(),
            ..Environment::default()
        };
        config(written, &settings, &path, Path::new("/etc/walgate"), &environment)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_not_written_has_its_default() {
        let config = load("stream = \"shop\"", &[]).unwrap();
        assert_eq!((config.source.slot.as_str(), config.source.publication.as_str()), ("walgate_shop", "walgate_shop"));
        assert_eq!(config.sink.topic_prefix, "shop");
        assert_eq!(config.sink.kind, SinkKind::File { directory: "/etc/walgate/events".into(), segment_bytes: 64 << 20 });
        assert_eq!(config.sink.headers, [Header::Id]);
        assert!(config.rebuild.automatic);
    }

    #[test]
    fn settings_go_before_the_file_and_variables_are_replaced() {
        let text = "stream = \"shop\"\n[source]\nslot = \"${SLOT}\"\n[rebuild]\nchunk_bytes = \"64KiB\"\n";
        assert_eq!(load(text, &[]).unwrap().source.slot, "from_env");
        assert_eq!(load(text, &["source.slot=mine", "rebuild.automatic=false"]).unwrap().source.slot, "mine");
        assert_eq!(load(text, &[]).unwrap().rebuild.chunk_bytes, 65_536);
    }

    #[test]
    fn every_fault_is_named_with_line_key_value_and_remedy() {
        let check = |text: &str, expect: &[&str]| assert_eq!(load(text, &[]).unwrap_err(), expect, "{text}");
        check("", &["c.toml: `stream` is missing"]);
        check("stream = \"Shop\"", &["c.toml:1: `stream = \"Shop\"` has to be 1 to 50 of the characters a-z, 0-9 and _"]);
        check("stream = \"s\"\nstraem = 1", &["c.toml:2: `straem = 1` is not a key: did you mean `stream`?"]);
        check("stream = \"s\"\n[sink]\nkind = \"kafka\"", &["c.toml: `sink.kafka.brokers` is missing"]);
        check(
            "stream = \"s\"\n[sink.kafka]\nclient = { acks = 1, \"max.in.flight\" = 6 }",
            &[
                "c.toml:3: `sink.kafka.client.\"max.in.flight\" = 6` has to be 1 to 5: with more requests at once records may change their order",
                "c.toml:3: `sink.kafka.client.acks = 1` is not yours to set: a commit that one replica forgets is none: it is always `all`",
            ],
        );
        check(
            "stream = \"s\"\n[sink]\noversize = \"dead_letter\"",
            &["c.toml:3: `sink.oversize = \"dead_letter\"` is for `sink.kind = \"kafka\"`: other sinks refuse no event"],
        );
        check("stream = \"s\"\n[format]\nstyle = \"avro\"", &["c.toml:3: `format.style = \"avro\"` has to be `plain` or `debezium`"]);
        check(
            "stream = \"s\"\n[source]\nslot = \"${NOPE}\"",
            &["c.toml:3: `source.slot = \"${NOPE}\"` needs the environment variable `NOPE`, which is not set"],
        );
        check(
            "stream = \"s\"\n[run]\nshutdown_timeout = 30",
            &["c.toml:3: `run.shutdown_timeout = 30` has no unit: write `30s` for seconds or `30ms` for milliseconds"],
        );
        check(
            "stream = \"s\"\n[[table]]\nname = \"orders\"",
            &["c.toml:3: `name = \"orders\"` has no schema: write `public.orders` if that is the one meant"],
        );
    }

    #[test]
    fn the_file_that_comes_with_the_program_is_right_and_shows_the_defaults() {
        let shipped = include_str!("../../consumer.toml");
        let uncommented: String = shipped
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(key)
                    if key.starts_with("[[")
                        || key
                            .split_once(" = ")
                            .is_some_and(|(name, _)| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')) =>
                {
                    key
                }
                _ => line,
            })
            .filter(|line| !line.starts_with("password_file"))
            .fold(String::new(), |text, line| text + line + "\n");
        let (shown, default) = (load(&uncommented, &[]).unwrap(), load(shipped, &[]).unwrap());
        assert_eq!(shown.tables.len(), 1);
        let but_tables = |mut config: Config| {
            config.tables.clear();
            format!("{config:?}")
        };
        assert_eq!(but_tables(shown), but_tables(default));
    }

    #[test]
    fn a_fault_is_not_blamed_on_keys_that_were_not_read_because_of_it() {
        let faults = load("stream = \"s\"\n[store]\ndirectory = \"x\"\n[sink]\nkind = \"nosuch\"", &[]).unwrap_err();
        assert_eq!(faults, ["c.toml:5: `sink.kind = \"nosuch\"` has to be `kafka`, `file`, `stdout` or `null`"]);
    }

    #[test]
    fn keys_of_the_client_pass_through_and_are_not_shown() {
        let text = "stream = \"s\"\n[sink]\nkind = \"kafka\"\n[sink.kafka]\nbrokers = \"b:9092\"\n[sink.kafka.client]\n\
                    compression.codec = \"zstd\"\n\"sasl.password\" = \"${SLOT}\"\nlinger.ms = 3\n";
        let config = load(text, &["sink.kafka.client.sasl.username=me", "sink.kafka.topic_config.retention.ms=-1"]).unwrap();
        assert!(!format!("{config:?}").contains("from_env"));
        let SinkKind::Kafka(kafka) = config.sink.kind else { panic!("another sink") };
        let written =
            |keys: &BTreeMap<String, String>| keys.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        assert_eq!(written(&kafka.client.0), "compression.codec=zstd linger.ms=3 sasl.password=from_env sasl.username=me");
        assert_eq!(written(&kafka.topic_config), "cleanup.policy=compact retention.ms=-1");
        assert_eq!((kafka.partitions, kafka.replication, kafka.brokers.as_str()), (6, 3, "b:9092"));
    }

    #[test]
    fn a_password_in_the_url_is_never_shown() {
        let faults = load("stream = \"s\"\n[source]\nurl = \"postgresql://w:hunter2@db/x\"", &[]).unwrap_err();
        assert!(!faults.concat().contains("hunter2"), "{faults:?}");
    }
}
