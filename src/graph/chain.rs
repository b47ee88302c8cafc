//! Graphs of several blocks, each repeated by itself: embedding, layers, head.
//!
//! A workload is one graph of kernels and tensors. Each kernel belongs to a block; block i is repeated R_i times before block
//! i + 1 begins, and the backward pass goes the other way. What one repetition hands to the next is carried, as in a graph
//! of one block; where a block begins, the same tensor comes from the block before: it has a producer there *and* is
//! `carried_from` a tensor of its own block. So the layout that a block hands over is tied to the one that is read, by the same
//! links as inside it.
//!
//! Rules, so that every repetition can be on a chip of its own pipeline stage and what it needs is handed on by its neighbours:
//! 1. a tensor that crosses blocks goes to the next block (made in the forward pass) or to the one before (made in the
//!    backward pass), and is read in the pass that made it; what the forward pass handed on the next block's backward pass may read again;
//! 2. made in a block that is repeated, it is what that block carries; read in a block that is repeated, it is carried there;
//! 3. a backward kernel has the weight of a kernel of its own block (an embedding tied to the head is not expressed).

use super::{GraphError, Phase, Tensor, Use, WeightOf, Workload};

/// Most repetitions of all blocks together: their division among stages grows with the square.
pub const MOST_UNITS: u64 = 1024;

impl Workload {
    /// Whether it has several blocks.
    pub fn is_chain(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Blocks, at least one.
    pub fn block_count(&self) -> usize {
        self.blocks.len().max(1)
    }

    /// Repetitions of a block.
    pub fn repeats(&self, block: usize) -> u64 {
        self.blocks.get(block).map_or(self.repeat, |b| b.repeat)
    }

    /// A block by itself: its kernels, and of the tensors what they make and read. What comes from other blocks is an input,
    /// what goes to them an output. Gives the kernels' indices in the whole graph too.
    pub fn of_block(&self, block: usize) -> (Self, Vec<usize>) {
        let kept: Vec<usize> = (0..self.kernels.len()).filter(|k| self.kernels[*k].block == block).collect();
        let index = |k: usize| kept.binary_search(&k).ok();
        let kernels = kept
            .iter()
            .map(|k| {
                let mut kernel = self.kernels[*k].clone();
                kernel.block = 0;
                kernel.weight_of = kernel.weight_of.and_then(|w| index(w.kernel)).map(|kernel| WeightOf { kernel });
                kernel
            })
            .collect();
        let mut place = vec![None; self.tensors.len()];
        let mut tensors: Vec<Tensor> = Vec::new();
        for (id, tensor) in self.tensors.iter().enumerate() {
            let inside = tensor.consumers.iter().filter_map(|u| index(u.kernel).map(|kernel| Use { kernel, ..*u }));
            let consumers: Vec<Use> = inside.collect();
            let producer = tensor.producer.and_then(index);
            if producer.is_none() && consumers.is_empty() {
                continue;
            }
            let leaves = producer.is_some() && consumers.len() < tensor.consumers.len();
            let output = producer.is_some() && (tensor.output || leaves);
            let carried_from = tensor.carried_from.filter(|_| !consumers.is_empty());
            place[id] = Some(tensors.len());
            let handed_on = tensor.producer.is_some() && producer.is_none();
            tensors.push(Tensor { producer, consumers, output, carried_from, handed_on, ..tensor.clone() });
        }
        for tensor in &mut tensors {
            tensor.carried_from = tensor.carried_from.and_then(|from| place[from]);
        }
        let name = self.blocks.get(block).map_or(self.name.clone(), |b| b.name.clone());
        (Self { name, kernels, tensors, repeat: self.repeats(block), blocks: Vec::new(), ..self.clone() }, kept)
    }

    /// What keeps the blocks from being a chain.
    pub(super) fn chain_faults(&self) -> Vec<GraphError> {
        if !self.is_chain() {
            return Vec::new();
        }
        let mut out = Vec::new();
        let fault = |kernel: Option<usize>, message: String| GraphError::Chain {
            kernel: kernel.map_or(String::new(), |k| self.kernels[k].name.clone()),
            message,
        };
        let name = |k: usize| self.kernels[k].name.as_str();
        let block = |k: usize| self.kernels[k].block;
        let forward = |k: usize| self.kernels[k].phase == Phase::Forward;
        if self.repeat > MOST_UNITS {
            let message = format!("the blocks have {} repetitions, expected at most {MOST_UNITS}", self.repeat);
            out.push(GraphError::Chain { kernel: String::new(), message });
        }
        for (i, b) in self.blocks.iter().enumerate() {
            if self.kernels.iter().all(|k| k.block != i || k.phase != Phase::Forward) {
                out.push(fault(None, format!("block {:?} has no kernel in the forward pass", b.name)));
            }
        }
        for (k, kernel) in self.kernels.iter().enumerate() {
            if let Some(owner) = kernel.weight_of.filter(|w| block(w.kernel) != block(k)) {
                let message = format!(
                    "kernel {:?} has the weight of {:?}, which is in another block",
                    kernel.name,
                    name(owner.kernel)
                );
                out.push(fault(Some(k), message));
            }
        }
        for (id, tensor) in self.tensors.iter().enumerate() {
            let Some(from) = tensor.producer else {
                let first = tensor.consumers.first().map(|u| block(u.kernel));
                if tensor.consumers.iter().any(|u| Some(block(u.kernel)) != first) {
                    let message = format!("input {:?} is read by several blocks", tensor.name);
                    out.push(fault(tensor.consumers.first().map(|u| u.kernel), message));
                }
                continue;
            };
            for u in tensor.consumers.iter().filter(|u| block(u.kernel) != block(from)) {
                let next = if forward(from) { block(from).checked_add(1) } else { block(from).checked_sub(1) };
                // What the forward pass of a block was handed its backward pass may read again.
                let kept = forward(from)
                    && tensor.consumers.iter().any(|v| forward(v.kernel) && block(v.kernel) == block(u.kernel));
                if Some(block(u.kernel)) != next || (forward(from) != forward(u.kernel) && !kept) {
                    let message = format!(
                        "kernel {:?} reads {:?} of {:?}: between blocks a tensor goes forward to the next block, or backward to the \
                         one before",
                        name(u.kernel),
                        tensor.name,
                        name(from)
                    );
                    out.push(fault(Some(u.kernel), message));
                }
                let is_carried = self.tensors.iter().any(|t| t.carried_from == Some(id));
                if self.repeats(block(from)) > 1 && !is_carried {
                    let message = format!(
                        "{:?} goes from a repeated block to another, but not from one repetition to the next",
                        tensor.name
                    );
                    out.push(fault(Some(from), message));
                }
                let carried_here = tensor.carried_from.and_then(|t| self.tensors[t].producer).map(block);
                if self.repeats(block(u.kernel)) > 1 && carried_here != Some(block(u.kernel)) {
                    let message = format!(
                        "{:?} comes from another block to a repeated one, but its next repetition does not carry it",
                        tensor.name
                    );
                    out.push(fault(Some(u.kernel), message));
                }
            }
        }
        out
    }
}
