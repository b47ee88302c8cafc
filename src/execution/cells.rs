//! The cells of a search for executions, listed and bounded some at a time: degrees with one block, of which schedule, ZeRO, offload and overlap of
//! data parallelism are left to decide.

use super::block::{Best, BlockKey, Blocks, Inner};
use super::communication::IterationLinks;
use super::layer::Division;
use super::machine::Machine;
use super::memory::{self, Memory};
use super::schedule::{self, ChipWeights, Constants, Pipeline, StageKind};
use super::search::{
    Aim, Degrees, Found, ONE_KEY, Pins, ROUNDING, Tails, blocks, degrees, execution, schedules, tails,
};
use super::spec::{Execution, Schedule, Zero};
use crate::deadline::Deadline;
use crate::workload::language::LanguageModel;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Cells that are kept at once; with their blocks they take about 200 MB.
const MOST: usize = 200_000;

/// Cuts whose bytes are kept at once: about 20 MB.
const MOST_HELD: usize = 20_000;

/// Share of the seconds after which the first cells are looked at, even if not all are listed.
const LISTING: f64 = 0.5;

/// A cell.
struct Cell {
    bound: f64,
    /// Which frame, key and block it has.
    frame: usize,
    key: BlockKey,
    block: usize,
    /// The effort with which its blocks are mapped next.
    effort: u32,
}

/// What belongs to degrees whatever the microbatch and the block.
struct Frame {
    degrees: Degrees,
    weights: ChipWeights,
    links: IterationLinks,
    kinds: Vec<StageKind>,
    /// Where microbatches do not divide among the stages, and where they do.
    schedules: [Vec<(Schedule, u64)>; 2],
    tails: Tails,
}

impl Frame {
    fn schedules(&self, micro_batch: u64) -> &[(Schedule, u64)] {
        &self.schedules[usize::from(self.degrees.interleaves(micro_batch))]
    }

    /// Executions of a cell.
    fn inside(&self, micro_batch: u64) -> u64 {
        (self.schedules(micro_batch).len() * self.tails.states.len() * self.tails.overlaps.len()) as u64
    }
}

/// Where the listing stands: the frame, and the position of the microbatch among its sizes.
#[derive(Clone, Copy, Default)]
struct At {
    frame: usize,
    size: usize,
}

/// The cells under way.
pub(super) struct Cells<'a> {
    machine: &'a Machine,
    model: &'a LanguageModel,
    pins: &'a Pins,
    inner: &'a dyn Inner,
    aim: Aim,
    constants: Constants,
    frames: Vec<Frame>,
    /// Sizes of a microbatch by the samples of a replica.
    sizes: HashMap<u64, Vec<u64>>,
    at: At,
    cells: Vec<Cell>,
    blocks: Vec<Blocks>,
    /// What blocks hold, by cut: frames share them.
    held: RefCell<HashMap<BlockKey, Rc<Blocks>>>,
}

impl<'a> Cells<'a> {
    /// Of a space.
    pub(super) fn new(
        machine: &'a Machine,
        model: &'a LanguageModel,
        pins: &'a Pins,
        inner: &'a dyn Inner,
        aim: Aim,
    ) -> Self {
        let mut sizes: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut frames = Vec::new();
        for degrees in degrees(machine, model, pins) {
            sizes.entry(degrees.samples).or_insert_with(|| degrees.micro_batches(pins));
            let d = &degrees;
            frames.push(Frame {
                weights: ChipWeights::of(model, d.tp, d.ep, d.pp),
                links: IterationLinks::of(machine, d.tp, d.cp, d.ep, d.dp, d.pp),
                kinds: schedule::stages(model, d.pp),
                schedules: [false, true].map(|interleaves| schedules(model, d, interleaves && d.pp > 1, pins)),
                tails: tails(machine, d, pins),
                degrees,
            });
        }
        let constants = Constants::of(machine, model);
        let (cells, blocks, held) = (Vec::new(), Vec::new(), RefCell::default());
        Self { machine, model, pins, inner, aim, constants, frames, sizes, at: At::default(), cells, blocks, held }
    }

