//! Placing the labels of points: greedy, one label after the other, each at the cheapest free place round its point.

use super::canvas::{Align, Canvas, Look, Pt, Rect};
use super::theme::{MID, TICK};
use super::{fonts, text};

/// A label to place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The point.
    pub at: Pt,
    /// The size of the text.
    pub width: f64,
    pub height: f64,
}

/// A placed label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Placed {
    /// The room of the text.
    pub rect: Rect,
    /// A line from the marker to the text when they are not next to each other.
    pub leader: Option<(Pt, Pt)>,
}

/// What is already in the plot.
pub(crate) struct Scene<'a> {
    /// Labels stay inside.
    pub bounds: Rect,
    /// Labels never cover these.
    pub blocked: &'a [Rect],
    /// Points that labels should not cover.
    pub points: &'a [Pt],
    /// Points that could be mistaken for the labelled one: never covered, and preferably farther from the label.
    pub rivals: &'a [Pt],
    /// Lines that labels should not cover.
    pub lines: &'a [(Pt, Pt)],
    /// Radius of the marker of a labelled point or rival, and of any other.
    pub radius: f64,
    pub small: f64,
}

const DISTANCES: [f64; 9] = [1.5, 5.0, 9.0, 14.0, 20.0, 28.0, 38.0, 50.0, 64.0];
const DIRECTIONS: usize = 24;
/// Labels are at least this far from each other.
const GAP: f64 = 1.0;

