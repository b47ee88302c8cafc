//! The order of one thread: which node stands in which, and the sequence of starts and ends.

use super::{End, Ns};

/// A span of time on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Ns,
    pub(crate) end: Ns,
    /// Of two equal spans the one with the lower rank is the outer one.
    pub(crate) rank: u8,
    /// Whatever the caller calls it.
    pub(crate) node: u32,
}

/// A start or an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) node: u32,
    pub(crate) end: End,
    pub(crate) at: Ns,
    /// Spans open just after it.
    pub(crate) depth: u32,
}

/// Order of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Nest {
    /// Each node with its parent, outer before inner, in order of time.
    pub(crate) order: Vec<(u32, Option<u32>)>,
    /// Starts and ends in order of time.
    pub(crate) points: Vec<Point>,
}

/// Nests the spans of one thread. Spans that overlap without one holding the other are siblings.
pub(crate) fn nest(spans: Vec<Span>) -> Nest {
    let (mut order, mut points) = (Vec::with_capacity(spans.len()), Vec::with_capacity(2 * spans.len()));
    walk(spans, |node, parent| order.push((node, parent)), |point| points.push(point));
    Nest { order, points }
}

/// The same, handed on instead of held: each node with its parent, and the starts and ends.
pub(crate) fn walk(mut spans: Vec<Span>, mut node: impl FnMut(u32, Option<u32>), mut point: impl FnMut(Point)) {
    spans.sort_unstable_by(|a, b| (a.start, b.end, a.rank, a.node).cmp(&(b.start, a.end, b.rank, b.node)));
    // Open spans, the one that ends first last.
    let mut open: Vec<Span> = Vec::new();
    let close = |open: &mut Vec<Span>, until: Ns, point: &mut dyn FnMut(Point)| {
        while open.last().is_some_and(|s| s.end <= until) {
            if let Some(s) = open.pop() {
                point(Point { node: s.node, end: End::Finish, at: s.end, depth: open.len() as u32 });
            }
        }
    };
    for span in spans {
        let span = Span { end: span.end.max(span.start), ..span };
        close(&mut open, span.start, &mut point);
        let place = open.iter().rposition(|s| s.end >= span.end).map_or(0, |i| i + 1);
        let parent = place.checked_sub(1).and_then(|i| open.get(i)).map(|s| s.node);
        node(span.node, parent);
        open.insert(place, span);
        point(Point { node: span.node, end: End::Start, at: span.start, depth: open.len() as u32 });
    }
    close(&mut open, Ns::MAX, &mut point);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(node: u32, start: Ns, end: Ns) -> Span {
        Span { start, end, rank: 1, node }
    }

    #[test]
    fn inner_and_outer() {
        // 0 holds 1 and 2; 3 begins where 0 ends; 4 has the extent of 3 and is its child.
        let out = nest(vec![span(0, 0, 10), span(1, 1, 4), span(2, 4, 9), span(3, 10, 12), span(4, 10, 12)]);
        assert_eq!(out.order, [(0, None), (1, Some(0)), (2, Some(0)), (3, None), (4, Some(3))]);
        let points: Vec<(u32, End)> = out.points.iter().map(|p| (p.node, p.end)).collect();
        use End::{Finish, Start};
        let wanted = [
            (0, Start),
            (1, Start),
            (1, Finish),
            (2, Start),
            (2, Finish),
            (0, Finish),
            (3, Start),
            (4, Start),
            (4, Finish),
            (3, Finish),
        ];
        assert_eq!(points, wanted);
        assert!(out.points.windows(2).all(|w| w[0].at <= w[1].at));
    }

    #[test]
    fn overlapping_spans_are_siblings() {
        let out = nest(vec![span(0, 0, 10), span(1, 5, 15), span(2, 6, 9)]);
        assert_eq!(out.order, [(0, None), (1, None), (2, Some(0))]);
        let ends: Vec<Ns> = out.points.iter().map(|p| p.at).collect();
        assert_eq!(ends, [0, 5, 6, 9, 10, 15]);
    }
}
