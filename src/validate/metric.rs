//! What was measured and in which unit; and how a predicted time becomes such a figure.

use super::point::{Phase, Point, Task};
use super::predict::Prediction;
use super::sources::{self, Counted};
use crate::workload::language::{DataType, FlopCount};
use std::fmt;

/// A measured quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metric {
    /// Seconds of a training step, a kernel or a pass.
    Time,
    /// Time of the kernel of this name within a layer.
    KernelTime(String),
    /// Printed FLOP/s of one chip.
    FlopRate,
    /// The same, where the source says that recomputation does not count.
    ModelFlopRate,
    /// Model FLOP over what the chips' peak allows.
    Mfu,
    /// FLOP of the hardware, recomputation included, over what the chips' peak allows.
    Hfu,
    /// FLOP/s over peak where the source does not say which FLOP.
    FractionOfPeak,
    /// The same as a least value.
    LeastUtilization,
    /// Sequences a second.
    SequenceRate,
    /// Tokens a second.
    TokenRate,
    /// Tokens a second of one chip.
    ChipTokenRate,
    /// Generated tokens a second.
    OutputRate,
    /// Samples a second.
    SampleRate,
    /// Generated tokens a second of one chip.
    OutputChipRate,
    /// Tokens a second that one user sees: one over the time of a token.
    UserTokenRate,
    /// Time to the first token.
    FirstToken,
    /// Time of each further token.
    TokenTime,
    /// Time of a step on the chips alone.
    DeviceTime,
    /// Time of a step on the host alone.
    HostTime,
    /// Largest memory that one chip held.
    PeakMemory,
    /// Bytes of operands and results of a product over its time.
    OperandBandwidth,
    /// Time of a whole run, or of a pass over its data.
    RunTime,
    /// A quantity that this program has no model of, and why.
    Unmodelled(&'static str),
    /// Bytes of activations of one chip.
    ActivationMemory,
    /// Bytes of weights, gradients and optimiser of one chip.
    StateMemory,
    /// Whether it fits the memory: 1 or 0.
    Fits,
    /// Bus bandwidth of an all-reduce: 2 (n-1)/n bytes over time.
    AllReduceBus,
    /// FLOP/s of the machine in HPL.
    HplRate,
}

const NO_RL: &str = "no model of reinforcement learning, whose steps generate and train";
const NO_TAIL: &str = "no model of arrivals, which tails of latency follow from";
const NO_RATIO: &str = "a ratio of two measurements";
const NO_PHASE: &str = "no model of phases that are served apart, or of a day of requests";
const NO_LINK: &str = "no model of this traffic by itself";

