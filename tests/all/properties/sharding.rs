//! The sharding problem: every choice of strategies, against the MILP.

use crate::properties::{check, near};
use flowspace::deadline::Deadline;
use flowspace::mapping::Status;
use flowspace::mapping::elimination::{Eliminated, eliminate};
use flowspace::mapping::sharding::{Link, Problem, price, solve_exactly, solve_problem};
use flowspace::mapping::solver::{Limits, Solver};
use flowspace::model::{Layout, Strategy as Sharding};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const LAYOUTS: [Layout; 4] = [Layout::Replicated, Layout::Rows, Layout::Cols, Layout::Partial];

/// Links from every kernel to some later one; of the pairs of strategies about one in eight cannot be.
fn problem() -> impl Strategy<Value = Problem> {
    let kernel = vec(0..12u32, 1..=4);
    let pair = (0..8u8, 0..4usize, 0..4usize);
    let link = (0..6usize, 0..6usize, prop::option::weighted(0.8, 0..3usize), vec(pair, 16));
    let group = vec(0..9u32, 16);
    (vec(kernel, 2..=6), vec(link, 0..=7), vec(group, 3)).prop_map(|(kernels, links, groups)| {
        let n = kernels.len();
        let mut problem = Problem {
            open: kernels.iter().map(|c| Sharding::ALL[..c.len()].to_vec()).collect(),
            cost: kernels.iter().map(|c| c.iter().map(|x| f64::from(*x)).collect()).collect(),
            links: Vec::new(),
            groups: vec![BTreeMap::new(); 3],
        };
        for (from, to, group, pairs) in links {
            let from = from % (n - 1);
            let to = from + 1 + to % (n - 1 - from);
            let table = (0..kernels[from].len())
                .map(|a| {
                    (0..kernels[to].len())
                        .map(|b| {
                            let (never, i, j) = pairs[4 * a + b];
                            (never > 0).then(|| (LAYOUTS[i], LAYOUTS[j]))
                        })
                        .collect()
                })
                .collect();
            problem.links.push(Link { from, to, pairs: table, group, payers: Vec::new() });
        }
        for (g, costs) in groups.iter().enumerate() {
            for (c, cost) in costs.iter().enumerate() {
                problem.groups[g].insert((LAYOUTS[c / 4], LAYOUTS[c % 4]), f64::from(*cost));
            }
        }
        problem
    })
}

/// The cost of a choice from the definitions: strategies, and each conversion of a group once.
fn from_definitions(problem: &Problem, choice: &[usize]) -> Option<f64> {
    let mut conversions = BTreeSet::new();
    for link in &problem.links {
        let pair = link.pairs[choice[link.from]][choice[link.to]]?;
        conversions.extend(link.group.map(|g| (g, pair)));
    }
    let work: f64 = (0..choice.len()).map(|k| problem.cost[k][choice[k]]).sum();
    Some(work + conversions.iter().map(|(g, pair)| problem.groups[*g][pair]).sum::<f64>())
}

fn brute_force(problem: &Problem) -> Result<Option<f64>, TestCaseError> {
    let mut best: Option<f64> = None;
    for mut code in 0..problem.open.iter().map(Vec::len).product::<usize>() {
        let choice: Vec<usize> = problem
            .open
            .iter()
            .map(|open| {
                let a = code % open.len();
                code /= open.len();
                a
            })
            .collect();
        let cost = from_definitions(problem, &choice);
        prop_assert!(near(price(problem, &choice), cost.unwrap_or(f64::INFINITY), 1e-12), "{choice:?}: {cost:?}");
        if let Some(cost) = cost {
            best = Some(best.map_or(cost, |b| b.min(cost)));
        }
    }
    Ok(best)
}

#[cfg_attr(not(feature = "milp"), allow(dead_code))]
fn milp_is_brute_force(cases: u32, solver: Solver) {
    check(cases, &problem(), |problem| {
        let least = brute_force(&problem)?;
        let found = solve_problem(&problem, &Limits { solver, ..Limits::default() })
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        let Some(least) = least else {
            prop_assert_eq!(found.record.status, Status::Infeasible);
            return Ok(());
        };
        prop_assert_eq!(found.record.status, Status::Optimal);
        prop_assert!(near(found.record.objective, least, 1e-6), "{} for {least}", found.record.objective);
        prop_assert!(found.record.bound <= least + 1e-6 * least.max(1.0));
        let choice: Vec<usize> = problem
            .open
            .iter()
            .zip(&found.strategies)
            .map(|(open, s)| open.iter().position(|o| o == s).expect("an open strategy"))
            .collect();
        prop_assert!(near(price(&problem, &choice), least, 1e-6), "the strategies cost {}", price(&problem, &choice));
        Ok(())
    });
}

