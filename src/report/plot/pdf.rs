//! A PDF file of a drawing: vector paths, and text in the parts of the fonts that it uses, so that it can be searched and copied.
//!
//! Written by hand, as a drawing has four kinds of shapes: a library that turns SVG into PDF takes longer to compile than all of the
//! figures. The fonts are TrueType (type 42), not type 3, which journals refuse. (ISO 32000-1, sections 7.3, 8.5, 9.4, 9.7, 9.10.)

use super::PlotError;
use super::canvas::{Align, Canvas, Look, Op, Pt};
use super::fonts;
use super::theme::Rgb;
use super::truetype::Font;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;

/// Length of the control arms of a quarter of a circle.
const ARM: f64 = 0.552_284_75;

/// What a font shows: the character of each glyph.
type Shown = BTreeMap<u16, char>;

/// The file of a drawing. The same drawing gives the same bytes.
pub(super) fn encode(canvas: &Canvas) -> Result<Vec<u8>, PlotError> {
    let mut page =
        Page { out: String::new(), height: canvas.height, ink: [None; 2], width: None, shown: Default::default() };
    // Round joints, as in the other formats.
    page.out.push_str("1 j\n");
    canvas.ops.iter().for_each(|op| page.op(op));
    let mut file = File { bytes: b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n".to_vec(), places: Vec::new() };
    // Object numbers: 1 catalogue, 2 pages, 3 page, 4 its content, then five for each font.
    let used: Vec<usize> = (0..2).filter(|font| !page.shown[*font].is_empty()).collect();
    let names: String = used.iter().enumerate().map(|(i, font)| format!("/F{font} {} 0 R ", 5 + 5 * i)).collect();
    file.object("<</Type/Catalog/Pages 2 0 R>>");
    file.object("<</Type/Pages/Kids[3 0 R]/Count 1>>");
    file.object(&format!(
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 {} {}]/Contents 4 0 R/Resources<</Font<<{names}>>>>>>",
        short(canvas.width),
        short(canvas.height)
    ));
    file.stream("", page.out.as_bytes());
    for font in used {
        file.font(font == 1, &page.shown[font]).ok_or(PlotError::Font)?;
    }
    Ok(file.end())
}

/// The operators of a page.
struct Page {
    out: String,
    height: f64,
    /// Colours of lines and of areas, and the width of lines, as last set.
    ink: [Option<Rgb>; 2],
    width: Option<f64>,
    shown: [Shown; 2],
}

impl Page {
    fn op(&mut self, op: &Op) {
        match op {
            Op::Stroke { points, width, color } => {
                self.color(0, *color);
                if self.width != Some(*width) {
                    self.width = Some(*width);
                    self.put(&[*width], "w");
                }
                self.path(points);
                self.out.push_str("S\n");
            }
            Op::Fill { points, color } => {
                self.color(1, *color);
                self.path(points);
                self.out.push_str("f\n");
            }
            Op::Disc { center, radius, color } => {
                self.color(1, *color);
                let ((x, y), r, arm) = (self.turned(*center), *radius, radius * ARM);
                self.put(&[x + r, y], "m");
                self.put(&[x + r, y + arm, x + arm, y + r, x, y + r], "c");
                self.put(&[x - arm, y + r, x - r, y + arm, x - r, y], "c");
                self.put(&[x - r, y - arm, x - arm, y - r, x, y - r], "c");
                self.put(&[x + arm, y - r, x + r, y - arm, x + r, y], "c");
                self.out.push_str("f\n");
            }
            Op::Text { text, at, look } => self.text(text, *at, *look),
        }
    }

    /// A PDF page has its origin at the lower left.
    fn turned(&self, at: Pt) -> Pt {
        (at.0, self.height - at.1)
    }

    fn put(&mut self, numbers: &[f64], operator: &str) {
        for number in numbers {
            self.out.push_str(&short(*number));
            self.out.push(' ');
        }
        self.out.push_str(operator);
        self.out.push('\n');
    }

