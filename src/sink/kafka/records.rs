//! The progress topic: `<prefix>.__progress`, one partition, compacted. What a transaction changes of these records is
//! part of it, and none of them grows with the number of tables or rows:
//!
//! ```text
//! stream          {"version":1,"writer":"<instance>","progress":{…}}   how far the stream is, and who writes it
//! table:<topic>   {"topic":…}                                          the journal of a table
//! ends:<topic>    {"partitions":6,"ends":[…]}                          where the topic ended before the transaction
//! ```
//!
//! `progress` is null where an instance has claimed the stream and delivered nothing yet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode as Code;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::progress::{InstanceId, Progress};
use crate::rebuild::journal::TableJournal;
use crate::sink::SinkError;
use crate::sink::kafka::client::Clients;
use crate::sink::kafka::fault::KafkaFault;
use crate::sink::kafka::reports::Reports;
use crate::sink::kafka::waiting::Waiting;

/// The version of [`StreamRecord`] that this program writes.
pub(super) const RECORD_VERSION: u32 = 1;
pub(super) const STREAM_KEY: &str = "stream";
/// Between two looks at a topic that an open transaction holds.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// For one answer of a broker.
const ANSWER: Duration = Duration::from_secs(10);
/// Brokers look for transactions that are too old from time to time (`transaction.abort.timed.out.transaction.cleanup.interval.ms`,
/// 10 s); and some time for themselves.
const CLEANUP: Duration = Duration::from_secs(15);

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamRecord {
    /// [`RECORD_VERSION`].
    pub(super) version: u32,
    /// The process that wrote it.
    pub(super) writer: InstanceId,
    pub(super) progress: Option<Progress>,
}

/// Where a topic ended at least, by partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndsRecord {
    /// How many partitions it has: a key's partition depends on it. Zero: not known yet.
    pub(super) partitions: i32,
    /// The offset after the last record known, zero where none is.
    pub(super) ends: Vec<i64>,
}

/// What the topic holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) stream: Option<StreamRecord>,
    pub(super) tables: BTreeMap<String, TableJournal>,
    pub(super) ends: BTreeMap<String, EndsRecord>,
}

pub(super) fn table_key(topic: &str) -> String {
    format!("table:{topic}")
}

pub(super) fn ends_key(topic: &str) -> String {
    format!("ends:{topic}")
}

/// A record as it is written.
///
/// # Errors
/// It cannot be JSON, which is a fault of the program.
pub(super) fn encoded(record: &impl Serialize) -> Result<Vec<u8>, SinkError> {
    serde_json::to_vec(record).map_err(|error| SinkError::Damaged { path: "a record to be written".to_owned(), why: error.to_string() })
}

/// Reads the topic to its end: the latest committed record of each key. The end is that at the time of the call,
/// and transactions that are open there are waited for: a record behind one is committed and not yet visible.
///
/// # Errors
/// The brokers' answer; a transaction that nobody ends; a record that cannot be understood.
pub(super) fn read(clients: &Clients, looking: &BaseConsumer<Reports>, topic: &str, waiting: &mut Waiting<'_>) -> Result<Found, SinkError> {
    let reading = clients.reading().map_err(|fault| SinkError::kafka("make a client", fault))?;
    let failed = |doing: &'static str| move |error: KafkaError| SinkError::kafka(doing, KafkaFault::new(&error));
    let (_, end) = looking.fetch_watermarks(topic, 0, ANSWER).map_err(failed("find the end of the progress topic"))?;
    let deadline = Instant::now() + CLEANUP + Duration::from_millis(u64::try_from(clients.transaction_timeout_ms()).unwrap_or(u64::MAX));
    loop {
        let (_, stable) = reading.fetch_watermarks(topic, 0, ANSWER).map_err(failed("find the end of the progress topic"))?;
        if stable >= end {
            break;
        }
        if Instant::now() > deadline {
            return Err(SinkError::HeldOpen { topic: topic.to_owned() });
        }
        waiting.see("an open transaction in the progress topic to end", None);
        std::thread::sleep(LOOK_AGAIN);
    }
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_offset(topic, 0, Offset::Beginning).map_err(failed("read the progress topic"))?;
    reading.assign(&partitions).map_err(failed("read the progress topic"))?;
    let mut latest: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
    loop {
        match reading.poll(Duration::from_secs(1)) {
            Some(Ok(message)) => {
                let key = String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned();
                latest.insert(key, message.payload().map(<[u8]>::to_vec));
            }
            // Everything up to the stable end of above, or a later one.
            Some(Err(KafkaError::PartitionEOF(_))) => break,
            // The right to a group is not needed by a reader that joins none; connections come back.
            Some(Err(error)) => {
                let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
                if matches!(code, Code::TopicAuthorizationFailed | Code::UnknownTopicOrPartition | Code::OffsetOutOfRange) {
                    return Err(failed("read the progress topic")(error));
                }
            }
            None => waiting.see("the progress topic to be read", reading.client().context().reported().as_ref()),
        }
        if Instant::now() > deadline {
            let fault = KafkaFault::of_code(Code::OperationTimedOut, "the brokers did not send the records in time");
            return Err(SinkError::kafka("read the progress topic", fault.reported(reading.client().context().reported())));
        }
    }
    found(topic, latest)
}

