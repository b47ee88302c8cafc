//! Chips that run kernel by kernel: the whole iteration as a sum of terms of few kernels each, so that the least value is
//! not a bound but the optimum, as far as the DRAM's capacity lets it.
//!
//! A kernel is a partition of its own. What it takes depends on its own strategy, on which layouts the readers of its
//! results want (it converts and stores them: [`super::super::instance`]), and, where it reads what the other pass made, on
//! how that lies in DRAM and on whether an earlier reader has paid for the same conversion. Variables of their own keep the
//! terms small:
//!
//! | variable | values | there for |
//! |---|---|---|
//! | strategy of a kernel | those open to it | every kernel |
//! | layouts wanted of a tensor | sets of layouts | tensors that several kernels of the pass read: each asks for its own to be in it |
//! | how a tensor lies | layout made, layouts stored | tensors that the other pass reads |
//! | layouts paid for | sets of layouts | the third reader of a tensor in another pass, and those after it |
//!
//! A set larger than what is wanted only costs more, so that the least sum has the sets that are wanted.
//! What a kernel counts is its time, or its share of another objective ([`super::super::goal`]): arithmetic, traffic and links besides.
//! To the layer's come the parts of the iteration that strategies change: hand-over, gradients, optimiser. A price on
//! bytes stands for the DRAM's capacity (as in [`super::separable`]). The tile count is one for all kernels; with several
//! at once every kernel has its best, which is a bound, and where they are told apart the optimum of each.

use super::super::elimination::preference;
use super::super::instance::{CAPACITY_TOLERANCE, Compute, Goal, combine};
use super::super::minsum::{self, Least, Sum, Term};
use super::super::request::Objective;
use super::super::sharding::Problem;
use super::relaxed::{Open, Relaxation};
use crate::deadline::Deadline;
use crate::model::Strategy;
use crate::model::collective;
use crate::model::compute::{Tiling, extra_dram, gradient_bytes, has_own_part, local, pieces, problems, weight_bytes};
use crate::model::layout::{Layout, produced};
use crate::model::schedule::Stage;
use crate::system::Overlap;
use crate::system::options::{Charge, Fanout, Layouts, Pipeline, WeightTraffic};
use crate::workload::{Axis, Use};
use std::borrow::Cow;

/// All layouts; a set of them is a mask of their positions here.
const LAYOUTS: [Layout; 4] = [Layout::Replicated, Layout::Rows, Layout::Cols, Layout::Partial];

fn place(layout: Layout) -> usize {
    match layout {
        Layout::Replicated => 0,
        Layout::Rows => 1,
        Layout::Cols => 2,
        Layout::Partial => 3,
    }
}

/// What follows from the value of one variable, or is fixed.
#[derive(Debug, Clone)]
struct Known<T> {
    variable: Option<usize>,
    values: Vec<T>,
}

impl<T: Copy + Default> Known<T> {
    fn fixed(value: T) -> Self {
        Self { variable: None, values: vec![value] }
    }
    /// For a choice of the variables of `scope`.
    fn at(&self, scope: &[usize], at: &[usize]) -> T {
        let value = self.variable.and_then(|v| scope.iter().position(|w| *w == v)).map_or(0, |i| at[i]);
        self.values.get(value).copied().unwrap_or_default()
    }
}

/// How a tensor lies in DRAM: the layout that it was made in, and those that it is stored for (none: as made).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct State {
    made: usize,
    stored: u8,
}

impl State {
    /// The whole tensor is no smaller than any shard of it.
    fn of(made: Layout, wanted: u8) -> Self {
        Self { made: place(made), stored: if wanted & 1 == 1 { 1 } else { wanted } }
    }
}

/// A tensor at a tile count.
struct Sizes {
    /// Bytes of a pass in each layout.
    bytes: [f64; 4],
    /// Seconds from each layout to each.
    convert: [[f64; 4]; 4],
    /// What the joules of links count in the objective, from each layout to each.
    links: [[f64; 4]; 4],
}

impl Sizes {
    fn stored(&self, state: State) -> f64 {
        if state.stored == 0 {
            return self.bytes[state.made];
        }
        let wanted = (0..LAYOUTS.len()).filter(|l| state.stored >> l & 1 == 1);
        wanted.map(|l| self.bytes[l]).fold(0.0, f64::max)
    }
}

