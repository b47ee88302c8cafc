//! Layers that differ from the others at the ends: the first or the last may lack kernels that the others have (the gradient of an input that
//! nobody needs, a sum with nothing) or have more (a mask that is made once). Their kernels are laid beside those of a whole layer.

use super::assemble::Layers;
use crate::graph::{Phase, Workload};
use std::collections::HashSet;

/// FLOP of a layer that may be lacking, or more, as a share of it.
pub(super) const LIGHT: f64 = 0.05;
/// Kernels of a layer that may be lacking, or more, as a share of them.
const FEW: f64 = 0.25;
/// More kernels that are looked at than a layer has, at least.
const SLACK: usize = 8;

/// What a layer at one end is made of.
struct Found {
    slots: Vec<Option<usize>>,
    /// Kernels between those that were matched.
    more: Vec<usize>,
}

/// A layer more ahead of the first, or behind the last, if what is there is one.
pub(super) fn extended(
    whole: &Workload,
    signatures: &[usize],
    (forward, backward): (&[usize], &[usize]),
    layers: &Layers,
    ahead: bool,
) -> Option<Layers> {
    let template = layers.template()?;
    let (front, back) = template.split_at(layers.width);
    // The backward pass goes through the layers in the opposite order.
    let first = beside(whole, signatures, front, forward, &layers.of(0..layers.width), ahead);
    let second = beside(whole, signatures, back, backward, &layers.of(layers.width..template.len()), !ahead);
    let total: f64 = template.iter().map(|k| whole.kernels[*k].flop()).sum();
    let slots: Vec<Option<usize>> = first.slots.into_iter().chain(second.slots).collect();
    let missing: Vec<usize> = template.iter().zip(&slots).filter(|(_, s)| s.is_none()).map(|(k, _)| *k).collect();
    let more: Vec<usize> = first.more.into_iter().chain(second.more).collect();
    // Nothing ahead of the first layer needs the gradient of its input.
    let needed = |k: &&usize| !ahead || whole.kernels[**k].phase != Phase::BackwardInput;
    let flop = |list: &[usize]| list.iter().filter(needed).map(|k| whole.kernels[*k].flop()).fold(0.0, |a, b| a + b);
    let most = (FEW * template.len() as f64).ceil() as usize;
    let fits = flop(&missing) <= LIGHT * total
        && more.iter().map(|k| whole.kernels[*k].flop()).fold(0.0, |a, b| a + b) <= LIGHT * total
        && missing.iter().filter(needed).count() <= most
        && more.len() <= most.max(SLACK)
        && slots.iter().take(layers.width).any(Option::is_some);
    fits.then(|| layers.with(slots, more.len(), ahead))
}

/// Lays what comes before (`ahead`) or after the kernels `taken` beside those of a layer.
fn beside(
    whole: &Workload,
    signatures: &[usize],
    template: &[usize],
    order: &[usize],
    taken: &[usize],
    ahead: bool,
) -> Found {
    let none = Found { slots: vec![None; template.len()], more: Vec::new() };
    let room = template.len() + SLACK.max(template.len() / 4);
    let taken: HashSet<usize> = taken.iter().copied().collect();
    // Both lists from the layer that is there outwards.
    let window: Vec<usize> = if ahead {
        let Some(end) = order.iter().position(|k| taken.contains(k)) else { return none };
        order.iter().take(end).rev().take(room).copied().collect()
    } else {
        let Some(end) = order.iter().rposition(|k| taken.contains(k)) else { return none };
        order.iter().skip(end + 1).take(room).copied().collect()
    };
    let wanted: Vec<usize> = if ahead { template.iter().rev().copied().collect() } else { template.to_vec() };
    let total: f64 = wanted.iter().map(|k| whole.kernels[*k].flop()).sum::<f64>().max(1.0);
    let worth = |k: usize| 1.0 + wanted.len() as f64 * whole.kernels[k].flop() / total;
    // best[i][j]: of what follows from `wanted[i]` and `window[j]` on.
    let columns = window.len() + 1;
    let mut best = vec![0.0_f64; (wanted.len() + 1) * columns];
    for i in (0..wanted.len()).rev() {
        for j in (0..window.len()).rev() {
            let skip = best[(i + 1) * columns + j].max(best[i * columns + j + 1]);
            let both = if signatures[wanted[i]] == signatures[window[j]] {
                worth(wanted[i]) + best[(i + 1) * columns + j + 1]
            } else {
                0.0
            };
            best[i * columns + j] = skip.max(both);
        }
    }
    let (mut i, mut j, mut matched, mut last) = (0, 0, vec![None; wanted.len()], 0);
    while i < wanted.len() && j < window.len() {
        let here = best[i * columns + j];
        if signatures[wanted[i]] == signatures[window[j]] && here <= worth(wanted[i]) + best[(i + 1) * columns + j + 1]
        {
            matched[i] = Some(window[j]);
            (i, j) = (i + 1, j + 1);
            last = j;
        } else if best[(i + 1) * columns + j] >= best[i * columns + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    let more = window[..last].iter().filter(|k| !matched.contains(&Some(**k))).copied().collect();
    if ahead {
        matched.reverse();
    }
    Found { slots: matched, more }
}
