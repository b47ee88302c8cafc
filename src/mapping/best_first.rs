//! The fusion problem of graphs with more ideals than are listed: a best-first search over those that a good plan may pass.
//!
//! As in [`super::exact`] a plan is a chain of ideals, and a partition costs what lies between two of them. Here ideals are made when
//! they are reached, the one first whose way so far and a bound on what is left are least together. When the whole graph is
//! reached so, no plan is better; when the search is stopped, none is better than the least of these sums. Three rules keep the
//! ideals few.
//!
//! **Leaves that are alike.** A *leaf* is a kernel that nothing waits for (an update of weights). What it costs depends on its
//! own numbers and, tensor by tensor that it reads, on where the others that make or read the tensor are: before the partition, or in it.
//! Let a, b be leaves with equal numbers, whose tensors (those that no other leaf reads) have equal numbers and whose others stand
//! alike, none of them still to come. To exchange a and b in a plan, and their tensors with them, leaves every sum and every maximum over
//! a partition what it is, that of tensors that wait included. So
//! - of leaves alike of which none has run, a partition takes the first ones: their number alone is chosen. Where pipelines fill
//!   ([`super::instance::UseCost::lag`]) the first are those that begin first in the partition: nothing waits for a leaf, so that the
//!   exchange of one that begins later for one that begins before it makes the lag of the partition no longer, and of others no other;
//! - of ideals that differ by which of leaves alike have run, all whose others have run too, one stands for all: that with the first ones.
//!
//! A chain of L layers with an update each has L^2 such ideals or so instead of 2^L.
//!
//! **Leaves by themselves come last.** Nothing waits for a partition of leaves alone, so that it may be exchanged with the one after it;
//! what either costs depends on what it holds and on which readers are elsewhere, not on which of the two is first. So there is
//! a best plan in which such partitions come after all others, and among them the one with the first leaf left comes first. Of
//! independent kernels these are all the orders there are. (What waits in DRAM does depend on it: the rule is kept only where
//! there is room for everything at once.)
//!
//! **Bounds.** What is left costs at least the closed form of `remaining.rs`; at least the sum of prices of the kernels left,
//! where prices are known of which no partition holds more than it costs ([`super::cover`]); and at least the shortest path of the backbone that is left
//! with prices for its leaves ([`super::relaxed`]), which counts launches and what fills. Of a partition that path also says, as soon as its part of the
//! backbone is chosen, whether any choice of leaves may be worth it.

use super::instance::{Compute, Instance, UseCost};
use super::pricing::Pricer;
use super::relaxed::{self, Ahead};
use super::remaining::Remaining;
use crate::deadline::{Deadline, Watch};
use std::collections::{BinaryHeap, HashMap};

/// Most ideals kept, and most kernels that join a partition, of one search.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Ideals.
    pub ideals: usize,
    /// Kernels that join.
    pub joins: u64,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The best plan and its value; none where no plan is at most as asked, or the search was stopped.
    pub plan: Option<(f64, Vec<usize>)>,
    /// No plan has a smaller value, unless it is above what was asked.
    pub bound: f64,
    /// Whether it came to its end.
    pub complete: bool,
    /// Kernels that joined a partition.
    pub joins: u64,
}

/// A bound prunes only what is worse by more than this: rounding must not cut off a plan.
const CLEAR: f64 = 1e-9;

/// Relative difference under which two values are one.
const TIE: f64 = 1e-12;

/// Searches plans of at most `known`; `prices` of the kernels are such that none of the partitions holds more than it costs. `None` for
/// problems that it does not serve: with pins or limits on the number of partitions, of two passes, of more than 128 kernels.
pub fn search(
    instance: &Instance,
    known: f64,
    prices: Option<&[f64]>,
    effort: Effort,
    deadline: Deadline,
) -> Option<Found> {
    let n = instance.kernels.len();
    let limited = instance.pins.iter().any(Option::is_some) || instance.max_partitions.is_some();
    if n == 0 || n > 128 || limited || instance.kernel_by_kernel || instance.separate_phases {
        return None;
    }
    let graph = Graph::of(instance);
    let search = Search {
        pricer: Pricer::new(instance),
        remaining: Remaining::new(instance),
        ahead: relaxed::ahead(instance, known, deadline),
        fills: instance.fills(),
        roomy: instance.live_limit >= instance.waits_at_most(),
        known: known * (1.0 + CLEAR),
        reached: false,
        watch: deadline.watch(),
        ideals: Vec::new(),
        index: HashMap::default(),
        open: BinaryHeap::new(),
        joins: 0,
        instance,
        graph,
        prices,
        effort,
    };
    Some(search.run())
}

