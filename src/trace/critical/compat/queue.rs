//! Operations that wait on a stream: one more at each launch call, one fewer when a kernel starts.

use super::order::argsort;
use super::table::{Row, Table};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Calls that HTA 0.6.1 counts as launches.
const LAUNCHES: [&str; 12] = [
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipMemcpyAsync",
    "hipMemsetAsync",
    "hipMemcpyWithStream",
    "runFunction - job_prep_and_submit_for_execution",
];

/// Whether a row is a launch call that has a kernel.
pub(crate) fn launches(table: &Table) -> impl Fn(&Row) -> bool + use<> {
    let named = table.symbols.mask(|n| LAUNCHES.contains(&n));
    move |row| named[row.name as usize] && row.partner > 0
}

/// A change of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// When, us.
    pub ts: f64,
    /// Row of the launch or kernel.
    pub row: u32,
    /// Stream.
    pub stream: i64,
    /// Operations that wait after it.
    pub length: i64,
}

/// The lengths of all queues.
pub struct Lengths {
    /// By stream, then by time.
    pub changes: Vec<Change>,
    at: HashMap<u32, i64, RandomState>,
}

impl Lengths {
    /// Whether a queue has some length at a launch or a kernel.
    pub(super) fn is(&self, row: Option<usize>, length: i64) -> bool {
        row.and_then(|r| self.at.get(&(r as u32))) == Some(&length)
    }
}

/// Lengths of the queues of all streams over the whole trace; `None` where nothing was launched.
pub fn lengths(table: &Table) -> Option<Lengths> {
    let is_launch = launches(table);
    let mut calls: HashMap<i64, u32, RandomState> = HashMap::default();
    for (at, row) in table.rows.iter().enumerate().filter(|(_, r)| is_launch(r)) {
        calls.insert(row.correlation, at as u32);
    }
    // A launch counts on the stream of each of its kernels.
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for (at, row) in table.rows.iter().enumerate().filter(|(_, r)| r.stream != -1) {
        if let Some(&call) = calls.get(&row.correlation) {
            let ts = table.rows[call as usize].ts;
            up.push(Change { ts, row: call, stream: row.stream, length: 1 });
            down.push(Change { ts: row.ts, row: at as u32, stream: row.stream, length: -1 });
        }
    }
    if up.is_empty() {
        return None;
    }
    up.sort_by_key(|c| c.row);
    up.append(&mut down);
    let times: Vec<f64> = up.iter().map(|c| c.ts).collect();
    let mut changes: Vec<Change> = argsort(&times).into_iter().map(|at| up[at as usize]).collect();
    changes.sort_by_key(|c| c.stream);
    let mut now = (i64::MIN, 0);
    for change in &mut changes {
        now = if now.0 == change.stream { (now.0, now.1 + change.length) } else { (change.stream, change.length) };
        change.length = now.1;
    }
    let at = changes.iter().map(|c| (c.row, c.length)).collect();
    Some(Lengths { changes, at })
}
