//! Ranges of axes and their ticks.

use super::numbers::{short_number, tick_label};

/// How the numbers of an axis are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Logarithmic when all values are positive and span more than one and a half decades, else linear.
    #[default]
    Auto,
    /// Equal steps.
    Linear,
    /// Equal ratios; values that are not positive cannot be shown.
    Log,
}

/// The span of numbers an axis shows. It is never empty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    lo: f64,
    hi: f64,
    log: bool,
    /// Limits were given: what lies beyond them is not shown.
    cut: bool,
}

/// Limits of an axis; what is not given follows from the values.
pub type Limits = (Option<f64>, Option<f64>);

/// Larger numbers than this are treated as infinite, so that no difference or ratio can overflow.
const HUGE: f64 = 1e150;
/// `Scale::Auto` goes logarithmic above this many decades.
const AUTO_DECADES: f64 = 1.5;

impl Range {
    /// The range that shows all drawable values with some room at either end.
    pub fn over(values: &[f64], scale: Scale) -> Range {
        let (lo, hi, _) = extent(values, false);
        let log = match scale {
            Scale::Linear => false,
            Scale::Log => true,
            Scale::Auto => lo >= 1.0 / HUGE && lo <= hi && (hi / lo).log10() > AUTO_DECADES,
        };
        let (lo, hi, found) = extent(values, log);
        match (found, log) {
            (false, true) => Range { lo: 0.1, hi: 10.0, log, cut: false },
            (false, false) => Range { lo: 0.0, hi: 1.0, log, cut: false },
            (true, true) => {
                let decades = (hi / lo).log10();
                let pad = if decades < 1e-6 { 0.5 } else { (decades * 0.06).max(0.02) };
                Range { lo: lo / 10_f64.powf(pad), hi: hi * 10_f64.powf(pad), log, cut: false }
            }
            (true, false) => linear(lo, hi),
        }
    }

    /// The range within given limits; a limit that the axis cannot have (not positive on a log axis, the lower at or above the upper)
    /// is left out.
    #[must_use]
    pub fn within(self, (lo, hi): Limits) -> Range {
        let usable = |limit: Option<f64>| limit.filter(|limit| drawable(*limit, self.log));
        let wanted = Range { lo: usable(lo).unwrap_or(self.lo), hi: usable(hi).unwrap_or(self.hi), ..self };
        let cut = usable(lo).is_some() || usable(hi).is_some();
        if cut && wanted.lo < wanted.hi { Range { cut, ..wanted } } else { self }
    }

    /// The range without limits: what lies beyond its ends has a place too.
    pub(crate) fn open(self) -> Range {
        Range { cut: false, ..self }
    }

    /// A linear range from 0 to a little above the largest value, for bars.
    pub fn from_zero(values: &[f64]) -> Range {
        let (_, hi, found) = extent(values, false);
        let hi = if found && hi > 1.0 / HUGE { hi * 1.04 } else { 1.0 };
        Range { lo: 0.0, hi, log: false, cut: false }
    }

    /// A logarithmic range; bounds that are not usable are replaced.
    pub fn log_between(lo: f64, hi: f64) -> Range {
        if drawable(lo, true) && drawable(hi, true) && hi > lo * 1.0001 {
            Range { lo, hi, log: true, cut: false }
        } else {
            Range::over(&[lo, hi], Scale::Log)
        }
    }

    /// A linear range without any room at the ends, for a colour scale.
    pub fn tight(values: &[f64], scale: Scale) -> Range {
        let wide = Range::over(values, scale);
        let (lo, hi, found) = extent(values, wide.log);
        let distinct = if wide.log { hi / lo > 1.0001 } else { hi - lo > lo.abs().max(hi.abs()) * 1e-9 };
        if found && distinct { Range { lo, hi, ..wide } } else { wide }
    }

    /// The lower end.
    pub fn lo(&self) -> f64 {
        self.lo
    }

