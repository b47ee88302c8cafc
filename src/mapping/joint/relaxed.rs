//! A fusion problem that is no harder than that of any sharding out of a set.
//!
//! Given are the strategies still open to each kernel. Every cost of the problem built here is at most what it is under
//! every choice among them (and under every tile count between two): the least arithmetic, weight and traffic over a
//! kernel's own strategies, the smallest buffers and bytes over the layouts that its tensors may have, and of the
//! conversions of a tensor what the dearest of its readers cannot avoid. So its optimum, and the iteration that follows
//! from it, bound all of them from below. With one strategy a kernel and one tile count it is the problem itself, but for
//! conversions of several readers in other phases.

use super::super::degrees::Degrees;
use super::super::goal::Rates;
use super::super::instance::{CAPACITY_TOLERANCE, Compute, Instance, KernelCost, TensorCost, UseCost};
use super::super::search::Search;
use crate::model::Strategy;
use crate::model::collective;
use crate::model::compute::{
    CoreOption, Tiling, extra_dram, extra_dram_share, gradient_bytes, has_own_part, lag, local, moved_bytes, pieces,
    problems, tensor_bytes, weight_bytes,
};
use crate::model::layout::{Layout, produced, required};
use crate::model::memory::{LayerNeed, kept_readers, optimizer_bytes_per_weight};
use crate::model::schedule::{Stage, microbatches, samples_per_pass};
use crate::system::Style;
use crate::system::options::{Charge, Fanout, Layouts, MemoryState, Phases, Pipeline, WeightTraffic};
use crate::workload::{Axis, Kernel, Op, Phase, Tensor, Use};
use std::cell::OnceCell;

/// Strategies still open to each kernel.
pub type Open = Vec<Vec<Strategy>>;

/// Least value of a function over the strategies of a set; infinite over none.
pub(super) fn least(of: &[Strategy], f: impl Fn(Strategy) -> f64) -> f64 {
    of.iter().map(|s| f(*s)).fold(f64::INFINITY, f64::min)
}

/// The relaxation of one assignment of dimensions.
pub struct Relaxation<'a> {
    pub(super) search: &'a Search<'a>,
    pub(super) degrees: &'a Degrees,
    levels: Vec<usize>,
    /// The tensors that are what the next layer reads of each.
    pub(super) next: Vec<Vec<usize>>,
    /// The tensors that each kernel makes.
    pub(super) made: Vec<Vec<usize>>,
    pub(super) samples: f64,
    pub(super) passes: f64,
    /// Layers of the longest stage: no fewer, and no more.
    longest: (u64, u64),
    /// What a layer pass counts in the objective, where the longest stage is the shortest that it may be.
    pub(super) rates: Rates,
    /// By kernel and strategy: what [`Self::held_by`] counts for each layer and for each copy.
    held: Vec<[OnceCell<(f64, f64)>; Strategy::ALL.len()]>,
}

impl<'a> Relaxation<'a> {
    /// For an assignment, and divisions whose longest stage has so many layers.
    pub fn new(search: &'a Search<'a>, degrees: &'a Degrees, longest: (u64, u64)) -> Self {
        let (w, options) = (search.workload, &search.system.model);
        let mut next = vec![Vec::new(); w.tensors.len()];
        let mut made = vec![Vec::new(); w.kernels.len()];
        for (id, tensor) in w.tensors.iter().enumerate() {
            if let Some(p) = tensor.producer {
                made[p].push(id);
            }
            if let Some(from) = tensor.carried_from {
                next[from].push(id);
            }
        }
        Self {
            search,
            degrees,
            levels: w.levels(),
            next,
            made,
            samples: samples_per_pass(w, options),
            passes: microbatches(w, options, degrees.dp),
            longest,
            rates: search.rates(degrees, longest.0),
            held: vec![Default::default(); w.kernels.len()],
        }
    }

