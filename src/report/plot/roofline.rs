//! Roofline charts: attainable performance over operational intensity.
//!
//! Chips that share a memory share the slanted part of their roofs, and chips of one peak the level part. Each part is drawn once: the
//! slanted ones grey with a dash pattern for each bandwidth, the level ones in the colour of their chip. Points have the colour of
//! their chip and the marker of their memory.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale, drawable};
use super::canvas::{Canvas, Pt};
use super::frame::{self, Axis, Frame, Spec};
use super::labels::name_points;
use super::legend::{Entry, Groups, Swatch};
use super::style::Style;
use super::theme::{self, BLACK, DARK, MID, Rgb};
use super::{PlotError, render, short_number};

/// One roof: `min(peak_y, slope * x)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Roof {
    /// The chip, whose colour the level part has.
    pub chip: String,
    /// The memory, whose dash pattern the slanted part has.
    pub memory: String,
    /// The flat part.
    pub peak_y: f64,
    /// The bandwidth: the rise of the slanted part per unit of x.
    pub slope: f64,
}

/// A measured or modelled point under the roofs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoofPoint {
    /// Its name.
    pub label: String,
    /// Its chip.
    pub chip: String,
    /// Its memory.
    pub memory: String,
    /// Operational intensity.
    pub x: f64,
    /// Performance.
    pub y: f64,
}

/// A roofline chart; both axes are logarithmic.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roofline {
    /// Heading; none if empty.
    pub title: String,
    /// Title of the horizontal axis, with the unit.
    pub x_label: String,
    /// Title of the vertical axis, with the unit.
    pub y_label: String,
    /// The roofs.
    pub roofs: Vec<Roof>,
    /// The points.
    pub points: Vec<RoofPoint>,
    /// Remarks below.
    pub notes: Vec<String>,
}

/// Dash patterns of bandwidths.
const DASHES: [&[f64]; 5] = [&[], &[5.0, 2.0], &[1.5, 1.5], &[6.0, 1.5, 1.5, 1.5], &[9.0, 3.0]];
const ROOF_WIDTH: f64 = 1.2;
/// More labelled points than this would hide the chart.
const MOST_LABELS: usize = 24;

/// A slanted or level part that some roofs share: its height (or rise), who they are, and where it ends (or begins).
struct Part {
    value: f64,
    /// With the value of each itself.
    names: Vec<(String, f64)>,
    until: f64,
}

impl Roofline {
    /// Writes the figure's files, one column wide.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        self.draw_in(stem, &Style::default())
    }

    /// Like [`Roofline::draw`], in a given style.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw_in(&self, stem: &Path, style: &Style) -> Result<Vec<PathBuf>, PlotError> {
        render::write(&self.compose(style)?, stem)
    }

    pub(crate) fn compose(&self, style: &Style) -> Result<Canvas, PlotError> {
        let can_be_drawn =
            |r: &&Roof| drawable(r.peak_y, true) && drawable(r.slope, true) && drawable(r.peak_y / r.slope, true);
        let roofs: Vec<&Roof> = self.roofs.iter().filter(can_be_drawn).collect();
        let (x, y) = self.ranges(&roofs);
        let (x, y) = (x.within(style.x_limits), y.within(style.y_limits));
        let points: Vec<&RoofPoint> = self.points.iter().filter(|p| x.shows(p.x) && y.shows(p.y)).collect();
        let chips = Groups::of(roofs.iter().map(|r| r.chip.as_str()).chain(points.iter().map(|p| p.chip.as_str())));
        let memories =
            Groups::of(roofs.iter().map(|r| r.memory.as_str()).chain(points.iter().map(|p| p.memory.as_str())));
        let slants = slants(&roofs);
        let levels = levels(&roofs);

        let mut sheet = style.sheet(false)?;
        let top = sheet.begin(&self.title, entries(&chips, &memories, &slants, !points.is_empty())) + 2.0;
        let canvas = &mut sheet.canvas;
        let height = style.height_or(if canvas.width > theme::COLUMN { 230.0 } else { canvas.width * 0.62 });
        let spec = Spec { x: Axis::Number(x), y, x_label: &self.x_label, y_label: &self.y_label, top, height };
        let frame = frame::draw(canvas, spec);
        let mut lines: Vec<(Pt, Pt)> = Vec::new();
        for (i, part) in slants.iter().enumerate() {
            // On axes of ratios a roof's rise is a straight line from any point of it to its knee.
            let line = line(&frame, (x.lo(), part.value * x.lo()), (part.until / part.value, part.until));
            if let Some((a, b)) = line {
                let (grey, dash) = stroke_of(i);
                canvas.dashed(&[a, b], ROOF_WIDTH, grey, dash);
                lines.push((a, b));
            }
        }
        for part in &levels {
            if let Some((a, b)) = line(&frame, (part.until, part.value), (x.hi().max(part.until), part.value)) {
                canvas.stroke(&[a, b], ROOF_WIDTH, level_color(&chips, part));
                lines.push((a, b));
            }
        }
        let at: Vec<Pt> =
            points.iter().map(|p| frame.x_at(p.x).zip(frame.y_at(p.y)).unwrap_or((f64::NAN, f64::NAN))).collect();
        let radius = theme::point_radius(points.len());
        for (point, at) in points.iter().zip(&at) {
            let color = chips.color(&point.chip);
            let outline = Some((theme::mix(color, BLACK, 0.5), 0.4));
            theme::marker(canvas, memories.shape(&point.memory), *at, radius, color, outline);
        }
        if roofs.is_empty() && points.is_empty() {
            frame::no_data(canvas, &frame.plot);
        }
        if points.len() <= MOST_LABELS {
            let names: Vec<&str> = points.iter().map(|p| p.label.as_str()).collect();
            name_points(canvas, &frame.plot, &lines, &at, &names);
        }
        let mut bottom = sheet.legend(frame.bottom);
        let canvas = &mut sheet.canvas;
        for note in &self.notes {
            bottom = frame::note(canvas, note, bottom);
        }
        bottom = frame::skipped(canvas, self.points.len() - points.len(), "point", true, bottom);
        bottom = frame::skipped(canvas, self.roofs.len() - roofs.len(), "roof", true, bottom);
        Ok(sheet.end(bottom))
    }

    /// Ranges that show all points, all knees, and some of both parts of each roof.
    fn ranges(&self, roofs: &[&Roof]) -> (Range, Range) {
        let points = || self.points.iter().filter(|p| drawable(p.x, true) && drawable(p.y, true));
        let knees = roofs.iter().map(|r| r.peak_y / r.slope);
        let xs: Vec<f64> = knees.flat_map(|x| [x / 3.0, x * 3.0]).chain(points().map(|p| p.x)).collect();
        let x = Range::over(&xs, Scale::Log);
        let ys: Vec<f64> = roofs
            .iter()
            // The slope may leave the plot at the bottom when a roof rises over very many decades.
            .flat_map(|r| [r.peak_y * 1.3, (r.slope * x.lo()).max(r.peak_y * 1e-2)])
            .chain(points().map(|p| p.y))
            .collect();
        (x, Range::over(&ys, Scale::Log))
    }
}

