//! The dependencies of a linked trace as a graph of starts and ends, each arc with the time that it takes.
//!
//! | arc | from | to | takes |
//! |---|---|---|---|
//! | host | a point of a thread | the next one | the recorded time; after a wait only what was left after it |
//! | device | start of an operation | its end | its duration, asked of the caller |
//! | launch | start of a call | start of what it launched | typical (or recorded) latency |
//! | gap | end of an operation | start of the next on the stream | typical (or recorded) gap |
//! | event, graph | end of an operation | start of what another stream waits with | typical (or recorded) delay |
//! | host wait | end of an operation | end of a synchronising call | what the call needed after that |
//! | wake | a point of a thread | a point of another that waited for it | the recorded time |
//! | backward | end of a forward operator | start of its backward operator | nothing |
//! | release | - | first point of a thread; an operation whose launch was not recorded | the recorded time |

use super::delays::{self, Delays, Held, Typical};
use super::path::{self, CriticalPath};
use super::{Replay, ReplayError, figures};
use crate::trace::link::nest::{Span, nest};
use crate::trace::link::{EdgeKind, End, LinkedNode, LinkedTrace, NodeKind, Ns, kind_rank};
use std::collections::HashMap;

/// What an arc stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArcKind {
    /// Host time inside an operator or a call.
    Host,
    /// Host time outside of all of them (an annotation does no work).
    Outside,
    /// A device operation's duration.
    Device,
    /// From a call to what it launched.
    Launch,
    /// Between two operations of a stream.
    Gap,
    /// From an operation to one of another stream.
    Event,
    /// From an operation to the host that waited for it.
    HostWait,
    /// From a thread to another that waited for it.
    Wake,
    /// From a forward to its backward operator.
    Backward,
    /// Recorded time of what has nothing before it.
    Release,
}

/// One arc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arc {
    /// The event before, or `NONE` for a release.
    pub(super) from: u32,
    /// What it takes; for [`ArcKind::Device`] unused.
    pub(super) takes: Ns,
    pub(super) kind: ArcKind,
}

/// No event.
pub(super) const NONE: u32 = u32::MAX;

/// A linked trace made ready for replaying, any number of times.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Arcs into each event: `arcs[first[e]..first[e + 1]]`. Events are 2 x node for its start and 2 x node + 1 for its end.
    first: Vec<u32>,
    /// Device operations that found their stream idle, by node.
    idle: Vec<bool>,
    arcs: Vec<Arc>,
    /// Events in an order in which each comes after those it depends on.
    order: Vec<u32>,
    /// The delays of the trace.
    pub typical: Typical,
    /// Device time that no dependency explains with the delays used: sum over operations of recorded start minus the latest cause. By what began
    /// late: kernels, copies, fills, operations of launched graphs.
    pub unexplained_ns: [Ns; 4],
    /// The longest of these delays, with their operations, the longest first.
    pub unexplained_longest: Vec<(Ns, u32)>,
}

/// Most delays without an explanation that are told one by one.
const MOST_UNEXPLAINED: usize = 5;

fn event(node: u32, end: End) -> u32 {
    2 * node + u32::from(end == End::Finish)
}

impl Timing {
    /// Builds the graph.
    ///
    /// # Errors
    /// [`ReplayError`]: a cycle, a dangling edge, nothing timed.
    pub fn new(trace: &LinkedTrace, delays: Delays) -> Result<Self, ReplayError> {
        if !trace.nodes.iter().any(|n| n.timed) {
            return Err(ReplayError::Empty);
        }
        for (edge, e) in trace.edges.iter().enumerate() {
            for node in [e.from, e.to] {
                if trace.node(node).is_none_or(|n| !n.timed) {
                    return Err(ReplayError::Dangling { edge, node });
                }
            }
        }
        let held = delays::held(trace);
        let typical = delays::typical(trace, &held);
        let mut list: Vec<(u32, Arc)> = Vec::with_capacity(3 * trace.nodes.len());
        host_arcs(trace, &mut list);
        let (unexplained_ns, unexplained_longest) = device_arcs(trace, &held, &typical, delays, &mut list);
        let events = 2 * trace.nodes.len();
        // By event, stable, so that of two equal causes the same one is always named.
        let mut first = vec![0u32; events + 1];
        for &(to, _) in &list {
            if let Some(slot) = first.get_mut(to as usize + 1) {
                *slot += 1;
            }
        }
        for i in 0..events {
            let before = first.get(i).copied().unwrap_or(0);
            if let Some(slot) = first.get_mut(i + 1) {
                *slot += before;
            }
        }
        list.sort_by_key(|&(to, _)| to);
        let arcs: Vec<Arc> = list.into_iter().map(|(_, arc)| arc).collect();
        let idle = held.iter().map(|h| h.ready() <= h.call).collect();
        let mut timing = Self { first, idle, arcs, order: Vec::new(), typical, unexplained_ns, unexplained_longest };
        timing.order = timing.topological(trace)?;
        Ok(timing)
    }

