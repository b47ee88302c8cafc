//! Tests of the whole: an independent program's figures, closed forms by hand, metamorphic relations, search against brute force.

mod cross;
mod links;
mod neutral;
mod trained;

use super::block::{BlockKey, Blocks, Inner};
use super::communication::IterationLinks;
use super::layer::{KernelTime, Kernels, Phase};
use super::machine::{Machine, Peers, Traffic};
use super::policy::Policy;
use super::predict::{of_blocks, predict, predict_any};
use super::schedule::{ChipWeights, stages};
use super::search::{Pins, executions, search, search_until};
use super::{Execution, Offload, Recompute, Refusal, Schedule, Zero};
use crate::deadline::Deadline;
use crate::model::divisors::divisors;
use crate::spec::{Node, Reader};
use crate::system::System;
use crate::units::Bytes;
use crate::workload::language::{AttentionCount, DataType, LanguageModel, Types};

/// What a test changes in its machine.
#[derive(Clone)]
struct Parts {
    peak: f64,
    memory: f64,
    capacity: &'static str,
    node: u64,
    nodes: u64,
    inner: f64,
    outer: f64,
    stack: &'static str,
    second: &'static str,
    tiles: &'static str,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            peak: 312e12,
            memory: 2039e9,
            capacity: "capacity: 80 GiB, ",
            node: 8,
            nodes: 1,
            inner: 200e9,
            outer: 20e9,
            stack: "",
            second: "",
            tiles: "{rows: 256, columns: 128, splits: 4}, {rows: 128, columns: 256, splits: 4}, {rows: 128, columns: 128, rate: 0.9, splits: 4}, \
                    {rows: 256, columns: 64, rate: 0.8, splits: 4}, {rows: 64, columns: 256, rate: 0.8, splits: 4}, {rows: 128, columns: 64, rate: 0.7}, \
                    {rows: 64, columns: 128, rate: 0.7}, {rows: 64, columns: 64, rate: 0.5}",
        }
    }
}

fn machine(p: &Parts) -> Machine {
    let text = format!(
        "name: test\nsource: 'assumed: test'\n\
         chip: {{name: chip, source: 'assumed: test', style: kernel_by_kernel, cores: 432, lanes: 16, stages: 16, frequency: 1.41 GHz, \
         sram: 80 MiB, price: $1, power: 1 W, kernels: {{source: 'assumed: test', peak: {{fp16: {} FLOP/s}}, units: 108, \
         tiles: [{}], efficiency: 0.85, batched_efficiency: 0.5, memory_efficiency: 0.75, launch: 3 us, fill: 0.2 us}}}}\n\
         memory: {{name: memory, source: 'assumed: test', bandwidth: {} B/s, {}price: $1/(GB/s), power: 1 W/(GB/s)}}\n{}\
         stack: {{name: stack, source: 'assumed: test'{}}}\n\
         network:\n  topology: dgx-2\n  dimensions:\n\
         \x20   - {{size: {}, link: {{name: a, source: 'assumed: test', bandwidth: {} B/s, price: $1/(GB/s), power: 1 W/(GB/s)}}}}\n\
         \x20   - {{size: {}, link: {{name: b, source: 'assumed: test', bandwidth: {} B/s, price: $1/(GB/s), power: 1 W/(GB/s)}}}}\n",
        p.peak, p.tiles, p.memory, p.capacity, p.second, p.stack, p.node, p.inner, p.nodes, p.outer
    );
    let node = Node::parse("machine.yaml", &text).unwrap();
    Machine::new(&System::build(&node).unwrap_or_else(|e| panic!("{e}"))).unwrap()
}

