//! A bound for graphs whose ideals are too many: Lagrangian relaxation of the kernels that make them so.
//!
//! Kernels that nothing waits for (gradients of weights, results) may run at any time after their inputs, and a graph with L
//! of them has 2^L ideals and more. Without them a graph of thousands of kernels is a *backbone* with few ideals, since all
//! but a few kernels run before or after any given one. The kernels taken out are a *pool*: each costs its arithmetic,
//! collectives, own DRAM bytes and own SRAM in some partition. What they share with the backbone is taken to be free, and
//! each may be divided among partitions. So every plan of the whole graph gives a plan of the relaxed problem (A_P: what does not overlap;
//! lag_P: how much later the last of P's backbone kernels begins than the first, as a part of the pass)
//!
//! ```text
//! least   sum over partitions P of  s ((1 + lag_P) (F_P + A_P + y_P) + launch) + additive(P)
//!         F_P >= M_P = the largest of compute, DRAM, network of P's backbone kernels (those that overlap)
//!         F_P >= r_P + x_rP     for each overlapped resource r; x_rP: the pool's share of it in P
//!         sum over P of x_rP = pool_r;   sum over P of y_P = pool_A
//!         sum over P of (SRAM - sram_P) >= SRAM of the pool
//! ```
//!
//! What the pool needs is dualised with prices m_r >= 0 and v >= 0 (`dual`), and what is left is a shortest path over the ideals of the backbone; its length
//! plus the prices of the whole pool bounds every plan from below. The same prices bound what is left after any part of a plan (`Ahead`).
//! With an empty pool the path is the optimum itself, of graphs of any size.
//!
//! What a kernel of the pool reads is loaded where it fits the SRAM neither with the producer nor with another reader.
//!
//! Not in the relaxation: limits of waiting tensors (DRAM capacity), and that a kernel put off loads again what it reads.

mod dual;

pub(super) use self::dual::Ahead;
use self::dual::{Dual, Need, Needs};
use super::instance::{Compute, Instance, PartitionCost, TensorCost, UseCost, combine};
use super::pricing::Pricer;
use crate::deadline::Deadline;
use std::collections::HashMap;

/// Most ideals of a backbone; of a larger graph, so many a kernel.
const MOST_IDEALS: usize = 20_000;
const IDEALS_A_KERNEL: usize = 6;

/// Most partitions of a backbone; of 48 bytes each.
const MOST_ARCS: usize = 4_000_000;
/// The same of a backbone that bounds what is left after each part of a plan.
const MOST_IDEALS_AHEAD: usize = 2_000;
const MOST_ARCS_AHEAD: usize = 20_000;
/// Most bytes of its ideals, of what may follow each, and of the steps between them: thousands of kernels beside each other have many.
const MOST_BYTES: usize = 1 << 29;

/// What is known from below.
#[derive(Debug, Clone, PartialEq)]
pub struct Relaxed {
    /// No plan has a smaller sum over the partitions.
    pub bound: f64,
    /// The partition of each kernel, where nothing was pooled and the path is a plan (if the DRAM has room).
    pub plan: Option<Vec<usize>>,
    /// Kernels in the pool.
    pub pooled: usize,
}

/// Prices found for a similar problem, to start from, as shares of the largest allowed: of seconds of compute, DRAM, network, of SRAM, and of
/// what a launch pays for seconds that fill.
pub type Prices = [f64; 5];

