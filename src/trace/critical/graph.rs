//! The dependency graph of a window: what had to end before what could begin.
//!
//! A *unit* is a piece of work: a piece of a host thread (`thread`), or a device operation. An *edge* says that a unit begins no earlier
//! than some time after another one began or ended. One of the edges into a unit is the one it waited for in the recording: that one's
//! delay is the recorded one, so that the recorded start follows to the nanosecond. The other edges had time to spare; their delay is the
//! typical one of the trace, never more than what was recorded. Rules, with *typical* = the median over the window:
//!
//! - host: a piece follows the piece before it on its thread. Where another thread ended work inside the gap, the piece waited for the latest
//!   of these (a backward thread starts, and returns to, the forward thread).
//!   A thread that only asks whether the device is done is waited for by nobody.
//! - collectives of the host (gloo): one that began after a gap of its thread follows the begin of its caller (`exchange`); who waits for it is told as for
//!   any thread.
//! - launch: an operation begins no earlier than its call began. Of a graph launch this holds for every operation.
//! - stream: an operation begins when the one before it on its stream has ended.
//! - wait: an operation that began later than both explain waited for the operation of its device that ended last before it began.
//! - blocking call: returns after the operation that it waited for: a copy's call for its copy, a synchronisation for the last operation to end
//!   before it returned of those launched before it began. One of a whole device returns after every stream's: the last one launched before it on each.

use super::events::{Event, Events, Kind};
use super::exchange::Callers;
use super::thread::{NONE, Piece, pieces};
use crate::units::middle;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// What an edge's delay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delay {
    /// Nothing: order alone.
    Order,
    /// From the begin of a call to the begin of what it launched.
    Launch,
    /// The same, but much longer than is typical, with nothing recorded that explains it.
    Unexplained,
    /// From the operation before on the same stream.
    Stream,
    /// From an operation on another stream that was waited for.
    Wait,
    /// A gap of a thread inside Python or an annotation.
    Interpreter,
    /// A gap of a thread in which nothing is known.
    Gap,
    /// From the end of another thread's work to the begin of this one's.
    Thread,
    /// Before the first work of the window.
    Before,
    /// After the last work of the window.
    After,
}

/// What a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitKind {
    /// The window's begin and end; no time.
    Edge,
    /// A piece of an operator or call of the host.
    Host,
    /// The wait inside a blocking call; no time of its own.
    Wait,
    /// What a blocking call took after its wait.
    Return,
    /// An operation of the device.
    Device,
}

/// A piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Recorded start, ns.
    pub start: i64,
    /// Recorded end, ns.
    pub end: i64,
    /// The event, a position in [`Events::list`]; `u32::MAX` for the window's ends.
    pub event: u32,
    /// The operator that it belongs to; `u32::MAX` without one.
    pub operator: u32,
    /// The module that it belongs to; `u32::MAX` without one.
    pub module: u32,
    /// Kind.
    pub kind: UnitKind,
}

/// A dependency into a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The unit that is depended on.
    pub from: u32,
    /// Delay, ns.
    pub lag: i64,
    /// Counted from the begin of `from`, not from its end.
    pub at_start: bool,
    /// What the delay is.
    pub delay: Delay,
}

/// Units in an order in which each comes after all it depends on.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Begin and end of the window, ns.
    pub window: (i64, i64),
    /// Units; the first is the window's begin, the last its end.
    pub units: Vec<Unit>,
    /// Edges into all units, one unit after another.
    pub edges: Vec<Edge>,
    /// Where each unit's edges begin.
    first: Vec<u32>,
    /// Median time from call to operation where nothing else was waited for, ns.
    pub typical_launch: i64,
    /// Median time from an operation to the next one of its stream, ns.
    pub typical_gap: i64,
    /// Dependencies against the recorded times (clocks of host and device that disagree): left out.
    pub against_time: u64,
}

impl Graph {
    /// The edges into a unit.
    pub fn incoming(&self, unit: usize) -> &[Edge] {
        &self.edges[self.first_edge(unit)..self.first_edge(unit + 1)]
    }

