//! `flowspace trace generate`: Chakra traces of a plan.

use crate::cli::args::{positive, word};
use crate::cli::map::Format;
use crate::cli::{Failure, print};
use crate::deadline::Deadline;
use crate::execution::{Pins, Schedule};
use crate::mapping::executions::Executions;
use crate::mapping::search::Request;
use crate::mapping::solver::Limits;
use crate::mapping::{Answer, map};
use crate::plan::{Plan, file};
use crate::report::chakra::{Granularity, Wanted, Written, execution, write};
use crate::spec::Loader;
use crate::spec::kind::FileKind;
use crate::system::System;
use crate::trace::generate;
use crate::trace::generate::layers::Layers;
use crate::trace::generate::patterns::{self, Pattern, Sizes};
use crate::units::Bytes;
use crate::workload::WorkloadSpec;
use clap::{Args, ValueEnum as _};
use std::path::PathBuf;

/// Arguments of `flowspace trace generate`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct GenerateArgs {
    /// Workload file; it is mapped first, with everything free.
    #[arg(long, value_name = "FILE", requires = "system", conflicts_with_all = ["plan", "layers", "pattern"])]
    pub workload: Option<PathBuf>,
    /// System file.
    #[arg(long, value_name = "FILE", requires = "workload")]
    pub system: Option<PathBuf>,
    /// With a language model on a chip with `kernels`: the execution (a file as `flowspace map --plan-out` writes it); the fastest one if left out.
    #[arg(long, value_name = "FILE", requires = "workload")]
    pub execution: Option<PathBuf>,
    /// Plan file to write traces of, instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["layers", "pattern"])]
    pub plan: Option<PathBuf>,
    /// ASTRA-sim's text workload to write traces of, instead: a list of layers with times and collectives.
    #[arg(long, value_name = "FILE", conflicts_with = "pattern", requires = "ranks")]
    pub layers: Option<PathBuf>,
    /// With --layers: iterations.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "layers", value_parser = positive)]
    pub passes: u64,
    /// A small trace that tries one thing, instead.
    #[arg(long, value_enum, value_name = "NAME", requires = "ranks")]
    pub pattern: Option<Pattern>,
    /// With --layers or --pattern: ranks, one file each.
    #[arg(long, value_name = "N", conflicts_with_all = ["workload", "plan"], value_parser = positive)]
    pub ranks: Option<u64>,
    /// With --pattern: time of a computation, us.
    #[arg(long, value_name = "US", default_value_t = 5, requires = "pattern")]
    pub runtime: u64,
    /// With --pattern: bytes of a tensor.
    #[arg(long, value_name = "BYTES", default_value_t = 1024, requires = "pattern")]
    pub tensor_size: u64,
    /// With --pattern: bytes of a collective.
    #[arg(long, value_name = "BYTES", default_value_t = 65536, requires = "pattern", value_parser = clap::value_parser!(i64).range(0..))]
    pub comm_size: i64,
    /// Folder to write PREFIX.RANK.et and comm_group.json into.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Beginning of the files' names: `trace`, or the pattern's name, if left out.
    #[arg(long, value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// Write only so many microbatches of the iteration.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub microbatches: Option<u64>,
    /// Order of the microbatches: gpipe, 1f1b, interleaved, zero_bubble. Given beside --execution, it takes the place of the file's. Left out: that of the
    /// execution, 1f1b of a plan.
    #[arg(long, value_name = "WORD", value_parser = word!(Schedule), conflicts_with_all = ["layers", "pattern"])]
    pub schedule: Option<Schedule>,
    /// For an interleaved schedule: pieces of the model on each stage, so that a microbatch comes by as often (2 if neither this nor the execution says).
    /// Other schedules have one piece a stage.
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with_all = ["layers", "pattern"])]
    pub chunks: Option<u64>,
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
    let named = args.pattern.and_then(|p| p.to_possible_value()).map(|v| v.get_name().to_owned());
    let prefix = args.prefix.clone().or(named).unwrap_or_else(|| "trace".into());
    if prefix.contains(['/', '\\']) {
        return Err(Failure::input(format!(
            "--prefix {prefix:?}: expected the beginning of a file's name, not a path"
        )));
    }
    if let Some(ranks) = args.ranks {
        return alike(args, ranks, &prefix);
    }
    if let Some(schedule) = args.schedule {
        chunks_fit(args.chunks, schedule)?;
    }
    let interleaved = args.schedule == Some(Schedule::Interleaved);
    let wanted = Wanted {
        prefix,
        microbatches: args.microbatches,
        most_nodes: args.max_nodes,
        granularity: args.granularity,
        schedule: args.schedule.unwrap_or(Schedule::OneForwardOneBackward),
        chunks: args.chunks.unwrap_or(if interleaved { 2 } else { 1 }),
    };
    if let Some(code) = of_execution(args, &wanted)? {
        return Ok(code);
    }
    chunks_fit(args.chunks, wanted.schedule)?;
    let plan = plan(args)?;
    let written = write(&plan, &args.out, &wanted).map_err(Failure::input)?;
    print(&match args.format {
        Format::Text => text(&plan, &written, &wanted, args),
        Format::Json => {
            format!("{}\n", serde_json::to_string_pretty(&written).map_err(|e| Failure::input(e.to_string()))?)
        }
    });
    Ok(0)
}

