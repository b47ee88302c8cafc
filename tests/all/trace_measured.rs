//! Measured times of a device trace go to the kernels of the graph.

use super::trace_lower::{flop, flowspace, folder, node, sharded_trace, written};
use super::trace_tools::{scratch, text as path_text};
use flowspace::trace::chakra::{Node, NodeType};
use flowspace::trace::lower::coverage::coverage;
use flowspace::trace::lower::{Request, load, lower};
use flowspace::workload::trace::explicit;
use serde_json::{Value, json};
use std::path::Path;

/// A Kineto trace of the sharded trace: every product takes 100 us, every activation 10, every sum 50 (on a stream of its own), and
/// a function that names no tensors launches one kernel of 30 us.
fn with_times(host: &mut Value) -> Value {
    let nodes = host["nodes"].as_array_mut().unwrap();
    let last = nodes.iter().filter_map(|n| n["id"].as_u64()).max().unwrap();
    nodes.push(node(last + 1, 2, "my::function", "", &[], &[]));
    let mut events = Vec::new();
    let mut at = 0u64;
    for n in nodes.iter() {
        let (id, name) = (n["id"].as_u64().unwrap(), n["name"].as_str().unwrap());
        let (kernel, us) = match name {
            "aten::mm" => ("gemm", 100),
            "aten::relu_" => ("relu", 10),
            "nccl:all_reduce" => ("ncclDevKernel_AllReduce", 50),
            "my::function" => ("void strange<float>(int)", 30),
            "record_param_comms" | "aten::empty" => ("", 0),
            _ => continue,
        };
        // A caller is around its callee.
        let dur = if name == "record_param_comms" { 190 } else { 80 };
        events.push(json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": dur,
            "args": {"Record function id": id, "External id": id}}));
        if us > 0 {
            events.push(
                json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 10,
                "dur": 5, "args": {"correlation": id}}),
            );
            let stream = if us == 50 { 20 } else { 7 };
            events.push(
                json!({"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": stream, "ts": 10_000 + at * 10,
                "dur": us, "args": {"correlation": id, "device": 0, "stream": stream}}),
            );
        }
        at += if name == "record_param_comms" { 20 } else { 200 };
    }
    json!({"schemaVersion": 1, "traceEvents": events})
}

