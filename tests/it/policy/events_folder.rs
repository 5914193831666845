//! The events folder is deleted, damaged, shortened or full.

use std::fs::{self, OpenOptions};

use super::{assert_whole, check_start, rebuilds, server, stopped, wait_for_rebuild_of, wait_for_waiting};
use crate::lab::postgres::Postgres;
use crate::lab::room::Room;
use crate::lab::walgate::Walgate;

#[test]
fn a_deleted_events_folder_is_filled_again_by_a_rebuild() {
    let (postgres, mut walgate) = stopped_service();
    fs::remove_dir_all(walgate.events_directory()).expect("a folder can be removed");
    postgres.sql("DELETE FROM item WHERE id <= 10; UPDATE item SET name = 'changed' WHERE id = 11");
    walgate.start_again();
    wait_for_rebuild_of(&mut walgate, "sink_lost_data");
    walgate.wait_until_caught_up(&postgres);
    assert_whole(&walgate, &postgres);
    assert_eq!(rebuilds(&walgate), ["sink_lost_data"]);
}

#[test]
fn a_damaged_record_of_what_is_committed_is_not_guessed() {
    let (_postgres, mut walgate) = stopped_service();
    let record = walgate.events_directory().join("committed.json");
    let half = fs::metadata(&record).expect("something is committed").len() / 2;
    OpenOptions::new().write(true).open(&record).and_then(|file| file.set_len(half)).expect("a file can be cut");
    check_start(
        &mut walgate,
        11,
        &["committed.json` cannot be understood", "restore the file from a copy, or move the events folder away"],
    );
    assert_eq!(fs::metadata(&record).expect("it is there").len(), half, "it is left as it is");
}

#[test]
fn a_segment_shorter_than_committed_is_named() {
    let (_postgres, mut walgate) = stopped_service();
    let segment = walgate.events_directory().join("lab.public.item/00000000000000000000.jsonl");
    OpenOptions::new().write(true).open(&segment).and_then(|file| file.set_len(100)).expect("a file can be cut");
    check_start(
        &mut walgate,
        11,
        &["00000000000000000000.jsonl` is 100 bytes long, but", "committed events are gone: restore the events folder"],
    );
}

#[test]
fn a_full_disk_is_waited_for_and_nothing_is_lost_or_repeated() {
    let postgres = server();
    let mut walgate = Walgate::of(&postgres).set("retry.backoff_max", "500ms").prepare();
    let room = Room::of("512k", &walgate.events_directory());
    walgate.start_again();
    walgate.wait_for_rebuild(1);
    for round in 0..3 {
        postgres.sql(&format!("INSERT INTO item SELECT {round} * 1000 + n, repeat('x', 500) FROM generate_series(1001, 1300) n"));
    }
    wait_for_waiting(&mut walgate, "No space left on device");
    room.resize("64m");
    walgate.wait_until_caught_up(&postgres);
    assert_whole(&walgate, &postgres);
    assert_eq!(walgate.events().of("public.item").len(), 1000);
    assert!(walgate.stop().success());
}

fn stopped_service() -> (Postgres, Walgate) {
    let postgres = server();
    let walgate = stopped(Walgate::of(&postgres), &postgres);
    (postgres, walgate)
}
