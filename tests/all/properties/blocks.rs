//! Chains of blocks (embedding, layers, head), end to end: against brute force by the checker, and against the layers alone.

use crate::properties::check;
use crate::properties::near;
use crate::properties::search::{describe, system};
use flowspace::check::{derive, verify};
use flowspace::mapping::search::{MapError, Record, Request};
use flowspace::mapping::{Answer, Status, find};
use flowspace::plan::{Decisions, Plan};
use flowspace::spec::Node;
use flowspace::system::System;
use flowspace::units::Bytes;
use flowspace::workload::{Workload, WorkloadSpec, write};
use proptest::prelude::*;
use std::cell::Cell;

fn read(text: &str) -> Workload {
    WorkloadSpec::build(&Node::parse("test", text).unwrap()).unwrap()
}

/// Three blocks of forward kernels: one, two and two.
fn graph(hidden: u64, vocabulary: u64, seq: u64, layers: u64, batch: u64) -> Workload {
    read(&format!(
        "kind: graph\nname: chain\nsource: 'assumed: a test'\nglobal_batch: {batch}\n\
         blocks: [{{ name: first, repeat: 1 }}, {{ name: layers, repeat: {layers} }}, {{ name: head, repeat: 1 }}]\n\
         carried: [{{ tensor: x, from: y }}]\n\
         inputs: [{{ name: ids, rows: 64, cols: {seq} }}]\noutputs: [z]\nkernels:\n\
         - {{ name: in, block: first, op: gemm_weight, m: {hidden}, k: 64, n: {seq}, rhs: ids, output: x }}\n\
         - {{ name: a, block: layers, op: gemm_weight, m: {hidden}, k: {hidden}, n: {seq}, rhs: x, output: h }}\n\
         - {{ name: b, block: layers, op: elementwise, m: {hidden}, n: {seq}, inputs: [h], output: y }}\n\
         - {{ name: out, block: head, op: gemm_weight, m: {vocabulary}, k: {hidden}, n: {seq}, rhs: y, output: o }}\n\
         - {{ name: end, block: head, op: elementwise, m: {vocabulary}, n: {seq}, inputs: [o], output: z }}\n"
    ))
}

fn transformer(hidden: u64, vocabulary: Option<u64>, layers: u64, batch: u64, training: bool) -> Workload {
    let vocabulary = vocabulary.map_or(String::new(), |v| format!("vocabulary: {v}\n"));
    let pass = if training { "training" } else { "forward" };
    read(&format!(
        "kind: transformer\nname: small\nsource: 'assumed: a test'\nhidden: {hidden}\nheads: 8\nhead_dim: {}\nseq: 64\n\
         layers: {layers}\n{vocabulary}pass: {pass}\nglobal_batch: {batch}\n",
        hidden / 8
    ))
}

type Mapped = (Box<Plan>, Box<Record>);

fn solve(w: &Workload, s: &System, request: &Request) -> Result<Option<Mapped>, TestCaseError> {
    let fail = |e: String| TestCaseError::fail(format!("{}: {e}", describe(w, s)));
    match find(w, s, request) {
        // Degrees that the network does not have.
        Err(MapError::Request(_)) => Ok(None),
        Err(e) => Err(fail(e.to_string())),
        Ok(Answer::Infeasible(reason)) => {
            prop_assert!(reason.needed > 0.0 && reason.remedy.len() > 20, "{reason:?}");
            Ok(None)
        }
        Ok(Answer::Mapped(plan, record)) => {
            verify(&plan).map_err(|e| fail(e.to_string()))?;
            prop_assert!(record.bound <= record.value * (1.0 + 1e-9));
            prop_assert!(near(plan.figures.iteration_s() / record.value, 1.0, 1e-9));
            prop_assert!(!record.covers_sharding);
            Ok(Some((plan, record)))
        }
    }
}

/// Every way to divide units among stages, none empty.
fn divisions(units: u64, stages: u64) -> Vec<Vec<u64>> {
    if stages == 1 {
        return vec![vec![units]];
    }
    let first = 1..=units.saturating_sub(stages - 1);
    first.flat_map(|n| divisions(units - n, stages - 1).into_iter().map(move |d| [vec![n], d].concat())).collect()
}

/// Every assignment of kernels to partitions whose numbers are consecutive; the checker refuses those out of order.
fn assignments(kernels: usize) -> Vec<Vec<usize>> {
    let mut out = vec![Vec::new()];
    for _ in 0..kernels {
        let next = |a: Vec<usize>| (0..kernels).map(move |p| [a.clone(), vec![p]].concat());
        out = out.into_iter().flat_map(next).collect();
    }
    let whole = |a: &Vec<usize>| a.iter().max().is_some_and(|most| (0..=*most).all(|p| a.contains(&p)));
    out.into_iter().filter(whole).collect()
}

