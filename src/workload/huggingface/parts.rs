//! The parts of a configuration that are read alike for every family: sizes, windows, experts, ends, types, passes.

use super::Tree;
use super::config::{Config, Found};
use super::families::{Family, Window};
use super::{beside, structure};
use crate::spec::{Node, Origin, Value};
use crate::workload::language::{Head, Position};

const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model", "n_embed"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads", "num_heads"];
pub(super) const KV_HEADS: &[&str] =
    &["num_key_value_heads", "attn_config.kv_n_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "num_query_groups"];
const FFN: &[&str] = &["intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff"];
const POSITIONS: &[&str] = &["max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"];
const DENSE: &[&str] = &["first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"];
const EXPERTS: &[&str] = &["num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"];
const TOP: &[&str] = &[
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
    "experts_per_token",
];
const DROPOUTS: [&[&str]; 6] = [
    &["hidden_dropout_prob", "hidden_dropout"],
    &["attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "attn_config.attn_pdrop"],
    &["resid_pdrop"],
    &["embd_pdrop", "embd_dropout", "emb_pdrop"],
    &["dropout"],
    &["activation_dropout"],
];

/// What is read, and how.
pub(super) struct Reading<'r> {
    /// The `model_type`.
    pub(super) kind: &'r str,
    /// Whether it is none that is known.
    pub(super) guessed: bool,
    /// Fields that are set besides.
    pub(super) options: &'r [(String, String)],
}

/// Reads every part.
pub(super) fn all(c: &mut Config, tree: &mut Tree, family: &Family, reading: &Reading) {
    let Reading { kind, options, .. } = *reading;
    let sizes = sizes(c, tree, family, reading);
    structure::refuse(c, kind, sizes.layers.as_ref());
    fixed(c, tree, family);
    if let Some(layers) = &sizes.layers {
        windows(c, tree, family, layers.value);
    }
    latents(c, tree);
    experts(c, tree, kind, &sizes);
    ends(c, tree, family, kind, &sizes);
    types(c, tree, options);
    passes(c, tree, family, options);
}

/// Whether it is Falcon's second layer, which has heads of keys and values of their own number: the 40B's first release is, without saying so.
pub(super) fn is_new_falcon(c: &mut Config, kind: &str) -> bool {
    c.flag(&["new_decoder_architecture"], kind == "RefinedWeb")
}

/// Sizes that other fields depend on.
struct Sizes {
    layers: Option<Found<u64>>,
    hidden: Option<Found<u64>>,
    ffn: Option<Found<u64>>,
}

fn sizes(c: &mut Config, tree: &mut Tree, family: &Family, reading: &Reading) -> Sizes {
    let kind = reading.kind;
    let (layers, hidden, heads) = (c.need(LAYERS), c.need(HIDDEN), c.need(HEADS));
    let head_dim = c.count(&["head_dim", "kv_channels"]);
    let latent = beside::is_latent(c);
    let kv = if latent { None } else { beside::kv_heads(c, kind, heads.as_ref()) };
    if latent {
        // As many as heads, whatever stands there.
        c.find(KV_HEADS);
    }
    let expansion = c.count(&["expansion_ratio"]).filter(|_| kind == "mpt");
    // Llama 4's `intermediate_size` is its experts'.
    let width = match kind {
        _ if kind.starts_with("llama4") => &["intermediate_size_mlp"],
        // Granite 4's without experts have the perceptron that stands beside them alone.
        "granitemoehybrid" if c.text(EXPERTS) == Some("0") => &["shared_intermediate_size"],
        _ => FFN,
    };
    let ffn = match (&expansion, &hidden) {
        (Some(ratio), Some(hidden)) => {
            let value = ratio.value.saturating_mul(hidden.value);
            Some(Found { value, origin: ratio.origin.clone() })
        }
        _ if kind == "bloom" => None,
        _ => c.count(width),
    };
    let ffn = if ["qwen", "molmo"].contains(&kind) { ffn.map(beside::halved) } else { ffn };
    let vocab = match kind {
        "vit" => None,
        _ if c.find(&["padded_vocab_size"]).is_some() => {
            // The words themselves, fewer than its rows.
            c.find(&["vocab_size"]);
            c.count(&["padded_vocab_size"])
        }
        _ => c.need(&["vocab_size"]),
    };
    let key = |keys: &[&'static str], c: &Config| c.find(keys).map_or(keys[0], |(key, _)| key);
    if let (Some(hidden), Some(heads), None, false) = (&hidden, &heads, &head_dim, latent)
        && !hidden.value.is_multiple_of(heads.value)
    {
        let message = format!(
            "{} heads do not divide the {} of {}, and there is no head_dim",
            heads.value,
            hidden.value,
            key(HIDDEN, c)
        );
        c.problem(key(HEADS, c), &heads.origin, message);
    }
    if let (Some(kv), Some(heads)) = (&kv, &heads)
        && (kv.value > heads.value || !heads.value.is_multiple_of(kv.value))
    {
        let message = format!("expected a divisor of the {} {}, found {}", heads.value, key(HEADS, c), kv.value);
        c.problem(beside::kv_key(c), &kv.origin, message);
    }
    for (field, found) in [("layers", &layers), ("hidden", &hidden), ("heads", &heads)] {
        if let Some(found) = found {
            tree.set(field, &found.origin, found.value);
        }
    }
    match (kv, &heads) {
        (Some(kv), Some(heads)) if kv.value != heads.value => tree.set("kv_heads", &kv.origin, kv.value),
        _ => {}
    }
    if let Some(d) = head_dim.filter(|_| !latent) {
        tree.set("head_dim", &d.origin, d.value);
    }
    if let Some(ffn) = &ffn {
        tree.set("ffn", &ffn.origin, ffn.value);
    } else if family.gated && c.find(width).is_none() && (c.find(EXPERTS).is_none() || c.find(DENSE).is_some()) {
        let origin = c.origin();
        let alike = beside::other_widths(c);
        c.problem(width[0], &origin, format!("missing; a gated perceptron has no usual width{alike}"));
    } else if reading.guessed && c.find(width).is_none() && c.find(EXPERTS).is_none() {
        beside::usual_width(c, width[0], hidden.as_ref());
    }
    if let Some(vocab) = vocab {
        tree.set("vocab", &vocab.origin, vocab.value);
    }
    beside::words(c, tree, kind, hidden.as_ref());
    Sizes { layers, hidden, ffn }
}

/// What the family says of its own.
fn fixed(c: &mut Config, tree: &mut Tree, family: &Family) {
    let at = c.origin();
    tree.set("gated", &at, family.gated);
    tree.set("norm", &at, family.norm);
    if let Some(norms) = family.norms {
        tree.set("norms_per_layer", &at, norms);
    }
    if let Some(shifts) = family.norm_shifts {
        tree.set("norm_shifts", &at, shifts);
    }
    if let Some(qk_norm) = family.qk_norm {
        tree.set("qk_norm", &at, qk_norm);
    }
    tree.set("position", &at, family.position);
    tree.set("biases", &at, family.biases);
    for (field, value) in [
        ("parallel_block", family.parallel_block),
        ("embedding_norm", family.embedding_norm),
        ("head_bias", family.head_bias),
    ] {
        if value {
            tree.set(field, &at, value);
        }
    }
    for (field, value) in [("final_norm", family.final_norm), ("causal", family.causal)] {
        if !value {
            tree.set(field, &at, value);
        }
    }
    let dropout = DROPOUTS.into_iter().filter(|keys| c.number(keys).is_some_and(|share| share > 0.0)).count();
    if dropout > 0 {
        tree.set("dropout", &at, true);
    }
}

/// The sliding window and the layers that see everything in spite of it.
fn windows(c: &mut Config, tree: &mut Tree, family: &Family, layers: u64) {
    let by_layer = structure::by_layer(c, layers);
    // Whatever of these no window below needs is of one that is switched off, or said by the list of layers.
    c.find(&["sliding_window", "max_window_layers", "sliding_window_pattern", "full_attention_interval"]);
    let on = c.flag(&["use_sliding_window"], family.window != Window::From);
    if !on || (family.window == Window::None && by_layer.is_none()) {
        return;
    }
    let chunks = matches!(family.window, Window::Chunks(_)) || by_layer.as_ref().is_some_and(|l| l.chunks);
    let key = match family.window {
        _ if chunks => "attention_chunk_size",
        Window::AllButFirst(_) => "local_attention",
        _ => "sliding_window",
    };
    let Some(window) = c.count_or_none(&[key]) else {
        if let Some(listed) = by_layer.filter(|l| l.windowed > 0 && c.find(&[key]).is_none()) {
            c.problem(key, &listed.origin, "missing; layer_types lists layers that see no more than a window");
        }
        return;
    };
    let full = match (by_layer, family.window) {
        (Some(listed), _) => listed.full,
        (None, Window::From) => c.count_or_none(&["max_window_layers"]).map_or(0, |n| n.value.min(layers)),
        (None, Window::AllBut(pattern)) => layers / pattern.max(1),
        (None, Window::AllButFirst(pattern)) => layers.div_ceil(pattern.max(1)),
        (None, Window::Chunks(every)) => match c.find(&["no_rope_layers"]).map(|(_, node)| &node.value) {
            Some(Value::List(items)) if !items.is_empty() => {
                let without = |item: &&Node| matches!(&item.value, Value::Scalar { text, .. } if text == "0");
                items.iter().filter(without).count() as u64
            }
            _ => layers / every.max(1),
        },
        (None, Window::Every | Window::None) => 0,
    };
    if full >= layers {
        return;
    }
    if chunks {
        c.note("chunks of tokens that attend to each other (attention_chunk_size) are taken for windows");
    }
    tree.set("window", &window.origin, window.value);
    if full > 0 {
        tree.set("full_attention_layers", &window.origin, full);
    }
}

/// DeepSeek's latent attention.
fn latents(c: &mut Config, tree: &mut Tree) {
    if !beside::is_latent(c) {
        return;
    }
    if let Some(rank) = c.count_or_none(&["q_lora_rank"]) {
        tree.set_in("latent_attention", "q_rank", &rank.origin, rank.value);
    }
    for (ours, theirs) in [
        ("kv_rank", "kv_lora_rank"),
        ("rope_dim", "qk_rope_head_dim"),
        ("nope_dim", "qk_nope_head_dim"),
        ("v_dim", "v_head_dim"),
    ] {
        if let Some(found) = c.need(&[theirs]) {
            tree.set_in("latent_attention", ours, &found.origin, found.value);
        }
    }
}

fn experts(c: &mut Config, tree: &mut Tree, kind: &str, sizes: &Sizes) {
    // Doge states experts that this switches off.
    if !c.flag(&["is_moe"], true) {
        c.find(EXPERTS);
        c.find(TOP);
        return;
    }
    let Some(count) = c.count_or_none(EXPERTS) else { return };
    let key = c.find(EXPERTS).map_or(EXPERTS[0], |(key, _)| key);
    let top = c.need(TOP);
    let own = match kind.starts_with("llama4") {
        true => c.count(&["intermediate_size"]),
        false => c.count(&["moe_intermediate_size", "moe_ffn_hidden_size", "expert_intermediate_size"]),
    };
    let width = own.or(sizes.ffn.clone());
    if width.is_none() && c.find(FFN).is_none() {
        c.problem("moe_intermediate_size", &count.origin, "missing; the experts have no width");
    }
    if let Some(top) = &top
        && top.value > count.value
    {
        let field = c.find(TOP).map_or(TOP[0], |(key, _)| key);
        c.problem(field, &top.origin, format!("expected at most the {} {key}, found {}", count.value, top.value));
    }
    let part = "experts";
    tree.set_in(part, "count", &count.origin, count.value);
    if let Some(top) = top {
        tree.set_in(part, "top_k", &top.origin, top.value);
    }
    if let Some(width) = width {
        tree.set_in(part, "ffn", &width.origin, width.value);
    }
    const SHARED: &[&str] = &["n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"];
    const SHARED_WIDTH: &[&str] = &["shared_expert_intermediate_size", "shared_intermediate_size"];
    if let Some(shared) = c.count_or_none(SHARED) {
        tree.set_in(part, "shared", &shared.origin, shared.value);
    } else if let Some(width) = c.count_or_none(SHARED_WIDTH) {
        tree.set_in(part, "shared", &width.origin, 1);
        tree.set_in(part, "shared_ffn", &width.origin, width.value);
        if kind == "qwen2_moe" {
            tree.set_in(part, "shared_gate", &width.origin, true);
        }
    }
    if kind.starts_with("llama4") {
        // Its router's scores weigh what one expert of the same width adds for every token (Meta's `models/llama4/moe.py`).
        tree.set_in(part, "shared", &count.origin, 1);
    }
    if kind == "deepseek_v3" || c.text(&["topk_method"]) == Some("noaux_tc") {
        tree.set_in(part, "router_bias", &count.origin, true);
    }
    // The list goes before a number.
    let listed = c.find(&["mlp_layer_types"]).is_some();
    c.find(DENSE);
    let mut dense = if listed { beside::listed_dense(c) } else { c.count_or_none(DENSE) };
    if let Some((field, listed, origin)) = numbers(c, "mlp_only_layers")
        && !listed.is_empty()
    {
        if listed.iter().copied().eq((0..listed.len() as u64).map(Some)) {
            dense = Some(Found { value: listed.len() as u64, origin });
        } else {
            c.problem(field, &origin, "expected the first layers alone (0, 1, ...): there is no field for others");
        }
    }
    if let Some(dense) = dense {
        tree.set_in(part, "first_dense_layers", &dense.origin, dense.value);
    }
    const STEP: &[&str] = &[
        "decoder_sparse_step",
        "interleave_moe_layer_step",
        "expert_layer_period",
        "moe_layer_frequency",
        "moe_layer_interval",
    ];
    let step = c.count(STEP);
    expert_offset(c);
    if let Some(step) = step.as_ref().filter(|s| s.value > 1) {
        tree.set_in(part, "every", &step.origin, step.value);
    }
    // Llama 4's list of layers with experts goes before its step.
    if let Some((field, listed, origin)) = numbers(c, "moe_layers") {
        let step = step.map_or(1, |s| s.value.max(1));
        let layers = sizes.layers.as_ref().map_or(0, |l| l.value);
        let regular = (1..=layers / step).map(|n| Some(n * step - 1));
        if !listed.iter().copied().eq(regular) {
            let found = match listed.iter().copied().collect::<Option<Vec<u64>>>() {
                Some(listed) => format!("found {listed:?}"),
                None => "found what is no list of layers".to_string(),
            };
            let expected = match step {
                1 => format!("expected all {layers} layers, counted from 0"),
                _ => format!(
                    "expected each layer n of the {layers}, counted from 0, where n + 1 is a multiple of {step}"
                ),
            };
            c.problem(field, &origin, format!("{expected}, {found}: there is no field for others"));
        }
    }
    if let Some(freq) = c.count(&["moe_layer_freq"]).filter(|f| f.value > 1) {
        c.problem(
            "moe_layer_freq",
            &freq.origin,
            format!("expected 1, found {}: there is no field for it", freq.value),
        );
    }
}

/// Jamba's layers with experts are the `expert_layer_offset`th of each `expert_layer_period`, from 0.
fn expert_offset(c: &mut Config) {
    let Some(period) = c.count(&["expert_layer_period"]).filter(|period| period.value > 1) else { return };
    let (origin, offset) = match c.find(&["expert_layer_offset"]) {
        Some((_, node)) => (node.origin.clone(), c.text(&["expert_layer_offset"]).unwrap_or_default()),
        None => (period.origin, "1"),
    };
    let last = period.value - 1;
    if offset.parse() != Ok(last) {
        let message = format!(
            "expected {last}, the last layer of each {} (expert_layer_period), found {offset:?}: there is no field for another",
            period.value
        );
        c.problem("expert_layer_offset", &origin, message);
    }
}

/// The list of numbers that a field is, with `None` for what is no number.
fn numbers(c: &mut Config, name: &'static str) -> Option<(&'static str, Vec<Option<u64>>, Origin)> {
    let (field, node) = c.find(&[name])?;
    let Value::List(items) = &node.value else { return None };
    let number = |item: &Node| match &item.value {
        Value::Scalar { text, .. } => text.parse().ok(),
        _ => None,
    };
    Some((field, items.iter().map(number).collect(), node.origin.clone()))
}

/// Embedding, positions and head.
fn ends(c: &mut Config, tree: &mut Tree, family: &Family, kind: &str, sizes: &Sizes) {
    let at = c.origin();
    if family.position == Position::Learned
        && kind != "vit"
        && let Some(most) = c.need(POSITIONS)
    {
        // OPT's table begins with two rows that no token has.
        let offset = if kind == "opt" { 2 } else { 0 };
        tree.set("max_positions", &most.origin, most.value.saturating_add(offset));
    }
    if let Some(types) = c.count_or_none(&["type_vocab_size"]).filter(|_| family.embedding_norm) {
        tree.set("token_types", &types.origin, types.value);
    }
    let tied = c.flag(&["tie_word_embeddings"], family.tied);
    if tied && family.head != Head::Classes {
        let origin = c.find(&["tie_word_embeddings"]).map_or(at.clone(), |(_, node)| node.origin.clone());
        tree.set("tied_embeddings", &origin, true);
    }
    if family.head != Head::Vocabulary {
        tree.set("head", &at, family.head);
    }
    if family.head == Head::Classes {
        beside::classes(c, tree, kind);
    }
    if kind != "vit" {
        return;
    }
    for (ours, theirs) in [("image", "image_size"), ("size", "patch_size")] {
        if let Some(found) = c.need(&[theirs]) {
            tree.set_in("patches", ours, &found.origin, found.value);
        }
    }
    if let Some(channels) = c.count(&["num_channels"]).filter(|channels| channels.value != 3) {
        tree.set_in("patches", "channels", &channels.origin, channels.value);
    }
    if let (None, Some(hidden)) = (&sizes.ffn, &sizes.hidden) {
        c.note(format!("intermediate_size 4 x {}", hidden.value));
    }
}

/// Data types: those of mixed precision with the stored type.
fn types(c: &mut Config, tree: &mut Tree, options: &[(String, String)]) {
    let stated = c.find(&["torch_dtype", "dtype"]).map(|(key, node)| (key, node.origin.clone()));
    let word = c.text(&["torch_dtype", "dtype"]).map(|text| text.trim_start_matches("torch."));
    match (word, stated) {
        (Some("float16"), Some((_, origin))) => {
            for field in ["weights", "activations"] {
                tree.set_in("types", field, &origin, "fp16");
            }
        }
        (Some("bfloat16"), _) | (None, _) => {}
        (Some(other), Some((key, _))) => {
            if !options.iter().any(|(field, _)| field.starts_with("types.")) {
                c.note(format!(
                    "{key} {other} is the type of the stored weights; weights and activations in bf16 (types.weights, types.activations say otherwise)"
                ));
            }
        }
        (Some(_), None) => {}
    }
    if let Some((key, _)) = c.find(&["quantization_config", "compression_config"]) {
        const METHOD: &[&str] = &["quantization_config.quant_method", "compression_config.quant_method"];
        let method = c.text(METHOD).unwrap_or("unnamed").to_string();
        c.note(format!("left out: {key} ({method}); types.weights and types.compute state narrower numbers"));
    }
}

/// Pass, sequence and batch, which no configuration states.
fn passes(c: &mut Config, tree: &mut Tree, family: &Family, options: &[(String, String)]) {
    let at = c.origin();
    let given = |field: &str| options.iter().find(|(key, _)| key == field).map(|(_, value)| value.as_str());
    let inference = given("pass") == Some("inference");
    let mut assumed = Vec::new();
    if given("pass").is_none() {
        tree.set("pass", &at, "training");
        assumed.push("pass training".to_string());
    }
    if given("seq").is_none() {
        let (seq, why) = match image_tokens(c) {
            Some(tokens) => (tokens, "the patches of an image and the class token".to_string()),
            None => {
                let most = if inference { 2048 } else { 4096 };
                let limit = c.count(POSITIONS).map_or(most, |found| found.value);
                // What is generated needs positions too.
                let room = given("generated").and_then(|g| g.parse::<u64>().ok()).unwrap_or(0);
                let limit =
                    if family.position == Position::Learned { limit.saturating_sub(room).max(1) } else { limit };
                (limit.min(most), format!("its positions, at most {most}"))
            }
        };
        tree.set("seq", &at, seq);
        assumed.push(format!("seq {seq} ({why})"));
    }
    if given("global_batch").is_none() {
        let batch = if inference { 16 } else { 256 };
        tree.set("global_batch", &at, batch);
        assumed.push(format!("global_batch {batch}"));
    }
    if !assumed.is_empty() {
        c.note(format!("assumed, as no config.json says it: {}", assumed.join(", ")));
    }
}

/// Tokens of an image of a model of images.
fn image_tokens(c: &Config) -> Option<u64> {
    let number = |key: &'static str| c.text(&[key]).and_then(|text| text.parse::<u64>().ok());
    if c.text(&["model_type"]) != Some("vit") {
        return None;
    }
    let edge = number("image_size")?.checked_div(number("patch_size")?)?;
    Some(edge.saturating_mul(edge).saturating_add(1))
}
