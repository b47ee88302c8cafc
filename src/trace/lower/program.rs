//! The neutral form of a recorded step that every door (host trace, FX graph, Kineto trace) opens into: values, each
//! written once, and the calls between them.
//!
//! A value is one version of a storage. Views are no calls: the tensors of a call name the value they look into, with
//! their own offset, sizes and strides ([`TensorArg::storage`] is the index of the value).

use crate::trace::ops::{Call, Cost, TensorArg};
use std::collections::HashSet;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// There before the step; read as a weight (or said to be a parameter by the file).
    Parameter,
    /// There before the step: data, masks, tables, states.
    Input,
    /// Written by a call.
    Made(usize),
}

/// One version of a storage.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Name for tables and tensors.
    pub name: String,
    /// Sizes as first seen.
    pub shape: Vec<u64>,
    /// Elements of the storage as far as they are looked at.
    pub elements: u64,
    /// Bytes of one element.
    pub element_bytes: u64,
    /// Whether its elements are floating point.
    pub float: bool,
    /// Where it comes from.
    pub origin: Origin,
    /// The version before, where only a part was written: what is there besides.
    pub before: Option<usize>,
}

/// The part of a training step a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Forward pass.
    Forward,
    /// Backward pass.
    Backward,
    /// What is done with the finished gradients: accumulation, buckets, their reduction.
    Gradients,
    /// Update of the parameters.
    Optimiser,
}

/// What is known of a collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comm {
    /// Kind, with only letters: `allreduce`, `allgather`, `reducescatter`, `alltoall`, `broadcast`, ...
    pub kind: String,
    /// Ranks of its group, where recorded.
    pub ranks: Option<u64>,
    /// Name of the group, where recorded.
    pub group: Option<String>,
}

/// One call that does something.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Id of the node in the file.
    pub node: u64,
    /// The call; storages are values.
    pub call: Call,
    /// Its FLOP and bytes.
    pub cost: Cost,
    /// Part of the step.
    pub part: Part,
    /// Autograd's sequence number, which a forward call and its backward calls share.
    pub sequence: Option<i64>,
    /// Measured seconds, where the file has them.
    pub seconds: Option<f64>,
    /// Values it reads, each once.
    pub reads: Vec<usize>,
    /// Values it makes.
    pub writes: Vec<usize>,
    /// For collectives: what is known.
    pub comm: Option<Comm>,
    /// Its inputs were not recorded; what it reads was inferred from what nobody else reads.
    pub inferred: bool,
}

/// Which arguments of an operator are its weights.
pub fn weight_places(op: &str) -> &'static [usize] {
    match op {
        "mm" | "_scaled_mm" | "mv" => &[1],
        "addmm" => &[0, 2],
        "linear" | "mkldnn_linear" => &[1, 2],
        "convolution" | "_convolution" | "cudnn_convolution" | "mkldnn_convolution" => &[1, 2],
        "embedding" | "_embedding_bag" => &[0],
        "native_layer_norm" => &[2, 3],
        "native_batch_norm"
        | "cudnn_batch_norm"
        | "_native_batch_norm_legit_functional"
        | "_native_batch_norm_legit_no_training"
        | "native_group_norm" => &[1, 2],
        "_fused_rms_norm" => &[2],
        "_cudnn_rnn" => &[1],
        "mkldnn_rnn_layer" => &[1, 2, 3, 4],
        _ => &[],
    }
}

/// A recorded step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// Name: of the model or the file.
    pub name: String,
    /// Samples in the step, where the file says so.
    pub batch: Option<u64>,
    /// Values.
    pub values: Vec<Value>,
    /// Calls in order.
    pub steps: Vec<Step>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Nodes whose place among the others is not certain: their callers were lost, or cannot have called them.
    pub uncertain: HashSet<u64>,
}

impl Program {
    /// Whether the step updates its parameters or computes gradients.
    pub fn trains(&self) -> bool {
        self.steps.iter().any(|s| s.part != Part::Forward)
    }

    /// Fills `reads` and `writes` of every step from its call, and the origin of the values.
    pub fn link(&mut self) {
        let mut seen: HashSet<usize, foldhash::fast::RandomState> = HashSet::default();
        for (i, step) in self.steps.iter_mut().enumerate() {
            let mut reads: Vec<usize> = if step.inferred {
                step.reads.clone()
            } else {
                crate::trace::ops::reads(&step.call).iter().map(|t| t.storage).collect()
            };
            for w in &step.writes {
                reads.extend(self.values.get(*w).and_then(|v| v.before));
            }
            seen.clear();
            reads.retain(|v| seen.insert(*v) && !step.writes.contains(v));
            step.reads = reads;
            for w in &step.writes {
                if let Some(value) = self.values.get_mut(*w) {
                    value.origin = Origin::Made(i);
                }
            }
        }
    }

    /// Marks as parameters the inputs that a product or a norm takes as its weight, and those that the optimiser writes.
    pub fn find_parameters(&mut self) {
        let mut parameters = Vec::new();
        // What a forward product streams is data, even where a gradient takes it in the place of a weight.
        let mut streamed = HashSet::new();
        for step in self.steps.iter().filter(|s| s.part == Part::Forward) {
            let at = match step.call.op.as_str() {
                "mm" | "linear" | "mkldnn_linear" | "_scaled_mm" | "convolution" | "_convolution"
                | "cudnn_convolution" | "mkldnn_convolution" => 0,
                "addmm" => 1,
                _ => continue,
            };
            streamed.extend(step.call.tensor(at).map(|t| t.storage));
        }
        for step in &self.steps {
            let weights = weight_places(&step.call.op);
            for i in weights {
                let mut found: Vec<&TensorArg> = Vec::new();
                if let Some(arg) = step.call.inputs.get(*i) {
                    arg.tensors(&mut found);
                }
                parameters
                    .extend(found.iter().filter(|t| t.element == crate::trace::ops::Element::Float).map(|t| t.storage));
            }
        }
        // What was gathered from shards that were there before is the parameter; the shards themselves are only read to be gathered.
        let given = |v: &usize| self.values.get(*v).is_some_and(|x| !matches!(x.origin, Origin::Made(_)));
        let gathered: HashSet<usize> = (self.steps.iter())
            .filter(|s| s.comm.as_ref().is_some_and(|c| c.kind.contains("allgather")))
            .filter(|s| s.call.input_tensors().iter().all(|t| given(&t.storage)))
            .flat_map(|s| s.writes.iter().copied())
            .collect();
        for p in parameters.iter().filter(|p| gathered.contains(p)) {
            if let Some(value) = self.values.get_mut(*p) {
                value.origin = Origin::Parameter;
            }
        }
        // Vectors and scalars that were there before the step are biases and scales.
        for step in self.steps.iter().filter(|s| s.part == Part::Forward && s.comm.is_none()) {
            for v in &step.reads {
                let vector = self.values.get(*v).is_some_and(|x| x.float && x.shape.len() <= 1);
                if vector {
                    parameters.push(*v);
                }
            }
        }
        for p in parameters.into_iter().filter(|p| !streamed.contains(p)) {
            if let Some(value) = self.values.get_mut(p)
                && value.origin == Origin::Input
            {
                value.origin = Origin::Parameter;
            }
        }
    }
}
