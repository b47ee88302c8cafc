//! Which nodes belong to a step, and to which part of it.

use super::*;

/// Which part of a trace is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Steps {
    /// Everything.
    All,
    /// The step with this number (from `ProfilerStep#N`, else counted from 0 by calls of an optimiser).
    Number(u64),
    /// The step with most work (products, convolutions and attention called); of several the second of all (the first warms up) or the first.
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

/// Place of the step with most work: calls of products, convolutions and attention, then of anything.
pub(super) fn busiest(trace: &HostTrace, steps: &[(u64, std::ops::Range<u64>)]) -> Option<usize> {
    let mut work = vec![(0u64, 0u64); steps.len()];
    for node in &trace.nodes {
        // Ranges follow one another.
        let at = steps.partition_point(|(_, range)| range.end <= node.id);
        if let Some((_, score)) = steps.get(at).zip(work.get_mut(at)).filter(|((_, range), _)| range.contains(&node.id))
        {
            let class = class_of(plain_name(&node.name));
            score.0 += u64::from(matches!(class, Class::Product | Class::Convolution | Class::Attention));
            score.1 += 1;
        }
    }
    // Steps of one program differ by a few nodes of the host: within a hundredth they are alike.
    let most = work.iter().max().copied()?;
    let alike = |w: &(u64, u64)| w.0 == most.0 && w.1 * 100 >= most.1 * 99;
    if work.get(1).is_some_and(alike) { Some(1) } else { work.iter().position(alike) }
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
pub(in crate::trace::lower) fn part_of(node: &HostNode) -> Option<Part> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(names: &[&str]) -> HostTrace {
        let node = |(i, name): (usize, &&str)| {
            format!(
                "{{\"id\": {}, \"name\": \"{name}\", \"ctrl_deps\": 1, \"inputs\": {{\"values\": [], \"shapes\": [], \"types\": []}}, \
                 \"outputs\": {{\"values\": [], \"shapes\": [], \"types\": []}}, \"attrs\": []}}",
                i + 2
            )
        };
        let nodes: Vec<String> = names.iter().enumerate().map(node).collect();
        let text = format!("{{\"schema\": \"1.1.1-chakra.0.0.4\", \"nodes\": [{}]}}", nodes.join(","));
        crate::trace::host::read_from(text.as_bytes(), std::path::Path::new("t")).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The middle step has two products, the others one; among equal steps it is the second.
    #[test]
    fn the_step_with_most_work() {
        let (p, mm) = ("ProfilerStep#", "aten::mm");
        let at = |names: &[&str]| {
            let trace = trace(names);
            busiest(&trace, &steps(&trace))
        };
        let names = [format!("{p}3"), format!("{p}4"), format!("{p}5")];
        let [a, b, c] = names.each_ref().map(String::as_str);
        assert_eq!(at(&[a, mm, b, mm, c, mm, mm]), Some(2));
        assert_eq!(at(&[a, mm, mm, b, mm, c, mm]), Some(0));
        assert_eq!(at(&[a, mm, b, mm, c, mm]), Some(1));
        assert_eq!(at(&[mm]), None);
    }
}
