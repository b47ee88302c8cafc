//! Firings with their times, for figures and timelines.

use super::engine::{Engine, Observer, Pause};
use super::net::Net;
use super::steady::{Found, find};
use super::ticks::Ticks;
use super::{Limits, NetError};
use serde::Serialize;

/// One firing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Firing {
    /// Actor.
    pub actor: usize,
    /// Core.
    pub core: usize,
    /// Iteration it belongs to, from 0.
    pub iteration: u64,
    /// Seconds since the start of the recording.
    pub start_s: f64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Where a recording starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// On the empty machine.
    Start,
    /// In the periodic regime.
    Regime,
}

struct Recorder<'n> {
    net: &'n Net,
    started: Vec<u128>,
    zero: u128,
    ticks: Ticks,
    firings: Vec<Firing>,
    most: usize,
}

impl Observer for Recorder<'_> {
    fn start(&mut self, engine: &Engine, actor: usize) {
        self.started[actor] = engine.time();
    }

    fn finish(&mut self, engine: &Engine, actor: usize) {
        let start = self.started[actor].max(self.zero);
        if self.firings.len() < self.most {
            self.firings.push(Firing {
                actor,
                core: engine.core(actor),
                iteration: (engine.fired(actor) - 1) / self.net.repetitions[actor],
                start_s: self.ticks.seconds_of(start - self.zero),
                seconds: self.ticks.seconds_of(engine.time() - start),
            });
        }
    }
}

/// Records `iterations` iterations, `most` firings at most, of each part of the net; in the order of their starts. In the regime the
/// recording starts where it is found, and no earlier than a whole period in which it is known to be.
///
/// # Errors
/// All [`NetError`]s.
pub fn record(
    net: &Net,
    capacities: &[u32],
    from: From,
    iterations: u64,
    most: usize,
    limits: Limits,
) -> Result<Vec<Firing>, Vec<NetError>> {
    net.check()?;
    let mut all = Vec::new();
    for actors in net.components() {
        let (part, _) = net.part(&actors);
        let ticks = Ticks::of_net(&part);
        let (mut engine, end) = match from {
            From::Start => (Engine::new(&part, capacities, &ticks, Some(iterations)), None),
            From::Regime => match find(&part, capacities, &ticks, limits.firings) {
                Found::Regime(_, engine) | Found::Unsettled(engine, _) => {
                    let end = engine.iterations() + iterations;
                    (*engine, Some(end))
                }
                Found::Asleep => continue,
            },
        };
        let zero = engine.time();
        let started = vec![zero; actors.len()];
        let mut recorder = Recorder { net: &part, started, zero, ticks, firings: Vec::new(), most };
        while recorder.firings.len() < most && end.is_none_or(|end| engine.iterations() < end) {
            let stop = engine.firings().saturating_add(limits.firings.min(most as u64));
            if engine.run(&mut recorder, stop) == Pause::Asleep {
                break;
            }
        }
        all.extend(recorder.firings.into_iter().map(|f| Firing { actor: actors[f.actor], ..f }));
    }
    all.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.core.cmp(&b.core)).then(a.actor.cmp(&b.actor)));
    all.truncate(most);
    Ok(all)
}
