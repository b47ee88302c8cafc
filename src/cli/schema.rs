//! `flowspace schema`.

use super::Failure;
use crate::execution::ExecutionFile;
use crate::place::file::PlacementSpec;
use crate::place::spec::{ActorsSpec, CoresSpec};
use crate::plan::file::PlanSpec;
use crate::spec::schema::document;
use crate::study::spec::StudySpec;
use crate::system::{Chip, Link, Memory, SwitchPart, System};
use crate::workload::WorkloadSpec;
use clap::{Args, ValueEnum};

/// Arguments of `flowspace schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The kind of file.
    #[arg(value_enum)]
    pub kind: Kind,
}

/// Kinds of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A workload.
    Workload,
    /// A system.
    System,
    /// A chip.
    Chip,
    /// A memory.
    Memory,
    /// A link.
    Link,
    /// A switch.
    Switch,
    /// A study.
    Study,
    /// A plan.
    Plan,
    /// An execution of a language model.
    Execution,
    /// The cores of a chip.
    Cores,
    /// An actor graph.
    Actors,
    /// A placement of an actor graph.
    Placement,
    /// The columns of a study's results.csv (no schema: a table of names and meanings).
    Columns,
}

/// Prints the schema.
///
/// # Errors
/// [`Failure`] when the document cannot be written as text.
pub fn run(args: &SchemaArgs) -> Result<i32, Failure> {
    let schema = match args.kind {
        Kind::Workload => document::<WorkloadSpec>("flowspace workload"),
        Kind::System => document::<System>("flowspace system"),
        Kind::Chip => document::<Chip>("flowspace chip"),
        Kind::Memory => document::<Memory>("flowspace memory"),
        Kind::Link => document::<Link>("flowspace link"),
        Kind::Switch => document::<SwitchPart>("flowspace switch"),
        Kind::Study => document::<StudySpec>("flowspace study"),
        Kind::Plan => document::<PlanSpec>("flowspace plan"),
        Kind::Execution => document::<ExecutionFile>("flowspace execution"),
        Kind::Cores => document::<CoresSpec>("flowspace cores"),
        Kind::Actors => document::<ActorsSpec>("flowspace actors"),
        Kind::Placement => document::<PlacementSpec>("flowspace placement"),
        Kind::Columns => {
            super::print(&crate::report::csv::reference());
            return Ok(0);
        }
    };
    let text = serde_json::to_string_pretty(&schema).map_err(|e| Failure::input(e.to_string()))?;
    super::print(&format!("{text}\n"));
    Ok(0)
}
