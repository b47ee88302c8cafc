//! The part of a box that a front beats: its hypervolume.

use super::super::plot::Better;

/// Points as shares of the box between the worst and the best value of each objective: 0 is best, 1 worst. An objective in which all
/// points are equal is left out. Points without a number in every objective are `None`.
pub(super) fn in_box(columns: &[(Vec<f64>, Better)]) -> Vec<Option<Vec<f64>>> {
    let count = columns.first().map_or(0, |(values, _)| values.len());
    let turned: Vec<Vec<f64>> =
        columns.iter().map(|(values, better)| values.iter().map(|v| better.turned(*v)).collect()).collect();
    let whole: Vec<usize> = (0..count).filter(|i| turned.iter().all(|column| column[*i].is_finite())).collect();
    let spans: Vec<(usize, f64, f64)> = turned
        .iter()
        .enumerate()
        .map(|(c, column)| {
            let of = || whole.iter().map(|i| column[*i]);
            (c, of().fold(f64::INFINITY, f64::min), of().fold(f64::NEG_INFINITY, f64::max))
        })
        .filter(|(_, lo, hi)| hi > lo)
        .collect();
    let mut out = vec![None; count];
    for i in whole {
        out[i] = Some(spans.iter().map(|(c, lo, hi)| (turned[*c][i] - lo) / (hi - lo)).collect());
    }
    out
}

/// The share of the unit box that points beat: the measure of all that is worse than one of them in every coordinate. Exact, for one to
/// three coordinates: of three, slices along the last of an area in the first two.
pub(super) fn hypervolume(points: &[Vec<f64>]) -> f64 {
    match points.first().map(Vec::len) {
        None | Some(0) => 0.0,
        Some(1) => points.iter().map(|p| 1.0 - p[0]).fold(0.0, f64::max),
        Some(2) => area(points.iter().map(|p| (p[0], p[1])).collect()),
        Some(_) => {
            let mut order: Vec<&Vec<f64>> = points.iter().collect();
            order.sort_by(|a, b| a[2].total_cmp(&b[2]));
            let ends = order.iter().skip(1).map(|p| p[2]).chain([1.0]);
            let mut sum = 0.0;
            for (i, end) in ends.enumerate() {
                let depth = end - order[i][2];
                if depth > 0.0 {
                    sum += depth * area(order[..=i].iter().map(|p| (p[0], p[1])).collect());
                }
            }
            sum
        }
    }
}

fn area(mut points: Vec<(f64, f64)>) -> f64 {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (mut sum, mut lowest) = (0.0, 1.0_f64);
    for (x, y) in points {
        if y < lowest {
            sum += (1.0 - x) * (lowest - y);
            lowest = y;
        }
    }
    sum
}

/// The front so far and its hypervolume, one point after the other.
#[derive(Debug, Default)]
pub(super) struct Growth {
    front: Vec<Vec<f64>>,
    pub volume: f64,
}

impl Growth {
    /// Takes a point in; whether it is on the front so far.
    pub fn push(&mut self, point: &[f64]) -> bool {
        let beats = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a <= b);
        if self.front.iter().any(|other| beats(other, point)) {
            return false;
        }
        self.front.retain(|other| !beats(point, other));
        self.front.push(point.to_vec());
        self.volume = hypervolume(&self.front);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against counting: of a fine grid of the unit box the share that a point beats.
    #[test]
    fn volumes_are_what_counting_finds() {
        let points = |n: usize, d: usize| -> Vec<Vec<f64>> {
            (0..n).map(|i| (0..d).map(|k| ((i * 37 + k * 61 + i * i * (k + 3)) % 97) as f64 / 97.0).collect()).collect()
        };
        for (n, d) in [(1, 2), (5, 2), (12, 2), (1, 3), (6, 3), (15, 3)] {
            let points = points(n, d);
            let side = 60;
            let cells = (side as usize).pow(d as u32);
            let beaten = (0..cells)
                .filter(|cell| {
                    let at: Vec<f64> =
                        (0..d).map(|k| ((cell / 60_usize.pow(k as u32) % 60) as f64 + 0.5) / 60.0).collect();
                    points.iter().any(|p| p.iter().zip(&at).all(|(a, b)| a <= b))
                })
                .count();
            let counted = beaten as f64 / cells as f64;
            assert!((hypervolume(&points) - counted).abs() < 0.03, "{n} {d}: {} {counted}", hypervolume(&points));
        }
        assert_eq!(hypervolume(&[]), 0.0);
        assert_eq!(hypervolume(&[vec![0.0, 0.0]]), 1.0);
        assert_eq!(hypervolume(&[vec![0.5, 0.5, 0.5]]), 0.125);
    }

    #[test]
    fn it_only_grows_and_ends_at_that_of_all() {
        let all: Vec<Vec<f64>> =
            (0..40).map(|i| vec![f64::from(i * 7 % 41) / 41.0, f64::from(i * 13 % 43) / 43.0]).collect();
        let mut growth = Growth::default();
        for point in &all {
            let before = growth.volume;
            assert_eq!(growth.push(point), growth.volume > before);
        }
        assert!((growth.volume - hypervolume(&all)).abs() < 1e-12);
    }
}
