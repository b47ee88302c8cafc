//! The numbers of one fusion problem: a workload on a system with degrees, sharding and tile count chosen.
//!
//! All times are seconds, all sizes bytes, of one pass over one layer on one chip. [`Instance::partition`] says what a
//! set of kernels costs as one partition; the MILP ([`super::fusion`]) and the shortest path ([`super::exact`]) both
//! minimise the sum of it over the partitions.

use crate::model::compute::CoreOption;
pub use crate::model::rate::Compute;
use crate::system::options::Overlap;
use std::collections::BTreeMap;

/// One kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelCost {
    /// Compute time.
    pub compute: Compute,
    /// Seconds of collectives: its own, and the conversions charged to it.
    pub network_s: f64,
    /// Seconds that nothing overlaps.
    pub serial_s: f64,
    /// SRAM bytes held through its partition: its weight, or the gradient it accumulates, or a piece of either.
    pub resident_bytes: f64,
    /// DRAM bytes it moves wherever it runs: weights, gradients, look-ups, repeated inputs.
    pub dram_bytes: f64,
    /// It fits the chip only alone, piece by piece: pieces of its resident bytes (1 = fits whole).
    pub pieces: u64,
    /// Whether it belongs to the backward pass.
    pub backward: bool,
}

/// One consumer of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct UseCost {
    /// The kernel.
    pub kernel: usize,
    /// DRAM bytes to load it.
    pub load_bytes: f64,
    /// SRAM bytes while it is loaded from DRAM.
    pub load_buffer: f64,
    /// SRAM bytes while it is passed on chip.
    pub onchip_buffer: f64,
    /// Where it is passed on chip, the part of a pass by which this kernel begins after the one that makes it.
    pub lag: f64,
    /// Whether each of the kernel's problems has its own part of it ([`crate::model::compute::has_own_part`]).
    pub own_part: bool,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorCost {
    /// The kernel that makes it; `None` for an input.
    pub producer: Option<usize>,
    /// Whether it is stored whatever the partitions.
    pub output: bool,
    /// DRAM bytes to store it.
    pub store_bytes: f64,
    /// SRAM bytes while it is stored.
    pub store_buffer: f64,
    /// DRAM bytes it occupies while it waits.
    pub live_bytes: f64,
    /// Consumers.
    pub uses: Vec<UseCost>,
}

/// A fusion problem. Kernels are in a topological order.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// Kernels.
    pub kernels: Vec<KernelCost>,
    /// Tensors.
    pub tensors: Vec<TensorCost>,
    /// SRAM capacity.
    pub sram_bytes: f64,
    /// SRAM in use whatever the partition: weights that stay on chip.
    pub base_sram_bytes: f64,
    /// DRAM left for tensors that wait.
    pub live_limit: f64,
    /// Cores of the chip.
    pub cores: u64,
    /// DRAM bandwidth.
    pub dram_bytes_per_s: f64,
    /// What overlaps.
    pub overlap: Overlap,
    /// Seconds from one partition to the next.
    pub partition_overhead_s: f64,
    /// Every kernel is a partition of its own.
    pub kernel_by_kernel: bool,
    /// No backward kernel shares a partition with, or runs before, a forward one.
    pub separate_phases: bool,
    /// Partition a kernel must be in, by position among the partitions.
    pub pins: Vec<Option<usize>>,
    /// Most partitions; `None` without limit.
    pub max_partitions: Option<usize>,
    /// What is minimised.
    pub goal: Goal,
}

/// What the sum over the partitions counts: the value of a partition is `second * its time + busy_second * its seconds of
/// arithmetic + dram_byte * its DRAM bytes`. All are at least zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// A second of the partition.
    pub second: f64,
    /// A second of arithmetic in it.
    pub busy_second: f64,
    /// A byte of its DRAM traffic.
    pub dram_byte: f64,
    /// What no choice of partitions changes; not part of the sum.
    pub constant: f64,
}

impl Goal {
    /// The time of the partitions.
    pub const TIME: Self = Self { second: 1.0, busy_second: 0.0, dram_byte: 0.0, constant: 0.0 };

