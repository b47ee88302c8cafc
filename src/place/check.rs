//! The checker of placements: derives every figure again from the decisions alone, and knows nothing of the engines.
//!
//! Rules: an actor that is pinned lies there; in a chain of stages no channel that makes its reader wait goes to an earlier core; the state of a core's
//! actors and the FIFOs they read fit its memory; a FIFO holds at least what one firing writes, what one reads, and what lies in it at
//! the start; with the objective `cut` no core is busy for more than `balance` times the mean of all actors on the fastest kind of core, or than the largest
//! actor where that is more, of replicas each by itself. A bound is compared with the objective, and with the mean
//! and the largest actor, which no bound of the engines may stay below.

use super::file::{PlacementFile, PlacementResult};
use super::placement::{Figures, Objective};
use crate::units::{Bytes, Seconds};

/// Largest relative difference of a figure.
pub const TOLERANCE: f64 = 1e-9;

/// Seconds, bytes and rules of a placement, core by core.
///
/// # Errors
/// Every rule that is broken, in words.
pub fn derive(file: &PlacementFile) -> Result<Figures, Vec<String>> {
    let (graph, cores, placement) = (&file.graph, &file.cores, &file.placement);
    let mut broken = Vec::new();
    let name = |i: usize| &graph.actors[i].name;
    let core = |p: usize| &cores.cores[p].name;
    let firings = match graph.repetitions() {
        Ok(firings) => firings,
        Err(e) => return Err(vec![e.to_string()]),
    };
    for (i, pin) in file.request.pins.iter().enumerate() {
        if let Some(p) = pin.filter(|p| *p != placement.core_of[i]) {
            broken.push(format!(
                "{:?} is pinned to {:?} and lies on {:?}",
                name(i),
                core(p),
                core(placement.core_of[i])
            ));
        }
    }
    let k = cores.len();
    let mut figures = Figures {
        busy_s: Vec::with_capacity(k),
        local_s: Vec::with_capacity(k),
        port_s: Vec::with_capacity(k),
        across_s: 0.0,
        cut_bytes: 0.0,
        memory_bytes: Vec::with_capacity(k),
        bottleneck_s: 0.0,
        imbalance: 1.0,
        acyclic: true,
        used: 0,
    };
    let place = |i: usize| placement.core_of[i];
    // One transfer of a channel over its whole iteration.
    let seconds = |c: usize| {
        let channel = &graph.channels[c];
        let sent = firings[channel.source] as f64;
        let (distance, wire) = cores.between(place(channel.source), place(channel.target));
        sent * (distance * wire.latency + channel.produced as f64 * channel.token_bytes / wire.bandwidth)
    };
    for p in 0..k {
        let here: Vec<usize> = (0..graph.actors.len()).filter(|i| place(*i) == p).collect();
        let fire = |i: &usize| cores.cores[p].firing_seconds(&graph.actors[*i]) * firings[*i] as f64;
        figures.busy_s.push(here.iter().map(fire).sum());
        figures.used += usize::from(!here.is_empty());
        let (mut local, mut port, mut memory) =
            (0.0, 0.0, here.iter().map(|i| graph.actors[*i].state_bytes).sum::<f64>());
        for (c, channel) in graph.channels.iter().enumerate() {
            let (from, to) = (place(channel.source) == p, place(channel.target) == p);
            if to {
                memory += placement.capacities[c] as f64 * channel.token_bytes;
            }
            if channel.source == channel.target || !(from || to) {
                continue;
            }
            if from && to { local += seconds(c) } else { port += seconds(c) }
        }
        figures.local_s.push(local);
        figures.port_s.push(port);
        figures.memory_bytes.push(memory);
        let room = cores.cores[p].memory;
        if memory > room * (1.0 + TOLERANCE) {
            broken.push(format!("core {:?} holds {} and has {}", core(p), Bytes(memory), Bytes(room)));
        }
    }
    // What crosses is counted at both ends.
    figures.across_s = figures.port_s.iter().sum::<f64>() / 2.0;
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); k];
    for (c, channel) in graph.channels.iter().enumerate() {
        let least = channel.produced.max(channel.consumed).max(channel.initial);
        if placement.capacities[c] < least {
            let found = placement.capacities[c];
            let (u, v) = (name(channel.source), name(channel.target));
            broken.push(format!("the FIFO {u:?} -> {v:?} holds {found} tokens and needs at least {least}"));
        }
        let (p, q) = (place(channel.source), place(channel.target));
        if p == q {
            continue;
        }
        figures.cut_bytes += firings[channel.source] as f64 * channel.produced as f64 * channel.token_bytes;
        if channel.initial < firings[channel.target] * channel.consumed {
            after[p].push(q);
            if file.request.acyclic && p > q {
                let (u, v) = (name(channel.source), name(channel.target));
                broken.push(format!("the channel {u:?} -> {v:?} goes back from {:?} to {:?}", core(p), core(q)));
            }
        }
    }
    figures.acyclic = !circular(&after);
    let total: f64 = figures.busy_s.iter().sum();
    figures.bottleneck_s = figures.busy_s.iter().copied().fold(0.0, f64::max);
    figures.imbalance = if total > 0.0 { figures.bottleneck_s * k as f64 / total } else { 1.0 };
    if file.request.objective == Objective::Cut {
        // Engines count whole picoseconds.
        let rounding = 1e-12 * graph.actors.len() as f64;
        // Replicas have cores of their own, side by side, and each has its own mean.
        let own = (k as u64 / placement.replicas.max(1)).max(1) as usize;
        for (p, busy) in figures.busy_s.iter().enumerate() {
            let first = p / own * own;
            let replica = first..(first + own).min(k);
            let on = |p: usize| {
                let here = (0..graph.actors.len()).filter(|i| replica.contains(&place(*i)));
                here.map(|i| cores.cores[p].firing_seconds(&graph.actors[i]) * firings[i] as f64).collect::<Vec<f64>>()
            };
            let least = |of: fn(Vec<f64>) -> f64| replica.clone().map(|p| of(on(p))).fold(f64::INFINITY, f64::min);
            let mean = least(|all| all.iter().sum()) / replica.len() as f64;
            let most = (file.request.balance * mean).max(least(|all| all.into_iter().fold(0.0, f64::max)));
            if *busy > most * (1.0 + TOLERANCE) + rounding {
                broken.push(format!(
                    "core {:?} is busy for {}, and balance {} allows {}",
                    core(p),
                    Seconds(*busy),
                    file.request.balance,
                    Seconds(most)
                ));
            }
        }
    }
    if broken.is_empty() { Ok(figures) } else { Err(broken) }
}

