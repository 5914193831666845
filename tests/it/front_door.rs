//! What a person sees first: the configuration that comes with the program, and its checks.

use super::lab::postgres::Postgres;
use super::lab::walgate::Walgate;

#[test]
fn check_finds_nothing_wrong_with_a_source_that_is_set_up_and_names_a_missing_publication() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY)");
    let walgate = Walgate::of(&postgres).prepare();
    let output = walgate.run(&["check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let output = walgate.run(&["check", "--set", "source.create=false"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("CREATE PUBLICATION"));
}

#[test]
fn a_wrong_key_ends_with_status_2_and_names_it() {
    let postgres = Postgres::start();
    let walgate = Walgate::of(&postgres).prepare();
    let output = walgate.run(&["run", "--set", "source.slott=x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean `source.slot`"));
}

#[test]
fn a_second_service_on_the_same_state_folder_is_refused() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY)");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    assert_eq!(walgate.run(&["run"]).status.code(), Some(12));
}
