//! What the search of executions knows of a block (a layer, the embedding, the head): its pass of one microbatch on one chip, as an *inner search*
//! answers for it.
//!
//! A pass depends on the division of a microbatch, recomputation and overlap of tensor parallelism, and on nothing else of an execution: a search
//! keeps them in a table. There are three inner searches: a *policy*, what a software stack makes of the block ([`super::policy`]); what is *possible* on chips that run
//! kernel by kernel ([`super::possible`]); and on those that fuse the best mapping of the block's graph (`mapping::free`). Weights are not part of a pass: whatever the mapping, each chip of a cut holds its share of them.

use super::communication::Exposed;
use super::layer::Division;
use super::mapping::LayerMapping;
use super::spec::{Execution, Recompute};
use crate::deadline::Deadline;
use crate::plan::Plan;
use std::sync::Arc;

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
                chips: e.chips(),
                micro_batch: e.micro_batch,
                sequence_parallel: e.sequence_parallel,
            },
            recompute: e.recompute,
            overlap_tp: e.overlap_tp,
        }
    }
}

/// Seconds of one block and microbatch, by kind, and bytes that it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BlockPass {
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
    /// Of the forward pass, seconds in which the bytes of tensor, context and expert parallelism keep their links busy: hops leave them free.
    pub forward_busy: [f64; 3],
    /// The same of the backward pass.
    pub backward_busy: [f64; 3],
    /// What the host adds.
    pub host: f64,
    /// Seconds of the forward pass with everything.
    pub forward_pass: f64,
    /// Seconds of the backward pass with everything, computing again included.
    pub backward_pass: f64,
    /// Seconds of products and attention cores alone, whatever they wait for memory, all passes.
    pub arithmetic: f64,
    /// FLOP of all passes.
    pub flop: f64,
    /// Bytes from and to the chip's memory, all passes.
    pub dram_bytes: f64,
    /// Bytes kept for the backward pass.
    pub kept: f64,
    /// Bytes alive while the backward pass is in it, beyond `kept`.
    pub working: f64,
    /// How its kernels are divided and fused, where it is a layer that runs kernel by kernel.
    pub mapping: Option<LayerMapping>,
}

impl BlockPass {
    /// Both passes.
    pub fn total(&self) -> f64 {
        self.forward_pass + self.backward_pass
    }
}

/// The passes of a model's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Blocks {
    /// A layer with a plain perceptron.
    pub plain: BlockPass,
    /// A layer with experts.
    pub experts: BlockPass,
    /// The embedding.
    pub embedding: BlockPass,
    /// The head.
    pub head: BlockPass,
    /// Bytes handed to the next stage.
    pub hand_over: f64,
    /// Bytes of one hidden activation on a chip.
    pub hidden: f64,
    /// Bytes of SRAM that its partitions fill at most, where the memory is on chip.
    pub sram: f64,
}

impl Blocks {
    /// The same where their collectives leave all links to others.
    pub fn idle(self) -> Self {
        let idle = |pass: BlockPass| BlockPass { forward_busy: [0.0; 3], backward_busy: [0.0; 3], ..pass };
        Self {
            plain: idle(self.plain),
            experts: idle(self.experts),
            embedding: idle(self.embedding),
            head: idle(self.head),
            ..self
        }
    }
}

/// An answer of an inner search.
#[derive(Debug, Clone)]
pub struct Best {
    /// The passes of its mapping.
    pub blocks: Blocks,
    /// Passes that no mapping of the space it searched is faster than, and bytes that none keeps less than.
    pub least: Blocks,
    /// The effort that was taken, where more may find a faster one or bring `least` closer.
    pub effort: Option<u32>,
    /// The mapping, where it is one of a graph.
    pub plan: Option<Arc<Plan>>,
}

/// Which decisions of an execution an inner search has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Sequence parallelism and overlap of tensor parallelism as decisions of the execution.
    pub divides: bool,
    /// Whether bounds are answers, so that nothing is saved by looking at them first.
    pub exact: bool,
}

impl Space {
    /// Why an execution is none of the space, its degrees on the network apart.
    pub fn refuses(self, e: &Execution) -> Option<String> {
        let asked = [
            ("sequence_parallel", e.sequence_parallel, "the sharding of the graph decides it"),
            ("overlap_tp", e.overlap_tp, "collectives of a graph overlap as the system's `overlap` says"),
        ];
        let (decision, _, why) = asked.into_iter().find(|(_, asked, _)| *asked && !self.divides)?;
        Some(format!("{decision}: the free search has no such decision: {why}"))
    }
}

/// The effort that the blocks of one execution are worth, a given one or the best of a search.
pub const FOR_ONE: u32 = 2;

/// What answers for blocks.
pub trait Inner {
    /// Passes that no mapping of the blocks comes below, in any component.
    fn bound(&self, key: &BlockKey) -> Blocks;
    /// Passes about as long as those of a good mapping, and no bound: for the order of the search. `None` where bounds are as good.
    fn guess(&self, _: &BlockKey) -> Option<Blocks> {
        None
    }
    /// The same as [`Self::bound`] where times do not matter.
    fn held(&self, key: &BlockKey) -> Blocks {
        self.bound(key)
    }
    /// Mappings of blocks of which the bound is known, one of which is the best of the space whatever else an execution decides: fastest or, where others keep
    /// less, those too. Empty where there is none, or no time for it. With at least so much effort, from 0 on.
    ///
    /// # Errors
    /// A sentence: the search failed.
    fn best(&self, key: &BlockKey, bound: &Blocks, effort: u32, deadline: Deadline) -> Result<Vec<Best>, String>;
    /// The best of the mappings that keep parts of what waits for the backward pass, where an execution does not fit by those of [`Self::best`]; empty where there is no other.
    ///
    /// # Errors
    /// A sentence: the search failed.
    fn keeping_least(&self, _: &BlockKey, _: u32, _: Deadline) -> Result<Vec<Best>, String> {
        Ok(Vec::new())
    }
    /// Whether the effort of its mappings is used up, where nobody has set a time and the best is so near to its bound, as a share.
    fn is_spent(&self, _: f64) -> bool {
        false
    }
    /// Which decisions it has.
    fn space(&self) -> Space;
}
