//! Order of equal keys as pandas gives it to HTA: `sort_values` is numpy's `argsort`, which is not stable, and with AVX-512 it is a
//! quicksort by vectors of eight with bitonic networks at its leaves (facebookresearch's results were made so; the algorithm is that of
//! Intel's x86-simd-sort as numpy 2 carries it, read from its sources and written here anew, checked against numpy 2.4 on random keys).
//! Which of two events at the same microsecond comes first decides whether HTA sees a queue of one or of two.

/// Lanes of a vector.
const LANES: usize = 8;
/// Up to this many keys go through a network.
const NETWORK: usize = 256;
/// Stands for a lane that holds nothing.
const EMPTY: (f64, u32) = (f64::INFINITY, u32::MAX);

type Vector = [(f64, u32); LANES];

/// Positions of the keys in rising order. Keys are finite.
pub(crate) fn argsort(keys: &[f64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    if keys.len() > 1 {
        quick(keys, &mut order, 2 * keys.len().ilog2());
    }
    order
}

fn key(keys: &[f64], at: u32) -> f64 {
    keys[at as usize]
}

fn quick(keys: &[f64], order: &mut [u32], levels: u32) {
    let n = order.len();
    if n <= NETWORK {
        return network(keys, order);
    }
    if levels == 0 {
        // Here numpy asks the C++ library. Only keys that are nearly all equal lead here.
        return order.sort_by(|&a, &b| key(keys, a).total_cmp(&key(keys, b)));
    }
    let apart = (n - 1) / LANES;
    let mut sample: Vec<f64> = (1..=LANES).map(|k| key(keys, order[k * apart])).collect();
    sample.sort_by(f64::total_cmp);
    let pivot = sample[LANES / 2];
    let ends = |order: &[u32]| {
        order.iter().map(|&a| key(keys, a)).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), k| (a.min(k), b.max(k)))
    };
    let (smallest, biggest) = ends(order);
    let middle = partition(keys, order, pivot);
    let (low, high) = order.split_at_mut(middle);
    if pivot != smallest {
        quick(keys, low, levels - 1);
    }
    if pivot != biggest {
        quick(keys, high, levels - 1);
    }
}

/// Moves what is below the pivot to the front, vector by vector from both ends; returns how many are below.
fn partition(keys: &[f64], order: &mut [u32], pivot: f64) -> usize {
    let below = |a: u32| key(keys, a) < pivot;
    let block = LANES * if order.len() > 8 * 4 * LANES { 4 } else { 1 };
    let (mut left, mut right) = (0, order.len());
    for _ in 0..order.len() % block {
        if below(order[left]) {
            left += 1;
        } else {
            right -= 1;
            order.swap(left, right);
        }
    }
    // The first and the last block wait until the others have made room.
    let (mut store, mut free) = (left, right);
    let mut put = |order: &mut [u32], vector: &[u32]| {
        let low = vector.iter().filter(|a| below(**a)).count();
        let (mut l, mut h) = (store, free - (vector.len() - low));
        for &a in vector {
            let slot = if below(a) { &mut l } else { &mut h };
            order[*slot] = a;
            *slot += 1;
        }
        store += low;
        free -= vector.len() - low;
        (store, free)
    };
    if right - left <= block {
        let only = order[left..right].to_vec();
        let mut at = left;
        for vector in only.chunks(LANES) {
            at = put(order, vector).0;
        }
        return at;
    }
    let first = order[left..left + block].to_vec();
    let last = order[right - block..right].to_vec();
    let (mut stored, mut freed) = (left, right);
    left += block;
    right -= block;
    while left < right {
        let from = if freed - right < left - stored {
            right -= block;
            right
        } else {
            left += block;
            left - block
        };
        let vectors = order[from..from + block].to_vec();
        for vector in vectors.chunks(LANES) {
            (stored, freed) = put(order, vector);
        }
    }
    for vector in first.chunks(LANES).chain(last.chunks(LANES)) {
        (stored, _) = put(order, vector);
    }
    stored
}

