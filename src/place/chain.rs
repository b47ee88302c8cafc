//! The best chain of stages over given ideals, for every objective and constraint.
//!
//! A chain of stages is a path of ideals; what a stage costs depends on the two ideals I, J around it alone: its load, what comes in, what goes
//! out (every edge that ends in J - I and starts outside is paid there, once). So
//!
//!   value(s + 1, J) = best over I of value(s, I) with cost(I, J)
//!
//! where costs are added (`cut`, `sum` at a limited load) or the largest counts (`bottleneck`, `per_core`). Over all ideals this is the optimum; over the prefixes of one order the
//! best cut of that order. `sum` = T + transfers is searched along its Pareto front: the fewest transfers for load <= T, then T below the largest load of that, until T alone is
//! not better. Transfers are priced at the least distance: where cores are unequally far, this bounds; the local price is left out of `sum`.

use super::ideals::Ideals;
use super::instance::Instance;
use super::placement::Objective;
use std::time::Instant;

/// What the search over ideals found.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Core of each actor, if there is a chain within the constraints.
    pub core_of: Option<Vec<usize>>,
    /// The least value of all chains over these ideals, with the prices named above; infinite where there is none.
    pub bound: f64,
    /// Whether it ended by itself.
    pub whole: bool,
}

/// Constraints of one run.
#[derive(Clone, Copy)]
struct Limit {
    /// Largest load.
    load: u64,
    /// Largest cost of one stage.
    stage: f64,
}

/// The best chain over `ideals` (of all actors), better than `least` known so far; at most `pairs` pairs of ideals a run.
pub fn best(instance: &Instance, ideals: &Ideals, known: f64, pairs: u64, until: Instant) -> Chain {
    let cap = instance.cap.unwrap_or(u64::MAX);
    match instance.request.objective {
        Objective::Bottleneck => {
            let load = if known.is_finite() { (known * instance.rate).round() as u64 } else { cap };
            run(instance, ideals, Limit { load, stage: f64::INFINITY }, pairs, until)
        }
        Objective::PerCore => {
            let load = if known.is_finite() { (known * instance.rate).round() as u64 } else { cap };
            run(instance, ideals, Limit { load, stage: known * (1.0 + 1e-12) }, pairs, until)
        }
        Objective::Cut => run(instance, ideals, Limit { load: cap, stage: f64::INFINITY }, pairs, until),
        Objective::Sum => {
            let mut load = cap;
            let least = instance.load_bound() as f64 / instance.rate;
            let mut best = Chain { core_of: None, bound: f64::INFINITY, whole: true };
            let mut least_cut = 0.0f64;
            loop {
                let found = run(instance, ideals, Limit { load, stage: f64::INFINITY }, pairs, until);
                let Some(core_of) = found.core_of else {
                    if !found.whole {
                        best.whole = false;
                        best.bound = best.bound.min(least + least_cut);
                    }
                    return best;
                };
                let mut busy = vec![0u64; instance.k];
                core_of.iter().enumerate().for_each(|(i, p)| busy[*p] += instance.on(i, *p));
                let largest = busy.into_iter().max().unwrap_or(0);
                let value = largest as f64 / instance.rate + found.bound;
                least_cut = found.bound;
                if value < best.bound {
                    best = Chain { core_of: Some(core_of), bound: value, whole: true };
                }
                // The next has at least as many transfers, and no load below the bound.
                if largest == 0 || least + found.bound >= best.bound.min(known) {
                    return best;
                }
                load = largest - 1;
            }
        }
    }
}

/// A stage while it grows from an ideal.
#[derive(Clone)]
struct Stage {
    to: u32,
    load: Vec<u64>,
    bytes: f64,
    /// Seconds and bytes that come in; seconds that stay inside; seconds of all edges that start in it.
    coming: (f64, f64),
    inside: f64,
    local: f64,
    starting: f64,
    pin: Option<usize>,
}

