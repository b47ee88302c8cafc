//! The file form of a linked trace: a Chakra `.et` that holds every fact as an attribute, so that any Chakra tool can read it.
//!
//! Node ids are places in [`LinkedTrace::nodes`]; `ctrl_deps` holds the parent, `data_deps` what the edges come from. `edges` repeats
//! them as pairs (place, code), code = 8 x kind + 4 x (from its end) + 2 x (to the end) + inferred. Times are in `start_ns` and
//! `dur_ns`; the schema's own fields hold whole microseconds. `docs/traces-linked.md` lists all attributes.

use super::{
    DeviceFacts, Edge, EdgeKind, End, Facts, Group, HostFacts, Io, LinkedNode, LinkedTrace, NodeKind, Stream, Thread,
};
use crate::trace::chakra::plain::{self, Plain};
use crate::trace::chakra::{Attr, Kind, Metadata, Node, NodeType, Reader, Scalar, VERSION, Value, Writer};
use crate::trace::error::MOST_ERRORS;
use crate::trace::{Interner, Text, TraceError, TraceErrors, input};
use serde_json::{Value as Json, json};
use std::io::{self, Read, Write};
use std::path::Path;

/// Attribute of the metadata by which a linked trace is known; its value is the version of the form.
pub const MARK: &str = "flowspace_linked";
/// Version of the form.
const FORM: i64 = 1;

/// Attribute names are made once.
macro_rules! names {
    ($($name:ident),* $(,)?) => {
        struct Names { $($name: Text),* }
        impl Names {
            fn new() -> Self {
                Self { $($name: Text::from(stringify!($name))),* }
            }
        }
    };
}

names!(
    kind,
    is_cpu_op,
    start_ns,
    dur_ns,
    untimed,
    place,
    launch,
    edges,
    host_id,
    rf_id,
    seq_id,
    scope,
    fw_parent,
    fw_tid,
    tid,
    op_schema,
    correlation,
    bytes,
    graph,
    coll_name,
    coll_dtype,
    coll_in_elems,
    coll_out_elems,
    coll_in_split,
    coll_out_split,
    coll_rank_start,
    coll_rank_stride,
    coll_group,
    coll_group_desc,
    coll_group_size,
    coll_group_ranks,
    coll_rank,
    coll_src,
    coll_dst,
    coll_seq,
    coll_asynchronous,
);

/// Whole microseconds of a duration: rounded, and at least 1 of what is not nothing.
pub fn micros(ns: u64) -> u64 {
    if ns == 0 { 0 } else { (ns.saturating_add(500) / 1000).max(1) }
}

/// Writes a linked trace, gzip if the name ends in `.gz`.
///
/// # Errors
/// [`TraceError`] when the file cannot be written.
pub fn write(trace: &LinkedTrace, path: &Path) -> Result<(), TraceError> {
    crate::trace::output::fill(Some(path), |out| write_to(trace, out)).map_err(|e| TraceError::io(path, &e))
}

/// Writes a linked trace, not packed.
///
/// # Errors
/// Those of the writer underneath.
pub fn write_to(trace: &LinkedTrace, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer::new(out, &metadata(trace))?;
    let names = Names::new();
    let mut edges = trace.edges.iter().peekable();
    for (i, node) in (0u32..).zip(&trace.nodes) {
        let mut into = Vec::new();
        while let Some(e) = edges.next_if(|e| e.to <= i) {
            into.push(*e);
        }
        writer.node(&encode(i, node, &into, &names))?;
    }
    Ok(())
}

