//! Is a placement the same when the weights are not quite what was measured?
//!
//! N samples of the weights: each actor's is multiplied by a factor drawn evenly from 1 - s to 1 + s (or, where the profile has a spread, from a normal
//! distribution of that, at least zero). Each sample is solved anew, with the same engine. A *boundary* is a channel whose ends lie on different cores in the base
//! placement. It moves in a sample where either end lies on another core. The steadiest placement has the least largest objective over all
//! samples that was found: the best of the base placement and those of the samples, and from there single actors moved as long as it gets less. No
//! placement has less than the largest of the samples' own bounds.

use super::cores::Cores;
use super::graph::{ActorGraph, Work};
use super::instance::{Instance, Request};
use super::placement::capacities;
use super::refine::Assignment;
use super::solve::{Engine, solve};
use serde::Serialize;

/// How often one boundary of the base placement moved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Boundary {
    /// The actor that writes across it.
    pub from: String,
    /// The actor that reads.
    pub to: String,
    /// Samples in which it was elsewhere.
    pub moved: u64,
}

/// What the samples showed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stability {
    /// Samples.
    pub samples: u64,
    /// Samples whose placement puts every actor where the base has it.
    pub same: u64,
    /// Boundaries of the base placement, those that moved most first.
    pub boundaries: Vec<Boundary>,
    /// Largest objective of the base placement over the samples.
    pub base_worst: f64,
    /// Largest objective of the steadiest placement over the samples.
    pub best_worst: f64,
    /// No placement has less in the worst of the samples.
    pub worst_bound: f64,
    /// Core of each actor in that one.
    pub best: Vec<usize>,
}

/// A pseudo-random number from 0 to 1 (splitmix64).
fn random(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// The graph with weights drawn anew.
pub fn drawn(graph: &ActorGraph, spread: f64, sample: u64) -> ActorGraph {
    let mut state = sample.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9;
    let mut graph = graph.clone();
    for actor in &mut graph.actors {
        let even = 1.0 + spread * (2.0 * random(&mut state) - 1.0);
        actor.work = match actor.work {
            Work::Measured { seconds, deviation } if deviation > 0.0 => {
                // Twelve even numbers add up to nearly a normal one.
                let normal: f64 = (0..12).map(|_| random(&mut state)).sum::<f64>() - 6.0;
                Work::Measured { seconds: (seconds + deviation * normal).max(0.0), deviation }
            }
            Work::Measured { seconds, deviation } => Work::Measured { seconds: seconds * even, deviation },
            Work::Counted { flop, bytes } => Work::Counted { flop: flop * even, bytes: bytes * even },
        };
    }
    graph
}

/// Solves `samples` drawings and compares them with `base`.
///
/// # Errors
/// What keeps a sample from being solved, in words.
pub fn study(
    graph: &ActorGraph,
    cores: &Cores,
    request: &Request,
    (engine, base): (Engine, &[usize]),
    (samples, spread): (u64, f64),
) -> Result<Stability, String> {
    let sizes = capacities(graph);
    let mut graphs = Vec::new();
    let mut found: Vec<Vec<usize>> = vec![base.to_vec()];
    let mut worst_bound = 0.0f64;
    for s in 0..samples {
        let sample = drawn(graph, spread, s + 1);
        let instance = Instance::new(&sample, &sizes, cores, request).map_err(|e| e.to_string())?;
        let outcome = solve(&instance, engine).map_err(|e| e.to_string())?;
        worst_bound = worst_bound.max(outcome.best.bound);
        found.push(outcome.best.core_of.ok_or("a sample has no placement within its limits")?);
        graphs.push(sample);
    }
    let mut boundaries: Vec<Boundary> = Vec::new();
    let mut ends: Vec<(usize, usize)> = graph.channels.iter().map(|c| (c.source, c.target)).collect();
    ends.sort_unstable();
    ends.dedup();
    for (u, v) in ends.into_iter().filter(|(u, v)| base[*u] != base[*v]) {
        let moved = found[1..].iter().filter(|f| f[u] != base[u] || f[v] != base[v]).count() as u64;
        let name = |i: usize| graph.actors[i].name.clone();
        boundaries.push(Boundary { from: name(u), to: name(v), moved });
    }
    boundaries.sort_by_key(|b| std::cmp::Reverse(b.moved));
    let same = found[1..].iter().filter(|f| f.as_slice() == base).count() as u64;
    let mut distinct = found.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let instances: Vec<Instance> = graphs
        .iter()
        .map(|g| Instance::new(g, &sizes, cores, request).map_err(|e| e.to_string()))
        .collect::<Result<_, _>>()?;
    let worst = |core_of: &[usize]| {
        let of = |i: &Instance| Assignment::new(i, core_of.to_vec()).objective();
        instances.iter().map(of).fold(0.0, f64::max)
    };
    let base_worst = worst(base);
    let mut best = (base_worst, base.to_vec());
    for candidate in distinct {
        let value = worst(&candidate);
        if value < best.0 {
            best = (value, candidate);
        }
    }
    if graph.actors.len() as u64 * samples <= MOST_MOVED {
        best = steadier(&instances, best);
    }
    Ok(Stability { samples, same, boundaries, base_worst, best_worst: best.0, worst_bound, best: best.1 })
}

/// Most actors x samples whose moves are tried.
const MOST_MOVED: u64 = 100_000;
/// Rounds of moves.
const ROUNDS: usize = 64;

/// Moves single actors next to those they exchange tokens with while the largest objective over the samples gets less.
fn steadier(instances: &[Instance], (mut worst, mut core_of): (f64, Vec<usize>)) -> (f64, Vec<usize>) {
    let Some(first) = instances.first() else { return (worst, core_of) };
    let mut at: Vec<Assignment> = instances.iter().map(|i| Assignment::new(i, core_of.clone())).collect();
    for _ in 0..ROUNDS {
        let before = worst;
        for i in (0..first.n).filter(|i| first.request.pins[*i].is_none()) {
            let ends = first.incoming[i].iter().map(|e| first.edges[*e].from);
            let mut near: Vec<usize> =
                ends.chain(first.outgoing[i].iter().map(|e| first.edges[*e].to)).map(|j| core_of[j]).collect();
            near.sort_unstable();
            near.dedup();
            for p in near {
                let from = core_of[i];
                if p == from || !at[0].allowed(i, p) {
                    continue;
                }
                let mut value = 0.0f64;
                let mut moved = 0;
                for a in &mut at {
                    a.apply(i, p);
                    moved += 1;
                    let (broken, objective, _) = a.worth();
                    value = if broken > 0.0 { f64::INFINITY } else { value.max(objective) };
                    if value >= worst * (1.0 - 1e-12) {
                        break;
                    }
                }
                if value < worst * (1.0 - 1e-12) {
                    (worst, core_of[i]) = (value, p);
                } else {
                    at[..moved].iter_mut().for_each(|a| a.apply(i, from));
                }
            }
        }
        if worst >= before {
            break;
        }
    }
    (worst, core_of)
}