    /// The upper end.
    pub fn hi(&self) -> f64 {
        self.hi
    }

    /// Whether the range is logarithmic.
    pub fn is_log(&self) -> bool {
        self.log
    }

    /// Whether the axis can show a value at all.
    pub fn shows(&self, value: f64) -> bool {
        drawable(value, self.log) && (!self.cut || (self.lo <= value && value <= self.hi))
    }

    /// Where the value lies: 0 at the lower end, 1 at the upper end, `None` if it cannot be shown.
    pub fn fraction(&self, value: f64) -> Option<f64> {
        if !self.shows(value) {
            return None;
        }
        let at = if self.log {
            (value / self.lo).log10() / (self.hi / self.lo).log10()
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        at.is_finite().then_some(at)
    }
}

/// Whether a value can be drawn on a linear or logarithmic axis.
pub(crate) fn drawable(value: f64, log: bool) -> bool {
    value.abs() <= HUGE && (!log || value >= 1.0 / HUGE)
}

/// Smallest and largest drawable value, and whether there is any.
fn extent(values: &[f64], log: bool) -> (f64, f64, bool) {
    let (lo, hi) = values
        .iter()
        .filter(|value| drawable(**value, log))
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), value| (lo.min(*value), hi.max(*value)));
    (lo, hi, lo <= hi)
}

fn linear(lo: f64, hi: f64) -> Range {
    let size = lo.abs().max(hi.abs());
    if size < 1.0 / HUGE {
        return Range { lo: -1.0, hi: 1.0, log: false, cut: false };
    }
    if hi - lo <= size * 1e-9 {
        return Range { lo: lo - size * 0.1, hi: hi + size * 0.1, log: false, cut: false };
    }
    let pad = (hi - lo) * 0.05;
    let mut range = Range { lo: lo - pad, hi: hi + pad, log: false, cut: false };
    // Zero belongs on the axis when the data come near it: ratios can then be read off.
    if lo >= 0.0 && lo < 0.4 * hi {
        range.lo = 0.0;
    } else if hi <= 0.0 && hi > 0.4 * lo {
        range.hi = 0.0;
    }
    range
}

/// A labelled position on an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// The value.
    pub at: f64,
    /// The text, without unit.
    pub label: String,
}

/// At most about `most` ticks at round values.
pub fn ticks(range: &Range, most: usize) -> Vec<Tick> {
    let most = most.max(2);
    if range.log {
        let values = log_values(range, most);
        if values.len() >= 2 {
            return values.into_iter().map(|at| Tick { at, label: short_number(at) }).collect();
        }
    }
    let step = round_step((range.hi - range.lo) / most as f64);
    if !(step.is_finite() && step > 0.0) {
        return Vec::new();
    }
    let first = (range.lo / step - 1e-6).ceil();
    let last = (range.hi / step + 1e-6).floor();
    let values: Vec<f64> = (0..=(last - first).clamp(0.0, 50.0) as usize).map(|i| (first + i as f64) * step).collect();
    let largest = values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    values.into_iter().map(|at| Tick { at, label: tick_label(at, step, largest) }).collect()
}

/// Unlabelled positions 2..9 of each decade, when there are few enough decades.
pub(crate) fn minor_ticks(range: &Range) -> Vec<f64> {
    if !range.log || (range.hi / range.lo).log10() > 7.0 {
        return Vec::new();
    }
    decades(range)
        .flat_map(|decade| (1..10).map(move |digit| f64::from(digit) * 10_f64.powi(decade)))
        .filter(|value| *value >= range.lo && *value <= range.hi)
        .collect()
}

/// The decades that overlap the range.
fn decades(range: &Range) -> std::ops::RangeInclusive<i32> {
    (range.lo.log10() + 1e-9).floor() as i32..=(range.hi.log10() + 1e-9).floor() as i32
}

