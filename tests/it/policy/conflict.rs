//! The source was restored to an older state and has gone on otherwise: the stream does not repeat what was delivered.

use super::{assert_whole, check_start, rebuilds, server, stopped, wait_for_rebuild_of};
use crate::lab::postgres::Postgres;
use crate::lab::walgate::{PATIENCE, Walgate};

#[test]
fn a_transaction_delivered_in_part_that_does_not_come_again_is_undone_by_a_rebuild() {
    let (postgres, mut walgate) = delivered_in_part_and_gone("rebuild");
    walgate.start_again();
    wait_for_rebuild_of(&mut walgate, "conflict");
    walgate.wait_until_caught_up(&postgres);
    assert_whole(&walgate, &postgres);
    assert_eq!(rebuilds(&walgate), ["first_start", "conflict"]);
}

#[test]
fn a_transaction_delivered_in_part_that_does_not_come_again_is_left_to_a_person_where_that_is_asked_for() {
    let (_postgres, mut walgate) = delivered_in_part_and_gone("stop");
    let before = walgate.events();
    check_start(&mut walgate, 20, &["`rebuild.on_conflict` is `stop`", "run `walgate rebuild`"]);
    assert_eq!(walgate.events().of("public.item"), before.of("public.item"));
}

fn delivered_in_part_and_gone(on_conflict: &str) -> (Postgres, Walgate) {
    let mut postgres = server();
    let plan = Walgate::of(&postgres).set("batch.transaction_bytes_max", "16KiB").set("rebuild.on_conflict", on_conflict);
    let mut walgate = stopped(plan, &postgres);
    postgres.stop_fast();
    let backup = postgres.back_up();
    postgres.restart();
    postgres.sql("INSERT INTO item SELECT n, repeat('x', 500) FROM generate_series(1001, 1500) n");
    walgate.start_again_with_fault("deliver.applied*4");
    walgate.wait_exit(PATIENCE);
    let delivered = walgate.events().of("public.item").len();
    assert!((101..600).contains(&delivered), "a part of the transaction is delivered: {delivered} events");
    postgres.stop_fast();
    postgres.restore(&backup);
    postgres.restart();
    // More log than was there before: its end alone does not tell.
    postgres.sql("INSERT INTO item SELECT n, repeat('y', 500) FROM generate_series(5001, 6500) n");
    (postgres, walgate)
}
