//! Two objectives against each other, or three with the third as colour, with the front of designs that no other design beats.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale};
use super::canvas::{Align, Canvas, Look, Pt, Rect};
use super::frame::{self, Axis, Frame, Spec};
use super::heatmap;
use super::labels::{self, Placed, Scene, Wanted};
use super::legend::{Entry, Groups, Swatch};
use super::style::Style;
use super::theme::{self, BLACK, DARK, MARGIN, MID, NOTE, TICK, WHITE};
use super::{PlotError, fonts, render, text};

/// Which direction of an objective is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Better {
    /// Smaller values, such as cost.
    #[default]
    Lower,
    /// Larger values, such as throughput.
    Higher,
}

impl Better {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Better::Lower => "lower",
            Better::Higher => "higher",
        }
    }

    /// The value turned so that smaller is better. Adding zero makes -0 and 0 equal.
    pub(crate) fn turned(self, value: f64) -> f64 {
        match self {
            Better::Lower => value + 0.0,
            Better::Higher => -value + 0.0,
        }
    }
}

/// One design.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Point {
    /// Its name, shown if the design is on the front.
    pub label: String,
    /// Designs of one group share colour and marker shape.
    pub group: String,
    /// Designs compete with those of the same class alone (one workload, one study): each class has a front of its own.
    pub class: String,
    /// First objective.
    pub x: f64,
    /// Second objective.
    pub y: f64,
    /// Third objective, where the chart has one.
    pub z: f64,
    /// Designs that are not proven the best of their search are hollow.
    pub open: bool,
    /// The y that the search could not rule out, for a design that is not proven: the end of a whisker.
    pub reach: Option<f64>,
    /// No measurement backs predictions of its kind: the marker is hatched.
    pub unvalidated: bool,
}

/// Designs without a plan for one reason, at their x: crosses in a strip of their own.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Missing {
    /// The reason in a word.
    pub reason: String,
    /// What is known of their x; the number of designs is that of the entries.
    pub x: Vec<f64>,
}

/// The third objective of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Third {
    /// Title of the colour bar, with the unit.
    pub label: String,
    /// Which value is better.
    pub better: Better,
}

/// A scatter chart with the Pareto fronts emphasised.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParetoChart {
    /// Heading; none if empty.
    pub title: String,
    /// Title of the horizontal axis, with the unit.
    pub x_label: String,
    /// Title of the vertical axis, with the unit.
    pub y_label: String,
    /// Which x is better.
    pub x_better: Better,
    /// Which y is better.
    pub y_better: Better,
    /// The third objective; the front is then that of three.
    pub third: Option<Third>,
    /// The points alone: nothing is known to be better.
    pub no_front: bool,
    /// The designs.
    pub points: Vec<Point>,
    /// Designs without a plan.
    pub missing: Vec<Missing>,
    /// What parts designs into classes ("workload"), for remarks.
    pub class_name: String,
    /// Remarks below.
    pub notes: Vec<String>,
    /// Scale of the horizontal axis.
    pub x_scale: Scale,
    /// Scale of the vertical axis.
    pub y_scale: Scale,
}

/// Relative difference that rounding explains: a search of the front takes no less for better.
const ROUNDING: f64 = 1e-9;

/// The indices of the points that no other point beats, from the best x to the best y.
///
/// A point is beaten by one that is at least as good in both objectives and better in one. So of equal points all are
/// on the front. Points with a NaN are ignored.
pub fn pareto_front(points: &[(f64, f64)], x_better: Better, y_better: Better) -> Vec<usize> {
    let mut order: Vec<(f64, f64, usize)> = points
        .iter()
        .enumerate()
        .filter(|(_, (x, y))| !x.is_nan() && !y.is_nan())
        .map(|(i, (x, y))| (x_better.turned(*x), y_better.turned(*y), i))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut front = Vec::new();
    let mut last: Option<(f64, f64)> = None;
    for (x, y, index) in order {
        if last.is_none_or(|(best_x, best_y)| best_y - y > ROUNDING * best_y.abs() || (x == best_x && y == best_y)) {
            last = Some((x, y));
            front.push(index);
        }
    }
    front
}

