//! What the collectives of a trace tell about its parallelism, and which values and products are shards.
//!
//! An all-reduce in the forward pass sums what the ranks of a tensor-parallel group computed in parts: the product before it
//! contracts over a shard (row-parallel), so its `k` and its streamed operand are `1/TP` of the whole. From there the
//! shards are followed through elementwise work, norms and attention to the products that make them (column-parallel: `m` is
//! `1/TP`), forwards and backwards until nothing changes. The backward pass is alike: the gradient of a
//! column-parallel product's input is summed. All-reduces of gradients, outside activations, tell the data-parallel degree.
//!
//! Reduce-scatters and all-gathers of sequence parallelism are such sums, with the tokens split in between. All-to-alls hand on what they were given.
//! Which collective is for what: [`super::recover`]. What does not fit this picture (a shard read by an unsharded product) is reported and left
//! as recorded.

use super::program::{Origin, Part, Program, Step};
use super::recover::{self, Recovered, Role};
use crate::trace::ops::Class;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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
    /// Stages of the recorded pipeline; 1 if none. The step is that of one of them.
    pub pp: u64,
    /// Expert-parallel degree; 1 if none.
    pub ep: u64,
    /// What each collective is for.
    pub recovered: Recovered,
    /// Results of the gathers of sequence parallelism: whole, though what they are gathered from is a shard.
    gathered: HashSet<usize>,
    /// First gathered version of each shard of parameters.
    first_gathered: HashMap<usize, usize>,
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

/// Degrees that were asked for, whatever the trace tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// Tensor parallelism.
    pub tp: Option<u64>,
    /// Data parallelism.
    pub dp: Option<u64>,
    /// Stages of a pipeline.
    pub pp: Option<u64>,
    /// Expert parallelism.
    pub ep: Option<u64>,
}

/// Finds parallelism.
pub fn find(program: &Program, asked: Asked) -> Parallel {
    let recovered = recover::recover(program);
    let mut found = Parallel { tp: 1, dp: 1, pp: 1, ep: 1, ..Parallel::default() };
    for (name, option, roles, asked, degree) in [
        ("activations are summed or split", "tp", &[Role::Tensor, Role::Sequence][..], asked.tp, &mut found.tp),
        ("gradients are summed", "dp", &[Role::Data, Role::ShardedParameters][..], asked.dp, &mut found.dp),
        ("messages pass between stages", "pp", &[Role::Pipeline][..], asked.pp, &mut found.pp),
        ("tokens go to their experts", "ep", &[Role::Expert][..], asked.ep, &mut found.ep),
    ] {
        let told = recovered.degree(roles);
        *degree = asked.or(told.flatten()).unwrap_or(1).max(1);
        if let (None, Some(None)) = (asked, told) {
            found.notes.push(format!(
                "{name} among ranks, but the trace does not say how many: sizes are left as recorded ({} tells)",
                super::given(option)
            ));
        }
        let recorded: Vec<u64> = (recovered.table.iter())
            .filter(|f| roles.contains(&f.role))
            .filter_map(|f| f.ranks.filter(|r| *r > 1))
            .collect::<BTreeSet<u64>>()
            .into_iter()
            .collect();
        if let Some(asked) = asked.filter(|a| !recorded.is_empty() && !recorded.contains(a)) {
            let ranks: Vec<String> = recorded.iter().map(u64::to_string).collect();
            found.notes.push(format!(
                "{option} {asked} is as given; the groups in which {name} have {} ranks, so the sizes scaled back may be wrong",
                ranks.join(", ")
            ));
        }
    }
    // Tables that lie on all ranks, where nothing else tells how many there are.
    if let (None, 1, Some(Some(ranks))) = (asked.dp, found.dp, recovered.degree(&[Role::Tables])) {
        found.dp = (ranks / found.tp).max(1);
    }
    let mut left: BTreeMap<&str, u64> = BTreeMap::new();
    for (i, step) in program.steps.iter().enumerate() {
        let Some(comm) = &step.comm else { continue };
        let Some(role) = recovered.roles.get(&i).copied() else {
            *left.entry(&comm.kind).or_insert(0) += 1;
            continue;
        };
        found.exchanged(program, step, role);
    }
    for (kind, count) in left {
        found.notes.push(format!(
            "{count} {kind} collectives are left out: nothing around them tells what they are for; what they exchange is left as recorded"
        ));
    }
    let of_activations = recovered.steps(&[Role::Tensor]);
    let scattered: Vec<usize> = (recovered.steps(&[Role::Sequence]).into_iter())
        .filter(|i| {
            program.steps.get(*i).and_then(|s| s.comm.as_ref()).is_some_and(|c| c.kind.contains("reducescatter"))
        })
        .collect();
    if found.tp > 1 {
        follow(program, &mut found, &of_activations, &scattered);
        if found.sharded.is_empty() && found.row_parallel.is_empty() {
            found.notes.push(format!(
                "tp {} is as given: no sum of activations tells which sizes are shards, so all are left as recorded (as whole: {} with 1)",
                found.tp,
                super::given("tp")
            ));
        }
    }
    found.recovered = recovered;
    found
}

