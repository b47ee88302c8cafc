//! Groups of data and the legend above the plot.

use std::collections::BTreeMap;

use super::canvas::{Canvas, Look, Rect};
use super::fonts;
use super::text;
use super::theme::{self, BLACK, DARK, Rgb, Shape, TICK};

/// More groups than this cannot be told apart; the rest share one grey entry.
const MOST_GROUPS: usize = 16;

/// The groups of a chart in the order in which they first appear.
pub(crate) struct Groups {
    index: BTreeMap<String, usize>,
    names: Vec<String>,
}

impl Groups {
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Groups {
        let mut groups = Groups { index: BTreeMap::new(), names: Vec::new() };
        for name in names {
            if !groups.index.contains_key(name) {
                groups.index.insert(name.to_string(), groups.names.len());
                groups.names.push(name.to_string());
            }
        }
        groups
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// The number of the group.
    pub fn position(&self, name: &str) -> usize {
        self.index.get(name).copied().unwrap_or(0)
    }

    /// The number of the group's sign, at most [`MOST_GROUPS`].
    pub fn index(&self, name: &str) -> usize {
        self.position(name).min(MOST_GROUPS)
    }

    pub fn color(&self, name: &str) -> Rgb {
        color(self.index(name))
    }

    pub fn shape(&self, name: &str) -> Shape {
        theme::shape(self.index(name))
    }

    /// The legend entries; none when there is only one group without a name.
    pub fn entries(&self) -> Vec<Entry> {
        if self.names.len() == 1 && self.names[0].is_empty() {
            return Vec::new();
        }
        let mut entries: Vec<Entry> = self
            .names
            .iter()
            .take(MOST_GROUPS)
            .enumerate()
            .map(|(i, name)| {
                let label = if name.is_empty() { "(none)" } else { name };
                Entry::new(label, Swatch::Marker(theme::shape(i), color(i)))
            })
            .collect();
        if self.names.len() > MOST_GROUPS {
            let label = format!("{} others", self.names.len() - MOST_GROUPS);
            entries.push(Entry::new(&label, Swatch::Marker(theme::shape(MOST_GROUPS), color(MOST_GROUPS))));
        }
        entries
    }
}

fn color(index: usize) -> Rgb {
    if index < MOST_GROUPS { theme::category(index) } else { theme::MID }
}

/// The sign in front of a legend entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Swatch {
    Marker(Shape, Rgb),
    Box(Rgb),
    Outline,
    /// A line with a dash pattern, and a marker on it; an empty pattern is a full line.
    Roof(Shape, Rgb, &'static [f64]),
    /// The line alone.
    Line(Rgb, &'static [f64]),
    /// A staircase.
    Front,
}

/// One legend entry.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    label: String,
    swatch: Swatch,
}

impl Entry {
    pub fn new(label: &str, swatch: Swatch) -> Entry {
        Entry { label: label.to_string(), swatch }
    }

    pub fn name(&self) -> &str {
        &self.label
    }

    /// The entry with a box of its marker's colour.
    pub fn boxed(self) -> Entry {
        match self.swatch {
            Swatch::Marker(_, color) => Entry { swatch: Swatch::Box(color), ..self },
            _ => self,
        }
    }

