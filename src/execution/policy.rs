//! The inner search of a software stack: shardings, fusions and overlaps of a block are what the stack does, so that the pass is a sum of kernels and
//! collectives, and bound and answer are one.

use super::activation::{ActivationPolicy, AttentionKernel};
use super::block::{Best, BlockKey, BlockPass, Blocks, Inner, Space};
use super::communication::{Exposed, LayerCommunication, hand_over_bytes};
use super::layer::{Division, Kernels, Sums};
use super::machine::{Machine, Sent};
use super::mapping::{LayerMapping, more_bytes};
use super::spec::Recompute;
use crate::deadline::Deadline;
use crate::system::Stack;
use crate::system::stack::Selective;
use crate::workload::language::{LanguageModel, Position};
use std::cell::RefCell;
use std::collections::HashMap;

/// What the stack of a machine makes of a model.
pub struct Policy<'a> {
    machine: &'a Machine,
    model: &'a LanguageModel,
    peak: f64,
    sums: RefCell<HashMap<Division, BlockSums>>,
}

/// Sums that are kept at once.
const MOST: usize = 100_000;

impl<'a> Policy<'a> {
    /// Of the machine's stack.
    ///
    /// # Errors
    /// A sentence that names the data type for which the chip states no peak.
    pub fn new(machine: &'a Machine, model: &'a LanguageModel) -> Result<Self, String> {
        Ok(Self { machine, model, peak: machine.peak(model)?, sums: RefCell::default() })
    }
}

impl Inner for Policy<'_> {
    fn bound(&self, key: &BlockKey) -> Blocks {
        let mut known = self.sums.borrow_mut();
        if known.len() >= MOST {
            known.clear();
        }
        let of = || BlockSums::of(self.machine, self.model, key.division, self.peak);
        Blocks::of(self.machine, self.model, key, known.entry(key.division).or_insert_with(of))
    }

    fn held(&self, key: &BlockKey) -> Blocks {
        let mapping = LayerMapping::of_stack(self.machine);
        Blocks::holding(self.machine, self.model, key, |with_experts| {
            layer_bytes(&self.machine.stack, self.model, key, with_experts, &mapping)
        })
    }

    fn best(&self, _: &BlockKey, bound: &Blocks, _: u32, _: Deadline) -> Result<Vec<Best>, String> {
        Ok(vec![Best { blocks: *bound, least: *bound, effort: None, plan: None }])
    }

    fn space(&self) -> Space {
        Space { divides: true, exact: true }
    }
}

/// Which blocks the table of sums is over: everything but recomputation and overlap.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct BlockSums {
    plain: Sums,
    experts: Sums,
    embedding: Sums,
    head: Sums,
}

