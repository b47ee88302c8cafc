//! How far the work of this process is, for a person who waits: loops count their steps, and where a command asked for it a line
//! on a terminal's standard error shows them. It is never mixed into output, and what is counted decides nothing.
//!
//! The time left is the time so far for each step, times the steps left: an estimate, called so, and none before the first step. A search
//! counts at most the steps it begins with: bounds make many of them needless.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal as _, stderr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Whether someone looks: where none does, nothing is counted.
static SHOWN: AtomicBool = AtomicBool::new(false);
/// Whether a loop counts already: loops inside it do not.
static TAKEN: AtomicBool = AtomicBool::new(false);
static DONE: AtomicU64 = AtomicU64::new(0);
static ALL: AtomicU64 = AtomicU64::new(0);
static WHAT: Mutex<&str> = Mutex::new("");

/// A loop that counts its steps until it is dropped.
#[derive(Debug)]
pub struct Steps(bool);

impl Steps {
    /// Begins to count `all` steps ("assignments"); counts nothing inside another loop that counts.
    pub fn of(what: &'static str, all: u64) -> Self {
        if !SHOWN.load(Ordering::Relaxed) || TAKEN.swap(true, Ordering::Relaxed) {
            return Self(false);
        }
        *WHAT.lock().unwrap_or_else(PoisonError::into_inner) = what;
        DONE.store(0, Ordering::Relaxed);
        ALL.store(all, Ordering::Relaxed);
        Self(true)
    }

    /// One step is done.
    pub fn step(&self) {
        if self.0 {
            DONE.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if self.0 {
            ALL.store(0, Ordering::Relaxed);
            TAKEN.store(false, Ordering::Relaxed);
        }
    }
}

/// Work shorter than this is not worth a line.
const AFTER: Duration = Duration::from_secs(2);
/// Between two looks.
const EVERY: Duration = Duration::from_millis(250);

/// A line that says how far the work is, after two seconds of it, until it is dropped. On a terminal alone.
#[derive(Debug)]
pub struct Waiting(Option<(Sender<()>, JoinHandle<()>)>);

impl Waiting {
    /// Begins to wait for what `title` says ("searching"), at most for `limit` seconds where there is a limit.
    pub fn begin(title: &'static str, limit: Option<f64>) -> Self {
        if !stderr().is_terminal() {
            return Self(None);
        }
        SHOWN.store(true, Ordering::Relaxed);
        let (stop, stopped) = channel::<()>();
        let began = Instant::now();
        let shown = std::thread::Builder::new().name("waiting".into()).spawn(move || {
            if stopped.recv_timeout(AFTER) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // A fault in the template, which is a constant that a test reads, must not stop a search.
            if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
                bar.set_style(style);
            }
            loop {
                let what = *WHAT.lock().unwrap_or_else(PoisonError::into_inner);
                let (done, all) = (DONE.load(Ordering::Relaxed), ALL.load(Ordering::Relaxed));
                bar.set_message(line(title, what, (done, all), began.elapsed().as_secs_f64(), limit));
                bar.tick();
                if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    bar.finish_and_clear();
                    return;
                }
            }
        });
        Self(shown.ok().map(|thread| (stop, thread)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        SHOWN.store(false, Ordering::Relaxed);
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            // The line is gone before anything else is printed.
            let _ = thread.join();
        }
    }
}

const TEMPLATE: &str = "{spinner} {msg}";

/// What the line says after `seconds`.
fn line(title: &str, what: &str, (done, all): (u64, u64), seconds: f64, limit: Option<f64>) -> String {
    let mut out = format!("{title} for {}", span(seconds));
    if all > 1 {
        out.push_str(&format!(", {done} of {all} {what}"));
    }
    let estimate = (done > 0 && all > done).then(|| seconds / done as f64 * (all - done) as f64);
    let most = limit.map(|limit| (limit - seconds).max(0.0));
    match (estimate, most) {
        (Some(estimate), Some(most)) if estimate > most => out.push_str(&format!(", at most {} left", span(most))),
        (Some(estimate), _) => out.push_str(&format!(", about {} left at this rate", span(estimate))),
        (None, Some(most)) => out.push_str(&format!(", at most {} left", span(most))),
        (None, None) => {}
    }
    out
}

/// Seconds in the unit a person counts in.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_by_hand() {
        assert_eq!(line("searching", "", (0, 0), 3.0, None), "searching for 3 s");
        // Ten of forty in 5 s: thirty left at half a second each.
        assert_eq!(
            line("searching", "assignments", (10, 40), 5.0, None),
            "searching for 5 s, 10 of 40 assignments, about 15 s left at this rate"
        );
        assert_eq!(
            line("searching", "assignments", (10, 40), 5.0, Some(12.0)).split(", ").last(),
            Some("at most 7 s left")
        );
        assert_eq!(line("explaining", "resources", (0, 8), 5.0, None), "explaining for 5 s, 0 of 8 resources");
        assert_eq!((span(100.0), span(7200.0)), ("2 min".into(), "2.0 h".into()));
    }

    #[test]
    fn nothing_is_counted_where_nobody_looks() {
        let steps = Steps::of("assignments", 3);
        steps.step();
        assert!(!steps.0);
    }

    #[test]
    fn the_template_is_valid() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