/// What a kernel's own strategy and tile count decide.
struct Local {
    compute_s: f64,
    network_s: f64,
    serial_s: f64,
    /// DRAM bytes of its weights, gradients and look-ups, and of what it reads of its own pass.
    dram_bytes: f64,
    /// Times that what it reads is read again: what its problems share, and that of which each has its own part.
    again: [f64; 2],
    /// Bytes of its own pass read again.
    reread: f64,
    /// What FLOP and joules of its own collectives count in the objective.
    uses: f64,
}

/// A tensor that a kernel makes.
struct Made {
    tensor: usize,
    wanted: Known<u8>,
    stored: bool,
}

/// A tensor of the other pass that a kernel reads.
struct Other {
    tensor: usize,
    state: Known<State>,
    /// For each use: the place of the layout wanted by strategy, the layouts paid for by readers before it, and whether each problem has its own part of the tensor.
    uses: Vec<(Vec<usize>, Known<u8>, bool)>,
}

/// The numbers of an assignment of dimensions.
pub struct Alone {
    /// When the search must end.
    deadline: Deadline,
    root: Open,
    sizes: Vec<usize>,
    /// By tile count and tensor.
    tensors: Vec<Vec<Sizes>>,
    /// By tile count, kernel and strategy; none where it does not fit the SRAM.
    local: Vec<Vec<Vec<Option<Local>>>>,
    made: Vec<Vec<Made>>,
    other: Vec<Vec<Other>>,
    /// Terms that no tile count changes: what must agree, and parts of the iteration, in values of a layer.
    fixed: Vec<Term>,
    /// Terms with the best tile count of each kernel.
    any: Vec<Term>,
    overlap: Overlap,
    bandwidth: f64,
    overhead_s: f64,
    goal: Goal,
    /// The objective of an iteration without layers, and what it grows by with the value of a layer.
    base: f64,
    slope: f64,
    /// By kernel and strategy: bytes that a layer holds, what it keeps of a microbatch, and what waits between the passes.
    need: Vec<Vec<[f64; 3]>>,
    /// What some chip holds at least of all three, by the shares of the first two ([`Relaxation::shares`], then [`Relaxation::more_shares`]).
    held: Vec<Vec<Vec<f64>>>,
    room: f64,
}

/// A bound with a price on memory.
pub struct Priced {
    pub bound: f64,
    /// Value of a layer that a byte in the DRAM is priced at.
    pub price: f64,
    /// Which of the shares say what is held.
    pub shares: usize,
    /// A sharding, and whether it leaves room.
    pub sharding: Vec<Strategy>,
    pub has_room: bool,
}

