//! The kernels of one layer, of the embedding and of the head, on one chip and for one microbatch.
//!
//! With T tokens of a microbatch on a chip (samples x seq / cp), h hidden, t tensor-parallel chips, a product of the forward pass
//! T x n over k has two in the backward pass: T x k over n for its input, n x k over T for its weight. Widths of heads, perceptron and
//! words are divided by t; an expert group divides experts. The attention core is batched products and vector work, or one kernel
//! (`flash`: [`attention_kernel`](crate::model::attention_kernel)).
//!
//! Vector work by its least traffic, in passes over T h words (each input read and each output written once), times the stack's
//! `elementwise` where software does worse. Forward: a norm 2, the sum at the end of a branch 3, its dropout 1/2 for the mask. Backward: a norm 3
//! and the sum of gradients 3 a branch. Divided among t: the function inside the perceptron reads and writes its width (gated: reads two, writes one; backward
//! reads two and writes one, gated reads three and writes two), queries, keys, values and the core's output are re-ordered once each way, rotations read and write
//! queries and keys. An unfused core reads and writes the scores for mask and softmax, with dropout reads, writes and keeps a mask; backward the same with a
//! third pass for the softmax's output. Relative positions have a matrix for the distances and a product of queries with what it makes of them, of the size of the scores, which is padded, shifted
//! and added to them (seven passes over the scores, backward five); no fused kernel has them. Layers of a decoder beside an encoder have attention twice: what the second adds is spread over all layers. Queries, keys and values of a segment before are taken again. Norms of queries and keys pass over those as a norm does over hidden channels. Under sequence parallelism the first kind is divided among t too.
//!
//! Which way each matrix is divided, which kernel the core is, and which vector work is part of another kernel is the layer's mapping ([`super::mapping`]): a stack's
//! ([`Kernels::new`]), or one that is tried ([`Kernels::by`]). A product with its tokens divided has T/t rows and its whole matrix. Fused, a sum and the norm that reads it
//! pass once less, a norm's backward pass and the sum of gradients after it twice less; the function adds to the product before it what it writes, its gradient to
//! the product before it what that reads and makes besides; adding gradients up travels beside the products that make them; nothing is re-ordered by itself.

mod attention;
mod cross;

use super::machine::{Machine, Peers};
use super::mapping::{Branch, Core, LayerMapping, Sharding};
use crate::model::attention_kernel::Cost;
use crate::model::kernel_time::Product;
use crate::model::ranks::{Group, Parallelism};
use crate::workload::language::{LanguageModel, Position};

/// Which part of a step a kernel belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Forward.
    Forward,
    /// Backward: gradients of activations.
    BackwardInput,
    /// Backward: gradients of weights.
    BackwardWeight,
}

/// What kind of work a kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A product with a weight.
    Product,
    /// A part of the attention core.
    Attention,
    /// Vector work outside the attention core.
    Vector,
}

/// A kernel (vector work: several in a row).
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct KernelTime {
    /// Its name.
    pub name: &'static str,
    /// Its part of the step.
    pub phase: Phase,
    /// Its kind.
    pub work: Work,
    /// FLOP of products; vector work is counted by bytes alone.
    pub flop: f64,
    /// Bytes from and to memory.
    pub bytes: f64,
    /// Seconds on the device.
    pub seconds: f64,
    /// Seconds of products alone, whatever they wait for memory; 0 of vector work, which counts by its bytes.
    pub arithmetic: f64,
}

/// How one microbatch's layer is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Division {
    /// Tensor-parallel chips.
    pub tp: u64,
    /// Context-parallel chips.
    pub cp: u64,
    /// Expert groups.
    pub ep: u64,
    /// Chips of the whole execution, replicas and stages included.
    pub chips: u64,
    /// Samples of a microbatch.
    pub micro_batch: u64,
    /// Whether norms and sums are divided among the tensor-parallel chips.
    pub sequence_parallel: bool,
}

impl Division {
    /// Chips that talk to each other, inside a replica or among those that share experts.
    pub fn peers(&self, group: Group) -> Peers {
        let inside = Parallelism { tp: self.tp, cp: self.cp, ep: self.ep, ..Parallelism::ONE };
        Peers::of(inside.group(group), self.chips)
    }
}

