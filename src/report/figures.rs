//! The figures of a study, drawn from its `results.csv` alone.

use super::csv::{BETWEEN_PARTITIONS, better};
use super::html::front;
use super::manifest::Manifest;
use super::plot::{
    Better, Missing, ParetoChart, PlotError, Point, Roof, RoofPoint, Roofline, Series, StackedBars, Style, drawable,
};
use super::table::{Table, TableError};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub use asked::{FigureKind, FigureSpec, LegendWord, Length, OrderWord, unknown_columns};
pub use drawn::draw_figure;

/// Why figures cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The table does not hold what they need.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A file cannot be written.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// No row can be drawn.
    #[error(
        "nothing to draw: no row has a number in both columns that the axes can show (between -1e150 and 1e150; above zero on a log axis)"
    )]
    Nothing,
    /// Options that do not fit, columns that are not there: all of them.
    #[error("{}", .0.join("\n"))]
    Several(Vec<String>),
    /// The table has a header alone.
    #[error("nothing to draw: the table has a header and no rows")]
    NoRows,
    /// A front over a column of which it is not known what is better.
    #[error(
        "a front needs to know whether higher or lower values of {column:?} are better: --max {column} or --min {column} says it"
    )]
    NoDirection {
        /// The column.
        column: String,
    },
}

/// What was drawn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drawn {
    /// The files, an SVG, a PNG and a PDF for each figure.
    pub files: Vec<PathBuf>,
    /// What was not drawn, and why.
    pub left_out: Vec<String>,
}

/// Points of a roofline that can be named; more are told apart by chip alone.
const MOST_NAMED: usize = 8;
/// Roofs that can be told apart; of more only that of each chip's fastest point is drawn.
const MOST_ROOFS: usize = 12;
/// Points in one bar chart; of more only the best of each value of the first axis are shown.
const MOST_BARS: usize = 40;

/// The status of a row that is proven.
const PROVEN: &str = "optimal";

/// Draws every figure of a study's results into `folder`.
///
/// # Errors
/// [`FigureError`] when the table is not the results of a study, or a file cannot be written.
pub fn draw_study(table: &Table, folder: &Path) -> Result<Drawn, FigureError> {
    let results = Results::new(table)?;
    let mut drawn = Drawn::default();
    // A search solves what its own front needs: of other columns, and of whole rows of the grid, it knows nothing.
    let searched = searched(table);
    let mut figures = Vec::new();
    for (stem, column, label) in [("pareto-cost", "cost_usd", "price ($)"), ("pareto-power", "power_w", "power (W)")] {
        let asked =
            |aims: &Vec<String>| ["samples_per_s", column].iter().all(|name| aims.iter().any(|aim| aim == name));
        figures.push(match &searched {
            Some(aims) if !asked(aims) => Figure::LeftOut(format!("{stem}: the search was for another front")),
            _ => results.pareto(stem, column, label, folder)?,
        });
    }
    let (all, plain) = (results.all(), Style::default());
    if searched.is_some() {
        figures.push(Figure::LeftOut("heat map and bars: a search solves some points of each row of the grid".into()));
    } else {
        figures.extend(heatmaps::draw(&results, folder)?);
        figures.push(results.bars(&all, &folder.join("bars"), &plain, &[])?);
    }
    figures.extend([results.partitions(folder)?, results.roofline(&all, &folder.join("roofline"), &plain, &[])?]);
    for figure in figures {
        match figure {
            Figure::Files(files) => drawn.files.extend(files),
            Figure::LeftOut(reason) => drawn.left_out.push(reason),
        }
    }
    Ok(drawn)
}

/// The columns of the objectives, where a search of the front made the table.
fn searched(table: &Table) -> Option<Vec<String>> {
    let manifest = Manifest::beside(&table.path).ok()?;
    let proof = front::proof(&table.path, manifest.as_ref()).ok()?;
    let aims = proof.get("objectives")?.as_array()?;
    Some(aims.iter().filter_map(|aim| aim.as_str()?.split(' ').next_back().map(str::to_string)).collect())
}

/// Draws every figure of a study's results, and the further ones it asks for; one that cannot be drawn keeps no other back.
///
/// # Errors
/// Like [`draw_study`].
pub fn draw_all(table: &Table, further: &[FigureSpec], folder: &Path) -> Result<Drawn, FigureError> {
    let mut drawn = draw_study(table, folder)?;
    draw_further(table, further, folder, &mut drawn)?;
    Ok(drawn)
}

