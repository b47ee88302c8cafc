//! Durations of device operations on another system: collectives by the network's model, kernels by what the chip's libraries take.
//!
//! A collective takes what [`crate::model::collective`] says for its bytes and the ranks of its group, placed on the innermost network
//! dimensions. The kernels of an operator whose FLOP and bytes are known take the time of its call ([`crate::model::library`]), shared out in
//! proportion to what they took. Everything else keeps its recorded time; where the system of the recording is told, times the ratio of
//! the two bandwidths that kernels reach. [`Retimed`] says how much that is. Host time is kept: another host is another question.

use crate::graph::CollectiveKind;
use crate::model::collective::{Extent, group, seconds};
use crate::model::library::Library;
use crate::system::System;
use crate::trace::chakra::{CommType, NodeType};
use crate::trace::convert::comm_call;
use crate::trace::host::HostTrace;
use crate::trace::link::{LinkedNode, LinkedTrace, NodeKind};
use crate::trace::lower::host::{Steps, program};
use crate::trace::lower::program::Step;
use crate::trace::ops::{Options, work};
use foldhash::fast::RandomState;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

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
    /// Recorded nanoseconds of the kernels that keep their time, or have it times the ratio of bandwidths.
    pub kept_ns: u64,
    /// Why communication kernels keep their time, each reason once.
    pub reasons: Vec<String>,
    /// Recorded and new nanoseconds of the kernels of each operator that is timed anew.
    pub operators: BTreeMap<String, OperatorTime>,
}

/// Kernels of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct OperatorTime {
    /// Kernels.
    pub kernels: u64,
    /// Recorded nanoseconds.
    pub recorded_ns: u64,
    /// Nanoseconds on the system.
    pub ns: u64,
}

/// What is timed anew, and from where.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The system.
    pub system: &'a System,
    /// That of the recording, where it is told.
    pub recorded_on: Option<&'a System>,
    /// Collectives too; they hold waiting for other ranks as recorded.
    pub communication: bool,
}

