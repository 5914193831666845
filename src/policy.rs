//! What follows from an error: one table, each case by name, so that a new error cannot get an answer by default.
//!
//! An error of the source says little: the code of a lost slot is that of a mistyped name, and a slot that was given up
//! ends the connection as any shutdown does. So a session is begun again and looks ([`crate::resume`]); the budget
//! bounds how often. What a session finds after an error, and repeats, is harmless: the sink's record says what was
//! delivered.

use std::time::Duration;

use rdkafka::types::RDKafkaErrorCode;

use crate::config::Retry;
use crate::exit::Exit;
use crate::pipeline::error::SessionError;
use crate::postgres::SourceError;
use crate::postgres::tls::TlsError;
use crate::rebuild::reason::Reason;
use crate::sink::SinkError;
use crate::sink::kafka::fault::{KafkaFault, Verdict};
use crate::store::StoreError;

/// What to do after a session ended with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Begin another session after a pause. When the budget is spent, stop: [`Budget::exit`], [`advice_when_spent`].
    Retry(Budget),
    /// Begin another session and rebuild in it, or stop, as `rebuild.on_conflict` says.
    Rebuild(Reason),
    /// Stop with this status; the text is the operator's next step.
    Stop(Exit, &'static str),
}

/// Whose failures are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    Source,
    Sink,
}

impl Budget {
    /// The status when it is spent.
    #[must_use]
    pub fn exit(self) -> Exit {
        match self {
            Self::Source => Exit::Source,
            Self::Sink => Exit::Sink,
        }
    }
}

/// The table.
#[must_use]
pub fn action(error: &SessionError) -> Action {
    match error {
        SessionError::Source(source) => source_action(source),
        SessionError::Sink(sink) => sink_action(sink),
        SessionError::Store(store) => Action::Stop(Exit::Store, store_advice(store)),
        // A connection may garble once; what comes again at the same place ends with the budget.
        SessionError::Decode(_)
        | SessionError::Row(_)
        | SessionError::Key(_)
        | SessionError::UnknownRelation { .. }
        | SessionError::OutOfTurn { .. }
        | SessionError::SlotChanged
        | SessionError::PublicationReplaced
        | SessionError::PlannedTooOften { .. } => Action::Retry(Budget::Source),
        // A session whose sink blocks ends when it has answered.
        SessionError::SinkBlocks { .. } | SessionError::DeliveryEnded => Action::Retry(Budget::Sink),
        SessionError::Refused(_) => Action::Stop(Exit::Refused, "the refusal says what to do; nothing was dropped and nothing delivered"),
        SessionError::Conflict(conflict) => {
            Action::Rebuild(Reason::Conflict { commit_lsn: conflict.commit_lsn, why: conflict.why.clone() })
        }
        SessionError::EventTooLarge(_) => Action::Stop(Exit::Refused, RAISE_EVENT_BYTES),
        SessionError::KeylessTooLarge { .. } => {
            Action::Stop(Exit::Refused, "give the table a primary key, or set `initial = \"none\"` for it")
        }
        SessionError::SinkGone => Action::Stop(Exit::Sink, "start again: the sink's record tells what was delivered"),
        SessionError::Randomness(_) => Action::Stop(Exit::Store, "look at the system's random source"),
        SessionError::Thread(_) => Action::Stop(Exit::Store, "raise the limits of processes and memory"),
    }
}

const RAISE_EVENT_BYTES: &str = "raise `sink.event_bytes_max`; nothing of the transaction was acknowledged";

fn source_action(error: &SourceError) -> Action {
    match error {
        SourceError::MessageTooLarge { .. } => Action::Stop(Exit::Refused, RAISE_EVENT_BYTES),
        // Servers are restarted, passwords and certificates rotated, rights granted late: all of it may pass.
        SourceError::Connect { .. }
        | SourceError::ConnectTimeout { .. }
        | SourceError::Tls { .. }
        | SourceError::Authentication { .. }
        | SourceError::Sql { .. }
        | SourceError::Server { .. }
        | SourceError::Io { .. }
        | SourceError::Closed
        | SourceError::StreamEnded
        | SourceError::Silent { .. }
        | SourceError::Protocol { .. }
        | SourceError::Missing { .. } => Action::Retry(Budget::Source),
    }
}

