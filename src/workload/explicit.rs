//! Graphs written out kernel by kernel.

use crate::graph::{
    Axis, Block, Collective, CollectiveKind, Divided, Kernel, Op, Phase, Scope, Shape, Slot, Tensor, Use, WeightOf,
    Workload,
};
use crate::spec::{Node, Origin, Problem, Problems, Reader, Value};
use crate::units::{Bytes, Flop};
use std::collections::HashMap;

crate::choice! {
    /// The word `graph`.
    pub enum Kind ("a kind of workload") {
        /// A graph written out.
        Graph = "graph",
    }
}

crate::spec! {
    /// A graph of kernels and tensors, written out. Tensors are named by the kernels that write and read them.
    pub struct GraphSpec ("a graph", check: check) {
        /// The word `graph`.
        kind: Kind,
        /// Name for rows and titles.
        name: String,
        /// Where the sizes come from.
        source: String,
        /// Bytes of one element.
        word: Bytes = Bytes(2.0),
        /// Whether weights are updated (gradients reduced over data parallel ranks, optimiser states held).
        training: bool = false,
        /// How many identical copies of the graph follow each other.
        repeat: u64 = 1,
        /// Parts of the graph that are repeated by themselves, one after the other (embedding, layers, head), instead of
        /// `repeat`; every kernel then names its block.
        blocks: Vec<BlockSpec> = Vec::new(),
        /// With blocks: tensors that a block gets from the block before (backward: from the one after), and from its own
        /// repetition before where it has one.
        carried: Vec<CarriedSpec> = Vec::new(),
        /// Samples of one iteration.
        global_batch: u64,
        /// Samples of one microbatch.
        micro_batch: u64 = 1,
        /// Tokens of one sample, where a sample has some.
        tokens_per_sample: Option<u64>,
        /// Bytes that all chips together hold through the run beside weights (tables, a matrix).
        held: Bytes = Bytes(0.0),
        /// Tensors that come from outside.
        inputs: Vec<InputSpec> = Vec::new(),
        /// Names of tensors that leave the graph.
        outputs: Vec<String> = Vec::new(),
        /// The kernels.
        kernels: Vec<KernelSpec>,
    }
}

crate::spec! {
    /// A part of a graph that is repeated by itself.
    pub struct BlockSpec ("a block") {
        /// Its name.
        name: String,
        /// Its repetitions.
        repeat: u64 = 1,
    }
}

crate::spec! {
    /// A tensor that one block hands to the next, and every repetition of that to its own next one.
    pub struct CarriedSpec ("a tensor carried on") {
        /// The tensor that the first repetition reads.
        tensor: String,
        /// The tensor that the others read instead, of the repetition before.
        from: String,
    }
}

crate::spec! {
    /// A tensor that comes from outside.
    pub struct InputSpec ("an input tensor", check: check_input) {
        /// Its name.
        name: String,
        /// Rows (features, channels).
        rows: u64,
        /// Columns (tokens, pixels) of one sample.
        cols: u64,
        /// The tensor of the previous repetition that it is.
        carried_from: Option<String>,
        /// Bytes of one of its elements (indices, masks); left out: those of the graph.
        word: Option<Bytes>,
    }
}

crate::spec! {
    /// A tensor that a kernel writes, with its own size.
    pub struct PartSpec ("a tensor written", check: check_part) {
        /// Its name.
        name: String,
        /// Rows.
        rows: u64,
        /// Columns of one sample.
        cols: u64,
        /// Bytes of one of its elements (statistics); left out: those of the graph.
        word: Option<Bytes>,
    }
}

