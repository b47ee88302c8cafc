//! Roofline charts: attainable performance over operational intensity.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale, drawable};
use super::canvas::{Canvas, Pt};
use super::frame::{self, Axis, Frame, Spec};
use super::legend::{self, Entry, Groups, Swatch};
use super::roof_labels::{self, Bent};
use super::theme::{self, BLACK, MARGIN};
use super::{PlotError, Width, render};

/// One roof: `min(peak_y, slope * x)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Roof {
    /// Its name, written along the line or in the legend.
    pub label: String,
    /// The flat part.
    pub peak_y: f64,
    /// The bandwidth: the rise of the slanted part per unit of x.
    pub slope: f64,
    /// Roofs and points of one group share their colour.
    pub group: String,
}

/// A measured or modelled point under the roofs.
#[derive(Debug, Clone, PartialEq)]
pub struct RoofPoint {
    /// Its name.
    pub label: String,
    /// Roofs and points of one group share their colour.
    pub group: String,
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
}

/// Full line, then ever finer dashes: roofs of one group differ in these.
const DASHES: [&[f64]; 4] = [&[], &[5.0, 2.0], &[1.5, 1.5], &[6.0, 1.5, 1.5, 1.5]];
const ROOF_WIDTH: f64 = 1.2;
/// More labelled points than this would hide the chart.
const MOST_LABELS: usize = 24;

impl Roofline {
    /// Writes `<stem>.svg` and `<stem>.png`, one column wide.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        self.draw_at(stem, Width::Auto)
    }

    /// Like [`Roofline::draw`], with a given width.
    pub fn draw_at(&self, stem: &Path, width: Width) -> Result<Vec<PathBuf>, PlotError> {
        let mut canvas = Canvas::new(width.points(false))?;
        let can_be_drawn =
            |r: &&Roof| drawable(r.peak_y, true) && drawable(r.slope, true) && drawable(r.peak_y / r.slope, true);
        let bad_roofs = self.roofs.iter().filter(|r| !can_be_drawn(r)).count();
        let roofs = joined(self.roofs.iter().filter(can_be_drawn));
        let roofs: Vec<&Roof> = roofs.iter().collect();
        let points: Vec<&RoofPoint> =
            self.points.iter().filter(|p| drawable(p.x, true) && drawable(p.y, true)).collect();
        let groups = Groups::of(roofs.iter().map(|r| r.group.as_str()).chain(points.iter().map(|p| p.group.as_str())));
        let dashes = dashes(&roofs);
        let (x, y) = ranges(&roofs, &points);

        // The layout needs to know whether the roofs are in the legend, and that depends on the layout: a trial
        // drawing without them tells.
        let mut trial = Canvas::new(canvas.width)?;
        let direct = self.plot(&mut trial, &roofs, &points, &groups, &dashes, (x, y), false);
        let spec_bottom = match direct {
            Some(bottom) => {
                canvas = trial;
                bottom
            }
            None => self.plot(&mut canvas, &roofs, &points, &groups, &dashes, (x, y), true).unwrap_or(canvas.width),
        };
        let bad = self.points.len() - points.len();
        let mut bottom = frame::skipped(&mut canvas, bad, "point", true, spec_bottom);
        bottom = frame::skipped(&mut canvas, bad_roofs, "roof", true, bottom);
        canvas.height = bottom + MARGIN;
        render::write(&canvas, stem)
    }

    /// Draws everything down to the axis titles and returns where they end, or `None` if the roofs cannot be labelled
    /// in the plot and are not to be listed in the legend.
    #[allow(clippy::too_many_arguments)]
    fn plot(
        &self,
        canvas: &mut Canvas,
        roofs: &[&Roof],
        points: &[&RoofPoint],
        groups: &Groups,
        dashes: &[&'static [f64]],
        (x, y): (Range, Range),
        listed: bool,
    ) -> Option<f64> {
        let top = frame::title(canvas, &self.title, MARGIN);
        let entries = entries(roofs, points, groups, dashes, listed);
        let (left, right) = (MARGIN, canvas.width - MARGIN);
        let top = legend::draw(canvas, &entries, left, right, top) + 2.0;
        let height = if canvas.width > theme::COLUMN { 230.0 } else { canvas.width * 0.62 };
        let spec = Spec { x: Axis::Number(x), y, x_label: &self.x_label, y_label: &self.y_label, top, height };
        let frame = frame::draw(canvas, spec);
        let lines: Vec<Bent> = roofs.iter().filter_map(|roof| bend(&frame, x, roof)).collect();
        for (line, (roof, dash)) in lines.iter().zip(roofs.iter().zip(dashes)) {
            canvas.dashed(&[line.low, line.knee, line.end], ROOF_WIDTH, groups.color(&roof.group), dash);
        }
        let at: Vec<Pt> =
            points.iter().map(|p| frame.x_at(p.x).zip(frame.y_at(p.y)).unwrap_or((f64::NAN, f64::NAN))).collect();
        let radius = theme::point_radius(points.len());
        for (point, at) in points.iter().zip(&at) {
            let color = groups.color(&point.group);
            let outline = Some((theme::mix(color, BLACK, 0.5), 0.4));
            theme::marker(canvas, groups.shape(&point.group), *at, radius, color, outline);
        }
        if roofs.is_empty() && points.is_empty() {
            frame::no_data(canvas, &frame.plot);
        }
        let mut blocked = Vec::new();
        if !listed {
            let colors: Vec<_> = roofs.iter().map(|r| theme::mix(groups.color(&r.group), BLACK, 0.35)).collect();
            let names: Vec<&str> = roofs.iter().map(|r| r.label.as_str()).collect();
            blocked = roof_labels::draw(canvas, &frame.plot, &lines, &names, &colors, &at)?;
        }
        if points.len() <= MOST_LABELS {
            let names: Vec<&str> = points.iter().map(|p| p.label.as_str()).collect();
            roof_labels::name_points(canvas, &frame.plot, &lines, &blocked, &at, &names);
        }
        Some(frame.bottom)
    }
}

