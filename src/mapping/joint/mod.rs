//! Sharding, tile count and fusion as one search (design section 6: joint).
//!
//! The first pass takes the sharding that its own objective likes best, blind to SRAM, DRAM capacity and fusion. Here every
//! sharding of an assignment of dimensions is considered: branch and bound over the strategies of the kernels. A node is a
//! set of strategies for each kernel; it is bounded from below in two ways, and the larger counts:
//!
//! 1. the least *weighted sum* of arithmetic, traffic and collectives over its shardings, by elimination ([`separable`]):
//!    sees how layouts depend on each other, not how partitions do;
//! 2. the shortest path of a fusion problem that is no harder than that of any of its shardings ([`relaxed`]): sees SRAM
//!    and partitions, but lets every kernel and tensor have its best layout at once.
//!
//! A node whose bound does not beat the best plan found is closed; so is one whose weights, states and activations do
//! not fit the DRAM under any of its shardings. Of any other one sharding is evaluated exactly (the one of the weighted
//! sum), and the kernel whose relaxed costs are furthest below that sharding's is split by strategy. The node with the
//! least bound goes first, so that when the search is stopped its bound is the one of the whole. When none is left, the
//! best plan is the optimum over all shardings, tile counts and partitions of the assignment.

pub mod relaxed;
pub mod separable;

use super::degrees::Degrees;
use super::ideals::Ideals;
use super::instance::{Instance, When, may_keep_weights};
use super::request::{Engine, MapError};
use super::search::{Fused, Search, TIE};
use super::sharding;
use super::tiling::tile_counts;
use super::wide;
use crate::model::Strategy;
use crate::model::compute::tensor_bytes;
use crate::model::layout::{Layout, required};
use crate::model::schedule::{Stage, iteration};
use crate::system::Style;
use crate::system::options::{Layouts, ShardingObjective};
use crate::workload::Phase;
use relaxed::{Open, Relaxation};
use separable::{Own, Separable};
use std::collections::{BTreeSet, BinaryHeap};

/// Rounds in which the weights of an assignment are looked for.
const ROUNDS: usize = 8;

/// Largest graph whose shardings are searched; of larger ones, and of those with more ideals than are listed, the root is
/// bounded alone.
const MOST_KERNELS: usize = 128;

/// How the search of an assignment ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ended {
    /// No sharding of it beats the best plan found.
    Closed,
    /// Stopped: none of it beats this bound.
    Stopped(f64),
}

/// A set of shardings under search, least bound first.
struct Node {
    bound: f64,
    /// Of equal bounds the one made first.
    made: u64,
    open: Open,
    /// The sharding of the least weighted sum; empty where the elimination was too wide.
    best: Vec<Strategy>,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Node {}
impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Node {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.bound.total_cmp(&self.bound).then(other.made.cmp(&self.made))
    }
}

/// What the search of shardings is given to go on with.
pub struct Context<'c> {
    /// Ideals of the graph, listed when first needed.
    pub ideals: &'c mut Option<Ideals>,
    /// Nodes that may still be looked at.
    pub nodes_left: &'c mut u64,
}

/// Prices a sharding exactly: the objective of the best plan found so far, that one's included.
pub type Evaluate<'e> = dyn FnMut(&[Strategy], &mut Option<Ideals>) -> Result<f64, MapError> + 'e;

/// The joint search of one assignment.
pub struct Joint<'a> {
    search: &'a Search<'a>,
    relaxation: Relaxation<'a>,
    separable: Separable,
    tiles: Vec<u64>,
    modes: &'static [bool],
    root: Open,
}

