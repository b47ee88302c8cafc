//! A placement: which actor on which core, with which FIFOs; and the record of the search that found it.

use crate::solver::record::{Status, relative_gap};
use serde::Serialize;

crate::choice! {
    /// What is minimised.
    pub enum Objective ("an objective") {
        /// Seconds an iteration of the slowest core.
        Bottleneck = "bottleneck",
        /// The slowest core's firings + the slowest core's local transfers + all transfers between cores (B3).
        Sum = "sum",
        /// The slowest core where transfers run beside firings: the larger of its firings and its transfers.
        PerCore = "per_core",
        /// Bytes that pass between cores, at a limited imbalance of the cores.
        Cut = "cut",
    }
}

/// What follows from a placement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Seconds of firings in one iteration, by core.
    pub busy_s: Vec<f64>,
    /// Seconds of transfers inside each core.
    pub local_s: Vec<f64>,
    /// Seconds of transfers that start or end at each core.
    pub port_s: Vec<f64>,
    /// Seconds of all transfers between cores.
    pub across_s: f64,
    /// Bytes that pass between cores in one iteration.
    pub cut_bytes: f64,
    /// Bytes of state and FIFOs, by core.
    pub memory_bytes: Vec<f64>,
    /// The largest of `busy_s`.
    pub bottleneck_s: f64,
    /// Largest over mean load of the cores.
    pub imbalance: f64,
    /// Whether the cores can be ordered so that every channel goes forward (a chain of stages).
    pub acyclic: bool,
    /// Cores that hold an actor.
    pub used: usize,
}

/// A placement of an actor graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Placement {
    /// Core of each actor.
    pub core_of: Vec<usize>,
    /// Tokens each channel holds at most.
    pub capacities: Vec<u64>,
    /// Copies of the graph side by side; the graph that `core_of` speaks of has them all written out.
    pub replicas: u64,
}

/// What one engine answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Solved {
    /// Its name.
    pub engine: &'static str,
    /// Core of each actor, where one was found.
    pub core_of: Option<Vec<usize>>,
    /// Objective: seconds, or bytes for the cut.
    pub objective: f64,
    /// No placement can be better than this.
    pub bound: f64,
    /// How it ended.
    pub status: Status,
    /// Seconds it took (for side records alone).
    pub seconds: f64,
}

impl Solved {
    /// (objective - bound) / objective.
    pub fn gap(&self) -> f64 {
        relative_gap(self.objective, self.bound)
    }
}