/// Whether the cores wait for each other in a circle: every core from which it is come back to.
fn circular(after: &[Vec<usize>]) -> bool {
    // 0: not seen, 1: on the way, 2: done.
    let mut mark = vec![0u8; after.len()];
    for start in 0..after.len() {
        let mut stack = vec![(start, 0)];
        while let Some((p, next)) = stack.pop() {
            if next == 0 {
                if mark[p] == 2 {
                    continue;
                }
                mark[p] = 1;
            }
            match after[p].get(next) {
                Some(&q) => {
                    stack.push((p, next + 1));
                    match mark[q] {
                        1 => return true,
                        0 => stack.push((q, 0)),
                        _ => {}
                    }
                }
                None => mark[p] = 2,
            }
        }
    }
    false
}

/// What of a file's `result` is not what its placement gives.
pub fn differences(file: &PlacementFile, result: &PlacementResult, figures: &Figures) -> Vec<String> {
    let mut found = Vec::new();
    let mut near = |field: &str, stated: Option<f64>, derived: f64| {
        if let Some(stated) = stated
            && (stated - derived).abs() > TOLERANCE * stated.abs().max(derived.abs())
        {
            found.push(format!("{field}: {stated} in the file, {derived} derived"));
        }
    };
    let objective = match file.request.objective {
        Objective::Cut => figures.cut_bytes,
        Objective::Bottleneck => figures.bottleneck_s,
        Objective::Sum => {
            let local = figures.local_s.iter().copied().fold(0.0, f64::max);
            figures.bottleneck_s + local + figures.across_s
        }
        Objective::PerCore => (0..figures.busy_s.len())
            .map(|p| (figures.busy_s[p] + figures.local_s[p]).max(figures.port_s[p]))
            .fold(0.0, f64::max),
    };
    // Engines count whole picoseconds.
    let rounding = 1e-12 * file.graph.actors.len() as f64;
    if result.objective.is_none_or(|o| (o - objective).abs() > rounding) {
        near("objective", result.objective, objective);
    }
    near("bottleneck_s", result.bottleneck_s, figures.bottleneck_s);
    near("imbalance", result.imbalance, figures.imbalance);
    near("across_s", result.across_s, figures.across_s);
    near("cut_bytes", result.cut_bytes, figures.cut_bytes);
    for (field, stated, derived) in
        [("busy_s", &result.busy_s, &figures.busy_s), ("memory_bytes", &result.memory_bytes, &figures.memory_bytes)]
    {
        let Some(stated) = stated else { continue };
        if stated.len() != derived.len() {
            near(&format!("{field}: entries"), Some(stated.len() as f64), derived.len() as f64);
        }
        for (p, (s, d)) in stated.iter().zip(derived).enumerate() {
            near(&format!("{field}[{p}]"), Some(*s), *d);
        }
    }
    if let Some(chain) = result.chain.filter(|c| *c != figures.acyclic) {
        found.push(format!("chain: {chain} in the file, {} derived", figures.acyclic));
    }
    if let Some(bound) = result.bound {
        if bound > objective * (1.0 + TOLERANCE) + rounding {
            found.push(format!("bound: {bound} is above the objective {objective}"));
        }
        let proven = result.status == Some(crate::solver::record::Status::Optimal);
        if proven && bound < objective * (1.0 - 1e-6) - rounding {
            found.push(format!("status: optimal, but the bound {bound} is below the objective {objective}"));
        }
    }
    found
}
