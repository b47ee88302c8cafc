//! The graphs of language models against closed forms that share no code with them: weights, FLOP, kept activations; and their mapping.

use flowspace::execution::Recompute;
use flowspace::execution::activation::{ActivationPolicy, AttentionKernel};
use flowspace::graph::{Op, Phase, Workload};
use flowspace::mapping::request::{Answer, Passes, Request};
use flowspace::mapping::search::map;
use flowspace::model::Strategy;
use flowspace::model::memory::of_layer;
use flowspace::spec::{Node, Reader};
use flowspace::system::options::ModelOptions;
use flowspace::workload::WorkloadSpec;
use flowspace::workload::language::{AttentionCount, Head, LanguageModel, ModelPass, is_gathering};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("workloads/language")).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 30);
    files
}

fn read(path: &Path) -> (Node, LanguageModel) {
    let node = WorkloadSpec::load(path).unwrap();
    let model = Reader::read::<LanguageModel>(&node).unwrap();
    (node, model)
}

fn shipped(name: &str) -> LanguageModel {
    read(&root().join("workloads/language").join(format!("{name}.yaml"))).1
}

fn close(found: f64, expected: f64, part: f64, what: &str) {
    assert!((found - expected).abs() <= part * expected.abs().max(1e-300), "{what}: {found} instead of {expected}");
}

fn weights(w: &Workload, block: &str) -> f64 {
    let at = w.blocks.iter().position(|b| b.name == block);
    let of = |k: &&flowspace::graph::Kernel| Some(k.block) == at && k.owns_weight();
    w.kernels.iter().filter(of).map(|k| k.weight_elements()).sum()
}

/// FLOP of products with weights, and of products of two tensors, of one sample in a phase.
fn flop(w: &Workload, phase: Phase) -> (f64, f64) {
    let mut out = (0.0, 0.0);
    for k in w.kernels.iter().filter(|k| k.phase == phase && k.is_gemm() && !k.lookup) {
        let all = k.flop() * w.repeats(k.block) as f64;
        if k.op == Op::GemmWeight || k.weight_of.is_some() {
            out.0 += all;
        } else if !k.name.ends_with("_sum") {
            out.1 += all;
        }
    }
    out
}

/// Every file, trained and as a prompt: weights to the last matrix; forward FLOP of weights and of attention as `flop.rs` counts them, with the mask
/// and without; the backward pass computes each product twice, but for gradients of pictures.
#[test]
fn weights_and_flop_are_those_of_the_closed_forms() {
    for path in files() {
        let (_, model) = read(&path);
        for pass in [ModelPass::Training, ModelPass::Inference] {
            for count in [AttentionCount::Masked, AttentionCount::Full] {
                let model = LanguageModel { pass, generated: None, ..model.clone() };
                let w = model.graph(count).checked().unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
                let name = &model.name;
                let p = model.parameters();
                let of = |l: &flowspace::workload::language::LayerParameters| {
                    l.attention + l.perceptron + l.router + l.expert * (l.experts + l.shared_experts)
                };
                if model.dense_layers() > 0 {
                    assert_eq!(weights(&w, "layers"), of(&p.dense_layer), "{name}");
                }
                if model.expert_layers() > 0 {
                    assert_eq!(weights(&w, "expert layers"), of(&p.expert_layer), "{name}");
                }
                assert_eq!(weights(&w, "head"), p.head_matrices, "{name}: head");
                let s = model.seq;
                let attention = model.attention_flop_per_token(model.mean_attended(s, count)) * s as f64;
                let mut all = model.forward_flop_per_sample(s, count);
                if model.head == Head::MaskedTokens {
                    // The closed form has the head at every token; 15 % are scored in training, one is asked for in serving.
                    let scored = if pass == ModelPass::Training { (0.15 * s as f64).round() } else { 1.0 };
                    all -= 2.0 * p.head_matrices * (s as f64 - scored);
                }
                let (by_weights, by_pairs) = flop(&w, Phase::Forward);
                close(by_pairs, attention, 1e-12, &format!("{name}: attention"));
                close(by_weights, all - attention, 1e-12, &format!("{name}: weights"));
                if pass == ModelPass::Training {
                    let (inputs, pairs) = flop(&w, Phase::BackwardInput);
                    let (updates, none) = flop(&w, Phase::BackwardWeight);
                    let patches: f64 = w.kernels.iter().filter(|k| k.name == "Patches").map(|k| k.flop()).sum();
                    close(inputs + updates, 2.0 * by_weights - patches, 1e-12, &format!("{name}: gradients"));
                    close(pairs, 2.0 * by_pairs, 1e-12, &format!("{name}: gradients of attention"));
                    assert_eq!(none, 0.0);
                }
            }
        }
    }
}

