//! The joint search against brute force: every sharding pinned in turn, each with its best tiles and partitions.

use crate::properties::search::{any_system, describe, system, workload};
use crate::properties::{check, near};
use flowspace::mapping::search::{Engine, MapError, MicroBatch, Passes, Pins, Request};
use flowspace::mapping::solver::Limits;
use flowspace::mapping::{Answer, Status, find};
use flowspace::model::Strategy as Sharding;
use flowspace::spec::Node;
use flowspace::system::System;
use flowspace::units::Bytes;
use flowspace::workload::{Op, Workload, WorkloadSpec};
use proptest::prelude::*;
use std::cell::Cell;

/// A chain of up to six kernels, some of which read what was made before the last one.
pub fn chain() -> impl Strategy<Value = Workload> {
    let kernel = (0..4u8, 3..=7u32, any::<bool>());
    (prop::collection::vec(kernel, 2..=5), 4..=6u32, 1..=3u64).prop_map(|(kernels, columns, layers)| {
        use std::fmt::Write as _;
        let n = 1u64 << columns;
        let mut text = format!(
            "kind: graph\nname: chain\nsource: 'assumed: a test'\nglobal_batch: 8\nrepeat: {layers}\n\
             inputs: [{{ name: x, rows: 64, cols: {n}, carried_from: last }}]\nkernels:\n"
        );
        let mut rows = vec![64u64];
        let mut names = vec!["x".to_string()];
        for (i, (kind, size, skip)) in kernels.iter().enumerate() {
            let input = names[i].clone();
            let (k, m) = (rows[i], 1u64 << size);
            match kind {
                0 | 1 => {
                    let _ = writeln!(
                        text,
                        "  - {{ name: k{i}, op: gemm_weight, m: {m}, k: {k}, n: {n}, rhs: {input}, output: t{i} }}"
                    );
                    rows.push(m);
                }
                2 => {
                    let before = (0..i).rev().find(|j| *skip && rows[*j] == k).map(|j| format!(", {}", names[j]));
                    let _ = writeln!(
                        text,
                        "  - {{ name: k{i}, op: elementwise, m: {k}, n: {n}, inputs: [{input}{}], output: t{i} }}",
                        before.unwrap_or_default()
                    );
                    rows.push(k);
                }
                _ => {
                    let _ = writeln!(
                        text,
                        "  - {{ name: k{i}, op: norm, m: {k}, n: {n}, inputs: [{input}], output: t{i} }}"
                    );
                    rows.push(k);
                }
            }
            names.push(format!("t{i}"));
        }
        let (last, input) = (rows[kernels.len()], &names[kernels.len()]);
        let _ = writeln!(
            text,
            "  - {{ name: end, op: gemm_weight, m: 64, k: {last}, n: {n}, rhs: {input}, output: last }}"
        );
        WorkloadSpec::build(&Node::parse("chain.yaml", &text).expect("YAML")).unwrap_or_else(|e| panic!("{e}\n{text}"))
    })
}

pub fn request(passes: Passes, tp: u64) -> Request {
    let limits = Limits { gap: 0.0, ..Limits::default() };
    let mut request = Request { engine: Engine::Exact, passes, limits, joint_nodes: 1_000_000, ..Request::default() };
    request.wanted.tp = Some(tp);
    request
}

/// Objective and status; `None` where no plan exists.
pub fn solve(w: &Workload, s: &System, request: &Request) -> Result<Option<(f64, Status)>, TestCaseError> {
    let fail = |e: String| TestCaseError::fail(format!("{}: {e}", describe(w, s)));
    match find(w, s, request) {
        Ok(Answer::Mapped(plan, record)) => {
            flowspace::check::verify(&plan).map_err(|e| fail(e.to_string()))?;
            prop_assert!(record.bound <= record.value * (1.0 + 1e-12));
            Ok(Some((record.value, record.status)))
        }
        Ok(Answer::Infeasible(_)) => Ok(None),
        Err(e) => Err(fail(e.to_string())),
    }
}