    fn color(&mut self, which: usize, color: Rgb) {
        if self.ink[which] != Some(color) {
            self.ink[which] = Some(color);
            let parts = [color.0, color.1, color.2].map(|part| f64::from(part) / 255.0);
            self.put(&parts, ["RG", "rg"][which]);
        }
    }

    fn path(&mut self, points: &[Pt]) {
        for (i, point) in points.iter().enumerate() {
            let (x, y) = self.turned(*point);
            self.put(&[x, y], if i == 0 { "m" } else { "l" });
        }
    }

    fn text(&mut self, text: &str, at: Pt, look: Look) {
        let glyphs: Vec<(u16, char)> = text.chars().map(|c| (fonts::glyph(c, look.bold), c)).collect();
        let hex: String = glyphs.iter().map(|(glyph, _)| format!("{glyph:04x}")).collect();
        let width = fonts::advance(text, look.size, look.bold);
        self.shown[usize::from(look.bold)].extend(glyphs);
        self.color(1, look.color);
        let back = match look.align {
            Align::Start => 0.0,
            Align::Middle => width / 2.0,
            Align::End => width,
        };
        let (x, y) = self.turned(at);
        let font = u8::from(look.bold);
        let place = if look.up {
            format!("0 1 -1 0 {} {}", short(x), short(y - back))
        } else {
            format!("1 0 0 1 {} {}", short(x - back), short(y))
        };
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "BT /F{font} {} Tf {place} Tm <{hex}> Tj ET", short(look.size));
    }
}

/// A number in as few characters as a hundredth of a point takes.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// The objects written so far.
struct File {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

impl File {
    fn object(&mut self, body: &str) {
        self.raw(body.as_bytes());
    }

    fn raw(&mut self, body: &[u8]) {
        self.places.push(self.bytes.len());
        self.bytes.extend(format!("{} 0 obj\n", self.places.len()).as_bytes());
        self.bytes.extend(body);
        self.bytes.extend(b"\nendobj\n");
    }

    fn stream(&mut self, entries: &str, content: &[u8]) {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        // Writing to memory cannot fail.
        let _ = packed.write_all(content);
        let packed = packed.finish().unwrap_or_default();
        let mut body = format!("<<{entries}/Filter/FlateDecode/Length {}>>stream\n", packed.len()).into_bytes();
        body.extend(packed);
        body.extend(b"\nendstream");
        self.raw(&body);
    }

    /// The five objects of a font.
    fn font(&mut self, bold: bool, shown: &Shown) -> Option<()> {
        let bytes = fonts::file(bold);
        let font = Font::read(bytes)?;
        // Six letters before the name say that it is a part of a font.
        let name = if bold { "FLOWSB+DejaVuSans-Bold" } else { "FLOWSP+DejaVuSans" };
        let first = self.places.len() + 1;
        let em = f64::from(font.em);
        let widths: String = shown
            .keys()
            .map(|glyph| format!("{glyph}[{}]", short(1000.0 * f64::from(font.advance(*glyph)) / em)))
            .collect();
        self.object(&format!(
            "<</Type/Font/Subtype/Type0/BaseFont/{name}/Encoding/Identity-H/DescendantFonts[{} 0 R]/ToUnicode {} 0 R>>",
            first + 1,
            first + 4
        ));
        self.object(&format!(
            "<</Type/Font/Subtype/CIDFontType2/BaseFont/{name}/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>\
             /FontDescriptor {} 0 R/CIDToGIDMap/Identity/W[{widths}]>>",
            first + 2
        ));
        // Box, ascent, descent and height of capitals of DejaVu Sans in thousandths of an em; 4: symbols beyond Latin.
        self.object(&format!(
            "<</Type/FontDescriptor/FontName/{name}/Flags 4/FontBBox[-1021 -463 1793 1232]/ItalicAngle 0/Ascent 928\
             /Descent -236/CapHeight 729/StemV {}/FontFile2 {} 0 R>>",
            if bold { 150 } else { 90 },
            first + 3
        ));
        let part = font.part(&shown.keys().copied().collect::<BTreeSet<_>>())?;
        self.stream(&format!("/Length1 {}", part.len()), &part);
        self.stream("", to_unicode(shown).as_bytes());
        Some(())
    }

