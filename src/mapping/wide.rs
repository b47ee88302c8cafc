//! Plans and bounds for graphs of more kernels, or more ideals, than the exact shortest path takes.
//!
//! 1. The passes of a training graph are solved apart (their partitions share nothing but tensors that cross anyway).
//! 2. Each of several topological orders is cut into the best partitions by dynamic programming: O(kernels x kernels that
//!    fit a chip), each kernel that joins priced by what it changes.
//! 3. The best of these plans is improved: the kernels of some neighbouring partitions at a time are partitioned anew by
//!    the exact engine. Equal neighbourhoods (repeated layers) are the same sub-problem and solved once (`cache.rs`).
//! 4. The bound is the largest of the closed form, the covering of `cover.rs` where the SRAM holds few kernels at a time, and the
//!    relaxation of `relaxed.rs`.
//!
//! Work is limited by counts, so that the answer is the same on any machine; a deadline, where one is given, ends it
//! earlier with the best plan found.

use super::best_first::{self, Effort};
use super::cache;
use super::cover;
use super::exact;
use super::ideals::Ideals;
use super::instance::{Instance, TensorCost, UseCost};
use super::pricing::Pricer;
use super::relaxed::{self, Prices};
use crate::deadline::Deadline;

/// A plan with its bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Wide {
    /// Partition of each kernel.
    pub assignment: Vec<usize>,
    /// Sum of the partitions' values.
    pub objective: f64,
    /// No plan has a smaller sum.
    pub bound: f64,
    /// How the bound was found: kernels whose place was relaxed; none where the path over all ideals, or nothing but the closed
    /// form, bounds it.
    pub relaxed: usize,
}

/// What is carried from one problem to a similar one (another tile count).
#[derive(Debug, Clone, Default)]
pub struct Memory {
    passes: [OfPass; 2],
    /// Of [`ALL_THIRD`], what was taken.
    joins: u64,
}

/// The same, of one pass.
#[derive(Debug, Clone, Copy, Default)]
struct OfPass {
    /// Prices of the relaxation.
    prices: Option<Prices>,
    /// Whether covering it brought nothing: too many pieces, or a bound that another beat.
    uncovered: bool,
}

/// Most kernels that one row of the dynamic programme looks at, in all rows together.
const WORK: usize = 6_000_000;
/// Kernels of a neighbourhood that is partitioned anew, and the ideals of it that are looked at.
const NEIGHBOURS: usize = 32;
const NEIGHBOUR_IDEALS: usize = 1_500;
/// Relative gap at which a bound is left as it is.
const CLOSE: f64 = 1e-7;
/// How much worse than the cutoff a plan may be before it is improved.
const HOPE: f64 = 1.03;
/// What the search over ideals as they are reached may take before prices are known, and after.
const FIRST: Effort = Effort { ideals: 20_000, joins: 1_000_000 };
const SECOND: Effort = Effort { ideals: 100_000, joins: 2_000_000 };
/// The same of what neither the search nor the relaxations decide: eighteen kernels beside each other come to their end with it. What all problems of one
/// search may take together.
const THIRD: Effort = Effort { ideals: 300_000, joins: 20_000_000 };
const ALL_THIRD: u64 = 60_000_000;

/// The plan and the bound. `None` where no plan was found. A plan that takes more than `cutoff` is not improved much. Pins and
/// limits on the number of partitions are not served.
pub fn solve(instance: &Instance, cutoff: f64, memory: &mut Memory, deadline: Deadline) -> Option<Wide> {
    if instance.pins.iter().any(Option::is_some) || instance.max_partitions.is_some() {
        return None;
    }
    let closed = instance.least_value();
    let parts: Vec<(Instance, Vec<usize>)> = if instance.separate_phases {
        [false, true].into_iter().map(|backward| instance.phase(backward)).collect()
    } else {
        vec![(instance.clone(), (0..instance.kernels.len()).collect())]
    };
    let floors: Vec<f64> = parts.iter().map(|(part, _)| part.least_value()).collect();
    let mut assignment = vec![0; instance.kernels.len()];
    let (mut bound, mut relaxed, mut first) = (0.0, 0, 0);
    for (i, (part, kernels)) in parts.iter().enumerate() {
        let others: f64 = floors.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, f)| f).sum();
        let of_pass = &mut memory.passes[i.min(1)];
        let solved = pass(part, floors[i], cutoff - others, of_pass, &mut memory.joins, deadline)?;
        kernels.iter().zip(&solved.assignment).for_each(|(k, p)| assignment[*k] = first + p);
        first += solved.assignment.iter().max().map_or(0, |p| p + 1);
        bound += solved.bound;
        relaxed += solved.relaxed;
    }
    let (objective, _) = instance.evaluate(&assignment)?;
    Some(Wide { assignment, objective, bound: bound.max(closed).min(objective), relaxed })
}

