//! Tables of every kind: loaded, streamed and rebuilt, subscribers hold what the table holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::lab::events::{Event, Events};
use super::lab::postgres::Postgres;
use super::lab::walgate::{Plan, SLOT, Walgate};

mod altered;
mod incomplete;
mod key_gone;
mod keyless;
mod keys;
mod large;
mod published;
mod partitions;
mod truncated;

/// Of statements that run as long as something takes: some seconds.
const FULL_SPEED_ROUNDS: u32 = 10_000;
const SLOWLY: Duration = Duration::from_millis(20);

/// Started and loaded.
fn loaded(plan: Plan, postgres: &Postgres) -> Walgate {
    let mut walgate = plan.start();
    walgate.wait_for_rebuild(1);
    walgate.wait_until_caught_up(postgres);
    walgate
}

/// The events so far, which give the table.
#[track_caller]
fn events(walgate: &mut Walgate, postgres: &Postgres, table: &str) -> Events {
    walgate.wait_until_caught_up(postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_equals_table(postgres, table);
    events
}

/// Runs `change` with the log lost; the rebuild gives the table again, and sends these events.
#[track_caller]
fn rebuilt(walgate: &mut Walgate, postgres: &Postgres, table: &str, change: &str) -> Vec<Event> {
    walgate.wait_until_caught_up(postgres);
    assert!(walgate.stop().success());
    let before = walgate.events();
    postgres.sql(change);
    postgres.lose_slot(SLOT);
    walgate.start_again();
    walgate.wait_for_state("streaming");
    events(walgate, postgres, table).since(&before).of(table).to_vec()
}

/// The operations of events, in order; `-` for a tombstone.
fn ops(events: &[Event]) -> String {
    events.iter().map(|event| event.op().unwrap_or("-")).collect()
}

/// Runs the statements that `write` gives for 0, 1, 2, … one after the other, as long as `work` takes.
fn meanwhile<R>(postgres: &Postgres, write: impl Fn(u32) -> String + Sync, work: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let session = postgres.session();
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) {
                session.sql(&write(rounds));
                rounds += 1;
                // A machine that stalls is not to be filled.
                if rounds > FULL_SPEED_ROUNDS {
                    thread::sleep(SLOWLY);
                }
            }
            rounds
        });
        // Where the work fails, too, the writer ends: the scope waits for it.
        let ends_writer = EndsWriter(&done);
        let result = work();
        drop(ends_writer);
        assert!(writer.join().expect("the writer ends") > 0);
        result
    })
}

struct EndsWriter<'d>(&'d AtomicBool);

impl Drop for EndsWriter<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
