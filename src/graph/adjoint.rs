//! The backward pass of a forward graph: for each forward kernel the kernels of its gradients, and the tensors that these read.
//!
//! A forward kernel comes with a [`Rule`]. The gradient of a tensor is the sum of what its readers give back (one kernel
//! `T_grad` where there are several). What a backward kernel reads of the forward pass is an edge of the graph: the tensors that
//! cross from one phase to the other are what is kept.
//!
//! Products. With Y = W X of a weight W (m x k) and X (k x n):
//!
//! ```text
//! NAME_bwd   dX (k x n) = W^T dY                 2 m k n FLOP   W is the forward kernel's
//! NAME_upd   dW (k x m) = X dY^T, over the n     2 m k n FLOP   rows are the input features, columns the output features
//! ```
//!
//! and with Y = L R of two tensors dR = L^T dY and dL = dY R^T, each of as many FLOP as the forward product. A stationary operand that g
//! problems share has the sum over the g as its gradient (`NAME_sum`). Operands may come in parts (queries, keys and values of one product): their
//! rows add up.

use super::{Axis, Kernel, Op, Phase, Shape, Slot, Tensor, Use, WeightOf};
use std::collections::BTreeMap;

/// How the gradient of a forward kernel is computed.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// A sum: every input's gradient is the output's, and nothing is computed.
    Sum,
    /// A matrix product ([`Op::GemmWeight`], [`Op::Gemm`]).
    Product,
    /// One kernel of the forward kernel's operation and shape, that reads the output's gradient and what is saved.
    Same(Saved),
    /// One kernel of another shape: a tensor is scattered where the forward kernel gathers.
    Other {
        /// Its iteration space.
        shape: Shape,
        /// As which operand it reads the output's gradient.
        gradient: Slot,
        /// What it reads besides.
        saved: Vec<(usize, Slot)>,
        /// The inputs whose gradients it makes.
        to: Vec<usize>,
    },
    /// A look-up: the gradient is added to the rows of the table that were looked up.
    LookUp,
    /// No gradient goes through it.
    Constant,
}

/// What the backward kernel of a kernel reads beside the gradient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saved {
    /// Nothing: a linear function.
    Nothing,
    /// The inputs: norms, activations, gates.
    Inputs,
    /// The (first) output: softmax.
    Output,
    /// A tensor made for this: a dropout's mask, the probabilities of a loss. Nothing else, nor a gradient of the output if there is none.
    Tensor(usize, Slot),
}

/// A graph whose backward pass is being written.
pub struct Adjoint<'a> {
    /// Kernels: forward ones, to which backward ones are added.
    pub kernels: &'a mut Vec<Kernel>,
    /// Tensors.
    pub tensors: &'a mut Vec<Tensor>,
    /// Rules of the forward kernels, by their index.
    pub rules: &'a [Rule],
    /// Contributions to the gradient of each forward tensor.
    given: BTreeMap<usize, Vec<usize>>,
}

impl<'a> Adjoint<'a> {
    /// For kernels of which the first `rules.len()` have rules.
    pub fn new(kernels: &'a mut Vec<Kernel>, tensors: &'a mut Vec<Tensor>, rules: &'a [Rule]) -> Self {
        Self { kernels, tensors, rules, given: BTreeMap::new() }
    }

    /// States that `gradient` is (a part of) the gradient of `tensor`.
    pub fn seed(&mut self, tensor: usize, gradient: usize) {
        self.given.entry(tensor).or_default().push(gradient);
    }

    /// Writes the backward kernels of the forward kernels `range` (in the order in which they were written), last first, and gives the gradient of
    /// `input`, where there is one.
    pub fn backward(&mut self, range: std::ops::Range<usize>, input: Option<usize>) -> Option<usize> {
        for k in range.rev() {
            let made: Vec<usize> = (0..self.tensors.len()).filter(|t| self.tensors[*t].producer == Some(k)).collect();
            let gradients: Vec<usize> = made.iter().filter_map(|t| self.gradient(*t)).collect();
            match self.rules[k].clone() {
                Rule::Constant => {}
                Rule::Sum => {
                    for input in self.differentiable(k) {
                        gradients.iter().for_each(|g| self.seed(input, *g));
                    }
                }
                Rule::Product if gradients.is_empty() => {}
                Rule::Product if self.kernels[k].op == Op::GemmWeight => self.weight_product(k, &gradients),
                Rule::Product => self.tensor_product(k, &gradients),
                Rule::LookUp => self.look_up(k, &gradients),
                Rule::Same(saved) => self.same(k, &made, &gradients, &saved),
                Rule::Other { shape, gradient, saved, to } => {
                    if gradients.is_empty() {
                        continue;
                    }
                    let reads: Vec<(usize, Slot)> = gradients.iter().map(|g| (*g, gradient)).chain(saved).collect();
                    let name = format!("{}_bwd", self.kernels[k].name);
                    let bwd = self.kernel(name, self.kernels[k].op, Phase::BackwardInput, shape, k, &reads);
                    self.gradients_of(bwd, &to);
                }
            }
        }
        input.and_then(|t| self.gradient(t))
    }

