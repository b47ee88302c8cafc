//! Folding: how many layers a trace has, and which step of it is taken.

use super::trace_lower::{flop, flowspace, folder, layers_fx, lowered, mixed_fx, node, shared, written};
use flowspace::trace::lower::{Fold, Request};
use flowspace::workload::{Phase, WorkloadSpec};
use serde_json::{Value, json};
use std::path::Path;

/// Takes nodes out of a graph; who read one reads what stands for it.
fn without(mut document: Value, gone: &[(&str, &str)]) -> Value {
    for (name, instead) in gone {
        document["nodes"].as_array_mut().unwrap().retain(|n| n["name"] != *name);
        let text = document.to_string();
        let with = text.replace(&json!({ "ref": name }).to_string(), &json!({ "ref": instead }).to_string());
        document = serde_json::from_str(&with).unwrap();
    }
    document
}

/// Puts a node of one input behind another, which then is what `reader` reads.
fn behind(mut document: Value, name: &str, target: &str, reader: &str, shape: &[u64]) -> Value {
    let nodes = document["nodes"].as_array_mut().unwrap();
    let at = nodes.iter().position(|n| n["name"] == name).unwrap();
    let bytes = 4 * shape.iter().product::<u64>();
    let more = json!({"name": format!("{name}_more"), "op": "call_function", "target": target, "kind": null,
        "args": [{ "ref": name }], "kwargs": {}, "out": [{"shape": shape, "dtype": "float32", "bytes": bytes}]});
    let of = nodes.iter_mut().find(|n| n["name"] == reader).unwrap();
    let text = of["args"].to_string();
    let with = text.replace(&json!({ "ref": name }).to_string(), &json!({ "ref": format!("{name}_more") }).to_string());
    of["args"] = serde_json::from_str(&with).unwrap();
    nodes.insert(at + 1, more);
    document
}

/// Layers that differ by a kernel at one end are layers all the same, and what that changes is counted: FLOP of the layers, less what the recording
/// lacks of them, and of what is outside are those of the step.
#[test]
fn layers_at_the_ends_may_differ_by_light_kernels() {
    let dir = folder("ends");
    let all = |document: &Value, layers: u64, kernels: usize, lacking: f64, outside: usize| {
        let file = written(&dir, "g.json", document);
        let l = lowered(&file, &Request { fold: Fold::Layer, ..Request::default() });
        let f = l.folded.as_ref().unwrap();
        assert_eq!((f.layers, f.kernels, f.lacking_flop, f.outside.len()), (layers, kernels, lacking, outside));
        assert_eq!((l.workload.repeat, l.workload.kernels.len()), (layers, kernels));
        assert_eq!(flop(&l.workload) * layers as f64 - f.lacking_flop + f.outside_flop, l.unfolded_flop);
        l
    };
    let forward = |n: usize| layers_fx(n, false);
    // A mask, a dropout, an activation that the first or the last layer alone has.
    for layer in [0, 4] {
        let more = behind(forward(5), &format!("u{layer}"), "aten.relu.default", &format!("g{layer}"), &[24, 16]);
        all(&more, 5, 5, 0.0, 2);
    }
    // The last layer's residual is left out: 48 FLOP, which the head reads the product instead of.
    all(&without(forward(5), &[("add4", "d4")]), 5, 5, 48.0, 1);
    // Two layers, of which only one is whole.
    let two = without(forward(2), &[("add1", "d1")]);
    all(&two, 2, 5, 48.0, 1);
    // The first layer needs no gradient of its input: no product of dn (1,536 FLOP), and what comes of it (softmax backward, sum: 240).
    let first = |n: usize| without(layers_fx(n, true), &[("dn0", "du0"), ("ds0", "du0"), ("dadd0", "du0")]);
    for layers in [4, 9] {
        let l = all(&first(layers), layers as u64, 12, 1536.0 + 240.0, 3);
        assert!(l.workload.training);
        let weights = l.workload.kernels.iter().filter(|k| k.phase == Phase::BackwardWeight).count();
        assert_eq!(weights, 2);
    }
    // A product more or fewer is another layer.
    let heavy = without(forward(5), &[("g4", "u4"), ("d4", "n4"), ("dv4", "n4")]);
    let file = written(&dir, "g.json", &heavy);
    let l = lowered(&file, &Request { fold: Fold::Layer, ..Request::default() });
    assert_eq!(l.folded.unwrap().layers, 4);
}

