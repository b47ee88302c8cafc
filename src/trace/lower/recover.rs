//! Which parallelism the collectives of a recorded rank come from, by kind, order, neighbours, sizes and process groups.
//!
//! | collective | nearest work before and after it | parallelism |
//! |---|---|---|
//! | all-reduce of activations | a product whose parts are summed | tensor (TP) |
//! | all-gather and reduce-scatter of activations | norms on one side, products on the other | tensor, with the tokens split between (SP) |
//! | all-reduce of gradients | the backward pass or its buckets | data (DP) |
//! | all-gather of weights, reduce-scatter of gradients | what is gathered was there before the step and is multiplied with | data, parameters sharded (FSDP) |
//! | all-to-all | look-ups of a table | sharded tables |
//! | all-to-all, all-gather, messages | attention | context (CP) |
//! | all-to-all | anything else | experts (EP) |
//! | messages | anything else | pipeline (PP) |
//!
//! The degree is the size of the group that most calls of a role are made in. What cannot be told is said, with the option that gives it.

use super::program::{Origin, Part, Program, Step, weight_places};
use crate::trace::ops::{Class, Element};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a collective is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sums of activations that ranks computed in parts.
    Tensor,
    /// Tokens split between the products of a tensor-parallel group.
    Sequence,
    /// Sums of gradients.
    Data,
    /// Parameters gathered before use, gradients summed into shards.
    ShardedParameters,
    /// Tokens to their experts and back.
    Expert,
    /// Look-ups in tables that lie on other ranks.
    Tables,
    /// Keys and values, or heads, of a sequence that is split among ranks.
    Context,
    /// Activations and gradients between the stages of a pipeline.
    Pipeline,
    /// Copies of the same to all ranks; nothing is computed with it.
    Copies,
}

impl Role {
    /// For a reader.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tensor parallelism (TP)",
            Self::Sequence => "sequence parallelism (SP, in the TP group)",
            Self::Data => "data parallelism (DP)",
            Self::ShardedParameters => "sharded parameters (FSDP, in the DP group)",
            Self::Expert => "expert parallelism (EP)",
            Self::Tables => "sharded tables",
            Self::Context => "context parallelism (CP)",
            Self::Pipeline => "pipeline parallelism (PP)",
            Self::Copies => "copies to all ranks",
        }
    }
}

/// Collectives of one role, kind and group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// What they are for.
    pub role: Role,
    /// Kind, with only letters.
    pub kind: String,
    /// Calls in the step.
    pub calls: u64,
    /// Bytes that the rank hands in.
    pub bytes: u64,
    /// Ranks of the group, where they are known.
    pub ranks: Option<u64>,
}

/// What the collectives of a program tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Role of each step that communicates.
    pub roles: HashMap<usize, Role>,
    /// The same, summed up.
    pub table: Vec<Found>,
}

impl Recovered {
    /// The degree of some roles: ranks of the group that most of their calls are made in. `Some(None)`: there are such calls, but of groups of
    /// unknown size.
    pub fn degree(&self, of: &[Role]) -> Option<Option<u64>> {
        let mut calls: BTreeMap<u64, u64> = BTreeMap::new();
        let mut any = false;
        for found in self.table.iter().filter(|f| of.contains(&f.role)) {
            any |= found.ranks != Some(1);
            if let Some(ranks) = found.ranks.filter(|r| *r > 1) {
                *calls.entry(ranks).or_insert(0) += found.calls;
            }
        }
        any.then(|| calls.into_iter().max_by_key(|(ranks, n)| (*n, *ranks)).map(|(ranks, _)| ranks))
    }

    /// Steps of a role, in their order.
    pub fn steps(&self, of: &[Role]) -> Vec<usize> {
        let mut steps: Vec<usize> = self.roles.iter().filter(|(_, r)| of.contains(r)).map(|(i, _)| *i).collect();
        steps.sort_unstable();
        steps
    }
}

/// Most steps looked at on the way to the nearest work.
const MOST_LOOKED_AT: usize = 256;

struct Around<'p> {
    program: &'p Program,
    readers: HashMap<usize, Vec<usize>>,
}

/// Work near a collective.
#[derive(Default)]
struct Near {
    classes: HashSet<Class>,
    /// It is a weight of a product or norm.
    weight: bool,
    /// It was there before the step.
    given: bool,
    /// It is looked up in tables of embeddings, or goes back to them.
    tables: bool,
}