#[inline]
fn bit(k: usize) -> u128 {
    1 << k
}

/// A leaf among its neighbours.
struct Leaf {
    kernel: usize,
    /// Those that make or read the tensors that no other leaf reads, in an order in which those of leaves alike stand alike.
    others: Vec<usize>,
    /// The same as a set.
    around: u128,
    /// Number of its kind by its own numbers and those of its tensors, where all others have run.
    settled: usize,
    /// Number of its kind with the numbers of the others besides.
    shape: usize,
}

/// What does not change during a search.
struct Graph {
    before: Vec<u128>,
    /// Kernels that others wait for, in a topological order, and their set.
    backbone: Vec<usize>,
    inner: u128,
    leaves: Vec<Leaf>,
    /// Kinds of settled leaves with more than one member, each ascending.
    alike: Vec<Vec<usize>>,
    all: u128,
}

/// Numbers as they are compared.
type Key = Vec<u64>;

/// A number for each key.
#[derive(Default)]
struct Numbers(HashMap<Key, usize>);

impl Numbers {
    fn of(&mut self, key: Key) -> usize {
        let next = self.0.len();
        *self.0.entry(key).or_insert(next)
    }
}

impl Graph {
    fn of(instance: &Instance) -> Self {
        let n = instance.kernels.len();
        let mut before = vec![0u128; n];
        let mut awaited = 0u128;
        for tensor in &instance.tensors {
            let Some(p) = tensor.producer else { continue };
            for u in &tensor.uses {
                before[u.kernel] |= bit(p);
                awaited |= bit(p);
            }
        }
        let (mut settled, mut shapes) = (Numbers::default(), Numbers::default());
        let mut leaves = Vec::new();
        for kernel in (0..n).filter(|k| awaited & bit(*k) == 0) {
            let own = own_key(instance, kernel);
            let mut read: Vec<(Key, Key, Vec<usize>)> = Vec::new();
            for (t, tensor) in instance.tensors.iter().enumerate() {
                // What is never passed on chip has no buffer there.
                let passed = tensor.producer.is_some();
                let mine = |k: usize| {
                    let uses = tensor.uses.iter().filter(|u| u.kernel == k);
                    let onchip = |u: &UseCost| if passed { u.onchip_buffer } else { 0.0 };
                    let all = |u: &UseCost| [u.load_bytes, u.load_buffer, onchip(u)].map(f64::to_bits);
                    let mut bits: Vec<[u64; 3]> = uses.map(all).collect();
                    bits.sort_unstable();
                    bits
                };
                let numbers = mine(kernel);
                if numbers.is_empty() {
                    continue;
                }
                let long: Key = numbers.iter().flatten().copied().collect();
                let reads = |u: &&UseCost| u.kernel != kernel;
                if tensor.uses.iter().filter(reads).any(|u| awaited & bit(u.kernel) == 0) {
                    // Another leaf reads it too: alike are leaves that read this very one in the same way.
                    let long: Key = long.into_iter().chain([1, t as u64]).collect();
                    read.push((long.clone(), long, Vec::new()));
                    continue;
                }
                let mut readers: Vec<usize> = tensor.uses.iter().filter(reads).map(|u| u.kernel).collect();
                readers.sort_unstable();
                readers.dedup();
                readers.sort_by_key(|k| mine(*k));
                let tail = [0, u64::from(tensor.output), tensor.live_bytes.to_bits()];
                // Made before, it is loaded.
                let short: Key = numbers.iter().flat_map(|u| [u[0], u[1]]).chain(tail).collect();
                let mut long: Key = long.into_iter().chain(tail).collect();
                long.extend([tensor.store_bytes.to_bits(), tensor.store_buffer.to_bits(), u64::from(passed)]);
                readers.iter().for_each(|k| long.extend(mine(*k).iter().flatten().chain(&[u64::MAX])));
                read.push((short, long, tensor.producer.into_iter().chain(readers).collect()));
            }
            read.sort_by(|a, b| a.1.cmp(&b.1).then(a.2.cmp(&b.2)));
            let key = |keys: &[&Key]| -> Key {
                own.iter().copied().chain(keys.iter().flat_map(|k| k.iter().copied().chain([u64::MAX]))).collect()
            };
            let mut short: Vec<&Key> = read.iter().map(|r| &r.0).collect();
            short.sort();
            let long: Vec<&Key> = read.iter().map(|r| &r.1).collect();
            let (settled, shape) = (settled.of(key(&short)), shapes.of(key(&long)));
            let others: Vec<usize> = read.iter().flat_map(|r| r.2.iter().copied()).collect();
            let around = others.iter().fold(0, |set, k| set | bit(*k));
            leaves.push(Leaf { kernel, others, around, settled, shape });
        }
        let kinds = settled.0.len();
        let mut alike: Vec<Vec<usize>> = vec![Vec::new(); kinds];
        leaves.iter().enumerate().for_each(|(i, leaf)| alike[leaf.settled].push(i));
        alike.retain(|members| members.len() > 1);
        let backbone = (0..n).filter(|k| awaited & bit(*k) != 0).collect();
        let all = (0..n).fold(0, |set, k| set | bit(k));
        Self { before, backbone, inner: awaited, leaves, alike, all }
    }

