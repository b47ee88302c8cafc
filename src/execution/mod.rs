//! Executions of a language model: how one training step or one pass of inference is laid out over chips and time.

pub mod spec;

pub use spec::{Execution, ExecutionFile, Offload, Recompute, Schedule, Zero};
