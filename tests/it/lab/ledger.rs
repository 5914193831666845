//! A workload whose events prove by themselves that nothing was lost, repeated, torn or put out of order.
//!
//! Each transaction of a writer adds rows to `ledger`, every one of which says who wrote it, in which transaction, and
//! how many events (`of`) the whole transaction is to become; and it changes rows of `line`, where each change of
//! a line raises its `version` by one, whatever key the line has at the time. Lines are inserted, updated, moved to
//! another key, deleted and inserted again; some carry a text that is stored out of line and often left unchanged.
//! Some transactions and savepoints are rolled back and must never be seen.

mod check;
mod plan;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use self::writer::Writer;
use super::postgres::Postgres;
use super::random;

/// Of one round: some ten seconds of all writers.
const FULL_SPEED_COMMITS: u64 = 10_000;
const SLOWLY: Duration = Duration::from_millis(20);

/// Lines that all writers change.
const SHARED_LINES: u32 = 4;

/// Lines that only one writer changes, for each, if not said: few, so that each is changed often.
const OWN_LINES: u32 = 8;

/// The tables of the workload.
pub(crate) struct Ledger {
    url: String,
    /// Writers of all rounds, which never share a number.
    writers: u32,
    own_lines: u32,
}

/// Writers at work.
pub(crate) struct Round {
    stop: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    writers: Vec<JoinHandle<(u32, Vec<u32>)>>,
}

/// Per writer, the transactions that it committed, in their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Committed(BTreeMap<u32, Vec<u32>>);

impl Committed {
    /// Writer and transaction number of each.
    pub(crate) fn transactions(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().flat_map(|(writer, transactions)| transactions.iter().map(|txn| (*writer, *txn)))
    }
}

impl Ledger {
    /// Makes the tables in the schema `public`.
    pub(crate) fn create(postgres: &Postgres) -> Self {
        let session = postgres.session();
        session.sql("CREATE TABLE ledger (writer int, txn int, n int, \"of\" int NOT NULL, PRIMARY KEY (writer, txn, n))");
        session.sql("CREATE TABLE line (id int PRIMARY KEY, line int NOT NULL, version int NOT NULL, payload text)");
        // Out of line whenever it is large, however well it compresses.
        session.sql("ALTER TABLE line ALTER payload SET STORAGE EXTERNAL");
        session.sql(&format!("INSERT INTO line SELECT i, i, 0 FROM generate_series(0, {SHARED_LINES} - 1) i"));
        Self { url: postgres.url_superuser("shop"), writers: 0, own_lines: OWN_LINES }
    }

    /// Gives each writer so many lines of its own, at most 500.
    pub(crate) fn with_own_lines(self, own_lines: u32) -> Self {
        Self { own_lines, ..self }
    }

    /// Starts writers that pause between two transactions (zero: full speed) until they are stopped. On a machine that stalls they
    /// would fill it: past [`FULL_SPEED_COMMITS`] they go on slowly.
    pub(crate) fn start(&mut self, writers: u32, pause: Duration) -> Round {
        let (stop, commits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let seed = random::seed();
        let spawn = |number| {
            let mut writer = Writer::new(number, seed, self.url.clone(), self.own_lines);
            let (stop, commits) = (Arc::clone(&stop), Arc::clone(&commits));
            let work = move || {
                while !stop.load(Ordering::Relaxed) {
                    commits.fetch_add(u64::from(writer.write_one()), Ordering::Relaxed);
                    let is_much = commits.load(Ordering::Relaxed) > FULL_SPEED_COMMITS;
                    thread::sleep(if is_much { pause.max(SLOWLY) } else { pause });
                }
                writer.finish()
            };
            thread::Builder::new().name(format!("writer {number}")).spawn(work).expect("a thread starts")
        };
        let numbers = self.writers + 1..=self.writers + writers;
        self.writers += writers;
        Round { writers: numbers.map(spawn).collect(), stop, commits }
    }
}

impl Round {
    /// Transactions committed so far.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Lets the writers finish their transactions, for which the server has to run, and adds what they committed.
    pub(crate) fn stop_into(mut self, committed: &mut Committed) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.writers.drain(..).map(|writer| writer.join().expect("a writer does not panic"));
        committed.0.extend(ended.filter(|(_, transactions)| !transactions.is_empty()));
    }
}

impl Drop for Round {
    /// A failed test leaves its writers; one that waits for a stopped server gives up by itself.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