    /// Whether nothing but time is counted.
    pub fn is_time(&self) -> bool {
        Self { constant: 0.0, ..*self } == Self::TIME
    }

    /// The value of a partition, or of a whole assignment, of so much time, arithmetic and traffic.
    pub fn value(&self, seconds: f64, busy_seconds: f64, dram_bytes: f64) -> f64 {
        self.second * seconds + self.busy_second * busy_seconds + self.dram_byte * dram_bytes
    }
}

/// What one partition costs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PartitionCost {
    /// Seconds of arithmetic.
    pub compute_s: f64,
    /// Seconds of DRAM traffic.
    pub dram_s: f64,
    /// Seconds of collectives.
    pub network_s: f64,
    /// Seconds not overlapped.
    pub serial_s: f64,
    /// SRAM bytes.
    pub sram_bytes: f64,
    /// DRAM bytes waiting.
    pub live_bytes: f64,
    /// DRAM bytes moved.
    pub dram_bytes: f64,
    /// Part of a pass by which the last kernel begins after the first: the longest way through the lags of the tensors that are
    /// passed on chip.
    pub lag: f64,
}

impl PartitionCost {
    /// Seconds of the partition.
    pub fn time_s(&self, overlap: Overlap) -> f64 {
        piped(combine(overlap, self.compute_s, self.dram_s, self.network_s), self.lag) + self.serial_s
    }

    /// Of these, seconds in which the pipeline of tiles fills and drains.
    pub fn filling_s(&self, overlap: Overlap) -> f64 {
        combine(overlap, self.compute_s, self.dram_s, self.network_s) * self.lag
    }
}

/// Seconds of a pipeline of tiles whose kernels all take as long as the slowest step lets them, and the last of which begins by a part
/// of the pass after the first.
pub fn piped(seconds: f64, lag: f64) -> f64 {
    seconds + seconds * lag
}

/// When kernels begin, at the earliest, from the lags (producer, reader, lag) between kernels numbered in a topological order: those that
/// wait for another.
fn begins_of(lags: &mut [(usize, usize, f64)]) -> BTreeMap<usize, f64> {
    lags.sort_unstable_by_key(|(producer, ..)| *producer);
    let mut begins = BTreeMap::new();
    for (producer, reader, lag) in lags.iter() {
        let begin = begins.get(producer).copied().unwrap_or(0.0) + lag;
        let latest: &mut f64 = begins.entry(*reader).or_default();
        *latest = latest.max(begin);
    }
    begins
}

/// Part of a pass by which the last kernel begins after the first, from the lags between kernels.
pub(super) fn longest_lag(mut lags: Vec<(usize, usize, f64)>) -> f64 {
    begins_of(&mut lags).into_values().fold(0.0, f64::max)
}

/// Time of parts that overlap or not (model.md section 5, "Partition time").
pub fn combine(overlap: Overlap, compute: f64, dram: f64, network: f64) -> f64 {
    match overlap {
        Overlap::Full => compute.max(dram).max(network),
        Overlap::ComputeMemory => compute.max(dram) + network,
        Overlap::None => compute + dram + network,
    }
}

/// SRAM comparisons allow for rounding in sums of many terms.
pub const CAPACITY_TOLERANCE: f64 = 1e-9;

/// Where a kernel stands relative to a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In an earlier partition.
    Before,
    /// In this one.
    Now,
    /// In a later one.
    After,
}

impl Instance {
    /// What the kernels of a partition cost without the tensors they pass. `None` as for [`Instance::partition`].
    pub fn without_tensors(&self, members: &[usize]) -> Option<PartitionCost> {
        let mut cost = PartitionCost { sram_bytes: self.base_sram_bytes, ..PartitionCost::default() };
        let mut seconds = 0.0;
        let mut options: Vec<&[CoreOption]> = Vec::new();
        for &k in members {
            let kernel = &self.kernels[k];
            if kernel.pieces > 1 && members.len() > 1 {
                return None;
            }
            match &kernel.compute {
                Compute::Seconds(s) => seconds += s,
                Compute::Cores(o) => options.push(o),
            }
            cost.network_s += kernel.network_s;
            cost.serial_s += kernel.serial_s;
            cost.sram_bytes += kernel.resident_bytes;
            cost.dram_bytes += kernel.dram_bytes;
        }
        cost.serial_s += self.partition_overhead_s;
        cost.compute_s = seconds + super::tiling::slowest(&options, self.cores)?;
        Some(cost)
    }