fn run(instance: &Instance, ideals: &Ideals, limit: Limit, pairs: u64, until: Instant) -> Chain {
    let (n, k) = (ideals.len(), instance.k);
    let objective = instance.request.objective;
    let wire = instance.least_wire();
    let local = instance.cores.local;
    let mut position = vec![0; instance.n];
    ideals.members.iter().enumerate().for_each(|(m, a)| position[*a] = m);
    // value[s * n + id]: the best of chains of s stages (some perhaps empty) that end in `id`.
    let mut value = vec![f64::INFINITY; (k + 1) * n];
    let mut from = vec![u32::MAX; (k + 1) * n];
    value[0] = 0.0;
    let mut seen = vec![u32::MAX; n];
    let mut count = 0u64;
    let mut whole = true;
    let none = || Chain { core_of: None, bound: f64::INFINITY, whole: true };
    if n == 0 {
        return none();
    }
    'ideals: for start in 0..n {
        // An empty stage costs nothing.
        for s in 0..k {
            if value[s * n + start] < value[(s + 1) * n + start] {
                value[(s + 1) * n + start] = value[s * n + start];
                from[(s + 1) * n + start] = start as u32;
            }
        }
        let Some(first) = (0..k).find(|s| value[s * n + start].is_finite()) else { continue };
        let empty = Stage {
            to: start as u32,
            load: vec![0; instance.ticks.len()],
            bytes: 0.0,
            coming: (0.0, 0.0),
            inside: 0.0,
            local: 0.0,
            starting: 0.0,
            pin: None,
        };
        let mut queue = std::collections::VecDeque::from([empty]);
        while let Some(stage) = queue.pop_front() {
            for &(m, to) in &ideals.next[stage.to as usize] {
                if seen[to as usize] == start as u32 {
                    continue;
                }
                let a = ideals.members[m as usize];
                let mut grown = stage.clone();
                grown.to = to;
                grown.load.iter_mut().zip(&instance.ticks).for_each(|(l, t)| *l += t[a]);
                if grown.load.iter().all(|l| *l > limit.load) {
                    continue;
                }
                seen[to as usize] = start as u32;
                count += 1;
                if count > pairs || count.is_multiple_of(4096) && Instant::now() >= until {
                    whole = false;
                    break 'ideals;
                }
                grown.bytes += instance.bytes[a];
                match (grown.pin, instance.request.pins[a]) {
                    (Some(p), Some(q)) if p != q => continue,
                    (None, Some(q)) => grown.pin = Some(q),
                    _ => {}
                }
                let in_stage = |b: usize| ideals.has(stage.to as usize, position[b]) && !ideals.has(start, position[b]);
                for e in instance.incoming[a].iter().map(|e| &instance.edges[*e]) {
                    let seconds = e.seconds(1.0, wire);
                    if in_stage(e.from) {
                        grown.inside += seconds;
                        grown.local += e.seconds(1.0, local);
                    } else {
                        grown.coming = (grown.coming.0 + seconds, grown.coming.1 + e.bytes);
                    }
                }
                for e in instance.outgoing[a].iter().map(|e| &instance.edges[*e]) {
                    let seconds = e.seconds(1.0, wire);
                    grown.starting += seconds;
                    if in_stage(e.to) {
                        grown.inside += seconds;
                        grown.local += e.seconds(1.0, local);
                        grown.coming = (grown.coming.0 - seconds, grown.coming.1 - e.bytes);
                    }
                }
                for s in first..k {
                    let before = value[s * n + start];
                    let load = grown.load[instance.class[s]];
                    if !before.is_finite()
                        || load > limit.load
                        || grown.pin.is_some_and(|p| p != s)
                        || grown.bytes > instance.cores.cores[s].memory
                    {
                        continue;
                    }
                    let seconds = load as f64 / instance.rate;
                    let after = match objective {
                        Objective::Bottleneck => before.max(seconds),
                        Objective::PerCore => {
                            before.max(seconds + grown.local).max(grown.coming.0 + grown.starting - grown.inside)
                        }
                        Objective::Cut => before + grown.coming.1,
                        Objective::Sum => before + grown.coming.0,
                    };
                    if after > limit.stage && objective == Objective::PerCore {
                        continue;
                    }
                    let slot = (s + 1) * n + to as usize;
                    if after < value[slot] {
                        value[slot] = after;
                        from[slot] = start as u32;
                    }
                }
                queue.push_back(grown);
            }
        }
    }
    let bound = value[k * n + n - 1];
    if !whole || !bound.is_finite() {
        return Chain { whole, ..none() };
    }
    let mut core_of = vec![0; instance.n];
    let mut at = n - 1;
    for s in (0..k).rev() {
        let back = from[(s + 1) * n + at] as usize;
        for (m, a) in ideals.members.iter().enumerate() {
            if ideals.has(at, m) && !ideals.has(back, m) {
                core_of[*a] = s;
            }
        }
        at = back;
    }
    Chain { core_of: Some(core_of), bound, whole }
}
