//! Serving: the checker derives what is predicted, whatever model, system and decisions are; a figure that is another is noticed; and least energy, cost
//! and time are those of every layout and wave gone through by the checker's derivation.

use crate::properties::{Tally, check};
use flowspace::check::serving::{derive, verify};
use flowspace::execution::inference::search::{Goal, Limits, Wanted, layouts, search};
use flowspace::execution::inference::{Given, Layout, Server, predict_for};
use flowspace::execution::search::Aim;
use flowspace::model::objective::{Objective, Worth};
use flowspace::spec::{Node, Reader};
use flowspace::system::System;
use flowspace::system::economics::Economics;
use flowspace::system::serving::Microbatches;
use flowspace::workload::language::LanguageModel;
use proptest::collection::vec;
use proptest::prelude::*;

/// A field that is there as one of some texts, or not at all.
fn maybe(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just(String::new()),
        3 => prop::sample::select(texts).prop_map(|text| format!(", {text}")),
    ]
}

fn model() -> impl Strategy<Value = String> {
    let attention = maybe(&[
        "kv_heads: 1",
        "kv_heads: 2",
        "window: 3",
        "window: 9, full_attention_layers: 1",
        "window: 40, kv_heads: 4",
        "latent_attention: {kv_rank: 24, rope_dim: 8, nope_dim: 16, v_dim: 12}",
        "latent_attention: {q_rank: 40, kv_rank: 24, rope_dim: 8, nope_dim: 16, v_dim: 12}, window: 6",
        "causal: false",
        "head_dim: 24, qk_norm: head",
        "norms_per_layer: 4, qk_norm: head",
        "parallel_block: true",
    ]);
    let perceptron = maybe(&[
        "gated: true, ffn: 200",
        "ffn: 96",
        "experts: {count: 8, top_k: 2, ffn: 56}",
        "gated: true, experts: {count: 4, top_k: 1, ffn: 120, shared: 1, shared_ffn: 40, capacity_factor: 1.5}",
        "experts: {count: 16, top_k: 3, ffn: 24, shared: 2, every: 2}",
        "gated: true, experts: {count: 2, top_k: 2, ffn: 64, first_dense_layers: 1}",
    ]);
    let ends = maybe(&[
        "vocab: 500",
        "vocab: 1000, tied_embeddings: true",
        "vocab: 300, embedding_width: 24, final_norm: false",
        "vocab: 300, head: pooler",
        "vocab: 300, head: masked_tokens",
        "vocab: 300, head: classes, classes: 7",
    ]);
    let types = maybe(&[
        "types: {weights: fp8}",
        "types: {weights: fp8, perceptron: fp8, cache: fp8}",
        "types: {perceptron: fp8}",
        "types: {weights: int8, compute: bf16, cache: fp8}",
        "types: {perceptron: int8, activations: fp32}",
    ]);
    let generated = maybe(&["generated: 1", "generated: 2", "generated: 17", "generated: 200"]);
    (1..=6u64, attention, perceptron, ends, types, generated, 1..=70u64).prop_map(
        |(layers, attention, perceptron, ends, types, generated, seq)| {
            let ends = if ends.is_empty() { ", vocab: 90, head: none".to_string() } else { ends };
            let encodes = attention.contains("causal: false") || ends.contains("head:");
            let generated = if encodes { String::new() } else { generated };
            format!(
                "{{kind: language_model, name: m, source: test, layers: {layers}, hidden: 128, heads: 8, pass: inference, \
                 seq: {seq}, global_batch: 1{attention}{perceptron}{ends}{types}{generated}}}"
            )
        },
    )
}

/// Sections of a stack's serving that may stand together in any number.
const SERVING: [&[&str]; 9] = [
    &[
        "cache: contiguous",
        "cache: paged, cache_block: 16",
        "cache: static",
        "cache: bucketed, cache_block: 12",
        "cache: compiled, cache_block: 8",
    ],
    &[
        "kernel: 3 us",
        "prompt_kernel: 9 us",
        "kernel: 1 us, prompt_kernel: 2 us",
        "layer_kernels: 3",
        "host_layer: 80 us",
    ],
    &["elementwise: 0", "elementwise: 2.5, head_share: 0.5", "routing: 3, most_routed: 8", "experts: every_token"],
    &["all_reduce: 5 us", "collectives: {least: 4 us, short_start: 5 us, short_share: 0.3, long_start: 9 us}"],
    &[
        "cache_efficiency: 0.7",
        "cache_efficiency: 0.9, grouped_cache_efficiency: 0.4",
        "cache_heads: {few: 12, few_rate: 1.5, token: 3 us}",
        "cache_heads: {few: 4, token: 1 us, unit_memory: 4 kB, longest: 300}",
    ],
    &[
        "step: 50 us, step_sequence: 3 us",
        "request: 2 ms, request_peer: 1 ms",
        "separate_prompts: true, replica_wait: 0.3",
    ],
    &[
        "prompt_share: 0.4",
        "admits_whole: false",
        "overlapped_stages: false",
        "whole_contexts: true",
        "whole_embedding: true, peer_memory: 1 MB",
        "microbatches: best",
        "joint_sums: false",
        "widens_apart: true",
        "narrow_ends: true",
        "prompts_read: pieces",
    ],
    &[
        "mesh: {token: 1 us, prompt: 3 ns, prompt_far: 2 us}",
        "waiting: {wait: 4 ns, vector_rows: 4}",
        "most_tokens: 20, cache_share: 0.5",
        "cache_share: 0.7, memory_limit: 0.8",
    ],
    &["prompts_alone: true", "most_sequences: 3"],
];

