//! Executions as YAML: what a person gives, and what `map --plan-out` writes. Written ones stand alone: workload and system are in them, the mapping of the blocks where it was
//! searched for, and the figures that follow, so that `check` derives them again and `map --plan` searches anew what `pin` leaves open.

use super::mapping::{Branch, Core, Fusions, LayerMapping};
use super::search::Pins;
use super::spec::Execution;
use super::{Machine, Prediction};
use crate::graph::Workload;
use crate::model::Strategy;
use crate::plan::file::Stated;
use crate::plan::{Plan, TOLERANCE, file};
use crate::spec::read::Table;
use crate::spec::{Node, Origin, Problem, Problems, Reader};
use crate::system::kernels::UNFUSED;
use crate::system::{Software, System, price};
use crate::workload::language::LanguageModel;
use serde_json::json;

crate::spec! {
    /// An execution, and what belongs to it.
    pub struct ExecutionFile ("an execution file") {
        /// Name for rows and titles.
        name: String,
        /// Where the execution comes from.
        source: String,
        /// The execution.
        execution: Execution,
        /// How each layer is mapped onto chips that run kernel by kernel, of `software: free`; searched where neither this nor `expert_layer` is there.
        layer: Option<LayerSpec>,
        /// The same of layers with experts.
        expert_layer: Option<LayerSpec>,
        /// How the graph of the blocks is mapped onto dataflow chips, of `software: free`; searched where left out.
        blocks: Option<BlocksSpec>,
        /// Decisions of the execution that `flowspace map --plan` must keep; what else the execution says must go with them.
        pin: Vec<Decision> = Vec::new(),
        /// Figures, to be compared with what the decisions give.
        result: Option<ExecutionResult>,
        /// The workload; `flowspace check` and `flowspace map --plan` need it.
        workload: Option<Node>,
        /// The system; `flowspace check` and `flowspace map --plan` need it.
        system: Option<Node>,
    }
}

crate::spec! {
    /// How a layer is mapped.
    pub struct LayerSpec ("the mapping of a layer") {
        /// How the products of attention are divided.
        attention: Branch = Branch::WEIGHTS,
        /// How those of the perceptron are.
        perceptron: Branch = Branch::WEIGHTS,
        /// What runs the attention core: a kernel under `fused_attention` of the chip, or `unfused`.
        core: String,
        /// What is fused.
        fused: Fusions = Fusions::NONE,
    }
}

crate::spec! {
    /// How the graph of the blocks of a model is mapped onto a tensor-parallel group.
    pub struct BlocksSpec ("the mapping of blocks") {
        /// Tiles that a microbatch is cut into.
        tile_count: u64,
        /// Strategy of each kernel.
        sharding: Table<Strategy>,
        /// Kernels of each partition, in order of execution.
        partitions: Vec<Vec<String>>,
    }
}

crate::spec! {
    /// Figures of an execution. Each is compared if it is there.
    pub struct ExecutionResult ("figures of an execution") {
        /// Seconds of an iteration.
        iteration_s: Option<f64>,
        /// Samples a second.
        samples_per_s: Option<f64>,
        /// Share of the chips' peak that the model's own FLOP make.
        model_flop_utilization: Option<f64>,
        /// Bytes in the memory of a chip of the fullest stage.
        memory_bytes: Option<f64>,
        /// Bytes in its second tier.
        second_tier_bytes: Option<f64>,
        /// Joules of an iteration.
        energy_j: Option<f64>,
        /// Price of the system.
        cost_usd: Option<f64>,
        /// Power of the system.
        power_w: Option<f64>,
        /// Largest relative difference allowed (the figures of others may be rounded).
        tolerance: f64 = TOLERANCE,
    }
}

crate::choice! {
    /// A decision of an execution.
    pub enum Decision ("a decision of an execution") {
        /// Tensor parallelism.
        Tp = "tp",
        /// Pipeline parallelism.
        Pp = "pp",
        /// Data parallelism.
        Dp = "dp",
        /// Expert parallelism.
        Ep = "ep",
        /// Context parallelism.
        Cp = "cp",
        /// Samples of a microbatch.
        MicroBatch = "micro_batch",
        /// Order of the passes.
        Schedule = "schedule",
        /// Pieces of layers a stage holds.
        Chunks = "chunks",
        /// What is computed again.
        Recompute = "recompute",
        /// Sequence parallelism.
        SequenceParallel = "sequence_parallel",
        /// Stage of ZeRO.
        Zero = "zero",
        /// What is offloaded.
        Offload = "offload",
        /// Overlap of data parallelism.
        OverlapDp = "overlap_dp",
        /// Overlap of tensor parallelism.
        OverlapTp = "overlap_tp",
        /// The number of chips: tp x pp x dp x cp.
        Chips = "chips",
    }
}

