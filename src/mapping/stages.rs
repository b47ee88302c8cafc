//! The division of layers among pipeline stages.
//!
//! All layers are alike, so a division is a number n_s of layers for each of PP stages, at least one each, R together. For
//! a layer of A seconds its iteration takes R A + PP h + (b - 1) (M A + h) + update(M) with M = max n_s (`model::stages`), which
//! grows with M and asks for nothing else of the n_s. And stage s holds F + n_s P + K (n_s f_s - 1) bytes, with P what a layer
//! holds in any case, K what it keeps of one microbatch, f_s = min(PP - s, b), and F what every chip holds. So
//!
//! - with C bytes of DRAM and L of tensors that wait, M layers a stage are possible if and only if
//!   sum_s min(M, c_s) >= R, where c_s = floor((C - L - F + K) / (P + K f_s)) is at least one for every s;
//! - the least M that is possible is the fastest division, for any A;
//! - of the divisions with stages of at most M layers the one whose fullest stage holds least leaves most room for tensors that
//!   wait. It is found greedily: M layers everywhere, then PP M - R times one layer less in the fullest stage (of equals the
//!   first), or as well one layer everywhere and R - PP times one more where it makes the least full. (Each stage's bytes
//!   grow with its layers, so that no other choice lowers the fullest.)
//!
//! A longer slowest stage is worth while only if the room it leaves makes the layer itself faster. The search therefore tries M
//! from the least one up, for as long as tensors that wait lack room (`search.rs`).
//!
//! DFModel's schedules have ceil(R / PP) layers in each stage and know no other division.

use super::degrees::Degrees;
use super::search::Search;
use crate::model::Strategy;
use crate::model::memory::{self, DramNeed, LayerNeed};
use crate::model::schedule::microbatches;
use crate::model::stages::{even, in_flight};
use crate::system::options::Pipeline;
use crate::units::Ordered;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The stages of an assignment of dimensions, whose layers are to be divided.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipe {
    /// Layers.
    pub layers: u64,
    /// Microbatches whose activations each stage holds.
    pub in_flight: Vec<u64>,
    /// Whether every stage has as many layers as the longest (DFModel's schedules).
    pub equal: bool,
}

impl Pipe {
    /// Of `pp` stages and `microbatches` of an iteration.
    pub fn new(pipeline: Pipeline, layers: u64, pp: u64, microbatches: f64) -> Self {
        let in_flight = (0..pp.max(1)).map(|s| in_flight(pipeline, pp, s, microbatches)).collect();
        Self { layers, in_flight, equal: pipeline != Pipeline::OneForwardOneBackward }
    }

    fn stages(&self) -> u64 {
        self.in_flight.len() as u64
    }

    /// The fewest layers that the longest stage can have.
    pub fn shortest(&self) -> u64 {
        self.layers.div_ceil(self.stages()).max(1)
    }

    /// The most that it can have, so that every other has one.
    pub fn longest(&self) -> u64 {
        if self.equal { self.shortest() } else { (self.layers + 1).saturating_sub(self.stages()).max(1) }
    }

    /// The fewest layers of the longest stage with which every chip's bytes are at most `capacity`; `None` where none is.
    pub fn least_longest(&self, need: &LayerNeed, capacity: f64) -> Option<u64> {
        let fits = |s: usize, n: u64| need.of_stage(n, self.in_flight[s]).total() <= capacity;
        if fits(0, self.shortest()) {
            // The first stage holds most.
            return Some(self.shortest());
        }
        if self.equal {
            return None;
        }
        // Most layers of each stage, by bisection: the bytes grow with them.
        let mut room: Vec<u64> = Vec::with_capacity(self.in_flight.len());
        for s in 0..self.in_flight.len() {
            if s > 0 && self.in_flight[s] == self.in_flight[s - 1] {
                room.push(room[s - 1]);
                continue;
            }
            let (mut fit, mut too_many) = (0, self.longest() + 1);
            while too_many - fit > 1 {
                let middle = fit + (too_many - fit) / 2;
                if fits(s, middle) { fit = middle } else { too_many = middle }
            }
            if fit == 0 {
                return None;
            }
            room.push(fit);
        }
        let enough = |most: u64| room.iter().map(|c| (*c).min(most)).sum::<u64>() >= self.layers;
        if !enough(self.longest()) {
            return None;
        }
        let (mut few, mut many) = (self.shortest() - 1, self.longest());
        while many - few > 1 {
            let middle = few + (many - few) / 2;
            if enough(middle) { many = middle } else { few = middle }
        }
        Some(many)
    }

