//! The numbers of one placement problem, as every engine reads them.
//!
//! Sets: actors i, edges e = (u, v) (channels between the same two actors added up), cores p of classes c (equal rates).
//! Data: `ticks[c][i]` ticks (picoseconds, or the power of ten that keeps sums within 64 bits) of all firings of i in one iteration on a core of class c (whole numbers, so that loads add up exactly);
//! bytes of e in one iteration; state of i; bytes of the FIFOs that i reads; memory of p.
//! An edge *waits* where its initial tokens do not serve a whole iteration: then its reader cannot start before its writer has fired, and in
//! a chain of stages (`acyclic`) it must not go back: core(u) <= core(v).

use super::cores::{Cores, Network, Wire};
use super::graph::{ActorError, ActorGraph};
use super::placement::Objective;
use crate::model::divisors::gcd;

/// Most ticks of a second.
const MOST_TICKS: f64 = 1e12;
/// Most ticks of all actors, times the cores: sums stay far within 64 bits.
const MOST_SUM: f64 = 1e18;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What is minimised.
    pub objective: Objective,
    /// Whether the cores form a chain of stages, in the order of their numbers.
    pub acyclic: bool,
    /// Core of each actor that is pinned.
    pub pins: Vec<Option<usize>>,
    /// Largest load over the mean of all cores, for the objective `cut`.
    pub balance: f64,
    /// Seconds that a search may take.
    pub seconds: Option<f64>,
}

/// One edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// The actor that writes.
    pub from: usize,
    /// The actor that reads.
    pub to: usize,
    /// Bytes of an iteration.
    pub bytes: f64,
    /// Firings of an iteration that send some: each pays the latency.
    pub messages: f64,
    /// Whether the reader waits for the writer.
    pub waits: bool,
}

impl Edge {
    /// Seconds of an iteration over a wire at a distance.
    pub fn seconds(&self, distance: f64, wire: Wire) -> f64 {
        self.messages * distance * wire.latency + self.bytes / wire.bandwidth
    }
}

/// The numbers.
#[derive(Debug, Clone)]
pub struct Instance<'g> {
    /// Actors.
    pub n: usize,
    /// Cores.
    pub k: usize,
    /// Ticks of a second.
    pub rate: f64,
    /// Ticks of each actor by class of core.
    pub ticks: Vec<Vec<u64>>,
    /// Class of each core.
    pub class: Vec<usize>,
    /// Edges.
    pub edges: Vec<Edge>,
    /// Edges that start at each actor.
    pub outgoing: Vec<Vec<usize>>,
    /// Edges that end at each actor.
    pub incoming: Vec<Vec<usize>>,
    /// The actors in an order in which no edge that waits goes back.
    pub order: Vec<usize>,
    /// Bytes that an actor brings to its core: its state and the FIFOs it reads.
    pub bytes: Vec<f64>,
    /// Greatest common divisor of all ticks.
    pub step: u64,
    /// Largest load allowed (objective `cut`).
    pub cap: Option<u64>,
    /// The cores.
    pub cores: &'g Cores,
    /// What is asked for.
    pub request: &'g Request,
}

impl<'g> Instance<'g> {
    /// The numbers of `graph` on `cores`, with FIFOs of `capacities`.
    ///
    /// # Errors
    /// An [`ActorError`] of the graph.
    pub fn new(
        graph: &ActorGraph,
        capacities: &[u64],
        cores: &'g Cores,
        request: &'g Request,
    ) -> Result<Self, ActorError> {
        let (n, k) = (graph.actors.len(), cores.len());
        let firings = graph.repetitions()?;
        let order = graph.order()?;
        let mut kinds: Vec<usize> = Vec::new();
        let mut class = Vec::with_capacity(k);
        for (p, core) in cores.cores.iter().enumerate() {
            let same = |q: &usize| {
                let other = &cores.cores[*q];
                (core.speed, core.rates, core.memory_bandwidth, core.firing_overhead)
                    == (other.speed, other.rates, other.memory_bandwidth, other.firing_overhead)
            };
            match kinds.iter().position(same) {
                Some(c) => class.push(c),
                None => {
                    class.push(kinds.len());
                    kinds.push(p);
                }
            }
        }
        let seconds: Vec<Vec<f64>> = kinds
            .iter()
            .map(|p| {
                let core = &cores.cores[*p];
                graph.actors.iter().zip(&firings).map(|(a, q)| core.firing_seconds(a) * *q as f64).collect()
            })
            .collect();
        let longest = seconds.iter().map(|s| s.iter().sum::<f64>()).fold(0.0, f64::max) * k as f64;
        let rate = MOST_TICKS.min(10f64.powf((MOST_SUM / longest.max(1e-6)).log10().floor()));
        let ticks: Vec<Vec<u64>> =
            seconds.iter().map(|list| list.iter().map(|s| (s * rate).round() as u64).collect()).collect();
        let mut merged: std::collections::BTreeMap<(usize, usize), (f64, f64, bool)> =
            std::collections::BTreeMap::new();
        let mut bytes: Vec<f64> = graph.actors.iter().map(|a| a.state_bytes).collect();
        for (c, channel) in graph.channels.iter().enumerate() {
            bytes[channel.target] += capacities[c] as f64 * channel.token_bytes;
            if channel.source == channel.target {
                continue;
            }
            let moved = (firings[channel.source] * channel.produced) as f64 * channel.token_bytes;
            let waits = channel.initial < firings[channel.target] * channel.consumed;
            let entry = merged.entry((channel.source, channel.target)).or_insert((0.0, 0.0, false));
            *entry = (entry.0 + moved, entry.1 + firings[channel.source] as f64, entry.2 || waits);
        }
        let edges: Vec<Edge> = merged
            .into_iter()
            .map(|((from, to), (bytes, messages, waits))| Edge { from, to, bytes, messages, waits })
            .collect();
        let mut outgoing = vec![Vec::new(); n];
        let mut incoming = vec![Vec::new(); n];
        for (e, edge) in edges.iter().enumerate() {
            outgoing[edge.from].push(e);
            incoming[edge.to].push(e);
        }
        let step = ticks.iter().flatten().fold(0, |a, b| gcd(a, *b));
        let mut instance =
            Self { n, k, rate, ticks, class, edges, outgoing, incoming, order, bytes, step, cap: None, cores, request };
        if request.objective == Objective::Cut {
            // Of unlike cores the mean is that of all actors on the fastest kind: one limit for every placement. Nothing may be below the largest actor.
            let total: u64 = instance.ticks.iter().map(|t| t.iter().sum::<u64>()).min().unwrap_or(0);
            let largest = instance.ticks.iter().map(|t| t.iter().copied().max().unwrap_or(0)).min().unwrap_or(0);
            let mean = total as f64 / k as f64;
            instance.cap = Some(((mean * request.balance).floor() as u64).max(largest));
        }
        Ok(instance)
    }

