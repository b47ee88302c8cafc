//! Sharding, tile count and fusion as one search (design section 6: joint).
//!
//! The first pass takes the sharding that its own objective likes best, blind to SRAM, DRAM capacity and fusion. Here every
//! sharding of an assignment of dimensions is considered: branch and bound over the strategies of the kernels. A node is a
//! set of strategies for each kernel. On chips that run kernel by kernel its least iteration is found by elimination
//! ([`alone`]); on chips that fuse it is bounded from below in two ways, and the larger counts ([`together`]):
//!
//! 1. the least *weighted sum* of arithmetic, traffic and collectives over its shardings, by elimination ([`separable`]):
//!    sees how layouts depend on each other, not how partitions do;
//! 2. the shortest path of a fusion problem that is no harder than that of any of its shardings ([`relaxed`]): sees SRAM
//!    and partitions, but lets every kernel and tensor have its best layout at once.
//!
//! A node whose bound does not beat the best plan found is closed; so is one whose weights, states and activations do
//! not fit the DRAM under any of its shardings. Of any other one sharding is evaluated exactly (the one of the least sum),
//! and it is split: by the strategies of a kernel ([`branching`]), or by tile count. The node with the least bound goes first, so that when
//! the search is stopped its bound is the one of the whole. When none is left, the best plan is the optimum over all
//! shardings, tile counts and partitions of the assignment.

mod alone;
mod alone_bounds;
mod branching;
mod filling;
mod links;
mod of_blocks;
pub mod relaxed;
pub mod separable;
mod together;

use super::degrees::Degrees;
use super::exact::Path;
use super::ideals::Ideals;
use super::request::{JOINT_NODES, MapError, WIDE_GAP};
use super::search::{Search, TIE};
use super::sharding::{self, Link, Problem, Unit};
use super::tiling::{is_whole, tile_counts};
use crate::model::Strategy;
use crate::model::layout::{Layout, strategies};
use crate::system::Style;
use crate::system::options::Layouts;
use alone_bounds::KernelByKernel;
use branching::Gains;
use filling::Filling;
use relaxed::{Open, Relaxation};
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use together::Together;

/// Largest graph whose shardings are searched on chips that fuse; of larger ones, and of those with more ideals than are
/// listed, the root is bounded alone.
pub const MOST_KERNELS: usize = 128;

/// Most tile counts that are told apart at once.
const MOST_TILE_COUNTS: usize = 64;

/// The part of a gap that may be left of it where more sets are worth it.
const CLOSES: f64 = 0.99;

/// Sets that must be left for a kernel to be looked for by trying some.
const WORTH_TRYING: u64 = 32;

/// How the search of an assignment ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ended {
    /// No sharding of it beats the best plan found.
    Closed,
    /// None of it beats this bound, which is as near to the best plan as was asked for.
    Near(f64),
    /// Stopped: none of it beats this bound.
    Stopped(f64),
}

/// A set of shardings.
#[derive(Debug, Clone)]
struct Set {
    open: Open,
    /// Its tile counts, by position, ascending: as these descend, the first cuts most.
    tiles: Vec<usize>,
    /// Kernels that it was split by.
    depth: usize,
    /// Best partitions of the relaxed passes of a set that contains this one: with weights streamed or kept on chip, forward and
    /// backward.
    known: [[Option<Rc<Path>>; 2]; 2],
    /// Price of a byte in the DRAM at which the bound of a set that contains this one was greatest, and which shares of layers say what is held.
    byte_price: Option<(f64, usize)>,
    /// The bound by the relaxed problem, of it or of a set that contains this one.
    fused: f64,
    /// What launches and filling cost at least, of a set that contains this one: with weights streamed or kept on chip.
    filling: [Option<Rc<Filling>>; 2],
}

impl Set {
    /// By the strategies of a kernel.
    fn split(&self, k: usize) -> Vec<Self> {
        let with = |s: &Strategy| {
            let mut set = self.clone();
            set.open[k] = vec![*s];
            set.depth += 1;
            set
        };
        self.open[k].iter().map(with).collect()
    }

    /// By tile counts.
    fn split_tiles(&self) -> Vec<Self> {
        self.tiles.iter().map(|i| Self { tiles: vec![*i], ..self.clone() }).collect()
    }
}

/// How a set is split.
enum Split {
    /// In these.
    Sets(Vec<Set>),
    /// The set, narrowed where that was found, by the strategies of one of these kernels, the likeliest first.
    Kernels(Set, Vec<usize>),
}

/// How sets of shardings are bounded.
trait Bounds {
    /// Whether sets smaller than the whole are out of reach.
    fn is_out_of_reach(&self) -> bool;

