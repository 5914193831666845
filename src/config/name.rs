//! Names as people write them, read by SQL's rules: `public.orders`, `"Weird".t`, `public.*`. An unquoted
//! name is folded to lower case as the server does it, so that what is written here means the same table as
//! in psql.

use std::fmt;
use std::str::FromStr;

use super::TablePattern;

/// Bytes that PostgreSQL keeps of an identifier (`NAMEDATALEN` less one). It cuts longer ones, we refuse them.
const IDENTIFIER_BYTES_MAX: usize = 63;

/// A table, `schema.table`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    pub schema: String,
    pub table: String,
}

/// Why a text names no table.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NameError {
    #[error("has no schema: write `public.{0}` if that is the one meant")]
    NoSchema(String),
    #[error("has more than two parts: write `schema.table`")]
    TooManyParts,
    #[error("has an empty part: write `schema.table`")]
    Empty,
    #[error("has a double quote that is not closed")]
    Unclosed,
    #[error("has `{0}` in an unquoted name: put the name in double quotes")]
    NeedsQuotes(char),
    #[error("has a NUL character, which PostgreSQL has in no name")]
    Nul,
    #[error("has a name of {0} bytes: PostgreSQL keeps at most 63")]
    TooLong(usize),
    #[error("has `*` for the schema: name each schema, as in `public.*`")]
    AnySchema,
    #[error("has `*` where one table is meant: write `schema.table`")]
    AnyTable,
}

/// One part of a dotted name.
enum Part {
    Name(String),
    Any,
}

impl FromStr for TablePattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut parts = parts(text)?.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(Part::Any), ..) => Err(NameError::AnySchema),
            (_, _, Some(_)) => Err(NameError::TooManyParts),
            (Some(Part::Name(schema)), Some(Part::Name(table)), None) => Ok(Self { schema, table: Some(table) }),
            (Some(Part::Name(schema)), Some(Part::Any), None) => Ok(Self { schema, table: None }),
            (Some(Part::Name(_)), None, None) => Err(NameError::NoSchema(text.trim_ascii().to_owned())),
            (None, ..) => Err(NameError::Empty),
        }
    }
}

impl FromStr for TableName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let TablePattern { schema, table } = text.parse()?;
        table.map(|table| Self { schema, table }).ok_or(NameError::AnyTable)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_identifier(f, &self.schema)?;
        f.write_str(".")?;
        write_identifier(f, &self.table)
    }
}

impl fmt::Display for TablePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_identifier(f, &self.schema)?;
        f.write_str(".")?;
        match &self.table {
            Some(table) => write_identifier(f, table),
            None => f.write_str("*"),
        }
    }
}

impl TablePattern {
    #[must_use]
    pub fn matches(&self, schema: &str, table: &str) -> bool {
        self.schema == schema && self.table.as_ref().is_none_or(|own| own == table)
    }
}

/// Splits at the dots outside quotes. PostgreSQL manual, 4.1.1 "Identifiers and Key Words".
fn parts(text: &str) -> Result<Vec<Part>, NameError> {
    let mut parts = Vec::new();
    let mut rest = text.trim_ascii();
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_name(quoted)?,
            None => rest
                .find('.')
                .and_then(|dot| rest.split_at_checked(dot))
                .map_or_else(|| unquoted(rest, ""), |(name, after)| unquoted(name, after))?,
        };
        parts.push(part);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None => match after.chars().next() {
                None => return Ok(parts),
                Some(character) => return Err(NameError::NeedsQuotes(character)),
            },
        }
    }
}

/// The name up to its closing quote, and what follows; `""` stands for one quote.
fn quoted_name(text: &str) -> Result<(Part, &str), NameError> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (piece, after) = rest.split_once('"').ok_or(NameError::Unclosed)?;
        name.push_str(piece);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Ok((Part::Name(checked(name)?), after)),
        }
    }
}

