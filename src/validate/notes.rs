//! What the notes of a measured point say, as facts: a table of phrases, each with what it states.
//!
//! Notes are English, written for people; only phrases that name a number or a switch without doubt are taken. What is not
//! recognised is left to the reader of the file. A number given "from memory" is taken like any other.

use crate::execution::Zero;
use crate::workload::language::DataType;

/// Facts from notes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Notes {
    /// The perceptron is gated.
    pub gated: bool,
    /// Width of the perceptron.
    pub ffn: Option<u64>,
    /// Size of a head.
    pub head_dim: Option<u64>,
    /// Heads of keys and values.
    pub kv_heads: Option<u64>,
    /// Expert parallelism.
    pub ep: Option<u64>,
    /// Context parallelism.
    pub cp: Option<u64>,
    /// Tensor parallelism.
    pub tp: Option<u64>,
    /// Pipeline parallelism.
    pub pp: Option<u64>,
    /// Samples of an iteration.
    pub global_batch: Option<u64>,
    /// Replicas, where the notes correct the column.
    pub dp: Option<u64>,
    /// Divided training state.
    pub zero: Option<Zero>,
    /// Type of the products.
    pub precision: Option<DataType>,
    /// Type of weights that are widened before each product.
    pub widened: Option<DataType>,
    /// Type of the keys and values kept.
    pub cache: Option<DataType>,
    /// Tensor-parallel collectives beside products.
    pub overlap_tp: bool,
    /// Gradients reduced after the backward pass.
    pub dp_not_overlapped: bool,
    /// Whole layers computed again.
    pub full_recompute: bool,
    /// The printed rate counts recomputation.
    pub counts_recomputation: bool,
    /// The printed rate of tokens counts those read.
    pub counts_prompt: bool,
    /// The printed rate is that of one chip.
    pub rate_of_chip: bool,
    /// Prompt and generated tokens.
    pub prompt_and_generated: Option<(u64, u64)>,
    /// One token is generated after so many.
    pub decode_after: Option<u64>,
    /// Rows, columns and contracted size of a matrix product.
    pub product: Option<(u64, u64, u64)>,
    /// Attention kernel by the chips' name of it.
    pub attention_kernel: Option<String>,
    /// Payload of a collective, in bytes.
    pub payload: Option<f64>,
    /// Passes over whose gradients an iteration adds up.
    pub accumulation: Option<u64>,
    /// Tokens of the samples that are packed into a sequence, each of which sees its own alone.
    pub packed_samples: Option<u64>,
    /// Chips run below their power by an amount that is not stated.
    pub power_unstated: bool,
    /// Users, each of whom waits for an answer before it asks again.
    pub users: Option<u64>,
    /// All sequences of its batch run at once.
    pub one_batch: bool,
    /// Whoever wrote the row down doubts its value.
    pub doubted: bool,
    /// It waits for what prepares its samples.
    pub loader_bound: bool,
    /// What is timed holds more than the step alone.
    pub upper_bound: bool,
    /// Side of the mesh of cores that was used; of the tokens' where it is another, with the software that this is said of.
    pub mesh: Option<(u64, Option<(u64, String)>)>,
}

impl Notes {
    /// Sides of the mesh of cores for the prompts and, where it is another, for the tokens, of a software's run.
    pub fn meshes(&self, software: &str) -> Vec<u64> {
        let Some((prompts, tokens)) = &self.mesh else { return Vec::new() };
        let second = tokens.iter().filter(|(_, of)| of.is_empty() || of == software).map(|(side, _)| *side);
        std::iter::once(*prompts).chain(second).collect()
    }
}

/// Tokens of `DeepSpeed is a machine learning framework`, the default prompt of Optimum Habana's `run_generation.py`.
const SHORT_PROMPT: u64 = 8;

/// What a phrase with a number states.
type Take = fn(&mut Notes, u64);
/// What a phrase without a number states.
type Say = fn(&mut Notes);

