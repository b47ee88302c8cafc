//! The best of all executions of a model on a machine, with proof.
//!
//! **Space.** Every tp, cp, pp, dp whose product is the chips asked for, every ep, every microbatch that divides a replica's samples (tp a divisor of the heads, cp of
//! the tokens, ep of the experts; pp up to the layers); 1F1B, GPipe, zero bubble and every interleaving that divides microbatches and layers (or layers, embedding and head); recomputation none,
//! selective, full; sequence parallelism and overlap of tensor parallelism where there is some; ZeRO 0 to 3 where there are replicas; overlap of data
//! parallelism; overlaps where the stack can; every offload where there is a second tier. Pins leave one value of a decision. [`executions`] lists it.
//!
//! **Order.** What a microbatch takes ([`super::block`]) depends on (tp, cp, ep, microbatch, sequence parallelism, recomputation, overlap of tensor parallelism)
//! alone, and most of it not on the last two: kernels are added up once for each of the others. A *cell* is the degrees and one block; it
//! has a lower bound over all its schedules, ZeRO stages, offloads and overlaps (`schedule::Plan::bound`). Cells are taken by rising bound until the bound of
//! the next is not below the best execution found: then no cell left holds a better one. Where the inner search has not proven the mappings of a cell, it waits again by what they take at least, and is looked at once more with more effort when its turn comes again. Within a cell, memory is compared with the capacity before time is
//! computed, first with the schedule that keeps least (1F1B).
//!
//! **Inner searches.** The search knows blocks by their passes alone ([`super::block::Inner`]): a lower bound of each, from which cells are bounded and listed, and the
//! answer of the inner search, which is asked for when a cell is looked at. What the inner search of a software stack answers is its bound. The free one takes the
//! fastest mapping of each block and, where something that may win does not fit by it, the fastest that keeps parts only; others that are slower and keep less are not in the space, and where its own proof leaves a gap, so does this.
//!
//! **Objectives.** Energy and cost count seconds and the joules that use adds ([`Aim`]); a cell's bound has the joules of its blocks besides. Mappings of blocks are those that are best in time.
//!
//! **Proof.** The bound is part of the sum that the time is, the cells cover the space, so the smallest bound of what was not looked at, or the
//! best time if that is less, bounds the optimum from below; at the end both are equal. Ties go to the cell with the smaller bound, then to the one listed
//! first, within a cell to the first listed.
//!
//! **Size.** A batch may have thousands of divisors. Memory grows with the microbatch, so that of each kind of block those beyond the largest that
//! any state fits are left out unpriced; and cells are listed some at a time (`cells.rs`), so that no space takes more than some 200 MB.

use super::block::{Best, BlockKey, Blocks, FOR_ONE, Inner, Space};
use super::cells::Cells;
use super::layer::Division;
use super::machine::Machine;
use super::memory::Memory;
use super::policy::Policy;
use super::predict::{Prediction, of_blocks, suits};
use super::schedule::Pipeline;
use super::spec::{Execution, Offload, Recompute, Schedule, Zero};
use crate::deadline::{Deadline, is_interrupted, within};
use crate::model::divisors::divisors;
use crate::model::objective::{Objective, Worth};
use crate::plan::Plan;
use crate::progress::Steps;
use crate::solver::record::{Status, relative_gap};
use crate::system::System;
use crate::system::economics::Economics;
use crate::units::Bytes;
use crate::workload::language::LanguageModel;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

crate::spec! {
    /// Decisions of an execution that are given; the others are searched.
    #[derive(Default)]
    pub struct Pins ("decisions of an execution") {
        /// Chips to use; left out: all of the machine.
        chips: Option<u64>,
        /// Tensor parallelism.
        tp: Option<u64>,
        /// Pipeline parallelism.
        pp: Option<u64>,
        /// Data parallelism.
        dp: Option<u64>,
        /// Context parallelism.
        cp: Option<u64>,
        /// Expert parallelism.
        ep: Option<u64>,
        /// Samples of a microbatch.
        micro_batch: Option<u64>,
        /// Schedule.
        schedule: Option<Schedule>,
        /// Chunks.
        chunks: Option<u64>,
        /// Recomputation.
        recompute: Option<Recompute>,
        /// Sequence parallelism.
        sequence_parallel: Option<bool>,
        /// ZeRO.
        zero: Option<Zero>,
        /// Offload.
        offload: Option<Offload>,
        /// Overlap of the reduction of gradients.
        overlap_dp: Option<bool>,
        /// Overlap of tensor-parallel collectives.
        overlap_tp: Option<bool>,
    }
}