/// The words of metrics in files.
const WORDS: [(&str, Metric); 57] = [
    ("iteration_time", Metric::Time),
    ("train_step_time", Metric::Time),
    ("time", Metric::Time),
    ("latency", Metric::Time),
    ("tflops_per_gpu", Metric::FlopRate),
    ("tflops_per_chip", Metric::FlopRate),
    ("model_tflops_per_gpu", Metric::ModelFlopRate),
    ("mfu", Metric::Mfu),
    ("hfu", Metric::Hfu),
    ("fraction_of_peak", Metric::FractionOfPeak),
    ("utilization", Metric::FractionOfPeak),
    ("utilization_lower_bound", Metric::LeastUtilization),
    ("seq_per_s", Metric::SequenceRate),
    ("tokens_per_s", Metric::TokenRate),
    ("tokens_per_s_per_gpu", Metric::ChipTokenRate),
    ("tokens_per_s_per_chip", Metric::ChipTokenRate),
    ("output_tokens_per_s", Metric::OutputRate),
    ("samples_per_s", Metric::SampleRate),
    ("activation_memory", Metric::ActivationMemory),
    ("params_and_optimizer_memory", Metric::StateMemory),
    ("fits", Metric::Fits),
    ("allreduce_busbw", Metric::AllReduceBus),
    ("hpl_rmax", Metric::HplRate),
    ("step_latency_total", Metric::Time),
    ("output_tokens_per_s_per_gpu", Metric::OutputChipRate),
    ("output_tokens_per_s_per_chip", Metric::OutputChipRate),
    ("tokens_per_s_per_user", Metric::UserTokenRate),
    ("ttft", Metric::FirstToken),
    ("ttft_p50", Metric::FirstToken),
    ("tpot", Metric::TokenTime),
    ("tpot_p50", Metric::TokenTime),
    ("rdu_latency", Metric::DeviceTime),
    ("device_time", Metric::DeviceTime),
    ("host_latency", Metric::HostTime),
    ("peak_memory", Metric::PeakMemory),
    ("achieved_memory_bandwidth", Metric::OperandBandwidth),
    ("busbw", Metric::AllReduceBus),
    ("inferences_per_s", Metric::SampleRate),
    ("time_to_train", Metric::RunTime),
    ("epoch_time", Metric::RunTime),
    ("rl_tokens_per_s_per_gpu", Metric::Unmodelled(NO_RL)),
    ("rl_step_time", Metric::Unmodelled(NO_RL)),
    ("p90_latency", Metric::Unmodelled(NO_TAIL)),
    ("ttft_p99", Metric::Unmodelled(NO_TAIL)),
    ("tpot_p99", Metric::Unmodelled(NO_TAIL)),
    ("speedup", Metric::Unmodelled(NO_RATIO)),
    ("prefill_tokens_per_s", Metric::Unmodelled(NO_PHASE)),
    ("decode_tokens_per_s", Metric::Unmodelled(NO_PHASE)),
    ("prefill_tokens_per_s_per_npu", Metric::Unmodelled(NO_PHASE)),
    ("decode_tokens_per_s_per_npu", Metric::Unmodelled(NO_PHASE)),
    ("input_tokens_per_s_per_node", Metric::Unmodelled(NO_PHASE)),
    ("output_tokens_per_s_per_node", Metric::Unmodelled(NO_PHASE)),
    ("aggregate_input_bandwidth", Metric::Unmodelled(NO_LINK)),
    ("bottleneck_bandwidth", Metric::Unmodelled(NO_LINK)),
    ("rdma_bandwidth", Metric::Unmodelled(NO_LINK)),
    ("p2p_bandwidth", Metric::Unmodelled(NO_LINK)),
    ("h2d_bandwidth", Metric::Unmodelled(NO_LINK)),
];

impl Metric {
    /// The metric a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        if let Some(kernel) = word.strip_prefix("kernel_time:").filter(|k| !k.trim().is_empty()) {
            return Some(Self::KernelTime(kernel.trim().into()));
        }
        WORDS.iter().find(|(known, _)| *known == word).map(|(_, metric)| metric.clone())
    }

    /// The words there are, for messages.
    pub fn words() -> String {
        let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
        format!("{}, kernel_time:NAME", words.join(", "))
    }

    /// Whether a larger figure is a better one.
    pub fn more_is_faster(&self) -> bool {
        !matches!(self.dimension(), Dimension::Seconds | Dimension::Bytes | Dimension::Truth)
    }

    /// Whether it is a share of the peak.
    pub(super) fn is_share(&self) -> bool {
        self.dimension() == Dimension::Share
    }

    /// Whether it is a size.
    pub(super) fn is_memory(&self) -> bool {
        self.dimension() == Dimension::Bytes
    }

    /// The dimension of its unit.
    fn dimension(&self) -> Dimension {
        match self {
            Self::Time
            | Self::KernelTime(_)
            | Self::FirstToken
            | Self::TokenTime
            | Self::DeviceTime
            | Self::HostTime
            | Self::RunTime => Dimension::Seconds,
            Self::FlopRate | Self::ModelFlopRate | Self::HplRate => Dimension::FlopRate,
            Self::Mfu | Self::Hfu | Self::FractionOfPeak | Self::LeastUtilization => Dimension::Share,
            Self::SequenceRate
            | Self::TokenRate
            | Self::ChipTokenRate
            | Self::OutputRate
            | Self::SampleRate
            | Self::OutputChipRate
            | Self::UserTokenRate => Dimension::Rate,
            Self::ActivationMemory | Self::StateMemory | Self::PeakMemory => Dimension::Bytes,
            Self::Fits => Dimension::Truth,
            Self::AllReduceBus | Self::OperandBandwidth => Dimension::Bandwidth,
            Self::Unmodelled(_) => Dimension::Any,
        }
    }
}

