//! The division of a chain of blocks among pipeline stages: exact.
//!
//! Units u = 1..U are the repetitions of the blocks in order; a stage is a run of them, none empty. Let t_u be a unit's seconds,
//! h_c the seconds of a hand-over at the cut c between two units, and for the stage of units i..j
//!
//! ```text
//! T = sum of t_u + max(h_i, h_j)      the hand-overs to its neighbours run at once, the slower counts (none at the ends)
//! G = update(gradient and weight bytes of its units)                      gradient reduction and optimiser, once an iteration
//! bytes of its units on stage s (memory::of_units) <= capacity
//!
//! minimise   sum_s T_s + (b - 1) max_s T_s + max_s G_s                                              (model::stages)
//! ```
//!
//! Labels (sum T, max T, max G) of the ways to put the first j units on the first s stages are kept where none of the other
//! labels there is at least as good in all three: a dynamic programme over (s, j) with dominance. A label is dropped if what
//! is left cannot end below a limit: its units take their time, and no stage of the rest is shorter than their share, or than
//! the longest of them. The limit starts just above the bound of the whole chain and is raised until a division ends below it; that
//! one is the best of all, since only what cannot end below the limit was dropped. Near the bound few runs remain.
//!
//! For a lower bound `live` may be left out: what waits only takes room.

use crate::model::memory::{self, LayerNeed};

/// What a block asks of the stages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockLoad {
    /// Its repetitions.
    pub repeat: u64,
    /// Seconds of one unit and one microbatch.
    pub pass_s: f64,
    /// What a unit asks of the DRAM.
    pub need: LayerNeed,
    /// Most bytes of tensors that wait while a unit works.
    pub live: f64,
    /// Bytes of its weights' gradients.
    pub gradient_bytes: f64,
    /// Bytes of its weights.
    pub weight_bytes: f64,
    /// Seconds of a hand-over between two of its units.
    pub inside_s: f64,
    /// Seconds of the hand-over to the next block.
    pub onward_s: f64,
}

/// A chain and the pipeline it is divided among.
pub struct Chain<'a> {
    /// The blocks, in order.
    pub blocks: Vec<BlockLoad>,
    /// Microbatches whose activations each stage holds.
    pub in_flight: Vec<u64>,
    /// Microbatches of an iteration.
    pub microbatches: f64,
    /// Bytes of a chip's DRAM.
    pub capacity: f64,
    /// Seconds that gradients and weights of so many bytes take once an iteration; grows with both.
    pub update: &'a dyn Fn(f64, f64) -> f64,
}

/// A stage as the programme sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// T.
    pub time_s: f64,
    /// The hand-over in it.
    pub hand_over_s: f64,
    /// G.
    pub update_s: f64,
    /// Bytes of a chip.
    pub bytes: f64,
}

/// A way to put units on the first stages.
#[derive(Debug, Clone, Copy)]
struct Label {
    sum: f64,
    slowest: f64,
    update: f64,
    /// Where its last stage begins, and which label it comes from.
    from: (usize, usize),
}

