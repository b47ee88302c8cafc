//! `flowspace place import`.

use super::simulate::mapping;
use crate::cli::{Failure, output};
use crate::place::placement::{Objective, figures};
use crate::place::run::{Ask, place};
use crate::place::solve::Engine;
use crate::place::spec::CoresSpec;
use crate::place::{file, import};
use crate::units::{Bytes, Seconds};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `flowspace place import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The mapping file: the runtime's partition XML, .xcf, or the older form.
    pub mapping: PathBuf,
    /// Workload file, as that of `flowspace place`.
    #[arg(long, value_name = "FILE")]
    pub workload: PathBuf,
    /// Cores file; partition N of the mapping is its core N, from 0.
    #[arg(long, value_name = "FILE")]
    pub cores: PathBuf,
    /// Use the first N cores of the file alone.
    #[arg(long, value_name = "N", value_parser = crate::cli::args::positive)]
    pub first: Option<u64>,
    /// The placement to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Reads, writes, prints the figures. Every actor is pinned where the file has it, so that what is written says why.
///
/// # Errors
/// [`Failure`]: files that cannot be read, a mapping of another graph.
pub fn run(args: &ImportArgs) -> Result<i32, Failure> {
    let name = args.mapping.display().to_string();
    output::check([&args.out], [&args.mapping, &args.workload, &args.cores].map(Clone::clone))?;
    let mapping = mapping(&args.mapping)?;
    let graph =
        import::build(&import::load(&args.workload)?, import::Build { unroll: None, batch: None, counted: false })?;
    let cores_node = CoresSpec::load(&args.cores)?;
    let mut cores = CoresSpec::build(&cores_node)?;
    if let Some(first) = args.first.map(|f| f as usize) {
        if first > cores.len() {
            let count = cores.len();
            return Err(Failure::input(format!(
                "--first: expected 1 to {count} cores of {:?}, found {first}",
                cores.name
            )));
        }
        cores = cores.first(first);
    }
    let read = mapping.placement(&name, &graph, cores.len()).map_err(|e| Failure::input(e.to_string()))?;
    let ask = Ask {
        objective: Objective::Bottleneck,
        acyclic: false,
        balance: file::BALANCE,
        replicas: 1,
        depth: None,
        engine: Engine::Exact,
        seconds: Some(1.0),
    };
    let pins: Vec<Option<usize>> = read.core_of.iter().map(|core| Some(*core)).collect();
    let mut placed = place(&graph, &cores, &ask, &pins).map_err(|wrong| Failure::input(wrong.join("\n")))?;
    placed.placement.capacities = read.capacities;
    placed.figures = figures(&graph, &cores, &placed.placement.core_of, &placed.placement.capacities)
        .map_err(|e| Failure::input(format!("{name}: {e}")))?;
    let text = file::write(&placed, (&cores, &cores_node, args.first)).map_err(Failure::input)?;
    output::write(&args.out, text)?;
    let f = &placed.figures;
    crate::cli::print(&format!(
        "{} actors on {} cores: bottleneck {}, {} between cores\n",
        graph.actors.len(),
        f.used,
        Seconds(f.bottleneck_s),
        Bytes(f.cut_bytes)
    ));
    Ok(0)
}
