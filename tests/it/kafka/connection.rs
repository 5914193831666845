//! What stands between walgate and the broker keeps requests and answers back, delivers them late or never.

use std::time::Duration;

use crate::kafka::{assert_exact, items};
use crate::lab::kafka::Kafka;
use crate::lab::kafka::proxy::{ADD_PARTITIONS, END_TXN, FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID, LIST_OFFSETS, PRODUCE, Proxy};
use crate::lab::postgres::Postgres;
use crate::lab::walgate::Walgate;

/// By way of the proxy, and with less patience for an answer than usual.
fn loaded(kafka: &Kafka, postgres: &Postgres) -> Walgate {
    items(postgres);
    let plan = Walgate::of(postgres).into_kafka(kafka).set("sink.kafka.brokers", kafka.proxy.brokers());
    let plan = plan.set("sink.kafka.transaction_timeout", "5s").set("sink.kafka.client.socket.timeout.ms", 1_000);
    let mut walgate = plan.start();
    walgate.wait_for_rebuild(1);
    walgate
}

const CHANGE: &str = "UPDATE item SET name = name || '.' WHERE id % 5 = 0";

#[test]
fn a_connection_that_is_cut_at_any_step_loses_and_repeats_nothing() {
    let (kafka, postgres) = (Kafka::start(), Postgres::start());
    let mut walgate = loaded(&kafka, &postgres);
    let both: [fn(&Proxy, i16); 2] = [Proxy::hold_next_request, Proxy::hold_next_answer];
    for hold in both {
        for step in [ADD_PARTITIONS, PRODUCE, END_TXN] {
            hold(&kafka.proxy, step);
            postgres.sql(CHANGE);
            kafka.proxy.wait_until_holding();
            kafka.proxy.cut();
            walgate.wait_until_caught_up(&postgres);
        }
        for step in [FIND_COORDINATOR, INIT_PRODUCER_ID, LIST_OFFSETS, FETCH] {
            walgate.kill();
            postgres.sql(CHANGE);
            hold(&kafka.proxy, step);
            walgate.start_again();
            kafka.proxy.wait_until_holding();
            kafka.proxy.cut();
            walgate.wait_for_state("streaming");
            walgate.wait_until_caught_up(&postgres);
        }
    }
    assert_exact(&walgate, &postgres);
}

#[test]
fn what_is_answered_after_every_time_out_is_neither_lost_nor_repeated() {
    let (kafka, postgres) = (Kafka::start(), Postgres::start());
    let mut walgate = loaded(&kafka, &postgres);
    let both: [fn(&Proxy); 2] = [Proxy::hold_requests, Proxy::hold_answers];
    for hold in both {
        kafka.proxy.hold_next_request(END_TXN);
        postgres.sql(CHANGE);
        kafka.proxy.wait_until_holding();
        hold(&kafka.proxy);
        // Longer than the transaction may last, and than walgate waits for its end.
        std::thread::sleep(Duration::from_secs(17));
        kafka.proxy.release();
        walgate.wait_until_caught_up(&postgres);
        assert_exact(&walgate, &postgres);
    }
}

/// The client library repeats a commit whose answer is late, and the late one would commit a half of the next transaction.
#[test]
fn a_commit_that_arrives_late_does_not_touch_the_next_transaction() {
    let (kafka, postgres) = (Kafka::start(), Postgres::start());
    let mut walgate = loaded(&kafka, &postgres);
    for _ in 0..2 {
        kafka.proxy.hold_next_request(END_TXN);
        postgres.sql(CHANGE);
        kafka.proxy.wait_until_holding();
        kafka.proxy.cut_clients();
        walgate.wait_until_caught_up(&postgres);
        // The next transaction is open, and in part with the broker.
        kafka.proxy.hold_next_answer(PRODUCE);
        postgres.sql("UPDATE item SET name = name || '!'");
        kafka.proxy.wait_until_holding_one(PRODUCE);
        kafka.proxy.release_one(END_TXN);
        kafka.proxy.release();
        walgate.wait_until_caught_up(&postgres);
        assert_exact(&walgate, &postgres);
    }
    assert!(walgate.stderr().contains("the producer is replaced before the next transaction"));
}
