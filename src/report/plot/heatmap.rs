//! A table of numbers as coloured cells.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale, ticks};
use super::canvas::{Align, Canvas, Look, Rect};
use super::frame::{self, minus};
use super::numbers::short_number;
use super::style::Style;
use super::theme::{self, AXIS, DARK, EMPTY, MARGIN, MID, SMALLEST, TICK};
use super::{PlotError, fonts, render, text};

/// A heat map with the value printed in each cell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heatmap {
    /// Heading; none if empty.
    pub title: String,
    /// Labels of the rows.
    pub rows: Vec<String>,
    /// Labels of the columns.
    pub cols: Vec<String>,
    /// What the rows are.
    pub row_title: String,
    /// What the columns are.
    pub col_title: String,
    /// What the values are, with the unit.
    pub value_label: String,
    /// The values by row; `None`, NaN and missing entries are empty cells.
    pub cells: Vec<Vec<Option<f64>>>,
    /// Short texts for empty cells, by row, such as "DRAM" for a design that does not fit into memory.
    pub notes: Vec<Vec<Option<String>>>,
    /// Remarks below.
    pub remarks: Vec<String>,
}

const CELL_HEIGHT: f64 = 12.0;
/// Fewer rows than fill this height are drawn higher.
const FEW_ROWS: f64 = 90.0;
pub(super) const CELL_FONT: f64 = 6.5;
/// Numbers that would be smaller are left out: they would run into each other.
const LEAST_FONT: f64 = SMALLEST * 0.8;
const BAR_WIDTH: f64 = 8.0;
/// Between the cells and the colour bar.
pub(super) const BAR_GAP: f64 = 8.0;
/// Room of the upright titles at either side.
const SIDE: f64 = MARGIN + AXIS * 1.6;
/// Upright titles longer than this are shortened.
const LONGEST_TITLE: f64 = 240.0;
/// White line between cells.
pub(super) const SEAM: f64 = 0.6;

/// Where the parts of the figure are.
struct Layout {
    grid: Rect,
    /// Width of a column and height of a row.
    cell: f64,
    row: f64,
    font: f64,
}

