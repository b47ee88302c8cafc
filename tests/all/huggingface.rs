//! Hugging Face's `config.json` as workloads: counts of weights held against those of the released checkpoints, options, what is
//! assumed, and the whole way through the program.

use super::scratch::Scratch;
use flowspace::spec::{Node, Reader};
use flowspace::workload::huggingface;
use flowspace::workload::language::{AttentionCount, LanguageModel};
use serde_json::Value;

fn read(config: &str, options: &[(&str, &str)]) -> Result<(LanguageModel, Vec<String>), String> {
    let scratch = Scratch::new("hf");
    let options: Vec<(String, String)> = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let imported =
        huggingface::read(scratch.write("config.json", config).as_ref(), &options).map_err(|e| e.to_string())?;
    let model = Reader::read(&imported.tree).map_err(|e| e.to_string())?;
    // The file that is written says the same.
    let text = huggingface::yaml(&imported, "config.json");
    let again: LanguageModel =
        Reader::read(&Node::parse("again.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again, model, "{text}");
    Ok((model, imported.notes))
}

#[track_caller]
fn model(config: &str) -> LanguageModel {
    read(config, &[]).unwrap_or_else(|e| panic!("{e}\n{config}")).0
}

const LLAMA3_8B: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "hidden_act": "silu",
 "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 32,
 "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0, "tie_word_embeddings": false,
 "torch_dtype": "bfloat16", "vocab_size": 128256}"#;

/// Sizes as each model's config.json on the Hub has them, and the number of weights in its checkpoint: "total parameters" of the
/// safetensors index on its page, or the sum over the shapes of its PyTorch file.
#[test]
fn weights_are_those_of_the_released_checkpoints() {
    let released: &[(&str, u64, &str)] = &[
        // Llama 2 7B, 70B (6,738,415,616; 68,976,648,192), Llama 3 8B, Llama 3.2 1B.
        (
            "llama-2-7b",
            6_738_415_616,
            r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "torch_dtype": "float16", "vocab_size": 32000}"#,
        ),
        (
            "llama-2-70b",
            68_976_648_192,
            r#"{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "max_position_embeddings": 4096, "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "tie_word_embeddings": false, "vocab_size": 32000}"#,
        ),
        ("llama-3-8b", 8_030_261_248, LLAMA3_8B),
        (
            "llama-3.2-1b",
            1_235_814_400,
            r#"{"model_type": "llama", "attention_bias": false, "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "tie_word_embeddings": true, "vocab_size": 128256}"#,
        ),
        // Mistral 7B v0.1, Mistral Nemo (heads narrower than hidden / heads), Mixtral 8x7B and 8x22B.
        (
            "mistral-7b",
            7_241_732_096,
            r#"{"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 32000}"#,
        ),
        (
            "mistral-nemo",
            12_247_782_400,
            r#"{"model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 14336, "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 131072}"#,
        ),
        (
            "mixtral-8x7b",
            46_702_792_704,
            r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 32000}"#,
        ),
        (
            "mixtral-8x22b",
            140_630_071_296,
            r#"{"model_type": "mixtral", "hidden_size": 6144, "intermediate_size": 16384, "max_position_embeddings": 65536, "num_attention_heads": 48, "num_experts_per_tok": 2, "num_hidden_layers": 56, "num_key_value_heads": 8, "num_local_experts": 8, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 32768}"#,
        ),
        // Qwen 2.5 0.5B and 7B (biases of queries, keys and values), Qwen 3 0.6B and 8B (norms of queries and keys).
        (
            "qwen2.5-0.5b",
            494_032_768,
            r#"{"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24, "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "sliding_window": 32768, "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936}"#,
        ),
        (
            "qwen2.5-7b",
            7_615_616_512,
            r#"{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 131072, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 152064}"#,
        ),
        (
            "qwen3-0.6b",
            596_049_920,
            r#"{"model_type": "qwen3", "attention_bias": false, "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960, "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "tie_word_embeddings": true, "vocab_size": 151936}"#,
        ),
        (
            "qwen3-8b",
            8_190_735_360,
            r#"{"model_type": "qwen3", "attention_bias": false, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 40960, "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "tie_word_embeddings": false, "vocab_size": 151936}"#,
        ),
        // Qwen 1.5 MoE A2.7B (a gated shared expert of its own width), Qwen 3 30B-A3B and 235B-A22B.
        (
            "qwen1.5-moe",
            14_315_784_192,
            r#"{"model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 8192, "moe_intermediate_size": 1408, "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "shared_expert_intermediate_size": 5632, "tie_word_embeddings": false, "vocab_size": 151936}"#,
        ),
        (
            "qwen3-30b-a3b",
            30_532_122_624,
            r#"{"model_type": "qwen3_moe", "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960, "mlp_only_layers": [], "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "tie_word_embeddings": false, "vocab_size": 151936}"#,
        ),
        (
            "qwen3-235b-a22b",
            235_093_634_560,
            r#"{"model_type": "qwen3_moe", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 40960, "mlp_only_layers": [], "moe_intermediate_size": 1536, "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 94, "num_key_value_heads": 4, "tie_word_embeddings": false, "vocab_size": 151936}"#,
        ),
        // DeepSeek-V2-Lite, V2, V3 (671B without the layer that predicts a second token; the routers' biases are weights of it).
        (
            "deepseek-v2-lite",
            15_706_484_224,
            r#"{"model_type": "deepseek_v2", "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "tie_word_embeddings": false, "v_head_dim": 128, "vocab_size": 102400}"#,
        ),
        (
            "deepseek-v2",
            235_741_434_880,
            r#"{"model_type": "deepseek_v2", "first_k_dense_replace": 1, "hidden_size": 5120, "intermediate_size": 12288, "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 1536, "moe_layer_freq": 1, "n_routed_experts": 160, "n_shared_experts": 2, "num_attention_heads": 128, "num_experts_per_tok": 6, "num_hidden_layers": 60, "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "tie_word_embeddings": false, "v_head_dim": 128, "vocab_size": 102400}"#,
        ),
        (
            "deepseek-v3",
            671_026_419_200,
            r#"{"model_type": "deepseek_v3", "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config": {"quant_method": "fp8"}, "tie_word_embeddings": false, "v_head_dim": 128, "vocab_size": 129280}"#,
        ),
        // Gemma 2 2B, 9B and 27B; Gemma 3 1B. Tied where nothing says so.
        (
            "gemma-2-2b",
            2_614_341_888,
            r#"{"model_type": "gemma2", "attn_logit_softcapping": 50.0, "head_dim": 256, "hidden_size": 2304, "intermediate_size": 9216, "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "sliding_window": 4096, "vocab_size": 256000}"#,
        ),
        (
            "gemma-2-9b",
            9_241_705_984,
            r#"{"model_type": "gemma2", "head_dim": 256, "hidden_size": 3584, "intermediate_size": 14336, "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8, "sliding_window": 4096, "vocab_size": 256000}"#,
        ),
        (
            "gemma-2-27b",
            27_227_128_320,
            r#"{"model_type": "gemma2", "head_dim": 128, "hidden_size": 4608, "intermediate_size": 36864, "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 46, "num_key_value_heads": 16, "sliding_window": 4096, "vocab_size": 256000}"#,
        ),
        (
            "gemma-3-1b",
            999_885_952,
            r#"{"model_type": "gemma3_text", "head_dim": 256, "hidden_size": 1152, "intermediate_size": 6912, "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144}"#,
        ),
        // Gemma 3 4B and 27B: the whole checkpoint (4,300,079,472; 27,432,406,640) without SigLIP's tower of 416,866,032 weights and the
        // map of 1152 x hidden + 1152 into the text model.
        (
            "gemma-3-4b",
            4_300_079_472 - 416_866_032 - 1152 * 2561,
            r#"{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}}"#,
        ),
        (
            "gemma-3-27b",
            27_432_406_640 - 416_866_032 - 1152 * 5377,
            r#"{"model_type": "gemma3", "text_config": {"head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504, "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}}"#,
        ),
        // Phi-1.5 and Phi-2 (parallel blocks, a bias of the head), Phi-3 mini and medium.
        (
            "phi-1.5",
            1_418_270_720,
            r#"{"model_type": "phi", "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 24, "num_key_value_heads": null, "partial_rotary_factor": 0.5, "qk_layernorm": false, "tie_word_embeddings": false, "vocab_size": 51200}"#,
        ),
        (
            "phi-2",
            2_779_683_840,
            r#"{"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "tie_word_embeddings": false, "vocab_size": 51200}"#,
        ),
        (
            "phi-3-mini",
            3_821_079_552,
            r#"{"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "sliding_window": 2047, "tie_word_embeddings": false, "vocab_size": 32064}"#,
        ),
        (
            "phi-3-medium",
            13_960_238_080,
            r#"{"model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17920, "max_position_embeddings": 4096, "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10, "sliding_window": 2047, "tie_word_embeddings": false, "vocab_size": 32064}"#,
        ),
        // GPT-2 and GPT-2 XL: tied where nothing says so.
        (
            "gpt2",
            124_439_808,
            r#"{"model_type": "gpt2", "attn_pdrop": 0.1, "embd_pdrop": 0.1, "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257}"#,
        ),
        (
            "gpt2-xl",
            1_557_611_200,
            r#"{"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_positions": 1024, "vocab_size": 50257}"#,
        ),
        // GPT-NeoX 20B, Pythia 160M and 6.9B: parallel blocks with two norms (Biderman et al. 2023, arXiv 2304.01373, table 1).
        (
            "gpt-neox-20b",
            20_554_567_680,
            r#"{"model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "num_attention_heads": 64, "num_hidden_layers": 44, "rotary_pct": 0.25, "tie_word_embeddings": false, "use_parallel_residual": true, "vocab_size": 50432}"#,
        ),
        (
            "pythia-160m",
            162_322_944,
            r#"{"model_type": "gpt_neox", "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 2048, "num_attention_heads": 12, "num_hidden_layers": 12, "tie_word_embeddings": false, "use_parallel_residual": true, "vocab_size": 50304}"#,
        ),
        (
            "pythia-6.9b",
            6_857_302_016,
            r#"{"model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32, "tie_word_embeddings": false, "use_parallel_residual": true, "vocab_size": 50432}"#,
        ),
        // OPT 125M, 350M (words of 512 channels, norms after, none at the end), 6.7B.
        (
            "opt-125m",
            125_239_296,
            r#"{"model_type": "opt", "do_layer_norm_before": true, "dropout": 0.1, "ffn_dim": 3072, "hidden_size": 768, "max_position_embeddings": 2048, "num_attention_heads": 12, "num_hidden_layers": 12, "vocab_size": 50272, "word_embed_proj_dim": 768}"#,
        ),
        (
            "opt-350m",
            331_196_416,
            r#"{"model_type": "opt", "do_layer_norm_before": false, "ffn_dim": 4096, "hidden_size": 1024, "max_position_embeddings": 2048, "num_attention_heads": 16, "num_hidden_layers": 24, "vocab_size": 50272, "word_embed_proj_dim": 512}"#,
        ),
        (
            "opt-6.7b",
            6_658_473_984,
            r#"{"model_type": "opt", "do_layer_norm_before": true, "ffn_dim": 16384, "hidden_size": 4096, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 50272, "word_embed_proj_dim": 4096}"#,
        ),
        // BLOOM 560M and 176B.
        (
            "bloom-560m",
            559_214_592,
            r#"{"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "offset_alibi": 100, "seq_length": 2048, "vocab_size": 250880}"#,
        ),
        (
            "bloom",
            176_247_271_424,
            r#"{"model_type": "bloom", "hidden_size": 14336, "n_head": 112, "n_layer": 70, "n_inner": null, "seq_length": 2048, "vocab_size": 250880}"#,
        ),
        // MPT 7B and 30B.
        (
            "mpt-7b",
            6_649_286_656,
            r#"{"model_type": "mpt", "attn_config": {"alibi": true, "attn_type": "multihead_attention", "qk_ln": false}, "d_model": 4096, "expansion_ratio": 4, "max_seq_len": 2048, "n_heads": 32, "n_layers": 32, "no_bias": true, "vocab_size": 50432}"#,
        ),
        (
            "mpt-30b",
            29_957_200_896,
            r#"{"model_type": "mpt", "attn_config": {"alibi": true}, "d_model": 7168, "expansion_ratio": 4, "max_seq_len": 8192, "n_heads": 64, "n_layers": 48, "no_bias": true, "vocab_size": 50432}"#,
        ),
        // BERT base: the checkpoint of BertForMaskedLM, and of BertModel with its pooler.
        (
            "bert-base-masked",
            109_514_298,
            r#"{"architectures": ["BertForMaskedLM"], "model_type": "bert", "attention_probs_dropout_prob": 0.1, "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30522}"#,
        ),
        (
            "bert-base",
            109_482_240,
            r#"{"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30522}"#,
        ),
        // XLM-RoBERTa large with its head for masked words.
        (
            "xlm-roberta-large",
            560_142_482,
            r#"{"architectures": ["XLMRobertaForMaskedLM"], "model_type": "xlm-roberta", "hidden_size": 1024, "intermediate_size": 4096, "max_position_embeddings": 514, "num_attention_heads": 16, "num_hidden_layers": 24, "type_vocab_size": 1, "vocab_size": 250002}"#,
        ),
        // ModernBERT base: 149,655,232, and two vectors of 768 that are counted though it has none.
        (
            "modernbert-base",
            149_655_232 + 2 * 768,
            r#"{"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "attention_bias": false, "global_attn_every_n_layers": 3, "hidden_activation": "gelu", "hidden_size": 768, "intermediate_size": 1152, "local_attention": 128, "max_position_embeddings": 8192, "mlp_bias": false, "norm_bias": false, "num_attention_heads": 12, "num_hidden_layers": 22, "vocab_size": 50368}"#,
        ),
        // Electra base without the discriminator's head; DeBERTa V3 base without its table of 512 distances and the norm of it.
        (
            "electra-base",
            108_891_648,
            r#"{"architectures": ["ElectraForPreTraining"], "model_type": "electra", "embedding_size": 768, "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30522}"#,
        ),
        (
            "deberta-v3-base",
            183_831_552 - 512 * 768 - 2 * 768,
            r#"{"model_type": "deberta-v2", "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12, "num_hidden_layers": 12, "position_biased_input": false, "relative_attention": true, "share_att_key": true, "type_vocab_size": 0, "vocab_size": 128100}"#,
        ),
        // ChatGLM 3 6B, GLM-4 9B in both notations: two heads of keys and values, biases of queries, keys and values.
        (
            "chatglm3-6b",
            6_243_584_000,
            r#"{"architectures": ["ChatGLMModel"], "model_type": "chatglm", "add_bias_linear": false, "add_qkv_bias": true, "ffn_hidden_size": 13696, "hidden_size": 4096, "kv_channels": 128, "multi_query_attention": true, "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28, "padded_vocab_size": 65024, "post_layer_norm": true, "rmsnorm": true, "seq_length": 8192, "tie_word_embeddings": false, "vocab_size": 64794}"#,
        ),
        (
            "glm-4-9b",
            9_399_951_360,
            r#"{"model_type": "chatglm", "add_bias_linear": false, "add_qkv_bias": true, "ffn_hidden_size": 13696, "hidden_size": 4096, "kv_channels": 128, "multi_query_attention": true, "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 40, "padded_vocab_size": 151552, "rmsnorm": true, "tie_word_embeddings": false}"#,
        ),
        (
            "glm-4-9b-hf",
            9_399_951_360,
            r#"{"model_type": "glm", "attention_bias": true, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 13696, "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "tie_word_embeddings": false, "vocab_size": 151552}"#,
        ),
        // StarCoder 2 3B and 7B (tied where nothing says so) and 15B (not tied).
        (
            "starcoder2-3b",
            3_030_371_328,
            r#"{"model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072, "intermediate_size": 12288, "max_position_embeddings": 16384, "mlp_type": "default", "norm_type": "layer_norm", "num_attention_heads": 24, "num_hidden_layers": 30, "num_key_value_heads": 2, "sliding_window": 4096, "use_bias": true, "vocab_size": 49152}"#,
        ),
        (
            "starcoder2-7b",
            7_173_923_840,
            r#"{"model_type": "starcoder2", "hidden_size": 4608, "intermediate_size": 18432, "mlp_type": "default", "norm_type": "layer_norm", "num_attention_heads": 36, "num_hidden_layers": 32, "num_key_value_heads": 4, "sliding_window": 4096, "use_bias": true, "vocab_size": 49152}"#,
        ),
        (
            "starcoder2-15b",
            15_957_889_024,
            r#"{"model_type": "starcoder2", "hidden_size": 6144, "intermediate_size": 24576, "mlp_type": "default", "norm_type": "layer_norm", "num_attention_heads": 48, "num_hidden_layers": 40, "num_key_value_heads": 4, "sliding_window": 4096, "tie_word_embeddings": false, "use_bias": true, "vocab_size": 49152}"#,
        ),
        // Command R7B, and Command R+ with norms of queries and keys.
        (
            "command-r7b",
            8_028_033_024,
            r#"{"model_type": "cohere2", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "sliding_window": 4096, "sliding_window_pattern": 4, "use_qk_norm": false, "vocab_size": 256000}"#,
        ),
        (
            "command-r-plus",
            103_810_674_688,
            r#"{"model_type": "cohere", "hidden_size": 12288, "intermediate_size": 33792, "num_attention_heads": 96, "num_hidden_layers": 64, "num_key_value_heads": 8, "use_qk_norm": true, "vocab_size": 256000}"#,
        ),
        // The text model of Qwen 2.5 VL 7B, its tower of images left out.
        (
            "qwen2.5-vl-7b",
            7_615_616_512,
            r#"{"model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "sliding_window": 32768, "tie_word_embeddings": false, "use_sliding_window": false, "vision_config": {"depth": 32}, "vocab_size": 152064}"#,
        ),
        // ViT base and large, 1000 classes.
        (
            "vit-base",
            86_567_656,
            r#"{"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 768, "image_size": 224, "intermediate_size": 3072, "num_attention_heads": 12, "num_channels": 3, "num_hidden_layers": 12, "num_labels": 1000, "patch_size": 16, "qkv_bias": true}"#,
        ),
        (
            "vit-large",
            304_326_632,
            r#"{"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 1024, "image_size": 224, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "num_labels": 1000, "patch_size": 16}"#,
        ),
    ];
    let mut wrong = Vec::new();
    for (name, count, config) in released {
        match read(config, &[]) {
            Ok((model, _)) if model.parameters().total() == *count as f64 => {}
            Ok((model, _)) => wrong.push(format!("{name}: {} instead of {count}", model.parameters().total())),
            Err(e) => wrong.push(format!("{name}: {e}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Weights that a token meets, as the cards of the models round them: Mixtral 12.9, DeepSeek-V3 37, V2-Lite 2.4 (its paper leaves words
/// out: 2.7 with one embedding), Qwen 3 30B-A3B 3.3 billion.
#[test]
fn active_weights_are_the_published_ones() {
    let qwen = model(
        r#"{"model_type": "qwen3_moe", "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size": 151936}"#,
    );
    let active = qwen.parameters().active() / 1e9;
    assert!((active - 3.3).abs() < 0.06, "{active}");
}

/// Windows: Gemma 2 in every second layer, Gemma 3 in five of six, Qwen where it is switched on and from a layer on.
#[test]
fn windows_by_layer() {
    let gemma = |kind: &str, layers: u64, more: &str| {
        model(&format!(
            r#"{{"model_type": "{kind}", "head_dim": 64, "hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 8192, "num_attention_heads": 4, "num_hidden_layers": {layers}, "sliding_window": 16, "vocab_size": 1000{more}}}"#
        ))
    };
    let two = gemma("gemma2", 26, "");
    assert_eq!((two.window, two.full_attention_layers, two.norms()), (Some(16), Some(13), 4));
    let three = gemma("gemma3_text", 26, "");
    assert_eq!((three.window, three.full_attention_layers), (Some(16), Some(4)));
    let listed =
        gemma("gemma3_text", 3, r#", "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]"#);
    assert_eq!(listed.full_attention_layers, Some(1));
    // 4 of 26 layers see (s + 1)/2 tokens, the others 16 after the first 16.
    let (s, w) = (4096.0, 16.0);
    let full = (s + 1.0) / 2.0;
    let windowed = (w * (w + 1.0) / 2.0 + (s - w) * w) / s;
    let seen = three.mean_attended(4096, AttentionCount::Masked);
    assert!((seen - (4.0 * full + 22.0 * windowed) / 26.0).abs() < 1e-9, "{seen}");
    let qwen = |on: bool| {
        model(&format!(
            r#"{{"model_type": "qwen2", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 8, "max_window_layers": 3, "sliding_window": 32, "use_sliding_window": {on}, "vocab_size": 1000}}"#
        ))
    };
    assert_eq!((qwen(true).window, qwen(true).full_attention_layers), (Some(32), Some(3)));
    assert_eq!(qwen(false).window, None);
}

/// One layer of each kind that no released model of the other test has, by hand.
#[test]
fn odd_layers_by_hand() {
    let layer = |more: &str| {
        model(&format!(
            r#"{{"model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 10{more}}}"#
        ))
        .layer_parameters(false)
    };
    // Four maps of 8 x 8, three of 8 x 16, two norms of 8.
    assert_eq!(layer("").total(), 256.0 + 384.0 + 16.0);
    assert_eq!(layer(r#", "attention_bias": true"#).biases, 4.0 * 8.0);
    assert_eq!(layer(r#", "mlp_bias": true"#).biases, 16.0 + 16.0 + 8.0);
    assert_eq!(layer(r#", "mlp_bias": true, "attention_bias": true"#).biases, 32.0 + 40.0);
    // Experts in every second layer, and only from the fourth on.
    let sparse = model(
        r#"{"model_type": "qwen3_moe", "head_dim": 4, "hidden_size": 8, "intermediate_size": 16, "moe_intermediate_size": 4, "num_attention_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 9, "decoder_sparse_step": 2, "mlp_only_layers": [0, 1, 2], "vocab_size": 10}"#,
    );
    assert_eq!((sparse.expert_layers(), sparse.dense_layers()), (3, 6));
    assert_eq!([3, 4, 5, 6, 8, 9].map(|n| sparse.expert_layers_before(n)), [0, 1, 1, 2, 3, 3]);
}

/// What no configuration states is an option, or assumed and told.
#[test]
fn passes_are_options_or_told() {
    let (plain, notes) = read(LLAMA3_8B, &[]).unwrap();
    assert_eq!((plain.seq, plain.global_batch, plain.pass.word()), (4096, 256, "training"));
    assert!(notes.iter().any(|n| n.contains("pass training, seq 4096") && n.contains("global_batch 256")), "{notes:?}");
    let options =
        [("pass", "inference"), ("seq", "1024"), ("generated", "64"), ("global_batch", "8"), ("types.weights", "fp8")];
    let (served, notes) = read(LLAMA3_8B, &options).unwrap();
    assert_eq!((served.seq, served.generated, served.global_batch), (1024, Some(64), 8));
    assert_eq!((served.pass.word(), served.types.weights.word()), ("inference", "fp8"));
    assert!(notes.is_empty(), "{notes:?}");
    let misspelt = read(LLAMA3_8B, &[("sequence", "8")]).unwrap_err();
    assert!(misspelt.contains("sequence: unknown key"), "{misspelt}");
    // Learned positions bound prompt and answer together.
    let gpt2 =
        r#"{"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 2, "n_positions": 1024, "vocab_size": 100}"#;
    let (served, _) = read(gpt2, &[("pass", "inference"), ("generated", "24")]).unwrap();
    assert_eq!(served.seq, 1000);
}

/// Llama 4's `intermediate_size` is its experts', one of which every token takes; Scout states what differs from the class.
#[test]
fn llama_4_is_the_catalogues() {
    let maverick = r#"{"model_type": "llama4", "text_config": {"model_type": "llama4_text", "hidden_size": 5120, "head_dim": 128, "num_attention_heads": 40, "num_key_value_heads": 8, "num_hidden_layers": 48, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192, "vocab_size": 202048, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": false}}"#;
    let scout = r#"{"model_type": "llama4", "text_config": {"model_type": "llama4_text", "num_local_experts": 16, "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0]}}"#;
    for (text, file) in [(maverick, "llama4-maverick"), (scout, "llama4-scout")] {
        let (read, notes) = read(text, &[]).unwrap();
        let ours = super::executions::shipped(file);
        assert_eq!(read.parameters(), ours.parameters(), "{file}");
        let windows = |m: &LanguageModel| (m.window, m.full_attention_layers, m.ffn(), m.experts);
        assert_eq!(windows(&read), windows(&ours), "{file}");
        assert!(notes.iter().any(|n| n.contains("attention_chunk_size")), "{notes:?}");
    }
}

#[test]
fn unknown_families_are_read_by_their_fields() {
    let text = r#"{"model_type": "newmodel", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 10000, "attention_bias": true, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "tie_word_embeddings": true, "vocab_size": 100}"#;
    let (model, notes) = read(text, &[]).unwrap();
    assert!(model.gated && model.tied_embeddings && model.experts.is_some_and(|e| e.ffn == 32 && e.top_k == 2));
    assert_eq!((model.norm.word(), model.position.word(), model.biases.word()), ("rms", "rotary", "attention"));
    let said = notes.iter().find(|n| n.contains("is not known")).unwrap();
    for part in [
        "\"newmodel\"",
        "norms (rms_norm_eps)",
        "a gated perceptron (silu)",
        "rotary positions (rope_theta)",
        "biases attention",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (_, notes) = read(r#"{"model_type": "gemma3", "text_config": {"hidden_size": 2560, "num_hidden_layers": 2}, "vision_config": {}}"#, &[]).unwrap();
    for part in ["left out: vision_config", "num_attention_heads 8, which the class has", "vocab_size 262208"] {
        assert!(notes.iter().any(|n| n.contains(part)), "{part}: {notes:?}");
    }
}

/// A small configuration of a model type, with more fields.
fn small(kind: &str, more: &str) -> String {
    format!(
        r#"{{"model_type": "{kind}", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 4, "rms_norm_eps": 1e-6, "vocab_size": 100{more}}}"#
    )
}

/// What switches a window off does so in every family, and patterns and lists say in which layers it is.
#[test]
fn windows_are_switched_off_and_patterned() {
    let windows = |kind: &str, more: &str| {
        let model = model(&small(kind, more));
        (model.window, model.full_attention_layers)
    };
    for kind in ["qwen2_5_vl", "qwen3", "mistral", "gemma2", "starcoder2", "cohere2", "newmodel"] {
        assert_eq!(windows(kind, r#", "sliding_window": 8, "use_sliding_window": false"#), (None, None), "{kind}");
    }
    let listed = r#", "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]"#;
    for kind in ["mistral", "gemma3_text", "newmodel"] {
        assert_eq!(windows(kind, listed), (Some(8), Some(1)), "{kind}");
    }
    assert_eq!(windows("newmodel", r#", "sliding_window": 8"#), (Some(8), None));
    for key in ["sliding_window_pattern", "full_attention_interval"] {
        let more = format!(r#", "sliding_window": 8, "{key}": 2"#);
        assert_eq!(windows("newmodel", &more), (Some(8), Some(2)), "{key}");
    }
    let on = r#", "sliding_window": 8, "use_sliding_window": true, "max_window_layers": 3"#;
    assert_eq!(windows("newmodel", on), (Some(8), Some(3)));
    assert_eq!(windows("cohere2", r#", "sliding_window": 8"#), (Some(8), Some(1)));
    // Layers 0 and 3 of 4.
    assert_eq!(windows("modernbert", r#", "global_attn_every_n_layers": 3, "local_attention": 8"#), (Some(8), Some(2)));
    let missing = read(&small("newmodel", &listed.replace(r#""sliding_window": 8, "#, "")), &[]).unwrap_err();
    assert!(missing.contains("sliding_window: missing; layer_types lists"), "{missing}");
}

/// What has no field is refused by its name, with what would fit.
#[test]
fn structures_without_a_field_are_refused() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "jamba",
            r#", "attn_layer_period": 2, "mamba_d_state": 16, "mamba_expand": 2"#,
            &[
                "attn_layer_period: found 2: one layer of each 2 attends",
                "mamba_d_state: found \"16\" (with mamba_expand): layers of Mamba",
                "expected a stack whose every layer attends",
                "kind: graph",
            ],
        ),
        (
            "qwen3_next",
            r#", "full_attention_interval": 4, "linear_num_key_heads": 4, "linear_key_head_dim": 8"#,
            &[
                "full_attention_interval: found 4",
                "linear_num_key_heads: found \"4\" (with linear_key_head_dim): layers of linear",
            ],
        ),
        ("newmodel", r#", "full_attention_interval": 4"#, &["full_attention_interval: found 4", "no sliding_window"]),
        (
            "granitemoehybrid",
            r#", "layer_types": ["mamba", "attention", "conv", "mamba"], "mamba_n_heads": 4"#,
            &[
                "layer_types: found \"mamba\" for 2 of 4 layers",
                "layer_types: found \"conv\" for 1 of 4",
                "mamba_n_heads",
            ],
        ),
        (
            "llama",
            r#", "layer_types": ["linear_attention", "full_attention", "full_attention", "full_attention"]"#,
            &["\"linear_attention\" for 1 of 4"],
        ),
        (
            "albert",
            r#", "num_hidden_groups": 1"#,
            &["num_hidden_groups: found 1: 4 layers have their weights together", "expected 4"],
        ),
        ("albert", "", &["num_hidden_groups: found 1"]),
        ("gemma3n_text", r#", "num_kv_shared_layers": 2"#, &["num_kv_shared_layers: found \"2\"", "expected 0"]),
        ("electra", r#", "embedding_size": 16"#, &["embedding_size: found \"16\"; expected the hidden_size"]),
        (
            "newmodel",
            r#", "num_experts": 4, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 0"#,
            &["expert_layer_offset: expected 1, the last layer of each 2"],
        ),
    ];
    for (kind, more, parts) in cases {
        let said = read(&small(kind, more), &[]).expect_err(more);
        for part in *parts {
            assert!(said.contains(part), "{kind}: {part}: {said}");
        }
        assert!(said.lines().all(|line| line.contains("config.json:1: ")), "{said}");
    }
    // The same keys where no layer is of that kind: Granite 4 without Mamba, the perceptron of which is the shared one.
    let plain = model(&small(
        "granitemoehybrid",
        r#", "layer_types": ["attention", "attention", "attention", "attention"], "mamba_n_heads": 4, "num_local_experts": 0, "shared_intermediate_size": 96"#,
    ));
    assert_eq!((plain.window, plain.ffn(), plain.experts), (None, 96, None));
    assert!(
        model(&small("albert", r#", "num_hidden_groups": 4, "max_position_embeddings": 512"#)).parameters().total()
            > 0.0
    );
    // Experts in the last layer of each two have a field.
    let experts = r#", "num_experts": 4, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1"#;
    assert_eq!(model(&small("newmodel", experts)).expert_layers(), 2);
}

/// Encoders see both ways and generate nothing, those of a guessed family too.
#[test]
fn encoders_generate_nothing() {
    let encoder = |kind: &str, architecture: &str| {
        let more = format!(
            r#", "architectures": ["{architecture}"], "layer_norm_eps": 1e-5, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 1"#
        );
        small(kind, &more).replace(r#""rms_norm_eps": 1e-6, "#, "")
    };
    let roberta = model(&encoder("roberta", "RobertaForMaskedLM"));
    for (kind, architecture) in [
        ("camembert", "CamembertForMaskedLM"),
        ("xlm-roberta", "XLMRobertaForMaskedLM"),
        ("electra", "ElectraForMaskedLM"),
        ("deberta-v2", "DebertaV2ForMaskedLM"),
        ("modernbert", "ModernBertForMaskedLM"),
        ("megatron-bert", "MegatronBertForMaskedLM"),
        ("newmodel", "NewForMaskedLM"),
        ("newbert", "NewBertModel"),
    ] {
        let text = encoder(kind, architecture);
        let found = model(&text);
        assert!(!found.causal, "{kind}");
        if kind != "modernbert" && kind != "newbert" {
            let weights = found.parameters().total();
            assert_eq!(weights, roberta.parameters().total(), "{kind}");
        }
        let refused = read(&text, &[("pass", "inference"), ("generated", "8")]).unwrap_err();
        assert!(refused.contains("a model that is not causal generates nothing"), "{kind}: {refused}");
    }
    // Words generated one after another by a decoder of that name are none of it.
    assert!(model(&encoder("newbert", "NewBertForCausalLM")).causal);
}

/// Of a guessed family what nothing reads is told, and what says nothing of structure is not.
#[test]
fn fields_that_nothing_reads_are_told() {
    let more = r#", "odd_branches": 3, "parts": {"a": 1}, "attn_config": {"alibi": false, "odd": 2}, "empty": [], "none": null, "torch_dtype": "bfloat16", "bos_token_id": 1, "rope_theta": 1e4, "num_layers": 4, "use_cache": true, "quantization_config": {"quant_method": "fp8"}, "initializer_range": 0.02, "max_position_embeddings": 64"#;
    let (_, notes) = read(&small("newmodel", more), &[("seq", "8")]).unwrap();
    assert!(notes.iter().any(|n| n == "not read: odd_branches, parts, attn_config.odd"), "{notes:?}");
    let (_, notes) = read(&small("newmodel", ""), &[]).unwrap();
    assert!(!notes.iter().any(|n| n.contains("not read")), "{notes:?}");
    for kind in ["newmodel", "qwen2_5_vl"] {
        let (_, notes) = read(&small(kind, r#", "vision_config": {"depth": 2}"#), &[]).unwrap();
        assert!(notes.iter().any(|n| n.starts_with("left out: vision_config")), "{notes:?}");
    }
    // What a field says goes before what others let suppose.
    let stated = model(&small(
        "newmodel",
        r#", "norm_type": "layer_norm", "mlp_type": "default", "hidden_act": "silu", "use_bias": true, "use_parallel_block": true"#,
    ));
    let words = (stated.norm.word(), stated.biases.word());
    assert_eq!((words, stated.gated, stated.parallel_block), (("layer", "all"), false, true));
}

#[test]
fn a_configuration_goes_all_the_way() {
    let scratch = Scratch::new("hf");
    scratch.write("config.json", LLAMA3_8B);
    let json = |workload: &str| -> Value {
        let out = scratch.run(&["map", "--workload", workload, "--system", "h200-dgx-8", "--format", "json"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let mut json: Value = serde_json::from_slice(&out.stdout).unwrap();
        json["workload"] = Value::Null;
        for seconds in ["solve_s", "seconds"] {
            json[seconds] = Value::Null;
        }
        json
    };
    let options = "pass=inference&seq=512&generated=32&global_batch=16";
    let direct = json(&format!("hf:config.json?{options}"));
    let sets: Vec<String> = options.split('&').flat_map(|o| ["--set".to_string(), o.to_string()]).collect();
    let mut args = vec!["import", "hf", "config.json", "--out", "model.yaml"];
    args.extend(sets.iter().map(String::as_str));
    let out = scratch.run(&args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(json("model.yaml"), direct);
    // What is assumed is told where it is read and on top of what is written.
    let out = scratch.run(&["import", "hf", "config.json"]);
    let (written, told) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(
        told.contains("global_batch 256") && written.contains("# assumed, as no config.json says it"),
        "{told}{written}"
    );
    let again = scratch.run(&["import", "hf", "config.json", "--out", "model.yaml"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
}

/// In a study a configuration is named as on the command line, its path relative to the study; the answers are the same.
#[test]
fn a_study_takes_a_configuration() {
    let scratch = Scratch::new("hf-study");
    std::fs::create_dir(scratch.0.join("deep")).unwrap();
    scratch.write("deep/config.json", LLAMA3_8B);
    scratch.write(
        "deep/study.yaml",
        "name: imported\nworkload: \"hf:config.json?global_batch=16\"\nsystem: h100-dgx-8\naxes:\n  \
         - {name: seq, field: workload.seq, values: [1024, 2048]}\n",
    );
    scratch.succeed(&["study", "run", "deep/study.yaml", "--no-plots", "--out", "out"]);
    let rows = scratch.read("out/results.csv");
    let mut rows = rows.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let column = |row: &[&str], name: &str| row[header.iter().position(|h| *h == name).unwrap()].to_string();
    for seq in ["1024", "2048"] {
        let row = rows.next().unwrap();
        assert_eq!(column(&row, "seq"), seq);
        let workload = format!("hf:deep/config.json?global_batch=16&seq={seq}");
        let args = ["map", "--workload", &workload, "--system", "h100-dgx-8", "--format", "json"];
        let answer: Value = serde_json::from_str(&scratch.succeed(&args)).unwrap();
        let (one, other) = (answer["samples_per_s"].as_f64().unwrap(), column(&row, "samples_per_s"));
        assert_eq!(one, other.parse::<f64>().unwrap());
    }
    scratch.write("deep/study.yaml", "name: imported\nworkload: \"hf:none.json\"\nsystem: h100-dgx-8\naxes: []\n");
    let refused = scratch.run(&["study", "run", "deep/study.yaml", "--out", "none"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && said.contains("none.json"), "{said}");
}
