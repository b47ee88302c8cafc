//! Values of an axis in a few words: `1..1024`, `100..2000 GB/s step 100`, `1..8 TB/s log 12`, `0.1..0.9 linear 5`. Both ends are values.
//! `1..8 TB/s continuous` is every value between: the ends of [`INTERVALS`] intervals (or of as many as stand behind it) are points, and what
//! lies inside of an interval is judged by its ends ([`super::front`]).

use crate::spec::{Node, Reader, Value};

/// Most values of a range.
const MOST: usize = 100_000;

/// Intervals of a continuous range that says no other count. Many cost nothing: a search halves the range no further than it needs.
const INTERVALS: usize = 1024;

/// What a range looks like, for messages.
const EXPECTED: &str = "a range as 1..1024, 100..2000 GB/s step 100, 1..8 TB/s log 12 (values apart by one factor), 0.1..0.9 linear 5 or \
     1..8 TB/s continuous";

/// The list with every range in it written out; notes what is wrong with one.
pub(super) fn written_out(values: &[Node], reader: &mut Reader) -> Vec<Node> {
    let mut all = Vec::with_capacity(values.len());
    for value in values {
        match &value.value {
            Value::Scalar { text, .. } if is_range(text) => {
                match texts(text) {
                    Ok(texts) => all.extend(texts.into_iter().map(|text| Node {
                        origin: value.origin.clone(),
                        value: Value::Scalar { text, quoted: false },
                    })),
                    Err(message) => reader.problem(value, message),
                }
            }
            _ => all.push(value.clone()),
        }
    }
    all
}

/// Whether one of the values is every value between two.
pub(super) fn is_continuous(values: &[Node]) -> bool {
    values.iter().any(|value| match &value.value {
        Value::Scalar { text, .. } => is_range(text) && text.split_whitespace().any(|word| word == CONTINUOUS),
        _ => false,
    })
}

/// The word for every value between two.
const CONTINUOUS: &str = "continuous";

/// Whether a text is meant as a range: a number (with a unit, which is wrong), two dots, and a number.
fn is_range(text: &str) -> bool {
    let begins = |text: &str| text.trim().trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
    let alone = |text: &str| number(text.trim().trim_start_matches('-')).is_some();
    text.split_once("..").is_some_and(|(low, high)| alone(low) || (begins(low) && begins(high)))
}

fn number(text: &str) -> Option<f64> {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    digits.then(|| text.replace('_', "").parse().ok()).flatten().filter(|n: &f64| n.is_finite())
}

/// The values, as texts.
fn texts(text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("expected {EXPECTED}, found {text:?}");
    let (low, rest) = text.split_once("..").ok_or_else(wrong)?;
    let mut words: Vec<&str> = rest.split_whitespace().collect();
    if low.trim().starts_with('-') {
        return Err(format!("expected ends of zero or more, found {text:?}"));
    }
    if number(low.trim()).is_none() && low.trim().contains(|c: char| c.is_alphabetic()) {
        return Err(format!("a range has its unit at its end, as 1..8 TB/s log 12, found {text:?}"));
    }
    let low = number(low.trim()).ok_or_else(wrong)?;
    // How far apart, from the end of the text.
    let spacing = words.iter().position(|word| matches!(*word, "step" | "log" | "linear" | CONTINUOUS));
    let spacing: Vec<&str> = spacing.map_or(Vec::new(), |at| words.split_off(at));
    let (high, unit) = match words.as_slice() {
        [high] => (*high, ""),
        [high, unit] => (*high, *unit),
        _ => return Err(wrong()),
    };
    let high = number(high).ok_or_else(wrong)?;
    if low > high {
        return Err(format!("expected the lower end first, found {text:?}"));
    }
    let count = |text: &str| match text.parse::<usize>() {
        Ok(count) if (2..=MOST).contains(&count) => Ok(count),
        _ => Err(format!("expected a count of values from 2 to {MOST}, found {text:?}")),
    };
    let by_factor = |n: usize| (0..n).map(move |i| low * (high / low).powf(i as f64 / (n - 1) as f64)).collect();
    let by_step = |n: usize| (0..n).map(move |i| low + (high - low) * i as f64 / (n - 1) as f64).collect();
    let values: Vec<f64> = match spacing.as_slice() {
        [] if low.fract() == 0.0 && high.fract() == 0.0 => stepped(low, high, 1.0)?,
        [] => return Err(format!("expected how far apart the values are (step, log or linear), found {text:?}")),
        ["step", step] => {
            let step = number(step).filter(|step| *step > 0.0);
            stepped(low, high, step.ok_or_else(|| format!("expected a step above zero, found {text:?}"))?)?
        }
        ["log", _] if low <= 0.0 => return Err(format!("expected ends above zero for log, found {text:?}")),
        ["log", n] => {
            let n = count(n)?;
            rounded(by_factor(n))
        }
        ["linear", n] => {
            let n = count(n)?;
            rounded(by_step(n))
        }
        [CONTINUOUS, n @ ..] if n.len() <= 1 => {
            let intervals =
                match n {
                    [n] => n.parse::<usize>().ok().filter(|n| (1..MOST).contains(n)).ok_or_else(|| {
                        format!("expected a count of intervals from 1 to {}, found {text:?}", MOST - 1)
                    })?,
                    _ => INTERVALS,
                };
            if low <= 0.0 || low == high {
                return Err(format!("expected two different ends above zero, found {text:?}"));
            }
            rounded(by_factor(intervals + 1))
        }
        _ => return Err(wrong()),
    };
    let ends = |mut values: Vec<f64>| {
        // Rounded, but not the ends.
        if let ([first, .., last], true) = (values.as_mut_slice(), spacing.first() != Some(&"step")) {
            (*first, *last) = (low, high);
        }
        values
    };
    let word = |value: f64| if unit.is_empty() { format!("{value}") } else { format!("{value} {unit}") };
    Ok(ends(values).into_iter().map(word).collect())
}

