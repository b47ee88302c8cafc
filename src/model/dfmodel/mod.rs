//! DFModel's semantics: what its public code computes, generation by generation (docs/dfmodel.md). The switches that choose between
//! these and ours are `system/options.rs`; here is what they choose: what a kernel, a tensor and a collective cost ([`prices`]), and how the time
//! of an iteration follows from that of a layer ([`iteration`]).

pub mod iteration;
pub mod prices;