    /// Layers of each stage, none more than `longest`: the division whose fullest stage holds least.
    pub fn divide(&self, need: &LayerNeed, longest: u64) -> Vec<u64> {
        let stages = self.stages();
        let lacking = (stages * longest).saturating_sub(self.layers);
        if self.equal || lacking == 0 {
            return vec![longest; self.in_flight.len()];
        }
        let bytes = |s: usize, n: u64| Ordered(need.of_stage(n, self.in_flight[s]).total());
        if lacking <= self.layers.saturating_sub(stages) {
            let mut out = vec![longest; self.in_flight.len()];
            let mut heap: BinaryHeap<(Ordered, Reverse<usize>)> =
                (0..out.len()).map(|s| (bytes(s, longest), Reverse(s))).collect();
            for _ in 0..lacking {
                let Some((_, Reverse(s))) = heap.pop() else { break };
                out[s] -= 1;
                if out[s] > 1 {
                    heap.push((bytes(s, out[s]), Reverse(s)));
                }
            }
            return out;
        }
        let mut out = vec![1; self.in_flight.len()];
        let mut heap: BinaryHeap<(Reverse<Ordered>, usize)> =
            (0..out.len()).map(|s| (Reverse(bytes(s, 2)), s)).collect();
        for _ in stages..self.layers {
            let Some((_, s)) = heap.pop() else { break };
            out[s] += 1;
            if out[s] < longest {
                heap.push((Reverse(bytes(s, out[s] + 1)), s));
            }
        }
        out
    }

    /// What the fullest stage holds under [`Pipe::divide`], without tensors that wait.
    pub fn fullest(&self, need: &LayerNeed, longest: u64) -> DramNeed {
        let layers = self.divide(need, longest);
        let each = layers.iter().zip(&self.in_flight).map(|(n, f)| need.of_stage(*n, *f));
        each.reduce(|a, b| if b.total() > a.total() { b } else { a }).unwrap_or_default()
    }

    /// Layers and kept activations (in layers' worth of one microbatch) such that for every layer and every division into stages
    /// of at most `longest` layers some stage holds at least so many of both: what a layer holds times the one plus what it keeps times the other is no more
    /// than the fullest stage's bytes.
    ///
    /// For weights w_s of sum 1 the fullest stage holds at least sum_s w_s (n_s P + K (n_s f_s - 1)); as every n_s is at
    /// least 1 and R together, that is at least P (sum w + (R - PP) min w) + K (sum w f + (R - PP) min w f - 1). The weights here
    /// go as 1 / (P + K f_s), which is the best choice where layers could be cut, for the P and K of `need`. The longest stage
    /// alone gives ceil(R / PP) and ceil(R / PP) - 1, and the first stage, which holds most microbatches, has the layers that the others
    /// cannot have; the largest of the three counts.
    pub fn shares(&self, need: &LayerNeed, longest: u64) -> (f64, f64) {
        let least = self.shortest() as f64;
        if self.equal || self.in_flight.len() == 1 {
            let first = self.in_flight.first().map_or(1.0, |f| *f as f64);
            return (least, (least * first - 1.0).max(0.0));
        }
        let whole = need.weights * (1.0 + need.optimizer_share) + need.gradients + need.caches;
        let value = |(layers, kept): (f64, f64)| layers * whole + kept * need.kept;
        let others = (self.stages() - 1).saturating_mul(longest);
        let first = self.layers.saturating_sub(others).max(1) as f64;
        let first = (first, first * self.in_flight[0] as f64 - 1.0);
        let plain = (least, least - 1.0);
        let plain = if value(first) > value(plain) { first } else { plain };
        let one = whole + need.kept;
        if one <= 0.0 {
            return plain;
        }
        let inverse: Vec<f64> = self.in_flight.iter().map(|f| one / (whole + need.kept * *f as f64)).collect();
        let sum: f64 = inverse.iter().sum();
        let weights: Vec<f64> = inverse.iter().map(|x| x / sum).collect();
        let others = (self.layers as f64 - self.stages() as f64).max(0.0);
        let with_f = || weights.iter().zip(&self.in_flight).map(|(w, f)| w * *f as f64);
        let least_of = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let layers = 1.0 + others * least_of(&mut weights.iter().copied());
        let kept = with_f().sum::<f64>() + others * least_of(&mut with_f()) - 1.0;
        let weighted = (layers, kept.max(0.0));
        if value(weighted) > value(plain) { weighted } else { plain }
    }
}

