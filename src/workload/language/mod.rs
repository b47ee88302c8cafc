//! Transformers of today as closed forms: what a language model consists of, and how many parameters, FLOP and bytes that is.
//!
//! A [`LanguageModel`] says what is computed and nothing of how: degrees, schedule and recomputation are an
//! [`Execution`](crate::execution::Execution). [`parameters`] counts weights by part, [`flop`] arithmetic by the conventions of
//! the literature, [`activation`] the bytes that the backward pass needs, [`state`] the bytes of weights, gradients and
//! optimiser. [`mod@graph`] gives the graph of one layer where [`TransformerSpec`](super::transformer::TransformerSpec) has one.

pub mod activation;
mod check;
pub mod flop;
pub mod graph;
pub mod parameters;
pub mod spec;
pub mod state;

pub use activation::{ActivationPolicy, AttentionKernel};
pub use flop::{AttentionCount, FlopCount};
pub use parameters::{LayerParameters, Parameters};
pub use spec::{
    Biases, DataType, Experts, Head, LanguageModel, LatentAttention, ModelPass, Norm, Patches, Position, QkNorm, Types,
    is_language_model,
};
pub use state::StateBytes;

#[cfg(test)]
mod tests;
