//! Fusion and tiling inside a chip, as a MILP (design section 6.4; DFModel's intra-chip pass, model.md section 5).
//!
//! Sets: kernels k, partitions p = 0..P-1 that run one after another, tensors t with producer u(t) and consumers v,
//! core options o of a kernel where the chip's cores are shared.
//!
//! ```text
//! Variables
//!   A[k,p]     binary   kernel k runs in partition p
//!   x[k,p,o]   binary   ... with core option o (F7)
//!   z[p]       binary   partition p is used (only where partitions have an overhead, or their number a limit below P)
//!   st[t,p]    [0,1]    t is stored from p
//!   ld[t,p]    >= 0     seconds to load t into p
//!   buf[t,p]   >= 0     share of the SRAM that t takes in p
//!   live[t,p]  [0,1]    t waits in DRAM while p runs (only where DRAM could be short)
//!   c[p], pace[p], time[p] >= 0  seconds of arithmetic; of the steady pipeline of tiles; of the partition
//!   begin[k]   >= 0     part of the pass by which k begins after the first kernel of its partition (only where pipelines fill)
//!   late[p,i]  binary   the last kernel of p begins by at least the i-th of the lags that ways through the graph add up to
//! Seconds are divided by the problem's lower bound and bytes by the capacity they are held against, so that every
//! coefficient is about one.
//!
//! Objective: sum of time[p], plus what no choice changes. For another goal than time (`instance::Goal`) the sum of
//! second * time[p] + busy_second * c[p] + dram_byte * (bytes of st and ld in p).
//!
//! Constraints, each family in the function that emits it ([`emit_assignment`], ...)
//!   F1  sum_p A[k,p] = 1
//!   F2  for t: u -> v and each p: sum_{q<=p} A[u,q] >= sum_{q<=p} A[v,q]
//!   F3  on chip iff both ends are in p: A[u,p] + A[v,p] - 1 bounds buf from below
//!   F4  st[t,p] >= A[u,p] - A[v,p];  ld[t,p] >= load * (A[v,p] - A[u,p]);
//!       live[t,p] >= sum_{q<=p} A[u,q] - sum_{q<p} A[v,q] + sum_q st[t,q] - 1
//!   F5  sum_k resident_k A[k,p] + sum_t buf[t,p] <= 1 - (weights that stay on chip), where for each consumer
//!       buf >= the buffer of its case: passed on chip, loaded, or stored
//!   F6  sum_t live_t live[t,p] <= 1
//!   F7  sum_o x[k,p,o] = A[k,p];  sum cores x <= cores;  c[p] >= sum_o seconds x[k,p,o];
//!       sum cores seconds x <= cores c[p] (core-seconds; implied, and what makes the bound tight)
//!   F8  pace[p] >= each part that overlaps, or their sum;  time[p] >= pace[p]
//!   F9  a kernel that fits only in pieces is alone, as is every kernel of a chip that runs kernel by kernel; used partitions come first; pins;
//!       sum of z[p] <= the limit
//!   F10 begin[v] >= begin[u] + lag - M (2 - A[u,p] - A[v,p]) for t: u -> v;  sum_i (lag_i - lag_(i-1)) late[p,i] >= begin[k] - M (1 - A[k,p]);
//!       late[p,i] <= late[p,i-1];  time[p] >= (1 + lag_i) pace[p] - lag_i U (1 - late[p,i]), U no less than any pace
//! ```
//!
//! Forward kernels have the first partitions and backward kernels the rest where the phases are kept apart.
//! Not modelled: several tile counts in one mapping.

use super::instance::{Compute, Instance, combine};
use super::solver::{Limits, Milp, Solved, SolverError, solve};
use super::tiling;
use crate::system::Overlap;

/// The MILP of an instance and the meaning of its columns.
#[derive(Debug, Clone)]
pub struct FusionModel {
    /// The programme.
    pub milp: Milp,
    /// Column of A[k,p], where k may be in p.
    assign: Vec<Vec<Option<usize>>>,
    /// Columns of x[k,p,o].
    core: Vec<Vec<Vec<usize>>>,
    /// Columns of st[t,p].
    stored: Vec<Vec<Option<usize>>>,
    /// Columns of z[p].
    used: Vec<Option<usize>>,
    /// Columns of late[p,i], and the lag that each stands for.
    late: Vec<Vec<(usize, f64)>>,
    /// Seconds of one unit of the time columns.
    time_scale: f64,
    /// Seconds (or what the goal counts in) of one unit of the objective.
    scale: f64,
}

