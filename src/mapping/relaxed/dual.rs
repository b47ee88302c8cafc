//! The relaxation's dual: prices of what the pool needs, the shortest path of the backbone that takes them in, and what is left after
//! any part of a plan.
//!
//! A second of an overlapped resource r has the price m_r, one of what does not overlap m_A, the SRAM the price v. A partition P of the backbone that
//! takes x of the pool costs s (1 + lag_P) for each second of its pace, however much of that is the pool's. For given prices it is at least
//!
//! ```text
//! what P costs alone - sum over r of m_r (M_P - r_P) - v (SRAM - sram_P)
//!     - X max(0, sum of m_r - s (1 + lag_P)) - R max(0, m_A - s (1 + lag_P))
//! ```
//!
//! where X is the most that the pool needs of one overlapped resource, R what it needs of the rest; where no kernel of the pool fits P's SRAM it is what P
//! costs alone. A partition of the pool alone fills nothing: it costs a launch, s a second, and gains at most the prices, so that it can be left out where
//!
//! ```text
//! X max(0, sum of m_r - s) + R max(0, m_A - s) + v SRAM  <=  s launch
//! ```
//!
//! So pool seconds may cost more than s, as those of partitions that fill do, as far as a launch pays for it. With prices that sum to s and one
//! resource alone the bound is the closed form of `remaining.rs` with the partitions of the backbone counted; prices between make it the better of
//! many. They are improved by subgradient steps (Polyak's rule towards the best plan known).
//!
//! After some of a plan has run the same prices bound what is left: the shortest path from there, and the prices of the part of the pool that is left.

use super::{Arc, Pool, Prices, sram_share};
use crate::deadline::Deadline;
use crate::mapping::instance::Instance;
use std::collections::HashMap;

/// Passes over all arcs, in arcs.
const WORK: usize = 150_000_000;

/// Shares of a launch that are tried for what fills.
const FILLING: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// Of compute, DRAM, network in seconds; of the SRAM as a share of the chip's.
pub(super) type Needs = [f64; 4];

/// What something of the pool needs wherever it runs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Need {
    /// Value that nothing changes.
    pub(super) fixed: f64,
    /// Seconds that overlap with nothing.
    pub(super) rest: f64,
    /// Of what overlaps, and SRAM.
    pub(super) needs: Needs,
}

/// Prices of what the pool needs.
struct Paid {
    needs: Needs,
    rest: f64,
}

impl Paid {
    fn of(&self, need: &Need) -> f64 {
        need.fixed + self.rest * need.rest + self.needs.iter().zip(&need.needs).map(|(p, n)| p * n).sum::<f64>()
    }

    /// What seconds that all resources spend at once cost.
    fn second(&self) -> f64 {
        self.needs[..3].iter().sum()
    }
}

/// The dual problem.
pub(super) struct Dual<'a> {
    instance: &'a Instance,
    /// Of the whole pool.
    total: Need,
    /// The most that it needs of one resource that overlaps.
    longest: f64,
    /// Whether pipelines fill.
    fills: bool,
    arcs: Vec<Arc>,
    first: Vec<usize>,
}

struct ShortestPath {
    length: f64,
    /// The arc that each ideal is reached by.
    by: Vec<(u32, u32)>,
}

impl<'a> Dual<'a> {
    pub(super) fn new(instance: &'a Instance, pool: &Pool, arcs: Vec<Arc>, first: Vec<usize>) -> Self {
        let mut total = Need::default();
        let mut add = |need: &Need| {
            total.fixed += need.fixed;
            total.rest += need.rest;
            total.needs.iter_mut().zip(&need.needs).for_each(|(sum, need)| *sum += need);
        };
        pool.own.iter().for_each(|(_, need)| add(need));
        // Of the same kind, the one of most bytes needs most.
        let most = |loads: &Vec<(usize, Need)>| {
            let size = |need: &Need| need.needs[1] + need.rest + need.fixed;
            loads.iter().map(|(_, need)| *need).max_by(|a, b| size(a).total_cmp(&size(b)))
        };
        pool.shared.iter().filter_map(most).for_each(|need| add(&need));
        let longest = total.needs[..3].iter().copied().fold(0.0, f64::max);
        let fills = arcs.iter().any(|arc| arc.lag > 0.0 && arc.lag.is_finite());
        Self { instance, total, longest, fills, arcs, first }
    }

    /// What shares of the largest prices allowed stand for.
    fn paid(&self, shares: &Prices) -> Paid {
        let i = self.instance;
        let second = i.goal.second;
        let launch = second * i.partition_overhead_s;
        let room = 1.0 - sram_share(i, i.base_sram_bytes);
        let sram = if room > 0.0 { (1.0 - shares[4]) * launch / room } else { 0.0 };
        let seconds = self.longest + self.total.rest;
        let more = if seconds > 0.0 { shares[4] * launch / seconds } else { 0.0 };
        let rest = second + more;
        Paid { needs: [rest * shares[0], rest * shares[1], rest * shares[2], sram * shares[3]], rest }
    }

