//! Drawing a figure that was asked for, from any table.

use super::super::columns::titled;
use super::super::csv::TRAILING;
use super::super::plot::{
    Better, Dimension, Heatmap, Lever, MatrixPoint, Parallel, ParallelAxis, ParallelLine, ParetoChart, Point, Scale,
    ScatterMatrix, Style, Third, Tornado, XValue, XyChart, XyPoint, drawable, front_of,
};
use super::super::table::{Table, TableError};
use super::asked::{FigureKind, FigureSpec, OrderWord};
use super::volume::{Growth, in_box};
use super::{Drawn, Figure, FigureError, PROVEN, Results, direction, slots};
use crate::spec::read::Name;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};

/// Column of tables put together: which one a row is from.
pub const SOURCE: &str = "source";
/// Columns of parallel coordinates and of a scatter matrix beside the axes.
const USUAL: [&str; 3] = ["cost_usd", "power_w", "samples_per_s"];
/// The order of finishing, beside the results of a study.
const TIMINGS: &str = "timings.csv";

/// A figure under way: the table, the rows it takes, and what there is to say below it.
struct Work<'t> {
    spec: &'t FigureSpec,
    table: &'t Table,
    rows: Vec<usize>,
    notes: Vec<String>,
    title: String,
    style: Style,
}

/// Draws the figure as `stem.svg`, `stem.png` and `stem.pdf`.
///
/// # Errors
/// [`FigureError`]: options that do not fit the kind, unknown columns, columns without numbers or without a known direction, values that
/// no row has, files that cannot be written. What is wrong with options and columns is said all at once.
pub fn draw_figure(table: &Table, spec: &FigureSpec, stem: &Path) -> Result<Drawn, FigureError> {
    let mut wrong: Vec<String> =
        spec.problems().into_iter().map(|(field, problem)| format!("{field}: {problem}")).collect();
    for (field, column) in spec.named() {
        if let Err(error) = table.texts(column) {
            wrong.push(if field == "x" || field == "y" || field == "group" {
                error.to_string()
            } else {
                format!("{field}: {error}")
            });
        }
    }
    wrong.dedup();
    if !wrong.is_empty() {
        return Err(FigureError::Several(wrong));
    }
    if table.is_empty() {
        return Err(FigureError::NoRows);
    }
    let mut work = Work::new(table, spec)?;
    match spec.kind {
        FigureKind::Scatter if spec.z.is_none() => work.xy(stem, false),
        FigureKind::Line => work.xy(stem, true),
        FigureKind::Scatter | FigureKind::Pareto => work.pareto(stem),
        FigureKind::Heatmap => work.heatmap(stem),
        FigureKind::Tornado => work.tornado(stem),
        FigureKind::Parallel => work.parallel(stem),
        FigureKind::Matrix => work.matrix(stem),
        FigureKind::Hypervolume => work.hypervolume(stem),
        FigureKind::Bars | FigureKind::Roofline => work.of_results(stem),
    }
}

impl FigureSpec {
    /// The name of its files.
    pub fn stem(&self) -> String {
        if let Some(name) = &self.name {
            return super::heatmaps::file_name(&name.0);
        }
        let of = |name: &Option<Name>| name.as_ref().map(|n| super::heatmaps::file_name(&n.0));
        let kind = self.kind.word();
        match (of(&self.x), of(&self.y), of(&self.z)) {
            (Some(x), Some(y), None) => format!("{kind}-{y}-over-{x}"),
            (Some(x), Some(y), Some(z)) => format!("{kind}-{z}-by-{y}-and-{x}"),
            (None, Some(y), None) => format!("{kind}-{y}"),
            _ => format!("{kind}-figure"),
        }
    }
}

fn name(of: &Option<Name>) -> &str {
    of.as_ref().map_or("", |name| name.0.as_str())
}

