//! A commit that waits for a synchronous standby is in the log, and in the stream, long before it is visible: a table
//! read meanwhile shows its rows as they were.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::lab::json::Json;
use super::lab::postgres::Postgres;
use super::lab::sql::Session;
use super::lab::wait;
use super::lab::walgate::{SLOT, Walgate};
use super::rebuild::table;

const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn a_commit_that_waited_while_the_slot_was_made_is_delivered() {
    let postgres = Postgres::start();
    table(&postgres);
    publish(&postgres);
    // What begins after the second of two transactions, each open at another step of the slot's making, is in the log
    // before the slot's consistent point, and not waited for by every version of PostgreSQL.
    let first = open_transaction(&postgres);
    let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "64KiB").start();
    wait_until_waited_for(&postgres, &first);
    let second = open_transaction(&postgres);
    first.sql("ROLLBACK");
    wait_until_waited_for(&postgres, &second);
    let waiting = begin_waiting(&postgres, "INSERT INTO item VALUES (5000, 'waited', ''); UPDATE item SET name = 'waited' WHERE id <= 100");
    second.sql("ROLLBACK");
    wait::until(PATIENCE, "the slot's making or a chunk waits for the commit", || {
        someone_waits_for(&postgres, "(SELECT backend_xid FROM pg_stat_activity WHERE wait_event = 'SyncRep')") || is_held_back(&walgate)
    });
    release(&postgres, waiting);
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    walgate.events().assert_equals_table(&postgres, "public.item");
}

#[test]
fn a_commit_that_waits_holds_a_chunk_back_and_its_row_does_not_go_back() {
    let postgres = Postgres::start();
    table(&postgres);
    let mut walgate = Walgate::of(&postgres).set("rebuild.chunk_bytes", "64KiB").start();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    let before = walgate.events();
    let waiting = begin_waiting(&postgres, "UPDATE item SET name = 'waited' WHERE id <= 100; DELETE FROM item WHERE id > 900");
    let streamed = 100 + 2 * 100;
    wait::until(PATIENCE, "the waiting commit is streamed", || walgate.events().since(&before).of("public.item").len() == streamed);
    assert!(walgate.run(&["rebuild", "--detach"]).status.success());
    wait::until(PATIENCE, "a chunk is held back", || is_held_back(&walgate));
    release(&postgres, waiting);
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_order_rises_per_key();
    events.assert_equals_table(&postgres, "public.item");
    assert_eq!(events.since(&before).of("public.item").len(), streamed, "what the commit changed is sent once");
}

#[test]
fn a_nudge_does_not_wait_for_a_standby() {
    let postgres = Postgres::start();
    table(&postgres);
    postgres.sql("CREATE TABLE other (id int PRIMARY KEY)");
    let mut walgate = Walgate::of(&postgres).tables(&["public.item"]).start();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    let before = walgate.events();
    let waiting = begin_waiting(&postgres, "INSERT INTO other VALUES (1)");
    // Log that nobody writes out lies before every chunk's position.
    let open = postgres.session();
    open.sql("BEGIN; INSERT INTO other SELECT generate_series(10, 20)");
    assert!(walgate.run(&["rebuild", "--detach"]).status.success());
    walgate.wait_for("the rebuild has ended", |status| status.get("rebuild").is_none());
    assert!(waits(&postgres), "the commit waits still");
    release(&postgres, waiting);
    assert_eq!(walgate.events().since(&before).of("public.item").len(), 0);
}

/// A transaction with an id, left open.
fn open_transaction(postgres: &Postgres) -> Session {
    let session = postgres.session();
    session.sql("BEGIN; SELECT pg_current_xact_id()");
    session
}

fn wait_until_waited_for(postgres: &Postgres, transaction: &Session) {
    let xid = transaction.sql("SELECT pg_current_xact_id()::xid").one().to_owned();
    wait::until(PATIENCE, "the slot's making waits for the transaction", || someone_waits_for(postgres, &format!("'{xid}'")));
}

fn someone_waits_for(postgres: &Postgres, xid: &str) -> bool {
    postgres.sql(&format!("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND transactionid = {xid}")).one() == "t"
}

/// Whether a chunk waits for a transaction that it does not see yet.
fn is_held_back(walgate: &Walgate) -> bool {
    let waiting_for = walgate.status().and_then(|status| status.get("waiting_for").and_then(Json::as_text).map(str::to_owned));
    waiting_for.is_some_and(|what| what.contains("not visible yet"))
}

/// As walgate would, before commits wait.
fn publish(postgres: &Postgres) {
    postgres.sql(&format!("CREATE PUBLICATION {SLOT} FOR TABLE item; ALTER PUBLICATION {SLOT} OWNER TO walgate"));
}

/// Runs statements in one transaction, whose commit waits for a standby that does not exist until [`release`].
fn begin_waiting(postgres: &Postgres, statements: &str) -> JoinHandle<()> {
    postgres.set("synchronous_standby_names", "nobody");
    wait::until(PATIENCE, "commits wait", || postgres.sql("SHOW synchronous_standby_names").one() == "nobody");
    let (session, statements) = (postgres.session(), statements.to_owned());
    let waiting = thread::spawn(move || drop(session.sql(&statements)));
    wait::until(PATIENCE, "the commit waits", || waits(postgres));
    waiting
}

fn waits(postgres: &Postgres) -> bool {
    postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").one() == "1"
}

fn release(postgres: &Postgres, waiting: JoinHandle<()>) {
    postgres.set("synchronous_standby_names", "");
    waiting.join().expect("the commit ends");
}
