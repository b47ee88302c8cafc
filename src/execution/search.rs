//! The best of all executions of a model on a machine, with proof.
//!
//! **Space.** Every tp, cp, pp, dp whose product is the chips asked for, every ep, every microbatch that divides a replica's samples (tp a divisor of the heads, cp of
//! the tokens, ep of the experts; pp up to the layers); 1F1B, GPipe, zero bubble and every interleaving that divides microbatches and layers (or layers, embedding and head); recomputation none,
//! selective, full; sequence parallelism and overlap of tensor parallelism where there is some; ZeRO 0 to 3 where there are replicas; overlap of data
//! parallelism; overlaps where the stack can; every offload where there is a second tier. Pins leave one value of a decision. [`executions`] lists it.
//!
//! **Order.** What a microbatch takes ([`Block`]) depends on (tp, cp, ep, microbatch, sequence parallelism, recomputation, overlap of tensor parallelism)
//! alone, and most of it not on the last two: kernels are added up once for each of the others. A *cell* is the degrees and one block; it
//! has a lower bound over all its schedules, ZeRO stages, offloads and overlaps ([`Plan::bound`]). Cells are taken by rising bound until the bound of
//! the next is not below the best execution found: then no cell left holds a better one. Within a cell, memory is compared with the capacity before time is
//! computed, first with the schedule that keeps least (1F1B).
//!
//! **Proof.** The bound is part of the sum that the time is, the cells cover the space, so the smallest bound of what was not looked at, or the
//! best time if that is less, bounds the optimum from below; at the end both are equal. Ties go to the cell with the smaller bound, then to the one listed
//! first, within a cell to the first listed.

use super::block::{Block, BlockKey, BlockSums};
use super::communication::IterationLinks;
use super::layer::Division;
use super::machine::Machine;
use super::memory::{self, Memory};
use super::predict::{Prediction, predict_any, suits};
use super::schedule::{self, ChipWeights, Constants, Plan, StageKind};
use super::spec::{Execution, Offload, Recompute, Schedule, Zero};
use crate::progress::Steps;
use crate::units::Bytes;
use crate::workload::language::LanguageModel;
use std::collections::HashMap;
use std::time::Instant;

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

/// The answer of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The best execution; `None` where none fits.
    pub best: Option<Prediction>,
    /// Seconds below which no execution of the space comes; infinite where none fits.
    pub bound: f64,
    /// Executions of the space.
    pub covered: u64,
    /// Executions whose time was computed.
    pub evaluated: u64,
    /// Executions whose memory was computed, and did not fit.
    pub too_large: u64,
    /// Cells of degrees and blocks.
    pub cells: u64,
    /// Cells that the bound left out.
    pub pruned: u64,
    /// Distinct blocks.
    pub blocks: u64,
    /// Whether the deadline stopped it: then the best is the best so far, and the bound that of the cells that were left.
    pub stopped: bool,
    /// Where none fits: the execution that needs least memory, and what it needs.
    pub least: Option<(Execution, Memory)>,
}

impl Pins {
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
    /// (best - bound)/best; 0 is proven optimal.
    pub fn gap(&self) -> f64 {
        self.best.as_ref().map_or(0.0, |b| ((b.time.total - self.bound) / b.time.total).max(0.0))
    }

    /// `optimal`, or `time_limit` where the deadline left a gap.
    pub fn status(&self) -> &'static str {
        if self.stopped && self.gap() > 0.0 { "time_limit" } else { "optimal" }
    }

    /// A sentence for a search that found nothing.
    pub fn reason(&self, machine: &Machine) -> String {
        match &self.least {
            None => "the space of executions is empty: no degrees suit chips, model and what is given".into(),
            Some((e, m)) => format!(
                "none of {} executions fits: the least is {} on stage {} with tp {} pp {} dp {} cp {} ep {}, micro_batch {}, recompute {}, zero {}, offload {}; a chip of {} has {}",
                self.covered,
                Bytes(m.device.total()),
                m.stage,
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
                machine.capacity.map_or_else(|| "no limit".into(), |c| Bytes(c).to_string()),
            ),
        }
    }
}

/// Divisors of a number, rising.
fn divisors(n: u64) -> Vec<u64> {
    let mut low = Vec::new();
    let mut high = Vec::new();
    let mut i = 1;
    while i <= n / i {
        if n.is_multiple_of(i) {
            low.push(i);
            if i != n / i {
                high.push(n / i);
            }
        }
        i += 1;
    }
    low.extend(high.into_iter().rev());
    low
}