/// How many partitions each phase may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionCounts {
    /// Of forward kernels (or of all, where the phases are not kept apart).
    pub forward: usize,
    /// Of backward kernels.
    pub backward: usize,
}

impl PartitionCounts {
    /// As many as an assignment uses, and `more` in each phase.
    pub fn of(instance: &Instance, assignment: &[usize], more: usize) -> Self {
        let count = |backward: bool| {
            let mut used: Vec<usize> = assignment
                .iter()
                .zip(&instance.kernels)
                .filter(|(_, k)| !instance.separate_phases || k.backward == backward)
                .map(|(p, _)| *p)
                .collect();
            used.sort_unstable();
            used.dedup();
            used.len()
        };
        let kernels = |backward: bool| instance.kernels.iter().filter(|k| k.backward == backward).count();
        if instance.separate_phases {
            Self {
                forward: (count(false) + more).min(kernels(false)),
                backward: (count(true) + more).min(kernels(true)),
            }
        } else {
            Self { forward: (count(false) + more).min(instance.kernels.len()), backward: 0 }
        }
    }
    fn total(self) -> usize {
        self.forward + self.backward
    }
    /// About how many coefficients the MILP of an instance has: those of F2 and F9, which grow fastest.
    pub fn coefficients(self, instance: &Instance) -> u64 {
        let (p, n) = (self.total() as u64, instance.kernels.len() as u64);
        let reads: usize = instance.tensors.iter().filter(|t| t.producer.is_some()).map(|t| t.uses.len()).sum();
        let first = if instance.kernel_by_kernel { n } else { n.saturating_mul(n) };
        let late = lags(instance).1.iter().map(|ways| ways.len() as u64).max().unwrap_or(0);
        (reads as u64)
            .saturating_mul(p.saturating_mul(p))
            .saturating_add(first.saturating_mul(p))
            .saturating_add(late.saturating_mul(p.saturating_mul(n)))
    }
}

/// Builds the MILP with the given number of partitions.
pub fn build(instance: &Instance, counts: PartitionCounts) -> FusionModel {
    let scale = Some(instance.lower_bound()).filter(|s| *s > 0.0 && s.is_finite()).unwrap_or(1.0);
    let unit = match instance.goal.is_time() {
        true => scale,
        false => Some(instance.least_value()).filter(|s| *s > 0.0 && s.is_finite()).unwrap_or(1.0),
    };
    let n = instance.kernels.len();
    let mut model = FusionModel {
        milp: Milp::default(),
        assign: vec![vec![None; counts.total()]; n],
        core: vec![vec![Vec::new(); counts.total()]; n],
        stored: vec![vec![None; counts.total()]; instance.tensors.len()],
        used: vec![None; counts.total()],
        late: vec![Vec::new(); counts.total()],
        time_scale: scale,
        scale: unit,
    };
    emit_assignment(&mut model, instance, counts);
    emit_order(&mut model, instance, counts);
    emit_partitions(&mut model, instance, counts);
    emit_lags(&mut model, instance, counts);
    emit_memory_and_time(&mut model, instance, counts);
    model
}

impl FusionModel {
    /// A[k,p] as terms; empty where k cannot be in p.
    fn a(&self, k: usize, p: usize, factor: f64) -> Vec<(usize, f64)> {
        self.assign[k].get(p).copied().flatten().map(|c| (c, factor)).into_iter().collect()
    }
    /// sum_{q<=p} A[k,q] as terms.
    fn prefix(&self, k: usize, p: usize, factor: f64) -> Vec<(usize, f64)> {
        (0..=p).flat_map(|q| self.a(k, q, factor)).collect()
    }
}

