//! What serving holds in a chip's memory: weights, cache, buffers; and how many sequences fit.

use super::step::Steps;
use crate::execution::schedule::{StageKind, stages};
use crate::system::serving::CacheLayout;
use crate::workload::language::LayerParameters;
use serde::Serialize;

/// Bytes of the fullest chip by kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Memory {
    /// Weights of the stage that has most.
    pub weights: f64,
    /// Keys and values of all sequences that are served at once.
    pub cache: f64,
    /// Activations of the widest pass and the software's own.
    pub buffers: f64,
}

impl Memory {
    /// The sum.
    pub fn total(&self) -> f64 {
        self.weights + self.cache + self.buffers
    }
}

/// What a stage has on each of its chips.
struct Held {
    /// Bytes of weights.
    weights: f64,
    /// Its layers.
    layers: f64,
    /// Those of them that see all tokens.
    full: f64,
}

impl Held {
    /// Tokens of cache that its layers keep of a sequence of `tokens`, all together.
    fn kept(&self, steps: &Steps, tokens: u64) -> f64 {
        let (all, windowed) = kept_by_layer(steps, tokens);
        self.full * all + (self.layers - self.full) * windowed
    }
}

/// Of every kind of stage: its layers divided among tensor-parallel chips (whole heads of keys and values; routers, norms and what latent attention
/// compresses with are every chip's), experts among replicas too; embedding
/// and head divided among the tensor-parallel chips of the first and last stage, the embedding not where the software keeps it whole.
fn of_stages(steps: &Steps) -> Vec<Held> {
    let (model, layout, serving) = (steps.model, &steps.layout, &steps.server.serving);
    let p = model.parameters();
    let (t, ep) = (layout.tp as f64, layout.ep as f64);
    let share = model.key_value_share(layout.tp);
    let (word, types) = (model.types.weights.bytes(), &model.types);
    // Perceptrons and experts may be in a type of their own.
    let own = types.perceptron.map_or(word, |own| own.bytes());
    let layer = |l: &LayerParameters| {
        let perceptrons = l.perceptron + l.expert * (l.experts / ep + l.shared_experts);
        (l.attention_on(t, share) + l.router + l.norms + l.biases / t) * word + perceptrons / t * own
    };
    let (plain, with_experts) = (layer(&p.dense_layer), layer(&p.expert_layer));
    // A table that is the head's too is divided with it.
    let whole = serving.whole_embedding && !model.tied_embeddings;
    let table = if whole { p.embedding } else { p.embedding / t };
    let first = table + (p.positions + p.embedding_norm) / t;
    let of = |s: &StageKind| {
        // A head that is the embedding again is a copy where that is on another stage.
        let own_head = if model.tied_embeddings && s.embedding == 0.0 { p.head_matrices } else { p.head };
        let ends = s.embedding * first + s.head * (own_head + p.final_norm) / t;
        let ends = ends * types.ends(serving.narrow_ends).bytes();
        Held { weights: s.plain * plain + s.experts * with_experts + ends, layers: s.layers(), full: s.full }
    };
    stages(model, layout.pp).iter().map(of).collect()
}

/// What the stages of a layout hold, whatever the sequences.
pub struct Stages(Vec<Held>);

/// Tokens that the cache of a layer keeps of a sequence of `tokens`, mean over the layers: a window's need not hold more than it sees; a compiled graph has its one length.
pub fn kept(steps: &Steps, tokens: u64) -> f64 {
    let (all, windowed) = kept_by_layer(steps, tokens);
    steps.model.over_layers(|| all, |_| windowed)
}

/// The same of a layer that sees all tokens, and of one with a window.
fn kept_by_layer(steps: &Steps, tokens: u64) -> (f64, f64) {
    let serving = &steps.server.serving;
    let room = serving.reserved(tokens) as f64;
    let window = steps.model.window.filter(|_| serving.cache != CacheLayout::Compiled);
    (room, window.map_or(room, |window| room.min(window as f64)))
}

/// Activations beside: hidden vectors in and out, perceptron, queries, keys and values of the widest pass, one layer at a time, and
/// the scores of the words (4 bytes).
pub fn buffers(steps: &Steps, rows: f64, sequences: f64) -> f64 {
    let model = steps.model;
    let t = steps.layout.tp as f64;
    let word = model.types.activations.bytes();
    let width = model.experts.map_or(model.ffn() as f64, |e| (e.ffn * e.top_k) as f64 + e.shared_width());
    let wide = width * (model.ffn_matrices() - 1) as f64 / t;
    let heads = model.heads as f64 * (model.query_width() + 2 * model.value_width()) as f64 / t;
    let scores = sequences * model.head_outputs() as f64 / t * 4.0;
    let server = steps.server;
    let own = server.machine.stack.memory_reserve.0 + (t - 1.0) * server.serving.peer_memory.0;
    rows * word * (2.0 * model.hidden as f64 + wide.max(heads)) + scores + own
}

