//! What any division of the actors must move between cores: a bound for the objectives with transfers.
//!
//! Given: loads `w`, prices `c` of edges, a largest load T. What a core holds falls into connected sets of actors, each with w(S) <= T. Let S be the one that holds
//! actor i. It has no actor to which every path from i weighs more than T; let B_i be the others. What crosses the border of S, d(S), is at least
//!
//!   f_i(T) = max over m >= 0 of g_i(m) - m T,   g_i(m) = min over S within B_i that hold i of d(S) + m w(S)
//!
//! (Lagrange: where w(S) <= T the added term is not positive). g_i(m) is a minimum cut between i and a sink that every actor j of B_i reaches at the price m w_j and
//! the others for nothing: one maximum flow (Dinic 1970). In m, g_i is concave and its pieces are sets, so m moves to where the pieces on either side of the top
//! meet, until no set lies below. Each crossing edge is on the border of two sets, and the border of a set is at least the mean of its f_i, weighted by w_i:
//!
//!   cut = 1/2 sum over sets of d(S) >= 1/2 sum over i of w_i f_i(T) / T.
//!
//! A linear relaxation of the MILP sees none of this: it spreads each actor evenly over the cores and cuts nothing. On a chain of equal actors and edges whose
//! length the cores divide, the bound is the optimum.
//!
//! Flows are never above the cut, also where they stop early, so that what is rounded or not finished makes the bound weaker, not wrong.

use super::instance::{Edge, Instance};
use super::placement::Objective;
use super::{cover, frontier};
use std::time::Instant;

/// Arcs that all flows together look at.
const MOST_STEPS: u64 = 400_000_000;
/// Flows of one actor for one load.
const MOST_FLOWS: usize = 24;
/// Rounding errors of sums of prices, taken off.
const SAFE: f64 = 1.0 - 1e-9;

/// A value of g_i.
#[derive(Debug, Clone, Copy)]
struct Value {
    m: f64,
    g: f64,
    /// Ticks that decided which actors are near: it holds for sets of no more.
    radius: u64,
}

/// The values g_i(m) that were found.
#[derive(Debug, Clone)]
struct Around {
    /// Ticks by actor, each on the cores where they are least.
    ticks: Vec<u64>,
    /// By actor.
    found: Vec<Vec<Value>>,
    /// What the prices were divided by.
    unit: f64,
}

impl Around {
    /// Cuts around every actor for sets of the largest loads `loads` (ticks).
    fn new(instance: &Instance, price: impl Fn(&Edge) -> f64, loads: &[u64], until: Instant) -> Self {
        let ticks = least_ticks(instance);
        let prices: Vec<f64> = instance.edges.iter().map(price).collect();
        let unit = prices.iter().sum::<f64>();
        let mut found = vec![Vec::new(); instance.n];
        if unit > 0.0 && unit.is_finite() {
            let ends: Vec<(usize, usize)> = instance.edges.iter().map(|e| (e.from, e.to)).collect();
            let prices: Vec<f64> = prices.iter().map(|p| p / unit).collect();
            let mut flow = Flow::new(instance.n, &ends, &prices);
            // The heaviest first: where the steps do not suffice for all, they count most.
            let mut order: Vec<usize> = (0..instance.n).filter(|i| ticks[*i] > 0).collect();
            order.sort_by_key(|i| std::cmp::Reverse(ticks[*i]));
            'all: for i in order {
                for load in loads {
                    flow.climb(i, &ticks, *load, &mut found[i]);
                    if flow.steps > MOST_STEPS || Instant::now() >= until {
                        break 'all;
                    }
                }
            }
        }
        Self { ticks, found, unit }
    }

    /// f_i at a largest load, in shares of all prices.
    fn least(&self, i: usize, load: u64) -> f64 {
        let fits = self.found[i].iter().filter(|v| v.radius >= load);
        fits.map(|v| v.g * SAFE - v.m * load as f64).fold(0.0, f64::max)
    }

    /// Price of what crosses between parts of at most `load` ticks.
    fn cut(&self, load: u64) -> f64 {
        let sum: f64 = (0..self.ticks.len()).map(|i| self.ticks[i] as f64 * self.least(i, load)).sum();
        0.5 * sum / load.max(1) as f64 * self.unit * SAFE
    }

    /// Price of what crosses the border of some one core, where there are `k` of at most `load` ticks.
    fn border(&self, load: u64, k: usize) -> f64 {
        let largest = (0..self.ticks.len()).map(|i| self.least(i, load)).fold(0.0, f64::max);
        (largest * self.unit * SAFE).max(2.0 * self.cut(load) / k as f64)
    }
}

