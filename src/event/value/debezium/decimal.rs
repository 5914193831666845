//! Decimal numbers: base64 of the unscaled integer as Java's `BigInteger` has it (two's complement, highest byte
//! first, as few bytes as it needs), the text, or a double.

use num_bigint::BigInt;

use super::super::{binary, string};
use super::float;
use crate::config::format::DecimalMode;

/// Digits after the point of an amount of money.
const MONEY_SCALE: i32 = 2;

/// The scale that a type modifier of `numeric` tells; `None` where it tells none.
pub(super) fn scale_of(typmod: i32) -> Option<i32> {
    // Four is added to precision (16 bits) and scale (11 bits with sign).
    (typmod >= 4).then(|| (((typmod - 4) & 0x7FF) ^ 0x400) - 0x400)
}

/// Writes what the server printed of a numeric. Without a number's form (`NaN`, infinities) it is `null` in the mode
/// `precise`, whose values are numbers.
pub(super) fn write(text: &[u8], scale: Option<i32>, mode: DecimalMode, out: &mut Vec<u8>) -> Option<()> {
    let special = match text {
        b"NaN" => Some(("NAN", "NaN")),
        b"Infinity" => Some(("POSITIVE_INFINITY", "Infinity")),
        b"-Infinity" => Some(("NEGATIVE_INFINITY", "-Infinity")),
        _ => None,
    };
    match (mode, special) {
        (DecimalMode::Precise, Some(_)) => out.extend_from_slice(b"null"),
        (DecimalMode::String, Some((name, _))) => string::write(name, out),
        (DecimalMode::Double, Some((_, text))) => string::write(text, out),
        (DecimalMode::String, None) => string::write_bytes(text, out),
        (DecimalMode::Double, None) => return write_double(text, out),
        (DecimalMode::Precise, None) => return write_precise(text, scale, out),
    }
    Some(())
}

/// Writes an amount of money, printed with a currency sign and with commas.
pub(super) fn write_money(text: &[u8], mode: DecimalMode, out: &mut Vec<u8>) -> Option<()> {
    let number: Vec<u8> = text.iter().copied().filter(|byte| matches!(byte, b'-' | b'.' | b'0'..=b'9')).collect();
    write(&number, Some(MONEY_SCALE), mode, out)
}

fn write_precise(text: &[u8], scale: Option<i32>, out: &mut Vec<u8>) -> Option<()> {
    if let Some(scale) = scale {
        return write_unscaled(text, scale, out);
    }
    let scale = scale_needed(text);
    out.extend_from_slice(b"{\"scale\":");
    out.extend_from_slice(scale.to_string().as_bytes());
    out.extend_from_slice(b",\"value\":");
    write_unscaled(text, scale, out)?;
    out.push(b'}');
    Some(())
}

fn write_double(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    match number {
        f64::INFINITY => string::write("Infinity", out),
        f64::NEG_INFINITY => string::write("-Infinity", out),
        // A decimal has no negative zero.
        0.0 => out.extend_from_slice(b"0.0"),
        _ => return float::write(format!("{number:e}").as_bytes(), float::Width::Double, out),
    }
    Some(())
}

/// Digits after the point up to the last that is not zero.
fn scale_needed(text: &[u8]) -> i32 {
    let Some(point) = memchr::memchr(b'.', text) else { return 0 };
    let last = text.iter().rposition(|digit| *digit != b'0').unwrap_or(point);
    i32::try_from(last.saturating_sub(point)).unwrap_or(i32::MAX)
}

/// The number times ten to the power of the scale, as base64. Digits that the scale leaves no room for are zeros.
fn write_unscaled(text: &[u8], scale: i32, out: &mut Vec<u8>) -> Option<()> {
    let (sign, number) = text.strip_prefix(b"-").map_or((&b""[..], text), |number| (b"-", number));
    let point = memchr::memchr(b'.', number).unwrap_or(number.len());
    let (whole, fraction) = number.split_at_checked(point)?;
    let fraction = fraction.strip_prefix(b".").unwrap_or_default();
    let length = i32::try_from(whole.len()).ok()?.checked_add(scale)?;
    let mut digits: Vec<u8> = [whole, fraction].concat();
    digits.resize(usize::try_from(length.max(0)).ok()?, b'0');
    if !super::super::all_digits(&digits) {
        return None;
    }
    let unscaled = BigInt::parse_bytes(&[sign, &digits].concat(), 10).unwrap_or_default();
    binary::write_base64(&unscaled.to_signed_bytes_be(), out);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, scale: Option<i32>, mode: DecimalMode, expect: &str) {
        let mut out = Vec::new();
        assert_eq!(write(text.as_bytes(), scale, mode, &mut out), Some(()), "{text}");
        assert_eq!(String::from_utf8(out).unwrap(), expect, "{text}");
    }

    #[test]
    fn precise_numbers_are_unscaled_integers() {
        check("123.45", Some(2), DecimalMode::Precise, "\"MDk=\"");
        check("1234", Some(0), DecimalMode::Precise, "\"BNI=\"");
        check("0.00", Some(2), DecimalMode::Precise, "\"AA==\"");
        check("-1.5", Some(1), DecimalMode::Precise, "\"8Q==\"");
        check("12300", Some(-2), DecimalMode::Precise, "\"ew==\"");
        check("0", Some(-2), DecimalMode::Precise, "\"AA==\"");
        check("100.00", None, DecimalMode::Precise, "{\"scale\":0,\"value\":\"ZA==\"}");
        check("12.30", None, DecimalMode::Precise, "{\"scale\":1,\"value\":\"ew==\"}");
        check("NaN", None, DecimalMode::Precise, "null");
        assert_eq!(write(b"1x", Some(0), DecimalMode::Precise, &mut Vec::new()), None);
    }

    #[test]
    fn the_other_modes_write_text_and_doubles() {
        check("22.2200", Some(4), DecimalMode::String, "\"22.2200\"");
        check("-Infinity", None, DecimalMode::String, "\"NEGATIVE_INFINITY\"");
        check("22.2200", Some(4), DecimalMode::Double, "22.22");
        check("-0.0", Some(1), DecimalMode::Double, "0.0");
        check("1234567890123", None, DecimalMode::Double, "1.234567890123E12");
        let mut out = Vec::new();
        write_money(b"-$1,234.11", DecimalMode::Precise, &mut out);
        assert_eq!(out, b"\"/h3t\"");
    }

    #[test]
    fn the_scale_is_in_the_type_modifier() {
        assert_eq!(scale_of(-1), None);
        assert_eq!(scale_of((5 << 16 | 2) + 4), Some(2));
        assert_eq!(scale_of((5 << 16 | (-2 & 0x7FF)) + 4), Some(-2));
    }
}
