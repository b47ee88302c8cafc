//! The steady state of a placed actor graph with bounded FIFOs, by discrete simulation of its firings.
//!
//! [`engine`](self) has the rules of the runtime (those of ART, where they are known), [`deadlock`] says before anything runs whether
//! it can run at all, [`sizes`] finds the smallest FIFOs that keep the throughput. `docs/place.md` has the equations.

pub mod deadlock;
mod engine;
pub mod net;
pub mod sizes;
mod steady;
pub mod ticks;
pub mod trace;

pub use deadlock::Deadlock;
pub use net::{Net, NetError, Transfers};
pub use steady::{Fill, Latency};

use serde::Serialize;
use ticks::Ticks;

/// Firings after which a simulation stops to look for a period: some seconds.
pub const MOST_FIRINGS: u64 = 50_000_000;

/// Limits of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Firings after which the search for a periodic regime ends.
    pub firings: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { firings: MOST_FIRINGS }
    }
}

/// Iterations that fills and latencies are measured over where no state comes again.
const MOST_MEASURED: u64 = 4096;

/// The periodic regime of actors that have to do with each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Its actors.
    pub actors: Vec<usize>,
    /// Seconds an iteration: `period_s / iterations`.
    pub iteration_s: f64,
    /// Seconds after which everything repeats.
    pub period_s: f64,
    /// Iterations in a period.
    pub iterations: u64,
    /// Iterations before the regime, at most.
    pub settled_after: u64,
    /// Whether a state came again; else the figures are averages of these iterations, the last of as many firings as were allowed.
    pub repeats: bool,
}

/// The steady state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Steady {
    /// Seconds an iteration: of the slowest part.
    pub iteration_s: f64,
    /// Seconds an iteration by the loads of the cores alone: the most loaded one's.
    pub bottleneck_s: f64,
    /// Latency of an iteration in the steady state; `None` where it was longer than the simulation.
    pub latency: Option<Latency>,
    /// Seconds of one iteration alone on the empty machine.
    pub alone_s: Option<f64>,
    /// Share of the time that each core computes.
    pub utilisation: Vec<f64>,
    /// Fill of each FIFO.
    pub fills: Vec<Fill>,
    /// One for each set of actors that have to do with each other.
    pub parts: Vec<Part>,
    /// Whether the seconds of all firings are whole ticks as they were given; else they were rounded by 2^-51 of the longest.
    pub exact: bool,
}

/// What a simulation found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A steady state.
    Steady(Steady),
    /// Nobody can go on.
    Deadlock(Deadlock),
    /// No state came again within the limit.
    Unsettled {
        /// Firings simulated.
        firings: u64,
        /// Seconds an iteration, on average from the start: with the ramp in it, so an estimate.
        iteration_s: f64,
    },
}

/// Simulates a net to its steady state.
///
/// # Errors
/// All [`NetError`]s.
pub fn simulate(net: &Net, capacities: &[u32], limits: Limits) -> Result<Outcome, Vec<NetError>> {
    net.check()?;
    if let Some(deadlock) = deadlock::verdict(net, capacities) {
        return Ok(Outcome::Deadlock(deadlock));
    }
    let mut steady = Steady {
        iteration_s: 0.0,
        bottleneck_s: net.load().into_iter().fold(0.0, f64::max),
        latency: None,
        alone_s: None,
        utilisation: vec![0.0; net.cores.len()],
        fills: vec![Fill { mean: 0.0, most: 0 }; net.fifos.len()],
        parts: Vec::new(),
        exact: true,
    };
    for actors in net.components() {
        let (part, fifos) = net.part(&actors);
        let ticks = Ticks::of_net(&part);
        let (period, engine, repeats) = match steady::find(&part, capacities, &ticks, limits.firings) {
            steady::Found::Regime(period, engine) => (period, *engine, true),
            steady::Found::Asleep => {
                let stuck = deadlock::verdict(&part, capacities);
                return Ok(stuck.map_or(Outcome::Unsettled { firings: 0, iteration_s: f64::NAN }, Outcome::Deadlock));
            }
            steady::Found::Unsettled(engine, Some(window)) => (window, *engine, false),
            steady::Found::Unsettled(engine, None) => {
                let iteration_s = ticks.seconds_of(engine.time()) / engine.iterations().max(1) as f64;
                return Ok(Outcome::Unsettled { firings: engine.firings(), iteration_s });
            }
        };
        // Without a period fills and latencies are those of some thousand iterations.
        let most = if repeats { period.iterations } else { period.iterations.min(MOST_MEASURED) };
        let measured_over = steady::Period { iterations: most, ..period };
        let measured = steady::measure(&part, capacities, &ticks, &measured_over, engine, limits.firings);
        for (f, fill) in fifos.iter().zip(measured.fills) {
            steady.fills[*f] = fill;
        }
        let period_s = ticks.seconds_of(period.ticks);
        // Nothing is faster than the most loaded core, whatever an average has.
        let least = if repeats { 0.0 } else { part.load().into_iter().fold(0.0, f64::max) };
        let iteration_s = (period_s / period.iterations as f64).max(least);
        for (core, load) in part.load().into_iter().enumerate() {
            steady.utilisation[core] += load / iteration_s;
        }
        let alone = steady::finite(&part, capacities, &ticks, 1, limits.firings).map(|t| ticks.seconds_of(t));
        let first = steady.parts.is_empty();
        steady.alone_s = join(steady.alone_s, alone, first, f64::max);
        steady.latency = join(steady.latency, measured.latency, first, |a, b| if a.most_s > b.most_s { a } else { b });
        steady.iteration_s = steady.iteration_s.max(iteration_s);
        steady.exact &= ticks.exact;
        let (iterations, settled_after) = (period.iterations, period.settled_after);
        steady.parts.push(Part { actors, iteration_s, period_s, iterations, settled_after, repeats });
    }
    Ok(Outcome::Steady(steady))
}

fn join<T>(a: Option<T>, b: Option<T>, first: bool, f: impl Fn(T, T) -> T) -> Option<T> {
    if first { b } else { a.zip(b).map(|(a, b)| f(a, b)) }
}

/// Seconds from the start of a run of `iterations` iterations to its end; `None` where it does not end within the limit.
///
/// # Errors
/// All [`NetError`]s.
pub fn makespan(net: &Net, capacities: &[u32], iterations: u64, limits: Limits) -> Result<Option<f64>, Vec<NetError>> {
    net.check()?;
    let mut longest = Some(0.0);
    for actors in net.components() {
        let (part, _) = net.part(&actors);
        let ticks = Ticks::of_net(&part);
        let end = steady::finite(&part, capacities, &ticks, iterations, limits.firings).map(|t| ticks.seconds_of(t));
        longest = join(longest, end, false, f64::max);
    }
    Ok(longest)
}

/// Runs `firings` firings (or until all sleep) and no more: simulated seconds. This is what the speed of the simulation is measured on.
///
/// # Errors
/// All [`NetError`]s.
pub fn advance(net: &Net, capacities: &[u32], firings: u64) -> Result<f64, Vec<NetError>> {
    net.check()?;
    let ticks = Ticks::of_net(net);
    let mut engine = engine::Engine::new(net, capacities, &ticks, None);
    while engine.firings() < firings && engine.run(&mut (), firings) != engine::Pause::Asleep {}
    Ok(ticks.seconds_of(engine.time()))
}

#[cfg(test)]
mod tests;
