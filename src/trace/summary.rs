//! What a trace holds, counted: `flowspace trace info`.

use super::chakra::{self, Kind, NodeType, graph};
use super::collective::{Call, host_collective};
use super::detect::{self, Format, Loaded};
use super::error::MOST_ERRORS;
use super::link::of_arguments;
use super::{Collective, Text, TraceError, TraceErrors, host, input, kineto};
use foldhash::fast::RandomState;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Figures of one file.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Summary {
    /// The file.
    pub file: String,
    /// Its format.
    pub format: &'static str,
    /// Schema or version, as written.
    pub schema: Option<String>,
    /// Nodes or events.
    pub nodes: u64,
    /// By type or category.
    pub types: Vec<Count>,
    /// Dependencies by kind.
    pub edges: Vec<Count>,
    /// Steps of the profiler.
    pub steps: Vec<Step>,
    /// Collectives and point-to-point calls by type, element type, size and group.
    pub collectives: Vec<CollectiveCount>,
    /// Process groups.
    pub groups: Vec<Group>,
    /// From the first start to the last end, ns.
    pub span_ns: Option<u64>,
    /// The devices of the machine.
    pub devices: Vec<String>,
    /// Backend, rank and world size, where recorded.
    pub rank: Option<u64>,
    /// Number of ranks, where recorded.
    pub world_size: Option<u64>,
    /// Backend of the collectives, where recorded.
    pub backend: Option<String>,
    /// Attributes of Chakra nodes: name and arm.
    pub attributes: Vec<Count>,
    /// Sums of Chakra attributes that carry work: `num_ops`, `tensor_size`.
    pub totals: Vec<Count>,
    /// Records of a Kineto trace that are not complete events, by phase and category.
    pub not_kept: Vec<Count>,
    /// What is odd but was read all the same.
    pub warnings: Vec<String>,
    /// Faults of the graph: the first of each file's many.
    pub faults: Vec<String>,
    /// Number of faults of the graph.
    pub fault_count: u64,
}

/// A name, how often it occurs, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Name.
    pub name: String,
    /// How often, or how much.
    pub count: u64,
    /// Sum of the durations, ns, where recorded. Nested operators are counted each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_ns: Option<u64>,
}

/// A step of the profiler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its number.
    pub number: u64,
    /// Start, ns on the trace's clock.
    pub start_ns: i64,
    /// Duration, ns.
    pub duration_ns: i64,
}

/// Calls of one kind and size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CollectiveCount {
    /// Type: `ALL_REDUCE`, ..., `SEND`, `RECV`; the recorded name where it is unknown.
    pub kind: String,
    /// Element type, where recorded.
    pub dtype: Option<String>,
    /// Process group, where recorded.
    pub group: Option<String>,
    /// Bytes of one call: those of this rank's input, or attribute `comm_size` of Chakra.
    pub bytes: Option<u64>,
    /// Calls.
    pub count: u64,
    /// Sum of the durations, ns, where recorded.
    pub total_ns: Option<u64>,
}

/// A process group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Group {
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Number of ranks.
    pub size: Option<u64>,
    /// Ranks, where listed.
    pub ranks: Vec<u64>,
}

/// Faults shown.
const SHOWN: usize = 20;

/// Counts a file.
pub fn summary(path: &Path, format: Format, loaded: &Loaded) -> Summary {
    let mut out = match loaded {
        Loaded::Chakra(trace) => of_chakra(trace, path),
        Loaded::Host(trace) => of_host(trace, path),
        Loaded::Kineto(trace) => of_kineto(trace),
        Loaded::CommGroups(groups) => Summary {
            nodes: groups.0.len() as u64,
            groups: groups
                .0
                .iter()
                .map(|(name, ranks)| Group {
                    name: name.clone(),
                    description: String::new(),
                    size: Some(ranks.len() as u64),
                    ranks: ranks.clone(),
                })
                .collect(),
            ..Summary::default()
        },
    };
    // Most names are numbers: 2 comes before 10.
    out.groups.sort_by_key(|g| (g.name.parse::<u64>().unwrap_or(u64::MAX), g.name.clone()));
    out.file = path.display().to_string();
    out.format = format.name();
    out
}

