//! What a person has to decide: nothing is dropped, nothing delivered, and what to do is said.

use std::fs;

use super::{check_end, check_start, rebuilds, server, stopped, table};
use crate::lab::postgres::Postgres;
use crate::lab::walgate::{SLOT, Walgate};

#[test]
fn a_lost_slot_is_left_to_a_person_where_rebuilds_are_not_automatic() {
    let postgres = server();
    let mut walgate = stopped(Walgate::of(&postgres).set("rebuild.automatic", false), &postgres);
    postgres.lose_slot(SLOT);
    check_start(&mut walgate, 20, &["invalidated the replication slot", "`rebuild.automatic` is off: run `walgate rebuild`"]);
    assert_eq!(postgres.wal_status(SLOT).as_deref(), Some("lost"), "it is not dropped");
    assert!(walgate.run(&["rebuild"]).status.success());
}

#[test]
fn slots_lost_more_often_than_allowed_end_with_the_setting_to_raise() {
    let postgres = server();
    let mut walgate = stopped(Walgate::of(&postgres).set("rebuild.max_per_hour", 1), &postgres);
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_rebuild(2);
    assert!(walgate.stop().success());
    postgres.lose_slot(SLOT);
    check_start(&mut walgate, 20, &["`rebuild.max_per_hour`", "raise `max_slot_wal_keep_size`"]);
    assert_eq!(rebuilds(&walgate), ["first_start", "slot_lost"]);
}

#[test]
fn another_system_at_the_address_is_not_taken_for_the_source() {
    let postgres = server();
    let mut walgate = stopped(Walgate::of(&postgres), &postgres);
    let other = Postgres::new_system().start();
    table(&other);
    walgate.set("source.url", other.url_tcp());
    check_start(&mut walgate, 20, &["the server is system", "correct the address"]);
    assert_eq!(other.sql("SELECT count(*) FROM pg_replication_slots").one(), "0");
}

#[test]
fn a_server_without_logical_log_is_refused_with_the_setting() {
    let postgres = Postgres::with("wal_level = replica").start();
    table(&postgres);
    let mut walgate = Walgate::of(&postgres).start();
    check_end(&mut walgate, 20, &["`wal_level` is `replica`: set it to `logical` and restart PostgreSQL"]);
}

#[test]
fn a_standby_is_refused() {
    let mut postgres = server();
    let mut walgate = stopped(Walgate::of(&postgres), &postgres);
    postgres.stop_fast();
    fs::write(postgres.data().join("standby.signal"), "").expect("the cluster's folder is writable");
    postgres.restart();
    check_start(&mut walgate, 20, &["the server is a standby: connect to the primary"]);
}

#[test]
fn a_publication_dropped_while_running_is_made_again_or_asked_for() {
    let postgres = server();
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_rebuild(1);
    let drop_it = || postgres.sql(&format!("DROP PUBLICATION {SLOT}; UPDATE item SET name = 'unpublished' WHERE id <= 10"));
    drop_it();
    walgate.wait_for_rebuild(2);
    walgate.wait_until_caught_up(&postgres);
    super::assert_whole(&walgate, &postgres);
    assert_eq!(walgate.events().of("public.item").len(), 110, "only the differences are sent");
    assert!(walgate.stop().success());

    walgate.set("source.create", false);
    walgate.start_again();
    walgate.wait_for_state("streaming");
    drop_it();
    check_end(&mut walgate, 20, &[&format!("the publication `{SLOT}` does not exist: run `CREATE PUBLICATION")]);
    assert_eq!(postgres.wal_status(SLOT).as_deref(), Some("reserved"), "the slot is left as it is");
}
