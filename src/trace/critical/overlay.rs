//! The path drawn into its timeline, for Perfetto and chrome://tracing: a track of its own with the stretches in order, coloured by part,
//! and arrows where it passes from one track to another.

use super::events::{Event, Events};
use super::graph::Graph;
use super::run::Slack;
use super::tiling::Stretch;
use crate::trace::timeline::{Events as Writer, micros};
use serde_json::{Value, json};
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

/// The process of the path's own track: viewers sort by it.
const PROCESS: &str = "critical path";

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
    let zero = i128::from(graph.window.0);
    let at = |ns: i64| micros(i128::from(ns) - zero);
    let track = |id: u32| {
        let name = events.names.name(id);
        name.parse::<i64>().map_or_else(|_| json!(name), |n| json!(n))
    };
    let place = |e: &Event| {
        let (pid, tid) = events.track(e);
        (track(pid), track(tid))
    };
    writer.put(&json!({"ph": "M", "name": "process_name", "pid": PROCESS, "tid": 0, "args": {"name": PROCESS}}))?;
    writer
        .put(&json!({"ph": "M", "name": "process_sort_index", "pid": PROCESS, "tid": 0, "args": {"sort_index": -1}}))?;
    writer.put(&json!({"ph": "M", "name": "thread_name", "pid": PROCESS, "tid": 0, "args": {"name": "in order"}}))?;
    let event_of = |unit: u32| events.list.get(graph.units[unit as usize].event as usize);
    let name_of = |e: Option<&Event>| e.map_or("", |e| events.name(e)).to_owned();
    let mut least = vec![i64::MAX; events.list.len()];
    let mut critical = vec![false; events.list.len()];
    for (unit, ns) in graph.units.iter().zip(&slack.ns) {
        if let Some(slot) = least.get_mut(unit.event as usize) {
            *slot = (*slot).min(*ns);
        }
    }
    path.iter().for_each(|s| {
        if let Some(slot) = critical.get_mut(graph.units[s.unit as usize].event as usize) {
            *slot = true;
        }
    });
    for (at_list, e) in events.list.iter().enumerate() {
        let inside = e.end > graph.window.0 && e.start < graph.window.1;
        let ns = least[at_list];
        let drawn = match show {
            Show::Path => critical[at_list],
            Show::Near(most) => critical[at_list] || ns <= most,
            Show::All => inside,
        };
        if !drawn {
            continue;
        }
        let mut args = serde_json::Map::new();
        args.insert("index".into(), e.index.into());
        if critical[at_list] {
            args.insert("critical".into(), 1.into());
        }
        if ns != i64::MAX {
            args.insert("slack (us)".into(), micros(ns.into()));
        }
        writer.put(&json!({
            "ph": "X", "cat": format!("{:?}", e.kind).to_lowercase(), "name": events.name(e), "pid": place(e).0, "tid": place(e).1,
            "ts": at(e.start), "dur": micros((e.end - e.start).into()), "args": args,
        }))?;
    }
    let mut before: Option<(&Event, i64)> = None;
    let mut arrows = 0u64;
    for s in path {
        let event = event_of(s.unit);
        let runs = s.unit == s.after;
        let name = if runs { name_of(event) } else { s.part.word().to_owned() };
        let mut args = serde_json::Map::new();
        args.insert("part".into(), s.part.word().into());
        for (key, value) in
            [("cause", s.cause().to_owned()), ("before", name_of(event)), ("after", name_of(event_of(s.after)))]
        {
            if !value.is_empty() && (key == "cause" || !runs) {
                args.insert(key.into(), value.into());
            }
        }
        writer.put(&json!({
            "ph": "X", "cat": "critical_path", "name": name, "cname": s.part.colour(), "pid": PROCESS, "tid": 0,
            "ts": at(s.start), "dur": micros((s.end - s.start).into()), "args": args,
        }))?;
        let Some(event) = event.filter(|_| runs) else { continue };
        if let Some((from, left)) = before.filter(|b| place(b.0) != place(event)) {
            let end = |e: &Event, ph: &str, ts: Value| {
                let (pid, tid) = place(e);
                let mut v = json!({"ph": ph, "id": arrows, "cat": "critical_path", "name": "critical_path", "pid": pid, "tid": tid, "ts": ts});
                if ph == "f" {
                    v["bp"] = "e".into();
                }
                v
            };
            writer.put(&end(from, "s", at(left)))?;
            writer.put(&end(event, "f", at(s.start)))?;
            arrows += 1;
        }
        // The arrow leaves inside the event: at its very end viewers no longer find it.
        before = Some((event, s.end.saturating_sub(1).max(s.start)));
    }
    writer.finish()
}
