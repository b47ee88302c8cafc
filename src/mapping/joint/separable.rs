//! A lower bound on a layer's time over all shardings of a set, as a sharding problem.
//!
//! The time of a layer is a sum over partitions of maxima, which is not separable. Any convex combination of a partition's
//! arithmetic, DRAM traffic and collectives is at most their maximum, and the combination is a sum of terms of few kernels:
//! arithmetic and traffic by a kernel's own strategy, conversions by the pair of a link. With the weights fixed, the
//! elimination finds the least of it over all shardings, which bounds the layer whatever the partitions and tile counts. A
//! *bundle* of kernels shares weights: a pass on chips that fuse (every partition lies within one), a kernel on chips that
//! do not. The weights go to what dominates the shardings met (fictitious play between the shardings and the weights,
//! which converges to the best weights; every step gives a bound).
//!
//! Of another objective than time ([`super::super::goal`]) the combination stands for the seconds; what arithmetic, traffic, FLOP and the
//! joules of links count besides are such sums by themselves.
//!
//! Where the DRAM is short, a price on its bytes joins them: a sharding that fits pays nothing above the capacity, so that for
//! any price of at least zero the least of (time + price x (bytes - capacity)) is a bound too.

use super::super::elimination::{couplings, group_terms, preference};
use super::super::goal::Rates;
use super::super::instance::{Compute, Instance};
use super::super::minsum::{self, Least, Sum, Term};
use super::super::sharding::Problem;
use super::super::waits::Wait;
use super::relaxed::Open;
use crate::deadline::Deadline;
use crate::model::Strategy;
use crate::model::layout::Layout;
use crate::system::Overlap;
use crate::workload::Phase;
use std::collections::BTreeMap;

/// What the conversions of a group cost.
pub type Conversions = BTreeMap<(Layout, Layout), f64>;

/// Rounds in which the weights of a partition are moved.
const PACE_ROUNDS: usize = 2;

/// Prices of memory that are tried.
const PRICES: usize = 24;
/// Shares of what layers hold by which memory is priced, one after the other, while the best of one holds too much by another.
pub const SHARES: usize = 8;

/// Weights of a bundle; at least zero, and of parts that overlap they sum to at most one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    compute: f64,
    dram: f64,
    network: f64,
}

/// What a bundle spends, each in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    compute: f64,
    dram: f64,
    network: f64,
}

/// The parts of a bound that depend on one kernel's strategy.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    /// Seconds of arithmetic.
    pub compute: f64,
    /// Seconds of DRAM traffic.
    pub dram: f64,
    /// Seconds of collectives.
    pub network: f64,
    /// What FLOP and joules of its own collectives count in the objective.
    pub uses: f64,
}

/// The terms of a set of shardings.
struct Among {
    /// Of each variable the values that it may have.
    kept: Vec<Vec<usize>>,
    sizes: Vec<usize>,
    coupled: Vec<Term>,
    groups: Vec<Vec<Converted>>,
    waits: Vec<Term>,
}

/// A term of what the conversions of a group cost: seconds, and, where they count, joules of links.
type Converted = (Term, Option<Term>);

