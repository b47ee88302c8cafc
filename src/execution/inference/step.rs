//! Seconds of one pass of a microbatch through one stage, on one chip of it.
//!
//! A pass takes R rows (tokens) of n sequences. The prompt: R = n x seq, each token sees the mean that the mask leaves. A step of generation:
//! R = n, each sees its context. With t tensor-parallel chips, h hidden, u = all-reduces, a layer takes
//!
//! ```text
//! products   R x N / t over K for each weight, by tiles and waves        (kernel_time: compute against memory)
//! attention  prompt: 2 R seen (q + v) heads / t FLOP, one fused kernel; step: n x context x bytes of a token's keys and values
//!            / B_cache, plus the same FLOP where they count more
//! vector     elementwise x (6 R h + R x width of the perceptron x (3 gated, 2 plain) / t, with experts + 2 R top_k h) words in and out
//! kernels    their number x time from one to the next, a kernel more for each norm beyond two; what `host_layer` is longer than all of this is waited for besides
//! mesh       of s x s cores: s x a in a step, s (h x b + s x c) in a prompt: signals that cross it (`serving.mesh`)
//! network    2 all-reduces of R h words (one and one for each expert where these compute every token; the first of them none where attention and
//!            perceptron begin with the same vectors); with experts divided among e replicas, two exchanges of R x top_k x h words
//! ```
//!
//! Keys and values of g heads are on each chip ceil(g / t) heads; latent attention keeps its compressed vector on every chip.
//! Where query heads read a cache by themselves (`cache_heads`) those bytes count once for each, over the rate of the kernel for few; of more heads than that
//! kernel takes, blocks go through their contexts in rounds of as many as the units hold at once ([`CacheHeads::many`](crate::system::serving::CacheHeads::many)).
//!
//! Experts: R top_k tokens, those of the other replicas of a group included, reach E (1 - (1 - k/E)^R) of E experts if routed evenly at random, and only those are read; with
//! `experts: every_token` each of the E computes all R, also where there are more than `most_routed`; the way to them and back moves `routing` times its least bytes. The head adds
//! its product for the last token of each sequence, at `head_share` of the rate of others, and four passes over its scores (scaling, softmax, choice).

use super::energy::{Kernel, Spent, Uses};
use super::server::Server;
use crate::execution::machine::{Peers, Traffic};
use crate::execution::schedule::{StageKind, stages};
use crate::model::kernel_time::{Product, ROWS_OF_VECTORS};
use crate::system::serving::{CacheHeads, ExpertWork};
use crate::workload::language::{AttentionCount, DataType, LanguageModel};
use serde::Serialize;

/// Chips that share the work on one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Layout {
    /// Chips that share each layer.
    pub tp: u64,
    /// Stages.
    pub pp: u64,
    /// Replicas, each with its part of the batch.
    pub dp: u64,
    /// Replicas among which experts are divided.
    pub ep: u64,
}

impl Layout {
    /// All chips.
    pub fn chips(&self) -> u64 {
        self.tp.saturating_mul(self.pp).saturating_mul(self.dp)
    }

    /// The chips that share a layer.
    pub fn tensor(&self) -> Peers {
        Peers { chips: self.tp, apart: 1, of: self.chips() }
    }
}

/// What passes through a stage at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pass {
    /// Whole prompts.
    Prompt,
    /// One token of each sequence after so many, of which a step reads `cached`.
    Token {
        /// Tokens that are seen.
        context: f64,
        /// Tokens whose keys and values are read.
        cached: f64,
    },
    /// Pieces of prompts beside one token of each of some sequences.
    Mixed {
        /// Rows that are tokens of answers; the others are of prompts.
        steps: f64,
        /// Tokens that each of these sees, and whose keys and values are read.
        context: f64,
        /// Tokens that one of a prompt's rows sees, on average.
        seen: f64,
        /// Tokens of prompts before these pieces, of all of them, whose keys and values are read.
        before: f64,
    },
}

impl Pass {
    /// Of so many rows those of prompts.
    fn of_prompts(self, rows: f64) -> f64 {
        match self {
            Self::Prompt => rows,
            Self::Token { .. } => 0.0,
            Self::Mixed { steps, .. } => rows - steps,
        }
    }
}