impl<'a> Joint<'a> {
    /// For an assignment; `None` where its kernels have no choice of strategies, or no plan fits any.
    pub fn new(search: &'a Search<'a>, degrees: &'a Degrees) -> Option<Self> {
        let (w, system) = (search.workload, search.system);
        if degrees.tp <= 1 {
            return None;
        }
        let in_seconds = match system.model.sharding_objective {
            ShardingObjective::Time => sharding::problem(w, system, degrees, &search.pins_sharding),
            ShardingObjective::Bytes => {
                let mut timed = system.clone();
                timed.model.sharding_objective = ShardingObjective::Time;
                sharding::problem(w, &timed, degrees, &search.pins_sharding)
            }
        };
        let mut base = in_seconds.ok()?;
        if system.model.layouts == Layouts::Dfmodel {
            // There a conversion moves the shard that was made, not the whole tensor that the first pass counts.
            for (pair, cost) in base.groups.iter_mut().flatten() {
                if matches!(pair.0, Layout::Rows | Layout::Cols) {
                    *cost /= degrees.tp as f64;
                }
            }
        }
        if base.open.iter().all(|open| open.len() == 1) {
            return None;
        }
        let root = base.open.clone();
        let relaxation = Relaxation::new(search, degrees);
        let tiles = match search.request.tiles {
            Some(tiles) => vec![tiles],
            None => tile_counts(w, &system.model),
        };
        let ends = ends(&tiles)?;
        let modes: &[bool] = if may_keep_weights(system) { &[true, false] } else { &[false] };
        let keeps = modes.contains(&true) && relaxation.instance(&root, ends, true).is_some();
        let modes: &[bool] = if keeps { &[true, false] } else { &[false] };
        // What keeping the weights on chip saves is saved in the bound too.
        let relaxed = relaxation.instance(&root, ends, false).or_else(|| relaxation.instance(&root, ends, true))?;
        let alone = system.chip.0.style == Style::KernelByKernel;
        let loads_in_own = alone && system.model.layouts == Layouts::Flowspace;
        let stored = relaxation.least_stored(&root, ends.0);
        let how = (ends.0, keeps, loads_in_own.then_some(stored.as_slice()));
        let own = (0..w.kernels.len())
            .map(|k| root[k].iter().map(|s| own(&relaxation, search, degrees, &relaxed, (k, *s), how)).collect())
            .collect();
        let phases: Vec<Phase> = w.kernels.iter().map(|k| k.phase).collect();
        let mut separable = Separable::new(base, own, &relaxed, &phases, loads_in_own);
        let held = (0..w.kernels.len()).map(|k| root[k].iter().map(|s| relaxation.held_by(k, *s)).collect()).collect();
        separable.limit_memory(held, search.dram_capacity() - relaxation.held_by_all());
        Some(Self { search, relaxation, separable, tiles, modes, root })
    }

    /// Looks at all shardings that may beat the objective `best()`; `evaluate` prices one exactly, and may lower it.
    ///
    /// # Errors
    /// Those of `evaluate`, and of a failing solver.
    pub fn run(
        mut self,
        context: &mut Context<'_>,
        seen: Vec<Strategy>,
        evaluate: &mut Evaluate<'_>,
        mut best: f64,
    ) -> Result<Ended, MapError> {
        let mut evaluated: BTreeSet<Vec<Strategy>> = BTreeSet::from([seen]);
        let mut heap = BinaryHeap::new();
        let mut made = 0;
        let mut root = std::mem::take(&mut self.root);
        if !self.separable.prune(&mut root) {
            return Ok(Ended::Closed);
        }
        self.separable.tune(&root, ROUNDS);
        self.push(root, f64::NEG_INFINITY, best, &mut heap, &mut made, context)?;
        while let Some(node) = heap.pop() {
            if node.bound >= best * (1.0 - TIE) {
                return Ok(Ended::Closed);
            }
            if self.large(context) || *context.nodes_left == 0 || self.search.out_of_time() {
                return Ok(Ended::Stopped(node.bound));
            }
            *context.nodes_left -= 1;
            let single = node.open.iter().all(|open| open.len() == 1);
            let sharding = match node.best.is_empty() || single {
                true => node.open.iter().map(|open| open[0]).collect(),
                false => node.best.clone(),
            };
            if evaluated.insert(sharding.clone()) && (single || self.may_win(&sharding, best, context)?) {
                best = evaluate(&sharding, context.ideals)?;
            }
            if single || node.bound >= best * (1.0 - TIE) {
                continue;
            }
            let (k, matters) = self.split(&node.open, &sharding);
            if !matters && self.closed_by_tiles(&node.open, best, context)? {
                continue;
            }
            for s in node.open[k].clone() {
                let mut open = node.open.clone();
                open[k] = vec![s];
                if self.separable.prune(&mut open) {
                    self.push(open, node.bound, best, &mut heap, &mut made, context)?;
                }
            }
        }
        Ok(Ended::Closed)
    }