/// Draws the fronts of several tables put together, over price and over power, and further figures.
///
/// # Errors
/// Like [`draw_figure`].
pub fn draw_overlaid(table: &Table, further: &[FigureSpec], folder: &Path) -> Result<Drawn, FigureError> {
    table.axes()?;
    let name = |text: &str| Some(crate::spec::read::Name(text.to_string()));
    let mut drawn = Drawn::default();
    let front = |stem: &str, x: &str, label: &str| FigureSpec {
        name: name(stem),
        x: name(x),
        y: name("samples_per_s"),
        x_label: Some(label.to_string()),
        y_label: Some("throughput (samples/s)".into()),
        ..FigureSpec::of(FigureKind::Pareto)
    };
    let fronts = [
        front("pareto-cost-overlaid", "cost_usd", "price ($)"),
        front("pareto-power-overlaid", "power_w", "power (W)"),
    ];
    draw_further(table, &fronts, folder, &mut drawn)?;
    draw_further(table, further, folder, &mut drawn)?;
    Ok(drawn)
}

fn draw_further(table: &Table, further: &[FigureSpec], folder: &Path, drawn: &mut Drawn) -> Result<(), FigureError> {
    for figure in further {
        let stem = figure.stem();
        match draw_figure(table, figure, &folder.join(&stem)) {
            Ok(one) => {
                drawn.files.extend(one.files);
                drawn.left_out.extend(one.left_out.into_iter().map(|reason| format!("{stem}: {reason}")));
            }
            Err(FigureError::Plot(error)) => return Err(FigureError::Plot(error)),
            Err(error) => drawn.left_out.push(format!("{stem}: {error}")),
        }
    }
    Ok(())
}

/// Several tables as one, each row with the name of its own in a last column.
///
/// # Errors
/// A table that has that column already.
pub fn together(tables: Vec<Table>) -> Result<Table, FigureError> {
    if let Some(table) = tables.iter().find(|table| table.has(drawn::SOURCE)) {
        return Err(FigureError::Several(vec![format!(
            "{}: column {:?} is taken for the names of the tables that are drawn over each other; rename it",
            table.path.display(),
            drawn::SOURCE
        )]));
    }
    Ok(Table::together(tables, drawn::SOURCE))
}

enum Figure {
    Files(Vec<PathBuf>),
    LeftOut(String),
}

/// The columns that several figures need.
struct Results<'t> {
    table: &'t Table,
    axes: Vec<&'t str>,
    title: String,
    /// The first axis' label of each point: its group.
    groups: Vec<String>,
    /// The labels of each point, joined.
    labels: Vec<String>,
    throughput: Vec<f64>,
    status: Vec<&'t str>,
    /// What points without a plan are short of.
    short: Vec<&'t str>,
    workloads: Vec<&'t str>,
    gaps: Vec<f64>,
    /// Measured errors of predictions of the point's kind.
    bands: Vec<f64>,
}

impl<'t> Results<'t> {
    fn new(table: &'t Table) -> Result<Self, FigureError> {
        let axes = table.axes()?;
        let columns = axes.iter().map(|axis| table.texts(axis)).collect::<Result<Vec<_>, _>>()?;
        let groups = match columns.first() {
            Some(first) => first.iter().map(|label| (*label).to_string()).collect(),
            None => vec![String::new(); table.len()],
        };
        Ok(Self {
            table,
            title: table.texts("study")?.first().copied().unwrap_or_default().to_string(),
            labels: (0..table.len()).map(|row| joined(&columns, row)).collect(),
            groups,
            axes,
            throughput: numbers(table, "samples_per_s")?,
            status: table.texts("status")?,
            short: table.texts("short_of")?,
            workloads: table.texts("workload")?,
            gaps: numbers(table, "gap")?,
            bands: numbers(table, "error_band_pct")?,
        })
    }

    fn all(&self) -> Vec<usize> {
        (0..self.table.len()).collect()
    }

    /// Rows with a plan.
    fn mapped(&self) -> Vec<usize> {
        self.mapped_of(&self.all())
    }

    fn mapped_of(&self, rows: &[usize]) -> Vec<usize> {
        rows.iter().copied().filter(|row| self.throughput[*row].is_finite()).collect()
    }

