//! What belongs to another stream is refused, and left as it is.

use super::lab::postgres::Postgres;
use super::lab::walgate::Walgate;

#[test]
fn a_state_folder_of_another_stream_is_refused() {
    let (_postgres, walgate) = stopped();
    check(&walgate, &["--set", "stream=other"], 12, "belongs to one stream");
}

#[test]
fn an_events_folder_of_another_stream_is_refused() {
    let (_postgres, walgate) = stopped();
    check(&walgate, &["--set", "stream=other", "--set", "store.directory=other"], 11, "belongs to one stream");
}

fn stopped() -> (Postgres, Walgate) {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY); INSERT INTO item SELECT generate_series(1, 10)");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    assert!(walgate.stop().success());
    (postgres, walgate)
}

#[track_caller]
fn check(walgate: &Walgate, other: &[&str], status: i32, advice: &str) {
    let before = walgate.events();
    let output = walgate.run(&[&["run"], other].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    for expect in ["`lab`", "`other`", advice] {
        assert!(said.contains(expect), "`{expect}` is missing from: {said}");
    }
    assert_eq!(walgate.events().of("public.item"), before.of("public.item"));
}
