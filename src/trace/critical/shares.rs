//! Who has the critical and nearly critical time: by operator, module and layer; and the paths that come next.

use super::events::Events;
use super::graph::{Graph, Unit, UnitKind};
use super::run::{Decided, Slack};
use super::tiling::{Part, Stretch};
use serde::Serialize;
use std::collections::BTreeMap;

/// Time of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Operator, module or layer.
    pub name: String,
    /// Time on the critical path, ns.
    pub critical_ns: i64,
    /// Time of units with little slack, ns: work that runs at the same time counts each.
    pub near_ns: i64,
}

/// By what time is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The innermost operator.
    Operator,
    /// The kind of module: `nn.Module: Linear_3` is `Linear`.
    Module,
    /// The module itself: `Linear_3`.
    Layer,
}

/// What a name counts as.
fn counted(full: &str, by: By) -> &str {
    match by {
        By::Operator => full,
        By::Layer => full.trim_start_matches("nn.Module: "),
        By::Module => {
            let layer = full.trim_start_matches("nn.Module: ");
            layer.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_')
        }
    }
}

/// Critical and nearly critical time, the longest first; `near` is the slack up to which a unit counts, ns.
pub fn shares(events: &Events, graph: &Graph, path: &[Stretch], slack: &Slack, near: i64, by: By) -> Vec<Share> {
    // By the numbers of the events' names first: units are many, names few.
    let mut numbered = vec![(0i64, 0i64); events.names.names().len()];
    let number = |unit: &Unit| {
        let id = if by == By::Operator { unit.operator } else { unit.module };
        events.list.get(id as usize).map(|e| e.name as usize)
    };
    // What a thread did between operators is nobody's.
    let owned = |s: &&Stretch| s.unit == s.after || matches!(s.part, Part::Launch | Part::Queueing);
    for stretch in path.iter().filter(owned) {
        if let Some(n) = number(&graph.units[stretch.unit as usize]) {
            numbered[n].0 += stretch.end - stretch.start;
        }
    }
    for (unit, _) in graph.units.iter().zip(&slack.ns).filter(|(_, s)| **s <= near) {
        if let Some(n) = number(unit) {
            numbered[n].1 += unit.end - unit.start;
        }
    }
    let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for (name, (critical, near)) in events.names.names().iter().zip(numbered).filter(|(_, s)| *s != (0, 0)) {
        let sum = sums.entry(counted(name, by)).or_default();
        *sum = (sum.0 + critical, sum.1 + near);
    }
    let share = |(name, (critical_ns, near_ns)): (&str, (i64, i64))| Share { name: name.into(), critical_ns, near_ns };
    let mut out: Vec<Share> = sums.into_iter().map(share).filter(|s| s.critical_ns > 0 || s.near_ns > 0).collect();
    out.sort_by(|a, b| b.critical_ns.cmp(&a.critical_ns).then(b.near_ns.cmp(&a.near_ns)).then(a.name.cmp(&b.name)));
    out
}

/// A path that is longest among those through a unit that no path before it goes through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextPath {
    /// How much shorter than the critical path it is, ns.
    pub slack_ns: i64,
    /// Units that no path before it has.
    pub units: usize,
    /// Their time, ns.
    pub own_ns: i64,
    /// When the first of them begins, ns after the window's begin.
    pub from_ns: i64,
    /// When the last of them ends, ns after the window's begin.
    pub to_ns: i64,
    /// The name of the longest of them.
    pub longest: String,
    /// Indices of their events in `traceEvents`, the first 100.
    pub events: Vec<u32>,
}

/// The paths after the critical one, by rising slack, at most `most`.
pub fn next_paths(events: &Events, graph: &Graph, decided: &Decided, slack: &Slack, most: usize) -> Vec<NextPath> {
    let last = graph.units.len() - 1;
    let mut taken = vec![false; graph.units.len()];
    taken[0] = true;
    taken[last] = true;
    decided.back_from(graph, last).for_each(|e| taken[e.from as usize] = true);
    // The critical path is left out at once: it is a good part of all units.
    let free = |u: &u32| !matches!(graph.units[*u as usize].kind, UnitKind::Edge | UnitKind::Wait);
    let mut order: Vec<u32> = (1..last as u32).filter(|u| !taken[*u as usize]).filter(free).collect();
    let length = |u: u32| graph.units[u as usize].end - graph.units[u as usize].start;
    let key = |&u: &u32| (slack.ns[u as usize], std::cmp::Reverse(length(u)), u);
    let mut out = Vec::new();
    // Few are asked for: sorted piece by piece, as they are needed.
    let (mut rest, mut piece) = (order.as_mut_slice(), 1024);
    let mut sorted: &[u32] = &[];
    while out.len() < most {
        let Some((&unit, more)) = sorted.split_first() else {
            if rest.is_empty() {
                break;
            }
            let n = rest.len().min(piece);
            if n < rest.len() {
                rest.select_nth_unstable_by_key(n, key);
            }
            let (next, behind) = std::mem::take(&mut rest).split_at_mut(n);
            next.sort_unstable_by_key(key);
            (sorted, rest, piece) = (next, behind, piece * 4);
            continue;
        };
        sorted = more;
        if taken[unit as usize] {
            continue;
        }
        let before = decided.back_from(graph, unit as usize).map(|e| e.from).filter(|&u| !taken[u as usize]);
        let mut own: Vec<u32> = before.collect();
        own.reverse();
        let after = slack.path_from(unit as usize).filter(|&u| !taken[u as usize]);
        own.extend([unit].into_iter().chain(after));
        own.iter().for_each(|&u| taken[u as usize] = true);
        let named: Vec<_> =
            own.iter().filter_map(|&u| events.list.get(graph.units[u as usize].event as usize)).collect();
        let longest = own.iter().copied().max_by_key(|&u| length(u)).unwrap_or(unit);
        let longest = events.list.get(graph.units[longest as usize].event as usize).map_or("", |e| events.name(e));
        let mut indices: Vec<u32> = named.iter().map(|e| e.index).collect();
        indices.dedup();
        indices.truncate(100);
        out.push(NextPath {
            slack_ns: slack.ns[unit as usize],
            units: own.len(),
            own_ns: own.iter().map(|&u| length(u)).sum(),
            from_ns: own.iter().map(|&u| graph.units[u as usize].start).min().unwrap_or(0) - graph.window.0,
            to_ns: own.iter().map(|&u| graph.units[u as usize].end).max().unwrap_or(0) - graph.window.0,
            longest: longest.to_owned(),
            events: indices,
        });
    }
    out
}