/// Seconds of a pass by what they are spent on.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Seconds {
    /// Products with weights.
    pub weights: f64,
    /// Attention over keys and values.
    pub attention: f64,
    /// Norms, functions, residuals, choice of the next word.
    pub vector: f64,
    /// Starting kernels.
    pub kernels: f64,
    /// Collectives and hand-overs.
    pub network: f64,
    /// Host.
    pub host: f64,
}

impl Seconds {
    /// The sum.
    pub fn total(&self) -> f64 {
        self.weights + self.attention + self.vector + self.kernels + self.network + self.host
    }

    /// So many times.
    pub fn times(&self, n: f64) -> Self {
        Self {
            weights: n * self.weights,
            attention: n * self.attention,
            vector: n * self.vector,
            kernels: n * self.kernels,
            network: n * self.network,
            host: n * self.host,
        }
    }

    /// One after the other.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            weights: self.weights + other.weights,
            attention: self.attention + other.attention,
            vector: self.vector + other.vector,
            kernels: self.kernels + other.kernels,
            network: self.network + other.network,
            host: self.host + other.host,
        }
    }
}

/// Times of one model on one server under one layout.
#[derive(Debug, Clone, Copy)]
pub struct Steps<'a> {
    /// The server.
    pub server: &'a Server,
    /// The model.
    pub model: &'a LanguageModel,
    /// The layout.
    pub layout: Layout,
    peak: f64,
    /// Peak in the type of keys and values, in which attention is computed whatever the weights are stored in.
    attention_peak: f64,
    /// Replicas that have as many tokens as this one, of those among which experts are divided.
    pub(super) at_work: f64,
}

impl<'a> Steps<'a> {
    /// # Errors
    /// The chip states no peak for the model's type of products.
    pub fn new(server: &'a Server, model: &'a LanguageModel, layout: Layout) -> Result<Self, String> {
        let peak = server.machine.peak(model)?;
        let kept = model.types.cache.unwrap_or(model.types.activations);
        let (attention_peak, _) = server.machine.rate_of(kept, (peak, peak));
        let at_work = layout.ep as f64;
        Ok(Self { server, model, layout, peak, attention_peak: attention_peak.min(peak), at_work })
    }

    /// The same where this replica serves `n` sequences at once, and all that divide its experts no more than `together`.
    pub fn beside(&self, n: u64, together: u64) -> Self {
        let others = together as f64 / n.max(1) as f64;
        Self { at_work: others.clamp(1.0, self.layout.ep.max(1) as f64), ..*self }
    }

    fn product(&self, batch: f64, m: f64, n: f64, k: f64) -> Kernel {
        self.product_of(None, Product { batch, m, n, k })
    }

    /// A product with weights in a type of their own, in which it is computed where the chip has a peak for it; with those of all others where it is left out.
    fn product_of(&self, own: Option<DataType>, product: Product) -> Kernel {
        let types = &self.model.types;
        let Some(own) = own else {
            let rate = self.peak * self.server.efficiency(types.products());
            return self.product_at(product, (types.products(), rate), types.weights);
        };
        let (peak, computed) = match self.server.machine.rate_of(own, (0.0, 0.0)) {
            (peak, _) if peak > 0.0 => (peak, own),
            _ => (self.peak, types.products()),
        };
        self.product_at(product, (computed, peak * self.server.efficiency(own)), own)
    }

    /// A product computed in a type at a rate, of weights that are stored in another.
    fn product_at(&self, product: Product, (computed, rate): (DataType, f64), weights: DataType) -> Kernel {
        // Groups of different sizes, as many as there are experts.
        let grouped = if product.batch > 1.0 { self.server.machine.stack.grouped_share.0 } else { 1.0 };
        let rate = rate * grouped;
        let (a, w) = (self.model.types.activations.bytes(), weights.bytes());
        let widened = w < computed.bytes();
        // By a kernel of its own, which reads them narrow and writes them wide, or where they are multiplied.
        let apart = widened && self.server.serving.widens_apart;
        let few = widened && !apart && product.m <= ROWS_OF_VECTORS;
        let kernels = if few { &self.server.vectors } else { &self.server.kernels };
        let read = if apart { computed.bytes() } else { w };
        let (seconds, arithmetic_s) = kernels.product_in_parts(&product, kernels.fed(rate, read), [a, read, a], 0.0);
        let uses = Uses { arithmetic_s, flop: product.flop(), dram_bytes: product.bytes([a, read, a]), link_j: 0.0 };
        let before = if apart { product.batch * product.k * product.n * (w + read) } else { 0.0 };
        Kernel { seconds, uses } + Kernel::moving(kernels.vector(before, 0.0), before)
    }