/// The ideals of a graph of any size, ascending in size.
struct Ideals {
    sets: Vec<Box<[u64]>>,
    steps: Vec<Step>,
    first: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Step {
    kernel: usize,
    to: usize,
}

fn has(set: &[u64], k: usize) -> bool {
    set[k / 64] & (1 << (k % 64)) != 0
}

impl Ideals {
    /// Kernels are in a topological order, so that a kernel's rank is its index. `None` beyond the limit or the deadline.
    fn of(instance: &Instance, limit: usize, deadline: Deadline) -> Option<Self> {
        let n = instance.kernels.len();
        let mut before = vec![Vec::new(); n];
        let mut after = vec![Vec::new(); n];
        for tensor in &instance.tensors {
            let Some(p) = tensor.producer else { continue };
            for u in &tensor.uses {
                if !before[u.kernel].contains(&p) {
                    before[u.kernel].push(p);
                    after[p].push(u.kernel);
                }
            }
        }
        let words = n.div_ceil(64).max(1);
        let roots: Vec<usize> = (0..n).filter(|k| before[*k].is_empty()).collect();
        let mut sets = vec![vec![0u64; words].into_boxed_slice()];
        let mut ready: Vec<Vec<usize>> = vec![roots];
        let (mut steps, mut first) = (Vec::new(), vec![0]);
        let mut layer = 0..1;
        let mut held = 0;
        while !layer.is_empty() {
            let mut found: HashMap<Box<[u64]>, usize> = HashMap::new();
            let mut next_ready = Vec::new();
            for i in layer.clone() {
                // One ideal of a graph of thousands of kernels beside each other takes milliseconds.
                if deadline.is_over() || held > MOST_BYTES {
                    return None;
                }
                for &kernel in &ready[i - layer.start] {
                    let mut larger = sets[i].clone();
                    larger[kernel / 64] |= 1 << (kernel % 64);
                    let at = layer.end + found.len();
                    if at >= limit && !found.contains_key(&larger) {
                        return None;
                    }
                    let to = *found.entry(larger).or_insert_with_key(|larger| {
                        let mut list: Vec<usize> =
                            ready[i - layer.start].iter().copied().filter(|k| *k != kernel).collect();
                        let freed = after[kernel].iter().filter(|k| before[**k].iter().all(|b| has(larger, *b)));
                        list.extend(freed);
                        list.sort_unstable();
                        held += 8 * (list.len() + words);
                        next_ready.push(list);
                        at
                    });
                    held += size_of::<Step>();
                    steps.push(Step { kernel, to });
                }
                first.push(steps.len());
            }
            let mut next: Vec<(Box<[u64]>, usize)> = found.into_iter().collect();
            next.sort_unstable_by_key(|(_, at)| *at);
            sets.extend(next.into_iter().map(|(set, _)| set));
            ready = next_ready;
            layer = layer.end..sets.len();
        }
        Some(Self { sets, steps, first })
    }

    /// Each as bits of the whole graph's kernels (at most 128), of which the backbone has those that were kept.
    fn of_kernels(&self, kept: &[usize]) -> Vec<u128> {
        let bits = |set: &[u64]| {
            kept.iter().enumerate().filter(|(i, _)| has(set, *i)).fold(0, |all, (_, k)| all | (1u128 << k))
        };
        self.sets.iter().map(|set| bits(set)).collect()
    }
}

/// A partition of the backbone between two ideals.
#[derive(Clone, Copy)]
struct Arc {
    to: u32,
    /// How much later its last kernel begins than its first, as a part of the pass; infinite where no kernel of the pool fits beside.
    lag: f32,
    /// What it costs alone.
    base: f64,
    /// Seconds of each overlapped resource that it leaves free, and the share of the SRAM.
    free: Needs,
}

/// What the pool needs.
#[derive(Default)]
struct Pool {
    /// Of each of its kernels wherever it runs.
    own: Vec<(usize, Need)>,
    /// Of loads of one tensor by several of them: one at least is made while one of them is left.
    shared: Vec<Vec<(usize, Need)>>,
    /// SRAM of its smallest kernel: a partition with less to spare takes none of them.
    smallest: f64,
}

/// A bound on the sum over the partitions, given the value of a plan; `None` where even the backbone is too wide. `prices` are
/// those to start from, and afterwards the best found.
pub(super) fn bound(
    instance: &Instance,
    upper: f64,
    prices: &mut Option<Prices>,
    deadline: Deadline,
) -> Option<Relaxed> {
    POOLS.iter().find_map(|pool| bound_with_pool(instance, *pool, upper, prices, deadline))
}

/// Pools that are tried, the smallest first: levels of leaves and of roots.
const POOLS: [(usize, usize); 8] = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 1), (4, 2), (6, 4)];

