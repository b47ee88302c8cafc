//! `flowspace study where` and `study compare`: rows of results chosen by a condition, two tables against each other.

use super::Failure;
use super::present::{align, plain};
use crate::report::difference::{self, Comparison};
use crate::report::manifest::{MANIFEST, Manifest, folder};
use crate::report::plot::short_number;
use crate::report::query::Query;
use crate::report::table::{RESULTS, Table};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Arguments of `flowspace study where`.
#[derive(Debug, Args)]
pub struct WhereArgs {
    /// The results.csv of a study, or the folder it lies in.
    pub results: PathBuf,
    /// Which rows: comparisons of columns, joined by and, or, not and parentheses. Numbers may have units:
    /// 'status == optimal and chips <= 512 and cost_usd < $10M'.
    pub condition: String,
    /// Columns shown; the axes, those of the condition and the usual ones if left out. All of them in CSV.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Format on standard output.
    #[arg(long, value_enum, default_value_t = RowFormat::Text)]
    pub format: RowFormat,
}

/// What rows are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// A table for a person.
    Text,
    /// A list of JSON objects.
    Json,
    /// The rows as they stand in the table, with its header.
    Csv,
}

/// Arguments of `flowspace study compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The results.csv of a study, or the folder it lies in.
    pub a: PathBuf,
    /// Those that it is compared with.
    pub b: PathBuf,
    /// Columns that are compared; all if left out.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Changes of numbers up to this many per cent are none.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = tolerance)]
    pub tolerance: f64,
    /// Format on standard output.
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    pub format: CompareFormat,
}

/// What a comparison is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// A table for a person.
    Text,
    /// One JSON object.
    Json,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.trim().trim_end_matches('%').trim().parse().ok();
    value
        .filter(|v| v.is_finite() && *v >= 0.0)
        .ok_or_else(|| format!("expected per cent of at least 0, found {text:?}"))
}

/// Reads the table of a file or folder.
pub(super) fn read(path: &Path) -> Result<Table, Failure> {
    let path = if path.is_dir() { path.join(RESULTS) } else { path.to_path_buf() };
    let table = Table::read(&path).map_err(|e| Failure::input(e.to_string()))?;
    say_if_altered(&path);
    Ok(table)
}

/// Says of a table that it is not the one that its manifest names. What is read is what stands there; what was proven of it is another matter.
pub(super) fn say_if_altered(path: &Path) {
    let Ok(Some(manifest)) = Manifest::beside(path) else { return };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if manifest.outputs.iter().any(|output| output.file == name) && !manifest.vouches(&folder(path), &name) {
        say!(
            "note: {} was altered since {} (its digest is not the one in {MANIFEST}): its rows may not be those that were solved",
            path.display(),
            manifest.ended
        );
    }
}

/// Columns shown beside the axes and those of the condition, where rows have them.
const USUAL: [&str; 6] = ["status", "samples_per_s", "generated_per_s", "iteration_s", "cost_usd", "utilization"];

