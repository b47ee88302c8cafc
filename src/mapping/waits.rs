//! What a unit of a block waits for beside its partitions: the exchanges of a kernel's data with chips of other tensor-parallel groups.
//!
//! Nothing runs beside them, so that they add up to the partitions' seconds whatever the partitions are; how long each takes depends on the layouts at its two ends, and so on the strategies of two kernels (or of one):
//!
//! ```text
//! seconds of a unit(sharding, partitions) = sum over its partitions + sum over its waits of seconds[strategy of one end, strategy of the other]
//! ```

use super::joint::relaxed::Open;
use super::minsum::Term;
use super::search::Search;
use crate::model::Strategy;

/// Seconds of one exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Wait {
    /// The kernels whose strategies decide, both of one block; twice the same where one does.
    pub kernels: (usize, usize),
    /// Seconds by the strategies of both, as [`Strategy::ALL`] numbers them.
    pub seconds: Vec<Vec<f64>>,
}

impl Wait {
    /// By what it takes for each pair of strategies.
    pub fn of(kernels: (usize, usize), seconds: impl Fn(Strategy, Strategy) -> f64) -> Self {
        let row = |a: &Strategy| Strategy::ALL.iter().map(|b| seconds(*a, *b)).collect();
        Self { kernels, seconds: Strategy::ALL.iter().map(row).collect() }
    }

    fn at(&self, a: Strategy, b: Strategy) -> f64 {
        self.seconds[a as usize][b as usize]
    }

    fn under(&self, sharding: &[Strategy]) -> f64 {
        self.at(sharding[self.kernels.0], sharding[self.kernels.1])
    }

    /// The least and the most among the strategies that are open.
    fn ends(&self, open: &Open) -> (f64, f64) {
        let (a, b) = self.kernels;
        let others = |s: &Strategy| if a == b { vec![*s] } else { open[b].clone() };
        let each = open[a].iter().flat_map(|s| others(s).into_iter().map(|o| self.at(*s, o)));
        each.fold((f64::INFINITY, 0.0), |(least, most), seconds| (seconds.min(least), seconds.max(most)))
    }

    /// As a term over places among the strategies that are open.
    pub(super) fn term(&self, open: &Open, sizes: &[usize]) -> Option<Term> {
        let (a, b) = self.kernels;
        match a == b {
            true => Some(Term::of_one(a, open[a].iter().map(|s| self.at(*s, *s)).collect())),
            false => Term::new(vec![a, b], sizes, |at| self.at(open[a][at[0]], open[b][at[1]])),
        }
    }
}

/// The waits among some kernels, numbered by their places.
pub(super) fn among(waits: &[Wait], kernels: &[usize]) -> Vec<Wait> {
    let place = |k: usize| kernels.binary_search(&k).ok();
    let of = |wait: &Wait| {
        let (a, b) = (place(wait.kernels.0)?, place(wait.kernels.1)?);
        Some(Wait { kernels: (a, b), ..wait.clone() })
    };
    waits.iter().filter_map(of).collect()
}

impl Search<'_> {
    /// Seconds of a unit of a graph of one block.
    pub(super) fn waits(&self, sharding: &[Strategy]) -> f64 {
        self.request.waits.iter().map(|wait| wait.under(sharding)).sum()
    }

    /// Seconds of a unit of each block of a chain.
    pub(super) fn waits_of_blocks(&self, sharding: &[Strategy]) -> Vec<f64> {
        let mut out = vec![0.0; self.blocks.len()];
        for wait in &self.request.waits {
            out[self.workload.kernels[wait.kernels.0].block] += wait.under(sharding);
        }
        out
    }

    /// Seconds of a unit at least, and at most, in a set of shardings of a graph of one block.
    pub(super) fn waits_between(&self, open: &Open) -> (f64, f64) {
        let each = self.request.waits.iter().map(|wait| wait.ends(open));
        each.fold((0.0, 0.0), |(least, most), (low, high)| (least + low, most + high))
    }
}