/// The relaxation with a given pool: the kernels that nothing waits for but, up to so many levels, others of the pool; and in the same
/// way those that wait for nothing. `None` where the backbone has too many ideals or partitions, nothing is left of it, or it has
/// no plan.
pub fn bound_with_pool(
    instance: &Instance,
    (leaves, roots): (usize, usize),
    upper: f64,
    prices: &mut Option<Prices>,
    deadline: Deadline,
) -> Option<Relaxed> {
    if deadline.is_over() {
        return None;
    }
    let n = instance.kernels.len();
    let limit = MOST_IDEALS.max(IDEALS_A_KERNEL * n);
    let pooled = pooled(instance, leaves, roots);
    let kept: Vec<usize> = (0..n).filter(|k| !pooled[*k]).collect();
    if kept.is_empty() {
        return None;
    }
    let (backbone, pool) = split(instance, &pooled, &kept, deadline)?;
    let ideals = Ideals::of(&backbone, limit, deadline)?;
    let (arcs, first) = arcs(&backbone, &ideals, pool.smallest, MOST_ARCS, deadline)?;
    let pool_size = pool.own.len();
    let problem = Dual::new(instance, &pool, arcs, first);
    if pool_size == 0 {
        let (bound, chain) = problem.path_without_pool()?;
        return Some(Relaxed { bound, plan: Some(plan(n, &ideals, &chain)), pooled: 0 });
    }
    let bound = problem.ascend(upper, prices, deadline)?;
    Some(Relaxed { bound, plan: None, pooled: pool_size })
}

/// Bounds of what is left after each set of kernels that has run, the leaves being pooled, of plans of at most `upper`. `None` where the backbone is
/// too wide to be worth it.
pub(super) fn ahead(instance: &Instance, upper: f64, deadline: Deadline) -> Option<Ahead> {
    let n = instance.kernels.len();
    let pooled = pooled(instance, 1, 0);
    let kept: Vec<usize> = (0..n).filter(|k| !pooled[*k]).collect();
    if n > 128 || kept.is_empty() || deadline.is_over() {
        return None;
    }
    let (backbone, pool) = split(instance, &pooled, &kept, deadline)?;
    let ideals = Ideals::of(&backbone, MOST_IDEALS_AHEAD, deadline)?;
    let (arcs, first) = arcs(&backbone, &ideals, pool.smallest, MOST_ARCS_AHEAD, deadline)?;
    let sets = ideals.of_kernels(&kept);
    Ahead::new(Dual::new(instance, &pool, arcs, first), sets, pool, upper, deadline)
}

/// Kernels that all that waits for them is pooled with, up to so many one after another; and kernels that wait for nothing.
fn pooled(instance: &Instance, leaves: usize, roots: usize) -> Vec<bool> {
    let n = instance.kernels.len();
    let mut out = vec![false; n];
    let edges: Vec<(usize, usize)> = instance
        .tensors
        .iter()
        .filter_map(|t| t.producer.map(|p| t.uses.iter().map(move |u| (p, u.kernel))))
        .flatten()
        .collect();
    for _ in 0..leaves {
        let mut leaf = vec![true; n];
        edges.iter().filter(|(_, k)| !out[*k]).for_each(|(p, _)| leaf[*p] = false);
        out.iter_mut().zip(&leaf).for_each(|(out, leaf)| *out |= leaf);
    }
    for _ in 0..roots {
        let mut root = vec![true; n];
        edges.iter().filter(|(p, _)| !out[*p]).for_each(|(_, k)| root[*k] = false);
        out.iter_mut().zip(&root).for_each(|(out, root)| *out |= root);
    }
    out
}

