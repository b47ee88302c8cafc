//! The graph: a node for the begin and the end of each event, and edges in the order in which HTA 0.6.1 adds them (a later edge
//! between the same nodes replaces the earlier one, and the order decides among paths of equal length).

use super::order::argsort;
use super::table::Table;
use super::{queue, sync};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Calls that HTA takes to share one lock.
const LOCKED: [&str; 3] = ["cudaHostAlloc", "cudaLaunchKernel", "cudaMemcpyAsync"];
/// Calls whose own time is taken to be waiting, and weighs nothing.
const BLOCKING: [&str; 6] = [
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventQuery",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cudaMemcpyAsync",
];
/// Gaps between kernels of a stream from here on, us, are not taken for delays between kernels.
const LONGEST_GAP: f64 = 1500.0;

/// Type of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeType {
    /// Time of an operator, call or kernel.
    OperatorKernel,
    /// Order on a thread, or of calls that share a lock.
    Dependency,
    /// From a launch call to its kernel.
    LaunchDelay,
    /// From a kernel to the next one of its stream.
    KernelKernelDelay,
    /// Wait for work on another stream or on the device.
    Sync,
}

impl EdgeType {
    /// All, in the order in which they are printed.
    pub const ALL: [Self; 5] =
        [Self::OperatorKernel, Self::Dependency, Self::LaunchDelay, Self::KernelKernelDelay, Self::Sync];

    /// HTA's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::OperatorKernel => "OPERATOR_KERNEL",
            Self::Dependency => "DEPENDENCY",
            Self::LaunchDelay => "KERNEL_LAUNCH_DELAY",
            Self::KernelKernelDelay => "KERNEL_KERNEL_DELAY",
            Self::Sync => "SYNC_DEPENDENCY",
        }
    }
}

/// A begin or an end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Node {
    /// Row of the event.
    pub row: u32,
    /// Time, us.
    pub ts: f64,
    /// Whether this is the begin.
    pub begin: bool,
}

/// An edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// From.
    pub from: u32,
    /// To.
    pub to: u32,
    /// Type.
    pub kind: EdgeType,
    /// Time, us; may be negative where a child ends after its parent.
    pub weight: f64,
    /// Row of the event that the time belongs to.
    pub event: Option<u32>,
}

/// Nodes and edges of a window.
pub struct Graph<'t> {
    /// The trace.
    pub table: &'t Table,
    /// Rows of the window, by the events' index.
    pub clipped: Vec<u32>,
    /// All nodes by time, also those without edges.
    pub nodes: Vec<Node>,
    /// Edges in the order of their first appearance.
    pub edges: Vec<Edge>,
    /// Nodes that have an edge, in the order of their first appearance.
    pub seen: Vec<u32>,
    begin: Vec<u32>,
    end: Vec<u32>,
    between: HashMap<u64, u32, RandomState>,
    is_seen: Vec<bool>,
    locked: Vec<bool>,
    blocking: Vec<bool>,
}

const NONE: u32 = u32::MAX;

impl<'t> Graph<'t> {
    /// The graph of some rows; `launch_edges` adds edges without weight from each launch to its kernel.
    ///
    /// # Errors
    /// A message: what HTA stops at.
    pub(super) fn new(table: &'t Table, clipped: Vec<u32>, launch_edges: bool) -> Result<Self, String> {
        let rows = table.rows.len();
        let mut graph = Self {
            table,
            clipped,
            nodes: Vec::new(),
            edges: Vec::new(),
            seen: Vec::new(),
            begin: vec![NONE; rows],
            end: vec![NONE; rows],
            between: HashMap::default(),
            is_seen: Vec::new(),
            locked: table.symbols.mask(|n| LOCKED.contains(&n)),
            blocking: table.symbols.mask(|n| BLOCKING.contains(&n)),
        };
        graph.make_nodes();
        graph.lock();
        graph.stacks();
        graph.device(launch_edges)?;
        Ok(graph)
    }