/// The indices of the points that no other point beats, of points whose coordinates are all better when smaller; in the order of the
/// first coordinate. Points with a NaN are ignored.
pub(crate) fn front_of(points: &[Vec<f64>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).filter(|i| points[*i].iter().all(|v| !v.is_nan())).collect();
    let compare = |a: &usize, b: &usize| {
        let pairs = points[*a].iter().zip(&points[*b]);
        pairs.map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(a.cmp(b))
    };
    order.sort_by(compare);
    // A point can only be beaten by one before it, and then by one of the front before it.
    let mut front: Vec<usize> = Vec::new();
    for i in order {
        let beaten = |by: &usize| {
            let by = &points[*by];
            by != &points[i] && by.iter().zip(&points[i]).all(|(a, b)| a - b <= ROUNDING * b.abs())
        };
        if !front.iter().any(beaten) {
            front.push(i);
        }
    }
    front
}

/// The knee of a front: the position in `front` of the point farthest from the line between its ends, in the direction of better.
/// `at` are positions in the figure; fronts of fewer than three different points have none, nor those without a bend outwards.
fn knee(front: &[usize], at: &[Pt], (right, up): (bool, bool)) -> Option<usize> {
    let (a, b) = (at[*front.first()?], at[*front.last()?]);
    let length = (b.0 - a.0).hypot(b.1 - a.1);
    // The normal of the line that points to the better corner; y grows downwards.
    let normal = ((b.1 - a.1) / length, -(b.0 - a.0) / length);
    let toward = (if right { 1.0 } else { -1.0 }, if up { -1.0 } else { 1.0 });
    let sign = if normal.0 * toward.0 + normal.1 * toward.1 < 0.0 { -1.0 } else { 1.0 };
    let out = |i: &usize| sign * (normal.0 * (at[*i].0 - a.0) + normal.1 * (at[*i].1 - a.1));
    let far = (0..front.len()).max_by(|x, y| out(&front[*x]).total_cmp(&out(&front[*y])).then(y.cmp(x)))?;
    (length > 0.0 && out(&front[far]) > 2.0).then_some(far)
}

/// More labels than this are not placed.
const MOST_LABELS: usize = 9;
/// Labels wider than this go into a list below the plot.
const WIDE_LABEL: f64 = 64.0;
/// Height of a strip of designs without a plan, and the most strips.
const STRIP: f64 = 8.0;
const MOST_STRIPS: usize = 4;

