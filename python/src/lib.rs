//! The native part of the Python package: command lines carried out in process. What they mean, and what becomes of their output, is in
//! `python/flowspace`.

use flowspace::cli::embed;
use flowspace::report::columns::unit_of;
use flowspace::report::csv::{COLUMNS, LEADING, TRAILING};
use flowspace::report::manifest::{Manifest, folder};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Stack of a command, as a main thread has it: solvers recurse.
const STACK: usize = 64 << 20;
/// Longest time until an interruption is seen.
const TICK: Duration = Duration::from_millis(50);

/// Carries out a command line: exit code, standard output, standard error. Other threads of Python go on meanwhile; an interruption ends the command.
#[pyfunction]
fn run(py: Python<'_>, args: Vec<String>) -> PyResult<(i32, String, String)> {
    let (sender, receiver) = channel();
    // Threads may share it behind a lock alone, and the wait is none of Python's.
    let receiver = Mutex::new(receiver);
    let wait = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TICK);
    let work = move || {
        // The receiver is there until this was received.
        let _ = sender.send(embed::run(&args));
    };
    std::thread::Builder::new().name("flowspace".into()).stack_size(STACK).spawn(work)?;
    let mut interrupted = None;
    loop {
        match py.detach(wait) {
            Ok(ended) => return interrupted.map_or(Ok((ended.code, ended.out, ended.err)), Err),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the command ended without an answer"));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(signal) = py.check_signals() {
                    embed::interrupt();
                    interrupted = Some(signal);
                }
            }
        }
    }
}

/// The columns of results: name, whether it holds numbers, unit where its name says one, and meaning.
#[pyfunction]
fn columns() -> Vec<(String, bool, Option<String>, String)> {
    let text = |(name, doc): &(&str, &str)| ((*name).to_string(), *name == LEADING.0, None, (*doc).to_string());
    let column = |c: &flowspace::report::csv::Column| {
        (c.name.to_string(), c.is_number(), unit_of(c.name).filter(|_| c.is_number()), c.doc.to_string())
    };
    std::iter::once(text(&LEADING)).chain(COLUMNS.iter().map(column)).chain(TRAILING.iter().map(text)).collect()
}

/// Whether these tables are as they were written, by the manifest beside them.
#[pyfunction]
fn vouched(tables: Vec<PathBuf>) -> bool {
    let is = |table: &PathBuf| {
        let name = table.file_name().unwrap_or_default().to_string_lossy();
        matches!(Manifest::beside(table), Ok(Some(manifest)) if manifest.vouches(&folder(table), &name))
    };
    tables.iter().all(is)
}

/// The native module.
#[pymodule]
fn flowspace_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(columns, module)?)?;
    module.add_function(wrap_pyfunction!(vouched, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