/// F1, and the columns A and x.
fn emit_assignment(model: &mut FusionModel, instance: &Instance, counts: PartitionCounts) {
    for (k, kernel) in instance.kernels.iter().enumerate() {
        let range = match (instance.separate_phases, kernel.backward) {
            (false, _) => 0..counts.total(),
            (true, false) => 0..counts.forward,
            (true, true) => counts.forward..counts.total(),
        };
        for p in range {
            if instance.pins[k].is_none_or(|pin| pin == p) {
                model.assign[k][p] = Some(model.milp.binary(format!("A_{k}_{p}"), 0.0));
            }
        }
        let all = (0..counts.total()).flat_map(|p| model.a(k, p, 1.0)).collect();
        model.milp.equal(format!("F1_{k}"), all, 1.0);
        if let Compute::Cores(options) = &kernel.compute {
            for p in 0..counts.total() {
                if model.assign[k][p].is_none() {
                    continue;
                }
                let columns: Vec<usize> =
                    (0..options.len()).map(|o| model.milp.binary(format!("x_{k}_{p}_{o}"), 0.0)).collect();
                let mut terms: Vec<(usize, f64)> = columns.iter().map(|c| (*c, 1.0)).collect();
                terms.extend(model.a(k, p, -1.0));
                model.milp.equal(format!("F7_one_{k}_{p}"), terms, 0.0);
                model.core[k][p] = columns;
            }
        }
    }
}

/// F2.
fn emit_order(model: &mut FusionModel, instance: &Instance, counts: PartitionCounts) {
    let mut seen = std::collections::BTreeSet::new();
    for tensor in &instance.tensors {
        let Some(u) = tensor.producer else { continue };
        for v in tensor.uses.iter().map(|u| u.kernel) {
            let apart = instance.separate_phases && instance.kernels[u].backward != instance.kernels[v].backward;
            if apart || !seen.insert((u, v)) {
                continue;
            }
            for p in 0..counts.total() - 1 {
                let mut terms = model.prefix(u, p, 1.0);
                terms.extend(model.prefix(v, p, -1.0));
                model.milp.at_least(format!("F2_{u}_{v}_{p}"), terms, 0.0);
            }
        }
    }
}

/// F9, and the overhead of used partitions.
fn emit_partitions(model: &mut FusionModel, instance: &Instance, counts: PartitionCounts) {
    let n = instance.kernels.len();
    let total = counts.total();
    for p in 0..total {
        for (k, kernel) in instance.kernels.iter().enumerate() {
            if kernel.pieces <= 1 || model.assign[k][p].is_none() {
                continue;
            }
            for other in (0..n).filter(|other| *other != k && (*other > k || instance.kernels[*other].pieces <= 1)) {
                let mut terms = model.a(k, p, 1.0);
                let more = model.a(other, p, 1.0);
                if !more.is_empty() {
                    terms.extend(more);
                    model.milp.at_most(format!("F9_alone_{k}_{other}_{p}"), terms, 1.0);
                }
            }
        }
    }
    if instance.kernel_by_kernel {
        for p in 0..total {
            let all = (0..n).flat_map(|k| model.a(k, p, 1.0)).collect();
            model.milp.at_most(format!("F9_single_{p}"), all, 1.0);
        }
    }
    let limited = instance.max_partitions.filter(|most| total > *most);
    if instance.partition_overhead_s > 0.0 || limited.is_some() {
        for p in 0..total {
            let cost = instance.partition_overhead_s / model.time_scale * model.second(instance);
            let z = model.milp.binary(format!("z_{p}"), cost);
            model.used[p] = Some(z);
            for k in 0..n {
                let mut terms = model.a(k, p, -1.0);
                if !terms.is_empty() {
                    terms.push((z, 1.0));
                    model.milp.at_least(format!("F9_used_{k}_{p}"), terms, 0.0);
                }
            }
        }
    }
    if let Some(most) = limited {
        let used = model.used.iter().flatten().map(|z| (*z, 1.0)).collect();
        model.milp.at_most("F9_most".into(), used, most as f64);
    }
    // Used partitions first: a kernel in p needs some kernel in the partition before (of its phase). Pins count
    // positions from the start, so partitions before a pinned one must be used too, which this also ensures.
    for p in (1..total).filter(|p| *p != counts.forward) {
        if instance.kernel_by_kernel {
            // At most one kernel in each: the rows below added up say as much.
            let mut terms: Vec<(usize, f64)> = (0..n).flat_map(|k| model.a(k, p - 1, 1.0)).collect();
            terms.extend((0..n).flat_map(|k| model.a(k, p, -1.0)));
            model.milp.at_least(format!("F9_first_{p}"), terms, 0.0);
            continue;
        }
        for k in 0..n {
            let mut terms: Vec<(usize, f64)> = (0..n).flat_map(|other| model.a(other, p - 1, 1.0)).collect();
            let own = model.a(k, p, -1.0);
            if !own.is_empty() {
                terms.extend(own);
                model.milp.at_least(format!("F9_first_{k}_{p}"), terms, 0.0);
            }
        }
    }
}

