//! Traces and graphs become workloads: FLOP, phases, folding, re-targeting.

use flowspace::trace::lower::coverage::coverage;
use flowspace::trace::lower::host::{self, Steps};
use flowspace::trace::lower::program::Program;
use flowspace::trace::ops::Options;
use flowspace::trace::{fx, host as host_trace};
use std::path::{Path, PathBuf};

/// The reference data beside the checkout, where there is any.
pub(super) fn shared() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = ["../shared", "../../shared"].iter().map(|p| root.join(p)).find(|p| p.is_dir());
    if found.is_none() {
        println!("no reference data beside the checkout: this check is skipped");
    }
    found
}

fn program(path: &Path, steps: Steps) -> Program {
    let trace = host_trace::read(path).unwrap_or_else(|e| panic!("{e}"));
    host::program(&trace, "trace", steps, &Options::default(), &|_| None).unwrap()
}

/// Two steps of a GPT under DDP, 6,088,032,256 FLOP each by torch.utils.flop_counter.
#[test]
fn gpt_ddp_has_the_flop_of_torchs_counter() {
    let Some(shared) = shared() else { return };
    for rank in 0..2 {
        let p = program(&shared.join(format!("traces/generated-torch-cpu/gpt_ddp/host.{rank}.json.gz")), Steps::All);
        let c = coverage(&p);
        assert_eq!(c.counted, 12_176_064_512, "{:?}", c.ops);
        assert!(c.unknown.is_empty(), "{:?}", c.unknown);
    }
}

/// Every graph and every training trace of torch_flops.json, exactly, in total and by operator.
#[test]
fn models_have_the_flop_of_torchs_counter() {
    let Some(shared) = shared() else { return };
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(shared.join("reference/torch_flops.json")).unwrap()).unwrap();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(shared.join("traces/torch")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut checked = 0;
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_string();
        let Some((model, b)) = ["gpt2_2layer", "gpt2_block", "resnet50"].iter().find_map(|m| {
            name.strip_prefix(&format!("{m}_b")).map(|rest| (*m, rest.split('_').next().unwrap().to_string()))
        }) else {
            continue;
        };
        let p = if name.contains("_fx") {
            fx::read(&file, &Options::default()).unwrap()
        } else if name.contains("_et") {
            program(&file, Steps::All)
        } else {
            continue;
        };
        let c = coverage(&p);
        let batch = &golden["models"][model]["batches"][&b];
        let (key, by_op) = if name.contains("infer") {
            ("forward_flops", "forward_by_op")
        } else {
            ("forward_backward_flops", "forward_backward_by_op")
        };
        assert_eq!(Some(c.counted), batch[key].as_u64(), "{name}: {:#?}", c.ops);
        for row in &c.ops {
            let wanted = batch[by_op][format!("aten.{}", row.op)].as_u64();
            assert_eq!(row.counted, wanted, "{name}: {}", row.op);
        }
        assert!(c.unknown.is_empty(), "{name}: {:?}", c.unknown);
        checked += 1;
    }
    assert_eq!(checked, 16);
}

// ---------------------------------------------------------------- small inputs of our own

use flowspace::trace::lower::program::{Origin, Part};
use flowspace::trace::lower::{Fold, Lowered, Request, load, lower};
use flowspace::workload::trace::explicit;
use flowspace::workload::{Kernel, Op, Phase, Workload, WorkloadSpec, write};
use serde_json::{Value, json};
use std::process::Command;

/// A folder of its own for each test.
pub(super) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace_lower_{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

pub(super) fn written(dir: &Path, name: &str, document: &Value) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, document.to_string()).unwrap();
    path
}

/// Pre-norm perceptron layers with a residual, batch 4, 6 tokens of 8 features, 16 inside, and a head, as an FX graph; with the
/// gradients of its products if `train`.
pub(super) fn layers_fx(layers: usize, train: bool) -> Value {
    mixed_fx(layers, train, &[])
}

