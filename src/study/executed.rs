//! Points that are language models on chips with `kernels:`: all their executions, or layouts that serve them, are searched.

use super::grid::Point;
use super::spec::SolveSpec;
use crate::check;
use crate::deadline::Deadline;
use crate::execution::inference::search::{Goal, Reached};
use crate::execution::inference::{self, Limits, Server, Wanted};
use crate::execution::search::Aim;
use crate::execution::{Found, Machine, Pins, not_within};
use crate::mapping::Infeasible;
use crate::mapping::difference::difference_to;
use crate::mapping::executions::Executions;
use crate::mapping::request::Objective;
use crate::report::csv::Outcome;
use crate::report::executed::{Executed, Served};
use crate::report::statement;
use crate::spec::{Node, Reader};
use crate::system::{Software, Style, System};
use crate::units::Bytes;
use crate::validate::coverage::{self, Work};
use crate::workload::language::{AttentionCount, LanguageModel, ModelPass, is_language_model};
use crate::workload::{Workload, WorkloadSpec};

/// The language model that a workload's tree states, if its executions (training, on chips with `kernels` and on those that fuse) or servings (on any chip
/// with `kernels`) are searched; what is wrong with it is told where the graph is built. Settings that only the mapping of a graph has take the whole model as one
/// graph on chips that fuse.
pub(super) fn language(node: &Node, system: &System, solve: Option<&SolveSpec>) -> Option<Box<LanguageModel>> {
    let chip = &system.chip.0;
    let by_graph = chip.style == Style::Dataflow && solve.is_some_and(|solve| !solve.of_graphs().is_empty());
    if !is_language_model(node) {
        return None;
    }
    match Reader::read::<WorkloadSpec>(node) {
        Ok(WorkloadSpec::Language(model)) => match model.pass {
            ModelPass::Inference => chip.kernels.is_some(),
            ModelPass::Training => !by_graph && (chip.kernels.is_some() || system.software() == Software::Free),
        }
        .then_some(model),
        _ => None,
    }
}

/// A graph with the model's name, batch and tokens; nothing is mapped.
pub(super) fn stand_in(model: &LanguageModel) -> Workload {
    LanguageModel { generated: None, ..model.clone() }.graph(AttentionCount::Masked)
}

/// Searches the executions or layouts of a point; `None` where the point is none of these, or its system is over the budget.
///
/// # Errors
/// A sentence where solve settings, model and machine do not suit each other.
pub(super) fn solve(point: &Point) -> Result<Option<Outcome>, String> {
    let (Some(model), Some(system)) = (&point.language, &point.system) else {
        let refused = point.system.as_ref().filter(|_| point.language_as_graph).and_then(|s| graph_refuses(point, s));
        return refused.map_or(Ok(None), Err);
    };
    if matches!(point.fitted, Some(Err(_))) {
        return Ok(None);
    }
    if let Some(reason) = Infeasible::of_die(system) {
        return Ok(Some(Outcome::Infeasible(reason)));
    }
    if let Some(field) = point.solve.of_graphs().first() {
        return Err(format!(
            "solve.{field}: for graphs; of a language model on a chip with `kernels:` all executions, or all layouts that serve it, are searched"
        ));
    }
    if model.pass == ModelPass::Inference {
        return serve(point, model, system).map(Some);
    }
    let (objective, economics) = (point.solve.objective, point.solve.economics);
    let request = point.request();
    let executions = Executions::new(system, model, &request.limits)?.with_sets(request.joint_nodes);
    let executions = executions.aimed(objective, &economics)?;
    let found = executions.search(&point.solve.pins(), Deadline::after(point.solve.seconds))?;
    let machine = &executions.machine;
    Ok(Some(match found.best.clone() {
        Some(prediction) => {
            let software = statement::software_name(system);
            // Where the software has no execution that fits there is none.
            let asked = point.solve.difference
                && objective == Objective::Time
                && system.software() == Software::Free
                && system.chip.0.kernels.is_some();
            let difference = asked.then(|| {
                let (pins, deadline) = (point.solve.pins(), Deadline::after(point.solve.seconds));
                let limits = &point.request().limits;
                difference_to((prediction.clone(), found.bound), system, model, &pins, limits, deadline).ok()
            });
            Outcome::Executed(Box::new(Executed {
                iterations: economics.run.and_then(|run| run.iterations(model.global_batch, Some(model.seq))),
                economics,
                prediction,
                found,
                error_band_pct: coverage::band(&system.chip.0.name, &machine.stack.name, Work::Training, model)
                    .filter(|_| system.software() != Software::Free),
                software,
                difference: difference.flatten(),
            }))
        }
        None if found.stopped => return Err(not_within()),
        None => Outcome::Infeasible(short(machine, &found)),
    }))
}