/// Texts in the order people expect: numbers in them by value.
fn natural(a: &str, b: &str) -> Ordering {
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    match (number(a), number(b)) {
        (Some(x), Some(y)) => x.total_cmp(&y).then(a.cmp(b)),
        _ => {
            let parts = |text: &str| -> Vec<(String, u64)> {
                let mut parts = vec![(String::new(), 0_u64)];
                for c in text.chars() {
                    match (c.to_digit(10), parts.last_mut()) {
                        (Some(digit), Some(last)) => {
                            last.1 = last.1.saturating_mul(10).saturating_add(u64::from(digit))
                        }
                        (None, Some(last)) if last.1 == 0 => last.0.push(c),
                        _ => parts.push((c.to_string(), 0)),
                    }
                }
                parts
            };
            parts(a).cmp(&parts(b)).then(a.cmp(b))
        }
    }
}

impl<'t> Work<'t> {
    fn new(table: &'t Table, spec: &'t FigureSpec) -> Result<Self, FigureError> {
        let mut rows: Vec<usize> = (0..table.len()).collect();
        let mut notes = Vec::new();
        // A tornado's base is one of the points, not all that are drawn.
        if spec.kind != FigureKind::Tornado {
            rows = fixed_rows(table, spec, rows)?;
            if !spec.fixed.0.is_empty() {
                let each: Vec<String> = spec.fixed.0.iter().map(|(c, v)| format!("{c} = {}", v.0)).collect();
                notes.push(format!("Fixed: {}.", each.join(", ")));
            }
        }
        let study = table.axes().ok().and_then(|_| table.texts("study").ok());
        let study = study.and_then(|study| study.first().map(|s| (*s).to_string())).unwrap_or_default();
        let overlaid = table.has(SOURCE);
        let title = match &spec.title {
            Some(title) => title.clone(),
            None if overlaid => String::new(),
            None => study,
        };
        Ok(Self { spec, table, rows, notes, title, style: spec.style() })
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, FigureError> {
        Ok(self.table.numbers(column)?)
    }

    fn label(&self, own: &Option<String>, column: &str) -> String {
        own.clone().unwrap_or_else(|| titled(column))
    }

    fn scale(log: Option<bool>) -> Scale {
        match log {
            Some(true) => Scale::Log,
            Some(false) => Scale::Linear,
            None => Scale::Auto,
        }
    }

    /// Which values of a column are better: as the figure says it, else as the column does.
    fn direction(&self, column: &str) -> Result<Better, FigureError> {
        direction(column, self.stated(column))
    }

    fn stated(&self, column: &str) -> Option<Better> {
        let has = |names: &[Name]| names.iter().any(|name| name.0 == column);
        match (has(&self.spec.max), has(&self.spec.min)) {
            (true, _) => Some(Better::Higher),
            (_, true) => Some(Better::Lower),
            _ => None,
        }
    }

    /// The group of each row of the table.
    fn groups(&self) -> Result<Vec<&'t str>, TableError> {
        match &self.spec.group {
            Some(column) => self.table.texts(&column.0),
            // Tables put together are told apart.
            None if self.table.has(SOURCE) => self.table.texts(SOURCE),
            None => Ok(vec![""; self.table.len()]),
        }
    }

    /// What each row competes with: its own front's class, and what classes are called.
    fn classes(&self) -> Result<(Vec<String>, String), TableError> {
        let mut columns = Vec::new();
        match &self.spec.fronts {
            Some(column) => columns.push(column.0.as_str()),
            None if self.table.axes().is_ok() => columns.push("workload"),
            None => {}
        }
        if self.table.has(SOURCE) {
            columns.push(SOURCE);
        }
        let texts = columns.iter().map(|c| self.table.texts(c)).collect::<Result<Vec<_>, _>>()?;
        // Only what differs among the rows that are drawn parts them.
        let differs = |t: &Vec<&str>| self.rows.iter().any(|row| t[*row] != t[self.rows[0]]);
        let kept: Vec<usize> = (0..columns.len()).filter(|i| !self.rows.is_empty() && differs(&texts[*i])).collect();
        let class = |row: usize| kept.iter().map(|i| texts[*i][row]).collect::<Vec<_>>().join(" / ");
        let called = kept.iter().map(|i| columns[*i]).collect::<Vec<_>>().join(" and ");
        Ok(((0..self.table.len()).map(class).collect(), called))
    }

