//! Process groups, and what the records of one collective know of each other.

use super::{Group, LinkedNode, LinkedTrace};
use crate::trace::host::{HostTrace, ProcessGroup};
use crate::trace::kineto::KinetoTrace;
use crate::trace::{Collective, Text};
use std::collections::BTreeMap;

/// Fills what one record of a collective leaves open from another.
pub(super) fn complete(c: &mut Collective, more: &Collective) {
    macro_rules! fill {
        ($($field:ident),*) => { $( if c.$field.is_none() { c.$field.clone_from(&more.$field); } )* };
    }
    fill!(
        name,
        dtype,
        in_elems,
        out_elems,
        rank_start,
        rank_stride,
        group,
        group_desc,
        group_size,
        rank,
        src,
        dst,
        seq,
        asynchronous
    );
    if c.in_split.is_empty() {
        c.in_split.clone_from(&more.in_split);
    }
    if c.out_split.is_empty() {
        c.out_split.clone_from(&more.out_split);
    }
    if c.group_ranks.is_empty() {
        c.group_ranks.clone_from(&more.group_ranks);
    }
}

/// A communication kernel knows what the call around it knows.
pub(super) fn inherit_collectives(nodes: &mut [LinkedNode]) {
    for i in 0..nodes.len() {
        let Some(node) = nodes.get(i).filter(|n| n.is_communication()) else { continue };
        let mut at = node.parent;
        let mut found = None;
        while let Some(n) = at.and_then(|a| nodes.get(a as usize)) {
            if n.collective.is_some() {
                found.clone_from(&n.collective);
                break;
            }
            at = n.parent;
        }
        if let (Some(more), Some(node)) = (found, nodes.get_mut(i)) {
            match &mut node.collective {
                Some(c) => complete(c, &more),
                none => *none = Some(more),
            }
        }
    }
}

/// Process groups: announced by either trace, or known from the collectives alone.
pub(super) fn groups(host: Option<&HostTrace>, device: &KinetoTrace, nodes: &[LinkedNode]) -> Vec<Group> {
    let mut found: BTreeMap<String, Group> = BTreeMap::new();
    let mut add = |group: Group| {
        if group.name.is_empty() {
            return;
        }
        let known =
            found.entry(group.name.clone()).or_insert_with(|| Group { name: group.name.clone(), ..Group::default() });
        if known.desc.is_empty() {
            known.desc = group.desc;
        }
        if known.ranks.is_empty() {
            known.ranks = group.ranks;
        }
        known.size =
            known.size.or(group.size).or_else(|| (!known.ranks.is_empty()).then_some(known.ranks.len() as u64));
    };
    let announced =
        |g: &ProcessGroup| Group { name: g.name.clone(), desc: g.desc.clone(), ranks: g.ranks.clone(), size: g.size };
    let of_host = host.map(HostTrace::process_groups).unwrap_or_default();
    for g in of_host.iter().chain(&device.distributed.groups) {
        add(announced(g));
    }
    for c in nodes.iter().filter_map(|n| n.collective.as_deref()) {
        let Some(name) = &c.group else { continue };
        let mut ranks = c.group_ranks.clone();
        if let (true, Some(first), Some(stride), Some(size)) =
            (ranks.is_empty(), c.rank_start, c.rank_stride, c.group_size)
            && size <= 1 << 20
            && first >= 0
            && stride > 0
        {
            ranks = (0..size as i64)
                .filter_map(|i| u64::try_from(first.checked_add(stride.checked_mul(i)?)?).ok())
                .collect();
        }
        let desc = c.group_desc.as_deref().unwrap_or_default().to_owned();
        add(Group { name: name.to_string(), desc, ranks, size: c.group_size });
    }
    // A group of all ranks is announced without a list.
    let world = device.distributed.world_size;
    for group in found.values_mut() {
        if group.ranks.is_empty()
            && group.size.is_some()
            && group.size == world
            && group.size.is_some_and(|s| s <= 1 << 20)
        {
            group.ranks = (0..group.size.unwrap_or(0)).collect();
        }
    }
    found.into_values().collect()
}

/// Where there is one group only, it is that of every collective.
pub(super) fn only_group(trace: &mut LinkedTrace) {
    let [only] = trace.groups.as_slice() else { return };
    let name: Text = only.name.as_str().into();
    for c in trace.nodes.iter_mut().filter_map(|n| n.collective.as_mut()) {
        if c.group.is_none() {
            c.group = Some(name.clone());
        }
    }
}
