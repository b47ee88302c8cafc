//! The checker's own account of energy. It goes stage by stage and part by part and writes down what each chip, memory
//! and link draws, where `model::energy` has closed forms for the whole system. It shares with that the catalogue's
//! fields and nothing else.

use super::Derivation;
use crate::graph::{Axis, CollectiveKind};
use crate::model::Strategy;
use crate::model::collective::{self, GroupDimension};
use crate::model::compute::{gradient_bytes, local, tensor_bytes, weight_bytes};
use crate::model::energy::Energy;
use crate::model::schedule::microbatches;
use crate::plan::PartitionFigures;
use crate::system::Topology;
use crate::system::options::{Charge, GradientReduction, Layouts, Pipeline};
use crate::system::price::{ByPart, link_and_switch_bandwidth};

/// Joules of the links of one chip that takes part in a collective, counted step by step.
pub(super) fn moved_j(kind: CollectiveKind, group: &[GroupDimension], bytes: f64) -> f64 {
    if kind == CollectiveKind::PointToPoint {
        return bytes * neighbour_byte_j(group);
    }
    let mut total = 0.0;
    let mut tensor = bytes;
    for d in collective::in_order(group).iter() {
        // One of n equal pieces is sent in each of n - 1 steps.
        let piece = tensor / d.size as f64;
        let gather = piece * (d.size - 1) as f64;
        total += d.byte_j
            * match kind {
                CollectiveKind::AllReduce => gather + gather,
                // A broadcast reaches n - 1 others, each once: as much as n chips send that pass on an n-th each.
                CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::Broadcast => gather,
                // Every chip keeps its n-th part of all it holds; what it sends goes as many hops as the topology asks.
                CollectiveKind::AllToAll if d.topology == Topology::Ring => {
                    // From each chip to each other, the shorter way where there are two.
                    let n = d.size as f64;
                    let far = (1..d.size).map(|far| far as f64);
                    let hops: f64 = match d.open {
                        true => far.map(|far| 2.0 * (n - far) * far).sum::<f64>() / n,
                        false => far.map(|far| far.min(n - far)).sum(),
                    };
                    hops * bytes / n
                }
                CollectiveKind::AllToAll => bytes - bytes / d.size as f64,
                CollectiveKind::PointToPoint => 0.0,
            };
        tensor = piece;
    }
    total
}

/// Joules a byte between neighbours: of the slowest link, the innermost of equals.
fn neighbour_byte_j(group: &[GroupDimension]) -> f64 {
    let slowest = group.iter().map(|d| d.bandwidth).fold(f64::INFINITY, f64::min);
    group.iter().find(|d| d.bandwidth == slowest).map_or(0.0, |d| d.byte_j)
}

