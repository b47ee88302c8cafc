//! Plans and bounds of wide graphs, on graphs small enough for the shortest path to say what is best.

use crate::properties::random::instance;
use crate::properties::{Tally, check, near};
use flowspace::deadline::Deadline;
use flowspace::mapping::best_first::{self, Effort};
use flowspace::mapping::cover;
use flowspace::mapping::exact;
use flowspace::mapping::ideals::{Ideals, MAX_IDEALS};
use flowspace::mapping::instance::{Instance, KernelCost, TensorCost, UseCost};
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
    let count = std::cell::Cell::new((0u32, 0u32, 0u32));
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
        // What pooled kernels wait for is not in the bound: it is close where no pipeline fills.
        let plain = instance.tensors.iter().flat_map(|t| &t.uses).all(|u| u.lag == 0.0);
        let (cases, without, close) = count.get();
        count.set((cases + 1, without + u32::from(plain), close + u32::from(plain && bound >= 0.99 * optimum)));
        Ok(())
    });
    let (cases, plain, close) = count.get();
    println!("{cases} relaxations, {plain} without pipelines that fill, {close} of these within 1 %");
    assert!(cases > 1500 && plain > 400 && close * 5 > plain, "{cases} {plain} {close}");
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

/// Layers of a few kinds, each a kernel of a chain and a leaf that reads its result and something of its own; leaves beside them. Kernels,
/// tensors and chip are those of a random instance.
fn layers() -> impl Strategy<Value = Instance> {
    let kinds = prop::collection::vec(0..2usize, 1..=4);
    let shared = prop::option::weighted(0.3, 0..6usize);
    (instance(8).prop_map(free), kinds, 0..=3usize, shared).prop_map(|(random, kinds, beside, shared)| {
        let kernel = |i: usize| random.kernels[i % random.kernels.len()].clone();
        let some = TensorCost {
            producer: None,
            output: false,
            store_bytes: 1.0,
            store_buffer: 1.0,
            live_bytes: 1.0,
            uses: vec![UseCost {
                kernel: 0,
                load_bytes: 1.0,
                load_buffer: 1.0,
                onchip_buffer: 2.0,
                lag: 0.25,
                own_part: false,
            }],
        };
        let tensor = |i: usize| random.tensors.get(i).cloned().unwrap_or_else(|| some.clone());
        let read = |tensor: &TensorCost, i: usize, kernel: usize| {
            let numbers = tensor.uses.get(i).or(tensor.uses.first()).unwrap_or(&some.uses[0]);
            UseCost { kernel, ..numbers.clone() }
        };
        let (mut kernels, mut tensors) = (Vec::<KernelCost>::new(), Vec::new());
        let count = kinds.len();
        for (i, kind) in kinds.iter().enumerate() {
            kernels.push(kernel(*kind));
            let own = tensor(*kind);
            let next = (i + 1 < count).then(|| read(&own, 0, i + 1));
            let uses = next.into_iter().chain([read(&own, 1, count + i)]).collect();
            tensors.push(TensorCost { producer: Some(i), uses, ..own });
        }
        for (i, kind) in kinds.iter().enumerate() {
            kernels.push(kernel(2 + kind));
            let own = tensor(2 + kind);
            let uses = vec![read(&own, 0, count + i)];
            tensors.push(TensorCost { producer: None, output: false, uses, ..own });
        }
        for i in 0..beside {
            kernels.push(kernel(4));
            let own = tensor(4);
            let uses = vec![read(&own, 0, 2 * count + i)];
            tensors.push(TensorCost { producer: None, output: false, uses, ..own });
        }
        if let Some(which) = shared {
            // One tensor for all leaves beside each other.
            let own = tensor(which);
            let uses = (2 * count..2 * count + beside).map(|k| read(&own, 0, k)).collect();
            tensors.push(TensorCost { producer: None, output: false, uses, ..own });
        }
        let pins = vec![None; kernels.len()];
        Instance { kernels, tensors, pins, separate_phases: false, kernel_by_kernel: false, ..random }
    })
}