fn metadata(trace: &LinkedTrace) -> Metadata {
    let int = |name: &str, v: i64| Attr::new(name, Scalar::Int64(v));
    let list = |name: &str, items: Vec<Scalar>| Attr {
        name: name.into(),
        doc: Text::default(),
        value: Some(Value::List(Kind::Int64, items)),
        unknown: Vec::new(),
    };
    let mut attrs = vec![int(MARK, FORM), int("origin_ns", trace.origin_ns)];
    if let Some(schema) = &trace.host_schema {
        attrs.push(Attr::new("schema", Scalar::String(schema.clone())));
    }
    attrs.extend(trace.device_name.iter().map(|n| Attr::new("device_name", Scalar::String(n.clone()))));
    attrs.extend(trace.rank.map(|r| Attr::new("rank", Scalar::Uint64(r))));
    attrs.extend(trace.world_size.map(|w| Attr::new("world_size", Scalar::Uint64(w))));
    attrs.push(list(
        "threads",
        trace.threads.iter().flat_map(|t| [Scalar::Int64(t.pid), Scalar::Int64(t.tid)]).collect(),
    ));
    attrs.push(list(
        "streams",
        trace.streams.iter().flat_map(|s| [Scalar::Int64(s.device), Scalar::Int64(s.stream)]).collect(),
    ));
    let groups: Vec<Json> = trace
        .groups
        .iter()
        .map(|g| json!({ "name": g.name, "desc": g.desc, "ranks": g.ranks, "size": g.size }))
        .collect();
    attrs.push(Attr::new("groups", Scalar::String(Json::Array(groups).to_string().into())));
    Metadata { version: VERSION.into(), attrs, unknown: Vec::new() }
}

fn code(e: &Edge) -> i64 {
    (e.kind as i64) << 3
        | i64::from(e.from_end == End::Finish) << 2
        | i64::from(e.to_end == End::Finish) << 1
        | i64::from(e.inferred)
}

fn encode(i: u32, node: &LinkedNode, into: &[Edge], names: &Names) -> Node {
    let kind = if node.name.contains("process_group:init") { NodeType::Metadata } else { NodeType::Comp };
    let mut out = Node::new(u64::from(i), node.name.clone(), kind);
    out.ctrl_deps.extend(node.parent.map(u64::from));
    out.data_deps.extend(into.iter().map(|e| u64::from(e.from)));
    out.data_deps.sort_unstable();
    out.data_deps.dedup();
    out.start_micros = u64::try_from(node.start_ns).unwrap_or(0) / 1000;
    out.duration_micros = micros(node.dur_ns);
    let attrs = &mut out.attrs;
    let mut put = |name: &Text, value: Scalar| attrs.push(Attr::new(name.clone(), value));
    put(&names.kind, Scalar::Int32(node.kind as i32));
    put(&names.is_cpu_op, Scalar::Bool(!node.kind.on_device()));
    put(&names.start_ns, Scalar::Int64(node.start_ns));
    put(&names.dur_ns, Scalar::Uint64(node.dur_ns));
    if !node.timed {
        put(&names.untimed, Scalar::Bool(true));
    }
    put(&names.place, Scalar::Uint32(node.place));
    if let Some(launch) = node.launch {
        put(&names.launch, Scalar::Uint32(launch));
    }
    match &node.facts {
        Facts::None => {}
        Facts::Host(f) => {
            put(&names.host_id, Scalar::Uint64(f.id));
            if let Some(rf) = f.rf_id {
                put(&names.rf_id, Scalar::Uint64(rf));
            }
            put(&names.seq_id, Scalar::Int64(f.seq_id));
            put(&names.scope, Scalar::Uint64(f.scope));
            put(&names.fw_parent, Scalar::Uint64(f.fw_parent));
            put(&names.fw_tid, Scalar::Uint64(f.fw_tid));
            put(&names.tid, Scalar::Uint64(f.tid));
            if !f.op_schema.is_empty() {
                put(&names.op_schema, Scalar::String(f.op_schema.clone()));
            }
            let io = |io: &Io| crate::trace::chakra::Io {
                values: io.values.clone(),
                shapes: io.shapes.clone(),
                types: io.types.clone(),
                unknown: Vec::new(),
            };
            (out.inputs, out.outputs) = (Some(io(&f.inputs)), Some(io(&f.outputs)));
        }
        Facts::Device(d) => {
            put(&names.correlation, Scalar::Int64(d.correlation));
            if let Some(bytes) = d.bytes {
                put(&names.bytes, Scalar::Uint64(bytes));
            }
            if d.graph {
                put(&names.graph, Scalar::Bool(true));
            }
        }
    }
    if let Some(c) = &node.collective {
        let text = |v: &Option<Text>| v.clone().map(Scalar::String);
        let int = |v: Option<i64>| v.map(Scalar::Int64);
        let uint = |v: Option<u64>| v.map(Scalar::Uint64);
        for (name, value) in [
            (&names.coll_name, text(&c.name)),
            (&names.coll_dtype, text(&c.dtype)),
            (&names.coll_in_elems, uint(c.in_elems)),
            (&names.coll_out_elems, uint(c.out_elems)),
            (&names.coll_rank_start, int(c.rank_start)),
            (&names.coll_rank_stride, int(c.rank_stride)),
            (&names.coll_group, text(&c.group)),
            (&names.coll_group_desc, text(&c.group_desc)),
            (&names.coll_group_size, uint(c.group_size)),
            (&names.coll_rank, int(c.rank)),
            (&names.coll_src, int(c.src)),
            (&names.coll_dst, int(c.dst)),
            (&names.coll_seq, int(c.seq)),
            (&names.coll_asynchronous, c.asynchronous.map(Scalar::Bool)),
        ] {
            if let Some(value) = value {
                put(name, value);
            }
        }
    }
    let mut put_list = |name: &Text, kind: Kind, items: Vec<Scalar>| {
        if !items.is_empty() {
            attrs.push(Attr {
                name: name.clone(),
                doc: Text::default(),
                value: Some(Value::List(kind, items)),
                unknown: Vec::new(),
            });
        }
    };
    if let Some(c) = &node.collective {
        for (name, list) in [
            (&names.coll_in_split, &c.in_split),
            (&names.coll_out_split, &c.out_split),
            (&names.coll_group_ranks, &c.group_ranks),
        ] {
            put_list(name, Kind::Uint64, list.iter().map(|&v| Scalar::Uint64(v)).collect());
        }
    }
    put_list(
        &names.edges,
        Kind::Int64,
        into.iter().flat_map(|e| [Scalar::Int64(i64::from(e.from)), Scalar::Int64(code(e))]).collect(),
    );
    out
}

