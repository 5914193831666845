//! The store on a real disk: what it refuses, what a crash leaves, what becomes of a stage.

mod model;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::lsn::Xid;
use crate::sink::example::{progress, table};
use crate::store::index::{IndexRecord, TopicNumber};
use crate::store::rows::RowEntry;
use crate::store::transactions::TransactionRecord;

const TOPIC: TopicNumber = TopicNumber::new(7);

fn stamp() -> Stamp {
    Stamp { stream: "shop".to_owned() }
}

fn open(directory: &Path) -> Store {
    Store::open(directory, &stamp()).unwrap()
}

fn entry(epoch: u64) -> RowEntry {
    RowEntry { epoch, complete: true, digest: Some(u128::from(epoch)), large: Vec::new() }
}

fn record(xid: u32) -> TransactionRecord {
    TransactionRecord { xid: Xid::new(xid), messages: 3, digest: 5, commit_time_us: 7 }
}

fn put(key: &[u8], epoch: u64) -> Changes {
    let mut changes = Changes::default();
    changes.put_row(TOPIC, key, entry(epoch));
    changes
}

fn deliver(store: &Store, number: u64, changes: &Changes) {
    let staged = store.stage(&progress(number), &[], changes).unwrap();
    let applied = store.apply(staged, false).unwrap();
    assert_eq!(*applied.batch(), progress(number).batch);
}

#[test]
fn the_folder_is_private_and_a_new_store_knows_nothing() {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("deep/state");
    let store = open(&directory);
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(store.progress().unwrap(), None);
    assert_eq!(store.tables().unwrap(), []);
    assert_eq!(store.staged().unwrap(), None);
    assert_eq!(store.window_start().unwrap(), Lsn::INVALID);
    assert_eq!(store.settle(None).unwrap(), Settled::NothingStaged);
}

#[test]
fn a_second_user_of_the_folder_is_refused_until_the_first_is_gone() {
    let folder = TempDir::new().unwrap();
    let first = open(folder.path());
    let refused = Store::open(folder.path(), &stamp()).unwrap_err();
    assert!(matches!(refused, StoreError::Locked { .. }), "{refused}");
    assert!(refused.to_string().ends_with("is in use by another process"));
    drop(first);
    open(folder.path());
}

#[test]
fn the_store_of_another_stream_is_refused() {
    let folder = TempDir::new().unwrap();
    drop(open(folder.path()));
    let other = Stamp { stream: "shop2".to_owned() };
    for refused in [Store::open(folder.path(), &other), Store::open_read_only(folder.path(), &other)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.ends_with("belongs to stream `shop`, not to `shop2`"), "{refused}");
    }
    open(folder.path());
}

#[test]
fn a_format_that_is_not_known_is_refused() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    store.db.put("format", "2").unwrap();
    drop(store);
    let refused = Store::open(folder.path(), &stamp()).unwrap_err();
    assert!(refused.to_string().ends_with("has format `2`, this program reads `1`"), "{refused}");

    let later = TempDir::new().unwrap();
    let mut store = open(later.path());
    store.db.create_cf("invented", &rocksdb::Options::default()).unwrap();
    drop(store);
    for refused in [Store::open(later.path(), &stamp()), Store::open_read_only(later.path(), &stamp())] {
        assert!(matches!(refused, Err(StoreError::UnknownFormat { .. })), "{refused:?}");
    }
}

#[test]
fn a_store_whose_making_was_interrupted_is_made_and_one_that_lost_its_stamp_is_not() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    store.db.delete("format").unwrap();
    store.db.delete("stream").unwrap();
    drop(store);
    let store = open(folder.path());
    deliver(&store, 1, &put(b"a", 1));
    store.db.delete("format").unwrap();
    drop(store);
    assert!(matches!(Store::open(folder.path(), &stamp()), Err(StoreError::Damaged { .. })));
}

#[test]
fn a_batch_counts_once_it_is_applied_and_not_before() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let mut changes = put(b"a", 1);
    changes.put_transaction(Lsn::new(0x100), record(1));
    let staged = store.stage(&progress(1), &[table("a", 1)], &changes).unwrap();
    assert_eq!(store.row(TOPIC, b"a").unwrap(), None);
    assert_eq!(store.progress().unwrap(), None);
    assert_eq!(store.staged().unwrap(), Some(StagedBatch { batch: progress(1).batch, progress: progress(1) }));
    let second = store.stage(&progress(2), &[], &changes).unwrap_err();
    assert!(matches!(second, StoreError::StageOpen { .. }), "{second}");

    drop(store.apply(staged, true).unwrap());
    assert_eq!(store.staged().unwrap(), None);
    assert_eq!(store.progress().unwrap(), Some(progress(1)));
    assert_eq!(store.tables().unwrap(), [table("a", 1)]);
    assert_eq!(store.row(TOPIC, b"a").unwrap(), Some(entry(1)));
    assert_eq!(store.transaction(Lsn::new(0x100)).unwrap(), Some(record(1)));
}

