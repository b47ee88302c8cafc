//! A sharding tried: every division into stages, tile count and place of the weights that can still win; and all shardings of an
//! assignment tried so, as far as they may beat the best plan found ([`super::joint`]).

use super::degrees::Degrees;
use super::dominance::dominates;
use super::first_pass::Tried;
use super::ideals::Ideals;
use super::instance::Instance;
use super::joint::{self, Context, Ended};
use super::partitions::Fused;
use super::record::SolveRecord;
use super::request::{LeftOpen, MapError};
use super::search::{Best, Candidate, Found, Search, TIE};
use super::sharding::{self, Sharding};
use super::tiling::{self, tile_counts};
use crate::model::Strategy;
use std::sync::Arc;

/// Lengths of the longest stage that the joint search bounds one by one; all that are longer have one bound.
const TOLD_APART: usize = 4;

/// A sharding of an assignment, with what the first pass's objective says of it: infinite where its strategies do not agree.
pub(super) fn evaluated(tried: &Tried, strategies: &[Strategy]) -> Sharding {
    let at = |k: usize| tried.pass.problem.open[k].iter().position(|s| *s == strategies[k]).unwrap_or(0);
    let choice: Vec<usize> = (0..strategies.len()).map(at).collect();
    let objective = sharding::price(&tried.pass.problem, &choice);
    let record = SolveRecord { objective, ..tried.pass.sharding.record.clone() };
    Sharding { strategies: strategies.to_vec(), record }
}

