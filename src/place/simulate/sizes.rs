//! The smallest FIFOs that keep the throughput.
//!
//! **Target.** The period with buffers so large that twice as large ones bring nothing (or the loads of the cores allow nothing
//! better), exactly, in ticks; or a given one.
//! **From below.** All buffers start at the size below which they block by themselves; those on which a writer waits while its core
//! sleeps grow, until the target is met. **From above** likewise from the large ones. Both are then taken back buffer by buffer
//! (dearest tokens first) by bisection, again and again until no buffer can be one token less; the smaller result is taken.
//! With turns that depend on times a larger buffer may (rarely) be slower, so bisection may miss sizes; that one less on each buffer
//! fails is tried in any case, by running it. **All of them**, where they are few: every assignment with fewer bytes is run.

use super::engine::{Engine, Observer, Pause};
use super::net::{Net, NetError, least_capacity};
use super::steady::{Found, Period, find};
use super::ticks::Ticks;
use super::{Limits, deadlock};
use serde::Serialize;

crate::choice! {
    /// What is known about sizes.
    pub enum Proof ("a proof") {
        /// Every assignment with fewer bytes was run and is slower.
        Exhaustive = "exhaustive",
        /// One token less on any one buffer is slower.
        OneLess = "one_less",
    }
}

/// Sizes of the buffers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizes {
    /// Tokens, by buffer.
    pub capacities: Vec<u32>,
    /// Bytes of all.
    pub bytes: f64,
    /// Seconds an iteration with them: of the slowest part.
    pub iteration_s: f64,
    /// What is known.
    pub proof: Proof,
    /// Runs it took.
    pub runs: u64,
}

/// Most assignments that are run to prove the sum of bytes.
const MOST_ASSIGNMENTS: usize = 3_000;

/// Finds them; `None` where no state comes again within the limit.
///
/// # Errors
/// All [`NetError`]s; a graph that cannot run at any size has the verdict as [`NetError::Graph`].
pub fn smallest(net: &Net, limits: Limits) -> Result<Option<Sizes>, Vec<NetError>> {
    net.check()?;
    let mut all =
        Sizes { capacities: net.capacities(), bytes: 0.0, iteration_s: 0.0, proof: Proof::Exhaustive, runs: 0 };
    for actors in net.components() {
        let (part, _) = net.part(&actors);
        let ticks = Ticks::of_net(&part);
        let mut search = Search::new(&part, ticks, limits);
        let ample = match search.ample() {
            Ok(Some(ample)) => ample,
            Ok(None) => return Ok(None),
            Err(deadlock) => return Err(vec![NetError::Graph(deadlock.describe(&part).join("\n"))]),
        };
        let above = search.take_back(ample);
        let mut best = above;
        if let Some(below) = search.grow() {
            let below = search.take_back(below);
            if search.cost(&below) < search.cost(&best) {
                best = below;
            }
        }
        if let Some(proven) = search.every(&best) {
            best = proven;
        } else {
            all.proof = Proof::OneLess;
        }
        for buffer in &search.used {
            all.capacities[*buffer] = best[*buffer];
        }
        all.runs += search.runs;
        all.iteration_s = all.iteration_s.max(ticks.seconds_of(search.target.ticks) / search.target.iterations as f64);
    }
    all.bytes = net.bytes(&all.capacities);
    Ok(Some(all))
}

struct Search<'n> {
    net: &'n Net,
    ticks: Ticks,
    limits: Limits,
    /// Buffers of this part, dearest tokens first.
    used: Vec<usize>,
    least: Vec<u32>,
    target: Period,
    runs: u64,
}

impl<'n> Search<'n> {
    fn new(net: &'n Net, ticks: Ticks, limits: Limits) -> Self {
        let mut least = vec![0u32; net.buffers.len()];
        for f in &net.fifos {
            let need = least_capacity(f.produced.into(), f.consumed.into(), f.initial.into());
            least[f.buffer] = least[f.buffer].max(u32::try_from(need).unwrap_or(u32::MAX));
        }
        let mut used: Vec<usize> = (0..least.len()).filter(|b| least[*b] > 0).collect();
        used.sort_by(|a, b| net.buffers[*b].token_bytes.total_cmp(&net.buffers[*a].token_bytes).then(a.cmp(b)));
        let target = Period { ticks: 0, iterations: 1, settled_after: 0 };
        Self { net, ticks, limits, used, least, target, runs: 0 }
    }

    fn run(&mut self, capacities: &[u32]) -> Option<(Period, Engine)> {
        self.runs += 1;
        match find(self.net, capacities, &self.ticks, self.limits.firings) {
            Found::Regime(period, engine) => Some((period, *engine)),
            _ => None,
        }
    }

    /// Whether the target is met; sizes at which it does not run at all do not meet it.
    fn keeps(&mut self, capacities: &[u32]) -> bool {
        self.run(capacities).is_some_and(|(period, _)| !period.slower_than(&self.target))
    }

    fn cost(&self, capacities: &[u32]) -> (f64, u64) {
        let of = |b: &usize| f64::from(capacities[*b]) * self.net.buffers[*b].token_bytes;
        (self.used.iter().map(of).sum(), self.used.iter().map(|b| u64::from(capacities[*b])).sum())
    }