/// The same, of which some layers have a product of [f, f] more between the other two.
pub(super) fn mixed_fx(layers: usize, train: bool, other: &[usize]) -> Value {
    let mut nodes: Vec<Value> = Vec::new();
    let mut add = |name: String, target: &str, kind: Option<&str>, args: Value, shape: &[u64]| {
        let op = if kind.is_some() { "placeholder" } else { "call_function" };
        let bytes = 4 * shape.iter().product::<u64>();
        nodes.push(json!({"name": name, "op": op, "target": target, "kind": kind, "args": args, "kwargs": {},
            "out": [{"shape": shape, "dtype": "float32", "bytes": bytes}]}));
        json!({"ref": name})
    };
    let (b, s, h, f) = (4, 6, 8, 16);
    let t = b * s;
    let mut x = add("x".into(), "x", Some("input"), json!([]), &[b, s, h]);
    let mut kept = Vec::new();
    for l in 0..layers {
        let up = add(format!("up{l}"), "up", Some("param"), json!([]), &[f, h]);
        let down = add(format!("down{l}"), "down", Some("param"), json!([]), &[h, f]);
        let n = add(format!("n{l}"), "aten._softmax.default", None, json!([x, -1, false]), &[b, s, h]);
        let flat = add(format!("nv{l}"), "aten.view.default", None, json!([n, [t, h]]), &[t, h]);
        let ut = add(format!("ut{l}"), "aten.t.default", None, json!([up]), &[h, f]);
        let u = add(format!("u{l}"), "aten.mm.default", None, json!([flat, ut]), &[t, f]);
        let g = add(format!("g{l}"), "aten.gelu.default", None, json!([u]), &[t, f]);
        let mut extra = None;
        let mut e = g.clone();
        if other.contains(&l) {
            let between = add(format!("between{l}"), "between", Some("param"), json!([]), &[f, f]);
            let et = add(format!("et{l}"), "aten.t.default", None, json!([between]), &[f, f]);
            e = add(format!("e{l}"), "aten.mm.default", None, json!([g, et]), &[t, f]);
            extra = Some(et);
        }
        let dt = add(format!("dt{l}"), "aten.t.default", None, json!([down]), &[f, h]);
        let d = add(format!("d{l}"), "aten.mm.default", None, json!([e, dt]), &[t, h]);
        let dv = add(format!("dv{l}"), "aten.view.default", None, json!([d, [b, s, h]]), &[b, s, h]);
        let sum = add(format!("add{l}"), "aten.add.Tensor", None, json!([x, dv]), &[b, s, h]);
        kept.push((flat, u, (g, e, extra), ut, dt, n.clone()));
        x = sum;
    }
    let head = add("head".into(), "head", Some("param"), json!([]), &[h, 32]);
    let flat = add("hv".into(), "aten.view.default", None, json!([x, [t, h]]), &[t, h]);
    let out = add("out".into(), "aten.mm.default", None, json!([flat, head]), &[t, 32]);
    if train {
        let seed = add("seed".into(), "aten.mse_loss_backward.default", None, json!([out, out]), &[t, 32]);
        let ht = add("ht".into(), "aten.t.default", None, json!([head]), &[32, h]);
        let mut grad = add("dx".into(), "aten.mm.default", None, json!([seed, ht]), &[t, h]);
        for (l, (flat, u, (g, e, extra), ut, dt, n)) in kept.into_iter().enumerate().rev() {
            let wt = add(format!("b1{l}"), "aten.t.default", None, json!([dt]), &[h, f]);
            let mut dg = add(format!("dg{l}"), "aten.mm.default", None, json!([grad, wt]), &[t, f]);
            let gt = add(format!("b2{l}"), "aten.t.default", None, json!([grad]), &[h, t]);
            add(format!("ddown{l}"), "aten.mm.default", None, json!([gt, e]), &[h, f]);
            if let Some(et) = extra {
                let wt = add(format!("b6{l}"), "aten.t.default", None, json!([et]), &[f, f]);
                let et = add(format!("b7{l}"), "aten.t.default", None, json!([dg]), &[f, t]);
                add(format!("dbetween{l}"), "aten.mm.default", None, json!([et, g]), &[f, f]);
                dg = add(format!("de{l}"), "aten.mm.default", None, json!([dg, wt]), &[t, f]);
            }
            let du = add(format!("du{l}"), "aten.gelu_backward.default", None, json!([dg, u]), &[t, f]);
            let wt = add(format!("b3{l}"), "aten.t.default", None, json!([ut]), &[f, h]);
            let dn = add(format!("dn{l}"), "aten.mm.default", None, json!([du, wt]), &[t, h]);
            let ut = add(format!("b4{l}"), "aten.t.default", None, json!([du]), &[f, t]);
            add(format!("dup{l}"), "aten.mm.default", None, json!([ut, flat]), &[f, h]);
            let nv = add(format!("b5{l}"), "aten.view.default", None, json!([n, [t, h]]), &[t, h]);
            let ds = add(format!("ds{l}"), "aten._softmax_backward_data.default", None, json!([dn, nv, -1]), &[t, h]);
            grad = add(format!("dadd{l}"), "aten.add.Tensor", None, json!([ds, grad]), &[t, h]);
        }
    }
    json!({"format": "aten-fx-json/1", "model": "layers", "batch": b, "nodes": nodes})
}

pub(super) fn lowered(path: &Path, request: &Request) -> Lowered {
    let program = load(path, request).unwrap_or_else(|e| panic!("{e}"));
    lower(&program, request).unwrap()
}

