//! Workloads: where the graph of kernels and tensors ([`crate::graph`]) comes from.
//!
//! One file a source builds it: [`language`] (transformers with embedding and head, as graph and as closed forms), [`dfmodel_layer`] (the layer that DFModel's
//! rows are of), [`mamba`] and [`hyena`] (state-space models), [`dlrm`], [`residual`] (convolutions), [`hpl`], [`fft`],
//! [`huggingface`] (their `config.json` as language models), [`explicit`] (written out kernel by kernel), [`trace`] (recorded). [`mod@write`] writes any graph out kernel by kernel.
//! [`spec`] chooses between them by the `kind:` of a file.

mod builder;
pub mod dfmodel_layer;
pub mod dlrm;
pub mod explicit;
pub mod fft;
pub mod hpl;
pub mod huggingface;
pub mod hyena;
pub mod language;
pub mod mamba;
pub mod residual;
pub mod spec;
pub mod trace;
pub mod write;

pub use crate::graph::{
    Axis, Block, Collective, CollectiveKind, Kernel, Op, Phase, Scope, Shape, Slot, Spread, Tensor, Use, Workload,
};
pub use spec::WorkloadSpec;
