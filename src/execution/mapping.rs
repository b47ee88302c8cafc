//! How the kernels of a layer are divided among the chips of a tensor-parallel group and fused: what a software stack has decided, and what the
//! free search decides.
//!
//! A *branch* (attention, perceptron) has a first product, something in between (the core, the function) and a last product. Each product is divided in one of two ways:
//!
//! | [`Sharding`] | a chip has | what travels |
//! |---|---|---|
//! | `weights` | its columns of the first matrix, its rows of the last (Shoeybi et al. 2019, arXiv 1909.08053) | hidden activations: summed at the end, their gradients at the beginning |
//! | `tokens` | its tokens, and the whole matrix while it is at work (Pope et al. 2022, arXiv 2211.05102, section 3.2.3) | the matrix, forward and backward, and its gradient |
//!
//! In between the core has its heads and the function what the first product gives it; where the two sides differ an all-to-all exchanges them (Jacobs et al. 2023, arXiv
//! 2309.14509). At rest a matrix is divided whatever the way, so that weights, gradients and states of a chip are the same.
//!
//! *Fusions* ([`Fusions`]) take vector work into the kernel before it or after it: bytes that are then neither written nor read are not moved, and kernels that are gone are not
//! launched. What a fused kernel still moves travels beside the product it is part of.

use super::activation::AttentionKernel;
use super::communication::hidden_bytes;
use super::layer::Division;
use super::machine::{Machine, Sent, Traffic};
use super::spec::Recompute;
use super::state::StateBytes;
use crate::model::ranks::Group;
use crate::system::stack::Attention;
use crate::workload::language::LanguageModel;

crate::choice! {
    /// What of a product a chip of a tensor-parallel group has.
    pub enum Sharding ("what of a product a chip has") {
        /// A part of the matrix, for all tokens.
        Weights = "weights",
        /// A part of the tokens, for the whole matrix.
        Tokens = "tokens",
    }
}

crate::spec! {
    /// The products of a branch.
    #[derive(Copy, Eq, Hash)]
    pub struct Branch ("how the products of a branch are divided") {
        /// Those that read the hidden activation.
        first: Sharding = Sharding::Weights,
        /// The one that makes it again.
        last: Sharding = Sharding::Weights,
    }
}

impl Branch {
    /// As stacks do.
    pub const WEIGHTS: Self = Self { first: Sharding::Weights, last: Sharding::Weights };

    /// All there are.
    pub const ALL: [Self; 4] = [
        Self::WEIGHTS,
        Self { first: Sharding::Tokens, last: Sharding::Tokens },
        Self { first: Sharding::Weights, last: Sharding::Tokens },
        Self { first: Sharding::Tokens, last: Sharding::Weights },
    ];
}

/// How the attention core runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Core {
    /// As products and vector work.
    Unfused,
    /// By one of the machine's attention kernels.
    Kernel(usize),
}

crate::spec! {
    /// Which vector work is part of another kernel.
    #[derive(Copy, Eq, Hash)]
    pub struct Fusions ("what is fused") {
        /// Queries, keys, values and the core's output are re-ordered, and rotated, by the kernels that make or read them.
        reorder: bool = false,
        /// The perceptron's function by the product before it, its gradient by the product after which it comes backward.
        function: bool = false,
        /// A sum at the end of a branch by the norm that reads it; the sum of gradients by the backward pass of the norm before the branch.
        sums: bool = false,
        /// Gradients of weights are added up by the products that make them.
        accumulation: bool = false,
    }
}

impl Fusions {
    /// None beyond what a stack's own numbers say.
    pub const NONE: Self = Self { reorder: false, function: false, sums: false, accumulation: false };
    /// Everything.
    pub const ALL: Self = Self { reorder: true, function: true, sums: true, accumulation: true };

    /// Those there are, by name.
    pub fn words(self) -> Vec<&'static str> {
        let all = [
            (self.reorder, "re-ordering and rotation"),
            (self.function, "function of the perceptron"),
            (self.sums, "sums with norms"),
            (self.accumulation, "accumulation of gradients"),
        ];
        all.into_iter().filter(|(there, _)| *there).map(|(_, word)| word).collect()
    }
}

/// The decisions of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerMapping {
    /// Products of attention.
    pub attention: Branch,
    /// Products of the perceptron.
    pub perceptron: Branch,
    /// The attention core.
    pub core: Core,
    /// Fusions.
    pub fused: Fusions,
}

impl LayerMapping {
    /// What the stack of a machine does.
    pub fn of_stack(machine: &Machine) -> Self {
        let core = match machine.stack.attention {
            Attention::Unfused => Core::Unfused,
            Attention::Flash => Core::Kernel(0),
        };
        Self { attention: Branch::WEIGHTS, perceptron: Branch::WEIGHTS, core, fused: Fusions::NONE }
    }

    /// Whether every matrix is divided.
    pub fn divides_weights(&self) -> bool {
        self.attention == Branch::WEIGHTS && self.perceptron == Branch::WEIGHTS
    }

    /// The core in the terms of the closed forms of memory.
    pub fn attention_kernel(&self) -> AttentionKernel {
        match self.core {
            Core::Unfused => AttentionKernel::Materialised,
            Core::Kernel(_) => AttentionKernel::Fused,
        }
    }
}

/// Which ways a branch has: tokens may be divided where a layer has two branches of plain products.
pub fn branches(
    model: &LanguageModel,
    division: &Division,
    of_attention: bool,
    with_experts: bool,
) -> &'static [Branch] {
    let plain = !model.parallel_block && if of_attention { model.latent_attention.is_none() } else { !with_experts };
    if division.tp > 1 && plain { &Branch::ALL } else { &Branch::ALL[..1] }
}

