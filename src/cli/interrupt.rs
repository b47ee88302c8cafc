//! Ctrl-C (and a request of the system to end): the first lets a command end with what it has, the second ends it at once.

use super::embed;
use crate::deadline;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code after an interruption.
pub const INTERRUPTED: i32 = 130;

/// Interruptions are caught from [`Interrupt::catch`] until this is dropped; then they end the program at once. One a process.
pub(super) struct Interrupt {
    waiting: Arc<AtomicBool>,
}

impl Interrupt {
    /// The first interruption says `told` and calls `ask`, which lets the command end.
    pub(super) fn catch(told: &'static str, ask: impl Fn() + Send + 'static) -> Self {
        let waiting = Arc::new(AtomicBool::new(true));
        if embed::is_on() {
            // Handlers of signals are the other program's.
            embed::heed(Box::new(ask));
            return Self { waiting };
        }
        let heard = waiting.clone();
        let set = ctrlc::set_handler(move || {
            if !heard.swap(false, Ordering::Relaxed) {
                std::process::exit(INTERRUPTED);
            }
            say!("interrupted: {told}; another interruption ends the program at once");
            ask();
        });
        if let Err(error) = set {
            say!("note: an interruption will end the program at once ({error})");
        }
        Self { waiting }
    }

    /// A search of one point: it ends with the best plan that it has.
    pub(super) fn of_search() -> Self {
        Self::catch("ending with the best plan so far", deadline::interrupt)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.waiting.store(false, Ordering::Relaxed);
        embed::heed_no_more();
    }
}