/// Reads a linked trace, plain or gzip.
///
/// # Errors
/// [`TraceErrors`]: not a linked trace, or what is wrong with it, with node and field.
pub fn read(path: &Path) -> Result<LinkedTrace, TraceErrors> {
    read_from(input::open(path)?, path)
}

/// Reads a linked trace from uncompressed bytes; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: impl Read, path: &Path) -> Result<LinkedTrace, TraceErrors> {
    let mut reader = Reader::new(source, path)?;
    let mut trace = head(reader.metadata(), path)?;
    let mut errors = Vec::new();
    while let Some(message) = reader.message() {
        let done = message.and_then(|start| {
            let (at, edges) = (trace.nodes.len(), trace.edges.len());
            let (bytes, strings) = reader.bytes();
            if let Some(node) = decode_plain(bytes, strings, at, &mut trace.edges) {
                trace.nodes.push(node);
                return Ok(());
            }
            trace.edges.truncate(edges);
            let node = reader.node(start)?;
            let id = node.id;
            let node = decode(node, at, &mut trace.edges)
                .map_err(|(field, message)| TraceError::new(path, message).node(id).field(field))?;
            trace.nodes.push(node);
            Ok(())
        });
        if let Err(e) = done {
            errors.push(e);
            if errors.len() >= MOST_ERRORS {
                break;
            }
        }
    }
    if !errors.is_empty() {
        return Err(TraceErrors(errors));
    }
    check(&trace, path)?;
    Ok(trace)
}