impl ParetoChart {
    /// Writes the figure's files, one column wide.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        self.draw_in(stem, &Style::default())
    }

    /// Like [`ParetoChart::draw`], in a given style.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw_in(&self, stem: &Path, style: &Style) -> Result<Vec<PathBuf>, PlotError> {
        render::write(&self.compose(style)?, stem)
    }

    /// The fronts by class, each as indices of `shown`.
    fn fronts(&self, shown: &[&Point]) -> Vec<Vec<usize>> {
        if self.no_front {
            return Vec::new();
        }
        let classes = Groups::of(shown.iter().map(|p| p.class.as_str()));
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); classes.len()];
        shown.iter().enumerate().for_each(|(i, p)| members[classes.position(&p.class)].push(i));
        let front = |members: Vec<usize>| {
            let found = match &self.third {
                None => {
                    let points: Vec<(f64, f64)> = members.iter().map(|i| (shown[*i].x, shown[*i].y)).collect();
                    pareto_front(&points, self.x_better, self.y_better)
                }
                Some(third) => {
                    let turned = |p: &Point| {
                        vec![self.x_better.turned(p.x), self.y_better.turned(p.y), third.better.turned(p.z)]
                    };
                    front_of(&members.iter().map(|i| turned(shown[*i])).collect::<Vec<_>>())
                }
            };
            found.into_iter().map(|i| members[i]).collect()
        };
        members.into_iter().map(front).collect()
    }

    pub(crate) fn compose(&self, style: &Style) -> Result<Canvas, PlotError> {
        let mut sheet = style.sheet(false)?;
        let crosses = self.missing.iter().flat_map(|m| m.x.iter());
        let xs: Vec<f64> = self.points.iter().map(|p| p.x).chain(crosses.copied()).collect();
        let ys: Vec<f64> = self.points.iter().flat_map(|p| [Some(p.y), p.reach]).flatten().collect();
        let x = Range::over(&xs, self.x_scale).within(style.x_limits);
        let y = Range::over(&ys, self.y_scale).within(style.y_limits);
        let zs: Vec<f64> = self.points.iter().map(|p| p.z).collect();
        let z = self.third.as_ref().map(|third| (third, Range::tight(&zs, Scale::Auto)));
        let seen = |p: &&Point| x.shows(p.x) && y.shows(p.y) && z.as_ref().is_none_or(|(_, range)| range.shows(p.z));
        let shown: Vec<&Point> = self.points.iter().filter(seen).collect();
        let groups = Groups::of(shown.iter().map(|p| p.group.as_str()));
        let fronts = self.fronts(&shown);
        let front: Vec<usize> = fronts.concat();

        let mut entries = groups.entries();
        if z.is_some() {
            // Colour is the third objective.
            entries.iter_mut().for_each(Entry::grey);
        }
        if fronts.iter().any(|front| front.len() > 1) && z.is_none() {
            let name = if fronts.len() > 1 { "Pareto fronts" } else { "Pareto front" };
            entries.push(Entry::new(name, Swatch::Front));
        }
        let top = sheet.begin(&self.title, entries) + 2.0;
        let strips: Vec<&Missing> = self.missing.iter().filter(|m| m.x.iter().any(|x_of| x.shows(*x_of))).collect();
        let strips = &strips[..strips.len().min(MOST_STRIPS)];
        let bar = z.as_ref().map_or(0.0, |(third, range)| heatmap::bar_room(range, &third.label) + heatmap::BAR_GAP);
        let canvas = &mut sheet.canvas;
        canvas.width -= bar;
        let height = style.height_or(if canvas.width > theme::COLUMN { 230.0 } else { canvas.width * 0.62 });
        let above = strips.len() as f64 * STRIP;
        let spec =
            Spec { x: Axis::Number(x), y, x_label: &self.x_label, y_label: &self.y_label, top: top + above, height };
        let frame = frame::draw(canvas, spec);
        canvas.width += bar;
        let place = |p: &Point| Some((frame.x_at(p.x)?, frame.y_at(p.y)?));
        let at: Vec<Pt> = shown.iter().map(|p| place(p).unwrap_or((f64::NAN, f64::NAN))).collect();
        if shown.is_empty() {
            frame::no_data(canvas, &frame.plot);
        }
        draw_strips(canvas, &frame, strips);
        if let Some((third, range)) = &z {
            heatmap::color_bar(canvas, &frame.plot, range, &third.label, top);
        }

        let radius = theme::point_radius(shown.len());
        let mut on_front = vec![false; shown.len()];
        front.iter().for_each(|i| on_front[*i] = true);
        let color = |p: &Point| match &z {
            Some((_, range)) => theme::viridis(range.fraction(p.z).unwrap_or(0.0)),
            None => groups.color(&p.group),
        };
        for (i, point) in shown.iter().enumerate() {
            if let Some(end) = point.reach.filter(|_| point.open).and_then(|reach| frame.y_at(reach)) {
                whisker(canvas, at[i], end.clamp(frame.plot.y0, frame.plot.y1), theme::mix(color(point), BLACK, 0.3));
            }
        }
        for (i, point) in shown.iter().enumerate().filter(|(i, _)| !on_front[*i]) {
            let color = if z.is_some() { color(point) } else { theme::mix(color(point), WHITE, 0.5) };
            let (fill, outline) = if point.open { (WHITE, Some((color, 0.8))) } else { (color, None) };
            theme::marker(canvas, groups.shape(&point.group), at[i], radius, fill, outline);
            hatch(canvas, point, at[i], radius);
        }
        let large = if front.len() > 14 { FRONT_RADIUS - 0.7 } else { FRONT_RADIUS };
        let mut lines: Vec<(Pt, Pt)> = Vec::new();
        // A staircase is the border of what a front of two objectives beats; of three there is none in the plane.
        for front in fronts.iter().filter(|_| z.is_none()) {
            let stairs = staircase(&front.iter().map(|i| at[*i]).collect::<Vec<_>>());
            canvas.stroke(&stairs, 0.9, stair_color(&groups, &shown, front, fronts.len()));
            lines.extend(stairs.windows(2).map(|pair| (pair[0], pair[1])));
        }
        for i in &front {
            let point = shown[*i];
            let color = color(point);
            let (fill, outline) = if point.open { (WHITE, (color, 1.0)) } else { (color, (BLACK, 0.7)) };
            theme::marker(canvas, groups.shape(&point.group), at[*i], large, fill, Some(outline));
            hatch(canvas, point, at[*i], large);
        }
        let toward = (self.x_better == Better::Higher, self.y_better == Better::Higher);
        let knees: Vec<usize> = match z {
            None => fronts.iter().filter_map(|front| knee(front, &at, toward).map(|k| front[k])).collect(),
            Some(_) => Vec::new(),
        };
        for i in &knees {
            ring(canvas, at[*i], large + 2.2);
        }

        let corner = self.better_corner(canvas, &frame.plot, &at);
        let blocked: Vec<Rect> = corner.into_iter().collect();
        let rivals: Vec<Pt> = front.iter().map(|i| at[*i]).collect();
        let scene = Scene {
            bounds: frame.plot.grown(-1.5),
            blocked: &blocked,
            points: &at,
            rivals: &rivals,
            lines: &lines,
            radius: large + 0.5,
            small: radius + 0.3,
        };
        let each = (MOST_LABELS / fronts.len().max(1)).max(2);
        let mut picked: Vec<usize> = fronts.iter().flat_map(|front| spread(front, &at, each)).collect();
        picked.truncate(2 * MOST_LABELS);
        // The knee is named wherever the front is.
        for knee in &knees {
            if !picked.iter().any(|i| at[*i] == at[*knee]) && picked.len() < 2 * MOST_LABELS {
                let place = front.iter().position(|i| i == knee).unwrap_or(0);
                let before = |i: &usize| front.iter().position(|f| f == i).is_some_and(|p| p < place);
                let place = picked.iter().filter(|i| before(i)).count();
                picked.insert(place, *knee);
            }
        }
        let names: Vec<&str> = picked.iter().map(|i| shown[*i].label.as_str()).collect();
        let places: Vec<Pt> = picked.iter().map(|i| at[*i]).collect();
        let bottom = sheet.legend(frame.bottom);
        let canvas = &mut sheet.canvas;
        let (mut bottom, labelled) = label_points(canvas, bottom, &scene, &places, &names);
        let mut say = |canvas: &mut Canvas, remark: String| bottom = frame::note(canvas, &remark, bottom);
        self.notes.iter().for_each(|note| say(canvas, note.clone()));
        if 0 < labelled && labelled < front.len() {
            say(
                canvas,
                format!(
                    "{labelled} of the {} designs on the front{} are labelled.",
                    front.len(),
                    if fronts.len() > 1 { "s" } else { "" }
                ),
            );
        }
        if fronts.len() > 1 {
            say(canvas, format!("One front for each {}: designs compete within it.", self.class_name));
        }
        if z.is_some() && !self.no_front {
            say(canvas, format!("Outlined: the front of three objectives, {} designs.", front.len()));
        }
        for i in knees.iter().take(4) {
            say(
                canvas,
                format!("Knee (ringed, farthest from the line between the ends of its front): {}.", shown[*i].label),
            );
        }
        let open = shown.iter().filter(|point| point.open).count();
        if open > 0 {
            let reach = shown.iter().any(|p| p.open && p.reach.is_some());
            let whiskers = if reach { "; whiskers reach to the bound" } else { "" };
            say(
                canvas,
                format!("Hollow: {open} of {} are not proven the best of their search{whiskers}.", shown.len()),
            );
        }
        let hatched = shown.iter().filter(|point| point.unvalidated).count();
        if hatched > 0 {
            say(canvas, format!("Hatched: {hatched} of {} are of a kind that no measurement backs.", shown.len()));
        }
        if !self.missing.is_empty() {
            let each: Vec<String> = self.missing.iter().map(|m| format!("{} {}", m.x.len(), m.reason)).collect();
            let above = if strips.is_empty() { "" } else { " (crosses above the plot)" };
            say(canvas, format!("Without a plan{above}: {}.", each.join(", ")));
        }
        let log = x.is_log() || y.is_log();
        bottom = frame::skipped(canvas, self.points.len() - shown.len(), "design", log, bottom);
        Ok(sheet.end(bottom))
    }

    /// Marks the corner where an ideal design would be, unless there are points in the way.
    fn better_corner(&self, canvas: &mut Canvas, plot: &Rect, at: &[Pt]) -> Option<Rect> {
        const LENGTH: f64 = 11.0;
        let look = Look::new(TICK).color(MID);
        let word = fonts::width("better", TICK, false);
        let (right, up) = (self.x_better == Better::Higher, self.y_better == Better::Higher);
        let (width, height) = (word + LENGTH + 4.0, LENGTH);
        let x0 = if right { plot.x1 - width - 2.0 } else { plot.x0 + 3.0 };
        let y0 = if up { plot.y0 + 2.0 } else { plot.y1 - height - 3.0 };
        let room = Rect::at(x0, y0, width, height);
        if self.no_front || at.iter().any(|point| room.grown(4.0).has(*point)) {
            return None;
        }
        let (tail_x, tip_x) = if right { (room.x1 - LENGTH, room.x1) } else { (room.x0 + LENGTH, room.x0) };
        let (tail_y, tip_y) = if up { (room.y1, room.y0) } else { (room.y0, room.y1) };
        canvas.stroke(&[(tail_x, tail_y), (tip_x, tip_y)], 0.9, MID);
        let (back_x, back_y) = ((tail_x - tip_x).signum() * 4.5, (tail_y - tip_y).signum() * 4.5);
        canvas.stroke(&[(tip_x + back_x, tip_y), (tip_x, tip_y), (tip_x, tip_y + back_y)], 0.9, MID);
        let (x, align) = if right { (room.x0, Align::Start) } else { (room.x1, Align::End) };
        canvas.text_mid("better", (x, room.center().1), look.align(align));
        Some(room)
    }
}

