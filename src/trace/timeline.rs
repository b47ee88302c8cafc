//! Timelines for Perfetto and chrome://tracing, from Chakra and Kineto traces.

use super::TraceErrors;
use super::chakra::pass::{Fault, Nodes, Pass};
use super::chakra::{self, NodeType, graph};
use super::kineto::{Category, Seen, Wrong, scan, scan_from};
use super::raw::Raw;
use foldhash::fast::RandomState;
use serde::Serialize;
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::Path;

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

    pub(crate) fn put(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }
}

/// Nanoseconds as microseconds of a timeline: the nearest double, or the next one where Perfetto, which multiplies by 1000 and cuts what is behind the
/// point, would read a nanosecond less (16.06 us as 16,059 ns).
pub(crate) fn micros(ns: i128) -> f64 {
    let nearest = ns as f64 / 1000.0;
    if nearest * 1000.0 < ns as f64 { nearest.next_up() } else { nearest }
}

/// A complete event, as viewers read it.
#[derive(Serialize)]
struct Complete<'a> {
    ph: &'static str,
    cat: &'a str,
    name: &'a str,
    pid: Track<'a>,
    tid: Track<'a>,
    ts: f64,
    dur: f64,
    args: Arguments,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Track<'a> {
    Number(i64),
    Name(&'a str),
}

#[derive(Serialize)]
struct Arguments {
    #[serde(rename = "External id", skip_serializing_if = "Option::is_none")]
    external: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<i64>,
}

/// Start and duration of a complete event, ns; none for any other.
fn times(seen: &Seen<'_>) -> Result<Option<(i64, i64)>, Wrong> {
    if seen.phase.as_deref().ok_or_else(|| missing("ph"))? != "X" {
        return Ok(None);
    }
    // The span of an operator that never returned has no duration.
    let duration = seen.dur.map_or(Ok(0), |d| Seen::nanoseconds("dur", Some(d)))?;
    let start = Seen::nanoseconds("ts", seen.ts)?;
    let wrong = |message: String| ("dur".to_owned(), message);
    if duration < 0 {
        return Err(wrong(format!("expected a duration of at least 0, found {duration} ns")));
    }
    start.checked_add(duration).ok_or_else(|| wrong("the event ends beyond 2^63 ns".into()))?;
    Ok(Some((start, duration)))
}

fn missing(field: &str) -> Wrong {
    (field.to_owned(), "missing".to_owned())
}

/// An event that begins so many nanoseconds after the first one.
fn complete<'a>(
    seen: &'a Seen<'_>,
    known: Option<&'a Category>,
    after: i128,
    duration: i64,
) -> Result<Complete<'a>, Wrong> {
    let wrong =
        |field: &str, what: &str, raw: &Raw<'_>| (field.to_owned(), format!("expected {what}, found {}", raw.kind()));
    let track = |field: &str, raw: &'a Option<Raw<'_>>| match raw {
        None => Ok(Track::Number(0)),
        Some(Raw::Int(number)) => Ok(Track::Number(*number)),
        Some(Raw::Str(name)) => Ok(Track::Name(name)),
        Some(other) => Err(wrong(field, "a number or a name", other)),
    };
    let integer = |field: &str, raw: &Option<Raw<'_>>| match raw {
        None => Ok(None),
        Some(raw) => raw.integer().map(Some).ok_or_else(|| wrong(&format!("args.{field}"), "an integer", raw)),
    };
    let (pid, tid) = (track("pid", &seen.pid)?, track("tid", &seen.tid)?);
    let on_stream = match tid {
        Track::Number(number) if known.is_some_and(Category::on_device) => Some(number),
        _ => None,
    };
    Ok(Complete {
        ph: "X",
        cat: known.map_or(seen.category.as_deref().unwrap_or_default(), Category::name),
        name: seen.name.as_deref().ok_or_else(|| missing("name"))?,
        pid,
        tid,
        ts: micros(after),
        dur: micros(duration.into()),
        args: Arguments {
            external: integer("External id", &seen.args.external)?,
            correlation: integer("correlation", &seen.args.correlation)?,
            stream: integer("stream", &seen.args.stream)?.or(on_stream),
            // HIP writes a range of addresses for some calls: what is no number is of no use.
            bytes: seen.args.bytes.as_ref().and_then(Raw::unsigned).and_then(|b| i64::try_from(b).ok()),
        },
    })
}

/// Writes the Kineto trace of a file, counted from its first event. The file is read twice and never held.
///
/// # Errors
/// [`Fault`]: a trace that cannot be read, or the writer underneath.
pub fn of_kineto(path: &Path, out: impl Write) -> Result<(), Fault> {
    twice(|each| scan(path, each), out)
}

/// The same of uncompressed bytes; `path` is for messages.
///
/// # Errors
/// As [`of_kineto`].
pub fn of_kineto_from(source: impl Read + Clone, path: &Path, out: impl Write) -> Result<(), Fault> {
    twice(|each| scan_from(source.clone(), path, each), out)
}

/// What is called with every event of a pass.
type Each<'e> = &'e mut dyn FnMut(u32, &Seen<'_>) -> Result<(), Wrong>;

fn twice(pass: impl Fn(Each<'_>) -> Result<(), TraceErrors>, out: impl Write) -> Result<(), Fault> {
    let mut zero: Option<i64> = None;
    let known = |seen: &Seen<'_>| Category::known(seen.category.as_deref().unwrap_or_default());
    pass(&mut |_, seen| {
        if let Some((start, duration)) = times(seen)? {
            complete(seen, known(seen).as_ref(), 0, duration)?;
            zero = Some(zero.map_or(start, |z| z.min(start)));
        }
        Ok(())
    })?;
    let zero = i128::from(zero.unwrap_or(0));
    let mut events = Events::new(out)?;
    let mut failed: Option<io::Error> = None;
    let result = pass(&mut |_, seen| {
        let Some((start, duration)) = times(seen)? else { return Ok(()) };
        let known = known(seen);
        let event = complete(seen, known.as_ref(), i128::from(start) - zero, duration)?;
        // A pass ends early after faults of its input alone: what cannot be written is one of each event that follows.
        match failed.is_none().then(|| events.put(&event)) {
            Some(Ok(())) => Ok(()),
            other => {
                failed = other.and_then(Result::err).or(failed.take());
                Err((String::new(), String::new()))
            }
        }
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    result?;
    Ok(events.finish()?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_read_the_nanosecond_whether_they_cut_or_round() {
        let mut state = 1u64;
        for small in 0..1_000_000i128 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Up to 13 days: of 52 a double knows no single nanosecond.
            for ns in [small, i128::from(state >> 14)] {
                let read = micros(ns) * 1000.0;
                assert_eq!((read as i128, read.round() as i128), (ns, ns));
            }
        }
    }
}
