//! What a role, a database or the server is set to changes no byte.

use super::special::{self, EXTENSIONS};
use super::thrice;
use crate::lab::postgres::Postgres;
use crate::lab::walgate::Walgate;

/// Settings that change the server's text of some type, or how a statement is read.
const ODD: &[(&str, &str)] = &[
    ("datestyle", "German, DMY"),
    ("timezone", "Asia/Tokyo"),
    ("intervalstyle", "iso_8601"),
    ("extra_float_digits", "-10"),
    ("bytea_output", "escape"),
    ("lc_monetary", "de_DE.UTF-8"),
    ("xmloption", "document"),
    ("client_encoding", "LATIN1"),
    ("search_path", "nowhere, public"),
    ("standard_conforming_strings", "off"),
    ("quote_all_identifiers", "on"),
    ("array_nulls", "off"),
    ("default_transaction_isolation", "serializable"),
];

#[test]
fn settings_of_the_role_change_no_byte() {
    check("ALTER ROLE walgate SET");
}

#[test]
fn settings_of_the_database_change_no_byte() {
    check("ALTER DATABASE shop SET");
}

#[test]
fn settings_of_the_server_change_no_byte() {
    check("ALTER SYSTEM SET");
}

/// The session that fills the table and judges has settings of its own: the superuser's role takes precedence.
fn check(statement: &str) {
    let postgres = Postgres::with("").locale("de_DE.UTF-8").start();
    postgres.sql(EXTENSIONS);
    let session = postgres.session();
    for (name, value) in ODD {
        session.sql(&format!("ALTER ROLE postgres SET {name} FROM CURRENT"));
        session.sql(&format!(
            "{statement} {name} = {}",
            if *name == "search_path" || *name == "datestyle" { (*value).to_owned() } else { format!("'{value}'") }
        ));
    }
    session.sql("SELECT pg_reload_conf()");
    let seen = |url: &str| crate::lab::sql::Session::open(url).expect("the role may log in").sql("SELECT 1234.5::money").one().to_owned();
    assert!(seen(&postgres.url_tcp()).contains("1.234,50"), "the settings have an effect on the role");
    assert_eq!(seen(&postgres.url_superuser("shop")), "$1,234.50", "and none on the test's own session");
    special::check(&postgres, "shop");
}

#[test]
fn json_as_text_tells_a_json_null_from_null_and_keeps_white_space() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE value (id int PRIMARY KEY, c0 json, c1 jsonb, c2 jsonb, c3 jsonb[], c4 bigint, c5 bigint[])");
    postgres.sql("INSERT INTO value VALUES (1, E'{\"a\":\\n1}', 'null', NULL, ARRAY['null'::jsonb, NULL], 9007199254740993, '{1,NULL}')");
    let mut walgate = Walgate::of(&postgres).set("format.json", "text").set("format.bigint", "string").start();
    walgate.wait_for_state("streaming");
    let lines = walgate.lines("public.value");
    let expected = r#""c0":"{\"a\":\n1}","c1":"null","c2":null,"c3":["null",null],"c4":"9007199254740993","c5":["1",null]}"#;
    assert_eq!(thrice::image(&lines[0]).expect("a row").2, expected);
}

#[test]
fn json_as_itself_is_on_one_line_and_its_null_is_null() {
    let postgres = Postgres::start();
    postgres.sql("CREATE TABLE value (id int PRIMARY KEY, c0 json, c1 jsonb)");
    postgres.sql("INSERT INTO value VALUES (1, E'{\"a\":\\n\\r1}', 'null')");
    let mut walgate = Walgate::of(&postgres).start();
    walgate.wait_for_state("streaming");
    let lines = walgate.lines("public.value");
    assert_eq!(thrice::image(&lines[0]).expect("a row").2, r#""c0":{"a":  1},"c1":null}"#);
}
