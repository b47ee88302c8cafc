//! HPL on machines that published a result, by the model of the graph and its mapping.

use super::predict::{NotPredicted, Prediction};
use super::row::{HplSizes, Row};
use super::suites;
use crate::mapping::degrees::Wanted;
use crate::mapping::{Answer, Request, map};
use crate::plan::DimensionUse;
use crate::spec::catalogue::Kind;
use crate::spec::{Loader, Node};
use crate::system::System;
use crate::workload::WorkloadSpec;
use std::path::Path;

/// Share of the memory that the matrix fills where the order is not stated (the advice of HPL's own tuning notes).
const FILLED: f64 = 0.8;
/// Columns of a panel where they are not stated.
const PANEL: u64 = 1024;

/// FLOP/s of a run of HPL: 2/3 n^3 + 3/2 n^2 FLOP, as HPL counts them, over the predicted time. The system is one of `validation/hpl`, a file or
/// a name of the catalogue; n, nb, p and q are the row's; of a run that `validation/hpl` has, those of its table; else n fills 80 % of the memory,
/// nb is 1024, and the grid is searched.
///
/// # Errors
/// [`NotPredicted`]: no such system, a grid that its network has not, no mapping.
pub fn predict(row: &Row) -> Result<Prediction, NotPredicted> {
    let failed = |e: &dyn std::fmt::Display| NotPredicted::because(format!("{}: {e}", row.system));
    let shipped = suites::hpl_machine(row);
    let tree = match shipped {
        Some(text) => Node::parse("validation/hpl", text).map_err(|e| failed(&e))?,
        None if row.system.is_empty() => {
            let why = "no system; a file of one, or its name in the catalogue, is due in the column system";
            return Err(NotPredicted::because(why));
        }
        None => Loader
            .open(Path::new(&row.system), Some(Kind::System))
            .and_then(|node| Loader.expand_as(&node, "", Some(Kind::System)))
            .map_err(|e| failed(&e))?,
    };
    let system = System::build(&tree).map_err(|e| failed(&e))?;
    let known = shipped.and_then(suites::hpl_sizes).unwrap_or_default();
    let Sizes { n, nb } = sizes(&row.hpl, &known, &system).map_err(|why| failed(&why))?;
    if let Some(chips) = row.chips.filter(|chips| *chips != system.chip_count()) {
        return Err(failed(&format!("the row has {chips} chips, the system {}", system.chip_count())));
    }
    let text = format!("{{kind: hpl, name: HPL, source: validation, n: {n}, block: {nb}}}");
    let tree = Node::parse("hpl", &text).map_err(|e| failed(&e))?;
    let workload = WorkloadSpec::build(&tree).map_err(|e| failed(&e))?;
    let mut request = Request { wanted: Wanted { split: true, ..Wanted::default() }, ..Request::default() };
    if let (Some(p), Some(q)) = (row.hpl.p, row.hpl.q) {
        request.pins.uses = Some(grid(&system, p, q).map_err(|why| failed(&why))?);
    }
    match map(&workload, &system, &request).map_err(|e| failed(&e))? {
        Answer::Mapped(plan, _) => {
            let n = n as f64;
            let flop = 2.0 / 3.0 * n.powi(3) + 1.5 * n * n;
            Ok(Prediction::InRowsQuantity(flop / plan.figures.iteration_s()))
        }
        Answer::Infeasible(reason) => Err(failed(&reason)),
    }
}

/// Sizes of a run.
#[derive(Debug, PartialEq, Eq)]
struct Sizes {
    n: u64,
    nb: u64,
}

/// The row's, else those of the shipped run, else what is usual.
fn sizes(row: &HplSizes, known: &HplSizes, system: &System) -> Result<Sizes, String> {
    let nb = row.nb.or(known.nb).unwrap_or(PANEL);
    let n = match (row.n.or(known.n), system.memory.0.capacity) {
        (Some(n), _) => n,
        (None, Some(capacity)) => {
            let words = FILLED * capacity.0 * system.chip_count() as f64 / 8.0;
            // Whole panels.
            (words.sqrt() as u64 / nb.max(1)).max(1).saturating_mul(nb)
        }
        (None, None) => return Err("n is not stated, and the memory has no capacity to follow it from".into()),
    };
    if nb > n { Err(format!("expected panels of at most n = {n} columns, found {nb}")) } else { Ok(Sizes { n, nb }) }
}