/// One pass.
fn pass(
    part: &Instance,
    floor: f64,
    cutoff: f64,
    memory: &mut OfPass,
    joins: &mut u64,
    deadline: Deadline,
) -> Option<Wide> {
    let late = || deadline.is_over();
    let mut best: Option<(f64, Vec<usize>)> = None;
    let consider = |plan: Vec<usize>, best: &mut Option<(f64, Vec<usize>)>| {
        if let Some((objective, _)) = part.evaluate(&plan)
            && best.as_ref().is_none_or(|(b, _)| objective < *b * (1.0 - 1e-12))
        {
            *best = Some((objective, plan));
        }
    };
    for order in orders(part) {
        let known = best.as_ref().map_or(f64::INFINITY, |b| b.0);
        if known <= floor * (1.0 + 1e-9) {
            break;
        }
        if let Some(plan) = cuts(part, &order, known, deadline) {
            consider(plan, &mut best);
        }
        if late() && best.is_some() {
            break;
        }
    }
    let least = |best: &Option<(f64, Vec<usize>)>| best.as_ref().map_or(f64::INFINITY, |b| b.0);
    let is_open = |best: &Option<(f64, Vec<usize>)>| least(best) > floor * (1.0 + 1e-9) && !late();
    let mut bound = floor;
    // Plans and the bound of a search over ideals; tells whether nothing is left, and how many kernels joined.
    let reach = |prices: Option<&[f64]>, effort: Effort, best: &mut Option<(f64, Vec<usize>)>, bound: &mut f64| {
        let Some(found) = best_first::search(part, least(best).min(cutoff.max(floor)), prices, effort, deadline) else {
            return (false, 0);
        };
        *bound = bound.max(found.bound);
        if let Some((_, plan)) = found.plan {
            consider(plan, best);
        }
        (found.complete, found.joins)
    };
    let done = |best: Option<(f64, Vec<usize>)>, bound: f64, relaxed: usize| {
        let (objective, assignment) = best?;
        Some(Wide { assignment, objective, bound: bound.min(objective), relaxed })
    };
    if is_open(&best) && reach(None, FIRST, &mut best, &mut bound).0 {
        return done(best, bound, 0);
    }
    if let Some((objective, plan)) = &mut best
        && *objective > floor * (1.0 + 1e-9)
        && *objective <= cutoff * HOPE
    {
        improve(part, objective, plan, deadline);
    }
    let (mut pooled, mut prices) = (0, None);
    if is_open(&best) && !memory.uncovered {
        prices = cover::prices(part, least(&best).min(cutoff.max(floor)), deadline);
        let covered = prices.as_ref().map(|prices| prices.iter().sum::<f64>());
        memory.uncovered = covered.is_none_or(|c| c <= bound) && !late();
        if let Some(covered) = covered.filter(|c| *c > bound) {
            bound = covered;
            pooled = part.kernels.len();
        }
        if is_open(&best) && reach(prices.as_deref(), SECOND, &mut best, &mut bound).0 {
            return done(best, bound, 0);
        }
    }
    let wanted = least(&best).min(cutoff.max(floor));
    if is_open(&best)
        && bound < wanted * (1.0 - CLOSE)
        && let Some(relaxed) = relaxed::bound(part, wanted, &mut memory.prices, deadline)
    {
        // Sums of many terms: rounding must not lift the bound above a plan.
        if relaxed.bound * (1.0 - 1e-11) > bound {
            memory.uncovered = true;
            bound = relaxed.bound * (1.0 - 1e-11);
            pooled = relaxed.pooled;
        }
        if let Some(plan) = relaxed.plan {
            consider(plan, &mut best);
        }
    }
    let third = Effort { joins: THIRD.joins.min(ALL_THIRD - *joins), ..THIRD };
    if is_open(&best) && bound < least(&best).min(cutoff.max(floor)) * (1.0 - CLOSE) && third.joins > SECOND.joins {
        let (complete, joined) = reach(prices.as_deref(), third, &mut best, &mut bound);
        *joins += joined.min(third.joins);
        if complete {
            return done(best, bound, 0);
        }
    }
    done(best, bound, pooled)
}

