//! The kernel / tensor graph of one layer (or other repeated unit), and its checks.
//!
//! A kernel computes an output of `outer * m` rows and `n` columns; a GEMM contracts over `k`. The columns are the
//! streamed dimension (tokens, pixels): tiles are cut from them, except for kernels that are tiled along `k` (weight
//! gradients, which contract over the tokens). All sizes are those of one sample on one chip, before sharding.

use serde::Serialize;
use std::collections::HashMap;

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
    }
}

crate::choice! {
    /// A collective operation among the chips of a group.
    pub enum CollectiveKind ("a collective") {
        /// Every rank ends with the sum of all.
        AllReduce = "all_reduce",
        /// Every rank ends with the concatenation of all.
        AllGather = "all_gather",
        /// Every rank ends with its part of the sum.
        ReduceScatter = "reduce_scatter",
        /// Every rank sends a different part to every other.
        AllToAll = "all_to_all",
        /// One rank sends to another.
        PointToPoint = "point_to_point",
        /// One rank sends the same to every other.
        Broadcast = "broadcast",
    }
}

crate::choice! {
    /// The chips among which a kernel makes a collective of its own.
    pub enum Scope ("a scope of a collective") {
        /// The tensor-parallel group.
        Tensor = "tensor",
        /// The data-parallel group: chips that hold the same shard of the weights.
        Data = "data",
        /// Every chip of the system (of a stage, if there are several).
        All = "all",
        /// One row of the process grid.
        GridRow = "grid_row",
        /// One column of the process grid.
        GridColumn = "grid_column",
    }
}

/// A collective that a kernel makes by itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Collective {
    /// Which.
    pub kind: CollectiveKind,
    /// Bytes of the whole tensor of one sample: for a row or column of the process grid, of the whole matrix panel, of which each
    /// row (column) moves its share.
    pub bytes: f64,
    /// Among which chips.
    pub scope: Scope,
    /// How many times it is made, one after another (the pivot searches of a panel).
    pub times: u64,
}

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
    /// Whether a tensor that is passed on chip must be there whole: a stationary operand, or one that is read in another
    /// order than it is made in (loaded from DRAM it comes tile by tile in the reader's order).
    pub fn is_whole_on_chip(self) -> bool {
        self.is_stationary() || self == Slot::Reshaped
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
    /// FLOP of one sample where the operation does not tell it (opaque kernels, scans, butterflies), else `None`.
    pub flop: Option<f64>,
    /// How often the lanes and stages go over the iteration space: cycles an element of an operation that needs several
    /// multiply-adds, times independent inputs that follow each other; else 1.
    pub passes: u64,
    /// Outer problems that share one stationary operand (grouped-query attention: heads / key-value heads), else 1.
    pub lhs_shared: u64,
    /// DRAM bytes a sample beyond its tensors and weights (table look-ups, caches read and appended to).
    pub extra_dram_bytes: f64,
    /// Collectives of its own. Those of one scope follow each other; different scopes use different links at once.
    pub collectives: Vec<Collective>,
    /// How a process grid shares it; `None` for kernels under tensor, pipeline and data parallelism.
    pub spread: Option<Spread>,
    /// DRAM bytes a sample that stay from one iteration to the next (a cache), of one repetition.
    pub cache_bytes: f64,
    /// For backward kernels: whose weight.
    pub weight_of: Option<WeightOf>,
    /// Its block ([`Workload::blocks`]).
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
            flop: None,
            passes: 1,
            lhs_shared: 1,
            extra_dram_bytes: 0.0,
            cache_bytes: 0.0,
            collectives: Vec::new(),
            spread: None,
            weight_of: None,
            block: 0,
            lookup: false,
        }
    }
}

impl Kernel {
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
    /// Whether it overwrites data that lies in DRAM all the time ([`Workload::held_bytes`]): it waits there without taking more.
    pub in_place: bool,
}

/// A part of a graph that is repeated by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Its name.
    pub name: String,
    /// Its repetitions.
    pub repeat: u64,
}

/// A checked workload: its graph is acyclic and every index is valid.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Workload {
    /// Name for rows and titles.
    pub name: String,
    /// Kernels in a topological order.
    pub kernels: Vec<Kernel>,
    /// Tensors.
    pub tensors: Vec<Tensor>,
    /// How many identical copies follow each other (layers); where there are blocks, the sum of theirs.
    pub repeat: u64,
    /// Blocks of the chain that the graph is (embedding, layers, head), in the order of the forward pass ([`super::chain`]);
    /// none where the whole graph is repeated.
    pub blocks: Vec<Block>,
    /// Bytes of one element.
    pub word_bytes: f64,
    /// Samples of one iteration.
    pub global_batch: u64,
    /// Samples of one microbatch.
    pub micro_batch: u64,
    /// Whether weights are updated: gradients are reduced over DP, optimiser states held.
    pub training: bool,
    /// Tokens of one sample, for figures by token; `None` where a sample has none.
    pub tokens_per_sample: Option<u64>,
    /// Bytes that all chips together hold through the run beside weights: embedding tables, the matrix of HPL.
    pub held_bytes: f64,
}

