//! The periodic regime: found exactly, measured over exactly one period.
//!
//! Times are whole ticks and FIFOs are bounded, so that the states are finitely many and one of them comes again: from there
//! on everything repeats. Brent's search finds it: the state at iterations 1, 2, 4, 8, ... is kept and compared with those after it,
//! which stops at the first FIFO that differs. The period is the time between the two equal states, the throughput the
//! iterations between them over it: no average that has the ramp in it.

use super::engine::{Engine, Observer, Pause};
use super::net::Net;
use super::ticks::Ticks;

/// A period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    /// Its length.
    pub ticks: u128,
    /// Iterations in it.
    pub iterations: u64,
    /// Iterations before it, at most.
    pub settled_after: u64,
}

impl Period {
    /// Whether an iteration takes longer than in `other`, exactly.
    pub fn slower_than(&self, other: &Self) -> bool {
        self.ticks * u128::from(other.iterations) > other.ticks * u128::from(self.iterations)
    }

    /// Ticks an iteration.
    pub fn iteration(&self) -> f64 {
        self.ticks as f64 / self.iterations as f64
    }
}

/// How the search for the period ended.
pub(super) enum Found {
    /// The regime, and a run that stands at its start.
    Regime(Period, Box<Engine>),
    /// Everybody sleeps.
    Asleep,
    /// No state came again; the last half of the run and more, where it was long enough to have one.
    Unsettled(Box<Engine>, Option<Period>),
}

/// Runs until a state comes again, for `most` firings at most.
pub(super) fn find(net: &Net, capacities: &[u32], ticks: &Ticks, most: u64) -> Found {
    let mut engine = Engine::new(net, capacities, ticks, None);
    let mut kept: Option<Engine> = None;
    let (mut power, mut since) = (1u64, 0u64);
    // The state before the one that is kept: its time, and the firings of each actor.
    let mut mark: Option<(u128, u64, Vec<u64>)> = None;
    let all = |e: &Engine| (0..net.actors.len()).map(|a| e.fired(a)).collect::<Vec<u64>>();
    // FIFOs that still fill let the actors before them run ahead: the one that fires least sets the pace.
    let window = |engine: &Engine, mark: Option<(u128, u64, Vec<u64>)>| {
        let (time, settled_after, before) = mark?;
        let whole =
            all(engine).iter().zip(&before).zip(&net.repetitions).map(|((now, then), q)| (now - then) / q).min()?;
        let ticks = engine.time() - time;
        (whole > 0).then_some(Period { ticks, iterations: whole, settled_after })
    };
    loop {
        match engine.run(&mut (), most) {
            Pause::Asleep => return Found::Asleep,
            Pause::Sample => {}
            Pause::Limit => {
                let found = window(&engine, mark);
                return Found::Unsettled(Box::new(engine), found);
            }
        }
        if let Some(kept) = &kept
            && engine.same(kept)
        {
            let period = Period {
                ticks: engine.time() - kept.time(),
                iterations: engine.iterations() - kept.iterations(),
                settled_after: kept.iterations(),
            };
            return Found::Regime(period, Box::new(engine));
        }
        since += 1;
        if kept.is_none() || since == power {
            mark = kept.as_ref().map(|k| (k.time(), k.iterations(), all(k)));
            kept = Some(engine.clone());
            power *= 2;
            since = 0;
        }
        if engine.firings() >= most {
            let found = window(&engine, mark);
            return Found::Unsettled(Box::new(engine), found);
        }
    }
}

/// Time from the first firing of an iteration to its last.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Latency {
    /// The shortest of a period.
    pub least_s: f64,
    /// The mean of a period.
    pub mean_s: f64,
    /// The longest of a period.
    pub most_s: f64,
}

/// Tokens in a FIFO and claimed in it, over one period.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Fill {
    /// Mean over time.
    pub mean: f64,
    /// Most.
    pub most: u32,
}

/// What is measured in the regime: fills over one period, and the latencies of as many iterations as a period has.
pub(super) struct Measured {
    pub latency: Option<Latency>,
    /// By FIFO of the net.
    pub fills: Vec<Fill>,
}

struct Meter<'n> {
    net: &'n Net,
    capacities: Vec<u32>,
    filling: bool,
    changed: Vec<u128>,
    /// Sum of tokens x ticks.
    sums: Vec<u128>,
    most: Vec<u32>,
    source: Vec<bool>,
    sink: Vec<bool>,
    sinks: usize,
    first: u64,
    starts: Vec<Option<u128>>,
    ends: Vec<(usize, u128)>,
}

impl Observer for Meter<'_> {
    fn start(&mut self, engine: &Engine, actor: usize) {
        let q = self.net.repetitions[actor];
        let fired = engine.fired(actor);
        if self.source[actor]
            && fired.is_multiple_of(q)
            && let Some(at) = (fired / q).checked_sub(self.first)
            && let Some(start) = self.starts.get_mut(at as usize)
        {
            // Firings come in the order of time: the first is the earliest.
            start.get_or_insert(engine.time());
        }
    }

    fn finish(&mut self, engine: &Engine, actor: usize) {
        let q = self.net.repetitions[actor];
        let fired = engine.fired(actor);
        if self.sink[actor]
            && fired.is_multiple_of(q)
            && let Some(at) = (fired / q).checked_sub(self.first + 1)
            && let Some((ended, end)) = self.ends.get_mut(at as usize)
        {
            *ended += 1;
            *end = engine.time();
        }
    }

    fn fill(&mut self, engine: &Engine, place: usize) {
        if self.filling {
            let f = engine.fifo_at[place] as usize;
            self.count(engine, place, f);
        }
    }
}