/// Prints the rows for which the condition holds.
///
/// # Errors
/// [`Failure`]: no table, a condition that is none (with its place), a column that is not there.
pub fn choose(args: &WhereArgs) -> Result<i32, Failure> {
    let table = read(&args.results)?;
    let fail = |e: crate::report::table::TableError| Failure::input(e.to_string());
    let query = Query::parse(&args.condition, &table).map_err(|e| Failure::input(e.to_string()))?;
    let rows: Vec<usize> = (0..table.len()).filter(|row| query.holds(*row)).collect();
    let mut names: Vec<String> = args.columns.clone();
    if names.is_empty() {
        let filled = |name: &&str| table.texts(name).is_ok_and(|texts| texts.iter().any(|text| !text.is_empty()));
        let point = table.has("point").then_some("point");
        names.extend(point.into_iter().chain(table.axes().unwrap_or_default()).map(str::to_string));
        names.extend(query.columns.iter().cloned().chain(USUAL.iter().copied().filter(filled).map(str::to_string)));
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
    }
    if args.format == RowFormat::Csv && args.columns.is_empty() {
        names = table.header().to_vec();
    }
    let cells = names.iter().map(|name| table.texts(name).map_err(fail)).collect::<Result<Vec<_>, _>>()?;
    match args.format {
        RowFormat::Csv => {
            let mut writer = csv::Writer::from_writer(Vec::new());
            let failed = |e: csv::Error| Failure::input(e.to_string());
            writer.write_record(&names).map_err(failed)?;
            for row in &rows {
                writer.write_record(cells.iter().map(|c| c[*row])).map_err(failed)?;
            }
            let bytes = writer.into_inner().map_err(|e| Failure::input(e.to_string()))?;
            super::print(&String::from_utf8_lossy(&bytes));
        }
        RowFormat::Json => {
            let value = |text: &str| match text.parse::<f64>() {
                _ if text.is_empty() => Value::Null,
                Ok(number) if number.is_finite() => json!(number),
                _ => json!(text),
            };
            let object = |row: &usize| -> Map<String, Value> {
                names.iter().cloned().zip(cells.iter().map(|c| value(c[*row]))).collect()
            };
            super::print(&format!("{:#}\n", Value::Array(rows.iter().map(|row| Value::Object(object(row))).collect())));
        }
        RowFormat::Text => {
            let mut out = plain();
            out.set_header(&names);
            for row in &rows {
                out.add_row(cells.iter().map(|c| shown(c[*row])));
            }
            let numeric = |c: &Vec<&str>| c.iter().all(|text| text.is_empty() || text.parse::<f64>().is_ok());
            let right: Vec<usize> = cells.iter().enumerate().filter(|(_, c)| numeric(c)).map(|(i, _)| i).collect();
            align(&mut out, &right);
            if !rows.is_empty() {
                super::print(&format!("{out}\n"));
            }
        }
    }
    say!("{} of {} rows", rows.len(), table.len());
    Ok(0)
}

/// A number in a table for a person: whole ones below a million as they are, others in three digits.
fn shown(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && !(value.fract() == 0.0 && value.abs() < 1e6) => short_number(value),
        _ => text.to_string(),
    }
}

/// Prints what changed between two tables.
///
/// # Errors
/// [`Failure`]: tables that are none, or whose rows cannot be matched.
pub fn compare(args: &CompareArgs) -> Result<i32, Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let found = difference::compare(&a, &b, &args.columns, args.tolerance / 100.0)
        .map_err(|e| Failure::input(e.to_string()))?;
    match args.format {
        CompareFormat::Json => {
            let json = serde_json::to_string_pretty(&found).map_err(|e| Failure::input(e.to_string()))?;
            super::print(&format!("{json}\n"));
        }
        CompareFormat::Text => super::print(&text(&found)),
    }
    Ok(0)
}

/// Labels of rows that one table alone has: so many are named.
const MOST_NAMED: usize = 5;

fn text(found: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{} rows in both, matched by {}",
        found.both,
        if found.axes.is_empty() { "their number".into() } else { found.axes.join(", ") }
    );
    for (name, rows) in [("A", &found.only_a), ("B", &found.only_b)] {
        if !rows.is_empty() {
            let named: Vec<&str> = rows.iter().take(MOST_NAMED).map(String::as_str).collect();
            let more = if rows.len() > MOST_NAMED { ", ..." } else { "" };
            let _ = writeln!(out, "{} in {name} alone: {}{more}", rows.len(), named.join(", "));
        }
    }
    if found.changes.is_empty() {
        let _ = writeln!(out, "no column differs ({} compared)", found.same);
        return out;
    }
    let percent = |share: Option<f64>| share.map_or(String::new(), |share| format!("{:+.3} %", 100.0 * share));
    let mut table = plain();
    table.set_header(["column", "rows", "median", "largest", "A", "B", "where"]);
    for change in &found.changes {
        let cell = |text: &str| -> String {
            let text = if text.is_empty() { "(empty)".into() } else { shown(text) };
            if text.chars().count() > 32 { text.chars().take(31).chain(['\u{2026}']).collect() } else { text }
        };
        table.add_row([
            change.column.clone(),
            change.rows.to_string(),
            percent(change.median),
            percent(change.largest),
            cell(&change.a),
            cell(&change.b),
            change.row.clone(),
        ]);
    }
    align(&mut table, &[1, 2, 3, 4, 5]);
    let _ = writeln!(out, "{table}\n{} columns are the same in all of these rows; per cent are of A", found.same);
    out
}