fn least_ticks(instance: &Instance) -> Vec<u64> {
    (0..instance.n).map(|i| instance.ticks.iter().map(|t| t[i]).min().unwrap_or(0)).collect()
}

/// Loads between which `sum` is bounded.
const LOADS: usize = 600;
/// Loads for which cuts are sought, and for which frontiers are gone through.
const SOUGHT: usize = 6;
const CLOSER: usize = 20;

/// A bound of the objective of every placement (free or not) that is better than `known`, from loads and the cuts around each actor; 0 for `bottleneck`.
pub fn bound(instance: &Instance, known: f64, until: Instant) -> f64 {
    let wire = instance.least_wire();
    let seconds = |e: &Edge| e.seconds(1.0, wire);
    let low = instance.load_bound().max(1);
    let total = least_ticks(instance).iter().sum::<u64>().max(low);
    // No load is above the best objective, nor above all work.
    let high = if known.is_finite() { ((known * instance.rate).ceil() as u64).clamp(low, total) } else { total };
    let load = |j: usize| (low as f64 * (high as f64 / low as f64).powf(j as f64 / LOADS as f64)) as u64;
    let sought = || (1..=SOUGHT).map(|j| load(j * LOADS / SOUGHT) + 1).collect::<Vec<u64>>();
    let in_seconds = |ticks: u64| ticks as f64 / instance.rate;
    match instance.request.objective {
        Objective::Bottleneck => 0.0,
        Objective::Cut => {
            let cap = instance.cap.unwrap_or(total);
            let around = Around::new(instance, |e| e.bytes, &[cap], until);
            let share =
                |i: usize| 0.5 * around.ticks[i] as f64 * around.least(i, cap) / cap.max(1) as f64 * around.unit;
            let prices = (0..instance.n).map(share).collect();
            let narrow = frontier::bound(instance, &around.ticks, cap, |e| e.bytes, until);
            let least = narrow.map_or(0.0, |n| n.cut).max(around.cut(cap));
            // Covers relax what the frontier computes.
            if narrow.is_some_and(|n| n.whole) || least >= known * (1.0 - 1e-9) {
                return least;
            }
            cover::bound(instance, &around.ticks, cap, prices, around.cut(cap), known, until).max(least)
        }
        Objective::Sum => {
            let around = Around::new(instance, seconds, &sought(), until);
            // On narrow graphs a few loads more closely: what is cut at one is cut at every smaller one.
            let mut closer: Vec<(u64, f64)> = Vec::new();
            for j in (1..=CLOSER).map(|j| j * LOADS / CLOSER) {
                let found = frontier::bound(instance, &around.ticks, load(j), seconds, until);
                closer.extend(found.map(|found| (load(j), found.cut)));
                if found.is_none_or(|found| !found.whole) {
                    break;
                }
            }
            let narrow = |t: u64| closer.iter().find(|(load, _)| *load >= t).map_or(0.0, |(_, cut)| *cut);
            // Largest loads from one to the next: the least of them, and the cut that the largest still asks for.
            let least = |j: usize| in_seconds(load(j)) + around.cut(load(j + 1)).max(narrow(load(j + 1)));
            (0..LOADS).map(least).fold(in_seconds(high), f64::min)
        }
        Objective::PerCore => {
            let around = Around::new(instance, seconds, &sought(), until);
            // Values that loads and borders may both have. More time asks for less border: what is too little, all below it is.
            let enough = |j: usize| around.border(load(j), instance.k) <= in_seconds(load(j));
            let first = (0..LOADS).find(|j| enough(*j)).unwrap_or(LOADS);
            if first == 0 { 0.0 } else { in_seconds(load(first - 1)) }
        }
    }
}

/// The network, and a flow from one actor to the sink.
pub(super) struct Flow {
    /// Arcs of actor i are `first[i]..first[i + 1]`.
    first: Vec<usize>,
    to: Vec<usize>,
    /// The arc of the same edge the other way.
    back: Vec<usize>,
    /// Price of each arc.
    price: Vec<f64>,
    /// What may still flow.
    rest: Vec<f64>,
    /// What may still flow into the sink.
    sink: Vec<f64>,
    /// Ticks of the lightest path from the actor in question.
    near: Vec<u64>,
    level: Vec<u32>,
    next: Vec<usize>,
    queue: Vec<usize>,
    steps: u64,
}