/// Topological orders worth cutting: the written one; the one that runs next what was freed last (chains stay together); and the
/// one in which kernels that nothing waits for run as late as they can within reach.
fn orders(part: &Instance) -> Vec<Vec<usize>> {
    let n = part.kernels.len();
    let mut after = vec![Vec::new(); n];
    let mut missing = vec![0usize; n];
    for tensor in &part.tensors {
        let Some(p) = tensor.producer else { continue };
        for u in &tensor.uses {
            after[p].push(u.kernel);
            missing[u.kernel] += 1;
        }
    }
    let leaf: Vec<bool> = after.iter().map(Vec::is_empty).collect();
    let written: Vec<usize> = (0..n).collect();
    let list = |leaves_first: bool| {
        let mut missing = missing.clone();
        let mut chain: Vec<usize> = (0..n).rev().filter(|k| missing[*k] == 0).collect();
        let mut leaves: Vec<usize> = Vec::new();
        let mut out = Vec::with_capacity(n);
        while out.len() < n {
            let next = if leaves_first { leaves.pop().or_else(|| chain.pop()) } else { chain.pop() };
            let Some(k) = next.or_else(|| leaves.pop()) else { break };
            out.push(k);
            let mut freed = Vec::new();
            for &reader in &after[k] {
                missing[reader] -= 1;
                if missing[reader] == 0 {
                    freed.push(reader);
                }
            }
            freed.sort_unstable_by(|a, b| b.cmp(a));
            for reader in freed {
                if leaf[reader] { leaves.push(reader) } else { chain.push(reader) }
            }
        }
        out
    };
    let mut out = vec![written, list(true)];
    out.push(delayed(&out[1], &leaf));
    out.retain(|order| order.len() == n);
    out.dedup();
    out
}

/// An order with each leaf some places later, where leaves gather.
fn delayed(order: &[usize], leaf: &[bool]) -> Vec<usize> {
    const PLACES: usize = 8;
    let mut out = Vec::with_capacity(order.len());
    let mut waiting = std::collections::VecDeque::new();
    for &k in order {
        if leaf[k] {
            waiting.push_back((out.len() + PLACES, k));
        } else {
            out.push(k);
        }
        while let Some((_, k)) = waiting.front().copied().filter(|(due, _)| *due <= out.len()) {
            out.push(k);
            waiting.pop_front();
        }
    }
    out.extend(waiting.into_iter().map(|(_, k)| k));
    out
}

/// The best cuts of an order into partitions that are not worse than `known`.
fn cuts(part: &Instance, order: &[usize], known: f64, deadline: Deadline) -> Option<Vec<usize>> {
    let n = order.len();
    let reach = (WORK / n.max(1)).max(128);
    let mut best = vec![f64::INFINITY; n + 1];
    let mut from = vec![0; n + 1];
    best[0] = 0.0;
    let mut pricer = Pricer::new(part);
    pricer.start(|_| false);
    let limit = known * (1.0 + 1e-9);
    let (mut late, mut next) = (false, 0);
    for i in 0..n {
        if i > 0 {
            pricer.advance(order[i - 1]);
        }
        late = late || deadline.is_over();
        if late && known.is_finite() {
            return None;
        }
        // A first plan is found whatever the deadline says: from then on the longest partition that fits is taken.
        if best[i].is_infinite() || (late && i < next) {
            continue;
        }
        next = i + 1;
        for j in i + 1..=n {
            pricer.add(order[j - 1]);
            if pricer.hopeless() || best[i] + pricer.least_value() > limit {
                break;
            }
            // Far ahead only the longest partition is of interest.
            let cost = pricer.cost();
            if part.fits(&cost) {
                let through = best[i] + part.value(&cost);
                if through < best[j] {
                    best[j] = through;
                    from[j] = i;
                    next = j;
                }
            }
            if j - i >= reach && i > 0 {
                break;
            }
        }
    }
    if !best[n].is_finite() {
        return None;
    }
    let mut starts = vec![n];
    while let Some(last) = starts.last().copied().filter(|c| *c > 0) {
        starts.push(from[last]);
    }
    starts.reverse();
    let mut plan = vec![0; n];
    for (p, pair) in starts.windows(2).enumerate() {
        order[pair[0]..pair[1]].iter().for_each(|k| plan[*k] = p);
    }
    Some(plan)
}

