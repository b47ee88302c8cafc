//! Linking: the host trace and the device trace of one run become one graph.
//!
//! The device trace knows times, threads, streams and synchronisation; the host trace knows tensors, schemas and process groups.
//! [`link()`] matches their operators (`matching.rs`), nests each thread's operators and calls by time (`nest.rs`), gives every kernel, copy
//! and fill its launch and the operator that caused it, and keeps as edges what waited for what (`edges.rs`). A device trace alone is
//! enough: its own operators then are the host side.

mod align;
mod calls;
mod draft;
mod edges;
pub mod file;
mod groups;
mod io;
mod matching;
mod model;
pub(crate) mod nest;
mod operands;
mod order;
mod python;
mod report;
pub mod unlink;
mod waits;

pub use align::align;
pub(crate) use calls::of_arguments;
pub use matching::Matching;
pub use model::*;
pub use report::{EdgeCount, LinkReport, OpCount};

use crate::trace::Text;
use crate::trace::host::HostTrace;
use crate::trace::kineto::{Category, Event, KinetoTrace};
use draft::Draft;
use matching::Candidate;
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
    groups::inherit_collectives(&mut nodes);

    let mut trace = LinkedTrace {
        origin_ns: origin.saturating_add(device.base_time_ns.unwrap_or(0)),
        host_schema: host.map(|h| Text::from(h.schema.as_str())),
        device_name: device.devices.iter().find_map(|d| d.name.as_deref()).map(Text::from),
        rank: device.distributed.rank,
        world_size: device.distributed.world_size,
        groups: groups::groups(host, device, &nodes),
        threads: chosen.threads,
        streams: chosen.streams,
        nodes,
        edges: Vec::new(),
    };
    groups::only_group(&mut trace);
    edges::add(&mut trace, events, &event_of, &nests, &mut report);
    report::edges(&trace, &mut report);
    order::order(&mut trace);
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

/// Of two host nodes of the same extent the one with the lower rank is the outer one.
pub(crate) fn kind_rank(kind: NodeKind) -> u8 {
    match kind {
        NodeKind::Annotation => 0,
        NodeKind::Operator => 1,
        _ => 2,
    }
}
