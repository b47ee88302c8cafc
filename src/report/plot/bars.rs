//! Stacked bars with the bottleneck of each bar marked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::axis::{Range, Scale, ticks};
use super::canvas::{Align, Canvas, Look, Rect};
use super::frame::{self, Axis, Spec};
use super::legend::{Entry, Swatch};
use super::style::Style;
use super::theme::{self, AXIS, BLACK, DARK, GRID, MARGIN, MID, SMALLEST, TICK};
use super::{PlotError, fonts, render, text};

/// One part of every bar.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its value in each bar; missing values count as 0.
    pub values: Vec<f64>,
}

/// A chart of stacked bars.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StackedBars {
    /// Heading; none if empty.
    pub title: String,
    /// Title of the horizontal axis.
    pub x_label: String,
    /// Title of the vertical axis, with the unit.
    pub y_label: String,
    /// The labels of the bars.
    pub categories: Vec<String>,
    /// The parts of the bars, the lowest first.
    pub series: Vec<Series>,
    /// For each bar the index of the series that is the bottleneck: outlined, with its letter above the bar.
    pub marked: Vec<Option<usize>>,
    /// Remarks below.
    pub notes: Vec<String>,
    /// Logarithmic axis of values. Only the tops of the parts can then be read off, not their heights.
    pub log: bool,
}

/// Height of a bar that lies, with its gap; of many less.
const LYING: f64 = 11.0;
/// Bars that can lie below each other on a page.
const MOST_LYING: usize = 64;