fn head(metadata: &Metadata, path: &Path) -> Result<LinkedTrace, TraceError> {
    let attr = |name: &str| metadata.attrs.iter().find(|a| &*a.name == name).and_then(|a| a.value.as_ref());
    let fault = |field: &str, message: &str| TraceError::new(path, message).node("GlobalMetadata").field(field);
    match attr(MARK).and_then(Value::int) {
        Some(FORM) => {}
        Some(other) => {
            return Err(fault(MARK, &format!("form {other} of linked traces; this program reads form {FORM}")));
        }
        None => {
            return Err(fault(
                MARK,
                "this Chakra trace is no linked trace: give one that `flowspace trace link` wrote, or --host and --device",
            ));
        }
    }
    let pairs = |name: &str| -> Result<Vec<(i64, i64)>, TraceError> {
        let items = attr(name).map(Value::items).unwrap_or_default();
        let numbers: Option<Vec<i64>> = items.iter().map(Scalar::int).collect();
        let numbers =
            numbers.filter(|n| n.len().is_multiple_of(2)).ok_or_else(|| fault(name, "expected pairs of integers"))?;
        Ok(numbers.chunks_exact(2).filter_map(|c| Some((*c.first()?, *c.get(1)?))).collect())
    };
    let mut groups = Vec::new();
    if let Some(text) = attr("groups").and_then(Value::text) {
        let list: Vec<Json> = serde_json::from_str(&text)
            .map_err(|e| fault("groups", &format!("expected a list of groups in JSON: {e}")))?;
        for g in list {
            let text = |key: &str| g.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
            let ranks = g.get("ranks").and_then(Json::as_array).map(|l| l.iter().filter_map(Json::as_u64).collect());
            groups.push(Group {
                name: text("name"),
                desc: text("desc"),
                ranks: ranks.unwrap_or_default(),
                size: g.get("size").and_then(Json::as_u64),
            });
        }
    }
    Ok(LinkedTrace {
        origin_ns: attr("origin_ns").and_then(Value::int).unwrap_or(0),
        host_schema: attr("schema").and_then(Value::text).map(Text::from),
        device_name: attr("device_name").and_then(Value::text).map(Text::from),
        rank: attr("rank").and_then(Value::uint),
        world_size: attr("world_size").and_then(Value::uint),
        groups,
        threads: pairs("threads")?.into_iter().map(|(pid, tid)| Thread { pid, tid }).collect(),
        streams: pairs("streams")?.into_iter().map(|(device, stream)| Stream { device, stream }).collect(),
        nodes: Vec::new(),
        edges: Vec::new(),
    })
}

