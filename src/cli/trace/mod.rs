//! `flowspace trace`: recorded traces.

pub mod convert;
pub mod link;
pub mod replay;

use super::Failure;
use clap::Subcommand;

/// What to do with a trace.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Link a host trace and a device trace (or a device trace alone) into one graph, with a report of what was matched.
    Link(link::LinkArgs),
    /// Convert a linked trace to a Chakra .et for simulators, with comm_group.json.
    Convert(convert::ConvertArgs),
    /// Simulate a linked trace forward from durations and dependencies, and compare with what was recorded.
    Replay(replay::ReplayArgs),
}

/// Carries out a sub-command.
///
/// # Errors
/// [`Failure`]: what is wrong with the input.
pub fn run(command: &TraceCommand) -> Result<i32, Failure> {
    match command {
        TraceCommand::Link(args) => link::run(args),
        TraceCommand::Convert(args) => convert::run(args),
        TraceCommand::Replay(args) => replay::run(args),
    }
}
