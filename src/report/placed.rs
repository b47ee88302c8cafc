//! Figures and timelines of placed and simulated actor graphs.

use super::plot::{Flow, Gantt, Stack, Stacks, Stretch};
use crate::place::ActorGraph;
use crate::place::simulate::trace::Firing;
use crate::place::simulate::{Net, Steady};
use crate::trace::timeline::Events;
use crate::units::{Bytes, Seconds};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Most firings recorded for figures and timelines.
pub const MOST_FIRINGS: usize = 200_000;
/// Most bars of one figure: beyond, they are thinner than a line.
const MOST_BARS: usize = 20_000;

/// Cores that hold an actor, in order.
fn used(net: &Net) -> Vec<usize> {
    let mut used: Vec<usize> = net.core_of.clone();
    used.sort_unstable();
    used.dedup();
    used
}

/// A unit for times up to `longest`: what to multiply seconds by, and its name.
fn unit(longest: f64) -> (f64, &'static str) {
    let units = [(1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")];
    units.into_iter().find(|(scale, _)| longest * scale >= 1.0).unwrap_or((1e9, "ns"))
}

/// Core occupancy over time, coloured by iteration.
pub fn gantt(net: &Net, steady: &Steady, firings: &[Firing]) -> Gantt {
    let cores = used(net);
    let row: BTreeMap<usize, usize> = cores.iter().enumerate().map(|(row, core)| (*core, row)).collect();
    let end = firings.iter().map(|f| f.start_s + f.seconds).fold(0.0, f64::max);
    let (scale, name) = unit(end);
    let first = firings.iter().map(|f| f.iteration).min().unwrap_or(0);
    let stretch = |f: &Firing| Stretch {
        row: row.get(&f.core).copied().unwrap_or(0),
        start: f.start_s * scale,
        length: f.seconds * scale,
        group: f.iteration - first,
        label: net.actors[f.actor].clone(),
    };
    Gantt {
        title: format!("Core occupancy, {} an iteration", Seconds(steady.iteration_s)),
        x_label: format!("time ({name}); a colour is an iteration"),
        rows: cores.iter().map(|c| net.cores[*c].clone()).collect(),
        beside: cores.iter().map(|c| format!("{:.1} %", 100.0 * steady.utilisation[*c])).collect(),
        group: "iteration".into(),
        stretches: firings.iter().take(MOST_BARS).map(stretch).collect(),
    }
}

/// The placement: actors by core, as high as their seconds an iteration, and what goes between the cores.
pub fn stacks(graph: &ActorGraph, net: &Net, steady: &Steady) -> Stacks {
    let cores = used(net);
    let place: BTreeMap<usize, usize> = cores.iter().enumerate().map(|(at, core)| (*core, at)).collect();
    let (scale, name) = unit(steady.iteration_s);
    let mut stacks: Vec<Stack> =
        cores.iter().map(|c| Stack { name: net.cores[*c].clone(), parts: Vec::new() }).collect();
    for (a, core) in net.core_of.iter().enumerate() {
        let seconds = net.repetitions[a] as f64 * net.seconds[a];
        if let Some(stack) = place.get(core).and_then(|at| stacks.get_mut(*at)) {
            stack.parts.push((net.actors[a].clone(), seconds * scale));
        }
    }
    let mut bytes: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for (f, channel) in net.fifos.iter().zip(&graph.channels) {
        let ends = [net.core_of[f.source], net.core_of[f.target]].map(|c| place.get(&c).copied().unwrap_or(0));
        if ends[0] != ends[1] {
            let tokens = net.repetitions[f.source] as f64 * f64::from(f.produced);
            *bytes.entry((ends[0], ends[1])).or_default() += tokens * channel.token_bytes;
        }
    }
    let most = bytes.values().copied().fold(0.0, f64::max);
    let total: f64 = bytes.values().sum();
    Stacks {
        title: format!("{}: {} actors on {} cores", graph.name, net.actors.len(), cores.len()),
        x_label: "core".into(),
        y_label: format!("time an iteration ({name})"),
        stacks,
        flows: bytes.into_iter().map(|((from, to), amount)| Flow { from, to, amount }).collect(),
        flow_label: format!(
            "bytes an iteration from core to core; the widest is {}, all {}",
            Bytes(most),
            Bytes(total)
        ),
        level: Some((steady.iteration_s * scale, "simulated iteration".into())),
    }
}

/// Writes firings as a timeline: a thread for each core.
///
/// # Errors
/// Those of the writer underneath.
pub fn timeline(net: &Net, firings: &[Firing], out: impl Write) -> io::Result<()> {
    let mut events = Events::new(out)?;
    for core in used(net) {
        let name = json!({"name": net.cores[core]});
        events.put(&json!({"ph": "M", "name": "thread_name", "pid": 0, "tid": core, "args": name}))?;
    }
    for f in firings {
        events.put(&json!({
            "ph": "X", "cat": "firing", "name": net.actors[f.actor], "pid": 0, "tid": f.core,
            "ts": f.start_s * 1e6, "dur": f.seconds * 1e6, "args": {"iteration": f.iteration},
        }))?;
    }
    events.finish()
}
