//! Bounds of sets of shardings by weighted sums ([`super::separable`]) and by an easier fusion problem ([`super::relaxed`]):
//! for chips that fuse, and for the others under options that [`super::alone`] does not know.

use super::super::best_first::{self, Effort};
use super::super::cache;
use super::super::exact::{self, Path, Searched};
use super::super::ideals::{Ideals, MAX_IDEALS};
use super::super::instance::{Instance, When};
use super::super::partitions::Fused;
use super::super::request::{Engine, MapError, Objective};
use super::super::search::{Search, TIE};
use super::super::sharding::Problem;
use super::super::wide;
use super::filling::Filling;
use super::relaxed::{Open, Relaxation};
use super::separable::{self, Conversions, Own, Separable};
use super::{Bounds, Context, MOST_KERNELS, MOST_TILE_COUNTS, Set, Split};
use crate::deadline::Deadline;
use crate::model::Strategy;
use crate::model::compute::{Tiling, tensor_bytes};
use crate::model::layout::required;
use crate::model::schedule::Stage;
use crate::system::Style;
use crate::system::options::Layouts;
use crate::workload::Phase;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Rounds in which the weights of an assignment are looked for.
const ROUNDS: usize = 8;

/// Rounds in which they are moved for a smaller set.
const MORE_ROUNDS: usize = 2;

/// Tile counts are looked at one by one each time a set has been split by so many kernels more.
const TILES_AGAIN: usize = 4;

/// So many that are left are told apart.
const FEW_TILE_COUNTS: usize = 2;

/// Where pipelines of tiles fill, relaxed problems are slow to solve: one whose bound is so many times the gap below that of the weighted sum is not solved for
/// every set.
const FAR: f64 = 2.0;

/// Looks at them that left out none, after which most are passed over.
const LOOKS_IN_VAIN: u32 = 4;

/// One in so many is taken then.
const LOOKS_THEN: u32 = 8;

/// The bounds of one assignment.
pub struct Together<'a> {
    search: &'a Search<'a>,
    relaxation: Relaxation<'a>,
    separable: Separable,
    tiles: Vec<u64>,
    modes: &'static [bool],
    root: Open,
    /// Ideals of the forward and of the backward pass, or of a graph of one pass; of each none where they are not all listed.
    ideals: OnceCell<Vec<Option<Ideals>>>,
    /// Searches over ideals as they are reached that were given up.
    given_up: Cell<u32>,
    /// Searches over ideals as they are reached of problems whose pipelines fill.
    that_fill: Cell<u32>,
    /// Looks at tile counts one by one that left out none, since one did.
    looks_in_vain: Cell<u32>,
    /// Seconds that partitions take at least, by their kernels.
    paces: RefCell<HashMap<u128, f64>>,
    /// Whether pipelines of tiles fill.
    fills: bool,
    /// The least value of the forward pass of any sharding, by whether the weights stay on chip.
    least_forward: [OnceCell<Option<f64>>; 2],
}

