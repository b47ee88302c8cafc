//! `flowspace place`: actors on the cores of a chip; one file a sub-command.

pub mod export;
pub mod simulate;

use super::Failure;
use clap::Subcommand;

/// What to do with placements.
#[derive(Debug, Subcommand)]
pub enum PlaceCommand {
    /// Simulate the firings of a placed graph with bounded FIFOs: throughput, latency, fill, utilisation; deadlock with its remedy; the
    /// smallest FIFOs that keep the throughput.
    Simulate(simulate::SimulateArgs),
    /// Write a mapping file for an actor runtime (partition XML or .xcf) from a placement or another mapping file.
    Export(export::ExportArgs),
}

/// Carries out a sub-command; returns the exit code.
///
/// # Errors
/// [`Failure`]: bad input, a deadlock, or an output that cannot be written.
pub fn run(command: &PlaceCommand) -> Result<i32, Failure> {
    match command {
        PlaceCommand::Simulate(args) => simulate::run(args),
        PlaceCommand::Export(args) => export::run(args),
    }
}