/// The separable bound of an assignment of dimensions.
pub struct Separable {
    /// When the search must end.
    deadline: Deadline,
    /// Links and conversions in seconds; its own costs are not used.
    base: Problem,
    /// Values of the kernels' variables and of those of groups.
    sizes: Vec<usize>,
    /// What must agree, and what the conversions of each group cost; none where that is too much for the elimination.
    terms: Option<(Vec<Term>, Vec<Vec<Converted>>)>,
    /// Seconds that are waited for beside the partitions.
    waits: Vec<Term>,
    /// For each kernel and strategy of `base`.
    own: Vec<Vec<Own>>,
    bundle: Vec<usize>,
    /// Kernels one of which pays for the conversions of each group.
    payers: Vec<Vec<usize>>,
    overlap: Overlap,
    /// Seconds of each bundle that no sharding changes: DRAM traffic of tensors that must cross.
    dram: Vec<f64>,
    /// Seconds that nothing overlaps, and of these the launches.
    serial_s: f64,
    launches_s: f64,
    rates: Rates,
    /// What the objective counts of each kernel and strategy, and of what must cross, beside the seconds.
    uses: Vec<Vec<f64>>,
    crossing: f64,
    weights: Vec<Weights>,
    /// Bytes in the DRAM by kernel and strategy, and what there is for them.
    held: Vec<Vec<f64>>,
    /// The same bytes by other shares of what layers hold: no more than the room by any.
    others: Vec<Vec<Vec<f64>>>,
    room: f64,
    /// Value of a layer that a byte is priced at.
    byte_price: f64,
    /// Where the DRAM is short, shardings that leave room, the one that holds least the last.
    starts: Vec<Vec<Strategy>>,
}

impl Separable {
    /// Tells what each strategy keeps in the DRAM, by one share of what layers hold and by others, and how much may be kept by any of them.
    pub fn limit_memory(&mut self, held: Vec<Vec<f64>>, others: Vec<Vec<Vec<f64>>>, room: f64) {
        (self.held, self.others, self.room) = (held, others, room);
    }

    /// Tells what is waited for beside the partitions.
    pub fn add_waits(&mut self, waits: &[Wait]) {
        self.waits = waits.iter().filter_map(|wait| wait.term(&self.base.open, &self.sizes)).collect();
    }