impl Alone {
    /// For the shardings of `base`. `None` under options other than those that the terms know, and where one of them has
    /// too many kernels.
    pub fn new(relaxation: &Relaxation<'_>, base: &Problem, tiles: &[u64]) -> Option<Self> {
        let root = &base.open;
        let (w, system) = (relaxation.search.workload, relaxation.search.system);
        let options = &system.model;
        if options.layouts != Layouts::Flowspace
            || options.tensor_fanout != Fanout::Shared
            || options.boundary_tensors != Charge::Charged
            || options.pipeline == Pipeline::DfmodelFirst
        {
            return None;
        }
        let mut stage = relaxation.stage(root);
        let shares = relaxation.shares(root);
        let total = |stage: &Stage<'_>, layer: f64| relaxation.search.whole(stage, layer);
        let without = total(&stage, 0.0);
        let slope = match relaxation.search.request.objective {
            Objective::Time => total(&stage, 1.0) - without,
            // The value of a layer is what all its passes count.
            Objective::Energy | Objective::Cost => 1.0,
        };
        let mut out = Self {
            deadline: relaxation.search.deadline(),
            sizes: root.iter().map(Vec::len).collect(),
            root: root.clone(),
            tensors: tiles.iter().map(|t| sizes(relaxation, *t)).collect(),
            local: tiles.iter().map(|t| locals(relaxation, root, *t)).collect(),
            made: Vec::new(),
            other: Vec::new(),
            fixed: Vec::new(),
            any: Vec::new(),
            overlap: system.overlap(),
            bandwidth: relaxation.search.rate.dram_bytes_per_s,
            overhead_s: relaxation.search.rate.launch_s,
            goal: relaxation.rates.goal(0.0),
            base: without,
            slope,
            need: (0..root.len())
                .map(|k| {
                    let of = |s: &Strategy| {
                        let held = |shares| relaxation.held_by(k, *s, shares);
                        [held((1.0, 0.0)), held((0.0, 1.0)), relaxation.waits_by(k, *s)]
                    };
                    root[k].iter().map(of).collect()
                })
                .collect(),
            held: Vec::new(),
            room: relaxation.search.dram_capacity() - relaxation.held_by_all(),
        };
        out.hold(shares);
        out.link(relaxation)?;
        for link in base.links.iter().filter(|link| link.pairs.iter().flatten().any(Option::is_none)) {
            let allowed = |a: usize, b: usize| if link.pairs[a][b].is_some() { 0.0 } else { f64::INFINITY };
            out.fixed.push(match link.from == link.to {
                true => Term::new(vec![link.from], &out.sizes, |at| allowed(at[0], at[0]))?,
                false => Term::new(vec![link.from, link.to], &out.sizes, |at| allowed(at[0], at[1]))?,
            });
        }
        // What the iteration takes beside its layers is affine in bytes of weights and gradients, and convex in those handed over.
        let (word, t) = (w.word_bytes, relaxation.degrees.tp);
        let from = stage.clone();
        for (k, kernel) in w.kernels.iter().enumerate() {
            let bytes: Vec<(f64, f64)> = root[k]
                .iter()
                .map(|s| {
                    let owned = if kernel.owns_weight() { weight_bytes(kernel, *s, t, word) } else { 0.0 };
                    (owned, gradient_bytes(kernel, *s, t, word))
                })
                .collect();
            let least = bytes.iter().fold((f64::INFINITY, f64::INFINITY), |l, b| (l.0.min(b.0), l.1.min(b.1)));
            let value = |(owned, gradient): &(f64, f64)| {
                stage.layer_weight_bytes = from.layer_weight_bytes + owned - least.0;
                stage.layer_gradient_bytes = from.layer_gradient_bytes + gradient - least.1;
                (total(&stage, 0.0) - without).max(0.0) / slope
            };
            let extra: Vec<f64> = bytes.iter().map(value).collect();
            if extra.iter().any(|s| *s > 0.0) {
                out.fixed.push(Term::of_one(k, extra));
            }
        }
        if options.pipeline == Pipeline::OneForwardOneBackward {
            for tensor in w.tensors.iter().filter(|tensor| tensor.carried_from.is_some()) {
                let mut scope: Vec<usize> = tensor.consumers.iter().map(|u| u.kernel).collect();
                scope.sort_unstable();
                scope.dedup();
                let bytes = |at: &[usize]| {
                    let of = |u: &Use| {
                        let s = scope.iter().position(|k| *k == u.kernel).map_or(0, |i| at[i]);
                        relaxation.bytes(tensor, relaxation.wanted(u, root[u.kernel][s]), 1).0
                    };
                    tensor.consumers.iter().map(of).fold(0.0, f64::max)
                };
                let Some(mut term) = Term::new(scope.clone(), &out.sizes, bytes) else { continue };
                let floor = tensor.consumers.iter().map(|u| {
                    let wants = root[u.kernel].iter().map(|s| relaxation.bytes(tensor, relaxation.wanted(u, *s), 1).0);
                    wants.fold(f64::INFINITY, f64::min)
                });
                let floor = floor.fold(0.0, f64::max);
                let mut stage = from.clone();
                // Of a maximum of affine functions, the one that is largest where it begins.
                stage.carried_bytes = from.carried_bytes * (1.0 + 1e-6);
                let by_byte = (total(&stage, 0.0) - without) / (stage.carried_bytes - from.carried_bytes);
                if by_byte > 0.0 && by_byte.is_finite() {
                    term.map(|bytes| (bytes - floor).max(0.0) * by_byte * (1.0 - 1e-9) / slope);
                    out.fixed.push(term);
                }
            }
        }
        out.any = out.terms(&(0..tiles.len()).collect::<Vec<_>>())?;
        Some(out)
    }

    /// What is held by shares of what a layer holds and keeps.
    fn hold(&mut self, (layers, copies): (f64, f64)) {
        let bytes = |need: &[f64; 3]| layers * need[0] + copies * need[1] + need[2];
        self.held.push(self.need.iter().map(|of| of.iter().map(bytes).collect()).collect());
    }

