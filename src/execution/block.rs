//! One microbatch on one chip: times and kept bytes of a layer, of the embedding and of the head. They depend on the division of a
//! microbatch, recomputation and overlap of tensor parallelism, and on nothing else of an execution: a search keeps them in a table.

use super::activation::{ActivationPolicy, AttentionKernel};
use super::communication::{Exposed, LayerCommunication, hand_over_bytes};
use super::layer::{Division, Kernels, Sums};
use super::machine::Machine;
use super::spec::{Execution, Recompute};
use crate::system::stack::Attention;
use crate::workload::language::LanguageModel;

/// What decides a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// How a microbatch is divided.
    pub division: Division,
    /// What is computed again.
    pub recompute: Recompute,
    /// Whether tensor-parallel collectives run beside products.
    pub overlap_tp: bool,
}

impl BlockKey {
    /// Of an execution.
    pub fn of(e: &Execution) -> Self {
        Self {
            division: Division {
                tp: e.tp,
                cp: e.cp,
                ep: e.ep,
                micro_batch: e.micro_batch,
                sequence_parallel: e.sequence_parallel,
            },
            recompute: e.recompute,
            overlap_tp: e.overlap_tp,
        }
    }
}

/// Seconds of one layer (or end) and microbatch, by kind, and bytes that it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerTime {
    /// Kernels of the forward pass.
    pub forward: f64,
    /// Kernels of the backward pass.
    pub backward: f64,
    /// What gradients of weights add to the backward pass.
    pub weight: f64,
    /// Kernels run again.
    pub recompute: f64,
    /// Communication, all passes.
    pub exposed: Exposed,
    /// What the host adds.
    pub host: f64,
    /// Seconds of the forward pass with everything.
    pub forward_pass: f64,
    /// Seconds of the backward pass with everything, computing again included.
    pub backward_pass: f64,
    /// FLOP of all passes.
    pub flop: f64,
    /// Bytes kept for the backward pass.
    pub kept: f64,
    /// Bytes alive while the backward pass is in it, beyond `kept`.
    pub working: f64,
}

impl LayerTime {
    /// Both passes.
    pub fn total(&self) -> f64 {
        self.forward_pass + self.backward_pass
    }
}

/// Times and kept bytes of a microbatch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Block {
    /// A layer with a plain perceptron.
    pub plain: LayerTime,
    /// A layer with experts.
    pub experts: LayerTime,
    /// The embedding.
    pub embedding: LayerTime,
    /// The head.
    pub head: LayerTime,
    /// Bytes handed to the next stage.
    pub hand_over: f64,
    /// Bytes of one hidden activation on a chip.
    pub hidden: f64,
}

/// Which blocks the table of sums is over: everything but recomputation and overlap.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BlockSums {
    plain: Sums,
    experts: Sums,
    embedding: Sums,
    head: Sums,
}

impl BlockSums {
    /// Adds kernels up. `peak` is that of the model's products.
    pub fn of(machine: &Machine, model: &LanguageModel, division: Division, peak: f64) -> Self {
        let kernels = || Kernels::new(machine, model, division, peak);
        let layer = |there: bool, with: bool| if there { Sums::of(&kernels().layer(with)) } else { Sums::default() };
        Self {
            plain: layer(model.dense_layers() > 0, false),
            experts: layer(model.expert_layers() > 0, true),
            embedding: Sums::of(&kernels().embedding()),
            head: Sums::of(&kernels().head()),
        }
    }
}

/// The word of the stack in the terms of the closed forms of memory.
pub fn attention_kernel(machine: &Machine) -> AttentionKernel {
    match machine.stack.attention {
        Attention::Unfused => AttentionKernel::Materialised,
        Attention::Flash => AttentionKernel::Fused,
    }
}

