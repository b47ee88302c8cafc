//! From what software takes to what is possible, step by step: each step gives one more kind of decision away, so that the seconds it saves are those of that kind, given
//! the ones before it. The steps add up to the difference.
//!
//! | step | what may change |
//! |---|---|
//! | host | host code takes no time |
//! | fusion | attention kernel and fusions of every layer, and what the software's kernels are short of the best that is known of software for this chip |
//! | sharding | which way each matrix of a layer is divided |
//! | overlap | which communication runs beside other work |
//! | recomputation | what is computed again |
//! | schedule | schedule and chunks of the pipeline |
//! | degrees | everything: degrees, microbatch, sequence parallelism, ZeRO, offload |
//!
//! Every mapping of a step is one of the next, so that no step loses. On dataflow chips what is possible is a mapping of graphs, whose tiles, partitions and shardings are no decisions
//! of the software's kernels: all but the host is one step there, and it may lose where the two models differ.

use super::executions::Executions;
use super::solver::Limits;
use crate::deadline::Deadline;
use crate::execution::policy::Policy;
use crate::execution::possible::Possible;
use crate::execution::predict::predict_by;
use crate::execution::search::{Aim, search_by};
use crate::execution::{Execution, Machine, Pins, Prediction};
use crate::system::{Software, Style, System};
use crate::workload::language::LanguageModel;

/// A step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What may change.
    pub what: &'static str,
    /// Seconds of an iteration that it saves.
    pub saves: f64,
}

/// What software takes, what is possible, and the steps between.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The software.
    pub software: String,
    /// The best execution of the software.
    pub taken: Prediction,
    /// The best there is.
    pub possible: Prediction,
    /// Seconds that nothing possible comes below.
    pub bound: f64,
    /// Steps, in order.
    pub steps: Vec<Step>,
}

/// The difference of a model on a system between its stack (generic software where it names none) and what is possible.
///
/// # Errors
/// A sentence: no execution of the software fits, or a search failed.
pub fn difference(
    system: &System,
    model: &LanguageModel,
    pins: &Pins,
    limits: &Limits,
    deadline: Deadline,
) -> Result<Difference, String> {
    let free = System { software: Some(Software::Free), ..system.clone() };
    let possible = best(&Executions::new(&free, model, limits)?, pins, deadline)?;
    difference_to(possible, system, model, pins, limits, deadline)
}

/// The same where what is possible is known, and its bound.
///
/// # Errors
/// As [`difference`].
pub fn difference_to(
    (possible, bound): (Prediction, f64),
    system: &System,
    model: &LanguageModel,
    pins: &Pins,
    limits: &Limits,
    deadline: Deadline,
) -> Result<Difference, String> {
    let by = |software| System { software: Some(software), ..system.clone() };
    let software = by(if system.stack.is_some() { Software::Stack } else { Software::Generic });
    let taken = best(&Executions::new(&software, model, limits)?, pins, deadline)?.0;
    let e = &taken.execution;
    let machine = Machine::new(&software)?;
    let without = machine.without_host();
    let policy = Policy::new(&without, model)?;
    let (hostless, _) = predict_by(&policy, &without, model, e, deadline).map_err(|e| e.to_string())?;
    let mut times = vec![("host", hostless.time.total)];
    if system.chip.0.style == Style::KernelByKernel {
        between(&Machine::possible(system)?, model, e, deadline, &mut times)?;
    }
    let last = if times.len() > 1 { "degrees" } else { "mapping and decisions" };
    times.push((last, possible.time.total));
    let mut before = taken.time.total;
    let steps =
        times.into_iter().map(|(what, after)| Step { what, saves: std::mem::replace(&mut before, after) - after });
    Ok(Difference { software: machine.stack.name.clone(), steps: steps.collect(), taken, possible, bound })
}

fn best(executions: &Executions, pins: &Pins, deadline: Deadline) -> Result<(Prediction, f64), String> {
    let found = executions.search(pins, deadline)?;
    let bound = found.bound;
    let reason = found.reason(&executions.machine);
    found.best.map(|best| (best, bound)).ok_or(if found.stopped { crate::execution::not_within() } else { reason })
}

/// The steps between an execution without a host and the best of all.
fn between(
    machine: &Machine,
    model: &LanguageModel,
    e: &Execution,
    deadline: Deadline,
    times: &mut Vec<(&'static str, f64)>,
) -> Result<(), String> {
    let fused = Possible::new(machine, model)?.without_gathers();
    let (fused, _) = predict_by(&fused, machine, model, e, deadline).map_err(|e| e.to_string())?;
    times.push(("fusion", fused.time.total));
    let inner = Possible::new(machine, model)?;
    let (sharded, _) = predict_by(&inner, machine, model, e, deadline).map_err(|e| e.to_string())?;
    times.push(("sharding", sharded.time.total));
    let mut pins = Pins {
        chips: Some(e.chips()),
        tp: Some(e.tp),
        pp: Some(e.pp),
        dp: Some(e.dp),
        cp: Some(e.cp),
        ep: Some(e.ep),
        micro_batch: Some(e.micro_batch),
        schedule: Some(e.schedule),
        chunks: Some(e.chunks),
        recompute: Some(e.recompute),
        sequence_parallel: Some(e.sequence_parallel),
        zero: Some(e.zero),
        offload: Some(e.offload),
        overlap_dp: None,
        overlap_tp: None,
    };
    let mut step = |what, pins: &Pins| -> Result<(), String> {
        let found = search_by(&inner, machine, model, pins, &Aim::TIME, deadline)?;
        let last = times.last().map_or(f64::INFINITY, |(_, time)| *time);
        times.push((what, found.best.map_or(last, |best| best.time.total)));
        Ok(())
    };
    step("overlap", &pins)?;
    pins.recompute = None;
    step("recomputation", &pins)?;
    (pins.schedule, pins.chunks) = (None, None);
    step("schedule", &pins)
}