/// A gap that is rounding.
pub const ROUNDING: f64 = 1e-6;

/// What is said of a search that a limit of seconds, or the user, ended before it had anything that fits.
pub fn not_within() -> String {
    let then =
        if is_interrupted() { "run it again, for longer" } else { "raise --time-limit (in a study solve.seconds)" };
    format!("no plan {}, which does not prove that there is none: {then}", within())
}

/// What is minimised, and what that counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aim {
    /// What.
    pub objective: Objective,
    /// Its value of a second and of a joule.
    pub worth: Worth,
}

impl Aim {
    /// The least time.
    pub const TIME: Self = Self { objective: Objective::Time, worth: Worth::TIME };

    /// An objective on a system.
    ///
    /// # Errors
    /// A sentence: it is zero for everything.
    pub fn of(objective: Objective, economics: &Economics, system: &System) -> Result<Self, String> {
        Ok(Self { objective, worth: Worth::of(objective, economics, system)? })
    }

    /// The value of an execution.
    pub(super) fn value(&self, plan: &Pipeline<'_>, e: &Execution) -> f64 {
        // Joules are not added up where nothing counts them.
        let joules = if self.worth.joule > 0.0 { plan.used(e).total() } else { 0.0 };
        self.worth.value(plan.seconds(e), joules)
    }

    /// A value below which none of `schedules`, no ZeRO, offload or overlap of data parallelism brings it.
    pub(super) fn bound(
        &self,
        plan: &Pipeline<'_>,
        e: &Execution,
        divided: bool,
        schedules: &[(Schedule, u64)],
    ) -> f64 {
        let joules = if self.worth.joule > 0.0 { plan.used_by_blocks(e).total() } else { 0.0 };
        self.worth.value(plan.bound(e, divided, schedules), joules)
    }
}

/// The answer of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The best execution; `None` where none fits.
    pub best: Option<Prediction>,
    /// What was minimised.
    pub objective: Objective,
    /// Its value of the best; infinite where none fits.
    pub value: f64,
    /// A value below which no execution of the space comes; infinite where none fits.
    pub bound: f64,
    /// Executions of the space.
    pub covered: u64,
    /// Executions whose time was computed.
    pub evaluated: u64,
    /// Executions whose memory was computed, and did not fit.
    pub too_large: u64,
    /// Executions of blocks for which the inner search has no mapping.
    pub unmapped: u64,
    /// Cells of degrees and blocks.
    pub cells: u64,
    /// Cells that the bound left out.
    pub pruned: u64,
    /// Distinct blocks.
    pub blocks: u64,
    /// Whether the deadline stopped it: then the best is the best so far, and the bound that of the cells that were left.
    pub stopped: bool,
    /// Whether it was not the deadline but the effort of the inner search.
    pub spent: bool,
    /// The mapping of the blocks of the best, where it is one of graphs.
    pub plan: Option<Arc<Plan>>,
    /// Whether `least` is what its blocks need at least, whatever their mapping.
    pub lower: bool,
    /// Where none fits: the execution that needs least memory, and what it needs.
    pub least: Option<(Execution, Memory)>,
}

impl Pins {
    /// These, and where one is not given that of `others`.
    pub fn or(self, others: Self) -> Self {
        Self {
            chips: self.chips.or(others.chips),
            tp: self.tp.or(others.tp),
            pp: self.pp.or(others.pp),
            dp: self.dp.or(others.dp),
            cp: self.cp.or(others.cp),
            ep: self.ep.or(others.ep),
            micro_batch: self.micro_batch.or(others.micro_batch),
            schedule: self.schedule.or(others.schedule),
            chunks: self.chunks.or(others.chunks),
            recompute: self.recompute.or(others.recompute),
            sequence_parallel: self.sequence_parallel.or(others.sequence_parallel),
            zero: self.zero.or(others.zero),
            offload: self.offload.or(others.offload),
            overlap_dp: self.overlap_dp.or(others.overlap_dp),
            overlap_tp: self.overlap_tp.or(others.overlap_tp),
        }
    }

