//! One host thread as a row of pieces: at each moment the innermost operator or call, and between them gaps.

use super::events::{Event, Events, Kind};
use crate::trace::link::End;
use crate::trace::link::nest::{Span, walk};

/// No event.
pub(super) const NONE: u32 = u32::MAX;

/// A stretch of time of a thread during which the same operator, call or collective of the host was innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Start, ns.
    pub start: i64,
    /// End, ns.
    pub end: i64,
    /// The event, a position in [`Events::list`].
    pub event: u32,
    /// The innermost operator around a call, or the operator itself; [`NONE`] without one.
    pub operator: u32,
    /// The innermost module (`nn.Module: ...`) around it; [`NONE`] without one.
    pub module: u32,
    /// Whether Python or an annotation was open in the gap before this piece.
    pub python_before: bool,
    /// Whether this is the event's last piece.
    pub last: bool,
}

/// The pieces of the events of one thread, clipped to a window, in order of time. `seen` is false for all events of the thread, and of no use
/// afterwards.
pub(super) fn pieces(events: &Events, thread: &[u32], window: (i64, i64), seen: &mut [bool]) -> Vec<Piece> {
    let list = &events.list;
    let rank = |k: Kind| match k {
        Kind::Annotation => 0,
        Kind::Python => 1,
        Kind::Exchange => 2,
        Kind::Operator => 3,
        _ => 4,
    };
    let spans = thread.iter().map(|&node| {
        let e = &list[node as usize];
        Span { start: e.start, end: e.end, rank: rank(e.kind), node }
    });
    let is_module = |e: &Event| e.kind == Kind::Python && events.name(e).starts_with("nn.Module: ");
    let mut out: Vec<Piece> = Vec::new();
    // All that is open; operators and calls; operators; modules. Each has the innermost last.
    let mut open: [Vec<u32>; 4] = Default::default();
    let (mut now, mut python) = (window.0, false);
    let spans = spans.filter(|s| s.end > window.0 && s.start < window.1).collect();
    walk(
        spans,
        |_, _| {},
        |point| {
            let until = point.at.clamp(window.0, window.1);
            if until > now {
                match open[1].last().copied() {
                    Some(event) => {
                        // The same event again, with nothing between: one piece.
                        match out.last_mut().filter(|p| p.event == event && p.end == now) {
                            Some(piece) => piece.end = until,
                            None => out.push(Piece {
                                start: now,
                                end: until,
                                event,
                                operator: open[2].last().copied().unwrap_or(NONE),
                                module: open[3].last().copied().unwrap_or(NONE),
                                python_before: python,
                                last: false,
                            }),
                        }
                        python = false;
                    }
                    None => python |= !open[0].is_empty(),
                }
                now = until;
            }
            let event = &list[point.node as usize];
            let meant = [true, event.kind.host_works(), event.kind == Kind::Operator, is_module(event)];
            for stack in open.iter_mut().zip(meant).filter(|(_, m)| *m).map(|(s, _)| s) {
                match point.end {
                    End::Start => stack.push(point.node),
                    End::Finish => {
                        if let Some(at) = stack.iter().rposition(|&n| n == point.node) {
                            stack.remove(at);
                        }
                    }
                }
            }
        },
    );
    for piece in out.iter_mut().rev() {
        piece.last = seen.get_mut(piece.event as usize).is_some_and(|s| !std::mem::replace(s, true));
    }
    out
}
