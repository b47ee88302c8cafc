//! A system as plain numbers: what a chip makes of a kernel, what its software adds, and which links a group of chips has.
//!
//! Chips are numbered through the network's dimensions and divided as [`crate::model::ranks`] says. A group of n chips at stride s holds every s-th chip; along a dimension that chips c to C share it has min(sn, C)/max(s, c) of them, max(s, c)/c hops apart, and a group
//! in several dimensions works hierarchically ([`collective`], where it says too what a part of a ring is worth). A group that a box has room for lies in one if all such groups do: where the box is no
//! multiple of it, as many boxes must be there that their other chips may be left over. Else groups cross the border in parts of the largest size that divides group and box: four groups
//! of six on three boxes of eight cost what they cost on boxes of two. A group that is larger than a box counts as one of whole boxes.

use super::energy::Power;
use super::state::StateBytes;
use crate::graph::CollectiveKind;
use crate::model::attention_kernel::FusedKernel;
use crate::model::collective::{self, Extent, GroupDimension};
use crate::model::divisors::divisors;
use crate::model::energy;
use crate::model::kernel_time::KernelTimes;
use crate::model::rate::{chip_peak, has_words};
use crate::system::kernels::FusedAttention;
use crate::system::options::ModelOptions;
use crate::system::stack::Stack;
use crate::system::{Software, Style, System, Topology};
use crate::workload::language::{DataType, LanguageModel, Types};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// A system that an execution can be predicted on.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Name of the system.
    pub name: String,
    /// Chips of the system.
    pub chips: u64,
    /// What a chip makes of a kernel.
    pub kernels: KernelTimes,
    /// Peak FLOP/s by data type.
    peaks: Vec<(DataType, f64)>,
    /// FLOP/s that products sustain by data type.
    rates: Vec<(DataType, f64)>,
    /// The same in the batched products of attention.
    pub batched_efficiency: f64,
    /// Fused attention as its software runs it, at what a long step sustains.
    pub fused_attention: FusedKernel,
    /// The attention kernels that there are to choose from, by name; the software's is the first.
    pub attention_kernels: Vec<(String, FusedKernel)>,
    /// Bytes of a chip's memory; `None` without limit.
    pub capacity: Option<f64>,
    /// Second tier: bytes/s to it, and its bytes (`None` without limit).
    pub second_tier: Option<(f64, Option<f64>)>,
    /// Dimensions of the network, innermost first, with their whole sizes.
    pub dimensions: Vec<GroupDimension>,
    /// The software.
    pub stack: Stack,
    /// Whether the software is ideal: of two ways to run a collective it takes the faster.
    pub ideal: bool,
    /// Whether it reaches of everything the best that any software is known to reach.
    pub best: bool,
    /// What its parts draw.
    pub power: Power,
    options: ModelOptions,
    lines: Lines,
}

/// Lines that were asked for, by what is sent and among whom: a search asks for the same few again and again. A copy begins with none.
#[derive(Debug, Default)]
struct Lines(Mutex<HashMap<(Traffic, Peers), Line>>);

/// Chips that talk to each other, of all that are divided so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peers {
    /// How many they are.
    pub chips: u64,
    /// How far each is from the next.
    pub apart: u64,
    /// Chips of all such groups together.
    pub of: u64,
}

impl Peers {
    /// A group that nobody is beside.
    pub fn alone(chips: u64, apart: u64) -> Self {
        Self { chips, apart, of: chips.saturating_mul(apart) }
    }

    /// A group of parallelism among so many chips.
    pub fn of(group: Extent, all: u64) -> Self {
        Self { chips: group.chips, apart: group.apart, of: all }
    }
}

impl Clone for Lines {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Seconds of a collective as a line in its bytes, and the energy of its links.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Line {
    /// Seconds without bytes.
    pub latency: f64,
    /// Seconds a byte.
    pub per_byte: f64,
    /// Joules a byte that a chip's links take.
    pub byte_j: f64,
}

/// What sending takes: seconds, and joules of a chip's links, waited for or not.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sent {
    /// Seconds.
    pub seconds: f64,
    /// Of these, seconds in which links carry bytes: neither hops nor what software takes to start.
    pub carried: f64,
    /// Joules.
    pub joules: f64,
}

