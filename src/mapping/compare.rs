//! Every engine on every sub-problem of an answer, side by side: elimination and MILPs on the shardings of all assignments of
//! dimensions, shortest path and MILPs on their fusion problems. An engine that does not run has a line that says why.

use super::degrees::{Degrees, assignments};
use super::exact;
use super::ideals::{Ideals, MAX_IDEALS};
use super::instance::Instance;
use super::record::{SolveRecord, Status};
use super::request::{MapError, Request};
use super::search::Search;
use super::sharding;
use super::solver::{Limits, Solver};
use super::wide;
use crate::deadline::Deadline;
use crate::plan::Plan;
use crate::progress::Steps;
use crate::system::System;
use crate::workload::Workload;
use std::time::Instant;

/// What one engine said of one sub-problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The sub-problem.
    pub problem: String,
    /// The engine.
    pub engine: String,
    /// How it ended.
    pub status: String,
    /// The best it found.
    pub objective: Option<f64>,
    /// No answer is better.
    pub bound: Option<f64>,
    /// Seconds it took.
    pub seconds: f64,
    /// Whether that agrees with the first engine; `None` for the first, and where nothing can be said.
    pub agrees: Option<bool>,
}

/// Relative difference within which engines agree.
pub const TOLERANCE: f64 = 1e-6;

/// The rows that disagree, each as a sentence.
pub fn disagreements(rows: &[Compared]) -> Vec<String> {
    let text = |v: Option<f64>| v.map_or("none".into(), |v| format!("{v:e}"));
    let mut out = Vec::new();
    let mut first: Option<&Compared> = None;
    for row in rows {
        if first.is_none_or(|f| f.problem != row.problem) {
            first = Some(row);
        } else if let Some(first) = first.filter(|_| row.agrees == Some(false)) {
            out.push(format!(
                "engines disagree on {}: {} says {} ({}), {} says {} ({}; bound {}); please report it",
                row.problem,
                first.engine,
                text(first.objective),
                first.status,
                row.engine,
                text(row.objective),
                row.status,
                text(row.bound)
            ));
        }
    }
    out
}

/// Most assignments of dimensions that are compared beside the plan's own.
const MOST_ASSIGNMENTS: usize = 16;
/// Largest graph whose fusion MILP is solved; the same where every kernel has a partition of its own, which is a choice of their order
/// alone, that changes no time, and that the MILPs would try one after the other.
const MOST_KERNELS: usize = 128;
const MOST_ALONE: usize = 10;

/// Solves the sharding of every assignment of dimensions that the request allows (the plan's first, at most sixteen more), and
/// the fusion problem of each at the plan's tile count, with every engine.
///
/// # Errors
/// [`MapError`]: a solver that fails. Disagreements are rows, not errors: see [`disagreements`].
pub fn all(
    workload: &Workload,
    system: &System,
    plan: &Plan,
    request: &Request,
    clock: Deadline,
) -> Result<Vec<Compared>, MapError> {
    let own = Degrees::new(system, plan.decisions.uses.clone());
    let on_grid = workload.is_spread().then(|| workload.on_grid(own.grid_rows, own.grid_cols));
    let search = Search::new(on_grid.as_ref().unwrap_or(workload), system, request, clock)?;
    let mut candidates = vec![own.clone()];
    if !workload.is_spread() && request.pins.uses.is_none() {
        let wanted = &request.wanted;
        let others = assignments(system, wanted.split).into_iter();
        let others = others.filter(|d| d.uses != own.uses && wanted.fits(d) && search.degrees_infeasible(d).is_none());
        candidates.extend(others.take(MOST_ASSIGNMENTS));
    }
    let mut rows = Vec::new();
    let steps = Steps::of("assignments", candidates.len() as u64);
    for (i, degrees) in candidates.iter().enumerate() {
        if i > 0 {
            steps.step();
        }
        if clock.is_over() {
            let left = candidates.len() - i;
            let nothing = SolveRecord { status: Status::out_of_time(), ..nothing() };
            let status = format!("not compared {}", crate::deadline::within());
            rows.push(Compared { status, ..row(&format!("{left} more assignments"), "all", &nothing) });
            break;
        }
        let name = format!("TP {} PP {} DP {}", degrees.tp, degrees.pp, degrees.dp);
        let Ok(problem) = sharding::problem(search.workload, system, degrees, &search.pins_sharding) else { continue };
        let solved = compare_sharding(&search, &problem, &format!("sharding, {name} #{i}"), &mut rows)?;
        // The plan's own sharding where there is one.
        let strategies = if i == 0 { plan.decisions.sharding.clone() } else { solved };
        if strategies.len() != search.workload.kernels.len() {
            continue;
        }
        let capacity = search.dram_capacity();
        let least = search.pipe(degrees).least_longest(&search.layer_need(degrees, &strategies), capacity);
        // The plan's own division where there is one.
        let Some(longest) = (if i == 0 { plan.decisions.longest() } else { least }) else { continue };
        let limit = capacity - search.resident(degrees, &strategies, longest).total();
        let layout = (plan.decisions.tiles, plan.decisions.weights_on_chip);
        if search.workload.is_chain() {
            // The fusion problems of the blocks, with as much room as they want.
            let whole = search.instance((degrees, 1), &strategies, (plan.decisions.tiles, false), capacity);
            for (kernels, part) in search.blocks.iter().zip(whole.iter().cycle()).map(|((_, k), w)| (k, w.part(k))) {
                let block = &search.workload.blocks[search.workload.kernels[kernels[0]].block].name;
                compare_fusion(&search, &part, &format!("fusion of {block}, {name} #{i}"), &mut rows)?;
            }
            continue;
        }
        if let Ok(instance) = search.instance((degrees, longest), &strategies, layout, limit) {
            compare_fusion(&search, &instance, &format!("fusion, {name} #{i}"), &mut rows)?;
        }
    }
    Ok(rows)
}

