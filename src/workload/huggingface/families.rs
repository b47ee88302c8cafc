//! What the layers of each family are, as its `modeling_*.py` in Hugging Face's `transformers` builds them, and which fields say so.

use super::config::Config;
use super::{Tree, parts};
use crate::spec::Value;
use crate::workload::language::{Biases, Head, Norm, Position, QkNorm};

/// What the code of a family fixes and no field says.
pub(super) struct Family {
    pub(super) gated: bool,
    pub(super) norm: Norm,
    pub(super) position: Position,
    pub(super) biases: Biases,
    pub(super) norm_shifts: Option<bool>,
    pub(super) parallel_block: bool,
    /// Norms of a layer over the hidden channels, where they are not two (in a parallel block one).
    pub(super) norms: Option<u64>,
    pub(super) qk_norm: Option<QkNorm>,
    pub(super) embedding_norm: bool,
    pub(super) final_norm: bool,
    pub(super) head: Head,
    pub(super) head_bias: bool,
    /// Whether the head is the embedding where `tie_word_embeddings` is left out.
    pub(super) tied: bool,
    pub(super) causal: bool,
    /// Which layers a sliding window is in.
    pub(super) window: Window,
}

/// Which layers have the sliding window that `sliding_window` states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    /// No layer.
    None,
    /// Every layer.
    Every,
    /// Layers from `max_window_layers` on, where `use_sliding_window` is true.
    From,
    /// All but each of so many.
    AllBut(u64),
    /// Those of the chunk of `attention_chunk_size` tokens alone, but in layers without positions: those that `no_rope_layers` marks with 0, else each of so many.
    Chunks(u64),
}

impl Family {
    /// Llama's layer: gates, root-mean-square norms, rotations, no biases.
    fn gated() -> Self {
        Self {
            gated: true,
            norm: Norm::Rms,
            position: Position::Rotary,
            biases: Biases::None,
            norm_shifts: None,
            parallel_block: false,
            norms: None,
            qk_norm: None,
            embedding_norm: false,
            final_norm: true,
            head: Head::Vocabulary,
            head_bias: false,
            tied: false,
            causal: true,
            window: Window::None,
        }
    }

    /// GPT's layer: two matrices, layer norms, learned positions, biases everywhere.
    fn gpt() -> Self {
        Self {
            gated: false,
            norm: Norm::Layer,
            position: Position::Learned,
            biases: Biases::All,
            tied: true,
            ..Self::gated()
        }
    }
}

/// Fields of a text model within another (`text_config`) state what differs from the class alone: its other sizes.
const GEMMA3: &[(&str, &str)] = &[
    ("vocab_size", "262208"),
    ("hidden_size", "2304"),
    ("intermediate_size", "9216"),
    ("num_hidden_layers", "26"),
    ("num_attention_heads", "8"),
    ("num_key_value_heads", "4"),
    ("head_dim", "256"),
    ("max_position_embeddings", "131072"),
    ("sliding_window", "4096"),
];
const LLAMA: &[(&str, &str)] = &[
    ("vocab_size", "32000"),
    ("hidden_size", "4096"),
    ("intermediate_size", "11008"),
    ("num_hidden_layers", "32"),
    ("num_attention_heads", "32"),
    ("max_position_embeddings", "2048"),
];
const LLAMA4: &[(&str, &str)] = &[
    ("vocab_size", "202048"),
    ("hidden_size", "5120"),
    ("intermediate_size", "8192"),
    ("intermediate_size_mlp", "16384"),
    ("num_hidden_layers", "48"),
    ("num_attention_heads", "40"),
    ("num_key_value_heads", "8"),
    ("head_dim", "128"),
    ("max_position_embeddings", "131072"),
    ("attention_chunk_size", "8192"),
    ("num_experts_per_tok", "1"),
    ("num_local_experts", "16"),
    ("interleave_moe_layer_step", "1"),
];
const MISTRAL: &[(&str, &str)] = &[
    ("vocab_size", "32000"),
    ("hidden_size", "4096"),
    ("intermediate_size", "14336"),
    ("num_hidden_layers", "32"),
    ("num_attention_heads", "32"),
    ("num_key_value_heads", "8"),
    ("max_position_embeddings", "131072"),
];

