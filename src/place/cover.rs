//! What any division of the actors must cut at a largest load: actors covered by connected sets, at the best prices.
//!
//! What the cores hold falls into connected sets S with w(S) <= T; cut = 1/2 sum of d(S). Let each actor j have a price p_j, and let the root of a set be its first
//! actor in some order (the heaviest). Then for all prices, and all m_i >= 0 (Lagrange, for the load of the set with root i),
//!
//!   cut >= sum over j of p_j + sum over i of min(0, v_i),
//!   v_i = min over S that hold i and none before it of d(S) / 2 - p(S) + m_i (w(S) / T - 1),
//!
//! since no actor is the root of two sets, and each set counts for its own. v_i is one minimum cut: actors whose price is above m_i w_j / T are reached from the source for
//! the difference, the others reach the sink for it. Actors that every path from i reaches only beyond T are in no set with i. Prices and m climb along
//! subgradients (Polyak's step towards the best cut known; Held and Karp 1971): an actor that is in no set of negative value gets dearer, one in several
//! cheaper. They begin at p_i = w_i f_i / 2T, where the bound is that of [`super::around`], and any of them gives a bound.

use super::around::Flow;
use super::instance::Instance;
use std::time::Instant;

/// Most actors of a graph that is covered.
const MOST_ACTORS: usize = 600;
/// Arcs that all flows together look at.
const MOST_STEPS: u64 = 1_500_000_000;
/// Rounds of prices.
const ROUNDS: usize = 600;
/// Rounds without a better bound after which steps get shorter.
const PATIENCE: usize = 12;
/// Steps shorter than this share of the first end it.
const SHORTEST: f64 = 1e-3;

/// A bound of the bytes cut between parts of at most `load` ticks, no less than `begin`, whose prices by actor are given; `known` is a cut that was found.
pub(super) fn bound(
    instance: &Instance,
    ticks: &[u64],
    load: u64,
    prices: Vec<f64>,
    begin: f64,
    known: f64,
    until: Instant,
) -> f64 {
    let n = instance.n;
    let unit: f64 = instance.edges.iter().map(|e| e.bytes).sum();
    let useful = known.is_finite() && known > begin && unit > 0.0 && unit.is_finite() && load > 0;
    if n > MOST_ACTORS || !useful {
        return begin;
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|i| std::cmp::Reverse(ticks[*i]));
    let mut place = vec![0; n];
    order.iter().enumerate().for_each(|(at, i)| place[*i] = at);
    // The source is one node more; its arcs have a capacity for each flow.
    let ends = instance.edges.iter().map(|e| (e.from, e.to)).chain((0..n).map(|j| (n, j))).collect::<Vec<_>>();
    let half =
        instance.edges.iter().map(|e| 0.5 * e.bytes / unit).chain(std::iter::repeat_n(0.0, n)).collect::<Vec<_>>();
    let mut flow = Flow::new(n + 1, &ends, &half);
    let weight: Vec<f64> = ticks.iter().map(|t| *t as f64 / load as f64).collect();
    // Actors that may share a set with each root.
    let padded: Vec<u64> = ticks.iter().copied().chain([u64::MAX / 2]).collect();
    let near: Vec<Vec<bool>> = (0..n)
        .map(|i| {
            flow.surround(i, &padded, load);
            (0..n).map(|j| flow.near(j) <= load && place[j] >= place[i]).collect()
        })
        .collect();
    let mut price: Vec<f64> = prices.iter().map(|p| p / unit).collect();
    // What a full load costs at an actor's own price.
    let mut m: Vec<f64> = price.iter().zip(&weight).map(|(p, w)| if *w > 0.0 { p / w } else { 0.0 }).collect();
    let (target, mut best) = (known / unit, begin / unit);
    // The bound where prices began holds for m of their own: what climbs may first fall below it.
    let (mut kept, mut top, mut share, mut since) = ((price.clone(), m.clone()), f64::NEG_INFINITY, 1.0, 0);
    'rounds: for _ in 0..ROUNDS {
        let mut value: f64 = price.iter().sum();
        let mut held = vec![0.0f64; n];
        let mut slope = vec![0.0f64; n];
        for i in (0..n).filter(|i| ticks[*i] <= load) {
            // Half a round bounds nothing.
            if Instant::now() >= until {
                break 'rounds;
            }
            let gain = |j: usize| if near[i][j] { m[i] * weight[j] - price[j] } else { f64::INFINITY };
            let v = flow.signed(i, gain) - m[i];
            if v < 0.0 {
                value += v;
                let mut inside = 0.0;
                for j in (0..n).filter(|j| flow.reached(*j)) {
                    held[j] += 1.0;
                    inside += weight[j];
                }
                slope[i] = inside - 1.0;
            }
        }
        // Sums of at most n prices: what they are rounded by is taken off.
        let scale: f64 = price.iter().map(|p| p.abs()).sum::<f64>() + 1.0;
        let safe = value - 1e-10 * scale;
        best = best.max(safe);
        if safe > top + 1e-6 * target {
            (top, since) = (safe, 0);
            kept = (price.clone(), m.clone());
        } else {
            since += 1;
            if since >= PATIENCE {
                (share, since) = (share * 0.5, 0);
                (price, m) = kept.clone();
                if share < SHORTEST {
                    break;
                }
                continue;
            }
        }
        let norm: f64 =
            held.iter().map(|h| (1.0 - h) * (1.0 - h)).sum::<f64>() + slope.iter().map(|s| s * s).sum::<f64>();
        if norm == 0.0 || flow.steps() > MOST_STEPS {
            break;
        }
        let step = share * (target - value).max(0.0) / norm;
        price.iter_mut().zip(&held).for_each(|(p, h)| *p += step * (1.0 - h));
        m.iter_mut().zip(&slope).for_each(|(m, s)| *m = (*m + step * s).max(0.0));
    }
    (best * unit).max(begin)
}