/// Places the labels; a label for which there is no room gets `None`.
pub(crate) fn place(wanted: &[Wanted], scene: &Scene) -> Vec<Option<Placed>> {
    // Points in a crowd have the fewest places, so they choose first.
    let crowd = |at: Pt| {
        let near = |p: &Pt| (p.0 - at.0).hypot(p.1 - at.1) < 30.0;
        (wanted.iter().filter(|w| near(&w.at)).count() * 4 + scene.points.iter().filter(|p| near(p)).count()) as f64
    };
    // When that order leaves a label without a place, going along the front often fans the leaders out better.
    let orders: [&dyn Fn(&Wanted) -> f64; 5] =
        [&|w| -crowd(w.at), &|w| w.at.0, &|w| -w.at.0, &|w| w.at.1, &|w| -w.at.1];
    let mut best: Vec<Option<Placed>> = Vec::new();
    for key in orders {
        let mut order: Vec<(f64, usize)> = wanted.iter().enumerate().map(|(i, w)| (key(w), i)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let placed = place_in_order(wanted, scene, order.into_iter().map(|(_, index)| index));
        let count = |set: &[Option<Placed>]| set.iter().flatten().count();
        if best.is_empty() || count(&placed) > count(&best) {
            best = placed;
        }
        if count(&best) == wanted.len() {
            break;
        }
    }
    best
}

fn place_in_order(wanted: &[Wanted], scene: &Scene, order: impl Iterator<Item = usize>) -> Vec<Option<Placed>> {
    let mut placed: Vec<Option<Placed>> = vec![None; wanted.len()];
    for index in order {
        let mut best: Option<(f64, Placed)> = None;
        for candidate in candidates(&wanted[index], scene.radius) {
            if let Some(cost) = cost(&candidate, index, wanted, scene, &placed)
                && best.as_ref().is_none_or(|(least, _)| cost < *least)
            {
                best = Some((cost, candidate));
            }
        }
        placed[index] = best.map(|(_, candidate)| candidate);
    }
    placed
}

/// All places considered for a label, near ones first.
fn candidates(wanted: &Wanted, radius: f64) -> impl Iterator<Item = Placed> {
    let Wanted { at, width, height } = *wanted;
    DISTANCES.into_iter().flat_map(move |distance| {
        (0..DIRECTIONS).map(move |direction| {
            let angle = std::f64::consts::TAU * direction as f64 / DIRECTIONS as f64;
            let (dx, dy) = (angle.cos(), -angle.sin());
            let reach = radius + distance;
            // The box touches the circle of radius `reach` from outside, in this direction.
            let center = (
                at.0 + dx * reach + dx.signum() * width / 2.0 * (dx.abs() * 1.6).min(1.0),
                at.1 + dy * reach + dy.signum() * height / 2.0 * (dy.abs() * 1.6).min(1.0),
            );
            let rect = Rect::at(center.0 - width / 2.0, center.1 - height / 2.0, width, height);
            let end = (at.0.max(rect.x0).min(rect.x1), at.1.max(rect.y0).min(rect.y1));
            let length = (end.0 - at.0).hypot(end.1 - at.1);
            let leader = (length > radius + 4.0).then(|| {
                let start = (at.0 + (end.0 - at.0) * radius / length, at.1 + (end.1 - at.1) * radius / length);
                let stop = (end.0 - (end.0 - at.0) * 0.8 / length, end.1 - (end.1 - at.1) * 0.8 / length);
                (start, stop)
            });
            Placed { rect, leader }
        })
    })
}

/// How bad a place is; `None` if it is not allowed.
fn cost(candidate: &Placed, index: usize, wanted: &[Wanted], scene: &Scene, placed: &[Option<Placed>]) -> Option<f64> {
    let room = candidate.rect.grown(GAP);
    if !scene.bounds.contains(&candidate.rect) || scene.blocked.iter().any(|rect| rect.overlaps(&room)) {
        return None;
    }
    let at = wanted[index].at;
    let rivals = || scene.rivals.iter().filter(|rival| **rival != at);
    if rivals().any(|rival| room.distance(*rival) < scene.radius) || room.has(at) {
        return None;
    }
    for other in placed.iter().flatten() {
        let crossed = |line: Option<(Pt, Pt)>, rect: &Rect| line.is_some_and(|(a, b)| rect.clip(a, b).is_some());
        let leaders_cross = matches!((candidate.leader, other.leader), (Some(a), Some(b)) if cross(a, b));
        if other.rect.overlaps(&room)
            || crossed(candidate.leader, &other.rect.grown(GAP))
            || crossed(other.leader, &room)
            || leaders_cross
        {
            return None;
        }
    }
    let own = room.distance(at);
    let nearer = rivals().filter(|rival| room.distance(**rival) < own + 2.0).count() as f64;
    // A leader says which point is meant, so a rival next to the label matters less.
    let mut cost = own * 0.35 + nearer * if candidate.leader.is_some() { 1.5 } else { 12.0 };
    if let Some((a, b)) = candidate.leader {
        cost += 3.0;
        // A leader through another marker may be taken for that one's.
        let through = |other: &Pt, radius: f64| *other != at && from_segment(*other, a, b) < radius;
        if scene.rivals.iter().any(|rival| through(rival, scene.radius))
            || scene.points.iter().any(|point| through(point, scene.small))
        {
            return None;
        }
        cost += 3.0 * scene.lines.iter().filter(|line| cross(**line, (a, b))).count() as f64;
    }
    let hidden = scene.points.iter().filter(|p| room.grown(1.0).has(**p) && **p != at).count();
    let struck = scene.lines.iter().filter(|(a, b)| room.clip(*a, *b).is_some()).count();
    Some(cost + 9.0 * hidden as f64 + 14.0 * struck as f64)
}

/// Names points where there is room; long names are shortened.
pub(crate) fn name_points(canvas: &mut Canvas, plot: &Rect, lines: &[(Pt, Pt)], at: &[Pt], names: &[&str]) {
    let texts: Vec<String> = names.iter().map(|name| text::fit(name, TICK, false, 80.0)).collect();
    let named: Vec<usize> = (0..texts.len().min(at.len())).filter(|i| !texts[*i].is_empty()).collect();
    let wanted: Vec<Wanted> = named
        .iter()
        .map(|i| Wanted { at: at[*i], width: fonts::width(&texts[*i], TICK, false), height: TICK * 0.85 })
        .collect();
    let scene =
        Scene { bounds: plot.grown(-1.5), blocked: &[], points: at, rivals: at, lines, radius: 2.8, small: 2.8 };
    for (i, placed) in named.iter().zip(place(&wanted, &scene)) {
        if let Some(placed) = placed {
            if let Some((from, to)) = placed.leader {
                canvas.leader(from, to, MID);
            }
            canvas.text_mid(&texts[*i], placed.rect.center(), Look::new(TICK).align(Align::Middle));
        }
    }
}

/// How far a point is from a segment.
pub(crate) fn from_segment(point: Pt, a: Pt, b: Pt) -> f64 {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let square = dx * dx + dy * dy;
    let share = if square > 0.0 { ((point.0 - a.0) * dx + (point.1 - a.1) * dy) / square } else { 0.0 };
    let share = share.clamp(0.0, 1.0);
    (point.0 - a.0 - share * dx).hypot(point.1 - a.1 - share * dy)
}

/// Whether two segments cross.
pub(crate) fn cross(a: (Pt, Pt), b: (Pt, Pt)) -> bool {
    let side = |(p, q): (Pt, Pt), r: Pt| (q.0 - p.0) * (r.1 - p.1) - (q.1 - p.1) * (r.0 - p.0);
    side(a, b.0) * side(a, b.1) < 0.0 && side(b, a.0) * side(b, a.1) < 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(points: &[Pt]) -> Scene<'_> {
        Scene {
            bounds: Rect::at(0.0, 0.0, 200.0, 120.0),
            blocked: &[],
            points,
            rivals: points,
            lines: &[],
            radius: 3.0,
            small: 2.0,
        }
    }

    #[test]
    fn labels_stay_inside_and_apart() {
        let points: Vec<Pt> = (0..12).map(|i| (2.0 + f64::from(i) * 7.0, 2.0 + f64::from(i % 3))).collect();
        let wanted: Vec<Wanted> = points.iter().map(|p| Wanted { at: *p, width: 9.0, height: 6.0 }).collect();
        let placed: Vec<Placed> = place(&wanted, &scene(&points)).into_iter().flatten().collect();
        assert!(placed.len() >= 8, "{}", placed.len());
        for (i, one) in placed.iter().enumerate() {
            assert!(scene(&points).bounds.contains(&one.rect));
            assert!(placed[..i].iter().all(|other| !other.rect.overlaps(&one.rect)));
        }
    }

    #[test]
    fn a_lone_label_needs_no_leader() {
        let wanted = [Wanted { at: (100.0, 60.0), width: 30.0, height: 7.0 }];
        let placed = place(&wanted, &scene(&[(100.0, 60.0)]));
        assert!(placed[0].is_some_and(|p| p.leader.is_none()));
    }

    #[test]
    fn no_room_gives_none() {
        let wanted = [Wanted { at: (100.0, 60.0), width: 300.0, height: 7.0 }];
        assert_eq!(place(&wanted, &scene(&[])), vec![None]);
    }

    #[test]
    fn segments_cross() {
        assert!(cross(((0.0, 0.0), (2.0, 2.0)), ((0.0, 2.0), (2.0, 0.0))));
        assert!(!cross(((0.0, 0.0), (1.0, 1.0)), ((2.0, 0.0), (3.0, 0.0))));
    }
}
