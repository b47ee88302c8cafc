//! The numbers of one fusion problem: a workload on a system with degrees, sharding and tile count chosen.
//!
//! All times are seconds, all sizes bytes, of one pass over one layer on one chip. [`Instance::partition`] says what a
//! set of kernels costs as one partition; the MILP ([`super::fusion`]) and the shortest path ([`super::exact`]) both
//! minimise the sum of it over the partitions.

use super::alone::Alone;
use super::degrees::Degrees;
use crate::model::collective;
use crate::model::compute::{
    self, CoreOption, Tiling, extra_dram, gradient_bytes, local, moved_bytes, pieces, problems, tensor_bytes,
    weight_bytes,
};
use crate::model::energy;
use crate::model::layout::{Layout, Strategy, conversion, produced, required};
pub use crate::model::rate::Compute;
use crate::model::rate::Rate;
use crate::model::schedule::{microbatches, samples_per_pass};
use crate::system::options::{Charge, Fanout, GradientReduction, Layouts, Overlap, Phases, WeightTraffic};
use crate::system::{ModelOptions, Style, System};
use crate::workload::{CollectiveKind, Phase, Workload};
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
    /// Whether each of the kernel's problems has its own part of it ([`compute::has_own_part`]).
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

/// What building an instance can find missing: of the kernels that do not fit even in pieces, the one that needs most.
#[derive(Debug, Clone, PartialEq)]
pub struct SramShort {
    /// The kernel.
    pub kernel: usize,
    /// Bytes it needs at least.
    pub needed: f64,
}

/// The decisions an instance is built for.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// Degrees and groups.
    pub degrees: &'a Degrees,
    /// Strategy of each kernel.
    pub sharding: &'a [Strategy],
    /// Tile count.
    pub tiles: u64,
    /// Whether the weights of all layers of a stage, and their gradients, stay on chip for the whole iteration.
    pub weights_on_chip: bool,
    /// Layers of the longest stage.
    pub longest: u64,
}

/// A [`Choice`] without its network: all that decides the numbers of an instance that no bandwidth and no latency changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut<'a> {
    /// Chips of a tensor-parallel group, stages, replicas.
    pub(super) degrees: (u64, u64, u64),
    /// Strategy of each kernel.
    pub(super) sharding: &'a [Strategy],
    /// Tile count.
    pub(super) tiles: u64,
    /// Whether weights stay on chip.
    pub(super) weights_on_chip: bool,
    /// Layers of the longest stage.
    pub(super) longest: u64,
}

impl<'a> From<Choice<'a>> for Cut<'a> {
    fn from(Choice { degrees, sharding, tiles, weights_on_chip, longest }: Choice<'a>) -> Self {
        Self { degrees: (degrees.tp, degrees.pp, degrees.dp), sharding, tiles, weights_on_chip, longest }
    }
}

/// Builds the instance of a choice.
///
/// # Errors
/// [`SramShort`] when a kernel does not fit even alone with its weight in the smallest pieces.
pub fn build(workload: &Workload, system: &System, choice: Choice<'_>, live_limit: f64) -> Result<Instance, SramShort> {
    let rate = Rate::of(workload, system);
    let amounts = Amounts::of(workload, system, &rate, choice.into())?;
    Ok(amounts.priced(workload, (system, &rate), choice.degrees, live_limit))
}

/// The numbers of an instance that no bandwidth and no latency changes.
#[derive(Debug, Clone)]
pub(super) struct Amounts {
    /// The instance, without what [`Amounts::priced`] fills in.
    instance: Instance,
    /// What is moved between chips.
    charges: Vec<(usize, Moved)>,
    /// Bytes that each kernel loads before it begins, where that is not overlapped; else empty.
    setup_bytes: Vec<f64>,
    /// The partitions of a chip that runs kernel by kernel.
    pub(super) alone: Option<Alone>,
}