    /// The place in [`Self::edges`] of the first edge into a unit.
    pub fn first_edge(&self, unit: usize) -> usize {
        self.first[unit] as usize
    }
}

/// A launch that takes longer than this, ns, and than twenty typical ones, waited for something.
const LONG_LAUNCH: i64 = 1_000_000;

/// Calls that return when the device is done.
fn blocks(name: &str) -> bool {
    let rest = ["cuda", "hip", "cu"].iter().find_map(|p| name.strip_prefix(p)).unwrap_or("");
    rest.ends_with("Synchronize") || rest.starts_with("Memcpy") || rest.starts_with("CtxSynchronize")
}

/// Calls that ask whether the device is done, and return at once.
fn queries(name: &str) -> bool {
    let rest = ["cuda", "hip", "cu"].iter().find_map(|p| name.strip_prefix(p)).unwrap_or("");
    rest.starts_with("EventQuery") || rest.starts_with("StreamQuery")
}

/// Calls that return when all streams of a device are done.
fn waits_for_all(name: &str) -> bool {
    let rest = ["cuda", "hip", "cu"].iter().find_map(|p| name.strip_prefix(p)).unwrap_or("");
    rest == "DeviceSynchronize" || rest.starts_with("CtxSynchronize")
}

struct Builder<'e> {
    events: &'e Events,
    window: (i64, i64),
    units: Vec<Unit>,
    edges: Edges,
    against_time: u64,
}

/// Edges in no order, each with the unit that it leads to: a list of each, since pairs would take a fifth more room.
struct Edges {
    to: Vec<u32>,
    list: Vec<Edge>,
}

impl Edges {
    fn push(&mut self, to: u32, edge: Edge) {
        self.to.push(to);
        self.list.push(edge);
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &Edge)> {
        self.to.iter().copied().zip(&self.list)
    }
}

/// A device operation while the graph is built.
struct Operation {
    unit: u32,
    call: Option<u32>,
    previous: Option<u32>,
}

impl Builder<'_> {
    fn time(&self, from: u32, at_start: bool) -> i64 {
        let unit = &self.units[from as usize];
        if at_start { unit.start } else { unit.end }
    }

    /// An edge with the recorded delay, or at most `most` where one is given.
    fn edge(&mut self, to: u32, from: u32, at_start: bool, most: Option<i64>, delay: Delay) {
        let recorded = self.units[to as usize].start - self.time(from, at_start);
        if recorded < 0 || from == to {
            self.against_time += 1;
            return;
        }
        let lag = most.map_or(recorded, |m| m.min(recorded));
        self.edges.push(to, Edge { from, lag, at_start, delay });
    }

    fn unit(&mut self, piece: &Piece, start: i64, end: i64, kind: UnitKind) -> u32 {
        let Piece { event, operator, module, .. } = *piece;
        self.units.push(Unit { start, end, event, operator, module, kind });
        self.units.len() as u32 - 1
    }
}

/// Builds the graph of a window; `main` is the thread (process and thread) whose end is the window's, if one is named.
pub(super) fn build(events: &Events, window: (i64, i64), main: Option<(u32, u32)>) -> Graph {
    let begin =
        Unit { start: window.0, end: window.0, event: NONE, operator: NONE, module: NONE, kind: UnitKind::Edge };
    // Room that is not used costs nothing; growing would leave holes as large as what grew.
    let most = 3 * events.list.len();
    let edges = Edges { to: Vec::with_capacity(most), list: Vec::with_capacity(most) };
    let mut units = Vec::with_capacity(2 * events.list.len());
    units.push(begin);
    let mut b = Builder { events, window, units, edges, against_time: 0 };
    let (threads, launches, calls) = host(&mut b);
    let operations = device(&mut b, &launches);
    // What is of no more use makes room.
    drop(launches);
    let (typical_launch, typical_gap) = device_edges(&mut b, &operations);
    waits(&mut b, &operations);
    drop(operations);
    host_edges(&mut b, &threads, &calls);
    finish(&mut b, &threads, main);
    drop((threads, calls));
    order(b, (typical_launch, typical_gap))
}

