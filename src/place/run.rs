//! One placement as it is asked for: the graph divided among replicas, checked, solved, and its figures.

use super::cores::Cores;
use super::feasible;
use super::graph::ActorGraph;
use super::instance::{Instance, Request};
use super::placement::{Figures, Objective, Placement, Solved, capacities, figures, limit};
use super::replicas;
use super::solve::{Engine, GAP, Outcome, solve};
use crate::solver::record::Status;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// What is minimised.
    pub objective: Objective,
    /// Whether the cores form a chain of stages.
    pub acyclic: bool,
    /// Largest load over the mean, for the objective `cut`.
    pub balance: f64,
    /// Copies of the graph.
    pub replicas: u64,
    /// Cores of each copy; left out: an equal part of all.
    pub depth: Option<u64>,
    /// Engines.
    pub engine: Engine,
    /// Seconds of the search.
    pub seconds: Option<f64>,
}

/// A placement with what follows and what was proven.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The graph with all copies.
    pub graph: ActorGraph,
    /// The decisions.
    pub placement: Placement,
    /// What follows.
    pub figures: Figures,
    /// The best answer with the best bound; with replicas the bound holds for equal replicas on cores of their own.
    pub best: Solved,
    /// Each engine's answer; with replicas for one of them.
    pub engines: Vec<Solved>,
    /// What was asked of the graph with all copies.
    pub request: Request,
}

/// Places `graph`; `pins` are those of one copy, on its own cores.
///
/// # Errors
/// Everything that keeps it from being placed, in words with a remedy.
pub fn place(graph: &ActorGraph, cores: &Cores, ask: &Ask, pins: &[Option<usize>]) -> Result<Placed, Vec<String>> {
    let fail = |e: &dyn std::fmt::Display| vec![e.to_string()];
    let base = cores.cores.first().ok_or_else(|| vec!["there are no cores".to_string()])?;
    let r = ask.replicas;
    let whole = replicas::replicated(graph, r, base).map_err(|e| fail(&e))?;
    let depth = ask.depth.unwrap_or(cores.len() as u64 / r);
    let used = usize::try_from(depth.saturating_mul(r)).unwrap_or(usize::MAX);
    if depth == 0 || used > cores.len() {
        return Err(vec![format!(
            "{r} replicas on {} cores: each needs at least one of its own; ask for at most {} replicas",
            cores.len(),
            cores.len()
        )]);
    }
    let own = if r == 1 && depth as usize == cores.len() { cores.clone() } else { cores.first(depth as usize) };
    let request = |pins: Vec<Option<usize>>| Request {
        objective: ask.objective,
        acyclic: ask.acyclic,
        pins,
        balance: ask.balance,
        seconds: ask.seconds,
    };
    if let Some(p) = pins.iter().flatten().find(|p| **p >= own.len()) {
        return Err(vec![format!(
            "pins: core {:?} is not among the first {} cores, which each replica has; pin within these",
            cores.cores[*p].name,
            own.len()
        )]);
    }
    let pinned = |n: usize| if pins.is_empty() { vec![None; n] } else { pins.to_vec() };
    let solved = |graph: &ActorGraph, pins: Vec<Option<usize>>| -> Result<Outcome, Vec<String>> {
        let request = request(pins);
        feasible::check(graph, &own, &request)?;
        let sizes = capacities(graph);
        let instance = Instance::new(graph, &sizes, &own, &request).map_err(|e| fail(&e))?;
        let outcome = solve(&instance, ask.engine).map_err(|e| fail(&e))?;
        if outcome.best.core_of.is_none()
            && let Some(balance) = evenest(graph, &instance)
        {
            let asked = request.balance;
            let none = if outcome.best.status == Status::Infeasible {
                "there is"
            } else {
                "within the limits there was found"
            };
            let of = if instance.alike() { "" } else { " of all actors on the fastest kind of core" };
            return Err(fail(&format!(
                "{none} no placement whose largest load is at most {asked} x the mean{of} (--balance); with {balance} there is one"
            )));
        }
        match (&outcome.best.core_of, outcome.best.status) {
            (Some(_), _) => Ok(outcome),
            (None, Status::Infeasible) => Err(fail(
                &"no placement obeys memory, pins and balance: use cores with more memory, fewer pins, or a larger balance",
            )),
            _ => Err(fail(
                &"no placement was found within the limits: more seconds, more memory or a larger balance may bring one",
            )),
        }
    };
    let sizes = capacities(&whole);
    let (best, engines, core_of, pins) = if r == 1 {
        let pins = pinned(whole.actors.len());
        let Outcome { best, engines } = solved(&whole, pins.clone())?;
        let core_of = best.core_of.clone().unwrap_or_default();
        (best, engines, core_of, pins)
    } else {
        // The first replica with the distributor, the last with the collector, and all between them alike.
        let part = replicas::with_samples(graph, graph.batch / r, base);
        let free = || std::iter::once(None);
        let one = pinned(part.actors.len());
        let mut kinds = Vec::new();
        for at in [0, 1, r - 1].into_iter().take(if r == 2 { 2 } else { 3 }) {
            let pins = match at {
                0 => free().chain(one.iter().copied()).collect(),
                _ if at + 1 == r => one.iter().copied().chain(free()).collect(),
                _ => one.clone(),
            };
            kinds.push(solved(&replicas::own(&part, r, at).map_err(|e| fail(&e))?, pins)?);
        }
        let of = |at: u64| &kinds[if at == 0 { 0 } else { (kinds.len() - 1).min(1 + usize::from(at + 1 == r)) }];
        let mut core_of = Vec::with_capacity(whole.actors.len());
        for at in 0..r {
            let found = of(at).best.core_of.iter().flatten();
            core_of.extend(found.map(|p| p + (at * depth) as usize));
        }
        let figures = figures(&whole, cores, &core_of, &sizes).map_err(|e| fail(&e))?;
        let slowest = |a: &&Outcome, b: &&Outcome| a.best.objective.total_cmp(&b.best.objective);
        let slowest = kinds.iter().max_by(slowest).cloned().unwrap_or_else(|| kinds[0].clone());
        let objective = figures.objective(ask.objective);
        // The largest of a replica's bounds is one of all; what is cut adds up.
        let bounds = (0..r).map(|at| of(at).best.bound);
        let bound = if ask.objective == Objective::Cut { bounds.sum() } else { bounds.fold(0.0, f64::max) };
        let proven = kinds.iter().all(|k| k.best.status == Status::Optimal);
        let mut best = Solved { objective, bound: bound.min(objective), ..slowest.best };
        best.seconds = kinds.iter().map(|k| k.best.seconds).sum();
        best.status = match (best.gap() <= GAP, proven) {
            (true, _) => Status::Optimal,
            (false, true) => Status::NodeLimit,
            _ => kinds.iter().map(|k| k.best.status).find(|s| *s != Status::Optimal).unwrap_or(Status::NodeLimit),
        };
        best.core_of = Some(core_of.clone());
        let pins = free().chain((0..r).flat_map(|at| {
            let offset = (at * depth) as usize;
            one.iter().map(move |p| p.map(|p| offset + p))
        }));
        (best, slowest.engines, core_of, pins.chain(free()).collect())
    };
    let figures = figures(&whole, cores, &core_of, &sizes).map_err(|e| fail(&e))?;
    if r > 1 {
        for (p, bytes) in figures.memory_bytes.iter().enumerate() {
            if *bytes > cores.cores[p].memory {
                return Err(vec![format!(
                    "with distributor and collector core {:?} needs {}, and has {}; use cores with more memory",
                    cores.cores[p].name,
                    crate::units::Bytes(*bytes),
                    crate::units::Bytes(cores.cores[p].memory)
                )]);
            }
        }
    }
    let placement = Placement { core_of, capacities: sizes, replicas: ask.replicas };
    Ok(Placed { request: request(pins), graph: whole, placement, figures, best, engines })
}

