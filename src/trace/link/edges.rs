//! What waited for what.
//!
//! Recorded: launches by correlation, the order of a stream, and the profiler's synchronisation events (`cuda_sync`), which say what
//! each synchronising call waited for. Older traces have no such events; there the habits of the runtime decide, and an edge is
//! only kept if the recorded times allow it (nothing starts before what it waited for has ended). Such edges are marked as inferred.

use super::nest::{Nest, Point};
use super::waits::{self, Wait};
use super::{Edge, EdgeKind, End, Facts, LinkReport, LinkedTrace, NodeKind, Ns, Stream};
use crate::trace::kineto::{Category, Event};
use std::collections::{HashMap, HashSet};

/// Clocks of host and device, rounded to microseconds in older traces, agree to about this.
const SLACK: Ns = 2_000;
/// A pause of a thread that may mean it waited for another one.
const PAUSE: Ns = 50_000;
/// A delay of a graph's operation that one on another stream of the graph explains.
const GRAPH_DELAY: Ns = 5_000;
/// Operations looked at backwards for one that ended in time.
const LOOK_BACK: usize = 64;

/// Operations of a stream in order, with the time by which each was launched.
#[derive(Default)]
struct Lane {
    ops: Vec<u32>,
    launched: Vec<Ns>,
}

impl Lane {
    /// Number of operations launched before a time.
    fn before(&self, t: Ns) -> usize {
        self.launched.partition_point(|&l| l < t)
    }
}

struct Builder<'a> {
    trace: &'a LinkedTrace,
    lanes: Vec<Lane>,
    /// Launches of each thread in order: time, operation.
    launches: Vec<Vec<(Ns, u32)>>,
    stream_of: HashMap<Stream, usize>,
    origin: i64,
    edges: Vec<Edge>,
    contradicted: usize,
}

/// Adds all edges. `event_of` gives the event of each node, `nests` the order of each thread.
pub(super) fn add(
    trace: &mut LinkedTrace,
    events: &[Event],
    event_of: &[Option<u32>],
    nests: &[Nest],
    report: &mut LinkReport,
) {
    let mut b = Builder::new(trace, events, event_of);
    b.launch_and_stream();
    let profiler_knows = events.iter().any(|e| e.category == Category::Sync);
    let syncs: HashMap<i64, &Event> =
        events.iter().filter(|e| e.category == Category::Sync).filter_map(|e| e.correlation.map(|c| (c, e))).collect();
    b.stream_waits(events, profiler_knows);
    b.host_waits(events, event_of, &syncs);
    b.graphs();
    b.wakes(nests);
    b.backward(events, event_of);
    report.contradicted = b.contradicted;
    let edges = b.edges;
    trace.edges = edges;
}

impl<'a> Builder<'a> {
    fn new(trace: &'a LinkedTrace, events: &[Event], event_of: &[Option<u32>]) -> Self {
        let mut lanes: Vec<Lane> = Vec::new();
        lanes.resize_with(trace.streams.len(), Lane::default);
        let mut launches = vec![Vec::new(); trace.threads.len()];
        let mut device: Vec<u32> = trace.device_nodes().collect();
        device.sort_by_key(|&i| (trace.node(i).map(|n| (n.start_ns, n.end_ns())), i));
        for &i in &device {
            let Some(node) = trace.node(i) else { continue };
            let call = node.launch.and_then(|l| trace.node(l));
            let launched = call.map_or(node.start_ns, |c| c.start_ns);
            if let Some(lane) = lanes.get_mut(node.place as usize) {
                // Streams are first in, first out: an operation is launched no earlier than those before it.
                let launched = lane.launched.last().copied().unwrap_or(Ns::MIN).max(launched);
                lane.ops.push(i);
                lane.launched.push(launched);
            }
            if let Some(list) = call.and_then(|c| launches.get_mut(c.place as usize)) {
                list.push((launched, i));
            }
        }
        for list in &mut launches {
            list.sort_unstable();
        }
        let stream_of = trace.streams.iter().enumerate().map(|(i, &s)| (s, i)).collect();
        // The origin was subtracted from all times: any timed node tells it.
        let origin = event_of
            .iter()
            .zip(&trace.nodes)
            .find_map(|(e, n)| Some(events.get((*e)? as usize)?.ts_ns.saturating_sub(n.start_ns)))
            .unwrap_or(0);
        Self { trace, lanes, launches, stream_of, origin, edges: Vec::new(), contradicted: 0 }
    }

