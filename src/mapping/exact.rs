//! The fusion problem as a shortest path over the ideals of the graph (design section 6.5).
//!
//! An ideal is a set of kernels that contains every predecessor of its members: what can have run at some moment. A
//! sequence of partitions is a chain of ideals from the empty set to all kernels, and the cost of a partition depends
//! on the two ideals around it alone, so the shortest path is the optimum, for any number of partitions and any cost
//! of one partition. With more ideals than the limit (wide graphs) only a part of them is used ([`super::ideals`]), with more
//! than 128 kernels only those of one topological order: then the answer is a plan without a proof.
//!
//! From each ideal a depth-first walk grows the partition that starts there kernel by kernel, in an order in which every
//! larger ideal is met once, so that a step costs what one kernel changes (`pricing.rs`) and a partition that
//! does not fit ends its branch. The partition of all that is left is looked at first: any other is followed by one that is launched too, so that what both launch,
//! what is left costs at least, and what this one's tiles take to fill must be within what is known. An ideal from which no plan can beat one already known is passed over: the known plan is
//! the best one of a single order, or the best of the whole search so far; what is left to run costs at least
//! `remaining.rs`.

use super::ideals::Ideals;
use super::instance::Instance;
use super::pricing::Pricer;
use super::remaining::Remaining;
use crate::deadline::{Deadline, Watch};
use std::collections::HashSet;

/// The answer of the shortest path.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Partition of each kernel.
    pub assignment: Vec<usize>,
    /// Sum of the partitions' values: their times, or what the goal counts.
    pub objective: f64,
    /// Whether every ideal was considered, so that the objective is the optimum.
    pub proven: bool,
    /// Partitions priced.
    pub priced: u64,
}

/// Relative difference under which two times are one; far below every tolerance of the program.
const TIE: f64 = 1e-12;

/// A bound prunes only what is worse by more than this: rounding must not cut off a plan, nor one that ties.
const CLEAR: f64 = 1e-9;

/// Solves an instance; `None` when no assignment is feasible (or none was found, where `proven` could not be said).
pub fn solve(instance: &Instance, ideals: &Ideals) -> Option<Path> {
    solve_below(instance, ideals, f64::INFINITY)
}

/// Whether a time is at most `cutoff`, as far as rounding lets it be said.
pub(super) fn within(time: f64, cutoff: f64) -> bool {
    time <= cutoff * (1.0 + CLEAR)
}

/// [`solve`] for plans that take at most `cutoff` seconds: `None` also where all plans take longer.
pub fn solve_below(instance: &Instance, ideals: &Ideals, cutoff: f64) -> Option<Path> {
    solve_until(instance, ideals, cutoff, Deadline::never()).path
}

/// The answer of a search that a deadline may have stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Searched {
    /// The best plan, or, of a search that was stopped, the best of one order. `None` proves something only where it was not stopped.
    pub path: Option<Path>,
    /// Whether the deadline stopped it.
    pub stopped: bool,
}

/// [`solve_below`], at most until a deadline.
pub fn solve_until(instance: &Instance, ideals: &Ideals, cutoff: f64, deadline: Deadline) -> Searched {
    let pinned = instance.pins.iter().any(Option::is_some);
    if pinned || instance.max_partitions.is_some() {
        return Counted::new(instance, ideals, deadline).run();
    }
    let mut known = cutoff * (1.0 + CLEAR);
    let mut first = None;
    if ideals.sets.len() > instance.kernels.len() + 1 {
        // The best plan of one order is seldom far from the best of all, and soon found: a search that is stopped has it.
        first = Free::new(instance, &ideals.one_order(), known, Deadline::to_the_end()).run().path;
        known = first.as_ref().map_or(known, |path| known.min(path.objective * (1.0 + CLEAR)));
    }
    let mut found = Free::new(instance, ideals, known, deadline).run();
    match (&mut found.path, first) {
        (Some(path), Some(first)) => path.priced += first.priced,
        (path @ None, Some(first)) if found.stopped => *path = Some(Path { proven: false, ..first }),
        _ => {}
    }
    found
}