#[test]
fn a_stage_left_by_a_crash_is_applied_if_the_sink_has_that_batch_and_dropped_otherwise() {
    let check = |committed: Option<u64>, settled: Settled| {
        let folder = TempDir::new().unwrap();
        let store = open(folder.path());
        deliver(&store, 1, &put(b"a", 1));
        let mut changes = put(b"a", 2);
        changes.put_row(TOPIC, b"b", entry(2));
        drop(store.stage(&progress(2), &[table("a", 2)], &changes).unwrap());
        drop(store);

        let store = open(folder.path());
        let second = store.stage(&progress(3), &[], &changes).unwrap_err();
        assert!(matches!(second, StoreError::StageOpen { .. }), "{second}");
        let applied = matches!(settled, Settled::Applied(_));
        let committed = committed.map(|number| progress(number).batch);
        assert_eq!(store.settle(committed.as_ref()).unwrap(), settled);
        let (last, epoch) = if applied { (2, 2) } else { (1, 1) };
        assert_eq!(store.progress().unwrap(), Some(progress(last)));
        assert_eq!(store.row(TOPIC, b"a").unwrap(), Some(entry(epoch)));
        assert_eq!(store.row(TOPIC, b"b").unwrap().is_some(), applied);
        assert_eq!(store.tables().unwrap().len(), usize::from(applied));
        assert_eq!(store.staged().unwrap(), None);
        assert_eq!(store.settle(committed.as_ref()).unwrap(), Settled::NothingStaged);
        deliver(&store, 3, &put(b"c", 3));
    };
    check(Some(2), Settled::Applied(Box::new(progress(2))));
    check(Some(1), Settled::Dropped);
    check(None, Settled::Dropped);
}

#[test]
fn a_stage_in_the_same_process_is_settled_too() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    drop(store.stage(&progress(1), &[], &put(b"a", 1)).unwrap());
    assert_eq!(store.settle(Some(&progress(1).batch)).unwrap(), Settled::Applied(Box::new(progress(1))));
    deliver(&store, 2, &put(b"a", 2));
}

#[test]
fn an_adopted_store_has_the_sinks_progress_no_window_and_no_index_to_trust() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let mut changes = put(b"a", 1);
    let index = IndexRecord { number: TOPIC, complete: true, key: vec!["id".to_owned()], form: String::new() };
    changes.put_index("shop.public.a", index.clone());
    for lsn in [0, 0x100, u64::MAX] {
        changes.put_transaction(Lsn::new(lsn), record(1));
    }
    let staged = store.stage(&progress(1), &[table("a", 1), table("b", 1)], &changes).unwrap();
    drop(store.apply(staged, false).unwrap());
    drop(store.stage(&progress(2), &[], &changes).unwrap());

    store.adopt(&progress(9), &[table("a", 9)]).unwrap();
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.progress().unwrap(), Some(progress(9)));
    assert_eq!(store.tables().unwrap(), [table("a", 9)]);
    assert_eq!(store.staged().unwrap(), None);
    assert_eq!(store.indexes().unwrap(), [("shop.public.a".to_owned(), IndexRecord { complete: false, ..index })]);
    assert_eq!(store.transactions_after(Lsn::INVALID).unwrap(), []);
    assert_eq!(store.transaction(Lsn::INVALID).unwrap(), None);
    assert_eq!(store.window_start().unwrap(), progress(9).end_lsn);
    assert!(store.visibility().unwrap().proved < progress(9).end_lsn, "the next transaction may commit at the end LSN");
    deliver(&store, 10, &put(b"a", 2));
}

#[test]
fn the_window_forgets_what_is_below_it_but_never_what_may_be_invisible() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let mut changes = Changes::default();
    for lsn in 1..=9 {
        changes.put_transaction(Lsn::new(lsn), record(u32::try_from(lsn).unwrap()));
    }
    changes.set_visibility(Visibility { proved: Lsn::new(6), leftovers: vec![Xid::new(2)] });
    deliver(&store, 1, &changes);
    let kept =
        |after: u64| -> Vec<u64> { store.transactions_after(Lsn::new(after)).unwrap().iter().map(|(lsn, _)| lsn.as_u64()).collect() };
    assert_eq!(kept(6), [7, 8, 9]);
    store.prune_transactions(Lsn::new(4)).unwrap();
    assert_eq!((kept(0), store.window_start().unwrap()), (vec![4, 5, 6, 7, 8, 9], Lsn::new(4)));
    store.prune_transactions(Lsn::new(2)).unwrap();
    assert_eq!(store.window_start().unwrap(), Lsn::new(4));
    store.prune_transactions(Lsn::new(100)).unwrap();
    assert_eq!((kept(0), store.window_start().unwrap()), (vec![7, 8, 9], Lsn::new(7)));
    assert_eq!(store.visibility().unwrap(), Visibility { proved: Lsn::new(6), leftovers: vec![Xid::new(2)] });
}

