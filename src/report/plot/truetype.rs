//! A part of a TrueType font: the outlines of some glyphs, under the numbers that they have in the whole.
//!
//! A PDF file carries the glyphs it shows. The other glyphs keep their places in the tables, with nothing in them, so that no number has
//! to change; compressed, that takes a few hundred bytes. Programs for hinting are taken out, as the tables they call are left behind.
//! (OpenType specification, tables `head`, `hhea`, `maxp`, `hmtx`, `loca`, `glyf`.)

use std::collections::BTreeSet;

/// A font file read into its tables.
pub(super) struct Font<'f> {
    bytes: &'f [u8],
    /// Units of an em.
    pub em: u16,
    glyphs: u16,
    wide: u16,
    long_places: bool,
}

/// Reads big-endian numbers; nothing where the file ends.
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Flags of a part of a composite glyph.
const WORDS: u16 = 0x0001;
const SCALE: u16 = 0x0008;
const MORE: u16 = 0x0020;
const TWO_SCALES: u16 = 0x0040;
const FOUR_SCALES: u16 = 0x0080;
const PROGRAM: u16 = 0x0100;

impl<'f> Font<'f> {
    pub fn read(bytes: &'f [u8]) -> Option<Self> {
        let mut font = Font { bytes, em: 0, glyphs: 0, wide: 0, long_places: false };
        let head = font.table(b"head")?;
        font.em = u16_at(head, 18)?;
        font.long_places = u16_at(head, 50)? == 1;
        font.glyphs = u16_at(font.table(b"maxp")?, 4)?;
        font.wide = u16_at(font.table(b"hhea")?, 34)?;
        Some(font)
    }

    fn table(&self, tag: &[u8; 4]) -> Option<&'f [u8]> {
        let count = usize::from(u16_at(self.bytes, 4)?);
        let record = (0..count).map(|i| 12 + 16 * i).find(|at| self.bytes.get(*at..*at + 4) == Some(tag))?;
        let (start, length) = (u32_at(self.bytes, record + 8)? as usize, u32_at(self.bytes, record + 12)? as usize);
        self.bytes.get(start..start + length)
    }

    /// How far the pen moves, in units of the em.
    pub fn advance(&self, glyph: u16) -> u16 {
        let last = self.wide.saturating_sub(1);
        self.table(b"hmtx").and_then(|table| u16_at(table, 4 * usize::from(glyph.min(last)))).unwrap_or(0)
    }

    fn outline(&self, glyph: u16) -> Option<&'f [u8]> {
        let (places, glyphs) = (self.table(b"loca")?, self.table(b"glyf")?);
        let place = |i: usize| {
            if self.long_places {
                u32_at(places, 4 * i).map(|at| at as usize)
            } else {
                u16_at(places, 2 * i).map(|at| 2 * usize::from(at))
            }
        };
        let i = usize::from(glyph);
        glyphs.get(place(i)?..place(i + 1)?)
    }

    /// The font with the outlines of `wanted`, of the glyphs they are made of, and of the one that stands for missing ones.
    pub fn part(&self, wanted: &BTreeSet<u16>) -> Option<Vec<u8>> {
        let mut todo: Vec<u16> = wanted.iter().copied().chain([0]).filter(|glyph| *glyph < self.glyphs).collect();
        let mut kept: BTreeSet<u16> = BTreeSet::new();
        while let Some(glyph) = todo.pop() {
            if kept.insert(glyph) {
                todo.extend(parts(self.outline(glyph)?).into_iter().map(|(_, part)| part));
            }
        }
        let (mut glyf, mut loca, mut hmtx) = (Vec::new(), Vec::new(), Vec::new());
        let bearings = self.table(b"hmtx")?;
        for glyph in 0..self.glyphs {
            loca.extend((glyf.len() as u32).to_be_bytes());
            let keep = kept.contains(&glyph);
            if keep {
                glyf.extend(without_program(self.outline(glyph)?)?);
                glyf.resize(glyf.len().next_multiple_of(4), 0);
            }
            let i = usize::from(glyph);
            let entry = if glyph < self.wide {
                4 * i..4 * i + 4
            } else {
                2 * (i + usize::from(self.wide))..2 * (i + usize::from(self.wide)) + 2
            };
            let entry = bearings.get(entry)?;
            hmtx.extend(if keep { entry.to_vec() } else { vec![0; entry.len()] });
        }
        loca.extend((glyf.len() as u32).to_be_bytes());
        let mut head = self.table(b"head")?.to_vec();
        // Places in `loca` are whole numbers of four bytes now; the sum over the file is not checked by readers of parts.
        head.get_mut(8..12)?.fill(0);
        head.get_mut(50..52)?.copy_from_slice(&[0, 1]);
        let maxp = self.table(b"maxp")?.to_vec();
        let tables: [(&[u8; 4], Vec<u8>); 6] = [
            (b"glyf", glyf),
            (b"head", head),
            (b"hhea", self.table(b"hhea")?.to_vec()),
            (b"hmtx", hmtx),
            (b"loca", loca),
            (b"maxp", maxp),
        ];
        // Version 1.0; six tables, of which a binary search takes four: 4 x 16, its exponent 2, and 2 x 16 left over.
        let mut out: Vec<u8> = [0, 1, 0, 0, 0, 6, 0, 64, 0, 2, 0, 32].to_vec();
        let mut at = 12 + 16 * tables.len();
        for (tag, table) in &tables {
            let sum = table.chunks(4).fold(0_u32, |sum, word| {
                let mut bytes = [0; 4];
                bytes[..word.len()].copy_from_slice(word);
                sum.wrapping_add(u32::from_be_bytes(bytes))
            });
            out.extend(*tag);
            for number in [sum, at as u32, table.len() as u32] {
                out.extend(number.to_be_bytes());
            }
            at += table.len().next_multiple_of(4);
        }
        for (_, table) in tables {
            out.extend(table);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        Some(out)
    }
}