/// Builds lists of kernels for one model, machine and division.
pub struct Kernels<'a> {
    machine: &'a Machine,
    model: &'a LanguageModel,
    division: Division,
    rate: f64,
    head_rate: f64,
    batched_rate: f64,
    wide_peak: f64,
    mapping: LayerMapping,
    /// Whether the weights of what is listed have gradients.
    trained: bool,
    /// Whether something before what is listed asks for a gradient.
    asked: bool,
    list: Vec<KernelTime>,
}

/// Vector kernels that re-order queries, keys, values and the core's output, of those that a stack launches each way.
const REORDERING: f64 = 4.0;

impl<'a> Kernels<'a> {
    /// For products of `peak` FLOP/s. Attention and head run in the type of the activations, also where the products with weights
    /// of a layer are narrower (as Transformer Engine does, and MLPerf's runs with it).
    pub fn new(machine: &'a Machine, model: &'a LanguageModel, division: Division, peak: f64) -> Self {
        let compute = model.types.products();
        let (_, rate) = machine.rate_of(compute, (peak, peak));
        let (wide_peak, head_rate) = machine.rate_of(model.types.activations, (peak, rate));
        Self {
            machine,
            model,
            division,
            rate,
            head_rate,
            batched_rate: wide_peak * machine.batched_efficiency,
            wide_peak,
            mapping: LayerMapping::of_stack(machine),
            trained: !model.frozen(),
            asked: !model.head_alone,
            list: Vec::with_capacity(40),
        }
    }

    /// With another mapping of the layer than the stack's.
    pub fn by(self, mapping: &LayerMapping) -> Self {
        Self { mapping: *mapping, ..self }
    }

    /// Tokens of a microbatch on one chip.
    pub fn tokens(&self) -> f64 {
        self.division.micro_batch as f64 * self.model.seq as f64 / self.division.cp as f64
    }

    fn t(&self) -> f64 {
        self.division.tp as f64
    }

    /// Bytes of one hidden activation, and what of it a chip handles outside products.
    fn hidden(&self) -> (f64, f64) {
        let whole = self.tokens() * self.model.hidden as f64 * self.model.types.activations.bytes();
        (whole, if self.division.sequence_parallel { whole / self.t() } else { whole })
    }

    fn push(&mut self, name: &'static str, phase: Phase, work: Work, cost: Cost) {
        let Cost { flop, bytes, seconds, arithmetic } = cost;
        let wanted = match phase {
            Phase::Forward => true,
            Phase::BackwardInput => self.asked,
            Phase::BackwardWeight => self.trained,
        };
        if seconds > 0.0 && wanted {
            self.list.push(KernelTime { name, phase, work, flop, bytes, seconds, arithmetic });
        }
    }

    /// A product with a weight in the model's type of products: `rows` tokens, k channels in, n out; forward and both backward products. `weights` of
    /// them at once, each with rows of its own.
    fn weight(&mut self, name: &'static str, weights: f64, rows: f64, n: f64, k: f64) {
        let own = self.own();
        self.weight_and(name, weights, [rows, n, k], own, [0.0; 3]);
    }

    /// The part of the tokens whose hidden channels a chip converts: where the others' are gathered after that, its own.
    fn own(&self) -> f64 {
        let gathered = self.division.sequence_parallel && self.machine.stack.converts_before_gather;
        if gathered { 1.0 / self.t() } else { 1.0 }
    }

    /// The same where each of the three products moves more bytes for vector work that is part of it. Where the type is narrower than the activations,
    /// what it reads of them is converted before: the input forward, the result's gradient backward, each once for both products that read it, hidden
    /// channels of the chip's `own` part of the tokens.
    fn weight_and(&mut self, name: &'static str, weights: f64, [rows, n, k]: [f64; 3], own: f64, more: [f64; 3]) {
        let narrow = self.model.types.products().bytes() < self.model.types.activations.bytes();
        let share = if weights > 1.0 { self.machine.stack.grouped_share.0 } else { 1.0 };
        self.weight_at(name, [weights, rows, n, k], self.rate * share, narrow, more);
        if narrow {
            let bytes = self.machine.stack.conversion.0 * weights * rows;
            let here = |channels: f64| if channels == self.model.hidden as f64 { own * channels } else { channels };
            let (forward, backward) = (bytes * here(k), bytes * here(n));
            self.vector("conversion", Phase::Forward, Work::Vector, forward, 0.0);
            self.vector("conversion", Phase::BackwardInput, Work::Vector, backward, 0.0);
        }
    }

