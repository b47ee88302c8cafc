//! Bytes of weights, cache and buffers of a chip of every stage, derived again (docs/serving.md, "Memory").

use super::Served;
use crate::execution::inference::Memory;
use crate::system::serving::CacheLayout;
use crate::workload::language::{DataType, Head, LayerParameters};

impl Served<'_> {
    /// Tokens of a sequence that a layer's cache has room for, mean over the layers.
    pub(super) fn kept(&self) -> f64 {
        let [whole, windowed] = self.kept_of();
        self.model.over_layers(|| whole, |_| windowed)
    }

    /// Tokens that a layer keeps which sees the whole context, and one with a window.
    fn kept_of(&self) -> [f64; 2] {
        let (model, s) = (self.model, &self.serving);
        let room = s.reserved(model.seq.saturating_add(model.generated.unwrap_or(0))) as f64;
        match model.window {
            Some(window) if s.cache != CacheLayout::Compiled => [room, room.min(window as f64)],
            _ => [room, room],
        }
    }

    /// Tokens that the layers of each stage keep, all together.
    fn kept_by_stage(&self) -> Vec<f64> {
        let [whole, windowed] = self.kept_of();
        let mut before = 0;
        let of = |[plain, with_experts]: [u64; 2]| {
            let (begin, end) = (before, before + plain + with_experts);
            before = end;
            let full = self.model.full_layers_before(end) - self.model.full_layers_before(begin);
            full as f64 * whole + (end - begin - full) as f64 * windowed
        };
        self.layers().into_iter().map(of).collect()
    }

    /// Bytes of a chip of every stage with `n` sequences at once in so many microbatches.
    pub(super) fn memories(&self, n: u64, microbatches: u64) -> Vec<Memory> {
        let (model, s, t, pp) = (self.model, &self.serving, self.t, self.layout.pp as usize);
        let p = model.parameters();
        let types = &model.types;
        let word = types.weights.bytes();
        let of_ends = types.ends(s.narrow_ends).bytes();
        let perceptron = types.perceptron.map_or(word, DataType::bytes);
        let experts =
            p.expert_layer.expert * (p.expert_layer.experts / self.layout.ep as f64 + p.expert_layer.shared_experts);
        // Keys and values by whole heads; compressed vectors, routers and norms are every chip's.
        let of_attention = |l: &LayerParameters| {
            let by_heads = if model.latent_attention.is_some() { 0.0 } else { l.key_value };
            let divided = l.attention - by_heads - l.compressing;
            divided / t
                + by_heads * self.kv / model.kv_heads() as f64
                + l.compressing
                + l.router
                + l.norms
                + l.biases / t
        };
        let of_dense = of_attention(&p.dense_layer) * word + p.dense_layer.perceptron * perceptron / t;
        let of_experts = of_attention(&p.expert_layer) * word + experts * perceptron / t;
        let divided = if s.whole_embedding && !model.tied_embeddings { 1.0 } else { t };
        let weights = |stage: usize, [plain, with_experts]: [u64; 2]| {
            let (first, last) = (stage == 0, stage + 1 == pp);
            let layers = plain as f64 * of_dense + with_experts as f64 * of_experts;
            // A table that is the head's too is there once on one stage, and on both ends of several.
            let own_head = if model.tied_embeddings && !first { p.head_matrices } else { p.head };
            let begin = if first { p.embedding / divided + (p.positions + p.embedding_norm) / t } else { 0.0 };
            layers + of_ends * (begin + if last { (own_head + p.final_norm) / t } else { 0.0 })
        };
        // What no next word is asked of keeps nothing from layer to layer, and holds all that goes through them together.
        let encodes = model.head != Head::Vocabulary;
        let of_token = if encodes { 0.0 } else { n as f64 * self.token_bytes() };
        let kept = self.kept_by_stage();
        let (into, a) = (if model.gated { 2.0 } else { 1.0 }, types.activations.bytes());
        let channels = match model.experts {
            Some(e) => (e.ffn * e.top_k) as f64 + e.shared_width(),
            None => model.ffn() as f64,
        };
        let heads = model.heads as f64 * (model.query_width() + 2 * model.value_width()) as f64;
        let of_microbatch = n.div_ceil(microbatches);
        let together = if s.prompts_alone { 1 } else { of_microbatch };
        let rows = if encodes { together as f64 * model.seq as f64 } else { model.seq.min(s.most_tokens) as f64 };
        let widest = 2.0 * model.hidden as f64 + (into * channels).max(heads) / t;
        let scores = 4.0 * of_microbatch as f64 * model.head_outputs() as f64 / t;
        let software = self.machine.stack.memory_reserve.0 + (t - 1.0) * s.peer_memory.0;
        let of = |(stage, layers): (usize, [u64; 2])| Memory {
            weights: weights(stage, layers),
            cache: of_token * kept.get(stage).copied().unwrap_or(0.0),
            buffers: rows * widest * a + scores + software,
        };
        self.layers().into_iter().enumerate().map(of).collect()
    }
}
