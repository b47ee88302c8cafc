//! Which performance model evaluates a system. Two presets: `flowspace` (the default) and `dfmodel`, which computes
//! what DFModel's public code computes so that its published rows reproduce. Each option is named after what it
//! changes and can be set by itself.

use crate::graph::Tensor;
use crate::spec::{FromNode, Node, Reader, Value, schema::Definitions};
use serde::Serialize;
use serde_json::json;

crate::choice! {
    /// Which of compute, DRAM traffic and network of a partition run at the same time.
    pub enum Overlap ("an overlap") {
        /// All three: the slowest counts.
        Full = "full",
        /// Compute and DRAM traffic; the network is added.
        ComputeMemory = "compute_memory",
        /// Nothing: the sum counts.
        None = "none",
    }
}

crate::choice! {
    /// A set of options.
    pub enum Preset ("a preset") {
        /// The default model.
        Flowspace = "flowspace",
        /// What DFModel's public code computes.
        Dfmodel = "dfmodel",
    }
}

crate::choice! {
    /// Time of a collective.
    pub enum NetworkModel ("a network model") {
        /// Latency and bandwidth by topology, composed hierarchically over dimensions (ARCHITECTURE.md, "Collectives").
        Flowspace = "flowspace",
        /// DFModel's factors (model.md section 5).
        Dfmodel = "dfmodel",
    }
}

crate::choice! {
    /// Which layouts a tensor can have and which conversions cost something.
    pub enum Layouts ("a set of layout rules") {
        /// From the operands' axes, with partial sums; backward kernels use the forward kernel's weight shards.
        Flowspace = "flowspace",
        /// DFModel's table (model.md section 4): no partial sums, a contracted shard is reduced at once.
        Dfmodel = "dfmodel",
    }
}

crate::choice! {
    /// What the sharding pass minimises.
    pub enum ShardingObjective ("a sharding objective") {
        /// Seconds: collectives on the actual links plus the compute of each shard.
        Time = "time",
        /// Bytes communicated, whatever the collective or the link (DFModel).
        Bytes = "bytes",
    }
}

crate::choice! {
    /// How a tensor with several consumers is counted.
    pub enum Fanout ("a tensor fan-out") {
        /// Stored once, loaded once in each partition that reads it.
        Shared = "shared",
        /// Once a consumer, as if each had a copy (DFModel).
        Replicate = "replicate",
    }
}

crate::choice! {
    /// DRAM traffic of weights.
    pub enum WeightTraffic ("a weight traffic") {
        /// Read once a microbatch and layer; weight gradients are read and written once.
        Streamed = "streamed",
        /// Not charged (DFModel from its second generation on).
        Ignored = "ignored",
        /// Read once a microbatch, after and not under the partition's time, as are the bytes beyond tensors and weights in each sample
        /// (DFModel's first generation).
        Setup = "setup",
    }
}

crate::choice! {
    /// Whether something is charged.
    pub enum Charge ("a choice") {
        /// It costs what it costs.
        Charged = "charged",
        /// It is left out.
        Ignored = "ignored",
    }
}

crate::choice! {
    /// What the DRAM must hold.
    pub enum MemoryState ("a memory state") {
        /// Weights; in training also gradients, optimiser states, and activations of all microbatches in flight.
        Full = "full",
        /// Weights and the tensors that cross partitions (DFModel).
        WeightsAndLive = "weights_and_live",
    }
}

crate::choice! {
    /// How the iteration's time follows from the layer's.
    pub enum Pipeline ("a pipeline schedule") {
        /// 1F1B without interleaving: (microbatches + PP - 1) stages one after another.
        OneForwardOneBackward = "1f1b",
        /// DFModel, second generation: bubble 1 + (PP-1)/(microbatches * (layers of a stage - 1)).
        Dfmodel = "dfmodel",
        /// DFModel, first generation: time of a sample in one pipeline, bubble 1 + (PP-1)/microbatches.
        DfmodelFirst = "dfmodel_first",
    }
}

crate::choice! {
    /// When data-parallel gradients are reduced.
    pub enum GradientReduction ("a gradient reduction") {
        /// Once an iteration, after the last microbatch, not overlapped.
        PerIteration = "per_iteration",
        /// Spread over the microbatches as network time of the weight-gradient kernels (DFModel).
        PerMicrobatch = "per_microbatch",
        /// Not at all (DFModel's first generation on networks of one or two dimensions).
        Ignored = "ignored",
    }
}

crate::choice! {
    /// How unit prices, unit powers, the efficiency, the clock and the DRAM bandwidth are held.
    pub enum Precision ("a precision") {
        /// As written.
        Float64 = "float64",
        /// Through 32-bit fields (DFModel's protobuf).
        Float32 = "float32",
    }
}

