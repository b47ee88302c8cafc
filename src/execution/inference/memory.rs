//! What serving holds in a chip's memory: weights, cache, buffers; and how many sequences fit.

use super::step::{Layout, Steps};
use crate::system::serving::CacheLayout;
use crate::workload::language::{LanguageModel, LayerParameters};
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

/// Weights on the fullest chip: layers divided among stages and tensor-parallel chips (whole heads of keys and values; routers, norms and what latent attention
/// compresses with are every chip's), experts among replicas too; embedding
/// and head divided among the tensor-parallel chips of the first and last stage (on one stage both), the embedding not where the software keeps it whole.
pub fn weights(model: &LanguageModel, layout: &Layout, whole_embedding: bool) -> f64 {
    let p = model.parameters();
    let (t, stages, ep) = (layout.tp as f64, layout.pp as f64, layout.ep as f64);
    let share = model.kv_heads().div_ceil(layout.tp.max(1)) as f64 / model.kv_heads() as f64;
    let layer = |l: &LayerParameters| {
        let divided = l.perceptron + l.biases + l.expert * (l.experts / ep + l.shared_experts);
        l.attention_on(t, share) + l.router + l.norms + divided / t
    };
    let layers = (p.dense_layers * layer(&p.dense_layer) + p.expert_layers * layer(&p.expert_layer)) / stages;
    // A table that is the head's too is divided with it.
    let whole = whole_embedding && !model.tied_embeddings;
    let table = if whole { p.embedding } else { p.embedding / t };
    let first = table + (p.positions + p.embedding_norm) / t;
    let own_head = if model.tied_embeddings && layout.pp > 1 { p.head_matrices } else { p.head };
    let last = (own_head + p.final_norm) / t;
    let ends = if layout.pp > 1 { first.max(last) } else { first + last };
    // Perceptrons and experts in a type of their own.
    let apart = (p.dense_layers * p.dense_layer.perceptron
        + p.expert_layers * p.expert_layer.expert * (p.expert_layer.experts / ep + p.expert_layer.shared_experts))
        / stages
        / t;
    let types = &model.types;
    let saved = types.perceptron.map_or(0.0, |own| apart * (types.weights.bytes() - own.bytes()));
    (layers + ends) * types.weights.bytes() - saved
}

/// Bytes of one sequence's keys and values on a chip, with the room the software gives it; an encoder keeps none, those of a layer are among its activations.
pub fn cache_of_sequence(steps: &Steps, tokens: u64) -> f64 {
    if !steps.model.generates() {
        return 0.0;
    }
    let room = steps.server.serving.reserved(tokens) as f64;
    // A window's cache need not hold more than it sees; a compiled graph has its one length.
    let compiled = steps.server.serving.cache == CacheLayout::Compiled;
    let room = steps.model.over_layers(|| room, |window| if compiled { room } else { room.min(window as f64) });
    room * steps.cache_bytes() * steps.model.layers as f64 / steps.layout.pp as f64
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

/// Bytes of `n` sequences at once on the fullest chip. The prompts of a microbatch may be read one after another, so that the rows
/// of one are held; an encoder goes through all of them in one pass, and holds their rows. Scores are held for every sequence of a microbatch.
pub fn held(steps: &Steps, (prompt, generated): (u64, u64), n: u64) -> Memory {
    let serving = &steps.server.serving;
    let micro = n.div_ceil(steps.layout.pp.max(1));
    let rows = match steps.model.generates() {
        true => prompt.min(serving.most_tokens) as f64,
        false if serving.prompts_alone => prompt as f64,
        false => micro as f64 * prompt as f64,
    };
    Memory {
        weights: weights(steps.model, &steps.layout, serving.whole_embedding),
        cache: n as f64 * cache_of_sequence(steps, prompt.saturating_add(generated)),
        buffers: buffers(steps, rows, micro as f64),
    }
}

/// The most of `share` sequences of a prompt and an answer that fit at once.
pub fn room(steps: &Steps, tokens: (u64, u64), share: u64) -> Room {
    let fits = |n: u64| {
        let m = held(steps, tokens, n);
        let free = steps.server.machine.capacity.unwrap_or(f64::INFINITY) - m.weights - m.buffers;
        free >= 0.0 && m.cache <= free * steps.server.serving.cache_share.0
    };
    // Bytes grow with the sequences: the last that fits lies between `low` and `high`.
    let (mut low, mut high) = (0, share.saturating_add(1));
    while high - low > 1 {
        let n = low + (high - low) / 2;
        if fits(n) { low = n } else { high = n }
    }
    let m = held(steps, tokens, low.max(1));
    Room { weights: m.weights, buffers: m.buffers, sequence: m.cache / low.max(1) as f64, sequences: low }
}