/// The front over replicas that divide the samples and the cores of each: powers of two, and all there are.
///
/// # Errors
/// As [`place`]; no number of replicas that fits.
pub fn front(
    graph: &ActorGraph,
    cores: &Cores,
    ask: &Ask,
    (low, high): (u64, u64),
) -> Result<Vec<replicas::Point>, Vec<String>> {
    let mut points = Vec::new();
    let all = cores.len() as u64;
    for r in (low..=high.min(all)).filter(|r| graph.batch.is_multiple_of(*r)) {
        let most = all / r;
        let mut depth = 1;
        loop {
            let used = cores.first((r * depth) as usize);
            let placed = place(graph, &used, &Ask { replicas: r, depth: Some(depth), ..ask.clone() }, &[])?;
            let gap = placed.best.gap();
            let core_of = &placed.placement.core_of;
            points.push(
                replicas::point(&placed.graph, &used, core_of, &placed.figures, (r, depth, gap))
                    .map_err(|e| vec![e])?,
            );
            if depth == most {
                break;
            }
            depth = (2 * depth).min(most);
        }
    }
    if points.is_empty() {
        return Err(vec![format!(
            "replicas: none of {low} to {high} divides the {} samples of {:?} and fits {all} cores",
            graph.batch, graph.name
        )]);
    }
    replicas::mark_front(&mut points);
    Ok(points)
}

/// The least largest load over the mean of the limit that a placement is known for, rounded up; nothing where balance is not what was asked for.
fn evenest(graph: &ActorGraph, instance: &Instance) -> Option<f64> {
    if instance.request.objective != Objective::Cut {
        return None;
    }
    let request = Request { objective: Objective::Bottleneck, ..instance.request.clone() };
    let sizes = capacities(graph);
    let even = Instance::new(graph, &sizes, instance.cores, &request).ok()?;
    let core_of = solve(&even, Engine::Exact).ok()?.best.core_of?;
    let largest = figures(graph, instance.cores, &core_of, &sizes).ok()?.bottleneck_s;
    let imbalance = largest / limit(graph, instance.cores, instance.request.balance).ok()?.mean;
    let shown = (imbalance * 1e4).ceil() / 1e4;
    (shown > instance.request.balance).then_some(shown)
}