    /// No plan of a set takes less, and a sharding out of it that may be good (none where that is not known). `None` where
    /// no plan of the set beats `best`.
    ///
    /// # Errors
    /// Of a failing solver.
    fn bound(
        &self,
        set: &mut Set,
        best: f64,
        context: &mut Context<'_>,
    ) -> Result<Option<(f64, Vec<Strategy>)>, MapError>;

    /// Shardings that leave room in the DRAM, as far as sums over the kernels tell, the one that holds least the last.
    fn starts(&self) -> &[Vec<Strategy>];

    /// How a set that is not closed, of which `sharding` was evaluated, is split.
    ///
    /// # Errors
    /// Of a failing solver.
    fn split(&self, set: Set, sharding: &[Strategy], best: f64, context: &mut Context<'_>) -> Result<Split, MapError>;

    /// Whether a sharding of a set is worth evaluating at its tile counts.
    ///
    /// # Errors
    /// Of a failing solver.
    fn may_win(&self, sharding: &[Strategy], set: &Set, best: f64, context: &mut Context<'_>)
    -> Result<bool, MapError>;
}

/// A set under search, least bound first.
struct Node {
    bound: f64,
    /// Of equal bounds the one made first.
    made: u64,
    set: Set,
    /// The sharding of its least sum; empty where the elimination was too wide.
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
    /// And so many more, some at a time, as long as that closes a gap that is wide.
    pub more: &'c mut u64,
    /// The gap when half of the nodes were left; infinite before.
    pub gap: f64,
}

impl Context<'_> {
    /// Whether nodes are left, taking more where the gap is wide and the last half of them closed some of it.
    fn goes_on(&mut self, bound: f64, best: f64) -> bool {
        let gap = 1.0 - bound / best;
        if *self.nodes_left == JOINT_NODES / 2 {
            self.gap = gap;
        } else if *self.nodes_left == 0 && gap > WIDE_GAP && gap <= CLOSES * self.gap {
            let step = JOINT_NODES.min(*self.more);
            *self.more -= step;
            *self.nodes_left += step;
        }
        *self.nodes_left > 0
    }
}

/// Prices a sharding exactly at some tile counts: the objective of the best plan found so far, that one's included.
pub type Evaluate<'e> = dyn FnMut(&[Strategy], &[u64], &mut Option<Ideals>) -> Result<f64, MapError> + 'e;

/// The joint search of one assignment.
pub struct Joint<'a> {
    search: &'a Search<'a>,
    bounds: Box<dyn Bounds + 'a>,
    /// Which strategies agree.
    links: Vec<Link>,
    root: Open,
    /// Descending.
    tiles: Vec<u64>,
}

