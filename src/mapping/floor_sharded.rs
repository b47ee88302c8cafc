//! What sharding costs the blocks of a language model's graph at least: a chip computes more than its part of what is not divided, or waits for collectives.
//!
//! Where collectives run beside arithmetic and traffic, a partition takes the longest of the three, so no less than any weighted mean of arithmetic and collectives; a pass of a block takes the sum. With the
//! weights fixed that sum has terms of one kernel's strategy and of the layouts at the two ends of a tensor, and the elimination finds the least over all shardings ([`super::joint`] does the same with weights that
//! are tuned, for one cut; here they are three and hold for every microbatch).
//!
//! Of a sample of a large microbatch, in which the latency of collectives is next to nothing: a microbatch of `m` samples takes at least `m` times as long.

use super::degrees::Degrees;
use super::elimination::Between;
use super::minsum::Least;
use super::sharding::{Link, Problem, Unit, problem_in};
use crate::deadline::Deadline;
use crate::graph::{Phase, Workload};
use crate::model::Strategy;
use crate::model::rate::Rate;
use crate::system::{Overlap, System};

/// Weights of collectives against arithmetic, where one runs beside the other.
const SHARES: [f64; 3] = [1.0 / 3.0, 2.0 / 3.0, 1.0];

/// Samples of a microbatch that is large.
const MANY: u64 = 1 << 20;

/// Share of a sum that rounding may take.
const ROUNDING: f64 = 1e-9;

/// Seconds of arithmetic and collectives of the forward and the backward pass of each block, for one sample on each chip of a tensor-parallel group, at least.
pub(super) fn of(w: &Workload, system: &System, degrees: &Degrees) -> Vec<[f64; 2]> {
    let many = Workload { micro_batch: MANY, ..w.clone() };
    let none = vec![None; w.kernels.len()];
    let Ok(problem) = problem_in(Unit::Seconds, &many, system, degrees, &none) else {
        return vec![[0.0; 2]; w.blocks.len()];
    };
    let rate = Rate::of(w, system);
    let shares: &[f64] = if system.overlap() == Overlap::Full { &SHARES } else { &[0.5] };
    let pass = |block: usize, forward: bool| {
        let is_inside = |k: usize| w.kernels[k].block == block && (w.kernels[k].phase == Phase::Forward) == forward;
        let inside = inside(&problem, &is_inside, w.repeats(block) as f64);
        let arithmetic: Vec<f64> =
            (0..w.kernels.len()).filter(|k| is_inside(*k)).map(|k| rate.least_seconds(&w.kernels[k])).collect();
        let Some(between) = Between::of(&inside) else { return 0.0 };
        let of = |share: &f64| {
            let parts = |k: usize, s: usize| match inside.open[k][s] {
                Strategy::Replicate => 1.0,
                _ => degrees.tp as f64,
            };
            let own = |k: usize, s: usize| (1.0 - share) * arithmetic[k] / parts(k, s);
            match between.least(&inside, own, share / MANY as f64, Deadline::to_the_end()) {
                Least::Found(_, seconds) => seconds,
                _ => 0.0,
            }
        };
        // Of what does not overlap both count in full.
        let whole = if shares.len() == 1 { 2.0 } else { 1.0 };
        whole * shares.iter().map(of).fold(0.0, f64::max) * (1.0 - ROUNDING)
    };
    (0..w.blocks.len()).map(|b| [pass(b, true), pass(b, false)]).collect()
}

/// The problem of some kernels and of the collectives that one of them pays, counted once; what they cost by themselves is left out.
fn inside(problem: &Problem, is_inside: &dyn Fn(usize) -> bool, repeats: f64) -> Problem {
    let kept: Vec<usize> = (0..problem.open.len()).filter(|k| is_inside(*k)).collect();
    let at = |k: usize| kept.binary_search(&k).ok();
    let links = problem.links.iter().filter_map(|link| {
        let (from, to) = (at(link.from)?, at(link.to)?);
        Some(Link { from, to, ..link.clone() })
    });
    let once =
        |costs: &std::collections::BTreeMap<_, f64>| costs.iter().map(|(pair, s)| (*pair, s / repeats)).collect();
    Problem {
        open: kept.iter().map(|k| problem.open[*k].clone()).collect(),
        cost: kept.iter().map(|k| vec![0.0; problem.open[*k].len()]).collect(),
        links: links.collect(),
        groups: problem.groups.iter().map(once).collect(),
    }
}