impl LayerSpec {
    /// Of a mapping.
    pub fn of(mapping: &LayerMapping, machine: &Machine) -> Self {
        let core = match mapping.core {
            Core::Unfused => UNFUSED.into(),
            Core::Kernel(i) => machine.attention_kernels.get(i).map_or_else(String::new, |(name, _)| name.clone()),
        };
        Self { attention: mapping.attention, perceptron: mapping.perceptron, core, fused: mapping.fused }
    }

    /// The mapping.
    ///
    /// # Errors
    /// A sentence about `core`: there is no such kernel.
    pub fn mapping(&self, machine: &Machine) -> Result<LayerMapping, String> {
        let names = || machine.attention_kernels.iter().map(|(name, _)| name.as_str());
        let core = match names().position(|name| name == self.core) {
            Some(i) => Core::Kernel(i),
            None if self.core == UNFUSED => Core::Unfused,
            None => {
                let there: Vec<&str> = names().chain([UNFUSED]).collect();
                return Err(format!("expected one of {}, found {:?}", there.join(", "), self.core));
            }
        };
        Ok(LayerMapping { attention: self.attention, perceptron: self.perceptron, core, fused: self.fused })
    }
}

/// Decisions of the graph of blocks, by the kernels of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockDecisions {
    /// Tiles of a microbatch.
    pub tiles: u64,
    /// Strategy of each kernel.
    pub sharding: Vec<Strategy>,
    /// Partition of each kernel.
    pub partition: Vec<usize>,
}

impl BlocksSpec {
    /// The decisions for a graph; `node` is where the mapping stands.
    ///
    /// # Errors
    /// Every name that the graph does not have, and every kernel without a strategy or partition.
    pub fn decisions(&self, graph: &Workload, node: &Node) -> Result<BlockDecisions, Problems> {
        let mut problems = Vec::new();
        let of = file::of_kernels(&self.sharding, &self.partitions, graph, node, &mut problems);
        if let Some(message) = file::tiles_fault(graph, self.tile_count) {
            let origin = node.get("tile_count").unwrap_or(node).origin.clone();
            problems.push(Problem { origin, field: "tile_count".into(), message });
        }
        match of.filter(|_| problems.is_empty()) {
            Some((sharding, partition)) => Ok(BlockDecisions { tiles: self.tile_count, sharding, partition }),
            None => {
                problems.iter_mut().for_each(|p| p.field = format!("blocks.{}", p.field));
                Err(Problems(problems))
            }
        }
    }
}

impl ExecutionResult {
    /// Figures of a prediction on a system.
    pub fn of(p: &Prediction, system: &System) -> Self {
        Self {
            iteration_s: Some(p.time.total),
            samples_per_s: Some(p.samples_per_s),
            model_flop_utilization: Some(p.model_flop_utilization),
            memory_bytes: Some(p.memory.device.total()),
            second_tier_bytes: Some(p.memory.second_tier),
            energy_j: Some(p.energy.total()),
            cost_usd: price::cost(system).stated(),
            power_w: price::power(system).stated(),
            tolerance: TOLERANCE,
        }
    }
}

impl Stated for ExecutionResult {
    fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("iteration_s", self.iteration_s),
            ("samples_per_s", self.samples_per_s),
            ("model_flop_utilization", self.model_flop_utilization),
            ("memory_bytes", self.memory_bytes),
            ("second_tier_bytes", self.second_tier_bytes),
            ("energy_j", self.energy_j),
            ("cost_usd", self.cost_usd),
            ("power_w", self.power_w),
        ]
    }

    fn tolerance(&self) -> f64 {
        self.tolerance
    }
}

