//! The independent checker: from a plan's decisions alone it derives time, bytes and memory again.
//!
//! It shares the definitions of the model (`model`: what a shard is, what a collective costs) with the search, and
//! nothing else: no formulation, no solver, no problem instance. It is written to be read, not to be fast: every
//! quantity is computed where it is used, from the workload, the system and the decisions.
//!
//! A plan is correct when
//! 1. every kernel has an open strategy, in the group of chips that the network's dimensions give it; backward kernels
//!    use the shards of the weights they share; stages and replicas are no more than layers and samples;
//! 2. no kernel runs before a kernel whose output it reads; forward kernels run before backward ones; a chip that runs
//!    kernel by kernel has one kernel a partition;
//! 3. in each partition, what is on chip fits the SRAM: weights (all of the stage's, if they stay on chip; else those of
//!    the partition, whole, or in pieces if the kernel is alone), and for each
//!    tensor the largest buffer that its producer or a consumer there needs;
//! 4. weights, gradients, states, activations in flight and waiting tensors fit the DRAM;
//! 5. the plan's figures are those derived here, to a relative 1e-9.

use crate::model::collective::{self, GroupDimension, OwnGroups};
use crate::model::compute::{
    CoreOption, constant_efficiency, core_options, extra_dram_share, gradient_bytes, local, seconds_at_efficiency,
    system_peak, tensor_bytes, tile_flop, weight_bytes,
};
use crate::model::layout::{Layout, Strategy, conversion, produced, required, strategies, weight_shards_agree};
use crate::model::memory::resident;
use crate::model::schedule::{Stage, iteration, microbatches, samples_per_pass};
use crate::plan::{Decisions, Figures, PartitionFigures, Plan, TOLERANCE, agree};
use crate::system::options::{Charge, Fanout, GradientReduction, Layouts, Overlap, Pipeline, WeightTraffic};
use crate::system::{Style, System, Topology, price};
use crate::workload::{Axis, CollectiveKind, Phase, Tensor, Use, Workload};

mod energy;

/// What a check found.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CheckError {
    /// The decisions break rules of the model, each named.
    #[error("the plan is not feasible:\n  {}", .0.join("\n  "))]
    Violations(Vec<String>),
    /// A figure of the plan is not what its decisions give.
    #[error("{what}: the plan says {plan:e}, its decisions give {derived:e}")]
    Mismatch {
        /// Which figure.
        what: String,
        /// The plan's.
        plan: f64,
        /// The derived one.
        derived: f64,
    },
}

/// Derives the figures of a plan again and compares.
///
/// # Errors
/// [`CheckError`]: broken rules, or the first figure that differs by more than [`TOLERANCE`].
pub fn verify(plan: &Plan) -> Result<(), CheckError> {
    let derived = derive(&plan.workload, &plan.system, &plan.decisions).map_err(CheckError::Violations)?;
    for (what, one, other) in pairs(&plan.figures, &derived) {
        if !agree(one, other, TOLERANCE) {
            return Err(CheckError::Mismatch { what, plan: one, derived: other });
        }
    }
    Ok(())
}

