//! What runs when on which row: a bar for each stretch of time.

use std::path::{Path, PathBuf};

use super::axis::{Range, ticks};
use super::canvas::{Align, Canvas, Look, Rect};
use super::frame;
use super::legend::{self, Entry, Swatch};
use super::theme::{self, AXIS, BLACK, DARK, EMPTY, GRID, MARGIN, MID, SMALLEST, TICK, WHITE};
use super::{PlotError, fonts, render, text};

/// One stretch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stretch {
    /// Row, from the top.
    pub row: usize,
    /// Where it starts, in the unit of the axis.
    pub start: f64,
    /// How long it is.
    pub length: f64,
    /// Colour group: bars of one number have one colour.
    pub group: u64,
    /// Written inside where there is room.
    pub label: String,
}

/// A Gantt chart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gantt {
    /// Heading; none if empty.
    pub title: String,
    /// Title of the time axis, with the unit.
    pub x_label: String,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// Written behind each row (a utilisation); empty where there is none.
    pub beside: Vec<String>,
    /// What the groups are called ("iteration"); empty where colours need no legend.
    pub group: String,
    /// The bars.
    pub stretches: Vec<Stretch>,
}

/// Most rows drawn.
const MOST_ROWS: usize = 64;
/// Colours before they come again.
const COLORS: u64 = 7;

impl Gantt {
    /// Writes `<stem>.svg` and `<stem>.png`.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        let mut canvas = Canvas::new(theme::FULL)?;
        let rows = self.rows.len().min(MOST_ROWS);
        let slot = if rows > 24 { 8.5 } else { 13.0 };
        let size = (slot - 2.0_f64).clamp(SMALLEST, TICK);
        let mut top = frame::title(&mut canvas, &self.title, MARGIN);
        let mut groups: Vec<u64> = self.stretches.iter().map(|s| s.group).collect();
        groups.sort_unstable();
        groups.dedup();
        if !self.group.is_empty() && (2..=COLORS as usize).contains(&groups.len()) {
            let entry = |g: &u64| Entry::new(&format!("{} {g}", self.group), Swatch::Box(color(*g)));
            let entries: Vec<Entry> = groups.iter().map(entry).collect();
            let right = canvas.width - MARGIN;
            top = legend::draw(&mut canvas, &entries, MARGIN, right, top) + 4.0;
        }
        let names: Vec<String> = self.rows.iter().take(rows).map(|n| text::fit(n, size, false, 110.0)).collect();
        let beside: Vec<&str> = self.beside.iter().take(rows).map(String::as_str).collect();
        let plot = Rect {
            x0: MARGIN + text::widest(names.iter().map(String::as_str), size) + 5.0,
            y0: top + 2.0,
            x1: canvas.width - MARGIN - text::widest(beside.iter().copied(), size).max(8.0) - 5.0,
            y1: top + 2.0 + slot * rows.max(1) as f64,
        };
        let usable = |s: &&Stretch| s.row < rows && s.start.is_finite() && s.length.is_finite() && s.length >= 0.0;
        let drawn: Vec<&Stretch> = self.stretches.iter().filter(usable).collect();
        let end = drawn.iter().map(|s| s.start + s.length).fold(0.0, f64::max);
        let range = if end > 0.0 { Range::tight(&[0.0, end], super::Scale::Linear) } else { Range::from_zero(&[]) };
        let x_at = |value: f64| range.fraction(value).map(|at| plot.x0 + at.clamp(0.0, 1.0) * plot.width());
        for (row, name) in names.iter().enumerate().take(rows) {
            let y = plot.y0 + slot * row as f64;
            canvas.rect(Rect { y0: y + 1.0, y1: y + slot - 1.0, ..plot }, EMPTY);
            let middle = y + slot / 2.0;
            canvas.text_mid(name, (plot.x0 - 4.0, middle), Look::new(size).align(Align::End));
            if let Some(beside) = beside.get(row) {
                canvas.text_mid(beside, (plot.x1 + 4.0, middle), Look::new(size).color(MID));
            }
        }
        for tick in ticks(&range, 8) {
            let Some(x) = x_at(tick.at) else { continue };
            canvas.stroke(&[(x, plot.y0), (x, plot.y1)], 0.5, GRID);
            let look = Look::new(TICK).align(Align::Middle);
            canvas.text(&tick.label, (x, plot.y1 + 4.0 + look.cap()), look);
        }
        for s in &drawn {
            let (Some(x0), Some(x1)) = (x_at(s.start), x_at(s.start + s.length)) else { continue };
            let y = plot.y0 + slot * s.row as f64;
            let rect = Rect { x0, y0: y + 1.0, x1, y1: y + slot - 1.0 };
            let fill = color(s.group);
            canvas.rect(rect, fill);
            // A white edge parts neighbours where both are wide enough to have one.
            if rect.width() > 1.6 {
                canvas.stroke(&[(rect.x1, rect.y0), (rect.x1, rect.y1)], 0.4, WHITE);
            }
            let small = size.min(6.0);
            if rect.width() > 14.0 && fonts::width(&s.label, small, false) < rect.width() - 3.0 {
                let look = Look::new(small).color(theme::text_on(fill)).align(Align::Middle);
                canvas.text_mid(&s.label, rect.center(), look);
            }
        }
        canvas.stroke(&[(plot.x0, plot.y1), (plot.x1, plot.y1)], 0.7, DARK);
        if drawn.is_empty() {
            frame::no_data(&mut canvas, &plot);
        }
        let mut bottom = plot.y1 + 4.0 + TICK + 3.0;
        let look = Look::new(AXIS).align(Align::Middle).color(BLACK);
        canvas.text(&self.x_label, ((plot.x0 + plot.x1) / 2.0, bottom + look.cap()), look);
        bottom += AXIS + 2.0;
        if self.rows.len() > rows {
            bottom = frame::note(&mut canvas, &format!("{} more rows are not drawn.", self.rows.len() - rows), bottom);
        }
        canvas.height = bottom + MARGIN;
        render::write(&canvas, stem)
    }
}

fn color(group: u64) -> theme::Rgb {
    theme::category((group % COLORS) as usize)
}