    /// Looks at what is held by more shares than the first.
    pub fn hold_more(&mut self, relaxation: &Relaxation<'_>) {
        relaxation.more_shares().into_iter().for_each(|shares| self.hold(shares));
    }

    /// The shares by which a sharding holds most, and whether that is more than there is room for.
    pub fn fullest(&self, sharding: &[Strategy]) -> (usize, bool) {
        let held = (0..self.held.len()).map(|shares| self.holds(sharding, shares));
        let fullest = held.enumerate().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        fullest.map_or((0, false), |(shares, bytes)| (shares, bytes > self.room))
    }

    /// Finds what the terms of each kernel depend on, with variables for sets of layouts.
    fn link(&mut self, relaxation: &Relaxation<'_>) -> Option<()> {
        let w = relaxation.search.workload;
        let n = w.kernels.len();
        self.made = (0..n).map(|_| Vec::new()).collect();
        self.other = (0..n).map(|_| Vec::new()).collect();
        for (id, tensor) in w.tensors.iter().enumerate() {
            let Some(p) = tensor.producer else { continue };
            let carried = relaxation.next[id].iter().flat_map(|c| &w.tensors[*c].consumers);
            let here: Vec<Use> = tensor
                .consumers
                .iter()
                .filter(|u| relaxation.same_phase(p, u.kernel))
                .chain(carried)
                .copied()
                .collect();
            let others: Vec<Use> =
                tensor.consumers.iter().filter(|u| !relaxation.same_phase(p, u.kernel)).copied().collect();
            let wanted = self.wanted(relaxation, &here)?;
            if !others.is_empty() {
                let state = self.state(p, &wanted)?;
                self.read_later(relaxation, id, state, &others)?;
            }
            let stored = tensor.output || !tensor.consumers.is_empty();
            self.made[p].push(Made { tensor: id, wanted, stored });
        }
        Some(())
    }

    /// The layouts that a kernel's uses want together, by its strategy.
    fn masks(&self, relaxation: &Relaxation<'_>, uses: &[Use], kernel: usize) -> Vec<u8> {
        let mask = |s: &Strategy| {
            let mine = uses.iter().filter(|u| u.kernel == kernel);
            mine.fold(0, |mask, u| mask | 1u8 << place(relaxation.wanted(u, *s)))
        };
        self.root[kernel].iter().map(mask).collect()
    }

    /// The layouts in which readers want a tensor.
    fn wanted(&mut self, relaxation: &Relaxation<'_>, uses: &[Use]) -> Option<Known<u8>> {
        let mut readers: Vec<usize> = uses.iter().map(|u| u.kernel).collect();
        readers.sort_unstable();
        readers.dedup();
        match readers.as_slice() {
            [] => return Some(Known::fixed(0)),
            [one] => return Some(Known { variable: Some(*one), values: self.masks(relaxation, uses, *one) }),
            _ => {}
        }
        let masks: Vec<Vec<u8>> = readers.iter().map(|k| self.masks(relaxation, uses, *k)).collect();
        let mut sets = vec![0u8];
        for of in &masks {
            sets = sets.iter().flat_map(|set| of.iter().map(move |mask| set | mask)).collect();
            sets.sort_unstable();
            sets.dedup();
        }
        let set = self.sizes.len();
        self.sizes.push(sets.len());
        for (k, mask) in readers.iter().zip(&masks) {
            let asks = |at: &[usize]| if mask[at[0]] & !sets[at[1]] == 0 { 0.0 } else { f64::INFINITY };
            self.fixed.push(Term::new(vec![*k, set], &self.sizes, asks)?);
        }
        Some(Known { variable: Some(set), values: sets })
    }

    /// How a tensor lies that kernel `p` makes and readers of its own pass want so.
    fn state(&mut self, p: usize, wanted: &Known<u8>) -> Option<Known<State>> {
        let made = |s: usize| produced(self.root[p][s], Layouts::Flowspace);
        let Some(variable) = wanted.variable.filter(|v| *v != p) else {
            let mask = |s: usize| wanted.at(&[p], &[s]);
            let values = (0..self.root[p].len()).map(|s| State::of(made(s), mask(s))).collect();
            return Some(Known { variable: Some(p), values });
        };
        let mut states: Vec<State> = Vec::new();
        for s in 0..self.root[p].len() {
            for mask in &wanted.values {
                let state = State::of(made(s), *mask);
                if !states.contains(&state) {
                    states.push(state);
                }
            }
        }
        let lies = self.sizes.len();
        let mut sizes = self.sizes.clone();
        sizes.push(states.len());
        let agree = |at: &[usize]| {
            let state = State::of(made(at[0]), wanted.values.get(at[1]).copied().unwrap_or(0));
            if states.get(at[2]) == Some(&state) { 0.0 } else { f64::INFINITY }
        };
        let term = Term::new(vec![p, variable, lies], &sizes, agree)?;
        self.fixed.push(term);
        self.sizes = sizes;
        Some(Known { variable: Some(lies), values: states })
    }