fn pairs(a: &Figures, b: &Figures) -> Vec<(String, f64, f64)> {
    let mut out = vec![("number of partitions".to_string(), a.partitions.len() as f64, b.partitions.len() as f64)];
    for (i, (x, y)) in a.partitions.iter().zip(&b.partitions).enumerate() {
        for (what, one, other) in [
            ("compute_s", x.compute_s, y.compute_s),
            ("dram_s", x.dram_s, y.dram_s),
            ("network_s", x.network_s, y.network_s),
            ("overhead_s", x.overhead_s, y.overhead_s),
            ("time_s", x.time_s, y.time_s),
            ("sram_bytes", x.sram_bytes, y.sram_bytes),
            ("live_bytes", x.live_bytes, y.live_bytes),
            ("dram_bytes", x.dram_bytes, y.dram_bytes),
            ("flop", x.flop, y.flop),
            ("link_j", x.link_j, y.link_j),
        ] {
            out.push((format!("partition {i}, {what}"), one, other));
        }
    }
    for (what, one, other) in [
        ("layer_s", a.layer_s, b.layer_s),
        ("iteration_s", a.iteration_s(), b.iteration_s()),
        ("weights_bytes", a.memory.weights, b.memory.weights),
        ("total_bytes", a.memory.total(), b.memory.total()),
        ("utilization", a.utilization, b.utilization),
        ("cost_usd", a.cost.total(), b.cost.total()),
        ("power_w", a.power.total(), b.power.total()),
        ("energy_j", a.energy.total(), b.energy.total()),
        ("energy_chips_j", a.energy.parts().chips, b.energy.parts().chips),
        ("energy_memory_j", a.energy.parts().memory, b.energy.parts().memory),
        ("energy_links_j", a.energy.parts().links, b.energy.parts().links),
        ("energy_switches_j", a.energy.parts().switches, b.energy.parts().switches),
    ] {
        out.push((what.to_string(), one, other));
    }
    out
}

/// Everything the derivation reads.
struct Derivation<'a> {
    w: &'a Workload,
    system: &'a System,
    d: &'a Decisions,
    tp: u64,
    pp: u64,
    dp: u64,
    tp_group: Vec<GroupDimension>,
    pp_group: Vec<GroupDimension>,
    dp_group: Vec<GroupDimension>,
    own: OwnGroups,
    samples: f64,
}

/// Derives the figures of decisions.
///
/// # Errors
/// Every rule that the decisions break.
pub fn derive(workload: &Workload, system: &System, decisions: &Decisions) -> Result<Figures, Vec<String>> {
    let whole = workload;
    let along = |f: fn(&crate::plan::DimensionUse) -> u64| -> Vec<u64> { decisions.uses.iter().map(f).collect() };
    let (tp, pp, dp) = (along(|u| u.tp), along(|u| u.pp), along(|u| u.dp));
    let mut broken = Vec::new();
    if decisions.uses.len() != system.network.dimensions.len() {
        return Err(vec![format!(
            "network_use has {} entries, the network {} dimensions",
            decisions.uses.len(),
            system.network.dimensions.len()
        )]);
    }
    for (i, (u, dimension)) in decisions.uses.iter().zip(&system.network.dimensions).enumerate() {
        if u.chips() != dimension.size {
            broken.push(format!(
                "dimension {i} has {} chips, but TP {} x PP {} x DP {} x rows {} x columns {}",
                dimension.size, u.tp, u.pp, u.dp, u.rows, u.cols
            ));
        }
    }
    for (i, _) in decisions.uses.iter().enumerate().filter(|(_, u)| u.is_divided()) {
        if system.network.topology_of(i) == Topology::Ring {
            broken.push(format!("dimension {i} is a ring, but several strategies divide it"));
        }
    }
    let (rows, cols) = (along(|u| u.rows), along(|u| u.cols));
    let parallel = [&tp, &pp, &dp].iter().any(|extents| extents.iter().any(|n| *n > 1));
    let grid = [&rows, &cols].iter().any(|extents| extents.iter().any(|n| *n > 1));
    if workload.is_spread() && parallel {
        broken.push("TP, PP or DP for a workload that a process grid shares".into());
    }
    if !workload.is_spread() && grid {
        broken.push("a process grid for a workload that TP, PP and DP share".into());
    }
    let on_grid = workload.is_spread().then(|| workload.on_grid(rows.iter().product(), cols.iter().product()));
    let workload = on_grid.as_ref().unwrap_or(whole);
    let n = workload.kernels.len();
    if decisions.sharding.len() != n || decisions.partition.len() != n {
        broken.push(format!(
            "decisions for {} and {} of {n} kernels",
            decisions.sharding.len(),
            decisions.partition.len()
        ));
    }
    if decisions.tiles == 0 {
        broken.push("a tile count of zero".into());
    }
    if !broken.is_empty() {
        return Err(broken);
    }
    let derivation = Derivation {
        w: workload,
        system,
        d: decisions,
        tp: tp.iter().product(),
        pp: pp.iter().product(),
        dp: dp.iter().product(),
        tp_group: collective::group(system, &tp),
        pp_group: collective::group(system, &pp),
        dp_group: collective::group(system, &dp),
        own: OwnGroups {
            tensor: collective::group(system, &tp),
            data: collective::group(system, &dp),
            all: collective::group(system, &along(|u| u.tp * u.dp * u.rows * u.cols)),
            row: collective::group(system, &cols),
            column: collective::group(system, &rows),
        },
        samples: samples_per_pass(workload, &system.model),
    };
    derivation.rules(&mut broken);
    if !broken.is_empty() {
        return Err(broken);
    }
    let mut figures = derivation.figures()?;
    figures.flop_per_iteration = whole.flop_per_iteration();
    figures.utilization = figures.flop_per_iteration / (figures.iteration_s() * system_peak(system));
    Ok(figures)
}