/// The problem of the backbone alone, and what the pool needs. What a kernel of the backbone reads from the pool is free. What a
/// kernel of the pool reads is free where the two, or that kernel and another reader of the same tensor, fit a partition together.
/// `None` where the deadline passes.
fn split(instance: &Instance, pooled: &[bool], kept: &[usize], deadline: Deadline) -> Option<(Instance, Pool)> {
    let company = Company::new(instance);
    let index = |k: usize| kept.binary_search(&k).ok();
    let mut tensors = Vec::new();
    let mut shared: Vec<Vec<(usize, f64)>> = Vec::new();
    for tensor in &instance.tensors {
        let alone = |k: usize| instance.kernels[k].pieces > 1;
        let pooled_readers = || tensor.uses.iter().filter(|u| pooled[u.kernel]);
        // Loads of kernels that share a partition with neither the producer nor a reader of the backbone: one at least. Kernels
        // in pieces count their own.
        let lonely = |reader: usize| {
            // What is left out here is given up below.
            if deadline.is_over() {
                return true;
            }
            let others = tensor.uses.iter().map(|u| u.kernel).filter(|k| !pooled[*k]);
            tensor.producer.into_iter().chain(others).all(|other| company.apart(other, reader))
        };
        let loads = pooled_readers().filter(|u| !alone(u.kernel) && lonely(u.kernel)).map(|u| (u.kernel, u.load_bytes));
        // Of kernels in pieces each loads by itself; whether another may share with it makes no difference.
        shared.push(loads.collect());
        if deadline.is_over() {
            return None;
        }
        let producer = match tensor.producer {
            None => None,
            Some(p) => match index(p) {
                Some(p) => Some(p),
                None => continue,
            },
        };
        let uses: Vec<UseCost> =
            tensor.uses.iter().filter_map(|u| index(u.kernel).map(|kernel| UseCost { kernel, ..u.clone() })).collect();
        let crosses = tensor.producer.is_some_and(|p| pooled_readers().any(|u| company.apart(p, u.kernel)));
        let output = producer.is_some() && (tensor.output || crosses);
        if !uses.is_empty() || output {
            tensors.push(TensorCost { producer, uses, output, ..tensor.clone() });
        }
    }
    let kernels: Vec<_> = kept.iter().map(|k| instance.kernels[*k].clone()).collect();
    let pins = vec![None; kernels.len()];
    let backbone = Instance { kernels, tensors, pins, live_limit: f64::INFINITY, ..instance.clone() };
    Some((backbone, pool(instance, pooled, &shared)))
}

/// Which pairs of kernels may share a partition, by SRAM.
struct Company<'a> {
    instance: &'a Instance,
    /// Tensors of each kernel, ascending, with the least that each keeps in SRAM wherever the others run.
    buffers: Vec<Vec<(usize, f64)>>,
}

impl<'a> Company<'a> {
    fn new(instance: &'a Instance) -> Self {
        let mut buffers: Vec<Vec<(usize, f64)>> = vec![Vec::new(); instance.kernels.len()];
        let mut put = |k: usize, t: usize, bytes: f64| match buffers[k].last_mut().filter(|(last, _)| *last == t) {
            Some((_, most)) => *most = bytes.max(*most),
            None => buffers[k].push((t, bytes)),
        };
        for (t, tensor) in instance.tensors.iter().enumerate() {
            for u in &tensor.uses {
                let made = tensor.producer.is_some();
                put(u.kernel, t, if made { u.load_buffer.min(u.onchip_buffer) } else { u.load_buffer });
            }
            if let Some(p) = tensor.producer.filter(|_| tensor.output) {
                put(p, t, tensor.store_buffer);
            }
        }
        // A kernel that reads a tensor, then others do, then it again, has it twice.
        for list in &mut buffers {
            list.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
            list.dedup_by_key(|(t, _)| *t);
        }
        Self { instance, buffers }
    }

