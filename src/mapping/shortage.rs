//! What a point without a plan lacks, and how much of it mends the point. `map`, `explain` and the rows of studies all say what stands here.
//!
//! Nothing follows from the constraint that failed first: each answer was found by mapping the changed point (until its first plan), with
//! the quantity as it is printed. More of a memory is never worse, so the least of it is found by bisection. In this order:
//!
//! 1. SRAM alone, DRAM alone, without end: of those that help, the least amounts.
//! 2. Neither: both together, the least SRAM first and the least DRAM with it.
//! 3. More chips along the outermost dimension, by themselves.
//! 4. No memory helps: other degrees, a larger batch, or free pins and partitions; where it takes memory beside them, that too.
//!
//! Where no change of these helps, the reason of the search stands, and says so.

use super::degrees::{Degrees, assignments};
use super::record::Infeasible;
use super::request::{Answer, MapError, Request};
use super::search::map_until;
use crate::deadline::{Deadline, within};
use crate::plan::Plan;
use crate::system::{Style, System};
use crate::units::Bytes;
use crate::workload::Workload;
use serde::Serialize;
use std::fmt;

/// One change of a point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// The SRAM of a chip, in bytes.
    Sram {
        /// So much.
        bytes: f64,
    },
    /// The DRAM of a chip, in bytes.
    Dram {
        /// So much.
        bytes: f64,
    },
    /// More chips along a dimension of the network, with any data parallelism.
    Chips {
        /// The dimension.
        dimension: usize,
        /// Its size.
        size: u64,
        /// Chips of the system then.
        chips: u64,
    },
    /// Degrees.
    Degrees {
        /// Tensor parallelism.
        tp: u64,
        /// Pipeline parallelism.
        pp: u64,
        /// Data parallelism.
        dp: u64,
    },
    /// Samples of an iteration.
    Batch {
        /// So many.
        samples: u64,
    },
    /// The most partitions of a layer.
    Partitions {
        /// So many.
        most: usize,
    },
    /// No pinned partitions, no limit on their number.
    FreePartitions,
    /// No pinned strategies.
    FreeSharding,
}

impl Change {
    /// The resource, as `short_of` names it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Sram { .. } => "sram",
            Self::Dram { .. } => "dram",
            Self::Chips { .. } => "chips",
            Self::Degrees { .. } => "degrees",
            Self::Batch { .. } => "batch",
            Self::Partitions { .. } | Self::FreePartitions => "partitions",
            Self::FreeSharding => "sharding",
        }
    }

    /// How much of it is needed, how much there is, and the unit.
    fn figures(self, workload: &Workload, system: &System, request: &Request) -> (f64, f64, &'static str) {
        match self {
            Self::Partitions { most } => (most as f64, request.max_partitions.map_or(0.0, |n| n as f64), "partitions"),
            Self::Sram { bytes } => (bytes, system.chip.0.sram.0, "bytes"),
            Self::Dram { bytes } => (bytes, system.memory.0.capacity.map_or(0.0, |c| c.0), "bytes"),
            Self::Chips { chips, .. } => (chips as f64, system.chip_count() as f64, "chips"),
            Self::Batch { samples } => (samples as f64, workload.global_batch as f64, "samples"),
            Self::Degrees { .. } | Self::FreePartitions | Self::FreeSharding => (1.0, 0.0, "choices"),
        }
    }

    /// Changes a point.
    pub fn apply(self, workload: &mut Workload, system: &mut System, request: &mut Request) {
        match self {
            Self::Sram { bytes } => system.set_sram(bytes),
            Self::Dram { bytes } if system.memory.0.on_chip => system.set_sram(bytes.max(system.chip.0.sram.0)),
            Self::Dram { bytes } => system.memory.0.capacity = Some(Bytes(bytes)),
            Self::Chips { dimension, size, .. } => {
                if let Some(d) = system.network.dimensions.get_mut(dimension) {
                    d.size = size;
                }
                let chips = system.network.chips();
                system.chips = system.chips.map(|_| chips);
                request.wanted.dp = None;
                request.pins.uses = None;
            }
            Self::Degrees { tp, pp, dp } => {
                (request.wanted.tp, request.wanted.pp, request.wanted.dp) = (Some(tp), Some(pp), Some(dp));
                request.pins.uses = None;
            }
            Self::Batch { samples } => workload.global_batch = samples,
            Self::Partitions { most } => request.max_partitions = Some(most),
            Self::FreePartitions => {
                request.max_partitions = None;
                request.pins.partition = Vec::new();
            }
            Self::FreeSharding => request.pins.sharding = Vec::new(),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sram { bytes } => write!(f, "an SRAM of {}", Bytes(*bytes)),
            Self::Dram { bytes } => write!(f, "a DRAM of {}", Bytes(*bytes)),
            Self::Chips { dimension, size, chips } => write!(f, "{chips} chips ({size} along dimension {dimension})"),
            Self::Degrees { tp, pp, dp } => write!(f, "TP = {tp}, PP = {pp}, DP = {dp}"),
            Self::Batch { samples } => write!(f, "a global_batch of {samples}"),
            Self::Partitions { most } => write!(f, "--max-partitions {most} (in a study solve.max_partitions)"),
            Self::FreePartitions => f.write_str("partitions without pins and --max-partitions"),
            Self::FreeSharding => f.write_str("a sharding without pins"),
        }
    }
}

