//! Running the graph forward: when each unit begins and ends, and what it waited for; and backward: how much later it could end.

use super::graph::{Delay, Edge, Graph, Unit};

/// No time lies behind this one, ns: sums of times stay numbers.
const LATEST: i64 = i64::MAX / 4;

/// One run of a graph.
#[derive(Debug, Clone)]
pub struct Run {
    /// Start of each unit, ns.
    pub start: Vec<i64>,
    /// End of each unit, ns.
    pub end: Vec<i64>,
    /// What each unit waited for.
    pub decided: Decided,
}

/// The edge that decided each unit's start, of a run: what is needed of it when its times are not.
#[derive(Debug, Clone)]
pub struct Decided(Vec<u32>);

impl Decided {
    /// The edge that decided a unit's start; none for the window's begin.
    pub fn edge<'g>(&self, graph: &'g Graph, unit: usize) -> Option<&'g Edge> {
        graph.edges.get(self.0[unit] as usize)
    }

    /// The decisive edges from a unit back to the window's begin.
    pub fn back_from<'g>(&self, graph: &'g Graph, unit: usize) -> impl Iterator<Item = &'g Edge> {
        let mut at = unit;
        std::iter::from_fn(move || {
            let edge = self.edge(graph, at)?;
            at = edge.from as usize;
            Some(edge)
        })
    }
}

impl Run {
    /// Runs a graph with the durations and delays that `duration` and `delay` state, ns.
    pub fn new(graph: &Graph, duration: impl Fn(&Unit) -> i64, delay: impl Fn(&Edge) -> i64) -> Self {
        let n = graph.units.len();
        let decided = Decided(vec![u32::MAX; n]);
        let mut out = Self { start: vec![graph.window.0; n], end: vec![0; n], decided };
        for (at, unit) in graph.units.iter().enumerate() {
            let from = graph.first_edge(at);
            for (i, e) in graph.incoming(at).iter().enumerate() {
                let begin = if e.at_start { out.start[e.from as usize] } else { out.end[e.from as usize] };
                let ready = begin.saturating_add(delay(e)).min(LATEST);
                if out.decided.0[at] == u32::MAX || ready > out.start[at] {
                    out.start[at] = ready;
                    out.decided.0[at] = (from + i) as u32;
                }
            }
            out.end[at] = out.start[at].saturating_add(duration(unit)).min(LATEST);
        }
        out
    }

    /// The run as it was recorded.
    pub fn recorded(graph: &Graph) -> Self {
        Self::new(graph, |u| u.end - u.start, |e| e.lag)
    }

    /// From the window's begin to its end, ns.
    pub fn step_ns(&self) -> i64 {
        self.end.last().zip(self.start.first()).map_or(0, |(e, s)| e - s)
    }
}

/// How much later units could end, without the window ending later; and which unit would be the first to suffer.
#[derive(Debug, Clone)]
pub struct Slack {
    /// Of each unit, ns; 0 on a critical path.
    pub ns: Vec<i64>,
    /// The unit behind each one that leaves it the least; `u32::MAX` for the window's end.
    pub tightest: Vec<u32>,
}

impl Slack {
    /// Of the recorded run.
    pub fn new(graph: &Graph) -> Self {
        let n = graph.units.len();
        let end = graph.window.1;
        let (mut latest_start, mut latest_end) = (vec![i64::MAX; n], vec![i64::MAX; n]);
        let mut tightest = vec![u32::MAX; n];
        if let (Some(s), Some(e)) = (latest_start.last_mut(), latest_end.last_mut()) {
            (*s, *e) = (end, end);
        }
        for at in (0..n).rev() {
            let unit = &graph.units[at];
            let by_end = latest_end[at].saturating_sub(unit.end - unit.start);
            latest_start[at] = latest_start[at].min(by_end);
            for e in graph.incoming(at).iter().rev() {
                let bound = latest_start[at].saturating_sub(e.lag);
                let from = e.from as usize;
                if e.at_start {
                    latest_start[from] = latest_start[from].min(bound);
                } else if bound < latest_end[from] {
                    latest_end[from] = bound;
                    tightest[from] = at as u32;
                }
            }
        }
        // In place: the slack takes the room of the latest ends.
        let mut ns = latest_end;
        graph.units.iter().zip(&mut ns).for_each(|(u, l)| *l = ((*l).min(end) - u.end).max(0));
        Self { ns, tightest }
    }

    /// The units behind a unit to the window's end, each the tightest of those behind the one before.
    pub fn path_from(&self, unit: usize) -> impl Iterator<Item = u32> {
        std::iter::successors(self.tightest.get(unit), |at| self.tightest.get(**at as usize))
            .copied()
            .take_while(|at| *at != u32::MAX)
    }
}

/// Delays as recorded, but those of launches.
pub fn without_launches(edge: &Edge) -> i64 {
    if edge.delay == Delay::Launch { 0 } else { edge.lag }
}