/// Whether an operator looks up in tables of embeddings, under whatever name a library gives it (`fbgemm::split_embedding_codegen_lookup_...`). Tokens are
/// sorted by their experts with look-ups, too: in what is no parameter.
fn of_tables(program: &Program, step: &Step) -> bool {
    let parameter = |v: usize| program.values.get(v).is_some_and(|v| v.origin == Origin::Parameter);
    let table = step.cost.class == Class::Lookup && step.call.tensor(0).is_some_and(|t| parameter(t.storage));
    table || step.call.op.to_ascii_lowercase().contains("embedding")
}

/// What values pass through unchanged in kind: copies, activations, other collectives.
fn passes_through(class: Class) -> bool {
    matches!(
        class,
        Class::Copy
            | Class::Fill
            | Class::View
            | Class::Elementwise
            | Class::Generated
            | Class::Collective
            | Class::Composite
    )
}

impl Around<'_> {
    fn before(&self, from: &[usize]) -> Near {
        let mut near = Near::default();
        let (mut waiting, mut seen) = (from.to_vec(), HashSet::new());
        while let Some(v) = waiting.pop() {
            if !seen.insert(v) || seen.len() > MOST_LOOKED_AT {
                continue;
            }
            match self.program.values.get(v).map(|x| x.origin) {
                Some(Origin::Made(p)) => {
                    let Some(step) = self.program.steps.get(p) else { continue };
                    near.tables |= of_tables(self.program, step);
                    if passes_through(step.cost.class) {
                        waiting.extend(&step.reads);
                    } else {
                        near.classes.insert(step.cost.class);
                    }
                }
                Some(_) => near.given = true,
                None => {}
            }
        }
        near
    }

    fn after(&self, from: &[usize]) -> Near {
        let mut near = Near::default();
        let (mut waiting, mut seen) = (from.to_vec(), HashSet::new());
        while let Some(v) = waiting.pop() {
            if !seen.insert(v) || seen.len() > MOST_LOOKED_AT {
                continue;
            }
            for step in self.readers.get(&v).into_iter().flatten().filter_map(|i| self.program.steps.get(*i)) {
                near.tables |= of_tables(self.program, step);
                if passes_through(step.cost.class) {
                    waiting.extend(&step.writes);
                    continue;
                }
                near.classes.insert(step.cost.class);
                let places = weight_places(&step.call.op).iter().filter_map(|i| step.call.tensor(*i));
                near.weight |= places.clone().any(|t| t.storage == v);
            }
        }
        near
    }
}

/// Values that a collective takes.
pub fn taken(step: &Step) -> Vec<usize> {
    step.call.input_tensors().iter().map(|t| t.storage).collect()
}

