//! What binds a plan, what more of each resource would bring, and what would make an infeasible point feasible. Every number comes
//! from a search of the changed point, not from a slope.

pub mod executions;

use crate::check;
use crate::deadline::Deadline;
use crate::mapping::degrees::Degrees;
use crate::mapping::request::Known;
use crate::mapping::search::{MapError, Record, Request};
use crate::mapping::shortage::{Change, Lacking, Mend};
use crate::mapping::solver::Limits;
use crate::mapping::{Answer, Infeasible, map};
use crate::plan::Plan;
use crate::progress::Steps;
use crate::system::{Chip, System};
use crate::units::{Bytes, Seconds};
use crate::workload::Workload;

/// A resource of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Clock of the chips, with every peak that they state.
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
        let mut out = vec![Self::Compute];
        if system.chip.0.waves().is_none() {
            out.push(Self::Sram);
        }
        out.push(Self::DramBandwidth);
        if system.memory.0.capacity.is_some() && !system.memory.0.on_chip {
            out.push(Self::DramCapacity);
        }
        for (i, dimension) in system.network.dimensions.iter().enumerate().filter(|(_, d)| d.size > 1) {
            out.push(Self::LinkBandwidth(i));
            if dimension.link.0.latency.0 > 0.0 {
                out.push(Self::LinkLatency(i));
            }
        }
        if launch(&mut system.chip.0.clone()).0 > 0.0 {
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
                let products =
                    chip.kernels.iter_mut().flat_map(|kernels| kernels.peak.0.iter_mut().map(|(_, peak)| peak));
                chip.vector_peak.iter_mut().chain(products).for_each(|peak| peak.0 *= factor);
            }
            Self::Sram => {
                let more = chip.sram.0 * factor;
                out.set_sram(more);
            }
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
            Self::LaunchOverhead => launch(chip).0 /= factor,
        }
        out
    }
}