    /// What an arc costs with what it takes of the pool, and whether it is filled up.
    fn cost(&self, arc: &Arc, paid: &Paid) -> (f64, bool) {
        let saved: f64 = paid.needs.iter().zip(&arc.free).map(|(p, f)| p * f).sum();
        let second = self.instance.goal.second * (1.0 + f64::from(arc.lag));
        let (over, rest) = (paid.second() - second, paid.rest - second);
        let filled = over.max(0.0) * self.longest + rest.max(0.0) * self.total.rest;
        (arc.base - saved - if filled > 0.0 { filled } else { 0.0 }, over > 0.0)
    }

    fn shortest(&self, paid: &Paid) -> Option<ShortestPath> {
        let n = self.first.len() - 1;
        let mut best = vec![f64::INFINITY; n];
        let mut by = vec![(u32::MAX, u32::MAX); n];
        best[0] = 0.0;
        for i in 0..n {
            if best[i].is_infinite() {
                continue;
            }
            let from = self.first[i];
            for (arc, a) in self.arcs[from..self.first[i + 1]].iter().zip(from..) {
                let through = best[i] + self.cost(arc, paid).0;
                let to = arc.to as usize;
                if through < best[to] {
                    best[to] = through;
                    by[to] = (i as u32, a as u32);
                }
            }
        }
        let length = *best.last()?;
        length.is_finite().then_some(ShortestPath { length, by })
    }

    /// The length of the shortest path and its arcs, where there is no pool.
    pub(super) fn path_without_pool(&self) -> Option<(f64, Vec<(usize, usize)>)> {
        let path = self.shortest(&Paid { needs: [0.0; 4], rest: 0.0 })?;
        Some((path.length, self.chain(&path)))
    }

    /// The arcs of a path with the ideals that they start at, from the first.
    fn chain(&self, path: &ShortestPath) -> Vec<(usize, usize)> {
        let mut out = Vec::new();
        let mut at = path.by.len() - 1;
        while at != 0 {
            let (from, arc) = path.by[at];
            out.push((from as usize, arc as usize));
            at = from as usize;
        }
        out.reverse();
        out
    }

    /// The dual value of prices, and its slope in the shares of seconds and SRAM.
    fn value(&self, shares: &Prices) -> Option<(f64, Needs)> {
        let paid = self.paid(shares);
        let path = self.shortest(&paid)?;
        let value = path.length + paid.of(&self.total);
        let mut slope = self.total.needs;
        for (_, a) in self.chain(&path) {
            let arc = &self.arcs[a];
            slope.iter_mut().zip(&arc.free).for_each(|(s, free)| *s -= free);
            if self.cost(arc, &paid).1 {
                slope[..3].iter_mut().for_each(|s| *s -= self.longest);
            }
        }
        let most = self.paid(&[1.0, 1.0, 1.0, 1.0, shares[4]]).needs;
        slope.iter_mut().zip(&most).for_each(|(s, most)| *s *= most);
        Some((value, slope))
    }

    /// The best dual value found; `start` gets its prices.
    pub(super) fn ascend(&self, upper: f64, start: &mut Option<Prices>, deadline: Deadline) -> Option<f64> {
        let rounds = (WORK / self.arcs.len().max(1)).clamp(12, 80);
        let corners = [
            [0.0; 5],
            [1.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 0.0, 0.0],
            [0.5, 0.5, 0.0, 0.5, 0.0],
        ];
        let mut best = (f64::NEG_INFINITY, [0.0; 5]);
        for at in start.iter().copied().chain(corners) {
            let (value, _) = self.value(&at)?;
            if value > best.0 {
                best = (value, at);
            }
        }
        self.climb(&mut best, rounds, upper, deadline)?;
        if self.fills && self.instance.partition_overhead_s > 0.0 {
            for share in FILLING {
                let at = [best.1[0], best.1[1], best.1[2], best.1[3], share];
                let mut other = (self.value(&at)?.0, at);
                self.climb(&mut other, rounds / 4, upper, deadline)?;
                if other.0 > best.0 {
                    best = other;
                }
            }
        }
        *start = Some(best.1);
        Some(best.0)
    }