impl Heatmap {
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
        let all: Vec<f64> =
            (0..self.rows.len()).flat_map(|r| (0..self.cols.len()).filter_map(move |c| self.value(r, c))).collect();
        let range = Range::tight(&all, Scale::Auto);
        let wide = self.layout(theme::COLUMN, &range).font < CELL_FONT;
        let mut sheet = style.sheet(wide)?;
        let y = sheet.begin(&self.title, Vec::new());
        let canvas = &mut sheet.canvas;
        let mut layout = self.layout(canvas.width, &range);
        layout.grid.y0 = self.column_labels(canvas, &layout, y);
        // The body is never smaller than its head.
        let few = FEW_ROWS.max(layout.grid.y0 - y + 8.0);
        let row = (few / self.rows.len().max(1) as f64).clamp(CELL_HEIGHT, 2.4 * CELL_HEIGHT);
        layout.row = style.height.map_or(row, |_| style.height_or(0.0) / self.rows.len().max(1) as f64);
        layout.grid.y1 = layout.grid.y0 + layout.row * self.rows.len() as f64;
        self.row_labels(canvas, &layout);
        let row_title_end = upright(canvas, &self.row_title, MARGIN + AXIS * 0.8, layout.grid.center().1, y);
        for row in 0..self.rows.len() {
            for col in 0..self.cols.len() {
                self.cell(canvas, &layout, &range, row, col);
            }
        }
        if self.rows.is_empty() || self.cols.is_empty() {
            layout.grid.y1 += 40.0;
            frame::no_data(canvas, &layout.grid);
        }
        let bar_end = color_bar(canvas, &layout.grid, &range, &self.value_label, y).max(row_title_end);
        let mut bottom = layout.grid.y1.max(bar_end) + 2.0;
        if layout.font < LEAST_FONT && !all.is_empty() {
            bottom = frame::note(canvas, "The cells are too narrow for their numbers: the colours say them.", bottom);
        }
        for remark in &self.remarks {
            bottom = frame::note(canvas, remark, bottom);
        }
        let hidden = self.cells.iter().flatten().flatten().filter(|value| !range.shows(**value)).count();
        bottom = frame::skipped(canvas, hidden, "value", range.is_log(), bottom);
        Ok(sheet.end(bottom))
    }

    /// The value of a cell, if it is a number that can be drawn at all.
    fn value(&self, row: usize, col: usize) -> Option<f64> {
        self.cells.get(row)?.get(col).copied().flatten().filter(|value| super::axis::drawable(*value, false))
    }

    fn note(&self, row: usize, col: usize) -> Option<&str> {
        self.notes.get(row)?.get(col)?.as_deref().filter(|note| !note.trim().is_empty())
    }

    /// The horizontal layout, and the font size at which every number fits into its cell.
    fn layout(&self, width: f64, range: &Range) -> Layout {
        let row_room = text::widest(self.rows.iter().map(String::as_str), TICK).min(width * 0.4);
        let title_room = if self.row_title.trim().is_empty() { 0.0 } else { AXIS * 1.6 };
        let x0 = MARGIN + title_room + row_room + 3.0;
        let x1 = width - MARGIN - bar_room(range, &self.value_label) - BAR_GAP;
        let cell = (x1 - x0) / self.cols.len().max(1) as f64;
        let texts = (0..self.rows.len()).flat_map(|r| (0..self.cols.len()).filter_map(move |c| self.value(r, c)));
        let widest =
            texts.map(|value| fonts::width(&minus(&short_number(value)), CELL_FONT, false)).fold(1.0, f64::max);
        let font = (CELL_FONT * (cell - 2.0) / widest).min(CELL_FONT);
        Layout { grid: Rect { x0, y0: 0.0, x1, y1: 0.0 }, cell, row: CELL_HEIGHT, font }
    }

    /// Draws the title and labels of the columns from `y` downwards and returns where they end.
    fn column_labels(&self, canvas: &mut Canvas, layout: &Layout, mut y: f64) -> f64 {
        let grid = layout.grid;
        for line in text::wrap(&self.col_title, AXIS, false, canvas.width - 2.0 * SIDE, 2) {
            y += AXIS * 1.25;
            let half = fonts::width(&line, AXIS, false) / 2.0;
            let x = grid.center().0.min(canvas.width - SIDE - half).max(SIDE + half);
            canvas.text(&line, (x, y - 1.0), Look::new(AXIS).align(Align::Middle));
        }
        y += 2.0;
        let room = layout.cell - 3.0;
        let center = |col: usize| grid.x0 + layout.cell * (col as f64 + 0.5);
        if let Some(wrapped) = text::wrap_whole(&self.cols, TICK, room) {
            let most = wrapped.iter().map(Vec::len).max().unwrap_or(0);
            let end = y + most as f64 * TICK * 1.2 + 1.5;
            for (col, lines) in wrapped.iter().enumerate() {
                for (i, line) in lines.iter().rev().enumerate() {
                    let base = end - 3.0 - i as f64 * TICK * 1.2;
                    canvas.text(line, (center(col), base), Look::new(TICK).align(Align::Middle));
                }
            }
            return end;
        }
        let size = (layout.cell * 0.9).clamp(SMALLEST, TICK);
        let short: Vec<String> = self.cols.iter().map(|col| text::fit(col, size, false, 90.0)).collect();
        let end = y + text::widest(short.iter().map(String::as_str), size) + 2.5;
        for (col, label) in short.iter().enumerate() {
            canvas.text_mid(label, (center(col), end - 2.5), Look::new(size).up());
        }
        end
    }

    fn row_labels(&self, canvas: &mut Canvas, layout: &Layout) {
        let grid = layout.grid;
        let title_room = if self.row_title.trim().is_empty() { 0.0 } else { AXIS * 1.6 };
        for (row, label) in self.rows.iter().enumerate() {
            let y = grid.y0 + layout.row * (row as f64 + 0.5);
            let label = text::fit(label, TICK, false, grid.x0 - 3.0 - MARGIN - title_room + 0.1);
            canvas.text_mid(&label, (grid.x0 - 3.0, y), Look::new(TICK).align(Align::End));
        }
    }

    fn cell(&self, canvas: &mut Canvas, layout: &Layout, range: &Range, row: usize, col: usize) {
        let (x, y) = (layout.grid.x0 + layout.cell * col as f64, layout.grid.y0 + layout.row * row as f64);
        let rect = Rect::at(x, y, layout.cell, layout.row).grown(-SEAM / 2.0);
        let value = self.value(row, col).and_then(|value| Some((short_number(value), range.fraction(value)?)));
        cell(canvas, &rect, layout.font, value, self.note(row, col));
    }
}

