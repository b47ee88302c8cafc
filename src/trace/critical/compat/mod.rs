//! The critical path as HTA 0.6.1 computes it, to the last digit: for comparison with results that were made with it. Where these rules are
//! weak, and what [`super`] does instead, is told in docs/critical-path.md.

mod graph;
mod order;
mod path;
pub mod queue;
mod sync;
pub mod table;
mod window;

pub use graph::{Edge, EdgeType, Graph, Node};
pub(crate) use order::argsort;
pub use table::{Row, Table};
pub use window::Window;

use super::names::{is_hta_communication, short};
use path::Order;
use std::collections::BTreeMap;

/// What the path is bound by, in HTA's words.
pub const BOUNDS: [&str; 6] = [
    "cpu_bound",
    "gpu_compute_bound",
    "gpu_communication_bound",
    "gpu_kernel_kernel_overhead",
    "gpu_kernel_launch_overhead",
    "none(dependency/sync)",
];

/// HTA's answer.
pub struct Compat<'t> {
    /// Nodes and edges.
    pub graph: Graph<'t>,
    /// Edges of the path, in order.
    pub path: Vec<u32>,
    /// Length, us: the sum of the weights, negative ones counted as 0.
    pub length: f64,
    order: Order,
}

/// What a what-if changes: a factor for the weights of some edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhatIf {
    /// Kernels, copies and fills.
    Device,
    /// Communication kernels.
    Communication,
    /// Operators and calls.
    Host,
    /// Delays between call and kernel.
    LaunchDelay,
    /// Delays between kernels.
    KernelKernelDelay,
}

impl<'t> Compat<'t> {
    /// Builds the graph of a window and finds its path; `launch_edges` is HTA's `CRITICAL_PATH_ADD_ZERO_WEIGHT_LAUNCH_EDGE=1`.
    ///
    /// # Errors
    /// A message: no such window, what HTA stops at, or a graph it would not accept.
    pub fn new(table: &'t Table, window: &Window, launch_edges: bool) -> Result<Self, String> {
        let clipped = window::clip(table, window::bounds(table, window)?);
        let graph = Graph::new(table, clipped, launch_edges)?;
        for edge in graph.edges.iter().filter(|e| e.kind == EdgeType::Sync) {
            let stream = |node: u32| table.rows[graph.nodes[node as usize].row as usize].stream;
            if stream(edge.from) != -1 && stream(edge.from) == stream(edge.to) {
                return Err(format!("stream {} waits for itself: HTA 0.6.1 refuses such a graph", stream(edge.from)));
            }
        }
        let order = Order::new(&graph).ok_or("the graph has a cycle: HTA 0.6.1 refuses it")?;
        let (length, path) = order.heaviest(&graph, weight);
        if path.is_empty() {
            return Err("the window holds no path: HTA 0.6.1 connects no two events of it".into());
        }
        Ok(Self { graph, path, length, order })
    }

    /// Edges of the path.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.path.iter().map(|&e| &self.graph.edges[e as usize])
    }

    /// Nodes of the path.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        let first = self.edges().next().map(|e| e.from);
        let ids = first.into_iter().chain(self.edges().map(|e| e.to));
        ids.map(|n| &self.graph.nodes[n as usize])
    }

    /// Indices of the events of the path, sorted.
    pub fn events(&self) -> Vec<u32> {
        let mut out: Vec<u32> = self.nodes().map(|n| self.graph.table.rows[n.row as usize].index).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Latest minus earliest time of a node, us.
    pub fn span(&self) -> f64 {
        let ends = self.graph.seen.iter().map(|&n| self.graph.nodes[n as usize].ts);
        let (first, last) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), t| (a.min(t), b.max(t)));
        last - first
    }

    /// What bounds an edge, one of [`BOUNDS`].
    pub fn bound(&self, edge: &Edge) -> &'static str {
        let row = edge.event.map(|r| &self.graph.table.rows[r as usize]);
        match (edge.kind, row) {
            (EdgeType::KernelKernelDelay, _) => BOUNDS[3],
            (EdgeType::LaunchDelay, _) => BOUNDS[4],
            (EdgeType::Dependency | EdgeType::Sync, _) => BOUNDS[5],
            (EdgeType::OperatorKernel, Some(r)) if r.stream >= 0 => {
                let communication = is_hta_communication(&short(self.graph.table.name(r)));
                if communication { BOUNDS[2] } else { BOUNDS[1] }
            }
            (EdgeType::OperatorKernel, _) => BOUNDS[0],
        }
    }

    /// Time of the path by what bounds it, us. Negative weights count as they are, as in HTA.
    pub fn breakdown(&self) -> BTreeMap<&'static str, f64> {
        let mut out = BTreeMap::new();
        for edge in self.edges() {
            *out.entry(self.bound(edge)).or_default() += edge.weight;
        }
        out
    }

    /// Time of the path by event, us: index and time, the longest first.
    pub fn by_event(&self) -> Vec<(u32, f64)> {
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for (row, weight) in self.edges().filter_map(|e| e.event.map(|r| (r, e.weight))) {
            *sums.entry(row).or_default() += weight;
        }
        let mut out: Vec<(u32, f64)> = sums.into_iter().collect();
        out.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        out
    }

    /// Length of the heaviest path after some weights are multiplied, us. The graph stays as it is: no queue is simulated.
    pub fn what_if(&self, what: WhatIf, factor: f64) -> f64 {
        let changed = |edge: &Edge| match (what, edge.kind) {
            (WhatIf::LaunchDelay, EdgeType::LaunchDelay) => true,
            (WhatIf::KernelKernelDelay, EdgeType::KernelKernelDelay) => true,
            (WhatIf::Device | WhatIf::Communication | WhatIf::Host, EdgeType::OperatorKernel) => {
                let bound = self.bound(edge);
                match what {
                    WhatIf::Host => bound == BOUNDS[0],
                    WhatIf::Communication => bound == BOUNDS[2],
                    _ => bound != BOUNDS[0],
                }
            }
            _ => false,
        };
        self.order.heaviest(&self.graph, |e| if changed(e) { weight(e) * factor } else { weight(e) }).0
    }
}

/// Weight of an edge on a path: HTA counts negative ones as 0.
fn weight(edge: &Edge) -> f64 {
    if edge.weight <= -1.0 { 0.0 } else { edge.weight }
}