    /// Whether a pipeline of tiles may fill and drain: whether some kernel begins later than what it reads on chip.
    pub fn fills(&self) -> bool {
        !self.kernel_by_kernel && self.tensors.iter().flat_map(|t| &t.uses).any(|u| u.lag > 0.0)
    }

    /// The cost of the partition whose kernels are `members` (ascending); `when` places every kernel. `None` when no
    /// split of the cores serves it, or a kernel that must be alone is not.
    pub fn partition(&self, members: &[usize], when: impl Fn(usize) -> When) -> Option<PartitionCost> {
        let mut cost = self.without_tensors(members)?;
        let fills = self.fills();
        let mut lags = Vec::new();
        for tensor in &self.tensors {
            let made = tensor.producer.map_or(When::Before, &when);
            let here = made == When::Now;
            let mut load: f64 = 0.0;
            let mut buffer: f64 = 0.0;
            let mut waits_for = false;
            for u in &tensor.uses {
                match when(u.kernel) {
                    When::Now if here => {
                        buffer = buffer.max(u.onchip_buffer);
                        lags.extend(tensor.producer.filter(|_| fills).map(|p| (p, u.kernel, u.lag)));
                    }
                    When::Now => {
                        load = load.max(u.load_bytes);
                        buffer = buffer.max(u.load_buffer);
                        waits_for = true;
                    }
                    When::After => waits_for |= made != When::After,
                    When::Before => {}
                }
            }
            cost.dram_bytes += load;
            let stored = here && (tensor.output || waits_for);
            if stored {
                cost.dram_bytes += tensor.store_bytes;
                buffer = buffer.max(tensor.store_buffer);
            }
            cost.sram_bytes += buffer;
            // It waits in DRAM from the partition that stores it to the last that loads it; an output to the end.
            if stored || (made == When::Before && waits_for) || (made != When::After && tensor.output) {
                cost.live_bytes += tensor.live_bytes;
            }
        }
        cost.dram_s = cost.dram_bytes / self.dram_bytes_per_s;
        cost.lag = longest_lag(lags);
        Some(cost)
    }

    /// Part of a pass by which the last kernel of a partition begins after the first.
    pub(super) fn lag_of(&self, members: &[usize]) -> f64 {
        let inside = |k: &usize| members.binary_search(k).is_ok();
        let mut lags = Vec::new();
        for tensor in &self.tensors {
            let Some(from) = tensor.producer.filter(inside) else { continue };
            lags.extend(tensor.uses.iter().filter(|u| inside(&u.kernel)).map(|u| (from, u.kernel, u.lag)));
        }
        longest_lag(lags)
    }

    /// What a partition counts in the objective.
    pub fn value(&self, cost: &PartitionCost) -> f64 {
        self.goal.value(cost.time_s(self.overlap), cost.compute_s, cost.dram_bytes)
    }

    /// Whether a partition's SRAM and live DRAM fit.
    pub fn fits(&self, cost: &PartitionCost) -> bool {
        cost.sram_bytes <= self.sram_bytes * (1.0 + CAPACITY_TOLERANCE)
            && cost.live_bytes <= self.live_limit * (1.0 + CAPACITY_TOLERANCE)
    }

