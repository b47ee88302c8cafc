//! From a linked trace to a Chakra `.et` that simulators read.
//!
//! As Chakra's converter does, host operators become computation nodes chained in the order in which each thread entered them (the depth-first
//! order of its call tree), and device operations depend on the operator that caused them. Kept besides, which the converter
//! loses: the order of each stream, waits of streams for events, waits of the host for the device and of threads for each other; start and
//! duration; kind, bytes, element type, group and peers of communication. Node ids ascend, and every dependency is on a
//! smaller id: the graph has no cycle and no dangling dependency.

mod comm;

pub use comm::{CommCall, Groups, HostCall, comm_call, element_bytes, host_calls, recorded_call};

use super::chakra::{Attr, CommGroups, CommType, Made, Metadata, NodeType, Scalar, VERSION, Writer};
use super::host::HostTrace;
use super::link::file::micros;
use super::link::{EdgeKind, End, Facts, HostFacts, LinkedNode, LinkedTrace, NodeKind, Ns, unlink};
use super::replay::retime::amounts;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;

/// What was converted, and what was left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConvertReport {
    /// Nodes by kind.
    pub nodes: BTreeMap<String, usize>,
    /// Collectives and point-to-point operations by kind, with their number and the sum of their bytes.
    pub communication: BTreeMap<String, (usize, u64)>,
    /// Dependencies.
    pub dependencies: usize,
    /// Dependencies left out because the recorded order contradicts them.
    pub against_order: usize,
    /// Names of communication kernels of unknown kind, kept as computation, with their number.
    pub unknown_communication: BTreeMap<String, usize>,
}

/// A conversion prepared: nodes are made one by one.
pub struct Conversion<'a> {
    trace: &'a LinkedTrace,
    /// Process groups as simulators want them.
    pub groups: Groups,
    /// Counts; complete once every node was made.
    pub report: ConvertReport,
    /// Id of each node; none for those that are no node of the output.
    ids: Vec<Option<u64>>,
    /// Host time of each node without that of its callees and without waiting.
    own_ns: Vec<u64>,
    /// Ids each node depends on besides its thread's order.
    extra: HashMap<u32, Vec<u32>, RandomState>,
    /// Collectives of the host, each followed by a node of its own.
    host_calls: HashMap<u32, HostCall>,
    /// The callers of those that another node carries out, by that node.
    carried: HashMap<u32, u32>,
    /// Bytes of communication nodes, by id, where not their own.
    pub sizes: BTreeMap<u64, u64>,
    /// FLOP and bytes of kernels, where known.
    amounts: HashMap<u32, (f64, f64)>,
    /// What they were counted in. Held to the end, since a program that ends with the conversion need not take it apart.
    pub counted: Option<HostTrace>,
    /// Whether each node communicates.
    communicates: Vec<bool>,
}

/// Nanoseconds that whole microseconds so far lack. Most host nodes take less than one: rounded each by itself, ten thousand of them would be some
/// milliseconds longer or shorter than their thread was.
#[derive(Clone, Copy, Default)]
struct Rest(i64);

impl Rest {
    /// Whole microseconds of the next node, so that those of all nodes so far add up to their time.
    fn micros(&mut self, ns: u64) -> u64 {
        let open = self.0.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX));
        let whole = open.saturating_add(500).div_euclid(1000).max(0);
        self.0 = open - whole * 1000;
        whole.unsigned_abs()
    }
}

impl<'a> Conversion<'a> {
    /// Plans the conversion of a linked trace.
    pub fn new(trace: &'a LinkedTrace, known: &CommGroups) -> Self {
        let host_calls = comm::host_calls(trace);
        let mut ids = Vec::with_capacity(trace.nodes.len());
        let mut next = 0u64;
        for (i, node) in (0u32..).zip(&trace.nodes) {
            if node.kind == NodeKind::Call {
                ids.push(None);
                continue;
            }
            ids.push(Some(next));
            next += 1 + u64::from(host_calls.contains_key(&i));
        }
        let waited = waited(trace);
        let mut own_ns = own_times(trace, &waited);
        // The time of a collective is its own node's.
        for of in host_calls.values() {
            if let Some(own) = own_ns.get_mut(of.carrier as usize) {
                *own = 0;
            }
        }
        let carried = host_calls.iter().filter(|(caller, of)| of.carrier != **caller);
        let carried = carried.map(|(caller, of)| (of.carrier, *caller)).collect();
        let mut conversion = Self {
            trace,
            groups: Groups::new(trace, known),
            report: ConvertReport::default(),
            ids,
            own_ns,
            extra: HashMap::default(),
            host_calls,
            carried,
            sizes: BTreeMap::new(),
            amounts: HashMap::new(),
            counted: None,
            communicates: trace.communicating(),
        };
        conversion.plan_edges();
        conversion
    }

