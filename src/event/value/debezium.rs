//! Values in the style `debezium`: as the PostgreSQL connector of that name writes them with Kafka Connect's JSON
//! converter, in the modes that it documents.
//!
//! | type | JSON |
//! |---|---|
//! | numeric, money | by [`DecimalMode`]: base64 of the unscaled integer, the text, or a double |
//! | real, double precision | as Java prints them, with the shortest digits |
//! | date, time, timestamp | by [`TimeMode`]: days, and units since midnight or 1970, or ISO 8601 |
//! | timestamptz, timetz | ISO 8601 in UTC |
//! | interval | by [`IntervalMode`]: microseconds, a month being 30.4375 days, or ISO 8601 |
//! | bytea | by [`BinaryMode`] |
//! | bit, bit varying | `true` or `false` of one bit, else base64, the last bit in the lowest place |
//! | hstore | by [`HstoreMode`]: a JSON object, or its text |
//! | point | `{"x":…,"y":…,"wkb":…,"srid":null}` |
//! | arrays | arrays |
//! | every other type | the server's text as a string |
//!
//! Where it differs from the peer, the value that the peer writes is lost or wrong: see the README. Text that is
//! not what its type promises becomes a string, as in the style `plain`.

mod decimal;
mod float;
mod hstore;
pub(super) mod stand_in;
mod temporal;

use tokio_postgres::types::Type;

use super::{binary, string};
use crate::config::format::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, Modes, TimeMode};

/// How a column's values become JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Float(float::Width),
    Boolean,
    /// `scale`: digits after the point in every value, negative before it; `None`: each value has its own.
    Decimal {
        scale: Option<i32>,
        mode: DecimalMode,
    },
    Money(DecimalMode),
    Bytes(BinaryMode),
    /// A string of bits that has one at most.
    Bit,
    Bits,
    Date(TimeMode),
    Time {
        mode: TimeMode,
        digits: u8,
    },
    TimeTz,
    Timestamp {
        mode: TimeMode,
        digits: u8,
    },
    TimestampTz {
        digits: u8,
    },
    Interval(IntervalMode),
    Hstore(HstoreMode),
    Point,
    /// `int2vector` and `oidvector`: numbers with spaces between.
    Vector,
    /// The server's text as it is.
    Text,
}

/// The kind of a type that is neither a domain nor an array. `name`: of a type that is not built in.
pub(super) fn kind_of(built_in: Option<&Type>, name: Option<&str>, typmod: i32, modes: Modes) -> Kind {
    let digits = u8::try_from(typmod).unwrap_or(6).min(6);
    let Some(built_in) = built_in else {
        return if name == Some("hstore") { Kind::Hstore(modes.hstore) } else { Kind::Text };
    };
    match *built_in {
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => Kind::Integer,
        Type::FLOAT4 => Kind::Float(float::Width::Single),
        Type::FLOAT8 => Kind::Float(float::Width::Double),
        Type::BOOL => Kind::Boolean,
        Type::NUMERIC => Kind::Decimal { scale: decimal::scale_of(typmod), mode: modes.decimal },
        Type::MONEY => Kind::Money(modes.decimal),
        Type::BYTEA => Kind::Bytes(modes.binary),
        Type::BIT | Type::VARBIT if typmod == 1 => Kind::Bit,
        Type::BIT | Type::VARBIT => Kind::Bits,
        Type::DATE => Kind::Date(modes.time),
        Type::TIME => Kind::Time { mode: modes.time, digits },
        Type::TIMETZ => Kind::TimeTz,
        Type::TIMESTAMP => Kind::Timestamp { mode: modes.time, digits },
        Type::TIMESTAMPTZ => Kind::TimestampTz { digits },
        Type::INTERVAL => Kind::Interval(modes.interval),
        Type::POINT => Kind::Point,
        Type::INT2_VECTOR | Type::OID_VECTOR => Kind::Vector,
        _ => Kind::Text,
    }
}