/// What a kernel moves between chips in one pass.
#[derive(Debug, Clone, Copy)]
enum Moved {
    /// The collectives that it makes by itself.
    Own,
    /// A collective of its tensor-parallel group, its bytes, and the passes in one of which it is made.
    Group(CollectiveKind, f64, f64),
    /// Bytes of its gradient, reduced among the replicas.
    Gradient(f64),
}

impl Moved {
    fn seconds(self, workload: &Workload, k: usize, degrees: &Degrees, options: &ModelOptions) -> f64 {
        match self {
            Self::Own => {
                let samples = samples_per_pass(workload, options);
                collective::own_seconds(&workload.kernels[k], &degrees.own, samples, options)
            }
            Self::Group(kind, bytes, passes) => collective::seconds(kind, &degrees.tp_group, bytes, options) / passes,
            Self::Gradient(bytes) => collective::gradient_seconds(&degrees.dp_group, bytes, options),
        }
    }

    fn joules(self, workload: &Workload, k: usize, degrees: &Degrees, options: &ModelOptions) -> f64 {
        match self {
            Self::Own => energy::own_j(&workload.kernels[k], &degrees.own, samples_per_pass(workload, options)),
            Self::Group(kind, bytes, passes) => energy::collective_j(kind, &degrees.tp_group, bytes) / passes,
            Self::Gradient(bytes) => energy::collective_j(CollectiveKind::AllReduce, &degrees.dp_group, bytes),
        }
    }
}

