//! The critical path as stretches of time that tile the window: each nanosecond is one part's.

use super::events::{Event, Events, Kind};
use super::graph::{Delay, Graph, Unit, UnitKind};
use super::run::Run;
use foldhash::fast::RandomState;
use serde::Serialize;
use std::collections::HashMap;

/// What a stretch of the path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A kernel that computes.
    Compute,
    /// A copy or fill of the device.
    MemoryCopy,
    /// A communication kernel, or a collective that the host carries out, waits for a slower rank.
    PeerWait,
    /// It moves bytes.
    Transfer,
    /// Waiting and moving cannot be told apart (other ranks were not given).
    Communication,
    /// A call that launches, or the time from its begin to the begin of what it launched.
    Launch,
    /// An operation waits for the one before it, or for one of another stream.
    Queueing,
    /// A blocking call, after what it waited for.
    Blocking,
    /// Any other call of runtime or driver.
    Call,
    /// An operator of the host.
    HostOperator,
    /// Python or an annotation, outside of operators and calls.
    Interpreter,
    /// Nothing; the cause says what is known.
    Idle,
}

impl Part {
    /// All, in the order in which they are printed.
    pub const ALL: [Self; 12] = [
        Self::Compute,
        Self::MemoryCopy,
        Self::PeerWait,
        Self::Transfer,
        Self::Communication,
        Self::Launch,
        Self::Queueing,
        Self::Blocking,
        Self::Call,
        Self::HostOperator,
        Self::Interpreter,
        Self::Idle,
    ];

    /// A word for tables and timelines. Perfetto makes colours of them: these are far from each other.
    pub fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::MemoryCopy => "memory copy",
            Self::PeerWait => "communication: waits for a peer",
            Self::Transfer => "communication: moves bytes",
            Self::Communication => "communication",
            Self::Launch => "launching",
            Self::Queueing => "queueing",
            Self::Blocking => "blocking call",
            Self::Call => "other runtime call",
            Self::HostOperator => "host operator",
            Self::Interpreter => "interpreter",
            Self::Idle => "idle",
        }
    }

    /// One of chrome://tracing's reserved colours.
    pub fn colour(self) -> &'static str {
        match self {
            Self::Compute => "good",
            Self::MemoryCopy => "background_memory_dump",
            Self::PeerWait => "terrible",
            Self::Transfer => "detailed_memory_dump",
            Self::Communication => "thread_state_uninterruptible",
            Self::Launch => "rail_response",
            Self::Queueing => "thread_state_iowait",
            Self::Blocking => "yellow",
            Self::Call => "olive",
            Self::HostOperator => "thread_state_running",
            Self::Interpreter => "thread_state_runnable",
            Self::Idle => "grey",
        }
    }
}

/// A stretch of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Start, ns.
    pub start: i64,
    /// End, ns.
    pub end: i64,
    /// What it is.
    pub part: Part,
    /// What was waited for, where it is a wait.
    pub delay: Option<Delay>,
    /// The unit that runs, or that waits; a position in [`Graph::units`].
    pub unit: u32,
    /// The unit that was waited for, or that came before.
    pub after: u32,
}

impl Stretch {
    /// Why, where the part alone does not say it.
    pub fn cause(&self) -> &'static str {
        self.delay.map_or("", |d| delayed(d).1)
    }
}

/// Shortest time of each collective over all ranks, ns: the rank that came last waits for nobody.
#[derive(Debug, Clone, Default)]
pub struct Peers {
    shortest: HashMap<u32, i64, RandomState>,
}

/// Start, duration and place of what communicates, by group, collective and name, in order.
fn collectives(events: &Events) -> HashMap<String, Vec<(i64, i64, u32)>> {
    let mut found: HashMap<String, Vec<(i64, i64, u32)>> = HashMap::new();
    for (at, event) in events.list.iter().enumerate().filter(|(_, v)| v.kind.communicates()) {
        let key = format!("{} {}", events.collective(event), events.name(event));
        found.entry(key).or_default().push((event.start, event.end - event.start, at as u32));
    }
    found.values_mut().for_each(|list| list.sort_unstable());
    found
}

impl Peers {
    /// Whether another trace has a communication kernel, or a collective of the host, of a group and collective of this one.
    pub fn share(events: &Events, other: &Events) -> bool {
        let theirs = collectives(other);
        collectives(events).keys().any(|key| theirs.contains_key(key))
    }