    /// The readers of another pass: each pays for its layout unless one before it has.
    fn read_later(
        &mut self,
        relaxation: &Relaxation<'_>,
        tensor: usize,
        state: Known<State>,
        uses: &[Use],
    ) -> Option<()> {
        let mut paid: Known<u8> = Known::fixed(0);
        for u in uses {
            let wants: Vec<usize> = self.root[u.kernel].iter().map(|s| place(relaxation.wanted(u, *s))).collect();
            let after = |before: u8, s: usize| before | 1u8 << wants.get(s).copied().unwrap_or(0);
            let next = match paid.variable {
                None => {
                    let values = (0..wants.len()).map(|s| after(paid.values[0], s)).collect();
                    Known { variable: Some(u.kernel), values }
                }
                Some(v) if v == u.kernel => {
                    let values = (0..wants.len()).map(|s| after(paid.values[s], s)).collect();
                    Known { variable: Some(v), values }
                }
                Some(before) => {
                    let mut sets: Vec<u8> =
                        paid.values.iter().flat_map(|set| (0..wants.len()).map(|s| after(*set, s))).collect();
                    sets.sort_unstable();
                    sets.dedup();
                    let chain = self.sizes.len();
                    self.sizes.push(sets.len());
                    let agree = |at: &[usize]| {
                        let set = after(paid.values.get(at[0]).copied().unwrap_or(0), at[1]);
                        if sets.get(at[2]) == Some(&set) { 0.0 } else { f64::INFINITY }
                    };
                    self.fixed.push(Term::new(vec![before, u.kernel, chain], &self.sizes, agree)?);
                    Known { variable: Some(chain), values: sets }
                }
            };
            let before = std::mem::replace(&mut paid, next);
            let own = has_own_part(&relaxation.search.workload.kernels[u.kernel], u.slot);
            let of_kernel = &mut self.other[u.kernel];
            match of_kernel.iter_mut().find(|other| other.tensor == tensor) {
                Some(other) => other.uses.push((wants, before, own)),
                None => of_kernel.push(Other { tensor, state: state.clone(), uses: vec![(wants, before, own)] }),
            }
        }
        Some(())
    }

    /// The terms of all kernels, each at the best of some tile counts. `None` where one has too many entries.
    fn terms(&self, tiles: &[usize]) -> Option<Vec<Term>> {
        (0..self.root.len()).map(|k| self.term(k, tiles)).collect()
    }

    fn term(&self, k: usize, tiles: &[usize]) -> Option<Term> {
        let (made, other) = (&self.made[k], &self.other[k]);
        let of_other = other
            .iter()
            .flat_map(|o| std::iter::once(o.state.variable).chain(o.uses.iter().map(|(_, before, _)| before.variable)));
        let mut scope: Vec<usize> = made.iter().map(|m| m.wanted.variable).chain(of_other).flatten().collect();
        scope.push(k);
        scope.sort_unstable();
        scope.dedup();
        let own = scope.iter().position(|v| *v == k)?;
        let mut wanted: Vec<u8> = vec![0; made.len()];
        let mut states: Vec<State> = vec![State::default(); other.len()];
        Term::new(scope.clone(), &self.sizes, |at| {
            let s = at[own];
            let makes = place(produced(self.root[k][s], Layouts::Flowspace));
            wanted.iter_mut().zip(made).for_each(|(set, m)| *set = m.wanted.at(&scope, at));
            states.iter_mut().zip(other).for_each(|(state, o)| *state = o.state.at(&scope, at));
            let of_tiles = |i: usize| -> f64 {
                let Some(local) = &self.local[i][k][s] else { return f64::INFINITY };
                let (mut network, mut dram, mut reread) = (local.network_s, local.dram_bytes, local.reread);
                let mut uses = local.uses;
                for (m, set) in made.iter().zip(&wanted) {
                    let sizes = &self.tensors[i][m.tensor];
                    for l in (0..LAYOUTS.len()).filter(|l| set >> l & 1 == 1) {
                        network += sizes.convert[makes][l];
                        uses += sizes.links[makes][l];
                    }
                    if m.stored {
                        dram += sizes.stored(State { made: makes, stored: *set });
                    }
                }
                for (o, state) in other.iter().zip(&states) {
                    let sizes = &self.tensors[i][o.tensor];
                    let stored = sizes.stored(*state);
                    let mut load: f64 = 0.0;
                    for (wants, before, own) in &o.uses {
                        let bytes = sizes.bytes[wants[s]].min(stored);
                        load = load.max(bytes);
                        reread += local.again[usize::from(*own)] * bytes;
                        if before.at(&scope, at) >> wants[s] & 1 == 0 {
                            network += sizes.convert[state.made][wants[s]];
                            uses += sizes.links[state.made][wants[s]];
                        }
                    }
                    dram += load;
                }
                dram += reread;
                if network.is_infinite() {
                    return f64::INFINITY;
                }
                let time = combine(self.overlap, local.compute_s, dram / self.bandwidth, network);
                self.goal.value(time + local.serial_s + self.overhead_s, local.compute_s, dram) + uses
            };
            tiles.iter().map(|i| of_tiles(*i)).fold(f64::INFINITY, f64::min)
        })
    }

