//! Structures that a language model has no field for, which are refused by name, and fields that nothing reads, which are told.

use super::config::{Config, Found};
use crate::spec::{Node, Origin, Value};

/// Fields that state a structure without a field of ours, and what it is.
struct Refused {
    /// Their names; what ends in `*` stands for all that begin so, what begins with it for all that end so.
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
        keys: &["mixer_types", "attn_mode", "layer_group_size"],
        what: "layers of linear attention (a recurrence over the tokens), or of several kinds",
        fits: FITS,
        listed: true,
    },
    Refused {
        keys: &["index_topk", "index_n_heads"],
        what: "attention to the tokens that an indexer with weights of its own chooses",
        fits: "expected attention to all tokens or to a window: there is no field for an indexer",
        listed: false,
    },
    Refused {
        keys: &["add_cross_attention", "cross_attention_layers", "cross_layer_interval", "cross_attention_freq"],
        what: "attention to what another model makes (cross attention)",
        fits: "expected attention to the model's own tokens alone: there is no field for others",
        listed: false,
    },
    Refused {
        keys: &["encoder_layers", "num_decoder_layers"],
        what: "an encoder beside a decoder",
        fits: "expected a model of one stack of layers",
        listed: false,
    },
    Refused {
        keys: &["zero_expert_num"],
        what: "experts that compute nothing, to which the router sends tokens too",
        fits: "expected experts that are alike: there is no field for others",
        listed: false,
    },
    Refused {
        keys: &["residual_moe", "use_residual", "parallel_attn_mlp_res"],
        what: "a plain perceptron beside the experts, whose width has no field of its own",
        fits: "expected experts alone, or with shared experts",
        listed: false,
    },
    Refused {
        keys: &["num_attention_groups", "share_q_dim"],
        what: "attention that factors its matrices (queries share a narrow map)",
        fits: "expected a map from hidden to the heads: there is no field for factors of it",
        listed: false,
    },
    Refused {
        keys: &["num_key_value_heads_per_layer"],
        what: "numbers of heads of keys and values that differ by layer",
        fits: "expected num_key_value_heads, one number for all layers",
        listed: false,
    },
    Refused {
        keys: &["n_shared_head"],
        what: "so many heads of queries share one of keys and values",
        fits: "expected num_key_value_heads, which says the same",
        listed: false,
    },
    Refused {
        keys: &["num_global_key_value_heads", "global_head_dim"],
        what: "heads of another size or number in the layers that see all tokens",
        fits: "expected heads that are alike in all layers: there is no field for others",
        listed: false,
    },
    Refused {
        keys: &["hidden_size_per_layer_input"],
        what: "an embedding of each layer's own",
        fits: "expected 0, one embedding before all layers",
        listed: false,
    },
    Refused {
        keys: &["num_layers_per_stack", "*_cycles"],
        what: "layers that are gone through several times",
        fits: "expected a stack whose every layer is gone through once",
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
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => key.ends_with(end),
        (None, Some(start)) => key.starts_with(start),
        (None, None) => pattern == key,
    }
}

/// Whether a text stands anywhere in a tree.
fn holds(node: &Node, word: &str) -> bool {
    match &node.value {
        Value::Null => false,
        Value::Scalar { text, .. } => text == word,
        Value::List(items) => items.iter().any(|item| holds(item, word)),
        Value::Map(entries) => entries.iter().any(|(_, _, item)| holds(item, word)),
    }
}

/// Whether a list says of every layer that it attends to all tokens, as MiniMax-M2's does with ones.
fn all_attend(key: &str, node: &Node) -> bool {
    let one = |item: &Node| matches!(&item.value, Value::Scalar { text, .. } if text == "1");
    key == "attn_type_list" && matches!(&node.value, Value::List(items) if items.iter().all(one))
}

/// Refuses structures without a field, each by what states it.
pub(super) fn refuse(c: &mut Config, kind: &str, layers: Option<&Found<u64>>) {
    let attends = kinds(c).is_some_and(|(_, kinds)| kinds.iter().all(|(_, k)| seen(k).is_some()));
    for refused in REFUSED.iter().filter(|refused| !(attends && refused.listed)) {
        let stating = |key: &str| refused.keys.iter().any(|pattern| is_named(pattern, key));
        let found: Vec<(&str, &Node)> =
            c.fields().filter(|(key, node)| stating(key) && states(node) && !all_attend(key, node)).collect();
        let Some(((first, node), rest)) = found.split_first() else { continue };
        let rest: Vec<&str> = rest.iter().map(|(key, _)| *key).collect();
        let also = if rest.is_empty() { String::new() } else { format!(" (with {})", rest.join(", ")) };
        let message = format!("found {}{also}: {}; {}", node.describe(), refused.what, refused.fits);
        c.problem(first, &node.origin, message);
    }
    // What is refused where it says that a layer does not attend is read where it does not.
    c.find(&["attn_type_list"]);
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
    shared_keys(c);
    local_layers(c);
    if kind == "jetmoe" {
        let origin = c.find(&["model_type"]).map_or(c.origin(), |(_, node)| node.origin.clone());
        let message = "found \"jetmoe\": experts in place of the maps of attention; expected maps that all tokens share: there is no field for others";
        c.problem("model_type", &origin, message);
    }
    shared_layers(c, kind, layers);
}

