//! The engines against brute force on random small graphs.

use super::cores::{Network, Wire};
use super::instance::{Instance, Request};
use super::placement::{capacities, figures};
use super::solve::{Engine, GAP, solve};
use super::*;
use crate::solver::record::Status;
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// Equal cores at one price.
pub fn equal(k: usize, wire: Wire, local: Wire, memory: f64) -> Cores {
    let core = |p| Core {
        name: format!("p{p}"),
        speed: 1.0,
        rates: [1e9, 1e9],
        memory_bandwidth: 1e9,
        firing_overhead: 0.0,
        memory,
    };
    Cores {
        name: "equal".into(),
        cores: (0..k).map(core).collect(),
        local,
        network: Network::Levels(vec![(k as u64, wire)]),
    }
}

/// A graph of actors of so many microseconds, edges of so many bytes from the lower number to the higher.
pub fn graph(weights: &[u64], edges: &[(usize, usize, u64)]) -> ActorGraph {
    let actor = |(i, w): (usize, &u64)| Actor {
        name: format!("a{i}"),
        kind: Kind::Vector,
        work: Work::Measured { seconds: *w as f64 * 1e-6, deviation: 0.0 },
        state_bytes: 1.0,
        fixed: Fixed::Seconds(0.0),
        outside: None,
    };
    let channel = |&(u, v, bytes): &(usize, usize, u64)| Channel {
        source: u,
        source_port: format!("a{u}"),
        target: v,
        target_port: "in".into(),
        produced: 1,
        consumed: 1,
        initial: 0,
        token_bytes: bytes as f64,
        capacity: Some(1),
    };
    ActorGraph {
        name: "g".into(),
        actors: weights.iter().enumerate().map(actor).collect(),
        channels: edges.iter().map(channel).collect(),
        batch: 1,
        others: Vec::new(),
    }
}

fn request(n: usize, objective: Objective, acyclic: bool) -> Request {
    Request { objective, acyclic, pins: vec![None; n], balance: 1.3, seconds: Some(5.0) }
}

/// The best of all k^n assignments, by the definition of [`figures`].
fn brute(graph: &ActorGraph, cores: &Cores, request: &Request) -> f64 {
    let (n, k) = (graph.actors.len(), cores.len());
    let instance = Instance::new(graph, &capacities(graph), cores, request).unwrap();
    let mut best = f64::INFINITY;
    for code in 0..k.pow(n as u32) {
        let core_of: Vec<usize> = (0..n).map(|i| code / k.pow(i as u32) % k).collect();
        if request.acyclic && graph.channels.iter().any(|c| core_of[c.source] > core_of[c.target]) {
            continue;
        }
        if request.pins.iter().zip(&core_of).any(|(pin, p)| pin.is_some_and(|q| q != *p)) {
            continue;
        }
        let f = figures(graph, cores, &core_of, &capacities(graph)).unwrap();
        let full = |(m, c): (&f64, &Core)| *m > c.memory * (1.0 + 1e-12);
        if f.memory_bytes.iter().zip(&cores.cores).any(full) {
            continue;
        }
        if instance.cap.is_some_and(|cap| f.busy_s.iter().any(|b| b * instance.rate > cap as f64 + 0.5)) {
            continue;
        }
        best = best.min(f.objective(request.objective));
    }
    best
}

fn small() -> impl Strategy<Value = (Vec<u64>, Vec<(usize, usize, u64)>, usize)> {
    (2usize..7, 2usize..4).prop_flat_map(|(n, k)| {
        let pairs: Vec<(usize, usize)> = (0..n).flat_map(|v| (0..v).map(move |u| (u, v))).collect();
        let edge = prop::option::weighted(0.4, 1u64..40);
        (prop::collection::vec(1u64..30, n), prop::collection::vec(edge, pairs.len()), Just(pairs), Just(k)).prop_map(
            |(weights, bytes, pairs, k)| {
                let edges = pairs.iter().zip(bytes).filter_map(|(p, b)| b.map(|b| (p.0, p.1, b))).collect();
                (weights, edges, k)
            },
        )
    })
}

/// One engine against brute force: the same value where it says optimal, and a bound that is one in any case.
fn against_brute(graph: &ActorGraph, cores: &Cores, request: &Request, engine: Engine) -> Result<(), TestCaseError> {
    let least = brute(graph, cores, request);
    let instance = solve::instance(graph, cores, request).unwrap();
    let outcome = solve(&instance, engine).unwrap();
    let best = &outcome.best;
    if least.is_infinite() {
        prop_assert!(best.core_of.is_none(), "{engine}: found {:?} where there is none", best.core_of);
        return Ok(());
    }
    let core_of = best.core_of.as_ref().ok_or_else(|| TestCaseError::fail(format!("{engine}: nothing found")))?;
    let f = figures(graph, cores, core_of, &capacities(graph)).unwrap();
    prop_assert!((f.objective(request.objective) - best.objective).abs() <= GAP * best.objective.max(1e-12));
    prop_assert!(best.objective >= least * (1.0 - GAP), "{engine}: {} beats brute force {least}", best.objective);
    prop_assert!(best.bound <= least * (1.0 + 1e-6), "{engine}: bound {} above the optimum {least}", best.bound);
    if best.status == Status::Optimal {
        prop_assert!((best.objective - least).abs() <= 1e-6 * least, "{engine}: {} is not {least}", best.objective);
    }
    Ok(())
}

