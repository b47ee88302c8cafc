//! `flowspace map`: one workload on one system.

use super::args::{gap, none_of, positive, pue, quantity, seed, time, whole};
use super::interrupt::Interrupt;
use super::{Failure, output, present};
use crate::deadline::{Deadline, is_interrupted};
use crate::mapping::degrees::Wanted;
use crate::mapping::request::{JOINT_NODES, Known};
use crate::mapping::search::{
    Engine, MapError, MicroBatch, Objective, Passes, Pins, Request, engine_from_word, winner_model,
};
use crate::mapping::solver::{Limits, Solver, SolverError};
use crate::mapping::{Answer, compare, map, write_model};
use crate::plan::{Decisions, file};
use crate::progress::Waiting;
use crate::spec::{Loader, Node, Origin, Problems, Reader};
use crate::system::System;
use crate::system::economics::{Economics, RunLength};
use crate::system::options::{ModelOptions, Preset};
use crate::trace::lower::report;
use crate::units::{PricePerEnergy, Years};
use crate::workload::{Workload, WorkloadSpec, trace::explicit};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Arguments of `flowspace map`.
#[derive(Debug, Args)]
#[command(
    allow_negative_numbers = true,
    override_usage = "flowspace map --workload <FILE> --system <FILE> [OPTIONS]\n       flowspace map --plan <FILE> [OPTIONS]"
)]
pub struct MapArgs {
    /// Workload file, or the name of one in the catalogue (flowspace list workloads); trace:FILE for a recorded trace or FX graph (fields may
    /// follow: trace:FILE?fold=layer&tp=8); hf:config.json for a model as Hugging Face describes it (hf:config.json?pass=inference&seq=2048).
    #[arg(long, value_name = "FILE", conflicts_with = "plan", help_heading = "Input")]
    pub workload: Option<PathBuf>,
    /// System file, or the name of one in the catalogue (flowspace list systems).
    #[arg(long, value_name = "FILE", conflicts_with = "plan", help_heading = "Input")]
    pub system: Option<PathBuf>,
    /// Plan file to start from instead: its workload and system, and what it pins.
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub plan: Option<PathBuf>,
    /// Tensor parallelism; free if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub tp: Option<u64>,
    /// Pipeline stages; free if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub pp: Option<u64>,
    /// Data-parallel replicas; free if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub dp: Option<u64>,
    /// Let dimensions of the network be divided among strategies.
    #[arg(long, help_heading = "Decisions (free or searched where left out)")]
    pub split_dimensions: bool,
    /// Tiles that a sample is cut into; searched if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub tiles: Option<u64>,
    /// Most partitions of a layer; without limit if left out.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Decisions (free or searched where left out)")]
    pub max_partitions: Option<u64>,
    /// auto: HiGHS for every MILP that is needed (sharding; fusion where the shortest path cannot prove its answer).
    /// highs, cbc: that solver, and the fusion MILP always, as a second engine that must agree (cbc in builds with the
    /// feature cbc, highs in those with milp, which is on unless left out). exact: no fusion MILP.
    #[arg(long, value_name = "SOLVER", default_value = "auto", help_heading = "Search")]
    pub solver: String,
    /// Solve every sub-problem of the answer with every engine (shortest path or elimination, HiGHS, CBC in builds with it), and
    /// print what each found. Exit code 3 where two that finished differ by more than 1e-6.
    #[arg(long, help_heading = "Search")]
    pub all_solvers: bool,
    /// Time of the whole search, such as 30s or 5min, which then ends with the best plan it has. An answer that this stops is
    /// irreproducible, and the record says so.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, help_heading = "Search")]
    pub time_limit: Option<f64>,
    /// Nodes for each MILP.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = whole, help_heading = "Search")]
    pub node_limit: u64,
    /// Relative gap at which a plan counts as optimal.
    #[arg(long, value_name = "G", default_value_t = 1e-6, value_parser = gap, help_heading = "Search")]
    pub gap: f64,
    /// Random seed of the solver.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = seed, help_heading = "Search")]
    pub seed: u32,
    /// What is minimised: time, energy (joules of an iteration, idle power included) or cost (dollars of an iteration: the
    /// system's price written off, and electricity).
    #[arg(long, value_name = "WHAT", default_value = "time", value_parser = objective, help_heading = "Objective and money")]
    pub objective: Objective,
    /// Price of electricity.
    #[arg(long, value_name = "PRICE", default_value = "$0.10/kWh", value_parser = quantity::<PricePerEnergy>, allow_hyphen_values = true, help_heading = "Objective and money")]
    pub electricity: PricePerEnergy,
    /// Years over which the system's price is written off.
    #[arg(long, value_name = "SPAN", default_value = "4 years", value_parser = quantity::<Years>, allow_hyphen_values = true, help_heading = "Objective and money")]
    pub amortization: Years,
    /// Energy of the facility over energy of the system, at least 1.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = pue, help_heading = "Objective and money")]
    pub pue: f64,
    /// Length of the whole run, for its time, energy and price: "300e9 tokens", "1e9 samples" or "95000 iterations".
    #[arg(long, value_name = "LENGTH", value_parser = RunLength::parse, allow_hyphen_values = true, help_heading = "Objective and money")]
    pub run: Option<RunLength>,
    /// Evaluate with this model instead of the system file's: flowspace or dfmodel.
    #[arg(long, value_name = "PRESET", help_heading = "Search")]
    pub model: Option<String>,
    /// Decisions of an execution.
    #[command(flatten)]
    pub execution: super::execution::ExecutionArgs,
    /// Decisions and limits of inference.
    #[command(flatten)]
    pub inference: super::inference::InferenceArgs,
    /// joint: all shardings, each with its best tiles and partitions. two-pass: the sharding that is best by its own objective
    /// first (DFModel). auto: joint for graphs of at most 128 kernels under the model flowspace, else two-pass.
    #[arg(long, value_name = "PASSES", default_value = "auto", value_parser = passes, help_heading = "Search")]
    pub sharding: Passes,
    /// Most sets of shardings that the joint search looks at (of language models on chips that fuse those of all cuts together, of which a gap below 1 %
    /// takes a hundredth); stopped there, it reports the gap that is left.
    #[arg(long, value_name = "N", default_value_t = JOINT_NODES, value_parser = whole, help_heading = "Search")]
    pub joint_nodes: u64,
    /// Samples of a microbatch: what the workload states (given), or searched among the divisors of a replica's samples
    /// (search). Executions of language models search it unless a number is given.
    #[arg(long, value_name = "HOW", default_value = "given", value_parser = micro_batch, help_heading = "Decisions (free or searched where left out)")]
    pub micro_batch: HowMany,
    /// Write the plan (of a trained language model, its execution with the mapping of its blocks) to this file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub plan_out: Option<PathBuf>,
    /// Write the fusion MILP of the answer for another solver; the name ends in .mps or .lp.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub write_model: Option<PathBuf>,
    /// Format of the answer on standard output.
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = "Output")]
    pub format: Format,
}

