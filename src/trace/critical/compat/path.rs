//! The heaviest path, as networkx 3.6.1 finds it: in topological order by generations, the first of equal predecessors wins.

use super::graph::{Edge, Graph};

/// Edges by the node they come from or lead to, each list in the order in which the edges were added.
struct Lists {
    first: Vec<u32>,
    edges: Vec<u32>,
}

impl Lists {
    fn new(nodes: usize, edges: &[Edge], node: impl Fn(&Edge) -> u32) -> Self {
        let mut first = vec![0u32; nodes + 1];
        for edge in edges {
            first[node(edge) as usize + 1] += 1;
        }
        for i in 0..nodes {
            first[i + 1] += first[i];
        }
        let mut next = first.clone();
        let mut lists = vec![0u32; edges.len()];
        for (id, edge) in edges.iter().enumerate() {
            let slot = &mut next[node(edge) as usize];
            lists[*slot as usize] = id as u32;
            *slot += 1;
        }
        Self { first, edges: lists }
    }

    fn of(&self, node: u32) -> &[u32] {
        &self.edges[self.first[node as usize] as usize..self.first[node as usize + 1] as usize]
    }
}

/// Orders the nodes once, for any number of searches.
pub(super) struct Order {
    incoming: Lists,
    order: Vec<u32>,
}

impl Order {
    /// `None` where the graph has a cycle.
    pub(super) fn new(graph: &Graph<'_>) -> Option<Self> {
        let nodes = graph.nodes.len();
        let outgoing = Lists::new(nodes, &graph.edges, |e| e.from);
        let incoming = Lists::new(nodes, &graph.edges, |e| e.to);
        let mut missing: Vec<u32> = (0..nodes as u32).map(|n| incoming.of(n).len() as u32).collect();
        let mut order: Vec<u32> = graph.seen.iter().copied().filter(|&n| missing[n as usize] == 0).collect();
        let mut at = 0;
        while let Some(&node) = order.get(at) {
            at += 1;
            for &edge in outgoing.of(node) {
                let to = graph.edges[edge as usize].to;
                missing[to as usize] -= 1;
                if missing[to as usize] == 0 {
                    order.push(to);
                }
            }
        }
        (order.len() == graph.seen.len()).then_some(Self { incoming, order })
    }

    /// The heaviest path as edges, and its length.
    pub(super) fn heaviest(&self, graph: &Graph<'_>, weight: impl Fn(&Edge) -> f64) -> (f64, Vec<u32>) {
        const START: u32 = u32::MAX;
        let mut best: Vec<(f64, u32)> = vec![(0.0, START); graph.nodes.len()];
        for &node in &self.order {
            let mut found: Option<(f64, u32)> = None;
            for &id in self.incoming.of(node) {
                let edge = &graph.edges[id as usize];
                let length = best[edge.from as usize].0 + weight(edge);
                if found.is_none_or(|(so_far, _)| length > so_far) {
                    found = Some((length, id));
                }
            }
            best[node as usize] = found.filter(|f| f.0 >= 0.0).unwrap_or((0.0, START));
        }
        let mut last: Option<u32> = None;
        for &node in &self.order {
            if last.is_none_or(|l| best[node as usize].0 > best[l as usize].0) {
                last = Some(node);
            }
        }
        let length = last.map_or(0.0, |l| best[l as usize].0);
        let mut path = Vec::new();
        while let Some(node) = last {
            let (_, edge) = best[node as usize];
            last = (edge != START).then(|| {
                path.push(edge);
                graph.edges[edge as usize].from
            });
        }
        path.reverse();
        (length, path)
    }
}
