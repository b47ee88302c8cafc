//! A bound for wide graphs on chips whose SRAM holds few kernels at a time: the kernels are covered by partitions, whose order is
//! left open.
//!
//! A *piece* is a set of kernels that hang together by tensors (one makes what the other reads, or both read the same) and
//! that no path leaves and enters again. Every partition is a union of pieces that share no tensor and of which none
//! waits for another, so that its arithmetic, traffic, collectives and SRAM are the sums of theirs. Where few kernels fit the
//! SRAM at once, all pieces of a graph can be listed. Then
//!
//! ```text
//! most   sum over kernels k of  l_k
//!        sum over the kernels of Q of l_k  <=  value of Q     for every union Q of pieces that fits the SRAM
//!        l_k >= 0
//! ```
//!
//! bounds every plan from below: it pays l_k or more for each kernel. Kernels that must be alone pay what they cost.
//!
//! Equal kernels (of repeated layers) get one price l: *colours* are kernels of equal cost among neighbours of equal cost. That
//! restricts l, so that what is found bounds all the same, and makes pieces of different layers the same piece. Whether
//! two pieces may share a partition is asked of colours: not, where no kernel of the one colour runs beside one of the other.
//!
//! The unions are not listed. From a few of them an LP proposes prices; the search over unions finds those that break the rule and
//! the factor by which the prices must be lowered to keep it, which gives a bound at every step (Farley).
//!
//! Not in the relaxation: the order of the partitions, limits of waiting tensors (DRAM capacity), whole numbers of partitions.

mod prices;

use self::prices::Pricing;
use super::instance::{CAPACITY_TOLERANCE, Instance, PartitionCost, longest_lag};
use super::relaxed::fluid_s;
use crate::deadline::Deadline;
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;

/// Most colours, a multiple of 64.
const MOST_COLOURS: usize = 256;
/// Rounds in which colours are refined by their neighbours.
const REFINED: usize = 2;
/// Most sets looked at while pieces are listed, and more for each kernel; most pieces that differ.
const MOST_SETS: usize = 30_000;
const SETS_A_KERNEL: usize = 100;
const MOST_PIECES: usize = 1_500;
/// Most pairs of kernels that share a tensor, of 8 bytes each.
const MOST_PAIRS: usize = 10_000_000;

type Colours = [u64; MOST_COLOURS / 64];

/// A piece, without what belongs to the partition.
#[derive(Debug, Clone, PartialEq)]
struct Piece {
    /// How many kernels of each colour.
    kernels: Vec<(usize, u32)>,
    /// Seconds of arithmetic, whatever the cores that kernels are given; and with the best split of them.
    fluid_s: f64,
    compute_s: f64,
    dram_bytes: f64,
    network_s: f64,
    serial_s: f64,
    sram_bytes: f64,
    /// Part of a pass by which its last kernel begins after the first.
    lag: f64,
    /// Colours in it, and colours that may run beside it.
    own: Colours,
    beside: Colours,
}

/// A bound on the sum over the partitions, given the value of a plan, that is not above `upper`; `None` where the pieces are too many.
pub fn bound(instance: &Instance, upper: f64, deadline: Deadline) -> Option<f64> {
    prices(instance, upper, deadline).map(|prices| prices.iter().sum::<f64>().min(upper))
}

/// A price of each kernel such that no partition holds more than it costs: their sum is the bound.
pub fn prices(instance: &Instance, upper: f64, deadline: Deadline) -> Option<Vec<f64>> {
    if !upper.is_finite() || upper <= 0.0 || instance.kernel_by_kernel || !instance.sram_bytes.is_finite() {
        return None;
    }
    let graph = Graph::of(instance)?;
    let mut prices = vec![0.0; instance.kernels.len()];
    for k in (0..prices.len()).filter(|k| instance.kernels[*k].pieces > 1) {
        prices[k] = instance.value(&graph.cost(&[k])?);
    }
    let loners: f64 = prices.iter().sum();
    let (colour, counts) = colours(&graph)?;
    if counts.is_empty() || loners >= upper {
        return Some(prices);
    }
    let pieces = graph.pieces(&colour, counts.len(), deadline)?;
    let of_colour = Pricing::new(instance, pieces, counts, deadline).raise(upper - loners)?;
    for (price, colour) in prices.iter_mut().zip(&colour) {
        *price += of_colour.get(*colour).copied().unwrap_or(0.0);
    }
    Some(prices)
}

/// Neighbours and ancestry of the kernels.
struct Graph<'a> {
    instance: &'a Instance,
    /// Whether pipelines of tiles fill.
    fills: bool,
    /// Tensors that each kernel makes or reads.
    tensors: Vec<Vec<usize>>,
    /// Kernels that share a tensor with each, but those that must be alone.
    near: Vec<Vec<usize>>,
    /// Kernels before and after each, as bit sets.
    before: Vec<Vec<u64>>,
    after: Vec<Vec<u64>>,
}