impl Amounts {
    /// The instance on a system's links and memory.
    pub(super) fn priced(
        &self,
        workload: &Workload,
        (system, rate): (&System, &Rate<'_>),
        degrees: &Degrees,
        live_limit: f64,
    ) -> Instance {
        let bandwidth = rate.dram_bytes_per_s;
        let mut instance = self.instance.clone();
        instance.live_limit = live_limit;
        instance.dram_bytes_per_s = bandwidth;
        instance.overlap = system.overlap();
        for (payer, seconds) in self.network_seconds(workload, degrees, &system.model) {
            instance.kernels[payer].network_s += seconds;
        }
        for (kernel, seconds) in instance.kernels.iter_mut().zip(self.setup_seconds(workload, bandwidth)) {
            kernel.serial_s = seconds;
        }
        instance
    }

    /// Kernels and the seconds of what they move between chips, in the order in which they are summed.
    pub(super) fn network_seconds(
        &self,
        workload: &Workload,
        degrees: &Degrees,
        options: &ModelOptions,
    ) -> impl Iterator<Item = (usize, f64)> {
        self.charges.iter().map(move |(payer, moved)| (*payer, moved.seconds(workload, *payer, degrees, options)))
    }

    /// Seconds that each kernel loads before it begins, where that is not overlapped; else none.
    pub(super) fn setup_seconds(&self, workload: &Workload, bandwidth: f64) -> impl Iterator<Item = f64> {
        let samples = workload.micro_batch as f64;
        self.setup_bytes.iter().map(move |bytes| bytes / (bandwidth * samples))
    }

    /// Joules of links that each kernel's collectives add on one chip, in one pass.
    pub(super) fn link_joules(&self, workload: &Workload, system: &System, degrees: &Degrees) -> Vec<f64> {
        link_joules_of(&self.charges, workload, system, degrees)
    }

    /// Kernels and tensors: what it takes to keep it.
    pub(super) fn size(&self) -> usize {
        self.instance.kernels.len() + self.instance.tensors.len() + self.charges.len()
    }

    /// The amounts of a cut.
    ///
    /// # Errors
    /// As [`build`].
    pub(super) fn of(workload: &Workload, system: &System, rate: &Rate<'_>, cut: Cut<'_>) -> Result<Self, SramShort> {
        let (chip, options) = (&system.chip.0, &system.model);
        let Cut { degrees: (t, _, dp), sharding, tiles, weights_on_chip, longest } = cut;
        let word = workload.word_bytes;
        let samples = samples_per_pass(workload, options);
        let passes = microbatches(workload, options, dp);
        let base_sram_bytes = if weights_on_chip { longest as f64 * held_for_good(workload, sharding, t) } else { 0.0 };
        let traffic = network_and_tensors(workload, options, cut, samples, rate.fills());
        let mut setup_bytes = Vec::new();

        let sram = rate.sram_bytes;

        let mut kernels: Vec<KernelCost> = workload
            .kernels
            .iter()
            .enumerate()
            .map(|(i, kernel)| {
                let strategy = sharding[i];
                let compute = rate.compute(kernel, strategy, t, tiles, samples);
                let weight = weight_bytes(kernel, strategy, t, word);
                let gradient = gradient_bytes(kernel, strategy, t, word);
                let extra = extra_dram(kernel, strategy, t, samples);
                let mut dram_bytes = extra;
                let mut resident_bytes = weight;
                match options.weight_traffic {
                    _ if weights_on_chip => {
                        // Loaded before the first pass of the iteration, gradients stored after the last.
                        let owned = if kernel.owns_weight() { weight } else { 0.0 };
                        dram_bytes += (owned + gradient) / passes;
                        resident_bytes = 0.0;
                    }
                    WeightTraffic::Streamed => {
                        let (weight, gradient) = moved_bytes(kernel, strategy, t, word);
                        dram_bytes += weight + 2.0 * gradient;
                        resident_bytes = weight + gradient;
                    }
                    WeightTraffic::Setup => {
                        // The weight once a microbatch, the rest with each pass.
                        setup_bytes.push(weight + extra * workload.micro_batch as f64);
                        dram_bytes = 0.0;
                    }
                    WeightTraffic::Ignored => {}
                }
                KernelCost {
                    compute,
                    network_s: 0.0,
                    serial_s: 0.0,
                    resident_bytes,
                    dram_bytes,
                    pieces: 1,
                    backward: kernel.phase != Phase::Forward,
                }
            })
            .collect();

        let mut tensors = traffic.tensors;
        if rate.chooses_tiles() {
            nothing_on_chip(&mut kernels, &mut tensors);
        }
        let mut short: Option<SramShort> = None;
        let alone = buffers_alone(&tensors, kernels.len());
        for (i, kernel) in kernels.iter_mut().enumerate() {
            let buffers = alone[i];
            let room = sram - base_sram_bytes - buffers;
            if kernel.resident_bytes <= room * (1.0 + CAPACITY_TOLERANCE) {
                continue;
            }
            // Smallest piece: one row of the weight (or of the gradient).
            let rows = local(&workload.kernels[i], sharding[i], t, Tiling::WHOLE).rows;
            let smallest = kernel.resident_bytes / rows as f64;
            if smallest > room {
                let needed = base_sram_bytes + buffers + smallest;
                if short.as_ref().is_none_or(|s| s.needed < needed) {
                    short = Some(SramShort { kernel: i, needed });
                }
                continue;
            }
            let of = &workload.kernels[i];
            let whole = local(of, sharding[i], t, Tiling::WHOLE);
            let (pieces, own) = pieces(kernel.resident_bytes, room, problems(of, &whole));
            kernel.pieces = pieces;
            kernel.resident_bytes /= pieces as f64;
            if options.weight_tiling == Charge::Charged {
                for tensor in &mut tensors {
                    for u in tensor.uses.iter_mut().filter(|u| u.kernel == i) {
                        let times = if u.own_part { own } else { pieces };
                        kernel.dram_bytes += (times - 1) as f64 * u.load_bytes;
                    }
                }
            }
        }
        if let Some(short) = short {
            return Err(short);
        }
        let both = options.phases == Phases::Apart
            && kernels.iter().any(|k| k.backward)
            && kernels.iter().any(|k| !k.backward);
        let instance = Instance {
            pins: vec![None; kernels.len()],
            kernels,
            tensors,
            sram_bytes: sram,
            base_sram_bytes,
            live_limit: f64::INFINITY,
            cores: chip.cores,
            dram_bytes_per_s: f64::INFINITY,
            overlap: Overlap::Full,
            partition_overhead_s: rate.launch_s,
            kernel_by_kernel: chip.style == Style::KernelByKernel,
            separate_phases: both,
            max_partitions: None,
            goal: Goal::TIME,
        };
        let alone = Alone::of(&instance);
        Ok(Self { instance, charges: traffic.charges, setup_bytes, alone })
    }
}

/// Where kernels choose their tiles by themselves, what is on chip is theirs: nothing of it is counted.
pub(super) fn nothing_on_chip(kernels: &mut [KernelCost], tensors: &mut [TensorCost]) {
    kernels.iter_mut().for_each(|kernel| kernel.resident_bytes = 0.0);
    for tensor in tensors {
        tensor.store_buffer = 0.0;
        tensor.uses.iter_mut().for_each(|u| (u.load_buffer, u.onchip_buffer) = (0.0, 0.0));
    }
}

/// Buffers of each kernel in a partition of its own: of each tensor the largest that it needs.
pub(super) fn buffers_alone(tensors: &[TensorCost], kernels: usize) -> Vec<f64> {
    let mut buffers = vec![0.0; kernels];
    for tensor in tensors {
        let stored = tensor.producer.filter(|_| tensor.output || !tensor.uses.is_empty());
        let store = stored.map(|k| (k, tensor.store_buffer));
        let mut needs: Vec<(usize, f64)> = tensor.uses.iter().map(|u| (u.kernel, u.load_buffer)).chain(store).collect();
        needs.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        needs.dedup_by_key(|need| need.0);
        needs.into_iter().for_each(|(kernel, bytes)| buffers[kernel] += bytes);
    }
    buffers
}

/// SRAM bytes of one layer's weights, each once however many kernels use it, and of their gradients.
fn held_for_good(workload: &Workload, sharding: &[Strategy], t: u64) -> f64 {
    let word = workload.word_bytes;
    workload
        .kernels
        .iter()
        .zip(sharding)
        .map(|(k, s)| {
            let owned = if k.owns_weight() { weight_bytes(k, *s, t, word) } else { 0.0 };
            owned + gradient_bytes(k, *s, t, word)
        })
        .sum()
}

/// Whether a chip could keep weights on chip for an iteration: only where kernels share it in space, and where their
/// traffic counts at all.
pub fn may_keep_weights(system: &System) -> bool {
    system.chip.0.style == Style::Dataflow && system.model.weight_traffic == WeightTraffic::Streamed
}

/// Joules of links that each kernel's collectives add on one chip, in one pass.
pub fn link_joules(workload: &Workload, system: &System, choice: Choice<'_>) -> Vec<f64> {
    let samples = samples_per_pass(workload, &system.model);
    let traffic = network_and_tensors(workload, &system.model, choice.into(), samples, false);
    link_joules_of(&traffic.charges, workload, system, choice.degrees)
}

fn link_joules_of(charges: &[(usize, Moved)], workload: &Workload, system: &System, degrees: &Degrees) -> Vec<f64> {
    let mut link_j = vec![0.0; workload.kernels.len()];
    for (payer, moved) in charges {
        link_j[*payer] += moved.joules(workload, *payer, degrees, &system.model);
    }
    link_j
}

struct Traffic {
    /// What is moved between chips, and the kernel that pays, in the order in which it is summed.
    charges: Vec<(usize, Moved)>,
    tensors: Vec<TensorCost>,
}

/// Collectives by kernel, and sizes of tensors in their layouts; lags of readers where pipelines of tiles fill.
fn network_and_tensors(
    workload: &Workload,
    options: &ModelOptions,
    cut: Cut<'_>,
    samples: f64,
    fills: bool,
) -> Traffic {
    let Cut { degrees: (t, _, dp), sharding, tiles, .. } = cut;
    let word = workload.word_bytes;
    let rules = options.layouts;
    let tiling = Tiling::new(tiles, options);
    let mut charges: Vec<(usize, Moved)> = Vec::new();
    let in_group = |kind, bytes: f64, passes: f64| Moved::Group(kind, bytes * samples, passes);
    let levels = workload.levels();

    for (i, kernel) in workload.kernels.iter().enumerate() {
        if !kernel.collectives.is_empty() {
            charges.push((i, Moved::Own));
        }
        let here = local(kernel, sharding[i], t, tiling);
        if rules == Layouts::Dfmodel && sharding[i] == Strategy::K {
            let passes_over_tiles = if kernel.tiled == crate::workload::Axis::K { 1.0 } else { here.tiles as f64 };
            let bytes = here.rows as f64 * here.n as f64 * kernel.word_or(word) * passes_over_tiles;
            charges.push((i, in_group(CollectiveKind::AllReduce, bytes, 1.0)));
        }
        if workload.training && options.gradient_reduction == GradientReduction::PerMicrobatch {
            let gradient = gradient_bytes(kernel, sharding[i], t, word);
            charges.push((i, Moved::Gradient(gradient / microbatches(workload, options, dp))));
        }
    }

    // What the next layer reads of each tensor.
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); workload.tensors.len()];
    for (id, tensor) in workload.tensors.iter().enumerate() {
        if let Some(from) = tensor.carried_from {
            next[from].push(id);
        }
    }
    let mut tensors = Vec::new();
    for (id, tensor) in workload.tensors.iter().enumerate() {
        if !options.counts(tensor) {
            continue;
        }
        // An input that is carried arrives as its reader wants it; the writer converts it.
        let made = tensor.producer.map(|p| produced(sharding[p], rules));
        let wanted =
            |u: &crate::workload::Use| required(&workload.kernels[u.kernel], u.slot, sharding[u.kernel], rules);
        let full = tensor.bytes(word);
        let (made_bytes, made_tile) = tensor_bytes(tensor, made.unwrap_or(Layout::Replicated), t, tiling, word);

        // Conversions: each layout once, charged to the producer; to the first reader where that is in another phase.
        let mut paid: Vec<(bool, Layout)> = Vec::new();
        if let (Some(from), Some(p)) = (made, tensor.producer) {
            let carried = next[id].iter().flat_map(|c| &workload.tensors[*c].consumers);
            let boundary_uses = carried.filter(|_| options.boundary_tensors == Charge::Charged).map(|u| (u, true));
            // Another block converts, or is converted for, once a microbatch, and takes what is there already.
            let block = |k: usize| workload.kernels[k].block;
            let inside = tensor.consumers.iter().filter(|u| block(u.kernel) == block(p)).map(|u| (u, false));
            let across = tensor.consumers.iter().filter(|u| block(u.kernel) != block(p)).map(|u| (u, false));
            for (u, next_layer) in inside.chain(boundary_uses).chain(across) {
                let to = wanted(u);
                let other_phase = (workload.kernels[p].phase == Phase::Forward)
                    != (workload.kernels[u.kernel].phase == Phase::Forward);
                let crosses = !next_layer && block(u.kernel) != block(p);
                let fewer = workload.repeats(block(u.kernel)) <= workload.repeats(block(p));
                // What goes to another repetition or block is converted for the pass that made it, whichever reads it there.
                let at_producer = next_layer || crosses || !other_phase;
                let payer = if !at_producer || (crosses && fewer) { u.kernel } else { p };
                let share = if crosses { workload.repeats(block(payer)) as f64 } else { 1.0 };
                let shared = options.tensor_fanout == Fanout::Shared;
                if shared && paid.contains(&(at_producer, to)) {
                    continue;
                }
                paid.push((at_producer, to));
                if let Ok(Some(kind)) = conversion(from, to) {
                    let bytes = match (rules, kind) {
                        (Layouts::Dfmodel, _) | (_, CollectiveKind::AllToAll) => made_bytes,
                        _ => full,
                    };
                    charges.push((payer, in_group(kind, bytes, share)));
                }
            }
        }

        let whole = options.stationary_operands == Charge::Charged;
        let mut store_bytes = stored_bytes(workload, cut, options, (id, &next[id]), made_bytes, samples);
        let uses: Vec<UseCost> = tensor
            .consumers
            .iter()
            .map(|u| {
                let consumer = &workload.kernels[u.kernel];
                let (bytes, tile) = match rules {
                    Layouts::Dfmodel => (made_bytes, made_tile),
                    Layouts::Flowspace => tensor_bytes(tensor, wanted(u), t, tiling, word),
                };
                let level = tensor.producer.map_or(0, |p| levels[p]);
                let depth = levels[u.kernel].abs_diff(level) as f64 + 1.0;
                let along_n = whole && consumer.tiled == crate::workload::Axis::N;
                let stationary = along_n && u.slot.is_stationary();
                let whole_on_chip = along_n && u.slot.is_whole_on_chip();
                UseCost {
                    kernel: u.kernel,
                    // A reader of another phase loads what was stored and converts it then.
                    load_bytes: if tensor.producer.is_some() {
                        (bytes * samples).min(store_bytes)
                    } else {
                        bytes * samples
                    },
                    load_buffer: if stationary { bytes } else { options.crossing_buffers as f64 * tile },
                    onchip_buffer: if whole_on_chip { bytes.max(depth * tile) } else { depth * tile },
                    lag: tensor
                        .producer
                        .filter(|_| fills)
                        .map_or(0.0, |p| compute::lag(&workload.kernels[p], whole_on_chip, (bytes, tile), samples)),
                    own_part: compute::has_own_part(consumer, u.slot),
                }
            })
            .collect();
        let output = tensor.output && options.boundary_tensors == Charge::Charged;
        if tensor.producer.is_none() {
            // An input lies in DRAM as its widest reader wants it.
            store_bytes = uses.iter().map(|u| u.load_bytes).fold(0.0, f64::max);
        }
        let live_bytes = if tensor.in_place { 0.0 } else { store_bytes / samples * workload.micro_batch as f64 };
        let cost = TensorCost {
            producer: tensor.producer,
            output,
            store_bytes,
            store_buffer: options.crossing_buffers as f64 * made_tile,
            live_bytes,
            uses,
        };
        match options.tensor_fanout {
            Fanout::Shared => tensors.push(cost),
            Fanout::Replicate => {
                for u in &cost.uses {
                    tensors.push(TensorCost { output: false, uses: vec![u.clone()], ..cost.clone() });
                }
                if cost.output {
                    tensors.push(TensorCost { uses: Vec::new(), ..cost });
                }
            }
        }
    }
    Traffic { charges, tensors }
}