/// What a partition may count at most, that a plan may still be at most as asked.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// In all.
    value: f64,
    /// Of this, for filling and draining: the least of what is left to run ([`super::remaining`]) has none of it.
    filling: f64,
}

impl Most {
    const ANY: Self = Self { value: f64::INFINITY, filling: f64::INFINITY };
}

/// The walk from one ideal over all partitions that may start there.
struct Walk<'a> {
    instance: &'a Instance,
    ideals: &'a Ideals,
    pricer: Pricer<'a>,
    priced: u64,
    watch: Watch,
}

impl<'a> Walk<'a> {
    fn new(instance: &'a Instance, ideals: &'a Ideals, deadline: Deadline) -> Self {
        Self { instance, ideals, pricer: Pricer::new(instance), priced: 0, watch: deadline.watch() }
    }

    /// Calls `visit` with each ideal that a partition from `i` may end at, the kernels of the partition and its time.
    /// Branches all of whose partitions take longer than `most` allows are left out, and all once the deadline has passed.
    fn from(&mut self, i: usize, most: Most, visit: &mut dyn FnMut(usize, &[usize], f64)) {
        let set = self.ideals.sets[i];
        self.pricer.start(|k| set & (1 << k) != 0);
        let mut inside = Vec::with_capacity(self.instance.kernels.len());
        self.grow(i, 0, most, &mut inside, visit);
    }

    /// The value of the partition of all that is left after ideal `i`; none where it cannot be.
    fn rest(&mut self, i: usize) -> Option<f64> {
        let set = self.ideals.sets[i];
        self.pricer.start(|k| set & (1 << k) != 0);
        for k in self.ideals.order.iter().filter(|k| set & (1 << **k) == 0) {
            self.pricer.add(*k);
            if self.pricer.hopeless() {
                return None;
            }
        }
        self.priced += 1;
        let cost = self.pricer.cost();
        self.instance.fits(&cost).then(|| self.instance.value(&cost))
    }

    /// Adds to the partition, which ends at ideal `at`, each kernel that may join and stands at `rank` or later in the
    /// topological order: so each set of kernels is grown in one way.
    fn grow(
        &mut self,
        at: usize,
        rank: usize,
        most: Most,
        inside: &mut Vec<usize>,
        visit: &mut dyn FnMut(usize, &[usize], f64),
    ) {
        let instance = self.instance;
        if instance.kernel_by_kernel && !inside.is_empty() {
            return;
        }
        let ideals = self.ideals;
        for step in ideals.steps(at).iter().filter(|s| s.rank >= rank) {
            if self.watch.is_over() {
                return;
            }
            let k = step.kernel;
            let mixes = |first: &usize| instance.kernels[*first].backward != instance.kernels[k].backward;
            if instance.separate_phases && inside.first().is_some_and(mixes) {
                continue;
            }
            self.pricer.add(k);
            let pricer = &self.pricer;
            let may = pricer.least_value() <= most.value && pricer.least_filling() <= most.filling;
            if !self.pricer.hopeless() && may {
                self.priced += 1;
                inside.push(k);
                let cost = self.pricer.cost();
                if instance.fits(&cost) {
                    visit(step.to, inside, instance.value(&cost));
                }
                self.grow(step.to, step.rank + 1, most, inside, visit);
                inside.pop();
            }
            self.pricer.take_back();
        }
    }
}

/// Any number of partitions.
struct Free<'a> {
    walk: Walk<'a>,
    /// No plan worse than this is asked for.
    known: f64,
    /// What is left to run after each ideal takes at least so long.
    remaining: Vec<f64>,
}

impl<'a> Free<'a> {
    fn new(instance: &'a Instance, ideals: &'a Ideals, known: f64, deadline: Deadline) -> Self {
        let remaining = Remaining::new(instance).after_each(ideals);
        Self { walk: Walk::new(instance, ideals, deadline), known, remaining }
    }