    /// The set that stands for those in which leaves alike have run in other numbers of the same: calls `exchanged` with each kernel that
    /// it takes to have run, and the one that has run instead.
    fn folded(&self, set: u128, mut exchanged: impl FnMut(usize, usize)) -> u128 {
        let mut out = set;
        for members in &self.alike {
            let settled = members.iter().map(|i| &self.leaves[*i]).filter(|leaf| leaf.around & !set == 0);
            let (mut mask, mut kernels, mut ran) = (0u128, [0usize; 128], 0);
            for (place, leaf) in kernels.iter_mut().zip(settled) {
                mask |= bit(leaf.kernel);
                *place = leaf.kernel;
                ran += usize::from(set & bit(leaf.kernel) != 0);
            }
            let first = kernels[..ran].iter().fold(0, |set, k| set | bit(*k));
            let (mut taken, mut left) = (first & !set, set & mask & !first);
            while taken != 0 && left != 0 {
                exchanged(taken.trailing_zeros() as usize, left.trailing_zeros() as usize);
                taken &= taken - 1;
                left &= left - 1;
            }
            out = (out & !mask) | first;
        }
        out
    }
}

/// A kernel's own numbers, and those of what it makes.
fn own_key(instance: &Instance, k: usize) -> Key {
    let kernel = &instance.kernels[k];
    let mut key: Key = [kernel.network_s, kernel.serial_s, kernel.resident_bytes, kernel.dram_bytes]
        .iter()
        .map(|x| x.to_bits())
        .chain([kernel.pieces])
        .collect();
    match &kernel.compute {
        Compute::Seconds(s) => key.extend([0, s.to_bits()]),
        Compute::Cores(options) => {
            key.extend([1, options.len() as u64]);
            key.extend(options.iter().flat_map(|o| [o.cores, o.seconds.to_bits()]));
        }
    }
    let mut made: Vec<[u64; 4]> = instance
        .tensors
        .iter()
        .filter(|t| t.producer == Some(k))
        .map(|t| {
            let [a, b, c] = [t.store_bytes, t.store_buffer, t.live_bytes].map(f64::to_bits);
            [u64::from(t.output), a, b, c]
        })
        .collect();
    made.sort_unstable();
    key.extend(made.iter().flatten());
    key.push(u64::MAX);
    key
}

/// An ideal that was reached.
struct Reached {
    set: u128,
    /// Value of the best way to it that is known, and least value of what is left.
    value: f64,
    left: f64,
    /// The ideal before, and the partition between.
    from: u32,
    part: u128,
}

/// An ideal that is to be gone on from.
struct Open {
    sum: f64,
    value: f64,
    ideal: u32,
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Open {}
impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Open {
    /// The least sum is the greatest; of equal ones the one that is further on.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_sum = other.sum.total_cmp(&self.sum);
        by_sum.then(self.value.total_cmp(&other.value)).then(other.ideal.cmp(&self.ideal))
    }
}

struct Search<'a> {
    instance: &'a Instance,
    graph: Graph,
    pricer: Pricer<'a>,
    remaining: Remaining<'a>,
    ahead: Option<Ahead>,
    prices: Option<&'a [f64]>,
    effort: Effort,
    /// Whether pipelines of tiles fill and drain.
    fills: bool,
    /// Whether all tensors may wait in DRAM at once.
    roomy: bool,
    known: f64,
    /// Whether that is the value of a plan that was reached: another must be less.
    reached: bool,
    watch: Watch,
    ideals: Vec<Reached>,
    index: HashMap<u128, u32, foldhash::fast::FixedState>,
    open: BinaryHeap<Open>,
    joins: u64,
}