    /// A product of a perceptron or of experts.
    fn perceptron(&self, batch: f64, m: f64, n: f64, k: f64) -> Kernel {
        self.product_of(self.model.types.perceptron, Product { batch, m, n, k })
    }

    /// A product of the head.
    fn of_head(&self, m: f64, n: f64, k: f64) -> Kernel {
        let types = &self.model.types;
        let own = Some(types.ends(self.server.serving.narrow_ends)).filter(|ends| *ends != types.weights);
        self.product_of(own, Product { batch: 1.0, m, n, k })
    }

    fn attention_products(&self, rows: f64) -> Kernel {
        let model = self.model;
        let (h, t, a) = (model.hidden as f64, self.layout.tp as f64, model.heads as f64);
        let (qk, v) = (model.query_width() as f64, model.value_width() as f64);
        let inward = match model.latent_attention {
            Some(l) => {
                let (c, r) = (l.kv_rank as f64, l.rope_dim as f64);
                let queries = match l.q_rank.map(|q| q as f64) {
                    Some(q) => self.product(1.0, rows, q, h) + self.product(1.0, rows, a * qk / t, q),
                    None => self.product(1.0, rows, a * qk / t, h),
                };
                queries
                    + self.product(1.0, rows, c + r, h)
                    + self.product(1.0, rows, a * (l.nope_dim as f64 + v) / t, c)
            }
            None => self.product(1.0, rows, a * qk / t + self.model.key_value_heads(self.layout.tp) * (qk + v), h),
        };
        inward + self.product(1.0, rows, h, a * v / t)
    }

    /// Bytes of one token's keys and values of one layer on a chip.
    pub fn cache_bytes(&self) -> f64 {
        let model = self.model;
        let word = model.types.cache.unwrap_or(model.types.activations).bytes();
        match model.latent_attention {
            Some(_) => model.cache_width() as f64 * word,
            None => self.model.key_value_heads(self.layout.tp) * 2.0 * model.head_dim() as f64 * word,
        }
    }

    fn attention(&self, rows: f64, pass: Pass) -> Kernel {
        match pass {
            Pass::Prompt => {
                self.attention_of_prompts(rows, self.model.mean_attended(self.model.seq, AttentionCount::Masked), 0.0)
            }
            Pass::Token { context, cached } => self.attention_of_steps(rows, context, cached),
            Pass::Mixed { steps, context, seen, before } => {
                let of_steps = self.attention_of_steps(steps, context, context);
                self.attention_of_prompts(rows - steps, seen, before) + of_steps
            }
        }
    }

    /// FLOP of products of a width for each of `rows` queries with `context` tokens, and the rate at which they are computed.
    fn attention_products_of(&self, rows: f64, context: f64, width: u64) -> (f64, f64) {
        let heads = self.model.heads as f64 / self.layout.tp as f64;
        let rate = self.attention_peak * self.server.attention_efficiency;
        (2.0 * rows * context * heads * width as f64, rate)
    }

    /// Of prompts' rows that see so many tokens each, where the keys and values of `before` tokens are in the cache.
    fn attention_of_prompts(&self, rows: f64, seen: f64, before: f64) -> Kernel {
        let model = self.model;
        let heads = model.heads as f64 / self.layout.tp as f64;
        let (flop, rate) = self.attention_products_of(rows, seen, model.query_width() + model.value_width());
        let word = model.types.activations.bytes();
        let ends = rows * heads * (model.query_width() + model.value_width()) as f64 * word;
        let bytes = ends + (rows + before) * self.cache_bytes();
        let uses = Uses { arithmetic_s: flop / rate, flop, dram_bytes: bytes, link_j: 0.0 };
        Kernel { seconds: self.server.kernels.fused(flop, rate, bytes), uses }
    }