    /// Takes FLOP and bytes of kernels from the host trace in the linked one; without one, kernels have their time alone.
    ///
    /// # Errors
    /// Arguments that cannot be read, in words.
    pub fn with_amounts(mut self, path: &Path) -> Result<Self, String> {
        if self.trace.nodes.iter().any(|n| n.host().is_some()) {
            let host = unlink::counted(self.trace, path).map_err(|e| e.to_string())?;
            self.amounts = amounts(self.trace, &host, &self.communicates)?;
            self.counted = Some(host);
        }
        Ok(self)
    }

    /// Collectives and messages whose bytes are not recorded, by name with their number.
    pub fn unknown_sizes(&self) -> BTreeMap<String, usize> {
        let device = self.trace.nodes.iter().zip(&self.communicates).filter(|(_, c)| **c).map(|(n, _)| n);
        let device = device.filter_map(|n| comm_call(self.trace, n));
        let mut found = BTreeMap::new();
        for call in device.chain(self.host_calls.values().map(|of| of.call.clone())) {
            if call.bytes == 0 && call.collective != Some(CommType::Barrier) {
                *found.entry(call.name.to_string()).or_default() += 1;
            }
        }
        found
    }

    fn id(&self, node: u32) -> Option<u64> {
        self.ids.get(node as usize).copied().flatten()
    }

    /// The node that is ended when this one is: where it waits for a collective of its own, that of the collective.
    fn done(&self, node: u32) -> Option<u64> {
        let id = self.id(node)?;
        Some(id + u64::from(self.host_calls.contains_key(&node) && self.waits(node)))
    }

    /// Whether the caller of a collective goes on after it.
    fn waits(&self, caller: u32) -> bool {
        let collective = self.trace.node(caller).and_then(|n| n.collective.as_ref());
        collective.is_none_or(|c| c.asynchronous != Some(true))
    }

    /// Edges between points become dependencies between nodes.
    fn plan_edges(&mut self) {
        let trace = self.trace;
        // Operators of each thread by start: what a point of time on a thread comes after and before.
        let mut entered: Vec<Vec<(Ns, u32)>> = vec![Vec::new(); trace.threads.len()];
        for (i, n) in (0u32..).zip(&trace.nodes) {
            if n.timed
                && matches!(n.kind, NodeKind::Operator | NodeKind::Annotation)
                && let Some(list) = entered.get_mut(n.place as usize)
            {
                list.push((n.start_ns, i));
            }
        }
        let before = |thread: u32, t: Ns| {
            let list = entered.get(thread as usize)?;
            list.get(list.partition_point(|&(s, _)| s <= t).checked_sub(1)?).map(|&(_, i)| i)
        };
        let after = |thread: u32, t: Ns| {
            let list = entered.get(thread as usize)?;
            list.get(list.partition_point(|&(s, _)| s < t)).map(|&(_, i)| i)
        };
        let mut extra: HashMap<u32, Vec<u32>, RandomState> = HashMap::default();
        let mut add = |from: Option<u32>, to: Option<u32>, report: &mut ConvertReport| {
            let (Some(from), Some(to)) = (from, to) else { return };
            if from < to {
                extra.entry(to).or_default().push(from);
            } else if from != to {
                report.against_order += 1;
            }
        };
        for e in &trace.edges {
            let (Some(a), Some(b)) = (trace.node(e.from), trace.node(e.to)) else { continue };
            let report = &mut self.report;
            match e.kind {
                EdgeKind::Launch => {}
                EdgeKind::Stream | EdgeKind::Event | EdgeKind::Graph => add(Some(e.from), Some(e.to), report),
                EdgeKind::Host => add(Some(e.from), after(b.place, b.end_ns()), report),
                EdgeKind::Backward => add(Some(e.from), Some(e.to), report),
                EdgeKind::Wake => {
                    let to = if e.to_end == End::Start && b.kind != NodeKind::Call {
                        Some(e.to)
                    } else {
                        after(b.place, b.at(e.to_end))
                    };
                    add(before(a.place, a.at(e.from_end)), to, report);
                }
            }
        }
        // A device operation whose call is in no operator depends on the last one entered before the call.
        for i in trace.device_nodes() {
            let Some(n) = trace.node(i).filter(|n| n.parent.is_none()) else { continue };
            if let Some(call) = n.launch.and_then(|l| trace.node(l)) {
                add(before(call.place, call.start_ns), Some(i), &mut self.report);
            }
        }
        self.extra = extra;
    }