impl Search<'_> {
    /// Solves a sharding (at every tile count, or each of some, descending) with every division into stages that can still win: from the one with the shortest longest stage on,
    /// for as long as tensors that wait lack the room that a longer one would leave them.
    pub(super) fn try_sharding(
        &self,
        candidate: &Candidate,
        (sharding, some): (&Sharding, Option<&[u64]>),
        best: &mut Option<Best>,
        ideals: &mut Option<Ideals>,
        found: &mut Found,
    ) -> Result<(), MapError> {
        if self.workload.is_chain() {
            return self.try_chain(candidate, sharding, best, found);
        }
        let degrees = &candidate.degrees;
        let capacity = self.dram_capacity();
        let (pipe, need) = (self.pipe(degrees), self.layer_need(degrees, &sharding.strategies));
        let Some(least) = pipe.least_longest(&need, capacity) else {
            found.reasons.push(self.dram_short(degrees, pipe.fullest(&need, pipe.longest()).total(), capacity));
            return Ok(());
        };
        for longest in least..=pipe.longest() {
            let live_limit = capacity - pipe.fullest(&need, longest).total();
            let division = (longest, live_limit);
            if !self.try_division(candidate, (sharding, some), division, best, ideals, found)? || self.out_of_time() {
                break;
            }
        }
        Ok(())
    }

    /// Solves every tile count of a sharding that can still win, where the longest stage has `longest` layers and leaves
    /// `live_limit` bytes to tensors that wait. Tells whether more room could give a better plan.
    fn try_division(
        &self,
        Candidate { degrees, of, bound: least }: &Candidate,
        (sharding, some): (&Sharding, Option<&[u64]>),
        (longest, live_limit): (u64, f64),
        best: &mut Option<Best>,
        ideals: &mut Option<Ideals>,
        found: &mut Found,
    ) -> Result<bool, MapError> {
        let at = (degrees, longest);
        let mut lacks_room = false;
        let counts = match (some, self.request.tiles) {
            (Some(some), _) => some.to_vec(),
            (None, Some(tiles)) => vec![tiles],
            (None, None) => tile_counts(self.workload, self.system),
        };
        if self.try_alone((at, *of), sharding, (&counts, live_limit), best, found) {
            return Ok(false);
        }
        let mut tried: Vec<Arc<Instance>> = Vec::new();
        // Tile counts of those tried that make smaller ones needless.
        let mut whole: Vec<(u64, bool)> = Vec::new();
        let is_whole = |tiles| tiling::is_whole(self.workload, self.system, degrees.tp, &sharding.strategies, tiles);
        let modes: &[bool] = if self.keeps_weights { &[true, false] } else { &[false] };
        let any = self.request.any;
        for (tiles, weights_on_chip) in counts.into_iter().flat_map(|t| modes.iter().map(move |m| (t, *m))) {
            let layout = (tiles, weights_on_chip);
            if any && best.is_some() {
                return Ok(false);
            }
            if self.out_of_time() {
                // Nothing is known of the tile counts that are left: of large graphs it takes long to build one.
                found.stop(LeftOpen::out_of_time(), *least);
                return Ok(false);
            }
            // What `dominates` would find, without building it.
            if whole.iter().any(|(more, mode)| *mode == weights_on_chip && *more >= tiles) {
                continue;
            }
            let instance = match self.instance(at, &sharding.strategies, layout, live_limit) {
                Ok(instance) => Arc::new(instance),
                // Streaming the weights needs less SRAM; its own turn says what is short.
                Err(_) if weights_on_chip => continue,
                Err(short) => {
                    found.reasons.push(self.sram_short(degrees, short, tiles));
                    continue;
                }
            };
            if tried.iter().any(|other| dominates(other, &instance)) {
                continue;
            }
            let incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
            let bound = self.total(at, &sharding.strategies, &instance.goal, instance.least_value());
            if bound >= incumbent * (1.0 - TIE) {
                whole.extend(is_whole(tiles).then_some(layout));
                tried.push(instance);
                continue;
            }
            if self.out_of_time() {
                found.stop(LeftOpen::out_of_time(), bound);
                continue;
            }
            found.solved += 1;
            lacks_room |= instance.waits_at_most() > live_limit;
            let cutoff = self.layer_cutoff(at, &sharding.strategies, &instance, incumbent);
            let Some(Fused { layer, assignment, proven, bound: layer_bound, relaxed }) =
                self.solve_fusion(&instance, cutoff, ideals, &mut found.memory)?
            else {
                if self.out_of_time() {
                    // Stopped: nothing is known of the plans of this one.
                    found.stop(LeftOpen::out_of_time(), bound);
                    continue;
                }
                if incumbent.is_finite() {
                    // A part of a wide graph's ideals says nothing of the others.
                    if ideals.as_ref().is_none_or(|found| !found.complete) {
                        found.unproven = found.unproven.min(bound);
                    }
                    whole.extend(is_whole(tiles).then_some(layout));
                    tried.push(instance);
                    continue;
                }
                if weights_on_chip {
                    continue;
                }
                found.reasons.push(self.partition_short(degrees, &instance, tiles, self.dram_capacity()));
                continue;
            };
            let objective = self.total(at, &sharding.strategies, &instance.goal, layer);
            if !proven {
                let bound = bound.max(self.total(at, &sharding.strategies, &instance.goal, layer_bound));
                found.unproven = found.unproven.min(bound);
                if self.out_of_time() {
                    // The seconds may have ended it.
                    found.stop(LeftOpen::out_of_time(), bound);
                }
            }
            if objective < incumbent * (1.0 - TIE) {
                *best = Some(Best {
                    degrees: degrees.clone(),
                    sharding: sharding.clone(),
                    tiles,
                    weights_on_chip,
                    longest,
                    instance: instance.clone(),
                    assignment,
                    layer,
                    proven,
                    bound: layer_bound,
                    relaxed,
                    objective,
                    of: *of,
                    parts: Vec::new(),
                    stages: Vec::new(),
                });
            }
            whole.extend(is_whole(tiles).then_some(layout));
            tried.push(instance);
        }
        Ok(lacks_room)
    }

    /// Whether some division into stages has room in the DRAM for the sharding of an assignment's first pass.
    pub(super) fn has_room(&self, tried: &Tried) -> bool {
        let degrees = &tried.candidate.degrees;
        let need = self.layer_need(degrees, &tried.pass.sharding.strategies);
        self.pipe(degrees).least_longest(&need, self.dram_capacity()).is_some()
    }

    /// Every other sharding of an assignment that may beat the best plan found ([`joint`]); or those alone that are likeliest to fit the
    /// DRAM.
    pub(super) fn try_all_shardings(
        &self,
        (tried, only_starts): (&Tried, bool),
        best: &mut Option<Best>,
        ideals: &mut Option<Ideals>,
        found: &mut Found,
    ) -> Result<(), MapError> {
        if self.workload.is_chain() {
            return match only_starts {
                true => self.look_at_shardings_of_blocks(tried, best, found),
                false => self.try_all_shardings_of_blocks(tried, best, found),
            };
        }
        let candidate = &tried.candidate;
        let pipe = self.pipe(&candidate.degrees);
        // Stages as equal as can be take least time and most memory. Told apart by their longest stage, divisions have bounds that
        // see both.
        let (least, most) = (pipe.shortest(), pipe.longest());
        let alone = (least..=most).take(TOLD_APART).map(|longest| (longest, longest));
        let others = least.saturating_add(TOLD_APART as u64);
        for longest in alone.chain((others <= most).then_some((others, most))) {
            if self.out_of_time() {
                // Its bounds alone take a while to build, and there may be thousands of assignments.
                found.stop(LeftOpen::out_of_time(), candidate.bound);
                return Ok(());
            }
            let Some(joint) = joint::Joint::new(self, &candidate.degrees, longest) else { continue };
            let mut nodes_left = self.request.joint_nodes.saturating_sub(found.joint_nodes);
            let taken = found.joint_nodes.saturating_sub(self.request.joint_nodes);
            let mut more = self.request.more_sets().saturating_sub(taken);
            let before = nodes_left + more;
            let start = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
            let mut evaluate = |strategies: &[Strategy], tiles: &[u64], ideals: &mut Option<Ideals>| {
                let sharding = evaluated(tried, strategies);
                self.try_sharding(candidate, (&sharding, Some(tiles)), best, ideals, found)?;
                Ok(best.as_ref().map_or(f64::INFINITY, |b| b.objective))
            };
            let mut context = Context { ideals, nodes_left: &mut nodes_left, more: &mut more, gap: f64::INFINITY };
            if only_starts {
                joint.start(&mut context, &mut evaluate)?;
                continue;
            }
            let ended = joint.run(&mut context, tried.pass.sharding.strategies.clone(), &mut evaluate, start)?;
            found.joint_nodes += before - nodes_left - more;
            match ended {
                Ended::Closed => {}
                Ended::Near(bound) => found.unproven = found.unproven.min(bound),
                Ended::Stopped(bound) => {
                    let left = match () {
                        () if self.out_of_time() => LeftOpen::out_of_time(),
                        () if nodes_left == 0 => LeftOpen::Sets,
                        () => LeftOpen::TooLarge,
                    };
                    // What was stopped before it had a bound has that of its assignment.
                    found.stop(left, bound.max(candidate.bound));
                }
            }
        }
        Ok(())
    }

    /// The largest sum over the partitions with which the objective may still be below `incumbent`; infinite where that
    /// cannot be said. The objective is affine in that sum, from its least value on at the latest.
    fn layer_cutoff(&self, at: (&Degrees, u64), sharding: &[Strategy], instance: &Instance, incumbent: f64) -> f64 {
        if incumbent.is_infinite() {
            return f64::INFINITY;
        }
        let total = |layer: f64| self.total(at, sharding, &instance.goal, layer);
        let least = instance.least_value();
        let (at, twice) = (total(least), total(2.0 * least));
        let slope = (twice - at) / least;
        let cutoff = (least + (incumbent - at) / slope) * (1.0 + TIE);
        // What is affine only beyond a kink is caught by the look back.
        if cutoff.is_finite() && total(cutoff) >= incumbent * (1.0 - TIE) { cutoff } else { f64::INFINITY }
    }
}