    /// Of one token of each of `rows` sequences that sees `context` tokens, where those of `cached` are read.
    fn attention_of_steps(&self, rows: f64, context: f64, cached: f64) -> Kernel {
        let by = |heads| self.attention_of_steps_by(heads, (rows, context, cached));
        let own = self.server.serving.cache_heads.filter(|_| self.model.latent_attention.is_none());
        let known = by(own);
        if own.is_none() || !self.server.machine.ideal {
            return known;
        }
        let shared = by(None);
        if shared.seconds <= known.seconds { shared } else { known }
    }

    /// The same where query heads read keys and values by themselves by such kernels; `None`: once for all of them.
    fn attention_of_steps_by(&self, own: Option<CacheHeads>, (rows, context, cached): (f64, f64, f64)) -> Kernel {
        let model = self.model;
        let heads = model.heads as f64 / self.layout.tp as f64;
        let once = rows * cached * self.cache_bytes();
        // What the time is counted by, and what goes through memory.
        let (mut bytes, mut moved, mut blocks) = (once, once, 0.0);
        if let Some(kernels) = own {
            let each = (heads / model.key_value_heads(self.layout.tp)).max(1.0);
            if rows * heads / self.server.ranks <= kernels.few as f64 {
                bytes *= each / kernels.few_rate;
                // Above 1 caches serve the rest; below, memory waits.
                moved *= (each / kernels.few_rate.max(1.0)).max(1.0);
            } else {
                blocks = kernels.many(rows * heads, cached, self.server.kernels.units(), model.max_positions);
                moved *= each;
            }
        }
        // Latent attention multiplies the compressed vectors that its cache holds.
        let (flop, rate) = self.attention_products_of(rows, context, model.step_width());
        let uses = Uses { arithmetic_s: flop / rate, flop, dram_bytes: moved, link_j: 0.0 };
        let seconds = (bytes / self.server.cache_bandwidth(model)).max(flop / rate).max(blocks);
        Kernel { seconds, uses }
    }

    /// Experts of a chip's group that some token reaches, and the rows each of them computes: `factor` times the tokens that it gets.
    fn experts_reached(&self, rows: f64, count: f64, top_k: f64, factor: f64) -> (f64, f64) {
        let ep = self.layout.ep as f64;
        let tokens = rows * self.at_work;
        let here = count / ep;
        let serving = &self.server.serving;
        if serving.experts == ExpertWork::EveryToken || serving.most_routed.is_some_and(|most| count > most as f64) {
            return (here, tokens);
        }
        let reached = here * (1.0 - (1.0 - (top_k / count).min(1.0)).powf(tokens.max(1.0)));
        // A whole number is one, whatever the last digit: tiles are rounded up.
        let reached = if (reached - reached.round()).abs() < 1e-9 * reached { reached.round() } else { reached };
        let reached = reached.clamp(1.0_f64.min(here), here);
        (reached, tokens * top_k * factor / ep / reached.max(f64::MIN_POSITIVE))
    }