    fn push(&mut self, from: (u32, End), to: (u32, End), kind: EdgeKind, inferred: bool) {
        if from.0 != to.0 {
            self.edges.push(Edge { from: from.0, from_end: from.1, to: to.0, to_end: to.1, kind, inferred });
        }
    }

    fn start(&self, i: u32) -> Ns {
        self.trace.node(i).map_or(Ns::MIN, |n| n.start_ns)
    }

    fn end(&self, i: u32) -> Ns {
        self.trace.node(i).map_or(Ns::MIN, |n| n.end_ns())
    }

    fn launch_and_stream(&mut self) {
        let mut found = Vec::new();
        for lane in &self.lanes {
            for pair in lane.ops.windows(2) {
                let &[before, after] = pair else { continue };
                // What overlaps on one stream was started early on purpose (programmatic launch, branches of a graph).
                let overlaps = self.start(after) < self.end(before).saturating_sub(SLACK);
                let end = if overlaps { End::Start } else { End::Finish };
                found.push(((before, end), (after, End::Start), EdgeKind::Stream));
            }
        }
        for i in self.trace.device_nodes() {
            if let Some(call) = self.trace.node(i).and_then(|n| n.launch) {
                found.push(((call, End::Start), (i, End::Start), EdgeKind::Launch));
            }
        }
        for (from, to, kind) in found {
            self.push(from, to, kind, false);
        }
    }

    /// One stream waits for an event recorded on another.
    fn stream_waits(&mut self, events: &[Event], profiler_knows: bool) {
        let mut found: HashSet<(u32, u32)> = HashSet::new();
        if profiler_knows {
            let called: HashMap<i64, Ns> = events
                .iter()
                .filter(|e| e.category.is_call() && e.name.contains("Event"))
                .filter_map(|e| Some((e.correlation?, e.ts_ns.saturating_sub(self.origin))))
                .collect();
            for e in events.iter().filter(|e| e.category == Category::Sync) {
                let Some(sync) = e.sync() else { continue };
                if !sync.kind.as_deref().unwrap_or(&e.name).contains("Wait Event") {
                    continue;
                }
                let device = e.device.or(e.pid.number()).unwrap_or(0);
                let lane = |stream: Option<i64>| {
                    let stream = Stream { device, stream: stream? };
                    self.lanes.get(*self.stream_of.get(&stream)?)
                };
                let (Some(source), Some(target)) = (lane(sync.on_stream), lane(e.stream)) else { continue };
                let at = e.ts_ns.saturating_sub(self.origin);
                let waited = e.correlation.and_then(|c| called.get(&c).copied()).unwrap_or(at);
                let recorded = sync.on_correlation.and_then(|c| called.get(&c).copied()).unwrap_or(waited);
                let from = source.before(recorded).checked_sub(1).and_then(|k| source.ops.get(k));
                let to = target.ops.get(target.before(waited));
                let (Some(&from), Some(&to)) = (from, to) else { continue };
                if self.end(from) > self.start(to).saturating_add(SLACK) {
                    self.contradicted += 1;
                } else if found.insert((from, to)) {
                    self.push((from, End::Finish), (to, End::Start), EdgeKind::Event, false);
                }
            }
            return;
        }
        let thread_of: HashMap<(i64, i64), usize> =
            self.trace.threads.iter().enumerate().map(|(i, t)| ((t.pid, t.tid), i)).collect();
        for e in events.iter().filter(|e| e.category.is_call() && waits::stream_waits(&e.name)) {
            let thread = e.pid.number().zip(e.tid.number()).and_then(|t| thread_of.get(&t));
            let Some(list) = thread.and_then(|&t| self.launches.get(t)) else { continue };
            let at = e.ts_ns.saturating_sub(self.origin);
            let next = list.partition_point(|&(t, _)| t <= at);
            let (Some(&(_, before)), Some(&(_, to))) = (next.checked_sub(1).and_then(|k| list.get(k)), list.get(next))
            else {
                continue;
            };
            if let Some(from) = self.source_of_wait(at, before, to)
                && found.insert((from, to))
            {
                self.push((from, End::Finish), (to, End::Start), EdgeKind::Event, true);
            }
        }
    }

