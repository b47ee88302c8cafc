//! A measured point made ready for prediction: a task, and what it needs.

use super::accelerators;
use super::attention::AttentionCore;
use super::class::Class;
use super::metric::Metric;
use super::models;
use super::notes::{self, Notes};
use super::row::{Origin, Row};
use super::sources::{self, Source, Trained};
use crate::execution::{Execution, Offload, Recompute, Schedule, Zero};
use crate::model::kernel_time::Product;
use crate::workload::WorkloadSpec;
use crate::workload::language::{DataType, Head, LanguageModel, ModelPass, Types};

/// What was run.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Training steps of [`Point::model`] under [`Point::execution`].
    Training,
    /// Memory of training [`Point::model`] under [`Point::execution`].
    Memory,
    /// A batch of sequences of [`Point::model`], from the prompt to the last token.
    Inference {
        /// Tokens of the prompt.
        prompt: u64,
        /// Tokens generated.
        generated: u64,
        /// What of it was timed.
        phase: Phase,
    },
    /// One kernel of one layer of [`Point::model`] in inference, under tensor parallelism.
    LayerKernel {
        /// Its name in the source.
        name: String,
        /// Decode: tokens in the cache; `None`: prefill of the whole sequence.
        decode_after: Option<u64>,
    },
    /// A matrix product on one chip.
    Matmul {
        /// Products side by side, each with a weight of its own.
        groups: u64,
        /// Rows of the result.
        m: u64,
        /// Columns of the result.
        n: u64,
        /// Contracted size.
        k: u64,
        /// Bytes of a stored element, and which of left operand, right operand and result are in memory; left out: those of the type, all.
        stored: Option<(f64, [bool; 3])>,
        /// Type of its operands.
        precision: DataType,
        /// Whether words of 32 bits are multiplied with all of them.
        exact: bool,
    },
    /// The fastest matrix product on one chip.
    BestMatmul {
        /// Type of its operands.
        precision: DataType,
        /// Whether words of 32 bits are multiplied with all of them.
        exact: bool,
        /// Rows, columns and contracted size, where the source says them.
        shape: Option<(u64, u64, u64)>,
    },
    /// An attention kernel on one chip.
    Attention(AttentionCore),
    /// An all-reduce over all chips.
    AllReduce {
        /// Bytes of each chip.
        bytes: f64,
    },
    /// A reduce-scatter or an all-gather over all chips.
    Gather {
        /// Bytes of the whole tensor.
        bytes: f64,
    },
    /// An all-to-all over all chips.
    AllToAll {
        /// Bytes of each chip.
        bytes: f64,
    },
    /// A run of HPL, with the row's sizes on the row's system.
    Hpl,
    /// Something this program has no model of.
    Other {
        /// Why.
        reason: String,
    },
}

/// What of a batch of sequences was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// From the requests to the last token.
    Whole,
    /// The prompts alone.
    Prompt,
    /// A token after the first.
    Tokens,
}

/// Tokens that one sequence is taken to have read where that is not stated.
const SHORT_CONTEXT: u64 = 128;

/// What is said of an execution with degrees that follow from nothing.
const DEGREES_OPEN: &str = "the degrees of parallelism are not stated";

/// A measured point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The row as written.
    pub row: Row,
    /// What its notes say.
    pub notes: Notes,
    /// What was run.
    pub task: Task,
    /// The kind of measurement it counts under.
    pub class: Class,
    /// The model, where the task has one and its sizes are stated.
    pub model: Option<LanguageModel>,
    /// The model of a training run that is a graph and no language model.
    pub graph: Option<&'static WorkloadSpec>,
    /// The execution, where all of it is stated; of training also left out where it is to be searched.
    pub execution: Option<Execution>,
    /// What is neither stated nor implied and was taken to be usual.
    pub assumed: Vec<String>,
    /// Why it cannot be predicted by anyone: what the source does not state.
    pub incomplete: Option<String>,
    /// What the runs of its source were.
    pub source: Option<&'static Source>,
}

impl Task {
    /// The matrix product that was run, where its sizes are stated.
    pub fn product(&self) -> Option<Product> {
        let Self::Matmul { groups, m, n, k, .. } = self else { return None };
        let [batch, m, n, k] = [*groups, *m, *n, *k].map(|size| size as f64);
        Some(Product { batch, m, n, k })
    }
}