/// A layer of another kind in the middle is a block of its own, and those before and behind it are blocks of layers.
#[test]
fn a_layer_that_differs_in_the_middle_is_a_block() {
    let dir = folder("middle");
    let fold = Request { fold: Fold::Layer, ..Request::default() };
    for (train, layers, other, blocks) in [
        (false, 9, &[4][..], &[4, 1, 4][..]),
        (false, 9, &[2], &[2, 1, 6]),
        (false, 6, &[1], &[1, 1, 4]),
        (false, 11, &[1, 3], &[1, 1, 1, 1, 7]),
        // Two of them side by side are between together.
        (false, 10, &[4, 5], &[4, 1, 4]),
        (true, 9, &[4], &[4, 1, 4]),
        (true, 8, &[5], &[5, 1, 2]),
        (true, 12, &[2, 4], &[2, 1, 1, 1, 7]),
        // Most follow each other between the two: the end of the one and the beginning of the other are no layer.
        (false, 12, &[1, 8], &[1, 1, 6, 1, 3]),
        (true, 12, &[1, 8], &[1, 1, 6, 1, 3]),
        (true, 11, &[2, 8], &[2, 1, 5, 1, 2]),
    ] {
        let file = written(&dir, "g.json", &mixed_fx(layers, train, other));
        let l = lowered(&file, &fold);
        let (w, f) = (&l.workload, l.folded.as_ref().unwrap());
        let repeats: Vec<u64> = w.blocks.iter().map(|b| b.repeat).collect();
        assert_eq!(repeats, blocks, "{train} {other:?}");
        assert_eq!(f.blocks.iter().map(|b| b.repeat).collect::<Vec<_>>(), blocks);
        // By hand, of one sample: a layer 3,456 FLOP forward, 3,072 more in the other one. The backward pass is in the sum of all.
        let of_block = |b: usize| w.kernels.iter().filter(move |k| k.block == b && k.phase == Phase::Forward);
        let side_by_side = other.windows(2).any(|o| o[0] + 1 == o[1]);
        for (b, repeat) in blocks.iter().enumerate() {
            let sum: f64 = of_block(b).map(flowspace::graph::Kernel::flop).sum();
            let wanted = match b % 2 {
                0 => 3456.0,
                _ if side_by_side => 2.0 * (3456.0 + 3072.0),
                _ => 3456.0 + 3072.0,
            };
            assert_eq!((sum, w.repeats(b)), (wanted, *repeat), "{train} {other:?} block {b}");
        }
        assert_eq!(w.flop_per_iteration() / w.global_batch as f64 + f.outside_flop, l.unfolded_flop);
        // The residual goes from block to block; what is read twice in a layer is one tensor.
        let across = |forward: bool| {
            let block = |k: usize| w.kernels[k].block;
            let of_phase = |k: &usize| (w.kernels[*k].phase == Phase::Forward) == forward;
            let crosses = |t: &&flowspace::graph::Tensor| {
                t.producer.filter(of_phase).is_some_and(|p| t.consumers.iter().any(|u| block(u.kernel) != block(p)))
            };
            w.tensors.iter().filter(crosses).count()
        };
        let borders = blocks.len() - 1;
        assert_eq!((across(true), across(false)), (borders, if train { borders } else { 0 }), "{train} {other:?}");
    }
    // The first and the last one are of another kind: those between are the layers.
    for train in [false, true] {
        let file = written(&dir, "g.json", &mixed_fx(8, train, &[0, 7]));
        let l = lowered(&file, &fold);
        let first: Vec<&str> = l.workload.kernels.iter().take(5).map(|k| k.name.as_str()).collect();
        assert_eq!((l.workload.repeat, l.workload.kernels.len()), (6, if train { 12 } else { 5 }), "{first:?}");
        assert_eq!(flop(&l.workload) * 6.0 + l.folded.unwrap().outside_flop, l.unfolded_flop);
    }
    // Every fourth layer of another kind: four layers repeat.
    let file = written(&dir, "g.json", &mixed_fx(12, true, &[3, 7, 11]));
    let l = lowered(&file, &fold);
    assert_eq!((l.workload.repeat, l.workload.is_chain(), l.workload.kernels.len()), (3, false, 3 * 12 + 15));
    // The chain is mapped like any other, and the command says its blocks.
    let file = written(&dir, "g.json", &mixed_fx(9, true, &[4]));
    let name = file.display().to_string();
    let (code, out, err) = flowspace(&["trace", "lower", &name, "--fold", "layer"]);
    assert!(
        code == 0 && out.contains("block layers_1: 4 of 12 kernels\n  block between_1: 1 of 15 kernels\n"),
        "{out}{err}"
    );
    let system = Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/sn10-8-torus-2d.yaml").display().to_string();
    let (code, out, err) = flowspace(&[
        "map",
        "--workload",
        &format!("trace:{name}?fold=layer&word=2B"),
        "--system",
        &system,
        "--pp",
        "2",
    ]);
    assert_eq!(code, 0, "{out}{err}");
}

