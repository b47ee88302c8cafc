//! Who is near whom, listed once: a graph of thousands of kernels is checked in time that grows with its tensors.

use crate::graph::{Use, Workload};
use crate::plan::Decisions;
use crate::system::System;
use crate::system::options::{Charge, Fanout};

/// A tensor with a set of readers that shares one copy.
pub(super) struct Copied<'a> {
    /// The tensor.
    pub(super) id: usize,
    /// Its readers.
    pub(super) uses: &'a [Use],
    /// Whether it leaves the layer.
    pub(super) leaves: bool,
}

/// Lists of numbers, one list after the other.
pub(super) struct Lists {
    items: Vec<usize>,
    /// Where each list begins; one more entry for the end.
    first: Vec<usize>,
}

impl Lists {
    /// `count` lists from what `tell` tells: an item and the list that it goes to, where there is such a list. An item that is
    /// told of a list twice in turn stands in it once. `tell` is asked twice.
    fn of(count: usize, tell: impl Fn(&mut dyn FnMut(usize, usize))) -> Self {
        let mut first = vec![0; count + 1];
        let mut last = vec![usize::MAX; count];
        tell(&mut |list, item| {
            if last.get(list).is_some_and(|before| *before != item) {
                last[list] = item;
                first[list + 1] += 1;
            }
        });
        (0..count).for_each(|list| first[list + 1] += first[list]);
        let mut items = vec![0; first[count]];
        let mut at = first.clone();
        last.fill(usize::MAX);
        tell(&mut |list, item| {
            if last.get(list).is_some_and(|before| *before != item) {
                last[list] = item;
                items[at[list]] = item;
                at[list] += 1;
            }
        });
        Self { items, first }
    }

    /// The number of lists.
    pub(super) fn len(&self) -> usize {
        self.first.len() - 1
    }

    /// All lists.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[usize]> {
        self.first.windows(2).map(|ends| &self.items[ends[0]..ends[1]])
    }
}

impl std::ops::Index<usize> for Lists {
    type Output = [usize];
    fn index(&self, list: usize) -> &[usize] {
        &self.items[self.first[list]..self.first[list + 1]]
    }
}

/// Lists of a workload and its decisions.
pub(super) struct Index<'a> {
    /// Kernels of each partition, ascending. As many partitions as could have a kernel each, and one beyond: further numbers
    /// leave one of these empty.
    pub(super) partitions: Lists,
    /// Tensors that each kernel makes or reads, ascending.
    pub(super) tensors_of: Lists,
    /// Tensors of the next layer that each tensor is carried to.
    pub(super) carried_to: Lists,
    /// The tensors as the model counts them.
    pub(super) copies: Vec<Copied<'a>>,
    /// Of these, those that each kernel makes or reads, ascending.
    pub(super) copies_of: Lists,
}

impl<'a> Index<'a> {
    pub(super) fn of(w: &'a Workload, system: &System, decisions: &Decisions) -> Self {
        let n = w.kernels.len();
        let count = decisions.partition.iter().max().map_or(0, |p| p.saturating_add(1)).min(n + 1);
        let copies = copies(w, system);
        // Of the kernels that make or read something.
        let near = |producer: Option<usize>, uses: &[Use], id: usize, tell: &mut dyn FnMut(usize, usize)| {
            producer.into_iter().chain(uses.iter().map(|u| u.kernel)).for_each(|k| tell(k, id));
        };
        Self {
            partitions: Lists::of(count, |tell| {
                decisions.partition.iter().enumerate().for_each(|(k, p)| tell(*p, k));
            }),
            tensors_of: Lists::of(n, |tell| {
                w.tensors.iter().enumerate().for_each(|(id, t)| near(t.producer, &t.consumers, id, tell));
            }),
            carried_to: Lists::of(w.tensors.len(), |tell| {
                for (id, tensor) in w.tensors.iter().enumerate() {
                    tensor.carried_from.into_iter().for_each(|from| tell(from, id));
                }
            }),
            copies_of: Lists::of(n, |tell| {
                for (at, copied) in copies.iter().enumerate() {
                    near(w.tensors[copied.id].producer, copied.uses, at, tell);
                }
            }),
            copies,
        }
    }

    /// The copies that some kernels make or read, ascending.
    pub(super) fn copies_near(&self, kernels: &[usize]) -> Vec<usize> {
        let mut near: Vec<usize> = kernels.iter().flat_map(|k| self.copies_of[*k].iter().copied()).collect();
        near.sort_unstable();
        near.dedup();
        near
    }
}

/// The tensors as the model counts them: with each set of readers that shares one copy.
fn copies<'a>(w: &'a Workload, system: &System) -> Vec<Copied<'a>> {
    let charged = system.model.boundary_tensors == Charge::Charged;
    let mut out = Vec::with_capacity(w.tensors.len());
    for (id, tensor) in w.tensors.iter().enumerate() {
        if !system.model.counts(tensor) {
            continue;
        }
        let leaves = tensor.output && charged;
        match system.model.tensor_fanout {
            Fanout::Shared => out.push(Copied { id, uses: &tensor.consumers, leaves }),
            Fanout::Replicate => {
                out.extend(tensor.consumers.chunks(1).map(|uses| Copied { id, uses, leaves: false }));
                if leaves {
                    out.push(Copied { id, uses: &[], leaves: true });
                }
            }
        }
    }
    out
}