impl<'a> Joint<'a> {
    /// For an assignment and divisions into stages of which the longest has at least and at most so many layers; `None` where its
    /// kernels have no choice of strategies, or no plan fits any.
    pub fn new(search: &'a Search<'a>, degrees: &'a Degrees, longest: (u64, u64)) -> Option<Self> {
        let (w, system) = (search.workload, search.system);
        if degrees.tp <= 1 {
            return None;
        }
        let base = problem_in(Unit::Seconds, search, degrees)?;
        if base.open.iter().all(|open| open.len() == 1) {
            return None;
        }
        let tiles = match search.request.tiles {
            Some(tiles) => vec![tiles],
            None => tile_counts(w, system),
        };
        let mut root = base.open.clone();
        if !prune(&couplings(&base), &base.open, &mut root) {
            return None;
        }
        let base = restricted(&base, &root);
        let links = couplings(&base);
        let relaxation = Relaxation::new(search, degrees, longest);
        let in_joules = match relaxation.counts_links() {
            true => problem_in(Unit::LinkJoules, search, degrees)?.groups,
            false => Vec::new(),
        };
        let tiles = needed(tiles, |tiles| whole(search, degrees, &root, tiles));
        let exact = match system.chip.0.style {
            Style::KernelByKernel if tiles.len() <= MOST_TILE_COUNTS => KernelByKernel::new(&relaxation, &base, &tiles),
            _ => None,
        };
        let bounds: Box<dyn Bounds + 'a> = match exact {
            Some(exact) => Box::new(exact),
            None => Box::new(Together::new(relaxation, (base, in_joules), tiles.clone())?),
        };
        Some(Self { search, bounds, links, root, tiles })
    }

    /// Prices the shardings that are likeliest to fit the DRAM: a point where any does should not end without a plan.
    ///
    /// # Errors
    /// Those of `evaluate`.
    pub fn start(&self, context: &mut Context<'_>, evaluate: &mut Evaluate<'_>) -> Result<f64, MapError> {
        let mut best = f64::INFINITY;
        for sharding in self.bounds.starts() {
            best = best.min(evaluate(sharding, &self.tiles, context.ideals)?);
        }
        Ok(best)
    }

    /// Looks at all shardings that may beat the objective `best`; `evaluate` prices one exactly, and may lower it.
    ///
    /// # Errors
    /// Those of `evaluate`, and of a failing solver.
    pub fn run(
        self,
        context: &mut Context<'_>,
        seen: Vec<Strategy>,
        evaluate: &mut Evaluate<'_>,
        mut best: f64,
    ) -> Result<Ended, MapError> {
        // The tile counts that each sharding was evaluated at.
        let all: Vec<usize> = (0..self.tiles.len()).collect();
        let mut evaluated: BTreeMap<Vec<Strategy>, Vec<Vec<usize>>> = BTreeMap::from([(seen, vec![all.clone()])]);
        let mut heap = BinaryHeap::new();
        let mut made = 0;
        let mut gains = Gains::new(self.root.len());
        let near = 1.0 - self.search.request.limits.gap.max(TIE);
        let root = Set {
            open: self.root.clone(),
            tiles: all,
            depth: 0,
            known: Default::default(),
            byte_price: None,
            fused: 0.0,
            filling: Default::default(),
        };
        self.push(root, f64::NEG_INFINITY, best, &mut heap, &mut made, context)?;
        while let Some(node) = heap.pop() {
            if node.bound >= best * (1.0 - TIE) || (self.search.request.any && best.is_finite()) {
                return Ok(Ended::Closed);
            }
            if node.bound >= best * near {
                return Ok(Ended::Near(node.bound));
            }
            if self.bounds.is_out_of_reach() || !context.goes_on(node.bound, best) || self.search.out_of_time() {
                return Ok(Ended::Stopped(node.bound));
            }
            *context.nodes_left -= 1;
            let single = node.set.open.iter().all(|open| open.len() == 1);
            let sharding: Vec<Strategy> = match node.best.is_empty() || single {
                true => node.set.open.iter().map(|open| open[0]).collect(),
                false => node.best.clone(),
            };
            let tiles = node.set.tiles.clone();
            let at = evaluated.entry(sharding.clone()).or_default();
            if !at.iter().any(|known| tiles.iter().all(|i| known.contains(i))) {
                if single || self.bounds.may_win(&sharding, &node.set, best, context)? {
                    let counts: Vec<u64> = tiles.iter().map(|i| self.tiles[*i]).collect();
                    best = evaluate(&sharding, &counts, context.ideals)?;
                }
                at.push(tiles);
            }
            // One sharding was evaluated at all its tile counts.
            if single || node.bound >= best * (1.0 - TIE) {
                continue;
            }
            let sets = match self.bounds.split(node.set, &sharding, best, context)? {
                Split::Sets(sets) => sets,
                Split::Kernels(set, kernels) => {
                    let k = self.kernel((&set, node.bound), &kernels, best, context, &mut gains)?;
                    k.map_or(Vec::new(), |k| set.split(k))
                }
            };
            for mut set in sets {
                if prune(&self.links, &self.root, &mut set.open) {
                    self.push(set, node.bound, best, &mut heap, &mut made, context)?;
                }
            }
        }
        Ok(Ended::Closed)
    }

    /// The kernel that a set of a bound is split by.
    fn kernel(
        &self,
        (set, bound): (&Set, f64),
        kernels: &[usize],
        best: f64,
        context: &mut Context<'_>,
        gains: &mut Gains,
    ) -> Result<Option<usize>, MapError> {
        if kernels.len() <= 1 || !best.is_finite() || *context.nodes_left < WORTH_TRYING {
            return Ok(kernels.first().copied());
        }
        let gap = best - bound;
        gains.best(kernels, |k| {
            let mut closes = Vec::with_capacity(set.open[k].len());
            for mut part in set.split(k) {
                let least = match prune(&self.links, &self.root, &mut part.open) {
                    true => self.bounds.bound(&mut part, best, context)?,
                    false => None,
                };
                closes.push(least.map_or(1.0, |(least, _)| ((least - bound) / gap).clamp(0.0, 1.0)));
            }
            Ok(closes)
        })
    }

    /// Bounds a set and keeps it where it may still win.
    fn push(
        &self,
        mut set: Set,
        parent: f64,
        best: f64,
        heap: &mut BinaryHeap<Node>,
        made: &mut u64,
        context: &mut Context<'_>,
    ) -> Result<(), MapError> {
        let Some((bound, sharding)) = self.bounds.bound(&mut set, best, context)? else { return Ok(()) };
        let bound = bound.max(parent);
        if bound < best * (1.0 - TIE) {
            heap.push(Node { bound, made: *made, set, best: sharding });
            *made += 1;
        }
        Ok(())
    }
}

