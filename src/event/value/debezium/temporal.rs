//! Dates, times and intervals: units since midnight or 1970, or ISO 8601, in the calendar that PostgreSQL reckons in
//! (Gregorian, before its introduction too).

use crate::config::format::{IntervalMode, TimeMode};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// The connector's own for infinite timestamps, in milliseconds: those of PostgreSQL's JDBC driver.
const INFINITY_MILLIS: i64 = 9_223_372_036_825_200;
const MINUS_INFINITY_MILLIS: i64 = -9_223_372_036_832_400;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    /// Of a time or timestamp with so many digits after the second; `None`: ISO 8601 instead.
    fn of(mode: TimeMode, digits: u8, is_time: bool) -> Option<Self> {
        match mode {
            TimeMode::Iso => None,
            TimeMode::Adaptive if digits <= 3 => Some(Self::Millis),
            TimeMode::AdaptiveTimeMicros if digits <= 3 && !is_time => Some(Self::Millis),
            TimeMode::Adaptive | TimeMode::AdaptiveTimeMicros | TimeMode::Micros => Some(Self::Micros),
            TimeMode::Connect => Some(Self::Millis),
            TimeMode::Nanos => Some(Self::Nanos),
        }
    }

    /// Wider than any of its numbers: microseconds of the last years that PostgreSQL knows do not fit into 64 bits.
    fn write(self, micros: i128, out: &mut Vec<u8>) {
        let number = match self {
            Self::Millis => micros.div_euclid(1_000),
            Self::Micros => micros,
            Self::Nanos => micros * 1_000,
        };
        out.extend_from_slice(number.to_string().as_bytes());
    }
}

pub(super) fn write_date(text: &[u8], mode: TimeMode, out: &mut Vec<u8>) -> Option<()> {
    let text = std::str::from_utf8(text).ok()?;
    match (text, mode) {
        ("infinity" | "-infinity", TimeMode::Iso) => write_quoted(text, out),
        // PostgreSQL's own numbers for them.
        ("infinity", _) => out.extend_from_slice(i32::MAX.to_string().as_bytes()),
        ("-infinity", _) => out.extend_from_slice(i32::MIN.to_string().as_bytes()),
        _ => {
            let (date, era) = split_era(text);
            let date = Date::parse(date, era)?;
            match mode {
                TimeMode::Iso => write_quoted(&format!("{date}Z"), out),
                _ => out.extend_from_slice(date.days().to_string().as_bytes()),
            }
        }
    }
    Some(())
}

pub(super) fn write_time(text: &[u8], mode: TimeMode, digits: u8, out: &mut Vec<u8>) -> Option<()> {
    let time = Clock::parse(std::str::from_utf8(text).ok()?)?;
    match Unit::of(mode, digits, true) {
        Some(unit) => unit.write(i128::from(time.micros()), out),
        None => write_quoted(&format!("{time}Z"), out),
    }
    Some(())
}

/// `13:51:30.5+05:30[:15]`, in UTC. The end of the day is its start, unless it is one in UTC.
pub(super) fn write_timetz(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let text = std::str::from_utf8(text).ok()?;
    let (time, zone) = text.split_at_checked(text.rfind(['+', '-'])?)?;
    let micros = Clock::parse(time)?.micros() - offset_micros(zone)?;
    let in_utc = if micros == MICROS_PER_DAY && zone == "+00" { micros } else { micros.rem_euclid(MICROS_PER_DAY) };
    write_quoted(&format!("{}Z", Clock::of(in_utc)), out);
    Some(())
}

pub(super) fn write_timestamp(text: &[u8], mode: TimeMode, digits: u8, out: &mut Vec<u8>) -> Option<()> {
    let text = std::str::from_utf8(text).ok()?;
    let unit = Unit::of(mode, digits, false);
    match (text, unit) {
        ("infinity" | "-infinity", None) => write_quoted(text, out),
        ("infinity", Some(Unit::Nanos)) => out.extend_from_slice(i64::MAX.to_string().as_bytes()),
        ("-infinity", Some(Unit::Nanos)) => out.extend_from_slice(i64::MIN.to_string().as_bytes()),
        ("infinity", Some(unit)) => unit.write(i128::from(INFINITY_MILLIS) * 1_000, out),
        ("-infinity", Some(unit)) => unit.write(i128::from(MINUS_INFINITY_MILLIS) * 1_000, out),
        _ => {
            let (date, time) = parse_timestamp(text)?;
            match unit {
                Some(unit) => unit.write(i128::from(date.days()) * i128::from(MICROS_PER_DAY) + i128::from(time.micros()), out),
                None => write_quoted(&format!("{date}T{time}Z"), out),
            }
        }
    }
    Some(())
}

