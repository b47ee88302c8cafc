//! What the generators of workloads build their graphs with.

use super::graph::{Axis, Kernel, Op, Phase, Shape, Slot, Tensor, Use};

/// A graph under construction: every kernel writes the tensor of its own index.
#[derive(Debug, Default)]
pub(super) struct Builder {
    /// Kernels so far.
    pub kernels: Vec<Kernel>,
    /// Tensors so far.
    pub tensors: Vec<Tensor>,
}

impl Builder {
    /// Adds a kernel and its output tensor; returns the kernel's index, which is also its tensor's. Every input names
    /// a kernel added before.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        op: Op,
        phase: Phase,
        shape: (u64, u64, u64, u64),
        inputs: &[(usize, Slot)],
    ) -> usize {
        let name = name.into();
        let (outer, m, k, n) = shape;
        let shape = Shape { outer, m, k, n };
        let id = self.kernels.len();
        for (tensor, slot) in inputs {
            self.tensors[*tensor].consumers.push(Use { kernel: id, slot: *slot });
        }
        self.tensors.push(Tensor {
            name: format!("{name}.out"),
            rows: shape.rows(),
            cols: n,
            producer: Some(id),
            consumers: Vec::new(),
            output: false,
            carried_from: None,
        });
        let tiled = if phase == Phase::BackwardWeight { Axis::K } else { Axis::N };
        self.kernels.push(Kernel { name, op, phase, shape, tiled, ..Kernel::default() });
        id
    }

    /// States the FLOP of a sample of kernel `k`, and how often the lanes go over it.
    pub fn work(&mut self, k: usize, flop: f64, passes: u64) {
        self.kernels[k].flop = Some(flop);
        self.kernels[k].passes = passes;
    }

    /// Marks tensor `from` as what kernels of the next layer read.
    pub fn carry(&mut self, name: &str, from: usize, to: &[(usize, Slot)]) {
        let (rows, cols) = (self.tensors[from].rows, self.tensors[from].cols);
        self.tensors[from].output = true;
        self.tensors.push(Tensor {
            name: name.into(),
            rows,
            cols,
            producer: None,
            consumers: to.iter().map(|(kernel, slot)| Use { kernel: *kernel, slot: *slot }).collect(),
            output: false,
            carried_from: Some(from),
        });
    }
}
