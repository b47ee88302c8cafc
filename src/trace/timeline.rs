//! Timelines for Perfetto and chrome://tracing, from Chakra and Kineto traces.

use super::chakra::pass::{Fault, Nodes, Pass};
use super::chakra::{self, NodeType, graph};
use super::kineto::KinetoTrace;
use foldhash::fast::RandomState;
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

/// When each node of a trace begins.
enum Starts {
    /// As recorded, counted from the first, us.
    Recorded(u64),
    /// Every dependency is on a smaller id and ids ascend: the file's order is the feeder's, and each start follows in passing.
    InOrder(Schedule),
    /// By place in the file, us; none for nodes in or behind a cycle.
    Found(Vec<Option<u64>>),
}

/// When nodes have ended and tracks are free, us.
#[derive(Default)]
struct Schedule {
    ends: HashMap<u64, u64, RandomState>,
    free: [u64; TRACKS.len()],
}

impl Schedule {
    /// Puts a node behind its dependencies and what its track did before; gives its start.
    fn put(&mut self, id: u64, deps: impl Iterator<Item = u64>, duration: u64, tid: usize) -> u64 {
        let ready = deps.filter_map(|d| self.ends.get(&d).copied()).max().unwrap_or(0);
        let start = ready.max(self.free.get(tid).copied().unwrap_or(0));
        let end = start.saturating_add(duration);
        self.ends.insert(id, end);
        if let Some(slot) = self.free.get_mut(tid) {
            *slot = end;
        }
        start
    }
}

/// Looks through a trace for its starts. Where the order is not plain the dependencies are gone through twice more.
fn starts(trace: &impl Pass) -> Result<Starts, Fault> {
    let (mut zero, mut in_order) = (None::<u64>, true);
    let (mut ids, mut works) = (Vec::new(), Vec::new());
    trace.pass(&mut Nodes(|node: &chakra::Node| {
        if node.start_micros > 0 {
            zero = Some(zero.map_or(node.start_micros, |z| z.min(node.start_micros)));
        }
        in_order = in_order && ids.last().is_none_or(|l| *l < node.id) && node.deps().all(|d| d < node.id);
        ids.push(node.id);
        works.push((node.duration_micros, track(node)));
        Ok(())
    }))?;
    if let Some(zero) = zero {
        return Ok(Starts::Recorded(zero));
    }
    if in_order {
        return Ok(Starts::InOrder(Schedule::default()));
    }
    let index = graph::Index::new(ids.iter().copied());
    let edges = |edge: &mut dyn FnMut(u32, u32)| {
        let mut to = 0u32;
        trace.pass(&mut Nodes(|node: &chakra::Node| {
            node.deps().filter_map(|d| index.get(d)).for_each(|from| edge(from, to));
            to += 1;
            Ok(())
        }))
    };
    let mut found = vec![None; ids.len()];
    let mut ready = vec![0u64; ids.len()];
    let mut free = [0u64; TRACKS.len()];
    graph::issue(&ids, edges, |place, behind| {
        let at = place as usize;
        let (Some(&(duration, tid)), Some(&ready_at)) = (works.get(at), ready.get(at)) else { return };
        let (Some(free), Some(slot)) = (free.get_mut(tid), found.get_mut(at)) else { return };
        let start = ready_at.max(*free);
        *slot = Some(start);
        *free = start.saturating_add(duration);
        for &to in behind {
            if let Some(time) = ready.get_mut(to as usize) {
                *time = (*time).max(*free);
            }
        }
    })?;
    Ok(Starts::Found(found))
}

/// Writes a Chakra trace: by its own start times where it has any, else each node as soon as its dependencies have ended and its track is
/// free, taken in the order in which the feeder issues nodes. Nodes in or behind a cycle have no such time and are left out; their number is
/// returned.
///
/// # Errors
/// [`Fault`]: a trace that cannot be read, or the writer underneath.
pub fn of_chakra(trace: &impl Pass, out: impl Write) -> Result<usize, Fault> {
    let mut starts = starts(trace)?;
    let mut events = Events::new(out)?;
    for (tid, name) in TRACKS.iter().enumerate() {
        events.put(&json!({"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": name}}))?;
    }
    let (mut place, mut left_out) = (0usize, 0);
    trace.pass(&mut Nodes(|node: &chakra::Node| {
        let start = match &mut starts {
            Starts::Recorded(zero) => Some(node.start_micros.saturating_sub(*zero)),
            Starts::InOrder(schedule) => Some(schedule.put(node.id, node.deps(), node.duration_micros, track(node))),
            Starts::Found(found) => found.get(place).copied().flatten(),
        };
        place += 1;
        match start {
            Some(start) => events.put(&event(node, start)),
            None => {
                left_out += 1;
                Ok(())
            }
        }
    }))?;
    events.finish()?;
    Ok(left_out)
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