fn serving() -> impl Strategy<Value = String> {
    SERVING.iter().map(|texts| maybe(texts)).collect::<Vec<_>>().prop_map(|texts| texts.concat())
}

fn system() -> impl Strategy<Value = String> {
    let network = prop::sample::select(vec![
        ("switch", vec![1]),
        ("switch", vec![2]),
        ("ring", vec![4]),
        ("fully-connected", vec![4]),
        ("torus-2d", vec![2, 3]),
        ("dgx-1", vec![4, 2]),
    ]);
    let chip = maybe(&["energy_per_flop: 0.4 pJ/FLOP", "idle_share: 0.5", "energy_per_flop: 2 pJ/FLOP, idle_share: 0"]);
    let kernels = maybe(&[
        "burst: {efficiency: 0.9, batched_efficiency: 0.6, memory_efficiency: 0.95, exposed_result: 0.3}",
        "burst: {efficiency: 0.8, batched_efficiency: 0.5, memory_efficiency: 0.9, wait: 2 ns, tiles_at_once: 2, vector_rows: 2}",
        "burst: {efficiency: 0.8, batched_efficiency: 0.5, memory_efficiency: 0.9, unpacking: 200 GB/s}",
        "type_efficiency: {fp8: 0.4}, fill: 1 us, launch: 2 us",
    ]);
    let memory = maybe(&["energy_per_byte: 6 pJ/bit", "idle_share: 0.6"]);
    let link = maybe(&["idle_share: 0.3", "energy_per_byte: 9 pJ/bit"]);
    let stack = maybe(&[
        "product_share: 0.8, memory_share: 0.7",
        "grouped_share: 0.5, expert_kernels: 3, memory_reserve: 2 MB",
    ]);
    let software = prop_oneof![4 => Just("stack"), 1 => Just("ideal"), 1 => Just("generic")];
    (network, (chip, kernels, memory, link), stack, serving(), software).prop_map(
        |((topology, sizes), (chip, kernels, memory, link), stack, serving, software)| {
            let part = "source: 'assumed: test'";
            let dimensions: Vec<String> = sizes
                .iter()
                .map(|size| {
                    format!(
                        "{{size: {size}, link: {{name: l, {part}, bandwidth: {} GB/s, latency: 1 us, price: $1/(GB/s), power: 0.2 W/(GB/s){link}}}}}",
                        60 / size
                    )
                })
                .collect();
            format!(
                "{{name: s, {part}, software: {software}, chip: {{name: c, {part}, style: kernel_by_kernel, cores: 9, lanes: 1, stages: 1, frequency: 1 GHz, \
                 sram: 1 MB, price: $5000, power: 300 W{chip}, kernels: {{{part}, peak: {{bf16: 4 TFLOP/s, fp8: 7 TFLOP/s, int8: 6 TFLOP/s}}, \
                 units: 6, tiles: [{{rows: 32, columns: 16, splits: 2}}, {{rows: 8, columns: 64, rate: 0.7}}], efficiency: 0.7, \
                 batched_efficiency: 0.5{kernels}}}}}, memory: {{name: d, {part}, bandwidth: 100 GB/s, capacity: 9 MB, \
                 price: $1/(GB/s), power: 0.3 W/(GB/s){memory}}}, network: {{topology: {topology}, dimensions: [{}], \
                 switch: {{name: x, {part}, price: $1/(GB/s), power: 0.5 W/(GB/s)}}}}, \
                 stack: {{name: t, {part}{stack}, serving: {{pads_heads: false{serving}}}}}}}",
                dimensions.join(", ")
            )
        },
    )
}

fn read(model: &str, system: &str) -> (LanguageModel, System) {
    let node = |text: &str| Node::parse("test.yaml", text).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let read: LanguageModel = Reader::read(&node(model)).unwrap_or_else(|e| panic!("{model}\n{e}"));
    (read, System::build(&node(system)).unwrap_or_else(|e| panic!("{system}\n{e}")))
}

fn free(batches: Vec<u64>, aim: Aim) -> Wanted {
    let (tp, pp, dp, ep) = (None, None, None, None);
    Wanted { tp, pp, dp, ep, batches, limits: Limits::default(), goal: Goal::Latency, aim }
}

