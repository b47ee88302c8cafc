//! What a partition holds on chip, and how long it computes.

use super::Derivation;
use super::index::Copied;
use crate::model::compute::{CoreOption, Tiling, gradient_bytes, local, pieces, problems, tensor_bytes, weight_bytes};
use crate::model::layout::{Layout, produced};
use crate::model::rate::Compute;
use crate::plan::TOLERANCE;
use crate::system::options::WeightTraffic;

impl Derivation<'_> {
    pub(super) fn tiling(&self) -> Tiling {
        Tiling::new(self.d.tiles, &self.system.model)
    }

    /// SRAM of the weights that stay on chip, each once, and of their gradients: all layers of the stage.
    pub(super) fn kept_bytes(&self) -> f64 {
        if !self.d.weights_on_chip {
            return 0.0;
        }
        *self.kept.get_or_init(|| self.kept_of_stage())
    }

    fn kept_of_stage(&self) -> f64 {
        let word = self.w.word_bytes;
        let layer: f64 = self
            .w
            .kernels
            .iter()
            .zip(&self.d.sharding)
            .map(|(kernel, s)| {
                let weight = if kernel.owns_weight() { weight_bytes(kernel, *s, self.tp, word) } else { 0.0 };
                weight + gradient_bytes(kernel, *s, self.tp, word)
            })
            .sum();
        layer * self.d.longest().unwrap_or(0) as f64
    }

    /// SRAM that a kernel holds through its partition when it is whole: its weight, and the gradient it accumulates.
    pub(super) fn held_bytes(&self, k: usize) -> f64 {
        if self.d.weights_on_chip || self.rate.chooses_tiles() {
            return 0.0;
        }
        let kernel = &self.w.kernels[k];
        let word = self.w.word_bytes;
        let weight = weight_bytes(kernel, self.d.sharding[k], self.tp, word);
        match self.system.model.weight_traffic {
            WeightTraffic::Streamed if kernel.lookup => 0.0,
            WeightTraffic::Streamed => weight + gradient_bytes(kernel, self.d.sharding[k], self.tp, word),
            _ => weight,
        }
    }

    /// Pieces in which kernel `k` must hold its weight when it is alone on the chip, and how often it then loads an operand of which each of its problems has its own part; one and one
    /// when it fits whole.
    pub(super) fn pieces(&self, k: usize, levels: &[usize]) -> Result<[f64; 2], String> {
        let mut buffers = 0.0;
        for &at in &self.index.copies_of[k] {
            let Copied { id, uses, leaves } = &self.index.copies[at];
            let id = *id;
            let load =
                uses.iter().filter(|u| u.kernel == k).map(|u| self.buffer(id, u, false, levels)).fold(0.0, f64::max);
            let stores = self.w.tensors[id].producer == Some(k) && (*leaves || !uses.is_empty());
            buffers += if stores { load.max(self.store_buffer(id)) } else { load };
        }
        let held = self.held_bytes(k);
        let room = self.sram_limit() - self.kept_bytes() - buffers;
        if held <= room * (1.0 + TOLERANCE) {
            return Ok([1.0; 2]);
        }
        let shard = local(&self.w.kernels[k], self.d.sharding[k], self.tp, Tiling::WHOLE);
        let rows = shard.rows as f64;
        if held / rows > room {
            return Err(format!(
                "kernel {} alone needs {} of SRAM, the chip has {}",
                self.w.kernels[k].name,
                crate::units::Bytes(self.kept_bytes() + buffers + held / rows),
                crate::units::Bytes(self.system.chip.0.sram.0)
            ));
        }
        let (pieces, own) = pieces(held, room, problems(&self.w.kernels[k], &shard));
        Ok([pieces as f64, own as f64])
    }

    pub(super) fn sram_limit(&self) -> f64 {
        self.rate.sram_bytes
    }

    pub(super) fn store_buffer(&self, id: usize) -> f64 {
        if self.rate.chooses_tiles() {
            return 0.0;
        }
        let tensor = &self.w.tensors[id];
        let made =
            tensor.producer.map_or(Layout::Replicated, |p| produced(self.d.sharding[p], self.system.model.layouts));
        let (whole, tile) = tensor_bytes(tensor, made, self.tp, self.tiling(), self.w.word_bytes);
        if self.is_added_up(tensor) { whole } else { self.system.model.crossing_buffers as f64 * tile }
    }

    /// Seconds of arithmetic of a partition. Shared cores: starting from the fewest, the slowest kernel gets its next
    /// larger allocation for as long as cores are left; no other split makes the slowest faster.
    pub(super) fn compute_s(&self, inside: &[usize]) -> Option<f64> {
        let cores = self.system.chip.0.cores;
        let mut seconds = 0.0;
        let mut options: Vec<Vec<CoreOption>> = Vec::new();
        for &k in inside {
            match self.rate.compute(&self.w.kernels[k], self.d.sharding[k], self.tp, self.d.tiles, self.samples) {
                Compute::Seconds(s) => seconds += s,
                Compute::Cores(o) => options.push(o),
            }
        }
        if options.is_empty() {
            return Some(seconds);
        }
        let mut at = vec![0usize; options.len()];
        let used = |at: &[usize]| -> u64 { at.iter().zip(&options).map(|(i, o)| o[*i].cores).sum() };
        if used(&at) > cores {
            return None;
        }
        loop {
            let slowest = (0..options.len())
                .max_by(|a, b| options[*a][at[*a]].seconds.total_cmp(&options[*b][at[*b]].seconds))?;
            let now = options[slowest][at[slowest]].seconds;
            let mut next = at.clone();
            next[slowest] += 1;
            if next[slowest] >= options[slowest].len() || used(&next) > cores {
                return Some(now);
            }
            at = next;
        }
    }
}
