//! What the events of a ledger have to show. None of it looks at the source, except the comparison with the tables.

use std::collections::BTreeMap;

use super::super::events::{Event, Events, Row};
use super::super::json::Json;
use super::super::postgres::Postgres;
use super::Committed;

const LEDGER: &str = "public.ledger";
const LINE: &str = "public.line";

impl Events {
    /// For a stream that saw the ledger from its beginning, at any moment: each change once and in order, each
    /// transaction whole.
    #[track_caller]
    pub(crate) fn assert_ledger_holds(&self) {
        self.assert_no_duplicate_ids();
        self.assert_order_rises_per_key();
        self.assert_changes_are_of_transactions();
        self.assert_transactions_whole();
        self.assert_each_version_once();
        self.fold_strictly(LEDGER);
        self.fold_strictly(LINE);
    }

    /// As [`Events::assert_ledger_holds`], once all of it is delivered: what was committed is there, and nothing else.
    #[track_caller]
    pub(crate) fn assert_ledger_complete(&self, postgres: &Postgres, committed: &Committed) {
        self.assert_ledger_holds();
        assert_eq!(&self.committed_per_writer(), committed, "the events do not have the transactions that were committed");
        self.assert_ledger_equals_tables(postgres);
    }

    /// For a stream that was rebuilt: it has caught up with the tables, and never went back.
    #[track_caller]
    pub(crate) fn assert_ledger_rebuilt(&self, postgres: &Postgres) {
        self.assert_no_duplicate_ids();
        self.assert_order_rises_per_key();
        self.assert_transactions_whole();
        self.assert_versions_never_fall();
        self.assert_ledger_equals_tables(postgres);
    }

    #[track_caller]
    pub(crate) fn assert_ledger_equals_tables(&self, postgres: &Postgres) {
        self.assert_equals_table(postgres, LEDGER);
        self.assert_equals_table(postgres, LINE);
    }

    /// A change that names no transaction would escape the check that follows.
    #[track_caller]
    fn assert_changes_are_of_transactions(&self) {
        for event in self.of(LEDGER).iter().chain(self.of(LINE)) {
            let streams = event.op().is_some() && !was_read(event);
            assert_eq!(streams, streamed_by(event).is_some(), "a change has a `source.txId`, and no other event: {event:?}");
        }
    }

    /// Every transaction of which something is committed to the sink is committed as a whole.
    #[track_caller]
    fn assert_transactions_whole(&self) {
        let mut transactions: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
        for event in self.of(LEDGER).iter().chain(self.of(LINE)) {
            if let Some(txid) = streamed_by(event) {
                transactions.entry(txid).or_default().push(event);
            }
        }
        for (txid, events) in transactions {
            let of = events.iter().find_map(|event| number(event.after()?, "of"));
            let found = u64::try_from(events.len()).expect("a length is a `u64`");
            assert_eq!(of, Some(found), "transaction {txid} is to have as many events as it says, and has {found}: {events:#?}");
        }
    }

    /// The versions of a line count up by one from its first. A row that was read again, because its key changed while a
    /// large value did not, has the version that it had.
    #[track_caller]
    fn assert_each_version_once(&self) {
        let mut lines: BTreeMap<u64, u64> = BTreeMap::new();
        for (line, version, event) in self.versions() {
            let last = lines.insert(line, version);
            let expected = match last {
                Some(last) if was_read(event) => version == last,
                Some(last) => version == last + 1,
                // A shared line was there before the stream, with version 0.
                None => version == 1 || event.op() == Some("r") && version == 0,
            };
            assert!(expected, "line {line} goes from version {last:?} to {version}: {event:?}");
        }
    }

    #[track_caller]
    fn assert_versions_never_fall(&self) {
        let mut lines: BTreeMap<u64, u64> = BTreeMap::new();
        for (line, version, event) in self.versions() {
            let last = lines.insert(line, version);
            assert!(last.is_none_or(|last| last <= version), "line {line} falls from version {last:?} to {version}: {event:?}");
        }
    }

    /// Line and version of each event that puts a row.
    fn versions(&self) -> impl Iterator<Item = (u64, u64, &Event)> {
        self.of(LINE).iter().filter_map(|event| {
            let row = event.after()?;
            Some((number(row, "line")?, number(row, "version")?, event))
        })
    }

    fn committed_per_writer(&self) -> Committed {
        let mut committed = Committed::default();
        for row in self.of(LEDGER).iter().filter_map(Event::after) {
            let field = |name| number(row, name).and_then(|value| u32::try_from(value).ok()).expect("a ledger row has its numbers");
            let transactions = committed.0.entry(field("writer")).or_default();
            if transactions.last() != Some(&field("txn")) {
                transactions.push(field("txn"));
            }
        }
        committed
    }
}

fn was_read(event: &Event) -> bool {
    event.op() == Some("r") || event.source("snapshot").and_then(Json::as_text) == Some("true")
}

/// The transaction of an event that came by the stream; `None` for tombstones and for rows that were read.
fn streamed_by(event: &Event) -> Option<u64> {
    event.source("txId").and_then(Json::as_u64)
}

fn number(row: &Row, column: &str) -> Option<u64> {
    row.get(column)?.as_u64()
}
