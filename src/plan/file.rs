//! Plans as YAML: self-contained (the workload and the system stand in them, references resolved), made to be read,
//! edited and fed back.

use super::{Decisions, DimensionUse, Figures, Plan, use_faults};
use crate::graph::Workload;
use crate::model::{Strategy, stages};
use crate::spec::read::Table;
use crate::spec::{Node, Origin, Problem, Problems, Reader, Value};
use crate::system::System;
use crate::workload::WorkloadSpec;
use serde_json::{Map, json};

crate::spec! {
    /// A plan: a workload, a system, the decisions of a mapping, and the figures that follow.
    pub struct PlanSpec ("a plan") {
        /// Format of the file: 1.
        flowspace_plan: u64,
        /// The workload.
        workload: Node,
        /// The system.
        system: Node,
        /// Use of each network dimension, innermost first.
        network_use: Vec<DimensionUse>,
        /// Layers of each pipeline stage, in order; as even as can be, the longer ones last, where it is not there.
        stages: Option<Vec<u64>>,
        /// Tiles that a sample is cut into.
        tile_count: u64,
        /// Whether the weights of all layers of a stage, and their gradients, stay on chip for the whole iteration.
        weights_on_chip: bool = false,
        /// Strategy of each kernel.
        sharding: Table<Strategy>,
        /// Kernels of each partition, in order of execution.
        partitions: Vec<Vec<String>>,
        /// What a new search must keep.
        pin: PinSpec = PinSpec { network_use: false, tile_count: false, sharding: Vec::new(), partitions: Vec::new() },
        /// Figures, to be compared with what the decisions give.
        result: Option<ResultSpec>,
    }
}

crate::spec! {
    /// Decisions of a plan that a new search must keep.
    pub struct PinSpec ("pins") {
        /// Keep the use of the network's dimensions.
        network_use: bool = false,
        /// Keep the tile count.
        tile_count: bool = false,
        /// Kernels whose sharding is kept; `[all]` for every one.
        sharding: Vec<String> = Vec::new(),
        /// Kernels whose partition (by position) is kept; `[all]` for every one.
        partitions: Vec<String> = Vec::new(),
    }
}

crate::spec! {
    /// Figures of a plan. Each is compared if it is there.
    pub struct ResultSpec ("figures") {
        /// Seconds of an iteration.
        iteration_s: Option<f64>,
        /// Seconds of one pass over one layer.
        layer_s: Option<f64>,
        /// FLOP of an iteration.
        flop_per_iteration: Option<f64>,
        /// Share of the system's peak.
        utilization: Option<f64>,
        /// Price of the system.
        cost_usd: Option<f64>,
        /// Power of the system.
        power_w: Option<f64>,
        /// Joules of an iteration.
        energy_j: Option<f64>,
        /// Bytes in each chip's DRAM.
        dram_bytes: Option<f64>,
        /// Seconds of each partition.
        partition_s: Option<Vec<f64>>,
        /// Largest relative difference allowed (the figures of others may be rounded).
        tolerance: f64 = super::TOLERANCE,
    }
}

/// A plan file read: everything resolved, every name known.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFile {
    /// The tree of the workload.
    pub workload_node: Node,
    /// The tree of the system.
    pub system_node: Node,
    /// The workload.
    pub workload: Workload,
    /// The system.
    pub system: System,
    /// The decisions.
    pub decisions: Decisions,
    /// What a new search must keep: dimensions, tile count.
    pub pin: PinSpec,
    /// Strategies to keep, by kernel.
    pub pinned_sharding: Vec<Option<Strategy>>,
    /// Partitions to keep, by kernel.
    pub pinned_partition: Vec<Option<usize>>,
    /// Figures to compare.
    pub result: Option<ResultSpec>,
}

/// What a file with decisions is about.
pub struct Subjects<W> {
    /// The tree of the workload, its references resolved.
    pub workload_node: Node,
    /// The tree of the system.
    pub system_node: Node,
    /// The workload.
    pub workload: W,
    /// The system.
    pub system: System,
}

