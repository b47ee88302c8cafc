//! Stretches of time in which something runs.

/// Joins intervals that touch or overlap; the result is sorted.
pub(super) fn merged(mut intervals: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    intervals.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut out: Vec<(f64, f64)> = Vec::new();
    for (start, end) in intervals {
        match out.last_mut().filter(|l| start <= l.1) {
            Some(last) => last.1 = last.1.max(end),
            None => out.push((start, end)),
        }
    }
    out
}

/// Their length.
pub(super) fn length(merged: &[(f64, f64)]) -> f64 {
    merged.iter().map(|i| i.1 - i.0).sum()
}

/// For sorted, disjoint intervals of several kinds: the time in which exactly some kinds run, by bit mask; index 0 is unused.
pub(super) fn together(kinds: &[Vec<(f64, f64)>]) -> Vec<f64> {
    let mut points: Vec<(f64, usize, bool)> = Vec::new();
    for (bit, list) in kinds.iter().enumerate() {
        points.extend(list.iter().flat_map(|i| [(i.0, bit, true), (i.1, bit, false)]));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut out = vec![0.0; 1 << kinds.len()];
    let (mut running, mut since) = (vec![0i64; kinds.len()], 0.0);
    for (time, bit, begins) in points {
        let mask: usize = running.iter().enumerate().filter(|(_, n)| **n > 0).map(|(b, _)| 1 << b).sum();
        out[mask] += time - since;
        running[bit] += if begins { 1 } else { -1 };
        since = time;
    }
    out[0] = 0.0;
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_by_hand() {
        let a = merged(vec![(4.0, 6.0), (0.0, 2.0), (2.0, 3.0)]);
        assert_eq!(a, [(0.0, 3.0), (4.0, 6.0)]);
        assert_eq!(length(&a), 5.0);
        // 0-3 and 4-6 against 1-5: alone 0-1 and 5-6; together 1-3 and 4-5; the other alone 3-4.
        assert_eq!(together(&[a, vec![(1.0, 5.0)]]), [0.0, 2.0, 1.0, 3.0]);
    }
}
