//! A bound for graphs whose ideals are too many: Lagrangian relaxation of the kernels that make them so.
//!
//! Kernels that nothing waits for (gradients of weights, results) may run at any time after their inputs, and a graph with L
//! of them has 2^L ideals and more. Without them a graph of thousands of kernels is a *backbone* with few ideals, since all
//! but a few kernels run before or after any given one. The kernels taken out are a *pool*: each costs its arithmetic,
//! collectives, own DRAM bytes and own SRAM in some partition. What they share with the backbone is taken to be free, and
//! each may be divided among partitions. So every plan of the whole graph gives a plan of the relaxed problem
//!
//! ```text
//! least   sum over partitions P of  s (F_P + A_P) + additive(P)
//!         F_P >= M_P = the largest of compute, DRAM, network of P's backbone kernels (those that overlap)
//!         F_P >= r_P + x_rP     for each overlapped resource r; x_rP: the pool's share of it in P
//!         sum over P of x_rP = pool_r;   sum over P of (SRAM - sram_P) >= SRAM of the pool
//! ```
//!
//! The last line is dualised with prices m_r >= 0 (sum of them at most s: the price of a second) and v >= 0. For given prices the
//! rest is a shortest path over the ideals of the backbone, an arc P costing
//!
//! ```text
//! s (M_P + A_P) + additive(P) - sum over r of m_r (M_P - r_P) - v (SRAM - sram_P)
//! ```
//!
//! (where a kernel of the pool fits P's SRAM at all; else s (M_P + A_P) + additive(P))
//!
//! and its length plus the prices of the whole pool bounds every plan from below. A partition of pool kernels alone adds SRAM
//! and its overhead, so v is at most that overhead. With prices that sum to s and one resource alone this is the closed
//! form of `remaining.rs` with the partitions of the backbone counted; prices between make it the better of many. They
//! are improved by subgradient steps (Polyak's rule towards the best plan known). With an empty pool the path is the
//! optimum itself, of graphs of any size.
//!
//! What a kernel of the pool reads is loaded where it fits the SRAM neither with the producer nor with another reader.
//!
//! Not in the relaxation: limits of waiting tensors (DRAM capacity), and that a kernel put off loads again what it reads.

use super::instance::{Compute, Instance, TensorCost, UseCost, combine};
use super::pricing::Pricer;
use crate::deadline::Deadline;
use std::collections::HashMap;

/// Most ideals of a backbone; of a larger graph, so many a kernel.
const MOST_IDEALS: usize = 20_000;
const IDEALS_A_KERNEL: usize = 6;

/// Most partitions of a backbone; of 56 bytes each.
const MOST_ARCS: usize = 4_000_000;
/// Most bytes of its ideals, of what may follow each, and of the steps between them: thousands of kernels beside each other have many.
const MOST_BYTES: usize = 1 << 29;

/// Passes over all arcs, in arcs.
const WORK: usize = 150_000_000;

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

/// Prices found for a similar problem, to start from: of seconds of compute, DRAM, network, and of SRAM, each as a share of the
/// largest allowed.
pub type Prices = [f64; 4];

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
}

/// A partition of the backbone between two ideals.
#[derive(Clone, Copy)]
struct Arc {
    to: u32,
    /// What it costs alone.
    base: f64,
    /// Seconds of each overlapped resource that it leaves free, and the share of the SRAM.
    free: Prices,
}

