//! Which event of the device trace is which operator of the host trace.
//!
//! Three ways, tried in this order: the record-function id, which both sides have from 2024 on; the external id, which differs from it
//! by a constant in older traces; and the names in their order, thread by thread (the longest common subsequence), where ids tell
//! nothing. Operators that the first two ways leave over are tried by the third between their matched neighbours.

use super::align::align;
use crate::trace::host::HostTrace;
use crate::trace::kineto::Event;
use std::collections::HashMap;

/// Share of the host's operators that an offset of ids must match by name to be believed.
const BELIEVABLE: f64 = 0.9;
/// Offsets tried.
const MOST_OFFSETS: usize = 16;

/// How operators were matched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matching {
    /// Place among the events of the operator at each place of the host trace.
    pub event_of: Vec<Option<u32>>,
    /// Matched by record-function id.
    pub by_id: usize,
    /// Matched by a constant offset between external id and record-function id.
    pub by_offset: usize,
    /// The offset.
    pub offset: Option<i64>,
    /// Matched by name and order.
    pub by_order: usize,
    /// Same record-function id, but another name.
    pub names_differ: usize,
    /// Runs of matched operators between which the difference of external id and record-function id changes.
    pub offset_pieces: usize,
}

/// An operator of the device trace: its place among the events, and its thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) event: u32,
    pub(super) thread: u32,
}

/// Matches; `candidates` are the operators and annotations of the device trace by time.
pub(super) fn matching(host: &HostTrace, events: &[Event], candidates: &[Candidate]) -> Matching {
    let mut m = Matching { event_of: vec![None; host.nodes.len()], ..Matching::default() };
    // By id, so that order in a thread is order in time.
    let mut nodes: Vec<u32> = (0u32..).zip(&host.nodes).filter(|(_, n)| !n.is_root()).map(|(i, _)| i).collect();
    nodes.sort_by_key(|&i| host.nodes.get(i as usize).map(|n| n.id));
    let mut taken = vec![false; events.len()];
    by_id(host, events, candidates, &nodes, &mut m, &mut taken);
    if m.by_id == 0 {
        by_offset(host, events, candidates, &nodes, &mut m, &mut taken);
    }
    if m.by_id + m.by_offset < nodes.len() {
        by_order(host, events, candidates, &nodes, &mut m, &mut taken);
    }
    m.offset_pieces = pieces(host, events, &nodes, &m);
    m
}

fn take(m: &mut Matching, taken: &mut [bool], node: u32, event: u32) -> bool {
    let (Some(slot), Some(used)) = (m.event_of.get_mut(node as usize), taken.get_mut(event as usize)) else {
        return false;
    };
    if slot.is_some() || *used {
        return false;
    }
    *slot = Some(event);
    *used = true;
    true
}

fn by_id(
    host: &HostTrace,
    events: &[Event],
    candidates: &[Candidate],
    nodes: &[u32],
    m: &mut Matching,
    taken: &mut [bool],
) {
    let mut of_id: HashMap<u64, u32> = HashMap::with_capacity(candidates.len());
    for c in candidates {
        if let Some(id) = events.get(c.event as usize).and_then(|e| e.record_function_id).filter(|&id| id != 0) {
            of_id.entry(id).or_insert(c.event);
        }
    }
    if of_id.is_empty() {
        return;
    }
    let mut found = Vec::new();
    for &i in nodes {
        let Some(node) = host.nodes.get(i as usize) else { continue };
        let Some(&event) = node.rf_id.filter(|&id| id != 0).and_then(|id| of_id.get(&id)) else { continue };
        if events.get(event as usize).is_some_and(|e| e.name == node.name) {
            found.push((i, event));
        } else {
            m.names_differ += 1;
        }
    }
    // Ids of another program meet here and there by chance; then names tell more.
    if found.len() < m.names_differ {
        return;
    }
    for (node, event) in found {
        if take(m, taken, node, event) {
            m.by_id += 1;
        }
    }
}

fn by_offset(
    host: &HostTrace,
    events: &[Event],
    candidates: &[Candidate],
    nodes: &[u32],
    m: &mut Matching,
    taken: &mut [bool],
) {
    let mut of_external: HashMap<i64, u32> = HashMap::with_capacity(candidates.len());
    let mut named: HashMap<&str, (Vec<i64>, Vec<i64>)> = HashMap::new();
    for c in candidates {
        let Some(event) = events.get(c.event as usize) else { continue };
        if let Some(id) = event.external_id {
            of_external.entry(id).or_insert(c.event);
            named.entry(&event.name).or_default().1.push(id);
        }
    }
    for &i in nodes {
        let Some(node) = host.nodes.get(i as usize) else { continue };
        if let (Some(rf), Some(slot)) = (node.rf_id.and_then(|id| i64::try_from(id).ok()), named.get_mut(&*node.name)) {
            slot.0.push(rf);
        }
    }
    // Names that both sides have equally often are paired in order: each pair votes for an offset.
    let mut votes: HashMap<i64, usize> = HashMap::new();
    for (ours, theirs) in named.values_mut() {
        if ours.len() != theirs.len() {
            continue;
        }
        ours.sort_unstable();
        theirs.sort_unstable();
        for (a, b) in ours.iter().zip(theirs.iter()) {
            *votes.entry(b.saturating_sub(*a)).or_default() += 1;
        }
    }
    let mut offsets: Vec<(usize, i64)> = votes.into_iter().map(|(offset, n)| (n, offset)).collect();
    offsets.sort_unstable_by(|a, b| b.cmp(a));
    let matched = |offset: i64| -> Vec<(u32, u32)> {
        let pair = |&i: &u32| {
            let node = host.nodes.get(i as usize)?;
            let id = i64::try_from(node.rf_id?).ok()?.checked_add(offset)?;
            let event = *of_external.get(&id)?;
            (events.get(event as usize)?.name == node.name).then_some((i, event))
        };
        nodes.iter().filter_map(pair).collect()
    };
    let best = offsets.iter().take(MOST_OFFSETS).map(|&(_, o)| (matched(o), o)).max_by_key(|(found, _)| found.len());
    if let Some((found, offset)) = best
        && found.len() as f64 >= BELIEVABLE * nodes.len() as f64
        && !found.is_empty()
    {
        m.offset = Some(offset);
        for (node, event) in found {
            if take(m, taken, node, event) {
                m.by_offset += 1;
            }
        }
    }
}