/// Elimination against brute force: the least cost, a choice that costs it, and infeasible where nothing agrees.
#[test]
fn elimination_is_brute_force() {
    let infeasible = std::cell::Cell::new(0);
    check(6000, &problem(), |problem| {
        let least = brute_force(&problem)?;
        match (eliminate(&problem, Deadline::never()), least) {
            (Eliminated::Infeasible, None) => infeasible.set(infeasible.get() + 1),
            (Eliminated::Chosen(choice, cost), Some(least)) => {
                prop_assert!(near(cost, least, 1e-12), "{cost} for {least}");
                prop_assert!(near(price(&problem, &choice), least, 1e-12), "{choice:?} for {least}");
            }
            (found, least) => prop_assert!(false, "{found:?}, brute force {least:?}"),
        }
        Ok(())
    });
    assert!(infeasible.get() > 100, "{} infeasible", infeasible.get());
}

/// A deadline that is over leaves a sharding that costs what it says, where there is one, and a bound that holds.
#[test]
fn what_a_deadline_leaves_is_a_sharding() {
    let (feasible, found) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    check(2000, &problem(), |problem| {
        let least = brute_force(&problem)?;
        let hasty = solve_exactly(&problem, &Limits { seconds: Some(0.0), ..Limits::default() })
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert!(hasty.record.bound <= least.unwrap_or(f64::INFINITY));
        feasible.set(feasible.get() + usize::from(least.is_some()));
        if hasty.strategies.is_empty() {
            return Ok(());
        }
        let place =
            |(open, s): (&Vec<Sharding>, &Sharding)| open.iter().position(|o| o == s).expect("an open strategy");
        let choice: Vec<usize> = problem.open.iter().zip(&hasty.strategies).map(place).collect();
        let cost = from_definitions(&problem, &choice);
        prop_assert!(cost.is_some_and(|cost| near(cost, hasty.record.objective, 1e-12)), "{cost:?}: {hasty:?}");
        found.set(found.get() + 1);
        Ok(())
    });
    let (feasible, found) = (feasible.get(), found.get());
    assert!(found * 10 > feasible * 9, "{found} of {feasible}");
}

/// One tensor with many readers, as the workloads have it: a layout wanted by each reader, paid once. Elimination, which
/// buys sets of layouts there, against HiGHS and brute force.
#[test]
fn elimination_buys_layouts_for_many_readers() {
    let strategy = (vec((0..4usize, 0..4usize, 0..6u32), 2..=5), vec(0..9u32, 16), vec(0..6u32, 4), 0..4usize);
    check(600, &strategy, |(readers, costs, own, hole)| {
        let mut problem = Problem {
            open: vec![Sharding::ALL[..4].to_vec()],
            cost: vec![own.iter().map(|x| f64::from(*x)).collect()],
            links: Vec::new(),
            groups: vec![BTreeMap::new()],
        };
        for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
            problem.groups[0].insert((LAYOUTS[i], LAYOUTS[j]), f64::from(costs[4 * i + j]));
        }
        for (k, (first, second, extra)) in readers.iter().enumerate() {
            problem.open.push(Sharding::ALL[..2].to_vec());
            problem.cost.push(vec![0.0, f64::from(*extra)]);
            let wants = [LAYOUTS[*first], LAYOUTS[*second]];
            let pairs = (0..4)
                .map(|a| wants.iter().map(|to| (a != hole || k % 2 == 0).then_some((LAYOUTS[a], *to))).collect())
                .collect();
            problem.links.push(Link { from: 0, to: k + 1, pairs, group: Some(0), payers: vec![0] });
        }
        let least = brute_force(&problem)?.expect("three strategies of the producer suit everyone");
        let Eliminated::Chosen(choice, cost) = eliminate(&problem, Deadline::never()) else {
            return Err(TestCaseError::fail("a choice exists"));
        };
        prop_assert!(near(cost, least, 1e-12) && near(price(&problem, &choice), least, 1e-12), "{cost} for {least}");
        let highs = solve_problem(&problem, &Limits::default()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert!(near(highs.record.objective, least, 1e-6), "HiGHS {} for {least}", highs.record.objective);
        Ok(())
    });
}

/// A choice is the same however often it is asked for, and is the rule's: rows before columns, replication last.
#[test]
fn of_equal_shardings_the_rule_chooses() {
    let problem = Problem {
        open: vec![vec![Sharding::Replicate, Sharding::N, Sharding::M]; 3],
        cost: vec![vec![1.0; 3]; 3],
        links: Vec::new(),
        groups: Vec::new(),
    };
    assert_eq!(eliminate(&problem, Deadline::never()), Eliminated::Chosen(vec![2; 3], 3.0));
}