    /// The axes' labels of each row; of tables without axes its group.
    fn labels(&self) -> Result<Vec<String>, TableError> {
        let groups = self.groups()?;
        let Ok(axes) = self.table.axes() else { return Ok(groups.iter().map(|g| (*g).to_string()).collect()) };
        let columns = axes.iter().map(|axis| self.table.texts(axis)).collect::<Result<Vec<_>, _>>()?;
        Ok((0..self.table.len()).map(|row| super::joined(&columns, row)).collect())
    }

    /// Puts the rows in the order asked for, by a name of each and a value.
    fn order(&mut self, names: &[Vec<&str>], value: &[f64], better: Option<Better>) {
        let by_name = |a: &usize, b: &usize| {
            names.iter().map(|n| natural(n[*a], n[*b])).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        };
        let turned = |row: &usize| better.unwrap_or(Better::Higher).turned(value[*row]);
        match self.spec.order {
            OrderWord::Table => {}
            OrderWord::Name => self.rows.sort_by(by_name),
            OrderWord::Value => self.rows.sort_by(|a, b| turned(a).total_cmp(&turned(b))),
        }
    }

    /// Of rows with the same key the best by a value, where it is known which is; said below the figure.
    fn best_of(&mut self, keys: &[Vec<&str>], value: &[f64], better: Option<Better>, column: &str, used: &[&str]) {
        let key = |row: usize| keys.iter().map(|k| k[row]).collect::<Vec<_>>().join("\n");
        let (of, distinct) = slots(self.rows.iter().map(|row| key(*row)).collect());
        let (Some(better), true) = (better, distinct.len() < self.rows.len()) else { return };
        let mut best: Vec<Option<usize>> = vec![None; distinct.len()];
        for (row, slot) in self.rows.iter().zip(of) {
            let nearer = |old: usize| better.turned(value[*row]) < better.turned(value[old]) || value[old].is_nan();
            if best[slot].is_none_or(nearer) {
                best[slot] = Some(*row);
            }
        }
        let before = std::mem::replace(&mut self.rows, best.into_iter().flatten().collect());
        let axes = self.table.axes().unwrap_or_default();
        let varied = axes.iter().filter(|axis| !used.contains(*axis)).filter(|axis| {
            let texts = self.table.texts(axis).unwrap_or_default();
            before.iter().any(|row| texts.get(*row) != texts.get(before[0]))
        });
        let varied: Vec<&str> = varied.copied().collect();
        let others = if varied.is_empty() { "rows that share a place".into() } else { varied.join(", ") };
        self.notes.push(format!("Of {others}: the best by {column} ({} is better).", better.word()));
    }

    fn left_out(&self, drawn: usize, log: bool) -> Option<String> {
        let hidden = self.rows.len() - drawn;
        let zero = if log { ", or one that is not above zero on a log axis" } else { "" };
        (hidden > 0).then(|| {
            format!(
                "{hidden} of {} rows, which lack a number between -1e150 and 1e150 in one of the columns{zero}",
                self.rows.len()
            )
        })
    }

    fn done(files: Vec<PathBuf>, left_out: Option<String>) -> Drawn {
        Drawn { files, left_out: left_out.into_iter().collect() }
    }

