//! Whether the dependencies of a trace make a graph that can run: ids are unique, dependencies exist, nothing waits for itself.

use super::Node;
use crate::trace::error::TraceError;
use std::collections::BinaryHeap;
use std::path::Path;

/// Ids shown of a cycle.
const SHOWN: usize = 12;

/// What a check of the graph needs of a node.
#[derive(Debug, Clone, Default)]
pub struct Links {
    /// Id.
    pub id: u64,
    /// Data dependencies.
    pub data: Vec<u64>,
    /// Control dependencies.
    pub ctrl: Vec<u64>,
}

impl From<&Node> for Links {
    fn from(node: &Node) -> Self {
        Self { id: node.id, data: node.data_deps.clone(), ctrl: node.ctrl_deps.clone() }
    }
}

/// Every fault of a graph: duplicated ids, dependencies that dangle, cycles (one for each knot). Empty for a graph that can run.
pub fn faults(nodes: &[Links], path: &Path) -> Vec<TraceError> {
    let mut errors = Vec::new();
    let index = Index::new(nodes.iter().map(|n| n.id));
    for (i, node) in nodes.iter().enumerate() {
        if index.get(node.id) != Some(i as u32) {
            errors.push(TraceError::new(path, "another node has this id, too").node(node.id).field("id"));
        }
        for (field, deps) in [("data_deps", &node.data), ("ctrl_deps", &node.ctrl)] {
            for dep in deps.iter().filter(|d| index.get(**d).is_none()) {
                errors.push(TraceError::new(path, format!("there is no node {dep}")).node(node.id).field(field));
            }
        }
    }
    let (_, stuck) = sorted(nodes, &index);
    errors.extend(cycles(nodes, &index, &stuck, path));
    errors
}

/// Place of each id; of two nodes with one id, the first.
#[derive(Debug)]
pub struct Index(Vec<(u64, u32)>);

impl Index {
    /// Of ids by place.
    pub fn new(ids: impl Iterator<Item = u64>) -> Self {
        let mut all: Vec<(u64, u32)> = ids.zip(0u32..).collect();
        all.sort_unstable();
        all.dedup_by_key(|(id, _)| *id);
        Self(all)
    }

    /// The place of an id.
    pub fn get(&self, id: u64) -> Option<u32> {
        let at = self.0.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.0.get(at).map(|(_, place)| *place)
    }
}

/// Places of the nodes in an order that respects the dependencies, the smallest id first where there is a choice; nodes in or behind cycles
/// are left out. This is the order in which Chakra's feeder issues nodes.
pub fn order(nodes: &[Links]) -> Vec<usize> {
    // Most are written so: ids ascend, and all depend on smaller ones.
    let deps = |n: &Links| n.data.iter().chain(&n.ctrl).all(|d| *d < n.id);
    if nodes.iter().is_sorted_by(|a, b| a.id < b.id) && nodes.iter().all(deps) {
        return (0..nodes.len()).collect();
    }
    sorted(nodes, &Index::new(nodes.iter().map(|n| n.id))).0
}

/// The order, and how many dependencies of each node are left.
fn sorted(nodes: &[Links], index: &Index) -> (Vec<usize>, Vec<u32>) {
    let ids: Vec<u64> = nodes.iter().map(|n| n.id).collect();
    let edges = |edge: &mut dyn FnMut(u32, u32)| {
        for (to, node) in (0u32..).zip(nodes) {
            node.data.iter().chain(&node.ctrl).filter_map(|d| index.get(*d)).for_each(|from| edge(from, to));
        }
        Ok::<(), std::convert::Infallible>(())
    };
    let mut out = Vec::with_capacity(nodes.len());
    let waits = issue(&ids, edges, |place, _| out.push(place as usize)).unwrap_or_else(|never| match never {});
    (out, waits)
}

