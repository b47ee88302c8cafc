//! `flowspace explain` of executions of a language model: the best of them, what more of each resource brings, and what lies between what software takes and what is possible.

use super::execution_file::{of_file as of_file_named, pins_of, read_whole};
use super::explain::{ExplainArgs, Format, MORE};
use super::present::{align, percent, plain};
use super::{Failure, print};
use crate::deadline::Deadline;
use crate::execution::file::Whole;
use crate::execution::{Execution, Found, Pins, Prediction, not_within};
use crate::explain::{Gain, executions};
use crate::mapping::difference::{Difference, difference, difference_to};
use crate::mapping::executions::Executions;
use crate::mapping::request::Passes;
use crate::mapping::solver::Limits;
use crate::report::statement;
use crate::spec::Node;
use crate::system::{Software, Style, System};
use crate::units::Seconds;
use crate::workload::language::{LanguageModel, ModelPass};
use serde_json::json;

/// What is explained: the answer of `flowspace map`, what more of each resource brings, and what lies between software and what is possible.
struct Explained {
    best: Prediction,
    found: Found,
    statement: String,
    gains: Vec<Gain>,
    /// `None` where software has no execution that fits, or is not known on the chip.
    difference: Option<Difference>,
}

/// Explains a language model that is trained and whose executions are searched; `None` where another kind of explanation is due.
pub(super) fn run(args: &ExplainArgs, workload: &Node, system: &System) -> Option<Result<i32, Failure>> {
    let model = super::execution::read_model(workload).filter(|m| m.pass == ModelPass::Training)?;
    let system = System { software: args.software.or(system.software), ..system.clone() };
    if !super::execution::executes(&system) {
        return None;
    }
    let graphs = [
        ("--tiles", args.tiles.is_some()),
        ("--max-partitions", args.max_partitions.is_some()),
        ("--split-dimensions", args.split_dimensions),
        ("--sharding", args.sharding != Passes::Auto),
    ];
    let given: Vec<&str> = graphs.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    let of_graph = system.chip.0.style == Style::Dataflow && args.software.is_none();
    match given.is_empty() {
        true => Some(explained(args, &model, &system)),
        // The model as one graph, with a note.
        false if of_graph => None,
        false => Some(Err(Failure::input(format!(
            "{}: for graphs; of this language model explain takes --software, --tp, --pp, --dp, --by, --plot, --time-limit, --format",
            given.join(", ")
        )))),
    }
}

fn explained(args: &ExplainArgs, model: &LanguageModel, system: &System) -> Result<i32, Failure> {
    let all = found(model, system, &typed(args), args.time_limit, args.by)?;
    shown(args, &all, model, system)
}

/// The decisions that are given as options.
fn typed(args: &ExplainArgs) -> Pins {
    Pins { tp: args.tp, pp: args.pp, dp: args.dp, ..Pins::default() }
}

/// Explains an execution file: its own execution, and what its pins leave open searched again.
///
/// # Errors
/// [`Failure`]: bad input, decisions that break a rule.
pub(super) fn of_file(args: &ExplainArgs, node: &Node) -> Result<i32, Failure> {
    let name = &node.origin.file;
    let (Whole { file, system, .. }, model) = read_whole(node, name)?;
    let pins = pins_of(&file, typed(args))?;
    let executions = Executions::new(&system, &model, &Limits::default()).map_err(Failure::input)?;
    let own = if executions.decides_blocks() && file.mappings().is_empty() {
        executions.predict(&file.execution, Deadline::never()).map_err(|refusal| refusal.to_string())
    } else {
        executions.given(&file, node, Deadline::never())
    };
    let (prediction, plan) = own.map_err(|e| of_file_named(name, e))?;
    let mut all = found(&model, &system, &pins, args.time_limit, args.by)?;
    all.best = prediction;
    all.found.plan = plan;
    shown(args, &all, &model, &system)
}

fn shown(args: &ExplainArgs, all: &Explained, model: &LanguageModel, system: &System) -> Result<i32, Failure> {
    let names = (model.name.as_str(), system.name.as_str());
    print(&match args.format {
        Format::Text => text(all, model, system, args.by),
        Format::Json => format!("{:#}\n", json_of(all, model, system, args.by)),
        Format::Csv => super::explain::csv(all.found.value, &all.gains, args.by)?,
    });
    if let Some(stem) = &args.plot {
        let figure = super::explain::tornado(names, all.found.value, &all.gains, args.by);
        for file in figure.draw(&stem.with_extension("")).map_err(|e| Failure::input(e.to_string()))? {
            say!("{}", file.display());
        }
    }
    Ok(0)
}

/// The same of a point of a study, whose solve may pin decisions and limit seconds.
pub(super) fn of_point(
    model: &LanguageModel,
    system: &System,
    pins: &Pins,
    seconds: Option<f64>,
) -> Result<String, Failure> {
    Ok(text(&found(model, system, pins, seconds, MORE)?, model, system, MORE))
}

