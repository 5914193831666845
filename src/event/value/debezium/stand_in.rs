//! What stands for values that are not there, in the peer's manner. The events say which ones are not: `source.unchanged`.

use super::super::{binary, string};
use super::{Kind, write, write_raw_bytes};
use crate::config::format::{BinaryMode, DecimalMode, HstoreMode};

/// For a value that an UPDATE left unchanged out of line: the placeholder where the type's form can hold it, else `null`.
pub(in crate::event::value) fn write_placeholder(kind: &Kind, placeholder: &str, out: &mut Vec<u8>) {
    match kind {
        Kind::Text | Kind::Decimal { mode: DecimalMode::String, .. } => string::write(placeholder, out),
        Kind::Bytes(BinaryMode::Hex) => string::write(placeholder, out),
        Kind::Bytes(mode) => write_raw_bytes(placeholder.as_bytes(), *mode, out),
        Kind::Hstore(mode) => {
            let mut pair = b"{".to_vec();
            string::write(placeholder, &mut pair);
            pair.push(b':');
            string::write(placeholder, &mut pair);
            pair.push(b'}');
            match mode {
                HstoreMode::Map => out.extend_from_slice(&pair),
                HstoreMode::Json => string::write_bytes(&pair, out),
            }
        }
        _ => out.extend_from_slice(b"null"),
    }
}

/// For an array of such values: one that has it, or `null`.
pub(in crate::event::value) fn write_placeholder_in_array(element: &super::super::Kind, placeholder: &str, out: &mut Vec<u8>) {
    match element {
        super::super::Kind::Debezium(kind @ (Kind::Text | Kind::Bytes(_))) => {
            out.push(b'[');
            write_placeholder(kind, placeholder, out);
            out.push(b']');
        }
        _ => out.extend_from_slice(b"null"),
    }
}

/// The zero of a type, for columns that hold no NULL.
pub(in crate::event::value) fn write_zero(kind: &Kind, out: &mut Vec<u8>) {
    match kind {
        Kind::Integer => out.push(b'0'),
        Kind::Float(_) => out.extend_from_slice(b"0.0"),
        Kind::Boolean | Kind::Bit => out.extend_from_slice(b"false"),
        Kind::Decimal { .. } => write_text(kind, b"0", out),
        Kind::Money(_) => write_text(kind, b"0.00", out),
        Kind::Bytes(_) => out.extend_from_slice(b"\"\""),
        Kind::Bits => binary::write_base64(b"", out),
        Kind::Date(_) => write_text(kind, b"1970-01-01", out),
        Kind::Time { .. } => write_text(kind, b"00:00:00", out),
        Kind::TimeTz => write_text(kind, b"00:00:00+00", out),
        Kind::Timestamp { .. } => write_text(kind, b"1970-01-01 00:00:00", out),
        Kind::TimestampTz { .. } => out.extend_from_slice(b"\"1970-01-01T00:00:00Z\""),
        Kind::Interval(_) => write_text(kind, b"00:00:00", out),
        Kind::Hstore(_) => write_text(kind, b"", out),
        Kind::Point => write_text(kind, b"(0,0)", out),
        Kind::Vector => out.extend_from_slice(b"[]"),
        Kind::Text => string::write("", out),
    }
}

fn write_text(kind: &Kind, text: &[u8], out: &mut Vec<u8>) {
    let written = write(kind, text, out);
    debug_assert!(written.is_some(), "{kind:?} takes {}", String::from_utf8_lossy(text));
}
