//! What a schedule amounts to.

use super::graph::communicates;
use crate::trace::link::{LinkedTrace, NodeKind, Ns};
use std::collections::BTreeMap;

/// Time of a profiler's step, on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepTime {
    /// `ProfilerStep#7`.
    pub name: String,
    /// From its start to its end.
    pub ns: Ns,
}

/// Times of a schedule, ns. Sums are over all devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// From the first start to the last end.
    pub span_ns: Ns,
    /// The profiler's steps, where marked.
    pub steps: Vec<StepTime>,
    /// Sum of the durations of kernels that compute.
    pub compute_ns: Ns,
    /// Sum of the durations of kernels that communicate.
    pub communication_ns: Ns,
    /// Sum of the durations of copies and fills.
    pub memory_ns: Ns,
    /// Time in which a device communicates and does nothing else.
    pub exposed_communication_ns: Ns,
    /// Time in which a device communicates and does something else too.
    pub hidden_communication_ns: Ns,
    /// Time of the span in which a device does nothing, on average over the devices.
    pub idle_ns: Ns,
    /// Number of devices.
    pub devices: usize,
}

impl Figures {
    /// Mean time of a step; the span where no steps are marked.
    pub fn step_ns(&self) -> Ns {
        match Ns::try_from(self.steps.len()) {
            Ok(n) if n > 0 => self.steps.iter().map(|s| s.ns).sum::<Ns>() / n,
            _ => self.span_ns,
        }
    }
}

/// Figures of a schedule.
pub(super) fn figures(trace: &LinkedTrace, start: &[Ns], end: &[Ns]) -> Figures {
    let mut out = Figures::default();
    let (mut first, mut last) = (Ns::MAX, Ns::MIN);
    let mut busy: BTreeMap<i64, [Vec<(Ns, Ns)>; 2]> = BTreeMap::new();
    for ((n, &a), &b) in trace.nodes.iter().zip(start).zip(end) {
        if !n.timed {
            continue;
        }
        (first, last) = (first.min(a), last.max(b));
        if n.is_step() {
            out.steps.push(StepTime { name: n.name.to_string(), ns: b - a });
        }
        if !n.kind.on_device() {
            continue;
        }
        let communicates = communicates(n);
        let sum = match n.kind {
            NodeKind::Kernel if communicates => &mut out.communication_ns,
            NodeKind::Kernel => &mut out.compute_ns,
            _ => &mut out.memory_ns,
        };
        *sum = sum.saturating_add(b - a);
        let device = trace.streams.get(n.place as usize).map_or(0, |s| s.device);
        if let Some(list) = busy.entry(device).or_default().get_mut(usize::from(communicates)) {
            list.push((a, b));
        }
    }
    out.span_ns = if first <= last { last - first } else { 0 };
    out.devices = busy.len();
    let mut idle: Ns = 0;
    for [others, communication] in busy.into_values() {
        let (others, communication) = (union(others), union(communication));
        let both = overlap(&others, &communication);
        out.hidden_communication_ns += both;
        out.exposed_communication_ns += length(&communication) - both;
        idle += out.span_ns - (length(&others) + length(&communication) - both);
    }
    out.idle_ns = Ns::try_from(out.devices).ok().filter(|&n| n > 0).map_or(0, |n| idle / n);
    out
}

/// Disjoint intervals, ascending, that cover the same time.
fn union(mut list: Vec<(Ns, Ns)>) -> Vec<(Ns, Ns)> {
    list.sort_unstable();
    let mut out: Vec<(Ns, Ns)> = Vec::with_capacity(list.len());
    for (a, b) in list {
        match out.last_mut() {
            Some(last) if a <= last.1 => last.1 = last.1.max(b),
            _ => out.push((a, b)),
        }
    }
    out
}

fn length(list: &[(Ns, Ns)]) -> Ns {
    list.iter().map(|(a, b)| b - a).sum()
}

/// Time that two lists of disjoint, ascending intervals share.
fn overlap(a: &[(Ns, Ns)], b: &[(Ns, Ns)]) -> Ns {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        sum += (x.1.min(y.1) - x.0.max(y.0)).max(0);
        if x.1 <= y.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        assert_eq!(union(vec![(5, 7), (0, 2), (1, 3), (7, 8)]), [(0, 3), (5, 8)]);
        assert_eq!(overlap(&[(0, 3), (5, 8)], &[(2, 6), (7, 9)]), 1 + 1 + 1);
        assert_eq!(length(&[(0, 3), (5, 8)]), 6);
    }
}
