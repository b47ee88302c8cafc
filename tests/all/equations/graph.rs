//! Sections 2 to 4 of docs/model.md: local sizes, layouts, bytes of tensors, and who pays which conversion.

use super::case::{Graph, Kernel, Op, Pass, Slot};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    Outer,
    M,
    K,
    N,
    Replicate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Whole,
    Rows,
    Columns,
    Partial,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conversion {
    AllReduce,
    ReduceScatter,
    AllGather,
    AllToAll,
}

/// Sizes of a kernel on one chip.
#[derive(Debug, Clone, Copy)]
pub struct Local {
    pub batch: u64,
    pub m: u64,
    pub k: u64,
    pub n: u64,
}

impl Local {
    pub fn rows(self) -> u64 {
        self.batch * self.m
    }
}

/// A graph under the shardings of a plan.
pub struct Sharded<'a> {
    pub graph: &'a Graph,
    pub t: u64,
    pub tiles: u64,
    pub strategy: &'a [Strategy],
    /// Readers of each tensor in order.
    pub readers: Vec<Vec<(usize, Slot)>>,
}

/// What a kernel pays: kind and bytes of a collective among the chips of the tensor-parallel group.
#[derive(Debug, Clone, Copy)]
pub struct Paid {
    pub kind: Conversion,
    pub bytes: f64,
}

pub fn backward(kernel: &Kernel) -> bool {
    kernel.pass != Pass::Forward
}

/// Tiles are cut along k in weight gradients, along n in all others.
pub fn along_k(kernel: &Kernel) -> bool {
    kernel.pass == Pass::GradientOfWeight
}

impl<'a> Sharded<'a> {
    pub fn new(graph: &'a Graph, t: u64, tiles: u64, strategy: &'a [Strategy]) -> Self {
        let mut readers = vec![Vec::new(); graph.tensors.len()];
        for (k, kernel) in graph.kernels.iter().enumerate() {
            for (tensor, slot) in &kernel.reads {
                readers[*tensor].push((k, *slot));
            }
        }
        Self { graph, t, tiles, strategy, readers }
    }

    pub fn local(&self, k: usize) -> Local {
        let kernel = &self.graph.kernels[k];
        let t = self.t;
        let (batch, m, k_, n) = (kernel.outer, kernel.m, kernel.k, kernel.n);
        match self.strategy[k] {
            Strategy::Outer => Local { batch: batch.div_ceil(t), m, k: k_, n },
            Strategy::M => Local { batch: 1, m: (batch * m).div_ceil(t), k: k_, n },
            Strategy::K => Local { batch, m, k: k_.div_ceil(t), n },
            Strategy::N => Local { batch, m, k: k_, n: n.div_ceil(t) },
            Strategy::Replicate => Local { batch, m, k: k_, n },
        }
    }

    pub fn made(&self, k: usize) -> Layout {
        match self.strategy[k] {
            Strategy::Outer | Strategy::M => Layout::Rows,
            Strategy::K => Layout::Partial,
            Strategy::N => Layout::Columns,
            Strategy::Replicate => Layout::Whole,
        }
    }

    pub fn asked(&self, k: usize, slot: Slot) -> Layout {
        let kernel = &self.graph.kernels[k];
        let mut strategy = self.strategy[k];
        if kernel.op == Op::Weight && strategy == Strategy::Outer {
            strategy = Strategy::M;
        }
        let stationary = matches!(slot, Slot::Lhs | Slot::LhsT | Slot::Reshaped);
        if stationary && kernel.outer > 1 && kernel.lhs_shared >= kernel.outer {
            return Layout::Whole;
        }
        let [outer, m, k, n] = {
            use Layout::{Columns as C, Rows as R, Whole as W};
            match slot {
                Slot::Data => [R, R, W, C],
                Slot::Rhs => [R, W, R, C],
                Slot::RhsT => [R, W, C, R],
                Slot::Lhs => [R, R, C, W],
                Slot::LhsT => [R, C, R, W],
                Slot::Reshaped | Slot::Aligned => [R, R, W, C],
                Slot::Shared => [W, W, W, C],
                Slot::View => [W, W, W, W],
            }
        };
        match strategy {
            Strategy::Outer => outer,
            Strategy::M => m,
            Strategy::K => k,
            Strategy::N => n,
            Strategy::Replicate => Layout::Whole,
        }
    }