    fn xy(&mut self, stem: &Path, lines: bool) -> Result<Drawn, FigureError> {
        let (x_column, y_column) = (name(&self.spec.x), name(&self.spec.y));
        let y = self.numbers(y_column)?;
        let names = self.table.texts(x_column)?;
        let groups = self.groups()?;
        let (log_x, log_y) = (self.spec.log_x == Some(true), self.spec.log_y == Some(true));
        let is_number = names.iter().all(|text| text.trim().is_empty() || text.trim().parse::<f64>().is_ok());
        let numeric = if is_number || log_x { Some(self.numbers(x_column)?) } else { None };
        let better = self.direction(y_column).ok();
        if lines {
            let used = [x_column, name(&self.spec.group)];
            self.best_of(&[groups.clone(), names.clone()], &y, better, y_column, &used);
        }
        self.order(&[groups.clone(), names.clone()], &y, better);
        let shown = |row: &usize| drawable(y[*row], log_y) && numeric.as_ref().is_none_or(|x| drawable(x[*row], log_x));
        let drawn = self.rows.iter().filter(|row| shown(row)).count();
        if drawn == 0 {
            return Err(FigureError::Nothing);
        }
        let x = |row: usize| match &numeric {
            Some(numbers) => XValue::Number(numbers[row]),
            None => XValue::Text(names[row].to_string()),
        };
        let points = self.rows.iter().map(|row| XyPoint { group: groups[*row].to_string(), x: x(*row), y: y[*row] });
        let chart = XyChart {
            title: self.title.clone(),
            x_label: self.label(&self.spec.x_label, x_column),
            y_label: self.label(&self.spec.y_label, y_column),
            points: points.collect(),
            lines,
            steps: false,
            notes: self.notes.clone(),
            x_scale: Self::scale(self.spec.log_x),
            y_scale: Self::scale(self.spec.log_y),
        };
        Ok(Self::done(chart.draw_in(stem, &self.style)?, self.left_out(drawn, log_x || log_y)))
    }

    fn pareto(&mut self, stem: &Path) -> Result<Drawn, FigureError> {
        let (x_column, y_column) = (name(&self.spec.x), name(&self.spec.y));
        let (x, y) = (self.numbers(x_column)?, self.numbers(y_column)?);
        let z = self.spec.z.as_ref().map(|z| self.numbers(&z.0)).transpose()?;
        let (log_x, log_y) = (self.spec.log_x == Some(true), self.spec.log_y == Some(true));
        let no_front = self.spec.kind == FigureKind::Scatter;
        let direction = |column: &str| if no_front { Ok(Better::Lower) } else { self.direction(column) };
        let (x_better, y_better) = (direction(x_column)?, direction(y_column)?);
        let third = match &self.spec.z {
            Some(z) => Some(Third { label: titled(&z.0), better: direction(&z.0)? }),
            None => None,
        };
        let groups = self.groups()?;
        self.order(std::slice::from_ref(&groups), &y, Some(y_better));
        let shown = |row: &usize| {
            drawable(x[*row], log_x) && drawable(y[*row], log_y) && z.as_ref().is_none_or(|z| drawable(z[*row], false))
        };
        let drawn: Vec<usize> = self.rows.iter().copied().filter(|row| shown(row)).collect();
        if drawn.is_empty() {
            return Err(FigureError::Nothing);
        }
        let labels = self.labels()?;
        let (classes, class_name) = self.classes()?;
        let results = Results::new(self.table).ok();
        let status = self.table.texts("status").ok().filter(|_| results.is_some());
        let colored = self.spec.group.is_some() || self.table.has(SOURCE) || class_name.is_empty();
        let points = drawn.iter().map(|row| Point {
            label: labels[*row].clone(),
            group: if colored { groups[*row].to_string() } else { classes[*row].clone() },
            class: classes[*row].clone(),
            x: x[*row],
            y: y[*row],
            z: z.as_ref().map_or(0.0, |z| z[*row]),
            // A table without a status says nothing of its points.
            open: status.as_ref().is_some_and(|status| status[*row] != PROVEN),
            reach: results.as_ref().and_then(|r| r.reach(*row, y_column, y[*row])),
            unvalidated: results.as_ref().is_some_and(|r| r.unvalidated(*row)),
        });
        let missing = results.as_ref().map_or_else(Vec::new, |r| r.missing(&x, &self.rows));
        let chart = ParetoChart {
            title: self.title.clone(),
            x_label: self.label(&self.spec.x_label, x_column),
            y_label: self.label(&self.spec.y_label, y_column),
            x_better,
            y_better,
            third,
            no_front,
            points: points.collect(),
            missing,
            class_name,
            notes: self.notes.clone(),
            x_scale: Self::scale(self.spec.log_x),
            y_scale: Self::scale(self.spec.log_y),
        };
        Ok(Self::done(chart.draw_in(stem, &self.style)?, self.left_out(drawn.len(), log_x || log_y)))
    }

