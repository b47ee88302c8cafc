//! The fusion problem: brute force over every sequence of partitions, against the shortest path and the MILP.

use crate::properties::random::{core_options, instance};
use crate::properties::{Tally, check, near};
use flowspace::mapping::Status;
use flowspace::mapping::exact;
use flowspace::mapping::fusion::{self, PartitionCounts};
use flowspace::mapping::ideals::{Ideals, MAX_IDEALS};
use flowspace::mapping::instance::{Compute, Goal, Instance, KernelCost, TensorCost, UseCost};
use flowspace::mapping::solver::{Limits, Milp, Solver};
use flowspace::system::Overlap;
use proptest::prelude::*;

/// Every assignment of `n` kernels to partitions that respects `before` (pairs u, v: u not after v) and leaves no
/// partition empty.
pub fn assignments(n: usize, before: &[(usize, usize)], visit: &mut dyn FnMut(&[usize])) {
    fn walk(k: usize, at: &mut Vec<usize>, before: &[(usize, usize)], visit: &mut dyn FnMut(&[usize])) {
        let n = at.len();
        if k == n {
            let most = at.iter().max().map_or(0, |p| p + 1);
            if (0..most).all(|p| at.contains(&p)) {
                visit(at);
            }
            return;
        }
        let least = before.iter().filter(|(_, v)| *v == k).map(|(u, _)| at[*u]).max().unwrap_or(0);
        for p in least..n {
            at[k] = p;
            walk(k + 1, at, before, visit);
        }
    }
    walk(0, &mut vec![0; n], before, visit);
}

fn edges(instance: &Instance) -> Vec<(usize, usize)> {
    instance.tensors.iter().flat_map(|t| t.uses.iter().filter_map(|u| Some((t.producer?, u.kernel)))).collect()
}

/// The least time over all assignments, by `Instance::evaluate`.
fn brute_force(instance: &Instance) -> Option<f64> {
    let mut best: Option<f64> = None;
    assignments(instance.kernels.len(), &edges(instance), &mut |a| {
        if let Some((time, _)) = instance.evaluate(a) {
            best = Some(best.map_or(time, |b| b.min(time)));
        }
    });
    best
}

/// Time of an assignment from the definitions, sharing no code with `Instance`; `None` where a rule is broken.
///
/// A tensor is loaded into each partition that reads it and does not make it (the widest reader counts), stored by its
/// producer when it is an output or read elsewhere, and waits in DRAM from there (an input: from the start) to its last
/// load (an output: to the end). Its buffer is the largest of those its readers and its store need.
fn from_definitions(i: &Instance, at: &[usize]) -> Option<f64> {
    let n = at.len();
    let parts = at.iter().max()? + 1;
    let slack = 1.0 + 1e-9;
    if (0..n).any(|k| i.pins[k].is_some_and(|pin| at[k] != pin)) || i.max_partitions.is_some_and(|m| parts > m) {
        return None;
    }
    for (u, v) in edges(i) {
        if at[u] > at[v] {
            return None;
        }
    }
    for a in 0..n {
        for b in 0..n {
            let backward_first = i.kernels[a].backward && !i.kernels[b].backward && at[a] <= at[b];
            let not_alone = a != b && at[a] == at[b] && (i.kernel_by_kernel || i.kernels[a].pieces > 1);
            if (i.separate_phases && backward_first) || not_alone {
                return None;
            }
        }
    }
    let mut total = 0.0;
    let mut fullest: f64 = 0.0;
    for p in 0..parts {
        let inside: Vec<usize> = (0..n).filter(|k| at[*k] == p).collect();
        let sum = |f: &dyn Fn(usize) -> f64| inside.iter().map(|k| f(*k)).sum::<f64>();
        let fixed = sum(&|k| if let Compute::Seconds(s) = &i.kernels[k].compute { *s } else { 0.0 });
        let mut sram = i.base_sram_bytes + sum(&|k| i.kernels[k].resident_bytes);
        let mut dram = sum(&|k| i.kernels[k].dram_bytes);
        let mut live = 0.0;
        for t in &i.tensors {
            let made = t.producer.map(|k| at[k]);
            let away = |k: usize| made != Some(at[k]);
            let last_load = t.uses.iter().filter(|u| away(u.kernel)).map(|u| at[u.kernel]).max();
            let stored = made.is_some() && (t.output || last_load.is_some());
            let mut buffer: f64 = 0.0;
            let mut load: f64 = 0.0;
            for u in t.uses.iter().filter(|u| at[u.kernel] == p) {
                if away(u.kernel) {
                    load = load.max(u.load_bytes);
                    buffer = buffer.max(u.load_buffer);
                } else {
                    buffer = buffer.max(u.onchip_buffer);
                }
            }
            if stored && made == Some(p) {
                dram += t.store_bytes;
                buffer = buffer.max(t.store_buffer);
            }
            dram += load;
            sram += buffer;
            let until = if t.output { Some(parts) } else { last_load };
            if made.unwrap_or(0) <= p && until.is_some_and(|last| p <= last) && (stored || made.is_none()) {
                live += t.live_bytes;
            }
        }
        fullest = fullest.max(live);
        if sram > i.sram_bytes * slack || live > i.live_limit * slack {
            return None;
        }
        let compute = fixed + slowest_of_all_splits(i, &inside)?;
        let network = sum(&|k| i.kernels[k].network_s);
        let dram = dram / i.dram_bytes_per_s;
        let steady = match i.overlap {
            Overlap::Full => compute.max(dram).max(network),
            Overlap::ComputeMemory => compute.max(dram) + network,
            Overlap::None => compute + dram + network,
        };
        total += steady * (1.0 + inside.iter().map(|k| begins(i, at, *k)).fold(0.0, f64::max));
        total += sum(&|k| i.kernels[k].serial_s) + i.partition_overhead_s;
    }
    assert!(
        fullest >= i.waits_at_least() * (1.0 - 1e-9),
        "{fullest} wait, {} at least: {at:?}, {i:?}",
        i.waits_at_least()
    );
    Some(total)
}