/// Every strategy that some rule set opens to a kernel; pins that it does not have are no plan.
pub fn strategies(w: &Workload) -> Vec<Vec<Sharding>> {
    w.kernels
        .iter()
        .map(|k| match k.op {
            Op::GemmWeight | Op::Gemm => vec![Sharding::M, Sharding::K, Sharding::N, Sharding::Replicate],
            _ => vec![Sharding::M, Sharding::N, Sharding::Replicate],
        })
        .collect()
}

/// The least of all shardings, each pinned.
pub fn brute_force_over(w: &Workload, s: &System, request: &Request) -> Result<Option<f64>, TestCaseError> {
    let all = strategies(w);
    let mut best: Option<f64> = None;
    for mut code in 0..all.iter().map(Vec::len).product::<usize>() {
        let sharding = all
            .iter()
            .map(|open| {
                let a = code % open.len();
                code /= open.len();
                Some(open[a])
            })
            .collect();
        let pins = Pins { sharding, ..Pins::default() };
        if let Some((seconds, status)) = solve(w, s, &Request { pins, ..request.clone() })? {
            prop_assert_eq!(status, Status::Optimal);
            best = Some(best.map_or(seconds, |b| b.min(seconds)));
        }
    }
    Ok(best)
}

/// The joint optimum is that of all shardings x tile counts x partitions; two passes are never better, and where the DRAM
/// is small they find nothing although there is something.
#[test]
fn joint_is_brute_force() {
    let (better, rescued, worst) = (Cell::new(0), Cell::new(0), Cell::new(1.0_f64));
    check(60, &(chain(), any_system(), 0..4u32), |(w, mut s, memory)| {
        let tp = s.chip_count();
        if tp == 1 {
            return Ok(());
        }
        if memory == 0 {
            // As much as the weights of a chip that splits them all, and little more.
            let weights: f64 = w.kernels.iter().map(|k| k.weight_elements() * w.word_bytes).sum();
            s.memory.0.capacity = Some(Bytes(weights * w.repeat as f64 / tp as f64 + 40_000.0));
        }
        let least = brute_force_over(&w, &s, &request(Passes::TwoPass, tp))?;
        let joint = solve(&w, &s, &request(Passes::Joint, tp))?;
        let two = solve(&w, &s, &request(Passes::TwoPass, tp))?;
        match (least, joint) {
            (None, None) => {}
            (Some(least), Some((found, status))) => {
                prop_assert!(near(found / least, 1.0, 1e-9), "{found} for {least}: {}", describe(&w, &s));
                prop_assert_eq!(status, Status::Optimal);
                match two {
                    Some((two, _)) => {
                        prop_assert!(two >= found * (1.0 - 1e-9));
                        better.set(better.get() + u32::from(two > found * (1.0 + 1e-9)));
                        worst.set(worst.get().max(two / found));
                    }
                    None => rescued.set(rescued.get() + 1),
                }
            }
            (least, joint) => prop_assert!(false, "{least:?}, jointly {joint:?}: {}", describe(&w, &s)),
        }
        Ok(())
    });
    println!(
        "joint is better in {} cases (by {} at most), has a plan where two passes have none in {}",
        better.get(),
        worst.get(),
        rescued.get()
    );
    assert!(better.get() > 0);
}

/// A search that is stopped says so, and its bound still holds.
#[test]
fn a_stopped_search_has_a_bound_that_holds() {
    let stopped = Cell::new(0);
    check(12, &(workload(false), system(false), 1..=3u64), |(w, s, nodes)| {
        let tp = s.chip_count();
        let whole = solve(&w, &s, &request(Passes::Joint, tp))?;
        let few = Request { joint_nodes: nodes, ..request(Passes::Joint, tp) };
        match (whole, find(&w, &s, &few)) {
            (Some((least, _)), Ok(Answer::Mapped(_, record))) => {
                prop_assert!(record.bound <= least * (1.0 + 1e-9), "{} above {least}", record.bound);
                prop_assert!(record.value >= least * (1.0 - 1e-9));
                stopped.set(stopped.get() + u32::from(record.status == Status::NodeLimit));
            }
            (_, Err(MapError::NoPlanYet { .. })) | (None, Ok(Answer::Infeasible(_))) => {}
            (whole, other) => prop_assert!(false, "{whole:?} and {other:?}"),
        }
        Ok(())
    });
    println!("{} stopped", stopped.get());
}

