//! Critical paths of recorded timelines ([docs/critical-path.md]): an exact tiling of a window of time, slack, what-if, and, in
//! [`compat`], the answers of HTA 0.6.1.

pub mod compat;
pub mod events;
mod exchange;
pub mod graph;
pub mod names;
pub mod overlay;
pub mod run;
pub mod shares;
pub mod symbols;
mod thread;
pub mod tiling;
pub mod what_if;

pub use events::{Event, Events, Kind};
pub use graph::{Graph, Unit, UnitKind};
pub use run::{Run, Slack};
pub use tiling::{Part, Peers, Stretch};

use std::ops::RangeInclusive;

/// The graph of a window: the time of some events whose name holds a text, or the whole trace where it is empty. The window ends where the thread of the
/// last of these events does; that of the whole trace with its last work.
///
/// # Errors
/// A message: no event has such a name, there are fewer instances, or nothing lies in the window.
pub fn window(events: &Events, annotation: &str, instances: &RangeInclusive<usize>) -> Result<Graph, String> {
    if annotation.is_empty() {
        return Ok(graph::build(events, events.span(), None));
    }
    let named = events.names.mask(|n| n.contains(annotation));
    let mut all: Vec<&Event> = events.list.iter().filter(|e| named[e.name as usize] && !e.kind.on_device()).collect();
    if all.is_empty() {
        let marks = events.names.mask(|n| n.starts_with("ProfilerStep"));
        let steps = events.list.iter().filter(|e| marks[e.name as usize] && !e.kind.on_device()).count();
        let how = match steps {
            0 => "; without --annotation the window is the whole trace".into(),
            n => format!("; `--annotation ProfilerStep` has {n} instances"),
        };
        return Err(format!("no host event's name holds {annotation:?}{how}"));
    }
    all.sort_by_key(|e| (e.start, e.index));
    let (first, last) = (*instances.start(), *instances.end());
    let found = all.get(first..=last.min(all.len() - 1)).unwrap_or_default();
    let Some(latest) = found.iter().max_by_key(|e| e.end) else {
        return Err(format!(
            "--instance {first}: {} host events have names that hold {annotation:?}; they are counted from 0",
            all.len()
        ));
    };
    let start = found.iter().map(|e| e.start).min().unwrap_or(latest.start);
    if latest.end <= start {
        return Err(format!("the events whose names hold {annotation:?} have no duration: nothing lies in the window"));
    }
    Ok(graph::build(events, (start, latest.end), Some(events.track(latest))))
}