fn put(set: &mut [u64], k: usize) {
    set[k / 64] |= 1 << (k % 64);
}

fn has(set: &[u64], k: usize) -> bool {
    set[k / 64] & (1 << (k % 64)) != 0
}

impl<'a> Graph<'a> {
    /// `None` where too many kernels share tensors: all pairs of them are listed.
    fn of(instance: &'a Instance) -> Option<Self> {
        let n = instance.kernels.len();
        let pairs: usize = instance.tensors.iter().map(|t| (t.uses.len() + 1).pow(2)).sum();
        if pairs > MOST_PAIRS {
            return None;
        }
        let words = n.div_ceil(64).max(1);
        let mut tensors = vec![Vec::new(); n];
        let mut near = vec![Vec::new(); n];
        let mut next = vec![Vec::new(); n];
        for (t, tensor) in instance.tensors.iter().enumerate() {
            let mut around: Vec<usize> =
                tensor.producer.into_iter().chain(tensor.uses.iter().map(|u| u.kernel)).collect();
            around.sort_unstable();
            around.dedup();
            around.iter().for_each(|k| tensors[*k].push(t));
            if let Some(p) = tensor.producer {
                next[p].extend(tensor.uses.iter().map(|u| u.kernel));
            }
            around.retain(|k| instance.kernels[*k].pieces == 1);
            for &k in &around {
                near[k].extend(around.iter().copied().filter(|other| *other != k));
            }
        }
        for list in near.iter_mut().chain(&mut next) {
            list.sort_unstable();
            list.dedup();
        }
        let mut after = vec![vec![0u64; words]; n];
        let mut before = vec![vec![0u64; words]; n];
        // Kernels are in a topological order.
        for k in (0..n).rev() {
            for &reader in &next[k] {
                let (own, others) = after.split_at_mut(reader);
                own[k].iter_mut().zip(&others[0]).for_each(|(a, b)| *a |= b);
                put(&mut own[k], reader);
            }
        }
        for k in 0..n {
            for &reader in &next[k] {
                let (own, others) = before.split_at_mut(reader);
                others[0].iter_mut().zip(&own[k]).for_each(|(a, b)| *a |= b);
                put(&mut others[0], k);
            }
        }
        Some(Self { instance, fills: instance.fills(), tensors, near, before, after })
    }

    /// [`Instance::partition`] of a set that no path leaves and enters again.
    fn cost(&self, members: &[usize]) -> Option<PartitionCost> {
        let mut cost = self.instance.without_tensors(members)?;
        let mut touched: Vec<usize> = members.iter().flat_map(|k| self.tensors[*k].iter().copied()).collect();
        touched.sort_unstable();
        touched.dedup();
        let mut lags = Vec::new();
        for t in touched {
            let tensor = &self.instance.tensors[t];
            let here = tensor.producer.is_some_and(|p| members.contains(&p));
            let (mut load, mut buffer, mut elsewhere): (f64, f64, bool) = (0.0, 0.0, false);
            for u in &tensor.uses {
                match (members.contains(&u.kernel), here) {
                    (true, true) => {
                        buffer = buffer.max(u.onchip_buffer);
                        lags.extend(tensor.producer.filter(|_| self.fills).map(|p| (p, u.kernel, u.lag)));
                    }
                    (true, false) => {
                        load = load.max(u.load_bytes);
                        buffer = buffer.max(u.load_buffer);
                    }
                    (false, _) => elsewhere = true,
                }
            }
            cost.dram_bytes += load;
            if here && (tensor.output || elsewhere) {
                cost.dram_bytes += tensor.store_bytes;
                buffer = buffer.max(tensor.store_buffer);
            }
            cost.sram_bytes += buffer;
        }
        cost.dram_s = cost.dram_bytes / self.instance.dram_bytes_per_s;
        cost.lag = longest_lag(lags);
        Some(cost)
    }

    /// SRAM that any partition with these kernels needs: an on-chip buffer may be smaller than that of a load.
    fn least_sram(&self, members: &[usize]) -> f64 {
        let instance = self.instance;
        let mut bytes = instance.base_sram_bytes;
        let mut buffers: Vec<(usize, f64)> = Vec::new();
        for &k in members {
            bytes += instance.kernels[k].resident_bytes;
            for &t in &self.tensors[k] {
                let tensor = &instance.tensors[t];
                let mut own: f64 = if tensor.output && tensor.producer == Some(k) { tensor.store_buffer } else { 0.0 };
                for u in tensor.uses.iter().filter(|u| u.kernel == k) {
                    let least = if tensor.producer.is_some() { u.onchip_buffer } else { f64::INFINITY };
                    own = own.max(u.load_buffer.min(least));
                }
                buffers.push((t, own));
            }
        }
        buffers.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        buffers.dedup_by_key(|b| b.0);
        bytes + buffers.iter().map(|b| b.1).sum::<f64>()
    }

