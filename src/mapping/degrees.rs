//! Which network dimension serves tensor, pipeline and data parallelism (design section 6.1).

use crate::model::collective::{GroupDimension, OwnGroups};
use crate::model::divisors::divisors;
use crate::plan::{DimensionUse, group_of, own_groups};
use crate::system::System;

/// An assignment of network dimensions to the three strategies.
#[derive(Debug, Clone, PartialEq)]
pub struct Degrees {
    /// Extent of each strategy along each network dimension.
    pub uses: Vec<DimensionUse>,
    /// Chips of a tensor-parallel group.
    pub tp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Data-parallel replicas.
    pub dp: u64,
    /// The tensor-parallel group, innermost dimension first.
    pub tp_group: Vec<GroupDimension>,
    /// The pipeline-parallel group.
    pub pp_group: Vec<GroupDimension>,
    /// The data-parallel group.
    pub dp_group: Vec<GroupDimension>,
    /// Rows of the process grid.
    pub grid_rows: u64,
    /// Columns of the process grid.
    pub grid_cols: u64,
    /// Groups of collectives that kernels make by themselves.
    pub own: OwnGroups,
}

impl Degrees {
    /// From the extents.
    pub fn new(system: &System, uses: Vec<DimensionUse>) -> Self {
        let product = |f: fn(&DimensionUse) -> u64| uses.iter().map(f).product();
        Self {
            tp: product(|u| u.tp),
            pp: product(|u| u.pp),
            dp: product(|u| u.dp),
            tp_group: group_of(system, &uses, DimensionUse::tensor),
            pp_group: group_of(system, &uses, DimensionUse::stages),
            dp_group: group_of(system, &uses, DimensionUse::data),
            grid_rows: product(|u| u.rows),
            grid_cols: product(|u| u.cols),
            own: own_groups(system, &uses),
            uses,
        }
    }
}

/// Degrees asked for; `None` is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Tensor parallelism.
    pub tp: Option<u64>,
    /// Pipeline parallelism.
    pub pp: Option<u64>,
    /// Data parallelism.
    pub dp: Option<u64>,
    /// Whether a dimension may be divided among strategies.
    pub split: bool,
}

impl Wanted {
    /// Whether an assignment is what was asked for.
    pub fn fits(&self, d: &Degrees) -> bool {
        self.tp.is_none_or(|x| x == d.tp) && self.pp.is_none_or(|x| x == d.pp) && self.dp.is_none_or(|x| x == d.dp)
    }
}

/// Every assignment: each dimension wholly to one strategy, or, with `split`, divided among them in every way
/// where the network model knows parts of it ([`System::divides`]). Dimensions of size one are given to none.
pub fn assignments(system: &System, split: bool) -> Vec<Degrees> {
    let mut all: Vec<Vec<DimensionUse>> = vec![Vec::new()];
    for (i, dimension) in system.network.dimensions.iter().enumerate() {
        let n = dimension.size;
        let choices: Vec<DimensionUse> = if split && system.divides(i) {
            divisions(n)
        } else if n == 1 {
            vec![DimensionUse::NONE]
        } else {
            vec![
                DimensionUse { tp: n, ..DimensionUse::NONE },
                DimensionUse { pp: n, ..DimensionUse::NONE },
                DimensionUse { dp: n, ..DimensionUse::NONE },
            ]
        };
        all = extend(all, &choices);
    }
    all.into_iter().map(|uses| Degrees::new(system, uses)).collect()
}

/// Every process grid: each dimension to its rows or to its columns, or, with `split`, to both in every way. `one_way`: rows and columns split the same axes, so rows alone tell all grids apart.
pub fn grids(system: &System, split: bool, one_way: bool) -> Vec<Degrees> {
    let mut all: Vec<Vec<DimensionUse>> = vec![Vec::new()];
    for (i, dimension) in system.network.dimensions.iter().enumerate() {
        let n = dimension.size;
        let grid = |rows: u64| DimensionUse { rows, cols: n / rows, ..DimensionUse::NONE };
        let choices: Vec<DimensionUse> = if one_way || n == 1 {
            vec![grid(n)]
        } else if split && system.divides(i) {
            divisors(n).into_iter().map(grid).collect()
        } else {
            vec![grid(n), grid(1)]
        };
        all = extend(all, &choices);
    }
    all.into_iter().map(|uses| Degrees::new(system, uses)).collect()
}

/// Every list followed by every choice.
fn extend(all: Vec<Vec<DimensionUse>>, choices: &[DimensionUse]) -> Vec<Vec<DimensionUse>> {
    all.into_iter()
        .flat_map(|head| {
            choices.iter().map(move |choice| {
                let mut uses = head.clone();
                uses.push(*choice);
                uses
            })
        })
        .collect()
}
/// All ordered factorisations of `n` into three.
fn divisions(n: u64) -> Vec<DimensionUse> {
    let divisors = divisors(n);
    let mut out = Vec::new();
    for &tp in &divisors {
        for &pp in divisors.iter().filter(|pp| (n / tp).is_multiple_of(**pp)) {
            out.push(DimensionUse { tp, pp, dp: n / tp / pp, ..DimensionUse::NONE });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_by_hand() {
        // 8 = 2^3 into three ordered factors: C(3+2, 2) = 10.
        assert_eq!(divisions(8).len(), 10);
    }
}