/// Units of a thread in order, each with whether Python or an annotation was open in the gap before it.
struct Thread {
    track: (u32, u32),
    /// It only asks whether the device is done (the watchdog of a communication library).
    asks: bool,
    units: Vec<(u32, bool)>,
}

/// First unit of each call that launched something, by process and correlation.
type Launches = HashMap<i64, u32, RandomState>;

/// First unit of the caller of each collective of the host, by the collective's event.
type Calls = HashMap<u32, u32, RandomState>;

fn host(b: &mut Builder<'_>) -> (Vec<Thread>, Launches, Calls) {
    let list = &b.events.list;
    let mut tracks: Vec<((u32, u32), Vec<u32>)> = b.events.tracks.iter().map(|&t| (t, Vec::new())).collect();
    for (at, e) in list.iter().enumerate().filter(|(_, e)| !e.kind.on_device()) {
        tracks[e.track as usize].1.push(at as u32);
    }
    tracks.retain(|t| !t.1.is_empty());
    tracks.sort_unstable_by_key(|t| t.0);
    let blocking = b.events.names.mask(blocks);
    let asking = b.events.names.mask(queries);
    let mut seen = vec![false; list.len()];
    let mut launches = Launches::default();
    let callers = Callers::new(b.events);
    let mut first_of: HashMap<u32, u32, RandomState> = HashMap::default();
    let mut threads = Vec::with_capacity(tracks.len());
    for (track, thread) in tracks {
        let mut units = Vec::new();
        let mut asks = true;
        let mut row = pieces(b.events, &thread, b.window, &mut seen);
        callers.cut_waits(b.events, &mut row);
        for piece in row {
            let event = &list[piece.event as usize];
            let call = event.kind == Kind::Call;
            asks &= call && asking[event.name as usize];
            let unit = if call && piece.last && blocking[event.name as usize] {
                // Where the wait ended is found when all operations are known.
                let entered = b.unit(&piece, piece.start, piece.start, UnitKind::Host);
                units.push((entered, piece.python_before));
                units.push((b.unit(&piece, piece.start, piece.start, UnitKind::Wait), false));
                units.push((b.unit(&piece, piece.start, piece.end, UnitKind::Return), false));
                entered
            } else {
                let unit = b.unit(&piece, piece.start, piece.end, UnitKind::Host);
                units.push((unit, piece.python_before));
                unit
            };
            if event.kind == Kind::Operator && callers.calls(piece.event) {
                first_of.entry(piece.event).or_insert(unit);
            }
            if call && event.correlation != -1 {
                launches.entry(event.correlation).or_insert(unit);
            }
        }
        threads.push(Thread { track, asks, units });
    }
    let carried = |(at, e): (u32, &Event)| {
        let caller = callers.of(at).filter(|_| e.kind == Kind::Exchange)?;
        Some((at, *first_of.get(&caller)?))
    };
    let calls: Calls = (0u32..).zip(list).filter_map(carried).collect();
    // A collective is its caller's, as an operation of the device is.
    for &(unit, _) in threads.iter().flat_map(|t| &t.units) {
        let caller = calls.get(&b.units[unit as usize].event).map(|c| b.units[*c as usize]);
        if let Some(caller) = caller {
            (b.units[unit as usize].operator, b.units[unit as usize].module) = (caller.operator, caller.module);
        }
    }
    (threads, launches, calls)
}

fn device(b: &mut Builder<'_>, launches: &Launches) -> Vec<Operation> {
    let list = &b.events.list;
    let inside = |e: &Event| e.kind.on_device() && e.end > b.window.0 && e.start < b.window.1;
    let mut order: Vec<u32> = (0..list.len() as u32).filter(|&at| inside(&list[at as usize])).collect();
    order.sort_unstable_by_key(|&at| (list[at as usize].start, list[at as usize].end, at));
    let mut last: HashMap<(i32, i32), u32, RandomState> = HashMap::default();
    let mut out = Vec::with_capacity(order.len());
    for at in order {
        let e = &list[at as usize];
        let call = launches.get(&e.correlation).copied().filter(|_| e.correlation != -1);
        let from = call.map_or((NONE, NONE), |c| (b.units[c as usize].operator, b.units[c as usize].module));
        let unit = b.units.len() as u32;
        let (start, end) = (e.start.max(b.window.0), e.end.min(b.window.1));
        b.units.push(Unit { start, end, event: at, operator: from.0, module: from.1, kind: UnitKind::Device });
        // What ran already when the window began depends on nothing in it.
        let running = e.start < b.window.0;
        let previous = last.insert((e.device, e.stream), unit);
        out.push(Operation { unit, call: call.filter(|_| !running), previous: previous.filter(|_| !running) });
    }
    out
}