    /// What a stream waits for when the trace does not say: `before` was launched last before the wait, `to` is launched next.
    fn source_of_wait(&self, at: Ns, before: u32, to: u32) -> Option<u32> {
        let (b, t) = (self.trace.node(before)?, self.trace.node(to)?);
        // A communication library lets its own streams wait right after its launch: bookkeeping that holds back no one.
        if b.is_communication() {
            let own = b.parent.and_then(|o| self.trace.node(o)).is_some_and(|o| o.start_ns <= at && at <= o.end_ns());
            if own {
                return None;
            }
        }
        let lane = if b.place != t.place {
            b.place as usize // the event was recorded on the stream in use, for a stream about to be used
        } else {
            // The stream in use goes on waiting for another: the one used last, communication first.
            let device = self.trace.streams.get(t.place as usize)?.device;
            let others = (0..self.lanes.len())
                .filter(|&s| s != t.place as usize && self.trace.streams.get(s).is_some_and(|x| x.device == device));
            let last = |s: usize| {
                let lane = self.lanes.get(s)?;
                let k = lane.before(at).checked_sub(1)?;
                let communicates = self.trace.node(*lane.ops.get(k)?)?.is_communication();
                Some((communicates, *lane.launched.get(k)?, s))
            };
            others.filter_map(last).max()?.2
        };
        let lane = self.lanes.get(lane)?;
        let k = lane.before(at);
        let ops = lane.ops.get(k.saturating_sub(LOOK_BACK)..k)?;
        ops.iter().rev().copied().find(|&op| self.end(op) <= t.start_ns.saturating_add(SLACK))
    }

    /// The host waits: synchronising calls, blocking copies, memory given back.
    fn host_waits(&mut self, events: &[Event], event_of: &[Option<u32>], syncs: &HashMap<i64, &Event>) {
        let mut recorded: HashMap<i64, Ns> = HashMap::new();
        for e in events.iter().filter(|e| e.category.is_call() && e.name.contains("EventRecord")) {
            if let Some(c) = e.correlation {
                recorded.insert(c, e.ts_ns.saturating_sub(self.origin));
            }
        }
        let mut found: Vec<(u32, u32, bool)> = Vec::new();
        for (i, node) in (0u32..).zip(&self.trace.nodes) {
            if node.kind == NodeKind::Memcpy {
                // A copy that had ended when its call returned was waited for.
                if let Some(call) = node.launch.filter(|&c| self.end(c) >= node.end_ns()) {
                    found.push((i, call, true));
                }
                continue;
            }
            let Some(wait) = (node.kind == NodeKind::Call).then(|| waits::of(&node.name)).flatten() else { continue };
            let event = event_of.get(i as usize).copied().flatten().and_then(|e| events.get(e as usize));
            let sync = event.and_then(|e| e.correlation).and_then(|c| syncs.get(&c).copied());
            // The last operation of a stream launched before a time.
            let last = |lane: &Lane, t: Ns| lane.before(t).checked_sub(1).and_then(|k| lane.ops.get(k).copied());
            let lane_of = |device: Option<i64>, stream: Option<i64>| {
                let stream = Stream { device: device.unwrap_or(0), stream: stream? };
                self.lanes.get(*self.stream_of.get(&stream)?)
            };
            match wait {
                Wait::Device => {
                    let device = sync.and_then(|s| s.device);
                    for (s, lane) in self.lanes.iter().enumerate() {
                        let other = device.is_some_and(|d| self.trace.streams.get(s).is_some_and(|x| x.device != d));
                        if !other && let Some(op) = last(lane, node.start_ns) {
                            found.push((op, i, false));
                        }
                    }
                }
                Wait::Stream => {
                    let known = sync.and_then(|s| lane_of(s.device, s.stream));
                    if let Some(lane) = known {
                        if let Some(op) = last(lane, node.start_ns) {
                            found.push((op, i, false));
                        }
                    } else if sync.is_none()
                        && let Some(op) = self.stream_in_use(node.place, node.start_ns)
                    {
                        found.push((op, i, true));
                    }
                }
                Wait::Event => {
                    let known = sync.and_then(|s| {
                        let detail = s.sync()?;
                        let at = detail.on_correlation.and_then(|c| recorded.get(&c).copied()).unwrap_or(node.start_ns);
                        let op = last(lane_of(s.device, detail.on_stream.or(s.stream))?, at)?;
                        Some(op)
                    });
                    match known {
                        Some(op) => found.push((op, i, false)),
                        None => found.extend(self.explains(i).map(|op| (op, i, true))),
                    }
                }
                Wait::Free => found.extend(self.explains(i).map(|op| (op, i, true))),
            }
        }
        for (op, call, inferred) in found {
            if self.end(op) > self.end(call).saturating_add(SLACK) {
                self.contradicted += usize::from(!inferred);
            } else {
                self.push((op, End::Finish), (call, End::Finish), EdgeKind::Host, inferred);
            }
        }
    }

