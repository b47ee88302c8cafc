//! Transformers of today as closed forms: what a language model consists of, and how many parameters, FLOP and bytes that is.
//!
//! A [`LanguageModel`] says what is computed and nothing of how: degrees, schedule, recomputation, and the bytes that follow from
//! them, are of `execution`. [`parameters`] counts weights by part, [`flop`] arithmetic by the conventions of the literature.
//! [`mod@graph`] gives the graph: embedding, layers and head as blocks, forward and backward.

mod check;
pub mod flop;
pub mod graph;
pub mod parameters;
pub mod spec;

pub use flop::{AttentionCount, FlopCount, MASKED, seen_in};
pub use graph::{is_gathering, is_of_expert};
pub use parameters::{LayerParameters, Parameters};
pub use spec::{
    Biases, DataType, Experts, Head, LanguageModel, LatentAttention, ModelPass, Norm, Patches, Position, QkNorm, Types,
    is_language_model,
};

#[cfg(test)]
pub(crate) mod tests;