crate::spec! {
    /// One kernel. Sizes are those of one sample on one chip.
    pub struct KernelSpec ("a kernel", check: check_kernel) {
        /// Unique name.
        name: String,
        /// What it computes.
        op: Op,
        /// Independent problems side by side (heads, groups).
        outer: u64 = 1,
        /// Rows of one problem's output.
        m: u64,
        /// Contracted size (GEMMs only).
        k: Option<u64>,
        /// Columns of the output.
        n: u64,
        /// Kernel area of a convolution written as an implicit GEMM (9 for 3 x 3): `rhs` then has k / window rows.
        window: u64 = 1,
        /// Phase of training.
        phase: Phase = Phase::Forward,
        /// Tensors read by an elementwise, norm or opaque kernel: each `outer*m` x `n`.
        inputs: Vec<String> = Vec::new(),
        /// Tensors that lie along the kernel's rows and columns but have another number of one of them (statistics of
        /// rows, parts to be joined).
        aligned: Vec<String> = Vec::new(),
        /// Streamed operand of a GEMM, `k` x `n` (`k / window` x `n`).
        rhs: Option<String>,
        /// Whether `rhs` is held transposed, `n` x `k`.
        rhs_transposed: bool = false,
        /// Stationary operand of a `gemm`, `m` x `k`.
        lhs: Option<String>,
        /// Whether `lhs` is held transposed, `k` x `m`.
        lhs_transposed: bool = false,
        /// Name of the tensor written: `outer*m` x `n`.
        output: Option<String>,
        /// Tensors written instead of, or besides, `output`, with their sizes: the parts of an output that is read in parts, or
        /// further results.
        parts: Vec<PartSpec> = Vec::new(),
        /// Bytes of one element that it computes with, of its `output`, and of its weight where it has one; left out: those of the graph. It runs at the
        /// peak of this type where the chip's kernels state peaks by type.
        word: Option<Bytes>,
        /// FLOP of one sample: of opaque kernels, of elementwise and norm kernels that do not spend one an element, and of products of two tensors of which
        /// a mask leaves some out.
        flop: Option<Flop>,
        /// DRAM bytes of one sample beyond tensors and weights.
        extra_dram: Bytes = Bytes(0.0),
        /// Whether `extra_dram` is what each chip moves, however the kernel is shared (DFModel's `memory_size`), instead of the whole kernel's.
        extra_dram_on_each: bool = false,
        /// Whether a chip may have a part of one of the `outer` problems, as in DFModel where chips do not divide the heads. For DFModel's
        /// rules of layout alone: ours would have to add communication.
        outer_cut: bool = false,
        /// Pieces of the contraction that libraries compute side by side and add up, on chips that compute by waves.
        splits: u64 = 1,
        /// Tensors of any shape that it reads whole: transposed views, slices.
        views: Vec<String> = Vec::new(),
        /// Collectives it makes by itself.
        collectives: Vec<CollectiveSpec> = Vec::new(),
        /// For backward kernels: the forward kernel whose weight it uses or whose gradient it computes.
        weight_of: Option<String>,
        /// Its block, where the graph has some.
        block: Option<String>,
        /// Of op gemm_weight, or of its weight gradient: rows of the weight are looked up (or added to), not multiplied: a table
        /// of embeddings. `k` is the table's length, `views` names the indices; `extra_dram` states what is moved.
        lookup: bool = false,
    }
}

crate::spec! {
    /// A collective that a kernel makes by itself.
    pub struct CollectiveSpec ("a collective") {
        /// Which.
        kind: CollectiveKind,
        /// Bytes of the whole tensor of one sample.
        size: Bytes,
        /// Among which chips.
        scope: Scope = Scope::Tensor,
        /// How many times, one after another.
        times: u64 = 1,
    }
}

impl CollectiveSpec {
    fn collective(&self) -> Collective {
        Collective { kind: self.kind, bytes: self.size.0, scope: self.scope, times: self.times }
    }
}

/// Largest size along one axis, so that products of three stay exact enough in `f64` and never overflow `u64`.
const MAX_SIZE: u64 = 1 << 31;

/// What a size of one element must be.
const WORD: &str = "expected a size above 0 B and at most 64 B";

fn word_fits(word: Bytes) -> bool {
    word.0 > 0.0 && word.0 <= 64.0
}

fn check_input(input: &InputSpec, node: &Node, reader: &mut Reader) {
    check_word(input.word, node, reader);
}

fn check_part(part: &PartSpec, node: &Node, reader: &mut Reader) {
    check_word(part.word, node, reader);
}

fn check_word(word: Option<Bytes>, node: &Node, reader: &mut Reader) {
    if word.is_some_and(|w| !word_fits(w)) {
        reader.within("word", |r| r.problem(node.get("word").unwrap_or(node), WORD));
    }
}