/// Not reached.
const FAR: u32 = u32::MAX;
/// Flows below this share of all prices are rounding.
const TINY: f64 = 1e-13;

impl Flow {
    pub(super) fn new(n: usize, ends: &[(usize, usize)], prices: &[f64]) -> Self {
        let mut first = vec![0; n + 1];
        for (u, v) in ends {
            first[u + 1] += 1;
            first[v + 1] += 1;
        }
        for i in 0..n {
            first[i + 1] += first[i];
        }
        let mut at = first.clone();
        let arcs = 2 * ends.len();
        let (mut to, mut back, mut price) = (vec![0; arcs], vec![0; arcs], vec![0.0; arcs]);
        for ((u, v), p) in ends.iter().zip(prices) {
            let (a, b) = (at[*u], at[*v]);
            (to[a], back[a], price[a]) = (*v, b, *p);
            (to[b], back[b], price[b]) = (*u, a, *p);
            at[*u] += 1;
            at[*v] += 1;
        }
        let rest = price.clone();
        let (level, next) = (vec![FAR; n], vec![0; n]);
        Self {
            first,
            to,
            back,
            price,
            rest,
            sink: vec![0.0; n],
            near: vec![u64::MAX; n],
            level,
            next,
            queue: Vec::new(),
            steps: 0,
        }
    }

    /// The value f_i(load), and every g_i(m) on the way to it.
    fn climb(&mut self, i: usize, ticks: &[u64], load: u64, found: &mut Vec<Value>) {
        if ticks[i] > load {
            return;
        }
        self.surround(i, ticks, load);
        let all: Vec<usize> = (0..ticks.len()).filter(|j| self.near[*j] <= load).collect();
        let ball = self.set(&all, ticks, |flow, j| flow.near[j] > load);
        let alone = self.set(&[i], ticks, |_, j| j != i);
        if alone.0 <= TINY || ball.0 <= TINY && ball.1 <= load as f64 {
            return;
        }
        // Sets as lines over m: d + m (w - load). All near actors on the rising side, the actor alone on the falling one.
        let (mut rising, mut falling) = (ball, alone);
        for _ in 0..MOST_FLOWS {
            let m = if rising.1 > load as f64 && rising.1 > falling.1 {
                ((falling.0 - rising.0) / (rising.1 - falling.1)).max(0.0)
            } else {
                0.0
            };
            let expected = (rising.0 + m * rising.1).min(falling.0 + m * falling.1);
            let g = self.run(i, m, ticks, load);
            found.push(Value { m, g, radius: load });
            let reached = std::mem::take(&mut self.queue);
            let set = self.set(&reached, ticks, |flow, j| flow.level[j] == FAR);
            self.queue = reached;
            if g >= expected * (1.0 - 1e-6) || self.steps > MOST_STEPS || m == 0.0 && set.1 <= load as f64 {
                return;
            }
            if set.1 > load as f64 {
                rising = set;
            } else {
                falling = set;
            }
        }
    }

    /// Ticks of the lightest path from `i` to every actor, both ends counted (Dijkstra 1959), as far as they are at most `load`.
    pub(super) fn surround(&mut self, i: usize, ticks: &[u64], load: u64) {
        self.near.fill(u64::MAX);
        self.near[i] = ticks[i];
        let mut open = std::collections::BinaryHeap::from([std::cmp::Reverse((ticks[i], i))]);
        while let Some(std::cmp::Reverse((length, u))) = open.pop() {
            if length > self.near[u] {
                continue;
            }
            for a in self.first[u]..self.first[u + 1] {
                let v = self.to[a];
                let further = length.saturating_add(ticks[v]);
                if further < self.near[v] && further <= load {
                    self.near[v] = further;
                    open.push(std::cmp::Reverse((further, v)));
                }
            }
            self.steps += (self.first[u + 1] - self.first[u]) as u64;
        }
    }

    /// Price of the border and ticks of a set.
    fn set(&self, members: &[usize], ticks: &[u64], outside: impl Fn(&Self, usize) -> bool) -> (f64, f64) {
        let (mut border, mut inside) = (0.0, 0.0);
        for &u in members {
            inside += ticks[u] as f64;
            let arcs = self.first[u]..self.first[u + 1];
            border += arcs.filter(|a| outside(self, self.to[*a])).map(|a| self.price[a]).sum::<f64>();
        }
        (border, inside)
    }

