//! Keys of any type: a row that has to be looked up again by its key is found.

use std::fmt::Write as _;
use std::time::Duration;

use super::special::EXTENSIONS;
use crate::lab::postgres::Postgres;
use crate::lab::wait;
use crate::lab::walgate::Walgate;

const ROWS: usize = 50;

/// Types, each with an expression of `n`.
const TYPES: &[(&str, &str)] = &[
    ("int", "n"),
    ("numeric", "n / 10.0"),
    ("double precision", "sqrt(n)"),
    ("text", r#"E'it''s "k" \\ ' || n"#),
    ("char(7)", "'c' || n"),
    ("\"char\"", "'x'"),
    ("name", "'n' || n"),
    ("bytea", "decode('00ff5c27', 'hex')"),
    ("uuid", "md5(n::text)::uuid"),
    ("timestamptz", "'2024-01-02 03:04:05+02'::timestamptz + n * interval '1 second'"),
    ("interval", "n * interval '1 day'"),
    ("inet", "'10.0.0.1/8'::inet + n"),
    ("varbit", "n::bit(9)::varbit"),
    ("jsonb", "jsonb_build_object('n', n)"),
    ("int[]", "ARRAY[n, NULL]"),
    ("int4range", "int4range(n, n + 1)"),
    ("mood", r#"'so "so", no'::mood"#),
    ("total", "n::numeric::total"),
    ("grid2", "ARRAY[n]::grid2"),
    ("pair", "ROW(n, 'a b')::pair"),
    ("pair[]", "ARRAY[ROW(n, NULL)::pair]"),
    ("citext", "('CI' || n)::citext"),
    ("ltree", "('Top.k' || n)::ltree"),
    ("hstore", "hstore('k', n::text)"),
    ("cube", "cube(n)"),
    ("ean13", "'9780393040029'::ean13"),
];

#[test]
fn a_row_with_a_key_of_any_types_is_read_again_by_its_key() {
    let postgres = Postgres::start();
    postgres.sql(EXTENSIONS);
    check(&postgres, "shop", TYPES);
}

#[test]
fn a_row_with_a_key_of_bytes_in_no_encoding_is_read_again_by_its_key() {
    let postgres = super::encodings::postgres("SQL_ASCII");
    check(&postgres, "other", &[("int", "n"), ("text", r"E'caf\xe9 \\ '' ' || n"), ("varchar(9)[]", r"ARRAY[E'\xff\xfe']")]);
}

/// Rows move to other keys and leave a large value as it is: what they are now, the stream does not say.
fn check(postgres: &Postgres, database: &str, types: &[(&str, &str)]) {
    let session = postgres.session_in(database);
    let (mut columns, mut names, mut values) = (String::new(), String::new(), String::new());
    for (at, (of_type, value)) in types.iter().enumerate() {
        write!(columns, "k{at} {of_type}, ").expect("a string takes all");
        write!(names, "k{at}, ").expect("a string takes all");
        write!(values, "{value}, ").expect("a string takes all");
    }
    let names = names.trim_end_matches(", ");
    session.sql(&format!("CREATE TABLE item ({columns} note text, PRIMARY KEY ({names}))"));
    session.sql("ALTER TABLE item ALTER note SET STORAGE EXTERNAL");
    session.sql(&format!("INSERT INTO item SELECT {values} repeat('note', 1000) FROM generate_series(1, {ROWS}) n"));

    let url = postgres.url_tcp().replace("/shop", &format!("/{database}"));
    let mut walgate = Walgate::of(postgres).set("source.url", url).start();
    walgate.wait_for_state("streaming");
    session.sql("UPDATE item SET k0 = k0 + 1000");
    walgate.wait_until_caught_up(postgres);
    let read_again = || walgate.events().of("public.item").iter().filter(|event| event.op() == Some("u")).count();
    wait::until(Duration::from_mins(1), "the rows are read again", || read_again() == ROWS);
    assert_eq!(walgate.events().fold("public.item").len(), ROWS);
}
