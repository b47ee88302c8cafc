//! What is known of a step, and what is not: FLOP and bytes by operator, and the share of time they explain.

use super::program::{Part, Program};
use crate::trace::ops::Class;
use serde::Serialize;
use std::collections::BTreeMap;

/// All calls of one operator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpRow {
    /// Operator.
    pub op: String,
    /// Kind.
    pub class: Class,
    /// Calls.
    pub calls: u64,
    /// FLOP of the calls whose FLOP are known.
    pub flop: u64,
    /// FLOP that `torch.utils.flop_counter` counts; `None` if it does not know the operator.
    pub counted: Option<u64>,
    /// Bytes read and written.
    pub bytes: u64,
    /// Of these the bytes of calls that may move fewer: an upper bound.
    pub upper_bound_bytes: u64,
    /// Measured seconds, where there are any.
    pub seconds: f64,
    /// Calls whose FLOP are not known.
    pub unknown_flop: u64,
    /// Calls whose FLOP are estimated from a name.
    pub estimated: u64,
    /// Calls whose tensors are not recorded, or which may touch only a part of an argument.
    pub unknown_bytes: u64,
}

/// Shares of something (time, calls), each from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Shares {
    /// FLOP known from the operator's definition and shapes.
    pub known_flop: f64,
    /// FLOP estimated from a kernel's name.
    pub estimated_flop: f64,
    /// Bytes known.
    pub known_bytes: f64,
    /// Neither FLOP nor bytes known.
    pub neither: f64,
    /// Collectives: no FLOP to know, whatever their bytes.
    pub collective: f64,
}

/// What could not be trusted of a trace's call tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Untrusted {
    /// Calls counted.
    pub calls: u64,
    /// Their FLOP.
    pub flop: u64,
}

/// Coverage of a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Coverage {
    /// Calls counted.
    pub calls: u64,
    /// FLOP known.
    pub flop: u64,
    /// FLOP of `torch.utils.flop_counter`.
    pub counted: u64,
    /// Bytes.
    pub bytes: u64,
    /// Of these the bytes of calls that may move fewer, since they may touch only a part of an argument: an upper bound.
    pub upper_bound_bytes: u64,
    /// FLOP by part of the step.
    pub by_part: BTreeMap<Part, u64>,
    /// Measured seconds of all calls; `None` if no call has a time.
    pub seconds: Option<f64>,
    /// Shares of calls.
    pub of_calls: Shares,
    /// Shares of measured time.
    pub of_time: Option<Shares>,
    /// Calls whose callers were lost or cannot have called them: they are counted by themselves, but may be parts of others. `None`: there are
    /// none.
    pub untrusted: Option<Untrusted>,
    /// By operator, most FLOP first.
    pub ops: Vec<OpRow>,
    /// Operators whose FLOP are not known, by name.
    pub unknown: Vec<String>,
}

/// Counts a program.
pub fn coverage(program: &Program) -> Coverage {
    let mut rows: BTreeMap<&str, OpRow> = BTreeMap::new();
    let mut by_part: BTreeMap<Part, u64> = BTreeMap::new();
    let mut calls = Shares::default();
    let mut time = Shares::default();
    let mut untrusted = Untrusted::default();
    let (mut total, mut seconds, mut timed) = (0u64, 0.0, false);
    for step in &program.steps {
        let cost = &step.cost;
        let row = rows.entry(&step.call.op).or_insert_with(|| OpRow {
            op: step.call.op.clone(),
            class: cost.class,
            calls: 0,
            flop: 0,
            counted: None,
            bytes: 0,
            upper_bound_bytes: 0,
            seconds: 0.0,
            unknown_flop: 0,
            estimated: 0,
            unknown_bytes: 0,
        });
        let s = step.seconds.unwrap_or(0.0);
        timed |= step.seconds.is_some();
        row.calls += 1;
        row.flop = row.flop.saturating_add(cost.flop.unwrap_or(0));
        if let Some(counted) = cost.counted {
            row.counted = Some(row.counted.unwrap_or(0).saturating_add(counted));
        }
        row.bytes = row.bytes.saturating_add(cost.bytes());
        row.seconds += s;
        row.unknown_flop += u64::from(cost.flop.is_none());
        row.estimated += u64::from(cost.estimated);
        if !cost.bytes_known {
            row.upper_bound_bytes = row.upper_bound_bytes.saturating_add(cost.bytes());
        }
        row.unknown_bytes += u64::from(!cost.bytes_known);
        let part = by_part.entry(step.part).or_insert(0);
        *part = part.saturating_add(cost.flop.unwrap_or(0));
        if program.uncertain.contains(&step.node) {
            untrusted.calls += 1;
            untrusted.flop = untrusted.flop.saturating_add(cost.flop.unwrap_or(0));
        }
        total += 1;
        seconds += s;
        for (shares, weight) in [(&mut calls, 1.0), (&mut time, s)] {
            match cost.flop {
                _ if cost.class == Class::Collective => {
                    shares.collective += weight;
                    continue;
                }
                Some(_) if cost.estimated => shares.estimated_flop += weight,
                Some(_) => shares.known_flop += weight,
                None => {}
            }
            if cost.bytes_known {
                shares.known_bytes += weight;
            } else if cost.flop.is_none() {
                shares.neither += weight;
            }
        }
    }
    let scaled = |s: Shares, whole: f64| {
        let f = |x: f64| if whole > 0.0 { x / whole } else { 0.0 };
        Shares {
            known_flop: f(s.known_flop),
            estimated_flop: f(s.estimated_flop),
            known_bytes: f(s.known_bytes),
            neither: f(s.neither),
            collective: f(s.collective),
        }
    };
    let mut ops: Vec<OpRow> = rows.into_values().collect();
    ops.sort_by(|a, b| b.flop.cmp(&a.flop).then(b.bytes.cmp(&a.bytes)).then(a.op.cmp(&b.op)));
    let sum = |f: &dyn Fn(&OpRow) -> u64| ops.iter().fold(0u64, |n, r| n.saturating_add(f(r)));
    Coverage {
        calls: total,
        flop: sum(&|r| r.flop),
        counted: sum(&|r| r.counted.unwrap_or(0)),
        bytes: sum(&|r| r.bytes),
        upper_bound_bytes: sum(&|r| r.upper_bound_bytes),
        by_part,
        seconds: timed.then_some(seconds),
        of_calls: scaled(calls, total as f64),
        untrusted: (untrusted.calls > 0).then_some(untrusted),
        of_time: timed.then(|| scaled(time, seconds)),
        unknown: ops.iter().filter(|r| r.unknown_flop > 0).map(|r| r.op.clone()).collect(),
        ops,
    }
}