/// Between kernels (producer, reader, lag), and the sums of each kernel.
type Lags = (Vec<(usize, usize, f64)>, Vec<Vec<f64>>);

/// The lags between kernels that may share a partition, and for each kernel all that they can add up to on ways
/// that end at it, ascending; none where no pipeline fills.
fn lags(instance: &Instance) -> Lags {
    let mut between = std::collections::BTreeMap::new();
    for tensor in &instance.tensors {
        let Some(from) = tensor.producer else { continue };
        for u in &tensor.uses {
            let apart =
                instance.separate_phases && instance.kernels[from].backward != instance.kernels[u.kernel].backward;
            if !apart {
                let lag: &mut f64 = between.entry((u.kernel, from)).or_default();
                *lag = lag.max(u.lag);
            }
        }
    }
    let mut ways: Vec<Vec<f64>> = vec![Vec::new(); instance.kernels.len()];
    if instance.kernel_by_kernel || between.values().all(|lag| *lag <= 0.0) {
        return (Vec::new(), ways);
    }
    // By readers, of which each comes after what it reads.
    for ((reader, from), lag) in &between {
        let more: Vec<f64> = ways[*from].iter().map(|way| way + lag).chain([*lag]).filter(|way| *way > 0.0).collect();
        ways[*reader].extend(more);
        merge(&mut ways[*reader]);
    }
    (between.into_iter().map(|((reader, from), lag)| (from, reader, lag)).collect(), ways)
}

/// Sorts lags; those that differ by rounding alone become one, the largest.
fn merge(lags: &mut Vec<f64>) {
    lags.sort_unstable_by(|a, b| b.total_cmp(a));
    lags.dedup_by(|less, more| *more - *less <= 1e-9 * *more);
    lags.reverse();
}

/// F10 but for the time.
fn emit_lags(model: &mut FusionModel, instance: &Instance, counts: PartitionCounts) {
    let (between, ways) = lags(instance);
    let most = |k: usize| ways[k].last().copied().unwrap_or(0.0);
    for p in 0..counts.total() {
        let inside = (0..ways.len()).filter(|k| model.assign[*k][p].is_some());
        let mut levels: Vec<f64> = inside.flat_map(|k| ways[k].iter().copied()).collect();
        merge(&mut levels);
        for (i, lag) in levels.into_iter().enumerate() {
            let column = model.milp.binary(format!("late_{p}_{i}"), 0.0);
            if let Some((before, _)) = model.late[p].last() {
                model.milp.at_least(format!("F10_late_{p}_{i}"), vec![(*before, 1.0), (column, -1.0)], 0.0);
            }
            model.late[p].push((column, lag));
        }
    }
    // Ascending, so that what a kernel waits for is known when a point is completed.
    let begin: Vec<Option<usize>> = (0..ways.len())
        .map(|k| (!ways[k].is_empty()).then(|| model.milp.continuous(format!("begin_{k}"), f64::INFINITY, 0.0)))
        .collect();
    for (from, reader, lag) in between {
        let Some(of_reader) = begin[reader] else { continue };
        let large = most(from) + lag;
        for p in 0..counts.total() {
            if model.assign[from][p].is_none() || model.assign[reader][p].is_none() {
                continue;
            }
            let mut terms = vec![(of_reader, 1.0)];
            terms.extend(begin[from].map(|of| (of, -1.0)));
            terms.extend(model.a(from, p, -large));
            terms.extend(model.a(reader, p, -large));
            model.milp.at_least(format!("F10_begin_{from}_{reader}_{p}"), terms, lag - 2.0 * large);
        }
    }
    for p in 0..counts.total() {
        for (k, begin) in begin.iter().enumerate() {
            let Some(begin) = begin.filter(|_| model.assign[k][p].is_some()) else { continue };
            let mut before = 0.0;
            let mut terms = vec![(begin, -1.0)];
            for (column, lag) in &model.late[p] {
                terms.push((*column, lag - before));
                before = *lag;
            }
            terms.extend(model.a(k, p, -most(k)));
            model.milp.at_least(format!("F10_last_{k}_{p}"), terms, -most(k));
        }
    }
}