    fn make_nodes(&mut self) {
        let table = self.table;
        let host = table.symbols.mask(|c| ["cpu_op", "cuda_runtime", "cuda_driver"].contains(&c));
        let meant = |at: &&u32| {
            let row = &table.rows[**at as usize];
            host[row.category as usize] || (row.stream != -1 && row.partner >= 0)
        };
        let node = |at: u32, begin| {
            let row = &table.rows[at as usize];
            Node { row: at, ts: if begin { row.ts } else { row.end() }, begin }
        };
        let events: Vec<u32> = self.clipped.iter().filter(meant).copied().collect();
        let mut nodes: Vec<Node> = events.iter().map(|&at| node(at, true)).collect();
        nodes.extend(events.iter().map(|&at| node(at, false)));
        let index = |n: &Node| table.rows[n.row as usize].index;
        nodes.sort_by(|a, b| a.ts.total_cmp(&b.ts).then(index(a).cmp(&index(b))));
        for (id, n) in nodes.iter().enumerate() {
            let ends = if n.begin { &mut self.begin } else { &mut self.end };
            ends[n.row as usize] = id as u32;
        }
        self.is_seen = vec![false; nodes.len()];
        self.nodes = nodes;
    }

    /// Begin and end of an event, if it has nodes.
    pub(super) fn ends(&self, row: usize) -> Option<(u32, u32)> {
        let (begin, end) = (self.begin[row], self.end[row]);
        (begin != NONE && end != NONE).then_some((begin, end))
    }

    pub(super) fn add(&mut self, from: u32, to: u32, kind: EdgeType, free: bool, event: Option<u32>) {
        for node in [from, to] {
            if !self.is_seen[node as usize] {
                self.is_seen[node as usize] = true;
                self.seen.push(node);
            }
        }
        let weight = if free || matches!(kind, EdgeType::Dependency | EdgeType::Sync) {
            0.0
        } else {
            self.nodes[to as usize].ts - self.nodes[from as usize].ts
        };
        match self.between.entry(u64::from(from) << 32 | u64::from(to)) {
            Entry::Vacant(slot) => {
                slot.insert(self.edges.len() as u32);
                self.edges.push(Edge { from, to, kind, weight, event });
            }
            Entry::Occupied(slot) => {
                let edge = &mut self.edges[*slot.get() as usize];
                *edge = Edge { kind, weight, event: event.or(edge.event), ..*edge };
            }
        }
    }

    fn is_locked(&self, node: u32) -> bool {
        let row = self.nodes[node as usize].row;
        self.locked[self.table.rows[row as usize].name as usize]
    }

    /// Calls that share a lock: each begin leads to the end that is next, and each end to the next end.
    fn lock(&mut self) {
        let (mut open, mut last): (Vec<u32>, Option<u32>) = (Vec::new(), None);
        for node in 0..self.nodes.len() as u32 {
            if !self.is_locked(node) {
                continue;
            }
            let Node { row, begin, .. } = self.nodes[node as usize];
            if begin {
                open.push(node);
            } else {
                while let Some(start) = open.pop() {
                    if self.nodes[start as usize].row == row {
                        self.add(start, node, EdgeType::OperatorKernel, false, Some(row));
                    } else {
                        self.add(start, node, EdgeType::Dependency, false, None);
                    }
                }
                if let Some(last) = last.filter(|&l| !self.nodes[l as usize].begin) {
                    self.add(last, node, EdgeType::Dependency, false, None);
                }
            }
            last = Some(node);
        }
    }

    fn linked_by_lock(&self, first: u32, second: u32) -> bool {
        self.is_locked(first)
            && self.is_locked(second)
            && (self.nodes[first as usize].begin || !self.nodes[second as usize].begin)
    }