impl<'a> Together<'a> {
    /// For the shardings of `base`; `None` where no plan fits any.
    /// `in_joules`: the conversions of its groups in joules of links, where they count.
    pub fn new(
        relaxation: Relaxation<'a>,
        (base, in_joules): (Problem, Vec<Conversions>),
        tiles: Vec<u64>,
    ) -> Option<Self> {
        let root = base.open.clone();
        let search = relaxation.search;
        let (w, system) = (search.workload, search.system);
        let ends = match tiles.as_slice() {
            [one] => (*one, *one),
            several => (1, *several.first()?),
        };
        let modes: &[bool] = if search.keeps_weights { &[true, false] } else { &[false] };
        let keeps = modes.contains(&true) && relaxation.instance(&root, ends, true).is_some();
        let modes: &[bool] = if keeps { &[true, false] } else { &[false] };
        // What keeping the weights on chip saves is saved in the bound too.
        let relaxed = relaxation.instance(&root, ends, false).or_else(|| relaxation.instance(&root, ends, true))?;
        let alone = system.chip.0.style == Style::KernelByKernel;
        let loads_in_own = alone && system.model.layouts == Layouts::Flowspace;
        let stored = relaxation.least_stored(&root, ends.0);
        let how = (ends.0, keeps, loads_in_own.then_some(stored.as_slice()));
        let own = (0..w.kernels.len())
            .map(|k| root[k].iter().map(|s| own(&relaxation, &relaxed, (k, *s), how)).collect())
            .collect();
        let phases: Vec<Phase> = w.kernels.iter().map(|k| k.phase).collect();
        let deadline = relaxation.search.deadline();
        let mut separable =
            Separable::new((base, in_joules), relaxation.rates, own, &relaxed, &phases, loads_in_own, deadline);
        let shares = relaxation.shares(&root);
        let held = |shares: (f64, f64)| -> Vec<Vec<f64>> {
            let held = |k: usize, s: Strategy| relaxation.held_by(k, s, shares) + relaxation.waits_by(k, s);
            (0..w.kernels.len()).map(|k| root[k].iter().map(|s| held(k, *s)).collect()).collect()
        };
        let others = relaxation.more_shares().into_iter().map(held).collect();
        separable.limit_memory(held(shares), others, search.dram_capacity() - relaxation.held_by_all());
        separable.add_waits(&search.request.waits);
        separable.tune(&root, ROUNDS);
        let (ideals, least_forward) = (OnceCell::new(), [OnceCell::new(), OnceCell::new()]);
        let (given_up, that_fill, looks_in_vain) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let fills = relaxed.fills();
        Some(Self {
            search,
            relaxation,
            separable,
            tiles,
            modes,
            root,
            ideals,
            given_up,
            that_fill,
            looks_in_vain,
            paces: RefCell::default(),
            fills,
            least_forward,
        })
    }

    /// Whether a shortest path over ideals is out of reach.
    fn large(&self) -> bool {
        self.given_up.get() > MOST_GIVEN_UP
            || self.that_fill.get() > MOST_THAT_FILL
            || self.search.workload.kernels.len() > MOST_KERNELS
    }

    /// The bound by a relaxed fusion problem; infinite where nothing beats `best`. `known` has the best
    /// partitions of each pass for a set that contains this one, where that is known, and gets those found.
    fn fused(
        &self,
        (instance, weights_on_chip): (&Instance, bool),
        stage: &Stage<'_>,
        best: f64,
        context: &mut Context<'_>,
        known: &mut [Option<Rc<Path>>; 2],
    ) -> Result<f64, MapError> {
        // What its kernels use wherever they run is no part of the sum over the partitions.
        let total = |layer: f64| self.total(stage, layer + instance.goal.constant);
        let closed = total(instance.least_value());
        if closed >= best * (1.0 - TIE) {
            return Ok(f64::INFINITY);
        }
        if instance.kernel_by_kernel {
            return Ok(closed.max(total(each_alone(instance))));
        }
        let cutoff = cutoff(&total, instance.least_value(), best);
        let limited = instance.pins.iter().any(Option::is_some) || instance.max_partitions.is_some();
        if self.large() || (limited && self.search.request.engine != Engine::Exact) {
            // Of large graphs a bound is many solves; for limited ones the MILP may be asked, which a bound is not worth.
            return Ok(closed);
        }
        if !limited {
            return Ok(match self.by_phase(instance, (cutoff, weights_on_chip), known) {
                ByPhase::Least(layer) => closed.max(total(layer)),
                ByPhase::None => f64::INFINITY,
                ByPhase::Unknown => closed,
            });
        }
        let found = self.search.solve_fusion(instance, cutoff, context.ideals, &mut wide::Memory::default())?;
        let complete = context.ideals.as_ref().is_some_and(|ideals| ideals.complete);
        Ok(match found {
            Some(Fused { layer, proven: true, .. }) => closed.max(total(layer)),
            Some(_) => closed,
            // What the deadline stopped says nothing.
            None if complete && !self.search.out_of_time() => f64::INFINITY,
            None => closed,
        })
    }

