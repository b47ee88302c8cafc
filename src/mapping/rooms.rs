//! Chips whose memory is their own SRAM: what partitions buffer and what the memory holds share it. A graph is mapped as if both had all of it first, which no division is better than. Where
//! that plan fits, it is the best; else the SRAM is divided, as that plan would need it and in halves of halves, and the best of these plans is the answer, with the first bound. Blocks of executions do so
//! by themselves (`free.rs`), where what a memory holds is known by stage.

use super::instance::CAPACITY_TOLERANCE;
use super::request::{Answer, LeftOpen, MapError, Record, Request};
use super::search::map_until;
use crate::check;
use crate::deadline::Deadline;
use crate::plan::{Plan, TOLERANCE};
use crate::solver::record::Status;
use crate::system::System;
use crate::workload::Workload;

/// Least part of the SRAM that partitions are given, in halvings.
const HALVINGS: i32 = 6;

/// The best mapping of a graph.
///
/// # Errors
/// As [`super::search::map`].
pub(super) fn best(
    workload: &Workload,
    system: &System,
    request: &Request,
    clock: Deadline,
) -> Result<Answer, MapError> {
    let sram = system.chip.0.sram.0;
    let first = map_until(workload, &system.divided(sram, sram), request, clock.part(0.5))?;
    let Answer::Mapped(mut plan, mut record) = first else { return Ok(first) };
    let held = plan.figures.memory.total();
    let filled = plan.figures.partitions.iter().map(|p| p.sram_bytes).fold(0.0, f64::max);
    record.shares_sram = true;
    if held + filled <= sram * (1.0 + CAPACITY_TOLERANCE) {
        plan.system = system.clone();
        return Ok(Answer::Mapped(plan, record));
    }
    let halves = (1..=HALVINGS).map(|times| sram * 0.5_f64.powi(times));
    let rooms = std::iter::once(sram - held).filter(|room| *room > 0.0).chain(halves);
    let mut best: Option<(Box<Plan>, Box<Record>)> = None;
    for room in rooms {
        let divided = system.divided(room, sram - room);
        match map_until(workload, &divided, request, clock) {
            Ok(Answer::Mapped(plan, own)) => {
                (record.nodes, record.solved) = (record.nodes + own.nodes, record.solved + own.solved);
                record.joint_nodes += own.joint_nodes;
                record.reproducible &= own.reproducible;
                if best.as_ref().is_none_or(|(_, known)| own.value < known.value) {
                    best = Some((plan, own));
                }
            }
            Ok(Answer::Infeasible(_)) | Err(MapError::NoPlanYet { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let Some((mut plan, own)) = best else {
        return Err(MapError::NoPlanYet { left: LeftOpen::Relaxation, instead: None });
    };
    // What is held leaves as much as it had, or more, and then larger pieces of weights.
    plan.figures = check::derive(workload, system, &plan.decisions)
        .map_err(|broken| MapError::Request(format!("internal error, please report it: {}", broken.join("; "))))?;
    plan.system = system.clone();
    let value = request.objective_of(&plan.figures);
    let bound = record.bound.min(value);
    let is_open = value - bound > value * request.limits.gap.max(TOLERANCE);
    let left = record.left.or(is_open.then_some(LeftOpen::Relaxation));
    let status = if left.is_some() { Status::NodeLimit } else { Status::Optimal };
    let (nodes, solved, joint_nodes) = (record.nodes, record.solved, record.joint_nodes);
    let reproducible = record.reproducible;
    let record =
        Record { value, bound, left, status, nodes, solved, joint_nodes, reproducible, shares_sram: true, ..*own };
    Ok(Answer::Mapped(plan, Box::new(record)))
}
