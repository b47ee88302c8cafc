//! Bytes that a layer keeps for its backward pass.
//!
//! After Korthikanti et al. 2022 (arXiv 2205.05198, section 4): for s tokens, microbatch b, hidden h, a heads, tensor parallelism t
//! and words of 2 bytes a GPT layer with dropout keeps s b h (10 + 24/t + 5 a s/(h t)) bytes; under sequence parallelism the 10 is
//! divided by t too; selective recomputation drops the last term; full recomputation keeps the layer's input, 2 s b h. Here every
//! term is written by its tensor, so that gates, fewer key-value heads, latent attention and experts have theirs; with
//! GPT's sizes the sums are the paper's. Context parallelism divides the tokens of a chip.

use super::{Execution, Recompute};
use crate::workload::language::LanguageModel;

/// How the attention core runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionKernel {
    /// Scores, softmax and dropout each in memory.
    Materialised,
    /// One kernel that keeps a log-sum-exp of 4 bytes for each query and head and computes the scores again (Dao 2023, arXiv
    /// 2307.08691).
    Fused,
}

/// What decides how many bytes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivationPolicy {
    /// What is computed again.
    pub recompute: Recompute,
    /// Tensor parallelism.
    pub tp: u64,
    /// Context parallelism.
    pub cp: u64,
    /// Whether norms, dropouts and inputs of products are divided among the tensor-parallel chips.
    pub sequence_parallel: bool,
    /// How the attention core runs.
    pub attention: AttentionKernel,
}

impl ActivationPolicy {
    /// What an execution says.
    pub fn of(execution: &Execution, attention: AttentionKernel) -> Self {
        Self {
            recompute: execution.recompute,
            tp: execution.tp,
            cp: execution.cp,
            sequence_parallel: execution.sequence_parallel,
            attention,
        }
    }
}

/// Bytes of one layer and microbatch on one chip, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ActivationBytes {
    /// Inputs of the norms.
    pub norms: f64,
    /// Inputs of the products, which every tensor-parallel chip holds whole unless sequences are divided.
    pub product_inputs: f64,
    /// Queries, keys, values and the attention's output.
    pub attention: f64,
    /// Scores, softmax and its dropout; or log-sum-exps.
    pub scores: f64,
    /// Inside the perceptron or the experts.
    pub perceptron: f64,
    /// Masks of the two dropouts at the ends of attention and perceptron.
    pub masks: f64,
    /// The layer's input, where all else is computed again.
    pub checkpoint: f64,
}

impl ActivationBytes {
    /// All kinds.
    pub fn total(&self) -> f64 {
        self.norms + self.product_inputs + self.attention + self.scores + self.perceptron + self.masks + self.checkpoint
    }
}