    /// What a thread launched last before a time: of a graph, the operation that ends last.
    fn stream_in_use(&self, thread: u32, t: Ns) -> Option<u32> {
        let list = self.launches.get(thread as usize)?;
        let launched = list.get(..list.partition_point(|&(at, _)| at < t))?;
        let call = self.trace.node(launched.last()?.1)?.launch;
        let same = launched.iter().rev().take_while(|(_, op)| self.trace.node(*op).is_some_and(|n| n.launch == call));
        same.map(|&(_, op)| op).max_by_key(|&op| self.end(op))
    }

    /// The operation launched before a call and ended last within it: what the call waited for, if the trace does not say.
    fn explains(&self, call: u32) -> Option<u32> {
        let (start, end) = (self.start(call), self.end(call));
        let candidate = |lane: &Lane| {
            let k = lane.before(start);
            let ops = lane.ops.get(k.saturating_sub(LOOK_BACK)..k)?;
            ops.iter().rev().copied().find(|&op| self.end(op) <= end).filter(|&op| self.end(op) > start)
        };
        self.lanes.iter().filter_map(candidate).max_by_key(|&op| self.end(op))
    }

    /// Order among the streams of one launched graph, from times: the launch says nothing about the graph's inside.
    fn graphs(&mut self) {
        let mut members: HashMap<u32, Vec<u32>> = HashMap::new();
        for i in self.trace.device_nodes() {
            let Some(node) = self.trace.node(i) else { continue };
            if let (Facts::Device(d), Some(call)) = (&node.facts, node.launch)
                && d.graph
            {
                members.entry(call).or_default().push(i);
            }
        }
        let mut calls: Vec<(u32, Vec<u32>)> = members.into_iter().collect();
        calls.sort_unstable_by_key(|(call, _)| *call);
        for (call, mut ops) in calls {
            ops.sort_by_key(|&i| (self.start(i), i));
            let mut by_end = ops.clone();
            by_end.sort_by_key(|&i| (self.end(i), i));
            let mut free: HashMap<u32, Ns> = HashMap::new(); // end of the last operation on a stream
            for &op in &ops {
                let Some(node) = self.trace.node(op) else { continue };
                let ready = free.get(&node.place).copied().unwrap_or_else(|| self.start(call));
                free.insert(node.place, node.end_ns());
                if node.start_ns <= ready.saturating_add(GRAPH_DELAY) {
                    continue;
                }
                let k = by_end.partition_point(|&i| self.end(i) <= node.start_ns);
                let ended = by_end.get(k.saturating_sub(LOOK_BACK)..k).unwrap_or_default();
                let other =
                    ended.iter().rev().copied().find(|&i| self.trace.node(i).is_some_and(|n| n.place != node.place));
                if let Some(from) = other.filter(|&i| self.end(i) > ready) {
                    self.push((from, End::Finish), (op, End::Start), EdgeKind::Graph, true);
                }
            }
        }
    }