    /// Arcs into an event.
    pub(super) fn into(&self, event: u32) -> &[Arc] {
        let at = |i: usize| self.first.get(i).map_or(0, |&f| f as usize);
        self.arcs.get(at(event as usize)..at(event as usize + 1)).unwrap_or_default()
    }

    fn topological(&self, trace: &LinkedTrace) -> Result<Vec<u32>, ReplayError> {
        let events = 2 * trace.nodes.len();
        let mut waiting: Vec<u32> = vec![0; events];
        let mut out_first: Vec<u32> = vec![0; events + 1];
        for e in 0..events {
            for arc in self.into(e as u32).iter().filter(|a| a.from != NONE) {
                if let Some(slot) = waiting.get_mut(e) {
                    *slot += 1;
                }
                if let Some(slot) = out_first.get_mut(arc.from as usize + 1) {
                    *slot += 1;
                }
            }
        }
        for i in 0..events {
            let before = out_first.get(i).copied().unwrap_or(0);
            if let Some(slot) = out_first.get_mut(i + 1) {
                *slot += before;
            }
        }
        let mut fill = out_first.clone();
        let mut out = vec![0u32; out_first.last().copied().unwrap_or(0) as usize];
        for e in 0..events as u32 {
            for arc in self.into(e).iter().filter(|a| a.from != NONE) {
                if let Some(at) = fill.get_mut(arc.from as usize) {
                    if let Some(slot) = out.get_mut(*at as usize) {
                        *slot = e;
                    }
                    *at += 1;
                }
            }
        }
        let mut ready: Vec<u32> = (0..events as u32).filter(|&e| waiting.get(e as usize) == Some(&0)).collect();
        let mut order = Vec::with_capacity(events);
        while let Some(e) = ready.pop() {
            order.push(e);
            let at = |i: usize| out_first.get(i).map_or(0, |&f| f as usize);
            for &next in out.get(at(e as usize)..at(e as usize + 1)).unwrap_or_default() {
                if let Some(n) = waiting.get_mut(next as usize) {
                    *n -= 1;
                    if *n == 0 {
                        ready.push(next);
                    }
                }
            }
        }
        if order.len() == events {
            return Ok(order);
        }
        let stuck = (0..events).filter(|&e| waiting.get(e).is_some_and(|&n| n > 0)).map(|e| e / 2);
        let mut names: Vec<String> = Vec::new();
        for node in stuck {
            let name = trace.nodes.get(node).map_or(String::new(), |n| format!("node {node} ({})", n.name));
            if names.last() != Some(&name) {
                names.push(name);
            }
            if names.len() == 5 {
                break;
            }
        }
        Err(ReplayError::Cycle(names.join(", ")))
    }

    /// Length of the longest path when only work counts, as HolisticTraceAnalysis defines its critical path: host time between
    /// operators, waiting and handing over count nothing; a launch counts only where the stream was idle; threads do not wait for
    /// each other. Build with [`Delays::Recorded`] for the weights that it uses.
    pub fn work_ns(&self, trace: &LinkedTrace) -> Ns {
        let mut length: Vec<Ns> = vec![0; 2 * trace.nodes.len()];
        for &e in &self.order {
            let mut best: Ns = 0;
            for arc in self.into(e).iter().filter(|a| a.from != NONE) {
                let takes = match arc.kind {
                    ArcKind::Device => trace.node(e / 2).map_or(0, |n| Ns::try_from(n.dur_ns).unwrap_or(0)),
                    ArcKind::Host | ArcKind::Gap => arc.takes,
                    ArcKind::Launch if self.idle.get(e as usize / 2) == Some(&true) => arc.takes,
                    ArcKind::Launch | ArcKind::Wake | ArcKind::Backward => continue,
                    ArcKind::Outside | ArcKind::Event | ArcKind::HostWait | ArcKind::Release => 0,
                };
                let from = length.get(arc.from as usize).copied().unwrap_or(0);
                best = best.max(from.saturating_add(takes));
            }
            if let Some(slot) = length.get_mut(e as usize) {
                *slot = best;
            }
        }
        length.into_iter().max().unwrap_or(0)
    }