/// Counts by name, with durations.
#[derive(Default)]
struct Counter(BTreeMap<String, (u64, Option<u64>)>);

impl Counter {
    fn add(&mut self, name: &str, count: u64, ns: Option<u64>) {
        if let Some(entry) = self.0.get_mut(name) {
            entry.0 = entry.0.saturating_add(count);
            if let Some(ns) = ns {
                entry.1 = Some(entry.1.unwrap_or(0).saturating_add(ns));
            }
        } else {
            self.0.insert(name.to_owned(), (count, ns));
        }
    }

    /// The most frequent first.
    fn list(self) -> Vec<Count> {
        let mut list: Vec<Count> =
            self.0.into_iter().map(|(name, (count, total_ns))| Count { name, count, total_ns }).collect();
        list.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        list
    }
}

/// Collectives by what tells them apart.
#[derive(Default)]
struct Calls(BTreeMap<Key, (u64, Option<u64>)>);

/// Kind, element type, group, bytes.
type Key = (String, Option<String>, Option<String>, Option<u64>);

impl Calls {
    fn add(&mut self, kind: String, dtype: Option<String>, group: Option<String>, bytes: Option<u64>, ns: Option<u64>) {
        let entry = self.0.entry((kind, dtype, group, bytes)).or_default();
        entry.0 += 1;
        if let Some(ns) = ns {
            entry.1 = Some(entry.1.unwrap_or(0).saturating_add(ns));
        }
    }

    fn add_recorded(&mut self, c: &Collective, ns: Option<u64>) {
        let kind = match c.call() {
            Some(Call::Wait) => return,
            Some(call) => call.name().to_owned(),
            None => c.name.as_deref().unwrap_or("unknown").to_owned(),
        };
        self.add(kind, c.dtype.as_deref().map(str::to_owned), c.group.as_deref().map(str::to_owned), c.in_bytes(), ns);
    }

    fn list(self) -> Vec<CollectiveCount> {
        self.0
            .into_iter()
            .map(|((kind, dtype, group, bytes), (count, total_ns))| CollectiveCount {
                kind,
                dtype,
                group,
                bytes,
                count,
                total_ns,
            })
            .collect()
    }
}

fn plain(list: &[(&str, u64)]) -> Vec<Count> {
    list.iter().map(|(name, count)| Count { name: (*name).to_owned(), count: *count, total_ns: None }).collect()
}

fn faults_of(out: &mut Summary, faults: &[TraceError]) {
    out.fault_count = faults.len() as u64;
    out.faults = faults.iter().take(SHOWN).map(|e| e.to_string()).collect();
}

/// Kind of an attribute's value, and whether it is a list; none without a value.
type Arm = Option<(Kind, bool)>;

/// Counts a Chakra trace node by node.
#[derive(Default)]
struct ChakraCounts {
    /// By type, and whether it is said to run on the CPU: nodes and nanoseconds.
    types: HashMap<(NodeType, Option<bool>), (u64, u64), RandomState>,
    /// By name and arm. A file of 100 MB has millions: their names are put together once each, at the end.
    attributes: HashMap<(Text, Arm), u64, RandomState>,
    totals: Counter,
    calls: Calls,
    data: u64,
    ctrl: u64,
    /// First start and last end, us.
    span: Option<(u64, u64)>,
    links: Vec<graph::Links>,
}