impl Point {
    /// The point of a row.
    pub fn new(mut row: Row) -> Self {
        let mut notes = notes::read(&row.notes, row.seq, row.chips);
        notes.prompt_and_generated = notes.prompt_and_generated.or_else(|| notes::lengths(&row.workload, &row.notes));
        row.global_batch = row.global_batch.or(notes.global_batch);
        if notes.rate_of_chip && row.metric == Metric::OutputRate {
            row.metric = Metric::OutputChipRate;
        }
        let mut incomplete = notes.doubted.then(|| "its own notes doubt its value (SUSPECT)".into());
        // Prompts that a source's runs have in common, and its rows do not repeat; of what hardly depends on the answer's length.
        let mut assumed = Vec::new();
        let of_prompts = matches!(row.metric, Metric::FirstToken | Metric::TokenTime | Metric::UserTokenRate);
        if row.seq.is_none() && notes.prompt_and_generated.is_none() && of_prompts {
            let name = models::named(&row).map(|model| model.name.as_str());
            row.seq = sources::of(&row, false, name).and_then(|source| source.seq);
            assumed.extend(row.seq.map(|tokens| format!("prompts of {tokens} tokens")));
        }
        // The rate of one sequence hardly hangs on what it has read: weights are read for each token.
        let of_tokens = phase(&row.workload.to_ascii_lowercase()) == Phase::Tokens
            && matches!(
                row.metric,
                Metric::TokenTime
                    | Metric::UserTokenRate
                    | Metric::OutputRate
                    | Metric::OutputChipRate
                    | Metric::TokenRate
                    | Metric::ChipTokenRate
            );
        if of_tokens && row.global_batch == Some(1) && row.seq.is_none() && notes.prompt_and_generated.is_none() {
            row.seq = Some(SHORT_CONTEXT);
            assumed.push(format!("a context of {SHORT_CONTEXT} tokens"));
        }
        let task = task(&row, &notes);
        let class = Class::of(&row, &task);
        if matches!(&task, Task::Attention(core) if core.usual_heads) {
            assumed.push("heads that make 2,048 channels".into());
        }
        let graph = accelerators::graph(&row.workload).filter(|_| task == Task::Training);
        let name = models::named(&row).map(|model| model.name.as_str()).or(graph.and_then(WorkloadSpec::as_replicas));
        let source = sources::of(&row, task == Task::Training, name);
        if task == Task::Training {
            if let Some(source) = source.filter(|s| s.corrects) {
                (row.seq, row.global_batch, row.micro_batch) = (source.seq, None, source.batch_of_chip);
                row.recompute = String::new();
                notes.accumulation = None;
                assumed.push(format!(
                    "tokens, samples and recomputation of another run than it says ({})",
                    source.because
                ));
            }
            row.seq = row.seq.or(source.and_then(|s| s.seq));
            if let (Some(seq), true) = (row.seq, source.is_some_and(|s| s.batch_in_tokens)) {
                let samples = |tokens: Option<u64>| tokens.map(|n| (n / seq.max(1)).max(1));
                (row.global_batch, row.micro_batch) = (samples(row.global_batch), samples(row.micro_batch));
                assumed.push(format!("samples of {seq} tokens"));
            }
            if (row.global_batch, row.micro_batch) == (None, None) {
                row.micro_batch = source.and_then(|s| s.batch_of_chip);
            }
        }
        // A rate or a peak of replicas that add up no gradients says the same of any batch: one microbatch each.
        if let (Task::Training, None, Some(micro), Some(chips)) = (&task, row.global_batch, row.micro_batch, row.chips)
        {
            let others = [row.pp.unwrap_or(1), notes.cp.unwrap_or(1)];
            let within = others.iter().fold(row.tp.unwrap_or(1), |all, n| all.saturating_mul(*n));
            let replicas = (chips / within.max(1)).max(1);
            let batch = micro.saturating_mul(replicas).saturating_mul(notes.accumulation.unwrap_or(1));
            row.global_batch = Some(batch);
            assumed.push(format!("a batch of {batch}, one microbatch of each replica"));
        }
        if task == Task::Training {
            let computes = source.and_then(|s| s.computes);
            if let Some(narrow) = computes.filter(|t| accelerators::peak(&row.accelerator, *t, false).is_some())
                && notes.precision.is_none()
            {
                notes.precision = Some(narrow);
                assumed.push(format!("products in {narrow}"));
            }
        }
        if let (Task::Inference { .. }, Some(own)) = (&task, source.and_then(|s| s.computes)) {
            notes.precision = Some(own);
            assumed.push(format!("products in {own}"));
        }
        let pass = match task {
            Task::Training | Task::Memory => Some(ModelPass::Training),
            Task::Inference { .. } | Task::LayerKernel { .. } => Some(ModelPass::Inference),
            _ => None,
        };
        let pass = pass.filter(|_| graph.is_none());
        match (graph.and_then(WorkloadSpec::as_replicas), row.global_batch) {
            (Some(name), Some(_)) => assumed.push(format!("sizes of {name}, replicas alone")),
            (Some(_), None) => incomplete = Some("the batch is not stated".into()),
            (None, _) => {}
        }
        let (mut model, mut execution) = (None, None);
        if let Some(pass) = pass {
            let perceptron = source.and_then(|s| s.perceptron);
            match models::model(&row, &notes, perceptron, row.global_batch.unwrap_or(1), pass) {
                Ok((read, more)) => {
                    assumed.extend(more);
                    model = Some(read);
                }
                Err(reason) => incomplete = Some(reason),
            }
            let at_most = matches!(
                row.metric,
                Metric::OutputRate | Metric::OutputChipRate | Metric::TokenRate | Metric::ChipTokenRate
            );
            if row.global_batch.is_none() && pass == ModelPass::Inference && at_most {
                assumed.push("the batch that gives the highest rate".into());
            } else if row.global_batch.is_none() {
                incomplete.get_or_insert("the batch is not stated".into());
            }
            if notes.power_unstated && row.metric != Metric::PeakMemory {
                incomplete.get_or_insert("the power that its chips are limited to is not stated".into());
            }
            if notes.loader_bound {
                incomplete.get_or_insert("it waits for its loader, whose rate is not stated".into());
            }
            let says_what = ["full", "selective", "none"].iter().any(|w| row.recompute.starts_with(w));
            let says_what = says_what || source.is_some_and(|s| s.recompute.is_some());
            if row.metric == Metric::Hfu && !says_what {
                incomplete.get_or_insert("which FLOP were computed again is not stated".into());
            }
            match read_execution(&row, &notes, &task, source, &mut assumed) {
                Ok(mut read) => {
                    // Attention by replicas, among which the experts are divided.
                    let by_replicas = source.is_some_and(|s| s.attention_by_replicas);
                    if by_replicas && model.as_ref().is_some_and(|m| m.experts.is_some()) && read.dp == 1 {
                        (read.tp, read.dp, read.ep) = (1, read.tp, read.tp);
                    }
                    execution = Some(read);
                }
                Err(reason) if reason == DEGREES_OPEN && task == Task::Training && row.chips.is_some() => {
                    assumed.push("the fastest degrees of parallelism that fit".into());
                }
                Err(reason) => {
                    incomplete.get_or_insert(reason);
                }
            }
        }
        if let (Some(real), Some(model)) = (source.and_then(|s| s.real_tokens), &mut model)
            && real < model.seq
        {
            model.seq = real.max(1);
            assumed.push(format!("samples of {} tokens without padding", model.seq));
        }
        if let (Some(types), Some(model)) = (source.and_then(|s| s.types), &mut model) {
            model.types = Types { compute: model.types.compute.or(types.compute), ..types };
        }
        if let (Some(kept), Some(model)) = (source.and_then(|s| s.cache), &mut model) {
            model.types.cache = Some(kept);
            assumed.push(format!("keys and values in {kept}"));
        }
        if let (Some(classes), Some(model)) = (source.and_then(|s| s.classes), &mut model) {
            (model.head, model.head_bias, model.classes) = (Head::Classes, false, Some(classes));
            assumed.push(format!("a head of {classes} classes"));
        }
        if let (Some(head), Some(model)) = (source.and_then(|s| s.head), &mut model)
            && model.head != head
        {
            model.head = head;
            assumed.push(format!("a head of its own: {head}"));
        }
        // Weights of 4 bits that are widened before each product.
        let adapted = task == Task::Training && sources::trained(&row) == Trained::Adapters;
        if adapted {
            assumed.push("adapters, as its words or its source say".into());
        }
        if let Some(model) = &mut model
            && adapted
            && sources::is_of(&row, &["qlora", "nf4"])
        {
            model.types = Types { weights: DataType::Fp4, compute: Some(DataType::Bf16), ..model.types };
        }
        if let (Some(attended), Some(model)) = (notes.packed_samples, &mut model) {
            // A token of a sample sees half of it on average.
            model.window = Some((attended / 2).max(1));
        }
        Self { row, notes, task, class, model, graph, execution, assumed, incomplete, source }
    }