/// Ratios of what is kept to what a layer holds that [`Pipe::cuts`] looks at: from the first to the last, each so many times the one before.
const RATIOS: (f64, f64, f64) = (1e-3, 30.0, 1.05);

impl Pipe {
    /// Pairs (a, b) such that a P + b K <= 1 wherever some division into stages of at most `longest` layers holds no more than a byte in
    /// its fullest stage, for a layer that holds P and keeps K; and with C bytes wherever it is at most C. Together they are the convex hull of
    /// all such (P, K), but for the steps between the ratios K / P that are looked at. None where one pair says all ([`Pipe::shares`]).
    ///
    /// Along a ratio the largest P is found by bisection of what [`Pipe::least_longest`] asks: sum_s min(longest, floor((1 + K) / (P + K f_s))) >= R.
    /// Less of either fits too, so that between two ratios P is at most that of the first and K at most that of the second.
    pub fn cuts(&self, longest: u64) -> Vec<(f64, f64)> {
        if self.equal || self.in_flight.len() == 1 {
            return Vec::new();
        }
        // Stages with as many microbatches are alike.
        let mut alike: Vec<(f64, u64)> = Vec::new();
        for f in self.in_flight.iter().map(|f| *f as f64) {
            match alike.last_mut() {
                Some((same, count)) if *same == f => *count += 1,
                _ => alike.push((f, 1)),
            }
        }
        let fits = |p: f64, k: f64| {
            let layers = alike.iter().map(|(f, count)| {
                let most = ((1.0 + k) / (p + k * f)).floor();
                (most >= 1.0).then(|| (most.min(longest as f64)) * *count as f64)
            });
            layers.sum::<Option<f64>>().is_some_and(|layers| layers >= self.layers as f64)
        };
        // The largest scale of a direction that fits, from above, between one that does and one that does not.
        let largest = |p: f64, k: f64, (mut low, mut high): (f64, f64)| {
            let most = high;
            while high - low > 1e-10 * high {
                let middle = 0.5 * (low + high);
                if fits(p * middle, k * middle) { low = middle } else { high = middle }
            }
            if high < most { high * (1.0 + 1e-9) } else { f64::INFINITY }
        };
        let (weights_alone, kept_alone) = (largest(1.0, 0.0, (0.0, 2.0)), largest(0.0, 1.0, (0.0, 2.0)));
        if !kept_alone.is_finite() || !weights_alone.is_finite() {
            return Vec::new();
        }
        let (first, last, step) = RATIOS;
        let ratios = std::iter::successors(Some(first), |ratio| Some(ratio * step).filter(|ratio| *ratio < last));
        // Corners of the stairs that hold all of them: the largest P of a ratio, and the largest K of the next.
        let mut corners: Vec<(f64, f64)> = Vec::new();
        let mut p = weights_alone;
        for ratio in ratios {
            // With as much kept it is this much less that fits in any case, and no more than before.
            let low = if ratio > first { p / step * (1.0 - 1e-6) } else { 0.0 };
            let next = largest(1.0, ratio, (low, p * (1.0 + 1e-6)));
            corners.push((p, ratio * next));
            p = next;
        }
        corners.push((p, kept_alone));
        // Their upper hull, from the most P on; (P, 0) and (0, K) close it.
        let mut hull: Vec<(f64, f64)> = vec![(weights_alone, 0.0)];
        for corner in corners.into_iter().chain([(0.0, kept_alone)]) {
            let inside =
                |a: (f64, f64), b: (f64, f64)| (b.0 - a.0) * (corner.1 - a.1) - (b.1 - a.1) * (corner.0 - a.0) <= 0.0;
            while let [.., a, b] = hull.as_slice()
                && inside(*a, *b)
            {
                hull.pop();
            }
            hull.push(corner);
        }
        // The line through two of them: a x + b y = 1.
        let line = |pair: &[(f64, f64)]| {
            let ((x, y), (u, v)) = (pair[0], pair[1]);
            let determinant = x * v - u * y;
            (determinant > 0.0).then(|| ((v - y).max(0.0) / determinant, (x - u).max(0.0) / determinant))
        };
        hull.windows(2).filter_map(line).filter(|(a, b)| a.is_finite() && b.is_finite()).collect()
    }
}