/// As many digits after the second as the type has.
pub(super) fn write_timestamptz(text: &[u8], digits: u8, out: &mut Vec<u8>) -> Option<()> {
    let text = std::str::from_utf8(text).ok()?;
    if let "infinity" | "-infinity" = text {
        write_quoted(text, out);
        return Some(());
    }
    let (local, era) = split_era(text);
    let (date, time) = local.strip_suffix("+00")?.split_once(' ')?;
    let (date, time) = (Date::parse(date, era)?, Clock::parse(time)?);
    let Clock { hours, minutes, seconds, micros } = time;
    let fraction = format!("{micros:06}");
    let fraction = fraction.get(..usize::from(digits))?;
    let point = if digits > 0 { "." } else { "" };
    write_quoted(&format!("{date}T{hours:02}:{minutes:02}:{seconds:02}{point}{fraction}Z"), out);
    Some(())
}

/// `[n years] [n mons] [n days] [[-]hh:mm:ss[.ffffff]]`, each with a sign of its own.
pub(super) fn write_interval(text: &[u8], mode: IntervalMode, out: &mut Vec<u8>) -> Option<()> {
    let (mut years, mut months, mut days, mut clock) = (0_i64, 0_i64, 0_i64, Signed::default());
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    while let Some(word) = words.next() {
        if word.contains(':') {
            clock = Signed::parse(word)?;
            continue;
        }
        let number: i64 = word.parse().ok()?;
        match words.next()? {
            "year" | "years" => years = number,
            "mon" | "mons" => months = number,
            "day" | "days" => days = number,
            _ => return None,
        }
    }
    let Signed { is_negative, hours, minutes, seconds, micros } = clock;
    match mode {
        IntervalMode::Iso => {
            let sign = |number: i64| if is_negative && number != 0 { "-" } else { "" };
            let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}").trim_end_matches('0').to_owned() };
            let second_sign = sign(seconds + micros);
            write_quoted(
                &format!("P{years}Y{months}M{days}DT{}{hours}H{}{minutes}M{second_sign}{seconds}{fraction}S", sign(hours), sign(minutes)),
                out,
            );
        }
        IntervalMode::Numeric => {
            // A month is the twelfth of 365.25 days.
            const MICROS_PER_MONTH: i128 = 2_629_800 * MICROS_PER_SECOND as i128;
            let time = ((i128::from(hours) * 60 + i128::from(minutes)) * 60 + i128::from(seconds)) * i128::from(MICROS_PER_SECOND)
                + i128::from(micros);
            let micros = i128::from(years * 12 + months) * MICROS_PER_MONTH
                + i128::from(days) * i128::from(MICROS_PER_DAY)
                + if is_negative { -time } else { time };
            let micros = micros.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
            out.extend_from_slice(micros.to_string().as_bytes());
        }
    }
    Some(())
}

/// A time of day, or what an interval has of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signed {
    is_negative: bool,
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
}

impl Signed {
    fn parse(text: &str) -> Option<Self> {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text.trim_start_matches('+')), |text| (true, text));
        let mut parts = text.splitn(3, ':');
        let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
        let (seconds, micros) = parse_seconds(seconds)?;
        Some(Self { is_negative, hours: hours.parse().ok()?, minutes: minutes.parse().ok()?, seconds, micros })
    }
}

/// A time of day; the end of the day is 24:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
}

impl Clock {
    fn parse(text: &str) -> Option<Self> {
        let Signed { is_negative, hours, minutes, seconds, micros } = Signed::parse(text)?;
        (!is_negative).then_some(Self { hours, minutes, seconds, micros })
    }

    fn of(micros: i64) -> Self {
        let seconds = micros / MICROS_PER_SECOND;
        Self { hours: seconds / 3_600, minutes: seconds / 60 % 60, seconds: seconds % 60, micros: micros % MICROS_PER_SECOND }
    }

    fn micros(self) -> i64 {
        ((self.hours * 60 + self.minutes) * 60 + self.seconds) * MICROS_PER_SECOND + self.micros
    }
}

impl std::fmt::Display for Clock {
    /// No more digits than there are.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hours, minutes, seconds, micros } = self;
        write!(f, "{hours:02}:{minutes:02}:{seconds:02}")?;
        if *micros > 0 {
            write!(f, "{}", format!(".{micros:06}").trim_end_matches('0'))?;
        }
        Ok(())
    }
}

/// A day; the year before 1 is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Date {
    fn parse(text: &str, before_christ: bool) -> Option<Self> {
        let mut parts = text.splitn(3, '-');
        let mut number = || -> Option<i64> { parts.next()?.parse().ok() };
        let (year, month, day) = (number()?, number()?, number()?);
        let is_one = (1..=12).contains(&month) && (1..=31).contains(&day) && year >= 1;
        is_one.then_some(Self { year: if before_christ { 1 - year } else { year }, month, day })
    }

    /// Since 1970-01-01.
    fn days(self) -> i64 {
        // Years begin with March here, so that the leap day is the last of its year. 400 of them have 146,097 days.
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let month = (self.month + 9) % 12;
        let day_of_year = (153 * month + 2) / 5 + self.day - 1;
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
    }
}

impl std::fmt::Display for Date {
    /// Years of more than four digits have a sign.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { year, month, day } = self;
        let sign = match year {
            ..0 => "-",
            10_000.. => "+",
            _ => "",
        };
        write!(f, "{sign}{:04}-{month:02}-{day:02}", year.abs())
    }
}

