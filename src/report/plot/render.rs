//! Playing a recorded drawing back on the two plotters backends; a PDF is written without them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use plotters::backend::{BitMapBackend, DrawingBackend, RGBPixel, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle};

use super::PlotError;
use super::canvas::{Align, Canvas, Look, Op, Pt};
use super::fonts;
use super::pdf;
use super::png;
use super::theme::{Rgb, WHITE};

/// SVG units per point. Plotters takes whole numbers only, so the units must be fine.
const SVG_UNITS: f64 = 20.0;
/// Dots per inch of the PNG file.
const DPI: f64 = 300.0;
/// The bitmap is drawn this many times larger and averaged down, because plotters smooths edges poorly.
const OVERSAMPLE: u32 = 3;

/// Writes `<stem>.svg`, `<stem>.png` and `<stem>.pdf`.
pub(crate) fn write(canvas: &Canvas, stem: &Path) -> Result<Vec<PathBuf>, PlotError> {
    let svg = with_suffix(stem, ".svg");
    let png = with_suffix(stem, ".png");
    write_svg(canvas, &svg)?;
    write_png(canvas, &png)?;
    let page = with_suffix(stem, ".pdf");
    put(&page, &pdf::encode(canvas)?)?;
    Ok(vec![svg, png, page])
}

/// Appends, because `Path::with_extension` would cut a stem such as "v1.2" short.
fn with_suffix(stem: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(stem);
    name.push(suffix);
    PathBuf::from(name)
}

fn write_svg(canvas: &Canvas, path: &Path) -> Result<(), PlotError> {
    let size = pixels(canvas, SVG_UNITS);
    let mut out = String::new();
    let mut backend = SVGBackend::with_string(&mut out, size);
    play(canvas, &mut backend, &SVG).map_err(|message| draw_error(path, message))?;
    drop(backend);
    // The size in points, so that a paper includes the figure at its designed size.
    let plain = format!("width=\"{}\" height=\"{}\"", size.0, size.1);
    let sized = format!("width=\"{}pt\" height=\"{}pt\" stroke-linejoin=\"round\"", canvas.width, canvas.height);
    put(path, out.replacen(&plain, &sized, 1).as_bytes())
}

/// Writes a file beside the old one and puts it in its place at once: where the disk is full, none is cut short.
fn put(path: &Path, bytes: &[u8]) -> Result<(), PlotError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temporary = path.with_file_name(format!(".{name}.new"));
    fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path)).map_err(|source| {
        let _ = fs::remove_file(&temporary);
        write_error(path, source)
    })
}

fn write_png(canvas: &Canvas, path: &Path) -> Result<(), PlotError> {
    let (width, height) = pixels(canvas, DPI / 72.0);
    let (wide, high) = (width * OVERSAMPLE, height * OVERSAMPLE);
    let mut large = vec![255_u8; wide as usize * high as usize * 3];
    {
        let mut backend = BitMapBackend::<RGBPixel>::with_buffer_and_format(&mut large, (wide, high))
            .map_err(|error| draw_error(path, error.to_string()))?;
        play(canvas, &mut backend, &PNG).map_err(|message| draw_error(path, message))?;
    }
    let small = average(&large, width as usize, height as usize, OVERSAMPLE as usize);
    drop(large);
    let bytes = png::encode(&small, (width, height), DPI).map_err(|source| write_error(path, source))?;
    put(path, &bytes)
}

fn draw_error(path: &Path, message: String) -> PlotError {
    PlotError::Draw { path: path.to_path_buf(), message }
}

fn write_error(path: &Path, source: std::io::Error) -> PlotError {
    PlotError::Write { path: path.to_path_buf(), source }
}

fn pixels(canvas: &Canvas, scale: f64) -> (u32, u32) {
    let side = |length: f64| (length * scale).round().clamp(1.0, 20_000.0) as u32;
    (side(canvas.width), side(canvas.height))
}

/// The mean of each block of `block` x `block` RGB pixels.
fn average(large: &[u8], width: usize, height: usize, block: usize) -> Vec<u8> {
    let mut small = Vec::with_capacity(width * height * 3);
    let count = (block * block) as u32;
    let row = width * block * 3;
    for y in 0..height {
        for x in 0..width {
            let mut sum = [0_u32; 3];
            for line in large[y * block * row..].chunks(row).take(block) {
                for pixel in line[x * block * 3..(x + 1) * block * 3].chunks_exact(3) {
                    for (total, byte) in sum.iter_mut().zip(pixel) {
                        *total += u32::from(*byte);
                    }
                }
            }
            small.extend(sum.map(|total| ((total + count / 2) / count) as u8));
        }
    }
    small
}

