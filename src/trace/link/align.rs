//! Longest common subsequence of two lists: Myers' O(ND) difference in linear space (E. W. Myers, "An O(ND) difference algorithm and
//! its variations", Algorithmica 1, 1986, section 4b). Two lists that differ beyond measure are cut where the search got furthest,
//! so that time stays bounded; the alignment is then no longer the longest.

/// Differences looked at in one piece before it is cut: bounds the work on lists that have little in common.
const MOST_DIFFERENCES: usize = 4096;

/// Pairs of places in `a` and `b` with equal items, ascending in both.
pub fn align(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    // Pieces still to do; the last is done first, so that pairs come out in order.
    let mut pieces = vec![(0, a.len(), 0, b.len())];
    let mut reach = Vec::new();
    while let Some((mut a0, mut a1, mut b0, mut b1)) = pieces.pop() {
        while a0 < a1 && b0 < b1 && a.get(a0) == b.get(b0) {
            pairs.push((a0, b0));
            a0 += 1;
            b0 += 1;
        }
        // What is equal at the end becomes a piece of its own, done after the middle.
        let (end_a, end_b) = (a1, b1);
        while a0 < a1 && b0 < b1 && a.get(a1 - 1) == b.get(b1 - 1) {
            a1 -= 1;
            b1 -= 1;
        }
        if a1 < end_a {
            pieces.push((a1, end_a, b1, end_b));
        }
        if a0 == a1 || b0 == b1 {
            continue;
        }
        let (x, y) = middle(a.get(a0..a1).unwrap_or_default(), b.get(b0..b1).unwrap_or_default(), &mut reach);
        pieces.push((a0 + x, a1, b0 + y, b1));
        pieces.push((a0, a0 + x, b0, b0 + y));
    }
    pairs
}

/// A point that an optimal path from the upper left to the lower right corner passes, neither corner itself. The first items differ,
/// and so do the last; neither list is empty.
fn middle(a: &[u32], b: &[u32], reach: &mut Vec<isize>) -> (usize, usize) {
    let (n, m) = (a.len() as isize, b.len() as isize);
    let delta = n - m;
    let odd = delta % 2 != 0;
    let width = ((n + m + 1) / 2).min(MOST_DIFFERENCES as isize) + 2;
    let size = (2 * width + 1) as usize;
    // Furthest x on each diagonal, from the front and from the back.
    reach.clear();
    reach.resize(2 * size, -1);
    let (front, back) = reach.split_at_mut(size);
    let at = |k: isize| (k + width) as usize;
    let get = |v: &[isize], k: isize| v.get(at(k)).copied().unwrap_or(-1);
    let same = |x: isize, y: isize| a.get(x as usize) == b.get(y as usize);
    if let Some(slot) = front.get_mut(at(1)) {
        *slot = 0;
    }
    if let Some(slot) = back.get_mut(at(1)) {
        *slot = 0;
    }
    let mut best = (0isize, 0isize);
    for d in 0..width - 1 {
        let mut k = -d;
        while k <= d {
            let mut x = if k == -d || (k != d && get(front, k - 1) < get(front, k + 1)) {
                get(front, k + 1)
            } else {
                get(front, k - 1) + 1
            };
            let mut y = x - k;
            let inside = x <= n && y <= m && y >= 0;
            while inside && x < n && y < m && same(x, y) {
                x += 1;
                y += 1;
            }
            if let Some(slot) = front.get_mut(at(k)) {
                *slot = x;
            }
            if inside {
                if x + y > best.0 + best.1 {
                    best = (x, y);
                }
                let other = delta - k;
                if odd && other.abs() < d && x + get(back, other) >= n {
                    return proper(x, y, n, m);
                }
            }
            k += 2;
        }
        let mut k = -d;
        while k <= d {
            let mut x = if k == -d || (k != d && get(back, k - 1) < get(back, k + 1)) {
                get(back, k + 1)
            } else {
                get(back, k - 1) + 1
            };
            let mut y = x - k;
            let inside = x <= n && y <= m && y >= 0;
            while inside && x < n && y < m && same(n - 1 - x, m - 1 - y) {
                x += 1;
                y += 1;
            }
            if let Some(slot) = back.get_mut(at(k)) {
                *slot = x;
            }
            if inside {
                let other = delta - k;
                if !odd && other.abs() <= d && x + get(front, other) >= n {
                    return proper(n - x, m - y, n, m);
                }
            }
            k += 2;
        }
    }
    proper(best.0, best.1, n, m)
}

/// A point that makes both halves smaller than the whole.
fn proper(x: isize, y: isize, n: isize, m: isize) -> (usize, usize) {
    let (x, y) = (x.clamp(0, n), y.clamp(0, m));
    if (x, y) == (0, 0) {
        (0, 1)
    } else if (x, y) == (n, m) {
        (n as usize, (m - 1) as usize)
    } else {
        (x as usize, y as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Length of the longest common subsequence by the textbook's table.
    fn longest(a: &[u32], b: &[u32]) -> usize {
        let mut row = vec![0usize; b.len() + 1];
        for x in a {
            let mut diagonal = 0;
            for (j, y) in b.iter().enumerate() {
                let up = row[j + 1];
                row[j + 1] = if x == y { diagonal + 1 } else { up.max(row[j]) };
                diagonal = up;
            }
        }
        row[b.len()]
    }

    fn check(a: &[u32], b: &[u32]) -> usize {
        let pairs = align(a, b);
        assert!(pairs.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1), "{pairs:?}");
        assert!(pairs.iter().all(|&(i, j)| a[i] == b[j]));
        pairs.len()
    }

    #[test]
    fn the_example_of_the_paper() {
        // ABCABBA and CBABAC: longest common subsequence 4.
        assert_eq!(check(&[0, 1, 2, 0, 1, 1, 0], &[2, 1, 0, 1, 0, 2]), 4);
    }

    #[test]
    fn ends() {
        assert_eq!(check(&[], &[1]), 0);
        assert_eq!(check(&[1], &[]), 0);
        assert_eq!(check(&[1], &[2]), 0);
        assert_eq!(check(&[1, 2, 3], &[2]), 1);
        assert_eq!(check(&[7; 100], &[7; 90]), 90);
    }

    #[test]
    fn nothing_in_common_ends_in_time() {
        let a: Vec<u32> = (0..60_000).collect();
        let b: Vec<u32> = (100_000..160_000).collect();
        assert_eq!(check(&a, &b), 0);
    }

    proptest! {
        #[test]
        fn as_long_as_the_table_says(
            a in proptest::collection::vec(0u32..4, 0..40),
            b in proptest::collection::vec(0u32..4, 0..40),
        ) {
            prop_assert_eq!(check(&a, &b), longest(&a, &b));
        }
    }
}