/// Times the device operations of a linked trace anew. `host` is the host trace inside it, where there is one: without, only communication
/// is timed.
///
/// # Errors
/// What the host trace cannot be read as, in words.
pub fn retime(trace: &LinkedTrace, host: Option<&HostTrace>, target: Target<'_>) -> Result<Retimed, String> {
    let mut out = Retimed::default();
    let calls = host.map(Calls::of).transpose()?.unwrap_or_default();
    let library = Library::new(target.system, calls.training);
    let scale = target.recorded_on.map_or(1.0, |r| Library::new(r, calls.training).bandwidth() / library.bandwidth());
    // The kernels of each operator that is counted.
    let mut of_call: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut kept: Vec<u32> = Vec::new();
    for at in trace.device_nodes() {
        let Some(node) = trace.node(at).filter(|n| n.kind == NodeKind::Kernel) else { continue };
        if node.is_communication() {
            out.communication.1 += 1;
            if !target.communication {
                continue;
            }
            match collective_seconds(trace, node, target.system) {
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
        match calls.owner(trace, node) {
            Some(owner) => of_call.entry(owner).or_default().push(at),
            None => kept.push(at),
        }
    }
    for (owner, kernels) in of_call {
        let named: Vec<&LinkedNode> = kernels.iter().filter_map(|k| trace.node(*k)).collect();
        let recorded: u64 = named.iter().map(|n| n.dur_ns).fold(0, u64::saturating_add);
        match calls.seconds(owner, &named, &library).filter(|_| recorded > 0) {
            Some(s) => {
                let op = calls.steps.get(&owner).map_or(String::new(), |s| s.call.op.clone());
                let row = out.operators.entry(op).or_default();
                for (at, node) in kernels.iter().zip(&named) {
                    let ns = nanoseconds(s * node.dur_ns as f64 / recorded as f64);
                    out.compute.0 += 1;
                    out.ns.insert(*at, ns);
                    row.kernels += 1;
                    row.recorded_ns = row.recorded_ns.saturating_add(node.dur_ns);
                    row.ns = row.ns.saturating_add(ns);
                }
            }
            None => kept.extend(kernels),
        }
    }
    for at in kept {
        let Some(node) = trace.node(at) else { continue };
        out.kept_ns = out.kept_ns.saturating_add(node.dur_ns);
        if scale != 1.0 {
            out.ns.insert(at, nanoseconds(node.dur_ns as f64 * 1e-9 * scale));
        }
    }
    Ok(out)
}

/// FLOP and bytes of each kernel that computes, for simulators that time kernels by a roofline: the call's, shared out by time; where no device has worked, of the
/// operators that did. Where they are not known, no
/// FLOP, and the bytes that its time would move at the rate that the trace's other kernels without products reach; nothing where no such rate is known.
/// `communicates` says it of each node.
pub(crate) fn amounts(
    trace: &LinkedTrace,
    host: &HostTrace,
    communicates: &[bool],
) -> Result<HashMap<u32, (f64, f64)>, String> {
    let calls = Calls::of(host)?;
    let mut of_call: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut unknown: Vec<u32> = Vec::new();
    for at in trace.device_nodes() {
        let computes = |n: &&LinkedNode| n.kind == NodeKind::Kernel && communicates.get(at as usize) != Some(&true);
        let Some(node) = trace.node(at).filter(computes) else { continue };
        match calls.owner(trace, node) {
            Some(owner) => of_call.entry(owner).or_default().push(at),
            None => unknown.push(at),
        }
    }
    if trace.device_nodes().next().is_none() {
        for (at, node) in (0u32..).zip(&trace.nodes) {
            if let Some(facts) = node.host().filter(|f| calls.steps.contains_key(&f.id)) {
                of_call.entry(facts.id).or_default().push(at);
            }
        }
    }
    let mut out = HashMap::new();
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for (owner, kernels) in of_call {
        let took: f64 = kernels.iter().filter_map(|k| trace.node(*k)).map(|n| n.dur_ns as f64).sum();
        let cost = calls.steps.get(&owner).map(|s| s.cost).filter(|c| c.bytes_known && !c.estimated);
        let Some((cost, flop)) = cost.and_then(|c| Some((c, c.flop?))).filter(|_| took > 0.0) else {
            unknown.extend(kernels);
            continue;
        };
        if !work::multiplies(cost.class) {
            bytes += cost.bytes() as f64;
            seconds += took;
        }
        for (at, node) in kernels.iter().filter_map(|k| Some((*k, trace.node(*k)?))) {
            let share = node.dur_ns as f64 / took;
            out.insert(at, (flop as f64 * share, cost.bytes() as f64 * share));
        }
    }
    if seconds > 0.0 {
        out.extend(
            unknown.iter().filter_map(|at| Some((*at, (0.0, trace.node(*at)?.dur_ns as f64 * bytes / seconds)))),
        );
    }
    Ok(out)
}

fn nanoseconds(s: f64) -> u64 {
    // A conversion of a float saturates.
    (s * 1e9).round().max(0.0) as u64
}

/// The counted operators of a host trace.
#[derive(Default)]
struct Calls {
    /// By id of the host node.
    steps: HashMap<u64, Step, RandomState>,
    training: bool,
}

impl Calls {
    fn of(host: &HostTrace) -> Result<Self, String> {
        let program = program(host, "trace", Steps::All, &Options::default(), &|_| None)?;
        let mut out = Self { training: program.trains(), ..Self::default() };
        for step in program.steps {
            out.steps.entry(step.node).or_insert(step);
        }
        Ok(out)
    }

    /// Seconds of the calls of a node that launched these kernels; `None` where the FLOP or bytes of one are not known. An
    /// estimate from a name is no ground to give up a measured time.
    fn seconds(&self, id: u64, kernels: &[&LinkedNode], library: &Library<'_>) -> Option<f64> {
        let names: Vec<&str> = kernels.iter().map(|k| &*k.name).collect();
        // One call a node: all kernels are its own.
        let step = self.steps.get(&id)?;
        let call = work::work(&step.call, &step.cost, &names).filter(|_| !step.cost.estimated)?;
        library.seconds(&call)
    }

    /// The counted operator that a kernel belongs to.
    fn owner(&self, trace: &LinkedTrace, node: &LinkedNode) -> Option<u64> {
        let mut above = node.parent;
        loop {
            let n = trace.node(above?)?;
            if let Some(facts) = n.host().filter(|f| self.steps.contains_key(&f.id)) {
                return Some(facts.id);
            }
            above = n.parent;
        }
    }
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
        return Err("the bytes of some collectives are not recorded; the host trace of the run may know them (link it with --host)".into());
    }
    let sizes = placed(ranks, &system.network.dimensions.iter().map(|d| d.size).collect::<Vec<_>>())
        .ok_or_else(|| format!("a group of {ranks} ranks does not fit the network dimensions of {}", system.name))?;
    let extents: Vec<Extent> = sizes.into_iter().map(Extent::neighbours).collect();
    Ok(seconds(kind, &group(system, &extents), bytes, &system.model))
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