/// How many sequences are served at once, by memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Room {
    /// Bytes of weights.
    pub weights: f64,
    /// Bytes of the buffers of as many sequences (of one, where none fits).
    pub buffers: f64,
    /// Bytes of one sequence.
    pub sequence: f64,
    /// Sequences that fit at once on one replica, at most the share asked for.
    pub sequences: u64,
}

impl Stages {
    /// Of a layout.
    pub fn of(steps: &Steps) -> Self {
        Self(of_stages(steps))
    }

    /// Bytes of `n` sequences at once in so many microbatches, on a chip of every kind of stage. The prompts of a microbatch may be read one after another, so
    /// that the rows of one are held; an encoder goes through all of them in one pass, and holds their rows. Scores are held for every sequence of a microbatch.
    fn memories(
        &self,
        steps: &Steps,
        (prompt, generated): (u64, u64),
        n: u64,
        microbatches: u64,
    ) -> impl Iterator<Item = Memory> {
        let serving = &steps.server.serving;
        let micro = n.div_ceil(microbatches.max(1));
        let rows = match steps.model.generates() {
            true => prompt.min(serving.most_tokens) as f64,
            false if serving.prompts_alone => prompt as f64,
            false => micro as f64 * prompt as f64,
        };
        let buffers = buffers(steps, rows, micro as f64);
        // An encoder keeps nothing: keys and values of a layer are among its activations.
        let bytes = if steps.model.generates() { n as f64 * steps.cache_bytes() } else { 0.0 };
        let tokens = prompt.saturating_add(generated);
        let of = move |held: &Held| bytes * held.kept(steps, tokens);
        self.0.iter().map(move |held| Memory { weights: held.weights, cache: of(held), buffers })
    }

    /// The same on the chip that has most.
    pub fn held(&self, steps: &Steps, tokens: (u64, u64), n: u64, microbatches: u64) -> Memory {
        fullest(self.memories(steps, tokens, n, microbatches), Memory::total)
    }

    /// Whether they fit.
    pub fn fit(&self, steps: &Steps, tokens: (u64, u64), n: u64, microbatches: u64) -> bool {
        let usable = steps.server.usable();
        let share = steps.server.serving.cache_share.0;
        self.memories(steps, tokens, n, microbatches).all(|m| {
            let free = usable - m.weights - m.buffers;
            free >= 0.0 && m.cache <= free * share
        })
    }

    /// Tokens of cache of a layer, mean over all layers, that the stage with least room has it for, beside buffers of so many rows and sequences; `None` where
    /// memory bounds nothing. A stage with more layers than others that see everything keeps as much more as it does of sequences of `tokens`.
    pub fn free(&self, steps: &Steps, tokens: u64, rows: f64, sequences: f64) -> Option<f64> {
        let usable = Some(steps.server.usable()).filter(|bytes| bytes.is_finite() && steps.model.generates())?;
        let buffers = buffers(steps, rows, sequences);
        let share = steps.server.serving.cache_share.0;
        let mean = kept(steps, tokens).max(f64::MIN_POSITIVE);
        let layers = |held: &Held| held.kept(steps, tokens) / mean;
        let of = |held: &Held| (usable - held.weights - buffers) * share / (layers(held) * steps.cache_bytes());
        Some(self.0.iter().filter(|held| held.layers > 0.0).map(of).fold(f64::INFINITY, f64::min).max(0.0))
    }

    /// The most of `share` sequences of a prompt and an answer that fit at once, in so many microbatches (at most one for each).
    pub fn room(&self, steps: &Steps, tokens: (u64, u64), share: u64, microbatches: u64) -> Room {
        let cut = |n: u64| microbatches.min(n).max(1);
        // Bytes grow with the sequences: the last that fits lies between `low` and `high`.
        let (mut low, mut high) = (0, share.saturating_add(1));
        while high - low > 1 {
            let n = low + (high - low) / 2;
            if self.fit(steps, tokens, n, cut(n)) { low = n } else { high = n }
        }
        let n = low.max(1);
        let share = steps.server.serving.cache_share.0.max(f64::MIN_POSITIVE);
        let needed = |m: &Memory| m.weights + m.buffers + m.cache / share;
        let m = fullest(self.memories(steps, tokens, n, cut(n)), needed);
        Room { weights: m.weights, buffers: m.buffers, sequence: m.cache / n as f64, sequences: low }
    }
}

/// Of the fullest.
fn fullest(all: impl Iterator<Item = Memory>, by: impl Fn(&Memory) -> f64) -> Memory {
    let fuller = |a: Memory, b: Memory| if by(&b) > by(&a) { b } else { a };
    all.reduce(fuller).unwrap_or_default()
}