impl LanguageModel {
    /// Bytes that one layer keeps for one microbatch of `samples` samples of `seq` tokens, on one chip.
    pub fn layer_activation_bytes(
        &self,
        with_experts: bool,
        seq: u64,
        samples: u64,
        policy: &ActivationPolicy,
    ) -> ActivationBytes {
        if self.head_alone {
            return ActivationBytes::default();
        }
        let word = self.types.activations.bytes();
        let (h, a, t) = (self.hidden as f64, self.heads as f64, policy.tp.max(1) as f64);
        let tokens = seq as f64 * samples as f64 / policy.cp.max(1) as f64;
        // Divided by t only under sequence parallelism.
        let whole = tokens / if policy.sequence_parallel { t } else { 1.0 };
        let divided = tokens / t;
        if policy.recompute == Recompute::Full {
            return ActivationBytes { checkpoint: whole * h * word, ..ActivationBytes::default() };
        }
        let norms = self.norms() as f64;
        // What the first two norms make is what products read; further ones end a branch.
        // Products with frozen weights read nothing backward: of their inputs what adapters of attention read is kept.
        let normed = if self.adapters.is_some() { norms.min(1.0) } else { norms.min(2.0) };
        let dropout = f64::from(u8::from(self.dropout));
        let width = self.query_width() as f64 + self.value_width() as f64;
        let kv = match self.latent_attention {
            Some(_) => a * width,
            // A chip keeps whole heads of keys and values.
            None => 2.0 * t * self.key_value_heads(policy.tp) * self.head_dim() as f64,
        };
        // Compressed queries, keys and values are small and every chip has them whole.
        let compressed = self.latent_attention.map_or(0.0, |l| (l.q_rank.unwrap_or(0) + l.kv_rank + l.rope_dim) as f64);
        // A norm of queries and keys keeps its inputs too.
        let crossing = self.crossing();
        let attention = (1.0 + crossing) * (a * width + kv + self.qk_norm_width() as f64);
        let scores = match (policy.recompute, policy.attention) {
            (Recompute::None, AttentionKernel::Materialised) => {
                a * seq as f64 * self.keys_per_token() * (word + dropout * (1.0 + word))
            }
            (Recompute::None, AttentionKernel::Fused) => 4.0 * a,
            _ => 0.0,
        } * (1.0 + crossing);
        // A plain perceptron keeps its width before and after the function, a gated one both factors and their product.
        let widths = (self.ffn_matrices() - u64::from(self.adapters.is_some())) as f64;
        let (inner, copies) = match self.experts.filter(|_| with_experts) {
            Some(e) => {
                let sent = e.top_k as f64 * e.capacity_factor.unwrap_or(1.0);
                // What is sent to the experts and what comes back before it is weighted.
                (sent * e.ffn as f64 + e.shared_width(), 2.0 * sent * h)
            }
            None => (self.ffn() as f64, 0.0),
        };
        ActivationBytes {
            norms: whole * (norms + crossing) * h * word,
            // What a decoder reads of the encoder is that one's alone.
            product_inputs: whole * ((normed + crossing) * h + copies) * word,
            attention: divided * attention * word + whole * compressed * word,
            scores: divided * scores,
            perceptron: divided * widths * inner * word,
            masks: whole * dropout * 2.0 * h,
            checkpoint: 0.0,
        }
    }

    /// Bytes that one layer keeps for one microbatch where all is computed again but the attention core and every second product: the layer's input, the
    /// core's output, half of the results of products.
    pub fn half_of_products_bytes(&self, with_experts: bool, seq: u64, samples: u64, policy: &ActivationPolicy) -> f64 {
        let word = self.types.activations.bytes();
        let (h, a, t) = (self.hidden as f64, self.heads as f64, policy.tp.max(1) as f64);
        let tokens = seq as f64 * samples as f64 / policy.cp.max(1) as f64;
        let whole = tokens / if policy.sequence_parallel { t } else { 1.0 };
        let divided = tokens / t;
        let (qk, v) = (self.query_width() as f64, self.value_width() as f64);
        let kv = match self.latent_attention {
            Some(_) => a * (qk + v),
            None => t * self.key_value_heads(policy.tp) * (qk + v),
        };
        let inner = match self.experts.filter(|_| with_experts) {
            Some(e) => e.top_k as f64 * e.capacity_factor.unwrap_or(1.0) * e.ffn as f64 + e.shared_width(),
            None => self.ffn() as f64,
        };
        let firsts = (self.ffn_matrices() - 1) as f64;
        let results = divided * (a * qk + kv + firsts * inner) + 2.0 * whole * h;
        (whole * h + divided * a * v + results / 2.0) * word + divided * 4.0 * a
    }

    /// Bytes that the embedding keeps for one microbatch: the mask of its dropout.
    pub fn embedding_activation_bytes(&self, seq: u64, samples: u64, policy: &ActivationPolicy) -> f64 {
        let tokens = seq as f64 * samples as f64 / policy.cp.max(1) as f64;
        let t = if policy.sequence_parallel { policy.tp.max(1) as f64 } else { 1.0 };
        if self.dropout && !self.head_alone { tokens * self.hidden as f64 / t } else { 0.0 }
    }

