//! Parallel coordinates: an upright axis for each quantity, and a line across them for each design.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale, ticks};
use super::canvas::{Align, Canvas, Look, Pt};
use super::legend::{Entry, Groups, Swatch};
use super::style::Style;
use super::theme::{self, DARK, MARGIN, TICK, WHITE};
use super::{Better, PlotError, fonts, frame, render, text};

/// One axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParallelAxis {
    /// Its name, with the unit.
    pub name: String,
    /// How its numbers are spread.
    pub scale: Scale,
    /// Names of its places, for an axis of names: values are their numbers from 0.
    pub names: Vec<String>,
    /// Which end is better, where one is: said by an arrow.
    pub better: Option<Better>,
}

/// One design.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParallelLine {
    /// Lines of one group have one colour.
    pub group: String,
    /// Drawn strongly: on the front.
    pub strong: bool,
    /// A value for each axis.
    pub values: Vec<f64>,
}

/// A chart of parallel coordinates.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parallel {
    /// Heading; none if empty.
    pub title: String,
    /// The axes from the left.
    pub axes: Vec<ParallelAxis>,
    /// The designs.
    pub lines: Vec<ParallelLine>,
    /// Remarks below.
    pub notes: Vec<String>,
}

impl Parallel {
    /// Writes the figure's files.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw_in(&self, stem: &Path, style: &Style) -> Result<Vec<PathBuf>, PlotError> {
        render::write(&self.compose(style)?, stem)
    }

    pub(crate) fn compose(&self, style: &Style) -> Result<Canvas, PlotError> {
        let mut sheet = style.sheet(self.axes.len() > 3)?;
        let groups = Groups::of(self.lines.iter().map(|line| line.group.as_str()));
        let mut entries: Vec<Entry> = groups.entries().into_iter().map(Entry::boxed).collect();
        if self.lines.iter().any(|l| l.strong) && self.lines.iter().any(|l| !l.strong) {
            entries.push(Entry::new("on the front (strong)", Swatch::Line(DARK, &[])));
        }
        let top = sheet.begin(&self.title, entries) + 2.0;
        let canvas = &mut sheet.canvas;
        let count = self.axes.len().max(1);
        let ranges: Vec<Range> = (0..self.axes.len()).map(|i| self.range(i)).collect();
        let labels: Vec<Vec<(f64, String)>> =
            self.axes.iter().zip(&ranges).map(|(axis, range)| axis.labels(range)).collect();
        let widest =
            |i: usize| labels.get(i).map_or(0.0, |l| text::widest(l.iter().map(|(_, label)| label.as_str()), TICK));
        // Labels stand left of their axis.
        let room = (canvas.width - 2.0 * MARGIN) / count as f64;
        let left = MARGIN + widest(0).min(room * 0.7).max(room * 0.35) + 5.0;
        let right = canvas.width - MARGIN - room * 0.3;
        let step = if count > 1 { (right - left) / (count - 1) as f64 } else { 0.0 };
        let names: Vec<Vec<String>> =
            self.axes.iter().map(|axis| text::wrap(&axis.title(), TICK, true, step.max(60.0) - 6.0, 3)).collect();
        let head = names.iter().map(Vec::len).max().unwrap_or(0) as f64 * TICK * 1.2 + 6.0;
        let (y0, height) = (top + head, style.height_or(150.0));
        let y1 = y0 + height;
        let x_of = |i: usize| left + step * i as f64;
        let y_of = |i: usize, value: f64| ranges[i].fraction(value).map(|at| y1 - at * height);
        let path = |line: &ParallelLine| -> Option<Vec<Pt>> {
            (0..self.axes.len()).map(|i| Some((x_of(i), y_of(i, *line.values.get(i)?)?))).collect()
        };
        let paths: Vec<Option<Vec<Pt>>> = self.lines.iter().map(path).collect();
        let skipped = paths.iter().filter(|path| path.is_none()).count();
        let some = self.lines.iter().any(|l| l.strong);
        for strong in [false, true] {
            for (line, path) in self.lines.iter().zip(&paths).filter(|(line, _)| line.strong == strong) {
                let Some(path) = path else { continue };
                let color = groups.color(&line.group);
                // Weak lines behind strong ones; thin where there are very many.
                let width = if strong {
                    1.0
                } else if self.lines.len() > 300 {
                    0.25
                } else {
                    0.5
                };
                canvas.stroke(path, width, if strong || !some { color } else { theme::mix(color, WHITE, 0.6) });
            }
        }
        for (i, name) in names.iter().enumerate() {
            let x = x_of(i);
            canvas.stroke(&[(x, y0), (x, y1)], 0.8, DARK);
            for (row, line) in name.iter().rev().enumerate() {
                let half = fonts::width(line, TICK, true) / 2.0;
                let middle = x.min(canvas.width - MARGIN - half).max(MARGIN + half);
                canvas.text(
                    line,
                    (middle, y0 - 7.0 - row as f64 * TICK * 1.2),
                    Look::new(TICK).bold().align(Align::Middle),
                );
            }
            let room = if i == 0 { left - MARGIN - 4.0 } else { step - 8.0 };
            for (at, label) in &labels[i] {
                let Some(y) = y_of(i, *at) else { continue };
                canvas.stroke(&[(x - 2.0, y), (x, y)], 0.6, DARK);
                let label = text::fit(label, TICK, false, room);
                let width = fonts::width(&label, TICK, false);
                // White behind it, so that lines do not run through it.
                canvas.rect(super::canvas::Rect::at(x - 4.5 - width, y - 3.6, width + 1.5, 7.2), WHITE);
                canvas.text_mid(&label, (x - 3.5, y), Look::new(TICK).align(Align::End));
            }
        }
        let mut bottom = sheet.legend(y1 + TICK);
        let canvas = &mut sheet.canvas;
        for note in &self.notes {
            bottom = frame::note(canvas, note, bottom);
        }
        bottom = frame::skipped(canvas, skipped, "design", true, bottom);
        Ok(sheet.end(bottom))
    }

    fn range(&self, axis: usize) -> Range {
        let of = &self.axes[axis];
        if !of.names.is_empty() {
            let last = of.names.len() as f64 - 1.0;
            return Range::over(&[-0.25, last + 0.25], Scale::Linear).within((Some(-0.25), Some(last + 0.25)));
        }
        Range::over(&self.lines.iter().filter_map(|l| l.values.get(axis).copied()).collect::<Vec<_>>(), of.scale)
    }
}

impl ParallelAxis {
    fn title(&self) -> String {
        match self.better {
            Some(Better::Higher) => format!("{} \u{2191}", self.name),
            Some(Better::Lower) => format!("{} \u{2193}", self.name),
            None => self.name.clone(),
        }
    }

    fn labels(&self, range: &Range) -> Vec<(f64, String)> {
        if self.names.is_empty() {
            let inside = |at: f64| range.fraction(at).is_some_and(|at| (-0.001..=1.001).contains(&at));
            let ticks = ticks(range, 6).into_iter().filter(|tick| inside(tick.at));
            return ticks.map(|tick| (tick.at, frame::written(&tick.label, &self.name))).collect();
        }
        // Names of a long axis that would stand on each other are left out.
        let stride = self.names.len().div_ceil(16);
        self.names.iter().enumerate().step_by(stride).map(|(i, name)| (i as f64, name.clone())).collect()
    }
}
