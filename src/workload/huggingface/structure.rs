//! Structures that a language model has no field for, which are refused by name, and fields of a guessed family that nothing reads, which are told.

use super::config::{Config, Found};
use crate::spec::{Node, Origin, Value};

/// Fields that state a structure without a field of ours, and what it is.
struct Refused {
    /// Their names; what ends in `*` stands for all that begin so.
    keys: &'static [&'static str],
    /// What they state.
    what: &'static str,
    /// What would fit.
    fits: &'static str,
    /// Whether a list of layers that all attend says that there are none in spite of it.
    listed: bool,
}

/// What would fit in place of layers that do not attend.
const FITS: &str = "expected a stack whose every layer attends: a language model has no field for others, \
                    and kind: graph takes them kernel by kernel";

const REFUSED: &[Refused] = &[
    Refused {
        keys: &["mamba_*", "ssm_*", "state_size"],
        what: "layers of Mamba (a recurrence over the tokens with a state)",
        fits: FITS,
        listed: true,
    },
    Refused {
        keys: &["linear_num_*", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_*", "linear_attn_config"],
        what: "layers of linear attention (a recurrence over the tokens)",
        fits: FITS,
        listed: true,
    },
    Refused {
        keys: &["conv_L_cache", "full_attn_idxs"],
        what: "layers of short convolutions in place of attention",
        fits: FITS,
        listed: true,
    },
    Refused {
        keys: &["attn_layer_indices", "attn_type_list", "block_types", "hybrid_*", "layers_block_type"],
        what: "layers of several kinds, not all of which attend",
        fits: FITS,
        listed: true,
    },
    Refused {
        keys: &["block_configs"],
        what: "layers of several sizes",
        fits: "expected layers that are alike but for windows and experts: there is no field for others",
        listed: false,
    },
    Refused {
        keys: &["num_kv_shared_layers"],
        what: "the last layers attend to keys and values of layers before",
        fits: "expected 0, keys and values of its own in each layer: there is no field for fewer",
        listed: false,
    },
];

/// Whether a field states anything at all.
fn states(node: &Node) -> bool {
    match &node.value {
        Value::Null => false,
        Value::Scalar { text, .. } => !matches!(text.as_str(), "" | "0" | "false"),
        Value::List(items) => !items.is_empty(),
        Value::Map(entries) => !entries.is_empty(),
    }
}

fn is_named(pattern: &str, key: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == key, |start| key.starts_with(start))
}

/// Refuses structures without a field, each by what states it.
pub(super) fn refuse(c: &mut Config, kind: &str, layers: Option<&Found<u64>>) {
    let attends = kinds(c).is_some_and(|(_, kinds)| kinds.iter().all(|(_, k)| seen(k).is_some()));
    for refused in REFUSED.iter().filter(|refused| !(attends && refused.listed)) {
        let stating = |key: &str| refused.keys.iter().any(|pattern| is_named(pattern, key));
        let found: Vec<(&str, &Node)> = c.fields().filter(|(key, node)| stating(key) && states(node)).collect();
        let Some(((first, node), rest)) = found.split_first() else { continue };
        let rest: Vec<&str> = rest.iter().map(|(key, _)| *key).collect();
        let also = if rest.is_empty() { String::new() } else { format!(" (with {})", rest.join(", ")) };
        let message = format!("found {}{also}: {}; {}", node.describe(), refused.what, refused.fits);
        c.problem(first, &node.origin, message);
    }
    if let Some(period) = c.count_or_none(&["attn_layer_period"]).filter(|period| period.value > 1 && !attends) {
        let message = format!(
            "found {}: one layer of each {} attends, the others have a recurrence in its place; {FITS}",
            period.value, period.value
        );
        c.problem("attn_layer_period", &period.origin, message);
    }
    let linear = c.fields().any(|(key, _)| key.starts_with("linear_"));
    let windowed = !linear && c.find(&["sliding_window"]).is_some();
    if let Some(interval) =
        c.count_or_none(&["full_attention_interval"]).filter(|i| i.value > 1 && !attends && !windowed)
    {
        let message = format!(
            "found {}: one layer of each {} attends to all tokens, and no sliding_window says that the others attend to some; {FITS}",
            interval.value, interval.value
        );
        c.problem("full_attention_interval", &interval.origin, message);
    }
    shared_layers(c, kind, layers);
}

/// ALBERT's layers that have their weights together: of one group unless it says more.
fn shared_layers(c: &mut Config, kind: &str, layers: Option<&Found<u64>>) {
    let stated = c.count(&["num_hidden_groups"]);
    let groups = stated.or_else(|| (kind == "albert").then(|| Found { value: 1, origin: c.origin() }));
    if let (Some(groups), Some(layers)) = (groups, layers)
        && groups.value < layers.value
    {
        let message = format!(
            "found {}: {} layers have their weights together, in so many groups; expected {}, a group for each layer: there is no field for weights of several layers",
            groups.value, layers.value, layers.value
        );
        c.problem("num_hidden_groups", &groups.origin, message);
    }
}

/// What `layer_types` lists.
pub(super) struct ByLayer {
    /// Layers that see all tokens.
    pub(super) full: u64,
    /// Layers that see some.
    pub(super) windowed: u64,
    /// Whether the others see the tokens of their chunk.
    pub(super) chunks: bool,
    /// Where it stood.
    pub(super) origin: Origin,
}

