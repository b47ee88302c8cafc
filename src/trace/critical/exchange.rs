//! Collectives that threads of the host carry out (gloo): who called them, and where the caller waited for them. Both are inferred; the recording has neither.

use super::events::{Events, Kind};
use super::thread::Piece;
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

/// Callers of collectives, events as positions in [`Events::list`].
#[derive(Debug, Clone, Default)]
pub(super) struct Callers {
    /// By collective.
    of: HashMap<u32, u32, RandomState>,
    /// All callers.
    all: HashSet<u32, RandomState>,
    /// End of each collective with its caller, the earliest first.
    ends: Vec<(i64, u32)>,
}

impl Callers {
    /// A collective was called by the operator of another thread that began last before it and was at work after the collective before on its own thread
    /// had ended: a `c10d::` operator where there is one.
    pub(super) fn new(events: &Events) -> Self {
        let list = &events.list;
        let mut collectives: Vec<u32> =
            (0u32..).zip(list).filter(|(_, e)| e.kind == Kind::Exchange).map(|(at, _)| at).collect();
        if collectives.is_empty() {
            return Self::default();
        }
        let by_start = |at: &u32| (list[*at as usize].start, *at);
        collectives.sort_unstable_by_key(by_start);
        let mut operators: Vec<u32> =
            (0u32..).zip(list).filter(|(_, e)| e.kind == Kind::Operator).map(|(at, _)| at).collect();
        operators.sort_unstable_by_key(by_start);
        let calls = events.names.mask(|name| name.starts_with("c10d::"));
        let named: Vec<u32> = operators.iter().copied().filter(|at| calls[list[*at as usize].name as usize]).collect();
        let mut free: HashMap<u32, i64, RandomState> = HashMap::default();
        let mut found = Self::default();
        for at in collectives {
            let e = &list[at as usize];
            let since = free.insert(e.track, e.end).unwrap_or(i64::MIN);
            let last = |of: &[u32]| {
                let until = of.partition_point(|o| list[*o as usize].start <= e.start);
                let at_work = |o: &&u32| list[**o as usize].track != e.track && list[**o as usize].end >= since;
                of[..until].iter().rev().take(64).find(at_work).copied()
            };
            if let Some(caller) = last(&named).or_else(|| last(&operators)) {
                found.of.insert(at, caller);
                found.all.insert(caller);
                found.ends.push((e.end, caller));
            }
        }
        found.ends.sort_unstable();
        found
    }

    /// Who called a collective.
    pub(super) fn of(&self, collective: u32) -> Option<u32> {
        self.of.get(&collective).copied()
    }

    /// Whether an event called a collective.
    pub(super) fn calls(&self, event: u32) -> bool {
        self.all.contains(&event)
    }

    /// Takes from the pieces of a thread what their operators waited: of the own time of an operator that called a collective, itself or through another one
    /// that has returned, what lies before the end of the collective.
    pub(super) fn cut_waits(&self, events: &Events, pieces: &mut Vec<Piece>) {
        if self.ends.is_empty() {
            return;
        }
        for piece in pieces.iter_mut() {
            let around = &events.list[piece.event as usize];
            let from = self.ends.partition_point(|c| c.0 <= piece.start);
            let until = self.ends.partition_point(|c| c.0 <= piece.end);
            let waited = |(_, caller): &&(i64, u32)| {
                let call = &events.list[*caller as usize];
                call.track == around.track
                    && *caller != piece.event
                    && around.start <= call.start
                    && call.end <= piece.start
                    && around.kind == Kind::Operator
            };
            if let Some((end, _)) = self.ends[from..until].iter().rev().find(waited) {
                piece.start = *end;
                piece.python_before = true;
            }
        }
        pieces.retain(|p| p.end > p.start);
    }
}