/// Parts of models of several kinds of input that are left out here.
const OTHER_PARTS: [&str; 4] = ["vision_config", "audio_config", "speech_config", "image_config"];

/// Reads a configuration into the fields of a language model.
pub fn model(whole: &mut Config, tree: &mut Tree, options: &[(String, String)]) {
    let outer = whole.text(&["model_type"]).unwrap_or_default().to_string();
    let Some((key, text)) = whole.find(&["text_config", "language_config", "llm_config"]) else {
        return text_model(whole, tree, options, &outer, false);
    };
    for part in OTHER_PARTS {
        if whole.find(&[part]).is_some() {
            whole.note(format!("left out: {part} (the {outer} is read as the text model of its {key})"));
        }
    }
    let mut inner = Config::new(text);
    // What stands outside the part counts for it too.
    let tie = whole.find(&["tie_word_embeddings"]).map(|(_, node)| (whole.flag(&["tie_word_embeddings"], false), node));
    let kind = inner.text(&["model_type"]).map_or_else(|| outer.clone(), str::to_string);
    text_model(&mut inner, tree, options, &kind, true);
    if let Some((tied, node)) = tie.filter(|_| inner.find(&["tie_word_embeddings"]).is_none()) {
        tree.set("tied_embeddings", &node.origin, tied);
    }
    whole.notes.append(&mut inner.notes);
    whole.problems.append(&mut inner.problems);
}

fn text_model(c: &mut Config, tree: &mut Tree, options: &[(String, String)], kind: &str, within: bool) {
    if c.flag(&["is_encoder_decoder"], false) {
        let origin = c.find(&["is_encoder_decoder"]).map_or(c.origin(), |(_, node)| node.origin.clone());
        let message =
            "found true; expected a model of one stack of layers: there is no field for an encoder beside a decoder";
        c.problem("is_encoder_decoder", &origin, message);
        return;
    }
    let known = family(c, kind);
    if within {
        c.set_defaults(match kind {
            "gemma3_text" | "gemma3" => GEMMA3,
            "llama4_text" | "llama4" => LLAMA4,
            "llama" => LLAMA,
            "mistral" => MISTRAL,
            _ => &[],
        });
    }
    let family = known.unwrap_or_else(|| by_fields(c, kind));
    parts::all(c, tree, &family, kind, options);
}