    fn heatmap(&mut self, stem: &Path) -> Result<Drawn, FigureError> {
        let (x, y, z) = (name(&self.spec.x), name(&self.spec.y), name(&self.spec.z));
        let values = self.numbers(z)?;
        let (cols, rows) = (self.table.texts(x)?, self.table.texts(y)?);
        let better = self.direction(z).ok();
        self.best_of(&[rows.clone(), cols.clone()], &values, better, z, &[x, y]);
        self.order(&[rows.clone(), cols.clone()], &values, better);
        let place = |texts: &[&str]| slots(self.rows.iter().map(|row| texts[*row].to_string()).collect());
        let ((row_of, row_names), (col_of, col_names)) = (place(&rows), place(&cols));
        if row_names.len() > super::heatmaps::MOST_ROWS || col_names.len() > super::heatmaps::MOST_COLS {
            return Err(FigureError::Several(vec![format!(
                "a heat map of {} x {} cells cannot be read: more than {} x {}",
                row_names.len(),
                col_names.len(),
                super::heatmaps::MOST_ROWS,
                super::heatmaps::MOST_COLS
            )]));
        }
        let results = Results::new(self.table).ok();
        let mut cells = vec![vec![None; col_names.len()]; row_names.len()];
        let mut notes = vec![vec![None; col_names.len()]; row_names.len()];
        for (i, row) in self.rows.iter().enumerate() {
            cells[row_of[i]][col_of[i]] = Some(values[*row]).filter(|v| v.is_finite());
            notes[row_of[i]][col_of[i]] = results.as_ref().map(|r| r.note(*row));
        }
        let drawn = cells.iter().flatten().flatten().count();
        if drawn == 0 {
            return Err(FigureError::Nothing);
        }
        let chart = Heatmap {
            title: self.title.clone(),
            rows: row_names,
            cols: col_names,
            row_title: self.label(&self.spec.y_label, y),
            col_title: self.label(&self.spec.x_label, x),
            value_label: titled(z),
            cells,
            notes,
            remarks: self.notes.clone(),
        };
        Ok(Self::done(chart.draw_in(stem, &self.style)?, None))
    }

