//! What a device did with its time, by the definitions of HTA 0.6.1 (facebookresearch/HolisticTraceAnalysis, MIT; read from its sources), on
//! events kept and rounded as HTA keeps and rounds them ([`super::critical::compat::Table`]). Times are microseconds.

mod diff;
mod intervals;
pub mod stats;

pub use diff::{Change, diff};

use super::critical::compat::Row;
use super::critical::compat::Table;
use super::critical::compat::argsort;
use super::critical::compat::queue;
use super::critical::names::{is_hta_communication, is_hta_memory};
use intervals::{length, merged, together};
use serde::Serialize;
use stats::Summary;
use std::collections::{BTreeMap, HashMap};

/// Gaps shorter than this, us, count as waiting between kernels (HTA's default).
const KERNEL_WAIT: f64 = 30.0;
/// Types of kernels whose overlap is counted.
const TYPES: [&str; 3] = ["COMPUTATION", "COMMUNICATION", "MEMORY"];

/// From the first start to the last end of the device's events.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Temporal {
    /// Nothing runs.
    pub idle_us: f64,
    /// Some computation runs.
    pub compute_us: f64,
    /// Only other work runs.
    pub non_compute_us: f64,
    /// All.
    pub kernel_us: f64,
}

/// Time in which exactly these types run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TypeTime {
    /// `COMPUTATION overlapping COMMUNICATION`.
    pub kernel_type: String,
    /// us.
    pub sum_us: f64,
    /// Percent of all, one digit.
    pub percentage: f64,
}

/// Idle time of a stream by cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Idle {
    /// Stream.
    pub stream: i64,
    /// `host_wait`: launched after the operation before had ended; `kernel_wait`: a gap under 30 us; `other`.
    pub category: &'static str,
    /// us.
    pub idle_us: f64,
    /// Share of the stream's idle time, two digits; none where it is never idle.
    pub ratio: Option<f64>,
}

/// A series by stream or by kind of copy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series<K> {
    /// Stream, or kind of copy.
    pub of: K,
    /// Its values: operations that wait, at each change; GB/s, at each change while anything moves.
    #[serde(flatten)]
    pub summary: Summary,
}

/// Launches with their operations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Launches {
    /// Pairs.
    pub count: usize,
    /// Time of the calls, us.
    pub cpu_us: f64,
    /// Time of the operations, us.
    pub gpu_us: f64,
    /// From the end of the call to the start of the operation, where later, us.
    pub delay_us: f64,
    /// The longest such delay, us.
    pub delay_max_us: f64,
    /// Operations shorter than their call.
    pub short: usize,
    /// Calls longer than 50 us.
    pub slow_calls: usize,
    /// Delays longer than 100 us.
    pub long_delays: usize,
}

/// Time of the kernels of one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Top {
    /// Name.
    pub name: String,
    /// Type.
    pub kernel_type: &'static str,
    /// us.
    pub sum_us: f64,
    /// us; the count is in here.
    #[serde(flatten)]
    pub summary: Summary,
}

/// All analyses of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// None without device events.
    pub temporal: Option<Temporal>,
    /// The longest first.
    pub kernel_types: Vec<TypeTime>,
    /// Communication that computation hides, percent, two digits; none without communication.
    pub overlap_percent: Option<f64>,
    /// By stream.
    pub idle: Vec<Idle>,
    /// By stream.
    pub queues: Vec<Series<i64>>,
    /// By kind of copy.
    pub bandwidth: Vec<Series<String>>,
    /// Launches.
    pub launches: Launches,
    /// Kernels by name, the longest first.
    pub top: Vec<Top>,
}

/// A number with some digits after the point, halves to the even digit as numpy rounds.
fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    (value * unit).round_ties_even() / unit
}

/// HTA's type of a kernel.
pub(super) fn kernel_type(name: &str) -> &'static str {
    const NOT: [&str; 9] = [
        "nccl",
        "Stream Wait Event",
        "runFunction",
        "hip",
        "job_exe",
        "packet",
        "pe_exe",
        "cpum_exe_subgraph",
        "collective_subgraph_execution",
    ];
    if is_hta_communication(name) {
        TYPES[1]
    } else if is_hta_memory(name) {
        TYPES[2]
    } else if NOT.iter().any(|p| name.starts_with(p))
        || ["Memcpy", "Memset", "dma", "Sync"].iter().any(|p| name.contains(p))
        || (name.starts_with("cuda") && name.contains("LaunchKernel"))
    {
        "OTHER"
    } else {
        TYPES[0]
    }
}