    /// Pairs the n-th communication kernel of a group and collective with the n-th of each other rank. Clocks need not agree. Kernels that a
    /// rank lacks stay undivided.
    pub fn new(events: &Events, others: &[Events]) -> Self {
        let others: Vec<_> = others.iter().map(collectives).collect();
        let mut shortest = HashMap::default();
        for (key, list) in collectives(events) {
            for (n, &(_, own, at)) in list.iter().enumerate() {
                let theirs: Option<Vec<i64>> =
                    others.iter().map(|o| o.get(&key).and_then(|l| l.get(n)).map(|v| v.1)).collect();
                if let Some(least) = theirs.and_then(|t| t.into_iter().min()) {
                    shortest.insert(at, least.min(own));
                }
            }
        }
        Self { shortest }
    }
}

/// The path of a run, from the window's begin to its end; no stretch is empty, and none overlap.
pub fn tile(events: &Events, graph: &Graph, run: &Run, peers: &Peers) -> Vec<Stretch> {
    let mut out: Vec<Stretch> = Vec::new();
    let launching = launching(events);
    let mut add = |s: Stretch| {
        if s.end > s.start {
            out.push(s);
        }
    };
    let mut path: Vec<u32> = vec![graph.units.len() as u32 - 1];
    path.extend(run.decided.back_from(graph, graph.units.len() - 1).map(|e| e.from));
    for &unit in path.iter().rev() {
        let Some(edge) = run.decided.edge(graph, unit as usize) else { continue };
        let (from, to) = (edge.from as usize, unit as usize);
        let begun = if edge.at_start { run.start[from] } else { run.end[from] };
        if !edge.at_start {
            let (start, end) = (run.start[from], run.end[from]);
            let ran = &graph.units[from];
            let whole = Stretch { start, end, part: Part::Idle, delay: None, unit: edge.from, after: edge.from };
            let event = events.list.get(ran.event as usize);
            let waits = event.filter(|e| e.kind.communicates());
            let waits = waits.and_then(|e| Some((e.end, *peers.shortest.get(&ran.event)?)));
            if let Some((ended, transfer)) = waits {
                // The bytes move last, whichever piece of the event this is.
                let middle = (ended - transfer).clamp(start, end);
                add(Stretch { end: middle, part: Part::PeerWait, ..whole });
                add(Stretch { start: middle, part: Part::Transfer, ..whole });
            } else if let Some(event) = event {
                add(Stretch { part: part_of(ran, event, &launching), ..whole });
            }
        }
        let (part, delay) = (delayed(edge.delay).0, Some(edge.delay));
        add(Stretch { start: begun, end: run.start[to], part, delay, unit, after: edge.from });
    }
    out
}

/// Whether a call launched something, by correlation.
fn launching(events: &Events) -> std::collections::HashSet<i64, RandomState> {
    events.list.iter().filter(|e| e.kind.on_device() && e.correlation != -1).map(|e| e.correlation).collect()
}

fn part_of(unit: &Unit, event: &Event, launching: &std::collections::HashSet<i64, RandomState>) -> Part {
    match (unit.kind, event.kind) {
        (UnitKind::Return, _) => Part::Blocking,
        (_, Kind::Kernel) => Part::Compute,
        (_, Kind::Communication | Kind::Exchange) => Part::Communication,
        (_, Kind::Copy) => Part::MemoryCopy,
        (_, Kind::Call) if launching.contains(&event.correlation) => Part::Launch,
        (_, Kind::Call) => Part::Call,
        (_, Kind::Operator) => Part::HostOperator,
        (_, Kind::Annotation | Kind::Python) => Part::Interpreter,
    }
}

/// What the time between two units is.
fn delayed(delay: Delay) -> (Part, &'static str) {
    match delay {
        Delay::Launch => (Part::Launch, "from the call to the operation"),
        Delay::Unexplained => (Part::Queueing, "launched, but held back by something that was not recorded"),
        Delay::Stream => (Part::Queueing, "behind the operation before on the stream"),
        Delay::Wait => (Part::Queueing, "behind an operation of another stream (inferred)"),
        Delay::Interpreter => (Part::Interpreter, "between operators"),
        Delay::Gap => (Part::Idle, "the thread did nothing that was recorded"),
        Delay::Thread => (Part::Idle, "handed on from another thread (inferred)"),
        Delay::Before => (Part::Idle, "before the first work"),
        Delay::After => (Part::Idle, "after the last work"),
        Delay::Order => (Part::Idle, "order"),
    }
}

/// Time by part, ns; parts without time are left out.
pub fn by_part(path: &[Stretch]) -> Vec<(Part, i64)> {
    let sum = |part: Part| path.iter().filter(|s| s.part == part).map(|s| s.end - s.start).sum();
    Part::ALL.into_iter().map(|p| (p, sum(p))).filter(|(_, ns): &(Part, i64)| *ns > 0).collect()
}
