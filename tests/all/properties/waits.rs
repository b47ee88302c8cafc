//! Exchanges beside the partitions, by the strategies at their ends: the joint search against every sharding pinned in turn, each with its best tiles and partitions, and its exchanges added up here.

use crate::properties::blocks::graph;
use crate::properties::joint::{chain, request, solve, strategies};
use crate::properties::search::{describe, system};
use crate::properties::{check, near};
use flowspace::mapping::search::{MapError, Passes, Pins, Request};
use flowspace::mapping::waits::Wait;
use flowspace::mapping::{Answer, Status, find};
use flowspace::model::Strategy as Sharding;
use flowspace::system::System;
use flowspace::workload::Workload;
use proptest::prelude::*;
use std::cell::Cell;

/// Seconds of an iteration of one stage that a sharding waits for.
fn waited(w: &Workload, waits: &[Wait], sharding: &[Sharding]) -> f64 {
    let number = |s: Sharding| Sharding::ALL.iter().position(|other| *other == s).unwrap();
    let of = |wait: &Wait| {
        let (a, b) = wait.kernels;
        wait.seconds[number(sharding[a])][number(sharding[b])] * w.repeats(w.kernels[a].block) as f64
    };
    waits.iter().map(of).sum::<f64>() * (w.global_batch / w.micro_batch) as f64
}

/// The least over all shardings, and whether it is another's than that of no exchanges.
fn brute_force(w: &Workload, s: &System, tp: u64, waits: &[Wait]) -> Result<Option<(f64, bool)>, TestCaseError> {
    let all = strategies(w);
    let (mut best, mut quickest) = (None::<(f64, usize)>, None::<(f64, usize)>);
    let less = |old: &Option<(f64, usize)>, new: f64| old.is_none_or(|(old, _)| new < old * (1.0 - 1e-9));
    for code in 0..all.iter().map(Vec::len).product::<usize>() {
        let mut left = code;
        let pick = |open: &Vec<Sharding>| {
            let a = left % open.len();
            left /= open.len();
            open[a]
        };
        let sharding: Vec<Sharding> = all.iter().map(pick).collect();
        let pins = Pins { sharding: sharding.iter().map(|s| Some(*s)).collect(), ..Pins::default() };
        let Some((seconds, status)) = solve(w, s, &Request { pins, ..request(Passes::TwoPass, tp) })? else { continue };
        prop_assert_eq!(status, Status::Optimal);
        let sum = seconds + waited(w, waits, &sharding);
        if less(&quickest, seconds) {
            quickest = Some((seconds, code));
        }
        if less(&best, sum) {
            best = Some((sum, code));
        }
    }
    Ok(best.zip(quickest).map(|((sum, a), (_, b))| (sum, a != b)))
}

#[test]
fn exchanges_are_part_of_what_is_minimised() {
    let sizes = (1..=4u64, 1..=8u64, 3..=6u32, 1..=3u64);
    let blocks = sizes.prop_map(|(hidden, words, seq, layers)| graph(64 * hidden, 64 * words, 1 << seq, layers, 8));
    let of = (any::<prop::sample::Index>(), any::<bool>(), prop::collection::vec(0..=4u8, 25));
    let cases = (prop_oneof![blocks, chain()], system(false), prop::collection::vec(of, 1..=3), 1..=3u64);
    let (tried, moved, stopped) = (Cell::new(0), Cell::new(0), Cell::new(0));
    check(60, &cases, |(w, s, exchanges, few)| {
        let tp = s.chip_count();
        if tp == 1 {
            return Ok(());
        }
        let plain = match find(&w, &s, &request(Passes::TwoPass, tp)) {
            // Degrees that the network does not have.
            Err(MapError::Request(_)) => return Ok(()),
            Ok(Answer::Mapped(_, record)) => record.value,
            _ => return Ok(()),
        };
        let unit = plain / (w.global_batch / w.micro_batch) as f64 / w.repeat as f64;
        let to = |k: usize, pair: bool| {
            let next = k + 1;
            if pair && next < w.kernels.len() && w.kernels[next].block == w.kernels[k].block { next } else { k }
        };
        let number = |s: Sharding| Sharding::ALL.iter().position(|other| *other == s).unwrap();
        let exchange = |(k, pair, seconds): &(prop::sample::Index, bool, Vec<u8>)| {
            let k = k.index(w.kernels.len());
            Wait::of((k, to(k, *pair)), |a, b| 0.15 * unit * f64::from(seconds[5 * number(a) + number(b)]))
        };
        let waits: Vec<Wait> = exchanges.iter().map(exchange).collect();
        let asked = Request { waits: waits.clone(), ..request(Passes::Joint, tp) };
        let found = match find(&w, &s, &asked) {
            Ok(Answer::Mapped(plan, record)) => Some((plan, record)),
            Ok(Answer::Infeasible(_)) => None,
            Err(e) => return Err(TestCaseError::fail(e.to_string())),
        };
        let least = brute_force(&w, &s, tp, &waits)?;
        let (Some((plan, record)), Some((least, another))) = (&found, least) else {
            prop_assert_eq!(found.is_some(), least.is_some());
            return Ok(());
        };
        let case = || format!("{} for {least}: {waits:?} {}", record.value, describe(&w, &s));
        prop_assert!(near(record.value / least, 1.0, 1e-9), "{}", case());
        prop_assert_eq!(record.status, Status::Optimal, "{}", case());
        let own = plan.figures.iteration_s() + waited(&w, &waits, &plan.decisions.sharding);
        prop_assert!(near(own / record.value, 1.0, 1e-9), "{own} is not {}", case());
        // Of few sets the bound holds too.
        if let Ok(Answer::Mapped(_, record)) = find(&w, &s, &Request { joint_nodes: few, ..asked }) {
            prop_assert!(record.bound <= least * (1.0 + 1e-9), "bound {} above {}", record.bound, case());
            prop_assert!(record.value >= least * (1.0 - 1e-9), "{}", case());
            stopped.set(stopped.get() + u32::from(record.status != Status::Optimal));
        }
        tried.set(tried.get() + 1);
        moved.set(moved.get() + u32::from(another));
        Ok(())
    });
    println!("{} cases, another sharding in {}, {} stopped", tried.get(), moved.get(), stopped.get());
    assert!(tried.get() > 20 && moved.get() > 5);
}
