//! Linking: the host trace and the device trace of one run become one graph.
//!
//! The device trace knows times, threads, streams and synchronisation; the host trace knows tensors, schemas and process groups.
//! [`link()`] matches their operators (`matching.rs`), nests each thread's operators and calls by time (`nest.rs`), gives every kernel, copy
//! and fill its launch and the operator that caused it, and keeps as edges what waited for what (`edges.rs`). A device trace alone is
//! enough: its own operators then are the host side.

mod align;
mod calls;
mod edges;
pub mod file;
mod io;
mod matching;
mod model;
pub(crate) mod nest;
mod report;
mod waits;

pub use align::align;
pub use matching::Matching;
pub use model::*;
pub use report::{EdgeCount, LinkReport, OpCount};

use crate::trace::host::{HostTrace, ProcessGroup};
use crate::trace::kineto::{Category, Event, KinetoTrace};
use crate::trace::{Collective, Text};
use matching::Candidate;
use nest::{Nest, Span};
use std::collections::{BTreeMap, HashMap};

/// Nodes that a linked trace may have: places of starts and ends are counted in 32 bits.
pub const MOST_NODES: usize = 1 << 30;

/// What part of a trace is linked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Steps {
    /// All of it; steps need not be marked.
    #[default]
    All,
    /// The profiler's steps of these numbers.
    Numbers(Vec<u64>),
}

/// Why two traces cannot be linked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No operator of the host trace is in the device trace.
    #[error(
        "none of the {host} operators of the host trace is among the {device} of the device trace, neither by record-function id \
         nor by external id nor by name: the traces are of different programs (host trace begins with {first_host:?}, \
         device trace with {first_device:?})"
    )]
    NothingMatched {
        /// Operators of the host trace.
        host: usize,
        /// Operators of the device trace.
        device: usize,
        /// First operator there.
        first_host: String,
        /// First operator here.
        first_device: String,
    },
    /// No kernel has a launch.
    #[error(
        "none of the {0} device operations has the correlation of a runtime or driver call, nor the external id of an operator: \
         record the trace with CPU activity too"
    )]
    NoLaunch(usize),
    /// There is no such step.
    #[error("step {wanted} is not in the trace; {there}")]
    NoStep {
        /// The step.
        wanted: u64,
        /// What there is.
        there: String,
    },
    /// There is nothing to link.
    #[error("the device trace holds no operator, no runtime call and no device operation")]
    Empty,
    /// More nodes than places have numbers.
    #[error("the trace holds {0} events; at most 1073741824 can be linked")]
    TooLarge(usize),
}

/// Events that become nodes, by what they are.
struct Chosen {
    /// Operators, annotations and calls, with their thread.
    host: Vec<(u32, u32)>,
    /// Device operations, with their stream.
    device: Vec<(u32, u32)>,
    threads: Vec<Thread>,
    streams: Vec<Stream>,
}

/// Links a host trace and a device trace, or a device trace alone.
///
/// # Errors
/// [`LinkError`]: nothing matched, no step of that number, nothing there.
pub fn link(
    host: Option<&HostTrace>,
    device: &KinetoTrace,
    steps: &Steps,
) -> Result<(LinkedTrace, LinkReport), LinkError> {
    let events = &device.events;
    if events.len().saturating_add(host.map_or(0, |h| h.nodes.len())) > MOST_NODES {
        return Err(LinkError::TooLarge(events.len()));
    }
    let mut report = LinkReport::default();
    let mut chosen = choose(events);
    if chosen.host.is_empty() && chosen.device.is_empty() {
        return Err(LinkError::Empty);
    }
    let matching = match host {
        Some(host) => Some(match_host(host, events, &chosen, &mut report)?),
        None => None,
    };
    keep_steps(events, &mut chosen, steps)?;
    report.steps = match steps {
        Steps::All => Vec::new(),
        Steps::Numbers(numbers) => numbers.clone(),
    };

    let origin =
        chosen.host.iter().chain(&chosen.device).filter_map(|(e, _)| events.get(*e as usize)).map(|e| e.ts_ns).min();
    let origin = origin.unwrap_or(0);
    let mut draft = Draft::new(events, origin, &chosen);
    draft.host_nodes(&chosen, host, matching.as_ref());
    draft.device_nodes(&chosen, &mut report);
    if report.device_total() > 0 && report.device_owned() == 0 && report.device_launched() == 0 {
        return Err(LinkError::NoLaunch(report.device_total()));
    }
    if let (Some(host), Some(matching)) = (host, matching.as_ref()) {
        draft.untimed_nodes(host, matching, *steps == Steps::All);
    }
    let Draft { mut nodes, event_of, nests, .. } = draft;
    inherit_collectives(&mut nodes);

    let mut trace = LinkedTrace {
        origin_ns: origin.saturating_add(device.base_time_ns.unwrap_or(0)),
        host_schema: host.map(|h| Text::from(h.schema.as_str())),
        rank: device.distributed.rank,
        world_size: device.distributed.world_size,
        groups: groups(host, device, &nodes),
        threads: chosen.threads,
        streams: chosen.streams,
        nodes,
        edges: Vec::new(),
    };
    only_group(&mut trace);
    edges::add(&mut trace, events, &event_of, &nests, &mut report);
    report::edges(&trace, &mut report);
    order(&mut trace);
    Ok((trace, report))
}

