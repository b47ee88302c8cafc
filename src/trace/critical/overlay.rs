//! The path drawn into its timeline, for Perfetto and chrome://tracing: a track of its own with the stretches in order, coloured by part,
//! and arrows where it passes from one track to another.
//!
//! Catapult (chrome://tracing) takes a slice's colour from the file, Perfetto from the slice's name and from nothing else. So a stretch is a slice with
//! the name of its part, and what ran or was waited for is a slice inside of it.
//!
//! Both viewers ask that the events of a track lie inside each other or apart, and that nothing begins before zero: an event that crosses another one has a second
//! track beside it, and what began before the window is drawn from the window's begin. Perfetto knows tracks by numbers: names have one of their own.

use super::events::{Event, Events};
use super::graph::{Delay, Graph};
use super::run::Slack;
use super::tiling::Stretch;
use crate::trace::timeline::{Events as Writer, micros};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Which events of the trace are drawn beside the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Those on the path.
    Path,
    /// Those with at most so much slack, ns.
    Near(i64),
    /// All of the window.
    All,
}

/// The name of the path's own track.
const OWN: &str = "critical path";

/// Process, thread, and which of its tracks beside each other.
type Lane = (u32, u32, usize);

/// Where each drawn event is, and what the tracks are called.
struct Tracks {
    /// Drawn events with their lane, track by track, each from its begin.
    drawn: Vec<(u32, Lane)>,
    /// Numbers of process and thread.
    numbers: BTreeMap<Lane, (i64, i64)>,
    /// That of the path's own process and thread.
    own: i64,
    /// Processes and threads of devices.
    devices: BTreeSet<(u32, u32)>,
}

impl Tracks {
    fn new(events: &Events, begin: i64, drawn: impl Iterator<Item = u32>) -> Self {
        let event = |at: u32| events.list.get(at as usize).copied();
        let mut order: Vec<(u32, Event)> = drawn.filter_map(|at| Some((at, event(at)?))).collect();
        order.sort_by_key(|(at, e)| (e.track, e.start.max(begin), std::cmp::Reverse(e.end), *at));
        let mut devices = BTreeSet::new();
        let (mut drawn, mut lanes, mut last) = (Vec::with_capacity(order.len()), Vec::<Vec<i64>>::new(), None);
        for (at, e) in order {
            let (process, thread) = events.track(&e);
            if last.replace(e.track) != Some(e.track) {
                lanes.clear();
            }
            if e.kind.on_device() {
                devices.insert((process, thread));
            }
            // The ends of what is open in each lane: an event has to end inside the innermost one.
            let start = e.start.max(begin);
            lanes.iter_mut().for_each(|open| open.truncate(open.partition_point(|end| *end > start)));
            let lane = lanes.iter().position(|open| open.last().is_none_or(|end| *end >= e.end));
            let lane = lane.unwrap_or(lanes.len());
            if lane == lanes.len() {
                lanes.push(Vec::new());
            }
            if let Some(open) = lanes.get_mut(lane) {
                open.push(e.end);
            }
            drawn.push((at, (process, thread, lane)));
        }
        let seen: BTreeSet<Lane> = drawn.iter().map(|(_, lane)| *lane).collect();
        // Numbers that both viewers take as they are.
        let number = |name: u32| events.names.name(name).parse::<i64>().ok().filter(|n| (0..1 << 31).contains(n));
        let mut used: BTreeSet<i64> =
            seen.iter().flat_map(|(process, thread, _)| [number(*process), number(*thread)]).flatten().collect();
        let mut next = 1;
        let mut free = || {
            while !used.insert(next) {
                next += 1;
            }
            next
        };
        let own = free();
        let mut processes: BTreeMap<u32, i64> = BTreeMap::new();
        let numbers = seen.iter().map(|lane| {
            let process = *processes.entry(lane.0).or_insert_with(|| number(lane.0).unwrap_or_else(&mut free));
            let thread = number(lane.1).filter(|_| lane.2 == 0).unwrap_or_else(&mut free);
            (*lane, (process, thread))
        });
        let numbers = numbers.collect();
        Self { drawn, numbers, own, devices }
    }

    fn place(&self, lane: Lane) -> (i64, i64) {
        self.numbers.get(&lane).copied().unwrap_or((self.own, self.own))
    }

    /// Says what the tracks are called and in which order they come: the path, the host, devices.
    fn name(&self, events: &Events, writer: &mut Writer<impl Write>) -> io::Result<()> {
        let mut say = |what: &str, (pid, tid): (i64, i64), key: &str, value: Value| {
            writer.put(&json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {key: value}}))
        };
        let own = (self.own, self.own);
        say("process_name", own, "name", OWN.into())?;
        say("process_sort_index", own, "sort_index", (-1).into())?;
        say("thread_name", own, "name", "in order".into())?;
        let called = |kind: &str, name: u32, written: Option<i64>| match (events.names.name(name), written) {
            ("", _) => format!("{kind} without name"),
            (text, Some(number)) if text.parse() == Ok(number) => kind.to_owned(),
            (text, _) if text.parse::<i64>().is_ok() => format!("{kind} {text}"),
            (text, _) => text.to_owned(),
        };
        let mut named = BTreeSet::new();
        for (order, (lane, at)) in self.numbers.iter().enumerate() {
            if named.insert(lane.0) {
                let device = self.devices.iter().any(|d| d.0 == lane.0);
                let kind = if device { "device" } else { "process" };
                // Both viewers write a process's number behind its name.
                say("process_name", *at, "name", called(kind, lane.0, Some(at.0)).into())?;
                say("process_sort_index", *at, "sort_index", i64::from(device).into())?;
            }
            let device = self.devices.contains(&(lane.0, lane.1));
            let name = called(if device { "stream" } else { "thread" }, lane.1, None);
            let beside = if lane.2 > 0 { format!(" ({})", lane.2 + 1) } else { String::new() };
            say("thread_name", *at, "name", (name + &beside).into())?;
            // A second track comes below the first, whatever its number.
            say("thread_sort_index", *at, "sort_index", order.into())?;
        }
        Ok(())
    }
}