impl StackedBars {
    /// Writes the figure's files; more than 16 upright bars take the full width.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        self.draw_in(stem, &Style::default())
    }

    /// Like [`StackedBars::draw`], in a given style.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw_in(&self, stem: &Path, style: &Style) -> Result<Vec<PathBuf>, PlotError> {
        render::write(&self.compose(style)?, stem)
    }

    pub(crate) fn compose(&self, style: &Style) -> Result<Canvas, PlotError> {
        let bars = self.categories.len();
        // Names that would have to be turned are easier to read beside bars that lie.
        let lying = |width: f64| {
            let slot = (width - 45.0) / bars.max(1) as f64 - 3.0;
            (1..=MOST_LYING).contains(&bars) && text::wrap_whole(&self.categories, TICK - 1.0, slot).is_none()
        };
        let lie = lying(style.sheet(bars > 16)?.canvas.width);
        let names = text::widest(self.categories.iter().map(String::as_str), TICK);
        let wide = if lie { names > theme::COLUMN * 0.5 } else { bars > 16 };
        let mut sheet = style.sheet(wide)?;
        let letters = self.letters();
        let top = sheet.begin(&self.title, self.entries(&letters)) + 6.0;
        let mut bottom = if lie {
            self.lying(&mut sheet.canvas, top, &letters)
        } else {
            self.upright(&mut sheet.canvas, top, style, &letters)
        };
        bottom = sheet.legend(bottom);
        let skipped = self.series.iter().flat_map(|s| s.values.iter().take(bars)).filter(|v| !usable(**v)).count();
        let canvas = &mut sheet.canvas;
        if skipped > 0 {
            let plural = if skipped == 1 { "" } else { "s" };
            bottom =
                frame::note(canvas, &format!("{skipped} value{plural} not drawn (negative or not finite)."), bottom);
        }
        for note in &self.notes {
            bottom = frame::note(canvas, note, bottom);
        }
        Ok(sheet.end(bottom))
    }

    fn upright(&self, canvas: &mut Canvas, top: f64, style: &Style, letters: &[String]) -> f64 {
        let spec = Spec {
            x: Axis::Slots(self.categories.clone()),
            y: self.range().within(style.y_limits),
            x_label: &self.x_label,
            y_label: &self.y_label,
            top,
            height: style.height_or(if canvas.width > theme::COLUMN { 170.0 } else { 130.0 }),
        };
        let frame = frame::draw(canvas, spec);
        if self.categories.is_empty() || self.series.is_empty() {
            frame::no_data(canvas, &frame.plot);
        }
        for bar in 0..self.categories.len() {
            let (middle, slot) = frame.slot(bar);
            let half = (slot * 0.36).min(14.0);
            let end = |value: f64| frame.y_at(value).map_or(frame.plot.y1, |y| y.clamp(frame.plot.y0, frame.plot.y1));
            let (rects, top) = self.rects(bar, |low, high| {
                let rect = Rect { x0: middle - half, y0: end(high), x1: middle + half, y1: end(low) };
                (rect, rect.y0)
            });
            if let Some(letter) = self.bar(canvas, bar, &rects, letters) {
                let size = (slot * 1.05).clamp(SMALLEST, TICK - 0.5);
                let top = top.into_iter().fold(frame.plot.y1, f64::min);
                canvas.text(letter, (middle, top - 2.0), Look::new(size).bold().align(Align::Middle));
            }
        }
        frame.bottom
    }

    /// Bars that lie below each other, with their names at the left.
    fn lying(&self, canvas: &mut Canvas, top: f64, letters: &[String]) -> f64 {
        let bars = self.categories.len();
        let pitch = if bars > 40 { LYING * 0.8 } else { LYING };
        let size = (pitch * 0.72).clamp(SMALLEST, TICK);
        let names: Vec<String> =
            self.categories.iter().map(|name| text::fit(name, size, false, canvas.width * 0.5)).collect();
        let x0 = MARGIN + text::widest(names.iter().map(String::as_str), size) + 4.0;
        // What the bars are stands above their names.
        let mut y0 = top;
        if !self.x_label.trim().is_empty() {
            let label = text::fit(&self.x_label, TICK, false, canvas.width - 2.0 * MARGIN);
            let x = (x0 - 4.0).max(MARGIN + fonts::width(&label, TICK, false));
            canvas.text(&label, (x, y0 + TICK - 2.0), Look::new(TICK).align(Align::End).color(MID));
            y0 += TICK * 1.2;
        }
        let plot = Rect { x0, y0, x1: canvas.width - MARGIN - 10.0, y1: y0 + pitch * bars as f64 + 2.0 };
        let range = self.range();
        let x_at = |value: f64| range.fraction(value).map(|at| plot.x0 + at * plot.width());
        let look = Look::new(TICK).align(Align::Middle);
        let mut last = f64::NEG_INFINITY;
        for tick in ticks(&range, (plot.width() / 30.0).clamp(2.0, 8.0) as usize) {
            let Some(x) = x_at(tick.at) else { continue };
            canvas.stroke(&[(x, plot.y0), (x, plot.y1)], 0.5, GRID);
            let label = frame::written(&tick.label, &self.y_label);
            let half = fonts::width(&label, TICK, false) / 2.0;
            if x - half > last + 4.0 && x + half < canvas.width {
                canvas.text(&label, (x, plot.y1 + 4.0 + look.cap()), look);
                last = x + half;
            }
        }
        for (bar, name) in names.iter().enumerate() {
            let middle = plot.y0 + pitch * (bar as f64 + 0.5) + 1.0;
            canvas.text_mid(name, (plot.x0 - 4.0, middle), Look::new(size).align(Align::End));
            let end = |value: f64| x_at(value).map_or(plot.x0, |x| x.clamp(plot.x0, plot.x1));
            let half = pitch * 0.38;
            let (rects, tips) = self.rects(bar, |low, high| {
                let rect = Rect { x0: end(low), y0: middle - half, x1: end(high), y1: middle + half };
                (rect, rect.x1)
            });
            if let Some(letter) = self.bar(canvas, bar, &rects, letters) {
                let tip = tips.into_iter().fold(plot.x0, f64::max);
                canvas.text_mid(letter, (tip + 2.5, middle), Look::new(size.min(TICK - 0.5)).bold());
            }
        }
        canvas.stroke(&[(plot.x0, plot.y0), (plot.x0, plot.y1), (plot.x1, plot.y1)], 0.7, DARK);
        let mut bottom = plot.y1 + 4.0 + TICK;
        for line in text::wrap(&self.y_label, AXIS, false, canvas.width - 2.0 * MARGIN, 2) {
            bottom += AXIS * 1.25;
            let half = fonts::width(&line, AXIS, false) / 2.0;
            let x = plot.center().0.min(canvas.width - MARGIN - half).max(MARGIN + half);
            canvas.text(&line, (x, bottom), Look::new(AXIS).align(Align::Middle));
        }
        bottom + 3.0
    }

    /// The rectangle of each part of a bar that has a height, with its series, and the far end of each.
    fn rects(&self, bar: usize, rect: impl Fn(f64, f64) -> (Rect, f64)) -> (Vec<(usize, Rect)>, Vec<f64>) {
        let parts = self.parts(bar).into_iter().enumerate().filter(|(_, (low, high))| high > low);
        let found = parts.map(|(series, (low, high))| (series, rect(low, high)));
        found
            .filter(|(_, (rect, _))| rect.width() > 0.0 && rect.height() > 0.0)
            .map(|(series, (rect, end))| ((series, rect), end))
            .unzip()
    }

    /// Draws the parts of a bar, its bottleneck outlined where that leaves something of it to see, and returns the bottleneck's letter.
    fn bar<'l>(
        &self,
        canvas: &mut Canvas,
        bar: usize,
        rects: &[(usize, Rect)],
        letters: &'l [String],
    ) -> Option<&'l String> {
        for (series, rect) in rects {
            canvas.rect(*rect, theme::category(*series));
        }
        let marked = self.marked.get(bar).copied().flatten()?;
        let (_, rect) = rects.iter().find(|(series, _)| *series == marked)?;
        let width = (rect.width().min(rect.height()) * 0.16).min(1.0);
        if rect.width().min(rect.height()) >= 4.0 * width && width >= 0.4 {
            canvas.stroke_closed(&rect.grown(-width / 2.0).corners(), width, BLACK);
        }
        letters.get(marked)
    }

    /// The value of a part of a bar; what cannot be stacked counts as 0.
    fn value(&self, series: usize, bar: usize) -> f64 {
        self.series.get(series).and_then(|s| s.values.get(bar)).copied().filter(|v| usable(*v)).unwrap_or(0.0)
    }

    /// The lower and upper end of each part of a bar.
    fn parts(&self, bar: usize) -> Vec<(f64, f64)> {
        let mut sum = 0.0;
        (0..self.series.len())
            .map(|series| {
                let low = sum;
                sum += self.value(series, bar);
                (low, sum)
            })
            .collect()
    }

    fn range(&self) -> Range {
        let tops: Vec<f64> = (0..self.categories.len()).flat_map(|bar| self.parts(bar)).map(|(_, high)| high).collect();
        if !self.log {
            return Range::from_zero(&tops);
        }
        let around = Range::over(&tops, Scale::Log);
        // A log axis has no zero; the bars start at the decade below the lowest part.
        Range::log_between(10_f64.powf((around.lo().log10() - 0.05).floor()), around.hi())
    }

    /// A letter or number for each series: its initial when no other series has the same.
    fn letters(&self) -> Vec<String> {
        let initial = |s: &Series| s.name.trim().chars().next().map(|c| c.to_uppercase().to_string());
        let mut count: BTreeMap<Option<String>, usize> = BTreeMap::new();
        for series in &self.series {
            *count.entry(initial(series)).or_default() += 1;
        }
        let clear = count.iter().all(|(letter, count)| letter.is_some() && *count == 1);
        self.series
            .iter()
            .enumerate()
            .map(|(i, series)| initial(series).filter(|_| clear).unwrap_or_else(|| (i + 1).to_string()))
            .collect()
    }

    fn entries(&self, letters: &[String]) -> Vec<Entry> {
        let marked = self.marked.iter().flatten().any(|series| *series < self.series.len());
        let mut entries: Vec<Entry> = self
            .series
            .iter()
            .zip(letters)
            .enumerate()
            .map(|(i, (series, letter))| {
                let label = if marked { format!("{} ({letter})", series.name) } else { series.name.clone() };
                Entry::new(&label, Swatch::Box(theme::category(i)))
            })
            .collect();
        if marked {
            entries.push(Entry::new("bottleneck", Swatch::Outline));
        }
        entries
    }
}

fn usable(value: f64) -> bool {
    value >= 0.0 && super::axis::drawable(value, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(names: &[&str]) -> StackedBars {
        let series =
            names.iter().map(|n| Series { name: (*n).to_string(), values: vec![1.0, f64::NAN, -1.0] }).collect();
        StackedBars { categories: vec![String::new(); 3], series, ..StackedBars::default() }
    }

    #[test]
    fn letters_are_initials_or_numbers() {
        assert_eq!(bars(&["compute", "DRAM", "network"]).letters(), ["C", "D", "N"]);
        assert_eq!(bars(&["compute", "cache"]).letters(), ["1", "2"]);
        assert_eq!(bars(&["compute", ""]).letters(), ["1", "2"]);
    }

    #[test]
    fn bad_values_stack_as_zero() {
        let chart = bars(&["a", "b"]);
        assert_eq!(chart.parts(0), [(0.0, 1.0), (1.0, 2.0)]);
        assert_eq!(chart.parts(1), [(0.0, 0.0), (0.0, 0.0)]);
        assert_eq!(chart.parts(2), [(0.0, 0.0), (0.0, 0.0)]);
    }
}
