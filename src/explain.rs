//! What binds a plan, what more of each resource would bring, and what would make an infeasible point feasible. Every number comes
//! from a search of the changed point, not from a slope.

use crate::check;
use crate::mapping::degrees::assignments;
use crate::mapping::request::Known;
use crate::mapping::search::{MapError, Record, Request};
use crate::mapping::{Answer, Infeasible, map};
use crate::plan::Plan;
use crate::progress::Steps;
use crate::system::System;
use crate::units::Bytes;
use crate::workload::Workload;

/// A resource of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Clock of the chips (and their vector peak, where one is stated).
    Compute,
    /// On-chip memory.
    Sram,
    /// Bandwidth of the memory.
    DramBandwidth,
    /// Capacity of the memory.
    DramCapacity,
    /// Bandwidth of the links of a dimension.
    LinkBandwidth(usize),
    /// Latency of the links of a dimension: more of it is less time.
    LinkLatency(usize),
    /// Time from one partition to the next: more of it is less time.
    LaunchOverhead,
}

impl Resource {
    /// The resources that a system has.
    pub fn all(system: &System) -> Vec<Self> {
        let mut out = vec![Self::Compute, Self::Sram, Self::DramBandwidth];
        if system.memory.0.capacity.is_some() {
            out.push(Self::DramCapacity);
        }
        for (i, dimension) in system.network.dimensions.iter().enumerate().filter(|(_, d)| d.size > 1) {
            out.push(Self::LinkBandwidth(i));
            if dimension.link.0.latency.0 > 0.0 {
                out.push(Self::LinkLatency(i));
            }
        }
        if system.chip.0.launch_overhead.0 > 0.0 {
            out.push(Self::LaunchOverhead);
        }
        out
    }

    /// Its name for a person.
    pub fn name(self, system: &System) -> String {
        let link = |i: usize| {
            let d = system.network.dimensions.get(i);
            d.map_or(format!("dim {i}"), |d| format!("dim {i} ({} x {})", d.size, d.link.0.name))
        };
        match self {
            Self::Compute => "compute".into(),
            Self::Sram => "SRAM".into(),
            Self::DramBandwidth => "DRAM bandwidth".into(),
            Self::DramCapacity => "DRAM capacity".into(),
            Self::LinkBandwidth(i) => format!("bandwidth of {}", link(i)),
            Self::LinkLatency(i) => format!("less latency of {}", link(i)),
            Self::LaunchOverhead => "less launch overhead".into(),
        }
    }

    /// The system with `factor` times as much of it (of latencies and overheads: the time divided by it).
    pub fn scaled(self, system: &System, factor: f64) -> System {
        let mut out = system.clone();
        let chip = &mut out.chip.0;
        match self {
            Self::Compute => {
                chip.frequency.0 *= factor;
                if let Some(peak) = &mut chip.vector_peak {
                    peak.0 *= factor;
                }
            }
            Self::Sram => chip.sram.0 *= factor,
            Self::DramBandwidth => out.memory.0.bandwidth.0 *= factor,
            Self::DramCapacity => {
                if let Some(capacity) = &mut out.memory.0.capacity {
                    capacity.0 *= factor;
                }
            }
            Self::LinkBandwidth(i) => {
                if let Some(d) = out.network.dimensions.get_mut(i) {
                    d.link.0.bandwidth.0 *= factor;
                }
            }
            Self::LinkLatency(i) => {
                if let Some(d) = out.network.dimensions.get_mut(i) {
                    d.link.0.latency.0 /= factor;
                }
            }
            Self::LaunchOverhead => chip.launch_overhead.0 /= factor,
        }
        out
    }
}

/// What more of one resource brings.
#[derive(Debug, Clone, PartialEq)]
pub struct Gain {
    /// Which.
    pub resource: Resource,
    /// Its name.
    pub name: String,
    /// The objective of the best mapping of the changed system; `None` where none was found.
    pub value: Option<f64>,
    /// Proven bound of that.
    pub bound: Option<f64>,
    /// The objective with the decisions of the best mapping of the system as it is; `None` where they do not fit, or for another
    /// objective than time.
    pub unchanged: Option<f64>,
}

