//! The style `debezium` beside the peer itself: `tests/oracle` holds statements and the events that Debezium's PostgreSQL
//! connector 3.6.1 made of them on PostgreSQL 15 (topic, key and value as its JSON converter wrote them). The same
//! statements are run here, and every event is compared, but for times, transaction ids and LSNs. What differs is a
//! deviation with a name; the names are those of the table in the README, no more and no less.

mod compare;
mod deviations;
mod run;

use std::collections::BTreeSet;

use self::run::{Run, Scenario};

/// Runs each folder of scenarios once, with all its modes at the same time.
#[test]
fn events_are_those_of_the_peer_but_for_what_the_readme_lists() {
    let scenarios = [
        Scenario::new("01-scalars", &[Run::of("")]),
        Scenario::new("02-arrays-custom", &[Run::of("default")]),
        Scenario::new(
            "03-decimal-modes",
            &[Run::of("precise"), Run::of("string").with("decimal", "string"), Run::of("double").with("decimal", "double")],
        ),
        Scenario::new(
            "04-time-precision-modes",
            &["adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]
                .map(|mode| Run::of(mode).with("time", mode)),
        ),
        Scenario::new("05-binary-modes", &["bytes", "base64", "base64-url-safe", "hex"].map(|mode| Run::of(mode).with("binary", mode))),
        Scenario::new("06-interval-modes", &["numeric", "string"].map(|mode| Run::of(mode).with("interval", mode))),
        Scenario::new("07-hstore-modes", &["json", "map"].map(|mode| Run::of(mode).with("hstore", mode))),
        Scenario::new("08-ops", &[Run::of("default").skipping(&["t"]), Run::of("no-tombstones").without_tombstones(), Run::of("truncate")]),
        Scenario::new(
            "09-toast",
            &[Run::of("default"), Run::of("binary-hex").with("binary", "hex").with("hstore", "map").with("decimal", "string")],
        ),
        Scenario::new("10-transactions", &[Run::of("default").skipping(&["t"]), Run::of("metadata").skipping(&["t"]).with_transactions()]),
        Scenario::new("12-messages-heartbeat", &[Run::of("default")]),
        Scenario::new("13-schema-changes", &[Run::of("default")]),
        Scenario::new("14-names", &[Run::of("default")]),
    ];
    let chosen = std::env::var("WALGATE_TEST_ORACLE").unwrap_or_default();
    let (mut seen, mut unknown) = (BTreeSet::new(), Vec::new());
    for scenario in scenarios.iter().filter(|scenario| scenario.name.starts_with(&chosen)) {
        for difference in scenario.differences() {
            match deviations::name(&difference) {
                Some(name) => drop(seen.insert(name)),
                None => unknown.push(difference.to_string()),
            }
        }
    }
    assert!(unknown.is_empty(), "{} differences are no deviation that is known:\n{}", unknown.len(), unknown.join("\n"));
    if chosen.is_empty() {
        let listed = deviations::listed_in_readme();
        let listed: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
        assert_eq!(seen, listed, "the README lists what differs");
    }
}