impl Meter<'_> {
    fn count(&mut self, engine: &Engine, place: usize, f: usize) {
        let fill = engine.fill(place, self.capacities[self.net.fifos[f].buffer]);
        self.sums[f] += u128::from(fill) * (engine.time() - self.changed[f]);
        self.changed[f] = engine.time();
        self.most[f] = self.most[f].max(fill);
    }

    fn done(&self) -> bool {
        self.ends.iter().all(|(ended, _)| *ended == self.sinks)
    }
}

/// Measures from the state `engine`, which is in the regime `period`.
pub(super) fn measure(
    net: &Net,
    capacities: &[u32],
    ticks: &Ticks,
    period: &Period,
    mut engine: Engine,
    most: u64,
) -> Measured {
    let n = net.actors.len();
    let mut source = vec![true; n];
    let mut sink = vec![true; n];
    for f in net.fifos.iter().filter(|f| f.source != f.target) {
        source[f.target] = false;
        sink[f.source] = false;
    }
    // A circle has neither: then every actor is both.
    if !source.contains(&true) {
        source.fill(true);
    }
    if !sink.contains(&true) {
        sink.fill(true);
    }
    let first = (0..n).filter(|a| source[*a]).map(|a| engine.fired(a).div_ceil(net.repetitions[a])).max().unwrap_or(0);
    let window = usize::try_from(period.iterations).unwrap_or(usize::MAX).min(1 << 20);
    let mut meter = Meter {
        net,
        capacities: capacities.to_vec(),
        filling: true,
        changed: vec![engine.time(); net.fifos.len()],
        sums: vec![0; net.fifos.len()],
        most: vec![0; net.fifos.len()],
        sinks: sink.iter().filter(|s| **s).count(),
        source,
        sink,
        first,
        starts: vec![None; window],
        ends: vec![(0, 0); window],
    };
    let begin = engine.time();
    let end = engine.iterations() + period.iterations;
    while engine.iterations() < end && engine.run(&mut meter, u64::MAX) == Pause::Sample {}
    for place in 0..net.fifos.len() {
        meter.count(&engine, place, engine.fifo_at[place] as usize);
    }
    meter.filling = false;
    let elapsed = (engine.time() - begin).max(1);
    let stop = engine.firings().saturating_add(most);
    while !meter.done() && engine.firings() < stop && engine.run(&mut meter, stop) != Pause::Asleep {}
    let fills = (meter.sums.iter().zip(&meter.most))
        .map(|(sum, most)| Fill { mean: *sum as f64 / elapsed as f64, most: *most })
        .collect();
    let latencies: Vec<f64> = (meter.starts.iter().zip(&meter.ends))
        .filter_map(|(start, (_, end))| Some(ticks.seconds_of(end.checked_sub((*start)?)?)))
        .collect();
    let latency = (meter.done() && !latencies.is_empty()).then(|| Latency {
        least_s: latencies.iter().copied().fold(f64::INFINITY, f64::min),
        mean_s: latencies.iter().sum::<f64>() / latencies.len() as f64,
        most_s: latencies.iter().copied().fold(0.0, f64::max),
    });
    Measured { latency, fills }
}

/// Ticks from the start to the last end of a run of `iterations` iterations; `None` where it sleeps before or takes more
/// than `most` firings to simulate. Whole periods of the regime are passed over: what they do is known.
pub(super) fn finite(net: &Net, capacities: &[u32], ticks: &Ticks, iterations: u64, most: u64) -> Option<u128> {
    let whole = |a: usize| iterations.saturating_mul(net.repetitions[a]);
    let n = net.actors.len();
    // No actor may come to its last firing while the engine runs, nor in what is passed over.
    let within = |engine: &Engine| {
        let ahead = (0..n).map(|a| engine.fired(a).div_ceil(net.repetitions[a])).max().unwrap_or(0);
        (ahead <= iterations).then_some(ahead)
    };
    // The search for the regime is the run itself as long as it lasts; where none is found before its end, it goes on to that.
    let firings: u64 = (0..n).map(whole).fold(0, u64::saturating_add);
    let mut engine = match find(net, capacities, ticks, most.min(firings - firings / 16)) {
        Found::Regime(period, mut engine) => {
            if let Some(ahead) = within(&engine) {
                let periods = (iterations - ahead) / period.iterations;
                let by = periods * period.iterations;
                engine.jump(|a| by * net.repetitions[a], u128::from(periods) * period.ticks);
                engine.limit(whole);
                *engine
            } else {
                Engine::new(net, capacities, ticks, Some(iterations))
            }
        }
        Found::Asleep => return None,
        Found::Unsettled(mut engine, _) if within(&engine).is_some() => {
            engine.limit(whole);
            *engine
        }
        Found::Unsettled(..) => Engine::new(net, capacities, ticks, Some(iterations)),
    };
    // What was asked for by its number of iterations may take longer than a search for a period.
    let stop = engine.firings().saturating_add(most.saturating_mul(4));
    while engine.run(&mut (), stop) != Pause::Asleep {
        if engine.firings() >= stop {
            return None;
        }
    }
    (0..n).all(|a| engine.fired(a) == whole(a)).then(|| engine.time())
}

/// The same without passing over anything, for tests.
#[cfg(test)]
pub(super) fn whole(net: &Net, capacities: &[u32], ticks: &Ticks, iterations: u64) -> u128 {
    let mut engine = Engine::new(net, capacities, ticks, Some(iterations));
    while engine.run(&mut (), u64::MAX) != Pause::Asleep {}
    engine.time()
}
