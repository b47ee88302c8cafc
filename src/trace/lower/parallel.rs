//! What the collectives of a trace tell about its parallelism, and which values and products are shards.
//!
//! An all-reduce in the forward pass sums what the ranks of a tensor-parallel group computed in parts: the product before it
//! contracts over a shard (row-parallel), so its `k` and its streamed operand are `1/TP` of the whole. From there the
//! shards are followed through elementwise work, norms and attention to the products that make them (column-parallel: `m` is
//! `1/TP`), forwards and backwards until nothing changes. The backward pass is alike: the gradient of a
//! column-parallel product's input is summed. All-reduces of gradients, outside activations, tell the data-parallel degree.
//!
//! What does not fit this picture (a shard read by an unsharded product, all-gathers and reduce-scatters of sequence
//! parallelism, all-to-alls) is reported and left as recorded.

use super::program::{Origin, Part, Program, Step};
use crate::trace::ops::Class;
use std::collections::{HashMap, HashSet};

/// Parallelism found in a trace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parallel {
    /// Tensor-parallel degree; 1 if none.
    pub tp: u64,
    /// Data-parallel degree; 1 if none.
    pub dp: u64,
    /// Values that are shards.
    pub sharded: HashSet<usize>,
    /// Products (by step) that contract over a shard.
    pub row_parallel: HashSet<usize>,
    /// Values that are other values, summed or copied among ranks.
    pub alias: HashMap<usize, usize>,
    /// What could not be interpreted.
    pub notes: Vec<String>,
}

impl Parallel {
    /// The value behind sums and copies among ranks.
    pub fn root(&self, value: usize) -> usize {
        let mut at = value;
        // An alias is always an older value, so this ends.
        while let Some(next) = self.alias.get(&at) {
            at = *next;
        }
        at
    }
}

/// Whether a step multiplies by a weight.
fn weight_product(program: &Program, step: &Step) -> bool {
    matches!(step.cost.class, Class::Product | Class::Convolution)
        && step
            .reads
            .iter()
            .any(|v| program.values.get(*v).is_some_and(|x| x.origin == Origin::Parameter && x.shape.len() > 1))
}

/// Whether a step multiplies two matrices that are no weights: over the tokens, for a weight's gradient. Which of its operands
/// is a shard says nothing about the other.
fn weight_gradient(step: &Step) -> bool {
    step.cost.class == Class::Product && matches!(step.call.op.as_str(), "mm" | "addmm") && step.part == Part::Backward
}

/// Finds parallelism. `tp` and `dp` override what the trace tells.
pub fn find(program: &Program, tp: Option<u64>, dp: Option<u64>) -> Parallel {
    let mut found = Parallel { tp: tp.unwrap_or(1).max(1), dp: dp.unwrap_or(1).max(1), ..Parallel::default() };
    let mut sums: Vec<(usize, u64)> = Vec::new();
    let mut other: HashMap<String, u64> = HashMap::new();
    for (i, step) in program.steps.iter().enumerate() {
        let Some(comm) = &step.comm else { continue };
        let inputs: Vec<usize> = step.call.input_tensors().iter().map(|t| t.storage).collect();
        let in_place = step.writes.len() == inputs.len()
            && step.writes.iter().zip(&inputs).all(|(w, r)| {
                let e = |v: &usize| program.values.get(*v).map(|x| x.elements);
                w > r && e(w) == e(r)
            });
        if in_place && (comm.kind.contains("allreduce") || comm.kind.contains("broadcast")) {
            found.alias.extend(step.writes.iter().copied().zip(inputs.iter().copied()));
        }
        if comm.kind.contains("allreduce") {
            sums.push((i, comm.ranks.unwrap_or(0)));
        } else if !comm.kind.contains("broadcast") {
            *other.entry(comm.kind.clone()).or_insert(0) += 1;
        }
    }
    // A sum is one of activations if a forward or backward kernel that is no gradient work reads its result.
    let readers = |values: &[usize]| {
        program.steps.iter().any(|s| {
            s.comm.is_none()
                && matches!(s.part, Part::Forward | Part::Backward)
                && s.reads.iter().any(|r| values.contains(r))
        })
    };
    let forward_sum = sums.iter().any(|(i, _)| program.steps[*i].part == Part::Forward);
    let mut of_activations: Vec<(usize, u64)> = Vec::new();
    for (i, ranks) in &sums {
        let step = &program.steps[*i];
        if step.part == Part::Forward || (forward_sum && step.part == Part::Backward && readers(&step.writes)) {
            of_activations.push((*i, *ranks));
        } else if dp.is_none() && *ranks > 1 {
            found.dp = found.dp.max(*ranks);
        }
    }
    for (kind, count) in &other {
        found.notes.push(format!("{count} {kind} collectives are left out; what they exchange is left as recorded"));
    }
    found.notes.sort();
    if tp.is_none() {
        let mut counts: HashMap<u64, u64> = HashMap::new();
        of_activations.iter().for_each(|(_, ranks)| *counts.entry(*ranks).or_insert(0) += 1);
        match counts.into_iter().filter(|(ranks, _)| *ranks > 1).max_by_key(|(ranks, count)| (*count, *ranks)) {
            Some((ranks, _)) => found.tp = ranks,
            None if !of_activations.is_empty() => found.notes.push(
                "activations are summed among ranks, but the trace does not say how many: give tp; sizes are left as recorded".into(),
            ),
            None => {}
        }
    }
    if found.tp > 1 {
        follow(program, &mut found, &of_activations);
        if found.sharded.is_empty() && found.row_parallel.is_empty() {
            found.notes.push(format!(
                "tp {} is as given: no sum of activations tells which sizes are shards, so all are left as recorded",
                found.tp
            ));
        }
    }
    let recorded: HashSet<u64> = of_activations.iter().map(|(_, ranks)| *ranks).filter(|r| *r > 1).collect();
    if let (Some(tp), false) = (tp, recorded.is_empty())
        && !recorded.contains(&tp)
    {
        let mut ranks: Vec<String> = recorded.iter().map(u64::to_string).collect();
        ranks.sort();
        found.notes.push(format!(
            "tp {tp} is as given; the groups that sum activations have {} ranks, so the sizes scaled back may be wrong",
            ranks.join(", ")
        ));
    }
    found
}