    /// The one thread that has host events of such a name.
    fn thread_of(&self, part: &str) -> Option<u32> {
        let table = self.table;
        let host = table.symbols.mask(|c| ["cpu_op", "user_annotation"].contains(&c));
        let named = table.symbols.mask(|n| n.contains(part));
        let mut rows = self.clipped.iter().map(|&at| &table.rows[at as usize]);
        let mut found = None;
        rows.all(|r| {
            let meant = host[r.category as usize] && named[r.name as usize];
            !meant || *found.get_or_insert(r.tid) == r.tid
        })
        .then_some(found)
        .flatten()
        .filter(|&tid| table.tracks.name(tid) != "0")
    }

    /// One call stack for each thread.
    fn stacks(&mut self) {
        let table = self.table;
        let moved = match (self.thread_of("autograd"), self.thread_of("forward")) {
            (Some(backward), Some(forward)) if backward != forward => Some((backward, forward)),
            _ => None,
        };
        let mut threads: HashMap<(u32, u32), (bool, Vec<u32>), RandomState> = HashMap::default();
        for &at in &self.clipped {
            let row = &table.rows[at as usize];
            let tid = moved.filter(|m| m.0 == row.tid).map_or(row.tid, |m| m.1);
            let (host, rows) = threads.entry((row.pid, tid)).or_insert((true, Vec::new()));
            *host &= row.stream < 0;
            rows.push(at);
        }
        let mut threads: Vec<_> = threads.into_iter().filter(|(_, (host, _))| *host).collect();
        // Numbers before names, as pandas sorts its groups.
        let key = |id: u32| {
            let name = table.tracks.name(id);
            (name.parse::<i64>().map_or((1, 0), |n| (0, n)), name)
        };
        threads.sort_by_key(|((pid, tid), _)| (key(*pid), key(*tid)));
        for (_, (_, rows)) in threads {
            self.stack(&rows);
        }
    }

    fn stack(&mut self, rows: &[u32]) {
        let table = self.table;
        let mut points: Vec<(u32, bool)> = rows.iter().flat_map(|&at| [(at, true), (at, false)]).collect();
        // Ends before begins; of begins the longer event first, of ends the shorter one.
        points.sort_by(|&(a, a_begin), &(b, b_begin)| {
            let (x, y) = (&table.rows[a as usize], &table.rows[b as usize]);
            let at = |r: &super::table::Row, begin| if begin { r.ts } else { r.end() };
            at(x, a_begin).total_cmp(&at(y, b_begin)).then(a_begin.cmp(&b_begin)).then_with(|| {
                let longer = y.dur.total_cmp(&x.dur).then(x.index.cmp(&y.index));
                if a_begin { longer } else { longer.reverse() }
            })
        });
        let mut open: Vec<(u32, Option<u32>)> = Vec::new();
        let mut walk = Walk::default();
        for (at, begin) in points {
            if begin {
                let parent = open.last().map(|o| o.0);
                open.push((at, parent));
                self.enter(&mut walk, at, parent);
            } else if let Some((inner, parent)) = open.pop() {
                self.leave(&mut walk, inner, parent);
            }
        }
    }

    /// The event that the time between two nodes of a thread belongs to.
    fn owner(&self, from: u32, to: u32, parent: Option<u32>) -> Option<u32> {
        let (a, b) = (&self.nodes[from as usize], &self.nodes[to as usize]);
        match (a.begin, b.begin) {
            (true, _) => Some(a.row),
            (false, false) => Some(b.row),
            (false, true) => parent,
        }
    }

    fn enter(&mut self, walk: &mut Walk, at: u32, parent: Option<u32>) {
        let Some((begin, _)) = self.ends(at as usize) else { return };
        if let Some(last) = walk.last.filter(|&l| !self.linked_by_lock(l, begin)) {
            if walk.depth == 0 {
                self.add(last, begin, EdgeType::Dependency, false, None);
            } else {
                let owner = self.owner(last, begin, walk.parent);
                self.add(last, begin, EdgeType::OperatorKernel, false, owner);
            }
        }
        *walk = Walk { last: Some(begin), parent, depth: walk.depth + 1 };
    }

