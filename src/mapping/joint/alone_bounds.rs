//! Bounds of sets of shardings on chips that run kernel by kernel: their optimum ([`super::alone`]), as far as one tile count is
//! best for all kernels and the DRAM holds it. Where it is not, the tile counts are told apart; where it does not, sets are
//! split by what they hold.

use super::super::request::MapError;
use super::super::search::TIE;
use super::super::sharding::Problem;
use super::alone::{Alone, Priced};
use super::relaxed::Relaxation;
use super::separable::SHARES;
use super::{Bounds, Context, Set, Split};
use crate::model::Strategy;

/// Prices of memory that are tried for all shardings, and for a set of them.
const PRICES: usize = 24;
const MORE_PRICES: usize = 4;

/// The bounds of one assignment.
pub struct KernelByKernel {
    alone: Alone,
    /// All shardings at the price at which their bound is greatest.
    root: Option<Priced>,
    starts: Vec<Vec<Strategy>>,
}

impl KernelByKernel {
    /// For the shardings of `base`. `None` as for [`Alone::new`].
    pub fn new(relaxation: &Relaxation<'_>, base: &Problem, tiles: &[u64]) -> Option<Self> {
        let mut alone = Alone::new(relaxation, base, tiles)?;
        let all: Vec<usize> = (0..tiles.len()).collect();
        let mut root = alone.least_priced(&base.open, &all, (0.0, 0, PRICES), f64::INFINITY);
        alone.hold_more(relaxation);
        for _ in 0..SHARES {
            let Some(found) = root.as_ref().filter(|found| !found.sharding.is_empty()) else { break };
            let (shares, too_much) = alone.fullest(&found.sharding);
            if !too_much || shares == found.shares {
                break;
            }
            let other = alone.least_priced(&base.open, &all, (found.price, shares, PRICES), f64::INFINITY);
            match other {
                Some(other) if other.bound > found.bound => root = Some(other),
                _ => break,
            }
        }
        let with_room = root.as_ref().filter(|root| root.has_room).map(|root| root.sharding.clone());
        let starts = with_room.into_iter().chain(alone.least_memory(&base.open, &all)).collect();
        Some(Self { alone, root, starts })
    }
}

impl Bounds for KernelByKernel {
    fn is_out_of_reach(&self) -> bool {
        false
    }

    fn bound(&self, set: &mut Set, best: f64, _: &mut Context<'_>) -> Result<Option<(f64, Vec<Strategy>)>, MapError> {
        if self.alone.holds_too_much(&set.open) {
            return Ok(None);
        }
        let of_all = self.root.as_ref().map(|root| (root.price, root.shares));
        let (from, shares) = set.byte_price.or(of_all).unwrap_or((0.0, 0));
        let near = best * (1.0 - TIE);
        let priced = |from, shares| self.alone.least_priced(&set.open, &set.tiles, (from, shares, MORE_PRICES), near);
        let Some(mut found) = priced(from, shares).filter(|found| found.bound < near) else { return Ok(None) };
        // What holds too much by other shares is told by them.
        let (fullest, too_much) = self.alone.fullest(&found.sharding);
        if too_much && fullest != shares && !found.sharding.is_empty() {
            let Some(other) = priced(found.price, fullest).filter(|other| other.bound < near) else { return Ok(None) };
            if other.bound > found.bound {
                found = other;
            }
        }
        set.byte_price = Some((found.price, found.shares));
        Ok(Some((found.bound, found.sharding)))
    }

    fn starts(&self) -> &[Vec<Strategy>] {
        &self.starts
    }

    fn split(&self, set: Set, _: &[Strategy], _: f64, _: &mut Context<'_>) -> Result<Split, MapError> {
        if set.tiles.len() > 1 {
            return Ok(Split::Sets(set.split_tiles()));
        }
        let shares = set.byte_price.map_or(0, |(_, shares)| shares);
        let kernels = self.alone.split(&set.open, shares).into_iter().collect();
        Ok(Split::Kernels(set, kernels))
    }

    /// Its least sum is what it takes.
    fn may_win(&self, _: &[Strategy], _: &Set, _: f64, _: &mut Context<'_>) -> Result<bool, MapError> {
        Ok(true)
    }
}