    /// The execution of what is given, with one of everything else.
    fn alone(&self) -> Execution {
        let chunks = self.chunks.unwrap_or(1);
        Execution {
            tp: self.tp.unwrap_or(1),
            pp: self.pp.unwrap_or(1),
            dp: self.dp.unwrap_or(1),
            ep: self.ep.unwrap_or(1),
            cp: self.cp.unwrap_or(1),
            micro_batch: self.micro_batch.unwrap_or(1),
            schedule: self.schedule.unwrap_or(if chunks > 1 {
                Schedule::Interleaved
            } else {
                Schedule::OneForwardOneBackward
            }),
            chunks,
            recompute: self.recompute.unwrap_or(Recompute::None),
            sequence_parallel: self.sequence_parallel.unwrap_or(false),
            zero: self.zero.unwrap_or(Zero::Off),
            offload: self.offload.unwrap_or(Offload::None),
            overlap_dp: self.overlap_dp.unwrap_or(false),
            overlap_tp: self.overlap_tp.unwrap_or(false),
        }
    }
}

impl Found {
    /// The better of two answers, which together are of both spaces.
    pub fn or(self, other: Self) -> Self {
        let in_time = |found: &Self| found.spent || !found.stopped;
        let both = Self {
            bound: self.bound.min(other.bound),
            covered: self.covered.saturating_add(other.covered),
            evaluated: self.evaluated + other.evaluated,
            too_large: self.too_large + other.too_large,
            unmapped: self.unmapped + other.unmapped,
            cells: self.cells + other.cells,
            pruned: self.pruned + other.pruned,
            blocks: self.blocks + other.blocks,
            stopped: self.stopped || other.stopped,
            spent: (self.spent || other.spent) && in_time(&self) && in_time(&other),
            ..self.clone()
        };
        let best = if other.value < self.value { other } else { self };
        let least = if best.best.is_some() { None } else { both.least };
        Self { best: best.best, value: best.value, plan: best.plan, lower: best.lower, least, ..both }
    }

    /// (value - bound)/value; 0 is proven optimal.
    pub fn gap(&self) -> f64 {
        if self.best.is_some() { ((self.value - self.bound) / self.value).max(0.0) } else { 0.0 }
    }

    /// `optimal`, or `time_limit` (`interrupted`) where the deadline left a gap, or `node_limit` where the inner search did.
    pub fn status(&self) -> &'static str {
        let status = match self.gap() {
            gap if self.spent && gap > ROUNDING => Status::NodeLimit,
            gap if self.stopped && gap > ROUNDING => Status::out_of_time(),
            gap if gap > ROUNDING => Status::NodeLimit,
            _ => Status::Optimal,
        };
        status.word()
    }

    /// A sentence for a search that found nothing.
    pub fn reason(&self, machine: &Machine) -> String {
        match &self.least {
            None => "the space of executions is empty: no degrees suit chips, model and what is given".into(),
            Some((e, m)) => format!(
                "none of {} executions fits: the least takes {}{} on stage {}{} with tp {} pp {} dp {} cp {} ep {}, micro_batch {}, recompute {}, zero {}, offload {}; a chip of {} has {}",
                self.covered,
                if self.lower { "at least " } else { "" },
                Bytes(m.device.total()).printed_above(),
                m.stage,
                match m.second_capacity.filter(|c| m.second_tier > *c) {
                    Some(has) => format!(
                        " and {} of the second tier, which has {}",
                        Bytes(m.second_tier).printed_above(),
                        Bytes(has)
                    ),
                    None => String::new(),
                },
                e.tp,
                e.pp,
                e.dp,
                e.cp,
                e.ep,
                e.micro_batch,
                e.recompute,
                e.zero,
                e.offload,
                machine.name,
                m.capacity.map_or_else(|| "no limit".into(), |c| Bytes(c).to_string()),
            ),
        }
    }
}

fn only<T: PartialEq + Copy>(all: impl IntoIterator<Item = T>, pin: Option<T>) -> Vec<T> {
    all.into_iter().filter(|x| pin.is_none_or(|p| p == *x)).collect()
}

/// Degrees without the microbatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Degrees {
    pub(super) tp: u64,
    pub(super) cp: u64,
    pub(super) pp: u64,
    pub(super) dp: u64,
    pub(super) ep: u64,
    /// Samples of a replica.
    pub(super) samples: u64,
}