    /// The same at a rate of its own, operands in the activations' type unless they are narrow.
    fn weight_at(
        &mut self,
        name: &'static str,
        [weights, rows, n, k]: [f64; 4],
        rate: f64,
        narrow: bool,
        more: [f64; 3],
    ) {
        let (a, w) = (self.model.types.activations.bytes(), self.model.types.weights.bytes());
        let read = |word: f64| if narrow { self.model.types.products().bytes() } else { word };
        let (ra, rw) = (read(a), read(w));
        for (phase, m, n, k, words, more) in [
            (Phase::Forward, rows, n, k, [ra, rw, a], more[0]),
            (Phase::BackwardInput, rows, k, n, [ra, rw, a], more[1]),
            (Phase::BackwardWeight, n, k, rows, [ra, ra, w], more[2]),
        ] {
            let product = Product { batch: weights, m, n, k };
            let (seconds, arithmetic) = self.machine.kernels.product_in_parts(&product, rate, words, more);
            let cost = Cost { flop: product.flop(), bytes: product.bytes(words) + more, seconds, arithmetic };
            self.push(name, phase, Work::Product, cost);
        }
    }

    /// Bytes for each weight of adding up its gradient where that is part of the product; frozen weights have none.
    fn adds(&self) -> f64 {
        let fused = self.mapping.fused.accumulation && self.trained;
        if fused { self.machine.stack.gradient_accumulation.0 } else { 0.0 }
    }

    /// Adapters beside a product with k channels in and n out: both factors forward and backward are bound by what they read and write, the input and
    /// its gradient, the result (read and added to) and its gradient.
    fn adapter(&mut self, n: f64, k: f64) {
        if self.model.adapters.is_none() {
            return;
        }
        let bytes = self.tokens() * self.model.types.activations.bytes();
        self.vector("adapter", Phase::Forward, Work::Vector, bytes * (k + 2.0 * n), 3.0);
        self.vector("adapter", Phase::BackwardInput, Work::Vector, bytes * (3.0 * k + 2.0 * n), 5.0);
    }

    /// A product of a branch: columns and contracted size of the whole matrix, of which a chip has the tokens' part, and of a chip's part of the
    /// matrix. `fused` are the bytes of the function, forward and backward, that are part of it.
    fn product(&mut self, name: &'static str, sharding: Sharding, whole: [f64; 2], part: [f64; 2], fused: [f64; 2]) {
        let (tokens, t, adds) = (self.tokens(), self.t(), self.adds());
        match sharding {
            Sharding::Weights => {
                let [n, k] = part;
                let own = self.own();
                self.weight_and(name, 1.0, [tokens, n, k], own, [fused[0], fused[1], n * k * adds]);
            }
            Sharding::Tokens => {
                let [n, k] = whole;
                self.weight_and(name, 1.0, [tokens / t, n, k], 1.0, [fused[0], fused[1], 0.0]);
                // What is scattered is added up after it.
                self.vector("gradient_accumulation", Phase::BackwardWeight, Work::Vector, n * k / t * adds, 0.0);
            }
        }
    }

    fn vector(&mut self, name: &'static str, phase: Phase, work: Work, bytes: f64, kernels: f64) {
        let seconds = self.machine.kernels.vector(bytes, kernels);
        self.push(name, phase, work, Cost { flop: 0.0, bytes, seconds, arithmetic: 0.0 });
    }

    /// What is listed from `before` on as the mean over all layers, of which a share has it.
    fn as_a_share(&mut self, before: usize, share: f64) {
        for kernel in &mut self.list[before..] {
            kernel.flop *= share;
            kernel.bytes *= share;
            kernel.seconds *= share;
            kernel.arithmetic *= share;
        }
    }

    fn attention_weights(&mut self) {
        self.attention_products();
        let (model, h, t) = (self.model, self.model.hidden as f64, self.t());
        let (qk, v) = (model.query_width() as f64, model.value_width() as f64);
        let a = model.heads as f64;
        self.adapter(h, a * v / t);
        self.adapter(a * qk / t + model.key_value_heads(self.division.tp) * (qk + v), h);
    }

