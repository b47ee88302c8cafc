//! Stacked bars with the bottleneck of each bar marked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::axis::{Range, Scale};
use super::canvas::{Align, Canvas, Look, Rect};
use super::frame::{self, Axis, Frame, Spec};
use super::legend::{self, Entry, Swatch};
use super::theme::{self, BLACK, MARGIN, SMALLEST, TICK};
use super::{PlotError, Width, render};

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
    /// Logarithmic vertical axis. Only the tops of the parts can then be read off, not their heights.
    pub log: bool,
}

impl StackedBars {
    /// Writes `<stem>.svg` and `<stem>.png`; more than 16 bars take the full width.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        self.draw_at(stem, Width::Auto)
    }

    /// Like [`StackedBars::draw`], with a given width.
    pub fn draw_at(&self, stem: &Path, width: Width) -> Result<Vec<PathBuf>, PlotError> {
        let bars = self.categories.len();
        let mut canvas = Canvas::new(width.points(bars > 16))?;
        let letters = self.letters();
        let top = frame::title(&mut canvas, &self.title, MARGIN);
        let (left, right) = (MARGIN, canvas.width - MARGIN);
        let top = legend::draw(&mut canvas, &self.entries(&letters), left, right, top) + 6.0;
        let spec = Spec {
            x: Axis::Slots(self.categories.clone()),
            y: self.range(),
            x_label: &self.x_label,
            y_label: &self.y_label,
            top,
            height: if canvas.width > theme::COLUMN { 170.0 } else { 130.0 },
        };
        let frame = frame::draw(&mut canvas, spec);
        if bars == 0 || self.series.is_empty() {
            frame::no_data(&mut canvas, &frame.plot);
        }
        for bar in 0..bars {
            self.bar(&mut canvas, &frame, bar, &letters);
        }
        let skipped = self.series.iter().flat_map(|s| s.values.iter().take(bars)).filter(|v| !usable(**v)).count();
        let mut bottom = frame.bottom;
        if skipped > 0 {
            let plural = if skipped == 1 { "" } else { "s" };
            bottom = frame::note(
                &mut canvas,
                &format!("{skipped} value{plural} not drawn (negative or not finite)."),
                bottom,
            );
        }
        canvas.height = bottom + MARGIN;
        render::write(&canvas, stem)
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

    fn bar(&self, canvas: &mut Canvas, frame: &Frame, bar: usize, letters: &[String]) {
        let (middle, slot) = frame.slot(bar);
        let half = (slot * 0.36).min(14.0);
        let mut outline = None;
        let mut top = frame.plot.y1;
        for (series, (low, high)) in self.parts(bar).into_iter().enumerate() {
            // On a log axis zero is at the foot of the bar.
            let y_of = |value: f64| frame.y_at(value).map_or(frame.plot.y1, |y| y.min(frame.plot.y1));
            let rect = Rect { x0: middle - half, y0: y_of(high), x1: middle + half, y1: y_of(low) };
            if high <= low || rect.height() <= 0.0 {
                continue;
            }
            canvas.rect(rect, theme::category(series));
            top = top.min(rect.y0);
            if self.marked.get(bar).copied().flatten() == Some(series) {
                outline = Some((series, rect));
            }
        }
        if let Some((series, rect)) = outline {
            let width = (slot * 0.16).clamp(0.6, 1.2);
            canvas.stroke_closed(&rect.grown(-width / 2.0).corners(), width, BLACK);
            if let Some(letter) = letters.get(series) {
                let size = (slot * 1.05).clamp(SMALLEST, TICK - 0.5);
                canvas.text(letter, (middle, top - 2.0), Look::new(size).bold().align(Align::Middle));
            }
        }
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
