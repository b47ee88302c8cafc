//! Do the ranks of a run say the same? Collectives of a group are matched in order: the n-th of one rank with the n-th of every other. Sends are
//! matched with receives by both ends and tag, in order.

use super::{Comm, Kind, Run};
use crate::trace::chakra::CommType;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Where ranks disagree: a run with such a place waits for ever, or computes something else than it means to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// `rank`, `member`, `count`, `order`, `type`, `bytes`, `send` or `recv`.
    pub what: &'static str,
    /// The group, for collectives; all ranks have none.
    pub group: Option<String>,
    /// The rank that differs.
    pub rank: u64,
    /// Its node, where there is one.
    pub node: Option<u64>,
    /// What was found and what would fit.
    pub message: String,
}

/// Every place where ranks disagree; the first of its kind for each group and rank.
pub fn check(run: &Run) -> Vec<Mismatch> {
    let mut out = Vec::new();
    let numbers: BTreeSet<u64> = run.ranks.iter().map(|r| r.rank).collect();
    let last = numbers.last().copied().unwrap_or(0);
    // A run of few files among many ranks is a sample: gaps are said once, not a million times.
    for missing in (0..last).filter(|r| !numbers.contains(r)).take(20) {
        out.push(plain("rank", None, missing, None, format!("rank {missing} has no file")));
    }
    groups(run, &numbers, &mut out);
    messages(run, &numbers, &mut out);
    out
}

fn plain(what: &'static str, group: Option<&str>, rank: u64, node: Option<u64>, message: String) -> Mismatch {
    Mismatch { what, group: group.map(str::to_owned), rank, node, message }
}

/// Collectives of each group and rank, in order.
fn collectives(run: &Run) -> BTreeMap<Option<&str>, BTreeMap<u64, Vec<&Comm>>> {
    let mut said: BTreeMap<Option<&str>, BTreeMap<u64, Vec<&Comm>>> = BTreeMap::new();
    for rank in &run.ranks {
        for comm in rank.comms.iter().filter(|c| matches!(c.kind, Kind::Collective(_))) {
            said.entry(comm.group.as_deref()).or_default().entry(rank.rank).or_default().push(comm);
        }
    }
    said
}

/// All-to-alls to which ranks bring different numbers of bytes: by rank and node, the most that one brings, where the rank's own are fewer. Simulators
/// match messages by their bytes, so that all ranks have to say the same; the rank with most decides how long it takes.
pub fn uneven(run: &Run) -> BTreeMap<u64, BTreeMap<u64, u64>> {
    let mut found: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for by_rank in collectives(run).values() {
        let longest = by_rank.values().map(Vec::len).max().unwrap_or(0);
        for at in 0..longest {
            let all = by_rank.iter().filter_map(|(rank, comms)| Some((*rank, *comms.get(at)?)));
            let all: Vec<(u64, &Comm)> = all.collect();
            if all.iter().any(|(_, c)| c.kind != Kind::Collective(CommType::AllToAll)) {
                continue;
            }
            let Some(most) = all.iter().filter_map(|(_, c)| c.bytes).max() else { continue };
            for (rank, comm) in all.iter().filter(|(_, c)| c.bytes != Some(most)) {
                found.entry(*rank).or_default().insert(comm.node, most);
            }
        }
    }
    found
}

fn groups(run: &Run, numbers: &BTreeSet<u64>, out: &mut Vec<Mismatch>) {
    for (group, by_rank) in &collectives(run) {
        let members: Vec<u64> = match group {
            None => numbers.iter().copied().collect(),
            Some(name) => run.groups.get(*name).cloned().unwrap_or_default(),
        };
        for (rank, comms) in by_rank {
            if !members.contains(rank) {
                let node = comms.first().map(|c| c.node);
                out.push(plain(
                    "member",
                    *group,
                    *rank,
                    node,
                    format!("uses a group of ranks {members:?}, to which it does not belong"),
                ));
            }
        }
        let present: Vec<u64> = members.iter().copied().filter(|m| numbers.contains(m)).collect();
        // The longest list is the reference: what others lack can be named.
        let none = Vec::new();
        let list = |rank: u64| by_rank.get(&rank).unwrap_or(&none);
        let Some(&reference) = present.iter().rev().max_by_key(|r| list(**r).len()) else { continue };
        for &rank in present.iter().filter(|r| **r != reference) {
            compare((*group, run.recorded), (reference, list(reference)), (rank, list(rank)), out);
        }
    }
}