/// No partition's steady pipeline takes longer, seconds.
fn longest_pace(instance: &Instance) -> f64 {
    let compute = instance.kernels.iter().map(|k| match &k.compute {
        Compute::Seconds(s) => (*s, 0.0),
        Compute::Cores(options) => (0.0, options.iter().map(|o| o.seconds).fold(0.0, f64::max)),
    });
    let (seconds, slowest) = compute.fold((0.0, 0.0_f64), |(sum, most), (s, o)| (sum + s, most.max(o)));
    let load = |t: &super::instance::TensorCost| t.uses.iter().map(|u| u.load_bytes).fold(0.0, f64::max);
    let bytes = instance.kernels.iter().map(|k| k.dram_bytes).sum::<f64>()
        + instance.tensors.iter().map(|t| t.store_bytes + load(t)).sum::<f64>();
    let network = instance.kernels.iter().map(|k| k.network_s).sum();
    combine(instance.overlap, seconds + slowest, bytes / instance.dram_bytes_per_s, network)
}

/// F3 to F8.
fn emit_memory_and_time(model: &mut FusionModel, instance: &Instance, counts: PartitionCounts) {
    let total = counts.total();
    let per_byte = 1.0 / (instance.dram_bytes_per_s * model.time_scale);
    let sram = instance.sram_bytes;
    let all_live: f64 = instance.tensors.iter().map(|t| t.live_bytes).sum();
    let live_matters = all_live > instance.live_limit && instance.live_limit.is_finite();

    let mut dram: Vec<Vec<(usize, f64)>> = vec![Vec::new(); total];
    let mut space: Vec<Vec<(usize, f64)>> = vec![Vec::new(); total];
    let mut waiting: Vec<Vec<(usize, f64)>> = vec![Vec::new(); total];
    for (t, tensor) in instance.tensors.iter().enumerate() {
        emit_tensor(model, instance, t, total, per_byte, &mut dram, &mut space);
        if live_matters && tensor.live_bytes > 0.0 {
            emit_live(model, instance, t, total, &mut waiting);
        }
    }
    for p in 0..total {
        let mut network: Vec<(usize, f64)> = Vec::new();
        let mut compute: Vec<(usize, f64)> = Vec::new();
        let mut has_cores = false;
        for (k, kernel) in instance.kernels.iter().enumerate() {
            if model.assign[k][p].is_none() {
                continue;
            }
            network.extend(model.a(k, p, kernel.network_s / model.time_scale));
            dram[p].extend(model.a(k, p, kernel.dram_bytes * per_byte));
            space[p].extend(model.a(k, p, kernel.resident_bytes / sram));
            match &kernel.compute {
                Compute::Seconds(s) => compute.extend(model.a(k, p, s / model.time_scale)),
                Compute::Cores(_) => has_cores = true,
            }
        }
        if !space[p].is_empty() {
            model.milp.at_most(format!("F5_{p}"), std::mem::take(&mut space[p]), 1.0 - instance.base_sram_bytes / sram);
        }
        if !waiting[p].is_empty() {
            model.milp.at_most(format!("F6_{p}"), std::mem::take(&mut waiting[p]), 1.0);
        }
        if has_cores {
            let slowest = emit_cores(model, instance, p);
            compute.push((slowest, 1.0));
        }
        let dram = std::mem::take(&mut dram[p]);
        if !instance.goal.is_time() {
            let busy = instance.goal.busy_second * model.time_scale / model.scale;
            let traffic = instance.goal.dram_byte * instance.dram_bytes_per_s * model.time_scale / model.scale;
            for (terms, worth) in [(&compute, busy), (&dram, traffic)] {
                terms.iter().for_each(|(c, a)| model.milp.columns[*c].cost += a * worth);
            }
        }
        emit_time(model, instance, p, compute, dram, network);
    }
    let serial = instance.kernels.iter().map(|k| k.serial_s).sum::<f64>();
    model.milp.constant += serial / model.time_scale * model.second(instance);
}

