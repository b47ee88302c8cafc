//! `flowspace trace convert`.

use super::link::{Sources, linked, read_and_link};
use crate::cli::args::whole;
use crate::cli::{Failure, output};
use crate::trace::chakra::{CommGroups, CommType};
use crate::trace::convert::{Conversion, ConvertReport, write_to};
use crate::trace::link::LinkedTrace;
use crate::trace::output::{fill, no_other_run};
use crate::trace::runs;
use crate::trace::runs::recorded::{Pair, pairs};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Arguments of `flowspace trace convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// Linked trace; or a folder (or FOLDER/BEGINNING) with the host and Kineto traces of all ranks; or give --device, and perhaps --host.
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
    /// Process groups to write; without it comm_group.json beside the trace. Groups that are there from other ranks stay.
    #[arg(long, value_name = "FILE")]
    pub groups: Option<PathBuf>,
    /// Write collectives and messages whose bytes are not recorded too: collectives with 4 bytes, messages with none, which a simulator takes for next to nothing.
    #[arg(long)]
    pub allow_unknown_size: bool,
}

/// Converts, writes, prints what was converted.
///
/// # Errors
/// [`Failure`]: a trace that cannot be read, a file that cannot be written, collectives of unknown size.
pub fn run(args: &ConvertArgs) -> Result<i32, Failure> {
    // The rank is known behind the trace alone; the folder is that of every rank.
    output::check([&args.out.with_extension("et")], [])?;
    let run = match &args.linked {
        Some(place) if !place.is_file() => pairs(place).map_err(|e| Failure::input(e.to_string()))?,
        _ => Default::default(),
    };
    if run.is_empty() {
        let mut trace = linked(args.linked.as_deref(), &args.sources)?;
        trace.rank = args.rank.or(trace.rank);
        let conversion = one(args, &trace, BTreeMap::new())?;
        // The program ends here: to take the trace apart string by string would be a tenth of its time.
        std::mem::forget(conversion);
        std::mem::forget(trace);
        return Ok(0);
    }
    if args.rank.is_some() {
        return Err(Failure::input(
            "--rank is for one trace; the ranks of a folder are in the files' names: leave it out",
        ));
    }
    let (folder, beginning) = (args.out.parent().unwrap_or(Path::new("")), args.out.file_name().unwrap_or_default());
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    no_other_run(folder, &beginning.to_string_lossy(), |rank| run.contains_key(&rank), false)
        .map_err(|e| Failure::input(e.to_string()))?;
    let mut exchanges = false;
    for (rank, pair) in &run {
        let Some(device) = &pair.device else {
            let host = pair.host.as_deref().unwrap_or(Path::new("")).display();
            return Err(Failure::input(format!(
                "{host}: rank {rank} has no Kineto trace beside its host trace: expected one in this folder whose name has the same rank (such as device.{rank}.json.gz)"
            )));
        };
        let report = read_and_convert(args, *rank, pair, device, BTreeMap::new())?;
        exchanges |= report.communication.contains_key(CommType::AllToAll.name());
    }
    if exchanges {
        even(args, &run)?;
    }
    Ok(0)
}

fn read_and_convert(
    args: &ConvertArgs,
    rank: u64,
    pair: &Pair,
    device: &Path,
    sizes: BTreeMap<u64, u64>,
) -> Result<ConvertReport, Failure> {
    let (mut trace, _) = read_and_link(pair.host.as_deref(), device, &args.sources.steps)?;
    trace.rank = Some(rank);
    one(args, &trace, sizes).map(|conversion| conversion.report)
}

/// Writes the ranks again whose all-to-alls have fewer bytes than those of others: simulators wait for ever where ranks differ.
fn even(args: &ConvertArgs, run: &BTreeMap<u64, Pair>) -> Result<(), Failure> {
    let written = runs::load(&args.out, args.groups.as_deref()).map_err(|e| Failure::input(e.to_string()))?;
    for (rank, sizes) in runs::uneven(&written) {
        let Some((pair, device)) = run.get(&rank).and_then(|pair| Some((pair, pair.device.as_deref()?))) else {
            continue;
        };
        crate::cli::print(&format!(
            "rank {rank} again: {} all-to-alls to which another rank brings more bytes have as many as that one\n",
            sizes.len()
        ));
        read_and_convert(args, rank, pair, device, sizes)?;
    }
    Ok(())
}

/// Converts one rank; the groups of those before stay in their file.
fn one<'t>(args: &ConvertArgs, trace: &'t LinkedTrace, sizes: BTreeMap<u64, u64>) -> Result<Conversion<'t>, Failure> {
    let failure = |e: &dyn std::fmt::Display| Failure::input(e.to_string());
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
    let inputs = args.linked.iter().chain(args.sources.files()).filter(|p| p.is_file()).cloned();
    output::check([&out, &path], inputs)?;
    let known = if path.is_file() { CommGroups::read(&path).map_err(|e| failure(&e))? } else { CommGroups::default() };
    let mut conversion = Conversion::new(trace, &known).with_amounts(&out).map_err(Failure::input)?;
    conversion.sizes = sizes;
    let unknown = conversion.unknown_sizes();
    if !unknown.is_empty() && !args.allow_unknown_size {
        let list: Vec<String> = unknown.iter().map(|(name, n)| format!("{name} x {n}")).collect();
        return Err(Failure::input(format!(
            "the bytes of these collectives and messages are not recorded: {}; give the host trace too (--host), or write them as if they had next to none \
             (--allow-unknown-size)",
            list.join(", ")
        )));
    }
    fill(Some(&out), |file| write_to(trace, &mut conversion, file)).map_err(|e| output::failed(&out, &e))?;
    output::write(&path, conversion.groups.file().text())?;
    crate::cli::print(&text(&conversion.report));
    Ok(conversion)
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