/// Which events become nodes. Of the calls only those that launch, wait or record: the others' time stays in the operator around them.
fn choose(events: &[Event]) -> Chosen {
    let mut caused: HashMap<i64, ()> = HashMap::new();
    for e in events.iter().filter(|e| e.category.on_device() || e.category == Category::Sync) {
        if let Some(c) = e.correlation {
            caused.insert(c, ());
        }
    }
    let mut threads: Vec<Thread> = Vec::new();
    let mut streams: Vec<Stream> = Vec::new();
    let mut thread_of: HashMap<Thread, u32> = HashMap::new();
    let mut stream_of: HashMap<Stream, u32> = HashMap::new();
    let (mut host, mut device) = (Vec::new(), Vec::new());
    for (i, e) in (0u32..).zip(events) {
        let number = |track: &crate::trace::kineto::Track| track.number().unwrap_or(-1);
        let on_host = match e.category {
            Category::CpuOp | Category::UserAnnotation => true,
            Category::Runtime | Category::Driver => {
                e.correlation.is_some_and(|c| caused.contains_key(&c)) || waits::matters(&e.name)
            }
            _ => false,
        };
        if on_host {
            let thread = Thread { pid: number(&e.pid), tid: number(&e.tid) };
            let place = *thread_of.entry(thread).or_insert_with(|| {
                threads.push(thread);
                threads.len() as u32 - 1
            });
            host.push((i, place));
        } else if e.category.on_device() {
            let stream = Stream {
                device: e.device.unwrap_or_else(|| number(&e.pid)),
                stream: e.stream.unwrap_or_else(|| number(&e.tid)),
            };
            let place = *stream_of.entry(stream).or_insert_with(|| {
                streams.push(stream);
                streams.len() as u32 - 1
            });
            device.push((i, place));
        }
    }
    Chosen { host, device, threads, streams }
}

fn is_operator(event: &Event) -> bool {
    matches!(event.category, Category::CpuOp | Category::UserAnnotation)
}

fn match_host(
    host: &HostTrace,
    events: &[Event],
    chosen: &Chosen,
    report: &mut LinkReport,
) -> Result<Matching, LinkError> {
    let mut candidates: Vec<Candidate> = chosen
        .host
        .iter()
        .filter(|(e, _)| events.get(*e as usize).is_some_and(is_operator))
        .map(|&(event, thread)| Candidate { event, thread })
        .collect();
    // An operator and its first callee may begin in the same microsecond: the profiler numbered them in the order of their starts.
    candidates.sort_by_key(|c| {
        let e = events.get(c.event as usize);
        (e.map(|e| (e.ts_ns, e.event_index, e.external_id, -e.dur_ns)), c.event)
    });
    let matching = matching::matching(host, events, &candidates);
    let operators = host.nodes.iter().filter(|n| !n.is_root()).count();
    let matched = matching.event_of.iter().flatten().count();
    if operators > 0 && matched == 0 {
        let first = candidates.first().and_then(|c| events.get(c.event as usize)).map_or("", |e| &e.name);
        return Err(LinkError::NothingMatched {
            host: operators,
            device: candidates.len(),
            first_host: host.nodes.iter().find(|n| !n.is_root()).map_or(String::new(), |n| n.name.to_string()),
            first_device: first.to_owned(),
        });
    }
    report.matched(host, events, &candidates.iter().map(|c| c.event).collect::<Vec<_>>(), &matching);
    Ok(matching)
}

