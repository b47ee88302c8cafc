//! Tile counts, and the split of a chip's cores among the kernels of a partition.

use crate::model::Strategy;
use crate::model::compute::{CoreOption, Tiling, local};
use crate::model::divisors::divisors;
use crate::system::options::{Layouts, TileCounts};
use crate::system::{Efficiency, System};
use crate::workload::{Axis, Workload};

/// Up to here `any` tries every tile count; above, only divisors.
const MOST_TILE_COUNTS: u64 = 4096;

/// Tile counts worth trying, descending: more tiles need less SRAM. They divide (or, with `any`, do not exceed) the
/// streamed size ([`streamed_size`]). One where kernels choose their tiles by themselves.
pub fn tile_counts(workload: &Workload, system: &System) -> Vec<u64> {
    if system.chip.0.waves().is_some() {
        return vec![1];
    }
    let streamed = streamed_size(workload);
    let mut counts = match system.model.tile_counts {
        TileCounts::Divisors => divisors(streamed),
        TileCounts::Any => {
            let mut counts: Vec<u64> = (1..=streamed.min(MOST_TILE_COUNTS)).collect();
            counts.extend(divisors(streamed).into_iter().filter(|d| *d > MOST_TILE_COUNTS));
            counts
        }
    };
    counts.reverse();
    counts
}

/// Whether so many tiles cut all kernels and tensors of a sharding without a remainder. Then no count has less time or traffic, and
/// fewer tiles only need more SRAM: the count makes all smaller ones needless.
pub fn is_whole(workload: &Workload, system: &System, t: u64, sharding: &[Strategy], tiles: u64) -> bool {
    // A kernel's time is its FLOP at a share of the peak, so that it does not depend on how it is cut.
    let constant = system.chip.0.waves().is_none() && matches!(system.chip.0.efficiency, Efficiency::Constant(_));
    let plain = system.model.layouts == Layouts::Flowspace && constant;
    let tiling = Tiling::new(tiles, &system.model);
    let exact = |size: u64| matches!(tiling.of(size), (tiles, width) if tiles * width == size);
    plain
        && tiles > 0
        && workload.kernels.iter().zip(sharding).all(|(kernel, strategy)| {
            let here = local(kernel, *strategy, t, Tiling::WHOLE);
            let along = if kernel.tiled == Axis::K { here.k } else { here.n };
            exact(along)
        })
        && workload.tensors.iter().all(|tensor| exact(tensor.cols) && exact(tensor.cols.div_ceil(t.max(1))))
}

/// The size most kernels are tiled along, of equally common ones the largest; of a workload on a process grid, whose panels shrink, the
/// largest of all.
pub fn streamed_size(workload: &Workload) -> u64 {
    let mut counts: std::collections::BTreeMap<u64, usize> = std::collections::BTreeMap::new();
    for kernel in &workload.kernels {
        *counts.entry(kernel.shape.along(kernel.tiled)).or_default() += 1;
    }
    let common = |count: usize| if workload.is_spread() { 1 } else { count };
    counts.into_iter().max_by_key(|(size, count)| (common(*count), *size)).map_or(1, |(size, _)| size)
}

/// Seconds of the slowest kernel under the best integer split of `cores`; `None` when there are too few cores to give
/// each kernel one. Zero for no kernels.
pub fn slowest(kernels: &[&[CoreOption]], cores: u64) -> Option<f64> {
    split(kernels, cores).map(|(seconds, _)| seconds)
}

/// The best split: seconds of the slowest kernel, and the option of each.
///
/// The answer is one of the options' times, and whether a time can be met is monotone (give each kernel the fewest cores
/// that meet it), so bisection over the sorted times is exact.
pub fn split(kernels: &[&[CoreOption]], cores: u64) -> Option<(f64, Vec<usize>)> {
    if kernels.is_empty() {
        return Some((0.0, Vec::new()));
    }
    let choose = |limit: f64| -> Option<Vec<usize>> {
        let mut used: u64 = 0;
        let mut chosen = Vec::with_capacity(kernels.len());
        for options in kernels {
            // Ascending in cores, descending in seconds.
            let i = options.partition_point(|o| o.seconds > limit);
            used = used.saturating_add(options.get(i)?.cores);
            if used > cores {
                return None;
            }
            chosen.push(i);
        }
        Some(chosen)
    };
    let mut times: Vec<f64> = kernels.iter().flat_map(|o| o.iter().map(|o| o.seconds)).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.dedup();
    let first = times.partition_point(|t| choose(*t).is_none());
    let seconds = *times.get(first)?;
    choose(seconds).map(|chosen| (seconds, chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &[(u64, f64)]) -> Vec<CoreOption> {
        list.iter()
            .map(|(cores, seconds)| CoreOption { cores: *cores, lanes: *cores, stages: 1, seconds: *seconds })
            .collect()
    }

    /// By hand: two kernels of 6 and 3 core-seconds on 3 cores: 2 + 1 cores make both take 3 s.
    #[test]
    fn splits_cores_by_hand() {
        let a = options(&[(1, 6.0), (2, 3.0), (3, 2.0)]);
        let b = options(&[(1, 3.0), (2, 1.5), (3, 1.0)]);
        assert_eq!(slowest(&[&a, &b], 3), Some(3.0));
        assert_eq!(slowest(&[&a, &b], 4), Some(3.0));
        assert_eq!(slowest(&[&a, &b], 5), Some(2.0));
        assert_eq!(slowest(&[&a, &b], 1), None);
        assert_eq!(slowest(&[], 1), Some(0.0));
    }
}
