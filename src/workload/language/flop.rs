//! Arithmetic of a language model: what has to be computed, and what the literature counts when it prints a rate.
//!
//! Printed rates differ by what they count, so that one time makes several figures: [`FlopCount`] names each convention after
//! the paper that defines it. All results are FLOP.

use super::parameters::LayerParameters;
use super::spec::{Head, LanguageModel};

/// Which products of queries with keys are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionCount {
    /// None.
    None,
    /// Those that the mask leaves: what a kernel that skips the rest computes.
    Masked,
    /// All of the square, as most papers count.
    Full,
}

/// What a printed rate counts for one training sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlopCount {
    /// 96 B s l h^2 (1 + s/6h + V/16lh): forward twice, backward; layers of 12 h^2 weights (Narayanan et al. 2021, arXiv
    /// 2104.04473, eq. 3). Training with full recomputation.
    MegatronRecomputed,
    /// 72 B s l h^2 (1 + s/6h + V/12lh): the same without recomputation (Korthikanti et al. 2022, arXiv 2205.05198, eq. 7): model FLOP.
    MegatronModel,
    /// 72 B s l h^2 (1 + s/3h + V/12lh): the attention core once more (the same, eq. 8): hardware FLOP of selective recomputation.
    MegatronSelective,
    /// B s (6 N + 12 l a d s): Chowdhery et al. 2022, arXiv 2204.02311, appendix B; N are the active weights.
    PalmModel,
    /// Three times the products of the forward pass with the weights, head included and embedding not, and the whole square of
    /// attention: the count of MaxText and of most current training loops.
    Products,
    /// The same with the part of the square that the mask leaves.
    MaskedProducts,
    /// The same without the gates of perceptrons and with half of the square in every layer: what Megatron-Bridge counts of a gate whose function is not
    /// SiLU (its `flop_utils.py` takes three matrices for SiLU's gates and two for all else; windows were not looked at until late 2026).
    UngatedProducts,
}

/// Share of the tokens whose words a masked language model predicts (Devlin et al. 2018, arXiv 1810.04805, section 3.1).
pub const MASKED: f64 = 0.15;

/// Tokens that `n` tokens after `from` others see, each those before it and itself, no more than a window: from + 1, from + 2, ... up to it, then the window.
pub fn seen_in(window: f64, from: f64, n: f64) -> f64 {
    let growing = (window - from).clamp(0.0, n);
    growing * from + growing * (growing + 1.0) / 2.0 + if growing < n { (n - growing) * window } else { 0.0 }
}

impl LanguageModel {
    /// Mean number of tokens that one of `seq` tokens sees, over all attention of all layers: what a decoder sees of an encoder's source is all of it.
    pub fn mean_attended(&self, seq: u64, count: AttentionCount) -> f64 {
        let source = if count == AttentionCount::None { 0.0 } else { seq as f64 };
        (self.own_attended(seq, count) + self.crossing() * source) / (1.0 + self.crossing())
    }

    /// Of the layers, the part whose tokens see no later ones: not those of an encoder.
    pub fn masked_layers(&self) -> f64 {
        let decoding = if self.encoder_layers.is_some() { self.crossing() } else { 1.0 };
        if self.causal { decoding } else { 0.0 }
    }

    /// The same of the tokens of its own sequence alone.
    pub fn own_attended(&self, seq: u64, count: AttentionCount) -> f64 {
        match count {
            AttentionCount::None => 0.0,
            AttentionCount::Full => self.segment_memory.unwrap_or(0) as f64 + seq as f64,
            AttentionCount::Masked => {
                self.over_layers(|| self.attended_within(seq, seq), |window| self.attended_within(seq, window))
            }
        }
    }

    /// Tokens of its own sequence, and of the segment before, that a token of a layer sees in the mean where the layer sees `window` tokens.
    pub fn attended_within(&self, seq: u64, window: u64) -> f64 {
        let (s, part) = (seq as f64, self.masked_layers());
        let window = window.min(seq) as f64;
        let masked = match part == 0.0 || s == 0.0 {
            true => window,
            false => part * seen_in(window, 0.0, s) / s + (1.0 - part) * window,
        };
        self.segment_memory.unwrap_or(0) as f64 + masked
    }

    /// FLOP of the products of queries with keys and of weights with values, for one token that sees `attended` tokens, all layers.
    pub fn attention_flop_per_token(&self, attended: f64) -> f64 {
        let width = self.query_width() as f64 + self.value_width() as f64;
        2.0 * (1.0 + self.crossing()) * self.layers as f64 * self.heads as f64 * width * attended
    }

    /// FLOP of the head for one sample of `seq` tokens.
    pub fn head_flop_per_sample(&self, seq: u64) -> f64 {
        let matrices = self.parameters().head_matrices;
        let tokens = if matches!(self.head, Head::Classes | Head::Pooler) { 1.0 } else { seq as f64 };
        2.0 * matrices * tokens
    }

    /// Of the head's products the share of its first matrix, before which nothing may be trained.
    fn first_of_head(&self) -> f64 {
        let (all, hidden) = (self.parameters().head_matrices, self.hidden as f64);
        let first = match (self.head, self.narrow_embedding()) {
            (Head::MaskedTokens | Head::Pooler, _) => hidden * hidden,
            (_, Some(width)) => hidden * width as f64,
            _ => all,
        };
        if all > 0.0 { first / all } else { 0.0 }
    }

