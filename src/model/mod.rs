//! The performance model: one equation a function, sizes and seconds in, seconds out. It knows nothing of searching.

pub mod attention_kernel;
pub mod collective;
pub mod compute;
pub mod dfmodel;
pub mod divisors;
pub mod energy;
pub mod kernel_time;
pub mod layout;
pub mod library;
pub mod memory;
pub mod objective;
pub mod ranks;
pub mod rate;
pub mod schedule;
pub mod stages;

pub use layout::{Layout, Strategy};