pub(super) fn flop(w: &Workload) -> f64 {
    w.kernels.iter().map(Kernel::flop).sum()
}

/// By hand, of one sample: a layer has softmax 5 x 48, two products of 2 x 6 x 8 x 16, gelu 96, addition 48 = 3,456; the head
/// 2 x 6 x 8 x 32 = 3,072.
#[test]
fn layers_fold_and_nothing_is_lost() {
    let dir = folder("fold");
    let file = written(&dir, "g.json", &layers_fx(5, false));
    let whole = lowered(&file, &Request::default());
    assert_eq!((whole.batch, whole.workload.kernels.len(), whole.workload.repeat), (4, 26, 1));
    assert_eq!(flop(&whole.workload), 5.0 * 3456.0 + 3072.0);
    assert_eq!(whole.workload.flop_per_iteration(), whole.coverage.flop as f64);
    let folded = lowered(&file, &Request { fold: Fold::Layer, ..Request::default() });
    let f = folded.folded.as_ref().unwrap();
    assert_eq!((folded.workload.repeat, folded.workload.kernels.len(), f.outside.len()), (5, 5, 1));
    assert_eq!(flop(&folded.workload) * 5.0 + f.outside_flop, whole.unfolded_flop);
    // The residual enters the layer once and is read twice.
    let carried: Vec<_> = folded.workload.tensors.iter().filter(|t| t.carried_from.is_some()).collect();
    assert_eq!((carried.len(), carried[0].consumers.len(), carried[0].rows, carried[0].cols), (1, 2, 8, 6));
}

#[test]
fn training_layers_fold_with_their_backward_pass() {
    let dir = folder("train");
    let file = written(&dir, "g.json", &layers_fx(4, true));
    let request = Request { fold: Fold::Layer, ..Request::default() };
    let whole = lowered(&file, &Request::default());
    let folded = lowered(&file, &request);
    let f = folded.folded.as_ref().unwrap();
    assert_eq!((folded.workload.repeat, folded.workload.kernels.len()), (4, 12));
    assert_eq!(flop(&folded.workload) * 4.0 + f.outside_flop, whole.unfolded_flop);
    assert!(folded.workload.training);
    // Each weight: one forward kernel that owns it, one that hands its gradient on, one that makes its gradient.
    let of = |phase: Phase, op: Op| folded.workload.kernels.iter().filter(|k| k.phase == phase && k.op == op).count();
    assert_eq!(
        (
            of(Phase::Forward, Op::GemmWeight),
            of(Phase::BackwardInput, Op::GemmWeight),
            of(Phase::BackwardWeight, Op::Gemm)
        ),
        (2, 2, 2)
    );
    for k in folded.workload.kernels.iter().filter(|k| k.phase != Phase::Forward && k.is_gemm()) {
        let owner = &folded.workload.kernels[k.weight_of.unwrap().kernel];
        let sizes = |k: &Kernel| {
            let mut s = [k.shape.m, k.shape.k, k.shape.n];
            s.sort_unstable();
            s
        };
        assert_eq!(sizes(k), sizes(owner), "{}", k.name);
    }
    // Gradients pass backwards, activations forwards.
    let names: Vec<&str> =
        folded.workload.tensors.iter().filter(|t| t.carried_from.is_some()).map(|t| t.name.as_str()).collect();
    assert!(
        names.iter().any(|n| n.starts_with("layer.in")) && names.iter().any(|n| n.starts_with("layer.grad_in")),
        "{names:?}"
    );
}

#[test]
fn what_does_not_repeat_is_not_folded() {
    let dir = folder("no_fold");
    let file = written(&dir, "g.json", &layers_fx(1, false));
    let request = Request { fold: Fold::Layer, ..Request::default() };
    let error = lower(&load(&file, &request).unwrap(), &request).unwrap_err();
    assert!(error.contains("no repeated layer"), "{error}");
}

/// A graph written out reads back to the same graph, and maps alike.
#[test]
fn written_graphs_are_the_graph() {
    let dir = folder("write");
    for (train, fold) in [(false, Fold::None), (true, Fold::None), (true, Fold::Layer)] {
        let file = written(&dir, "g.json", &layers_fx(3, train));
        let l = lowered(&file, &Request { fold, ..Request::default() });
        let (_, again) = explicit(&l.workload, "test").unwrap();
        assert_eq!(again.kernels, l.workload.kernels);
        assert_eq!(write::graph(&again, "test"), write::graph(&explicit(&again, "test").unwrap().1, "test"));
        assert_eq!(again.flop_per_iteration(), l.workload.flop_per_iteration());
    }
}

