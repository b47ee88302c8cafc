//! What every solve reports.

use crate::deadline::is_interrupted;
use serde::Serialize;

crate::choice! {
    /// How a solve ended.
    pub enum Status ("a status") {
        /// Proven best within the gap asked for.
        Optimal = "optimal",
        /// Stopped at the limit of seconds, with the best plan found and its gap.
        TimeLimit = "time_limit",
        /// Stopped by the user (Ctrl-C), with the best plan found and its gap.
        Interrupted = "interrupted",
        /// Stopped at the limit of nodes, with the best plan found and its gap.
        NodeLimit = "node_limit",
        /// Best for a search that took some costs to be free (`solve.blind_to` of a study), not for all of them.
        Blind = "blind",
        /// No plan exists.
        Infeasible = "infeasible",
    }
}

impl Status {
    /// The status of what a deadline stopped.
    pub fn out_of_time() -> Self {
        if is_interrupted() { Self::Interrupted } else { Self::TimeLimit }
    }
}

/// The record of a solve (design section 6.6).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SolveRecord {
    /// How it ended.
    pub status: Status,
    /// Objective of the best plan found.
    pub objective: f64,
    /// No plan can be better than this.
    pub bound: f64,
    /// Branch-and-bound nodes; `None` where the solver does not tell.
    pub nodes: Option<u64>,
    /// Seconds it took.
    pub seconds: f64,
}

impl SolveRecord {
    /// (objective - bound) / objective.
    pub fn gap(&self) -> f64 {
        relative_gap(self.objective, self.bound)
    }
}

impl SolveRecord {
    /// The record of two independent problems solved one after the other: sums, and the worse status.
    pub fn and(&self, other: &Self) -> Self {
        let rank = |s: Status| match s {
            Status::Optimal => 0,
            Status::NodeLimit => 1,
            Status::TimeLimit => 2,
            Status::Interrupted => 3,
            Status::Blind => 4,
            Status::Infeasible => 5,
        };
        Self {
            status: if rank(self.status) >= rank(other.status) { self.status } else { other.status },
            objective: self.objective + other.objective,
            bound: self.bound + other.bound,
            nodes: self.nodes.zip(other.nodes).map(|(a, b)| a + b),
            seconds: self.seconds + other.seconds,
        }
    }
}

/// (objective - bound) / objective, zero where both are zero.
pub fn relative_gap(objective: f64, bound: f64) -> f64 {
    if objective == bound || objective.abs() < f64::MIN_POSITIVE {
        0.0
    } else {
        ((objective - bound) / objective.abs()).max(0.0)
    }
}
