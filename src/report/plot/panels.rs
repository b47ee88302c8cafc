//! Several heat maps side by side: the same rows and columns for each of some cases, on one colour scale.
//!
//! Rows and columns may have labels of several levels (chip and topology, memory and link). An outer label stands once
//! beside all that it covers, and a small gap parts what belongs to one from what belongs to the next.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale, drawable};
use super::canvas::{Align, Canvas, Look, Rect};
use super::frame;
use super::heatmap::{BAR_GAP, CELL_FONT, SEAM, bar_room, cell, color_bar};
use super::numbers::magnitude;
use super::style::Style;
use super::theme::{AXIS, DARK, MARGIN, MID, SMALLEST, TICK};
use super::{PlotError, fonts, render, text};

/// Heat maps of the same rows and columns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeatmapPanels {
    /// Heading; none if empty.
    pub title: String,
    /// Labels of each row, one a level, the outermost first.
    pub rows: Vec<Vec<String>>,
    /// Labels of each column, likewise.
    pub cols: Vec<Vec<String>>,
    /// What the rows are.
    pub row_title: String,
    /// What the columns are.
    pub col_title: String,
    /// What the colours mean; `{}` is where the prefix of the unit goes (`{}FLOP/s per $`), else it follows in brackets.
    pub value_label: String,
    /// How colours are spread over the values.
    pub scale: Scale,
    /// The heat maps.
    pub panels: Vec<Panel>,
}

/// One of the heat maps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// The values by row; `None`, NaN and missing entries are empty cells.
    pub cells: Vec<Vec<Option<f64>>>,
    /// Short texts for empty cells, by row.
    pub notes: Vec<Vec<Option<String>>>,
}

const ROW: f64 = 11.0;
/// Fewer rows than fill this height are drawn higher.
const FEW_ROWS: f64 = 66.0;
/// Between what belongs to one outer label and what belongs to the next.
const PART: f64 = 3.0;
/// Between panels.
const GUTTER: f64 = 9.0;
/// Cells are not narrower; panels go into further rows instead.
const NARROWEST: f64 = 15.0;
/// Cells are not wider.
const WIDEST: f64 = 42.0;
/// A line of labels above the columns.
const LINE: f64 = TICK * 1.35;
/// Line of a panel's heading.
const TITLE_LINE: f64 = AXIS * 1.3;
/// Column of upright outer row labels.
const UPRIGHT: f64 = TICK * 1.5;
/// Panels in one row of panels.
const MOST: usize = 8;

/// Where things of one axis begin, and where the last ends.
struct Slots {
    at: Vec<f64>,
    size: f64,
    end: f64,
}

impl Slots {
    /// Slots of a size, with a gap wherever an outer label changes.
    fn new(labels: &[Vec<String>], size: f64) -> Self {
        let mut at = Vec::with_capacity(labels.len());
        let mut end = 0.0;
        for (i, label) in labels.iter().enumerate() {
            if i > 0 && outer(label) != outer(&labels[i - 1]) {
                end += PART;
            }
            at.push(end);
            end += size;
        }
        Self { at, size, end }
    }

    /// From the first to the last slot of a run.
    fn span(&self, run: &std::ops::Range<usize>) -> (f64, f64) {
        let start = self.at.get(run.start).copied().unwrap_or(0.0);
        let last = run.end.checked_sub(1).and_then(|i| self.at.get(i)).copied().unwrap_or(0.0);
        (start, last + self.size)
    }
}

/// All levels but the innermost.
fn outer(label: &[String]) -> &[String] {
    label.split_last().map_or(&[], |(_, outer)| outer)
}

/// Runs of equal labels down to a level.
fn runs(labels: &[Vec<String>], level: usize) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    for i in 0..labels.len() {
        match found.last_mut() {
            Some(run) if labels[run.start].get(..=level) == labels[i].get(..=level) => run.end = i + 1,
            _ => found.push(i..i + 1),
        }
    }
    found
}

fn levels(labels: &[Vec<String>]) -> usize {
    labels.iter().map(Vec::len).max().unwrap_or(0)
}

fn label(labels: &[Vec<String>], i: usize, level: usize) -> &str {
    labels.get(i).and_then(|l| l.get(level)).map_or("", String::as_str)
}

