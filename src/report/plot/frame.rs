//! Title, axes and remarks: everything round the data.

use super::axis::{Range, minor_ticks, ticks};
use super::canvas::{Align, Canvas, Look, Rect};
use super::fonts;
use super::text;
use super::theme::{AXIS, DARK, GRID, MARGIN, MID, NOTE, SMALLEST, TICK, TITLE};

/// Line spacing in ems.
const LEADING: f64 = 1.22;
const TICK_LENGTH: f64 = 2.5;
/// From the end of a tick mark to its label.
const LABEL_GAP: f64 = 2.0;

/// What the horizontal axis shows.
#[derive(Debug, Clone)]
pub(crate) enum Axis {
    Number(Range),
    /// One equally wide slot per name.
    Slots(Vec<String>),
}

/// The axes to draw.
pub(crate) struct Spec<'a> {
    pub x: Axis,
    pub y: Range,
    pub x_label: &'a str,
    pub y_label: &'a str,
    /// Upper edge of the plotting area, and its height.
    pub top: f64,
    pub height: f64,
}

/// The plotting area with its two scales.
pub(crate) struct Frame {
    pub plot: Rect,
    x: Axis,
    y: Range,
    /// Lower edge of everything that belongs to the axes.
    pub bottom: f64,
}

impl Frame {
    /// Where a number lies on the horizontal axis.
    pub fn x_at(&self, value: f64) -> Option<f64> {
        match &self.x {
            Axis::Number(range) => range.fraction(value).map(|at| self.plot.x0 + at * self.plot.width()),
            Axis::Slots(_) => None,
        }
    }

    /// Where a number lies on the vertical axis.
    pub fn y_at(&self, value: f64) -> Option<f64> {
        self.y.fraction(value).map(|at| self.plot.y1 - at * self.plot.height())
    }

    /// Like [`Frame::x_at`], for what is clipped afterwards: beyond the limits too.
    pub fn x_anywhere(&self, value: f64) -> Option<f64> {
        match &self.x {
            Axis::Number(range) => range.open().fraction(value).map(|at| self.plot.x0 + at * self.plot.width()),
            Axis::Slots(_) => None,
        }
    }

    /// Likewise on the vertical axis.
    pub fn y_anywhere(&self, value: f64) -> Option<f64> {
        self.y.open().fraction(value).map(|at| self.plot.y1 - at * self.plot.height())
    }

    /// The middle and the width of slot `index`.
    pub fn slot(&self, index: usize) -> (f64, f64) {
        let count = if let Axis::Slots(names) = &self.x { names.len().max(1) } else { 1 };
        let width = self.plot.width() / count as f64;
        (self.plot.x0 + width * (index as f64 + 0.5), width)
    }
}

