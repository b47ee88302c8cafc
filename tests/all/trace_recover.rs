//! What ranks say to each other, and the degrees of parallelism that it is recovered from.

use super::trace_lower::{flop, flowspace, folder, layers_fx, lowered, node, sharded_trace, shared, written};
use flowspace::trace::lower::recover::Role;
use flowspace::trace::lower::{Lowered, Request};
use flowspace::workload::Op;
use serde_json::{Value, json};
use std::path::Path;

/// Host traces of two ranks fit together; with another size of one sum they do not.
#[test]
fn ranks_are_checked_from_recorded_traces() {
    let dir = folder("ranks");
    let good = sharded_trace();
    written(&dir, "run_rank0_et.json", &good);
    written(&dir, "run_rank1_et.json", &good);
    let (code, out, err) = flowspace(&["trace", "check", dir.to_str().unwrap()]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("2 ranks") && out.contains("2 ALL_REDUCE") && out.contains("the ranks fit together"), "{out}");
    let mut bad = good.clone();
    let comm = bad["nodes"].as_array_mut().unwrap().iter_mut().find(|n| n["name"] == "record_param_comms").unwrap();
    comm["inputs"][0][3] = json!(48);
    comm["outputs"][0][3] = json!(48);
    comm["input_shapes"][0] = json!([6, 8]);
    comm["output_shapes"][0] = json!([6, 8]);
    written(&dir, "run_rank1_et.json", &bad);
    let (code, out, _) = flowspace(&["trace", "check", dir.join("run").to_str().unwrap()]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("mismatch (bytes)") && out.contains("96 bytes") && out.contains("192 bytes"), "{out}");
    // Our own recordings: pairs of two processes each.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    for (run, calls) in [("torch_ddp", "1 ALL_REDUCE, 2 BROADCAST"), ("torch_collectives", "1 REDUCE_SCATTER")] {
        let (code, out, err) = flowspace(&["trace", "check", root.join(run).to_str().unwrap()]);
        assert_eq!(code, 0, "{run}: {out}{err}");
        assert!(out.contains(calls), "{run}: {out}");
    }
    let (code, _, err) = flowspace(&["trace", "check", root.join("nobody").to_str().unwrap()]);
    assert!(code == 1 && err.contains("neither files PREFIX.<rank>.et"), "{err}");
}

