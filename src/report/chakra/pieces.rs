//! Partitions cut into kernels.
//!
//! FLOP are those of each kernel's shard. What the plan has of a partition as a whole is shared out so that the sums stay what they were: DRAM
//! bytes in proportion to what each kernel moves across the partition's border (weights, gradients, tensors of other partitions, its own bytes), and
//! time in proportion to each kernel's arithmetic at its peak and its bytes, weighted as the plan's seconds of compute and DRAM.

use super::comms::{Comm, Paid};
use crate::graph::{Kernel, Phase};
use crate::model::compute::{Tiling, extra_dram_share, local, moved_bytes, shard_flop, tensor_bytes};
use crate::model::layout::{produced, required};
use crate::model::rate::Rate;
use crate::model::schedule::samples_per_pass;
use crate::plan::Plan;

/// One node of computation with its collectives.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub(super) name: String,
    pub(super) flop: u64,
    pub(super) dram_bytes: u64,
    pub(super) micros: u64,
    /// What brings it its operands.
    pub(super) before: Vec<Comm>,
    /// What passes on its results.
    pub(super) after: Vec<Comm>,
    /// A kernel that makes the gradient of a weight.
    pub(super) makes_weight_gradient: bool,
}

impl Piece {
    /// Pieces as one node of computation; none of no pieces.
    pub(super) fn sum(name: &str, pieces: Vec<Self>) -> Option<Self> {
        pieces
            .into_iter()
            .reduce(|a, b| Self {
                flop: a.flop + b.flop,
                dram_bytes: a.dram_bytes + b.dram_bytes,
                micros: a.micros + b.micros,
                before: [a.before, b.before].concat(),
                after: [a.after, b.after].concat(),
                ..a
            })
            .map(|sum| Self { name: name.to_owned(), ..sum })
    }
}

/// The kernels of partition `p`, in the order of the graph; their sums are `whole`.
///
/// # Errors
/// A partition without kernels, or kernels without a strategy: no plan that was checked has any.
pub(super) fn of_kernels(plan: &Plan, p: usize, whole: &Piece, comms: &[Paid]) -> Result<Vec<Piece>, String> {
    let (w, d, tp) = (&plan.workload, &plan.decisions, plan.figures.tp);
    let levels = w.levels();
    let mut inside: Vec<(usize, usize, &Kernel)> = (w.kernels.iter().enumerate().zip(&d.partition).zip(levels))
        .filter(|((_, q), _)| **q == p)
        .map(|(((k, kernel), _), level)| (level, k, kernel))
        .collect();
    inside.sort_by_key(|(level, k, _)| (*level, *k));
    let samples = samples_per_pass(w, &plan.system.model);
    let (rate, tiling) = (Rate::of(w, &plan.system), Tiling::new(d.tiles, &plan.system.model));
    let (mut flops, mut bytes, mut arithmetic) = (Vec::new(), Vec::new(), Vec::new());
    for (_, k, kernel) in &inside {
        let strategy = *d.sharding.get(*k).ok_or_else(|| format!("kernel {}: no strategy", kernel.name))?;
        let flop = shard_flop(kernel, &local(kernel, strategy, tp, tiling)) * samples;
        flops.push(flop);
        arithmetic.push(flop / rate.peak(kernel));
        bytes.push(border_bytes(plan, p, *k, kernel, samples));
    }
    let figures = plan.figures.partitions.get(p).ok_or_else(|| format!("partition {p}: no figures"))?;
    let (all_arithmetic, all_bytes): (f64, f64) = (arithmetic.iter().sum(), bytes.iter().sum());
    let part = |one: f64, all: f64| if all > 0.0 { one / all } else { 1.0 / inside.len().max(1) as f64 };
    let times: Vec<f64> = arithmetic
        .iter()
        .zip(&bytes)
        .map(|(a, b)| part(*a, all_arithmetic) * figures.compute_s + part(*b, all_bytes) * figures.dram_s)
        .collect();
    let shared = apportion(whole.flop, &flops)
        .into_iter()
        .zip(apportion(whole.dram_bytes, &bytes))
        .zip(apportion(whole.micros, &times));
    let pieces: Vec<Piece> = inside
        .iter()
        .zip(shared)
        .map(|((_, k, kernel), ((flop, dram_bytes), micros))| {
            let of = |ahead: bool| {
                comms.iter().filter(|c| c.kernel == *k && c.ahead == ahead).map(|c| c.comm).collect::<Vec<Comm>>()
            };
            Piece {
                name: kernel.name.clone(),
                flop,
                dram_bytes,
                micros,
                before: of(true),
                after: of(false),
                makes_weight_gradient: kernel.phase == Phase::BackwardWeight,
            }
        })
        .collect();
    if pieces.is_empty() {
        return Err(format!("partition {p}: no kernels"));
    }
    Ok(pieces)
}

/// Bytes that a kernel moves across the border of its partition on one chip, in one pass; in proportion only, for the model shares loads among readers.
fn border_bytes(plan: &Plan, p: usize, k: usize, kernel: &Kernel, samples: f64) -> f64 {
    let (w, d, tp, options) = (&plan.workload, &plan.decisions, plan.figures.tp, &plan.system.model);
    let Some(strategy) = d.sharding.get(k).copied() else { return 0.0 };
    let elsewhere = |other: usize| d.partition.get(other) != Some(&p);
    let mut sum = kernel.extra_dram_bytes * samples / extra_dram_share(kernel, strategy, tp);
    if !d.weights_on_chip {
        let (weight, gradient) = moved_bytes(kernel, strategy, tp, w.word_bytes);
        sum += weight + 2.0 * gradient;
    }
    for tensor in &w.tensors {
        let size = |layout| tensor_bytes(tensor, layout, tp, Tiling::new(d.tiles, options), w.word_bytes).0 * samples;
        if tensor.producer.is_none_or(elsewhere) {
            for u in tensor.consumers.iter().filter(|u| u.kernel == k) {
                sum += size(required(kernel, u.slot, strategy, options.layouts));
            }
        }
        if tensor.producer == Some(k) && (tensor.output || tensor.consumers.iter().any(|u| elsewhere(u.kernel))) {
            sum += size(produced(strategy, options.layouts));
        }
    }
    sum
}

/// A whole number shared out in proportion to weights, in whole numbers whose sum it is; evenly where all weights are 0.
fn apportion(total: u64, weights: &[f64]) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    let known = sum > 0.0 && sum.is_finite();
    let one = total as f64 / if known { sum } else { weights.len().max(1) as f64 };
    let (mut reached, mut given) = (0.0, 0u64);
    let mut out = Vec::with_capacity(weights.len());
    for (i, weight) in weights.iter().enumerate() {
        reached += if known { *weight } else { 1.0 };
        let until = if i + 1 == weights.len() { total } else { ((reached * one).round() as u64).clamp(given, total) };
        out.push(until - given);
        given = until;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::apportion;

    #[test]
    fn shares_sum_to_the_whole() {
        assert_eq!(apportion(10, &[1.0, 2.0, 2.0]), [2, 4, 4]);
        assert_eq!(apportion(1, &[1.0, 1.0, 1.0]), [0, 1, 0]);
        assert_eq!(apportion(7, &[0.0, 0.0]), [4, 3]);
        assert_eq!(apportion(0, &[3.0]), [0]);
        assert_eq!(apportion(u64::MAX, &[0.0, 5.0, 0.0]), [0, u64::MAX, 0]);
        assert!(apportion(5, &[]).is_empty());
    }
}
