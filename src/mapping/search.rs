//! The whole search for one point: degrees x sharding x tile count x fusion.
//!
//! 1. Every assignment of network dimensions gets a closed-form bound on its iteration time and is tried in that order.
//! 2. The sharding MILP of an assignment is solved (its own objective, its own proof).
//! 3. Each tile count, with the weights streamed or (on dataflow chips that can hold them) kept on chip for the
//!    iteration, gives a fusion problem; a tile count that costs as much as another and needs no less SRAM is
//!    left out; so is one whose closed-form bound cannot beat the best found.
//! 4. The fusion problem is solved as a shortest path over the graph's ideals. Where the graph has too many of them for
//!    a proof, or where the user names a MILP solver, the winner is solved again as a MILP, started from that plan. The
//!    two must agree to 1e-6, or the program stops with both numbers.
//!
//! The bound of the answer covers assignments, tile counts and partitions; the sharding of an assignment is the one
//! that its own objective chose. Smallest tile counts win ties.

use super::degrees::{Degrees, Wanted, assignments};
use super::exact::{self, Ideals, MAX_IDEALS};
use super::fusion::{self, PartitionCounts};
use super::instance::{self, Choice, Compute, Instance, PartitionCost, SramShort};
use super::record::{Infeasible, SolveRecord, Status, relative_gap};
use super::sharding::{self, Sharding};
use super::solver::{Limits, Solver, SolverError};
use super::tiling::tile_counts;
use crate::model::Strategy;
use crate::model::compute::{constant_efficiency, gradient_bytes, local, peak, system_peak, tensor_bytes, tile_flop, weight_bytes};
use crate::model::layout::{Layout, required};
use crate::model::memory::{DramNeed, resident};
use crate::model::schedule::{Iteration, Stage, iteration, microbatches, samples_per_pass};
use crate::plan::{Decisions, DimensionUse, Figures, PartitionFigures, Plan};
use crate::system::options::Pipeline;
use crate::system::{System, price};
use crate::workload::Workload;
use serde::Serialize;
use std::time::Instant;

/// Which engine decides the fusion problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The shortest path, and the MILP where that cannot prove its answer.
    Auto,
    /// The shortest path alone.
    Exact,
    /// The shortest path, and the MILP always: the two must agree.
    Milp,
}

/// Decisions that are fixed beforehand.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pins {
    /// Use of each network dimension.
    pub uses: Option<Vec<DimensionUse>>,
    /// Strategy of each kernel.
    pub sharding: Vec<Option<Strategy>>,
    /// Partition of each kernel, by position.
    pub partition: Vec<Option<usize>>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Degrees asked for.
    pub wanted: Wanted,
    /// Tile count asked for.
    pub tiles: Option<u64>,
    /// Most partitions.
    pub max_partitions: Option<usize>,
    /// Decisions fixed beforehand.
    pub pins: Pins,
    /// Engine of the fusion problem.
    pub engine: Engine,
    /// Solver and its limits.
    pub limits: Limits,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            wanted: Wanted::default(),
            tiles: None,
            max_partitions: None,
            pins: Pins::default(),
            engine: Engine::Auto,
            limits: Limits::default(),
        }
    }
}

/// What proves the bound of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The plan reaches the closed-form bound.
    ClosedForm,
    /// Shortest path over all ideals.
    ShortestPath,
    /// The MILP solver's bound.
    Milp,
}

/// The record of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// How the search ended.
    pub status: Status,
    /// Seconds of an iteration.
    pub objective_s: f64,
    /// No mapping in the space searched is faster.
    pub bound_s: f64,
    /// What proves the bound.
    pub proof: Proof,
    /// Nodes of all MILPs.
    pub nodes: u64,
    /// Seconds of the search.
    pub solve_s: f64,
    /// The solver: `highs`, `cbc` or `exact`.
    pub solver: String,
    /// Its seed.
    pub seed: u32,
    /// Whether the same inputs give the same answer: no solve was stopped by seconds.
    pub reproducible: bool,
    /// The sharding solve of the winner; objective in seconds or bytes as the model's options say.
    pub sharding: SolveRecord,
    /// The MILP solve of the winner's fusion problem, in seconds of a layer; none where its answer was known.
    pub fusion: Option<SolveRecord>,
    /// Assignments of network dimensions considered.
    pub assignments: usize,
    /// Fusion problems solved.
    pub solved: usize,
}