    /// The optimum of a relaxed problem whose passes are kept apart: the sum of theirs, each known from before where its
    /// kernels were as open.
    fn by_phase(
        &self,
        instance: &Instance,
        (cutoff, weights_on_chip): (f64, bool),
        known: &mut [Option<Rc<Path>>; 2],
    ) -> ByPhase {
        let parts = instance.passes();
        let all = self.ideals.get_or_init(|| {
            parts.iter().map(|part| Ideals::of(part, MAX_IDEALS).filter(|ideals| ideals.complete)).collect()
        });
        if all.iter().any(Option::is_none) && instance.fills() {
            self.that_fill.set(self.that_fill.get() + 1);
        }
        let deadline = self.search.deadline();
        let [ahead, behind] = known;
        let (first, others) = (&all[0], &all[1..]);
        let Some(ideals) = others.first() else {
            let least = least_path(instance, first.as_ref(), cutoff, ahead, deadline);
            return self.of_passes(&[least], cutoff);
        };
        let least = self.least_forward[usize::from(weights_on_chip)]
            .get_or_init(|| {
                let root = self.relaxation.instance(
                    &self.root,
                    self.ends(&(0..self.tiles.len()).collect::<Vec<_>>()),
                    weights_on_chip,
                )?;
                match least_path(&root.phase(false).0, first.as_ref(), f64::INFINITY, &mut None, deadline) {
                    Least::Value(value) | Least::Floor(value) => Some(value),
                    Least::None => None,
                }
            })
            .unwrap_or(0.0);
        let ahead = least_path(&parts[0], first.as_ref(), f64::INFINITY, ahead, deadline);
        if matches!(ahead, Least::None) {
            return self.of_passes(&[ahead], cutoff);
        }
        // One cutoff for all sets, so that what is known of a backward pass serves whatever its forward pass.
        let behind = least_path(&parts[1], ideals.as_ref(), cutoff - least, behind, deadline);
        self.of_passes(&[ahead, behind], cutoff)
    }

    /// What passes take together.
    fn of_passes(&self, passes: &[Least], cutoff: f64) -> ByPhase {
        if self.search.out_of_time() {
            // What the deadline stopped says nothing.
            return ByPhase::Unknown;
        }
        let mut sum = 0.0;
        for pass in passes {
            match pass {
                Least::Value(value) => sum += value,
                Least::Floor(value) => {
                    self.given_up.set(self.given_up.get() + 1);
                    sum += value;
                }
                Least::None => return ByPhase::None,
            }
        }
        if exact::within(sum, cutoff) { ByPhase::Least(sum) } else { ByPhase::None }
    }

    /// The tile counts at which costs and buffers of a set are least: one tile has no remainder.
    fn ends(&self, tiles: &[usize]) -> (u64, u64) {
        // Descending.
        let most = tiles.first().map_or(1, |i| self.tiles[*i]);
        (if tiles.len() == 1 { most } else { 1 }, most)
    }

    /// The least value of launches and filling beyond what a weighted sum of `layer` counts of them.
    fn beside_pace(&self, set: &mut Set, layer: f64) -> f64 {
        if self.is_time_for_filling(set) {
            let found = self.fillings(&set.open, self.ends(&set.tiles));
            // What held of the larger set holds of this one.
            set.filling.iter_mut().zip(found).for_each(|(known, found)| *known = found.or(known.take()));
        }
        self.beside(&set.filling, &set.open, layer)
    }

    fn is_time_for_filling(&self, set: &Set) -> bool {
        let is_quick = set.filling.iter().flatten().any(|filling| filling.is_quick);
        set.depth == 0 || (is_quick && set.depth.is_multiple_of(TILES_AGAIN))
    }

