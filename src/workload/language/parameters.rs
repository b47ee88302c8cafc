//! How many weights a language model has, part by part.
//!
//! With h the hidden size, a heads of d channels, g key-value heads, f the perceptron's width, m its matrices (2, gated 3):
//! attention h a d + 2 h g d + a d h; perceptron m h f; an expert layer m h f for each expert and shared expert, and a router
//! of h x experts. Latent attention (DeepSeek-V2, arXiv 2405.04434, eqs. 9-17): h q + q a (n + r) for queries, h (c + r) +
//! c a (n + v) for keys and values, a v h for the output, with two norms of q and c channels. All counts are numbers of weights.

use super::spec::{Biases, Head, LanguageModel, Norm, Position, QkNorm};

/// Weights of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerParameters {
    /// Matrices of the attention: queries, keys, values and output.
    pub attention: f64,
    /// Of `attention`, those that make keys and values by heads.
    pub key_value: f64,
    /// Of `attention`, those that make compressed vectors for all heads (latent attention).
    pub compressing: f64,
    /// Matrices of the plain perceptron; 0 in a layer with experts.
    pub perceptron: f64,
    /// Matrices of one expert; 0 in a plain layer.
    pub expert: f64,
    /// Experts that the router chooses among.
    pub experts: f64,
    /// Experts that every token takes, in units of one of the others by width.
    pub shared_experts: f64,
    /// Experts that a token is sent to.
    pub top_k: f64,
    /// Matrices of the experts, shared ones too, that one token is multiplied with.
    pub expert_matrices: f64,
    /// The router.
    pub router: f64,
    /// Gains and shifts of norms.
    pub norms: f64,
    /// Biases of linear maps outside experts.
    pub biases: f64,
}

impl LayerParameters {
    /// All weights of the layer.
    pub fn total(&self) -> f64 {
        self.dense() + self.expert * (self.experts + self.shared_experts)
    }

    /// Weights that one token meets.
    pub fn active(&self) -> f64 {
        self.dense() + self.expert * (self.top_k + self.shared_experts)
    }

    /// Of `attention` what one of `t` tensor-parallel chips has that makes a `share` of the keys and values ([`LanguageModel::key_value_share`]); vectors are
    /// compressed whole.
    pub fn attention_on(&self, t: f64, share: f64) -> f64 {
        self.attention / t + self.key_value * (share - 1.0 / t) + self.compressing * (1.0 - 1.0 / t)
    }

    /// Weights outside experts.
    pub fn dense(&self) -> f64 {
        self.attention + self.perceptron + self.router + self.norms + self.biases
    }

    /// Weights of matrices that one token is multiplied with.
    pub fn active_matrices(&self) -> f64 {
        self.attention + self.perceptron + self.router + self.expert_matrices
    }
}

/// Weights of a whole model.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parameters {
    /// Vectors of words, or the map from patches.
    pub embedding: f64,
    /// Learned positions, segments, the class token.
    pub positions: f64,
    /// Norm of the embedding.
    pub embedding_norm: f64,
    /// One plain layer.
    pub dense_layer: LayerParameters,
    /// Plain layers.
    pub dense_layers: f64,
    /// One layer with experts.
    pub expert_layer: LayerParameters,
    /// Layers with experts.
    pub expert_layers: f64,
    /// Norm after the last layer.
    pub final_norm: f64,
    /// Weights of the head that are not the embedding's.
    pub head: f64,
    /// Weights of the head's matrices, whether or not they are the embedding's.
    pub head_matrices: f64,
}

impl Parameters {
    /// All weights.
    pub fn total(&self) -> f64 {
        self.outside_layers() + self.layers()
    }

    /// Weights that one token meets, the whole embedding counted: what "active parameters" means in print.
    pub fn active(&self) -> f64 {
        self.outside_layers()
            + self.dense_layers * self.dense_layer.active()
            + self.expert_layers * self.expert_layer.active()
    }

    /// Weights of all layers.
    pub fn layers(&self) -> f64 {
        self.dense_layers * self.dense_layer.total() + self.expert_layers * self.expert_layer.total()
    }

    /// Weights before the first and after the last layer.
    pub fn outside_layers(&self) -> f64 {
        self.embedding + self.positions + self.embedding_norm + self.final_norm + self.head
    }

    /// Weights of matrices that one token is multiplied with in all layers.
    pub fn active_layer_matrices(&self) -> f64 {
        self.dense_layers * self.dense_layer.active_matrices()
            + self.expert_layers * self.expert_layer.active_matrices()
    }
}

impl LanguageModel {
    /// Weights of a norm over `width` channels.
    fn norm_parameters(&self, width: f64) -> f64 {
        let shifts = self.norm == Norm::Layer && self.norm_shifts.unwrap_or(self.biases == Biases::All);
        if shifts { 2.0 * width } else { width }
    }