const FRONT_RADIUS: f64 = 3.1;

/// The boundary of the region that the front beats: from each point level to the next one's x, then straight to it.
fn staircase(front: &[Pt]) -> Vec<Pt> {
    let mut line = Vec::with_capacity(front.len() * 2);
    for (i, point) in front.iter().enumerate() {
        if i > 0 {
            line.push((point.0, front[i - 1].1));
        }
        line.push(*point);
    }
    line.dedup();
    line
}

/// The colour of a front's stairs: of several fronts that of the group all its points belong to, where there is one.
fn stair_color(groups: &Groups, shown: &[&Point], front: &[usize], fronts: usize) -> theme::Rgb {
    let group = |i: &usize| shown[*i].group.as_str();
    match front.first().map(group) {
        Some(first) if fronts > 1 && front.iter().all(|i| group(i) == first) => {
            theme::mix(groups.color(first), BLACK, 0.2)
        }
        _ => DARK,
    }
}

/// Crosses of designs without a plan above the plot, one strip a reason, with the reason at the left.
fn draw_strips(canvas: &mut Canvas, frame: &Frame, strips: &[&Missing]) {
    for (i, strip) in strips.iter().enumerate() {
        let y = frame.plot.y0 - STRIP * (i as f64 + 0.5);
        let room = frame.plot.x0 - MARGIN - 3.0;
        let name = text::fit(&strip.reason, NOTE, false, room);
        canvas.text_mid(&name, (frame.plot.x0 - 3.0, y), Look::new(NOTE).align(Align::End).color(MID));
        for x in strip.x.iter().filter_map(|x| frame.x_at(*x)) {
            theme::marker(canvas, theme::Shape::Cross, (x, y), 1.6, MID, None);
        }
    }
    if !strips.is_empty() {
        canvas.stroke(&[(frame.plot.x0, frame.plot.y0), (frame.plot.x1, frame.plot.y0)], 0.5, MID);
    }
}