/// Kinds of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Seconds,
    FlopRate,
    Share,
    Rate,
    Bytes,
    Truth,
    Bandwidth,
    Any,
}

/// A unit of a file: its word, and its factor to seconds, FLOP/s, shares of 1, 1/s, bytes or bytes/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// As it is written.
    pub word: &'static str,
    /// Base units in one of it.
    pub factor: f64,
    dimension: Dimension,
}

const GI: f64 = 1024.0 * 1024.0 * 1024.0;

const UNITS: [Unit; 41] = {
    use Dimension::{Any, Bandwidth, Bytes, FlopRate, Rate, Seconds, Share, Truth};
    const fn unit(word: &'static str, factor: f64, dimension: Dimension) -> Unit {
        Unit { word, factor, dimension }
    }
    [
        unit("s", 1.0, Seconds),
        unit("ms", 1e-3, Seconds),
        unit("us", 1e-6, Seconds),
        unit("TFLOP/s", 1e12, FlopRate),
        unit("TFLOP/s/GPU", 1e12, FlopRate),
        unit("TFLOP/s/chip", 1e12, FlopRate),
        unit("PFLOP/s", 1e15, FlopRate),
        unit("EFLOP/s", 1e18, FlopRate),
        unit("GFLOP/s", 1e9, FlopRate),
        unit("%", 0.01, Share),
        unit("1", 1.0, Share),
        unit("tok/s", 1.0, Rate),
        unit("tokens/s", 1.0, Rate),
        unit("seq/s", 1.0, Rate),
        unit("samples/s", 1.0, Rate),
        unit("images/s", 1.0, Rate),
        unit("inf/s", 1.0, Rate),
        unit("tok/s/GPU", 1.0, Rate),
        unit("tok/s/chip", 1.0, Rate),
        unit("tok/s/NPU", 1.0, Rate),
        unit("GiB", GI, Bytes),
        unit("GiB/GPU", GI, Bytes),
        unit("GiB/chip", GI, Bytes),
        unit("GB", 1e9, Bytes),
        unit("GB/GPU", 1e9, Bytes),
        unit("B", 1.0, Bytes),
        unit("yes=1", 1.0, Truth),
        unit("bool", 1.0, Truth),
        unit("Gbit/s", 0.125e9, Bandwidth),
        unit("GB/s", 1e9, Bandwidth),
        unit("TB/s", 1e12, Bandwidth),
        unit("min", 60.0, Seconds),
        unit("h", 3600.0, Seconds),
        unit("ns", 1e-9, Seconds),
        unit("tok/s/user", 1.0, Rate),
        unit("tok/s/request", 1.0, Rate),
        unit("tok/s (as printed)", 1.0, Rate),
        unit("items/s", 1.0, Rate),
        // What torchao prints under GB is read from torchtitan's logs, which count GiB (its parse_torchtitan_logs.py).
        unit("GB/GPU (as printed)", GI, Bytes),
        unit("MiB", 1024.0 * 1024.0, Bytes),
        unit("", 1.0, Any),
    ]
};

impl Unit {
    /// Seconds.
    pub const MILLISECONDS: Self = UNITS[1];
    /// PFLOP/s.
    pub const PETAFLOPS: Self = UNITS[6];

    /// The unit of `metric` a word stands for.
    ///
    /// # Errors
    /// The words that would fit.
    pub fn read(word: &str, metric: &Metric) -> Result<Self, String> {
        let dimension = metric.dimension();
        if dimension == Dimension::Any {
            return Ok(UNITS.iter().find(|u| u.word == word).copied().unwrap_or(UNITS[UNITS.len() - 1]));
        }
        UNITS.iter().find(|u| u.word == word && u.dimension == dimension).copied().ok_or_else(|| {
            UNITS.iter().filter(|u| u.dimension == dimension).map(|u| u.word).collect::<Vec<_>>().join(", ")
        })
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word)
    }
}