impl Block {
    /// Of a key, from its sums.
    pub fn of(machine: &Machine, model: &LanguageModel, key: &BlockKey, sums: &BlockSums) -> Self {
        let division = &key.division;
        let policy = ActivationPolicy {
            recompute: key.recompute,
            tp: division.tp,
            cp: division.cp,
            sequence_parallel: division.sequence_parallel,
            attention: attention_kernel(machine),
        };
        let all = ActivationPolicy { recompute: Recompute::None, ..policy };
        let layer = |there: bool, with_experts: bool, s: &Sums| {
            if !there {
                return LayerTime::default();
            }
            let comm = LayerCommunication::of(machine, model, division, key.overlap_tp, with_experts, s);
            let samples = division.micro_batch;
            let kept = model.layer_activation_bytes(with_experts, model.seq, samples, &policy).total();
            let most = model.layer_activation_bytes(with_experts, model.seq, samples, &all).total();
            layer_time(machine, key.recompute, s, &comm, kept, most)
        };
        let plain = layer(model.dense_layers() > 0, false, &sums.plain);
        let experts = layer(model.expert_layers() > 0, true, &sums.experts);
        let reduce = LayerCommunication::of(machine, model, division, false, false, &Sums::default()).reduce;
        let words = model.vocab.is_some();
        let tokens = division.micro_batch as f64 * model.seq as f64 / division.cp as f64;
        let hidden = tokens * model.hidden as f64 * model.types.activations.bytes();
        Self {
            plain,
            experts,
            embedding: LayerTime {
                kept: model.embedding_activation_bytes(model.seq, division.micro_batch, &policy),
                ..end_time(&sums.embedding, if words { reduce } else { 0.0 }, 0.0)
            },
            head: LayerTime {
                kept: model.head_activation_bytes(model.seq, division.micro_batch, &policy),
                ..end_time(&sums.head, 0.0, if model.head_outputs() > 0 { reduce } else { 0.0 })
            },
            hand_over: hand_over_bytes(machine, model, division),
            hidden: if division.sequence_parallel { hidden / division.tp as f64 } else { hidden },
        }
    }
}

fn layer_time(
    machine: &Machine,
    recompute: Recompute,
    s: &Sums,
    comm: &LayerCommunication,
    kept: f64,
    most: f64,
) -> LayerTime {
    let stack = &machine.stack;
    let none = Exposed::default();
    let (again, again_comm, again_flop, again_host) = match recompute {
        Recompute::None => (0.0, none, 0.0, 0.0),
        Recompute::Selective => (s.forward_attention, none, s.attention_flop, stack.host_attention_recompute.0),
        Recompute::Full => (s.forward, comm.forward, s.forward_flop, stack.host_layer_recompute.0 + comm.host),
    };
    let forward = s.forward + comm.forward.total();
    let backward = s.backward() + comm.backward.total() + again + again_comm.total();
    let forward_pass = stack.host_and_device(stack.host_layer_forward.0 + comm.host, forward);
    let backward_pass = stack.host_and_device(stack.host_layer_backward.0 + comm.host + again_host, backward);
    // What the pass would be shorter by without them: less than their own time where the host is slower.
    let without =
        stack.host_and_device(stack.host_layer_backward.0 + comm.host + again_host, backward - s.backward_weight);
    LayerTime {
        forward: s.forward,
        backward: s.backward(),
        weight: backward_pass - without,
        recompute: again,
        exposed: comm.forward.plus(&comm.backward).plus(&again_comm),
        host: (forward_pass - forward) + (backward_pass - backward),
        forward_pass,
        backward_pass,
        flop: s.forward_flop + s.backward_flop + again_flop,
        kept,
        working: (most - kept).max(0.0),
    }
}

fn end_time(s: &Sums, forward_reduce: f64, backward_reduce: f64) -> LayerTime {
    LayerTime {
        forward: s.forward,
        backward: s.backward(),
        weight: s.backward_weight,
        exposed: Exposed { tp: forward_reduce + backward_reduce, ..Exposed::default() },
        forward_pass: s.forward + forward_reduce,
        backward_pass: s.backward() + backward_reduce,
        flop: s.forward_flop + s.backward_flop,
        ..LayerTime::default()
    }
}
