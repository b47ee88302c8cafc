//! A drawing recorded as simple shapes, in points, with y downwards.
//!
//! A chart is drawn once on a canvas and the canvas is then played back on each backend. So both files show the same
//! picture, and the height of the figure may be known only at the end.

use super::PlotError;
use super::fonts;
use super::theme::{BLACK, Rgb};

/// A position.
pub(crate) type Pt = (f64, f64);

/// A rectangle; `x0 <= x1` and `y0 <= y1`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub x0: f64,
    pub y0: f64,
    pub x1: f64,
    pub y1: f64,
}

impl Rect {
    /// A rectangle from its upper left corner and size.
    pub fn at(x: f64, y: f64, width: f64, height: f64) -> Rect {
        Rect { x0: x, y0: y, x1: x + width, y1: y + height }
    }

    pub fn width(&self) -> f64 {
        self.x1 - self.x0
    }

    pub fn height(&self) -> f64 {
        self.y1 - self.y0
    }

    pub fn center(&self) -> Pt {
        ((self.x0 + self.x1) / 2.0, (self.y0 + self.y1) / 2.0)
    }

    /// The rectangle made larger (or smaller) by `by` on every side.
    pub fn grown(&self, by: f64) -> Rect {
        Rect { x0: self.x0 - by, y0: self.y0 - by, x1: self.x1 + by, y1: self.y1 + by }
    }

    pub fn overlaps(&self, other: &Rect) -> bool {
        self.x0 < other.x1 && other.x0 < self.x1 && self.y0 < other.y1 && other.y0 < self.y1
    }

    pub fn contains(&self, other: &Rect) -> bool {
        self.x0 <= other.x0 && self.y0 <= other.y0 && self.x1 >= other.x1 && self.y1 >= other.y1
    }

    pub fn has(&self, point: Pt) -> bool {
        self.x0 <= point.0 && point.0 <= self.x1 && self.y0 <= point.1 && point.1 <= self.y1
    }

    /// How far a point is from the rectangle; 0 inside.
    pub fn distance(&self, point: Pt) -> f64 {
        let (x, y) = (point.0.max(self.x0).min(self.x1), point.1.max(self.y0).min(self.y1));
        (point.0 - x).hypot(point.1 - y)
    }

    pub fn corners(&self) -> [Pt; 4] {
        [(self.x0, self.y0), (self.x1, self.y0), (self.x1, self.y1), (self.x0, self.y1)]
    }

    /// The part of the segment `a`-`b` inside the rectangle (Liang and Barsky).
    pub fn clip(&self, a: Pt, b: Pt) -> Option<(Pt, Pt)> {
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
        for (step, room) in [(-dx, a.0 - self.x0), (dx, self.x1 - a.0), (-dy, a.1 - self.y0), (dy, self.y1 - a.1)] {
            if step == 0.0 {
                if room < 0.0 {
                    return None;
                }
            } else if step < 0.0 {
                enter = enter.max(room / step);
            } else {
                leave = leave.min(room / step);
            }
        }
        (enter <= leave).then_some(((a.0 + enter * dx, a.1 + enter * dy), (a.0 + leave * dx, a.1 + leave * dy)))
    }
}

/// Which end of a text its position is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub size: f64,
    pub bold: bool,
    pub color: Rgb,
    pub align: Align,
    /// Turned to read from bottom to top.
    pub up: bool,
}

impl Look {
    /// Plain black text that starts at its position.
    pub fn new(size: f64) -> Look {
        Look { size, bold: false, color: BLACK, align: Align::Start, up: false }
    }

    pub fn bold(self) -> Look {
        Look { bold: true, ..self }
    }

    pub fn color(self, color: Rgb) -> Look {
        Look { color, ..self }
    }

    pub fn align(self, align: Align) -> Look {
        Look { align, ..self }
    }

    pub fn up(self) -> Look {
        Look { up: true, ..self }
    }

    /// The height of a capital letter.
    pub fn cap(&self) -> f64 {
        0.729 * self.size
    }
}

/// One recorded shape.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Stroke {
        points: Vec<Pt>,
        width: f64,
        color: Rgb,
    },
    Fill {
        points: Vec<Pt>,
        color: Rgb,
    },
    Disc {
        center: Pt,
        radius: f64,
        color: Rgb,
    },
    /// `at` is on the baseline.
    Text {
        text: String,
        at: Pt,
        look: Look,
    },
}

impl Op {
    /// The shape made larger about the origin.
    fn zoom(&mut self, by: f64) {
        let all = |points: &mut Vec<Pt>| points.iter_mut().for_each(|p| *p = (p.0 * by, p.1 * by));
        match self {
            Op::Stroke { points, width, .. } => {
                all(points);
                *width *= by;
            }
            Op::Fill { points, .. } => all(points),
            Op::Disc { center, radius, .. } => {
                *center = (center.0 * by, center.1 * by);
                *radius *= by;
            }
            Op::Text { at, look, .. } => {
                *at = (at.0 * by, at.1 * by);
                look.size *= by;
            }
        }
    }

