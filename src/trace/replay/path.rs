//! The critical path: the chain of causes that ends with the last event. Its parts add up to the whole time.

use super::graph::{Arc, ArcKind, NONE, communicates};
use crate::trace::link::{LinkedTrace, NodeKind, Ns};
use std::collections::HashMap;

/// Time on the path of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathShare {
    /// Host, inside operators and calls.
    Host,
    /// Host, outside of them: the program between operators.
    HostOutside,
    /// Kernels that compute.
    Compute,
    /// Kernels that communicate.
    Communication,
    /// Copies and fills.
    Memory,
    /// From calls to what they launched.
    Launch,
    /// Between operations of the device.
    Gap,
    /// From the device to the host that waited, and from thread to thread.
    Handover,
    /// Before the first event of the path.
    Before,
}

impl PathShare {
    /// A word for reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Host => "host, in operators",
            Self::HostOutside => "host, between operators",
            Self::Compute => "compute kernels",
            Self::Communication => "communication kernels",
            Self::Memory => "copies and fills",
            Self::Launch => "launch latency",
            Self::Gap => "gaps on the device",
            Self::Handover => "handover to host or thread",
            Self::Before => "before it",
        }
    }
}

/// The critical path of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CriticalPath {
    /// Device operations on it, from the first to the last.
    pub operations: Vec<u32>,
    /// Time by kind, longest first; sums to the time of the last event.
    pub shares: Vec<(PathShare, Ns)>,
    /// Number of arcs.
    pub arcs: usize,
}

impl CriticalPath {
    /// Its length: the time of the last event, without what is before the path.
    pub fn length_ns(&self) -> Ns {
        self.shares.iter().filter(|(s, _)| *s != PathShare::Before).map(|(_, ns)| ns).sum()
    }

    /// Time of one kind.
    pub fn share_ns(&self, share: PathShare) -> Ns {
        self.shares.iter().find(|(s, _)| *s == share).map_or(0, |(_, ns)| *ns)
    }
}

/// Follows the causes back from the last event.
pub(super) fn critical_path(trace: &LinkedTrace, time: &[Ns], cause: &[Option<Arc>]) -> CriticalPath {
    let timed = |e: usize| trace.nodes.get(e / 2).is_some_and(|n| n.timed);
    let last = (0..time.len()).filter(|&e| timed(e)).max_by_key(|&e| (time.get(e).copied(), e));
    let mut out = CriticalPath::default();
    let mut sums: HashMap<PathShare, Ns> = HashMap::new();
    let Some(mut at) = last else { return out };
    while let Some(arc) = cause.get(at).copied().flatten() {
        let now = time.get(at).copied().unwrap_or(0);
        let before = if arc.from == NONE { 0 } else { time.get(arc.from as usize).copied().unwrap_or(0) };
        let share = match arc.kind {
            ArcKind::Host => PathShare::Host,
            ArcKind::Outside => PathShare::HostOutside,
            ArcKind::Launch => PathShare::Launch,
            ArcKind::Gap | ArcKind::Event => PathShare::Gap,
            ArcKind::HostWait | ArcKind::Wake | ArcKind::Backward => PathShare::Handover,
            ArcKind::Release => PathShare::Before,
            ArcKind::Device => {
                out.operations.push((at / 2) as u32);
                match trace.nodes.get(at / 2) {
                    Some(n) if communicates(n) => PathShare::Communication,
                    Some(n) if n.kind == NodeKind::Kernel => PathShare::Compute,
                    _ => PathShare::Memory,
                }
            }
        };
        *sums.entry(share).or_default() += now - before;
        out.arcs += 1;
        if arc.from == NONE {
            break;
        }
        at = arc.from as usize;
    }
    out.operations.reverse();
    out.shares = sums.into_iter().filter(|(_, ns)| *ns != 0).collect();
    out.shares.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    out
}