fn sink_action(error: &SinkError) -> Action {
    match error {
        SinkError::Io { .. } | SinkError::NotOpen => Action::Retry(Budget::Sink),
        SinkError::Locked { .. } => Action::Stop(Exit::Sink, "stop the other process, or name another folder for the events"),
        SinkError::OtherStream { .. } => Action::Stop(Exit::Sink, "name another folder for the events: a folder belongs to one stream"),
        SinkError::Damaged { .. } => {
            Action::Stop(Exit::Sink, "restore the file from a copy, or move the events folder away: then all is sent again")
        }
        SinkError::LostData { .. } => {
            Action::Stop(Exit::Sink, "committed events are gone: restore the events folder, or move it away: then all is sent again")
        }
        SinkError::Closed => Action::Stop(Exit::Sink, "start again with a reader: what it did not get is sent again"),
        SinkError::Poisoned { .. } => Action::Stop(Exit::Sink, "look at the disk and its free space, then start again"),
        SinkError::Kafka { fault, .. } => kafka_action(fault),
        SinkError::TakenOver { .. } => Action::Stop(Exit::TakenOver, "nothing: the other instance goes on where this one was"),
        // Another instance between two transactions of ours, perhaps: the next session looks.
        SinkError::OtherBatch { .. } => Action::Retry(Budget::Sink),
        // Nothing of the batch is committed; the next session sends the topic anew.
        SinkError::HeldOpen { .. } | SinkError::MadeAgain { .. } => Action::Retry(Budget::Sink),
        SinkError::PartitionsChanged { .. } => Action::Stop(
            Exit::Refused,
            "delete the topic: it is made with the partitions of `sink.kafka.partitions` and sent anew; or give it back its number",
        ),
        SinkError::Compacted { .. } => {
            Action::Stop(Exit::Refused, "set the topic's `cleanup.policy` to `delete`: a table without a key has records without one")
        }
        SinkError::TooLargeForTopic { .. } => Action::Stop(
            Exit::Refused,
            "raise `max.message.bytes` of the topic, or set `sink.oversize = \"dead_letter\"`; nothing of the transaction was acknowledged",
        ),
    }
}

fn kafka_action(fault: &KafkaFault) -> Action {
    match fault.verdict() {
        // A part of a transaction may be visible: nothing is sent again before a person has looked.
        Verdict::Stop if fault.code() == RDKafkaErrorCode::InvalidTransactionalState => Action::Stop(Exit::Refused, fault.advice()),
        Verdict::Stop => Action::Stop(Exit::Sink, fault.advice()),
        // Brokers are restarted, passwords rotated, rights granted late; a producer shut out by a time-out is replaced.
        Verdict::Again | Verdict::Replace | Verdict::Fenced => Action::Retry(Budget::Sink),
    }
}

/// The operator's next step after an error of the store, which always stops.
#[must_use]
pub fn store_advice(error: &StoreError) -> &'static str {
    match error {
        StoreError::Io { .. } => "look at the disk of the state folder, its free space and its rights, then start again",
        StoreError::Locked { .. } => "stop the other process, or name another folder in `store.directory`",
        StoreError::OtherStream { .. } => "name another folder in `store.directory`: a state folder belongs to one stream",
        StoreError::UnknownFormat { .. } => "run the version of the program that wrote it, or move the state folder away: no event is lost",
        StoreError::Missing { .. } => "correct `store.directory`, or run the service once to make it",
        StoreError::Damaged { .. } | StoreError::RocksDb { .. } => {
            "look at the disk and its free space and start again; if it repeats, move the state folder away: no event is lost with a sink that keeps its record"
        }
        StoreError::Poisoned { .. } | StoreError::StageOpen { .. } => "start again: the sink's record tells what was delivered",
        StoreError::ReadOnly { .. } => "start again without a command that only reads",
    }
}

/// The operator's next step when the budget is spent on this error.
#[must_use]
pub fn advice_when_spent(error: &SessionError) -> &'static str {
    match error {
        SessionError::Source(source) => source_advice(source),
        SessionError::SinkBlocks { .. } => "look whether the events are read, and at the disk or network that they go to",
        SessionError::Sink(SinkError::Kafka { fault, .. }) => fault.advice(),
        SessionError::Sink(_) | SessionError::DeliveryEnded => "look at the place of the events: its disk, free space and rights",
        SessionError::Decode(_)
        | SessionError::Row(_)
        | SessionError::Key(_)
        | SessionError::UnknownRelation { .. }
        | SessionError::OutOfTurn { .. } => {
            "the stream cannot be read past this place: report it; the slot keeps the log, watch the source's disk"
        }
        SessionError::SlotChanged => "someone else drops, makes or advances the slot: find out who",
        SessionError::PublicationReplaced => "someone else drops or makes the publication: find out who",
        SessionError::PlannedTooOften { .. } => "wait until the table's definition and partitions rest, then start again",
        SessionError::Store(_)
        | SessionError::Refused(_)
        | SessionError::Conflict(_)
        | SessionError::EventTooLarge(_)
        | SessionError::KeylessTooLarge { .. }
        | SessionError::SinkGone
        | SessionError::Randomness(_)
        | SessionError::Thread(_) => "start again",
    }
}