/// Phrases followed by a number.
const BEFORE_NUMBER: [(&str, Take); 21] = [
    ("concurrency ", |n, v| n.users = Some(v)),
    ("Concurrency ", |n, v| n.users = Some(v)),
    ("gradient accumulation ", |n, v| n.accumulation = Some(v)),
    ("grad-acc ", |n, v| n.accumulation = Some(v)),
    ("MLP ", |n, v| n.ffn = Some(v)),
    ("FFN ", |n, v| n.ffn = Some(v)),
    ("head dim ", |n, v| n.head_dim = Some(v)),
    ("CP ", |n, v| n.cp = Some(v)),
    ("cp=", |n, v| n.cp = Some(v)),
    ("ep=", |n, v| n.ep = Some(v)),
    ("DP alone is ", |n, v| n.dp = Some(v)),
    ("TP = ", |n, v| n.tp = Some(v)),
    ("PP = ", |n, v| n.pp = Some(v)),
    ("TP", |n, v| n.tp = Some(v)),
    ("PP", |n, v| n.pp = Some(v)),
    ("GBS ", |n, v| n.global_batch = Some(v)),
    ("Tensor (", |n, v| n.tp = Some(v)),
    ("Pipeline (", |n, v| n.pp = Some(v)),
    ("input = output = ", |n, v| n.prompt_and_generated = Some((v, v))),
    ("at KV length ", |n, v| n.decode_after = Some(v)),
    // fsdp 64 x tp 8: TPU runs.
    (" x tp ", |n, v| n.tp = Some(v)),
];

/// Phrases after a number.
const AFTER_NUMBER: [(&str, Take); 1] = [(" KV heads", |n, v| n.kv_heads = Some(v))];

/// Tokens of a sample of SQuAD (question, paragraph and answer), from the FLOP that NeMo counts for them: its rates with and without.
const SQUAD: u64 = 120;

/// Phrases that say something by being there.
const SAID: [(&str, Say); 24] = [
    ("gptSessionBenchmark", |n| n.one_batch = true),
    ("SUSPECT", |n| n.doubted = true),
    ("loader-bound", |n| n.loader_bound = true),
    ("out tok/s/gpu", |n| n.rate_of_chip = true),
    ("power limit value not stated", |n| n.power_unstated = true),
    ("packed SQuAD", |n| n.packed_samples = Some(SQUAD)),
    ("SwiGLU", |n| n.gated = true),
    ("GeGLU", |n| n.gated = true),
    ("ZeRO-1", |n| n.zero = Some(Zero::Optimizer)),
    ("ZeRO-2", |n| n.zero = Some(Zero::Gradients)),
    ("ZeRO-3", |n| n.zero = Some(Zero::Weights)),
    ("FSDP", |n| n.zero = Some(Zero::Weights)),
    ("fsdp ", |n| n.zero = Some(Zero::Weights)),
    ("fully-sharded", |n| n.zero = Some(Zero::Weights)),
    ("distributed optimizer", |n| n.zero = Some(Zero::Optimizer)),
    ("TP comm overlap", |n| n.overlap_tp = true),
    ("all-reduce not overlapped", |n| n.dp_not_overlapped = true),
    ("full remat", |n| n.full_recompute = true),
    ("includes full recomputation", |n| n.counts_recomputation = true),
    ("counts input+output tokens", |n| n.counts_prompt = true),
    ("upper bound on the step", |n| n.upper_bound = true),
    ("FP16", |n| n.precision = Some(DataType::Fp16)),
    ("mixed fp16", |n| n.precision = Some(DataType::Fp16)),
    ("BF16", |n| n.precision = Some(DataType::Bf16)),
];

/// Types that a run computes in although it mentions BF16: they come after the others.
const NARROW: [(&str, DataType); 9] = [
    // Of 8 bits whatever the type: where a clause names one, that.
    ("W8A8", DataType::Int8),
    ("w8a8", DataType::Int8),
    ("FP8", DataType::Fp8),
    ("fp8", DataType::Fp8),
    ("float8", DataType::Fp8),
    ("bfp8", DataType::Fp8),
    // NVFP4 and MXFP4 too.
    ("FP4", DataType::Fp4),
    ("int8", DataType::Int8),
    ("INT8", DataType::Int8),
];

