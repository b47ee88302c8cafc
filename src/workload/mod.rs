//! Workloads: what is to be computed, as a directed acyclic graph of kernels and tensors.
//!
//! [`graph`] holds the checked graph and its meaning; one file a source builds it: [`transformer`] (the GPT layer), [`dlrm`], [`hpl`],
//! [`fft`], [`explicit`] (written out kernel by kernel). [`spec`] chooses between them by the `kind:` of a file.

mod builder;
pub mod dlrm;
pub mod explicit;
pub mod fft;
pub mod graph;
pub mod hpl;
pub mod spec;
pub mod transformer;

pub use graph::{
    Axis, Collective, CollectiveKind, Kernel, Op, Phase, Scope, Shape, Slot, Spread, Tensor, Use, Workload,
};
pub use spec::WorkloadSpec;
