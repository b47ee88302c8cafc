//! `flowspace map` of a language model onto chips that run kernel by kernel: one execution predicted, or the best of all found.

use super::args::{positive, word};
use super::interrupt::Interrupt;
use super::map::{Format, HowMany, MapArgs};
use super::money::{self, Account};
use super::present::{align, plain, significant};
use super::{Failure, output};
use crate::deadline::Deadline;
use crate::execution::mapping::{Branch, Core, LayerMapping};
use crate::execution::schedule::IterationTime;
use crate::execution::search::{Found, Pins};
use crate::execution::{
    Execution, ExecutionFile, Machine, Offload, Prediction, Recompute, Refusal, Schedule, Zero, not_within,
};
use crate::mapping::executions::Executions;
use crate::mapping::search::{Objective, Passes};
use crate::mapping::solver::Limits;
use crate::plan::Plan;
use crate::progress::Waiting;
use crate::report::statement;
use crate::solver::record::Status;
use crate::spec::{Loader, Node, Reader};
use crate::system::economics::Economics;
use crate::system::{Software, Style, System};
use crate::units::{Bytes, Seconds};
use crate::workload::WorkloadSpec;
use crate::workload::language::{LanguageModel, ModelPass, is_language_model};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// What lies in the second memory tier: none, optimizer, activations, weights, all.
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
        refused.retain(|option| *option != "--ep");
        if matches!(args.micro_batch, HowMany::Samples(_)) {
            refused.push("--micro-batch");
        }
        (!refused.is_empty()).then(|| {
            Failure::input(format!(
                "{}: serving has the decisions --tp, --pp, --dp, --ep and --batch alone, on all chips of the system",
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
/// [`Failure`] that says so.
pub fn refuse_executions(workload: &Node, system: &System, command: &str) -> Result<(), Failure> {
    let training = read_model(workload).is_some_and(|model| model.pass == ModelPass::Training);
    if training && system.chip.0.style == Style::Dataflow && system.software() == Software::Free {
        say!(
            "note: {command} takes this model as one graph, 1F1B, nothing computed again, no ZeRO; `flowspace map` searches its executions"
        );
        return Ok(());
    }
    if is_language_model(workload) && system.chip.0.kernels.is_some() {
        return Err(Failure::input(format!(
            "{command} knows mappings of graphs; `flowspace map` searches executions of this language model on a chip with `kernels:`"
        )));
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
    let (Some(workload), Some(system)) = (&args.workload, &args.system) else {
        return refuse("a plan is of a graph");
    };
    // Problems of files are reported by `map`, all at once, unless this is ours to read.
    let workload = WorkloadSpec::load(workload).ok()?;
    let system = System::load(system).ok()?;
    if args.plan_out.is_some() {
        let given = [&args.workload, &args.system, &args.execution.execution].into_iter().flatten().cloned();
        let named = System::inlined(&system).ok().into_iter().flat_map(|tree| output::files(&tree));
        if let Err(refused) = output::check(&args.plan_out, given.chain(named).chain(output::files(&workload))) {
            return Some(Err(refused));
        }
    }
    // A mistake in either file is reported as such, whatever options are given.
    let mut system = System::build(&system).ok()?;
    system.software = args.execution.software.or(system.software);
    if is_language_model(&workload) && Reader::read::<WorkloadSpec>(&workload).is_err() {
        return None;
    }
    let (model, system) = match (read_model(&workload), system) {
        (Some(model), system) if system.chip.0.kernels.is_some() && model.pass == ModelPass::Inference => {
            let refused = refused_options(args).or_else(|| refused_money(args));
            if let Some(refused) = refused.or_else(|| args.execution.refused_in_serving(args)) {
                return Some(Err(refused));
            }
            return Some(super::inference::run(args, &model, &system));
        }
        (Some(model), system) if model.pass == ModelPass::Training && executes(&system) => {
            // Options that only the mapping of a graph has take the whole model as one: 1F1B, nothing computed again, no ZeRO.
            let of_graphs = graph_options(args);
            if typed.is_empty() && system.chip.0.style == Style::Dataflow && !of_graphs.is_empty() {
                say!(
                    "note: {}: for graphs, so that the model is mapped as one: 1F1B, nothing computed again, no ZeRO; without it all executions are searched, \
                     which may be faster",
                    of_graphs.join(", ")
                );
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
    Some(predict_or_search(args, &model, &system))
}

/// Whether training on a system is searched as executions: by its kernels, or by the graphs of its blocks.
pub(super) fn executes(system: &System) -> bool {
    system.chip.0.kernels.is_some() || system.software() == Software::Free
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
            "{}: for graphs; of a language model on a chip with `kernels:` all executions are searched",
            given.join(", ")
        ))
    })
}

/// Options of energy and money, which serving does not count yet.
fn refused_money(args: &MapArgs) -> Option<Failure> {
    let all = [("--objective", args.objective != Objective::Time), ("--run", args.run.is_some())];
    let given: Vec<&str> = all.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    (!given.is_empty()).then(|| {
        let names = given.join(", ");
        Failure::input(format!(
            "{names}: of graphs and of training; serving is searched for time and rate, and its energy is not counted"
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

/// A prediction and, where it was searched for, what proves it.
struct Answer {
    prediction: Prediction,
    found: Option<Found>,
    seconds: f64,
    /// The mapping of the blocks, where it is one of graphs.
    plan: Option<Arc<Plan>>,
    /// What is proven, in one sentence.
    statement: String,
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

fn predict_or_search(args: &MapArgs, model: &LanguageModel, system: &System) -> Result<i32, Failure> {
    let limits = Limits { gap: args.gap, nodes: Some(args.node_limit), seed: args.seed, ..Limits::default() };
    let economics = super::map::economics(args);
    let executions = Executions::new(system, model, &limits)
        .and_then(|executions| executions.with_sets(args.joint_nodes).aimed(args.objective, &economics))
        .map_err(Failure::input)?;
    let machine = &executions.machine;
    let pins = args.execution.pins(args);
    let clock = Deadline::after(args.time_limit);
    let answer = match &args.execution.execution {
        Some(path) => {
            if args.execution.pins_any(&pins) {
                return Err(Failure::input(
                    "--execution states every decision; leave --tp, --recompute and the like out",
                ));
            }
            let execution = read_execution(path)?;
            match executions.predict(&execution, clock) {
                Ok((prediction, plan)) => {
                    let statement = statement::of_given_execution(system);
                    Answer { prediction, found: None, plan, seconds: clock.seconds(), statement }
                }
                Err(refusal) => return refuse(args, model, system, &refusal),
            }
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
        Format::Json => format!("{:#}\n", to_json(&answer, model, system, &economics)),
    });
    if let Some(path) = &args.plan_out {
        write_execution(path, &answer, model, system)?;
    }
    Ok(0)
}

pub(super) fn read_execution(path: &Path) -> Result<Execution, Failure> {
    let node = Loader.load(path, None)?;
    let node = Loader.expand(&node, "")?;
    Ok(Reader::read::<ExecutionFile>(&node)?.execution)
}

fn write_execution(path: &Path, answer: &Answer, model: &LanguageModel, system: &System) -> Result<(), Failure> {
    let how = match &answer.found {
        Some(found) if found.gap() > crate::execution::search::ROUNDING => {
            let (what, gap) = (found.objective, found.gap());
            format!("flowspace map: the least {what} that was found among {} executions (gap {gap:.2e})", found.covered)
        }
        Some(found) => format!("flowspace map: the least {} of {} executions", found.objective, found.covered),
        None => "flowspace map: predicted as given".into(),
    };
    output::write(path, execution_file(&answer.prediction.execution, how, model, system)?)
}

/// An execution as a file that `map --execution` takes.
pub(super) fn execution_file(
    execution: &Execution,
    source: String,
    model: &LanguageModel,
    system: &System,
) -> Result<String, Failure> {
    let name = format!("{} on {}", model.name, system.name);
    let file = ExecutionFile { name, source, execution: execution.clone() };
    serde_saphyr::to_string(&file).map_err(|e| Failure::input(format!("cannot write the execution: {e}")))
}

fn refuse(args: &MapArgs, model: &LanguageModel, system: &System, refusal: &Refusal) -> Result<i32, Failure> {
    if args.format == Format::Json && matches!(refusal, Refusal::Infeasible(_)) {
        let statement = statement::of_given_execution(system);
        super::print(&no_plan_json(model, system, "infeasible", (&statement, &refusal.to_string())));
    }
    Err(Failure::input(refusal.to_string()))
}

fn no_plan_json(model: &LanguageModel, system: &System, status: &str, (proven, reason): (&str, &str)) -> String {
    let object = json!({
        "workload": model.name, "system": system.name, "status": status, "statement": proven, "reason": reason,
    });
    format!("{object:#}\n")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A mapping of a layer in words.
fn mapped(mapping: &LayerMapping, machine: &Machine) -> String {
    let branch = |b: Branch| format!("{}, {}", b.first.word(), b.last.word());
    let core = match mapping.core {
        Core::Unfused => "products and vector work".into(),
        Core::Kernel(i) => {
            machine.attention_kernels.get(i).map_or_else(|| "one kernel".into(), |(name, _)| format!("kernel {name}"))
        }
    };
    let fused = mapping.fused.words();
    format!(
        "attention divides {} (first product, last); its core is {core}; perceptron divides {}; fused: {}",
        branch(mapping.attention),
        branch(mapping.perceptron),
        if fused.is_empty() { "nothing".into() } else { fused.join(", ") }
    )
}

/// An iteration, part by part.
pub(super) fn parts(t: &IterationTime) -> String {
    let mut time = plain();
    time.set_header(["iteration", "time", "share"]);
    for (name, seconds) in [
        ("forward", t.forward),
        ("backward", t.backward),
        ("recomputation", t.recompute),
        ("tensor parallelism", t.tp),
        ("context parallelism", t.cp),
        ("expert parallelism", t.ep),
        ("between stages", t.hand_over),
        ("pipeline bubble", t.bubble),
        ("data parallelism", t.dp),
        ("optimizer", t.optimizer),
        ("host", t.host),
        ("offload", t.offload),
    ] {
        if seconds > 0.0 {
            time.add_row([name.to_string(), Seconds(seconds).to_string(), percent(seconds / t.total)]);
        }
    }
    align(&mut time, &[1, 2]);
    let hidden = Seconds(t.hidden);
    format!("{time}\n(communication that is waited for; {hidden} more run beside other work)")
}

fn text(answer: &Answer, model: &LanguageModel, system: &System, machine: &Machine, economics: &Economics) -> String {
    let p = &answer.prediction;
    let e = &p.execution;
    let mut out = format!("{} on {} ({} of {} chips)\n\n", model.name, system.name, p.chips, system.chip_count());
    let mut head = plain();
    head.set_header([
        "TP",
        "PP",
        "DP",
        "CP",
        "EP",
        "microbatch",
        "microbatches",
        "iteration",
        "samples/s",
        "tokens/s",
        "MFU",
        "HFU",
    ]);
    head.add_row([
        e.tp.to_string(),
        e.pp.to_string(),
        e.dp.to_string(),
        e.cp.to_string(),
        e.ep.to_string(),
        e.micro_batch.to_string(),
        p.microbatches.to_string(),
        Seconds(p.time.total).to_string(),
        significant(p.samples_per_s),
        significant(p.tokens_per_s),
        percent(p.model_flop_utilization),
        percent(p.hardware_flop_utilization),
    ]);
    out.push_str(&format!("{head}\n\n"));
    let mut decisions = plain();
    decisions.set_header([
        "schedule",
        "chunks",
        "recompute",
        "sequence parallel",
        "ZeRO",
        "offload",
        "overlap DP",
        "overlap TP",
    ]);
    let yes = |b: bool| if b { "yes" } else { "no" }.to_string();
    decisions.add_row([
        e.schedule.to_string(),
        e.chunks.to_string(),
        e.recompute.to_string(),
        // The plan of a graph says by which kernels' columns.
        if answer.plan.is_some() { "in the plan".into() } else { yes(e.sequence_parallel) },
        e.zero.to_string(),
        e.offload.to_string(),
        yes(e.overlap_dp),
        yes(e.overlap_tp),
    ]);
    out.push_str(&format!("{decisions}\n\n"));
    out.push_str(&format!("{}\n\n", parts(&p.time)));
    let mut memory = plain();
    memory.set_header(["memory of a chip", "bytes"]);
    for (name, bytes) in p.memory.device.kinds() {
        if bytes > 0.0 {
            memory.add_row([name.to_string(), Bytes(bytes).to_string()]);
        }
    }
    let total = p.memory.device.total();
    let of = p.memory.capacity.map_or("no limit".into(), |c| format!("of {} ({} used)", Bytes(c), percent(total / c)));
    memory.add_row(["together".to_string(), format!("{} {of}", Bytes(total))]);
    if p.memory.second_tier > 0.0 {
        memory.add_row(["in the second tier".to_string(), Bytes(p.memory.second_tier).to_string()]);
    }
    out.push_str(&format!("{memory}\n(stage {}, which holds most)\n\n", p.memory.stage));
    if system.software() == Software::Free {
        for (name, pass) in [("layer", &p.blocks.plain), ("expert layer", &p.blocks.experts)] {
            if let Some(mapping) = &pass.mapping {
                out.push_str(&format!("{name}: {}\n\n", mapped(mapping, machine)));
            }
        }
    }
    if let Some(plan) = &answer.plan {
        let blocks = plan.blocks();
        let each = blocks.iter().map(|(name, repeat, seconds)| format!("{name} {repeat} x {}", Seconds(*seconds)));
        let blocks = each.collect::<Vec<_>>().join(", ");
        out.push_str(&format!(
            "{}\n(one microbatch on {} chips: {blocks}; {} tiles)\n\n",
            super::present::partitions(plan),
            e.tp,
            plan.decisions.tiles
        ));
    }
    let account = Account::of_execution(p, model, system);
    let minimized =
        answer.found.as_ref().map_or((Objective::Time, p.time.total, 0.0), |f| (f.objective, f.value, f.bound));
    out.push_str(&format!("{}{}", money::table(&account), money::running(&account, economics, minimized)));
    out.push_str(&match &answer.found {
        Some(f) => format!(
            "status: {} (gap {:.2e})\n{}\nlooked at: {} predicted, {} too large, {} of {} cells left out by their bound, {} blocks; {:.3} s\n",
            f.status(),
            f.gap(),
            answer.statement,
            f.evaluated,
            f.too_large,
            f.pruned,
            f.cells,
            f.blocks,
            answer.seconds
        ),
        None => format!("status: predicted\n{}\n{:.3} s\n", answer.statement, answer.seconds),
    });
    out
}

fn to_json(answer: &Answer, model: &LanguageModel, system: &System, economics: &Economics) -> serde_json::Value {
    let p = &answer.prediction;
    let (cost, power) = (crate::system::price::cost(system), crate::system::price::power(system));
    let mut object = json!({
        "workload": model.name,
        "system": system.name,
        "status": answer.found.as_ref().map_or("predicted", Found::status),
        "execution": p.execution,
        "chips": p.chips,
        "microbatches": p.microbatches,
        "iteration_s": p.time.total,
        "iteration_parts_s": p.time,
        "samples_per_s": p.samples_per_s,
        "tokens_per_s": p.tokens_per_s,
        "model_flop_utilization": p.model_flop_utilization,
        "hardware_flop_utilization": p.hardware_flop_utilization,
        "memory": {
            "stage": p.memory.stage,
            "bytes": p.memory.device,
            "total_bytes": p.memory.device.total(),
            "capacity_bytes": p.memory.capacity,
            "second_tier_bytes": p.memory.second_tier,
        },
        "cost_usd": cost.total(),
        "power_w": power.total(),
        "solve_s": answer.seconds,
    });
    let account = Account::of_execution(p, model, system);
    object["energy"] = money::energy_json(&account);
    object["running"] = money::running_json(&account, economics);
    object["statement"] = json!(answer.statement);
    object["software"] = json!(statement::software_name(system));
    if system.software() == Software::Free {
        for (name, pass) in [("layer", &p.blocks.plain), ("expert_layer", &p.blocks.experts)] {
            if let Some(mapping) = &pass.mapping {
                object["mapping"][name] = json!(mapping);
            }
        }
    }
    if let Some(plan) = &answer.plan {
        object["blocks"] = json!({
            "tiles": plan.decisions.tiles,
            "partitions": plan.figures.partitions,
            "sharding": plan.workload.kernels.iter().zip(&plan.decisions.sharding)
                .map(|(kernel, strategy)| (kernel.name.clone(), json!(strategy.word())))
                .collect::<serde_json::Map<_, _>>(),
        });
    }
    if let Some(f) = &answer.found {
        object["minimized"] = json!(f.objective.to_string());
        object["objective"] = json!(f.value);
        object["bound"] = json!(f.bound);
        object["objective_unit"] = json!(f.objective.unit());
        object["gap"] = json!(f.gap());
        object["proof"] = json!({
            "covered": f.covered, "evaluated": f.evaluated, "too_large": f.too_large, "unmapped": f.unmapped, "cells": f.cells,
            "pruned_cells": f.pruned, "blocks": f.blocks,
        });
    }
    object
}