    /// Weights of the attention's matrices, of its inner norms, and of its biases.
    fn attention_parameters(&self) -> (f64, f64, f64) {
        let (h, a) = (self.hidden as f64, self.heads as f64);
        match self.latent_attention {
            Some(l) => {
                let (c, r, n, v) = (l.kv_rank as f64, l.rope_dim as f64, l.nope_dim as f64, l.v_dim as f64);
                let (queries, q_norm) = match l.q_rank.map(|q| q as f64) {
                    Some(q) => (h * q + q * a * (n + r), self.norm_parameters(q)),
                    None => (h * a * (n + r), 0.0),
                };
                (queries + h * (c + r) + c * a * (n + v) + a * v * h, q_norm + self.norm_parameters(c), 0.0)
            }
            None => {
                let (d, g) = (self.head_dim() as f64, self.kv_heads() as f64);
                let qkv = a * d + 2.0 * g * d;
                let biases = match self.biases {
                    Biases::None | Biases::Perceptron => 0.0,
                    Biases::Qkv => qkv,
                    Biases::Attention | Biases::All => qkv + h,
                };
                let norms = match self.qk_norm {
                    None => 0.0,
                    Some(QkNorm::Head) => 2.0 * self.norm_parameters(d),
                    Some(QkNorm::Width) => self.norm_parameters(a * d) + self.norm_parameters(g * d),
                };
                let distances = if self.position == Position::Relative { h * a * d } else { 0.0 };
                (h * qkv + a * d * h + distances, norms, biases)
            }
        }
    }

    /// Weights of one layer, plain or with experts.
    pub fn layer_parameters(&self, with_experts: bool) -> LayerParameters {
        let h = self.hidden as f64;
        let matrices = self.ffn_matrices() as f64;
        let (attention, inner_norms, biases) = self.attention_parameters();
        // Of the layers that attend to an encoder the mean over all: the same matrices again, with a norm and biases.
        let crossing = self.crossing();
        let (attention, mut biases) = ((1.0 + crossing) * attention, (1.0 + crossing) * biases);
        let norms = (1.0 + crossing) * inner_norms + self.norm_parameters(h) * (self.norms() as f64 + crossing);
        // The first matrices have a bias for each channel of the width, the last one for each hidden channel.
        let biased = matches!(self.biases, Biases::Perceptron | Biases::All);
        let perceptron_biases = |f: f64| if biased { (matrices - 1.0) * f + h } else { 0.0 };
        let (key_value, compressing) = match self.latent_attention {
            Some(l) => (0.0, h * (l.q_rank.unwrap_or(0) + l.kv_rank + l.rope_dim) as f64),
            None => ((1.0 + crossing) * 2.0 * h * (self.kv_heads() * self.head_dim()) as f64, 0.0),
        };
        let layer = LayerParameters { attention, key_value, compressing, norms, ..LayerParameters::default() };
        match self.experts.filter(|_| with_experts) {
            Some(e) => {
                let f = e.ffn as f64;
                let one = |f: f64| matrices * h * f + perceptron_biases(f);
                if e.shared_gate {
                    biases += h;
                }
                if e.router_bias {
                    biases += e.count as f64;
                }
                LayerParameters {
                    expert: one(f),
                    experts: e.count as f64,
                    shared_experts: e.shared_experts(one),
                    top_k: e.top_k as f64,
                    expert_matrices: matrices * h * (e.top_k as f64 * f + e.shared_width()),
                    router: h * e.count as f64,
                    biases,
                    ..layer
                }
            }
            None => {
                let f = self.ffn() as f64;
                biases += perceptron_biases(f);
                LayerParameters { perceptron: matrices * h * f, biases, ..layer }
            }
        }
    }

    /// Heads of keys and values that one of `tp` tensor-parallel chips has: whole ones, and at least one.
    pub fn key_value_heads(&self, tp: u64) -> f64 {
        self.kv_heads().div_ceil(tp.max(1)) as f64
    }

    /// The same as a share of all.
    pub fn key_value_share(&self, tp: u64) -> f64 {
        self.key_value_heads(tp) / self.kv_heads() as f64
    }

    /// Weights of the whole model.
    pub fn parameters(&self) -> Parameters {
        let (h, width) = (self.hidden as f64, self.embedding_width() as f64);
        let embedding = match (self.patches, self.vocab) {
            (Some(p), _) => (p.size * p.size * p.channels) as f64 * h + h,
            // Narrower words have a map to the hidden channels.
            (None, vocab) => vocab.unwrap_or(0) as f64 * width + if width == h { 0.0 } else { width * h },
        };
        let learned =
            if self.position == Position::Learned { self.max_positions.unwrap_or(self.seq) as f64 * h } else { 0.0 };
        let class_token = if self.patches.is_some_and(|p| p.class_token) { h } else { 0.0 };
        let positions = learned + class_token + self.token_types.unwrap_or(0) as f64 * h;
        let outputs = self.head_outputs() as f64;
        let own = if self.tied_embeddings { 0.0 } else { width * outputs };
        let (head, head_matrices) = match self.head {
            Head::Vocabulary => {
                let back = if width == h { 0.0 } else { h * width };
                (own + back + if self.head_bias { outputs } else { 0.0 }, width * self.scored_outputs() as f64 + back)
            }
            Head::MaskedTokens => (h * h + h + self.norm_parameters(h) + own + outputs, h * h + h * outputs),
            Head::Pooler => (h * h + h, h * h),
            Head::Classes => (h * outputs + outputs, h * outputs),
            Head::None => (0.0, 0.0),
        };
        Parameters {
            embedding,
            positions,
            embedding_norm: if self.embedding_norm { self.norm_parameters(h) } else { 0.0 },
            dense_layer: self.layer_parameters(false),
            dense_layers: self.dense_layers() as f64,
            expert_layer: if self.expert_layers() > 0 {
                self.layer_parameters(true)
            } else {
                LayerParameters::default()
            },
            expert_layers: self.expert_layers() as f64,
            final_norm: if self.final_norm { self.norm_parameters(h) } else { 0.0 },
            head,
            head_matrices,
        }
    }
}