impl std::ops::Add for Sent {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            carried: self.carried + other.carried,
            joules: self.joules + other.joules,
        }
    }
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::ops::Mul<Sent> for f64 {
    type Output = Sent;
    fn mul(self, of: Sent) -> Sent {
        Sent { seconds: self * of.seconds, carried: self * of.carried, joules: self * of.joules }
    }
}

impl Line {
    /// Seconds for `bytes`; nothing takes nothing.
    pub fn at(&self, bytes: f64) -> f64 {
        if bytes > 0.0 { self.latency + self.per_byte * bytes } else { 0.0 }
    }

    /// Seconds in which links carry `bytes`: without hops.
    pub fn carried(&self, bytes: f64) -> f64 {
        self.per_byte * bytes
    }

    /// Joules of a chip's links for `bytes`.
    pub fn joules(&self, bytes: f64) -> f64 {
        self.byte_j * bytes
    }

    /// Both, with so many seconds of software on top.
    pub fn send(&self, bytes: f64, overhead: f64) -> Sent {
        Sent { seconds: self.at(bytes) + overhead, carried: self.carried(bytes), joules: self.joules(bytes) }
    }
}

/// What a group of chips does together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// Sum of a tensor of so many bytes, on every chip.
    AllReduce,
    /// Half of it: reduce-scatter, or all-gather.
    Gather,
    /// Exchange of the bytes that each chip holds.
    AllToAll,
    /// From one chip to the next of the group, over the slowest hop.
    Next,
    /// From each chip to the next, from the last to the first, over the slowest hop.
    Around,
}

impl Traffic {
    /// Seconds of a hop along a dimension, without bytes and for each.
    fn hop(self, d: &GroupDimension) -> (f64, f64) {
        if self == Self::Around { d.around() } else { (d.latency, 1.0 / d.bandwidth) }
    }
}

/// What is said where a system cannot compute a model in its types: why, and the types that there are.
pub fn other_types(system: &str, why: &str, model: &LanguageModel, there: &[&str]) -> String {
    format!("{system}: {why}, in which {} computes; it has {}", model.name, there.join(", "))
}

impl Machine {
    /// Of a system whose chip has `kernels` and runs kernel by kernel, or whose stack says what it makes of a dataflow chip.
    ///
    /// # Errors
    /// A sentence: why executions cannot be predicted on this system, and what would mend it.
    pub fn new(system: &System) -> Result<Self, String> {
        let chip = &system.chip.0;
        let told = system.stack.is_some() || system.software == Some(Software::Generic);
        if chip.style != Style::KernelByKernel && !told {
            return Err(format!(
                "chip {}: executions are predicted for the style kernel_by_kernel, and for dataflow chips with a stack that says what its compiler reaches (`stack:`, such as sambaflow-o3, or `software: generic`)",
                chip.name
            ));
        }
        Self::of_any_style(system)
    }

