//! One writer: runs transactions, and finds out what became of one whose connection was lost.

use std::time::Duration;

use super::super::random::Random;
use super::super::sql::{Session, describe};
use super::super::wait;
use super::plan::{Line, Plan};

/// For a server that was crashed to come back.
const PATIENCE: Duration = Duration::from_mins(2);

pub(super) struct Writer {
    number: u32,
    url: String,
    random: Random,
    session: Option<Session>,
    lines: Vec<Line>,
    /// Of the transaction tried last.
    txn: u32,
    committed: Vec<u32>,
}

impl Writer {
    pub(super) fn new(number: u32, seed: u64, url: String, own_lines: u32) -> Self {
        let random = Random::seeded(seed ^ u64::from(number));
        let lines = (0..own_lines).map(|_| Line::NEW).collect();
        Self { number, url, random, session: None, lines, txn: 0, committed: Vec::new() }
    }

    /// Runs one transaction and says whether it was committed.
    pub(super) fn write_one(&mut self) -> bool {
        self.txn += 1;
        let plan = Plan::draw(&mut self.random, self.number, self.txn, &self.lines);
        let session = self.session.take().unwrap_or_else(|| self.connect());
        let committed = match session.run(&plan.statements) {
            Ok(_) => {
                self.session = Some(session);
                plan.commits
            }
            // Class 57: the server was shut down, crashed, or an administrator ended the connection.
            Err(error) if error.code().is_none_or(|code| code.code().starts_with("57")) => self.was_committed(),
            Err(error) => panic!("`{}` fails: {}", plan.statements, describe(&error)),
        };
        if committed {
            self.lines = plan.lines;
            self.committed.push(self.txn);
        }
        committed
    }

    pub(super) fn finish(self) -> (u32, Vec<u32>) {
        (self.number, self.committed)
    }

    /// Looks whether the transaction tried last is there.
    fn was_committed(&mut self) -> bool {
        let session = self.connect();
        let (writer, txn) = (self.number, self.txn);
        let found = session.sql(&format!("SELECT count(*) > 0 FROM ledger WHERE writer = {writer} AND txn = {txn}")).one() == "t";
        self.session = Some(session);
        found
    }

    fn connect(&self) -> Session {
        wait::until_some(PATIENCE, "the server is back", || Session::open(&self.url).ok())
    }
}