/// Whether a stage can have so many chunks in a schedule.
fn chunks_fit(chunks: Option<u64>, schedule: Schedule) -> Result<(), Failure> {
    match (chunks, schedule == Schedule::Interleaved) {
        (Some(1), true) => Err(Failure::input(
            "--chunks 1: an interleaved schedule has two or more pieces on each stage: give more, or --schedule 1f1b",
        )),
        (Some(n), false) if n > 1 => Err(Failure::input(format!(
            "--chunks {n}: the schedule {schedule} has one piece on each stage: leave --chunks out, or give --schedule interleaved"
        ))),
        _ => Ok(()),
    }
}

/// Writes traces of an execution, if the workload is a language model and the system's chip has `kernels`.
fn of_execution(args: &GenerateArgs, wanted: &Wanted) -> Result<Option<i32>, Failure> {
    let (Some(workload), Some(system)) = (&args.workload, &args.system) else { return Ok(None) };
    let tree = WorkloadSpec::load(workload)?;
    let system = System::build(&System::load(system)?)?;
    let model = crate::cli::execution::read_model(&tree).filter(|_| system.chip.0.kernels.is_some());
    let Some(model) = model else {
        return match &args.execution {
            Some(_) => Err(Failure::input(
                "--execution is for a language model on a chip with `kernels`; the plan of another one: --plan, or --workload and --system alone",
            )),
            None => Ok(None),
        };
    };
    if args.granularity == Granularity::Kernel {
        return Err(Failure::input(
            "--granularity kernel is for plans of graphs; an execution has a node a layer and pass, or a partition and pass where its layers are mapped as graphs: leave it out",
        ));
    }
    let executions = Executions::new(&system, &model, &Limits::default()).map_err(Failure::input)?;
    let (prediction, plan) = match &args.execution {
        Some(path) => {
            let mut execution = crate::cli::execution_file::read_execution(path)?;
            if let Some(schedule) = args.schedule {
                let (is, was) = (schedule == Schedule::Interleaved, execution.chunks);
                execution.schedule = schedule;
                execution.chunks = if is { was.max(2) } else { 1 };
            }
            chunks_fit(args.chunks, execution.schedule)?;
            execution.chunks = args.chunks.unwrap_or(execution.chunks);
            executions.predict(&execution, Deadline::never()).map_err(|refusal| Failure::input(refusal.to_string()))?
        }
        None => {
            let pins = Pins { schedule: args.schedule, chunks: args.chunks, ..Pins::default() };
            let found = executions.search(&pins, Deadline::never()).map_err(Failure::input)?;
            let reason = || Failure::input(found.reason(&executions.machine));
            (found.best.clone().ok_or_else(reason)?, found.plan.clone())
        }
    };
    let e = &prediction.execution;
    let written = execution::write(&executions.machine, &model, &prediction, plan.as_deref(), &args.out, wanted)
        .map_err(Failure::input)?;
    print(&match args.format {
        Format::Text => format!(
            "{} on {}: TP {}, PP {}, DP {}, CP {}, EP {}, {}\n{}",
            model.name,
            system.name,
            e.tp,
            e.pp,
            e.dp,
            e.cp,
            e.ep,
            e.schedule,
            what(&written, args)
        ),
        Format::Json => {
            format!("{}\n", serde_json::to_string_pretty(&written).map_err(|e| Failure::input(e.to_string()))?)
        }
    });
    Ok(Some(0))
}

