//! From a recorded step to a workload.

pub mod coverage;
pub mod host;
pub mod program;
pub mod views;
