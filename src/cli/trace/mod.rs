//! `flowspace trace`: one file a sub-command.

pub mod check;
pub mod convert;
pub mod critical_path;
pub mod export;
pub mod flops;
pub mod generate;
pub mod info;
pub mod link;
pub mod lower;
pub mod replay;
pub mod report;

use super::Failure;
use crate::trace::{TraceError, TraceErrors};
use clap::Subcommand;

/// What to do with recorded traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Count what traces hold: nodes by type, steps, collectives by type and bytes, groups, durations, faults.
    Info(info::InfoArgs),
    /// Count FLOP and bytes of a trace or FX graph by operator, and say what is unknown.
    Flops(flops::FlopsArgs),
    /// Turn a trace or FX graph into a workload file.
    Lower(lower::LowerArgs),
    /// Match collectives and messages across all ranks of a run; recover its groups and degrees.
    Check(check::CheckArgs),
    /// Write Chakra traces, one a rank, of a plan: for ASTRA-sim and others.
    Generate(generate::GenerateArgs),
    /// Link a host trace and a device trace (or a device trace alone) into one graph, with a report of what was matched.
    Link(link::LinkArgs),
    /// Convert a linked trace to a Chakra .et for simulators, with comm_group.json.
    Convert(convert::ConvertArgs),
    /// Simulate a linked trace forward from durations and dependencies, and compare with what was recorded.
    Replay(replay::ReplayArgs),
    /// Find the critical path of a Kineto trace: what every microsecond of a window was spent on, slack, and what if.
    CriticalPath(critical_path::CriticalPathArgs),
    /// What the device did with its time: types, overlap, idle time by cause, queues, bandwidth, launches, top kernels, differences. Counted as
    /// HolisticTraceAnalysis counts: in whole microseconds, without the last of several profiler steps.
    Report(report::ReportArgs),
    /// Write a Chakra trace as JSON.
    ToJson(export::ToJsonArgs),
    /// Write a Chakra trace as text protobuf.
    ToText(export::OneToOneArgs),
    /// Write a Chakra trace (JSON, the feeder's JSON, text protobuf, .et) as .et.
    ToEt(export::OneToOneArgs),
    /// Write the graph of a Chakra trace for Graphviz.
    ToDot(export::OneToOneArgs),
    /// Write the graph of a Chakra trace as GraphML.
    ToGraphml(export::OneToOneArgs),
    /// Write a Chakra or Kineto trace as a timeline that Perfetto and chrome://tracing open.
    Timeline(export::OneToOneArgs),
}

/// Carries out a sub-command; returns the exit code.
///
/// # Errors
/// [`Failure`]: bad input, or an output that cannot be written.
pub fn run(command: &TraceCommand) -> Result<i32, Failure> {
    match command {
        TraceCommand::Info(args) => info::run(args),
        TraceCommand::Flops(args) => flops::run(args),
        TraceCommand::Lower(args) => lower::run(args),
        TraceCommand::Check(args) => check::run(args),
        TraceCommand::Generate(args) => generate::run(args),
        TraceCommand::Link(args) => link::run(args),
        TraceCommand::Convert(args) => convert::run(args),
        TraceCommand::Replay(args) => replay::run(args),
        TraceCommand::CriticalPath(args) => critical_path::run(args),
        TraceCommand::Report(args) => report::run(args),
        TraceCommand::ToJson(args) => export::to_json(args),
        TraceCommand::ToText(args) => export::to_text(args),
        TraceCommand::ToEt(args) => export::to_et(args),
        TraceCommand::ToDot(args) => export::to_dot(args),
        TraceCommand::ToGraphml(args) => export::to_graphml(args),
        TraceCommand::Timeline(args) => export::timeline(args),
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Self::input(error.to_string())
    }
}

impl From<TraceErrors> for Failure {
    fn from(errors: TraceErrors) -> Self {
        Self::input(errors.to_string())
    }
}
