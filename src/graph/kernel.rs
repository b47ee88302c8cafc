//! A kernel: what it computes, on which sizes, with which weight.

use super::collective::Collective;
use super::grid::Spread;
use serde::Serialize;

/// A dimension of a kernel's iteration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Independent problems side by side (attention heads).
    Outer,
    /// Rows of the output.
    M,
    /// The contracted dimension.
    K,
    /// Columns of the output.
    N,
}

crate::choice! {
    /// What a kernel computes.
    pub enum Op ("an operation") {
        /// Matrix product with a weight: out (m x n) = weight (m x k) times rhs (k x n).
        GemmWeight = "gemm_weight",
        /// Matrix product of two tensors, `outer` of them side by side: out (m x n) = lhs (m x k) times rhs (k x n).
        Gemm = "gemm",
        /// One result an element: activation, dropout, addition.
        Elementwise = "elementwise",
        /// Normalises along the rows (`m`) of each column: layer norm, softmax. It cannot be sharded along `m`.
        Norm = "norm",
        /// Known only by its FLOP and bytes; it is never sharded unless it has an outer dimension.
        Opaque = "opaque",
    }
}

crate::choice! {
    /// The phase of training a kernel belongs to.
    pub enum Phase ("a phase") {
        /// Forward pass.
        Forward = "forward",
        /// Gradient with respect to an input.
        BackwardInput = "backward_input",
        /// Gradient with respect to a weight.
        BackwardWeight = "backward_weight",
        /// A forward kernel run again in the backward pass, with the forward kernel's weight ([`super::recompute`]).
        Recompute = "recompute",
    }
}

/// Sizes of a kernel's iteration space, all at least one. `k` is one for kernels that contract nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Problems side by side.
    pub outer: u64,
    /// Rows of one problem's output.
    pub m: u64,
    /// Contracted size.
    pub k: u64,
    /// Columns.
    pub n: u64,
}

impl Shape {
    /// Rows of the whole output, `outer * m`.
    pub fn rows(&self) -> u64 {
        self.outer * self.m
    }
    /// Size along an axis.
    pub fn along(&self, axis: Axis) -> u64 {
        match axis {
            Axis::Outer => self.outer,
            Axis::M => self.m,
            Axis::K => self.k,
            Axis::N => self.n,
        }
    }
}

/// The weight of another kernel that a backward kernel uses, or whose gradient it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WeightOf {
    /// Index of the forward kernel that owns the weight.
    pub kernel: usize,
}

/// One kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kernel {
    /// Unique name.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// Phase of training.
    pub phase: Phase,
    /// Iteration space.
    pub shape: Shape,
    /// Elements of the streamed operand's window that one output reads: the kernel area of a convolution written as an
    /// implicit GEMM (the operand has k / window rows), else 1.
    pub window: u64,
    /// Axis along which tiles are cut: `N`, or `K` for weight gradients.
    pub tiled: Axis,
    /// Whether a product that is tiled along `N` meets tiles of its contraction one after the other, as its streamed operand comes transposed (the gradients of
    /// keys and values): it adds its result up over a sample, like a weight gradient over a pass.
    pub accumulates: bool,
    /// FLOP of one sample where the operation does not tell it (opaque kernels, scans, butterflies), else `None`.
    pub flop: Option<f64>,
    /// How often the lanes and stages go over the iteration space: cycles an element of an operation that needs several
    /// multiply-adds, times independent inputs that follow each other; else 1.
    pub passes: u64,
    /// Pieces of the contraction that are computed side by side and added up, on chips that compute by waves; else 1.
    pub splits: u64,
    /// Outer problems that share one stationary operand (grouped-query attention: heads / key-value heads), else 1.
    pub lhs_shared: u64,
    /// DRAM bytes a sample beyond its tensors and weights (table look-ups, caches read and appended to).
    pub extra_dram_bytes: f64,
    /// Whether these bytes are those of each chip, however the kernel is shared, instead of the whole kernel's.
    pub extra_dram_on_each: bool,
    /// Whether a chip may have a part of an outer problem, so that shares are counted in rows: DFModel rounds so where chips do not
    /// divide the heads.
    pub outer_cut: bool,
    /// Collectives of its own. Those of one scope follow each other; different scopes use different links at once.
    pub collectives: Vec<Collective>,
    /// How a process grid shares it; `None` for kernels under tensor, pipeline and data parallelism.
    pub spread: Option<Spread>,
    /// DRAM bytes a sample that stay from one iteration to the next (a cache), of one repetition.
    pub cache_bytes: f64,
    /// For backward kernels: whose weight.
    pub weight_of: Option<WeightOf>,
    /// Bytes of one element that it computes with, where these are not the graph's ([`Workload::word_bytes`](super::Workload::word_bytes)): they tell the
    /// peak that it runs at, and the size of its weight, of that weight's gradient and of its partial sums.
    pub word: Option<f64>,
    /// Its block ([`Workload::blocks`](super::Workload::blocks)).
    pub block: usize,
    /// Whether it looks rows of its weight up (or adds to them) instead of multiplying: a table of embeddings. The weight is held,
    /// sharded and updated like any other, but only the rows that are looked up are moved ([`Kernel::extra_dram_bytes`]), and
    /// [`Kernel::flop`] states its work.
    pub lookup: bool,
}

/// A forward elementwise kernel of one element; a start for the fields that a generator does not mean to set.
impl Default for Kernel {
    fn default() -> Self {
        Self {
            name: String::new(),
            op: Op::Elementwise,
            phase: Phase::Forward,
            shape: Shape { outer: 1, m: 1, k: 1, n: 1 },
            window: 1,
            tiled: Axis::N,
            accumulates: false,
            flop: None,
            passes: 1,
            splits: 1,
            lhs_shared: 1,
            extra_dram_bytes: 0.0,
            extra_dram_on_each: false,
            outer_cut: false,
            cache_bytes: 0.0,
            collectives: Vec::new(),
            spread: None,
            weight_of: None,
            word: None,
            block: 0,
            lookup: false,
        }
    }
}

impl Kernel {
    /// The axis whose tiles it meets one after the other.
    pub fn streamed(&self) -> Axis {
        if self.accumulates { Axis::K } else { self.tiled }
    }

    /// FLOP of one sample, unsharded. GEMM: 2 outer m k n. Elementwise and norm: one an element (DFModel, model.md
    /// section 5: F = m n).
    pub fn flop(&self) -> f64 {
        let s = &self.shape;
        match (self.flop, self.op) {
            (Some(flop), _) => flop,
            (None, Op::GemmWeight | Op::Gemm) => 2.0 * s.rows() as f64 * s.k as f64 * s.n as f64,
            (None, _) => s.rows() as f64 * s.n as f64,
        }
    }
    /// Bytes of one element that it computes with; `usual` are those of the graph.
    pub fn word_or(&self, usual: f64) -> f64 {
        self.word.unwrap_or(usual)
    }
    /// Elements of the weight it owns or re-uses (`outer m k`); zero for kernels without one.
    pub fn weight_elements(&self) -> f64 {
        if self.op == Op::GemmWeight { self.shape.rows() as f64 * self.shape.k as f64 } else { 0.0 }
    }
    /// Whether it owns a weight that must be stored (a backward kernel re-uses the forward kernel's).
    pub fn owns_weight(&self) -> bool {
        self.op == Op::GemmWeight && self.weight_of.is_none()
    }
    /// Whether it is a matrix product.
    pub fn is_gemm(&self) -> bool {
        matches!(self.op, Op::GemmWeight | Op::Gemm)
    }
}