/// Computes all analyses; `top` is how many kernels are listed.
pub fn report(table: &Table, top: usize) -> Report {
    let device: Vec<&Row> = table.rows.iter().filter(|r| r.stream != -1).collect();
    let types: Vec<&'static str> = table.symbols.names().iter().map(|n| kernel_type(n)).collect();
    let of = |t: &str| {
        let rows = device.iter().filter(|r| types[r.name as usize] == t);
        merged(rows.map(|r| (r.ts, r.end())).collect())
    };
    let all = merged(device.iter().map(|r| (r.ts, r.end())).collect());
    let kinds = TYPES.map(of);
    let temporal = all.first().zip(all.last()).map(|(first, last)| {
        let kernel_us = last.1 - first.0;
        let (compute_us, idle_us) = (length(&kinds[0]), kernel_us - length(&all));
        Temporal { idle_us, compute_us, non_compute_us: kernel_us - compute_us - idle_us, kernel_us }
    });
    let masks = together(&kinds);
    let total: f64 = masks.iter().sum();
    let named = |mask: usize| {
        let names: Vec<&str> = TYPES.iter().enumerate().filter(|(b, _)| mask >> b & 1 == 1).map(|t| *t.1).collect();
        names.join(" overlapping ")
    };
    let mut kernel_types: Vec<TypeTime> = (1..masks.len())
        .filter(|&m| masks[m] > 0.0)
        .map(|m| TypeTime { kernel_type: named(m), sum_us: masks[m], percentage: rounded(masks[m] / total * 100.0, 1) })
        .collect();
    kernel_types.sort_by(|a, b| b.sum_us.total_cmp(&a.sum_us));
    let communication = length(&kinds[1]);
    let both: f64 = (1..masks.len()).filter(|m| m & 3 == 3).map(|m| masks[m]).sum();
    Report {
        temporal,
        kernel_types,
        overlap_percent: (communication > 0.0).then(|| rounded(100.0 * both / communication, 2)),
        idle: idle(table, &device),
        queues: queues(table),
        bandwidth: bandwidth(table, &device, &types),
        launches: launches(table),
        top: tops(table, &device, &types, top),
    }
}

fn idle(table: &Table, device: &[&Row]) -> Vec<Idle> {
    const KERNELS: [&str; 7] = ["kernel", "Kernel", "gpu_memset", "Memset", "gpu_memcpy", "Memcpy", "mtia_ccp_events"];
    const CATEGORIES: [&str; 3] = ["host_wait", "kernel_wait", "other"];
    let meant = table.symbols.mask(|c| KERNELS.contains(&c));
    let mut streams: Vec<i64> = Vec::new();
    let mut rows: HashMap<i64, Vec<&Row>> = HashMap::new();
    for row in device.iter().filter(|r| meant[r.category as usize]) {
        rows.entry(row.stream).or_insert_with(|| {
            streams.push(row.stream);
            Vec::new()
        });
        rows.entry(row.stream).or_default().push(row);
    }
    let mut out = Vec::new();
    for stream in streams {
        let rows = &rows[&stream];
        let order = argsort(&rows.iter().map(|r| r.ts).collect::<Vec<f64>>());
        let mut sums = [None, None, Some(0.0)];
        let mut before: Option<f64> = None;
        for at in order {
            let row = rows[at as usize];
            if let Some(end) = before {
                let gap = row.ts - end;
                let called = table.row(row.partner).map(|c| table.rows[c].ts);
                let category = match called {
                    Some(called) if called > end => 0,
                    _ if gap < KERNEL_WAIT => 1,
                    _ => 2,
                };
                *sums[category].get_or_insert(0.0) += gap;
            }
            before = Some(row.end());
        }
        let total: f64 = sums.iter().flatten().sum();
        for (category, idle_us) in CATEGORIES.into_iter().zip(sums).filter_map(|(c, s)| s.map(|s| (c, s))) {
            let ratio = (total != 0.0).then(|| rounded(idle_us / total, 2));
            out.push(Idle { stream, category, idle_us, ratio });
        }
    }
    out
}