/// What is wrong with a node: the field and the message.
type Fault = (&'static str, String);

/// A node as its attributes come.
struct Draft {
    out: LinkedNode,
    kind: Option<NodeKind>,
    is_host: bool,
    host: HostFacts,
    device: DeviceFacts,
}

fn place32(v: u64, field: &'static str) -> Result<u32, Fault> {
    u32::try_from(v).map_err(|_| (field, format!("{v} is no place of a node")))
}

impl Draft {
    fn new() -> Self {
        let empty = Text::default();
        let out = LinkedNode {
            name: empty.clone(),
            kind: NodeKind::Operator,
            place: 0,
            start_ns: 0,
            dur_ns: 0,
            timed: true,
            parent: None,
            launch: None,
            collective: None,
            facts: Facts::None,
        };
        let host = HostFacts {
            id: 0,
            rf_id: None,
            seq_id: -1,
            scope: 0,
            fw_parent: 0,
            fw_tid: 0,
            tid: 0,
            op_schema: empty,
            inputs: Io::default(),
            outputs: Io::default(),
        };
        Self { out, kind: None, is_host: false, host, device: DeviceFacts::default() }
    }

    /// Takes an attribute of the node at a place.
    fn attr(&mut self, name: &[u8], value: &Value, at: usize, edges: &mut Vec<Edge>) -> Result<(), Fault> {
        let wrong = |field: &'static str, wanted: &str| (field, format!("expected {wanted}, found {}", value.arm()));
        macro_rules! int {
            ($field:literal) => {
                value.int().ok_or_else(|| wrong($field, "an integer"))?
            };
        }
        macro_rules! uint {
            ($field:literal) => {
                value.uint().ok_or_else(|| wrong($field, "an integer of at least 0"))?
            };
        }
        let text = || match value {
            Value::One(Scalar::String(text)) => Some(text.clone()),
            other => other.text().map(Text::from),
        };
        let Self { out, kind, is_host, host, device } = self;
        let mut known = true;
        match name {
            b"kind" => {
                let number = int!("kind");
                let found = usize::try_from(number).ok().and_then(|n| NodeKind::ALL.get(n));
                *kind = Some(*found.ok_or_else(|| ("kind", format!("expected 0 to 5, found {number}")))?);
            }
            b"start_ns" => out.start_ns = int!("start_ns"),
            b"dur_ns" => out.dur_ns = uint!("dur_ns"),
            b"untimed" => out.timed = value.flag() != Some(true),
            b"place" => out.place = place32(uint!("place"), "place")?,
            b"launch" => out.launch = Some(place32(uint!("launch"), "launch")?),
            b"edges" => decode_edges(value, at, edges)?,
            b"host_id" => (*is_host, host.id) = (true, uint!("host_id")),
            b"rf_id" => host.rf_id = Some(uint!("rf_id")),
            b"seq_id" => host.seq_id = int!("seq_id"),
            b"scope" => host.scope = uint!("scope"),
            b"fw_parent" => host.fw_parent = uint!("fw_parent"),
            b"fw_tid" => host.fw_tid = uint!("fw_tid"),
            b"tid" => host.tid = uint!("tid"),
            b"op_schema" => host.op_schema = text().unwrap_or_default(),
            b"correlation" => device.correlation = int!("correlation"),
            b"bytes" => device.bytes = Some(uint!("bytes")),
            b"graph" => device.graph = value.flag() == Some(true),
            name if name.starts_with(b"coll_") => {
                let c = out.collective.get_or_insert_default();
                let list = || value.items().iter().filter_map(Scalar::uint).collect::<Vec<u64>>();
                match name {
                    b"coll_name" => c.name = text(),
                    b"coll_dtype" => c.dtype = text(),
                    b"coll_in_elems" => c.in_elems = value.uint(),
                    b"coll_out_elems" => c.out_elems = value.uint(),
                    b"coll_in_split" => c.in_split = list(),
                    b"coll_out_split" => c.out_split = list(),
                    b"coll_rank_start" => c.rank_start = value.int(),
                    b"coll_rank_stride" => c.rank_stride = value.int(),
                    b"coll_group" => c.group = text(),
                    b"coll_group_desc" => c.group_desc = text(),
                    b"coll_group_size" => c.group_size = value.uint(),
                    b"coll_group_ranks" => c.group_ranks = list(),
                    b"coll_rank" => c.rank = value.int(),
                    b"coll_src" => c.src = value.int(),
                    b"coll_dst" => c.dst = value.int(),
                    b"coll_seq" => c.seq = value.int(),
                    b"coll_asynchronous" => c.asynchronous = value.flag(),
                    _ => known = false,
                }
            }
            _ => known = false,
        }
        match known || std::str::from_utf8(name).is_ok() {
            true => Ok(()),
            false => Err(("name", "expected text, found other bytes".to_owned())),
        }
    }

    fn finish(self) -> Result<LinkedNode, Fault> {
        let Self { mut out, kind, is_host, host, device } = self;
        out.kind = kind.ok_or(("kind", "is missing".to_owned()))?;
        out.facts = if out.kind.on_device() {
            Facts::Device(device)
        } else if is_host {
            Facts::Host(Box::new(host))
        } else {
            Facts::None
        };
        Ok(out)
    }
}

fn decode(node: Node, at: usize, edges: &mut Vec<Edge>) -> Result<LinkedNode, Fault> {
    if u64::try_from(at) != Ok(node.id) {
        return Err(("id", format!("expected {at}: a linked trace numbers its nodes in order, found {}", node.id)));
    }
    let mut draft = Draft::new();
    draft.out.name = node.name;
    draft.out.parent = node.ctrl_deps.first().map(|&p| place32(p, "ctrl_deps")).transpose()?;
    for attr in &node.attrs {
        if let Some(value) = &attr.value {
            draft.attr(attr.name.as_bytes(), value, at, edges)?;
        }
    }
    let io = |io: Option<crate::trace::chakra::Io>| {
        io.map_or_else(Io::default, |io| Io { values: io.values, shapes: io.shapes, types: io.types })
    };
    (draft.host.inputs, draft.host.outputs) = (io(node.inputs), io(node.outputs));
    draft.finish()
}

/// The same of a message that is plain and right; `None` for all others.
fn decode_plain(bytes: &[u8], strings: &mut Interner, at: usize, edges: &mut Vec<Edge>) -> Option<LinkedNode> {
    let (mut draft, mut id) = (Draft::new(), 0);
    plain::node(bytes, strings, |field, strings| {
        match field {
            Plain::Id(given) => id = given,
            Plain::Name(name) => draft.out.name = strings.get(name),
            Plain::Ctrl(parent) => {
                if draft.out.parent.is_none() {
                    draft.out.parent = Some(u32::try_from(parent).ok()?);
                }
            }
            Plain::Io(outputs, list, text) => {
                let io = if outputs { &mut draft.host.outputs } else { &mut draft.host.inputs };
                let slot = [&mut io.values, &mut io.shapes, &mut io.types].into_iter().nth(list)?;
                // Half of them are `[]`, and shapes and types come again each step.
                *slot = if text.len() <= 2 || list > 0 { strings.get(text) } else { text.into() };
            }
            Plain::Attr(name, value) => draft.attr(name, &value, at, edges).ok()?,
        }
        Some(())
    })?;
    if u64::try_from(at) != Ok(id) {
        return None;
    }
    draft.finish().ok()
}

fn decode_edges(value: &Value, to: usize, edges: &mut Vec<Edge>) -> Result<(), Fault> {
    let to = u32::try_from(to).map_err(|_| ("edges", "too many nodes".to_owned()))?;
    let items = value.items();
    if !items.len().is_multiple_of(2) {
        return Err(("edges", format!("expected pairs of node and code, found {} numbers", items.len())));
    }
    for pair in items.chunks_exact(2) {
        let number = |i: usize| pair.get(i).and_then(Scalar::int);
        let edge = number(0).zip(number(1)).and_then(|(from, code)| {
            let kind = *EdgeKind::ALL.get(usize::try_from(code >> 3).ok()?)?;
            let end = |bit: i64| if code >> bit & 1 == 1 { End::Finish } else { End::Start };
            let from = u32::try_from(from).ok()?;
            Some(Edge { from, from_end: end(2), to, to_end: end(1), kind, inferred: code & 1 == 1 })
        });
        edges.push(edge.ok_or_else(|| ("edges", format!("{:?} is no pair of node and code", pair)))?);
    }
    Ok(())
}

/// References between nodes.
fn check(trace: &LinkedTrace, path: &Path) -> Result<(), TraceErrors> {
    let n = trace.nodes.len();
    let mut errors = Vec::new();
    let mut fault = |node: usize, field: &str, message: String| {
        if errors.len() < MOST_ERRORS {
            errors.push(TraceError::new(path, message).node(node).field(field));
        }
    };
    for (i, node) in trace.nodes.iter().enumerate() {
        for (field, reference) in [("ctrl_deps", node.parent), ("launch", node.launch)] {
            if reference.is_some_and(|r| r as usize >= i) {
                fault(i, field, format!("expected a node before this one, found {}", reference.unwrap_or(0)));
            }
        }
        let places = if node.kind.on_device() { trace.streams.len() } else { trace.threads.len() };
        if node.place as usize >= places {
            fault(i, "place", format!("expected less than {places}, found {}", node.place));
        }
        // Sums of times must not run over, whatever is done with them.
        if node.start_ns.unsigned_abs() >= 1 << 60 || node.dur_ns >= 1 << 60 {
            fault(i, "start_ns", "beyond 2^60 ns".to_owned());
        }
    }
    for e in &trace.edges {
        if e.from as usize >= n || e.from == e.to {
            fault(e.to as usize, "edges", format!("expected another node, found {}", e.from));
        } else if trace.node(e.from).zip(trace.node(e.to)).is_some_and(|(a, b)| !a.timed || !b.timed) {
            fault(e.to as usize, "edges", "one end was not timed".to_owned());
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(TraceErrors(errors)) }
}