    /// One layer.
    pub fn layer(&self, rows: f64, pass: Pass, with_experts: bool) -> Spent {
        let model = self.model;
        let server = self.server;
        let (h, t) = (model.hidden as f64, self.layout.tp as f64);
        let word = model.types.activations.bytes();
        let firsts = (model.ffn_matrices() - 1) as f64;
        let mut weights = self.attention_products(rows);
        // Two norms are among them; each further one, and those of queries and keys, is a kernel too.
        let further = model.norms().saturating_sub(2) + if model.qk_norm.is_some() { 2 } else { 0 };
        let mut kernels = (server.serving.layer_kernels + further) as f64;
        // Of attention, unless its part is added to the perceptron's before, and of the perceptron: where each expert computes every token, what it adds is
        // summed up before the next one runs.
        let of_attention = if model.parallel_block && server.serving.joint_sums { 0.0 } else { 1.0 };
        let of_each = model.experts.filter(|_| with_experts && server.serving.experts == ExpertWork::EveryToken);
        let sums = of_attention + of_each.map_or(1.0, |e| (e.count / self.layout.ep.max(1)).max(1) as f64);
        let mut network = sums * server.all_reduce(self.layout.tensor(), rows * h * word);
        let mut link_j = sums * server.machine.line(Traffic::AllReduce, self.layout.tensor()).joules(rows * h * word);
        let mut routed = 0.0;
        let width = match model.experts.filter(|_| with_experts) {
            Some(e) => {
                let (f, factor) = (e.ffn as f64 / t, e.capacity_factor.unwrap_or(1.0));
                let k = e.top_k as f64 * factor;
                let (reached, each) = self.experts_reached(rows, e.count as f64, e.top_k as f64, factor);
                // Hidden vectors that experts give back for each token.
                let given = reached * each / rows.max(f64::MIN_POSITIVE);
                weights += self.product(1.0, rows, e.count as f64, h)
                    + self.perceptron(reached, each, firsts * f, h)
                    + self.perceptron(reached, each, h, f);
                let shared = e.shared_width() / t;
                if shared > 0.0 {
                    weights += self.perceptron(1.0, rows, firsts * shared, h) + self.perceptron(1.0, rows, h, shared);
                }
                kernels += server.machine.stack.expert_kernels as f64;
                let exchange = server.exchange(&self.layout);
                network += 2.0 * exchange.at(rows * k * h * word);
                link_j += 2.0 * exchange.joules(rows * k * h * word);
                // Tokens are copied for each expert that gets them and added up behind: read and written both times.
                routed = server.serving.routing * 2.0 * given * h;
                f * given + shared
            }
            None => {
                let f = model.ffn() as f64 / t;
                weights += self.perceptron(1.0, rows, firsts * f, h) + self.perceptron(1.0, rows, h, f);
                f
            }
        };
        let read = pass.of_prompts(rows);
        if read == rows {
            weights.seconds /= server.serving.prompt_share.0;
        } else if read > 0.0 {
            weights.seconds *= 1.0 + read / rows * (1.0 / server.serving.prompt_share.0 - 1.0);
        }
        let function = if model.gated { 3.0 } else { 2.0 };
        // Signals that cross a mesh of cores.
        network += server.serving.mesh.map_or(0.0, |mesh| match read > 0.0 {
            false => mesh.token.0 * server.side,
            true => server.side * (mesh.prompt.0 * h + mesh.prompt_far.0 * server.side),
        });
        // Two norms are in the six passes over the hidden channels; further ones, and those of queries and keys, are one each.
        let norms = model.norms().saturating_sub(2) as f64 * h + model.qk_norm_width() as f64 / t;
        let moved = 2.0 * word * rows * (6.0 * h + norms + function * width + routed);
        let attention = self.attention(rows, pass);
        let vector = self.vector(moved);
        let seconds = Seconds {
            weights: weights.seconds,
            attention: attention.seconds,
            vector: vector.seconds,
            kernels: kernels
                * match server.serving.prompt_kernel.filter(|_| read > 0.0) {
                    Some(own) if !server.machine.ideal => own.0,
                    Some(own) => own.0.min(server.kernel),
                    None => server.kernel,
                },
            network,
            host: 0.0,
        };
        let host = (server.serving.host_layer.0 - seconds.total()).max(0.0);
        let uses = weights.uses + attention.uses + vector.uses + Uses { link_j, ..Uses::default() };
        Spent { seconds: Seconds { host, ..seconds }, uses }
    }

    /// Vector work that moves `bytes` where every kernel reads its inputs and writes its outputs once.
    fn vector(&self, bytes: f64) -> Kernel {
        let bytes = self.server.serving.elementwise * bytes;
        Kernel::moving(self.server.kernels.vector(bytes, 0.0), bytes)
    }

    /// All layers of each kind of stages.
    pub fn stages(&self, rows: f64, pass: Pass) -> Vec<(StageKind, Spent)> {
        let plain = self.layer(rows, pass, false);
        let with_experts = if self.model.expert_layers() > 0 { self.layer(rows, pass, true) } else { Spent::default() };
        let of = |stage: StageKind| (stage, plain.times(stage.plain).plus(&with_experts.times(stage.experts)));
        stages(self.model, self.layout.pp).into_iter().map(of).collect()
    }

