//! Putting a graph together, kernel by kernel: shared by the generators of this folder.

use super::graph::{Axis, Kernel, Op, Phase, Shape, Slot, Tensor, Use};

/// Kernels and tensors so far.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) kernels: Vec<Kernel>,
    pub(super) tensors: Vec<Tensor>,
}

impl Builder {
    /// Adds a kernel and its output tensor; returns the kernel's index, which is also its tensor's as long as no other
    /// tensor was added.
    pub(super) fn add(
        &mut self,
        name: &str,
        op: Op,
        phase: Phase,
        shape: (u64, u64, u64, u64),
        inputs: &[(usize, Slot)],
    ) -> usize {
        let id = self.bare(name, op, phase, shape);
        for (tensor, slot) in inputs {
            self.read(id, *tensor, *slot);
        }
        let (rows, cols) = (self.kernels[id].shape.rows(), self.kernels[id].shape.n);
        self.tensor(&format!("{name}.out"), rows, cols, Some(id));
        id
    }

    /// Marks tensor `from` as what the next layer's kernel `to` reads.
    pub(super) fn carry(&mut self, name: &str, from: usize, to: usize, slot: Slot) {
        let (rows, cols) = (self.tensors[from].rows, self.tensors[from].cols);
        self.tensors[from].output = true;
        let id = self.tensor(name, rows, cols, None);
        self.read(to, id, slot);
        self.tensors[id].carried_from = Some(from);
    }

    /// Adds a tensor of its own: an input (no producer), or a further output of a kernel. Returns its index.
    pub(super) fn tensor(&mut self, name: &str, rows: u64, cols: u64, producer: Option<usize>) -> usize {
        self.tensors.push(Tensor {
            name: name.into(),
            rows,
            cols,
            producer,
            consumers: Vec::new(),
            output: false,
            carried_from: None,
            in_place: false,
        });
        self.tensors.len() - 1
    }

    /// Lets a kernel read a tensor.
    pub(super) fn read(&mut self, kernel: usize, tensor: usize, slot: Slot) {
        self.tensors[tensor].consumers.push(Use { kernel, slot });
    }

    /// Adds a kernel without tensors.
    pub(super) fn bare(&mut self, name: &str, op: Op, phase: Phase, shape: (u64, u64, u64, u64)) -> usize {
        let (outer, m, k, n) = shape;
        self.kernels.push(Kernel {
            name: name.into(),
            op,
            phase,
            shape: Shape { outer, m, k, n },
            window: 1,
            tiled: if phase == Phase::BackwardWeight { Axis::K } else { Axis::N },
            flop: None,
            extra_dram_bytes: 0.0,
            collectives: Vec::new(),
            spread: None,
            weight_of: None,
        });
        self.kernels.len() - 1
    }
}
