//! `flowspace explain` of executions of a language model: what software takes, what is possible, and what lies between.

use super::explain::{ExplainArgs, Format};
use super::present::{align, percent, plain};
use super::{Failure, print};
use crate::deadline::Deadline;
use crate::execution::{Execution, Pins};
use crate::mapping::difference::{Difference, difference};
use crate::mapping::request::Passes;
use crate::mapping::solver::Limits;
use crate::spec::Node;
use crate::system::{Style, System};
use crate::units::Seconds;
use crate::workload::language::{LanguageModel, ModelPass};
use serde_json::json;

/// Explains a language model that is trained on chips with `kernels`; `None` where another kind of explanation is due.
pub(super) fn run(args: &ExplainArgs, workload: &Node, system: &System) -> Option<Result<i32, Failure>> {
    let model = super::execution::read_model(workload).filter(|m| m.pass == ModelPass::Training);
    let Some(model) = model.filter(|_| system.chip.0.kernels.is_some()) else {
        return args.software.then(|| {
            Err(Failure::input("--software: of language models that are trained on chips with `kernels:`; others have no software to compare"))
        });
    };
    if !args.software && system.chip.0.style == Style::Dataflow {
        return None;
    }
    Some(explained(args, &model, system))
}

fn explained(args: &ExplainArgs, model: &LanguageModel, system: &System) -> Result<i32, Failure> {
    let graphs = [
        ("--tiles", args.tiles.is_some()),
        ("--max-partitions", args.max_partitions.is_some()),
        ("--split-dimensions", args.split_dimensions),
        ("--sharding", args.sharding != Passes::Auto),
        ("--plot", args.plot.is_some()),
    ];
    let given: Vec<&str> = graphs.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    if !given.is_empty() {
        return Err(Failure::input(format!(
            "{}: for graphs; of this language model explain says what its software takes and what is possible (--tp, --pp, --dp, --time-limit, --format)",
            given.join(", ")
        )));
    }
    let pins = Pins { tp: args.tp, pp: args.pp, dp: args.dp, ..Pins::default() };
    let found = found(model, system, &pins, args.time_limit)?;
    print(&match args.format {
        Format::Text => text(&found, model, system),
        Format::Json => format!("{:#}\n", json_of(&found, model, system)),
        Format::Csv => csv(&found),
    });
    Ok(0)
}

/// The same of a point of a study, whose solve may pin decisions and limit seconds.
pub(super) fn of_point(
    model: &LanguageModel,
    system: &System,
    pins: &Pins,
    seconds: Option<f64>,
) -> Result<String, Failure> {
    Ok(text(&found(model, system, pins, seconds)?, model, system))
}

/// The difference between software and what is possible, as far as it is found before the seconds or the user end it.
fn found(model: &LanguageModel, system: &System, pins: &Pins, seconds: Option<f64>) -> Result<Difference, Failure> {
    let _interrupt = super::interrupt::Interrupt::of_search();
    difference(system, model, pins, &Limits::default(), Deadline::after(seconds)).map_err(Failure::input)
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

fn text(d: &Difference, model: &LanguageModel, system: &System) -> String {
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
        "{} on {}\n{} takes {} ({})\npossible {} ({}), {space} is below {}\n\n{table}\n",
        model.name,
        system.name,
        d.software,
        Seconds(taken),
        decisions(&d.taken.execution),
        Seconds(possible),
        decisions(&d.possible.execution),
        Seconds(d.bound),
    )
}

fn json_of(d: &Difference, model: &LanguageModel, system: &System) -> serde_json::Value {
    let steps: Vec<_> = d.steps.iter().map(|s| json!({"step": s.what, "saves_s": s.saves})).collect();
    json!({
        "workload": model.name,
        "system": system.name,
        "software": d.software,
        "software_iteration_s": d.taken.time.total,
        "software_execution": d.taken.execution,
        "possible_iteration_s": d.possible.time.total,
        "possible_execution": d.possible.execution,
        "possible_bound_s": d.bound,
        "steps": steps,
    })
}

fn csv(d: &Difference) -> String {
    let mut out = String::from("step,saves_s\n");
    for step in &d.steps {
        out.push_str(&format!("{},{}\n", step.what, crate::report::csv::number(step.saves)));
    }
    out
}