/// Issues nodes as [`order`] does: `issued` is told each place, and the places of those that depend on it. `edges` says all dependencies (place
/// before, place behind), twice: only who waits for whom is held, in four bytes each. What is returned is how many dependencies of each node
/// are left.
///
/// # Errors
/// Those of `edges`.
pub fn issue<E>(
    ids: &[u64],
    mut edges: impl FnMut(&mut dyn FnMut(u32, u32)) -> Result<(), E>,
    mut issued: impl FnMut(u32, &[u32]),
) -> Result<Vec<u32>, E> {
    let mut waits = vec![0u32; ids.len()];
    let mut starts: Vec<usize> = vec![0; ids.len() + 1];
    edges(&mut |from, to| {
        if let (Some(w), Some(s)) = (waits.get_mut(to as usize), starts.get_mut(from as usize + 1)) {
            *w += 1;
            *s += 1;
        }
    })?;
    let mut sum = 0;
    for s in &mut starts {
        sum += *s;
        *s = sum;
    }
    let mut next = starts.clone();
    let mut after = vec![0u32; sum];
    edges(&mut |from, to| {
        if let Some(place) = next.get_mut(from as usize) {
            if let Some(slot) = after.get_mut(*place) {
                *slot = to;
            }
            *place += 1;
        }
    })?;
    drop(next);
    let key = |i: u32| ids.get(i as usize).map(|id| std::cmp::Reverse((*id, i)));
    let mut ready: BinaryHeap<_> = (0u32..).zip(&waits).filter(|(_, w)| **w == 0).filter_map(|(i, _)| key(i)).collect();
    while let Some(std::cmp::Reverse((_, i))) = ready.pop() {
        let range = starts.get(i as usize).copied().unwrap_or(0)..starts.get(i as usize + 1).copied().unwrap_or(0);
        let behind = after.get(range).unwrap_or_default();
        issued(i, behind);
        for &to in behind {
            if let Some(w) = waits.get_mut(to as usize) {
                *w -= 1;
                if *w == 0 {
                    ready.extend(key(to));
                }
            }
        }
    }
    Ok(waits)
}

/// One cycle of each knot among the nodes that still wait: follow waiting dependencies until a node comes again.
fn cycles(nodes: &[Links], index: &Index, waits: &[u32], path: &Path) -> Vec<TraceError> {
    let waiting = |i: &usize| waits.get(*i).is_some_and(|w| *w > 0);
    // 0: not seen; else the number of the walk that saw it.
    let mut seen = vec![0usize; nodes.len()];
    let mut errors = Vec::new();
    for start in (0..nodes.len()).filter(|i| waiting(i)) {
        let walk_number = start + 1;
        let mut walk: Vec<usize> = Vec::new();
        let mut at = start;
        loop {
            match seen.get_mut(at) {
                Some(mark) if *mark == 0 => *mark = walk_number,
                Some(mark) if *mark == walk_number => {
                    let from = walk.iter().position(|&i| i == at).unwrap_or(0);
                    let round: Vec<u64> = walk
                        .get(from..)
                        .unwrap_or_default()
                        .iter()
                        .filter_map(|&i| nodes.get(i))
                        .map(|n| n.id)
                        .collect();
                    errors.push(cycle_error(&round, path));
                    break;
                }
                _ => break, // another walk's knot
            }
            walk.push(at);
            // A node that waits depends on another that waits.
            let next = nodes.get(at).and_then(|n| {
                n.data.iter().chain(&n.ctrl).filter_map(|d| index.get(*d).map(|i| i as usize)).find(waiting)
            });
            match next {
                Some(i) => at = i,
                None => break,
            }
        }
    }
    errors
}

fn cycle_error(round: &[u64], path: &Path) -> TraceError {
    let shown: Vec<String> = round.iter().take(SHOWN).map(u64::to_string).collect();
    let more = if round.len() > SHOWN { format!(", ... ({} nodes)", round.len()) } else { String::new() };
    TraceError::new(path, format!("it waits for itself, through {}{more}", shown.join(", ")))
        .node(round.first().copied().unwrap_or_default())
        .field("data_deps or ctrl_deps")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(u64, &[u64])]) -> Vec<Links> {
        edges.iter().map(|(id, deps)| Links { id: *id, data: deps.to_vec(), ctrl: Vec::new() }).collect()
    }

    #[test]
    fn all_faults_at_once() {
        let nodes = graph(&[(1, &[]), (2, &[1, 9]), (2, &[]), (3, &[4]), (4, &[5]), (5, &[3]), (6, &[3]), (7, &[7])]);
        let errors: Vec<String> = faults(&nodes, Path::new("f")).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "f: node 2: data_deps: there is no node 9",
                "f: node 2: id: another node has this id, too",
                "f: node 3: data_deps or ctrl_deps: it waits for itself, through 3, 4, 5",
                "f: node 7: data_deps or ctrl_deps: it waits for itself, through 7",
            ]
        );
        assert!(faults(&graph(&[(2, &[1]), (1, &[])]), Path::new("f")).is_empty());
    }

    #[test]
    fn smallest_id_first() {
        let nodes = graph(&[(9, &[]), (1, &[9]), (4, &[]), (3, &[4])]);
        let ids: Vec<u64> = order(&nodes).iter().map(|&i| nodes[i].id).collect();
        assert_eq!(ids, [4, 3, 9, 1]);
    }

    #[test]
    fn a_long_chain_and_a_long_cycle_need_no_stack() {
        let mut nodes: Vec<Links> = (0..200_000u64)
            .map(|i| Links { id: i, data: if i > 0 { vec![i - 1] } else { vec![] }, ctrl: vec![] })
            .collect();
        assert_eq!(order(&nodes).len(), 200_000);
        nodes[0].ctrl = vec![199_999];
        assert_eq!(faults(&nodes, Path::new("f")).len(), 1);
    }
}
