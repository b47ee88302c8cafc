//! What the parts of a language model's graph are written with: kernels with the rule of their gradient, tensors by their index.

use super::super::spec::DataType;
use crate::graph::adjoint::{Rule, Saved};
use crate::graph::{Op, Phase, Shape, Slot};
use crate::workload::builder::Builder;

/// The tokens of one sample that go through the layers together, and what each of them sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sequence {
    /// Tokens.
    pub tokens: u64,
    /// Tokens that each of them meets in attention, on average over tokens and layers.
    pub attended: f64,
    /// Whether the tokens before lie in a cache, of which [`Sequence::attended`] is the length.
    pub cached: bool,
    /// Whether there is a backward pass.
    pub training: bool,
}

impl Sequence {
    /// Rows of the scores: what is attended, in whole tokens.
    pub fn seen(&self) -> u64 {
        (self.attended.round() as u64).max(1)
    }
}

/// A forward graph under construction.
pub(super) struct Net {
    /// Kernels and tensors.
    pub b: Builder,
    /// The rule of each kernel.
    pub rules: Vec<Rule>,
    /// The block that kernels are added to.
    pub block: usize,
    /// What tells kernels of this block from those of the same name in others.
    pub suffix: &'static str,
    /// Bytes of an element.
    pub word: f64,
    /// Tokens and what they see.
    pub sequence: Sequence,
    /// Whether activations are dropped.
    pub dropout: bool,
    /// Bytes of an element of the caches.
    pub cache_word: f64,
    /// Replicas that share the experts, of one of which the graph is.
    pub replicas_of_experts: u64,
    /// Tokens of the whole sequence, where the graph is that of one of the replicas that share them (context parallelism).
    pub whole_sequence: Option<u64>,
}

impl Net {
    /// An empty graph.
    pub fn new(word: DataType, cache: DataType, sequence: Sequence, dropout: bool) -> Self {
        Self {
            b: Builder::default(),
            rules: Vec::new(),
            block: 0,
            suffix: "",
            word: word.bytes(),
            sequence,
            dropout,
            cache_word: cache.bytes(),
            replicas_of_experts: 1,
            whole_sequence: None,
        }
    }

    /// Adds a kernel without output.
    pub fn kernel(
        &mut self,
        name: &str,
        op: Op,
        shape: (u64, u64, u64, u64),
        reads: &[(usize, Slot)],
        rule: Rule,
    ) -> usize {
        let k = self.b.bare(format!("{name}{}", self.suffix), op, Phase::Forward, shape);
        self.b.kernels[k].block = self.block;
        for (tensor, slot) in reads {
            self.b.read(k, *tensor, *slot);
        }
        self.rules.push(rule);
        k
    }

    /// Lets a kernel make a tensor of so many rows and columns.
    pub fn out(&mut self, kernel: usize, name: &str, (rows, cols): (u64, u64)) -> usize {
        self.b.tensor(format!("{name}{}.out", self.suffix), rows, cols, Some(kernel))
    }

    /// Adds a kernel and its output, and gives the output.
    pub fn one(
        &mut self,
        name: &str,
        op: Op,
        shape: (u64, u64, u64, u64),
        reads: &[(usize, Slot)],
        rule: Rule,
    ) -> usize {
        let k = self.kernel(name, op, shape, reads, rule);
        self.out(k, name, (shape.0 * shape.1, shape.3))
    }

    /// Linear maps of one input, as one product whose output comes in parts.
    pub fn product(
        &mut self,
        name: &str,
        parts: &[(&str, u64)],
        (deep, n): (u64, u64),
        inputs: &[usize],
    ) -> Vec<usize> {
        let rows = parts.iter().map(|(_, rows)| rows).sum();
        let reads: Vec<(usize, Slot)> = inputs.iter().map(|t| (*t, Slot::Rhs)).collect();
        let k = self.kernel(name, Op::GemmWeight, (1, rows, deep, n), &reads, Rule::Product);
        parts.iter().map(|(part, rows)| self.out(k, part, (*rows, n))).collect()
    }

    /// A linear map.
    pub fn linear(&mut self, name: &str, rows: u64, deep: u64, input: usize) -> usize {
        let n = self.b.tensors[input].cols;
        self.product(name, &[(name, rows)], (deep, n), &[input])[0]
    }

    /// A normalisation of `outer` groups of `width` channels.
    pub fn norm(&mut self, name: &str, (outer, width): (u64, u64), x: usize) -> usize {
        let n = self.b.tensors[x].cols;
        self.one(name, Op::Norm, (outer, width, 1, n), &[(x, Slot::Data)], Rule::Same(Saved::Inputs))
    }

    /// A sum of tensors of one size.
    pub fn sum(&mut self, name: &str, parts: &[usize]) -> usize {
        let (rows, cols) = (self.b.tensors[parts[0]].rows, self.b.tensors[parts[0]].cols);
        let reads: Vec<(usize, Slot)> = parts.iter().map(|t| (*t, Slot::Data)).collect();
        self.one(name, Op::Elementwise, (1, rows, 1, cols), &reads, Rule::Sum)
    }

    /// A dropout where there is one: its mask is kept, in a byte an element.
    pub fn drop(&mut self, name: &str, outer: u64, x: usize) -> usize {
        if !(self.dropout && self.sequence.training) {
            return x;
        }
        let (rows, cols) = (self.b.tensors[x].rows, self.b.tensors[x].cols);
        let shape = (outer, rows / outer, 1, cols);
        let k = self.kernel(name, Op::Elementwise, shape, &[(x, Slot::Data)], Rule::Constant);
        let out = self.out(k, name, (rows, cols));
        let size = self.in_words((rows, cols), 1.0);
        let mask = self.out(k, &format!("{name}.mask"), size);
        self.rules[k] = Rule::Same(Saved::Tensor(mask, Slot::Aligned));
        out
    }

    /// Rows and columns, in words, of a tensor whose elements have `bytes` each.
    pub fn in_words(&self, (rows, cols): (u64, u64), bytes: f64) -> (u64, u64) {
        let scaled = |size: u64| size as f64 * bytes / self.word;
        let whole = |x: f64| x >= 1.0 && x.fract() == 0.0;
        if !whole(scaled(cols)) && whole(scaled(rows)) {
            return (scaled(rows) as u64, cols);
        }
        (rows, scaled(cols).ceil() as u64)
    }

    /// States the FLOP of the kernel that made a tensor.
    pub fn work(&mut self, tensor: usize, flop: f64) {
        if let Some(k) = self.b.tensors[tensor].producer {
            self.b.kernels[k].flop = Some(flop);
        }
    }
}

/// The shape of a kernel.
pub(super) fn shape((outer, m, k, n): (u64, u64, u64, u64)) -> Shape {
    Shape { outer, m, k, n }
}
