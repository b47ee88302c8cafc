//! A plan that is known beforehand is a start: whatever else is asked, the answer is no worse; and with more of a resource nothing
//! is slower than the plan at hand.

use crate::properties::check;
use crate::properties::joint::request;
use crate::properties::joint_graphs::graphs;
use crate::properties::search::{any_system, describe};
use flowspace::deadline::Deadline;
use flowspace::explain::gains;
use flowspace::mapping::request::Known;
use flowspace::mapping::search::{Engine, Passes, Pins, Request};
use flowspace::mapping::{Answer, find};
use flowspace::plan::Plan;
use flowspace::system::System;
use flowspace::workload::Workload;
use proptest::prelude::*;
use std::cell::Cell;

fn plan(w: &Workload, s: &System, request: &Request) -> Result<Option<Plan>, TestCaseError> {
    match find(w, s, request) {
        Ok(Answer::Mapped(plan, _)) => {
            flowspace::check::verify(&plan).map_err(|e| TestCaseError::fail(format!("{}: {e}", describe(w, s))))?;
            Ok(Some(*plan))
        }
        _ => Ok(None),
    }
}

/// The best plan of all, then the same asked in every narrower way that it keeps to: two passes, no sets of shardings, some of its
/// decisions pinned, its number of partitions, hardly any time.
#[test]
fn nothing_worse_than_a_known_plan_comes_out() {
    let saved = Cell::new(0);
    check(300, &(graphs(5), any_system(), any::<u16>()), |(w, s, bits)| {
        let whole = request(Passes::Joint, s.chip_count());
        let Some(found) = plan(&w, &s, &whole)? else { return Ok(()) };
        let bit = |i: u32| bits >> i & 1 == 1;
        let (d, n) = (&found.decisions, w.kernels.len());
        let every = |on: bool, k: usize| on && bit(8 + k as u32 % 8);
        let mut asked = Request {
            passes: if bit(0) { Passes::TwoPass } else { Passes::Auto },
            joint_nodes: if bit(1) { 0 } else { 1500 },
            tiles: bit(2).then_some(d.tiles),
            max_partitions: bit(3).then(|| d.partition.iter().max().map_or(1, |p| p + 1)),
            pins: Pins {
                uses: bit(4).then(|| d.uses.clone()),
                sharding: (0..n).map(|k| every(bit(5), k).then_some(d.sharding[k])).collect(),
                partition: (0..n).map(|k| every(bit(6), k).then_some(d.partition[k])).collect(),
            },
            engine: if bit(3) || bit(6) { Engine::Auto } else { Engine::Exact },
            ..Request::default()
        };
        if bit(7) {
            asked.limits.seconds = Some(1e-9);
        }
        let alone = plan(&w, &s, &asked)?;
        asked.known = vec![Known::from(&found)];
        let Some(again) = plan(&w, &s, &asked)? else {
            prop_assert!(false, "no plan, though one was known: {}", describe(&w, &s));
            return Ok(());
        };
        let (before, after) = (found.figures.iteration_s(), again.figures.iteration_s());
        prop_assert!(after <= before * (1.0 + 1e-9), "{after} for a known {before}: {}", describe(&w, &s));
        let worse = alone.is_none_or(|alone| alone.figures.iteration_s() > before * (1.0 + 1e-9));
        saved.set(saved.get() + u32::from(worse));
        Ok(())
    });
    println!("the known plan is better than what is found without it in {} cases", saved.get());
    assert!(saved.get() > 0);
}

/// Two passes blind to the memory, no sets of shardings at all: what `explain` maps again is still no slower than the plan.
#[test]
fn more_of_a_resource_is_never_slower() {
    let looked = Cell::new(0);
    check(60, &(graphs(5), any_system(), any::<bool>()), |(w, s, joint)| {
        let best = request(Passes::Joint, s.chip_count());
        let Some(found) = plan(&w, &s, &best)? else { return Ok(()) };
        let passes = if joint { Passes::Auto } else { Passes::TwoPass };
        let asked = Request { passes, joint_nodes: 0, known: vec![Known::from(&found)], ..Request::default() };
        let Ok(Answer::Mapped(plan, record)) = find(&w, &s, &asked) else {
            return Err(TestCaseError::fail(format!("no plan: {}", describe(&w, &s))));
        };
        for gain in
            gains(&plan, &record, &asked, 1.1, Deadline::never()).map_err(|e| TestCaseError::fail(e.to_string()))?
        {
            let value = gain.value.unwrap_or(f64::INFINITY);
            prop_assert!(value <= record.value * (1.0 + 1e-9), "{}: {value}: {}", gain.name, describe(&w, &s));
            looked.set(looked.get() + 1);
        }
        Ok(())
    });
    assert!(looked.get() > 0);
}