/// Numbers of a host trace have the storages of whatever was freed before: in one layer of GPT-2 a scale seems to be made by a kernel.
#[test]
fn layers_of_a_recorded_gpt2_are_all_found() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/torch_gpt2_host.json.gz");
    let device = file.with_file_name("torch_gpt2_device.json.gz");
    for file in [file, device] {
        let l = lowered(&file, &Request { fold: Fold::Layer, ..Request::default() });
        let f = l.folded.as_ref().unwrap();
        assert_eq!((f.layers, l.workload.repeat), (6, 6), "{}", file.display());
        assert!((f.flop - f.lacking_flop + f.outside_flop - l.unfolded_flop).abs() < 1.0);
        // A block's four products: forward, gradient of the input, of the weight.
        let of = |phase: Phase| {
            l.workload.kernels.iter().filter(|k| k.phase == phase && k.owns_weight() && k.is_gemm()).count()
        };
        assert_eq!(of(Phase::Forward), 4, "{}", file.display());
    }
}

/// Layers of the shared traces, as their models have them.
#[test]
fn layers_of_shared_traces() {
    let Some(shared) = shared() else { return };
    let shared = shared.join("traces");
    for (path, layers) in [
        ("astra-sim/megatron-tp8/megatron_et_0.json.gz", 40),
        ("astra-sim/megatron-tp8/megatron_kineto_0.json.gz", 40),
        ("generated-torch-cpu/gpt_ddp/host.0.json.gz", 2),
        ("generated-torch-cpu/gpt_ddp/device.0.json.gz", 2),
        ("hta/tracelens_b200_vllm_eager_prefill.json.gz", 36),
        ("hta/tracelens_h100_bert_small.json.gz", 4),
        ("hta/tracelens_h100_qwen05b.json.gz", 24),
        ("hta/tracelens_h100_vit.json.gz", 12),
        ("hta/tracelens_mi300x_timesformer.json.gz", 12),
        ("hta/tracelens_mi300x_sglang_qwen3_8b_extend.json.gz", 36),
        ("torch/gpt2_2block_tp2_rank0_et.json.gz", 2),
        ("torch/gpt2_2block_tp2_rank0_kineto.json.gz", 2),
        ("torch/gpt2_2layer_b2_train_et.json.gz", 2),
        ("torch/gpt2_2layer_b2_train_fx.json.gz", 2),
        ("torch/gpt2_2layer_b2_train_kineto.json.gz", 2),
        ("torch/gpt2_2layer_b4_infer_fx.json.gz", 2),
        ("torch/mlp6_ddp2_rank0_et.json.gz", 6),
        ("torch/mlp6_ddp2_rank0_kineto.json.gz", 6),
    ] {
        let file = shared.join(path);
        if !file.exists() {
            continue;
        }
        let l = lowered(&file, &Request { fold: Fold::Layer, ..Request::default() });
        let f = l.folded.as_ref().unwrap();
        assert_eq!(f.layers, layers, "{path}");
        let sum = f.flop - f.lacking_flop + f.outside_flop;
        assert!((sum - l.unfolded_flop).abs() <= 1e-9 * l.unfolded_flop, "{path}: {sum} {}", l.unfolded_flop);
    }
}