/// Sizes of a branch: elements of its matrices, and what a chip has of each side of what is in between, bytes.
struct Sizes {
    first: f64,
    last: f64,
    before: f64,
    after: f64,
}

fn sizes(model: &LanguageModel, division: &Division, of_attention: bool) -> Sizes {
    let t = division.tp as f64;
    let own = division.micro_batch as f64 * model.seq as f64 / division.cp as f64 / t;
    let (h, word) = (model.hidden as f64, model.types.activations.bytes());
    if of_attention {
        let (a, qk, v) = (model.heads as f64, model.query_width() as f64, model.value_width() as f64);
        let (kv, held) = (model.kv_heads() as f64, t * model.key_value_heads(division.tp));
        Sizes {
            first: h * (a * qk + kv * (qk + v)),
            last: h * a * v,
            before: own * (a * qk + held * (qk + v)) * word,
            after: own * a * v * word,
        }
    } else {
        let f = model.ffn() as f64;
        let first = (model.ffn_matrices() - 1) as f64 * h * f;
        Sizes { first, last: h * f, before: own * f * word, after: own * f * word }
    }
}

/// A layer's tensor-parallel collectives: forward, backward, and what backward may run beside products at any time.
pub fn collectives(machine: &Machine, model: &LanguageModel, division: &Division, mapping: &LayerMapping) -> [Sent; 3] {
    let of = |branch, of_attention| branch_collectives(machine, model, division, branch, of_attention);
    let (a, p) = (of(mapping.attention, true), of(mapping.perceptron, false));
    [a[0] + p[0], a[1] + p[1], a[2] + p[2]]
}

/// The same of one branch.
pub fn branch_collectives(
    machine: &Machine,
    model: &LanguageModel,
    division: &Division,
    branch: Branch,
    of_attention: bool,
) -> [Sent; 3] {
    let s = sizes(model, division, of_attention);
    let overhead = machine.stack.collective_overhead.0;
    let at = |traffic, bytes| machine.line(traffic, division.peers(Group::Tensor)).send(bytes, overhead);
    let none = Sent::default();
    let hidden = hidden_bytes(model, division);
    let (reduce, half) = (at(Traffic::AllReduce, hidden), at(Traffic::Gather, hidden));
    // What the hidden activation is outside the branch decides what it costs to have all of it inside.
    let divided = division.sequence_parallel;
    if branch == Branch::WEIGHTS {
        return [reduce, reduce, if divided { Sent { seconds: half.seconds - overhead, ..half } } else { none }];
    }
    // Frozen weights have no gradients to scatter.
    let scatter = |elements: f64| match model.frozen() {
        true => none,
        false => at(Traffic::Gather, elements * StateBytes::training(&model.types).gradients),
    };
    let (mut forward, mut backward, mut beside) = (none, none, none);
    match branch.first {
        Sharding::Weights => {
            forward += if divided { half } else { none };
            backward += if divided { half } else { reduce };
            beside += if divided { half } else { none };
        }
        Sharding::Tokens => {
            let gather = at(Traffic::Gather, s.first * model.types.weights.bytes());
            forward += gather;
            backward += gather + scatter(s.first) + if divided { none } else { half };
        }
    }
    match branch.last {
        Sharding::Weights => {
            forward += if divided { half } else { reduce };
            backward += if divided { half } else { none };
        }
        Sharding::Tokens => {
            let gather = at(Traffic::Gather, s.last * model.types.weights.bytes());
            forward += gather + if divided { none } else { half };
            backward += gather + scatter(s.last);
        }
    }
    let exchanged = match (of_attention, branch.first, branch.last) {
        // The core has heads, whatever the products.
        (true, first, last) => {
            let by = |sharding, bytes| if sharding == Sharding::Tokens { at(Traffic::AllToAll, bytes) } else { none };
            by(first, s.before) + by(last, s.after)
        }
        (false, first, last) if first != last => at(Traffic::AllToAll, s.before),
        _ => none,
    };
    [forward + exchanged, backward + exchanged, beside]
}

/// Bytes that a mapping keeps more (or less) than [`LanguageModel::layer_activation_bytes`] says, and bytes alive besides while a branch is at work.
pub fn more_bytes(
    model: &LanguageModel,
    division: &Division,
    recompute: Recompute,
    mapping: &LayerMapping,
) -> (f64, f64) {
    if mapping.divides_weights() {
        return (0.0, 0.0);
    }
    let hidden = hidden_bytes(model, division);
    let elsewhere = if division.sequence_parallel { 0.0 } else { hidden * (1.0 - 1.0 / division.tp as f64) };
    let state = if model.frozen() { StateBytes::inference } else { StateBytes::training }(&model.types);
    let (mut kept, mut working) = (0.0, 0.0f64);
    for (branch, of_attention) in [(mapping.attention, true), (mapping.perceptron, false)] {
        let s = sizes(model, division, of_attention);
        let is = |sharding| f64::from(u8::from(sharding == Sharding::Tokens));
        // A norm's output is the input of a product that has its own tokens alone.
        kept -= if model.norms() >= 2 { is(branch.first) * elsewhere } else { 0.0 };
        // The core keeps its output by heads, the product by tokens.
        kept += if of_attention { is(branch.last) * s.after } else { 0.0 };
        let whole = is(branch.first) * s.first + is(branch.last) * s.last;
        working = working.max(whole * (state.weights + state.gradients));
    }
    (if recompute == Recompute::Full { 0.0 } else { kept }, working)
}