impl Record {
    /// (objective - bound) / objective.
    pub fn gap(&self) -> f64 {
        relative_gap(self.objective_s, self.bound_s)
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A plan and its record.
    Mapped(Box<Plan>, Box<Record>),
    /// No plan exists; why.
    Infeasible(Infeasible),
}

/// A request that cannot be answered.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MapError {
    /// The request contradicts its inputs.
    #[error("{0}")]
    Request(String),
    /// The solver failed.
    #[error(transparent)]
    Solver(#[from] SolverError),
    /// Two computations that must agree do not: a fault of this program.
    #[error("internal error, please report it: {what}: {one} against {other}")]
    Disagreement {
        /// What was computed twice.
        what: String,
        /// One result.
        one: f64,
        /// The other.
        other: f64,
    },
}

/// Finds the best mapping of a workload onto a system.
///
/// # Errors
/// [`MapError`]: contradictory requests, a failing solver, or two engines that disagree.
pub fn map(workload: &Workload, system: &System, request: &Request) -> Result<Answer, MapError> {
    Search::new(workload, system, request)?.run()
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
    let search = Search::new(workload, system, request)?;
    let degrees = Degrees::new(system, plan.decisions.uses.clone());
    let built = search.instance(&degrees, &plan.decisions.sharding, (plan.decisions.tiles, plan.decisions.weights_on_chip), f64::INFINITY);
    let instance = built.map_err(|_| MapError::Request("the plan does not fit the chip".into()))?;
    let counts = PartitionCounts::of(&instance, &plan.decisions.partition, search.spare_partitions());
    Ok(fusion::build(&instance, counts))
}

struct Search<'a> {
    workload: &'a Workload,
    system: &'a System,
    request: &'a Request,
    pins_sharding: Vec<Option<Strategy>>,
    pins_partition: Vec<Option<usize>>,
}

/// A candidate of the search that is still the best.
struct Best {
    degrees: Degrees,
    sharding: Sharding,
    tiles: u64,
    weights_on_chip: bool,
    instance: Instance,
    assignment: Vec<usize>,
    layer_s: f64,
    proven: bool,
    iteration_s: f64,
}

/// An assignment with its closed-form bound.
struct Candidate {
    degrees: Degrees,
    bound_s: f64,
}

impl<'a> Search<'a> {
    fn new(workload: &'a Workload, system: &'a System, request: &'a Request) -> Result<Self, MapError> {
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
        let most = super::tiling::streamed_size(workload);
        if let Some(tiles) = request.tiles.filter(|t| *t == 0 || *t > most) {
            return Err(MapError::Request(format!("--tiles {tiles}: expected 1 to {most}, the streamed size of the workload")));
        }
        let or_none = |len: usize| len == 0;
        Ok(Self {
            workload,
            system,
            request,
            pins_sharding: if or_none(request.pins.sharding.len()) { vec![None; n] } else { request.pins.sharding.clone() },
            pins_partition: if or_none(request.pins.partition.len()) { vec![None; n] } else { request.pins.partition.clone() },
        })
    }

