//! Chips whose memory is their own SRAM: what partitions buffer and what the memory holds share it. A graph is mapped with each of the parts of the SRAM that partitions may fill
//! ([`System::rooms`]), the memory having the rest, and the best of these plans is the answer; nothing is better than the least of their bounds. Blocks of executions do so by
//! themselves (`free.rs`), where what a memory holds is known by stage.

use super::request::{Answer, MapError, Record, Request};
use super::search::map_until;
use crate::deadline::Deadline;
use crate::solver::record::Status;
use crate::system::System;
use crate::workload::Workload;

/// The best mapping of a graph over the parts of the SRAM.
///
/// # Errors
/// As [`super::search::map`].
pub(super) fn best(
    workload: &Workload,
    system: &System,
    request: &Request,
    clock: Deadline,
) -> Result<Answer, MapError> {
    let rooms = system.rooms();
    let mut mapped: Vec<(Box<crate::plan::Plan>, Box<Record>)> = Vec::new();
    let (mut reason, mut open) = (None, None);
    for (i, room) in rooms.iter().enumerate() {
        let share = (i + 1) as f64 / rooms.len() as f64;
        match map_until(workload, &system.with_room(*room), request, clock.part(share)) {
            Ok(Answer::Mapped(plan, record)) => mapped.push((plan, record)),
            Ok(Answer::Infeasible(why)) => reason = Some(why),
            Err(error @ MapError::NoPlanYet { .. }) => open = Some(error),
            Err(error) => return Err(error),
        }
    }
    let least = mapped.iter().map(|(_, record)| (record.bound, record.left, record.status));
    let least = least.min_by(|a, b| a.0.total_cmp(&b.0));
    let all = mapped.iter().map(|(_, r)| [r.nodes, r.joint_nodes, r.solved as u64]);
    let all = all.fold([0; 3], |sum, of| [sum[0] + of[0], sum[1] + of[1], sum[2] + of[2]]);
    let reproducible = mapped.iter().all(|(_, record)| record.reproducible);
    let best = mapped.into_iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let (Some((plan, mut record)), Some((bound, left, status))) = (best, least) else {
        return match (open, reason) {
            (Some(open), _) => Err(open),
            (None, Some(reason)) => Ok(Answer::Infeasible(reason)),
            // There is a room at least.
            (None, None) => Err(MapError::Request("the chip has no SRAM".into())),
        };
    };
    if bound < record.bound {
        (record.bound, record.left, record.status) = (bound, left, status);
    }
    if let Some(MapError::NoPlanYet { left, .. }) = open {
        (record.bound, record.left, record.status) = (0.0, Some(left), Status::NodeLimit);
    }
    record.reproducible &= reproducible;
    record.shares_sram = true;
    [record.nodes, record.joint_nodes] = [all[0], all[1]];
    record.solved = all[2] as usize;
    Ok(Answer::Mapped(plan, record))
}