/// Writes traces that are the same on every rank.
fn alike(args: &GenerateArgs, ranks: u64, prefix: &str) -> Result<i32, Failure> {
    let few = |nodes: u128| {
        let all = nodes * u128::from(ranks);
        if all > u128::from(args.max_nodes) {
            return Err(Failure::input(format!(
                "{ranks} ranks would have up to {all} nodes together, more than {}: write fewer ranks or passes, or allow more \
                 (--max-nodes)",
                args.max_nodes
            )));
        }
        Ok(())
    };
    let (metadata, nodes) = match (&args.layers, args.pattern) {
        (Some(path), _) => {
            let layers = Layers::read(path)?;
            few(layers.most_nodes(args.passes))?;
            layers.trace(args.passes)
        }
        (None, Some(pattern)) => {
            few(2)?;
            let sizes = Sizes { runtime_us: args.runtime, tensor_bytes: args.tensor_size, comm_bytes: args.comm_size };
            patterns::trace(pattern, sizes)
        }
        (None, None) => {
            return Err(Failure::input("--ranks is for --layers and --pattern: those of a plan are its own"));
        }
    };
    let written = generate::write(&args.out, prefix, ranks, &metadata, &nodes)?;
    print(&match args.format {
        Format::Text => {
            let bytes: Vec<String> =
                written.bytes.iter().map(|(kind, bytes)| format!("; {kind} {bytes} bytes")).collect();
            format!(
                "{ranks} traces with {} nodes in {}\nall ranks together: {} us of computation{}\n",
                written.nodes,
                args.out.display(),
                written.compute_us,
                bytes.concat()
            )
        }
        Format::Json => {
            format!("{}\n", serde_json::to_string_pretty(&written).map_err(|e| Failure::input(e.to_string()))?)
        }
    });
    Ok(0)
}

fn plan(args: &GenerateArgs) -> Result<Plan, Failure> {
    if let Some(path) = &args.plan {
        let node = Loader.load(path, None)?;
        if FileKind::of_tree(&node) == Some(FileKind::Execution) {
            return Err(Failure::input(format!(
                "{}: an execution of a language model: --execution {0}, with its --workload and --system, and no --plan",
                path.display()
            )));
        }
        let read = file::read(&node)?;
        let figures = crate::check::derive(&read.workload, &read.system, &read.decisions).map_err(|broken| {
            Failure::input(format!("{}: the plan is not feasible:\n{}", path.display(), broken.join("\n")))
        })?;
        return Ok(Plan { workload: read.workload, system: read.system, decisions: read.decisions, figures });
    }
    let (Some(workload), Some(system)) = (&args.workload, &args.system) else {
        return Err(Failure::input(
            "nothing is named to write traces of: give --workload and --system, or --plan, --layers or --pattern",
        ));
    };
    let tree = WorkloadSpec::load(workload)?;
    let system = System::build(&System::load(system)?)?;
    crate::cli::execution::refuse_executions(&tree, &system, ("trace generate", "mappings of graphs"))?;
    let workload = WorkloadSpec::build(&tree)?;
    match map(&workload, &system, &Request::default())? {
        Answer::Mapped(plan, _) => Ok(*plan),
        Answer::Infeasible(reason) => Err(Failure::input(reason.to_string())),
    }
}

fn text(plan: &Plan, written: &Written, wanted: &Wanted, args: &GenerateArgs) -> String {
    let f = &plan.figures;
    let chunks = if wanted.chunks > 1 { format!(" of {} chunks", wanted.chunks) } else { String::new() };
    let head = format!(
        "{} on {}: TP {}, PP {}, DP {}, {}{chunks}\n",
        plan.workload.name, plan.system.name, f.tp, f.pp, f.dp, wanted.schedule
    );
    head + &what(written, args)
}

/// What was written.
fn what(written: &Written, args: &GenerateArgs) -> String {
    let bytes: Vec<String> =
        written.bytes.iter().map(|(kind, bytes)| format!("{kind} {}", Bytes(*bytes as f64))).collect();
    format!(
        "{} traces with {} nodes in {}, {} groups in comm_group.json\n{} microbatches{}\nall ranks together: {} FLOP; {}\n",
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