fn device_edges(b: &mut Builder<'_>, operations: &[Operation]) -> (i64, i64) {
    let start = |u: u32| b.units[u as usize].start;
    let end = |u: u32| b.units[u as usize].end;
    let (mut after_call, mut after_previous) = (Vec::new(), Vec::new());
    for o in operations {
        let called = o.call.map(start);
        match (called, o.previous.map(end)) {
            (Some(c), p) if p.is_none_or(|p| p <= c) => after_call.push((start(o.unit) - c).max(0)),
            (Some(c), Some(p)) if p > c && p <= start(o.unit) => after_previous.push(start(o.unit) - p),
            _ => {}
        }
    }
    let [launch, gap] = [&mut after_call, &mut after_previous].map(|delays| middle(delays).unwrap_or(0));
    // Ends of operations so far, by device: the latest first.
    let mut ended: HashMap<i32, std::collections::BTreeSet<(i64, u32)>, RandomState> = HashMap::default();
    for o in operations {
        let (begin, device) = (start_of(b, o.unit), b.events.list[b.units[o.unit as usize].event as usize].device);
        let called = o.call.map(|c| start_of(b, c)).filter(|c| *c <= begin);
        let ready = called.map(|c| c + launch.min(begin - c));
        let previous = o.previous.map(|p| (p, b.units[p as usize]));
        let overlaps = previous.is_some_and(|(_, p)| p.end > begin);
        let freed = previous.filter(|_| !overlaps).map(|(_, p)| p.end);
        let known = ready.max(freed);
        let others = ended.entry(device).or_default();
        // Later than both explain: another stream's operation was waited for.
        let waited = others.range(..=(begin, u32::MAX)).next_back().copied().filter(|w| Some(w.0) > known);
        let by_stream = freed.is_some() && freed >= ready;
        match (waited, previous) {
            (Some((_, source)), _) => b.edge(o.unit, source, false, None, Delay::Wait),
            (None, Some((p, _))) if overlaps && called.is_none() => b.edge(o.unit, p, true, None, Delay::Stream),
            _ => {}
        }
        if let Some(call) = o.call.filter(|_| called.is_some()) {
            let binds = waited.is_none() && !by_stream;
            let long = begin - start_of(b, call) > LONG_LAUNCH.max(20 * launch);
            let delay = if binds && long { Delay::Unexplained } else { Delay::Launch };
            b.edge(o.unit, call, true, (!binds).then_some(launch), delay);
        }
        if let Some((p, _)) = previous.filter(|_| !overlaps) {
            let binds = waited.is_none() && by_stream;
            b.edge(o.unit, p, false, (!binds).then_some(gap), Delay::Stream);
        }
        let end = b.units[o.unit as usize].end;
        others.insert((end, o.unit));
        // What ended long ago is never asked for again.
        while others.len() > 256 {
            others.pop_first();
        }
    }
    (launch, gap)
}

fn start_of(b: &Builder<'_>, unit: u32) -> i64 {
    b.units[unit as usize].start
}