/// Changes that together make a point feasible, as was found by mapping it with them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mend {
    /// All of them are needed.
    pub changes: Vec<Change>,
    /// Whether one per cent less of any memory among them is not enough (with the others as they are).
    pub least: bool,
}

impl Mend {
    /// Bytes of the one memory that it changes.
    pub fn bytes(&self) -> Option<f64> {
        match self.changes.as_slice() {
            [Change::Sram { bytes } | Change::Dram { bytes }] => Some(*bytes),
            _ => None,
        }
    }

    /// The point with the changes.
    pub fn apply(&self, workload: &Workload, system: &System, request: &Request) -> (Workload, System, Request) {
        let (mut workload, mut system, mut request) = (workload.clone(), system.clone(), request.clone());
        self.changes.iter().for_each(|c| c.apply(&mut workload, &mut system, &mut request));
        (workload, system, request)
    }
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.changes.iter().map(Change::to_string).collect();
        let each = if words.len() > 1 { " together" } else { "" };
        write!(f, "{}{each}", words.join(" and "))
    }
}

/// Most sets of shardings of one search: dozens of amounts are tried, and a set that fits is found early or is rare.
const SETS: u64 = 500;

/// More than any chip has, and any point needs.
const ENDLESS: f64 = 1e18;
/// How near the bisection comes to the least amount.
const CLOSE: f64 = 1.004;
/// How often a first amount that is not enough is doubled.
const DOUBLINGS: u32 = 8;

/// What a search for a plan of a changed point says.
enum Tried {
    Plan(Box<Plan>),
    None,
    /// A limit ended it, or the changed point contradicts the request.
    Unknown,
}

/// A memory of a chip.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Sram,
    Dram,
}

/// A point without a plan.
pub struct Lacking<'a> {
    workload: &'a Workload,
    system: &'a System,
    request: &'a Request,
    deadline: Deadline,
}

/// Names what a point lacks. `reason` is the search's own.
pub(super) fn named(
    workload: &Workload,
    system: &System,
    request: &Request,
    reason: Infeasible,
    deadline: Deadline,
) -> Infeasible {
    let point = Lacking::new(workload, system, request, deadline);
    let mut mends = point.memories(&reason);
    // One resource alone is named before several.
    if mends.first().is_none_or(|mend| mend.changes.len() > 1) {
        let of_memory = matches!(reason.resource.as_str(), "sram" | "dram");
        let mut others = if of_memory { point.chips().into_iter().collect() } else { point.structure(&reason) };
        if others.is_empty() && mends.is_empty() {
            others = if of_memory { point.structure(&reason) } else { point.chips().into_iter().collect() };
        }
        mends.splice(0..0, others);
    } else if reason.resource == "partitions" {
        mends.extend(point.structure(&reason));
    }
    point.told(reason, mends)
}

impl<'a> Lacking<'a> {
    /// Of a point that was found to have no plan.
    pub fn new(workload: &'a Workload, system: &'a System, request: &'a Request, deadline: Deadline) -> Self {
        Self { workload, system, request, deadline }
    }

