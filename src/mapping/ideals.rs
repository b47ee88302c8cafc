//! The ideals of a graph: sets of kernels that contain every predecessor of their members.

use super::instance::Instance;

/// Most ideals for a proof.
pub const MAX_IDEALS: usize = 20_000;

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
    /// The topological order.
    order: Vec<usize>,
}

impl Ideals {
    /// Lists the ideals of a graph, at most `limit`. With `separate_phases` all forward kernels run before any
    /// backward one.
    pub fn of(instance: &Instance, limit: usize) -> Option<Self> {
        let n = instance.kernels.len();
        if n > 128 {
            return None;
        }
        let before = predecessors(instance);
        let order = topological(&before);
        let mut sets = vec![0u128];
        let mut steps: Vec<Step> = Vec::new();
        let mut first = vec![0];
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
                return Some(Self::of_order(order));
            }
            for i in layer.clone() {
                for step in &mut steps[first[i]..first[i + 1]] {
                    let larger = sets[i] | (1 << step.kernel);
                    step.to = layer.end + next.partition_point(|s| *s < larger);
                }
            }
            sets.extend_from_slice(&next);
            layer = layer.end..sets.len();
        }
        Some(Self { sets, complete: true, steps, first, order })
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
        let first = (0..=order.len()).chain([order.len()]).collect();
        Self { sets, complete: false, steps: steps.collect(), first, order }
    }

    /// The ideals of the topological order that ranks go by.
    pub fn one_order(&self) -> Self {
        Self::of_order(self.order.clone())
    }

    /// The kernels that may join an ideal, ascending in rank.
    pub fn steps(&self, ideal: usize) -> &[Step] {
        &self.steps[self.first[ideal]..self.first[ideal + 1]]
    }
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
