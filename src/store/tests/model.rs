//! The store against a plain map that has the same said to it, with crashes and openings between.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::strategy::Just;
use proptest::{collection::vec, prop_assert_eq, proptest};
use tempfile::TempDir;

use super::{open, record};
use crate::lsn::Lsn;
use crate::progress::Progress;
use crate::rebuild::journal::TableJournal;
use crate::sink::example::{progress, table};
use crate::store::Store;
use crate::store::changes::{Changes, Lookup};
use crate::store::index::{IndexRecord, TopicNumber};
use crate::store::rows::{self, RowEntry};
use crate::store::transactions::TransactionRecord;

/// What is said to the store, and to the model.
#[derive(Clone, Debug)]
enum Change {
    Put(usize, u8, RowEntry),
    Delete(usize, u8),
    Clear(usize),
    PutReread(usize, u8),
    DeleteReread(usize, u8),
    Transaction(u8, u32),
    Index(usize, bool),
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Applied {
        synced: bool,
    },
    /// Applied, then the process ends.
    AppliedAndReopened,
    /// The process ends between stage and apply; the sink has the batch, or it does not.
    Crashed {
        committed: bool,
    },
    /// The sink failed and the process goes on.
    Settled {
        committed: bool,
    },
    /// The store is told that it is not that of the sink's batch.
    Adopted,
}

/// All that a store holds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    progress: Option<Progress>,
    tables: BTreeMap<String, TableJournal>,
    rows: BTreeMap<(u32, Vec<u8>), RowEntry>,
    rereads: BTreeSet<(u32, Vec<u8>)>,
    transactions: BTreeMap<Lsn, TransactionRecord>,
    indexes: BTreeMap<String, IndexRecord>,
}

/// Neighbours in number, so that a range that is off by one is seen.
const TOPICS: [TopicNumber; 3] = [TopicNumber::new(0xFF), TopicNumber::new(0x100), TopicNumber::new(0x101)];

/// Keys that are prefixes of each other, empty, and all ones.
fn key(n: u8) -> Vec<u8> {
    vec![0xFF - n % 2; usize::from(n / 2)]
}

impl Model {
    fn apply(&mut self, changes: &[Change], said: &mut Changes) {
        for change in changes.iter().cloned() {
            match change {
                Change::Put(topic, n, entry) => {
                    said.put_row(TOPICS[topic], &key(n), entry.clone());
                    self.rows.insert((TOPICS[topic].as_u32(), key(n)), entry);
                }
                Change::Delete(topic, n) => {
                    said.delete_row(TOPICS[topic], &key(n));
                    self.rows.remove(&(TOPICS[topic].as_u32(), key(n)));
                }
                Change::Clear(topic) => {
                    said.clear_topic(TOPICS[topic]);
                    self.rows.retain(|(number, _), _| *number != TOPICS[topic].as_u32());
                    self.rereads.retain(|(number, _)| *number != TOPICS[topic].as_u32());
                }
                Change::PutReread(topic, n) => {
                    said.put_reread(TOPICS[topic], &key(n));
                    self.rereads.insert((TOPICS[topic].as_u32(), key(n)));
                }
                Change::DeleteReread(topic, n) => {
                    said.delete_reread(TOPICS[topic], &key(n));
                    self.rereads.remove(&(TOPICS[topic].as_u32(), key(n)));
                }
                Change::Transaction(lsn, xid) => {
                    said.put_transaction(Lsn::new(u64::from(lsn)), record(xid));
                    self.transactions.insert(Lsn::new(u64::from(lsn)), record(xid));
                }
                Change::Index(topic, complete) => {
                    let index = IndexRecord { number: TOPICS[topic], complete, key: vec!["id".to_owned()], form: String::new() };
                    said.put_index(&format!("t{topic}"), index.clone());
                    self.indexes.insert(format!("t{topic}"), index);
                }
            }
        }
    }

    /// What look-ups through a batch in flight and the store below it see.
    fn check_overlay(&self, store: &Store, changes: &Changes) {
        for topic in TOPICS {
            for n in 0..8 {
                let seen = match changes.row(topic, &key(n)) {
                    Lookup::Present(entry) => Some(entry.clone()),
                    Lookup::Absent => None,
                    Lookup::Unknown => store.row(topic, &key(n)).unwrap(),
                };
                assert_eq!(seen.as_ref(), self.rows.get(&(topic.as_u32(), key(n))));
            }
        }
    }