    /// From the sharding problem (in seconds, and the conversions of its groups in joules where they count), the kernels' own parts,
    /// and the relaxation over all its strategies, from which the bytes that cross at least are taken.
    ///
    /// `loads_in_own`: `own` has the loads of a kernel that is a partition of its own already.
    pub fn new(
        (base, in_joules): (Problem, Vec<Conversions>),
        rates: Rates,
        mut own: Vec<Vec<Own>>,
        relaxed: &Instance,
        phases: &[Phase],
        loads_in_own: bool,
        deadline: Deadline,
    ) -> Self {
        let backward = |k: usize| phases[k] != Phase::Forward;
        let pass = |k: usize| usize::from(relaxed.separate_phases && backward(k));
        let alone = relaxed.kernel_by_kernel;
        let n = phases.len();
        let bundle: Vec<usize> = (0..n).map(|k| if alone { k } else { pass(k) }).collect();
        let bundles = bundle.iter().max().map_or(0, |b| b + 1);
        let mut dram = vec![0.0; bundles];
        for tensor in &relaxed.tensors {
            let across = |k: usize| tensor.producer.is_none_or(|p| alone || pass(p) != pass(k));
            let mut widest = vec![0.0_f64; bundles];
            for u in tensor.uses.iter().filter(|u| across(u.kernel) && !loads_in_own) {
                let b = bundle[u.kernel];
                widest[b] = widest[b].max(u.load_bytes);
            }
            if let Some(p) = tensor.producer
                && (tensor.output || tensor.uses.iter().any(|u| across(u.kernel)))
            {
                widest[bundle[p]] += tensor.store_bytes;
            }
            dram.iter_mut().zip(&widest).for_each(|(sum, bytes)| *sum += bytes / relaxed.dram_bytes_per_s);
        }
        let bandwidth = relaxed.dram_bytes_per_s;
        let by_use = |own: &Own| rates.busy_second * own.compute + rates.dram_byte * (own.dram * bandwidth) + own.uses;
        let uses = own.iter().map(|of| of.iter().map(by_use).collect()).collect();
        let crossing = rates.dram_byte * bandwidth * dram.iter().sum::<f64>();
        if alone {
            // The two parts of one kernel's partition are combined as the chip does; only collectives are left to weigh.
            for (own, dram) in own.iter_mut().zip(&mut dram) {
                for part in own.iter_mut() {
                    let moved = part.dram + *dram;
                    part.compute = match relaxed.overlap {
                        Overlap::None => part.compute + moved,
                        Overlap::Full | Overlap::ComputeMemory => part.compute.max(moved),
                    };
                    part.dram = 0.0;
                }
                *dram = 0.0;
            }
        }
        let used = if alone { n } else { bundles };
        let launches_s = used as f64 * relaxed.partition_overhead_s;
        let serial_s = relaxed.kernels.iter().map(|k| k.serial_s).sum::<f64>() + launches_s;
        let payers = (0..base.groups.len())
            .map(|g| {
                let links = base.links.iter().filter(|l| l.group == Some(g));
                let mut payers: Vec<usize> = links.flat_map(|l| l.payers.iter().copied()).collect();
                payers.sort_unstable();
                payers.dedup();
                payers
            })
            .collect();
        let weights = match relaxed.overlap {
            Overlap::Full => Weights { compute: 1.0, dram: 0.0, network: 0.0 },
            Overlap::ComputeMemory => Weights { compute: 1.0, dram: 0.0, network: 1.0 },
            Overlap::None => Weights { compute: 1.0, dram: 1.0, network: 1.0 },
        };
        let weights = vec![weights; bundles];
        let mut sizes: Vec<usize> = base.open.iter().map(Vec::len).collect();
        let of_group = |g: usize, sizes: &mut Vec<usize>| -> Option<Vec<Converted>> {
            let links = || base.links.iter().filter(|l| l.group == Some(g)).collect::<Vec<_>>();
            let of = |costs: &[Conversions], pair: &(Layout, Layout)| {
                costs.get(g).and_then(|costs| costs.get(pair)).copied().unwrap_or(0.0)
            };
            let seconds = |pair: &(Layout, Layout)| of(&base.groups, pair);
            let joules = |pair: &(Layout, Layout)| of(&in_joules, pair);
            let counts = |pair: &(Layout, Layout)| seconds(pair) > 0.0 || joules(pair) > 0.0;
            let (mut terms, mut others) = (Vec::new(), Vec::new());
            // The same variables both times.
            let mut again = sizes.clone();
            group_terms(&counts, &seconds, links(), sizes, &mut terms)?;
            if in_joules.is_empty() {
                return Some(terms.into_iter().map(|term| (term, None)).collect());
            }
            group_terms(&counts, &joules, links(), &mut again, &mut others)?;
            Some(terms.into_iter().zip(others.into_iter().map(Some)).collect())
        };
        let coupled = couplings(&base, &sizes);
        let groups: Option<Vec<Vec<Converted>>> = (0..base.groups.len()).map(|g| of_group(g, &mut sizes)).collect();
        Self {
            deadline,
            sizes,
            terms: coupled.zip(groups),
            waits: Vec::new(),
            base,
            own,
            bundle,
            payers,
            overlap: relaxed.overlap,
            dram,
            serial_s,
            launches_s,
            rates,
            uses,
            crossing,
            weights,
            held: Vec::new(),
            room: f64::INFINITY,
            others: Vec::new(),
            byte_price: 0.0,
            starts: Vec::new(),
        }
    }

    /// Seconds of launches that the bound counts, and of all that nothing overlaps.
    pub fn launches_and_serial(&self) -> (f64, f64) {
        (self.launches_s, self.serial_s)
    }

    /// Where the DRAM is short, shardings that leave room, the one that holds least the last.
    pub fn starts(&self) -> &[Vec<Strategy>] {
        &self.starts
    }

    /// Moves the weights, and the price of memory, to where the bound over `open` is largest; gives that bound.
    pub fn tune(&mut self, open: &Open, rounds: usize) -> f64 {
        let unpriced = self.weigh(open, rounds);
        let mut bound = self.price_memory(open, unpriced);
        // The best of one share may hold too much by another, which then says more.
        for _ in 0..SHARES {
            let Some((_, sharding)) = self.least(open).filter(|(_, sharding)| !sharding.is_empty()) else { break };
            let holds = |held: &Vec<Vec<f64>>| self.holds(held, &sharding);
            let fullest = self.others.iter().max_by(|a, b| holds(a).total_cmp(&holds(b)));
            let Some(fullest) = fullest.filter(|held| holds(held) > self.room && **held != self.held).cloned() else {
                break;
            };
            let before = (std::mem::replace(&mut self.held, fullest), self.byte_price, self.starts.clone());
            self.byte_price = 0.0;
            let other = self.price_memory(open, unpriced);
            if other <= bound {
                (self.held, self.byte_price, self.starts) = before;
                break;
            }
            bound = other;
        }
        bound
    }