/// The plan is the best of all partitions and divisions of its degrees and sharding that the checker allows, and where the answer
/// is that none fits, none does.
#[test]
fn plans_of_chains_are_brute_force() {
    let tally = Cell::new((0, 0, 0));
    let sizes = (1..=4u64, 1..=8u64, 3..=6u32, 1..=4u64, 0..=3u32, prop::sample::select(vec![1u64, 2, 4]));
    check(150, &(sizes, system(false)), |((hidden, vocabulary, seq, layers, batch, pp), s)| {
        let w = graph(64 * hidden, 64 * vocabulary, 1 << seq, layers, 1 << batch);
        let mut request = Request { tiles: Some(1), ..Request::default() };
        request.wanted.pp = Some(pp);
        let Some((plan, record)) = solve(&w, &s, &request)? else { return Ok(()) };
        let (mut plans, mut uneven, mut fused) = tally.get();
        let mut least = f64::INFINITY;
        for partition in assignments(w.kernels.len()) {
            for stages in divisions(w.repeat, pp) {
                let decisions = Decisions { partition: partition.clone(), stages, ..plan.decisions.clone() };
                least = least.min(derive(&w, &s, &decisions).map_or(f64::INFINITY, |f| f.iteration_s()));
            }
        }
        let own = plan.figures.iteration_s();
        prop_assert!(near(least / own, 1.0, 1e-9) || record.status != Status::Optimal, "{least} {own}");
        prop_assert!(least <= own * (1.0 + 1e-9), "brute force finds no such plan: {least} {own}");
        plans += 1;
        uneven += usize::from(plan.decisions.stages.iter().any(|n| *n != plan.decisions.stages[0]));
        fused += usize::from(plan.figures.partitions.len() < w.kernels.len());
        tally.set((plans, uneven, fused));
        Ok(())
    });
    let (plans, uneven, fused) = tally.get();
    println!("{plans} plans, {uneven} of unequal stages, {fused} with fused kernels");
    assert!(plans >= 40 && uneven >= 10 && fused >= 10, "{plans} {uneven} {fused}");
}

/// Whole transformers: checked, no division is better, no more memory is slower, and a written graph reads as the same.
#[test]
fn plans_of_whole_transformers_are_checked() {
    let tally = Cell::new((0, 0));
    let sizes = (1..=4u64, 1..=8u64, 2..=6u64, 1..=3u32, prop::sample::select(vec![1u64, 2, 4]), any::<bool>());
    check(40, &(sizes, system(false)), |((hidden, vocabulary, layers, batch, pp, training), s)| {
        let w = transformer(64 * hidden, Some(128 * vocabulary), layers, 1 << batch, training);
        let again = read(&write::graph(&w, "assumed: a test"));
        prop_assert_eq!(&again.blocks, &w.blocks);
        prop_assert_eq!(again.flop_per_iteration(), w.flop_per_iteration());
        let mut request = Request::default();
        request.wanted.pp = Some(pp);
        let Some((plan, record)) = solve(&w, &s, &request)? else { return Ok(()) };
        let (mut plans, mut proven) = tally.get();
        for stages in divisions(w.repeat, pp) {
            let decisions = Decisions { stages, ..plan.decisions.clone() };
            let Ok(other) = derive(&w, &s, &decisions) else { continue };
            prop_assert!(other.iteration_s() >= plan.figures.iteration_s() * (1.0 - 1e-9));
        }
        if let Some((same, _)) = solve(&again, &s, &request)? {
            prop_assert!(near(same.figures.iteration_s() / plan.figures.iteration_s(), 1.0, 1e-9));
        }
        let mut larger = s.clone();
        if let Some(capacity) = &mut larger.memory.0.capacity {
            *capacity = Bytes(capacity.0 * 2.0);
        }
        if let Some((more, _)) = solve(&w, &larger, &request)? {
            prop_assert!(
                more.figures.iteration_s() <= plan.figures.iteration_s() * (1.0 + 1e-9)
                    || record.status != Status::Optimal
            );
        }
        plans += 1;
        proven += usize::from(record.status == Status::Optimal);
        tally.set((plans, proven));
        Ok(())
    });
    let (plans, proven) = tally.get();
    println!("{plans} plans, {proven} proven");
    assert!(plans >= 10 && proven * 10 >= plans * 8, "{plans} {proven}");
}

/// Between embedding and head a layer costs what it costs alone.
#[test]
fn layers_cost_what_they_cost_alone() {
    let compared = Cell::new(0);
    let sizes = (1..=4u64, 1..=8u64, 2..=4u64, any::<bool>());
    check(30, &(sizes, system(false)), |((hidden, vocabulary, layers, training), mut s)| {
        s.memory.0.capacity = None;
        let whole = transformer(64 * hidden, Some(128 * vocabulary), layers, 4, training);
        let alone = transformer(64 * hidden, None, layers, 4, training);
        let Some((plan, _)) = solve(&whole, &s, &Request::default())? else { return Ok(()) };
        let at = |name: &str| whole.kernel_index(name).unwrap();
        let sharding = alone.kernels.iter().map(|k| plan.decisions.sharding[at(&k.name)]).collect();
        let mut used: Vec<usize> = alone.kernels.iter().map(|k| plan.decisions.partition[at(&k.name)]).collect();
        let partition = used.clone();
        used.sort_unstable();
        used.dedup();
        let decisions = Decisions {
            sharding,
            partition: partition.iter().map(|p| used.binary_search(p).unwrap()).collect(),
            stages: flowspace::model::stages::even(s.model.pipeline, layers, plan.figures.pp),
            ..plan.decisions.clone()
        };
        if plan.figures.pp > layers {
            return Ok(());
        }
        let layer = match derive(&alone, &s, &decisions) {
            Ok(layer) => layer,
            Err(broken) => return Err(TestCaseError::fail(broken.join("; "))),
        };
        for (p, own) in used.iter().zip(&layer.partitions) {
            let there = &plan.figures.partitions[*p];
            for (one, other) in [
                (there.time_s, own.time_s),
                (there.dram_bytes, own.dram_bytes),
                (there.network_s, own.network_s),
                (there.sram_bytes, own.sram_bytes),
                (there.live_bytes, own.live_bytes),
                (there.link_j, own.link_j),
            ] {
                prop_assert!(near(one, other, 1e-9), "{:?}: {there:?} {own:?}", there.kernels);
            }
        }
        compared.set(compared.get() + 1);
        Ok(())
    });
    assert!(compared.get() >= 8, "{}", compared.get());
}