/// Formats of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for a person.
    Text,
    /// One JSON object.
    Json,
}

/// What running costs, as the options say.
pub(super) fn economics(args: &MapArgs) -> Economics {
    Economics { electricity: args.electricity, amortization: args.amortization, pue: args.pue, run: args.run }
}

fn objective(text: &str) -> Result<Objective, String> {
    let words: Vec<&str> = Objective::ALL.iter().map(|o| o.word()).collect();
    Objective::from_word(text).ok_or_else(|| none_of(text, &words))
}

pub(super) fn passes(text: &str) -> Result<Passes, String> {
    Passes::from_word(&text.replace('-', "_")).ok_or_else(|| none_of(text, &["auto", "joint", "two-pass"]))
}

/// What `--micro-batch` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowMany {
    /// A word.
    Word(MicroBatch),
    /// So many, of an execution.
    Samples(u64),
}

fn micro_batch(text: &str) -> Result<HowMany, String> {
    match (MicroBatch::from_word(text), text.parse()) {
        (Some(word), _) => Ok(HowMany::Word(word)),
        (None, Ok(samples)) if samples > 0 => Ok(HowMany::Samples(samples)),
        _ => Err(format!("expected given, search, or (for executions of language models) a number, found {text:?}")),
    }
}

/// What is to be mapped, and how.
pub(super) struct Task {
    pub(super) workload_node: Node,
    system_node: Node,
    pub(super) workload: Workload,
    pub(super) system: System,
    pub(super) pins: Pins,
    pub(super) tiles: Option<u64>,
    /// The decisions of the plan file it was read from.
    pub(super) decisions: Option<Decisions>,
}