impl Derivation<'_> {
    /// Joules of links of the collectives that kernel `k` pays for.
    pub(super) fn link_j(&self, k: usize) -> f64 {
        let options = &self.system.model;
        let kernel = &self.w.kernels[k];
        let strategy = self.d.sharding[k];
        let word = self.w.word_bytes;
        let in_pass = |kind, bytes: f64| moved_j(kind, &self.tp_group, bytes * self.samples);
        let mut total = 0.0;
        for own in &kernel.collectives {
            let bytes = own.bytes * self.samples;
            // Each chip of a tensor-parallel group exchanges its share.
            let bytes = if own.kind == CollectiveKind::AllToAll { bytes / self.tp as f64 } else { bytes };
            total += own.times as f64 * moved_j(own.kind, self.own.of(own.scope), bytes);
        }
        if options.layouts == Layouts::Dfmodel && strategy == Strategy::K {
            let here = local(kernel, strategy, self.tp, self.tiling());
            let output = here.rows as f64 * here.n as f64 * kernel.word_or(word);
            let times = if kernel.tiled == Axis::K { 1.0 } else { here.tiles as f64 };
            total += in_pass(CollectiveKind::AllReduce, output * times);
        }
        if self.w.training && options.gradient_reduction == GradientReduction::PerMicrobatch {
            let bytes = gradient_bytes(kernel, strategy, self.tp, word) / microbatches(self.w, options, self.dp);
            total += moved_j(CollectiveKind::AllReduce, &self.dp_group, bytes);
        }
        for &id in &self.index.tensors_of[k] {
            let tensor = &self.w.tensors[id];
            for (layout, kind, share) in self.conversions_paid_by(k, id) {
                let bytes = if options.layouts == Layouts::Dfmodel || kind == CollectiveKind::AllToAll {
                    tensor_bytes(tensor, layout, self.tp, self.tiling(), word).0
                } else {
                    tensor.bytes(word)
                };
                total += in_pass(kind, bytes) * share;
            }
        }
        total
    }

    /// Energy of an iteration of `seconds`.
    pub(super) fn energy(&self, partitions: &[PartitionFigures], seconds: f64) -> Energy {
        let options = &self.system.model;
        let unit = |x: f64| options.precision.round(x);
        let (chip, memory) = (&self.system.chip.0, &self.system.memory.0);
        let chips = self.system.chip_count() as f64;
        // Idle: what every part draws for as long as the iteration lasts.
        let mut idle = ByPart {
            chips: chips * unit(chip.power.0 * chip.idle_share.0) * seconds,
            memory: chips * memory.bandwidth.0 / 1e9 * unit(memory.power.0 * memory.idle_share.0) * seconds,
            links: 0.0,
            switches: 0.0,
        };
        // A memory to offload to is there whether anything is offloaded or not.
        if let Some(second) = &self.system.offload {
            let second = &second.0;
            idle.memory += chips * second.bandwidth.0 / 1e9 * unit(second.power.0 * second.idle_share.0) * seconds;
        }
        let port_w = self.system.network.switch.as_ref().map_or(0.0, |s| unit(s.0.power.0));
        for ((links, ports), d) in link_and_switch_bandwidth(self.system).iter().zip(&self.system.network.dimensions) {
            if chips > 1.0 {
                idle.links += links * unit(d.link.0.power.0 * d.link.0.idle_share.0) * seconds;
            }
            if chips > 4.0 {
                idle.switches += ports * port_w * seconds;
            }
        }
        // Use, stage by stage.
        let byte_j = match memory.energy_per_byte {
            Some(stated) => stated.0,
            None => unit(memory.power.0) * (1.0 - memory.idle_share.0) * 1e-9,
        };
        let passes = match options.pipeline {
            Pipeline::OneForwardOneBackward => microbatches(self.w, options, self.dp),
            Pipeline::Dfmodel | Pipeline::DfmodelFirst => self.w.global_batch as f64 / self.dp as f64,
        };
        // TP x DP, or the whole process grid.
        let stage_chips = chips / self.pp as f64;
        let word = self.w.word_bytes;
        let states = if word < 4.0 { 12.0 } else { 8.0 };
        let mut used = ByPart { chips: 0.0, memory: 0.0, links: 0.0, switches: 0.0 };
        // A schedule of equal stages has no more layers than there are: the last ones lack what does not divide.
        let mut before = 0;
        for stage in 0..self.d.stages.len() {
            let units = self.units_of(stage);
            for (at, p) in partitions.iter().enumerate() {
                let times = passes * units[self.block_of_partition(at)] as f64 * stage_chips;
                used.chips += times
                    * match chip.energy_per_flop {
                        Some(stated) => p.flop * stated.0,
                        None => p.compute_s * unit(chip.power.0) * (1.0 - chip.idle_share.0),
                    };
                used.memory += times * p.dram_bytes * byte_j;
                used.links += times * p.link_j;
            }
            if stage > 0 {
                let bytes = self.handed_over(before).0 * self.samples;
                used.links += passes * stage_chips * bytes * neighbour_byte_j(&self.pp_group);
            }
            before += self.d.stages[stage];
            if !self.w.training {
                continue;
            }
            for (kernel, s) in self.w.kernels.iter().zip(&self.d.sharding) {
                let copies = units[kernel.block] as f64 * stage_chips;
                if options.gradient_reduction == GradientReduction::PerIteration {
                    let gradient = gradient_bytes(kernel, *s, self.tp, word);
                    used.links += copies * moved_j(CollectiveKind::AllReduce, &self.dp_group, gradient);
                }
                if options.optimizer_step == Charge::Charged && kernel.owns_weight() {
                    // A weight's gradient is read and the weight written; its states are read and written.
                    let weights = weight_bytes(kernel, *s, self.tp, word) / word;
                    used.memory += copies * weights * (word + word + states + states) * byte_j;
                }
            }
        }
        Energy { idle, used }
    }
}