impl ChakraCounts {
    fn add(&mut self, node: &chakra::Node) {
        let ns = node.duration_micros.saturating_mul(1000);
        let of_type = self.types.entry((node.kind, node.flag("is_cpu_op"))).or_default();
        of_type.0 += 1;
        of_type.1 = of_type.1.saturating_add(ns);
        self.data += node.data_deps.len() as u64;
        self.ctrl += node.ctrl_deps.len() as u64;
        if node.start_micros > 0 {
            let end = node.start_micros.saturating_add(node.duration_micros);
            let (first, last) = self.span.unwrap_or((u64::MAX, 0));
            self.span = Some((first.min(node.start_micros), last.max(end)));
        }
        for attr in &node.attrs {
            let arm = attr.value.as_ref().map(|v| match v {
                chakra::Value::One(scalar) => (scalar.kind(), false),
                chakra::Value::List(kind, _) => (*kind, true),
            });
            *self.attributes.entry((attr.name.clone(), arm)).or_default() += 1;
            if matches!(&*attr.name, "num_ops" | "tensor_size")
                && let Some(value) = node.uint(&attr.name)
            {
                self.totals.add(&attr.name, value, None);
            }
        }
        self.links.push(graph::Links::from(node));
        let kind = match node.kind {
            NodeType::Send => "SEND".to_owned(),
            NodeType::Recv => "RECV".to_owned(),
            NodeType::Coll => match (node.comm_type(), node.int("comm_type")) {
                (Some(kind), _) => kind.name().to_owned(),
                (None, Some(number)) => format!("comm_type {number}"),
                (None, None) => "no comm_type".to_owned(),
            },
            _ => return,
        };
        self.calls.add(kind, None, node.group(), node.uint("comm_size"), Some(ns));
    }

    fn finish(self, metadata: &chakra::Metadata, warnings: &[String], path: &Path) -> Summary {
        let (mut types, mut attributes) = (Counter::default(), Counter::default());
        for ((kind, on_cpu), (count, ns)) in self.types {
            let place = match on_cpu {
                Some(true) => ", CPU",
                Some(false) => ", device",
                None => "",
            };
            types.add(&format!("{}{place}", kind.name()), count, Some(ns));
        }
        for ((name, arm), count) in self.attributes {
            let arm = match arm {
                Some((kind, list)) => format!("{}_{}", kind.name(), if list { "list" } else { "val" }),
                None => "no value".to_owned(),
            };
            attributes.add(&format!("{name} ({arm})"), count, None);
        }
        let mut out = Summary {
            schema: Some(metadata.version.clone()).filter(|v| !v.is_empty()),
            nodes: self.links.len() as u64,
            types: types.list(),
            edges: plain(&[("data_deps", self.data), ("ctrl_deps", self.ctrl)]),
            collectives: self.calls.list(),
            span_ns: self.span.map(|(start, end)| end.saturating_sub(start).saturating_mul(1000)),
            attributes: attributes.list(),
            totals: self.totals.list(),
            warnings: warnings.to_vec(),
            ..Summary::default()
        };
        faults_of(&mut out, &graph::faults(&self.links, path));
        out
    }
}

fn of_chakra(trace: &chakra::Trace, path: &Path) -> Summary {
    let mut counts = ChakraCounts::default();
    trace.nodes.iter().for_each(|n| counts.add(n));
    counts.finish(&trace.metadata, &trace.warnings, path)
}

/// Reads and counts a file; a Chakra `.et` node by node, so that memory holds its dependencies alone.
///
/// # Errors
/// As [`detect::load`].
pub fn of_file(path: &Path) -> Result<Summary, TraceErrors> {
    let format = detect::detect(path)?;
    if format != Format::Chakra {
        let (format, loaded) = detect::load(path)?;
        return Ok(summary(path, format, &loaded));
    }
    let mut reader = chakra::Reader::new(input::open(path)?, path)?;
    let mut counts = ChakraCounts::default();
    let mut errors = Vec::new();
    for node in reader.by_ref() {
        match node {
            Ok(node) => counts.add(&node),
            Err(error) => errors.push(error),
        }
        if errors.len() >= MOST_ERRORS {
            break;
        }
    }
    if !errors.is_empty() {
        return Err(TraceErrors(errors));
    }
    let found = counts.finish(reader.metadata(), reader.warnings(), path);
    Ok(Summary { file: path.display().to_string(), format: format.name(), ..found })
}

