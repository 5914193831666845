//! Tables read and compared while several writers change them at full speed: rows inserted, changed, moved to other
//! keys, deleted, with texts that are stored out of line and left unchanged.

use std::thread;
use std::time::Duration;

use super::lab::ledger::{Committed, Ledger};
use super::lab::postgres::Postgres;
use super::lab::random::{self, Random};
use super::lab::share;
use super::lab::walgate::{SLOT, Walgate};

const WRITERS: u32 = 4;

/// Rows that nobody changes while the service runs; some vanish while the log is lost.
const QUIET_ROWS: u32 = 10_000;

#[test]
fn a_load_beside_writers_at_full_speed_ends_with_what_the_tables_hold() {
    let mut random = Random::seeded(random::seed());
    for _ in 0..share(2) {
        let mut scene = Scene::new(&mut random);
        scene.beside_writers(Walgate::start_again);
    }
}

#[test]
fn a_rebuild_beside_writers_at_full_speed_ends_with_what_the_tables_hold() {
    let mut random = Random::seeded(random::seed());
    let mut scene = Scene::loaded(&mut random);
    for _ in 0..share(3) {
        scene.lose_log();
        scene.beside_writers(Walgate::start_again);
    }
}

#[test]
fn a_rebuild_killed_at_random_moments_beside_writers_ends_with_what_the_tables_hold() {
    let mut random = Random::seeded(random::seed());
    let mut scene = Scene::loaded(&mut random);
    for _ in 0..share(3) {
        scene.lose_log();
        scene.beside_writers(|walgate| {
            walgate.start_again();
            for _ in 0..8 {
                thread::sleep(Duration::from_millis(50 + u64::from(random.below(700))));
                walgate.kill();
                walgate.start_again();
            }
        });
    }
}

#[test]
fn a_log_lost_again_and_again_during_a_rebuild_beside_writers_ends_with_what_the_tables_hold() {
    let mut random = Random::seeded(random::seed());
    let mut scene = Scene::loaded(&mut random);
    for _ in 0..share(2) {
        scene.lose_log();
        let source = scene.postgres.session();
        scene.beside_writers(|walgate| {
            walgate.start_again();
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(200 + u64::from(random.below(1_000))));
                walgate.kill();
                source.sql(&format!(
                    "SELECT pg_drop_replication_slot('{SLOT}') FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND NOT active"
                ));
                walgate.start_again();
            }
        });
    }
}

/// A server with a ledger of many lines, and the service on it, stopped.
struct Scene {
    postgres: Postgres,
    ledger: Ledger,
    walgate: Walgate,
    losses: u32,
}

impl Scene {
    fn new(random: &mut Random) -> Self {
        let postgres = Postgres::start();
        let ledger = Ledger::create(&postgres).with_own_lines(200);
        postgres.sql(&format!("INSERT INTO ledger SELECT 0, n, 0, 1 FROM generate_series(1, {QUIET_ROWS}) n"));
        let chunk = format!("{}KiB", 32 + random.below(225));
        eprintln!("chunks of {chunk}");
        let walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", chunk).set("rebuild.max_per_hour", 1000).prepare();
        Self { postgres, ledger, walgate, losses: 0 }
    }

    fn loaded(random: &mut Random) -> Self {
        let mut scene = Self::new(random);
        scene.beside_writers(Walgate::start_again);
        scene
    }

    /// Rows are changed, and some of the quiet ones vanish, of which the log is lost.
    fn lose_log(&mut self) {
        self.losses += 1;
        let round = self.ledger.start(WRITERS, Duration::ZERO);
        self.postgres.sql(&format!("DELETE FROM ledger WHERE writer = 0 AND txn % 7 = {}", self.losses % 7));
        self.postgres.lose_slot(SLOT);
        round.stop_into(&mut Committed::default());
    }

    /// Starts the service by `start` beside writers, and looks at what it delivered once it has read all tables.
    fn beside_writers(&mut self, start: impl FnOnce(&mut Walgate)) {
        let round = self.ledger.start(WRITERS, Duration::ZERO);
        start(&mut self.walgate);
        self.walgate.wait_for_state("streaming");
        let commits = round.commits();
        round.stop_into(&mut Committed::default());
        self.walgate.wait_until_caught_up(&self.postgres);
        self.walgate.wait_until_rows_are_whole();
        assert!(self.walgate.stop().success());
        eprintln!("{commits} transactions were committed meanwhile");
        self.walgate.events().assert_ledger_rebuilt(&self.postgres);
    }
}