/// A line from a marker to the y of a bound, with a cap.
fn whisker(canvas: &mut Canvas, at: Pt, end: f64, color: theme::Rgb) {
    if (end - at.1).abs() > 1.0 {
        canvas.stroke(&[at, (at.0, end)], 0.6, color);
        canvas.stroke(&[(at.0 - 1.8, end), (at.0 + 1.8, end)], 0.6, color);
    }
}

/// Two thin lines across the marker of a design of a kind that no measurement backs.
fn hatch(canvas: &mut Canvas, point: &Point, at: Pt, radius: f64) {
    if point.unvalidated {
        for shift in [-0.35, 0.35] {
            let (x, r) = (at.0 + shift * radius, radius * 0.75);
            canvas.stroke(&[(x - r, at.1 + r), (x + r, at.1 - r)], (radius * 0.16).max(0.25), DARK);
        }
    }
}

fn ring(canvas: &mut Canvas, at: Pt, radius: f64) {
    let turn = |i: i32| std::f64::consts::TAU * f64::from(i) / 36.0;
    let circle: Vec<Pt> = (0..36).map(|i| (at.0 + radius * turn(i).cos(), at.1 + radius * turn(i).sin())).collect();
    canvas.stroke_closed(&circle, 0.7, DARK);
}

/// At most `most` points of the front, spread evenly over its length in the figure.
fn spread(front: &[usize], at: &[Pt], most: usize) -> Vec<usize> {
    let mut distinct: Vec<usize> = Vec::new();
    for index in front {
        if distinct.last().is_none_or(|last| at[*last] != at[*index]) {
            distinct.push(*index);
        }
    }
    if distinct.len() <= most {
        return distinct;
    }
    // Repeatedly the point farthest from those already picked; the two ends come first.
    let mut picked = vec![0, distinct.len() - 1];
    let gap = |a: usize, b: usize| {
        let (a, b) = (at[distinct[a]], at[distinct[b]]);
        (a.0 - b.0).hypot(a.1 - b.1)
    };
    let mut nearest: Vec<f64> = (0..distinct.len()).map(|i| gap(i, 0).min(gap(i, distinct.len() - 1))).collect();
    while picked.len() < most {
        let Some((far, _)) = nearest.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1)) else { break };
        picked.push(far);
        for (i, near) in nearest.iter_mut().enumerate() {
            *near = near.min(gap(i, far));
        }
    }
    picked.sort_unstable();
    picked.into_iter().map(|i| distinct[i]).collect()
}

