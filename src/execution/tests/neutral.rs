//! Values that change nothing, and whole heads of keys and values: a field that says what holds without it is no other model.

use super::*;
use crate::execution::StateBytes;
use crate::system::serving::{Serving, Waiting};
use crate::system::stack::Stack;
use crate::units::{Bytes, Seconds};

const SIZES: &str = "layers: 4, hidden: 1024, heads: 8, ffn: 4096, gated: true, norm: rms, position: rotary, vocab: 32000, seq: 2048, global_batch: 8";

fn step(model: &LanguageModel, e: &Execution) -> f64 {
    predict_any(&machine(&Parts::default()), model, e).unwrap().time.total
}

/// A window that holds the sample, one that no layer has, and an embedding as wide as the layers.
#[test]
fn neutral_fields_are_as_if_they_were_not_there() {
    let e = execution(2, 1, 2, 2);
    let plain = step(&model(SIZES), &e);
    for more in [
        "window: 2048",
        "window: 100000",
        "window: 512, full_attention_layers: 4",
        "embedding_width: 1024",
        "kv_heads: 8",
        "head_dim: 128",
    ] {
        let other = model(&format!("{SIZES}, {more}"));
        close(step(&other, &e), plain, 1e-12);
        close(other.needed_flop_per_sample(), model(SIZES).needed_flop_per_sample(), 1e-12);
    }
}

/// Layers of two kinds take the mean of both, by their numbers: one of four sees all.
#[test]
fn windowed_and_full_layers_are_kernels_of_two_sizes() {
    let m = machine(&Parts::default());
    let e = execution(1, 1, 1, 1);
    let forward = |more: &str| block(&m, &model(&format!("{SIZES}, {more}")), &e).plain.forward;
    let (all, some) = (forward("window: 2048"), forward("window: 256"));
    assert!(some < 0.99 * all);
    close(forward("window: 256, full_attention_layers: 1"), 0.25 * all + 0.75 * some, 1e-12);
}

/// Sixteen chips with a head each: with one head of keys and values or sixteen, a chip holds, computes and keeps one. Six heads on four chips are two each.
#[test]
fn chips_have_whole_heads_of_keys_and_values() {
    let m = machine(&Parts { node: 16, ..Parts::default() });
    let e = Execution { sequence_parallel: true, ..execution(16, 1, 1, 1) };
    let of = |kv: u64| {
        let fields =
            format!("layers: 4, hidden: 1024, heads: 16, kv_heads: {kv}, vocab: 32000, seq: 2048, global_batch: 8");
        predict_any(&m, &model(&fields), &e).unwrap()
    };
    let all = of(16);
    for kv in [1, 2, 4, 8] {
        let few = of(kv);
        assert_eq!(few.memory.device.weights, all.memory.device.weights);
        assert_eq!(few.memory.device.activations, all.memory.device.activations);
        close(few.blocks.plain.flop, all.blocks.plain.flop, 1e-12);
    }
    let fields = |kv: u64| {
        model(&format!("layers: 4, hidden: 1536, heads: 12, kv_heads: {kv}, vocab: 32000, seq: 2048, global_batch: 8"))
    };
    let own = |kv: u64, tp: u64| {
        let e = execution(tp, 1, 1, 1);
        let kernels = Kernels::new(&m, &fields(kv), BlockKey::of(&e).division, 312e12).layer(false);
        kernels.iter().find(|k| k.name == "query_key_value").unwrap().flop
    };
    // Three heads of queries and two of keys and of values.
    close(own(6, 4), own(12, 4) * 7.0 / 9.0, 1e-12);
}

/// Experts that are on one chip alone are divided by nobody under ZeRO 3: what comes from the second tier is all of theirs. Eight experts of two matrices of
/// 1,024 by 4,096 in each of four layers, on eight chips.
#[test]
fn offloaded_experts_are_those_of_their_chips() {
    let second =
        "offload: {name: host, source: 'assumed: test', bandwidth: 1 GB/s, price: $1/(GB/s), power: 1 W/(GB/s)}\n";
    let m = machine(&Parts { second, ..Parts::default() });
    let moe = model(
        "layers: 4, hidden: 1024, heads: 8, ffn: 4096, vocab: 1024, seq: 256, global_batch: 8, experts: {count: 8, top_k: 2, ffn: 4096}",
    );
    let e = Execution { ep: 8, zero: Zero::Weights, offload: Offload::Weights, ..execution(1, 1, 8, 1) };
    let p = predict_any(&m, &moe, &e).unwrap();
    let of_experts = 2.0 * 2.0 * 4.0 * 2.0 * 1024.0 * 4096.0 / 1e9;
    assert!(p.time.total > of_experts, "{} s, {of_experts} s of experts", p.time.total);
    let whole = predict_any(&m, &moe, &Execution { zero: Zero::Gradients, ..e }).unwrap();
    assert!(p.time.total < whole.time.total);
}

