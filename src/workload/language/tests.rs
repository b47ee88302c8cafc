//! Published figures and closed forms by hand, on the files under `workloads/language`.

use super::*;
use crate::spec::{Loader, Node, Reader};
use crate::workload::WorkloadSpec;

pub(crate) fn shipped(file: &str) -> LanguageModel {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("workloads/language/{file}.yaml"));
    let node = Loader.load(&path, None).unwrap_or_else(|e| panic!("{e}"));
    Reader::read(&node).unwrap_or_else(|e| panic!("{e}"))
}

fn read(text: &str) -> Result<LanguageModel, String> {
    Reader::read(&Node::parse("m.yaml", text).map_err(|e| e.to_string())?).map_err(|e| e.to_string())
}

#[track_caller]
pub(crate) fn within(found: f64, expected: f64, tolerance: f64, what: &str) {
    let error = (found / expected - 1.0).abs();
    assert!(error <= tolerance, "{what}: found {found}, expected {expected}: {:.3} %", 100.0 * error);
}

/// Counts of the released weights, to the last one: Llama 2 and 3, Mixtral, BLOOM, MPT, BERT, ViT (model cards and checkpoints).
#[test]
fn parameters_are_those_of_the_released_weights() {
    for (file, count) in [
        ("llama2-7b", 6_738_415_616.0),
        ("llama2-13b", 13_015_864_320.0),
        ("llama2-70b", 68_976_648_192.0),
        ("llama3-8b", 8_030_261_248.0),
        ("llama3-70b", 70_553_706_496.0),
        ("llama3-405b", 405_853_388_800.0),
        ("mistral-7b", 7_241_732_096.0),
        ("mixtral-8x7b", 46_702_792_704.0),
        ("bloom-176b", 176_247_271_424.0),
        ("mpt-7b", 6_649_286_656.0),
        ("mpt-30b", 29_957_200_896.0),
        ("bert-large", 335_174_458.0),
        ("vit-l16", 304_326_632.0),
        ("vit-h14", 632_045_800.0),
    ] {
        assert_eq!(shipped(file).parameters().total(), count, "{file}");
    }
}

/// An encoder's tokens see all, a decoder's own attention those before, and what crosses the whole source: of 12 layers 6 s + 6 (s + 1)/2 + 6 s.
#[test]
fn encoders_see_all_and_decoders_what_was_before() {
    let one = LanguageModel { head_alone: false, layers: 12, encoder_layers: Some(6), ..shipped("bert-large") };
    let both = LanguageModel { causal: true, ..one.clone() };
    let s = 512.0;
    let seen = |m: &LanguageModel| 18.0 / 12.0 * 12.0 * m.mean_attended(512, AttentionCount::Masked);
    within(seen(&both), 6.0 * s + 6.0 * (s + 1.0) / 2.0 + 6.0 * s, 1e-14, "masked");
    within(seen(&one), 18.0 * s, 1e-14, "no mask");
    within(both.mean_attended(512, AttentionCount::Full), s, 1e-14, "full");
    let width = (both.query_width() + both.value_width()) as f64;
    within(both.attention_flop_per_token(1.0), 2.0 * 18.0 * both.heads as f64 * width, 1e-14, "cores");
}

/// Llama 3 70B on 64 chips: one head of 128 channels of keys and values each, of 8. DeepSeek-V3 on eight: what compresses is on each.
#[test]
fn chips_have_whole_heads_and_what_compresses() {
    let layer = shipped("llama3-70b").layer_parameters(false);
    let h = 8192.0;
    let eighth = layer.attention_on(8.0, 1.0 / 8.0);
    within(eighth, layer.attention / 8.0, 1e-14, "eight");
    within(layer.attention_on(64.0, 1.0 / 8.0), 2.0 * h * h / 64.0 + 2.0 * h * 128.0, 1e-14, "64");
    let layer = shipped("deepseek-v3").layer_parameters(true);
    let whole = 7168.0 * (1536.0 + 512.0 + 64.0);
    within(layer.attention_on(8.0, 1.0 / 8.0), (layer.attention - whole) / 8.0 + whole, 1e-14, "latent");
}