impl Degrees {
    /// Sizes of a microbatch, rising.
    pub(super) fn micro_batches(&self, pins: &Pins) -> Vec<u64> {
        only(divisors(self.samples), pins.micro_batch)
    }

    /// Whether microbatches of a size divide among the stages, as an interleaved schedule asks.
    pub(super) fn interleaves(&self, micro_batch: u64) -> bool {
        self.pp > 1 && (self.samples / micro_batch.max(1)).is_multiple_of(self.pp)
    }
}

/// All degrees, in order.
pub(super) fn degrees(machine: &Machine, model: &LanguageModel, pins: &Pins) -> Vec<Degrees> {
    let chips = pins.chips.unwrap_or(machine.chips);
    let experts = if model.expert_layers() > 0 { model.experts.map_or(1, |e| e.count) } else { 1 };
    let mut out = Vec::new();
    if chips > machine.chips {
        return out;
    }
    let experts = only(divisors(experts), pins.ep);
    for tp in only(divisors(chips), pins.tp).into_iter().filter(|t| model.heads.is_multiple_of(*t)) {
        for cp in only(divisors(chips / tp), pins.cp).into_iter().filter(|c| model.seq.is_multiple_of(*c)) {
            for pp in only(divisors(chips / tp / cp), pins.pp).into_iter().filter(|p| *p <= model.layers) {
                let dp = chips / tp / cp / pp;
                if pins.dp.is_some_and(|d| d != dp) || !model.global_batch.is_multiple_of(dp) {
                    continue;
                }
                let samples = model.global_batch / dp;
                if pins.micro_batch.is_some_and(|b| !samples.is_multiple_of(b)) {
                    continue;
                }
                let ep = experts.iter().filter(|e| (dp * cp).is_multiple_of(**e));
                out.extend(ep.map(|ep| Degrees { tp, cp, pp, dp, ep: *ep, samples }));
            }
        }
    }
    out
}

/// Blocks of degrees with a microbatch, in order.
pub(super) fn blocks(machine: &Machine, d: &Degrees, micro_batch: u64, pins: &Pins, space: Space) -> Vec<BlockKey> {
    let switch = if d.tp > 1 && space.divides { vec![false, true] } else { vec![false] };
    let overlaps = if machine.stack.overlap_tp { switch.clone() } else { vec![false] };
    let mut out = Vec::new();
    for sequence_parallel in only(switch.clone(), pins.sequence_parallel) {
        let chips = d.tp * d.cp * d.pp * d.dp;
        let division = Division { tp: d.tp, cp: d.cp, ep: d.ep, chips, micro_batch, sequence_parallel };
        for recompute in only(Recompute::ALL.iter().copied(), pins.recompute) {
            for overlap_tp in only(overlaps.clone(), pins.overlap_tp) {
                out.push(BlockKey { division, recompute, overlap_tp });
            }
        }
    }
    out
}

/// Schedules and chunks of the degrees, where microbatches divide among the stages or not.
pub(super) fn schedules(model: &LanguageModel, d: &Degrees, interleaves: bool, pins: &Pins) -> Vec<(Schedule, u64)> {
    let plain = [Schedule::OneForwardOneBackward, Schedule::GPipe, Schedule::ZeroBubble];
    let mut out: Vec<(Schedule, u64)> = only(plain, pins.schedule).into_iter().map(|s| (s, 1)).collect();
    if interleaves && pins.schedule.is_none_or(|s| s == Schedule::Interleaved) {
        // Embedding and head may stand for a layer each ([`suits`]).
        let whole = [model.layers, model.layers.saturating_add(2)];
        let mut chunks: Vec<u64> = whole
            .iter()
            .filter(|l| l.is_multiple_of(d.pp))
            .flat_map(|l| divisors(l / d.pp))
            .filter(|v| *v > 1)
            .collect();
        chunks.sort_unstable();
        chunks.dedup();
        out.extend(chunks.into_iter().map(|v| (Schedule::Interleaved, v)));
    }
    out.retain(|(_, v)| pins.chunks.is_none_or(|c| c == *v));
    out
}

/// What remains to be decided in a cell, beside the schedule.
pub(super) struct Tails {
    pub(super) states: Vec<(Zero, Offload)>,
    pub(super) overlaps: Vec<bool>,
}

