//! What the layers of each family are, as its `modeling_*.py` in Hugging Face's `transformers` builds them, and which fields say so.

use super::config::Config;
use super::{Tree, defaults, parts, structure, variants};
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
    /// All but the last of each so many.
    AllBut(u64),
    /// All but the first of each so many, in which `local_attention` states it (ModernBERT).
    AllButFirst(u64),
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

    /// BERT's layer: GPT's, every token of which sees all, with norms behind what they follow.
    fn encoder() -> Self {
        Self { embedding_norm: true, final_norm: false, causal: false, ..Self::gpt() }
    }
}

/// Parts of models of several kinds of input that are left out here.
const OTHER_PARTS: [&str; 5] = ["vision_config", "audio_config", "speech_config", "image_config", "qformer_config"];

/// Reads a configuration into the fields of a language model.
pub fn model(whole: &mut Config, tree: &mut Tree, options: &[(String, String)]) {
    let outer = whole.text(&["model_type"]).unwrap_or_default().to_string();
    let text = whole.find(&["text_config", "language_config", "llm_config"]);
    let called = if outer.is_empty() { "model" } else { outer.as_str() };
    let of = text.map_or("its text model".to_string(), |(key, _)| format!("the text model of its {key}"));
    for part in OTHER_PARTS {
        if whole.find(&[part]).is_some() {
            whole.note(format!("left out: {part} (the {called} is read as {of})"));
        }
    }
    let Some((_, text)) = text else {
        return text_model(whole, tree, options, &outer, false);
    };
    let mut inner = whole.part(text);
    let kind = inner.text(&["model_type"]).map_or_else(|| outer.clone(), str::to_string);
    text_model(&mut inner, tree, options, &kind, true);
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
    c.add_defaults(defaults::of_class(kind));
    if within {
        c.add_defaults(defaults::of_part(kind));
    }
    let guessed = known.is_none();
    let mut family = known.unwrap_or_else(|| by_fields(c, kind));
    variants::apply(c, kind, &mut family, within);
    parts::all(c, tree, &family, &parts::Reading { kind, guessed, options });
    structure::tell_unread(c, guessed);
}