/// F3, F4, F5 of one tensor: store, load, buffer.
fn emit_tensor(
    model: &mut FusionModel,
    instance: &Instance,
    t: usize,
    total: usize,
    per_byte: f64,
    dram: &mut [Vec<(usize, f64)>],
    space: &mut [Vec<(usize, f64)>],
) {
    let tensor = &instance.tensors[t];
    let sram = instance.sram_bytes;
    for p in 0..total {
        let made = tensor.producer.map_or(Vec::new(), |u| model.a(u, p, 1.0));
        // st: whole where it is an output; else as far as some consumer is elsewhere.
        let stored: Vec<(usize, f64)> = if made.is_empty() || (!tensor.output && tensor.uses.is_empty()) {
            Vec::new()
        } else if tensor.output {
            made.clone()
        } else {
            let st = model.milp.continuous(format!("st_{t}_{p}"), 1.0, 0.0);
            model.stored[t][p] = Some(st);
            for u in &tensor.uses {
                let mut terms = vec![(st, 1.0)];
                terms.extend(negate(&made));
                terms.extend(model.a(u.kernel, p, 1.0));
                model.milp.at_least(format!("F4_st_{t}_{p}_{}", u.kernel), terms, 0.0);
            }
            vec![(st, 1.0)]
        };
        dram[p].extend(stored.iter().map(|(c, a)| (*c, a * tensor.store_bytes * per_byte)));

        let here: Vec<_> = tensor.uses.iter().filter(|u| model.assign[u.kernel][p].is_some()).collect();
        if here.iter().any(|u| u.load_bytes > 0.0) {
            let ld = model.milp.continuous(format!("ld_{t}_{p}"), f64::INFINITY, 0.0);
            for u in &here {
                let amount = u.load_bytes * per_byte;
                let mut terms = vec![(ld, 1.0)];
                terms.extend(model.a(u.kernel, p, -amount));
                terms.extend(made.iter().map(|(c, a)| (*c, a * amount)));
                model.milp.at_least(format!("F4_ld_{t}_{p}_{}", u.kernel), terms, 0.0);
            }
            dram[p].push((ld, 1.0));
        }

        if here.is_empty() && stored.is_empty() {
            continue;
        }
        let buf = model.milp.continuous(format!("buf_{t}_{p}"), f64::INFINITY, 0.0);
        space[p].push((buf, 1.0));
        for u in &here {
            // A consumer in p takes at least the smaller of its two buffers; the rest depends on where the producer is.
            let (chip, load) = (u.onchip_buffer / sram, u.load_buffer / sram);
            let least = chip.min(load);
            let mut terms = vec![(buf, 1.0)];
            let mut right = 0.0;
            terms.extend(model.a(u.kernel, p, -least));
            if !made.is_empty() && chip > load {
                terms.extend(model.a(u.kernel, p, -(chip - load)));
                terms.extend(made.iter().map(|(c, a)| (*c, -a * (chip - load))));
                right -= chip - load;
            } else if load > chip || made.is_empty() {
                terms.extend(model.a(u.kernel, p, -(load - least)));
                terms.extend(made.iter().map(|(c, a)| (*c, a * (load - least))));
            }
            model.milp.at_least(format!("F5_use_{t}_{p}_{}", u.kernel), terms, right);
        }
        if !stored.is_empty() {
            let mut terms = vec![(buf, 1.0)];
            terms.extend(stored.iter().map(|(c, a)| (*c, -a * tensor.store_buffer / sram)));
            model.milp.at_least(format!("F5_store_{t}_{p}"), terms, 0.0);
        }
    }
}

