//! Bounds of sets of shardings on chips that run kernel by kernel: their optimum ([`super::alone`]), as far as one tile count is
//! best for all kernels and the DRAM holds it. Where it is not, the tile counts are told apart; where it does not, sets are
//! split by what they hold.

use super::super::request::MapError;
use super::super::search::TIE;
use super::super::sharding::Problem;
use super::alone::Alone;
use super::relaxed::Relaxation;
use super::{Bounds, Context, Set};
use crate::model::Strategy;

/// The bounds of one assignment.
pub struct KernelByKernel {
    alone: Alone,
}

impl KernelByKernel {
    /// For the shardings of `base`. `None` as for [`Alone::new`].
    pub fn new(relaxation: &Relaxation<'_>, base: &Problem, tiles: &[u64]) -> Option<Self> {
        let mut alone = Alone::new(relaxation, base, tiles)?;
        alone.tune(&base.open);
        Some(Self { alone })
    }
}

impl Bounds for KernelByKernel {
    fn is_out_of_reach(&self, _: &Context<'_>) -> bool {
        false
    }

    fn bound(&self, set: &mut Set, best: f64, _: &mut Context<'_>) -> Result<Option<(f64, Vec<Strategy>)>, MapError> {
        if self.alone.holds_too_much(&set.open) {
            return Ok(None);
        }
        Ok(self.alone.least(&set.open, &set.tiles).filter(|(bound, _)| *bound < best * (1.0 - TIE)))
    }

    fn children(&self, set: &Set, _: &[Strategy], _: f64, _: &mut Context<'_>) -> Result<Vec<Set>, MapError> {
        if set.tiles.len() > 1 {
            return Ok(set.split_tiles());
        }
        Ok(self.alone.split(&set.open).map_or(Vec::new(), |k| set.split(k)))
    }

    /// Its least sum is what it takes.
    fn may_win(&self, _: &[Strategy], _: &[usize], _: f64, _: &mut Context<'_>) -> Result<bool, MapError> {
        Ok(true)
    }
}