    fn fits(&self, bytes: f64) -> bool {
        bytes <= self.instance.sram_bytes * (1.0 + 2.0 * CAPACITY_TOLERANCE)
    }

    /// The kernels of a set, ascending, and all on paths between them, without which no partition has the set.
    fn closed(&self, members: &[usize]) -> Vec<usize> {
        let mut out = members.to_vec();
        let (low, high) = members.iter().fold((usize::MAX, 0), |(low, high), k| (low.min(*k), high.max(*k)));
        // A path goes up in the topological order.
        for w in low / 64..=high / 64 {
            let of = |sets: &[Vec<u64>]| members.iter().fold(0, |all, k| all | sets[*k][w]);
            let mut between = of(&self.before) & of(&self.after);
            while between != 0 {
                out.push(w * 64 + between.trailing_zeros() as usize);
                between &= between - 1;
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Every piece that fits the SRAM, those of equal colours and cost once. `None` where they are too many.
    fn pieces(&self, colour: &[usize], colours: usize, deadline: Deadline) -> Option<Vec<Piece>> {
        let beside = self.beside(colour, colours);
        let n = colour.len();
        let mut found = Found { colour, beside, pieces: Vec::new(), known: HashSet::new(), sets: 0, deadline };
        let mut reached = vec![false; n];
        for anchor in (0..n).filter(|k| self.instance.kernels[*k].pieces == 1) {
            let mut members = vec![anchor];
            reached[anchor] = true;
            let ahead: Vec<usize> = self.near[anchor].iter().copied().filter(|k| *k > anchor).collect();
            ahead.iter().for_each(|k| reached[*k] = true);
            self.grow(&mut members, ahead.clone(), &mut reached, &mut found)?;
            ahead.iter().chain(&[anchor]).for_each(|k| reached[*k] = false);
        }
        Some(found.pieces)
    }

    /// Takes in each of the kernels ahead (near the set, beyond its first one), so that every connected set is met once.
    fn grow(
        &self,
        members: &mut Vec<usize>,
        mut ahead: Vec<usize>,
        reached: &mut [bool],
        found: &mut Found<'_>,
    ) -> Option<()> {
        found.sets += 1;
        // A set of a wide graph costs much more than a look at the clock.
        if found.sets > MOST_SETS + SETS_A_KERNEL * reached.len() || found.deadline.is_over() {
            return None;
        }
        let closed = self.closed(members);
        let fits = closed.iter().all(|k| self.instance.kernels[*k].pieces == 1) && self.fits(self.least_sram(&closed));
        if !fits {
            return Some(());
        }
        if closed.len() == members.len() {
            // In their order, so that equal pieces have equal sums.
            found.take(self, &closed)?;
        }
        while let Some(next) = ahead.pop() {
            members.push(next);
            let first = members[0];
            let newly: Vec<usize> = self.near[next].iter().copied().filter(|k| *k > first && !reached[*k]).collect();
            newly.iter().for_each(|k| reached[*k] = true);
            let further = ahead.iter().chain(&newly).copied().collect();
            self.grow(members, further, reached, found)?;
            newly.iter().for_each(|k| reached[*k] = false);
            members.pop();
        }
        Some(())
    }

    /// Of each colour those of which some kernel runs beside one of it: neither waits for the other.
    fn beside(&self, colour: &[usize], colours: usize) -> Vec<Colours> {
        let words = self.before.first().map_or(0, Vec::len);
        let mut members = vec![vec![0u64; words]; colours];
        colour.iter().enumerate().filter(|(_, c)| **c < colours).for_each(|(k, c)| put(&mut members[*c], k));
        let mut out = vec![[0u64; MOST_COLOURS / 64]; colours];
        for (k, c) in colour.iter().enumerate().filter(|(_, c)| **c < colours) {
            for (other, set) in members.iter().enumerate() {
                if has(&out[*c], other) {
                    continue;
                }
                let alone = (0..words).any(|w| {
                    let own = if k / 64 == w { 1 << (k % 64) } else { 0 };
                    set[w] & !(self.before[k][w] | self.after[k][w] | own) != 0
                });
                if alone {
                    put(&mut out[*c], other);
                }
            }
        }
        out
    }
}

/// Kernels of each colour, and the numbers of their costs: equal pieces have equal kinds.
type Kind = (Vec<(usize, u32)>, [u64; 7]);

/// Pieces as they are found.
struct Found<'a> {
    colour: &'a [usize],
    beside: Vec<Colours>,
    pieces: Vec<Piece>,
    known: HashSet<Kind>,
    sets: usize,
    deadline: Deadline,
}

impl Found<'_> {
    fn take(&mut self, graph: &Graph<'_>, members: &[usize]) -> Option<()> {
        let instance = graph.instance;
        // No split of the cores serves it: no partition has it.
        let Some(cost) = graph.cost(members) else { return Some(()) };
        if !graph.fits(cost.sram_bytes) {
            return Some(());
        }
        let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
        members.iter().for_each(|k| *counts.entry(self.colour[*k]).or_default() += 1);
        let kernels: Vec<(usize, u32)> = counts.into_iter().collect();
        let (mut own, mut beside) = ([0; MOST_COLOURS / 64], [u64::MAX; MOST_COLOURS / 64]);
        for (c, _) in &kernels {
            put(&mut own, *c);
            beside.iter_mut().zip(&self.beside[*c]).for_each(|(all, one)| *all &= one);
        }
        let piece = Piece {
            kernels,
            fluid_s: members.iter().map(|k| fluid_s(instance, *k)).sum(),
            compute_s: cost.compute_s,
            dram_bytes: cost.dram_bytes,
            network_s: cost.network_s,
            serial_s: cost.serial_s - instance.partition_overhead_s,
            sram_bytes: cost.sram_bytes - instance.base_sram_bytes,
            lag: cost.lag,
            own,
            beside,
        };
        let p = &piece;
        let numbers = [p.fluid_s, p.compute_s, p.dram_bytes, p.network_s, p.serial_s, p.sram_bytes, p.lag];
        if self.known.insert((piece.kernels.clone(), numbers.map(f64::to_bits))) {
            self.pieces.push(piece);
        }
        (self.pieces.len() <= MOST_PIECES).then_some(())
    }
}

/// The colour of each kernel (of those that must be alone: none, written as the number of colours) and how many there are of each.
fn colours(graph: &Graph<'_>) -> Option<(Vec<usize>, Vec<f64>)> {
    let instance = graph.instance;
    let n = instance.kernels.len();
    let hasher = foldhash::fast::FixedState::default();
    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
    let mut now: Vec<u64> = (0..n)
        .map(|k| {
            let kernel = &instance.kernels[k];
            let own =
                [fluid_s(instance, k), kernel.network_s, kernel.serial_s, kernel.resident_bytes, kernel.dram_bytes];
            hasher.hash_one((bits(&own), kernel.pieces))
        })
        .collect();
    let distinct = |now: &[u64]| {
        let mut all: Vec<u64> = (0..n).filter(|k| instance.kernels[*k].pieces == 1).map(|k| now[k]).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    for _ in 0..REFINED {
        let around = |t: usize| {
            let tensor = &instance.tensors[t];
            // What is never passed on chip has no buffer there.
            let made = tensor.producer.filter(|p| instance.kernels[*p].pieces == 1).map(|p| now[p]);
            let mut readers: Vec<(u64, Vec<u64>)> = tensor
                .uses
                .iter()
                .map(|u| {
                    let onchip = if made.is_some() { u.onchip_buffer } else { 0.0 };
                    (now[u.kernel], bits(&[u.load_bytes, u.load_buffer, onchip]))
                })
                .collect();
            readers.sort_unstable();
            hasher.hash_one((made, tensor.output, bits(&[tensor.store_bytes, tensor.store_buffer]), readers))
        };
        let around: Vec<u64> = (0..instance.tensors.len()).map(around).collect();
        let refined: Vec<u64> = (0..n)
            .map(|k| {
                let role = |t: usize| {
                    let tensor = &instance.tensors[t];
                    let reads = tensor.uses.iter().filter(|u| u.kernel == k).count();
                    (tensor.producer == Some(k), reads)
                };
                let mut list: Vec<(u64, (bool, usize))> =
                    graph.tensors[k].iter().map(|t| (around[*t], role(*t))).collect();
                list.sort_unstable();
                hasher.hash_one((now[k], list))
            })
            .collect();
        if distinct(&refined).len() > MOST_COLOURS {
            break;
        }
        now = refined;
    }
    let all = distinct(&now);
    if all.len() > MOST_COLOURS {
        return None;
    }
    let mut counts = vec![0.0; all.len()];
    let colour = (0..n)
        .map(|k| match all.binary_search(&now[k]) {
            Ok(c) if instance.kernels[k].pieces == 1 => {
                counts[c] += 1.0;
                c
            }
            _ => all.len(),
        })
        .collect();
    Some((colour, counts))
}