impl Search<'_> {
    fn run(mut self) -> Found {
        self.reach(0, 0.0, u32::MAX, 0);
        while let Some(next) = self.open.pop() {
            let at = &self.ideals[next.ideal as usize];
            if next.value > at.value {
                continue;
            }
            if at.set == self.graph.all {
                break;
            }
            let (set, value) = (at.set, at.value);
            if !self.is_stopped() {
                self.go_on(next.ideal, set, value);
            }
            if self.is_stopped() {
                // What is open, this ideal included, is all that is left.
                return self.found(next.sum.min(self.known), false);
            }
        }
        self.found(self.known, true)
    }

    /// The best plan that was reached, if one was.
    fn found(&self, bound: f64, complete: bool) -> Found {
        let plan = self.index.get(&self.graph.all).map(|at| self.plan(*at));
        let plan = plan.and_then(|plan| self.instance.evaluate(&plan).map(|(objective, _)| (objective, plan)));
        let least = plan.as_ref().map_or(f64::INFINITY, |(objective, _)| *objective);
        let complete = complete || bound >= least * (1.0 - CLEAR);
        Found { plan, bound: if complete { bound.min(least) } else { bound }, complete, joins: self.joins }
    }

    fn is_stopped(&self) -> bool {
        self.ideals.len() > self.effort.ideals || self.joins > self.effort.joins || self.watch.was_over()
    }

    /// A way to an ideal: kept where it may be the best so far and beat what is known.
    fn reach(&mut self, set: u128, value: f64, from: u32, part: u128) {
        let set = self.graph.folded(set, |_, _| ());
        let at = match self.index.get(&set) {
            Some(at) => *at,
            None => {
                let left = self.left(set);
                let at = self.ideals.len() as u32;
                self.index.insert(set, at);
                self.ideals.push(Reached { set, value: f64::INFINITY, left, from, part });
                at
            }
        };
        let ideal = &mut self.ideals[at as usize];
        let sum = value + ideal.left;
        if value >= ideal.value || sum > self.known || (self.reached && sum >= self.known * (1.0 - TIE)) {
            return;
        }
        (ideal.value, ideal.from, ideal.part) = (value, from, part);
        if set == self.graph.all {
            (self.known, self.reached) = (value, true);
        }
        self.open.push(Open { sum, value, ideal: at });
    }

    /// The least value of the kernels outside a set.
    fn left(&self, set: u128) -> f64 {
        if set == self.graph.all {
            return 0.0;
        }
        let closed = self.remaining.after(|k| set & bit(k) != 0);
        let priced = self.prices.map_or(0.0, |prices| {
            let outside = prices.iter().enumerate().filter(|(k, _)| set & bit(*k) == 0);
            outside.map(|(_, price)| price).sum::<f64>()
        });
        let ahead = self.ahead.as_ref().map_or(0.0, |ahead| ahead.after(set));
        // Sums of many terms: rounding must not lift it.
        (closed.max(priced) * (1.0 - 1e-12)).max(ahead * (1.0 - 1e-11))
    }

    /// All partitions that may begin at an ideal.
    fn go_on(&mut self, ideal: u32, set: u128, value: f64) {
        self.pricer.start(|k| set & bit(k) != 0);
        let through = self.ahead.as_ref().map(|ahead| ahead.through(set));
        let walk = Walk { ideal, value, ran: set, through };
        self.grow(&walk, set, 0);
    }

    /// Whether the partition under way, and what it grows into, may be part of a plan that is asked for.
    fn may_go_on(&mut self, walk: &Walk) -> bool {
        self.joins += 1;
        let least = walk.value + self.pricer.least_value();
        !self.pricer.hopeless() && least <= self.known && !(self.reached && least >= self.known * (1.0 - TIE))
    }

    /// Whether a partition with this part of the backbone may be part of a plan that is asked for, whatever its leaves.
    fn may_take(&self, walk: &Walk, set: u128) -> bool {
        let Some(through) = walk.through.as_ref().filter(|_| set != walk.ran) else { return true };
        let Some(way) = through.get(&(set & self.graph.inner)) else { return false };
        let sum = walk.value + way * (1.0 - 1e-11);
        sum <= self.known && !(self.reached && sum >= self.known * (1.0 - TIE))
    }

    /// The partition with so much of the backbone: with each choice of leaves, and with more of the backbone.
    fn grow(&mut self, walk: &Walk, set: u128, rank: usize) {
        if self.watch.is_over() || self.joins > self.effort.joins {
            return;
        }
        let backbone_left = self.graph.inner & !walk.ran != 0;
        if (set != walk.ran || !self.roomy || !backbone_left) && self.may_take(walk, set) {
            let classes = self.classes(walk.ran, set);
            // The first leaf left is in the next partition, where only leaves are left.
            let must = usize::from(self.roomy && !backbone_left);
            self.take_leaves(walk, &classes, set, must);
        }
        for i in rank..self.graph.backbone.len() {
            let k = self.graph.backbone[i];
            if set & bit(k) != 0 || self.graph.before[k] & !set != 0 {
                continue;
            }
            self.pricer.add(k);
            if self.may_go_on(walk) {
                self.grow(walk, set | bit(k), i + 1);
            }
            self.pricer.take_back();
        }
    }

    /// The leaves that may join, those alike together, those of this partition that begin first before the others.
    fn classes(&self, ran: u128, set: u128) -> Vec<Vec<usize>> {
        let mut classes: Vec<(Kind, Vec<usize>)> = Vec::new();
        for (i, leaf) in self.graph.leaves.iter().enumerate() {
            if set & bit(leaf.kernel) != 0 || self.graph.before[leaf.kernel] & !set != 0 {
                continue;
            }
            let kind = if leaf.around & !ran == 0 {
                Kind::Settled(leaf.settled)
            } else if leaf.around & !set == 0 {
                let here = |(bits, at): (u128, u32), k: &usize| match at < 128 && ran & bit(*k) == 0 {
                    true => (bits | 1 << at, at + 1),
                    false => (bits, at + 1),
                };
                match leaf.others.len() <= 128 {
                    true => Kind::Here(leaf.shape, leaf.others.iter().fold((0, 0), here).0),
                    false => Kind::Single(i),
                }
            } else {
                Kind::Single(i)
            };
            match classes.iter_mut().find(|(other, _)| *other == kind) {
                Some((_, members)) => members.push(leaf.kernel),
                None => classes.push((kind, vec![leaf.kernel])),
            }
        }
        if self.fills {
            for (_, members) in classes.iter_mut().filter(|(kind, _)| matches!(kind, Kind::Here(..))) {
                members.sort_by(|a, b| self.pricer.begin(*a).total_cmp(&self.pricer.begin(*b)));
            }
        }
        classes.into_iter().map(|(_, members)| members).collect()
    }

    /// Each number of leaves of each class, at least `must` of the first.
    fn take_leaves(&mut self, walk: &Walk, classes: &[Vec<usize>], set: u128, must: usize) {
        let Some((class, others)) = classes.split_first() else {
            if set != walk.ran {
                self.visit(walk, set);
            }
            return;
        };
        if must == 0 {
            self.take_leaves(walk, others, set, 0);
        }
        let (mut joined, mut with) = (0, set);
        for &k in class {
            self.pricer.add(k);
            joined += 1;
            with |= bit(k);
            // What is not tried once the effort is spent stays open: the ideal that the walk began at is.
            if !self.may_go_on(walk) || self.watch.is_over() || self.joins > self.effort.joins {
                break;
            }
            self.take_leaves(walk, others, with, 0);
        }
        (0..joined).for_each(|_| self.pricer.take_back());
    }

    fn visit(&mut self, walk: &Walk, set: u128) {
        let cost = self.pricer.cost();
        if self.instance.fits(&cost) {
            let value = walk.value + self.instance.value(&cost);
            if value <= self.known {
                self.reach(set, value, walk.ideal, set & !walk.ran);
            }
        }
    }

    /// The partition of each kernel on the way to an ideal: leaves that were taken for others are put back.
    fn plan(&self, ideal: u32) -> Vec<usize> {
        let mut chain = vec![ideal];
        while let Some(from) = chain.last().map(|at| self.ideals[*at as usize].from).filter(|from| *from != u32::MAX) {
            chain.push(from);
        }
        chain.reverse();
        let n = self.instance.kernels.len();
        // The kernel that each stands for.
        let mut stands: Vec<usize> = (0..n).collect();
        let mut plan = vec![0; n];
        for (p, pair) in chain.windows(2).enumerate() {
            let part = self.ideals[pair[1] as usize].part;
            (0..n).filter(|k| part & bit(*k) != 0).for_each(|k| plan[stands[k]] = p);
            let reached = self.ideals[pair[0] as usize].set | part;
            self.graph.folded(reached, |taken, ran| stands.swap(taken, ran));
        }
        plan
    }
}

/// A walk over the partitions that begin at an ideal.
struct Walk {
    ideal: u32,
    value: f64,
    ran: u128,
    /// The least of what is left by the part of the backbone that has run after the partition.
    through: Option<HashMap<u128, f64, foldhash::fast::FixedState>>,
}

/// What makes leaves alike.
#[derive(PartialEq)]
enum Kind {
    /// All others ran before.
    Settled(usize),
    /// Some of the others are in this partition: which, by their places.
    Here(usize, u128),
    /// Some are still to come.
    Single(usize),
}
