//! How well linking went.

use super::{EdgeKind, LinkedTrace, Matching, NodeKind};
use crate::trace::host::HostTrace;
use crate::trace::kineto::Event;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Device operations of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpCount {
    /// In the trace.
    pub total: usize,
    /// With the call that launched them.
    pub launched: usize,
    /// With the operator that caused them.
    pub owned: usize,
}

/// Edges of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EdgeCount {
    /// All.
    pub total: usize,
    /// Of these, inferred.
    pub inferred: usize,
}

/// What was matched, what was not, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkReport {
    /// Steps kept; empty for all of the trace.
    pub steps: Vec<u64>,
    /// Operators of the host trace, roots of process and threads left out.
    pub host_total: usize,
    /// Of these, found in the device trace.
    pub host_matched: usize,
    /// Operators and annotations of the device trace.
    pub operators_total: usize,
    /// Of these, found in the host trace.
    pub operators_matched: usize,
    /// By which way.
    pub matching: Matching,
    /// Names of host operators not found, with their number.
    pub host_unmatched: BTreeMap<String, usize>,
    /// Names of device-trace operators not found, with their number.
    pub operators_unmatched: BTreeMap<String, usize>,
    /// Kernels.
    pub kernels: OpCount,
    /// Copies.
    pub memcpys: OpCount,
    /// Fills.
    pub memsets: OpCount,
    /// Device operations of launched graphs among these.
    pub graph_operations: usize,
    /// Device operations without a correlation.
    pub without_correlation: usize,
    /// Device operations whose correlation no call has.
    pub without_call: usize,
    /// Device operations launched outside any operator.
    pub without_operator: usize,
    /// Edges by kind.
    pub edges: BTreeMap<&'static str, EdgeCount>,
    /// Waits that the profiler recorded but that the times contradict: not kept.
    pub contradicted: usize,
}

impl LinkReport {
    pub(super) fn matched(&mut self, host: &HostTrace, events: &[Event], candidates: &[u32], matching: &Matching) {
        for (node, event) in host.nodes.iter().zip(&matching.event_of) {
            if node.is_root() {
                continue;
            }
            self.host_total += 1;
            if event.is_some() {
                self.host_matched += 1;
            } else {
                *self.host_unmatched.entry(node.name.to_string()).or_default() += 1;
            }
        }
        let mut taken = vec![false; events.len()];
        for &e in matching.event_of.iter().flatten() {
            if let Some(slot) = taken.get_mut(e as usize) {
                *slot = true;
            }
        }
        for &c in candidates {
            self.operators_total += 1;
            if taken.get(c as usize) == Some(&true) {
                self.operators_matched += 1;
            } else if let Some(e) = events.get(c as usize) {
                *self.operators_unmatched.entry(e.name.to_string()).or_default() += 1;
            }
        }
        self.matching = matching.clone();
    }

    pub(super) fn device(&mut self, kind: NodeKind, graph: bool, correlated: bool, launched: bool, owned: bool) {
        let count = match kind {
            NodeKind::Memcpy => &mut self.memcpys,
            NodeKind::Memset => &mut self.memsets,
            _ => &mut self.kernels,
        };
        count.total += 1;
        count.launched += usize::from(launched);
        count.owned += usize::from(owned);
        self.graph_operations += usize::from(graph);
        self.without_correlation += usize::from(!correlated);
        self.without_call += usize::from(correlated && !launched);
        self.without_operator += usize::from(launched && !owned);
    }

    fn sum(&self, of: impl Fn(&OpCount) -> usize) -> usize {
        [&self.kernels, &self.memcpys, &self.memsets].into_iter().map(of).sum()
    }

    /// Device operations.
    pub fn device_total(&self) -> usize {
        self.sum(|c| c.total)
    }

    /// Device operations with a launch.
    pub fn device_launched(&self) -> usize {
        self.sum(|c| c.launched)
    }

