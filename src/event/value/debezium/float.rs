//! Floating-point numbers as Java prints them: `1.0`, `1.0E7`, `1.0E-4`. The digits are the server's, which are the fewest that give
//! the number back; Java prints others for a few numbers before its release 19.

/// Of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Single,
    Double,
}

/// The least number that is printed as a decimal fraction is `0.001`, the first that is not is ten to this power.
const DECIMAL_MAX: i32 = 7;
const DECIMAL_MIN: i32 = -3;

/// Writes what the server printed.
pub(super) fn write(text: &[u8], width: Width, out: &mut Vec<u8>) -> Option<()> {
    if let b"NaN" | b"Infinity" | b"-Infinity" = text {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
        return Some(());
    }
    let (sign, number) = text.strip_prefix(b"-").map_or((&b""[..], text), |number| (b"-", number));
    let at = number.iter().position(|byte| *byte == b'e').unwrap_or(number.len());
    let (mantissa, exponent) = number.split_at_checked(at)?;
    let exponent: i32 = match exponent {
        [] => 0,
        [_, digits @ ..] => std::str::from_utf8(digits).ok()?.parse().ok()?,
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let digits: Vec<u8> = mantissa.iter().copied().filter(|byte| *byte != b'.').collect();
    if digits.is_empty() || !super::super::all_digits(&digits) {
        return None;
    }
    out.extend_from_slice(sign);
    let leading = digits.iter().take_while(|digit| **digit == b'0').count();
    let significant = digits.get(leading..)?.trim_suffix_zeros();
    if significant.is_empty() {
        out.extend_from_slice(b"0.0");
        return Some(());
    }
    // The number is 0.<significant> times ten to this power.
    let power = i32::try_from(point).ok()? - i32::try_from(leading).ok()? + exponent;
    let [first, others @ ..] = significant else { return None };
    // Java's least numbers have a digit more than they need.
    let (first, others): (&u8, &[u8]) = match (width, significant, power) {
        (Width::Double, b"5", -323) => (&b'4', b"9"),
        (Width::Single, b"1", -44) => (&b'1', b"4"),
        _ => (first, others),
    };
    if (DECIMAL_MIN < power) && power <= DECIMAL_MAX {
        let whole = usize::try_from(power.max(0)).ok()?;
        let (integer, fraction) = significant.split_at_checked(whole.min(significant.len()))?;
        out.extend_from_slice(if integer.is_empty() { b"0" } else { integer });
        out.extend(std::iter::repeat_n(b'0', whole - integer.len()));
        out.push(b'.');
        out.extend(std::iter::repeat_n(b'0', usize::try_from(-power).unwrap_or(0)));
        out.extend_from_slice(if fraction.is_empty() { b"0" } else { fraction });
    } else {
        out.extend_from_slice(&[*first, b'.']);
        out.extend_from_slice(if others.is_empty() { b"0" } else { others });
        out.push(b'E');
        out.extend_from_slice((power - 1).to_string().as_bytes());
    }
    Some(())
}

trait TrimZeros {
    fn trim_suffix_zeros(&self) -> &[u8];
}

impl TrimZeros for [u8] {
    fn trim_suffix_zeros(&self) -> &[u8] {
        let end = self.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        self.get(..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_java_prints_them() {
        for (text, expect) in [
            ("0", "0.0"),
            ("-0", "-0.0"),
            ("1.5", "1.5"),
            ("3.4028235e+38", "3.4028235E38"),
            ("1e-45", "1.4E-45"),
            ("0.1", "0.1"),
            ("1.6777216e+07", "1.6777216E7"),
            ("9999999", "9999999.0"),
            ("1e+07", "1.0E7"),
            ("10000000", "1.0E7"),
            ("0.001", "0.001"),
            ("0.0001", "1.0E-4"),
            ("123456.79", "123456.79"),
            ("100", "100.0"),
            ("1200.5", "1200.5"),
            ("-1.1e-05", "-1.1E-5"),
            ("NaN", "\"NaN\""),
        ] {
            let mut out = Vec::new();
            assert_eq!(write(text.as_bytes(), Width::Single, &mut out), Some(()), "{text}");
            assert_eq!(String::from_utf8(out).unwrap(), expect, "{text}");
        }
        for text in ["", "x", "1e", "--1"] {
            assert_eq!(write(text.as_bytes(), Width::Double, &mut Vec::new()), None, "{text}");
        }
    }
}