/// Finds what each blocking call waited for.
fn waits(b: &mut Builder<'_>, operations: &[Operation]) {
    let mut by_end: Vec<(i64, u32, i64)> = operations
        .iter()
        .map(|o| (b.units[o.unit as usize].end, o.unit, o.call.map_or(b.window.0, |c| start_of(b, c))))
        .collect();
    by_end.sort_unstable();
    let mut copies: HashMap<i64, u32, RandomState> = HashMap::default();
    for o in operations {
        let e = &b.events.list[b.units[o.unit as usize].event as usize];
        if e.kind == Kind::Copy && e.correlation != -1 {
            copies.insert(e.correlation, o.unit);
        }
    }
    let of_device = b.events.names.mask(waits_for_all);
    let streams = streams(b, operations);
    for wait in 0..b.units.len() {
        if b.units[wait].kind != UnitKind::Wait {
            continue;
        }
        let (begin, end) = (b.units[wait].start, b.units[wait + 1].end);
        let event = &b.events.list[b.units[wait].event as usize];
        let all = of_device[event.name as usize];
        let found = if b.events.name(event).contains("Memcpy") {
            let copy = copies.get(&event.correlation).map(|&c| (b.units[c as usize].end, c));
            copy.filter(|c| c.0 <= end && c.0 > begin)
        } else {
            let until = by_end.partition_point(|o| o.0 <= end);
            let candidates = by_end[..until].iter().rev().take_while(|o| o.0 > begin);
            // Bounded: behind so many operations of later launches the wait is not explained.
            candidates.take(4096).find(|o| o.2 <= begin).map(|o| (o.0, o.1))
        };
        if let Some((at, operation)) = found {
            b.units[wait].start = at;
            b.units[wait].end = at;
            b.units[wait + 1].start = at;
            b.edge(wait as u32, operation, false, None, Delay::Order);
        }
        if all {
            // A thread's device is not recorded: it is that of what was waited for, or the only one.
            let at = b.units[wait].start;
            let of = |unit: u32| b.events.list[b.units[unit as usize].event as usize].device;
            let device = found.map(|f| of(f.1)).or_else(|| {
                let first = streams.first()?.0.0;
                streams.iter().all(|s| s.0.0 == first).then_some(first)
            });
            for (_, launched) in streams.iter().filter(|s| Some(s.0.0) == device) {
                let before = launched.partition_point(|l| l.0 <= begin);
                let last = before.checked_sub(1).map(|i| launched[i].1);
                // One that ended later was evidently not waited for.
                let last = last.filter(|&l| b.units[l as usize].end <= at && found.is_none_or(|f| f.1 != l));
                if let Some(last) = last {
                    b.edge(wait as u32, last, false, Some(0), Delay::Wait);
                }
            }
        }
    }
}

/// A device and a stream of it, with each launch on it in order: when its call began, and the operation that ends last of those launched until then.
type Launched = ((i32, i32), Vec<(i64, u32)>);

fn streams(b: &Builder<'_>, operations: &[Operation]) -> Vec<Launched> {
    let mut by_stream: std::collections::BTreeMap<(i32, i32), Vec<(i64, u32)>> = std::collections::BTreeMap::new();
    for o in operations {
        let e = &b.events.list[b.units[o.unit as usize].event as usize];
        let called = o.call.map_or(b.window.0, |c| start_of(b, c));
        by_stream.entry((e.device, e.stream)).or_default().push((called, o.unit));
    }
    for launched in by_stream.values_mut() {
        launched.sort_unstable();
        let mut last = launched[0].1;
        for (_, unit) in launched {
            if b.units[*unit as usize].end >= b.units[last as usize].end {
                last = *unit;
            }
            *unit = last;
        }
    }
    by_stream.into_iter().collect()
}

