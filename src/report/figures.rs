//! The figures of a study, drawn from its `results.csv` alone.

use super::csv::{BETWEEN_PARTITIONS, better};
use super::plot::{
    Better, ParetoChart, PlotError, Point, Roof, RoofPoint, Roofline, Scale, Series, StackedBars, Width, XValue,
    XyChart, XyPoint, drawable,
};
use super::table::{Table, TableError};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

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
    /// The files, an SVG and a PNG for each figure.
    pub files: Vec<PathBuf>,
    /// What was not drawn, and why.
    pub left_out: Vec<String>,
}

/// Bars whose labels fit under a figure of one column.
const COLUMN_BARS: usize = 6;
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
    let mut figures = vec![
        results.pareto("pareto-cost", "cost_usd", "price ($)", folder)?,
        results.pareto("pareto-power", "power_w", "power (W)", folder)?,
    ];
    figures.extend(heatmaps::draw(&results, folder)?);
    figures.extend([results.bars(folder)?, results.partitions(folder)?, results.roofline(folder)?]);
    for figure in figures {
        match figure {
            Figure::Files(files) => drawn.files.extend(files),
            Figure::LeftOut(reason) => drawn.left_out.push(reason),
        }
    }
    Ok(drawn)
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
        })
    }

    /// Rows with a plan.
    fn mapped(&self) -> Vec<usize> {
        (0..self.table.len()).filter(|row| self.throughput[*row].is_finite()).collect()
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

    fn pareto(&self, stem: &str, column: &str, label: &str, folder: &Path) -> Result<Figure, FigureError> {
        let x = numbers(self.table, column)?;
        let points = self.mapped().into_iter().map(|row| Point {
            label: self.labels[row].clone(),
            group: self.groups[row].clone(),
            x: x[row],
            y: self.throughput[row],
            proven: self.status[row] == PROVEN,
        });
        let chart = ParetoChart {
            title: self.title.clone(),
            x_label: label.to_string(),
            y_label: "throughput (samples/s)".into(),
            x_better: direction(column, None)?,
            y_better: direction("samples_per_s", None)?,
            points: points.collect(),
            x_scale: Scale::Auto,
            y_scale: Scale::Auto,
        };
        Ok(Figure::Files(chart.draw(&folder.join(stem))?))
    }

    /// What each point spends a layer's time on.
    fn bars(&self, folder: &Path) -> Result<Figure, FigureError> {
        let mut shown = self.mapped();
        if shown.len() > MOST_BARS {
            let (group_of, _) = slots(shown.iter().map(|row| self.groups[*row].clone()).collect());
            shown = self.fastest_each(&shown, &group_of);
            shown.truncate(MOST_BARS);
        }
        let parts = PARTS.map(|(_, column, _)| numbers(self.table, column));
        let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
        let busy = |row: usize| parts.iter().map(|part| part[row]).sum::<f64>();
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
            log: false,
        };
        let width = if shown.len() > COLUMN_BARS { Width::Full } else { Width::Auto };
        Ok(Figure::Files(chart.draw_at(&folder.join("bars"), width)?))
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
            log: false,
        };
        Ok(Figure::Files(chart.draw(&folder.join("bars-partitions"))?))
    }

    /// One chip's work on a layer under the roofs of its matrix peak and its memory.
    fn roofline(&self, folder: &Path) -> Result<Figure, FigureError> {
        let column = |name: &str| numbers(self.table, name);
        let (flop, bytes, seconds) = (column("layer_flop")?, column("layer_dram_bytes")?, column("layer_s")?);
        let (peaks, bandwidths) = (column("peak_flop_per_s")?, column("dram_bytes_per_s")?);
        let (chips, memories) = (self.table.texts("chip_name")?, self.table.texts("memory_name")?);
        let mapped = self.mapped();
        let roofs_of = |rows: &[usize]| {
            let mut roofs: Vec<Roof> = Vec::new();
            for row in rows {
                let (peak_y, slope, group) = (peaks[*row], bandwidths[*row], chips[*row].to_string());
                let roof = Roof { label: format!("{group}, {}", memories[*row]), peak_y, slope, group };
                // One more than fit is enough to know that they do not.
                if roofs.len() <= MOST_ROOFS && !roofs.contains(&roof) {
                    roofs.push(roof);
                }
            }
            roofs
        };
        let mut roofs = roofs_of(&mapped);
        if roofs.len() > MOST_ROOFS {
            let (chip_of, _) = slots(mapped.iter().map(|row| chips[*row].to_string()).collect());
            roofs = roofs_of(&self.fastest_each(&mapped, &chip_of));
            roofs.truncate(MOST_ROOFS);
        }
        let points = mapped.iter().map(|row| RoofPoint {
            label: if mapped.len() > MOST_NAMED { String::new() } else { self.labels[*row].clone() },
            group: chips[*row].to_string(),
            x: flop[*row] / bytes[*row],
            y: flop[*row] / seconds[*row],
        });
        let chart = Roofline {
            title: self.title.clone(),
            x_label: "operational intensity (FLOP/byte of DRAM)".into(),
            y_label: "FLOP/s of one chip".into(),
            points: points.collect(),
            roofs,
        };
        Ok(Figure::Files(chart.draw(&folder.join("roofline"))?))
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
    columns.iter().map(|column| column[row]).collect::<Vec<_>>().join(" / ")
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

/// Which chart of two columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Points.
    Scatter,
    /// Points of a group joined in the order of x.
    Line,
    /// Points with the front of those that no other beats.
    Pareto,
}