    /// The reason with what mends the point.
    fn told(&self, reason: Infeasible, mends: Vec<Mend>) -> Infeasible {
        let why = reason.remedy;
        let Some(first) = mends.first() else {
            let nothing = match self.deadline.is_over() {
                true => format!("what would mend it was not found {}", within()),
                false => "no larger memory, more chips, other degrees or larger batch that were tried mend it".into(),
            };
            return Infeasible { remedy: format!("{why}; {nothing}"), ..reason };
        };
        let measured = |c: &Change| {
            matches!(c, Change::Sram { .. } | Change::Dram { .. } | Change::Chips { .. } | Change::Partitions { .. })
        };
        // Of a choice that was given, the reason tells more than that another would do.
        let names: Vec<&str> =
            first.changes.iter().map(|c| if measured(c) { c.resource() } else { reason.resource.as_str() }).collect();
        let resource = names.join("+");
        // That one memory stands in the way where the search looked says nothing of another.
        let other = matches!(reason.resource.as_str(), "sram" | "dram") && resource != reason.resource;
        let why = if other { String::new() } else { format!("{why}; ") };
        let figures =
            first.changes.first().filter(|c| measured(c)).map(|c| c.figures(self.workload, self.system, self.request));
        let (needed, available, unit) = figures.unwrap_or((reason.needed, reason.available, reason.unit.as_str()));
        let list: Vec<String> = mends.iter().map(Mend::to_string).collect();
        let least = if mends.iter().all(|m| m.least) { "" } else { " (less may be enough)" };
        Infeasible {
            resource,
            needed,
            available,
            unit: unit.into(),
            remedy: format!("{why}enough: {}{least}", list.join(", or ")),
            mends,
        }
    }

    /// Looks for any plan of the point with some changes.
    fn tried(&self, changes: &[Change]) -> Tried {
        if self.deadline.is_over() {
            return Tried::Unknown;
        }
        let mend = Mend { changes: changes.to_vec(), least: false };
        let (workload, system, request) = mend.apply(self.workload, self.system, self.request);
        let request = Request { any: true, joint_nodes: request.joint_nodes.min(SETS), ..request };
        match map_until(&workload, &system, &request, self.deadline) {
            Ok(Answer::Mapped(plan, _)) => Tried::Plan(plan),
            Ok(Answer::Infeasible(_)) => Tried::None,
            Err(
                MapError::NoPlanYet { .. } | MapError::Request(_) | MapError::Solver(_) | MapError::Disagreement { .. },
            ) => Tried::Unknown,
        }
    }

    fn now(&self, memory: Memory) -> Option<f64> {
        match memory {
            Memory::Sram => Some(self.system.chip.0.sram.0),
            // Of one on chip there is as much as SRAM.
            Memory::Dram => self.system.memory.0.capacity.filter(|_| !self.system.memory.0.on_chip).map(|c| c.0),
        }
    }

    /// The least of a memory, beside other changes, that gives a plan, and whether it is known to be the least; `None` where none of it does.
    /// `most`: more is not wanted.
    fn least(&self, beside: &[Change], memory: Memory, hint: Option<f64>, most: f64) -> Option<(Change, bool)> {
        let now = self.now(memory)?;
        let of = |bytes: f64| match memory {
            Memory::Sram => Change::Sram { bytes },
            Memory::Dram => Change::Dram { bytes },
        };
        let with = |bytes: f64| self.tried(&[beside, &[of(bytes)]].concat());
        // As it is printed, and more than there is.
        let above = |bytes: f64| Bytes(bytes.max(now * (1.0 + 1e-9))).printed_above().0;
        let (mut short, mut enough, mut sure) = (now, None, true);
        if let Some(hint) = hint.map(above).filter(|hint| *hint <= most) {
            match with(hint) {
                Tried::Plan(_) => {
                    enough = Some(hint);
                    // Often just what is needed.
                    let less = hint / CLOSE;
                    if less > short && matches!(with(less), Tried::None) {
                        short = less;
                    }
                }
                Tried::None => short = hint,
                Tried::Unknown => {}
            }
        }
        if enough.is_none() {
            let Tried::Plan(plan) = with(most) else { return None };
            let used = match memory {
                Memory::Sram => plan.figures.sram_bytes(),
                Memory::Dram => plan.figures.memory.total(),
            };
            let mut bytes = above(used);
            for _ in 0..DOUBLINGS {
                if bytes >= most || matches!(with(bytes), Tried::Plan(_)) {
                    break;
                }
                bytes = above(bytes * 2.0);
            }
            enough = Some(if bytes < most { bytes } else { above(most) });
        }
        let mut enough = enough?;
        while enough > short * CLOSE {
            let middle = above((short * enough).sqrt());
            if middle <= short || middle >= enough {
                break;
            }
            match with(middle) {
                Tried::Plan(_) => enough = middle,
                Tried::None => short = middle,
                Tried::Unknown => (short, sure) = (middle, false),
            }
        }
        Some((of(enough), sure))
    }

