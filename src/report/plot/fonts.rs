//! The font built into the program.
//!
//! The bitmap backend draws no text, and reports no error, when a font is missing. So the font is part of the program
//! and a figure never depends on what is installed.

use std::sync::OnceLock;

use ab_glyph::{Font as _, FontRef};
use plotters::style::{FontDesc, FontFamily, FontStyle, register_font};

use super::PlotError;

/// The name in the SVG file, which is also the key the bitmap font is registered under. Verdana has the same letter
/// widths as DejaVu Sans, so the layout still holds on systems without DejaVu.
pub(crate) const FAMILY: &str = "DejaVu Sans, Verdana, Geneva, sans-serif";

static REGULAR: &[u8] = include_bytes!("../../../assets/fonts/DejaVuSans.ttf");
static BOLD: &[u8] = include_bytes!("../../../assets/fonts/DejaVuSans-Bold.ttf");

/// The bitmap backend takes a font's line height (ascent + descent) as its size; one em is this much smaller.
pub(crate) const LINE_PER_EM: f64 = (1901.0 + 483.0) / 2048.0;

/// Makes the font known to plotters, once per process.
pub(crate) fn ensure() -> Result<(), PlotError> {
    static READY: OnceLock<bool> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        register_font(FAMILY, FontStyle::Normal, REGULAR).is_ok()
            && register_font(FAMILY, FontStyle::Bold, BOLD).is_ok()
    });
    if *ready { Ok(()) } else { Err(PlotError::Font) }
}

/// Whether the font draws a character; where it does not, a box would stand in the figure.
pub(crate) fn has(character: char) -> bool {
    character.is_ascii() || read(false).is_none_or(|font| font.glyph_id(character).0 != 0)
}

/// The width of a line of text whose em is `size` points.
pub(crate) fn width(text: &str, size: f64, bold: bool) -> f64 {
    // Measured large because plotters rounds the answer to whole pixels.
    const EM: f64 = 1000.0;
    let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
    let font = FontDesc::new(FontFamily::Name(FAMILY), EM * LINE_PER_EM, style);
    match font.layout_box(text) {
        Ok(((x0, _), (x1, _))) => f64::from(x1 - x0) / EM * size,
        Err(_) => 0.6 * size * text.chars().count() as f64,
    }
}

/// The font file.
pub(crate) fn file(bold: bool) -> &'static [u8] {
    if bold { BOLD } else { REGULAR }
}

fn read(bold: bool) -> Option<&'static FontRef<'static>> {
    static FONTS: OnceLock<[Option<FontRef<'static>>; 2]> = OnceLock::new();
    let fonts = FONTS.get_or_init(|| [REGULAR, BOLD].map(|bytes| FontRef::try_from_slice(bytes).ok()));
    fonts[usize::from(bold)].as_ref()
}

/// The number of a character's glyph; 0 where the font has none.
pub(crate) fn glyph(character: char, bold: bool) -> u16 {
    read(bold).map_or(0, |font| font.glyph_id(character).0)
}

/// The width of a line of text by what its letters take each, without kerning: what a PDF viewer sets.
pub(crate) fn advance(text: &str, size: f64, bold: bool) -> f64 {
    let Some(font) = read(bold) else { return width(text, size, bold) };
    let em = f64::from(font.units_per_em().unwrap_or(2048.0));
    text.chars().map(|c| f64::from(font.h_advance_unscaled(font.glyph_id(c)))).sum::<f64>() / em * size
}