    fn attention_products(&mut self) {
        let (model, branch) = (self.model, self.mapping.attention);
        let relative = model.position == Position::Relative;
        let plain = model.latent_attention.is_none() && !relative;
        if !relative && (branch != Branch::WEIGHTS || (self.mapping.fused.accumulation && plain)) {
            let (h, a) = (model.hidden as f64, model.heads as f64);
            let (qk, v, t) = (model.query_width() as f64, model.value_width() as f64, self.t());
            let kv = model.kv_heads() as f64;
            let part = a * qk / t + model.key_value_heads(self.division.tp) * (qk + v);
            self.product("query_key_value", branch.first, [a * qk + kv * (qk + v), h], [part, h], [0.0; 2]);
            self.product("attention_out", branch.last, [h, a * v], [h, a * v / t], [0.0; 2]);
            return;
        }
        let (tokens, h, t) = (self.tokens(), model.hidden as f64, self.t());
        let a = model.heads as f64;
        let (qk, v) = (model.query_width() as f64, model.value_width() as f64);
        match model.latent_attention {
            Some(l) => {
                let (c, r) = (l.kv_rank as f64, l.rope_dim as f64);
                let from = match l.q_rank {
                    Some(rank) => {
                        self.weight("query_down", 1.0, tokens, rank as f64, h);
                        rank as f64
                    }
                    None => h,
                };
                self.weight("query", 1.0, tokens, a * qk / t, from);
                self.weight("key_value_down", 1.0, tokens, c + r, h);
                self.weight("key_value", 1.0, tokens, a * (l.nope_dim as f64 + v) / t, c);
            }
            None => {
                // A chip has whole heads of keys and values.
                let kv = model.key_value_heads(self.division.tp) * (qk + v);
                self.weight("query_key_value", 1.0, tokens * model.keys_per_token(), a * qk / t + kv, h);
                if relative {
                    let distances = model.seq as f64 * model.keys_per_token() / self.division.cp as f64;
                    self.weight("distances", 1.0, distances, a * qk / t, h);
                }
            }
        }
        self.weight("attention_out", 1.0, tokens, h, a * v / t);
    }

    /// Elements that the function of the perceptron or the experts makes on this chip.
    fn inner(&self, with_experts: bool) -> f64 {
        let (tokens, t) = (self.tokens(), self.t());
        match self.model.experts.filter(|_| with_experts) {
            None => tokens * (self.model.ffn() as f64 / t),
            Some(e) => {
                let sent = e.top_k as f64 * e.capacity_factor.unwrap_or(1.0);
                tokens * (e.ffn as f64 / t * sent + e.shared_width() / t)
            }
        }
    }

    /// Passes of the function over its width, forward and backward.
    fn function(&self) -> [f64; 2] {
        if self.model.gated { [3.0, 5.0] } else { [2.0, 3.0] }
    }

    /// Products of the perceptron or the experts, and the function where it is part of them.
    fn perceptron(&mut self, with_experts: bool) {
        let (model, fused, branch) = (self.model, self.mapping.fused, self.mapping.perceptron);
        let (tokens, h, t) = (self.tokens(), model.hidden as f64, self.t());
        // Both first matrices of a gated perceptron run as one product.
        let firsts = (model.ffn_matrices() - 1) as f64;
        // Forward what the function makes is written besides; backward its inputs are read, and a gated one writes two gradients for the one.
        let word = model.types.activations.bytes();
        let [_, gradient] = self.function();
        let parts = if fused.function { [1.0, gradient - 2.0].map(|passes| passes * word) } else { [0.0; 2] };
        let adds = self.adds();
        let Some(e) = model.experts.filter(|_| with_experts) else {
            let (f, inner) = (model.ffn() as f64, self.inner(false));
            // Where tokens are exchanged in between, the gradient comes by a kernel of its own.
            let alike = branch.first == branch.last;
            let backward = if alike { inner * parts[1] } else { 0.0 };
            let part = f / t;
            self.product("perceptron_in", branch.first, [firsts * f, h], [firsts * part, h], [inner * parts[0], 0.0]);
            self.product("perceptron_out", branch.last, [h, f], [h, part], [0.0, backward]);
            if fused.function && !alike {
                self.vector("function", Phase::BackwardInput, Work::Vector, inner * word * gradient, 1.0);
            }
            return;
        };
        let f = e.ffn as f64 / t;
        let sent = e.top_k as f64 * e.capacity_factor.unwrap_or(1.0);
        let here = e.count as f64 / self.division.ep as f64;
        let rows = tokens * sent / here;
        self.weight_at("router", [1.0, tokens, e.count as f64, h], self.head_rate, false, [0.0; 3]);
        let own = self.own();
        let mut pair = |names: [&'static str; 2], weights: f64, rows: f64, f: f64| {
            let inner = weights * rows * f;
            let more = [inner * parts[0], 0.0, weights * firsts * f * h * adds];
            self.weight_and(names[0], weights, [rows, firsts * f, h], own, more);
            let more = [0.0, inner * parts[1], weights * f * h * adds];
            self.weight_and(names[1], weights, [rows, h, f], own, more);
        };
        pair(["experts_in", "experts_out"], here, rows, f);
        let shared = e.shared_width() / t;
        if shared > 0.0 {
            pair(["shared_experts_in", "shared_experts_out"], 1.0, tokens, shared);
        }
    }

