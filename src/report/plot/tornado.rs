//! Horizontal bars by size: what a change of each of several things brings.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale, ticks};
use super::canvas::{Align, Canvas, Look, Rect};
use super::frame;
use super::legend::{Entry, Swatch};
use super::style::Style;
use super::theme::{self, AXIS, BLACK, DARK, GRID, MARGIN, TICK};
use super::{PlotError, render, short_number, text};

/// One thing that is changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lever {
    /// Its name.
    pub name: String,
    /// What the change brings; negative on the other side of the axis.
    pub value: f64,
    /// What it brings when nothing else adapts; drawn as a narrower bar. `None` where there is no such value.
    pub fixed: Option<f64>,
}

/// A tornado chart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tornado {
    /// Heading; none if empty.
    pub title: String,
    /// Title of the horizontal axis, with the unit.
    pub x_label: String,
    /// Names of the wide and the narrow bars.
    pub names: [String; 2],
    /// The bars, drawn in this order from the top.
    pub levers: Vec<Lever>,
    /// Remarks below.
    pub notes: Vec<String>,
}

/// Height of a bar's slot.
const SLOT: f64 = 13.0;
/// Largest share of the width that names take.
const NAMES: f64 = 0.42;

impl Tornado {
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
        // Names are not cut where the full width has room for them.
        let widest = text::widest(self.levers.iter().map(|l| l.name.as_str()), TICK);
        let wide = self.levers.len() > 16 || widest > theme::COLUMN * NAMES;
        let mut sheet = style.sheet(wide)?;
        let entries: Vec<Entry> = self
            .names
            .iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
            .map(|(i, name)| Entry::new(name, Swatch::Box(theme::category(i))))
            .collect();
        let top = sheet.begin(&self.title, entries) + 6.0;
        let canvas = &mut sheet.canvas;
        let room = canvas.width * NAMES;
        let labels: Vec<String> = self.levers.iter().map(|l| text::fit(&l.name, TICK, false, room)).collect();
        let x0 = MARGIN + text::widest(labels.iter().map(String::as_str), TICK) + 5.0;
        // Room for a number beside the longest bar.
        let numbers: Vec<String> = self.levers.iter().map(|l| frame::minus(&short_number(l.value))).collect();
        let beside = 5.0 + text::widest(numbers.iter().map(String::as_str), TICK - 0.5);
        let plot = Rect {
            x0,
            y0: top,
            x1: canvas.width - MARGIN - beside.max(12.0),
            y1: top + SLOT * self.levers.len().max(1) as f64 + 4.0,
        };
        let drawable = |v: f64| super::axis::drawable(v, false);
        let mut values: Vec<f64> =
            self.levers.iter().flat_map(|l| [Some(l.value), l.fixed]).flatten().filter(|v| drawable(*v)).collect();
        let below_zero = values.iter().any(|v| *v < 0.0);
        values.push(0.0);
        let range = if below_zero { Range::over(&values, Scale::Linear) } else { Range::from_zero(&values) };
        let x_at = |value: f64| range.fraction(value).map(|at| plot.x0 + at * plot.width());
        for tick in ticks(&range, 5) {
            let Some(x) = x_at(tick.at) else { continue };
            canvas.stroke(&[(x, plot.y0), (x, plot.y1)], 0.5, GRID);
            let look = Look::new(TICK).align(Align::Middle);
            canvas.text(&frame::minus(&tick.label), (x, plot.y1 + 4.0 + look.cap()), look);
        }
        let zero = x_at(0.0).unwrap_or(plot.x0);
        let mut skipped = 0;
        for (i, (lever, label)) in self.levers.iter().zip(&labels).enumerate() {
            let middle = plot.y0 + 2.0 + SLOT * (i as f64 + 0.5);
            canvas.text_mid(label, (plot.x0 - 4.0, middle), Look::new(TICK).align(Align::End));
            let mut end = zero;
            for (which, value, half) in [(0, Some(lever.value), 4.6), (1, lever.fixed, 2.0)] {
                let Some(value) = value else { continue };
                let Some(x) = x_at(value).filter(|_| drawable(value)) else {
                    skipped += 1;
                    continue;
                };
                let rect = Rect { x0: x.min(zero), y0: middle - half, x1: x.max(zero), y1: middle + half };
                if rect.width() > 0.0 {
                    canvas.rect(rect, theme::category(which));
                }
                end = end.max(x);
            }
            if drawable(lever.value) {
                let number = frame::minus(&short_number(lever.value));
                canvas.text_mid(&number, (end + 3.0, middle), Look::new(TICK - 0.5).color(BLACK));
            }
        }
        canvas.stroke(&[(zero, plot.y0), (zero, plot.y1)], 0.7, DARK);
        let mut bottom = plot.y1 + 4.0 + TICK;
        for line in text::wrap(&self.x_label, AXIS, false, canvas.width - 2.0 * MARGIN, 2) {
            bottom += AXIS * 1.25;
            canvas.text(&line, (canvas.width / 2.0, bottom), Look::new(AXIS).align(Align::Middle));
        }
        bottom += 3.0;
        bottom = sheet.legend(bottom);
        let canvas = &mut sheet.canvas;
        for note in &self.notes {
            bottom = frame::note(canvas, note, bottom);
        }
        if skipped > 0 {
            bottom = frame::note(canvas, &format!("{skipped} not drawn (not finite)."), bottom);
        }
        Ok(sheet.end(bottom))
    }
}
