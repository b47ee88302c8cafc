//! What options are read by: numbers and quantities, with messages that say what would fit.

use crate::spec::nearest::meant;
use crate::units::{Quantity, QuantityError, Seconds, Years};
use std::num::IntErrorKind;
use std::num::NonZeroUsize;

/// What to say of a word that is none of those that are known.
pub fn none_of(text: &str, words: &[&str]) -> String {
    format!("expected {}, found {text:?}{}", words.join(", "), meant(text, words))
}

/// A parser of the words of a choice.
macro_rules! word {
    ($choice:ty) => {
        |text: &str| {
            <$choice>::from_word(text).ok_or_else(|| {
                let words: Vec<&str> = <$choice>::ALL.iter().map(|c| c.word()).collect();
                $crate::cli::args::none_of(text, &words)
            })
        }
    };
}
pub(super) use word;

/// A whole number of at least 1.
///
/// # Errors
/// What is due.
pub fn positive(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(n) if n > 0 => Ok(n),
        Err(e) if *e.kind() == IntErrorKind::PosOverflow => {
            Err(format!("expected a whole number of at most {}, found {text:?}", u64::MAX))
        }
        _ => Err(format!("expected a whole number of at least 1, found {text:?}")),
    }
}

/// A whole number.
///
/// # Errors
/// What is due.
pub fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number of at least 0, found {text:?}"))
}

/// A whole number of 32 bits.
///
/// # Errors
/// What is due.
pub fn seed(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}, found {text:?}", u32::MAX))
}

/// Points solved at the same time: as asked for, or as many as there are processors.
pub fn jobs(asked: Option<u64>) -> usize {
    let processors = || std::thread::available_parallelism().ok().map(NonZeroUsize::get);
    asked.and_then(|n| usize::try_from(n).ok()).or_else(processors).unwrap_or(1)
}

/// A fraction below 1.
///
/// # Errors
/// What is due.
pub fn gap(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(g) if (0.0..1.0).contains(&g) => Ok(g),
        _ => Err(format!("expected a fraction from 0 to below 1, found {text:?}")),
    }
}

/// Per cent above zero; the sign may follow.
///
/// # Errors
/// What is due.
pub fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(p) if p.is_finite() && p > 0.0 && p <= 1e6 => Ok(p),
        _ => Err(format!("expected per cent above zero, at most 1000000, such as 10 or 10%, found {text:?}")),
    }
}

/// A factor of at least 1.
///
/// # Errors
/// What is due.
pub fn pue(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor >= 1.0 => Ok(factor),
        _ => Err(format!("expected a factor of at least 1, found {text:?}")),
    }
}

/// A quantity with its unit, as in files.
///
/// # Errors
/// What is due, with the units it may have.
pub fn quantity<Q: Quantity>(text: &str) -> Result<Q, String> {
    match Q::parse(text) {
        // A span of less than a second is none.
        Ok(value) if value.base() < 1.0 && Q::NAME == Years::NAME => {
            Err(format!("expected at least a second, found {text:?}"))
        }
        Ok(value) => Ok(value),
        Err(reason) => Err(wrong_quantity::<Q>(Q::EXAMPLE, &reason)),
    }
}

fn wrong_quantity<Q: Quantity>(example: &str, reason: &QuantityError) -> String {
    format!("expected {} such as {example:?}: {reason}{}", Q::NAME, reason.units::<Q>())
}

/// A time above zero, with its unit, in seconds.
///
/// # Errors
/// What is due, with the units it may have.
pub fn time(text: &str) -> Result<f64, String> {
    match Seconds::parse(text) {
        Ok(Seconds(s)) if s > 0.0 => Ok(s),
        Ok(_) => Err(format!("expected a time above zero, found {text:?}")),
        Err(reason) => Err(wrong_quantity::<Seconds>("20ms", &reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[test]
    fn quantities_have_units() {
        assert_eq!(time("20ms"), Ok(20.0 * 1e-3));
        assert_eq!(time("0.5 min"), Ok(30.0));
        let bare = time("0.02").unwrap_err();
        assert!(bare.contains("has no unit (units: s, ms, us, ns, min, h)"), "{bare}");
        assert!(time("0 s").is_err() && time("-1 s").is_err() && time("20 GB").is_err());
        assert_eq!(quantity::<Bytes>("2 KiB"), Ok(Bytes(2048.0)));
        assert!(quantity::<Years>("0 s").is_err());
    }

    #[test]
    fn numbers_are_in_their_ranges() {
        assert_eq!(
            (positive("1"), whole("0"), gap("0"), percent("10 %"), pue("1.2")),
            (Ok(1), Ok(0), Ok(0.0), Ok(10.0), Ok(1.2))
        );
        assert!(positive("0").is_err() && whole("-1").is_err() && gap("1").is_err() && percent("0").is_err());
        assert!(pue("0.9").is_err() && seed("4294967296").is_err() && seed("7") == Ok(7));
    }
}