fn found(topic: &str, latest: BTreeMap<String, Option<Vec<u8>>>) -> Result<Found, SinkError> {
    let mut found = Found::default();
    for (key, value) in latest {
        let Some(value) = value else { continue };
        if key == STREAM_KEY {
            found.stream = Some(parsed(topic, &key, &value)?);
        } else if let Some(of) = key.strip_prefix("table:") {
            found.tables.insert(of.to_owned(), parsed(topic, &key, &value)?);
        } else if let Some(of) = key.strip_prefix("ends:") {
            found.ends.insert(of.to_owned(), parsed(topic, &key, &value)?);
        } else {
            return Err(SinkError::Damaged {
                path: topic.to_owned(),
                why: format!("it has a record with the key `{key}`, which is none of ours"),
            });
        }
    }
    Ok(found)
}

fn parsed<T: DeserializeOwned>(topic: &str, key: &str, value: &[u8]) -> Result<T, SinkError> {
    let version = |value: &[u8]| serde_json::from_slice::<serde_json::Value>(value).ok()?.get("version")?.as_u64();
    serde_json::from_slice(value).map_err(|error| SinkError::Damaged {
        path: topic.to_owned(),
        why: match version(value) {
            Some(found) if found != u64::from(RECORD_VERSION) => {
                format!("the record `{key}` has version {found}, this program reads version {RECORD_VERSION}")
            }
            _ => format!("the record `{key}`: {error}"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::example::{progress, table};

    fn bytes(record: &impl Serialize) -> Vec<u8> {
        encoded(record).unwrap()
    }

    #[test]
    fn what_is_written_is_found_by_its_key() {
        let stream = StreamRecord { version: RECORD_VERSION, writer: InstanceId::random().unwrap(), progress: Some(progress(7)) };
        let ends = EndsRecord { partitions: 2, ends: vec![5, 0] };
        let journal = table("shop.public.a", 3);
        let latest = [
            (STREAM_KEY.to_owned(), Some(bytes(&stream))),
            (table_key("shop.public.a"), Some(bytes(&journal))),
            (ends_key("shop.public.a"), Some(bytes(&ends))),
            (ends_key("shop.public.gone"), None),
        ];
        let expect = Found {
            stream: Some(stream),
            tables: [("shop.public.a".to_owned(), journal)].into(),
            ends: [("shop.public.a".to_owned(), ends)].into(),
        };
        assert_eq!(found("shop.__progress", latest.into()).unwrap(), expect);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let check = |key: &str, value: &str, expect: &str| {
            let error = found("p", [(key.to_owned(), Some(value.as_bytes().to_vec()))].into()).unwrap_err();
            assert_eq!(error.to_string(), expect);
        };
        check("other", "{}", "`p` cannot be understood: it has a record with the key `other`, which is none of ours");
        check("stream", r#"{"version":2}"#, "`p` cannot be understood: the record `stream` has version 2, this program reads version 1");
    }
}