/// The size of a microbatch found is no worse than any that could be given.
#[test]
fn the_microbatch_found_is_the_best_of_all() {
    check(12, &(workload(false), any_system()), |(w, s)| {
        let limits = Limits { gap: 0.0, ..Limits::default() };
        let base = Request {
            engine: Engine::Exact,
            joint_nodes: 1_000_000,
            passes: Passes::Joint,
            limits,
            ..Request::default()
        };
        let found = solve(&w, &s, &Request { micro_batch: MicroBatch::Search, ..base.clone() })?;
        let mut least: Option<f64> = None;
        for micro_batch in (0..=6).map(|e| 1u64 << e).filter(|m| *m <= w.global_batch) {
            let given = Workload { micro_batch, ..w.clone() };
            if let Some((seconds, _)) = solve(&given, &s, &base)? {
                least = Some(least.map_or(seconds, |l| l.min(seconds)));
            }
        }
        match (found, least) {
            (None, None) => {}
            (Some((found, _)), Some(least)) => {
                prop_assert!(near(found / least, 1.0, 1e-9), "{found} for {least}: {}", describe(&w, &s));
            }
            other => prop_assert!(false, "{other:?}: {}", describe(&w, &s)),
        }
        Ok(())
    });
}

/// Element-wise kernels that each read what all before them made: too wide for the elimination, so that a MILP solves the
/// sharding. Stopped by its limit, it proves nothing, and the answer says so.
#[test]
fn a_stopped_sharding_solve_is_no_proof() {
    use std::fmt::Write as _;
    let mut text = String::from(
        "kind: graph\nname: wide\nsource: 'assumed: a test'\nglobal_batch: 8\ninputs: [{ name: x, rows: 64, cols: 64 }]\nkernels:\n",
    );
    for i in 0..14 {
        let inputs: Vec<String> = (0..i).map(|j| format!("t{j}")).chain(["x".to_string()]).collect();
        let op = if i % 3 == 1 { "norm" } else { "elementwise" };
        let _ = writeln!(
            text,
            "  - {{ name: k{i}, op: {op}, m: 64, n: 64, inputs: [{}], output: t{i} }}",
            inputs.join(", ")
        );
    }
    let w = WorkloadSpec::build(&Node::parse("wide.yaml", &text).expect("YAML")).unwrap_or_else(|e| panic!("{e}"));
    let found = Cell::new(None);
    check(40, &system(false), |s| {
        let fits = s.chip_count() > 1 && s.memory.0.capacity.is_none();
        found.set(found.take().or(fits.then_some(s)));
        Ok(())
    });
    let s = found.take().expect("a system of several chips");
    let limits = Limits { nodes: Some(0), ..Limits::default() };
    let request = Request { limits, joint_nodes: 0, ..request(Passes::Joint, s.chip_count()) };
    match find(&w, &s, &request) {
        Ok(Answer::Mapped(plan, record)) => {
            flowspace::check::verify(&plan).expect("a plan");
            println!(
                "sharding {}, {} nodes; {} with a gap of {}",
                record.sharding.status,
                record.nodes,
                record.status,
                record.gap()
            );
            assert!(record.status != Status::Optimal || record.bound >= record.value * (1.0 - 1e-6));
            assert!(record.bound <= record.value);
        }
        Err(MapError::NoPlanYet { left, .. }) => assert_eq!(left.status(), Status::NodeLimit),
        other => panic!("{other:?}"),
    }
}

/// Seconds that are over before the first solve end the search with a status of its own.
#[test]
fn no_time_is_no_plan_and_no_proof_that_there_is_none() {
    let found = Cell::new(None);
    check(1, &(workload(false), system(false)), |case| {
        found.set(Some(case));
        Ok(())
    });
    let (w, s) = found.take().expect("a case");
    let limits = Limits { seconds: Some(1e-9), ..Limits::default() };
    match find(&w, &s, &Request { limits, ..Request::default() }) {
        Err(MapError::NoPlanYet { left, .. }) => assert_eq!(left.status(), Status::TimeLimit),
        other => panic!("{other:?}"),
    }
}