/// What says of a clause that weights are kept in a type and multiplied in another.
const WIDENED: [(&str, DataType); 26] = [
    ("GPTQ 8", DataType::Int8),
    ("GPTQ-Int8", DataType::Int8),
    ("GPTQ Int8", DataType::Int8),
    ("4-bit", DataType::Fp4),
    ("4bit", DataType::Fp4),
    ("4 bit", DataType::Fp4),
    ("4.0 bpw", DataType::Fp4),
    ("NF4", DataType::Fp4),
    ("nf4", DataType::Fp4),
    ("int4", DataType::Fp4),
    ("INT4", DataType::Fp4),
    ("W4A16", DataType::Fp4),
    ("AWQ", DataType::Fp4),
    ("GPTQ", DataType::Fp4),
    ("Q4_", DataType::Fp4),
    ("q4_", DataType::Fp4),
    ("weights MXFP4", DataType::Fp4),
    ("W8A16", DataType::Int8),
    ("w8a16", DataType::Int8),
    ("Q8_0", DataType::Int8),
    ("q8_0", DataType::Int8),
    ("LLM.int8", DataType::Int8),
    ("weights int8", DataType::Int8),
    ("int8 weight-only", DataType::Int8),
    ("int8 weight only", DataType::Int8),
    ("INT8 weight-only", DataType::Int8),
];

/// What a clause is about that says what keys and values are kept in.
const OF_CACHE: [&str; 8] =
    ["KV4", "keys and values", "KV cache", "KV-cache", "kv cache", "kv_cache", "kv-cache", "KV8"];

/// Types of caches beside [`NARROW`], of which the first that a clause names counts.
const OF_CACHES: [(&str, DataType); 8] = [
    ("BF16", DataType::Bf16),
    ("FP16", DataType::Fp16),
    ("KV8", DataType::Fp8),
    ("KV4", DataType::Fp4),
    ("4-bit", DataType::Fp4),
    ("4 bit", DataType::Fp4),
    ("int4", DataType::Fp4),
    ("INT4", DataType::Fp4),
];

/// `uses 480x480 of the cores`, or `prefill on 660x660 cores, decode on 360x360 (software)`: sides of square meshes.
fn mesh(notes: &str) -> Option<(u64, Option<(u64, String)>)> {
    let square = |after: &str| {
        let rest = notes.split_once(after)?.1;
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (side, rest) = rest.split_at(digits(rest));
        let rest = rest.strip_prefix('x')?.strip_prefix(side)?;
        Some((side.parse::<u64>().ok().filter(|side| (1..1 << 20).contains(side))?, rest))
    };
    if let Some((side, _)) = square("uses ") {
        return Some((side, None));
    }
    let (prompts, _) = square("prefill on ")?;
    let of = |rest: &str| rest.strip_prefix(" (").and_then(|r| r.split_once(')')).map_or(String::new(), |r| r.0.into());
    Some((prompts, square("decode on ").map(|(side, rest)| (side, of(rest)))))
}

/// Facts of a row's notes. `seq` and `chips` are those of its columns.
pub fn read(notes: &str, seq: Option<u64>, chips: Option<u64>) -> Notes {
    let mut facts = Notes::default();
    for (phrase, say) in SAID {
        if notes.contains(phrase) {
            say(&mut facts);
        }
    }
    facts.one_batch |= notes.split([';', ',']).any(|clause| clause.trim().starts_with("static batch"));
    // The last of the list that a clause names which is about nothing else is the type of the products.
    let mut computed = None;
    for clause in notes.split([';', ',']) {
        let narrow = NARROW.iter().rposition(|(phrase, _)| clause.contains(phrase));
        let widened = WIDENED.iter().find(|(phrase, _)| clause.contains(phrase)).map(|(_, t)| *t);
        match (OF_CACHE.iter().any(|what| clause.contains(what)), widened) {
            (true, _) => {
                // Of a cache alone 8 bits are as many bytes in either type. Of a clause that names several the cache's is none of the narrow weights'.
                let wide = OF_CACHES.into_iter().find(|(word, _)| clause.contains(word)).map(|(_, of)| of);
                facts.cache = narrow.map(|at| NARROW[at].1).or(wide).or(facts.cache);
            }
            (false, Some(_)) => facts.widened = widened,
            (false, None) => computed = computed.max(narrow),
        }
    }
    facts.precision = computed.map(|at| NARROW[at].1).or(facts.precision);
    for (phrase, take) in BEFORE_NUMBER {
        if let Some(value) = number_after(notes, phrase) {
            take(&mut facts, value);
        }
    }
    for (phrase, take) in AFTER_NUMBER {
        if let Some(value) = number_before(notes, phrase) {
            take(&mut facts, value);
        }
    }
    if notes.contains("input length = output length = seq") {
        facts.prompt_and_generated = seq.map(|s| (s, s));
        facts.counts_prompt = true;
    }
    // The inference benchmark counts both even where it does not say so: batch x (input + output) / latency is its rate.
    if facts.prompt_and_generated.is_some() {
        facts.counts_prompt = true;
    }
    facts.mesh = mesh(notes);
    for clause in notes.split(';').map(str::trim) {
        if ["FP32", "TF32", "fp32", "tf32"].contains(&clause) {
            facts.precision = Some(DataType::Fp32);
        }
        let all = match clause {
            "TP" | "Tensor Parallelism" => Some((chips, Some(1))),
            "PP" | "Pipeline Parallelism" => Some((Some(1), chips)),
            _ => None,
        };
        if let Some((tp, pp)) = all {
            (facts.tp, facts.pp) = (tp, pp);
        }
        if let Some(generation) = clause.strip_prefix("FlashAttention-") {
            let digits: String = generation.chars().take_while(char::is_ascii_digit).collect();
            facts.attention_kernel = Some(format!("flash-{digits}"));
        }
        if clause == "cuDNN" {
            facts.attention_kernel = Some("cudnn-9".into());
        }
        if let Some(sizes) = clause.strip_prefix("MxNxK ").and_then(three) {
            facts.product = Some(sizes);
        }
        if let Some(gigabytes) = number_before(clause, " GB payload") {
            facts.payload = Some(gigabytes as f64 * 1e9);
        }
    }
    facts
}

