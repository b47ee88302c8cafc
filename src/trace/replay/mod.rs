//! Replay: the schedule of a linked trace, simulated forward from durations and dependencies.
//!
//! Host time between two points of a thread is kept as recorded; everything else follows. A device operation starts when its launch has
//! reached the device, the operation before it on its stream has ended, and what its stream waits for has ended; a synchronising call
//! returns when the device got there; a thread that waited for another goes on when that one has. What the device needs
//! between a call and the start, or between two operations, is one typical delay of the trace ([`Delays::Typical`]), so that recorded
//! starts and ends of device operations enter nowhere and a changed duration moves what depends on it.

mod delays;
mod figures;
mod graph;
mod path;
pub mod retime;

pub use delays::{Delays, Typical};
pub use figures::{Figures, StepTime};
pub use graph::{ArcKind, Timing};
pub use path::{CriticalPath, PathShare};

use super::link::{LinkedNode, LinkedTrace, Ns};

/// Why a linked trace cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Something waits for itself.
    #[error("the dependencies of the linked trace form a cycle, through {0}")]
    Cycle(String),
    /// Nothing has a time.
    #[error("the linked trace holds nothing that was timed")]
    Empty,
    /// An edge refers to a node that is not there, or to one that has no time.
    #[error("edge {edge}: node {node} is not a timed node of the trace")]
    Dangling {
        /// Place of the edge.
        edge: usize,
        /// The node.
        node: u32,
    },
}

/// A schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// Start of each node; of untimed nodes the recorded place.
    pub start_ns: Vec<Ns>,
    /// End of each node.
    pub end_ns: Vec<Ns>,
    /// What it amounts to.
    pub figures: Figures,
    /// What bounds it.
    pub path: CriticalPath,
}

/// Replays with durations of device operations given by the caller: place of the node and the node in, nanoseconds out. For the recorded
/// ones pass `|_, node| node.dur_ns`.
///
/// # Errors
/// [`ReplayError`]: a cycle, a dangling edge, nothing timed.
pub fn replay(
    trace: &LinkedTrace,
    delays: Delays,
    duration: impl Fn(u32, &LinkedNode) -> u64,
) -> Result<Replay, ReplayError> {
    Ok(Timing::new(trace, delays)?.replay(trace, duration))
}

/// Figures of the recorded schedule, to compare with.
pub fn recorded(trace: &LinkedTrace) -> Figures {
    let start: Vec<Ns> = trace.nodes.iter().map(|n| n.start_ns).collect();
    let end: Vec<Ns> = trace.nodes.iter().map(LinkedNode::end_ns).collect();
    figures::figures(trace, &start, &end)
}
