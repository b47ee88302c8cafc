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
//! 5. Where time is minimised (and two passes are not asked for), every other sharding of each assignment that may
//!    still win is searched from the plan found so far (`joint/`).
//!
//! The bound of the answer covers assignments, microbatches, tile counts and partitions, and after step 5 all shardings.
//! Smallest tile counts win ties. Seconds are a limit of the whole search: it ends with the best plan it has.

use super::alone;
use super::amounts::Shelf;
use super::blocks;
use super::cache;
use super::degrees::{Degrees, assignments, divisors};
use super::dominance::{dominates, same_costs};
use super::exact;
use super::fusion::{self, PartitionCounts};
use super::goal::Worth;
use super::ideals::{Ideals, MAX_IDEALS};
use super::instance::{self, Amounts, Choice, Instance, SramShort};
use super::joint::{self, Context, Ended};
use super::record::{Infeasible, SolveRecord, Status, relative_gap};
pub use super::request::{
    Answer, Engine, LimitReached, MapError, MicroBatch, Objective, Passes, Pins, Proof, Record, Request,
    engine_from_word,
};
use super::sharding::{self, Problem, Sharding};
use super::solver::Limits;
use super::tiling::{self, tile_counts};
use super::wide;
use crate::model::Strategy;
use crate::plan::{Decisions, Plan};
use crate::progress::Steps;
use crate::system::System;
use crate::workload::Workload;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Finds the best mapping of a workload onto a system.
///
/// # Errors
/// [`MapError`]: contradictory requests, a failing solver, or two engines that disagree.
pub fn map(workload: &Workload, system: &System, request: &Request) -> Result<Answer, MapError> {
    let clock = Clock::start(&request.limits);
    if workload.is_spread() {
        return super::spread::map(workload, system, request, clock);
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
            map(workload, system, &Request { passes: Passes::Joint, ..request.clone() })
        }
        answer => Ok(answer),
    }
}

/// When a search began, and when it must end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
    ends: Option<Instant>,
}

impl Clock {
    pub(super) fn start(limits: &Limits) -> Self {
        let started = Instant::now();
        let seconds = limits.seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        Self { started, ends: seconds.and_then(|s| started.checked_add(s)) }
    }
    /// Whether its seconds are over.
    pub(super) fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| Instant::now() >= ends)
    }
    /// Whether half of its seconds are over.
    pub(super) fn is_half_over(&self) -> bool {
        self.ends.is_some_and(|ends| Instant::now() >= self.started + ends.saturating_duration_since(self.started) / 2)
    }
    /// Seconds since its start.
    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
    /// The limits of a solve that begins now: no more seconds than are left.
    fn left(&self, limits: &Limits) -> Limits {
        let left = self.ends.map(|ends| ends.saturating_duration_since(Instant::now()).as_secs_f64().max(1e-3));
        Limits { seconds: left.or(limits.seconds), ..limits.clone() }
    }
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

/// The fusion MILP of a point's winner, for `--write-model`.
///
/// # Errors
/// As [`map`].
pub fn winner_model(
    workload: &Workload,
    system: &System,
    plan: &Plan,
    request: &Request,
) -> Result<fusion::FusionModel, MapError> {
    let degrees = Degrees::new(system, plan.decisions.uses.clone());
    let on_grid = workload.is_spread().then(|| workload.on_grid(degrees.grid_rows, degrees.grid_cols));
    let clock = Clock::start(&Limits { seconds: None, ..request.limits.clone() });
    // The plan's own workload: it has the microbatch that was found.
    let workload = on_grid.as_ref().unwrap_or(&plan.workload);
    if workload.is_chain() {
        return Err(MapError::Request(
            "a chain of blocks has a model for each block; none of the whole is written".into(),
        ));
    }
    let search = Search::new(workload, system, request, clock)?;
    let longest = plan.decisions.longest().unwrap_or(1);
    let built = search.instance(
        (&degrees, longest),
        &plan.decisions.sharding,
        (plan.decisions.tiles, plan.decisions.weights_on_chip),
        search.dram_capacity() - search.resident(&degrees, &plan.decisions.sharding, longest).total(),
    );
    let instance = built.map_err(|_| MapError::Request("the plan does not fit the chip".into()))?;
    let counts = PartitionCounts::of(&instance, &plan.decisions.partition, search.spare_partitions());
    Ok(fusion::build(&instance, counts))
}

