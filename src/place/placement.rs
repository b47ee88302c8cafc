//! A placement: which actor on which core, with which FIFOs; and the record of the search that found it.

use super::simulate::net::default_capacity;
use crate::solver::record::{Status, relative_gap};
use serde::Serialize;

crate::choice! {
    /// What is minimised.
    pub enum Objective ("an objective") {
        /// Seconds an iteration of the slowest core.
        Bottleneck = "bottleneck",
        /// The slowest core's firings + the slowest core's local transfers + all transfers between cores (B3).
        Sum = "sum",
        /// The slowest core where transfers run beside firings: the larger of its firings and its transfers.
        PerCore = "per_core",
        /// Bytes that pass between cores, at a limited imbalance of the cores.
        Cut = "cut",
    }
}

/// What follows from a placement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Seconds of firings in one iteration, by core.
    pub busy_s: Vec<f64>,
    /// Seconds of transfers inside each core.
    pub local_s: Vec<f64>,
    /// Seconds of transfers that start or end at each core.
    pub port_s: Vec<f64>,
    /// Seconds of all transfers between cores.
    pub across_s: f64,
    /// Bytes that pass between cores in one iteration.
    pub cut_bytes: f64,
    /// Bytes of state and FIFOs, by core.
    pub memory_bytes: Vec<f64>,
    /// The largest of `busy_s`.
    pub bottleneck_s: f64,
    /// Largest over mean load of the cores.
    pub imbalance: f64,
    /// Whether the cores can be ordered so that every channel goes forward (a chain of stages).
    pub acyclic: bool,
    /// Cores that hold an actor.
    pub used: usize,
}

/// A placement of an actor graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Placement {
    /// Core of each actor.
    pub core_of: Vec<usize>,
    /// Tokens each channel holds at most.
    pub capacities: Vec<u64>,
    /// Copies of the graph side by side; the graph that `core_of` speaks of has them all written out.
    pub replicas: u64,
}

/// What one engine answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Solved {
    /// Its name.
    pub engine: &'static str,
    /// Core of each actor, where one was found.
    pub core_of: Option<Vec<usize>>,
    /// Objective: seconds, or bytes for the cut.
    pub objective: f64,
    /// No placement can be better than this.
    pub bound: f64,
    /// How it ended.
    pub status: Status,
    /// Seconds it took (for side records alone).
    pub seconds: f64,
}

impl Solved {
    /// (objective - bound) / objective.
    pub fn gap(&self) -> f64 {
        relative_gap(self.objective, self.bound)
    }
}

/// Tokens that each channel holds where no search says: as stated, else the runtime's size ([`default_capacity`]).
pub fn capacities(graph: &super::ActorGraph) -> Vec<u64> {
    let rule = |c: &super::Channel| default_capacity(c.token_bytes, c.produced, c.consumed, c.initial);
    graph.channels.iter().map(|c| c.capacity.unwrap_or_else(|| rule(c))).collect()
}

/// The most that a core may be busy with the objective `cut`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// Seconds of the mean: all actors on the fastest kind of core, over the cores. Of unlike cores one mean for every placement.
    pub mean: f64,
    /// Seconds that a core may be busy: `balance` times the mean, or the largest actor where that is more.
    pub most: f64,
}

/// The limit of a graph on cores for a balance.
///
/// # Errors
/// An [`ActorError`](super::graph::ActorError) of the graph.
pub fn limit(graph: &super::ActorGraph, cores: &super::Cores, balance: f64) -> Result<Limit, super::graph::ActorError> {
    let firings = graph.repetitions()?;
    let (mut mean, mut largest) = (f64::INFINITY, f64::INFINITY);
    for core in &cores.cores {
        let each = || graph.actors.iter().zip(&firings).map(|(a, q)| core.firing_seconds(a) * *q as f64);
        mean = mean.min(each().sum::<f64>() / cores.len() as f64);
        largest = largest.min(each().fold(0.0, f64::max));
    }
    Ok(Limit { mean, most: (balance * mean).max(largest) })
}

/// What follows from a placement: the definition. Sums run over channels, each priced by itself.
///
/// # Errors
/// An [`super::graph::ActorError`] of the graph.
pub fn figures(
    graph: &super::ActorGraph,
    cores: &super::Cores,
    core_of: &[usize],
    capacities: &[u64],
) -> Result<Figures, super::graph::ActorError> {
    let k = cores.len();
    let firings = graph.repetitions()?;
    let (mut busy_s, mut local_s, mut port_s) = (vec![0.0; k], vec![0.0; k], vec![0.0; k]);
    let (mut memory_bytes, mut across_s, mut cut_bytes) = (vec![0.0; k], 0.0, 0.0);
    for (i, actor) in graph.actors.iter().enumerate() {
        busy_s[core_of[i]] += firings[i] as f64 * cores.cores[core_of[i]].firing_seconds(actor);
        memory_bytes[core_of[i]] += actor.state_bytes;
    }
    let mut after = vec![std::collections::BTreeSet::new(); k];
    for (c, channel) in graph.channels.iter().enumerate() {
        let (p, q) = (core_of[channel.source], core_of[channel.target]);
        memory_bytes[q] += capacities[c] as f64 * channel.token_bytes;
        let messages = firings[channel.source] as f64;
        let bytes = messages * channel.produced as f64 * channel.token_bytes;
        let (distance, wire) = cores.between(p, q);
        let seconds = messages * distance * wire.latency + bytes / wire.bandwidth;
        if channel.source == channel.target {
            continue;
        }
        if p == q {
            local_s[p] += seconds;
            continue;
        }
        port_s[p] += seconds;
        port_s[q] += seconds;
        across_s += seconds;
        cut_bytes += bytes;
        if channel.initial < firings[channel.target] * channel.consumed {
            after[p].insert(q);
        }
    }
    // A chain of stages: the cores in some order without an edge that goes back.
    let mut waiting = vec![0; k];
    after.iter().flatten().for_each(|q| waiting[*q] += 1);
    let mut ready: Vec<usize> = (0..k).filter(|p| waiting[*p] == 0).collect();
    let mut ordered = 0;
    while let Some(p) = ready.pop() {
        ordered += 1;
        for q in &after[p] {
            waiting[*q] -= 1;
            if waiting[*q] == 0 {
                ready.push(*q);
            }
        }
    }
    let mut used: Vec<usize> = core_of.to_vec();
    used.sort_unstable();
    used.dedup();
    let bottleneck_s = busy_s.iter().copied().fold(0.0, f64::max);
    let mean = busy_s.iter().sum::<f64>() / k as f64;
    Ok(Figures {
        imbalance: if mean > 0.0 { bottleneck_s / mean } else { 1.0 },
        bottleneck_s,
        acyclic: ordered == k,
        used: used.len(),
        busy_s,
        local_s,
        port_s,
        across_s,
        cut_bytes,
        memory_bytes,
    })
}

impl Figures {
    /// Seconds or bytes of an objective.
    pub fn objective(&self, objective: Objective) -> f64 {
        let largest = |list: &[f64]| list.iter().copied().fold(0.0, f64::max);
        match objective {
            Objective::Bottleneck => self.bottleneck_s,
            Objective::Sum => self.bottleneck_s + largest(&self.local_s) + self.across_s,
            Objective::PerCore => {
                let cores = self.busy_s.iter().zip(&self.local_s).zip(&self.port_s);
                cores.map(|((b, l), x)| (b + l).max(*x)).fold(0.0, f64::max)
            }
            Objective::Cut => self.cut_bytes,
        }
    }
}