    /// The entry without its colour, where colour says something else.
    pub fn grey(&mut self) {
        if let Swatch::Marker(_, color) = &mut self.swatch {
            *color = theme::MID;
        }
    }
}

const SIGN: f64 = 13.0;
const SIGN_GAP: f64 = 3.0;
const ENTRY_GAP: f64 = 9.0;
/// The smallest gap that still separates entries in a row.
const TIGHT_GAP: f64 = 5.0;
const ROW: f64 = 10.5;

/// The width of the legend in one column.
pub(crate) fn column(entries: &[Entry]) -> f64 {
    SIGN + SIGN_GAP + text::widest(entries.iter().map(|entry| entry.label.as_str()), TICK)
}

/// Draws the legend from `y` downwards between `x0` and `x1`, and returns where it ends.
pub(crate) fn draw(canvas: &mut Canvas, entries: &[Entry], x0: f64, x1: f64, y: f64) -> f64 {
    if entries.is_empty() {
        return y;
    }
    let room = x1 - x0;
    let labels: Vec<String> =
        entries.iter().map(|e| text::fit(&e.label, TICK, false, room - SIGN - SIGN_GAP)).collect();
    let widths: Vec<f64> = labels.iter().map(|l| SIGN + SIGN_GAP + fonts::width(l, TICK, false)).collect();
    let total: f64 = widths.iter().sum();
    let gaps = (widths.len() - 1) as f64;
    let gap = ((room - total) / gaps.max(1.0)).min(ENTRY_GAP);
    if gap >= TIGHT_GAP || (gaps == 0.0 && total <= room) {
        let mut x = x0 + (room - total - gap * gaps) / 2.0;
        for ((entry, label), width) in entries.iter().zip(&labels).zip(&widths) {
            draw_entry(canvas, entry.swatch, label, x, y);
            x += width + gap;
        }
        return y + ROW;
    }
    // Several rows are easier to read in columns.
    let column = widths.iter().copied().fold(0.0, f64::max) + ENTRY_GAP;
    let columns = (((room + ENTRY_GAP) / column).floor() as usize).clamp(1, entries.len());
    // Rows of about equal length: four entries make two rows of two, not three and one.
    let columns = entries.len().div_ceil(entries.len().div_ceil(columns));
    let left = x0 + (room + ENTRY_GAP - column * columns as f64).max(0.0) / 2.0;
    for (i, (entry, label)) in entries.iter().zip(&labels).enumerate() {
        let (row, place) = (i / columns, i % columns);
        draw_entry(canvas, entry.swatch, label, left + place as f64 * column, y + row as f64 * ROW);
    }
    y + ROW * entries.len().div_ceil(columns) as f64
}

fn draw_entry(canvas: &mut Canvas, swatch: Swatch, label: &str, x: f64, y: f64) {
    let mid = y + ROW / 2.0 - 0.5;
    match swatch {
        Swatch::Marker(shape, color) => {
            theme::marker(
                canvas,
                shape,
                (x + SIGN - 4.0, mid),
                2.4,
                color,
                Some((theme::mix(color, BLACK, 0.35), 0.4)),
            );
        }
        Swatch::Box(color) => canvas.rect(Rect::at(x + 3.0, mid - 3.0, 10.0, 6.0), color),
        Swatch::Outline => canvas.stroke_closed(&Rect::at(x + 3.0, mid - 3.0, 10.0, 6.0).corners(), 1.0, BLACK),
        Swatch::Line(color, dash) => canvas.dashed(&[(x, mid), (x + SIGN, mid)], 1.2, color, dash),
        Swatch::Roof(shape, color, dash) => {
            // Finer dashes, so that the pattern shows beside the marker.
            let fine: Vec<f64> = dash.iter().map(|part| part * 0.5).collect();
            canvas.dashed(&[(x, mid), (x + SIGN - 5.0, mid)], 1.2, color, &fine);
            let at = (x + SIGN - 2.6, mid);
            theme::marker(canvas, shape, at, 2.2, color, Some((theme::mix(color, BLACK, 0.5), 0.4)));
        }
        Swatch::Front => {
            canvas.stroke(
                &[(x, mid + 3.0), (x + 6.5, mid + 3.0), (x + 6.5, mid - 2.0), (x + SIGN, mid - 2.0)],
                1.0,
                DARK,
            );
        }
    }
    canvas.text_mid(label, (x + SIGN + SIGN_GAP, mid), Look::new(TICK));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keep_their_order_and_are_capped() {
        let names: Vec<String> = (0..40).map(|i| format!("g{}", 39 - i)).collect();
        let groups = Groups::of(names.iter().map(String::as_str));
        assert_eq!(groups.index("g39"), 0);
        assert_eq!(groups.index("g0"), MOST_GROUPS);
        assert_eq!(groups.entries().len(), MOST_GROUPS + 1);
        assert!(Groups::of(["", ""]).entries().is_empty());
    }

    #[test]
    fn groups_have_distinct_signs() {
        for a in 0..MOST_GROUPS {
            for b in 0..a {
                assert!(theme::shape(a) != theme::shape(b) || theme::category(a) != theme::category(b));
            }
        }
    }
}