fn same(a: f64, b: f64) -> bool {
    // Less than a line is wide on an axis of four decades.
    (a / b).ln().abs() <= 0.04
}

/// Adds a roof's part to those there are.
fn add(parts: &mut Vec<Part>, value: f64, name: &str, until: f64, better: fn(f64, f64) -> f64) {
    match parts.iter_mut().find(|part| same(part.value, value)) {
        Some(part) => {
            part.until = better(part.until, until);
            if !part.names.iter().any(|(other, of)| other == name && rate(*of) == rate(value)) {
                part.names.push((name.to_string(), value));
            }
        }
        None => parts.push(Part { value, names: vec![(name.to_string(), value)], until }),
    }
}

/// Bytes a second in words.
fn rate(value: f64) -> String {
    let text = short_number(value);
    let prefix = text.find(|c: char| c.is_ascii_uppercase() || c == 'k').unwrap_or(text.len());
    format!("{} {}B/s", &text[..prefix], &text[prefix..])
}

/// How the line of a bandwidth is drawn: dashes, and where there are more bandwidths than dashes another grey.
fn stroke_of(i: usize) -> (Rgb, &'static [f64]) {
    let greys = [MID, BLACK, theme::mix(MID, theme::WHITE, 0.45)];
    (greys[i / DASHES.len() % greys.len()], DASHES[i % DASHES.len()])
}

/// The slanted parts, each up to the highest peak of the roofs that share it.
fn slants(roofs: &[&Roof]) -> Vec<Part> {
    let mut parts = Vec::new();
    roofs.iter().for_each(|r| add(&mut parts, r.slope, &r.memory, r.peak_y, f64::max));
    parts
}

/// The level parts, each from the leftmost knee of the roofs that share it.
fn levels(roofs: &[&Roof]) -> Vec<Part> {
    let mut parts = Vec::new();
    roofs.iter().for_each(|r| add(&mut parts, r.peak_y, &r.chip, r.peak_y / r.slope, f64::min));
    parts
}

/// The colour of a level part; of several chips neither's.
fn level_color(chips: &Groups, part: &Part) -> Rgb {
    match part.names.as_slice() {
        [(chip, _)] => chips.color(chip),
        _ => DARK,
    }
}

/// The part of a line inside the plot.
fn line(frame: &Frame, from: (f64, f64), to: (f64, f64)) -> Option<(Pt, Pt)> {
    let tiny = f64::MIN_POSITIVE * 1e200;
    let at = |(x, y): (f64, f64)| Some((frame.x_anywhere(x)?, frame.y_anywhere(y.max(tiny))?));
    frame.plot.clip(at(from)?, at(to)?)
}

/// Chips as boxes, memories as markers, bandwidths as dashes; a memory of one bandwidth, alone with it, is one entry.
fn entries(chips: &Groups, memories: &Groups, slants: &[Part], points: bool) -> Vec<Entry> {
    let mut entries: Vec<Entry> = chips.entries().into_iter().map(Entry::boxed).collect();
    let alone = |memory: &str| slants.iter().filter(|s| s.names.iter().any(|(n, _)| n == memory)).count() <= 1;
    let mut named: Vec<&str> = Vec::new();
    for (i, slant) in slants.iter().enumerate() {
        let equal = slant.names.iter().all(|(_, value)| rate(*value) == rate(slant.value));
        let label = if equal {
            let names: Vec<&str> = slant.names.iter().map(|(name, _)| name.as_str()).collect();
            format!("{}: {}", names.join(", "), rate(slant.value))
        } else {
            let each: Vec<String> =
                slant.names.iter().map(|(name, value)| format!("{name}: {}", rate(*value))).collect();
            each.join(", ")
        };
        let (grey, dash) = stroke_of(i);
        let swatch = match slant.names.as_slice() {
            [(memory, _)] if alone(memory) && points => {
                named.push(memory);
                Swatch::Roof(memories.shape(memory), grey, dash)
            }
            _ => Swatch::Line(grey, dash),
        };
        entries.push(Entry::new(label.trim_start_matches(": "), swatch));
    }
    if points {
        let mut rest = memories.entries();
        rest.retain(|entry| !named.contains(&entry.name()));
        rest.iter_mut().for_each(Entry::grey);
        entries.extend(rest);
    }
    entries
}