/// Two columns to be drawn against each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Column of the horizontal axis: numbers or names.
    pub x: String,
    /// Column of the vertical axis: numbers.
    pub y: String,
    /// Column whose distinct values are the groups.
    pub group: Option<String>,
    /// Logarithmic horizontal axis.
    pub log_x: bool,
    /// Logarithmic vertical axis.
    pub log_y: bool,
    /// Which chart.
    pub kind: Kind,
    /// What is better in x, where not what its column says.
    pub x_better: Option<Better>,
    /// What is better in y, where not what its column says.
    pub y_better: Option<Better>,
}

/// Draws two columns of any table.
///
/// # Errors
/// [`FigureError`] for unknown columns, columns without numbers, and files that cannot be written.
pub fn draw_pair(table: &Table, pair: &Pair, stem: &Path) -> Result<Drawn, FigureError> {
    let y = table.numbers(&pair.y)?;
    let names = table.texts(&pair.x)?;
    let groups = match &pair.group {
        Some(column) => table.texts(column)?,
        None => vec![""; table.len()],
    };
    let numbers_of_x = table.numbers(&pair.x).ok();
    if table.is_empty() {
        return Err(FigureError::NoRows);
    }
    let shown =
        |row: usize| drawable(y[row], pair.log_y) && numbers_of_x.as_ref().is_none_or(|x| drawable(x[row], pair.log_x));
    let hidden = (0..table.len()).filter(|row| !shown(*row)).count();
    if hidden == table.len() {
        return Err(FigureError::Nothing);
    }
    let left_out = (hidden > 0).then(|| {
        let zero = if pair.log_x || pair.log_y { ", or one that is not above zero on a log axis" } else { "" };
        format!(
            "{hidden} of {} rows, which lack a number between -1e150 and 1e150 in one of the columns{zero}",
            table.len()
        )
    });
    let drawn = |files: Vec<PathBuf>| Drawn { files, left_out: left_out.into_iter().collect() };
    let scale = |log: bool| if log { Scale::Log } else { Scale::Auto };
    let (x_label, y_label) = (pair.x.clone(), pair.y.clone());
    if pair.kind == Kind::Pareto {
        let x = table.numbers(&pair.x)?;
        let (x_better, y_better) = (direction(&pair.x, pair.x_better)?, direction(&pair.y, pair.y_better)?);
        // The axes of a study name its points; in other tables the group does.
        let labels = match table.axes() {
            Ok(axes) => {
                let columns = axes.iter().map(|axis| table.texts(axis)).collect::<Result<Vec<_>, _>>()?;
                (0..table.len()).map(|row| joined(&columns, row)).collect()
            }
            Err(_) => groups.iter().map(|group| (*group).to_string()).collect::<Vec<_>>(),
        };
        let status = table.texts("status").ok().filter(|_| table.axes().is_ok());
        let points = (0..table.len()).filter(|row| x[*row].is_finite() && y[*row].is_finite()).map(|row| Point {
            label: labels[row].clone(),
            group: groups[row].to_string(),
            x: x[row],
            y: y[row],
            // A table without a status says nothing of its points.
            proven: status.as_ref().is_none_or(|status| status[row] == PROVEN),
        });
        let chart = ParetoChart {
            title: String::new(),
            x_label,
            y_label,
            x_better,
            y_better,
            points: points.collect(),
            x_scale: scale(pair.log_x),
            y_scale: scale(pair.log_y),
        };
        return Ok(drawn(chart.draw(stem)?));
    }
    let is_number = names.iter().all(|text| text.trim().is_empty() || text.trim().parse::<f64>().is_ok());
    let numeric = if is_number || pair.log_x { Some(table.numbers(&pair.x)?) } else { None };
    let x = |row: usize| match &numeric {
        Some(numbers) => XValue::Number(numbers[row]),
        None => XValue::Text(names[row].to_string()),
    };
    let points = (0..table.len()).map(|row| XyPoint { group: groups[row].to_string(), x: x(row), y: y[row] });
    let chart = XyChart {
        title: String::new(),
        x_label,
        y_label,
        points: points.collect(),
        lines: pair.kind == Kind::Line,
        x_scale: scale(pair.log_x),
        y_scale: scale(pair.log_y),
    };
    Ok(drawn(chart.draw(stem)?))
}

/// Which values of a column are better: as is stated, else as the column says.
fn direction(column: &str, stated: Option<Better>) -> Result<Better, FigureError> {
    stated.or_else(|| better(column)).ok_or_else(|| FigureError::NoDirection { column: column.to_string() })
}

mod heatmaps;

#[cfg(test)]
mod tests;
