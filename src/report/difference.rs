//! Two tables of results against each other: rows by the labels of their axes, columns by how much they changed.

use super::csv::{COLUMNS, LEADING, TRAILING};
use super::table::{Table, TableError};
use crate::units::median;
use serde::Serialize;
use std::collections::HashMap;

/// What became of a column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The column.
    pub column: String,
    /// Rows of both tables in which it is not the same.
    pub rows: usize,
    /// Of them those where one table has a value and the other has none.
    pub one_sided: usize,
    /// Median of (B - A) / |A| over the rows where both are numbers and differ; `None` where there are none.
    pub median: Option<f64>,
    /// The change that is largest in size: (B - A) / |A|; `None` where A is zero or they are texts.
    pub largest: Option<f64>,
    /// The row of the largest change, or the first: its labels.
    pub row: String,
    /// What A has there.
    pub a: String,
    /// What B has there.
    pub b: String,
}

/// Two tables compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The axes by which rows are the same ones.
    pub axes: Vec<String>,
    /// Rows that both have.
    pub both: usize,
    /// Labels of rows that A alone has.
    pub only_a: Vec<String>,
    /// Labels of rows that B alone has.
    pub only_b: Vec<String>,
    /// Columns that changed, in the order of the table.
    pub changes: Vec<Change>,
    /// Columns that are the same in all rows.
    pub same: usize,
}

/// Why two tables cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// One of them is no table of results.
    #[error(transparent)]
    Table(#[from] TableError),
    /// They share no axis.
    #[error("the two have no axis in common ({a}; {b}), so no row of one is a row of the other")]
    NoAxis {
        /// Those of A.
        a: String,
        /// Those of B.
        b: String,
    },
    /// Rows cannot be told apart by what both have.
    #[error(
        "{table}: rows {row:?} stand twice; the two have the axes {axes} in common, and {alone} in one alone. Choose rows first (flowspace study where ... --format csv)"
    )]
    Twice {
        /// The file.
        table: String,
        /// The labels.
        row: String,
        /// The common axes.
        axes: String,
        /// The others.
        alone: String,
    },
}

/// Compares two tables in `columns`, or in all that hold results. Numbers that differ by `tolerance` of A's or less are the same.
///
/// # Errors
/// [`CompareError`].
pub fn compare(a: &Table, b: &Table, columns: &[String], tolerance: f64) -> Result<Comparison, CompareError> {
    let (of_a, of_b) = (a.axes()?, b.axes()?);
    let axes: Vec<&str> = of_a.iter().copied().filter(|axis| of_b.contains(axis)).collect();
    if axes.is_empty() && (a.len() > 1 || b.len() > 1) {
        return Err(CompareError::NoAxis { a: of_a.join(", "), b: of_b.join(", ") });
    }
    let alone: Vec<&str> = of_a.iter().chain(&of_b).copied().filter(|axis| !axes.contains(axis)).collect();
    let keys = |table: &Table| -> Result<Vec<String>, CompareError> {
        let labels = axes.iter().map(|axis| table.texts(axis)).collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<String> =
            (0..table.len()).map(|row| labels.iter().map(|l| l[row]).collect::<Vec<_>>().join(" / ")).collect();
        let mut seen = HashMap::new();
        match keys.iter().find(|key| seen.insert(key.as_str(), ()).is_some()) {
            None => Ok(keys),
            Some(row) => Err(CompareError::Twice {
                table: table.path.display().to_string(),
                row: row.clone(),
                axes: axes.join(", "),
                alone: if alone.is_empty() { "none".into() } else { alone.join(", ") },
            }),
        }
    };
    let (keys_a, keys_b) = (keys(a)?, keys(b)?);
    let at: HashMap<&str, usize> = keys_b.iter().enumerate().map(|(row, key)| (key.as_str(), row)).collect();
    let pairs: Vec<(usize, usize)> =
        keys_a.iter().enumerate().filter_map(|(row, key)| Some((row, *at.get(key.as_str())?))).collect();
    let in_a: HashMap<&str, ()> = keys_a.iter().map(|key| (key.as_str(), ())).collect();
    // The point's number, names of files and hashes change with the grid and the version, not with the design.
    let ours = COLUMNS.iter().map(|c| c.name).filter(|name| columns.is_empty() || columns.iter().any(|c| c == name));
    let named = columns.iter().map(String::as_str).filter(|name| !COLUMNS.iter().any(|c| c.name == *name));
    let mut changes = Vec::new();
    let mut same = 0;
    for name in ours.chain(named.filter(|name| *name != LEADING.0 && !TRAILING.iter().any(|(t, _)| t == name))) {
        let (va, vb) = (a.texts(name)?, b.texts(name)?);
        match change(name, &pairs, (&va, &vb), &keys_a, tolerance) {
            Some(change) => changes.push(change),
            None => same += 1,
        }
    }
    Ok(Comparison {
        both: pairs.len(),
        only_a: keys_a.iter().filter(|key| !at.contains_key(key.as_str())).cloned().collect(),
        only_b: keys_b.iter().filter(|key| !in_a.contains_key(key.as_str())).cloned().collect(),
        axes: axes.into_iter().map(str::to_string).collect(),
        changes,
        same,
    })
}