/// The family of a `model_type`.
fn family(c: &mut Config, kind: &str) -> Option<Family> {
    Some(match kind {
        "llama" => {
            let biases = match (c.flag(&["attention_bias"], false), c.flag(&["mlp_bias"], false)) {
                (false, false) => Biases::None,
                (true, false) => Biases::Attention,
                (false, true) => Biases::Perceptron,
                (true, true) => Biases::All,
            };
            Family { biases, ..Family::gated() }
        }
        "mistral" | "mixtral" | "phi3" => Family { window: Window::Every, ..Family::gated() },
        "qwen2" | "qwen2_moe" => Family { biases: Biases::Qkv, window: Window::From, ..Family::gated() },
        "qwen3" | "qwen3_moe" => {
            let biases = if c.flag(&["attention_bias"], false) { Biases::Attention } else { Biases::None };
            Family { biases, qk_norm: Some(QkNorm::Head), window: Window::From, ..Family::gated() }
        }
        "llama4" | "llama4_text" => {
            let every = c.count(&["no_rope_layer_interval"]).map_or(4, |found| found.value);
            let biases = if c.flag(&["attention_bias"], false) { Biases::Attention } else { Biases::None };
            Family { biases, window: Window::Chunks(every), ..Family::gated() }
        }
        "deepseek_v2" | "deepseek_v3" => {
            if c.flag(&["attention_bias"], false) {
                let origin = c.find(&["attention_bias"]).map_or(c.origin(), |(_, node)| node.origin.clone());
                c.problem(
                    "attention_bias",
                    &origin,
                    "found true; expected false: latent attention with biases has no field",
                );
            }
            if let Some(layers) = c.count_or_none(&["num_nextn_predict_layers"]) {
                c.note(format!(
                    "left out: {} layers that predict further tokens (num_nextn_predict_layers)",
                    layers.value
                ));
            }
            Family::gated()
        }
        "gemma" => Family { tied: true, ..Family::gated() },
        "gemma2" => {
            softcaps(c);
            Family { tied: true, norms: Some(4), window: Window::AllBut(2), ..Family::gated() }
        }
        "gemma3_text" | "gemma3" => {
            softcaps(c);
            let pattern =
                c.count(&["sliding_window_pattern", "_sliding_window_pattern"]).map_or(6, |found| found.value);
            let window = Window::AllBut(pattern);
            Family { tied: true, norms: Some(4), qk_norm: Some(QkNorm::Head), window, ..Family::gated() }
        }
        "phi" => {
            let qk_norm = c.flag(&["qk_layernorm"], false).then_some(QkNorm::Head);
            Family {
                position: Position::Rotary,
                parallel_block: true,
                head_bias: true,
                tied: false,
                qk_norm,
                ..Family::gpt()
            }
        }
        "gpt2" => Family::gpt(),
        "gpt_neox" => {
            let parallel_block = c.flag(&["use_parallel_residual"], true);
            let biases = if c.flag(&["attention_bias"], true) { Biases::All } else { Biases::Perceptron };
            let norms = parallel_block.then_some(2);
            let norm_shifts = (biases != Biases::All).then_some(true);
            Family {
                position: Position::Rotary,
                parallel_block,
                biases,
                norm_shifts,
                norms,
                tied: false,
                ..Family::gpt()
            }
        }
        "opt" => {
            let biases = if c.flag(&["enable_bias"], true) { Biases::All } else { Biases::None };
            let final_norm = c.flag(&["do_layer_norm_before"], true) && !c.flag(&["_remove_final_layer_norm"], false);
            let norm_shifts = (biases == Biases::None).then_some(true);
            Family { biases, norm_shifts, final_norm, ..Family::gpt() }
        }
        "bloom" => Family { position: Position::Alibi, embedding_norm: true, ..Family::gpt() },
        "mpt" => {
            let biases = if c.flag(&["no_bias"], true) { Biases::None } else { Biases::All };
            let alibi = c.flag(&["attn_config.alibi"], true);
            let rope = c.flag(&["attn_config.rope"], false);
            let position = match (alibi, rope) {
                (true, _) => Position::Alibi,
                (false, true) => Position::Rotary,
                (false, false) => Position::Learned,
            };
            let qk_norm = c.flag(&["attn_config.qk_ln"], false).then_some(QkNorm::Width);
            Family { position, biases, qk_norm, ..Family::gpt() }
        }
        "bert" | "roberta" => {
            let head = match architecture(c) {
                Some(name) if name.ends_with("ForMaskedLM") => Head::MaskedTokens,
                Some(name) if name.ends_with("ForPreTraining") => {
                    c.note("left out: the pooler and the head for the next sentence of BertForPreTraining");
                    Head::MaskedTokens
                }
                Some(name) if !name.ends_with("Model") => {
                    c.note(format!("left out: the head of {name} behind the pooler"));
                    Head::Pooler
                }
                _ => Head::Pooler,
            };
            Family { embedding_norm: true, final_norm: false, head, causal: false, ..Family::gpt() }
        }
        "vit" => {
            if !c.flag(&["qkv_bias"], true) {
                let origin = c.find(&["qkv_bias"]).map_or(c.origin(), |(_, node)| node.origin.clone());
                c.problem(
                    "qkv_bias",
                    &origin,
                    "found false; expected true: biases of the other maps alone have no field",
                );
            }
            let classes = architecture(c).is_some_and(|name| name.ends_with("ForImageClassification"));
            let head = if classes { Head::Classes } else { Head::Pooler };
            Family { head, tied: false, causal: false, ..Family::gpt() }
        }
        _ => return None,
    })
}