/// The time from one partition to the next, where the chip's file states it.
fn launch(chip: &mut Chip) -> &mut Seconds {
    let by_kernels = chip.waves().is_some();
    match &mut chip.kernels {
        Some(kernels) if by_kernels => &mut kernels.launch,
        _ => &mut chip.launch_overhead,
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
/// as it is, to the same request. The searches share what is left until a deadline.
///
/// # Errors
/// [`MapError`] of a search.
pub fn gains(
    plan: &Plan,
    record: &Record,
    request: &Request,
    factor: f64,
    deadline: Deadline,
) -> Result<Vec<Gain>, MapError> {
    // With more of anything the plan at hand is no slower.
    let mut request = request.clone();
    request.known.push(Known::from(plan));
    of_each(&plan.system, factor, deadline, |system, part| {
        let limits = Limits { seconds: part.left().or(request.limits.seconds), ..request.limits.clone() };
        let answer = map(&plan.workload, system, &Request { limits, ..request.clone() });
        let (value, bound) = match &answer {
            Ok(Answer::Mapped(_, record)) => (Some(record.value), Some(record.bound)),
            Ok(Answer::Infeasible(_)) | Err(MapError::NoPlanYet { .. }) => (None, None),
            Err(error) => return Err(error.clone()),
        };
        let time = record.objective == crate::mapping::Objective::Time;
        let unchanged = check::derive(&plan.workload, system, &plan.decisions).ok().filter(|_| time);
        Ok(Changed { value, bound, unchanged: unchanged.map(|figures| figures.iteration_s()) })
    })
}

/// What a search of a changed system found ([`Gain`]).
struct Changed {
    value: Option<f64>,
    bound: Option<f64>,
    unchanged: Option<f64>,
}

/// Searches a system with `factor` times as much of each of its resources. The searches share what is left until a deadline.
fn of_each<E>(
    system: &System,
    factor: f64,
    deadline: Deadline,
    mut search: impl FnMut(&System, Deadline) -> Result<Changed, E>,
) -> Result<Vec<Gain>, E> {
    let all = Resource::all(system);
    let steps = Steps::of("resources", all.len() as u64);
    let mut out = Vec::new();
    for (i, resource) in all.iter().copied().enumerate() {
        let part = deadline.part(1.0 / (all.len() - i) as f64);
        let Changed { value, bound, unchanged } = search(&resource.scaled(system, factor), part)?;
        out.push(Gain { resource, name: resource.name(system), value, bound, unchanged });
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

/// The smallest change of each lever by itself that makes a point feasible, each found and confirmed by searches, until a deadline. What the
/// reason names first is what [`shortage`](crate::mapping::shortage) found; the same function finds the others.
pub fn remedies(
    workload: &Workload,
    system: &System,
    request: &Request,
    reason: &Infeasible,
    deadline: Deadline,
) -> Vec<Remedy> {
    let point = Lacking::new(workload, system, request, deadline);
    // Seconds of an iteration of the changed point, mapped as asked.
    let seconds = |workload: &Workload, system: &System, request: &Request| {
        let limits = Limits { seconds: deadline.left(), ..request.limits.clone() };
        match map(workload, system, &Request { limits, ..request.clone() }) {
            Ok(Answer::Mapped(plan, record)) => check::verify(&plan).ok().map(|()| record.value),
            _ => None,
        }
    };
    let of_mend = |mend: &Mend| {
        let (workload, system, request) = mend.apply(workload, system, request);
        seconds(&workload, &system, &request)
    };
    let none =
        |why: &str| if deadline.is_over() { format!("not found {}", crate::deadline::within()) } else { why.into() };
    let mut out = Vec::new();
    let levers: [(&str, Option<u64>, DegreeOf, SetDegree); 2] = [
        ("PP", request.wanted.pp, |d| d.pp, |request, value| request.wanted.pp = Some(value)),
        ("TP", request.wanted.tp, |d| d.tp, |request, value| request.wanted.tp = Some(value)),
    ];
    for (lever, now, of, set) in levers {
        let Some(now) = now else {
            let enough = Err("every degree that the network gives was tried".into());
            out.push(Remedy { lever: lever.into(), now: "free".into(), enough, seconds: None });
            continue;
        };
        let found = point.degree(now, of, set);
        let dp = if request.wanted.dp.is_some() { " (DP free)" } else { "" };
        out.push(Remedy {
            lever: lever.into(),
            now: now.to_string(),
            enough: found.map(|value| format!("{value}{dp}")).ok_or_else(|| none("no degree is feasible")),
            seconds: found.and_then(|value| {
                let mut request = request.clone();
                request.wanted.dp = None;
                request.pins.uses = None;
                set(&mut request, value);
                seconds(workload, system, &request)
            }),
        });
    }
    if let Some(d) = system.network.dimensions.last() {
        let found = point.chips();
        let at = system.network.dimensions.len() - 1;
        out.push(Remedy {
            lever: "chips".into(),
            now: Change::Chips { dimension: at, size: d.size, chips: system.network.chips() }.to_string(),
            seconds: found.as_ref().and_then(of_mend),
            enough: found.map(|m| m.to_string()).ok_or_else(|| none("none of the numbers tried is feasible")),
        });
    }
    for mend in &reason.mends {
        if let [change @ Change::Partitions { .. }] = mend.changes.as_slice() {
            out.push(Remedy {
                lever: "partitions of a layer".into(),
                now: request.max_partitions.map_or("-".into(), |most| most.to_string()),
                enough: Ok(change.to_string()),
                seconds: of_mend(mend),
            });
        }
    }
    let mut alone = false;
    for (lever, now, found) in point.each_memory(reason) {
        let text = |bytes: f64| format!("{} ({bytes:.0} B)", Bytes(bytes));
        let bytes = found.as_ref().and_then(Mend::bytes);
        alone |= bytes.is_some();
        out.push(Remedy {
            lever: lever.into(),
            now: text(now),
            enough: bytes
                .map(|bytes| format!("{}, {:.3} times as much", text(bytes), bytes / now))
                .ok_or_else(|| none("no amount of it is enough by itself")),
            seconds: found.as_ref().and_then(of_mend),
        });
    }
    // What takes several resources stands as the reason has it.
    for mend in reason.mends.iter().filter(|m| m.changes.len() > 1 && !alone) {
        out.push(Remedy {
            lever: "together".into(),
            now: "-".into(),
            enough: Ok(mend.to_string()),
            seconds: of_mend(mend),
        });
    }
    out
}

type DegreeOf = fn(&Degrees) -> u64;
type SetDegree = fn(&mut Request, u64);
