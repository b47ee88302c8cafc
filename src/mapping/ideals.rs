//! The ideals of a graph: sets of kernels that contain every predecessor of their members.
//!
//! A graph with many kernels that nothing waits for has very many: with a backward pass of L layers, each followed by an
//! update of weights that may be put off, 2^L. Of such a graph the ideals are listed in which these leaves run in turn, each
//! up to a window ahead of its turn: of equal layers nothing is lost by that. Where there are still too many, all kernels
//! run in turn within a window. Either is a part of all, so that a plan found there is a plan, but not proven the best.

use super::instance::Instance;

/// Most ideals for a proof.
pub const MAX_IDEALS: usize = 20_000;

/// Most ideals of a part that proves nothing.
const MAX_PARTIAL: usize = 4_000;

/// How far ahead of their turn kernels may run in such a part: the most that [`MAX_PARTIAL`] allows.
const WINDOWS: [usize; 6] = [16, 12, 8, 5, 3, 1];

/// A kernel that may join an ideal, and the ideal that it makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The kernel.
    pub kernel: usize,
    /// Its position in one topological order, the same for all ideals.
    pub rank: usize,
    /// The larger ideal.
    pub to: usize,
}

/// The ideals of an instance, ascending in size.
#[derive(Debug, Clone)]
pub struct Ideals {
    /// Each a bit set of kernels.
    pub sets: Vec<u128>,
    /// Whether these are all.
    pub complete: bool,
    /// Steps of all ideals, one after the other, each ideal's ascending in rank.
    steps: Vec<Step>,
    /// Where the steps of each ideal begin; one more entry for the end.
    first: Vec<usize>,
    /// A step that leads to each ideal but the empty one; its `to` is the smaller ideal.
    made_by: Vec<Step>,
    /// The topological order.
    pub(super) order: Vec<usize>,
}

impl Ideals {
    /// Lists the ideals of a graph, at most `limit`. With `separate_phases` all forward kernels run before any
    /// backward one. Of a graph with more, a part that contains one whole topological order.
    pub fn of(instance: &Instance, limit: usize) -> Option<Self> {
        if instance.kernels.len() > 128 {
            return None;
        }
        let before = predecessors(instance);
        let order = topological(&before);
        if let Some(all) = Self::list(&before, &order, limit) {
            return Some(all);
        }
        let limit = limit.min(MAX_PARTIAL);
        let leaves = leaves(&before, &order);
        let in_turn = WINDOWS.iter().map(|window| ordered(&before, &leaves, *window));
        let band = WINDOWS.iter().map(|window| ordered(&before, &order, *window));
        let partial = in_turn.chain(band).find_map(|before| Self::list(&before, &order, limit));
        Some(partial.map_or_else(|| Self::of_order(order), |part| Self { complete: false, ..part }))
    }

    /// The ideals under an order relation, of which `order` is a linear one; `None` when they are more than `limit`.
    fn list(before: &[u128], order: &[usize], limit: usize) -> Option<Self> {
        let mut sets = vec![0u128];
        let mut steps: Vec<Step> = Vec::new();
        let mut first = vec![0];
        let mut made_by = vec![Step { kernel: 0, rank: 0, to: 0 }];
        let mut layer = 0..1;
        while !layer.is_empty() {
            let mut next: Vec<u128> = Vec::new();
            for &set in &sets[layer.clone()] {
                let ready = order.iter().enumerate().filter(|(_, k)| set & (1 << **k) == 0 && before[**k] & !set == 0);
                for (rank, &kernel) in ready {
                    next.push(set | (1 << kernel));
                    steps.push(Step { kernel, rank, to: 0 });
                }
                first.push(steps.len());
            }
            next.sort_unstable();
            next.dedup();
            if sets.len() + next.len() > limit {
                return None;
            }
            made_by.resize(sets.len() + next.len(), Step { kernel: 0, rank: 0, to: 0 });
            for i in layer.clone() {
                for step in &mut steps[first[i]..first[i + 1]] {
                    let larger = sets[i] | (1 << step.kernel);
                    step.to = layer.end + next.partition_point(|s| *s < larger);
                    made_by[step.to] = Step { to: i, ..*step };
                }
            }
            sets.extend_from_slice(&next);
            layer = layer.end..sets.len();
        }
        Some(Self { sets, complete: true, steps, first, made_by, order: order.to_vec() })
    }

