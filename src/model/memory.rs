//! What the DRAM beside a chip must hold.

use super::compute::{extra_dram_share, gradient_bytes, tensor_bytes, weight_bytes};
use super::layout::{Strategy, produced};
use crate::system::ModelOptions;
use crate::system::options::MemoryState;
use crate::workload::{Op, Phase, Workload};
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

/// Bytes on one chip of `chips`, without the live tensors (which depend on the partitions).
///
/// Weights, gradients and states: those of the stage's layers. Activations: the tensors made in the forward pass and read
/// in a backward one, for each layer of the stage and each microbatch in flight; 1F1B holds up to min(PP,
/// microbatches) of them on the first stage (Narayanan et al., SC 2021). One layer's worth of one microbatch is
/// counted with the live tensors instead. Caches: those of every sample of a replica, which all wait for the next iteration.
pub fn resident(
    workload: &Workload,
    options: &ModelOptions,
    sharding: &[Strategy],
    (t, dp): (u64, u64),
    layers_per_stage: u64,
    in_flight: u64,
    chips: u64,
) -> DramNeed {
    let word = workload.word_bytes;
    let layers = layers_per_stage as f64;
    let full = options.memory_state == MemoryState::Full;
    let layer_weights: f64 = workload
        .kernels
        .iter()
        .zip(sharding)
        // DFModel counts the weight of an input-gradient kernel as one of its own.
        .filter(|(k, _)| k.op == Op::GemmWeight && (!full || k.weight_of.is_none()))
        .map(|(k, s)| weight_bytes(k, *s, t, word))
        .sum();
    let held = workload.held_bytes / chips as f64;
    // A sum over nothing is -0.0.
    let mut need = DramNeed { weights: layer_weights * layers + 0.0, held, ..DramNeed::default() };
    if full {
        let layer_caches: f64 =
            workload.kernels.iter().zip(sharding).map(|(k, s)| k.cache_bytes / extra_dram_share(k, *s, t)).sum();
        need.caches = layer_caches * layers * workload.global_batch.div_ceil(dp.max(1)) as f64;
    }
    if !(full && workload.training) {
        return need;
    }
    let layer_gradients: f64 = workload.kernels.iter().zip(sharding).map(|(k, s)| gradient_bytes(k, *s, t, word)).sum();
    need.gradients = layer_gradients * layers;
    need.optimizer = need.weights / word * optimizer_bytes_per_weight(word);
    let kept: f64 = workload
        .tensors
        .iter()
        .filter_map(|tensor| {
            let producer = tensor.producer.filter(|p| workload.kernels[*p].phase == Phase::Forward)?;
            let read_later = tensor.consumers.iter().any(|u| workload.kernels[u.kernel].phase != Phase::Forward);
            read_later.then(|| {
                let layout = produced(sharding[producer], options.layouts);
                tensor_bytes(tensor, layout, t, 1, word).0
            })
        })
        .sum();
    let copies = (layers * in_flight as f64 - 1.0).max(0.0);
    need.activations = kept * workload.micro_batch as f64 * copies;
    need
}
