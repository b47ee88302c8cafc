//! The figures of a plan as the search computes them, and the closed-form bound of an assignment. (The checker derives
//! the figures again by itself.)

use super::degrees::Degrees;
use super::instance::{self, PartitionCost};
use super::search::{Best, Search, TIE};
use crate::model::Strategy;
use crate::model::compute::{
    constant_efficiency, gradient_bytes, local, peak, system_peak, tensor_bytes, tile_flop, weight_bytes,
};
use crate::model::layout::{Layout, required};
use crate::model::memory::{DramNeed, resident};
use crate::model::schedule::{Iteration, Stage, iteration, microbatches, samples_per_pass};
use crate::plan::{Figures, PartitionFigures};
use crate::system::options::{Pipeline, WeightTraffic};
use crate::system::price;

impl Search<'_> {
    pub(super) fn resident(&self, degrees: &Degrees, sharding: &[Strategy]) -> DramNeed {
        let layers = self.workload.repeat.div_ceil(degrees.pp);
        let b = microbatches(self.workload, &self.system.model, degrees.dp).max(1.0);
        let in_flight = (degrees.pp as f64).min(b) as u64;
        resident(self.workload, &self.system.model, sharding, degrees.tp, layers, in_flight, self.system.chip_count())
    }

    pub(super) fn iteration(&self, degrees: &Degrees, sharding: &[Strategy], layer_s: f64) -> Iteration {
        let word = self.workload.word_bytes;
        let per_layer = |f: fn(&crate::workload::Kernel, Strategy, u64, f64) -> f64| -> f64 {
            self.workload.kernels.iter().zip(sharding).map(|(k, s)| f(k, *s, degrees.tp, word)).sum()
        };
        let owned: f64 = self
            .workload
            .kernels
            .iter()
            .zip(sharding)
            .filter(|(k, _)| k.owns_weight())
            .map(|(k, s)| weight_bytes(k, *s, degrees.tp, word))
            .sum();
        let stage = Stage {
            layer_s,
            pp: degrees.pp,
            dp: degrees.dp,
            carried_bytes: self.carried_bytes(degrees, sharding),
            hand_overs: self.workload.tensors.iter().filter(|t| t.carried_from.is_some()).count() as u64,
            layer_weight_bytes: owned,
            layer_gradient_bytes: per_layer(gradient_bytes),
            pp_group: &degrees.pp_group,
            dp_group: &degrees.dp_group,
        };
        iteration(self.workload, self.system, &stage)
    }

    /// Bytes of one sample that a chip hands to the next stage: carried tensors in the layout their readers want.
    pub(super) fn carried_bytes(&self, degrees: &Degrees, sharding: &[Strategy]) -> f64 {
        if self.system.model.pipeline != Pipeline::OneForwardOneBackward {
            return self.workload.carried_bytes();
        }
        self.workload
            .tensors
            .iter()
            .filter(|t| t.carried_from.is_some())
            .map(|tensor| {
                let widest = tensor.consumers.iter().map(|u| {
                    let layout: Layout = required(
                        &self.workload.kernels[u.kernel],
                        u.slot,
                        sharding[u.kernel],
                        self.system.model.layouts,
                    );
                    tensor_bytes(tensor, layout, degrees.tp, 1, self.workload.word_bytes).0
                });
                widest.fold(0.0, f64::max)
            })
            .sum()
    }

    /// No mapping of an assignment is faster: all arithmetic perfectly split, all weights streamed once, no network.
    pub(super) fn assignment_bound(&self, degrees: &Degrees) -> f64 {
        let chip = &self.system.chip.0;
        let options = &self.system.model;
        let t = degrees.tp as f64;
        let u = constant_efficiency(chip).map_or(1.0, |u| options.precision.round(u));
        let samples = samples_per_pass(self.workload, options);
        let arithmetic: f64 =
            self.workload.kernels.iter().map(|k| k.flop() * samples / (t * u * peak(chip, k, options))).sum();
        let streamed = options.weight_traffic == WeightTraffic::Streamed;
        let weights: f64 =
            self.workload.kernels.iter().map(|k| k.weight_elements() * self.workload.word_bytes / t).sum();
        let streamed = streamed && !instance::may_keep_weights(self.system);
        let dram = if streamed { weights / self.system.memory.0.bandwidth.0 } else { 0.0 };
        let layer = instance::combine(self.system.overlap(), arithmetic, dram, 0.0);
        let every: Vec<Strategy> = vec![Strategy::Outer; self.workload.kernels.len()];
        let mut bound = self.iteration(degrees, &every, layer);
        // The transfers and reductions of an unknown sharding are not part of a bound.
        bound.p2p_s = 0.0;
        bound.gradient_s = 0.0;
        bound.optimizer_s = 0.0;
        bound.total_s() * (1.0 - TIE)
    }

    pub(super) fn figures(&self, best: &Best, costs: &[PartitionCost]) -> Figures {
        let w = self.workload;
        let samples = samples_per_pass(w, &self.system.model);
        let partitions: Vec<PartitionFigures> = costs
            .iter()
            .enumerate()
            .map(|(p, cost)| {
                let members: Vec<usize> = (0..w.kernels.len()).filter(|k| best.assignment[*k] == p).collect();
                let flop = members
                    .iter()
                    .map(|k| {
                        let kernel = &w.kernels[*k];
                        let here = local(kernel, best.sharding.strategies[*k], best.degrees.tp, best.tiles);
                        tile_flop(kernel, &here, best.tiles) * best.tiles as f64 * samples
                    })
                    .sum();
                PartitionFigures {
                    kernels: members.iter().map(|k| w.kernels[*k].name.clone()).collect(),
                    compute_s: cost.compute_s,
                    dram_s: cost.dram_s,
                    network_s: cost.network_s,
                    overhead_s: cost.serial_s,
                    time_s: cost.time_s(best.instance.overlap),
                    sram_bytes: cost.sram_bytes,
                    live_bytes: cost.live_bytes,
                    dram_bytes: cost.dram_bytes,
                    flop,
                }
            })
            .collect();
        let layer_s = partitions.iter().map(|p| p.time_s).sum();
        let iteration = self.iteration(&best.degrees, &best.sharding.strategies, layer_s);
        let mut memory = self.resident(&best.degrees, &best.sharding.strategies);
        memory.live = partitions.iter().map(|p| p.live_bytes).fold(0.0, f64::max);
        let flop = w.flop_per_iteration();
        Figures {
            tp: best.degrees.tp,
            pp: best.degrees.pp,
            dp: best.degrees.dp,
            partitions,
            layer_s,
            iteration,
            memory,
            dram_capacity: self.system.memory.0.capacity.map(|c| c.0),
            flop_per_iteration: flop,
            utilization: flop / (iteration.total_s() * system_peak(self.system)),
            cost: price::cost(self.system),
            power: price::power(self.system),
        }
    }
}
