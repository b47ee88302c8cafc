//! The figures that follow from the decisions: partitions, memory, iteration.

use super::Derivation;
use super::index::Copied;
use crate::model::compute::{extra_dram_share, gradient_bytes, local, tensor_bytes, tile_flop, weight_bytes};
use crate::model::memory::resident;
use crate::model::schedule::{Stage, iteration, microbatches};
use crate::plan::{Figures, PartitionFigures, TOLERANCE};
use crate::system::options::{Charge, Overlap, Pipeline, WeightTraffic};
use crate::system::price;
use crate::workload::{Tensor, Use};

impl Derivation<'_> {
    pub(super) fn figures(&self) -> Result<Figures, Vec<String>> {
        let options = &self.system.model;
        let bandwidth = self.system.memory.0.bandwidth.0;
        let word = self.w.word_bytes;
        let levels = self.w.levels();
        let stored_bytes: Vec<f64> = (0..self.w.tensors.len()).map(|id| self.stored_bytes(id)).collect();
        let mut broken = Vec::new();
        let mut partitions = Vec::new();
        let live_bytes = self.live_bytes(&stored_bytes);
        for (p, inside) in self.index.partitions.iter().enumerate() {
            let Some(compute_s) = self.compute_s(inside) else {
                broken.push(format!(
                    "partition {p}: {} kernels share {} cores",
                    inside.len(),
                    self.system.chip.0.cores
                ));
                continue;
            };
            let (mut network_s, mut overhead_s, mut dram, mut flop) = (0.0, 0.0, 0.0, 0.0);
            let mut sram = self.kept_bytes();
            if options.latencies == Charge::Charged {
                overhead_s += self.system.chip.0.launch_overhead.0;
            }
            for &k in inside {
                let kernel = &self.w.kernels[k];
                let strategy = self.d.sharding[k];
                network_s += self.network_s(k);
                let pieces = match self.pieces(k, &levels) {
                    Ok(pieces) => pieces,
                    Err(reason) => {
                        broken.push(reason);
                        continue;
                    }
                };
                if pieces > 1.0 && inside.len() > 1 {
                    broken.push(format!(
                        "kernel {} fits the SRAM only alone, in pieces, but shares partition {p}",
                        kernel.name
                    ));
                }
                sram += self.held_bytes(k) / pieces;
                let weight = weight_bytes(kernel, strategy, self.tp, word);
                match options.weight_traffic {
                    _ if self.d.weights_on_chip => {
                        let owned = if kernel.owns_weight() { weight } else { 0.0 };
                        let gradient = gradient_bytes(kernel, strategy, self.tp, word);
                        dram += (owned + gradient) / microbatches(self.w, options, self.dp);
                    }
                    WeightTraffic::Streamed => dram += weight + 2.0 * gradient_bytes(kernel, strategy, self.tp, word),
                    WeightTraffic::Setup => overhead_s += weight / (bandwidth * self.w.micro_batch as f64),
                    WeightTraffic::Ignored => {}
                }
                dram += kernel.extra_dram_bytes * self.samples / extra_dram_share(kernel, strategy, self.tp);
                if options.weight_tiling == Charge::Charged {
                    for at in &self.index.copies_of[k] {
                        let Copied { id, uses, .. } = &self.index.copies[*at];
                        for u in uses.iter().filter(|u| u.kernel == k) {
                            dram += (pieces - 1.0) * self.loaded_bytes(*id, u);
                        }
                    }
                }
                let shard = local(kernel, strategy, self.tp, self.d.tiles);
                flop += tile_flop(kernel, &shard) * self.d.tiles as f64 * self.samples;
            }
            for at in self.index.copies_near(inside) {
                let Copied { id, uses, leaves } = &self.index.copies[at];
                let (id, leaves) = (*id, *leaves);
                let producer = self.w.tensors[id].producer;
                let made_at = producer.map(|k| self.d.partition[k]);
                let outside = |u: &Use| made_at != Some(self.d.partition[u.kernel]);
                let mut buffer: f64 = 0.0;
                let mut load: f64 = 0.0;
                for u in uses.iter().filter(|u| self.d.partition[u.kernel] == p) {
                    buffer = buffer.max(self.buffer(id, u, !outside(u), &levels));
                    if outside(u) {
                        load = load.max(self.loaded_bytes(id, u));
                    }
                }
                dram += load;
                if made_at == Some(p) && (leaves || uses.iter().any(outside)) {
                    dram += stored_bytes[id];
                    buffer = buffer.max(self.store_buffer(id));
                }
                sram += buffer;
            }
            if sram > self.sram_limit() * (1.0 + TOLERANCE) {
                broken.push(format!(
                    "partition {p} needs {} of SRAM, the chip has {}",
                    crate::units::Bytes(sram),
                    crate::units::Bytes(self.system.chip.0.sram.0)
                ));
            }
            let dram_s = dram / bandwidth;
            let time_s = overhead_s
                + match self.system.overlap() {
                    Overlap::Full => [compute_s, dram_s, network_s].into_iter().fold(0.0, f64::max),
                    Overlap::ComputeMemory => compute_s.max(dram_s) + network_s,
                    Overlap::None => compute_s + dram_s + network_s,
                };
            partitions.push(PartitionFigures {
                kernels: inside.iter().map(|k| self.w.kernels[*k].name.clone()).collect(),
                compute_s,
                dram_s,
                network_s,
                overhead_s,
                time_s,
                sram_bytes: sram,
                live_bytes: live_bytes[p],
                dram_bytes: dram,
                flop,
                link_j: inside.iter().map(|k| self.link_j(*k)).sum(),
            });
        }
        let layer_s: f64 = partitions.iter().map(|p| p.time_s).sum();
        let layers = self.w.repeat.div_ceil(self.pp);
        let in_flight = (self.pp as f64).min(microbatches(self.w, options, self.dp).max(1.0)) as u64;
        let chips = self.system.chip_count();
        let mut memory = resident(self.w, options, &self.d.sharding, (self.tp, self.dp), layers, in_flight, chips);
        memory.live = partitions.iter().map(|p| p.live_bytes).fold(0.0, f64::max);
        let capacity = self.system.memory.0.capacity.map(|c| c.0);
        if let Some(capacity) = capacity.filter(|c| memory.total() > c * (1.0 + TOLERANCE)) {
            broken.push(format!(
                "a chip needs {} of DRAM, its memory has {}",
                crate::units::Bytes(memory.total()),
                crate::units::Bytes(capacity)
            ));
        }
        if !broken.is_empty() {
            return Err(broken);
        }
        let iteration = iteration(self.w, self.system, &self.stage(layer_s));
        let energy = self.energy(&partitions, iteration.total_s());
        Ok(Figures {
            tp: self.tp,
            pp: self.pp,
            dp: self.dp,
            partitions,
            layer_s,
            iteration,
            memory,
            dram_capacity: capacity,
            // Of the whole workload: filled in by `derive`, which knows it.
            flop_per_iteration: 0.0,
            utilization: 0.0,
            cost: price::cost(self.system),
            power: price::power(self.system),
            energy,
        })
    }

    /// Bytes in DRAM of tensors that wait there, in each partition: from the one that makes them to the last that loads them.
    fn live_bytes(&self, stored_bytes: &[f64]) -> Vec<f64> {
        let mut live = vec![0.0; self.index.partitions.len()];
        for Copied { id, uses, leaves } in &self.index.copies {
            let producer = self.w.tensors[*id].producer;
            let made_at = producer.map(|k| self.d.partition[k]);
            let loads = uses.iter().map(|u| self.d.partition[u.kernel]).filter(|p| made_at != Some(*p));
            let last_load = loads.max();
            let stored = *leaves || last_load.is_some();
            if self.w.tensors[*id].in_place || (producer.is_some() && !stored) {
                continue;
            }
            let from = made_at.unwrap_or(0);
            let end = if *leaves { live.len() } else { last_load.map_or(0, |last| last + 1) };
            for at in live.iter_mut().take(end).skip(from) {
                *at += stored_bytes[*id] / self.samples * self.w.micro_batch as f64;
            }
        }
        live
    }

    pub(super) fn stage(&self, layer_s: f64) -> Stage<'_> {
        let word = self.w.word_bytes;
        let kernels = || self.w.kernels.iter().zip(&self.d.sharding);
        let carried = |tensor: &Tensor| -> f64 {
            if self.system.model.pipeline != Pipeline::OneForwardOneBackward {
                return tensor.rows as f64 * tensor.cols as f64 * word;
            }
            let bytes = |u: &Use| tensor_bytes(tensor, self.wanted(u), self.tp, 1, word).0;
            tensor.consumers.iter().map(bytes).fold(0.0, f64::max)
        };
        Stage {
            layer_s,
            pp: self.pp,
            dp: self.dp,
            carried_bytes: self.w.tensors.iter().filter(|t| t.carried_from.is_some()).map(carried).sum(),
            hand_overs: self.w.tensors.iter().filter(|t| t.carried_from.is_some()).count() as u64,
            layer_weight_bytes: kernels()
                .filter(|(k, _)| k.owns_weight())
                .map(|(k, s)| weight_bytes(k, *s, self.tp, word))
                .sum(),
            layer_gradient_bytes: kernels().map(|(k, s)| gradient_bytes(k, *s, self.tp, word)).sum(),
            pp_group: &self.pp_group,
            dp_group: &self.dp_group,
        }
    }
}