fn of_host(trace: &host::HostTrace, path: &Path) -> Summary {
    let (mut types, mut calls, mut by_arguments) = (Counter::default(), Calls::default(), Calls::default());
    let mut called = false;
    for node in &trace.nodes {
        let kind = match (node.is_root(), node.name.split_once("::")) {
            (true, _) => "roots",
            (false, Some(("autograd", _))) => "autograd::",
            (false, Some((space, _))) if space.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => space,
            _ => "annotations and others",
        };
        let kind = if kind.ends_with("::") || kind.contains(' ') || kind == "roots" {
            kind.to_owned()
        } else {
            format!("{kind}::")
        };
        types.add(&kind, 1, None);
        if let Some(c) = node.collective.as_ref().filter(|_| &*node.name == host::RECORD_PARAM_COMMS) {
            calls.add_recorded(c, None);
        } else if let Some(c) = of_arguments(node) {
            // A range of the thread that carries a call out follows the operator that called.
            let carried = host_collective(&node.name).is_some();
            if !(carried && std::mem::take(&mut called)) {
                by_arguments.add_recorded(&c, None);
            }
            called |= !carried;
        }
    }
    // Backends that record no parameters of their calls have them as arguments of operators alone.
    let calls = if calls.0.is_empty() { by_arguments } else { calls };
    let links = host::check::callers(trace);
    let parents = links.iter().filter(|l| !l.ctrl.is_empty()).count() as u64;
    let mut out = Summary {
        schema: Some(trace.schema.clone()),
        nodes: trace.nodes.len() as u64,
        types: types.list(),
        edges: plain(&[("callers", parents)]),
        collectives: calls.list(),
        groups: groups(&trace.process_groups()),
        warnings: trace.warnings.clone(),
        ..Summary::default()
    };
    faults_of(&mut out, &host::check::faults(trace, path));
    out
}

fn groups(found: &[host::ProcessGroup]) -> Vec<Group> {
    found
        .iter()
        .map(|g| Group { name: g.name.clone(), description: g.desc.clone(), size: g.size, ranks: g.ranks.clone() })
        .collect()
}

fn of_kineto(trace: &kineto::KinetoTrace) -> Summary {
    let (mut types, mut on_kernels, mut on_operators) = (Counter::default(), Calls::default(), Calls::default());
    let (mut start, mut end) = (i64::MAX, i64::MIN);
    let mut steps = Vec::new();
    for event in &trace.events {
        let ns = u64::try_from(event.dur_ns).unwrap_or(0);
        types.add(event.category.name(), 1, Some(ns));
        if event.category != kineto::Category::Span {
            start = start.min(event.ts_ns);
            end = end.max(event.end_ns());
        }
        if let Some(c) = event.collective() {
            let calls = if event.category.on_device() { &mut on_kernels } else { &mut on_operators };
            calls.add_recorded(c, Some(ns));
        } else if let Some(name) = host_collective(&event.name) {
            let named = Collective { name: Some(name.into()), ..Collective::default() };
            on_operators.add_recorded(&named, Some(ns));
        }
        if let Some(number) = event.profiler_step() {
            steps.push(Step { number, start_ns: event.ts_ns, duration_ns: event.dur_ns });
        }
    }
    steps.sort_by_key(|s| (s.start_ns, s.number));
    // Kernels carry the device's time; operators are all there is on CPUs and in older traces.
    let calls = if on_kernels.0.is_empty() { on_operators } else { on_kernels };
    let mut devices = Counter::default();
    for device in &trace.devices {
        devices.add(device.name.as_deref().unwrap_or("unnamed"), 1, None);
    }
    Summary {
        nodes: trace.events.len() as u64,
        types: types.list(),
        edges: plain(&[("forward-backward arrows", trace.flows.iter().filter(|f| f.start).count() as u64)]),
        steps,
        collectives: calls.list(),
        groups: groups(&trace.distributed.groups),
        span_ns: u64::try_from(i128::from(end) - i128::from(start)).ok(),
        devices: devices.list().iter().map(|d| format!("{} x {}", d.count, d.name)).collect(),
        rank: trace.distributed.rank,
        world_size: trace.distributed.world_size,
        backend: trace.distributed.backend.clone(),
        not_kept: trace.not_kept.iter().map(|(n, c)| Count { name: n.clone(), count: *c, total_ns: None }).collect(),
        warnings: trace.warnings.clone(),
        ..Summary::default()
    }
}