/// A fault of a graph: which kernel or tensor, and what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The kernels depend on each other in a circle.
    #[error("the graph has a cycle: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// A forward kernel reads what a backward kernel makes.
    #[error(
        "kernel {reader:?} of the forward pass reads {tensor:?}, which kernel {producer:?} makes in the backward pass"
    )]
    Phase {
        /// The forward kernel.
        reader: String,
        /// The tensor.
        tensor: String,
        /// The backward kernel.
        producer: String,
    },
    /// Blocks that are no chain.
    #[error("{message}")]
    Chain {
        /// A kernel that is concerned, or nothing.
        kernel: String,
        /// What is wrong.
        message: String,
    },
    /// A tensor's size does not fit the kernel that reads it.
    #[error("tensor {tensor:?} has {rows} x {cols} elements, but {kernel:?} reads {want_rows} x {want_cols} there")]
    Size {
        /// The tensor.
        tensor: String,
        /// Its rows.
        rows: u64,
        /// Its columns.
        cols: u64,
        /// The reader.
        kernel: String,
        /// Rows wanted.
        want_rows: u64,
        /// Columns wanted.
        want_cols: u64,
    },
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

impl Workload {
    /// Checks sizes and orders the kernels topologically (stable: of the ready kernels the earliest written goes
    /// first), so that later code may rely on producer index < consumer index.
    ///
    /// # Errors
    /// All size faults, or the cycle.
    pub fn checked(mut self) -> Result<Self, Vec<GraphError>> {
        let mut errors = Vec::new();
        for tensor in &self.tensors {
            for use_ in &tensor.consumers {
                let kernel = &self.kernels[use_.kernel];
                let Some((want_rows, want_cols)) = operand_size(kernel, use_.slot) else { continue };
                if (tensor.rows, tensor.cols) != (want_rows, want_cols) {
                    errors.push(GraphError::Size {
                        tensor: tensor.name.clone(),
                        rows: tensor.rows,
                        cols: tensor.cols,
                        kernel: kernel.name.clone(),
                        want_rows,
                        want_cols,
                    });
                }
            }
        }
        errors.extend(self.phase_fault());
        errors.extend(self.chain_faults());
        match self.topological_order() {
            Ok(order) => self.reorder(&order),
            Err(cycle) => errors.push(GraphError::Cycle(cycle)),
        }
        if errors.is_empty() { Ok(self) } else { Err(errors) }
    }

    /// A forward kernel that reads a backward one, if there is one: the forward pass ends before the backward begins.
    pub fn phase_fault(&self) -> Option<GraphError> {
        let is_forward = |k: usize| self.kernels[k].phase == Phase::Forward;
        self.tensors.iter().find_map(|tensor| {
            let producer = tensor.producer.filter(|p| !is_forward(*p))?;
            let reader = tensor.consumers.iter().find(|u| is_forward(u.kernel))?;
            Some(GraphError::Phase {
                reader: self.kernels[reader.kernel].name.clone(),
                tensor: tensor.name.clone(),
                producer: self.kernels[producer].name.clone(),
            })
        })
    }

    fn topological_order(&self) -> Result<Vec<usize>, Vec<String>> {
        let mut waiting = vec![0usize; self.kernels.len()];
        for tensor in &self.tensors {
            if tensor.producer.is_some() {
                for u in &tensor.consumers {
                    waiting[u.kernel] += 1;
                }
            }
        }
        let mut ready: std::collections::BTreeSet<usize> =
            (0..self.kernels.len()).filter(|k| waiting[*k] == 0).collect();
        let mut order = Vec::with_capacity(self.kernels.len());
        let mut made: Vec<Vec<usize>> = vec![Vec::new(); self.kernels.len()];
        for (t, tensor) in self.tensors.iter().enumerate() {
            if let Some(k) = tensor.producer {
                made[k].push(t);
            }
        }
        while let Some(kernel) = ready.pop_first() {
            order.push(kernel);
            for t in &made[kernel] {
                for u in &self.tensors[*t].consumers {
                    waiting[u.kernel] -= 1;
                    if waiting[u.kernel] == 0 {
                        ready.insert(u.kernel);
                    }
                }
            }
        }
        if order.len() == self.kernels.len() {
            return Ok(order);
        }
        // Every kernel still waiting has a waiting predecessor, so walking back through those must close a circle.
        let left: Vec<usize> = (0..self.kernels.len()).filter(|k| waiting[*k] > 0).collect();
        let mut seen = Vec::new();
        let mut at = left[0];
        while !seen.contains(&at) {
            seen.push(at);
            let before = self.tensors.iter().find_map(|t| {
                let producer = t.producer.filter(|p| waiting[*p] > 0)?;
                t.consumers.iter().any(|u| u.kernel == at).then_some(producer)
            });
            match before {
                Some(producer) => at = producer,
                None => break,
            }
        }
        let start = seen.iter().position(|k| *k == at).unwrap_or(0);
        let mut names: Vec<String> = seen[start..].iter().map(|k| self.kernels[*k].name.clone()).collect();
        names.reverse();
        names.push(names[0].clone());
        Err(names)
    }