fn check_kernel(kernel: &KernelSpec, node: &Node, reader: &mut Reader) {
    let gemm = matches!(kernel.op, Op::Gemm | Op::GemmWeight);
    for (field, value) in [("outer", kernel.outer), ("m", kernel.m), ("n", kernel.n), ("k", kernel.k.unwrap_or(1))] {
        if value > MAX_SIZE {
            let at = node.get(field).unwrap_or(node);
            reader.within(field, |r| r.problem(at, format!("expected at most {MAX_SIZE}, found {value}")));
        }
    }
    let mut say = |field: &str, message: &str| {
        let at = node.get(field).unwrap_or(node).clone();
        reader.within(field, |r| r.problem(&at, message));
    };
    match (gemm, kernel.k) {
        (true, None) => say("k", "missing; a GEMM contracts over k"),
        (false, Some(_)) => say("k", "only a GEMM has a contracted size"),
        _ => {}
    }
    if kernel.window > 1 && (!gemm || !kernel.k.unwrap_or(1).is_multiple_of(kernel.window)) {
        say("window", "only a GEMM has a window, and its k is a multiple of it");
    }
    if kernel.window > 1 && kernel.rhs_transposed {
        say("window", "the streamed operand of a convolution is not transposed");
    }
    if gemm && !kernel.inputs.is_empty() {
        say("inputs", "a GEMM reads rhs (and lhs), not inputs");
    }
    if gemm && kernel.rhs.is_none() && kernel.views.is_empty() {
        say("rhs", "missing; a GEMM reads a tensor of k x n");
    }
    if kernel.op == Op::Gemm && kernel.lhs.is_none() && kernel.views.is_empty() {
        say("lhs", "missing; op gemm multiplies two tensors (op gemm_weight has a weight instead)");
    }
    if kernel.op != Op::Gemm && kernel.lhs.is_some() {
        say("lhs", "only op gemm has a second tensor");
    }
    if !gemm && kernel.rhs.is_some() {
        say("rhs", "only a GEMM has rhs; this operation reads inputs");
    }
    if kernel.op == Op::Opaque && kernel.flop.is_none() {
        say("flop", "missing; op opaque states its flop");
    }
    if kernel.word.is_some_and(|w| !word_fits(w)) {
        say("word", WORD);
    }
    let table = kernel.op == Op::GemmWeight && kernel.phase == Phase::Forward;
    if kernel.lookup && !table && kernel.phase != Phase::BackwardWeight {
        say(
            "lookup",
            "only a gemm_weight looks rows of its weight up, and the kernel of its weight gradient adds to them",
        );
    }
    let whole = 2.0 * kernel.outer as f64 * kernel.m as f64 * kernel.k.unwrap_or(1) as f64 * kernel.n as f64;
    let masked = |flop: f64| kernel.op == Op::Gemm && flop > 0.0 && flop <= whole;
    if gemm && !kernel.lookup && kernel.flop.is_some_and(|flop| !masked(flop.0)) {
        say("flop", "the flop of a GEMM follow from its sizes; one of two tensors may have fewer (a mask), and some");
    }
    if kernel.output.is_none() && kernel.parts.is_empty() {
        say("output", "missing; expected the name of the tensor written, or parts");
    }
    if kernel.weight_of.is_some() && (kernel.phase == Phase::Forward || !gemm) {
        say("weight_of", "only a GEMM of a backward phase refers to the weight of another kernel");
    }
    if kernel.phase == Phase::BackwardWeight && kernel.op != Op::Gemm {
        say("phase", "a weight gradient is an op gemm of two tensors");
    }
}

fn check(spec: &GraphSpec, node: &Node, reader: &mut Reader) {
    super::spec::check_batches(spec.global_batch, spec.micro_batch, spec.word, node, reader);
    if spec.kernels.is_empty() {
        reader.within("kernels", |r| {
            r.problem(node.get("kernels").unwrap_or(node), "expected at least one kernel, found an empty list")
        });
    }
    if spec.kernels.len() > 100_000 {
        reader.within("kernels", |r| r.problem(node, "expected at most 100000 kernels"));
    }
}