/// Compares each lane with lane `i ^ apart`; lanes in `upper` keep the greater one. Equal keys stay where they are.
fn exchange(v: &mut Vector, apart: usize, upper: u8) {
    for i in 0..LANES {
        let j = i ^ apart;
        if upper >> i & 1 == 0 && v[i].0 > v[j].0 {
            v.swap(i, j);
        }
    }
}

fn sorted(v: &mut Vector) {
    for (apart, upper) in [(1, 0xAA), (3, 0xCC), (1, 0xAA), (7, 0xF0), (2, 0xCC), (1, 0xAA)] {
        exchange(v, apart, upper);
    }
}

/// Compares two vectors lane by lane: the lesser keys go to `low`, which comes first.
fn lanewise(vectors: &mut [Vector], low: usize, high: usize) {
    let (before, after) = vectors.split_at_mut(high);
    for (a, b) in before[low].iter_mut().zip(&mut after[0]) {
        if a.0 > b.0 {
            std::mem::swap(a, b);
        }
    }
}

/// A bitonic network over as many vectors as the keys fill, a power of two.
fn network(keys: &[f64], order: &mut [u32]) {
    let count = order.len().div_ceil(LANES).max(1).next_power_of_two();
    let mut vectors: Vec<Vector> = vec![[EMPTY; LANES]; count];
    for (at, &a) in order.iter().enumerate() {
        vectors[at / LANES][at % LANES] = (key(keys, a), a);
    }
    vectors.iter_mut().for_each(sorted);
    let mut width = 2;
    while width <= count {
        for group in vectors.chunks_mut(width) {
            for i in 0..width / 2 {
                let other = width - 1 - i;
                group[other].reverse();
                lanewise(group, i, other);
                group[other].reverse();
            }
            let mut step = width / 2;
            while step >= 2 {
                for from in (0..width).step_by(step) {
                    (0..step / 2).for_each(|i| lanewise(group, from + i, from + i + step / 2));
                }
                step /= 2;
            }
            for v in group {
                for (apart, upper) in [(4, 0xF0), (2, 0xCC), (1, 0xAA)] {
                    exchange(v, apart, upper);
                }
            }
        }
        width *= 2;
    }
    let flat = vectors.iter().flatten().filter(|v| v.1 != u32::MAX);
    order.iter_mut().zip(flat).for_each(|(slot, v)| *slot = v.1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_sorted() {
        let mut state = 7u64;
        for n in (0..70).chain([255, 256, 257, 263, 300, 777, 5000]) {
            let keys: Vec<f64> = (0..n)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 40) as f64 % (1.0 + n as f64 / 2.0)
                })
                .map(f64::floor)
                .collect();
            let order = argsort(&keys);
            assert!(order.windows(2).all(|w| keys[w[0] as usize] <= keys[w[1] as usize]), "{n}");
            let mut all = order;
            all.sort_unstable();
            assert!(all.into_iter().eq(0..n as u32), "{n}");
        }
    }

    /// What numpy 2.4.6 answers on a machine with AVX-512 (`np.argsort`).
    #[test]
    fn equal_keys_stand_as_numpy_puts_them() {
        let keys: Vec<f64> = (0..40u32).map(|i| f64::from((i * i * 7 + 3 * i) % 11)).collect();
        let numpy = [
            0, 9, 11, 22, 20, 31, 33, 7, 18, 13, 29, 24, 35, 2, 15, 26, 27, 16, 5, 4, 37, 38, 10, 21, 32, 28, 36, 25,
            6, 3, 17, 14, 39, 23, 30, 12, 8, 1, 19, 34,
        ];
        assert_eq!(argsort(&keys), numpy);
        // 700 keys: one partition and two networks; the order as a number.
        let keys: Vec<f64> = (0..700u32).map(|i| f64::from((i * i * 7 + 3 * i) % 211)).collect();
        assert_eq!(argsort(&keys).iter().fold(0u64, |h, &i| (h * 31 + u64::from(i)) % 1_000_003), 972384);
    }
}