    /// The ideals of one topological order.
    fn of_order(order: Vec<usize>) -> Self {
        let mut sets = vec![0u128];
        let mut set = 0;
        for &k in &order {
            set |= 1 << k;
            sets.push(set);
        }
        let steps = order.iter().enumerate().map(|(rank, kernel)| Step { kernel: *kernel, rank, to: rank + 1 });
        let steps: Vec<Step> = steps.collect();
        let first = (0..=order.len()).chain([order.len()]).collect();
        let origin = Step { kernel: 0, rank: 0, to: 0 };
        let made_by = std::iter::once(origin).chain(steps.iter().map(|s| Step { to: s.to - 1, ..*s })).collect();
        Self { sets, complete: false, steps, first, made_by, order }
    }

    /// The ideals of the topological order that ranks go by.
    pub fn one_order(&self) -> Self {
        Self::of_order(self.order.clone())
    }

    /// The kernel that was added last to an ideal other than the empty one, and the ideal before.
    pub(super) fn made_by(&self, ideal: usize) -> (usize, usize) {
        let step = &self.made_by[ideal];
        (step.kernel, step.to)
    }

    /// The kernels that may join an ideal, ascending in rank.
    pub fn steps(&self, ideal: usize) -> &[Step] {
        &self.steps[self.first[ideal]..self.first[ideal + 1]]
    }
}

/// The kernels that nothing waits for, in the order of their ranks: updates of weights, results.
fn leaves(before: &[u128], order: &[usize]) -> Vec<usize> {
    let waited_for = before.iter().fold(0u128, |all, set| all | set);
    order.iter().copied().filter(|k| waited_for & (1 << *k) == 0).collect()
}

/// `before`, and each kernel of a list also after those that stand `window` places or more ahead of it there.
fn ordered(before: &[u128], list: &[usize], window: usize) -> Vec<u128> {
    let mut out = before.to_vec();
    for (i, k) in list.iter().enumerate().skip(window) {
        out[*k] |= 1 << list[i - window];
        // Of those further ahead each is before one that is.
        if let Some(earlier) = i.checked_sub(window + 1) {
            out[*k] |= list[..=earlier].iter().fold(0u128, |set, e| set | 1 << *e);
        }
    }
    out
}

/// The kernels that must run before each kernel, directly.
fn predecessors(instance: &Instance) -> Vec<u128> {
    let n = instance.kernels.len();
    let mut before = vec![0u128; n];
    for tensor in &instance.tensors {
        if let Some(p) = tensor.producer {
            for u in &tensor.uses {
                before[u.kernel] |= 1 << p;
            }
        }
    }
    if instance.separate_phases {
        let forward: u128 = (0..n).filter(|k| !instance.kernels[*k].backward).fold(0, |set, k| set | (1u128 << k));
        for (k, set) in before.iter_mut().enumerate() {
            if instance.kernels[k].backward {
                *set |= forward;
            }
        }
    }
    before
}

/// Of the kernels that are ready the first goes next; a circle's kernels are left out.
fn topological(before: &[u128]) -> Vec<usize> {
    let mut set = 0u128;
    let mut order = Vec::with_capacity(before.len());
    for _ in 0..before.len() {
        let Some(k) = (0..before.len()).find(|k| set & (1 << k) == 0 && before[*k] & !set == 0) else { break };
        set |= 1 << k;
        order.push(k);
    }
    order
}