/// Order of the host: on each thread, and from thread to thread.
fn host_edges(b: &mut Builder<'_>, threads: &[Thread], calls: &Calls) {
    // Ends of all threads' work, each with its place on its thread.
    let mut ends: Vec<(i64, u32, u32)> = Vec::new();
    for (t, thread) in threads.iter().enumerate().filter(|(_, thread)| !thread.asks) {
        let of = |(place, unit): (usize, &(u32, bool))| (b.units[unit.0 as usize].end, t as u32, place as u32);
        ends.extend(thread.units.iter().enumerate().map(of));
    }
    ends.sort_unstable();
    for (t, thread) in threads.iter().enumerate() {
        let mut previous: Option<u32> = None;
        for &(unit, python) in &thread.units {
            let since = previous.map_or(b.window.0, |p| b.units[p as usize].end);
            let Unit { start, kind, .. } = b.units[unit as usize];
            // The wait begins when the call does; what it waits for makes it end later.
            let begin = if kind == UnitKind::Wait { since } else { start };
            // Another thread that ended work in the gap and did nothing more until its end: it was waited for.
            let stopped = |e: &&(i64, u32, u32)| {
                let next = threads[e.1 as usize].units.get(e.2 as usize + 1);
                e.1 != t as u32 && next.is_none_or(|n| b.units[n.0 as usize].start >= begin)
            };
            let called = if begin > since { calls.get(&b.units[unit as usize].event).copied() } else { None };
            if let Some(from) = called {
                let lag = begin - b.units[from as usize].start;
                b.edges.push(unit, Edge { from, lag, at_start: true, delay: Delay::Launch });
            }
            let handed = if begin > since && called.is_none() {
                let until = ends.partition_point(|e| e.0 <= begin);
                ends[..until].iter().rev().take_while(|e| e.0 > since).take(64).find(stopped).copied()
            } else {
                None
            };
            if let Some((at, other, place)) = handed {
                let from = threads[other as usize].units[place as usize].0;
                push(b, unit, from, begin - at, start - begin, Delay::Thread);
            }
            let delay = match (previous, python) {
                (None, _) => Delay::Before,
                _ if begin == since => Delay::Order,
                (_, true) => Delay::Interpreter,
                (_, false) => Delay::Gap,
            };
            match (handed.is_some() || called.is_some(), previous) {
                (true, None) => {}
                (true, Some(p)) => push(b, unit, p, 0, start - since, Delay::Order),
                (false, p) => push(b, unit, p.unwrap_or(0), begin - since, start - begin, delay),
            }
            previous = Some(unit);
        }
    }
}

/// An edge with a stated delay; `late` is what the unit started later than the host alone would have let it.
fn push(b: &mut Builder<'_>, to: u32, from: u32, lag: i64, late: i64, delay: Delay) {
    let spare = b.units[to as usize].start - b.units[from as usize].end - lag - late;
    if spare < 0 || lag < 0 || from == to {
        b.against_time += 1;
    } else {
        b.edges.push(to, Edge { from, lag, at_start: false, delay });
    }
}

/// Units without a dependency begin with the window; the last work ends it.
fn finish(b: &mut Builder<'_>, threads: &[Thread], main: Option<(u32, u32)>) {
    let n = b.units.len();
    // A unit must have an edge that explains its start; where none does, the window's begin does.
    let (mut explained, mut followed) = (vec![false; n], vec![false; n]);
    for (to, e) in b.edges.iter() {
        explained[to as usize] |= b.time(e.from, e.at_start) + e.lag == b.units[to as usize].start;
        followed[e.from as usize] |= !e.at_start;
    }
    for unit in (1..n as u32).filter(|&u| !explained[u as usize]) {
        b.edge(unit, 0, false, None, Delay::Before);
    }
    let sink = Unit { start: b.window.1, end: b.window.1, kind: UnitKind::Edge, ..b.units[0] };
    b.units.push(sink);
    let last_of = |units: &mut dyn Iterator<Item = u32>| units.max_by_key(|&u| (b.units[u as usize].end, u));
    let on_main = main.and_then(|m| threads.iter().find(|t| t.track == m)).and_then(|t| t.units.last()).map(|u| u.0);
    let mut asks = vec![false; n];
    let asking = threads.iter().filter(|t| t.asks).flat_map(|t| &t.units);
    asking.for_each(|(unit, _)| asks[*unit as usize] = true);
    let works = last_of(&mut (1..n as u32).filter(|u| !asks[*u as usize]));
    let last = on_main.or(works).or_else(|| last_of(&mut (1..n as u32))).unwrap_or(0);
    b.edge(n as u32, last, false, None, Delay::After);
    for unit in 1..n as u32 {
        if unit != last && !followed[unit as usize] && !asks[unit as usize] {
            b.edge(n as u32, unit, false, Some(0), Delay::Order);
        }
    }
}

