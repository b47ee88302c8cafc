//! Workloads that a process grid shares (HPL, FFT): every grid that the network's dimensions allow, each searched like a
//! workload of one chip, whose share of every kernel the grid determines. A chip alone has no choice of sharding.

use super::degrees::{Degrees, grids};
use super::instance::combine;
use super::record::{Infeasible, Status, relative_gap};
use super::request::{Answer, LeftOpen, MapError, Pins, Record, Request};
use super::search::{self, Search, TIE};
use crate::deadline::Deadline;
use crate::model::collective;
use crate::model::energy::LayerUse;
use crate::model::rate::system_peak;
use crate::model::schedule::samples_per_pass;
use crate::system::System;
use crate::workload::Workload;

/// No mapping on a grid is faster: its arithmetic, and all collectives, which the grid alone determines. Overlapped parts
/// take at least the longer sum of the two.
fn least_seconds(share: &Workload, system: &System, degrees: &Degrees, arithmetic_s: f64) -> f64 {
    let options = &system.model;
    let samples = samples_per_pass(share, options);
    let network_s: f64 = share.kernels.iter().map(|k| collective::own_seconds(k, &degrees.own, samples, options)).sum();
    combine(system.overlap(), arithmetic_s, 0.0, network_s) * (1.0 - TIE)
}

/// Finds the best grid and the best mapping on it. The bound of the answer covers all grids.
///
/// # Errors
/// [`MapError`]: contradictory requests, a failing solver, or two engines that disagree.
pub(super) fn map(
    workload: &Workload,
    system: &System,
    request: &Request,
    clock: Deadline,
) -> Result<Answer, MapError> {
    let wanted = &request.wanted;
    if [wanted.tp, wanted.pp, wanted.dp].iter().flatten().any(|degree| *degree > 1) {
        return Err(MapError::Request(format!(
            "{} is shared by a process grid of all chips; it has no tensor, pipeline or data parallelism to ask for",
            workload.name
        )));
    }
    let one_way = workload.kernels.iter().filter_map(|k| k.spread).all(|s| s.rows == s.cols);
    let mut all = match &request.pins.uses {
        Some(uses) => vec![Degrees::new(system, uses.clone())],
        None => grids(system, wanted.split, one_way),
    };
    // The grids of known plans come first, whatever the seconds.
    let is_known = |degrees: &Degrees| request.known.iter().any(|known| known.decisions.uses == degrees.uses);
    all.sort_by_key(|degrees| !is_known(degrees));
    let considered = all.len();
    let undivided = all.first().cloned();
    let mut candidates = Vec::with_capacity(considered);
    let mut stopped: Option<LeftOpen> = None;
    let mut unseen = false;
    for degrees in all {
        if clock.is_over_by(0.5) && !is_known(&degrees) {
            // The other half is for plans on the grids seen so far.
            stopped = Some(LeftOpen::out_of_time());
            unseen = true;
            break;
        }
        let share = workload.on_grid(degrees.grid_rows, degrees.grid_cols);
        let search = Search::new(&share, system, request, clock)?;
        let (arithmetic_s, layer) = search.assignment_floor(&degrees);
        let seconds = least_seconds(&share, system, &degrees, arithmetic_s);
        let least = search.value_floor(&degrees, seconds, layer);
        candidates.push((degrees, share, least));
    }
    candidates.sort_by(|a, b| is_known(&b.0).cmp(&is_known(&a.0)).then(a.2.total_cmp(&b.2)));

    let mut best = None;
    let mut least: Option<Infeasible> = None;
    // Of a grid that was not looked at it is known that a chip has at least its part of all arithmetic.
    let mut bound = f64::INFINITY;
    if let Some(degrees) = undivided.filter(|_| unseen) {
        let search = Search::new(workload, system, request, clock)?;
        let (_, whole) = search.assignment_floor(&degrees);
        let chips = system.chip_count() as f64;
        let seconds = whole.compute_s / chips * (1.0 - TIE);
        let part = LayerUse { compute_s: seconds, flop: whole.flop / chips, dram_bytes: 0.0, link_j: 0.0 };
        bound = search.value_floor(&degrees, seconds, part);
    }
    let (mut solved, mut nodes, mut reproducible) = (0, 0, true);
    for (degrees, share, of_grid) in &candidates {
        if clock.is_over() && !is_known(degrees) {
            stopped = Some(LeftOpen::out_of_time());
            bound = bound.min(*of_grid);
            break;
        }
        if best.as_ref().is_some_and(|(_, record): &(_, Box<Record>)| *of_grid >= record.value * (1.0 - TIE)) {
            bound = bound.min(*of_grid);
            if is_known(degrees) {
                continue;
            }
            break;
        }
        let pins = Pins { uses: Some(degrees.uses.clone()), ..request.pins.clone() };
        let request = Request { pins, ..request.clone() };
        let answer = match search::run(&[Search::new(share, system, &request, clock)?]) {
            Err(MapError::NoPlanYet { left, .. }) => {
                stopped = Some(left);
                bound = bound.min(*of_grid);
                continue;
            }
            other => other?,
        };
        match answer {
            Answer::Mapped(plan, record) => {
                bound = bound.min(record.bound);
                solved += record.solved;
                nodes += record.nodes;
                reproducible &= record.reproducible;
                if best.as_ref().is_none_or(|(_, b)| record.value < b.value * (1.0 - TIE)) {
                    best = Some((plan, record));
                }
            }
            Answer::Infeasible(reason) => {
                // Of grids that lack the same thing, the one that lacks least tells the nearest remedy.
                if least.as_ref().is_none_or(|l| reason.needed / reason.available < l.needed / l.available) {
                    least = Some(reason);
                }
            }
        }
    }
    let Some((mut plan, mut record)) = best else {
        return match (stopped, least) {
            (Some(left), _) => Err(MapError::NoPlanYet { left, instead: None }),
            (None, Some(reason)) => Ok(Answer::Infeasible(reason)),
            (None, None) => Err(MapError::Request("the network has no chips".into())),
        };
    };
    plan.workload = workload.clone();
    plan.figures.flop_per_iteration = workload.flop_per_iteration();
    plan.figures.utilization =
        plan.figures.flop_per_iteration / (plan.figures.iteration_s() * system_peak(workload, system));
    record.bound = bound.min(record.value);
    record.assignments = considered;
    record.solved = solved;
    record.nodes = nodes;
    record.reproducible = reproducible;
    let gap = relative_gap(record.value, record.bound);
    if record.status == Status::Optimal && gap > request.limits.gap.max(TIE) {
        let left = stopped.unwrap_or(LeftOpen::Relaxation);
        (record.status, record.left) = (left.status(), Some(left));
    }
    record.reproducible &= stopped.is_none();
    record.solve_s = clock.seconds();
    Ok(Answer::Mapped(plan, record))
}
