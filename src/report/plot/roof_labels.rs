//! Where the names of roofs and points go in a roofline chart.

use super::canvas::{Align, Canvas, Look, Pt, Rect};
use super::labels::{self, Scene, Wanted};
use super::theme::{MID, Rgb, TICK};
use super::{fonts, text};

/// A roof in the figure: up the slope from `low` to `knee`, then level to `end`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bent {
    pub low: Pt,
    pub knee: Pt,
    pub end: Pt,
}

/// Writes each name next to its line, and returns the rooms of the names; `None` if one finds no room.
pub(crate) fn draw(
    canvas: &mut Canvas,
    plot: &Rect,
    lines: &[Bent],
    names: &[&str],
    colors: &[Rgb],
    points: &[Pt],
) -> Option<Vec<Rect>> {
    let mut rooms: Vec<Rect> = Vec::new();
    let mut texts = Vec::new();
    for (index, (line, name)) in lines.iter().zip(names).enumerate() {
        let name = text::clean(name);
        let (width, height) = (fonts::width(&name, TICK, false), TICK * 0.95);
        // A level shared with another roof says nothing about which roof it is.
        let shared = lines.iter().enumerate().any(|(i, o)| i != index && (o.knee.1 - line.knee.1).abs() < 2.0);
        let level = level_places(line, width, height);
        let slope = slope_places(line, width, height);
        let ordered: Vec<Rect> = if shared { slope } else { level.into_iter().chain(slope).collect() };
        let free = |room: &Rect| {
            plot.contains(room)
                && rooms.iter().all(|other| !other.grown(1.5).overlaps(room))
                && points.iter().all(|point| !room.grown(3.0).has(*point))
                && lines.iter().all(|l| {
                    let tight = room.grown(0.4);
                    tight.clip(l.low, l.knee).is_none() && tight.clip(l.knee, l.end).is_none()
                })
        };
        let room = ordered.into_iter().find(free)?;
        rooms.push(room);
        texts.push((name, room));
    }
    for ((name, room), color) in texts.iter().zip(colors) {
        canvas.text_mid(name, room.center(), Look::new(TICK).align(Align::Middle).color(*color));
    }
    Some(rooms)
}

/// Places above and below the level part, from the right.
fn level_places(line: &Bent, width: f64, height: f64) -> Vec<Rect> {
    // Above the line, a name may begin left of the knee as long as half of it is over the level part.
    let (knee, to, y) = (line.knee.0, line.end.0 - 2.0 - width, line.knee.1);
    let mut places = Vec::new();
    for above in [true, false] {
        for step in 0..12 {
            let x = to - 8.0 * f64::from(step);
            if x >= if above { knee - width / 2.0 } else { knee } {
                places.push(Rect::at(x, if above { y - height - 1.5 } else { y + 1.5 }, width, height));
            }
        }
    }
    places
}

/// Places left above and right below the slanted part, from its middle outwards.
fn slope_places(line: &Bent, width: f64, height: f64) -> Vec<Rect> {
    let mut places = Vec::new();
    for step in 0..19 {
        let offset = f64::from((step + 1) / 2) * 0.05 * if step % 2 == 0 { 1.0 } else { -1.0 };
        let share = 0.5 + offset;
        let x = line.low.0 + (line.knee.0 - line.low.0) * share;
        let y = line.low.1 + (line.knee.1 - line.low.1) * share;
        places.push(Rect::at(x + 2.0, y + 1.5, width, height));
        places.push(Rect::at(x - 2.0 - width, y - 1.5 - height, width, height));
    }
    places
}

/// Names the points where there is room; long names are shortened.
pub(crate) fn name_points(
    canvas: &mut Canvas,
    plot: &Rect,
    lines: &[Bent],
    blocked: &[Rect],
    at: &[Pt],
    names: &[&str],
) {
    let texts: Vec<String> = names.iter().map(|name| text::fit(name, TICK, false, 80.0)).collect();
    let named: Vec<usize> = (0..texts.len().min(at.len())).filter(|i| !texts[*i].is_empty()).collect();
    let wanted: Vec<Wanted> = named
        .iter()
        .map(|i| Wanted { at: at[*i], width: fonts::width(&texts[*i], TICK, false), height: TICK * 0.85 })
        .collect();
    let segments: Vec<(Pt, Pt)> = lines.iter().flat_map(|l| [(l.low, l.knee), (l.knee, l.end)]).collect();
    let scene = Scene { bounds: plot.grown(-1.5), blocked, points: at, rivals: at, lines: &segments, radius: 2.8 };
    for (i, placed) in named.iter().zip(labels::place(&wanted, &scene)) {
        if let Some(placed) = placed {
            if let Some((from, to)) = placed.leader {
                canvas.stroke(&[from, to], 0.4, MID);
            }
            canvas.text_mid(&texts[*i], placed.rect.center(), Look::new(TICK).align(Align::Middle));
        }
    }
}