/// A search under way.
pub(super) struct Search<'a> {
    pub(super) workload: &'a Workload,
    pub(super) system: &'a System,
    pub(super) request: &'a Request,
    pub(super) pins_sharding: Vec<Option<Strategy>>,
    pub(super) pins_partition: Vec<Option<usize>>,
    pub(super) worth: Worth,
    pub(super) shelf: Arc<Shelf>,
    /// The blocks of a chain; none of other workloads.
    pub(super) blocks: Vec<blocks::BlockGraph>,
    clock: Clock,
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
    bound: f64,
    /// Which of the searches it belongs to.
    pub(super) of: usize,
}

/// An assignment whose first pass is done.
struct Tried {
    candidate: Candidate,
    pass: Arc<Pass>,
}

/// A first pass: the sharding problem of an assignment, and its best sharding.
pub(super) struct Pass {
    pub(super) problem: Problem,
    pub(super) sharding: Sharding,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        workload: &'a Workload,
        system: &'a System,
        request: &'a Request,
        clock: Clock,
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
        if workload.is_chain() {
            blocks::allowed(system, request)?;
        }
        if request.passes == Passes::Joint && request.objective != Objective::Time {
            return Err(MapError::Request(format!(
                "--sharding joint is for the objective time; {} is minimised in two passes",
                request.objective
            )));
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
            worth: Worth::of(request, system)?,
            shelf: Shelf::of(workload, &system.chip.0, &system.model),
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
    fn is_by_milp(&self) -> bool {
        self.request.engine == Engine::Milp
    }

    /// Whether the seconds of the search are over.
    pub(super) fn out_of_time(&self) -> bool {
        self.clock.is_over()
    }

    /// The limits of a solve that begins now, of those that it has by itself.
    pub(super) fn left(&self, limits: &Limits) -> Limits {
        self.clock.left(limits)
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
                    found.fastest_s = found.fastest_s.min(self.assignment_floor(&degrees).0);
                    candidates.push(Candidate { degrees, bound, of });
                }
            }
        }
        Ok(candidates)
    }

    /// The first pass of an assignment: its sharding, by the sharding's own objective; `None` where there is none.
    fn first_pass(&self, candidate: Candidate, found: &mut Found) -> Result<Option<Tried>, MapError> {
        let degrees = &candidate.degrees;
        let shared = self.pass_key(degrees);
        if let Some(pass) = shared.as_ref().and_then(|key| self.shelf.pass(key)) {
            return Ok(Some(Tried { candidate, pass }));
        }
        let problem = match sharding::problem(self.workload, self.system, degrees, &self.pins_sharding) {
            Ok(problem) => problem,
            Err(kernel) => {
                found.reasons.push(Infeasible {
                    resource: "sharding".into(),
                    needed: degrees.tp as f64,
                    available: 1.0,
                    unit: "chips".into(),
                    remedy: format!(
                        "kernel {kernel} cannot be split {} ways as pinned; free its sharding or lower TP",
                        degrees.tp
                    ),
                });
                return Ok(None);
            }
        };
        let sharding = self.solve_sharding(&problem)?;
        found.nodes += sharding.record.nodes.unwrap_or(0);
        found.reproducible &= sharding.record.status != Status::TimeLimit;
        if matches!(sharding.record.status, Status::NodeLimit | Status::TimeLimit) {
            // Stopped by a limit: another sharding could make this assignment as fast as its closed form.
            found.unproven = found.unproven.min(candidate.bound);
            found.limit = Some(sharding.record.status);
            if sharding.strategies.is_empty() {
                return Ok(None);
            }
        }
        if sharding.strategies.is_empty() || sharding.record.status == Status::Infeasible {
            found.reasons.push(Infeasible {
                resource: "sharding".into(),
                needed: degrees.tp as f64,
                available: 1.0,
                unit: "chips".into(),
                remedy: format!(
                    "no strategies of the kernels agree at TP = {}; lower TP or free the pinned sharding",
                    degrees.tp
                ),
            });
            return Ok(None);
        }
        let by_elimination = sharding.record.status == Status::Optimal && sharding.record.nodes == Some(0);
        let pass = Arc::new(Pass { problem, sharding });
        if let Some(key) = shared.filter(|_| by_elimination) {
            self.shelf.keep_pass(key, &pass);
        }
        Ok(Some(Tried { candidate, pass }))
    }

    /// What the first pass of an assignment depends on beside workload, chip, model and TP: the links of the group and the
    /// memory ([`sharding::problem`]). `None` where it is not shared.
    fn pass_key(&self, degrees: &Degrees) -> Option<Vec<u64>> {
        if self.is_by_milp() || self.pins_sharding.iter().any(Option::is_some) {
            return None;
        }
        let mut key = vec![self.system.memory.0.bandwidth.0.to_bits(), self.system.overlap() as u64, degrees.tp];
        for d in &degrees.tp_group {
            key.extend([d.topology as u64, d.size, d.bandwidth.to_bits(), d.latency.to_bits()]);
        }
        Some(key)
    }

    /// Solves a sharding (at every tile count, or each of some, descending) with every division into stages that can still win: from the one with the shortest longest stage on,
    /// for as long as tensors that wait lack the room that a longer one would leave them.
    fn try_sharding(
        &self,
        candidate: &Candidate,
        (sharding, some): (&Sharding, Option<&[u64]>),
        best: &mut Option<Best>,
        ideals: &mut Option<Ideals>,
        found: &mut Found,
    ) -> Result<(), MapError> {
        if self.workload.is_chain() {
            return self.try_chain(candidate, sharding, best, found);
        }
        let degrees = &candidate.degrees;
        let capacity = self.dram_capacity();
        let (pipe, need) = (self.pipe(degrees), self.layer_need(degrees, &sharding.strategies));
        let Some(least) = pipe.least_longest(&need, capacity) else {
            found.reasons.push(self.dram_short(degrees, pipe.fullest(&need, pipe.longest()).total(), capacity));
            return Ok(());
        };
        for longest in least..=pipe.longest() {
            let live_limit = capacity - pipe.fullest(&need, longest).total();
            let division = (longest, live_limit);
            if !self.try_division(candidate, (sharding, some), division, best, ideals, found)? || self.out_of_time() {
                break;
            }
        }
        Ok(())
    }

    /// Solves every tile count of a sharding that can still win, where the longest stage has `longest` layers and leaves
    /// `live_limit` bytes to tensors that wait. Tells whether more room could give a better plan.
    fn try_division(
        &self,
        Candidate { degrees, of, .. }: &Candidate,
        (sharding, some): (&Sharding, Option<&[u64]>),
        (longest, live_limit): (u64, f64),
        best: &mut Option<Best>,
        ideals: &mut Option<Ideals>,
        found: &mut Found,
    ) -> Result<bool, MapError> {
        let at = (degrees, longest);
        let mut lacks_room = false;
        let counts = match (some, self.request.tiles) {
            (Some(some), _) => some.to_vec(),
            (None, Some(tiles)) => vec![tiles],
            (None, None) => tile_counts(self.workload, &self.system.model),
        };
        if self.try_alone((at, *of), sharding, (&counts, live_limit), best, found) {
            return Ok(false);
        }
        let mut tried: Vec<Arc<Instance>> = Vec::new();
        // Tile counts of those tried that make smaller ones needless.
        let mut whole: Vec<(u64, bool)> = Vec::new();
        let is_whole = |tiles| tiling::is_whole(self.workload, self.system, degrees.tp, &sharding.strategies, tiles);
        let modes: &[bool] = if instance::may_keep_weights(self.system) { &[true, false] } else { &[false] };
        for (tiles, weights_on_chip) in counts.into_iter().flat_map(|t| modes.iter().map(move |m| (t, *m))) {
            let layout = (tiles, weights_on_chip);
            // What `dominates` would find, without building it.
            if whole.iter().any(|(more, mode)| *mode == weights_on_chip && more.is_multiple_of(tiles)) {
                continue;
            }
            let instance = match self.instance(at, &sharding.strategies, layout, live_limit) {
                Ok(instance) => Arc::new(instance),
                // Streaming the weights needs less SRAM; its own turn says what is short.
                Err(_) if weights_on_chip => continue,
                Err(short) => {
                    found.reasons.push(self.sram_short(degrees, short, tiles));
                    continue;
                }
            };
            if tried.iter().any(|other| dominates(other, &instance)) {
                continue;
            }
            let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
            let bound = self.total(at, &sharding.strategies, &instance.goal, instance.least_value());
            if bound >= incumbent * (1.0 - TIE) {
                whole.extend(is_whole(tiles).then_some(layout));
                tried.push(instance);
                continue;
            }
            if self.out_of_time() {
                found.stop(Status::TimeLimit, bound);
                continue;
            }
            found.solved += 1;
            lacks_room |= instance.waits_at_most() > live_limit;
            let cutoff = self.layer_cutoff(at, &sharding.strategies, &instance, incumbent);
            let Some(Fused { layer, assignment, proven, bound: layer_bound, relaxed }) =
                self.solve_fusion(&instance, cutoff, ideals, &mut found.memory)?
            else {
                if self.out_of_time() {
                    // Stopped: nothing is known of the plans of this one.
                    found.stop(Status::TimeLimit, bound);
                    continue;
                }
                if incumbent.is_finite() {
                    // A part of a wide graph's ideals says nothing of the others.
                    if ideals.as_ref().is_none_or(|found| !found.complete) {
                        found.unproven = found.unproven.min(bound);
                    }
                    whole.extend(is_whole(tiles).then_some(layout));
                    tried.push(instance);
                    continue;
                }
                if weights_on_chip {
                    continue;
                }
                found.reasons.push(self.partition_short(degrees, &instance, tiles, self.dram_capacity()));
                continue;
            };
            let objective = self.total(at, &sharding.strategies, &instance.goal, layer);
            if !proven {
                let bound = bound.max(self.total(at, &sharding.strategies, &instance.goal, layer_bound));
                found.unproven = found.unproven.min(bound);
                if self.out_of_time() {
                    // The seconds may have ended it.
                    found.stop(Status::TimeLimit, bound);
                }
            }
            if objective < incumbent * (1.0 - TIE) {
                *best = Some(Best {
                    degrees: degrees.clone(),
                    sharding: sharding.clone(),
                    tiles,
                    weights_on_chip,
                    longest,
                    instance: instance.clone(),
                    assignment,
                    layer,
                    proven,
                    bound: layer_bound,
                    relaxed,
                    objective,
                    of: *of,
                    parts: Vec::new(),
                    stages: Vec::new(),
                });
            }
            whole.extend(is_whole(tiles).then_some(layout));
            tried.push(instance);
        }
        Ok(lacks_room)
    }

    /// Every other sharding of an assignment that may beat the best plan found ([`joint`]).
    fn try_all_shardings(
        &self,
        tried: &Tried,
        best: &mut Option<Best>,
        ideals: &mut Option<Ideals>,
        found: &mut Found,
    ) -> Result<(), MapError> {
        let candidate = &tried.candidate;
        let pipe = self.pipe(&candidate.degrees);
        // Stages as equal as can be take least time and most memory. Told apart by their longest stage, divisions have bounds that
        // see both.
        let (least, most) = (pipe.shortest(), pipe.longest());
        let alone = (least..=most).take(TOLD_APART).map(|longest| (longest, longest));
        let others = least.saturating_add(TOLD_APART as u64);
        for longest in alone.chain((others <= most).then_some((others, most))) {
            let Some(joint) = joint::Joint::new(self, &candidate.degrees, longest) else { continue };
            let mut nodes_left = self.request.joint_nodes.saturating_sub(found.joint_nodes);
            let before = nodes_left;
            let start = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
            let mut evaluate = |strategies: &[Strategy], tiles: &[u64], ideals: &mut Option<Ideals>| {
                let at = |k: usize| tried.pass.problem.open[k].iter().position(|s| *s == strategies[k]).unwrap_or(0);
                let choice: Vec<usize> = (0..strategies.len()).map(at).collect();
                let objective = sharding::price(&tried.pass.problem, &choice);
                let record = SolveRecord { objective, ..tried.pass.sharding.record.clone() };
                let sharding = Sharding { strategies: strategies.to_vec(), record };
                self.try_sharding(candidate, (&sharding, Some(tiles)), best, ideals, found)?;
                Ok(best.as_ref().map_or(f64::INFINITY, |b| b.objective))
            };
            let mut context = Context { ideals, nodes_left: &mut nodes_left };
            let ended = joint.run(&mut context, tried.pass.sharding.strategies.clone(), &mut evaluate, start)?;
            found.joint_nodes += before - nodes_left;
            match ended {
                Ended::Closed => {}
                Ended::Near(bound) => found.unproven = found.unproven.min(bound),
                Ended::Stopped(bound) => {
                    let status = if self.out_of_time() { Status::TimeLimit } else { Status::NodeLimit };
                    found.stop(status, bound);
                }
            }
        }
        Ok(())
    }

    /// The sharding of an assignment: by elimination, and by the MILP where a solver is named; then both must agree.
    fn solve_sharding(&self, problem: &sharding::Problem) -> Result<Sharding, MapError> {
        let exact = sharding::solve_exactly(problem, &self.limits())?;
        if self.request.engine != Engine::Milp {
            return Ok(exact);
        }
        let milp = sharding::solve_problem(problem, &self.limits())?;
        let (one, other) = (exact.record.objective, milp.record.objective);
        let differ = match milp.record.status {
            Status::Optimal if one.is_infinite() => true,
            Status::Optimal => (one - other).abs() > 1e-6_f64.max(self.request.limits.gap) * one.abs().max(other.abs()),
            Status::Infeasible => one.is_finite(),
            // Stopped by a limit: what it has found is no better than the best.
            Status::NodeLimit | Status::TimeLimit | Status::Blind => milp.record.bound > one + 1e-6 * one.abs(),
        };
        if differ {
            return Err(MapError::Disagreement { what: "elimination and MILP of the sharding".into(), one, other });
        }
        Ok(Sharding { record: SolveRecord { nodes: milp.record.nodes, ..exact.record }, ..exact })
    }

    /// The largest sum over the partitions with which the objective may still be below `incumbent`; infinite where that
    /// cannot be said. The objective is affine in that sum, from its least value on at the latest.
    fn layer_cutoff(&self, at: (&Degrees, u64), sharding: &[Strategy], instance: &Instance, incumbent: f64) -> f64 {
        if incumbent.is_infinite() {
            return f64::INFINITY;
        }
        let total = |layer: f64| self.total(at, sharding, &instance.goal, layer);
        let least = instance.least_value();
        let (at, twice) = (total(least), total(2.0 * least));
        let slope = (twice - at) / least;
        let cutoff = (least + (incumbent - at) / slope) * (1.0 + TIE);
        // What is affine only beyond a kink is caught by the look back.
        if cutoff.is_finite() && total(cutoff) >= incumbent * (1.0 - TIE) { cutoff } else { f64::INFINITY }
    }

    /// The best partitions of an instance: objective, assignment, and whether they are proven best. Plans that take
    /// longer than `cutoff` need not be found.
    pub(super) fn solve_fusion(
        &self,
        instance: &Instance,
        cutoff: f64,
        ideals: &mut Option<Ideals>,
        memory: &mut wide::Memory,
    ) -> Result<Option<Fused>, MapError> {
        let n = instance.kernels.len();
        let fused = |layer: f64, assignment: Vec<usize>, proven: bool| Fused {
            bound: if proven { layer } else { instance.least_value().min(layer) },
            layer,
            assignment,
            proven,
            relaxed: false,
        };
        if instance.kernel_by_kernel {
            // The order changes no time. The written one, forward kernels first, is best unless pins or the DRAM ask for
            // another, which the shortest path finds.
            let alone = alone::in_turn(instance);
            if let Some((objective, _)) = instance.evaluate(&alone) {
                return Ok(Some(fused(objective, alone, true)));
            }
        }
        let limited = instance.pins.iter().any(Option::is_some) || instance.max_partitions.is_some();
        let of_wide = |memory: &mut wide::Memory| {
            wide::solve(instance, cutoff, memory, self.clock.ends).map(|found| Fused {
                proven: found.objective - found.bound <= TIE * found.objective.abs(),
                layer: found.objective,
                assignment: found.assignment,
                bound: found.bound,
                relaxed: found.relaxed > 0,
            })
        };
        if n > 128 {
            return match if limited { None } else { of_wide(memory) } {
                Some(found) => Ok(Some(found)),
                None => match exact::by_order(instance, self.clock.ends) {
                    Some(path) => Ok(Some(fused(path.objective, path.assignment, path.proven && !limited))),
                    None if limited => Err(self.not_found(n)),
                    None => Ok(None),
                },
            };
        }
        let found = match ideals {
            Some(found) => found,
            None => {
                let list = || Ideals::of(instance, MAX_IDEALS);
                // The shelf is the whole workload's, a chain's problem one of its blocks'.
                let listed = if self.workload.is_chain() { list() } else { self.shelf.ideals(list) };
                let Some(found) = listed else { return Ok(None) };
                ideals.insert(found)
            }
        };
        let solve =
            |cutoff| cache::fusion(instance, cutoff, || exact::solve_until(instance, found, cutoff, self.clock.ends));
        match solve(if limited { f64::INFINITY } else { cutoff }) {
            Some(path) if path.proven || limited => Ok(Some(fused(path.objective, path.assignment, path.proven))),
            // A part of the ideals proves nothing: what the relaxation says, and the better plan of the two.
            Some(path) => Ok(Some(match of_wide(memory) {
                Some(wide) if wide.layer < path.objective => wide,
                Some(wide) => Fused {
                    proven: path.objective - wide.bound <= TIE * path.objective.abs(),
                    layer: path.objective,
                    assignment: path.assignment,
                    bound: wide.bound,
                    relaxed: wide.relaxed,
                },
                None => fused(path.objective, path.assignment, false),
            })),
            None if found.complete => Ok(None),
            None if !limited => Ok(of_wide(memory)),
            // One order of a wide graph says nothing of the others: the MILP decides.
            None => {
                Ok(self.find_by_milp(instance)?.map(|(layer, assignment, proven)| fused(layer, assignment, proven)))
            }
        }
    }

    /// Lowers the tile count to the smallest at which the plan costs the same and still fits.
    fn smallest_tiles(&self, best: &mut Best) {
        if self.request.tiles.is_some() || self.out_of_time() {
            return;
        }
        if self.workload.is_chain() {
            return self.smallest_tiles_of_chain(best);
        }
        let mut counts = tile_counts(self.workload, &self.system.model);
        counts.reverse();
        counts.retain(|t| *t < best.tiles);
        let limit = best.instance.live_limit;
        let as_good = |tiles: u64| {
            let layout = (tiles, best.weights_on_chip);
            let instance =
                self.instance((&best.degrees, best.longest), &best.sharding.strategies, layout, limit).ok()?;
            let same = dominates(&best.instance, &instance) && same_costs(&best.instance, &instance);
            let plan = instance.evaluate(&best.assignment).filter(|(o, _)| same && *o <= best.layer * (1.0 + TIE));
            plan.map(|_| instance)
        };
        let strategies = &best.sharding.strategies;
        let whole = counts.iter().all(|t| best.tiles.is_multiple_of(*t))
            && tiling::is_whole(self.workload, self.system, best.degrees.tp, strategies, best.tiles);
        let found = if whole {
            // Fewer tiles only need more SRAM, so that those that are as good are the last ones.
            let at = counts.partition_point(|t| as_good(*t).is_none());
            counts.get(at).and_then(|t| as_good(*t).map(|instance| (*t, instance)))
        } else {
            counts.iter().find_map(|t| as_good(*t).map(|instance| (*t, instance)))
        };
        if let Some((tiles, instance)) = found {
            best.tiles = tiles;
            best.instance = Arc::new(instance);
        }
    }

    pub(super) fn instance(
        &self,
        (degrees, longest): (&Degrees, u64),
        sharding: &[Strategy],
        (tiles, weights_on_chip): (u64, bool),
        live_limit: f64,
    ) -> Result<Instance, SramShort> {
        let amounts = self.amounts(Choice { degrees, sharding, tiles, weights_on_chip, longest })?;
        let mut built = amounts.priced(self.workload, self.system, degrees, live_limit);
        built.pins = self.pins_partition.clone();
        built.max_partitions = self.request.max_partitions;
        built.goal = self.goal(degrees, sharding, tiles, longest);
        Ok(built)
    }

    /// What no bandwidth and no latency changes of an instance, shared with points that differ in these alone.
    pub(super) fn amounts(&self, choice: Choice<'_>) -> Result<Arc<Amounts>, SramShort> {
        let cut = choice.into();
        self.shelf.amounts(cut, || Amounts::of(self.workload, &self.system.chip.0, &self.system.model, cut))
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

/// The answer to one fusion problem.
#[derive(Debug, Clone)]
pub(super) struct Fused {
    /// Value of the partitions.
    pub(super) layer: f64,
    /// Partition of each kernel.
    pub(super) assignment: Vec<usize>,
    /// Whether none is better.
    pub(super) proven: bool,
    /// None has a smaller value.
    pub(super) bound: f64,
    /// Whether that follows from a relaxation.
    pub(super) relaxed: bool,
}

/// Running totals of a search.
pub(super) struct Found {
    pub(super) reasons: Vec<Infeasible>,
    /// Assignments considered.
    considered: usize,
    /// Fusion problems solved.
    pub(super) solved: usize,
    /// Nodes of MILPs.
    nodes: u64,
    /// Sets of shardings looked at.
    joint_nodes: u64,
    reproducible: bool,
    /// Why a part of the search stopped before its proof, if one did.
    limit: Option<Status>,
    /// Least bound of what is not proven, or was not looked at.
    pub(super) unproven: f64,
    /// Least time of all assignments in closed form.
    fastest_s: f64,
    /// What one wide fusion problem says of the next.
    pub(super) memory: wide::Memory,
    /// Ideals of each block of a chain.
    pub(super) block_ideals: Vec<Option<Ideals>>,
}

impl Found {
    /// A limit left something out that `bound` bounds from below.
    pub(super) fn stop(&mut self, status: Status, bound: f64) {
        self.limit = Some(status);
        self.reproducible &= status != Status::TimeLimit;
        self.unproven = self.unproven.min(bound);
    }
}

/// Lengths of the longest stage that the joint search bounds one by one; all that are longer have one bound.
const TOLD_APART: usize = 4;

/// Runs searches that differ in the size of their microbatch alone, as one.
pub(super) fn run(searches: &[Search<'_>]) -> Result<Answer, MapError> {
    let Some(first) = searches.first() else {
        return Err(MapError::Request("no size of a microbatch fits the batch".into()));
    };
    let request = first.request;
    let mut found = Found {
        reasons: Vec::new(),
        considered: 0,
        solved: 0,
        nodes: 0,
        joint_nodes: 0,
        reproducible: true,
        limit: None,
        unproven: f64::INFINITY,
        fastest_s: f64::INFINITY,
        memory: wide::Memory::default(),
        block_ideals: Vec::new(),
    };
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
    // Of a chain of blocks no other shardings are searched: its bound holds given each assignment's.
    let joint = request.is_joint(first.system, first.workload.kernels.len()) && !first.workload.is_chain();
    let steps = Steps::of("assignments", candidates.len() as u64);
    for candidate in candidates {
        let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
        if candidate.bound >= incumbent * (1.0 - TIE) {
            found.unproven = found.unproven.min(candidate.bound);
            break;
        }
        if first.out_of_time() {
            found.stop(Status::TimeLimit, candidate.bound);
            break;
        }
        let search = &searches[candidate.of];
        if let Some(first) = search.first_pass(candidate, &mut found)? {
            search.try_sharding(&first.candidate, (&first.pass.sharding, None), &mut best, &mut ideals, &mut found)?;
            tried.push(first);
        }
        steps.step();
    }
    drop(steps);
    if best.is_none() {
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
    let steps = Steps::of("assignments with all shardings", tried.len() as u64);
    for first in tried.iter().filter(|_| joint) {
        let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
        if first.candidate.bound < incumbent * (1.0 - TIE) {
            searches[first.candidate.of].try_all_shardings(first, &mut best, &mut ideals, &mut found)?;
        }
        steps.step();
    }
    let Some(best) = best else {
        return match found.limit {
            Some(limit) => Err(MapError::NoPlanYet(LimitReached::of(limit))),
            None => {
                let mut reason = first.nearest_reason(found.reasons);
                let by_memory = reason.resource == "dram" || (reason.resource == "sram" && !joint);
                if by_memory && tried.iter().any(|t| t.candidate.degrees.tp > 1) {
                    reason.remedy.push_str(first.of_one_sharding(joint));
                }
                Ok(Answer::Infeasible(reason))
            }
        };
    };
    searches[best.of].answer(best, found, ideals.as_ref(), joint)
}

impl Search<'_> {
    /// The winner's plan, with its proof.
    fn answer(
        &self,
        mut best: Best,
        mut found: Found,
        ideals: Option<&Ideals>,
        joint: bool,
    ) -> Result<Answer, MapError> {
        self.smallest_tiles(&mut best);
        let (own, proof, fusion) = self.certify(&mut best)?;
        if let Some(record) = &fusion {
            found.nodes += record.nodes.unwrap_or(0);
            found.reproducible &= record.status != Status::TimeLimit || proof != Proof::Milp;
        }
        let evaluated = if self.workload.is_chain() {
            blocks::joined(&best.parts, self.workload.kernels.len()).map(|(assignment, costs)| {
                best.assignment = assignment;
                costs
            })
        } else {
            best.instance.evaluate(&best.assignment).map(|(_, costs)| costs)
        };
        let Some(costs) = evaluated else {
            return Err(MapError::Disagreement {
                what: "feasibility of the plan".into(),
                one: best.layer,
                other: f64::INFINITY,
            });
        };
        let figures = self.figures(&best, &costs);
        let decisions = Decisions {
            uses: best.degrees.uses.clone(),
            stages: figures.stages.iter().map(|s| s.layers).collect(),
            sharding: best.sharding.strategies.clone(),
            tiles: best.tiles,
            weights_on_chip: best.weights_on_chip,
            partition: best.assignment.clone(),
        };
        let value = self.objective_of(&figures);
        let objective_s = figures.iteration_s();
        // Times within a billionth are one time: bounds that differ from the objective by rounding alone are the objective.
        let bound = snap(own.min(found.unproven), value);
        let bound_s = if self.request.objective == Objective::Time { bound } else { found.fastest_s.min(objective_s) };
        let gap = relative_gap(value, bound);
        let status = if gap <= self.request.limits.gap.max(TIE) {
            Status::Optimal
        } else {
            let of_fusion = fusion.as_ref().map(|f| f.status).filter(|s| *s != Status::Optimal);
            found.limit.or(of_fusion).unwrap_or(Status::NodeLimit)
        };
        let record = Record {
            status,
            objective: self.request.objective,
            value,
            bound,
            economics: self.request.economics,
            objective_s,
            bound_s,
            proof,
            nodes: found.nodes,
            solve_s: self.clock.seconds(),
            solver: match self.request.engine {
                Engine::Exact => "exact".into(),
                Engine::Auto | Engine::Milp => self.request.limits.solver.word().into(),
            },
            engine: self.engine_taken(&best, proof, fusion.is_some(), ideals),
            seed: self.request.limits.seed,
            reproducible: found.reproducible,
            sharding: best.sharding.record.clone(),
            fusion,
            assignments: found.considered,
            solved: found.solved,
            covers_sharding: joint,
            joint_nodes: found.joint_nodes,
        };
        let plan = Plan { workload: self.workload.clone(), system: self.system.clone(), decisions, figures };
        Ok(Answer::Mapped(Box::new(plan), Box::new(record)))
    }
}

/// Relative difference under which two times (or energies, or amounts of money) are one.
pub(super) const TIE: f64 = 1e-9;

/// `bound`, or `objective` where they differ by rounding alone.
fn snap(bound: f64, objective: f64) -> f64 {
    if (objective - bound).abs() <= 4.0 * TIE * objective.abs() { objective } else { bound }
}