    /// What each axis changes by itself: the points that differ from the base in one axis alone.
    fn tornado(&mut self, stem: &Path) -> Result<Drawn, FigureError> {
        let column = name(&self.spec.y);
        let values = self.numbers(column)?;
        let axes = self.table.axes()?;
        let texts = axes.iter().map(|axis| self.table.texts(axis)).collect::<Result<Vec<_>, _>>()?;
        let better = self.direction(column)?;
        let candidates = fixed_rows(self.table, self.spec, self.rows.clone())?;
        let usable = candidates.iter().copied().filter(|row| drawable(values[*row], false) && values[*row] != 0.0);
        let turned = |row: usize| better.turned(values[row]);
        let Some(base) = usable.reduce(|best, row| if turned(row) < turned(best) { row } else { best }) else {
            return Err(FigureError::Nothing);
        };
        let percent = |row: usize| 100.0 * (values[row] - values[base]) / values[base].abs();
        let mut levers = Vec::new();
        let mut without = 0;
        for (a, axis) in axes.iter().enumerate() {
            let alike = |row: &usize| (0..axes.len()).all(|b| (b == a) != (texts[b][*row] == texts[b][base]));
            let others: Vec<usize> = (0..self.table.len()).filter(alike).collect();
            without += others.iter().filter(|row| !values[**row].is_finite()).count();
            let with = |row: &usize| drawable(values[*row], false);
            let Some(high) =
                others.iter().copied().filter(with).reduce(|x, y| if percent(y) > percent(x) { y } else { x })
            else {
                continue;
            };
            let Some(low) =
                others.iter().copied().filter(with).reduce(|x, y| if percent(y) < percent(x) { y } else { x })
            else {
                continue;
            };
            let (far, near) = if percent(high).abs() >= percent(low).abs() { (high, low) } else { (low, high) };
            let both = percent(far) * percent(near) < 0.0;
            levers.push(Lever {
                name: format!("{axis}: {} \u{2192} {}", texts[a][base], texts[a][far]),
                value: percent(far),
                fixed: both.then(|| percent(near)),
            });
        }
        if levers.is_empty() {
            return Err(FigureError::Several(vec![format!(
                "a tornado needs points that differ from the base ({}) in one axis alone; there are none with a {column}",
                super::joined(&texts, base)
            )]));
        }
        levers.sort_by(|a, b| b.value.abs().total_cmp(&a.value.abs()).then(a.name.cmp(&b.name)));
        let chosen =
            if self.spec.fixed.0.len() == axes.len() { "" } else { ", the best of those that fit what is fixed" };
        let value = crate::report::plot::short_number(values[base]);
        self.notes.push(format!("Base{chosen}: {}; {} {value}.", super::joined(&texts, base), titled(column)));
        if without > 0 {
            self.notes.push(format!("{without} neighbours of the base have no {column}."));
        }
        let two = levers.iter().any(|lever| lever.fixed.is_some());
        let chart = Tornado {
            title: self.title.clone(),
            x_label: self
                .spec
                .x_label
                .clone()
                .unwrap_or_else(|| format!("change of {} by one axis alone, %", titled(column))),
            names: if two { ["largest change".into(), "the other way".into()] } else { Default::default() },
            levers,
            notes: self.notes.clone(),
        };
        Ok(Self::done(chart.draw_in(stem, &self.style)?, None))
    }

    /// The columns of a chart of many, and which rows are on a front of those that have a direction.
    fn many(&mut self) -> Result<(Vec<String>, Vec<bool>), FigureError> {
        let axes = self.table.axes().unwrap_or_default();
        let columns: Vec<String> = if self.spec.columns.is_empty() {
            if axes.is_empty() {
                return Err(FigureError::Several(vec![
                    "columns: a table that no study wrote has no usual ones; name two or more".into(),
                ]));
            }
            let differs = |column: &&str| {
                self.table.texts(column).is_ok_and(|t| self.rows.iter().any(|row| t[*row] != t[self.rows[0]]))
            };
            axes.iter().chain(&USUAL).copied().filter(differs).map(str::to_string).collect()
        } else {
            self.spec.columns.iter().map(|c| c.0.clone()).collect()
        };
        let objectives: Vec<(Vec<f64>, Better)> = columns
            .iter()
            .filter(|c| !axes.contains(&c.as_str()) || self.stated(c).is_some())
            .filter_map(|c| Some((self.table.numbers(c).ok()?, self.direction(c).ok()?)))
            .collect();
        let mut strong = vec![false; self.table.len()];
        if objectives.len() >= 2 {
            let (classes, class_name) = self.classes()?;
            let (of, distinct) = slots(self.rows.iter().map(|row| classes[*row].clone()).collect());
            for class in 0..distinct.len() {
                let members: Vec<usize> =
                    self.rows.iter().zip(&of).filter(|(_, c)| **c == class).map(|(row, _)| *row).collect();
                let points: Vec<Vec<f64>> = members
                    .iter()
                    .map(|row| objectives.iter().map(|(values, better)| better.turned(values[*row])).collect())
                    .collect();
                front_of(&points).into_iter().for_each(|i| strong[members[i]] = true);
            }
            let each = if class_name.is_empty() { String::new() } else { format!(", one for each {class_name}") };
            self.notes.push(format!("Front: of the {} columns that have a better end{each}.", objectives.len()));
        }
        Ok((columns, strong))
    }