    fn run(mut self) -> Searched {
        let path = self.search();
        let stopped = self.walk.watch.was_over();
        Searched { path: path.filter(|_| !stopped), stopped }
    }

    fn search(&mut self) -> Option<Path> {
        let ideals = self.walk.ideals;
        let n = ideals.sets.len();
        let mut best = vec![f64::INFINITY; n];
        let mut from = vec![usize::MAX; n];
        // Partitions used on the way: of equally fast plans the one with fewest partitions is taken.
        let mut count = vec![0usize; n];
        best[0] = 0.0;
        let instance = self.walk.instance;
        let one_pass = !instance.separate_phases && !instance.kernel_by_kernel;
        let launch = if one_pass { instance.goal.second * instance.partition_overhead_s } else { 0.0 };
        for i in 0..n - 1 {
            if best[i].is_infinite() || best[i] + self.remaining[i] > self.known {
                continue;
            }
            let (start, partitions) = (best[i], count[i] + 1);
            let mut reach = |j: usize, time: f64| {
                let through = start + time;
                let tie = through * TIE;
                if through < best[j] - tie || (through <= best[j] + tie && partitions < count[j]) {
                    best[j] = through;
                    from[j] = i;
                    count[j] = partitions;
                }
            };
            if one_pass && let Some(time) = self.walk.rest(i) {
                reach(n - 1, time);
                self.known = self.known.min((start + time) * (1.0 + CLEAR));
            }
            // Any other partition is followed by one that is launched too.
            let value = self.known - start - launch;
            let most = Most { value, filling: value - self.remaining[i] };
            if most.filling >= 0.0 {
                self.walk.from(i, most, &mut |j, _, time| reach(j, time));
            }
            if self.walk.watch.was_over() {
                return None;
            }
        }
        let objective = best[n - 1];
        if objective.is_infinite() || objective > self.known {
            return None;
        }
        let mut chain = vec![n - 1];
        let mut at = n - 1;
        while at != 0 {
            at = from[at];
            chain.push(at);
        }
        let assignment = assignment(self.walk.instance, ideals, chain);
        Some(Path { assignment, objective, proven: ideals.complete, priced: self.walk.priced })
    }
}

/// Partitions that are counted: pins name positions, or their number is limited.
struct Counted<'a> {
    walk: Walk<'a>,
    most: usize,
}

impl<'a> Counted<'a> {
    fn new(instance: &'a Instance, ideals: &'a Ideals, deadline: Deadline) -> Self {
        let kernels = instance.kernels.len();
        let most = instance.max_partitions.unwrap_or(kernels).min(kernels);
        Self { walk: Walk::new(instance, ideals, deadline), most }
    }

    fn run(mut self) -> Searched {
        let path = self.search();
        let stopped = self.walk.watch.was_over();
        Searched { path: path.filter(|_| !stopped), stopped }
    }

    fn search(&mut self) -> Option<Path> {
        let (instance, ideals, most) = (self.walk.instance, self.walk.ideals, self.most);
        let n = ideals.sets.len();
        // best[p][i]: cheapest way to have run ideal i in p partitions.
        let mut best = vec![vec![f64::INFINITY; n]; most + 1];
        let mut from = vec![vec![usize::MAX; n]; most + 1];
        best[0][0] = 0.0;
        for i in 0..n - 1 {
            if best.iter().all(|layer| layer[i].is_infinite()) {
                continue;
            }
            self.walk.from(i, Most::ANY, &mut |j, inside, time| {
                for p in 0..most {
                    let through = best[p][i] + time;
                    if through < best[p + 1][j] && inside.iter().all(|k| instance.pins[*k].is_none_or(|pin| pin == p)) {
                        best[p + 1][j] = through;
                        from[p + 1][j] = i;
                    }
                }
            });
            if self.walk.watch.was_over() {
                return None;
            }
        }
        let last = n - 1;
        let least = best.iter().map(|layer| layer[last]).fold(f64::INFINITY, f64::min);
        let layer = (0..=most).find(|p| best[*p][last] <= least * (1.0 + TIE))?;
        let objective = best[layer][last];
        if !objective.is_finite() {
            return None;
        }
        let mut chain = vec![last];
        let (mut p, mut at) = (layer, last);
        while at != 0 {
            at = from[p][at];
            p = p.saturating_sub(1);
            chain.push(at);
        }
        let assignment = assignment(instance, ideals, chain);
        Some(Path { assignment, objective, proven: ideals.complete, priced: self.walk.priced })
    }
}

