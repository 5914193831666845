//! The way to the source is protected as the configuration says, or there is none.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use super::lab::certificates::{Authority, SERVER_NAME};
use super::lab::postgres::Postgres;
use super::lab::wait;
use super::lab::walgate::{PATIENCE, Walgate};

/// Over TCP with TLS only, and by a password.
const PASSWORD: &str = "hostssl all walgate 127.0.0.1/32 scram-sha-256";

/// And by a certificate for the role.
const CERTIFICATE: &str = "hostssl all walgate 127.0.0.1/32 scram-sha-256 clientcert=verify-full";

fn authority() -> Authority {
    let authority = Authority::create();
    authority.sign("server", SERVER_NAME, "30");
    authority
}

fn served(authority: &Authority, access: &str) -> Postgres {
    let postgres = Postgres::with(&authority.settings("server")).access(access).start();
    postgres.sql("CREATE TABLE item (id int PRIMARY KEY, name text)");
    postgres
}

/// Runs `walgate check` with settings and variables, `A=b` the ones and `a.b=c` the others; `expect`: the exit status,
/// and what is said of it.
#[track_caller]
fn check(walgate: &Walgate, words: &[&str], expect: (i32, &str)) {
    let (variables, settings): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with(char::is_uppercase));
    let variables: Vec<(&str, &str)> = variables.iter().filter_map(|word| word.split_once('=')).collect();
    let arguments: Vec<&str> = std::iter::once("check").chain(settings.iter().flat_map(|setting| ["--set", setting])).collect();
    // A server that refuses a certificate closes at once; where we are still writing, the kernel may drop its alert, and the
    // connection is only known to be lost. Asked again, it says why.
    let mut tries = 0;
    let (output, said) = loop {
        let output = walgate.run_with(&variables, &arguments);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        tries += 1;
        if tries == 10 || !said.contains("Connection reset by peer") {
            break (output, said);
        }
    };
    assert_eq!(output.status.code(), Some(expect.0), "{words:?}: {said}");
    assert!(said.contains(expect.1), "{words:?}: `{}` is missing from:\n{said}", expect.1);
}

#[test]
fn each_mode_accepts_and_refuses_what_it_does_in_libpq() {
    let (authority, stranger) = (authority(), Authority::create());
    let postgres = served(&authority, PASSWORD);
    let walgate = Walgate::of(&postgres).set("source.url", postgres.url_named(SERVER_NAME)).prepare();
    let ca = format!("source.tls_ca={}", authority.shown("ca.crt"));
    let other_ca = format!("source.tls_ca={}", stranger.shown("ca.crt"));
    let other_name = format!("source.url={}", postgres.url_tcp());
    let (require, verify_ca, verify_full) = ("source.tls=require", "source.tls=verify-ca", "source.tls=verify-full");
    let accepted = (0, "may replicate");
    let not_trusted = (1, "certificate is not trusted");

    check(&walgate, &["source.tls=disable"], (1, "no encryption"));
    check(&walgate, &[require], accepted);
    check(&walgate, &[require, &other_name], accepted);
    check(&walgate, &[require, &ca], accepted);
    check(&walgate, &[require, &other_ca], not_trusted);
    check(&walgate, &[verify_ca, &ca], accepted);
    check(&walgate, &[verify_ca, &ca, &other_name], accepted);
    check(&walgate, &[verify_ca, &other_ca], not_trusted);
    check(&walgate, &[verify_ca], (2, "source.tls_ca"));
    check(&walgate, &[verify_full, &ca], accepted);
    check(&walgate, &[verify_full, &ca, &other_name], (1, "certificate is not for `127.0.0.1`"));
    check(&walgate, &[verify_full, &other_ca], not_trusted);
    check(&walgate, &[verify_full], (1, "→ name the file of the authority that signed the server's certificate in `source.tls_ca`"));
    check(&walgate, &[verify_full, "source.tls_ca=none.crt"], (2, "none.crt` cannot be read"));
    check(&walgate, &[verify_full, &format!("source.tls_ca={}", authority.shown("ca.key"))], (2, "holds no certificate"));
    // The system's authorities, as OpenSSL lets them be named.
    check(&walgate, &[verify_full, &format!("SSL_CERT_FILE={}", authority.shown("ca.crt"))], accepted);
    check(&walgate, &[verify_full, &other_ca, &format!("SSL_CERT_FILE={}", authority.shown("ca.crt"))], not_trusted);
    // By libpq's variables.
    let root = format!("PGSSLROOTCERT={}", authority.shown("ca.crt"));
    check(&walgate, &["PGSSLMODE=verify-full", &root], accepted);
    check(&walgate, &["PGSSLMODE=verify-full", &root, &other_name], (1, "is not for `127.0.0.1`"));
}

#[test]
fn a_server_without_tls_and_one_whose_certificate_has_expired_are_refused_and_named() {
    let authority = authority();
    let postgres = Postgres::start();
    let walgate = Walgate::of(&postgres).set("source.tls", "require").prepare();
    check(&walgate, &[], (1, "does not offer TLS"));
    check(&walgate, &[], (1, "→ set `ssl = on` at the server"));

    authority.sign("expired", SERVER_NAME, "0");
    let postgres = Postgres::with(&authority.settings("expired")).start();
    let walgate = Walgate::of(&postgres).set("source.url", postgres.url_named(SERVER_NAME)).prepare();
    let ca = format!("source.tls_ca={}", authority.shown("ca.crt"));
    check(&walgate, &["source.tls=verify-full", &ca], (1, "out of date (certificate has expired)"));
}