    /// The cost of every partition of an assignment, and the sum of their values; `None` when an assignment breaks a rule (order,
    /// phases, pins, count, capacity). This restates the constraints for tests and for completing MILP solutions; the
    /// independent judge is [`crate::check`].
    pub fn evaluate(&self, assignment: &[usize]) -> Option<(f64, Vec<PartitionCost>)> {
        let count = assignment.iter().max()? + 1;
        let ordered = self
            .tensors
            .iter()
            .all(|t| t.producer.is_none_or(|p| t.uses.iter().all(|u| assignment[p] <= assignment[u.kernel])));
        let pinned = self.pins.iter().zip(assignment).all(|(pin, p)| pin.is_none_or(|pin| pin == *p));
        if !ordered || !pinned || self.max_partitions.is_some_and(|m| count > m) {
            return None;
        }
        if self.separate_phases {
            let last_forward = assignment.iter().zip(&self.kernels).filter(|(_, k)| !k.backward).map(|(p, _)| *p).max();
            let first_backward =
                assignment.iter().zip(&self.kernels).filter(|(_, k)| k.backward).map(|(p, _)| *p).min();
            if let (Some(f), Some(b)) = (last_forward, first_backward)
                && f >= b
            {
                return None;
            }
        }
        let members = Members::of(assignment, count);
        if members.iter().any(|m| m.is_empty() || (self.kernel_by_kernel && m.len() > 1)) {
            return None;
        }
        let costs: Vec<PartitionCost> = self.all_partitions(assignment, &members)?;
        if !costs.iter().all(|cost| self.fits(cost)) {
            return None;
        }
        Some((costs.iter().map(|cost| self.value(cost)).sum(), costs))
    }

    /// [`Instance::partition`] of every partition of an assignment, each tensor looked at once.
    fn all_partitions(&self, assignment: &[usize], members: &Members) -> Option<Vec<PartitionCost>> {
        let count = members.first.len() - 1;
        let mut costs = Vec::with_capacity(count);
        for inside in members.iter() {
            costs.push(self.without_tensors(inside)?);
        }
        // What waits, as it begins (at its partition) and as it ends (after it).
        let mut begins = vec![0.0; count];
        let mut ends = vec![0.0; count + 1];
        // Between kernels of one partition.
        let fills = self.fills();
        let mut lags = Vec::new();
        // Partition, load, buffer of the readers of one tensor, each partition once.
        let mut reads: Vec<(usize, f64, f64)> = Vec::new();
        for tensor in &self.tensors {
            let made = tensor.producer.map(|k| assignment[k]);
            reads.clear();
            for u in &tensor.uses {
                let p = assignment[u.kernel];
                if fills && made == Some(p) {
                    lags.extend(tensor.producer.map(|from| (from, u.kernel, u.lag)));
                }
                let (load, buffer) =
                    if made == Some(p) { (0.0, u.onchip_buffer) } else { (u.load_bytes, u.load_buffer) };
                match reads.iter_mut().find(|(q, ..)| *q == p) {
                    Some((_, most, widest)) => (*most, *widest) = (load.max(*most), buffer.max(*widest)),
                    None => reads.push((p, load, buffer)),
                }
            }
            let last_load = reads.iter().filter(|(p, ..)| made != Some(*p)).map(|(p, ..)| *p).max();
            if let Some(p) = made.filter(|_| tensor.output || last_load.is_some()) {
                costs[p].dram_bytes += tensor.store_bytes;
                match reads.iter_mut().find(|(q, ..)| *q == p) {
                    Some((.., buffer)) => *buffer = buffer.max(tensor.store_buffer),
                    None => costs[p].sram_bytes += tensor.store_buffer,
                }
            }
            for (p, load, buffer) in &reads {
                costs[*p].dram_bytes += load;
                costs[*p].sram_bytes += buffer;
            }
            let until = if tensor.output { Some(count - 1) } else { last_load };
            if let Some(until) = until {
                begins[made.unwrap_or(0)] += tensor.live_bytes;
                ends[until + 1] += tensor.live_bytes;
            }
        }
        let mut live = 0.0;
        for (p, cost) in costs.iter_mut().enumerate() {
            live += begins[p] - ends[p];
            cost.live_bytes = live;
            cost.dram_s = cost.dram_bytes / self.dram_bytes_per_s;
        }
        for (k, begin) in begins_of(&mut lags) {
            let lag = &mut costs[assignment[k]].lag;
            *lag = lag.max(begin);
        }
        Some(costs)
    }

    /// The problems of its passes where they are kept apart ([`Self::phase`]), forward first; else itself.
    pub fn passes(&self) -> Vec<Self> {
        self.passes_and_kernels().into_iter().map(|(pass, _)| pass).collect()
    }

    /// The same, each with the kernels that it has.
    pub fn passes_and_kernels(&self) -> Vec<(Self, Vec<usize>)> {
        match self.separate_phases {
            true => vec![self.phase(false), self.phase(true)],
            false => vec![(self.clone(), (0..self.kernels.len()).collect())],
        }
    }

