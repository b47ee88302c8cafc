//! `flowspace trace`: what is done with recorded traces, one file a command.

pub mod flops;
pub mod lower;

use super::Failure;
use clap::Subcommand;

/// What to do with a trace.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Count FLOP and bytes of a trace or FX graph by operator, and say what is unknown.
    Flops(flops::FlopsArgs),
    /// Turn a trace or FX graph into a workload file.
    Lower(lower::LowerArgs),
}

/// Carries out a command.
///
/// # Errors
/// [`Failure`]: bad input.
pub fn run(command: &TraceCommand) -> Result<i32, Failure> {
    match command {
        TraceCommand::Flops(args) => flops::run(args),
        TraceCommand::Lower(args) => lower::run(args),
    }
}
