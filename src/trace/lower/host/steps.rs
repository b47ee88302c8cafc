//! Which nodes belong to a step, and to which part of it.

use super::*;

/// Which part of a trace is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Steps {
    /// Everything.
    All,
    /// The step with this number (from `ProfilerStep#N`, else counted from 0 by calls of an optimiser).
    Number(u64),
    /// The second step where there are several (the first warms up), else the only one.
    #[default]
    Steady,
}

/// Node-id ranges of the steps of a trace, with their numbers; empty if there is nothing that marks steps.
pub fn steps(trace: &HostTrace) -> Vec<(u64, std::ops::Range<u64>)> {
    let mut marks: Vec<(u64, u64)> = trace
        .nodes
        .iter()
        .filter_map(|n| Some((n.id, n.name.strip_prefix("ProfilerStep#")?.trim_end_matches('*').parse().ok()?)))
        .collect();
    marks.sort_unstable();
    if !marks.is_empty() {
        let ends = marks.iter().skip(1).map(|m| m.0).chain([u64::MAX]);
        return marks.iter().zip(ends).map(|(m, end)| (m.1, m.0..end)).collect();
    }
    // A step ends with the last node below its optimiser.
    let last_below: HashMap<u64, u64> = below(trace);
    let mut ends: Vec<u64> = trace
        .nodes
        .iter()
        .filter(|n| n.name.starts_with("Optimizer.step"))
        .map(|n| last_below.get(&n.id).copied().unwrap_or(n.id))
        .collect();
    ends.sort_unstable();
    let mut from = 0;
    let mut found = Vec::new();
    for (i, end) in ends.iter().enumerate() {
        found.push((i as u64, from..end.saturating_add(1)));
        from = end.saturating_add(1);
    }
    found
}

/// The largest id below each node.
pub(super) fn below(trace: &HostTrace) -> HashMap<u64, u64> {
    let mut order: Vec<&HostNode> = trace.nodes.iter().collect();
    order.sort_unstable_by_key(|n| std::cmp::Reverse(n.id));
    let mut last: HashMap<u64, u64> = HashMap::new();
    for node in order {
        let own = last.get(&node.id).copied().unwrap_or(node.id);
        last.insert(node.id, own);
        let above = last.entry(node.parent).or_insert(own);
        *above = (*above).max(own);
    }
    last
}

/// The part of the step that a node begins, if it begins one.
pub(super) fn part_of(node: &HostNode) -> Option<Part> {
    let name: &str = &node.name;
    if name.starts_with("Optimizer.") || name.eq_ignore_ascii_case("## optimizer ##") || name == "## zero_grad ##" {
        Some(Part::Optimiser)
    } else if name.contains("AccumulateGrad") || name.contains("reducer::") {
        Some(Part::Gradients)
    } else if node.scope == 1 || name.starts_with("autograd::engine") || name.eq_ignore_ascii_case("## backward ##") {
        Some(Part::Backward)
    } else {
        None
    }
}
