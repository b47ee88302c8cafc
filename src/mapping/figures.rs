//! The figures of a plan as the search computes them, and the closed-form bound of an assignment. (The checker derives
//! the figures again by itself.)

use super::amounts::Sums;
use super::degrees::Degrees;
use super::instance::{self, Choice, PartitionCost};
use super::search::{Best, Search, TIE};
use crate::model::Strategy;
use crate::model::collective;
use crate::model::compute::{
    constant_efficiency, gradient_bytes, least_core_seconds, peak, system_peak, tensor_bytes, weight_bytes,
};
use crate::model::energy::{self, LayerUse};
use crate::model::layout::{Layout, required};
use crate::model::memory::{DramNeed, resident};
use crate::model::schedule::{Stage, iteration, microbatches, samples_per_pass};
use crate::plan::{Figures, PartitionFigures};
use crate::system::options::{Pipeline, WeightTraffic};
use crate::system::price;

impl Search<'_> {
    pub(super) fn resident(&self, degrees: &Degrees, sharding: &[Strategy]) -> DramNeed {
        let layers = self.workload.repeat.div_ceil(degrees.pp);
        let b = microbatches(self.workload, &self.system.model, degrees.dp).max(1.0);
        let in_flight = (degrees.pp as f64).min(b) as u64;
        let (options, chips) = (&self.system.model, self.system.chip_count());
        resident(self.workload, options, sharding, (degrees.tp, degrees.dp), layers, in_flight, chips)
    }

    /// What the schedule needs to know of a mapping.
    pub(super) fn stage<'d>(&self, degrees: &'d Degrees, sharding: &[Strategy], layer_s: f64) -> Stage<'d> {
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
        Stage {
            layer_s,
            pp: degrees.pp,
            dp: degrees.dp,
            carried_bytes: self.carried_bytes(degrees, sharding),
            hand_overs: self.workload.tensors.iter().filter(|t| t.carried_from.is_some()).count() as u64,
            layer_weight_bytes: owned,
            layer_gradient_bytes: per_layer(gradient_bytes),
            pp_group: &degrees.pp_group,
            dp_group: &degrees.dp_group,
        }
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

    /// No mapping of an assignment is faster, or uses a layer pass less: all arithmetic perfectly split, all weights
    /// streamed once, no network but kernels' own collectives.
    pub(super) fn assignment_floor(&self, degrees: &Degrees) -> (f64, LayerUse) {
        let chip = &self.system.chip.0;
        let options = &self.system.model;
        let t = degrees.tp as f64;
        let u = constant_efficiency(chip).map_or(1.0, |u| options.precision.round(u));
        let samples = samples_per_pass(self.workload, options);
        let quantised = constant_efficiency(chip).is_none();
        let seconds = |k: &crate::workload::Kernel| match k.flop {
            // Stated FLOP do not tell the cycles of lanes and stages.
            Some(_) if quantised => least_core_seconds(chip, k),
            _ => k.flop() / (u * peak(chip, k, options)),
        };
        let sums = self.shelf.sums(degrees.tp, || Sums {
            arithmetic_s: self.workload.kernels.iter().map(|k| seconds(k) * samples / t).sum(),
            weight_bytes: self
                .workload
                .kernels
                .iter()
                .map(|k| k.weight_elements() * self.workload.word_bytes / t)
                .sum(),
            flop: self.workload.kernels.iter().map(|k| k.flop() * samples / t).sum(),
        });
        let arithmetic = sums.arithmetic_s;
        let streamed = options.weight_traffic == WeightTraffic::Streamed;
        let streamed = streamed && !instance::may_keep_weights(self.system);
        let dram_bytes = if streamed { sums.weight_bytes } else { 0.0 };
        let dram = dram_bytes / self.system.memory.0.bandwidth.0;
        // Whatever the sharding, kernels make their own collectives.
        let own = self.workload.kernels.iter().filter(|k| !k.collectives.is_empty());
        let network: f64 = own.map(|k| collective::own_seconds(k, &degrees.own, samples, options)).sum();
        let layer = instance::combine(self.system.overlap(), arithmetic, dram, network);
        let every: Vec<Strategy> = vec![Strategy::Outer; self.workload.kernels.len()];
        let mut bound = self.iteration(degrees, &every, layer);
        // The transfers and reductions of an unknown sharding are not part of a bound.
        bound.p2p_s = 0.0;
        bound.gradient_s = 0.0;
        bound.optimizer_s = 0.0;
        (bound.total_s() * (1.0 - TIE), LayerUse { compute_s: arithmetic, flop: sums.flop, dram_bytes, link_j: 0.0 })
    }

    pub(super) fn figures(&self, best: &Best, costs: &[PartitionCost]) -> Figures {
        let w = self.workload;
        let strategies = &best.sharding.strategies;
        let choice = Choice {
            degrees: &best.degrees,
            sharding: strategies,
            tiles: best.tiles,
            weights_on_chip: best.weights_on_chip,
        };
        let link_j = match self.amounts(choice) {
            Ok(amounts) => amounts.link_joules(w, self.system, &best.degrees),
            Err(_) => instance::link_joules(w, self.system, choice),
        };
        let partitions: Vec<PartitionFigures> = costs
            .iter()
            .enumerate()
            .map(|(p, cost)| {
                let members: Vec<usize> = (0..w.kernels.len()).filter(|k| best.assignment[*k] == p).collect();
                let flop = members.iter().map(|k| self.kernel_flop(*k, &best.degrees, strategies, best.tiles)).sum();
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
                    link_j: members.iter().map(|k| link_j[*k]).sum(),
                }
            })
            .collect();
        let layer_s = partitions.iter().map(|p| p.time_s).sum();
        let stage = self.stage(&best.degrees, strategies, layer_s);
        let iteration = iteration(w, self.system, &stage);
        let layer = LayerUse {
            compute_s: partitions.iter().map(|p| p.compute_s).sum(),
            flop: partitions.iter().map(|p| p.flop).sum(),
            dram_bytes: partitions.iter().map(|p| p.dram_bytes).sum(),
            link_j: partitions.iter().map(|p| p.link_j).sum(),
        };
        let energy = energy::of_iteration(w, self.system, &stage, layer, iteration.total_s());
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
            energy,
        }
    }
}
