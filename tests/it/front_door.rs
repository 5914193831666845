//! What a person sees first: the configuration that comes with the program, and its checks.

use std::time::Duration;

use super::lab::json::Json;
use super::lab::postgres::Postgres;
use super::lab::wait;
use super::lab::walgate::{SLOT, Walgate};

#[test]
fn check_finds_nothing_wrong_with_a_source_that_is_set_up_and_names_a_missing_publication() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY)");
    let walgate = Walgate::of(&postgres).prepare();
    let output = walgate.run(&["check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let output = walgate.run(&["check", "--set", "source.create=false"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("CREATE PUBLICATION"));
}

#[test]
fn a_wrong_key_ends_with_status_2_and_names_it() {
    let postgres = Postgres::start();
    let walgate = Walgate::of(&postgres).prepare();
    let output = walgate.run(&["run", "--set", "source.slott=x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean `source.slot`"));
}

#[test]
fn a_second_service_on_the_same_state_folder_is_refused() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY)");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    assert_eq!(walgate.run(&["run"]).status.code(), Some(12));
}

#[test]
fn check_names_each_missing_right_with_the_statement_that_mends_it_and_changes_nothing() {
    let postgres = Postgres::start();
    postgres.sql(
        "CREATE ROLE plain LOGIN; CREATE TABLE item (id int PRIMARY KEY); CREATE TABLE secret (id int PRIMARY KEY); CREATE TABLE log (line text); \
         CREATE PUBLICATION part FOR TABLE secret; ALTER TABLE secret ENABLE ROW LEVEL SECURITY; \
         CREATE TABLE split (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE split_1 PARTITION OF split FOR VALUES FROM (0) TO (9); \
         ALTER PUBLICATION part ADD TABLE split; ALTER PUBLICATION part SET (publish_via_partition_root = true); GRANT SELECT ON secret TO plain",
    );
    let url = postgres.url_socket().replacen("walgate@", "plain@", 1);
    let walgate = Walgate::of(&postgres).set("source.url", url).set("source.publication", "part").prepare();
    let output = walgate.run(&["check"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for expect in [
        "ALTER ROLE \"plain\" REPLICATION",
        "ALTER ROLE \"plain\" BYPASSRLS",
        "GRANT SELECT ON \"public\".\"split_1\" TO \"plain\"",
        "\"public\".\"log\" has no usable replica identity and is left out",
        "ALTER PUBLICATION \"part\" ADD TABLE ONLY \"public\".\"item\"",
    ] {
        assert!(said.contains(expect), "`{expect}` is missing from:\n{said}");
    }
    assert_eq!(postgres.sql("SELECT count(*) FROM pg_replication_slots").one(), "0");
    assert!(!walgate.state_directory().exists() && !walgate.events_directory().exists());
}

#[test]
fn a_rebuild_ends_with_its_counts_beside_a_service_and_without_one() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY); INSERT INTO item SELECT generate_series(1, 100)");
    let mut walgate = Walgate::of(&postgres).set("rebuild.automatic", false).start();
    walgate.wait_for_state("streaming");
    let said = rebuild(&walgate, &["rebuild"]);
    assert!(said.contains("ended: rows 100, read 0, updated 0, deleted 0, equal 100, left to stream 0"), "{said}");
    assert!(walgate.stop().success());
    assert_eq!(walgate.run(&["rebuild", "--detach"]).status.code(), Some(20));
    let said = rebuild(&walgate, &["rebuild", "--table", "public.item", "--resend", "--yes"]);
    assert!(said.contains("ended: rows 100, read 100, updated 0, deleted 0, equal 0, left to stream 0"), "{said}");
    // One that is due is what is asked for, and needs no leave.
    postgres.sql("DELETE FROM item WHERE id <= 10");
    postgres.lose_slot(SLOT);
    let said = rebuild(&walgate, &["rebuild"]);
    assert!(said.contains("ended: rows 90, read 0, updated 0, deleted 10, equal 90, left to stream 0"), "{said}");
    walgate.events().assert_equals_table(&postgres, "public.item");
    let status = walgate.run(&["status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("state          stopped"));
}

#[track_caller]
fn rebuild(walgate: &Walgate, arguments: &[&str]) -> String {
    let output = walgate.run(arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn a_service_stopped_while_its_slot_is_made_leaves_nothing_behind_at_the_source() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY)");
    let writer = postgres.session();
    writer.sql("BEGIN; INSERT INTO item VALUES (1)");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for("it makes its slot", |status| {
        status.get("waiting_for").and_then(Json::as_text).is_some_and(|what| what.contains("the replication slot to be made"))
    });
    assert!(walgate.stop().success());
    let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'walgate lab'";
    wait::until(Duration::from_secs(10), "its backends have ended", || postgres.sql(left).one() == "0");
    assert_eq!(postgres.sql("SELECT count(*) FROM pg_replication_slots").one(), "0");
    drop(writer);
}
