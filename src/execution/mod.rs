//! Executions of a language model: how one training step or one pass of inference is laid out over chips and time, and how long
//! that takes.
//!
//! [`spec`] is what a file says, [`machine`] the system as plain numbers. From small to large: [`layer`] lists the kernels of one layer,
//! [`communication`] what chips send each other, [`policy`] puts both together for one microbatch and software stack, [`block`] is what the rest knows of it,
//! whoever answers, [`schedule`] makes stages and an iteration of it, [`activation`] what a layer keeps for its backward pass, [`state`] bytes of weights, gradients and optimiser,
//! [`memory`] what must be held, [`energy`] what an iteration draws, [`predict`](mod@predict) the whole with its parts by name. [`search`](mod@search) finds the best execution, with proof. [`inference`] is the same for
//! serving, [`single_kernel`] for microbenchmarks.

pub mod activation;
pub mod block;
mod cells;
pub mod communication;
pub mod energy;
pub mod file;
pub mod inference;
pub mod layer;
pub mod machine;
pub mod mapping;
pub mod memory;
pub mod passes;
pub mod policy;
pub mod possible;
pub mod predict;
pub mod schedule;
pub mod search;
pub mod single_kernel;
pub mod spec;
pub mod state;

pub use activation::{ActivationPolicy, AttentionKernel};
pub use file::ExecutionFile;
pub use machine::Machine;
pub use predict::{Prediction, Refusal, predict};
pub use search::{Found, Pins, not_within, search};
pub use spec::{Execution, Offload, Recompute, Schedule, Zero};
pub use state::StateBytes;

#[cfg(test)]
mod tests;