/// All of it, as far as it is found before the seconds or the user end it.
fn found(
    model: &LanguageModel,
    system: &System,
    pins: &Pins,
    seconds: Option<f64>,
    by: f64,
) -> Result<Explained, Failure> {
    let _interrupt = super::interrupt::Interrupt::of_search();
    let (limits, deadline) = (Limits::default(), Deadline::after(seconds));
    let executions = Executions::new(system, model, &limits).map_err(Failure::input)?;
    let found = executions.search(pins, deadline.part(0.25)).map_err(Failure::input)?;
    let Some(best) = found.best.clone() else {
        let stopped = found.stopped;
        return Err(Failure::input(if stopped { not_within() } else { found.reason(&executions.machine) }));
    };
    let statement = statement::of_executions(&found, &super::execution::given(pins), seconds, system);
    // What lies between is told where software is known, and has something that fits.
    let known = system.chip.0.kernels.is_some();
    let between = || match system.software() {
        Software::Free => difference_to((best.clone(), found.bound), system, model, pins, &limits, deadline.part(0.4)),
        _ => difference(system, model, pins, &limits, deadline.part(0.4)),
    };
    let difference = known.then(|| between().ok()).flatten();
    let factor = 1.0 + by / 100.0;
    let gains = executions::gains((model, system), (pins, &limits), &best.execution, factor, deadline)
        .map_err(Failure::input)?;
    Ok(Explained { best, found, statement, gains, difference })
}

fn decisions(e: &Execution) -> String {
    format!(
        "TP {} PP {} DP {} CP {} EP {}, microbatch {}, {}{}, recompute {}, sequence parallel {}, ZeRO {}, overlap DP {} TP {}",
        e.tp,
        e.pp,
        e.dp,
        e.cp,
        e.ep,
        e.micro_batch,
        e.schedule,
        if e.chunks > 1 { format!(" of {} chunks", e.chunks) } else { String::new() },
        e.recompute,
        e.sequence_parallel,
        e.zero,
        e.overlap_dp,
        e.overlap_tp
    )
}

fn text(all: &Explained, model: &LanguageModel, system: &System, by: f64) -> String {
    let p = &all.best;
    let mut out = format!("{} on {}: {}\n", model.name, system.name, Seconds(p.time.total));
    out.push_str(&format!("{}\n\n{}\n\n", decisions(&p.execution), super::executed::parts(&p.time)));
    if let Some(plan) = &all.found.plan {
        out.push_str(&format!("{}\n\n", super::present::partitions(plan)));
    }
    if let Some(d) = &all.difference {
        out.push_str(&between(d, system));
    }
    out.push_str(&format!(
        "{by} % more of each resource, searched again; the best execution as it is takes {} (gap {:.1e})\n{}\n{}",
        Seconds(all.found.value),
        all.found.gap(),
        all.statement,
        super::explain::gains_text(&all.gains, all.found.value, by)
    ));
    out
}

/// What lies between software and what is possible.
fn between(d: &Difference, system: &System) -> String {
    let (taken, possible) = (d.taken.time.total, d.possible.time.total);
    let mut table = plain();
    table.set_header(["step", "saves", "of what the software takes"]);
    for step in &d.steps {
        let sign = if step.saves < 0.0 { "-" } else { "" };
        table.add_row([
            step.what.to_string(),
            format!("{sign}{}", Seconds(step.saves.abs())),
            percent(step.saves / taken),
        ]);
    }
    align(&mut table, &[1, 2]);
    // Where blocks are mapped as graphs, software may do what that space has not.
    let space = match system.chip.0.style {
        Style::Dataflow => "no mapping of the graph",
        Style::KernelByKernel => "nothing possible",
    };
    format!(
        "{} takes {} ({})\npossible {} ({}), {space} is below {}\n\n{table}\n\n",
        d.software,
        Seconds(taken),
        decisions(&d.taken.execution),
        Seconds(possible),
        decisions(&d.possible.execution),
        Seconds(d.bound),
    )
}

fn json_of(all: &Explained, model: &LanguageModel, system: &System, by: f64) -> serde_json::Value {
    let mut value = json!({
        "workload": model.name,
        "system": system.name,
        "iteration_s": all.best.time.total,
        "execution": all.best.execution,
        "iteration": all.best.time,
        "gap": all.found.gap(),
        "statement": all.statement,
        "more_percent": by,
        "gains": super::explain::gains_json(&all.gains, all.found.value),
    });
    if let Some(d) = &all.difference {
        let steps: Vec<_> = d.steps.iter().map(|s| json!({"step": s.what, "saves_s": s.saves})).collect();
        value["difference"] = json!({
            "software": d.software,
            "software_iteration_s": d.taken.time.total,
            "software_execution": d.taken.execution,
            "possible_iteration_s": d.possible.time.total,
            "possible_execution": d.possible.execution,
            "possible_bound_s": d.bound,
            "steps": steps,
        });
    }
    value
}