impl GraphSpec {
    /// Resolves names to indices.
    ///
    /// # Errors
    /// All duplicate names, tensors without producer, unknown names.
    pub fn build(&self, node: &Node) -> Result<Workload, Problems> {
        let mut problems = Vec::new();
        let kernel_origin = |i: usize| match node.get("kernels").map(|n| &n.value) {
            Some(Value::List(items)) => items.get(i).map_or(node.origin.clone(), |n| n.origin.clone()),
            _ => node.origin.clone(),
        };
        let key_origin = |key: &str| node.get(key).map_or(node.origin.clone(), |n| n.origin.clone());
        let mut say = |origin: Origin, field: String, message: String| {
            problems.push(Problem { origin, field, message });
        };

        let mut kernel_of: HashMap<&str, usize> = HashMap::new();
        for (i, kernel) in self.kernels.iter().enumerate() {
            if let Some(first) = kernel_of.insert(&kernel.name, i) {
                let line = kernel_origin(first).line;
                say(
                    kernel_origin(i),
                    format!("kernels.[{i}].name"),
                    format!("duplicate name {:?} (first on line {line})", kernel.name),
                );
            }
        }
        let mut tensors: Vec<Tensor> = Vec::new();
        let mut tensor_of: HashMap<&str, usize> = HashMap::new();
        for (i, input) in self.inputs.iter().enumerate() {
            if tensor_of.insert(&input.name, tensors.len()).is_some() {
                say(
                    key_origin("inputs"),
                    format!("inputs.[{i}].name"),
                    format!("duplicate tensor name {:?}", input.name),
                );
            }
            let word = input.word.map(|w| w.0);
            tensors.push(Tensor { word, ..Tensor::new(&input.name, input.rows, input.cols, None) });
        }
        for (i, kernel) in self.kernels.iter().enumerate() {
            let size = (kernel.outer * kernel.m, kernel.n);
            let whole = kernel.output.iter().map(|name| (name, "output", size, kernel.word));
            for (name, field, (rows, cols), word) in
                whole.chain(kernel.parts.iter().map(|p| (&p.name, "parts", (p.rows, p.cols), p.word)))
            {
                if tensor_of.insert(name, tensors.len()).is_some() {
                    say(
                        kernel_origin(i),
                        format!("kernels.[{i}].{field}"),
                        format!("tensor {name:?} has two producers"),
                    );
                }
                let word = word.map(|w| w.0);
                tensors.push(Tensor { word, ..Tensor::new(name, rows, cols, Some(i)) });
            }
        }
        let mut block_of: HashMap<&str, usize> = HashMap::new();
        for (i, block) in self.blocks.iter().enumerate() {
            if block_of.insert(&block.name, i).is_some() {
                say(key_origin("blocks"), format!("blocks.[{i}].name"), format!("duplicate name {:?}", block.name));
            }
            if block.repeat > crate::graph::chain::MOST_UNITS {
                let message = format!("expected at most {}, found {}", crate::graph::chain::MOST_UNITS, block.repeat);
                say(key_origin("blocks"), format!("blocks.[{i}].repeat"), message);
            }
        }
        if !self.blocks.is_empty() && node.get("repeat").is_some() {
            say(key_origin("repeat"), "repeat".into(), "each block has a repeat of its own".into());
        }
        let mut kernels = Vec::new();
        for (i, spec) in self.kernels.iter().enumerate() {
            let block = spec.block.as_deref().map(|name| block_of.get(name).copied());
            let names: Vec<&str> = self.blocks.iter().map(|b| b.name.as_str()).collect();
            let fault = match (block, &spec.block) {
                (Some(None), Some(name)) if names.is_empty() => Some(format!("there are no blocks, found {name:?}")),
                (Some(None), Some(name)) => Some(match crate::spec::nearest::nearest(name, &names) {
                    Some(near) => format!("there is no block {name:?}; did you mean {near:?}?"),
                    None => format!("there is no block {name:?}"),
                }),
                (None, _) if !names.is_empty() => Some(format!("missing; expected one of {}", names.join(", "))),
                _ => None,
            };
            if let Some(message) = fault {
                say(kernel_origin(i), format!("kernels.[{i}].block"), message);
            }
            let mut read: Vec<(&str, &str, Slot)> =
                spec.inputs.iter().map(|t| (t.as_str(), "inputs", Slot::Data)).collect();
            read.extend(spec.views.iter().map(|t| (t.as_str(), "views", Slot::View)));
            read.extend(spec.aligned.iter().map(|t| (t.as_str(), "aligned", Slot::Aligned)));
            if let Some(rhs) = &spec.rhs {
                read.push((rhs, "rhs", if spec.rhs_transposed { Slot::RhsT } else { Slot::Rhs }));
            }
            if let Some(lhs) = &spec.lhs {
                read.push((lhs, "lhs", if spec.lhs_transposed { Slot::LhsT } else { Slot::Lhs }));
            }
            for (name, field, slot) in read {
                match tensor_of.get(name) {
                    Some(t) => tensors[*t].consumers.push(Use { kernel: i, slot }),
                    None => say(
                        kernel_origin(i),
                        format!("kernels.[{i}].{field}"),
                        format!(
                            "tensor {name:?} has no producer: it is neither the output of a kernel nor listed under inputs"
                        ),
                    ),
                }
            }
            let contracted = spec.k.unwrap_or(1);
            if !(1..=contracted.max(1)).contains(&spec.splits) {
                say(
                    kernel_origin(i),
                    format!("kernels.[{i}].splits"),
                    format!("expected 1 to the {contracted} that are contracted, found {}", spec.splits),
                );
            }
            let weight_of = spec.weight_of.as_deref().and_then(|name| {
                let owner = kernel_of.get(name).copied();
                match owner {
                    Some(k) if self.kernels[k].op == Op::GemmWeight => Some(WeightOf { kernel: k }),
                    _ => {
                        say(
                            kernel_origin(i),
                            format!("kernels.[{i}].weight_of"),
                            format!("{name:?} is not a kernel with a weight"),
                        );
                        None
                    }
                }
            });
            kernels.push(Kernel {
                name: spec.name.clone(),
                op: spec.op,
                phase: spec.phase,
                shape: Shape { outer: spec.outer, m: spec.m, k: spec.k.unwrap_or(1), n: spec.n },
                window: spec.window,
                tiled: if spec.phase == Phase::BackwardWeight { Axis::K } else { Axis::N },
                // A look-up moves an element a result; its gradient adds one an element of what is handed back.
                flop: match (spec.lookup, spec.phase) {
                    (true, Phase::BackwardWeight) => Some(spec.k.unwrap_or(1) as f64 * spec.n as f64),
                    (true, _) => Some((spec.outer * spec.m) as f64 * spec.n as f64),
                    (false, _) => spec.flop.map(|f| f.0),
                },
                extra_dram_bytes: spec.extra_dram.0,
                collectives: spec.collectives.iter().map(CollectiveSpec::collective).collect(),
                spread: None,
                weight_of,
                block: block.flatten().unwrap_or(0),
                lookup: spec.lookup,
                extra_dram_on_each: spec.extra_dram_on_each,
                outer_cut: spec.outer_cut,
                splits: spec.splits,
                word: spec.word.map(|w| w.0),
                ..Kernel::default()
            });
        }
        for (i, name) in self.outputs.iter().enumerate() {
            match tensor_of.get(name.as_str()) {
                Some(t) => tensors[*t].output = true,
                None => say(key_origin("outputs"), format!("outputs.[{i}]"), format!("there is no tensor {name:?}")),
            }
        }
        for (i, input) in self.inputs.iter().enumerate() {
            let Some(from) = &input.carried_from else { continue };
            match tensor_of.get(from.as_str()).copied() {
                Some(t)
                    if (tensors[t].rows, tensors[t].cols) == (input.rows, input.cols)
                        && tensors[t].producer.is_some() =>
                {
                    tensors[t].output = true;
                    tensors[i].carried_from = Some(t);
                }
                Some(_) => say(
                    key_origin("inputs"),
                    format!("inputs.[{i}].carried_from"),
                    format!("{from:?} must be written by a kernel and have the same rows and columns"),
                ),
                None => say(
                    key_origin("inputs"),
                    format!("inputs.[{i}].carried_from"),
                    format!("there is no tensor {from:?}"),
                ),
            }
        }
        for (i, carried) in self.carried.iter().enumerate() {
            let place = |name: &str| tensor_of.get(name).copied().filter(|t| tensors[*t].producer.is_some());
            match (place(&carried.tensor), place(&carried.from)) {
                (Some(t), Some(from))
                    if (tensors[t].rows, tensors[t].cols) == (tensors[from].rows, tensors[from].cols)
                        && !self.blocks.is_empty() =>
                {
                    tensors[from].output = true;
                    tensors[t].carried_from = Some(from);
                }
                _ => say(
                    key_origin("carried"),
                    format!("carried.[{i}]"),
                    format!(
                        "expected two tensors that kernels of blocks write, of the same rows and columns, found {:?} and {:?}",
                        carried.tensor, carried.from
                    ),
                ),
            }
        }
        if !problems.is_empty() {
            problems.sort_by_key(|p| p.origin.line);
            return Err(Problems(problems));
        }
        // One block is a graph that is repeated.
        let chain = self.blocks.len() > 1;
        let named = |b: &BlockSpec| Block { name: b.name.clone(), repeat: b.repeat };
        Ok(Workload {
            name: self.name.clone(),
            kernels,
            tensors,
            repeat: if self.blocks.is_empty() { self.repeat } else { self.blocks.iter().map(|b| b.repeat).sum() },
            blocks: if chain { self.blocks.iter().map(named).collect() } else { Vec::new() },
            word_bytes: self.word.0,
            global_batch: self.global_batch,
            micro_batch: self.micro_batch,
            training: self.training,
            tokens_per_sample: self.tokens_per_sample,
            held_bytes: self.held.0,
            divided: Divided::Free,
        })
    }
}
