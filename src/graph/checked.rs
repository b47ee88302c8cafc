//! The checks of a graph: sizes, phases, blocks, and a topological order.

use super::Workload;
use super::kernel::{Axis, Kernel, Op, Phase};
use super::tensor::{Slot, operand_size};
use std::collections::{HashMap, HashSet};

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

impl Workload {
    /// Checks sizes and orders the kernels topologically (stable: of the ready kernels the earliest written goes
    /// first), so that later code may rely on producer index < consumer index.
    ///
    /// # Errors
    /// All size faults, or the cycle.
    pub fn checked(mut self) -> Result<Self, Vec<GraphError>> {
        let mut errors = Vec::new();
        // What nobody reads is not handed on to the next layer.
        self.tensors
            .iter_mut()
            .filter(|tensor| tensor.consumers.is_empty())
            .for_each(|tensor| tensor.carried_from = None);
        let in_parts = self.operands_in_parts();
        for tensor in &self.tensors {
            for use_ in &tensor.consumers {
                let kernel = &self.kernels[use_.kernel];
                let Some((want_rows, want_cols)) = operand_size(kernel, use_.slot) else { continue };
                // A stationary operand of which a mask leaves only a part has more columns than the product meets.
                let masked = kernel.op == Op::Gemm && kernel.flop.is_some() && use_.slot.is_stationary();
                let cols_fit = tensor.cols == want_cols || (masked && tensor.cols > want_cols);
                if !cols_fit || (tensor.rows != want_rows && !in_parts.contains(&(use_.kernel, use_.slot, want_rows))) {
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
        for tensor in &self.tensors {
            for u in tensor.consumers.iter().filter(|u| u.slot == Slot::RhsT) {
                let kernel = &mut self.kernels[u.kernel];
                kernel.accumulates = kernel.is_gemm() && kernel.tiled == Axis::N;
            }
        }
        match self.topological_order() {
            Ok(order) => self.reorder(&order),
            Err(cycle) => errors.push(GraphError::Cycle(cycle)),
        }
        if errors.is_empty() { Ok(self) } else { Err(errors) }
    }

    /// Operands of products that come as several tensors, and how many rows these have together.
    fn operands_in_parts(&self) -> HashSet<(usize, Slot, u64)> {
        let mut rows: HashMap<(usize, Slot), u64> = HashMap::new();
        for tensor in &self.tensors {
            for u in tensor.consumers.iter().filter(|u| self.kernels[u.kernel].is_gemm()) {
                let sum = rows.entry((u.kernel, u.slot)).or_default();
                *sum = sum.saturating_add(tensor.rows);
            }
        }
        rows.into_iter().map(|((kernel, slot), rows)| (kernel, slot, rows)).collect()
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
}
