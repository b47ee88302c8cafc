//! What the messages of a run tell: stages, chunks and microbatches of a pipeline, or collectives that were written out as messages.
//!
//! Ranks that talk to each other are one component. It is a pipeline if one of them alone begins by sending, which is the first stage (in a ring
//! all begin alike), or if the ranks form a line. Interleaved, the last stage hands on to the first: of a pipeline of three stages or more, each
//! microbatch goes from the first to the second stage once a chunk, and comes from the last to the first once a chunk but for one. Of two stages both are the
//! same pair of ranks: chunks are told only by who knows the microbatches.

use super::{Kind, Rank, Run};
use std::collections::{BTreeMap, BTreeSet};

/// A pipeline, and who is in it.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    /// The component of each rank that sends or receives.
    pub(super) of: BTreeMap<u64, usize>,
    /// Stages, if all components are pipelines of one length.
    pub(super) stages: Option<u64>,
    /// Chunks of a stage, if all pipelines tell the same.
    pub(super) chunks: Option<u64>,
    /// Messages go round in rings.
    pub(super) rings: bool,
}

/// Recovers the pipelines of a run; `microbatches`, where they are known otherwise.
pub(super) fn pipelines(run: &Run, microbatches: Option<u64>) -> Pipelines {
    let mut neighbours: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for rank in &run.ranks {
        for peer in rank.comms.iter().filter(|c| c.kind == Kind::Send).filter_map(|c| c.peer) {
            neighbours.entry(rank.rank).or_default().insert(peer);
            neighbours.entry(peer).or_default().insert(rank.rank);
        }
    }
    let ranks: BTreeMap<u64, &Rank> = run.ranks.iter().map(|r| (r.rank, r)).collect();
    let mut out = Pipelines::default();
    let (mut lengths, mut chunks) = (BTreeSet::new(), BTreeSet::new());
    for (number, &start) in neighbours.keys().enumerate() {
        if out.of.contains_key(&start) {
            continue;
        }
        let (mut members, mut stack) = (Vec::new(), vec![start]);
        out.of.insert(start, number);
        while let Some(rank) = stack.pop() {
            members.push(rank);
            for &near in neighbours.get(&rank).into_iter().flatten() {
                if out.of.insert(near, number).is_none() {
                    stack.push(near);
                }
            }
        }
        let degree = |rank: &u64| neighbours.get(rank).map_or(0, BTreeSet::len);
        let line = members.iter().filter(|r| degree(r) == 1).count() == 2 && members.iter().all(|r| degree(r) <= 2);
        let begins = |rank: &u64| {
            let first = ranks.get(rank)?.comms.iter().find(|c| c.peer.is_some())?;
            (first.kind == Kind::Send).then_some((*rank, first.peer?))
        };
        let firsts: Vec<(u64, u64)> = members.iter().filter_map(begins).collect();
        match firsts[..] {
            [(first, next)] if members.len() > 1 => {
                lengths.insert(members.len() as u64);
                let others = neighbours.get(&first).into_iter().flatten().copied().filter(|n| *n != next);
                chunks.insert(of_chunks(
                    &ranks,
                    first,
                    next,
                    &others.collect::<Vec<u64>>(),
                    members.len(),
                    microbatches,
                ));
            }
            _ if line => {
                lengths.insert(members.len() as u64);
                chunks.insert(None);
            }
            _ => out.rings = true,
        }
    }
    let one = |found: &BTreeSet<u64>| found.first().copied().filter(|_| found.len() == 1);
    out.stages = one(&lengths).filter(|_| !out.rings);
    out.chunks = chunks.first().copied().flatten().filter(|_| chunks.len() == 1 && out.stages.is_some());
    out
}

/// Chunks of a pipeline by what its first stage says to the second, and hears from the last.
fn of_chunks(
    ranks: &BTreeMap<u64, &Rank>,
    first: u64,
    next: u64,
    others: &[u64],
    stages: usize,
    microbatches: Option<u64>,
) -> Option<u64> {
    // Tensors that go together are one pass.
    let passes = |from: u64, to: u64| -> u64 {
        let sends =
            ranks.get(&from).into_iter().flat_map(|r| &r.comms).filter(|c| c.kind == Kind::Send && c.peer == Some(to));
        sends.map(|c| c.behind).collect::<BTreeSet<_>>().len() as u64
    };
    let there = passes(first, next);
    if stages == 2 {
        // Forward once a chunk, backward once a chunk but for the last.
        let m = microbatches.filter(|m| *m > 0 && there.is_multiple_of(*m))?;
        return (there / m % 2 == 1).then_some(there / m / 2 + 1);
    }
    match *others {
        [] => Some(1),
        [last] => {
            let microbatches = there.checked_sub(passes(last, first)).filter(|m| *m > 0)?;
            there.is_multiple_of(microbatches).then_some(there / microbatches)
        }
        _ => None,
    }
}