/// The search over ideals as they are reached finds the best plan of all ideals, or that there is none, with leaves alike and without,
/// with prices and without; stopped early it has a bound.
#[test]
fn ideals_as_they_are_reached_are_enough() {
    let tally = Tally::default();
    let count = std::cell::Cell::new((0u32, 0u32));
    let random = instance(8).prop_map(free).prop_map(|instance| Instance { separate_phases: false, ..instance });
    let cases = prop_oneof![1 => random, 3 => layers()];
    check(12_000, &(cases, prop::bool::ANY, 0..60usize, 1..20u64), |(instance, priced, ideals, joins)| {
        if instance.kernel_by_kernel {
            return Ok(());
        }
        let all = Effort { ideals: usize::MAX, joins: u64::MAX };
        let optimum = best(&instance);
        tally.count(optimum.is_some());
        let upper = optimum.map_or(1e6, |o| o * 1.5);
        let prices = if priced { cover::prices(&instance, upper, Deadline::never()) } else { None };
        let search = |known, effort| best_first::search(&instance, known, prices.as_deref(), effort, Deadline::never());
        let found = search(f64::INFINITY, all).expect("served");
        prop_assert!(found.complete);
        let Some(optimum) = optimum else {
            prop_assert!(found.plan.is_none(), "{found:?} where there is no plan");
            return Ok(());
        };
        let Some((objective, plan)) = found.plan else {
            return Err(TestCaseError::fail(format!("no plan where one takes {optimum}")));
        };
        prop_assert!(near(objective, optimum, 1e-9), "{objective}, best {optimum}");
        let evaluated = instance.evaluate(&plan).map(|(objective, _)| objective);
        prop_assert!(evaluated.is_some_and(|e| near(e, objective, 1e-12)), "{plan:?}");
        let below = search(optimum * 0.999 - 1e-6, all).expect("served");
        prop_assert!(below.complete && below.plan.is_none());
        let stopped = search(f64::INFINITY, Effort { ideals, joins }).expect("served");
        prop_assert!(stopped.bound <= optimum + 1e-9 * optimum.max(1.0), "{stopped:?}, best {optimum}");
        let (cases, unfinished) = count.get();
        count.set((cases + 1, unfinished + u32::from(!stopped.complete)));
        Ok(())
    });
    let (cases, unfinished) = count.get();
    println!("{cases} searches, {unfinished} stopped early");
    assert!(cases > 4000 && unfinished * 4 > cases, "{cases} {unfinished}");
    tally.is_even("ideals as they are reached");
}

/// Kernels beside each other, too many for their ideals to be listed, none like another: the best packing is proven.
#[test]
fn independent_kernels_are_packed_with_proof() {
    let chip = instance(1).prop_map(free);
    let many = prop::collection::vec(instance(1), 15..=18);
    let cases = std::cell::Cell::new(0u32);
    check(40, &(chip, many, 6.0..30.0_f64), |(chip, many, sram)| {
        let mut kernels: Vec<KernelCost> = many.iter().map(|one| one.kernels[0].clone()).collect();
        for (k, kernel) in kernels.iter_mut().enumerate() {
            kernel.dram_bytes += k as f64 / 64.0;
            kernel.backward = false;
        }
        let pins = vec![None; kernels.len()];
        let (kernel_by_kernel, separate_phases) = (false, false);
        let whole = Instance {
            kernels,
            tensors: Vec::new(),
            pins,
            sram_bytes: sram,
            kernel_by_kernel,
            separate_phases,
            ..chip
        };
        let Some(found) = wide::solve(&whole, f64::INFINITY, &mut Memory::default(), Deadline::never()) else {
            return Ok(());
        };
        cases.set(cases.get() + 1);
        prop_assert!(near(found.objective, found.bound, 1e-9), "{found:?}");
        Ok(())
    });
    println!("{} packings, all proven", cases.get());
    assert!(cases.get() > 20);
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
