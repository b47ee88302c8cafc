//! What a device needs between a call and the start of what it launched, and between two operations.

use crate::trace::link::{DeviceFacts, EdgeKind, End, LinkedTrace, NodeKind, Ns};
use crate::units::middle;

/// Which delays a replay uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delays {
    /// The median of the trace for each kind of operation.
    #[default]
    Typical,
    /// Those recorded for each operation: an unchanged trace then gives back its recorded schedule.
    Recorded,
}

/// Typical delays of a trace, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Typical {
    /// From a call to the start of what it launched on an idle stream: kernels, copies, fills, graphs.
    pub launch_ns: [Ns; 4],
    /// From the end of an operation to the start of the next of its stream: kernels, copies, fills, graphs.
    pub gap_ns: [Ns; 4],
    /// From the end of an operation to the start of one on another stream that waits for it.
    pub event_ns: Ns,
    /// The same between streams of one launched graph.
    pub graph_ns: Ns,
}

impl Typical {
    /// The delay after an operation of another stream.
    pub(super) fn across(&self, in_graph: bool) -> Ns {
        if in_graph { self.graph_ns } else { self.event_ns }
    }
}

/// The column of a kind of operation in [`Typical`].
pub(super) fn column(kind: NodeKind, facts: Option<&DeviceFacts>) -> usize {
    match kind {
        _ if facts.is_some_and(|f| f.graph) => 3,
        NodeKind::Memcpy => 1,
        NodeKind::Memset => 2,
        _ => 0,
    }
}

/// What held back a device operation when it was recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    /// Start of its call.
    pub(super) call: Option<Ns>,
    /// When the operation before it on the stream let it go.
    pub(super) stream: Option<Ns>,
    /// When the last operation of another stream that it waits for ended.
    pub(super) event: Option<Ns>,
    /// Whether it starts beside the operation before it.
    pub(super) overlaps: bool,
    /// Whether one of its graph's other streams held it.
    pub(super) in_graph: bool,
}

impl Held {
    /// When the device was ready for it.
    pub(super) fn ready(&self) -> Option<Ns> {
        self.stream.max(self.event)
    }
}

/// What held back each node (default for host nodes).
pub(super) fn held(trace: &LinkedTrace) -> Vec<Held> {
    let mut held = vec![Held::default(); trace.nodes.len()];
    for e in &trace.edges {
        let Some(from) = trace.node(e.from) else { continue };
        let at = match e.from_end {
            End::Start => from.start_ns,
            End::Finish => from.end_ns(),
        };
        let Some(slot) = held.get_mut(e.to as usize) else { continue };
        match e.kind {
            EdgeKind::Launch => slot.call = slot.call.max(Some(at)),
            EdgeKind::Stream => {
                slot.stream = slot.stream.max(Some(at));
                slot.overlaps |= e.from_end == End::Start;
            }
            EdgeKind::Event | EdgeKind::Graph => {
                slot.event = slot.event.max(Some(at));
                slot.in_graph |= e.kind == EdgeKind::Graph;
            }
            _ => {}
        }
    }
    held
}

/// Medians over the operations for which one cause alone decided.
pub(super) fn typical(trace: &LinkedTrace, held: &[Held]) -> Typical {
    let mut launch: [Vec<Ns>; 4] = Default::default();
    let mut gap: [Vec<Ns>; 4] = Default::default();
    let (mut event, mut graph) = (Vec::new(), Vec::new());
    let devices = || {
        trace
            .nodes
            .iter()
            .zip(held)
            .filter(|(n, _)| n.kind.on_device())
            .map(|(n, h)| (n, h, column(n.kind, n.device())))
    };
    for (n, h, c) in devices() {
        let idle = |call: &Ns| h.ready().is_none_or(|r| r <= *call) && !h.in_graph;
        if let (Some(call), Some(list)) = (h.call.filter(idle), launch.get_mut(c)) {
            list.push((n.start_ns - call).max(0));
        }
    }
    // Where the device was always busy the shortest way from call to start is the best there is.
    let shortest = |c: usize| {
        let of = |(n, h, k): (&crate::trace::link::LinkedNode, &Held, usize)| {
            h.call.filter(|_| k == c).map(|call| (n.start_ns - call).max(0))
        };
        devices().filter_map(of).min().unwrap_or(0)
    };
    let mut out = Typical::default();
    for (c, slot) in out.launch_ns.iter_mut().enumerate() {
        *slot = launch.get_mut(c).and_then(|list| middle(list)).unwrap_or_else(|| shortest(c));
    }
    for (n, h, c) in devices() {
        let Some(ready) = h.ready() else { continue };
        let latency = out.launch_ns.get(c).copied().unwrap_or(0);
        if h.overlaps || h.call.is_some_and(|call| call.saturating_add(latency) > ready) {
            continue; // the launch decided
        }
        let delay = (n.start_ns - ready).max(0);
        if h.event > h.stream {
            if h.in_graph { graph.push(delay) } else { event.push(delay) }
        } else if let Some(list) = gap.get_mut(c) {
            list.push(delay);
        }
    }
    for (slot, list) in out.gap_ns.iter_mut().zip(&mut gap) {
        *slot = middle(list).unwrap_or(0);
    }
    let [kernels, _, _, graphs] = out.gap_ns;
    out.event_ns = middle(&mut event).unwrap_or(kernels);
    out.graph_ns = middle(&mut graph).unwrap_or(graphs);
    out
}
