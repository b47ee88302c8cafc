//! The whole search for one point: degrees x microbatch x sharding x tile count x fusion.
//!
//! 1. Every assignment of network dimensions (and every size of a microbatch, where that is searched) gets a closed-form
//!    bound on its objective and is tried in that order. The objective is the iteration's time, or another sum over the
//!    partitions (`goal.rs`).
//! 2. The sharding problem of an assignment is solved by its own objective.
//! 3. Each tile count, with the weights streamed or (on dataflow chips that can hold them) kept on chip for the
//!    iteration, gives a fusion problem; a tile count that costs as much as another and needs no less SRAM is
//!    left out; so is one whose closed-form bound cannot beat the best found.
//! 4. The fusion problem is solved as a shortest path over the graph's ideals. Where the graph has too many of them for
//!    a proof, or where the user names a MILP solver, the winner is solved again as a MILP, started from that plan. The
//!    two must agree to 1e-6, or the program stops with both numbers.
//! 5. Unless two passes are asked for, or all there is, every other sharding of each assignment that may still win is searched from
//!    the plan found so far (`joint/`).
//!
//! Plans known beforehand are tried first (`known.rs`); for energy and cost that of least time is one.
//! The bound of the answer covers assignments, microbatches, tile counts and partitions, and after step 5 all shardings.
//! Smallest tile counts win ties. Seconds are a limit of the whole search: it ends with the best plan it has.

use super::amounts::{Amounts, Choice, SramShort, may_keep_weights};
pub use super::answer::winner_model;
use super::blocks;
use super::degrees::{Degrees, assignments};
use super::first_pass::Tried;
use super::goal;
use super::ideals::Ideals;
use super::instance::Instance;
use super::joint;
use super::record::Infeasible;
pub use super::request::{
    Answer, Engine, MapError, MicroBatch, Objective, Passes, Pins, Proof, Record, Request, engine_from_word,
};
use super::request::{Known, LeftOpen};
use super::sharding::Sharding;
use super::shelf::Shelf;
use super::shortage;
use super::solver::Limits;
use super::wide;
use crate::deadline::Deadline;
use crate::model::Strategy;
use crate::model::divisors::divisors;
use crate::model::objective::Worth;
use crate::model::rate::{self, Rate};
use crate::progress::Steps;
use crate::system::{Style, System};
use crate::workload::Workload;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

/// Finds the best mapping of a workload onto a system.
///
/// # Errors
/// [`MapError`]: contradictory requests, a failing solver, or two engines that disagree.
pub fn map(workload: &Workload, system: &System, request: &Request) -> Result<Answer, MapError> {
    if let Some(reason) = Infeasible::of_die(system) {
        return Ok(Answer::Infeasible(reason));
    }
    let clock = Deadline::after(request.limits.seconds);
    match map_until(workload, system, request, clock) {
        Ok(Answer::Infeasible(reason)) if !request.any => {
            Ok(Answer::Infeasible(shortage::named(workload, system, request, reason, clock)))
        }
        // A limit that was given stands in the way more likely than one that ends a search.
        Err(MapError::NoPlanYet { left, instead: None }) if !request.any => {
            let instead = shortage::Lacking::new(workload, system, request, clock).partitions();
            Err(MapError::NoPlanYet { left, instead })
        }
        answer => answer,
    }
}

/// [`map`], but what would mend a point without a plan is not asked, which takes many searches.
///
/// # Errors
/// As [`map`].
pub fn find(workload: &Workload, system: &System, request: &Request) -> Result<Answer, MapError> {
    map_until(workload, system, request, Deadline::after(request.limits.seconds))
}

/// [`map`] until a deadline; what would mend a point without a plan is not asked.
pub(super) fn map_until(
    workload: &Workload,
    system: &System,
    request: &Request,
    clock: Deadline,
) -> Result<Answer, MapError> {
    if system.holds_in_sram() {
        return super::rooms::best(workload, system, request, clock);
    }
    if request.objective == Objective::Time {
        return search(workload, system, request, clock);
    }
    goal::worth(request, system)?;
    if workload.is_chain() {
        blocks::allowed(system, request)?;
    }
    // The plan of least time is a start: none that needs more energy, or more money, is an answer.
    let half = Limits { seconds: clock.left().map(|s| s / 2.0), ..request.limits.clone() };
    let by_time = Request { objective: Objective::Time, limits: half, ..request.clone() };
    let mut request = request.clone();
    let first = match search(workload, system, &by_time, Deadline::after(by_time.limits.seconds)) {
        Ok(Answer::Mapped(plan, record)) => {
            request.known.push(Known::from(&*plan));
            Some(record)
        }
        // What fits does not depend on what is minimised.
        Ok(Answer::Infeasible(reason)) => return Ok(Answer::Infeasible(reason)),
        Err(MapError::NoPlanYet { .. }) => None,
        Err(error) => return Err(error),
    };
    let mut answer = search(workload, system, &request, clock)?;
    if let (Answer::Mapped(_, record), Some(first)) = (&mut answer, first) {
        record.nodes += first.nodes;
        record.solved += first.solved;
        record.joint_nodes += first.joint_nodes;
        record.reproducible &= first.reproducible;
    }
    Ok(answer)
}