fn only<T: PartialEq + Copy>(all: impl IntoIterator<Item = T>, pin: Option<T>) -> Vec<T> {
    all.into_iter().filter(|x| pin.is_none_or(|p| p == *x)).collect()
}

/// Degrees and microbatch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Degrees {
    tp: u64,
    cp: u64,
    pp: u64,
    dp: u64,
    ep: u64,
    micro_batch: u64,
    microbatches: u64,
}

fn degrees(machine: &Machine, model: &LanguageModel, pins: &Pins) -> Vec<Degrees> {
    let chips = pins.chips.unwrap_or(machine.chips);
    let experts = if model.expert_layers() > 0 { model.experts.map_or(1, |e| e.count) } else { 1 };
    let mut out = Vec::new();
    if chips > machine.chips {
        return out;
    }
    for tp in only(divisors(chips), pins.tp).into_iter().filter(|t| model.heads.is_multiple_of(*t)) {
        for cp in only(divisors(chips / tp), pins.cp).into_iter().filter(|c| model.seq.is_multiple_of(*c)) {
            for pp in only(divisors(chips / tp / cp), pins.pp).into_iter().filter(|p| *p <= model.layers) {
                let dp = chips / tp / cp / pp;
                if pins.dp.is_some_and(|d| d != dp) || !model.global_batch.is_multiple_of(dp) {
                    continue;
                }
                let samples = model.global_batch / dp;
                for ep in only(divisors(experts), pins.ep).into_iter().filter(|e| (dp * cp).is_multiple_of(*e)) {
                    for micro_batch in only(divisors(samples), pins.micro_batch) {
                        let microbatches = samples / micro_batch;
                        out.push(Degrees { tp, cp, pp, dp, ep, micro_batch, microbatches });
                    }
                }
            }
        }
    }
    out
}

fn blocks(machine: &Machine, d: &Degrees, pins: &Pins) -> Vec<BlockKey> {
    let switch = if d.tp > 1 { vec![false, true] } else { vec![false] };
    let overlaps = if machine.stack.overlap_tp { switch.clone() } else { vec![false] };
    let mut out = Vec::new();
    for sequence_parallel in only(switch.clone(), pins.sequence_parallel) {
        let division = Division { tp: d.tp, cp: d.cp, ep: d.ep, micro_batch: d.micro_batch, sequence_parallel };
        for recompute in only(Recompute::ALL.iter().copied(), pins.recompute) {
            for overlap_tp in only(overlaps.clone(), pins.overlap_tp) {
                out.push(BlockKey { division, recompute, overlap_tp });
            }
        }
    }
    out
}

