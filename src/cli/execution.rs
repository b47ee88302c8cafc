//! `flowspace map` of a language model onto chips that run kernel by kernel: one execution predicted, or the best of all found.

use super::args::{positive, word};
use super::executed::{Answer, no_plan_json, text, to_json};
use super::execution_file::{self, Source, Trees, source};
use super::interrupt::Interrupt;
use super::map::{Format, HowMany, MapArgs};
use super::{Failure, output};
use crate::deadline::Deadline;
use crate::execution::search::Pins;
use crate::execution::{Offload, Recompute, Refusal, Schedule, Zero, not_within};
use crate::mapping::executions::Executions;
use crate::mapping::request::why_a_graph;
use crate::mapping::search::{Objective, Passes};
use crate::mapping::solver::Limits;
use crate::progress::Waiting;
use crate::report::statement;
use crate::solver::record::Status;
use crate::spec::{Node, Reader};
use crate::system::{Software, Style, System};
use crate::workload::WorkloadSpec;
use crate::workload::language::{LanguageModel, ModelPass, is_language_model};
use clap::Args;
use std::path::PathBuf;

/// Decisions of an execution; what is left out is searched.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Executions of language models (chips with `kernels:`, dataflow chips)")]
pub struct ExecutionArgs {
    /// Execution file: predict this one instead of searching.
    #[arg(long, value_name = "FILE")]
    pub execution: Option<PathBuf>,
    /// What the answer stands for: what the system's stack takes (stack), current software of its kind of chip (generic), software without cost (ideal), or what is possible (free). Left out: what
    /// the system states; else the stack on chips that run kernel by kernel, and what is possible on dataflow chips.
    #[arg(long, value_name = "WORD", value_parser = word!(Software))]
    pub software: Option<Software>,
    /// Chips to use; all of the system if left out.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub chips: Option<u64>,
    /// Context parallelism.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub cp: Option<u64>,
    /// Expert parallelism.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub ep: Option<u64>,
    /// Schedule of the pipeline: gpipe, 1f1b, interleaved, zero_bubble.
    #[arg(long, value_name = "WORD", value_parser = word!(Schedule))]
    pub schedule: Option<Schedule>,
    /// Pieces of layers a stage holds (interleaved).
    #[arg(long, value_name = "N", value_parser = positive)]
    pub chunks: Option<u64>,
    /// What is computed again: none, selective, full.
    #[arg(long, value_name = "WORD", value_parser = word!(Recompute))]
    pub recompute: Option<Recompute>,
    /// Sequence parallelism.
    #[arg(long, value_name = "BOOL")]
    pub sequence_parallel: Option<bool>,
    /// Stage of ZeRO: 0, 1, 2, 3.
    #[arg(long, value_name = "N", value_parser = word!(Zero))]
    pub zero: Option<Zero>,
    /// What lies in the second memory tier: none, optimizer, activations, weights, state, all, streamed.
    #[arg(long, value_name = "WORD", value_parser = word!(Offload))]
    pub offload: Option<Offload>,
    /// Whether the reduction of gradients runs beside the backward pass.
    #[arg(long, value_name = "BOOL")]
    pub overlap_dp: Option<bool>,
    /// Whether tensor-parallel collectives run beside products.
    #[arg(long, value_name = "BOOL")]
    pub overlap_tp: Option<bool>,
}

impl ExecutionArgs {
    /// Whether anything but an execution file is given.
    fn pins_any(&self, pins: &Pins) -> bool {
        *pins != Pins::default()
    }

    fn pins(&self, args: &MapArgs) -> Pins {
        Pins {
            chips: self.chips,
            tp: args.tp,
            pp: args.pp,
            dp: args.dp,
            cp: self.cp,
            ep: self.ep,
            micro_batch: match args.micro_batch {
                HowMany::Samples(samples) => Some(samples),
                HowMany::Word(_) => None,
            },
            schedule: self.schedule,
            chunks: self.chunks,
            recompute: self.recompute,
            sequence_parallel: self.sequence_parallel,
            zero: self.zero,
            offload: self.offload,
            overlap_dp: self.overlap_dp,
            overlap_tp: self.overlap_tp,
        }
    }