impl Search<'_> {
    /// The stages of an assignment.
    pub(super) fn pipe(&self, degrees: &Degrees) -> Pipe {
        let options = &self.system.model;
        let b = microbatches(self.workload, options, degrees.dp);
        Pipe::new(options.pipeline, self.workload.repeat, degrees.pp, b)
    }

    /// What a layer asks of the DRAM.
    pub(super) fn layer_need(&self, degrees: &Degrees, sharding: &[Strategy]) -> LayerNeed {
        let (options, chips) = (&self.system.model, self.system.chip_count());
        memory::of_layer(self.workload, options, sharding, (degrees.tp, degrees.dp), chips)
    }

    /// Layers of each stage of a plan whose longest has `longest`: as even as can be where that fits with `live` bytes of
    /// waiting tensors and no stage is longer, else the division whose fullest stage holds least.
    pub(super) fn division(&self, degrees: &Degrees, sharding: &[Strategy], longest: u64, live: f64) -> Vec<u64> {
        let (pipe, need) = (self.pipe(degrees), self.layer_need(degrees, sharding));
        let even = even(self.system.model.pipeline, self.workload.repeat, degrees.pp);
        let room = self.dram_capacity() - live;
        let fits = even.iter().zip(&pipe.in_flight).all(|(n, f)| need.of_stage(*n, *f).total() <= room);
        if longest == pipe.shortest() && fits { even } else { pipe.divide(&need, longest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    /// Every way to divide `layers` among `stages`, none empty.
    fn divisions(layers: u64, stages: usize) -> Vec<Vec<u64>> {
        if stages == 1 {
            return vec![vec![layers]];
        }
        let first = 1..=layers.saturating_sub(stages as u64 - 1);
        first
            .flat_map(|n| divisions(layers - n, stages - 1).into_iter().map(move |rest| [vec![n], rest].concat()))
            .collect()
    }

    fn need(random: &mut impl FnMut(u64) -> u64) -> LayerNeed {
        LayerNeed {
            weights: random(20) as f64,
            gradients: random(5) as f64,
            optimizer_share: random(4) as f64,
            caches: random(4) as f64,
            kept: random(20) as f64,
            held: random(10) as f64,
        }
    }

    fn most(pipe: &Pipe, need: &LayerNeed, layers: &[u64]) -> f64 {
        layers.iter().zip(&pipe.in_flight).map(|(n, f)| need.of_stage(*n, *f).total()).fold(0.0, f64::max)
    }

    /// No cut says more than the fullest stage of the best division holds; the largest mostly says nearly as much, and more than the shares that are best for
    /// the layer itself where its stages could be cut anywhere.
    #[test]
    fn cuts_against_divisions() {
        let mut random = random(5);
        let (mut fit, mut cut_off, mut near) = (0, 0, 0);
        for _ in 0..300 {
            let layers = 2 + random(40);
            let pp = 2 + random(layers.min(12) - 1);
            let pipe = Pipe::new(Pipeline::OneForwardOneBackward, layers, pp, (1 + random(20)) as f64);
            let longest = pipe.shortest() + random(pipe.longest() - pipe.shortest() + 1);
            let cuts = pipe.cuts(longest);
            for _ in 0..20 {
                let (weights, kept) = ((1 + random(1000)) as f64, random(300) as f64);
                let need = LayerNeed { weights, kept, ..LayerNeed::default() };
                let least = pipe.fullest(&need, longest).total();
                let most = cuts.iter().map(|(a, b)| a * weights + b * kept).fold(0.0, f64::max);
                assert!(most <= least * (1.0 + 1e-8), "{pipe:?} {longest} {need:?}: {most} of {least}");
                fit += 1;
                near += usize::from(most >= 0.9 * least);
                // What the shares for the least layer say is less.
                let (a, b) = pipe.shares(&need, longest);
                cut_off += usize::from(most > (a * weights + b * kept) * (1.0 + 1e-9));
            }
        }
        assert!(near * 2 > fit && cut_off * 2 > fit, "{near} near and {cut_off} beyond the shares of {fit}");
    }

    /// Least longest stage, fullest stage of its division, and the linear bound, against all divisions; what fits and what
    /// does not alike.
    #[test]
    fn divisions_against_brute_force() {
        let mut random = random(3);
        let (mut fitting, mut uneven, mut short) = (0, 0, 0);
        for case in 0..3000 {
            let layers = 1 + random(9);
            let pp = 1 + random(layers.min(5));
            let pipe = Pipe::new(Pipeline::OneForwardOneBackward, layers, pp, 1.0 + random(8) as f64);
            let (need, other) = (need(&mut random), need(&mut random));
            let all = divisions(layers, pp as usize);
            for longest in pipe.shortest()..=pipe.longest() {
                let found = pipe.divide(&need, longest);
                assert!(all.contains(&found) && found.iter().all(|n| *n <= longest), "{case}: {found:?} of {layers}");
                let allowed = all.iter().filter(|d| d.iter().all(|n| *n <= longest));
                let least = allowed.map(|d| most(&pipe, &need, d)).fold(f64::INFINITY, f64::min);
                assert_eq!(most(&pipe, &need, &found), least, "{case}: {found:?}, at most {longest}");
                assert_eq!(pipe.fullest(&need, longest).total(), least);
            }
            for longest in pipe.shortest()..=pipe.longest() {
                let (of_layer, kept) = pipe.shares(&need, longest);
                let allowed = || all.iter().filter(|d| d.iter().all(|n| *n <= longest));
                for (need, own) in [(need, true), (other, false)] {
                    let whole = need.weights * (1.0 + need.optimizer_share) + need.gradients + need.caches;
                    let bound = of_layer * whole + kept * need.kept + need.held;
                    let least = allowed().map(|d| most(&pipe, &need, d)).fold(f64::INFINITY, f64::min);
                    assert!(bound <= least * (1.0 + 1e-12), "{case}: {bound} {least}");
                    // Where there is no choice it is what the first stage holds.
                    let forced = own && layers == pp * longest && whole + need.kept > 0.0;
                    assert!(!forced || bound >= least * (1.0 - 1e-12), "{case}: {bound} {least}");
                }
            }
            let tightest = all.iter().map(|d| most(&pipe, &need, d)).fold(f64::INFINITY, f64::min);
            let capacity = (tightest * (0.8 + random(50) as f64 / 100.0)).floor();
            let fits = all.iter().filter(|d| most(&pipe, &need, d) <= capacity);
            let least = fits.filter_map(|d| d.iter().max()).min().copied();
            assert_eq!(pipe.least_longest(&need, capacity), least, "{case}: {pipe:?} {need:?} {capacity}");
            fitting += usize::from(least.is_some());
            uneven += usize::from(least.is_some_and(|m| m > pipe.shortest()));
            short += usize::from(least.is_none());
        }
        assert!(fitting > 500 && uneven > 50 && short > 500, "{fitting} {uneven} {short}");
    }

    /// By hand: 10 layers in 4 stages, 8 microbatches, 1 byte a layer and 1 kept: n layers on stage s hold n (1 + f) - 1 with
    /// f = 4, 3, 2, 1. Three layers a stage and two fewer: both from the first (14 -> 9 -> ...; the next fullest has 11, then
    /// 8): first 14 -> 9, then the second 11 -> 7. So 2, 2, 3, 3 hold 9, 7, 8, 5.
    #[test]
    fn the_first_stages_give_up_layers() {
        let pipe = Pipe::new(Pipeline::OneForwardOneBackward, 10, 4, 8.0);
        let need = LayerNeed { weights: 1.0, kept: 1.0, ..LayerNeed::default() };
        assert_eq!(pipe.divide(&need, 3), [2, 2, 3, 3]);
        assert_eq!(pipe.fullest(&need, 3).total(), 9.0);
        // With 8 bytes the first stage has one layer (4), the others 2 (7), 3 (8), and the last 4 (7).
        assert_eq!(pipe.least_longest(&need, 8.0), Some(4));
        assert_eq!(pipe.divide(&need, 4), [1, 2, 3, 4]);
        // With 7 bytes 1 + 2 + 2 + 4 are too few.
        assert_eq!(pipe.least_longest(&need, 7.0), None);
    }
}