/// Finds the best mapping under one objective.
fn search(workload: &Workload, system: &System, request: &Request, clock: Deadline) -> Result<Answer, MapError> {
    if workload.is_spread() {
        return super::spread::map(workload, system, request, clock);
    }
    if let Some(reason) = not_alone(workload, system, request) {
        return Ok(Answer::Infeasible(reason));
    }
    let sizes = micro_batches(workload, system, request);
    let of_size = |micro_batch: u64| match micro_batch == workload.micro_batch {
        true => Cow::Borrowed(workload),
        false => Cow::Owned(Workload { micro_batch, ..workload.clone() }),
    };
    let workloads: Vec<Cow<'_, Workload>> = sizes.into_iter().map(of_size).collect();
    let searches: Result<Vec<Search<'_>>, MapError> =
        workloads.iter().map(|w| Search::new(w, system, request, clock)).collect();
    let answer = run(&searches?)?;
    match answer {
        Answer::Infeasible(_) if request.tries_jointly(system, workload.kernels.len()) => {
            search(workload, system, &Request { passes: Passes::Joint, ..request.clone() }, clock)
        }
        answer => Ok(answer),
    }
}

/// Kernel by kernel every kernel is a partition, after those that it waits for: fewer partitions, and others for pinned kernels, are not possible.
fn not_alone(workload: &Workload, system: &System, request: &Request) -> Option<Infeasible> {
    let (chip, kernels) = (&system.chip.0, workload.kernels.len());
    if chip.style != Style::KernelByKernel {
        return None;
    }
    let said = |(needed, available): (usize, usize), unit: &str, why: String| {
        Some(Infeasible {
            resource: "partitions".into(),
            needed: needed as f64,
            available: available as f64,
            unit: unit.into(),
            remedy: format!("chip {} runs kernel by kernel, so that {why}", chip.name),
            mends: Vec::new(),
        })
    };
    if let Some(most) = request.max_partitions.filter(|most| *most < kernels) {
        return said((kernels, most), "partitions", format!("each of the {kernels} kernels is a partition"));
    }
    let pins = &request.pins.partition;
    if pins.iter().all(Option::is_none) {
        return None;
    }
    let pinned = |why: String| said((1, 0), "plans", format!("each kernel is a partition: {why}"));
    let mut taken = vec![None; kernels];
    for ((kernel, pin), level) in workload.kernels.iter().zip(pins).zip(workload.levels()) {
        let Some(p) = *pin else { continue };
        let name = &kernel.name;
        match taken.get_mut(p) {
            None => return pinned(format!("{name} is pinned to {p}, and the last is {}", kernels - 1)),
            Some(Some(other)) => return pinned(format!("{other} and {name} are both pinned to {p}")),
            Some(free) => *free = Some(name),
        }
        if p < level {
            return pinned(format!(
                "{name} is pinned to {p}, but waits for {level} others: {level} is the first that it can have"
            ));
        }
    }
    None
}

/// The sizes of a microbatch that are searched: the one that the workload states, or every divisor of the samples of a
/// replica, for some number of replicas.
fn micro_batches(workload: &Workload, system: &System, request: &Request) -> Vec<u64> {
    if request.micro_batch == MicroBatch::Given {
        return vec![workload.micro_batch];
    }
    let all = match &request.pins.uses {
        Some(uses) => vec![Degrees::new(system, uses.clone())],
        None => assignments(system, request.wanted.split),
    };
    let replicas = all.iter().filter(|d| request.wanted.fits(d)).map(|d| workload.global_batch / d.dp.max(1));
    let mut sizes: Vec<u64> = replicas.filter(|samples| *samples > 0).flat_map(divisors).collect();
    sizes.push(workload.micro_batch);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// A search under way.
pub(super) struct Search<'a> {
    pub(super) workload: &'a Workload,
    pub(super) system: &'a System,
    pub(super) request: &'a Request,
    pub(super) pins_sharding: Vec<Option<Strategy>>,
    pub(super) pins_partition: Vec<Option<usize>>,
    pub(super) worth: Worth,
    /// How the chips compute the workload's kernels.
    pub(super) rate: Rate<'a>,
    pub(super) shelf: Arc<Shelf>,
    /// The blocks of a chain; none of other workloads.
    pub(super) blocks: Vec<blocks::BlockGraph>,
    pub(super) clock: Deadline,
    /// Whether weights may stay on chip for the iteration.
    pub(super) keeps_weights: bool,
    /// Whether a MILP was solved.
    pub(super) by_solver: Cell<bool>,
}

