//! Other goals than time: the engines on random fusion problems, and the whole search on small transformers.

use crate::properties::fusion::assignments;
use crate::properties::search::{any_system, describe, workload};
use crate::properties::{check, near};
use flowspace::mapping::exact;
use flowspace::mapping::fusion::{self, PartitionCounts};
use flowspace::mapping::ideals::{Ideals, MAX_IDEALS};
use flowspace::mapping::instance::{Goal, Instance};
use flowspace::mapping::search::{Engine, Objective, Passes, Record, Request};
use flowspace::mapping::solver::Limits;
use flowspace::mapping::{Answer, Status, find};
use flowspace::plan::Plan;
use flowspace::system::System;
use flowspace::system::economics::Economics;
use flowspace::units::PricePerEnergy;
use flowspace::workload::Workload;
use proptest::prelude::*;

fn goal() -> impl Strategy<Value = Goal> {
    let worth = || prop_oneof![1 => Just(0.0), 3 => (1..=8u32).prop_map(f64::from)];
    (worth(), worth(), worth()).prop_filter_map("worth nothing", |(second, busy_second, dram_byte)| {
        (second + busy_second + dram_byte > 0.0).then_some(Goal { second, busy_second, dram_byte, constant: 0.0 })
    })
}

/// The least value over all assignments, added up here from the partitions' figures.
fn brute_force(i: &Instance) -> Option<f64> {
    let mut best: Option<f64> = None;
    let order: Vec<(usize, usize)> =
        i.tensors.iter().flat_map(|t| t.uses.iter().filter_map(|u| Some((t.producer?, u.kernel)))).collect();
    assignments(i.kernels.len(), &order, &mut |a| {
        if let Some((_, costs)) = i.evaluate(a) {
            let value = costs
                .iter()
                .map(|c| {
                    i.goal.second * c.time_s(i.overlap)
                        + i.goal.busy_second * c.compute_s
                        + i.goal.dram_byte * c.dram_bytes
                })
                .sum::<f64>();
            best = Some(best.map_or(value, |b| b.min(value)));
        }
    });
    best
}

/// Shortest path, MILP and brute force agree for any goal, and the closed form is below them.
#[test]
fn engines_agree_on_any_goal() {
    check(150, &(crate::properties::random::instance(5), goal()), |(mut i, goal)| {
        i.goal = goal;
        let least = brute_force(&i);
        let ideals = Ideals::of(&i, MAX_IDEALS).expect("few kernels");
        let path = exact::solve(&i, &ideals).map(|p| p.objective);
        match (least, path) {
            (None, None) => return Ok(()),
            (Some(a), Some(b)) => prop_assert!(near(a, b, 1e-9), "brute force {a}, shortest path {b}"),
            other => prop_assert!(false, "{other:?}"),
        }
        let least = least.unwrap_or(f64::NAN);
        prop_assert!(i.least_value() <= least * (1.0 + 1e-9), "closed form {} above {least}", i.least_value());
        let pinned = i.pins.iter().any(Option::is_some) || i.max_partitions.is_some();
        if i.kernel_by_kernel || pinned {
            return Ok(());
        }
        let of = |backward: bool| i.kernels.iter().filter(|k| k.backward == backward).count();
        let counts = match i.separate_phases {
            true => PartitionCounts { forward: of(false), backward: of(true) },
            false => PartitionCounts { forward: i.kernels.len(), backward: 0 },
        };
        let solved = fusion::build(&i, counts)
            .solve(&Limits::default(), None)
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(solved.record.status, Status::Optimal);
        prop_assert!(
            near(solved.record.objective, least, 1e-6),
            "MILP {}, brute force {least}",
            solved.record.objective
        );
        Ok(())
    });
}

fn solve(w: &Workload, s: &System, request: &Request) -> Result<Option<(Plan, Record)>, TestCaseError> {
    let fail = |e: String| TestCaseError::fail(format!("{}: {e}", describe(w, s)));
    match find(w, s, request).map_err(|e| fail(e.to_string()))? {
        Answer::Infeasible(_) => Ok(None),
        Answer::Mapped(plan, record) => {
            flowspace::check::verify(&plan).map_err(|e| fail(e.to_string()))?;
            prop_assert_eq!(record.status, Status::Optimal, "{}", describe(w, s));
            prop_assert!(record.bound <= record.value, "{} above {}", record.bound, record.value);
            Ok(Some((*plan, *record)))
        }
    }
}

