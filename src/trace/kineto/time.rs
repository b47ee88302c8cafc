//! Microseconds as Kineto writes them, to nanoseconds.

/// Nanoseconds of a number of microseconds in JSON's notation; digits beyond the nanosecond are rounded, half away from zero. `None` for
/// what is no number or does not fit 64 bits (292 years).
pub fn nanoseconds(text: &str) -> Option<i64> {
    plain(text).or_else(|| general(text))
}

/// The times that nearly all are: up to 16 digits, and up to 3 behind the point. `None` for all others.
fn plain(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |digits: &[u8], most: usize| {
        let small = digits.len() <= most;
        (small && digits.iter().all(u8::is_ascii_digit))
            .then(|| digits.iter().fold(0, |value, b| value * 10 + u64::from(b & 0xf)))
    };
    // Where there is a point, few digits stand behind it.
    let point = bytes.iter().rev().take(4).position(|b| *b == b'.');
    let (whole, behind) = match point {
        Some(behind) => (bytes.get(..bytes.len() - behind - 1)?, bytes.get(bytes.len() - behind..)?),
        None => (bytes, [].as_slice()),
    };
    let value = number(whole, 16).filter(|_| !whole.is_empty())?.checked_mul(1000)?;
    let value = value.checked_add(number(behind, 3)? * [1000, 100, 10, 1][behind.len()])?;
    i64::try_from(value).ok()
}

fn general(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    // The decimal point moves by 3 + exponent places to the right.
    let shift = exponent.checked_add(3)?;
    if shift.unsigned_abs() > 400 {
        return (shift < 0 || whole.bytes().chain(fraction.bytes()).all(|b| b == b'0')).then_some(0);
    }
    let point = i64::try_from(whole.len()).ok()? + i64::from(shift);
    let mut value: i64 = 0;
    let mut all = whole.bytes().chain(fraction.bytes());
    let mut place = 0i64;
    while place < point {
        let digit = all.next().map_or(0, |b| i64::from(b - b'0'));
        value = value.checked_mul(10)?.checked_add(digit)?;
        place += 1;
    }
    if point >= 0 && all.next().is_some_and(|b| b >= b'5') {
        value = value.checked_add(1)?;
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_digit_is_lost() {
        // As a double this would be off by up to 125 ns.
        assert_eq!(nanoseconds("1707417525512283.457"), Some(1_707_417_525_512_283_457));
        assert_eq!(nanoseconds("1707417525512283"), Some(1_707_417_525_512_283_000));
        assert_eq!(nanoseconds("5"), Some(5_000));
        assert_eq!(nanoseconds("0.05"), Some(50));
        assert_eq!(nanoseconds("1.5685"), Some(1_569));
        assert_eq!(nanoseconds("1.5684999"), Some(1_568));
        assert_eq!(nanoseconds("-2.001"), Some(-2_001));
        assert_eq!(nanoseconds("1.5e3"), Some(1_500_000));
        assert_eq!(nanoseconds("15E-1"), Some(1_500));
        assert_eq!(nanoseconds("5e-4"), Some(1));
        assert_eq!(nanoseconds("5e-5"), Some(0));
        assert_eq!(nanoseconds("1e-400000"), Some(0));
    }

    #[test]
    fn both_ways_agree() {
        for text in [
            "0",
            "7.",
            "007",
            "1.5",
            "12.34",
            "1.234",
            "1.2345",
            "9999999999999999.999",
            "9223372036854775.807",
            "9223372036854775.808",
        ] {
            assert!(plain(text).is_none_or(|ns| Some(ns) == general(text)), "{text}");
        }
        assert_eq!(plain("9223372036854775.807"), Some(i64::MAX));
        for text in ["", ".5", "-1", "1e3", "1.2345", "9223372036854775.808", "9999999999999999", "12345678901234567"] {
            assert_eq!(plain(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_time() {
        for text in ["", "abc", "1e400", "99999999999999999999", "\"5\"", "1.2.3", "null", ".5", "1e99999999999"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