/// What mends an error of the source that does not pass.
#[must_use]
pub fn source_advice(error: &SourceError) -> &'static str {
    match error {
        SourceError::Tls { source, .. } => tls_advice(source),
        SourceError::Authentication { .. } => LOOK_AT_LOGIN,
        SourceError::Sql { .. } | SourceError::Server { .. } => sqlstate_advice(error.sqlstate().unwrap_or_default()),
        SourceError::Connect { .. } | SourceError::ConnectTimeout { .. } | SourceError::Io { .. } | SourceError::Closed => LOOK_AT_SERVER,
        SourceError::StreamEnded => "look at the server's log: it ended the stream by itself",
        SourceError::Silent { .. } => "look at the network between here and the server, and at what stands between them",
        SourceError::Protocol { .. } | SourceError::Missing { .. } => "connect to PostgreSQL itself, not through a pooler",
        SourceError::MessageTooLarge { .. } => RAISE_EVENT_BYTES,
    }
}

fn tls_advice(error: &TlsError) -> &'static str {
    match error {
        TlsError::NotOffered => "set `ssl = on` at the server; where plain text is meant, `source.tls = \"disable\"`",
        TlsError::NotTrusted { .. } => "name the file of the authority that signed the server's certificate in `source.tls_ca`",
        TlsError::OutOfDate { .. } => "renew the certificate at the server (`ssl_cert_file`), and look at the clocks",
        TlsError::OtherName { .. } => {
            "use a host name in `source.url` that the server's certificate is for (`hostaddr` can say where it is)"
        }
        TlsError::ClientRefused { .. } => {
            "give a certificate in `source.tls_cert` that an authority in the server's `ssl_ca_file` signed, and that is not out of date"
        }
        TlsError::NothingToBindTo => "set `source.tls`, connect over TCP, or set `source.channel_binding = \"prefer\"`",
        TlsError::Handshake(_) => {
            "look at the server's log and its `ssl_min_protocol_version` and `ssl_ciphers`; TLS 1.2 and later is spoken here"
        }
        TlsError::Library(_) => "look at the installation of OpenSSL and its configuration",
        TlsError::File(_)
        | TlsError::NoCertificate { .. }
        | TlsError::NoKey { .. }
        | TlsError::KeyEncrypted { .. }
        | TlsError::OtherKey { .. } => "mend the files that `source.tls_ca`, `tls_cert` and `tls_key` name",
    }
}

const LOOK_AT_LOGIN: &str = "look at user, password, client certificate and the server's pg_hba.conf";
const LOOK_AT_SERVER: &str = "look whether the server runs and can be reached at this address";

/// By code, and by class where the class says enough. Codes are open-ended: the last line is for all others.
fn sqlstate_advice(sqlstate: &str) -> &'static str {
    match sqlstate {
        "57P01" | "57P02" | "57P03" => LOOK_AT_SERVER,
        "53300" => "raise `max_connections` or `max_wal_senders` at the source, or end other connections",
        "53400" => "raise `max_replication_slots` at the source, or drop slots that nobody uses",
        "55006" => "another connection uses the slot: find it by `active_pid` in pg_replication_slots",
        "3D000" => "correct the database's name in the source's address",
        "42501" => {
            "grant what the message names: REPLICATION, SELECT on the published tables (BYPASSRLS where they have row security), CREATE on the database for a publication; `walgate check` prints the statements"
        }
        "42704" | "55000" => "look at the slot and the publication in pg_replication_slots and pg_publication",
        code if code.starts_with("08") => LOOK_AT_SERVER,
        code if code.starts_with("28") => LOOK_AT_LOGIN,
        code if code.starts_with("53") => "look at the server's disk and memory",
        _ => "look at the server's log",
    }
}

/// Pauses that double up to a limit, with jitter, until a budget is spent.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    retry: Retry,
    next: Duration,
    spent: Duration,
    /// Some attempt has worked: what fails now is an outage, not a mistake in what was set.
    has_worked: bool,
}

impl Backoff {
    #[must_use]
    pub fn new(retry: Retry) -> Self {
        Self { retry, next: retry.backoff_min, spent: Duration::ZERO, has_worked: false }
    }

    /// The pause before the next attempt, after one that took `attempt`; `None`: the budget is spent. One that worked
    /// for a while costs nothing, however long it took: a new budget begins with its failure. `random` spreads the pause
    /// from half to the whole; it never goes past the end of the budget, so that an attempt is made there.
    pub fn pause(&mut self, attempt: Duration, worked: bool, random: u64) -> Option<Duration> {
        if worked {
            *self = Self { has_worked: true, ..Self::new(self.retry) };
        }
        let attempt = if worked { Duration::ZERO } else { attempt };
        self.spent = self.spent.saturating_add(attempt);
        let budget = if self.has_worked { self.retry.total } else { self.retry.start.min(self.retry.total) };
        let left = budget.checked_sub(self.spent).filter(|left| !left.is_zero())?;
        let whole = self.next.min(self.retry.backoff_max);
        let share = f64::from(u32::try_from(random >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX);
        let pause = (whole / 2 + (whole / 2).mul_f64(share)).min(left);
        self.next = whole.saturating_mul(2);
        self.spent += pause;
        Some(pause)
    }
}

#[cfg(test)]
mod tests;