/// Recovers the roles of all collectives.
pub fn recover(program: &Program) -> Recovered {
    let mut readers: HashMap<usize, Vec<usize>> = HashMap::new();
    for (i, step) in program.steps.iter().enumerate() {
        for v in &step.reads {
            readers.entry(*v).or_default().push(i);
        }
    }
    let around = Around { program, readers };
    let comms: Vec<(usize, &Step, &str)> = program
        .steps
        .iter()
        .enumerate()
        .filter_map(|(i, s)| s.comm.as_ref().map(|c| (i, s, c.kind.as_str())))
        .collect();
    let kind_of = |part: &'static str| comms.iter().filter(move |(_, _, kind)| kind.contains(part));
    // Behind the backward pass nothing marks a call as one of gradients but what made them.
    let of_gradients = |step: &Step| {
        let late = |v: &usize| match program.values.get(*v).map(|x| x.origin) {
            Some(Origin::Made(p)) => {
                program.steps.get(p).is_some_and(|s| matches!(s.part, Part::Backward | Part::Gradients))
            }
            _ => false,
        };
        let inputs = taken(step);
        !inputs.is_empty() && inputs.iter().all(late)
    };
    let forward = |step: &Step| step.part == Part::Forward && !of_gradients(step);
    let sums_forward = kind_of("allreduce").any(|(_, s, _)| forward(s));
    let mut roles: HashMap<usize, Role> = HashMap::new();
    // Told by what is around the others of their group.
    let mut open: Vec<usize> = Vec::new();
    for &(i, step, kind) in &comms {
        let inputs = taken(step);
        let role = if kind.contains("broadcast") {
            Some(Role::Copies)
        } else if kind.contains("allreduce") {
            let read = || {
                program.steps.iter().any(|s| {
                    s.comm.is_none()
                        && matches!(s.part, Part::Forward | Part::Backward)
                        && s.reads.iter().any(|r| step.writes.contains(r))
                })
            };
            let behind = matches!(step.part, Part::Forward | Part::Backward);
            let activations = forward(step) || (sums_forward && behind && read());
            Some(if activations { Role::Tensor } else { Role::Data })
        } else if kind.contains("allgather") {
            let (before, after) = (around.before(&inputs), around.after(&step.writes));
            Some(match () {
                () if matches!(step.part, Part::Optimiser | Part::Gradients) => Role::Data,
                () if after.weight || (before.given && before.classes.is_empty()) => Role::ShardedParameters,
                () if after.classes.contains(&Class::Attention) => Role::Context,
                () => Role::Sequence,
            })
        } else if kind.contains("reducescatter") {
            let gradients = step.part == Part::Gradients
                || inputs.iter().all(|v| gradient_only(&around, *v)) && around.after(&step.writes).classes.is_empty();
            Some(match () {
                // Gradients of keys and values that were gathered.
                () if around.before(&inputs).classes.contains(&Class::Attention) => Role::Context,
                () if gradients => Role::ShardedParameters,
                () => Role::Sequence,
            })
        } else if kind.contains("alltoall") {
            let (before, after) = (around.before(&inputs), around.after(&step.writes));
            let near = |class| before.classes.contains(&class) || after.classes.contains(&class);
            let integers = step.call.input_tensors().iter().all(|t| t.element != Element::Float);
            match () {
                () if before.tables || after.tables => Some(Role::Tables),
                () if integers => None,
                () if near(Class::Attention) => Some(Role::Context),
                () if near(Class::Product) => Some(Role::Expert),
                () => None,
            }
        } else if kind.contains("send") || kind.contains("recv") {
            let near = if kind.contains("recv") { around.after(&step.writes) } else { Near::default() };
            near.classes.contains(&Class::Attention).then_some(Role::Context)
        } else {
            None
        };
        match role {
            Some(role) => drop(roles.insert(i, role)),
            None => open.push(i),
        }
    }
    let group = |i: usize| program.steps.get(i).and_then(|s| s.comm.as_ref()).map(|c| (c.group.clone(), c.ranks));
    for i in open {
        let Some(kind) = program.steps.get(i).and_then(|s| s.comm.as_ref()).map(|c| c.kind.as_str()) else { continue };
        let message = kind.contains("send") || kind.contains("recv");
        let alike = |role: &Role| {
            let of = if message { [Role::Context, Role::Pipeline] } else { [Role::Tables, Role::Expert] };
            of.contains(role) || (!message && *role == Role::Context)
        };
        let mut votes: BTreeMap<Role, u64> = BTreeMap::new();
        for (other, role) in roles.iter().filter(|(other, role)| alike(role) && group(**other) == group(i)) {
            let _ = other;
            *votes.entry(*role).or_insert(0) += 1;
        }
        let told = votes.into_iter().max_by_key(|(_, n)| *n).map(|(role, _)| role);
        let role = match told {
            Some(role) => role,
            None if message => Role::Pipeline,
            None if kind.contains("alltoall") => Role::Expert,
            None => continue,
        };
        roles.insert(i, role);
    }
    // Tables and experts do not lie in the same group: gradients of tables are far from the tables in a trace.
    let of_tables: HashSet<_> = roles.iter().filter(|(_, r)| **r == Role::Tables).map(|(i, _)| group(*i)).collect();
    for (i, role) in roles.iter_mut().filter(|(_, r)| **r == Role::Expert) {
        if of_tables.contains(&group(*i)) {
            *role = Role::Tables;
        }
    }
    let mut sums: BTreeMap<(Role, String, Option<u64>), (u64, u64)> = BTreeMap::new();
    for (i, role) in &roles {
        let Some((step, comm)) = program.steps.get(*i).and_then(|s| Some((s, s.comm.as_ref()?))) else { continue };
        let bytes = step.call.input_tensors().iter().fold(0u64, |n, t| n.saturating_add(t.bytes()));
        let sum = sums.entry((*role, comm.kind.clone(), comm.ranks)).or_insert((0, 0));
        *sum = (sum.0 + 1, sum.1.saturating_add(bytes));
    }
    let table = sums
        .into_iter()
        .map(|((role, kind, ranks), (calls, bytes))| Found { role, kind, calls, bytes, ranks })
        .collect();
    Recovered { roles, table }
}

/// Whether a value is the gradient of a weight, or made of such: nothing of the forward or backward pass is computed with it.
fn gradient_only(around: &Around<'_>, v: usize) -> bool {
    let read = around.readers.get(&v).into_iter().flatten().filter_map(|i| around.program.steps.get(*i));
    read.filter(|s| s.comm.is_none()).all(|s| passes_through(s.cost.class) || s.part != Part::Forward)
        && around.program.values.get(v).is_some_and(
            |x| matches!(x.origin, Origin::Made(p) if around.program.steps.get(p).is_some_and(|s| s.part != Part::Forward)),
        )
}
