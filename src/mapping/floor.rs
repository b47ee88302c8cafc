//! What the blocks of a language model's graph take at least, whatever their mapping: all arithmetic divided evenly, weights streamed once, gradients of weights loaded and stored, what kernels move beside tensors, what crosses the border of a pass moved once, and what their sharding costs ([`super::floor_sharded`]). Sums of a graph,
//! made once, of which each cut is a multiple.

use super::free::{pass_of, whole_of};
use super::instance::combine;
use crate::execution::block::{BlockPass, Blocks};
use crate::execution::layer::Division;
use crate::graph::{Kernel, Phase, Slot, Tensor, Workload};
use crate::model::Strategy;
use crate::model::compute::moved_bytes;
use crate::model::memory::kept_readers;
use crate::model::rate::Rate;
use crate::system::options::WeightTraffic;
use crate::system::{Overlap, System};
use crate::workload::language::is_gathering;

/// Of a pass of a block.
#[derive(Default)]
struct OfPass {
    /// Whether it has kernels.
    is_there: bool,
    /// Seconds of arithmetic of one sample on one chip.
    arithmetic: f64,
    /// Bytes of weights and, twice, of their gradients, of all chips.
    weights: f64,
    /// Bytes of one sample that come from or go to other passes and blocks, and that kernels move beside tensors and weights.
    crossing: f64,
    /// Bytes of one sample that each kernel gathers among replicas, or adds up.
    gathered: Vec<f64>,
}

/// Of a block.
struct OfBlock {
    name: String,
    /// Forward, backward.
    passes: [OfPass; 2],
    /// FLOP of products of one sample.
    flop: f64,
    /// Bytes of one sample that are kept for the backward pass.
    kept: f64,
}

/// Of a graph.
pub(super) struct Floor {
    blocks: Vec<OfBlock>,
    /// Bytes of one sample that a stage hands to the next.
    handed: f64,
    overlap: Overlap,
    dram_bytes_per_s: f64,
    launch_s: f64,
}

impl Floor {
    /// Of a graph on the chips of a system.
    pub(super) fn of(w: &Workload, system: &System) -> Self {
        let rate = Rate::of(w, system);
        let is_streamed = system.model.weight_traffic == WeightTraffic::Streamed;
        // As on one chip: no sharding divides them among more chips than the group has.
        let moved = |k: &Kernel| {
            let (weight, gradient) = moved_bytes(k, Strategy::Replicate, 1, w.word_bytes);
            if is_streamed { weight + 2.0 * gradient } else { 0.0 }
        };
        let of = |b: usize| {
            let own = || w.kernels.iter().enumerate().filter(move |(_, k)| k.block == b);
            let pass = |forward: bool| {
                let here = || own().filter(|(_, k)| (k.phase == Phase::Forward) == forward);
                let gathering = here().filter(|(_, k)| is_gathering(k));
                OfPass {
                    is_there: here().next().is_some(),
                    arithmetic: here().map(|(_, k)| rate.least_seconds(k)).sum(),
                    weights: here().map(|(_, k)| moved(k)).sum(),
                    crossing: crossing(w, b, forward) + here().map(|(_, k)| k.extra_dram_bytes).sum::<f64>(),
                    gathered: gathering.filter_map(|(k, _)| whole_of(w, k)).map(|t| t.bytes(w.word_bytes)).collect(),
                }
            };
            let kept = w.tensors.iter().filter(|tensor| match tensor.producer.map(|p| &w.kernels[p]) {
                Some(p) => p.phase == Phase::Forward && is_kept(w, tensor, b),
                None => kept_readers(w, tensor).any(|u| w.kernels[u.kernel].block == b),
            });
            OfBlock {
                name: w.blocks[b].name.clone(),
                passes: [pass(true), pass(false)],
                flop: own().map(|(_, k)| k).filter(|k| k.is_gemm()).map(Kernel::flop).sum(),
                kept: kept.map(|tensor| tensor.bytes(w.word_bytes)).sum(),
            }
        };
        let blocks = (0..w.blocks.len()).map(of).collect();
        let carried = w.tensors.iter().filter(|t| t.carried_from.is_some() && !t.consumers.is_empty());
        let handed = carried.map(|tensor| tensor.bytes(w.word_bytes)).fold(0.0, f64::max);
        let (dram_bytes_per_s, launch_s) = (rate.dram_bytes_per_s, rate.launch_s);
        Self { blocks, handed, overlap: system.overlap(), dram_bytes_per_s, launch_s }
    }

    /// Of a cut whose sharding costs so much a sample and pass of each block ([`super::floor_sharded`]), and where replicas gather so many bytes on a chip in `gathering` seconds. Every chip has its part of what is
    /// gathered at least.
    pub(super) fn at(&self, division: &Division, sharded: &[[f64; 2]], gathering: &dyn Fn(f64) -> f64) -> Blocks {
        let (samples, t) = (division.micro_batch as f64, division.tp as f64);
        let mut out = Blocks { hand_over: self.handed * samples / t, ..Blocks::default() };
        for (block, sharded) in self.blocks.iter().zip(sharded) {
            let [ahead, back] = &block.passes;
            let arithmetic = |pass: &OfPass| pass.arithmetic * samples / t;
            let streamed = |pass: &OfPass| (pass.weights + pass.crossing * samples) / t;
            let seconds = |pass: &OfPass, sharded: f64| {
                let launch = if pass.is_there { self.launch_s } else { 0.0 };
                let dram = streamed(pass) / self.dram_bytes_per_s;
                let overlapped = combine(self.overlap, arithmetic(pass), dram, 0.0);
                let gathered: f64 = pass.gathered.iter().map(|bytes| gathering(bytes * samples / t)).sum();
                launch + overlapped.max(sharded * samples) + gathered
            };
            *pass_of(&mut out, &block.name) = BlockPass {
                forward_pass: seconds(ahead, sharded[0]),
                backward_pass: seconds(back, sharded[1]),
                arithmetic: arithmetic(ahead) + arithmetic(back),
                dram_bytes: streamed(ahead) + streamed(back),
                flop: block.flop * samples / t,
                kept: block.kept * samples / t,
                ..BlockPass::default()
            };
        }
        out
    }
}

/// Bytes of one sample that a pass of a block reads of other passes and blocks, and writes for them: each partition is of one block and pass, so that these go through the DRAM once at
/// least. Views and parts of tensors are left out.
fn crossing(w: &Workload, block: usize, forward: bool) -> f64 {
    let inside = |k: usize| w.kernels[k].block == block && (w.kernels[k].phase == Phase::Forward) == forward;
    let whole = |slot| matches!(slot, Slot::Data | Slot::Rhs | Slot::RhsT | Slot::Lhs | Slot::LhsT);
    let of = |tensor: &Tensor| {
        let made = tensor.producer.is_some_and(inside);
        let read = tensor.consumers.iter().any(|u| inside(u.kernel) && whole(u.slot));
        let elsewhere = tensor.consumers.iter().any(|u| !inside(u.kernel) && whole(u.slot));
        let crosses = if made { elsewhere } else { read };
        if crosses { tensor.bytes(w.word_bytes) } else { 0.0 }
    };
    w.tensors.iter().map(of).sum()
}

/// Whether a phase after the forward pass of a block reads a tensor.
fn is_kept(w: &Workload, tensor: &Tensor, block: usize) -> bool {
    tensor.consumers.iter().any(|u| w.kernels[u.kernel].phase != Phase::Forward && w.kernels[u.kernel].block == block)
}