    fn leave(&mut self, walk: &mut Walk, at: u32, parent: Option<u32>) {
        let Some((_, end)) = self.ends(at as usize) else { return };
        if let Some(last) = walk.last.filter(|&l| !self.linked_by_lock(l, end)) {
            let free = self.blocking[self.table.rows[at as usize].name as usize];
            let owner = self.owner(last, end, walk.parent);
            self.add(last, end, EdgeType::OperatorKernel, free, owner);
        }
        *walk = Walk { last: Some(end), parent, depth: walk.depth - 1 };
    }

    /// Kernels, copies, fills and synchronisations.
    fn device(&mut self, launch_edges: bool) -> Result<(), String> {
        let table = self.table;
        let queue = queue::lengths(table).ok_or(
            "no launch call of this trace has a kernel of its own: HTA 0.6.1 stops here (\"Queue length time series is required\")",
        )?;
        let waits = sync::Waits::new(table)?;
        let is_sync = table.symbols.find("cuda_sync");
        let on_host = ["Event Sync", "Context Sync"].map(|n| table.symbols.find(n));
        let mut rows: Vec<(f64, u32)> = Vec::new();
        for &at in &self.clipped {
            let row = &table.rows[at as usize];
            if (row.stream != -1 || on_host.contains(&Some(row.name))) && row.partner >= 0 {
                rows.push((if Some(row.category) == is_sync { row.end() } else { row.ts }, at));
            }
        }
        let times: Vec<f64> = rows.iter().map(|r| r.0).collect();
        let mut last = sync::Last::default();
        let mut planned: HashMap<u32, u32, RandomState> = HashMap::default();
        for at in argsort(&times) {
            let at = rows[at as usize].1;
            let row = table.rows[at as usize];
            if Some(row.category) == is_sync {
                waits.carry_out(self, &row, &last, &mut planned);
                continue;
            }
            let Some((begin, end)) = self.ends(at as usize) else { continue };
            self.add(begin, end, EdgeType::OperatorKernel, false, Some(at));
            let start = self.nodes[begin as usize].ts;
            let source = planned.remove(&at).and_then(|s| self.ends(s as usize)).map(|e| e.1);
            if let Some(source) = source {
                self.add(source, begin, EdgeType::Sync, false, None);
            }
            let source_end = source.map(|s| self.nodes[s as usize].ts);
            let call = table.row(row.partner);
            let previous = last.of(row.stream);
            let previous_end = previous.map(|p| self.nodes[p as usize].ts);
            let called = call.map_or(f64::NAN, |c| table.rows[c].ts);
            let idle = queue.is(call, 1) && queue.is(Some(at as usize), 0);
            let launched = idle && previous_end.is_none_or(|p| p < called) && source_end.is_none_or(|s| s < called);
            let call_begin = call.and_then(|c| self.ends(c)).map(|e| e.0);
            if launched {
                let Some(call_begin) = call_begin else {
                    return Err(format!(
                        "event {} ({}): its launch call, event {}, is no `cuda_runtime` or `cuda_driver` event: HTA 0.6.1 stops here (\"Could not find runtime index\")",
                        row.index,
                        table.name(&row),
                        row.partner
                    ));
                };
                self.add(call_begin, begin, EdgeType::LaunchDelay, false, None);
            } else if let Some((previous, ended)) = previous.zip(previous_end)
                && start - ended < LONGEST_GAP
                && source_end.is_none_or(|s| s < ended)
            {
                let owner = self.nodes[previous as usize].row;
                self.add(previous, begin, EdgeType::KernelKernelDelay, false, Some(owner));
            }
            if let Some(call_begin) = call_begin.filter(|_| launch_edges && !launched) {
                self.add(call_begin, begin, EdgeType::LaunchDelay, true, None);
            }
            last.set(row.stream, end);
        }
        Ok(())
    }
}

/// Where a walk along a call stack is.
#[derive(Default)]
struct Walk {
    last: Option<u32>,
    parent: Option<u32>,
    depth: u32,
}