    fn parallel(&mut self, stem: &Path) -> Result<Drawn, FigureError> {
        let (columns, strong) = self.many()?;
        let groups = self.groups()?;
        let mut axes = Vec::new();
        let mut values: Vec<Vec<f64>> = Vec::new();
        for column in &columns {
            let numeric = self.table.numbers(column);
            let names = match &numeric {
                Ok(_) => Vec::new(),
                Err(TableError::NotANumber { .. }) => {
                    let texts = self.table.texts(column)?;
                    let (of, names) = slots(texts.iter().map(|t| (*t).to_string()).collect());
                    values.push(of.into_iter().map(|i| i as f64).collect());
                    names
                }
                Err(_) => {
                    numeric?;
                    continue;
                }
            };
            if let Ok(numbers) = numeric {
                values.push(numbers);
            }
            let better = self.direction(column).ok().filter(|_| names.is_empty());
            axes.push(ParallelAxis { name: titled(column), scale: Scale::Auto, names, better });
        }
        let lines = self.rows.iter().map(|row| ParallelLine {
            group: groups[*row].to_string(),
            strong: strong[*row],
            values: values.iter().map(|v| v[*row]).collect(),
        });
        let chart = Parallel { title: self.title.clone(), axes, lines: lines.collect(), notes: self.notes.clone() };
        Ok(Self::done(chart.draw_in(stem, &self.style)?, None))
    }

    fn matrix(&mut self, stem: &Path) -> Result<Drawn, FigureError> {
        let (mut columns, strong) = self.many()?;
        if self.spec.columns.is_empty() {
            columns.retain(|c| self.table.numbers(c).is_ok());
        }
        let groups = self.groups()?;
        let values = columns.iter().map(|c| self.numbers(c)).collect::<Result<Vec<_>, _>>()?;
        let points = self.rows.iter().map(|row| MatrixPoint {
            group: groups[*row].to_string(),
            strong: strong[*row],
            values: values.iter().map(|v| v[*row]).collect(),
        });
        let chart = ScatterMatrix {
            title: self.title.clone(),
            dimensions: columns.iter().map(|c| Dimension { name: titled(c), scale: Scale::Auto }).collect(),
            points: points.collect(),
            notes: self.notes.clone(),
        };
        Ok(Self::done(chart.draw_in(stem, &self.style)?, None))
    }