/// Counts that papers print rounded; active weights of models with experts.
#[test]
fn parameters_are_the_published_ones() {
    for (file, billion, tolerance) in [
        ("gpt3-6.7b", 6.7, 0.01),
        ("gpt3-13b", 13.0, 0.015),
        ("gpt3-175b", 175.0, 0.003),
        ("mt-nlg-530b", 530.0, 0.002),
        ("palm-540b", 540.35, 1e-4),
        ("deepseek-v3", 671.0, 1e-3),
    ] {
        within(shipped(file).parameters().total() / 1e9, billion, tolerance, file);
    }
    for (file, billion, tolerance) in [("mixtral-8x7b", 12.9, 0.005), ("deepseek-v3", 37.0, 0.02)] {
        within(shipped(file).parameters().active() / 1e9, billion, tolerance, file);
    }
}

/// Narayanan et al. 2021, eq. 2: P = 12 l h^2 (1 + 13/12h + (V + s)/12lh); the final norm's 2 h are ours besides.
#[test]
fn megatrons_models_have_the_papers_closed_form() {
    for (size, l, h) in [
        ("1.7", 24.0, 2304.0),
        ("3.6", 30.0, 3072.0),
        ("7.5", 36.0, 4096.0),
        ("18.4", 40.0, 6144.0),
        ("39.1", 48.0, 8192.0),
        ("76.1", 60.0, 10240.0),
        ("145.6", 80.0, 12288.0),
        ("310.1", 96.0, 16384.0),
        ("529.6", 105.0, 20480.0),
        ("1008", 128.0, 25600.0),
    ] {
        let model = shipped(&format!("megatron-{size}b"));
        let paper = 12.0 * l * h * h * (1.0 + 13.0 / (12.0 * h) + (51200.0 + 2048.0) / (12.0 * l * h));
        within(model.parameters().total(), paper + 2.0 * h, 1e-12, size);
        let printed: f64 = size.parse().unwrap();
        let billions = model.parameters().total() / 1e9;
        assert!(
            (billions - printed).abs() <= 0.05 + 1e-9 * printed,
            "{size}: {billions}, not what is printed when rounded"
        );
    }
}

/// One layer of DeepSeek-V3 by hand (sizes of section 4.2): 11,010,048 + 37,748,736 for queries, 4,128,768 + 16,777,216 for keys
/// and values, 117,440,512 for the output; 257 experts of 44,040,192; a router of 1,835,008; norms of 2 x 7168 + 1536 + 512.
#[test]
fn latent_attention_and_experts_by_hand() {
    let layer = shipped("deepseek-v3").layer_parameters(true);
    assert_eq!(layer.attention, 187_105_280.0);
    assert_eq!((layer.expert, layer.router, layer.norms), (44_040_192.0, 1_835_008.0, 16_384.0));
    assert_eq!(layer.total(), 187_105_280.0 + 257.0 * 44_040_192.0 + 1_835_008.0 + 16_384.0);
    assert_eq!(layer.active(), 187_105_280.0 + 9.0 * 44_040_192.0 + 1_835_008.0 + 16_384.0);
    // 512 + 64 numbers a token and layer instead of 2 x 128 x 128.
    assert_eq!(shipped("deepseek-v3").cache_width(), 576);
    assert_eq!(shipped("llama3-70b").cache_bytes_per_token(), 80.0 * 2.0 * 8.0 * 128.0 * 2.0);
}

/// The paper's first row: 137 TFLOP/s a GPU are 3.528 s on 32 GPUs.
#[test]
fn megatrons_formula_gives_its_table() {
    let model = shipped("megatron-1.7b");
    let flop = 512.0 * model.training_flop_per_sample(2048, FlopCount::MegatronRecomputed);
    within(flop / (137e12 * 32.0), 3.528, 2e-4, "1.7B");
    let model = shipped("megatron-1008b");
    let flop = 3072.0 * model.training_flop_per_sample(2048, FlopCount::MegatronRecomputed);
    within(flop / (163e12 * 3072.0), 102.630, 2e-4, "1T");
}

