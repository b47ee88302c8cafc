//! Requests that come to a server: drawn (Poisson), or read from a file.

use csv::{ReaderBuilder, StringRecord, Trim};
use serde::Serialize;
use std::path::Path;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Request {
    /// Seconds from the begin.
    pub arrival_s: f64,
    /// Tokens of its prompt, at least one.
    pub prompt: u64,
    /// Tokens that are generated; 0 where the prompt is read and that is all.
    pub generated: u64,
}

/// Numbers that look random, the same for the same seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug, Clone, Copy)]
struct Random(u64);

impl Random {
    /// Between 0 and 1, neither of them.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((z >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}

/// The same requests, one after the other, at `rate` a second: times between them are exponential (a Poisson process).
pub fn poisson(lengths: &[Request], rate: f64, seed: u64) -> Vec<Request> {
    let (mut random, mut now) = (Random(seed), 0.0);
    let mut next = |of: &Request| {
        now -= random.uniform().ln() / rate;
        Request { arrival_s: now, ..*of }
    };
    lengths.iter().map(&mut next).collect()
}

/// Names of the columns of a file of requests: ours, and those of the published traces of Azure's services (Patel et al. 2024, arXiv 2311.18677).
const COLUMNS: [[&str; 2]; 3] =
    [["arrival_s", "TIMESTAMP"], ["prompt", "ContextTokens"], ["generated", "GeneratedTokens"]];

/// Most requests of a file.
const MOST: usize = 10_000_000;

/// Longest time from the first request to the last, s: beyond it a pass is lost in the digits of the time.
const LONGEST: f64 = 1e9;

/// Most faults told of one file.
const TOLD: usize = 20;

/// Reads a file of requests: CSV with a header and the columns `arrival_s` (seconds, or times such as 2023-11-16 18:15:46.68), `prompt` and
/// `generated` (tokens). Times count from the first; rows may come in any order.
///
/// # Errors
/// A text: the file cannot be read, or all faults of its rows with line, column, what was found and what would fit.
pub fn read(path: &Path) -> Result<Vec<Request>, String> {
    let name = path.display();
    let opened = ReaderBuilder::new().trim(Trim::All).flexible(true).from_path(path);
    let mut reader = opened.map_err(|e| format!("{name}: {e}"))?;
    let header = reader.headers().map_err(|e| format!("{name}: {e}"))?.clone();
    let column = |names: &[&str; 2]| header.iter().position(|found| names.contains(&found));
    let twice = COLUMNS.iter().find(|names| header.iter().filter(|found| names.contains(found)).count() > 1);
    if let Some(names) = twice {
        return Err(format!("{name}:1: column {}: expected once, found more often", names[0]));
    }
    let places: Vec<Option<usize>> = COLUMNS.iter().map(column).collect();
    let lacking: Vec<&str> = COLUMNS.iter().zip(&places).filter(|(_, at)| at.is_none()).map(|(c, _)| c[0]).collect();
    let [Some(arrival), Some(prompt), Some(generated)] = places[..] else {
        let found = header.iter().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "{name}:1: no column {}: expected arrival_s, prompt, generated; found {found}",
            lacking.join(", ")
        ));
    };
    let (mut out, mut faults) = (Vec::new(), Vec::new());
    let mut record = StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {}
            Err(e) => {
                faults.push(format!("{name}: {e}"));
                break;
            }
        }
        let line = record.position().map_or(0, csv::Position::line);
        let field = |at: usize| record.get(at).unwrap_or("");
        let mut wrong = |what: &str, expected: &str, found: &str| {
            faults.push(format!("{name}:{line}: {what}: expected {expected}, found {found:?}"));
        };
        let at = seconds(field(arrival));
        if at.is_none() {
            wrong("arrival_s", "seconds of at least 0 or a time such as 2023-11-16 18:15:46.68", field(arrival));
        }
        let tokens = |at: usize, least: u64| field(at).parse::<u64>().ok().filter(|n| (least..=1 << 32).contains(n));
        if tokens(prompt, 1).is_none() {
            wrong("prompt", "tokens, from 1 to 4294967296", field(prompt));
        }
        if tokens(generated, 0).is_none() {
            wrong("generated", "tokens, from 0 to 4294967296", field(generated));
        }
        if let (Some(arrival_s), Some(prompt), Some(generated)) = (at, tokens(prompt, 1), tokens(generated, 0)) {
            out.push(Request { arrival_s, prompt, generated });
        }
        if out.len() > MOST {
            return Err(format!("{name}:{line}: expected at most {MOST} requests"));
        }
    }
    if !faults.is_empty() {
        let more = faults.len().saturating_sub(TOLD);
        faults.truncate(TOLD);
        if more > 0 {
            faults.push(format!("{name}: and {more} more"));
        }
        return Err(faults.join("\n"));
    }
    if out.is_empty() {
        return Err(format!("{name}: expected a request at least"));
    }
    out.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s));
    let first = out.first().map_or(0.0, |r| r.arrival_s);
    let last = out.last().map_or(0.0, |r| r.arrival_s);
    if last - first > LONGEST {
        return Err(format!("{name}: expected arrivals within {LONGEST} s of each other, found {} s", last - first));
    }
    out.iter_mut().for_each(|r| r.arrival_s -= first);
    Ok(out)
}