impl Gain {
    /// Share of the objective that the change saves, from the value before.
    pub fn share(&self, before: f64) -> Option<f64> {
        self.value.map(|v| 1.0 - v / before)
    }
    /// The same with unchanged decisions.
    pub fn unchanged_share(&self, before: f64) -> Option<f64> {
        self.unchanged.map(|v| 1.0 - v / before)
    }
}

/// Maps the system with `factor` times as much of each of its resources. `plan` and `record` are the answer for the system
/// as it is, to the same request.
///
/// # Errors
/// [`MapError`] of a search.
pub fn gains(plan: &Plan, record: &Record, request: &Request, factor: f64) -> Result<Vec<Gain>, MapError> {
    let mut out = Vec::new();
    let mut request = request.clone();
    request.known.push(Known::from(plan));
    let all = Resource::all(&plan.system);
    let steps = Steps::of("resources", all.len() as u64);
    for resource in all {
        let system = resource.scaled(&plan.system, factor);
        // With more of anything the plan at hand is no slower.
        let answer = map(&plan.workload, &system, &request)?;
        let (value, bound) = match &answer {
            Answer::Mapped(_, record) => (Some(record.value), Some(record.bound)),
            Answer::Infeasible(_) => (None, None),
        };
        let time = record.objective == crate::mapping::Objective::Time;
        let unchanged = check::derive(&plan.workload, &system, &plan.decisions).ok().filter(|_| time);
        out.push(Gain {
            resource,
            name: resource.name(&plan.system),
            value,
            bound,
            unchanged: unchanged.map(|figures| figures.iteration_s()),
        });
        steps.step();
    }
    Ok(out)
}

/// What makes an infeasible point feasible.
#[derive(Debug, Clone, PartialEq)]
pub struct Remedy {
    /// What is changed.
    pub lever: String,
    /// What it is.
    pub now: String,
    /// The least that was found to be feasible, by a search with exactly that; or why none was found.
    pub enough: Result<String, String>,
    /// Seconds of an iteration with it.
    pub seconds: Option<f64>,
}

/// Seconds of an iteration, if the point is feasible. Requests that contradict the changed system count as infeasible.
fn feasible(workload: &Workload, system: &System, request: &Request) -> Option<f64> {
    match map(workload, system, request) {
        Ok(Answer::Mapped(plan, record)) => check::verify(&plan).ok().map(|()| record.value),
        _ => None,
    }
}

/// Doublings of a memory that are tried, and the factor within which the least is found.
const DOUBLINGS: i32 = 24;
const CLOSE: f64 = 1.005;

/// The smallest change of each lever by itself that makes a point feasible, each found and confirmed by searches.
pub fn remedies(workload: &Workload, system: &System, request: &Request, reason: &Infeasible) -> Vec<Remedy> {
    let mut out = degrees(workload, system, request);
    out.extend(chips(workload, system, request));
    for (resource, name, now) in [
        (Resource::Sram, "SRAM of a chip", Some(system.chip.0.sram.0)),
        (Resource::DramCapacity, "DRAM capacity of a chip", system.memory.0.capacity.map(|c| c.0)),
    ] {
        let Some(now) = now else { continue };
        // What is short says how much is needed at least: a first guess, no more.
        let hint = (reason.unit == "bytes" && reason.available == now).then_some(reason.needed);
        out.push(memory(workload, system, request, (resource, name, now, hint)));
    }
    out
}