/// More time than anything here takes.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// No placement is below the bound of cuts around actors, and on a chain of equal actors and edges it is the optimum.
fn cuts_around(graph: &ActorGraph, cores: &Cores, request: &Request) -> Result<(), TestCaseError> {
    let least = brute(graph, cores, request);
    let instance = solve::instance(graph, cores, request).unwrap();
    for known in [f64::INFINITY, least * 1.5, least * (1.0 + 1e-6)] {
        let bound = around::bound(&instance, known, later());
        prop_assert!(bound <= least * (1.0 + 1e-9), "{}: bound {bound} above {least}", request.objective);
    }
    Ok(())
}

#[test]
fn cuts_around_actors_of_a_chain() {
    let (n, k) = (64, 8);
    let edges: Vec<(usize, usize, u64)> = (1..n).map(|i| (i - 1, i, 10)).collect();
    let (graph, cores) = (graph(&vec![5; n], &edges), equal(k, NET, Wire::FREE, f64::INFINITY));
    let mut request = request(n, Objective::Cut, false);
    request.balance = 1.0;
    let bound = around::bound(&solve::instance(&graph, &cores, &request).unwrap(), f64::INFINITY, later());
    assert!((bound - 70.0).abs() < 1e-3, "seven edges of 10 bytes are cut: {bound}");
    // 40 us on each core and seven transfers of 0.1 + 1 us; fewer cores save 1.1 us each and cost more.
    request.objective = Objective::Sum;
    let bound = around::bound(&solve::instance(&graph, &cores, &request).unwrap(), 40e-6 + 7.0 * 1.1e-6, later());
    assert!((bound - 47.7e-6).abs() < 0.5e-6, "{bound}");
    // At 100 kB/s a transfer takes 100 us: two cores have one border each, and 160 us of work; more have two, on one core of them at least.
    let cores = equal(k, Wire { latency: 0.0, bandwidth: 1e5 }, Wire::FREE, f64::INFINITY);
    request.objective = Objective::PerCore;
    let bound = around::bound(&solve::instance(&graph, &cores, &request).unwrap(), 160e-6, later());
    assert!(bound > 99e-6 && bound <= 160e-6, "{bound}");
}

const NET: Wire = Wire { latency: 1e-7, bandwidth: 1e7 };

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Chains of stages, least bottleneck: the exact engine proves it, always.
    #[test]
    fn least_bottleneck_of_chains((weights, edges, k) in small()) {
        let (graph, cores) = (graph(&weights, &edges), equal(k, NET, Wire::FREE, f64::INFINITY));
        let request = request(weights.len(), Objective::Bottleneck, true);
        let least = brute(&graph, &cores, &request);
        let found = solve(&solve::instance(&graph, &cores, &request).unwrap(), Engine::Exact).unwrap().best;
        prop_assert_eq!(found.status, Status::Optimal);
        prop_assert!((found.objective - least).abs() <= 1e-9 * least);
    }

    /// Every objective, chains and free placements, with limited memory and pins.
    #[test]
    fn every_objective_against_brute_force(
        (weights, edges, k) in small(), which in 0usize..4, acyclic: bool, tight: bool, pin in prop::option::of(0usize..2),
        slow: bool,
    ) {
        let objective = Objective::ALL[which];
        let memory = if tight { (3 + edges.iter().map(|e| e.2).sum::<u64>() / 2) as f64 } else { f64::INFINITY };
        let local = if slow { Wire { latency: 0.0, bandwidth: 4e7 } } else { Wire::FREE };
        let (graph, mut cores) = (graph(&weights, &edges), equal(k, NET, local, memory));
        if slow {
            cores.cores[1].speed = 0.5;
        }
        let mut request = request(weights.len(), objective, acyclic);
        request.pins[0] = pin;
        cuts_around(&graph, &cores, &request)?;
        against_brute(&graph, &cores, &request, Engine::Exact)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// The programmes: what HiGHS (and CBC) call optimal is.
    #[test]
    fn programmes_against_brute_force((weights, edges, k) in small(), which in 0usize..4, acyclic: bool, local: bool) {
        let local = if local { Wire { latency: 0.0, bandwidth: 4e7 } } else { Wire::FREE };
        let (graph, cores) = (graph(&weights, &edges), equal(k, NET, local, f64::INFINITY));
        let request = request(weights.len(), Objective::ALL[which], acyclic);
        if cfg!(feature = "milp") {
            against_brute(&graph, &cores, &request, Engine::Highs)?;
        }
        against_brute(&graph, &cores, &request, Engine::Auto)?;
        if cfg!(feature = "cbc") {
            against_brute(&graph, &cores, &request, Engine::Cbc)?;
        }
    }
}