/// Seconds of a number, or of a date and time of day.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return Some(number).filter(|n| n.is_finite() && *n >= 0.0);
    }
    let (date, time) = text.split_once([' ', 'T'])?;
    let part = |text: &str, most: u64| text.parse::<u64>().ok().filter(|n| *n <= most);
    let mut days = date.splitn(3, '-');
    let (year, month, day) = (part(days.next()?, 9999)?, part(days.next()?, 12)?, part(days.next()?, 31)?);
    // A time zone, where one is stated: hours and minutes before or after.
    let (time, zone) = match time.rfind(['+', '-']) {
        Some(at) => {
            let (hours, minutes) = time.get(at + 1..)?.split_once(':')?;
            let seconds = (part(hours, 14)? * 3600 + part(minutes, 59)? * 60) as f64;
            (time.get(..at)?, if time.get(at..=at)? == "+" { seconds } else { -seconds })
        }
        None => (time.trim_end_matches('Z'), 0.0),
    };
    let mut clock = time.splitn(3, ':');
    let (hour, minute) = (part(clock.next()?, 23)?, part(clock.next()?, 59)?);
    let second = clock.next()?.parse::<f64>().ok().filter(|s| (0.0..61.0).contains(s))?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if month == 0 || day == 0 || day > longest {
        return None;
    }
    // Days since a fixed one by the Gregorian calendar, months counted from March (Richards 2013, Explanatory Supplement to the Astronomical Almanac, 15.11).
    let (y, m) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day;
    Some(days as f64 * 86_400.0 + (hour * 3600 + minute * 60) as f64 + second - zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_dates() {
        let of = |text: &str| seconds(text).unwrap();
        assert_eq!(of("12.5"), 12.5);
        assert_eq!(of("2023-11-16 18:15:46.5") - of("2023-11-16 18:14:46"), 60.5);
        assert_eq!(of("2024-03-01T00:00:00Z") - of("2024-02-28 00:00:00"), 2.0 * 86_400.0);
        assert_eq!(of("2023-03-01 00:00:00") - of("2023-02-28 00:00:00"), 86_400.0);
        assert_eq!(of("2024-05-10 02:00:00+02:00"), of("2024-05-10 00:00:00+00:00"));
        assert_eq!(of("2024-01-01 00:00:00") - of("2023-12-31 23:59:59"), 1.0);
        for wrong in [
            "",
            "-1",
            "nan",
            "inf",
            "tomorrow",
            "2023-13-01 00:00:00",
            "2023-01-01 24:00:00",
            "2023-00-01 00:00:00",
            "2023-02-29 00:00:00",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    /// Of 100,000 times between requests at 5 a second the mean lies within four of its standard deviations (0.2 / sqrt 100,000) of 0.2 s, and as many as
    /// an exponential distribution says are above it: 1/e.
    #[test]
    fn requests_come_at_their_rate() {
        let n = 100_000;
        let all = poisson(&vec![Request { arrival_s: 0.0, prompt: 1, generated: 1 }; n], 5.0, 7);
        let last = all.last().unwrap().arrival_s;
        assert!((last / n as f64 - 0.2).abs() < 4.0 * 0.2 / (n as f64).sqrt(), "{last}");
        let longer = all.windows(2).filter(|w| w[1].arrival_s - w[0].arrival_s > 0.2).count() as f64 / n as f64;
        assert!((longer - (-1.0f64).exp()).abs() < 0.01, "{longer}");
        assert_eq!(all, poisson(&all, 5.0, 7), "the same seed, the same times");
        assert_ne!(all, poisson(&all, 5.0, 8));
    }
}