/// Hunyuan's layers that attend to keys and values of the layer before.
fn shared_keys(c: &mut Config) {
    let share = c.count_or_none(&["cla_share_factor"]).filter(|share| share.value > 1);
    let on = c.flag(&["use_cla"], share.is_some());
    if let Some(share) = share.filter(|_| on) {
        let message = format!(
            "found {}: so many layers after one another have their keys and values together; expected 1: there is no field for it",
            share.value
        );
        c.problem("cla_share_factor", &share.origin, message);
    } else if on && let Some((key, node)) = c.find(&["use_cla"]) {
        let message =
            "found true: layers have their keys and values together; expected false: there is no field for it";
        c.problem(key, &node.origin, message);
    }
}

/// GPT-Neo's layers that see a window alone, which it states in lists of its own.
fn local_layers(c: &mut Config) {
    const LISTS: &[&str] = &["attention_types", "attention_layers"];
    let Some((key, node)) = c.find(LISTS) else { return };
    if holds(node, "local") {
        let message = "found layers of \"local\" attention (window_size); expected sliding_window with layer_types, which say the same";
        c.problem(key, &node.origin, message);
    }
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
    "*_rope_theta",
    "*_dropout_rate",
    "_*",
    "initializer_*",
    "init_*",
    "rope_*",
    "rotary_*",
    "output_*",
    "use_flash_*",
    "classifier_*",
    "forced_*",
    "pooler_*",
    "summary_*",
    "activation",
    "activation_function",
    "apply_query_key_layer_scaling",
    "apply_residual_connection_post_layernorm",
    "architectures",
    "attention_head_size",
    "attn_config.alibi_bias_max",
    "attn_config.attn_impl",
    "attn_config.attn_uses_sequence_id",
    "attn_config.clip_qkv",
    "attn_config.prefix_lm",
    "attn_config.softmax_scale",
    "attn_implementation",
    "attn_temperature_tuning",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "cache_implementation",
    "chunk_size_feed_forward",
    "clip_qkv",
    "compression_config",
    "conv_act",
    "decoder_bias",
    "deterministic_flash_attn",
    "directionality",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embedding_fraction",
    "encoder_no_repeat_ngram_size",
    "encoder_stride",
    "ep_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "fp32_residual_connection",
    "generation_config",
    "gradient_checkpointing",
    "hidden_act",
    "hidden_activation",
    "id2label",
    "interleaved_qkv",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "language",
    "layer_norm_elementwise_affine",
    "layerdrop",
    "learned_pos_emb",
    "legacy",
    "length_penalty",
    "logits_scaling",
    "max_length",
    "max_position_embeddings",
    "max_relative_positions",
    "max_seq_len",
    "max_sequence_length",
    "min_length",
    "model_max_length",
    "model_type",
    "mrope_section",
    "multi_query_group_num",
    "n_ctx",
    "n_group",
    "n_positions",
    "n_special",
    "name",
    "name_or_path",
    "no_repeat_ngram_size",
    "norm_rel_ebd",
    "no_rope_layer_interval",
    "no_rope_layers",
    "norm_topk_prob",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "offset_alibi",
    "original_max_position_embeddings",
    "original_rope",
    "pad_id",
    "partial_rotary_factor",
    "pos_att_type",
    "position_buckets",
    "predict_special_tokens",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "qk_head_dim",
    "quantization",
    "quantization_bit",
    "quantization_config",
    "query_pre_attn_scalar",
    "reference_compile",
    "remove_invalid_values",
    "reorder_and_upcast_attn",
    "repad_logits_with_grad",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "routed_scaling_factor",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "scoring_func",
    "seq_aux",
    "seq_length",
    "skip_bias_add",
    "skip_bias_add_qkv",
    "slow_but_exact",
    "sparse_pred_ignore_index",
    "sparse_prediction",
    "suppress_tokens",
    "swiglu_limit",
    "task_specific_params",
    "temperature",
    "tie_weights",
    "tokenizer_class",
    "tokenizer_name",
    "top_k",
    "top_p",
    "topk_group",
    "topk_method",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
    "use_dynamic_ntk",
    "use_embedding_sharing",
    "use_gated_activation",
    "use_logn_attn",
    "use_mrope",
    "use_parallel_block",
    "use_parallel_embedding",
    "verbose",
];

/// Tells which fields state something that nothing reads. In a known family `false` says that there is nothing of a kind.
pub(super) fn tell_unread(c: &mut Config, guessed: bool) {
    // What says nothing outside a mapping says nothing in it.
    let harmless = |key: &str| {
        let last = key.rsplit_once('.').map_or(key, |(_, last)| last);
        HARMLESS.iter().any(|pattern| is_named(pattern, key) || is_named(pattern, last))
    };
    let empty: Vec<&str> = c
        .fields()
        .filter(|(_, node)| match &node.value {
            Value::Scalar { text, .. } => !guessed && text == "false",
            _ => !states(node),
        })
        .map(|(key, _)| key)
        .collect();
    let unread: Vec<String> =
        c.unread().into_iter().filter(|key| !harmless(key) && !empty.contains(&key.as_str())).collect();
    if !unread.is_empty() {
        c.note(format!("not read: {}", unread.join(", ")));
    }
}