    /// Of a system whose chip has `kernels`, dataflow chips included: for inference, whose steps are bound by memory.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_any_style(system: &System) -> Result<Self, String> {
        let chip = &system.chip.0;
        if system.software() == Software::Stack && system.stack.is_none() {
            return Err(format!("software: stack, but {} names none (`stack:`)", system.name));
        }
        let ideal = system.software() == Software::Ideal || system.stack.is_none();
        let software = match (system.software(), &system.stack) {
            (Software::Generic, _) => chip.generic().0.clone(),
            (_, Some(stack)) if !ideal => stack.0.clone(),
            _ => Stack { name: Stack::ideal().name, ..Self::best_known(system) },
        };
        let ideal = ideal && system.software() != Software::Generic;
        // A stack that says nothing of serving serves as current software of its kind of chip does.
        let serving = software.serving.or(chip.serving().and_then(|stack| stack.serving));
        let mut out = Self::with_software(system, Stack { serving, ..software }, ideal)?;
        if ideal {
            out.attention_kernels.sort_by(|(_, a), (_, b)| a.by_products().total_cmp(&b.by_products()));
            out.fused_attention = out.attention_kernels[0].1;
        }
        out.attention_kernels.truncate(1);
        Ok(Self { ideal, ..out })
    }

    /// Of every number of a stack the best of what the software that is known for a system reaches: its stack, and generic and ideal software.
    fn best_known(system: &System) -> Stack {
        let chip = &system.chip.0;
        let known = [&Stack::generic(chip.style).0, &chip.generic().0];
        Stack::best_of(known.into_iter().chain(system.stack.as_ref().map(|stack| &stack.0)))
    }

    /// Of a system whose chip runs kernel by kernel with what is possible: no host, and of every number of a stack the best of what the software that is known for it reaches
    /// (the system's stack, generic and ideal software), so that what any of these does is one of the mappings.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn possible(system: &System) -> Result<Self, String> {
        Self::with_software(system, Self::best_known(system), true)
    }

    /// The same machine where host code takes no time.
    pub fn without_host(&self) -> Self {
        let none = crate::units::Seconds(0.0);
        let stack = Stack {
            host_layer_forward: none,
            host_layer_backward: none,
            host_layer_recompute: none,
            host_attention_recompute: none,
            host_collective_peer: none,
            host_microbatch: none,
            host_hand_over: none,
            host_iteration: none,
            ..self.stack.clone()
        };
        Self { stack, ..self.clone() }
    }

    /// With a stack's library of products, or whichever of the chip's reaches most.
    fn with_software(system: &System, software: Stack, best: bool) -> Result<Self, String> {
        let chip = &system.chip.0;
        let Some(kernels) = &chip.kernels else {
            return Err(format!(
                "chip {}: executions of language models need a section `kernels` (tiles, efficiencies; systems/chips/a100.yaml has one)",
                chip.name
            ));
        };
        let times = KernelTimes::new(kernels, system.memory.0.bandwidth.0);
        let of = |t: &DataType| kernels.peak_of(t.word()).map(|p| (*t, p));
        let peaks: Vec<(DataType, f64)> = DataType::ALL.iter().filter_map(of).collect();
        let mut out = Self::of_parts(system, times, peaks);
        (out.stack, out.best) = (software, best);
        let share = out.stack.product_share.0;
        for (t, rate) in &mut out.rates {
            let reached = match best {
                true => kernels.best_efficiency_of(t.word()),
                false => kernels.efficiency_with(t.word(), out.stack.product_library.as_deref()),
            };
            *rate *= reached * share;
        }
        out.batched_efficiency = kernels.batched_efficiency.0 * share;
        // The shares of these kernels are those of single ones: in a long step they fall as those of products do.
        let sustained = kernels.burst.map_or(1.0, |burst| (kernels.efficiency.0 / burst.efficiency.0).min(1.0));
        let own = kernels.fused_attention_of(out.stack.attention_kernel.as_deref());
        let all = kernels.fused_attention.0.iter();
        let of = |(name, kernel): &(String, FusedAttention)| {
            (name.clone(), FusedKernel::new(kernel).scaled(sustained * share))
        };
        let (first, others): (Vec<_>, Vec<_>) = all.partition(|(_, kernel)| Some(kernel) == own);
        out.attention_kernels = first.into_iter().chain(others).map(of).collect();
        if out.attention_kernels.is_empty() {
            out.attention_kernels.push(("of batched products".into(), FusedKernel::of_share(out.batched_efficiency)));
        }
        out.fused_attention = out.attention_kernels[0].1;
        Ok(out)
    }

    /// Of any system, for blocks that are mapped as graphs: the peak is that of graphs, and no software costs anything.
    pub fn of_graphs(system: &System) -> Self {
        let (chip, options) = (&system.chip.0, &system.model);
        let of = |t: &DataType| has_words(chip, options, t.bytes()).then(|| (*t, chip_peak(chip, options, t.bytes())));
        let times = KernelTimes::even(system.memory.0.bandwidth.0);
        let mut out = Self::of_parts(system, times, DataType::ALL.iter().filter_map(of).collect());
        // What software is known to do is possible.
        out.stack.optimizer_traffic = Self::best_known(system).optimizer_traffic;
        out
    }

    fn of_parts(system: &System, kernels: KernelTimes, peaks: Vec<(DataType, f64)>) -> Self {
        let options = ModelOptions { latencies: system.model.latencies, ..ModelOptions::flowspace() };
        let sizes: Vec<Extent> = system.network.dimensions.iter().map(|d| Extent::neighbours(d.size)).collect();
        let plain = System { model: options.clone(), ..system.clone() };
        // `group` leaves dimensions of one chip out, which no group ever spans.
        let dimensions = collective::group(&plain, &sizes);
        Self {
            name: system.name.clone(),
            chips: system.chip_count(),
            kernels,
            rates: peaks.clone(),
            peaks,
            batched_efficiency: 1.0,
            fused_attention: FusedKernel::of_share(1.0),
            attention_kernels: Vec::new(),
            capacity: system.memory.0.capacity.map(|c| c.0),
            second_tier: system.offload.as_ref().map(|m| (m.0.bandwidth.0, m.0.capacity.map(|c| c.0))),
            dimensions,
            stack: Stack::ideal(),
            ideal: false,
            best: false,
            power: Power::of(system),
            options,
            lines: Lines::default(),
        }
    }

    /// Peak FLOP/s of the products of a model.
    ///
    /// # Errors
    /// A sentence that names the missing data type and those there are.
    pub fn peak(&self, model: &LanguageModel) -> Result<f64, String> {
        let wanted = model.types.products();
        match self.peaks.iter().find(|(t, _)| *t == wanted) {
            Some((_, peak)) => Ok(*peak),
            None => {
                let there: Vec<&str> = self.peaks.iter().map(|(t, _)| t.word()).collect();
                Err(other_types(&self.name, &format!("the chip states no peak for {wanted}"), model, &there))
            }
        }
    }

    /// Bytes of a gradient in the reduction among replicas: what the software takes, or the least of what any is known to take and the gradients' own type.
    pub fn reduced_bytes(&self, types: &Types) -> f64 {
        let own = types.gradients.bytes();
        self.stack.gradient_reduction.map_or(own, |stated| if self.best { stated.0.min(own) } else { stated.0 })
    }

    /// Bytes that the optimiser moves for each weight.
    pub fn optimizer_bytes(&self, types: &Types) -> f64 {
        let all = StateBytes::optimizer_traffic(types);
        self.stack.optimizer_traffic.map_or(all, |stated| stated.0.min(all))
    }

    /// FLOP/s of products of `wanted`, peak and sustained; those of `instead` where the chip has none for it.
    pub fn rate_of(&self, wanted: DataType, instead: (f64, f64)) -> (f64, f64) {
        let of = |list: &[(DataType, f64)]| list.iter().find(|(t, _)| *t == wanted).map(|(_, rate)| *rate);
        of(&self.peaks).zip(of(&self.rates)).unwrap_or(instead)
    }

    /// The dimensions of a group; none for one chip.
    pub fn group(&self, peers: Peers) -> Vec<GroupDimension> {
        self.group_along(peers).into_iter().map(|(_, dimension)| dimension).collect()
    }

    /// The same, each with the number of the machine's dimension that it lies along.
    fn group_along(&self, peers: Peers) -> Vec<(usize, GroupDimension)> {
        let mut found = Vec::new();
        let (stride, mut left, mut begin) = (peers.apart, peers.chips, 1u64);
        let last = self.dimensions.len().saturating_sub(1);
        for (i, dimension) in self.dimensions.iter().enumerate() {
            let end = begin.saturating_mul(dimension.size);
            if left <= 1 {
                break;
            }
            // The outermost takes whatever is left. A group that a box has room for lies in one, whose other chips may be left over where there are enough boxes.
            let room = if i == last { left } else { (end / stride.max(begin)).max(1) };
            if stride < end || i == last {
                let mut here = room.min(left);
                let span = here.saturating_mul(stride.max(begin));
                if i < last && here == left && !end.is_multiple_of(span) {
                    let whole = (end / span.max(1)).saturating_mul(self.chips / end.max(1)).saturating_mul(span);
                    if whole < peers.of {
                        // Some groups cross the border of a box, in parts of the largest size that divides both.
                        let divides = |h: &u64| {
                            left.is_multiple_of(*h) && end.is_multiple_of(h.saturating_mul(stride.max(begin)))
                        };
                        here = divisors(left).into_iter().rev().find(divides).unwrap_or(1);
                    }
                }
                if here > 1 {
                    found.push((i, dimension.part(here, (stride / begin).max(1), dimension.size)));
                    left = left.div_ceil(here);
                }
            }
            begin = end;
        }
        found
    }

    /// Seconds of what a group does together, as a line in its bytes.
    pub fn line(&self, traffic: Traffic, peers: Peers) -> Line {
        let mut known = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry((traffic, peers)).or_insert_with(|| self.line_of(traffic, peers))
    }

    fn line_of(&self, traffic: Traffic, peers: Peers) -> Line {
        let group = self.group(peers);
        if group.is_empty() {
            return Line::default();
        }
        let kind = match traffic {
            Traffic::AllReduce => CollectiveKind::AllReduce,
            Traffic::Gather => CollectiveKind::AllGather,
            Traffic::AllToAll => CollectiveKind::AllToAll,
            Traffic::Next | Traffic::Around => {
                let (latency, per_byte) =
                    group.iter().map(|d| traffic.hop(d)).fold((0.0f64, 0.0f64), |a, b| (a.0.max(b.0), a.1.max(b.1)));
                let byte_j = group.iter().map(|d| d.byte_j).fold(0.0, f64::max);
                return Line { latency, per_byte, byte_j };
            }
        };
        // The formulas are lines; one giga of bytes keeps digits where latencies are large.
        let one = 1e9;
        let latency = collective::seconds(kind, &group, f64::MIN_POSITIVE, &self.options);
        let whole = collective::seconds(kind, &group, one, &self.options);
        Line { latency, per_byte: (whole - latency) / one, byte_j: energy::collective_j(kind, &group, 1.0) }
    }

    /// Of the seconds a byte of what a group does, the share in which each of the machine's dimensions carries it. Reductions take dimensions one after another; an all-to-all all at once;
    /// a message the slowest.
    pub fn shares(&self, traffic: Traffic, peers: Peers) -> Vec<f64> {
        let along = self.group_along(peers);
        let mut out = vec![0.0; self.dimensions.len()];
        let mut left = 1.0;
        let mut seconds = |i: usize, seconds: f64| {
            out[i] = seconds;
            seconds
        };
        let of_bytes = |of: fn(&GroupDimension, f64) -> f64, d: &GroupDimension, bytes: f64| {
            of(&GroupDimension { latency: 0.0, ..*d }, bytes)
        };
        let whole = match traffic {
            Traffic::AllReduce | Traffic::Gather => {
                let inside: Vec<GroupDimension> = along.iter().map(|(_, d)| *d).collect();
                let mut taken = vec![false; along.len()];
                let mut sum = 0.0;
                for d in collective::in_order(&inside).iter() {
                    let Some(k) = (0..along.len()).find(|k| !taken[*k] && along[*k].1 == *d) else { continue };
                    taken[k] = true;
                    sum += seconds(along[k].0, of_bytes(collective::reduce_scatter, d, left));
                    left /= d.size as f64;
                }
                sum
            }
            Traffic::AllToAll => {
                along.iter().map(|(i, d)| seconds(*i, of_bytes(collective::all_to_all, d, 1.0))).fold(0.0, f64::max)
            }
            Traffic::Next | Traffic::Around => {
                along.iter().map(|(i, d)| seconds(*i, traffic.hop(d).1)).fold(0.0, f64::max)
            }
        };
        if whole > 0.0 {
            out.iter_mut().for_each(|share| *share /= whole);
        }
        out
    }

    /// Whether two groups that have one chip in common send over one link: a chip's port of a switch, or a ring.
    pub fn share_a_link(&self, a: Peers, b: Peers) -> bool {
        let on = |peers| self.shares(Traffic::AllToAll, peers);
        let one = |d: &GroupDimension| d.topology != Topology::FullyConnected;
        on(a).iter().zip(on(b)).zip(&self.dimensions).any(|((a, b), d)| *a > 0.0 && b > 0.0 && one(d))
    }

    /// Chips of a group that are in one box: its extent along the innermost dimension.
    pub fn peers_in_box(&self, peers: Peers) -> u64 {
        self.group_along(peers).first().filter(|(i, _)| *i == 0).map_or(1, |(_, d)| d.size)
    }
}
