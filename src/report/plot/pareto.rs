//! Two objectives against each other, with the front of designs that no other design beats.

use std::path::{Path, PathBuf};

use super::axis::{Range, Scale};
use super::canvas::{Align, Canvas, Look, Pt, Rect};
use super::frame::{self, Axis, Frame, Spec};
use super::labels::{self, Placed, Scene, Wanted};
use super::legend::{self, Entry, Groups, Swatch};
use super::theme::{self, BLACK, DARK, MARGIN, MID, TICK, WHITE};
use super::{PlotError, Width, fonts, render, text};

/// Which direction of an objective is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Smaller values, such as cost.
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
    fn turned(self, value: f64) -> f64 {
        match self {
            Better::Lower => value + 0.0,
            Better::Higher => -value + 0.0,
        }
    }
}

/// One design.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Its name, shown if the design is on the front.
    pub label: String,
    /// Designs of one group share colour and marker shape.
    pub group: String,
    /// First objective.
    pub x: f64,
    /// Second objective.
    pub y: f64,
    /// Whether the design is proven the best of its search; others are hollow.
    pub proven: bool,
}

/// A scatter chart with the Pareto front emphasised.
#[derive(Debug, Clone, PartialEq)]
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
    /// The designs.
    pub points: Vec<Point>,
    /// Scale of the horizontal axis.
    pub x_scale: Scale,
    /// Scale of the vertical axis.
    pub y_scale: Scale,
}

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
        if last.is_none_or(|(best_x, best_y)| y < best_y || (x == best_x && y == best_y)) {
            last = Some((x, y));
            front.push(index);
        }
    }
    front
}

/// More labels than this are not placed.
const MOST_LABELS: usize = 9;
/// Labels wider than this go into a list below the plot.
const WIDE_LABEL: f64 = 64.0;

