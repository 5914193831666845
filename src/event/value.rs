//! Values in the style `plain`: from the server's text straight to JSON, without a tree between.
//!
//! What a value becomes depends on its type only; a domain is its base type:
//!
//! | type | JSON |
//! |---|---|
//! | integers, oid, xid | number; 64-bit ones a string with `bigint = "string"` |
//! | real, double precision | number with the server's digits |
//! | boolean | `true`, `false` |
//! | json, jsonb | itself, on one line; its text as a string with `json = "text"` |
//! | timestamp | `"2024-01-02T03:04:05.678901"`, as many digits as the server prints |
//! | timestamptz | the same in UTC with `Z` |
//! | bytea | base64 |
//! | arrays | arrays, nested |
//! | every other type | the server's text as a string |
//!
//! One rule for all: a value that this form cannot hold is the server's text as a string. Such are NaN and infinities,
//! infinite times and years before Christ or past 9999, arrays whose lower bounds are not 1, and arrays that could not
//! be read back (see [`array`]). So no two values of a type look the same, but for one pair: a JSON `null` and NULL.
//!
//! Whatever the bytes are, what is written is valid JSON on one line: text that is not what its type promises becomes
//! a string, and bytes that are not UTF-8 (a database whose encoding is `SQL_ASCII`) become `{"base64":"…"}`.

pub(super) mod array;
pub(super) mod binary;
pub mod debezium;
pub mod schema;
pub(super) mod string;

use std::collections::HashMap;

use serde::de::IgnoredAny;
use tokio_postgres::types::{self, Type};

use crate::config::format::{BinaryMode, Plain, Style};
use crate::lsn::Oid;

/// How a column's values become JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Float,
    Boolean,
    Json,
    Timestamp,
    TimestampTz,
    Bytes,
    Array {
        element: Box<Kind>,
        /// `pg_type.typdelim`: `,` for all built-in types but box, which has `;`.
        delimiter: u8,
    },
    /// The server's text as it is.
    Text,
    /// In that style, whatever the type.
    Debezium(debezium::Kind),
}

impl Kind {
    fn is_debezium(&self) -> bool {
        match self {
            Self::Debezium(_) => true,
            Self::Array { element, .. } => element.is_debezium(),
            _ => false,
        }
    }
}

/// What the catalog says of a type that is not built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeFacts {
    pub name: String,
    /// For a domain: the type that it is made from, which may be another domain. Else the type itself.
    pub base: Oid,
    /// For a domain: the modifier of its base type, -1 for none.
    pub typmod: i32,
    /// For an array: the type of its elements.
    pub element: Option<Oid>,
    pub delimiter: u8,
}

/// Steps from a type to its kind: an array of a domain over an array has three. A bound, so that facts that point at
/// each other end.
const STEPS_MAX: u8 = 64;

/// The kind of a type with its modifier (`pg_attribute.atttypmod`): of a built-in one by its number, of others by what
/// the catalog says.
#[must_use]
pub fn kind_of<S: std::hash::BuildHasher>(type_oid: Oid, typmod: i32, types: &HashMap<Oid, TypeFacts, S>, style: Style) -> Kind {
    kind_within(STEPS_MAX, type_oid, typmod, types, style)
}

fn kind_within<S: std::hash::BuildHasher>(steps: u8, type_oid: Oid, typmod: i32, types: &HashMap<Oid, TypeFacts, S>, style: Style) -> Kind {
    let Some(steps) = steps.checked_sub(1) else { return Kind::Text };
    let array = |element: Oid, delimiter| Kind::Array { element: Box::new(kind_within(steps, element, typmod, types, style)), delimiter };
    if let Some(built_in) = Type::from_oid(type_oid.as_u32()) {
        return match built_in.kind() {
            types::Kind::Array(element) if !is_vector(&built_in) => array(Oid::new(element.oid()), built_in_delimiter(element)),
            _ => match style {
                Style::Plain(plain) => built_in_scalar(&built_in, plain),
                Style::Debezium(modes) => Kind::Debezium(debezium::kind_of(Some(&built_in), None, typmod, modes)),
            },
        };
    }
    match types.get(&type_oid) {
        Some(TypeFacts { element: Some(element), delimiter, .. }) => array(*element, *delimiter),
        Some(TypeFacts { base, typmod, .. }) if *base != type_oid => kind_within(steps, *base, *typmod, types, style),
        other => match style {
            Style::Plain(_) => Kind::Text,
            Style::Debezium(modes) => Kind::Debezium(debezium::kind_of(None, other.map(|facts| facts.name.as_str()), typmod, modes)),
        },
    }
}

fn built_in_scalar(built_in: &Type, format: Plain) -> Kind {
    match *built_in {
        Type::INT2 | Type::INT4 | Type::OID | Type::XID | Type::CID => Kind::Integer,
        Type::INT8 | Type::XID8 if !format.bigint_as_string => Kind::Integer,
        Type::FLOAT4 | Type::FLOAT8 => Kind::Float,
        Type::BOOL => Kind::Boolean,
        Type::JSON | Type::JSONB if !format.json_as_text => Kind::Json,
        Type::TIMESTAMP => Kind::Timestamp,
        Type::TIMESTAMPTZ => Kind::TimestampTz,
        Type::BYTEA => Kind::Bytes,
        _ => Kind::Text,
    }
}

/// `int2vector` and `oidvector` have elements, but print them with spaces between.
fn is_vector(built_in: &Type) -> bool {
    matches!(*built_in, Type::INT2_VECTOR | Type::OID_VECTOR)
}

fn built_in_delimiter(element: &Type) -> u8 {
    if *element == Type::BOX { b';' } else { b',' }
}