/// Weight streaming by hand: of 12 layers of 12 x 256^2 weights and both ends on one chip, 2 bytes a weight and a gradient, both passes of a microbatch read the weights and gradients go once, over a way
/// of 1 MB/s that is slower than all else; two layers (or an end) of each stay on the chip.
#[test]
fn weights_come_and_gradients_go_once_a_microbatch() {
    let second =
        "offload: {name: host, source: 'assumed: test', bandwidth: 1 MB/s, price: $1/(GB/s), power: 1 W/(GB/s)}\n";
    let m = machine(&Parts { second, ..Parts::default() });
    let gpt = gpt(12, 256, 4, 64, 4);
    let e = Execution { offload: Offload::State, micro_batch: 2, ..execution(1, 1, 1, 1) };
    let p = predict_any(&m, &gpt, &e).unwrap();
    let w = ChipWeights::of(&gpt, 1, 1, 1);
    let all = gpt.parameters().total();
    let stays = 2.0 * (2.0 * w.layer()).max(w.embedding.max(w.head));
    assert_eq!((p.memory.device.weights, p.memory.device.gradients, p.memory.device.optimizer), (stays, stays, 0.0));
    let states = StateBytes::training(&gpt.types);
    close(p.memory.second_tier, all * (2.0 + 2.0 + states.optimizer) - 2.0 * stays, 1e-12);
    // Two microbatches, and the states once both ways.
    let seconds = (2.0 * all * (2.0 * 2.0 + 2.0) + 2.0 * all * states.optimizer) / 1e6;
    close(p.time.total, seconds, 1e-6);
    let weights = predict_any(&m, &gpt, &Execution { offload: Offload::Weights, ..e }).unwrap();
    close(p.time.total - weights.time.total, 2.0 * all * 2.0 / 1e6, 1e-6);
}

/// Gradients narrower than what software in general reduces are reduced as they are, and an embedding as narrow as some software has it is what the best software has.
#[test]
fn ideal_software_reaches_what_any_does() {
    let eight = |stack: &'static str| {
        let m = machine(&Parts { node: 4, inner: 1e9, stack, ..Parts::default() });
        let fields = SIZES.replace("layers: 4", "layers: 2");
        let text = format!(
            "{{kind: language_model, name: test, source: test, types: {{weights: fp16, activations: fp16, gradients: fp8}}, {fields}}}"
        );
        let model: LanguageModel = Reader::read(&Node::parse("model.yaml", &text).unwrap()).unwrap();
        let mut best = m.clone();
        best.best = true;
        (m.reduced_bytes(&model.types), best.reduced_bytes(&model.types))
    };
    assert_eq!(eight(""), (1.0, 1.0));
    assert_eq!(eight(", gradient_reduction: 4 B"), (4.0, 1.0));
    let narrow = Serving { narrow_ends: true, ..Serving::ideal() };
    assert!(Serving::best_of(None, Some(narrow)).narrow_ends && !Serving::best_of(None, None).narrow_ends);
    let waits = |wait, tiles_at_once| {
        let waiting = Some(Waiting { wait: Seconds(wait), tiles_at_once, vector_rows: 16 });
        Serving { waiting, ..Serving::ideal() }
    };
    let both = Serving::best_of(Some(waits(2.0, 4)), Some(waits(1.0, 1))).waiting.unwrap();
    assert_eq!((both.wait, both.tiles_at_once), (Seconds(1.0), 4));
    let stated = Stack { gradient_reduction: Some(Bytes(2.0)), ..Stack::ideal() };
    assert_eq!(Stack::best_of([&stated].into_iter()).gradient_reduction, Some(Bytes(2.0)));
}

/// Biases of experts are no matrices.
#[test]
fn biases_of_experts_are_added() {
    let of = |biases: &str| {
        let fields = format!(
            "layers: 2, hidden: 512, heads: 8, vocab: 1024, {biases}seq: 256, global_batch: 8, experts: {{count: 8, top_k: 2, ffn: 256, shared: 1}}"
        );
        model(&fields).needed_flop_per_sample()
    };
    assert_eq!(of("biases: perceptron, "), of(""));
}