    pub fn split(&self, tensor: usize, layout: Layout) -> (u64, u64) {
        let it = &self.graph.tensors[tensor];
        match layout {
            Layout::Rows => (it.rows.div_ceil(self.t), it.columns),
            Layout::Columns => (it.rows, it.columns.div_ceil(self.t)),
            Layout::Whole | Layout::Partial => (it.rows, it.columns),
        }
    }

    pub fn tile(&self, tensor: usize, layout: Layout) -> f64 {
        let (rows, columns) = self.split(tensor, layout);
        (rows * columns.div_ceil(self.tiles) * self.graph.word) as f64
    }

    pub fn shard(&self, tensor: usize, layout: Layout) -> f64 {
        let (_, columns) = self.split(tensor, layout);
        self.tile(tensor, layout) * self.filled(columns) as f64
    }

    /// Tiles of a size that are not empty.
    pub fn filled(&self, size: u64) -> u64 {
        size.div_ceil(size.div_ceil(self.tiles))
    }

    /// The shard without padding to tiles.
    pub fn plain(&self, tensor: usize, layout: Layout) -> f64 {
        let (rows, columns) = self.split(tensor, layout);
        (rows * columns * self.graph.word) as f64
    }

    /// The same tensor in the next layer.
    pub fn next(&self, tensor: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.graph.tensors.len()).filter(move |x| self.graph.tensors[*x].carried_from == Some(tensor))
    }

    /// Readers of the next layer, where the tensor is carried there.
    fn next_readers(&self, tensor: usize) -> impl Iterator<Item = (usize, Slot)> + '_ {
        self.next(tensor).flat_map(|x| self.readers[x].iter().copied())
    }

    pub fn leaves(&self, tensor: usize) -> bool {
        self.graph.tensors[tensor].output || self.next(tensor).next().is_some()
    }

    /// Whether a reader is one "of the pass" of a maker.
    fn of_the_pass(&self, maker: usize, reader: usize) -> bool {
        let (a, b) = (&self.graph.kernels[maker], &self.graph.kernels[reader]);
        backward(a) == backward(b)
    }

    /// Bytes of a microbatch as they lie in DRAM.
    pub fn stored(&self, tensor: usize) -> f64 {
        let s = self.graph.micro as f64;
        match self.graph.tensors[tensor].maker {
            None => {
                let each = self.readers[tensor].iter().map(|(k, slot)| self.shard(tensor, self.asked(*k, *slot)));
                s * each.fold(0.0, f64::max)
            }
            Some(maker) => {
                let here = self.readers[tensor].iter().copied().filter(|(k, _)| self.of_the_pass(maker, *k));
                let readers = self.next_readers(tensor).chain(here);
                let of_the_pass: Vec<f64> = readers.map(|(k, slot)| self.shard(tensor, self.asked(k, slot))).collect();
                if of_the_pass.is_empty() {
                    return s * self.shard(tensor, self.made(maker));
                }
                s * of_the_pass.into_iter().fold(0.0, f64::max)
            }
        }
    }

    pub fn loaded(&self, tensor: usize, k: usize, slot: Slot) -> f64 {
        let wanted = self.graph.micro as f64 * self.shard(tensor, self.asked(k, slot));
        match self.graph.tensors[tensor].maker {
            Some(_) => wanted.min(self.stored(tensor)),
            None => wanted,
        }
    }

    /// What each kernel pays.
    pub fn conversions(&self) -> Vec<Vec<Paid>> {
        let mut paid = vec![Vec::new(); self.graph.kernels.len()];
        for tensor in 0..self.graph.tensors.len() {
            let Some(maker) = self.graph.tensors[tensor].maker else { continue };
            let made = self.made(maker);
            let (mut first, second): (Vec<_>, Vec<_>) =
                self.readers[tensor].iter().copied().partition(|(k, _)| self.of_the_pass(maker, *k));
            first.extend(self.next_readers(tensor));
            let mut pay = |payer: usize, asked: Layout| {
                let Some(kind) = convert(made, asked) else { return };
                let whole = &self.graph.tensors[tensor];
                let bytes = match kind {
                    Conversion::AllToAll => self.shard(tensor, made),
                    _ => (whole.rows * whole.columns * self.graph.word) as f64,
                };
                paid[payer].push(Paid { kind, bytes: bytes * self.graph.micro as f64 });
            };
            let mut there: Vec<Layout> = Vec::new();
            for (k, slot) in first {
                let asked = self.asked(k, slot);
                if !there.contains(&asked) {
                    there.push(asked);
                    pay(maker, asked);
                }
            }
            let mut again: Vec<Layout> = Vec::new();
            for (k, slot) in second {
                let asked = self.asked(k, slot);
                if !again.contains(&asked) {
                    again.push(asked);
                    pay(k, asked);
                }
            }
        }
        paid
    }
}

