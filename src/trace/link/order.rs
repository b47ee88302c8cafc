//! The order of a linked trace's nodes.

use super::{LinkedNode, LinkedTrace, Ns, kind_rank};
use std::collections::HashMap;

/// Puts every node after what it needs to begin, and renumbers.
pub(super) fn order(trace: &mut LinkedTrace) {
    let n = trace.nodes.len();
    // Time at which a node may begin at the earliest by the clocks, which do not agree to the last.
    let mut time: Vec<Ns> = trace.nodes.iter().map(|n| n.start_ns).collect();
    let mut device: Vec<u32> = trace.device_nodes().collect();
    device.sort_by_key(|&i| (trace.node(i).map(|n| n.start_ns), i));
    let mut last_of_stream: HashMap<u32, Ns> = HashMap::new();
    for &i in &device {
        let Some(node) = trace.nodes.get(i as usize) else { continue };
        let of = |place: Option<u32>| place.and_then(|p| time.get(p as usize).copied()).unwrap_or(Ns::MIN);
        let before = last_of_stream.get(&node.place).copied().unwrap_or(Ns::MIN);
        let t = node.start_ns.max(of(node.parent)).max(of(node.launch)).max(before);
        last_of_stream.insert(node.place, t);
        if let Some(slot) = time.get_mut(i as usize) {
            *slot = t;
        }
    }
    // Rank in a thread or stream: the nest's order for host nodes, that of start for device nodes.
    let mut rank = vec![0u32; n];
    let mut host_nodes: Vec<u32> =
        (0..n as u32).filter(|&i| trace.node(i).is_some_and(|n| !n.kind.on_device())).collect();
    host_nodes.sort_by_key(|&i| {
        trace.node(i).map(|n| (n.place, n.start_ns, !n.timed, std::cmp::Reverse(n.end_ns()), kind_rank(n.kind), i))
    });
    for (r, &i) in (0u32..).zip(host_nodes.iter().chain(&device)) {
        if let Some(slot) = rank.get_mut(i as usize) {
            *slot = r;
        }
    }
    let mut sorted: Vec<u32> = (0..n as u32).collect();
    sorted.sort_by_key(|&i| {
        (
            time.get(i as usize).copied(),
            trace.node(i).map(|n| (n.kind.on_device(), if n.kind.on_device() { 0 } else { n.place })),
            rank.get(i as usize).copied(),
        )
    });
    let mut new = vec![0u32; n];
    for (to, &from) in (0u32..).zip(&sorted) {
        if let Some(slot) = new.get_mut(from as usize) {
            *slot = to;
        }
    }
    let moved = |i: u32| new.get(i as usize).copied().unwrap_or(i);
    let mut old: Vec<Option<LinkedNode>> = std::mem::take(&mut trace.nodes).into_iter().map(Some).collect();
    trace.nodes = sorted.iter().filter_map(|&i| old.get_mut(i as usize).and_then(Option::take)).collect();
    for node in &mut trace.nodes {
        node.parent = node.parent.map(moved);
        node.launch = node.launch.map(moved);
    }
    for edge in &mut trace.edges {
        edge.from = moved(edge.from);
        edge.to = moved(edge.to);
    }
    trace.edges.sort_by_key(|e| (e.to, e.from, e.kind as u8, e.from_end as u8, e.to_end as u8, e.inferred));
    trace.edges.dedup();
}