/// PP, and TP: degrees that the request fixes, each freed and given other values, with DP free to make up for it.
fn degrees(workload: &Workload, system: &System, request: &Request) -> Vec<Remedy> {
    let wanted = &request.wanted;
    let mut out = Vec::new();
    for (lever, now) in [("PP", wanted.pp), ("TP", wanted.tp)] {
        let Some(now) = now else {
            out.push(Remedy {
                lever: lever.into(),
                now: "free".into(),
                enough: Err("every degree that the network gives was tried".into()),
                seconds: None,
            });
            continue;
        };
        let of = |d: &crate::mapping::degrees::Degrees| if lever == "PP" { d.pp } else { d.tp };
        let mut values: Vec<u64> =
            assignments(system, wanted.split).iter().map(of).filter(|value| *value != now).collect();
        // The nearest first, larger ones before smaller ones as these need less memory.
        values.sort_unstable_by_key(|value| (*value < now, value.abs_diff(now)));
        values.dedup();
        let found = values.iter().find_map(|value| {
            let mut request = request.clone();
            request.wanted.dp = None;
            if lever == "PP" {
                request.wanted.pp = Some(*value)
            } else {
                request.wanted.tp = Some(*value)
            }
            feasible(workload, system, &request).map(|seconds| (*value, seconds))
        });
        let dp = if wanted.dp.is_some() { " (DP free)" } else { "" };
        out.push(Remedy {
            lever: lever.into(),
            now: now.to_string(),
            enough: found.map(|(value, _)| format!("{value}{dp}")).ok_or_else(|| "no degree is feasible".into()),
            seconds: found.map(|(_, seconds)| seconds),
        });
    }
    out
}

/// More chips along the outermost dimension; degrees that the request fixes stay, but DP is free.
fn chips(workload: &Workload, system: &System, request: &Request) -> Option<Remedy> {
    let last = system.network.dimensions.len().checked_sub(1)?;
    let size = system.network.dimensions[last].size;
    let with = |size: u64| {
        let mut out = system.clone();
        out.network.dimensions[last].size = size;
        out.chips = out.chips.map(|_| out.network.chips());
        out
    };
    let mut request = request.clone();
    request.wanted.dp = None;
    request.pins.uses = None;
    let step = (size / 8).max(1);
    let near = (1..=24).map(|i| size.saturating_add(step.saturating_mul(i)));
    let far = (2..=10).map(|i| size.saturating_mul(1 << i));
    let found = near
        .chain(far)
        .filter(|size| *size <= 1 << 20)
        .find_map(|size| feasible(workload, &with(size), &request).map(|seconds| (size, seconds)));
    let count = |size: u64| {
        let chips = with(size).network.chips();
        format!("{chips} ({size} along dimension {last})")
    };
    Some(Remedy {
        lever: "chips".into(),
        now: count(size),
        enough: found.map(|(size, _)| count(size)).ok_or_else(|| "none of the numbers tried is feasible".into()),
        seconds: found.map(|(_, seconds)| seconds),
    })
}

/// More of a memory: doubled until a mapping is found, then bisected. More memory is never worse, so what lies between is
/// ordered; the answer itself was mapped.
fn memory(
    workload: &Workload,
    system: &System,
    request: &Request,
    (resource, name, now, hint): (Resource, &str, f64, Option<f64>),
) -> Remedy {
    // Whole KiB, so that the number that is printed in bytes is the one that was tried.
    let whole = |bytes: f64| (bytes / 1024.0).ceil() * 1024.0;
    let seconds_at = |bytes: f64| feasible(workload, &resource.scaled(system, bytes / now), request);
    let mut short = now;
    let mut enough: Option<(f64, f64)> = None;
    let guesses = hint.into_iter().chain((1..=DOUBLINGS).map(|i| now * 2f64.powi(i)));
    for bytes in guesses.map(whole).filter(|b| b.is_finite()) {
        if bytes <= short {
            continue;
        }
        match seconds_at(bytes) {
            Some(seconds) => {
                enough = Some((bytes, seconds));
                break;
            }
            None => short = bytes,
        }
    }
    while let Some((least, _)) = enough
        && least > short * CLOSE
    {
        let middle = whole((least * short).sqrt());
        if middle <= short || middle >= least {
            break;
        }
        match seconds_at(middle) {
            Some(seconds) => enough = Some((middle, seconds)),
            None => short = middle,
        }
    }
    let text = |bytes: f64| format!("{} ({bytes:.0} B)", Bytes(bytes));
    Remedy {
        lever: name.into(),
        now: text(now),
        enough: enough
            .map(|(bytes, _)| format!("{}, {:.3} times as much", text(bytes), bytes / now))
            .ok_or_else(|| format!("not even {:.0} times as much is enough", 2f64.powi(DOUBLINGS))),
        seconds: enough.map(|(_, seconds)| seconds),
    }
}