    /// Executions of the space.
    pub(super) fn covered(&self) -> u64 {
        let of = |frame: &Frame| {
            let keys = self.keys(frame, 1).len() as u64;
            self.sizes_of(frame).iter().map(|b| frame.inside(*b) * keys).sum::<u64>()
        };
        self.frames.iter().map(of).sum()
    }

    fn keys(&self, frame: &Frame, micro_batch: u64) -> Vec<BlockKey> {
        blocks(self.machine, &frame.degrees, micro_batch, self.pins, self.inner.space())
    }

    fn sizes_of(&self, frame: &Frame) -> &[u64] {
        self.sizes.get(&frame.degrees.samples).map_or(&[], Vec::as_slice)
    }

    /// Whether all cells were listed.
    pub(super) fn are_all(&self) -> bool {
        self.at.frame >= self.frames.len()
    }

    /// Cells listed last.
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// The bound of one of them.
    pub(super) fn bound(&self, i: usize) -> f64 {
        self.cells[i].bound
    }

    /// The effort with which its blocks are mapped next.
    pub(super) fn effort(&self, i: usize) -> u32 {
        self.cells[i].effort
    }

    /// Has its blocks mapped with so much effort at least next.
    pub(super) fn go_on(&mut self, i: usize, effort: u32) {
        self.cells[i].effort = self.cells[i].effort.max(effort);
    }

    /// The cells that are best by a guess of their blocks' passes, the best first, of `most` cuts and the best of each tensor-parallel degree; none where the inner search does not guess.
    pub(super) fn most_promising(&self, most: usize) -> Vec<usize> {
        let mut guesses: HashMap<BlockKey, Option<Blocks>> = HashMap::new();
        let mut out: Vec<(f64, usize)> = Vec::new();
        for (i, cell) in self.cells.iter().enumerate() {
            let Some(block) = guesses.entry(cell.key).or_insert_with(|| self.inner.guess(&cell.key)) else { continue };
            out.extend(self.least_value(cell, block).map(|value| (value, i)));
        }
        out.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut cuts: Vec<BlockKey> = Vec::new();
        let mut is_one_of = |key: BlockKey| {
            let first_of_tp = cuts.iter().all(|cut| cut.division.tp != key.division.tp);
            if !cuts.contains(&key) && (cuts.len() < most || first_of_tp) {
                cuts.push(key);
            }
            cuts.contains(&key)
        };
        out.into_iter().map(|(_, i)| i).filter(|i| is_one_of(self.cells[*i].key)).collect()
    }

    /// The least value of a cell's executions that fit, its blocks taking and keeping so much.
    fn least_value(&self, cell: &Cell, block: &Blocks) -> Option<f64> {
        let (frame, micro_batch) = (&self.frames[cell.frame], cell.key.division.micro_batch);
        let plan = self.plan(frame, block, micro_batch);
        let mut e = execution(&frame.degrees, &cell.key);
        let mut least: Option<f64> = None;
        for &(zero, offload) in &frame.tails.states {
            for &(schedule, chunks) in frame.schedules(micro_batch) {
                (e.zero, e.offload, e.schedule, e.chunks) = (zero, offload, schedule, chunks);
                if !memory::memory(self.machine, &plan, &e).fits() {
                    continue;
                }
                for &overlap_dp in &frame.tails.overlaps {
                    e.overlap_dp = overlap_dp;
                    let value = self.aim.value(&plan, &e);
                    least = Some(least.map_or(value, |known| known.min(value)));
                }
            }
        }
        least
    }

    /// Seconds that no execution of the space comes below: all chips at their peak for the FLOP of all samples, nothing computed again.
    pub(super) fn floor(&self, peak: f64) -> f64 {
        let block = self.inner.bound(&ONE_KEY);
        let layers = self.model.dense_layers() as f64 * block.plain.flop
            + self.model.expert_layers() as f64 * block.experts.flop;
        let flop = self.model.global_batch as f64 * (layers + block.embedding.flop + block.head.flop);
        flop / (self.pins.chips.unwrap_or(self.machine.chips) as f64 * peak)
    }