    /// What launches and filling cost at least with weights streamed or kept on chip, where that can be said.
    fn fillings(&self, open: &Open, ends: (u64, u64)) -> [Option<Rc<Filling>>; 2] {
        let mut out = [None, None];
        for mode in self.modes {
            let filling = match self.relaxation.instance(open, ends, *mode) {
                Some(instance) => Filling::of(&instance, &|kernels| self.least_pace(kernels), self.search.deadline()),
                None => Some(Filling::of_no_plan()),
            };
            out[usize::from(*mode)] = filling.map(Rc::new);
        }
        out
    }

    /// Seconds that a partition of given kernels takes at least, whatever the sharding.
    fn least_pace(&self, kernels: u128) -> f64 {
        let known = self.paces.borrow().get(&kernels).copied();
        known.unwrap_or_else(|| {
            let found = self.separable.least_pace(&self.root, kernels);
            self.paces.borrow_mut().insert(kernels, found);
            found
        })
    }

    /// Their least value beyond what a weighted sum of `layer` counts of them.
    fn beside(&self, fillings: &[Option<Rc<Filling>>; 2], open: &Open, layer: f64) -> f64 {
        let second = self.relaxation.rates.second;
        let (launches, serial) = self.separable.launches_and_serial();
        // Of other objectives not all of it are seconds.
        let pace = match self.search.request.objective {
            Objective::Time => (layer - serial - self.search.waits_between(open).1).max(0.0),
            Objective::Energy | Objective::Cost => 0.0,
        };
        let of = |mode: &bool| match &fillings[usize::from(*mode)] {
            Some(filling) => filling.least(pace) * (1.0 - TIE * 1e-2),
            None => 0.0,
        };
        let least = self.modes.iter().map(of).fold(f64::INFINITY, f64::min);
        // Where no plan fits, the fused bound says so.
        if least.is_finite() { second * (least - launches).max(0.0) } else { 0.0 }
    }

    /// Whether it is time to look at the tile counts of a set one by one.
    fn is_time_for_tiles(&self, set: &Set) -> bool {
        if !(2..=MOST_TILE_COUNTS).contains(&set.tiles.len()) || !set.depth.is_multiple_of(TILES_AGAIN) {
            return false;
        }
        let in_vain = self.looks_in_vain.get();
        self.looks_in_vain.set(in_vain.saturating_add(1));
        in_vain < LOOKS_IN_VAIN || in_vain.is_multiple_of(LOOKS_THEN)
    }

    /// The tile counts at which some sharding of a set may beat `best`.
    fn tiles_left(&self, set: &Set, best: f64, context: &mut Context<'_>) -> Result<Vec<usize>, MapError> {
        let stage = self.relaxation.stage(&set.open);
        let by_filling = match self.fills {
            true => self.tiles_that_fill_soon(set, &stage, best),
            false => ByFilling { left: set.tiles.clone(), is_closest: false },
        };
        // What the relaxed problem does not say of all tile counts together, it seldom says of each.
        if by_filling.is_closest && set.depth > 0 {
            return Ok(by_filling.left);
        }
        let mut left = Vec::new();
        for i in by_filling.left {
            if self.may_beat(&set.open, (self.ends(&[i]), &stage), set, best, context)? {
                left.push(i);
            }
        }
        Ok(left)
    }

    /// Tile counts of a set at which weighted sum, launches and filling leave a plan that beats `best`.
    fn tiles_that_fill_soon(&self, set: &Set, stage: &Stage<'_>, best: f64) -> ByFilling {
        let Some((layer, _)) = self.separable.least_tuned(&set.open, MORE_ROUNDS) else {
            return ByFilling { left: set.tiles.clone(), is_closest: false };
        };
        let bound =
            |filling: &[Option<Rc<Filling>>; 2]| self.total(stage, layer + self.beside(filling, &set.open, layer));
        let is_closest = set.fused <= bound(&set.filling);
        let mut left = set.tiles.clone();
        if self.is_time_for_filling(set) {
            left.retain(|i| bound(&self.fillings(&set.open, self.ends(&[*i]))) < best * (1.0 - TIE));
        }
        ByFilling { left, is_closest }
    }