/// Marks shards from the sums on, until nothing changes.
fn follow(program: &Program, found: &mut Parallel, sums: &[(usize, u64)]) {
    let mut readers: HashMap<usize, Vec<usize>> = HashMap::new();
    for (i, step) in program.steps.iter().enumerate().filter(|(_, s)| s.comm.is_none()) {
        for v in &step.reads {
            readers.entry(found.root(*v)).or_default().push(i);
        }
    }
    let value = |v: usize| program.values.get(v);
    let mut summed: HashSet<usize> =
        sums.iter().flat_map(|(i, _)| program.steps[*i].call.input_tensors().into_iter().map(|t| t.storage)).collect();
    // A copy made to be summed is as partial as what it copies.
    let mut copies: Vec<usize> = summed.iter().copied().collect();
    while let Some(v) = copies.pop() {
        let Some(Origin::Made(p)) = value(v).map(|x| x.origin) else { continue };
        let step = &program.steps[p];
        if let (Class::Copy, [source]) = (step.cost.class, step.reads.as_slice())
            && value(*source).map(|x| x.elements) == value(v).map(|x| x.elements)
            && summed.insert(*source)
        {
            copies.push(*source);
        }
    }
    let activation = |v: usize| value(v).is_some_and(|x| x.float && x.origin != Origin::Parameter);
    let mut waiting: Vec<usize> = Vec::new();
    let mut lookups = 0u64;
    let mut partial: Vec<usize> = summed.iter().copied().collect();
    partial.sort_unstable();
    for v in &partial {
        let Some(Origin::Made(p)) = value(*v).map(|x| x.origin) else { continue };
        let step = &program.steps[p];
        if weight_product(program, step) {
            found.row_parallel.insert(p);
            // Its streamed operand: the one that is no parameter and is contracted.
            waiting.extend(product_operands(step).into_iter().filter(|o| activation(*o)));
        } else if step.cost.class == Class::Reduction {
            waiting.extend(step.reads.iter().copied().filter(|r| activation(*r)));
        } else if step.cost.class != Class::Copy {
            lookups += 1;
        }
    }
    if lookups > 0 {
        found.notes.push(format!(
            "{lookups} sums follow no product (a table split by vocabulary, a part of the loss): their kernels are left as recorded"
        ));
    }
    let mut conflicts = 0u64;
    while let Some(v) = waiting.pop() {
        let v = found.root(v);
        if summed.contains(&v) || !found.sharded.insert(v) {
            continue;
        }
        let elements = value(v).map_or(0, |x| x.elements);
        if let Some(Origin::Made(p)) = value(v).map(|x| x.origin) {
            let step = &program.steps[p];
            if step.comm.is_none() && !weight_product(program, step) && !weight_gradient(step) {
                for r in &step.reads {
                    let part_of_it = step.cost.class == Class::Product
                        || step.cost.class == Class::Attention
                        || value(*r).is_some_and(|x| x.elements >= elements);
                    if activation(*r) && part_of_it && !summed.contains(&found.root(*r)) {
                        waiting.push(*r);
                    }
                }
            }
        }
        for r in readers.get(&v).into_iter().flatten() {
            let step = &program.steps[*r];
            let reaches_sum = step.writes.iter().any(|w| summed.contains(w));
            if reaches_sum || found.row_parallel.contains(r) || !matches!(step.part, Part::Forward | Part::Backward) {
                continue;
            }
            if weight_product(program, step) {
                conflicts += 1;
                continue;
            }
            if weight_gradient(step) {
                continue;
            }
            for w in &step.writes {
                let large = value(*w).is_some_and(|x| x.float && x.elements.saturating_mul(8) >= elements);
                if large {
                    waiting.push(*w);
                }
            }
        }
    }
    if conflicts > 0 {
        found.notes.push(format!(
            "{conflicts} products read shards without a sum behind them: their sizes are left as recorded"
        ));
    }
}

/// The operands that a product multiplies.
pub fn product_operands(step: &Step) -> Vec<usize> {
    let at: &[usize] = match step.call.op.as_str() {
        "addmm" | "baddbmm" | "_addmm_activation" | "addmm_" | "baddbmm_" => &[1, 2],
        _ => &[0, 1],
    };
    at.iter().filter_map(|i| step.call.tensor(*i)).map(|t| t.storage).collect()
}
