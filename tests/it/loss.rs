//! The log is lost beneath a running service: it notices and rebuilds by itself, without a restart.

use super::lab::json::Json;
use super::lab::postgres::Postgres;
use super::lab::walgate::{SLOT, Walgate};
use super::rebuild::{assert_only_the_differences, change, table};

#[test]
fn a_slot_lost_while_the_service_lags_behind_is_rebuilt_without_a_restart() {
    check(|postgres, walgate| {
        walgate.suspend();
        change(postgres);
        postgres.lose_slot(SLOT);
        walgate.go_on();
    });
}

#[test]
fn a_slot_dropped_beneath_the_service_is_rebuilt_without_a_restart() {
    check(|postgres, walgate| {
        walgate.suspend();
        change(postgres);
        // Suspended, the service cannot take the slot again between the two.
        postgres.sql(&format!(
            "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = '{SLOT}'; \
             SELECT pg_drop_replication_slot('{SLOT}')"
        ));
        walgate.go_on();
    });
}

fn check(lose: impl FnOnce(&Postgres, &Walgate)) {
    let postgres = Postgres::start();
    table(&postgres);
    let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "64KiB").start();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    let before = walgate.events();
    lose(&postgres, &walgate);
    walgate.wait_for("a second rebuild has ended", |status| {
        status.get("rebuild").is_none() && status.get("last_rebuild").and_then(|last| last.get("id")).and_then(Json::as_u64) == Some(2)
    });
    walgate.wait_until_caught_up(&postgres);
    assert_only_the_differences(&before, &walgate.events(), &postgres);
    assert!(walgate.ended().is_none());
}