    fn plan<'p>(&'p self, frame: &'p Frame, block: &'p Blocks, micro_batch: u64) -> Pipeline<'p> {
        Pipeline {
            constants: &self.constants,
            block,
            weights: &frame.weights,
            links: &frame.links,
            kinds: &frame.kinds,
            microbatches: (frame.degrees.samples / micro_batch.max(1)) as f64,
        }
    }

    /// What the blocks of a cut hold; times do not matter.
    fn held(&self, key: &BlockKey) -> Rc<Blocks> {
        let mut known = self.held.borrow_mut();
        if known.len() >= MOST_HELD {
            known.clear();
        }
        // What runs beside what changes no bytes.
        let key = BlockKey { overlap_tp: false, ..*key };
        known.entry(key).or_insert_with(|| Rc::new(self.inner.held(&key))).clone()
    }

    /// How many of the sizes of a microbatch may fit with blocks of a kind, the smallest at least: what the chip itself holds grows with the
    /// microbatch in every state, so that beyond the first size that none fits no larger one does.
    fn fitting(&self, frame: &Frame, key: &BlockKey) -> usize {
        let fits = |micro_batch: u64| {
            let key = BlockKey { division: Division { micro_batch, ..key.division }, ..*key };
            let block = self.held(&key);
            let plan = self.plan(frame, &block, micro_batch);
            let mut e = execution(&frame.degrees, &key);
            frame.tails.states.iter().any(|&(zero, offload)| {
                (e.zero, e.offload) = (zero, offload);
                let memory = memory::memory(self.machine, &plan, &e);
                memory.capacity.is_none_or(|capacity| memory.device.total() <= capacity)
            })
        };
        if self.machine.capacity.is_none() {
            return usize::MAX;
        }
        self.sizes_of(frame).partition_point(|b| fits(*b)).max(1)
    }

    /// Lists the next cells that may beat `best`, by rising bound, until the memory for them or (a part of) the time is used up. `false` where none
    /// is left.
    pub(super) fn list(&mut self, best: Option<f64>, deadline: Deadline, found: &mut Found) -> bool {
        if self.are_all() {
            return false;
        }
        let (mut cells, mut all) = (std::mem::take(&mut self.cells), std::mem::take(&mut self.blocks));
        cells.clear();
        all.clear();
        let first = (self.at.frame, self.at.size) == (0, 0);
        let deadline = if first { deadline.part(LISTING) } else { deadline };
        let mut known: HashMap<BlockKey, usize> = HashMap::new();
        let mut at = self.at;
        while let Some(frame) = self.frames.get(at.frame) {
            let sizes = self.sizes_of(frame);
            let kinds = self.keys(frame, 1);
            if frame.schedules.iter().all(Vec::is_empty) || sizes.is_empty() {
                at = At { frame: at.frame + 1, size: 0 };
                continue;
            }
            let fitting: Vec<usize> = kinds.iter().map(|key| self.fitting(frame, key)).collect();
            let divided = frame.tails.states.iter().any(|(zero, _)| *zero != Zero::Off);
            let mut full = false;
            while at.size < sizes.len() && !full {
                let micro_batch = sizes[at.size];
                let inside = frame.inside(micro_batch);
                for (kind, fitting) in kinds.iter().zip(&fitting).filter(|_| inside > 0) {
                    if at.size >= *fitting {
                        found.too_large += inside;
                        continue;
                    }
                    let key = BlockKey { division: Division { micro_batch, ..kind.division }, ..*kind };
                    let block = *known.entry(key).or_insert_with(|| {
                        all.push(self.inner.bound(&key));
                        all.len() - 1
                    });
                    let plan = self.plan(frame, &all[block], micro_batch);
                    let e = execution(&frame.degrees, &key);
                    let bound = self.aim.bound(&plan, &e, divided, frame.schedules(micro_batch));
                    found.cells += 1;
                    if best.is_some_and(|best| bound >= best) {
                        found.pruned += 1;
                    } else {
                        cells.push(Cell { bound, frame: at.frame, key, block, effort: 0 });
                    }
                }
                at.size += 1;
                full = cells.len() >= MOST || known.len() >= MOST || deadline.is_over();
            }
            if at.size >= sizes.len() {
                at = At { frame: at.frame + 1, size: 0 };
            }
            if full {
                break;
            }
        }
        found.blocks += known.len() as u64;
        // Stable: equal bounds stay in the order of the list.
        cells.sort_by(|a: &Cell, b: &Cell| a.bound.total_cmp(&b.bound));
        (self.at, self.cells, self.blocks) = (at, cells, all);
        true
    }

    /// Whether no mapping of a cell's blocks leaves a state that fits the memory; then its executions are counted.
    fn is_hopeless(&self, cell: &Cell, frame: &Frame, wanted: bool, found: &mut Found) -> bool {
        let micro_batch = cell.key.division.micro_batch;
        let plan = self.plan(frame, &self.blocks[cell.block], micro_batch);
        let mut e = execution(&frame.degrees, &cell.key);
        let states = frame.tails.states.iter().map(|&(zero, offload)| {
            (e.zero, e.offload) = (zero, offload);
            (e.clone(), memory::memory(self.machine, &plan, &e))
        });
        let states: Vec<(Execution, Memory)> = states.collect();
        if states.iter().any(|(_, memory)| memory.fits()) {
            return false;
        }
        found.too_large += frame.inside(micro_batch);
        states.into_iter().for_each(|(e, memory)| note(wanted, &e, memory, found));
        true
    }

    /// Looks at every execution of a cell; whether that is all: more effort may find faster mappings of its blocks, and its bound is what these take at least then.
    ///
    /// # Errors
    /// The inner search failed.
    pub(super) fn look(
        &mut self,
        i: usize,
        best: &mut Option<(f64, Execution, Best)>,
        found: &mut Found,
        deadline: Deadline,
    ) -> Result<bool, String> {
        let cell = &self.cells[i];
        let (frame, micro_batch) = (&self.frames[cell.frame], cell.key.division.micro_batch);
        if !self.inner.space().exact && self.is_hopeless(cell, frame, best.is_none(), found) {
            return Ok(true);
        }
        let bound = &self.blocks[cell.block];
        let mut mappings = self.inner.best(&cell.key, bound, cell.effort, deadline)?;
        if mappings.iter().any(|inner| self.wants_room(cell, frame, inner, bound, best.as_ref().map(|best| best.0))) {
            mappings.extend(self.inner.keeping_least(&cell.key, cell.effort, deadline)?);
        }
        if mappings.is_empty() {
            found.unmapped += frame.inside(micro_batch);
            if deadline.is_over() {
                found.stopped = true;
                found.bound = found.bound.min(cell.bound);
            }
        }
        let mut open: Option<(f64, u32)> = None;
        for inner in &mappings {
            self.look_by(cell, frame, inner, best, found);
            // The fastest mapping of a graph may keep a link busy that another leaves to replicas.
            let waits = inner.plan.is_some() && !frame.links.shared.is_empty();
            let least = if waits { inner.least.idle() } else { inner.least };
            if least == inner.blocks {
                continue;
            }
            // What has another mapping may fit where this one does not.
            let Some(least) = self.least_value(cell, &least) else { continue };
            match inner.effort {
                Some(effort) if best.as_ref().is_none_or(|(value, ..)| least < *value * (1.0 - ROUNDING)) => {
                    let known = open.unwrap_or((f64::INFINITY, 0));
                    open = Some((known.0.min(least), known.1.max(effort + 1)));
                }
                _ => found.bound = found.bound.min(least.max(cell.bound)),
            }
        }
        if let Some((bound, effort)) = open {
            let cell = &mut self.cells[i];
            (cell.bound, cell.effort) = (cell.bound.max(bound), effort);
        }
        Ok(open.is_none())
    }

    /// Whether something of a cell does not fit by a mapping, but would if that kept what every one keeps, and may win.
    fn wants_room(&self, cell: &Cell, frame: &Frame, inner: &Best, bound: &Blocks, best: Option<f64>) -> bool {
        let (micro_batch, mut e) = (cell.key.division.micro_batch, execution(&frame.degrees, &cell.key));
        // Another mapping may keep no link busy.
        let mut least = if inner.plan.is_some() { inner.blocks.idle() } else { inner.blocks };
        for (pass, floor) in [
            (&mut least.plain, &bound.plain),
            (&mut least.experts, &bound.experts),
            (&mut least.embedding, &bound.embedding),
            (&mut least.head, &bound.head),
        ] {
            (pass.kept, pass.working) = (pass.kept.min(floor.kept), pass.working.min(floor.working));
        }
        let fits = |blocks: &Blocks, e: &Execution| {
            memory::memory(self.machine, &self.plan(frame, blocks, micro_batch), e).fits()
        };
        let lacks = frame.tails.states.iter().any(|&(zero, offload)| {
            (e.zero, e.offload) = (zero, offload);
            frame.schedules(micro_batch).iter().any(|&(schedule, chunks)| {
                (e.schedule, e.chunks) = (schedule, chunks);
                !fits(&inner.blocks, &e) && fits(&least, &e)
            })
        });
        lacks && self.least_value(cell, &least).is_some_and(|value| best.is_none_or(|best| value < best))
    }

    /// The same with one mapping of its blocks.
    fn look_by(
        &self,
        cell: &Cell,
        frame: &Frame,
        inner: &Best,
        best: &mut Option<(f64, Execution, Best)>,
        found: &mut Found,
    ) {
        let micro_batch = cell.key.division.micro_batch;
        let schedules = frame.schedules(micro_batch);
        let plan = self.plan(frame, &inner.blocks, micro_batch);
        let mut e = execution(&frame.degrees, &cell.key);
        let may_win = |value: f64| self.aim.bound(&plan, &e, true, schedules) < value;
        if inner.plan.is_some() && !best.as_ref().is_none_or(|(value, ..)| may_win(*value)) {
            return;
        }
        let is_least = |s: &Schedule| *s == Schedule::OneForwardOneBackward;
        for &(zero, offload) in &frame.tails.states {
            (e.zero, e.offload, e.schedule, e.chunks) = (zero, offload, Schedule::OneForwardOneBackward, 1);
            // No schedule keeps less than this one.
            let least = memory::memory(self.machine, &plan, &e);
            if !least.fits() {
                found.too_large += (schedules.len() * frame.tails.overlaps.len()) as u64;
                if schedules.iter().any(|(s, _)| is_least(s)) {
                    note(best.is_none(), &e, least, found);
                } else {
                    for &(schedule, chunks) in schedules.iter().filter(|_| best.is_none()) {
                        (e.schedule, e.chunks) = (schedule, chunks);
                        note(true, &e, memory::memory(self.machine, &plan, &e), found);
                    }
                }
                continue;
            }
            for &(schedule, chunks) in schedules {
                (e.schedule, e.chunks) = (schedule, chunks);
                let here = if is_least(&schedule) { least } else { memory::memory(self.machine, &plan, &e) };
                if !here.fits() {
                    found.too_large += frame.tails.overlaps.len() as u64;
                    note(best.is_none(), &e, here, found);
                    continue;
                }
                for &overlap_dp in &frame.tails.overlaps {
                    e.overlap_dp = overlap_dp;
                    let value = self.aim.value(&plan, &e);
                    found.evaluated += 1;
                    if best.as_ref().is_none_or(|(known, ..)| value < *known) {
                        *best = Some((value, e.clone(), inner.clone()));
                    }
                }
            }
        }
    }
}

/// Keeps an execution that does not fit, if it lacks less of the chip's own memory than those before; one that lacks nothing of the second tier
/// before one that does.
fn note(wanted: bool, e: &Execution, memory: Memory, found: &mut Found) {
    let rank = |m: &Memory| (m.second_capacity.is_some_and(|c| m.second_tier > c), m.device.total());
    let less = |(_, known): &(Execution, Memory)| {
        let (a, b) = (rank(&memory), rank(known));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).is_lt()
    };
    if wanted && found.least.as_ref().is_none_or(less) {
        found.least = Some((e.clone(), memory));
    }
}
