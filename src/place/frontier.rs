//! What any division of the actors must cut at a largest load, actor after actor: a dynamic programme over the frontier of an order.
//!
//! What the cores hold falls into connected sets S of load w(S) <= T, of which at most k weigh more than T / 2: two of these share no core. The least cut
//! of all such divisions is a bound of every placement on k cores, and on graphs that are narrow in some order it can be computed. Actors join one after another; the *frontier*
//! are those that have joined and still have neighbours to come. What counts of a division so far is (the sets that its frontier actors lie in, their loads, how many sets of more than T / 2 are
//! closed, cut): a new actor joins some of the sets it has edges to and makes them one, and pays for its edges to the others. Of two divisions with the same
//! sets at the frontier the one that has no less of anything is dropped.
//!
//! Where divisions get too many, loads are rounded down to multiples of a grid that doubles: sets may then hold more than T, so that what comes out is a weaker bound, not a wrong one. Where time
//! is over the least cut so far is one.

use super::instance::{Edge, Instance};
use std::collections::BTreeMap;
use std::time::Instant;

/// Divisions that are kept of one step before loads are rounded.
const MOST_KEPT: usize = 6_000;
/// Rounds of doubling the grid in one step, from T / 2^12: beyond T / 16 nothing is gained.
const GRIDS: u32 = 8;
/// Sets that a new actor may join.
const MOST_SETS: usize = 12;

/// A bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bound {
    /// Price of what is cut at least.
    pub cut: f64,
    /// Whether it is the least cut of all divisions into connected sets: nothing was rounded or left out.
    pub whole: bool,
}

/// Frontier actors' sets by position; their loads, the number of large sets closed, the cut.
#[derive(Debug, Clone)]
struct Division {
    loads: Vec<u64>,
    large: u32,
    cut: f64,
}

impl Division {
    /// Whether it has no more of anything.
    fn beats(&self, other: &Self) -> bool {
        self.cut <= other.cut
            && self.large <= other.large
            && self.loads.iter().zip(&other.loads).all(|(mine, theirs)| mine <= theirs)
    }
}

type Divisions = BTreeMap<Vec<u8>, Vec<Division>>;

/// The least price of edges between connected sets of at most `load` ticks; nothing where an actor alone is more, or has too many neighbours in sets of their own.
pub(super) fn bound(
    instance: &Instance,
    ticks: &[u64],
    load: u64,
    price: impl Fn(&Edge) -> f64,
    until: Instant,
) -> Option<Bound> {
    if ticks.iter().any(|t| *t > load) || load == 0 {
        return None;
    }
    let mut near: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); instance.n];
    for e in instance.edges.iter().filter(|e| e.from != e.to) {
        *near[e.from].entry(e.to).or_default() += price(e);
        *near[e.to].entry(e.from).or_default() += price(e);
    }
    let mut frontier: Vec<usize> = Vec::new();
    let mut kept: Divisions = BTreeMap::from([(Vec::new(), vec![Division { loads: Vec::new(), large: 0, cut: 0.0 }])]);
    let mut whole = true;
    let mut joined = vec![false; instance.n];
    for v in narrow(instance, &near) {
        joined[v] = true;
        let prices: Vec<f64> = frontier.iter().map(|u| near[v].get(u).copied().unwrap_or(0.0)).collect();
        let touched: Vec<bool> = frontier.iter().map(|u| near[v].contains_key(u)).collect();
        let before = frontier.len();
        frontier.push(v);
        let stays: Vec<bool> = frontier.iter().map(|u| near[*u].keys().any(|other| !joined[*other])).collect();
        let mut next = Divisions::new();
        let paid = least(&kept)?;
        for (sets, divisions) in kept {
            // Sets that the actor has edges to, and the price of these.
            let count = sets.iter().map(|s| usize::from(*s) + 1).max().unwrap_or(0);
            let (mut of, mut met) = (vec![0.0; count], vec![false; count]);
            for at in 0..before {
                of[usize::from(sets[at])] += prices[at];
                met[usize::from(sets[at])] |= touched[at];
            }
            let near: Vec<usize> = (0..count).filter(|s| met[*s]).collect();
            if near.len() > MOST_SETS {
                return None;
            }
            for choice in 0..1u32 << near.len() {
                let joins: Vec<usize> = (0..near.len()).filter(|b| choice >> b & 1 == 1).map(|b| near[b]).collect();
                let paid: f64 = near.iter().filter(|s| !joins.contains(s)).map(|s| of[*s]).sum();
                // The set of each frontier actor after it, numbered as they come; those that have none left are closed.
                let mut raw: Vec<usize> = sets.iter().map(|s| usize::from(*s)).collect();
                raw.iter_mut().filter(|s| joins.contains(s)).for_each(|s| *s = count);
                raw.push(count);
                let mut number: Vec<Option<u8>> = vec![None; count + 1];
                let (mut key, mut named) = (Vec::with_capacity(raw.len()), Vec::new());
                for (set, _) in raw.iter().zip(&stays).filter(|(_, stays)| **stays) {
                    let name = *number[*set].get_or_insert_with(|| {
                        named.push(*set);
                        (named.len() - 1) as u8
                    });
                    key.push(name);
                }
                let ends: Vec<usize> = (0..=count).filter(|s| number[*s].is_none() && !joins.contains(s)).collect();
                let list = next.entry(key).or_default();
                for d in &divisions {
                    let merged = joins.iter().map(|s| d.loads[*s]).sum::<u64>() + ticks[v];
                    if merged > load {
                        continue;
                    }
                    let load_of = |s: &usize| if *s == count { merged } else { d.loads[*s] };
                    let large = d.large + ends.iter().filter(|s| load_of(s) > load / 2).count() as u32;
                    let open = named.iter().filter(|s| load_of(s) > load / 2).count();
                    if large as usize + open > instance.k {
                        continue;
                    }
                    list.push(Division { loads: named.iter().map(load_of).collect(), large, cut: d.cut + paid });
                }
            }
            if Instant::now() >= until {
                return Some(Bound { cut: paid * SAFE, whole: false });
            }
        }
        whole &= thin(&mut next, load);
        frontier = frontier.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(u, _)| *u).collect();
        kept = next;
    }
    least(&kept).map(|cut| Bound { cut: cut * SAFE, whole })
}

