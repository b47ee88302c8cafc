//! Timelines for Perfetto and chrome://tracing, from Chakra and Kineto traces.

use super::chakra::pass::{Fault, Nodes, Pass};
use super::chakra::{self, NodeType, graph};
use super::kineto::KinetoTrace;
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, Write};

/// Writes complete events one a line, inside the list that viewers expect.
pub(crate) struct Events<W> {
    out: W,
    first: bool,
}

impl<W: Write> Events<W> {
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\": \"ns\", \"traceEvents\": [")?;
        Ok(Self { out, first: true })
    }

    pub(crate) fn put(&mut self, event: &serde_json::Value) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }
}

/// Nanoseconds as microseconds: the nearest double, which prints as the decimal it stands for up to 100 days.
pub(crate) fn micros(ns: i128) -> serde_json::Value {
    json!(ns as f64 / 1000.0)
}

/// Writes a Kineto trace, counted from its first event.
///
/// # Errors
/// Those of the writer underneath.
pub fn of_kineto(trace: &KinetoTrace, out: impl Write) -> io::Result<()> {
    let mut events = Events::new(out)?;
    let zero = trace.events.iter().map(|e| e.ts_ns).min().unwrap_or(0);
    for event in &trace.events {
        let mut args = serde_json::Map::new();
        for (name, value) in [
            ("External id", event.external_id),
            ("correlation", event.correlation),
            ("stream", event.stream),
            ("bytes", event.bytes.and_then(|b| i64::try_from(b).ok())),
        ] {
            if let Some(value) = value {
                args.insert(name.into(), value.into());
            }
        }
        let track = |t: &super::kineto::Track| match t {
            super::kineto::Track::Number(n) => json!(n),
            super::kineto::Track::Name(name) => json!(&**name),
        };
        events.put(&json!({
            "ph": "X",
            "cat": event.category.name(),
            "name": &*event.name,
            "pid": track(&event.pid),
            "tid": track(&event.tid),
            "ts": micros(i128::from(event.ts_ns) - i128::from(zero)),
            "dur": micros(event.dur_ns.into()),
            "args": args,
        }))?;
    }
    events.finish()
}

/// Tracks of a Chakra timeline.
const TRACKS: [&str; 5] = ["CPU", "compute", "collectives", "send and receive", "memory"];

fn track(node: &chakra::Node) -> usize {
    match node.kind {
        _ if node.flag("is_cpu_op") == Some(true) => 0,
        NodeType::Coll => 2,
        NodeType::Send | NodeType::Recv => 3,
        NodeType::MemLoad | NodeType::MemStore => 4,
        NodeType::Comp => 1,
        _ => 0,
    }
}

/// Where each node of a trace begins.
struct Starts {
    /// By place in the file, us; none for nodes in or behind a cycle. Empty where the trace says itself.
    at: Vec<Option<u64>>,
    /// The first recorded start, us.
    zero: u64,
    left_out: usize,
}

/// A first pass: recorded starts, or the dependencies to find them from.
fn starts(trace: &impl Pass) -> Result<Starts, Fault> {
    let mut zero: Option<u64> = None;
    let mut links: Vec<graph::Links> = Vec::new();
    let mut durations: Vec<(u64, u8)> = Vec::new();
    trace.pass(&mut Nodes(|node: &chakra::Node| {
        if node.start_micros > 0 {
            zero = Some(zero.map_or(node.start_micros, |z| z.min(node.start_micros)));
            (links, durations) = Default::default();
        } else if zero.is_none() {
            links.push(graph::Links::from(node));
            durations.push((node.duration_micros, track(node) as u8));
        }
        Ok(())
    }))?;
    if let Some(zero) = zero {
        return Ok(Starts { at: Vec::new(), zero, left_out: 0 });
    }
    let order = graph::order(&links);
    let mut at = vec![None; links.len()];
    let mut ends: HashMap<u64, u64> = HashMap::with_capacity(links.len());
    let mut free = [0u64; TRACKS.len()];
    for &i in &order {
        let (Some(node), Some(&(duration, tid))) = (links.get(i), durations.get(i)) else { continue };
        let deps = node.data.iter().chain(&node.ctrl);
        let ready = deps.filter_map(|d| ends.get(d).copied()).max().unwrap_or(0);
        let Some(slot) = free.get_mut(usize::from(tid)) else { continue };
        let start = ready.max(*slot);
        *slot = start.saturating_add(duration);
        ends.insert(node.id, *slot);
        if let Some(place) = at.get_mut(i) {
            *place = Some(start);
        }
    }
    Ok(Starts { at, zero: 0, left_out: links.len() - order.len() })
}

/// Writes a Chakra trace: by its own start times where it has any, else each node as soon as its dependencies have ended and its track is
/// free, the order being that in which the feeder issues nodes. Nodes in or behind a cycle have no such time and are left out; their number is
/// returned.
///
/// # Errors
/// [`Fault`]: a trace that cannot be read, or the writer underneath.
pub fn of_chakra(trace: &impl Pass, out: impl Write) -> Result<usize, Fault> {
    let starts = starts(trace)?;
    let mut events = Events::new(out)?;
    for (tid, name) in TRACKS.iter().enumerate() {
        events.put(&json!({"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": name}}))?;
    }
    let mut place = 0;
    trace.pass(&mut Nodes(|node: &chakra::Node| {
        let start = match starts.at.get(place) {
            Some(start) => *start,
            None => Some(node.start_micros.saturating_sub(starts.zero)),
        };
        place += 1;
        match start {
            Some(start) => events.put(&event(node, start)),
            None => Ok(()),
        }
    }))?;
    events.finish()?;
    Ok(starts.left_out)
}

fn event(node: &chakra::Node, start: u64) -> serde_json::Value {
    let mut args = serde_json::Map::new();
    args.insert("id".into(), node.id.into());
    for name in ["comm_size", "num_ops", "tensor_size", "stream", "comm_src", "comm_dst", "comm_tag"] {
        if let Some(value) = node.int(name) {
            args.insert(name.into(), value.into());
        }
    }
    for (name, value) in [("comm_type", node.comm_type().map(|c| c.name().to_owned())), ("group", node.group())] {
        if let Some(value) = value {
            args.insert(name.into(), value.into());
        }
    }
    json!({
        "ph": "X", "cat": node.kind.name(), "name": &*node.name, "pid": 0, "tid": track(node),
        "ts": start, "dur": node.duration_micros, "args": args,
    })
}
