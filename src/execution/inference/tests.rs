//! Closed forms by hand on a chip of 8 B/s, and what must hold of every system.

use super::search::{Goal, layouts};
use super::*;
use crate::execution::search::Aim;
use crate::spec::{Node, Reader};
use crate::system::System;
use crate::workload::language::DataType;

/// A chip whose products are bound by its memory; `edits` replace parts of the text.
fn system(edits: &[(&str, &str)]) -> System {
    let mut text = "{name: tiny, source: 'assumed: test', network: {topology: switch, dimensions: [{size: 1, link: \
        {name: l, source: 'assumed: test', bandwidth: 4 B/s, latency: 0.5 s, price: $1/(GB/s), power: 1 W/(GB/s)}}]}, \
        memory: {name: m, source: 'assumed: test', bandwidth: 8 B/s, capacity: 10 kB, price: $1/(GB/s), power: 1 W/(GB/s)}, \
        chip: {name: c, source: 'assumed: test', style: kernel_by_kernel, cores: 1, lanes: 1, stages: 1, frequency: 1 GHz, sram: 1 MB, \
        price: $1, power: 1 W, kernels: {source: 'assumed: test', peak: {bf16: 1 GFLOP/s}, units: 1, \
        tiles: [{rows: 1, columns: 1}], efficiency: 1, batched_efficiency: 1, memory_efficiency: 1, launch: 0 s}}, \
        stack: {name: s, source: 'assumed: test', serving: {cache: contiguous, cache_share: 1 }}}"
        .to_string();
    for (from, to) in edits {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let node = Node::parse("s.yaml", &text).unwrap();
    System::build(&node).unwrap_or_else(|e| panic!("{e}"))
}

/// Of a batch in waves of a given number of sequences of a replica.
fn predict_in_waves(
    server: &Server,
    model: &LanguageModel,
    layout: Layout,
    (batch, wave): (u64, Option<u64>),
) -> Result<Prediction, Refusal> {
    predict_for(server, model, layout, Given { batch, wave, ..Given::default() }, &Worth::TIME)
}

/// Of a batch in so many microbatches.
fn predict_cut(server: &Server, model: &LanguageModel, layout: Layout, batch: u64, microbatches: u64) -> Prediction {
    let given = Given { batch, microbatches: Some(microbatches), ..Given::default() };
    predict_for(server, model, layout, given, &Worth::TIME).unwrap()
}

pub(super) fn server(edits: &[(&str, &str)]) -> Server {
    Server::new(&system(edits)).unwrap()
}

pub(super) fn model(edits: &[(&str, &str)]) -> LanguageModel {
    let mut text =
        "{kind: language_model, name: tiny, source: test, layers: 2, hidden: 4, heads: 2, ffn: 8, vocab: 10, \
        pass: inference, seq: 2, generated: 4, global_batch: 1}"
            .to_string();
    for (from, to) in edits {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    Reader::read(&Node::parse("m.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) const ONE: Layout = Layout { tp: 1, pp: 1, dp: 1, ep: 1 };

/// Four stages on two boxes of two: two hand-overs in four go between boxes, that of the last stage to the first one of them. A prompt waits for all four; the pace of several is that of
/// the slowest stage.
#[test]
fn stages_of_two_boxes_hand_over_between_them() {
    let two = "{size: 2, topology: switch, link: {name: l, source: 'assumed: test', bandwidth: 4 B/s, latency: 0.5 s, price: $1/(GB/s), power: 1 W/(GB/s)}}";
    let slow = "{size: 2, topology: switch, link: {name: o, source: 'assumed: test', bandwidth: 1 B/s, latency: 2 s, price: $1/(GB/s), power: 1 W/(GB/s)}}";
    let one = two.replace("size: 2, topology: switch", "size: 1");
    let of = |dimensions: &str| server(&[("topology: switch", "topology: custom"), (one.as_str(), dimensions)]);
    let layout = |pp| Layout { pp, ..ONE };
    let at =
        |server: &Server, pp| -> Vec<f64> { server.hand_overs(&layout(pp)).iter().map(|line| line.at(8.0)).collect() };
    let boxes = of(&format!("{two}, {slow}"));
    let (inside, between) = (0.5 + 8.0 / 4.0, 2.0 + 8.0);
    assert_eq!(at(&boxes, 2), [inside; 2]);
    assert_eq!(at(&boxes, 4), [inside, between, inside, between]);
    assert_eq!(at(&of(&format!("{slow}, {two}")), 4), [between, inside, between, inside]);
}

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-6 * expected.abs(), "found {found}, expected {expected}");
}

/// A step of latent attention multiplies compressed vectors: of 3 + 1 numbers for the scores and 3 for the values, two heads, after 3 tokens.
#[test]
fn a_step_of_latent_attention_by_hand() {
    let latent = "heads: 2, latent_attention: { kv_rank: 3, rope_dim: 1, nope_dim: 2, v_dim: 2 }";
    let model = model(&[("heads: 2", latent), ("generated: 4", "generated: 2")]);
    let server = server(&[("peak: {bf16: 1 GFLOP/s}", "peak: {bf16: 1 FLOP/s}")]);
    let steps = Steps::new(&server, &model, ONE).unwrap();
    let pass = Pass::Token { context: 3.0, cached: 3.0 };
    let arithmetic = |steps: &Steps| steps.stages(1.0, pass)[0].1.uses.arithmetic_s;
    let more = Pass::Token { context: 4.0, cached: 4.0 };
    // One token more, in two layers.
    close(steps.stages(1.0, more)[0].1.uses.arithmetic_s - arithmetic(&steps), 2.0 * 2.0 * 2.0 * (2.0 * 3.0 + 1.0));
}

/// An encoder keeps no keys and values, and holds the rows of all sequences that go through it together; its pooler takes a product.
#[test]
fn encoders_keep_no_cache() {
    let encoder = [("vocab: 10", "vocab: 10, causal: false, head: pooler"), (", generated: 4", "")];
    let (encoder, server) = (model(&encoder), server(&[]));
    let p = predict(&server, &encoder, ONE, 3).unwrap();
    assert_eq!((p.memory.cache, p.waves), (0.0, 1));
    // Three sequences of two tokens, 2 bytes: hidden in and out, and queries, keys and values of 12 channels.
    close(p.memory.buffers, 3.0 * 2.0 * 2.0 * (2.0 * 4.0 + 12.0));
    let steps = Steps::new(&server, &encoder, ONE).unwrap();
    // 4 x 4 weights, three rows in and out, at 8 B/s.
    close(steps.head(3.0).seconds.weights, 2.0 * (16.0 + 12.0 + 12.0) / 8.0);
}

/// Waves that are given are those that are taken, also where windows are left out; more than a replica has are refused.
#[test]
fn waves_that_are_given() {
    let windowed = model(&[("seq: 2", "window: 3, seq: 2")]);
    for edits in [&[][..], &[("cache_share: 1 ", "cache_share: 1, whole_contexts: true ")]] {
        let server = server(edits);
        let of = |wave| predict_in_waves(&server, &windowed, ONE, (4, wave));
        assert_eq!(of(Some(1)).map(|p| (p.wave, p.waves)), Ok((1, 4)), "{edits:?}");
        assert_eq!(of(None).map(|p| p.wave), Ok(4), "{edits:?}");
        assert_eq!(of(Some(5)).unwrap_err().to_string(), "wave 5: expected 1 to 4, the sequences of a replica");
    }
}

/// One row, bf16. Products of a layer: 12 x 4 in 128 B, 4 x 4 in 48 B, 8 x 4 and 4 x 8 in 88 B each: 352 B, 44 s. A token's keys and values
/// 16 B: 2 s for each token of context. Norms and function: 2 x 2 x (6 x 4 + 2 x 8) = 160 B, 20 s. Head: 10 x 4 in 108 B, four passes
/// over 10 scores of 4 B: 33.5 s. Two layers: 161.5 + 4 context. The prompt's pass gives the first of four tokens; the three steps after it see
/// 3, 4 and 5 tokens.
#[test]
fn decode_step_by_hand() {
    let p = predict(&server(&[]), &model(&[]), ONE, 1).unwrap();
    close(p.step.weights, 88.0 + 13.5);
    close(p.step.attention, 16.0);
    close(p.step.vector, 40.0 + 20.0);
    close(p.tpot_s, 177.5);
    close(p.last_tpot_s, 181.5);
    // Two norms more and norms of queries and keys: 2 x 2 x (2 x 4 + 8) = 64 B a layer, 8 s.
    let normed = model(&[("ffn: 8", "ffn: 8, norms_per_layer: 4, qk_norm: head")]);
    close(predict(&server(&[]), &normed, ONE, 1).unwrap().step.vector, 40.0 + 16.0 + 20.0);
    // One of the two layers sees 3 tokens at most: 3, 4, 5 and 3, 3, 3.
    let windowed = model(&[("ffn: 8", "ffn: 8, window: 3, full_attention_layers: 1")]);
    close(predict(&server(&[]), &windowed, ONE, 1).unwrap().step.attention, 14.0);
    // Prompts of two rows: products 160 + 64 + 112 + 112 B = 56 s, attention 64 B = 8 s, vector 320 B = 40 s a layer; head as above.
    close(p.ttft_s, 2.0 * 104.0 + 33.5);
    close(p.latency_s, 241.5 + 3.0 * 177.5);
    close(p.generated_per_s, 4.0 / 774.0);
    close(p.tokens_per_s, 6.0 / 774.0);
    // 40 + 2 x (64 + 64 + 8) + 4 + 40 weights of 2 B; 6 tokens x 16 B x 2 layers.
    assert_eq!((p.memory.weights, p.memory.cache), (712.0, 192.0));
    // Prompt of 2 rows x 2 B x (2 x 4 + max(8, 2 x 6)), and 10 scores.
    assert_eq!(p.memory.buffers, 120.0);
}

/// The weights are read once for any number of sequences; cache, norms and scores are read for each.
#[test]
fn batch_shares_weights() {
    let p = predict(&server(&[]), &model(&[]), ONE, 3).unwrap();
    // 48, 16, 32, 32 and 40 weights; per row 16, 8, 12, 12 and 14 numbers in and out.
    close(p.step.weights, (2.0 * (128.0 + 48.0 * 3.0) + 40.0 + 14.0 * 3.0) * 2.0 / 8.0);
    close(p.step.attention, 48.0);
    close(p.step.vector, 180.0);
}

/// 10,000 B less 712 B of weights and 80 B of a prompt's rows leave room for 39 sequences of 192 B and 40 B of scores.
#[test]
fn waves_by_memory() {
    let s = server(&[]);
    let m = model(&[]);
    let p = predict(&s, &m, ONE, 100).unwrap();
    assert_eq!((p.at_once, p.waves), (39, 3));
    assert_eq!(p.memory.total(), 712.0 + 80.0 + 39.0 * (192.0 + 40.0));
    // However many wait; the last wave is a matter of rounding.
    let queue = predict(&s, &m, ONE, 1 << 40).unwrap();
    assert!(queue.at_once <= 39 && queue.at_once > 30, "{}", queue.at_once);
    assert!(p.last_ttft_s > p.ttft_s && p.latency_s > p.last_ttft_s);
    // Without a limit there is one wave.
    let free = predict(&server(&[("capacity: 10 kB, ", "")]), &m, ONE, 100).unwrap();
    assert_eq!((free.waves, free.at_once, free.last_ttft_s), (1, 100, free.ttft_s));
    // And with too little none.
    let none = predict(&server(&[("10 kB", "800 B")]), &m, ONE, 1).unwrap_err();
    assert!(matches!(none, Refusal::Memory { weights, .. } if weights == 712.0), "{none}");
    assert!(none.to_string().contains("800.0 B"), "{none}");
}

/// Two chips behind a switch: all-reduce of S bytes in S/4 + 2 x 0.5 s, twice a layer, of 8 B a row.
#[test]
fn tensor_parallel_step_by_hand() {
    let s = server(&[("size: 1", "size: 2")]);
    let p = predict(&s, &model(&[]), Layout { tp: 2, ..ONE }, 1).unwrap();
    close(p.step.network, 2.0 * 2.0 * (8.0 / 4.0 + 1.0));
    // Halves: 6 x 4 in (4 + 24 + 6) x 2, 4 x 2 in 28, 4 x 4 in 48, 4 x 4 in 48; head 5 x 4 in 58 B.
    close(p.step.weights, (2.0 * (68.0 + 28.0 + 48.0 + 48.0) + 58.0) / 8.0);
    close(p.step.attention, 8.0);
    let added = server(&[("size: 1", "size: 2"), ("cache_share: 1 ", "cache_share: 1, all_reduce: 3 s")]);
    let q = predict(&added, &model(&[]), Layout { tp: 2, ..ONE }, 1).unwrap();
    close(q.step.network - p.step.network, 12.0);
}

/// Two stages of one layer each: one sequence passes both, two hand-overs of 8 B at 4 B/s and 0.5 s; two sequences as two microbatches
/// overlap, or each wait for the other.
#[test]
fn pipeline_by_hand() {
    let s = server(&[("size: 1", "size: 2")]);
    let two = Layout { pp: 2, ..ONE };
    let one = predict(&s, &model(&[]), two, 1).unwrap();
    close(one.tpot_s, 177.5 + 2.0 * 2.5);
    let overlapped = predict_cut(&s, &model(&[]), two, 2, 2);
    // The last stage has both: 72 s of a layer, 2.5 s and 33.5 s of the head each, longer than the way of one.
    close(overlapped.tpot_s, 2.0 * (72.0 + 2.5 + 33.5));
    // Three passes of a stage for the prompts of two microbatches: layer of 104 s, hand-over of 16 B.
    close(overlapped.ttft_s, 3.0 * (104.0 + 4.5) + 2.0 * 33.5);
    let waiting = server(&[("size: 1", "size: 2"), ("cache_share: 1 ", "cache_share: 1, overlapped_stages: false")]);
    let p = predict_cut(&waiting, &model(&[]), two, 2, 2);
    close(p.tpot_s, 2.0 * one.tpot_s);
    close(p.ttft_s, 2.0 * (2.0 * (104.0 + 4.5) + 33.5));
    // Of both numbers of microbatches software that chooses takes the better: one reads every weight once, two are on both stages.
    for batch in 2..9 {
        let cuts = [1, 2].map(|m| predict_cut(&s, &model(&[]), two, batch, m).latency_s);
        close(predict(&s, &model(&[]), two, batch).unwrap().latency_s, cuts[1]);
        let best = server(&[("size: 1", "size: 2"), ("cache_share: 1 ", "cache_share: 1, microbatches: best ")]);
        close(predict(&best, &model(&[]), two, batch).unwrap().latency_s, cuts[0].min(cuts[1]));
    }
    // No more sequences than the software takes.
    let with = |edit: &str| server(&[("size: 1", "size: 2"), ("cache_share: 1 ", &format!("cache_share: 1, {edit} "))]);
    let p = predict(&with("most_sequences: 2"), &model(&[]), two, 5).unwrap();
    assert_eq!((p.wave, p.waves, p.at_once), (2, 3, 2));
    // Three layers: the first stage has two of them, so that two microbatches wait for it, and it has the most weights.
    let three = model(&[("layers: 2", "layers: 3")]);
    let p = predict_cut(&s, &three, two, 1, 1);
    close(p.tpot_s, one.tpot_s + 72.0);
    let p = predict_cut(&s, &three, two, 2, 2);
    close(p.tpot_s, 2.0 * (2.0 * 72.0 + 2.5));
    close(p.ttft_s, 2.0 * (2.0 * 104.0 + 4.5) + (104.0 + 4.5 + 33.5));
    let layer = 48.0 + 16.0 + 64.0 + 8.0;
    close(p.memory.weights, 2.0 * (2.0 * layer + 10.0 * 4.0));
}

/// Where attention and perceptron begin with the same vectors their sums are added up together: one all-reduce a layer.
#[test]
fn a_parallel_block_is_summed_up_once() {
    let s = server(&[("size: 1", "size: 2")]);
    let of = |edit: &str| {
        let text = format!("heads: 2, norms_per_layer: 2{edit}");
        predict(&s, &model(&[("heads: 2", &text)]), Layout { tp: 2, ..ONE }, 1).unwrap()
    };
    let (one, two) = (of(", parallel_block: true"), of(""));
    close(2.0 * one.step.network, two.step.network);
    close(2.0 * one.prompt.network, two.prompt.network);
    assert_eq!(one.step.weights, two.step.weights);
}

/// A cache of a fixed size has no more of a window than it sees, and a step reads what there is.
#[test]
fn fixed_caches_end_with_the_window() {
    let windowed = model(&[("seq: 2", "window: 3, seq: 2")]);
    let of = |cache: &str| predict(&server(&[("cache: contiguous", cache)]), &windowed, ONE, 1).unwrap();
    let (fixed, growing) = (of("cache: static"), of("cache: contiguous"));
    // All three steps see the window's three tokens.
    close(fixed.step.attention, growing.step.attention);
    assert_eq!(fixed.memory.cache, growing.memory.cache);
}

/// Two tokens of prompt and three steps of 3, 4 and 5 tokens: in blocks of two 4, 4 and 6 are read; static all 6. In room, static. In a window of three tokens all three of them.
#[test]
fn buckets_are_read_as_they_are_begun() {
    let of = |cache: &str, edit: &[(&str, &str)]| {
        predict(&server(&[("cache: contiguous", cache)]), &model(edit), ONE, 1).unwrap()
    };
    let bucketed = "cache: bucketed, cache_block: 2";
    let (fixed, growing, in_blocks) = (of("cache: static", &[]), of("cache: contiguous", &[]), of(bucketed, &[]));
    let token = (fixed.step.attention - growing.step.attention) / 2.0;
    close(in_blocks.step.attention, growing.step.attention + token * (14.0 / 3.0 - 4.0));
    assert_eq!(in_blocks.memory.cache, fixed.memory.cache);
    let windowed = [("seq: 2", "window: 3, seq: 2")];
    close(of(bucketed, &windowed).step.attention, of("cache: contiguous", &windowed).step.attention);
}

/// Weights of 8 bits multiplied in 16, by tiles of 16 rows: eight rows are products of vectors, a ninth pads tiles as weights of 16 bits do. All are bound by arithmetic.
#[test]
fn few_rows_of_weights_that_are_widened_fill_no_tiles() {
    let s = server(&[("bf16: 1 GFLOP/s", "bf16: 1 FLOP/s"), ("rows: 1,", "rows: 16,"), ("10 kB", "100 kB")]);
    let plain = model(&[]);
    let widened = model(&[("seq: 2", "types: {weights: fp8, compute: bf16, ends: fp8}, seq: 2")]);
    let step = |m: &LanguageModel, batch: u64| {
        let given = Given { batch, wave: Some(batch), ..Given::default() };
        predict_for(&s, m, ONE, given, &Worth::TIME).unwrap().step.weights
    };
    for rows in [1, 8] {
        close(step(&plain, rows), step(&widened, rows) * 16.0 / rows as f64);
    }
    close(step(&plain, 9), step(&widened, 9));
}

/// Of 320 weights of two layers in 8 bits and 2 x 40 of embedding and head: these stay in 16 bits, as activations are, unless the model or the software says otherwise.
#[test]
fn embedding_and_head_stay_wide() {
    let of = |types: &str, serving: &str| {
        let s = server(&[("cache_share: 1 ", &format!("cache_share: 1, {serving} "))]);
        let p = predict(&s, &model(&[("seq: 2", &format!("types: {{{types}}}, seq: 2"))]), ONE, 1).unwrap();
        (p.memory.weights, p.step.weights)
    };
    let wide = of("weights: bf16", "narrow_ends: false");
    let narrow = of("weights: fp8, compute: bf16", "narrow_ends: true");
    let mixed = of("weights: fp8, compute: bf16", "narrow_ends: false");
    let ends = 80.0 * 2.0;
    close(narrow.0, wide.0 / 2.0);
    // The last norm goes with the head.
    close(mixed.0 - narrow.0, (ends + 2.0 * 4.0) / 2.0);
    assert_eq!(mixed, of("weights: fp8, compute: bf16, ends: bf16", "narrow_ends: true"));
    assert_eq!(narrow, of("weights: fp8, compute: bf16, ends: fp8", "narrow_ends: false"));
    assert_eq!(wide, of("weights: bf16", "narrow_ends: true"));
    // Weights of a type of their own are never slower than wider ones.
    assert!(narrow.1 <= mixed.1 && mixed.1 <= wide.1, "{narrow:?} {mixed:?} {wide:?}");
}

/// Of four layers with a window of three tokens two see all: the second and the last, so that each of two stages has one, but of four the first and the third none.
#[test]
fn stages_hold_what_their_layers_see() {
    let two = ("size: 1", "size: 4");
    let of = |pp: u64, full: &str| {
        let m = model(&[("layers: 2", "layers: 4"), ("seq: 2", &format!("window: 3{full}, seq: 2"))]);
        predict(&server(&[two]), &m, Layout { pp, ..ONE }, 1).unwrap().memory.cache
    };
    let (none, some) = ("", ", full_attention_layers: 2");
    let token = of(4, none) / 3.0;
    close(of(1, some), 2.0 * 6.0 * token + 2.0 * 3.0 * token);
    close(of(2, some), 6.0 * token + 3.0 * token);
    close(of(4, some), 6.0 * token);
}

#[test]
fn software_costs_what_it_says() {
    let base = predict(&server(&[]), &model(&[]), ONE, 2).unwrap();
    let with = |edit: &str| {
        predict(&server(&[("cache_share: 1 ", &format!("cache_share: 1, {edit} "))]), &model(&[]), ONE, 2).unwrap()
    };
    // 2 layers of 8 kernels and the head's.
    close(with("kernel: 1 s").tpot_s - base.tpot_s, 17.0);
    close(with("step_sequence: 3 s").tpot_s - base.tpot_s, 6.0);
    close(with("request: 5 s").ttft_s - base.ttft_s, 5.0);
    // A model that scores no next words has no first token to wait for.
    let encoder = |edit: &str| {
        let s = server(&[("cache_share: 1 ", &format!("cache_share: 1, {edit} "))]);
        predict(&s, &model(&[("heads: 2", "heads: 2, head: none, causal: false"), ("generated: 4, ", "")]), ONE, 2)
            .unwrap()
            .ttft_s
    };
    close(encoder("request: 5 s"), encoder("request: 0 s"));
    close(with("cache_efficiency: 0.5").step.attention, 2.0 * base.step.attention);
    // No heads are shared here.
    close(with("grouped_cache_efficiency: 0.5").step.attention, base.step.attention);
    let shared = model(&[("heads: 2", "heads: 2, kv_heads: 1")]);
    let s = server(&[("cache_share: 1 ", "cache_share: 1, grouped_cache_efficiency: 0.5")]);
    close(predict(&s, &shared, ONE, 2).unwrap().step.attention, base.step.attention);
    // Heads that read by themselves, twice what they share: four of two sequences are few; beyond that a block for each goes through its context.
    let by_themselves = |few: u64| {
        let heads =
            format!("cache_share: 1, cache_heads: {{few: {few}, few_rate: 1, token: 100 s, unit_memory: 4 kB}} ");
        let s = server(&[("cache_share: 1 ", &heads)]);
        predict_in_waves(&s, &shared, ONE, (2, Some(2))).unwrap().step.attention
    };
    close(by_themselves(4), base.step.attention);
    // 2 layers, four blocks one after the other on one unit, 4 tokens on average.
    close(by_themselves(3), 2.0 * 4.0 * 4.0 * 100.0);
    // The head's product moves (8 + 40 + 20) x 2 B.
    close(with("head_share: 0.5").tpot_s - base.tpot_s, 17.0);
    // A graph for 16 tokens reads 16 in every step.
    let compiled = server(&[("cache: contiguous", "cache: compiled, cache_block: 16")]);
    let p = predict(&compiled, &model(&[]), ONE, 1).unwrap();
    close(p.step.attention, 2.0 * 16.0 * 2.0);
    assert_eq!(p.memory.cache, 16.0 * 32.0);
}

/// A window of 4: contexts of 3, 4 and 5 tokens see 3, 4 and 4.
#[test]
fn window_bounds_context() {
    let p = predict(&server(&[]), &model(&[("heads: 2", "heads: 2, window: 4")]), ONE, 1).unwrap();
    close(p.step.attention, 4.0 * 11.0 / 3.0);
    close(p.last_tpot_s, 161.5 + 16.0);
    assert_eq!(p.memory.cache, 4.0 * 32.0);
    let whole = server(&[("cache_share: 1 ", "cache_share: 1, whole_contexts: true ")]);
    let p = predict(&whole, &model(&[("heads: 2", "heads: 2, window: 4")]), ONE, 1).unwrap();
    assert_eq!(p, predict(&whole, &model(&[]), ONE, 1).unwrap());
}

/// Two chips: an embedding of 10 x 4 of 2 B that each holds whole, and 1 kB for the other chip.
#[test]
fn what_chips_hold_whole() {
    let two = ("size: 1", "size: 2");
    let m = model(&[("heads: 2", "heads: 2, tied_embeddings: false")]);
    let of = |edits: &[(&str, &str)]| predict(&server(edits), &m, Layout { tp: 2, ..ONE }, 1).unwrap().memory;
    let divided = of(&[two]);
    let whole = of(&[two, ("cache_share: 1 ", "cache_share: 1, whole_embedding: true, peer_memory: 1 kB ")]);
    assert_eq!((whole.weights - divided.weights, whole.buffers - divided.buffers), (40.0, 1000.0));
}

/// Steps of three sequences that are recorded for two and for four: one row more without a context; prompts are not filled up. Of five nothing is recorded.
#[test]
fn steps_are_filled_up_to_recorded_batches() {
    let mut s = server(&[("10 kB", "100 kB")]);
    let plain = |n| predict(&server(&[("10 kB", "100 kB")]), &model(&[]), ONE, n).unwrap();
    s.recorded = vec![2, 4];
    let three = predict_in_waves(&s, &model(&[]), ONE, (3, Some(3))).unwrap();
    close(three.step.weights, plain(4).step.weights);
    close(three.step.attention, plain(3).step.attention);
    assert_eq!(three.prompt, plain(3).prompt);
    assert_eq!(predict_in_waves(&s, &model(&[]), ONE, (5, Some(5))).unwrap().step, plain(5).step);
}

/// Room for three of four sequences: software that admits whole answers may take two waves of two, other software takes three and one.
#[test]
fn software_that_lets_sequences_in_as_they_fit_holds_none_back() {
    let of = |edit: &str| {
        let s = server(&[("cache_share: 1 ", edit)]);
        let room = predict(&s, &model(&[]), ONE, 64).unwrap();
        (room.wave, room.waves)
    };
    let (wave, waves) = of("cache_share: 1, admits_whole: false ");
    let most = (1..=64).rev().find(|n| predict_in_waves(&server(&[]), &model(&[]), ONE, (64, Some(*n))).is_ok());
    assert_eq!((Some(wave), waves), (most, 64u64.div_ceil(wave)));
    assert!(of("cache_share: 1 ").0 <= wave);
}

/// Products of the prompts' pass at half the rate of others; steps as before.
#[test]
fn prompts_may_reach_less() {
    let base = predict(&server(&[]), &model(&[]), ONE, 1).unwrap();
    let half =
        predict(&server(&[("cache_share: 1 ", "cache_share: 1, prompt_share: 0.5 ")]), &model(&[]), ONE, 1).unwrap();
    assert!(half.prompt.weights > base.prompt.weights && half.prompt.weights <= 2.0 * base.prompt.weights);
    assert_eq!(half.step, base.step);
}

/// Of a chip that trains at half its peak and serves at three quarters of it.
#[test]
fn a_server_under_load_reaches_what_it_serves_at() {
    let chip = ("efficiency: 1, batched", "efficiency: 0.5, served_efficiency: {bf16: 0.75}, batched");
    let burst = ("launch: 0 s", "launch: 0 s, burst: {efficiency: 0.9, batched_efficiency: 1, memory_efficiency: 1}");
    let mut s = server(&[chip, burst]);
    assert_eq!(s.efficiency(DataType::Bf16), 0.9);
    s.steady = true;
    assert_eq!(s.efficiency(DataType::Bf16), 0.75);
}

#[test]
fn experts_are_read_as_they_are_reached() {
    let mixture = model(&[("ffn: 8", "ffn: 8, experts: {count: 4, top_k: 1, ffn: 8}")]);
    let s = server(&[("size: 1", "size: 2"), ("10 kB", "100 kB")]);
    let one = predict(&s, &mixture, ONE, 1).unwrap();
    let dense = predict(&s, &model(&[]), ONE, 1).unwrap();
    // One token reaches one expert: the dense layer and a router of 4 x 4, (4 + 16 + 4) x 2 B.
    close(one.step.weights - dense.step.weights, 2.0 * 48.0 / 8.0);
    let many = predict(&s, &mixture, ONE, 64).unwrap();
    // Nearly all experts: three more pairs of 32 weights of 2 B in each layer, beside the rows.
    let rows = predict(&s, &model(&[]), ONE, 64).unwrap();
    assert!(many.step.weights > rows.step.weights + 2.0 * 3.0 * 64.0 * 2.0 / 8.0 * 0.99);
    // Shapes that do not depend on the routing: all four experts compute the one token, three more pairs of 88 B in each layer.
    let shapes = server(&[
        ("size: 1", "size: 2"),
        ("10 kB", "100 kB"),
        ("cache_share: 1 ", "cache_share: 1, experts: every_token"),
    ]);
    let every = predict(&shapes, &mixture, ONE, 1).unwrap();
    close(every.step.weights - one.step.weights, 2.0 * 3.0 * 176.0 / 8.0);
    close(every.step.vector - one.step.vector, 2.0 * 3.0 * 2.0 * 2.0 * (2.0 * 8.0 + 2.0 * 4.0) / 8.0);
    // On two chips what each of the four adds is summed up by itself: five sums a layer, where routed experts take two.
    let pair = Layout { tp: 2, ..ONE };
    let (apart, together) = (predict(&shapes, &mixture, pair, 1).unwrap(), predict(&s, &mixture, pair, 1).unwrap());
    close(apart.step.network / together.step.network, 2.5);
    // So also where there are more of them than tokens are routed among.
    let most = |edit: &str| server(&[("size: 1", "size: 2"), ("10 kB", "100 kB"), ("cache_share: 1 ", edit)]);
    let few = predict(&most("cache_share: 1, most_routed: 3 "), &mixture, ONE, 1).unwrap();
    assert_eq!(
        (few.step, predict(&most("cache_share: 1, most_routed: 4 "), &mixture, ONE, 1).unwrap().step),
        (every.step, one.step)
    );
    // Three times the way of one token to its expert and back: two more of 2 x 4 words, in and out.
    let sorted = predict(&most("cache_share: 1, routing: 3 "), &mixture, ONE, 1).unwrap();
    close(sorted.step.vector - one.step.vector, 2.0 * 2.0 * 2.0 * 2.0 * 8.0 / 8.0);
    // Divided among two replicas each chip holds half of them and exchanges tokens.
    let split = predict(&s, &mixture, Layout { dp: 2, ep: 2, ..ONE }, 64).unwrap();
    let whole = predict(&s, &mixture, Layout { dp: 2, ..ONE }, 64).unwrap();
    close(whole.memory.weights - split.memory.weights, 2.0 * 2.0 * 64.0 * 2.0);
    assert!(split.step.network > 0.0 && whole.step.network == 0.0);
    // A replica without a sequence sends no tokens: one reaches one of the two experts, not 2 (1 - 1/4) of them.
    let lone = predict(&s, &mixture, Layout { dp: 2, ep: 2, ..ONE }, 1).unwrap();
    let both = predict(&s, &mixture, Layout { dp: 2, ep: 2, ..ONE }, 2).unwrap();
    assert!(lone.step.weights < both.step.weights, "{lone:?} {both:?}");
    // Wherever experts are, they compute the same.
    let counted = [("size: 1", "size: 2"), ("power: 1 W, kernels", "power: 1 W, energy_per_flop: 1 pJ/FLOP, kernels")];
    let counted = server(&counted);
    for batch in [1, 2, 3, 64] {
        let [apart, whole] = [2, 1].map(|ep| {
            let layout = Layout { dp: 2, ep, ..ONE };
            predict(&counted, &mixture, layout, batch).unwrap().energy.used.chips
        });
        close(apart, whole);
    }
    // A quarter of the other replica's prompts.
    let waiting = most("cache_share: 1, replica_wait: 0.25 ");
    let waited = predict(&waiting, &mixture, Layout { dp: 2, ep: 2, ..ONE }, 64).unwrap();
    close(waited.ttft_s, 1.25 * split.ttft_s);
    close(waited.tpot_s, split.tpot_s);
}

/// Twice the bandwidth is never slower, a longer context never faster, one more sequence never quicker, more memory never fewer at once.
#[test]
fn better_is_never_worse() {
    for kv in [1, 2] {
        for batch in [1, 2, 7, 40, 150] {
            for layout in [ONE, Layout { tp: 2, ..ONE }, Layout { pp: 2, ..ONE }, Layout { dp: 2, ..ONE }] {
                let heads = format!("heads: 2, kv_heads: {kv}");
                let m = model(&[("heads: 2", &heads)]);
                let two = ("size: 1", "size: 2");
                let time = |s: &Server, m: &LanguageModel, n: u64| predict(s, m, layout, n).unwrap();
                let base = time(&server(&[two]), &m, batch);
                let fast = time(&server(&[two, ("bandwidth: 8 B/s", "bandwidth: 16 B/s")]), &m, batch);
                let wide = time(&server(&[two, ("bandwidth: 4 B/s", "bandwidth: 8 B/s")]), &m, batch);
                let large = time(&server(&[two, ("10 kB", "20 kB")]), &m, batch);
                let long = time(&server(&[two]), &model(&[("heads: 2", &heads), ("seq: 2", "seq: 3")]), batch);
                let more = time(&server(&[two]), &m, batch + 1);
                for other in [&fast, &wide] {
                    assert!(other.latency_s <= base.latency_s && other.tpot_s <= base.tpot_s, "{layout:?} {batch}");
                }
                assert!(fast.latency_s < base.latency_s);
                assert!(large.latency_s <= base.latency_s * (1.0 + 1e-9), "{layout:?} {batch}");
                assert!(more.latency_s >= base.latency_s * (1.0 - 1e-12), "{layout:?} {batch}");
                assert!(base.waves > 1 || long.waves > 1 || long.latency_s >= base.latency_s, "{layout:?} {batch}");
            }
        }
    }
}

#[test]
fn one_chip_needs_no_network() {
    let p = predict(&server(&[]), &model(&[]), ONE, 4).unwrap();
    assert_eq!((p.step.network, p.prompt.network), (0.0, 0.0));
    // Replicas do not talk to each other either.
    let two = server(&[("size: 1", "size: 2")]);
    let q = predict(&two, &model(&[]), Layout { dp: 2, ..ONE }, 8).unwrap();
    assert_eq!((q.latency_s, q.generated_per_s), (p.latency_s, 2.0 * p.generated_per_s));
    close(q.per_chip, p.per_chip);
}

fn wanted(batches: Vec<u64>, goal: Goal) -> Wanted {
    Wanted { tp: None, pp: None, dp: None, ep: None, batches, limits: Limits::default(), goal, aim: Aim::TIME }
}

#[test]
fn search_looks_at_everything_there_is() {
    let s = server(&[("size: 1", "size: 4")]);
    let m = model(&[]);
    let all = layouts(&m, 4, &wanted(vec![], Goal::Latency));
    // tp 1, 2; pp 1, 2: dp 4, 2, 2, 1 (three heads' worth of tp 4 does not divide, nor four stages of two layers).
    assert_eq!(all.len(), 4, "{all:?}");
    for goal in [Goal::Throughput, Goal::Latency] {
        let found = search(&s, &m, &wanted(vec![1, 4, 16], goal)).unwrap();
        let best = found.best.unwrap();
        assert_eq!(found.predicted, 12);
        for batch in [1, 4, 16] {
            for layout in &all {
                let p = predict(&s, &m, *layout, batch).unwrap();
                match goal {
                    Goal::Throughput => assert!(p.per_chip <= best.per_chip),
                    Goal::Latency => assert!(p.latency_s >= best.latency_s),
                }
            }
        }
    }
}

#[test]
fn limits_are_kept() {
    let s = server(&[("size: 1", "size: 4")]);
    let m = model(&[]);
    let free = search(&s, &m, &wanted(vec![1, 4, 16], Goal::Throughput)).unwrap().best.unwrap();
    let limits = Limits { ttft_s: None, tpot_s: Some(free.last_tpot_s * 0.9) };
    let held = search(&s, &m, &Wanted { limits, ..wanted(vec![1, 4, 16], Goal::Throughput) }).unwrap();
    let best = held.best.unwrap();
    assert!(best.last_tpot_s <= free.last_tpot_s * 0.9 && best.per_chip <= free.per_chip);
    assert!(held.within_limits < held.predicted);
    let limits = Limits { ttft_s: Some(1e-9), tpot_s: None };
    assert!(search(&s, &m, &Wanted { limits, ..wanted(vec![1], Goal::Latency) }).unwrap().best.is_none());
    // Nothing divides: three chips and two heads leave replicas alone, unless they are forbidden.
    let three = server(&[("size: 1", "size: 3")]);
    let refused = search(&three, &m, &Wanted { dp: Some(1), ..wanted(vec![1], Goal::Latency) }).unwrap_err();
    assert!(refused.contains("as given"), "{refused}");
}

#[test]
fn missing_types_are_named() {
    let m = model(&[("heads: 2", "heads: 2, types: {compute: fp8}")]);
    let refused = predict(&server(&[]), &m, ONE, 1).unwrap_err().to_string();
    assert!(refused.contains("fp8") && refused.contains("bf16"), "{refused}");
}

/// Every size from the most that fits downward; of large ones equal shares after the first 256.
#[test]
fn sizes_of_waves() {
    assert_eq!(wave_sizes(100, 3), [3, 2, 1]);
    assert_eq!(wave_sizes(3, 100), [3, 2, 1]);
    let large = wave_sizes(1000, 600);
    assert_eq!((large[0], large[255], large[256], large[257]), (600, 345, 334, 250));
    for (share, most) in [(1, 1), (255, 255), (1000, 999), (1 << 40, 1 << 39), (u64::MAX, u64::MAX)] {
        let sizes = wave_sizes(share, most);
        assert!(
            sizes.windows(2).all(|w| w[0] > w[1]) && sizes.iter().all(|n| (1..=most).contains(n)),
            "{share} {most}"
        );
    }
}

/// One generated token is the prompt's: no step follows.
#[test]
fn first_token_needs_no_step() {
    let p = predict(&server(&[]), &model(&[("generated: 4", "generated: 1")]), ONE, 1).unwrap();
    assert_eq!((p.latency_s, p.tpot_s, p.step), (p.ttft_s, 0.0, Seconds::default()));
    close(p.generated_per_s, 1.0 / p.ttft_s);
}

/// A side of 3 cores: 2 s a core in a step, 3 x (4 channels x 5 s + 3 x 1 s) in a prompt, for each of two layers.
#[test]
fn signals_cross_a_mesh() {
    let plain = predict(&server(&[("cores: 1,", "cores: 9,")]), &model(&[]), ONE, 1).unwrap();
    let mesh = "cache_share: 1, mesh: { token: 2 s, prompt: 5 s, prompt_far: 1 s }";
    let crossed =
        predict(&server(&[("cores: 1,", "cores: 9,"), ("cache_share: 1", mesh)]), &model(&[]), ONE, 1).unwrap();
    close(crossed.tpot_s - plain.tpot_s, 2.0 * 6.0);
    close(crossed.ttft_s - plain.ttft_s, 2.0 * 3.0 * 23.0);
}

/// Two prompts of two tokens: by passes of their own they take twice the layers and the head of one, not those of four rows. On two stages four sequences are two microbatches,
/// whose stages take two prompts each: three of them until the last is through. With a prompt a microbatch nothing changes.
#[test]
fn prompts_may_be_passes_of_their_own() {
    let alone = ("cache_share: 1 ", "cache_share: 1, prompts_alone: true ");
    let of = |edits: &[(&str, &str)], layout: Layout, batch: u64| {
        predict(&server(edits), &model(&[]), layout, batch).unwrap()
    };
    let one = of(&[alone], ONE, 1);
    close(of(&[], ONE, 1).ttft_s, one.ttft_s);
    close(of(&[alone], ONE, 2).ttft_s, 2.0 * one.ttft_s);
    close(of(&[alone], ONE, 2).tpot_s, of(&[], ONE, 2).tpot_s);
    let (two, chips) = (Layout { pp: 2, ..ONE }, ("size: 1", "size: 2"));
    let cut = |edits: &[(&str, &str)], batch| predict_cut(&server(edits), &model(&[]), two, batch, 2).ttft_s;
    close(cut(&[alone, chips], 4), 3.0 * 2.0 * (104.0 + 4.5) + 4.0 * 33.5);
    close(cut(&[alone, chips], 2), cut(&[chips], 2));
    for batch in 1..9 {
        assert!(of(&[alone, chips], two, batch).latency_s >= of(&[chips], two, batch).latency_s, "{batch}");
    }
}
