//! How far a run is: a bar on a terminal, a line every few seconds elsewhere, always on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Whether a run tells how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Show {
    /// On standard error, as a bar or as lines.
    Progress,
    /// Not at all.
    #[default]
    Nothing,
}

/// Time between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

/// The progress of one run.
#[derive(Debug)]
pub(super) struct Progress {
    total: u64,
    done: u64,
    begun: Instant,
    told: Instant,
    how: How,
}

#[derive(Debug)]
enum How {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Progress {
    pub(super) fn new(show: Show, total: u64) -> Self {
        let how = match show {
            Show::Nothing => How::Nothing,
            Show::Progress if stderr().is_terminal() => {
                let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
                // The template is a constant that a test reads; a fault in it must still not stop a study.
                if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
                    bar.set_style(style.progress_chars("=> "));
                }
                bar.enable_steady_tick(Duration::from_millis(500));
                How::Bar(bar)
            }
            Show::Progress => How::Lines,
        };
        let now = Instant::now();
        Self { total, done: 0, begun: now, told: now, how }
    }

    /// Says something beside the progress.
    pub(super) fn say(&self, text: &str) {
        match &self.how {
            How::Bar(bar) => bar.suspend(|| eprintln!("{text}")),
            How::Lines => eprintln!("{text}"),
            How::Nothing => {}
        }
    }

    /// One more point is finished.
    pub(super) fn step(&mut self) {
        self.done += 1;
        if let How::Bar(bar) = &self.how {
            bar.set_position(self.done);
        }
    }

    /// To be called now and then.
    pub(super) fn tick(&mut self) {
        if matches!(self.how, How::Lines) && self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            eprintln!("{}", line(self.done, self.total, self.begun.elapsed().as_secs_f64()));
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}

const TEMPLATE: &str = "{bar:30} {pos}/{len} points  {per_sec}  about {eta} left";

fn line(done: u64, total: u64, seconds: f64) -> String {
    let rate = done as f64 / seconds.max(1e-3);
    let left =
        if done > 0 { format!(", about {:.0} s left", (total - done.min(total)) as f64 / rate) } else { String::new() };
    format!("{done} of {total} points, {rate:.2} points/s{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_by_hand() {
        assert_eq!(line(10, 40, 5.0), "10 of 40 points, 2.00 points/s, about 15 s left");
        assert_eq!(line(0, 40, 5.0), "0 of 40 points, 0.00 points/s");
    }

    #[test]
    fn the_template_is_valid() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
