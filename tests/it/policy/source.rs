//! The source is away, refuses the login, or is in other hands.

use super::{assert_whole, check_end, check_start, server, stopped, wait_for_waiting};
use crate::lab::walgate::Walgate;

#[test]
fn a_server_away_for_too_long_ends_with_its_address_and_the_cause() {
    let mut postgres = server();
    let mut walgate = stopped(Walgate::of(&postgres).set("retry.total", "2s"), &postgres);
    postgres.stop_fast();
    check_start(
        &mut walgate,
        10,
        &["the retry budget is spent", "PostgreSQL at 127.0.0.1:", "Connection refused", "whether the server runs"],
    );
    assert!(walgate.stderr().matches("trying again").count() > 2, "it has tried more than once: {}", walgate.stderr());
}

#[test]
fn a_server_stopped_and_started_while_streaming_is_waited_for_and_nothing_is_lost_or_repeated() {
    let mut postgres = server();
    let mut walgate = Walgate::of(&postgres).set("retry.backoff_max", "1s").start();
    walgate.wait_for_rebuild(1);
    for round in 1..=3 {
        postgres.sql(&format!("UPDATE item SET name = 'before {round}'"));
        postgres.stop_fast();
        wait_for_waiting(&mut walgate, "PostgreSQL at");
        postgres.restart();
        postgres.sql(&format!("UPDATE item SET name = 'after {round}'"));
    }
    walgate.wait_until_caught_up(&postgres);
    assert_eq!(walgate.events().of("public.item").len(), 100 + 6 * 100);
    assert_whole(&walgate, &postgres);
}

#[test]
fn a_wrong_password_ends_with_advice_and_is_never_printed() {
    let postgres = server();
    let url = postgres.url_tcp().replace(":secret@", ":wr0ng-one@");
    let mut walgate = Walgate::of(&postgres).set("source.url", url).set("retry.total", "1s").start();
    check_end(&mut walgate, 10, &["password authentication failed for user", "look at user, password"]);
    assert!(!walgate.stderr().contains("wr0ng-one"), "{}", walgate.stderr());
}

#[test]
fn a_second_instance_stands_by_until_the_first_has_gone() {
    let postgres = server();
    let mut first = Walgate::of(&postgres).start();
    first.wait_for_rebuild(1);
    let mut second = Walgate::of(&postgres).start();
    wait_for_waiting(&mut second, "another instance");
    assert!(first.stop().success());
    second.wait_for_rebuild(1);
    postgres.sql("INSERT INTO item VALUES (1000, 'new')");
    second.wait_until_caught_up(&postgres);
    assert_whole(&second, &postgres);
}