pub fn convert(made: Layout, asked: Layout) -> Option<Conversion> {
    match (made, asked) {
        (Layout::Whole, _) => None,
        (a, b) if a == b => None,
        (Layout::Partial, Layout::Whole) => Some(Conversion::AllReduce),
        (Layout::Partial, _) => Some(Conversion::ReduceScatter),
        (_, Layout::Whole) => Some(Conversion::AllGather),
        (_, _) => Some(Conversion::AllToAll),
    }
}

/// Strategies open to a kernel.
pub fn open(graph: &Graph, kernel: &Kernel, t: u64) -> Vec<Strategy> {
    if t == 1 {
        return vec![Strategy::Replicate];
    }
    let single = kernel.outer == 1;
    let product = matches!(kernel.op, Op::Weight | Op::Pair);
    let rows = single && kernel.m > 1 && !matches!(kernel.op, Op::Norm | Op::Opaque);
    let contracted = single && product && kernel.k > 1 && kernel.pass != Pass::GradientOfWeight;
    let columns = kernel.n > 1 && kernel.op != Op::Opaque;
    let even = !single && (kernel.outer.is_multiple_of(t) || t.is_multiple_of(kernel.outer));
    let together = !even || !graph.kernels.iter().any(backward);
    let all = [
        (Strategy::Outer, even),
        (Strategy::M, rows),
        (Strategy::K, contracted),
        (Strategy::N, columns && together),
        (Strategy::Replicate, together),
    ];
    all.into_iter().filter(|(_, there)| *there).map(|(strategy, _)| strategy).collect()
}

/// Whether a backward kernel by `strategy` finds the shards of the weight of `owner`, which runs by `theirs`.
pub fn finds_shards(kernel: &Kernel, strategy: Strategy, owner: &Kernel, theirs: Strategy) -> bool {
    let gradient = kernel.pass == Pass::GradientOfWeight;
    match theirs {
        Strategy::Outer if kernel.outer > 1 && owner.outer > 1 => strategy == Strategy::Outer,
        Strategy::M | Strategy::Outer if gradient => strategy == Strategy::N,
        Strategy::M | Strategy::Outer => strategy == Strategy::K,
        Strategy::K if gradient => strategy == Strategy::M,
        Strategy::K => matches!(strategy, Strategy::M | Strategy::Outer),
        Strategy::Replicate => !gradient && strategy == Strategy::Replicate,
        Strategy::N => !gradient && strategy == Strategy::N,
    }
}
