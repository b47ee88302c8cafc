//! From a [`Program`] to an unfolded [`Workload`]: every kernel of the forward and backward pass, sizes of one sample.
//!
//! A value of PyTorch sizes `[..., c, r]` is a tensor of `r` rows and `c` columns: rows are features, columns the streamed
//! dimension (tokens, pixels). So `mm(x [T, K], w [K, N])` is a kernel of `m = N` rows, `k = K` and `n = T` columns, and
//! `bmm(a [B, P, K], b [B, K, N])` has `outer = B` problems of `m = N`, `n = P`, the streamed operand `a` and the stationary `b`. With
//! heads among the rows, reordering heads and tokens changes no size: rows are `heads x size`, columns tokens, before
//! and after.
//!
//! A view that changes more than that, or reads a part, cannot be told from sizes alone: the operand is then read
//! [`Slot::View`], or [`Slot::Aligned`] where one of its sizes is the kernel's. A value whose readers all take parts of equal size
//! (queries, keys and values of one product) becomes one tensor a part.

mod batch;
mod fused;
mod products;
mod tensors;
mod vector;

pub use batch::{batch, may_be_batch};

use super::measured;
use super::parallel::Parallel;
use super::program::{Origin, Part, Program, Step};
use super::recover::Role;
use crate::graph::{Axis, Collective, CollectiveKind, Kernel, Op, Phase, Scope, Shape, Slot, Tensor, Use, Workload};
use crate::graph::{Divided, WeightOf, operand_size};
use crate::trace::ops::Class;
use crate::trace::ops::call::{Arg, TensorArg, product};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the graph leaves out, and how large it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LeftOut {
    /// Reason and, for each, calls and FLOP of the whole step.
    pub steps: BTreeMap<&'static str, (u64, u64)>,
    /// Elements of parameters that are no weight of a product.
    pub vector_parameters: u64,
    /// Bytes of these on the recorded rank: they are held, not computed with.
    pub vector_bytes: f64,
    /// Results that no kernel of the graph reads, besides the first of a kernel: bytes.
    pub unread_bytes: u64,
}

/// A graph and what is not in it.
#[derive(Debug, Clone)]
pub struct Built {
    /// The unfolded graph, not yet checked.
    pub workload: Workload,
    /// What is left out.
    pub left_out: LeftOut,
}

#[derive(Debug, Clone, Default)]
struct Placed {
    rows: u64,
    cols: u64,
    /// Index of the tensor, or of one a part.
    tensors: Vec<usize>,
}

struct Builder<'p> {
    program: &'p Program,
    parallel: &'p Parallel,
    batch: u64,
    kernels: Vec<Kernel>,
    tensors: Vec<Tensor>,
    placed: HashMap<usize, Placed>,
    /// Offsets of the equal parts in which a value is read.
    parts: HashMap<usize, Vec<u64>>,
    read_later: HashSet<usize>,
    /// Forward kernel of a weight: of a value, from an element on (many weights may be gathered in one).
    owner: HashMap<(usize, u64), usize>,
    /// Values of which products own parts.
    owned: HashSet<usize>,
    /// Collectives of the recording that the next kernel makes.
    next: Vec<Collective>,
    /// Forward weight products whose gradient has not been met: kernel, streamed value.
    open_gradients: Vec<(usize, usize)>,
    left_out: LeftOut,
    /// Bytes of an element of the graph, and whether tensors and kernels of other types state theirs.
    word: f64,
    types: bool,
    /// Bytes of an element that the step at hand computes with, where these are not the graph's.
    computes_with: Option<f64>,
    names: HashSet<String>,
    /// Bytes a second of the recording, where times were measured.
    bandwidth: Option<f64>,
    /// The last kernel known by its time alone, and the token that it hands to the kernel after it.
    token: Option<(usize, usize)>,
}

/// Why a step is not in the graph, if it is not.
fn excluded(step: &Step, program: &Program) -> Option<&'static str> {
    let float = |v: &usize| program.values.get(*v).is_some_and(|x| x.float);
    match step.part {
        Part::Gradients => return Some("gradient accumulation and buckets"),
        Part::Optimiser => return Some("optimiser"),
        _ => {}
    }
    match step.cost.class {
        Class::Collective => Some("collectives"),
        Class::Fill => Some("fills and random numbers"),
        Class::Unknown if step.call.op.starts_with("Memcpy") || step.call.op.starts_with("Memset") => {
            Some("copies and fills of the host")
        }
        Class::Unknown if step.writes.is_empty() && step.seconds.is_some() => None,
        _ if step.writes.is_empty() => Some("calls without results"),
        _ if !step.writes.iter().any(float) => Some("index and mask arithmetic"),
        _ => None,
    }
}

