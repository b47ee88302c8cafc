//! The proof of the winner: closed form, shortest path, or MILP; engines that must agree.

use super::fusion::{self, PartitionCounts};
use super::ideals::{Ideals, MAX_IDEALS};
use super::instance::Instance;
use super::partitions::Fused;
use super::record::{SolveRecord, Status, relative_gap};
use super::request::{Engine, MapError, Proof};
use super::search::{Best, Search, TIE};
use super::solver::{Limits, SolverError};

/// Largest graph whose MILP gives every kernel a partition of its own: its size grows with the square.
const MOST_KERNELS_ALONE: usize = 24;

/// What proves a bound, in words.
fn word(proof: Proof) -> &'static str {
    match proof {
        Proof::ClosedForm => "the closed form",
        Proof::ShortestPath => "a shortest path over all ideals",
        Proof::Relaxation => "a relaxation (covering or Lagrangian)",
        Proof::Milp => "the MILP",
    }
}

impl Search<'_> {
    /// The bound of the winner's objective, what it follows from, and the record of the MILP if one ran.
    pub(super) fn certify(&self, best: &mut Best) -> Result<(f64, Proof, Option<SolveRecord>), MapError> {
        if self.workload.is_chain() {
            return self.certify_chain(best);
        }
        let mut fused = Fused {
            layer: best.layer,
            assignment: std::mem::take(&mut best.assignment),
            proven: best.proven,
            bound: best.bound,
            relaxed: best.relaxed,
        };
        let (bound, proof, record) = self.certify_part(&best.instance, &mut fused)?;
        (best.layer, best.assignment) = (fused.layer, fused.assignment);
        let own = self.total((&best.degrees, best.longest), &best.sharding.strategies, &best.instance.goal, bound);
        Ok((own, proof, record))
    }

    /// A bound on the sum over the partitions of a fusion problem (seconds of a layer, where time is minimised): closed form, shortest path, or the MILP.
    pub(super) fn certify_part(
        &self,
        instance: &Instance,
        best: &mut Fused,
    ) -> Result<(f64, Proof, Option<SolveRecord>), MapError> {
        // Of a wide graph the relaxation may say more than the closed form.
        let least = instance.least_value();
        let closed = if best.proven { least } else { least.max(best.bound.min(best.layer)) };
        let short_of_path = if closed > least * (1.0 + TIE) { Proof::Relaxation } else { Proof::ClosedForm };
        if instance.kernel_by_kernel || best.layer <= closed * (1.0 + TIE) {
            return Ok((best.layer.min(closed.max(best.layer * (1.0 - TIE))), Proof::ClosedForm, None));
        }
        let enough = best.proven;
        let no_milp = self.request.any || self.out_of_time();
        if self.request.engine == Engine::Exact || no_milp || (self.request.engine == Engine::Auto && enough) {
            let bound = if best.proven { best.layer } else { closed };
            let proof = match best.proven {
                true if best.relaxed => Proof::Relaxation,
                true => Proof::ShortestPath,
                false => short_of_path,
            };
            return Ok((bound, proof, None));
        }
        // A proven plan's number of partitions is the best one: the MILP need not have more. Otherwise its bound holds
        // for any mapping only if every kernel could have a partition of its own.
        let kernels = instance.kernels.len();
        let free = self.spare_partitions() > 0;
        let spare = match best.proven {
            true => 0,
            false if free && kernels <= MOST_KERNELS_ALONE => kernels,
            false => self.spare_partitions(),
        };
        let holds_for_all = best.proven || spare >= kernels;
        if self.request.engine == Engine::Auto && !holds_for_all && kernels > MOST_KERNELS_ALONE {
            // Many minutes for a bound of no use; a solver that is named is asked all the same.
            return Ok((closed, short_of_path, None));
        }
        if self.request.engine == Engine::Auto && !self.request.limits.solver.is_built() {
            // What is open stays open; `engine_taken` says why.
            return Ok((closed, short_of_path, None));
        }
        let (mut record, assignment) = self.solve_milp(instance, &best.assignment, spare)?;
        if record.status == Status::Infeasible {
            return Err(MapError::Disagreement {
                what: "shortest path and MILP (infeasible)".into(),
                one: best.layer,
                other: f64::INFINITY,
            });
        }
        let tolerance = 1e-6;
        if let Some(assignment) = assignment
            && let Some((objective, _)) = instance.evaluate(&assignment)
        {
            if best.proven && objective < best.layer * (1.0 - tolerance) {
                return Err(MapError::Disagreement {
                    what: "shortest path and MILP plan".into(),
                    one: best.layer,
                    other: objective,
                });
            }
            if objective < best.layer * (1.0 - TIE) {
                best.layer = objective;
                best.assignment = assignment;
            }
        }
        record.objective = record.objective.min(best.layer);
        if best.proven && record.bound > best.layer * (1.0 + tolerance) {
            return Err(MapError::Disagreement {
                what: "shortest path and MILP bound".into(),
                one: best.layer,
                other: record.bound,
            });
        }
        if !holds_for_all {
            return Ok((closed, short_of_path, Some(record)));
        }
        let closed_by_milp = relative_gap(best.layer, record.bound) <= self.request.limits.gap.max(TIE);
        Ok(match (closed_by_milp, best.proven) {
            (true, _) => (record.bound.min(best.layer), Proof::Milp, Some(record)),
            (false, true) => (best.layer, Proof::ShortestPath, Some(record)),
            (false, false) => (record.bound.max(closed), Proof::Milp, Some(record)),
        })
    }

    /// Which engine solved the winner's fusion problem, and why that one.
    pub(super) fn engine_taken(&self, best: &Best, proof: Proof, by_milp: bool, ideals: Option<&Ideals>) -> String {
        let n = best.instance.kernels.len();
        let solver = self.request.limits.solver.word();
        let path = match ideals.filter(|_| n <= 128) {
            _ if best.instance.kernel_by_kernel => "closed form: the chip runs kernel by kernel".to_string(),
            _ if !best.parts.is_empty() && best.proven => {
                format!("exact: {n} kernels in {} blocks, the ideals of each", best.parts.len())
            }
            Some(found) if found.complete => format!("exact: all {} ideals of {n} kernels", found.sets.len()),
            _ if best.proven && !best.relaxed => format!("exact: orders of {n} kernels, proven by {}", word(proof)),
            _ => format!(
                "wide: {n} kernels have more than {MAX_IDEALS} ideals; orders cut and improved, bound by {}",
                word(proof)
            ),
        };
        match self.request.engine {
            Engine::Milp if by_milp => format!("{path}; and {solver}, which was named"),
            Engine::Milp => format!("{path}; {solver}, which was named, had no partitions to decide"),
            Engine::Exact => format!("{path}; no MILP, as asked"),
            Engine::Auto if by_milp => format!("{path}; and {solver}, as that leaves a gap"),
            Engine::Auto if proof == Proof::ClosedForm && best.proven => path,
            Engine::Auto if best.proven => format!("{path}; no MILP, as that is a proof"),
            Engine::Auto if !self.request.limits.solver.is_built() => {
                format!("{path}; no MILP, as this build has no engine for it")
            }
            Engine::Auto => format!("{path}; no MILP, as it is beyond {MOST_KERNELS_ALONE} kernels"),
        }
    }

    /// Solves the fusion MILP of an instance from a plan; the two passes by themselves where nothing but crossing tensors
    /// joins them (see [`Instance::phase`]). Gives the record, in seconds (or what the goal counts), and the assignment found.
    pub(super) fn solve_milp(
        &self,
        instance: &Instance,
        start: &[usize],
        spare: usize,
    ) -> Result<(SolveRecord, Option<Vec<usize>>), MapError> {
        self.solve_milp_with(instance, start, spare, &self.request.limits)
    }

    /// [`Search::solve_milp`] with a given solver.
    pub(super) fn solve_milp_with(
        &self,
        instance: &Instance,
        start: &[usize],
        spare: usize,
        limits: &Limits,
    ) -> Result<(SolveRecord, Option<Vec<usize>>), MapError> {
        let joined = instance.pins.iter().any(Option::is_some) || instance.max_partitions.is_some();
        if !instance.separate_phases || joined {
            let counts = PartitionCounts::of(instance, start, spare);
            let model = fusion::build(instance, counts);
            let point = model.point(instance, start, counts);
            self.by_solver.set(true);
            let solved = model.solve(&self.left(limits), point.as_deref())?;
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
            let (record, part_assignment) = self.solve_milp_with(&part, &part_start, spare, limits)?;
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

    /// A plan found by the MILP alone, where pins or a bound on the partitions rule out the one order that the shortest
    /// path knows of a wide graph.
    pub(super) fn find_by_milp(&self, instance: &Instance) -> Result<Option<(f64, Vec<usize>, bool)>, MapError> {
        let n = instance.kernels.len();
        if instance.separate_phases || n > MOST_KERNELS_ALONE {
            return Err(self.not_found(n));
        }
        if !self.request.limits.solver.is_built() {
            return Err(SolverError::NeedsMilp("a graph that wide, with pins or a limit on the partitions,").into());
        }
        let most = instance.max_partitions.unwrap_or(n).min(n);
        let model = fusion::build(instance, PartitionCounts { forward: most, backward: 0 });
        self.by_solver.set(true);
        let solved = model.solve(&self.limits(), None)?;
        match solved.values.map(|values| model.assignment(&values)) {
            Some(assignment) => match instance.evaluate(&assignment) {
                Some((objective, _)) => {
                    let proven = solved.record.status == Status::Optimal;
                    Ok(Some((objective, assignment, proven)))
                }
                None => Err(self.not_found(n)),
            },
            None if solved.record.status == Status::Infeasible => Ok(None),
            None => Err(self.not_found(n)),
        }
    }

    /// The search ended without a plan and without a proof that there is none.
    pub(super) fn not_found(&self, kernels: usize) -> MapError {
        MapError::Request(format!(
            "no partitions were found for a graph of {kernels} kernels with pins or a limit on the partitions, which does \
             not prove that there are none: free the pins or raise --max-partitions"
        ))
    }

    /// Partitions that the MILP may use beyond those of the plan it starts from, in each phase.
    pub(super) fn spare_partitions(&self) -> usize {
        let pinned = self.pins_partition.iter().any(Option::is_some);
        if self.request.max_partitions.is_some() || pinned { 0 } else { 1 }
    }
}
