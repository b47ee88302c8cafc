//! The least bottleneck of a chain of stages on equal cores.
//!
//! Given a largest load T, can the actors be divided among k stages, no edge going back? (Line balancing.) Actors of a *backbone* join one
//! after another, along the ideals of their order; the rest, the *fringe* (actors that would make the ideals too many: transposed weights,
//! gradients of weights), is let flow like a liquid: it may be cut anywhere, and must only be done before the backbone actors that wait for it. Along an
//! order time t runs from 0 to k T, stage s being `[s T, (s + 1) T)`. A backbone actor must not lie across a boundary; where the
//! next does not fit, the stage is filled with liquid and what is left of it is waste. What counts of a partial order is (t, waste) for its ideal:
//!
//!   t' = t + max(0, required(I + j) - g),  g = t - weight(I) - waste (liquid done),
//!   if t' mod T + w_j <= T: t' + w_j;  else the boundary b = ceil(t' / T) T, g += min(b - t', liquid left), waste += what remains, b + w_j.
//!
//! A partial order with both less is as good as any that comes after the other: the liquid can make up for the difference. T is feasible only if the full ideal is
//! reached with waste <= k T - total. Without fringe the least such T is the optimum (Held, Karp, Shareshian 1963); with it, a lower
//! bound, and the order found is packed with whole fringe actors ([`fill`]). The same is done with all edges turned round.

use super::ideals::{Ideals, Near, near};
use super::instance::Instance;
use std::time::Instant;

/// Most ideals of a backbone.
pub const MOST_IDEALS: usize = 20_000;

/// A backbone with its ideals, and what the fringe asks for.
struct Line {
    ideals: Ideals,
    /// Ticks of each member.
    weight: Vec<u64>,
    /// Fringe actors that become due with a member, by ideal: `required[id]` ticks of all due in an ideal.
    required: Vec<u64>,
    /// Ticks of the members of each ideal.
    done: Vec<u64>,
    /// Ticks of all actors.
    total: u64,
}

/// Backbone order found for some T, and the bound.
#[derive(Debug, Clone)]
pub struct Found {
    /// No chain of stages has a smaller bottleneck.
    pub bound: u64,
    /// Orders of all actors that reach it, the fringe as early as it is due.
    pub orders: Vec<Vec<usize>>,
    /// Whether the orders cut at the bound are optimal as they are: there is no fringe.
    pub exact: bool,
}

/// The bound of all chains, and orders that come close. Where the time is over the bound is that of the loads refuted by then.
pub fn bound(instance: &Instance, most_ideals: usize, until: Instant) -> Found {
    let weight = &instance.ticks[0];
    let mut least = instance.load_bound();
    let mut orders = Vec::new();
    let mut exact = false;
    for reverse in [false, true] {
        let order: Vec<usize> =
            if reverse { instance.order.iter().rev().copied().collect() } else { instance.order.clone() };
        let line = Line::new(instance, &order, reverse, most_ideals, until);
        exact = line.ideals.members.len() == instance.n;
        let (bound, found) = line.least(instance.k as u64, least, until);
        least = least.max(instance.whole(bound));
        let mut found = line.whole_order(instance, &order, &found, reverse);
        if reverse {
            found.reverse();
        }
        debug_assert_eq!(found.len(), weight.len());
        orders.push(found);
        if exact || Instant::now() >= until {
            break;
        }
    }
    Found { bound: least, orders, exact }
}