/// When a kernel begins in its partition: each that it reads there has a lead on it.
fn begins(i: &Instance, at: &[usize], k: usize) -> f64 {
    let mut latest = 0.0_f64;
    for t in &i.tensors {
        let Some(maker) = t.producer.filter(|maker| at[*maker] == at[k]) else { continue };
        for u in t.uses.iter().filter(|u| u.kernel == k) {
            latest = latest.max(begins(i, at, maker) + u.lag);
        }
    }
    latest
}

/// The slowest kernel under the best of all choices of options that the cores allow.
fn slowest_of_all_splits(i: &Instance, inside: &[usize]) -> Option<f64> {
    let fronts: Vec<_> = inside
        .iter()
        .filter_map(|k| match &i.kernels[*k].compute {
            Compute::Cores(options) => Some(options),
            Compute::Seconds(_) => None,
        })
        .collect();
    let mut states: Vec<(u64, f64)> = vec![(0, 0.0)];
    for front in fronts {
        states = states
            .iter()
            .flat_map(|(cores, slowest)| front.iter().map(move |o| (cores + o.cores, slowest.max(o.seconds))))
            .collect();
    }
    states.into_iter().filter(|(cores, _)| *cores <= i.cores).map(|(_, s)| s).min_by(f64::total_cmp)
}

/// The least objective of the MILP, given as many partitions as kernels (or as the instance allows, however these are
/// shared by the phases); each plan it returns must be worth what it claims.
#[cfg_attr(not(feature = "milp"), allow(dead_code))]
fn milp(instance: &Instance, solver: Solver) -> Result<Option<f64>, TestCaseError> {
    let of_phase = |backward: bool| instance.kernels.iter().filter(|k| k.backward == backward).count();
    let n = instance.kernels.len();
    let most = instance.max_partitions.unwrap_or(n).min(n);
    let counts: Vec<PartitionCounts> = if instance.separate_phases {
        let (f, b) = (of_phase(false), of_phase(true));
        match instance.max_partitions {
            None => vec![PartitionCounts { forward: f, backward: b }],
            Some(_) => (f.min(1)..=f.min(most))
                .map(|forward| PartitionCounts { forward, backward: b.min(most - forward) })
                .collect(),
        }
    } else {
        vec![PartitionCounts { forward: most, backward: 0 }]
    };
    let mut best: Option<f64> = None;
    for counts in counts {
        let model = fusion::build(instance, counts);
        let solved = model
            .solve(&Limits { solver, ..Limits::default() }, None)
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        let Some(values) = solved.values else {
            prop_assert_eq!(solved.record.status, Status::Infeasible);
            continue;
        };
        prop_assert_eq!(solved.record.status, Status::Optimal);
        let objective = solved.record.objective;
        prop_assert!(solved.record.bound <= objective + 1e-6 * objective.abs().max(1.0));
        let assignment = model.assignment(&values);
        let Some((time, _)) = instance.evaluate(&assignment) else {
            return Err(TestCaseError::fail(format!("{solver}: the plan {assignment:?} of the MILP breaks a rule")));
        };
        prop_assert!(near(time, objective, 1e-6), "{solver} says {objective}, its plan {assignment:?} takes {time}");
        best = Some(best.map_or(objective, |b: f64| b.min(objective)));
    }
    Ok(best)
}

