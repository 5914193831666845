//! What the client library reports by itself: deliveries, errors of connections, and the log lines that tell of a
//! connection in trouble.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::ProducerContext;
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::sink::kafka::fault::KafkaFault;

/// Log facilities that tell of a lost connection and of a request without an answer in time: librdkafka repeats such a
/// request, and the first one may still be under way.
const TROUBLES: [&str; 2] = ["FAIL", "REQTMOUT"];

/// The context of one client.
#[derive(Debug, Default)]
pub(super) struct Reports {
    deliveries: Mutex<Deliveries>,
    /// Told when the last awaited delivery is reported.
    complete: Condvar,
    trouble: AtomicBool,
    reported: Mutex<Option<(Code, String)>>,
    /// Why the last connection failed, in words.
    failure: Mutex<Option<String>>,
}

/// Of the present transaction.
#[derive(Debug, Default)]
struct Deliveries {
    delivered: u64,
    failed: u64,
    failure: Option<KafkaFault>,
    /// How many are waited for; zero while records are still accepted.
    awaited: u64,
    spans: Spans,
}

/// What a transaction wrote, by number of the topic, then by partition.
pub(super) type Spans = Vec<Vec<Span>>;

/// What a transaction wrote to a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: i64,
    /// Exclusive. Zero: nothing was written.
    pub(super) end: i64,
}

impl Reports {
    /// A transaction begins.
    pub(super) fn begin(&self) {
        *self.deliveries() = Deliveries::default();
    }

    /// Waits a while for all of `accepted` to be delivered; `false`: some are not yet.
    ///
    /// # Errors
    /// Why one could not be delivered.
    pub(super) fn wait(&self, accepted: u64, patience: Duration) -> Result<bool, KafkaFault> {
        let mut deliveries = self.deliveries();
        deliveries.awaited = accepted;
        let pending = |deliveries: &mut Deliveries| deliveries.failure.is_none() && deliveries.delivered < deliveries.awaited;
        deliveries = self.complete.wait_timeout_while(deliveries, patience, pending).unwrap_or_else(PoisonError::into_inner).0;
        match &deliveries.failure {
            Some(fault) => Err(fault.clone().reported(self.reported())),
            None => Ok(deliveries.delivered >= accepted),
        }
    }

    /// What the present transaction wrote, as far as its deliveries tell.
    pub(super) fn spans(&self) -> Spans {
        self.deliveries().spans.clone()
    }

    /// Whether a connection was in trouble since it was forgotten.
    pub(super) fn had_trouble(&self) -> bool {
        self.trouble.load(Ordering::Relaxed)
    }

    /// What was before does not count any more.
    pub(super) fn forget_trouble(&self) {
        self.trouble.store(false, Ordering::Relaxed);
    }

    /// The last error of a connection.
    pub(super) fn reported(&self) -> Option<(Code, String)> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An error that was returned. Its code alone, unless [`ClientContext::error`] was told more of it.
    pub(super) fn note(&self, error: &KafkaError) {
        if self.reported().is_some_and(|(code, _)| Some(code) == error.rdkafka_error_code()) {
            return;
        }
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.error(error.clone(), &failure.unwrap_or_else(|| error.to_string()));
    }

    fn deliveries(&self) -> MutexGuard<'_, Deliveries> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deliveries {
    fn delivered(&mut self, topic: usize, partition: i32, offset: i64) {
        self.delivered += 1;
        // A record that a broker had already, of a repeated request, has no offset.
        let (Ok(partition), 0..) = (usize::try_from(partition), offset) else { return };
        if self.spans.len() <= topic {
            self.spans.resize_with(topic + 1, Vec::new);
        }
        let Some(spans) = self.spans.get_mut(topic) else { return };
        if spans.len() <= partition {
            spans.resize(partition + 1, Span::default());
        }
        if let Some(span) = spans.get_mut(partition) {
            let first = if span.end == 0 { offset } else { span.first.min(offset) };
            *span = Span { first, end: span.end.max(offset + 1) };
        }
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        if TROUBLES.contains(&facility) {
            self.trouble.store(true, Ordering::Relaxed);
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.to_owned());
        }
        tracing::debug!(?level, facility, line, "Kafka's client says");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.trouble.store(true, Ordering::Relaxed);
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        tracing::debug!(?code, reason, "Kafka's client reports");
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        // That all are down follows from the reason why each is, which says more.
        if code != Code::AllBrokersDown || reported.is_none() {
            *reported = Some((code, reason.to_owned()));
        }
    }
}

impl ProducerContext for Reports {
    /// The number of the topic.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, topic: usize) {
        let mut deliveries = self.deliveries();
        match result {
            Ok(message) => deliveries.delivered(topic, message.partition(), message.offset()),
            Err((error, message)) => {
                deliveries.failed += 1;
                let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
                // What comes after the first only says that it was purged because of it.
                deliveries.failure.get_or_insert_with(|| KafkaFault::of_code(code, format!("a record of `{}`: {error}", message.topic())));
            }
        }
        if deliveries.delivered + deliveries.failed >= deliveries.awaited {
            self.complete.notify_all();
        }
    }
}

impl ConsumerContext for Reports {}