/// A candidate of the search that is still the best.
pub(super) struct Best {
    pub(super) degrees: Degrees,
    pub(super) sharding: Sharding,
    pub(super) tiles: u64,
    pub(super) weights_on_chip: bool,
    /// Layers of the longest stage.
    pub(super) longest: u64,
    pub(super) instance: Arc<Instance>,
    pub(super) assignment: Vec<usize>,
    /// Value of the partitions: seconds of a layer, where time is minimised.
    pub(super) layer: f64,
    pub(super) proven: bool,
    /// No partitions of this instance have a smaller value.
    pub(super) bound: f64,
    /// Whether that follows from a relaxation.
    pub(super) relaxed: bool,
    /// Objective of an iteration.
    pub(super) objective: f64,
    /// Which of the searches found it.
    pub(super) of: usize,
    /// The blocks of a chain; none of other workloads.
    pub(super) parts: Vec<blocks::Part>,
    /// Units of each stage of a chain.
    pub(super) stages: Vec<u64>,
}

/// An assignment with its closed-form bound.
pub(super) struct Candidate {
    pub(super) degrees: Degrees,
    pub(super) bound: f64,
    /// Which of the searches it belongs to.
    pub(super) of: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        workload: &'a Workload,
        system: &'a System,
        request: &'a Request,
        clock: Deadline,
    ) -> Result<Self, MapError> {
        let n = workload.kernels.len();
        let fill = |given: usize, what: &str| {
            if given == 0 || given == n {
                Ok(())
            } else {
                Err(MapError::Request(format!("{given} {what} pins for {n} kernels")))
            }
        };
        fill(request.pins.sharding.len(), "sharding")?;
        fill(request.pins.partition.len(), "partition")?;
        if let Some(fault) = workload.phase_fault() {
            return Err(MapError::Request(fault.to_string()));
        }
        if let Some(fault) = rate::fault(workload, system) {
            return Err(MapError::Request(fault));
        }
        if workload.is_chain() {
            blocks::allowed(system, request)?;
        }
        let most = super::tiling::streamed_size(workload);
        if let Some(tiles) = request.tiles.filter(|t| *t == 0 || *t > most) {
            return Err(MapError::Request(format!(
                "--tiles {tiles}: expected 1 to {most}, the streamed size of the workload"
            )));
        }
        Ok(Self {
            workload,
            system,
            request,
            clock,
            keeps_weights: may_keep_weights(system),
            by_solver: Cell::new(false),
            worth: goal::worth(request, system)?,
            rate: Rate::of(workload, system),
            shelf: Shelf::of(workload, system),
            blocks: blocks::graphs(workload),
            pins_sharding: if request.pins.sharding.is_empty() { vec![None; n] } else { request.pins.sharding.clone() },
            pins_partition: if request.pins.partition.is_empty() {
                vec![None; n]
            } else {
                request.pins.partition.clone()
            },
        })
    }

    /// Whether a MILP solver was named, which then solves every sharding problem too.
    pub(super) fn is_by_milp(&self) -> bool {
        self.request.engine == Engine::Milp
    }

    /// When the search must end.
    pub(super) fn deadline(&self) -> Deadline {
        self.clock
    }

    /// Whether the seconds of the search are over.
    pub(super) fn out_of_time(&self) -> bool {
        self.clock.is_over()
    }

    /// The limits of a solve that begins now, of those that it has by itself.
    pub(super) fn left(&self, limits: &Limits) -> Limits {
        Limits { seconds: self.clock.left().or(limits.seconds), ..limits.clone() }
    }

    /// The limits of a solve that begins now.
    pub(super) fn limits(&self) -> Limits {
        self.left(&self.request.limits)
    }

    /// Bytes of a chip's DRAM; infinite where the memory states no capacity.
    pub(super) fn dram_capacity(&self) -> f64 {
        self.system.memory.0.capacity.map_or(f64::INFINITY, |c| c.0)
    }

    /// The assignments that were asked for and can be, with their bounds; why the others can not.
    fn candidates(&self, of: usize, found: &mut Found) -> Result<Vec<Candidate>, MapError> {
        let wanted = &self.request.wanted;
        let all = match &self.request.pins.uses {
            Some(uses) => vec![Degrees::new(self.system, uses.clone())],
            None => assignments(self.system, wanted.split),
        };
        found.considered += all.len();
        let (fitting, others): (Vec<Degrees>, Vec<Degrees>) = all.into_iter().partition(|d| wanted.fits(d));
        if fitting.is_empty() {
            return Err(MapError::Request(self.no_such_degrees(&others)));
        }
        let mut candidates = Vec::new();
        for degrees in fitting {
            match self.degrees_infeasible(&degrees) {
                Some(reason) => found.reasons.push(reason),
                None => {
                    let bound = self.assignment_bound(&degrees);
                    candidates.push(Candidate { degrees, bound, of });
                }
            }
        }
        Ok(candidates)
    }

    pub(super) fn instance(
        &self,
        (degrees, longest): (&Degrees, u64),
        sharding: &[Strategy],
        (tiles, weights_on_chip): (u64, bool),
        live_limit: f64,
    ) -> Result<Instance, SramShort> {
        let amounts = self.amounts(Choice { degrees, sharding, tiles, weights_on_chip, longest })?;
        let mut built = amounts.priced(self.workload, (self.system, &self.rate), degrees, live_limit);
        built.pins = self.pins_partition.clone();
        built.max_partitions = self.request.max_partitions;
        built.goal = self.goal(degrees, sharding, tiles, longest);
        Ok(built)
    }

    /// What no bandwidth and no latency changes of an instance, shared with points that differ in these alone.
    pub(super) fn amounts(&self, choice: Choice<'_>) -> Result<Arc<Amounts>, SramShort> {
        let cut = choice.into();
        self.shelf.amounts(cut, || Amounts::of(self.workload, self.system, &self.rate, cut))
    }

    /// Whether the DRAM may be enough at some degrees: for some sharding, without what waits between partitions.
    fn may_fit(&self, degrees: &Degrees) -> bool {
        if self.workload.is_chain() {
            // Its blocks are divided among the stages; `try_chain` says what is short.
            return true;
        }
        let least = || joint::least_resident(self, degrees);
        if self.pins_sharding.iter().any(Option::is_some) {
            return least() <= self.dram_capacity();
        }
        let at = (degrees.tp, degrees.pp, degrees.dp, self.system.chip_count());
        self.shelf.least_bytes(at, least) <= self.dram_capacity()
    }
}