    /// Whether no partition has both.
    fn apart(&self, a: usize, b: usize) -> bool {
        let (x, y) = (&self.instance.kernels[a], &self.instance.kernels[b]);
        if x.pieces > 1 || y.pieces > 1 {
            return true;
        }
        let mut bytes = self.instance.base_sram_bytes + x.resident_bytes + y.resident_bytes;
        let (mut i, mut j) = (self.buffers[a].iter().peekable(), self.buffers[b].iter().peekable());
        loop {
            bytes += match (i.peek(), j.peek()) {
                (Some((t, one)), Some((u, other))) if t == u => {
                    let most = one.max(*other);
                    i.next();
                    j.next();
                    most
                }
                (Some((t, one)), Some((u, _))) if t < u => {
                    let one = *one;
                    i.next();
                    one
                }
                (Some((_, one)), None) => {
                    let one = *one;
                    i.next();
                    one
                }
                (_, Some((_, other))) => {
                    let other = *other;
                    j.next();
                    other
                }
                (None, None) => break,
            };
        }
        bytes > self.instance.sram_bytes * (1.0 + 2.0 * super::instance::CAPACITY_TOLERANCE)
    }
}

/// Arithmetic that a kernel spends whatever cores it is given, in seconds of the whole chip.
pub fn fluid_s(instance: &Instance, k: usize) -> f64 {
    match &instance.kernels[k].compute {
        Compute::Seconds(s) => *s,
        Compute::Cores(options) => {
            let least = options.iter().map(|o| o.cores as f64 * o.seconds).fold(f64::INFINITY, f64::min);
            least / instance.cores as f64
        }
    }
}

/// Share of the chip's SRAM.
fn sram_share(instance: &Instance, bytes: f64) -> f64 {
    if instance.sram_bytes.is_finite() && instance.sram_bytes > 0.0 { bytes / instance.sram_bytes } else { 0.0 }
}

/// Calls `visit` with every partition of the backbone: the ideal that it ends at and the kernel that joined last, the arithmetic of its kernels and what it
/// costs. Where those that start at each ideal begin among all; `None` where `visit` has enough, or the deadline passes.
fn each_partition(
    backbone: &Instance,
    ideals: &Ideals,
    deadline: Deadline,
    visit: &mut dyn FnMut(Step, f64, &PartitionCost) -> Option<()>,
) -> Option<Vec<usize>> {
    let mut pricer = Pricer::new(backbone);
    let (mut first, mut visited) = (vec![0], 0);
    let fluid: Vec<f64> = (0..backbone.kernels.len()).map(|k| fluid_s(backbone, k)).collect();
    // Ideal, next step to try, least rank, arithmetic so far.
    let mut stack: Vec<(usize, usize, usize, f64)> = Vec::new();
    let mut watch = deadline.watch();
    for i in 0..ideals.sets.len() {
        pricer.start(|k| has(&ideals.sets[i], k));
        stack.push((i, ideals.first[i], 0, 0.0));
        while let Some(top) = stack.last_mut() {
            if watch.is_over() {
                return None;
            }
            let (at, rank, spent) = (top.0, top.2, top.3);
            if top.1 >= ideals.first.get(at + 1).copied().unwrap_or(0) {
                stack.pop();
                if !stack.is_empty() {
                    pricer.take_back();
                }
                continue;
            }
            let step = ideals.steps[top.1];
            top.1 += 1;
            if step.kernel < rank || (backbone.kernel_by_kernel && stack.len() > 1) {
                continue;
            }
            pricer.add(step.kernel);
            if pricer.hopeless() {
                pricer.take_back();
                continue;
            }
            let spent = spent + fluid[step.kernel];
            let cost = pricer.cost();
            if cost.sram_bytes <= backbone.sram_bytes * (1.0 + super::instance::CAPACITY_TOLERANCE) {
                visit(step, spent, &cost)?;
                visited += 1;
            }
            stack.push((step.to, ideals.first[step.to], step.kernel + 1, spent));
        }
        first.push(visited);
    }
    Some(first)
}