#[test]
fn a_store_is_read_beside_its_process_without_touching_the_folder() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing");
    assert!(matches!(Store::open_read_only(&missing, &stamp()), Err(StoreError::Missing { .. })));
    assert!(!missing.exists());

    let directory = folder.path().join("state");
    let running = open(&directory);
    deliver(&running, 1, &put(b"a", 1));
    let listing = || -> BTreeSet<String> {
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let before = listing();
    let beside = Store::open_read_only(&directory, &stamp()).unwrap();
    assert_eq!(beside.progress().unwrap(), Some(progress(1)));
    assert_eq!(beside.row(TOPIC, b"a").unwrap(), Some(entry(1)));
    assert!(matches!(beside.stage(&progress(2), &[], &Changes::default()), Err(StoreError::ReadOnly { .. })));
    deliver(&running, 2, &put(b"a", 2));
    drop(beside);
    assert_eq!(listing(), before);
    deliver(&running, 3, &put(b"a", 3));
    drop(running);
    open(&directory);
}

#[test]
fn bytes_that_cannot_be_understood_are_an_error_that_names_them() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let check = |family: Family, key: &[u8], bytes: &[u8], read: fn(&Store) -> Result<(), StoreError>, expect: &str| {
        store.db.put_cf(store.family(family), key, bytes).unwrap();
        let error = read(&store).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { what, .. } if what == expect), "{error}");
    };
    let mut later = progress(1);
    later.version = 99;
    check(Family::Progress, b"progress", &serde_json::to_vec(&later).unwrap(), |store| store.progress().map(drop), "progress");
    check(Family::Stage, b"stage", b"\x01\0\0\0\x09{}", |store| store.settle(None).map(drop), "stage");
    check(Family::Journal, b"a", b"{", |store| store.tables().map(drop), "journal a");
    check(Family::Schema, b"a", b"{", |store| store.index("a").map(drop), "schema a");
    check(Family::Rows, b"\0\0\0\x07k", b"\xFF", |store| store.row(TOPIC, b"k").map(drop), "row entry");
    check(Family::Transactions, &[0; 8], b"\x01", |store| store.transaction(Lsn::INVALID).map(drop), "transaction");
    check(Family::Meta, b"visibility", b"\x01", |store| store.visibility().map(drop), "visibility");
}

/// Set for the child of the next test: the folder to fill.
const CHILD: &str = "WALGATE_TEST_STORE_CHILD";

/// The kernel refuses the write here, as it does on a full disk: files of this process may not grow past a limit.
#[test]
fn after_a_write_that_the_disk_refused_nothing_is_used_until_another_process_opens_the_store() {
    if let Some(directory) = std::env::var_os(CHILD) {
        return fill_until_refused(Path::new(&directory));
    }
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("state");
    let name = "store::tests::after_a_write_that_the_disk_refused_nothing_is_used_until_another_process_opens_the_store";
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8192; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(CHILD, &directory)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let applied: u64 = printed.split("applied ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();

    let store = open(&directory);
    store.settle(None).unwrap();
    assert_eq!(store.progress().unwrap(), Some(progress(applied)));
    assert_eq!(store.rows_page(TOPIC, None, usize::MAX).unwrap().len(), usize::try_from(applied).unwrap());
    deliver(&store, applied + 1, &put(b"after", 1));
}

fn fill_until_refused(directory: &Path) {
    let store = open(directory);
    let long = vec![crate::event::digest::LargeDigest { column: 1, digest: 2 }; 20_000];
    for number in 1_u64.. {
        let mut changes = Changes::default();
        changes.put_row(TOPIC, &number.to_be_bytes(), RowEntry { large: long.clone(), ..entry(number) });
        let written = store.stage(&progress(number), &[], &changes).and_then(|staged| store.apply(staged, false));
        if let Err(refused) = written {
            assert!(matches!(refused, StoreError::RocksDb { doing: "write to", .. }), "{refused}");
            println!("applied {} batches, then: {refused}", number - 1);
            break;
        }
        assert!(number < 1000, "the limit holds");
    }
    assert!(matches!(store.row(TOPIC, b"a"), Err(StoreError::Poisoned { .. })));
    assert!(matches!(store.progress(), Err(StoreError::Poisoned { .. })));
    assert!(matches!(store.settle(None), Err(StoreError::Poisoned { .. })));
    assert!(matches!(store.prune_transactions(Lsn::new(1)), Err(StoreError::Poisoned { .. })));
}