    /// The gradient of a tensor: what its only reader gave back, or their sum.
    fn gradient(&mut self, tensor: usize) -> Option<usize> {
        let parts = self.given.get(&tensor)?.clone();
        if let [one] = parts[..] {
            return Some(one);
        }
        let of = self.tensors[tensor].clone();
        let reader = self.tensors[tensor].consumers.first().map_or(0, |u| u.kernel);
        let name = format!("{}_grad", of.name.trim_end_matches(".out"));
        let shape = Shape { outer: 1, m: of.rows, k: 1, n: of.cols };
        let reads: Vec<(usize, Slot)> = parts.iter().map(|t| (*t, Slot::Data)).collect();
        let sum = self.kernel(name.clone(), Op::Elementwise, Phase::BackwardInput, shape, reader, &reads);
        let made = self.tensor(format!("{name}.out"), (of.rows, of.cols), sum);
        self.given.insert(tensor, vec![made]);
        Some(made)
    }

    /// Inputs of a kernel that have gradients: made by kernels, or carried from the repetition before.
    fn differentiable(&self, k: usize) -> Vec<usize> {
        let read = |t: &&usize| self.tensors[**t].consumers.iter().any(|u| u.kernel == k);
        let has = |t: &usize| {
            let tensor = &self.tensors[*t];
            tensor.carried_from.is_some()
                || tensor.producer.is_some_and(|p| self.rules.get(p).is_none_or(|r| *r != Rule::Constant))
        };
        (0..self.tensors.len()).collect::<Vec<_>>().iter().filter(read).copied().filter(has).collect()
    }

    fn slot(&self, tensor: usize, k: usize) -> Slot {
        self.tensors[tensor].consumers.iter().find(|u| u.kernel == k).map_or(Slot::Data, |u| u.slot)
    }

    /// Inputs of a kernel, in the order in which they were written.
    fn inputs(&self, k: usize) -> Vec<(usize, Slot)> {
        let of = |(t, tensor): (usize, &Tensor)| tensor.consumers.iter().find(|u| u.kernel == k).map(|u| (t, u.slot));
        self.tensors.iter().enumerate().filter_map(of).collect()
    }

    /// Adds a kernel in the block of the forward kernel `of`.
    fn kernel(
        &mut self,
        name: String,
        op: Op,
        phase: Phase,
        shape: Shape,
        of: usize,
        reads: &[(usize, Slot)],
    ) -> usize {
        let tiled = if phase == Phase::BackwardWeight { Axis::K } else { Axis::N };
        let block = self.kernels[of].block;
        self.kernels.push(Kernel { name, op, phase, shape, tiled, block, ..Kernel::default() });
        let kernel = self.kernels.len() - 1;
        for (tensor, slot) in reads {
            self.tensors[*tensor].consumers.push(Use { kernel, slot: *slot });
        }
        kernel
    }

    fn tensor(&mut self, name: String, (rows, cols): (u64, u64), producer: usize) -> usize {
        self.tensors.push(Tensor::new(name, rows, cols, Some(producer)));
        self.tensors.len() - 1
    }

    /// Lets `kernel` make a gradient for each of the tensors.
    fn gradients_of(&mut self, kernel: usize, tensors: &[usize]) {
        for (i, t) in tensors.iter().enumerate() {
            let size = (self.tensors[*t].rows, self.tensors[*t].cols);
            let part = if i == 0 { String::new() } else { format!("{}", i + 1) };
            let name = format!("{}.out{part}", self.kernels[kernel].name);
            let made = self.tensor(name, size, kernel);
            self.seed(*t, made);
        }
    }

    /// The gradients of a product with a weight. Problems side by side (experts) have operands of their own.
    fn weight_product(&mut self, k: usize, gradients: &[usize]) {
        let forward = self.kernels[k].clone();
        let Shape { outer, m, k: deep, n } = forward.shape;
        let own = outer > 1;
        let to = self.differentiable(k);
        if !to.is_empty() {
            let slot = if own { Slot::Aligned } else { Slot::Rhs };
            let reads: Vec<(usize, Slot)> = gradients.iter().map(|g| (*g, slot)).collect();
            let shape = Shape { outer, m: deep, k: m, n };
            let name = format!("{}_bwd", forward.name);
            let bwd = self.kernel(name, Op::GemmWeight, Phase::BackwardInput, shape, k, &reads);
            self.kernels[bwd].weight_of = Some(WeightOf { kernel: k });
            self.kernels[bwd].flop = forward.flop;
            self.gradients_of(bwd, &to);
        }
        let mut reads: Vec<(usize, Slot)> = gradients.iter().map(|g| (*g, Slot::RhsT)).collect();
        reads.extend(self.inputs(k).into_iter().map(|(t, _)| (t, Slot::Lhs)));
        let shape = Shape { outer, m: deep, k: n, n: m };
        let name = format!("{}_upd", forward.name);
        let upd = self.kernel(name.clone(), Op::Gemm, Phase::BackwardWeight, shape, k, &reads);
        self.kernels[upd].weight_of = Some(WeightOf { kernel: k });
        self.kernels[upd].flop = forward.flop;
        self.tensor(format!("{name}.out"), (outer * deep, m), upd);
    }

