//! Durations of device operations on another system: collectives by the network's model, kernels by the roofline of the chip.
//!
//! A collective takes what [`crate::model::collective`] says for its bytes and the ranks of its group, placed on the innermost network
//! dimensions. The kernels of an operator whose FLOP and bytes are known take its roofline time
//! ([`crate::trace::ops::roofline`]), shared out in proportion to what they took. Everything else keeps its recorded
//! time, and [`Retimed`] says how much that is. Host time is kept: another host is another question.

use crate::graph::CollectiveKind;
use crate::model::collective::{group, seconds};
use crate::system::System;
use crate::trace::chakra::{CommType, NodeType};
use crate::trace::convert::comm_call;
use crate::trace::host::HostTrace;
use crate::trace::link::{LinkedNode, LinkedTrace, NodeKind};
use crate::trace::lower::host::{Steps, program};
use crate::trace::ops::{Options, roofline};
use serde::Serialize;
use std::collections::HashMap;

/// Durations on a system, and how much of the trace they cover.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Retimed {
    /// Nanoseconds of each node that has a new duration.
    #[serde(skip)]
    pub ns: HashMap<u32, u64>,
    /// Communication kernels timed anew, and all of them.
    pub communication: (u64, u64),
    /// Other kernels timed anew, and all of them.
    pub compute: (u64, u64),
    /// Recorded nanoseconds of the kernels that keep their time.
    pub kept_ns: u64,
    /// Why communication kernels keep their time, each reason once.
    pub reasons: Vec<String>,
}

/// Times the device operations of a linked trace anew. `host` is the host trace inside it, where there is one: without, only communication
/// is timed.
///
/// # Errors
/// What the host trace cannot be read as, in words.
pub fn retime(trace: &LinkedTrace, host: Option<&HostTrace>, system: &System) -> Result<Retimed, String> {
    let mut out = Retimed::default();
    let of_step = match host {
        Some(host) => step_times(host, system)?,
        None => Steptimes::default(),
    };
    // Recorded time of the kernels of each operator that is counted.
    let mut recorded: HashMap<u64, u64> = HashMap::new();
    let mut kernels: Vec<(u32, Option<u64>)> = Vec::new();
    for at in trace.device_nodes() {
        let Some(node) = trace.node(at).filter(|n| n.kind == NodeKind::Kernel) else { continue };
        if node.is_communication() {
            out.communication.1 += 1;
            match collective_seconds(trace, node, system) {
                Ok(s) => {
                    out.communication.0 += 1;
                    out.ns.insert(at, nanoseconds(s));
                }
                Err(reason) => {
                    out.kept_ns = out.kept_ns.saturating_add(node.dur_ns);
                    if !out.reasons.contains(&reason) {
                        out.reasons.push(reason);
                    }
                }
            }
            continue;
        }
        out.compute.1 += 1;
        let owner = of_step.owner(trace, node);
        if let Some(owner) = owner {
            let sum = recorded.entry(owner).or_insert(0);
            *sum = sum.saturating_add(node.dur_ns);
        }
        kernels.push((at, owner));
    }
    for (at, owner) in kernels {
        let Some(node) = trace.node(at) else { continue };
        let target = owner.and_then(|o| Some((*of_step.seconds.get(&o)?, *recorded.get(&o)?)));
        match target {
            Some((s, sum)) if sum > 0 => {
                out.compute.0 += 1;
                out.ns.insert(at, nanoseconds(s * node.dur_ns as f64 / sum as f64));
            }
            _ => out.kept_ns = out.kept_ns.saturating_add(node.dur_ns),
        }
    }
    Ok(out)
}

fn nanoseconds(s: f64) -> u64 {
    // A conversion of a float saturates.
    (s * 1e9).round().max(0.0) as u64
}

/// Roofline times of the counted operators.
#[derive(Default)]
struct Steptimes {
    /// Seconds by id of the host node.
    seconds: HashMap<u64, f64>,
    /// Callers by id, for what is launched below an operator.
    callers: HashMap<u64, u64>,
}

impl Steptimes {
    /// The counted operator that a kernel belongs to.
    fn owner(&self, trace: &LinkedTrace, node: &LinkedNode) -> Option<u64> {
        let mut above = node.parent;
        let mut id = loop {
            let n = trace.node(above?)?;
            match n.host() {
                Some(facts) => break facts.id,
                None => above = n.parent,
            }
        };
        for _ in 0..=self.callers.len() {
            if self.seconds.contains_key(&id) {
                return Some(id);
            }
            id = *self.callers.get(&id)?;
        }
        None
    }
}