/// Builds the graph.
/// `types`: tensors and kernels of other types than `word` state theirs.
pub fn build(program: &Program, parallel: &Parallel, batch: u64, (word, types): (f64, bool)) -> Built {
    let mut builder = Builder {
        program,
        parallel,
        batch: batch.max(1),
        kernels: Vec::new(),
        tensors: Vec::new(),
        placed: HashMap::new(),
        parts: HashMap::new(),
        read_later: HashSet::new(),
        owner: HashMap::new(),
        owned: HashSet::new(),
        next: Vec::new(),
        open_gradients: Vec::new(),
        left_out: LeftOut::default(),
        word,
        types,
        computes_with: None,
        names: HashSet::new(),
        bandwidth: measured::bandwidth(program),
        token: None,
    };
    builder.find_parts();
    for (i, step) in program.steps.iter().enumerate() {
        match excluded(step, program) {
            Some(_) if builder.exchange(i, step) => {}
            Some(reason) => {
                let entry = builder.left_out.steps.entry(reason).or_insert((0, 0));
                entry.0 += 1;
                entry.1 = entry.1.saturating_add(step.cost.flop.unwrap_or(0));
            }
            None => builder.step(i, step),
        }
    }
    if let Some(t) = builder.token.and_then(|(_, t)| builder.tensors.get_mut(t)) {
        t.output = true;
    }
    for (i, v) in program.values.iter().enumerate() {
        if v.origin == Origin::Parameter && !builder.owned.contains(&i) && !parallel.alias.contains_key(&i) {
            let left_out = &mut builder.left_out;
            left_out.vector_parameters = left_out.vector_parameters.saturating_add(v.elements);
            left_out.vector_bytes += v.elements as f64 * v.element_bytes as f64;
        }
    }
    let others = builder.experts_elsewhere();
    let workload = Workload {
        name: program.name.clone(),
        kernels: builder.kernels,
        tensors: builder.tensors,
        repeat: 1,
        blocks: Vec::new(),
        word_bytes: word,
        global_batch: batch,
        micro_batch: batch,
        training: program.trains(),
        tokens_per_sample: None,
        held_bytes: builder.left_out.vector_bytes * (parallel.tp * parallel.dp) as f64 + others,
        divided: Divided::Free,
    };
    Built { workload, left_out: builder.left_out }
}