impl Task {
    /// The plan that it was read from: no answer is worse.
    pub(super) fn known(&self) -> Vec<Known> {
        let known =
            |decisions: &Decisions| Known { micro_batch: self.workload.micro_batch, decisions: decisions.clone() };
        self.decisions.iter().map(known).collect()
    }
}

/// Maps, prints the answer, writes what was asked for.
///
/// # Errors
/// [`Failure`]: bad input; a plan that the checker refuses; an infeasible point (after printing it).
pub fn run(args: &MapArgs) -> Result<i32, Failure> {
    super::import::tell_assumed(args.workload.as_deref());
    if let Some(done) = super::execution::run(args) {
        return done;
    }
    let (engine, solver) = engine_from_word(&args.solver).map_err(Failure::input)?;
    if args.all_solvers && Solver::built().is_empty() {
        return Err(Failure::input(SolverError::NeedsMilp("--all-solvers").to_string()));
    }
    if let Some(path) = &args.write_model {
        write_model::check_name(path).map_err(Failure::input)?;
    }
    let outputs = || [&args.plan_out, &args.write_model].into_iter().flatten();
    output::check(outputs(), [&args.workload, &args.system, &args.plan].into_iter().flatten().cloned())?;
    let mut task = load(args.plan.as_deref(), args.workload.as_deref(), args.system.as_deref())?;
    output::check(outputs(), [&task.workload_node, &task.system_node].into_iter().flat_map(output::files))?;
    if let Some(word) = &args.model {
        task.system.model = match Preset::from_word(word) {
            Some(Preset::Flowspace) => ModelOptions::flowspace(),
            Some(Preset::Dfmodel) => ModelOptions::dfmodel(),
            None => return Err(Failure::input(format!("--model: {}", none_of(word, &["flowspace", "dfmodel"])))),
        };
        let origin = Origin::named("<command line>");
        task.system_node.set("model", origin.clone(), Node::scalar(word.as_str(), origin));
    }
    let HowMany::Word(micro_batch) = args.micro_batch else {
        return Err(Failure::input(
            "--micro-batch: a number is for executions of language models; a graph has the samples that its workload's micro_batch states",
        ));
    };
    let request = Request {
        as_graph: super::execution::taken_as_graph(args, &task.workload_node, &task.system),
        wanted: Wanted { tp: args.tp, pp: args.pp, dp: args.dp, split: args.split_dimensions },
        tiles: args.tiles.or(task.tiles),
        max_partitions: args.max_partitions.and_then(|n| usize::try_from(n).ok()),
        pins: task.pins.clone(),
        engine,
        limits: Limits {
            solver,
            gap: args.gap,
            seconds: args.time_limit,
            nodes: Some(args.node_limit),
            seed: args.seed,
        },
        objective: args.objective,
        economics: economics(args),
        passes: args.sharding,
        joint_nodes: args.joint_nodes,
        micro_batch,
        any: false,
        known: task.known(),
        shardings: Vec::new(),
        waits: Vec::new(),
    };
    let _interrupt = Interrupt::of_search();
    let waiting = Waiting::begin("searching", args.time_limit);
    let answer = map(&task.workload, &task.system, &request);
    drop(waiting);
    if let (Err(MapError::NoPlanYet { left, .. }), Format::Json) = (&answer, args.format) {
        super::print(&present::no_plan_json(&task.workload, &task.system, *left, &request));
    }
    match answer? {
        Answer::Mapped(plan, record) => {
            if plan.workload.micro_batch != task.workload.micro_batch {
                let origin = Origin::named("<search>");
                let found = Node::scalar(plan.workload.micro_batch.to_string(), origin.clone());
                task.workload_node.set("micro_batch", origin, found);
            }
            crate::check::verify(&plan).map_err(|e| {
                Failure::input(format!("internal error, please report it: the checker refuses the plan: {e}"))
            })?;
            super::print(&match args.format {
                Format::Text => present::text(&plan, &record, &request),
                Format::Json => present::json(&plan, &record, &request),
            });
            if let Some(path) = &args.plan_out {
                let text = file::write(&task.workload_node, &task.system_node, &plan).map_err(Failure::input)?;
                output::write(path, text)?;
            }
            if let Some(path) = &args.write_model {
                let model = winner_model(&task.workload, &task.system, &plan, &request)?;
                let title = format!(
                    "flowspace fusion MILP: {} on {}; one unit of the objective is {:e} {}",
                    plan.workload.name,
                    plan.system.name,
                    model.scale(),
                    match args.objective {
                        Objective::Time => "s of a layer".to_string(),
                        other => format!("{} of the partitions of an iteration", other.unit()),
                    }
                );
                write_model::write(&model.milp, &title, path).map_err(Failure::input)?;
            }
            if args.all_solvers {
                let waiting = Waiting::begin("comparing the engines", args.time_limit);
                let clock = Deadline::after(args.time_limit);
                let compared = compare::all(&task.workload, &task.system, &plan, &request, clock)?;
                drop(waiting);
                let text = present::compared(&compared);
                match args.format {
                    Format::Text => super::print(&text),
                    // Standard output is one JSON object.
                    Format::Json => say!("{}", text.trim_end()),
                }
                let faults = compare::disagreements(&compared);
                if !faults.is_empty() {
                    return Err(Failure { message: faults.join("\n"), code: 3 });
                }
            }
            let exact = engine == Engine::Exact;
            if !record.reproducible && !exact && !is_interrupted() {
                say!("note: a solve was stopped by --time-limit; the same command may give another plan");
            }
            Ok(0)
        }
        Answer::Infeasible(reason) => {
            if args.format == Format::Json {
                super::print(&present::infeasible_json(&task.workload, &task.system, &reason, &request));
            }
            Err(Failure::input(reason.to_string()))
        }
    }
}