fn queues(table: &Table) -> Vec<Series<i64>> {
    let mut by_stream: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for change in queue::lengths(table).map(|l| l.changes).unwrap_or_default() {
        by_stream.entry(change.stream).or_default().push(change.length as f64);
    }
    by_stream.into_iter().filter_map(|(of, v)| Summary::new(v).map(|summary| Series { of, summary })).collect()
}

fn bandwidth(table: &Table, device: &[&Row], types: &[&'static str]) -> Vec<Series<String>> {
    let kind = |name: &str| match name {
        n if n.starts_with("Memset") => "Memset".to_owned(),
        n if n.starts_with("Memcpy") => n.chars().take("Memcpy DtoH".len()).collect(),
        _ => "Memcpy Unknown".to_owned(),
    };
    let copies: Vec<&&Row> = device.iter().filter(|r| types[r.name as usize] == TYPES[2]).collect();
    let duration = |r: &Row| if r.dur == 0.0 { 1.0 } else { r.dur };
    let mut changes: Vec<(f64, String, f64)> =
        copies.iter().map(|r| (r.ts, kind(table.name(r)), r.bandwidth)).collect();
    changes.extend(copies.iter().map(|r| (r.ts + duration(r), kind(table.name(r)), -r.bandwidth)));
    let mut now: BTreeMap<&str, (f64, Vec<f64>)> = BTreeMap::new();
    for at in argsort(&changes.iter().map(|c| c.0).collect::<Vec<f64>>()) {
        let (_, kind, change) = &changes[at as usize];
        let (sum, values) = now.entry(kind).or_default();
        *sum += change;
        if *sum > 0.0 {
            values.push(*sum);
        }
    }
    now.into_iter()
        .filter_map(|(of, (_, v))| Summary::new(v).map(|summary| Series { of: of.to_owned(), summary }))
        .collect()
}

fn launches(table: &Table) -> Launches {
    const CALLS: [&str; 5] = [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "runFunction - job_prep_and_submit_for_execution",
    ];
    let named = table.symbols.mask(|n| CALLS.contains(&n));
    let launched: std::collections::HashSet<i64> =
        table.rows.iter().filter(|r| named[r.name as usize]).map(|r| r.correlation).collect();
    let mut calls: HashMap<i64, Vec<&Row>> = HashMap::new();
    for row in table.rows.iter().filter(|r| r.stream == -1 && launched.contains(&r.correlation)) {
        calls.entry(row.correlation).or_default().push(row);
    }
    let mut out = Launches {
        count: 0,
        cpu_us: 0.0,
        gpu_us: 0.0,
        delay_us: 0.0,
        delay_max_us: 0.0,
        short: 0,
        slow_calls: 0,
        long_delays: 0,
    };
    for row in table.rows.iter().filter(|r| r.stream != -1) {
        for call in calls.get(&row.correlation).into_iter().flatten() {
            let delay = (row.ts - call.end()).max(0.0);
            out.count += 1;
            out.cpu_us += call.dur;
            out.gpu_us += row.dur;
            out.delay_us += delay;
            out.delay_max_us = out.delay_max_us.max(delay);
            out.short += usize::from(row.dur < call.dur);
            out.slow_calls += usize::from(call.dur > 50.0);
            out.long_delays += usize::from(delay > 100.0);
        }
    }
    out
}

fn tops(table: &Table, device: &[&Row], types: &[&'static str], most: usize) -> Vec<Top> {
    let mut by_name: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for row in device.iter().filter(|r| types[r.name as usize] != "OTHER") {
        by_name.entry(row.name).or_default().push(row.dur);
    }
    let mut out: Vec<Top> = by_name
        .into_iter()
        .filter_map(|(name, durations)| {
            let sum_us = durations.iter().sum();
            let kernel_type = types[name as usize];
            let name = table.symbols.name(name).to_owned();
            Summary::new(durations).map(|summary| Top { name, kernel_type, sum_us, summary })
        })
        .collect();
    out.sort_by(|a, b| b.sum_us.total_cmp(&a.sum_us).then_with(|| a.name.cmp(&b.name)));
    out.truncate(most);
    out
}