    /// Bytes in the DRAM that a sharding decides.
    fn holds(&self, held: &[Vec<f64>], sharding: &[Strategy]) -> f64 {
        let at = |k: usize| self.base.open[k].iter().position(|s| *s == sharding[k]).unwrap_or(0);
        (0..sharding.len()).map(|k| held[k][at(k)]).sum()
    }

    /// Of the price of a byte the bound is a concave function: it rises while the sharding found is too large.
    fn price_memory(&mut self, open: &Open, bound: f64) -> f64 {
        let needs = |of: &Self, sharding: &[Strategy]| of.holds(&of.held, sharding);
        let Some((_, sharding)) = self.least(open) else { return f64::INFINITY };
        if sharding.is_empty() || !self.room.is_finite() || needs(self, &sharding) <= self.room {
            return bound;
        }
        let mut best = (bound, 0.0);
        let mut with_room = None;
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut price = bound.max(f64::MIN_POSITIVE) / self.room.abs().max(1.0);
        for _ in 0..PRICES {
            self.byte_price = price;
            let found = self.least(open).filter(|(_, sharding)| !sharding.is_empty());
            let Some((bound, sharding)) = found else { break };
            if bound > best.0 {
                best = (bound, price);
            }
            if needs(self, &sharding) > self.room {
                low = price;
            } else {
                high = price;
                with_room = Some(sharding);
            }
            price = if high.is_finite() { 0.5 * (low + high) } else { 4.0 * price };
        }
        self.byte_price = 1e6 * price;
        let least = self.least(open).map(|(_, sharding)| sharding).filter(|sharding| !sharding.is_empty());
        self.starts = with_room.into_iter().chain(least).collect();
        self.byte_price = best.1;
        best.0
    }

    fn weigh(&mut self, open: &Open, rounds: usize) -> f64 {
        if self.overlap == Overlap::None {
            return self.least(open).map_or(f64::INFINITY, |(bound, _)| bound);
        }
        let mut best = (f64::NEG_INFINITY, self.weights.clone());
        for round in 0..rounds.max(1) {
            let Some((bound, sharding)) = self.least(open) else { return f64::INFINITY };
            if bound > best.0 {
                best = (bound, self.weights.clone());
            }
            let step = 1.0 / (round as f64 + 2.0);
            let spent = self.spent(&sharding);
            for (weights, spent) in self.weights.iter_mut().zip(&spent) {
                weights.toward(self.overlap, spent, if round == 0 { 1.0 } else { step });
            }
        }
        self.weights = best.1;
        best.0
    }

    /// The least of the weighted sum over the shardings of `open`, and one that reaches it; `None` where no strategies
    /// agree. Where too many kernels depend on each other at once the bound is zero and the sharding empty.
    pub fn least(&self, open: &Open) -> Option<(f64, Vec<Strategy>)> {
        self.least_of(&self.among(open), &self.weights)
    }

    /// [`Separable::least`] with weights that are moved for this set alone.
    pub fn least_tuned(&self, open: &Open, rounds: usize) -> Option<(f64, Vec<Strategy>)> {
        let among = self.among(open);
        let mut weights = self.weights.clone();
        let mut best: Option<(f64, Vec<Strategy>)> = None;
        for round in 0..=rounds {
            let (bound, sharding) = self.least_of(&among, &weights)?;
            if sharding.is_empty() || self.overlap == Overlap::None {
                return Some((bound, sharding));
            }
            let spent = self.spent(&sharding);
            if best.as_ref().is_none_or(|(least, _)| bound > *least) {
                best = Some((bound, sharding));
            }
            let step = 1.0 / (round as f64 + 2.0);
            for (weights, spent) in weights.iter_mut().zip(&spent) {
                weights.toward(self.overlap, spent, step);
            }
        }
        best
    }