    fn reorder(&mut self, order: &[usize]) {
        let new_of: HashMap<usize, usize> = order.iter().enumerate().map(|(new, old)| (*old, new)).collect();
        let mut kernels: Vec<Option<Kernel>> = self.kernels.drain(..).map(Some).collect();
        self.kernels = order.iter().filter_map(|old| kernels[*old].take()).collect();
        for kernel in &mut self.kernels {
            if let Some(w) = &mut kernel.weight_of {
                w.kernel = new_of[&w.kernel];
            }
        }
        for tensor in &mut self.tensors {
            tensor.producer = tensor.producer.map(|p| new_of[&p]);
            for u in &mut tensor.consumers {
                u.kernel = new_of[&u.kernel];
            }
        }
    }

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
        let tensors = self
            .tensors
            .iter()
            .map(|tensor| {
                let (rows, cols) = match (tensor.producer, tensor.consumers.first()) {
                    (Some(p), _) => (
                        tensor.rows.div_ceil(parts(p, Axis::Outer) * parts(p, Axis::M)),
                        tensor.cols.div_ceil(parts(p, Axis::N)),
                    ),
                    (None, Some(u)) => operand_size(&kernels[u.kernel], u.slot)
                        .unwrap_or((tensor.rows.div_ceil(rows), tensor.cols.div_ceil(cols))),
                    (None, None) => (tensor.rows, tensor.cols),
                };
                Tensor { rows, cols, ..tensor.clone() }
            })
            .collect();
        Self { kernels, tensors, ..self.clone() }
    }

    /// FLOP of one iteration: all kernels, all layers, all samples, unsharded.
    pub fn flop_per_iteration(&self) -> f64 {
        if self.is_chain() {
            let all: f64 = self.kernels.iter().map(|k| k.flop() * self.repeats(k.block) as f64).sum();
            return all * self.global_batch as f64;
        }
        let layer: f64 = self.kernels.iter().map(Kernel::flop).sum();
        layer * self.repeat as f64 * self.global_batch as f64
    }

    /// Length of the longest chain of kernels of its block before each kernel (its level). DFModel's Kahn rounds.
    pub fn levels(&self) -> Vec<usize> {
        let mut level = vec![0usize; self.kernels.len()];
        let mut made: Vec<Vec<usize>> = vec![Vec::new(); self.kernels.len()];
        for (t, tensor) in self.tensors.iter().enumerate() {
            if let Some(k) = tensor.producer {
                made[k].push(t);
            }
        }
        for k in 0..self.kernels.len() {
            for u in made[k].iter().flat_map(|t| &self.tensors[*t].consumers) {
                if self.kernels[u.kernel].block == self.kernels[k].block {
                    level[u.kernel] = level[u.kernel].max(level[k] + 1);
                }
            }
        }
        level
    }

    /// Index of the kernel called `name`.
    pub fn kernel_index(&self, name: &str) -> Option<usize> {
        self.kernels.iter().position(|k| k.name == name)
    }

    /// Tensors made inside the graph and read inside it: DFModel's edges, each tensor once.
    pub fn internal_tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|t| t.producer.is_some() && !t.consumers.is_empty())
    }

    /// Producer-consumer pairs inside the graph (DFModel's connections).
    pub fn edges(&self) -> usize {
        self.internal_tensors().map(|t| t.consumers.len()).sum()
    }

    /// Bytes of one sample that pass from one layer to the next (forward and, in training, back): what a pipeline
    /// stage sends to its neighbour.
    pub fn carried_bytes(&self) -> f64 {
        self.tensors
            .iter()
            .filter(|t| t.carried_from.is_some())
            .map(|t| t.rows as f64 * t.cols as f64 * self.word_bytes)
            .sum()
    }
}