impl BlockSums {
    /// Adds kernels up. `peak` is that of the model's products.
    fn of(machine: &Machine, model: &LanguageModel, division: Division, peak: f64) -> Self {
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
    LayerMapping::of_stack(machine).attention_kernel()
}

/// Bytes that a layer keeps for its backward pass by its mapping, and those alive while that runs, beyond them.
pub fn layer_bytes(
    stack: &Stack,
    model: &LanguageModel,
    key: &BlockKey,
    with_experts: bool,
    mapping: &LayerMapping,
) -> (f64, f64) {
    let division = &key.division;
    let policy = ActivationPolicy {
        recompute: key.recompute,
        tp: division.tp,
        cp: division.cp,
        sequence_parallel: division.sequence_parallel,
        attention: if model.position == Position::Relative {
            AttentionKernel::Materialised
        } else {
            mapping.attention_kernel()
        },
    };
    let all = ActivationPolicy { recompute: Recompute::None, ..policy };
    let of = |policy| model.layer_activation_bytes(with_experts, model.seq, division.micro_batch, policy).total();
    let beside = kept_beside(stack, model, division);
    let (more, working) = more_bytes(model, division, key.recompute, mapping);
    // Before a head that is trained alone nothing is kept.
    if model.head_alone {
        return (0.0, working);
    }
    let (all_more, _) = more_bytes(model, division, Recompute::None, mapping);
    let halves = stack.selective == Selective::HalfOfProducts && key.recompute == Recompute::Selective;
    let kept = more
        + match halves {
            true => model.half_of_products_bytes(with_experts, model.seq, division.micro_batch, &policy),
            false if key.recompute == Recompute::Full => of(&policy),
            false => of(&policy) + beside,
        };
    (kept, (of(&all) + beside + all_more - kept).max(0.0) + working)
}

/// Bytes that a stack's software keeps of a layer beyond the closed forms: copies of norms in 32 bits, and what tensor-parallel chips gathered of divided sequences.
fn kept_beside(stack: &Stack, model: &LanguageModel, division: &Division) -> f64 {
    let (h, word) = (model.hidden as f64, model.types.activations.bytes());
    let tokens = division.micro_batch as f64 * model.seq as f64 / division.cp as f64;
    let own = if division.sequence_parallel { tokens / division.tp as f64 } else { tokens };
    let gathered = if stack.keeps_gathered { (tokens - own) * model.norms().min(2) as f64 * h * word } else { 0.0 };
    // What queries, keys and values, the perceptron's first products and its last one read.
    let narrow = model.adapters.is_some() && model.types.weights.bytes() < word;
    let read = if narrow { model.norms().min(2) as f64 * h + model.ffn() as f64 / division.tp as f64 } else { 0.0 };
    own * (model.norms() as f64 * h * stack.norm_memory.0 + read * stack.narrow_input_memory.0) + gathered
}

/// The pass of a layer whose kernels sum to `sums` by its mapping.
pub fn layer_pass(
    machine: &Machine,
    model: &LanguageModel,
    key: &BlockKey,
    with_experts: bool,
    mapping: &LayerMapping,
    sums: &Sums,
) -> BlockPass {
    let division = &key.division;
    let comm = LayerCommunication::mapped(machine, model, division, key.overlap_tp, with_experts, sums, mapping);
    let (kept, working) = layer_bytes(&machine.stack, model, key, with_experts, mapping);
    let host = if with_experts { machine.stack.host_experts.0 } else { 0.0 };
    BlockPass { kept, working, mapping: Some(*mapping), ..layer_time(machine, key.recompute, sums, &comm, host) }
}

impl Blocks {
    /// What a stack makes of the blocks of a key, from their sums.
    fn of(machine: &Machine, model: &LanguageModel, key: &BlockKey, sums: &BlockSums) -> Self {
        let mapping = LayerMapping::of_stack(machine);
        let layer = |there: bool, with_experts: bool, s: &Sums| {
            if there { layer_pass(machine, model, key, with_experts, &mapping, s) } else { BlockPass::default() }
        };
        let plain = layer(model.dense_layers() > 0, false, &sums.plain);
        let experts = layer(model.expert_layers() > 0, true, &sums.experts);
        Self { plain, experts, ..Self::of_ends(machine, model, key, [&sums.embedding, &sums.head]) }
    }

    /// Blocks that take nothing, whose layers without and with experts keep and work on so many bytes ([`layer_bytes`]).
    pub fn holding(
        machine: &Machine,
        model: &LanguageModel,
        key: &BlockKey,
        bytes: impl Fn(bool) -> (f64, f64),
    ) -> Self {
        let layer = |there: bool, with_experts: bool| {
            let (kept, working) = if there { bytes(with_experts) } else { (0.0, 0.0) };
            BlockPass { kept, working, ..BlockPass::default() }
        };
        let none = Sums::default();
        Self {
            plain: layer(model.dense_layers() > 0, false),
            experts: layer(model.expert_layers() > 0, true),
            ..Self::of_ends(machine, model, key, [&none, &none])
        }
    }

