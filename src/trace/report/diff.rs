//! Two traces side by side: operators and kernels by name, how often and how long.

use crate::trace::critical::compat::Table;
use serde::Serialize;
use std::collections::BTreeMap;

/// One name in both traces.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Operator or kernel.
    pub name: String,
    /// On the device.
    pub device: bool,
    /// How often: in the first and in the second trace.
    pub count: (u64, u64),
    /// How long, us: in the first and in the second trace.
    pub us: (f64, f64),
}

/// Operators and device events that differ in number or time, the greatest difference in time first.
pub fn diff(first: &Table, second: &Table) -> Vec<Change> {
    let mut sums: BTreeMap<(bool, String), [(u64, f64); 2]> = BTreeMap::new();
    for (which, table) in [first, second].into_iter().enumerate() {
        let operators = table.symbols.mask(|c| c == "cpu_op");
        for row in table.rows.iter().filter(|r| r.stream != -1 || operators[r.category as usize]) {
            let slot = &mut sums.entry((row.stream != -1, table.name(row).to_owned())).or_default()[which];
            slot.0 += 1;
            slot.1 += row.dur;
        }
    }
    let mut out: Vec<Change> = sums
        .into_iter()
        .filter(|(_, [a, b])| a != b)
        .map(|((device, name), [a, b])| Change { name, device, count: (a.0, b.0), us: (a.1, b.1) })
        .collect();
    out.sort_by(|a, b| {
        let change = |c: &Change| (c.us.1 - c.us.0).abs();
        change(b).total_cmp(&change(a)).then_with(|| a.name.cmp(&b.name))
    });
    out
}