/// A use of the network's dimensions that makes a grid of p rows and q columns.
fn grid(system: &System, p: u64, q: u64) -> Result<Vec<DimensionUse>, String> {
    let sizes: Vec<u64> = system.network.dimensions.iter().map(|d| d.size).collect();
    let mut found = Vec::new();
    // Rows inside first: panels are exchanged along columns most often.
    fn divide(sizes: &[u64], p: u64, q: u64, found: &mut Vec<DimensionUse>) -> bool {
        let Some((size, rest)) = sizes.split_first() else { return p == 1 && q == 1 };
        let rows = (1..=*size).rev().filter(|rows| size.is_multiple_of(*rows) && p.is_multiple_of(*rows));
        for rows in rows {
            let cols = size / rows;
            if q.is_multiple_of(cols) {
                found.push(DimensionUse { rows, cols, ..DimensionUse::NONE });
                if divide(rest, p / rows, q / cols, found) {
                    return true;
                }
                found.pop();
            }
        }
        false
    }
    if divide(&sizes, p, q, &mut found) {
        return Ok(found);
    }
    let named: Vec<String> = sizes.iter().map(u64::to_string).collect();
    Err(format!("no grid of {p} x {q} on a network of {}", named.join(" x ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::suites::Suite;

    fn summit() -> (Row, System) {
        let row = Suite::named("hpl").unwrap().read().unwrap().rows.into_iter().find(|r| r.id == "hpl-summit").unwrap();
        let tree = Node::parse("summit", suites::hpl_machine(&row).unwrap()).unwrap();
        (row, System::build(&tree).unwrap())
    }

    /// A point of one's own: n, nb, p, q of the row decide, not the row's name.
    #[test]
    fn sizes_are_those_of_the_row() {
        let (row, system) = summit();
        let stated = HplSizes { n: Some(4096), nb: Some(128), p: None, q: None };
        assert_eq!(sizes(&stated, &row.hpl, &system), Ok(Sizes { n: 4096, nb: 128 }));
        let shipped = sizes(&HplSizes::default(), &row.hpl, &system).unwrap();
        assert_eq!((Some(shipped.n), Some(shipped.nb)), (row.hpl.n, row.hpl.nb));
        // By hand: 0.8 of all memories in words of 8 B, in whole panels of 1024.
        let free = sizes(&HplSizes::default(), &HplSizes::default(), &system).unwrap();
        let bytes = (free.n as f64).powi(2) * 8.0;
        let memory = system.memory.0.capacity.unwrap().0 * system.chip_count() as f64;
        assert!(free.n.is_multiple_of(1024) && bytes <= 0.8 * memory && bytes > 0.79 * memory, "{free:?}");
        assert!(sizes(&HplSizes { nb: Some(8192), ..stated }, &row.hpl, &system).is_err());
    }

    /// TOP500's Rpeak and cores of Frontier: nodes of four MI250X and an EPYC of 64 cores, 16 FLOP a cycle, 2 GHz.
    #[test]
    fn the_peak_of_frontier_is_that_of_the_list() {
        let rows = Suite::named("hpl").unwrap().read().unwrap().rows;
        // Of 2023 the cores alone.
        for (id, cores, rpeak) in
            [("hpl-frontier-2022", 8_730_112, Some(1685.65)), ("hpl-frontier-2023", 8_699_904, None)]
        {
            let row = rows.iter().find(|r| r.id == id).unwrap();
            let system = System::build(&Node::parse(id, suites::hpl_machine(row).unwrap()).unwrap()).unwrap();
            let nodes = system.chip_count() / 4;
            assert_eq!(nodes * (64 + 4 * 220), cores, "{id}");
            let peak = crate::model::rate::chip_peak(&system.chip.0, &system.model, 8.0) * system.chip_count() as f64
                + nodes as f64 * 64.0 * 16.0 * 2e9;
            let found = (peak / 1e13).round() / 100.0;
            assert_eq!(found, rpeak.unwrap_or(found), "{id}");
        }
    }

    #[test]
    fn grids_are_made_of_the_dimensions() {
        let (_, system) = summit();
        let n = system.chip_count();
        let uses = grid(&system, n, 1).unwrap();
        assert_eq!(uses.iter().map(|u| u.rows).product::<u64>(), n);
        assert!(grid(&system, 7, n).is_err());
    }
}