/// Tensors by number, with their shapes.
type Shapes<'t> = &'t [(u64, &'t [u64])];

/// A host trace of schema 1.0.1 of these operators: name, arguments, results. Collectives are those of a group of so many ranks: what they write,
/// what they read.
fn of_operators(list: &[(&str, Shapes<'_>, Shapes<'_>)], ranks: u64) -> Value {
    let mut nodes = vec![
        node(1, 0, "[pytorch|profiler|execution_trace|process]", "", &[], &[]),
        node(2, 1, "[pytorch|profiler|execution_trace|thread]", "", &[], &[]),
    ];
    for (i, (name, inputs, outputs)) in list.iter().enumerate() {
        let id = 10 * (i as u64 + 1);
        let Some(kind) = name.strip_prefix("c10d::") else {
            nodes.push(node(id, 2, name, "", inputs, outputs));
            continue;
        };
        nodes.push(node(id, 2, name, "", &[outputs[0], inputs[0]], &[]));
        let mut c = node(id + 1, id, "record_param_comms", "", inputs, outputs);
        for (field, more) in [
            ("inputs", json!([7, 93825114103440u64, 0, kind, [], [], ranks])),
            ("input_shapes", json!([[], [], [], [], [], [], []])),
            ("input_types", json!(["Int", "Int", "Int", "String", "GenericList[]", "GenericList[]", "Int"])),
        ] {
            c[field].as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
        }
        nodes.push(c);
    }
    json!({"schema": "1.0.1", "pid": 1, "time": "now", "start_ts": 0, "finish_ts": 1, "nodes": nodes})
}

fn roles(l: &Lowered) -> Vec<(Role, u64, Option<u64>)> {
    l.parallel.recovered.table.iter().map(|f| (f.role, f.calls, f.ranks)).collect()
}

/// Sequence parallelism of two ranks: 12 tokens, of which a rank normalises 6; products over all of them on half of the features.
#[test]
fn tokens_split_between_products_are_put_together() {
    let dir = folder("sequence");
    let document = of_operators(
        &[
            ("aten::_softmax", &[(10, &[6, 8])], &[(11, &[6, 8])]),
            ("c10d::_allgather_base_", &[(11, &[6, 8])], &[(12, &[12, 8])]),
            ("aten::mm", &[(12, &[12, 8]), (100, &[8, 8])], &[(13, &[12, 8])]),
            ("aten::relu", &[(13, &[12, 8])], &[(14, &[12, 8])]),
            ("aten::mm", &[(14, &[12, 8]), (101, &[8, 8])], &[(15, &[12, 8])]),
            ("c10d::_reduce_scatter_base_", &[(15, &[12, 8])], &[(16, &[6, 8])]),
            ("aten::_softmax", &[(16, &[6, 8])], &[(17, &[6, 8])]),
            ("c10d::_allgather_base_", &[(17, &[6, 8])], &[(18, &[12, 8])]),
            ("aten::mm", &[(18, &[12, 8]), (102, &[8, 8])], &[(19, &[12, 8])]),
            ("aten::relu", &[(19, &[12, 8])], &[(20, &[12, 8])]),
            ("aten::mm", &[(20, &[12, 8]), (103, &[8, 8])], &[(21, &[12, 8])]),
            ("c10d::_reduce_scatter_base_", &[(21, &[12, 8])], &[(22, &[6, 8])]),
        ],
        2,
    );
    let file = written(&dir, "host.json", &document);
    let l = lowered(&file, &Request { batch: Some(1), ..Request::default() });
    assert_eq!((l.parallel.tp, l.parallel.dp), (2, 1), "{:?}", roles(&l));
    assert_eq!(roles(&l), [(Role::Sequence, 2, Some(2)), (Role::Sequence, 2, Some(2))]);
    let shapes: Vec<(u64, u64, u64)> =
        l.workload.kernels.iter().filter(|k| k.is_gemm()).map(|k| (k.shape.m, k.shape.k, k.shape.n)).collect();
    assert_eq!(shapes, [(16, 8, 12), (8, 16, 12), (16, 8, 12), (8, 16, 12)]);
    // The second norm reads what the product before it made, all 12 tokens of it.
    let norms: Vec<_> = l.workload.kernels.iter().filter(|k| k.name.contains("softmax")).collect();
    assert_eq!(norms[1].shape.rows() * norms[1].shape.n, 96, "{norms:?}");
    assert!(l.notes.iter().all(|n| !n.contains("left")), "{:?}", l.notes);
}

/// Parameters of two ranks, gathered before they are multiplied with.
#[test]
fn gathered_parameters_are_weights() {
    let dir = folder("sharded_parameters");
    let document = of_operators(
        &[
            ("c10d::_allgather_base_", &[(300, &[32])], &[(301, &[8, 8])]),
            ("aten::mm", &[(10, &[12, 8]), (301, &[8, 8])], &[(13, &[12, 8])]),
            ("c10d::_allgather_base_", &[(302, &[32])], &[(303, &[8, 8])]),
            ("aten::mm", &[(13, &[12, 8]), (303, &[8, 8])], &[(15, &[12, 8])]),
        ],
        2,
    );
    let l = lowered(&written(&dir, "host.json", &document), &Request { batch: Some(1), ..Request::default() });
    assert_eq!((l.parallel.tp, l.parallel.dp, l.workload.global_batch), (1, 2, 2), "{:?}", roles(&l));
    assert_eq!(roles(&l), [(Role::ShardedParameters, 2, Some(2))]);
    assert!(l.workload.kernels.iter().all(|k| k.op == Op::GemmWeight && k.weight_elements() == 64.0));
    assert_eq!(l.workload.held_bytes, 0.0);
}

/// Four ranks with experts of their own: the all-to-alls belong to the kernels around them, the experts of all ranks are held.
#[test]
fn experts_are_exchanged_among_the_chosen_ranks() {
    let dir = folder("experts");
    let document = of_operators(
        &[
            ("aten::mm", &[(10, &[12, 8]), (100, &[8, 8])], &[(11, &[12, 8])]),
            ("c10d::alltoall_base_", &[(11, &[12, 8])], &[(12, &[12, 8])]),
            ("aten::mm", &[(12, &[12, 8]), (101, &[8, 16])], &[(13, &[12, 16])]),
            ("aten::mm", &[(13, &[12, 16]), (102, &[16, 8])], &[(14, &[12, 8])]),
            ("c10d::alltoall_base_", &[(14, &[12, 8])], &[(15, &[12, 8])]),
            ("aten::mm", &[(15, &[12, 8]), (103, &[8, 8])], &[(16, &[12, 8])]),
        ],
        4,
    );
    let file = written(&dir, "host.json", &document);
    let one = Request { batch: Some(1), ..Request::default() };
    let l = lowered(&file, &one);
    assert_eq!((l.parallel.ep, l.parallel.tp, roles(&l)), (4, 1, vec![(Role::Expert, 2, Some(4))]));
    let made: Vec<usize> = l.workload.kernels.iter().map(|k| k.collectives.len()).collect();
    assert_eq!(made, [1, 0, 1, 0]);
    // 12 tokens of 8 half words.
    assert_eq!(l.workload.kernels[0].collectives[0].bytes, 192.0);
    // Two weights of 128 half words on each of three other ranks.
    assert_eq!(l.workload.held_bytes, 3.0 * 2.0 * 256.0);
    let l = lowered(&file, &Request { ep: Some(2), ..one });
    assert_eq!((l.parallel.ep, l.workload.held_bytes), (2, 512.0));
    assert!(l.notes.iter().any(|n| n.contains("ep 2 is as given")), "{:?}", l.notes);
    let (code, out, err) = flowspace(&["trace", "lower", file.to_str().unwrap(), "--batch", "1", "--pp", "3"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("recovered: expert parallelism (EP): 2 alltoallbase among 4 ranks, 384 B"), "{out}");
    assert!(out.contains("PP 3, EP 4") && out.contains("the graph is one stage of 3"), "{out}");
}

/// Steps of four processes, recorded by `scripts/record_traces.py` (PyTorch, gloo): roles, degrees and microbatches are those that the script asked for.
/// Gloo says of no call in which group it is made: sizes tell, or that there is one group alone.
#[test]
fn degrees_of_recorded_runs_are_recovered() {
    let of = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/traces/torch_{name}_host.json.gz"));
        lowered(&file, &Request::default())
    };
    // Four stages, two microbatches of eight samples; the second stage: activations in and out, gradients in and out.
    let l = of("pipeline_rank1");
    assert_eq!(roles(&l), [(Role::Pipeline, 4, Some(4)), (Role::Pipeline, 4, Some(4))]);
    assert_eq!((l.parallel.pp, l.parallel.tp, l.parallel.dp, l.microbatches), (4, 1, 1, 2));
    // Keys and values three times on around a ring of four. A send that nobody waits for stays on the observer's stack: what follows seems called by it.
    let l = of("ring_rank0");
    assert_eq!(roles(&l), [(Role::Context, 3, Some(4)), (Role::Context, 3, Some(4))]);
    assert_eq!((l.parallel.pp, l.parallel.tp, l.parallel.dp), (1, 1, 1));
    // Keys and values gathered in pairs, their gradients scattered; gradients of four parameters summed across the pairs behind the backward pass.
    let l = of("gather_rank0");
    assert_eq!(
        roles(&l),
        [(Role::Data, 4, None), (Role::Context, 2, Some(2)), (Role::Context, 2, Some(2))],
        "{:?}",
        l.parallel.recovered.table
    );
    assert_eq!((l.parallel.pp, l.parallel.tp), (1, 1));
    // Two blocks whose 32 tokens are split between norms and whole between products. (The same calls of the backward pass, which the script wrote by
    // hand, are taken for sharded parameters: no more is asked for here than what the forward pass tells.)
    let l = of("sequence_rank0");
    let forward: Vec<_> = roles(&l).into_iter().filter(|(role, _, _)| *role == Role::Sequence).collect();
    assert_eq!(forward, [(Role::Sequence, 2, Some(4)), (Role::Sequence, 2, Some(4))]);
    assert_eq!((l.parallel.tp, l.parallel.pp), (4, 1));
    // Three weights, each gathered before its product (torch keeps them for the backward pass), their gradients scattered.
    let l = of("sharded_rank0");
    assert_eq!(roles(&l), [(Role::ShardedParameters, 3, Some(4)), (Role::ShardedParameters, 3, Some(4))]);
    assert_eq!((l.parallel.tp, l.parallel.dp, l.parallel.pp), (1, 4, 1));
    // Two layers of experts: rows there and back, and their gradients.
    let l = of("experts_rank0");
    assert_eq!(roles(&l), [(Role::Expert, 8, Some(4))]);
    assert_eq!((l.parallel.tp, l.parallel.pp, l.parallel.ep), (1, 1, 4));
}

/// Three microbatches of one model, one after another: the graph is one of them.
#[test]
fn microbatches_are_told_by_what_they_share() {
    let dir = folder("microbatches");
    let one = layers_fx(2, true);
    let nodes = one["nodes"].as_array().unwrap().clone();
    let parameter = |name: &str| nodes.iter().any(|n| n["name"] == name && n["kind"] == "param");
    fn renamed(value: &Value, parameter: &dyn Fn(&str) -> bool, suffix: &str) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .map(|(k, v)| match (k.as_str(), v.as_str()) {
                    ("ref" | "name", Some(name)) if !parameter(name) => (k.clone(), json!(format!("{name}{suffix}"))),
                    _ => (k.clone(), renamed(v, parameter, suffix)),
                })
                .collect(),
            Value::Array(list) => list.iter().map(|v| renamed(v, parameter, suffix)).collect(),
            other => other.clone(),
        }
    }
    let mut all = nodes.clone();
    for suffix in ["_b", "_c"] {
        let more = nodes.iter().filter(|n| n["kind"] != "param").map(|n| renamed(n, &parameter, suffix));
        all.extend(more.collect::<Vec<_>>());
    }
    let mut thrice = one.clone();
    thrice["nodes"] = all.into();
    let whole = lowered(&written(&dir, "one.json", &one), &Request::default());
    let l = lowered(&written(&dir, "three.json", &thrice), &Request::default());
    assert_eq!((whole.microbatches, l.microbatches), (1, 3));
    assert_eq!((l.workload.micro_batch, l.workload.global_batch), (whole.batch, 3 * whole.batch));
    assert_eq!(flop(&l.workload), flop(&whole.workload));
    assert_eq!(l.coverage.flop, 3 * whole.coverage.flop);
}

/// Eight ranks that share out their tables (DLRM): the exchanges belong to kernels, the tables of all ranks are held.
#[test]
fn tables_of_all_ranks_are_held() {
    let Some(shared) = shared() else { return };
    let l = lowered(&shared.join("traces/param/dlrm/dlrm_eg_0.json.gz"), &Request::default());
    assert_eq!((l.parallel.tp, l.parallel.dp, l.parallel.ep), (1, 8, 1), "{:?}", roles(&l));
    let exchanges: u64 = roles(&l).iter().filter(|(r, _, _)| *r == Role::Tables).map(|(_, n, _)| n).sum();
    assert_eq!(exchanges, 5);
    let own: usize = l.workload.kernels.iter().map(|k| k.collectives.len()).sum();
    assert_eq!(own, 5);
    assert!(l.workload.held_bytes > 40e9);
}