    /// The least iteration over the shardings of `open`, each kernel at the best of some tile counts, with a price on each byte in
    /// the DRAM beyond its room, and a sharding that reaches it. `None` where nothing agrees or fits the SRAM; zero and no sharding
    /// where too many kernels depend on each other at once.
    fn least(&self, open: &Open, tiles: &[usize], (byte_price, shares): (f64, usize)) -> Option<(f64, Vec<Strategy>)> {
        let at_tiles = match tiles.len() == self.local.len() {
            true => Some(Cow::Borrowed(&self.any)),
            false => self.terms(tiles).map(Cow::Owned),
        };
        let Some(terms) = at_tiles else { return Some((0.0, Vec::new())) };
        let mut total = Sum::new(&self.sizes);
        terms.iter().chain(&self.fixed).for_each(|term| total.add(term, 1.0));
        for (k, all) in self.root.iter().enumerate() {
            if byte_price > 0.0 || open[k].len() < all.len() {
                let cost = |(s, held): (&Strategy, &f64)| match open[k].contains(s) {
                    true => byte_price * held,
                    false => f64::INFINITY,
                };
                total.add_of_one(k, all.iter().zip(&self.held[shares][k]).map(cost));
            }
        }
        let rank = |v: usize, value: usize| self.root.get(v).map_or(0, |open| preference(open[value]));
        match minsum::least(total, rank, self.deadline) {
            Least::Infeasible => None,
            Least::TooWide | Least::OutOfTime => Some((0.0, Vec::new())),
            Least::Found(values, sum) => {
                let room = if byte_price > 0.0 { byte_price * self.room } else { 0.0 };
                let value = self.base + self.slope * (sum - room);
                // Rounding is relative to the sums, not to their difference.
                let rounding = 1e-12 * (self.base + self.slope * (sum + room.abs()));
                let sharding = values.iter().zip(&self.root).map(|(s, open)| open[*s]).collect();
                Some(((value - rounding).max(0.0), sharding))
            }
        }
    }

    /// Whether every sharding of a set holds more in the DRAM than there is.
    pub fn holds_too_much(&self, open: &Open) -> bool {
        let least = |held: &[Vec<f64>], k: usize| {
            let held = self.root[k].iter().zip(&held[k]).filter(|(s, _)| open[k].contains(s));
            held.map(|(_, bytes)| *bytes).fold(f64::INFINITY, f64::min)
        };
        let sum = |held: &Vec<Vec<f64>>| (0..open.len()).map(|k| least(held, k)).sum::<f64>();
        self.held.iter().any(|held| sum(held) * (1.0 - CAPACITY_TOLERANCE) > self.room)
    }