    fn run(&self) -> Result<Answer, MapError> {
        let clock = Instant::now();
        let wanted = &self.request.wanted;
        let all = match &self.request.pins.uses {
            Some(uses) => vec![Degrees::new(self.system, uses.clone())],
            None => assignments(self.system, wanted.split),
        };
        let considered = all.len();
        let fitting: Vec<Degrees> = all.iter().filter(|d| wanted.fits(d)).cloned().collect();
        if fitting.is_empty() {
            return Err(MapError::Request(self.no_such_degrees(&all)));
        }
        let mut reasons: Vec<Infeasible> = Vec::new();
        let mut candidates: Vec<Candidate> = Vec::new();
        for degrees in fitting {
            match self.degrees_infeasible(&degrees) {
                Some(reason) => reasons.push(reason),
                None => {
                    let bound_s = self.assignment_bound(&degrees);
                    candidates.push(Candidate { degrees, bound_s });
                }
            }
        }
        candidates.sort_by(|a, b| a.bound_s.total_cmp(&b.bound_s));

        let mut best: Option<Best> = None;
        let mut ideals: Option<Ideals> = None;
        let mut solved = 0;
        let mut nodes = 0;
        let mut reproducible = true;
        let mut others_bound = f64::INFINITY;
        for candidate in candidates {
            let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.iteration_s);
            if candidate.bound_s >= incumbent * (1.0 - TIE) {
                others_bound = others_bound.min(candidate.bound_s);
                break;
            }
            self.try_assignment(
                candidate.degrees,
                &mut best,
                &mut ideals,
                &mut reasons,
                &mut Tally { solved: &mut solved, nodes: &mut nodes, reproducible: &mut reproducible, unproven: &mut others_bound },
            )?;
        }
        let Some(mut best) = best else {
            return Ok(Answer::Infeasible(self.nearest_reason(reasons)));
        };
        self.smallest_tiles(&mut best);
        let (layer_bound, proof, fusion) = self.certify(&mut best)?;
        if let Some(record) = &fusion {
            nodes += record.nodes.unwrap_or(0);
            reproducible &= record.status != Status::TimeLimit || proof != Proof::Milp;
        }
        let decisions = Decisions {
            uses: best.degrees.uses.clone(),
            sharding: best.sharding.strategies.clone(),
            tiles: best.tiles,
            weights_on_chip: best.weights_on_chip,
            partition: best.assignment.clone(),
        };
        let Some((_, costs)) = best.instance.evaluate(&best.assignment) else {
            return Err(MapError::Disagreement { what: "feasibility of the plan".into(), one: best.layer_s, other: f64::INFINITY });
        };
        let figures = self.figures(&best, &costs);
        let objective_s = figures.iteration_s();
        // Times within a billionth are one time: bounds that differ from the objective by rounding alone are the objective.
        let own = self.iteration(&best.degrees, &best.sharding.strategies, layer_bound).total_s();
        let bound_s = snap(own.min(others_bound), objective_s);
        let gap = relative_gap(objective_s, bound_s);
        let status = if gap <= self.request.limits.gap.max(TIE) {
            Status::Optimal
        } else {
            fusion.as_ref().map_or(Status::NodeLimit, |f| if f.status == Status::Optimal { Status::NodeLimit } else { f.status })
        };
        reproducible &= best.sharding.record.status != Status::TimeLimit;
        let record = Record {
            status,
            objective_s,
            bound_s,
            proof,
            nodes: nodes + best.sharding.record.nodes.unwrap_or(0),
            solve_s: clock.elapsed().as_secs_f64(),
            solver: match self.request.engine {
                Engine::Exact => "exact".into(),
                Engine::Auto | Engine::Milp => self.request.limits.solver.word().into(),
            },
            seed: self.request.limits.seed,
            reproducible,
            sharding: best.sharding.record.clone(),
            fusion,
            assignments: considered,
            solved,
        };
        let plan = Plan { workload: self.workload.clone(), system: self.system.clone(), decisions, figures };
        Ok(Answer::Mapped(Box::new(plan), Box::new(record)))
    }

    /// Solves one assignment: sharding, then every tile count that can still win.
    fn try_assignment(
        &self,
        degrees: Degrees,
        best: &mut Option<Best>,
        ideals: &mut Option<Ideals>,
        reasons: &mut Vec<Infeasible>,
        tally: &mut Tally<'_>,
    ) -> Result<(), MapError> {
        let problem = match sharding::problem(self.workload, self.system, &degrees, &self.pins_sharding) {
            Ok(problem) => problem,
            Err(kernel) => {
                reasons.push(Infeasible {
                    resource: "sharding".into(),
                    needed: degrees.tp as f64,
                    available: 1.0,
                    unit: "chips".into(),
                    remedy: format!("kernel {kernel} cannot be split {} ways as pinned; free its sharding or lower TP", degrees.tp),
                });
                return Ok(());
            }
        };
        let limits = Limits { solver: self.request.limits.solver, ..self.request.limits.clone() };
        let sharding = sharding::solve_problem(&problem, &limits)?;
        *tally.nodes += sharding.record.nodes.unwrap_or(0);
        *tally.reproducible &= sharding.record.status != Status::TimeLimit;
        if sharding.strategies.is_empty() || sharding.record.status == Status::Infeasible {
            reasons.push(Infeasible {
                resource: "sharding".into(),
                needed: degrees.tp as f64,
                available: 1.0,
                unit: "chips".into(),
                remedy: format!("no strategies of the kernels agree at TP = {}; lower TP or free the pinned sharding", degrees.tp),
            });
            return Ok(());
        }
        let need = self.resident(&degrees, &sharding.strategies);
        let capacity = self.system.memory.0.capacity.map_or(f64::INFINITY, |c| c.0);
        if need.total() > capacity {
            reasons.push(self.dram_short(&degrees, need.total(), capacity));
            return Ok(());
        }
        let counts = match self.request.tiles {
            Some(tiles) => vec![tiles],
            None => tile_counts(self.workload, &self.system.model),
        };
        let mut tried: Vec<Instance> = Vec::new();
        let modes: &[bool] = if instance::may_keep_weights(self.system) { &[true, false] } else { &[false] };
        for (tiles, weights_on_chip) in counts.into_iter().flat_map(|t| modes.iter().map(move |m| (t, *m))) {
            let layout = (tiles, weights_on_chip);
            let instance = match self.instance(&degrees, &sharding.strategies, layout, capacity - need.total()) {
                Ok(instance) => instance,
                // Streaming the weights needs less SRAM; its own turn says what is short.
                Err(_) if weights_on_chip => continue,
                Err(short) => {
                    reasons.push(self.sram_short(&degrees, short, tiles));
                    continue;
                }
            };
            if tried.iter().any(|other| dominates(other, &instance)) {
                continue;
            }
            let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.iteration_s);
            let bound = self.iteration(&degrees, &sharding.strategies, instance.lower_bound()).total_s();
            if bound >= incumbent * (1.0 - TIE) {
                tried.push(instance);
                continue;
            }
            *tally.solved += 1;
            let Some((layer_s, assignment, proven)) = self.solve_fusion(&instance, ideals)? else {
                if weights_on_chip {
                    continue;
                }
                reasons.push(self.partition_short(&degrees, &instance, tiles, capacity));
                continue;
            };
            let iteration_s = self.iteration(&degrees, &sharding.strategies, layer_s).total_s();
            if !proven {
                *tally.unproven = tally.unproven.min(bound);
            }
            if iteration_s < incumbent * (1.0 - TIE) {
                *best = Some(Best {
                    degrees: degrees.clone(),
                    sharding: sharding.clone(),
                    tiles,
                    weights_on_chip,
                    instance: instance.clone(),
                    assignment,
                    layer_s,
                    proven,
                    iteration_s,
                });
            }
            tried.push(instance);
        }
        Ok(())
    }

    /// The best partitions of an instance: objective, assignment, and whether they are proven best.
    fn solve_fusion(
        &self,
        instance: &Instance,
        ideals: &mut Option<Ideals>,
    ) -> Result<Option<(f64, Vec<usize>, bool)>, MapError> {
        if instance.kernel_by_kernel {
            let alone: Vec<usize> = (0..instance.kernels.len()).collect();
            return Ok(instance.evaluate(&alone).map(|(objective, _)| (objective, alone, true)));
        }
        let n = instance.kernels.len();
        if n > 128 {
            return Ok(exact::by_order(instance).map(|path| (path.objective, path.assignment, false)));
        }
        let found = match ideals {
            Some(found) => found,
            None => {
                let Some(found) = Ideals::of(instance, MAX_IDEALS) else { return Ok(None) };
                ideals.insert(found)
            }
        };
        Ok(exact::solve(instance, found).map(|path| (path.objective, path.assignment, path.proven)))
    }

    /// The winner's bound on the layer's seconds: closed form, shortest path, or the MILP.
    fn certify(&self, best: &mut Best) -> Result<(f64, Proof, Option<SolveRecord>), MapError> {
        let closed = best.instance.lower_bound();
        if best.instance.kernel_by_kernel || best.layer_s <= closed * (1.0 + TIE) {
            return Ok((best.layer_s.min(closed.max(best.layer_s * (1.0 - TIE))), Proof::ClosedForm, None));
        }
        if self.request.engine == Engine::Exact || (self.request.engine == Engine::Auto && best.proven) {
            let bound = if best.proven { best.layer_s } else { closed };
            let proof = if best.proven { Proof::ShortestPath } else { Proof::ClosedForm };
            return Ok((bound, proof, None));
        }
        // A proven plan's number of partitions is the best one: the MILP need not have more.
        let spare = if best.proven { 0 } else { self.spare_partitions() };
        let (mut record, assignment) = self.solve_milp(&best.instance, &best.assignment, spare)?;
        if record.status == Status::Infeasible {
            return Err(MapError::Disagreement { what: "shortest path and MILP (infeasible)".into(), one: best.layer_s, other: f64::INFINITY });
        }
        let tolerance = 1e-6;
        if let Some(assignment) = assignment {
            if let Some((objective, _)) = best.instance.evaluate(&assignment) {
                if best.proven && objective < best.layer_s * (1.0 - tolerance) {
                    return Err(MapError::Disagreement { what: "shortest path and MILP plan".into(), one: best.layer_s, other: objective });
                }
                if objective < best.layer_s * (1.0 - TIE) {
                    best.layer_s = objective;
                    best.assignment = assignment;
                }
            }
        }
        record.objective = record.objective.min(best.layer_s);
        if best.proven && record.bound > best.layer_s * (1.0 + tolerance) {
            return Err(MapError::Disagreement { what: "shortest path and MILP bound".into(), one: best.layer_s, other: record.bound });
        }
        let closed_by_milp = relative_gap(best.layer_s, record.bound) <= self.request.limits.gap.max(TIE);
        Ok(match (closed_by_milp, best.proven) {
            (true, _) => (record.bound.min(best.layer_s), Proof::Milp, Some(record)),
            (false, true) => (best.layer_s, Proof::ShortestPath, Some(record)),
            (false, false) => (record.bound.max(closed), Proof::Milp, Some(record)),
        })
    }

    /// Solves the fusion MILP of an instance from a plan; the two passes by themselves where nothing but crossing tensors
    /// joins them (see [`Instance::phase`]). Gives the record, in seconds, and the assignment found.
    fn solve_milp(
        &self,
        instance: &Instance,
        start: &[usize],
        spare: usize,
    ) -> Result<(SolveRecord, Option<Vec<usize>>), MapError> {
        let joined = instance.pins.iter().any(Option::is_some) || instance.max_partitions.is_some();
        if !instance.separate_phases || joined {
            let counts = PartitionCounts::of(instance, start, spare);
            let model = fusion::build(instance, counts);
            let point = model.point(instance, start, counts);
            let solved = model.solve(&self.request.limits, point.as_deref())?;
            return Ok((solved.record, solved.values.map(|values| model.assignment(&values))));
        }
        let mut total: Option<SolveRecord> = None;
        let mut assignment = vec![0; instance.kernels.len()];
        let mut found = true;
        let mut first = 0;
        for backward in [false, true] {
            let (part, kernels) = instance.phase(backward);
            let offset = kernels.iter().map(|k| start[*k]).min().unwrap_or(0);
            let part_start: Vec<usize> = kernels.iter().map(|k| start[*k] - offset).collect();
            let (record, part_assignment) = self.solve_milp(&part, &part_start, spare)?;
            found &= part_assignment.is_some();
            let part_assignment = part_assignment.unwrap_or(part_start);
            for (k, p) in kernels.iter().zip(&part_assignment) {
                assignment[*k] = first + p;
            }
            first += part_assignment.iter().max().map_or(0, |p| p + 1);
            total = Some(match total {
                None => record,
                Some(before) => before.and(&record),
            });
        }
        let record = total.ok_or_else(|| MapError::Request("a workload without kernels".into()))?;
        Ok((record, found.then_some(assignment)))
    }

    /// Partitions that the MILP may use beyond those of the plan it starts from, in each phase.
    fn spare_partitions(&self) -> usize {
        let pinned = self.pins_partition.iter().any(Option::is_some);
        if self.request.max_partitions.is_some() || pinned { 0 } else { 1 }
    }

    /// Lowers the tile count to the smallest at which the plan costs the same and still fits.
    fn smallest_tiles(&self, best: &mut Best) {
        if self.request.tiles.is_some() {
            return;
        }
        let mut counts = tile_counts(self.workload, &self.system.model);
        counts.reverse();
        let limit = best.instance.live_limit;
        for tiles in counts.into_iter().take_while(|t| *t < best.tiles) {
            let Ok(instance) = self.instance(&best.degrees, &best.sharding.strategies, (tiles, best.weights_on_chip), limit) else { continue };
            if !dominates(&best.instance, &instance) || !same_costs(&best.instance, &instance) {
                continue;
            }
            if instance.evaluate(&best.assignment).is_some_and(|(o, _)| o <= best.layer_s * (1.0 + TIE)) {
                best.tiles = tiles;
                best.instance = instance;
                return;
            }
        }
    }

    fn instance(
        &self,
        degrees: &Degrees,
        sharding: &[Strategy],
        (tiles, weights_on_chip): (u64, bool),
        live_limit: f64,
    ) -> Result<Instance, SramShort> {
        let choice = Choice { degrees, sharding, tiles, weights_on_chip };
        let mut built = instance::build(self.workload, self.system, choice, live_limit)?;
        built.pins = self.pins_partition.clone();
        built.max_partitions = self.request.max_partitions;
        Ok(built)
    }

    fn resident(&self, degrees: &Degrees, sharding: &[Strategy]) -> DramNeed {
        let layers = self.workload.repeat.div_ceil(degrees.pp);
        let b = microbatches(self.workload, &self.system.model, degrees.dp).max(1.0);
        let in_flight = (degrees.pp as f64).min(b) as u64;
        resident(self.workload, &self.system.model, sharding, degrees.tp, layers, in_flight)
    }

    fn iteration(&self, degrees: &Degrees, sharding: &[Strategy], layer_s: f64) -> Iteration {
        let word = self.workload.word_bytes;
        let per_layer = |f: fn(&crate::workload::Kernel, Strategy, u64, f64) -> f64| -> f64 {
            self.workload.kernels.iter().zip(sharding).map(|(k, s)| f(k, *s, degrees.tp, word)).sum()
        };
        let owned: f64 = self
            .workload
            .kernels
            .iter()
            .zip(sharding)
            .filter(|(k, _)| k.owns_weight())
            .map(|(k, s)| weight_bytes(k, *s, degrees.tp, word))
            .sum();
        let stage = Stage {
            layer_s,
            pp: degrees.pp,
            dp: degrees.dp,
            carried_bytes: self.carried_bytes(degrees, sharding),
            layer_weight_bytes: owned,
            layer_gradient_bytes: per_layer(gradient_bytes),
            pp_group: &degrees.pp_group,
            dp_group: &degrees.dp_group,
        };
        iteration(self.workload, self.system, &stage)
    }

    /// Bytes of one sample that a chip hands to the next stage: carried tensors in the layout their readers want.
    fn carried_bytes(&self, degrees: &Degrees, sharding: &[Strategy]) -> f64 {
        if self.system.model.pipeline != Pipeline::OneForwardOneBackward {
            return self.workload.carried_bytes();
        }
        self.workload
            .tensors
            .iter()
            .filter(|t| t.carried_from.is_some())
            .map(|tensor| {
                let widest = tensor.consumers.iter().map(|u| {
                    let layout: Layout = required(&self.workload.kernels[u.kernel], u.slot, sharding[u.kernel], self.system.model.layouts);
                    tensor_bytes(tensor, layout, degrees.tp, 1, self.workload.word_bytes).0
                });
                widest.fold(0.0, f64::max)
            })
            .sum()
    }

    /// No mapping of an assignment is faster: all arithmetic perfectly split, all weights streamed once, no network.
    fn assignment_bound(&self, degrees: &Degrees) -> f64 {
        let chip = &self.system.chip.0;
        let options = &self.system.model;
        let t = degrees.tp as f64;
        let u = constant_efficiency(chip).map_or(1.0, |u| options.precision.round(u));
        let samples = samples_per_pass(self.workload, options);
        let arithmetic: f64 = self
            .workload
            .kernels
            .iter()
            .map(|k| k.flop() * samples / (t * u * peak(chip, k, options)))
            .sum();
        let streamed = options.weight_traffic == crate::system::options::WeightTraffic::Streamed;
        let weights: f64 = self.workload.kernels.iter().map(|k| k.weight_elements() * self.workload.word_bytes / t).sum();
        let streamed = streamed && !instance::may_keep_weights(self.system);
        let dram = if streamed { weights / self.system.memory.0.bandwidth.0 } else { 0.0 };
        let layer = instance::combine(self.system.overlap(), arithmetic, dram, 0.0);
        let every: Vec<Strategy> = vec![Strategy::Outer; self.workload.kernels.len()];
        let mut bound = self.iteration(degrees, &every, layer);
        // The transfers and reductions of an unknown sharding are not part of a bound.
        bound.p2p_s = 0.0;
        bound.gradient_s = 0.0;
        bound.optimizer_s = 0.0;
        bound.total_s() * (1.0 - TIE)
    }

    fn degrees_infeasible(&self, d: &Degrees) -> Option<Infeasible> {
        let w = self.workload;
        if d.pp > w.repeat {
            return Some(Infeasible {
                resource: "layers".into(),
                needed: d.pp as f64,
                available: w.repeat as f64,
                unit: "layers".into(),
                remedy: format!("PP = {} needs as many layers; use PP of at most {}", d.pp, w.repeat),
            });
        }
        if w.micro_batch * d.dp > w.global_batch {
            return Some(Infeasible {
                resource: "batch".into(),
                needed: (w.micro_batch * d.dp) as f64,
                available: w.global_batch as f64,
                unit: "samples".into(),
                remedy: format!(
                    "DP = {} replicas of microbatches of {} need a larger batch; use DP of at most {}, or a global_batch of {}",
                    d.dp, w.micro_batch, w.global_batch / w.micro_batch, w.micro_batch * d.dp
                ),
            });
        }
        if let Some((kernel, outer)) = sharding::uneven_outer(w, d.tp) {
            let divisors = super::degrees::divisors(outer);
            let near: Vec<String> = divisors.iter().rev().filter(|x| **x < d.tp).take(3).map(u64::to_string).collect();
            return Some(Infeasible {
                resource: "heads".into(),
                needed: d.tp as f64,
                available: outer as f64,
                unit: "heads".into(),
                remedy: format!("{outer} heads ({kernel}) are not divisible by TP = {}; use a divisor such as {}", d.tp, near.join(", ")),
            });
        }
        if !sharding::splittable(w, d.tp) {
            return Some(Infeasible {
                resource: "sharding".into(),
                needed: d.tp as f64,
                available: 1.0,
                unit: "chips".into(),
                remedy: format!("some kernel has no axis of {} parts; lower TP", d.tp),
            });
        }
        None
    }

    fn no_such_degrees(&self, all: &[Degrees]) -> String {
        let w = &self.request.wanted;
        let asked: Vec<String> = [("TP", w.tp), ("PP", w.pp), ("DP", w.dp)]
            .iter()
            .filter_map(|(name, value)| value.map(|v| format!("{name} = {v}")))
            .collect();
        let chips = self.system.chip_count();
        let product = [w.tp, w.pp, w.dp].iter().try_fold(1u64, |p, d| d.map(|d| p.saturating_mul(d)));
        if let Some(product) = product.filter(|p| *p != chips) {
            return format!("{}: the product of the degrees is {product}, but the system has {chips} chips", asked.join(", "));
        }
        let mut possible: Vec<(u64, u64, u64)> = all.iter().map(|d| (d.tp, d.pp, d.dp)).collect();
        possible.sort_unstable();
        possible.dedup();
        let shown: Vec<String> = possible.iter().take(12).map(|(t, p, d)| format!("{t}x{p}x{d}")).collect();
        let more = if possible.len() > 12 { format!(" and {} more", possible.len() - 12) } else { String::new() };
        format!(
            "{}: no assignment of the network's dimensions gives these degrees; possible TP x PP x DP: {}{more}{}",
            asked.join(", "),
            shown.join(", "),
            if w.split { "" } else { "; --split-dimensions divides switched and fully connected dimensions" }
        )
    }

    fn dram_short(&self, d: &Degrees, needed: f64, capacity: f64) -> Infeasible {
        let factor = (needed / capacity).ceil().max(2.0);
        let split = if self.request.wanted.split {
            ""
        } else {
            "; --split-dimensions allows more degrees on switched and fully connected dimensions"
        };
        Infeasible {
            resource: "dram".into(),
            needed,
            available: capacity,
            unit: "bytes".into(),
            remedy: format!(
                "at TP = {}, PP = {}, DP = {}, the best fit of the degrees tried: use a memory of at least {}, or about {factor} times as many chips in TP x PP (PP is at most {} layers){split}",
                d.tp, d.pp, d.dp, crate::units::Bytes(needed), self.workload.repeat
            ),
        }
    }

    fn sram_short(&self, d: &Degrees, short: SramShort, tiles: u64) -> Infeasible {
        Infeasible {
            resource: "sram".into(),
            needed: short.needed,
            available: self.system.chip.0.sram.0,
            unit: "bytes".into(),
            remedy: format!(
                "kernel {} does not fit alone at TP = {} with {tiles} tiles, even one row of its weight at a time: use more tiles, more TP, or a larger SRAM",
                self.workload.kernels[short.kernel].name, d.tp
            ),
        }
    }

    /// Every kernel fits alone, yet no partition does: DRAM for waiting tensors, cores, the number of partitions or pins.
    fn partition_short(&self, d: &Degrees, instance: &Instance, tiles: u64, capacity: f64) -> Infeasible {
        let live: f64 = instance.tensors.iter().map(|t| t.live_bytes).sum();
        if live > instance.live_limit {
            return self.dram_short(d, capacity - instance.live_limit + live, capacity);
        }
        let pinned = self.pins_partition.iter().any(Option::is_some) || instance.max_partitions.is_some();
        Infeasible {
            resource: if pinned { "partitions".into() } else { "sram".into() },
            needed: instance.kernels.iter().map(|k| k.resident_bytes).sum(),
            available: instance.sram_bytes,
            unit: "bytes".into(),
            remedy: format!(
                "at TP = {}, {tiles} tiles: no partitions fit {}; use more tiles, more TP or a larger SRAM{}",
                d.tp,
                if pinned { "as pinned" } else { "the chip" },
                if pinned { ", or free the pins" } else { "" }
            ),
        }
    }

    /// The reason that is least far from being mended.
    fn nearest_reason(&self, reasons: Vec<Infeasible>) -> Infeasible {
        let shortage = |r: &Infeasible| if r.available > 0.0 { r.needed / r.available } else { f64::INFINITY };
        // A memory that is too small says more than degrees that do not suit the workload.
        let rank = |r: &Infeasible| match r.resource.as_str() {
            "dram" => 0,
            "sram" | "partitions" => 1,
            _ => 2,
        };
        reasons
            .into_iter()
            .min_by(|a, b| rank(a).cmp(&rank(b)).then(shortage(a).total_cmp(&shortage(b))))
            .unwrap_or(Infeasible {
                resource: "degrees".into(),
                needed: 1.0,
                available: 0.0,
                unit: "assignments".into(),
                remedy: "free the degrees".into(),
            })
    }

    fn figures(&self, best: &Best, costs: &[PartitionCost]) -> Figures {
        let w = self.workload;
        let samples = samples_per_pass(w, &self.system.model);
        let partitions: Vec<PartitionFigures> = costs
            .iter()
            .enumerate()
            .map(|(p, cost)| {
                let members: Vec<usize> = (0..w.kernels.len()).filter(|k| best.assignment[*k] == p).collect();
                let flop = members
                    .iter()
                    .map(|k| {
                        let kernel = &w.kernels[*k];
                        let here = local(kernel, best.sharding.strategies[*k], best.degrees.tp, best.tiles);
                        tile_flop(kernel, &here, best.tiles) * best.tiles as f64 * samples
                    })
                    .sum();
                PartitionFigures {
                    kernels: members.iter().map(|k| w.kernels[*k].name.clone()).collect(),
                    compute_s: cost.compute_s,
                    dram_s: cost.dram_s,
                    network_s: cost.network_s,
                    overhead_s: cost.serial_s,
                    time_s: cost.time_s(best.instance.overlap),
                    sram_bytes: cost.sram_bytes,
                    live_bytes: cost.live_bytes,
                    dram_bytes: cost.dram_bytes,
                    flop,
                }
            })
            .collect();
        let layer_s = partitions.iter().map(|p| p.time_s).sum();
        let iteration = self.iteration(&best.degrees, &best.sharding.strategies, layer_s);
        let mut memory = self.resident(&best.degrees, &best.sharding.strategies);
        memory.live = partitions.iter().map(|p| p.live_bytes).fold(0.0, f64::max);
        let flop = w.flop_per_iteration();
        Figures {
            tp: best.degrees.tp,
            pp: best.degrees.pp,
            dp: best.degrees.dp,
            partitions,
            layer_s,
            iteration,
            memory,
            dram_capacity: self.system.memory.0.capacity.map(|c| c.0),
            flop_per_iteration: flop,
            utilization: flop / (iteration.total_s() * system_peak(self.system)),
            cost: price::cost(self.system),
            power: price::power(self.system),
        }
    }
}

