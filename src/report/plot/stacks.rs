//! What lies on which place: a stack for each, its parts as high as they are large, and arcs over the stacks for what goes between
//! them.

use std::path::{Path, PathBuf};

use super::axis::Range;
use super::canvas::{Align, Canvas, Look, Pt, Rect};
use super::frame::{self, Axis, Spec};
use super::legend::{self, Entry, Swatch};
use super::theme::{self, BLACK, MARGIN, SMALLEST, WHITE};
use super::{PlotError, render, text};

/// One stack.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stack {
    /// Its name, below it.
    pub name: String,
    /// Parts from the bottom: name and height.
    pub parts: Vec<(String, f64)>,
}

/// Something that goes from one stack to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow {
    /// Stack it comes from.
    pub from: usize,
    /// Stack it goes to.
    pub to: usize,
    /// How much.
    pub amount: f64,
}

/// Stacks and flows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stacks {
    /// Heading; none if empty.
    pub title: String,
    /// Title of the horizontal axis.
    pub x_label: String,
    /// Title of the vertical axis, with the unit.
    pub y_label: String,
    /// The stacks.
    pub stacks: Vec<Stack>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// What flows, for the remark ("bytes an iteration"), and how its largest is written.
    pub flow_label: String,
    /// A level to mark across all stacks, and its name.
    pub level: Option<(f64, String)>,
}

/// Most flows drawn: the largest.
const MOST_FLOWS: usize = 300;
/// Height of the room for arcs.
const ARCS: f64 = 62.0;
/// Most stacks drawn.
const MOST_STACKS: usize = 256;

impl Stacks {
    /// Writes `<stem>.svg` and `<stem>.png`.
    ///
    /// # Errors
    /// [`PlotError`]: a file that cannot be written.
    pub fn draw(&self, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
        let mut canvas = Canvas::new(theme::FULL)?;
        let count = self.stacks.len().min(MOST_STACKS);
        let stacks = &self.stacks[..count];
        let height = |part: &(String, f64)| if part.1.is_finite() && part.1 > 0.0 { part.1 } else { 0.0 };
        let mut tops: Vec<f64> = stacks.iter().map(|s| s.parts.iter().map(height).sum()).collect();
        tops.extend(self.level.as_ref().map(|(at, _)| *at).filter(|at| at.is_finite()));
        let mut top = frame::title(&mut canvas, &self.title, MARGIN);
        let flows = self.largest(count);
        let mut entries = Vec::new();
        if flows.iter().any(|f| f.from < f.to) {
            entries.push(Entry::new("to the right", Swatch::Line(FORWARD, &[])));
        }
        if flows.iter().any(|f| f.from > f.to) {
            entries.push(Entry::new("to the left", Swatch::Line(BACKWARD, &[])));
        }
        if let Some((_, name)) = &self.level {
            entries.push(Entry::new(name, Swatch::Line(BLACK, &[3.0, 2.0])));
        }
        let right = canvas.width - MARGIN;
        top = legend::draw(&mut canvas, &entries, MARGIN, right, top) + 4.0;
        if !flows.is_empty() {
            top += ARCS;
        }
        let spec = Spec {
            x: Axis::Slots(stacks.iter().map(|s| s.name.clone()).collect()),
            y: Range::from_zero(&tops),
            x_label: &self.x_label,
            y_label: &self.y_label,
            top,
            height: 190.0,
        };
        let frame = frame::draw(&mut canvas, spec);
        for (i, stack) in stacks.iter().enumerate() {
            let (middle, slot) = frame.slot(i);
            let half = (slot * 0.42).min(40.0);
            let mut sum = 0.0;
            for (p, part) in stack.parts.iter().enumerate() {
                let from = sum;
                sum += height(part);
                let (Some(y1), Some(y0)) = (frame.y_at(from), frame.y_at(sum)) else { continue };
                let rect = Rect { x0: middle - half, y0, x1: middle + half, y1 };
                let fill = theme::mix(theme::category(p % 7), WHITE, 0.45);
                canvas.rect(rect, fill);
                if rect.height() > 1.0 {
                    canvas.stroke(&[(rect.x0, rect.y0), (rect.x1, rect.y0)], 0.4, WHITE);
                }
                let size = (rect.height() - 1.0).min(6.5);
                if size >= SMALLEST && rect.width() > 20.0 {
                    let label = text::fit(&part.0, size, false, rect.width() - 3.0);
                    canvas.text_mid(&label, rect.center(), Look::new(size).align(Align::Middle));
                }
            }
        }
        if count == 0 {
            frame::no_data(&mut canvas, &frame.plot);
        }
        if let Some(y) = self.level.as_ref().and_then(|(at, _)| frame.y_at(*at)) {
            canvas.dashed(&[(frame.plot.x0, y), (frame.plot.x1, y)], 0.9, BLACK, &[3.0, 2.0]);
        }
        let most = flows.iter().map(|f| f.amount).fold(0.0, f64::max);
        // Neighbours alone get low arcs.
        let widest = flows.iter().map(|f| f.from.abs_diff(f.to)).max().unwrap_or(1).max(4) as f64;
        for f in &flows {
            let (a, b) = (frame.slot(f.from).0, frame.slot(f.to).0);
            let rise = (ARCS - 6.0) * (f.from.abs_diff(f.to) as f64 / widest).sqrt();
            let color = if f.from < f.to { FORWARD } else { BACKWARD };
            let base = frame.plot.y0 - 3.0;
            canvas.stroke(&arc(a, b, base, rise), 0.4 + 2.2 * f.amount / most, color);
        }
        let mut bottom = frame.bottom;
        if !flows.is_empty() && !self.flow_label.is_empty() {
            bottom = frame::note(&mut canvas, &format!("Arcs: {}.", self.flow_label), bottom + 1.0);
        }
        let hidden = self.flows.iter().filter(|f| f.from != f.to).count() - flows.len();
        if hidden > 0 || self.stacks.len() > count {
            let text = format!("Not drawn: {hidden} smaller flows, {} stacks.", self.stacks.len() - count);
            bottom = frame::note(&mut canvas, &text, bottom + 1.0);
        }
        canvas.height = bottom + MARGIN;
        render::write(&canvas, stem)
    }

    /// The largest flows, small ones first so that large ones lie on top.
    fn largest(&self, count: usize) -> Vec<Flow> {
        let usable =
            |f: &&Flow| f.from < count && f.to < count && f.from != f.to && f.amount.is_finite() && f.amount > 0.0;
        let mut list: Vec<Flow> = self.flows.iter().filter(usable).copied().collect();
        list.sort_by(|a, b| b.amount.total_cmp(&a.amount).then((a.from, a.to).cmp(&(b.from, b.to))));
        list.truncate(MOST_FLOWS);
        list.reverse();
        list
    }
}

const FORWARD: theme::Rgb = (0x00, 0x72, 0xB2);
const BACKWARD: theme::Rgb = (0xD5, 0x5E, 0x00);

/// Half an ellipse from `a` to `b` above `base`.
fn arc(a: f64, b: f64, base: f64, rise: f64) -> Vec<Pt> {
    let (middle, half) = ((a + b) / 2.0, (b - a) / 2.0);
    (0..=24)
        .map(|i| {
            let angle = std::f64::consts::PI * f64::from(i) / 24.0;
            (middle - half * angle.cos(), base - rise * angle.sin())
        })
        .collect()
}
