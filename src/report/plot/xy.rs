//! A plain chart of y over x by group, for any table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::axis::{Range, Scale};
use super::canvas::{Canvas, Pt};
use super::frame::{self, Axis, Frame, Spec};
use super::legend::Groups;
use super::numbers::short_number;
use super::style::Style;
use super::theme::{self, BLACK};
use super::{PlotError, render};

/// A position on the horizontal axis.
#[derive(Debug, Clone, PartialEq)]
pub enum XValue {
    /// A number.
    Number(f64),
    /// A name; each distinct name gets a slot of its own.
    Text(String),
}

/// One point.
#[derive(Debug, Clone, PartialEq)]
pub struct XyPoint {
    /// Points of one group share colour and marker shape, and are connected.
    pub group: String,
    /// Horizontal position.
    pub x: XValue,
    /// Vertical position.
    pub y: f64,
}

/// A scatter or line chart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XyChart {
    /// Heading; none if empty.
    pub title: String,
    /// Title of the horizontal axis, with the unit.
    pub x_label: String,
    /// Title of the vertical axis, with the unit.
    pub y_label: String,
    /// The points. If any x is a name, all are treated as names.
    pub points: Vec<XyPoint>,
    /// Connect the points of each group in the order of x; a point without a number for y interrupts the line.
    pub lines: bool,
    /// Lines go level to the next x and then up or down: what holds until the next point.
    pub steps: bool,
    /// Remarks below.
    pub notes: Vec<String>,
    /// Scale of the horizontal axis; no effect on names.
    pub x_scale: Scale,
    /// Scale of the vertical axis.
    pub y_scale: Scale,
}

impl XyChart {
    /// Writes the figure's files; more than 24 names take the full width.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        self.draw_in(stem, &Style::default())
    }

    /// Like [`XyChart::draw`], in a given style.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw_in(&self, stem: &Path, style: &Style) -> Result<Vec<PathBuf>, PlotError> {
        render::write(&self.compose(style)?, stem)
    }

    pub(crate) fn compose(&self, style: &Style) -> Result<Canvas, PlotError> {
        let ys: Vec<f64> = self.points.iter().map(|p| p.y).collect();
        let y = Range::over(&ys, self.y_scale).within(style.y_limits);
        let slots = self.slots();
        let numbers: Vec<f64> = self.points.iter().filter_map(|p| number(&p.x)).collect();
        let x = Range::over(&numbers, self.x_scale).within(style.x_limits);
        let mut sheet = style.sheet(slots.as_ref().is_some_and(|(names, _)| names.len() > 24))?;
        let groups = Groups::of(self.points.iter().map(|p| p.group.as_str()));
        let top = sheet.begin(&self.title, groups.entries()) + 2.0;
        let axis = match &slots {
            Some((names, _)) => Axis::Slots(names.clone()),
            None => Axis::Number(x),
        };
        let canvas = &mut sheet.canvas;
        let height = style.height_or(if canvas.width > theme::COLUMN { 180.0 } else { canvas.width * 0.6 });
        let spec = Spec { x: axis, y, x_label: &self.x_label, y_label: &self.y_label, top, height };
        let frame = frame::draw(canvas, spec);

        // The position of each point; y is missing where the value cannot be drawn.
        let at: Vec<(Option<f64>, Option<f64>)> = self
            .points
            .iter()
            .map(|p| (place(&p.x, &frame, slots.as_ref().map(|(_, index)| index)), frame.y_at(p.y)))
            .collect();
        if self.lines {
            self.connect(canvas, &groups, &at);
        }
        let shown: Vec<(usize, Pt)> = at.iter().enumerate().filter_map(|(i, at)| Some((i, at.0.zip(at.1)?))).collect();
        if shown.is_empty() {
            frame::no_data(canvas, &frame.plot);
        }
        let radius = theme::point_radius(shown.len());
        for (i, at) in &shown {
            let group = &self.points[*i].group;
            let color = groups.color(group);
            // Outlines of very many small markers would only darken the cloud.
            let outline = (shown.len() <= 1000).then(|| (theme::mix(color, BLACK, 0.4), 0.35));
            theme::marker(canvas, groups.shape(group), *at, radius, color, outline);
        }
        let log = y.is_log() || (slots.is_none() && x.is_log());
        let mut bottom = sheet.legend(frame.bottom);
        let canvas = &mut sheet.canvas;
        for note in &self.notes {
            bottom = frame::note(canvas, note, bottom);
        }
        bottom = frame::skipped(canvas, self.points.len() - shown.len(), "point", log, bottom);
        Ok(sheet.end(bottom))
    }

    /// The names on the horizontal axis in the order of appearance, and their numbers; `None` if all x are numbers.
    fn slots(&self) -> Option<(Vec<String>, BTreeMap<String, usize>)> {
        if !self.points.iter().any(|p| matches!(p.x, XValue::Text(_))) {
            return None;
        }
        let mut names: Vec<String> = Vec::new();
        let mut index = BTreeMap::new();
        for point in &self.points {
            let name = name(&point.x);
            if !index.contains_key(&name) {
                index.insert(name.clone(), names.len());
                names.push(name);
            }
        }
        Some((names, index))
    }

    fn connect(&self, canvas: &mut Canvas, groups: &Groups, at: &[(Option<f64>, Option<f64>)]) {
        let mut by_group: BTreeMap<&str, Vec<(f64, Option<f64>)>> = BTreeMap::new();
        for (point, (x, y)) in self.points.iter().zip(at) {
            if let Some(x) = x {
                by_group.entry(&point.group).or_default().push((*x, *y));
            }
        }
        for (group, mut line) in by_group {
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
            for run in line.split(|(_, y)| y.is_none()) {
                let mut path: Vec<Pt> = run.iter().filter_map(|(x, y)| Some((*x, (*y)?))).collect();
                if self.steps {
                    let corners = path.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
                    path = corners.chain(path.last().copied()).collect();
                }
                canvas.stroke(&path, 1.0, groups.color(group));
            }
        }
    }
}

fn number(x: &XValue) -> Option<f64> {
    match x {
        XValue::Number(value) => Some(*value),
        XValue::Text(_) => None,
    }
}

fn name(x: &XValue) -> String {
    match x {
        XValue::Number(value) => short_number(*value),
        XValue::Text(text) => text.clone(),
    }
}

fn place(x: &XValue, frame: &Frame, slots: Option<&BTreeMap<String, usize>>) -> Option<f64> {
    match slots {
        Some(index) => index.get(&name(x)).map(|slot| frame.slot(*slot).0),
        None => number(x).and_then(|value| frame.x_at(value)),
    }
}