/// Running totals of a search.
struct Tally<'t> {
    solved: &'t mut usize,
    nodes: &'t mut u64,
    reproducible: &'t mut bool,
    /// Least bound of fusion problems whose answer is not proven.
    unproven: &'t mut f64,
}

/// Relative difference under which two times are one.
const TIE: f64 = 1e-9;

/// `bound`, or `objective` where they differ by rounding alone.
fn snap(bound: f64, objective: f64) -> f64 {
    if (objective - bound).abs() <= 4.0 * TIE * objective.abs() { objective } else { bound }
}

/// Whether `a` costs no more than `b` in every term and needs no more SRAM: then its optimum is no worse.
fn dominates(a: &Instance, b: &Instance) -> bool {
    let no_more = |x: f64, y: f64| x <= y * (1.0 + 1e-12);
    no_more(a.base_sram_bytes, b.base_sram_bytes)
        && a.kernels.iter().zip(&b.kernels).all(|(x, y)| {
        let compute = match (&x.compute, &y.compute) {
            (Compute::Seconds(x), Compute::Seconds(y)) => no_more(*x, *y),
            _ => false,
        };
        compute
            && no_more(x.network_s, y.network_s)
            && no_more(x.serial_s, y.serial_s)
            && no_more(x.resident_bytes, y.resident_bytes)
            && no_more(x.dram_bytes, y.dram_bytes)
            && x.pieces <= y.pieces
    }) && a.tensors.iter().zip(&b.tensors).all(|(x, y)| {
        no_more(x.store_bytes, y.store_bytes)
            && no_more(x.store_buffer, y.store_buffer)
            && no_more(x.live_bytes, y.live_bytes)
            && x.uses.iter().zip(&y.uses).all(|(x, y)| {
                no_more(x.load_bytes, y.load_bytes)
                    && no_more(x.load_buffer, y.load_buffer)
                    && no_more(x.onchip_buffer, y.onchip_buffer)
            })
    })
}

/// Whether two instances differ in SRAM alone.
fn same_costs(a: &Instance, b: &Instance) -> bool {
    let same = |x: f64, y: f64| (x - y).abs() <= 1e-12 * x.abs().max(y.abs());
    a.kernels.iter().zip(&b.kernels).all(|(x, y)| {
        same(x.dram_bytes, y.dram_bytes) && same(x.network_s, y.network_s) && x.compute == y.compute && x.pieces == y.pieces
    }) && a.tensors.iter().zip(&b.tensors).all(|(x, y)| same(x.store_bytes, y.store_bytes))
}

/// Names of the solvers and engines that `--solver` takes.
pub fn engine_from_word(word: &str) -> Option<(Engine, Solver)> {
    match word {
        "auto" => Some((Engine::Auto, Solver::Highs)),
        "exact" => Some((Engine::Exact, Solver::Highs)),
        other => Solver::from_word(other).map(|s| (Engine::Milp, s)),
    }
}