/// The parts of a composite glyph: where each stands in the outline, and its glyph.
fn parts(outline: &[u8]) -> Vec<(usize, u16)> {
    let mut found = Vec::new();
    // A negative number of contours says that it is composite.
    if u16_at(outline, 0).is_none_or(|contours| contours < 0x8000) {
        return found;
    }
    let mut at = 10;
    while let (Some(flags), Some(glyph)) = (u16_at(outline, at), u16_at(outline, at + 2)) {
        found.push((at, glyph));
        at += 4 + if flags & WORDS != 0 { 4 } else { 2 };
        at += match flags {
            _ if flags & SCALE != 0 => 2,
            _ if flags & TWO_SCALES != 0 => 4,
            _ if flags & FOUR_SCALES != 0 => 8,
            _ => 0,
        };
        if flags & MORE == 0 {
            // Where the parts end.
            found.push((at, glyph));
            break;
        }
    }
    found
}

/// An outline without its program for hinting.
fn without_program(outline: &[u8]) -> Option<Vec<u8>> {
    let Some(contours) = u16_at(outline, 0) else { return Some(Vec::new()) };
    if contours >= 0x8000 {
        let parts = parts(outline);
        let (end, _) = parts.last()?;
        let mut out = outline.get(..*end)?.to_vec();
        for (at, _) in &parts[..parts.len() - 1] {
            let flags = u16_at(&out, *at)? & !PROGRAM;
            out[*at..*at + 2].copy_from_slice(&flags.to_be_bytes());
        }
        return Some(out);
    }
    let at = 10 + 2 * usize::from(contours);
    let length = usize::from(u16_at(outline, at)?);
    let mut out = outline.get(..at)?.to_vec();
    out.extend([0, 0]);
    out.extend(outline.get(at + 2 + length..)?);
    Some(out)
}
