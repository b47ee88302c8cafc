//! A tensor: who makes it, who reads it, and as which operand.

use super::kernel::{Axis, Kernel, Op};
use serde::Serialize;

/// Which operand of a kernel a tensor is; it fixes which axes the tensor's rows and columns are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// Input of an elementwise, norm or opaque kernel: rows `outer*m`, columns `n`.
    Data,
    /// Streamed operand of a GEMM: rows `k`, columns `n`.
    Rhs,
    /// Streamed operand held transposed: rows `n`, columns `k`.
    RhsT,
    /// Stationary operand of a two-tensor GEMM: rows `m`, columns `k`.
    Lhs,
    /// Stationary operand held transposed: rows `k`, columns `m`.
    LhsT,
    /// A tensor of another shape than the kernel's: a transposed view, a slice, tables concatenated. It is read whole.
    View,
    /// Input whose shape is not the iteration space's, or of which all columns must be at hand before the first result:
    /// padded, folded or transposed (the entry and the exit of an FFT), or the newest columns of an operand that lies in
    /// DRAM (the tokens appended to a cache). Its rows are split where the kernel's are. Its size is not checked.
    Reshaped,
    /// Input that every row of the output reads, column by column (the B and C of a selective scan). Its size is not
    /// checked.
    Shared,
    /// Lies along the kernel's rows and columns though it has another number of one of them (statistics of rows or
    /// heads, parts to be joined): it is split where the kernel is.
    Aligned,
}

impl Slot {
    /// Whether the whole tensor must be at hand for every tile of the output (the stationary operand of a GEMM that is
    /// tiled along its columns).
    pub fn is_stationary(self) -> bool {
        matches!(self, Slot::Lhs | Slot::LhsT)
    }
    /// Whether a tensor that is passed on chip must be there whole for a kernel that streams along an axis: a stationary operand, one of
    /// another shape, or one whose columns lie along another axis, that is read in another order than it is made in (loaded from DRAM it comes
    /// tile by tile in the reader's order).
    pub fn is_whole_on_chip(self, streamed: Axis) -> bool {
        match (self, streamed) {
            (Slot::Reshaped | Slot::View | Slot::LhsT, _) => true,
            (Slot::Lhs, along) => along == Axis::N,
            (Slot::Rhs | Slot::RhsT, along) => (self == Slot::Rhs) == (along == Axis::K),
            (Slot::Data | Slot::Shared | Slot::Aligned, _) => false,
        }
    }
}

/// One consumer of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Use {
    /// The consuming kernel.
    pub kernel: usize,
    /// As which operand.
    pub slot: Slot,
}

/// One tensor: a producer or none (an input of the graph), and any number of consumers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tensor {
    /// Unique name.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// Columns (the streamed dimension of its producer).
    pub cols: u64,
    /// The kernel that makes it; `None` for an input.
    pub producer: Option<usize>,
    /// The kernels that read it.
    pub consumers: Vec<Use>,
    /// Whether it leaves the graph (read by the next layer, or a result).
    pub output: bool,
    /// For an input: the tensor of the previous repetition that it is (layer i+1 reads what layer i wrote).
    pub carried_from: Option<usize>,
    /// Whether it overwrites data that lies in DRAM all the time ([`Workload::held_bytes`](super::Workload::held_bytes)): it waits there without taking more.
    pub in_place: bool,
    /// Bytes of one of its elements where these are not the graph's ([`Workload::word_bytes`](super::Workload::word_bytes)): indices, statistics, masks.
    pub word: Option<f64>,
    /// Of a block by itself ([`Workload::of_block`](super::Workload::of_block)): whether it is an input that another block made.
    pub handed_on: bool,
}

impl Tensor {
    /// A tensor that nobody reads yet: an input (no producer), or made by a kernel.
    pub fn new(name: impl Into<String>, rows: u64, cols: u64, producer: Option<usize>) -> Self {
        Self {
            name: name.into(),
            rows,
            cols,
            producer,
            consumers: Vec::new(),
            output: false,
            carried_from: None,
            in_place: false,
            word: None,
            handed_on: false,
        }
    }
}

impl Tensor {
    /// Bytes of one element; `usual` are those of the graph.
    pub fn word_or(&self, usual: f64) -> f64 {
        self.word.unwrap_or(usual)
    }

    /// Bytes of one sample; `usual` are those of an element of the graph.
    pub fn bytes(&self, usual: f64) -> f64 {
        self.rows as f64 * self.cols as f64 * self.word_or(usual)
    }
}

/// Rows and columns that `slot` of a kernel reads, `None` where that is not fixed. A weight GEMM shares one `k x n`
/// operand among its outer problems; a two-tensor GEMM has one an outer problem, and a stationary one each `lhs_shared`.
pub fn operand_size(kernel: &Kernel, slot: Slot) -> Option<(u64, u64)> {
    let shape = &kernel.shape;
    let outer = if kernel.op == Op::GemmWeight { 1 } else { shape.outer };
    let stationary = outer / kernel.lhs_shared.max(1);
    let (rows, cols) = match slot {
        Slot::Data => (shape.rows(), shape.n),
        Slot::Rhs => (outer * (shape.k / kernel.window.max(1)), shape.n),
        Slot::RhsT => (outer * shape.n, shape.k),
        Slot::Lhs => (stationary * shape.m, shape.k),
        Slot::LhsT => (stationary * shape.k, shape.m),
        Slot::Reshaped | Slot::Shared | Slot::Aligned | Slot::View => return None,
    };
    Some((rows, cols))
}
