//! Actors on the cores of a chip.
//!
//! [`graph`] has actors and channels, [`cores`] processing elements and what a transfer between them takes, [`placement`] which
//! actor lies on which core and what follows. [`instance`] has the numbers of one problem, which the engines read: [`stations`] (the least
//! bottleneck of a chain of stages), [`chain`] (every objective over ideals or one order), [`pack`] (free placements), [`refine`] (moves and swaps), [`anneal`], [`milp`], [`around`] (bounds of transfers, with `frontier` and `cover`),
//! [`metis`]; [`solve`] runs them side by side, [`run`] as they are asked for, with [`replicas`]; [`stability`] draws the weights anew. [`spec`], [`import`] and
//! [`mod@file`] read and write; [`check`] derives a placement again and knows none of the engines. [`simulate`] runs the firings of a placement with bounded FIFOs; [`files`] are the mapping files of actor runtimes. This stands beside `mapping`: neither imports the other.

pub mod anneal;
pub mod around;
pub mod chain;
pub mod check;
pub mod cores;
mod cover;
pub mod feasible;
pub mod file;
pub mod files;
mod frontier;
pub mod graph;
pub mod ideals;
pub mod import;
pub mod instance;
pub mod metis;
pub mod milp;
pub mod pack;
pub mod placement;
pub mod refine;
pub mod replicas;
pub mod run;
pub mod simulate;
pub mod solve;
pub mod spec;
pub mod stability;
pub mod stations;
#[cfg(test)]
mod tests;

pub use cores::{Core, Cores};
pub use graph::{Actor, ActorGraph, Channel, Fixed, Kind, Work};
pub use instance::Request;
pub use placement::{Figures, Limit, Objective, Placement, Solved, limit};
