//! The heat maps of a study: the ones it asks for, else the first half of its axes against the other.

use super::super::csv::{FAILED, INFEASIBLE};
use super::super::plot::{Heatmap, HeatmapPanels, Panel, Scale};
use super::super::table::TableError;
use super::{Figure, FigureError, Results, numbers, slots};
use std::path::Path;

/// Rows and columns of a heat map that can still be read.
pub(super) const MOST_ROWS: usize = 80;
pub(super) const MOST_COLS: usize = 60;
/// Panels in one figure, and figures of one study.
const MOST_PANELS: usize = 24;
const MOST_FIGURES: usize = 24;

/// What the study asks for: names of axes, and of columns of values.
struct Asked<'t> {
    rows: Vec<&'t str>,
    cols: Vec<&'t str>,
    values: Vec<&'t str>,
    panels: Vec<&'t str>,
    figures: Vec<&'t str>,
}

/// The combinations of some axes' labels: of each row of the table the number of its own, and the labels of each.
struct Groups {
    of: Vec<usize>,
    labels: Vec<Vec<String>>,
}

/// Draws them all.
pub(super) fn draw(results: &Results<'_>, folder: &Path) -> Result<Vec<Figure>, FigureError> {
    let asked = asked(results)?;
    let rows = groups(results, &asked.rows)?;
    let cols = groups(results, &asked.cols)?;
    let (height, width) = (rows.labels.len(), cols.labels.len());
    if height > MOST_ROWS || width > MOST_COLS {
        return Ok(vec![Figure::LeftOut(format!(
            "heat map of {height} x {width} cells: more than {MOST_ROWS} x {MOST_COLS} cannot be read; choose its axes under plots"
        ))]);
    }
    let panels = groups(results, &asked.panels)?;
    let figures = groups(results, &asked.figures)?;
    for (what, found, most) in [
        ("panels", panels.labels.len(), MOST_PANELS),
        ("figures", figures.labels.len() * asked.values.len(), MOST_FIGURES),
    ] {
        if found > most {
            let reason = format!("heat maps of {found} {what}: more than {most}; choose other axes under plots");
            return Ok(vec![Figure::LeftOut(reason)]);
        }
    }
    let mut drawn = Vec::new();
    for value in &asked.values {
        let all = numbers(results.table, value)?;
        // Points without a plan are a figure; plans without the value are none.
        let planned = |row: usize| ![INFEASIBLE, FAILED].contains(&results.status[row]);
        if all.iter().all(|value| !value.is_finite()) && (0..all.len()).any(planned) {
            drawn.push(Figure::LeftOut(format!("heat map: no point has a number in column {value:?}")));
            continue;
        }
        for (f, figure) in figures.labels.iter().enumerate() {
            let mut grids: Vec<Vec<Vec<Vec<usize>>>> = vec![vec![vec![Vec::new(); width]; height]; panels.labels.len()];
            for row in (0..results.table.len()).filter(|row| figures.of[*row] == f) {
                grids[panels.of[row]][rows.of[row]][cols.of[row]].push(row);
            }
            let panels = panels.labels.iter().zip(&grids).map(|(title, grid)| panel(results, &all, title, grid));
            let plain = asked.panels.is_empty() && asked.rows.len() < 2 && asked.cols.len() < 2;
            let of = asked.figures.iter().zip(figure).map(|(axis, label)| format!("{axis}: {label}"));
            let title = std::iter::once(results.title.clone()).chain(of).filter(|part| !part.is_empty());
            let title = title.collect::<Vec<_>>().join(", ");
            let stem = std::iter::once(format!("heatmap-{value}")).chain(figure.iter().map(|label| file_name(label)));
            let stem = folder.join(stem.collect::<Vec<_>>().join("-"));
            let files = if plain {
                let panel = panels.into_iter().next().unwrap_or_default();
                one(&asked, &rows, &cols, value, title, panel).draw(&stem)?
            } else {
                HeatmapPanels {
                    title,
                    rows: rows.labels.clone(),
                    cols: cols.labels.clone(),
                    row_title: asked.rows.join(" / "),
                    col_title: asked.cols.join(" / "),
                    value_label: value_label(value),
                    // A share is compared by difference, anything else that spans decades by ratio.
                    scale: if *value == "utilization" { Scale::Linear } else { Scale::Auto },
                    panels: panels.collect(),
                }
                .draw(&stem)?
            };
            drawn.push(Figure::Files(files));
        }
    }
    Ok(drawn)
}

