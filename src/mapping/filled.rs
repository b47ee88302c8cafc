//! What filling and draining of pipelines of tiles add to a plan whose time does not count them ([`crate::system::ModelOptions::pipeline_filling`]).
//!
//! Where they are not counted a tile count costs nothing, and the fewest tiles are taken. So a plan's sharding and partitions are asked at the tile count that is best with
//! them. Other shardings and partitions may be better still: what comes out can be reached, and is no bound.

use super::tiling::tile_counts;
use crate::check;
use crate::plan::{Decisions, Plan};

/// Most tile counts that are asked for.
const MOST_COUNTS: usize = 64;

/// An iteration with filling and draining.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WithFilling {
    /// What it takes.
    pub seconds: f64,
    /// What is longer, as a share of the time without.
    pub share: f64,
}

impl WithFilling {
    pub(super) fn of(seconds: f64, without: f64) -> Self {
        Self { seconds, share: seconds / without - 1.0 }
    }
}

/// An iteration of a plan's sharding and partitions with filling and draining; `None` where the plan's figures count them, and where its chip pipelines no tiles.
pub fn iteration(plan: &Plan) -> Option<WithFilling> {
    let system = plan.system.with_filling()?;
    let seconds =
        least(plan, |decisions| Some(check::derive(&plan.workload, &system, &decisions).ok()?.iteration_s()))?;
    Some(WithFilling::of(seconds, plan.figures.iteration_s()))
}

/// The least of what the decisions of a plan take at any tile count.
pub(super) fn least(plan: &Plan, of: impl Fn(Decisions) -> Option<f64>) -> Option<f64> {
    let all = tile_counts(&plan.workload, &plan.system);
    let some = all.iter().step_by(all.len().div_ceil(MOST_COUNTS).max(1)).copied();
    let each = some.chain([plan.decisions.tiles]).map(|tiles| Decisions { tiles, ..plan.decisions.clone() });
    each.filter_map(of).min_by(f64::total_cmp)
}