/// The kinds of layers that `layer_types` lists, each with its place.
fn kinds<'n>(c: &Config<'n>) -> Option<(&'n Node, Vec<(&'n Node, &'n str)>)> {
    let (_, node) = c.find(&["layer_types"])?;
    let Value::List(items) = &node.value else { return None };
    let text = |item: &'n Node| match &item.value {
        Value::Scalar { text, .. } => (item, text.as_str()),
        _ => (item, ""),
    };
    Some((node, items.iter().map(text).collect()))
}

/// Whether a layer of this kind sees all tokens; `None` for those that do not attend.
fn seen(kind: &str) -> Option<bool> {
    match kind {
        "full_attention" | "attention" | "full" | "global" | "global_attention" => Some(true),
        "sliding_attention" | "chunked_attention" | "sliding_window" | "local" | "local_attention" => Some(false),
        _ => None,
    }
}

/// Reads `layer_types`, and refuses kinds of layers that do not attend by name.
pub(super) fn by_layer(c: &mut Config, layers: u64) -> Option<ByLayer> {
    let (node, kinds) = kinds(c)?;
    let listed = kinds.len() as u64;
    if listed != layers {
        c.problem("layer_types", &node.origin, format!("a list of {listed} for {layers} layers"));
    }
    let mut refused: Vec<&str> = Vec::new();
    for (item, kind) in kinds.iter().filter(|(_, kind)| seen(kind).is_none()) {
        if !refused.contains(kind) {
            refused.push(kind);
            let of = kinds.iter().filter(|(_, other)| other == kind).count();
            let what = match *kind {
                "mamba" | "mamba2" | "recurrent" | "linear_attention" => {
                    " (a recurrence over the tokens in place of attention)"
                }
                "conv" => " (a convolution in place of attention)",
                _ => "",
            };
            let message = format!(
                "found {} for {of} of {listed} layers{what}; expected full_attention or sliding_attention: a language model has no field for other layers, and kind: graph takes them kernel by kernel",
                item.describe()
            );
            c.problem("layer_types", &item.origin, message);
        }
    }
    Some(ByLayer {
        full: kinds.iter().filter(|(_, kind)| seen(kind) == Some(true)).count() as u64,
        windowed: kinds.iter().filter(|(_, kind)| seen(kind) == Some(false)).count() as u64,
        chunks: kinds.iter().any(|(_, kind)| *kind == "chunked_attention"),
        origin: node.origin.clone(),
    })
}

/// Fields that say nothing of sizes or structure: what names, starts, trains, stores or samples a model, scales of what is computed anyway, and
/// rotations, which have no weights. What ends in `*` stands for all that begin so, what begins with it for all that end so.
const HARMLESS: &[&str] = &[
    "_*",
    "*_token_id",
    "*_token_ids",
    "*_token_index",
    "*_token",
    "*_id",
    "*_dropout",
    "*_dropout_prob",
    "*_dropout_p",
    "*_pdrop",
    "*_drop",
    "*_eps",
    "*_epsilon",
    "*_version",
    "*_multiplier",
    "*_scale",
    "*_scaling",
    "*_softcapping",
    "*_clamp",
    "*_std",
    "*_loss",
    "*_coef",
    "*_coeff",
    "*_alpha",
    "*_jitter_noise",
    "*_in_fp32",
    "*_fusion",
    "initializer_*",
    "init_*",
    "rope_*",
    "rotary_*",
    "output_*",
    "use_flash_*",
    "attn_implementation",
    "apply_query_key_layer_scaling",
    "architectures",
    "auto_map",
    "cache_implementation",
    "chunk_size_feed_forward",
    "clip_qkv",
    "dtype",
    "finetuning_task",
    "fp32_residual_connection",
    "generation_config",
    "gradient_checkpointing",
    "id2label",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "language",
    "logits_scaling",
    "max_position_embeddings",
    "max_seq_len",
    "max_sequence_length",
    "model_max_length",
    "model_type",
    "mrope_section",
    "multi_query_group_num",
    "n_ctx",
    "n_group",
    "n_positions",
    "name",
    "name_or_path",
    "norm_topk_prob",
    "num_labels",
    "original_rope",
    "pad_id",
    "partial_rotary_factor",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "quantization",
    "quantization_config",
    "query_pre_attn_scalar",
    "return_dict",
    "routed_scaling_factor",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
    "scoring_func",
    "seq_aux",
    "seq_length",
    "swiglu_limit",
    "task_specific_params",
    "tie_weights",
    "tokenizer_class",
    "topk_group",
    "topk_method",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
];

/// Tells which fields of a guessed family state something that nothing reads.
pub(super) fn tell_unread(c: &mut Config) {
    let harmless = |key: &str| {
        HARMLESS
            .iter()
            .any(|pattern| pattern.strip_prefix('*').map_or_else(|| is_named(pattern, key), |end| key.ends_with(end)))
    };
    let empty: Vec<&str> = c
        .fields()
        .filter(|(_, node)| !matches!(node.value, Value::Scalar { .. }) && !states(node))
        .map(|(key, _)| key)
        .collect();
    let unread: Vec<String> =
        c.unread().into_iter().filter(|key| !harmless(key) && !empty.contains(&key.as_str())).collect();
    if !unread.is_empty() {
        c.note(format!("not read: {}", unread.join(", ")));
    }
}
