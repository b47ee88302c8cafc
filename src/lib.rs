//! flowspace explores the design space of large machine-learning and HPC systems: a workload and a system in, the
//! provably best mapping out. `ARCHITECTURE.md` is the map of the house.
//!
//! ```
//! use flowspace::mapping::{Answer, Request, Status, map};
//! use flowspace::{check, system::System, workload::WorkloadSpec};
//!
//! let workload = WorkloadSpec::build(&WorkloadSpec::load("workloads/gpt3-175b-forward.yaml".as_ref())?)?;
//! let system = System::build(&System::load("systems/sn10-8-torus-2d.yaml".as_ref())?)?;
//! match map(&workload, &system, &Request::default())? {
//!     Answer::Mapped(plan, record) => {
//!         assert_eq!(record.status, Status::Optimal);
//!         check::verify(&plan)?; // derives every figure again from the decisions alone
//!         assert_eq!(plan.figures.tp * plan.figures.pp * plan.figures.dp, 8);
//!     }
//!     Answer::Infeasible(reason) => println!("{reason}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod cli;
pub mod deadline;
pub mod execution;
pub mod explain;
pub mod graph;
pub mod import;
pub mod mapping;
pub mod model;
pub mod place;
pub mod plan;
pub mod progress;
pub mod report;
pub mod solver;
pub mod spec;
pub mod study;
pub mod system;
pub mod trace;
pub mod units;
pub mod validate;
pub mod workload;