/// F4 and F6 of one tensor: whether it waits in DRAM.
fn emit_live(model: &mut FusionModel, instance: &Instance, t: usize, total: usize, waiting: &mut [Vec<(usize, f64)>]) {
    let tensor = &instance.tensors[t];
    let share = tensor.live_bytes / instance.live_limit.max(f64::MIN_POSITIVE);
    // Stored at all: an output or an input always, else the sum of st.
    let stored: Option<Vec<(usize, f64)>> = match tensor.producer {
        Some(_) if !tensor.output => Some(model.stored[t].iter().flatten().map(|c| (*c, 1.0)).collect()),
        _ => None,
    };
    for (p, waiting) in waiting.iter_mut().enumerate().take(total) {
        let live = model.milp.continuous(format!("live_{t}_{p}"), 1.0, 0.0);
        waiting.push((live, share));
        let made = tensor.producer.map(|u| model.prefix(u, p, 1.0));
        if tensor.output {
            let mut terms = vec![(live, 1.0)];
            terms.extend(negate(&made.clone().unwrap_or_default()));
            let right = if made.is_some() { 0.0 } else { 1.0 };
            model.milp.at_least(format!("F6_out_{t}_{p}"), terms, right);
        }
        for u in &tensor.uses {
            let mut terms = vec![(live, 1.0)];
            let mut right = 0.0;
            match &made {
                Some(made) => terms.extend(negate(made)),
                None => right += 1.0,
            }
            if p > 0 {
                terms.extend(model.prefix(u.kernel, p - 1, 1.0));
            }
            if let Some(stored) = &stored {
                terms.extend(negate(stored));
                right -= 1.0;
            }
            model.milp.at_least(format!("F6_live_{t}_{p}_{}", u.kernel), terms, right);
        }
    }
}

/// F7 of one partition; returns the column of the slowest kernel's seconds.
fn emit_cores(model: &mut FusionModel, instance: &Instance, p: usize) -> usize {
    let cores = instance.cores as f64;
    let slowest = model.milp.continuous(format!("c_{p}"), f64::INFINITY, 0.0);
    let mut used = Vec::new();
    let mut area = vec![(slowest, 1.0)];
    for (k, kernel) in instance.kernels.iter().enumerate() {
        let Compute::Cores(options) = &kernel.compute else { continue };
        if model.core[k][p].is_empty() {
            continue;
        }
        let columns = &model.core[k][p];
        let mut terms = vec![(slowest, 1.0)];
        for (c, o) in columns.iter().zip(options) {
            used.push((*c, o.cores as f64 / cores));
            area.push((*c, -(o.cores as f64) * o.seconds / (cores * model.time_scale)));
            terms.push((*c, -o.seconds / model.time_scale));
        }
        model.milp.at_least(format!("F7_slowest_{k}_{p}"), terms, 0.0);
    }
    model.milp.at_most(format!("F7_cores_{p}"), used, 1.0);
    model.milp.at_least(format!("F7_area_{p}"), area, 0.0);
    slowest
}

/// F8.
fn emit_time(
    model: &mut FusionModel,
    instance: &Instance,
    p: usize,
    compute: Vec<(usize, f64)>,
    dram: Vec<(usize, f64)>,
    network: Vec<(usize, f64)>,
) {
    let second = model.second(instance);
    let fills = !model.late[p].is_empty();
    let pace = match fills {
        true => model.milp.continuous(format!("pace_{p}"), f64::INFINITY, 0.0),
        false => model.milp.continuous(format!("time_{p}"), f64::INFINITY, second),
    };
    let groups: Vec<Vec<(usize, f64)>> = match instance.overlap {
        Overlap::Full => vec![compute, dram, network],
        Overlap::ComputeMemory => {
            vec![[compute, network.clone()].concat(), [dram, network].concat()]
        }
        Overlap::None => vec![[compute, dram, network].concat()],
    };
    for (i, group) in groups.into_iter().enumerate() {
        let mut terms = vec![(pace, 1.0)];
        terms.extend(negate(&group));
        model.milp.at_least(format!("F8_{p}_{i}"), terms, 0.0);
    }
    if !fills {
        return;
    }
    let time = model.milp.continuous(format!("time_{p}"), f64::INFINITY, second);
    model.milp.at_least(format!("F8_pace_{p}"), vec![(time, 1.0), (pace, -1.0)], 0.0);
    let most = longest_pace(instance) / model.time_scale;
    for (i, (late, lag)) in model.late[p].clone().into_iter().enumerate() {
        let terms = vec![(time, 1.0), (pace, -1.0 - lag), (late, -lag * most)];
        model.milp.at_least(format!("F10_time_{p}_{i}"), terms, -lag * most);
    }
}

