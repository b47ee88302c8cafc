//! Plans and bounds of wide graphs, on graphs small enough for the shortest path to say what is best.

use crate::properties::random::instance;
use crate::properties::{Tally, check, near};
use flowspace::deadline::Deadline;
use flowspace::mapping::cover;
use flowspace::mapping::exact;
use flowspace::mapping::ideals::{Ideals, MAX_IDEALS};
use flowspace::mapping::instance::Instance;
use flowspace::mapping::relaxed::bound_with_pool;
use flowspace::mapping::wide::{self, Memory};
use proptest::prelude::*;

/// Without pins and limits on partitions, which the engine of wide graphs does not serve.
fn free(mut instance: Instance) -> Instance {
    instance.pins = vec![None; instance.kernels.len()];
    instance.max_partitions = None;
    instance
}

fn best(instance: &Instance) -> Option<f64> {
    let ideals = Ideals::of(instance, MAX_IDEALS).filter(|i| i.complete)?;
    exact::solve(instance, &ideals).map(|path| path.objective)
}

/// The relaxed problem of every pool is no worse than the best plan, whatever prices the ascent ends with.
#[test]
fn no_plan_beats_the_relaxation() {
    let count = std::cell::Cell::new((0u32, 0u32));
    let pools = prop_oneof![Just((1, 0)), Just((0, 1)), Just((1, 1)), Just((2, 0)), Just((2, 1))];
    check(8000, &(instance(8).prop_map(free), pools, prop::bool::ANY), |(instance, pool, known)| {
        // The passes are relaxed apart.
        let mut instance = instance;
        instance.separate_phases = false;
        let Some(optimum) = best(&instance) else { return Ok(()) };
        let upper = if known { optimum } else { f64::INFINITY };
        let Some(relaxed) = bound_with_pool(&instance, pool, upper, &mut None, Deadline::never()) else {
            return Ok(());
        };
        let bound = relaxed.bound;
        prop_assert!(bound <= optimum + 1e-9 * optimum.abs().max(1.0), "bound {bound}, best {optimum}");
        let (cases, close) = count.get();
        count.set((cases + 1, close + u32::from(bound >= 0.99 * optimum)));
        Ok(())
    });
    let (cases, close) = count.get();
    println!("{cases} relaxations, {close} within 1 %");
    assert!(cases > 1500 && close * 5 > cases, "{cases} {close}");
}

/// The same of the covering by pieces.
#[test]
fn no_plan_beats_the_covering() {
    let count = std::cell::Cell::new((0u32, 0u32, 0u32));
    check(6000, &(instance(8).prop_map(free), prop::bool::ANY), |(instance, known)| {
        let mut instance = instance;
        instance.separate_phases = false;
        let Some(optimum) = best(&instance) else { return Ok(()) };
        let upper = if known { optimum } else { 2.0 * optimum };
        let Some(bound) = cover::bound(&instance, upper, Deadline::never()) else { return Ok(()) };
        prop_assert!(bound <= optimum + 1e-9 * optimum.abs().max(1.0), "bound {bound}, best {optimum}");
        let (cases, close, above) = count.get();
        let closed = instance.least_value();
        count.set((
            cases + 1,
            close + u32::from(bound >= 0.99 * optimum),
            above + u32::from(bound > closed * (1.0 + 1e-6)),
        ));
        Ok(())
    });
    let (cases, close, above) = count.get();
    println!("{cases} coverings, {close} within 1 %, {above} above the closed form");
    assert!(cases > 3000 && close * 4 > cases && above * 4 > cases, "{cases} {close} {above}");
}