/// Roofs that lie on each other as one, with all their names: each by itself would hide the others.
fn joined<'r>(roofs: impl Iterator<Item = &'r Roof>) -> Vec<Roof> {
    let mut out: Vec<Roof> = Vec::new();
    let same = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
    for roof in roofs {
        match out.iter_mut().find(|other| same(other.peak_y, roof.peak_y) && same(other.slope, roof.slope)) {
            Some(other) if other.label != roof.label => other.label = format!("{} and {}", other.label, roof.label),
            Some(_) => {}
            None => out.push(roof.clone()),
        }
    }
    out
}

/// The legend: the groups of the points, and the roofs if they are to be listed.
fn entries(
    roofs: &[&Roof],
    points: &[&RoofPoint],
    groups: &Groups,
    dashes: &[&'static [f64]],
    listed: bool,
) -> Vec<Entry> {
    if !listed {
        return Groups::of(points.iter().map(|p| p.group.as_str())).entries_as(groups);
    }
    // A roof whose name begins with its group stands for the group's points too, if it is the group's only roof.
    let alone = |roof: &Roof| roofs.iter().filter(|other| other.group == roof.group).count() == 1;
    let both = |roof: &Roof| alone(roof) && !roof.group.is_empty() && roof.label.starts_with(&roof.group);
    let covered = |group: &str| roofs.iter().any(|roof| roof.group == group && both(roof));
    let rest = points.iter().map(|p| p.group.as_str()).filter(|group| !covered(group));
    let mut entries = Groups::of(rest).entries_as(groups);
    entries.extend(roofs.iter().zip(dashes).map(|(roof, dash)| {
        let (color, pointed) = (groups.color(&roof.group), points.iter().any(|p| p.group == roof.group));
        let swatch = if both(roof) && pointed {
            Swatch::Roof(groups.shape(&roof.group), color, dash)
        } else {
            Swatch::Line(color, dash)
        };
        Entry::new(&roof.label, swatch)
    }));
    entries
}

/// A dash pattern for each roof: the first of its group is a full line.
fn dashes(roofs: &[&Roof]) -> Vec<&'static [f64]> {
    roofs
        .iter()
        .enumerate()
        .map(|(i, roof)| {
            let before = roofs[..i].iter().filter(|other| other.group == roof.group).count();
            DASHES[before % DASHES.len()]
        })
        .collect()
}

/// Ranges that show all points, all knees, and some of both parts of each roof.
fn ranges(roofs: &[&Roof], points: &[&RoofPoint]) -> (Range, Range) {
    let knees = roofs.iter().map(|r| r.peak_y / r.slope);
    let xs: Vec<f64> = knees.flat_map(|x| [x / 6.0, x * 6.0]).chain(points.iter().map(|p| p.x)).collect();
    let x = Range::over(&xs, Scale::Log);
    let ys: Vec<f64> = roofs
        .iter()
        // The slope may leave the plot at the bottom when a roof rises over very many decades.
        .flat_map(|r| [r.peak_y * 1.3, (r.slope * x.lo()).max(r.peak_y * 1e-3)])
        .chain(points.iter().map(|p| p.y))
        .collect();
    (x, Range::over(&ys, Scale::Log))
}

/// The visible part of a roof in the figure.
fn bend(frame: &Frame, x: Range, roof: &Roof) -> Option<Bent> {
    let knee_x = roof.peak_y / roof.slope;
    let knee = (frame.x_at(knee_x)?, frame.y_at(roof.peak_y)?);
    let foot = (frame.x_at(x.lo())?, frame.y_at((roof.slope * x.lo()).max(f64::MIN_POSITIVE * 1e200))?);
    let (low, _) = frame.plot.clip(foot, knee)?;
    Some(Bent { low, knee, end: (frame.plot.x1, knee.1) })
}