fn parse_timestamp(text: &str) -> Option<(Date, Clock)> {
    let (local, era) = split_era(text);
    let (date, time) = local.split_once(' ')?;
    Some((Date::parse(date, era)?, Clock::parse(time)?))
}

/// Whether it is before Christ, and the rest.
fn split_era(text: &str) -> (&str, bool) {
    text.strip_suffix(" BC").map_or((text, false), |text| (text, true))
}

fn parse_seconds(text: &str) -> Option<(i64, i64)> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let micros: i64 = match fraction.len() {
        0 => 0,
        length @ 1..=6 => fraction.parse::<i64>().ok()? * 10_i64.pow(6 - u32::try_from(length).ok()?),
        _ => return None,
    };
    Some((seconds.parse().ok()?, micros))
}

/// `+05[:30[:15]]`.
fn offset_micros(zone: &str) -> Option<i64> {
    let (sign, zone) = zone.strip_prefix('-').map(|zone| (-1, zone)).or_else(|| Some((1, zone.strip_prefix('+')?)))?;
    let mut seconds = 0;
    let mut unit = 3_600;
    for part in zone.split(':') {
        seconds += part.parse::<i64>().ok()? * unit;
        unit /= 60;
    }
    Some(sign * seconds * MICROS_PER_SECOND)
}

fn write_quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: impl FnOnce(&mut Vec<u8>) -> Option<()>, expect: &str) {
        let mut out = Vec::new();
        assert_eq!(written(&mut out), Some(()));
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn days_are_counted_from_1970_in_both_directions() {
        for (text, days) in [
            ("1970-01-01", "0"),
            ("1969-12-31", "-1"),
            ("2016-11-04", "17109"),
            ("2024-02-29", "19782"),
            ("1582-10-14", "-141428"),
            ("0044-03-15 BC", "-735160"),
            ("5874897-12-31", "2145042905"),
            ("-infinity", "-2147483648"),
        ] {
            check(|out| write_date(text.as_bytes(), TimeMode::Adaptive, out), days);
        }
        check(|out| write_date(b"0044-03-15 BC", TimeMode::Iso, out), "\"-0043-03-15Z\"");
    }

    #[test]
    fn timestamps_are_numbers_of_the_unit_that_mode_and_precision_tell() {
        let text = b"2016-11-04 13:51:30.123456";
        check(|out| write_timestamp(text, TimeMode::Adaptive, 6, out), "1478267490123456");
        check(|out| write_timestamp(text, TimeMode::Adaptive, 3, out), "1478267490123");
        check(|out| write_timestamp(text, TimeMode::Nanos, 3, out), "1478267490123456000");
        check(|out| write_timestamp(text, TimeMode::Iso, 3, out), "\"2016-11-04T13:51:30.123456Z\"");
        check(|out| write_timestamp(b"0001-12-31 23:59:59.999999 BC", TimeMode::Connect, 6, out), "-62135596800001");
        check(|out| write_timestamp(b"294276-12-31 23:59:59.999999", TimeMode::Micros, 6, out), "9224318015999999999");
        check(|out| write_timestamp(b"infinity", TimeMode::Adaptive, 6, out), "9223372036825200000");
        check(|out| write_timestamptz(b"2016-11-04 13:51:30+00", 3, out), "\"2016-11-04T13:51:30.000Z\"");
        check(|out| write_timestamptz(b"10000-01-01 00:00:00.5+00", 0, out), "\"+10000-01-01T00:00:00Z\"");
    }

    #[test]
    fn times_with_a_zone_are_in_utc() {
        check(|out| write_timetz(b"13:51:30.123456+02", out), "\"11:51:30.123456Z\"");
        check(|out| write_timetz(b"23:59:59.999999-15:59", out), "\"15:58:59.999999Z\"");
        check(|out| write_timetz(b"24:00:00+00", out), "\"24:00:00Z\"");
        check(|out| write_timetz(b"24:00:00-02", out), "\"02:00:00Z\"");
        check(|out| write_time(b"24:00:00", TimeMode::Adaptive, 6, out), "86400000000");
    }

    #[test]
    fn intervals_are_microseconds_or_parts() {
        for (text, numeric, iso) in [
            ("1 year 2 mons 3 days 04:05:06.789012", "37091106789012", "P1Y2M3DT4H5M6.789012S"),
            ("-1 days -02:03:04", "-93784000000", "P0Y0M-1DT-2H-3M-4S"),
            ("1 mon -1 days +00:00:01", "2543401000000", "P0Y1M-1DT0H0M1S"),
            ("-00:00:00.000001", "-1", "P0Y0M0DT0H0M-0.000001S"),
            ("178000000 years", "9223372036854775807", "P178000000Y0M0DT0H0M0S"),
            ("00:00:00", "0", "P0Y0M0DT0H0M0S"),
        ] {
            check(|out| write_interval(text.as_bytes(), IntervalMode::Numeric, out), numeric);
            check(|out| write_interval(text.as_bytes(), IntervalMode::Iso, out), &format!("\"{iso}\""));
        }
    }
}
