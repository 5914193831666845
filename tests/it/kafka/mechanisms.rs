//! The ways to show a broker who we are: passwords by each mechanism, from the configuration or a file, and a certificate.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use crate::kafka::{assert_exact, items};
use crate::lab::kafka::tokens::Issuer;
use crate::lab::kafka::{self, Kafka};
use crate::lab::postgres::Postgres;
use crate::lab::wait;
use crate::lab::walgate::{PATIENCE, Plan, Walgate};

/// A broker that asks for a certificate as well, and gives every right to whom it knows.
fn broker() -> kafka::Plan {
    Kafka::with_security().with("listener.name.secure.ssl.client.auth=required").with("allow.everyone.if.no.acl.found=true")
}

fn plan(kafka: &Kafka, postgres: &Postgres, mechanism: &str) -> Plan {
    let file = |name| kafka.certificate(name).to_str().expect("a path of the lab is UTF-8").to_owned();
    let plan = Walgate::of(postgres).into_kafka(kafka).set("sink.kafka.brokers", kafka.secure_brokers()).set("retry.total", "5s");
    let client = "sink.kafka.client";
    plan.set(&format!("{client}.security.protocol"), "SASL_SSL")
        .set(&format!("{client}.sasl.mechanism"), mechanism)
        .set(&format!("{client}.sasl.username"), "walgate")
        .set(&format!("{client}.ssl.ca.location"), file("ca.pem"))
        .set(&format!("{client}.ssl.certificate.location"), file("client.pem"))
        .set(&format!("{client}.ssl.key.location"), file("client.key"))
}

#[test]
fn each_mechanism_with_a_client_certificate_lets_the_service_in() {
    let kafka = broker().start();
    let password = kafka.certificate("password");
    fs::write(&password, "secret\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        eprintln!("{mechanism}");
        let postgres = Postgres::start();
        items(&postgres);
        let plan = plan(&kafka, &postgres, mechanism);
        let plan = match mechanism {
            "PLAIN" => plan.set("sink.kafka.client.sasl.password", "secret"),
            _ => plan.set("sink.kafka.password_file", password.to_str().unwrap()),
        };
        let mut walgate = plan.start();
        walgate.wait_for_rebuild(1);
        postgres.sql("UPDATE item SET name = 'changed' WHERE id < 10");
        walgate.wait_until_caught_up(&postgres);
        assert_exact(&walgate, &postgres);
        assert!(!walgate.stderr().contains("secret"), "the password is not shown");
    }
}

/// Of a token. It is renewed after four fifths of it; the broker takes no new one within a second of a connection's last.
const LIFETIME: Duration = Duration::from_secs(15);

/// The broker wants a new one on the same connection before the one it knows is over.
#[test]
fn tokens_of_an_issuer_let_the_service_in_and_are_renewed() {
    let kafka = broker().with("connections.max.reauth.ms=3600000").start();
    let (postgres, issuer) = (Postgres::start(), Issuer::start(LIFETIME));
    items(&postgres);
    let mut walgate = with_tokens(&kafka, &postgres, &issuer, "secret").start();
    walgate.wait_for_rebuild(1);
    let (begun, seen) = (Instant::now(), issuer.issued());
    wait::until(PATIENCE, "the first token is over and others took its place", || {
        postgres.sql("UPDATE item SET name = name || '!' WHERE id < 10");
        walgate.wait_until_caught_up(&postgres);
        begun.elapsed() > LIFETIME && issuer.issued() > seen
    });
    assert!(!walgate.stderr().contains("session ended"), "no connection was refused: {}", walgate.stderr());
    assert_exact(&walgate, &postgres);
    assert!(!walgate.stderr().contains("secret"), "the secret is not shown");
}

#[test]
fn a_secret_that_the_issuer_does_not_know_is_named_as_the_reason() {
    let (kafka, postgres, issuer) = (broker().start(), Postgres::start(), Issuer::start(Duration::from_mins(5)));
    items(&postgres);
    let mut walgate = with_tokens(&kafka, &postgres, &issuer, "a wrong one").start();
    assert_eq!(walgate.wait_exit(Duration::from_mins(1)).code(), Some(11));
    let said = walgate.stderr();
    assert!(said.contains("invalid_client") || said.contains("401"), "the issuer's answer is told: {said}");
    assert!(said.contains("`sasl.oauthbearer.` keys"), "and what mends it: {said}");
    assert!(!said.contains("a wrong one"), "the secret is not shown");
}

fn with_tokens(kafka: &Kafka, postgres: &Postgres, issuer: &Issuer, secret: &str) -> Plan {
    let keys = [("method", "oidc"), ("client.id", "walgate"), ("client.secret", secret), ("token.endpoint.url", &issuer.url())];
    let plan = plan(kafka, postgres, "OAUTHBEARER");
    keys.into_iter().fold(plan, |plan, (key, value)| plan.set(&format!("sink.kafka.client.sasl.oauthbearer.{key}"), value))
}

#[test]
fn a_certificate_that_is_missing_or_not_known_is_named_as_the_reason() {
    let (kafka, postgres) = (broker().start(), Postgres::start());
    items(&postgres);
    let refused = |plan: Plan| {
        let mut walgate = plan.set("sink.kafka.client.sasl.password", "secret").start();
        assert_eq!(walgate.wait_exit(Duration::from_mins(1)).code(), Some(11));
        let said = walgate.stderr();
        assert!(said.contains("correct the `ssl.` keys of `sink.kafka.client`"), "the reason is named");
    };
    // The broker's is from an authority that we do not know.
    let stranger = kafka.certificate("stranger.pem");
    refused(plan(&kafka, &postgres, "PLAIN").set("sink.kafka.client.ssl.ca.location", stranger.to_str().unwrap()));
    // Ours is from an authority that the broker does not know.
    let key = stranger.with_extension("key");
    refused(
        plan(&kafka, &postgres, "PLAIN")
            .set("sink.kafka.client.ssl.certificate.location", stranger.to_str().unwrap())
            .set("sink.kafka.client.ssl.key.location", key.to_str().unwrap()),
    );
}