/// What is said of a study in which the executions or servings of point `searched` are searched, and the model of point `graph` is one graph.
pub(super) fn unlike(searched: u64, graph: u64) -> String {
    format!(
        "rows of two kinds: in point {searched}, and others like it, all executions (or all layouts that serve) are searched; in point {graph} the model is mapped as one graph \
         (1F1B, nothing computed again, no ZeRO; of serving one step of one token), since its chip states no `kernels:` or settings of graphs are given: their figures do not compare"
    )
}

/// What is stated and does not hold where a language model is mapped as one graph: it must not seem to be obeyed.
fn graph_refuses(point: &Point, system: &System) -> Option<String> {
    let stated = point.solve.of_executions().first().map(|field| format!("solve.{field}"));
    let software = system.software.filter(|software| *software != Software::Free);
    let stated = stated.or_else(|| software.map(|_| "system.software".to_string()))?;
    let chip = &system.chip.0;
    let why = match point.solve.of_graphs().first() {
        Some(field) if chip.kernels.is_some() => format!("with solve.{field}"),
        _ => format!("since the chip {} has no `kernels:`", chip.name),
    };
    Some(format!(
        "{stated}: of executions and of serving; {why} the model is mapped as one graph (1F1B, nothing computed again, no ZeRO; of serving one step of one token), which has no such decisions"
    ))
}

/// The best layout that serves a point's batch within its limits.
fn serve(point: &Point, model: &LanguageModel, system: &System) -> Result<Outcome, String> {
    let pins = point.solve.pins();
    let rest = Pins { tp: None, pp: None, dp: None, ep: None, ..pins.clone() };
    if rest != Pins::default() {
        return Err("solve.execution: serving has the decisions tp, pp, dp and ep alone".into());
    }
    let server = Server::new(system)?;
    let limits = &point.solve.serving;
    let deadline = Deadline::after(point.solve.seconds);
    let economics = point.solve.economics;
    let aim = Aim::of(point.solve.objective, &economics, system)?;
    let wanted = |limits| Wanted {
        tp: pins.tp,
        pp: pins.pp,
        dp: pins.dp,
        ep: pins.ep,
        batches: vec![model.global_batch],
        limits,
        // Of one batch the fastest layout has the highest rate too.
        goal: Goal::Latency,
        aim,
    };
    let limits = Limits { ttft_s: limits.max_ttft.map(|s| s.0), tpot_s: limits.max_tpot.map(|s| s.0) };
    let outcome = inference::search_until(&server, model, &wanted(limits), deadline)?;
    let layouts = outcome.predicted + outcome.out_of_memory;
    if let Some(prediction) = outcome.best {
        let error_band_pct = coverage::band(&system.chip.0.name, &server.machine.stack.name, Work::Inference, model);
        let stopped = outcome.stopped;
        check::serving::verify(system, model, &prediction)
            .map_err(|e| format!("internal error, please report it: the checker refuses the plan of serving: {e}"))?;
        return Ok(Outcome::Served(Box::new(Served { prediction, layouts, stopped, error_band_pct, aim, economics })));
    }
    if outcome.stopped {
        return Err(not_within());
    }
    if outcome.predicted == 0 {
        return Ok(Outcome::Infeasible(Infeasible {
            resource: "dram".into(),
            needed: Bytes(outcome.least_bytes).printed_above().0,
            available: server.machine.capacity.unwrap_or(f64::INFINITY),
            unit: "bytes".into(),
            remedy: outcome.nearest.unwrap_or_default(),
            mends: Vec::new(),
        }));
    }
    let least = |reached: Option<Reached>| reached.map_or(f64::NAN, |r| r.seconds);
    let limited = [
        ("ttft", least(outcome.least_ttft), limits.ttft_s, "the limit of the time to the first token"),
        ("tpot", least(outcome.least_tpot), limits.tpot_s, "the limit of the time for each further token"),
    ];
    let broken = limited.into_iter().find(|(_, least, most, _)| most.is_some_and(|m| *least > m));
    // Each limit may be kept by some layout, but not by one that keeps the other.
    let (resource, needed, available, what) = broken.unwrap_or(("latency", f64::NAN, None, "both limits"));
    Ok(Outcome::Infeasible(Infeasible {
        resource: resource.into(),
        needed,
        available: available.unwrap_or(f64::NAN),
        unit: "s".into(),
        remedy: format!(
            "none of {} layouts keeps {what}; a smaller batch, more chips, or a longer limit",
            outcome.predicted
        ),
        mends: Vec::new(),
    }))
}

fn short(machine: &Machine, found: &Found) -> Infeasible {
    let remedy = found.reason(machine);
    match &found.least {
        Some((_, memory)) => Infeasible {
            resource: "dram".into(),
            needed: Bytes(memory.device.total()).printed_above().0,
            available: memory.capacity.unwrap_or(f64::INFINITY),
            unit: "bytes".into(),
            remedy,
            mends: Vec::new(),
        },
        None => Infeasible {
            resource: "degrees".into(),
            needed: machine.chips as f64,
            available: 0.0,
            unit: "chips".into(),
            remedy,
            mends: Vec::new(),
        },
    }
}