/// Twelve kernels of four strategies that must all be the same: each depends on all others, 4^11 entries of one table. By hand:
/// the cheapest strategy costs 1 a kernel.
#[test]
fn beyond_elimination_a_milp_decides_where_there_is_one() {
    let (kernels, same) = (12, Some((Layout::Rows, Layout::Rows)));
    let agree: Vec<Vec<_>> = (0..4).map(|a| (0..4).map(|b| same.filter(|_| a == b)).collect()).collect();
    let pairs = (0..kernels).flat_map(|from| (from + 1..kernels).map(move |to| (from, to)));
    let problem = Problem {
        open: vec![Sharding::ALL[..4].to_vec(); kernels],
        cost: vec![vec![3.0, 1.0, 2.0, 4.0]; kernels],
        links: pairs
            .map(|(from, to)| Link { from, to, pairs: agree.clone(), group: None, payers: Vec::new() })
            .collect(),
        groups: Vec::new(),
    };
    assert_eq!(eliminate(&problem, Deadline::never()), Eliminated::TooWide);
    // Without time for a MILP the sharding that it starts from is the answer, and claims nothing.
    let hasty = solve_exactly(&problem, &Limits { seconds: Some(0.0), ..Limits::default() });
    let solved = solve_exactly(&problem, &Limits::default());
    if Solver::Highs.is_built() {
        let solved = solved.unwrap();
        assert_eq!(solved.strategies, vec![Sharding::ALL[1]; kernels]);
        assert!(near(solved.record.objective, 12.0, 1e-6));
        let hasty = hasty.unwrap();
        assert_eq!(hasty.strategies, solved.strategies);
        assert!(near(hasty.record.objective, 12.0, 1e-12) && hasty.record.bound <= 12.0);
    } else {
        let message = solved.unwrap_err().to_string();
        assert!(message.contains("needs a MILP engine, and this build has none: build with `cargo build"), "{message}");
    }
}

#[cfg(feature = "milp")]
#[test]
fn highs_is_brute_force() {
    milp_is_brute_force(800, Solver::Highs);
}

#[cfg(feature = "cbc")]
#[test]
fn cbc_is_brute_force() {
    milp_is_brute_force(250, Solver::Cbc);
}

/// C2 by hand. Two kernels, two strategies each; what is best alone (0 + 0) cannot be paired, so one of them pays:
/// min(0 + 5, 3 + 0, 3 + 5) = 3.
#[test]
fn c2_pairs_that_cannot_be_bind() {
    let free = Some((Layout::Replicated, Layout::Replicated));
    let problem = Problem {
        open: vec![vec![Sharding::M, Sharding::N]; 2],
        cost: vec![vec![0.0, 3.0], vec![0.0, 5.0]],
        links: vec![Link {
            from: 0,
            to: 1,
            pairs: vec![vec![None, free], vec![free, free]],
            group: None,
            payers: Vec::new(),
        }],
        groups: Vec::new(),
    };
    let found = solve_problem(&problem, &Limits::default()).unwrap();
    assert!(near(found.record.objective, 3.0, 1e-9), "{found:?}");
    assert_eq!(found.strategies, [Sharding::N, Sharding::M]);
}

/// C3 by hand. One tensor, two readers, both must have it gathered: 7 is paid once where they share the conversion,
/// twice where each has its own group.
#[test]
fn c3_readers_of_one_tensor_share_a_conversion() {
    let gather = Some((Layout::Rows, Layout::Replicated));
    let link = |to: usize, group: usize| Link {
        from: 0,
        to,
        pairs: vec![vec![gather], vec![gather]],
        group: Some(group),
        payers: vec![0],
    };
    let costs = BTreeMap::from([((Layout::Rows, Layout::Replicated), 7.0)]);
    let mut problem = Problem {
        open: vec![vec![Sharding::M, Sharding::Outer], vec![Sharding::Replicate], vec![Sharding::Replicate]],
        cost: vec![vec![1.0, 2.0], vec![0.0], vec![0.0]],
        links: vec![link(1, 0), link(2, 0)],
        groups: vec![costs.clone()],
    };
    let shared = solve_problem(&problem, &Limits::default()).unwrap();
    assert!(near(shared.record.objective, 1.0 + 7.0, 1e-9), "{shared:?}");
    problem.links[1].group = Some(1);
    problem.groups.push(costs);
    let apart = solve_problem(&problem, &Limits::default()).unwrap();
    assert!(near(apart.record.objective, 1.0 + 7.0 + 7.0, 1e-9), "{apart:?}");
}

/// The problem where nothing is to choose takes no solver; an impossible one must say so all the same.
#[test]
fn a_problem_without_choice_can_be_infeasible() {
    let problem = Problem {
        open: vec![vec![Sharding::M]; 2],
        cost: vec![vec![1.0]; 2],
        links: vec![Link { from: 0, to: 1, pairs: vec![vec![None]], group: None, payers: Vec::new() }],
        groups: Vec::new(),
    };
    assert_eq!(solve_problem(&problem, &Limits::default()).unwrap().record.status, Status::Infeasible);
}