fn architecture(c: &Config) -> Option<String> {
    match c.find(&["architectures"]).map(|(_, node)| &node.value) {
        Some(Value::List(items)) => match items.first().map(|item| &item.value) {
            Some(Value::Scalar { text, .. }) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn softcaps(c: &mut Config) {
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if c.find(&[key]).is_some() {
            c.note(format!("left out: {key} (elementwise, no weights)"));
        }
    }
}

/// A family that is not known, by what its fields are called. Every assumption is noted.
fn by_fields(c: &mut Config, kind: &str) -> Family {
    let mut family = Family::gated();
    let has = |c: &Config, keys: &[&'static str]| c.find(keys).map(|(key, _)| key);
    let what = if kind.is_empty() { "no model_type".to_string() } else { format!("model_type {kind:?} is not known") };
    let mut said = Vec::new();
    family.norm = match (
        has(c, &["rms_norm_eps", "rms_norm_epsilon", "norm_eps"]),
        has(c, &["layer_norm_epsilon", "layer_norm_eps"]),
    ) {
        (Some(key), _) => {
            said.push(format!("root-mean-square norms ({key})"));
            Norm::Rms
        }
        (None, Some(key)) => {
            said.push(format!("layer norms ({key})"));
            Norm::Layer
        }
        (None, None) => {
            said.push("root-mean-square norms".into());
            Norm::Rms
        }
    };
    let function = c.text(&["hidden_act", "hidden_activation", "activation_function", "activation", "act_fn"]);
    family.gated = function.map_or(family.norm == Norm::Rms, |f| {
        let f = f.to_ascii_lowercase();
        ["silu", "swish", "glu"].iter().any(|gate| f.contains(gate)) || (family.norm == Norm::Rms && f.contains("gelu"))
    });
    let gates = if family.gated { "a gated perceptron" } else { "a perceptron of two matrices" };
    said.push(function.map_or(gates.to_string(), |f| format!("{gates} ({f})")));
    let rotary = has(
        c,
        &[
            "rope_theta",
            "rope_scaling",
            "rope_parameters",
            "rotary_pct",
            "partial_rotary_factor",
            "rotary_dim",
            "rotary_emb_base",
        ],
    );
    let alibi = c.flag(&["alibi", "attn_config.alibi"], false);
    let learned = has(c, &["n_positions"]);
    family.position = match (alibi, rotary, learned) {
        (true, ..) => Position::Alibi,
        (_, Some(_), _) => Position::Rotary,
        (_, None, Some(_)) => Position::Learned,
        _ => Position::Rotary,
    };
    let by = rotary
        .filter(|_| family.position == Position::Rotary)
        .or(learned.filter(|_| family.position == Position::Learned));
    said.push(
        by.map_or(format!("{} positions", family.position), |key| format!("{} positions ({key})", family.position)),
    );
    family.biases = match has(c, &["attention_bias", "use_bias", "bias", "add_bias_linear", "qkv_bias"]) {
        Some("attention_bias") if c.flag(&["attention_bias"], false) => Biases::Attention,
        Some("qkv_bias") if c.flag(&["qkv_bias"], false) => Biases::Qkv,
        Some("use_bias" | "bias" | "add_bias_linear") if c.flag(&["use_bias", "bias", "add_bias_linear"], false) => {
            Biases::All
        }
        _ => Biases::None,
    };
    said.push(format!("biases {}", family.biases));
    family.norm_shifts = (family.norm == Norm::Layer).then_some(true);
    family.parallel_block = c.flag(&["parallel_attn", "use_parallel_residual", "parallel_residual"], false);
    if c.flag(&["use_qk_norm", "qk_norm", "qk_layernorm"], false) {
        family.qk_norm = Some(QkNorm::Head);
        said.push("norms of queries and keys over a head".into());
    }
    family.tied = c.find(&["tie_word_embeddings"]).is_none() && family.norm == Norm::Layer;
    if c.find(&["tie_word_embeddings"]).is_none() {
        said.push(format!("a head that is {} the embedding", if family.tied { "tied to" } else { "apart from" }));
    }
    family.window = match c.find(&["sliding_window"]) {
        Some(_) if c.find(&["layer_types"]).is_none() => Window::Every,
        _ => Window::None,
    };
    c.note(format!("{what}; assumed by its fields: {}", said.join(", ")));
    family
}