/// Labels points by name, or by numbers with a key below if the names are long or do not fit. Returns where the key
/// ends and how many points are labelled.
fn label_points(canvas: &mut Canvas, bottom: f64, scene: &Scene, at: &[Pt], names: &[&str]) -> (f64, usize) {
    if names.iter().all(|name| text::clean(name).is_empty()) {
        return (bottom, 0);
    }
    let look = Look::new(TICK);
    let find = |texts: &[String]| -> Vec<Option<Placed>> {
        let wanted: Vec<Wanted> = texts
            .iter()
            .zip(at)
            .map(|(text, at)| Wanted { at: *at, width: fonts::width(text, TICK, false), height: look.cap() + 1.0 })
            .collect();
        labels::place(&wanted, scene)
    };
    let full: Vec<String> = names.iter().map(|name| text::clean(name)).collect();
    if text::widest(full.iter().map(String::as_str), TICK) <= WIDE_LABEL {
        let placed = find(&full);
        if placed.iter().all(Option::is_some) {
            write_labels(canvas, &placed, &full);
            return (bottom, full.len());
        }
    }
    // Every number gets the room of the widest, so that the numbers can be given out after the places.
    let placed = find(&vec!["00".to_string(); full.len()]);
    let listed: Vec<String> =
        full.into_iter().zip(&placed).filter(|(_, p)| p.is_some()).map(|(name, _)| name).collect();
    let placed: Vec<Option<Placed>> = placed.into_iter().filter(Option::is_some).collect();
    let numbers: Vec<String> = (1..=listed.len()).map(|number| number.to_string()).collect();
    write_labels(canvas, &placed, &numbers);
    (key(canvas, &listed, bottom + 4.0), listed.len())
}

fn write_labels(canvas: &mut Canvas, placed: &[Option<Placed>], texts: &[String]) {
    for (placed, text) in placed.iter().zip(texts).filter_map(|(p, t)| p.map(|p| (p, t))) {
        if let Some((from, to)) = placed.leader {
            canvas.leader(from, to, MID);
        }
        canvas.text_mid(text, placed.rect.center(), Look::new(TICK).align(Align::Middle));
    }
}

/// Lists the numbered names in as many columns as fit, and returns where the list ends.
fn key(canvas: &mut Canvas, names: &[String], y: f64) -> f64 {
    const ROW: f64 = TICK * 1.3;
    let number = fonts::width("00", TICK, false) + 4.0;
    let room = canvas.width - 2.0 * MARGIN;
    let widest = text::widest(names.iter().map(String::as_str), TICK) + number + 10.0;
    let columns = ((room + 10.0) / widest).floor().clamp(1.0, 3.0) as usize;
    let rows = names.len().div_ceil(columns);
    let column = (room + 10.0) / columns as f64;
    for (i, name) in names.iter().enumerate() {
        let x = MARGIN + (i / rows) as f64 * column;
        let base = y + (i % rows) as f64 * ROW + TICK;
        canvas.text(&(i + 1).to_string(), (x + number - 4.0, base), Look::new(TICK).bold().align(Align::End));
        canvas.text(&text::fit(name, TICK, false, column - 10.0 - number), (x + number, base), Look::new(TICK));
    }
    y + rows as f64 * ROW
}