fn negate(terms: &[(usize, f64)]) -> Vec<(usize, f64)> {
    terms.iter().map(|(c, a)| (*c, -a)).collect()
}

impl FusionModel {
    /// The point of an assignment, to start a solver from. `None` where the assignment is not of this model.
    pub fn point(&self, instance: &Instance, assignment: &[usize], counts: PartitionCounts) -> Option<Vec<f64>> {
        let mut values = vec![0.0; self.milp.columns.len()];
        let slots = self.slots(instance, assignment, counts);
        for (k, slot) in slots.iter().enumerate() {
            values[self.assign[k].get(*slot).copied().flatten()?] = 1.0;
        }
        for p in 0..counts.total() {
            let members: Vec<usize> = (0..assignment.len()).filter(|k| slots[*k] == p).collect();
            if let Some(z) = self.used[p] {
                values[z] = f64::from(u8::from(!members.is_empty()));
            }
            let with_cores: Vec<(usize, &[_])> = members
                .iter()
                .filter_map(|k| match &instance.kernels[*k].compute {
                    Compute::Cores(o) => Some((*k, o.as_slice())),
                    Compute::Seconds(_) => None,
                })
                .collect();
            let lag = instance.lag_of(&members);
            for (late, at_least) in &self.late[p] {
                values[*late] = f64::from(u8::from(*at_least <= lag * (1.0 + 1e-9)));
            }
            let options: Vec<&[_]> = with_cores.iter().map(|(_, o)| *o).collect();
            let (_, chosen) = tiling::split(&options, instance.cores)?;
            for ((k, _), o) in with_cores.iter().zip(chosen) {
                values[self.core[*k][p][o]] = 1.0;
            }
        }
        self.milp.complete(&mut values);
        Some(values)
    }

    /// Partition index in the model of each kernel: backward partitions start after all forward ones.
    fn slots(&self, instance: &Instance, assignment: &[usize], counts: PartitionCounts) -> Vec<usize> {
        if !instance.separate_phases {
            return assignment.to_vec();
        }
        let first =
            assignment.iter().zip(&instance.kernels).filter(|(_, k)| k.backward).map(|(p, _)| *p).min().unwrap_or(0);
        assignment
            .iter()
            .zip(&instance.kernels)
            .map(|(p, k)| if k.backward { p - first + counts.forward } else { *p })
            .collect()
    }

    /// The assignment of a point, partitions renumbered without gaps.
    pub fn assignment(&self, values: &[f64]) -> Vec<usize> {
        let slots: Vec<usize> = self
            .assign
            .iter()
            .map(|row| {
                (0..row.len())
                    .filter_map(|p| row[p].map(|c| (p, values[c])))
                    .max_by(|a, b| a.1.total_cmp(&b.1))
                    .map_or(0, |(p, _)| p)
            })
            .collect();
        let mut used = slots.clone();
        used.sort_unstable();
        used.dedup();
        slots.iter().map(|s| used.partition_point(|u| u < s)).collect()
    }

    /// Objective of one unit of a time column.
    fn second(&self, instance: &Instance) -> f64 {
        if instance.goal.is_time() { 1.0 } else { instance.goal.second * self.time_scale / self.scale }
    }

    /// Seconds, or what the goal counts in, of one unit of the programme's objective.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Solves the model; objective and bound of the record are in seconds, or in what the goal counts.
    ///
    /// # Errors
    /// [`SolverError`] of the solver.
    pub fn solve(&self, limits: &Limits, start: Option<&[f64]>) -> Result<Solved, SolverError> {
        let mut solved = solve(&self.milp, limits, start)?;
        solved.record.objective *= self.scale;
        solved.record.bound *= self.scale;
        Ok(solved)
    }
}