pub(super) fn tails(machine: &Machine, d: &Degrees, pins: &Pins) -> Tails {
    let alone = d.dp * d.cp == 1;
    let zeros = if alone { &[Zero::Off][..] } else { Zero::ALL };
    let there = |offload: &Offload| *offload == Offload::None || machine.second_tier.is_some();
    let offloads = only(Offload::tried().filter(there), pins.offload);
    let mut states = Vec::new();
    for zero in only(zeros.iter().copied(), pins.zero) {
        states.extend(offloads.iter().map(|o| (zero, *o)));
    }
    Tails {
        states,
        overlaps: only(
            if alone || !machine.stack.overlap_dp { vec![false] } else { vec![false, true] },
            pins.overlap_dp,
        ),
    }
}

/// The plainest execution of degrees and a block.
pub(super) fn execution(d: &Degrees, key: &BlockKey) -> Execution {
    Execution {
        tp: d.tp,
        pp: d.pp,
        dp: d.dp,
        ep: d.ep,
        cp: d.cp,
        micro_batch: key.division.micro_batch,
        schedule: Schedule::OneForwardOneBackward,
        chunks: 1,
        recompute: key.recompute,
        sequence_parallel: key.division.sequence_parallel,
        zero: Zero::Off,
        offload: Offload::None,
        overlap_dp: false,
        overlap_tp: key.overlap_tp,
    }
}

/// Every execution of the space, in order. For tests and for counting by hand: spaces have millions.
pub fn executions(machine: &Machine, model: &LanguageModel, pins: &Pins) -> Vec<Execution> {
    let mut out = Vec::new();
    let space = Space { divides: true, exact: true };
    for d in degrees(machine, model, pins) {
        let tails = tails(machine, &d, pins);
        for micro_batch in d.micro_batches(pins) {
            let schedules = schedules(model, &d, d.interleaves(micro_batch), pins);
            for key in blocks(machine, &d, micro_batch, pins, space) {
                let base = execution(&d, &key);
                for &(zero, offload) in &tails.states {
                    for &(schedule, chunks) in &schedules {
                        for &overlap_dp in &tails.overlaps {
                            out.push(Execution { schedule, chunks, zero, offload, overlap_dp, ..base.clone() });
                        }
                    }
                }
            }
        }
    }
    out.retain(|e| suits(machine, model, e).is_ok());
    out
}

/// Finds the fastest execution that fits, and proves it.
///
/// # Errors
/// A sentence where model and machine do not suit each other at all (data type, pass).
pub fn search(machine: &Machine, model: &LanguageModel, pins: &Pins) -> Result<Found, String> {
    search_until(machine, model, pins, Deadline::never())
}

/// [`search`], at most until a deadline: cells are bounded first, then looked at by rising bound as long as there is time.
///
/// # Errors
/// As [`search`].
pub fn search_until(
    machine: &Machine,
    model: &LanguageModel,
    pins: &Pins,
    deadline: Deadline,
) -> Result<Found, String> {
    search_by(&Policy::new(machine, model)?, machine, model, pins, &Aim::TIME, deadline)
}

/// [`search_until`] with any inner search: over its executions, with its mapping of each block, for any objective.
///
/// # Errors
/// As [`search`], and what the inner search says.
pub fn search_by(
    inner: &dyn Inner,
    machine: &Machine,
    model: &LanguageModel,
    pins: &Pins,
    aim: &Aim,
    deadline: Deadline,
) -> Result<Found, String> {
    search_below(inner, machine, model, pins, (aim, None), deadline)
}