    /// Seconds that no sharding of `open` takes less of in a partition of given kernels (bits): the largest of its resources where they overlap, and their sum where they do not.
    pub fn least_pace(&self, open: &Open, kernels: u128) -> f64 {
        let has = |k: usize| k < 128 && kernels & (1 << k) != 0;
        let Some(among) = self.among(open) else { return 0.0 };
        let mut weights = self.weights.clone();
        let mut best = 0.0_f64;
        for round in 0..=PACE_ROUNDS {
            let mut sum = Sum::new(&among.sizes);
            for (k, own) in self.own.iter().enumerate().filter(|(k, _)| has(*k)) {
                let weights = weights[self.bundle[k]];
                sum.add_of_one(k, among.kept[k].iter().map(|a| weights.of(&own[*a])));
            }
            for (g, costs) in among.groups.iter().enumerate().filter(|(g, _)| self.payers[*g].iter().all(|k| has(*k))) {
                let weight = self.weight_of_conversions(g, &weights);
                costs.iter().for_each(|(seconds, _)| sum.add(seconds, weight));
            }
            let Least::Found(values, cost) = minsum::least(sum, |_, _| 0, self.deadline) else { return best };
            best = best.max(cost * (1.0 - 1e-12));
            if self.overlap == Overlap::None {
                break;
            }
            let mut spent = Spent::default();
            for (k, own) in self.own.iter().enumerate().filter(|(k, _)| has(*k)) {
                let own = own[among.kept[k][values[k]]];
                spent.compute += own.compute;
                spent.dram += own.dram;
                spent.network += own.network;
            }
            let step = 1.0 / (round as f64 + 2.0);
            weights.iter_mut().for_each(|weights| weights.toward(self.overlap, &spent, step));
        }
        best
    }

    /// The terms between the strategies that are open; none where they are too large.
    fn among(&self, open: &Open) -> Option<Among> {
        let (coupled, groups) = self.terms.as_ref()?;
        let of = |v: usize| match self.base.open.get(v) {
            Some(all) => (0..all.len()).filter(|a| open[v].contains(&all[*a])).collect(),
            None => (0..self.sizes[v]).collect(),
        };
        let kept: Vec<Vec<usize>> = (0..self.sizes.len()).map(of).collect();
        let cut = |term: &Term| term.among(&self.sizes, &kept);
        let cut_both = |(seconds, joules): &Converted| (cut(seconds), joules.as_ref().map(cut));
        Some(Among {
            coupled: coupled.iter().map(cut).collect(),
            groups: groups.iter().map(|terms| terms.iter().map(cut_both).collect()).collect(),
            waits: self.waits.iter().map(cut).collect(),
            sizes: kept.iter().map(Vec::len).collect(),
            kept,
        })
    }

    /// What a second of the conversions of a group counts, whichever of its payers pays.
    fn weight_of_conversions(&self, group: usize, weights: &[Weights]) -> f64 {
        let least = self.payers[group].iter().map(|k| weights[self.bundle[*k]].network).fold(f64::INFINITY, f64::min);
        if least.is_finite() { least } else { 0.0 }
    }

