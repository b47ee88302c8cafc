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

/// The least part of the SRAM that partitions are given, in halvings: of blocks and of graphs.
const OF_BLOCKS: i32 = 4;
const OF_GRAPHS: i32 = 6;

fn halved(sram: f64, times: i32) -> f64 {
    sram * 0.5_f64.powi(times)
}

/// The systems that blocks of executions are mapped on, those with most SRAM for partitions first: with all of it, and where the memory is on chip with parts.
pub(super) fn of_blocks(system: &System) -> Vec<System> {
    let last = if system.shares_sram() { OF_BLOCKS } else { 0 };
    let with = |times: i32| {
        let mut room = system.clone();
        room.chip.0.sram.0 = halved(system.chip.0.sram.0, times);
        room
    };
    (0..=last).map(with).collect()
}

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
    record.shares_sram = true;
    if held + plan.figures.sram_bytes() <= sram * (1.0 + CAPACITY_TOLERANCE) {
        plan.system = system.clone();
        return Ok(Answer::Mapped(plan, record));
    }
    let halves = (1..=OF_GRAPHS).map(|times| halved(sram, times));
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
    let left_open = if clock.is_over() { LeftOpen::out_of_time() } else { LeftOpen::Relaxation };
    let Some((mut plan, own)) = best else {
        return Err(MapError::NoPlanYet { left: left_open, instead: None });
    };
    // What is held leaves as much as it had, or more, and then larger pieces of weights.
    plan.figures = check::derive(workload, system, &plan.decisions)
        .map_err(|broken| MapError::Request(format!("internal error, please report it: {}", broken.join("; "))))?;
    plan.system = system.clone();
    let value = request.objective_of(&plan.figures);
    let bound = record.bound.min(value);
    let is_open = value - bound > value * request.limits.gap.max(TOLERANCE);
    let left = record.left.or(is_open.then_some(left_open));
    let status = left.map_or(Status::Optimal, LeftOpen::status);
    let (nodes, solved, joint_nodes) = (record.nodes, record.solved, record.joint_nodes);
    let reproducible = record.reproducible;
    let record =
        Record { value, bound, left, status, nodes, solved, joint_nodes, reproducible, shares_sram: true, ..*own };
    Ok(Answer::Mapped(plan, Box::new(record)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Wafers have all of the SRAM and four halvings, chips with a memory beside them all.
    #[test]
    fn blocks_have_halves_of_halves() {
        let read = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systems").join(name);
            System::build(&System::load(&path).unwrap()).unwrap()
        };
        let wafers = read("clusters/condor-galaxy-1.yaml");
        let rooms = of_blocks(&wafers);
        assert_eq!(rooms.len(), 5);
        assert_eq!(rooms[0].chip.0.sram, wafers.chip.0.sram);
        for (more, less) in rooms.iter().zip(&rooms[1..]) {
            assert_eq!(less.chip.0.sram.0 * 2.0, more.chip.0.sram.0);
        }
        assert_eq!(of_blocks(&read("wse-2-single.yaml")).len(), 1);
    }
}