impl Chain<'_> {
    fn units(&self) -> usize {
        self.blocks.iter().map(|b| b.repeat as usize).sum()
    }

    /// First unit of each block, and the end.
    fn starts(&self) -> Vec<usize> {
        let mut out = vec![0];
        for b in &self.blocks {
            out.push(out.last().copied().unwrap_or(0) + b.repeat as usize);
        }
        out
    }

    /// Units of each block among units `from..to`.
    fn counts(starts: &[usize], from: usize, to: usize) -> impl Iterator<Item = u64> + Clone {
        starts.windows(2).map(move |w| to.min(w[1]).saturating_sub(from.max(w[0])) as u64)
    }

    /// Seconds of a hand-over before unit `cut`.
    fn hand_over(&self, starts: &[usize], cut: usize) -> f64 {
        if cut == 0 || cut >= self.units() {
            return 0.0;
        }
        let block = starts.partition_point(|s| *s < cut).saturating_sub(1);
        // The unit before the cut is the last of its block where the next block starts there.
        if starts[block + 1] == cut { self.blocks[block].onward_s } else { self.blocks[block].inside_s }
    }

    /// Seconds of a hand-over before each unit, and at the end.
    pub fn cuts(&self) -> Vec<f64> {
        let starts = self.starts();
        (0..=self.units()).map(|cut| self.hand_over(&starts, cut)).collect()
    }

    fn run(&self, starts: &[usize], s: usize, from: usize, to: usize) -> Run {
        let counts = Self::counts(starts, from, to);
        let sum = |f: fn(&BlockLoad) -> f64| -> f64 {
            self.blocks.iter().zip(counts.clone()).map(|(b, n)| f(b) * n as f64).sum()
        };
        let units = self.blocks.iter().zip(counts.clone()).map(|(b, n)| (b.need, b.live, n));
        let hand_over_s = self.hand_over(starts, from).max(self.hand_over(starts, to));
        Run {
            time_s: sum(|b| b.pass_s) + hand_over_s,
            hand_over_s,
            update_s: (self.update)(sum(|b| b.gradient_bytes), sum(|b| b.weight_bytes)),
            bytes: memory::of_units(units, self.in_flight[s]).total(),
        }
    }

    /// The stages of a division (units of each), without looking at the capacity.
    pub fn runs(&self, stages: &[u64]) -> Vec<Run> {
        let starts = self.starts();
        let mut from = 0;
        let mut out = Vec::with_capacity(stages.len());
        for (s, units) in stages.iter().enumerate() {
            let to = from + *units as usize;
            out.push(self.run(&starts, s, from, to));
            from = to;
        }
        out
    }

    /// Seconds of an iteration.
    pub fn objective(&self, runs: &[Run]) -> f64 {
        let sum: f64 = runs.iter().map(|r| r.time_s).sum();
        let slowest = runs.iter().map(|r| r.time_s).fold(0.0, f64::max);
        let update = runs.iter().map(|r| r.update_s).fold(0.0, f64::max);
        sum + (self.microbatches - 1.0) * slowest + update
    }

    /// Seconds that no division goes below.
    pub fn bound(&self) -> f64 {
        let total: f64 = self.blocks.iter().map(|b| b.pass_s * b.repeat as f64).sum();
        least_iteration(total, self.longest(), self.in_flight.len() as u64, self.microbatches)
    }

    fn longest(&self) -> f64 {
        self.blocks.iter().map(|b| b.pass_s).fold(0.0, f64::max)
    }

    /// The best division: seconds of the iteration, and the units of each stage; `None` where none fits.
    pub fn divide(&self) -> Option<(f64, Vec<u64>)> {
        if self.units() < self.in_flight.len() {
            return None;
        }
        let bound = self.bound();
        for slack in [0.003, 0.01, 0.03, 0.1, 0.3, 1.0] {
            if let Some(found) = self.below(bound * (1.0 + slack)) {
                return Some(found);
            }
        }
        self.below(f64::INFINITY)
    }

    /// The best division of less than `limit` seconds.
    fn below(&self, limit: f64) -> Option<(f64, Vec<u64>)> {
        let (units, stages) = (self.units(), self.in_flight.len());
        let starts = self.starts();
        let later = self.microbatches - 1.0;
        let before: Vec<f64> = (0..=units)
            .map(|u| self.blocks.iter().zip(Self::counts(&starts, 0, u)).map(|(b, n)| b.pass_s * n as f64).sum())
            .collect();
        let total = before[units];
        // The longest unit from each one on.
        let mut longest = vec![0.0_f64; units + 1];
        for u in (0..units).rev() {
            let block = starts.partition_point(|s| *s <= u) - 1;
            longest[u] = longest[u + 1].max(self.blocks[block].pass_s);
        }
        let mut labels: Vec<Vec<Vec<Label>>> = vec![vec![Vec::new(); units + 1]; stages + 1];
        labels[0][0].push(Label { sum: 0.0, slowest: 0.0, update: 0.0, from: (0, 0) });
        for s in 0..stages {
            let left = stages - s - 1;
            for i in s..units {
                if labels[s][i].is_empty() {
                    continue;
                }
                let here = labels[s][i].clone();
                for j in (i + 1)..=(units - left) {
                    if (left == 0) != (j == units) {
                        continue;
                    }
                    let run = self.run(&starts, s, i, j);
                    if run.bytes > self.capacity {
                        // More units take more.
                        break;
                    }
                    let rest = total - before[j];
                    let share = if left > 0 { (rest / left as f64).max(longest[j]) } else { 0.0 };
                    let mut open = false;
                    for (at, label) in here.iter().enumerate() {
                        let new = Label {
                            sum: label.sum + run.time_s,
                            slowest: label.slowest.max(run.time_s),
                            update: label.update.max(run.update_s),
                            from: (i, at),
                        };
                        let least = new.sum + rest + later * new.slowest.max(share) + new.update;
                        open |= label.sum + (total - before[i]) + later * (before[j] - before[i]) < limit;
                        if least < limit {
                            keep(&mut labels[s + 1][j], new);
                        }
                    }
                    if !open {
                        // Every longer run is too long by itself.
                        break;
                    }
                }
            }
        }
        let seconds = |l: &Label| l.sum + later * l.slowest + l.update;
        let last = &labels[stages][units];
        let best = (0..last.len()).min_by(|a, b| seconds(&last[*a]).total_cmp(&seconds(&last[*b])))?;
        let (mut at, mut to, mut out) = (best, units, vec![0; stages]);
        for s in (0..stages).rev() {
            let label = labels[s + 1][to][at];
            out[s] = (to - label.from.0) as u64;
            (to, at) = label.from;
        }
        Some((seconds(&last[best]), out))
    }

    /// Whether some division fits a memory of `capacity` bytes. Stages take units one after another for as long as these fit:
    /// what a run holds grows with its units and no later stage holds more of a unit, so none gets further.
    fn fits_in(&self, capacity: f64) -> bool {
        let starts = self.starts();
        let (units, stages) = (self.units(), self.in_flight.len());
        let mut end = 0;
        for s in 0..stages {
            let from = end;
            let most = units.saturating_sub(stages - s - 1);
            while end < most && self.run(&starts, s, from, end + 1).bytes <= capacity {
                end += 1;
            }
            if end == from {
                // A stage that cannot hold the next unit holds the one before instead, if it is not the first stage's.
                if s == 0 || end <= s || self.run(&starts, s, end - 1, end).bytes > capacity {
                    return false;
                }
            }
        }
        end == units
    }

    /// Whether some division fits.
    pub fn fits(&self) -> bool {
        self.units() >= self.in_flight.len() && (self.capacity.is_infinite() || self.fits_in(self.capacity))
    }

    /// Least bytes of DRAM with which some division fits, to a ten-thousandth.
    pub fn least_capacity(&self) -> f64 {
        let (mut short, mut enough) = (0.0, self.run(&self.starts(), 0, 0, self.units()).bytes);
        while enough - short > 1e-4 * enough {
            let middle = f64::midpoint(short, enough);
            if self.fits_in(middle) { enough = middle } else { short = middle }
        }
        enough
    }
}