/// What the pool needs.
#[derive(Default)]
struct Pool {
    kernels: usize,
    /// Costs that nothing absorbs.
    fixed: f64,
    /// Seconds of each overlapped resource, and SRAM as a share of the chip's.
    needs: Prices,
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
    let (arcs, first) = arcs(&backbone, &ideals, pool.smallest, deadline)?;
    let problem = Dual { instance, pool, arcs, first };
    if problem.pool.kernels == 0 {
        let path = problem.shortest(&[0.0; 4])?;
        let plan = plan(n, &ideals, &problem.chain(&path));
        return Some(Relaxed { bound: path.length, plan: Some(plan), pooled: 0 });
    }
    let bound = problem.ascend(upper, prices, deadline)?;
    Some(Relaxed { bound, plan: None, pooled: problem.pool.kernels })
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
    let mut shared_bytes = 0.0;
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
        let loads = pooled_readers().filter(|u| !alone(u.kernel) && lonely(u.kernel)).map(|u| u.load_bytes);
        // Of kernels in pieces each loads by itself; whether another may share with it makes no difference.
        shared_bytes += loads.fold(0.0, f64::max);
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
    Some((backbone, pool(instance, pooled, shared_bytes)))
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

/// Every partition of the backbone, by the ideal it starts at.
fn arcs(backbone: &Instance, ideals: &Ideals, smallest: f64, deadline: Deadline) -> Option<(Vec<Arc>, Vec<usize>)> {
    let mut pricer = Pricer::new(backbone);
    let mut arcs: Vec<Arc> = Vec::new();
    let mut first = vec![0];
    let fluid: Vec<f64> = (0..backbone.kernels.len()).map(|k| fluid_s(backbone, k)).collect();
    let goal = &backbone.goal;
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
                let (used, longest, _) = overlapped(backbone, [spent, cost.dram_s, cost.network_s], cost.compute_s);
                let spare = backbone.sram_bytes - cost.sram_bytes;
                let closed = backbone.kernels[step.kernel].pieces > 1
                    || spare + backbone.sram_bytes * super::instance::CAPACITY_TOLERANCE < smallest;
                let free = |r: usize| used[r].filter(|_| !closed).map_or(0.0, |used| (longest - used).max(0.0));
                let sram = if closed { 0.0 } else { sram_share(backbone, spare).max(0.0) };
                let value = goal.value(cost.time_s(backbone.overlap), cost.compute_s, cost.dram_bytes);
                if arcs.len() == MOST_ARCS {
                    return None;
                }
                arcs.push(Arc { to: step.to as u32, base: value, free: [free(0), free(1), free(2), sram] });
            }
            stack.push((step.to, ideals.first[step.to], step.kernel + 1, spent));
        }
        first.push(arcs.len());
    }
    Some((arcs, first))
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

/// What the pooled kernels need wherever they run; `shared_bytes` are loaded by some of them.
fn pool(instance: &Instance, pooled: &[bool], shared_bytes: f64) -> Pool {
    let goal = &instance.goal;
    let additive_compute = instance.kernels.iter().all(|k| matches!(k.compute, Compute::Seconds(_)));
    let members: Vec<usize> = (0..pooled.len()).filter(|k| pooled[*k]).collect();
    let mut pool = Pool { kernels: members.len(), ..Pool::default() };
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
    let mut put = |compute: f64, dram_bytes: f64, network: f64, serial: f64| {
        let dram_s = dram_bytes / instance.dram_bytes_per_s;
        let (needs, _, rest) = overlapped(instance, [compute, dram_s, network], compute);
        needs.iter().enumerate().for_each(|(r, need)| pool.needs[r] += need.unwrap_or(0.0));
        let busy = if additive_compute { compute } else { 0.0 };
        pool.fixed += goal.value(serial + rest, busy, dram_bytes);
    };
    put(0.0, shared_bytes, 0.0, 0.0);
    let mut of_loners = 0.0;
    for &k in &members {
        let kernel = &instance.kernels[k];
        let own = bytes[k] + kernel.dram_bytes;
        let compute = fluid_s(instance, k);
        if kernel.pieces > 1 {
            let dram_s = own / instance.dram_bytes_per_s;
            let time = combine(instance.overlap, compute, dram_s, kernel.network_s)
                + kernel.serial_s
                + instance.partition_overhead_s;
            of_loners += goal.value(time, compute, own);
            continue;
        }
        put(compute, own, kernel.network_s, kernel.serial_s);
    }
    pool.fixed += of_loners;
    let residents = members.iter().filter(|k| !alone(**k)).map(|k| instance.kernels[*k].resident_bytes + sram[*k]);
    pool.smallest = residents.clone().fold(f64::INFINITY, f64::min);
    pool.needs[3] = sram_share(instance, residents.sum());
    pool
}

