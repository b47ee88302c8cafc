//! Placements as YAML: self-contained (the graph and the cores stand in them), made to be read, edited and checked.

use super::cores::Cores;
use super::graph::ActorGraph;
use super::instance::Request;
use super::placement::{Objective, Placement};
use super::run::Placed;
use super::spec::{ActorsSpec, CoresSpec, pins, tree};
use crate::solver::record::Status;
use crate::spec::read::Table;
use crate::spec::{Node, Problem, Problems, Reader, Value};
use serde_json::{Map, json};

crate::spec! {
    /// What follows from a placement, and what its search proved. Each figure is compared if it is there.
    #[derive(Default)]
    pub struct PlacementResult ("figures of a placement") {
        /// Seconds or bytes of the objective.
        objective: Option<f64>,
        /// No placement is better than this, by the engine named.
        bound: Option<f64>,
        /// How the search ended.
        status: Option<Status>,
        /// The engine that found it.
        engine: Option<String>,
        /// Seconds of firings of the slowest core in one iteration.
        bottleneck_s: Option<f64>,
        /// Largest over mean load.
        imbalance: Option<f64>,
        /// Seconds of all transfers between cores.
        across_s: Option<f64>,
        /// Bytes that pass between cores in one iteration.
        cut_bytes: Option<f64>,
        /// Whether the cores can be ordered so that every channel goes forward.
        chain: Option<bool>,
        /// Seconds of firings, by core.
        busy_s: Option<Vec<f64>>,
        /// Bytes of state and FIFOs, by core.
        memory_bytes: Option<Vec<f64>>,
    }
}

crate::spec! {
    /// A placement: an actor graph, cores, and which actor lies on which core.
    pub struct PlacementSpec ("a placement") {
        /// Format of the file: 1.
        flowspace_placement: u64,
        /// The actor graph.
        graph: Node,
        /// The cores.
        cores: Node,
        /// Only the first so many of them are used.
        first: Option<u64>,
        /// What was minimised.
        objective: Objective,
        /// Whether the cores form a chain of stages.
        acyclic: bool,
        /// Largest load over the mean, for the objective `cut`.
        balance: Option<f64>,
        /// Copies of the workload in the graph.
        replicas: u64 = 1,
        /// Actors that had to lie where they do.
        pins: Option<Node>,
        /// Core of each actor.
        placement: Table<String>,
        /// Tokens that each channel holds, in the order of the channels.
        fifos: Vec<u64>,
        /// Figures, to be compared with what the placement gives.
        result: Option<PlacementResult>,
    }
}

/// A placement file read.
#[derive(Debug, Clone)]
pub struct PlacementFile {
    /// The graph.
    pub graph: ActorGraph,
    /// The cores.
    pub cores: Cores,
    /// What was asked for.
    pub request: Request,
    /// The decisions.
    pub placement: Placement,
    /// Figures to compare.
    pub result: Option<PlacementResult>,
}

/// Largest load over mean load where none is asked for: METIS's own 3 %.
pub const BALANCE: f64 = 1.03;