/// The same for an execution that is better than one that is known, of so much; the answer has none where there is none.
///
/// # Errors
/// As [`search_by`].
pub fn search_below(
    inner: &dyn Inner,
    machine: &Machine,
    model: &LanguageModel,
    pins: &Pins,
    (aim, known): (&Aim, Option<f64>),
    deadline: Deadline,
) -> Result<Found, String> {
    let peak = machine.peak(model)?;
    if let Some(why) = inner.space().refuses(&pins.alone()) {
        return Err(why);
    }
    let one = execution(&ONE, &ONE_KEY);
    // The pass is refused here with its reason; one chip and one sample suit everything else.
    suits(machine, model, &one)?;
    let mut found = Found {
        best: None,
        objective: aim.objective,
        value: f64::INFINITY,
        bound: f64::INFINITY,
        covered: 0,
        evaluated: 0,
        too_large: 0,
        unmapped: 0,
        cells: 0,
        pruned: 0,
        blocks: 0,
        stopped: false,
        spent: false,
        plan: None,
        lower: !inner.space().exact,
        least: None,
    };
    let mut cells = Cells::new(machine, model, pins, inner, *aim);
    found.covered = cells.covered();
    if found.covered == 0 {
        // What is given, and one of everything else: the first rule that it breaks is the reason.
        let why = suits(machine, model, &pins.alone()).err().or_else(|| without(machine, model, pins));
        let chips = pins.chips.unwrap_or(machine.chips);
        if chips > machine.chips {
            return Err(format!("{chips} chips are asked for, {} has {}", machine.name, machine.chips));
        }
        return Err(format!(
            "no execution has what is given on {chips} chips of {}: {}{}",
            machine.name,
            why.unwrap_or_else(|| "no degrees of parallelism multiply to them and divide the batch".into()),
            nearest_chips(machine, model, (pins, inner.space()), chips)
        ));
    }
    let other = |value: f64| {
        (value, one.clone(), Best { blocks: Blocks::default(), least: Blocks::default(), effort: None, plan: None })
    };
    let mut best: Option<(f64, Execution, Best)> = known.map(other);
    let mut looked = false;
    // Who gave it a time has the search use it.
    let is_spent = |gap: f64| deadline.left().is_none() && inner.is_spent(gap);
    while !found.stopped && cells.list(best.as_ref().map(|(value, ..)| *value), deadline, &mut found) {
        let steps = Steps::of("cells of degrees", cells.len() as u64);
        let mut done = vec![false; cells.len()];
        // The cell of the best.
        let mut winner = None;
        let mut look = |cells: &mut Cells, i: usize, best: &mut Option<(f64, Execution, Best)>, found: &mut Found| {
            let value =
                |best: &Option<(f64, Execution, Best)>| best.as_ref().map_or(f64::INFINITY, |(value, ..)| *value);
            let before = value(best);
            let is_all = cells.look(i, best, found, deadline)?;
            if value(best) < before {
                winner = Some(i);
            }
            Ok::<bool, String>(is_all)
        };
        for i in cells.most_promising(PROMISING) {
            if looked && deadline.is_over() {
                break;
            }
            if best.as_ref().is_some_and(|(value, ..)| cells.bound(i) >= *value) {
                // Left out below.
                continue;
            }
            (looked, done[i]) = (true, look(&mut cells, i, &mut best, &mut found)?);
            steps.step();
        }
        // All with little effort before any with more: what is found so leaves many out. Bounds are not negative, so that their bits rise with them.
        let place = |cells: &Cells, i: usize| Reverse((cells.effort(i) > 0, cells.bound(i).to_bits(), i));
        let mut queue: BinaryHeap<_> = (0..cells.len()).filter(|i| !done[*i]).map(|i| place(&cells, i)).collect();
        // The least bound of cells that are looked at again later.
        let later = queue.iter().filter(|Reverse((again, ..))| *again).map(|Reverse((_, _, i))| cells.bound(*i));
        let mut deeper = later.fold(f64::INFINITY, f64::min);
        while let Some(Reverse((again, _, i))) = queue.pop() {
            if best.as_ref().is_some_and(|(value, ..)| cells.bound(i) >= *value) {
                // So are all that come before the others; who was looked at was not left out.
                let before = queue.len() as u64;
                queue.retain(|Reverse((other, ..))| *other && !again);
                found.pruned += if again { 0 } else { before - queue.len() as u64 + 1 };
                continue;
            }
            let bound = if again { cells.bound(i) } else { cells.bound(i).min(deeper) };
            // The cell of least bound is looked at whatever the deadline.
            let gap = best.as_ref().map_or(1.0, |(value, ..)| relative_gap(*value, bound.min(found.bound)));
            if looked && (deadline.is_over() || is_spent(gap)) {
                found.spent = !deadline.is_over();
                found.stopped = true;
                let left = queue.iter().map(|Reverse((_, _, i))| cells.bound(*i));
                found.bound = left.fold(found.bound.min(bound), f64::min);
                // The blocks of the best are worth as much as those of a given execution.
                let more = best.as_ref().is_some_and(|(.., of)| of.effort.is_some_and(|had| had < FOR_ONE));
                if let Some(winner) = winner.filter(|_| found.spent && more) {
                    cells.go_on(winner, FOR_ONE);
                    cells.look(winner, &mut best, &mut found, deadline)?;
                }
                break;
            }
            if !look(&mut cells, i, &mut best, &mut found)? {
                queue.push(place(&cells, i));
                deeper = deeper.min(cells.bound(i));
            }
            looked = true;
            steps.step();
        }
        if !cells.are_all() && (deadline.is_over() || is_spent(1.0)) {
            found.stopped = true;
            found.spent |= !deadline.is_over();
        }
    }
    if found.stopped && !cells.are_all() {
        found.bound = found.bound.min(aim.worth.second * cells.floor(peak));
    }
    if let Some(known) = known {
        found.bound = found.bound.min(known);
    }
    if let Some((value, execution, of)) = best.filter(|(value, ..)| known.is_none_or(|known| *value < known)) {
        // What was left out is bounded by a cell's bound that is not below this value.
        found.bound = found.bound.min(value);
        found.value = value;
        found.least = None;
        found.best = Some(of_blocks(machine, model, &execution, of.blocks)?);
        found.plan = of.plan;
    }
    Ok(found)
}