fn step_times(host: &HostTrace, system: &System) -> Result<Steptimes, String> {
    let program = program(host, "trace", Steps::All, &Options::default(), &|_| None)?;
    let training = program.trains();
    let mut out = Steptimes { callers: host.nodes.iter().map(|n| (n.id, n.parent)).collect(), ..Steptimes::default() };
    for step in &program.steps {
        // An estimate from a name is no ground to give up a measured time.
        if let Some(s) = roofline::seconds(&step.call, &step.cost, system, training).filter(|_| !step.cost.estimated) {
            *out.seconds.entry(step.node).or_insert(0.0) += s;
        }
    }
    Ok(out)
}

fn collective_seconds(trace: &LinkedTrace, node: &LinkedNode, system: &System) -> Result<f64, String> {
    let call = comm_call(trace, node).ok_or("the kind of some communication kernels is not recorded")?;
    let recorded = node.collective.as_deref().ok_or("size and group of some collectives are not recorded")?;
    let name = recorded.group.as_deref();
    let size_of =
        |g: &crate::trace::link::Group| g.size.or_else(|| (!g.ranks.is_empty()).then_some(g.ranks.len() as u64));
    let ranks = recorded
        .group_size
        .or_else(|| (!recorded.group_ranks.is_empty()).then_some(recorded.group_ranks.len() as u64))
        .or_else(|| trace.groups.iter().find(|g| Some(g.name.as_str()) == name).and_then(size_of))
        .ok_or("the number of ranks of some groups is not recorded")?;
    let (kind, ranks, bytes) = match (call.kind, call.collective) {
        (NodeType::Send | NodeType::Recv, _) => (CollectiveKind::PointToPoint, 2, call.bytes as f64),
        (_, Some(CommType::AllReduce)) => (CollectiveKind::AllReduce, ranks, call.bytes as f64),
        // What one rank contributes is recorded, what every rank ends with is charged.
        (_, Some(CommType::AllGather)) => (CollectiveKind::AllGather, ranks, call.bytes as f64 * ranks as f64),
        (_, Some(CommType::ReduceScatter | CommType::ReduceScatterBlock)) => {
            (CollectiveKind::ReduceScatter, ranks, call.bytes as f64)
        }
        (_, Some(CommType::AllToAll)) => (CollectiveKind::AllToAll, ranks, call.bytes as f64),
        (_, Some(CommType::Broadcast)) => (CollectiveKind::Broadcast, ranks, call.bytes as f64),
        (_, kind) => {
            return Err(format!(
                "there is no model for {}",
                kind.map_or("a collective of unknown kind", CommType::name)
            ));
        }
    };
    if recorded.in_elems.is_none() && recorded.out_elems.is_none() {
        return Err("the bytes of some collectives are not recorded".into());
    }
    let sizes = placed(ranks, &system.network.dimensions.iter().map(|d| d.size).collect::<Vec<_>>())
        .ok_or_else(|| format!("a group of {ranks} ranks does not fit the network dimensions of {}", system.name))?;
    Ok(seconds(kind, &group(system, &sizes), bytes, &system.model))
}

/// How a group lies on the network: the innermost dimensions whole, then a divisor of the next. `None` if it does not fit so.
fn placed(ranks: u64, dimensions: &[u64]) -> Option<Vec<u64>> {
    let mut left = ranks.max(1);
    let mut sizes = Vec::with_capacity(dimensions.len());
    for &size in dimensions {
        let here = if size > 0 && left.is_multiple_of(size) {
            size
        } else if left <= size && size.is_multiple_of(left) {
            left
        } else {
            return None;
        };
        left /= here;
        sizes.push(here);
    }
    (left == 1).then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_lie_on_the_innermost_dimensions() {
        assert_eq!(placed(8, &[8, 128]), Some(vec![8, 1]));
        assert_eq!(placed(4, &[8, 128]), Some(vec![4, 1]));
        assert_eq!(placed(32, &[8, 128]), Some(vec![8, 4]));
        assert_eq!(placed(1, &[8]), Some(vec![1]));
        assert_eq!(placed(3, &[8, 128]), None);
        assert_eq!(placed(16, &[8]), None);
        assert_eq!(placed(2, &[]), None);
    }

    #[test]
    fn seconds_become_nanoseconds() {
        assert_eq!((nanoseconds(1.5e-6), nanoseconds(-1.0), nanoseconds(f64::NAN)), (1500, 0, 0));
    }
}
