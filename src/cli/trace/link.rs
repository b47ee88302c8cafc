//! `flowspace trace link`.

use crate::cli::args::whole;
use crate::cli::{Failure, output};
use crate::trace::detect::{Format, detect};
use crate::trace::link::{LinkReport, LinkedTrace, Steps, file, link};
use crate::trace::{host, kineto};
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where a linked trace comes from, when it is linked on the way.
#[derive(Debug, Args)]
pub struct Sources {
    /// Host trace: PyTorch's execution trace (JSON, plain or gzip).
    #[arg(long, value_name = "FILE", requires = "device")]
    pub host: Option<PathBuf>,
    /// Device trace: Kineto's Chrome JSON, plain or gzip. Without --host its own operators are the host side.
    #[arg(long, value_name = "FILE")]
    pub device: Option<PathBuf>,
    /// Numbers of the profiler's steps to keep, as `ProfilerStep#N` gives them, with commas; without it all of the trace.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = whole, requires = "device")]
    pub steps: Vec<u64>,
}

impl Sources {
    /// The files named.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.host.iter().chain(&self.device)
    }
}

/// Arguments of `flowspace trace link`.
#[derive(Debug, Args)]
pub struct LinkArgs {
    /// The two traces.
    #[command(flatten)]
    pub sources: Sources,
    /// Linked trace to write: a Chakra .et with every fact as an attribute, packed if the name ends in .gz.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Links, prints the report, writes.
///
/// # Errors
/// [`Failure`]: a trace that cannot be read, or two that do not belong together.
pub fn run(args: &LinkArgs) -> Result<i32, Failure> {
    let Some(device) = &args.sources.device else {
        return Err(Failure::input("--device is missing: the device trace (Kineto's JSON) knows the times"));
    };
    output::check(&args.out, args.sources.files().cloned())?;
    let (trace, report) = read_and_link(args.sources.host.as_deref(), device, &args.sources.steps)?;
    if let Some(out) = &args.out {
        file::write(&trace, out).map_err(|e| Failure::input(e.to_string()))?;
    }
    crate::cli::print(&report.text());
    Ok(0)
}

/// Reads both traces, at the same time, and links them.
pub(super) fn read_and_link(
    host_path: Option<&Path>,
    device_path: &Path,
    steps: &[u64],
) -> Result<(LinkedTrace, LinkReport), Failure> {
    let (host, device) = std::thread::scope(|scope| {
        let host = host_path.map(|path| scope.spawn(|| host::read(path)));
        let device = kineto::read(device_path);
        (host.map(|thread| thread.join()), device)
    });
    let host = match host {
        None => None,
        Some(Ok(Ok(host))) => Some(host),
        Some(Ok(Err(e))) => {
            let more = device.err().map(|e| format!("\n{e}")).unwrap_or_default();
            return Err(Failure::input(format!("{e}{more}")));
        }
        Some(Err(_)) => return Err(Failure::input("the reader of the host trace stopped unexpectedly")),
    };
    let device = device.map_err(|e| Failure::input(e.to_string()))?;
    for warning in host.iter().flat_map(|h| &h.warnings).chain(&device.warnings) {
        say!("warning: {warning}");
    }
    let steps = if steps.is_empty() { Steps::All } else { Steps::Numbers(steps.to_vec()) };
    let (trace, report) =
        link(host.as_ref(), &device, &steps).map_err(|e| Failure::input(format!("{}: {e}", device_path.display())))?;
    if let Some(host) = &host {
        one_run(&report)?;
        if let Some(process) =
            host.pid.filter(|p| !trace.threads.is_empty() && trace.threads.iter().all(|t| t.pid != *p))
        {
            let others: BTreeSet<String> = trace.threads.iter().map(|t| t.pid.to_string()).collect();
            let others = others.into_iter().collect::<Vec<_>>().join(", ");
            say!(
                "warning: the host trace is of process {process}, the device trace of process {others}: they were recorded on different ranks or in \
                 different runs, so that what one rank or run does otherwise is not told apart"
            );
        }
    }
    Ok((trace, report))
}

/// Least share of the operators of either trace that the other has, in traces of one run; below the second it is doubtful. (One
/// trace may hold more steps than the other, so that one of the shares may be small.)
const ONE_RUN: (f64, f64) = (0.5, 0.9);

/// Whether two traces are of one run, by the operators that they share.
fn one_run(report: &LinkReport) -> Result<(), Failure> {
    let of = |matched: usize, total: usize| matched as f64 / total.max(1) as f64;
    let host = of(report.host_matched, report.host_total);
    let device = of(report.operators_matched, report.operators_total);
    let found = format!(
        "{:.1} % of the host trace's operators are in the device trace, and {:.1} % of its in the host trace",
        100.0 * host,
        100.0 * device
    );
    if host.max(device) < ONE_RUN.0 {
        return Err(Failure::input(format!(
            "these are not two traces of one run: {found}; the device trace alone is linked without --host"
        )));
    }
    if host.max(device) < ONE_RUN.1 {
        say!("warning: these may not be two traces of one run: {found}");
    }
    Ok(())
}

/// A linked trace from its file, or linked on the way.
pub(super) fn linked(file: Option<&Path>, sources: &Sources) -> Result<LinkedTrace, Failure> {
    match (file, &sources.device) {
        (Some(path), None) => {
            let failure = |e: &dyn std::fmt::Display| Failure::input(e.to_string());
            match detect(path).map_err(|e| failure(&e))? {
                Format::Chakra => file::read(path).map_err(|e| failure(&e)),
                found => {
                    let how = match found {
                        Format::Kineto => "; give it as --device FILE",
                        Format::Host => {
                            "; give it as --host FILE beside the Kineto trace of the same run (--device FILE)"
                        }
                        _ => "",
                    };
                    Err(Failure::input(format!(
                        "{}: expected a linked trace (`flowspace trace link --out FILE.et`), found a file of format \"{}\"{how}",
                        path.display(),
                        found.name()
                    )))
                }
            }
        }
        (None, Some(device)) => {
            // The answer alone goes to standard output: its reader may be a program.
            let (trace, report) = read_and_link(sources.host.as_deref(), device, &sources.steps)?;
            report.text().lines().for_each(|line| say!("{line}"));
            Ok(trace)
        }
        (Some(_), Some(_)) => Err(Failure::input("give a linked trace or --device, not both")),
        (None, None) => {
            Err(Failure::input("give a linked trace (from `flowspace trace link`), or --device and perhaps --host"))
        }
    }
}