impl Derivation<'_> {
    fn kernels_of(&self, p: usize) -> Vec<usize> {
        (0..self.w.kernels.len()).filter(|k| self.d.partition[*k] == p).collect()
    }

    fn partitions(&self) -> usize {
        self.d.partition.iter().max().map_or(0, |p| p + 1)
    }

    /// Rules 1 and 2.
    fn rules(&self, broken: &mut Vec<String>) {
        let name = |k: usize| &self.w.kernels[k].name;
        let rules = self.system.model.layouts;
        for (k, kernel) in self.w.kernels.iter().enumerate() {
            let strategy = self.d.sharding[k];
            if !strategies(kernel, self.tp, rules).contains(&strategy) {
                broken.push(format!("kernel {} cannot be sharded by {strategy} among {} chips", kernel.name, self.tp));
            }
            if let Some(owner) = kernel.weight_of.filter(|_| rules == Layouts::Flowspace && self.tp > 1)
                && !weight_shards_agree(kernel, strategy, self.d.sharding[owner.kernel])
            {
                broken.push(format!(
                    "kernel {} by {strategy} needs other shards of the weight of {} than {} makes",
                    kernel.name,
                    name(owner.kernel),
                    self.d.sharding[owner.kernel]
                ));
            }
        }
        if self.pp > self.w.repeat {
            broken.push(format!("{} stages for {} layers", self.pp, self.w.repeat));
        }
        let may_keep =
            self.system.chip.0.style == Style::Dataflow && self.system.model.weight_traffic == WeightTraffic::Streamed;
        if self.d.weights_on_chip && !may_keep {
            broken.push("weights_on_chip needs a dataflow chip and streamed weight traffic".into());
        }
        if self.w.micro_batch.saturating_mul(self.dp) > self.w.global_batch {
            broken.push(format!("{} replicas for a batch of {}", self.dp, self.w.global_batch));
        }
        for tensor in &self.w.tensors {
            let Some(u) = tensor.producer else { continue };
            for v in &tensor.consumers {
                if self.d.partition[u] > self.d.partition[v.kernel] {
                    broken.push(format!("kernel {} runs before {}, whose output it reads", name(v.kernel), name(u)));
                }
                let made = produced(self.d.sharding[u], rules);
                let wanted = required(&self.w.kernels[v.kernel], v.slot, self.d.sharding[v.kernel], rules);
                if conversion(made, wanted).is_err() {
                    broken.push(format!("{} cannot be brought from {made:?} to {wanted:?}", tensor.name));
                }
            }
        }
        for p in 0..self.partitions() {
            let inside = self.kernels_of(p);
            if inside.is_empty() {
                broken.push(format!("partition {p} is empty"));
            }
            if self.system.chip.0.style == Style::KernelByKernel && inside.len() > 1 {
                broken.push(format!("partition {p} has {} kernels on a chip that runs kernel by kernel", inside.len()));
            }
        }
        let forward = |k: &usize| self.w.kernels[*k].phase == Phase::Forward;
        let last = (0..self.w.kernels.len()).filter(forward).map(|k| self.d.partition[k]).max();
        let first = (0..self.w.kernels.len()).filter(|k| !forward(k)).map(|k| self.d.partition[k]).min();
        if let (Some(last), Some(first)) = (last, first)
            && last >= first
        {
            broken.push(format!("backward kernels in partition {first}, forward kernels still in {last}"));
        }
    }

    /// Every reader of a tensor: in the layer, and in the next one where it is carried there and that is charged.
    fn readers(&self, id: usize) -> Vec<(&Use, bool)> {
        let charged = self.system.model.boundary_tensors == Charge::Charged;
        let next = self.w.tensors.iter().filter(move |t| charged && t.carried_from == Some(id));
        let here = self.w.tensors[id].consumers.iter().map(|u| (u, false));
        here.chain(next.flat_map(|t| t.consumers.iter().map(|u| (u, true)))).collect()
    }

    fn wanted(&self, u: &Use) -> Layout {
        required(&self.w.kernels[u.kernel], u.slot, self.d.sharding[u.kernel], self.system.model.layouts)
    }

    fn same_phase(&self, a: usize, b: usize) -> bool {
        (self.w.kernels[a].phase == Phase::Forward) == (self.w.kernels[b].phase == Phase::Forward)
    }

    /// Seconds of collectives that kernel `k` pays for.
    fn network_s(&self, k: usize) -> f64 {
        let options = &self.system.model;
        let kernel = &self.w.kernels[k];
        let word = self.w.word_bytes;
        let seconds = |kind, bytes: f64| collective::seconds(kind, &self.tp_group, bytes * self.samples, options);
        let mut total = collective::own_seconds(kernel, &self.own, self.samples, options);
        let here = local(kernel, self.d.sharding[k], self.tp, self.d.tiles);
        if options.layouts == Layouts::Dfmodel && self.d.sharding[k] == Strategy::K {
            let tiles = if kernel.tiled == Axis::K { 1.0 } else { self.d.tiles as f64 };
            total += seconds(CollectiveKind::AllReduce, here.rows as f64 * here.n as f64 * tiles * word);
        }
        if self.w.training && options.gradient_reduction == GradientReduction::PerMicrobatch {
            let bytes =
                gradient_bytes(kernel, self.d.sharding[k], self.tp, word) / microbatches(self.w, options, self.dp);
            total += collective::gradient_seconds(&self.dp_group, bytes, options);
        }
        for id in 0..self.w.tensors.len() {
            for (layout, kind) in self.conversions_paid_by(k, id) {
                let tensor = &self.w.tensors[id];
                let full = tensor.rows as f64 * tensor.cols as f64 * word;
                let shard = tensor_bytes(tensor, layout, self.tp, self.d.tiles, word).0;
                let bytes = match (options.layouts, kind) {
                    (Layouts::Dfmodel, _) | (_, CollectiveKind::AllToAll) => shard,
                    _ => full,
                };
                total += seconds(kind, bytes);
            }
        }
        total
    }

    /// Conversions of tensor `id` that kernel `k` pays: the layout it is made in, and the collective. The producer
    /// pays for readers of its phase and of the next layer, each layout once; the first reader of another phase pays
    /// for a layout there. With replicated fan-out every reader has its own.
    fn conversions_paid_by(&self, k: usize, id: usize) -> Vec<(Layout, CollectiveKind)> {
        let tensor = &self.w.tensors[id];
        let Some(producer) = tensor.producer else { return Vec::new() };
        if producer != k && !tensor.consumers.iter().any(|u| u.kernel == k) {
            return Vec::new();
        }
        let made = produced(self.d.sharding[producer], self.system.model.layouts);
        let shared = self.system.model.tensor_fanout == Fanout::Shared;
        let mut done: Vec<(bool, Layout)> = Vec::new();
        let mut mine = Vec::new();
        for (u, next_layer) in self.readers(id) {
            let at_producer = next_layer || self.same_phase(producer, u.kernel);
            let wanted = self.wanted(u);
            if shared && done.contains(&(at_producer, wanted)) {
                continue;
            }
            done.push((at_producer, wanted));
            let payer = if at_producer { producer } else { u.kernel };
            if let (true, Ok(Some(kind))) = (payer == k, conversion(made, wanted)) {
                mine.push((made, kind));
            }
        }
        mine
    }

    /// Bytes of one pass of a tensor as it is stored.
    fn stored_bytes(&self, id: usize) -> f64 {
        let tensor = &self.w.tensors[id];
        let Some(producer) = tensor.producer else {
            // An input lies in DRAM as its widest reader wants it.
            return tensor.consumers.iter().map(|u| self.loaded_bytes(id, u)).fold(0.0, f64::max);
        };
        let word = self.w.word_bytes;
        let bytes = |layout| tensor_bytes(tensor, layout, self.tp, self.d.tiles, word).0 * self.samples;
        let made = bytes(produced(self.d.sharding[producer], self.system.model.layouts));
        if self.system.model.layouts == Layouts::Dfmodel {
            return made;
        }
        let carried = self.w.tensors.iter().filter(|t| t.carried_from == Some(id)).flat_map(|t| &t.consumers);
        let widest = tensor
            .consumers
            .iter()
            .filter(|u| self.same_phase(producer, u.kernel))
            .chain(carried)
            .map(|u| bytes(self.wanted(u)))
            .fold(0.0, f64::max);
        if widest > 0.0 { widest } else { made }
    }

    /// Layout in which a tensor is read on chip or loaded.
    fn read_layout(&self, tensor: &Tensor, u: &Use) -> Layout {
        match (self.system.model.layouts, tensor.producer) {
            (Layouts::Dfmodel, Some(p)) => produced(self.d.sharding[p], Layouts::Dfmodel),
            (Layouts::Dfmodel, None) => Layout::Replicated,
            (Layouts::Flowspace, _) => self.wanted(u),
        }
    }

    fn loaded_bytes(&self, id: usize, u: &Use) -> f64 {
        let tensor = &self.w.tensors[id];
        let layout = self.read_layout(tensor, u);
        let bytes = tensor_bytes(tensor, layout, self.tp, self.d.tiles, self.w.word_bytes).0 * self.samples;
        if tensor.producer.is_some() { bytes.min(self.stored_bytes(id)) } else { bytes }
    }

    /// SRAM of a reader's buffer: loaded from DRAM, or passed on chip.
    fn buffer(&self, id: usize, u: &Use, on_chip: bool, levels: &[usize]) -> f64 {
        let tensor = &self.w.tensors[id];
        let (whole, tile) = tensor_bytes(tensor, self.read_layout(tensor, u), self.tp, self.d.tiles, self.w.word_bytes);
        let needs_whole = if on_chip { u.slot.is_whole_on_chip() } else { u.slot.is_stationary() };
        let stationary = self.system.model.stationary_operands == Charge::Charged
            && needs_whole
            && self.w.kernels[u.kernel].tiled == Axis::N;
        let depth = if on_chip {
            levels[u.kernel].abs_diff(tensor.producer.map_or(0, |p| levels[p])) as f64 + 1.0
        } else {
            2.0
        };
        match (stationary, on_chip) {
            (true, true) => whole.max(depth * tile),
            (true, false) => whole,
            (false, _) => depth * tile,
        }
    }

    /// The tensors as the model counts them: with each set of readers that shares one copy.
    fn copies(&self) -> Vec<(usize, Vec<Use>, bool)> {
        let charged = self.system.model.boundary_tensors == Charge::Charged;
        let mut out = Vec::new();
        for (id, tensor) in self.w.tensors.iter().enumerate() {
            if tensor.carried_from.is_some() && !charged {
                continue;
            }
            let leaves = tensor.output && charged;
            match self.system.model.tensor_fanout {
                Fanout::Shared => out.push((id, tensor.consumers.clone(), leaves)),
                Fanout::Replicate => {
                    out.extend(tensor.consumers.iter().map(|u| (id, vec![*u], false)));
                    if leaves {
                        out.push((id, Vec::new(), true));
                    }
                }
            }
        }
        out
    }

    /// SRAM of the weights that stay on chip, each once, and of their gradients: all layers of the stage.
    fn kept_bytes(&self) -> f64 {
        if !self.d.weights_on_chip {
            return 0.0;
        }
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
        layer * self.w.repeat.div_ceil(self.pp) as f64
    }

    /// SRAM that a kernel holds through its partition when it is whole: its weight, and the gradient it accumulates.
    fn held_bytes(&self, k: usize) -> f64 {
        if self.d.weights_on_chip {
            return 0.0;
        }
        let kernel = &self.w.kernels[k];
        let word = self.w.word_bytes;
        let weight = weight_bytes(kernel, self.d.sharding[k], self.tp, word);
        match self.system.model.weight_traffic {
            WeightTraffic::Streamed => weight + gradient_bytes(kernel, self.d.sharding[k], self.tp, word),
            _ => weight,
        }
    }

    /// Pieces in which kernel `k` must hold its weight when it is alone on the chip; one when it fits whole.
    fn pieces(&self, k: usize, levels: &[usize]) -> Result<f64, String> {
        let mut buffers = 0.0;
        for (id, uses, leaves) in self.copies() {
            let load =
                uses.iter().filter(|u| u.kernel == k).map(|u| self.buffer(id, u, false, levels)).fold(0.0, f64::max);
            let stores = self.w.tensors[id].producer == Some(k) && (leaves || !uses.is_empty());
            buffers += if stores { load.max(self.store_buffer(id)) } else { load };
        }
        let held = self.held_bytes(k);
        let room = self.sram_limit() - self.kept_bytes() - buffers;
        if held <= room * (1.0 + TOLERANCE) {
            return Ok(1.0);
        }
        let rows = local(&self.w.kernels[k], self.d.sharding[k], self.tp, 1).rows as f64;
        if held / rows > room {
            return Err(format!(
                "kernel {} alone needs {} of SRAM, the chip has {}",
                self.w.kernels[k].name,
                crate::units::Bytes(self.kept_bytes() + buffers + held / rows),
                crate::units::Bytes(self.system.chip.0.sram.0)
            ));
        }
        Ok((held / room).ceil().max(2.0))
    }

    fn sram_limit(&self) -> f64 {
        match self.system.model.sram_limit {
            Charge::Charged => self.system.chip.0.sram.0,
            Charge::Ignored => f64::INFINITY,
        }
    }

    fn store_buffer(&self, id: usize) -> f64 {
        let tensor = &self.w.tensors[id];
        let made =
            tensor.producer.map_or(Layout::Replicated, |p| produced(self.d.sharding[p], self.system.model.layouts));
        2.0 * tensor_bytes(tensor, made, self.tp, self.d.tiles, self.w.word_bytes).1
    }

    /// Seconds of arithmetic of a partition. Shared cores: starting from the fewest, the slowest kernel gets its next
    /// larger allocation for as long as cores are left; no other split makes the slowest faster.
    fn compute_s(&self, inside: &[usize]) -> Option<f64> {
        let chip = &self.system.chip.0;
        let shard = |k: usize| local(&self.w.kernels[k], self.d.sharding[k], self.tp, self.d.tiles);
        if let Some(u) = constant_efficiency(chip) {
            let one = |k: &usize| {
                seconds_at_efficiency(chip, &self.w.kernels[*k], &shard(*k), self.d.tiles, u, &self.system.model)
            };
            return Some(inside.iter().map(one).sum::<f64>() * self.samples);
        }
        let options: Vec<Vec<CoreOption>> =
            inside.iter().map(|k| core_options(chip, &self.w.kernels[*k], &shard(*k), self.d.tiles)).collect();
        let mut at = vec![0usize; options.len()];
        let used = |at: &[usize]| -> u64 { at.iter().zip(&options).map(|(i, o)| o[*i].cores).sum() };
        if used(&at) > chip.cores {
            return None;
        }
        loop {
            let slowest = (0..options.len())
                .max_by(|a, b| options[*a][at[*a]].seconds.total_cmp(&options[*b][at[*b]].seconds))?;
            let now = options[slowest][at[slowest]].seconds;
            let mut next = at.clone();
            next[slowest] += 1;
            if next[slowest] >= options[slowest].len() || used(&next) > chip.cores {
                return Some(now * self.samples);
            }
            at = next;
        }
    }

    fn figures(&self) -> Result<Figures, Vec<String>> {
        let options = &self.system.model;
        let bandwidth = self.system.memory.0.bandwidth.0;
        let word = self.w.word_bytes;
        let levels = self.w.levels();
        let stored_bytes: Vec<f64> = (0..self.w.tensors.len()).map(|id| self.stored_bytes(id)).collect();
        let mut broken = Vec::new();
        let mut partitions = Vec::new();
        for p in 0..self.partitions() {
            let inside = self.kernels_of(p);
            let Some(compute_s) = self.compute_s(&inside) else {
                broken.push(format!(
                    "partition {p}: {} kernels share {} cores",
                    inside.len(),
                    self.system.chip.0.cores
                ));
                continue;
            };
            let (mut network_s, mut overhead_s, mut dram, mut live, mut flop) = (0.0, 0.0, 0.0, 0.0, 0.0);
            let mut sram = self.kept_bytes();
            if options.latencies == Charge::Charged {
                overhead_s += self.system.chip.0.launch_overhead.0;
            }
            for &k in &inside {
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
                    for (id, uses, _) in self.copies() {
                        for u in uses.iter().filter(|u| u.kernel == k) {
                            dram += (pieces - 1.0) * self.loaded_bytes(id, u);
                        }
                    }
                }
                let shard = local(kernel, strategy, self.tp, self.d.tiles);
                flop += tile_flop(kernel, &shard) * self.d.tiles as f64 * self.samples;
            }
            for (id, uses, leaves) in self.copies() {
                let producer = self.w.tensors[id].producer;
                let made_at = producer.map(|k| self.d.partition[k]);
                let outside = |u: &Use| made_at != Some(self.d.partition[u.kernel]);
                let last_load = uses.iter().filter(|u| outside(u)).map(|u| self.d.partition[u.kernel]).max();
                let mut buffer: f64 = 0.0;
                let mut load: f64 = 0.0;
                for u in uses.iter().filter(|u| self.d.partition[u.kernel] == p) {
                    buffer = buffer.max(self.buffer(id, u, !outside(u), &levels));
                    if outside(u) {
                        load = load.max(self.loaded_bytes(id, u));
                    }
                }
                dram += load;
                let stored = producer.is_some() && (leaves || last_load.is_some());
                let bytes = stored_bytes[id];
                if stored && made_at == Some(p) {
                    dram += bytes;
                    buffer = buffer.max(self.store_buffer(id));
                }
                sram += buffer;
                let from = made_at.unwrap_or(0);
                let waits = if leaves { from <= p } else { from <= p && last_load.is_some_and(|last| p <= last) };
                if waits && (stored || producer.is_none()) && !self.w.tensors[id].in_place {
                    live += bytes / self.samples * self.w.micro_batch as f64;
                }
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
                live_bytes: live,
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

    fn stage(&self, layer_s: f64) -> Stage<'_> {
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