/// What is left, thread by thread, between the operators already matched.
fn by_order(
    host: &HostTrace,
    events: &[Event],
    candidates: &[Candidate],
    nodes: &[u32],
    m: &mut Matching,
    taken: &mut [bool],
) {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut ours: HashMap<u64, Vec<(u32, u32)>> = HashMap::new(); // observer's thread -> (node, name)
    let mut theirs: HashMap<u32, Vec<(u32, u32)>> = HashMap::new(); // our thread -> (event, name)
    for &i in nodes {
        let Some(node) = host.nodes.get(i as usize) else { continue };
        let next = numbers.len() as u32;
        ours.entry(node.tid).or_default().push((i, *numbers.entry(&*node.name).or_insert(next)));
    }
    for c in candidates {
        let Some(event) = events.get(c.event as usize) else { continue };
        let next = numbers.len() as u32;
        theirs.entry(c.thread).or_default().push((c.event, *numbers.entry(&*event.name).or_insert(next)));
    }
    // Threads belong together that share most names (counted with repetition) or most matches.
    let count = |list: &[(u32, u32)]| {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for &(_, name) in list {
            *counts.entry(name).or_default() += 1;
        }
        counts
    };
    let our_counts: Vec<(u64, HashMap<u32, usize>)> = ours.iter().map(|(&t, list)| (t, count(list))).collect();
    let their_counts: Vec<(u32, HashMap<u32, usize>)> = theirs.iter().map(|(&t, list)| (t, count(list))).collect();
    let mut shared: Vec<(usize, u64, u32)> = Vec::new();
    for (t, a) in &our_counts {
        for (u, b) in &their_counts {
            let common = a.iter().map(|(name, &n)| n.min(b.get(name).copied().unwrap_or(0))).sum();
            if common > 0 {
                shared.push((common, *t, *u));
            }
        }
    }
    shared.sort_unstable_by(|a, b| (b.0, a.1, a.2).cmp(&(a.0, b.1, b.2)));
    let (mut used_ours, mut used_theirs) = (Vec::new(), Vec::new());
    for (_, t, u) in shared {
        if used_ours.contains(&t) || used_theirs.contains(&u) {
            continue;
        }
        used_ours.push(t);
        used_theirs.push(u);
        if let (Some(a), Some(b)) = (ours.get(&t), theirs.get(&u)) {
            align_thread(a, b, m, taken);
        }
    }
}

fn align_thread(ours: &[(u32, u32)], theirs: &[(u32, u32)], m: &mut Matching, taken: &mut [bool]) {
    let place: HashMap<u32, usize> = theirs.iter().enumerate().map(|(k, &(event, _))| (event, k)).collect();
    let (mut from_a, mut from_b) = (0, 0);
    let mut stretch = |a: std::ops::Range<usize>, b: std::ops::Range<usize>, m: &mut Matching| {
        let (Some(a), Some(b)) = (ours.get(a), theirs.get(b)) else { return };
        // Some in between may have been matched out of order: they are no longer free.
        let a: Vec<_> = a.iter().filter(|(n, _)| m.event_of.get(*n as usize).is_some_and(Option::is_none)).collect();
        let b: Vec<_> = b.iter().filter(|(e, _)| taken.get(*e as usize) == Some(&false)).collect();
        if a.is_empty() || b.is_empty() {
            return;
        }
        let names = |list: &[&(u32, u32)]| list.iter().map(|(_, name)| *name).collect::<Vec<u32>>();
        for (i, j) in align(&names(&a), &names(&b)) {
            if let (Some((node, _)), Some((event, _))) = (a.get(i), b.get(j))
                && take(m, taken, *node, *event)
            {
                m.by_order += 1;
            }
        }
    };
    for k in 0..ours.len() {
        let Some(&(node, _)) = ours.get(k) else { continue };
        let Some(at) = m.event_of.get(node as usize).copied().flatten().and_then(|e| place.get(&e).copied()) else {
            continue;
        };
        if at < from_b {
            continue; // matched against the order: no anchor
        }
        stretch(from_a..k, from_b..at, m);
        (from_a, from_b) = (k + 1, at + 1);
    }
    stretch(from_a..ours.len(), from_b..theirs.len(), m);
}

fn pieces(host: &HostTrace, events: &[Event], nodes: &[u32], m: &Matching) -> usize {
    let difference = |&i: &u32| {
        let rf = i64::try_from(host.nodes.get(i as usize)?.rf_id?).ok()?;
        let event = m.event_of.get(i as usize).copied().flatten()?;
        events.get(event as usize)?.external_id?.checked_sub(rf)
    };
    let mut last = None;
    let mut n = 0;
    for d in nodes.iter().filter_map(difference) {
        if last != Some(d) {
            n += 1;
            last = Some(d);
        }
    }
    n
}