/// Bytes of a tensor as it is stored: in the largest layout that its readers want (conversions come before the store,
/// except for readers of another phase, or of another block that pays for itself), or as made when nobody reads it.
fn stored_bytes(
    workload: &Workload,
    cut: Cut<'_>,
    options: &ModelOptions,
    (id, next): (usize, &[usize]),
    made_bytes: f64,
    samples: f64,
) -> f64 {
    let word = workload.word_bytes;
    let tensor = &workload.tensors[id];
    let rules = options.layouts;
    if rules == Layouts::Dfmodel {
        return made_bytes * samples;
    }
    let Cut { degrees: (t, ..), sharding, tiles, .. } = cut;
    let carried = next.iter().flat_map(|c| &workload.tensors[*c].consumers);
    // A reader in a block that is repeated no more often than this converts after it has loaded.
    let repeats = |k: usize| workload.repeats(workload.kernels[k].block);
    let same_phase = tensor.consumers.iter().filter(|u| {
        tensor.producer.is_some_and(|p| {
            let (made, read) = (&workload.kernels[p], &workload.kernels[u.kernel]);
            (made.phase == Phase::Forward) == (read.phase == Phase::Forward)
                && (made.block == read.block || repeats(u.kernel) > repeats(p))
        })
    });
    let largest = same_phase
        .chain(carried)
        .map(|u| {
            let layout = required(&workload.kernels[u.kernel], u.slot, sharding[u.kernel], rules);
            compute::tensor_bytes(tensor, layout, t, Tiling::new(tiles, options), word).0
        })
        .fold(0.0, f64::max);
    samples * if largest > 0.0 { largest } else { made_bytes }
}