impl HeatmapPanels {
    /// Writes the figure's files.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        self.draw_in(stem, &Style::default())
    }

    /// Like `draw`, in a given style.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw_in(&self, stem: &Path, style: &Style) -> Result<Vec<PathBuf>, PlotError> {
        render::write(&self.compose(style)?, stem)
    }

    pub(crate) fn compose(&self, style: &Style) -> Result<Canvas, PlotError> {
        let all: Vec<f64> = self.panels.iter().flat_map(|panel| panel.values()).collect();
        let (scale, prefix) = magnitude(all.iter().copied().fold(0.0, f64::max));
        let scaled: Vec<f64> = all.iter().map(|value| value / scale).collect();
        let range = Range::tight(&scaled, self.scale);
        let money = frame::is_money(&self.value_label);
        let prefix = if money { format!("{}$", prefix.replace('G', "B")) } else { prefix };
        let prefix = if money && self.value_label.contains("{}") { prefix.replace('$', "") } else { prefix };
        let value_label = match (self.value_label.contains("{}"), prefix.is_empty()) {
            (true, _) => self.value_label.replace("{}", &prefix),
            (false, true) => self.value_label.clone(),
            (false, false) => format!("{} ({prefix})", self.value_label),
        };

        let left = MARGIN + self.row_label_room();
        let right = MARGIN + bar_room(&range, &value_label) + BAR_GAP;
        let parts = Slots::new(&self.cols, 0.0).end;
        let columns = self.cols.len().max(1) as f64;
        let fit = |width: f64, panels: usize| {
            let gutters = GUTTER * panels.saturating_sub(1) as f64;
            ((width - left - right - gutters) / panels.max(1) as f64 - parts) / columns
        };
        let count = self.panels.len().max(1);
        let column_is_enough = fit(super::theme::COLUMN, count) >= NARROWEST + 3.0;
        let mut sheet = style.sheet(!column_is_enough)?;
        let mut y = sheet.begin(&self.title, Vec::new());
        let canvas = &mut sheet.canvas;
        let mut beside = count.min(MOST);
        while beside > 1 && fit(canvas.width, beside) < NARROWEST {
            beside -= 1;
        }
        // Equal rows of panels.
        let beside = count.div_ceil(count.div_ceil(beside));
        let size = fit(canvas.width, beside).clamp(4.0, WIDEST);

        let cols = Slots::new(&self.cols, size);
        let font = self.font(&scaled, size);
        let head = self.column_label_room(size);
        // The body is never smaller than its head.
        let row = FEW_ROWS.max(head + 8.0) / self.rows.len().max(1) as f64;
        let rows = Slots::new(&self.rows, row.clamp(ROW, 2.4 * ROW));
        let top = y;
        let mut grid = Rect { x0: left, y0: f64::INFINITY, x1: left, y1: y };
        for (line, panels) in self.panels.chunks(beside).enumerate() {
            if line > 0 {
                y += GUTTER;
            }
            let titles: Vec<Vec<String>> =
                panels.iter().map(|panel| text::wrap(&panel.title, AXIS, true, cols.end + GUTTER - 2.0, 3)).collect();
            let lines = titles.iter().map(Vec::len).max().unwrap_or(0);
            let y0 = y + lines as f64 * TITLE_LINE + head;
            self.row_labels(canvas, &rows, left, y0);
            for (i, panel) in panels.iter().enumerate() {
                let x0 = left + i as f64 * (cols.end + GUTTER);
                let middle = x0 + cols.end / 2.0;
                for (line, title) in titles[i].iter().rev().enumerate() {
                    let base = y0 - head - 3.0 - line as f64 * TITLE_LINE;
                    canvas.text(title, (middle, base), Look::new(AXIS).bold().align(Align::Middle));
                }
                self.column_labels(canvas, &cols, x0, y0);
                for (r, row) in rows.at.iter().enumerate() {
                    for (c, col) in cols.at.iter().enumerate() {
                        let rect = Rect::at(x0 + col, y0 + row, size, rows.size).grown(-SEAM / 2.0);
                        let value = panel.value(r, c).map(|value| value / scale);
                        let shown = value.and_then(|value| Some((two_digits(value), range.fraction(value)?)));
                        cell(canvas, &rect, font, shown, panel.note(r, c));
                    }
                }
                grid.x1 = grid.x1.max(x0 + cols.end);
            }
            grid.y0 = grid.y0.min(y0);
            grid.y1 = y0 + rows.end;
            y = grid.y1;
        }
        if !grid.y0.is_finite() || self.rows.is_empty() || self.cols.is_empty() {
            grid = Rect { x0: left, y0: y, x1: canvas.width - right, y1: y + 40.0 };
            frame::no_data(canvas, &grid);
        }
        let mut bottom = color_bar(canvas, &grid, &range, &value_label, top).max(grid.y1) + 2.0;
        let hidden = scaled.iter().filter(|value| !range.shows(**value)).count();
        bottom = frame::skipped(canvas, hidden, "value", range.is_log(), bottom);
        Ok(sheet.end(bottom))
    }

    /// The font size at which every number fits into its cell.
    fn font(&self, values: &[f64], size: f64) -> f64 {
        let width = |value: &f64| fonts::width(&frame::minus(&two_digits(*value)), CELL_FONT, false);
        let widest = values.iter().map(width).fold(1.0, f64::max);
        (CELL_FONT * (size - 2.0) / widest).min(CELL_FONT)
    }

    fn inner_row_room(&self) -> f64 {
        let last = levels(&self.rows).saturating_sub(1);
        let inner = (0..self.rows.len()).map(|i| label(&self.rows, i, last));
        text::widest(inner, TICK).min(110.0)
    }

    fn row_label_room(&self) -> f64 {
        let outer: f64 = (0..levels(&self.rows).saturating_sub(1)).map(|level| self.outer_row_room(level)).sum();
        let labels = self.inner_row_room() + 4.0 + outer;
        let corner = [corner(&self.row_title, DOWN), corner(&self.col_title, RIGHT)];
        labels.max(text::widest(corner.iter().map(String::as_str), TICK).min(90.0) + 4.0)
    }

    /// Room of a level of outer labels: upright if each fits beside its rows, else level.
    fn outer_row_room(&self, level: usize) -> f64 {
        if self.is_upright(level) {
            return UPRIGHT;
        }
        text::widest((0..self.rows.len()).map(|i| label(&self.rows, i, level)), TICK).min(80.0) + 8.0
    }

    fn is_upright(&self, level: usize) -> bool {
        runs(&self.rows, level)
            .iter()
            .all(|run| fonts::width(label(&self.rows, run.start, level), TICK, false) <= run.len() as f64 * ROW)
    }

    fn row_labels(&self, canvas: &mut Canvas, rows: &Slots, x: f64, y: f64) {
        let last = levels(&self.rows).saturating_sub(1);
        let room = self.inner_row_room();
        for (i, at) in rows.at.iter().enumerate() {
            let fitted = text::fit(label(&self.rows, i, last), TICK, false, room + 0.1);
            canvas.text_mid(&fitted, (x - 3.0, y + at + rows.size / 2.0), Look::new(TICK).align(Align::End));
        }
        let mut edge = x - 4.0 - room;
        for level in (0..last).rev() {
            let line = edge - 2.5;
            for run in runs(&self.rows, level) {
                let (start, end) = rows.span(&run);
                canvas.stroke(&[(line, y + start + 0.7), (line, y + end - 0.7)], 0.5, DARK);
                let (name, middle) = (label(&self.rows, run.start, level), y + (start + end) / 2.0);
                if self.is_upright(level) {
                    let fitted = text::fit(name, TICK, false, end - start);
                    canvas.text(&fitted, (line - 3.0, middle), Look::new(TICK).align(Align::Middle).up());
                } else {
                    let fitted = text::fit(name, TICK, false, 80.1);
                    canvas.text_mid(&fitted, (line - 3.0, middle), Look::new(TICK).align(Align::End));
                }
            }
            edge -= self.outer_row_room(level);
        }
        let titles = [corner(&self.row_title, DOWN), corner(&self.col_title, RIGHT)];
        for (line, title) in titles.iter().enumerate() {
            let fitted = text::fit(title, TICK, false, x - 3.0 - MARGIN);
            let look = Look::new(TICK).color(MID).align(Align::End);
            canvas.text(&fitted, (x - 3.0, y - 2.5 - line as f64 * LINE), look);
        }
    }

    fn inner_cols(&self) -> Vec<String> {
        let last = levels(&self.cols).saturating_sub(1);
        (0..self.cols.len()).map(|i| label(&self.cols, i, last).to_string()).collect()
    }

    /// The lines of the innermost column labels, if they fit level.
    fn level_labels(&self, size: f64) -> Option<Vec<Vec<String>>> {
        let labels = self.inner_cols();
        // With some air between them if words can be broken into lines for it.
        text::wrap_whole(&labels, TICK, size - 3.0).or_else(|| text::wrap_whole(&labels, TICK, size - 1.0))
    }

    fn column_label_room(&self, size: f64) -> f64 {
        let outer = LINE * levels(&self.cols).saturating_sub(1) as f64;
        let inner = match self.level_labels(size) {
            Some(lines) => LINE * lines.iter().map(Vec::len).max().unwrap_or(0) as f64,
            None => text::widest(self.inner_cols().iter().map(String::as_str), TICK).min(70.0) + 4.0,
        };
        // The corner has two lines.
        (outer + inner).max(2.0 * LINE)
    }

    /// Column labels of one panel, right above `y`.
    fn column_labels(&self, canvas: &mut Canvas, cols: &Slots, x: f64, y: f64) {
        let last = levels(&self.cols).saturating_sub(1);
        let level = self.level_labels(cols.size);
        let names = self.inner_cols();
        let inner = match &level {
            Some(lines) => LINE * lines.iter().map(Vec::len).max().unwrap_or(0) as f64,
            None => self.column_label_room(cols.size) - LINE * last as f64,
        };
        let mut head = y - inner - LINE * last as f64;
        for outer in 0..last {
            for run in runs(&self.cols, outer) {
                let (start, end) = cols.span(&run);
                let fitted = text::fit(label(&self.cols, run.start, outer), TICK, false, end - start + PART - 1.0);
                let look = Look::new(TICK).align(Align::Middle);
                canvas.text(&fitted, (x + (start + end) / 2.0, head + TICK), look);
                let under = head + LINE;
                canvas.stroke(&[(x + start + 0.7, under), (x + end - 0.7, under)], 0.5, DARK);
            }
            head += LINE;
        }
        for (i, at) in cols.at.iter().enumerate() {
            let middle = x + at + cols.size / 2.0;
            if let Some(lines) = level.as_ref().and_then(|level| level.get(i)) {
                for (line, text) in lines.iter().rev().enumerate() {
                    let base = y - 2.5 - line as f64 * LINE;
                    canvas.text(text, (middle, base), Look::new(TICK).align(Align::Middle));
                }
            } else if let Some(name) = names.get(i) {
                let size = (cols.size * 0.9).clamp(SMALLEST, TICK);
                let fitted = text::fit(name, size, false, 70.0);
                canvas.text_mid(&fitted, (middle, y - 2.0), Look::new(size).up());
            }
        }
    }
}

