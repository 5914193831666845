//! One transaction of a writer, drawn before it runs: its statements, how many events it becomes, and what its lines
//! are after it.

use super::super::random::Random;
use super::SHARED_LINES;

/// A writer's lines and keys lie apart from those of others; a line has two keys to move between.
const KEYS_PER_WRITER: u32 = 1_000;

/// Bytes of a text that is stored out of line (from 2 kB on).
const LARGE: u32 = 4_000;

/// Rows that one transaction adds to the ledger at most.
const LEDGER_ROWS_MAX: u32 = 5;

/// Where a line of a writer stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    version: u32,
    /// `None` while it is deleted.
    id: Option<u32>,
}

impl Line {
    pub(super) const NEW: Self = Self { version: 0, id: None };
}

/// A transaction that is to be run.
pub(super) struct Plan {
    pub(super) statements: String,
    /// Whether it ends with COMMIT, not with ROLLBACK.
    pub(super) commits: bool,
    /// The writer's lines once it is committed.
    pub(super) lines: Vec<Line>,
}

impl Plan {
    pub(super) fn draw(random: &mut Random, writer: u32, txn: u32, lines: &[Line]) -> Self {
        let mut lines = lines.to_vec();
        let mut changes = Vec::new();
        let ledger_rows = 1 + random.below(LEDGER_ROWS_MAX);
        let mut events = ledger_rows;
        for _ in 0..random.below(4) {
            let index = random.below(u32::try_from(lines.len()).expect("few lines"));
            let line = lines.get_mut(usize::try_from(index).expect("a small number")).expect("the line exists");
            events += change(random, writer * KEYS_PER_WRITER + index, line, &mut changes);
        }
        if random.one_in(8) {
            changes.push(format!("SAVEPOINT s; INSERT INTO ledger VALUES ({writer}, {txn}, -1, 0); ROLLBACK TO s"));
        }
        if random.one_in(2) {
            // Last, and one at most: the lock on it is held shortly, and no two writers can wait for each other.
            changes.push(format!("UPDATE line SET version = version + 1 WHERE id = {}", random.below(SHARED_LINES)));
            events += 1;
        }
        let rows: Vec<String> = (0..ledger_rows).map(|n| format!("({writer}, {txn}, {n}, {events})")).collect();
        let commits = !random.one_in(10);
        let end = if commits { "COMMIT" } else { "ROLLBACK" };
        let statements = format!("BEGIN; INSERT INTO ledger VALUES {}; {}; {end}", rows.join(", "), changes.join("; "));
        Self { statements, commits, lines }
    }
}

/// Draws a change of a line and returns the number of its events, tombstones left out.
fn change(random: &mut Random, number: u32, line: &mut Line, changes: &mut Vec<String>) -> u32 {
    let next = line.version + 1;
    let Some(id) = line.id else {
        let large = if random.one_in(2) { LARGE } else { 4 };
        changes.push(format!("INSERT INTO line VALUES ({number}, {number}, {next}, repeat('{}', {large}))", next % 10));
        *line = Line { version: next, id: Some(number) };
        return 1;
    };
    match random.below(8) {
        0 => {
            changes.push(format!("DELETE FROM line WHERE id = {id}"));
            line.id = None;
            1
        }
        1 | 2 => {
            let other = if id == number { number + KEYS_PER_WRITER / 2 } else { number };
            changes.push(format!("UPDATE line SET id = {other}, version = {next} WHERE id = {id}"));
            *line = Line { version: next, id: Some(other) };
            2
        }
        3 => {
            changes.push(format!("UPDATE line SET version = {next}, payload = repeat('{}', {LARGE}) WHERE id = {id}", next % 10));
            line.version = next;
            1
        }
        _ => {
            changes.push(format!("UPDATE line SET version = {next} WHERE id = {id}"));
            line.version = next;
            1
        }
    }
}