    /// Makes the nodes in order and hands each on.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn nodes(&mut self, mut sink: impl FnMut(&Made<'a>) -> io::Result<()>) -> io::Result<()> {
        let trace = self.trace;
        let mut out = Made::default();
        let mut counts: BTreeMap<NodeType, usize> = BTreeMap::new();
        // The last node of each thread: an operator, or the host's collective after it.
        let mut last: Vec<Option<u64>> = vec![None; trace.threads.len()];
        let mut rests = [trace.threads.len(), trace.streams.len()].map(|places| vec![Rest::default(); places]);
        for (i, node) in (0u32..).zip(&trace.nodes) {
            let Some(id) = self.id(i) else { continue };
            out.begin(id, &node.name, NodeType::Comp);
            let deps = &mut out.data_deps;
            if let Some(from) = self.extra.get(&i) {
                deps.extend(from.iter().filter_map(|&f| self.done(f)));
            }
            // Who carries out a collective is through when it is.
            deps.extend(self.carried.get(&i).and_then(|caller| self.id(*caller)).map(|id| id + 1).filter(|d| *d < id));
            let on_device = node.kind.on_device();
            let parent = operator(trace, node.parent).and_then(|p| self.id(p));
            if on_device {
                deps.extend(parent);
            } else if let Some(slot) = last.get_mut(node.place as usize) {
                deps.extend(slot.replace(id));
            }
            deps.sort_unstable();
            deps.dedup();
            self.report.dependencies += deps.len();
            out.ctrl_deps.extend(parent);
            let ns = if on_device { node.dur_ns } else { self.own(i) };
            let rest = rests[usize::from(on_device)].get_mut(node.place as usize);
            times(&mut out, node, rest.map_or_else(|| micros(ns), |rest| rest.micros(ns)));
            if on_device {
                self.device_node(&mut out, i, node);
            } else {
                self.host_node(&mut out, i, node);
            }
            *counts.entry(out.kind).or_default() += 1;
            sink(&out)?;
            if let Some(HostCall { call, dur_ns, .. }) = self.host_calls.get(&i).cloned() {
                // Its name lives in the trace, too.
                let name = node.collective.as_deref().and_then(|c| c.name.as_deref()).unwrap_or(&node.name);
                out.begin(id + 1, name, NodeType::Comp);
                out.data_deps.push(id);
                out.ctrl_deps.push(id);
                times(&mut out, node, micros(dur_ns));
                out.flag("is_cpu_op", false);
                self.communication(&mut out, &call, node);
                self.report.dependencies += 1;
                *counts.entry(out.kind).or_default() += 1;
                sink(&out)?;
                // The caller of a synchronous collective goes on after it.
                if self.waits(i)
                    && let Some(slot) = last.get_mut(node.place as usize)
                {
                    *slot = Some(id + 1);
                }
            }
        }
        for (kind, n) in counts {
            *self.report.nodes.entry(kind.name()).or_default() += n;
        }
        Ok(())
    }

    /// Nanoseconds of a host node without those of its callees and without waiting.
    fn own(&self, node: u32) -> u64 {
        self.own_ns.get(node as usize).copied().unwrap_or(0)
    }

    fn host_node(&self, out: &mut Made<'a>, i: u32, node: &'a LinkedNode) {
        // The groups are in the file of groups; a metadata node would have to be one that the simulator can parse.
        if node.timed {
            out.int("exclusive_ns", i64::try_from(self.own(i)).unwrap_or(i64::MAX));
        }
        out.flag("is_cpu_op", true);
        // What an operator has a device do is its kernels'.
        self.amount(out, self.amounts.get(&i).copied().unwrap_or_default(), 0.0);
        if let Facts::Host(facts) = &node.facts {
            host_facts(out, facts);
        }
    }

    fn device_node(&mut self, out: &mut Made<'a>, i: u32, node: &LinkedNode) {
        out.flag("is_cpu_op", false);
        let trace = self.trace;
        if let Some(Facts::Host(facts)) = node.parent.and_then(|p| trace.node(p)).map(|n| &n.facts) {
            host_facts(out, facts);
        }
        if let Some(s) = trace.streams.get(node.place as usize) {
            out.int("stream", s.stream);
            out.int("device", s.device);
        }
        if let Some(d) = node.device() {
            out.int("correlation", d.correlation);
            if let Some(bytes) = d.bytes {
                out.uint("bytes", bytes);
            }
        }
        // Simulators divide by either, and skip a node without bytes.
        let moved = node.device().and_then(|d| d.bytes).map(|b| (0.0, b as f64));
        if let Some(amount) = self.amounts.get(&i).copied().or(moved) {
            self.amount(out, amount, 1.0);
        }
        if self.communicates.get(i as usize) == Some(&true) {
            match comm_call(trace, node) {
                Some(call) => self.communication(out, &call, node),
                None => *self.report.unknown_communication.entry(node.name.to_string()).or_default() += 1,
            }
        }
    }

    /// FLOP and bytes of a node, at least so much.
    fn amount(&self, out: &mut Made<'a>, (flop, bytes): (f64, f64), least: f64) {
        let whole = |x: f64| x.ceil().max(least);
        out.int("num_ops", whole(flop) as i64);
        out.uint("tensor_size", whole(bytes) as u64);
    }

    fn communication(&mut self, out: &mut Made<'a>, call: &CommCall, node: &LinkedNode) {
        let mut call = comm::simulated(call.clone());
        call.bytes = self.sizes.get(&out.id).copied().unwrap_or(call.bytes);
        let call = &call;
        let count = self.report.communication.entry(call.word().to_owned()).or_default();
        count.0 += 1;
        count.1 = count.1.saturating_add(call.bytes);
        comm::attributes(out, call, node, self.trace, &self.groups);
    }
}