/// Both of Korthikanti's utilisations of the 22B model: 41.5 and 43.7 % of 8 x 312 TFLOP/s in 1.10 s, to the rounding of the time.
#[test]
fn model_and_hardware_flop_give_the_published_utilisations() {
    let model = LanguageModel { layers: 48, hidden: 6144, heads: 64, ..shipped("megatron-1.7b") };
    let share = |count| 4.0 * model.training_flop_per_sample(2048, count) / (1.10 * 8.0 * 312e12);
    within(share(FlopCount::MegatronModel), 0.415, 0.005, "model");
    within(share(FlopCount::MegatronSelective), 0.437, 0.005, "hardware");
    // Chowdhery et al., section 4.1: 238,300 tokens/s on 6,144 chips of 275 TFLOP/s are 46.2 %.
    let palm = shipped("palm-540b");
    let rate = 238.3e3 / 2048.0 * palm.training_flop_per_sample(2048, FlopCount::PalmModel) / (6144.0 * 275e12);
    within(rate, 0.462, 0.001, "PaLM");
}

/// Forward products of a GPT layer and token: 24 h^2, attention 4 s h over the whole square, half of it behind a mask; the head 2 h V.
#[test]
fn forward_flop_by_hand() {
    let model = shipped("gpt3-175b");
    let (l, h, s, v) = (96.0, 12288.0, 2048.0, 50257.0);
    let full = s * (l * (24.0 * h * h + 4.0 * s * h) + 2.0 * h * v);
    within(model.forward_flop_per_sample(2048, AttentionCount::Full), full, 1e-14, "full");
    let masked = full - s * l * 4.0 * h * (s - (s + 1.0) / 2.0);
    within(model.forward_flop_per_sample(2048, AttentionCount::Masked), masked, 1e-14, "masked");
    within(model.training_flop_per_sample(2048, FlopCount::Products), 3.0 * full, 1e-14, "training");
    // Korthikanti's 72 B s l h^2 (...) is the same count.
    within(model.training_flop_per_sample(2048, FlopCount::MegatronModel), 3.0 * full, 1e-14, "72");
    // A step of generation after 2,047 tokens sees 2,048.
    within(model.decode_flop_per_token(2047), full / s, 1e-14, "decode");
    // A window of 4 over 8 tokens: 1 + 2 + 3 + 4 + 4 + 4 + 4 + 4 = 26.
    let windowed = LanguageModel { window: Some(4), ..model.clone() };
    assert_eq!(windowed.mean_attended(8, AttentionCount::Masked), 26.0 / 8.0);
    assert_eq!(windowed.mean_attended(2, AttentionCount::Masked), 1.5);
    assert_eq!(model.mean_attended(8, AttentionCount::None), 0.0);
}

/// Megatron-Bridge prints 373 TFLOP/s and 13,722 tokens/s of one chip and run of GPT-OSS 120B (docs/performance-summary.md, 26.02.01): 27.18 GFLOP a token.
/// A layer's attention 2880 x (64 + 2 x 8) x 64 + 64 x 64 x 2880 weights, four experts of two matrices of 2880 x 2880, a router; the head.
#[test]
fn gates_that_are_not_counted() {
    let model = shipped("gpt-oss-120b");
    let found = model.training_flop_per_sample(4096, FlopCount::UngatedProducts) / 4096.0;
    within(found, 373e12 / 13722.0, 0.004, "as printed");
    let layer = 2880.0 * 80.0 * 64.0 + 4096.0 * 2880.0 + 4.0 * 2.0 * 2880.0 * 2880.0 + 2880.0 * 128.0;
    let core = 4.0 * 4096.0 * 2048.0;
    within(found, 3.0 * (36.0 * (2.0 * layer + core) + 2.0 * 2880.0 * 201088.0), 1e-12, "by hand");
}

/// ViT-L/16 by hand: 196 patches of 16 x 16 x 3 and a class token; the head sees one token.
#[test]
fn images_are_sequences_of_patches() {
    let model = shipped("vit-l16");
    let flop = model.forward_flop_per_sample(197, AttentionCount::Full);
    let (h, l, s) = (1024.0, 24.0, 197.0);
    let by_hand = s * l * (24.0 * h * h + 4.0 * s * h) + 196.0 * 2.0 * 768.0 * h + 2.0 * h * 1000.0;
    within(flop, by_hand, 1e-14, "ViT-L/16");
}

/// What Gemma 3's layer has beside Llama's: gains of 2 x 4096 channels, and of 128 for queries and for keys.
#[test]
fn further_norms_have_gains() {
    let plain = shipped("llama3-8b");
    let weights = |model: &LanguageModel| model.layer_parameters(false).total();
    let normed = LanguageModel { norms_per_layer: Some(4), qk_norm: Some(QkNorm::Head), ..plain.clone() };
    assert_eq!(weights(&normed) - weights(&plain), 2.0 * 4096.0 + 2.0 * 128.0);
    let wide = LanguageModel { qk_norm: Some(QkNorm::Width), ..plain.clone() };
    assert_eq!(weights(&wide) - weights(&plain), 4096.0 + 1024.0);
}

