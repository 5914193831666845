//! One transactional producer. It is disposable: whoever is in doubt about it makes another, whose initialisation
//! aborts what this one left open and shuts it out.
//!
//! The client library repeats a commit request by itself when its answer is late, and the late one can commit a half of
//! the *next* transaction. So a producer whose connections were in trouble, or whose commit took as long as a repetition
//! does, is not used again, even though everything it said was well: see [`Producer::is_stale`].

use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseRecord, Producer as _, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::sink::kafka::client::{BATCH_BYTES, Clients};
use crate::sink::kafka::fault::{KafkaFault, Verdict};
use crate::sink::kafka::reports::{Reports, Spans};
use crate::sink::kafka::topics::Topics;
use crate::sink::kafka::waiting::Waiting;

/// Time of one call that is repeated while it runs out of it: between two looks at what is to be shown.
const CALL: Duration = Duration::from_secs(1);
/// Beyond the transaction's own time-out: nothing that is still under way by then comes to a good end.
const MARGIN: Duration = Duration::from_secs(10);
/// How long a refusal to let us in has to last before it is believed: brokers that start refuse as well.
const REFUSED: Duration = Duration::from_secs(5);
/// The reports are in, and the library is about to forget the last records.
const FORGETTING: Duration = Duration::from_micros(50);

pub(super) struct Producer {
    inner: ThreadedProducer<Reports>,
    socket_timeout: Duration,
    /// From the begin of a transaction to the last moment at which its end is waited for.
    patience: Duration,
    /// The bound of a batch that it was made with, in bytes.
    batch_bytes_max: u64,
    /// The greatest record that it takes, in bytes.
    record_bytes_max: u64,
    /// Records of the present transaction that the library took.
    accepted: u64,
    begun: Instant,
    /// Its last commit took so long that the request may have been repeated.
    was_slow: bool,
}

/// A record to be produced.
pub(super) struct Sent<'a> {
    /// Of the topic among those that this sink knows.
    pub number: usize,
    pub topic: &'a str,
    pub partition: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Option<OwnedHeaders>,
}

impl Producer {
    /// Not initialised yet.
    ///
    /// # Errors
    /// The settings are refused.
    pub(super) fn new(clients: &Clients, batch_bytes_max: u64, record_bytes_max: u64) -> Result<Self, KafkaFault> {
        let millis = |millis: u128| Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        Ok(Self {
            inner: clients.producer(batch_bytes_max, record_bytes_max)?,
            socket_timeout: millis(clients.socket_timeout_ms()),
            patience: millis(clients.transaction_timeout_ms()) + MARGIN,
            batch_bytes_max: batch_bytes_max.min(BATCH_BYTES),
            record_bytes_max,
            accepted: 0,
            begun: Instant::now(),
            was_slow: false,
        })
    }

    /// Aborts what an earlier producer of the same id left open, and shuts it out. `limit`: how long silence is borne.
    ///
    /// # Errors
    /// It is refused, or the limit has passed.
    pub(super) fn initialise(&self, limit: Duration, waiting: &mut Waiting<'_>) -> Result<(), KafkaFault> {
        self.repeat(limit, waiting, || self.inner.init_transactions(CALL))?;
        self.reports().forget_trouble();
        Ok(())
    }

    /// # Errors
    /// The producer is of no use any more.
    pub(super) fn begin(&mut self) -> Result<(), KafkaFault> {
        self.accepted = 0;
        self.begun = Instant::now();
        self.reports().begin();
        self.inner.begin_transaction().map_err(|error| self.fault(&error))
    }

    /// # Errors
    /// The record is refused, or an earlier one could not be delivered: this transaction must not be committed then.
    pub(super) fn send(&mut self, sent: Sent<'_>, waiting: &mut Waiting<'_>) -> Result<(), KafkaFault> {
        let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(sent.topic, sent.number).partition(sent.partition);
        record.key = sent.key;
        record.payload = sent.value;
        record.headers = sent.headers;
        loop {
            match self.inner.send(record) {
                Ok(()) => {
                    self.accepted += 1;
                    return Ok(());
                }
                Err((KafkaError::MessageProduction(Code::QueueFull), refused)) => {
                    record = refused;
                    self.wait_a_little(Duration::from_millis(5), waiting)?;
                }
                Err((error, _)) => return Err(self.fault(&error)),
            }
        }
    }