fn model(fields: &str) -> LanguageModel {
    let text = format!(
        "{{kind: language_model, name: test, source: test, types: {{weights: fp16, activations: fp16, gradients: fp16}}, {fields}}}"
    );
    Reader::read(&Node::parse("model.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

fn gpt(layers: u64, hidden: u64, heads: u64, seq: u64, batch: u64) -> LanguageModel {
    model(&format!(
        "layers: {layers}, hidden: {hidden}, heads: {heads}, vocab: 51200, norm: layer, position: learned, tied_embeddings: true, \
         biases: all, dropout: true, seq: {seq}, global_batch: {batch}"
    ))
}

fn execution(tp: u64, pp: u64, dp: u64, micro_batch: u64) -> Execution {
    Execution {
        tp,
        pp,
        dp,
        ep: 1,
        cp: 1,
        micro_batch,
        schedule: Schedule::OneForwardOneBackward,
        chunks: 1,
        recompute: Recompute::None,
        sequence_parallel: false,
        zero: Zero::Off,
        offload: Offload::None,
        overlap_dp: false,
        overlap_tp: false,
    }
}

fn block(machine: &Machine, model: &LanguageModel, e: &Execution) -> Blocks {
    Policy::new(machine, model).unwrap().bound(&BlockKey::of(e))
}

#[track_caller]
fn close(found: f64, wanted: f64, within: f64) {
    assert!((found - wanted).abs() <= within * wanted.abs(), "{found} is not {wanted}");
}

const HOST: &str = ", host_layer_forward: 0.9 ms, host_layer_backward: 1.2 ms, host_layer_recompute: 0.9 ms, host_collective_peer: 50 us, \
     host_microbatch: 2 ms, host_hand_over: 0.5 ms, host_iteration: 10 ms, host_exponent: 2, collective_overhead: 20 us, attention: unfused, \
     gradient_accumulation: 8 B, optimizer_traffic: 30 B";

/// Layer and head times of a separate program of the same equations (numpy, arrays over rows): forward pass with host, backward pass with
/// host and recomputation, head with its collective.
#[test]
fn layers_and_heads_agree_with_an_independent_program() {
    let megatron = Parts { stack: HOST, nodes: 32, ..Parts::default() };
    let other = Parts {
        stack: ", host_layer_forward: 0.9 ms, host_layer_backward: 1.2 ms, host_layer_recompute: 0.9 ms, host_collective_peer: 50 us, \
                host_microbatch: 2 ms, host_iteration: 10 ms, host_exponent: 2, collective_overhead: 20 us, attention: unfused, \
                gradient_accumulation: 8 B, optimizer_traffic: 30 B, elementwise: 1.4, unsharded_head: 0.35",
        outer: 10e9,
        ..megatron.clone()
    };
    let full = |e: Execution| Execution { recompute: Recompute::Full, ..e };
    let rows = [
        (
            &megatron,
            gpt(24, 2304, 24, 2048, 512),
            full(execution(1, 1, 32, 16)),
            [0.033241811669442824, 0.0905375898478324, 0.11408206478715498],
        ),
        (
            &megatron,
            gpt(40, 6144, 48, 2048, 1024),
            full(execution(8, 1, 32, 4)),
            [0.007674606148979758, 0.020064188624244906, 0.009880454014689424],
        ),
        (
            &megatron,
            gpt(96, 12288, 96, 2048, 64),
            Execution {
                schedule: Schedule::Interleaved,
                chunks: 3,
                recompute: Recompute::Selective,
                sequence_parallel: true,
                ..execution(8, 8, 1, 1)
            },
            [0.005733152054484971, 0.011268904248252595, 0.004669310365000085],
        ),
        (
            &other,
            gpt(32, 4096, 32, 2048, 512),
            full(execution(16, 1, 8, 2)),
            [0.002989782193637498, 0.0068135273277124715, 0.002446290463967121],
        ),
        (
            &other,
            gpt(12, 2048, 16, 1024, 32),
            execution(2, 1, 4, 2),
            [0.0013953732124012026, 0.002189337052061246, 0.003493649380362331],
        ),
    ];
    for (parts, model, e, [forward, backward, head]) in rows {
        let b = block(&machine(parts), &model, &e);
        close(b.plain.forward_pass, forward, 1e-6);
        close(b.plain.backward_pass, backward, 1e-6);
        close(b.head.total(), head, 1e-6);
    }
}

/// The FLOP of all chips' products are those that the workload counts, backward twice forward.
#[test]
fn flop_of_all_chips_are_the_models() {
    let mla = "latent_attention: {q_rank: 64, kv_rank: 32, rope_dim: 16, nope_dim: 32, v_dim: 32}";
    let models = [
        (gpt(4, 512, 8, 256, 16), "gpt"),
        (
            model(
                "layers: 4, hidden: 512, heads: 8, kv_heads: 4, ffn: 1024, gated: true, norm: rms, vocab: 1024, seq: 256, global_batch: 16",
            ),
            "gqa",
        ),
        (
            model(
                "layers: 4, hidden: 512, heads: 8, vocab: 1024, experts: {count: 8, top_k: 2, ffn: 256, shared: 1, first_dense_layers: 1}, seq: 256, global_batch: 16",
            ),
            "moe",
        ),
        (
            model(
                "layers: 5, hidden: 512, heads: 8, vocab: 1024, experts: {count: 8, top_k: 2, ffn: 256, shared: 1, shared_ffn: 384, shared_gate: true, every: 2}, seq: 256, global_batch: 16",
            ),
            "moe",
        ),
        (
            model("layers: 4, hidden: 512, heads: 8, vocab: 1024, embedding_width: 256, seq: 256, global_batch: 16"),
            "narrow words",
        ),
        (
            model(&format!(
                "layers: 4, hidden: 512, heads: 8, head_dim: 32, vocab: 1024, {mla}, seq: 256, global_batch: 16"
            )),
            "mla",
        ),
    ];
    let m = machine(&Parts { stack: ", attention: unfused", nodes: 4, ..Parts::default() });
    for (model, name) in &models {
        for (tp, cp, pp, dp) in [(1, 1, 1, 1), (2, 1, 2, 2), (4, 2, 1, 4)] {
            let e = Execution { cp, ..execution(tp, pp, dp, 2) };
            let p = predict_any(&m, model, &e).unwrap();
            let flop = p.hardware_flop_utilization * p.time.total * p.chips as f64 * 312e12;
            let wanted =
                3.0 * model.global_batch as f64 * model.forward_flop_per_sample(model.seq, AttentionCount::Full);
            // Routers and compressions are on every tensor-parallel chip whole.
            let whole = if matches!(*name, "moe" | "mla") && tp > 1 { 0.2 } else { 1e-9 };
            assert!(flop >= wanted * (1.0 - 1e-9) && flop <= wanted * (1.0 + whole), "{name} {tp} {flop} {wanted}");
        }
    }
}

#[test]
fn parts_add_up_and_schedules_are_their_papers() {
    let m = machine(&Parts { nodes: 8, stack: HOST, ..Parts::default() });
    let model = gpt(24, 2048, 16, 1024, 64);
    let plain = execution(2, 4, 8, 1);
    let p = predict_any(&m, &model, &plain).unwrap();
    close(p.time.parts(), p.time.total, 1e-12);
    let b = block(&m, &model, &plain);
    let hop = 2.0 * m.line(Traffic::Next, Peers::alone(4, 16)).at(b.hand_over) + 0.5e-3;
    // Stages of six layers; the first has the embedding, the last the head.
    let (layers, host) = (6.0 * b.plain.total(), 2e-3);
    let middle = layers + hop + host;
    let last = middle + b.head.total();
    let sum = 4.0 * middle + b.head.total() + b.embedding.total();
    let after = p.time.dp + p.time.optimizer + 10e-3;
    close(p.time.total, 8.0 * last + (sum - last) + after, 1e-12);
    assert_eq!(
        predict_any(&m, &model, &Execution { schedule: Schedule::GPipe, ..plain.clone() }).unwrap().time.total,
        p.time.total
    );
    // Interleaved: a bubble of a third, two more hand-overs a microbatch.
    let three = Execution { schedule: Schedule::Interleaved, chunks: 3, ..plain.clone() };
    let three = predict_any(&m, &model, &three).unwrap();
    close(three.time.total, 8.0 * (last + 2.0 * hop) + (sum - last) / 3.0 + after, 1e-12);
    // Zero bubble: twice the weights' gradients of the other stages less.
    let zero = predict_any(&m, &model, &Execution { schedule: Schedule::ZeroBubble, ..plain }).unwrap();
    let weight = 3.0 * 6.0 * b.plain.weight + b.embedding.weight;
    close(zero.time.bubble, sum - last - 2.0 * weight, 1e-9);
}

#[test]
fn stages_share_layers_and_experts_come_after_plain_layers() {
    let model = model(
        "layers: 10, hidden: 64, heads: 4, vocab: 64, experts: {count: 4, top_k: 1, ffn: 64, first_dense_layers: 3}, seq: 16, global_batch: 4",
    );
    let kinds = stages(&model, 4);
    let of = |f: fn(&super::schedule::StageKind) -> f64| kinds.iter().map(|k| k.count * f(k)).sum::<f64>();
    assert_eq!((of(|k| k.plain), of(|k| k.experts), of(|k| k.embedding), of(|k| k.head)), (3.0, 7.0, 1.0, 1.0));
    // 2, 3, 3, 2 layers.
    assert_eq!(kinds.iter().map(|k| k.layers()).collect::<Vec<_>>(), [2.0, 3.0, 3.0, 2.0]);
    assert_eq!(stages(&model, 1).len(), 1);
    assert_eq!(stages(&gpt(24, 64, 4, 16, 4), 8).len(), 3);
    // Experts in every second layer: 2, 4, ... of 3, 3, 4.
    let alternating = LanguageModel {
        experts: model.experts.map(|e| crate::workload::language::Experts {
            first_dense_layers: None,
            every: Some(2),
            ..e
        }),
        ..model.clone()
    };
    let kinds = stages(&alternating, 5);
    assert!(kinds.iter().all(|k| (k.plain, k.experts) == (1.0, 1.0)), "{kinds:?}");
    assert_eq!(stages(&alternating, 1).iter().map(|k| (k.plain, k.experts)).collect::<Vec<_>>(), [(5.0, 5.0)]);
    // All chips' weights are the model's, and a tied embedding once more.
    let gpt = gpt(24, 64, 4, 16, 4);
    let w = ChipWeights::of(&gpt, 1, 1, 8);
    let sum: f64 = stages(&gpt, 8).iter().map(|s| s.count * w.of_stage(s).0).sum();
    close(sum, gpt.parameters().total() + 51200.0 * 64.0, 1e-12);
}

#[test]
fn more_of_anything_is_never_slower_and_more_memory_never_worse() {
    let base = Parts {
        nodes: 4,
        stack: HOST,
        capacity: "capacity: 1 GiB, ",
        second: "offload: {name: host, source: 'assumed: test', bandwidth: 20 GB/s, capacity: 4 GiB, price: $1/(GB/s), power: 1 W/(GB/s)}\n",
        ..Parts::default()
    };
    let model = gpt(6, 1024, 8, 512, 24);
    let slow = machine(&base);
    let faster = [
        machine(&Parts { peak: 624e12, ..base.clone() }),
        machine(&Parts { memory: 4e12, ..base.clone() }),
        machine(&Parts { inner: 400e9, ..base.clone() }),
        machine(&Parts { outer: 40e9, ..base.clone() }),
    ];
    let all = executions(&slow, &model, &Pins { chips: Some(8), ..Pins::default() });
    assert!(all.len() > 1000, "{}", all.len());
    for e in all.iter().step_by(7) {
        let time = predict_any(&slow, &model, e).unwrap().time;
        close(time.parts(), time.total, 1e-9);
        for other in &faster {
            let better = predict_any(other, &model, e).unwrap().time.total;
            assert!(better <= time.total * (1.0 + 1e-12), "{e:?}: {better} {}", time.total);
        }
    }
    let mut last = f64::INFINITY;
    for capacity in ["capacity: 600 MiB, ", "capacity: 1 GiB, ", "capacity: 2 GiB, ", "capacity: 8 GiB, ", ""] {
        let found =
            search(&machine(&Parts { capacity, ..base.clone() }), &model, &Pins { chips: Some(8), ..Pins::default() })
                .unwrap();
        let time = found.best.map_or(f64::INFINITY, |b| b.time.total);
        assert!(time <= last, "{capacity}: {time} after {last}");
        last = time;
    }
    assert!(last.is_finite());
}

/// The search finds what trying everything finds, and says how much there was.
#[test]
fn search_is_brute_force() {
    let second = "offload: {name: host, source: 'assumed: test', bandwidth: 20 GB/s, capacity: 2 GiB, price: $1/(GB/s), power: 1 W/(GB/s)}\n";
    let moe = model(
        "layers: 4, hidden: 512, heads: 8, kv_heads: 4, gated: true, vocab: 1024, experts: {count: 4, top_k: 2, ffn: 512, first_dense_layers: 1}, seq: 256, global_batch: 8",
    );
    let cases = [
        (
            gpt(6, 1024, 8, 512, 24),
            Parts { capacity: "capacity: 1 GiB, ", second, stack: HOST, ..Parts::default() },
            Pins::default(),
        ),
        (
            gpt(6, 1024, 8, 512, 24),
            Parts { capacity: "capacity: 400 MiB, ", second, ..Parts::default() },
            Pins { pp: Some(2), ..Pins::default() },
        ),
        (moe, Parts { capacity: "capacity: 300 MiB, ", node: 4, nodes: 2, ..Parts::default() }, Pins::default()),
        (
            gpt(3, 512, 4, 256, 6),
            Parts { node: 4, ..Parts::default() },
            Pins { schedule: Some(Schedule::GPipe), zero: Some(Zero::Off), ..Pins::default() },
        ),
        (gpt(3, 512, 4, 256, 6), Parts { capacity: "capacity: 1 MiB, ", node: 4, ..Parts::default() }, Pins::default()),
    ];
    for (model, parts, pins) in cases {
        let machine = machine(&parts);
        let all = executions(&machine, &model, &pins);
        let found = search(&machine, &model, &pins).unwrap();
        assert_eq!(found.covered, all.len() as u64);
        let best =
            all.iter().filter_map(|e| predict(&machine, &model, e).ok()).map(|p| p.time.total).min_by(f64::total_cmp);
        match (best, &found.best) {
            (Some(time), Some(p)) => {
                assert_eq!(p.time.total, time);
                assert_eq!((found.bound, found.gap()), (time, 0.0));
                assert!(p.memory.fits());
                // Stopped at once: some plan or none, and a bound that holds all the same.
                let stopped = search_until(&machine, &model, &pins, Deadline::after(Some(0.0))).unwrap();
                assert!(stopped.stopped && stopped.bound <= time && stopped.bound > 0.0, "{stopped:?}");
                assert_eq!(stopped.covered, found.covered);
                assert!(stopped.best.is_none_or(|p| p.time.total >= time && p.memory.fits()));
            }
            (None, None) => {
                let (_, least) = found.least.clone().unwrap();
                let smallest = all
                    .iter()
                    .map(|e| predict_any(&machine, &model, e).unwrap().memory.device.total())
                    .fold(f64::INFINITY, f64::min);
                assert_eq!(least.device.total(), smallest);
                assert!(found.reason(&machine).contains("none of"));
                // What is printed is enough, one per cent less is not.
                let enough = Bytes(least.device.total()).printed_above();
                assert!(found.reason(&machine).contains(&enough.to_string()));
                let with = |bytes: f64| {
                    let mut larger = machine.clone();
                    larger.capacity = Some(bytes);
                    search(&larger, &model, &pins).unwrap().best.is_some()
                };
                assert!(with(enough.0) && !with(enough.0 * 0.99));
            }
            other => panic!("brute force and search differ: {other:?}"),
        }
    }
}

/// Batches with thousands of divisors: all executions are covered, but only microbatches that may fit are priced.
#[test]
fn batches_of_many_divisors_are_searched() {
    for (batch, sizes) in [(735_134_400, 1344), (963_761_198_400, 6720)] {
        let model = gpt(6, 1024, 8, 512, batch);
        let machine = machine(&Parts { node: 1, capacity: "capacity: 4 GiB, ", ..Parts::default() });
        let found = search(&machine, &model, &Pins::default()).unwrap();
        // On one chip without other tiers: three schedules (one stage has no interleaving) and three recomputations.
        assert_eq!(found.covered, sizes * 9);
        assert!(found.cells < 200 && found.too_large > sizes * 8, "{found:?}");
        assert_eq!((found.gap(), found.stopped), (0.0, false));
        // No larger microbatch fits: what needs least there is too large.
        let b = found.best.unwrap().execution.micro_batch;
        let beyond = divisors(batch).into_iter().find(|d| *d >= 256 * b);
        let beyond = Pins { micro_batch: beyond, ..Pins::default() };
        assert!(search(&machine, &model, &beyond).unwrap().best.is_none());
    }
}

#[test]
fn memory_by_hand_and_what_would_mend_it() {
    let m = machine(&Parts { nodes: 8, stack: ", attention: unfused", ..Parts::default() });
    let gpt175 = gpt(96, 12288, 96, 2048, 64);
    let e = Execution { recompute: Recompute::Full, ..execution(8, 8, 1, 1) };
    let p = predict_any(&m, &gpt175, &e).unwrap();
    // The first stage: 12 layers, 8 microbatches in flight, each layer keeps its input of 2 s b h bytes; the embedding its mask, s b h.
    let input = 2.0 * 2048.0 * 12288.0;
    assert_eq!(p.memory.stage, 0);
    close(p.memory.device.activations, 8.0 * (12.0 * input + input / 2.0), 1e-12);
    // Interleaved in 3: 8 (1 + 7/24) of it.
    let three = Execution { schedule: Schedule::Interleaved, chunks: 3, ..e.clone() };
    let more = predict_any(&m, &gpt175, &three).unwrap().memory.device.activations;
    close(more / p.memory.device.activations, 1.0 + 7.0 / 24.0, 1e-12);
    // Weights and gradients of 2 bytes, 12 of the optimiser; ZeRO divides what it says among replicas.
    let d = p.memory.device;
    close(d.optimizer / d.weights, 6.0, 1e-12);
    let small = gpt(6, 1024, 8, 512, 64);
    let memory = |zero| predict_any(&m, &small, &Execution { zero, ..execution(1, 1, 8, 1) }).unwrap().memory.device;
    let (off, one, three) = (memory(Zero::Off), memory(Zero::Optimizer), memory(Zero::Weights));
    close(one.optimizer, off.optimizer / 8.0, 1e-12);
    assert_eq!(one.weights, off.weights);
    close(three.weights, off.weights / 8.0, 1e-12);
    // What is short, and the nearest change.
    let tight = machine(&Parts {
        nodes: 8,
        capacity: "capacity: 1200 MiB, ",
        stack: ", attention: unfused",
        ..Parts::default()
    });
    let Err(Refusal::Infeasible(shortage)) = predict(&tight, &small, &execution(1, 1, 8, 2)) else { panic!("it fits") };
    let (_, change) = shortage.change.clone().unwrap();
    assert!(predict(&tight, &small, &change).is_ok());
    let text = shortage.text();
    assert!(
        text.contains("stage 0 needs") && text.contains("short; most of it") && text.contains("nearest change"),
        "{text}"
    );
}

/// Eight microbatches on four stages, all recomputed. GPipe holds all inputs and all scores; under zero bubble stage 3 has three microbatches' gradients of weights
/// to take, of whose layers it holds what recomputation brought back, and of the head three more.
#[test]
fn late_passes_hold_what_they_need() {
    let m = machine(&Parts::default());
    let model = gpt(8, 1024, 8, 512, 8);
    let of = |schedule| {
        let e = Execution { recompute: Recompute::Full, schedule, ..execution(1, 4, 1, 1) };
        let p = predict_any(&m, &model, &e).unwrap();
        (p.memory.stage, p.memory.device)
    };
    let (stage, usual) = of(Schedule::OneForwardOneBackward);
    let (last, all) = of(Schedule::GPipe);
    assert_eq!((stage, last), (3, 3), "the head is the largest");
    close(all.head, 8.0 * usual.head, 1e-12);
    close(all.activations, 8.0 * usual.activations, 1e-12);
    let (last, late) = of(Schedule::ZeroBubble);
    assert_eq!(last, 3);
    close(late.head, 4.0 * usual.head, 1e-12);
    let layers = 2.0 * (usual.working + usual.activations / 2.0);
    close(late.working, usual.working + 3.0 * layers, 1e-12);
    close(late.activations, usual.activations, 1e-12);
    // Two microbatches on eight stages: no more than there are.
    let few = gpt(8, 1024, 8, 512, 2);
    let e = Execution { recompute: Recompute::Full, schedule: Schedule::ZeroBubble, ..execution(1, 8, 1, 1) };
    let p = predict_any(&m, &few, &e).unwrap();
    assert_eq!(p.memory.stage, 7);
    close(p.memory.device.head, 2.0 * usual.head, 1e-12);
    close(p.memory.device.activations, usual.activations / 2.0, 1e-12);
    close(p.memory.device.working, 2.0 * usual.working + usual.activations / 2.0, 1e-12);
}

/// Gradients that arrive in a type of their own are held beside the sums, which alone are reduced.
#[test]
fn what_arrives_is_not_reduced() {
    let m = machine(&Parts::default());
    let model = gpt(8, 1024, 8, 512, 8);
    let mut beside = model.clone();
    beside.types.arriving = Some(DataType::Bf16);
    let e = execution(1, 1, 8, 1);
    let [one, two] = [&model, &beside].map(|of| predict_any(&m, of, &e).unwrap());
    assert_eq!(one.time.total, two.time.total);
    assert!(two.memory.device.gradients > one.memory.device.gradients);
}

#[test]
fn what_does_not_suit_is_refused_with_what_would() {
    let m = machine(&Parts::default());
    let small = gpt(6, 1024, 8, 512, 24);
    let moe = model(
        "layers: 4, hidden: 512, heads: 8, vocab: 1024, experts: {count: 4, top_k: 2, ffn: 512}, seq: 256, global_batch: 8",
    );
    let say = |model: &LanguageModel, e: Execution| predict_any(&m, model, &e).unwrap_err();
    assert!(say(&small, execution(16, 1, 1, 1)).contains("takes 16 chips"));
    assert!(say(&small, execution(3, 1, 1, 1)).contains("tp = 3 does not divide the 8 heads"));
    assert!(say(&small, execution(1, 7, 1, 1)).contains("6 layers"));
    assert!(say(&small, execution(1, 1, 5, 1)).contains("no multiple of dp x micro_batch"));
    assert!(say(&small, Execution { ep: 2, ..execution(1, 1, 2, 1) }).contains("no experts"));
    assert!(say(&moe, Execution { ep: 3, ..execution(1, 1, 3, 1) }).contains("ep = 3 does not divide the 4 experts"));
    assert!(say(&small, Execution { offload: Offload::All, ..execution(1, 1, 1, 1) }).contains("no second tier"));
    let chunks = Execution { schedule: Schedule::Interleaved, chunks: 2, ..execution(1, 2, 1, 1) };
    // Pieces need not be alike: the longer of two stages has four of seven layers, and the other waits half as long.
    let time = |e: &Execution| predict_any(&m, &gpt(7, 1024, 8, 512, 24), e).unwrap().time;
    close(time(&chunks).bubble, time(&execution(1, 2, 1, 1)).bubble / 2.0, 1e-9);
    assert!(say(&gpt(6, 1024, 8, 512, 9), chunks).contains("interleaved schedule needs microbatches (9)"));
    let bf16 = model("layers: 4, hidden: 512, heads: 8, vocab: 1024, seq: 256, global_batch: 8");
    let bf16 = LanguageModel { types: crate::workload::language::Types::default(), ..bf16 };
    assert!(say(&bf16, execution(1, 1, 1, 1)).contains("no peak for bf16"));
    assert!(search(&m, &bf16, &Pins::default()).is_err());
}

/// Two of four products read hidden channels forward, two backward: converted by each of two chips whole, or its own half before it is gathered.
#[test]
fn conversion_before_the_gathering_is_of_own_tokens() {
    let whole = machine(&Parts::default());
    let own = machine(&Parts { stack: ", converts_before_gather: true", ..Parts::default() });
    let gpt = gpt(6, 1024, 8, 512, 24);
    let types = Types { activations: DataType::Fp32, compute: Some(DataType::Fp16), ..gpt.types };
    let model = LanguageModel { types, ..gpt };
    let time = |m: &Machine, tp, sequence_parallel| {
        let e = Execution { sequence_parallel, ..execution(tp, 1, 4, 1) };
        let time = predict_any(m, &model, &e).unwrap().time;
        time.forward + time.backward
    };
    assert_eq!(time(&whole, 1, false), time(&own, 1, false));
    assert_eq!(time(&whole, 2, false), time(&own, 2, false));
    // 6 layers, 6 microbatches, 4 bytes for each of 512 x 1024 numbers, of which half; three quarters of 2,039 GB/s.
    let less = 6.0 * 6.0 * 4.0 * (4.0 * 512.0 * 1024.0 / 2.0) / (2039e9 * 0.75);
    let found = time(&whole, 2, true) - time(&own, 2, true);
    assert!((found / less - 1.0).abs() < 1e-6, "{found} {less}");
}

/// Energy by hand: of TP 2 and DP 4 each chip sends four all-reduces of the hidden activation a layer and microbatch, S bytes each (2 x 1/2 of S), one for the embedding and one for the
/// head; three quarters of the gradients twice; FLOP are those of all chips.
#[test]
fn joules_by_hand() {
    let mut m = machine(&Parts { nodes: 1, ..Parts::default() });
    m.dimensions.iter_mut().for_each(|d| d.byte_j = 1e-9);
    m.power.rates = crate::model::energy::Rates { busy_w: 0.0, flop_j: 1e-12, dram_byte_j: 0.0 };
    let model = gpt(6, 1024, 8, 512, 24);
    let p = predict_any(&m, &model, &execution(2, 1, 4, 2)).unwrap();
    let hidden = 2.0 * 512.0 * 1024.0 * 2.0;
    let gradients = 1.5 * p.memory.device.gradients;
    close(p.energy.used.links, 8.0 * (3.0 * (6.0 * 4.0 + 2.0) * hidden + gradients) * 1e-9, 1e-12);
    let peak = m.peak(&model).unwrap();
    close(p.energy.used.chips, p.hardware_flop_utilization * p.time.total * 8.0 * peak * 1e-12, 1e-12);
    // Two stages: 12 microbatches hand an activation forward and its gradient back; both send the gradients of the tied embedding.
    let tied = 51200.0 * 1024.0 * 2.0;
    let two = predict_any(&m, &model, &execution(1, 2, 1, 2)).unwrap();
    close(two.energy.used.links, (12.0 * 2.0 * hidden + 2.0 * tied) * 1e-9, 1e-12);
    close(two.energy.idle.total(), m.power.idle.total() * two.time.total, 1e-12);
}

/// Recomputing every second product costs half of the forward products and keeps less than all and more than the inputs alone.
#[test]
fn half_of_the_products_lies_between() {
    let m = machine(&Parts { stack: ", selective: half_of_products", ..Parts::default() });
    let model = gpt(6, 1024, 8, 512, 24);
    let of = |recompute| predict_any(&m, &model, &Execution { recompute, ..execution(1, 1, 4, 1) }).unwrap();
    let (none, half, full) = (of(Recompute::None), of(Recompute::Selective), of(Recompute::Full));
    assert!(none.time.total < half.time.total && half.time.total < full.time.total);
    let kept = |p: &super::predict::Prediction| p.memory.device.activations;
    assert!(full.memory.device.activations < kept(&half) && kept(&half) < kept(&none));
}

/// Fragments of what comes and goes; gradients freed before activations grow; copies of two norms in 32 bits; both gathered inputs of two chips' halves.
#[test]
fn what_software_holds_besides() {
    let small = gpt(4, 512, 8, 256, 8);
    let of = |stack: &'static str, e: &Execution| {
        predict_any(&machine(&Parts { stack, ..Parts::default() }), &small, e).unwrap().memory.device
    };
    let one = execution(1, 1, 8, 1);
    let plain = of("", &one);
    let comes_and_goes = plain.activations + plain.working + plain.head + plain.buffers;
    close(of(", fragments: 0.1", &one).reserve, 0.1 * comes_and_goes, 1e-12);
    let freed = |e| of(", frees_gradients: true", e).gradients;
    close(freed(&one), (plain.gradients - plain.activations - plain.head).max(0.0), 1e-12);
    close(freed(&execution(1, 1, 4, 1)), plain.gradients, 1e-12);
    let copies = of(", norm_memory: 8 B", &one).activations - plain.activations;
    close(copies, 4.0 * 2.0 * 256.0 * 512.0 * 8.0, 1e-9);
    // What products with frozen weights of 4 bits read: both norms' results and the perceptron's 2,048 channels; with those of 16 bits nothing is kept.
    let reads = |weights: DataType| {
        let mut frozen = LanguageModel { adapters: Some(16), ..small.clone() };
        (frozen.types.weights, frozen.types.compute) = (weights, Some(DataType::Fp16));
        let on =
            |stack| predict_any(&machine(&Parts { stack, ..Parts::default() }), &frozen, &one).unwrap().memory.device;
        on(", narrow_input_memory: 3 B").activations - on("").activations
    };
    close(reads(DataType::Fp4), 4.0 * 256.0 * (2.0 * 512.0 + 2048.0) * 3.0, 1e-9);
    assert_eq!(reads(DataType::Fp16), 0.0);
    let parts = Execution { sequence_parallel: true, ..execution(2, 1, 4, 1) };
    let kept = of(", keeps_gathered: true", &parts).activations - of("", &parts).activations;
    close(kept, 4.0 * 2.0 * 128.0 * 512.0 * 2.0, 1e-9);
}

/// With as many tokens before a sample as in it, queries, keys, values and scores are of twice as many, and distances have a matrix for them and a product like the scores.
#[test]
fn segments_before_are_attended_to() {
    let of = |more: &str| {
        model(&format!("layers: 2, hidden: 512, heads: 8, vocab: 51200, seq: 256, global_batch: 1, {more}"))
    };
    let (plain, segments) = (of("position: none"), of("position: relative, segment_memory: 256, scored_words: 1000"));
    let m = machine(&Parts { stack: ", attention: unfused", ..Parts::default() });
    let flop = |model: &LanguageModel, name: &str| -> f64 {
        let kernels = || Kernels::new(&m, model, BlockKey::of(&execution(1, 1, 1, 1)).division, 312e12);
        let all = kernels().layer(false).into_iter().chain(kernels().head());
        all.filter(|k| k.name == name && k.phase == Phase::Forward).map(|k| k.flop).sum()
    };
    for name in ["query_key_value", "scores", "values"] {
        close(flop(&segments, name), 2.0 * flop(&plain, name), 1e-12);
    }
    close(flop(&segments, "distances"), 2.0 * 512.0 * 512.0 * 512.0 + flop(&segments, "scores"), 1e-12);
    close(flop(&segments, "head"), 2.0 * 256.0 * 1000.0 * 512.0, 1e-12);
    assert!(segments.chain().unwrap_err().contains("not as graphs"));
}
