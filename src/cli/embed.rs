//! The commands inside another program (the Python package): what they print is handed back, nothing is written to the standard streams, and an interruption
//! is the other program's to pass on. What is run is what the command line runs, so that the two cannot differ.

use super::{Cli, help};
use crate::deadline;
use clap::Parser as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a command printed, and its exit code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ended {
    /// As of the program.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error, without progress.
    pub err: String,
}

/// What is printed, while a command runs inside another program.
static PRINTED: Mutex<Option<(String, String)>> = Mutex::new(None);
/// What an interruption asks of the command that runs.
static ASKED: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);
/// One command at a time: they share the two above, and the caches of searches.
static RUNS: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries out a command line, without the program's name.
pub fn run(args: &[String]) -> Ended {
    let _alone = lock(&RUNS);
    deadline::begin();
    *lock(&PRINTED) = Some(Default::default());
    let words = std::iter::once("flowspace").chain(args.iter().map(String::as_str));
    let ended = catch_unwind(AssertUnwindSafe(|| match Cli::try_parse_from(words) {
        Ok(cli) => super::run(cli),
        Err(error) => {
            let error = help::clearer(error, args.iter().cloned());
            let help = !error.use_stderr();
            let text = error.render().to_string();
            if help {
                out(&text)
            } else {
                err(&text)
            };
            i32::from(!help)
        }
    }));
    *lock(&ASKED) = None;
    let (out, mut err) = lock(&PRINTED).take().unwrap_or_default();
    let code = ended.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        err.push_str(&format!("error: internal error, please report it: {text}\n"));
        101
    });
    Ended { code, out, err }
}

/// Lets the command that runs end with what it has, as Ctrl-C does.
pub fn interrupt() {
    if let Some(ask) = lock(&ASKED).as_ref() {
        ask();
    }
}

/// Whether a command runs inside another program.
pub(super) fn is_on() -> bool {
    lock(&PRINTED).is_some()
}

/// Keeps what would go to standard output; whether it did.
pub(super) fn out(text: &str) -> bool {
    lock(&PRINTED).as_mut().map(|(out, _)| out.push_str(text)).is_some()
}

/// Keeps what would go to standard error; whether it did.
pub(super) fn err(text: &str) -> bool {
    lock(&PRINTED).as_mut().map(|(_, err)| err.push_str(text)).is_some()
}

/// What an interruption is to ask from now on.
pub(super) fn heed(ask: Box<dyn Fn() + Send>) {
    *lock(&ASKED) = Some(ask);
}

/// Interruptions ask nothing any more.
pub(super) fn heed_no_more() {
    *lock(&ASKED) = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn what_is_printed_comes_back() {
        let listed = run(&words("list chips"));
        assert_eq!((listed.code, listed.err.as_str()), (0, ""));
        assert!(listed.out.contains("h100"), "{}", listed.out);
        let wrong = run(&words("map --workload nothing.yaml --system h100-dgx-8"));
        assert_eq!((wrong.code, wrong.out.as_str()), (1, ""));
        assert!(wrong.err.starts_with("error: nothing.yaml: "), "{}", wrong.err);
        let unknown = run(&words("mapp"));
        assert_eq!(unknown.code, 1);
        assert!(unknown.err.contains("mapp"), "{}", unknown.err);
        let version = run(&words("--version"));
        assert_eq!((version.code, version.err.as_str()), (0, ""));
        assert!(version.out.contains(env!("CARGO_PKG_VERSION")));
    }
}
