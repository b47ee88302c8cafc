//! A matrix of scatter charts: every quantity over every other, and how often its values occur on the diagonal.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale, ticks};
use super::canvas::{Align, Canvas, Look, Rect};
use super::legend::{Entry, Groups, Swatch};
use super::style::Style;
use super::theme::{self, BLACK, DARK, GRID, MARGIN, MID, NOTE, TICK, WHITE};
use super::{PlotError, fonts, frame, render, text};

/// One quantity.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dimension {
    /// Its name, with the unit.
    pub name: String,
    /// How its numbers are spread.
    pub scale: Scale,
}

/// One design.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MatrixPoint {
    /// Points of one group share colour and marker shape.
    pub group: String,
    /// Drawn with an outline: on the front.
    pub strong: bool,
    /// A value for each dimension.
    pub values: Vec<f64>,
}

/// A scatter matrix.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScatterMatrix {
    /// Heading; none if empty.
    pub title: String,
    /// The quantities.
    pub dimensions: Vec<Dimension>,
    /// The designs.
    pub points: Vec<MatrixPoint>,
    /// Remarks below.
    pub notes: Vec<String>,
}

const GAP: f64 = 5.0;
/// Bars of a histogram on the diagonal.
const BINS: usize = 12;

impl ScatterMatrix {
    /// Writes the figure's files.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw_in(&self, stem: &Path, style: &Style) -> Result<Vec<PathBuf>, PlotError> {
        render::write(&self.compose(style)?, stem)
    }

    pub(crate) fn compose(&self, style: &Style) -> Result<Canvas, PlotError> {
        let n = self.dimensions.len();
        let mut sheet = style.sheet(n > 2)?;
        let groups = Groups::of(self.points.iter().map(|p| p.group.as_str()));
        let mut entries = groups.entries();
        if self.points.iter().any(|p| p.strong) && self.points.iter().any(|p| !p.strong) {
            entries.push(Entry::new("on the front (outlined)", Swatch::Outline));
        }
        let top = sheet.begin(&self.title, entries) + 2.0;
        let canvas = &mut sheet.canvas;
        let ranges: Vec<Range> = (0..n).map(|i| Range::over(&self.column(i), self.dimensions[i].scale)).collect();
        let ends = |i: usize, room: f64| {
            let most = (room / 24.0).clamp(2.0, 4.0) as usize;
            let name = self.dimensions[i].name.as_str();
            let inside = |at: f64| ranges[i].fraction(at).is_some_and(|at| (0.0..=1.0).contains(&at));
            let ticks = ticks(&ranges[i], most).into_iter().filter(|t| inside(t.at));
            ticks.map(|tick| (tick.at, frame::written(&tick.label, name))).collect::<Vec<_>>()
        };
        let widest = (0..n)
            .map(|i| text::widest(ends(i, 60.0).iter().map(|(_, label)| label.as_str()), NOTE))
            .fold(0.0, f64::max);
        let left = MARGIN + TICK * 1.3 + widest + 6.0;
        let side = ((canvas.width - MARGIN - left - GAP * n.saturating_sub(1) as f64) / n.max(1) as f64).max(10.0);
        let high = style.height_or(side * n.max(1) as f64) / n.max(1) as f64;
        let cell = |row: usize, col: usize| {
            Rect::at(left + col as f64 * (side + GAP), top + row as f64 * (high + GAP), side, high)
        };
        let shown: Vec<&MatrixPoint> = self
            .points
            .iter()
            .filter(|p| (0..n).all(|i| p.values.get(i).is_some_and(|value| ranges[i].shows(*value))))
            .collect();
        let radius = theme::point_radius(shown.len() * 2).min(1.9);
        for row in 0..n {
            for col in 0..n {
                let plot = cell(row, col);
                let at = |range: &Range, value: f64| range.fraction(value).unwrap_or(0.0);
                for (value, _) in ends(col, side) {
                    let x = plot.x0 + at(&ranges[col], value) * side;
                    canvas.stroke(&[(x, plot.y0), (x, plot.y1)], 0.4, GRID);
                }
                if row == col {
                    self.histogram(canvas, &plot, &ranges[row], row, &shown);
                } else {
                    for (value, _) in ends(row, high) {
                        let y = plot.y1 - at(&ranges[row], value) * high;
                        canvas.stroke(&[(plot.x0, y), (plot.x1, y)], 0.4, GRID);
                    }
                    for strong in [false, true] {
                        for p in shown.iter().filter(|p| p.strong == strong) {
                            let place = (
                                plot.x0 + at(&ranges[col], p.values[col]) * side,
                                plot.y1 - at(&ranges[row], p.values[row]) * high,
                            );
                            let color = groups.color(&p.group);
                            let (fill, outline) = if strong {
                                (color, Some((BLACK, 0.5)))
                            } else {
                                (theme::mix(color, WHITE, 0.4), None)
                            };
                            theme::marker(canvas, groups.shape(&p.group), place, radius, fill, outline);
                        }
                    }
                }
                canvas.stroke_closed(&plot.corners(), 0.5, MID);
            }
        }
        let mut bottom = top + (high + GAP) * n as f64 - GAP;
        for (i, range) in ranges.iter().enumerate() {
            let (below, beside) = (cell(n - 1, i), cell(i, 0));
            let mut last = f64::NEG_INFINITY;
            for (value, label) in ends(i, side) {
                let half = fonts::width(&label, NOTE, false) / 2.0;
                let x = below.x0 + range.fraction(value).unwrap_or(0.0) * side;
                let x = x.clamp(below.x0 + half - 2.0, (below.x1 - half + 2.0).max(below.x0));
                if x - half > last + 3.0 {
                    canvas.text(&label, (x, below.y1 + 2.5 + NOTE * 0.73), Look::new(NOTE).align(Align::Middle));
                    last = x + half;
                }
            }
            // The diagonal has no axis of its own at the left.
            let mut last = f64::INFINITY;
            for (value, label) in ends(i, high).into_iter().filter(|_| i > 0 || n == 1) {
                let y = beside.y1 - range.fraction(value).unwrap_or(0.0) * high;
                let y = y.clamp(beside.y0 + 2.5, beside.y1 - 2.5);
                if y < last - NOTE {
                    canvas.text_mid(&label, (beside.x0 - 3.0, y), Look::new(NOTE).align(Align::End));
                    last = y;
                }
            }
            let name = &self.dimensions[i].name;
            let across = text::fit(name, TICK, false, side);
            canvas.text(
                &across,
                (below.center().0, below.y1 + 4.0 + NOTE + TICK),
                Look::new(TICK).align(Align::Middle),
            );
            let up = text::fit(name, TICK, false, high);
            canvas.text(&up, (MARGIN + TICK, beside.center().1), Look::new(TICK).align(Align::Middle).up());
        }
        bottom += 6.0 + NOTE + TICK;
        if n == 0 || shown.is_empty() {
            frame::no_data(canvas, &Rect::at(left, top, side, high));
        }
        bottom = sheet.legend(bottom);
        let canvas = &mut sheet.canvas;
        if !shown.is_empty() {
            bottom = frame::note(
                canvas,
                "Diagonal: how many designs have such values; the number is the count of the highest bar.",
                bottom,
            );
        }
        for note in &self.notes {
            bottom = frame::note(canvas, note, bottom);
        }
        bottom = frame::skipped(canvas, self.points.len() - shown.len(), "design", true, bottom);
        Ok(sheet.end(bottom))
    }

    fn column(&self, i: usize) -> Vec<f64> {
        self.points.iter().filter_map(|p| p.values.get(i).copied()).collect()
    }

    /// How many designs have values in each part of the range.
    fn histogram(&self, canvas: &mut Canvas, plot: &Rect, range: &Range, i: usize, shown: &[&MatrixPoint]) {
        let mut counts = [0_usize; BINS];
        for at in shown.iter().filter_map(|p| range.fraction(p.values[i])) {
            counts[((at * BINS as f64) as usize).min(BINS - 1)] += 1;
        }
        let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
        let width = plot.width() / BINS as f64;
        for (bin, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let height = plot.height() * 0.9 * *count as f64 / most;
            let x = plot.x0 + bin as f64 * width;
            canvas.rect(Rect { x0: x, y0: plot.y1 - height, x1: x + width, y1: plot.y1 }, theme::mix(DARK, WHITE, 0.6));
        }
        // The scale: what the first of the highest bars counts, above it.
        if let Some(bin) = counts.iter().position(|count| *count > 0 && *count as f64 == most) {
            let text = most.to_string();
            let half = fonts::width(&text, NOTE, false) / 2.0;
            let x =
                (plot.x0 + (bin as f64 + 0.5) * width).clamp(plot.x0 + half + 1.0, (plot.x1 - half - 1.0).max(plot.x0));
            canvas.text(&text, (x, plot.y1 - plot.height() * 0.9 - 1.5), Look::new(NOTE).align(Align::Middle));
        }
    }
}