/// Rounding errors of sums of some thousand prices, none of them negative, taken off.
const SAFE: f64 = 1.0 - 1e-11;

fn least(divisions: &Divisions) -> Option<f64> {
    divisions.values().flatten().map(|d| d.cut).min_by(f64::total_cmp)
}

/// Drops what something else beats; where too many are left, rounds their loads. Whether nothing was rounded.
fn thin(divisions: &mut Divisions, load: u64) -> bool {
    let mut grid = (load >> 12).max(1);
    let mut exact = true;
    for round in 0..=GRIDS {
        for list in divisions.values_mut() {
            list.sort_by(|a, b| a.cut.total_cmp(&b.cut).then(a.large.cmp(&b.large)).then(a.loads.cmp(&b.loads)));
            let mut kept: Vec<Division> = Vec::new();
            for d in list.drain(..) {
                if !kept.iter().any(|k| k.beats(&d)) {
                    kept.push(d);
                }
            }
            *list = kept;
        }
        divisions.retain(|_, list| !list.is_empty());
        if divisions.values().map(Vec::len).sum::<usize>() <= MOST_KEPT || round == GRIDS {
            break;
        }
        exact = false;
        let loads = divisions.values_mut().flatten().flat_map(|d| &mut d.loads);
        loads.for_each(|l| *l -= *l % grid);
        grid *= 2;
    }
    exact
}

/// An order with few actors at the frontier: always the one that lets most leave it, and has been reachable for longest.
fn narrow(instance: &Instance, near: &[BTreeMap<usize, f64>]) -> Vec<usize> {
    let mut joined = vec![false; instance.n];
    let mut left: Vec<usize> = near.iter().map(BTreeMap::len).collect();
    let mut place = vec![0; instance.n];
    instance.order.iter().enumerate().for_each(|(at, i)| place[*i] = at);
    let mut order = Vec::with_capacity(instance.n);
    let mut open: Vec<usize> = Vec::new();
    while order.len() < instance.n {
        let growth = |v: usize| {
            let leave = near[v].keys().filter(|u| joined[**u] && left[**u] == 1).count();
            usize::from(near[v].keys().any(|u| !joined[*u])) as i64 - leave as i64
        };
        let next = open.iter().copied().min_by_key(|v| (growth(*v), place[*v]));
        let next = next.or_else(|| instance.order.iter().copied().find(|v| !joined[*v]));
        let Some(v) = next else { break };
        joined[v] = true;
        order.push(v);
        open.retain(|u| *u != v);
        for u in near[v].keys() {
            left[*u] -= 1;
            if !joined[*u] && !open.contains(u) {
                open.push(*u);
            }
        }
    }
    order
}
