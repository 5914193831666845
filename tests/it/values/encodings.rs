//! Databases in other encodings, and in none.

use super::back;
use super::special::column;
use super::thrice;
use crate::lab::postgres::Postgres;

/// A database with the encoding, which takes any bytes where that is `SQL_ASCII`.
pub(crate) fn postgres(encoding: &str) -> Postgres {
    let postgres = Postgres::start();
    postgres.sql(&format!("CREATE DATABASE other OWNER walgate TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"));
    postgres
}

#[track_caller]
fn check(encoding: &str, cases: &[(&str, &str, &str)]) {
    let postgres = postgres(encoding);
    let columns: Vec<_> = cases.iter().map(|(of_type, ..)| column(of_type)).collect();
    let values: Vec<String> = cases.iter().map(|(_, value, _)| (*value).to_owned()).collect();
    let shown = thrice::read(&postgres, "other", &columns, &[values]);
    for (at, (.., expect)) in cases.iter().enumerate() {
        assert_eq!(thrice::column(&shown[0], at), *expect);
    }
    back::check(&postgres.session_in("other"), &columns, &shown);
}

#[test]
fn a_latin1_database_is_read_as_utf8() {
    check("LATIN1", &[("text", r"E'caf\xe9'", r#""café""#), ("text[]", r"ARRAY[E'\xe9', NULL]", r#"["é",null]"#)]);
}

#[test]
fn bytes_of_no_encoding_are_told_apart_from_text_and_from_each_other() {
    check(
        "SQL_ASCII",
        &[
            ("text", r"E'caf\xe9'", r#"{"base64":"Y2Fm6Q=="}"#),
            ("text", r"E'caf\xe8'", r#"{"base64":"Y2Fm6A=="}"#),
            ("text", r"E'caf\xc3\xa9'", r#""café""#),
            ("text", r"E'\ttab \xff'", r#"{"base64":"CXRhYiD/"}"#),
            ("varchar(3)[]", r"ARRAY[E'\xe9', NULL, 'a']", r#"[{"base64":"6Q=="},null,"a"]"#),
            ("bytea", r"'\xe9'", r#""6Q==""#),
            ("int", "7", "7"),
        ],
    );
}

#[test]
fn a_numeric_of_131072_digits_keeps_them_all() {
    let postgres = Postgres::start();
    let columns = [column("numeric"), column("numeric"), column("numeric[]")];
    let (whole, fraction) = ("7".repeat(131_072), "3".repeat(16_383));
    let row = vec![
        format!("repeat('7', 131072)::numeric"),
        format!("('-0.' || repeat('3', 16383))::numeric"),
        format!("ARRAY['{whole}'::numeric]"),
    ];
    let shown = thrice::read(&postgres, "shop", &columns, &[row]);
    assert_eq!(shown, [format!("{{\"c0\":\"{whole}\",\"c1\":\"-0.{fraction}\",\"c2\":[\"{whole}\"]}}")]);
}
