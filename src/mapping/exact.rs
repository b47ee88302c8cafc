//! The fusion problem as a shortest path over the ideals of the graph (design section 6.5).
//!
//! An ideal is a set of kernels that contains every predecessor of its members: what can have run at some moment. A
//! sequence of partitions is a chain of ideals from the empty set to all kernels, and the cost of a partition depends
//! on the two ideals around it alone, so the shortest path is the optimum, for any number of partitions and any cost
//! of one partition. With more ideals than the limit (wide graphs), or more than 128 kernels, only the ideals of one
//! topological order are used: then the answer is a plan without a proof.

use super::instance::{Instance, When};

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

/// Most ideals for a proof.
pub const MAX_IDEALS: usize = 20_000;

/// The ideals of an instance, ascending in size.
#[derive(Debug, Clone)]
pub struct Ideals {
    /// Each a bit set of kernels.
    pub sets: Vec<u128>,
    /// Whether these are all.
    pub complete: bool,
}

impl Ideals {
    /// Lists the ideals of a graph, at most `limit`. With `separate_phases` all forward kernels run before any
    /// backward one.
    pub fn of(instance: &Instance, limit: usize) -> Option<Self> {
        let n = instance.kernels.len();
        if n > 128 {
            return None;
        }
        let mut before = vec![0u128; n];
        for tensor in &instance.tensors {
            if let Some(p) = tensor.producer {
                for u in &tensor.uses {
                    before[u.kernel] |= 1 << p;
                }
            }
        }
        if instance.separate_phases {
            let forward: u128 = (0..n).filter(|k| !instance.kernels[*k].backward).fold(0, |set, k| set | (1u128 << k));
            for (k, set) in before.iter_mut().enumerate() {
                if instance.kernels[k].backward {
                    *set |= forward;
                }
            }
        }
        let mut sets = vec![0u128];
        let mut layer = vec![0u128];
        for _ in 0..n {
            let mut next: Vec<u128> = Vec::new();
            for set in &layer {
                for (k, needs) in before.iter().enumerate() {
                    if set & (1 << k) == 0 && needs & !set == 0 {
                        next.push(set | (1 << k));
                    }
                }
            }
            next.sort_unstable();
            next.dedup();
            if sets.len() + next.len() > limit {
                return Some(Self { sets: prefixes(&before), complete: false });
            }
            sets.extend_from_slice(&next);
            layer = next;
        }
        Some(Self { sets, complete: true })
    }
}

/// The ideals of one topological order, forward kernels first where `before` says so.
fn prefixes(before: &[u128]) -> Vec<u128> {
    let mut set = 0u128;
    let mut sets = vec![0];
    for _ in 0..before.len() {
        let Some(k) = (0..before.len()).find(|k| set & (1 << k) == 0 && before[*k] & !set == 0) else { break };
        set |= 1 << k;
        sets.push(set);
    }
    sets
}

fn members(set: u128) -> Vec<usize> {
    let mut out = Vec::with_capacity(set.count_ones() as usize);
    let mut left = set;
    while left != 0 {
        out.push(left.trailing_zeros() as usize);
        left &= left - 1;
    }
    out
}