/// The plan is one, worth what it claims, between bound and the best cuts of the written order; the bound holds.
#[test]
fn wide_plans_and_bounds_enclose_the_best() {
    let proven = std::cell::Cell::new((0u32, 0u32));
    check(3000, &instance(8).prop_map(free), |instance| {
        let optimum = best(&instance);
        let found = wide::solve(&instance, f64::INFINITY, &mut Memory::default(), Deadline::never());
        let Some(found) = found else {
            // An order may have no cuts that fit the DRAM though another has.
            return Ok(());
        };
        let Some(optimum) = optimum else {
            return Err(TestCaseError::fail(format!("a plan {found:?} where there is none")));
        };
        let Some((objective, _)) = instance.evaluate(&found.assignment) else {
            return Err(TestCaseError::fail(format!("{found:?} breaks a rule")));
        };
        prop_assert!(near(objective, found.objective, 1e-12));
        prop_assert!(found.objective >= optimum - 1e-9 * optimum.abs().max(1.0), "{found:?}, best {optimum}");
        prop_assert!(found.bound <= optimum + 1e-9 * optimum.abs().max(1.0), "{found:?}, best {optimum}");
        if let Some(cut) = exact::by_order(&instance, Deadline::never()) {
            prop_assert!(found.objective <= cut.objective * (1.0 + 1e-9) + 1e-12, "{found:?} {cut:?}");
        }
        let (cases, same) = proven.get();
        proven.set((cases + 1, same + u32::from(near(found.objective, optimum, 1e-9))));
        Ok(())
    });
    let (cases, same) = proven.get();
    println!("{cases} wide plans, {same} of them best");
    assert!(cases > 1000 && same * 10 > cases * 8, "{cases} {same}");
}

/// A tensor cut in two of half the size each is the same tensor.
#[test]
fn splitting_a_tensor_changes_nothing() {
    let tally = Tally::default();
    check(3000, &(instance(7), 0..16usize), |(whole, which)| {
        if whole.tensors.is_empty() {
            return Ok(());
        }
        let mut halves = whole.clone();
        let at = which % halves.tensors.len();
        let half = &mut halves.tensors[at];
        half.store_bytes /= 2.0;
        half.store_buffer /= 2.0;
        half.live_bytes /= 2.0;
        for u in &mut half.uses {
            u.load_bytes /= 2.0;
            u.load_buffer /= 2.0;
            u.onchip_buffer /= 2.0;
        }
        let half = half.clone();
        halves.tensors.push(half);
        let (one, other) = (best(&whole), best(&halves));
        tally.count(one.is_some());
        match (one, other) {
            (None, None) => Ok(()),
            (Some(one), Some(other)) => {
                prop_assert!(near(one, other, 1e-9), "{one} whole, {other} in halves");
                Ok(())
            }
            (one, other) => Err(TestCaseError::fail(format!("{one:?} whole, {other:?} in halves"))),
        }
    });
    tally.is_even("tensors in halves");
}

/// Layers written out take, each, no longer than a layer repeated: the repeated layer's plan is one of theirs, without a load
/// and a store between them.
#[test]
fn layers_written_out_are_no_slower() {
    use flowspace::graph::unroll::unrolled;
    use flowspace::mapping::{Answer, Request, find};
    use flowspace::system::System;
    use flowspace::workload::WorkloadSpec;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = WorkloadSpec::load(&root.join("workloads/gpt3-175b-training.yaml")).unwrap();
    let mut layer = WorkloadSpec::build(&tree).unwrap();
    let mut system = System::build(&System::load(&root.join("systems/sn40l-single.yaml")).unwrap()).unwrap();
    system.memory.0.capacity = None;
    layer.repeat = 1;
    let layer_s = |workload| match find(&workload, &system, &Request::default()).unwrap() {
        Answer::Mapped(plan, record) => {
            flowspace::check::verify(&plan).unwrap();
            (plan.figures.layer_s, record.gap())
        }
        Answer::Infeasible(reason) => panic!("{reason}"),
    };
    let graph = unrolled(&layer, 6);
    assert_eq!(graph.kernels.len(), 6 * layer.kernels.len());
    // Each of five borders joins what was carried over it.
    let carried = layer.tensors.iter().filter(|t| t.carried_from.is_some()).count();
    assert_eq!(graph.tensors.len(), 6 * layer.tensors.len() - 5 * carried);
    let ((one, _), (six, gap)) = (layer_s(layer), layer_s(graph));
    assert!(six <= 6.0 * one * (1.0 + 1e-9), "{six} against 6 x {one}");
    assert!(gap < 0.01, "{gap}");
}
