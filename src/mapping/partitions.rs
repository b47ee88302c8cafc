//! The best partitions of one fusion problem, by the engine that its graph needs.

use super::alone;
use super::cache;
use super::dominance::{dominates, same_costs};
use super::exact;
use super::ideals::{Ideals, MAX_IDEALS};
use super::instance::Instance;
use super::request::MapError;
use super::search::{Best, Search, TIE};
use super::tiling::{self, tile_counts};
use super::wide;
use std::sync::Arc;

/// The answer to one fusion problem.
#[derive(Debug, Clone)]
pub(super) struct Fused {
    /// Value of the partitions.
    pub(super) layer: f64,
    /// Partition of each kernel.
    pub(super) assignment: Vec<usize>,
    /// Whether none is better.
    pub(super) proven: bool,
    /// None has a smaller value.
    pub(super) bound: f64,
    /// Whether that follows from a relaxation.
    pub(super) relaxed: bool,
}

impl Search<'_> {
    /// The best partitions of an instance: objective, assignment, and whether they are proven best. Plans that take
    /// longer than `cutoff` need not be found.
    pub(super) fn solve_fusion(
        &self,
        instance: &Instance,
        cutoff: f64,
        ideals: &mut Option<Ideals>,
        memory: &mut wide::Memory,
    ) -> Result<Option<Fused>, MapError> {
        let n = instance.kernels.len();
        let fused = |layer: f64, assignment: Vec<usize>, proven: bool| Fused {
            bound: if proven { layer } else { instance.least_value().min(layer) },
            layer,
            assignment,
            proven,
            relaxed: false,
        };
        if instance.kernel_by_kernel || self.request.any {
            // The order changes no time. The written one, forward kernels first, is best unless pins or the DRAM ask for
            // another, which the shortest path finds.
            let alone = alone::in_turn(instance);
            if let Some((objective, _)) = instance.evaluate(&alone) {
                return Ok(Some(fused(objective, alone, instance.kernel_by_kernel)));
            }
        }
        let limited = instance.pins.iter().any(Option::is_some) || instance.max_partitions.is_some();
        let of_wide = |memory: &mut wide::Memory| {
            wide::solve(instance, cutoff, memory, self.clock).map(|found| Fused {
                proven: found.objective - found.bound <= TIE * found.objective.abs(),
                layer: found.objective,
                assignment: found.assignment,
                bound: found.bound,
                relaxed: found.relaxed > 0,
            })
        };
        if n > 128 {
            return match if limited { None } else { of_wide(memory) } {
                Some(found) => Ok(Some(found)),
                None => match exact::by_order(instance, self.clock) {
                    Some(path) => Ok(Some(fused(path.objective, path.assignment, path.proven && !limited))),
                    None if limited && cutoff.is_infinite() => Err(self.not_found(n)),
                    None => Ok(None),
                },
            };
        }
        let found = match ideals {
            Some(found) => found,
            None => {
                let list = || Ideals::of(instance, MAX_IDEALS);
                // The shelf is the whole workload's, a chain's problem one of its blocks'.
                let listed = if self.workload.is_chain() { list() } else { self.shelf.ideals(list) };
                let Some(found) = listed else { return Ok(None) };
                ideals.insert(found)
            }
        };
        let solve =
            |cutoff| cache::fusion(instance, cutoff, || exact::solve_until(instance, found, cutoff, self.clock));
        if found.complete || limited {
            return match solve(if limited { f64::INFINITY } else { cutoff }) {
                Some(path) => Ok(Some(fused(path.objective, path.assignment, path.proven))),
                None if found.complete => Ok(None),
                // One order of a wide graph says nothing of the others: the MILP decides.
                None => match self.find_by_milp(instance) {
                    Ok(found) => Ok(found.map(|(layer, assignment, proven)| fused(layer, assignment, proven))),
                    // There is a plan already, and the ideals, of which not all are known, say that this proves nothing.
                    Err(MapError::Request(_)) if cutoff.is_finite() => Ok(None),
                    Err(error) => Err(error),
                },
            };
        }
        let wide = of_wide(memory);
        let least = wide.as_ref().map_or(cutoff, |wide| wide.layer.min(cutoff));
        if wide.as_ref().is_some_and(|wide| wide.proven || wide.bound >= least * (1.0 - TIE)) {
            return Ok(wide);
        }
        // A part of the ideals proves nothing; its plan may be the better one.
        Ok(match (solve(least), wide) {
            (Some(path), Some(wide)) if path.objective < wide.layer => Some(Fused {
                proven: path.objective - wide.bound <= TIE * path.objective.abs(),
                layer: path.objective,
                assignment: path.assignment,
                ..wide
            }),
            (Some(path), None) => Some(fused(path.objective, path.assignment, false)),
            (_, wide) => wide,
        })
    }

    /// Lowers the tile count to the smallest at which the plan costs the same and still fits.
    pub(super) fn smallest_tiles(&self, best: &mut Best) {
        if self.request.tiles.is_some() || self.request.any || self.out_of_time() {
            return;
        }
        if self.workload.is_chain() {
            return self.smallest_tiles_of_chain(best);
        }
        let mut counts = tile_counts(self.workload, self.system);
        counts.reverse();
        counts.retain(|t| *t < best.tiles);
        let limit = best.instance.live_limit;
        let as_good = |tiles: u64| {
            if self.out_of_time() {
                return None;
            }
            let layout = (tiles, best.weights_on_chip);
            let instance =
                self.instance((&best.degrees, best.longest), &best.sharding.strategies, layout, limit).ok()?;
            let same = dominates(&best.instance, &instance) && same_costs(&best.instance, &instance);
            let plan = instance.evaluate(&best.assignment).filter(|(o, _)| same && *o <= best.layer * (1.0 + TIE));
            plan.map(|_| instance)
        };
        let strategies = &best.sharding.strategies;
        let is_whole = |t: &u64| tiling::is_whole(self.workload, self.system, best.degrees.tp, strategies, *t);
        let whole = counts.iter().chain([&best.tiles]).all(is_whole);
        let found = if whole {
            // Fewer tiles only need more SRAM, so that those that are as good are the last ones.
            let at = counts.partition_point(|t| as_good(*t).is_none());
            counts.get(at).and_then(|t| as_good(*t).map(|instance| (*t, instance)))
        } else {
            counts.iter().find_map(|t| as_good(*t).map(|instance| (*t, instance)))
        };
        if let Some((tiles, instance)) = found {
            best.tiles = tiles;
            best.instance = Arc::new(instance);
        }
    }
}
