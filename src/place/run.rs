//! One placement as it is asked for: the graph divided among replicas, checked, solved, and its figures.

use super::cores::Cores;
use super::feasible;
use super::graph::ActorGraph;
use super::instance::{Instance, Request};
use super::placement::{Figures, Objective, Placement, Solved, capacities, figures};
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
    let whole = replicas::replicated(graph, ask.replicas).map_err(|e| fail(&e))?;
    let depth = ask.depth.unwrap_or(cores.len() as u64 / ask.replicas);
    let used = usize::try_from(depth.saturating_mul(ask.replicas)).unwrap_or(usize::MAX);
    if depth == 0 || used > cores.len() {
        return Err(vec![format!(
            "{} replicas on {} cores: each needs at least one of its own; ask for at most {} replicas",
            ask.replicas,
            cores.len(),
            cores.len()
        )]);
    }
    let share = if ask.replicas == 1 { graph.clone() } else { replicas::share(graph, ask.replicas) };
    let own =
        if ask.replicas == 1 && depth as usize == cores.len() { cores.clone() } else { cores.first(depth as usize) };
    let request = |n: usize, pins: &[Option<usize>]| Request {
        objective: ask.objective,
        acyclic: ask.acyclic,
        pins: if pins.is_empty() { vec![None; n] } else { pins.to_vec() },
        balance: ask.balance,
        seconds: ask.seconds,
    };
    let one = request(share.actors.len(), pins);
    if let Some(p) = one.pins.iter().flatten().find(|p| **p >= own.len()) {
        return Err(vec![format!(
            "pins: core {:?} is not among the first {} cores, which each replica has; pin within these",
            cores.cores[*p].name,
            own.len()
        )]);
    }
    feasible::check(&share, &own, &one)?;
    let sizes = capacities(&share);
    let instance = Instance::new(&share, &sizes, &own, &one).map_err(|e| fail(&e))?;
    let Outcome { mut best, engines } = solve(&instance, ask.engine).map_err(|e| fail(&e))?;
    let Some(found) = &best.core_of else {
        return Err(vec![match best.status {
            Status::Infeasible => {
                "no placement obeys memory, pins and balance: use cores with more memory, fewer pins, or a larger balance"
                    .into()
            }
            _ => "no placement was found within the limits: more seconds, more memory or a larger balance may bring one".into(),
        }]);
    };
    let (core_of, pins) = if ask.replicas == 1 {
        (found.clone(), one.pins.clone())
    } else {
        // Distributor before, collector after everything.
        let offset = |r: u64| (r * depth) as usize;
        let copies = (0..ask.replicas).flat_map(|r| found.iter().map(move |p| offset(r) + p));
        let pinned = (0..ask.replicas).flat_map(|r| one.pins.iter().map(move |p| p.map(|p| offset(r) + p)));
        (
            std::iter::once(0).chain(copies).chain([used - 1]).collect(),
            std::iter::once(None).chain(pinned).chain([None]).collect(),
        )
    };
    let sizes = capacities(&whole);
    let figures = figures(&whole, cores, &core_of, &sizes).map_err(|e| fail(&e))?;
    if ask.replicas > 1 {
        best.objective = figures.objective(ask.objective);
        if ask.objective == Objective::Cut {
            best.bound *= ask.replicas as f64;
        }
        best.bound = best.bound.min(best.objective);
        best.status = match best.status {
            Status::Optimal if best.gap() > GAP => Status::NodeLimit,
            other => other,
        };
        best.core_of = Some(core_of.clone());
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
    Ok(Placed { request: request(whole.actors.len(), &pins), graph: whole, placement, figures, best, engines })
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