fn log_values(range: &Range, most: usize) -> Vec<f64> {
    let inside = |digits: &[f64]| -> Vec<f64> {
        decades(range)
            .flat_map(|decade| digits.iter().map(move |digit| digit * 10_f64.powi(decade)))
            .filter(|value| *value >= range.lo * (1.0 - 1e-9) && *value <= range.hi * (1.0 + 1e-9))
            .collect()
    };
    let powers = inside(&[1.0]);
    if powers.len() > most {
        let stride = powers.len().div_ceil(most);
        return powers.into_iter().step_by(stride).collect();
    }
    for digits in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0][..]] {
        let values = inside(digits);
        if powers.len() < 4 && values.len() <= most && values.len() > powers.len() {
            return values;
        }
    }
    powers
}

/// The next of 1, 2, 2.5, 5, 10 times a power of ten at or above `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let digit = step / power;
    let round = [1.0, 2.0, 2.5, 5.0].into_iter().find(|round| digit <= round * (1.0 + 1e-9)).unwrap_or(10.0);
    round * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(range: &Range, most: usize) -> Vec<String> {
        ticks(range, most).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn auto_scale_looks_at_the_span() {
        assert!(Range::over(&[1.0, 100.0], Scale::Auto).is_log());
        assert!(!Range::over(&[1.0, 20.0], Scale::Auto).is_log());
        assert!(!Range::over(&[0.0, 1.0, 1e6], Scale::Auto).is_log());
        assert!(Range::over(&[f64::NAN, 1.0, 1e6, f64::INFINITY], Scale::Auto).is_log());
    }

    #[test]
    fn ranges_are_never_empty() {
        let sets: [&[f64]; 9] = [
            &[],
            &[f64::NAN],
            &[0.0],
            &[5.0],
            &[-5.0, -5.0],
            &[f64::MAX, f64::MIN],
            &[1.0, 1.0 + 1e-15],
            &[f64::MIN_POSITIVE],
            &[-1.0, 1e149],
        ];
        for values in sets {
            for scale in [Scale::Auto, Scale::Linear, Scale::Log] {
                for range in [Range::over(values, scale), Range::tight(values, scale), Range::from_zero(values)] {
                    assert!(
                        range.lo < range.hi && range.lo.is_finite() && range.hi.is_finite(),
                        "{values:?} {range:?}"
                    );
                    let ticks = ticks(&range, 6);
                    assert!(!ticks.is_empty() && ticks.len() <= 12, "{values:?} {range:?} {ticks:?}");
                }
            }
        }
    }

    #[test]
    fn linear_ticks_share_their_multiplier() {
        assert_eq!(labels(&linear(0.0, 1.9e6), 5), ["0", "0.5M", "1.0M", "1.5M"]);
        assert_eq!(labels(&linear(0.0, 0.0095), 4), ["0", "2.5e-3", "5.0e-3", "7.5e-3"]);
        assert_eq!(labels(&linear(-40.0, 40.0), 5), ["-40", "-20", "0", "20", "40"]);
    }

    #[test]
    fn log_ticks_fit_the_span() {
        assert_eq!(labels(&Range::log_between(9.0, 1.2e5), 8), ["10", "100", "1k", "10k", "100k"]);
        assert_eq!(labels(&Range::log_between(1.0, 12.0), 8), ["1", "2", "5", "10"]);
        assert_eq!(labels(&Range::log_between(1e-12, 1e12), 6), ["1e-12", "1e-7", "0.01", "1k", "100M"]);
        assert_eq!(labels(&Range::log_between(2.1, 2.9), 4), ["2.2", "2.4", "2.6", "2.8"]);
    }

    #[test]
    fn fractions() {
        let range = Range::log_between(1.0, 100.0);
        assert_eq!(range.fraction(10.0), Some(0.5));
        assert_eq!(range.fraction(0.0), None);
        assert_eq!(range.fraction(f64::NAN), None);
    }
}
