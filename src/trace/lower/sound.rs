//! What must hold before a number is printed: a trace that makes sense, costs that did not overflow, a request that fits.

use super::program::Program;
use super::{Request, build};
use crate::trace::error::MOST_ERRORS;
use crate::trace::host::{HostTrace, check};
use crate::trace::{TraceError, TraceErrors};
use std::path::Path;

/// Largest degree or batch that may be asked for, as in workload files.
const MOST: u64 = 1 << 24;
/// Most samples of an iteration.
const MOST_SAMPLES: u64 = 1 << 40;
/// Sums up to here are exact and have not saturated.
const MOST_COST: f64 = (1u64 << 62) as f64;

/// Refuses a host trace whose numbers could not be believed. Callers that are not there are mended (`callers.rs`).
///
/// # Errors
/// Up to twenty faults, with node and field.
pub fn host(trace: &HostTrace, path: &Path) -> Result<(), TraceErrors> {
    if trace.nodes.is_empty() {
        return Err(TraceError::new(path, "expected at least one operator, found none").field("nodes").into());
    }
    let mut faults = check::faults_but_lost_callers(trace, path);
    faults.truncate(MOST_ERRORS);
    if faults.is_empty() { Ok(()) } else { Err(TraceErrors(faults)) }
}

/// Refuses a program whose sizes are absurd, or whose costs do not fit 62 bits: they would have saturated.
///
/// # Errors
/// The nodes at fault, or the total.
pub fn program(program: &Program, path: &Path) -> Result<(), TraceErrors> {
    let mut faults = Vec::new();
    for value in program.values.iter().filter(|v| v.elements > check::MOST_ELEMENTS) {
        let message = format!("{} elements: expected at most {}", value.elements, check::MOST_ELEMENTS);
        faults.push(TraceError::new(path, message).node(&value.name).field("shape"));
    }
    let (mut flop, mut bytes) = (0.0, 0.0);
    for step in &program.steps {
        let cost = &step.cost;
        for (field, n) in [("FLOP", cost.flop.max(cost.counted).unwrap_or(0)), ("bytes", cost.bytes())] {
            if n as f64 > MOST_COST {
                let message = format!("{field} of {} are more than 2^62: its shapes cannot be right", step.call.op);
                faults.push(TraceError::new(path, message).node(step.node).field("shape"));
            }
        }
        flop += cost.flop.max(cost.counted).unwrap_or(0) as f64;
        bytes += cost.bytes() as f64;
    }
    if faults.is_empty() && flop.max(bytes) > MOST_COST {
        faults.push(TraceError::new(path, format!("{flop:.3e} FLOP and {bytes:.3e} B in all: expected at most 2^62")));
    }
    faults.truncate(MOST_ERRORS);
    if faults.is_empty() { Ok(()) } else { Err(TraceErrors(faults)) }
}

/// Numbers of a request that cannot be right whatever the trace: field and what is wrong.
pub fn numbers(request: &Request) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    for (field, value, most) in [
        ("tp", request.tp, MOST),
        ("dp", request.dp, MOST),
        ("pp", request.pp, MOST),
        ("ep", request.ep, MOST),
        ("batch", request.batch, MOST),
        ("global_batch", request.global_batch, MOST_SAMPLES),
        ("micro_batch", request.micro_batch, MOST_SAMPLES),
    ] {
        if let Some(value) = value.filter(|v| !(1..=most).contains(v)) {
            wrong.push((field, format!("expected 1 to {most}, found {value}")));
        }
    }
    if let Some(word) = request.word.filter(|w| !(*w > 0.0 && *w <= 64.0)) {
        wrong.push(("word", format!("expected a size above 0 B and at most 64 B, found {word} B")));
    }
    if let (Some(global), Some(micro)) = (request.global_batch, request.micro_batch)
        && micro > global
    {
        wrong.push(("micro_batch", format!("expected at most the global_batch of {global}, found {micro}")));
    }
    wrong
}

/// Refuses a request that this program cannot answer.
///
/// # Errors
/// All that is wrong, one a line.
pub fn request(program: &Program, request: &Request) -> Result<(), String> {
    let mut wrong = numbers(request);
    if wrong.is_empty()
        && let Some(batch) = request.batch
        && !build::may_be_batch(program, batch)
    {
        let found = build::batch(program);
        wrong.push((
            "batch",
            format!(
                "the products of the forward pass cannot be divided into {batch} samples; the trace looks like {found}, which it is without `batch`"
            ),
        ));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(wrong.iter().map(|(field, message)| format!("{field}: {message}")).collect::<Vec<_>>().join("\n"))
}