/// Drops what is outside the steps asked for: host events that begin outside, device operations whose launch is outside.
fn keep_steps(events: &[Event], chosen: &mut Chosen, steps: &Steps) -> Result<(), LinkError> {
    let Steps::Numbers(numbers) = steps else { return Ok(()) };
    let mut there: BTreeMap<u64, Vec<(i64, i64)>> = BTreeMap::new();
    for e in events {
        if let Some(n) = e.profiler_step() {
            there.entry(n).or_default().push((e.ts_ns, e.end_ns()));
        }
    }
    let mut ranges = Vec::new();
    for wanted in numbers {
        match there.get(wanted) {
            Some(found) => ranges.extend(found.iter().copied()),
            None => {
                let there = if there.is_empty() {
                    "it has no ProfilerStep annotations: link all of it (no --steps)".to_owned()
                } else {
                    format!("it has {}", there.keys().map(u64::to_string).collect::<Vec<_>>().join(", "))
                };
                return Err(LinkError::NoStep { wanted: *wanted, there });
            }
        }
    }
    let inside = |t: i64| ranges.iter().any(|&(a, b)| a <= t && t < b);
    let begins_inside = |&(e, _): &(u32, u32)| events.get(e as usize).is_some_and(|e| inside(e.ts_ns));
    let calls: HashMap<i64, bool> = chosen
        .host
        .iter()
        .filter_map(|at| events.get(at.0 as usize).filter(|e| e.category.is_call()).map(|e| (e, begins_inside(at))))
        .filter_map(|(e, kept)| e.correlation.map(|c| (c, kept)))
        .collect();
    chosen.host.retain(begins_inside);
    chosen.device.retain(|at| {
        let correlation = events.get(at.0 as usize).and_then(|e| e.correlation).filter(|&c| c > 0);
        correlation.and_then(|c| calls.get(&c).copied()).unwrap_or_else(|| begins_inside(at))
    });
    Ok(())
}

/// Nodes in the making.
struct Draft<'a> {
    events: &'a [Event],
    origin: i64,
    nodes: Vec<LinkedNode>,
    /// Event of each node; none for untimed ones.
    event_of: Vec<Option<u32>>,
    /// One a thread.
    nests: Vec<Nest>,
}

impl<'a> Draft<'a> {
    fn new(events: &'a [Event], origin: i64, chosen: &Chosen) -> Self {
        let n = chosen.host.len() + chosen.device.len();
        Self { events, origin, nodes: Vec::with_capacity(n), event_of: Vec::with_capacity(n), nests: Vec::new() }
    }

    fn push(&mut self, event: u32, kind: NodeKind, place: u32) -> Option<u32> {
        let e = self.events.get(event as usize)?;
        self.nodes.push(LinkedNode {
            name: e.name.clone(),
            kind,
            place,
            start_ns: e.ts_ns.saturating_sub(self.origin),
            dur_ns: u64::try_from(e.dur_ns).unwrap_or(0),
            timed: true,
            parent: None,
            launch: None,
            collective: e.collective().cloned().map(Box::new),
            facts: Facts::None,
        });
        self.event_of.push(Some(event));
        Some(self.nodes.len() as u32 - 1)
    }

    /// Operators, annotations and calls, nested.
    fn host_nodes(&mut self, chosen: &Chosen, host: Option<&HostTrace>, matching: Option<&Matching>) {
        let mut host_of: HashMap<u32, u32> = HashMap::new();
        if let Some(matching) = matching {
            host_of.extend((0u32..).zip(&matching.event_of).filter_map(|(i, e)| e.map(|e| (e, i))));
        }
        let mut spans: Vec<Vec<Span>> = vec![Vec::new(); chosen.threads.len()];
        for &(event, thread) in &chosen.host {
            let Some(e) = self.events.get(event as usize) else { continue };
            let (kind, rank) = match e.category {
                Category::UserAnnotation => (NodeKind::Annotation, 0),
                Category::CpuOp if e.profiler_step().is_some() => (NodeKind::Annotation, 0),
                Category::CpuOp => (NodeKind::Operator, 1),
                _ => (NodeKind::Call, 2),
            };
            let Some(i) = self.push(event, kind, thread) else { continue };
            if let Some(node) = self.nodes.get_mut(i as usize) {
                if let Some(n) = host.zip(host_of.get(&event)).and_then(|(h, &n)| h.nodes.get(n as usize)) {
                    if node.collective.is_none() {
                        node.collective = n.collective.clone().or_else(|| calls::collective(n).map(Box::new));
                    } else if let (Some(c), Some(more)) = (&mut node.collective, &n.collective) {
                        complete(c, more);
                    }
                    node.facts = Facts::Host(Box::new(io::facts(n)));
                }
                if let Some(list) = spans.get_mut(thread as usize) {
                    list.push(Span { start: node.start_ns, end: node.end_ns(), rank, node: i });
                }
            }
        }
        for list in spans {
            let nested = nest::nest(list);
            for &(node, parent) in &nested.order {
                if let Some(n) = self.nodes.get_mut(node as usize) {
                    n.parent = parent;
                }
            }
            self.nests.push(nested);
        }
    }