    /// The table of places, and the file.
    fn end(mut self) -> Vec<u8> {
        let start = self.bytes.len();
        let count = self.places.len() + 1;
        let mut table = format!("xref\n0 {count}\n0000000000 65535 f \n");
        for place in &self.places {
            // Writing to a String cannot fail.
            let _ = writeln!(table, "{place:010} 00000 n ");
        }
        self.bytes.extend(table.as_bytes());
        self.bytes.extend(format!("trailer\n<</Size {count}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n").as_bytes());
        self.bytes
    }
}

/// The characters of the glyphs, at most a hundred a block as the format has it.
fn to_unicode(shown: &Shown) -> String {
    let mut out = String::from(
        "/CIDInit/ProcSet findresource begin 12 dict begin begincmap\n/CMapName/Shown def/CMapType 2 def\n\
         1 begincodespacerange <0000><ffff> endcodespacerange\n",
    );
    let lines: Vec<String> = shown
        .iter()
        .map(|(glyph, c)| {
            let mut units = [0; 2];
            let units: String = c.encode_utf16(&mut units).iter().map(|unit| format!("{unit:04x}")).collect();
            format!("<{glyph:04x}><{units}>\n")
        })
        .collect();
    for block in lines.chunks(100) {
        let _ = write!(out, "{} beginbfchar\n{}endbfchar\n", block.len(), block.concat());
    }
    out.push_str("endcmap end end\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in [(1.0, "1"), (0.1234, "0.123"), (-0.0001, "0"), (252.0, "252"), (-3.25, "-3.25")] {
            assert_eq!(short(number), text);
        }
    }

    /// Every place of the table is that of the object it names, and a second drawing has the same bytes.
    #[test]
    fn objects_are_where_the_table_says() {
        let mut canvas = Canvas::new(100.0).unwrap();
        canvas.disc((50.0, 50.0), 10.0, (255, 0, 0));
        canvas.stroke(&[(0.0, 0.0), (100.0, 100.0)], 1.0, (0, 0, 0));
        canvas.text("Ünits − µs →", (10.0, 20.0), Look::new(8.0).bold());
        canvas.text("plain", (10.0, 40.0), Look::new(8.0).up());
        let bytes = encode(&canvas).unwrap();
        assert_eq!(bytes, encode(&canvas).unwrap());
        assert!(bytes.len() < 20_000, "{}", bytes.len());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.starts_with("%PDF-1.5") && text.ends_with("%%EOF\n"));
        let find = |what: &[u8]| bytes.windows(what.len()).rposition(|window| window == what).unwrap();
        let table = String::from_utf8(bytes[find(b"\nxref\n") + 1..].to_vec()).unwrap();
        let places: Vec<usize> = table.lines().skip(3).map_while(|line| line.split(' ').next()?.parse().ok()).collect();
        assert_eq!(places.len(), 4 + 2 * 5);
        for (i, place) in places.iter().enumerate() {
            assert!(bytes[*place..].starts_with(format!("{} 0 obj\n", i + 1).as_bytes()), "{i}");
        }
    }

    /// A part of a font holds the outlines asked for, with those of accents, and is a font by itself.
    #[test]
    fn a_part_of_a_font_is_a_font() {
        let whole = Font::read(fonts::file(false)).unwrap();
        let glyphs: BTreeSet<u16> = "Aé−".chars().map(|c| fonts::glyph(c, false)).collect();
        let bytes = whole.part(&glyphs).unwrap();
        let part = Font::read(&bytes).unwrap();
        assert_eq!(part.em, whole.em);
        for glyph in &glyphs {
            assert_eq!(part.advance(*glyph), whole.advance(*glyph));
        }
        assert_eq!(part.advance(fonts::glyph('B', false)), 0);
    }
}
