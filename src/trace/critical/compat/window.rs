//! Which part of a trace is looked at: the time of some annotations, and what it holds.

use super::table::Table;
use std::ops::RangeInclusive;

/// Instances of an annotation, counted from 0; the first one where none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// A part of the annotation's name; empty for the whole trace.
    pub annotation: String,
    /// Which of the events of that name.
    pub instances: RangeInclusive<usize>,
}

impl Default for Window {
    fn default() -> Self {
        Self { annotation: String::new(), instances: 0..=0 }
    }
}

/// First start and last end of the annotations, us.
///
/// # Errors
/// A message: no event has such a name, or there are fewer instances.
pub(super) fn bounds(table: &Table, window: &Window) -> Result<(f64, f64), String> {
    if window.annotation.is_empty() {
        return Ok((f64::NEG_INFINITY, f64::INFINITY));
    }
    let named = table.symbols.mask(|n| n.contains(&window.annotation));
    if !named.contains(&true) {
        return Err(format!(
            "no event's name holds {:?}; without --annotation the window is the whole trace",
            window.annotation
        ));
    }
    let all = table.rows.iter().filter(|r| named[r.name as usize]);
    let (first, last) = (*window.instances.start(), *window.instances.end());
    let mut found = all.clone().skip(first).take(last.saturating_sub(first).saturating_add(1)).peekable();
    if found.peek().is_none() {
        return Err(format!(
            "--instance {first}: there are {} events whose name holds {:?}, counted from 0 (of a trace of several steps HTA drops the last one)",
            all.count(),
            window.annotation
        ));
    }
    Ok(found.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), r| (a.min(r.ts), b.max(r.end()))))
}

/// Rows inside the window, by the events' index.
pub(super) fn clip(table: &Table, (start, end): (f64, f64)) -> Vec<u32> {
    let inside = |ts: f64, dur: f64| ts >= start && ts <= end && dur > 0.0;
    let wait = table.symbols.find("Stream Wait Event");
    let mut keep = vec![false; table.rows.len()];
    for (at, row) in table.rows.iter().enumerate() {
        if row.stream != -1 {
            keep[at] |= Some(row.name) == wait;
        } else if inside(row.ts, row.dur) {
            keep[at] = true;
            // What a call inside the window launched is kept wherever it runs.
            if let Some(other) = table.row(row.partner).filter(|&o| table.rows[o].stream != -1) {
                keep[other] = true;
            }
        }
    }
    let mut out: Vec<u32> = (0..table.rows.len() as u32).filter(|&at| keep[at as usize]).collect();
    out.sort_by_key(|&at| table.rows[at as usize].index);
    out
}