/// Draws the axes over the whole width of the canvas.
pub(crate) fn draw(canvas: &mut Canvas, spec: Spec) -> Frame {
    let y_ticks = ticks(&spec.y, (spec.height / 22.0).clamp(3.0, 8.0) as usize);
    let y_labels: Vec<String> = y_ticks.iter().map(|tick| written(&tick.label, spec.y_label)).collect();
    let y_title = text::wrap(spec.y_label, AXIS, false, spec.height, 2);
    let title_width = y_title.len() as f64 * AXIS * LEADING;
    let x0 =
        MARGIN + title_width + 3.0 + text::widest(y_labels.iter().map(String::as_str), TICK) + TICK_LENGTH + LABEL_GAP;
    let mut plot = Rect { x0, y0: spec.top, x1: canvas.width - MARGIN - 2.0, y1: spec.top + spec.height };

    let x_ticks =
        if let Axis::Number(range) = &spec.x { number_ticks(range, spec.x_label, &mut plot) } else { Vec::new() };

    for tick in &y_ticks {
        if let Some(at) = spec.y.fraction(tick.at) {
            let y = plot.y1 - at * plot.height();
            canvas.stroke(&[(plot.x0, y), (plot.x1, y)], 0.5, GRID);
        }
    }
    for (x, _) in &x_ticks {
        canvas.stroke(&[(*x, plot.y0), (*x, plot.y1)], 0.5, GRID);
    }
    for (tick, label) in y_ticks.iter().zip(&y_labels) {
        if let Some(at) = spec.y.fraction(tick.at) {
            let y = plot.y1 - at * plot.height();
            canvas.stroke(&[(plot.x0 - TICK_LENGTH, y), (plot.x0, y)], 0.6, DARK);
            canvas.text_mid(label, (plot.x0 - TICK_LENGTH - LABEL_GAP, y), Look::new(TICK).align(Align::End));
        }
    }
    for value in minor_ticks(&spec.y) {
        if let Some(at) = spec.y.fraction(value) {
            let y = plot.y1 - at * plot.height();
            canvas.stroke(&[(plot.x0 - TICK_LENGTH * 0.55, y), (plot.x0, y)], 0.4, DARK);
        }
    }
    let below = match &spec.x {
        Axis::Number(range) => {
            for value in minor_ticks(range) {
                if let Some(at) = range.fraction(value) {
                    let x = plot.x0 + at * plot.width();
                    canvas.stroke(&[(x, plot.y1), (x, plot.y1 + TICK_LENGTH * 0.55)], 0.4, DARK);
                }
            }
            let look = Look::new(TICK).align(Align::Middle);
            for (x, label) in &x_ticks {
                canvas.stroke(&[(*x, plot.y1), (*x, plot.y1 + TICK_LENGTH)], 0.6, DARK);
                canvas.text(label, (*x, plot.y1 + TICK_LENGTH + LABEL_GAP + look.cap()), look);
            }
            plot.y1 + TICK_LENGTH + LABEL_GAP + TICK
        }
        Axis::Slots(names) => slot_labels(canvas, names, &plot),
    };
    canvas.stroke(&[(plot.x0, plot.y0), (plot.x0, plot.y1), (plot.x1, plot.y1)], 0.7, DARK);

    let middle = (plot.y0 + plot.y1) / 2.0;
    for (i, line) in y_title.iter().enumerate() {
        let x = MARGIN + (i as f64 + 0.8) * AXIS * LEADING;
        canvas.text(line, (x, middle), Look::new(AXIS).align(Align::Middle).up());
    }
    let mut bottom = below + 2.0;
    for line in text::wrap(spec.x_label, AXIS, false, canvas.width - 2.0 * MARGIN, 2) {
        bottom += AXIS * LEADING;
        // Centred under the plot, but moved inwards when it is wider than the plot.
        let half = fonts::width(&line, AXIS, false) / 2.0;
        let x = ((plot.x0 + plot.x1) / 2.0).min(canvas.width - MARGIN - half).max(MARGIN + half);
        canvas.text(&line, (x, bottom - 1.5), Look::new(AXIS).align(Align::Middle));
    }
    Frame { plot, x: spec.x, y: spec.y, bottom }
}

/// Chooses as many ticks as fit without their labels touching, and makes room for the last label.
fn number_ticks(range: &Range, title: &str, plot: &mut Rect) -> Vec<(f64, String)> {
    let most = (plot.width() / 26.0).clamp(2.0, 9.0) as usize;
    let mut found = Vec::new();
    for most in (2..=most).rev() {
        let labels: Vec<(f64, String, f64)> = ticks(range, most)
            .into_iter()
            .filter_map(|tick| {
                let label = written(&tick.label, title);
                let width = fonts::width(&label, TICK, false);
                range.fraction(tick.at).map(|at| (at, label, width))
            })
            .collect();
        let overhang =
            labels.iter().map(|(at, _, width)| plot.x0 + at * plot.width() + width / 2.0 - plot.x1).fold(0.0, f64::max);
        let width = plot.width() - overhang;
        let free = labels.windows(2).all(|pair| (pair[1].0 - pair[0].0) * width >= (pair[0].2 + pair[1].2) / 2.0 + 7.0);
        found = labels.iter().map(|(at, label, _)| (plot.x0 + at * width, label.clone())).collect();
        if free || most == 2 {
            plot.x1 -= overhang;
            break;
        }
    }
    found
}