fn unquoted<'a>(name: &str, after: &'a str) -> Result<(Part, &'a str), NameError> {
    if name == "*" {
        return Ok((Part::Any, after));
    }
    let stranger = name.char_indices().find(|&(at, character)| !may_stand_unquoted(at, character));
    match stranger {
        Some((_, '\0')) => Err(NameError::Nul),
        Some((_, character)) => Err(NameError::NeedsQuotes(character)),
        None => Ok((Part::Name(checked(name.to_ascii_lowercase())?), after)),
    }
}

fn may_stand_unquoted(at: usize, character: char) -> bool {
    character.is_ascii_alphabetic()
        || character == '_'
        || (!character.is_ascii() && !character.is_control())
        || (at > 0 && (character.is_ascii_digit() || character == '$'))
}

/// An identifier that PostgreSQL can hold.
fn checked(name: String) -> Result<String, NameError> {
    match name.len() {
        0 => Err(NameError::Empty),
        _ if name.contains('\0') => Err(NameError::Nul),
        length if length > IDENTIFIER_BYTES_MAX => Err(NameError::TooLong(length)),
        _ => Ok(name),
    }
}

fn write_identifier(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    let plain = name.char_indices().all(|(at, character)| may_stand_unquoted(at, character) && !character.is_ascii_uppercase());
    if plain { f.write_str(name) } else { write!(f, "\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_follow_the_quoting_of_sql() {
        let check = |text: &str, expect: Result<(&str, Option<&str>), NameError>| {
            let expect = expect.map(|(schema, table)| TablePattern { schema: schema.to_owned(), table: table.map(str::to_owned) });
            assert_eq!(text.parse::<TablePattern>(), expect, "{text}");
        };
        check("public.orders", Ok(("public", Some("orders"))));
        check(" Public.Orders ", Ok(("public", Some("orders"))));
        check(" public.\u{a0} ", Ok(("public", Some("\u{a0}"))));
        check("public.*", Ok(("public", None)));
        check(r#""Weird".t"#, Ok(("Weird", Some("t"))));
        check(r#"s."a.""b""""#, Ok(("s", Some(r#"a."b""#))));
        check(r#"s."*""#, Ok(("s", Some("*"))));
        check("größe.maß", Ok(("größe", Some("maß"))));
        check("s.a$1", Ok(("s", Some("a$1"))));
        check("orders", Err(NameError::NoSchema("orders".to_owned())));
        check("db.public.orders", Err(NameError::TooManyParts));
        check("*.*", Err(NameError::AnySchema));
        check("", Err(NameError::Empty));
        check("public.", Err(NameError::Empty));
        check(".orders", Err(NameError::Empty));
        check(r#""".t"#, Err(NameError::Empty));
        check(r#"s."t"#, Err(NameError::Unclosed));
        check(r#"s."t"x"#, Err(NameError::NeedsQuotes('x')));
        check("my-schema.t", Err(NameError::NeedsQuotes('-')));
        check("s.1t", Err(NameError::NeedsQuotes('1')));
        check("s.t\0", Err(NameError::Nul));
        check(&format!("s.{}", "x".repeat(64)), Err(NameError::TooLong(64)));
    }

    #[test]
    fn one_table_is_not_a_pattern() {
        assert_eq!("public.*".parse::<TableName>(), Err(NameError::AnyTable));
    }

    #[test]
    fn a_pattern_matches_its_schema_only() {
        let pattern: TablePattern = "public.*".parse().unwrap();
        assert!(pattern.matches("public", "orders"));
        assert!(!pattern.matches("Public", "orders"));
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_is_read_back(schema in "[^\0]{1,15}", table in "[^\0]{1,15}") {
            let name = TableName { schema, table };
            proptest::prop_assert_eq!(name.to_string().parse(), Ok(name));
        }

        #[test]
        fn no_text_is_a_panic(text: String) {
            let parsed = text.parse::<TablePattern>();
            proptest::prop_assert!(parsed.is_ok() || parsed.is_err());
        }
    }
}