    fn of(store: &Store) -> Self {
        let mut model = Self { progress: store.progress().unwrap(), ..Self::default() };
        model.tables = store.tables().unwrap().into_iter().map(|table| (table.topic.clone(), table)).collect();
        model.transactions = store.transactions_after(Lsn::INVALID).unwrap().into_iter().collect();
        model.indexes = store.indexes().unwrap().into_iter().collect();
        for topic in TOPICS {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let page = store.rows_page(topic, after.as_deref(), 2).unwrap();
                let Some((last, _)) = page.last() else { break };
                assert!(after.as_ref().is_none_or(|after| after < last), "pages ascend");
                after = Some(last.clone());
                model.rows.extend(page.into_iter().map(|(key, entry)| ((topic.as_u32(), key), entry)));
            }
            let mut after: Option<Vec<u8>> = None;
            loop {
                let page = store.rereads_page(topic, after.as_deref(), 2).unwrap();
                let Some(last) = page.last() else { break };
                assert!(after.as_ref().is_none_or(|after| after < last), "pages ascend");
                after = Some(last.clone());
                model.rereads.extend(page.into_iter().map(|key| (topic.as_u32(), key)));
            }
        }
        model
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let (topic, n) = (|| 0..TOPICS.len(), || 0..8_u8);
    let change = prop_oneof![
        6 => (topic(), n(), rows::tests::entries()).prop_map(|(topic, n, entry)| Change::Put(topic, n, entry)),
        3 => (topic(), n()).prop_map(|(topic, n)| Change::Delete(topic, n)),
        1 => topic().prop_map(Change::Clear),
        2 => (topic(), n()).prop_map(|(topic, n)| Change::PutReread(topic, n)),
        1 => (topic(), n()).prop_map(|(topic, n)| Change::DeleteReread(topic, n)),
        1 => (1..20_u8, any::<u32>()).prop_map(|(lsn, xid)| Change::Transaction(lsn, xid)),
        1 => (topic(), any::<bool>()).prop_map(|(topic, complete)| Change::Index(topic, complete)),
    ];
    vec(change, 0..12)
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => any::<bool>().prop_map(|synced| Outcome::Applied { synced }),
        1 => Just(Outcome::AppliedAndReopened),
        2 => any::<bool>().prop_map(|committed| Outcome::Crashed { committed }),
        2 => any::<bool>().prop_map(|committed| Outcome::Settled { committed }),
        1 => Just(Outcome::Adopted),
    ]
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 48, ..Default::default() })]

    #[test]
    fn the_store_holds_what_a_plain_map_holds(steps in vec((changes(), outcomes()), 1..16)) {
        let folder = TempDir::new().unwrap();
        let mut store = open(folder.path());
        let mut model = Model::default();
        for (number, (changes, outcome)) in (1..).zip(steps) {
            let mut next = model.clone();
            let mut said = Changes::default();
            next.apply(&changes, &mut said);
            next.check_overlay(&store, &said);
            let tables = [table(&format!("t{}", number % 3), number)];
            next.progress = Some(progress(number));
            next.tables.extend(tables.iter().map(|table| (table.topic.clone(), table.clone())));

            let staged = store.stage(&progress(number), &tables, &said).unwrap();
            prop_assert_eq!(Model::of(&store), model.clone());
            let committed_batch = progress(number).batch;
            let settle = |store: &Store, committed: bool| store.settle(committed.then_some(&committed_batch)).unwrap();
            match outcome {
                Outcome::Applied { synced } => {
                    drop(store.apply(staged, synced).unwrap());
                    model = next;
                }
                Outcome::AppliedAndReopened => {
                    drop(store.apply(staged, false).unwrap());
                    drop(store);
                    store = open(folder.path());
                    model = next;
                }
                Outcome::Crashed { committed } => {
                    drop(store);
                    store = open(folder.path());
                    settle(&store, committed);
                    model = if committed { next } else { model };
                }
                Outcome::Settled { committed } => {
                    settle(&store, committed);
                    model = if committed { next } else { model };
                }
                Outcome::Adopted => {
                    store.adopt(&progress(number), &tables).unwrap();
                    model.progress = Some(progress(number));
                    model.tables = tables.into_iter().map(|table| (table.topic.clone(), table)).collect();
                    model.transactions.clear();
                    model.indexes.values_mut().for_each(|index| index.complete = false);
                }
            }
            prop_assert_eq!(Model::of(&store), model.clone());
        }
    }
}