    /// [`Alone::least`] at a price that is moved from `from` to where the bound, a concave function of it, is larger, for as long as
    /// a set is not closed by `best`: the bound, the price, and a sharding that has room, if one was met.
    pub fn least_priced(
        &self,
        open: &Open,
        tiles: &[usize],
        (from, shares, rounds): (f64, usize, usize),
        best: f64,
    ) -> Option<Priced> {
        let (mut low, mut high, mut price) = (0.0, f64::INFINITY, from);
        let mut found: Option<Priced> = None;
        for _ in 0..=rounds {
            let Some((bound, sharding)) = self.least(open, tiles, (price, shares)) else {
                // Nothing agrees, whatever the price.
                return None;
            };
            let over = if sharding.is_empty() { 0.0 } else { self.holds(&sharding, shares) - self.room };
            let has_room = over <= 0.0 && !sharding.is_empty();
            let better = found.as_ref().is_none_or(|found| bound > found.bound);
            let before = found.take();
            let kept = before.as_ref().filter(|found| found.has_room && !has_room).map(|found| found.sharding.clone());
            found = Some(match before {
                Some(found) if !better => match has_room && !found.has_room {
                    true => Priced { sharding, has_room, ..found },
                    false => found,
                },
                _ => Priced {
                    bound,
                    price,
                    shares,
                    has_room: has_room || kept.is_some(),
                    sharding: kept.unwrap_or(sharding),
                },
            });
            let closed = found.as_ref().is_some_and(|found| found.bound >= best);
            if closed || !self.room.is_finite() || over == 0.0 || (has_room && price == 0.0) {
                break;
            }
            if has_room {
                high = price
            } else {
                low = price
            }
            // Where the bound would reach the best plan, were it a line; else the middle.
            let reach = if best.is_finite() { price + (best - bound) / (self.slope * over) } else { f64::NAN };
            let first = (bound / self.slope).max(f64::MIN_POSITIVE) / self.room.abs().max(1.0);
            price = match (reach > low && reach < high, high.is_finite()) {
                (true, true) => reach.clamp(low + 0.1 * (high - low), high - 0.1 * (high - low)),
                (true, false) => reach.min((4.0 * price).max(first)),
                (false, true) => 0.5 * (low + high),
                (false, false) => (4.0 * price).max(first),
            };
        }
        found
    }

    /// The sharding of a set that holds least in the DRAM.
    pub fn least_memory(&self, open: &Open, tiles: &[usize]) -> Option<Vec<Strategy>> {
        let (bound, _) = self.least(open, tiles, (0.0, 0))?;
        let price = (bound / self.slope).max(f64::MIN_POSITIVE) / self.room.abs().max(1.0);
        self.least(open, tiles, (1e6 * price, 0)).map(|(_, sharding)| sharding).filter(|sharding| !sharding.is_empty())
    }

    /// Bytes in the DRAM that a sharding decides.
    fn holds(&self, sharding: &[Strategy], shares: usize) -> f64 {
        let held = &self.held[shares];
        let of = |k: usize| self.root[k].iter().position(|s| *s == sharding[k]).map_or(0.0, |s| held[k][s]);
        (0..sharding.len()).map(of).sum()
    }

    /// The kernel to split a set at, where its sharding does not fit: the one with the largest choice of bytes in the DRAM.
    pub fn split(&self, open: &Open, shares: usize) -> Option<usize> {
        let choice = |k: usize| {
            let held =
                self.root[k].iter().zip(&self.held[shares][k]).filter(|(s, _)| open[k].contains(s)).map(|(_, h)| *h);
            let (least, most) = held.fold((f64::INFINITY, 0.0_f64), |(a, b), h| (a.min(h), b.max(h)));
            most - least
        };
        let open_ones = (0..open.len()).filter(|k| open[*k].len() > 1);
        open_ones.max_by(|a, b| choice(*a).total_cmp(&choice(*b)).then(b.cmp(a)))
    }
}

/// Bytes and conversions of every tensor at a tile count.
fn sizes(relaxation: &Relaxation<'_>, tiles: u64) -> Vec<Sizes> {
    let tensors = &relaxation.search.workload.tensors;
    let counts_links = relaxation.counts_links();
    let of = |tensor| {
        let (mut convert, mut links) = ([[0.0; 4]; 4], [[0.0; 4]; 4]);
        for a in 0..LAYOUTS.len() {
            // Partial sums are wanted by nobody.
            for b in 0..place(Layout::Partial) {
                convert[a][b] = relaxation.convert(tensor, LAYOUTS[a], LAYOUTS[b], tiles);
                if counts_links {
                    links[a][b] = relaxation.rates.link_j * relaxation.convert_j(tensor, LAYOUTS[a], LAYOUTS[b], tiles);
                }
            }
        }
        let bytes = LAYOUTS.map(|layout| relaxation.bytes(tensor, layout, tiles).0 * relaxation.samples);
        Sizes { bytes, convert, links }
    };
    tensors.iter().map(of).collect()
}