    /// A thread pauses while another one works and goes on when that one pauses: it waited for it. (The thread that called
    /// `backward` and the autograd thread alternate like this.)
    fn wakes(&mut self, nests: &[Nest]) {
        if nests.len() < 2 {
            return;
        }
        let mut all: Vec<(Ns, u32, Point)> = Vec::new();
        for (thread, nest) in (0u32..).zip(nests) {
            all.extend(nest.points.iter().map(|&p| (p.at, thread, p)));
        }
        all.sort_by_key(|&(at, thread, _)| (at, thread));
        let mut last: Vec<Option<usize>> = vec![None; nests.len()]; // each thread's last point
        let mut found = Vec::new();
        for (k, &(at, thread, p)) in all.iter().enumerate() {
            let before = last.get(thread as usize).copied().flatten();
            if let Some(slot) = last.get_mut(thread as usize) {
                *slot = Some(k);
            }
            let other = k.checked_sub(1).and_then(|i| all.get(i));
            let Some(&(t, from_thread, from)) = other else { continue };
            let waits = match before.and_then(|i| all.get(i).map(|x| (i, x))) {
                None => from_thread != thread && at.saturating_sub(t) < 1_000_000_000,
                Some((i, &(since, _, previous))) => {
                    let inside_call =
                        previous.node == p.node && self.trace.node(p.node).is_some_and(|n| n.kind == NodeKind::Call);
                    let first = all.get(i + 1).map_or(at, |x| x.0);
                    at - since >= PAUSE && i + 1 < k && !inside_call && 2 * ((first - since) + (at - t)) <= at - since
                }
            };
            if waits {
                found.push(((from.node, from.end), (p.node, p.end)));
            }
        }
        for (from, to) in found {
            self.push(from, to, EdgeKind::Wake, true);
        }
    }

    /// From the operator that autograd's sequence number names to the backward operator of that number.
    fn backward(&mut self, events: &[Event], event_of: &[Option<u32>]) {
        let of = |i: u32| -> Option<(i64, bool)> {
            let event = event_of.get(i as usize).copied().flatten().and_then(|e| events.get(e as usize))?;
            let host = self.trace.node(i).and_then(|n| n.host());
            let sequence = event.sequence.or_else(|| host.map(|h| h.seq_id)).filter(|&s| s >= 0)?;
            let backward = event.fwd_thread.unwrap_or(0) > 0 || host.is_some_and(|h| h.fw_tid > 0 || h.scope == 1);
            Some((sequence, backward))
        };
        let mut forward: HashMap<i64, u32> = HashMap::new();
        let mut later = Vec::new();
        for (i, node) in (0u32..).zip(&self.trace.nodes) {
            if node.kind != NodeKind::Operator || !node.timed {
                continue;
            }
            match of(i) {
                // The last operator of a number made the graph's node.
                Some((s, false)) => {
                    let slot = forward.entry(s).or_insert(i);
                    if self.start(*slot) <= node.start_ns {
                        *slot = i;
                    }
                }
                Some((s, true)) if node.parent.and_then(of) != Some((s, true)) => later.push((i, s)),
                _ => {}
            }
        }
        for (i, s) in later {
            if let Some(&f) = forward.get(&s).filter(|&&f| self.end(f) <= self.start(i)) {
                self.push((f, End::Finish), (i, End::Start), EdgeKind::Backward, false);
            }
        }
    }
}