/// Words of 128 channels: the map to 4096, the map back, and a head over the narrow ones.
#[test]
fn narrow_words_by_hand() {
    let plain = shipped("llama3-8b");
    let narrow = LanguageModel { embedding_width: Some(128), ..plain.clone() };
    let (h, v, e) = (4096.0, 128_256.0, 128.0);
    let more = 2.0 * (v * e + e * h) - 2.0 * v * h;
    assert_eq!(narrow.parameters().total() - plain.parameters().total(), more);
    let flop = |model: &LanguageModel| model.forward_flop_per_sample(8, AttentionCount::Full);
    assert_eq!(flop(&narrow) - flop(&plain), 8.0 * 2.0 * (2.0 * e * h + e * v - h * v));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let errors = read(
        "{kind: language_model, name: x, source: s, layers: 2, hidden: 100, heads: 3, kv_heads: 2, seq: 8, global_batch: 1,
          experts: {count: 2, top_k: 3, ffn: 8}, generated: 4}",
    )
    .unwrap_err();
    for part in [
        "kv_heads: expected a divisor",
        "head_dim: missing",
        "top_k: expected at most",
        "vocab: missing",
        "generated: only",
    ] {
        assert!(errors.contains(part), "{errors}");
    }
    let errors = read(
        "{kind: language_model, name: x, source: s, layers: 2, hidden: 64, heads: 2, seq: 8, global_batch: 1,
        patches: {image: 32, size: 16}, head: classes}",
    )
    .unwrap_err();
    for part in ["seq: expected the 5 tokens", "classes: missing"] {
        assert!(errors.contains(part), "{errors}");
    }
    let text = |generated: u64| {
        format!(
            "{{kind: language_model, name: x, source: s, layers: 2, hidden: 64, heads: 2, vocab: 10, pass: inference, seq: 8,
            position: learned, max_positions: 10, global_batch: 1, generated: {generated}}}"
        )
    };
    // The last of three tokens is not read again.
    assert!(read(&text(3)).is_ok());
    let errors = read(&text(4)).unwrap_err();
    assert!(errors.contains("max_positions: expected at least the 11 tokens"), "{errors}");
}

/// By hand: a layer has 14 kernels forward (2 norms, 4 products with weights, 2 rotations, 2 products of attention, softmax, function, 2 sums) and 20
/// backward (2 a product, 2 norms, softmax, function, 2 rotations, 2 sums of gradients); embedding 1 and 1; head 3 and 4.
#[test]
fn graphs_are_chains_of_blocks() {
    let build = |text: &str| WorkloadSpec::build(&Node::parse("m.yaml", text).unwrap());
    let common = "kind: language_model, name: x, source: s, hidden: 64, heads: 2, seq: 8, global_batch: 1, vocab: 10";
    let training = build(&format!("{{{common}, layers: 2}}")).unwrap();
    assert_eq!((training.kernels.len(), training.repeat), (1 + 14 + 3 + 4 + 20 + 1, 4));
    let blocks: Vec<(&str, u64)> = training.blocks.iter().map(|b| (b.name.as_str(), b.repeat)).collect();
    assert_eq!(blocks, [("embedding", 1), ("layers", 2), ("head", 1)]);
    // A gate is part of the product it stands beside; one key-value head is read whole by every chip.
    let gated = build(&format!("{{{common}, layers: 2, gated: true, kv_heads: 1, pass: inference}}")).unwrap();
    assert_eq!(gated.kernels.len(), 1 + 14 + 3);
    let experts =
        build(&format!("{{{common}, layers: 4, experts: {{count: 4, top_k: 1, ffn: 8, first_dense_layers: 1}}}}"))
            .unwrap();
    assert_eq!(experts.blocks.iter().map(|b| b.repeat).collect::<Vec<_>>(), [1, 1, 3, 1]);
    let refused = build(&format!("{{{common}, layers: 2000}}")).unwrap_err().to_string();
    assert!(refused.contains("m.yaml:1: layers: a graph has at most 1022 layers"), "{refused}");
}