    /// Waits until every record is known to be delivered; gives where they are.
    ///
    /// # Errors
    /// One is not: this transaction must not be committed then.
    pub(super) fn delivered(&mut self, waiting: &mut Waiting<'_>) -> Result<Spans, KafkaFault> {
        while !self.wait_a_little(Duration::from_millis(200), waiting)? {}
        while self.inner.in_flight_count() > 0 {
            std::thread::sleep(FORGETTING);
            if self.begun.elapsed() > self.patience {
                return Err(self.late());
            }
        }
        crate::fault::point("sink.kafka.delivered");
        Ok(self.reports().spans())
    }

    /// Commits what is delivered: the library would commit as well without records that it refused.
    ///
    /// # Errors
    /// The outcome is not known.
    pub(super) fn commit(&mut self, waiting: &mut Waiting<'_>) -> Result<(), KafkaFault> {
        let called = Instant::now();
        let left = self.patience.saturating_sub(self.begun.elapsed());
        let committed = self.repeat(left, waiting, || self.inner.commit_transaction(CALL));
        self.was_slow = called.elapsed() >= self.socket_timeout;
        committed
    }

    /// Whether a request may still be under way that would commit a part of the next transaction.
    pub(super) fn is_stale(&self) -> bool {
        self.was_slow || self.reports().had_trouble()
    }

    /// Whether every topic takes its batches, and it the records of every topic.
    pub(super) fn suits(&self, topics: &Topics) -> bool {
        let (least, greatest) = topics.bytes_max();
        self.batch_bytes_max <= least && self.record_bytes_max >= greatest
    }

    /// `true`: all that was accepted is delivered.
    fn wait_a_little(&self, time: Duration, waiting: &mut Waiting<'_>) -> Result<bool, KafkaFault> {
        let is_complete = self.reports().wait(self.accepted, time).map_err(|fault| self.cause(fault))?;
        if !is_complete {
            waiting.see("the Kafka brokers to take the events", self.reports().reported().as_ref());
            if self.begun.elapsed() > self.patience {
                return Err(self.late());
            }
        }
        Ok(is_complete)
    }

    fn late(&self) -> KafkaFault {
        KafkaFault::of_code(Code::MessageTimedOut, "the brokers did not take all records in time").reported(self.reports().reported())
    }

    /// The same call again while it is the one to make.
    fn repeat(&self, limit: Duration, waiting: &mut Waiting<'_>, call: impl Fn() -> KafkaResult<()>) -> Result<(), KafkaFault> {
        let begun = Instant::now();
        loop {
            let Err(error) = call() else { return Ok(()) };
            let fault = self.fault(&error);
            let is_refused = !fault.is_silence() && begun.elapsed() >= REFUSED;
            if fault.verdict() != Verdict::Again || begun.elapsed() >= limit || is_refused {
                return Err(fault);
            }
            waiting.see("the Kafka brokers to answer", self.reports().reported().as_ref());
        }
    }

    fn fault(&self, error: &KafkaError) -> KafkaFault {
        self.cause(KafkaFault::new(error).reported(self.reports().reported()))
    }

    /// What came first, where the call only says that something did: a fatal error, or the one that failed the transaction, for
    /// which all its records were purged. No transaction can be begun in that state, and the refusal carries the error.
    fn cause(&self, fault: KafkaFault) -> KafkaFault {
        let reported = |fault: KafkaFault| fault.reported(self.reports().reported());
        if let Some((code, text)) = self.inner.client().fatal_error() {
            return reported(KafkaFault::of_code(code, text));
        }
        if !matches!(fault.code(), Code::PurgeQueue | Code::PurgeInflight) {
            return fault;
        }
        match self.inner.begin_transaction() {
            Err(error) if error.rdkafka_error_code() != Some(Code::State) => reported(KafkaFault::new(&error)),
            _ => fault,
        }
    }

    fn reports(&self) -> &Reports {
        self.inner.client().context()
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("accepted", &self.accepted).field("is_stale", &self.is_stale()).finish_non_exhaustive()
    }
}
