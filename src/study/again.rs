//! A point of finished results solved again, for what the table does not hold: its plan.

use super::grid::{Point, Study};
use super::store::Key;
use super::{executed, placed, sweep};
use crate::report::csv::{Facts, Outcome, values};
use crate::report::table::{Table, TableError};
use crate::spec::{Node, Problems};

/// A point as it was solved again.
#[derive(Debug)]
pub struct Again {
    /// The point.
    pub point: Point,
    /// The tree of its workload.
    pub workload: Node,
    /// The tree of its system, before a budget scaled it; placements have none.
    pub system: Option<Node>,
    /// How it ended.
    pub outcome: Outcome,
    /// Columns that came out other than in the table, each with what the table has and what came out: of points that were stopped by seconds.
    pub other: Vec<(String, String, String)>,
}

/// Why a point cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum AgainError {
    /// The table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The study does not make the point any more.
    #[error(transparent)]
    Problems(#[from] Problems),
    /// The table has no such point.
    #[error("{path}: there is no point {index}; {remedy}")]
    NoPoint {
        /// The table.
        path: String,
        /// The point asked for.
        index: u64,
        /// What there is.
        remedy: String,
    },
    /// What the point is made from is not what it was when the table was written.
    #[error(
        "point {index} is not what it was when {path} was written: {what}. Run the study again, or name the one of then with --study"
    )]
    Changed {
        /// The table.
        path: String,
        /// The point.
        index: u64,
        /// What changed.
        what: String,
    },
    /// It could not be solved, or came out differently without reason.
    #[error("{0}")]
    Failed(String),
}

/// Solves point `index` of a table again, from the study that made it. The key of the row, a hash of everything that it depends on, must be that of the
/// point now; `changed` says what else may have changed.
///
/// # Errors
/// [`AgainError`].
pub fn again(table: &Table, study: &Study, index: u64, changed: impl Fn() -> String) -> Result<Again, AgainError> {
    let path = table.path.display().to_string();
    let points = table.texts("point")?;
    let wanted = index.to_string();
    let Some(row) = points.iter().position(|point| *point == wanted) else {
        let remedy = match (points.first(), points.last()) {
            (Some(first), Some(last)) => format!("its {} points are numbered from {first} to {last}", points.len()),
            _ => "it has no rows".to_string(),
        };
        return Err(AgainError::NoPoint { path, index, remedy });
    };
    let fail = |what: String| AgainError::Changed { path: path.clone(), index, what };
    let labels =
        table.axes()?.into_iter().map(|axis| Ok(table.texts(axis)?[row])).collect::<Result<Vec<_>, TableError>>()?;
    if study.count().is_none_or(|count| index >= count) || study.labels(index) != labels {
        return Err(fail(format!("the study {} has another grid", study.name())));
    }
    if let Some(parts) = study.mixed(index) {
        let parts: Vec<String> = parts.iter().map(u64::to_string).collect();
        return Err(AgainError::Failed(format!(
            "point {index} is the mean of the points {}, and has no plan of its own; show one of them",
            parts.join(", ")
        )));
    }
    let point = study.point(index)?;
    let key = Key::of(&point).map_err(AgainError::Failed)?.to_string();
    if table.texts("key")?[row] != key {
        return Err(fail(changed()));
    }
    let (workload, system) = study.trees(index)?;
    let outcome = outcome(&point).map_err(AgainError::Failed)?;
    let fitted = point.fitted.as_ref().and_then(|f| f.as_ref().ok());
    let now =
        values(&Facts { workload: Some(&point.workload), system: point.system.as_ref(), fitted, outcome: &outcome });
    let mut other = Vec::new();
    for (column, now) in crate::report::csv::COLUMNS.iter().zip(now.iter()) {
        let then = table.texts(column.name)?[row];
        if table.has(column.name) && then != now {
            other.push((column.name.to_string(), then.to_string(), now.to_string()));
        }
    }
    // The search is deterministic unless a clock ended it.
    let by_clock = table.texts("reproducible")?[row] == "false" || table.texts("status")?[row] == "time_limit";
    if let Some((column, then, now)) = other.first().filter(|_| !by_clock) {
        return Err(AgainError::Failed(format!(
            "point {index} comes out differently: {column} is {now}, and was {then} when {path} was written; was the table changed?"
        )));
    }
    Ok(Again { point, workload, system, outcome, other })
}

/// Solves a point.
///
/// # Errors
/// A sentence where its settings do not suit it.
pub(super) fn outcome(point: &Point) -> Result<Outcome, String> {
    if let Some(outcome) = placed::solve(point)? {
        return Ok(outcome);
    }
    match executed::solve(point)? {
        Some(outcome) => Ok(outcome),
        None => sweep::solve(point).map(Outcome::from),
    }
}