/// Random models, systems, layouts, batches and waves; then each figure changed by a millionth.
#[test]
fn what_is_predicted_is_derived() {
    let tally = Tally::default();
    check(
        1500,
        &(model(), system(), any::<prop::sample::Index>(), 1..=40u64, vec(1..=40u64, 2)),
        |(m, s, at, batch, more)| {
            let (model, system) = read(&m, &s);
            let server = Server::new(&system).unwrap();
            let all = layouts(&model, system.chip_count(), &free(vec![batch], Aim::TIME));
            let layout = all[at.index(all.len())];
            let wave = more[0].min(batch.div_ceil(layout.dp));
            let microbatches = more[1].min(layout.pp).min(wave);
            let given = Given { batch, wave: Some(wave), microbatches: Some(microbatches) };
            let found = predict_for(&server, &model, layout, given, &Worth::TIME);
            tally.count(found.is_ok());
            let Ok(p) = found else {
                prop_assert!(
                    derive(&system, &model, layout, batch, (wave, microbatches)).is_err(),
                    "{layout:?} {batch} {wave}"
                );
                return Ok(());
            };
            if let Err(e) = verify(&system, &model, &p) {
                return Err(TestCaseError::fail(format!("{layout:?} batch {batch} wave {wave}: {e}")));
            }
            let off = |x: &mut f64| *x *= 1.0 + 1e-6;
            let mut others = vec![p.clone(); 7];
            off(&mut others[0].latency_s);
            off(&mut others[1].ttft_s);
            off(&mut others[2].memory.buffers);
            off(&mut others[3].energy.used.memory);
            off(&mut others[4].tokens_per_s);
            others[5].waves += 1;
            others[6].microbatches += layout.pp;
            for other in others.iter().filter(|other| **other != p) {
                prop_assert!(verify(&system, &model, other).is_err(), "{other:?}");
            }
            Ok(())
        },
    );
    tally.is_even("serving");
}

/// The best of each objective against all layouts and all sizes of waves, by the derivation of the checker.
#[test]
fn least_energy_and_cost_by_brute_force() {
    check(150, &(model(), system(), 1..=12u64), |(m, s, batch)| {
        let (model, system) = read(&m, &s);
        let server = Server::new(&system).unwrap();
        for objective in [Objective::Time, Objective::Energy, Objective::Cost] {
            let aim = Aim::of(objective, &Economics::default(), &system).unwrap();
            let wanted = free(vec![batch], aim);
            let mut least = f64::INFINITY;
            for layout in layouts(&model, system.chip_count(), &wanted) {
                for wave in (1..=batch.div_ceil(layout.dp)).rev() {
                    let mut fits = false;
                    for microbatches in (1..=layout.pp.min(wave)).rev() {
                        let Ok(f) = derive(&system, &model, layout, batch, (wave, microbatches)) else { continue };
                        least = least.min(aim.worth.value(f.latency_s, f.energy.used.total()));
                        fits = true;
                        if server.serving.microbatches == Microbatches::Stages {
                            break;
                        }
                    }
                    // Nor does it hold one back.
                    if fits && !server.serving.admits_whole {
                        break;
                    }
                }
            }
            let found = search(&server, &model, &wanted).unwrap().best.map_or(f64::INFINITY, |p| p.value(&aim.worth));
            prop_assert!(
                found == least || (found - least).abs() <= 2e-9 * least,
                "{objective}: the search has {found:e}, brute force {least:e}"
            );
        }
        Ok(())
    });
}

/// Two replicas of one, two, three and four sequences: each counts with what it has.
#[test]
fn replicas_with_a_sequence_less_use_less() {
    let model = "{kind: language_model, name: m, source: test, layers: 2, hidden: 128, heads: 8, vocab: 500, pass: inference, seq: 8, generated: 4, global_batch: 1}";
    let part = "source: 'assumed: test'";
    let system = format!(
        "{{name: s, {part}, chip: {{name: c, {part}, style: kernel_by_kernel, cores: 1, lanes: 1, stages: 1, frequency: 1 GHz, sram: 1 MB, price: $1, power: 100 W, \
         kernels: {{{part}, peak: {{bf16: 1 TFLOP/s}}, units: 1}}}}, memory: {{name: d, {part}, bandwidth: 100 GB/s, price: $1/(GB/s), power: 1 W/(GB/s)}}, \
         network: {{topology: switch, dimensions: [{{size: 2, link: {{name: l, {part}, bandwidth: 10 GB/s, latency: 1 us, price: $1/(GB/s), power: 1 W/(GB/s)}}}}]}}}}"
    );
    let (model, system) = read(model, &system);
    let used = |batch| {
        let two = Layout { tp: 1, pp: 1, dp: 2, ep: 1 };
        derive(&system, &model, two, batch, (batch.div_ceil(2), 1)).unwrap().energy.used.total()
    };
    // One of two replicas works, both do, one has two sequences.
    assert!((used(2) - 2.0 * used(1)).abs() < 1e-12 * used(2));
    assert!(used(3) > used(2) && used(3) < used(4));
}