impl ParetoChart {
    /// Writes `<stem>.svg` and `<stem>.png`, one column wide.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        self.draw_at(stem, Width::Auto)
    }

    /// Like [`ParetoChart::draw`], with a given width.
    pub fn draw_at(&self, stem: &Path, width: Width) -> Result<Vec<PathBuf>, PlotError> {
        let mut canvas = Canvas::new(width.points(false))?;
        let xs: Vec<f64> = self.points.iter().map(|p| p.x).collect();
        let ys: Vec<f64> = self.points.iter().map(|p| p.y).collect();
        let (x, y) = (Range::over(&xs, self.x_scale), Range::over(&ys, self.y_scale));
        let shown: Vec<&Point> = self.points.iter().filter(|p| x.shows(p.x) && y.shows(p.y)).collect();
        let groups = Groups::of(shown.iter().map(|p| p.group.as_str()));
        let front = pareto_front(&shown.iter().map(|p| (p.x, p.y)).collect::<Vec<_>>(), self.x_better, self.y_better);

        let top = frame::title(&mut canvas, &self.title, MARGIN);
        let mut entries = groups.entries();
        if front.len() > 1 {
            entries.push(Entry::new("Pareto front", Swatch::Front));
        }
        let (left, right) = (MARGIN, canvas.width - MARGIN);
        let top = legend::draw(&mut canvas, &entries, left, right, top) + 2.0;
        let height = if canvas.width > theme::COLUMN { 230.0 } else { canvas.width * 0.62 };
        let spec = Spec { x: Axis::Number(x), y, x_label: &self.x_label, y_label: &self.y_label, top, height };
        let frame = frame::draw(&mut canvas, spec);
        let place = |p: &Point| Some((frame.x_at(p.x)?, frame.y_at(p.y)?));
        let at: Vec<Pt> = shown.iter().map(|p| place(p).unwrap_or((f64::NAN, f64::NAN))).collect();
        if shown.is_empty() {
            frame::no_data(&mut canvas, &frame.plot);
        }

        let radius = theme::point_radius(shown.len());
        let mut on_front = vec![false; shown.len()];
        front.iter().for_each(|i| on_front[*i] = true);
        for (i, point) in shown.iter().enumerate().filter(|(i, _)| !on_front[*i]) {
            let color = theme::mix(groups.color(&point.group), WHITE, 0.5);
            let (fill, outline) = if point.proven { (color, None) } else { (WHITE, Some((color, 0.8))) };
            theme::marker(&mut canvas, groups.shape(&point.group), at[i], radius, fill, outline);
        }
        let stairs = staircase(&front.iter().map(|i| at[*i]).collect::<Vec<_>>());
        canvas.stroke(&stairs, 0.9, DARK);
        for i in &front {
            let point = shown[*i];
            let color = groups.color(&point.group);
            let (fill, outline) = if point.proven { (color, (BLACK, 0.7)) } else { (WHITE, (color, 1.0)) };
            theme::marker(&mut canvas, groups.shape(&point.group), at[*i], FRONT_RADIUS, fill, Some(outline));
        }

        let corner = self.better_corner(&mut canvas, &frame.plot, &at);
        let blocked: Vec<Rect> = corner.into_iter().collect();
        let lines: Vec<(Pt, Pt)> = stairs.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let rivals: Vec<Pt> = front.iter().map(|i| at[*i]).collect();
        let scene = Scene {
            bounds: frame.plot.grown(-1.5),
            blocked: &blocked,
            points: &at,
            rivals: &rivals,
            lines: &lines,
            radius: FRONT_RADIUS + 0.5,
        };
        let picked = spread(&front, &at);
        let names: Vec<&str> = picked.iter().map(|i| shown[*i].label.as_str()).collect();
        let (mut bottom, labelled) =
            label_points(&mut canvas, &frame, &scene, &picked.iter().map(|i| at[*i]).collect::<Vec<_>>(), &names);
        if 0 < labelled && labelled < front.len() {
            let remark = format!("{labelled} of the {} designs on the front are labelled.", front.len());
            bottom = frame::note(&mut canvas, &remark, bottom);
        }
        let log = x.is_log() || y.is_log();
        let open = shown.iter().filter(|point| !point.proven).count();
        if open > 0 {
            let remark = format!("Hollow: {open} of {} are not proven the best of their search.", shown.len());
            bottom = frame::note(&mut canvas, &remark, bottom);
        }
        bottom = frame::skipped(&mut canvas, self.points.len() - shown.len(), "design", log, bottom);
        canvas.height = bottom + MARGIN;
        render::write(&canvas, stem)
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
        if at.iter().any(|point| room.grown(4.0).has(*point)) {
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

/// At most [`MOST_LABELS`] points of the front, spread evenly over its length in the figure.
fn spread(front: &[usize], at: &[Pt]) -> Vec<usize> {
    let mut distinct: Vec<usize> = Vec::new();
    for index in front {
        if distinct.last().is_none_or(|last| at[*last] != at[*index]) {
            distinct.push(*index);
        }
    }
    if distinct.len() <= MOST_LABELS {
        return distinct;
    }
    // Repeatedly the point farthest from those already picked; the two ends come first.
    let mut picked = vec![0, distinct.len() - 1];
    let gap = |a: usize, b: usize| {
        let (a, b) = (at[distinct[a]], at[distinct[b]]);
        (a.0 - b.0).hypot(a.1 - b.1)
    };
    let mut nearest: Vec<f64> = (0..distinct.len()).map(|i| gap(i, 0).min(gap(i, distinct.len() - 1))).collect();
    while picked.len() < MOST_LABELS {
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
fn label_points(canvas: &mut Canvas, frame: &Frame, scene: &Scene, at: &[Pt], names: &[&str]) -> (f64, usize) {
    if names.iter().all(|name| text::clean(name).is_empty()) {
        return (frame.bottom, 0);
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
            return (frame.bottom, full.len());
        }
    }
    // Every number gets the room of the widest, so that the numbers can be given out after the places.
    let placed = find(&vec!["00".to_string(); full.len()]);
    let listed: Vec<String> =
        full.into_iter().zip(&placed).filter(|(_, p)| p.is_some()).map(|(name, _)| name).collect();
    let placed: Vec<Option<Placed>> = placed.into_iter().filter(Option::is_some).collect();
    let numbers: Vec<String> = (1..=listed.len()).map(|number| number.to_string()).collect();
    write_labels(canvas, &placed, &numbers);
    (key(canvas, &listed, frame.bottom + 4.0), listed.len())
}

fn write_labels(canvas: &mut Canvas, placed: &[Option<Placed>], texts: &[String]) {
    for (placed, text) in placed.iter().zip(texts).filter_map(|(p, t)| p.map(|p| (p, t))) {
        if let Some((from, to)) = placed.leader {
            canvas.stroke(&[from, to], 0.4, MID);
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