impl Builder<'_> {
    /// An exchange of tokens, look-ups or heads as a collective of the kernel whose result it exchanges, or of the next one: its group is then that of
    /// the degrees chosen, not the recorded one.
    fn exchange(&mut self, index: usize, step: &Step) -> bool {
        let (Some(comm), Some(role)) = (&step.comm, self.parallel.recovered.roles.get(&index)) else { return false };
        let scope = match role {
            Role::Tables => Scope::All,
            Role::Expert | Role::Context => Scope::Data,
            _ => return false,
        };
        let kind = match () {
            () if comm.kind.contains("alltoall") => CollectiveKind::AllToAll,
            () if comm.kind.contains("allgather") => CollectiveKind::AllGather,
            () if comm.kind.contains("send") => CollectiveKind::PointToPoint,
            () => return false,
        };
        let taken = step.call.input_tensors();
        let bytes = taken.iter().fold(0u64, |n, t| n.saturating_add(t.bytes())) as f64;
        let bytes = bytes * self.step_shards(step) as f64 / self.batch as f64;
        let made = taken.first().and_then(|t| self.placed.get(&self.parallel.root(t.storage)));
        let producer = made.and_then(|p| self.tensors.get(*p.tensors.first()?)?.producer);
        let phase = Self::phase(step);
        let own = Collective { kind, bytes, scope, times: 1 };
        match producer.and_then(|k| self.kernels.get_mut(k)).filter(|k| k.phase == phase) {
            Some(kernel) => kernel.collectives.push(own),
            None => self.next.push(own),
        }
        true
    }

    /// Bytes of the experts that lie on other ranks of the recording: the graph has the work of all samples' experts, but the weights of one rank's.
    fn experts_elsewhere(&self) -> f64 {
        let floats = |s: &Step| s.call.input_tensors().iter().all(|t| t.element == crate::trace::ops::Element::Float);
        let exchanges =
            self.parallel.recovered.steps(&[Role::Expert]).into_iter().filter_map(|i| self.program.steps.get(i));
        // To the experts and back, in turn.
        let there = exchanges.filter(|s| s.part == Part::Forward && floats(s)).step_by(2);
        let mut waiting: Vec<usize> = there.flat_map(|s| s.writes.iter().copied()).collect();
        let mut seen: HashSet<usize> = HashSet::new();
        let mut kernels: HashSet<usize> = HashSet::new();
        let mut readers: HashMap<usize, Vec<&Step>> = HashMap::new();
        for step in self.program.steps.iter().filter(|s| s.part == Part::Forward && s.comm.is_none()) {
            step.reads.iter().for_each(|v| readers.entry(*v).or_default().push(step));
        }
        while let Some(v) = waiting.pop() {
            if !seen.insert(v) {
                continue;
            }
            for step in readers.get(&v).into_iter().flatten() {
                waiting.extend(&step.writes);
                let weights = step.call.input_tensors();
                kernels
                    .extend(weights.iter().filter_map(|t| self.owner.get(&(self.parallel.root(t.storage), t.offset))));
            }
        }
        let held = kernels.iter().filter_map(|k| self.kernels.get(*k));
        let bytes: f64 = held.map(|k| k.weight_elements() * k.word_or(self.word)).sum();
        bytes * (self.parallel.ep.max(1) - 1) as f64
    }

    /// Values of which every reader takes one of several equal, separate parts.
    fn find_parts(&mut self) {
        let mut windows: HashMap<usize, HashSet<(u64, u64)>> = HashMap::new();
        for step in self.program.steps.iter().filter(|s| excluded(s, self.program).is_none()) {
            for t in crate::trace::ops::reads(&step.call) {
                let root = self.parallel.root(t.storage);
                windows.entry(root).or_default().insert((t.offset, t.distinct()));
                self.read_later.insert(root);
            }
            self.read_later.extend(step.reads.iter().map(|v| self.parallel.root(*v)));
        }
        for (value, seen) in windows {
            let Some(v) = self.program.values.get(value) else { continue };
            let Some(&(_, size)) = seen.iter().next() else { continue };
            let equal = seen.iter().all(|(_, s)| *s == size);
            if equal
                && size > 0
                && size < v.elements
                && v.elements.is_multiple_of(size)
                && seen.len() as u64 <= v.elements / size
            {
                let mut offsets: Vec<u64> = seen.iter().map(|(o, _)| *o).collect();
                offsets.sort_unstable();
                offsets.dedup();
                self.parts.insert(value, offsets);
            }
        }
    }

    fn is_parameter(&self, v: usize) -> bool {
        self.program.values.get(v).is_some_and(|x| x.origin == Origin::Parameter)
    }

    fn shards(&self, v: usize) -> u64 {
        if self.parallel.sharded.contains(&self.parallel.root(v)) { self.parallel.tp } else { 1 }
    }

    /// Elements of one sample, unsharded: the batch divides those that have it.
    fn per_sample(&self, v: usize) -> u64 {
        let elements = self.program.values.get(v).map_or(0, |x| x.elements).saturating_mul(self.shards(v));
        if elements.is_multiple_of(self.batch) { elements / self.batch } else { elements }.max(1)
    }

    /// Whether a call works on shards: its stated FLOP are then one rank's.
    fn step_shards(&self, step: &Step) -> u64 {
        let touched = step.writes.iter().chain(step.reads.iter()).any(|v| self.shards(*v) > 1);
        if touched { self.parallel.tp } else { 1 }
    }

    fn step(&mut self, index: usize, step: &Step) {
        let results = step.call.output_tensors().into_iter().filter(|t| t.element == crate::trace::ops::Element::Float);
        let widest = results.map(|t| t.element_bytes).max().max(crate::trace::ops::work::float_bytes(&step.call));
        self.computes_with = widest.and_then(|width| self.own_word(width));
        let first = self.kernels.len();
        match step.cost.class {
            Class::Product if self.product(index, step) => {}
            Class::Convolution if self.convolution(step) => {}
            Class::Attention if self.attention(step) => {}
            _ if step.writes.is_empty() => self.opaque(step),
            _ => self.vector(step),
        }
        if let Some(k) = self.kernels.get_mut(first) {
            k.collectives.append(&mut self.next);
        }
        let extra = measured::extra_bytes(step, self.bandwidth) * self.step_shards(step) as f64 / self.batch as f64;
        let opaque = step.writes.is_empty();
        let made = if opaque { self.token.map(|(kernel, _)| kernel) } else { Some(first) };
        if let Some(k) = made.and_then(|k| self.kernels.get_mut(k)).filter(|_| extra > 0.0) {
            k.extra_dram_bytes += extra;
        }
        if !opaque
            && self.kernels.len() > first
            && let Some((_, tensor)) = self.token.take()
        {
            self.use_tensor(first, tensor, &[]);
        }
    }

    /// A kernel of which only time and bytes are known. No tensor ties it to others; so that it keeps its place in the order, it hands
    /// one element to the kernel after it. Several in a row are one.
    fn opaque(&mut self, step: &Step) {
        let bytes = step.cost.bytes() as f64 / self.batch as f64;
        let phase = Self::phase(step);
        let last = self.token.filter(|(k, _)| self.kernels.get(*k).is_some_and(|k| k.phase == phase));
        let id = match last {
            Some((kernel, _)) => kernel,
            None => {
                let shape = Shape { outer: 1, m: 1, k: 1, n: 1 };
                let id = self.kernel(self.name(step, ""), Op::Opaque, phase, shape, 1, Some(0.0));
                if let Some((_, before)) = self.token {
                    self.use_tensor(id, before, &[]);
                }
                let name = self.unused_name(format!("after_{}", step.node));
                self.token = Some((id, self.tensors.len()));
                self.tensors.push(Tensor::new(name, 1, 1, Some(id)));
                id
            }
        };
        if let Some(k) = self.kernels.get_mut(id) {
            k.extra_dram_bytes += bytes;
        }
    }

    fn phase(step: &Step) -> Phase {
        if step.part == Part::Forward { Phase::Forward } else { Phase::BackwardInput }
    }

    fn name(&self, step: &Step, suffix: &str) -> String {
        let plain = step.call.op.rsplit([':', '.']).next().unwrap_or("op").trim_matches('_');
        format!("{plain}_{}{suffix}", step.node)
    }
}