impl Panel {
    /// The value of a cell, if it is a number that can be drawn at all.
    fn value(&self, row: usize, col: usize) -> Option<f64> {
        self.cells.get(row)?.get(col).copied().flatten().filter(|value| drawable(*value, false))
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.cells.iter().flatten().copied().flatten().filter(|value| drawable(*value, false))
    }

    fn note(&self, row: usize, col: usize) -> Option<&str> {
        self.notes.get(row)?.get(col)?.as_deref().filter(|note| !note.trim().is_empty())
    }
}

const DOWN: char = '\u{2193}';
const RIGHT: char = '\u{2192}';

/// What the rows or columns are, for the corner between their labels.
fn corner(title: &str, arrow: char) -> String {
    let title = title.trim();
    if title.is_empty() { String::new() } else { format!("{title} {arrow}") }
}

/// A number in two digits, three from 100 on: cells are small.
fn two_digits(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".into()
    } else if size >= 9.95 {
        format!("{value:.0}")
    } else if size >= 0.995 {
        format!("{value:.1}")
    } else if size >= 0.0995 {
        format!("{value:.2}").replacen("0.", ".", 1)
    } else if size >= 0.000_95 {
        format!("{value:.3}").replacen("0.", ".", 1)
    } else {
        format!("{value:.0e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(outer: &[&str], inner: &[&str]) -> Vec<Vec<String>> {
        outer.iter().flat_map(|o| inner.iter().map(|i| vec![o.to_string(), i.to_string()])).collect()
    }

    #[test]
    fn a_gap_parts_outer_labels() {
        let labels = pairs(&["a", "b"], &["x", "y"]);
        let slots = Slots::new(&labels, 10.0);
        assert_eq!((slots.at, slots.end), (vec![0.0, 10.0, 10.0 + 10.0 + PART, 30.0 + PART], 40.0 + PART));
        assert_eq!(runs(&labels, 0), [0..2, 2..4]);
        assert_eq!(runs(&labels, 1), [0..1, 1..2, 2..3, 3..4]);
        let slots = Slots::new(&labels, 10.0);
        assert_eq!(slots.span(&(2..4)), (20.0 + PART, 40.0 + PART));
        assert_eq!(Slots::new(&[], 10.0).span(&(0..0)), (0.0, 10.0));
    }

    #[test]
    fn numbers_fit_small_cells() {
        for (value, text) in
            [(0.0, "0"), (123.4, "123"), (54.3, "54"), (9.96, "10"), (1.26, "1.3"), (0.54, ".54"), (0.0123, ".012")]
        {
            assert_eq!(two_digits(value), text);
        }
        assert_eq!(two_digits(0.000_02), "2e-5");
        assert_eq!(two_digits(-0.5), "-.50");
    }
}