    /// Large buffers: twice as large ones bring nothing twice over. Sets the target.
    fn ample(&mut self) -> Result<Option<Vec<u32>>, deadlock::Deadlock> {
        let mut sizes: Vec<u32> = self.least.clone();
        // Sizes with which it runs at all; or the verdict that none has.
        while let Some(stuck) = deadlock::verdict(self.net, &sizes) {
            if stuck.kind == deadlock::Kind::Cyclic || stuck.remedy.is_empty() {
                return Err(stuck);
            }
            for remedy in &stuck.remedy {
                sizes[remedy.what] = remedy.to;
            }
        }
        let load = self.net.load().into_iter().fold(0.0, f64::max);
        let mut best: Option<(Period, Vec<u32>)> = None;
        let mut idle = 0;
        while idle < 3 {
            let Some((period, _)) = self.run(&sizes) else { return Ok(best.map(|(_, sizes)| sizes)) };
            let better = best.as_ref().is_none_or(|(least, _)| least.slower_than(&period));
            if better {
                best = Some((period, sizes.clone()));
                self.target = period;
                idle = 0;
            } else {
                idle += 1;
            }
            // Rounding of the ticks aside, no period beats the most loaded core.
            if self.ticks.seconds_of(1) * period.iteration() <= load * (1.0 + 1e-12) {
                break;
            }
            for b in &self.used {
                sizes[*b] = sizes[*b].saturating_mul(2).min(1 << 30);
            }
        }
        Ok(best.map(|(_, sizes)| sizes))
    }

    /// From the least sizes up.
    fn grow(&mut self) -> Option<Vec<u32>> {
        let mut sizes = self.least.clone();
        while let Some(stuck) = deadlock::verdict(self.net, &sizes) {
            for remedy in &stuck.remedy {
                sizes[remedy.what] = remedy.to;
            }
        }
        // Growth by a quarter comes to any size soon; a graph that does not by then is left to the way from above.
        for _ in 0..120 {
            let (period, engine) = self.run(&sizes)?;
            if !period.slower_than(&self.target) {
                return Some(sizes);
            }
            let held = self.held_up(engine, &period);
            for b in held {
                let step = self.net.fifos.iter().filter(|f| f.buffer == b).map(|f| f.produced.min(f.consumed)).min();
                sizes[b] = sizes[b].saturating_add(step.unwrap_or(1).max(sizes[b] / 4)).min(1 << 30);
            }
        }
        None
    }

    /// Buffers on which a writer that had all its tokens waited while its core slept; all of them where there is none.
    fn held_up(&self, mut engine: Engine, period: &Period) -> Vec<usize> {
        struct Marks<'n>(&'n Net, Vec<bool>);
        impl Observer for Marks<'_> {
            fn fill(&mut self, engine: &Engine, place: usize) {
                let fifo = &self.0.fifos[engine.fifo_at[place] as usize];
                if !self.1[fifo.buffer] && engine.idle(fifo.source) && engine.has_tokens(fifo.source) {
                    for place in engine.wants_room(fifo.source) {
                        self.1[self.0.fifos[engine.fifo_at[place] as usize].buffer] = true;
                    }
                }
            }
        }
        let mut marks = Marks(self.net, vec![false; self.net.buffers.len()]);
        let end = engine.iterations() + period.iterations;
        while engine.iterations() < end && engine.run(&mut marks, u64::MAX) == Pause::Sample {}
        let held: Vec<usize> = self.used.iter().copied().filter(|b| marks.1[*b]).collect();
        if held.is_empty() { self.used.clone() } else { held }
    }

    /// As small as it goes, one buffer after another, until none can be one less.
    fn take_back(&mut self, mut sizes: Vec<u32>) -> Vec<u32> {
        loop {
            let mut changed = false;
            for b in self.used.clone() {
                let (mut low, mut high) = (self.least[b], sizes[b]);
                // Most often it is the least already, or nothing goes: ask that first.
                let mut middle = if changed { low } else { high.saturating_sub(1).max(low) };
                while low < high {
                    let mut tried = sizes.clone();
                    tried[b] = middle;
                    if self.keeps(&tried) {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                    middle = low + (high - low) / 2;
                }
                changed |= high < sizes[b];
                sizes[b] = high;
            }
            if !changed {
                return sizes;
            }
        }
    }

    /// The assignment with the fewest bytes (then tokens) of all, where those with fewer than `best` are few enough to run.
    fn every(&mut self, best: &[u32]) -> Option<Vec<u32>> {
        let most = self.cost(best);
        let mut list: Vec<((f64, u64), Vec<u32>)> = Vec::new();
        let mut stack = vec![(0usize, self.least.clone())];
        while let Some((depth, sizes)) = stack.pop() {
            let cost = self.cost(&sizes);
            if cost >= most {
                continue;
            }
            if depth == self.used.len() {
                list.push((cost, sizes));
                if list.len() > MOST_ASSIGNMENTS {
                    return None;
                }
                continue;
            }
            let b = self.used[depth];
            let mut next = sizes;
            loop {
                stack.push((depth + 1, next.clone()));
                if stack.len() > 4 * MOST_ASSIGNMENTS {
                    return None;
                }
                next[b] += 1;
                if self.cost(&next) >= most {
                    break;
                }
            }
        }
        list.sort_by(|a, b| a.0.0.total_cmp(&b.0.0).then(a.0.1.cmp(&b.0.1)).then(a.1.cmp(&b.1)));
        for (_, sizes) in list {
            if self.keeps(&sizes) {
                return Some(sizes);
            }
        }
        Some(best.to_vec())
    }
}