    /// FLOP of the map from words' vectors to the hidden channels, for one token; 0 where they are as wide.
    fn widening_flop_per_token(&self) -> f64 {
        self.narrow_embedding().map_or(0.0, |width| 2.0 * width as f64 * self.hidden as f64)
    }

    /// FLOP of the forward pass of one sample of `seq` tokens: products with weights (2 FLOP a weight and token; the embedding is
    /// a look-up), products of attention, and the head.
    pub fn forward_flop_per_sample(&self, seq: u64, count: AttentionCount) -> f64 {
        let s = seq as f64;
        let weights = 2.0 * self.parameters().active_layer_matrices() * s;
        let patches = self.patches.map_or(0.0, |p| {
            2.0 * (p.size * p.size * p.channels) as f64
                * self.hidden as f64
                * (p.tokens() - u64::from(p.class_token)) as f64
        });
        let attention = self.attention_flop_per_token(self.mean_attended(seq, count)) * s;
        weights + patches + self.widening_flop_per_token() * s + attention + self.head_flop_per_sample(seq)
    }

    /// FLOP of the same for one token of generation: latent attention multiplies queries with compressed keys, and adds up compressed values.
    pub fn step_attention_flop(&self, attended: f64) -> f64 {
        2.0 * (self.layers * self.heads * self.step_width()) as f64 * attended
    }

    /// Channels of a head that a token of generation multiplies with each one that it sees.
    pub fn step_width(&self) -> u64 {
        match self.latent_attention {
            Some(l) => 2 * l.kv_rank + l.rope_dim,
            None => self.query_width() + self.value_width(),
        }
    }

    /// FLOP of the forward pass for one token after `context` tokens, head included: one step of generation.
    pub fn decode_flop_per_token(&self, context: u64) -> f64 {
        let seen = context.saturating_add(1);
        let seen = self.over_layers(|| seen as f64, |window| window.min(seen) as f64);
        2.0 * self.parameters().active_layer_matrices()
            + self.step_attention_flop(seen)
            + self.widening_flop_per_token()
            + self.head_flop_per_sample(1)
    }

    /// FLOP that an iteration needs for one sample, nothing computed again: of what the mask leaves three times the forward pass, where all weights are
    /// trained. Frozen weights have no gradients: with adapters (whose own products are left out) products are needed twice and attention three times; before a
    /// head that is trained alone nothing is needed backward, of its own products their weights' gradients and between its matrices those of the inputs. A masked
    /// language model scores the tokens that it predicts ([`MASKED`]).
    pub fn needed_flop_per_sample(&self) -> f64 {
        let seq = self.seq;
        let all = self.head_flop_per_sample(seq);
        let head = if self.head == Head::MaskedTokens { MASKED * all } else { all };
        let forward = self.forward_flop_per_sample(seq, AttentionCount::Masked) - all + head;
        let attended = self.mean_attended(seq, AttentionCount::Masked);
        match (self.head_alone, self.adapters.is_some()) {
            (true, _) => forward + head * (2.0 - self.first_of_head()),
            (_, true) => 2.0 * forward + self.attention_flop_per_token(attended) * seq as f64,
            _ => 3.0 * forward,
        }
    }

    /// FLOP of training one sample of `seq` tokens as `count` counts them.
    pub fn training_flop_per_sample(&self, seq: u64, count: FlopCount) -> f64 {
        let (s, l, h) = (seq as f64, self.layers as f64, self.hidden as f64);
        let vocab = self.head_outputs() as f64;
        let layers = s * l * h * h;
        match count {
            FlopCount::MegatronRecomputed => 96.0 * layers * (1.0 + s / (6.0 * h) + vocab / (16.0 * l * h)),
            FlopCount::MegatronModel => 72.0 * layers * (1.0 + s / (6.0 * h) + vocab / (12.0 * l * h)),
            FlopCount::MegatronSelective => 72.0 * layers * (1.0 + s / (3.0 * h) + vocab / (12.0 * l * h)),
            FlopCount::PalmModel => {
                let attention = 3.0 * self.attention_flop_per_token(s);
                s * (6.0 * self.parameters().active() + attention)
            }
            FlopCount::Products => 3.0 * self.forward_flop_per_sample(seq, AttentionCount::Full),
            FlopCount::MaskedProducts => 3.0 * self.forward_flop_per_sample(seq, AttentionCount::Masked),
            FlopCount::UngatedProducts => {
                let p = self.parameters();
                let perceptrons = |of: &LayerParameters| of.perceptron + of.expert * (of.top_k + of.shared_experts);
                let branches =
                    p.dense_layers * perceptrons(&p.dense_layer) + p.expert_layers * perceptrons(&p.expert_layer);
                let gates = if self.gated { 2.0 * branches / self.ffn_matrices() as f64 } else { 0.0 };
                let masked = if self.causal { 0.5 } else { 1.0 };
                let attention = self.attention_flop_per_token(masked * s);
                3.0 * (self.forward_flop_per_sample(seq, AttentionCount::None) + s * (attention - gates))
            }
        }
    }
}
