//! The search for the best mapping.
//!
//! [`degrees`] lists the ways to give the network's dimensions to tensor, pipeline and data parallelism;
//! [`sharding`] is the MILP between chips; [`instance`] turns a workload, a system, degrees, sharding and a tile count
//! into the numbers of one fusion problem, which [`fusion`] solves as a MILP and [`exact`] as a shortest path;
//! [`solver`] runs MILPs; [`search`] ties them together and proves the best ([`request`]: what it is asked and answers).

mod alone;
pub mod amounts;
mod answer;
mod attempt;
pub mod best_first;
mod blocks;
pub mod cache;
mod certify;
pub mod chain;
pub mod compare;
pub mod cover;
pub mod degrees;
pub mod difference;
pub mod dominance;
pub mod elimination;
pub mod exact;
pub mod executions;
mod figures;
mod first_pass;
mod floor;
mod floor_sharded;
pub mod free;
pub mod fusion;
mod goal;
pub mod ideals;
pub mod instance;
mod joint;
mod known;
mod minsum;
mod partitions;
mod pricing;
mod reasons;
pub mod record;
pub mod relaxed;
mod remaining;
pub mod request;
mod rooms;
pub mod search;
pub mod sharding;
mod shelf;
pub mod shortage;
mod spread;
pub mod stages;
pub mod stages_milp;
pub mod tiling;
pub mod waits;
pub mod wide;
pub mod write_model;

pub use crate::solver;
pub use record::{Infeasible, SolveRecord, Status};
pub use request::{Answer, Objective, Request};
pub use search::{find, map};