    /// Bytes that final norm and head keep for one microbatch: the inputs of both (of a head that is trained alone its own), and scores of 4 bytes for the loss,
    /// divided by words among the tensor-parallel chips.
    pub fn head_activation_bytes(&self, seq: u64, samples: u64, policy: &ActivationPolicy) -> f64 {
        let tokens = seq as f64 * samples as f64 / policy.cp.max(1) as f64;
        let t = policy.tp.max(1) as f64;
        let whole = if policy.sequence_parallel { t } else { 1.0 };
        let ends = if self.head_alone { 1.0 } else { 2.0 };
        let inputs = ends * self.hidden as f64 * self.types.activations.bytes() / whole;
        tokens * inputs + self.scored_tokens(tokens, samples as f64) * 4.0 * self.scored_outputs() as f64 / t
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::language::tests::{shipped, within};

    fn policy(recompute: Recompute, tp: u64, sequence_parallel: bool) -> ActivationPolicy {
        ActivationPolicy { recompute, tp, cp: 1, sequence_parallel, attention: AttentionKernel::Materialised }
    }

    /// Korthikanti et al. 2022, table 2: s b h times 10 + 24/t + 5as/ht, 34/t + 5as/ht, 10 + 24/t, 34/t and 2.
    #[test]
    fn activations_are_korthikantis() {
        let model = shipped("megatron-145.6b");
        let (s, b, h, a, t) = (2048.0, 3.0, 12288.0, 96.0, 8.0);
        let core = 5.0 * a * s / (h * t);
        for (recompute, parallel, expected) in [
            (Recompute::None, false, 10.0 + 24.0 / t + core),
            (Recompute::None, true, 34.0 / t + core),
            (Recompute::Selective, false, 10.0 + 24.0 / t),
            (Recompute::Selective, true, 34.0 / t),
            (Recompute::Full, false, 2.0),
            (Recompute::Full, true, 2.0 / t),
        ] {
            let found = model.layer_activation_bytes(false, 2048, 3, &policy(recompute, 8, parallel)).total();
            within(found, s * b * h * expected, 1e-12, &format!("{recompute} {parallel}"));
        }
        // Equation 5's ends: s b h / t for the embedding and 4 s b h (1 + v/h) / t for norm and head.
        let sp = policy(Recompute::None, 8, true);
        within(model.embedding_activation_bytes(2048, 3, &sp), s * b * h / t, 1e-12, "embedding");
        within(model.head_activation_bytes(2048, 3, &sp), 4.0 * s * b * h / t * (1.0 + 51200.0 / h), 1e-12, "head");
    }

    /// Llama 3 8B with a fused core, no dropout: norms 2 x 8192, inputs 2 x 8192, queries and output 2 x 8192, keys and values 2 x
    /// 2048, gate 3 x 28672, 4 bytes for each of 32 heads.
    #[test]
    fn activations_of_a_gated_layer_by_hand() {
        let model = shipped("llama3-8b");
        let fused = ActivationPolicy { attention: AttentionKernel::Fused, ..policy(Recompute::None, 1, false) };
        let bytes = model.layer_activation_bytes(false, 8192, 1, &fused).total();
        assert_eq!(bytes, 8192.0 * (6.0 * 8192.0 + 2.0 * 2048.0 + 3.0 * 28672.0 + 128.0));
        // A context of two chips has half of the tokens on each.
        let shared = model.layer_activation_bytes(false, 8192, 1, &ActivationPolicy { cp: 2, ..fused }).total();
        assert_eq!(shared, bytes / 2.0);
    }

    /// What Gemma 3's layer keeps beside Llama's: inputs of two norms more, and queries and keys before their norms.
    #[test]
    fn further_norms_keep_their_inputs() {
        let plain = shipped("llama3-8b");
        let normed = LanguageModel {
            norms_per_layer: Some(4),
            qk_norm: Some(crate::workload::language::QkNorm::Head),
            ..plain.clone()
        };
        let fused = ActivationPolicy { attention: AttentionKernel::Fused, ..policy(Recompute::None, 1, false) };
        let bytes = |model: &LanguageModel| model.layer_activation_bytes(false, 8192, 1, &fused).total();
        assert_eq!(bytes(&normed) - bytes(&plain), 8192.0 * 2.0 * (2.0 * 4096.0 + 4096.0 + 1024.0));
        // Two norms in a parallel block keep two inputs and make two.
        let parallel = |norms| LanguageModel { parallel_block: true, norms_per_layer: norms, ..plain.clone() };
        assert_eq!(bytes(&parallel(Some(2))) - bytes(&parallel(None)), 8192.0 * 2.0 * 2.0 * 4096.0);
    }
}
