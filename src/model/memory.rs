//! What the DRAM beside a chip must hold.

use super::compute::{Tiling, extra_dram_share, gradient_bytes, tensor_bytes, weight_bytes};
use super::layout::{Strategy, produced, required};
use crate::graph::{Op, Phase, Tensor, Use, Workload};
use crate::system::ModelOptions;
use crate::system::options::MemoryState;
use serde::Serialize;

/// Bytes on one chip, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct DramNeed {
    /// Weights of the stage's layers.
    pub weights: f64,
    /// Their gradients.
    pub gradients: f64,
    /// Optimiser states.
    pub optimizer: f64,
    /// Activations kept from forward to backward, all microbatches in flight.
    pub activations: f64,
    /// The chip's share of what all chips hold through the run: embedding tables, the matrix of HPL.
    pub held: f64,
    /// Caches that stay from one iteration to the next (keys and values of the tokens before), all samples of a replica.
    pub caches: f64,
    /// Most bytes of tensors of the layer at work that wait between partitions.
    pub live: f64,
}

impl DramNeed {
    /// The sum.
    pub fn total(&self) -> f64 {
        self.weights + self.gradients + self.optimizer + self.activations + self.held + self.caches + self.live
    }
}

/// Bytes of optimiser state for one weight: Adam's two moments in 32 bits, and a 32-bit master copy where weights are
/// held in fewer (Rajbhandari et al., ZeRO, SC 2020, section 3.1: K = 12).
pub fn optimizer_bytes_per_weight(word: f64) -> f64 {
    if word < 4.0 { 12.0 } else { 8.0 }
}

/// What one layer asks of the DRAM of one chip, and what a chip holds whatever its layers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerNeed {
    /// Bytes of weights.
    pub weights: f64,
    /// Bytes of their gradients.
    pub gradients: f64,
    /// Bytes of optimiser states for one byte of weights.
    pub optimizer_share: f64,
    /// Bytes of caches, all samples of a replica.
    pub caches: f64,
    /// Bytes of activations kept from forward to backward for one microbatch.
    pub kept: f64,
    /// Bytes that a chip holds whatever its layers.
    pub held: f64,
}

impl LayerNeed {
    /// Bytes on a chip whose stage has `layers` layers and holds the activations of `in_flight` microbatches, without the
    /// live tensors, among which one layer's activations of one microbatch are counted.
    pub fn of_stage(&self, layers: u64, in_flight: u64) -> DramNeed {
        let n = layers as f64;
        let weights = self.weights * n + 0.0;
        DramNeed {
            weights,
            gradients: self.gradients * n,
            optimizer: weights * self.optimizer_share,
            activations: self.kept * (n * in_flight as f64 - 1.0).max(0.0),
            held: self.held,
            caches: self.caches * n,
            live: 0.0,
        }
    }
}

/// Bytes on a chip whose stage has units of blocks: of each what a unit asks for, the most bytes that wait while one is at
/// work, and how many there are. One unit is at work at a time: its activations of one microbatch are among what waits, and
/// the fullest moment is that of the block for which what waits exceeds those most.
pub fn of_units(units: impl Iterator<Item = (LayerNeed, f64, u64)>, in_flight: u64) -> DramNeed {
    let mut out = DramNeed::default();
    let mut at_work: Option<(f64, f64)> = None;
    for (need, live, n) in units.filter(|(_, _, n)| *n > 0) {
        let n = n as f64;
        let weights = need.weights * n;
        out.held = need.held;
        out.weights += weights;
        out.gradients += need.gradients * n;
        out.optimizer += weights * need.optimizer_share;
        out.caches += need.caches * n;
        out.activations += need.kept * (n * in_flight as f64);
        if at_work.is_none_or(|(kept, most)| live - need.kept > most - kept) {
            at_work = Some((need.kept, live));
        }
    }
    let (kept, live) = at_work.unwrap_or((0.0, 0.0));
    DramNeed { activations: (out.activations - kept).max(0.0), live, ..out }
}

/// The backward kernels that read what the forward pass of the repetition or block before handed on; none of other tensors. A tensor
/// that only backward kernels read is a gradient, which is handed on in the backward pass and kept by nobody.
pub fn kept_readers<'a>(workload: &'a Workload, tensor: &'a Tensor) -> impl Iterator<Item = &'a Use> {
    let backward = |u: &&Use| workload.kernels[u.kernel].phase != Phase::Forward;
    let made_before = match tensor.carried_from {
        Some(from) => workload.tensors[from].producer.is_none_or(|p| workload.kernels[p].phase == Phase::Forward),
        None => tensor.handed_on && tensor.consumers.iter().any(|u| !backward(&u)),
    };
    tensor.consumers.iter().filter(move |u| tensor.producer.is_none() && made_before && backward(u))
}

/// What one layer asks of one chip of `chips`; which microbatches wait is for the stage to say ([`super::stages`]).
///
/// Activations: the tensors made in the forward pass and read in a backward one, as they are made; and what the repetition or the block
/// before handed on, where a backward kernel reads it, in the widest layout that one wants. Caches: those of every sample of a replica,
/// which all wait for the next iteration.
pub fn of_layer(
    workload: &Workload,
    options: &ModelOptions,
    sharding: &[Strategy],
    (t, dp): (u64, u64),
    chips: u64,
) -> LayerNeed {
    let word = workload.word_bytes;
    let full = options.memory_state == MemoryState::Full;
    let weights: f64 = workload
        .kernels
        .iter()
        .zip(sharding)
        // DFModel counts the weight of an input-gradient kernel as one of its own.
        .filter(|(k, _)| k.op == Op::GemmWeight && (!full || k.weight_of.is_none()))
        .map(|(k, s)| weight_bytes(k, *s, t, word))
        .sum();
    // A sum over nothing is -0.0.
    let mut need =
        LayerNeed { weights: weights + 0.0, held: workload.held_bytes / chips as f64, ..LayerNeed::default() };
    if full {
        let caches: f64 =
            workload.kernels.iter().zip(sharding).map(|(k, s)| k.cache_bytes / extra_dram_share(k, *s, t)).sum();
        need.caches = (caches + 0.0) * workload.global_batch.div_ceil(dp.max(1)) as f64;
    }
    if !(full && workload.training) {
        return need;
    }
    let gradients: f64 = workload.kernels.iter().zip(sharding).map(|(k, s)| gradient_bytes(k, *s, t, word)).sum();
    need.gradients = gradients + 0.0;
    need.optimizer_share = optimizer_bytes_per_weight(word) / word;
    let kept: f64 = workload
        .tensors
        .iter()
        .filter_map(|tensor| {
            let bytes = |layout| tensor_bytes(tensor, layout, t, Tiling::WHOLE, word).0;
            let Some(producer) = tensor.producer else {
                let wanted = kept_readers(workload, tensor)
                    .map(|u| bytes(required(&workload.kernels[u.kernel], u.slot, sharding[u.kernel], options.layouts)));
                return wanted.reduce(f64::max);
            };
            let forward = workload.kernels[producer].phase == Phase::Forward;
            let read_later = tensor.consumers.iter().any(|u| workload.kernels[u.kernel].phase != Phase::Forward);
            (forward && read_later).then(|| bytes(produced(sharding[producer], options.layouts)))
        })
        .sum();
    need.kept = (kept + 0.0) * workload.micro_batch as f64;
    need
}
