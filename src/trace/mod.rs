//! Recorded traces: Chakra, PyTorch and Kineto, and what is made of them.

pub mod schema;