    /// The problem of one pass alone, and the kernels it has, where the passes are kept apart. Partitions of the two
    /// passes share nothing but the tensors that go from one to the other, and those always cross: they are outputs of the
    /// forward problem and inputs of the backward one. So the optimum is the sum of the two optima.
    pub fn phase(&self, backward: bool) -> (Self, Vec<usize>) {
        let kept: Vec<usize> = (0..self.kernels.len()).filter(|k| self.kernels[*k].backward == backward).collect();
        (self.part(&kept), kept)
    }

    /// The problem of some kernels alone (ascending), where no partition has others beside them. Tensors from and to the
    /// others are inputs and outputs.
    pub fn part(&self, kept: &[usize]) -> Self {
        let index = |k: usize| kept.binary_search(&k).ok();
        let tensors = self
            .tensors
            .iter()
            .filter_map(|tensor| {
                let uses: Vec<UseCost> = tensor
                    .uses
                    .iter()
                    .filter_map(|u| index(u.kernel).map(|kernel| UseCost { kernel, ..u.clone() }))
                    .collect();
                let producer = tensor.producer.and_then(index);
                if producer.is_none() && uses.is_empty() {
                    return None;
                }
                let leaves = producer.is_some() && uses.len() < tensor.uses.len();
                let output = (tensor.output && producer.is_some()) || leaves;
                Some(TensorCost { producer, output, uses, ..tensor.clone() })
            })
            .collect();
        let kernels: Vec<KernelCost> = kept.iter().map(|k| self.kernels[*k].clone()).collect();
        let pins = vec![None; kernels.len()];
        let separate_phases = kernels.iter().any(|k| k.backward) && kernels.iter().any(|k| !k.backward);
        Self { kernels, tensors, pins, separate_phases, ..self.clone() }
    }

    /// Bytes of all tensors that can wait in DRAM: no partitions need more.
    pub fn waits_at_most(&self) -> f64 {
        self.tensors.iter().map(|t| t.live_bytes).sum()
    }

    /// Bytes that wait in DRAM at the fullest moment, whatever the order: of kernels that run one by one, what any of them reads and makes. Nothing where tensors
    /// may stay on the chip.
    pub fn waits_at_least(&self) -> f64 {
        if !self.kernel_by_kernel {
            return 0.0;
        }
        let mut at = vec![0.0; self.kernels.len()];
        for tensor in &self.tensors {
            let stored = tensor.producer.filter(|_| tensor.output || !tensor.uses.is_empty());
            let mut kernels: Vec<usize> = tensor.uses.iter().map(|u| u.kernel).chain(stored).collect();
            kernels.sort_unstable();
            kernels.dedup();
            kernels.iter().for_each(|k| at[*k] += tensor.live_bytes);
        }
        at.into_iter().fold(0.0, f64::max)
    }

    /// A time no mapping can beat: arithmetic, collectives and DRAM bytes that occur whatever the partitions.
    pub fn lower_bound(&self) -> f64 {
        super::remaining::Remaining::new(self).least().0
    }

    /// A value of the objective no mapping can beat.
    pub fn least_value(&self) -> f64 {
        super::remaining::Remaining::new(self).least().1
    }
}

/// The kernels of each partition, ascending, one partition after the other.
struct Members {
    kernels: Vec<usize>,
    /// Where each partition begins; one more entry for the end.
    first: Vec<usize>,
}

impl Members {
    fn of(assignment: &[usize], count: usize) -> Self {
        let mut first = vec![0; count + 1];
        assignment.iter().for_each(|p| first[p + 1] += 1);
        (0..count).for_each(|p| first[p + 1] += first[p]);
        let mut at = first.clone();
        let mut kernels = vec![0; assignment.len()];
        for (k, p) in assignment.iter().enumerate() {
            kernels[at[*p]] = k;
            at[*p] += 1;
        }
        Self { kernels, first }
    }

    fn iter(&self) -> impl Iterator<Item = &[usize]> {
        self.first.windows(2).map(|pair| &self.kernels[pair[0]..pair[1]])
    }
}