/// The sharding problem of an assignment, each conversion as the fusion problem counts it; `None` where no strategies can be.
fn problem_in(unit: Unit, search: &Search<'_>, degrees: &Degrees) -> Option<Problem> {
    let (w, system) = (search.workload, search.system);
    let mut problem = sharding::problem_in(unit, w, system, degrees, &search.pins_sharding).ok()?;
    if system.model.layouts == Layouts::Dfmodel {
        // There a conversion moves the shard that was made, not the whole tensor that the first pass counts.
        for (pair, cost) in problem.groups.iter_mut().flatten() {
            if matches!(pair.0, Layout::Rows | Layout::Cols) {
                *cost /= degrees.tp as f64;
            }
        }
    }
    Some(problem)
}

/// Tile counts, descending, without those that a larger one makes needless: it cuts everything `whole`.
fn needed(tiles: Vec<u64>, whole: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut kept: Vec<(u64, bool)> = Vec::with_capacity(tiles.len());
    for count in tiles {
        if !kept.iter().any(|(more, whole)| *whole && *more >= count) {
            kept.push((count, whole(count)));
        }
    }
    kept.into_iter().map(|(count, _)| count).collect()
}

/// Whether so many tiles cut all kernels and tensors without a remainder under every sharding of a set.
fn whole(search: &Search<'_>, degrees: &Degrees, open: &Open, tiles: u64) -> bool {
    let most = open.iter().map(Vec::len).max().unwrap_or(0);
    (0..most).all(|i| {
        let some: Vec<Strategy> = open.iter().filter_map(|of| of.get(i).or(of.last()).copied()).collect();
        is_whole(search.workload, search.system, degrees.tp, &some, tiles)
    })
}

/// The links between strategies some of which do not agree.
fn couplings(problem: &Problem) -> Vec<Link> {
    problem.links.iter().filter(|link| link.pairs.iter().flatten().any(Option::is_none)).cloned().collect()
}

/// The problem between the strategies that are open.
fn restricted(problem: &Problem, open: &Open) -> Problem {
    let of = |(all, open): (&Vec<Strategy>, &Vec<Strategy>)| -> Vec<usize> {
        (0..all.len()).filter(|a| open.contains(&all[*a])).collect()
    };
    let kept: Vec<Vec<usize>> = problem.open.iter().zip(open).map(of).collect();
    let links = problem.links.iter().map(|link| Link {
        pairs: kept[link.from].iter().map(|a| kept[link.to].iter().map(|b| link.pairs[*a][*b]).collect()).collect(),
        ..link.clone()
    });
    let cost = problem.cost.iter().zip(&kept);
    Problem {
        open: kept.iter().zip(&problem.open).map(|(kept, all)| kept.iter().map(|a| all[*a]).collect()).collect(),
        cost: cost.map(|(all, kept)| kept.iter().map(|a| all[*a]).collect()).collect(),
        links: links.collect(),
        groups: problem.groups.clone(),
    }
}

/// Strategies of which no pair with a neighbour can be are no choice: they are dropped until none is left to drop.
/// False where a kernel is left without any.
fn prune(links: &[Link], all: &Open, open: &mut Open) -> bool {
    let at = |k: usize, s: Strategy| all[k].iter().position(|o| *o == s);
    loop {
        let mut changed = false;
        for link in links {
            let pair = |a: Strategy, b: Strategy| {
                at(link.from, a).zip(at(link.to, b)).is_some_and(|(a, b)| link.pairs[a][b].is_some())
            };
            if link.from == link.to {
                let before = open[link.from].len();
                open[link.from].retain(|a| pair(*a, *a));
                changed |= open[link.from].len() < before;
                continue;
            }
            let (from, to) = (open[link.from].clone(), open[link.to].clone());
            open[link.from].retain(|a| to.iter().any(|b| pair(*a, *b)));
            open[link.to].retain(|b| from.iter().any(|a| pair(*a, *b)));
            changed |= open[link.from].len() < from.len() || open[link.to].len() < to.len();
        }
        if open.iter().any(Vec::is_empty) {
            return false;
        }
        if !changed {
            return true;
        }
    }
}

/// Bytes that a chip's DRAM must hold at least, whatever the sharding, without what waits between partitions.
pub(super) fn least_resident(search: &Search<'_>, degrees: &Degrees) -> f64 {
    let (layouts, backward) = (search.system.model.layouts, search.workload.has_backward());
    let kernels = search.workload.kernels.iter().zip(&search.pins_sharding);
    let open: Open = kernels
        .map(|(kernel, pin)| match pin {
            Some(pin) => vec![*pin],
            None => strategies(kernel, degrees.tp, layouts, backward),
        })
        .collect();
    let pipe = search.pipe(degrees);
    Relaxation::new(search, degrees, (pipe.shortest(), pipe.longest())).least_resident(&open)
}