    /// Raises the value by steps along its slope.
    fn climb(&self, best: &mut (f64, Prices), rounds: usize, upper: f64, deadline: Deadline) -> Option<()> {
        let (mut at, mut pace, mut stale) = (best.1, 1.0, 0);
        for _ in 0..rounds {
            if best.0 >= upper * (1.0 - 1e-7) || pace < 1e-3 || deadline.is_over() {
                break;
            }
            let (value, slope) = self.value(&at)?;
            if value > best.0 {
                (*best, stale) = ((value, at), 0);
            } else {
                stale += 1;
                if stale == 4 {
                    (pace, stale, at) = (pace / 2.0, 0, best.1);
                    continue;
                }
            }
            let norm: f64 = slope.iter().map(|s| s * s).sum();
            let target = if upper.is_finite() { upper - value } else { value.abs() * 0.05 };
            if norm <= 0.0 || target <= 0.0 {
                break;
            }
            let step = pace * target / norm;
            (0..4).for_each(|r| at[r] += step * slope[r]);
            allow(&mut at);
        }
        Some(())
    }
}

/// Moves prices to the nearest that are allowed: shares of at least zero; those of a second together at most one.
fn allow(at: &mut Prices) {
    at[3] = at[3].clamp(0.0, 1.0);
    let mut seconds = [at[0], at[1], at[2]];
    if seconds.iter().map(|s| s.max(0.0)).sum::<f64>() > 1.0 {
        // Projection on the simplex: all lowered by the same amount.
        let mut sorted = seconds;
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        let mut sum = 0.0;
        let mut shift = 0.0;
        for (i, s) in sorted.iter().enumerate() {
            sum += s;
            let here = (sum - 1.0) / (i as f64 + 1.0);
            if s - here > 0.0 {
                shift = here;
            }
        }
        seconds.iter_mut().for_each(|s| *s -= shift);
    }
    for (r, s) in seconds.iter().enumerate() {
        at[r] = s.clamp(0.0, 1.0);
    }
}

/// What is left after each part of a plan costs at least, at the prices of the relaxation that bound the whole best.
pub(crate) struct Ahead {
    /// The kernels that are not pooled.
    backbone: u128,
    /// Ideals of the backbone by their kernels.
    index: HashMap<u128, usize, foldhash::fast::FixedState>,
    sets: Vec<u128>,
    /// The least of the backbone after each.
    least: Vec<f64>,
    /// Arcs from each: where to, and the least of the backbone through there.
    through: Vec<(u32, f64)>,
    first: Vec<usize>,
    /// Prices of the kernels of the pool.
    own: Vec<(usize, f64)>,
    /// Prices of the loads of one tensor by some of them.
    shared: Vec<Vec<(usize, f64)>>,
}

impl Ahead {
    /// `sets`: the kernels of each ideal.
    pub(super) fn new(dual: Dual<'_>, sets: Vec<u128>, pool: Pool, upper: f64, deadline: Deadline) -> Option<Self> {
        let mut shares = None;
        dual.ascend(upper, &mut shares, deadline)?;
        let paid = dual.paid(&shares?);
        let mut least = vec![f64::INFINITY; sets.len()];
        *least.last_mut()? = 0.0;
        let mut through = vec![(0, f64::INFINITY); dual.arcs.len()];
        for i in (0..sets.len()).rev() {
            let arcs = dual.first[i]..dual.first[i + 1];
            for (arc, through) in dual.arcs[arcs.clone()].iter().zip(&mut through[arcs]) {
                let way = dual.cost(arc, &paid).0 + least[arc.to as usize];
                *through = (arc.to, way);
                least[i] = way.min(least[i]);
            }
        }
        let price = |(k, need): &(usize, Need)| (*k, paid.of(need));
        Some(Self {
            backbone: *sets.last()?,
            index: sets.iter().enumerate().map(|(i, set)| (*set, i)).collect(),
            sets,
            least,
            through,
            first: dual.first,
            own: pool.own.iter().map(price).collect(),
            shared: pool.shared.iter().map(|loads| loads.iter().map(price).collect()).collect(),
        })
    }

    /// Prices of the part of the pool that has not run.
    fn pool(&self, ran: u128) -> f64 {
        let left = |k: usize| ran & (1 << k) == 0;
        let own: f64 = self.own.iter().filter(|(k, _)| left(*k)).map(|(_, price)| price).sum();
        let of =
            |loads: &Vec<(usize, f64)>| loads.iter().filter(|(k, _)| left(*k)).map(|(_, p)| *p).fold(0.0, f64::max);
        own + self.shared.iter().map(of).sum::<f64>()
    }

    /// The least value of what is left where these kernels have run.
    pub(crate) fn after(&self, ran: u128) -> f64 {
        let way = self.index.get(&(ran & self.backbone)).map_or(0.0, |i| self.least[*i]);
        way + self.pool(ran)
    }

    /// The same where the next partition has just these kernels of the backbone, for each choice of them that is possible.
    pub(crate) fn through(&self, ran: u128) -> HashMap<u128, f64, foldhash::fast::FixedState> {
        let Some(&i) = self.index.get(&(ran & self.backbone)) else { return HashMap::default() };
        let pool = self.pool(ran);
        let ways = &self.through[self.first[i]..self.first[i + 1]];
        ways.iter().map(|(to, way)| (self.sets[*to as usize], way + pool)).collect()
    }
}