    /// The row of the fastest point among `rows`; of equals the first.
    fn fastest(&self, rows: &[usize]) -> Option<usize> {
        rows.iter()
            .copied()
            .filter(|row| self.throughput[*row].is_finite())
            .reduce(|best, row| if self.throughput[row] > self.throughput[best] { row } else { best })
    }

    /// The fastest row of each group, in the order of the groups; `group_of` numbers the group of each of `rows`.
    fn fastest_each(&self, rows: &[usize], group_of: &[usize]) -> Vec<usize> {
        let mut members: Vec<Vec<usize>> = Vec::new();
        for (row, group) in rows.iter().zip(group_of) {
            members.resize(members.len().max(group + 1), Vec::new());
            members[*group].push(*row);
        }
        members.iter().filter_map(|rows| self.fastest(rows)).collect()
    }

    /// What a front is drawn of: workloads compete each with itself.
    fn class(&self, row: usize) -> &str {
        if self.several() { self.workloads[row] } else { "" }
    }

    /// Whether there are points of several workloads.
    fn several(&self) -> bool {
        self.workloads.iter().any(|workload| *workload != self.workloads[0])
    }

    /// The points without a plan by reason, each with its value of a column.
    fn missing(&self, x: &[f64], rows: &[usize]) -> Vec<Missing> {
        let rows: Vec<usize> = rows.iter().copied().filter(|row| !self.throughput[*row].is_finite()).collect();
        let (of, reasons) = slots(rows.iter().map(|row| self.note(*row)).collect());
        let mut found: Vec<Missing> = reasons.into_iter().map(|reason| Missing { reason, x: Vec::new() }).collect();
        rows.iter().zip(of).for_each(|(row, reason)| found[reason].x.push(x[*row]));
        found
    }

    /// The same as a remark.
    fn missing_note(&self, rows: &[usize]) -> Vec<String> {
        let each: Vec<String> = self
            .missing(&vec![f64::NAN; self.table.len()], rows)
            .iter()
            .map(|m| format!("{} {}", m.x.len(), m.reason))
            .collect();
        if each.is_empty() { each } else { vec![format!("Without a plan: {}.", each.join(", "))] }
    }

    /// The value of a column at the bound that a search did not rule out; of columns that move with the time of an iteration.
    fn reach(&self, row: usize, column: &str, value: f64) -> Option<f64> {
        let gap = self.gaps[row];
        let rate = column == "utilization" || column.contains("_per_s");
        match self.status[row] {
            PROVEN => None,
            _ if !(0.0..1.0).contains(&gap) => None,
            _ if rate => Some(value / (1.0 - gap)),
            _ if column == "iteration_s" => Some(value * (1.0 - gap)),
            _ => None,
        }
    }

    fn pareto(&self, stem: &str, column: &str, label: &str, folder: &Path) -> Result<Figure, FigureError> {
        let x = numbers(self.table, column)?;
        if self.mapped().iter().all(|row| !x[*row].is_finite()) {
            return Ok(Figure::LeftOut(format!("{stem}: no point with a plan has a number in column {column:?}")));
        }
        let points = self.mapped().into_iter().map(|row| Point {
            label: self.labels[row].clone(),
            group: if self.several() { self.workloads[row].to_string() } else { self.groups[row].clone() },
            class: self.class(row).to_string(),
            x: x[row],
            y: self.throughput[row],
            open: self.status[row] != PROVEN,
            reach: self.reach(row, "samples_per_s", self.throughput[row]),
            unvalidated: self.unvalidated(row),
            ..Point::default()
        });
        let chart = ParetoChart {
            title: self.title.clone(),
            x_label: label.to_string(),
            y_label: "throughput (samples/s)".into(),
            x_better: direction(column, None)?,
            y_better: direction("samples_per_s", None)?,
            points: points.collect(),
            missing: self.missing(&x, &self.all()),
            class_name: "workload".into(),
            ..ParetoChart::default()
        };
        Ok(Figure::Files(chart.draw(&folder.join(stem))?))
    }

    /// Whether a point is of a kind that no measurement backs, in results that say so of some.
    fn unvalidated(&self, row: usize) -> bool {
        self.throughput[row].is_finite()
            && !self.bands[row].is_finite()
            && self.bands.iter().any(|band| band.is_finite())
    }