fn asked<'t>(results: &Results<'t>) -> Result<Asked<'t>, TableError> {
    let text = results.table.texts("heatmap")?.first().copied().unwrap_or_default();
    let parts: Vec<Vec<&str>> = text.split(';').map(names).collect();
    let part = |i: usize| parts.get(i).cloned().unwrap_or_default();
    if parts.len() >= 3 && !part(2).is_empty() {
        return Ok(Asked { rows: part(0), cols: part(1), values: part(2), panels: part(3), figures: part(4) });
    }
    let (rows, cols) = results.axes.split_at(results.axes.len().div_ceil(2));
    let (rows, cols) = (rows.to_vec(), cols.to_vec());
    Ok(Asked { rows, cols, values: vec!["utilization"], panels: Vec::new(), figures: Vec::new() })
}

fn groups(results: &Results<'_>, axes: &[&str]) -> Result<Groups, TableError> {
    if axes.is_empty() {
        return Ok(Groups { of: vec![0; results.table.len()], labels: vec![Vec::new()] });
    }
    let columns = axes.iter().map(|axis| results.table.texts(axis)).collect::<Result<Vec<_>, _>>()?;
    // The labels of axes are one line each, so that a line break parts them without doubt.
    let text = |row: usize| columns.iter().map(|column| column[row]).collect::<Vec<_>>().join("\n");
    let (of, distinct) = slots((0..results.table.len()).map(text).collect());
    let mut order: Vec<usize> = (0..distinct.len()).collect();
    // Study order of the outer axes first, so that what belongs together stands together.
    let position: Vec<Vec<usize>> = distinct.iter().map(|label| place(&columns, label)).collect();
    order.sort_by(|a, b| position[*a].cmp(&position[*b]));
    let mut rank = vec![0; distinct.len()];
    order.iter().enumerate().for_each(|(new, old)| rank[*old] = new);
    let labels = order.iter().map(|old| distinct[*old].split('\n').map(str::to_string).collect()).collect();
    Ok(Groups { of: of.into_iter().map(|old| rank[old]).collect(), labels })
}

/// For each axis the row in which its label first stands.
fn place(columns: &[Vec<&str>], label: &str) -> Vec<usize> {
    let parts = label.split('\n');
    columns.iter().zip(parts).map(|(column, part)| column.iter().position(|text| *text == part).unwrap_or(0)).collect()
}

fn panel(results: &Results<'_>, values: &[f64], title: &[String], grid: &[Vec<Vec<usize>>]) -> Panel {
    let cell = |rows: &Vec<usize>| results.fastest(rows).map(|row| values[row]);
    let note = |rows: &Vec<usize>| rows.first().map(|row| results.note(*row));
    Panel {
        title: title.join(", "),
        cells: grid.iter().map(|row| row.iter().map(cell).collect()).collect(),
        notes: grid.iter().map(|row| row.iter().map(note).collect()).collect(),
    }
}

impl Results<'_> {
    /// What an empty cell says.
    pub(super) fn note(&self, row: usize) -> String {
        match self.status[row] {
            INFEASIBLE => self.short.get(row).copied().unwrap_or_default().to_string(),
            FAILED => FAILED.to_string(),
            _ => String::new(),
        }
    }
}

fn one(asked: &Asked<'_>, rows: &Groups, cols: &Groups, value: &str, title: String, panel: Panel) -> Heatmap {
    let joined = |labels: &[Vec<String>]| labels.iter().map(|label| label.join(" / ")).collect();
    Heatmap {
        title,
        rows: joined(&rows.labels),
        cols: joined(&cols.labels),
        row_title: asked.rows.join(" / "),
        col_title: asked.cols.join(" / "),
        value_label: value.to_string(),
        cells: panel.cells,
        notes: panel.notes,
        remarks: Vec::new(),
    }
}

/// A column as a title of colours; `{}` takes the prefix of the unit.
fn value_label(column: &str) -> String {
    match column {
        "utilization" => "utilisation".into(),
        "flop_per_s" => "{}FLOP/s".into(),
        "flop_per_s_per_usd" => "{}FLOP/s per $".into(),
        "flop_per_s_per_w" => "{}FLOP/s per W".into(),
        "samples_per_s" => "{} samples/s".into(),
        other => other.into(),
    }
}

/// A label as part of a file's name.
pub(super) fn file_name(label: &str) -> String {
    label.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}

fn names(joined: &str) -> Vec<&str> {
    joined.split('+').filter(|name| !name.is_empty()).collect()
}
