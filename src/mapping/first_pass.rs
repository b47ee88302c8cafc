//! The first pass of an assignment: its sharding problem, solved by its own objective.

use super::degrees::Degrees;
use super::record::{Infeasible, SolveRecord, Status};
use super::request::{Engine, LeftOpen, MapError};
use super::search::{Candidate, Found, Search};
use super::sharding::{self, Problem, Sharding};
use super::solver::Limits;
use crate::model::collective::GroupDimension;
use std::sync::Arc;

/// An assignment whose first pass is done.
pub(super) struct Tried {
    pub(super) candidate: Candidate,
    pub(super) pass: Arc<Pass>,
}

/// A first pass: the sharding problem of an assignment, and its best sharding.
pub(super) struct Pass {
    pub(super) problem: Problem,
    pub(super) sharding: Sharding,
}

/// All that the seconds and bytes of a group's collectives depend on along a dimension.
fn price_of(d: &GroupDimension) -> [u64; 7] {
    let GroupDimension { topology, size, bandwidth, ring_links, open, apart, latency, byte_j: _, wire: _, sums: _ } =
        *d;
    [topology as u64, size, bandwidth.to_bits(), ring_links, u64::from(open), apart, latency.to_bits()]
}

impl Search<'_> {
    /// The first pass of an assignment: its sharding, by the sharding's own objective; `None` where there is none.
    pub(super) fn first_pass(&self, candidate: Candidate, found: &mut Found) -> Result<Option<Tried>, MapError> {
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
                    mends: Vec::new(),
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
            found.left = Some(match sharding.record.status {
                Status::TimeLimit => LeftOpen::out_of_time(),
                _ => LeftOpen::Nodes,
            });
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
                mends: Vec::new(),
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
            key.extend(price_of(d));
        }
        Some(key)
    }

    /// The sharding of an assignment: by elimination, and by the MILP where a solver is named; then both must agree.
    fn solve_sharding(&self, problem: &sharding::Problem) -> Result<Sharding, MapError> {
        // At most half of what is left of the seconds: a sharding is no plan yet.
        let limits = self.limits();
        let half = Limits { seconds: limits.seconds.map(|seconds| 0.5 * seconds), ..limits };
        let exact = sharding::solve_exactly(problem, &half)?;
        let choice = problem.open.iter().any(|open| open.len() > 1);
        if choice && (self.request.engine == Engine::Milp || exact.record.nodes != Some(0)) {
            self.by_solver.set(true);
        }
        if self.request.engine != Engine::Milp {
            return Ok(exact);
        }
        let milp = sharding::solve_problem(problem, &half)?;
        let (one, other) = (exact.record.objective, milp.record.objective);
        let differ = match milp.record.status {
            Status::Optimal if one.is_infinite() => true,
            Status::Optimal => (one - other).abs() > 1e-6_f64.max(self.request.limits.gap) * one.abs().max(other.abs()),
            Status::Infeasible => one.is_finite(),
            // Stopped by a limit: what it has found is no better than the best.
            Status::NodeLimit | Status::TimeLimit | Status::Interrupted | Status::Blind => {
                milp.record.bound > one + 1e-6 * one.abs()
            }
        };
        if differ {
            return Err(MapError::Disagreement { what: "elimination and MILP of the sharding".into(), one, other });
        }
        Ok(Sharding { record: SolveRecord { nodes: milp.record.nodes, ..exact.record }, ..exact })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Topology;

    /// Four chips that are a ring, four of a ring of eight, every second of them, and a ring with a link to each neighbour have prices of their own.
    #[test]
    fn groups_of_other_prices_are_told_apart() {
        let ring = |ring_links, apart, whole| {
            let d = GroupDimension {
                topology: Topology::Ring,
                size: whole,
                bandwidth: 1e9,
                ring_links,
                open: false,
                apart: 1,
                latency: 0.0,
                byte_j: 0.0,
                wire: 1e9,
                sums: None,
            };
            price_of(&GroupDimension { bandwidth: 1e9, ..d.part(4, apart, whole) })
        };
        let all = [ring(1, 1, 4), ring(1, 1, 8), ring(1, 2, 8), ring(1, 2, 16), ring(2, 1, 4), ring(2, 1, 8)];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
