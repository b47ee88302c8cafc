//! Microbatches of a recorded training step: of a pipeline, or of gradients that are accumulated.
//!
//! Microbatches share parameters and gradients and nothing else. So the forward and backward kernels of a step fall apart, by what they hand
//! each other, into parts that do the same work: one a microbatch. The graph is then that of one of them, and the step that many times it.

use super::program::{Origin, Part, Program};
use crate::trace::ops::Class;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Share of the products' FLOP that the microbatches must hold: the rest is no part of any.
const LEAST_SHARE: f64 = 0.9;
/// Products that a microbatch has at least: a part with fewer tells nothing.
const LEAST_PRODUCTS: usize = 2;

fn root(of: &mut [usize], mut at: usize) -> usize {
    while let Some(&above) = of.get(at).filter(|a| **a != at) {
        let next = of.get(above).copied().unwrap_or(above);
        if let Some(slot) = of.get_mut(at) {
            *slot = next;
        }
        at = next;
    }
    at
}

fn join(of: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(of, a), root(of, b));
    if let Some(slot) = of.get_mut(a.max(b)) {
        *slot = a.min(b);
    }
}

/// The number of microbatches, and the program with one of them; `None` if the step is one.
pub fn split(program: &Program) -> Option<(u64, Program)> {
    if !program.trains() {
        return None;
    }
    let steps = &program.steps;
    let inside = |i: usize| steps.get(i).is_some_and(|s| matches!(s.part, Part::Forward | Part::Backward));
    let maker = |v: usize| match program.values.get(v) {
        // A loss is added to that of the microbatch before.
        Some(x) if x.float && x.elements > 1 => match x.origin {
            Origin::Made(p) if inside(p) => Some(p),
            _ => None,
        },
        _ => None,
    };
    // What a step reads that others made, but for what a write in place keeps (a sum of gradients).
    let kept = |i: usize| -> Vec<usize> {
        let writes = steps.get(i).map(|s| s.writes.as_slice()).unwrap_or_default();
        writes.iter().filter_map(|w| program.values.get(*w)?.before).collect()
    };
    let sources: Vec<Vec<usize>> = (0..steps.len())
        .map(|i| {
            let kept = kept(i);
            let reads = steps.get(i).filter(|_| inside(i)).map(|s| s.reads.as_slice()).unwrap_or_default();
            reads.iter().filter(|v| !kept.contains(v)).filter_map(|v| maker(*v)).collect()
        })
        .collect();
    // Casts of weights and masks may be made once for all.
    let may_be_shared = |i: usize| {
        let class = steps.get(i).map(|s| s.cost.class);
        sources.get(i).is_none_or(Vec::is_empty)
            && matches!(class, Some(Class::Copy | Class::Fill | Class::Elementwise | Class::Collective))
    };
    let mut of: Vec<usize> = (0..steps.len()).collect();
    let mut readers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, made) in sources.iter().enumerate() {
        for &p in made {
            if may_be_shared(p) {
                readers.entry(p).or_default().push(i);
            } else {
                join(&mut of, p, i);
            }
        }
    }
    for (p, by) in readers {
        let roots: BTreeSet<usize> = by.iter().map(|i| root(&mut of, *i)).collect();
        if let (1, Some(only)) = (roots.len(), roots.first()) {
            join(&mut of, p, *only);
        }
    }
    let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for i in (0..steps.len()).filter(|i| inside(*i)) {
        parts.entry(root(&mut of, i)).or_default().push(i);
    }
    let flop = |i: &usize| {
        let step =
            steps.get(*i).filter(|s| matches!(s.cost.class, Class::Product | Class::Convolution | Class::Attention));
        step.and_then(|s| s.cost.flop).unwrap_or(0) as f64
    };
    // Parts that do the same, by what they do in order.
    type Signature<'s> = Vec<(&'s str, &'s [u64])>;
    let mut alike: BTreeMap<Signature<'_>, Vec<&Vec<usize>>> = BTreeMap::new();
    for part in parts.values() {
        if part.iter().filter(|i| flop(i) > 0.0).count() < LEAST_PRODUCTS {
            continue;
        }
        let what = part.iter().filter(|i| flop(i) > 0.0).filter_map(|i| steps.get(*i));
        let signature = what.map(|s| (s.call.op.as_str(), s.call.tensor(0).map_or(&[][..], |t| &t.shape))).collect();
        alike.entry(signature).or_default().push(part);
    }
    let sum = |part: &Vec<usize>| part.iter().map(&flop).sum::<f64>();
    let all: f64 = (0..steps.len()).filter(|i| inside(*i)).map(|i| flop(&i)).sum();
    let most = alike.into_values().filter(|list| list.len() > 1).max_by(|a, b| {
        let of = |list: &[&Vec<usize>]| list.iter().map(|p| sum(p)).sum::<f64>();
        of(a).total_cmp(&of(b))
    })?;
    let held: f64 = most.iter().map(|p| sum(p)).sum();
    let both = most.iter().all(|p| p.iter().any(|i| steps.get(*i).is_some_and(|s| s.part == Part::Backward)));
    if !both || held < LEAST_SHARE * all {
        return None;
    }
    // The second: the first may do what is done once. Where a file does not tell the passes of later ones apart, the first.
    let forward =
        |p: &[usize]| p.iter().any(|i| steps.get(*i).is_some_and(|s| s.part == Part::Forward && flop(i) > 0.0));
    let taken = usize::from(most.get(1).is_some_and(|p| forward(p)));
    let dropped: HashSet<usize> =
        most.iter().enumerate().filter(|(n, _)| *n != taken).flat_map(|(_, p)| p.iter().copied()).collect();
    let mut place: HashMap<usize, usize> = HashMap::new();
    let mut one = Program { steps: Vec::new(), ..program.clone() };
    for (i, step) in steps.iter().enumerate().filter(|(i, _)| !dropped.contains(i)) {
        place.insert(i, one.steps.len());
        one.steps.push(step.clone());
    }
    for value in &mut one.values {
        if let Origin::Made(p) = value.origin {
            value.origin = place.get(&p).map_or(Origin::Input, |p| Origin::Made(*p));
        }
    }
    Some((most.len() as u64, one))
}
