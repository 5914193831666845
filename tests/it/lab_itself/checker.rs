//! The checker has to see each kind of fault: it is shown some, written by hand.

use std::fs;
use std::panic;
use std::time::Duration;

use tempfile::TempDir;

use crate::lab::events::Events;
use crate::lab::ledger::{Committed, Ledger};
use crate::lab::postgres::Postgres;
use crate::lab::wait;

const KEYED: &str = "public.t";

/// A folder of the file sink, with all lines of the topics committed.
fn folder(topics: &[(&str, &[String])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let segment = |(table, lines): &(&str, &[String])| {
        let text = lines.join("\n") + if lines.is_empty() { "" } else { "\n" };
        fs::create_dir(folder.path().join(format!("lab.{table}"))).unwrap();
        fs::write(folder.path().join(format!("lab.{table}/00000000000000000000.jsonl")), &text).unwrap();
        format!(r#""lab.{table}":{{"file":"00000000000000000000.jsonl","length":{}}}"#, text.len())
    };
    let segments: Vec<String> = topics.iter().map(segment).collect();
    fs::write(folder.path().join("committed.json"), format!(r#"{{"segments":{{{}}}}}"#, segments.join(","))).unwrap();
    folder
}

fn read(topics: &[(&str, &[String])]) -> Events {
    Events::read(folder(topics).path(), "lab")
}

/// An event of transaction `txn`, number `n` in it; `id` and order come from both.
pub(super) fn event(txn: u32, n: &str, op: &str, key: &str, after: &str, unchanged: &str) -> String {
    format!(
        r#"{{"key":{key},"value":{{"before":null,"after":{after},"source":{{"txId":{txn},"order":"{txn:08x}.{n}","unchanged":{unchanged}}},"op":"{op}"}},"headers":{{"id":"lab:7:1:0/{txn:X}:{n}"}}}}"#
    )
}

pub(super) fn put(txn: u32, n: &str, op: &str, id: u32, text: &str) -> String {
    event(txn, n, op, &format!(r#"{{"id":{id}}}"#), &format!(r#"{{"id":{id},"text":"{text}"}}"#), "null")
}

pub(super) fn removed(txn: u32, n: &str, id: u32) -> [String; 2] {
    let tombstone = format!(r#"{{"key":{{"id":{id}}},"value":null,"headers":{{"id":"lab:7:1:0/{txn:X}:{n}.1"}}}}"#);
    [event(txn, n, "d", &format!(r#"{{"id":{id}}}"#), "null", "null"), tombstone]
}

/// The text of each row held after the events.
fn texts(lines: &[String]) -> Vec<String> {
    read(&[(KEYED, lines)]).fold_strictly(KEYED).into_values().map(|row| row["text"].to_string()).collect()
}

/// Whether a check fails, as it has to.
pub(super) fn is_seen(check: impl FnOnce()) -> bool {
    panic::catch_unwind(panic::AssertUnwindSafe(check)).is_err()
}

#[test]
fn a_subscriber_reads_whole_segments_and_no_more_of_the_last_than_is_committed() {
    let folder = folder(&[(KEYED, &[put(2, "0", "c", 2, "b")])]);
    let topic = folder.path().join("lab.public.t");
    let length = fs::metadata(topic.join("00000000000000000000.jsonl")).unwrap().len();
    fs::rename(topic.join("00000000000000000000.jsonl"), topic.join("00000000000000000001.jsonl")).unwrap();
    fs::write(topic.join("00000000000000000000.jsonl"), format!("{}\n", put(1, "0", "c", 1, "a"))).unwrap();
    fs::write(topic.join("00000000000000000002.jsonl"), format!("{}\n", put(3, "0", "c", 3, "c"))).unwrap();
    let last = fs::read_to_string(topic.join("00000000000000000001.jsonl")).unwrap();
    fs::write(topic.join("00000000000000000001.jsonl"), last + "{\"torn").unwrap();
    let committed = format!(r#"{{"segments":{{"lab.public.t":{{"file":"00000000000000000001.jsonl","length":{length}}}}}}}"#);
    fs::write(folder.path().join("committed.json"), committed).unwrap();

    let events = Events::read(folder.path(), "lab");
    let ids: Vec<&str> = events.of(KEYED).iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, ["lab:7:1:0/1:0", "lab:7:1:0/2:0"]);
    assert_eq!(events.since(&Events::default()).of(KEYED).len(), 2);
    assert!(Events::read(TempDir::new().unwrap().path(), "lab").topics().next().is_none(), "nothing is committed yet");
}

#[test]
fn a_fold_puts_removes_truncates_and_carries_unchanged_values_along() {
    let with = |more: &[&[String]]| texts(&[&[put(1, "0", "c", 1, "a")], more.concat().as_slice()].concat());
    let same = event(2, "0", "u", r#"{"id":1}"#, r#"{"id":1}"#, r#"["text"]"#);
    assert_eq!(with(&[]), [r#""a""#]);
    assert_eq!(with(&[&[put(2, "0", "u", 1, "b")]]), [r#""b""#]);
    assert_eq!(with(&[&[same]]), [r#""a""#]);
    assert!(with(&[&removed(2, "0", 1)]).is_empty());
    assert!(with(&[&[event(2, "0", "t", "null", "null", "null")]]).is_empty());
    let moved = event(2, "0.2", "c", r#"{"id":9}"#, r#"{"id":9}"#, r#"["text"]"#);
    assert_eq!(with(&[&removed(2, "0", 1), &[moved]]), [r#""a""#], "a key change carries what it leaves out");
}

#[test]
fn events_that_do_not_follow_from_those_before_are_seen() {
    let check = |lines: &[String]| is_seen(|| drop(texts(lines)));
    assert!(!check(&[put(1, "0", "c", 1, "a"), put(2, "0", "u", 1, "b")]));
    assert!(check(&[put(1, "0", "c", 1, "a"), put(2, "0", "c", 1, "b")]), "created twice");
    assert!(check(&[put(1, "0", "u", 1, "a")]), "updated and never created");
    assert!(check(&removed(1, "0", 1)), "deleted and never created");
}

#[test]
fn repeated_ids_falling_orders_and_changed_pasts_are_seen() {
    let (first, second) = (put(1, "0", "c", 1, "a"), put(2, "0", "u", 1, "b"));
    let all = read(&[(KEYED, &[first.clone(), second.clone()])]);
    all.assert_no_duplicate_ids();
    all.assert_order_rises_per_key();
    assert!(is_seen(|| read(&[(KEYED, &[first.clone(), first.clone()])]).assert_no_duplicate_ids()));
    assert!(is_seen(|| read(&[(KEYED, &[second.clone(), first.clone()])]).assert_order_rises_per_key()));
    assert_eq!(all.since(&read(&[(KEYED, std::slice::from_ref(&first))])).of(KEYED).len(), 1);
    assert!(is_seen(|| drop(all.since(&read(&[(KEYED, std::slice::from_ref(&second))])))));
}

#[test]
fn lost_repeated_and_torn_changes_of_a_ledger_are_seen() {
    let entry = |txn: u32, n: u32, of: u32| {
        let key = format!(r#"{{"writer":1,"txn":{txn},"n":{n}}}"#);
        event(txn, &n.to_string(), "c", &key, &format!(r#"{{"writer":1,"txn":{txn},"n":{n},"of":{of}}}"#), "null")
    };
    let line = |txn: u32, op: &str, version: u32| {
        event(txn, "5", op, r#"{"id":8}"#, &format!(r#"{{"id":8,"line":8,"version":{version},"payload":null}}"#), "null")
    };
    let holds = |entries: &[String], lines: &[String]| {
        let events = read(&[("public.ledger", entries), ("public.line", lines)]);
        !is_seen(|| events.assert_ledger_holds())
    };
    let (entries, lines) = ([entry(1, 0, 2), entry(2, 0, 2), entry(3, 0, 2)], [line(1, "c", 1), line(2, "u", 2), line(3, "u", 3)]);
    assert!(holds(&entries, &lines));
    assert!(!holds(&entries, &lines[..2]), "a change of the last transaction is lost");
    assert!(!holds(&[&entries[..1], &entries[2..]].concat(), &[&lines[..1], &lines[2..]].concat()), "a transaction is lost");
    assert!(!holds(&[entry(1, 0, 3), entry(1, 1, 3)], &[]), "a transaction is torn");
    assert!(!holds(&entries, &[line(1, "c", 1), line(2, "u", 2), line(3, "u", 2)]), "a version comes twice");
}

#[test]
fn a_ledger_is_complete_once_its_tables_and_transactions_are_there() {
    let postgres = Postgres::start();
    let mut ledger = Ledger::create(&postgres);
    let line = |id: u32, version: u32| {
        let after = format!(r#"{{"id":{id},"line":{id},"version":{version},"payload":null}}"#);
        event(1, &id.to_string(), "r", &format!(r#"{{"id":{id}}}"#), &after, "null").replace(r#""txId":1"#, r#""txId":null"#)
    };
    let mut lines: Vec<String> = (0..4).map(|id| line(id, 0)).collect();
    let before = read(&[("public.line", &lines)]);
    before.assert_ledger_complete(&postgres, &Committed::default());
    before.assert_ledger_rebuilt(&postgres);

    let round = ledger.start(1, Duration::ZERO);
    wait::until(Duration::from_secs(30), "the writer has committed", || round.commits() > 10);
    let mut committed = Committed::default();
    round.stop_into(&mut committed);
    assert!(is_seen(|| before.assert_ledger_rebuilt(&postgres)), "the tables have moved on");
    postgres.sql("TRUNCATE ledger, line");
    assert!(is_seen(|| read(&[]).assert_ledger_complete(&postgres, &committed)), "no transaction was delivered");
    read(&[]).assert_ledger_rebuilt(&postgres);

    lines = [line(0, 2), line(1, 1).replace(r#""line":1"#, r#""line":0"#)].to_vec();
    postgres.sql("INSERT INTO line VALUES (0, 0, 2), (1, 0, 1)");
    assert!(is_seen(|| read(&[("public.line", &lines)]).assert_ledger_rebuilt(&postgres)), "a version falls");
}

#[test]
fn a_table_of_all_kinds_of_values_is_compared_digit_by_digit() {
    let postgres = Postgres::start();
    postgres.sql(
        "CREATE TABLE t (id bigint PRIMARY KEY, n numeric, f float8, b bool, s text, j jsonb, at timestamptz, \"local\" timestamp, day date, raw bytea,
                         list int[], names text[], none text, twice bigint GENERATED ALWAYS AS (id * 2) STORED);
         INSERT INTO t VALUES (9007199254740993, 1.10, 0.1, true, E'\"\\n', '{\"a\":[1.0,null]}', '2024-01-02 03:04:05.678901+00', '2024-01-02 03:04:05', '2024-01-02',
                               '\\x00ff', '{1,null}', '{a,\"b c\"}', null)",
    );
    let row = r#"{"id":9007199254740993,"n":"1.10","f":0.1,"b":true,"s":"\"\n","j":{"a": [1.0, null]},"at":"2024-01-02T03:04:05.678901Z","local":"2024-01-02T03:04:05","day":"2024-01-02","raw":"AP8=","list":[1,null],"names":["a","b c"],"none":null}"#;
    let equals = |row: &str| {
        let events = read(&[(KEYED, &[event(1, "0", "c", r#"{"id":9007199254740993}"#, row, "null")])]);
        !is_seen(|| events.assert_equals_table(&postgres, KEYED))
    };
    assert!(equals(row));
    assert!(!equals(&row.replace(r#""id":9007199254740993"#, r#""id":9007199254740992"#)), "rounded past 2^53");
    assert!(!equals(&row.replace(r#""1.10""#, r#""1.1""#)), "a digit less");
    assert!(!equals(&row.replace(r#","none":null"#, "")), "a column less");
    assert!(is_seen(|| read(&[]).assert_equals_table(&postgres, KEYED)), "a row is missing");
}

#[test]
fn rows_without_a_key_are_counted() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (1)");
    let row = |txn| event(txn, "0", "c", "null", r#"{"a":1}"#, "null");
    read(&[(KEYED, &[row(1), row(2)])]).assert_equals_table(&postgres, KEYED);
    assert!(is_seen(|| read(&[(KEYED, &[row(1)])]).assert_equals_table(&postgres, KEYED)));
}