    /// Kernels, copies and fills, each with its launch and the operator that caused it.
    fn device_nodes(&mut self, chosen: &Chosen, report: &mut LinkReport) {
        let mut calls: HashMap<i64, Vec<u32>> = HashMap::new();
        let mut operators: HashMap<i64, u32> = HashMap::new();
        for (i, e) in (0u32..).zip(&self.event_of) {
            let Some(e) = e.and_then(|e| self.events.get(e as usize)) else { continue };
            if e.category.is_call() {
                if let Some(c) = e.correlation.filter(|&c| c > 0) {
                    calls.entry(c).or_default().push(i);
                }
            } else if let Some(id) = e.external_id.filter(|&id| id > 0) {
                operators.entry(id).or_insert(i);
            }
        }
        for list in calls.values_mut() {
            list.sort_by_key(|&i| self.nodes.get(i as usize).map(|n| n.start_ns));
        }
        for &(event, stream) in &chosen.device {
            let Some(e) = self.events.get(event as usize) else { continue };
            let kind = match e.category {
                Category::Kernel => NodeKind::Kernel,
                Category::Memcpy => NodeKind::Memcpy,
                _ => NodeKind::Memset,
            };
            let correlation = e.correlation.filter(|&c| c > 0);
            let start = e.ts_ns.saturating_sub(self.origin);
            // A runtime call and the driver call inside it may share the number: the outer one is first. Numbers may also come again
            // in another process: then the last call before the operation is meant.
            let launch = correlation.and_then(|c| calls.get(&c)).and_then(|list| {
                let at = |i: u32| self.nodes.get(i as usize).map_or((0, 0), |n| (n.start_ns, n.end_ns()));
                let last = list.iter().copied().rfind(|&i| at(i).0 <= start).or_else(|| list.first().copied())?;
                list.iter().copied().find(|&i| at(i).0 <= at(last).0 && at(last).1 <= at(i).1)
            });
            let called = launch.and_then(|l| self.nodes.get(l as usize));
            let graph = called.is_some_and(|n| n.name.contains("GraphLaunch")) || e.graph_node.is_some_and(|g| g != 0);
            let mut owner = called.and_then(|n| n.parent);
            while let Some(n) = owner.and_then(|o| self.nodes.get(o as usize)) {
                match n.kind {
                    NodeKind::Operator => break,
                    NodeKind::Annotation if !n.is_step() => break,
                    _ => owner = n.parent,
                }
            }
            if launch.is_none() {
                owner = e.external_id.and_then(|id| operators.get(&id).copied());
            }
            report.device(kind, graph, correlation.is_some(), launch.is_some(), owner.is_some());
            let bytes = e.bytes;
            if let Some(i) = self.push(event, kind, stream)
                && let Some(node) = self.nodes.get_mut(i as usize)
            {
                node.parent = owner;
                node.launch = launch;
                node.facts = Facts::Device(DeviceFacts { correlation: correlation.unwrap_or(0), bytes, graph });
            }
        }
    }