    /// Device operations with an operator.
    pub fn device_owned(&self) -> usize {
        self.sum(|c| c.owned)
    }

    /// The report for a person.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{text}");
        };
        if self.host_total > 0 {
            let m = &self.matching;
            let mut ways = Vec::new();
            if m.by_id > 0 {
                ways.push(format!("{} by record-function id", m.by_id));
            }
            if let Some(offset) = m.offset {
                ways.push(format!("{} by id (external id = record-function id {offset:+})", m.by_offset));
            }
            if m.by_order > 0 {
                ways.push(format!("{} by name and order (ids differ in {} pieces)", m.by_order, m.offset_pieces));
            }
            line(format!(
                "host operators matched: {} of {} ({}); operators of the device trace matched: {} of {} ({})",
                self.host_matched,
                self.host_total,
                share(self.host_matched, self.host_total),
                self.operators_matched,
                self.operators_total,
                share(self.operators_matched, self.operators_total)
            ));
            line(format!("  {}", ways.join(", ")));
            if m.names_differ > 0 {
                line(format!("  same record-function id but another name: {}", m.names_differ));
            }
            for (what, names) in [
                ("only in the host trace", &self.host_unmatched),
                ("only in the device trace", &self.operators_unmatched),
            ] {
                if !names.is_empty() {
                    line(format!("  {what}: {}", most(names)));
                }
            }
        }
        for (what, c) in [("kernels", &self.kernels), ("copies", &self.memcpys), ("fills", &self.memsets)] {
            if c.total > 0 {
                line(format!(
                    "{what}: {} of {} ({}) with an operator, {} with a launch",
                    c.owned,
                    c.total,
                    share(c.owned, c.total),
                    c.launched
                ));
            }
        }
        for (n, what) in [
            (self.graph_operations, "of launched graphs"),
            (self.without_correlation, "without a correlation"),
            (self.without_call, "whose call was not recorded"),
            (self.without_operator, "launched outside any operator"),
        ] {
            if n > 0 {
                line(format!("  {n} device operations {what}"));
            }
        }
        let edges: Vec<String> = self
            .edges
            .iter()
            .map(|(word, c)| match c.inferred {
                0 => format!("{word} {}", c.total),
                n => format!("{word} {} ({n} inferred)", c.total),
            })
            .collect();
        if !edges.is_empty() {
            line(format!("edges: {}", edges.join(", ")));
        }
        if self.contradicted > 0 {
            line(format!("  {} recorded waits contradict the recorded times and were left out", self.contradicted));
        }
        out
    }
}

/// Counts the edges of a linked trace.
pub(super) fn edges(trace: &LinkedTrace, report: &mut LinkReport) {
    for kind in EdgeKind::ALL {
        let of_kind = || trace.edges.iter().filter(|e| e.kind == kind);
        let count = EdgeCount { total: of_kind().count(), inferred: of_kind().filter(|e| e.inferred).count() };
        if count.total > 0 {
            report.edges.insert(kind.word(), count);
        }
    }
}

fn share(part: usize, whole: usize) -> String {
    if part == whole {
        return "100 %".into();
    }
    // Rounded down: what is not all never reads as all.
    format!("{:.1} %", (1000.0 * part as f64 / whole as f64).floor() / 10.0)
}

/// The most frequent names.
fn most(names: &BTreeMap<String, usize>) -> String {
    const SHOWN: usize = 4;
    let mut list: Vec<(&String, &usize)> = names.iter().collect();
    list.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let short = |name: &str| match name.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", name.get(..end).unwrap_or_default()),
        None => name.to_owned(),
    };
    let mut text: Vec<String> = list.iter().take(SHOWN).map(|(name, n)| format!("{} x {n}", short(name))).collect();
    let rest: usize = list.iter().skip(SHOWN).map(|(_, n)| **n).sum();
    if rest > 0 {
        text.push(format!("{rest} more"));
    }
    text.join(", ")
}
