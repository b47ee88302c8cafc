//! From a linked trace to a Chakra `.et` that simulators read.
//!
//! As Chakra's converter does, host operators become computation nodes chained in the order in which each thread entered them (the depth-first
//! order of its call tree), and device operations depend on the operator that caused them. Kept besides, which the converter
//! loses: the order of each stream, waits of streams for events, waits of the host for the device and of threads for each other; start and
//! duration; kind, bytes, element type, group and peers of communication. Node ids ascend, and every dependency is on a
//! smaller id: the graph has no cycle and no dangling dependency.

mod comm;

pub use comm::{CommCall, Groups, comm_call, element_bytes, host_calls, recorded_call};

use super::Text;
use super::chakra::{Attr, CommGroups, Io, Metadata, Node, NodeType, Scalar, VERSION, Writer};
use super::link::file::micros;
use super::link::{EdgeKind, End, Facts, HostFacts, LinkedNode, LinkedTrace, NodeKind, Ns, unlink};
use super::replay::retime::amounts;
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
    extra: HashMap<u32, Vec<u32>>,
    /// Collectives of the host, each followed by a node of its own.
    host_calls: HashMap<u32, (CommCall, u64)>,
    /// FLOP and bytes of kernels, where known.
    amounts: HashMap<u32, (f64, f64)>,
}

/// Attributes that most nodes have room for.
const USUAL_ATTRS: usize = 16;

/// The attribute names, made once.
struct Names {
    all: Vec<(&'static str, Text)>,
}

impl Names {
    fn get(&mut self, name: &'static str) -> Text {
        // A place in the program names the same literal each time: comparing addresses is enough, and quick.
        if let Some((_, text)) = self.all.iter().find(|(known, _)| std::ptr::eq(*known, name)) {
            return text.clone();
        }
        let text: Text = name.into();
        self.all.push((name, text.clone()));
        text
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
        let mut conversion = Self {
            trace,
            groups: Groups::new(trace, known),
            report: ConvertReport::default(),
            ids,
            own_ns: own_times(trace, &waited),
            extra: HashMap::new(),
            host_calls,
            amounts: HashMap::new(),
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
            let host = unlink::host_trace(self.trace, path).map_err(|e| e.to_string())?;
            self.amounts = amounts(self.trace, &host)?;
        }
        Ok(self)
    }

    /// Collectives and messages whose bytes are not recorded, by name with their number.
    pub fn unknown_sizes(&self) -> BTreeMap<String, usize> {
        let device = self.trace.device_nodes().filter_map(|i| self.trace.node(i)).filter(|n| n.is_communication());
        let device = device.filter_map(|n| comm_call(self.trace, n));
        let mut found = BTreeMap::new();
        for call in device.chain(self.host_calls.values().map(|(call, _)| call.clone())) {
            if comm::simulated(call.clone()).bytes == 0 {
                *found.entry(call.name.to_string()).or_default() += 1;
            }
        }
        found
    }