/// Every partition of the backbone, by the ideal it starts at, with what it leaves to the pool.
fn arcs(
    backbone: &Instance,
    ideals: &Ideals,
    smallest: f64,
    most: usize,
    deadline: Deadline,
) -> Option<(Vec<Arc>, Vec<usize>)> {
    let mut arcs: Vec<Arc> = Vec::new();
    let mut visit = |step: Step, spent: f64, cost: &PartitionCost| {
        if arcs.len() == most {
            return None;
        }
        let (used, longest, _) = overlapped(backbone, [spent, cost.dram_s, cost.network_s], cost.compute_s);
        let spare = backbone.sram_bytes - cost.sram_bytes;
        let closed = backbone.kernels[step.kernel].pieces > 1
            || spare + backbone.sram_bytes * super::instance::CAPACITY_TOLERANCE < smallest;
        let free = |r: usize| used[r].filter(|_| !closed).map_or(0.0, |used| (longest - used).max(0.0));
        let sram = if closed { 0.0 } else { sram_share(backbone, spare).max(0.0) };
        // Rounded down.
        let lag = if closed { f32::INFINITY } else { (cost.lag * (1.0 - 1e-6)) as f32 };
        let (base, free) = (backbone.value(cost), [free(0), free(1), free(2), sram]);
        arcs.push(Arc { to: step.to as u32, lag, base, free });
        Some(())
    };
    let first = each_partition(backbone, ideals, deadline, &mut visit)?;
    Some((arcs, first))
}

/// A partition of kernels that others wait for.
pub(super) struct Way {
    /// The ideal that it ends at.
    pub(super) to: usize,
    /// How much later its last kernel begins than its first, as a part of the pass.
    pub(super) lag: f64,
    /// Its pace in seconds.
    pub(super) pace: f64,
    /// Its kernels.
    pub(super) kernels: u128,
}

/// Partitions of the kernels that others wait for, of a graph or pass.
pub(super) struct Ways {
    /// The partitions.
    pub(super) ends: Vec<Way>,
    /// Where those of each ideal begin.
    pub(super) first: Vec<usize>,
}

/// The partitions of the kernels that others wait for, none where there are no such kernels; `None` where they are too many.
pub(super) fn ways(instance: &Instance, deadline: Deadline) -> Option<Ways> {
    let pooled = pooled(instance, 1, 0);
    let kept: Vec<usize> = (0..instance.kernels.len()).filter(|k| !pooled[*k]).collect();
    let mut ends: Vec<Way> = Vec::new();
    if kept.last().is_some_and(|k| *k >= 128) {
        return None;
    }
    if kept.is_empty() {
        return Some(Ways { ends, first: vec![0] });
    }
    let (backbone, _) = split(instance, &pooled, &kept, deadline)?;
    let ideals = Ideals::of(&backbone, MOST_IDEALS_AHEAD, deadline)?;
    let mut visit = |step: Step, _, cost: &PartitionCost| {
        let pace = combine(backbone.overlap, cost.compute_s, cost.dram_s, cost.network_s);
        ends.push(Way { to: step.to, lag: cost.lag, pace, kernels: 0 });
        (ends.len() <= MOST_ARCS_AHEAD).then_some(())
    };
    let first = each_partition(&backbone, &ideals, deadline, &mut visit)?;
    let sets = ideals.of_kernels(&kept);
    for (i, from) in sets.iter().enumerate() {
        ends[first[i]..first[i + 1]].iter_mut().for_each(|way| way.kernels = sets[way.to] & !from);
    }
    Some(Ways { ends, first })
}

/// Seconds of the resources that overlap (compute alone where nothing does), the longest of them, and the rest, which adds up.
fn overlapped(instance: &Instance, [fluid, dram, network]: [f64; 3], compute: f64) -> ([Option<f64>; 3], f64, f64) {
    use crate::system::Overlap;
    match instance.overlap {
        Overlap::Full => ([Some(fluid), Some(dram), Some(network)], compute.max(dram).max(network), 0.0),
        Overlap::ComputeMemory => ([Some(fluid), Some(dram), None], compute.max(dram), network),
        Overlap::None => ([Some(fluid), None, None], compute, dram + network),
    }
}