crate::choice! {
    /// What a memory is paid by.
    pub enum MemoryPrice ("a price of memory") {
        /// Its bandwidth, as DFModel does.
        Bandwidth = "bandwidth",
        /// Its capacity.
        Capacity = "capacity",
        /// Both: the sum of the two prices.
        Both = "both",
    }
}

crate::choice! {
    /// Which tile counts are searched.
    pub enum TileCounts ("a set of tile counts") {
        /// Divisors of the streamed size.
        Divisors = "divisors",
        /// Every count up to the streamed size, or to 4,096 and divisors above.
        Any = "any",
    }
}

crate::choice! {
    /// Messages that DFModel's all-to-all of DLRM and FFT sends through the cut of a dimension.
    pub enum AllToAllMessages ("a count of messages") {
        /// N^2/4: those that cross a bisection (its `miscellany` generation).
        Bisection = "bisection",
        /// N(N-1)/2: one a pair; tori then have both directions (later generations).
        Pairs = "pairs",
        /// N^2: one in each direction and one to oneself (its runs of FFTs against published ones).
        Squared = "squared",
    }
}

crate::choice! {
    /// Whether the forward and the backward pass may share a partition.
    pub enum Phases ("how the passes are parted") {
        /// No: the backward pass begins in a partition of its own.
        Apart = "apart",
        /// Yes: kernels run in the order of their data alone, as in DFModel's runs with one partition for all.
        Together = "together",
    }
}

crate::choice! {
    /// What carries the gradient reduction.
    pub enum GradientLink ("a gradient link") {
        /// The links of the data-parallel group.
        Links = "links",
        /// One byte a nanosecond whatever the links: DFModel's DLRM adds bytes to nanoseconds.
        BytePerNanosecond = "byte_per_ns",
    }
}