    /// Last norm, head and the choice of the next word for `n` sequences.
    pub fn head(&self, n: f64) -> Spent {
        let (words, hidden) = (self.model.head_outputs() as f64, self.model.hidden as f64);
        let transform = match self.model.transforms() {
            true => self.of_head(n, hidden / self.layout.tp as f64, hidden),
            false => Kernel::default(),
        };
        if words <= 0.0 {
            let kernels = if transform.seconds > 0.0 { self.server.kernel } else { 0.0 };
            let seconds = Seconds { weights: transform.seconds, kernels, ..Seconds::default() };
            return Spent { seconds, uses: transform.uses };
        }
        let width = self.model.embedding_width() as f64;
        let mut weights = self.of_head(n, words / self.layout.tp as f64, width);
        weights.seconds /= self.server.serving.head_share.0;
        if self.model.narrow_embedding().is_some() {
            weights += self.of_head(n, width, hidden);
        }
        weights += transform;
        let vector = self.vector(4.0 * n * words * 4.0);
        let (weights, uses) = (weights.seconds, weights.uses + vector.uses);
        let seconds = Seconds { weights, vector: vector.seconds, kernels: self.server.kernel, ..Seconds::default() };
        Spent { seconds, uses }
    }

    /// What the software takes until a first token beyond the pass; a model that scores no next words has none.
    pub fn asked(&self) -> f64 {
        let serving = &self.server.serving;
        let peers = (self.layout.tp.max(1) - 1) as f64;
        if self.model.generates() { serving.request.0 + peers * serving.request_peer.0 } else { 0.0 }
    }

    /// Microbatches of `rows` rows, of which `chosen` choose a next word, through all stages, a pass of each `times`: (times, microbatches). Of prompts from
    /// the first's begin to the last's end; else from one token of a microbatch to its next: its way, or all of them on the slowest stage.
    pub fn through(&self, (times, count): (f64, f64), (rows, chosen): (f64, f64), pass: Pass) -> Spent {
        // Where nobody's next word is chosen the head is not read.
        let head = if chosen > 0.0 { self.head(chosen) } else { Spent::default() };
        let (hops, link_j) = self.hand_overs(rows);
        // A microbatch's way through all stages, and the stage that it is longest on.
        let (mut way, mut slowest) = (Spent::default(), Seconds::default());
        for (kind, layers) in self.stages(rows, pass) {
            let stage = layers.plus(&head.times(kind.head));
            way = way.plus(&stage.times(kind.count));
            let own = hops.iter().skip(kind.first as usize).take(kind.count as usize);
            let seconds = stage.seconds.plus(&over_links(own.copied().fold(0.0, f64::max))).times(times);
            if seconds.total() > slowest.total() {
                slowest = seconds;
            }
        }
        way.seconds = way.seconds.plus(&over_links(hops.iter().sum()));
        way.uses.link_j += link_j;
        let way = way.times(times);
        let seconds = match pass {
            _ if !self.server.serving.overlapped_stages => way.seconds.times(count),
            _ if pass.of_prompts(rows) > 0.0 => way.seconds.plus(&slowest.times(count - 1.0)),
            _ => {
                let all = slowest.times(count);
                if way.seconds.total() < all.total() { all } else { way.seconds }
            }
        };
        // Every microbatch goes through every stage once, however long stages wait.
        Spent { seconds, uses: way.uses.times(count * self.layout.tp as f64) }
    }

    /// Seconds of the hand-over of `rows` tokens from each stage to the next (of the last to the first), and joules of links between stages.
    fn hand_overs(&self, rows: f64) -> (Vec<f64>, f64) {
        if self.layout.pp <= 1 {
            return (Vec::new(), 0.0);
        }
        let bytes = rows * self.model.hidden as f64 * self.model.types.activations.bytes();
        let lines = self.server.hand_overs(&self.layout);
        let between = lines.split_last().map_or(0.0, |(_, others)| others.iter().map(|line| line.joules(bytes)).sum());
        (lines.iter().map(|line| line.at(bytes)).collect(), between)
    }
}

fn over_links(network: f64) -> Seconds {
    Seconds { network, ..Seconds::default() }
}