/// What the pooled kernels need wherever they run; `shared`: of each tensor what some of them load that share it with nobody else.
fn pool(instance: &Instance, pooled: &[bool], shared: &[Vec<(usize, f64)>]) -> Pool {
    let goal = &instance.goal;
    let additive_compute = instance.kernels.iter().all(|k| matches!(k.compute, Compute::Seconds(_)));
    let members: Vec<usize> = (0..pooled.len()).filter(|k| pooled[*k]).collect();
    // Bytes of each kernel wherever it runs; of what only pooled kernels load, in total.
    let mut bytes = vec![0.0; pooled.len()];
    let mut sram = vec![0.0; pooled.len()];
    let alone = |k: usize| pooled[k] && instance.kernels[k].pieces > 1;
    for tensor in &instance.tensors {
        if let Some(p) = tensor.producer.filter(|p| pooled[*p]) {
            let stored = tensor.output || (alone(p) && !tensor.uses.is_empty());
            if stored {
                bytes[p] += tensor.store_bytes;
                sram[p] += tensor.store_buffer;
            }
        }
        let mut widest = vec![];
        for u in tensor.uses.iter().filter(|u| alone(u.kernel)) {
            match widest.iter_mut().find(|(k, _)| *k == u.kernel) {
                Some((_, most)) => *most = u.load_bytes.max(*most),
                None => widest.push((u.kernel, u.load_bytes)),
            }
        }
        widest.into_iter().for_each(|(k, load)| bytes[k] += load);
    }
    let need = |compute: f64, dram_bytes: f64, network: f64, serial: f64| {
        let dram_s = dram_bytes / instance.dram_bytes_per_s;
        let (needs, _, rest) = overlapped(instance, [compute, dram_s, network], compute);
        let [a, b, c] = needs.map(|need| need.unwrap_or(0.0));
        let busy = if additive_compute { compute } else { 0.0 };
        Need { fixed: goal.value(serial, busy, dram_bytes), rest, needs: [a, b, c, 0.0] }
    };
    let mut pool = Pool { smallest: f64::INFINITY, ..Pool::default() };
    for &k in &members {
        let kernel = &instance.kernels[k];
        let own = bytes[k] + kernel.dram_bytes;
        let compute = fluid_s(instance, k);
        if kernel.pieces > 1 {
            let dram_s = own / instance.dram_bytes_per_s;
            let time = combine(instance.overlap, compute, dram_s, kernel.network_s)
                + kernel.serial_s
                + instance.partition_overhead_s;
            pool.own.push((k, Need { fixed: goal.value(time, compute, own), ..Need::default() }));
            continue;
        }
        let resident = kernel.resident_bytes + sram[k];
        let mut need = need(compute, own, kernel.network_s, kernel.serial_s);
        need.needs[3] = sram_share(instance, resident);
        pool.smallest = pool.smallest.min(resident);
        pool.own.push((k, need));
    }
    let of_tensor =
        |loads: &Vec<(usize, f64)>| loads.iter().map(|(k, load)| (*k, need(0.0, *load, 0.0, 0.0))).collect();
    pool.shared = shared.iter().filter(|loads| !loads.is_empty()).map(of_tensor).collect();
    pool
}

/// The partition of each kernel of a path without a pool.
fn plan(n: usize, ideals: &Ideals, chain: &[(usize, usize)]) -> Vec<usize> {
    let mut out = vec![chain.len().saturating_sub(1); n];
    for (p, (from, _)) in chain.iter().enumerate().rev() {
        // Kernels of the ideal ran before partition p.
        if let Some(earlier) = p.checked_sub(1) {
            (0..n).filter(|k| has(&ideals.sets[*from], *k)).for_each(|k| out[k] = earlier);
        }
    }
    out
}
