//! Who is near whom, listed once: a graph of thousands of kernels is checked in time that grows with its tensors.

use crate::plan::Decisions;
use crate::system::System;
use crate::system::options::{Charge, Fanout};
use crate::workload::{Use, Workload};

/// A tensor with a set of readers that shares one copy.
pub(super) struct Copied {
    /// The tensor.
    pub(super) id: usize,
    /// Its readers.
    pub(super) uses: Vec<Use>,
    /// Whether it leaves the layer.
    pub(super) leaves: bool,
}

/// Lists of a workload and its decisions.
pub(super) struct Index {
    /// Kernels of each partition, ascending. As many partitions as could have a kernel each, and one beyond: further numbers
    /// leave one of these empty.
    pub(super) partitions: Vec<Vec<usize>>,
    /// Tensors that each kernel makes or reads, ascending.
    pub(super) tensors_of: Vec<Vec<usize>>,
    /// Tensors of the next layer that each tensor is carried to.
    pub(super) carried_to: Vec<Vec<usize>>,
    /// The tensors as the model counts them.
    pub(super) copies: Vec<Copied>,
    /// Of these, those that each kernel makes or reads, ascending.
    pub(super) copies_of: Vec<Vec<usize>>,
}

impl Index {
    pub(super) fn of(w: &Workload, system: &System, decisions: &Decisions) -> Self {
        let n = w.kernels.len();
        let count = decisions.partition.iter().max().map_or(0, |p| p.saturating_add(1)).min(n + 1);
        let mut partitions = vec![Vec::new(); count];
        for (k, p) in decisions.partition.iter().enumerate() {
            if let Some(kernels) = partitions.get_mut(*p) {
                kernels.push(k);
            }
        }
        let mut tensors_of = vec![Vec::new(); n];
        let mut carried_to = vec![Vec::new(); w.tensors.len()];
        for (id, tensor) in w.tensors.iter().enumerate() {
            note(&mut tensors_of, tensor.producer, &tensor.consumers, id);
            if let Some(next) = tensor.carried_from.and_then(|from| carried_to.get_mut(from)) {
                next.push(id);
            }
        }
        let copies = copies(w, system);
        let mut copies_of = vec![Vec::new(); n];
        for (at, copied) in copies.iter().enumerate() {
            note(&mut copies_of, w.tensors[copied.id].producer, &copied.uses, at);
        }
        Self { partitions, tensors_of, carried_to, copies, copies_of }
    }

    /// The copies that some kernels make or read, ascending.
    pub(super) fn copies_near(&self, kernels: &[usize]) -> Vec<usize> {
        let mut near: Vec<usize> = kernels.iter().flat_map(|k| self.copies_of[*k].iter().copied()).collect();
        near.sort_unstable();
        near.dedup();
        near
    }
}

/// Adds `id` to the list of each kernel that makes or reads it, once.
fn note(lists: &mut [Vec<usize>], producer: Option<usize>, uses: &[Use], id: usize) {
    for k in producer.into_iter().chain(uses.iter().map(|u| u.kernel)) {
        if lists[k].last() != Some(&id) {
            lists[k].push(id);
        }
    }
}

/// The tensors as the model counts them: with each set of readers that shares one copy.
fn copies(w: &Workload, system: &System) -> Vec<Copied> {
    let charged = system.model.boundary_tensors == Charge::Charged;
    let mut out = Vec::new();
    for (id, tensor) in w.tensors.iter().enumerate() {
        if tensor.carried_from.is_some() && !charged {
            continue;
        }
        let leaves = tensor.output && charged;
        match system.model.tensor_fanout {
            Fanout::Shared => out.push(Copied { id, uses: tensor.consumers.clone(), leaves }),
            Fanout::Replicate => {
                out.extend(tensor.consumers.iter().map(|u| Copied { id, uses: vec![*u], leaves: false }));
                if leaves {
                    out.push(Copied { id, uses: Vec::new(), leaves: true });
                }
            }
        }
    }
    out
}