macro_rules! model_options {
    ($( $(#[doc = $doc:literal])+ $field:ident : $ty:ty = $flow:expr, $df:expr; )*) => {
        /// The options in force.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        pub struct ModelOptions {
            /// The preset the other options start from.
            pub preset: Preset,
            $( $(#[doc = $doc])+ pub $field: $ty, )*
        }
        impl ModelOptions {
            /// The default model.
            pub fn flowspace() -> Self {
                Self { preset: Preset::Flowspace, $( $field: $flow, )* }
            }
            /// What DFModel's public code computes.
            pub fn dfmodel() -> Self {
                Self { preset: Preset::Dfmodel, $( $field: $df, )* }
            }
            /// Whether a tensor counts: DFModel knows none that no kernel makes.
            pub fn counts(&self, tensor: &Tensor) -> bool {
                tensor.producer.is_some() || tensor.handed_on || self.boundary_tensors == Charge::Charged
            }
        }
        crate::spec! {
            /// A preset and the options that differ from it.
            pub struct ModelSpec ("a model: flowspace, dfmodel, or a mapping of options") {
                /// The preset the other options start from.
                preset: Preset = Preset::Flowspace,
                $( $(#[doc = $doc])+ $field: Option<$ty>, )*
            }
        }
        impl ModelSpec {
            /// Says in the schema what holds where an option is left out.
            fn note_defaults(definitions: &mut Definitions) {
                $({
                    let (ours, theirs): ($ty, $ty) = ($flow, $df);
                    let (ours, theirs) = (ours.written(), theirs.written());
                    let word = theirs.as_str().map_or_else(|| theirs.to_string(), str::to_string);
                    let remark = if ours == theirs { String::new() } else { format!("Preset `dfmodel`: `{word}`.") };
                    definitions.note_default("ModelSpec", stringify!($field), ours, remark.trim());
                })*
            }
            /// The options in force.
            pub fn resolve(self) -> ModelOptions {
                let base = match self.preset {
                    Preset::Flowspace => ModelOptions::flowspace(),
                    Preset::Dfmodel => ModelOptions::dfmodel(),
                };
                ModelOptions { preset: self.preset, $( $field: self.$field.unwrap_or(base.$field), )* }
            }
        }
    };
}

model_options! {
    /// Time of a collective.
    network_model: NetworkModel = NetworkModel::Flowspace, NetworkModel::Dfmodel;
    /// Passes of DFModel's all-reduce: 1, or 2 as its `miscellany` generation counts.
    all_reduce_passes: u64 = 2, 1;
    /// DFModel's rail-only networks: chips of a domain on the innermost link; a larger group of one dimension reduces
    /// inside the domain first. 1: no such domain.
    high_bandwidth_domain: u64 = 1, 1;
    /// Layout rules of the sharding pass.
    layouts: Layouts = Layouts::Flowspace, Layouts::Dfmodel;
    /// What the sharding pass minimises.
    sharding_objective: ShardingObjective = ShardingObjective::Time, ShardingObjective::Bytes;
    /// How a tensor with several consumers is counted.
    tensor_fanout: Fanout = Fanout::Shared, Fanout::Replicate;
    /// DRAM traffic of weights and weight gradients.
    weight_traffic: WeightTraffic = WeightTraffic::Streamed, WeightTraffic::Ignored;
    /// Re-reading the inputs of a kernel whose weight does not fit on chip, once a piece of the weight.
    weight_tiling: Charge = Charge::Charged, Charge::Ignored;
    /// What a graph takes in and gives out, from layer to layer too: read and written through DRAM.
    boundary_tensors: Charge = Charge::Charged, Charge::Ignored;
    /// Stationary operands of attention: held on chip whole, not tile by tile.
    stationary_operands: Charge = Charge::Charged, Charge::Ignored;
    /// What the DRAM must hold.
    memory_state: MemoryState = MemoryState::Full, MemoryState::WeightsAndLive;
    /// When data-parallel gradients are reduced.
    gradient_reduction: GradientReduction = GradientReduction::PerIteration, GradientReduction::PerMicrobatch;
    /// What carries the gradient reduction.
    gradient_link: GradientLink = GradientLink::Links, GradientLink::Links;
    /// Messages of DFModel's all-to-all over all chips.
    all_to_all_messages: AllToAllMessages = AllToAllMessages::Bisection, AllToAllMessages::Bisection;
    /// Tiles of a tensor in SRAM where it crosses DRAM: 2 (one comes or goes while the other is used), or 1 as DFModel's first generation counts
    /// kernel by kernel.
    crossing_buffers: u64 = 2, 2;
    /// Whether buffers and weights must fit the SRAM (DFModel leaves the limit out for HPL and FFT).
    sram_limit: Charge = Charge::Charged, Charge::Charged;
    /// The optimiser's pass over weights, gradients and states in DRAM, once an iteration.
    optimizer_step: Charge = Charge::Charged, Charge::Ignored;
    /// How the iteration's time follows from the layer's.
    pipeline: Pipeline = Pipeline::OneForwardOneBackward, Pipeline::Dfmodel;
    /// Launch overheads of chips and latencies of links.
    latencies: Charge = Charge::Charged, Charge::Ignored;
    /// The chip's own peak for vector work (else vector work runs at the matrix peak).
    vector_unit: Charge = Charge::Charged, Charge::Ignored;
    /// How unit prices, unit powers, the efficiency, the clock and the DRAM bandwidth are held.
    precision: Precision = Precision::Float64, Precision::Float32;
    /// What a memory is paid by.
    memory_price: MemoryPrice = MemoryPrice::Bandwidth, MemoryPrice::Bandwidth;
    /// Whether forward and backward kernels may share a partition.
    phases: Phases = Phases::Apart, Phases::Apart;
    /// Which tile counts are searched.
    tile_counts: TileCounts = TileCounts::Divisors, TileCounts::Divisors;
    /// Tiles that hold nothing, because a kernel or a tensor has fewer columns than all tiles have places: computed and moved like the others, or not.
    empty_tiles: Charge = Charge::Ignored, Charge::Charged;
    /// Filling and draining of the tile pipeline of each partition, on chips that pipeline tiles (dataflow).
    pipeline_filling: Charge = Charge::Charged, Charge::Ignored;
}

impl FromNode for ModelOptions {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        if let Value::Scalar { text, .. } = &node.value {
            match Preset::from_word(text) {
                Some(Preset::Flowspace) => return Some(Self::flowspace()),
                Some(Preset::Dfmodel) => return Some(Self::dfmodel()),
                None => {
                    reader.problem(node, format!("expected {}, found {}", Self::expected(), node.describe()));
                    return None;
                }
            }
        }
        let options = ModelSpec::from_node(node, reader)?.resolve();
        if !(1..=2).contains(&options.all_reduce_passes) {
            let at = node.get("all_reduce_passes").unwrap_or(node);
            reader.within("all_reduce_passes", |r| {
                r.problem(at, format!("expected 1 or 2, found {}", options.all_reduce_passes))
            });
        }
        if !(1..=2).contains(&options.crossing_buffers) {
            let at = node.get("crossing_buffers").unwrap_or(node);
            reader.within("crossing_buffers", |r| {
                r.problem(at, format!("expected 1 or 2, found {}", options.crossing_buffers))
            });
        }
        Some(options)
    }
    fn schema(definitions: &mut Definitions) -> serde_json::Value {
        let options = ModelSpec::schema(definitions);
        ModelSpec::note_defaults(definitions);
        json!({ "anyOf": [Preset::schema(definitions), options] })
    }
    fn expected() -> String {
        ModelSpec::expected()
    }
    fn written(&self) -> serde_json::Value {
        self.preset.word().into()
    }
}