/// Solves an instance; `None` when no assignment is feasible (or none was found, where `proven` could not be said).
pub fn solve(instance: &Instance, ideals: &Ideals) -> Option<Path> {
    let sets = &ideals.sets;
    let n = sets.len();
    let phases = Phases::of(instance);
    // Sums that need no walk over the tensors bound the SRAM of a partition from below: skip hopeless pairs early.
    let resident: Vec<f64> =
        sets.iter().map(|s| members(*s).iter().map(|k| instance.kernels[*k].resident_bytes).sum()).collect();
    let pinned = instance.pins.iter().any(Option::is_some);
    let bounded = pinned || instance.max_partitions.is_some();
    let most = if bounded { instance.max_partitions.unwrap_or(instance.kernels.len()) } else { 1 };

    // best[p][i]: cheapest way to have run ideal i in p partitions (in any number, where they need not be counted).
    let layers = if bounded { most + 1 } else { 1 };
    let mut best = vec![vec![f64::INFINITY; n]; layers];
    let mut from = vec![vec![usize::MAX; n]; layers];
    // Partitions used on the way: of equally fast plans the one with fewest partitions is taken.
    let mut count = vec![0usize; n];
    best[0][0] = 0.0;
    let mut priced = 0;
    for i in 0..n {
        if best.iter().all(|layer| layer[i].is_infinite()) {
            continue;
        }
        for j in i + 1..n {
            let (before, after) = (sets[i], sets[j]);
            if before & !after != 0 || before == after {
                continue;
            }
            let now = after & !before;
            if (instance.kernel_by_kernel && now.count_ones() > 1) || !phases.allow(now) {
                continue;
            }
            if instance.base_sram_bytes + resident[j] - resident[i] > instance.sram_bytes * (1.0 + 1e-6) {
                continue;
            }
            let inside = members(now);
            priced += 1;
            let cost = instance.partition(&inside, |k| {
                if before & (1 << k) != 0 {
                    When::Before
                } else if now & (1 << k) != 0 {
                    When::Now
                } else {
                    When::After
                }
            });
            let Some(cost) = cost.filter(|c| instance.fits(c)) else { continue };
            let time = instance.value(&cost);
            if !bounded {
                let through = best[0][i] + time;
                let tie = through * TIE;
                if through < best[0][j] - tie || (through <= best[0][j] + tie && count[i] + 1 < count[j]) {
                    best[0][j] = through;
                    from[0][j] = i;
                    count[j] = count[i] + 1;
                }
                continue;
            }
            for p in 0..most {
                let agrees = inside.iter().all(|k| instance.pins[*k].is_none_or(|pin| pin == p));
                let through = best[p][i] + time;
                if agrees && through < best[p + 1][j] {
                    best[p + 1][j] = through;
                    from[p + 1][j] = i;
                }
            }
        }
    }
    let last = n - 1;
    let least = best.iter().map(|layer| layer[last]).fold(f64::INFINITY, f64::min);
    let layer = (0..layers).find(|p| best[*p][last] <= least * (1.0 + TIE))?;
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
    chain.reverse();
    let mut assignment = vec![0; instance.kernels.len()];
    for (index, pair) in chain.windows(2).enumerate() {
        for k in members(sets[pair[1]] & !sets[pair[0]]) {
            assignment[k] = index;
        }
    }
    Some(Path { assignment, objective, proven: ideals.complete, priced })
}

/// The best partitions that cut one topological order (forward kernels first): a plan without a proof, for graphs too
/// large to list the ideals of. Pins are not served, and a bound on the number of partitions only where the best plan
/// happens to keep it.
pub fn by_order(instance: &Instance) -> Option<Path> {
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
    for i in 0..n {
        if best[i].is_infinite() {
            continue;
        }
        let mut resident = 0.0;
        for j in i + 1..=n {
            resident += instance.kernels[order[j - 1]].resident_bytes;
            let mixed = instance.separate_phases
                && instance.kernels[order[i]].backward != instance.kernels[order[j - 1]].backward;
            if mixed
                || (instance.kernel_by_kernel && j > i + 1)
                || instance.base_sram_bytes + resident > instance.sram_bytes * (1.0 + 1e-6)
            {
                break;
            }
            let mut inside = order[i..j].to_vec();
            inside.sort_unstable();
            priced += 1;
            let cost = instance.partition(&inside, |k| match position[k] {
                p if p < i => When::Before,
                p if p < j => When::Now,
                _ => When::After,
            });
            if let Some(cost) = cost.filter(|c| instance.fits(c)) {
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
    Some(Path { assignment, objective: best[n], proven: false, priced })
}

/// Which kernels may share a partition by their phase.
struct Phases {
    separate: bool,
    backward: u128,
}

impl Phases {
    fn of(instance: &Instance) -> Self {
        let backward = instance
            .kernels
            .iter()
            .enumerate()
            .filter(|(_, k)| k.backward)
            .fold(0u128, |set, (k, _)| set | (1u128 << k));
        Self { separate: instance.separate_phases, backward }
    }
    fn allow(&self, now: u128) -> bool {
        !self.separate || now & self.backward == 0 || now & !self.backward == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::degrees::assignments;
    use crate::mapping::instance::{Choice, build};
    use crate::mapping::sharding;
    use crate::spec::Node;
    use crate::system::System;
    use crate::workload::Workload;
    use crate::workload::transformer::{Pass, tests::gpt3};

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
        let choice = Choice { degrees: &degrees, sharding: &solved.strategies, tiles: 2048, weights_on_chip: false };
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

    /// Too many ideals: one topological order remains, and the answer does not claim a proof.
    #[test]
    fn without_all_ideals_nothing_is_proven() {
        let forward = instance(&gpt3(12288, 96, 128, 96, 2304, Pass::Forward));
        let few = Ideals::of(&forward, 10).unwrap();
        assert!(!few.complete);
        let path = solve(&forward, &few).unwrap();
        let all = solve(&forward, &Ideals::of(&forward, MAX_IDEALS).unwrap()).unwrap();
        assert!(!path.proven && all.proven && path.objective >= all.objective);
        let by_order = by_order(&forward).unwrap();
        assert!((by_order.objective - path.objective).abs() <= 1e-9 * path.objective);
    }
}
