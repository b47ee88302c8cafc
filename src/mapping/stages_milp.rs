//! The division of a chain among pipeline stages as a MILP: the reference formulation of [`super::chain`] (design section 6.3).
//!
//! Sets: units u = 1..U in order, stages s = 1..PP. t_u seconds of a unit, h_c of a hand-over between units c and c + 1, g_u of its
//! gradients and weights once an iteration (here linear in their bytes); m_us bytes that unit u holds on stage s without what
//! waits at its work, k_u what it keeps of one microbatch, l_u what waits while it works, F bytes that every chip holds,
//! C the capacity.
//!
//! ```text
//! Variables
//!   a[u,s]   binary   unit u is on stage s
//!   H[s]     >= 0     seconds of the stage's hand-over
//!   T        >= 0     seconds of the slowest stage
//!   G        >= 0     seconds of the longest update
//!   w[s]     >= 0     most bytes by which what waits at work exceeds what the unit keeps, above the least of that over all units
//!
//! Objective: sum_u t_u + sum_s H[s] + (b - 1) T + G, divided by a bound of it so that coefficients are about one.
//!
//! Constraints
//!   S1  sum_s a[u,s] = 1                                      every unit once
//!   S2  sum_u a[u,s] >= 1                                     no stage empty
//!   S3  sum_{r<=s} a[u,r] >= sum_{r<=s} a[u+1,r]              in order
//!   S4  H[s] >= h_u (a[u,s] - a[u+1,s]),  H[s] >= h_u (a[u+1,s] - a[u,s])     the slower of the two ends
//!   S5  T >= sum_u t_u a[u,s] + H[s]
//!   S6  G >= sum_u g_u a[u,s]
//!   S7  w[s] >= (l_u - k_u - least) a[u,s]
//!   S8  F + sum_u m_us a[u,s] + least + w[s] <= C,   m_us = held by u + k_u x microbatches in flight on s
//! ```
//!
//! Stages are written out here, one at a time; that a run of units is one stage follows from S1 and S3.

use super::chain::Chain;
use super::record::Status;
use super::solver::{Limits, Milp, SolverError, solve};

/// The MILP of a chain whose update takes `per_byte` seconds for each byte of gradients and of weights, and the columns of a.
pub fn build(chain: &Chain<'_>, per_byte: (f64, f64)) -> (Milp, Vec<Vec<usize>>) {
    let mut milp = Milp::default();
    let stages = chain.in_flight.len();
    let units: Vec<_> = chain.blocks.iter().flat_map(|b| std::iter::repeat_n(b, b.repeat as usize)).collect();
    let cuts = chain.cuts();
    let scale = Some(chain.bound()).filter(|b| *b > 0.0).unwrap_or(1.0);
    let a: Vec<Vec<usize>> =
        (0..units.len()).map(|u| (0..stages).map(|s| milp.binary(format!("a_{u}_{s}"), 0.0)).collect()).collect();
    let hand_over: Vec<usize> =
        (0..stages).map(|s| milp.continuous(format!("H_{s}"), f64::INFINITY, 1.0 / scale)).collect();
    // Seconds in units of the scale.
    let slowest = milp.continuous("T".into(), f64::INFINITY, chain.microbatches - 1.0);
    let update = milp.continuous("G".into(), f64::INFINITY, 1.0);
    milp.constant = units.iter().map(|b| b.pass_s).sum::<f64>() / scale;
    for (u, of_unit) in a.iter().enumerate() {
        milp.equal(format!("S1_{u}"), of_unit.iter().map(|c| (*c, 1.0)).collect(), 1.0);
    }
    let of_stage = |s: usize, f: &dyn Fn(usize) -> f64| -> Vec<(usize, f64)> {
        a.iter().enumerate().map(|(u, of_unit)| (of_unit[s], f(u))).filter(|(_, f)| *f != 0.0).collect()
    };
    let excess = |u: usize| units[u].live - units[u].need.kept;
    let least = (0..units.len()).map(excess).fold(f64::INFINITY, f64::min);
    for s in 0..stages {
        milp.at_least(format!("S2_{s}"), of_stage(s, &|_| 1.0), 1.0);
        for u in 1..units.len() {
            let before = a[u - 1][..=s].iter().map(|c| (*c, 1.0));
            let after = a[u][..=s].iter().map(|c| (*c, -1.0));
            milp.at_least(format!("S3_{u}_{s}"), before.chain(after).collect(), 0.0);
            let (one, other) = (a[u - 1][s], a[u][s]);
            for (end, from, to) in [("end", one, other), ("start", other, one)] {
                let terms = vec![(hand_over[s], 1.0), (from, -cuts[u]), (to, cuts[u])];
                milp.at_least(format!("S4_{end}_{u}_{s}"), terms, 0.0);
            }
        }
        let mut time = of_stage(s, &|u| -units[u].pass_s / scale);
        time.extend([(slowest, 1.0), (hand_over[s], -1.0 / scale)]);
        milp.at_least(format!("S5_{s}"), time, 0.0);
        let once = |u: usize| units[u].gradient_bytes * per_byte.0 + units[u].weight_bytes * per_byte.1;
        let mut updates = of_stage(s, &|u| -once(u) / scale);
        updates.push((update, 1.0));
        milp.at_least(format!("S6_{s}"), updates, 0.0);
        if chain.capacity.is_finite() {
            let bytes = |x: f64| x / chain.capacity.max(1.0);
            let waits = milp.continuous(format!("w_{s}"), f64::INFINITY, 0.0);
            for (u, of_unit) in a.iter().enumerate() {
                let terms = vec![(waits, 1.0), (of_unit[s], -bytes(excess(u) - least))];
                milp.at_least(format!("S7_{u}_{s}"), terms, 0.0);
            }
            let held = |u: usize| {
                let need = &units[u].need;
                let fixed = need.weights * (1.0 + need.optimizer_share) + need.gradients + need.caches;
                bytes(fixed + need.kept * chain.in_flight[s] as f64)
            };
            let mut all = of_stage(s, &held);
            all.push((waits, 1.0));
            let free = chain.capacity - least - units.first().map_or(0.0, |b| b.need.held);
            milp.at_most(format!("S8_{s}"), all, bytes(free));
        }
    }
    (milp, a)
}

