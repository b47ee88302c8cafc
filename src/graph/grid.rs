//! Workloads spread over a process grid of all chips, and one chip's share of them.

use super::Workload;
use super::collective::{Collective, Scope};
use super::kernel::{Axis, Kernel, Shape};
use super::tensor::{Tensor, operand_size};
use serde::Serialize;

/// Which axes of a kernel a process grid of P rows and Q columns splits. Kernels of workloads without data, tensor or
/// pipeline parallelism (dense linear algebra, Fourier transforms) are spread over all chips this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Axis split among the P rows; `None`: every row of the grid computes the same, or only one does.
    pub rows: Option<Axis>,
    /// Axis split among the Q columns.
    pub cols: Option<Axis>,
}

impl Spread {
    /// How many parts a grid of `rows` x `cols` chips makes of an axis.
    pub fn parts(&self, axis: Axis, rows: u64, cols: u64) -> u64 {
        let of = |split: Option<Axis>, by: u64| if split == Some(axis) { by } else { 1 };
        of(self.rows, rows) * of(self.cols, cols)
    }
}

impl Workload {
    /// Whether its kernels are spread over a process grid of all chips instead of tensor, pipeline and data parallelism.
    pub fn is_spread(&self) -> bool {
        self.kernels.iter().any(|k| k.spread.is_some())
    }

    /// What one chip of a process grid of `rows` x `cols` has of a spread workload: every split axis divided and rounded
    /// up (the chip that has most counts), stated FLOP and DRAM bytes in proportion, panels of a grid row divided among
    /// the rows and of a grid column among the columns.
    #[must_use]
    pub fn on_grid(&self, rows: u64, cols: u64) -> Self {
        let parts = |k: usize, axis: Axis| self.kernels[k].spread.map_or(1, |s| s.parts(axis, rows, cols));
        let kernels: Vec<Kernel> = self
            .kernels
            .iter()
            .enumerate()
            .map(|(k, kernel)| {
                let cut = |axis: Axis| kernel.shape.along(axis).div_ceil(parts(k, axis));
                let shape = Shape { outer: cut(Axis::Outer), m: cut(Axis::M), k: cut(Axis::K), n: cut(Axis::N) };
                let volume = |s: &Shape| s.rows() as f64 * s.k as f64 * s.n as f64;
                let share = volume(&shape) / volume(&kernel.shape);
                let collectives = kernel
                    .collectives
                    .iter()
                    .map(|c| {
                        let among = match c.scope {
                            Scope::GridRow => rows,
                            Scope::GridColumn => cols,
                            Scope::All => rows * cols,
                            Scope::Tensor | Scope::Data => 1,
                        };
                        Collective { bytes: c.bytes / among as f64, ..c.clone() }
                    })
                    .collect();
                Kernel {
                    shape,
                    flop: kernel.flop.map(|f| f * share),
                    extra_dram_bytes: kernel.extra_dram_bytes * share,
                    collectives,
                    ..kernel.clone()
                }
            })
            .collect();
        // What lies as kernel k has its rows and columns.
        let share_of = |tensor: &Tensor, k: usize| {
            (tensor.rows.div_ceil(parts(k, Axis::Outer) * parts(k, Axis::M)), tensor.cols.div_ceil(parts(k, Axis::N)))
        };
        let tensors = self
            .tensors
            .iter()
            .map(|tensor| {
                let (rows, cols) = match (tensor.producer, tensor.consumers.first()) {
                    (Some(p), _) => share_of(tensor, p),
                    (None, Some(u)) => {
                        operand_size(&kernels[u.kernel], u.slot).unwrap_or_else(|| share_of(tensor, u.kernel))
                    }
                    (None, None) => (tensor.rows, tensor.cols),
                };
                Tensor { rows, cols, ..tensor.clone() }
            })
            .collect();
        Self { kernels, tensors, ..self.clone() }
    }
}