/// Draws one cell: a value with its place on the colour scale, or a note, or nothing.
pub(super) fn cell(canvas: &mut Canvas, rect: &Rect, font: f64, value: Option<(String, f64)>, note: Option<&str>) {
    if let Some((text, at)) = value {
        let color = theme::viridis(at);
        canvas.rect(*rect, color);
        if font >= LEAST_FONT {
            let look = Look::new(font).align(Align::Middle);
            canvas.text_mid(&minus(&text), rect.center(), look.color(theme::text_on(color)));
        }
        return;
    }
    canvas.rect(*rect, EMPTY);
    if let Some(note) = note {
        let look = Look::new(CELL_FONT.min(font.max(SMALLEST))).align(Align::Middle).color(DARK);
        let fitted = text::fit(note, look.size, false, rect.width() - 1.0);
        canvas.text_mid(&fitted, rect.center(), look);
    } else {
        hatch(canvas, rect);
    }
}

/// Draws the colour bar right of the cells and returns where it ends.
pub(super) fn color_bar(canvas: &mut Canvas, grid: &Rect, range: &Range, label: &str, top_room: f64) -> f64 {
    let height = grid.height().clamp(50.0, 170.0);
    let top = grid.y0 + ((grid.height() - height) / 2.0).max(0.0);
    let bar = Rect::at(grid.x1 + BAR_GAP, top, BAR_WIDTH, height);
    let steps = 128;
    for step in 0..steps {
        let low = f64::from(step) / f64::from(steps);
        let y1 = bar.y1 - low * height;
        // Each band reaches up to the end of the bar, so that no seam shows between bands.
        canvas.rect(Rect { y0: bar.y0, y1, ..bar }, theme::viridis(low + 0.5 / f64::from(steps)));
    }
    canvas.stroke_closed(&bar.corners(), 0.5, DARK);
    for (at, label) in bar_ticks(range, label) {
        let y = bar.y1 - at * height;
        canvas.stroke(&[(bar.x1, y), (bar.x1 + 2.0, y)], 0.5, DARK);
        canvas.text_mid(&label, (bar.x1 + 3.5, y), Look::new(TICK));
    }
    let x = canvas.width - MARGIN - 1.5;
    bar.y1.max(upright(canvas, label, x, bar.center().1, top_room))
}

/// Writes an upright title centred on `middle`, but lower if it would begin above `top`; returns where it ends.
pub(super) fn upright(canvas: &mut Canvas, title: &str, x: f64, middle: f64, top: f64) -> f64 {
    let title = text::fit(title, AXIS, false, LONGEST_TITLE);
    let half = fonts::width(&title, AXIS, false) / 2.0;
    let y = middle.max(top + half);
    canvas.text(&title, (x, y), Look::new(AXIS).align(Align::Middle).up());
    y + half
}

fn bar_ticks(range: &Range, title: &str) -> Vec<(f64, String)> {
    ticks(range, 6)
        .into_iter()
        .filter_map(|tick| Some((range.fraction(tick.at)?, frame::written(&tick.label, title))))
        .filter(|(at, _)| (-0.001..=1.001).contains(at))
        .collect()
}

/// The room of the colour bar with its ticks and title.
pub(super) fn bar_room(range: &Range, title: &str) -> f64 {
    let labels = bar_ticks(range, title);
    let title = if title.trim().is_empty() { 0.0 } else { AXIS * 1.35 };
    BAR_WIDTH + 3.5 + text::widest(labels.iter().map(|(_, label)| label.as_str()), TICK) + title
}

/// Thin diagonal lines: a cell without a value.
fn hatch(canvas: &mut Canvas, rect: &Rect) {
    let (step, height) = (4.0, rect.height());
    let count = ((rect.width() + height) / step).ceil().clamp(0.0, 500.0) as usize;
    for i in 1..=count {
        let x = rect.x0 + i as f64 * step;
        if let Some((a, b)) = rect.clip((x, rect.y0), (x - height, rect.y1)) {
            canvas.stroke(&[a, b], 0.35, theme::mix(MID, EMPTY, 0.5));
        }
    }
}