/// Writes one value, `text` as the server printed it.
pub fn write(kind: &Kind, text: &[u8], out: &mut Vec<u8>) {
    match kind {
        Kind::Integer if is_integer(text) => out.extend_from_slice(text),
        Kind::Float if is_number(text) => out.extend_from_slice(text),
        Kind::Boolean if text == b"t" => out.extend_from_slice(b"true"),
        Kind::Boolean if text == b"f" => out.extend_from_slice(b"false"),
        Kind::Json if is_json(text) => write_on_one_line(text, out),
        Kind::Timestamp => write_timestamp(text, "", "", out),
        Kind::TimestampTz => write_timestamp(text, "+00", "Z", out),
        Kind::Bytes => or_string(text, out, |out| binary::write_hex_as_base64(text, out)),
        Kind::Array { element, delimiter } => or_string(text, out, |out| array::write(element, *delimiter, text, out)),
        Kind::Debezium(kind) => or_string(text, out, |out| debezium::write(kind, text, out)),
        _ => string::write_bytes(text, out),
    }
}

/// Writes what stands for a value of this kind that is not in the log.
pub fn write_placeholder(kind: &Kind, placeholder: &str, out: &mut Vec<u8>) {
    match kind {
        Kind::Debezium(kind) => debezium::stand_in::write_placeholder(kind, placeholder, out),
        Kind::Array { element, .. } if kind.is_debezium() => debezium::stand_in::write_placeholder_in_array(element, placeholder, out),
        _ => string::write(placeholder, out),
    }
}

/// Writes what stands for a value of this kind that nobody knows: NULL where the column may hold it, else the zero of its type.
pub fn write_filler(kind: &Kind, is_nullable: bool, out: &mut Vec<u8>) {
    match kind {
        _ if is_nullable => out.extend_from_slice(b"null"),
        Kind::Debezium(kind) => debezium::stand_in::write_zero(kind, out),
        Kind::Array { .. } => out.extend_from_slice(b"[]"),
        _ => string::write("", out),
    }
}

/// Writes bytes that came as they are.
pub(super) fn write_bytes(bytes: &[u8], mode: BinaryMode, out: &mut Vec<u8>) {
    debezium::write_raw_bytes(bytes, mode, out);
}

/// What `attempt` wrote, or, when the text turns out to be malformed on the way, the text as a string.
fn or_string(text: &[u8], out: &mut Vec<u8>, attempt: impl FnOnce(&mut Vec<u8>) -> Option<()>) {
    let start = out.len();
    if attempt(out).is_none() {
        out.truncate(start);
        string::write_bytes(text, out);
    }
}

/// `2024-01-02 03:04:05[.678901]` and the zone that the session prints. Other text (infinity, BC, five-digit years)
/// stays as it is.
fn write_timestamp(text: &[u8], zone: &str, zone_written: &str, out: &mut Vec<u8>) {
    const DATE_LENGTH: usize = 10;
    let pieces = text.strip_suffix(zone.as_bytes()).and_then(|local| local.split_at_checked(DATE_LENGTH));
    match pieces {
        Some((date, [b' ', time @ ..])) if is_date(date) && is_time(time) => {
            out.push(b'"');
            out.extend_from_slice(date);
            out.push(b'T');
            out.extend_from_slice(time);
            out.extend_from_slice(zone_written.as_bytes());
            out.push(b'"');
        }
        _ => string::write_bytes(text, out),
    }
}

fn is_date(text: &[u8]) -> bool {
    matches!(text, [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] if all_digits(&[*y1, *y2, *y3, *y4, *m1, *m2, *d1, *d2]))
}

fn is_time(text: &[u8]) -> bool {
    let Some(([h1, h2, b':', m1, m2, b':', s1, s2], fraction)) = text.split_first_chunk() else { return false };
    all_digits(&[*h1, *h2, *m1, *m2, *s1, *s2])
        && matches!(fraction, [] | [b'.', _, ..])
        && all_digits(fraction.get(1..).unwrap_or_default())
}

fn all_digits(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_digit)
}

/// A whole number as JSON has it: no leading zeros.
fn is_integer(text: &[u8]) -> bool {
    match text.strip_prefix(b"-").unwrap_or(text) {
        [b'0'] => true,
        [b'1'..=b'9', digits @ ..] => all_digits(digits),
        _ => false,
    }
}

/// A number as JSON has it: whole part, fraction, exponent.
fn is_number(text: &[u8]) -> bool {
    let exponent_at = memchr::memchr2(b'e', b'E', text).unwrap_or(text.len());
    let (mantissa, exponent) = text.split_at_checked(exponent_at).unwrap_or((text, &[]));
    let point_at = memchr::memchr(b'.', mantissa).unwrap_or(mantissa.len());
    let (whole, fraction) = mantissa.split_at_checked(point_at).unwrap_or((mantissa, &[]));
    let exponent_is_valid = match exponent {
        [] => true,
        [_, b'+' | b'-', digits @ ..] | [_, digits @ ..] => !digits.is_empty() && all_digits(digits),
    };
    let fraction_is_valid = match fraction {
        [] => true,
        [_, digits @ ..] => !digits.is_empty() && all_digits(digits),
    };
    is_integer(whole) && fraction_is_valid && exponent_is_valid
}

fn is_json(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Valid JSON with its line breaks, which can only stand between tokens, as spaces.
fn write_on_one_line(json: &[u8], out: &mut Vec<u8>) {
    let mut rest = json;
    while let Some(line) = memchr::memchr2(b'\n', b'\r', rest).and_then(|end| rest.get(..end)) {
        out.extend_from_slice(line);
        out.push(b' ');
        rest = rest.get(line.len() + 1..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests;
