//! Sizes, colours and marker shapes shared by all charts.

use super::canvas::{Canvas, Pt};

/// Width of a one-column figure in points.
pub(crate) const COLUMN: f64 = 252.0;
/// Width of a full-width figure in points.
pub(crate) const FULL: f64 = 504.0;
/// Free space round the figure.
pub(crate) const MARGIN: f64 = 4.0;

/// Font size of the title.
pub(crate) const TITLE: f64 = 9.0;
/// Font size of axis titles.
pub(crate) const AXIS: f64 = 8.0;
/// Font size of tick labels, legends and point labels.
pub(crate) const TICK: f64 = 7.0;
/// Font size of remarks below a figure.
pub(crate) const NOTE: f64 = 6.0;
/// No text is smaller than this.
pub(crate) const SMALLEST: f64 = 5.0;

/// An opaque colour. Faded colours are mixed with white instead of being transparent, since overlapping transparent
/// strokes look different in the two backends.
pub(crate) type Rgb = (u8, u8, u8);

pub(crate) const BLACK: Rgb = (0, 0, 0);
pub(crate) const WHITE: Rgb = (255, 255, 255);
pub(crate) const DARK: Rgb = (60, 60, 60);
pub(crate) const MID: Rgb = (120, 120, 120);
pub(crate) const GRID: Rgb = (230, 230, 230);
pub(crate) const EMPTY: Rgb = (236, 236, 236);

/// Okabe and Ito's colours (without black, which marks emphasis), the strongest contrasts first.
const OKABE_ITO: [Rgb; 7] = [
    (0x00, 0x72, 0xB2),
    (0xE6, 0x9F, 0x00),
    (0x00, 0x9E, 0x73),
    (0xCC, 0x79, 0xA7),
    (0x56, 0xB4, 0xE9),
    (0xD5, 0x5E, 0x00),
    (0xF0, 0xE4, 0x42),
];

/// Ten equidistant samples of the viridis colour map.
const VIRIDIS: [Rgb; 10] = [
    (0x44, 0x01, 0x54),
    (0x48, 0x28, 0x78),
    (0x3E, 0x4A, 0x89),
    (0x31, 0x68, 0x8E),
    (0x26, 0x82, 0x8E),
    (0x1F, 0x9E, 0x89),
    (0x35, 0xB7, 0x79),
    (0x6D, 0xCD, 0x59),
    (0xB4, 0xDE, 0x2C),
    (0xFD, 0xE7, 0x25),
];

/// The colour of category `index`.
pub(crate) fn category(index: usize) -> Rgb {
    let base = OKABE_ITO[index % OKABE_ITO.len()];
    // A second round is darker, so that bars (which have no marker shape) still differ.
    match index / OKABE_ITO.len() {
        0 => base,
        round => mix(base, BLACK, (0.35 * round as f64).min(0.7)),
    }
}

/// The viridis colour at `t` in 0..=1; outside values are clamped and NaN is 0.
pub(crate) fn viridis(t: f64) -> Rgb {
    let scaled = if t.is_nan() { 0.0 } else { t.clamp(0.0, 1.0) } * (VIRIDIS.len() - 1) as f64;
    let low = (scaled.floor() as usize).min(VIRIDIS.len() - 2);
    mix(VIRIDIS[low], VIRIDIS[low + 1], scaled - low as f64)
}

/// `a` and `b` mixed: 0 is all `a`, 1 is all `b`.
pub(crate) fn mix(a: Rgb, b: Rgb, share: f64) -> Rgb {
    let one = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
    (one(a.0, b.0), one(a.1, b.1), one(a.2, b.2))
}

/// Relative luminance (WCAG 2), 0 for black to 1 for white.
pub(crate) fn luminance(color: Rgb) -> f64 {
    let linear = |byte: u8| {
        let value = f64::from(byte) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(color.0) + 0.7152 * linear(color.1) + 0.0722 * linear(color.2)
}

/// Black or white, whichever contrasts more with the background.
pub(crate) fn text_on(background: Rgb) -> Rgb {
    let light = luminance(background);
    // The contrast ratios of WCAG: (lighter + 0.05) / (darker + 0.05).
    if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) { BLACK } else { WHITE }
}

/// A marker shape. Groups differ in shape as well as colour, so a figure also works in black and white.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Down,
    Plus,
    Cross,
    Pentagon,
}

const SHAPES: [Shape; 8] = [
    Shape::Circle,
    Shape::Square,
    Shape::Triangle,
    Shape::Diamond,
    Shape::Down,
    Shape::Cross,
    Shape::Pentagon,
    Shape::Plus,
];

/// The marker shape of category `index`.
pub(crate) fn shape(index: usize) -> Shape {
    SHAPES[index % SHAPES.len()]
}

/// Draws a marker of about the same area for every shape; `radius` is that of the circle.
pub(crate) fn marker(canvas: &mut Canvas, shape: Shape, at: Pt, radius: f64, fill: Rgb, outline: Option<(Rgb, f64)>) {
    let (x, y) = at;
    canvas.markers.push((at, radius));
    let regular = |corners: usize, size: f64, turn: f64| -> Vec<Pt> {
        (0..corners)
            .map(|i| {
                let angle = std::f64::consts::TAU * (i as f64 / corners as f64 + turn);
                (x + size * angle.sin(), y - size * angle.cos())
            })
            .collect()
    };
    let corners = match shape {
        Shape::Circle => {
            if let Some((color, width)) = outline {
                canvas.disc(at, radius + width / 2.0, color);
                canvas.disc(at, radius - width / 2.0, fill);
            } else {
                canvas.disc(at, radius, fill);
            }
            return;
        }
        Shape::Plus | Shape::Cross => {
            let half = if shape == Shape::Plus { radius * 1.2 } else { radius };
            let arms = if shape == Shape::Plus {
                [[(x - half, y), (x + half, y)], [(x, y - half), (x, y + half)]]
            } else {
                [[(x - half, y - half), (x + half, y + half)], [(x - half, y + half), (x + half, y - half)]]
            };
            if let Some((color, width)) = outline {
                for arm in arms {
                    canvas.stroke(&arm, radius * 0.65 + 2.0 * width, color);
                }
            }
            for arm in arms {
                canvas.stroke(&arm, radius * 0.65, fill);
            }
            return;
        }
        Shape::Square => regular(4, radius * 1.25, 0.125),
        Shape::Diamond => regular(4, radius * 1.3, 0.0),
        Shape::Triangle => regular(3, radius * 1.4, 0.0),
        Shape::Down => regular(3, radius * 1.4, 0.5),
        Shape::Pentagon => regular(5, radius * 1.15, 0.0),
    };
    canvas.fill(&corners, fill);
    if let Some((color, width)) = outline {
        canvas.stroke_closed(&corners, width, color);
    }
}

/// The radius of a marker when `count` of them share a plot.
pub(crate) fn point_radius(count: usize) -> f64 {
    match count {
        0..=120 => 2.3,
        121..=1000 => 1.6,
        1001..=3000 => 1.0,
        _ => 0.7,
    }
}
