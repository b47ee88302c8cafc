//! `flowspace trace convert`.

use super::link::{Sources, linked};
use crate::cli::args::whole;
use crate::cli::{Failure, output};
use crate::trace::convert::{ConvertReport, write};
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `flowspace trace convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// Linked trace; or give --device, and perhaps --host.
    pub linked: Option<PathBuf>,
    /// The two traces.
    #[command(flatten)]
    pub sources: Sources,
    /// Chakra trace to write. A name that does not end in .et or .et.gz is a prefix: PREFIX.RANK.et is written, as simulators want it.
    #[arg(long, value_name = "FILE or PREFIX")]
    pub out: PathBuf,
    /// Rank, where the trace does not know it.
    #[arg(long, value_name = "N", value_parser = whole)]
    pub rank: Option<u64>,
    /// Process groups to write; without it comm_group.json beside the trace.
    #[arg(long, value_name = "FILE")]
    pub groups: Option<PathBuf>,
}

/// Converts, writes, prints what was converted.
///
/// # Errors
/// [`Failure`]: a trace that cannot be read, a file that cannot be written.
pub fn run(args: &ConvertArgs) -> Result<i32, Failure> {
    // The rank is known behind the trace alone; the folder is that of every rank.
    output::check([&args.out.with_extension("et")], [])?;
    let mut trace = linked(args.linked.as_deref(), &args.sources)?;
    trace.rank = args.rank.or(trace.rank);
    let name = args.out.to_string_lossy();
    let out = if name.ends_with(".et") || name.ends_with(".et.gz") {
        args.out.clone()
    } else {
        let rank = trace.rank.ok_or_else(|| {
            Failure::input("the trace does not say which rank it is: give --rank, or a file name that ends in .et")
        })?;
        PathBuf::from(format!("{name}.{rank}.et"))
    };
    let beside = || out.parent().unwrap_or(Path::new("")).join("comm_group.json");
    let path = args.groups.clone().unwrap_or_else(beside);
    output::check([&out, &path], args.linked.iter().chain(args.sources.files()).cloned())?;
    let (report, groups) = write(&trace, &out).map_err(|e| Failure::input(e.to_string()))?;
    output::write(&path, groups.json())?;
    crate::cli::print(&text(&report));
    // The program ends here: to take the trace apart string by string would be a tenth of its time.
    std::mem::forget(trace);
    Ok(0)
}

fn text(report: &ConvertReport) -> String {
    let nodes: Vec<String> = report.nodes.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let mut out = format!("nodes: {}; {} dependencies\n", nodes.join(", "), report.dependencies);
    for (kind, (n, bytes)) in &report.communication {
        out.push_str(&format!("{kind}: {n}, {bytes} bytes\n"));
    }
    for (name, n) in &report.unknown_communication {
        out.push_str(&format!("kept as computation, for what it communicates is not recorded: {name} x {n}\n"));
    }
    if report.against_order > 0 {
        out.push_str(&format!(
            "{} dependencies contradict the recorded order and were left out\n",
            report.against_order
        ));
    }
    out
}