/// Reads a placement from its tree.
///
/// # Errors
/// All [`Problems`].
pub fn read(node: &Node) -> Result<PlacementFile, Problems> {
    let spec: PlacementSpec = Reader::read(node)?;
    let at = |key: &str| node.get(key).map_or(node.origin.clone(), |n| n.origin.clone());
    let mut problems = Vec::new();
    let mut problem = |key: &str, message: String| {
        problems.push(Problem { origin: at(key), field: key.into(), message });
    };
    if spec.flowspace_placement != 1 {
        problem("flowspace_placement", format!("expected format 1, found {}", spec.flowspace_placement));
    }
    let (graph, cores) = match (ActorsSpec::build(&spec.graph), CoresSpec::build(&spec.cores)) {
        (Ok(graph), Ok(cores)) => (graph, cores),
        (graph, cores) => {
            let faults = graph.err().into_iter().chain(cores.err()).flat_map(|p| p.0);
            return Err(Problems(problems.into_iter().chain(faults).collect()));
        }
    };
    let cores = match spec.first {
        Some(first) if first as usize > cores.len() => {
            problem("first", format!("expected 1 to {} cores, found {first}", cores.len()));
            cores
        }
        Some(first) => cores.first(first as usize),
        None => cores,
    };
    let of = |node: &Node| pins(node, &graph, &cores);
    let placed = node.get("placement").map_or_else(|| Ok(vec![None; graph.actors.len()]), of);
    let pinned = spec.pins.as_ref().map_or_else(|| Ok(vec![None; graph.actors.len()]), of);
    let (placed, pinned) = match (placed, pinned) {
        (Ok(placed), Ok(pinned)) => (placed, pinned),
        (placed, pinned) => {
            let faults = placed.err().into_iter().chain(pinned.err()).flat_map(|p| p.0);
            return Err(Problems(problems.into_iter().chain(faults).collect()));
        }
    };
    let missing: Vec<&str> =
        graph.actors.iter().zip(&placed).filter(|(_, p)| p.is_none()).map(|(a, _)| a.name.as_str()).collect();
    if !missing.is_empty() {
        problem("placement", format!("no core is given for {}", missing.join(", ")));
    }
    if spec.fifos.len() != graph.channels.len() {
        let (found, due) = (spec.fifos.len(), graph.channels.len());
        problem("fifos", format!("expected one number for each of the {due} channels, found {found}"));
    }
    if spec.balance.is_some_and(|b| b < 1.0) {
        problem("balance", "expected at least 1".into());
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let request = Request {
        objective: spec.objective,
        acyclic: spec.acyclic,
        pins: pinned,
        balance: spec.balance.unwrap_or(BALANCE),
        seconds: None,
    };
    let placement =
        Placement { core_of: placed.into_iter().flatten().collect(), capacities: spec.fifos, replicas: spec.replicas };
    Ok(PlacementFile { graph, cores, request, placement, result: spec.result })
}

/// Writes a placement on cores, of whose tree only the first so many may be in use.
///
/// # Errors
/// Why it cannot be written.
pub fn write(placed: &Placed, (cores, cores_node, first): (&Cores, &Node, Option<u64>)) -> Result<String, String> {
    let Placed { graph, placement, figures, best: solved, request, .. } = placed;
    let name = |p: usize| json!(cores.cores[p].name);
    let table = |of: &dyn Fn(usize) -> Option<usize>| {
        let entries = graph.actors.iter().enumerate().filter_map(|(i, a)| of(i).map(|p| (a.name.clone(), name(p))));
        serde_json::Value::Object(entries.collect::<Map<_, _>>())
    };
    let mut document = Map::new();
    document.insert("flowspace_placement".into(), json!(1));
    document.insert("objective".into(), json!(request.objective));
    document.insert("acyclic".into(), json!(request.acyclic));
    if request.objective == Objective::Cut {
        document.insert("balance".into(), json!(request.balance));
    }
    document.insert("replicas".into(), json!(placement.replicas));
    let result = json!({
        "objective": solved.objective,
        "bound": solved.bound,
        "status": solved.status,
        "engine": solved.engine,
        "bottleneck_s": figures.bottleneck_s,
        "imbalance": figures.imbalance,
        "across_s": figures.across_s,
        "cut_bytes": figures.cut_bytes,
        "chain": figures.acyclic,
        "busy_s": figures.busy_s,
        "memory_bytes": figures.memory_bytes,
    });
    document.insert("result".into(), result);
    if request.pins.iter().any(Option::is_some) {
        document.insert("pins".into(), table(&|i| request.pins[i]));
    }
    document.insert("placement".into(), table(&|i| placement.core_of.get(i).copied()));
    document.insert("fifos".into(), json!(placement.capacities));
    let mut inlined = cores_node.to_json();
    if let serde_json::Value::Object(map) = &mut inlined {
        map.remove("from");
    }
    document.insert("cores".into(), inlined);
    if let Some(first) = first {
        document.insert("first".into(), json!(first));
    }
    document.insert("graph".into(), tree(graph));
    serde_saphyr::to_string(&serde_json::Value::Object(document))
        .map_err(|e| format!("cannot write the placement: {e}"))
}

/// Whether a tree is a placement (and not a plan).
pub fn is_placement(node: &Node) -> bool {
    matches!(&node.value, Value::Map(_)) && node.get("flowspace_placement").is_some()
}