    /// Replays with durations of device operations given by the caller.
    pub fn replay(&self, trace: &LinkedTrace, duration: impl Fn(u32, &LinkedNode) -> u64) -> Replay {
        let events = 2 * trace.nodes.len();
        let mut time: Vec<Ns> = trace.nodes.iter().flat_map(|n| [n.start_ns, n.start_ns]).collect();
        let mut cause: Vec<Option<Arc>> = vec![None; events];
        for &e in &self.order {
            let mut best: Option<(Ns, Arc)> = None;
            for arc in self.into(e) {
                let takes = match arc.kind {
                    ArcKind::Device => {
                        trace.node(e / 2).map_or(0, |n| Ns::try_from(duration(e / 2, n)).unwrap_or(Ns::MAX / 4))
                    }
                    _ => arc.takes,
                };
                let from = if arc.from == NONE { 0 } else { time.get(arc.from as usize).copied().unwrap_or(0) };
                let at = from.saturating_add(takes);
                if best.is_none_or(|(t, _)| at > t) {
                    best = Some((at, *arc));
                }
            }
            if let Some((at, arc)) = best {
                if let Some(slot) = time.get_mut(e as usize) {
                    *slot = at;
                }
                if let Some(slot) = cause.get_mut(e as usize) {
                    *slot = Some(arc);
                }
            }
        }
        let of = |node: usize, end: usize| time.get(2 * node + end).copied().unwrap_or(0);
        let start_ns: Vec<Ns> = (0..trace.nodes.len()).map(|i| of(i, 0)).collect();
        let end_ns: Vec<Ns> = (0..trace.nodes.len()).map(|i| of(i, 1)).collect();
        let figures = figures::figures(trace, &start_ns, &end_ns);
        let path: CriticalPath = path::critical_path(trace, &time, &cause);
        Replay { start_ns, end_ns, figures, path }
    }
}

/// Points of the threads in order.
fn host_arcs(trace: &LinkedTrace, list: &mut Vec<(u32, Arc)>) {
    // What each host event waits for besides its own thread: the latest device operation, and other threads.
    let mut waits: HashMap<u32, Ns> = HashMap::new();
    let mut woken: HashMap<u32, ()> = HashMap::new();
    for e in &trace.edges {
        let Some(from) = trace.node(e.from) else { continue };
        match e.kind {
            EdgeKind::Host => {
                let slot = waits.entry(event(e.to, e.to_end)).or_insert(Ns::MIN);
                *slot = (*slot).max(from.end_ns());
            }
            EdgeKind::Wake => {
                woken.insert(event(e.to, e.to_end), ());
            }
            _ => {}
        }
    }
    let mut spans: Vec<Vec<Span>> = vec![Vec::new(); trace.threads.len()];
    for (i, n) in (0u32..).zip(&trace.nodes) {
        if !n.kind.on_device()
            && n.timed
            && let Some(thread) = spans.get_mut(n.place as usize)
        {
            thread.push(Span { start: n.start_ns, end: n.end_ns(), rank: kind_rank(n.kind), node: i });
        }
    }
    let mut rest: HashMap<u32, Ns> = HashMap::new(); // what a waiting call needs after its wait
    for thread in spans {
        let points = nest(thread).points;
        let mut before: Option<crate::trace::link::nest::Point> = None;
        let mut depth = 0i64; // operators and calls open; annotations do no work
        for p in points {
            let to = event(p.node, p.end);
            match before {
                None if woken.contains_key(&to) => {}
                None => list.push((to, Arc { from: NONE, takes: p.at, kind: ArcKind::Release })),
                Some(b) => {
                    let mut takes = p.at - b.at;
                    if let Some(&until) = waits.get(&to) {
                        takes = p.at - until.clamp(b.at, p.at);
                        rest.insert(to, takes);
                    } else if woken.contains_key(&to) {
                        takes = 0;
                    }
                    let kind = if depth > 0 { ArcKind::Host } else { ArcKind::Outside };
                    list.push((to, Arc { from: event(b.node, b.end), takes, kind }));
                }
            }
            if trace.node(p.node).is_some_and(|n| n.kind != NodeKind::Annotation) {
                depth += if p.end == End::Start { 1 } else { -1 };
            }
            before = Some(p);
        }
    }
    for e in &trace.edges {
        let (from, to) = (event(e.from, e.from_end), event(e.to, e.to_end));
        let at = |node: u32, end: End| trace.node(node).map_or(0, |n| n.at(end));
        let (takes, kind) = match e.kind {
            EdgeKind::Host => (rest.get(&to).copied().unwrap_or(0), ArcKind::HostWait),
            EdgeKind::Wake => (at(e.to, e.to_end) - at(e.from, e.from_end), ArcKind::Wake),
            EdgeKind::Backward => (0, ArcKind::Backward),
            _ => continue,
        };
        list.push((to, Arc { from, takes, kind }));
    }
}