/// Steps are counted from 0 on the command line, in a file and in a reference; what is no step is said.
#[test]
fn steps_of_references_are_counted_from_zero() {
    let dir = folder("steps");
    let mut nodes = vec![
        node(1, 0, "[pytorch|profiler|execution_trace|process]", "", &[], &[]),
        node(2, 1, "[pytorch|profiler|execution_trace|thread]", "", &[], &[]),
    ];
    let mut id = 2;
    for step in 0..3u64 {
        id += 1;
        let mark = id;
        nodes.push(node(mark, 2, &format!("ProfilerStep#{step}"), "", &[], &[]));
        // Step n has 2 + n products of 12 x 8 by 8 x 8, each 1,536 FLOP.
        for product in 0..2 + step {
            id += 1;
            let schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor";
            let (from, to) = (10 + product, 11 + product);
            nodes.push(node(id, mark, "aten::mm", schema, &[(from, &[12, 8]), (100, &[8, 8])], &[(to, &[12, 8])]));
        }
    }
    let document = json!({"schema": "1.0.1", "pid": 1, "time": "now", "start_ts": 0, "finish_ts": 1, "nodes": nodes});
    let file = written(&dir, "host.json", &document);
    let name = file.display();
    let built = |text: &str| {
        let node = WorkloadSpec::load(Path::new(text)).unwrap();
        WorkloadSpec::build(&node).map_err(|e| e.to_string())
    };
    let whole = |text: &str| flop(&built(text).unwrap()) * built(text).unwrap().global_batch as f64;
    for step in 0..3u64 {
        assert_eq!(whole(&format!("trace:{name}?step={step}")), 1536.0 * (2 + step) as f64);
        std::fs::write(dir.join("t.yaml"), format!("kind: trace\npath: host.json\nstep: {step}\n")).unwrap();
        assert_eq!(whole(&dir.join("t.yaml").display().to_string()), 1536.0 * (2 + step) as f64);
    }
    // Left out: most work.
    assert_eq!(whole(&format!("trace:{name}")), 1536.0 * 4.0);
    // The batch that the trace tells, and another.
    let batch = |text: &str| built(text).map(|w| w.global_batch);
    assert_eq!(batch(&format!("trace:{name}?step=0&batch=3")), Ok(3));
    assert_eq!(batch(&format!("trace:{name}?step=0&batch=3&global_batch=24")), Ok(24));
    for (fields, words) in [
        ("step=99", &["step", "there is no step 99", "0, 1, 2"][..]),
        ("step=x", &["step: expected the number of a step", "\"x\""]),
        ("step=-1", &["step: expected the number of a step", "\"-1\""]),
        ("step=", &["step: expected the number of a step"]),
        ("step", &["step: expected the number of a step"]),
        ("stp=0", &["stp", "did you mean \"step\""]),
        ("batch=7", &["batch", "cannot be divided into 7 samples", "looks like"]),
        ("batch=0", &["batch", "at least 1", "\"0\""]),
    ] {
        let error = built(&format!("trace:{name}?{fields}")).unwrap_err();
        words.iter().for_each(|word| assert!(error.contains(word), "{fields}: {error}"));
        let (code, _, err) =
            flowspace(&["map", "--workload", &format!("trace:{name}?{fields}"), "--system", "systems/h100-dgx-8.yaml"]);
        assert_eq!(code, 1);
        words.iter().for_each(|word| assert!(err.contains(word), "{fields}: {err}"));
    }
    // In a study, relative to its file.
    let study = "name: steps\nquestion: Which step takes longer?\nsource: made for this test\n\
        workload: trace:host.json?step=1\nsystem: SYSTEM\naxes:\n  - name: step\n    field: workload\n    values:\n      \
        - trace:host.json?step=0\n      - trace:host.json?step=2\n";
    let system = Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/h100-dgx-8.yaml");
    let path = dir.join("study.yaml");
    std::fs::write(&path, study.replace("SYSTEM", &system.display().to_string())).unwrap();
    let run = dir.join("run");
    let (code, out, err) =
        flowspace(&["study", "run", &path.display().to_string(), "--out", &run.display().to_string(), "--no-plots"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(std::fs::read_to_string(run.join("results.csv")).unwrap().lines().count(), 3);
}
