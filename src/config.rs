//! `consumer.toml`: as written, then as meant. All checking happens in the conversion; what comes out of it
//! can be used without looking twice.

pub mod error;
pub mod format;
pub mod name;
pub mod units;
mod conninfo;
mod environment;
mod kafka;
mod meaning;
pub(crate) mod secret;
mod source;
mod tls;
mod written;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::error::{ConfigError, Faults};
use crate::config::format::Format;

impl Config {
    /// Reads the file, lays environment (`WALGATE__SECTION__KEY`) and settings (`key=value`) over it, and checks all of it.
    ///
    /// # Errors
    /// The file cannot be read; every fault found, each with its place, key, value and remedy.
    pub fn load(path: &Path, settings: &[String]) -> Result<Self, ConfigError> {
        let bytes = std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let shown: Arc<str> = path.display().to_string().into();
        let (written, mut faults) = written::parse(&shown, &bytes);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if faults.is_empty() {
            match meaning::config(written, settings, &shown, folder, &environment::Environment::of_process()) {
                Ok(config) => return Ok(config),
                Err(found) => faults = found,
            }
        }
        Err(Faults::new(faults)
            .map_or(ConfigError::Read { path: path.to_owned(), source: std::io::Error::other("no reason given") }, ConfigError::Faults))
    }
}

/// The configuration as meant.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names slot, publication and progress record: `[a-z0-9_]{1,50}`.
    pub stream: String,
    pub source: Source,
    pub sink: Sink,
    pub batch: BatchLimits,
    pub store: Store,
    pub format: Format,
    pub rebuild: Rebuild,
    /// `[[table]]`, by `schema.table`.
    pub tables: Vec<Table>,
    pub retry: Retry,
    pub run: Run,
}

#[derive(Clone, Debug)]
pub struct Source {
    pub postgres: Address,
    pub slot: String,
    pub publication: String,
    /// `schema.table` or `schema.*`; empty: the publication is left as it is.
    pub tables: Vec<TablePattern>,
    /// Make slot and publication when missing.
    pub create: bool,
    /// 17 and later: the slot is synchronised to standbys.
    pub failover: bool,
    /// May write a 100-byte WAL message when a load waits on an idle server.
    pub nudge: bool,
    pub connect_timeout: Duration,
    /// The network has been silent for this long: the connection is given up.
    pub silence_timeout: Duration,
}

/// Where the source is, who we are there, and how the way there is protected.
#[derive(Clone, Debug)]
pub struct Address {
    /// Hosts, port, user, password, database, channel binding: from the URL, then PG* variables, password and service
    /// files.
    pub postgres: tokio_postgres::Config,
    /// `None`: plain text.
    pub tls: Option<Tls>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub check: ServerCheck,
    /// A file with the authorities that servers' certificates have to come from; `None`: the system's.
    pub ca: Option<PathBuf>,
    pub client: Option<ClientCertificate>,
}

/// What has to be right about the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCheck {
    Nothing,
    /// It comes from an authority that is trusted.
    Chain,
    /// And it is for the host that was asked for.
    ChainAndName,
}

/// Files that show who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Ours, then those between it and an authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePattern {
    pub schema: String,
    /// `None`: every table of the schema.
    pub table: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Sink {
    pub kind: SinkKind,
    /// Topics are `<prefix>.<schema>.<table>`.
    pub topic_prefix: String,
    /// The greatest event, key and value together, in bytes.
    pub event_bytes_max: u64,
    /// Headers of each event, `id` always among them.
    pub headers: Vec<Header>,
    /// A batch is under way for longer than this: the source connection is closed until the sink has answered.
    pub grace: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkKind {
    File { directory: PathBuf, segment_bytes: u64 },
    Kafka(Box<Kafka>),
    Stdout,
    Null,
}

impl SinkKind {
    /// As it is written.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Kafka(_) => "kafka",
            Self::Stdout => "stdout",
            Self::Null => "null",
        }
    }

    /// Whether the topics of tables with a key are compacted, and so take no record without one.
    #[must_use]
    pub fn compacts(&self) -> bool {
        match self {
            Self::Kafka(kafka) => kafka.topic_config.get("cleanup.policy").is_some_and(|policy| policy.contains("compact")),
            Self::File { .. } | Self::Stdout | Self::Null => false,
        }
    }
}

/// `[sink.kafka]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kafka {
    /// `host:port`, separated by commas.
    pub brokers: String,
    /// Of topics that are made.
    pub partitions: i32,
    /// Of topics that are made; -1: the brokers' default.
    pub replication: i32,
    /// Settings of topics that are made.
    pub topic_config: BTreeMap<String, String>,
    /// Keys of librdkafka, those left out that are ours to set.
    pub client: ClientKeys,
    /// A transaction that is open for so long is aborted by the brokers.
    pub transaction_timeout: Duration,
    pub oversize: Oversize,
}

/// By name; there may be secrets among the values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientKeys(pub BTreeMap<String, String>);

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What happens to an event that its topic would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversize {
    /// The service stops, and nothing of the batch is delivered.
    Stop,
    /// Its key and id go to `<prefix>.__dead_letter`, in the same transaction.
    DeadLetter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Id,
    Order,
}

/// When a batch closes.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    pub bytes: u64,
    pub events: u64,
    /// While the sink is idle: how long a batch waits for more.
    pub delay: Duration,
    /// A source transaction larger than this is split and marked.
    pub transaction_bytes_max: u64,
}

#[derive(Clone, Debug)]
pub struct Store {
    pub directory: PathBuf,
    pub dedup_window: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Rebuild {
    pub automatic: bool,
    pub max_per_hour: u32,
    pub chunk_bytes: u64,
    pub on_conflict: OnConflict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    Rebuild,
    Stop,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub schema: String,
    pub name: String,
    /// `initial = "load"`: its rows are read when it is first seen; `"none"`: only later changes are sent.
    pub load: bool,
}

/// A retry budget; the same for source and sink.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// First pause.
    pub backoff_min: Duration,
    /// Longest pause.
    pub backoff_max: Duration,
    /// All attempts together, since the last one that worked.
    pub total: Duration,
    /// The same, while none has worked yet.
    pub start: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub shutdown_timeout: Duration,
}