/// The call whose operation a stretch waits for: the path goes through its begin.
fn launched_by(stretch: &Stretch) -> Option<u32> {
    matches!(stretch.delay, Some(Delay::Launch | Delay::Unexplained)).then_some(stretch.after)
}

/// Writes the timeline, counted from the window's begin.
///
/// # Errors
/// Those of the writer underneath.
pub fn write(
    events: &Events,
    graph: &Graph,
    path: &[Stretch],
    slack: &Slack,
    show: Show,
    out: impl Write,
) -> io::Result<()> {
    let mut writer = Writer::new(out)?;
    let begin = graph.window.0;
    let at = |ns: i64| micros(i128::from(ns) - i128::from(begin));
    let position = |unit: u32| graph.units.get(unit as usize).map_or(u32::MAX, |u| u.event);
    let event_of = |unit: u32| events.list.get(position(unit) as usize);
    let name_of = |e: Option<&Event>| e.map_or("", |e| events.name(e)).to_owned();
    let mut least = vec![i64::MAX; events.list.len()];
    let mut critical = vec![false; events.list.len()];
    for (unit, ns) in graph.units.iter().zip(&slack.ns) {
        if let Some(slot) = least.get_mut(unit.event as usize) {
            *slot = (*slot).min(*ns);
        }
    }
    path.iter().flat_map(|s| [Some(s.unit), launched_by(s)]).flatten().for_each(|unit| {
        if let Some(slot) = critical.get_mut(position(unit) as usize) {
            *slot = true;
        }
    });
    let drawn =
        (0u32..).zip(&events.list).zip(critical.iter().zip(&least)).filter(|((_, e), (critical, ns))| match show {
            Show::Path => **critical,
            Show::Near(most) => **critical || **ns <= most,
            Show::All => e.end > graph.window.0 && e.start < graph.window.1,
        });
    let tracks = Tracks::new(events, begin, drawn.map(|((at, _), _)| at));
    tracks.name(events, &mut writer)?;
    for (position, lane) in &tracks.drawn {
        let (position, (pid, tid)) = (*position as usize, tracks.place(*lane));
        let (Some(e), Some(ns)) = (events.list.get(position), least.get(position)) else { continue };
        let start = e.start.max(begin);
        let mut args = serde_json::Map::new();
        args.insert("index".into(), e.index.into());
        if critical.get(position) == Some(&true) {
            args.insert("critical".into(), 1.into());
        }
        if *ns != i64::MAX {
            args.insert("slack (us)".into(), (*ns as f64 / 1000.0).into());
        }
        if start > e.start {
            args.insert("before the window (us)".into(), ((start - e.start) as f64 / 1000.0).into());
        }
        writer.put(&json!({
            "ph": "X", "cat": format!("{:?}", e.kind).to_lowercase(), "name": events.name(e), "pid": pid, "tid": tid,
            "ts": at(start), "dur": micros((e.end - start).max(0).into()), "args": args,
        }))?;
    }
    let lanes: BTreeMap<u32, Lane> =
        tracks.drawn.iter().filter(|(at, _)| critical.get(*at as usize) == Some(&true)).copied().collect();
    let mut before: Option<(Lane, i64)> = None;
    let mut arrows = 0u64;
    for s in path {
        let event = event_of(s.unit);
        let runs = s.unit == s.after;
        let mut args = serde_json::Map::new();
        args.insert("part".into(), s.part.word().into());
        for (key, value) in [("before", name_of(event)), ("after", name_of(event_of(s.after)))] {
            if !value.is_empty() && !runs {
                args.insert(key.into(), value.into());
            }
        }
        let mut slice = json!({
            "ph": "X", "cat": "critical_path", "name": s.part.word(), "cname": s.part.colour(), "pid": tracks.own, "tid": tracks.own,
            "ts": at(s.start), "dur": micros((s.end - s.start).into()), "args": args,
        });
        writer.put(&slice)?;
        let inner = if runs { name_of(event) } else { s.cause().to_owned() };
        if !inner.is_empty() {
            slice["name"] = inner.into();
            slice["args"] = event.filter(|_| runs).map_or_else(|| json!({}), |e| json!({"index": e.index}));
            if let Some(fields) = slice.as_object_mut() {
                fields.remove("cname");
            }
            writer.put(&slice)?;
        }
        let Some(unit) = (if runs { Some(s.unit) } else { launched_by(s) }) else { continue };
        let Some(lane) = lanes.get(&position(unit)).copied() else { continue };
        if let Some((from, left)) = before.filter(|(b, _)| (b.0, b.1) != (lane.0, lane.1)) {
            let end = |lane: Lane, ph: &str, ts: f64| {
                let (pid, tid) = tracks.place(lane);
                let mut v = json!({"ph": ph, "id": arrows, "cat": "critical_path", "name": "critical_path", "pid": pid, "tid": tid, "ts": ts});
                if ph == "f" {
                    v["bp"] = "e".into();
                }
                v
            };
            writer.put(&end(from, "s", at(left)))?;
            writer.put(&end(lane, "f", at(s.start)))?;
            arrows += 1;
        }
        // The arrow leaves inside the event, where that is the innermost: at its very end viewers no longer find it.
        before = Some((lane, if runs { s.end.saturating_sub(1).max(s.start) } else { s.start }));
    }
    writer.finish()
}
