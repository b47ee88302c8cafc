//! Execution traces of PyTorch's observer as a [`Program`].
//!
//! **Which node counts.** A node whose operator is registered ([`is_registered`]) counts as a whole, whatever it calls in turn; composite
//! operators (`aten::linear`, `aten::matmul`) and annotations are passed through; a node nobody knows counts by itself only
//! if nothing below it does. So each kernel is counted once, at the leaf.
//!
//! **Which value.** Storage ids are recycled, so an allocation, or a result in a storage that no argument has, starts
//! a new version; a write in place (`Tensor(a!)` of the schema) starts one too, which keeps the old one where it covers
//! only a part. A storage read before anything wrote it was there before the step.
//!
//! **Nodes without tensors** (Triton kernels of old schemas) write what was allocated beside them and nobody wrote yet. They read
//! what the nearest caller with tensors was given; failing that, the made values of that size which nobody read so far, and
//! those that the views just before looked at. Such steps are marked as inferred.

mod steps;
mod unnamed;
mod values;

pub use steps::{Steps, steps};

use super::measured::Measured;
use super::program::{Comm, Origin, Part, Program, Step, Value};
use super::{callers, given};
use crate::trace::collective::host_collective;
use crate::trace::host::{Arg as HostArg, HostNode, HostTrace, Tensor};
use crate::trace::ops::call::mutated_arguments;
use crate::trace::ops::names::{guessed, is_collective};
use crate::trace::ops::{Arg, Call, Class, Element, Options, TensorArg, class_of, cost, is_registered, plain_name};
use std::collections::{HashMap, HashSet};
pub(super) use steps::part_of;
pub(super) use values::tensor_arg;

/// Turns a host trace into a program. `seconds` tells the measured time of a node, where there is one.
pub fn program(
    trace: &HostTrace,
    name: &str,
    wanted: Steps,
    options: &Options,
    seconds: &dyn Fn(&HostNode) -> Option<f64>,
) -> Result<Program, String> {
    program_with(trace, name, wanted, options, seconds, None)
}

/// The same with the times of a linked trace, where there is one: they replace those of `seconds`.
///
/// # Errors
/// A step that is not there.
pub fn program_with(
    trace: &HostTrace,
    name: &str,
    wanted: Steps,
    options: &Options,
    seconds: &dyn Fn(&HostNode) -> Option<f64>,
    measured: Option<&Measured>,
) -> Result<Program, String> {
    let mut notes = Vec::new();
    let all = steps(trace);
    let range = match wanted {
        Steps::All => 0..u64::MAX,
        Steps::Number(n) => match all.iter().find(|(number, _)| *number == n) {
            Some((_, range)) => range.clone(),
            None => {
                let there: Vec<String> = all.iter().map(|(n, _)| n.to_string()).collect();
                let list = if there.is_empty() { "none is marked".into() } else { there.join(", ") };
                let how = if there.is_empty() {
                    ": leave `step` out".into()
                } else {
                    format!("; one of them: {}", given("step"))
                };
                return Err(format!("there is no step {n}; steps of this trace: {list}{how}"));
            }
        },
        Steps::Steady => match steps::busiest(trace, &all).and_then(|at| all.get(at)) {
            Some((number, range)) => {
                if all.len() > 1 {
                    let there: Vec<String> = all.iter().map(|(n, _)| n.to_string()).collect();
                    notes.push(format!(
                        "step {number} is taken, which has most work; steps of the trace: {} (another one: {})",
                        there.join(", "),
                        given("step")
                    ));
                }
                range.clone()
            }
            None => 0..u64::MAX,
        },
    };
    let backend = of_backend(trace);
    let order: Vec<&HostNode> = callers::order(trace)
        .into_iter()
        .filter_map(|i| trace.nodes.get(i))
        .filter(|n| (range.contains(&n.id) && !backend.contains(&n.tid)) || n.is_root())
        .collect();
    let mut walk = Walk::new(&order, options, seconds);
    // With one process group there is no doubt whose a collective is.
    let groups: HashMap<String, u64> =
        trace.process_groups().into_iter().filter_map(|g| Some((g.name, g.size?))).collect();
    walk.only_group = match groups.values().copied().collect::<HashSet<u64>>().into_iter().collect::<Vec<_>>()[..] {
        [size] => Some(size),
        _ => None,
    };
    walk.groups = groups;
    for node in &order {
        walk.visit(node);
    }
    let places = walk.places;
    let mut program = walk.program;
    // Of one group some calls tell its size, others do not.
    let sizes: HashMap<String, u64> = (program.steps.iter())
        .filter_map(|s| s.comm.as_ref().and_then(|c| Some((c.group.clone()?, c.ranks?))))
        .collect();
    for comm in program.steps.iter_mut().filter_map(|s| s.comm.as_mut()) {
        comm.ranks = comm.ranks.or_else(|| comm.group.as_ref().and_then(|g| sizes.get(g).copied()));
    }
    if let Some(measured) = measured {
        let inside = |id: u64| places.contains_key(&id);
        let part = |id: u64| places.get(&id).map_or(Part::Forward, |p| p.part);
        measured.attach(&mut program, trace, &inside, &part);
    }
    program.name = name.into();
    notes.append(&mut program.notes);
    program.notes = notes;
    program.link();
    program.find_parameters();
    Ok(program)
}