pub(super) fn flowspace(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_flowspace"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[test]
fn traces_are_mapped_like_the_file_written_of_them() {
    let dir = folder("map");
    let file = written(&dir, "g.json", &layers_fx(3, true));
    let graph = dir.join("w.yaml");
    let (code, out, err) = flowspace(&[
        "trace",
        "lower",
        file.to_str().unwrap(),
        "--fold",
        "layer",
        "--global-batch",
        "64",
        "--out",
        graph.to_str().unwrap(),
    ]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("folded: 3 layers of 12 kernels"), "{out}");
    let system = "systems/h100-dgx-8.yaml";
    let direct = format!("trace:{}?fold=layer&global_batch=64", file.display());
    std::fs::write(dir.join("t.yaml"), "kind: trace\npath: g.json\nfold: layer\nglobal_batch: 64\n").unwrap();
    let yaml = dir.join("t.yaml");
    let plans: Vec<Value> = [graph.to_str().unwrap(), &direct, yaml.to_str().unwrap()]
        .iter()
        .map(|w| {
            let (code, out, err) = flowspace(&["map", "--workload", w, "--system", system, "--format", "json"]);
            assert_eq!(code, 0, "{err}");
            assert_eq!(
                err.contains("folded: 3 layers"),
                *w != graph.to_str().unwrap(),
                "what is left out is told: {err}"
            );
            serde_json::from_str(&out).unwrap()
        })
        .collect();
    assert_eq!(plans[0]["status"], "optimal", "{}", plans[0]);
    assert!(plans[0]["objective"].as_f64().unwrap() > 0.0);
    for key in ["objective", "bound", "proof", "degrees", "tile_count", "status"] {
        assert_eq!(plans[0][key], plans[1][key]);
        assert_eq!(plans[0][key], plans[2][key]);
    }
}

/// The key of a study's row is a hash of the graph, so it must follow the content of the trace.
#[test]
fn a_changed_trace_is_another_workload() {
    let dir = folder("key");
    let file = written(&dir, "g.json", &layers_fx(3, false));
    let node = WorkloadSpec::load(Path::new(&format!("trace:{}", file.display()))).unwrap();
    let first = WorkloadSpec::build(&node).unwrap();
    assert_eq!(WorkloadSpec::build(&node).unwrap(), first);
    written(&dir, "g.json", &layers_fx(2, false));
    assert_ne!(WorkloadSpec::build(&node).unwrap(), first);
    let gone = WorkloadSpec::load(Path::new("trace:no/such/file.json")).unwrap();
    let error = WorkloadSpec::build(&gone).unwrap_err().to_string();
    assert!(error.contains("no/such/file.json"), "{error}");
    let bad = WorkloadSpec::load(Path::new("trace:x.json?fold=diagonal&tpp=3")).unwrap();
    let error = WorkloadSpec::build(&bad).unwrap_err().to_string();
    assert!(error.contains("none, layer") || error.contains("diagonal"), "{error}");
    assert!(error.contains("tpp"), "{error}");
}

/// A node of an execution trace, schema 1.0.1.
pub(super) fn node(
    id: u64,
    parent: u64,
    name: &str,
    schema: &str,
    inputs: &[(u64, &[u64])],
    outputs: &[(u64, &[u64])],
) -> Value {
    let tensor =
        |(storage, shape): &(u64, &[u64])| json!([storage, storage, 0, shape.iter().product::<u64>(), 2, "cuda:0"]);
    let values = |list: &[(u64, &[u64])]| list.iter().map(tensor).collect::<Vec<_>>();
    let shapes = |list: &[(u64, &[u64])]| list.iter().map(|t| json!(t.1)).collect::<Vec<_>>();
    json!({"name": name, "id": id, "rf_id": id, "parent": parent, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0,
        "op_schema": schema, "inputs": values(inputs), "input_shapes": shapes(inputs),
        "input_types": vec!["Tensor(c10::Half)"; inputs.len()], "outputs": values(outputs), "output_shapes": shapes(outputs),
        "output_types": vec!["Tensor(c10::Half)"; outputs.len()]})
}

/// Two tensor-parallel perceptron layers of hidden 8 (inner 16, of which this rank of 2 has 8), 12 tokens, and storage 20 used
/// for two results in turn.
pub(super) fn sharded_trace() -> Value {
    let mut nodes = vec![
        node(1, 0, "[pytorch|profiler|execution_trace|process]", "", &[], &[]),
        node(2, 1, "[pytorch|profiler|execution_trace|thread]", "", &[], &[]),
    ];
    let mut id = 3;
    let mut next = || {
        id += 1;
        id
    };
    let mut x = 10;
    for l in 0..2u64 {
        let (up, down, sum) = (100 + l, 200 + l, 30 + l);
        nodes.push(node(next(), 2, "aten::empty", "aten::empty(int[] size) -> Tensor", &[], &[(20, &[12, 8])]));
        nodes.push(node(
            next(),
            2,
            "aten::mm",
            "aten::mm(Tensor self, Tensor mat2) -> Tensor",
            &[(x, &[12, 8]), (up, &[8, 8])],
            &[(20, &[12, 8])],
        ));
        nodes.push(node(
            next(),
            2,
            "aten::relu_",
            "aten::relu_(Tensor(a!) self) -> Tensor(a!)",
            &[(20, &[12, 8])],
            &[(20, &[12, 8])],
        ));
        nodes.push(node(
            next(),
            2,
            "aten::mm",
            "aten::mm(Tensor self, Tensor mat2) -> Tensor",
            &[(20, &[12, 8]), (down, &[8, 8])],
            &[(sum, &[12, 8])],
        ));
        let comm = next();
        let mut c = node(comm, 2, "record_param_comms", "", &[(sum, &[12, 8])], &[(sum, &[12, 8])]);
        for (field, more) in [
            ("inputs", json!([7, 93825114103440u64, 0, "allreduce", [], [], 2])),
            ("input_shapes", json!([[], [], [], [], [], [], []])),
            ("input_types", json!(["Int", "Int", "Int", "String", "GenericList[]", "GenericList[]", "Int"])),
        ] {
            c[field].as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
        }
        nodes.push(c);
        nodes.push(node(next(), comm, "nccl:all_reduce", "", &[(sum, &[12, 8])], &[]));
        x = sum;
    }
    json!({"schema": "1.0.1", "pid": 1, "time": "now", "start_ts": 0, "finish_ts": 1, "nodes": nodes})
}

#[test]
fn shards_are_scaled_back_where_sums_tell_the_degree() {
    let dir = folder("shards");
    let file = written(&dir, "host.json", &sharded_trace());
    let program = load(&file, &Request::default()).unwrap();
    // Storage 20 has four versions: two products and two activations in place.
    let versions: Vec<_> = program.steps.iter().filter(|s| s.comm.is_none()).map(|s| s.writes.clone()).collect();
    assert_eq!(versions.len(), 6);
    assert!(versions.iter().flatten().collect::<std::collections::HashSet<_>>().len() == 6, "{versions:?}");
    assert!(program.steps.iter().all(|s| s.part == Part::Forward));
    assert_eq!(program.values.iter().filter(|v| v.origin == Origin::Parameter).count(), 4);
    let one = Request { batch: Some(1), ..Request::default() };
    let l = lower(&program, &one).unwrap();
    assert_eq!((l.parallel.tp, l.batch), (2, 1));
    let shapes: Vec<(u64, u64, u64)> = l.workload.kernels.iter().map(|k| (k.shape.m, k.shape.k, k.shape.n)).collect();
    // Column-parallel: 16 rows; activation: 16 rows; row-parallel: contracts over 16.
    assert_eq!(shapes, [(16, 8, 12), (16, 1, 12), (8, 16, 12), (16, 8, 12), (16, 1, 12), (8, 16, 12)]);
    // One rank does half.
    assert_eq!(flop(&l.workload), 2.0 * l.coverage.flop as f64);
    // The sum is no kernel: the second layer reads the row-parallel product itself.
    let made = l.workload.tensors.iter().find(|t| t.producer == Some(2)).unwrap();
    assert_eq!(made.consumers[0].kernel, 3);
    let as_recorded = lower(&program, &Request { tp: Some(1), ..one }).unwrap();
    assert_eq!(flop(&as_recorded.workload), as_recorded.coverage.flop as f64);
}

#[test]
fn flops_are_printed_and_faults_are_named() {
    let dir = folder("cli");
    let file = written(&dir, "g.json", &layers_fx(2, false));
    let (code, out, err) = flowspace(&["trace", "flops", file.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""));
    // 4 samples of two layers and a head: 4 x (2 x 3,456 + 3,072); products alone 4 x (2 x 3,072 + 3,072).
    assert!(out.contains("39936 FLOP") && out.contains("torch.utils.flop_counter: 36864 FLOP"), "{out}");
    let (_, json, _) = flowspace(&["trace", "flops", file.to_str().unwrap(), "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["flop"], &json["counted"], &json["of_calls"]["known_flop"]),
        (&json!(39936), &json!(36864), &json!(1.0))
    );
    std::fs::write(dir.join("bad.json"), "{\"format\": \"aten-fx-json/1\", \"nodes\": [{\"name\": \"a\"}, 3]}")
        .unwrap();
    let (code, _, err) = flowspace(&["trace", "flops", dir.join("bad.json").to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(err.contains("node a: op: missing") && err.contains("node 1: name: missing"), "{err}");
    for text in ["", "{", "[]", "hello"] {
        std::fs::write(dir.join("junk.json"), text).unwrap();
        let (code, _, err) = flowspace(&["trace", "lower", dir.join("junk.json").to_str().unwrap()]);
        assert_eq!(code, 1, "{text:?}");
        assert!(err.contains("junk.json"), "{err}");
    }
}

/// Cut, flipped and hostile inputs are errors or are read; they never panic.
#[test]
fn broken_inputs_do_not_panic() {
    let dir = folder("broken");
    for document in [layers_fx(2, true).to_string(), sharded_trace().to_string()] {
        let bytes = document.as_bytes();
        let mut state = 1u64;
        for i in 0..300 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (state >> 33) as usize % bytes.len();
            let mut broken = bytes.to_vec();
            if i % 3 == 0 {
                broken.truncate(at)
            } else {
                broken[at] = b"0123456789-{}[],\"ae"[(state >> 7) as usize % 19]
            }
            let file = dir.join("b.json");
            std::fs::write(&file, &broken).unwrap();
            for fold in [Fold::None, Fold::Layer] {
                let request = Request { fold, ..Request::default() };
                if let Ok(program) = load(&file, &request) {
                    let _ = lower(&program, &request);
                }
            }
        }
    }
}

/// Two GPT-2 blocks trained with TP 2, and one block trained whole: twice the block's products, by torch's counter.
#[test]
fn a_sharded_training_step_has_the_flop_of_the_whole_model() {
    let Some(shared) = shared() else { return };
    let request = Request::default();
    let l = lowered(&shared.join("traces/torch/gpt2_2block_tp2_rank0_et.json.gz"), &request);
    assert_eq!((l.parallel.tp, l.batch), (2, 2));
    let products: f64 = l.workload.kernels.iter().filter(|k| k.is_gemm()).map(Kernel::flop).sum();
    let golden: Value =
        serde_json::from_slice(&std::fs::read(shared.join("reference/torch_flops.json")).unwrap()).unwrap();
    let block = golden["models"]["gpt2_block"]["batches"]["1"]["forward_backward_flops"].as_f64().unwrap();
    assert_eq!(products, 2.0 * block);
    assert!(l.parallel.notes.is_empty(), "{:?}", l.parallel.notes);
}

/// Megatron, TP 8 on A100: the whole model's sizes, folded to its 40 layers, and plans proven on other systems.
#[test]
fn megatron_is_unsharded_folded_and_mapped() {
    let Some(shared) = shared() else { return };
    let file = shared.join("traces/astra-sim/megatron-tp8/megatron_et_0.json.gz");
    let whole = lowered(&file, &Request::default());
    let folded = lowered(&file, &Request { fold: Fold::Layer, ..Request::default() });
    let f = folded.folded.as_ref().unwrap();
    assert_eq!((folded.parallel.tp, folded.batch, folded.workload.repeat), (8, 4, 40));
    assert_eq!(flop(&folded.workload) * 40.0 + f.outside_flop, whole.unfolded_flop);
    let products: Vec<(u64, u64, u64, u64)> = folded
        .workload
        .kernels
        .iter()
        .filter(|k| k.is_gemm())
        .map(|k| (k.shape.outer, k.shape.m, k.shape.k, k.shape.n))
        .collect();
    // Hidden 4096, 64 heads of 64, 2048 tokens, inner 16384.
    assert_eq!(
        products,
        [
            (1, 12288, 4096, 2048),
            (64, 2048, 64, 2048),
            (64, 64, 2048, 2048),
            (1, 4096, 4096, 2048),
            (1, 16384, 4096, 2048),
            (1, 4096, 16384, 2048),
        ]
    );
    let workload = format!("trace:{}?fold=layer&global_batch=1024", file.display());
    for system in
        ["systems/h100-dgx-8.yaml", "systems/sn30-1024-torus-2d.yaml", "systems/sn40l-16-fully-connected.yaml"]
    {
        let (code, out, err) = flowspace(&["map", "--workload", &workload, "--system", system, "--format", "json"]);
        assert_eq!(code, 0, "{system}: {err}");
        let plan: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(plan["status"], "optimal", "{system}");
    }
}

/// A trace that cannot be believed, and a request that does not fit it, give an error and no number.
#[test]
fn numbers_that_would_be_wrong_are_refused() {
    let dir = folder("refused");
    let whole = sharded_trace();
    let nodes = whole["nodes"].as_array().unwrap().clone();
    let with = |nodes: Vec<Value>| json!({"schema": whole["schema"], "nodes": nodes});
    let mut twice = nodes.clone();
    twice.push(nodes[nodes.len() - 1].clone());
    let mut dangling = nodes.clone();
    dangling.retain(|n| n["id"] != 2);
    let mut cyclic = nodes.clone();
    let last = cyclic.len() - 1;
    cyclic[last]["ctrl_deps"] = cyclic[last]["id"].clone();
    let text = whole.to_string();
    for (name, document, part) in [
        ("none", with(Vec::new()).to_string(), "nodes: expected at least one operator"),
        ("twice", with(twice).to_string(), "another node has this id"),
        ("cyclic", with(cyclic).to_string(), "waits for itself"),
        ("negative", text.replacen("[[12,", "[[-12,", 1), "expected sizes of at least 0"),
        ("absurd", text.replacen("[[12,", "[[9000000000000000000,", 1), "elements"),
        ("blank", " \n".to_string(), "the file is empty"),
    ] {
        let file = dir.join(format!("{name}.json"));
        std::fs::write(&file, document).unwrap();
        for command in ["flops", "lower"] {
            let (code, out, err) = flowspace(&["trace", command, file.to_str().unwrap()]);
            assert_eq!((code, out.as_str()), (1, ""), "{name}");
            assert!(err.contains(part) && err.contains(&format!("{name}.json")), "{name}: {err}");
        }
    }
    let file = written(&dir, "whole.json", &whole);
    let file = file.to_str().unwrap();
    for (option, value) in [
        ("--batch", "7"),
        ("--batch", "99999999999"),
        ("--tp", "99999999999"),
        ("--dp", "99999999999"),
        ("--word", "65"),
        ("--micro-batch", "1000000"),
        ("--global-batch", "18446744073709551615"),
        ("--step", "99"),
    ] {
        let (code, out, err) = flowspace(&["trace", "lower", file, option, value]);
        assert_eq!((code, out.as_str()), (1, ""), "{option} {value}: {err}");
        let field = option.trim_start_matches('-').replace('-', "_");
        assert!(err.contains(&field) && err.contains(value), "{option} {value}: {err}");
    }
    let (code, _, err) = flowspace(&["trace", "replay", file]);
    assert_eq!(code, 1);
    assert!(err.contains("expected a linked trace") && err.contains("PyTorch execution trace"), "{err}");
}

/// 6 products of 4 x 5 by 5 x 7 are 2 x 6 x 140 = 1,680 FLOP: of `aten::matmul` itself where nothing below it multiplies, though a copy of an operand does
/// stand there; of the `aten::bmm` that it calls otherwise. Each counts once.
#[test]
fn a_matmul_with_its_own_kernel_counts_its_flop() {
    let dir = folder("matmul");
    let of = |name: &str, below: &[Value]| {
        let mut nodes = vec![
            node(1, 0, "[pytorch|profiler|execution_trace|process]", "", &[], &[]),
            node(2, 1, "[pytorch|profiler|execution_trace|thread]", "", &[], &[]),
            node(4, 2, "aten::matmul", "", &[(10, &[2, 3, 4, 5]), (11, &[2, 3, 5, 7])], &[(12, &[2, 3, 4, 7])]),
        ];
        nodes.extend_from_slice(below);
        let trace = json!({"schema": "1.0.1", "pid": 1, "time": "now", "start_ts": 0, "finish_ts": 1, "nodes": nodes});
        let found = coverage(&program(&written(&dir, name, &trace), Steps::All));
        (found.flop, found.counted, found.ops.iter().map(|r| r.op.clone()).collect::<Vec<_>>())
    };
    let copy = node(5, 4, "aten::clone", "", &[(10, &[2, 3, 4, 5])], &[(13, &[2, 3, 4, 5])]);
    let bmm = node(6, 4, "aten::bmm", "", &[(13, &[6, 4, 5]), (11, &[6, 5, 7])], &[(12, &[6, 4, 7])]);
    assert_eq!(of("alone.json", &[]), (1680, 0, vec!["matmul".to_string()]));
    assert_eq!(of("copied.json", std::slice::from_ref(&copy)), (1680, 0, vec!["matmul".to_string()]));
    assert_eq!(of("called.json", &[copy, bmm]), (1680, 1680, vec!["bmm".to_string(), "clone".to_string()]));
}

/// Half-precision layers, look-ups by indices of 8 bytes in a table of single precision, statistics of a norm in single precision, a number of
/// Python's (8 bytes) times half precision.
fn mixed_trace() -> Value {
    // 4 samples of 6 tokens, a table of 100 rows of 8 words of 4 bytes, a weight of 8 x 16 half words.
    let tensor =
        |id: u64, shape: &[u64], bytes: u64| json!([id, id + 100, 0, shape.iter().product::<u64>(), bytes, "cuda:0"]);
    let of = |list: &[(u64, &[u64], &str)]| {
        let bytes = |t: &str| {
            if t.contains("long") || t == "double" {
                8
            } else if t.contains("Half") {
                2
            } else {
                4
            }
        };
        json!({
            "values": list.iter().map(|(id, shape, t)| tensor(*id, shape, bytes(t))).collect::<Vec<_>>(),
            "shapes": list.iter().map(|(_, shape, _)| json!(shape)).collect::<Vec<_>>(),
            "types": list.iter().map(|(_, _, t)| format!("Tensor({t})")).collect::<Vec<_>>(),
        })
    };
    let op = |id: u64, name: &str, schema: &str, inputs: Value, outputs: Value| {
        json!({"id": id, "name": name, "ctrl_deps": 1, "inputs": inputs, "outputs": outputs,
            "attrs": [{"name": "rf_id", "type": "uint64", "value": id}, {"name": "fw_parent", "type": "uint64", "value": 0},
                {"name": "seq_id", "type": "int64", "value": -1}, {"name": "scope", "type": "uint64", "value": 0},
                {"name": "tid", "type": "uint64", "value": 1}, {"name": "fw_tid", "type": "uint64", "value": 0},
                {"name": "op_schema", "type": "string", "value": schema}]})
    };
    let (single, half, index) = ("float", "c10::Half", "long int");
    let root = json!({"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "inputs": of(&[]), "outputs": of(&[]), "attrs": []});
    let mut norm = of(&[(4, &[24, 8], single)]);
    for (key, value) in [("values", json!([8])), ("shapes", json!([[]])), ("types", json!("GenericList[Int]"))] {
        norm[key].as_array_mut().unwrap().push(value);
    }
    json!({"schema": "1.1.1-chakra.0.0.4", "nodes": [
        root,
        op(3, "aten::embedding", "", of(&[(2, &[100, 8], single), (3, &[4, 6], index)]), of(&[(4, &[4, 6, 8], single)])),
        op(4, "aten::native_layer_norm", "", norm,
            of(&[(5, &[24, 8], single), (6, &[24, 1], single), (7, &[24, 1], single)])),
        op(5, "aten::_to_copy", "", of(&[(5, &[24, 8], single)]), of(&[(8, &[24, 8], half)])),
        op(6, "aten::mm", "", of(&[(8, &[24, 8], half), (9, &[8, 16], half)]), of(&[(10, &[24, 16], half)])),
        op(7, "aten::relu", "", of(&[(10, &[24, 16], half)]), of(&[(11, &[24, 16], half)])),
        op(8, "aten::mm", "", of(&[(11, &[24, 16], half), (12, &[16, 32], half)]), of(&[(13, &[24, 32], half)])),
        op(9, "aten::mul", "", of(&[(13, &[24, 32], half), (14, &[], "double")]), of(&[(15, &[24, 32], half)])),
    ]})
}

/// By hand: each tensor has the bytes of its own type, the table is held, and only the rows that are looked up are moved.
#[test]
fn tensors_have_the_bytes_of_their_types() {
    let dir = folder("mixed");
    let file = written(&dir, "mixed.json", &mixed_trace());
    let l = lowered(&file, &Request { batch: Some(4), ..Request::default() });
    let w = &l.workload;
    assert_eq!(w.word_bytes, 2.0);
    let of = |name: &str| {
        w.tensors.iter().find(|t| t.name.starts_with(name)).unwrap_or_else(|| panic!("{name}: {:?}", w.tensors))
    };
    let bytes = |name: &str| of(name).bytes(w.word_bytes);
    // One sample: 6 tokens of 8 features.
    assert_eq!((bytes("in103"), bytes("embedding_3"), bytes("native_layer_norm_4")), (48.0, 192.0, 192.0));
    assert_eq!((bytes("_to_copy_5"), bytes("mm_6"), bytes("mm_8")), (96.0, 192.0, 384.0));
    let kernel = |name: &str| w.kernels.iter().find(|k| k.name.starts_with(name)).unwrap();
    assert_eq!((kernel("embedding").extra_dram_bytes, kernel("embedding").word), (192.0, Some(4.0)));
    assert_eq!((kernel("native_layer_norm").word, kernel("mm_6").word), (Some(4.0), None));
    assert_eq!(kernel("mul_9").word, None, "a number of Python's does not raise the type");
    assert_eq!(w.held_bytes, 3208.0, "the table of 100 x 8 words of 4 bytes, and the number");
    // The same through a file, and all in one word where that is asked for.
    let (_, back) = explicit(w, "test").unwrap();
    assert_eq!(&back, w);
    let one = lowered(&file, &Request { batch: Some(4), word: Some(2.0), ..Request::default() });
    assert!(
        one.workload.tensors.iter().all(|t| t.word.is_none()) && one.workload.kernels.iter().all(|k| k.word.is_none())
    );
}