/// What each strategy of each kernel decides at a tile count.
fn locals(relaxation: &Relaxation<'_>, root: &Open, tiles: u64) -> Vec<Vec<Option<Local>>> {
    let search = relaxation.search;
    let (w, system, t) = (search.workload, search.system, relaxation.degrees.tp);
    let (options, chip, word) = (&system.model, &system.chip.0, w.word_bytes);
    let sram = search.rate.sram_bytes;
    let whole = options.stationary_operands == Charge::Charged;
    let mut reads: Vec<Vec<usize>> = vec![Vec::new(); w.kernels.len()];
    for (id, tensor) in w.tensors.iter().enumerate() {
        for u in &tensor.consumers {
            if reads[u.kernel].last() != Some(&id) {
                reads[u.kernel].push(id);
            }
        }
    }
    let of = |k: usize, s: Strategy| -> Option<Local> {
        let kernel = &w.kernels[k];
        let compute_s = match relaxation.compute(kernel, &[s], tiles) {
            Compute::Seconds(seconds) => seconds,
            Compute::Cores(options) => {
                options.iter().filter(|o| o.cores <= chip.cores).map(|o| o.seconds).min_by(f64::total_cmp)?
            }
        };
        let (mut buffers, mut loads, mut read) = (0.0, 0.0, [0.0; 2]);
        for id in &reads[k] {
            let tensor = &w.tensors[*id];
            let (mut buffer, mut load): (f64, f64) = (0.0, 0.0);
            for u in tensor.consumers.iter().filter(|u| u.kernel == k) {
                let (bytes, tile) = relaxation.bytes(tensor, relaxation.wanted(u, s), tiles);
                let stationary = whole && kernel.streamed() == Axis::N && u.slot.is_stationary();
                buffer = buffer.max(if stationary { bytes } else { options.crossing_buffers as f64 * tile });
                if tensor.producer.is_none_or(|p| relaxation.same_phase(p, k)) {
                    load = load.max(bytes * relaxation.samples);
                    read[usize::from(has_own_part(kernel, u.slot))] += bytes * relaxation.samples;
                }
            }
            buffers += buffer;
            loads += load;
        }
        for id in &relaxation.made[k] {
            let tensor = &w.tensors[*id];
            if tensor.output || !tensor.consumers.is_empty() {
                let (bytes, tile) = relaxation.bytes(tensor, produced(s, options.layouts), tiles);
                buffers += if whole && kernel.accumulates { bytes } else { options.crossing_buffers as f64 * tile };
            }
        }
        let weight = weight_bytes(kernel, s, t, word);
        let gradient =
            if options.weight_traffic == WeightTraffic::Streamed { gradient_bytes(kernel, s, t, word) } else { 0.0 };
        let (resident, room) = (weight + gradient, sram - buffers);
        let shard = local(kernel, s, t, Tiling::WHOLE);
        let (pieces, own) = if resident <= room * (1.0 + CAPACITY_TOLERANCE) {
            (1, 1)
        } else if resident / shard.rows as f64 > room {
            return None;
        } else {
            pieces(resident, room, problems(kernel, &shard))
        };
        let charged = options.weight_tiling == Charge::Charged;
        let again = [pieces, own].map(|times| if charged { (times - 1) as f64 } else { 0.0 });
        let setup = options.weight_traffic == WeightTraffic::Setup;
        Some(Local {
            compute_s,
            network_s: collective::own_seconds(kernel, &relaxation.degrees.own, relaxation.samples, options)
                + relaxation.own_network(kernel, s, tiles),
            serial_s: if setup {
                let extra = extra_dram(kernel, s, t, relaxation.samples);
                (weight / w.micro_batch as f64 + extra) / search.rate.dram_bytes_per_s
            } else {
                0.0
            },
            dram_bytes: relaxation.kernel_dram(kernel, s, false) + loads,
            again,
            reread: again[0] * read[0] + again[1] * read[1],
            uses: relaxation.own_use(k, s, tiles),
        })
    };
    root.iter().enumerate().map(|(k, open)| open.iter().map(|s| of(k, *s)).collect()).collect()
}