    /// What the front beats of the box of all points, in the order in which solves finished.
    fn hypervolume(&mut self, stem: &Path) -> Result<Drawn, FigureError> {
        let named = [&self.spec.x, &self.spec.y, &self.spec.z];
        let objectives: Vec<&str> = named.into_iter().flatten().map(|n| n.0.as_str()).collect();
        let mut columns = Vec::new();
        for column in &objectives {
            columns.push((self.numbers(column)?, self.direction(column)?));
        }
        let order = self.finished()?;
        let (classes, class_name) = self.classes()?;
        let (of, distinct) = slots(self.rows.iter().map(|row| classes[*row].clone()).collect());
        let mut points = Vec::new();
        for (class, class_of) in distinct.iter().enumerate() {
            let mut members: Vec<usize> =
                self.rows.iter().zip(&of).filter(|(_, c)| **c == class).map(|(row, _)| *row).collect();
            members.sort_by_key(|row| (order[*row], *row));
            let own: Vec<(Vec<f64>, Better)> =
                columns.iter().map(|(v, b)| (members.iter().map(|row| v[*row]).collect(), *b)).collect();
            let mut growth = Growth::default();
            for (i, point) in in_box(&own).iter().enumerate() {
                let grew = point.as_ref().is_some_and(|point| growth.push(point));
                // Level steps need no marker but at their ends.
                if !grew && i > 0 && i + 1 < members.len() {
                    continue;
                }
                let x = XValue::Number((i + 1) as f64);
                points.push(XyPoint { group: class_of.clone(), x, y: growth.volume });
            }
            let whose = if class_of.is_empty() { String::new() } else { format!(" of {class_of}") };
            self.notes.push(format!("Hypervolume{whose}: {:.3} after {} solves.", growth.volume, members.len()));
        }
        self.notes.push(format!(
            "Of the box between the worst and the best {} of all points{}, linear in each.",
            objectives.join(", "),
            if class_name.is_empty() { String::new() } else { format!(" of a {class_name}") }
        ));
        let chart = XyChart {
            title: self.title.clone(),
            x_label: self.spec.x_label.clone().unwrap_or_else(|| "solves, in the order of finishing".into()),
            y_label: self.spec.y_label.clone().unwrap_or_else(|| "hypervolume (share of the box)".into()),
            points,
            lines: true,
            steps: true,
            notes: self.notes.clone(),
            x_scale: Self::scale(self.spec.log_x),
            y_scale: Self::scale(self.spec.log_y),
        };
        Ok(Self::done(chart.draw_in(stem, &self.style)?, None))
    }

    /// The place of each row in the order of finishing: as the table of timings beside the results says it.
    fn finished(&self) -> Result<Vec<u64>, FigureError> {
        let mut place = vec![u64::MAX; self.table.len()];
        for path in self.table.paths() {
            let timings = Table::read(&path.parent().unwrap_or(Path::new("")).join(TIMINGS))?;
            let key_column = TRAILING.last().map_or("key", |(name, _)| *name);
            let (keys, finished) = (timings.texts(key_column)?, timings.numbers("finished")?);
            let of: std::collections::HashMap<&str, u64> =
                keys.into_iter().zip(finished.into_iter().map(|f| f as u64)).collect();
            for (row, key) in self.table.texts(key_column)?.iter().enumerate() {
                if let Some(at) = of.get(key) {
                    place[row] = place[row].min(*at);
                }
            }
        }
        Ok(place)
    }

    /// Figures that only the results of a study have.
    fn of_results(&self, stem: &Path) -> Result<Drawn, FigureError> {
        let mut results = Results::new(self.table)?;
        results.title.clone_from(&self.title);
        let figure = match self.spec.kind {
            FigureKind::Bars => results.bars(&self.rows, stem, &self.style, &self.notes)?,
            _ => results.roofline(&self.rows, stem, &self.style, &self.notes)?,
        };
        match figure {
            Figure::Files(files) => Ok(Self::done(files, None)),
            Figure::LeftOut(reason) => Err(FigureError::Several(vec![format!("nothing to draw: {reason}")])),
        }
    }
}

/// The rows that have the values that are fixed.
fn fixed_rows(table: &Table, spec: &FigureSpec, mut rows: Vec<usize>) -> Result<Vec<usize>, FigureError> {
    let mut wrong = Vec::new();
    for (column, value) in &spec.fixed.0 {
        let texts = table.texts(column)?;
        if !texts.contains(&value.0.as_str()) {
            let (_, found) = slots(texts.iter().map(|t| (*t).to_string()).collect());
            let found: Vec<&str> = found.iter().map(String::as_str).take(12).collect();
            wrong.push(format!("fixed {column}: no row has {:?}; there is {}", value.0, found.join(", ")));
        }
        rows.retain(|row| texts[*row] == value.0);
    }
    if !wrong.is_empty() {
        return Err(FigureError::Several(wrong));
    }
    if rows.is_empty() {
        return Err(FigureError::Several(vec!["fixed: no row has all of these values".into()]));
    }
    Ok(rows)
}