/// The partition of each kernel, from a chain of ideals written from its end.
fn assignment(instance: &Instance, ideals: &Ideals, mut chain: Vec<usize>) -> Vec<usize> {
    chain.reverse();
    let mut out = vec![0; instance.kernels.len()];
    for (index, pair) in chain.windows(2).enumerate() {
        let mut now = ideals.sets[pair[1]] & !ideals.sets[pair[0]];
        while now != 0 {
            out[now.trailing_zeros() as usize] = index;
            now &= now - 1;
        }
    }
    out
}

/// The best partitions that cut one topological order (forward kernels first): for graphs too large to list the ideals of a
/// plan, with a proof where the graph has no other order (the panels of an LU factorisation). Pins are not served, and a bound on the number of partitions only where the best plan
/// happens to keep it. `None` also where the deadline passes.
pub fn by_order(instance: &Instance, deadline: Deadline) -> Option<Path> {
    if instance.pins.iter().any(Option::is_some) {
        return None;
    }
    let n = instance.kernels.len();
    let mut order: Vec<usize> = (0..n).collect();
    if instance.separate_phases {
        order.sort_by_key(|k| (instance.kernels[*k].backward, *k));
    }
    let mut position = vec![0; n];
    for (i, k) in order.iter().enumerate() {
        position[*k] = i;
    }
    let mut best = vec![f64::INFINITY; n + 1];
    let mut from = vec![0; n + 1];
    best[0] = 0.0;
    let mut priced = 0;
    let mut pricer = Pricer::new(instance);
    let mut watch = deadline.watch();
    for i in 0..n {
        if best[i].is_infinite() {
            continue;
        }
        pricer.start(|k| position[k] < i);
        for j in i + 1..=n {
            let mixed = instance.separate_phases
                && instance.kernels[order[i]].backward != instance.kernels[order[j - 1]].backward;
            if mixed || (instance.kernel_by_kernel && j > i + 1) {
                break;
            }
            if watch.is_over() {
                return None;
            }
            pricer.add(order[j - 1]);
            if pricer.hopeless() {
                break;
            }
            priced += 1;
            let cost = pricer.cost();
            if instance.fits(&cost) {
                let through = best[i] + instance.value(&cost);
                if through < best[j] {
                    best[j] = through;
                    from[j] = i;
                }
            }
        }
    }
    if !best[n].is_finite() {
        return None;
    }
    let mut cuts = vec![n];
    while let Some(last) = cuts.last().copied().filter(|c| *c > 0) {
        cuts.push(from[last]);
    }
    cuts.reverse();
    if instance.max_partitions.is_some_and(|most| cuts.len() > most + 1) {
        return None;
    }
    let mut assignment = vec![0; n];
    for (p, pair) in cuts.windows(2).enumerate() {
        for &k in &order[pair[0]..pair[1]] {
            assignment[k] = p;
        }
    }
    Some(Path { assignment, objective: best[n], proven: only_order(instance, &order), priced })
}