/// What the MILP does not state: pins together with separate phases (a pin is a position, the model's backward partitions start at
/// a fixed one).
fn milp_states(instance: &Instance) -> bool {
    let pinned = instance.pins.iter().any(Option::is_some);
    !(pinned && instance.separate_phases)
}

#[test]
fn evaluation_is_that_of_the_definitions() {
    check(1500, &instance(5), |instance| {
        let mut fault = None;
        assignments(instance.kernels.len(), &[], &mut |a| {
            let one = instance.evaluate(a).map(|(time, _)| time);
            let other = from_definitions(&instance, a);
            let same = match (one, other) {
                (Some(x), Some(y)) => near(x, y, 1e-12),
                (None, None) => true,
                _ => false,
            };
            if !same {
                fault = Some(format!("{a:?}: {one:?}, from the definitions {other:?}"));
            }
        });
        prop_assert!(fault.is_none(), "{}", fault.unwrap_or_default());
        Ok(())
    });
}

fn shortest_path_is_brute_force(cases: u32, kernels: usize) {
    let tally = std::cell::Cell::new((0, 0));
    check(cases, &instance(kernels), |instance| {
        let least = brute_force(&instance);
        let ideals = Ideals::of(&instance, MAX_IDEALS).expect("few kernels");
        prop_assert!(ideals.complete);
        let path = exact::solve(&instance, &ideals);
        let (feasible, infeasible) = tally.get();
        match (&path, least) {
            (None, None) => tally.set((feasible, infeasible + 1)),
            (Some(path), Some(least)) => {
                tally.set((feasible + 1, infeasible));
                prop_assert!(path.proven);
                prop_assert!(near(path.objective, least, 1e-9), "path {}, brute force {least}", path.objective);
                let (time, _) = instance.evaluate(&path.assignment).expect("the path's plan is feasible");
                prop_assert!(near(time, least, 1e-9), "the path's plan takes {time}, the best {least}");
                let bound = instance.lower_bound();
                prop_assert!(bound <= least + 1e-9 * least.max(1.0), "closed-form bound {bound}, best {least}");
            }
            (path, least) => prop_assert!(false, "path {path:?}, brute force {least:?}"),
        }
        Ok(())
    });
    let (feasible, infeasible) = tally.get();
    println!("{feasible} feasible, {infeasible} not");
    assert!(feasible > infeasible && infeasible * 10 > cases, "one-sided: {feasible} feasible, {infeasible} not");
}

#[test]
fn shortest_path_is_brute_force_up_to_five_kernels() {
    shortest_path_is_brute_force(6000, 5);
}

#[test]
fn shortest_path_is_brute_force_up_to_seven_kernels() {
    shortest_path_is_brute_force(250, 7);
}