/// What became of a column; `None` where it is the same in all rows.
fn change(
    name: &str,
    pairs: &[(usize, usize)],
    (a, b): (&[&str], &[&str]),
    labels: &[String],
    tolerance: f64,
) -> Option<Change> {
    let number = |text: &str| text.parse::<f64>().ok();
    let mut found: Vec<(usize, usize, Option<f64>)> = Vec::new();
    let mut one_sided = 0;
    for (i, j) in pairs {
        let (x, y) = (a[*i], b[*j]);
        if x == y {
            continue;
        }
        let relative = match (number(x), number(y)) {
            (Some(x), Some(y)) if x == y || (y - x).abs() <= tolerance * x.abs() => continue,
            (Some(x), Some(y)) if x != 0.0 => Some((y - x) / x.abs()),
            _ => None,
        };
        one_sided += usize::from(x.is_empty() || y.is_empty());
        found.push((*i, *j, relative));
    }
    let first = found.first().copied()?;
    let median = median(found.iter().filter_map(|(.., relative)| *relative).collect());
    let size = |entry: &(usize, usize, Option<f64>)| entry.2.map_or(0.0, f64::abs);
    let largest =
        found.iter().copied().fold(first, |best, entry| if size(&entry) > size(&best) { entry } else { best });
    Some(Change {
        column: name.to_string(),
        rows: found.len(),
        one_sided,
        median,
        largest: largest.2,
        row: labels[largest.0].clone(),
        a: a[largest.0].to_string(),
        b: b[largest.1].to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, text: &str) -> Table {
        let path = std::env::temp_dir().join(format!("flowspace-difference-{}-{name}.csv", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let table = Table::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        table
    }

    #[test]
    fn rows_are_matched_by_their_labels() {
        let a = table(
            "a",
            "point,chip,link,status,samples_per_s,cost_usd,study,key\n0,x,1,optimal,10,5,s,k\n1,x,2,optimal,20,5,s,k\n2,y,1,infeasible,,5,s,k\n",
        );
        let b = table(
            "b",
            "point,link,chip,status,samples_per_s,cost_usd,study,key\n0,2,x,optimal,25,5.0,s,l\n1,1,x,optimal,9,5,s,l\n2,1,y,optimal,3,5,s,l\n3,9,y,optimal,3,5,s,l\n",
        );
        let found = compare(&a, &b, &[], 0.0).unwrap();
        assert_eq!((found.both, found.only_a.len(), found.only_b.as_slice()), (3, 0, &["y / 9".to_string()][..]));
        let names: Vec<&str> = found.changes.iter().map(|c| c.column.as_str()).collect();
        assert_eq!(names, ["status", "samples_per_s"]);
        let rate = &found.changes[1];
        assert_eq!((rate.rows, rate.one_sided, rate.largest, rate.row.as_str()), (3, 1, Some(0.25), "x / 2"));
        assert!((rate.median.unwrap() - 0.075).abs() < 1e-12);
        assert_eq!((found.changes[0].a.as_str(), found.changes[0].b.as_str()), ("infeasible", "optimal"));
        assert_eq!(compare(&a, &b, &["samples_per_s".into()], 0.3).unwrap().changes[0].rows, 1);
        assert!(compare(&a, &a, &[], 0.0).unwrap().changes.is_empty());
        assert!(compare(&a, &b, &["samples".into()], 0.0).unwrap_err().to_string().contains("samples_per_s"));
        let c = table("c", "point,chip,status,study,key\n0,x,optimal,s,k\n");
        assert!(compare(&a, &c, &[], 0.0).unwrap_err().to_string().contains("stand twice"));
        let d = table("d", "point,box,status,study,key\n0,x,optimal,s,k\n");
        assert!(compare(&a, &d, &[], 0.0).unwrap_err().to_string().contains("no axis in common"));
    }
}
