use std::io;

use super::*;
use crate::admission::Conflict;
use crate::event::envelope::EventTooLarge;
use crate::lsn::{Lsn, Oid};
use crate::pgoutput::reader::DecodeError;
use crate::postgres::ServerError;
use crate::rebuild::reason::SlotFate;
use crate::resume::Refusal;

const RETRY: Retry = Retry {
    backoff_min: Duration::from_millis(100),
    backoff_max: Duration::from_millis(400),
    total: Duration::from_secs(2),
    start: Duration::from_secs(2),
};

fn server(sqlstate: &str) -> SessionError {
    let source = ServerError { severity: "ERROR".to_owned(), sqlstate: sqlstate.to_owned(), message: String::new() };
    SourceError::Server { doing: "start the stream", source }.into()
}

#[test]
fn whatever_the_server_says_the_next_session_looks_within_the_budget() {
    for sqlstate in
        ["08006", "57P01", "57P02", "57P03", "53300", "55006", "28P01", "3D000", "42501", "42704", "55000", "XX000", "0A000", ""]
    {
        assert_eq!(action(&server(sqlstate)), Action::Retry(Budget::Source), "{sqlstate}");
    }
    let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
    for error in [
        SourceError::Connect { endpoint: String::new(), source: broken() },
        SourceError::ConnectTimeout { endpoint: String::new(), seconds: 1 },
        SourceError::Tls { endpoint: String::new(), source: TlsError::OutOfDate { why: "expired" } },
        SourceError::Authentication { why: String::new() },
        SourceError::Io { doing: "read", source: broken() },
        SourceError::Closed,
        SourceError::StreamEnded,
        SourceError::Silent { seconds: 60 },
        SourceError::Protocol { what: String::new() },
        SourceError::Missing { what: "a row" },
    ] {
        assert_eq!(action(&error.into()), Action::Retry(Budget::Source));
    }
    for error in [
        DecodeError::Empty.into(),
        SessionError::UnknownRelation { oid: Oid::new(7) },
        SessionError::SlotChanged,
        SessionError::PublicationReplaced,
    ] {
        assert_eq!(action(&error), Action::Retry(Budget::Source), "{error}");
    }
}

#[test]
fn a_message_or_an_event_that_is_too_large_stops_and_names_the_key_to_raise() {
    let message = SourceError::MessageTooLarge { bytes: 2, limit: 1 };
    let event = EventTooLarge { table: "public.t".to_owned(), key_digest: None, bytes: 2, limit: 1 };
    for error in [SessionError::from(message), event.into()] {
        let Action::Stop(exit, advice) = action(&error) else { panic!("{error} does not stop") };
        assert_eq!(exit, Exit::Refused);
        assert!(advice.contains("`sink.event_bytes_max`"), "{advice}");
    }
}

#[test]
fn a_conflict_is_rebuilt_with_a_new_slot_and_what_was_seen() {
    let conflict = Conflict { commit_lsn: Lsn::new(0x10), why: "other xid".to_owned() };
    let Action::Rebuild(reason) = action(&conflict.into()) else { panic!("no rebuild") };
    assert_eq!(reason, Reason::Conflict { commit_lsn: Lsn::new(0x10), why: "other xid".to_owned() });
    assert_eq!(reason.slot(), SlotFate::Replace);
    assert!(reason.automatic());
}

#[test]
fn each_way_to_stop_has_its_own_exit_status() {
    let path = String::new;
    let check = |error: SessionError, expect: Exit| match action(&error) {
        Action::Stop(exit, _) => assert_eq!(exit, expect, "{error}"),
        other => panic!("{error}: {other:?}"),
    };
    check(Refusal::Standby.into(), Exit::Refused);
    check(SessionError::SinkGone, Exit::Sink);
    for error in [
        SinkError::Locked { path: path() },
        SinkError::OtherStream { path: path(), found: path(), expected: path() },
        SinkError::Damaged { path: path(), why: path() },
        SinkError::LostData { path: path(), length: 1, committed: 2 },
        SinkError::Closed,
        SinkError::Poisoned { path: path() },
    ] {
        check(error.into(), Exit::Sink);
    }
    for error in [
        StoreError::Io { doing: "make", path: path(), source: io::Error::from(io::ErrorKind::StorageFull) },
        StoreError::Locked { path: path() },
        StoreError::OtherStream { path: path(), found: path(), expected: path() },
        StoreError::UnknownFormat { path: path(), found: path() },
        StoreError::Missing { path: path() },
        StoreError::Damaged { path: path(), what: path(), why: path() },
        StoreError::Poisoned { path: path() },
        StoreError::ReadOnly { path: path() },
    ] {
        check(error.into(), Exit::Store);
    }
}

#[test]
fn a_sink_that_failed_is_opened_again_within_its_own_budget() {
    let full = io::Error::from(io::ErrorKind::StorageFull);
    for error in [SinkError::Io { doing: "write to", path: String::new(), source: full }, SinkError::NotOpen] {
        assert_eq!(action(&error.into()), Action::Retry(Budget::Sink));
    }
    assert_eq!((Budget::Sink.exit(), Budget::Source.exit()), (Exit::Sink, Exit::Source));
}

#[test]
fn advice_follows_the_sqlstate_when_the_budget_is_spent() {
    let check = |sqlstate: &str, expect: &str| {
        let advice = advice_when_spent(&server(sqlstate));
        assert!(advice.contains(expect), "{sqlstate}: {advice}");
    };
    check("28P01", "password");
    check("55006", "active_pid");
    check("53300", "max_wal_senders");
    check("53100", "disk");
    check("08006", "reached");
    check("XX000", "log");
}

#[test]
fn pauses_double_up_to_the_limit_and_end_exactly_with_the_budget() {
    let mut backoff = Backoff::new(RETRY);
    let pauses: Vec<u128> = std::iter::from_fn(|| backoff.pause(Duration::ZERO, false, u64::MAX)).map(|pause| pause.as_millis()).collect();
    assert_eq!(pauses, [100, 200, 400, 400, 400, 400, 100]);
}

#[test]
fn jitter_takes_at_most_half_of_a_pause() {
    for random in [0, 1, u64::MAX / 3, u64::MAX / 2, u64::MAX] {
        let pause = Backoff::new(RETRY).pause(Duration::ZERO, false, random).unwrap();
        assert!((50..=100).contains(&pause.as_millis()), "{random}: {pause:?}");
    }
    assert_eq!(Backoff::new(RETRY).pause(Duration::ZERO, false, 0), Some(Duration::from_millis(50)));
}

#[test]
fn time_that_attempts_take_is_spent_too_and_success_gives_it_back() {
    let mut backoff = Backoff::new(RETRY);
    assert!(backoff.pause(Duration::from_millis(1_500), false, 0).is_some());
    assert_eq!(backoff.pause(Duration::from_secs(1), false, 0), None);
    // What worked for hours does not use it up.
    assert_eq!(backoff.pause(Duration::from_hours(5), true, u64::MAX), Some(Duration::from_millis(100)));
}
