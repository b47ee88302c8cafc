//! When work must end: one type, made where a limit of seconds is read and handed down to every loop that may be long.
//!
//! A loop asks [`Deadline::is_over`] after each piece of bounded work (some milliseconds at most); where a look at the clock costs
//! as much as a step, [`Watch`] looks now and then. What a deadline stopped gives the best that it has, and claims nothing of the rest.
//!
//! An interruption by the user ends every deadline of the process: the same loops stop, with the same answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether the user asked this process to end with what it has. Only the command line sets it, for commands that search one point.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Makes nothing of an earlier [`interrupt`]: before another command of the same process.
pub fn begin() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}

/// Ends every deadline of this process until [`begin`].
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Whether [`interrupt`] was called.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// What a solver outside looks at while it runs.
pub fn interruption() -> &'static AtomicBool {
    &INTERRUPTED
}

/// Until when something was not found, in words.
pub fn within() -> &'static str {
    if is_interrupted() { "before the interruption" } else { "within the limit of seconds" }
}

/// When work began, and when it must end.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    started: Instant,
    ends: Option<Instant>,
    /// Whether an interruption ends it too.
    heeds: bool,
}

impl Deadline {
    /// So many seconds from now; never, without a number (or with one that no clock reaches).
    pub fn after(seconds: Option<f64>) -> Self {
        let started = Instant::now();
        let seconds = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        Self { started, ends: seconds.and_then(|s| started.checked_add(s)), heeds: true }
    }

    /// No limit; an interruption ends it.
    pub fn never() -> Self {
        Self::after(None)
    }

    /// No limit, and no interruption either: for short work without which there would be no answer.
    pub fn to_the_end() -> Self {
        Self { heeds: false, ..Self::never() }
    }

    /// Whether the seconds are over, or the user interrupted.
    pub fn is_over(&self) -> bool {
        (self.heeds && is_interrupted()) || self.ends.is_some_and(|ends| Instant::now() >= ends)
    }

    /// Whether a share of the seconds (0 to 1) is over.
    pub fn is_over_by(&self, share: f64) -> bool {
        self.part(share).is_over()
    }

    /// A share (0 to 1) of the whole: what must not take all.
    #[must_use]
    pub fn part(&self, share: f64) -> Self {
        let ends = self.ends.map(|ends| self.started + ends.saturating_duration_since(self.started).mul_f64(share));
        Self { ends, ..*self }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Seconds that are left, at least a millisecond; `None` without a limit.
    pub fn left(&self) -> Option<f64> {
        const LEAST: f64 = 1e-3;
        if self.heeds && is_interrupted() {
            return Some(LEAST);
        }
        self.ends.map(|ends| ends.saturating_duration_since(Instant::now()).as_secs_f64().max(LEAST))
    }

    /// A watch on it.
    pub fn watch(self) -> Watch {
        Watch { deadline: self, steps: 0, over: false }
    }
}

/// Whether a deadline has passed, looked up now and then: a look at the clock costs as much as some steps.
#[derive(Debug, Clone)]
pub struct Watch {
    deadline: Deadline,
    steps: u32,
    over: bool,
}

/// Steps of a [`Watch`] between two looks.
const STEPS: u32 = 1024;

impl Watch {
    /// Counts a step.
    pub fn is_over(&mut self) -> bool {
        self.steps = self.steps.wrapping_add(1);
        if self.steps % STEPS == 1 {
            self.over |= self.deadline.is_over();
        }
        self.over
    }

    /// Whether it was seen to be over.
    pub fn was_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_at_once_later_or_never() {
        assert!(Deadline::after(Some(0.0)).is_over());
        assert!(Deadline::after(Some(0.0)).watch().is_over());
        for seconds in [None, Some(f64::INFINITY), Some(f64::MAX), Some(1e6)] {
            let deadline = Deadline::after(seconds);
            assert!(!deadline.is_over() && !deadline.watch().is_over());
            assert_eq!(deadline.left().is_some(), seconds == Some(1e6));
        }
        let deadline = Deadline::after(Some(1e6));
        assert!(deadline.is_over_by(0.0) && !deadline.is_over_by(0.5));
        assert!(deadline.part(0.5).left() < Some(0.6e6));
        assert_eq!(Deadline::after(Some(0.0)).left(), Some(1e-3));
    }
}