    /// Kernels of one layer.
    pub fn layer(mut self, with_experts: bool) -> Vec<KernelTime> {
        self.attention_weights();
        self.own_attention();
        self.perceptron(with_experts);
        self.vectors(with_experts);
        self.cross_attention();
        self.list
    }

    /// Those of one of its parts: the matrices of attention, the core, the perceptron or the experts, the rest.
    pub fn part(mut self, part: usize, with_experts: bool) -> Vec<KernelTime> {
        match part {
            0 => self.attention_weights(),
            1 => self.own_attention(),
            2 => self.perceptron(with_experts),
            _ => {
                self.vectors(with_experts);
                self.cross_attention();
            }
        }
        self.list
    }

    /// Vector work outside the core.
    fn vectors(&mut self, with_experts: bool) {
        let (model, fused) = (self.model, self.mapping.fused);
        let stack = &self.machine.stack;
        let (word, t) = (model.types.activations.bytes(), self.t());
        let inner = self.inner(with_experts) * word;
        let (_, whole) = self.hidden();
        let branches = if model.parallel_block { 1.0 } else { 2.0 };
        // In a parallel block one sum of three ends both branches.
        let sum = if model.parallel_block { 4.0 } else { 3.0 };
        let mask = if model.dropout { 0.5 } else { 0.0 };
        let tokens = self.tokens() * word / t;
        let queries = (model.heads * model.query_width()) as f64;
        let values = (model.heads * model.value_width()) as f64;
        let kv = match model.latent_attention {
            Some(_) => queries + values,
            None => t * model.key_value_heads(self.division.tp) * (model.query_width() + model.value_width()) as f64,
        };
        let rotated = match (model.position, model.latent_attention) {
            (Position::Rotary, Some(l)) => (model.heads + 1) as f64 * l.rope_dim as f64,
            (Position::Rotary, None) => queries + kv / 2.0,
            _ => 0.0,
        };
        let norms = model.norms() as f64;
        let (mut forward_kernels, mut backward_kernels) =
            (stack.vector_kernels_forward as f64, stack.vector_kernels_backward as f64);
        // Latent attention's shared part is copied to every head, whatever reads it.
        let orders = fused.reorder && self.mapping.core != Core::Unfused && model.latent_attention.is_none();
        let reordered = if orders {
            forward_kernels -= REORDERING;
            backward_kernels -= REORDERING;
            0.0
        } else {
            2.0 * (queries + kv + values + rotated) * tokens
        };
        let [function, gradient] = if fused.function {
            forward_kernels -= 1.0;
            backward_kernels -= 1.0;
            [0.0; 2]
        } else {
            self.function()
        };
        let (mut forward_passes, mut backward_passes) =
            (norms * 2.0 + branches * (sum + mask), norms * 3.0 + branches * sum);
        let mut factor = stack.elementwise;
        if fused.sums {
            // Of two branches the second begins with a norm of the first one's sum; sums are norms' neighbours backward in every branch.
            let (pairs, back) = (if norms >= 2.0 { branches - 1.0 } else { 0.0 }, branches.min(norms));
            (forward_passes, backward_passes) = (forward_passes - pairs, backward_passes - 2.0 * back);
            (forward_kernels, backward_kernels) = (forward_kernels - pairs, backward_kernels - back);
            factor = 1.0;
        }
        let (forward_kernels, backward_kernels) = (forward_kernels.max(1.0), backward_kernels.max(1.0));
        let qk_norm = model.qk_norm_width() as f64 * tokens;
        let forward = factor * forward_passes * whole + reordered + factor * 2.0 * qk_norm + function * inner;
        let backward = factor * backward_passes * whole + reordered + factor * 3.0 * qk_norm + gradient * inner;
        let expert_kernels = stack.expert_kernels as f64;
        self.vector("vector", Phase::Forward, Work::Vector, forward, forward_kernels);
        self.vector("vector", Phase::BackwardInput, Work::Vector, backward, backward_kernels);
        if let Some(e) = model.experts.filter(|_| with_experts) {
            // Tokens are put in the order of their experts and back, each copy read and written.
            let sent = e.top_k as f64 * e.capacity_factor.unwrap_or(1.0);
            let own = self.tokens() / if self.division.sequence_parallel { self.t() } else { 1.0 };
            let bytes = sent * (4.0 * whole + own * stack.token_sent.0);
            self.vector("routing", Phase::Forward, Work::Vector, bytes, expert_kernels);
            self.vector("routing", Phase::BackwardInput, Work::Vector, bytes, expert_kernels);
        }
        let apart = model.latent_attention.is_some() || model.position == Position::Relative;
        if !fused.accumulation || apart {
            let bytes = self.layer_weights(with_experts, fused.accumulation) * stack.gradient_accumulation.0;
            self.vector("gradient_accumulation", Phase::BackwardWeight, Work::Vector, bytes, 0.0);
        }
    }