/// A trace asks them millions of times: the standard library's hash takes a good part of that.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
type Set<K> = HashSet<K, foldhash::fast::RandomState>;

/// What has become of a node.
#[derive(Clone, Copy)]
struct Place {
    part: Part,
    /// An ancestor was counted, or it was itself.
    covered: bool,
}

/// What the name of an operator tells.
#[derive(Clone, Copy)]
struct Named {
    class: Class,
    registered: bool,
    collective: bool,
}

impl Named {
    fn of(op: &str) -> Self {
        Self { class: class_of(op), registered: is_registered(op), collective: is_collective(op) }
    }
}

struct Walk<'t> {
    options: &'t Options,
    seconds: &'t dyn Fn(&HostNode) -> Option<f64>,
    program: Program,
    nodes: Map<u64, &'t HostNode>,
    children: Map<u64, Vec<&'t HostNode>>,
    /// By name: there are few, and each tells by being compared with hundreds.
    named: Map<&'t str, Named>,
    /// Whether something below a node counts.
    counts_below: Set<u64>,
    /// The same without copies and fills, which a product may make of its operands.
    works_below: Set<u64>,
    places: Map<u64, Place>,
    /// Version of each storage.
    current: Map<u64, usize>,
    /// Storages allocated and not yet written, with the tensor and the caller of the allocation.
    fresh: Map<u64, (&'t Tensor, u64)>,
    read: Set<usize>,
    /// Tensors that free calls looked at since the last call that counts.
    looked_at: Vec<&'t Tensor>,
    has_calls_of_collectives: bool,
    /// Ranks of the process groups by name.
    groups: HashMap<String, u64>,
    /// Ranks of every group, if all have as many.
    only_group: Option<u64>,
}