/// What a source counts as FLOP of a training step: what it says of itself (`counts` of its entry in `validation/chips.yaml`), its notes where they say that
/// recomputation counts; of others hardware FLOP by Korthikanti's formulas, rates that call themselves the model's by the products that the mask leaves, the
/// rest by Korthikanti's model FLOP where layers are those of a GPT, else by all products.
pub fn flop_count(point: &Point) -> FlopCount {
    let again = point.source.and_then(|s| s.counts_recomputed).filter(|_| point.recomputes_fully());
    let counts = point.source.and_then(|s| s.counts);
    // The closed form is of layers with 12 h^2 weights. Who trains others counts their products.
    let of_gpt = point.model.as_ref().is_none_or(|m| !m.gated && m.kv_heads.is_none() && m.experts.is_none());
    let usual = if of_gpt { FlopCount::MegatronModel } else { FlopCount::Products };
    match point.row.metric {
        Metric::Hfu if !point.recomputes_fully() => FlopCount::MegatronSelective,
        Metric::Hfu => FlopCount::MegatronRecomputed,
        _ if point.notes.counts_recomputation => FlopCount::MegatronRecomputed,
        // Of samples packed into a sequence each sees its own alone.
        _ if point.notes.packed_samples.is_some() => FlopCount::MaskedProducts,
        Metric::FlopRate if again.is_some() => again.map_or(FlopCount::MegatronRecomputed, Counted::flop),
        Metric::ModelFlopRate => counts.map_or(FlopCount::MaskedProducts, Counted::flop),
        _ => counts.map_or(usual, Counted::flop),
    }
}

/// A prediction in the unit of the row.
///
/// # Errors
/// What is missing for that: a sentence.
pub fn express(point: &Point, prediction: &Prediction) -> Result<f64, String> {
    let row = &point.row;
    let chips = row.chips.unwrap_or(1) as f64;
    let base = match (&row.metric, prediction) {
        (_, Prediction::InRowsQuantity(value)) => *value,
        (Metric::Time | Metric::KernelTime(_), Prediction::Seconds(s)) => *s,
        (Metric::RunTime, Prediction::Seconds(s)) => {
            s * sources::steps(row).ok_or("how many steps a whole run takes is not stated")?
        }
        (Metric::ActivationMemory | Metric::StateMemory | Metric::PeakMemory, Prediction::Bytes(b)) => *b,
        (Metric::DeviceTime | Metric::HostTime, Prediction::Seconds(s)) => *s,
        (metric, Prediction::Served(served)) => served.express(point, metric)?,
        (Metric::OperandBandwidth, Prediction::Seconds(s)) => match (&point.task, point.task.product()) {
            (Task::Matmul { precision, .. }, Some(product)) => product.bytes(words(*precision)) / s,
            _ => return Err("no count of its bytes".into()),
        },
        (Metric::Fits, Prediction::Fits(fits)) => f64::from(u8::from(*fits)),
        (_, Prediction::Seconds(s)) if *s <= 0.0 || !s.is_finite() => {
            return Err("a predicted time of no length".into());
        }
        (Metric::FlopRate | Metric::ModelFlopRate, Prediction::Seconds(s)) => work(point)? / s / chips,
        (Metric::Mfu | Metric::Hfu | Metric::FractionOfPeak | Metric::LeastUtilization, Prediction::Seconds(s)) => {
            let peak = point.published_peak().ok_or_else(|| format!("no peak known of {:?}", row.accelerator))?;
            work(point)? / s / chips / peak
        }
        (Metric::SequenceRate | Metric::SampleRate, Prediction::Seconds(s)) => {
            row.global_batch.ok_or("the batch is not stated")? as f64 / s
        }
        (Metric::TokenRate | Metric::OutputRate, Prediction::Seconds(s)) => tokens(point)? / s,
        (Metric::ChipTokenRate, Prediction::Seconds(s)) => tokens(point)? / s / chips,
        (Metric::AllReduceBus, Prediction::Seconds(s)) => match point.task {
            Task::AllReduce { bytes } => 2.0 * (chips - 1.0) / chips * bytes / s,
            Task::Gather { bytes } | Task::AllToAll { bytes } => (chips - 1.0) / chips * bytes / s,
            _ => return Err("no size of the all-reduce".into()),
        },
        (metric, prediction) => return Err(format!("{prediction:?} says nothing of {metric:?}")),
    };
    Ok(base / row.unit.factor)
}