/// Reads a plan file, or a workload and a system.
pub(super) fn load(plan: Option<&Path>, workload: Option<&Path>, system: Option<&Path>) -> Result<Task, Failure> {
    if let Some(path) = plan {
        let node = Loader.load(path, None)?;
        let read = file::read(&node)?;
        return Ok(Task {
            pins: Pins {
                uses: read.pin.network_use.then(|| read.decisions.uses.clone()),
                sharding: read.pinned_sharding,
                partition: read.pinned_partition,
            },
            tiles: read.pin.tile_count.then_some(read.decisions.tiles),
            decisions: Some(read.decisions),
            workload_node: read.workload_node,
            system_node: read.system_node,
            workload: read.workload,
            system: read.system,
        });
    }
    let (Some(workload), Some(system)) = (workload, system) else {
        let missing = match (workload, system) {
            (None, None) => "--workload and --system are needed, or --plan",
            (None, _) => "--workload is needed beside --system",
            _ => "--system is needed beside --workload",
        };
        return Err(Failure::input(missing));
    };
    // Both files are read before anything is reported, so that all their problems come at once.
    let workload_read = WorkloadSpec::load(workload).map_err(Failure::from).and_then(|node| {
        recorded(&node).unwrap_or_else(|| WorkloadSpec::build(&node).map(|w| (node, w))).map_err(Failure::from)
    });
    let system_read = System::load(system)
        .and_then(|node| System::inlined(&node).map(|tree| (node, tree)))
        .map_err(Failure::from)
        .and_then(|(node, tree)| System::build(&node).map(|s| (tree, s)).map_err(Failure::from));
    let ((workload_node, workload), (system_node, system)) = both(workload_read, system_read)?;
    Ok(Task { workload_node, system_node, workload, system, pins: Pins::default(), tiles: None, decisions: None })
}

/// Two files that were read, or the problems of both.
pub(super) fn both<A, B>(one: Result<A, Failure>, other: Result<B, Failure>) -> Result<(A, B), Failure> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Err(one), Err(other)) => Err(Failure::input(format!("{}\n{}", one.message, other.message))),
        (Err(one), Ok(_)) | (Ok(_), Err(one)) => Err(one),
    }
}

/// A workload that is a trace: the graph written out, so that plans do not depend on the trace's file. What was left out of it
/// is told on standard error. `None` if it is none.
fn recorded(node: &Node) -> Option<Result<(Node, Workload), Problems>> {
    let Ok(WorkloadSpec::Trace(spec)) = Reader::read::<WorkloadSpec>(node) else { return None };
    Some(spec.lower(node).and_then(|lowered| {
        for line in report::lowered_text(&lowered).lines() {
            say!("{line}");
        }
        explicit(&lowered.workload, &spec.source_text())
    }))
}