    /// What is around the layers of a key, from the sums of embedding and head: layers take nothing.
    pub fn of_ends(machine: &Machine, model: &LanguageModel, key: &BlockKey, [embedding, head]: [&Sums; 2]) -> Self {
        let division = &key.division;
        let policy = ActivationPolicy {
            recompute: key.recompute,
            tp: division.tp,
            cp: division.cp,
            sequence_parallel: division.sequence_parallel,
            attention: attention_kernel(machine),
        };
        let reduce: Sent = LayerCommunication::of(machine, model, division, false, false, &Sums::default()).reduce;
        let words = model.vocab.is_some();
        // Tensor-parallel chips add up the gradient of the head's input, where it is asked for.
        let asked = model.head_outputs() > 0 && !model.head_alone;
        let tokens = division.micro_batch as f64 * model.seq as f64 / division.cp as f64;
        let hidden = tokens * model.hidden as f64 * model.types.activations.bytes();
        let scores = model.scored_outputs() as f64 / division.tp as f64;
        // The closed form counts 4 bytes of them.
        let scored = model.scored_tokens(tokens, division.micro_batch as f64);
        let more_of_scores = scored * scores * (machine.stack.logit_memory.0 - 4.0);
        Self {
            plain: BlockPass::default(),
            experts: BlockPass::default(),
            embedding: BlockPass {
                kept: model.embedding_activation_bytes(model.seq, division.micro_batch, &policy),
                ..end_time(embedding, if words { reduce } else { Sent::default() }, Sent::default())
            },
            head: BlockPass {
                kept: model.head_activation_bytes(model.seq, division.micro_batch, &policy) + more_of_scores,
                ..end_time(head, Sent::default(), if asked { reduce } else { Sent::default() })
            },
            hand_over: hand_over_bytes(machine, model, division),
            sram: 0.0,
            hidden: if division.sequence_parallel { hidden / division.tp as f64 } else { hidden },
        }
    }
}

fn layer_time(
    machine: &Machine,
    recompute: Recompute,
    s: &Sums,
    comm: &LayerCommunication,
    host_experts: f64,
) -> BlockPass {
    let stack = &machine.stack;
    let none = Exposed::default();
    let [forward_bytes, attention_bytes, backward_bytes] = s.bytes;
    let [core_arithmetic, product_arithmetic, backward_arithmetic] = s.arithmetic;
    let arithmetic = core_arithmetic + product_arithmetic;
    let (again, again_comm, [again_flop, again_arithmetic], again_bytes, again_host) = match recompute {
        // Where nothing is computed backward, nothing is needed again.
        _ if s.backward() == 0.0 => (0.0, none, [0.0; 2], 0.0, 0.0),
        Recompute::None => (0.0, none, [0.0; 2], 0.0, 0.0),
        Recompute::Selective => {
            let (core, products) = (s.forward_attention, s.forward_products);
            match stack.selective {
                Selective::Attention => {
                    (core, none, [s.attention_flop, core_arithmetic], attention_bytes, stack.host_attention_recompute.0)
                }
                // Everything but the attention core and half of the products.
                Selective::HalfOfProducts => (
                    s.forward - core - 0.5 * products,
                    none,
                    [0.5 * (s.forward_flop - s.attention_flop), 0.5 * product_arithmetic],
                    forward_bytes - attention_bytes,
                    stack.host_layer_recompute.0,
                ),
            }
        }
        Recompute::Full => {
            let host = stack.host_layer_recompute.0 + comm.host;
            (s.forward, comm.forward, [s.forward_flop, arithmetic], forward_bytes, host)
        }
    };
    let forward = s.forward + comm.forward.total();
    let backward = s.backward() + comm.backward.total() + again + again_comm.total();
    let host = stack.host_layer_forward.0 + host_experts + comm.host;
    // Of frozen weights there are no gradients: as many operators backward as forward.
    let frozen = s.backward_weight == 0.0;
    let own_backward = match frozen {
        true => stack.host_layer_backward.0.min(stack.host_layer_forward.0),
        false => stack.host_layer_backward.0,
    };
    // Of layers before a head that is trained alone nothing is computed backward.
    let host_backward = if s.backward() > 0.0 { own_backward + host_experts + comm.host + again_host } else { 0.0 };
    let forward_pass = stack.host_and_device(host, forward);
    let backward_pass = stack.host_and_device(host_backward, backward);
    // What the pass would be shorter by without them: less than their own time where the host is slower.
    let without = stack.host_and_device(host_backward, backward - s.backward_weight);
    BlockPass {
        forward: s.forward,
        backward: s.backward(),
        weight: backward_pass - without,
        recompute: again,
        exposed: comm.forward.plus(&comm.backward).plus(&again_comm),
        forward_busy: comm.forward.busy,
        backward_busy: comm.backward.plus(&again_comm).busy,
        host: (forward_pass - forward) + (backward_pass - backward),
        forward_pass,
        backward_pass,
        arithmetic: arithmetic + backward_arithmetic + again_arithmetic,
        flop: s.forward_flop + s.backward_flop + again_flop,
        dram_bytes: forward_bytes + backward_bytes + again_bytes,
        ..BlockPass::default()
    }
}

fn end_time(s: &Sums, forward: Sent, backward: Sent) -> BlockPass {
    let (forward_reduce, backward_reduce) = (forward.seconds, backward.seconds);
    BlockPass {
        forward: s.forward,
        backward: s.backward(),
        weight: s.backward_weight,
        exposed: Exposed {
            tp: forward_reduce + backward_reduce,
            joules: forward.joules + backward.joules,
            ..Exposed::default()
        },
        forward_busy: [forward.carried, 0.0, 0.0],
        backward_busy: [backward.carried, 0.0, 0.0],
        forward_pass: s.forward + forward_reduce,
        backward_pass: s.backward() + backward_reduce,
        arithmetic: s.arithmetic.iter().sum(),
        flop: s.forward_flop + s.backward_flop,
        dram_bytes: s.bytes[0] + s.bytes[2],
        ..BlockPass::default()
    }
}