/// A part of the ideals gives plans that are plans, no better than the best and no worse than those of one order.
#[test]
fn a_part_of_the_ideals_gives_plans_without_proof() {
    let parts = std::cell::Cell::new(0);
    check(1500, &(instance(7), 9..40usize), |(instance, limit)| {
        let all = Ideals::of(&instance, MAX_IDEALS).expect("few kernels");
        let part = Ideals::of(&instance, limit).expect("few kernels");
        prop_assert!(
            part.sets.iter().all(|set| all.sets.contains(set)),
            "{:?} is no part of {:?}",
            part.sets,
            all.sets
        );
        let best = exact::solve(&instance, &all);
        let found = exact::solve(&instance, &part);
        if part.complete {
            prop_assert_eq!(&best, &found);
            return Ok(());
        }
        parts.set(parts.get() + 1);
        let least = best.map_or(f64::INFINITY, |b| b.objective);
        if let Some(found) = &found {
            prop_assert!(!found.proven && found.objective >= least * (1.0 - 1e-9));
            let (time, _) = instance.evaluate(&found.assignment).expect("a feasible plan");
            prop_assert!(near(time, found.objective, 1e-9));
        }
        let one_order = exact::solve(&instance, &all.one_order()).map_or(f64::INFINITY, |p| p.objective);
        let found = found.map_or(f64::INFINITY, |p| p.objective);
        prop_assert!(found <= one_order * (1.0 + 1e-9), "{found}, of one order {one_order}");
        // What takes longer than asked for is not found; what does not is.
        for (cutoff, there) in [(least * 0.99, least == 0.0), (least * 1.01, least.is_finite())] {
            let within = exact::solve_below(&instance, &all, cutoff);
            let counted = instance.max_partitions.is_some() || instance.pins.iter().any(Option::is_some);
            prop_assert!(counted || within.is_some() == there, "cutoff {cutoff}, best {least}: {within:?}");
        }
        Ok(())
    });
    assert!(parts.get() > 100, "{} parts", parts.get());
}

#[cfg_attr(not(feature = "milp"), allow(dead_code))]
fn milp_is_brute_force(cases: u32, kernels: usize, solver: Solver) {
    let strategy = instance(kernels).prop_filter("what the MILP states", milp_states);
    let (infeasible, alone) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    check(cases, &strategy, |instance| {
        let least = brute_force(&instance);
        alone.set(alone.get() + u32::from(instance.kernel_by_kernel));
        match (milp(&instance, solver)?, least) {
            (None, None) => infeasible.set(infeasible.get() + 1),
            (Some(found), Some(least)) => {
                prop_assert!(near(found, least, 1e-6), "{solver} {found}, brute force {least}")
            }
            (found, least) => prop_assert!(false, "{solver} {found:?}, brute force {least:?}"),
        }
        Ok(())
    });
    let (cases, infeasible, alone) = (super::drawn(cases), infeasible.get(), alone.get());
    println!("{solver}: {cases} cases, {infeasible} infeasible, {alone} with one kernel a partition");
    assert!(infeasible * 10 > cases && infeasible * 10 < cases * 9, "one-sided: {infeasible} of {cases} infeasible");
}

#[cfg(feature = "milp")]
#[test]
fn highs_is_brute_force() {
    milp_is_brute_force(1000, 5, Solver::Highs);
}

#[cfg(feature = "milp")]
#[test]
fn highs_is_brute_force_up_to_seven_kernels() {
    milp_is_brute_force(25, 7, Solver::Highs);
}

#[cfg(feature = "cbc")]
#[test]
fn cbc_is_brute_force() {
    milp_is_brute_force(400, 4, Solver::Cbc);
}

/// Rows that a point breaks by more than 1e-9.
fn broken(milp: &Milp, values: &[f64]) -> Vec<String> {
    milp.rows
        .iter()
        .filter(|row| {
            let left: f64 = row.terms.iter().map(|(c, a)| a * values[*c]).sum();
            left < row.right - 1e-9 || (row.equal && left > row.right + 1e-9)
        })
        .map(|row| row.name.clone())
        .collect()
}

/// A feasible assignment is a point of the MILP that satisfies every row and costs what the assignment costs; so the
/// search may start a solver from it.
#[test]
fn every_feasible_assignment_is_a_point_of_the_milp() {
    let strategy = instance(4).prop_filter("what the MILP states", milp_states);
    check(400, &strategy, |instance| {
        let scale = if instance.lower_bound() > 0.0 { instance.lower_bound() } else { 1.0 };
        let mut fault = None;
        assignments(instance.kernels.len(), &edges(&instance), &mut |a| {
            let Some((time, _)) = instance.evaluate(a) else { return };
            let counts = PartitionCounts::of(&instance, a, 0);
            let model = fusion::build(&instance, counts);
            let Some(values) = model.point(&instance, a, counts) else {
                fault = Some(format!("{a:?} is no point"));
                return;
            };
            let rows = broken(&model.milp, &values);
            let cost = model.milp.objective(&values) * scale;
            if !rows.is_empty() || !near(cost, time, 1e-9) || model.assignment(&values) != a {
                fault = Some(format!("{a:?}: breaks {rows:?}, costs {cost} for {time}"));
            }
        });
        prop_assert!(fault.is_none(), "{}", fault.unwrap_or_default());
        Ok(())
    });
}

