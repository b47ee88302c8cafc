//! Calculon's three files as they are written (version 0.1.0, github.com/calculon-ai/calculon): an application, an execution and a
//! system. All fields are mandatory there.

use crate::spec::read::Table;
use crate::spec::schema::Definitions;
use crate::spec::{FromNode, Node, Reader, Value};
use serde::Serialize;
use serde_json::json;

crate::spec! {
    /// A transformer of equal blocks.
    pub struct App ("an application of Calculon") {
        /// Hidden size.
        hidden: u64,
        /// Width of the perceptron.
        feedforward: u64,
        /// Tokens of a sample.
        seq_size: u64,
        /// Attention heads.
        attn_heads: u64,
        /// Size of a head.
        attn_size: u64,
        /// Blocks.
        num_blocks: u64,
    }
}

crate::choice! {
    /// One type for everything.
    pub enum Datatype ("a data type") {
        /// 8 bits.
        Float8 = "float8",
        /// 16 bits.
        Float16 = "float16",
        /// 32 bits.
        Float32 = "float32",
        /// 16 bits with 8 of exponent.
        Bfloat16 = "bfloat16",
    }
}

crate::choice! {
    /// Heads of keys and values.
    pub enum AttentionType ("a type of attention") {
        /// As many as of queries.
        Multihead = "multihead",
        /// One.
        Multiquery = "multiquery",
    }
}

crate::choice! {
    /// What is computed again.
    pub enum ActivationRecompute ("what is recomputed") {
        /// Nothing.
        None = "none",
        /// The attention core.
        AttnOnly = "attn_only",
        /// Whole blocks.
        Full = "full",
    }
}

crate::choice! {
    /// How tensor-parallel chips communicate.
    pub enum TensorComm ("a type of tensor-parallel communication") {
        /// All-reduce.
        AllReduce = "ar",
        /// All-reduce within a chunk, divided between chunks.
        Between = "p2p_rs_ag",
        /// Reduce-scatter and all-gather: sequence parallelism.
        Sequence = "rs_ag",
    }
}

crate::choice! {
    /// How tensor-parallel communication is overlapped.
    pub enum TensorOverlap ("an overlap of tensor-parallel communication") {
        /// Not.
        None = "none",
        /// In tiles, without the first.
        Ring = "ring",
        /// In tiles.
        Pipe = "pipe",
    }
}

crate::choice! {
    /// How times of arithmetic and memory combine.
    pub enum ProcessingMode ("a processing mode") {
        /// Their sum.
        NoOverlap = "no_overlap",
        /// The larger.
        Roofline = "roofline",
    }
}

/// A position in the list of networks, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Tier(pub usize);

impl FromNode for Tier {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::Scalar { text, .. } if text.parse::<u16>().is_ok() => text.parse().ok().map(Self),
            _ => {
                reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
                None
            }
        }
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "integer", "minimum": 0 })
    }
    fn expected() -> String {
        "the number of a network, from 0".into()
    }
}

/// Pairs of threshold and efficiency, the largest threshold first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Steps(pub Vec<(f64, f64)>);

impl FromNode for Steps {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        let rows = Vec::<Vec<f64>>::from_node(node, reader)?;
        let steps: Option<Vec<(f64, f64)>> = rows
            .iter()
            .map(|row| match row.as_slice() {
                [from, efficiency] if *efficiency > 0.0 && *efficiency <= 1.0 => Some((*from, *efficiency)),
                _ => None,
            })
            .collect();
        match steps {
            Some(steps) if !steps.is_empty() => Some(Self(steps)),
            _ => {
                reader.problem(node, format!("expected {}", Self::expected()));
                None
            }
        }
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "array" })
    }
    fn expected() -> String {
        "pairs [threshold, efficiency above 0 and at most 1]".into()
    }
}

impl Steps {
    /// The best efficiency: that of the largest operations.
    pub fn best(&self) -> f64 {
        self.0.iter().map(|s| s.1).fold(0.0, f64::max)
    }
}

/// Factors of an operation: of its size, and of one over the members (`null` where members do not count).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Factors {
    /// Bytes on the link for a byte of payload.
    pub scalar: f64,
    /// What is added for one over the members.
    pub offset: Option<f64>,
}

impl FromNode for Factors {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        if let Value::List(items) = &node.value {
            let number = |i: usize| match items.get(i).map(|n| &n.value) {
                Some(Value::Scalar { text, .. }) => text.parse::<f64>().ok().filter(|v| v.is_finite()),
                _ => None,
            };
            let absent = matches!(items.get(1).map(|n| &n.value), Some(Value::Null));
            if let (2, Some(scalar)) = (items.len(), number(0).filter(|s| *s > 0.0))
                && (absent || number(1).is_some())
            {
                return Some(Self { scalar, offset: number(1) });
            }
        }
        reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
        None
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "type": "array" })
    }
    fn expected() -> String {
        "a pair [factor, offset or null]".into()
    }
}