    /// Whether a shortest path over all ideals is out of reach.
    fn large(&self, context: &Context<'_>) -> bool {
        let partial = context.ideals.as_ref().is_some_and(|ideals| !ideals.complete);
        partial || self.search.workload.kernels.len() > MOST_KERNELS
    }

    /// Bounds a node and keeps it where it may still win.
    fn push(
        &self,
        open: Open,
        parent: f64,
        best: f64,
        heap: &mut BinaryHeap<Node>,
        made: &mut u64,
        context: &mut Context<'_>,
    ) -> Result<(), MapError> {
        let beaten = |bound: f64| bound >= best * (1.0 - TIE);
        let need = self.relaxation.least_resident(&open);
        if need > self.search.dram_capacity() {
            return Ok(());
        }
        let Some((layer, sharding)) = self.separable.least(&open) else { return Ok(()) };
        let stage = self.relaxation.stage(&open);
        let mut bound = parent.max(self.total(&stage, layer));
        if beaten(bound) {
            return Ok(());
        }
        let Some(ends) = ends(&self.tiles) else { return Ok(()) };
        let mut fused = f64::INFINITY;
        for mode in self.modes {
            fused = fused.min(self.fused(&open, ends, *mode, &stage, best, context)?);
        }
        bound = bound.max(fused);
        if !beaten(bound) {
            heap.push(Node { bound, made: *made, open, best: sharding });
            *made += 1;
        }
        Ok(())
    }

    /// The bound by the relaxed fusion problem; infinite where nothing fits, or nothing beats `best`.
    fn fused(
        &self,
        open: &Open,
        tiles: (u64, u64),
        weights_on_chip: bool,
        stage: &Stage<'_>,
        best: f64,
        context: &mut Context<'_>,
    ) -> Result<f64, MapError> {
        let Some(instance) = self.relaxation.instance(open, tiles, weights_on_chip) else { return Ok(f64::INFINITY) };
        let closed = self.total(stage, instance.least_value());
        if closed >= best * (1.0 - TIE) {
            return Ok(f64::INFINITY);
        }
        if instance.kernel_by_kernel {
            return Ok(closed.max(self.total(stage, each_alone(&instance))));
        }
        let total = |layer: f64| self.total(stage, layer);
        let cutoff = cutoff(&total, instance.least_value(), best);
        let limited = instance.pins.iter().any(Option::is_some) || instance.max_partitions.is_some();
        if self.large(context) || (limited && self.search.request.engine != Engine::Exact) {
            // Of large graphs a bound is many solves; for limited ones the MILP may be asked, which a bound is not worth.
            return Ok(closed);
        }
        let found = self.search.solve_fusion(&instance, cutoff, context.ideals, &mut wide::Memory::default())?;
        let complete = context.ideals.as_ref().is_some_and(|ideals| ideals.complete);
        Ok(match found {
            Some(Fused { layer, proven: true, .. }) => closed.max(self.total(stage, layer)),
            Some(_) => closed,
            // What the deadline stopped says nothing.
            None if complete && !self.search.out_of_time() => f64::INFINITY,
            None => closed,
        })
    }