    /// The gradients of a product of two tensors.
    fn tensor_product(&mut self, k: usize, gradients: &[usize]) {
        let forward = self.kernels[k].clone();
        let Shape { outer, m, k: deep, n } = forward.shape;
        let Some(dy) = gradients.first().copied() else { return };
        let inputs = self.inputs(k);
        let Some((left, held)) = inputs.iter().copied().find(|(_, slot)| slot.is_stationary()) else { return };
        let Some((right, _)) = inputs.iter().copied().find(|(_, slot)| *slot == Slot::Rhs) else { return };
        let turned = if held == Slot::Lhs { Slot::LhsT } else { Slot::Lhs };
        let shape = Shape { outer, m: deep, k: m, n };
        let reads = [(dy, Slot::Rhs), (left, turned)];
        let bwd = self.kernel(format!("{}_bwd_R", forward.name), Op::Gemm, Phase::BackwardInput, shape, k, &reads);
        self.kernels[bwd].lhs_shared = forward.lhs_shared;
        self.kernels[bwd].flop = forward.flop;
        self.gradients_of(bwd, &[right]);
        // Held as it stands dL = dY R^T, held transposed dL^T = R dY^T.
        let (shape, reads) = if held == Slot::Lhs {
            (Shape { outer, m, k: n, n: deep }, [(dy, Slot::Lhs), (right, Slot::RhsT)])
        } else {
            (Shape { outer, m: deep, k: n, n: m }, [(right, Slot::Lhs), (dy, Slot::RhsT)])
        };
        let name = format!("{}_bwd_L", forward.name);
        let bwd = self.kernel(name.clone(), Op::Gemm, Phase::BackwardInput, shape, k, &reads);
        self.kernels[bwd].flop = forward.flop;
        let shared = forward.lhs_shared.max(1);
        if shared == 1 {
            self.gradients_of(bwd, &[left]);
            return;
        }
        let (rows, cols) = (self.tensors[left].rows, self.tensors[left].cols);
        let each = self.tensor(format!("{name}.out"), (rows * shared, cols), bwd);
        // Rows of one group lie on one chip (or few). Where one operand is shared by all problems it is a product with a row of unit matrices:
        // what other chips have is a partial sum.
        let (op, deep, slot) =
            if outer > shared { (Op::Elementwise, 1, Slot::Aligned) } else { (Op::Gemm, shared * rows, Slot::Rhs) };
        let shape = Shape { outer: 1, m: rows, k: deep, n: cols };
        let sum = self.kernel(format!("{}_sum", forward.name), op, Phase::BackwardInput, shape, k, &[(each, slot)]);
        self.kernels[sum].flop = Some((rows * shared) as f64 * cols as f64);
        self.gradients_of(sum, &[left]);
    }

    /// One kernel of the same shape.
    fn same(&mut self, k: usize, made: &[usize], gradients: &[usize], saved: &Saved) {
        let to = self.differentiable(k);
        let starts = matches!(saved, Saved::Tensor(..));
        if to.is_empty() || (gradients.is_empty() && !starts) {
            return;
        }
        let forward = self.kernels[k].clone();
        let mut reads: Vec<(usize, Slot)> = gradients.iter().map(|g| (*g, Slot::Data)).collect();
        match saved {
            Saved::Nothing => {}
            Saved::Inputs => reads.extend(to.iter().map(|t| (*t, self.slot(*t, k)))),
            Saved::Output => reads.extend(made.first().map(|t| (*t, Slot::Data))),
            Saved::Tensor(t, slot) => reads.push((*t, *slot)),
        }
        let name = format!("{}_bwd", forward.name);
        let bwd = self.kernel(name, forward.op, Phase::BackwardInput, forward.shape, k, &reads);
        self.kernels[bwd].flop = forward.flop;
        self.gradients_of(bwd, &to);
    }

    /// The rows of a table that were looked up.
    fn look_up(&mut self, k: usize, gradients: &[usize]) {
        let forward = self.kernels[k].clone();
        let Shape { m, k: words, n, .. } = forward.shape;
        if gradients.is_empty() {
            return;
        }
        let mut reads = self.inputs(k);
        reads.extend(gradients.iter().map(|g| (*g, Slot::RhsT)));
        let shape = Shape { outer: 1, m: words, k: n, n: m };
        let name = format!("{}_upd", forward.name);
        let upd = self.kernel(name.clone(), Op::Gemm, Phase::BackwardWeight, shape, k, &reads);
        let kernel = &mut self.kernels[upd];
        kernel.weight_of = Some(WeightOf { kernel: k });
        kernel.lookup = true;
        kernel.flop = forward.flop;
        // Rows are read and written.
        kernel.extra_dram_bytes = 2.0 * forward.extra_dram_bytes;
        self.tensor(format!("{name}.out"), (words, m), upd);
    }
}