/// Schedules and chunks of the degrees.
fn schedules(model: &LanguageModel, d: &Degrees, pins: &Pins) -> Vec<(Schedule, u64)> {
    let plain = [Schedule::OneForwardOneBackward, Schedule::GPipe, Schedule::ZeroBubble];
    let mut out: Vec<(Schedule, u64)> = only(plain, pins.schedule).into_iter().map(|s| (s, 1)).collect();
    let interleaved =
        d.pp > 1 && d.microbatches.is_multiple_of(d.pp) && pins.schedule.is_none_or(|s| s == Schedule::Interleaved);
    if interleaved {
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
struct Tails {
    states: Vec<(Zero, Offload)>,
    overlaps: Vec<bool>,
}

fn tails(machine: &Machine, d: &Degrees, pins: &Pins) -> Tails {
    let alone = d.dp * d.cp == 1;
    let zeros = if alone { &[Zero::Off][..] } else { Zero::ALL };
    let offloads = if machine.second_tier.is_some() { Offload::ALL } else { &[Offload::None][..] };
    let offloads = only(offloads.iter().copied(), pins.offload);
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

fn execution(d: &Degrees, key: &BlockKey) -> Execution {
    Execution {
        tp: d.tp,
        pp: d.pp,
        dp: d.dp,
        ep: d.ep,
        cp: d.cp,
        micro_batch: d.micro_batch,
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
    for d in degrees(machine, model, pins) {
        let (schedules, tails) = (schedules(model, &d, pins), tails(machine, &d, pins));
        for key in blocks(machine, &d, pins) {
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
    out.retain(|e| suits(machine, model, e).is_ok());
    out
}

/// Degrees with one block: all that is left are schedule, ZeRO, offload, overlap of data parallelism.
struct Cell {
    bound: f64,
    degrees: usize,
    key: BlockKey,
    block: Block,
}

/// What belongs to degrees whatever the block.
struct Frame {
    degrees: Degrees,
    weights: ChipWeights,
    links: IterationLinks,
    kinds: usize,
    schedules: Vec<(Schedule, u64)>,
    tails: Tails,
}

struct Tables {
    constants: Constants,
    frames: Vec<Frame>,
    kinds: Vec<Vec<StageKind>>,
}

impl Tables {
    fn plan<'a>(&'a self, frame: &'a Frame, block: &'a Block) -> Plan<'a> {
        Plan {
            constants: &self.constants,
            block,
            weights: &frame.weights,
            links: &frame.links,
            kinds: self.kinds.get(frame.kinds).map_or(&[], Vec::as_slice),
            microbatches: frame.degrees.microbatches as f64,
        }
    }
}

/// Finds the fastest execution that fits, and proves it.
///
/// # Errors
/// A sentence where model and machine do not suit each other at all (data type, pass).
pub fn search(machine: &Machine, model: &LanguageModel, pins: &Pins) -> Result<Found, String> {
    search_until(machine, model, pins, None)
}

/// [`search`], at most until a deadline: all cells are bounded first, then looked at by rising bound as long as there is time.
///
/// # Errors
/// As [`search`].
pub fn search_until(
    machine: &Machine,
    model: &LanguageModel,
    pins: &Pins,
    deadline: Option<Instant>,
) -> Result<Found, String> {
    let peak = machine.peak(model)?;
    let one = Execution { micro_batch: 1, ..execution(&ONE, &ONE_KEY) };
    // The pass is refused here with its reason; one chip and one sample suit everything else.
    suits(machine, model, &one)?;
    let mut tables = Tables { constants: Constants::of(machine, model), frames: Vec::new(), kinds: Vec::new() };
    let mut found = Found {
        best: None,
        bound: f64::INFINITY,
        covered: 0,
        evaluated: 0,
        too_large: 0,
        cells: 0,
        pruned: 0,
        blocks: 0,
        stopped: false,
        least: None,
    };
    let cells = cells(machine, model, pins, peak, &mut tables, &mut found);
    if found.covered == 0 {
        // What is given, and one of everything else: the first rule that it breaks is the reason.
        let why = suits(machine, model, &pins.alone()).err();
        let chips = pins.chips.unwrap_or(machine.chips);
        if chips > machine.chips {
            return Err(format!("{chips} chips are asked for, {} has {}", machine.name, machine.chips));
        }
        return Err(format!(
            "no execution has what is given on {chips} chips of {}: {}{}",
            machine.name,
            why.unwrap_or_else(|| "no degrees of parallelism multiply to them and divide the batch".into()),
            nearest_chips(machine, model, pins, chips)
        ));
    }
    let mut best: Option<(f64, Execution)> = None;
    let steps = Steps::of("cells of degrees", cells.len() as u64);
    for (i, cell) in cells.iter().enumerate() {
        if best.as_ref().is_some_and(|(time, _)| cell.bound >= *time) {
            found.pruned = (cells.len() - i) as u64;
            break;
        }
        // The cell of least bound is looked at whatever the deadline.
        if i > 0 && deadline.is_some_and(|d| Instant::now() >= d) {
            found.stopped = true;
            found.bound = cell.bound;
            break;
        }
        look(machine, &tables, cell, &mut best, &mut found);
        steps.step();
    }
    if let Some((time, execution)) = best {
        // What was left out is bounded by a cell's bound that is not below this time.
        found.bound = found.bound.min(time);
        found.least = None;
        found.best = Some(predict_any(machine, model, &execution)?);
    }
    Ok(found)
}

/// Numbers of chips tried on each side of one that no degrees suit.
const MOST_TRIED: u64 = 1024;

/// The numbers of chips next to `chips` that degrees suit, as the end of a message.
fn nearest_chips(machine: &Machine, model: &LanguageModel, pins: &Pins, chips: u64) -> String {
    let suits = |n: &u64| {
        let pins = Pins { chips: Some(*n), ..pins.clone() };
        degrees(machine, model, &pins).iter().any(|d| {
            let tails = tails(machine, d, &pins);
            !schedules(model, d, &pins).is_empty()
                && !tails.states.is_empty()
                && !tails.overlaps.is_empty()
                && !blocks(machine, d, &pins).is_empty()
        })
    };
    let below = (chips.saturating_sub(MOST_TRIED).max(1)..chips).rev().find(suits);
    let above = (chips + 1..=machine.chips.min(chips.saturating_add(MOST_TRIED))).find(suits);
    match (below, above) {
        (Some(a), Some(b)) => format!("; the nearest numbers that have some: --chips {a}, --chips {b}"),
        (Some(n), None) | (None, Some(n)) => format!("; the nearest number that has some: --chips {n}"),
        (None, None) => String::new(),
    }
}

const ONE: Degrees = Degrees { tp: 1, cp: 1, pp: 1, dp: 1, ep: 1, micro_batch: 1, microbatches: 1 };
const ONE_KEY: BlockKey = BlockKey {
    division: Division { tp: 1, cp: 1, ep: 1, micro_batch: 1, sequence_parallel: false },
    recompute: Recompute::None,
    overlap_tp: false,
};

/// All cells by rising bound.
fn cells(
    machine: &Machine,
    model: &LanguageModel,
    pins: &Pins,
    peak: f64,
    tables: &mut Tables,
    found: &mut Found,
) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut sums: HashMap<Division, BlockSums> = HashMap::new();
    let mut blocks_of: HashMap<BlockKey, Block> = HashMap::new();
    let mut kinds_of: HashMap<u64, usize> = HashMap::new();
    let mut frame_of: HashMap<(u64, u64, u64, u64), (ChipWeights, IterationLinks)> = HashMap::new();
    for d in degrees(machine, model, pins) {
        let (schedules, tails) = (schedules(model, &d, pins), tails(machine, &d, pins));
        let inside = (schedules.len() * tails.states.len() * tails.overlaps.len()) as u64;
        let keys = blocks(machine, &d, pins);
        if inside == 0 || keys.is_empty() {
            continue;
        }
        let kinds = *kinds_of.entry(d.pp).or_insert_with(|| {
            tables.kinds.push(schedule::stages(model, d.pp));
            tables.kinds.len() - 1
        });
        let (weights, links) = *frame_of.entry((d.tp, d.cp, d.pp, d.ep)).or_insert_with(|| {
            (ChipWeights::of(model, d.tp, d.ep, d.pp), IterationLinks::of(machine, d.tp, d.cp, d.ep, d.dp, d.pp))
        });
        let divided = tails.states.iter().any(|(zero, _)| *zero != Zero::Off);
        let frame = Frame { degrees: d, weights, links, kinds, schedules, tails };
        for key in keys {
            let own = sums.entry(key.division).or_insert_with(|| BlockSums::of(machine, model, key.division, peak));
            let block = *blocks_of.entry(key).or_insert_with(|| Block::of(machine, model, &key, own));
            let bound = tables.plan(&frame, &block).bound(&execution(&d, &key), divided);
            cells.push(Cell { bound, degrees: tables.frames.len(), key, block });
            found.covered += inside;
        }
        tables.frames.push(frame);
    }
    found.cells = cells.len() as u64;
    found.blocks = blocks_of.len() as u64;
    // Stable: equal bounds stay in the order of the list.
    cells.sort_by(|a, b| a.bound.total_cmp(&b.bound));
    cells
}

/// Looks at every execution of a cell.
fn look(machine: &Machine, tables: &Tables, cell: &Cell, best: &mut Option<(f64, Execution)>, found: &mut Found) {
    let Some(frame) = tables.frames.get(cell.degrees) else { return };
    let plan = tables.plan(frame, &cell.block);
    let mut e = execution(&frame.degrees, &cell.key);
    for &(zero, offload) in &frame.tails.states {
        (e.zero, e.offload, e.schedule, e.chunks) = (zero, offload, Schedule::OneForwardOneBackward, 1);
        // No schedule keeps less than this one.
        let least = memory::memory(machine, &plan, &e);
        if !least.fits() {
            found.too_large += (frame.schedules.len() * frame.tails.overlaps.len()) as u64;
            let fewer = |(_, m): &(Execution, Memory)| m.device.total() > least.device.total();
            if best.is_none() && found.least.as_ref().is_none_or(fewer) {
                found.least = Some((e.clone(), least));
            }
            continue;
        }
        for &(schedule, chunks) in &frame.schedules {
            (e.schedule, e.chunks) = (schedule, chunks);
            let same = matches!(schedule, Schedule::OneForwardOneBackward | Schedule::ZeroBubble);
            if !same && !memory::memory(machine, &plan, &e).fits() {
                found.too_large += frame.tails.overlaps.len() as u64;
                continue;
            }
            for &overlap_dp in &frame.tails.overlaps {
                e.overlap_dp = overlap_dp;
                let time = plan.seconds(&e);
                found.evaluated += 1;
                if best.as_ref().is_none_or(|(t, _)| time < *t) {
                    *best = Some((time, e.clone()));
                }
            }
        }
    }
}