    /// Weights of one layer's matrices on this chip, or of those of attention alone.
    fn layer_weights(&self, with_experts: bool, of_attention: bool) -> f64 {
        let p = self.model.layer_parameters(with_experts);
        let t = self.t();
        let attention = p.attention_on(t, self.model.key_value_share(self.division.tp));
        if of_attention {
            return attention;
        }
        let experts = p.expert * (p.experts / self.division.ep as f64 + p.shared_experts);
        attention + (p.perceptron + experts) / t
    }

    /// Kernels of the embedding, forward and backward.
    pub fn embedding(mut self) -> Vec<KernelTime> {
        let stack = &self.machine.stack;
        let (whole, _) = self.hidden();
        // A source has an embedding of its own.
        let sides = if self.model.encoder_layers.is_some() { 2.0 } else { 1.0 };
        let (bytes, kernels) = (sides * stack.embedding_passes * whole, sides * stack.embedding_kernels as f64);
        // A third forward: a row read and written, of three such pairs.
        self.vector("embedding", Phase::Forward, Work::Vector, bytes / 3.0, kernels / 3.0);
        self.vector("embedding", Phase::BackwardWeight, Work::Vector, 2.0 * bytes / 3.0, 2.0 * kernels / 3.0);
        if let Some(width) = self.model.narrow_embedding() {
            self.weight("embedding_widening", 1.0, self.tokens(), self.model.hidden as f64 / self.t(), width as f64);
        }
        if let Some(p) = self.model.patches {
            let channels = (p.size * p.size * p.channels) as f64;
            self.weight("patches", 1.0, self.tokens(), self.model.hidden as f64 / self.t(), channels);
        }
        self.list
    }

    /// Kernels of last norm, head and loss.
    pub fn head(mut self) -> Vec<KernelTime> {
        let model = self.model;
        let stack = &self.machine.stack;
        let (tokens, h, t) = (self.tokens(), model.hidden as f64, self.t());
        let words = model.scored_outputs() as f64 / t;
        let rows = model.scored_tokens(tokens, self.division.micro_batch as f64);
        let rate = self.head_rate * if self.division.tp == 1 { stack.unsharded_head.0 } else { 1.0 };
        let (_, whole) = self.hidden();
        let (bytes, kernels) = (stack.head_passes * whole, stack.head_kernels as f64);
        self.vector("last_norm", Phase::Forward, Work::Vector, bytes / 2.0, kernels / 2.0);
        self.vector("last_norm", Phase::BackwardInput, Work::Vector, bytes / 2.0, kernels / 2.0);
        // A head that is trained alone has gradients from its last matrix to its first.
        self.trained = model.adapters.is_none();
        if model.transforms() {
            self.weight_at("head_transform", [1.0, rows, h / t, h], rate, false, [0.0; 3]);
            self.asked |= self.trained;
        }
        if let Some(width) = model.narrow_embedding() {
            self.weight_at("head_narrowing", [1.0, rows, width as f64, h / t], rate, false, [0.0; 3]);
            self.asked |= self.trained;
        }
        self.weight_at("head", [1.0, rows, words, model.embedding_width() as f64], rate, false, [0.0; 3]);
        self.asked |= self.trained;
        if words > 0.0 {
            let (bytes, kernels) = (rows * words * stack.logit_traffic.0, stack.logit_kernels as f64);
            self.vector("loss", Phase::Forward, Work::Vector, bytes / 2.0, kernels / 2.0);
            self.vector("loss", Phase::BackwardInput, Work::Vector, bytes / 2.0, kernels / 2.0);
        }
        self.list
    }
}