    /// Host operators that were never timed: after the operator before them.
    fn untimed_nodes(&mut self, host: &HostTrace, matching: &Matching, all: bool) {
        let node_of_event: HashMap<u32, u32> =
            (0u32..).zip(&self.event_of).filter_map(|(i, e)| e.map(|e| (e, i))).collect();
        let mut order: Vec<usize> = (0..host.nodes.len()).collect();
        order.sort_by_key(|&i| host.nodes.get(i).map(|n| n.id));
        let mut last: HashMap<u64, u32> = HashMap::new(); // observer's thread -> node
        let mut of_id: HashMap<u64, u32> = HashMap::new();
        let mut first_of_thread: HashMap<u64, u32> = HashMap::new();
        for &i in &order {
            let timed = matching.event_of.get(i).copied().flatten().and_then(|e| node_of_event.get(&e));
            if let (Some(n), Some(&node)) = (host.nodes.get(i), timed) {
                first_of_thread.entry(n.tid).or_insert(node);
            }
        }
        for i in order {
            let Some(n) = host.nodes.get(i).filter(|n| !n.is_root()) else { continue };
            if let Some(event) = matching.event_of.get(i).copied().flatten() {
                if let Some(&node) = node_of_event.get(&event) {
                    last.insert(n.tid, node);
                    of_id.insert(n.id, node);
                }
                continue;
            }
            if !all && !n.name.contains("process_group:init") {
                continue;
            }
            let before =
                last.get(&n.tid).or_else(|| first_of_thread.get(&n.tid)).and_then(|&b| self.nodes.get(b as usize));
            let (place, start_ns) = before.map_or((0, 0), |b| (b.place, b.start_ns));
            let start_ns = if last.contains_key(&n.tid) { start_ns } else { 0 };
            self.nodes.push(LinkedNode {
                name: n.name.clone(),
                kind: NodeKind::Operator,
                place,
                start_ns,
                dur_ns: 0,
                timed: false,
                parent: of_id.get(&n.parent).copied(),
                launch: None,
                collective: n.collective.clone().or_else(|| calls::collective(n).map(Box::new)),
                facts: Facts::Host(Box::new(io::facts(n))),
            });
            self.event_of.push(None);
            of_id.insert(n.id, self.nodes.len() as u32 - 1);
        }
    }
}

/// Fills what one record of a collective leaves open from another.
fn complete(c: &mut Collective, more: &Collective) {
    macro_rules! fill {
        ($($field:ident),*) => { $( if c.$field.is_none() { c.$field.clone_from(&more.$field); } )* };
    }
    fill!(
        name,
        dtype,
        in_elems,
        out_elems,
        rank_start,
        rank_stride,
        group,
        group_desc,
        group_size,
        rank,
        src,
        dst,
        seq,
        asynchronous
    );
    if c.in_split.is_empty() {
        c.in_split.clone_from(&more.in_split);
    }
    if c.out_split.is_empty() {
        c.out_split.clone_from(&more.out_split);
    }
    if c.group_ranks.is_empty() {
        c.group_ranks.clone_from(&more.group_ranks);
    }
}

/// A communication kernel knows what the call around it knows.
fn inherit_collectives(nodes: &mut [LinkedNode]) {
    for i in 0..nodes.len() {
        let Some(node) = nodes.get(i).filter(|n| n.is_communication()) else { continue };
        let mut at = node.parent;
        let mut found = None;
        while let Some(n) = at.and_then(|a| nodes.get(a as usize)) {
            if n.collective.is_some() {
                found.clone_from(&n.collective);
                break;
            }
            at = n.parent;
        }
        if let (Some(more), Some(node)) = (found, nodes.get_mut(i)) {
            match &mut node.collective {
                Some(c) => complete(c, &more),
                none => *none = Some(more),
            }
        }
    }
}

/// Process groups: announced by either trace, or known from the collectives alone.
fn groups(host: Option<&HostTrace>, device: &KinetoTrace, nodes: &[LinkedNode]) -> Vec<Group> {
    let mut found: BTreeMap<String, Group> = BTreeMap::new();
    let mut add = |group: Group| {
        if group.name.is_empty() {
            return;
        }
        let known =
            found.entry(group.name.clone()).or_insert_with(|| Group { name: group.name.clone(), ..Group::default() });
        if known.desc.is_empty() {
            known.desc = group.desc;
        }
        if known.ranks.is_empty() {
            known.ranks = group.ranks;
        }
        known.size =
            known.size.or(group.size).or_else(|| (!known.ranks.is_empty()).then_some(known.ranks.len() as u64));
    };
    let announced =
        |g: &ProcessGroup| Group { name: g.name.clone(), desc: g.desc.clone(), ranks: g.ranks.clone(), size: g.size };
    let of_host = host.map(HostTrace::process_groups).unwrap_or_default();
    for g in of_host.iter().chain(&device.distributed.groups) {
        add(announced(g));
    }
    for c in nodes.iter().filter_map(|n| n.collective.as_deref()) {
        let Some(name) = &c.group else { continue };
        let mut ranks = c.group_ranks.clone();
        if let (true, Some(first), Some(stride), Some(size)) =
            (ranks.is_empty(), c.rank_start, c.rank_stride, c.group_size)
            && size <= 1 << 20
            && first >= 0
            && stride > 0
        {
            ranks = (0..size as i64)
                .filter_map(|i| u64::try_from(first.checked_add(stride.checked_mul(i)?)?).ok())
                .collect();
        }
        let desc = c.group_desc.as_deref().unwrap_or_default().to_owned();
        add(Group { name: name.to_string(), desc, ranks, size: c.group_size });
    }
    // A group of all ranks is announced without a list.
    let world = device.distributed.world_size;
    for group in found.values_mut() {
        if group.ranks.is_empty()
            && group.size.is_some()
            && group.size == world
            && group.size.is_some_and(|s| s <= 1 << 20)
        {
            group.ranks = (0..group.size.unwrap_or(0)).collect();
        }
    }
    found.into_values().collect()
}