/// What an engine that did not run has found.
fn nothing() -> SolveRecord {
    let (objective, bound) = (f64::INFINITY, f64::INFINITY);
    SolveRecord { status: Status::Infeasible, objective, bound, nodes: None, seconds: 0.0 }
}

fn row(problem: &str, engine: &str, record: &SolveRecord) -> Compared {
    let found = record.objective.is_finite();
    Compared {
        problem: problem.into(),
        engine: engine.into(),
        status: record.status.to_string(),
        objective: found.then_some(record.objective),
        bound: record.bound.is_finite().then_some(record.bound),
        seconds: record.seconds,
        agrees: None,
    }
}

/// A solver for which no time was left.
fn not_run(problem: &str, solver: Solver) -> Compared {
    let status = format!("not compared {}", crate::deadline::within());
    Compared { status, ..row(problem, solver.word(), &nothing()) }
}

/// Whether what an engine said can be true beside another's proven answer.
fn consistent(first: &SolveRecord, other: &SolveRecord) -> Option<bool> {
    let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * a.abs().max(b.abs());
    let no_better = |bound: f64, objective: f64| bound <= objective + TOLERANCE * objective.abs();
    match (first.status, other.status) {
        (Status::Infeasible, Status::Infeasible) => Some(true),
        (Status::Infeasible, _) => Some(!other.objective.is_finite()).filter(|same| !same),
        (_, Status::Infeasible) => Some(false),
        (Status::Optimal, Status::Optimal) => Some(near(first.objective, other.objective)),
        // One of them was stopped: neither may have found something better than the other's bound.
        _ => Some(no_better(first.bound, other.objective) && no_better(other.bound, first.objective)),
    }
}

fn compare_sharding(
    search: &Search<'_>,
    problem: &sharding::Problem,
    name: &str,
    rows: &mut Vec<Compared>,
) -> Result<Vec<crate::model::Strategy>, MapError> {
    let exact = sharding::solve_exactly(problem, &search.limits())?;
    rows.push(row(name, "elimination", &exact.record));
    for solver in Solver::built() {
        if search.out_of_time() {
            rows.push(not_run(name, solver));
            continue;
        }
        let milp = sharding::solve_problem(problem, &Limits { solver, ..search.limits() })?;
        let agrees = consistent(&exact.record, &milp.record);
        rows.push(Compared { agrees, ..row(name, solver.word(), &milp.record) });
    }
    Ok(exact.strategies)
}

fn compare_fusion(
    search: &Search<'_>,
    instance: &Instance,
    name: &str,
    rows: &mut Vec<Compared>,
) -> Result<(), MapError> {
    let clock = Instant::now();
    let ideals = Ideals::of(instance, MAX_IDEALS).filter(|ideals| ideals.complete);
    let (engine, plan, bound, stopped) = match &ideals {
        Some(ideals) => {
            let found = exact::solve_until(instance, ideals, f64::INFINITY, search.deadline());
            // A path that was stopped bounds nothing.
            let bound = if found.stopped { Some(f64::NEG_INFINITY) } else { found.path.as_ref().map(|p| p.objective) };
            ("shortest path", found.path.map(|p| p.assignment), bound, found.stopped)
        }
        None => {
            let found = wide::solve(instance, f64::INFINITY, &mut wide::Memory::default(), search.deadline());
            ("wide", found.as_ref().map(|w| w.assignment.clone()), found.map(|w| w.bound), search.out_of_time())
        }
    };
    let objective = plan.as_ref().and_then(|a| instance.evaluate(a)).map_or(f64::INFINITY, |(value, _)| value);
    let status = match (&ideals, bound) {
        _ if stopped => Status::out_of_time(),
        (Some(_), None) => Status::Infeasible,
        (Some(_), Some(_)) => Status::Optimal,
        (None, Some(bound)) if objective <= bound * (1.0 + TOLERANCE) => Status::Optimal,
        (None, _) => Status::NodeLimit,
    };
    let bound = bound.unwrap_or(f64::INFINITY);
    let first = SolveRecord { status, objective, bound, nodes: None, seconds: clock.elapsed().as_secs_f64() };
    rows.push(row(name, engine, &first));
    let kernels = instance.kernels.len();
    let why = if instance.kernel_by_kernel && kernels > MOST_ALONE {
        Some(format!(
            "not run: one kernel a partition, {kernels} of them; their order, all that is open, costs nothing"
        ))
    } else if kernels > MOST_KERNELS {
        Some(format!("not run: {kernels} kernels, more than {MOST_KERNELS}"))
    } else if plan.is_none() {
        Some("not run: there is no plan to start from".into())
    } else {
        None
    };
    if let Some(status) = why {
        let nothing = SolveRecord { status: first.status, ..nothing() };
        rows.push(Compared { status, ..row(name, "MILP", &nothing) });
        return Ok(());
    }
    let Some(plan) = plan else { return Ok(()) };
    for solver in Solver::built() {
        if search.out_of_time() {
            rows.push(not_run(name, solver));
            continue;
        }
        let limits = Limits { solver, ..search.limits() };
        let (mut record, found) = search.solve_milp_with(instance, &plan, search.spare_partitions(), &limits)?;
        // The plan of a MILP is worth what its assignment is.
        let value = found.map(|a| instance.evaluate(&a));
        if let Some(Some((value, _))) = value {
            record.objective = value;
        }
        let mut next = row(name, solver.word(), &record);
        next.agrees = consistent(&first, &record);
        if value == Some(None) {
            next.status = "breaks a rule".into();
            next.agrees = Some(false);
        }
        rows.push(next);
    }
    Ok(())
}