    /// The largest flow from actor `i` where actor j hands on up to m w_j, and those beyond `load` all they get.
    fn run(&mut self, i: usize, m: f64, ticks: &[u64], load: u64) -> f64 {
        self.rest.copy_from_slice(&self.price);
        for (sink, (near, t)) in self.sink.iter_mut().zip(self.near.iter().zip(ticks)) {
            *sink = if *near > load { f64::INFINITY } else { m * *t as f64 };
        }
        let mut total = self.sink[i];
        self.sink[i] = 0.0;
        while self.layers(i) {
            let n = self.next.len();
            self.next.copy_from_slice(&self.first[..n]);
            total += self.block(i);
        }
        total
    }

    /// Ticks of the lightest path to `j` from where [`Self::surround`] began.
    pub(super) fn near(&self, j: usize) -> u64 {
        self.near[j]
    }

    /// Arcs looked at so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether `j` is in the set of the last [`Self::signed`].
    pub(super) fn reached(&self, j: usize) -> bool {
        self.level[j] != FAR
    }

    /// The least of d(S) + gain(S) over the sets that hold `i`, gains of either sign, infinite for those that may not be in it. The last node is the
    /// source and has one arc to each other.
    pub(super) fn signed(&mut self, i: usize, gain: impl Fn(usize) -> f64) -> f64 {
        let source = self.sink.len() - 1;
        self.rest.copy_from_slice(&self.price);
        self.sink[source] = 0.0;
        let mut total = 0.0;
        for a in self.first[source]..self.first[source + 1] {
            let (j, back) = (self.to[a], self.back[a]);
            let g = gain(j);
            self.sink[j] = g.max(0.0);
            total += g.min(0.0);
            // More than everything that can flow.
            self.rest[a] = if j == i { 4.0 + g.abs() } else { (-g).max(0.0) };
            self.rest[back] = 0.0;
        }
        while self.layers(source) {
            let n = self.next.len();
            self.next.copy_from_slice(&self.first[..n]);
            total += self.block(source);
        }
        total
    }

    /// Distances from `i` up to the nearest actor that still hands on; whether there is one.
    fn layers(&mut self, i: usize) -> bool {
        self.level.fill(FAR);
        self.level[i] = 0;
        self.queue.clear();
        self.queue.push(i);
        let (mut at, mut last) = (0, FAR);
        while let Some(&u) = self.queue.get(at) {
            at += 1;
            if self.level[u] >= last {
                continue;
            }
            for a in self.first[u]..self.first[u + 1] {
                let v = self.to[a];
                if self.rest[a] > TINY && self.level[v] == FAR {
                    self.level[v] = self.level[u] + 1;
                    self.queue.push(v);
                    if self.sink[v] > TINY {
                        last = last.min(self.level[v]);
                    }
                }
            }
            self.steps += (self.first[u + 1] - self.first[u]) as u64;
        }
        last != FAR
    }

    /// Flows along the layers until none is left: paths by depth first, arcs that lead nowhere are not looked at again.
    fn block(&mut self, i: usize) -> f64 {
        let mut total = 0.0;
        let mut path: Vec<usize> = Vec::new();
        let mut at = i;
        loop {
            if self.sink[at] > TINY {
                let least = path.iter().map(|a| self.rest[*a]).fold(self.sink[at], f64::min);
                self.sink[at] -= least;
                total += least;
                let mut keep = path.len();
                for (depth, a) in path.iter().enumerate().rev() {
                    self.rest[*a] -= least;
                    self.rest[self.back[*a]] += least;
                    if self.rest[*a] <= TINY {
                        keep = depth;
                    }
                }
                self.steps += path.len() as u64;
                path.truncate(keep);
                at = path.last().map_or(i, |a| self.to[*a]);
            }
            let mut step = None;
            while self.next[at] < self.first[at + 1] {
                let a = self.next[at];
                self.steps += 1;
                if self.rest[a] > TINY && self.level[self.to[a]] == self.level[at] + 1 {
                    step = Some(a);
                    break;
                }
                self.next[at] += 1;
            }
            match step {
                Some(a) => {
                    path.push(a);
                    at = self.to[a];
                }
                None => {
                    let Some(a) = path.pop() else { return total };
                    at = self.to[self.back[a]];
                    self.next[at] += 1;
                }
            }
        }
    }
}
