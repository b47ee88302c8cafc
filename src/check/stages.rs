//! The checker's own account of the pipeline's stages. It walks along the chain of units (the repetitions of the blocks, in order)
//! and writes down what each stage has of them.

use super::Derivation;
use crate::graph::Use;
use crate::model::compute::{Tiling, gradient_bytes, tensor_bytes, weight_bytes};
use crate::model::memory::{DramNeed, LayerNeed, of_layer};
use crate::model::schedule::{Iteration, Stage, hand_over, iteration, microbatches, update_s};
use crate::model::stages::{StageFigures, in_flight};
use crate::plan::PartitionFigures;
use crate::system::options::Pipeline;

/// One repetition of a block.
#[derive(Debug, Clone, Copy, Default)]
struct Unit {
    pass_s: f64,
    live: f64,
    need: LayerNeed,
    gradient_bytes: f64,
    weight_bytes: f64,
}

impl Derivation<'_> {
    /// The block of a unit; of those beyond the last (DFModel's stages have more than there are) the last.
    fn block_of(&self, unit: u64) -> usize {
        let mut end = 0;
        for b in 0..self.w.block_count() {
            end += self.w.repeats(b);
            if unit < end {
                return b;
            }
        }
        self.w.block_count() - 1
    }

    /// First unit of each stage, and the end.
    fn cuts(&self) -> Vec<u64> {
        let mut out = vec![0];
        for n in &self.d.stages {
            out.push(out.last().copied().unwrap_or(0) + n);
        }
        out
    }

    /// Units of each block that a stage has; no more than there are.
    pub(super) fn units_of(&self, stage: usize) -> Vec<u64> {
        let mut out = vec![0; self.w.block_count()];
        let cuts = self.cuts();
        for unit in cuts[stage]..cuts[stage + 1].min(self.w.repeat) {
            out[self.block_of(unit)] += 1;
        }
        out
    }

    /// The block of a partition's kernels.
    pub(super) fn block_of_partition(&self, p: usize) -> usize {
        self.index.partitions[p].first().map_or(0, |k| self.w.kernels[*k].block)
    }

    fn unit(&self, block: usize, partitions: &[PartitionFigures]) -> Unit {
        let (w, options) = (self.w, &self.system.model);
        let word = w.word_bytes;
        let here = (0..w.kernels.len()).filter(|k| w.kernels[*k].block == block);
        let own: Vec<_> = here.clone().map(|k| self.d.sharding[k]).collect();
        let of_block = |p: &usize| self.block_of_partition(*p) == block;
        let inside: Vec<&PartitionFigures> = (0..partitions.len()).filter(of_block).map(|p| &partitions[p]).collect();
        let chips = self.system.chip_count();
        let degrees = (self.tp, self.dp);
        Unit {
            pass_s: inside.iter().map(|p| p.time_s).sum(),
            live: inside.iter().map(|p| p.live_bytes).fold(0.0, f64::max),
            need: if w.is_chain() {
                of_layer(&w.of_block(block).0, options, &own, degrees, chips)
            } else {
                of_layer(w, options, &self.d.sharding, degrees, chips)
            },
            gradient_bytes: here
                .clone()
                .map(|k| gradient_bytes(&w.kernels[k], self.d.sharding[k], self.tp, word))
                .sum(),
            weight_bytes: here
                .filter(|k| w.kernels[*k].owns_weight())
                .map(|k| weight_bytes(&w.kernels[k], self.d.sharding[k], self.tp, word))
                .sum(),
        }
    }

    /// Bytes of one sample, and messages, that cross before unit `cut`: what a block carries, or what one hands to the next and
    /// gets back, as the reader wants it.
    pub(super) fn handed_over(&self, cut: u64) -> (f64, u64) {
        let (before, after) = (self.block_of(cut - 1), self.block_of(cut));
        let block = |k: usize| self.w.kernels[k].block;
        let (mut bytes, mut messages) = (0.0, 0);
        for tensor in &self.w.tensors {
            let readers: Vec<&Use> = if before == after {
                let carried = tensor.carried_from.is_some();
                tensor.consumers.iter().filter(|u| carried && block(u.kernel) == before).collect()
            } else {
                let Some(from) = tensor.producer.map(block) else { continue };
                let to = if from == before { after } else { before };
                let meets = from == before || from == after;
                tensor.consumers.iter().filter(|u| meets && block(u.kernel) == to).collect()
            };
            if readers.is_empty() {
                continue;
            }
            messages += 1;
            bytes += if self.system.model.pipeline == Pipeline::OneForwardOneBackward {
                let of = |u: &&Use| tensor_bytes(tensor, self.wanted(u), self.tp, Tiling::WHOLE, self.w.word_bytes).0;
                readers.iter().map(of).fold(0.0, f64::max)
            } else {
                tensor.bytes(self.w.word_bytes)
            };
        }
        (bytes, messages)
    }

    /// What the schedule needs to know of units of so many bytes together.
    fn schedule(&self, pass_s: f64, gradient_bytes: f64, weight_bytes: f64) -> Stage<'_> {
        let (carried_bytes, hand_overs) = if self.w.is_chain() { (0.0, 0) } else { self.handed_over(1) };
        Stage {
            layer_s: pass_s,
            pp: self.pp,
            longest: self.d.longest().unwrap_or(0),
            dp: self.dp,
            carried_bytes,
            hand_overs,
            layer_weight_bytes: weight_bytes,
            layer_gradient_bytes: gradient_bytes,
            pp_group: &self.pp_group,
            dp_group: &self.dp_group,
        }
    }

    /// Every stage: its microbatch's time, what it does once an iteration, what its chips hold.
    pub(super) fn stages(&self, partitions: &[PartitionFigures]) -> Vec<StageFigures> {
        let options = &self.system.model;
        let b = microbatches(self.w, options, self.dp);
        let blocks: Vec<Unit> = (0..self.w.block_count()).map(|block| self.unit(block, partitions)).collect();
        let cuts = self.cuts();
        let last = cuts.len() - 1;
        let crossing: Vec<f64> = (0..=last)
            .map(|c| {
                if c == 0 || c == last {
                    return 0.0;
                }
                let (bytes, messages) = self.handed_over(cuts[c]);
                hand_over(&self.pp_group, bytes * self.samples, messages)
            })
            .collect();
        let stage = |s: usize| {
            let counts: Vec<u64> = blocks
                .iter()
                .enumerate()
                .map(|(block, _)| (cuts[s]..cuts[s + 1]).filter(|u| self.block_of(*u) == block).count() as u64)
                .collect();
            let sum = |f: fn(&Unit) -> f64| -> f64 { blocks.iter().zip(&counts).map(|(u, n)| f(u) * *n as f64).sum() };
            let held = self.schedule(0.0, sum(|u| u.gradient_bytes), sum(|u| u.weight_bytes));
            let (gradient_s, optimizer_s) = update_s(self.w, self.system, &held, 1);
            let waiting = in_flight(options.pipeline, self.pp, s as u64, b) as f64;
            // One unit is at work: what it keeps of one microbatch waits with the rest of its tensors. Which unit that is, the
            // fullest moment says.
            let moment = |u: &Unit| DramNeed {
                weights: sum(|u| u.need.weights),
                gradients: sum(|u| u.need.gradients),
                optimizer: sum(|u| u.need.weights * u.need.optimizer_share),
                activations: (sum(|u| u.need.kept) * waiting - u.need.kept).max(0.0),
                held: u.need.held,
                caches: sum(|u| u.need.caches),
                live: u.live,
            };
            let present = blocks.iter().zip(&counts).filter(|(_, n)| **n > 0).map(|(u, _)| moment(u));
            StageFigures {
                layers: self.d.stages[s],
                pass_s: sum(|u| u.pass_s),
                hand_over_s: crossing[s].max(crossing[s + 1]),
                gradient_s,
                optimizer_s,
                memory: present.reduce(|a, b| if b.total() > a.total() { b } else { a }).unwrap_or_default(),
                of_blocks: counts,
            }
        };
        (0..last).map(stage).collect()
    }

    /// The iteration: of 1F1B from the stages one by one, of DFModel's schedules as they define it.
    pub(super) fn iteration(&self, layer_s: f64, stages: &[StageFigures]) -> Iteration {
        let b = microbatches(self.w, &self.system.model, self.dp);
        if self.system.model.pipeline != Pipeline::OneForwardOneBackward {
            let unit = self.unit(0, &[]);
            return iteration(self.w, self.system, &self.schedule(layer_s, unit.gradient_bytes, unit.weight_bytes));
        }
        // The first microbatch goes through every stage; each of the others ends as much later as the slowest stage takes.
        let passes: f64 = stages.iter().map(StageFigures::time_s).sum();
        let slowest = stages.iter().fold(None, |most: Option<&StageFigures>, s| match most {
            Some(m) if m.time_s() >= s.time_s() => Some(m),
            _ => Some(s),
        });
        let update = stages.iter().fold((0.0, 0.0), |most: (f64, f64), s| {
            if s.update_s() > most.0 + most.1 { (s.gradient_s, s.optimizer_s) } else { most }
        });
        let (work_s, hand_over_s) = slowest.map_or((0.0, 0.0), |s| (s.pass_s, s.hand_over_s));
        let p2p_s = stages.iter().map(|s| s.hand_over_s).sum::<f64>() + (b - 1.0) * hand_over_s;
        Iteration {
            work_s: b * work_s,
            // What is neither the slowest stage's work nor hand-over: filling and draining.
            bubble_s: passes + (b - 1.0) * (work_s + hand_over_s) - p2p_s - b * work_s,
            p2p_s,
            gradient_s: update.0,
            optimizer_s: update.1,
            microbatches: b,
            layers_per_stage: self.d.longest().unwrap_or(0),
        }
    }
}
