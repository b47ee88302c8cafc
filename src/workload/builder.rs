//! What the generators of workloads build their graphs with.

use crate::graph::{Axis, Divided, Kernel, Op, Phase, Shape, Slot, Tensor, Use, WeightOf, Workload};
use crate::units::Bytes;

/// A graph under construction: kernels made by [`Builder::add`] alone write the tensor of their own index.
#[derive(Debug, Default)]
pub(super) struct Builder {
    /// Kernels so far.
    pub kernels: Vec<Kernel>,
    /// Tensors so far.
    pub tensors: Vec<Tensor>,
}

/// Edge of a tile of a product, and tiles that keep the units of a chip busy.
const TILE: u64 = 128;
const UNITS: u64 = 128;

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
        let out = format!("{name}.out");
        let id = self.bare(name, op, phase, shape);
        for (tensor, slot) in inputs {
            self.read(id, *tensor, *slot);
        }
        let (rows, cols) = (self.kernels[id].shape.rows(), self.kernels[id].shape.n);
        self.tensor(out, rows, cols, Some(id));
        id
    }

    /// Adds a kernel without tensors.
    pub fn bare(&mut self, name: impl Into<String>, op: Op, phase: Phase, shape: (u64, u64, u64, u64)) -> usize {
        let (outer, m, k, n) = shape;
        let tiled = if phase == Phase::BackwardWeight { Axis::K } else { Axis::N };
        let shape = Shape { outer, m, k, n };
        self.kernels.push(Kernel { name: name.into(), op, phase, shape, tiled, ..Kernel::default() });
        self.kernels.len() - 1
    }

    /// Adds a tensor of its own: an input (no producer), or a further output of a kernel. Returns its index.
    pub fn tensor(&mut self, name: impl Into<String>, rows: u64, cols: u64, producer: Option<usize>) -> usize {
        self.tensors.push(Tensor::new(name, rows, cols, producer));
        self.tensors.len() - 1
    }

    /// Lets a kernel read a tensor.
    pub fn read(&mut self, kernel: usize, tensor: usize, slot: Slot) {
        self.tensors[tensor].consumers.push(Use { kernel, slot });
    }

    /// Parts of the contraction of a weight's gradient that libraries compute side by side and add up, where the weight alone has fewer tiles than a chip has
    /// units: the fewest that divide it and give each unit a tile, or all.
    pub fn parts_of_gradient(&self, forward: usize) -> u64 {
        let Shape { m, k, n, .. } = self.kernels[forward].shape;
        let tiles = k.div_ceil(TILE).saturating_mul(m.div_ceil(TILE));
        let dividing = || (1..=UNITS.min(n)).filter(|parts| n.is_multiple_of(*parts));
        dividing().find(|parts| tiles.saturating_mul(*parts) >= UNITS).or(dividing().next_back()).unwrap_or(1)
    }

    /// Adds the gradient of the weight of a product, contracted over its columns in so many parts at a time, with its tensor.
    pub fn weight_gradient(&mut self, forward: usize, parts: u64, reads: &[(usize, Slot)]) {
        let Kernel { name, shape: Shape { m, k, n, .. }, .. } = &self.kernels[forward];
        let (name, m, k, n) = (format!("{name}_upd"), *m, *k, *n);
        let kernel = self.bare(&name, Op::Gemm, Phase::BackwardWeight, (1, k, n, m));
        self.kernels[kernel].splits = parts;
        for (tensor, slot) in reads {
            self.read(kernel, *tensor, *slot);
        }
        self.tensor(format!("{name}.out"), k, m, Some(kernel));
        self.kernels[kernel].weight_of = Some(WeightOf { kernel: forward });
    }

    /// The workload of so many equal layers with this graph, for samples of `seq` tokens in words of so many bytes.
    pub fn repeated(
        self,
        name: &str,
        layers: u64,
        word: Bytes,
        (global_batch, micro_batch): (u64, u64),
        training: bool,
        seq: u64,
    ) -> Workload {
        Workload {
            name: name.into(),
            kernels: self.kernels,
            tensors: self.tensors,
            repeat: layers,
            blocks: Vec::new(),
            word_bytes: word.0,
            global_batch,
            micro_batch,
            training,
            tokens_per_sample: Some(seq),
            held_bytes: 0.0,
            divided: Divided::Free,
        }
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
        let id = self.tensor(name, rows, cols, None);
        for (kernel, slot) in to {
            self.read(*kernel, id, *slot);
        }
        self.tensors[id].carried_from = Some(from);
    }
}
