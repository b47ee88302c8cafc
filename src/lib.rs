//! flowspace
#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod cli;
pub mod mapping;
pub mod model;
pub mod plan;
pub mod report;
pub mod spec;
pub mod study;
pub mod system;
pub mod units;
pub mod workload;