/// Whether all ranks of a group must give the same number of bytes: others differ by design (roots, and as recorded uneven splits, which simulators wait for for ever).
fn even(kind: CommType, recorded: bool) -> bool {
    (!recorded && kind == CommType::AllToAll)
        || matches!(
            kind,
            CommType::AllReduce
                | CommType::AllGather
                | CommType::ReduceScatter
                | CommType::ReduceScatterBlock
                | CommType::Reduce
                | CommType::Broadcast
        )
}

fn describe(comm: &Comm) -> String {
    match comm.bytes {
        Some(bytes) => format!("{} of {bytes} bytes", comm.kind.name()),
        None => comm.kind.name().to_owned(),
    }
}

fn compare(
    (group, recorded): (Option<&str>, bool),
    reference: (u64, &Vec<&Comm>),
    other: (u64, &Vec<&Comm>),
    out: &mut Vec<Mismatch>,
) {
    let (first, wanted) = reference;
    let (rank, found) = other;
    let key = |c: &&Comm| (c.kind, c.bytes);
    if wanted.len() != found.len() {
        let message = format!("has {} collectives, rank {first} has {}", found.len(), wanted.len());
        let node = found.last().map(|c| c.node);
        out.push(plain("count", group, rank, node, message));
    }
    let differs = |a: &Comm, b: &Comm| match (a.kind, b.kind) {
        (Kind::Collective(one), Kind::Collective(two)) if one == two => even(one, recorded) && a.bytes != b.bytes,
        _ => true,
    };
    let Some(at) = wanted.iter().zip(found).position(|(a, b)| differs(a, b)) else { return };
    let (Some(a), Some(b)) = (wanted.get(at), found.get(at)) else { return };
    let sorted = |list: &Vec<&Comm>| {
        let mut keys: Vec<_> = list.iter().map(key).collect();
        keys.sort_unstable();
        keys
    };
    let what = if wanted.len() == found.len() && sorted(wanted) == sorted(found) {
        "order"
    } else if a.kind != b.kind {
        "type"
    } else {
        "bytes"
    };
    let message = format!(
        "collective {} of the group is {}, on rank {first} (node {}) it is {}",
        at + 1,
        describe(b),
        a.node,
        describe(a)
    );
    out.push(plain(what, group, rank, Some(b.node), message));
}

/// Sender, receiver, tag.
type Way = (u64, u64, i64);

fn messages(run: &Run, numbers: &BTreeSet<u64>, out: &mut Vec<Mismatch>) {
    let mut ways: BTreeMap<Way, (Vec<&Comm>, Vec<&Comm>)> = BTreeMap::new();
    for rank in &run.ranks {
        for comm in &rank.comms {
            match (comm.kind, comm.peer) {
                (Kind::Send, Some(peer)) => ways.entry((rank.rank, peer, comm.tag)).or_default().0.push(comm),
                (Kind::Recv, Some(peer)) => ways.entry((peer, rank.rank, comm.tag)).or_default().1.push(comm),
                _ => {}
            }
        }
    }
    for ((from, to, tag), (sends, recvs)) in &ways {
        // Ranks without a file are reported once, above.
        let one_end = if !numbers.contains(from) {
            Some(to)
        } else if !numbers.contains(to) {
            Some(from)
        } else {
            None
        };
        if let Some(rank) = one_end {
            let absent = if rank == to { from } else { to };
            if *absent > numbers.last().copied().unwrap_or(0) {
                let node = sends.first().or(recvs.first()).map(|c| c.node);
                out.push(plain("rank", None, *rank, node, format!("speaks to rank {absent}, which has no file")));
            }
            continue;
        }
        if sends.len() != recvs.len() {
            let (what, rank, node) = if sends.len() > recvs.len() {
                ("recv", *to, sends.get(recvs.len()).map(|c| c.node))
            } else {
                ("send", *from, recvs.get(sends.len()).map(|c| c.node))
            };
            let message = format!(
                "{} sends from rank {from} to rank {to} with tag {tag}, {} receives (the first without partner is the node of the other side)",
                sends.len(),
                recvs.len()
            );
            out.push(plain(what, None, rank, node, message));
        }
        if let Some((s, r)) = sends.iter().zip(recvs).find(|(s, r)| s.bytes != r.bytes) {
            let message =
                format!("receives {} bytes, rank {from} (node {}) sends {}", show(r.bytes), s.node, show(s.bytes));
            out.push(plain("bytes", None, *to, Some(r.node), message));
        }
    }
}

fn show(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "an unknown number of".into(), |b| b.to_string())
}