/// Solves it: seconds of the iteration and the units of each stage; `None` where none fits, or a limit ended the solve.
///
/// # Errors
/// [`SolverError`] of the solver.
pub fn divide(
    chain: &Chain<'_>,
    per_byte: (f64, f64),
    limits: &Limits,
) -> Result<Option<(f64, Vec<u64>)>, SolverError> {
    let (milp, a) = build(chain, per_byte);
    let solved = solve(&milp, limits, None)?;
    if solved.record.status != Status::Optimal {
        return Ok(None);
    }
    Ok(solved.values.map(|values| {
        let on = |s: usize| a.iter().filter(|of_unit| values[of_unit[s]] > 0.5).count() as u64;
        let stages: Vec<u64> = (0..chain.in_flight.len()).map(on).collect();
        (chain.objective(&chain.runs(&stages)), stages)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::chain::tests::{Random, chain, fits};
    use crate::mapping::solver::{Solver, SolverError};

    /// The programme, the MILP and its solvers agree, on what fits and what does not.
    #[test]
    fn the_milp_agrees_with_the_programme() {
        let solvers = Solver::built();
        let mut random = Random(11);
        let (mut fitting, mut short, mut broken) = (0, 0, 0);
        for case in 0..250 {
            let per_byte = (random.below(5) as f64 / 8.0, random.below(5) as f64 / 8.0);
            let update = |g: f64, w: f64| g * per_byte.0 + w * per_byte.1;
            let chain = chain(&mut random, &update, 9);
            let exact = chain.divide();
            // Exact fits are common in whole numbers: the solvers may miss or allow them by a rounding.
            let near = [1.0 - 1e-6, 1.0 + 1e-6].map(|f| fits(&chain, chain.capacity * f));
            for solver in &solvers {
                let limits = Limits { solver: *solver, ..Limits::default() };
                let milp = match divide(&chain, per_byte, &limits) {
                    Ok(milp) => milp,
                    // CBC now and then returns a point that breaks a row, which `solver.rs` finds and refuses.
                    Err(SolverError::Failed(why)) if *solver == Solver::Cbc && why.contains("returned a point") => {
                        broken += 1;
                        continue;
                    }
                    Err(e) => panic!("{case}: {e}"),
                };
                match (&exact, &milp) {
                    (Some((one, _)), Some((other, stages))) => {
                        assert!((one - other).abs() <= 1e-5 * one, "{case}: {one} {other} {stages:?}");
                    }
                    (None, None) => {}
                    _ => assert_ne!(near[0], near[1], "{case}: {exact:?} {milp:?}"),
                }
            }
            fitting += usize::from(exact.is_some());
            short += usize::from(exact.is_none());
        }
        assert!(fitting > 80 && short > 20 && broken < 10, "{fitting} {short} {broken}");
    }
}