    /// Whether whole layers are computed again.
    pub fn recomputes_fully(&self) -> bool {
        self.execution.as_ref().is_some_and(|e| e.recompute == Recompute::Full)
            || self.row.recompute.starts_with("full")
    }

    /// What of the model its run trains.
    pub fn trained(&self) -> Trained {
        if self.task == Task::Training { sources::trained(&self.row) } else { Trained::All }
    }

    /// The share of a training step's products that are computed, of those forward and for both gradients: of frozen weights no gradients
    /// (Hu et al. 2021, arXiv 2106.09685), of layers before a trained head nothing backward.
    pub fn share_of_products(&self) -> f64 {
        match self.trained() {
            Trained::All => 1.0,
            Trained::Adapters => 2.0 / 3.0,
            Trained::Head => 1.0 / 3.0,
        }
    }

    /// The peak that a published share refers to: of 16 bits, whatever the products ran in, unless the workload names another type. `None` where it is not known.
    pub fn published_peak(&self) -> Option<f64> {
        let (precision, exact) = match &self.task {
            Task::Matmul { precision, exact, .. } | Task::BestMatmul { precision, exact, .. } => (*precision, *exact),
            _ => (DataType::Bf16, false),
        };
        accelerators::peak(&self.row.accelerator, precision, exact)
    }
}

