//! From a recorded step to a workload.

pub mod program;
pub mod views;