/// Kernels carry no meaning in their numbers: another topological order gives the same optimum.
#[test]
fn relabelling_kernels_changes_nothing() {
    let strategy = (instance(6), prop::collection::vec(0..1000u32, 6));
    let tally = Tally::default();
    check(3000, &strategy, |(instance, weights)| {
        let n = instance.kernels.len();
        // Of the kernels whose predecessors are placed, the one of least weight goes next.
        let before = edges(&instance);
        let mut order: Vec<usize> = Vec::new();
        while order.len() < n {
            let ready =
                (0..n).filter(|k| !order.contains(k) && before.iter().all(|(u, v)| v != k || order.contains(u)));
            order.extend(ready.min_by_key(|k| (weights[*k], *k)));
        }
        let new_of = |old: usize| order.iter().position(|k| *k == old).expect("every kernel is placed");
        let mut other = instance.clone();
        other.kernels = order.iter().map(|k| instance.kernels[*k].clone()).collect();
        other.pins = order.iter().map(|k| instance.pins[*k]).collect();
        for t in &mut other.tensors {
            t.producer = t.producer.map(new_of);
            for u in &mut t.uses {
                u.kernel = new_of(u.kernel);
            }
        }
        other.tensors.reverse();
        let solve = |i: &Instance| exact::solve(i, &Ideals::of(i, MAX_IDEALS)?).map(|p| p.objective);
        let (one, relabelled) = (solve(&instance), solve(&other));
        tally.count(one.is_some());
        match (one, relabelled) {
            (None, None) => {}
            (Some(a), Some(b)) => prop_assert!(near(a, b, 1e-9), "{a}, relabelled {b}"),
            (a, b) => prop_assert!(false, "{a:?}, relabelled {b:?}"),
        }
        Ok(())
    });
    tally.is_even("relabelled");
}

/// More of anything never hurts: SRAM, DRAM, bandwidth, cores, partitions.
#[test]
fn a_larger_chip_is_never_slower() {
    let tally = Tally::default();
    check(3000, &(instance(6), 0..5u8, core_options()), |(instance, which, _)| {
        let mut more = instance.clone();
        match which {
            0 => more.sram_bytes *= 1.5,
            1 => more.live_limit *= 1.5,
            2 => more.dram_bytes_per_s *= 1.5,
            3 => more.cores += 2,
            _ => more.max_partitions = None,
        }
        let solve = |i: &Instance| exact::solve(i, &Ideals::of(i, MAX_IDEALS)?).map(|p| p.objective);
        let before = solve(&instance);
        tally.count(before.is_some());
        if let Some(before) = before {
            let after = solve(&more);
            prop_assert!(after.is_some_and(|a| a <= before + 1e-9), "{before}, with more {after:?}");
        }
        Ok(())
    });
    tally.is_even("larger chips");
}

