//! `flowspace trace generate`: Chakra traces of a plan.

use crate::cli::args::positive;
use crate::cli::map::Format;
use crate::cli::{Failure, print};
use crate::mapping::search::Request;
use crate::mapping::{Answer, map};
use crate::plan::{Plan, file};
use crate::report::chakra::{Granularity, Wanted, Written, write};
use crate::spec::Loader;
use crate::system::System;
use crate::units::Bytes;
use crate::workload::WorkloadSpec;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `flowspace trace generate`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct GenerateArgs {
    /// Workload file; it is mapped first, with everything free.
    #[arg(long, value_name = "FILE", required_unless_present = "plan", conflicts_with = "plan")]
    pub workload: Option<PathBuf>,
    /// System file.
    #[arg(long, value_name = "FILE", required_unless_present = "plan", conflicts_with = "plan")]
    pub system: Option<PathBuf>,
    /// Plan file to write traces of, instead.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Folder to write PREFIX.RANK.et and comm_group.json into.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Beginning of the files' names.
    #[arg(long, value_name = "PREFIX", default_value = "trace")]
    pub prefix: String,
    /// Write only so many microbatches of the iteration.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub microbatches: Option<u64>,
    /// What one node of computation stands for.
    #[arg(long, value_enum, default_value_t = Granularity::Partition)]
    pub granularity: Granularity,
    /// Nodes of all ranks at most.
    #[arg(long, value_name = "N", default_value_t = 50_000_000, value_parser = positive)]
    pub max_nodes: u64,
    /// Format of the answer on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Maps or reads the plan, writes its traces, prints what was written.
///
/// # Errors
/// [`Failure`]: bad input, an infeasible point, a plan that has no such trace, files that cannot be written.
pub fn run(args: &GenerateArgs) -> Result<i32, Failure> {
    if args.prefix.contains(['/', '\\']) {
        return Err(Failure::input(format!(
            "--prefix {:?}: expected the beginning of a file's name, not a path",
            args.prefix
        )));
    }
    let plan = plan(args)?;
    let wanted = Wanted {
        prefix: args.prefix.clone(),
        microbatches: args.microbatches,
        most_nodes: args.max_nodes,
        granularity: args.granularity,
    };
    let written = write(&plan, &args.out, &wanted).map_err(Failure::input)?;
    print(&match args.format {
        Format::Text => text(&plan, &written, args),
        Format::Json => {
            format!("{}\n", serde_json::to_string_pretty(&written).map_err(|e| Failure::input(e.to_string()))?)
        }
    });
    Ok(0)
}

fn plan(args: &GenerateArgs) -> Result<Plan, Failure> {
    if let Some(path) = &args.plan {
        let read = file::read(&Loader.load(path, None)?)?;
        let figures = crate::check::derive(&read.workload, &read.system, &read.decisions).map_err(|broken| {
            Failure::input(format!("{}: the plan is not feasible:\n{}", path.display(), broken.join("\n")))
        })?;
        return Ok(Plan { workload: read.workload, system: read.system, decisions: read.decisions, figures });
    }
    let (Some(workload), Some(system)) = (&args.workload, &args.system) else {
        return Err(Failure::input("--workload and --system, or --plan, are needed"));
    };
    let tree = WorkloadSpec::load(workload)?;
    let system = System::build(&System::load(system)?)?;
    crate::cli::execution::refuse_executions(&tree, &system, "trace generate")?;
    let workload = WorkloadSpec::build(&tree)?;
    match map(&workload, &system, &Request::default())? {
        Answer::Mapped(plan, _) => Ok(*plan),
        Answer::Infeasible(reason) => Err(Failure::input(reason.to_string())),
    }
}

fn text(plan: &Plan, written: &Written, args: &GenerateArgs) -> String {
    let f = &plan.figures;
    let bytes: Vec<String> =
        written.bytes.iter().map(|(kind, bytes)| format!("{kind} {}", Bytes(*bytes as f64))).collect();
    format!(
        "{} on {}: TP {}, PP {}, DP {}\n{} traces with {} nodes in {}, {} groups in comm_group.json\n{} microbatches{}\n\
         all ranks together: {} FLOP; {}\n",
        plan.workload.name,
        plan.system.name,
        f.tp,
        f.pp,
        f.dp,
        written.ranks,
        written.nodes,
        args.out.display(),
        written.groups,
        written.microbatches,
        if written.cut_short { " (not all of the iteration's)" } else { "" },
        written.flop,
        if bytes.is_empty() { "no communication".to_owned() } else { bytes.join(", ") },
    )
}