/// Running totals of a search.
pub(super) struct Found {
    pub(super) reasons: Vec<Infeasible>,
    /// Assignments considered.
    pub(super) considered: usize,
    /// Fusion problems solved.
    pub(super) solved: usize,
    /// Nodes of MILPs.
    pub(super) nodes: u64,
    /// Sets of shardings looked at.
    pub(super) joint_nodes: u64,
    /// What blocks of a chain take at least in what is not closed.
    pub(super) blocks_s: Vec<f64>,
    pub(super) reproducible: bool,
    /// Why a part of the search stopped before its proof, if one did.
    pub(super) left: Option<LeftOpen>,
    /// Least bound of what is not proven, or was not looked at.
    pub(super) unproven: f64,
    /// What one wide fusion problem says of the next.
    pub(super) memory: wide::Memory,
    /// Ideals of each block of a chain.
    pub(super) block_ideals: Vec<Option<Ideals>>,
}

impl Found {
    pub(super) fn new() -> Self {
        Self {
            reasons: Vec::new(),
            considered: 0,
            solved: 0,
            nodes: 0,
            joint_nodes: 0,
            blocks_s: Vec::new(),
            reproducible: true,
            left: None,
            unproven: f64::INFINITY,
            memory: wide::Memory::default(),
            block_ideals: Vec::new(),
        }
    }

    /// Counts what a search inside this one solved.
    pub(super) fn count(&mut self, inner: &Self) {
        self.solved += inner.solved;
        self.nodes += inner.nodes;
        self.reproducible &= inner.reproducible;
    }