/// Sums over a list of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sums {
    /// Products and vector work of the forward pass, seconds.
    pub forward: f64,
    /// Of `forward`, the attention core.
    pub forward_attention: f64,
    /// Of `forward`, products with weights.
    pub forward_products: f64,
    /// Gradients of activations, seconds.
    pub backward_input: f64,
    /// Of `backward_input`, the attention core.
    pub backward_attention: f64,
    /// Products with weights of the whole backward pass, seconds.
    pub backward_products: f64,
    /// Gradients of weights, seconds.
    pub backward_weight: f64,
    /// FLOP of the forward pass.
    pub forward_flop: f64,
    /// Of it, the attention core.
    pub attention_flop: f64,
    /// FLOP of the backward pass.
    pub backward_flop: f64,
    /// Bytes of the forward pass from and to memory, of its attention core, and of the backward pass.
    pub bytes: [f64; 3],
    /// Seconds of products alone: of the forward pass's attention core, of its products with weights, and of the backward pass.
    pub arithmetic: [f64; 3],
}

impl Sums {
    /// Of a list.
    pub fn of(kernels: &[KernelTime]) -> Self {
        let mut s = Self::default();
        for k in kernels {
            match k.phase {
                Phase::Forward => {
                    s.forward += k.seconds;
                    s.forward_flop += k.flop;
                    s.bytes[0] += k.bytes;
                    match k.work {
                        Work::Attention => {
                            s.arithmetic[0] += k.arithmetic;
                            s.bytes[1] += k.bytes;
                            s.forward_attention += k.seconds;
                            s.attention_flop += k.flop;
                        }
                        Work::Product => {
                            s.arithmetic[1] += k.arithmetic;
                            s.forward_products += k.seconds;
                        }
                        Work::Vector => {}
                    }
                }
                Phase::BackwardInput => {
                    s.bytes[2] += k.bytes;
                    s.arithmetic[2] += k.arithmetic;
                    s.backward_input += k.seconds;
                    s.backward_flop += k.flop;
                    match k.work {
                        Work::Attention => s.backward_attention += k.seconds,
                        Work::Product => s.backward_products += k.seconds,
                        Work::Vector => {}
                    }
                }
                Phase::BackwardWeight => {
                    s.bytes[2] += k.bytes;
                    s.arithmetic[2] += k.arithmetic;
                    s.backward_weight += k.seconds;
                    s.backward_flop += k.flop;
                    if k.work == Work::Product {
                        s.backward_products += k.seconds;
                    }
                }
            }
        }
        s
    }

    /// Of both.
    pub fn plus(&self, other: &Self) -> Self {
        let sum = |of: fn(&Self) -> f64| of(self) + of(other);
        Self {
            forward: sum(|s| s.forward),
            forward_attention: sum(|s| s.forward_attention),
            forward_products: sum(|s| s.forward_products),
            backward_input: sum(|s| s.backward_input),
            backward_attention: sum(|s| s.backward_attention),
            backward_products: sum(|s| s.backward_products),
            backward_weight: sum(|s| s.backward_weight),
            forward_flop: sum(|s| s.forward_flop),
            attention_flop: sum(|s| s.attention_flop),
            backward_flop: sum(|s| s.backward_flop),
            bytes: [0, 1, 2].map(|i| self.bytes[i] + other.bytes[i]),
            arithmetic: [0, 1, 2].map(|i| self.arithmetic[i] + other.arithmetic[i]),
        }
    }

    /// The whole backward pass, seconds.
    pub fn backward(&self) -> f64 {
        self.backward_input + self.backward_weight
    }
}