    /// The room a text takes: its capitals above the line and what hangs below it.
    #[cfg(test)]
    pub fn text_room(&self) -> Option<(&str, Rect)> {
        let Op::Text { text, at, look } = self else { return None };
        let width = fonts::width(text, look.size, look.bold);
        let start = match look.align {
            Align::Start => 0.0,
            Align::Middle => -width / 2.0,
            Align::End => -width,
        };
        let rect = if look.up {
            Rect { x0: at.0 - look.cap(), y0: at.1 - start - width, x1: at.0, y1: at.1 - start }
        } else {
            Rect { x0: at.0 + start, y0: at.1 - look.cap(), x1: at.0 + start + width, y1: at.1 }
        };
        Some((text, rect))
    }
}

/// A recorded drawing.
#[derive(Debug)]
pub(crate) struct Canvas {
    pub width: f64,
    pub height: f64,
    pub ops: Vec<Op>,
    /// Lines from markers to their labels, and the markers with their radii: what a test holds against each other.
    pub leaders: Vec<(Pt, Pt)>,
    pub markers: Vec<(Pt, f64)>,
}

impl Canvas {
    /// An empty drawing; the height is set when it is known.
    pub fn new(width: f64) -> Result<Canvas, PlotError> {
        fonts::ensure()?;
        Ok(Canvas { width, height: width, ops: Vec::new(), leaders: Vec::new(), markers: Vec::new() })
    }

    /// Everything made larger, text and lines too.
    pub fn zoomed(mut self, by: f64) -> Canvas {
        if by != 1.0 {
            self.ops.iter_mut().for_each(|op| op.zoom(by));
            self.leaders.iter_mut().for_each(|(a, b)| (*a, *b) = ((a.0 * by, a.1 * by), (b.0 * by, b.1 * by)));
            self.markers.iter_mut().for_each(|(at, r)| (*at, *r) = ((at.0 * by, at.1 * by), *r * by));
            (self.width, self.height) = (self.width * by, self.height * by);
        }
        self
    }

    /// The line from a marker to its label.
    pub fn leader(&mut self, from: Pt, to: Pt, color: Rgb) {
        self.leaders.push((from, to));
        self.stroke(&[from, to], 0.4, color);
    }

    pub fn stroke(&mut self, points: &[Pt], width: f64, color: Rgb) {
        if points.len() >= 2 && finite(points) {
            self.ops.push(Op::Stroke { points: points.to_vec(), width, color });
        }
    }

    /// The outline of a polygon.
    pub fn stroke_closed(&mut self, points: &[Pt], width: f64, color: Rgb) {
        let mut ring = points.to_vec();
        // The second corner again, so that the first one gets a joint too.
        ring.extend(points.iter().take(2));
        self.stroke(&ring, width, color);
    }

    /// A line interrupted by gaps; `pattern` is lengths of ink and gap in turn.
    pub fn dashed(&mut self, points: &[Pt], width: f64, color: Rgb, pattern: &[f64]) {
        let period: f64 = pattern.iter().sum();
        if !finite(points) || period < 0.5 {
            return self.stroke(points, width, color);
        }
        let (mut part, mut left) = (0, pattern[0]);
        for pair in points.windows(2) {
            let (mut from, to) = (pair[0], pair[1]);
            loop {
                let rest = (to.0 - from.0).hypot(to.1 - from.1);
                if rest <= 1e-6 {
                    break;
                }
                let step = rest.min(left);
                let next = (from.0 + (to.0 - from.0) * step / rest, from.1 + (to.1 - from.1) * step / rest);
                if part % 2 == 0 {
                    self.stroke(&[from, next], width, color);
                }
                from = next;
                left -= step;
                if left <= 1e-6 {
                    part = (part + 1) % pattern.len();
                    left = pattern[part].max(0.1);
                }
            }
        }
    }

    pub fn fill(&mut self, points: &[Pt], color: Rgb) {
        if points.len() >= 3 && finite(points) {
            self.ops.push(Op::Fill { points: points.to_vec(), color });
        }
    }

    pub fn rect(&mut self, rect: Rect, color: Rgb) {
        if rect.width() > 0.0 && rect.height() > 0.0 {
            self.fill(&rect.corners(), color);
        }
    }

    pub fn disc(&mut self, center: Pt, radius: f64, color: Rgb) {
        if finite(&[center]) && radius > 0.0 {
            self.ops.push(Op::Disc { center, radius, color });
        }
    }

    /// Text with its baseline at `at`.
    pub fn text(&mut self, text: &str, at: Pt, look: Look) {
        let clean = super::text::clean(text);
        if !clean.is_empty() && finite(&[at]) {
            self.ops.push(Op::Text { text: clean, at, look });
        }
    }

    /// Text whose capital letters are centred on `at` across the writing direction.
    pub fn text_mid(&mut self, text: &str, at: Pt, look: Look) {
        let shift = look.cap() / 2.0;
        let at = if look.up { (at.0 + shift, at.1) } else { (at.0, at.1 + shift) };
        self.text(text, at, look);
    }
}

fn finite(points: &[Pt]) -> bool {
    points.iter().all(|(x, y)| x.is_finite() && y.is_finite())
}