    /// What each point spends a layer's time on.
    fn bars(&self, rows: &[usize], stem: &Path, style: &Style, remarks: &[String]) -> Result<Figure, FigureError> {
        let mut shown = self.mapped_of(rows);
        if shown.len() > MOST_BARS {
            let (group_of, _) = slots(shown.iter().map(|row| self.groups[*row].clone()).collect());
            shown = self.fastest_each(&shown, &group_of);
            shown.truncate(MOST_BARS);
        }
        let parts = PARTS.map(|(_, column, _)| numbers(self.table, column));
        let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
        let busy = |row: usize| parts.iter().map(|part| part[row]).sum::<f64>();
        let whole = shown.len();
        shown.retain(|row| busy(*row).is_finite());
        if shown.is_empty() {
            return Ok(Figure::LeftOut("bars: no point has the parts of a layer's time".into()));
        }
        let mut notes = [remarks, &self.missing_note(rows)].concat();
        if whole < self.mapped_of(rows).len() {
            notes.push(format!("Shown: the fastest of each {}.", self.axes.first().copied().unwrap_or("group")));
        }
        let limits = self.table.texts("bottleneck")?;
        let chart = StackedBars {
            title: self.title.clone(),
            x_label: self.axes.join(" / "),
            y_label: "share of busy time".into(),
            categories: shown.iter().map(|row| self.labels[*row].clone()).collect(),
            series: PARTS
                .iter()
                .zip(&parts)
                .map(|((name, _, _), part)| Series {
                    name: (*name).to_string(),
                    values: shown.iter().map(|row| part[*row] / busy(*row)).collect(),
                })
                .collect(),
            marked: shown.iter().map(|row| PARTS.iter().position(|(_, _, word)| *word == limits[*row])).collect(),
            notes,
            log: false,
        };
        Ok(Figure::Files(chart.draw_in(stem, style)?))
    }

    /// What each partition of the fastest point spends its time on.
    fn partitions(&self, folder: &Path) -> Result<Figure, FigureError> {
        let Some(best) = self.fastest(&self.mapped()) else {
            return Ok(Figure::LeftOut("bars of partitions: no point has a plan".into()));
        };
        let kernels: Vec<&str> = self.table.texts("fusion_mapping")?[best].split(BETWEEN_PARTITIONS).collect();
        let times: Vec<Vec<f64>> = self.table.texts("partition_times_s")?[best]
            .split(BETWEEN_PARTITIONS)
            .map(|partition| partition.split('/').map(|t| t.parse().unwrap_or(f64::NAN)).collect())
            .collect();
        if !times.iter().flatten().any(|t| t.is_finite()) {
            return Ok(Figure::LeftOut("bars of partitions: the fastest point has no partitions".into()));
        }
        let part = |times: &Vec<f64>, i: usize| times.get(i).copied().unwrap_or(f64::NAN);
        let most = times.iter().flatten().copied().filter(|t| t.is_finite()).fold(0.0, f64::max);
        let (unit, factor) =
            [("s", 1.0), ("ms", 1e3), ("us", 1e6)].into_iter().find(|(_, f)| most * f >= 1.0).unwrap_or(("ns", 1e9));
        let chart = StackedBars {
            title: format!("{}: {}", self.title, self.labels[best]),
            x_label: "partition".into(),
            y_label: format!("busy time of a layer pass ({unit})"),
            categories: (0..times.len())
                .map(|i| format!("{}: {}", i + 1, brief(kernels.get(i).copied().unwrap_or_default())))
                .collect(),
            series: PARTS
                .iter()
                .enumerate()
                .map(|(i, (name, _, _))| Series {
                    name: (*name).to_string(),
                    values: times.iter().map(|t| part(t, i) * factor).collect(),
                })
                .collect(),
            marked: times
                .iter()
                .map(|t| (0..PARTS.len()).reduce(|a, b| if part(t, b) > part(t, a) { b } else { a }))
                .collect(),
            notes: Vec::new(),
            log: false,
        };
        Ok(Figure::Files(chart.draw(&folder.join("bars-partitions"))?))
    }

