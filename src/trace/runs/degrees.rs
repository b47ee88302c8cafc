//! What the groups of a run tell about its parallelism: groups of one size and stride that share out all ranks are one degree; chains of sends
//! and receives are a pipeline.

use super::{Kind, Run};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Groups of one size and stride, which together hold each rank once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Family {
    /// Ranks of a group: the degree.
    pub size: u64,
    /// Distance between neighbours of a group; none when it varies.
    pub stride: Option<u64>,
    /// Number of groups.
    pub groups: u64,
    /// Ranks that are in one of them.
    pub ranks: u64,
    /// Collectives of one rank by kind: calls and bytes (most of all ranks).
    pub calls: BTreeMap<String, (u64, u64)>,
    /// What it is likely to be.
    pub role: &'static str,
}

/// Calls and bytes by kind of collective.
type Calls = BTreeMap<String, (u64, u64)>;

/// The parallelism of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Ranks with a file.
    pub ranks: u64,
    /// Degrees found in groups, by stride.
    pub families: Vec<Family>,
    /// Stages of the pipeline, if sends and receives form chains of one length.
    pub pipeline: Option<u64>,
    /// Messages go round in rings: collectives that were written out as messages, not a pipeline.
    pub rings: bool,
}

/// Recovers the parallelism of a run.
pub fn layout(run: &Run) -> Layout {
    let all: Vec<u64> = run.ranks.iter().map(|r| r.rank).collect();
    // Calls of each set of ranks; several names may stand for one set.
    let mut sets: BTreeMap<Vec<u64>, BTreeMap<u64, Calls>> = BTreeMap::new();
    for rank in &run.ranks {
        for comm in &rank.comms {
            let Kind::Collective(kind) = comm.kind else { continue };
            let mut members = match &comm.group {
                None => all.clone(),
                Some(name) => run.groups.get(name).cloned().unwrap_or_default(),
            };
            if members.len() < 2 {
                continue;
            }
            members.sort_unstable();
            let entry =
                sets.entry(members).or_default().entry(rank.rank).or_default().entry(kind.name().into()).or_default();
            entry.0 += 1;
            entry.1 = entry.1.saturating_add(comm.bytes.unwrap_or(0));
        }
    }
    let mut families: BTreeMap<(u64, Option<u64>), Family> = BTreeMap::new();
    for (members, by_rank) in &sets {
        let gaps: BTreeSet<u64> = members.windows(2).filter_map(|w| Some(w.get(1)? - w.first()?)).collect();
        let stride = if gaps.len() == 1 { gaps.first().copied() } else { None };
        let size = members.len() as u64;
        let family = families.entry((size, stride)).or_insert_with(|| Family {
            size,
            stride,
            groups: 0,
            ranks: 0,
            calls: BTreeMap::new(),
            role: "",
        });
        family.groups += 1;
        family.ranks += size;
        for calls in by_rank.values() {
            for (kind, (count, bytes)) in calls {
                let most = family.calls.entry(kind.clone()).or_default();
                most.0 = most.0.max(*count);
                most.1 = most.1.max(*bytes);
            }
        }
    }
    let mut families: Vec<Family> = families.into_values().collect();
    families.sort_by_key(|f| (f.stride.unwrap_or(u64::MAX), f.size));
    let (pipeline, rings) = chains(run);
    // Of a large run often only some ranks are recorded: the groups tell of the others.
    let world: BTreeSet<u64> = all.iter().chain(sets.keys().flatten()).copied().collect();
    name_roles(&mut families, world.len() as u64);
    Layout { ranks: all.len() as u64, families, pipeline, rings }
}

fn name_roles(families: &mut [Family], world: u64) {
    let calls = |f: &Family| f.calls.values().map(|(count, _)| *count).sum::<u64>();
    let most = families.iter().map(calls).max().unwrap_or(0);
    let several = families.len() > 1;
    for f in families.iter_mut() {
        f.role = if f.ranks != world {
            "some ranks only"
        } else if f.calls.contains_key("ALL_TO_ALL") && several {
            "expert or tensor parallelism"
        } else if several && calls(f) == most {
            "tensor parallelism (the most calls)"
        } else if several {
            "data parallelism (few calls)"
        } else {
            "tensor or data parallelism"
        };
    }
}

/// Length of the chains that sends form, if all have one length; and whether there are rings.
fn chains(run: &Run) -> (Option<u64>, bool) {
    let mut neighbours: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for rank in &run.ranks {
        for peer in rank.comms.iter().filter(|c| c.kind == Kind::Send).filter_map(|c| c.peer) {
            neighbours.entry(rank.rank).or_default().insert(peer);
            neighbours.entry(peer).or_default().insert(rank.rank);
        }
    }
    let mut seen = BTreeSet::new();
    let mut lengths = BTreeSet::new();
    let mut rings = false;
    for &start in neighbours.keys() {
        if !seen.insert(start) {
            continue;
        }
        let (mut members, mut ends, mut stack, mut forks) = (0u64, 0u64, vec![start], false);
        while let Some(rank) = stack.pop() {
            members += 1;
            let near = neighbours.get(&rank);
            ends += u64::from(near.is_some_and(|n| n.len() == 1));
            forks |= near.is_some_and(|n| n.len() > 2);
            stack.extend(near.into_iter().flatten().copied().filter(|n| seen.insert(*n)));
        }
        if ends == 2 && !forks {
            lengths.insert(members);
        } else {
            rings = true;
        }
    }
    let one = if lengths.len() == 1 && !rings { lengths.first().copied() } else { None };
    (one, rings)
}
