//! What a report calls the front: the rows that no other row of the same workload beats in two columns.

use super::super::csv::better;
use super::super::manifest::{Manifest, folder};
use super::super::plot::{Better, pareto_front};
use super::super::table::{Table, TableError};
use crate::spec::node::io_reason;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::Path;

/// The proof of a front, as a search writes it beside its results.
pub const PROOF: &str = "front.json";

/// Two objectives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Column of the horizontal axis.
    pub x: String,
    /// What is better in it.
    pub x_better: Better,
    /// Column of the vertical axis.
    pub y: String,
    /// What is better in it.
    pub y_better: Better,
}

/// What is paid, what is gained: the first that the rows have.
const PAID: [&str; 6] = ["cost_usd", "power_w", "chips", "place_cores_used", "energy_j", "total_bytes"];
const GAINED: [&str; 5] = ["samples_per_s", "generated_per_s", "tokens_per_s", "place_bottleneck_s", "iteration_s"];

/// The objectives that a report begins with: the two of a front that was searched, else what is paid and what is gained; `None` where no two columns have
/// numbers. What differs between rows goes before what does not.
///
/// # Errors
/// [`TableError`]: a column that holds something else than numbers, or a proof that cannot be read.
pub fn pair(table: &Table) -> Result<Option<Pair>, TableError> {
    let way = |column: &str| better(column).unwrap_or(Better::Lower);
    let manifest = Manifest::beside(&table.path)?;
    if let Some(aims) = proof(&table.path, manifest.as_ref())?.get("objectives").and_then(Json::as_array) {
        // `max samples_per_s`: what is gained goes upwards.
        let column = |word: &str| aims.iter().filter_map(Json::as_str).find_map(|aim| aim.strip_prefix(word));
        if let (Some(x), Some(y)) = (column("min "), column("max ")) {
            return Ok(Some(Pair { x_better: way(x), y_better: way(y), x: x.to_string(), y: y.to_string() }));
        }
    }
    let pick = |columns: &[&str], but: &str| -> Result<Option<String>, TableError> {
        let mut constant = None;
        for column in columns.iter().filter(|column| **column != but) {
            let values: Vec<f64> = numbers(table, column)?.into_iter().filter(|v| v.is_finite()).collect();
            match values.first() {
                Some(first) if values.iter().any(|value| value != first) => return Ok(Some((*column).to_string())),
                Some(_) if constant.is_none() => constant = Some((*column).to_string()),
                _ => {}
            }
        }
        Ok(constant)
    };
    let Some(y) = pick(&GAINED, "")? else { return Ok(None) };
    let Some(x) = pick(&PAID, &y)? else { return Ok(None) };
    let way = |column: &str| better(column).unwrap_or(Better::Lower);
    Ok(Some(Pair { x_better: way(&x), y_better: way(&y), x, y }))
}

/// A column of numbers; not-a-number in every row where it is empty.
fn numbers(table: &Table, column: &str) -> Result<Vec<f64>, TableError> {
    match table.numbers(column) {
        Err(TableError::Empty { .. }) => Ok(vec![f64::NAN; table.len()]),
        other => other,
    }
}

/// The front of each workload, in the order in which the workloads stand: its name, its rows from the best x to the best y.
///
/// # Errors
/// [`TableError`]: columns that are not there or hold something else than numbers.
pub fn fronts(table: &Table, pair: &Pair) -> Result<Vec<(String, Vec<usize>)>, TableError> {
    let (x, y, workloads) = (numbers(table, &pair.x)?, numbers(table, &pair.y)?, table.texts("workload")?);
    // Of a search the points of its front: others may keep no constraint.
    let proof = proof(&table.path, Manifest::beside(&table.path)?.as_ref())?;
    let searched: Option<BTreeSet<u64>> =
        proof.get("front").and_then(Json::as_array).map(|points| points.iter().filter_map(Json::as_u64).collect());
    let points = table.texts("point")?;
    let of_front = |row: usize| {
        searched.as_ref().is_none_or(|front| points[row].parse().is_ok_and(|point: u64| front.contains(&point)))
    };
    let has_both = |row: usize| x[row].is_finite() && y[row].is_finite();
    let mut found: Vec<(String, Vec<usize>)> = Vec::new();
    for (row, workload) in workloads.iter().enumerate().filter(|(row, _)| has_both(*row) && of_front(*row)) {
        match found.iter_mut().find(|(name, _)| name == workload) {
            Some((_, rows)) => rows.push(row),
            None => found.push(((*workload).to_string(), vec![row])),
        }
    }
    for (_, rows) in &mut found {
        let at: Vec<(f64, f64)> = rows.iter().map(|row| (x[*row], y[*row])).collect();
        *rows = pareto_front(&at, pair.x_better, pair.y_better).into_iter().map(|i| rows[i]).collect();
    }
    Ok(found)
}

/// What a search of the front proved, where the file is the one that the manifest names.
///
/// # Errors
/// [`TableError::Read`] where it cannot be read.
pub fn proof(table: &Path, manifest: Option<&Manifest>) -> Result<Json, TableError> {
    let folder = folder(table);
    if !manifest.is_some_and(|m| m.vouches(&folder, PROOF)) {
        return Ok(Json::Null);
    }
    let path = folder.join(PROOF);
    let fail = |reason: String| TableError::Read { path: path.clone(), reason };
    let bytes = std::fs::read(&path).map_err(|e| fail(io_reason(&e)))?;
    serde_json::from_slice(&bytes).map_err(|e| fail(e.to_string()))
}