/// 2 x (100 + 10 + 100 + 50) + 30 us. The activations move 384 B in 10 us each, so 30 us stand for 1,152 B.
#[test]
fn measured_times_go_to_the_kernels() {
    let dir = folder("measured");
    let mut host = sharded_trace();
    let device = written(&dir, "device.json", &with_times(&mut host));
    let host = written(&dir, "host.json", &host);
    let linked = dir.join("linked.et");
    let text = |p: &Path| p.to_str().unwrap().to_string();
    let (code, _, err) =
        flowspace(&["trace", "link", "--host", &text(&host), "--device", &text(&device), "--out", &text(&linked)]);
    assert_eq!(code, 0, "{err}");
    for (file, kineto) in [(&host, Some(device.clone())), (&linked, None)] {
        let request = Request { kineto, ..Request::default() };
        let program = load(file, &request).unwrap_or_else(|e| panic!("{e}"));
        let c = coverage(&program);
        let shares = c.of_time.unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{file:?}: {a} is not {b}: {c:#?}");
        near(c.seconds.unwrap(), 550e-6);
        near(shares.known_flop, 420.0 / 550.0);
        near(shares.known_bytes, 420.0 / 550.0);
        near(shares.collective, 100.0 / 550.0);
        near(shares.neither, 30.0 / 550.0);
        assert_eq!(c.unknown, ["strange"]);
        let l = lower(&program, &request).unwrap();
        assert_eq!((l.parallel.tp, flop(&l.workload) * l.batch as f64), (2, 2.0 * c.flop as f64), "{:?}", l.notes);
        let extra: Vec<f64> = l.workload.kernels.iter().map(|k| k.extra_dram_bytes).filter(|b| *b > 0.0).collect();
        assert_eq!(extra.len(), 1);
        near(extra[0] * l.batch as f64, 1152.0);
        assert!(l.notes.iter().any(|n| n.contains("1 calls whose FLOP are unknown")), "{:?}", l.notes);
        // Written and read again, it is a workload as any other.
        explicit(&l.workload, "test").unwrap();
    }
    let (code, out, _) = flowspace(&["trace", "flops", &text(&host), "--kineto", &text(&device)]);
    assert!(code == 0 && out.contains("of the measured time (0.000550 s): FLOP known 76.4 %"), "{out}");
    // On another system: the sums by its network, the four products and two activations by its roofline.
    let system = Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/h100-dgx-8.yaml");
    let (code, out, err) =
        flowspace(&["trace", "replay", &text(&linked), "--system", &text(&system), "--format", "json"]);
    assert_eq!(code, 0, "{err}");
    let replayed: Value = serde_json::from_str(&out).unwrap();
    let retimed = &replayed["retimed"];
    assert_eq!((&retimed["communication"], &retimed["compute"]), (&json!([2, 2]), &json!([6, 7])));
    assert_eq!((&retimed["kept_ns"], &retimed["reasons"]), (&json!(30_000), &json!([])));
    // Activations of a few bytes take a start each.
    assert_eq!(retimed["operators"]["relu_"], json!({"kernels": 2, "recorded_ns": 20_000, "ns": 3_000}));
    assert_eq!(retimed["operators"]["mm"]["kernels"], json!(4));
    assert_eq!(replayed["recorded"]["communication_ns"], json!(100_000));
    assert!(replayed["replayed"]["communication_ns"].as_u64().unwrap() < 100_000, "{out}");
    // For a simulator each kernel has its share of the FLOP, and at least one.
    let simulated = dir.join("run.0.et");
    let convert =
        ["trace", "convert", &text(&linked), "--rank", "0", "--out", &text(&simulated), "--allow-unknown-size"];
    let (code, _, err) = flowspace(&convert);
    assert_eq!(code, 0, "{err}");
    let nodes = flowspace::trace::chakra::read(&simulated).unwrap().nodes;
    let counted: Vec<i64> = nodes.iter().filter_map(|n| n.int("num_ops")).collect();
    let known = coverage(&load(&linked, &Request::default()).unwrap()).flop as i64;
    assert!(counted.len() >= 7 && (counted.iter().sum::<i64>() - known - 1).abs() <= 7, "{counted:?} of {known}");
    let on_device = |n: &&Node| n.flag("is_cpu_op") == Some(false) && n.int("num_ops").is_some();
    assert!(nodes.iter().filter(on_device).all(|n| n.uint("tensor_size").is_some_and(|b| b > 0)));
    let computes = || nodes.iter().filter(|n| n.kind == NodeType::Comp);
    assert!(computes().all(|n| n.int("num_ops").is_some() && n.uint("tensor_size").is_some()));
    // Refused, with what is missing.
    for (args, part) in [
        (vec!["lower", device.to_str().unwrap()], "give the execution trace of the same run"),
        (vec!["lower", linked.to_str().unwrap(), "--kineto", device.to_str().unwrap()], "of no use"),
        (vec!["lower", host.to_str().unwrap(), "--kineto", "nowhere.json"], "nowhere.json"),
        (vec!["lower", host.to_str().unwrap(), "--kineto", host.to_str().unwrap()], "host.json"),
    ] {
        let (code, out, err) = flowspace(&[&["trace"], args.as_slice()].concat());
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
    // A trace linked without a host trace has no tensors, where no shapes were recorded.
    let alone = dir.join("alone.et");
    flowspace(&["trace", "link", "--device", &text(&device), "--out", &text(&alone)]);
    let (code, _, err) = flowspace(&["trace", "lower", &text(&alone)]);
    assert!(code == 1 && err.contains("without a host trace and without shapes"), "{err}");
}

/// Where no device has worked, the operators that a simulator is given have their own FLOP and bytes, and together those that are counted.
#[test]
fn operators_of_processors_have_their_flop() {
    let file =
        |what: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/traces/torch_mlp_{what}.json.gz"));
    let dir = scratch("processors");
    let linked = dir.join("linked.et");
    let (code, _, err) = flowspace(&[
        "trace",
        "link",
        "--host",
        &path_text(&file("host")),
        "--device",
        &path_text(&file("device")),
        "--out",
        &path_text(&linked),
    ]);
    assert_eq!(code, 0, "{err}");
    let simulated = dir.join("run.0.et");
    let (code, _, err) =
        flowspace(&["trace", "convert", &path_text(&linked), "--rank", "0", "--out", &path_text(&simulated)]);
    assert_eq!(code, 0, "{err}");
    let nodes = flowspace::trace::chakra::read(&simulated).unwrap().nodes;
    assert!(nodes.iter().all(|n| n.int("num_ops").is_some() && n.uint("tensor_size").is_some()));
    let sum: i64 = nodes.iter().filter_map(|n| n.int("num_ops")).sum();
    let known = coverage(&load(&linked, &Request::default()).unwrap()).flop as i64;
    // What is counted is one of the two recorded steps, which do the same.
    assert!(known > 0 && sum == 2 * known, "{sum} of {known}");
}