fn times(out: &mut Made<'_>, node: &LinkedNode, duration_micros: u64) {
    out.start_micros = u64::try_from(node.start_ns).unwrap_or(0) / 1000;
    out.duration_micros = duration_micros;
    if node.timed {
        out.int("start_ns", node.start_ns);
        out.int("duration_ns", i64::try_from(node.dur_ns).unwrap_or(i64::MAX));
    }
}

fn host_facts<'a>(out: &mut Made<'a>, f: &'a HostFacts) {
    let int = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
    out.int("rf_id", int(f.rf_id.unwrap_or(0)));
    out.int("fw_parent", int(f.fw_parent));
    out.int("seq_id", f.seq_id);
    out.int("scope", int(f.scope));
    out.int("tid", int(f.tid));
    out.int("fw_tid", int(f.fw_tid));
    out.text("op_schema", &f.op_schema);
    (out.inputs, out.outputs) = (Some(texts(&f.inputs)), Some(texts(&f.outputs)));
}

fn texts(io: &super::link::Io) -> [&str; 3] {
    [&io.values, &io.shapes, &io.types]
}

/// The node itself, or where it is a call what the call is in.
fn operator(trace: &LinkedTrace, mut node: Option<u32>) -> Option<u32> {
    while let Some(call) = node.and_then(|i| trace.node(i)).filter(|n| n.kind == NodeKind::Call) {
        node = call.parent;
    }
    node
}