    /// Memories that mend the point: one by itself, or both. The first is the one that grows by the smaller factor.
    fn memories(&self, reason: &Infeasible) -> Vec<Mend> {
        let order = if reason.resource == "sram" { [Memory::Sram, Memory::Dram] } else { [Memory::Dram, Memory::Sram] };
        let mut found: Vec<(f64, Mend)> = Vec::new();
        for memory in order {
            let Some(now) = self.now(memory) else { continue };
            let own = if memory == Memory::Sram { "sram" } else { "dram" };
            let hint = (reason.resource == own && reason.unit == "bytes").then_some(reason.needed);
            // Of a second one only what is nearer is of interest.
            let most = found.first().map_or(ENDLESS, |(factor, _)| now * factor);
            if let Some((change, least)) = self.least(&[], memory, hint, most) {
                let (needed, available, _) = change.figures(self.workload, self.system, self.request);
                found.push((needed / available, Mend { changes: vec![change], least }));
            }
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        if found.is_empty() {
            return self.both(&[]).into_iter().collect();
        }
        found.into_iter().map(|(_, mend)| mend).collect()
    }

    /// Both memories, beside other changes: the least SRAM with a DRAM without end, and the least DRAM with that SRAM.
    fn both(&self, beside: &[Change]) -> Option<Mend> {
        self.now(Memory::Dram)?;
        let endless = [beside, &[Change::Dram { bytes: ENDLESS }]].concat();
        let (sram, first) = self.least(&endless, Memory::Sram, None, ENDLESS)?;
        let (dram, second) = self.least(&[beside, &[sram]].concat(), Memory::Dram, None, ENDLESS)?;
        Some(Mend { changes: [beside, &[sram, dram]].concat(), least: first && second })
    }

    /// The fewest chips along the outermost dimension, of those tried, with any data parallelism.
    pub fn chips(&self) -> Option<Mend> {
        let last = self.system.network.dimensions.len().checked_sub(1)?;
        let size = self.system.network.dimensions[last].size;
        let others = self.system.network.chips() / size.max(1);
        let step = (size / 8).max(1);
        let near = (1..=24).map(|i| size.saturating_add(step.saturating_mul(i)));
        let far = (3..=10).map(|i| size.saturating_mul(1 << i));
        let sizes = near.chain(far).filter(|size| *size <= 1 << 20);
        let changes = sizes.map(|size| Change::Chips { dimension: last, size, chips: others.saturating_mul(size) });
        changes.into_iter().find_map(|change| self.mends(&[change], true))
    }

    /// Whether changes mend the point.
    fn mends(&self, changes: &[Change], least: bool) -> Option<Mend> {
        matches!(self.tried(changes), Tried::Plan(_)).then(|| Mend { changes: changes.to_vec(), least })
    }

    /// What mends a point that no memory mends: another choice of what was given, beside it memory where that is short too.
    fn structure(&self, reason: &Infeasible) -> Vec<Mend> {
        let (wanted, pins) = (&self.request.wanted, &self.request.pins);
        let mut changes: Vec<Change> = Vec::new();
        match self.partitions() {
            Some(more) => changes.push(more),
            None if self.request.max_partitions.is_some() || pins.partition.iter().any(Option::is_some) => {
                changes.push(Change::FreePartitions);
            }
            None => {}
        }
        if pins.sharding.iter().any(Option::is_some) {
            changes.push(Change::FreeSharding);
        }
        let given = wanted.tp.or(wanted.pp).or(wanted.dp).is_some() || pins.uses.is_some();
        if given {
            changes.extend(self.other_degrees());
        }
        if reason.resource == "batch" {
            let all = assignments(self.system, wanted.split);
            let least = |d: u64| self.workload.micro_batch.saturating_mul(d);
            let mut batches: Vec<u64> = all.iter().filter(|d| wanted.fits(d)).map(|d| least(d.dp)).collect();
            batches.retain(|b| *b > self.workload.global_batch);
            batches.sort_unstable();
            batches.dedup();
            changes.extend(batches.into_iter().take(4).map(|samples| Change::Batch { samples }));
        }
        let mut found: Vec<Mend> = Vec::new();
        for change in changes {
            let fewer_known = self.system.chip.0.style == Style::KernelByKernel;
            let next = |most: usize| fewer_known || self.request.max_partitions == most.checked_sub(1);
            let least = if let Change::Partitions { most } = change { next(most) } else { true };
            found.extend(self.mends(&[change], least));
        }
        // Of batches the smallest is named.
        found.dedup_by_key(|mend| mend.changes[0].resource());
        if found.is_empty() && given {
            // It takes memory beside other degrees: those that a point of endless memory takes.
            let endless = [Change::Sram { bytes: ENDLESS }, Change::Dram { bytes: ENDLESS }];
            if let Some(degrees) = self.free_degrees(&endless) {
                let alone = |memory| self.least(&[degrees], memory, None, ENDLESS);
                let one = alone(Memory::Dram).or_else(|| alone(Memory::Sram));
                let mend = one.map(|(memory, least)| Mend { changes: vec![degrees, memory], least });
                found.extend(mend.or_else(|| self.both(&[degrees])));
            }
        }
        found
    }

    /// How many partitions give a plan where so few as are given do not: the fewest, with the sharding that a first pass takes.
    pub(super) fn partitions(&self) -> Option<Change> {
        let (mut short, mut enough) = (self.request.max_partitions?, self.workload.kernels.len());
        let request = Request { joint_nodes: 0, ..self.request.clone() };
        let point = Lacking { request: &request, ..*self };
        let has = |most: usize| matches!(point.tried(&[Change::Partitions { most }]), Tried::Plan(_));
        if enough <= short || !has(enough) {
            return None;
        }
        while enough - short > 1 {
            let middle = short + (enough - short) / 2;
            *if has(middle) { &mut enough } else { &mut short } = middle;
        }
        Some(Change::Partitions { most: enough })
    }

    /// Degrees that some plan has where none are given.
    fn free_degrees(&self, beside: &[Change]) -> Option<Change> {
        let mut request = self.request.clone();
        (request.wanted.tp, request.wanted.pp, request.wanted.dp) = (None, None, None);
        request.pins.uses = None;
        let free = Lacking { request: &request, ..*self };
        let Tried::Plan(plan) = free.tried(beside) else { return None };
        Some(Change::Degrees { tp: plan.figures.tp, pp: plan.figures.pp, dp: plan.figures.dp })
    }

    fn other_degrees(&self) -> Option<Change> {
        self.free_degrees(&[])
    }

    /// The least of each memory that has a limit by itself: name, what there is, and what is enough. What the reason names already is not
    /// searched again.
    pub fn each_memory(&self, reason: &Infeasible) -> Vec<(&'static str, f64, Option<Mend>)> {
        let names = [(Memory::Sram, "SRAM of a chip"), (Memory::Dram, "DRAM capacity of a chip")];
        let of = |(memory, name): (Memory, &'static str)| {
            let now = self.now(memory)?;
            let own = if memory == Memory::Sram { "sram" } else { "dram" };
            let is_own = |mend: &&Mend| matches!(mend.changes.as_slice(), [change] if change.resource() == own);
            let known = reason.mends.iter().find(is_own).cloned();
            let mend = known.or_else(|| {
                let (change, least) = self.least(&[], memory, None, ENDLESS)?;
                Some(Mend { changes: vec![change], least })
            });
            Some((name, now, mend))
        };
        names.into_iter().filter_map(of).collect()
    }

    /// The value nearest to `now` of a degree, with any data parallelism, that gives a plan: `of` and `set` say which degree.
    pub fn degree(&self, now: u64, of: fn(&Degrees) -> u64, set: fn(&mut Request, u64)) -> Option<u64> {
        let mut values: Vec<u64> = assignments(self.system, self.request.wanted.split).iter().map(of).collect();
        values.retain(|value| *value != now);
        let mut request = self.request.clone();
        // The nearest first, larger ones before smaller ones as these need less memory.
        values.sort_unstable_by_key(|value| (*value < now, value.abs_diff(now)));
        values.dedup();
        request.wanted.dp = None;
        request.pins.uses = None;
        values.into_iter().find(|value| {
            let mut request = request.clone();
            set(&mut request, *value);
            let point = Lacking { request: &request, ..*self };
            matches!(point.tried(&[]), Tried::Plan(_))
        })
    }
}