/// Whether no other order is possible: each kernel reads what the one before it writes.
fn only_order(instance: &Instance, order: &[usize]) -> bool {
    let edges: HashSet<(usize, usize)> = instance
        .tensors
        .iter()
        .filter_map(|t| t.producer.map(|from| t.uses.iter().map(move |u| (from, u.kernel))))
        .flatten()
        .collect();
    order.windows(2).all(|pair| edges.contains(&(pair[0], pair[1])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::amounts::{Choice, build};
    use crate::mapping::degrees::assignments;
    use crate::mapping::ideals::MAX_IDEALS;
    use crate::mapping::sharding;
    use crate::spec::Node;
    use crate::system::System;
    use crate::workload::Workload;
    use crate::workload::dfmodel_layer::{Pass, tests::gpt3};

    fn instance(workload: &Workload) -> Instance {
        let part = "source: 'assumed: test'";
        let text = format!(
            "{{name: s, source: test, chip: {{name: c, {part}, style: dataflow, cores: 640, lanes: 32, stages: 6, \
             frequency: 1.25 GHz, sram: 640 MiB, efficiency: 0.9, price: $1, power: 1 W}}, memory: {{name: m, {part}, \
             bandwidth: 100 GB/s, price: $1/(GB/s), power: 1 W/(GB/s)}}, network: {{topology: single-chip}}}}"
        );
        let system = System::build(&Node::parse("test", &text).unwrap()).unwrap();
        let degrees = assignments(&system, false).remove(0);
        let problem = sharding::problem(workload, &system, &degrees, &vec![None; workload.kernels.len()]).unwrap();
        let solved = sharding::solve_problem(&problem, &Default::default()).unwrap();
        let choice = Choice {
            degrees: &degrees,
            sharding: &solved.strategies,
            tiles: 2048,
            weights_on_chip: false,
            longest: 96,
        };
        build(workload, &system, choice, f64::INFINITY).unwrap()
    }

    /// The forward layer has 26 ideals; its training graph 1,171 with the backward pass after the forward one, 7,273 if
    /// the passes might mix.
    #[test]
    fn ideals_of_the_gpt_layer() {
        let forward = instance(&gpt3(12288, 96, 128, 96, 2304, Pass::Forward));
        assert_eq!(Ideals::of(&forward, MAX_IDEALS).unwrap().sets.len(), 26);
        let mut training = instance(&gpt3(12288, 96, 128, 96, 2304, Pass::Training));
        assert_eq!(Ideals::of(&training, MAX_IDEALS).unwrap().sets.len(), 1171);
        training.separate_phases = false;
        assert_eq!(Ideals::of(&training, MAX_IDEALS).unwrap().sets.len(), 7273);
    }

    /// A backward chain of `layers` kernels, each followed by an update that nothing waits for.
    fn chain_with_updates(layers: usize) -> Instance {
        use crate::mapping::instance::{Compute, KernelCost, TensorCost, UseCost};
        let mut i = instance(&gpt3(12288, 96, 128, 96, 2304, Pass::Forward));
        // Chain kernels compute, updates move bytes: put off, they overlap.
        let kernel = |update: bool| KernelCost {
            compute: Compute::Seconds(if update { 0.1 } else { 1.0 }),
            network_s: 0.0,
            serial_s: 0.0,
            resident_bytes: 1.0,
            dram_bytes: if update { 1.5 } else { 0.1 },
            pieces: 1,
            backward: true,
        };
        i.kernels = (0..2 * layers).map(|k| kernel(k >= layers)).collect();
        let reader = |kernel| UseCost {
            kernel,
            load_bytes: 0.2,
            load_buffer: 0.2,
            onchip_buffer: 0.2,
            lag: 0.0,
            own_part: false,
        };
        i.tensors = (0..layers)
            .map(|k| TensorCost {
                producer: Some(k),
                output: false,
                store_bytes: 0.2,
                store_buffer: 0.2,
                live_bytes: 0.2,
                uses: std::iter::once(layers + k).chain((k + 1 < layers).then_some(k + 1)).map(reader).collect(),
            })
            .collect();
        i.pins = vec![None; 2 * layers];
        i.sram_bytes = 5.0;
        i.base_sram_bytes = 0.0;
        i.dram_bytes_per_s = 1.0;
        i.partition_overhead_s = 0.01;
        i.separate_phases = false;
        i
    }

    /// Ten layers have 2^11 - 1 ideals, and of equal layers the updates may as well run in turn. Thirty have 2^31 - 1: a
    /// plan is found all the same, no slower than that of ten three times over, with a store and a load of 0.2 where they join.
    #[test]
    fn updates_that_nothing_waits_for_run_in_turn() {
        let ten = chain_with_updates(10);
        let all = Ideals::of(&ten, MAX_IDEALS).unwrap();
        assert_eq!(all.sets.len(), 2047);
        let part = Ideals::of(&ten, 1000).unwrap();
        assert!(!part.complete && part.sets.len() > 21);
        let (best, in_turn) = (solve(&ten, &all).unwrap(), solve(&ten, &part).unwrap());
        assert!((in_turn.objective / best.objective - 1.0).abs() < 1e-9, "{best:?} {in_turn:?}");
        let thirty = chain_with_updates(30);
        let part = Ideals::of(&thirty, MAX_IDEALS).unwrap();
        let path = solve(&thirty, &part).unwrap();
        assert!(
            !path.proven && path.objective <= (3.0 * best.objective + 2.0 * 0.4) * (1.0 + 1e-9),
            "{path:?} {best:?}"
        );
        assert!(thirty.evaluate(&path.assignment).is_some());
    }

    /// A chain has one order, so that the cuts of it are all there is; with a kernel beside it there are others.
    #[test]
    fn the_cuts_of_a_chain_are_a_proof() {
        let with_updates = chain_with_updates(10);
        assert!(!by_order(&with_updates, Deadline::never()).unwrap().proven);
        let mut chain = with_updates;
        chain.kernels.truncate(10);
        chain.pins.truncate(10);
        for (k, tensor) in chain.tensors.iter_mut().enumerate() {
            tensor.uses.retain(|u| u.kernel < 10);
            tensor.output = k == 9;
        }
        let all = solve(&chain, &Ideals::of(&chain, MAX_IDEALS).unwrap()).unwrap();
        let cut = by_order(&chain, Deadline::never()).unwrap();
        assert!(cut.proven && all.proven);
        assert!((cut.objective / all.objective - 1.0).abs() < 1e-12, "{cut:?} {all:?}");
    }

    /// A search whose deadline has passed gives the best plan of one order, and claims nothing of others.
    #[test]
    fn a_stopped_search_has_a_plan() {
        let chain = chain_with_updates(10);
        let all = Ideals::of(&chain, MAX_IDEALS).unwrap();
        let stopped = solve_until(&chain, &all, f64::INFINITY, Deadline::after(Some(0.0)));
        let path = stopped.path.unwrap();
        assert!(stopped.stopped && !path.proven);
        assert!(chain.evaluate(&path.assignment).is_some_and(|(o, _)| (o / path.objective - 1.0).abs() < 1e-12));
        let best = solve_until(&chain, &all, f64::INFINITY, Deadline::never());
        assert!(!best.stopped && best.path.unwrap().objective <= path.objective * (1.0 + 1e-12));
    }

    /// Too many ideals: one topological order remains, and the answer does not claim a proof.
    #[test]
    fn without_all_ideals_nothing_is_proven() {
        let forward = instance(&gpt3(12288, 96, 128, 96, 2304, Pass::Forward));
        let few = Ideals::of(&forward, 10).unwrap();
        assert!(!few.complete);
        let path = solve(&forward, &few).unwrap();
        let all = solve(&forward, &Ideals::of(&forward, MAX_IDEALS).unwrap()).unwrap();
        assert!(!path.proven && all.proven && path.objective >= all.objective);
        let by_order = by_order(&forward, Deadline::never()).unwrap();
        assert!((by_order.objective - path.objective).abs() <= 1e-9 * path.objective);
    }
}