fn request(objective: Objective) -> Request {
    let limits = Limits { gap: 0.0, ..Limits::default() };
    Request {
        objective,
        engine: Engine::Exact,
        passes: Passes::Joint,
        joint_nodes: 1_000_000,
        limits,
        ..Request::default()
    }
}

fn value(plan: &Plan, objective: Objective) -> f64 {
    let f = &plan.figures;
    match objective {
        Objective::Time => f.iteration_s(),
        Objective::Energy => f.energy.total(),
        Objective::Cost => {
            let price = f.cost.total() / Economics::default().amortization.0;
            price * f.iteration_s() + Economics::default().electricity.0 * f.energy.total()
        }
    }
}

/// Each objective's answer is no worse in it than the answers to the others, and than every answer with the degrees pinned;
/// the value it states is that of its plan.
#[test]
fn each_objective_is_best_at_its_own() {
    check(12, &(workload(false), any_system()), |(w, s)| {
        let mut answers = Vec::new();
        for objective in Objective::ALL {
            answers.push(solve(&w, &s, &request(*objective))?);
        }
        let feasible = answers.iter().filter(|a| a.is_some()).count();
        prop_assert!(feasible == 0 || feasible == 3, "{}", describe(&w, &s));
        for (objective, answer) in Objective::ALL.iter().zip(&answers) {
            let Some((plan, record)) = answer else { continue };
            let own = value(plan, *objective);
            prop_assert!(near(own / record.value, 1.0, 1e-9), "{objective}: {own}, stated {}", record.value);
            for (other, _) in answers.iter().flatten() {
                prop_assert!(own <= value(other, *objective) * (1.0 + 1e-9), "{objective}: {}", describe(&w, &s));
            }
            for tp in [1, 2, 4, 8] {
                let mut pinned = request(*objective);
                pinned.wanted.tp = Some(tp);
                if let Ok(Answer::Mapped(other, _)) = find(&w, &s, &pinned) {
                    prop_assert!(own <= value(&other, *objective) * (1.0 + 1e-9), "{objective}, TP {tp}");
                }
            }
        }
        Ok(())
    });
}

/// Where electricity is free, cost is time; where the system is, cost is energy.
#[test]
fn cost_is_time_or_energy_at_its_ends() {
    check(10, &(workload(false), any_system()), |(w, s)| {
        let mut free_power = request(Objective::Cost);
        free_power.economics.electricity = PricePerEnergy(0.0);
        if let (Some((a, _)), Some((b, _))) = (solve(&w, &s, &request(Objective::Time))?, solve(&w, &s, &free_power)?) {
            prop_assert!(near(a.figures.iteration_s() / b.figures.iteration_s(), 1.0, 1e-9), "{}", describe(&w, &s));
        }
        let mut long = request(Objective::Cost);
        long.economics.amortization.0 = 1e30;
        if let (Some((a, _)), Some((b, _))) = (solve(&w, &s, &request(Objective::Energy))?, solve(&w, &s, &long)?) {
            let ratio = a.figures.energy.total() / b.figures.energy.total();
            prop_assert!(near(ratio, 1.0, 1e-9), "{ratio}: {}", describe(&w, &s));
        }
        Ok(())
    });
}

/// The MILP engine agrees with the shortest path on energy (`map` stops where they differ by more than 1e-6).
#[test]
fn the_milp_agrees_on_energy() {
    check(8, &(workload(false), any_system()), |(w, s)| {
        let limits = Limits { nodes: Some(200), ..Limits::default() };
        let milp = Request { engine: Engine::Milp, limits, ..request(Objective::Energy) };
        if let (Some((a, _)), Some((b, _))) = (solve(&w, &s, &request(Objective::Energy))?, solve(&w, &s, &milp)?) {
            prop_assert!(near(a.figures.energy.total() / b.figures.energy.total(), 1.0, 1e-6));
        }
        Ok(())
    });
}
