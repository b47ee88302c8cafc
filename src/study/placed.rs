//! Points that are placements of actors on the cores of a chip (`solve.place`).

use super::grid::Point;
use crate::mapping::Infeasible;
use crate::place::run::{Ask, place};
use crate::place::solve::Engine;
use crate::place::spec::CoresSpec;
use crate::place::{ActorGraph, Objective, import, replicas};
use crate::report::csv::Outcome;
use crate::report::executed::Placement;
use crate::spec::read::Ref;
use crate::spec::{Node, Problems, Reader};

crate::spec! {
    /// The point is a placement of the workload's actors on cores; it has no system.
    pub struct PlaceSpec ("settings of a placement", check: check) {
        /// The cores.
        cores: Ref<CoresSpec>,
        /// Only the first so many of them.
        first: Option<u64>,
        /// What is minimised.
        minimise: Objective = Objective::Bottleneck,
        /// Whether the cores form a chain of stages.
        acyclic: bool = false,
        /// Largest load over the mean, with `minimise: cut`.
        balance: f64 = crate::place::file::BALANCE,
        /// Copies of the graph side by side.
        replicas: u64 = 1,
        /// Which engines run.
        engine: Engine = Engine::Auto,
        /// Most times a repeated block is written out; left out: all.
        unroll: Option<u64>,
    }
}

fn check(spec: &PlaceSpec, node: &Node, reader: &mut Reader) {
    let count: u64 = spec.cores.0.cores.iter().map(|c| c.count).sum();
    if let Some(first) = spec.first.filter(|f| *f > count) {
        let at = node.get("first").unwrap_or(node);
        reader.within("first", |r| r.problem(at, format!("expected 1 to {count} cores, found {first}")));
    }
    if spec.balance < 1.0 {
        let at = node.get("balance").unwrap_or(node);
        reader.within("balance", |r| r.problem(at, format!("expected at least 1, found {}", spec.balance)));
    }
}

/// The actor graph of a point's workload.
///
/// # Errors
/// [`Problems`] of the workload.
pub(super) fn actors(spec: &PlaceSpec, workload: &Node) -> Result<ActorGraph, Problems> {
    let build = import::Build { unroll: spec.unroll, ..import::Build::default() };
    let mut graph = import::build(workload, build)?;
    import::shares(workload, build, &mut graph, (spec.replicas, spec.replicas))?;
    Ok(graph)
}

/// Places a point's actors; `None` where it is none of these.
///
/// # Errors
/// A sentence where the settings do not suit the graph.
pub(super) fn solve(point: &Point) -> Result<Option<Outcome>, String> {
    let (Some(spec), Some(graph)) = (&point.solve.place, &point.actors) else { return Ok(None) };
    let all = spec.cores.0.cores();
    let cores = match spec.first {
        Some(first) => all.first(first as usize),
        None => all,
    };
    let ask = Ask {
        objective: spec.minimise,
        acyclic: spec.acyclic,
        balance: spec.balance,
        replicas: spec.replicas,
        depth: None,
        engine: spec.engine,
        seconds: point.solve.seconds,
    };
    let placed = match place(graph, &cores, &ask, &[]) {
        Ok(placed) => placed,
        Err(reasons) => {
            return Ok(Some(Outcome::Infeasible(Infeasible {
                resource: "placement".into(),
                needed: f64::NAN,
                available: f64::NAN,
                unit: String::new(),
                remedy: reasons.join("; "),
                mends: Vec::new(),
            })));
        }
    };
    let depth = cores.len() as u64 / spec.replicas;
    let core_of = &placed.placement.core_of;
    let point =
        replicas::point(&placed.graph, &cores, core_of, &placed.figures, (spec.replicas, depth, placed.best.gap()))?;
    Ok(Some(Outcome::Placed(Box::new(Placement {
        actors: placed.graph.actors.len(),
        cores: cores.len(),
        cores_name: cores.name.clone(),
        figures: placed.figures,
        best: placed.best,
        point,
        minimise: spec.minimise,
    }))))
}
