//! The kernel / tensor graph of one layer (or other repeated unit): what everything else computes on.
//!
//! A kernel computes an output of `outer * m` rows and `n` columns; a GEMM contracts over `k`. The columns are the
//! streamed dimension (tokens, pixels): tiles are cut from them, except for kernels that are tiled along `k` (weight
//! gradients, which contract over the tokens). All sizes are those of one sample on one chip, before sharding.
//!
//! [`kernel`], [`tensor`] and [`collective`] are its parts, [`checked`] orders and checks it, [`adjoint`] writes the backward pass of a forward one,
//! [`recompute`] lets it make tensors again, [`chain`] has graphs of several blocks, [`grid`] a chip's share on a process grid, [`unroll`] writes repetitions out. Where graphs come from: `workload`, `trace`.

pub mod adjoint;
pub mod chain;
pub mod checked;
pub mod collective;
pub mod grid;
pub mod kernel;
pub mod recompute;
pub mod tensor;
pub mod unroll;

pub use checked::GraphError;
pub use collective::{Collective, CollectiveKind, Scope};
pub use grid::Spread;
pub use kernel::{Axis, Kernel, Op, Phase, Shape, WeightOf};
pub use tensor::{Slot, Tensor, Use, operand_size};

use serde::Serialize;

/// A part of a graph that is repeated by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Its name.
    pub name: String,
    /// Its repetitions.
    pub repeat: u64,
}

/// A checked workload: its graph is acyclic and every index is valid.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Workload {
    /// Name for rows and titles.
    pub name: String,
    /// Kernels in a topological order.
    pub kernels: Vec<Kernel>,
    /// Tensors.
    pub tensors: Vec<Tensor>,
    /// How many identical copies follow each other (layers); where there are blocks, the sum of theirs.
    pub repeat: u64,
    /// Blocks of the chain that the graph is (embedding, layers, head), in the order of the forward pass ([`mod@chain`]);
    /// none where the whole graph is repeated.
    pub blocks: Vec<Block>,
    /// Bytes of one element, of those tensors and kernels that state none of their own.
    pub word_bytes: f64,
    /// Samples of one iteration.
    pub global_batch: u64,
    /// Samples of one microbatch.
    pub micro_batch: u64,
    /// Whether weights are updated: gradients are reduced over DP, optimiser states held.
    pub training: bool,
    /// Tokens of one sample, for figures by token; `None` where a sample has none.
    pub tokens_per_sample: Option<u64>,
    /// Bytes that all chips together hold through the run beside weights: embedding tables, the matrix of HPL.
    pub held_bytes: f64,
    /// What must be divided among the chips of a tensor-parallel group.
    pub divided: Divided,
}

/// What must not lie whole on each chip of a tensor-parallel group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Divided {
    /// Nothing: all may be either.
    Free,
    /// What a layer hands to the next: no reader of it has it whole.
    HandedOver,
    /// What is kept for the backward pass, wherever a strategy of its producer divides it.
    Kept,
}

impl Workload {
    /// Whether some kernel belongs to the backward pass.
    pub fn has_backward(&self) -> bool {
        self.kernels.iter().any(|k| k.phase != Phase::Forward)
    }

    /// FLOP of one iteration: all kernels, all layers, all samples, unsharded.
    pub fn flop_per_iteration(&self) -> f64 {
        if self.is_chain() {
            let all: f64 = self.kernels.iter().map(|k| k.flop() * self.repeats(k.block) as f64).sum();
            return all * self.global_batch as f64;
        }
        let layer: f64 = self.kernels.iter().map(Kernel::flop).sum();
        layer * self.repeat as f64 * self.global_batch as f64
    }

    /// Length of the longest chain of kernels of its block before each kernel (its level). DFModel's Kahn rounds.
    pub fn levels(&self) -> Vec<usize> {
        let mut level = vec![0usize; self.kernels.len()];
        let mut made: Vec<Vec<usize>> = vec![Vec::new(); self.kernels.len()];
        for (t, tensor) in self.tensors.iter().enumerate() {
            if let Some(k) = tensor.producer {
                made[k].push(t);
            }
        }
        for k in 0..self.kernels.len() {
            for u in made[k].iter().flat_map(|t| &self.tensors[*t].consumers) {
                if self.kernels[u.kernel].block == self.kernels[k].block {
                    level[u.kernel] = level[u.kernel].max(level[k] + 1);
                }
            }
        }
        level
    }

    /// Index of the kernel called `name`.
    pub fn kernel_index(&self, name: &str) -> Option<usize> {
        self.kernels.iter().position(|k| k.name == name)
    }

    /// Tensors made inside the graph and read inside it: DFModel's edges, each tensor once.
    pub fn internal_tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|t| t.producer.is_some() && !t.consumers.is_empty())
    }

    /// Producer-consumer pairs inside the graph (DFModel's connections).
    pub fn edges(&self) -> usize {
        self.internal_tensors().map(|t| t.consumers.len()).sum()
    }

    /// Bytes of one sample that pass from one layer to the next (forward and, in training, back): what a pipeline
    /// stage sends to its neighbour.
    pub fn carried_bytes(&self) -> f64 {
        self.tensors.iter().filter(|t| t.carried_from.is_some()).map(|t| t.bytes(self.word_bytes)).sum()
    }
}