/// Adds a label unless one there is as good; removes those that it is as good as.
fn keep(labels: &mut Vec<Label>, new: Label) {
    let as_good = |a: &Label, b: &Label| a.sum <= b.sum && a.slowest <= b.slowest && a.update <= b.update;
    if labels.iter().any(|l| as_good(l, &new)) {
        return;
    }
    labels.retain(|l| !as_good(&new, l));
    labels.push(new);
}

/// Seconds of an iteration of units of `total` seconds together, the longest of `longest`, that no division goes below: no
/// stage is shorter than the mean, nor than a unit.
pub fn least_iteration(total: f64, longest: f64, pp: u64, microbatches: f64) -> f64 {
    total + (microbatches - 1.0) * (total / pp as f64).max(longest)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Whole numbers, always the same.
    pub struct Random(pub u64);

    impl Random {
        /// One below a number.
        pub fn below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % most
        }
    }

    /// A small chain: one to four blocks, up to `most` units, a capacity about what is needed.
    pub fn chain<'u>(random: &mut Random, update: &'u dyn Fn(f64, f64) -> f64, most: u64) -> Chain<'u> {
        let count = 1 + random.below(4);
        let held = random.below(4) as f64;
        let mut blocks = Vec::new();
        let mut left = most;
        for b in 0..count {
            let repeat = 1 + random.below((left - (count - b) + 1).min(4));
            left -= repeat;
            let mut number = |most: u64| random.below(most) as f64;
            let kept = number(6);
            blocks.push(BlockLoad {
                repeat,
                pass_s: 1.0 + number(12),
                need: LayerNeed {
                    weights: number(6),
                    gradients: number(3),
                    optimizer_share: number(3),
                    caches: number(2),
                    kept,
                    held,
                },
                // At least what it keeps; what waits may also be less, where the unit stores nothing.
                live: number(8),
                gradient_bytes: number(6),
                weight_bytes: number(6),
                inside_s: number(4),
                onward_s: number(6),
            });
        }
        let units: u64 = blocks.iter().map(|b| b.repeat).sum();
        let pp = 1 + random.below(units.min(5));
        let microbatches = 1 + random.below(8);
        let in_flight = (0..pp).map(|s| (pp - s).min(microbatches)).collect();
        let mut out = Chain { blocks, in_flight, microbatches: microbatches as f64, capacity: f64::INFINITY, update };
        let needs = |d: &Vec<u64>| out.runs(d).iter().map(|r| r.bytes).fold(0.0, f64::max);
        let least = divisions(units, pp).iter().map(needs).fold(f64::INFINITY, f64::min);
        if random.below(4) > 0 {
            out.capacity = (least * (0.85 + random.below(60) as f64 / 100.0)).floor();
        }
        out
    }

    /// Every way to divide units among stages, none empty.
    fn divisions(units: u64, stages: u64) -> Vec<Vec<u64>> {
        if stages == 1 {
            return vec![vec![units]];
        }
        let first = 1..=units.saturating_sub(stages - 1);
        first.flat_map(|n| divisions(units - n, stages - 1).into_iter().map(move |d| [vec![n], d].concat())).collect()
    }

    fn all(chain: &Chain<'_>) -> Vec<Vec<u64>> {
        divisions(chain.units() as u64, chain.in_flight.len() as u64)
    }

    /// Whether some division fits so many bytes.
    pub fn fits(chain: &Chain<'_>, capacity: f64) -> bool {
        all(chain).iter().any(|d| chain.runs(d).iter().all(|r| r.bytes <= capacity))
    }

    /// The programme against all divisions; what fits and what does not alike. And the bounds, the pre-check and what more
    /// memory or another stage's capacity may do.
    #[test]
    fn divisions_against_brute_force() {
        let mut random = Random(5);
        let (mut fitting, mut short, mut uneven) = (0, 0, 0);
        for case in 0..4000 {
            let rates = (random.below(5) as f64 / 8.0, random.below(5) as f64 / 8.0, random.below(3) as f64);
            // A latency too, as a reduction has.
            let update = |g: f64, w: f64| g * rates.0 + w * rates.1 + if g > 0.0 { rates.2 } else { 0.0 };
            let mut chain = chain(&mut random, &update, 10);
            let fitting_ones: Vec<Vec<u64>> =
                all(&chain).into_iter().filter(|d| chain.runs(d).iter().all(|r| r.bytes <= chain.capacity)).collect();
            let least = fitting_ones.iter().map(|d| chain.objective(&chain.runs(d))).fold(f64::INFINITY, f64::min);
            let found = chain.divide();
            assert_eq!(found.is_some(), least.is_finite(), "{case}: {found:?} {least}");
            assert_eq!(chain.fits(), !fitting_ones.is_empty(), "{case}: {:?}", chain.blocks);
            assert!(
                fits(&chain, chain.least_capacity()) && !fits(&chain, chain.least_capacity() * (1.0 - 2e-4) - 1e-9)
            );
            if let Some((seconds, stages)) = &found {
                assert!((seconds - least).abs() <= 1e-12 * least, "{case}: {seconds} {least} {stages:?}");
                assert!(fitting_ones.contains(stages), "{case}: {stages:?}");
                assert_eq!(*seconds, chain.objective(&chain.runs(stages)), "{case}");
                assert!(chain.bound() <= seconds * (1.0 + 1e-12), "{case}");
                uneven += usize::from(stages.iter().any(|n| *n != stages[0]));
                chain.capacity *= 1.0 + random.below(5) as f64 / 10.0;
                let more = chain.divide().map_or(f64::INFINITY, |(seconds, _)| seconds);
                assert!(more <= *seconds, "{case}: more memory is slower");
            }
            fitting += usize::from(found.is_some());
            short += usize::from(found.is_none());
        }
        assert!(fitting > 1000 && short > 300 && uneven > 300, "{fitting} {short} {uneven}");
    }

    /// By hand: an embedding of 1 s, six layers of 4 s and a head of 10 s on 3 stages, 5 microbatches, no hand-overs: 35 s
    /// together. Even counts (3, 3, 2) take 9, 12, 14: 35 + 4 x 14 = 91. With 4, 3, 1 units 13, 12, 10: 35 + 4 x 13 = 87.
    #[test]
    fn the_head_asks_for_fewer_layers() {
        let load = |repeat: u64, pass_s: f64| BlockLoad {
            repeat,
            pass_s,
            need: LayerNeed::default(),
            live: 0.0,
            gradient_bytes: 0.0,
            weight_bytes: 0.0,
            inside_s: 0.0,
            onward_s: 0.0,
        };
        let update = |_: f64, _: f64| 0.0;
        let chain = Chain {
            blocks: vec![load(1, 1.0), load(6, 4.0), load(1, 10.0)],
            in_flight: vec![3, 2, 1],
            microbatches: 5.0,
            capacity: f64::INFINITY,
            update: &update,
        };
        assert_eq!(chain.objective(&chain.runs(&[3, 3, 2])), 91.0);
        assert_eq!(chain.divide(), Some((87.0, vec![4, 3, 1])));
        assert_eq!(chain.bound(), 35.0 + 4.0 * (35.0 / 3.0));
    }
}