/// What of a batch of sequences a workload in small letters was timed for.
fn phase(workload: &str) -> Phase {
    let last = workload.split(" isl").next().unwrap_or_default().trim_end();
    match () {
        () if workload.contains("prefill") => Phase::Prompt,
        () if last.ends_with(" decode") => Phase::Tokens,
        () => Phase::Whole,
    }
}

/// The type that a product multiplies, and whether words of 32 bits with all of them, as frameworks do unless they are told otherwise: by the first type that the workload (in small
/// letters) names, else by the notes.
fn multiplied(workload: &str, notes: &Notes, text: &str) -> (DataType, bool) {
    // Passes of Tenstorrent's multiplier, by which its datasheet gives rates: one, two, four.
    let passes = [("lofi", DataType::Fp4), ("hifi2", DataType::Fp8), ("hifi4", DataType::Fp16)];
    let types = [
        ("fp8", DataType::Fp8),
        ("bf16", DataType::Bf16),
        ("fp16", DataType::Fp16),
        ("tf32", DataType::Fp32),
        ("fp32", DataType::Fp32),
    ];
    let first = || types.iter().filter_map(|(word, t)| Some((workload.find(word)?, *t))).min_by_key(|(at, _)| *at);
    let by_passes = passes.iter().find(|(word, _)| workload.contains(word)).map(|(_, t)| *t);
    let named = by_passes.or(first().map(|(_, t)| t));
    let denied = ["no ", "not ", "without", "off", "disabled", "false"];
    let rounds = workload.contains("tf32")
        || text
            .to_ascii_lowercase()
            .split([';', ','])
            .any(|clause| clause.contains("tf32") && !denied.iter().any(|word| clause.contains(word)));
    let precision = named.or(notes.precision).unwrap_or(DataType::Fp16);
    (precision, precision == DataType::Fp32 && !rounds)
}

