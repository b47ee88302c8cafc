//! What is moved: who reads a tensor in which layout, which conversions that takes and who pays, bytes stored and loaded.

use super::Derivation;
use super::index::Copied;
use crate::graph::{Axis, CollectiveKind, Phase, Tensor, Use};
use crate::model::collective;
use crate::model::compute::{gradient_bytes, lag, local, tensor_bytes};
use crate::model::layout::{Layout, Strategy, conversion, produced, required};
use crate::model::schedule::microbatches;
use crate::system::options::{Charge, Fanout, GradientReduction, Layouts};

impl Derivation<'_> {
    /// Every reader of a tensor: in the layer, and in the next one where it is carried there and that is charged.
    pub(super) fn readers(&self, id: usize) -> Vec<(&Use, bool)> {
        let charged = self.system.model.boundary_tensors == Charge::Charged;
        let next = self.index.carried_to[id].iter().filter(move |_| charged);
        let here = self.w.tensors[id].consumers.iter().map(|u| (u, false));
        here.chain(next.flat_map(|t| self.w.tensors[*t].consumers.iter().map(|u| (u, true)))).collect()
    }

    pub(super) fn wanted(&self, u: &Use) -> Layout {
        required(&self.w.kernels[u.kernel], u.slot, self.d.sharding[u.kernel], self.system.model.layouts)
    }

    pub(super) fn same_phase(&self, a: usize, b: usize) -> bool {
        (self.w.kernels[a].phase == Phase::Forward) == (self.w.kernels[b].phase == Phase::Forward)
    }

    /// Seconds of collectives that kernel `k` pays for.
    pub(super) fn network_s(&self, k: usize) -> f64 {
        let options = &self.system.model;
        let kernel = &self.w.kernels[k];
        let word = self.w.word_bytes;
        let seconds = |kind, bytes: f64| collective::seconds(kind, &self.tp_group, bytes * self.samples, options);
        let mut total = collective::own_seconds(kernel, &self.own, self.samples, options);
        let here = local(kernel, self.d.sharding[k], self.tp, self.tiling());
        if options.layouts == Layouts::Dfmodel && self.d.sharding[k] == Strategy::K {
            let tiles = if kernel.tiled == Axis::K { 1.0 } else { here.tiles as f64 };
            total +=
                seconds(CollectiveKind::AllReduce, here.rows as f64 * here.n as f64 * tiles * kernel.word_or(word));
        }
        if self.w.training && options.gradient_reduction == GradientReduction::PerMicrobatch {
            let bytes =
                gradient_bytes(kernel, self.d.sharding[k], self.tp, word) / microbatches(self.w, options, self.dp);
            total += collective::gradient_seconds(&self.dp_group, bytes, options);
        }
        for &id in &self.index.tensors_of[k] {
            for (layout, kind, share) in self.conversions_paid_by(k, id) {
                let tensor = &self.w.tensors[id];
                let full = tensor.bytes(word);
                let shard = tensor_bytes(tensor, layout, self.tp, self.tiling(), word).0;
                let bytes = match (options.layouts, kind) {
                    (Layouts::Dfmodel, _) | (_, CollectiveKind::AllToAll) => shard,
                    _ => full,
                };
                total += seconds(kind, bytes) * share;
            }
        }
        total
    }

    /// Conversions of tensor `id` that kernel `k` pays: the layout it is made in, the collective, and what part of it counts
    /// in one repetition. The producer
    /// pays for readers of its phase and of the next layer, each layout once; the first reader of another phase pays
    /// for a layout there. With replicated fan-out every reader has its own. What goes from block to block is converted once
    /// a microbatch, unless it is there in that layout already: the block that is repeated less pays, the reader's of equals.
    pub(super) fn conversions_paid_by(&self, k: usize, id: usize) -> Vec<(Layout, CollectiveKind, f64)> {
        let tensor = &self.w.tensors[id];
        let Some(producer) = tensor.producer else { return Vec::new() };
        // A reader pays in another phase or block than the producer's alone.
        let together = self.same_phase(producer, k) && self.w.kernels[producer].block == self.w.kernels[k].block;
        if producer != k && (together || !tensor.consumers.iter().any(|u| u.kernel == k)) {
            return Vec::new();
        }
        let made = produced(self.d.sharding[producer], self.system.model.layouts);
        let shared = self.system.model.tensor_fanout == Fanout::Shared;
        let mut done: Vec<(bool, Layout)> = Vec::new();
        let mut mine = Vec::new();
        let block = |k: usize| self.w.kernels[k].block;
        let crosses = |u: &Use, next_layer: bool| !next_layer && block(u.kernel) != block(producer);
        let (inside, across): (Vec<_>, Vec<_>) = self.readers(id).into_iter().partition(|(u, next)| !crosses(u, *next));
        for (u, next_layer) in inside.into_iter().chain(across) {
            let at_producer = next_layer || crosses(u, next_layer) || self.same_phase(producer, u.kernel);
            let wanted = self.wanted(u);
            if shared && done.contains(&(at_producer, wanted)) {
                continue;
            }
            done.push((at_producer, wanted));
            let (here, there) = (self.w.repeats(block(producer)), self.w.repeats(block(u.kernel)));
            let (payer, share) = match crosses(u, next_layer) {
                true if there <= here => (u.kernel, 1.0 / there as f64),
                true => (producer, 1.0 / here as f64),
                false => (if at_producer { producer } else { u.kernel }, 1.0),
            };
            if let (true, Ok(Some(kind))) = (payer == k, conversion(made, wanted)) {
                mine.push((made, kind, share));
            }
        }
        mine
    }

    /// Whether a producer converts what a reader of its pass wants, before it is stored: in its own block, and for a block that is
    /// repeated more often.
    fn converts_for(&self, producer: usize, u: &Use) -> bool {
        let (here, there) = (self.w.kernels[producer].block, self.w.kernels[u.kernel].block);
        here == there || self.w.repeats(there) > self.w.repeats(here)
    }

    /// Bytes of one pass of a tensor as it is stored.
    pub(super) fn stored_bytes(&self, id: usize) -> f64 {
        let tensor = &self.w.tensors[id];
        let Some(producer) = tensor.producer else {
            // An input lies in DRAM as its widest reader wants it.
            return tensor.consumers.iter().map(|u| self.loaded_bytes(id, u)).fold(0.0, f64::max);
        };
        let word = self.w.word_bytes;
        let bytes = |layout| tensor_bytes(tensor, layout, self.tp, self.tiling(), word).0 * self.samples;
        let made = bytes(produced(self.d.sharding[producer], self.system.model.layouts));
        if self.system.model.layouts == Layouts::Dfmodel {
            return made;
        }
        let carried = self.index.carried_to[id].iter().flat_map(|t| &self.w.tensors[*t].consumers);
        let widest = tensor
            .consumers
            .iter()
            .filter(|u| self.same_phase(producer, u.kernel) && self.converts_for(producer, u))
            .chain(carried)
            .map(|u| bytes(self.wanted(u)))
            .fold(0.0, f64::max);
        if widest > 0.0 { widest } else { made }
    }

    /// Layout in which a tensor is read on chip or loaded.
    pub(super) fn read_layout(&self, tensor: &Tensor, u: &Use) -> Layout {
        match (self.system.model.layouts, tensor.producer) {
            (Layouts::Dfmodel, Some(p)) => produced(self.d.sharding[p], Layouts::Dfmodel),
            (Layouts::Dfmodel, None) => Layout::Replicated,
            (Layouts::Flowspace, _) => self.wanted(u),
        }
    }

    pub(super) fn loaded_bytes(&self, id: usize, u: &Use) -> f64 {
        let tensor = &self.w.tensors[id];
        let layout = self.read_layout(tensor, u);
        let bytes = tensor_bytes(tensor, layout, self.tp, self.tiling(), self.w.word_bytes).0 * self.samples;
        if tensor.producer.is_some() { bytes.min(self.stored_bytes(id)) } else { bytes }
    }

    /// Whether a reader needs an operand whole before it can begin.
    fn needs_whole(&self, u: &Use, on_chip: bool) -> bool {
        let streamed = self.w.kernels[u.kernel].streamed();
        self.system.model.stationary_operands == Charge::Charged
            && match on_chip {
                true => u.slot.is_whole_on_chip(streamed),
                false => streamed == Axis::N && u.slot.is_stationary(),
            }
    }

    /// Whether a tensor is added up over a sample, so that all of it lies in the SRAM until it is there.
    pub(super) fn is_added_up(&self, tensor: &Tensor) -> bool {
        self.system.model.stationary_operands == Charge::Charged
            && tensor.producer.is_some_and(|p| self.w.kernels[p].accumulates)
    }

    /// When the last kernel of a partition begins after the first, as a part of its pass: found by letting each reader wait for what it
    /// reads of the others until none waits longer.
    pub(super) fn last_begins(&self, inside: &[usize]) -> f64 {
        if !self.rate.fills() || inside.len() < 2 {
            return 0.0;
        }
        let mut waits: Vec<(usize, usize, f64)> = Vec::new();
        for at in self.index.copies_near(inside) {
            let Copied { id, uses, .. } = &self.index.copies[at];
            let tensor = &self.w.tensors[*id];
            let Some(from) = tensor.producer.and_then(|p| inside.binary_search(&p).ok()) else { continue };
            for u in uses.iter() {
                let Ok(to) = inside.binary_search(&u.kernel) else { continue };
                let cut = tensor_bytes(tensor, self.read_layout(tensor, u), self.tp, self.tiling(), self.w.word_bytes);
                let after = lag(&self.w.kernels[inside[from]], self.needs_whole(u, true), cut, self.samples);
                waits.push((from, to, after));
            }
        }
        let mut begins = vec![0.0_f64; inside.len()];
        // No way has more kernels than there are.
        for _ in inside {
            let mut moved = false;
            for (from, to, after) in &waits {
                let begin = begins[*from] + after;
                if begin > begins[*to] {
                    (begins[*to], moved) = (begin, true);
                }
            }
            if !moved {
                break;
            }
        }
        begins.into_iter().fold(0.0, f64::max)
    }

    /// SRAM of a reader's buffer: loaded from DRAM, or passed on chip.
    pub(super) fn buffer(&self, id: usize, u: &Use, on_chip: bool, levels: &[usize]) -> f64 {
        if self.rate.chooses_tiles() {
            return 0.0;
        }
        let tensor = &self.w.tensors[id];
        let (whole, tile) =
            tensor_bytes(tensor, self.read_layout(tensor, u), self.tp, self.tiling(), self.w.word_bytes);
        let stationary = self.needs_whole(u, on_chip) || (on_chip && self.is_added_up(tensor));
        let depth = if on_chip {
            levels[u.kernel].abs_diff(tensor.producer.map_or(0, |p| levels[p])) as f64 + 1.0
        } else {
            self.system.model.crossing_buffers as f64
        };
        match (stationary, on_chip) {
            (true, true) => whole.max(depth * tile),
            (true, false) => whole,
            (false, _) => depth * tile,
        }
    }
}