    fn least_of(&self, among: &Option<Among>, weights: &[Weights]) -> Option<(f64, Vec<Strategy>)> {
        let Some(among) = among else { return Some((0.0, Vec::new())) };
        let mut sum = Sum::new(&among.sizes);
        among.coupled.iter().for_each(|term| sum.add(term, 1.0));
        among.waits.iter().for_each(|term| sum.add(term, self.rates.second));
        for (k, own) in self.own.iter().enumerate() {
            let weights = weights[self.bundle[k]];
            let held = |a: usize| if self.byte_price > 0.0 { self.byte_price * self.held[k][a] } else { 0.0 };
            let value = |a: &usize| self.rates.second * weights.of(&own[*a]) + self.uses[k][*a] + held(*a);
            sum.add_of_one(k, among.kept[k].iter().map(value));
        }
        for (g, costs) in among.groups.iter().enumerate() {
            let weight = self.weight_of_conversions(g, weights);
            for (seconds, joules) in costs {
                sum.add(seconds, self.rates.second * weight);
                joules.iter().for_each(|joules| sum.add(joules, self.rates.link_j));
            }
        }
        let at = |k: usize, value: usize| among.kept[k].get(value).map(|a| self.base.open[k][*a]);
        let rank = |v: usize, value: usize| match v < self.base.open.len() {
            true => at(v, value).map_or(0, preference),
            false => 0,
        };
        match minsum::least(sum, rank, self.deadline) {
            Least::Infeasible => None,
            Least::TooWide | Least::OutOfTime => Some((0.0, Vec::new())),
            Least::Found(values, cost) => {
                let dram: f64 = weights.iter().zip(&self.dram).map(|(w, d)| w.dram * d).sum();
                let sharding = (0..self.base.open.len()).filter_map(|k| at(k, values[k])).collect();
                let sum = cost + self.rates.second * dram + self.crossing + self.rates.second * self.serial_s;
                // Rounding is relative to the sums, not to their difference.
                let room = if self.byte_price > 0.0 { self.byte_price * self.room } else { 0.0 };
                Some(((sum - room - 1e-12 * (sum + room.abs())).max(0.0), sharding))
            }
        }
    }

    /// What each bundle spends under a sharding.
    fn spent(&self, sharding: &[Strategy]) -> Vec<Spent> {
        let mut spent: Vec<Spent> = self.dram.iter().map(|d| Spent { dram: *d, ..Spent::default() }).collect();
        if sharding.is_empty() {
            return spent;
        }
        let at = |k: usize| self.base.open[k].iter().position(|s| *s == sharding[k]).unwrap_or(0);
        for (k, own) in self.own.iter().enumerate() {
            let own = own[at(k)];
            let sum = &mut spent[self.bundle[k]];
            sum.compute += own.compute;
            sum.dram += own.dram;
            sum.network += own.network;
        }
        let mut paid = std::collections::BTreeSet::new();
        for link in &self.base.links {
            if let (Some(g), Some(pair)) = (link.group, link.pairs[at(link.from)][at(link.to)])
                && paid.insert((g, pair))
                && let Some(payer) = self.payers[g].first()
            {
                spent[self.bundle[*payer]].network += self.base.groups[g].get(&pair).copied().unwrap_or(0.0);
            }
        }
        spent
    }
}

impl Weights {
    fn of(&self, own: &Own) -> f64 {
        self.compute * own.compute + self.dram * own.dram + self.network * own.network
    }

    /// A step towards the part that is spent most.
    fn toward(&mut self, overlap: Overlap, spent: &Spent, step: f64) {
        let network = overlap == Overlap::Full && spent.network > spent.compute.max(spent.dram);
        let dram = !network && spent.dram > spent.compute;
        let compute = !network && !dram;
        let blend = |from: &mut f64, on: bool| *from += step * (f64::from(u8::from(on)) - *from);
        blend(&mut self.compute, compute);
        blend(&mut self.dram, dram);
        if overlap == Overlap::Full {
            blend(&mut self.network, network);
        }
    }
}

/// The own parts of each kernel and strategy at the fewest tiles.
pub fn compute_seconds(compute: &Compute, cores: u64) -> f64 {
    match compute {
        Compute::Seconds(s) => *s,
        Compute::Cores(options) => {
            options.iter().map(|o| o.cores as f64 * o.seconds).fold(f64::INFINITY, f64::min) / cores as f64
        }
    }
}