/// Where there is one group only, it is that of every collective.
fn only_group(trace: &mut LinkedTrace) {
    let [only] = trace.groups.as_slice() else { return };
    let name: Text = only.name.as_str().into();
    for c in trace.nodes.iter_mut().filter_map(|n| n.collective.as_mut()) {
        if c.group.is_none() {
            c.group = Some(name.clone());
        }
    }
}

/// Puts every node after what it needs to begin, and renumbers.
fn order(trace: &mut LinkedTrace) {
    let n = trace.nodes.len();
    // Time at which a node may begin at the earliest by the clocks, which do not agree to the last.
    let mut time: Vec<Ns> = trace.nodes.iter().map(|n| n.start_ns).collect();
    let mut device: Vec<u32> = trace.device_nodes().collect();
    device.sort_by_key(|&i| (trace.node(i).map(|n| n.start_ns), i));
    let mut last_of_stream: HashMap<u32, Ns> = HashMap::new();
    for &i in &device {
        let Some(node) = trace.nodes.get(i as usize) else { continue };
        let of = |place: Option<u32>| place.and_then(|p| time.get(p as usize).copied()).unwrap_or(Ns::MIN);
        let before = last_of_stream.get(&node.place).copied().unwrap_or(Ns::MIN);
        let t = node.start_ns.max(of(node.parent)).max(of(node.launch)).max(before);
        last_of_stream.insert(node.place, t);
        if let Some(slot) = time.get_mut(i as usize) {
            *slot = t;
        }
    }
    // Rank in a thread or stream: the nest's order for host nodes, that of start for device nodes.
    let mut rank = vec![0u32; n];
    let mut host_nodes: Vec<u32> =
        (0..n as u32).filter(|&i| trace.node(i).is_some_and(|n| !n.kind.on_device())).collect();
    host_nodes.sort_by_key(|&i| {
        trace.node(i).map(|n| (n.place, n.start_ns, !n.timed, std::cmp::Reverse(n.end_ns()), kind_rank(n.kind), i))
    });
    for (r, &i) in (0u32..).zip(host_nodes.iter().chain(&device)) {
        if let Some(slot) = rank.get_mut(i as usize) {
            *slot = r;
        }
    }
    let mut sorted: Vec<u32> = (0..n as u32).collect();
    sorted.sort_by_key(|&i| {
        (
            time.get(i as usize).copied(),
            trace.node(i).map(|n| (n.kind.on_device(), if n.kind.on_device() { 0 } else { n.place })),
            rank.get(i as usize).copied(),
        )
    });
    let mut new = vec![0u32; n];
    for (to, &from) in (0u32..).zip(&sorted) {
        if let Some(slot) = new.get_mut(from as usize) {
            *slot = to;
        }
    }
    let moved = |i: u32| new.get(i as usize).copied().unwrap_or(i);
    let mut old: Vec<Option<LinkedNode>> = std::mem::take(&mut trace.nodes).into_iter().map(Some).collect();
    trace.nodes = sorted.iter().filter_map(|&i| old.get_mut(i as usize).and_then(Option::take)).collect();
    for node in &mut trace.nodes {
        node.parent = node.parent.map(moved);
        node.launch = node.launch.map(moved);
    }
    for edge in &mut trace.edges {
        edge.from = moved(edge.from);
        edge.to = moved(edge.to);
    }
    trace.edges.sort_by_key(|e| (e.to, e.from, e.kind as u8, e.from_end as u8, e.to_end as u8, e.inferred));
    trace.edges.dedup();
}

/// Of two host nodes of the same extent the one with the lower rank is the outer one.
pub(crate) fn kind_rank(kind: NodeKind) -> u8 {
    match kind {
        NodeKind::Annotation => 0,
        NodeKind::Operator => 1,
        _ => 2,
    }
}