impl Parallel {
    /// What a collective hands on is what it was given, summed, gathered or exchanged.
    fn exchanged(&mut self, program: &Program, step: &Step, role: Role) {
        let Some(comm) = &step.comm else { return };
        let elements = |v: &usize| program.values.get(*v).map(|x| x.elements);
        let inputs = recover::taken(step);
        let pairs = || step.writes.iter().copied().zip(inputs.iter().copied()).filter(|(w, r)| w > r);
        let as_many = step.writes.len() == inputs.len();
        let in_place = as_many && step.writes.iter().zip(&inputs).all(|(w, r)| w > r && elements(w) == elements(r));
        match role {
            _ if in_place && (comm.kind.contains("allreduce") || comm.kind.contains("broadcast")) => {
                self.alias.extend(pairs());
            }
            // Exchanged evenly: the same for other samples.
            Role::Tables | Role::Expert | Role::Context if in_place && comm.kind.contains("alltoall") => {
                self.alias.extend(pairs());
            }
            Role::Sequence if inputs.len() == 1 => {
                self.alias.extend(step.writes.iter().map(|w| (*w, inputs[0])).filter(|(w, r)| w > r));
                if comm.kind.contains("allgather") {
                    self.gathered.extend(&step.writes);
                }
            }
            // Gathered again for the backward pass: the same parameter.
            Role::ShardedParameters if comm.kind.contains("allgather") && inputs.len() == 1 => {
                let first = *self.first_gathered.entry(inputs[0]).or_insert(step.writes.first().copied().unwrap_or(0));
                self.alias.extend(step.writes.iter().map(|w| (*w, first)).filter(|(w, r)| w > r));
            }
            _ => {}
        }
    }
}

/// Marks shards from the sums on, until nothing changes.
fn follow(program: &Program, found: &mut Parallel, sums: &[usize], scattered: &[usize]) {
    let mut readers: HashMap<usize, Vec<usize>> = HashMap::new();
    for (i, step) in program.steps.iter().enumerate().filter(|(_, s)| s.comm.is_none()) {
        for v in &step.reads {
            readers.entry(found.root(*v)).or_default().push(i);
        }
    }
    let value = |v: usize| program.values.get(v);
    let mut summed: HashSet<usize> =
        sums.iter().chain(scattered).flat_map(|i| recover::taken(&program.steps[*i])).collect();
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
    // What is made of the tokens that a rank keeps is a shard along the tokens.
    for step in scattered.iter().filter_map(|i| program.steps.get(*i)) {
        for reader in
            program.steps.iter().filter(|s| s.comm.is_none() && s.reads.iter().any(|r| step.writes.contains(r)))
        {
            waiting.extend(reader.writes.iter().copied().filter(|w| activation(*w)));
        }
    }
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
                // A gathered operand is whole.
                conflicts += u64::from(!step.reads.iter().any(|r| found.gathered.contains(r) && found.root(*r) == v));
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