impl<'t> Walk<'t> {
    fn new(order: &[&'t HostNode], options: &'t Options, seconds: &'t dyn Fn(&HostNode) -> Option<f64>) -> Self {
        let mut children: Map<u64, Vec<&HostNode>> = Map::default();
        for node in order {
            children.entry(node.parent).or_default().push(node);
        }
        let (mut counts_below, mut works_below) = (Set::default(), Set::default());
        let mut named: Map<&str, Named> = Map::default();
        for node in order.iter().rev() {
            let op = plain_name(&node.name);
            let Named { class, registered, collective } = *named.entry(op).or_insert_with(|| Named::of(op));
            let free = matches!(class, Class::View | Class::Allocation | Class::Host);
            let itself = (registered && !free) || class == Class::Generated || collective;
            if itself || counts_below.contains(&node.id) {
                counts_below.insert(node.parent);
            }
            if (itself && !matches!(class, Class::Copy | Class::Fill)) || works_below.contains(&node.id) {
                works_below.insert(node.parent);
            }
        }
        let has_calls_of_collectives = order.iter().any(|n| n.name.starts_with("c10d::") || n.collective.is_some());
        Self {
            options,
            seconds,
            program: Program::default(),
            nodes: order.iter().map(|n| (n.id, *n)).collect(),
            children,
            named,
            counts_below,
            works_below,
            places: Map::default(),
            current: Map::default(),
            fresh: Map::default(),
            read: Set::default(),
            looked_at: Vec::new(),
            has_calls_of_collectives,
            groups: HashMap::new(),
            only_group: None,
        }
    }

    fn visit(&mut self, node: &'t HostNode) {
        let above = self.places.get(&node.parent).copied().unwrap_or(Place { part: Part::Forward, covered: false });
        let part = part_of(node).unwrap_or(above.part);
        let mut covered = above.covered;
        if !covered && !node.is_root() {
            covered = self.count(node, part);
        }
        self.places.insert(node.id, Place { part, covered });
    }

    /// Counts a node if it is to be counted; whether it and everything below it is done with.
    fn count(&mut self, node: &'t HostNode, part: Part) -> bool {
        let op = plain_name(&node.name);
        let Named { class, registered, .. } = self.named.get(op).copied().unwrap_or_else(|| Named::of(op));
        match class {
            Class::Allocation => {
                for t in node.output_tensors().filter(|t| t.is_defined()) {
                    // `resize_` of a tensor with content keeps it.
                    if !(op.starts_with("resize") && self.current.contains_key(&t.storage_id)) {
                        self.current.remove(&t.storage_id);
                        self.fresh.insert(t.storage_id, (t, node.parent));
                    }
                }
                true
            }
            Class::View | Class::Host => {
                self.looked_at.extend(node.input_tensors().chain(node.output_tensors()).filter(|t| t.is_defined()));
                // A view with something to do below it (aten::reshape that copies) is passed through.
                !self.counts_below.contains(&node.id)
            }
            Class::Collective => {
                let inner = op.starts_with("nccl:") || host_collective(op).is_some();
                if !(inner && self.has_calls_of_collectives) {
                    self.collective(node, part);
                }
                true
            }
            _ if registered => {
                self.call(node, op, part, None);
                true
            }
            // A composite with nothing below it but copies of its operands: fused by a backend, and known by its own shapes.
            Class::Composite
                if matches!(op, "linear" | "matmul")
                    && node.output_tensors().next().is_some()
                    && !self.works_below.contains(&node.id) =>
            {
                self.call(node, op, part, None);
                true
            }
            _ if self.counts_below.contains(&node.id) => false,
            Class::Composite => false,
            _ => self.unregistered(node, op, part),
        }
    }

    /// Adds a call. `made` are results that the node itself does not name.
    fn call(&mut self, node: &'t HostNode, op: &str, part: Part, made: Option<Vec<&'t Tensor>>) {
        let mut inputs: Vec<&HostArg> = node.inputs.iter().collect();
        let mut inferred = false;
        let mut guessed_inputs: Vec<HostArg> = Vec::new();
        if made.is_some() && !node.input_tensors().any(Tensor::is_defined) {
            inferred = true;
            guessed_inputs = self.inferred_inputs(node, made.as_deref().unwrap_or_default());
            inputs = guessed_inputs.iter().collect();
        }
        let mutated = mutated_arguments(&node.op_schema);
        let call_inputs: Vec<Arg> = inputs.iter().map(|a| self.read_arg(a)).collect();
        drop(inputs);
        drop(guessed_inputs);
        let mut read_storages: Vec<u64> = node.input_tensors().map(|t| t.storage_id).collect();
        read_storages.sort_unstable();
        let mut writes = Vec::new();
        let mut outputs = Vec::new();
        match made {
            Some(made) => {
                for t in made {
                    let value = self.new_version(t, op, node.id, false);
                    writes.push(value);
                    outputs.push(tensor_arg(t, value));
                }
            }
            None => {
                let by_name_in_place = op.ends_with('_') && !op.ends_with("__");
                let mut changed: Map<u64, usize> = Map::default();
                let list: &[usize] = if mutated.is_empty() && by_name_in_place { &[0] } else { &mutated };
                for i in list {
                    let tensors: Vec<&Tensor> = node.inputs.get(*i).map(|a| a.tensors().collect()).unwrap_or_default();
                    for t in tensors.into_iter().filter(|t| t.is_defined()) {
                        let value = self.new_version(t, op, node.id, true);
                        changed.insert(t.storage_id, value);
                        writes.push(value);
                    }
                }
                for arg in &node.outputs {
                    outputs.push(self.write_arg(arg, op, node.id, &mut changed, &read_storages, &mut writes));
                }
            }
        }
        let returned = mutated.iter().copied().filter(|i| is_returned(node, *i)).collect();
        let call = Call { op: op.into(), inputs: call_inputs, outputs, mutated, returned };
        self.push(node, call, part, writes, None, inferred);
    }

    fn push(
        &mut self,
        node: &HostNode,
        call: Call,
        part: Part,
        writes: Vec<usize>,
        comm: Option<Comm>,
        inferred: bool,
    ) {
        let cost = cost(&call, self.options);
        let mut reads: Vec<usize> = crate::trace::ops::reads(&call).iter().map(|t| t.storage).collect();
        reads.dedup();
        self.read.extend(&reads);
        self.looked_at.clear();
        self.program.steps.push(Step {
            node: node.id,
            call,
            cost,
            part,
            sequence: self.sequence(node),
            seconds: (self.seconds)(node),
            reads,
            writes,
            comm,
            inferred,
        });
    }

    /// The sequence number of the node or of the nearest caller that has one.
    fn sequence(&self, node: &HostNode) -> Option<i64> {
        let mut at = Some(node);
        for _ in 0..64 {
            let here = at?;
            if here.seq_id >= 0 {
                return Some(here.seq_id);
            }
            at = self.nodes.get(&here.parent).copied().filter(|n| !n.is_root());
        }
        None
    }

    fn collective(&mut self, node: &'t HostNode, part: Part) {
        let mut described = node.collective.as_deref();
        let mut waiting: Vec<u64> = vec![node.id];
        let mut steps = 0;
        while let (None, Some(id)) = (described, waiting.pop()) {
            for child in self.children.get(&id).into_iter().flatten() {
                described = described.or(child.collective.as_deref());
                waiting.push(child.id);
            }
            steps += 1;
            if steps > 1000 {
                break;
            }
        }
        let recorded = described.and_then(|c| c.name.as_deref()).unwrap_or("");
        let kind: String =
            if recorded.is_empty() { node.name.rsplit([':', '.']).next().unwrap_or("") } else { recorded }
                .chars()
                .filter(char::is_ascii_alphabetic)
                .collect::<String>()
                .to_ascii_lowercase();
        let tensors: Vec<&Tensor> = node.input_tensors().filter(|t| t.is_defined() && t.num_elem > 0).collect();
        if kind.starts_with("wait") || kind.starts_with("barrier") || tensors.is_empty() {
            return;
        }
        // Operators of c10d that hand nothing back have what they write as their first argument, what they read as their second.
        let into = ["allgather", "reducescatter", "alltoall"].iter().any(|k| kind.contains(k))
            && node.name.starts_with("c10d::")
            && node.inputs.iter().take(2).filter(|a| a.tensors().any(Tensor::is_defined)).count() == 2;
        let of = |arg: &'t HostArg| arg.tensors().filter(|t| t.is_defined() && t.num_elem > 0).collect::<Vec<_>>();
        let read: &[HostArg] = if into { node.inputs.get(1..2).unwrap_or_default() } else { &node.inputs };
        let inputs: Vec<Arg> = read.iter().map(|a| self.read_arg(a)).collect();
        let outs: Vec<&Tensor> = match node.inputs.first().filter(|_| into) {
            Some(first) => of(first),
            None => node.output_tensors().filter(|t| t.is_defined() && t.num_elem > 0).collect(),
        };
        let sends = kind.starts_with("send") || kind.starts_with("isend");
        let written = match () {
            () if sends => Vec::new(),
            () if outs.is_empty() => tensors,
            () => outs,
        };
        let apart = by_sizes(&kind, &inputs, &written);
        let mut writes = Vec::new();
        let mut outputs = Vec::new();
        let mut seen = HashSet::new();
        for t in written {
            if seen.insert(t.storage_id) {
                let value = self.new_version(t, &kind, node.id, true);
                writes.push(value);
                outputs.push(tensor_arg(t, value));
            }
        }
        let group = described.and_then(|c| c.group.as_ref()).map(|g| g.to_string());
        let ranks = described
            .and_then(|c| c.group_size)
            .or_else(|| group.as_ref().and_then(|g| self.groups.get(g).copied()))
            .or(apart)
            .or(self.only_group)
            .or_else(|| described.map(|c| c.in_split.len().max(c.out_split.len()) as u64).filter(|n| *n > 0));
        let comm = Comm { kind, ranks, group };
        let call =
            Call { op: plain_name(&node.name).into(), inputs, outputs, mutated: Vec::new(), returned: Vec::new() };
        self.push(node, call, part, writes, Some(comm), false);
    }
}

/// Threads on which gloo carries out collectives: where it runs, those that copy and look at tensors and do nothing else. What they do is the
/// collective's own work, which its call stands for.
fn of_backend(trace: &HostTrace) -> Set<u64> {
    if !trace.nodes.iter().any(|n| host_collective(&n.name).is_some()) {
        return Set::default();
    }
    let mut only: Map<u64, bool> = Map::default();
    let mut known: Map<&str, bool> = Map::default();
    for node in trace.nodes.iter().filter(|n| !n.is_root() && !n.name.starts_with("[pytorch|")) {
        let moves = *known.entry(&node.name).or_insert_with_key(|name| {
            let op = plain_name(name);
            let class = class_of(op);
            matches!(class, Class::View | Class::Allocation) || (class == Class::Copy && is_registered(op))
        });
        *only.entry(node.tid).or_insert(true) &= moves;
    }
    only.into_iter().filter(|(_, moves)| *moves).map(|(tid, _)| tid).collect()
}

/// Ranks of a gathering or scattering by what goes in and what comes out: backends such as gloo do not say in which group they are called.
fn by_sizes(kind: &str, read: &[Arg], written: &[&Tensor]) -> Option<u64> {
    let mut tensors = Vec::new();
    read.iter().for_each(|a| a.tensors(&mut tensors));
    let taken: u64 = tensors.iter().map(|t| t.elements()).fold(0, u64::saturating_add);
    let given: u64 = written.iter().map(|t| t.num_elem).fold(0, u64::saturating_add);
    let (more, less) = match () {
        () if kind.contains("allgather") => (given, taken),
        () if kind.contains("reducescatter") => (taken, given),
        () => return None,
    };
    (less > 0 && more.is_multiple_of(less)).then(|| more / less).filter(|n| *n > 1)
}

/// Whether an input is also a result: the same window into the same storage, for every tensor of it.
fn is_returned(node: &HostNode, input: usize) -> bool {
    let same = |a: &Tensor, b: &Tensor| {
        (a.storage_id, a.offset, a.elem_bytes) == (b.storage_id, b.offset, b.elem_bytes) && a.shape == b.shape
    };
    let mut tensors =
        node.inputs.get(input).into_iter().flat_map(HostArg::tensors).filter(|t| t.is_defined()).peekable();
    tensors.peek().is_some() && tensors.all(|t| node.output_tensors().any(|o| o.is_defined() && same(o, t)))
}
