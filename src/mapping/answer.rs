//! The answer of a search: the winner's plan with its proof and its record.

use super::blocks;
use super::degrees::Degrees;
use super::fusion::{self, PartitionCounts};
use super::ideals::Ideals;
use super::record::{Status, relative_gap};
use super::request::{Answer, LeftOpen, MapError, Proof, Record, Request};
use super::search::{Best, Found, Search, TIE};
use crate::deadline::Deadline;
use crate::plan::{Decisions, Plan};
use crate::system::System;
use crate::workload::Workload;

impl Search<'_> {
    /// The winner's plan, with its proof.
    pub(super) fn answer(
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
        // What units wait for beside their partitions is in no figure of the plan.
        let value = if self.request.waits.is_empty() { self.request.objective_of(&figures) } else { best.objective };
        // Times within a billionth are one time: bounds that differ from the objective by rounding alone are the objective.
        let bound = snap(own.min(found.unproven), value);
        let gap = relative_gap(value, bound);
        let left = (gap > self.request.limits.gap.max(TIE)).then(|| {
            let of_fusion = fusion.as_ref().and_then(|f| match f.status {
                Status::TimeLimit => Some(LeftOpen::out_of_time()),
                Status::NodeLimit => Some(LeftOpen::Nodes),
                _ => None,
            });
            found.left.or(of_fusion).unwrap_or(LeftOpen::Relaxation)
        });
        let record = Record {
            status: left.map_or(Status::Optimal, LeftOpen::status),
            left,
            objective: self.request.objective,
            value,
            bound,
            economics: self.request.economics,
            proof,
            nodes: found.nodes,
            solve_s: self.clock.seconds(),
            solver: if self.by_solver.get() { self.request.limits.solver.word().into() } else { "exact".into() },
            engine: self.engine_taken(&best, proof, fusion.is_some(), ideals),
            seed: self.request.limits.seed,
            reproducible: found.reproducible,
            sharding: best.sharding.record.clone(),
            fusion,
            assignments: found.considered,
            solved: found.solved,
            covers_sharding: joint,
            joint_nodes: found.joint_nodes,
            as_graph: self.request.as_graph.is_some(),
            shares_sram: false,
            blocks_s: found.blocks_s,
        };
        let plan = Plan { workload: self.workload.clone(), system: self.system.clone(), decisions, figures };
        Ok(Answer::Mapped(Box::new(plan), Box::new(record)))
    }
}

/// `bound`, or `objective` where they differ by rounding alone.
fn snap(bound: f64, objective: f64) -> f64 {
    if (objective - bound).abs() <= 4.0 * TIE * objective.abs() { objective } else { bound }
}

/// Most coefficients of a MILP that is written: some 300 MB of text.
const MOST_COEFFICIENTS: u64 = 10_000_000;

/// The fusion MILP of a point's winner, for `--write-model`.
///
/// # Errors
/// As [`super::search::map`].
pub fn winner_model(
    workload: &Workload,
    system: &System,
    plan: &Plan,
    request: &Request,
) -> Result<fusion::FusionModel, MapError> {
    let degrees = Degrees::new(system, plan.decisions.uses.clone());
    let on_grid = workload.is_spread().then(|| workload.on_grid(degrees.grid_rows, degrees.grid_cols));
    let clock = Deadline::never();
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
    let used = plan.figures.partitions.len();
    let spare = request.max_partitions.map_or(search.spare_partitions(), |most| most.saturating_sub(used));
    let counts = PartitionCounts::of(&instance, &plan.decisions.partition, spare);
    let coefficients = counts.coefficients(&instance);
    if coefficients > MOST_COEFFICIENTS {
        return Err(MapError::Request(format!(
            "the MILP of {} kernels would have about {:.1e} coefficients, and a file is written of at most {:.0e}: limit \
             it by --max-partitions N, or take a smaller workload",
            instance.kernels.len(),
            coefficients as f64,
            MOST_COEFFICIENTS as f64
        )));
    }
    Ok(fusion::build(&instance, counts))
}
