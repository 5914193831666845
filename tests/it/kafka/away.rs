//! The brokers are away: the source is left in peace, `status` says so, and it goes on by itself.

use std::time::Duration;

use crate::kafka::{assert_exact, items};
use crate::lab::json::Json;
use crate::lab::kafka::Kafka;
use crate::lab::postgres::Postgres;
use crate::lab::wait;
use crate::lab::walgate::{PATIENCE, Walgate};

fn says_kafka(status: &Json) -> bool {
    says(status, "Kafka")
}

fn says(status: &Json, what: &str) -> bool {
    status.get("waiting_for").and_then(Json::as_text).is_some_and(|text| text.contains(what))
}

fn wait_until_it_says_kafka(walgate: &mut Walgate) {
    walgate.wait_for("it says that it waits for Kafka", says_kafka);
}

/// With a batch that cannot be delivered, and its connection to the source open or closed already.
#[test]
fn a_fast_shutdown_of_the_source_ends_in_seconds_while_the_broker_is_stopped() {
    for is_closed in [false, true] {
        let (mut kafka, mut postgres) = (Kafka::start(), Postgres::start());
        items(&postgres);
        let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).set("sink.grace", "3s").start();
        walgate.wait_for_rebuild(1);
        kafka.stop();
        postgres.sql("UPDATE item SET name = 'while it was away' WHERE id < 100");
        wait_until_it_says_kafka(&mut walgate);
        if is_closed {
            wait::until(PATIENCE, "the connection to the source is closed", || {
                postgres.sql("SELECT pid FROM pg_stat_replication").maybe().is_none()
            });
            wait_until_it_says_kafka(&mut walgate);
        }
        let stopped = postgres.stop_fast();
        assert!(stopped < Duration::from_secs(8), "closed: {is_closed}; the fast shutdown took {stopped:?}");
        walgate.wait_for("it says that it waits for either", |status| says_kafka(status) || says(status, "PostgreSQL"));
        postgres.restart();
        kafka.restart();
        postgres.sql("DELETE FROM item WHERE id > 900");
        walgate.wait_until_caught_up(&postgres);
        walgate.wait_for("nothing is waited for", |status| !says_kafka(status));
        assert_exact(&walgate, &postgres);
    }
}

/// The start of a service that was told to stop ends, too, while the broker is stopped.
#[test]
fn told_to_stop_while_the_broker_is_away_it_stops() {
    let (mut kafka, postgres) = (Kafka::start(), Postgres::start());
    items(&postgres);
    let mut walgate = Walgate::of(&postgres).into_kafka(&kafka).start();
    walgate.wait_for_rebuild(1);
    kafka.stop();
    assert!(walgate.stop().success(), "nothing was left to deliver");
    walgate.start_again();
    wait_until_it_says_kafka(&mut walgate);
    walgate.terminate();
    assert_eq!(walgate.wait_exit(Duration::from_secs(5)).code(), Some(0), "{}", walgate.stderr());
    kafka.restart();
    postgres.sql("DELETE FROM item WHERE id > 900");
    walgate.start_again();
    walgate.wait_for_state("streaming");
    walgate.wait_until_caught_up(&postgres);
    assert_exact(&walgate, &postgres);
}