    /// What serving does not decide.
    fn refused_in_serving(&self, args: &MapArgs) -> Option<Failure> {
        let mut refused = self.typed();
        refused.retain(|option| !["--ep", "--software"].contains(option));
        if matches!(args.micro_batch, HowMany::Samples(_)) {
            refused.push("--micro-batch");
        }
        (!refused.is_empty()).then(|| {
            Failure::input(format!(
                "{}: serving has the decisions --tp, --pp, --dp, --ep and --batch alone, on all chips of the system, and --software",
                refused.join(", ")
            ))
        })
    }

    /// The options that were typed.
    fn typed(&self) -> Vec<&'static str> {
        let given = [
            ("--execution", self.execution.is_some()),
            ("--software", self.software.is_some()),
            ("--chips", self.chips.is_some()),
            ("--cp", self.cp.is_some()),
            ("--ep", self.ep.is_some()),
            ("--schedule", self.schedule.is_some()),
            ("--chunks", self.chunks.is_some()),
            ("--recompute", self.recompute.is_some()),
            ("--sequence-parallel", self.sequence_parallel.is_some()),
            ("--zero", self.zero.is_some()),
            ("--offload", self.offload.is_some()),
            ("--overlap-dp", self.overlap_dp.is_some()),
            ("--overlap-tp", self.overlap_tp.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

/// A language model on a chip with `kernels` is not mapped as a graph by `map`; commands that know graphs alone must not answer for it. Trained on a chip that
/// fuses it is a graph as well, and what is answered for is said.
///
/// # Errors
/// [`Failure`] that says so, and what the command `knows`.
pub fn refuse_executions(workload: &Node, system: &System, (command, knows): (&str, &str)) -> Result<(), Failure> {
    let training = read_model(workload).is_some_and(|model| model.pass == ModelPass::Training);
    if training && system.chip.0.style == Style::Dataflow && system.software() == Software::Free {
        say!(
            "note: {command} takes this model as one graph, 1F1B, nothing computed again, no ZeRO; `flowspace map` searches its executions"
        );
        return Ok(());
    }
    if is_language_model(workload) && system.chip.0.kernels.is_some() {
        let what = match training {
            true => "executions of this language model on a chip with `kernels:`",
            false => "the layouts that serve this language model on a chip with `kernels:`",
        };
        return Err(Failure::input(format!("{command} knows {knows}; `flowspace map` searches {what}")));
    }
    Ok(())
}

/// Maps a language model onto a chip with `kernels`; `None` where workload or chip are other ones, which `map` takes.
pub fn run(args: &MapArgs) -> Option<Result<i32, Failure>> {
    let typed = [args.execution.typed(), args.inference.typed()].concat();
    let refuse = |why: &str| {
        (!typed.is_empty()).then(|| {
            Err(Failure::input(format!(
                "{}: for workloads of kind language_model on chips with `kernels:`; {why}",
                typed.join(", ")
            )))
        })
    };
    if args.plan.is_some() && args.execution.execution.is_some() {
        return Some(Err(Failure::input(
            "--execution beside --plan: a plan has an execution of its own, which `flowspace check` predicts; give --workload and --system beside --execution",
        )));
    }
    let source = match source(args) {
        Source::None if args.plan.is_some() => return refuse("a plan is of a graph"),
        Source::None => return refuse("give --workload and --system beside it"),
        Source::Others => return None,
        Source::Of(source) => source,
        Source::Refused(failure) => return Some(Err(failure)),
    };
    let Trees { workload, system: system_tree, file } = source;
    if args.plan_out.is_some() {
        let given =
            [&args.workload, &args.system, &args.execution.execution, &args.plan].into_iter().flatten().cloned();
        let named = System::inlined(&system_tree).ok().into_iter().flat_map(|tree| output::files(&tree));
        if let Err(refused) = output::check(&args.plan_out, given.chain(named).chain(output::files(&workload))) {
            return Some(Err(refused));
        }
    }
    // A mistake in either file is reported as such, whatever options are given.
    let mut system = System::build(&system_tree).ok()?;
    system.software = args.execution.software.or(system.software);
    if is_language_model(&workload) && Reader::read::<WorkloadSpec>(&workload).is_err() {
        return None;
    }
    let (model, system) = match (read_model(&workload), system) {
        (Some(model), system) if system.chip.0.kernels.is_some() && model.pass == ModelPass::Inference => {
            let refused = refused_options(args).or_else(|| refused_in_serving(args));
            if let Some(refused) = refused.or_else(|| args.execution.refused_in_serving(args)) {
                return Some(Err(refused));
            }
            let trees = Trees { workload, system: system_tree, file };
            if trees.execution().is_some() {
                return Some(Err(Failure::input(
                    "workload: an execution is of training; a model with `pass: inference` has a serving file (`serve:`)",
                )));
            }
            return Some(super::inference::run(args, &model, &system, &trees));
        }
        (Some(model), system) if model.pass == ModelPass::Training && executes(&system) => {
            // Options that only the mapping of a graph has take the whole model as one: 1F1B, nothing computed again, no ZeRO.
            let of_graphs = graph_options(args);
            if typed.is_empty() && system.chip.0.style == Style::Dataflow && !of_graphs.is_empty() {
                // The answer says so.
                return None;
            }
            (model, system)
        }
        (Some(_), system) => return refuse(&format!("the chip {} has none", system.chip.0.name)),
        (None, _) => return refuse("this workload is a graph"),
    };
    if let Some(refused) = refused_options(args) {
        return Some(Err(refused));
    }
    let serving = args.inference.typed();
    if !serving.is_empty() {
        return Some(Err(Failure::input(format!("{}: for workloads with `pass: inference`", serving.join(", ")))));
    }
    let trees = Trees { workload, system: system_tree, file };
    if trees.serving().is_some() {
        return Some(Err(Failure::input(
            "workload: a serving file is of a model with `pass: inference`; a model that is trained has an execution file (`execution:`)",
        )));
    }
    Some(predict_or_search(args, &model, &system, &trees))
}

/// Whether training on a system is searched as executions: by its kernels, or by the graphs of its blocks.
pub(super) fn executes(system: &System) -> bool {
    system.chip.0.kernels.is_some() || system.software() == Software::Free
}

/// Why a language model that gets to the mapping of graphs is one; none where the workload is something else.
pub(super) fn taken_as_graph(args: &MapArgs, workload: &Node, system: &System) -> Option<String> {
    is_language_model(workload).then(|| {
        let options: Vec<String> = graph_options(args).iter().map(ToString::to_string).collect();
        why_a_graph(&options, system)
    })
}

/// The options given that only graphs have.
fn graph_options(args: &MapArgs) -> Vec<&'static str> {
    let graphs = [
        ("--all-solvers", args.all_solvers),
        ("--solver", args.solver != "auto"),
        ("--tiles", args.tiles.is_some()),
        ("--split-dimensions", args.split_dimensions),
        ("--sharding", args.sharding != Passes::Auto),
        ("--model", args.model.is_some()),
        ("--max-partitions", args.max_partitions.is_some()),
        ("--write-model", args.write_model.is_some()),
    ];
    graphs.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect()
}

/// Options of `map` that only graphs have: a language model on a chip with `kernels` must not seem to obey them.
fn refused_options(args: &MapArgs) -> Option<Failure> {
    let given = graph_options(args);
    (!given.is_empty()).then(|| {
        Failure::input(format!(
            "{}: for graphs; of the training of a language model on a chip with `kernels:` all executions are searched, of its serving all layouts",
            given.join(", ")
        ))
    })
}

/// Options of money and goals that say nothing of serving, or two things.
fn refused_in_serving(args: &MapArgs) -> Option<Failure> {
    if args.run.is_some() {
        return Some(Failure::input(
            "--run: the length of a training; what a batch that is served takes and costs is counted by batch, request and token",
        ));
    }
    (args.objective != Objective::Time && args.inference.goal.is_some()).then(|| {
        Failure::input(format!(
            "--goal beside --objective {}: a goal is of the objective time; the best of energy and of cost takes least of it by token",
            args.objective
        ))
    })
}

pub(super) fn read_model(node: &Node) -> Option<LanguageModel> {
    if !is_language_model(node) {
        return None;
    }
    match Reader::read::<WorkloadSpec>(node) {
        Ok(WorkloadSpec::Language(model)) => Some(*model),
        _ => None,
    }
}

/// The decisions of a search that were given.
pub(super) fn given(pins: &Pins) -> Vec<&'static str> {
    let Pins {
        chips,
        tp,
        pp,
        dp,
        cp,
        ep,
        micro_batch,
        schedule,
        chunks,
        recompute,
        sequence_parallel,
        zero,
        offload,
        overlap_dp,
        overlap_tp,
    } = pins;
    let all = [
        ("chips", chips.is_some()),
        ("TP", tp.is_some()),
        ("PP", pp.is_some()),
        ("DP", dp.is_some()),
        ("CP", cp.is_some()),
        ("EP", ep.is_some()),
        ("microbatch", micro_batch.is_some()),
        ("schedule", schedule.is_some()),
        ("chunks", chunks.is_some()),
        ("recomputation", recompute.is_some()),
        ("sequence parallelism", sequence_parallel.is_some()),
        ("ZeRO", zero.is_some()),
        ("offload", offload.is_some()),
        ("overlap of DP", overlap_dp.is_some()),
        ("overlap of TP", overlap_tp.is_some()),
    ];
    all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}

fn predict_or_search(args: &MapArgs, model: &LanguageModel, system: &System, trees: &Trees) -> Result<i32, Failure> {
    let limits = Limits { gap: args.gap, nodes: Some(args.node_limit), seed: args.seed, ..Limits::default() };
    let economics = super::map::economics(args);
    let executions = Executions::new(system, model, &limits)
        .and_then(|executions| executions.with_sets(args.joint_nodes).aimed(args.objective, &economics))
        .map_err(Failure::input)?;
    let machine = &executions.machine;
    let pins = args.execution.pins(args);
    let pins = match trees.execution() {
        Some(file) => execution_file::pins_of(file, pins)?,
        None => pins,
    };
    let clock = Deadline::after(args.time_limit);
    let answer = match &args.execution.execution {
        Some(path) => {
            if args.execution.pins_any(&pins) {
                return Err(Failure::input(
                    "--execution states every decision; leave --tp, --recompute and the like out",
                ));
            }
            let (file, node) = execution_file::read_file(path)?;
            let is_mapped = !file.mappings().is_empty();
            let (prediction, plan) = if is_mapped {
                executions.given(&file, &node, clock).map_err(|e| execution_file::of_file(&path.display(), e))?
            } else {
                match executions.predict(&file.execution, clock) {
                    Ok(predicted) => predicted,
                    Err(refusal) => return refuse(args, model, system, &refusal),
                }
            };
            let statement = statement::of_given_execution(system, is_mapped);
            Answer { prediction, found: None, plan, seconds: clock.seconds(), statement }
        }
        None => {
            let _interrupt = Interrupt::of_search();
            let waiting = Waiting::begin("searching", args.time_limit);
            let found = executions.search(&pins, clock);
            drop(waiting);
            let found = found.map_err(Failure::input)?;
            let statement = statement::of_executions(&found, &given(&pins), args.time_limit, system);
            match found.best.clone() {
                Some(prediction) => {
                    let plan = found.plan.clone();
                    Answer { prediction, found: Some(found), plan, seconds: clock.seconds(), statement }
                }
                None if found.stopped => {
                    let reason = not_within();
                    if args.format == Format::Json {
                        let status = Status::out_of_time();
                        super::print(&no_plan_json(model, system, status.word(), (&statement, &reason)));
                    }
                    return Err(Failure::input(reason));
                }
                None => {
                    let reason = found.reason(machine);
                    if args.format == Format::Json {
                        super::print(&no_plan_json(model, system, "infeasible", (&statement, &reason)));
                    }
                    return Err(Failure::input(reason));
                }
            }
        }
    };
    super::print(&match args.format {
        Format::Text => text(&answer, model, system, machine, &economics),
        Format::Json => format!("{:#}\n", to_json(&answer, model, system, machine, &economics)),
    });
    if let Some(path) = &args.plan_out {
        execution_file::write(path, &answer, (model, system, machine), trees)?;
    }
    Ok(0)
}

fn refuse(args: &MapArgs, model: &LanguageModel, system: &System, refusal: &Refusal) -> Result<i32, Failure> {
    if args.format == Format::Json && matches!(refusal, Refusal::Infeasible(_)) {
        let statement = statement::of_given_execution(system, false);
        super::print(&no_plan_json(model, system, "infeasible", (&statement, &refusal.to_string())));
    }
    Err(Failure::input(refusal.to_string()))
}
