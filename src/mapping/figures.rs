//! The figures of a plan as the search computes them, and the closed-form bound of an assignment. (The checker derives
//! the figures again by itself.)

use super::amounts::{self, Choice};
use super::degrees::Degrees;
use super::instance::{self, PartitionCost};
use super::search::{Best, Search, TIE};
use super::shelf::Sums;
use crate::model::Strategy;
use crate::model::collective;
use crate::model::compute::{Tiling, gradient_bytes, tensor_bytes, weight_bytes};
use crate::model::energy::{self, Energy, LayerUse};
use crate::model::layout::{Layout, required};
use crate::model::memory::DramNeed;
use crate::model::rate::system_peak;
use crate::model::schedule::{Iteration, Stage, hand_over, iteration, samples_per_pass, update_s};
use crate::model::stages::{self, StageFigures};
use crate::plan::{Figures, PartitionFigures};
use crate::system::options::{Pipeline, WeightTraffic};
use crate::system::price;
use crate::workload::Workload;

impl Search<'_> {
    /// What the fullest stage holds, without tensors that wait, where the longest has `longest` layers.
    pub(super) fn resident(&self, degrees: &Degrees, sharding: &[Strategy], longest: u64) -> DramNeed {
        self.pipe(degrees).fullest(&self.layer_need(degrees, sharding), longest)
    }

    /// What the schedule needs to know of a mapping whose longest stage has `longest` layers.
    pub(super) fn stage<'d>(
        &self,
        degrees: &'d Degrees,
        sharding: &[Strategy],
        longest: u64,
        layer_s: f64,
    ) -> Stage<'d> {
        self.stage_of(self.workload, degrees, sharding, longest, layer_s)
    }

    /// The same of any workload: of a block.
    pub(super) fn stage_of<'d>(
        &self,
        w: &Workload,
        degrees: &'d Degrees,
        sharding: &[Strategy],
        longest: u64,
        layer_s: f64,
    ) -> Stage<'d> {
        let word = w.word_bytes;
        let per_layer = |f: fn(&crate::workload::Kernel, Strategy, u64, f64) -> f64| -> f64 {
            w.kernels.iter().zip(sharding).map(|(k, s)| f(k, *s, degrees.tp, word)).sum()
        };
        let owned: f64 = w
            .kernels
            .iter()
            .zip(sharding)
            .filter(|(k, _)| k.owns_weight())
            .map(|(k, s)| weight_bytes(k, *s, degrees.tp, word))
            .sum();
        Stage {
            layer_s,
            pp: degrees.pp,
            longest,
            dp: degrees.dp,
            carried_bytes: self.carried_bytes(w, degrees, sharding),
            hand_overs: w.tensors.iter().filter(|t| t.carried_from.is_some()).count() as u64,
            layer_weight_bytes: owned,
            layer_gradient_bytes: per_layer(gradient_bytes),
            pp_group: &degrees.pp_group,
            dp_group: &degrees.dp_group,
        }
    }

    /// Bytes of one sample that a chip hands to the next stage: carried tensors in the layout their readers want.
    fn carried_bytes(&self, w: &Workload, degrees: &Degrees, sharding: &[Strategy]) -> f64 {
        if self.system.model.pipeline != Pipeline::OneForwardOneBackward {
            return w.carried_bytes();
        }
        w.tensors
            .iter()
            .filter(|t| t.carried_from.is_some())
            .map(|tensor| {
                let widest = tensor.consumers.iter().map(|u| {
                    let layout: Layout =
                        required(&w.kernels[u.kernel], u.slot, sharding[u.kernel], self.system.model.layouts);
                    tensor_bytes(tensor, layout, degrees.tp, Tiling::WHOLE, w.word_bytes).0
                });
                widest.fold(0.0, f64::max)
            })
            .sum()
    }

    /// No mapping of an assignment is faster, or uses a layer pass less: all arithmetic perfectly split, all weights
    /// streamed once, no network but kernels' own collectives.
    pub(super) fn assignment_floor(&self, degrees: &Degrees) -> (f64, LayerUse) {
        let options = &self.system.model;
        let t = degrees.tp as f64;
        let samples = samples_per_pass(self.workload, options);
        let seconds = |k: &crate::workload::Kernel| self.rate.least_seconds(k);
        if self.workload.is_chain() {
            return (self.chain_floor(degrees, |k| seconds(k) * samples / t), LayerUse::default());
        }
        let sums = self.shelf.sums(degrees.tp, || Sums {
            arithmetic_s: self.workload.kernels.iter().map(|k| seconds(k) * samples / t).sum(),
            weight_bytes: self
                .workload
                .kernels
                .iter()
                .filter(|k| !k.lookup)
                .map(|k| k.weight_elements() * k.word_or(self.workload.word_bytes) / t)
                .sum(),
            flop: self.workload.kernels.iter().map(|k| k.flop() * samples / t).sum(),
        });
        let arithmetic = sums.arithmetic_s;
        let streamed = options.weight_traffic == WeightTraffic::Streamed;
        let streamed = streamed && !self.keeps_weights;
        let dram_bytes = if streamed { sums.weight_bytes } else { 0.0 };
        let dram = dram_bytes / self.rate.dram_bytes_per_s;
        // Whatever the sharding, kernels make their own collectives.
        let own = self.workload.kernels.iter().filter(|k| !k.collectives.is_empty());
        let network: f64 = own.map(|k| collective::own_seconds(k, &degrees.own, samples, options)).sum();
        let layer = instance::combine(self.system.overlap(), arithmetic, dram, network);
        let every: Vec<Strategy> = vec![Strategy::Outer; self.workload.kernels.len()];
        // No division has a shorter longest stage.
        let mut bound = self.iteration(degrees, &every, self.workload.repeat.div_ceil(degrees.pp), layer);
        // The transfers and reductions of an unknown sharding are not part of a bound.
        bound.p2p_s = 0.0;
        bound.gradient_s = 0.0;
        bound.optimizer_s = 0.0;
        (bound.total_s() * (1.0 - TIE), LayerUse { compute_s: arithmetic, flop: sums.flop, dram_bytes, link_j: 0.0 })
    }

    /// Every stage of a plan with `live` bytes of waiting tensors.
    fn stage_figures(&self, best: &Best, stage: &Stage<'_>, live: f64) -> Vec<StageFigures> {
        let (w, pp) = (self.workload, best.degrees.pp);
        let need = self.layer_need(&best.degrees, &best.sharding.strategies);
        let pipe = self.pipe(&best.degrees);
        let layers = self.division(&best.degrees, &best.sharding.strategies, best.longest, live);
        let hand_over_s = if pp > 1 {
            let bytes = stage.carried_bytes * samples_per_pass(w, &self.system.model);
            hand_over(stage.pp_group, bytes, stage.hand_overs)
        } else {
            0.0
        };
        let of = |(layers, in_flight): (&u64, &u64)| {
            let (gradient_s, optimizer_s) = update_s(w, self.system, stage, *layers);
            let memory = DramNeed { live, ..need.of_stage(*layers, *in_flight) };
            let pass_s = *layers as f64 * stage.layer_s;
            let of_blocks = vec![*layers];
            StageFigures { layers: *layers, of_blocks, pass_s, hand_over_s, gradient_s, optimizer_s, memory }
        };
        layers.iter().zip(&pipe.in_flight).map(of).collect()
    }

    pub(super) fn figures(&self, best: &Best, costs: &[PartitionCost]) -> Figures {
        let w = self.workload;
        let strategies = &best.sharding.strategies;
        let choice = Choice {
            degrees: &best.degrees,
            sharding: strategies,
            tiles: best.tiles,
            weights_on_chip: best.weights_on_chip,
            longest: best.longest,
        };
        let link_j = match self.amounts(choice) {
            Ok(amounts) => amounts.link_joules(w, self.system, &best.degrees),
            Err(_) => amounts::link_joules(w, self.system, choice),
        };
        let partitions: Vec<PartitionFigures> = costs
            .iter()
            .enumerate()
            .map(|(p, cost)| {
                let members: Vec<usize> = (0..w.kernels.len()).filter(|k| best.assignment[*k] == p).collect();
                let flop =
                    members.iter().map(|k| self.kernel_flop(*k, &best.degrees, strategies[*k], best.tiles)).sum();
                PartitionFigures {
                    kernels: members.iter().map(|k| w.kernels[*k].name.clone()).collect(),
                    compute_s: cost.compute_s,
                    dram_s: cost.dram_s,
                    network_s: cost.network_s,
                    overhead_s: cost.serial_s,
                    filling_s: cost.filling_s(best.instance.overlap),
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
        let live = partitions.iter().map(|p| p.live_bytes).fold(0.0, f64::max);
        let (iteration, stages, energy) = if w.is_chain() {
            self.chain_figures(best, &partitions)
        } else {
            self.layer_figures(best, &partitions, (layer_s, live))
        };
        let memory = stages::fullest(&stages).map_or(DramNeed::default(), |(_, s)| s.memory);
        let flop = w.flop_per_iteration();
        Figures {
            tp: best.degrees.tp,
            pp: best.degrees.pp,
            dp: best.degrees.dp,
            partitions,
            layer_s,
            iteration,
            stages,
            memory,
            dram_capacity: self.system.memory.0.capacity.map(|c| c.0),
            flop_per_iteration: flop,
            utilization: flop / (iteration.total_s() * system_peak(w, self.system)),
            cost: price::cost(self.system),
            power: price::power(self.system),
            energy,
        }
    }

    /// Iteration, stages and energy of one repeated layer.
    fn layer_figures(
        &self,
        best: &Best,
        partitions: &[PartitionFigures],
        (layer_s, live): (f64, f64),
    ) -> (Iteration, Vec<StageFigures>, Energy) {
        let w = self.workload;
        let stage = self.stage(&best.degrees, &best.sharding.strategies, best.longest, layer_s);
        let iteration = iteration(w, self.system, &stage);
        let used = use_of(partitions.iter());
        let energy = energy::of_iteration(w, self.system, &stage, used, iteration.total_s());
        (iteration, self.stage_figures(best, &stage, live), energy)
    }
}

/// What partitions use in one pass.
pub(super) fn use_of<'p>(partitions: impl Iterator<Item = &'p PartitionFigures> + Clone) -> LayerUse {
    LayerUse {
        compute_s: partitions.clone().map(|p| p.compute_s).sum(),
        flop: partitions.clone().map(|p| p.flop).sum(),
        dram_bytes: partitions.clone().map(|p| p.dram_bytes).sum(),
        link_j: partitions.map(|p| p.link_j).sum(),
    }
}