/// Writes one value, `text` as the server printed it; `None` where that is not what the type promises, and then what
/// was written is to be taken back.
pub(super) fn write(kind: &Kind, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match kind {
        Kind::Integer => {
            out.extend_from_slice(super::is_integer(text).then_some(text)?);
            Some(())
        }
        Kind::Float(width) => float::write(text, *width, out),
        Kind::Boolean => write_word(text, &[("t", "true"), ("f", "false")], out),
        Kind::Decimal { scale, mode } => decimal::write(text, *scale, *mode, out),
        Kind::Money(mode) => decimal::write_money(text, *mode, out),
        Kind::Bytes(mode) => write_bytes(text, *mode, out),
        Kind::Bit => write_word(text, &[("1", "true"), ("0", "false"), ("", "null")], out),
        Kind::Bits => write_bits(text, out),
        Kind::Date(mode) => temporal::write_date(text, *mode, out),
        Kind::Time { mode, digits } => temporal::write_time(text, *mode, *digits, out),
        Kind::TimeTz => temporal::write_timetz(text, out),
        Kind::Timestamp { mode, digits } => temporal::write_timestamp(text, *mode, *digits, out),
        Kind::TimestampTz { digits } => temporal::write_timestamptz(text, *digits, out),
        Kind::Interval(mode) => temporal::write_interval(text, *mode, out),
        Kind::Hstore(mode) => hstore::write(text, *mode, out),
        Kind::Point => write_point(text, out),
        Kind::Vector => write_vector(text, out),
        Kind::Text => {
            string::write_bytes(text, out);
            Some(())
        }
    }
}

/// What a word means.
fn write_word(text: &[u8], words: &[(&str, &str)], out: &mut Vec<u8>) -> Option<()> {
    let (_, meaning) = words.iter().find(|(word, _)| word.as_bytes() == text)?;
    out.extend_from_slice(meaning.as_bytes());
    Some(())
}

fn write_bytes(text: &[u8], mode: BinaryMode, out: &mut Vec<u8>) -> Option<()> {
    if mode == BinaryMode::Hex {
        string::write_bytes(text.strip_prefix(b"\\x")?, out);
        return Some(());
    }
    let start = out.len();
    binary::write_hex_as_base64(text, out)?;
    make_url_safe(mode, out.get_mut(start..)?);
    Some(())
}

pub(super) fn write_raw_bytes(bytes: &[u8], mode: BinaryMode, out: &mut Vec<u8>) {
    if mode == BinaryMode::Hex {
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        string::write(&digits.concat(), out);
        return;
    }
    let start = out.len();
    binary::write_base64(bytes, out);
    make_url_safe(mode, out.get_mut(start..).unwrap_or_default());
}

fn make_url_safe(mode: BinaryMode, base64: &mut [u8]) {
    for byte in base64.iter_mut().filter(|_| mode == BinaryMode::Base64UrlSafe) {
        match byte {
            b'+' => *byte = b'-',
            b'/' => *byte = b'_',
            _ => {}
        }
    }
}

/// Eight bits a byte, the last ones first; bytes of zeros at the end are left out.
fn write_bits(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut bytes = Vec::with_capacity(text.len() / 8 + 1);
    for group in text.rchunks(8) {
        let mut byte = 0;
        for bit in group {
            byte = byte << 1
                | match bit {
                    b'0' => 0,
                    b'1' => 1,
                    _ => return None,
                };
        }
        bytes.push(byte);
    }
    while bytes.pop_if(|byte| *byte == 0).is_some() {}
    binary::write_base64(&bytes, out);
    Some(())
}

/// `(1,2.5)`: the coordinates, and both as well-known binary, lowest byte first.
fn write_point(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    const LITTLE_ENDIAN_POINT: [u8; 5] = [1, 1, 0, 0, 0];
    let text = std::str::from_utf8(text.strip_prefix(b"(")?.strip_suffix(b")")?).ok()?;
    let (x, y) = text.split_once(',')?;
    let numbers: [f64; 2] = [x.parse().ok()?, y.parse().ok()?];
    out.extend_from_slice(b"{\"x\":");
    float::write(x.as_bytes(), float::Width::Double, out)?;
    out.extend_from_slice(b",\"y\":");
    float::write(y.as_bytes(), float::Width::Double, out)?;
    out.extend_from_slice(b",\"wkb\":");
    let [x, y] = numbers.map(f64::to_le_bytes);
    binary::write_base64(&[LITTLE_ENDIAN_POINT.as_slice(), &x, &y].concat(), out);
    out.extend_from_slice(b",\"srid\":null}");
    Some(())
}

fn write_vector(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.push(b'[');
    for (place, number) in text.split(|byte| *byte == b' ').filter(|number| !number.is_empty()).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(super::is_integer(number).then_some(number)?);
    }
    out.push(b']');
    Some(())
}