/// How a backend differs from the canvas.
struct Dialect {
    /// Backend units per point.
    scale: f64,
    /// The backend's font size for one em.
    line_per_em: f64,
    /// How far below the upper text anchor, in em, the backend puts the baseline.
    drop: f64,
    /// Whether the backend joins the segments of a wide line well by itself.
    joins: bool,
}

const SVG: Dialect = Dialect { scale: SVG_UNITS, line_per_em: 1.24, drop: 0.76, joins: true };
const PNG: Dialect = Dialect {
    scale: DPI / 72.0 * OVERSAMPLE as f64,
    line_per_em: fonts::LINE_PER_EM,
    drop: fonts::LINE_PER_EM / 2.0,
    joins: false,
};

/// Draws every recorded shape.
fn play<B: DrawingBackend>(canvas: &Canvas, backend: &mut B, dialect: &Dialect) -> Result<(), String> {
    let scale = dialect.scale;
    let size = backend.get_size();
    let limit = (i32::try_from(size.0).unwrap_or(i32::MAX), i32::try_from(size.1).unwrap_or(i32::MAX));
    backend.draw_rect((0, 0), limit, &ink(WHITE, 1), true).map_err(|error| error.to_string())?;
    // Nothing is drawn far outside the figure, and the clamp keeps plotters' arithmetic from overflowing.
    let at = |point: &Pt| {
        let one = |value: f64| (value * scale).round().clamp(-30_000.0, 60_000.0) as i32;
        (one(point.0), one(point.1))
    };
    for op in &canvas.ops {
        match op {
            Op::Stroke { points, width, color } => {
                let style = ink(*color, ((width * scale).round() as u32).max(1));
                let path: Vec<(i32, i32)> = points.iter().map(at).collect();
                if dialect.joins {
                    backend.draw_path(path, &style).map_err(|error| error.to_string())?;
                } else {
                    segments(backend, &path, style)?;
                }
            }
            Op::Fill { points, color } => {
                let corners: Vec<(i32, i32)> = points.iter().map(at).collect();
                backend.fill_polygon(corners, &ink(*color, 1)).map_err(|error| error.to_string())?;
            }
            Op::Disc { center, radius, color } => {
                let radius = ((radius * scale).round() as u32).clamp(1, 10_000);
                backend.draw_circle(at(center), radius, &ink(*color, 1), true).map_err(|error| error.to_string())?;
            }
            Op::Text { text, at: base, look } => {
                let drop = dialect.drop * look.size;
                let corner = if look.up { (base.0 - drop, base.1) } else { (base.0, base.1 - drop) };
                let style = text_style(*look, scale * dialect.line_per_em);
                backend.draw_text(text, &style, at(&corner)).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// A line drawn segment by segment with round joints, because plotters' own wide paths have spikes at sharp corners.
fn segments<B: DrawingBackend>(backend: &mut B, path: &[(i32, i32)], style: ShapeStyle) -> Result<(), String> {
    for pair in path.windows(2) {
        backend.draw_line(pair[0], pair[1], &style).map_err(|error| error.to_string())?;
    }
    let radius = style.stroke_width / 2;
    if radius > 1 {
        for joint in path.iter().skip(1).take(path.len().saturating_sub(2)) {
            backend.draw_circle(*joint, radius, &style, true).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn ink(color: Rgb, stroke_width: u32) -> ShapeStyle {
    ShapeStyle { color: RGBColor(color.0, color.1, color.2).to_rgba(), filled: true, stroke_width }
}

fn text_style(look: Look, scale: f64) -> TextStyle<'static> {
    let style = if look.bold { FontStyle::Bold } else { FontStyle::Normal };
    let font = FontDesc::new(FontFamily::Name(fonts::FAMILY), look.size * scale, style);
    let font = if look.up { font.transform(FontTransform::Rotate270) } else { font };
    let across = match look.align {
        Align::Start => HPos::Left,
        Align::Middle => HPos::Center,
        Align::End => HPos::Right,
    };
    font.color(&RGBColor(look.color.0, look.color.1, look.color.2)).pos(Pos::new(across, VPos::Top))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_blocks() {
        let large = [[0_u8; 3], [100; 3], [100; 3], [200; 3]].concat();
        assert_eq!(average(&large, 1, 1, 2), vec![100; 3]);
    }

    #[test]
    fn keeps_dots_in_the_stem() {
        assert_eq!(with_suffix(Path::new("a/v1.2"), ".svg"), PathBuf::from("a/v1.2.svg"));
    }
}