/// Figures that a file may state, and that its decisions give.
pub trait Stated {
    /// By name, in one order; none where they are not stated.
    fn figures(&self) -> Vec<(&'static str, Option<f64>)>;
    /// Largest relative difference allowed.
    fn tolerance(&self) -> f64;

    /// Whether none is stated.
    fn is_empty(&self) -> bool {
        self.figures().iter().all(|(_, figure)| figure.is_none())
    }

    /// Compares with derived figures; every difference is a line.
    fn differences(&self, derived: &dyn Stated) -> Vec<String> {
        let both = self.figures().into_iter().zip(derived.figures());
        both.filter_map(|((what, stated), (_, derived))| {
            let (stated, derived) = (stated?, derived?);
            (!super::agree(stated, derived, self.tolerance())).then(|| difference(what, stated, derived))
        })
        .collect()
    }
}

fn difference(what: &str, stated: f64, derived: f64) -> String {
    format!("{what}: the file says {stated}, its decisions give {derived}")
}

/// A file with decisions that stands alone, read: the workload and the system are in it.
#[derive(Debug, Clone)]
pub struct Whole<F> {
    /// What the file says.
    pub file: F,
    /// The tree of the workload, its references resolved.
    pub workload: Node,
    /// The tree of the system.
    pub tree: Node,
    /// The system.
    pub system: System,
}

impl<F> Whole<F> {
    /// Of a file and what it is about.
    pub fn of<W>(file: F, about: Subjects<W>) -> Self {
        Self { file, workload: about.workload_node, tree: about.system_node, system: about.system }
    }
}

/// [`subjects`] of a file in which nothing else can be wrong but `problems`, and which needs no graph of the workload: some have none.
///
/// # Errors
/// All [`Problems`] of the file, its workload and its system.
pub fn all_subjects(parts: [Option<&Node>; 2], mut problems: Vec<Problem>) -> Result<Subjects<WorkloadSpec>, Problems> {
    subjects(parts, Reader::read, &mut problems).ok_or_else(|| {
        problems.sort_by_key(|p| p.origin.line);
        Problems(problems)
    })
}

/// The workload and the system that stand in a file, where they do; what is wrong with them joins the problems.
pub fn subjects<W>(
    [workload, system]: [Option<&Node>; 2],
    build: impl Fn(&Node) -> Result<W, Problems>,
    problems: &mut Vec<Problem>,
) -> Option<Subjects<W>> {
    let mut tree = |node: Option<&Node>, field: &str| {
        crate::spec::Loader.expand(node?, field).map_err(|problem| problems.push(problem)).ok()
    };
    let (workload_node, system_node) = (tree(workload, "workload"), tree(system, "system"));
    let mut keep = |mut wrong: Problems| problems.append(&mut wrong.0);
    let workload = workload_node.as_ref().and_then(|node| build(node).map_err(&mut keep).ok());
    let system = system_node.as_ref().and_then(|node| System::build(node).map_err(&mut keep).ok());
    Some(Subjects { workload_node: workload_node?, system_node: system_node?, workload: workload?, system: system? })
}

/// Reads a plan from its tree.
///
/// # Errors
/// All [`Problems`] of the plan, its workload and its system.
pub fn read(node: &Node) -> Result<PlanFile, Problems> {
    let spec: PlanSpec = Reader::read(node)?;
    let mut problems: Vec<Problem> = Vec::new();
    let at = |key: &str| node.get(key).map_or(node.origin.clone(), |n| n.origin.clone());
    if spec.flowspace_plan != 1 {
        problems.push(Problem {
            origin: at("flowspace_plan"),
            field: "flowspace_plan".into(),
            message: format!("this version reads plans of format 1, found {}", spec.flowspace_plan),
        });
    }
    let read = subjects([Some(&spec.workload), Some(&spec.system)], WorkloadSpec::build, &mut problems);
    let Some(Subjects { workload_node, system_node, workload, system }) = read else {
        return Err(Problems(problems));
    };

    let names: Vec<&str> = workload.kernels.iter().map(|k| k.name.as_str()).collect();
    let decided = of_kernels(&spec.sharding, &spec.partitions, &workload, node, &mut problems);
    let mut kept = |list: &[String], field: &str| -> Vec<bool> {
        let all = list.iter().any(|n| n == "all");
        for name in list.iter().filter(|n| *n != "all") {
            if workload.kernel_index(name).is_none() {
                let message = unknown(name, &names);
                problems.push(Problem { origin: at("pin"), field: format!("pin.{field}"), message });
            }
        }
        names.iter().map(|n| all || list.iter().any(|l| l == n)).collect()
    };
    let keep_sharding = kept(&spec.pin.sharding, "sharding");
    let keep_partition = kept(&spec.pin.partitions, "partitions");
    problems.extend(use_faults(&spec.network_use, &system).into_iter().map(|(field, message)| Problem {
        origin: at("network_use"),
        field,
        message,
    }));
    if let Some(message) = tiles_fault(&workload, spec.tile_count) {
        problems.push(Problem { origin: at("tile_count"), field: "tile_count".into(), message });
    }
    let pp = spec.network_use.iter().fold(1_u64, |product, u| product.saturating_mul(u.pp));
    let pipeline = system.model.pipeline;
    let listed = pp.min(workload.repeat).min(stages::MOST_STAGES);
    let stages = spec.stages.unwrap_or_else(|| stages::even(pipeline, workload.repeat, listed));
    if let Some(fault) = stages::fault(pipeline, workload.repeat, pp, &stages) {
        problems.push(Problem { origin: at("stages"), field: "stages".into(), message: fault });
    }
    let Some((sharding, partition)) = decided.filter(|_| problems.is_empty()) else {
        problems.sort_by_key(|p| p.origin.line);
        return Err(Problems(problems));
    };
    Ok(PlanFile {
        pinned_sharding: sharding.iter().zip(&keep_sharding).map(|(s, keep)| keep.then_some(*s)).collect(),
        pinned_partition: partition.iter().zip(&keep_partition).map(|(p, keep)| keep.then_some(*p)).collect(),
        decisions: Decisions {
            uses: spec.network_use,
            stages,
            sharding,
            tiles: spec.tile_count,
            weights_on_chip: spec.weights_on_chip,
            partition,
        },
        workload_node,
        system_node,
        workload,
        system,
        pin: spec.pin,
        result: spec.result,
    })
}

fn unknown(name: &str, names: &[&str]) -> String {
    match crate::spec::nearest::nearest(name, names) {
        Some(near) => format!("there is no kernel {name:?}; did you mean {near:?}?"),
        None => format!("there is no kernel {name:?}"),
    }
}

/// What is wrong with a number of tiles.
pub fn tiles_fault(workload: &Workload, tiles: u64) -> Option<String> {
    let most = workload.kernels.iter().map(|k| k.shape.along(k.tiled)).max().unwrap_or(1);
    (tiles > most).then(|| format!("expected at most {most}, the streamed size, found {tiles}"))
}

/// The strategy and the partition of each kernel, from `sharding` and `partitions` of a node; what is wrong with them joins the problems, and there is none where a kernel lacks one.
pub fn of_kernels(
    sharding: &Table<Strategy>,
    partitions: &[Vec<String>],
    workload: &Workload,
    node: &Node,
    problems: &mut Vec<Problem>,
) -> Option<(Vec<Strategy>, Vec<usize>)> {
    let at = |key: &str| node.get(key).map_or(node.origin.clone(), |n| n.origin.clone());
    let mut say = |origin: Origin, field: &str, message: String| {
        problems.push(Problem { origin, field: field.into(), message });
    };
    let names: Vec<&str> = workload.kernels.iter().map(|k| k.name.as_str()).collect();
    let mut strategies = vec![None; names.len()];
    for (name, strategy) in &sharding.0 {
        match workload.kernel_index(name) {
            Some(k) => strategies[k] = Some(*strategy),
            None => say(at("sharding"), "sharding", unknown(name, &names)),
        }
    }
    for (k, name) in names.iter().enumerate().filter(|(k, _)| strategies[*k].is_none()) {
        let _ = k;
        say(at("sharding"), "sharding", format!("kernel {name:?} has no strategy"));
    }
    let mut partition = vec![None; names.len()];
    for (p, kernels) in partitions.iter().enumerate() {
        let origin = match node.get("partitions").map(|n| &n.value) {
            Some(Value::List(items)) => items.get(p).map_or(at("partitions"), |n| n.origin.clone()),
            _ => at("partitions"),
        };
        if kernels.is_empty() {
            say(origin.clone(), "partitions", format!("partition {p} is empty"));
        }
        for name in kernels {
            match workload.kernel_index(name) {
                Some(k) if partition[k].is_some() => {
                    say(origin.clone(), "partitions", format!("kernel {name:?} is in two partitions"));
                }
                Some(k) => partition[k] = Some(p),
                None => say(origin.clone(), "partitions", unknown(name, &names)),
            }
        }
    }
    for (k, name) in names.iter().enumerate() {
        if partition[k].is_none() {
            say(at("partitions"), "partitions", format!("kernel {name:?} is in no partition"));
        }
    }
    Some((strategies.into_iter().collect::<Option<_>>()?, partition.into_iter().collect::<Option<_>>()?))
}

impl ResultSpec {
    /// Compares with derived figures; every difference is a line.
    pub fn differences(&self, figures: &Figures) -> Vec<String> {
        let both = [
            ("iteration_s", self.iteration_s, figures.iteration_s()),
            ("layer_s", self.layer_s, figures.layer_s),
            ("flop_per_iteration", self.flop_per_iteration, figures.flop_per_iteration),
            ("utilization", self.utilization, figures.utilization),
            ("cost_usd", self.cost_usd, figures.cost.total()),
            ("power_w", self.power_w, figures.power.total()),
            ("energy_j", self.energy_j, figures.energy.total()),
            ("dram_bytes", self.dram_bytes, figures.memory.total()),
        ];
        let differs = |stated: f64, derived: f64| !super::agree(stated, derived, self.tolerance);
        let single = both.into_iter().filter_map(|(what, stated, derived)| Some((what, stated?, derived)));
        let mut out: Vec<String> = single
            .filter(|(_, stated, derived)| differs(*stated, *derived))
            .map(|(what, stated, derived)| difference(what, stated, derived))
            .collect();
        if let Some(stated) = &self.partition_s {
            if stated.len() != figures.partitions.len() {
                out.push(format!(
                    "partition_s: the file has {} entries, the plan {} partitions",
                    stated.len(),
                    figures.partitions.len()
                ));
            }
            for (p, (stated, derived)) in stated.iter().zip(&figures.partitions).enumerate() {
                if differs(*stated, derived.time_s) {
                    out.push(difference(&format!("partition_s.[{p}]"), *stated, derived.time_s));
                }
            }
        }
        out
    }
}

/// The strategy of each kernel of a plan by its name, and the kernels of each partition, as [`of_kernels`] reads them.
pub fn kernels_of(plan: &Plan) -> (Map<String, serde_json::Value>, Vec<&Vec<String>>) {
    let sharding = plan.workload.kernels.iter().zip(&plan.decisions.sharding);
    let partitions = plan.figures.partitions.iter().map(|p| &p.kernels);
    (sharding.map(|(k, s)| (k.name.clone(), json!(s))).collect(), partitions.collect())
}

/// The text of a plan file.
///
/// # Errors
/// A message when the YAML writer fails.
pub fn write(workload: &Node, system: &Node, plan: &Plan) -> Result<String, String> {
    let d = &plan.decisions;
    let f = &plan.figures;
    let (sharding, partitions) = kernels_of(plan);
    let document = json!({
        "flowspace_plan": 1,
        "workload": workload.to_json(),
        "system": system.to_json(),
        "network_use": d.uses,
        "stages": d.stages,
        "tile_count": d.tiles,
        "weights_on_chip": d.weights_on_chip,
        "sharding": sharding,
        "partitions": partitions,
        "pin": { "network_use": false, "tile_count": false, "sharding": [], "partitions": [] },
        "result": {
            "iteration_s": f.iteration_s(),
            "layer_s": f.layer_s,
            "flop_per_iteration": f.flop_per_iteration,
            "utilization": f.utilization,
            "cost_usd": f.cost.total(),
            "power_w": f.power.total(),
            "energy_j": f.energy.total(),
            "dram_bytes": f.memory.total(),
            "partition_s": f.partitions.iter().map(|p| p.time_s).collect::<Vec<_>>(),
        },
    });
    let body = serde_saphyr::to_string(&document).map_err(|e| format!("cannot write the plan: {e}"))?;
    Ok(format!(
        "# A plan of flowspace. Edit it, then `flowspace check FILE --recost`; or pin parts and `flowspace map --plan FILE`.\n{body}"
    ))
}
