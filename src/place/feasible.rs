//! What no placement can mend: pins that contradict the channels, state that no core holds.

use super::cores::Cores;
use super::graph::{Actor, ActorGraph};
use super::instance::Request;
use super::placement::capacities;
use crate::units::Bytes;

/// Most seconds of all actors that are placed.
const MOST_SECONDS: f64 = 1e9;

/// Everything that is wrong with a request, in words with their remedy.
///
/// # Errors
/// At least one message.
pub fn check(graph: &ActorGraph, cores: &Cores, request: &Request) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    let name = |i: usize| graph.actors[i].name.as_str();
    let core = |p: usize| cores.cores[p].name.as_str();
    let order = match graph.order() {
        Ok(order) => order,
        Err(e) => return Err(vec![e.to_string()]),
    };
    if request.acyclic {
        // The highest pinned core before each actor, and whose it is.
        let firings = graph.repetitions().map_err(|e| vec![e.to_string()])?;
        let mut reached: Vec<Option<(usize, usize)>> = vec![None; graph.actors.len()];
        let mut into: Vec<Vec<usize>> = vec![Vec::new(); graph.actors.len()];
        for c in graph.channels.iter().filter(|c| c.initial < firings[c.target] * c.consumed) {
            into[c.target].push(c.source);
        }
        for i in order {
            reached[i] = into[i].iter().filter_map(|b| reached[*b]).max();
            if let Some(p) = request.pins[i] {
                if let Some((q, other)) = reached[i].filter(|(q, _)| *q > p) {
                    wrong.push(format!(
                        "pins: {:?} on core {:?} comes after {:?} on core {:?}: in a chain of stages no channel goes back; pin {:?} to {:?} or later, or place freely (without --acyclic)",
                        name(i), core(p), name(other), core(q), name(i), core(q)
                    ));
                }
                reached[i] = reached[i].max(Some((p, i)));
            }
        }
    }
    let seconds = |actor: &Actor| cores.cores.iter().map(|core| core.firing_seconds(actor)).fold(0.0, f64::max);
    if graph.actors.iter().map(seconds).sum::<f64>() > MOST_SECONDS {
        let longest = graph.actors.iter().max_by(|a, b| seconds(a).total_cmp(&seconds(b)));
        wrong.extend(longest.map(|actor| {
            format!(
                "one firing of every actor takes more than {MOST_SECONDS} s on cores of {:?}, that of {:?} {:e} s; check rates and times",
                cores.name,
                actor.name,
                seconds(actor)
            )
        }));
        return Err(wrong);
    }
    let sizes = capacities(graph);
    let mut needed: Vec<f64> = graph.actors.iter().map(|a| a.state_bytes).collect();
    for (c, channel) in graph.channels.iter().enumerate() {
        needed[channel.target] += sizes[c] as f64 * channel.token_bytes;
    }
    let largest = cores.cores.iter().map(|c| c.memory).fold(0.0, f64::max);
    let all: f64 = cores.cores.iter().map(|c| c.memory).sum();
    for (i, bytes) in needed.iter().enumerate().filter(|(_, b)| **b > largest) {
        wrong.push(format!(
            "actor {:?} needs {} (state and the FIFOs it reads), and no core of {:?} has more than {}; use cores with more memory, or divide the actor",
            name(i), Bytes(*bytes), cores.name, Bytes(largest)
        ));
    }
    let total: f64 = needed.iter().sum();
    if wrong.is_empty() && total > all {
        wrong.push(format!(
            "all actors need {}, and the {} cores of {:?} have {} together; use more cores, or cores with more memory",
            Bytes(total),
            cores.len(),
            cores.name,
            Bytes(all)
        ));
    }
    let mut pinned = vec![0.0; cores.len()];
    request.pins.iter().enumerate().filter_map(|(i, p)| p.map(|p| (i, p))).for_each(|(i, p)| pinned[p] += needed[i]);
    for (p, bytes) in pinned.iter().enumerate().filter(|(p, b)| **b > cores.cores[*p].memory) {
        wrong.push(format!(
            "pins: the actors pinned to core {:?} need {}, and it has {}; pin some of them elsewhere",
            core(p),
            Bytes(*bytes),
            Bytes(cores.cores[p].memory)
        ));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}
