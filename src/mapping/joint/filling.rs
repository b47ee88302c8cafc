//! What launches, and the filling and draining of pipelines of tiles, cost at least beside the pace of the partitions.
//!
//! The sum of weights ([`super::separable`]) bounds the pace of all partitions together, T, and knows nothing of how the kernels are divided. A partition P costs a
//! launch and its pace, and lag_P times its pace again. Let t be the least lag of a plan's partitions. Then, pace_P being at least what it is in a fusion
//! problem that is no harder than that of any sharding ([`super::relaxed`]), and at least the weighted sum of its own kernels ([`super::separable`]),
//!
//! ```text
//! sum over P of (launch + lag_P pace_P)  >=  t T + sum over P of (launch + (lag_P - t) least pace_P)
//! ```
//!
//! and the least of the last sum over all plans whose partitions lag by t or more, and one of them by no more, is a shortest path. Kernels that nothing waits
//! for are left out of it: they add nothing where they share a partition, and where they have one of their own t is zero and there is a launch more. So few
//! partitions fill long, many are launched often, and a plan that has its time where nothing fills pays for the partition that does not.

use super::super::instance::Instance;
use super::super::relaxed::{Way, Ways, ways};
use crate::deadline::Deadline;

/// Most lags that are told apart.
const MOST_LAGS: usize = 48;

/// Most partitions of a problem that is asked again for smaller sets.
const FEW_WAYS: usize = 4_000;

/// The least of launches and filling.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Filling {
    /// For each lag that all partitions have at least.
    least: Vec<(f64, f64)>,
    /// Whether it is soon found for a smaller set.
    pub(super) is_quick: bool,
}

impl Filling {
    /// Of a fusion problem that is no harder than others, and the least pace in seconds of a partition of given kernels. `None` where it is too wide to say.
    pub(super) fn of(instance: &Instance, pace: &dyn Fn(u128) -> f64, deadline: Deadline) -> Option<Self> {
        if instance.kernel_by_kernel {
            return None;
        }
        let of_part = |(part, kernels): (Instance, Vec<usize>)| {
            let mut all = ways(&part, deadline)?;
            if all.ends.len() <= FEW_WAYS && kernels.last().is_none_or(|k| *k < 128) {
                for way in &mut all.ends {
                    let set = kernels.iter().enumerate().filter(|(i, _)| way.kernels & (1 << i) != 0);
                    way.pace = way.pace.max(pace(set.fold(0, |all, (_, k)| all | (1 << k))));
                }
            }
            Some(all)
        };
        let all: Option<Vec<Ways>> = instance.passes_and_kernels().into_iter().map(of_part).collect();
        let all = all?;
        let launch = instance.partition_overhead_s;
        let mut lags: Vec<f64> = all.iter().flat_map(|ways| ways.ends.iter().map(|way| way.lag)).collect();
        lags.push(0.0);
        lags.sort_unstable_by(f64::total_cmp);
        lags.dedup();
        let levels: Vec<f64> = lags.iter().copied().step_by(lags.len().div_ceil(MOST_LAGS)).collect();
        let of = |(i, level): (usize, &f64)| {
            let next = levels.get(i + 1).copied().unwrap_or(f64::INFINITY);
            let start = Paths { longer: 0.0, with_least: f64::INFINITY };
            let both = all.iter().fold(start, |sum, ways| sum.then(&paths(ways, (*level, next), launch)));
            // Or a partition of those that nothing waits for.
            let apart = if *level <= 0.0 { both.longer + launch } else { f64::INFINITY };
            (*level, both.with_least.min(apart))
        };
        let least = levels.iter().enumerate().map(of).filter(|(_, path)| path.is_finite()).collect();
        let is_quick = all.iter().map(|ways| ways.ends.len()).sum::<usize>() <= FEW_WAYS;
        Some(Self { least, is_quick })
    }

    /// Where there is no plan.
    pub(super) fn of_no_plan() -> Self {
        Self { least: Vec::new(), is_quick: true }
    }

    /// The least seconds of launches and filling where the partitions have so many seconds of pace together.
    pub(super) fn least(&self, pace: f64) -> f64 {
        self.least.iter().map(|(lag, path)| lag * pace + path).fold(f64::INFINITY, f64::min)
    }
}

/// The least of launches and of what fills beyond a level, over partitions that lag by as much or more.
#[derive(Debug, Clone, Copy)]
struct Paths {
    /// All of them by as much as the next level.
    longer: f64,
    /// Some by less.
    with_least: f64,
}

impl Paths {
    /// One after the other.
    fn then(&self, next: &Self) -> Self {
        let some = self.with_least.min(self.longer) + next.with_least;
        Self { longer: self.longer + next.longer, with_least: some.min(self.with_least + next.longer) }
    }

    fn least(&self, other: &Self) -> Self {
        Self { longer: self.longer.min(other.longer), with_least: self.with_least.min(other.with_least) }
    }
}

/// Over all partitions that lag by at least `level`.
fn paths(ways: &Ways, (level, next): (f64, f64), launch: f64) -> Paths {
    let n = ways.first.len() - 1;
    let nothing = Paths { longer: f64::INFINITY, with_least: f64::INFINITY };
    if n == 0 {
        // Kernels that nothing waits for alone.
        let with_least = if level <= 0.0 { launch } else { f64::INFINITY };
        return Paths { with_least, ..nothing };
    }
    let mut best = vec![nothing; n];
    best[0] = Paths { longer: 0.0, with_least: f64::INFINITY };
    for i in 0..n {
        for Way { to, lag, pace, .. } in &ways.ends[ways.first[i]..ways.first[i + 1]] {
            if *lag < level {
                continue;
            }
            let cost = launch + (lag - level) * pace;
            let own = match *lag < next {
                true => Paths { longer: f64::INFINITY, with_least: cost },
                false => Paths { longer: cost, with_least: f64::INFINITY },
            };
            best[*to] = best[*to].least(&best[i].then(&own));
        }
    }
    best.last().copied().unwrap_or(nothing)
}
