//! Chips that run kernel by kernel: every kernel is a partition of its own, and the order of the kernels changes no time. So
//! the partitions need no search, and a tile count is priced without building its instance.

use super::amounts::{Amounts, Choice};
use super::degrees::Degrees;
use super::instance::{CAPACITY_TOLERANCE, Goal, Instance, PartitionCost};
use super::request::LeftOpen;
use super::search::{Best, Found, Search, TIE};
use super::sharding::Sharding;
use super::tiling;
use crate::system::Style;
use std::sync::Arc;

/// The partition of each kernel where kernels run one by one in the written order, forward kernels first.
pub(super) fn in_turn(instance: &Instance) -> Vec<usize> {
    let mut order: Vec<usize> = (0..instance.kernels.len()).collect();
    order.sort_by_key(|k| (instance.kernels[*k].backward, *k));
    let mut partition = vec![0; order.len()];
    for (position, k) in order.into_iter().enumerate() {
        partition[k] = position;
    }
    partition
}

/// The partitions of a cut whose kernels run one by one.
#[derive(Debug, Clone)]
pub(super) struct Alone {
    /// Partition of each kernel.
    partition: Vec<usize>,
    /// What each partition costs on links and a memory that take no time.
    costs: Vec<PartitionCost>,
    /// Most DRAM bytes that wait.
    live_bytes: f64,
}

impl Alone {
    /// Of an instance whose links and memory take no time and whose DRAM has no end; `None` on chips of another style, or
    /// where a kernel does not fit.
    pub(super) fn of(instance: &Instance) -> Option<Self> {
        if !instance.kernel_by_kernel {
            return None;
        }
        let partition = in_turn(instance);
        let (_, costs) = instance.evaluate(&partition)?;
        let live_bytes = costs.iter().map(|cost| cost.live_bytes).fold(0.0, f64::max);
        Some(Self { partition, costs, live_bytes })
    }
}

/// A tile count that may win.
struct Lead {
    tiles: u64,
    layer: f64,
    objective: f64,
}

impl Search<'_> {
    /// Tries tile counts of a sharding as [`Search::try_division`] does, on a chip that runs kernel by kernel, at degrees and layers of
    /// the longest stage, with `room` bytes of DRAM for what waits. `false`, and nothing done, where the partitions are not those of [`in_turn`].
    pub(super) fn try_alone(
        &self,
        (at, of): ((&Degrees, u64), usize),
        sharding: &Sharding,
        (counts, room): (&[u64], f64),
        best: &mut Option<Best>,
        found: &mut Found,
    ) -> bool {
        let asked = self.request.max_partitions.is_some() || self.pins_partition.iter().any(Option::is_some);
        if self.system.chip.0.style != Style::KernelByKernel || asked {
            return false;
        }
        let strategies = &sharding.strategies;
        let (degrees, longest) = at;
        let mut incumbent = best.as_ref().map_or(f64::INFINITY, |b| b.objective);
        let mut lead: Option<(Lead, Arc<Amounts>)> = None;
        let mut short = Vec::new();
        // Tile counts that make smaller ones needless.
        let mut whole: Vec<u64> = Vec::new();
        let mut solved = 0;
        for &tiles in counts {
            if whole.iter().any(|more| *more >= tiles) {
                continue;
            }
            if self.out_of_time() {
                // A plan that it has is kept; of the counts that are left nothing is known.
                found.stop(LeftOpen::out_of_time(), self.assignment_bound(degrees));
                break;
            }
            let amounts =
                match self.amounts(Choice { degrees, sharding: strategies, tiles, weights_on_chip: false, longest }) {
                    Ok(amounts) => amounts,
                    Err(lack) => {
                        short.push((lack, tiles));
                        continue;
                    }
                };
            let Some(alone) = &amounts.alone else { return false };
            if alone.live_bytes > room * (1.0 + CAPACITY_TOLERANCE) {
                return false;
            }
            solved += 1;
            let goal = self.goal(degrees, strategies, tiles, longest);
            let layer = self.value_alone(&amounts, alone, degrees, &goal);
            let objective = self.total(at, strategies, &goal, layer);
            if objective < incumbent * (1.0 - TIE) {
                incumbent = objective;
                lead = Some((Lead { tiles, layer, objective }, amounts));
            }
            whole.extend(tiling::is_whole(self.workload, self.system, degrees.tp, strategies, tiles).then_some(tiles));
        }
        found.solved += solved;
        for (lack, tiles) in short {
            found.reasons.push(self.sram_short(degrees, lack, tiles));
        }
        if let Some((Lead { tiles, layer, objective }, amounts)) = lead
            && let Some(alone) = &amounts.alone
            && let Ok(instance) = self.instance(at, strategies, (tiles, false), room)
        {
            *best = Some(Best {
                degrees: degrees.clone(),
                sharding: sharding.clone(),
                tiles,
                weights_on_chip: false,
                longest,
                instance: Arc::new(instance),
                assignment: alone.partition.clone(),
                layer,
                proven: true,
                bound: layer,
                relaxed: false,
                objective,
                of,
                parts: Vec::new(),
                stages: Vec::new(),
            });
        }
        true
    }

    /// The value of the partitions: what [`Instance::evaluate`] says of the priced instance, in the same order of sums.
    fn value_alone(&self, amounts: &Amounts, alone: &Alone, degrees: &Degrees, goal: &Goal) -> f64 {
        let bandwidth = self.rate.dram_bytes_per_s;
        let overlap = self.system.overlap();
        let mut costs = alone.costs.clone();
        for (payer, seconds) in amounts.network_seconds(self.workload, degrees, &self.system.model) {
            costs[alone.partition[payer]].network_s += seconds;
        }
        for (k, seconds) in amounts.setup_seconds(self.workload, bandwidth).enumerate() {
            costs[alone.partition[k]].serial_s += seconds;
        }
        let values = costs.iter_mut().map(|cost| {
            cost.dram_s = cost.dram_bytes / bandwidth;
            goal.value(cost.time_s(overlap), cost.compute_s, cost.dram_bytes)
        });
        values.sum()
    }
}