/// A batch of sequences as it was served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Served {
    /// Sequences.
    pub batch: f64,
    /// Tokens of a prompt.
    pub prompt: f64,
    /// Tokens of an answer.
    pub generated: f64,
    /// What of it was timed.
    pub phase: Phase,
    /// Seconds from the requests to the last token.
    pub latency: f64,
    /// Seconds to the first token.
    pub first: f64,
    /// Seconds of each further token.
    pub token: f64,
    /// Bytes that the fullest chip holds.
    pub bytes: f64,
    /// Bytes of the chips' memory, where it is the larger one of those that their name stands for.
    pub larger_memory: Option<f64>,
}

impl Served {
    fn express(&self, point: &Point, metric: &Metric) -> Result<f64, String> {
        let chips = point.row.chips.unwrap_or(1) as f64;
        let seconds = match self.phase {
            Phase::Whole => self.latency,
            Phase::Prompt => self.first,
            Phase::Tokens => self.token,
        };
        if seconds <= 0.0 {
            return Err("a predicted time of no length".into());
        }
        let read_and_written = point.notes.counts_prompt || self.generated <= 1.0;
        let tokens = self.batch
            * match (self.phase, metric) {
                (Phase::Prompt, _) => self.prompt,
                (Phase::Tokens, _) => 1.0,
                // Read and written tokens, as the inference benchmark counts them.
                (Phase::Whole, Metric::TokenRate | Metric::ChipTokenRate) if read_and_written => {
                    self.prompt + self.generated
                }
                (Phase::Whole, _) => self.generated,
            };
        Ok(match metric {
            Metric::Time => seconds,
            Metric::FirstToken => self.first,
            Metric::TokenTime if self.token > 0.0 => self.token,
            Metric::UserTokenRate if self.token > 0.0 => 1.0 / self.token,
            Metric::TokenRate | Metric::OutputRate => tokens / seconds,
            Metric::ChipTokenRate | Metric::OutputChipRate => tokens / seconds / chips,
            Metric::SampleRate | Metric::SequenceRate => self.batch / seconds,
            Metric::PeakMemory => self.bytes,
            _ => return Err(format!("a served batch says nothing of {metric:?}")),
        })
    }
}

/// Bytes of the operands and the result of a product: results have at least 16 bits.
pub fn words(precision: DataType) -> [f64; 3] {
    [precision.bytes(), precision.bytes(), precision.bytes().max(2.0)]
}

/// FLOP that the source counts for what was timed.
pub(super) fn work(point: &Point) -> Result<f64, String> {
    match &point.task {
        Task::Matmul { .. } => point.task.product().map(|p| p.flop()).ok_or_else(|| "no product".into()),
        Task::Attention(core) => Ok(core.printed_flop()),
        Task::Training => {
            let model = point.model.as_ref().ok_or("the model's sizes are not stated")?;
            let batch = point.row.global_batch.ok_or("the batch is not stated")? as f64;
            Ok(point.share_of_products() * batch * model.training_flop_per_sample(model.seq, flop_count(point)))
        }
        _ => Err("no count of its FLOP".into()),
    }
}

/// Tokens that a source counts in what was timed.
fn tokens(point: &Point) -> Result<f64, String> {
    let batch = point.row.global_batch.ok_or("the batch is not stated")? as f64;
    Ok(batch * point.row.seq.ok_or("the sequence length is not stated")? as f64)
}

/// The error in per cent of the measured figure's time (or size): positive where predicted is slower or more, whatever way
/// round the figure is.
pub fn error_pct(metric: &Metric, measured: f64, predicted: f64) -> f64 {
    match metric {
        Metric::Fits => {
            if (measured > 0.5) == (predicted > 0.5) {
                0.0
            } else {
                100.0
            }
        }
        // A source that says "at least" is contradicted only from below.
        Metric::LeastUtilization if predicted >= measured => 0.0,
        _ if metric.more_is_faster() => 100.0 * (measured / predicted - 1.0),
        _ => 100.0 * (predicted / measured - 1.0),
    }
}