/// The family of a `model_type`.
fn family(c: &mut Config, kind: &str) -> Option<Family> {
    Some(match kind {
        "llama" => Family { biases: stated_biases(c), ..Family::gated() },
        "mistral" | "mixtral" | "phi3" => Family { window: Window::Every, ..Family::gated() },
        // The text models of Qwen 2 VL and 2.5 VL are Qwen 2's.
        "qwen2" | "qwen2_moe" | "qwen2_vl" | "qwen2_vl_text" | "qwen2_5_vl" | "qwen2_5_vl_text" => {
            let biases = if c.flag(&["qkv_bias"], true) { Biases::Qkv } else { Biases::None };
            Family { biases, window: Window::From, ..Family::gated() }
        }
        "qwen3" | "qwen3_moe" => {
            let biases = if c.flag(&["attention_bias"], false) { Biases::Attention } else { Biases::None };
            Family { biases, qk_norm: Some(QkNorm::Head), window: Window::From, ..Family::gated() }
        }
        "llama4" | "llama4_text" => {
            let every = c.count(&["no_rope_layer_interval"]).map_or(4, |found| found.value);
            // Norms without gains.
            c.find(&["use_qk_norm"]);
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
        // GLM-4 and ChatGLM 2 and 3, whose first version is of another structure and states no ffn_hidden_size.
        "chatglm" if c.find(&["ffn_hidden_size"]).is_some() => {
            let biases = match (c.flag(&["add_bias_linear"], false), c.flag(&["add_qkv_bias"], false)) {
                (true, _) => Biases::All,
                (false, true) => Biases::Qkv,
                (false, false) => Biases::None,
            };
            let rms = c.flag(&["rmsnorm"], true);
            let norm = if rms { Norm::Rms } else { Norm::Layer };
            let final_norm = c.flag(&["post_layer_norm"], true);
            Family { biases, norm, norm_shifts: (!rms).then_some(true), final_norm, ..Family::gated() }
        }
        "glm" | "glm4" => {
            let biases = if c.flag(&["attention_bias"], false) { Biases::Qkv } else { Biases::None };
            Family { biases, norms: (kind == "glm4").then_some(4), ..Family::gated() }
        }
        "cohere" | "cohere2" => {
            let biases = if c.flag(&["attention_bias"], false) { Biases::Attention } else { Biases::None };
            // A gain for each channel of each head.
            let qk_norm = c.flag(&["use_qk_norm"], false).then_some(QkNorm::Width);
            let window = match kind {
                "cohere2" => Window::AllBut(window_pattern(c).unwrap_or(4)),
                _ => Window::None,
            };
            Family {
                norm: Norm::Layer,
                norm_shifts: Some(false),
                parallel_block: true,
                tied: true,
                biases,
                qk_norm,
                window,
                ..Family::gated()
            }
        }
        "starcoder2" => {
            let biases = if c.flag(&["use_bias"], true) { Biases::All } else { Biases::None };
            let norm = stated_norm(c).unwrap_or(Norm::Layer);
            let norm_shifts = (norm == Norm::Layer && biases == Biases::None).then_some(true);
            let gated = c.text(&["mlp_type"]) == Some("gated");
            let window = Window::Every;
            Family { gated, norm, position: Position::Rotary, biases, norm_shifts, window, ..Family::gpt() }
        }
        "gemma" => Family { tied: true, ..Family::gated() },
        "gemma2" => {
            softcaps(c);
            Family { tied: true, norms: Some(4), window: Window::AllBut(2), ..Family::gated() }
        }
        "gemma3_text" | "gemma3" => {
            softcaps(c);
            let window = Window::AllBut(window_pattern(c).unwrap_or(6));
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
        "gptj" | "codegen" => Family {
            position: Position::Rotary,
            parallel_block: true,
            biases: Biases::Perceptron,
            norm_shifts: Some(true),
            head_bias: true,
            tied: false,
            ..Family::gpt()
        },
        // Two of its names are those of the code that its first releases brought along.
        "falcon" | "RefinedWeb" | "RefinedWebModel" => falcon(c, kind),
        "qwen" => {
            let biases = if c.flag(&["no_bias"], true) { Biases::Qkv } else { Biases::All };
            Family { biases, ..Family::gated() }
        }
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
        "bert" | "roberta" | "camembert" | "xlm-roberta" => {
            Family { head: encoder_head(c, Head::Pooler), ..Family::encoder() }
        }
        "electra" => {
            let (width, hidden) = (c.find(&["embedding_size"]), c.text(&["hidden_size"]));
            if let Some((key, node)) = width.filter(|_| c.text(&["embedding_size"]) != hidden) {
                let message = format!(
                    "found {}; expected the hidden_size: there is no field for positions and segments as narrow as the words",
                    node.describe()
                );
                c.problem(key, &node.origin, message);
            }
            Family { head: encoder_head(c, Head::None), ..Family::encoder() }
        }
        "deberta" | "deberta-v2" => {
            if c.flag(&["relative_attention"], false) {
                let maps = if c.flag(&["share_att_key"], false) { "" } else { ", their maps in each layer" };
                c.note(format!(
                    "left out: relative_attention (the scores of distances between tokens, their table{maps}: weights and time are less than the model's)"
                ));
            }
            if c.count_or_none(&["conv_kernel_size"]).is_some() {
                c.note("left out: the convolution beside the first layer (conv_kernel_size)");
            }
            let position = if c.flag(&["position_biased_input"], true) { Position::Learned } else { Position::None };
            Family { position, head: encoder_head(c, Head::None), ..Family::encoder() }
        }
        "modernbert" => {
            let every = c.count(&["global_attn_every_n_layers"]).map_or(3, |found| found.value);
            let head = encoder_head(c, Head::None);
            c.note(
                "counted though ModernBERT has none: a norm before the first layer's attention and, with a head, a bias of its first map",
            );
            Family {
                norm: Norm::Layer,
                norm_shifts: Some(c.flag(&["norm_bias"], false)),
                biases: stated_biases(c),
                embedding_norm: true,
                head,
                tied: true,
                causal: false,
                window: Window::AllButFirst(every),
                ..Family::gated()
            }
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

/// Falcon's layer: of the new kind with two norms in a parallel block, unless it states one.
fn falcon(c: &mut Config, kind: &str) -> Family {
    let separate = parts::is_new_falcon(c, kind);
    let parallel_block = c.flag(&["parallel_attn"], true) || separate;
    let norms = c.count(&["num_ln_in_parallel_attn"]).map_or(2, |found| found.value);
    let alibi = c.flag(&["alibi"], false);
    Family {
        position: if alibi { Position::Alibi } else { Position::Rotary },
        parallel_block,
        norms: separate.then_some(norms),
        biases: if c.flag(&["bias"], false) { Biases::All } else { Biases::None },
        norm_shifts: Some(true),
        ..Family::gpt()
    }
}

/// The first architecture that is named.
pub(super) fn architecture(c: &Config) -> Option<String> {
    match c.find(&["architectures"]).map(|(_, node)| &node.value) {
        Some(Value::List(items)) => match items.first().map(|item| &item.value) {
            Some(Value::Scalar { text, .. }) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The head of an encoder; `else_head` where its architecture has none for masked words.
fn encoder_head(c: &mut Config, else_head: Head) -> Head {
    match architecture(c) {
        Some(name) if ["ForMaskedLM", "LMHeadModel", "ForCausalLM"].iter().any(|end| name.ends_with(end)) => {
            Head::MaskedTokens
        }
        Some(name) if name.ends_with("ForPreTraining") && else_head == Head::Pooler => {
            c.note(format!("left out: the pooler and the head for the next sentence of {name}"));
            Head::MaskedTokens
        }
        Some(name) if !name.ends_with("Model") => {
            let behind = if else_head == Head::Pooler { " behind the pooler" } else { "" };
            c.note(format!("left out: the head of {name}{behind}"));
            else_head
        }
        _ => else_head,
    }
}

/// Biases of attention and perceptron, each of which has a field of its own.
fn stated_biases(c: &mut Config) -> Biases {
    match (c.flag(&["attention_bias"], false), c.flag(&["mlp_bias"], false)) {
        (false, false) => Biases::None,
        (true, false) => Biases::Attention,
        (false, true) => Biases::Perceptron,
        (true, true) => Biases::All,
    }
}

/// The norm that a field names.
fn stated_norm(c: &mut Config) -> Option<Norm> {
    if let Some(named) = c.text(&["norm_type", "normalization", "layer_norm_type"]).map(str::to_ascii_lowercase) {
        if named.contains("rms") {
            return Some(Norm::Rms);
        }
        if named.contains("layer") {
            return Some(Norm::Layer);
        }
    }
    c.find(&["rmsnorm"])?;
    Some(if c.flag(&["rmsnorm"], true) { Norm::Rms } else { Norm::Layer })
}

/// Of how many layers one has no window. Where `layer_types` lists them it goes before.
fn window_pattern(c: &mut Config) -> Option<u64> {
    const PATTERN: &[&str] = &["sliding_window_pattern", "_sliding_window_pattern"];
    if c.find(&["layer_types"]).is_some() {
        c.find(PATTERN);
        return None;
    }
    c.count(PATTERN).map(|found| found.value)
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
    let any = |c: &mut Config, keys: &[&'static str]| keys.iter().any(|key| c.flag(&[key], false));
    let what = if kind.is_empty() { "no model_type".to_string() } else { format!("model_type {kind:?} is not known") };
    let mut said = Vec::new();
    let norm = stated_norm(c);
    family.norm = match (
        norm,
        has(c, &["rms_norm_eps", "rms_norm_epsilon", "norm_eps"]),
        has(c, &["layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon"]),
    ) {
        (Some(norm), ..) => norm,
        (None, None, Some(_)) => Norm::Layer,
        _ => Norm::Rms,
    };
    let (keys, norms): (&[&str], _) = match family.norm {
        Norm::Rms => (
            &[
                "rmsnorm",
                "norm_type",
                "normalization",
                "layer_norm_type",
                "rms_norm_eps",
                "rms_norm_epsilon",
                "norm_eps",
            ],
            "root-mean-square norms",
        ),
        Norm::Layer => (
            &[
                "rmsnorm",
                "norm_type",
                "normalization",
                "layer_norm_type",
                "layer_norm_epsilon",
                "layer_norm_eps",
                "layernorm_epsilon",
            ],
            "layer norms",
        ),
    };
    said.push(has(c, keys).map_or(norms.to_string(), |key| format!("{norms} ({key})")));
    let encoder = is_encoder(c, kind);
    let function = c.text(&["hidden_act", "hidden_activation", "activation_function", "activation", "act_fn"]);
    let by_function = function.map_or(family.norm == Norm::Rms, |f| {
        let f = f.to_ascii_lowercase();
        ["silu", "swish", "glu"].iter().any(|gate| f.contains(gate)) || (family.norm == Norm::Rms && f.contains("gelu"))
    });
    family.gated = match c.text(&["mlp_type"]) {
        Some("default") => false,
        Some("gated") => true,
        // Squares of what is above zero, and gates all the same.
        _ if kind == "bitnet" => true,
        _ => c.flag(&["use_gated_activation", "use_glu", "gated_mlp"], by_function),
    };
    let gates = if family.gated { "a gated perceptron" } else { "a perceptron of two matrices" };
    said.push(function.map_or(gates.to_string(), |f| format!("{gates} ({f})")));
    family.position = position(c, encoder, &mut said);
    family.biases = if any(c, &["use_bias", "bias", "add_bias_linear"]) {
        Biases::All
    } else {
        match stated_biases(c) {
            Biases::None if any(c, &["qkv_bias", "add_qkv_bias", "use_qkv_bias"]) => Biases::Qkv,
            // BERT's and its like have them and no field for them.
            Biases::None if encoder && family.position == Position::Learned => Biases::All,
            biases => biases,
        }
    };
    said.push(format!("biases {}", family.biases));
    family.norm_shifts = (family.norm == Norm::Layer).then(|| c.flag(&["norm_bias"], true));
    const PARALLEL: &[&str] = &["parallel_attn", "use_parallel_residual", "parallel_residual", "use_parallel_block"];
    family.parallel_block = c.flag(PARALLEL, false);
    if c.flag(&["use_qk_norm", "qk_norm", "qk_layernorm"], false) {
        family.qk_norm = Some(QkNorm::Head);
        said.push("norms of queries and keys over a head".into());
    }
    family.head_bias = !encoder && c.flag(&["lm_head_bias"], false);
    let class_ties = ["minicpm", "smollm3", "ernie4_5", "ernie4_5_moe"].contains(&kind);
    family.tied = c.find(&["tie_word_embeddings"]).is_none() && (family.norm == Norm::Layer || class_ties);
    if encoder {
        // After the norms of BERT's last layer there is none; its like with rotations have norms before.
        family.embedding_norm = family.norm == Norm::Layer;
        family.final_norm = family.position != Position::Learned;
        family.causal = false;
        family.head = encoder_head(c, Head::Pooler);
        said.push(format!("an encoder, in which every token sees all, with the head {}", family.head));
    } else if c.find(&["tie_word_embeddings"]).is_none() {
        said.push(format!("a head that is {} the embedding", if family.tied { "tied to" } else { "apart from" }));
    }
    family.window = window(c, &mut said);
    c.note(format!("{what}; assumed by its fields: {}", said.join(", ")));
    family
}

/// Whether a family that is not known reads words in both directions, as what BERT's and Electra's names are in does.
fn is_encoder(c: &Config, kind: &str) -> bool {
    let named = ["bert", "electra"].iter().any(|name| kind.to_ascii_lowercase().contains(name));
    match architecture(c) {
        Some(name) if name.contains("MaskedLM") => true,
        Some(name) if name.contains("CausalLM") || name.contains("LMHead") => false,
        Some(name) => named || ["Bert", "BERT", "Electra"].iter().any(|part| name.contains(part)),
        None => named,
    }
}

/// Positions of a family that is not known.
fn position(c: &mut Config, encoder: bool, said: &mut Vec<String>) -> Position {
    const ROTARY: &[&str] = &[
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "rotary_pct",
        "partial_rotary_factor",
        "rotary_dim",
        "rotary_emb_base",
    ];
    let named = c.find(&["position_embedding_type"]).map(|(key, _)| key);
    let name = c.text(&["position_embedding_type"]).unwrap_or_default().to_ascii_lowercase();
    let rotary = c.find(ROTARY).map(|(key, _)| key);
    let learned = c.find(&["n_positions"]).or(c.find(&["max_position_embeddings"]).filter(|_| encoder));
    let (position, key) = if c.flag(&["alibi", "attn_config.alibi"], false) || name.contains("alibi") {
        (Position::Alibi, None)
    } else if rotary.is_some() || name.contains("rope") || name.contains("rotary") {
        (Position::Rotary, rotary.or(named))
    } else if ["absolute", "learned"].iter().any(|word| name.contains(word)) {
        (Position::Learned, named)
    } else if let Some((key, _)) = learned {
        (Position::Learned, Some(key))
    } else {
        (Position::Rotary, None)
    };
    said.push(key.map_or(format!("{position} positions"), |key| format!("{position} positions ({key})")));
    position
}

/// Windows of a family that is not known.
fn window(c: &mut Config, said: &mut Vec<String>) -> Window {
    let pattern = window_pattern(c);
    let interval = c.count_or_none(&["full_attention_interval"]).map(|found| found.value);
    if let Some(every) = c.count(&["global_attn_every_n_layers"]) {
        // ModernBERT's window is called otherwise than that of layers of which the last sees all (Trinity).
        let (which, window) = if c.find(&["sliding_window"]).is_some() {
            ("last", Window::AllBut(every.value))
        } else {
            ("first", Window::AllButFirst(every.value))
        };
        said.push(format!("a window in all layers but the {which} of each global_attn_every_n_layers"));
        return window;
    }
    if c.find(&["layer_types"]).is_some() || c.find(&["sliding_window"]).is_none() {
        return Window::None;
    }
    let from = c.find(&["use_sliding_window"]).is_some() && c.find(&["max_window_layers"]).is_some();
    match pattern.or(interval) {
        Some(every) => {
            said.push(format!("a window in all layers but the last of each {every}"));
            Window::AllBut(every)
        }
        None if from => Window::From,
        None => Window::Every,
    }
}