/// Partitions neighbouring partitions anew until that gains nothing, at most some passes.
fn improve(part: &Instance, objective: &mut f64, plan: &mut Vec<usize>, deadline: Deadline) {
    const PASSES: usize = 3;
    let n = plan.len();
    for _ in 0..PASSES {
        let before = *objective;
        let mut at = 0;
        loop {
            let count = plan.iter().max().map_or(0, |p| p + 1);
            if at >= count || deadline.is_over() {
                break;
            }
            let mut by_partition = vec![Vec::new(); count];
            (0..n).for_each(|k| by_partition[plan[k]].push(k));
            let mut last = at;
            let mut members = by_partition[at].clone();
            while last + 1 < count && members.len() + by_partition[last + 1].len() <= NEIGHBOURS {
                last += 1;
                members.extend(&by_partition[last]);
            }
            let step = ((last - at) / 2).max(1);
            if last > at && members.len() <= 128 {
                members.sort_unstable();
                if let Some(better) = anew(part, plan, &members, at, last, deadline) {
                    let total = part.evaluate(&better).map(|(objective, _)| objective);
                    if let Some(total) = total.filter(|t| *t < *objective * (1.0 - 1e-12)) {
                        *objective = total;
                        *plan = better;
                    }
                }
            }
            at += step;
        }
        if *objective > before * (1.0 - 1e-5) {
            break;
        }
    }
}

/// The plan with the kernels of partitions `at` to `last` partitioned anew, if that is another one.
fn anew(
    part: &Instance,
    plan: &[usize],
    members: &[usize],
    at: usize,
    last: usize,
    deadline: Deadline,
) -> Option<Vec<usize>> {
    let sub = neighbourhood(part, members);
    let own: Vec<usize> = members.iter().map(|k| plan[*k] - at).collect();
    let (now, _) = sub.evaluate(&own)?;
    let ideals = Ideals::of(&sub, NEIGHBOUR_IDEALS)?;
    let path = cache::fusion(&sub, now, || exact::solve_until(&sub, &ideals, now, deadline))?;
    if path.objective >= now * (1.0 - 1e-9) {
        return None;
    }
    let count = path.assignment.iter().max().map_or(0, |p| p + 1);
    let mut out = plan.to_vec();
    for (k, p) in out.iter_mut().enumerate() {
        match members.binary_search(&k) {
            Ok(i) => *p = at + path.assignment[i],
            Err(_) if *p > last => *p = *p - (last - at + 1) + count,
            Err(_) => {}
        }
    }
    Some(out)
}

/// The problem of some kernels between others that have run and others that are still to come.
fn neighbourhood(part: &Instance, members: &[usize]) -> Instance {
    let index = |k: usize| members.binary_search(&k).ok();
    let tensors = part
        .tensors
        .iter()
        .filter_map(|tensor| {
            let producer = tensor.producer.and_then(index);
            let uses: Vec<UseCost> = tensor
                .uses
                .iter()
                .filter_map(|u| index(u.kernel).map(|kernel| UseCost { kernel, ..u.clone() }))
                .collect();
            if producer.is_none() && uses.is_empty() {
                return None;
            }
            let leaves = uses.len() < tensor.uses.len();
            let output = producer.is_some() && (tensor.output || leaves);
            Some(TensorCost { producer, output, uses, ..tensor.clone() })
        })
        .collect();
    let kernels: Vec<_> = members.iter().map(|k| part.kernels[*k].clone()).collect();
    let pins = vec![None; kernels.len()];
    Instance { kernels, tensors, pins, separate_phases: false, ..part.clone() }
}