/// Kernels a, b, c in one partition, 1 s of arithmetic each, cut into four tiles: the chip is divided so that a tile takes each of them
/// 3 s / 4 = 0.75 s. c begins two tiles after a, at 1.5 s, and ends at 4.5 s; where it needs the result of b whole, it begins when b has
/// ended, at 0.75 + 3 s, and ends at 6.75 s.
#[test]
fn three_kernels_and_four_tiles_by_hand() {
    let kernel = KernelCost {
        compute: Compute::Seconds(1.0),
        network_s: 0.0,
        serial_s: 0.0,
        resident_bytes: 0.0,
        dram_bytes: 0.0,
        pieces: 1,
        backward: false,
    };
    let of = |lag: f64| {
        let tensor = |from: usize, lag: f64| TensorCost {
            producer: Some(from),
            output: false,
            store_bytes: 8.0,
            store_buffer: 0.0,
            live_bytes: 0.0,
            uses: vec![UseCost {
                kernel: from + 1,
                load_bytes: 8.0,
                load_buffer: 0.0,
                onchip_buffer: 0.0,
                lag,
                own_part: false,
            }],
        };
        Instance {
            kernels: vec![kernel.clone(); 3],
            tensors: vec![tensor(0, 0.25), tensor(1, lag)],
            sram_bytes: 1.0,
            base_sram_bytes: 0.0,
            live_limit: f64::INFINITY,
            cores: 1,
            dram_bytes_per_s: 4.0,
            overlap: Overlap::Full,
            partition_overhead_s: 0.0,
            kernel_by_kernel: false,
            separate_phases: false,
            pins: vec![None; 3],
            max_partitions: None,
            goal: Goal::TIME,
        }
    };
    let (streamed, whole) = (of(0.25), of(1.0));
    assert_eq!(streamed.evaluate(&[0, 0, 0]).map(|(time, _)| time), Some(4.5));
    assert_eq!(whole.evaluate(&[0, 0, 0]).map(|(time, _)| time), Some(6.75));
    // Apart b and c store and load 8 bytes, 2 s: max(2, 2) + 2 x 0.25 s of a and b, 2 s of c, 4.5 s.
    assert_eq!(whole.evaluate(&[0, 0, 1]).map(|(time, _)| time), Some(4.5));
    let solve = |i: &Instance| exact::solve(i, &Ideals::of(i, MAX_IDEALS).expect("few kernels")).expect("a plan");
    assert_eq!((solve(&streamed).objective, solve(&whole).objective), (4.5, 4.5));
    assert_eq!(solve(&whole).assignment, [0, 0, 1]);
}

/// What a partition takes is what its tiles take one by one: a kernel takes a tile when it has done the one before and those that
/// it reads have done theirs (all, where it needs them whole), and a step takes the longest part of the partition over the tiles.
#[test]
fn partitions_take_as_long_as_their_tiles_one_by_one() {
    let filled = std::cell::Cell::new(0);
    let strategy = (instance(6).prop_map(without_rules), 1..=6u64, prop::collection::vec(any::<bool>(), 24));
    check(1500, &strategy, |(mut instance, tiles, whole)| {
        let mut choices = whole.iter().cycle();
        for u in instance.tensors.iter_mut().flat_map(|t| &mut t.uses) {
            u.lag = if *choices.next().expect("endless") { 1.0 } else { 1.0 / tiles as f64 };
        }
        let n = instance.kernels.len();
        let Some((time, costs)) = instance.evaluate(&vec![0; n]) else { return Ok(()) };
        // The step at which each kernel ends each of its tiles.
        let mut ends = vec![vec![0u64; tiles as usize]; n];
        for k in 0..n {
            for tile in 0..tiles as usize {
                let mut ready = if tile > 0 { ends[k][tile - 1] } else { 0 };
                for t in &instance.tensors {
                    let Some(maker) = t.producer else { continue };
                    for u in t.uses.iter().filter(|u| u.kernel == k) {
                        let awaited = if u.lag == 1.0 { tiles as usize - 1 } else { tile };
                        ready = ready.max(ends[maker][awaited]);
                    }
                }
                ends[k][tile] = ready + 1;
            }
        }
        let steps = ends.iter().filter_map(|of| of.last()).max().copied().unwrap_or(0) as f64;
        let c = &costs[0];
        let steady = match instance.overlap {
            Overlap::Full => c.compute_s.max(c.dram_s).max(c.network_s),
            Overlap::ComputeMemory => c.compute_s.max(c.dram_s) + c.network_s,
            Overlap::None => c.compute_s + c.dram_s + c.network_s,
        };
        let by_steps = steps * steady / tiles as f64 + c.serial_s;
        prop_assert!(near(time, by_steps, 1e-12), "{time}, step by step {by_steps}");
        filled.set(filled.get() + u32::from(steps > tiles as f64));
        Ok(())
    });
    assert!(filled.get() > 300, "{} pipelines", filled.get());
}

/// One partition of everything breaks no rule.
fn without_rules(mut instance: Instance) -> Instance {
    instance.pins = vec![None; instance.kernels.len()];
    (instance.max_partitions, instance.separate_phases, instance.kernel_by_kernel) = (None, false, false);
    (instance.sram_bytes, instance.live_limit) = (1e6, f64::INFINITY);
    instance.kernels.iter_mut().for_each(|kernel| (kernel.pieces, kernel.backward) = (1, false));
    instance
}