/// Bytes that a unit of a block keeps for a sample on one chip.
fn kept(w: &Workload, block: &str) -> f64 {
    let at = w.blocks.iter().position(|b| b.name == block).unwrap();
    let (graph, kernels) = w.of_block(at);
    let options = ModelOptions::flowspace();
    of_layer(&graph, &options, &vec![Strategy::Replicate; kernels.len()], (1, 1), 1).kept
}

fn closed(model: &LanguageModel, with_experts: bool, recompute: Recompute) -> f64 {
    let policy = ActivationPolicy {
        recompute,
        tp: 1,
        cp: 1,
        sequence_parallel: false,
        attention: AttentionKernel::Materialised,
    };
    model.layer_activation_bytes(with_experts, model.seq, 1, &policy).total()
}

/// GPT-3 175B with dropout: 34 s h + 5 a s^2 bytes (Korthikanti et al. 2022, arXiv 2205.05198, eq. 1), the whole square of scores made.
#[test]
fn a_gpt_layer_keeps_what_korthikanti_counts() {
    let model = shipped("gpt3-175b");
    let w = model.graph(AttentionCount::Full).checked().unwrap();
    let (s, h, a) = (2048.0, 12288.0, 96.0);
    assert_eq!(kept(&w, "layers"), 34.0 * s * h + 5.0 * a * s * s);
    assert_eq!(kept(&w, "layers"), closed(&model, false, Recompute::None));
    // The core of attention alone makes the second term: selective recomputation keeps the first.
    let core = ["Softmax.out", "DropOut_1.out", "DropOut_1.mask.out"];
    let bytes = |t: &&flowspace::graph::Tensor| core.contains(&t.name.as_str());
    let core: f64 = w.tensors.iter().filter(bytes).map(|t| (t.rows * t.cols) as f64 * 2.0).sum();
    assert_eq!(core, 5.0 * a * s * s);
    assert_eq!(kept(&w, "layers") - core, closed(&model, false, Recompute::Selective));
    // The head: inputs of norm and product, softmax of 4 bytes (the paper's equation 5); the embedding: the mask.
    assert_eq!(kept(&w, "head"), 4.0 * s * h + 4.0 * s * 50257.0);
    assert_eq!(kept(&w, "embedding"), s * h);
}

/// The same computed again: selectively 34 s h are kept, of full layers the input of 2 s h. Every file: nothing is kept twice, weights stay as many, and no more
/// is computed again than the forward pass has.
#[test]
fn what_is_computed_again_is_not_kept() {
    let again = |w: &Workload, marked: Vec<bool>| w.clone().recomputed(&marked).checked().unwrap();
    let w = shipped("gpt3-175b").graph(AttentionCount::Full).checked().unwrap();
    let (s, h) = (2048.0, 12288.0);
    assert_eq!(kept(&again(&w, w.core_kernels()), "layers"), 34.0 * s * h);
    assert_eq!(kept(&again(&w, w.layer_kernels()), "layers"), 2.0 * s * h);
    for path in files() {
        let (_, model) = read(&path);
        let model = LanguageModel { pass: ModelPass::Training, generated: None, ..model };
        let w = model.graph(AttentionCount::Masked).checked().unwrap();
        for marked in [w.core_kernels(), w.layer_kernels()] {
            let r = again(&w, marked);
            for (b, block) in w.blocks.iter().enumerate() {
                let forward = |w: &Workload| {
                    let of = |k: &&flowspace::graph::Kernel| k.block == b && k.phase == Phase::Forward;
                    w.kernels.iter().filter(of).map(|k| k.flop()).sum::<f64>()
                };
                let of = |k: &&flowspace::graph::Kernel| k.block == b && k.phase == Phase::Recompute;
                let copies: f64 = r.kernels.iter().filter(of).map(|k| k.flop()).sum();
                assert!(copies <= forward(&w) && forward(&w) == forward(&r), "{}: {}", model.name, block.name);
                let (before, after) = (kept(&w, &block.name), kept(&r, &block.name));
                assert!(after <= before && (copies == 0.0 || after < before), "{}: {}", model.name, block.name);
                assert_eq!(weights(&w, &block.name), weights(&r, &block.name));
            }
        }
    }
}