    /// One chip's work on a layer under the roofs of its matrix peak and its memory.
    fn roofline(&self, rows: &[usize], stem: &Path, style: &Style, remarks: &[String]) -> Result<Figure, FigureError> {
        let column = |name: &str| numbers(self.table, name);
        let (flop, bytes, seconds) = (column("layer_flop")?, column("layer_dram_bytes")?, column("layer_s")?);
        let (peaks, bandwidths) = (column("peak_flop_per_s")?, column("dram_bytes_per_s")?);
        let (chips, memories) = (self.table.texts("chip_name")?, self.table.texts("memory_name")?);
        let mut mapped = self.mapped_of(rows);
        mapped.retain(|row| drawable(flop[*row] / bytes[*row], true) && drawable(flop[*row] / seconds[*row], true));
        if mapped.is_empty() {
            return Ok(Figure::LeftOut("roofline: no point has work, traffic and time of a layer".into()));
        }
        let roofs_of = |rows: &[usize]| {
            let mut roofs: Vec<Roof> = Vec::new();
            for row in rows {
                let (peak_y, slope) = (peaks[*row], bandwidths[*row]);
                let roof = Roof { chip: chips[*row].to_string(), memory: memories[*row].to_string(), peak_y, slope };
                // One more than fit is enough to know that they do not.
                if roofs.len() <= MOST_ROOFS && !roofs.contains(&roof) {
                    roofs.push(roof);
                }
            }
            roofs
        };
        let mut notes = [remarks, &self.missing_note(rows)].concat();
        let mut roofs = roofs_of(&mapped);
        if roofs.len() > MOST_ROOFS {
            let (chip_of, _) = slots(mapped.iter().map(|row| chips[*row].to_string()).collect());
            roofs = roofs_of(&self.fastest_each(&mapped, &chip_of));
            roofs.truncate(MOST_ROOFS);
            notes.push("Roofs: those of each chip's fastest point.".into());
        }
        let points = mapped.iter().map(|row| RoofPoint {
            label: if mapped.len() > MOST_NAMED { String::new() } else { self.labels[*row].clone() },
            chip: chips[*row].to_string(),
            memory: memories[*row].to_string(),
            x: flop[*row] / bytes[*row],
            y: flop[*row] / seconds[*row],
        });
        let chart = Roofline {
            title: self.title.clone(),
            x_label: "operational intensity (FLOP/byte of DRAM)".into(),
            y_label: "FLOP/s of one chip".into(),
            points: points.collect(),
            roofs,
            notes,
        };
        Ok(Figure::Files(chart.draw_in(stem, style)?))
    }
}

/// Parts of a layer's time: name in figures, column, word in `bottleneck`.
const PARTS: [(&str, &str, &str); 4] = [
    ("compute", "compute_s", "compute"),
    ("DRAM", "dram_s", "dram"),
    ("network", "network_s", "network"),
    ("overhead", "overhead_s", "overhead"),
];

/// A column of numbers that may be empty in every row (no point has a plan).
fn numbers(table: &Table, column: &str) -> Result<Vec<f64>, TableError> {
    match table.numbers(column) {
        Err(TableError::Empty { .. }) => Ok(vec![f64::NAN; table.len()]),
        other => other,
    }
}

/// The kernels of a partition as a label: of many the first and the last.
fn brief(kernels: &str) -> String {
    let names: Vec<&str> = kernels.split('+').collect();
    match names.as_slice() {
        [first, _, .., last] => format!("{first} ... {last} ({} kernels)", names.len()),
        _ => kernels.replace('+', ", "),
    }
}

fn joined(columns: &[Vec<&str>], row: usize) -> String {
    // Tables put together lack labels on the axes of the others.
    columns.iter().map(|column| column[row]).filter(|label| !label.is_empty()).collect::<Vec<_>>().join(" / ")
}

/// The distinct labels in order of appearance, and the number of each row's.
fn slots(labels: Vec<String>) -> (Vec<usize>, Vec<String>) {
    let mut number: HashMap<String, usize> = HashMap::new();
    let mut distinct: Vec<String> = Vec::new();
    let of = labels
        .into_iter()
        .map(|label| {
            *number.entry(label).or_insert_with_key(|label| {
                distinct.push(label.clone());
                distinct.len() - 1
            })
        })
        .collect();
    (of, distinct)
}

/// Which values of a column are better: as is stated, else as the column says.
fn direction(column: &str, stated: Option<Better>) -> Result<Better, FigureError> {
    stated.or_else(|| better(column)).ok_or_else(|| FigureError::NoDirection { column: column.to_string() })
}

mod asked;
mod drawn;
mod heatmaps;
mod volume;

#[cfg(test)]
mod tests;