    fn id(&self, node: u32) -> Option<u64> {
        self.ids.get(node as usize).copied().flatten()
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
        let mut extra: HashMap<u32, Vec<u32>> = HashMap::new();
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
            let at = |n: &LinkedNode, end: End| if end == End::Start { n.start_ns } else { n.end_ns() };
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
                        after(b.place, at(b, e.to_end))
                    };
                    add(before(a.place, at(a, e.from_end)), to, report);
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
    pub fn nodes(&mut self, mut sink: impl FnMut(&Node) -> io::Result<()>) -> io::Result<()> {
        let trace = self.trace;
        let mut names = Names { all: Vec::new() };
        // The last node of each thread: an operator, or the host's collective after it.
        let mut last: Vec<Option<u64>> = vec![None; trace.threads.len()];
        for (i, node) in (0u32..).zip(&trace.nodes) {
            let Some(id) = self.id(i) else { continue };
            let mut deps: Vec<u64> = Vec::new();
            if let Some(from) = self.extra.get(&i) {
                deps.extend(from.iter().filter_map(|&f| self.id(f)));
            }
            let on_device = node.kind.on_device();
            let mut parent = node.parent;
            while let Some(p) = parent.filter(|&p| self.id(p).is_none()) {
                parent = trace.node(p).and_then(|n| n.parent);
            }
            let parent = parent.and_then(|p| self.id(p));
            if on_device {
                deps.extend(parent);
            } else if let Some(slot) = last.get_mut(node.place as usize) {
                deps.extend(slot.replace(id));
            }
            deps.sort_unstable();
            deps.dedup();
            self.report.dependencies += deps.len();
            let mut out = if on_device {
                self.device_node(id, i, node, &mut names)
            } else {
                self.host_node(id, i, node, &mut names)
            };
            out.data_deps = deps;
            out.ctrl_deps.extend(parent);
            self.count(&out);
            sink(&out)?;
            if let Some((call, dur_ns)) = self.host_calls.get(&i).cloned() {
                let mut out = Node::new(id + 1, call.name.clone(), NodeType::Comp);
                out.data_deps.push(id);
                out.ctrl_deps.push(id);
                self.times(&mut out, node, dur_ns, &mut names);
                out.attrs.push(Attr::new(names.get("is_cpu_op"), Scalar::Bool(false)));
                self.communication(&mut out, &call, node, &mut names);
                self.report.dependencies += 1;
                self.count(&out);
                sink(&out)?;
                // The caller of a synchronous collective goes on after it.
                let waits = node.collective.as_ref().is_none_or(|c| c.asynchronous != Some(true));
                if waits && let Some(slot) = last.get_mut(node.place as usize) {
                    *slot = Some(id + 1);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, node: &Node) {
        *self.report.nodes.entry(node.kind.name()).or_default() += 1;
    }

    fn times(&self, out: &mut Node, node: &LinkedNode, dur_ns: u64, names: &mut Names) {
        out.start_micros = u64::try_from(node.start_ns).unwrap_or(0) / 1000;
        out.duration_micros = micros(dur_ns);
        if node.timed {
            out.attrs.push(Attr::new(names.get("start_ns"), Scalar::Int64(node.start_ns)));
            out.attrs.push(Attr::new(
                names.get("duration_ns"),
                Scalar::Int64(i64::try_from(node.dur_ns).unwrap_or(i64::MAX)),
            ));
        }
    }

    fn host_node(&self, id: u64, i: u32, node: &LinkedNode, names: &mut Names) -> Node {
        // The groups are in the file of groups; a metadata node would have to be one that the simulator can parse.
        let mut out = Node::new(id, node.name.clone(), NodeType::Comp);
        out.attrs.reserve_exact(USUAL_ATTRS);
        let own = self.own_ns.get(i as usize).copied().unwrap_or(0);
        self.times(&mut out, node, own, names);
        if node.timed {
            out.attrs.push(Attr::new(names.get("exclusive_ns"), Scalar::Int64(i64::try_from(own).unwrap_or(i64::MAX))));
        }
        out.attrs.push(Attr::new(names.get("is_cpu_op"), Scalar::Bool(true)));
        if let Facts::Host(facts) = &node.facts {
            host_facts(&mut out, facts, names);
        }
        out
    }

    fn device_node(&mut self, id: u64, i: u32, node: &LinkedNode, names: &mut Names) -> Node {
        let mut out = Node::new(id, node.name.clone(), NodeType::Comp);
        out.attrs.reserve_exact(USUAL_ATTRS);
        self.times(&mut out, node, node.dur_ns, names);
        out.attrs.push(Attr::new(names.get("is_cpu_op"), Scalar::Bool(false)));
        if let Some(Facts::Host(facts)) = node.parent.and_then(|p| self.trace.node(p)).map(|n| &n.facts) {
            host_facts(&mut out, facts, names);
        }
        if let Some(s) = self.trace.streams.get(node.place as usize) {
            out.attrs.push(Attr::new(names.get("stream"), Scalar::Int64(s.stream)));
            out.attrs.push(Attr::new(names.get("device"), Scalar::Int64(s.device)));
        }
        if let Some(d) = node.device() {
            out.attrs.push(Attr::new(names.get("correlation"), Scalar::Int64(d.correlation)));
            if let Some(bytes) = d.bytes {
                out.attrs.push(Attr::new(names.get("bytes"), Scalar::Uint64(bytes)));
            }
        }
        // Simulators divide by either, and skip a node without bytes.
        let moved = node.device().and_then(|d| d.bytes).map(|b| (0.0, b as f64));
        if let Some((flop, bytes)) = self.amounts.get(&i).copied().or(moved) {
            let whole = |x: f64| x.ceil().max(1.0);
            out.attrs.push(Attr::new(names.get("num_ops"), Scalar::Int64(whole(flop) as i64)));
            out.attrs.push(Attr::new(names.get("tensor_size"), Scalar::Uint64(whole(bytes) as u64)));
        }
        if node.is_communication() {
            match comm_call(self.trace, node) {
                Some(call) => self.communication(&mut out, &call, node, names),
                None => *self.report.unknown_communication.entry(node.name.to_string()).or_default() += 1,
            }
        }
        out
    }

    fn communication(&mut self, out: &mut Node, call: &CommCall, node: &LinkedNode, names: &mut Names) {
        let call = &comm::simulated(call.clone());
        let count = self.report.communication.entry(call.word().to_owned()).or_default();
        count.0 += 1;
        count.1 = count.1.saturating_add(call.bytes);
        comm::attributes(out, call, node, self.trace, &self.groups, |name| names.get(name));
    }
}

fn host_facts(out: &mut Node, f: &HostFacts, names: &mut Names) {
    let int = |v: u64| Scalar::Int64(i64::try_from(v).unwrap_or(i64::MAX));
    for (name, value) in [
        ("rf_id", int(f.rf_id.unwrap_or(0))),
        ("fw_parent", int(f.fw_parent)),
        ("seq_id", Scalar::Int64(f.seq_id)),
        ("scope", int(f.scope)),
        ("tid", int(f.tid)),
        ("fw_tid", int(f.fw_tid)),
        ("op_schema", Scalar::String(f.op_schema.clone())),
    ] {
        out.attrs.push(Attr::new(names.get(name), value));
    }
    let io = |io: &super::link::Io| {
        Some(Io { values: io.values.clone(), shapes: io.shapes.clone(), types: io.types.clone(), unknown: Vec::new() })
    };
    (out.inputs, out.outputs) = (io(&f.inputs), io(&f.outputs));
}

/// Time that each call spent waiting for the device.
fn waited(trace: &LinkedTrace) -> HashMap<u32, Ns> {
    let mut waited: HashMap<u32, Ns> = HashMap::new();
    for e in trace.edges.iter().filter(|e| e.kind == EdgeKind::Host) {
        if let (Some(op), Some(call)) = (trace.node(e.from), trace.node(e.to)) {
            let slot = waited.entry(e.to).or_default();
            *slot = (*slot).max(op.end_ns().min(call.end_ns()) - call.start_ns);
        }
    }
    waited
}

/// Time of each host node without that of the operators in it and without waiting for the device.
fn own_times(trace: &LinkedTrace, waited: &HashMap<u32, Ns>) -> Vec<u64> {
    let mut own: Vec<i64> =
        trace.nodes.iter().map(|n| if n.timed { i64::try_from(n.dur_ns).unwrap_or(i64::MAX) } else { 0 }).collect();
    for (i, n) in (0u32..).zip(&trace.nodes) {
        if n.kind.on_device() || !n.timed {
            continue;
        }
        // What is in a call belongs to the operator around the call; of calls only the waiting counts.
        let mut parent = n.parent;
        while let Some(p) = parent.and_then(|p| trace.node(p)).filter(|p| p.kind == NodeKind::Call) {
            parent = p.parent;
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
    conversion.nodes(|node| writer.node(node))
}