/// Sorts units by time; of equal times what others wait for comes first.
fn order(b: Builder<'_>, (typical_launch, typical_gap): (i64, i64)) -> Graph {
    let n = b.units.len();
    let mut waiting = vec![0u32; n];
    let mut count = vec![0u32; n + 1];
    for (to, e) in b.edges.iter() {
        waiting[to as usize] += 1;
        count[e.from as usize + 1] += 1;
    }
    (0..n).for_each(|i| count[i + 1] += count[i]);
    let mut next = count.clone();
    let mut outgoing = vec![0u32; b.edges.to.len()];
    for (to, e) in b.edges.iter() {
        outgoing[next[e.from as usize] as usize] = to;
        next[e.from as usize] += 1;
    }
    let mut queue: Vec<u32> = (0..n as u32).filter(|&u| waiting[u as usize] == 0).collect();
    let mut at = 0;
    while let Some(&unit) = queue.get(at) {
        at += 1;
        for &to in &outgoing[count[unit as usize] as usize..count[unit as usize + 1] as usize] {
            waiting[to as usize] -= 1;
            if waiting[to as usize] == 0 {
                queue.push(to);
            }
        }
    }
    drop((outgoing, next, count));
    // Units of no length that wait for each other: taken by time, their edges back left out.
    let mut left: Vec<u32> = (0..n as u32).filter(|&u| waiting[u as usize] > 0).collect();
    left.sort_by_key(|&u| (b.units[u as usize].start, b.units[u as usize].end, u));
    queue.append(&mut left);
    // The window's end comes last, behind what nobody waits for too.
    queue.retain(|&u| u as usize + 1 != n);
    queue.push(n as u32 - 1);
    drop((left, waiting));
    let mut place = vec![0u32; n];
    queue.iter().enumerate().for_each(|(p, &u)| place[u as usize] = p as u32);
    drop(queue);
    let (mut units, mut edges) = (b.units, b.edges);
    let mut kept = 0;
    for at in 0..edges.to.len() {
        let (to, from) = (place[edges.to[at] as usize], place[edges.list[at].from as usize]);
        if from < to {
            edges.to[kept] = to;
            edges.list[kept] = Edge { from, ..edges.list[at] };
            kept += 1;
        }
    }
    let against_time = b.against_time + (edges.to.len() - kept) as u64;
    edges.to.truncate(kept);
    edges.list.truncate(kept);
    move_to(&mut units, place);
    let (edges, first) = by_target(edges, n);
    Graph { window: b.window, units, edges, first, typical_launch, typical_gap, against_time }
}

/// Moves each unit to its place, in place: a second list would be as large as the first.
fn move_to(units: &mut [Unit], mut place: Vec<u32>) {
    for at in 0..units.len() {
        while place[at] as usize != at {
            let to = place[at] as usize;
            units.swap(at, to);
            place.swap(at, to);
        }
    }
}

/// Edges by the unit that they lead to, then by delay and origin, and where those of each of so many units begin. They are distributed into a second
/// list: neighbours in the first one go to neighbours in the second, where swapping them in place would go through memory at random.
fn by_target(edges: Edges, units: usize) -> (Vec<Edge>, Vec<u32>) {
    // Where the edges of each unit end; each that is laid down, from the back, moves it towards where they begin.
    let mut first = vec![0u32; units + 1];
    edges.to.iter().for_each(|to| first[*to as usize] += 1);
    let mut sum = 0;
    for ends in &mut first {
        sum += *ends;
        *ends = sum;
    }
    let Some(some) = edges.list.first().copied() else { return (Vec::new(), first) };
    let mut out = vec![some; edges.list.len()];
    for (to, edge) in edges.iter() {
        let next = &mut first[to as usize];
        *next -= 1;
        out[*next as usize] = *edge;
    }
    for ends in first.windows(2).filter(|f| f[1] - f[0] > 1) {
        out[ends[0] as usize..ends[1] as usize].sort_unstable_by_key(|e| (e.delay, e.from, e.at_start, e.lag));
    }
    (out, first)
}