/// What no execution of the degrees that are there has of what is given; `None` where there are no degrees.
fn without(machine: &Machine, model: &LanguageModel, pins: &Pins) -> Option<String> {
    let degrees = degrees(machine, model, pins);
    if degrees.is_empty() {
        return None;
    }
    if degrees.iter().all(|d| schedules(model, d, d.pp > 1, pins).is_empty()) {
        return Some("no schedule is as given: `interleaved` takes pp > 1 and chunks above 1 that divide the layers of a stage, every other schedule has one chunk".into());
    }
    let has = |d: &Degrees| {
        let tails = tails(machine, d, pins);
        !tails.states.is_empty() && !tails.overlaps.is_empty()
    };
    let why = "ZeRO, offload or overlap_dp cannot be as given: ZeRO and overlap_dp take several replicas (dp x cp > 1), overlap_dp software that overlaps, offload a second tier of memory";
    (!degrees.iter().any(has)).then(|| why.into())
}

/// Cuts whose cells are looked at before all others, by a guess.
const PROMISING: usize = 6;

/// Numbers of chips tried on each side of one that no degrees suit.
const MOST_TRIED: u64 = 1024;

/// The numbers of chips next to `chips` that degrees suit, as the end of a message.
fn nearest_chips(machine: &Machine, model: &LanguageModel, (pins, space): (&Pins, Space), chips: u64) -> String {
    let suits = |n: &u64| {
        let pins = Pins { chips: Some(*n), ..pins.clone() };
        degrees(machine, model, &pins).iter().any(|d| {
            let tails = tails(machine, d, &pins);
            !schedules(model, d, d.pp > 1, &pins).is_empty()
                && !tails.states.is_empty()
                && !tails.overlaps.is_empty()
                && !blocks(machine, d, 1, &pins, space).is_empty()
        })
    };
    let how = "`--chips` of map, `solve.execution.chips` of a study; a budget with `sizes: divisible` or `power_of_two` keeps to numbers that most models suit";
    let below = (chips.saturating_sub(MOST_TRIED).max(1)..chips).rev().find(suits);
    let above = (chips + 1..=machine.chips.min(chips.saturating_add(MOST_TRIED))).find(suits);
    match (below, above) {
        (Some(a), Some(b)) => format!("; the nearest numbers that have some: {a}, {b} ({how})"),
        (Some(n), None) | (None, Some(n)) => format!("; the nearest number that has some: {n} ({how})"),
        (None, None) => String::new(),
    }
}

pub(super) const ONE: Degrees = Degrees { tp: 1, cp: 1, pp: 1, dp: 1, ep: 1, samples: 1 };
/// A block that nothing divides.
pub const ONE_KEY: BlockKey = BlockKey {
    division: Division { tp: 1, cp: 1, ep: 1, chips: 1, micro_batch: 1, sequence_parallel: false },
    recompute: Recompute::None,
    overlap_tp: false,
};
