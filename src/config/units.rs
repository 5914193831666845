//! Sizes and durations as people write them: `64MiB`, `256kB`, `30s`, `24h`. A bare number is bytes; a bare
//! number is no duration, because nobody can tell seconds from milliseconds by looking at it.

use std::time::Duration;

/// Bytes in each unit. Decimal and binary units are told apart as the standards do it: `kB` is 1000, `KiB` 1024.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Milliseconds in each unit.
const DURATION_UNITS: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Why a text is no size or no duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnitError {
    #[error("is not a size: write a whole number and a unit, such as `64MiB` (units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)")]
    Size,
    #[error("is not a duration: write a whole number and a unit, such as `30s` (units: ms, s, m, h, d)")]
    Duration,
    #[error("has no unit: write `{0}s` for seconds or `{0}ms` for milliseconds")]
    Bare(u64),
    #[error("is larger than can be counted")]
    Overflow,
}

/// Bytes of a text such as `64MiB`.
///
/// # Errors
/// See [`UnitError`].
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = number_and_unit(text).ok_or(UnitError::Size)?;
    let (_, factor) = SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or(UnitError::Size)?;
    number?.checked_mul(*factor).ok_or(UnitError::Overflow)
}

/// Duration of a text such as `30s`.
///
/// # Errors
/// See [`UnitError`].
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = number_and_unit(text).ok_or(UnitError::Duration)?;
    if unit.is_empty() {
        return Err(UnitError::Bare(number?));
    }
    let (_, factor) = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or(UnitError::Duration)?;
    number?.checked_mul(*factor).map(Duration::from_millis).ok_or(UnitError::Overflow)
}

/// A size as [`parse_size`] reads it, in the largest binary unit that says it exactly.
#[must_use]
pub fn print_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let exact = units.into_iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    exact.map_or_else(|| format!("{bytes}B"), |(name, shift)| format!("{}{name}", bytes >> shift))
}

/// A duration as [`parse_duration`] reads it, in the largest unit that says it exactly.
#[must_use]
pub fn print_duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    let exact = DURATION_UNITS.iter().rev().find(|(_, factor)| milliseconds.is_multiple_of(u128::from(*factor)) && milliseconds != 0);
    exact.map_or_else(|| "0s".to_owned(), |(name, factor)| format!("{}{name}", milliseconds / u128::from(*factor)))
}

/// Splits `64 MiB`; the number itself may be too large.
fn number_and_unit(text: &str) -> Option<(Result<u64, UnitError>, &str)> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    (digits > 0).then(|| (number.parse().map_err(|_| UnitError::Overflow), unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_decimal_and_binary_units() {
        let check = |text: &str, expect: Result<u64, UnitError>| assert_eq!(parse_size(text), expect, "{text}");
        check("0", Ok(0));
        check("65536", Ok(65_536));
        check("12B", Ok(12));
        check("256kB", Ok(256_000));
        check("64MiB", Ok(67_108_864));
        check(" 1 GiB ", Ok(1_073_741_824));
        check("1TB", Ok(1_000_000_000_000));
        check("", Err(UnitError::Size));
        check("MiB", Err(UnitError::Size));
        check("-1", Err(UnitError::Size));
        check("1.5GiB", Err(UnitError::Size));
        check("64Mb", Err(UnitError::Size));
        check("1e3", Err(UnitError::Size));
        check("99999999999999999999", Err(UnitError::Overflow));
        check("18446744073709551615TiB", Err(UnitError::Overflow));
        check("١٢", Err(UnitError::Size));
    }

    #[test]
    fn durations_need_a_unit() {
        let check = |text: &str, expect: Result<u64, UnitError>| {
            assert_eq!(parse_duration(text), expect.map(Duration::from_millis), "{text}");
        };
        check("500ms", Ok(500));
        check("30s", Ok(30_000));
        check("10 m", Ok(600_000));
        check("24h", Ok(86_400_000));
        check("7d", Ok(604_800_000));
        check("0s", Ok(0));
        check("30", Err(UnitError::Bare(30)));
        check("", Err(UnitError::Duration));
        check("30S", Err(UnitError::Duration));
        check("1h30m", Err(UnitError::Duration));
        check("-1s", Err(UnitError::Duration));
        check("18446744073709551615d", Err(UnitError::Overflow));
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_is_read_back(bytes: u64, milliseconds: u32) {
            proptest::prop_assert_eq!(parse_size(&print_size(bytes)), Ok(bytes));
            let duration = Duration::from_millis(u64::from(milliseconds));
            proptest::prop_assert_eq!(parse_duration(&print_duration(duration)), Ok(duration));
        }
    }
}
