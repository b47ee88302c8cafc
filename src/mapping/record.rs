//! Why there is no plan; what every solve reports is [`crate::solver::record`].

pub use crate::solver::record::{SolveRecord, Status, relative_gap};
use serde::Serialize;

/// Why a point has no plan: what is short, by how much, and what would mend it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Infeasible {
    /// What is short: `sram`, `dram`, `layers`, `batch`, `heads`, `degrees`.
    pub resource: String,
    /// How much is needed.
    pub needed: f64,
    /// How much there is.
    pub available: f64,
    /// Unit of both.
    pub unit: String,
    /// What would mend it.
    pub remedy: String,
}

impl std::fmt::Display for Infeasible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.unit == "bytes" && self.needed > self.available {
            let (needed, available) = (crate::units::Bytes(self.needed), crate::units::Bytes(self.available));
            write!(f, "infeasible: {} short: needs {needed}, has {available}; {}", self.resource, self.remedy)
        } else {
            write!(f, "infeasible ({}): {}", self.resource, self.remedy)
        }
    }
}