impl ExecutionFile {
    /// The mappings that it gives, by key.
    pub fn mappings(&self) -> Vec<&'static str> {
        let all = [
            ("layer", self.layer.is_some()),
            ("expert_layer", self.expert_layer.is_some()),
            ("blocks", self.blocks.is_some()),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(key, _)| key).collect()
    }

    /// The decisions that a new search must keep.
    pub fn pins(&self) -> Pins {
        let e = &self.execution;
        let mut pins = Pins::default();
        for decision in &self.pin {
            match decision {
                Decision::Tp => pins.tp = Some(e.tp),
                Decision::Pp => pins.pp = Some(e.pp),
                Decision::Dp => pins.dp = Some(e.dp),
                Decision::Ep => pins.ep = Some(e.ep),
                Decision::Cp => pins.cp = Some(e.cp),
                Decision::MicroBatch => pins.micro_batch = Some(e.micro_batch),
                Decision::Schedule => pins.schedule = Some(e.schedule),
                Decision::Chunks => pins.chunks = Some(e.chunks),
                Decision::Recompute => pins.recompute = Some(e.recompute),
                Decision::SequenceParallel => pins.sequence_parallel = Some(e.sequence_parallel),
                Decision::Zero => pins.zero = Some(e.zero),
                Decision::Offload => pins.offload = Some(e.offload),
                Decision::OverlapDp => pins.overlap_dp = Some(e.overlap_dp),
                Decision::OverlapTp => pins.overlap_tp = Some(e.overlap_tp),
                Decision::Chips => pins.chips = Some(e.chips()),
            }
        }
        // Degrees that are all kept keep the number of chips.
        if [pins.tp, pins.pp, pins.dp, pins.cp].iter().all(Option::is_some) {
            pins.chips = Some(e.chips());
        }
        pins
    }
}

/// An execution that stands alone, read.
pub type Whole = file::Whole<ExecutionFile>;

impl Whole {
    /// Reads a tree whose references are not yet resolved.
    ///
    /// # Errors
    /// All [`Problems`] of the file, its workload and its system.
    pub fn read(node: &Node) -> Result<Self, Problems> {
        let spec: ExecutionFile = Reader::read(node)?;
        let mut problems: Vec<Problem> = Vec::new();
        for (part, field) in [(&spec.workload, "workload"), (&spec.system, "system")] {
            if part.is_none() {
                let message = format!(
                    "expected the {field}, which `flowspace map --plan-out` writes: without it an execution can only be given beside one (`flowspace map --execution`)"
                );
                problems.push(Problem { origin: node.origin.clone(), field: field.into(), message });
            }
        }
        let about = file::all_subjects([spec.workload.as_ref(), spec.system.as_ref()], problems)?;
        Ok(Self::of(spec, about))
    }
}

/// An execution to be written.
pub struct Written<'a> {
    /// Where it comes from.
    pub source: String,
    /// What it takes.
    pub prediction: &'a Prediction,
    /// The mapping of its blocks, where it is one of graphs.
    pub plan: Option<&'a Plan>,
    /// The machine that the mapping of layers is of.
    pub machine: &'a Machine,
    /// The model.
    pub model: &'a LanguageModel,
    /// The system.
    pub system: &'a System,
    /// Decisions that a new search must keep.
    pub pin: Vec<Decision>,
    /// Trees of the workload and the system; none where the system of a row has no file that says it.
    pub trees: Option<(&'a Node, &'a Node)>,
}

impl Written<'_> {
    /// The text of the file.
    ///
    /// # Errors
    /// A message when the YAML writer fails.
    pub fn text(&self) -> Result<String, String> {
        let p = self.prediction;
        let mut document = json!({
            "name": format!("{} on {}", self.model.name, self.system.name),
            "source": self.source,
            "execution": p.execution,
        });
        let free = self.system.software() == Software::Free;
        for (name, pass) in [("layer", &p.blocks.plain), ("expert_layer", &p.blocks.experts)] {
            if let Some(mapping) = pass.mapping.filter(|_| free) {
                document[name] = json!(LayerSpec::of(&mapping, self.machine));
            }
        }
        if let Some(plan) = self.plan {
            let (sharding, partitions) = file::kernels_of(plan);
            document["blocks"] =
                json!({ "tile_count": plan.decisions.tiles, "sharding": sharding, "partitions": partitions });
        }
        if let Some((workload, system)) = self.trees {
            let mut system = system.clone();
            let origin = Origin::named("<software>");
            let word = Node::scalar(self.system.software().word().to_string(), origin.clone());
            system.set("software", origin, word);
            document["pin"] = json!(self.pin);
            document["result"] = json!(ExecutionResult::of(p, self.system));
            document["workload"] = workload.to_json();
            document["system"] = system.to_json();
        }
        let body = serde_saphyr::to_string(&document).map_err(|e| format!("cannot write the execution: {e}"))?;
        Ok(match self.trees {
            Some(_) => format!(
                "# An execution of flowspace. Edit it, then `flowspace check FILE --recost`; or name decisions under `pin` and `flowspace map --plan FILE`.\n{body}"
            ),
            None => body,
        })
    }
}