fn task(row: &Row, notes: &Notes) -> Task {
    let workload = row.workload.as_str();
    let lower = workload.to_ascii_lowercase();
    let (precision, exact) = multiplied(&lower, notes, &row.notes);
    let other = |reason: &str| Task::Other { reason: reason.into() };
    match &row.metric {
        Metric::ActivationMemory | Metric::StateMemory | Metric::Fits => return Task::Memory,
        Metric::HplRate => {
            return Task::Hpl;
        }
        Metric::AllReduceBus if row.collective().is_none_or(|kind| kind == "all-reduce ") => {
            let size = lower.strip_suffix(" b").and_then(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
            return match notes.payload.or(size).filter(|bytes| *bytes > 0.0) {
                Some(bytes) => Task::AllReduce { bytes },
                None => other("the size of the all-reduce is not stated"),
            };
        }
        Metric::KernelTime(name) => {
            return Task::LayerKernel { name: name.clone(), decode_after: notes.decode_after };
        }
        _ => {}
    }
    if let Some(kind) = row.collective() {
        let bytes = lower.split_whitespace().find_map(|word| word.parse::<f64>().ok()).filter(|bytes| *bytes > 0.0);
        return match (bytes, kind) {
            (Some(bytes), "all-reduce ") => Task::AllReduce { bytes },
            (Some(bytes), "all-to-all " | "alltoall ") => Task::AllToAll { bytes },
            (Some(bytes), _) => Task::Gather { bytes },
            (None, _) => other("the size of the collective is not stated"),
        };
    }
    if lower.starts_with("attention ") {
        return match AttentionCore::read(workload, notes, &row.notes) {
            Ok(core) => Task::Attention(core),
            Err(reason) => Task::Other { reason },
        };
    }
    if let Some((m, n, k)) = of_shapes(workload) {
        return Task::Matmul { groups: 1, m, n, k, precision, exact, stored: None };
    }
    if lower.contains("best-shape matmul") || lower.contains("gemm best size") {
        return Task::BestMatmul { precision, exact, shape: notes.product };
    }
    let product = ["m=", "n=", "k="].iter().all(|size| lower.contains(size));
    if lower.starts_with("matmul") || product {
        let size = |letter: &str| notes::number_after(&lower, letter);
        let groups = if lower.contains("groups") { size("groups=").filter(|n| *n > 0) } else { Some(1) };
        let Some(groups) = groups else { return other("the number of its groups of products is not stated") };
        return match (size("m="), size("n="), size("k=")) {
            (Some(m), Some(n), Some(k)) if m.min(n).min(k) > 0 => {
                Task::Matmul { groups, m, n, k, precision, exact, stored: stored(&lower, &row.notes) }
            }
            _ => other("a matrix product of many sizes, of which the source gives the least share of the peak"),
        };
    }
    let phase = phase(&lower);
    let of_tokens = matches!(
        row.metric,
        Metric::FirstToken | Metric::TokenTime | Metric::UserTokenRate | Metric::OutputRate | Metric::OutputChipRate
    );
    if lower.contains("inference") || phase != Phase::Whole || of_tokens {
        return match (notes.prompt_and_generated, row.seq) {
            (Some((prompt, generated)), _) => Task::Inference { prompt, generated, phase },
            (None, Some(seq)) if phase == Phase::Tokens || of_tokens => {
                Task::Inference { prompt: seq, generated: 2, phase }
            }
            (None, Some(seq)) => Task::Inference { prompt: seq, generated: 0, phase },
            (None, None) if !of_tokens && !lower.contains("llm") && models::named(row).is_none() => {
                other("no model of the inference of what is no language model")
            }
            (None, None) => other("the lengths of prompt and answer are not stated"),
        };
    }
    // What states neither a model's sizes nor that it trains is a kernel, a transfer or a service.
    let trains = ["train", "tun", "sft", "lora"].iter().any(|word| lower.contains(word));
    if lower.contains("dlrm") && !(trains && accelerators::graph(workload).is_some()) {
        return other("no model of DCN recommendation networks with multi-hot look-ups");
    }
    if lower.contains("fft") {
        return other("no description of the wafer's mesh at the level of its routers");
    }
    match row.layers.is_some() || trains || models::named(row).is_some() || row.origin != Origin::Ours {
        true => Task::Training,
        false => other("neither a training run nor a kernel that there is a model of"),
    }
}

/// `GEMV [1,16384]x[16384,16384]`: rows, columns and contracted size.
fn of_shapes(workload: &str) -> Option<(u64, u64, u64)> {
    let (left, right) = workload.split_once("]x[")?;
    let sizes = |text: &str| -> Option<(u64, u64)> {
        let (rows, columns) = text.split_once(',')?;
        Some((rows.trim().parse().ok()?, columns.trim().parse().ok()?))
    };
    let ((m, k), (inner, n)) = (sizes(left.split_once('[')?.1)?, sizes(right.split_once(']')?.0)?);
    (k == inner && m.min(n).min(k) > 0).then_some((m, n, k))
}

/// Bytes of a stored element where a product's words name a type apart from that of its arithmetic (blocks of 16 numbers share an exponent of 8 bits),
/// and which of its operands and result are in memory: `in0 L1 in1 DRAM out L1`.
fn stored(workload: &str, notes: &str) -> Option<(f64, [bool; 3])> {
    let types = [("bfloat16", 2.0), ("bfloat8_b", 1.0625), ("bfloat4_b", 0.5625)];
    let word = types.iter().find(|(name, _)| workload.split_whitespace().any(|w| w == *name))?.1;
    let in_memory = ["in0 ", "in1 ", "out "].map(|of| !notes.contains(&format!("{of}L1")));
    Some((word, in_memory))
}

/// The execution of a row.
///
/// A degree that the columns leave out follows from the others where chips are known; where two or more are missing the
/// execution is not stated. Megatron's and vTrain's runs are 1F1B, interleaved where a row has chunks.
fn read_execution(
    row: &Row,
    notes: &Notes,
    task: &Task,
    source: Option<&Source>,
    assumed: &mut Vec<String>,
) -> Result<Execution, String> {
    let inference = matches!(task, Task::Inference { .. } | Task::LayerKernel { .. });
    let mut cp = notes.cp.unwrap_or(1);
    let alone = (row.chips == Some(1) && cp == 1).then_some(1);
    let mut tp = row.tp.or(notes.tp).or(alone);
    let mut pp = row.pp.or(notes.pp).or(alone);
    let mut dp = notes.dp.or(row.dp).or(alone);
    // Degrees may count the cores of chips that have several: where they need more ranks than there are chips, those of a chip are in one tensor-parallel
    // group.
    let ranks = accelerators::known(&row.accelerator).map_or(1, |listed| listed.ranks);
    let needed = [tp, pp, dp].iter().try_fold(cp, |all, degree| all.checked_mul(degree.unwrap_or(1)));
    if let (Some(group), Some(chips), Some(needed)) = (tp, row.chips, needed)
        && ranks > 1
        && needed > chips
    {
        // Cores that are replicas each are one of so many samples more.
        match (group % ranks, dp) {
            (0, _) => tp = Some(group / ranks),
            (1, Some(replicas)) if group == 1 && replicas % ranks == 0 => dp = Some(replicas / ranks),
            _ => {}
        }
    }
    if let (Some(stages), Some(chips), (None, None, None)) = (source.and_then(|s| s.stages), row.chips, (tp, pp, dp))
        && stages > 0
        && chips % stages == 0
    {
        (tp, pp, dp) = (Some(1), Some(stages), Some(chips / stages));
        assumed.push(format!("pipelines of {stages} stages"));
    }
    // Samples that all replicas compute at once say how many replicas there can be.
    let at_once = row.global_batch.zip(notes.accumulation).filter(|(batch, times)| batch % times.max(&1) == 0);
    if let (Some((batch, times)), Some(chips), None) = (at_once, row.chips, dp) {
        dp = Some((batch / times.max(1)).min(chips));
    }
    if source.is_some_and(|s| s.replicas_alone) && (tp, pp, dp) == (None, None, None) {
        dp = row.chips;
        assumed.push("replicas alone".into());
    }
    if dp.is_some() && dp == row.chips && cp == 1 {
        (tp, pp) = (tp.or(Some(1)), pp.or(Some(1)));
    }
    // Some tables count context parallelism among the replicas.
    if let (Some(t), Some(p), Some(d), Some(chips)) = (tp, pp, dp, row.chips)
        && cp > 1
        && d % cp == 0
        && t.checked_mul(p).and_then(|x| x.checked_mul(d)) == Some(chips)
    {
        dp = Some(d / cp);
    }
    if inference && tp.is_none() && pp.is_none() && dp.is_none() {
        assumed.push("tensor parallelism over all chips".into());
        (tp, pp, dp) = (row.chips, Some(1), Some(1));
    }
    if inference && dp.is_none() {
        dp = Some(1);
    }
    if let Some(chips) = row.chips {
        let quotient = |known: [Option<u64>; 2]| -> Option<u64> {
            let product = known.iter().try_fold(cp, |p, k| k.and_then(|k| p.checked_mul(k)))?;
            (product > 0 && chips % product == 0).then(|| chips / product)
        };
        match (tp, pp, dp) {
            (None, Some(_), Some(_)) => tp = quotient([pp, dp]),
            (Some(_), None, Some(_)) => pp = quotient([tp, dp]),
            (Some(_), Some(_), None) => dp = quotient([tp, pp]),
            _ => {}
        }
    }
    let (Some(tp), Some(pp), Some(dp)) = (tp, pp, dp) else {
        return Err(DEGREES_OPEN.into());
    };
    let times = |dp: u64| tp.checked_mul(pp)?.checked_mul(dp)?.checked_mul(cp);
    // Tables that have no column for context parallelism count it under data parallelism.
    let mut dp = if cp > 1 && times(dp) != row.chips && times(dp / cp) == row.chips { dp / cp } else { dp };
    // Chips that the printed degrees leave divide the sequences: tables without a column for context parallelism leave it out. Where it is printed they
    // are further replicas.
    if let (Some(chips), Some(product)) = (row.chips, times(dp).filter(|n| *n > 0))
        && product < chips
        && chips % product == 0
        && !inference
    {
        let left = chips / product;
        // As many replicas as that would make need samples.
        let enough = row.global_batch.is_none_or(|batch| batch >= dp.saturating_mul(left));
        if notes.cp.is_some() && enough {
            dp *= left;
            assumed.push(format!("{dp} replicas, as its chips say"));
        } else {
            cp *= left;
            assumed.push(format!("context parallelism of {cp}, which the other degrees leave"));
        }
    }
    let product = tp.checked_mul(pp).and_then(|x| x.checked_mul(dp)?.checked_mul(cp));
    if let (Some(chips), Some(product)) = (row.chips, product)
        && product != chips
    {
        return Err(format!("tp {tp} x pp {pp} x dp {dp} x cp {cp} = {product} are not its {chips} chips"));
    }
    let samples = |micro: u64| row.global_batch.map_or(1, |batch| batch / dp.saturating_mul(micro).max(1));
    let divides = |chunks: &u64| {
        let layers = row.layers.unwrap_or(1);
        layers.is_multiple_of(pp.saturating_mul(*chunks).max(1))
            && samples(row.micro_batch.unwrap_or(1)).is_multiple_of(pp.max(1))
    };
    let most = source.and_then(|s| s.chunks).filter(|_| pp > 1 && row.interleave.is_none());
    let pieces = most.and_then(|most| (2..=most.min(64)).rev().find(divides));
    let chunks = row.interleave.or(pieces).unwrap_or(1).max(1);
    let recompute = if inference { Recompute::None } else { recompute(row, notes, source, assumed) };
    // The chips of a tensor-parallel group share their samples.
    let micro_batch =
        match (row.micro_batch.filter(|_| !source.is_some_and(|s| s.micro_batch_of_chip)), row.global_batch) {
            (Some(micro), _) => micro,
            (None, Some(batch)) if inference => batch.max(1),
            (None, Some(batch))
                if notes.accumulation.is_some_and(|times| batch % dp.saturating_mul(times).max(1) == 0) =>
            {
                batch / dp.saturating_mul(notes.accumulation.unwrap_or(1)).max(1)
            }
            (None, Some(batch)) if pp == 1 && batch % dp == 0 && batch > 0 => {
                assumed.push("each replica's samples in one microbatch, or in the largest that fits".into());
                batch / dp
            }
            _ => {
                assumed.push("microbatches of one sample".into());
                1
            }
        };
    Ok(Execution {
        tp,
        pp,
        dp,
        ep: experts(
            notes.ep.unwrap_or(if source.is_some_and(|s| s.experts_among_replicas) { dp } else { 1 }),
            dp.saturating_mul(cp),
            tp,
            assumed,
        ),
        cp,
        micro_batch,
        schedule: if chunks > 1 && pp > 1 { Schedule::Interleaved } else { Schedule::OneForwardOneBackward },
        chunks: if pp > 1 { chunks } else { 1 },
        recompute,
        sequence_parallel: row.seq_parallel.unwrap_or(source.is_some_and(|s| s.sequence_parallel)) && tp > 1,
        zero: notes
            .zero
            .filter(|_| pp == 1 || source.is_none_or(|s| s.zero_in_pipelines.is_none()))
            .or(source.and_then(|s| s.zero_in_pipelines.filter(|_| pp > 1).or(s.zero)))
            .unwrap_or(Zero::Off),
        offload: match () {
            () if row.recompute.contains("offloaded") => Offload::Activations,
            () if source.is_some_and(|s| s.host_memory.is_some()) => Offload::Optimizer,
            () => Offload::None,
        },
        overlap_dp: row.origin == Origin::Ours && notes.zero.is_some() && !notes.dp_not_overlapped,
        overlap_tp: notes.overlap_tp && tp > 1,
    })
}

/// Expert groups among `replicas` chips. Where experts are not divided among tensor-parallel chips, those hold different ones; a group that counts them is
/// taken as that of the replicas with experts divided, which holds the same weights.
fn experts(ep: u64, replicas: u64, tp: u64, assumed: &mut Vec<String>) -> u64 {
    let across = ep / replicas.max(1);
    if replicas > 0 && ep > replicas && ep.is_multiple_of(replicas) && tp.is_multiple_of(across) {
        assumed.push(format!("experts in {replicas} groups, each divided among {across} tensor-parallel chips"));
        return replicas;
    }
    ep
}

/// The policy that a row states.
pub fn stated_recompute(row: &Row, notes: &Notes, source: Option<&Source>) -> Option<Recompute> {
    let words = row.recompute.trim().to_ascii_lowercase();
    match () {
        () if words.starts_with("full") || notes.full_recompute => Some(Recompute::Full),
        () if words.starts_with("selective") => Some(source.and_then(|s| s.selective).unwrap_or(Recompute::Selective)),
        () if words.starts_with("none") => Some(Recompute::None),
        () => None,
    }
}

/// The policy that a row's words mean.
fn recompute(row: &Row, notes: &Notes, source: Option<&Source>, assumed: &mut Vec<String>) -> Recompute {
    // docs/accuracy.md: with full recomputation the marginal microbatch of these rows would need 330 TFLOP/s, above the chip's peak.
    if row.origin == Origin::Vtrain && row.chips.is_some_and(|chips| chips <= 8) {
        assumed.push("no recomputation (with it the rows would be faster than the peak allows)".into());
        return Recompute::None;
    }
    if let Some(policy) = stated_recompute(row, notes, source) {
        return policy;
    }
    let words = row.recompute.trim().to_ascii_lowercase();
    let usual = source.and_then(|s| s.recompute).or_else(|| accelerators::usual_recompute(row));
    let usual = usual.unwrap_or(Recompute::None);
    let mut taken = |policy: Recompute, why: &str| {
        assumed.push(format!("recomputation {policy} ({why})"));
        policy
    };
    match () {
        // MaxText's `minimal` keeps the results of products with weights, which is what selective recomputation keeps and more.
        () if words.starts_with("minimal") => taken(Recompute::Selective, "for the policy minimal"),
        () if words.starts_with("qkv_proj_offloaded") => {
            taken(Recompute::Full, "all but queries, keys and values, which are offloaded")
        }
        () if words.starts_with("partial") => taken(Recompute::Full, "for a partial one"),
        () if words.is_empty() => taken(usual, "not stated"),
        () => taken(usual, "no policy is known by the word that is stated"),
    }
}