impl Line {
    fn new(instance: &Instance, order: &[usize], reverse: bool, most: usize, until: Instant) -> Self {
        let weight = &instance.ticks[0];
        let pick = |count: usize, by: &[usize]| {
            let mut chosen = vec![false; instance.n];
            by[..count].iter().for_each(|a| chosen[*a] = true);
            let members: Vec<usize> = order.iter().copied().filter(|a| chosen[*a]).collect();
            let near = near(instance, &members, reverse);
            Ideals::of(members, &near, most).map(|ideals| (ideals, near))
        };
        // The heaviest first; as many as have few enough ideals. Among equals, those inside go before sources and sinks.
        let mut heavy: Vec<usize> = order.to_vec();
        heavy.sort_by_key(|a| std::cmp::Reverse(weight[*a]));
        let mut inner: Vec<usize> = order.to_vec();
        let at_end = |a: usize| {
            let count = |list: &[usize]| list.iter().filter(|e| instance.edges[**e].waits).count();
            count(&instance.incoming[a]) == 0 || count(&instance.outgoing[a]) == 0
        };
        inner.sort_by_key(|a| (at_end(*a), std::cmp::Reverse(weight[*a])));
        let mut best: Option<(u64, Ideals, Near)> = None;
        for by in [&inner, &heavy] {
            let (mut low, mut high) = (0, by.len());
            let mut found = pick(high, by);
            if found.is_none() {
                while high - low > 1 + high / 64 && Instant::now() < until {
                    let middle = low.midpoint(high);
                    match pick(middle, by) {
                        Some(some) => (low, found) = (middle, Some(some)),
                        None => high = middle,
                    }
                }
            } else {
                low = high;
            }
            let Some((ideals, near)) = found else { continue };
            let kept: u64 = ideals.members.iter().map(|a| weight[*a]).sum();
            if best.as_ref().is_none_or(|(most, ..)| kept > *most) {
                best = Some((kept, ideals, near));
            }
            if low == by.len() || Instant::now() >= until {
                break;
            }
        }
        let (_, ideals, near) = best.unwrap_or_else(|| {
            let none = Near { before: Vec::new(), fringe: Vec::new() };
            (0, super::ideals::prefixes(Vec::new()), none)
        });
        let members = &ideals.members;
        let mut due_with: Vec<Vec<usize>> = vec![Vec::new(); instance.n];
        for (m, list) in near.fringe.iter().enumerate() {
            list.iter().for_each(|f| due_with[*f].push(m));
        }
        let mut required = vec![0; ideals.len()];
        let mut done = vec![0; ideals.len()];
        for id in 0..ideals.len() {
            for &(m, to) in &ideals.next[id] {
                let (m, to) = (m as usize, to as usize);
                let fresh = near.fringe[m].iter().filter(|f| !due_with[**f].iter().any(|d| ideals.has(id, *d)));
                required[to] = required[id] + fresh.map(|f| weight[*f]).sum::<u64>();
                done[to] = done[id] + weight[members[m]];
            }
        }
        let weights = members.iter().map(|a| weight[*a]).collect();
        Self { weight: weights, required, done, total: weight.iter().sum(), ideals }
    }

    /// The least feasible T of at least `least`, and the members in the order found for it; where the time is over, the least that is not
    /// refuted, and what was found by then.
    fn least(&self, k: u64, least: u64, until: Instant) -> (u64, Vec<usize>) {
        if let Some(order) = self.feasible(k, least, until) {
            return (least, order);
        }
        let over = || Instant::now() >= until;
        let (mut low, mut high) = (least, least.max(1));
        let mut found = Vec::new();
        while high < u64::MAX / (2 * k) && !over() {
            high = high.saturating_add(high / 16 + 1);
            if let Some(order) = self.feasible(k, high, until) {
                found = order;
                break;
            }
            if !over() {
                low = high;
            }
        }
        while high - low > 1 && !over() {
            let middle = low.midpoint(high);
            match self.feasible(k, middle, until) {
                Some(order) => (high, found) = (middle, order),
                None if over() => {}
                None => low = middle,
            }
        }
        (if over() { low } else { high }, found)
    }