/// Time that each call spent waiting for the device, and each host node for other threads.
fn waited(trace: &LinkedTrace) -> HashMap<u32, Ns> {
    let mut waited: HashMap<u32, Ns> = HashMap::new();
    for (node, ns) in paused(trace) {
        *waited.entry(node).or_default() += ns;
    }
    for e in trace.edges.iter().filter(|e| e.kind == EdgeKind::Host) {
        if let (Some(op), Some(call)) = (trace.node(e.from), trace.node(e.to)) {
            let slot = waited.entry(e.to).or_default();
            *slot = (*slot).max(op.end_ns().min(call.end_ns()) - call.start_ns);
        }
    }
    waited
}

/// Time that host nodes spent waiting for other threads: from the last thing that was recorded on their own until the other one's point after which it went on.
/// A node may stand there several times.
fn paused(trace: &LinkedTrace) -> Vec<(u32, Ns)> {
    let wakes = || trace.edges.iter().filter(|e| e.kind == EdgeKind::Wake);
    if wakes().next().is_none() {
        return Vec::new();
    }
    let mut points: Vec<Vec<Ns>> = vec![Vec::new(); trace.threads.len()];
    for node in trace.nodes.iter().filter(|n| n.timed && !n.kind.on_device()) {
        if let Some(points) = points.get_mut(node.place as usize) {
            points.extend([node.start_ns, node.end_ns()]);
        }
    }
    points.iter_mut().for_each(|points| points.sort_unstable());
    let paused = |e: &super::link::Edge| {
        let (from, to) = (trace.node(e.from)?, trace.node(e.to)?);
        let (woken, until) = (from.at(e.from_end), to.at(e.to_end));
        let own = points.get(to.place as usize)?;
        let since = own.get(own.partition_point(|t| *t < until).checked_sub(1)?)?;
        // Until it ends a node itself waits, until it starts the one around it.
        let waits = operator(trace, if e.to_end == End::Finish { Some(e.to) } else { to.parent })?;
        Some((waits, woken.min(until).saturating_sub(*since).max(0)))
    };
    wakes().filter_map(paused).collect()
}

/// Time of each host node without that of the operators in it and without waiting for the device or for other threads.
fn own_times(trace: &LinkedTrace, waited: &HashMap<u32, Ns>) -> Vec<u64> {
    let mut own: Vec<i64> =
        trace.nodes.iter().map(|n| if n.timed { i64::try_from(n.dur_ns).unwrap_or(i64::MAX) } else { 0 }).collect();
    for (i, n) in (0u32..).zip(&trace.nodes) {
        if n.kind.on_device() || !n.timed {
            continue;
        }
        // What is in a call belongs to the operator around the call; of calls only the waiting counts.
        let parent = operator(trace, n.parent);
        if n.kind != NodeKind::Call
            && let Some(own) = own.get_mut(i as usize)
        {
            *own = own.saturating_sub(waited.get(&i).copied().unwrap_or(0).max(0));
        }
        let less = match n.kind {
            NodeKind::Call => waited.get(&i).copied().unwrap_or(0),
            _ => i64::try_from(n.dur_ns).unwrap_or(i64::MAX),
        };
        if let Some(slot) = parent.and_then(|p| own.get_mut(p as usize)) {
            *slot = slot.saturating_sub(less.max(0));
        }
    }
    own.into_iter().map(|t| u64::try_from(t).unwrap_or(0)).collect()
}

/// The metadata of a converted trace.
pub fn metadata(trace: &LinkedTrace) -> Metadata {
    let schema = trace.host_schema.clone().unwrap_or_else(|| "kineto".into());
    let mut attrs =
        vec![Attr::new("schema", Scalar::String(schema)), Attr::new("origin_ns", Scalar::Int64(trace.origin_ns))];
    attrs.extend(trace.rank.map(|r| Attr::new("rank", Scalar::Uint64(r))));
    attrs.extend(trace.world_size.map(|w| Attr::new("world_size", Scalar::Uint64(w))));
    Metadata { version: VERSION.into(), attrs, unknown: Vec::new() }
}

/// Converts and writes to a writer.
///
/// # Errors
/// Those of the writer underneath.
pub fn write_to(trace: &LinkedTrace, conversion: &mut Conversion<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer::new(out, &metadata(trace))?;
    conversion.nodes(|node| writer.made(node))
}