/// Tokens of prompt and answer as workloads and notes write them: `ISL128 OSL2048`, `input 128, output 8`; one of them alone has an answer of one token.
pub fn lengths(workload: &str, notes: &str) -> Option<(u64, u64)> {
    let find = |phrases: [&str; 2]| {
        let of = |text: &str| phrases.iter().find_map(|phrase| number_after(text, phrase));
        of(workload).or_else(|| of(notes))
    };
    // The sentence that Optimum Habana's generation script takes where none is given.
    if notes.contains("default short prompt") {
        return number_after(notes, "max_new_tokens ").map(|generated| (SHORT_PROMPT, generated));
    }
    let prompt = find(["ISL", "input "])?;
    Some((prompt, find(["OSL", "output "]).unwrap_or(1)))
}

/// The whole number behind the first place where `phrase` stands as words of its own.
pub(super) fn number_after(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        // The first letter of the phrase must not be the middle of a word ("TP = " in "HTTP = ").
        let starts = phrase.starts_with(|c: char| !c.is_alphanumeric()) || before.is_none_or(|c| !c.is_alphanumeric());
        let digits: String = text[at + phrase.len()..].chars().take_while(char::is_ascii_digit).collect();
        if starts { count(&digits) } else { None }
    })
}

/// The whole number before the first place where `phrase` follows one.
pub(super) fn number_before(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| {
        let start = text[..at]
            .rfind(|c: char| !c.is_ascii_digit())
            .map_or(0, |i| i + text[i..].chars().next().map_or(1, char::len_utf8));
        count(&text[start..at])
    })
}

/// A count as input files have them: at least one, and far from where products of counts overflow.
fn count(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|value| (1..=1 << 50).contains(value))
}