/// The dual problem.
struct Dual<'a> {
    instance: &'a Instance,
    pool: Pool,
    arcs: Vec<Arc>,
    first: Vec<usize>,
}

struct ShortestPath {
    length: f64,
    /// The arc that each ideal is reached by.
    by: Vec<(u32, u32)>,
}

impl Dual<'_> {
    /// Most that each price may be: a second, and the overhead of a partition.
    fn most(&self) -> Prices {
        let i = self.instance;
        let room = 1.0 - sram_share(i, i.base_sram_bytes);
        let sram = if room > 0.0 { i.goal.second * i.partition_overhead_s / room } else { 0.0 };
        [i.goal.second, i.goal.second, i.goal.second, sram]
    }

    fn shortest(&self, price: &Prices) -> Option<ShortestPath> {
        let n = self.first.len() - 1;
        let mut best = vec![f64::INFINITY; n];
        let mut by = vec![(u32::MAX, u32::MAX); n];
        best[0] = 0.0;
        for i in 0..n {
            if best[i].is_infinite() {
                continue;
            }
            for a in self.first[i]..self.first[i + 1] {
                let arc = &self.arcs[a];
                let saved: f64 = price.iter().zip(&arc.free).map(|(p, f)| p * f).sum();
                let through = best[i] + arc.base - saved;
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

    /// The dual value of prices (shares of the most allowed), and its slope.
    fn value(&self, shares: &Prices) -> Option<(f64, Prices)> {
        let most = self.most();
        let price: Prices = std::array::from_fn(|r| shares[r] * most[r]);
        let path = self.shortest(&price)?;
        let needs = &self.pool.needs;
        let value = path.length + self.pool.fixed + price.iter().zip(needs).map(|(p, need)| p * need).sum::<f64>();
        let mut slope = *needs;
        for (_, a) in self.chain(&path) {
            slope.iter_mut().zip(&self.arcs[a].free).for_each(|(s, free)| *s -= free);
        }
        slope.iter_mut().zip(&most).for_each(|(s, most)| *s *= most);
        Some((value, slope))
    }

    /// The best dual value found.
    fn ascend(&self, upper: f64, start: &mut Option<Prices>, deadline: Deadline) -> Option<f64> {
        let rounds = (WORK / self.arcs.len().max(1)).clamp(12, 80);
        let corners =
            [[0.0; 4], [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.5, 0.5, 0.0, 0.5]];
        let mut best = f64::NEG_INFINITY;
        let mut best_at = [0.0; 4];
        for at in start.iter().copied().chain(corners) {
            let (value, _) = self.value(&at)?;
            if value > best {
                (best, best_at) = (value, at);
            }
        }
        let (mut at, mut pace, mut stale) = (best_at, 1.0, 0);
        for _ in 0..rounds {
            if best >= upper * (1.0 - 1e-7) || pace < 1e-3 || deadline.is_over() {
                break;
            }
            let (value, slope) = self.value(&at)?;
            if value > best {
                (best, best_at, stale) = (value, at, 0);
            } else {
                stale += 1;
                if stale == 4 {
                    (pace, stale, at) = (pace / 2.0, 0, best_at);
                    continue;
                }
            }
            let norm: f64 = slope.iter().map(|s| s * s).sum();
            let target = if upper.is_finite() { upper - value } else { value.abs() * 0.05 };
            if norm <= 0.0 || target <= 0.0 {
                break;
            }
            let step = pace * target / norm;
            at = allowed(std::array::from_fn(|r| at[r] + step * slope[r]));
        }
        *start = Some(best_at);
        Some(best)
    }
}

/// The nearest prices that are allowed: shares of at least zero; those of a second together at most one.
fn allowed(mut at: Prices) -> Prices {
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
    at
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
