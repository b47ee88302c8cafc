//! The figures that follow from the decisions: partitions, memory, iteration.

use super::Derivation;
use super::index::Copied;
use crate::graph::Use;
use crate::model::compute::{extra_dram_share, gradient_bytes, has_own_part, local, shard_flop, weight_bytes};
use crate::model::memory::DramNeed;
use crate::model::schedule::microbatches;
use crate::plan::{Figures, PartitionFigures, TOLERANCE};
use crate::system::options::{Charge, Overlap, WeightTraffic};
use crate::system::price;

impl Derivation<'_> {
    pub(super) fn figures(&self) -> Result<Figures, Vec<String>> {
        let options = &self.system.model;
        let bandwidth = self.rate.dram_bytes_per_s;
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
            overhead_s += self.rate.launch_s;
            for &k in inside {
                let kernel = &self.w.kernels[k];
                let strategy = self.d.sharding[k];
                network_s += self.network_s(k);
                let [pieces, own] = match self.pieces(k, &levels) {
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
                    // Of a table only what is looked up, with the traffic beside the weights.
                    WeightTraffic::Streamed if kernel.lookup => {}
                    WeightTraffic::Streamed => dram += weight + 2.0 * gradient_bytes(kernel, strategy, self.tp, word),
                    WeightTraffic::Setup => {
                        overhead_s += weight / (bandwidth * self.w.micro_batch as f64);
                        overhead_s += kernel.extra_dram_bytes * self.samples
                            / (extra_dram_share(kernel, strategy, self.tp) * bandwidth);
                    }
                    WeightTraffic::Ignored => {}
                }
                if options.weight_traffic != WeightTraffic::Setup || self.d.weights_on_chip {
                    dram += kernel.extra_dram_bytes * self.samples / extra_dram_share(kernel, strategy, self.tp);
                }
                if options.weight_tiling == Charge::Charged {
                    for at in &self.index.copies_of[k] {
                        let Copied { id, uses, .. } = &self.index.copies[*at];
                        for u in uses.iter().filter(|u| u.kernel == k) {
                            let times = if has_own_part(kernel, u.slot) { own } else { pieces };
                            dram += (times - 1.0) * self.loaded_bytes(*id, u);
                        }
                    }
                }
                let shard = local(kernel, strategy, self.tp, self.tiling());
                flop += shard_flop(kernel, &shard) * self.samples;
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
            let steady_s = match self.system.overlap() {
                Overlap::Full => [compute_s, dram_s, network_s].into_iter().fold(0.0, f64::max),
                Overlap::ComputeMemory => compute_s.max(dram_s) + network_s,
                Overlap::None => compute_s + dram_s + network_s,
            };
            let filling_s = steady_s * self.last_begins(inside);
            let time_s = overhead_s + steady_s + filling_s;
            partitions.push(PartitionFigures {
                kernels: inside.iter().map(|k| self.w.kernels[*k].name.clone()).collect(),
                compute_s,
                dram_s,
                network_s,
                overhead_s,
                filling_s,
                time_s,
                sram_bytes: sram,
                live_bytes: live_bytes[p],
                dram_bytes: dram,
                flop,
                link_j: inside.iter().map(|k| self.link_j(*k)).sum(),
            });
        }
        let layer_s: f64 = partitions.iter().map(|p| p.time_s).sum();
        let stages = self.stages(&partitions);
        let capacity = self.system.memory.0.capacity.map(|c| c.0);
        for (s, stage) in stages.iter().enumerate() {
            if let Some(capacity) = capacity.filter(|c| stage.memory.total() > c * (1.0 + TOLERANCE)) {
                broken.push(format!(
                    "a chip{} needs {} of DRAM, its memory has {}",
                    if self.pp > 1 { format!(" of stage {s}") } else { String::new() },
                    crate::units::Bytes(stage.memory.total()),
                    crate::units::Bytes(capacity)
                ));
            }
        }
        if !broken.is_empty() {
            return Err(broken);
        }
        let memory = stages
            .iter()
            .map(|s| s.memory)
            .fold(DramNeed::default(), |most, m| if m.total() > most.total() { m } else { most });
        let iteration = self.iteration(layer_s, &stages);
        let energy = self.energy(&partitions, iteration.total_s());
        Ok(Figures {
            tp: self.tp,
            pp: self.pp,
            dp: self.dp,
            partitions,
            layer_s,
            iteration,
            stages,
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
    /// A block may have a chip of its own: only its partitions count, what comes from another block is an input, and what
    /// goes to one an output.
    fn live_bytes(&self, stored_bytes: &[f64]) -> Vec<f64> {
        let mut live = vec![0.0; self.index.partitions.len()];
        for block in 0..self.w.block_count() {
            let here = |k: usize| self.w.kernels[k].block == block;
            let order: Vec<usize> = (0..live.len()).filter(|p| self.block_of_partition(*p) == block).collect();
            let place = |k: usize| order.binary_search(&self.d.partition[k]).unwrap_or(0);
            for Copied { id, uses, leaves } in &self.index.copies {
                let producer = self.w.tensors[*id].producer.filter(|k| here(*k));
                let inside = uses.iter().filter(|u| here(u.kernel));
                if producer.is_none() && inside.clone().next().is_none() {
                    continue;
                }
                let leaves = producer.is_some() && (*leaves || inside.clone().count() < uses.len());
                let made_at = producer.map(place);
                let last_load = inside.map(|u| place(u.kernel)).filter(|p| made_at != Some(*p)).max();
                let stored = leaves || last_load.is_some();
                if self.w.tensors[*id].in_place || (producer.is_some() && !stored) {
                    continue;
                }
                let from = made_at.unwrap_or(0);
                let end = if leaves { order.len() } else { last_load.map_or(0, |last| last + 1) };
                for p in order.iter().take(end).skip(from) {
                    live[*p] += stored_bytes[*id] / self.samples * self.w.micro_batch as f64;
                }
            }
        }
        live
    }
}