/// Labels the slots below the plot and returns where the labels end. Labels are level if they fit, in several lines if
/// that makes them fit, and else upright.
fn slot_labels(canvas: &mut Canvas, names: &[String], plot: &Rect) -> f64 {
    let slot = plot.width() / names.len().max(1) as f64;
    let top = plot.y1 + LABEL_GAP + 1.0;
    // Slightly smaller level text is easier to read than upright text.
    let level =
        [TICK, TICK - 1.0].into_iter().find_map(|size| Some((size, text::wrap_whole(names, size, slot - 3.0)?)));
    if let Some((size, wrapped)) = level {
        let look = Look::new(size).align(Align::Middle);
        for (i, lines) in wrapped.iter().enumerate() {
            for (row, line) in lines.iter().enumerate() {
                let x = plot.x0 + slot * (i as f64 + 0.5);
                canvas.text(line, (x, top + look.cap() + row as f64 * TICK * LEADING), look);
            }
        }
        return top + wrapped.iter().map(Vec::len).max().unwrap_or(0) as f64 * TICK * LEADING;
    }
    let size = (slot * 0.92).clamp(SMALLEST, TICK);
    let stride = (SMALLEST * 1.04 / slot).ceil().max(1.0) as usize;
    let room = if canvas.width > 300.0 { 120.0 } else { 90.0 };
    let shown: Vec<(usize, String)> =
        names.iter().enumerate().step_by(stride).map(|(i, name)| (i, text::fit(name, size, false, room))).collect();
    for (i, label) in &shown {
        let x = plot.x0 + slot * (*i as f64 + 0.5);
        canvas.text_mid(label, (x, top), Look::new(size).align(Align::End).up());
    }
    top + text::widest(shown.iter().map(|(_, label)| label.as_str()), size)
}

/// Draws the title from `y` downwards and returns where it ends.
pub(crate) fn title(canvas: &mut Canvas, title: &str, mut y: f64) -> f64 {
    for line in text::wrap(title, TITLE, true, canvas.width - 2.0 * MARGIN, 2) {
        y += TITLE * LEADING;
        canvas.text(&line, (canvas.width / 2.0, y - 2.0), Look::new(TITLE).bold().align(Align::Middle));
    }
    y + 2.0
}

/// Writes a remark from `y` downwards and returns where it ends.
pub(crate) fn note(canvas: &mut Canvas, note: &str, mut y: f64) -> f64 {
    for line in text::wrap(note, NOTE, false, canvas.width - 2.0 * MARGIN, 3) {
        y += NOTE * LEADING;
        canvas.text(&line, (MARGIN, y), Look::new(NOTE).color(MID));
    }
    y
}

/// Says how many values are not in the figure.
pub(crate) fn skipped(canvas: &mut Canvas, count: usize, what: &str, log: bool, y: f64) -> f64 {
    if count == 0 {
        return y;
    }
    let plural = if count == 1 { "" } else { "s" };
    let why = if log {
        "no number, outside the axes, or not positive on a log axis"
    } else {
        "no number, or outside the axes"
    };
    note(canvas, &format!("{count} {what}{plural} not drawn ({why})."), y + 1.0)
}

/// Says in the middle of the plot that there is nothing in it.
pub(crate) fn no_data(canvas: &mut Canvas, plot: &Rect) {
    canvas.text_mid("no data", plot.center(), Look::new(AXIS).color(MID).align(Align::Middle));
}

/// A tick's label under an axis title: of money with its sign and in billions, which nobody calls giga; of anything else as it is.
pub(crate) fn written(label: &str, title: &str) -> String {
    if !is_money(title) || label == "0" {
        return minus(label);
    }
    let label = label.replace('G', "B");
    label.strip_prefix('-').map_or_else(|| format!("${label}"), |size| format!("\u{2212}${size}"))
}

/// Whether numbers under a title are dollars: a price, or a column that ends in the unit. Rates by dollar are none.
pub(crate) fn is_money(title: &str) -> bool {
    title.ends_with("($)") || title.ends_with("_usd") || title.ends_with("(USD)")
}

/// Writes a true minus sign.
pub(crate) fn minus(label: &str) -> String {
    label.replace('-', "\u{2212}")
}