    /// The least load of at least `ticks`: loads are multiples of the greatest common divisor of all ticks.
    pub fn whole(&self, ticks: u64) -> u64 {
        let step = self.step.max(1);
        ticks.div_ceil(step).saturating_mul(step)
    }
    /// Ticks of actor `i` on core `p`.
    pub fn on(&self, i: usize, p: usize) -> u64 {
        self.ticks[self.class[p]][i]
    }
    /// Whether all cores have the same rates.
    pub fn alike(&self) -> bool {
        self.ticks.len() == 1
    }
    /// Whether any actor is pinned.
    pub fn pinned(&self) -> bool {
        self.request.pins.iter().any(Option::is_some)
    }
    /// Least seconds of a transfer between two different cores, over all pairs: of a level, one hop, the least distance.
    pub fn least_wire(&self) -> Wire {
        if self.k < 2 {
            return Wire::FREE;
        }
        match &self.cores.network {
            Network::Levels(levels) => levels.iter().filter(|(size, _)| *size > 1).fold(
                Wire { latency: f64::INFINITY, bandwidth: 0.0 },
                |best, (_, w)| Wire {
                    latency: best.latency.min(w.latency),
                    bandwidth: best.bandwidth.max(w.bandwidth),
                },
            ),
            Network::Mesh { wire, .. } => *wire,
            Network::Matrix { distances, wire } => {
                let apart = distances
                    .iter()
                    .enumerate()
                    .flat_map(|(p, row)| row.iter().enumerate().filter(move |(q, _)| *q != p).map(|(_, d)| *d));
                Wire { latency: wire.latency * apart.fold(f64::INFINITY, f64::min), ..*wire }
            }
        }
    }
    /// Whether every pair of different cores is equally far.
    pub fn one_price(&self) -> bool {
        match &self.cores.network {
            Network::Levels(levels) => {
                let mut wires = levels.iter().filter(|(size, _)| *size > 1).map(|(_, w)| w);
                let first = wires.next();
                wires.all(|w| Some(w) == first)
            }
            Network::Mesh { rows, columns, wire } => wire.latency == 0.0 || rows * columns <= 2,
            Network::Matrix { distances, wire } => {
                wire.latency == 0.0 || {
                    let mut apart = distances
                        .iter()
                        .enumerate()
                        .flat_map(|(p, row)| row.iter().enumerate().filter(move |(q, _)| *q != p).map(|(_, d)| *d));
                    let first = apart.next();
                    apart.all(|d| Some(d) == first)
                }
            }
        }
    }
    /// The largest load of a bound that holds for every placement: the mean over the cores, and the largest actor (each on the class
    /// where it is least; exact sums where all cores are alike).
    pub fn load_bound(&self) -> u64 {
        let least: Vec<u64> = (0..self.n).map(|i| self.ticks.iter().map(|t| t[i]).min().unwrap_or(0)).collect();
        let total: u128 = least.iter().map(|t| u128::from(*t)).sum();
        let mean = total.div_ceil(self.k as u128) as u64;
        let single = (0..self.n).map(|i| self.request.pins[i].map_or(least[i], |p| self.on(i, p))).max().unwrap_or(0);
        let mut pinned = vec![0u64; self.k];
        for (i, p) in self.request.pins.iter().enumerate() {
            if let Some(p) = p {
                pinned[*p] += self.on(i, *p);
            }
        }
        self.whole(mean.max(single).max(pinned.into_iter().max().unwrap_or(0)))
    }
}