    /// Whether a sharding beats `best` by its own relaxation, which has all tile counts in one.
    fn may_win(&self, sharding: &[Strategy], best: f64, context: &mut Context<'_>) -> Result<bool, MapError> {
        let Some(ends) = ends(&self.tiles) else { return Ok(false) };
        if !best.is_finite() {
            return Ok(true);
        }
        let open: Open = sharding.iter().map(|s| vec![*s]).collect();
        let stage = self.relaxation.stage(&open);
        for mode in self.modes {
            if self.fused(&open, ends, *mode, &stage, best, context)? < best * (1.0 - TIE) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether no sharding of a node beats `best` at any one tile count.
    fn closed_by_tiles(&self, open: &Open, best: f64, context: &mut Context<'_>) -> Result<bool, MapError> {
        let stage = self.relaxation.stage(open);
        for tiles in &self.tiles {
            for mode in self.modes {
                if self.fused(open, (*tiles, *tiles), *mode, &stage, best, context)? < best * (1.0 - TIE) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Seconds of an iteration whose layer takes at least `layer_s` and whose other parts are those of `stage`.
    fn total(&self, stage: &Stage<'_>, layer_s: f64) -> f64 {
        let stage = Stage { layer_s, ..stage.clone() };
        iteration(self.search.workload, self.search.system, &stage).total_s() * (1.0 - TIE * 1e-3)
    }

    /// The kernel to split a node at: of those with a choice the one whose costs, and those of its tensors, are furthest
    /// below what they are under `sharding`; and whether there is any such difference.
    fn split(&self, open: &Open, sharding: &[Strategy]) -> (usize, bool) {
        let most = (0..open.len()).max_by_key(|k| (open[*k].len(), usize::MAX - k)).unwrap_or(0);
        let Some(ends) = ends(&self.tiles) else { return (most, false) };
        let one: Open = sharding.iter().map(|s| vec![*s]).collect();
        let mode = self.modes.len() > 1;
        let of = |open: &Open| {
            self.relaxation.instance(open, ends, mode).or_else(|| self.relaxation.instance(open, ends, false))
        };
        let (Some(low), Some(high)) = (of(open), of(&one)) else { return (most, true) };
        let mut score = vec![0.0; open.len()];
        let bandwidth = low.dram_bytes_per_s;
        // A byte of SRAM is worth as much of the layer's time as it is of the SRAM.
        let by_sram = if low.sram_bytes.is_finite() { high.lower_bound() / low.sram_bytes } else { 0.0 };
        for (k, (a, b)) in low.kernels.iter().zip(&high.kernels).enumerate() {
            let seconds = |c| separable::compute_seconds(c, low.cores);
            score[k] += seconds(&b.compute) - seconds(&a.compute)
                + (b.network_s - a.network_s)
                + (b.dram_bytes - a.dram_bytes).max(0.0) / bandwidth
                + (b.resident_bytes - a.resident_bytes).max(0.0) * by_sram;
        }
        for (a, b) in low.tensors.iter().zip(&high.tensors) {
            let of_store = (b.store_bytes - a.store_bytes) / bandwidth + (b.store_buffer - a.store_buffer) * by_sram;
            if let Some(p) = a.producer {
                score[p] += of_store;
            }
            for (x, y) in a.uses.iter().zip(&b.uses) {
                let of_load = (y.load_bytes - x.load_bytes) / bandwidth + (y.onchip_buffer - x.onchip_buffer) * by_sram;
                score[x.kernel] += of_load + of_store;
            }
        }
        // Conversions are paid by one kernel and avoided by its neighbours.
        let paid: Vec<f64> = low.kernels.iter().zip(&high.kernels).map(|(a, b)| b.network_s - a.network_s).collect();
        for tensor in &low.tensors {
            let Some(p) = tensor.producer else { continue };
            for u in &tensor.uses {
                score[u.kernel] += paid[p];
                score[p] += paid[u.kernel].max(0.0) * 0.5;
            }
        }
        let open_ones = (0..open.len()).filter(|k| open[*k].len() > 1);
        let at = open_ones.max_by(|a, b| score[*a].total_cmp(&score[*b]).then(b.cmp(a))).unwrap_or(most);
        (at, score[at] > TIE * high.lower_bound())
    }
}

/// The fewest and the most tiles.
fn ends(tiles: &[u64]) -> Option<(u64, u64)> {
    Some((*tiles.iter().min()?, *tiles.iter().max()?))
}

/// The sum of the kernels as partitions of their own, whatever waits in DRAM meanwhile.
fn each_alone(instance: &Instance) -> f64 {
    let mut order: Vec<usize> = (0..instance.kernels.len()).collect();
    order.sort_by_key(|k| (instance.kernels[*k].backward, *k));
    let mut position = vec![0; order.len()];
    for (i, k) in order.iter().enumerate() {
        position[*k] = i;
    }
    let cost = |k: usize| {
        instance.partition(&[k], |other| match position[other].cmp(&position[k]) {
            std::cmp::Ordering::Less => When::Before,
            std::cmp::Ordering::Equal => When::Now,
            std::cmp::Ordering::Greater => When::After,
        })
    };
    order.iter().map(|k| cost(*k).map_or(f64::INFINITY, |cost| instance.value(&cost))).sum()
}

/// The layer's time from which on `total` does not beat `best`; infinite where that cannot be said.
fn cutoff(total: &dyn Fn(f64) -> f64, least: f64, best: f64) -> f64 {
    let (at, twice) = (total(least), total(2.0 * least));
    let slope = (twice - at) / least;
    let cutoff = (least + (best - at) / slope) * (1.0 + TIE);
    if cutoff.is_finite() && total(cutoff) >= best * (1.0 - TIE) { cutoff } else { f64::INFINITY }
}

/// The parts of a layer's time that a kernel's own strategy decides.
fn own(
    relaxation: &Relaxation<'_>,
    search: &Search<'_>,
    degrees: &Degrees,
    relaxed: &Instance,
    (k, s): (usize, Strategy),
    (tiles, weights_on_chip, stored): (u64, bool, Option<&[f64]>),
) -> Own {
    let (w, system) = (search.workload, search.system);
    let kernel = &w.kernels[k];
    let options = &system.model;
    let samples = crate::model::schedule::samples_per_pass(w, options);
    let compute = relaxation.compute(kernel, &[s], tiles);
    let streamed = relaxation.kernel_dram(kernel, s, false);
    let mut dram = if weights_on_chip { streamed.min(relaxation.kernel_dram(kernel, s, true)) } else { streamed };
    if let Some(stored) = stored {
        for (id, tensor) in w.tensors.iter().enumerate() {
            if tensor.carried_from.is_some() && options.boundary_tensors == crate::system::options::Charge::Ignored {
                continue;
            }
            let forward = |k: usize| w.kernels[k].phase == Phase::Forward;
            let other_phase = tensor.producer.is_some_and(|p| forward(p) != forward(k));
            // A reader of another phase loads what was stored, and that is at least so much.
            let stored = if other_phase { stored[id] } else { f64::INFINITY };
            let loads = tensor.consumers.iter().filter(|u| u.kernel == k).map(|u| {
                let layout = required(kernel, u.slot, s, options.layouts);
                (tensor_bytes(tensor, layout, degrees.tp, 1, w.word_bytes).0 * samples).min(stored)
            });
            dram += loads.fold(0.0, f64::max);
        }
    }
    Own {
        compute: separable::compute_seconds(&compute, relaxed.cores),
        dram: dram / relaxed.dram_bytes_per_s,
        network: crate::model::collective::own_seconds(kernel, &degrees.own, samples, options)
            + relaxation.own_network(kernel, s, tiles),
    }
}