fn stepped(low: f64, high: f64, step: f64) -> Result<Vec<f64>, String> {
    let steps = ((high - low) / step * (1.0 + 1e-12)).floor();
    if steps >= MOST as f64 {
        return Err(format!("expected at most {MOST} values, found {}", steps + 1.0));
    }
    // What binary fractions add in the last digits is no part of the value.
    let clean = |value: f64| format!("{value:.12e}").parse().unwrap_or(value);
    Ok((0..=steps as usize).map(|i| clean(low + step * i as f64)).collect())
}

/// The values to four digits, which is what a label can well hold; to more where two of them would be one.
fn rounded(values: Vec<f64>) -> Vec<f64> {
    let to = |digits: usize| -> Vec<f64> {
        values.iter().map(|value| format!("{value:.*e}", digits - 1).parse().unwrap_or(*value)).collect()
    };
    let apart = |values: &Vec<f64>| values.windows(2).all(|pair| pair[0] < pair[1]);
    (4..17).map(to).find(apart).unwrap_or(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_by_hand() {
        let all = |text: &str| texts(text).unwrap().join(", ");
        assert_eq!(all("1..4"), "1, 2, 3, 4");
        assert_eq!(all("8..32 step 8"), "8, 16, 24, 32");
        assert_eq!(all("8..30 step 8"), "8, 16, 24");
        assert_eq!(all("0.1..0.4 step 0.1"), "0.1, 0.2, 0.3, 0.4");
        assert_eq!(all("1..8 TB/s log 4"), "1 TB/s, 2 TB/s, 4 TB/s, 8 TB/s");
        assert_eq!(all("1..10 GB/s log 4"), "1 GB/s, 2.154 GB/s, 4.642 GB/s, 10 GB/s");
        assert_eq!(all("100..1_000 W linear 4"), "100 W, 400 W, 700 W, 1000 W");
        assert_eq!(texts("1..1024").unwrap().len(), 1024);
        assert_eq!(all("1..16 TB/s continuous 4"), "1 TB/s, 2 TB/s, 4 TB/s, 8 TB/s, 16 TB/s");
        assert_eq!(texts("1..8 TB/s continuous").unwrap().len(), INTERVALS + 1);
        // Close values have as many digits as keep them apart.
        assert_eq!(all("1..1.0004 linear 3"), "1, 1.0002, 1.0004");
        for text in ["1..2 log 100000", "1000..1001 GB continuous 1000"] {
            let mut values = texts(text).unwrap();
            let count = values.len();
            values.dedup();
            assert_eq!(values.len(), count, "{text}");
        }
    }

    #[test]
    fn what_is_no_range() {
        for text in ["../a.yaml", "h100", "1.5 TB/s", "a..b", "..", "a/1..4", "3 files/../x"] {
            assert!(!is_range(text), "{text}");
        }
        for (text, part) in [
            ("1..", "expected a range"),
            ("4..1", "lower end first"),
            ("0.5..4", "how far apart"),
            ("0..4 log 3", "above zero"),
            ("1..4 log 1", "count of values"),
            ("1..4 GB/s", ""),
            ("1..4 step 0", "step above zero"),
            ("1..4 step", "expected a range"),
            ("1..4 TB / s log 3", "expected a range"),
            ("1..1_000_000_000", "at most"),
            ("1..x", "expected a range"),
            ("1..1 continuous", "two different ends"),
            ("0..1 continuous", "ends above zero"),
            ("1 TB/s..8 TB/s continuous", "its unit at its end"),
            ("-1..8 GB", "ends of zero or more"),
            ("1..2 continuous 0", "count of intervals"),
            ("1..2 continuous x", "count of intervals"),
            ("1..2 continuous 4 4", "expected a range"),
        ] {
            match texts(text) {
                Err(message) => assert!(!part.is_empty() && message.contains(part), "{text}: {message}"),
                Ok(_) => assert!(part.is_empty(), "{text}"),
            }
        }
    }
}