    pub(super) fn kernel(&self, k: usize) -> &'a Kernel {
        &self.search.workload.kernels[k]
    }

    pub(super) fn layouts(&self) -> Layouts {
        self.search.system.model.layouts
    }

    pub(super) fn wanted(&self, u: &Use, s: Strategy) -> Layout {
        required(self.kernel(u.kernel), u.slot, s, self.layouts())
    }

    /// Bytes of a sample and of a tile of a tensor in a layout.
    pub(super) fn bytes(&self, tensor: &Tensor, layout: Layout, tiles: u64) -> (f64, f64) {
        tensor_bytes(
            tensor,
            layout,
            self.degrees.tp,
            Tiling::new(tiles, &self.search.system.model),
            self.search.workload.word_bytes,
        )
    }

    pub(super) fn same_phase(&self, a: usize, b: usize) -> bool {
        (self.kernel(a).phase == Phase::Forward) == (self.kernel(b).phase == Phase::Forward)
    }

    /// Bytes in a chip's DRAM, without waiting tensors, that no choice goes below ([`crate::model::memory::resident`]).
    pub fn least_resident(&self, open: &Open) -> f64 {
        let pipe = self.search.pipe(self.degrees);
        pipe.fullest(&self.least_need(open), self.longest.1).total() * (1.0 - CAPACITY_TOLERANCE)
    }

    /// What a layer asks of the DRAM, each kind at its least.
    pub(super) fn least_need(&self, open: &Open) -> LayerNeed {
        let each = open.iter().enumerate();
        let whole = each.clone().map(|(k, open)| least(open, |s| self.held_by(k, s, (1.0, 0.0)))).sum();
        let kept = each.map(|(k, open)| least(open, |s| self.held_by(k, s, (0.0, 1.0)))).sum();
        LayerNeed { weights: whole, kept, held: self.held_by_all(), ..LayerNeed::default() }
    }

    /// What some chip of any division holds of a layer, and of its kept activations, at least ([`Pipe::shares`]).
    ///
    /// [`Pipe::shares`]: super::super::stages::Pipe::shares
    pub fn shares(&self, open: &Open) -> (f64, f64) {
        self.search.pipe(self.degrees).shares(&self.least_need(open), self.longest.1)
    }

    /// The same shares for other layers than the least: what any of them says holds, and for any layer one of them nearly says what fits
    /// ([`Pipe::cuts`]).
    ///
    /// [`Pipe::cuts`]: super::super::stages::Pipe::cuts
    pub fn more_shares(&self) -> Vec<(f64, f64)> {
        self.search.pipe(self.degrees).cuts(self.longest.1)
    }

    /// Bytes in a chip's DRAM that no sharding changes.
    pub fn held_by_all(&self) -> f64 {
        self.search.workload.held_bytes / self.search.system.chip_count() as f64
    }

    /// Bytes in a chip's DRAM that a kernel's strategy decides: its weight with gradients, states and caches, so many layers
    /// of them, and so often what one microbatch keeps of its result for the backward pass.
    pub fn held_by(&self, i: usize, s: Strategy, (layers, copies): (f64, f64)) -> f64 {
        let (of_layer, of_copy) = *self.held[i][s as usize].get_or_init(|| self.held(i, s));
        of_layer * layers + of_copy * copies
    }

    /// The bytes of a layer and of a copy.
    fn held(&self, i: usize, s: Strategy) -> (f64, f64) {
        let (w, options, t) = (self.search.workload, &self.search.system.model, self.degrees.tp);
        let (k, word) = (self.kernel(i), w.word_bytes);
        let full = options.memory_state == MemoryState::Full;
        let training = full && w.training;
        let by_weight = if training { 1.0 + optimizer_bytes_per_weight(word) / word } else { 1.0 };
        let counted = k.op == Op::GemmWeight && (!full || k.weight_of.is_none());
        let weights = if counted { weight_bytes(k, s, t, word) * by_weight } else { 0.0 };
        let gradients = if training { gradient_bytes(k, s, t, word) } else { 0.0 };
        let samples = w.global_batch.div_ceil(self.degrees.dp.max(1)) as f64;
        let caches = if full { k.cache_bytes / extra_dram_share(k, s, t) * samples } else { 0.0 };
        let kept: f64 = if training && k.phase == Phase::Forward {
            self.made[i]
                .iter()
                .map(|id| &w.tensors[*id])
                .filter(|tensor| tensor.consumers.iter().any(|u| self.kernel(u.kernel).phase != Phase::Forward))
                .map(|tensor| self.bytes(tensor, produced(s, self.layouts()), 1).0)
                .sum()
        } else if training {
            // What is handed on and kept counts with the first of its readers in the backward pass: as the widest wants it, so no less.
            let first = |tensor: &&Tensor| kept_readers(w, tensor).next().is_some_and(|u| u.kernel == i);
            let of =
                |tensor: &Tensor| kept_readers(w, tensor).next().map(|u| self.bytes(tensor, self.wanted(u, s), 1).0);
            w.tensors.iter().filter(first).filter_map(of).sum()
        } else {
            0.0
        };
        (weights + gradients + caches, kept * w.micro_batch as f64)
    }

    /// Bytes that wait in a chip's DRAM between the passes, whatever the partitions, as far as a kernel's strategy decides them: all that
    /// was made or given before the backward pass and is read in it or leaves the layer, stored as its widest reader wants it
    /// ([`super::super::instance`]), so no less than as the first does. Beside what [`Self::held_by`] counts, where one layer's
    /// activations of one microbatch are left to what waits. Nothing where there is one pass, or several blocks.
    pub fn waits_by(&self, i: usize, s: Strategy) -> f64 {
        let (w, options) = (self.search.workload, &self.search.system.model);
        let forward = |k: usize| self.kernel(k).phase == Phase::Forward;
        let several = w.kernels.iter().any(|k| k.block != w.kernels[0].block);
        let passes = (0..w.kernels.len()).any(forward) && !(0..w.kernels.len()).all(forward);
        if !passes || several || options.layouts != Layouts::Flowspace || options.memory_state != MemoryState::Full {
            return 0.0;
        }
        let waits = |tensor: &Tensor| {
            let leaves = tensor.output && options.boundary_tensors == Charge::Charged;
            !tensor.in_place
                && tensor.producer.is_none_or(forward)
                && (leaves || tensor.consumers.iter().any(|u| !forward(u.kernel)))
        };
        let bytes = |(id, tensor): (usize, &Tensor)| {
            let carried = self.next[id].iter().flat_map(|c| &w.tensors[*c].consumers);
            let mut readers = tensor
                .consumers
                .iter()
                .filter(|u| tensor.producer.is_none_or(|p| self.same_phase(p, u.kernel)))
                .chain(carried);
            let (decides, layout) = match (readers.next(), tensor.producer) {
                (Some(u), _) => (u.kernel, self.wanted(u, s)),
                (None, Some(p)) => (p, produced(s, options.layouts)),
                (None, None) => return 0.0,
            };
            if decides == i { self.bytes(tensor, layout, 1).0 } else { 0.0 }
        };
        let all: f64 = w.tensors.iter().enumerate().filter(|(_, tensor)| waits(tensor)).map(bytes).sum();
        all * w.micro_batch as f64
    }

    /// What the schedule needs to know, at its least.
    pub fn stage(&self, open: &Open) -> Stage<'a> {
        let (w, t) = (self.search.workload, self.degrees.tp);
        let carried = w.tensors.iter().filter(|tensor| tensor.carried_from.is_some());
        let sum = |f: &dyn Fn(&Kernel, Strategy) -> f64| -> f64 {
            w.kernels.iter().zip(open).map(|(k, open)| least(open, |s| f(k, s))).sum()
        };
        let carried_bytes = if self.search.system.model.pipeline == Pipeline::OneForwardOneBackward {
            carried
                .clone()
                .map(|tensor| {
                    let each = tensor
                        .consumers
                        .iter()
                        .map(|u| least(&open[u.kernel], |s| self.bytes(tensor, self.wanted(u, s), 1).0));
                    each.fold(0.0, f64::max)
                })
                .sum()
        } else {
            w.carried_bytes()
        };
        Stage {
            layer_s: 0.0,
            pp: self.degrees.pp,
            longest: self.longest.0,
            dp: self.degrees.dp,
            carried_bytes,
            hand_overs: carried.count() as u64,
            layer_weight_bytes: sum(&|k, s| if k.owns_weight() { weight_bytes(k, s, t, w.word_bytes) } else { 0.0 }),
            layer_gradient_bytes: sum(&|k, s| gradient_bytes(k, s, t, w.word_bytes)),
            pp_group: &self.degrees.pp_group,
            dp_group: &self.degrees.dp_group,
        }
    }

    /// The relaxed problem for tile counts from `few` to `many`; `None` where nothing fits the SRAM.
    pub fn instance(&self, open: &Open, (few, many): (u64, u64), weights_on_chip: bool) -> Option<Instance> {
        let (w, system) = (self.search.workload, self.search.system);
        let (options, chip, t, word) = (&system.model, &system.chip.0, self.degrees.tp, w.word_bytes);
        let sram = self.search.rate.sram_bytes;
        let layers = w.repeat.div_ceil(self.degrees.pp) as f64;
        let held = |k: &Kernel, s: Strategy| {
            let owned = if k.owns_weight() { weight_bytes(k, s, t, word) } else { 0.0 };
            owned + gradient_bytes(k, s, t, word)
        };
        let base_sram_bytes = if weights_on_chip {
            layers * w.kernels.iter().zip(open).map(|(k, open)| least(open, |s| held(k, s))).sum::<f64>()
        } else {
            0.0
        };
        if base_sram_bytes > sram * (1.0 + CAPACITY_TOLERANCE) {
            return None;
        }
        let seconds = |tensor: &Tensor, made, wanted| self.convert(tensor, made, wanted, few);
        let mut network = self.conversions(open, &seconds);
        let mut kernels: Vec<KernelCost> = w
            .kernels
            .iter()
            .enumerate()
            .map(|(i, kernel)| {
                network[i] += collective::own_seconds(kernel, &self.degrees.own, self.samples, options)
                    + least(&open[i], |s| self.own_network(kernel, s, few));
                let resident = |s: Strategy| match options.weight_traffic {
                    _ if weights_on_chip => 0.0,
                    WeightTraffic::Streamed => {
                        let (weight, gradient) = moved_bytes(kernel, s, t, word);
                        weight + gradient
                    }
                    _ => weight_bytes(kernel, s, t, word),
                };
                let serial_s = match options.weight_traffic {
                    WeightTraffic::Setup if !weights_on_chip => {
                        let bandwidth = self.search.rate.dram_bytes_per_s * w.micro_batch as f64;
                        let extra = |s| extra_dram(kernel, s, t, self.samples) * w.micro_batch as f64;
                        least(&open[i], |s| weight_bytes(kernel, s, t, word) + extra(s)) / bandwidth
                    }
                    _ => 0.0,
                };
                KernelCost {
                    compute: self.compute(kernel, &open[i], few),
                    network_s: network[i],
                    serial_s,
                    resident_bytes: least(&open[i], resident),
                    dram_bytes: least(&open[i], |s| self.kernel_dram(kernel, s, weights_on_chip)),
                    pieces: 1,
                    backward: kernel.phase != Phase::Forward,
                }
            })
            .collect();
        let mut tensors = self.tensors(open, few, many);
        if self.search.rate.chooses_tiles() {
            super::super::amounts::nothing_on_chip(&mut kernels, &mut tensors);
        }
        let alone = super::super::amounts::buffers_alone(&tensors, kernels.len());
        for (i, kernel) in kernels.iter_mut().enumerate() {
            let room = sram - base_sram_bytes - alone[i];
            if kernel.resident_bytes <= room * (1.0 + CAPACITY_TOLERANCE) {
                continue;
            }
            let shards = || open[i].iter().map(|s| local(&w.kernels[i], *s, t, Tiling::WHOLE));
            let rows = shards().map(|shard| shard.rows).max().unwrap_or(1).max(1);
            if kernel.resident_bytes / rows as f64 > room * (1.0 + CAPACITY_TOLERANCE) || room <= 0.0 {
                return None;
            }
            // The more problems side by side, the fewer parts each needs.
            let problems = shards().map(|shard| problems(&w.kernels[i], &shard)).max().unwrap_or(1);
            let own = pieces(kernel.resident_bytes, room, problems).1;
            let least = ((kernel.resident_bytes / room).ceil() as u64).max(2);
            kernel.pieces = least;
            // What is in SRAM at once is less than what fits there.
            kernel.resident_bytes = 0.0;
            if options.weight_tiling == Charge::Charged {
                for u in tensors.iter().flat_map(|tensor| &tensor.uses).filter(|u| u.kernel == i) {
                    let times = if u.own_part { own } else { least };
                    kernel.dram_bytes += (times - 1) as f64 * u.load_bytes;
                }
            }
        }
        let both = options.phases == Phases::Apart
            && kernels.iter().any(|k| k.backward)
            && kernels.iter().any(|k| !k.backward);
        Some(Instance {
            pins: self.search.pins_partition.clone(),
            kernels,
            tensors,
            sram_bytes: sram,
            base_sram_bytes,
            live_limit: self.search.dram_capacity() - self.least_resident(open),
            cores: chip.cores,
            dram_bytes_per_s: self.search.rate.dram_bytes_per_s,
            overlap: system.overlap(),
            partition_overhead_s: self.search.rate.launch_s,
            kernel_by_kernel: chip.style == Style::KernelByKernel,
            separate_phases: both,
            max_partitions: self.search.request.max_partitions,
            goal: self.rates.goal(self.least_use(open, few) + self.rates.second * self.search.waits_between(open).0),
        })
    }

    /// Bytes of each tensor as it is stored, at their least, for all samples of a pass.
    pub fn least_stored(&self, open: &Open, tiles: u64) -> Vec<f64> {
        (0..self.search.workload.tensors.len()).map(|id| self.stored(id, open, tiles)).collect()
    }

    /// As it is made, or as the widest reader of its phase, or of the next layer, wants it.
    fn stored(&self, id: usize, open: &Open, tiles: u64) -> f64 {
        let w = self.search.workload;
        let tensor = &w.tensors[id];
        let made = match tensor.producer {
            Some(p) => least(&open[p], |s| self.bytes(tensor, produced(s, self.layouts()), tiles).0),
            None => self.bytes(tensor, Layout::Replicated, tiles).0,
        };
        if self.layouts() == Layouts::Dfmodel {
            return made * self.samples;
        }
        let carried = self.next[id].iter().flat_map(|c| &w.tensors[*c].consumers);
        let here = tensor.consumers.iter().filter(|u| tensor.producer.is_some_and(|p| self.same_phase(p, u.kernel)));
        let wants = |u: &Use| least(&open[u.kernel], |s| self.bytes(tensor, self.wanted(u, s), tiles).0);
        let widest = here.chain(carried).map(wants).fold(0.0, f64::max);
        self.samples * if widest > 0.0 { widest } else { made }
    }

    /// Compute time: the fewest seconds, or the core allocations of all strategies that are worth considering.
    pub(super) fn compute(&self, kernel: &Kernel, open: &[Strategy], tiles: u64) -> Compute {
        let mut least = f64::INFINITY;
        let mut all: Vec<CoreOption> = Vec::new();
        for s in open {
            match self.search.rate.compute(kernel, *s, self.degrees.tp, tiles, self.samples) {
                Compute::Seconds(seconds) => least = least.min(seconds),
                Compute::Cores(options) => all.extend(options),
            }
        }
        if least.is_finite() {
            return Compute::Seconds(least);
        }
        all.sort_by(|a, b| a.cores.cmp(&b.cores).then(a.seconds.total_cmp(&b.seconds)));
        let mut front: Vec<CoreOption> = Vec::new();
        for o in all {
            if front.last().is_none_or(|last| o.seconds < last.seconds) {
                front.push(o);
            }
        }
        Compute::Cores(front)
    }

    /// DRAM bytes that a kernel moves wherever it runs.
    pub(super) fn kernel_dram(&self, kernel: &Kernel, s: Strategy, weights_on_chip: bool) -> f64 {
        let (t, word) = (self.degrees.tp, self.search.workload.word_bytes);
        let weight = weight_bytes(kernel, s, t, word);
        let gradient = gradient_bytes(kernel, s, t, word);
        let weights = match self.search.system.model.weight_traffic {
            _ if weights_on_chip => (if kernel.owns_weight() { weight } else { 0.0 } + gradient) / self.passes,
            WeightTraffic::Streamed => {
                let (weight, gradient) = moved_bytes(kernel, s, t, word);
                weight + 2.0 * gradient
            }
            _ => 0.0,
        };
        match self.search.system.model.weight_traffic {
            WeightTraffic::Setup if !weights_on_chip => weights,
            _ => weights + extra_dram(kernel, s, t, self.samples),
        }
    }

    fn tensors(&self, open: &Open, few: u64, many: u64) -> Vec<TensorCost> {
        let (w, options) = (self.search.workload, &self.search.system.model);
        let whole = options.stationary_operands == Charge::Charged;
        let fills = self.search.rate.fills();
        let mut out = Vec::with_capacity(w.tensors.len());
        for (id, tensor) in w.tensors.iter().enumerate() {
            if !options.counts(tensor) {
                continue;
            }
            let made = |tiles: u64, part: fn((f64, f64)) -> f64| match tensor.producer {
                Some(p) => least(&open[p], |s| part(self.bytes(tensor, produced(s, options.layouts), tiles))),
                None => part(self.bytes(tensor, Layout::Replicated, tiles)),
            };
            let added_up = whole && tensor.producer.is_some_and(|p| self.kernel(p).accumulates);
            // At its least in the layouts that a reader may want; in DFModel's rules as it is made.
            let read = |u: &Use, tiles: u64, part: fn((f64, f64)) -> f64| match options.layouts {
                Layouts::Dfmodel => made(tiles, part),
                Layouts::Flowspace => least(&open[u.kernel], |s| part(self.bytes(tensor, self.wanted(u, s), tiles))),
            };
            let mut store_bytes = self.stored(id, open, few);
            let uses: Vec<UseCost> = tensor
                .consumers
                .iter()
                .map(|u| {
                    let (bytes, tile) = (read(u, few, |b| b.0), read(u, many, |b| b.1));
                    let level = tensor.producer.map_or(0, |p| self.levels[p]);
                    let depth = self.levels[u.kernel].abs_diff(level) as f64 + 1.0;
                    let streamed = self.kernel(u.kernel).streamed();
                    let needed_whole = whole && u.slot.is_whole_on_chip(streamed);
                    let load = bytes * self.samples;
                    UseCost {
                        kernel: u.kernel,
                        load_bytes: if tensor.producer.is_some() { load.min(store_bytes) } else { load },
                        load_buffer: if whole && streamed == Axis::N && u.slot.is_stationary() {
                            bytes
                        } else {
                            options.crossing_buffers as f64 * tile
                        },
                        onchip_buffer: if needed_whole || added_up { bytes.max(depth * tile) } else { depth * tile },
                        own_part: has_own_part(self.kernel(u.kernel), u.slot),
                        // The least of those of its layouts, at most tiles.
                        lag: tensor.producer.filter(|_| fills).map_or(0.0, |p| {
                            let share = read(u, many, |(bytes, tile)| if bytes > 0.0 { tile / bytes } else { 1.0 });
                            lag(self.kernel(p), needed_whole, (1.0, share), self.samples)
                        }),
                    }
                })
                .collect();
            if tensor.producer.is_none() {
                store_bytes = uses.iter().map(|u| u.load_bytes).fold(0.0, f64::max);
            }
            let cost = TensorCost {
                producer: tensor.producer,
                output: tensor.output && options.boundary_tensors == Charge::Charged,
                store_bytes,
                store_buffer: match added_up {
                    true => made(few, |b| b.0),
                    false => options.crossing_buffers as f64 * made(many, |b| b.1),
                },
                live_bytes: if tensor.in_place { 0.0 } else { store_bytes / self.samples * w.micro_batch as f64 },
                uses,
            };
            match options.tensor_fanout {
                Fanout::Shared => out.push(cost),
                Fanout::Replicate => {
                    for u in &cost.uses {
                        out.push(TensorCost { output: false, uses: vec![u.clone()], ..cost.clone() });
                    }
                    if cost.output {
                        out.push(TensorCost { uses: Vec::new(), ..cost });
                    }
                }
            }
        }
        out
    }
}
