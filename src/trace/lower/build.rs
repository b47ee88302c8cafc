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

use super::measured;
use super::parallel::Parallel;
use super::program::{Origin, Part, Program, Step};
use crate::trace::ops::Class;
use crate::trace::ops::call::{Arg, TensorArg, product};
use crate::workload::graph::{WeightOf, operand_size};
use crate::workload::{Axis, Kernel, Op, Phase, Shape, Slot, Tensor, Use, Workload};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the graph leaves out, and how large it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LeftOut {
    /// Reason and, for each, calls and FLOP of the whole step.
    pub steps: BTreeMap<&'static str, (u64, u64)>,
    /// Elements of parameters that are no weight of a product.
    pub vector_parameters: u64,
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
    /// Bytes of the tensors as recorded, and as the graph has them (one word for all).
    pub bytes: (f64, f64),
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
    /// Forward kernel of a weight.
    owner: HashMap<usize, usize>,
    /// Forward weight products whose gradient has not been met: kernel, streamed value.
    open_gradients: Vec<(usize, usize)>,
    left_out: LeftOut,
    actual_bytes: f64,
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

/// The samples of a step: what the file says, else the leading size of an input that every product of the forward pass can be
/// divided by. One if there is none.
pub fn batch(program: &Program) -> u64 {
    let mut candidates: Vec<u64> = program.batch.into_iter().collect();
    let mut inputs: Vec<(bool, usize, u64)> = Vec::new();
    for (i, v) in program.values.iter().enumerate() {
        let made_up =
            matches!(v.origin, Origin::Made(s) if program.steps.get(s).is_some_and(|s| s.cost.class == Class::Fill));
        if (v.origin == Origin::Input || made_up) && v.shape.len() > usize::from(v.float) {
            inputs.push((v.float, i, v.shape.first().copied().unwrap_or(1)));
        }
    }
    inputs.sort_unstable();
    candidates.extend(inputs.iter().map(|(_, _, size)| *size));
    candidates.into_iter().filter(|b| *b > 1).find(|b| divides(program, *b)).unwrap_or(1)
}

/// Whether the step can hold so many samples: no product of its forward pass speaks against it.
pub fn may_be_batch(program: &Program, batch: u64) -> bool {
    let multiplies = |s: &Step| {
        s.part == Part::Forward && matches!(s.cost.class, Class::Product | Class::Attention | Class::Convolution)
    };
    batch == 1 || !program.steps.iter().any(multiplies) || divides(program, batch)
}

/// Whether every product of the forward pass has a number of columns or problems that `b` divides.
fn divides(program: &Program, b: u64) -> bool {
    let mut products = 0;
    let ok = program.steps.iter().filter(|s| s.part == Part::Forward).all(|s| {
        let leading = match (s.cost.class, s.call.op.as_str()) {
            (Class::Product, "mm" | "_scaled_mm" | "linear" | "bmm") => s.call.tensor(0),
            (Class::Product, "addmm" | "baddbmm") => s.call.tensor(1),
            (Class::Attention | Class::Convolution, _) => s.call.tensor(0),
            _ => return true,
        };
        products += 1;
        leading.is_some_and(|t| {
            let columns =
                if t.shape.len() == 2 { t.shape[0] } else { product(&t.shape[..t.shape.len().saturating_sub(2)]) };
            columns.is_multiple_of(b)
        })
    });
    ok && products > 0
}

/// Builds the graph.
pub fn build(program: &Program, parallel: &Parallel, batch: u64, word: f64) -> Built {
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
        open_gradients: Vec::new(),
        left_out: LeftOut::default(),
        actual_bytes: 0.0,
        names: HashSet::new(),
        bandwidth: measured::bandwidth(program),
        token: None,
    };
    builder.find_parts();
    for (i, step) in program.steps.iter().enumerate() {
        match excluded(step, program) {
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
    builder.left_out.vector_parameters = program
        .values
        .iter()
        .enumerate()
        .filter(|(i, v)| v.origin == Origin::Parameter && !builder.owner.contains_key(i))
        .fold(0u64, |n, (_, v)| n.saturating_add(v.elements));
    let represented = builder.tensors.iter().map(|t| t.rows as f64 * t.cols as f64 * word).sum();
    let workload = Workload {
        name: program.name.clone(),
        kernels: builder.kernels,
        tensors: builder.tensors,
        repeat: 1,
        word_bytes: word,
        global_batch: batch,
        micro_batch: batch,
        training: program.trains(),
        tokens_per_sample: None,
        held_bytes: 0.0,
    };
    Built { workload, left_out: builder.left_out, bytes: (builder.actual_bytes, represented) }
}

impl Builder<'_> {
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
        let first = self.kernels.len();
        match step.cost.class {
            Class::Product if self.product(index, step) => {}
            Class::Convolution if self.convolution(step) => {}
            Class::Attention if self.attention(step) => {}
            _ if step.writes.is_empty() => self.opaque(step),
            _ => self.vector(step),
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
                self.tensors.push(Tensor {
                    name,
                    rows: 1,
                    cols: 1,
                    producer: Some(id),
                    consumers: Vec::new(),
                    output: false,
                    carried_from: None,
                    in_place: false,
                });
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

    /// mm, addmm, linear, bmm, baddbmm.
    fn product(&mut self, index: usize, step: &Step) -> bool {
        let operands: &[usize] = match step.call.op.as_str() {
            "mm" | "_scaled_mm" | "_int_mm" | "bmm" | "linear" | "mkldnn_linear" => &[0, 1],
            "addmm" | "baddbmm" | "_addmm_activation" => &[1, 2],
            _ => return false,
        };
        let (Some(a), Some(b)) = (step.call.tensor(operands[0]).cloned(), step.call.tensor(operands[1]).cloned())
        else {
            return false;
        };
        let Some(out) = step.writes.first().copied() else { return false };
        let (mut outer, mut p, mut k, mut n) = match (a.shape.as_slice(), b.shape.as_slice()) {
            ([o, p, k], [_, _, n]) => (*o, *p, *k, *n),
            ([p, k], [_, n]) if !step.call.op.contains("linear") => (1, *p, *k, *n),
            (x, [n, k]) if step.call.op.contains("linear") => (1, product(x) / (*k).max(1), *k, *n),
            _ => return false,
        };
        let (va, vb) = (self.parallel.root(a.storage), self.parallel.root(b.storage));
        let (wa, wb) = (self.is_parameter(va), self.is_parameter(vb));
        let batched = a.shape.len() == 3 && b.shape.len() == 3;
        let tp = self.parallel.tp;
        let phase = Self::phase(step);
        let name = self.name(step, "");
        let extra: Vec<usize> = if operands[0] == 1 {
            crate::trace::ops::reads(&step.call)
                .iter()
                .map(|t| t.storage)
                .filter(|v| *v != a.storage && *v != b.storage && !self.is_parameter(*v))
                .collect()
        } else {
            Vec::new()
        };
        if batched {
            outer = outer.saturating_mul(self.shards(va).max(self.shards(vb)));
            if outer.is_multiple_of(self.batch) {
                outer /= self.batch;
            }
            // The product may as well be written transposed (q^T dS is dK^T): the way that streams what lies along the columns.
            let (size_a, size_b) = (self.size_of(&a), self.size_of(&b));
            let fit = |(rows, cols): (u64, u64), k: u64, n: u64| {
                if (rows, cols) == (outer * k, n) { 0 } else { 1 + u8::from((cols, rows) != (k, outer * n)) }
            };
            let swapped = fit(size_b, k, n) < fit(size_a, k, p);
            let (m, cols, stream, still) = if swapped { (p, n, &b, &a) } else { (n, p, &a, &b) };
            let id = self.kernel(name, Op::Gemm, phase, Shape { outer, m, k, n: cols }, 1, None);
            self.read(id, stream, &[Slot::Rhs, Slot::RhsT]);
            self.read(id, still, &[Slot::Lhs, Slot::LhsT]);
            extra.iter().for_each(|v| self.read_value(id, *v));
            self.write(id, out, (outer * m, cols), false);
            return true;
        }
        if wa || wb {
            if self.parallel.row_parallel.contains(&index) {
                k = k.saturating_mul(tp);
            } else if self.shards(out) > 1 {
                if wb { n = n.saturating_mul(tp) } else { p = p.saturating_mul(tp) }
            }
            // The weight's rows are the output's rows. `mm(w, x)` has them in front.
            let (weight, stream, m, cols) = if wb { (vb, &a, n, p) } else { (va, &b, p, n) };
            let cols = if cols.is_multiple_of(self.batch) { cols / self.batch } else { cols };
            let id = self.kernel(name, Op::GemmWeight, phase, Shape { outer: 1, m, k, n: cols }, 1, None);
            self.own_weight(id, weight, stream.storage);
            self.read(id, stream, &[Slot::Rhs, Slot::RhsT]);
            extra.iter().for_each(|v| self.read_value(id, *v));
            self.write(id, out, (m, cols), false);
            return true;
        }
        // Two activations: over the tokens it is the gradient of a weight.
        p = p.saturating_mul(self.shards(va));
        n = n.saturating_mul(self.shards(vb));
        let gradient = (phase != Phase::Forward).then(|| self.gradient_of(p, n, va, vb)).flatten();
        if let Some((owner, swapped)) = gradient {
            let k = if k.is_multiple_of(self.batch) { k / self.batch } else { k };
            // Rows are the weight's input features, columns its output features.
            let (m, cols) = if swapped { (p, n) } else { (n, p) };
            let id = self.kernel(name, Op::Gemm, Phase::BackwardWeight, Shape { outer: 1, m, k, n: cols }, 1, None);
            if let Some(kernel) = self.kernels.get_mut(id) {
                kernel.tiled = Axis::K;
                kernel.weight_of = Some(WeightOf { kernel: owner });
            }
            let (stream, still) = if swapped { (&b, &a) } else { (&a, &b) };
            self.read(id, stream, &[Slot::RhsT, Slot::Rhs]);
            self.read(id, still, &[Slot::Lhs, Slot::LhsT]);
            self.write(id, out, (m, cols), true);
            return true;
        }
        let p = if p.is_multiple_of(self.batch) { p / self.batch } else { p };
        let id = self.kernel(name, Op::Gemm, phase, Shape { outer: 1, m: n, k, n: p }, 1, None);
        self.read(id, &a, &[Slot::Rhs, Slot::RhsT]);
        self.read(id, &b, &[Slot::Lhs, Slot::LhsT]);
        extra.iter().for_each(|v| self.read_value(id, *v));
        self.write(id, out, (n, p), false);
        true
    }

    /// Notes whose weight a kernel uses: its own, or that of the forward kernel that has it.
    fn own_weight(&mut self, kernel: usize, weight: usize, stream: usize) {
        let forward = self.kernels.get(kernel).is_some_and(|k| k.phase == Phase::Forward);
        if forward {
            self.owner.entry(weight).or_insert(kernel);
            self.open_gradients.push((kernel, self.parallel.root(stream)));
        } else if let (Some(owner), Some(k)) = (self.owner.get(&weight), self.kernels.get_mut(kernel)) {
            k.weight_of = Some(WeightOf { kernel: *owner });
        }
    }

    /// The forward kernel whose weight's gradient a product of `p` rows and `n` columns (as PyTorch has them) is, and
    /// whether the product is the other way round (input features in front).
    fn gradient_of(&mut self, p: u64, n: u64, a: usize, b: usize) -> Option<(usize, bool)> {
        let at = self.open_gradients.iter().rposition(|(kernel, stream)| {
            let Some(s) = self.kernels.get(*kernel).map(|k| k.shape) else { return false };
            (*stream == b && s.k == n && s.rows() == p) || (*stream == a && s.k == p && s.rows() == n)
        })?;
        let (kernel, stream) = self.open_gradients.remove(at);
        Some((kernel, stream == a && stream != b))
    }

    /// Implicit GEMMs: rows are channels, columns pixels.
    fn convolution(&mut self, step: &Step) -> bool {
        let backward = step.call.op.contains("backward");
        let (x_at, w_at) = if backward { (1, 2) } else { (0, 1) };
        let (Some(x), Some(w)) = (step.call.tensor(x_at).cloned(), step.call.tensor(w_at).cloned()) else {
            return false;
        };
        let (Some(channels), Some(images)) = (x.shape.get(1).copied(), x.shape.first().copied()) else { return false };
        let (Some(w0), Some(w1)) = (w.shape.first().copied(), w.shape.get(1).copied()) else { return false };
        if w1 == 0 || images == 0 || !images.is_multiple_of(self.batch) || !channels.is_multiple_of(w1) {
            return false;
        }
        let Some(one) = crate::trace::ops::product::flop(&step.call, &Default::default()) else { return false };
        let mask = |i: usize| match step.call.inputs.get(10).and_then(Arg::list) {
            Some(m) if backward => m.get(i).and_then(Arg::flag).unwrap_or(true),
            _ => true,
        };
        let products = if backward { u64::from(mask(0)) + u64::from(mask(1)) } else { 1 };
        if products == 0 {
            return false;
        }
        let groups = channels / w1;
        let area = product(&w.shape[2..]).max(1);
        let images = images / self.batch;
        // Positions that meet the filter, from the FLOP: 2 positions x weights.
        let positions = one.flop / products / 2 / w.elements().max(1) / self.batch;
        let out_rows = w0 / groups.max(1);
        let (name, phase) = (self.name(step, ""), Self::phase(step));
        if out_rows == 0 || positions == 0 {
            return false;
        }
        let pixels = |t: &TensorArg| product(t.shape.get(2..).unwrap_or_default()).saturating_mul(images).max(1);
        if !backward {
            let Some(out) = step.writes.first().copied() else { return false };
            self.place_image(x.storage, channels, pixels(&x));
            let shape = Shape { outer: groups, m: out_rows, k: w1 * area, n: positions };
            let id = self.kernel(name, Op::GemmWeight, phase, shape, area, None);
            self.own_weight(id, self.parallel.root(w.storage), x.storage);
            self.read(id, &x, &[Slot::Rhs]);
            let channels_out = groups * out_rows;
            let size = (channels_out, self.per_sample(out) / channels_out.max(1));
            self.write(id, out, size, false);
            return true;
        }
        let Some(grad) = step.call.tensor(0).cloned() else { return false };
        let weight = self.parallel.root(w.storage);
        if mask(0)
            && let Some(dx) = step.call.output(0).map(|t| t.storage)
        {
            let shape = Shape { outer: groups, m: w1, k: out_rows * area, n: positions };
            let id = self.kernel(format!("{name}_input"), Op::GemmWeight, phase, shape, area, None);
            self.own_weight(id, weight, grad.storage);
            self.read(id, &grad, &[Slot::Rhs]);
            self.write(id, dx, (channels, pixels(&x)), false);
        }
        if mask(1)
            && let Some(dw) = step.call.output(1).map(|t| t.storage)
        {
            let shape = Shape { outer: groups, m: w1 * area, k: positions, n: out_rows };
            let id = self.kernel(format!("{name}_weight"), Op::Gemm, Phase::BackwardWeight, shape, 1, None);
            if let Some(k) = self.kernels.get_mut(id) {
                k.tiled = Axis::K;
                k.weight_of = self.owner.get(&weight).map(|o| WeightOf { kernel: *o });
            }
            self.read(id, &grad, &[Slot::RhsT]);
            self.read(id, &x, &[Slot::Lhs]);
            self.write(id, dw, (groups * w1 * area, out_rows), true);
        }
        true
    }

    /// An input image has its channels as rows.
    fn place_image(&mut self, value: usize, rows: u64, cols: u64) {
        let root = self.parallel.root(value);
        if !self.placed.contains_key(&root) {
            self.place(root, rows, cols, None, false);
        }
    }

    /// Fused attention: the heads are problems side by side.
    fn attention(&mut self, step: &Step) -> bool {
        let backward = step.call.op.ends_with("backward");
        let first = usize::from(backward);
        let Some(q) = step.call.tensor(first).cloned() else { return false };
        let tokens_second = !step.call.op.contains("dot_product");
        let [b, x, y, d] = q.shape[..] else { return false };
        let (heads, tokens) = if tokens_second { (y, x) } else { (x, y) };
        if !b.is_multiple_of(self.batch) {
            return false;
        }
        let shards = self.step_shards(step);
        let outer = heads.saturating_mul(b / self.batch).saturating_mul(shards);
        let flop = step.cost.flop.unwrap_or(0) as f64 * shards as f64 / self.batch as f64;
        let phase = Self::phase(step);
        let id =
            self.kernel(self.name(step, ""), Op::Opaque, phase, Shape { outer, m: d, k: 1, n: tokens }, 1, Some(flop));
        for t in crate::trace::ops::reads(&step.call).into_iter().cloned().collect::<Vec<_>>() {
            if self.program.values.get(t.storage).is_some_and(|v| v.float) {
                self.read(id, &t, &[Slot::Data]);
            }
        }
        let mut primary = true;
        for out in step.writes.clone() {
            if !self.program.values.get(out).is_some_and(|v| v.float) || (!primary && !self.read_later.contains(&out)) {
                continue;
            }
            let size = self.per_sample(out);
            let rows = if size.is_multiple_of(outer * d) {
                outer * d
            } else if size.is_multiple_of(outer) && size / outer == tokens {
                outer
            } else {
                1
            };
            self.write(id, out, (rows, size / rows), false);
            primary = false;
        }
        true
    }

    /// Everything that is no product: elementwise, norms, reductions, copies, and what is known by FLOP and bytes only.
    fn vector(&mut self, step: &Step) {
        let floats: Vec<TensorArg> = crate::trace::ops::reads(&step.call)
            .into_iter()
            .filter(|t| {
                t.element == crate::trace::ops::Element::Float && !self.is_parameter(self.parallel.root(t.storage))
            })
            .cloned()
            .collect();
        let Some(out) = step.writes.iter().copied().find(|w| self.program.values.get(*w).is_some_and(|v| v.float))
        else {
            return;
        };
        let main = floats
            .iter()
            .max_by_key(|t| (t.elements(), self.placed.contains_key(&self.parallel.root(t.storage))))
            .cloned();
        let main_size = main.as_ref().map(|t| self.size_of(t));
        let out_elements = self.per_sample(out);
        let class = step.cost.class;
        let inward = matches!(class, Class::Norm | Class::Softmax | Class::Reduction) && main_size.is_some();
        let size = match main_size {
            Some(s) if inward => s,
            Some((rows, cols)) if rows * cols == out_elements => (rows, cols),
            Some((_, cols)) if class == Class::Copy && out_elements.is_multiple_of(cols) => (out_elements / cols, cols),
            Some((rows, _)) if out_elements.is_multiple_of(rows) => (rows, out_elements / rows),
            Some((_, cols)) if out_elements.is_multiple_of(cols) => (out_elements / cols, cols),
            _ => self.by_shape(out),
        };
        let (rows, cols) = size;
        let (op, shape) = match class {
            Class::Norm | Class::Softmax => {
                let along = normalised(step, main.as_ref());
                // Batch norm reduces over pixels and samples, not over the channels: as elementwise work it splits by channels.
                let batch_norm = step.call.op.contains("batch_norm");
                match along {
                    Some(d) if !batch_norm && d > 0 && rows.is_multiple_of(d) => {
                        (Op::Norm, Shape { outer: rows / d, m: d, k: 1, n: cols })
                    }
                    _ => (Op::Elementwise, Shape { outer: 1, m: rows, k: 1, n: cols }),
                }
            }
            Class::Elementwise | Class::Copy | Class::Generated | Class::Reduction | Class::Pool | Class::Composite => {
                (Op::Elementwise, Shape { outer: 1, m: rows, k: 1, n: cols })
            }
            _ => (Op::Opaque, Shape { outer: 1, m: rows, k: 1, n: cols }),
        };
        let flop = step.cost.flop.unwrap_or(0) as f64 * self.step_shards(step) as f64 / self.batch as f64;
        let stated = (op == Op::Opaque || flop != rows as f64 * cols as f64).then_some(flop);
        let id = self.kernel(self.name(step, ""), op, Self::phase(step), shape, 1, stated);
        if class == Class::Lookup
            && let Some(k) = self.kernels.get_mut(id)
        {
            // Rows of a table that is no tensor of the graph.
            let table = step
                .call
                .tensor(0)
                .is_some_and(|t| self.program.values.get(t.storage).is_some_and(|v| v.origin == Origin::Parameter));
            if table {
                k.extra_dram_bytes = step.cost.written_bytes as f64 / self.batch as f64;
            }
        }
        for t in &floats {
            self.read(id, t, &[Slot::Data]);
        }
        for before in step.reads.clone() {
            // What a partial write keeps.
            if step.writes.iter().any(|w| self.program.values.get(*w).is_some_and(|v| v.before == Some(before))) {
                self.read_value(id, before);
            }
        }
        let mut primary = true;
        for w in step.writes.clone() {
            let Some(value) = self.program.values.get(w).filter(|v| v.float) else { continue };
            if !primary && !self.read_later.contains(&w) {
                self.left_out.unread_bytes =
                    self.left_out.unread_bytes.saturating_add(value.elements.saturating_mul(value.element_bytes));
                continue;
            }
            let elements = value.elements.saturating_mul(self.shards(w));
            let size = if self.per_sample(w) == rows * cols {
                (rows, cols)
            } else if elements == rows {
                (rows, 1)
            } else if elements == cols * self.batch {
                (1, cols)
            } else if self.per_sample(w).is_multiple_of(rows) {
                (rows, self.per_sample(w) / rows)
            } else if self.per_sample(w).is_multiple_of(cols) {
                (self.per_sample(w) / cols, cols)
            } else {
                self.by_shape(w)
            };
            self.write(id, w, size, false);
            primary = false;
        }
    }

    /// Rows and columns of a value that nothing else tells: its last size as rows.
    fn by_shape(&self, v: usize) -> (u64, u64) {
        let size = self.per_sample(v);
        let last = self
            .program
            .values
            .get(v)
            .and_then(|x| x.shape.last().copied())
            .unwrap_or(1)
            .saturating_mul(self.shards(v))
            .max(1);
        if size.is_multiple_of(last) { (last, size / last) } else { (1, size) }
    }

    /// Rows and columns of what an operand looks at.
    fn size_of(&mut self, t: &TensorArg) -> (u64, u64) {
        let placed = self.at_hand(t);
        match self.tensor_of(t) {
            Some(i) => self.tensors.get(i).map_or((1, 1), |x| (x.rows, x.cols)),
            None => (placed.rows, placed.cols),
        }
    }

    /// The value an operand looks into, made an input of the graph if nothing made it.
    fn at_hand(&mut self, t: &TensorArg) -> Placed {
        let root = self.parallel.root(t.storage);
        if let Some(p) = self.placed.get(&root) {
            return p.clone();
        }
        // An input as large as what is seen of it; a mask that all samples share is not divided.
        let (rows, cols) = {
            let elements = self.program.values.get(root).map_or(1, |v| v.elements).saturating_mul(self.shards(root));
            let shape = self.program.values.get(root).map(|v| v.shape.clone()).unwrap_or_default();
            let has_batch = shape.iter().any(|s| *s > 0 && s.is_multiple_of(self.batch)) && shape.len() > 2
                || shape.first().is_some_and(|s| *s == self.batch);
            if has_batch && elements.is_multiple_of(self.batch) {
                self.by_shape(root)
            } else {
                let last = shape.last().copied().unwrap_or(1).saturating_mul(self.shards(root)).max(1);
                if elements.is_multiple_of(last) { (last, (elements / last).max(1)) } else { (1, elements.max(1)) }
            }
        };
        self.place(root, rows, cols, None, false)
    }

    /// Makes the tensors of a value.
    fn place(&mut self, value: usize, rows: u64, cols: u64, producer: Option<usize>, gradient: bool) -> Placed {
        let (name, width) =
            self.program.values.get(value).map_or((format!("value{value}"), 1), |v| (v.name.clone(), v.element_bytes));
        let offsets = self.parts.get(&value).cloned().unwrap_or_default();
        let whole = self.program.values.get(value).map_or(1, |v| v.elements);
        let size = self.part_size(value);
        let count = if size > 0 && whole > 0 { whole / size } else { 1 };
        let split =
            !offsets.is_empty() && producer.is_some() && (rows.is_multiple_of(count) || cols.is_multiple_of(count));
        let (r, c) = match (split, rows.is_multiple_of(count.max(1))) {
            (false, _) => (rows, cols),
            (true, true) => (rows / count, cols),
            (true, false) => (rows, cols / count),
        };
        let name = self.unused_name(name);
        let mut tensors = Vec::new();
        let pieces = if split { offsets.len() } else { 1 };
        let read = self.read_later.contains(&value);
        self.actual_bytes += r as f64 * c as f64 * pieces as f64 * width as f64;
        for i in 0..pieces {
            tensors.push(self.tensors.len());
            self.tensors.push(Tensor {
                name: if split { format!("{name}.{i}") } else { name.clone() },
                rows: r.max(1),
                cols: c.max(1),
                producer,
                consumers: Vec::new(),
                output: producer.is_some() && !read && !gradient,
                carried_from: None,
                in_place: false,
            });
        }
        if !split {
            self.parts.remove(&value);
        }
        let placed = Placed { rows: rows.max(1), cols: cols.max(1), tensors };
        self.placed.insert(value, placed.clone());
        placed
    }

    /// Several results of one call have its name.
    fn unused_name(&mut self, name: String) -> String {
        let mut candidate = name.clone();
        let mut count = 1;
        while !self.names.insert(candidate.clone()) {
            count += 1;
            candidate = format!("{name}_{count}");
        }
        candidate
    }

    fn part_size(&self, value: usize) -> u64 {
        if !self.parts.contains_key(&value) {
            return 0;
        }
        self.program
            .steps
            .iter()
            .flat_map(|s| crate::trace::ops::reads(&s.call))
            .find(|t| self.parallel.root(t.storage) == value)
            .map_or(0, TensorArg::distinct)
    }

    /// The tensor that an operand is, if it is one as a whole.
    fn tensor_of(&self, t: &TensorArg) -> Option<usize> {
        let root = self.parallel.root(t.storage);
        let placed = self.placed.get(&root)?;
        match self.parts.get(&root) {
            Some(offsets) => placed.tensors.get(offsets.iter().position(|o| *o == t.offset)?).copied(),
            None => placed.tensors.first().copied(),
        }
    }

    fn read(&mut self, kernel: usize, t: &TensorArg, slots: &[Slot]) {
        let root = self.parallel.root(t.storage);
        if self.is_parameter(root) && slots == [Slot::Data] {
            return;
        }
        self.at_hand(t);
        let value_elements = self.program.values.get(root).map_or(0, |v| v.elements);
        match self.tensor_of(t) {
            Some(i) => {
                let partial = !self.parts.contains_key(&root) && t.distinct() < value_elements;
                self.use_tensor(kernel, i, if partial { &[] } else { slots });
            }
            None => self.read_value(kernel, t.storage),
        }
    }

    /// Reads all of a value.
    fn read_value(&mut self, kernel: usize, value: usize) {
        let root = self.parallel.root(value);
        if !self.program.values.get(root).is_some_and(|v| v.float) {
            return;
        }
        if !self.placed.contains_key(&root) {
            let (rows, cols) = self.by_shape(root);
            self.place(root, rows, cols, None, false);
        }
        let tensors = self.placed.get(&root).map(|p| p.tensors.clone()).unwrap_or_default();
        tensors.into_iter().for_each(|i| self.use_tensor(kernel, i, &[Slot::Data]));
    }

    /// Adds a use in the first slot that fits.
    fn use_tensor(&mut self, kernel: usize, tensor: usize, slots: &[Slot]) {
        let Some(k) = self.kernels.get(kernel) else { return };
        let Some(t) = self.tensors.get_mut(tensor) else { return };
        let vector = !k.is_gemm();
        let fits =
            slots.iter().find(|s| (vector || **s != Slot::Data) && operand_size(k, **s) == Some((t.rows, t.cols)));
        let rows = k.shape.rows();
        let aligned = !slots.is_empty()
            && vector
            && (t.cols == k.shape.n || t.rows == rows || (k.shape.outer > 1 && t.rows.is_multiple_of(k.shape.outer)));
        let slot = match fits {
            Some(s) => *s,
            None if aligned => Slot::Aligned,
            None => Slot::View,
        };
        let new = Use { kernel, slot };
        if !t.consumers.contains(&new) {
            t.consumers.push(new);
        }
    }

    fn kernel(&mut self, name: String, op: Op, phase: Phase, shape: Shape, window: u64, flop: Option<f64>) -> usize {
        self.kernels.push(Kernel {
            name,
            op,
            phase,
            shape: Shape { outer: shape.outer.max(1), m: shape.m.max(1), k: shape.k.max(1), n: shape.n.max(1) },
            window,
            tiled: Axis::N,
            flop,
            extra_dram_bytes: 0.0,
            ..Kernel::default()
        });
        self.kernels.len() - 1
    }

    fn write(&mut self, kernel: usize, value: usize, size: (u64, u64), gradient: bool) {
        self.place(value, size.0, size.1, Some(kernel), gradient);
    }
}

/// How many elements a norm or softmax reduces over.
fn normalised(step: &Step, main: Option<&TensorArg>) -> Option<u64> {
    let main = main?;
    let list = |i: usize| {
        step.call
            .inputs
            .get(i)
            .and_then(Arg::list)
            .map(|l| l.iter().filter_map(Arg::number).fold(1u64, |n, x| n.saturating_mul(x.max(0.0) as u64)))
    };
    match step.call.op.as_str() {
        "native_layer_norm" | "_fused_rms_norm" => list(1),
        "native_layer_norm_backward" => list(2),
        "_fused_rms_norm_backward" => list(2),
        op if op.contains("softmax") => {
            let at = if op.contains("backward") { 2 } else { 1 };
            let dims = main.shape.len() as i64;
            match step.call.inputs.get(at) {
                Some(Arg::Int(d)) => {
                    let d = if *d < 0 { *d + dims } else { *d };
                    usize::try_from(d).ok().and_then(|d| main.shape.get(d)).copied()
                }
                _ => Some(main.last()),
            }
        }
        op if op.contains("group_norm") => None,
        _ => Some(main.last()),
    }
}
