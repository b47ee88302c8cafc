//! What each field of a configuration comes to, field by field.

use super::config::Config;
use super::{Tree, families};
use crate::spec::{Node, Value};

/// The tree and the notes of a configuration, or its problems: a line each.
fn read(config: &str) -> Result<(Node, String), String> {
    let node = Node::parse("config.json", config).map_err(|problem| problem.message)?;
    let mut c = Config::new(&node);
    let mut tree = Tree::new(&node);
    families::model(&mut c, &mut tree, &[]);
    if c.problems.is_empty() {
        return Ok((tree.node, c.notes.join("\n")));
    }
    let said: Vec<String> = c.problems.iter().map(|p| format!("{}: {}", p.field, p.message)).collect();
    Err(said.join("\n"))
}

/// A small configuration of a model type, with more fields, which go before its own of the same name.
fn small(kind: &str, more: &str) -> String {
    let own = [
        ("hidden_size", "64"),
        ("num_attention_heads", "4"),
        ("num_hidden_layers", "4"),
        ("intermediate_size", "128"),
        ("max_position_embeddings", "512"),
        ("rms_norm_eps", "1e-6"),
        ("vocab_size", "100"),
    ];
    let own = own.iter().filter(|(key, _)| !more.contains(&format!("\"{key}\":")));
    let own: Vec<String> = own.map(|(key, value)| format!("\"{key}\": {value}")).collect();
    format!(r#"{{"model_type": "{kind}", {}{more}}}"#, own.join(", "))
}

/// Fields of what is read, `-` where there is none.
#[track_caller]
fn fields(config: &str, names: &[&str]) -> Vec<String> {
    let (tree, _) = read(config).unwrap_or_else(|said| panic!("{said}\n{config}"));
    let text = |name: &&str| match name.split('.').try_fold(&tree, |node, part| node.get(part)).map(|n| &n.value) {
        Some(Value::Scalar { text, .. }) => text.clone(),
        _ => "-".to_string(),
    };
    names.iter().map(text).collect()
}

#[track_caller]
fn notes(config: &str) -> String {
    read(config).unwrap_or_else(|said| panic!("{said}\n{config}")).1
}

#[track_caller]
fn refused(config: &str, part: &str) {
    let said = read(config).expect_err(config);
    assert!(said.contains(part), "{part}: {said}");
}

#[test]
fn rows_of_an_embedding_are_no_width() {
    let molmo = small("molmo", r#", "embedding_size": 152064"#);
    assert_eq!(fields(&molmo, &["embedding_width"]), ["-"]);
    assert!(notes(&molmo).contains("not read: embedding_size"));
    let albert = r#", "embedding_size": 16, "num_hidden_groups": 4"#;
    assert_eq!(fields(&small("albert", albert), &["embedding_width"]), ["16"]);
    refused(&small("albert", &albert.replace("16", "65")), "embedding_size: expected at most the hidden size of 64");
    assert_eq!(fields(&small("opt", r#", "word_embed_proj_dim": 32"#), &["embedding_width"]), ["32"]);
}

#[test]
fn one_head_of_keys_and_values() {
    let heads = |kind: &str, more: &str| fields(&small(kind, more), &["kv_heads"]).concat();
    let saved = r#", "num_kv_heads": 4, "multi_query": true"#;
    assert_eq!(heads("falcon", saved), "1");
    assert_eq!(heads("falcon", r#", "num_kv_heads": 4, "multi_query": true, "new_decoder_architecture": false"#), "1");
    assert_eq!(heads("falcon", r#", "num_kv_heads": 2, "multi_query": true, "new_decoder_architecture": true"#), "2");
    assert_eq!(heads("falcon", r#", "num_kv_heads": 4, "multi_query": false"#), "-");
    assert_eq!(heads("RefinedWeb", r#", "n_head_kv": 2"#), "2");
    assert_eq!(heads("gpt2", r#", "attention_head_type": "multiquery""#), "1");
    assert_eq!(heads("gpt2", r#", "multi_query": true"#), "1");
    assert_eq!(heads("gpt2", ""), "-");
    assert_eq!(heads("gpt_bigcode", ""), "1");
    assert_eq!(heads("codeshell", r#", "num_query_groups": 2"#), "2");
}

#[test]
fn what_stands_beside_a_part_counts_for_it() {
    let inner =
        r#""text_config": {"model_type": "mistral", "hidden_size": 64, "num_attention_heads": 8, "vocab_size": 100"#;
    let outer = format!(
        r#"{{"model_type": "mistral3", "dtype": "float16", "tie_word_embeddings": true, "quantization_config": {{"quant_method": "fp8"}}, {inner}}}}}"#
    );
    assert_eq!(fields(&outer, &["types.weights", "tied_embeddings"]), ["fp16", "true"]);
    assert!(notes(&outer).contains("left out: quantization_config (fp8)"));
    let own = outer.replace(r#""vocab_size": 100"#, r#""vocab_size": 100, "torch_dtype": "bfloat16""#);
    assert_eq!(fields(&own, &["types.weights"]), ["-"]);
    let old = small("llama", r#", "compression_config": {"quant_method": "compressed-tensors"}"#);
    assert!(notes(&old).contains("left out: compression_config (compressed-tensors)"));
}

#[test]
fn fields_change_known_families() {
    let bert = |more: &str| small("bert", &format!(r#", "type_vocab_size": 2{more}"#));
    let jina = bert(r#", "position_embedding_type": "alibi", "feed_forward_type": "geglu""#);
    assert_eq!(fields(&jina, &["position", "gated", "max_positions"]), ["alibi", "true", "-"]);
    assert_eq!(fields(&bert(r#", "hidden_act": "gelu""#), &["position", "gated"]), ["learned", "false"]);
    refused(&bert(r#", "position_embedding_type": "relative_key""#), "position_embedding_type: found");
    refused(&small("gpt2", r#", "add_cross_attention": true"#), "add_cross_attention: found");
    assert_eq!(fields(&small("gpt2", r#", "add_cross_attention": false"#), &["layers"]), ["4"]);
    for both in [r#", "is_causal": false"#, r#", "use_bidirectional_attention": true"#] {
        assert_eq!(fields(&small("qwen2", both), &["causal"]), ["false"], "{both}");
    }
    assert!(notes(&small("llama", r#", "odd_branches": 3"#)).contains("not read: odd_branches"));
    let usual = r#", "hidden_act": "silu", "top_k": 50, "num_beams": 1, "attention_dropout": 0.0, "id2label": {"0": "a"}, "rope_theta": 1e4, "length_penalty": 1.0"#;
    assert!(!notes(&small("llama", usual)).contains("not read"));
}

#[test]
fn heads_are_those_of_the_architecture() {
    let head = |name: &str, more: &str| {
        let config = small("llama", &format!(r#", "architectures": ["{name}"]{more}"#));
        fields(&config, &["head", "classes"])
    };
    assert_eq!(head("LlamaForCausalLM", ""), ["-", "-"]);
    assert_eq!(head("LlamaModel", ""), ["none", "-"]);
    assert_eq!(head("LlamaForSequenceClassification", ""), ["classes", "2"]);
    assert_eq!(head("LlamaForSequenceClassification", r#", "id2label": {"0": "a"}"#), ["classes", "1"]);
    assert_eq!(head("LlamaForSequenceClassification", r#", "num_labels": 5"#), ["classes", "5"]);
    assert_eq!(head("LlamaForTokenClassification", ""), ["none", "-"]);
    assert_eq!(fields(&small("gpt2", r#", "architectures": ["GPT2LMHeadModel"]"#), &["head"]), ["-"]);
}

#[test]
fn sizes_of_the_class_are_told() {
    let qwen = small("qwen3", "");
    assert_eq!(fields(&qwen, &["head_dim", "kv_heads"]), ["128", "-"]);
    for part in ["head_dim 128, which the class has", "the 32 of the class do not divide them"] {
        assert!(notes(&qwen).contains(part), "{part}");
    }
    assert_eq!(fields(&small("gemma2", ""), &["head_dim", "window"]), ["256", "4096"]);
    let mistral = |more: &str| fields(&small("mistral", more), &["kv_heads", "window"]);
    assert_eq!(mistral(r#", "num_attention_heads": 32"#), ["8", "4096"]);
    // What is null is not left out.
    assert_eq!(
        mistral(r#", "num_attention_heads": 32, "num_key_value_heads": null, "sliding_window": null"#),
        ["-", "-"]
    );
    let names = ["experts.count", "experts.ffn", "experts.shared", "experts.first_dense_layers", "experts.top_k"];
    assert_eq!(fields(&small("deepseek_v3", ""), &names), ["256", "2048", "1", "3", "8"]);
    assert_eq!(fields(&small("deepseek_v3", ""), &["latent_attention.kv_rank"]), ["512"]);
    refused(&small("deepseek_v2", ""), "num_experts_per_tok: missing");
    let plain = r#", "kv_lora_rank": null, "num_experts_per_tok": 2, "num_key_value_heads": 2"#;
    let read = fields(&small("deepseek_v2", plain), &["latent_attention.kv_rank", "kv_heads", "experts.ffn"]);
    assert_eq!(read, ["-", "2", "1407"]);
}

#[test]
fn widths_are_not_guessed_beside_others() {
    let layer = r#", "intermediate_size": null, "rms_norm_eps": null, "layer_norm_epsilon": 1e-5"#;
    assert!(notes(&small("newmodel", layer)).contains("intermediate_size 4 x 64"));
    for width in ["ff_intermediate_size", "dff", "block_intermediate_size"] {
        refused(&small("newmodel", &format!(r#"{layer}, "{width}": 96"#)), &format!("{width}: found \"96\""));
    }
    refused(&small("newmodel", r#", "intermediate_size": null, "mlp_hidden_size": 96"#), "not read: mlp_hidden_size");
}

#[test]
fn windows_by_their_names() {
    let sliding = r#", "global_attn_every_n_layers": 2, "sliding_window": 8"#;
    assert_eq!(fields(&small("afmoe", sliding), &["window", "full_attention_layers"]), ["8", "2"]);
    let list = r#", "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]"#;
    let listed = fields(&small("afmoe", &format!("{sliding}{list}")), &["window", "full_attention_layers"]);
    assert_eq!(listed, ["8", "1"]);
    let local = r#", "global_attn_every_n_layers": 3, "local_attention": 8"#;
    assert_eq!(fields(&small("modernbert", local), &["window", "full_attention_layers"]), ["8", "2"]);
}

#[test]
fn more_structures_are_refused() {
    for (key, value) in [
        ("zero_expert_num", "4"),
        ("num_attention_groups", "1"),
        ("share_q_dim", "32"),
        ("n_shared_head", "8"),
        ("residual_moe", "true"),
        ("parallel_attn_mlp_res", "true"),
        ("use_cla", "true"),
        ("cla_share_factor", "2"),
        ("num_key_value_heads_per_layer", "[4, 2, 1, 1]"),
        ("global_head_dim", "32"),
        ("hidden_size_per_layer_input", "16"),
        ("mixer_types", r#"["lightning-attn"]"#),
        ("attn_mode", r#""chunk""#),
        ("layer_group_size", "5"),
        ("num_layers_per_stack", "2"),
        ("high_cycles", "2"),
        ("index_topk", "8"),
        ("cross_attention_layers", "[1]"),
        ("attention_types", r#"[[["global", "local"], 2]]"#),
    ] {
        refused(&small("newmodel", &format!(r#", "{key}": {value}"#)), &format!("{key}: found"));
    }
    refused(&small("jetmoe", ""), "model_type: found \"jetmoe\"");
    let harmless = r#", "use_cla": false, "cla_share_factor": 2, "residual_moe": false, "attn_type_list": [1, 1, 1, 1], "attention_types": [[["global"], 4]], "hidden_size_per_layer_input": 0"#;
    assert_eq!(fields(&small("newmodel", harmless), &["layers"]), ["4"]);
    refused(&small("newmodel", r#", "attn_type_list": [0, 1, 1, 1]"#), "attn_type_list: found a list of 4");
}

#[test]
fn experts_by_other_names() {
    let experts = |more: &str| {
        let names = ["experts.top_k", "experts.shared", "experts.first_dense_layers"];
        fields(&small("newmodel", &format!(r#", "num_experts": 4{more}"#)), &names)
    };
    assert_eq!(experts(r#", "moe_k": 2, "num_shared_expert": 1, "num_dense_layers": 2"#), ["2", "1", "2"]);
    let listed = r#", "top_k_experts": 2, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]"#;
    assert_eq!(experts(listed), ["2", "-", "1"]);
    assert_eq!(experts(r#", "is_moe": false"#), ["-", "-", "-"]);
    let odd = r#", "num_experts": 4, "moe_k": 2, "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"]"#;
    refused(&small("newmodel", odd), "mlp_layer_types: expected");
}

#[test]
fn layers_of_families_by_their_code() {
    let names = ["ffn", "gated", "biases", "norm", "position", "tied_embeddings"];
    let qwen = fields(&small("qwen", r#", "no_bias": true, "tie_word_embeddings": false"#), &names);
    assert_eq!(qwen, ["64", "true", "qkv", "rms", "rotary", "-"]);
    for kind in ["minicpm", "smollm3", "ernie4_5"] {
        assert_eq!(fields(&small(kind, ""), &["tied_embeddings"]), ["true"], "{kind}");
        assert_eq!(fields(&small(kind, r#", "tie_word_embeddings": false"#), &["tied_embeddings"]), ["-"], "{kind}");
    }
    assert_eq!(fields(&small("bitnet", r#", "hidden_act": "relu2""#), &["gated"]), ["true"]);
    for kind in ["gptj", "codegen"] {
        let read = fields(&small(kind, ""), &["parallel_block", "gated", "head_bias", "biases"]);
        assert_eq!(read, ["true", "false", "true", "perceptron"], "{kind}");
    }
}

#[test]
fn whole_numbers_may_have_a_point() {
    let config = small("llama", r#", "hidden_size": 64.0, "vocab_size": 1.28e5"#);
    assert_eq!(fields(&config, &["hidden", "vocab"]), ["64", "128000"]);
    refused(&small("llama", r#", "hidden_size": 64.5"#), "hidden_size: expected a whole number");
}