crate::spec! {
    /// How a model is executed.
    pub struct Exec ("an execution of Calculon", check: check_exec) {
        /// Chips.
        num_procs: u64,
        /// Tensor parallelism.
        tensor_par: u64,
        /// Pipeline parallelism.
        pipeline_par: u64,
        /// Data parallelism.
        data_par: u64,
        /// Network of tensor parallelism.
        tensor_par_net: Tier,
        /// Network of pipeline parallelism.
        pipeline_par_net: Tier,
        /// Network of data parallelism.
        data_par_net: Tier,
        /// Samples of an iteration.
        batch_size: u64,
        /// Samples of a microbatch.
        microbatch_size: u64,
        /// Type of everything.
        datatype: Datatype,
        /// Whether the activation function is fused.
        fused_activation: bool,
        /// Heads of keys and values.
        attention_type: AttentionType,
        /// What is computed again.
        activation_recompute: ActivationRecompute,
        /// Chunks of a stage.
        pipeline_interleaving: u64,
        /// Whether optimiser states are divided among replicas.
        optimizer_sharding: bool,
        /// How tensor-parallel chips communicate.
        tensor_par_comm_type: TensorComm,
        /// How that is overlapped.
        tensor_par_overlap: TensorOverlap,
        /// Whether gathered activations are gathered again.
        seq_par_ag_redo: bool,
        /// Whether gradients are reduced beside the backward pass.
        data_par_overlap: bool,
        /// Whether weights lie in the second tier.
        weight_offload: bool,
        /// Whether activations do.
        activations_offload: bool,
        /// Whether optimiser states do.
        optimizer_offload: bool,
        /// Whether it trains.
        training: bool,
    }
}

/// More chips than any machine has: what is larger is a slip of the keyboard.
const MAX_CHIPS: u64 = 1 << 24;

fn check_exec(exec: &Exec, node: &Node, reader: &mut Reader) {
    let mut say = |field: &str, message: String| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    let (t, p, d) = (exec.tensor_par, exec.pipeline_par, exec.data_par);
    if exec.num_procs > MAX_CHIPS {
        say("num_procs", format!("expected at most {MAX_CHIPS}, found {}", exec.num_procs));
    }
    let product = t.checked_mul(p).and_then(|x| x.checked_mul(d));
    if product != Some(exec.num_procs) {
        say(
            "num_procs",
            format!("expected tensor_par x pipeline_par x data_par = {t} x {p} x {d}, found {}", exec.num_procs),
        );
    }
    if d.checked_mul(exec.microbatch_size).is_none_or(|samples| !exec.batch_size.is_multiple_of(samples)) {
        let micro = exec.microbatch_size;
        say(
            "batch_size",
            format!("expected a multiple of data_par x microbatch_size = {d} x {micro}, found {}", exec.batch_size),
        );
    }
    if p == 1 && exec.pipeline_interleaving > 1 {
        say(
            "pipeline_interleaving",
            format!("expected 1 without pipeline parallelism, found {}", exec.pipeline_interleaving),
        );
    }
    if exec.optimizer_sharding && d == 1 {
        say("optimizer_sharding", "needs data parallelism, found data_par = 1".into());
    }
}

crate::spec! {
    /// Rates of a unit in one type.
    pub struct Rate ("rates of a unit") {
        /// Peak.
        tflops: f64,
        /// Efficiency by GFLOP of a call.
        gflops_efficiency: Steps,
    }
}

crate::spec! {
    /// A memory.
    pub struct Tiered ("a memory of Calculon") {
        /// Capacity.
        gib as "GiB": f64,
        /// Bandwidth.
        gbps as "GBps": f64,
        /// Efficiency by megabytes of a call.
        efficiency as "MB_efficiency": Steps,
    }
}

crate::spec! {
    /// A network.
    pub struct Net ("a network of Calculon") {
        /// Bandwidth, GB/s.
        bandwidth: f64,
        /// Share of it that is reached.
        efficiency: f64,
        /// Most members.
        size: u64,
        /// Seconds of every operation.
        latency: f64,
        /// Factors by operation.
        ops: Table<Factors>,
        /// Whether groups fill it.
        must_be_filled: bool,
        /// Share of the chip that an operation takes.
        processor_usage: f64,
    }
}

crate::spec! {
    /// A machine.
    pub struct Sys ("a system of Calculon", check: check_sys) {
        /// Products.
        matrix: Table<Rate>,
        /// Everything else.
        vector: Table<Rate>,
        /// First tier.
        mem1: Tiered,
        /// Second tier.
        mem2: Tiered,
        /// How arithmetic and memory combine.
        processing_mode: ProcessingMode,
        /// Networks, innermost first.
        networks: Vec<Net>,
    }
}

fn check_sys(sys: &Sys, node: &Node, reader: &mut Reader) {
    let mut say = |field: &str, message: &str| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    if sys.mem1.gbps <= 0.0 || sys.mem1.gib <= 0.0 {
        say("mem1", "expected a capacity and a bandwidth above zero");
    }
    if sys.networks.iter().any(|n| n.bandwidth <= 0.0 || n.efficiency <= 0.0 || n.efficiency > 1.0) {
        say("networks", "expected bandwidths above zero, and efficiencies above zero and at most one");
    }
    for (field, rates) in [("matrix", &sys.matrix), ("vector", &sys.vector)] {
        if rates.0.iter().any(|(_, r)| r.tflops <= 0.0) {
            say(field, "expected rates above zero");
        }
    }
}