    /// Members in an order that reaches the full ideal, if one does and the time suffices.
    fn feasible(&self, k: u64, t: u64, until: Instant) -> Option<Vec<usize>> {
        #[derive(Clone, Copy)]
        struct State {
            at: u64,
            waste: u64,
            from: u32,
            member: u32,
        }
        // Where no actor takes any time the length of a stage does not matter.
        let t = t.max(1);
        let allowed = (k * t).checked_sub(self.total)?;
        let liquid = self.total - self.weight.iter().sum::<u64>();
        let n = self.ideals.len();
        let mut states: Vec<State> = vec![State { at: 0, waste: 0, from: u32::MAX, member: 0 }];
        let mut of: Vec<Vec<u32>> = vec![Vec::new(); n];
        of[0].push(0);
        for id in 0..n {
            if id % 256 == 255 && Instant::now() >= until {
                return None;
            }
            for at in 0..of[id].len() {
                let index = of[id][at];
                let state = states[index as usize];
                let poured = state.at - self.done[id] - state.waste;
                for &(m, to) in &self.ideals.next[id] {
                    let (w, target) = (self.weight[m as usize], to as usize);
                    if w > t {
                        return None;
                    }
                    let mut waste = state.waste;
                    let wait = self.required[target].saturating_sub(poured);
                    let mut time = state.at + wait;
                    let room = (t - time % t) % t;
                    let inside = if time.is_multiple_of(t) { t } else { room };
                    if w > inside {
                        waste += room.saturating_sub(liquid - poured - wait);
                        time += room;
                    }
                    time += w;
                    if waste > allowed {
                        continue;
                    }
                    // The list of an ideal: none of its states is beaten by another in both.
                    if of[target].iter().any(|s| {
                        let s = &states[*s as usize];
                        s.at <= time && s.waste <= waste
                    }) {
                        continue;
                    }
                    of[target].retain(|s| {
                        let s = &states[*s as usize];
                        s.at < time || s.waste < waste
                    });
                    of[target].push(states.len() as u32);
                    states.push(State { at: time, waste, from: index, member: m });
                }
            }
        }
        let mut at = *of[n - 1].first()?;
        let mut order = Vec::with_capacity(self.weight.len());
        while states[at as usize].from != u32::MAX {
            order.push(self.ideals.members[states[at as usize].member as usize]);
            at = states[at as usize].from;
        }
        order.reverse();
        Some(order)
    }

    /// All actors, the fringe before what waits for it, the rest of it last.
    fn whole_order(&self, instance: &Instance, order: &[usize], backbone: &[usize], reverse: bool) -> Vec<usize> {
        let mut done = vec![false; instance.n];
        let mut whole = Vec::with_capacity(instance.n);
        let roots: Vec<usize> = backbone.iter().chain(order).copied().collect();
        for root in roots {
            let mut stack = vec![root];
            while let Some(&a) = stack.last() {
                if done[a] {
                    stack.pop();
                    continue;
                }
                let list = if reverse { &instance.outgoing[a] } else { &instance.incoming[a] };
                let missing: Vec<usize> = list
                    .iter()
                    .map(|e| &instance.edges[*e])
                    .filter(|e| e.waits)
                    .map(|e| if reverse { e.to } else { e.from })
                    .filter(|b| !done[*b])
                    .collect();
                if missing.is_empty() {
                    done[a] = true;
                    whole.push(a);
                    stack.pop();
                } else {
                    stack.extend(missing);
                }
            }
        }
        whole
    }
}

/// Packs the actors into stages of at most `t`, in the order of `rank` as far as they fit: of the ready actors the first of the order that fits
/// goes first, and a stage is closed when none does. The stage of each actor, if k stages suffice. With `strict` the first
/// ready actor that does not fit closes the stage.
pub fn fill(instance: &Instance, rank: &[usize], t: u64, strict: bool) -> Option<Vec<usize>> {
    let weight = &instance.ticks[0];
    let mut place = vec![0usize; instance.n];
    rank.iter().enumerate().for_each(|(r, a)| place[*a] = r);
    let mut waiting: Vec<usize> =
        (0..instance.n).map(|a| instance.incoming[a].iter().filter(|e| instance.edges[**e].waits).count()).collect();
    let mut ready: std::collections::BTreeSet<usize> =
        (0..instance.n).filter(|a| waiting[*a] == 0).map(|a| place[a]).collect();
    let mut stage = vec![0; instance.n];
    let (mut at, mut load, mut left) = (0usize, 0u64, instance.n);
    while left > 0 {
        let fits = |r: &&usize| weight[rank[**r]] <= t - load;
        let next = if strict { ready.first().filter(fits) } else { ready.iter().find(fits) };
        match next.copied() {
            Some(r) => {
                ready.remove(&r);
                let a = rank[r];
                stage[a] = at;
                load += weight[a];
                left -= 1;
                for e in instance.outgoing[a].iter().map(|e| &instance.edges[*e]).filter(|e| e.waits) {
                    waiting[e.to] -= 1;
                    if waiting[e.to] == 0 {
                        ready.insert(place[e.to]);
                    }
                }
            }
            None => {
                at += 1;
                load = 0;
                if at == instance.k || ready.first().is_none_or(|r| weight[rank[*r]] > t) && strict {
                    return None;
                }
                if ready.iter().all(|r| weight[rank[*r]] > t) {
                    return None;
                }
            }
        }
    }
    Some(stage)
}
