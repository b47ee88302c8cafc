//! Sizes that the class of a family has where a file says nothing of them. Each that decides anything is told.

/// Fields of a text model within another (`text_config`) state what differs from the class alone: its other sizes.
const GEMMA3: &[(&str, &str)] = &[
    ("vocab_size", "262208"),
    ("hidden_size", "2304"),
    ("intermediate_size", "9216"),
    ("num_hidden_layers", "26"),
    ("num_attention_heads", "8"),
    ("max_position_embeddings", "131072"),
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
    ("num_hidden_layers", "48"),
    ("num_attention_heads", "40"),
    ("max_position_embeddings", "131072"),
];
const MISTRAL: &[(&str, &str)] = &[
    ("vocab_size", "32000"),
    ("hidden_size", "4096"),
    ("intermediate_size", "14336"),
    ("num_hidden_layers", "32"),
    ("num_attention_heads", "32"),
    ("max_position_embeddings", "131072"),
];

/// Of a part of a file, which states what differs alone.
pub(super) fn of_part(kind: &str) -> &'static [(&'static str, &'static str)] {
    match kind {
        "gemma3_text" | "gemma3" => GEMMA3,
        "llama4_text" | "llama4" => LLAMA4,
        "llama" => LLAMA,
        "mistral" => MISTRAL,
        _ => &[],
    }
}

/// Of every file: what no released file may leave out without meaning the value of the class (`configuration_*.py` in `transformers`).
pub(super) fn of_class(kind: &str) -> &'static [(&'static str, &'static str)] {
    match kind {
        "mistral" => &[("num_key_value_heads", "8"), ("sliding_window", "4096")],
        "mixtral" => &[("num_key_value_heads", "8"), ("num_local_experts", "8"), ("num_experts_per_tok", "2")],
        "qwen2" => &[("num_key_value_heads", "32")],
        "qwen3" => &[("num_key_value_heads", "32"), ("head_dim", "128")],
        "qwen2_moe" => &[
            ("num_key_value_heads", "16"),
            ("moe_intermediate_size", "1408"),
            ("shared_expert_intermediate_size", "5632"),
            ("num_experts", "60"),
            ("num_experts_per_tok", "4"),
        ],
        // Its heads are as narrow as the hidden size makes them where nothing says so, other than Qwen 3's.
        "qwen3_moe" => &[
            ("num_key_value_heads", "4"),
            ("moe_intermediate_size", "768"),
            ("num_experts", "128"),
            ("num_experts_per_tok", "8"),
        ],
        "gemma" => &[("num_key_value_heads", "16"), ("head_dim", "256")],
        "gemma2" | "gemma3" | "gemma3_text" => {
            &[("num_key_value_heads", "4"), ("head_dim", "256"), ("sliding_window", "4096")]
        }
        "glm" | "glm4" => &[("num_key_value_heads", "2"), ("head_dim", "128")],
        "starcoder2" => &[("num_key_value_heads", "2")],
        "cohere2" => &[("sliding_window", "4096")],
        "llama4" | "llama4_text" => &[
            ("intermediate_size", "8192"),
            ("intermediate_size_mlp", "16384"),
            ("num_key_value_heads", "8"),
            ("head_dim", "128"),
            ("attention_chunk_size", "8192"),
            ("num_experts_per_tok", "1"),
            ("num_local_experts", "16"),
            ("interleave_moe_layer_step", "1"),
        ],
        "deepseek_v2" => &[
            ("n_routed_experts", "64"),
            ("n_shared_experts", "2"),
            ("moe_intermediate_size", "1407"),
            ("q_lora_rank", "1536"),
            ("kv_lora_rank", "512"),
            ("qk_nope_head_dim", "128"),
            ("qk_rope_head_dim", "64"),
            ("v_head_dim", "128"),
        ],
        "deepseek_v3" => &[
            ("n_routed_experts", "256"),
            ("n_shared_experts", "1"),
            ("num_experts_per_tok", "8"),
            ("moe_intermediate_size", "2048"),
            ("first_k_dense_replace", "3"),
            ("q_lora_rank", "1536"),
            ("kv_lora_rank", "512"),
            ("qk_nope_head_dim", "128"),
            ("qk_rope_head_dim", "64"),
            ("v_head_dim", "128"),
        ],
        _ => &[],
    }
}