/// `1024x10240x5120` at the beginning of a text.
fn three(text: &str) -> Option<(u64, u64, u64)> {
    let first = text.split_whitespace().next()?;
    let mut sizes = first.split('x').map(str::parse::<u64>);
    match (sizes.next()?, sizes.next()?, sizes.next()?, sizes.next()) {
        (Ok(a), Ok(b), Ok(c), None) if a.min(b).min(c) > 0 => Some((a, b, c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(notes: &str) -> Notes {
        read(notes, Some(512), Some(4))
    }

    #[test]
    fn models_from_notes() {
        let n = of("MFU 61.1%; SwiGLU MLP 28672, head dim 128");
        assert_eq!((n.gated, n.ffn, n.head_dim), (true, Some(28672), Some(128)));
        let n = of(
            "CP 16 (dp column = DP 8 x CP 16; DP alone is 8); batch per DP group 16; 8 KV heads, FFN 53248 (from MaxText config); BF16 MFU 38%",
        );
        assert_eq!((n.cp, n.dp, n.kv_heads, n.ffn), (Some(16), Some(8), Some(8), Some(53248)));
        assert_eq!(n.precision, Some(DataType::Bf16));
        assert_eq!(of("head dim 256; batch 2048 at the end of the ramp").head_dim, Some(256));
    }

    #[test]
    fn executions_from_notes() {
        assert_eq!(of("FP8; distributed optimizer, TP comm overlap").zero, Some(Zero::Optimizer));
        assert_eq!(of("FP8; distributed optimizer, TP comm overlap").precision, Some(DataType::Fp8));
        assert!(of("FP8; distributed optimizer, TP comm overlap").overlap_tp);
        assert_eq!(of("fsdp 64 x tp 8, full remat, int8 quantised matmul").tp, Some(8));
        assert!(of("fsdp 64 x tp 8, full remat, int8 quantised matmul").full_recompute);
        assert_eq!(of("ZeRO-3 without model parallelism").zero, Some(Zero::Weights));
        for (text, tp, pp) in [
            ("Tensor Parallelism; input = output = 1024; latency 45.042 s", 4, 1),
            ("Pipeline Parallelism; input = output = 1024", 1, 4),
            ("Hybird Tensor (2) and Pipeline (2) Parallelism; input = output = 1024", 2, 2),
            ("Hybrid TP = 2 and PP = 2; input = output = 1024", 2, 2),
            ("TP; input = output = 1024", 4, 1),
            ("PP; input = output = 1024", 1, 4),
        ] {
            let n = of(text);
            assert_eq!((n.tp, n.pp), (Some(tp), Some(pp)), "{text}");
            assert_eq!(n.prompt_and_generated, Some((1024, 1024)), "{text}");
        }
    }

    #[test]
    fn degrees_written_together() {
        let n = of("Ampere GPUs; 128 heads, GBS 6144, TP8 PP8 from memory");
        assert_eq!((n.tp, n.pp, n.global_batch), (Some(8), Some(8), Some(6144)));
    }

    /// What weights are kept in is not what they are multiplied in, and what keys and values are kept in is neither.
    #[test]
    fn types_of_weights_products_and_caches_are_told_apart() {
        let types = |text: &str| {
            let n = of(text);
            (n.precision, n.widened, n.cache)
        };
        let (fp4, fp8, fp16, int8) = (DataType::Fp4, DataType::Fp8, DataType::Fp16, DataType::Int8);
        assert_eq!(types("weights 4-bit (Q4_K_M); computes FP16"), (Some(fp16), Some(fp4), None));
        assert_eq!(types("vLLM; FP16; keys and values FP8"), (Some(fp16), None, Some(fp8)));
        assert_eq!(types("NVFP4, FP8 KV cache"), (Some(fp4), None, Some(fp8)));
        assert_eq!(types("weights int8, keys and values int8"), (None, Some(int8), Some(int8)));
        assert_eq!(types("FP8; NVFP4"), types("NVFP4; FP8"));
        assert_eq!(types("FP4; FP8 KV cache"), types("NVFP4; FP8 KV cache"));
        assert_eq!(types("FP8; keys and values BF16"), (Some(fp8), None, Some(DataType::Bf16)));
        assert_eq!(types("INT8; EP320").0, Some(int8));
        assert_eq!(types("W8A8; kv_cache_dtype fp8"), (Some(int8), None, Some(fp8)));
        assert_eq!(types("FP8 W8A8"), (Some(fp8), None, None));
        assert_eq!(types("QLoRA, NF4"), (None, Some(fp4), None));
        assert_eq!(types("GGUF Q8_0; KV8"), (None, Some(int8), Some(fp8)));
    }

    #[test]
    fn batches_and_kernels_from_notes() {
        let n = of("input length = output length = seq; latency column 5.78 s; throughput counts input+output tokens");
        assert_eq!((n.prompt_and_generated, n.counts_prompt), (Some((512, 512)), true));
        assert_eq!(of("decode of one token at KV length 3072, batch 8; FP16").decode_after, Some(3072));
        assert_eq!(of("peak 312; 86.9%; MxNxK 1024x10240x5120").product, Some((1024, 10240, 5120)));
        assert_eq!(of("4 nodes x 4; 4 GB payload by script default (from memory)").payload, Some(4e9));
        assert_eq!(of(""), Notes::default());
    }

    #[test]
    fn words_inside_words_are_not_phrases() {
        assert_eq!(number_after("HTTP = 3; TP = 2", "TP = "), Some(2));
        assert_eq!(number_after("TP = many", "TP = "), None);
        assert_eq!(number_after("TP = 0", "TP = "), None);
        assert_eq!(number_after("TP = 99999999999999999999", "TP = "), None);
        assert_eq!(number_before("x\u{b5}8 KV heads", " KV heads"), Some(8));
        assert_eq!(number_before(" KV heads", " KV heads"), None);
    }
}