    /// Whether a relaxed fusion problem of shardings out of a set has a plan that beats `best`. The best partitions of the set say so without a solve, where they do.
    fn may_beat(
        &self,
        open: &Open,
        (ends, stage): ((u64, u64), &Stage<'_>),
        set: &Set,
        best: f64,
        context: &mut Context<'_>,
    ) -> Result<bool, MapError> {
        let beats = |value: f64| value < best * (1.0 - TIE);
        for mode in self.modes {
            let Some(instance) = self.relaxation.instance(open, ends, *mode) else { continue };
            let mut known = set.known[usize::from(*mode)].clone();
            let passes = instance.passes();
            let of = |(pass, path): (&Instance, &Option<Rc<Path>>)| Some(pass.evaluate(&path.as_ref()?.assignment)?.0);
            let layer: Option<f64> = passes.iter().zip(&known).map(of).sum();
            if layer.is_some_and(|layer| beats(self.total(stage, layer + instance.goal.constant)))
                || beats(self.fused((&instance, *mode), stage, best, context, &mut known)?)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The objective of an iteration whose layer has at least this value and whose other parts are those of `stage`.
    fn total(&self, stage: &Stage<'_>, layer: f64) -> f64 {
        self.search.whole(stage, layer) * (1.0 - TIE * 1e-3)
    }

    /// The kernels with a choice, those first whose costs, and those of their tensors, are furthest below what they are under `sharding`.
    fn kernels(&self, open: &Open, ends: (u64, u64), sharding: &[Strategy]) -> Vec<usize> {
        let mut with_choice: Vec<usize> = (0..open.len()).filter(|k| open[*k].len() > 1).collect();
        let one: Open = sharding.iter().map(|s| vec![*s]).collect();
        let mode = self.modes.len() > 1;
        let of = |open: &Open| {
            self.relaxation.instance(open, ends, mode).or_else(|| self.relaxation.instance(open, ends, false))
        };
        let (Some(low), Some(high)) = (of(open), of(&one)) else {
            with_choice.sort_by_key(|k| std::cmp::Reverse(open[*k].len()));
            return with_choice;
        };
        let mut score = vec![0.0; open.len()];
        // A byte of SRAM is worth as much of the layer's time as it is of the SRAM.
        let by_sram = if low.sram_bytes.is_finite() { high.least_value() / low.sram_bytes } else { 0.0 };
        let goal = &low.goal;
        let moved = |bytes: f64| goal.value(bytes / low.dram_bytes_per_s, 0.0, bytes);
        for (k, (a, b)) in low.kernels.iter().zip(&high.kernels).enumerate() {
            let seconds = |c| separable::compute_seconds(c, low.cores);
            score[k] += (goal.second + goal.busy_second) * (seconds(&b.compute) - seconds(&a.compute))
                + goal.second * (b.network_s - a.network_s)
                + moved((b.dram_bytes - a.dram_bytes).max(0.0))
                + (b.resident_bytes - a.resident_bytes).max(0.0) * by_sram;
        }
        for (a, b) in low.tensors.iter().zip(&high.tensors) {
            let of_store = moved(b.store_bytes - a.store_bytes) + (b.store_buffer - a.store_buffer) * by_sram;
            if let Some(p) = a.producer {
                score[p] += of_store;
            }
            for (x, y) in a.uses.iter().zip(&b.uses) {
                let of_load = moved(y.load_bytes - x.load_bytes) + (y.onchip_buffer - x.onchip_buffer) * by_sram;
                score[x.kernel] += of_load + of_store;
            }
        }
        // Conversions are paid by one kernel and avoided by its neighbours.
        let pairs = low.kernels.iter().zip(&high.kernels);
        let paid: Vec<f64> = pairs.map(|(a, b)| goal.second * (b.network_s - a.network_s)).collect();
        for tensor in &low.tensors {
            let Some(p) = tensor.producer else { continue };
            for u in &tensor.uses {
                score[u.kernel] += paid[p];
                score[p] += paid[u.kernel].max(0.0) * 0.5;
            }
        }
        with_choice.sort_by(|a, b| score[*b].total_cmp(&score[*a]));
        with_choice
    }
}

impl Bounds for Together<'_> {
    fn is_out_of_reach(&self) -> bool {
        self.large()
    }

    fn bound(
        &self,
        set: &mut Set,
        best: f64,
        context: &mut Context<'_>,
    ) -> Result<Option<(f64, Vec<Strategy>)>, MapError> {
        if self.relaxation.least_resident(&set.open) > self.search.dram_capacity() {
            return Ok(None);
        }
        let Some((layer, sharding)) = self.separable.least_tuned(&set.open, MORE_ROUNDS) else { return Ok(None) };
        let stage = self.relaxation.stage(&set.open);
        if self.total(&stage, layer) >= best * (1.0 - TIE) {
            return Ok(None);
        }
        let bound = self.total(&stage, layer + self.beside_pace(set, layer));
        if bound >= best * (1.0 - TIE) {
            return Ok(None);
        }
        // Where it was far below for a larger set, it seldom closes this one.
        let is_far = self.fills && set.fused < bound - FAR * (best - bound);
        if !is_far || set.depth.is_multiple_of(TILES_AGAIN) {
            let ends = self.ends(&set.tiles);
            set.fused = f64::INFINITY;
            for mode in self.modes {
                // Nothing fits where there is none.
                let Some(instance) = self.relaxation.instance(&set.open, ends, *mode) else { continue };
                let known = &mut set.known[usize::from(*mode)];
                set.fused = set.fused.min(self.fused((&instance, *mode), &stage, best, context, known)?);
            }
        }
        Ok(Some((bound.max(set.fused), sharding)))
    }

    fn starts(&self) -> &[Vec<Strategy>] {
        self.separable.starts()
    }

    fn split(
        &self,
        mut set: Set,
        sharding: &[Strategy],
        best: f64,
        context: &mut Context<'_>,
    ) -> Result<Split, MapError> {
        // What one tile count saves in time another saves in SRAM, or fills sooner: a bound for all is below that of each.
        if self.is_time_for_tiles(&set) {
            let all = set.tiles.len();
            set.tiles = self.tiles_left(&set, best, context)?;
            if set.tiles.len() < all {
                self.looks_in_vain.set(0);
            }
            if set.tiles.len() <= FEW_TILE_COUNTS {
                return Ok(Split::Sets(set.split_tiles()));
            }
        }
        let kernels = self.kernels(&set.open, self.ends(&set.tiles), sharding);
        Ok(Split::Kernels(set, kernels))
    }

    /// By its own relaxation.
    fn may_win(
        &self,
        sharding: &[Strategy],
        set: &Set,
        best: f64,
        context: &mut Context<'_>,
    ) -> Result<bool, MapError> {
        if !best.is_finite() {
            return Ok(true);
        }
        let open: Open = sharding.iter().map(|s| vec![*s]).collect();
        let stage = self.relaxation.stage(&open);
        self.may_beat(&open, (self.ends(&set.tiles), &stage), set, best, context)
    }
}

/// What weighted sum, launches and filling say of the tile counts of a set.
struct ByFilling {
    /// Those at which a plan may win.
    left: Vec<usize>,
    /// Whether the relaxed problem bounds the set no closer.
    is_closest: bool,
}

/// What the passes of a relaxed problem take together.
enum ByPhase {
    /// At least so much.
    Least(f64),
    /// More than was asked for, or nothing fits.
    None,
    /// No time is left to say.
    Unknown,
}

/// What a pass takes.
enum Least {
    /// So much.
    Value(f64),
    /// No less: the search was given up.
    Floor(f64),
    /// More than was asked for, or nothing fits.
    None,
}

/// What a search over ideals as they are reached may take.
const EFFORT: Effort = Effort { ideals: 20_000, joins: 1_000_000 };

/// So many of them may be given up before sets smaller than the whole are out of reach.
const MOST_GIVEN_UP: u32 = 0;

/// And so many searched where pipelines of tiles fill: bounds of sets hardly rise there, and each takes long.
const MOST_THAT_FILL: u32 = 16;

/// The value of the best partitions of a pass, if it is at most `cutoff`. Where those of a larger set cost here what they
/// cost there, they are the best here too: every cost of a smaller set is at least that of a larger one.
fn least_path(
    part: &Instance,
    ideals: Option<&Ideals>,
    mut cutoff: f64,
    known: &mut Option<Rc<Path>>,
    deadline: Deadline,
) -> Least {
    if let Some(path) = known.as_ref()
        && let Some((value, _)) = part.evaluate(&path.assignment)
    {
        if value <= path.objective * (1.0 + TIE * 1e-3) {
            return match exact::within(path.objective, cutoff) {
                true => Least::Value(path.objective),
                false => Least::None,
            };
        }
        cutoff = cutoff.min(value);
    }
    let mut given_up = None;
    let solve = || match ideals {
        Some(ideals) => exact::solve_until(part, ideals, cutoff, deadline),
        None => {
            let Some(found) = best_first::search(part, cutoff, None, EFFORT, deadline) else {
                given_up = Some(part.least_value());
                return Searched { path: None, stopped: true };
            };
            given_up = (!found.complete).then_some(found.bound);
            let of = |(objective, assignment)| Path { assignment, objective, proven: true, priced: found.joins };
            Searched { path: found.plan.map(of).filter(|_| found.complete), stopped: !found.complete }
        }
    };
    match cache::fusion(part, cutoff, solve) {
        Some(path) => {
            let objective = path.objective;
            *known = Some(Rc::new(path));
            Least::Value(objective)
        }
        None => given_up.map_or(Least::None, Least::Floor),
    }
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
    relaxed: &Instance,
    (k, s): (usize, Strategy),
    (tiles, weights_on_chip, stored): (u64, bool, Option<&[f64]>),
) -> Own {
    let (w, system, degrees) = (relaxation.search.workload, relaxation.search.system, relaxation.degrees);
    let kernel = &w.kernels[k];
    let options = &system.model;
    let samples = crate::model::schedule::samples_per_pass(w, options);
    let compute = relaxation.compute(kernel, &[s], tiles);
    let streamed = relaxation.kernel_dram(kernel, s, false);
    let mut dram = if weights_on_chip { streamed.min(relaxation.kernel_dram(kernel, s, true)) } else { streamed };
    if let Some(stored) = stored {
        for (id, tensor) in w.tensors.iter().enumerate() {
            if !options.counts(tensor) {
                continue;
            }
            let forward = |k: usize| w.kernels[k].phase == Phase::Forward;
            let other_phase = tensor.producer.is_some_and(|p| forward(p) != forward(k));
            // A reader of another phase loads what was stored, and that is at least so much.
            let stored = if other_phase { stored[id] } else { f64::INFINITY };
            let loads = tensor.consumers.iter().filter(|u| u.kernel == k).map(|u| {
                let layout = required(kernel, u.slot, s, options.layouts);
                (tensor_bytes(tensor, layout, degrees.tp, Tiling::WHOLE, w.word_bytes).0 * samples).min(stored)
            });
            dram += loads.fold(0.0, f64::max);
        }
    }
    Own {
        compute: separable::compute_seconds(&compute, relaxed.cores),
        dram: dram / relaxed.dram_bytes_per_s,
        network: crate::model::collective::own_seconds(kernel, &degrees.own, samples, options)
            + relaxation.own_network(kernel, s, tiles),
        uses: relaxation.own_use(k, s, tiles),
    }
}
