//! Bytes that a layer keeps for its backward pass.
//!
//! After Korthikanti et al. 2022 (arXiv 2205.05198, section 4): for s tokens, microbatch b, hidden h, a heads, tensor parallelism t
//! and words of 2 bytes a GPT layer with dropout keeps s b h (10 + 24/t + 5 a s/(h t)) bytes; under sequence parallelism the 10 is
//! divided by t too; selective recomputation drops the last term; full recomputation keeps the layer's input, 2 s b h. Here every
//! term is written by its tensor, so that gates, fewer key-value heads, latent attention and experts have theirs; with
//! GPT's sizes the sums are the paper's. Context parallelism divides the tokens of a chip.

use super::spec::LanguageModel;
use crate::execution::{Execution, Recompute, Schedule};

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
        let normed = norms.min(2.0);
        let dropout = f64::from(u8::from(self.dropout));
        let width = self.query_width() as f64 + self.value_width() as f64;
        let kv = match self.latent_attention {
            Some(_) => a * width,
            None => 2.0 * self.kv_heads() as f64 * self.head_dim() as f64,
        };
        // Compressed queries, keys and values are small and every chip has them whole.
        let compressed = self.latent_attention.map_or(0.0, |l| (l.q_rank.unwrap_or(0) + l.kv_rank + l.rope_dim) as f64);
        // A norm of queries and keys keeps its inputs too.
        let attention = a * width + kv + self.qk_norm_width() as f64;
        let scores = match (policy.recompute, policy.attention) {
            (Recompute::None, AttentionKernel::Materialised) => a * seq as f64 * (word + dropout * (1.0 + word)),
            (Recompute::None, AttentionKernel::Fused) => 4.0 * a,
            _ => 0.0,
        };
        // A plain perceptron keeps its width before and after the function, a gated one both factors and their product.
        let widths = self.ffn_matrices() as f64;
        let (inner, copies) = match self.experts.filter(|_| with_experts) {
            Some(e) => {
                let sent = e.top_k as f64 * e.capacity_factor.unwrap_or(1.0);
                // What is sent to the experts and what comes back before it is weighted.
                (sent * e.ffn as f64 + e.shared_width(), 2.0 * sent * h)
            }
            None => (self.ffn() as f64, 0.0),
        };
        ActivationBytes {
            norms: whole * norms * h * word,
            product_inputs: whole * (normed * h + copies) * word,
            attention: divided * attention * word + whole * compressed * word,
            scores: divided * scores,
            perceptron: divided * widths * inner * word,
            masks: whole * dropout * 2.0 * h,
            checkpoint: 0.0,
        }
    }

    /// Bytes that the embedding keeps for one microbatch: the mask of its dropout.
    pub fn embedding_activation_bytes(&self, seq: u64, samples: u64, policy: &ActivationPolicy) -> f64 {
        let tokens = seq as f64 * samples as f64 / policy.cp.max(1) as f64;
        let t = if policy.sequence_parallel { policy.tp.max(1) as f64 } else { 1.0 };
        if self.dropout { tokens * self.hidden as f64 / t } else { 0.0 }
    }

    /// Bytes that final norm and head keep for one microbatch: the inputs of both, and scores of 4 bytes for the loss, divided by
    /// words among the tensor-parallel chips.
    pub fn head_activation_bytes(&self, seq: u64, samples: u64, policy: &ActivationPolicy) -> f64 {
        let tokens = seq as f64 * samples as f64 / policy.cp.max(1) as f64;
        let t = policy.tp.max(1) as f64;
        let whole = if policy.sequence_parallel { t } else { 1.0 };
        let inputs = 2.0 * self.hidden as f64 * self.types.activations.bytes() / whole;
        tokens * (inputs + 4.0 * self.head_outputs() as f64 / t)
    }
}

/// Microbatches whose activations the first stage holds at once, in units of all layers of the stage, of `microbatches`.
///
/// 1F1B and zero bubble: min(pp, microbatches). Interleaved: pp (1 + (pp - 1)/(pp chunks)) (Korthikanti et al. 2022, section
/// 4.2.3), never more than all. GPipe: all.
pub fn passes_in_flight(execution: &Execution, microbatches: u64) -> f64 {
    let (p, n, v) = (execution.pp as f64, microbatches as f64, execution.chunks.max(1) as f64);
    match execution.schedule {
        Schedule::GPipe => n,
        Schedule::OneForwardOneBackward | Schedule::ZeroBubble => p.min(n),
        Schedule::Interleaved => (p * (1.0 + (p - 1.0) / (p * v))).min(n),
    }
}