    /// A limit left something out that `bound` bounds from below.
    pub(super) fn stop(&mut self, left: LeftOpen, bound: f64) {
        self.left = Some(left);
        self.reproducible &= !matches!(left, LeftOpen::Seconds | LeftOpen::Interrupted);
        self.unproven = self.unproven.min(bound);
    }
}

/// Runs searches that differ in the size of their microbatch alone, as one.
pub(super) fn run(searches: &[Search<'_>]) -> Result<Answer, MapError> {
    let Some(first) = searches.first() else {
        return Err(MapError::Request("no size of a microbatch fits the batch".into()));
    };
    let request = first.request;
    let mut found = Found::new();
    let mut candidates: Vec<Candidate> = Vec::new();
    for (of, search) in searches.iter().enumerate() {
        candidates.extend(search.candidates(of, &mut found)?);
    }
    candidates.sort_by(|a, b| a.bound.total_cmp(&b.bound));
    // Where no sharding fits the DRAM, one is worked out for the message alone.
    let (candidates, hopeless): (Vec<Candidate>, Vec<Candidate>) =
        candidates.into_iter().partition(|c| first.is_by_milp() || searches[c.of].may_fit(&c.degrees));

    let mut best: Option<Best> = None;
    let mut ideals: Option<Ideals> = None;
    let mut tried: Vec<Tried> = Vec::new();
    let joint = request.is_joint(first.system, first.workload.kernels.len());
    for (of, search) in searches.iter().enumerate() {
        for known in request.known.iter().filter(|known| known.micro_batch == search.workload.micro_batch) {
            search.try_known(of, known, &mut best, &mut ideals, &mut found)?;
        }
    }
    let steps = Steps::of("assignments", candidates.len() as u64);
    for candidate in candidates {
        let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
        if candidate.bound >= incumbent * (1.0 - TIE) {
            found.unproven = found.unproven.min(candidate.bound);
            break;
        }
        if first.out_of_time() {
            found.stop(LeftOpen::out_of_time(), candidate.bound);
            break;
        }
        let search = &searches[candidate.of];
        if let Some(first) = search.first_pass(candidate, &mut found)? {
            search.try_sharding(&first.candidate, (&first.pass.sharding, None), &mut best, &mut ideals, &mut found)?;
            tried.push(first);
            if request.any && best.is_some() {
                break;
            }
        }
        steps.step();
    }
    drop(steps);
    if best.is_none() && !request.any {
        for candidate in hopeless {
            let search = &searches[candidate.of];
            if let Some(first) = search.first_pass(candidate, &mut found)? {
                search.try_sharding(
                    &first.candidate,
                    (&first.pass.sharding, None),
                    &mut best,
                    &mut ideals,
                    &mut found,
                )?;
            }
        }
    }
    // Where the fastest sharding of an assignment lacks DRAM, others are tried before any assignment is searched to its end: a point that has
    // a plan gets one whatever the limit of sets, and assignments that cannot beat it are soon closed.
    for first in tried.iter().filter(|_| joint) {
        let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
        let search = &searches[first.candidate.of];
        if (request.any && best.is_some()) || search.out_of_time() {
            break;
        }
        // Of a chain of blocks any assignment may take all sets.
        let early = if search.workload.is_chain() { tried.len() > 1 } else { !search.has_room(first) };
        if first.candidate.bound < incumbent * (1.0 - TIE) && early {
            search.try_all_shardings((first, true), &mut best, &mut ideals, &mut found)?;
        }
    }
    let steps = Steps::of("assignments with all shardings", tried.len() as u64);
    for first in tried.iter().filter(|_| joint) {
        if request.any && best.is_some() {
            break;
        }
        let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
        if first.candidate.bound < incumbent * (1.0 - TIE) {
            searches[first.candidate.of].try_all_shardings((first, false), &mut best, &mut ideals, &mut found)?;
        }
        steps.step();
    }
    drop(steps);
    let Some(best) = best else {
        return match found.left {
            Some(left) => Err(MapError::NoPlanYet { left, instead: None }),
            None => {
                let mut reason = first.nearest_reason(found.reasons);
                let by_memory = matches!(reason.resource.as_str(), "dram" | "sram");
                if by_memory && tried.iter().any(|t| t.candidate.degrees.tp > 1) {
                    reason.remedy.push_str(first.of_one_sharding(joint));
                }
                Ok(Answer::Infeasible(reason))
            }
        };
    };
    searches[best.of].answer(best, found, ideals.as_ref(), joint)
}

/// Relative difference under which two times (or energies, or amounts of money) are one.
pub(super) const TIE: f64 = 1e-9;