/// Llama 3 70B, tokens 8192, h 8192, 64 heads of 128, 8 of keys and values, width 28672: inputs of norms and of products 4 h, queries and output
/// 2 h, keys and values 2 x 1024, gate 3 f; softmax 64 of 8192 keys.
#[test]
fn a_gated_layer_with_shared_heads_by_hand() {
    let model = shipped("llama3-70b");
    let w = model.graph(AttentionCount::Full).checked().unwrap();
    let by_hand = 2.0 * 8192.0 * (6.0 * 8192.0 + 2.0 * 1024.0 + 3.0 * 28672.0 + 64.0 * 8192.0);
    assert_eq!(kept(&w, "layers"), by_hand);
    assert_eq!(by_hand, closed(&model, false, Recompute::None));
    assert_eq!(weights(&w, "layers"), 8192.0 * (2.0 * 8192.0 + 2.0 * 1024.0 + 3.0 * 28672.0));
}

/// Context parallelism: each replica has its part of all products, forward and backward; keys and values are gathered, and their gradients added up.
#[test]
fn replicas_that_share_tokens_have_the_whole_work() {
    let mut seen = 0;
    for path in files() {
        let (_, model) = read(&path);
        let model = LanguageModel { pass: ModelPass::Training, generated: None, ..model };
        if model.patches.is_some() || matches!(model.head, Head::Classes | Head::Pooler) {
            continue;
        }
        let whole = model.chain().unwrap();
        for cp in [2u64, 8].into_iter().filter(|cp| model.seq.is_multiple_of(*cp)) {
            let part = model.chain_of_replica(1, cp).unwrap().checked().unwrap();
            // Scored tokens are whole numbers in every part.
            let within = if model.head == Head::MaskedTokens { 2e-3 } else { 1e-12 };
            for phase in [Phase::Forward, Phase::BackwardInput, Phase::BackwardWeight] {
                let (of_whole, of_part) = (flop(&whole, phase), flop(&part, phase));
                close(cp as f64 * of_part.0, of_whole.0, within, &format!("{}: {cp}, {phase:?}", model.name));
                close(cp as f64 * of_part.1, of_whole.1, 1e-12, &format!("{}: {cp}, {phase:?}", model.name));
            }
            assert_eq!(part.kernels.iter().filter(|k| is_gathering(k)).count(), 4 * (part.blocks.len() - 2));
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}

/// Mixtral 8x7B: besides, what is sent to 2 of 8 experts and comes back, and the router's 8 probabilities, which the closed form leaves out.
#[test]
fn experts_by_hand() {
    let model = shipped("mixtral-8x7b");
    let s = model.seq as f64;
    let w = model.graph(AttentionCount::Full).checked().unwrap();
    let router = 2.0 * s * 8.0;
    close(kept(&w, "expert layers"), closed(&model, true, Recompute::None) + router, 1e-12, "kept");
    let of = |name: &str| w.kernels.iter().find(|k| k.name == name).unwrap().shape;
    let (first, last) = (of("Expert_FFN0"), of("Expert_FFN1"));
    assert_eq!((first.outer, first.m, first.k, first.n), (8, 2 * 14336, 4096, model.seq / 4));
    assert_eq!((last.outer, last.m, last.k, last.n), (8, 4096, 14336, model.seq / 4));
    assert_eq!(weights(&w, "expert layers"), 4096.0 * (2.0 * 4096.0 + 2.0 * 1024.0 + 8.0 + 8.0 * 3.0 * 14336.0));
}

/// DeepSeek-V3: the closed form keeps the compressed vectors once (1536 + 512) and the shared rotated key (64); the graph keeps the compressed
/// vectors before their norms, which those read, and after, which the up-projections read, and no rotated key beside the keys it is part of.
#[test]
fn latent_attention_by_hand() {
    let model = shipped("deepseek-v3");
    let s = model.seq as f64;
    let w = model.graph(AttentionCount::Full).checked().unwrap();
    let more = 2.0 * s * (1536.0 + 512.0 - 64.0);
    close(kept(&w, "layers"), closed(&model, false, Recompute::None) + more, 1e-12, "plain");
    let router = 2.0 * s * 256.0;
    close(kept(&w, "expert layers"), closed(&model, true, Recompute::None) + more + router, 1e-12, "experts");
    let down = 7168.0 * (1536.0 + 512.0 + 64.0);
    let up = 1536.0 * 128.0 * 192.0 + 512.0 * 128.0 * 256.0;
    assert_eq!(weights(&w, "layers"), down + up + 128.0 * 128.0 * 7168.0 + 3.0 * 7168.0 * 18432.0);
}

/// A step of generation: Llama 3 8B after 1,024 + 1,023 tokens, whose 8 heads of keys and values lie in DRAM; FLOP as the closed form.
#[test]
fn a_step_of_generation_by_hand() {
    let model = shipped("llama3-8b-serving");
    let w = model.graph(AttentionCount::Masked).checked().unwrap();
    let cache: f64 = w.kernels.iter().map(|k| k.cache_bytes * w.repeats(k.block) as f64).sum();
    assert_eq!(cache, 2047.0 * model.cache_bytes_per_token());
    let (by_weights, by_pairs) = flop(&w, Phase::Forward);
    close(by_weights + by_pairs, model.decode_flop_per_token(2046), 1e-12, "FLOP");
    // Latent attention scores compressed vectors of 512 + 64 and adds up such of 512: more arithmetic, 576 words a token in the cache.
    let model = shipped("deepseek-v3-serving");
    let w = model.graph(AttentionCount::Masked).checked().unwrap();
    let seen = (model.seq + model.generated.unwrap() - 1) as f64;
    let cache: f64 = w.kernels.iter().map(|k| k.cache_bytes * w.repeats(k.block) as f64).sum();
    assert_eq!(cache, seen * model.cache_bytes_per_token());
    let (_, by_pairs) = flop(&w, Phase::Forward);
    assert_eq!(by_pairs, 61.0 * 2.0 * 128.0 * (576.0 + 512.0) * seen);
}

/// Every file on chips that fuse: a plan that the checker accepts, its sharding by elimination without a MILP, or a refusal that names
/// what is short. A batch of 64 has not enough samples for 128 replicas.
#[test]
fn every_model_maps_on_dataflow_chips_or_is_refused_for_memory() {
    let (mut mapped, mut proven) = (0, 0);
    for name in ["sn10-8-torus-2d", "sn30-1024-torus-2d", "sn40l-16-fully-connected", "wse-2-single"] {
        let node = flowspace::system::System::load(&root().join(format!("systems/{name}.yaml"))).unwrap();
        let system = flowspace::system::System::build(&node).unwrap();
        for path in files() {
            let (node, model) = read(&path);
            let what = format!("{} on {name}", model.name);
            let w = WorkloadSpec::build(&node).unwrap_or_else(|e| panic!("{what}: {e}"));
            let request = Request { passes: Passes::TwoPass, ..Request::default() };
            match map(&w, &system, &request).unwrap_or_else(|e| panic!("{what}: {e}")) {
                Answer::Mapped(plan, record) => {
                    flowspace::check::verify(&plan).unwrap_or_else(|e| panic!("{what}: {e}"));
                    assert_eq!(record.sharding.nodes, Some(0), "{what}");
                    mapped += 1;
                    // What waits in the DRAM may keep the best division from being reached; then the gap says so.
                    proven += usize::from(record.gap() < 1e-3);
                }
                Answer::Infeasible(why) => {
                    let batch = why.resource == "batch" && model.pass == ModelPass::Inference;
                    let dram = why.resource.contains("dram") && why.needed > why.available;
                    assert!(batch || dram, "{what}: {why}");
                }
            }
        }
    }
    assert!(mapped >= 90 && proven + 10 >= mapped, "{proven} of {mapped}");
}

/// 64 linear layers of 1024 channels and 8,192 tokens whose weight gradient reads what the layer before handed on, with a copy of it in front or without.
fn linear_layers(copied: bool) -> Workload {
    let copy = "- {name: copy, op: elementwise, m: 1024, n: 8192, inputs: [x], output: z}";
    let text = format!(
        "{{kind: graph, name: l, source: 'a test', training: true, repeat: 64, global_batch: 4, outputs: [y, dx],
  inputs: [{{name: x, rows: 1024, cols: 8192, carried_from: y}}, {{name: dy, rows: 1024, cols: 8192, carried_from: dx}}],
  kernels: [
    {}
    {{name: fwd, op: gemm_weight, m: 1024, k: 1024, n: 8192, rhs: {read}, output: y}},
    {{name: bwd, op: gemm_weight, phase: backward_input, weight_of: fwd, m: 1024, k: 1024, n: 8192, rhs: dy, output: dx}},
    {{name: upd, op: gemm, phase: backward_weight, weight_of: fwd, m: 1024, k: 8192, n: 1024, lhs: {read}, rhs: dy, rhs_transposed: true, output: w}}]}}",
        if copied { format!("{},", copy.trim_start_matches("- ")) } else { String::new() },
        read = if copied { "z" } else { "x" }
    );
    WorkloadSpec::build(&Node::parse("l.yaml", &text).unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

/// What a layer was handed and its backward pass reads is kept: 16 MiB a layer and microbatch, as a copy of it would be; divided as its reader
/// wants it.
#[test]
fn what_was_handed_on_and_is_read_again_is_kept() {
    let options = ModelOptions::flowspace();
    let (plain, copied) = (linear_layers(false), linear_layers(true));
    let one = 1024.0 * 8192.0 * 2.0;
    let whole = |w: &Workload| of_layer(w, &options, &vec![Strategy::Replicate; w.kernels.len()], (1, 1), 1).kept;
    assert_eq!((whole(&plain), whole(&copied)), (one, one));
    let name = |w: &Workload, k: usize| w.kernels[k].name.clone();
    let by = |fwd: Strategy, bwd: Strategy, upd: Strategy| {
        let of = |k: usize| match name(&plain, k).as_str() {
            "fwd" => fwd,
            "bwd" => bwd,
            _ => upd,
        };
        let sharding: Vec<Strategy> = (0..plain.kernels.len()).map(of).collect();
        of_layer(&plain, &options, &sharding, (8, 1), 8).kept
    };
    // Rows of the output: the gradient's columns are divided and every chip reads all input. Contracted: each has its rows of the input.
    assert_eq!(by(Strategy::M, Strategy::K, Strategy::N), one);
    assert_eq!(by(Strategy::K, Strategy::M, Strategy::M), one / 8.0);

    // On a chip of 8: what one holds is at least 64 layers' inputs besides weights of 2 + 2 + 12 bytes; the checker derives the same.
    let node = flowspace::system::System::load(&root().join("systems/sn10-8-torus-2d.yaml")).unwrap();
    let system = flowspace::system::System::build(&node).unwrap();
    for w in [&plain, &copied] {
        for passes in [Passes::TwoPass, Passes::Joint] {
            let request = Request { passes, ..Request::default() };
            let Answer::Mapped(plan, _) = map(w, &system, &request).unwrap() else { panic!("no plan") };
            flowspace::check::verify(&plan).unwrap();
            let memory = &plan.figures.memory;
            let (tp, pp) = (plan.figures.tp as f64, plan.figures.pp as f64);
            let least = 64.0 / pp * one / tp;
            assert!(memory.activations + memory.live >= least, "{passes}: {memory:?} {least}");
        }
    }
}