#[test]
fn the_servers_demand_for_a_certificate_is_met_and_a_wrong_one_is_named() {
    let (authority, stranger) = (authority(), Authority::create());
    authority.sign("client", "walgate", "30");
    authority.sign("someone", "someone", "30");
    authority.sign("expired", "walgate", "0");
    authority.encrypt_key("client", "encrypted");
    stranger.sign("client", "walgate", "30");
    let postgres = served(&authority, CERTIFICATE);
    let plan = Walgate::of(&postgres).set("source.url", postgres.url_named(SERVER_NAME));
    let walgate = plan.set("source.tls", "verify-full").set("source.tls_ca", authority.shown("ca.crt")).prepare();
    let as_client = |authority: &Authority, certificate: &str, key: &str, expect| {
        let [certificate, key] = [certificate, key].map(|file| authority.shown(file));
        check(&walgate, &[&format!("source.tls_cert={certificate}"), &format!("source.tls_key={key}")], expect);
    };
    check(&walgate, &[], (1, "valid client certificate"));
    as_client(&authority, "client.crt", "client.key", (0, "may replicate"));
    as_client(&authority, "someone.crt", "someone.key", (1, "→ look at user, password, client certificate"));
    as_client(&stranger, "client.crt", "client.key", (1, "refuses our certificate, or the lack of one (tlsv1 alert unknown ca)"));
    as_client(&authority, "expired.crt", "expired.key", (1, "refuses our certificate"));
    as_client(&authority, "client.crt", "someone.key", (2, "does not belong to the certificate"));
    as_client(&authority, "client.crt", "client.crt", (2, "can be read by others"));
    as_client(&authority, "client.crt", "encrypted.key", (2, "is encrypted"));
    fs::set_permissions(authority.path("client.key"), Permissions::from_mode(0o644)).unwrap();
    as_client(&authority, "client.crt", "client.key", (2, "`source.tls_key = "));
}

#[test]
fn a_password_is_bound_to_the_certificate_or_not_given_where_that_is_required() {
    let authority = authority();
    let walgate =
        |postgres: &Postgres| Walgate::of(postgres).set("source.tls", "require").set("source.channel_binding", "require").prepare();
    let postgres = served(&authority, PASSWORD);
    check(&walgate(&postgres), &[], (0, "may replicate"));
    check(&walgate(&postgres), &["source.channel_binding=disable"], (0, "may replicate"));
    check(&walgate(&postgres), &["source.tls=disable"], (2, "channel binding is required"));
    let postgres = served(&authority, "hostssl all walgate 127.0.0.1/32 trust");
    check(&walgate(&postgres), &[], (1, "did not use channel binding"));
    let postgres = served(&authority, "hostssl all walgate 127.0.0.1/32 password");
    check(&walgate(&postgres), &["source.channel_binding=prefer"], (1, "asks for an MD5 or clear-text password"));
}

#[test]
fn a_table_is_loaded_and_a_large_stream_stays_whole_over_tls() {
    let authority = authority();
    let postgres = served(&authority, PASSWORD);
    let insert = |from: u32, to: u32| {
        let text = "(SELECT string_agg(md5(n || '/' || k), '') FROM generate_series(1, 3000) k)";
        postgres.sql(&format!("INSERT INTO item SELECT n, {text} FROM generate_series({from}, {to}) n"));
    };
    insert(1, 100);
    let plan = Walgate::of(&postgres).set("source.url", postgres.url_named(SERVER_NAME)).set("source.tls", "verify-full");
    let mut walgate = plan.set("source.tls_ca", authority.shown("ca.crt")).set("source.channel_binding", "require").start();
    walgate.wait_for_state("streaming");
    let connections = "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'walgate'";
    assert_eq!(postgres.sql(&format!("SELECT bool_and(ssl) {connections}")).one(), "t");
    assert_ne!(postgres.sql(&format!("SELECT count(*) {connections} AND backend_type = 'walsender'")).one(), "0");
    for round in 1..=10 {
        insert(round * 100 + 1, round * 100 + 100);
    }
    postgres.sql("DELETE FROM item WHERE id % 3 = 0");
    walgate.wait_until_caught_up(&postgres);
    let events = walgate.events();
    events.assert_no_duplicate_ids();
    events.assert_equals_table(&postgres, "public.item");
    assert!(walgate.stop().success());
}

#[test]
fn connections_over_tls_take_their_leave() {
    let authority = authority();
    let plan = Postgres::with(&authority.settings("server")).with("log_min_messages = debug1").with("log_line_prefix = '%u: '");
    let postgres = plan.with("log_disconnections = on").access(PASSWORD).start();
    check(&Walgate::of(&postgres).set("source.tls", "require").prepare(), &[], (0, "may replicate"));
    let said = |part: &str| postgres.logged().lines().filter(|line| line.starts_with("walgate: ") && line.contains(part)).count();
    wait::until(PATIENCE, "both connections have ended", || said("disconnection") == 2);
    assert_eq!(said("EOF") + said("could not receive"), 0, "the server had to find out by itself that it was left");
}
