//! Why there is no plan; what every solve reports is [`crate::solver::record`].

use super::shortage::Mend;
pub use crate::solver::record::{SolveRecord, Status, relative_gap};
use crate::system::System;
use serde::Serialize;

/// Why a point has no plan: what is short, by how much, and what would mend it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Infeasible {
    /// What is short: the resource whose increase alone gives a plan (`sram`, `dram`, `chips`, `batch`, ...), or, where it takes several,
    /// all of them (`sram+dram`).
    pub resource: String,
    /// How much is needed.
    pub needed: f64,
    /// How much there is.
    pub available: f64,
    /// Unit of both.
    pub unit: String,
    /// Why, and what mends it, in words.
    pub remedy: String,
    /// What mends it: any of these, each confirmed by mapping the changed point.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mends: Vec<Mend>,
}

impl Infeasible {
    /// A system whose dies are larger than can be made.
    pub fn of_die(system: &System) -> Option<Self> {
        let die = system.too_large()?;
        Some(Self {
            resource: "die".into(),
            needed: die.mm2,
            available: die.most_mm2,
            unit: "mm2".into(),
            remedy: die.beyond_limit(),
            mends: Vec::new(),
        })
    }
}

impl std::fmt::Display for Infeasible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let several = self.resource.contains('+');
        if self.unit == "bytes" && self.needed > self.available && !several {
            let (needed, available) = (crate::units::Bytes(self.needed), crate::units::Bytes(self.available));
            write!(f, "infeasible: {} short: needs {needed}, has {available}; {}", self.resource, self.remedy)
        } else {
            write!(f, "infeasible ({}): {}", self.resource, self.remedy)
        }
    }
}
