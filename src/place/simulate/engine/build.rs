//! The state of a run before its first instant.

use super::{Actor, Core, Engine, NONE, Slot, Turns};
use crate::place::simulate::net::Net;
use crate::place::simulate::ticks::Ticks;
use std::collections::BinaryHeap;

impl Engine {
    /// The state before the first instant; every actor fires `iterations` times its repetitions at most.
    pub(in crate::place::simulate) fn new(
        net: &Net,
        capacities: &[u32],
        ticks: &Ticks,
        iterations: Option<u64>,
    ) -> Self {
        let n = net.actors.len();
        let mut order: Vec<u32> = (0..net.fifos.len() as u32).collect();
        order.sort_by_key(|f| net.fifos[*f as usize].source);
        let mut fifos = Vec::with_capacity(order.len());
        let mut delays = Vec::with_capacity(order.len());
        let mut reads_of: Vec<Vec<u32>> = vec![Vec::new(); n];
        let mut writes = vec![(0u32, 0u32); n];
        let mut missing = vec![0u32; n];
        for (at, f) in order.iter().enumerate() {
            let fifo = &net.fifos[*f as usize];
            let capacity = capacities.get(fifo.buffer).copied().unwrap_or(0);
            let space = capacity.saturating_sub(fifo.initial);
            let range = &mut writes[fifo.source];
            *range = if range.0 == range.1 { (at as u32, at as u32 + 1) } else { (range.0, at as u32 + 1) };
            reads_of[fifo.target].push(at as u32);
            missing[fifo.source] += u32::from(space < fifo.produced);
            missing[fifo.target] += u32::from(fifo.initial < fifo.consumed);
            let (source, target) = (fifo.source as u32, fifo.target as u32);
            let (produced, consumed) = (fifo.produced, fifo.consumed);
            fifos.push(Slot { tokens: fifo.initial, space, produced, consumed, source, target });
            delays.push(ticks.of(fifo.delay));
        }
        let mut by_core: Vec<Vec<u32>> = vec![Vec::new(); net.cores.len()];
        for (a, core) in net.core_of.iter().enumerate() {
            by_core[*core].push(a as u32);
        }
        let mut turns = Vec::with_capacity(n);
        let mut turn_of = vec![0u32; n];
        let (mut words, mut over) = (0u32, 0u32);
        let mut cores = Vec::with_capacity(by_core.len());
        for list in &by_core {
            let first = turns.len() as u32;
            for (turn, a) in list.iter().enumerate() {
                turn_of[*a as usize] = turn as u32;
                turns.push(*a);
            }
            let count = list.len().div_ceil(64) as u32;
            let (from, above) = (words, over);
            words += count;
            over += count.div_ceil(64);
            let range = (first, turns.len() as u32);
            let words = (from, words);
            cores.push(Core { running: NONE, end: 0, next: 0, turns: range, words, over: above, woken: false });
        }
        let mut reads = Vec::with_capacity(fifos.len());
        let mut actors = Vec::with_capacity(n);
        for a in 0..n {
            let from = reads.len() as u32;
            reads.extend_from_slice(&reads_of[a]);
            let limit = iterations.map_or(u64::MAX, |i| i.saturating_mul(net.repetitions[a]));
            actors.push(Actor {
                missing: missing[a] + u32::from(limit == 0),
                core: net.core_of[a] as u32,
                turn: turn_of[a],
                word: cores[net.core_of[a]].words.0 + turn_of[a] / 64,
                reads: (from, reads.len() as u32),
                writes: writes[a],
                seconds: ticks.of(net.seconds[a]),
                fired: 0,
                limit,
            });
        }
        let late = delays.iter().any(|d| *d > 0);
        let reference = (0..n).min_by_key(|a| net.repetitions[*a]).unwrap_or(0);
        let mut engine = Self {
            fifos,
            delays,
            fifo_at: order,
            reads,
            turns: Turns {
                cores,
                actors: turns,
                ready: vec![0; words as usize],
                over: vec![0; over as usize],
                woken: Vec::with_capacity(by_core.len()),
            },
            ends: BinaryHeap::with_capacity(by_core.len()),
            now: 0,
            epoch: 0,
            firings: 0,
            reference,
            per_iteration: net.repetitions.get(reference).copied().unwrap_or(1).max(1),
            ended: 0,
            late,
            actors,
        };
        for a in 0..n {
            if engine.actors[a].missing == 0 {
                engine.turns.ready(&engine.actors[a]);
            }
        }
        engine
    }
}
