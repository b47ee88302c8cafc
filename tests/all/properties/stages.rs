//! Division of layers among pipeline stages, end to end: against every other division of the same plan, by the checker alone.

use crate::properties::check;
use crate::properties::search::{describe, system, workload};
use flowspace::check::{derive, verify};
use flowspace::mapping::request::{Pins, Request};
use flowspace::mapping::{Answer, find};
use flowspace::model::Strategy;
use flowspace::plan::Plan;
use flowspace::system::System;
use flowspace::units::Bytes;
use flowspace::workload::Workload;
use proptest::prelude::*;
use std::cell::Cell;

/// Every way to divide `layers` among `stages`, none empty.
fn divisions(layers: u64, stages: u64) -> Vec<Vec<u64>> {
    if stages == 1 {
        return vec![vec![layers]];
    }
    let first = 1..=layers.saturating_sub(stages - 1);
    first
        .flat_map(|n| divisions(layers - n, stages - 1).into_iter().map(move |rest| [vec![n], rest].concat()))
        .collect()
}

/// The best plan of so many stages; with the given strategies, where some are.
fn best(w: &Workload, s: &System, pp: u64, sharding: &[Strategy]) -> Result<Option<Box<Plan>>, TestCaseError> {
    let fail = |e: String| TestCaseError::fail(format!("{}: {e}", describe(w, s)));
    let sharding = sharding.iter().copied().map(Some).collect();
    // Some plan will do whose divisions are held against each other: few sets of shardings.
    let mut request = Request { pins: Pins { sharding, ..Pins::default() }, joint_nodes: 200, ..Request::default() };
    request.wanted.pp = Some(pp);
    match find(w, s, &request) {
        // These degrees cannot be had from the network.
        Err(_) => Ok(None),
        Ok(Answer::Infeasible(_)) => Ok(None),
        Ok(Answer::Mapped(plan, _)) => {
            verify(&plan).map_err(|e| fail(e.to_string()))?;
            Ok(Some(plan))
        }
    }
}

/// No other division of a plan is allowed and faster; that of a memory with just the room it needs is still found, and
/// with less room the plan is another or none.
#[test]
fn no_division_of_a_plan_is_faster() {
    let tally = Cell::new((0, 0, 0));
    let cases = (workload(true), system(false), prop::sample::select(vec![2u64, 4]));
    check(120, &cases, |(mut w, s, pp)| {
        w.repeat += pp;
        let Some(plan) = best(&w, &s, pp, &[])? else { return Ok(()) };
        let (mut plans, mut uneven, mut tight) = tally.get();
        let all = divisions(w.repeat, pp);
        let derived = |s: &System, stages: &[u64]| {
            let decisions = flowspace::plan::Decisions { stages: stages.to_vec(), ..plan.decisions.clone() };
            derive(&w, s, &decisions).ok()
        };
        for stages in &all {
            if let Some(other) = derived(&s, stages) {
                let (other, own) = (other.iteration_s(), plan.figures.iteration_s());
                prop_assert!(other >= own * (1.0 - 1e-9), "{stages:?}: {other} below {own}, {}", describe(&w, &s));
            }
        }
        // The memory that the fullest stage of the least full division needs: the search finds a plan no slower. Its strategies are given: divisions are the
        // question; what other strategies would make of so little is asked by `properties::search`, and takes long in some cases.
        let mut smaller = s.clone();
        let needs = |stages: &Vec<u64>| derived(&s, stages).map_or(f64::INFINITY, |f| f.memory.total());
        let least = all.iter().map(needs).fold(f64::INFINITY, f64::min);
        smaller.memory.0.capacity = Some(Bytes(least));
        let allowed = all.iter().filter_map(|stages| derived(&smaller, stages)).map(|f| f.iteration_s());
        let fastest = allowed.fold(f64::INFINITY, f64::min);
        let found =
            best(&w, &smaller, pp, &plan.decisions.sharding)?.map_or(f64::INFINITY, |p| p.figures.iteration_s());
        prop_assert!(found <= fastest * (1.0 + 1e-9), "{found} above {fastest}, {}", describe(&w, &smaller));
        prop_assert!(found >= plan.figures.iteration_s() * (1.0 - 1e-9), "less DRAM is faster: {}", describe(&w, &s));
        plans += 1;
        uneven += usize::from(!w.repeat.is_multiple_of(pp));
        tight += usize::from(found > plan.figures.iteration_s() * (1.0 + 1e-9));
        tally.set((plans, uneven, tight));
        Ok(())
    });
    let (plans, uneven, tight) = tally.get();
    println!("{plans} plans, {uneven} of unequal stages, {tight} slower where the DRAM is short");
    assert!(plans >= 15 && uneven >= 5 && tight >= 1, "{plans} {uneven} {tight}");
}