/// Operations of the devices; returns the time that nothing explains, by kind of operation, and where it is longest.
fn device_arcs(
    trace: &LinkedTrace,
    held: &[Held],
    typical: &Typical,
    delays: Delays,
    list: &mut Vec<(u32, Arc)>,
) -> ([Ns; 4], Vec<(Ns, u32)>) {
    let mut unexplained = [0; 4];
    let mut longest: Vec<(Ns, u32)> = Vec::new();
    for (i, n) in (0u32..).zip(&trace.nodes) {
        if !n.kind.on_device() || !n.timed {
            continue;
        }
        let (start, end) = (event(i, End::Start), event(i, End::Finish));
        list.push((end, Arc { from: start, takes: 0, kind: ArcKind::Device }));
        let Some(h) = held.get(i as usize) else { continue };
        if h.call.is_none() {
            list.push((start, Arc { from: NONE, takes: n.start_ns, kind: ArcKind::Release }));
        } else {
            let c = delays::column(n.kind, n.device());
            let launch = h.call.map(|t| t + typical.launch_ns.get(c).copied().unwrap_or(0));
            let stream =
                h.stream.map(|t| if h.overlaps { n.start_ns } else { t + typical.gap_ns.get(c).copied().unwrap_or(0) });
            let event = h.event.map(|t| t + typical.across(h.in_graph));
            let explained = launch.max(stream).max(event).unwrap_or(n.start_ns);
            let late = (n.start_ns - explained).max(0);
            if let Some(sum) = unexplained.get_mut(c) {
                *sum += late;
            }
            let at = longest.partition_point(|l| l.0 >= late);
            if late > 0 && at < MOST_UNEXPLAINED {
                longest.insert(at, (late, i));
                longest.truncate(MOST_UNEXPLAINED);
            }
        }
    }
    for e in &trace.edges {
        let Some((n, h)) = trace.node(e.to).zip(held.get(e.to as usize)) else { continue };
        let Some(from) = trace.node(e.from) else { continue };
        let c = delays::column(n.kind, n.device());
        let at = from.at(e.from_end);
        let (usual, kind) = match e.kind {
            EdgeKind::Launch => (typical.launch_ns.get(c).copied().unwrap_or(0), ArcKind::Launch),
            // Started early on purpose: how early is the trace's own knowledge.
            EdgeKind::Stream if e.from_end == End::Start => (n.start_ns - at, ArcKind::Gap),
            EdgeKind::Stream => (typical.gap_ns.get(c).copied().unwrap_or(0), ArcKind::Gap),
            EdgeKind::Event | EdgeKind::Graph => (typical.across(e.kind == EdgeKind::Graph), ArcKind::Event),
            _ => continue,
        };
        // The cause that came last decided when it was recorded: its delay is the recorded one, the others' at most that.
        let last = h.call.max(h.ready());
        let recorded = n.start_ns - at;
        let takes = match delays {
            // What a stream did before the trace is not known: its first operation keeps the delay it had, if nothing else explains it.
            Delays::Typical if kind == ArcKind::Launch && h.stream.is_none() && unknown_past(n, h, usual, typical) => {
                recorded
            }
            Delays::Typical => usual,
            Delays::Recorded if Some(at) == last => recorded,
            Delays::Recorded => usual.min(recorded),
        };
        list.push((event(e.to, e.to_end), Arc { from: event(e.from, e.from_end), takes, kind }));
    }
    (unexplained, longest)
}

/// Whether the first operation of a stream began later than its launch and other streams explain.
fn unknown_past(n: &LinkedNode, h: &Held, usual: Ns, typical: &Typical) -> bool {
    let launched = h.call.map(|t| t.saturating_add(usual));
    let released = h.event.map(|t| t.saturating_add(typical.across(h.in_graph)));
    launched.max(released).is_some_and(|t| t < n.start_ns)
}

/// Whether an operation is one of the kinds that [`super::Figures`] sums as communication.
pub(super) fn communicates(node: &LinkedNode) -> bool {
    node.kind == NodeKind::Kernel && node.is_communication()
}
