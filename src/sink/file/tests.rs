//! The file sink on a real disk. A crash is emulated by what it leaves behind: bytes, segments and folders
//! beyond what is committed, or all of a batch with the record of the one before.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::{collection::vec, prop_assert_eq, proptest};
use tempfile::TempDir;

use super::*;
use crate::sink::example::{batch, progress, table};

const SEGMENT_BYTES: u64 = 200;

fn sink(directory: &Path) -> FileSink {
    FileSink::new(directory.to_owned(), SEGMENT_BYTES, "shop".to_owned(), &[Header::Id])
}

fn opened(directory: &Path) -> FileSink {
    let mut sink = sink(directory);
    sink.open().unwrap();
    sink
}

/// A subscriber that knows INTERFACE only: whole segments before the committed one, and its committed length.
fn read_committed(directory: &Path) -> BTreeMap<String, Vec<u64>> {
    let committed: serde_json::Value = serde_json::from_slice(&fs::read(directory.join("committed.json")).unwrap()).unwrap();
    let topics = committed["segments"].as_object().unwrap();
    let events_of = |topic: &String, last: &serde_json::Value| {
        let mut names: Vec<String> =
            fs::read_dir(directory.join(topic)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let last_name = last["file"].as_str().unwrap();
        let mut events: Vec<u64> = Vec::new();
        for name in names.iter().filter(|name| name.as_str() <= last_name) {
            let mut bytes = fs::read(directory.join(topic).join(name)).unwrap();
            assert_eq!(name.trim_end_matches(".jsonl").parse::<usize>().unwrap(), events.len(), "a segment is named for its first event");
            if name == last_name {
                bytes.truncate(usize::try_from(last["length"].as_u64().unwrap()).unwrap());
            }
            for line in String::from_utf8(bytes).unwrap().lines() {
                let event: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(event["value"]["n"], event["key"]);
                events.push(event["key"].as_u64().unwrap());
            }
        }
        assert_eq!(last["next"].as_u64().unwrap(), events.len() as u64);
        events
    };
    topics.iter().map(|(topic, last)| (topic.clone(), events_of(topic, last))).collect()
}

fn append(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn record(number: u64, tables: &[TableJournal]) -> Committed {
    Committed::Record(Box::new(crate::sink::Record { progress: progress(number), tables: tables.to_vec(), lost: Vec::new() }))
}

#[test]
fn a_new_folder_holds_nothing_and_then_what_was_delivered() {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("deep/events");
    assert_eq!(sink(&directory).open().unwrap(), Committed::Nothing);

    let mut first = opened(&directory);
    let receipt = first.deliver(&batch(&[("a", 1), ("b", 2), ("a", 3)]), &progress(1), &[table("a", 1), table("b", 1)]).unwrap();
    assert_eq!(*receipt.batch(), progress(1).batch);
    first.deliver(&batch(&[]), &progress(2), &[table("a", 2)]).unwrap();
    drop(first);

    assert_eq!(sink(&directory).open().unwrap(), record(2, &[table("a", 2), table("b", 1)]));
    assert_eq!(read_committed(&directory), BTreeMap::from([("a".to_owned(), vec![1, 3]), ("b".to_owned(), vec![2])]));
}

#[test]
fn a_segment_that_has_reached_its_length_is_followed_by_another_named_for_its_first_event() {
    let folder = TempDir::new().unwrap();
    let mut sink = opened(folder.path());
    let events: Vec<(&str, u64)> = (0..20).map(|n| ("a", n)).collect();
    sink.deliver(&batch(&events[..7]), &progress(1), &[]).unwrap();
    sink.deliver(&batch(&events[7..]), &progress(2), &[]).unwrap();
    assert_eq!(read_committed(folder.path())["a"], (0..20).collect::<Vec<u64>>());
    for entry in fs::read_dir(folder.path().join("a")).unwrap() {
        let length = entry.unwrap().metadata().unwrap().len();
        assert!((1..SEGMENT_BYTES + 60).contains(&length), "{length}");
    }
}

#[test]
fn a_second_user_of_the_folder_is_refused_until_the_first_is_gone() {
    let folder = TempDir::new().unwrap();
    let first = opened(folder.path());
    assert!(matches!(sink(folder.path()).open(), Err(SinkError::Locked { .. })));
    drop(first);
    opened(folder.path());
}

#[test]
fn the_events_of_another_stream_are_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    opened(folder.path()).deliver(&batch(&[("a", 1)]), &progress(1), &[]).unwrap();
    let mut other = FileSink::new(folder.path().to_owned(), SEGMENT_BYTES, "shop2".to_owned(), &[]);
    let refused = other.open().unwrap_err().to_string();
    assert!(refused.contains("stream `shop`, not of `shop2`"), "{refused}");
    assert!(matches!(
        other.deliver(
            &batch(&[]),
            &{
                let mut p = progress(2);
                p.stream = "shop2".to_owned();
                p
            },
            &[]
        ),
        Err(SinkError::NotOpen)
    ));
    assert_eq!(read_committed(folder.path())["a"], vec![1]);
}

#[test]
fn lost_data_is_refused_and_nothing_is_cut() {
    let check = |damage: fn(&Path), length: u64| {
        let folder = TempDir::new().unwrap();
        opened(folder.path()).deliver(&batch(&[("a", 1), ("b", 1)]), &progress(1), &[]).unwrap();
        let beyond = folder.path().join("b/00000000000000000000.jsonl");
        append(&beyond, b"beyond");
        let before = fs::read(&beyond).unwrap();
        damage(&folder.path().join("a/00000000000000000000.jsonl"));
        match sink(folder.path()).open() {
            Err(SinkError::LostData { length: found, committed: 50, .. }) => assert_eq!(found, length),
            other => panic!("{other:?}"),
        }
        assert_eq!(fs::read(&beyond).unwrap(), before);
    };
    check(|path| OpenOptions::new().write(true).open(path).unwrap().set_len(11).unwrap(), 11);
    check(|path| fs::remove_file(path).unwrap(), 0);
    check(|path| fs::remove_dir_all(path.parent().unwrap()).unwrap(), 0);
}

#[test]
fn segments_whose_record_is_gone_are_refused_rather_than_removed() {
    let folder = TempDir::new().unwrap();
    opened(folder.path()).deliver(&batch(&[("a", 1)]), &progress(1), &[]).unwrap();
    fs::remove_file(folder.path().join("committed.json")).unwrap();
    assert!(matches!(sink(folder.path()).open(), Err(SinkError::Damaged { .. })));
    assert!(folder.path().join("a/00000000000000000000.jsonl").exists());
}

#[test]
fn a_record_that_cannot_be_understood_is_refused() {
    let check = |text: &str| {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("committed.json"), text).unwrap();
        assert!(matches!(sink(folder.path()).open(), Err(SinkError::Damaged { .. })), "{text}");
    };
    check("");
    check("{}");
    check(r#"{"version":99}"#);
    for (topic, file) in [("../a", "00000000000000000000.jsonl"), ("a", "../b"), ("", "00000000000000000000.jsonl")] {
        let segment = format!(r#"{{"file":"{file}","length":1,"next":1}}"#);
        check(&format!(r#"{{"version":1,"stream":"shop","segments":{{"{topic}":{segment}}},"progress":null,"tables":{{}}}}"#));
    }
}

#[test]
fn a_failed_write_is_settled_by_opening_again() {
    let folder = TempDir::new().unwrap();
    let mut sink = opened(folder.path());
    sink.deliver(&batch(&[("a", 1)]), &progress(1), &[]).unwrap();
    // The disk is full when the record is written: /dev/full says so to every write.
    let new = folder.path().join("committed.json~");
    symlink("/dev/full", &new).unwrap();
    assert!(matches!(sink.deliver(&batch(&[("a", 2), ("c", 2)]), &progress(2), &[]), Err(SinkError::Io { doing: "write to", .. })));
    assert!(matches!(sink.deliver(&batch(&[("a", 2)]), &progress(2), &[]), Err(SinkError::NotOpen)));

    fs::remove_file(&new).unwrap();
    assert_eq!(sink.open().unwrap(), record(1, &[]));
    sink.deliver(&batch(&[("a", 2), ("c", 2)]), &progress(2), &[]).unwrap();
    assert_eq!(read_committed(folder.path()), BTreeMap::from([("a".to_owned(), vec![1, 2]), ("c".to_owned(), vec![2])]));
}

#[test]
fn after_a_failed_synchronisation_only_a_new_process_may_look_again() {
    let folder = TempDir::new().unwrap();
    let mut first = opened(folder.path());
    // /dev/null takes every write and refuses to be synchronised.
    symlink("/dev/null", folder.path().join("committed.json~")).unwrap();
    assert!(matches!(first.deliver(&batch(&[("a", 1)]), &progress(1), &[]), Err(SinkError::Io { doing: "synchronise", .. })));
    fs::remove_file(folder.path().join("committed.json~")).unwrap();
    assert!(matches!(first.deliver(&batch(&[("a", 1)]), &progress(1), &[]), Err(SinkError::Poisoned { .. })));
    assert!(matches!(first.open(), Err(SinkError::Poisoned { .. })));
    assert!(matches!(first.open(), Err(SinkError::Poisoned { .. })));

    assert_eq!(sink(folder.path()).open().unwrap(), Committed::Nothing);
}

#[test]
fn more_topics_than_may_be_open_are_all_served() {
    let folder = TempDir::new().unwrap();
    let mut sink = opened(folder.path());
    let topics: Vec<String> = (0..OPEN_SEGMENTS_MAX * 2 + 3).map(|n| format!("t{n}")).collect();
    let events: Vec<(&str, u64)> = topics.iter().map(|topic| (topic.as_str(), 1)).collect();
    for number in 1..=2 {
        sink.deliver(&batch(&events), &progress(number), &[]).unwrap();
        let State::Open(open) = &sink.state else { panic!("{:?}", sink.state) };
        assert!(open.topics.values().filter(|log| log.is_open()).count() <= OPEN_SEGMENTS_MAX);
    }
    let seen = read_committed(folder.path());
    assert_eq!(seen.len(), topics.len());
    assert!(seen.values().all(|events| *events == [1, 1]));
}

/// What happens after a batch was chosen.
#[derive(Clone, Debug)]
enum Outcome {
    Delivered,
    /// Killed after the rename: delivered, and the process is another one.
    KilledAfter,
    /// Killed before the rename: all is written, the record is still the old one.
    KilledBefore,
    /// Killed while writing: these bytes lie beyond what was committed, and perhaps a later segment and a new topic.
    KilledWhileWriting {
        beyond: Vec<u8>,
        segment: bool,
        topic: bool,
    },
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => proptest::strategy::Just(Outcome::Delivered),
        1 => proptest::strategy::Just(Outcome::KilledAfter),
        2 => proptest::strategy::Just(Outcome::KilledBefore),
        2 => (vec(any::<u8>(), 0..300), any::<bool>(), any::<bool>())
            .prop_map(|(beyond, segment, topic)| Outcome::KilledWhileWriting { beyond, segment, topic }),
    ]
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 64, ..Default::default() })]

    #[test]
    fn a_reader_sees_exactly_the_committed_events_whatever_is_killed(
        steps in vec((vec((0..3_usize, any::<u16>()), 0..12), outcomes()), 1..12),
    ) {
        const TOPICS: [&str; 3] = ["shop.public.a", "shop.public.b", "shop.public.c"];
        let folder = TempDir::new().unwrap();
        let record_path = folder.path().join("committed.json");
        let mut sink = opened(folder.path());
        let mut expect: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut last = Committed::Nothing;
        for (number, (events, outcome)) in (1..).zip(steps) {
            let events: Vec<(&str, u64)> = events.iter().map(|(topic, n)| (TOPICS[*topic], u64::from(*n))).collect();
            let tables = [table("shop.public.a", number)];
            let committed_before = fs::read(&record_path).unwrap();
            if !matches!(outcome, Outcome::KilledWhileWriting { .. }) {
                sink.deliver(&batch(&events), &progress(number), &tables).unwrap();
            }
            match outcome {
                Outcome::Delivered | Outcome::KilledAfter => {
                    for (topic, n) in events {
                        expect.entry(topic.to_owned()).or_default().push(n);
                    }
                    last = record(number, &tables);
                }
                Outcome::KilledBefore => fs::write(&record_path, committed_before).unwrap(),
                Outcome::KilledWhileWriting { ref beyond, segment, topic } => {
                    let CommittedFile { segments, .. } = CommittedFile::parse(&committed_before).unwrap();
                    for (name, last) in &segments {
                        append(&folder.path().join(name).join(&last.file), beyond);
                        if segment {
                            append(&folder.path().join(name).join(format!("{:020}.jsonl", last.next + 1)), beyond);
                        }
                    }
                    if topic && !segments.is_empty() {
                        append(&folder.path().join("shop.public.new/00000000000000000000.jsonl"), beyond);
                    }
                    append(&folder.path().join("committed.json~"), beyond);
                }
            }
            prop_assert_eq!(read_committed(folder.path()), expect.clone());
            if !matches!(outcome, Outcome::Delivered) {
                drop(sink);
                sink = self::sink(folder.path());
                prop_assert_eq!(sink.open().unwrap(), last.clone());
                prop_assert_eq!(read_committed(folder.path()), expect.clone());
            }
        }
    }
}
