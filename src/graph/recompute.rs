//! Recomputation: a training graph whose backward pass makes some tensors of the forward pass once more instead of having them kept.
//!
//! A kernel that is run again is a copy of the forward kernel in the phase [`Phase::Recompute`]. It reads what the forward kernel reads, or copies of
//! that, and what backward kernels of its block read of the forward kernel they read of the copy. Copies whose results nobody reads are left
//! out. The tensors that cross from the forward pass to any other phase are what is kept, as in every graph.

use super::{Kernel, Op, Phase, Tensor, Use, WeightOf, Workload};

impl Workload {
    /// The forward kernels of blocks that hand on what they are handed: of layers, not of what comes before and after them.
    pub fn layer_kernels(&self) -> Vec<bool> {
        let carries = |block: usize| {
            let reads = |t: &Tensor| t.consumers.iter().any(|u| self.kernels[u.kernel].block == block);
            self.tensors.iter().any(|t| t.carried_from.is_some() && reads(t))
        };
        let blocks: Vec<bool> = (0..self.block_count()).map(carries).collect();
        self.kernels.iter().map(|k| k.phase == Phase::Forward && blocks.get(k.block) == Some(&true)).collect()
    }

    /// Of the layers' forward kernels those from one product of two tensors to the next, the last apart: the core of attention, whose results grow with
    /// the square of the tokens.
    pub fn core_kernels(&self) -> Vec<bool> {
        let layers = self.layer_kernels();
        let is_pair = |k: usize| layers[k] && self.kernels[k].op == Op::Gemm;
        let (mut after, mut before) = (vec![false; self.kernels.len()], vec![false; self.kernels.len()]);
        let read = |k: usize| self.tensors.iter().filter(move |t| t.consumers.iter().any(|u| u.kernel == k));
        let made = |k: usize| self.tensors.iter().filter(move |t| t.producer == Some(k));
        let readers = |k: usize| made(k).flat_map(|t| t.consumers.iter().map(|u| u.kernel)).filter(|r| layers[*r]);
        let forward: Vec<usize> = (0..layers.len()).filter(|k| layers[*k]).collect();
        for &k in &forward {
            after[k] = is_pair(k) || read(k).filter_map(|t| t.producer).any(|p| layers[p] && after[p]);
        }
        for &k in forward.iter().rev() {
            before[k] = readers(k).any(|r| is_pair(r) || before[r]);
        }
        (0..layers.len()).map(|k| layers[k] && after[k] && before[k]).collect()
    }

    /// The graph whose backward pass runs the forward kernels marked in `again` once more. Kernels must be in a topological order; those of the
    /// result are not ([`Workload::checked`] puts them in one).
    pub fn recomputed(mut self, again: &[bool]) -> Self {
        let kernels = self.kernels.len();
        let is_back = |of: &Self, u: &Use, k: usize| {
            let reader = &of.kernels[u.kernel];
            reader.phase != Phase::Forward && reader.block == of.kernels[k].block
        };
        // A copy is needed where the backward pass, or a copy that is needed, reads it.
        let mut needed = vec![false; kernels];
        for k in (0..kernels).rev().filter(|k| again[*k]) {
            let mut made = self.tensors.iter().filter(|t| t.producer == Some(k)).flat_map(|t| &t.consumers);
            needed[k] = made.any(|u| is_back(&self, u, k) || needed[u.kernel]);
        }
        let mut copy = vec![None; kernels];
        for k in (0..kernels).filter(|k| needed[*k]) {
            let own = self.kernels[k].owns_weight().then_some(WeightOf { kernel: k });
            let name = format!("{}_again", self.kernels[k].name);
            copy[k] = Some(self.kernels.len());
            let phase = Phase::Recompute;
            self.kernels.push(Kernel { name, phase, weight_of: own, cache_bytes: 0.0, ..self.kernels[k].clone() });
        }
        for t in 0..self.tensors.len() {
            let tensor = &self.tensors[t];
            let copies = tensor.consumers.iter().filter_map(|u| copy[u.kernel].map(|kernel| Use { kernel, ..*u }));
            let copies: Vec<Use> = copies.collect();
            let Some((producer, k)) = tensor.producer.and_then(|p| copy[p].map(|c| (c, p))) else {
                self.tensors[t].consumers.extend(copies);
                continue;
            };
            let (back, others): (Vec<Use>, Vec<Use>) = tensor.consumers.iter().partition(|u| is_back(&self, u, k));
            // A copy in the next block reads what this block handed on, not what is made again here.
            let inside = |u: &Use| self.kernels[u.kernel].block == self.kernels[k].block;
            let (near, far): (Vec<Use>, Vec<Use>) = copies.into_iter().partition(inside);
            let made = Tensor {
                name: format!("{}_again", tensor.name),
                producer: Some(producer),
                consumers: back.into_iter().chain(near).collect(),
                output: false,
                carried_from: None,
                ..tensor.clone()
            };
            self.tensors[t].consumers = others.into_iter().chain(far).collect();
            self.tensors.push(made);
        }
        self
    }
}
