//! `flowspace trace` from outside, and the figures of generated traces.

use flowspace::check::derive;
use flowspace::plan::{Plan, file};
use flowspace::spec::Loader;
use flowspace::trace::chakra::{self, CommGroups, CommType, Node, NodeType, Scalar};
use flowspace::trace::{detect, host, kineto};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn corpus(name: &str) -> PathBuf {
    root().join("tests/traces").join(name)
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("trace_tools_{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn flowspace(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowspace")).args(args).env_remove("RUST_BACKTRACE").output().unwrap()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Standard output of a run that must succeed.
fn out(args: &[&str]) -> String {
    let output = flowspace(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn host_traces_by_hand() {
    let old = host::read(&corpus("host-1.0.1.json")).unwrap();
    assert!(old.warnings.is_empty());
    let mm = &old.nodes[1];
    assert_eq!((mm.id, &*mm.name, mm.parent, mm.rf_id, mm.seq_id), (4, "aten::mm", 3, Some(2), 5));
    let shapes: Vec<&[i64]> = mm.input_tensors().map(|t| &*t.shape).collect();
    assert_eq!(shapes, [&[2, 3][..], &[3, 4]]);
    let c = old.nodes[3].collective.as_ref().unwrap();
    assert_eq!((c.name.as_deref(), c.seq, c.group_size, c.in_elems), (Some("allreduce"), Some(17), Some(2), Some(8)));
    assert_eq!((c.in_bytes(), c.rank), (Some(32), Some(0)));

    let new = host::read(&corpus("host-1.1.1.json")).unwrap();
    let t = new.nodes[2].inputs[0].tensor().unwrap();
    assert_eq!((&*t.dtype, t.strides.as_deref(), t.bytes()), ("c10::Half", Some(&[3, 1][..]), 12));
    let triton = &new.nodes[3];
    assert_eq!((triton.kernel_backend.as_deref(), triton.kernel_file.as_deref()), (Some("triton"), Some("/tmp/k.py")));
    assert_eq!(triton.inputs[2], host::Arg::Float(f64::NEG_INFINITY));
    assert_eq!(triton.input_tensors().count(), 2);
    let c = new.nodes[4].collective.as_ref().unwrap();
    assert_eq!((c.group.as_deref(), c.rank_start, c.rank_stride, c.seq), (Some("0"), Some(0), Some(1), Some(17)));
    assert_eq!(new.process_groups()[0].backend, "cuda:nccl");
}

#[test]
fn an_unknown_minor_version_is_a_warning_and_another_major_an_error() {
    let folder = scratch("versions");
    let written = std::fs::read_to_string(corpus("host-1.1.1.json")).unwrap();
    let path = folder.join("h.json");
    std::fs::write(&path, written.replace("1.1.1-chakra.0.0.4", "1.7.0")).unwrap();
    let trace = host::read(&path).unwrap();
    assert_eq!((trace.nodes.len(), trace.warnings.len()), (5, 1));
    assert!(trace.warnings[0].contains("1.7.0"));
    std::fs::write(&path, written.replace("1.1.1-chakra.0.0.4", "2.0.0")).unwrap();
    assert!(host::read(&path).unwrap_err().to_string().contains("2.0.0"));
    // Faulty nodes: all at once, each with its id and field.
    std::fs::write(&path, written.replace("\"value\": 2}", "\"value\": \"x\"}").replace("[5,6,0,6,2,", "[5,6,0,-6,2,"))
        .unwrap();
    let errors = host::read(&path).unwrap_err().to_string();
    assert!(
        errors.contains("node 4: inputs: values[0]: number of elements of a tensor") && errors.contains("found -6"),
        "{errors}"
    );
}

#[test]
fn a_kineto_trace_by_hand() {
    let trace = kineto::read(&corpus("kineto.json")).unwrap();
    assert_eq!(trace.events.len(), 10);
    assert_eq!(trace.events[0].ts_ns, 1_707_417_525_512_283_457);
    assert_eq!(trace.events[0].dur_ns, 500_125);
    assert_eq!(trace.events[0].profiler_step(), Some(3));
    let gemm = &trace.events[3];
    assert_eq!((gemm.stream, gemm.correlation, gemm.external_id), (Some(7), Some(40), Some(2)));
    assert_eq!(gemm.launch().unwrap().grid, [4, 2, 1]);
    assert_eq!((trace.events[4].bytes, trace.events[4].dur_ns), (Some(2048), 1_568));
    let sync = trace.events[6].sync().unwrap();
    assert_eq!((sync.on_stream, sync.on_correlation, sync.on_event), (Some(7), Some(41), Some(8)));
    let c = trace.events[7].collective().unwrap();
    assert_eq!((c.in_bytes(), c.group_ranks.as_slice()), (Some(16), &[0, 1][..]));
    assert_eq!(trace.flows.len(), 2);
    assert_eq!(trace.distributed.groups[0].ranks, [0, 1]);
    let error = {
        let path = scratch("kineto").join("k.json");
        let written = std::fs::read_to_string(corpus("kineto.json")).unwrap();
        std::fs::write(&path, written.replace("\"correlation\": 40}", "\"correlation\": \"no\"}")).unwrap();
        kineto::read(&path).unwrap_err().to_string()
    };
    assert!(
        error.contains("traceEvents[5] (cudaLaunchKernel): args.correlation: expected an integer, found \"no\""),
        "{error}"
    );
}

#[test]
fn info_in_json_counts() {
    let (k, h) = (text(&corpus("kineto.json")), text(&corpus("host-1.1.1.json")));
    let found: Value = serde_json::from_str(&out(&["trace", "info", "--format", "json", &k, &h])).unwrap();
    let (k, h) = (&found[0], &found[1]);
    assert_eq!(k["format"], "Kineto trace");
    // 1707417525512283.457 us to 1707417525513200 us.
    assert_eq!(k["span_ns"], 916_543);
    assert_eq!(k["steps"][0]["duration_ns"], 500_125);
    assert_eq!(k["collectives"][0]["kind"], "ALL_REDUCE");
    assert_eq!((&k["collectives"][0]["bytes"], &k["collectives"][0]["total_ns"]), (&16.into(), &40_000.into()));
    assert_eq!(h["schema"], "1.1.1-chakra.0.0.4");
    assert_eq!(h["collectives"][0]["bytes"], 16);
    assert_eq!(h["fault_count"], 0);
    assert!(out(&["trace", "info", &text(&corpus("kineto.json"))]).contains("ALL_REDUCE"));
    // A file that cannot be read does not hide the others.
    let output = flowspace(&["trace", "info", &text(&corpus("feeder.json")), "no-such-file.et"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("COMP_NODE"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-file.et"));
}

#[test]
fn every_form_leads_to_the_same_et() {
    let folder = scratch("forms");
    let source = text(&corpus("stages/small.0.et"));
    let original = std::fs::read(&source).unwrap();
    let forms: [(&str, &[&str]); 4] = [
        ("a.json", &["to-json"]),
        ("l.json", &["to-json", "--form", "lines"]),
        ("j.json", &["to-json", "--form", "jsonizer"]),
        ("t.txt", &["to-text"]),
    ];
    for (name, command) in forms {
        let (path, back) = (text(&folder.join(name)), text(&folder.join(format!("{name}.et"))));
        let args: Vec<&str> =
            ["trace"].iter().chain(command).copied().chain([source.as_str(), "--out", &path]).collect();
        out(&args);
        out(&["trace", "to-et", &path, "--out", &back]);
        assert!(std::fs::read(&back).unwrap() == original, "{name}");
    }
    let list: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("a.json")).unwrap()).unwrap();
    assert_eq!(list[0]["version"], "0.0.4");
    assert_eq!(list[1]["type"], "COMP_NODE");
    // The input is not written over.
    let same = flowspace(&["trace", "to-json", &text(&folder.join("t.txt")), "--out", &text(&folder.join("t.txt"))]);
    assert!(!same.status.success());
    assert!(folder.join("t.txt").metadata().unwrap().len() > 0);
    // What was written by hand, too.
    for name in ["feeder.json", "nodes.txt", "nodes.json"] {
        let back = text(&folder.join("hand.et"));
        out(&["trace", "to-et", &text(&corpus(name)), "--out", &back]);
        let (one, other) = (detect::load_chakra(&corpus(name)).unwrap(), chakra::read(Path::new(&back)).unwrap());
        assert_eq!((one.nodes, one.metadata), (other.nodes, other.metadata), "{name}");
    }
}

#[test]
fn graphs_and_timelines() {
    let feeder = text(&corpus("feeder.json"));
    let dot = out(&["trace", "to-dot", &feeder]);
    assert!(
        dot.starts_with("digraph trace {") && dot.contains("  1 -> 2;") && dot.contains("  1 -> 2 [style=dashed];"),
        "{dot}"
    );
    let graphml = out(&["trace", "to-graphml", &feeder]);
    assert!(graphml.contains("<edge source=\"n3\" target=\"n4\"><data key=\"dep\">data</data></edge>"), "{graphml}");
    let timeline: Value = serde_json::from_str(&out(&["trace", "timeline", &feeder])).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    let spans: Vec<(i64, i64)> = events
        .iter()
        .filter(|e| e["ph"] == "X")
        .map(|e| (e["ts"].as_i64().unwrap(), e["dur"].as_i64().unwrap()))
        .collect();
    // Each waits for the one before: 3 us of loading, 12 of computation.
    assert_eq!(spans, [(0, 3), (3, 12), (15, 0), (15, 0)]);
    let device: Value = serde_json::from_str(&out(&["trace", "timeline", &text(&corpus("kineto.json"))])).unwrap();
    let gemm =
        device["traceEvents"].as_array().unwrap().iter().find(|e| e["name"] == "ampere_fp16_s16816gemm").unwrap();
    // The first event starts at ...283, the annotation of the whole; the kernel at ...310.25.
    assert_eq!((&gemm["ts"], &gemm["dur"]), (&27.25.into(), &30.75.into()));
}

/// A plan on 2 x 2 x 2 chips whose every figure is derived again from the traces.
fn plan_of_eight(folder: &Path) -> (PathBuf, Plan) {
    let base = root().join("tests/errors/base");
    let workload = folder.join("w.yaml");
    std::fs::write(
        &workload,
        "kind: dfmodel_layer\nname: small training\nsource: \"assumed: a test\"\nhidden: 384\nheads: 6\nhead_dim: 64\nseq: 128\n\
         layers: 4\npass: training\nglobal_batch: 16\n",
    )
    .unwrap();
    let link = base.join("link.yaml");
    let dimension = format!("    - {{ size: 2, link: {} }}\n", link.display());
    let system = folder.join("s.yaml");
    std::fs::write(
        &system,
        format!(
            "name: eight\nsource: \"assumed: a test\"\nchip: {}\nmemory: {}\nnetwork:\n  topology: torus-3d\n  dimensions:\n{}chips: 8\n",
            base.join("chip.yaml").display(),
            base.join("memory.yaml").display(),
            dimension.repeat(3)
        ),
    )
    .unwrap();
    let path = folder.join("plan.yaml");
    out(&[
        "map",
        "--workload",
        &text(&workload),
        "--system",
        &text(&system),
        "--tp",
        "2",
        "--pp",
        "2",
        "--dp",
        "2",
        // The figures by hand below are those of this sharding; the joint one has all-to-alls.
        "--sharding",
        "two-pass",
        "--plan-out",
        &text(&path),
    ]);
    let read = file::read(&Loader.load(&path, None).unwrap()).unwrap();
    let figures = derive(&read.workload, &read.system, &read.decisions).unwrap();
    (path, Plan { workload: read.workload, system: read.system, decisions: read.decisions, figures })
}

#[test]
fn generated_traces_do_the_plans_work() {
    let folder = scratch("generate");
    let (path, plan) = plan_of_eight(&folder);
    let traces = folder.join("traces");
    let written: Value = serde_json::from_str(&out(&[
        "trace",
        "generate",
        "--plan",
        &text(&path),
        "--out",
        &text(&traces),
        "--format",
        "json",
    ]))
    .unwrap();
    let f = &plan.figures;
    let passes = plan.workload.repeat * f.iteration.microbatches as u64 * f.tp * f.dp;
    let planned: f64 = f.partitions.iter().map(|p| p.flop).sum::<f64>() * passes as f64;

    let groups = CommGroups::read(&traces.join("comm_group.json")).unwrap();
    let (mut flop, mut sent, mut received) = (0u64, 0u64, 0u64);
    let mut collectives: std::collections::BTreeMap<CommType, u64> = Default::default();
    let mut gradients = 0u64;
    for rank in 0..8 {
        let trace = chakra::read(&traces.join(format!("trace.{rank}.et"))).unwrap();
        let mut seen = std::collections::HashSet::new();
        for node in &trace.nodes {
            // What ASTRA-sim's feeder asks: dependencies exist (here: earlier), attributes have their kinds.
            assert!(node.deps().all(|d| seen.contains(&d)), "rank {rank}, node {}", node.id);
            seen.insert(node.id);
            let arm = |name: &str| node.attr(name).map(chakra::Value::arm);
            assert_eq!(arm("is_cpu_op").as_deref(), Some("bool_val"));
            match node.kind {
                NodeType::Comp => {
                    assert_eq!(
                        (arm("num_ops").as_deref(), arm("tensor_size").as_deref()),
                        (Some("int64_val"), Some("uint64_val"))
                    );
                    if &*node.name != "optimizer" {
                        flop += node.uint("num_ops").unwrap();
                    }
                }
                NodeType::Coll => {
                    assert_eq!(
                        (arm("comm_type").as_deref(), arm("comm_size").as_deref()),
                        (Some("int64_val"), Some("int64_val"))
                    );
                    assert!(groups.0[&node.group().unwrap()].contains(&rank));
                    let bytes = node.uint("comm_size").unwrap();
                    match node.comm_type().unwrap() {
                        CommType::AllReduce => gradients += bytes,
                        kind => *collectives.entry(kind).or_default() += bytes,
                    }
                }
                NodeType::Send | NodeType::Recv => {
                    for name in ["comm_src", "comm_dst", "comm_tag"] {
                        assert_eq!(arm(name).as_deref(), Some("int32_val"));
                    }
                    let sum = if node.kind == NodeType::Send { &mut sent } else { &mut received };
                    *sum += node.uint("comm_size").unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(flop as f64, planned);
    assert_eq!(written["flop"], flop);
    // Beyond the workload's own FLOP, by hand: two norms of 384 x 128 elements in each of 4 layers run on both chips of a tensor-parallel group.
    let twice = f.partitions.iter().flat_map(|p| &p.kernels).filter(|k| k.starts_with("LN") && !k.ends_with("_bwd"));
    let replicated = twice.count() as f64 * 384.0 * 128.0 * 4.0 * 16.0;
    assert!(replicated == 2.0 * 384.0 * 128.0 * 64.0);
    assert_eq!(flop as f64, f.flop_per_iteration + replicated);
    // Communication by hand. A layer and microbatch has 2 all-gathers and 2 reduce-scatters forward and the same backward, each of 384 x 128
    // elements of two bytes; an all-gather counts the half that a rank contributes. 8 microbatches, 4 layers in two stages.
    let tensor = 384 * 128 * 2u64;
    let per_rank = 8 * 2 * 4u64; // microbatches x layers of a stage x collectives
    assert_eq!(collectives[&CommType::AllGather], 8 * per_rank * tensor / 2);
    assert_eq!(collectives[&CommType::ReduceScatter], 8 * per_rank * tensor);
    // Stages: 8 microbatches, forward and back, from each of the 4 ranks of a stage: half of a tensor, which is split in two.
    assert_eq!((sent, received), (8 * 2 * 4 * tensor / 2, 8 * 2 * 4 * tensor / 2));
    // Gradients: 12 hidden^2 weights a layer, halved by tensor parallelism, 2 layers a stage, 2 bytes each, on 8 ranks.
    assert_eq!(gradients, 8 * 12 * 384 * 384 / 2 * 2 * 2);

    let report: Value = serde_json::from_str(&out(&["trace", "check", &text(&traces), "--format", "json"])).unwrap();
    assert_eq!(report["parallelism"]["pipeline"], 2);
    let families = report["parallelism"]["families"].as_array().unwrap();
    let degrees: Vec<(u64, u64)> =
        families.iter().map(|f| (f["size"].as_u64().unwrap(), f["groups"].as_u64().unwrap())).collect();
    assert_eq!(degrees, [(2, 4), (2, 4)]);
    assert!(families.iter().any(|f| f["role"].as_str().unwrap().starts_with("tensor")));
    assert!(families.iter().any(|f| f["role"].as_str().unwrap().starts_with("data")));

    // Fewer microbatches; too many nodes.
    out(&["trace", "generate", "--plan", &text(&path), "--out", &text(&folder.join("one")), "--microbatches", "1"]);
    assert!(
        folder.join("one/trace.7.et").metadata().unwrap().len()
            < traces.join("trace.7.et").metadata().unwrap().len() / 4
    );
    let refused = flowspace(&[
        "trace",
        "generate",
        "--plan",
        &text(&path),
        "--out",
        &text(&folder.join("no")),
        "--max-nodes",
        "100",
    ]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("more than 100"));
    assert!(!folder.join("no").exists());
}

/// Kernel by kernel the sums are those of the partitions: of the whole, of each rank, and of each partition of each pass.
#[test]
fn generated_kernels_sum_to_the_partitions() {
    let folder = scratch("generate_kernels");
    let (path, plan) = plan_of_eight(&folder);
    let written = |granularity: &str| -> (Value, PathBuf) {
        let traces = folder.join(granularity);
        let (plan, to) = (text(&path), text(&traces));
        let answer = out(&[
            "trace",
            "generate",
            "--plan",
            &plan,
            "--out",
            &to,
            "--granularity",
            granularity,
            "--format",
            "json",
        ]);
        (serde_json::from_str(&answer).unwrap(), traces)
    };
    let ((coarse, partitions), (fine, kernels)) = (written("partition"), written("kernel"));
    assert_eq!((&coarse["flop"], &coarse["bytes"]), (&fine["flop"], &fine["bytes"]));
    assert_eq!(fine["groups"], coarse["groups"]);
    let f = &plan.figures;
    let passes = plan.workload.repeat * f.iteration.microbatches as u64 * f.tp * f.dp;
    let planned: f64 = f.partitions.iter().map(|p| p.flop).sum::<f64>() * passes as f64;
    assert_eq!(fine["flop"].as_f64(), Some(planned));
    assert!(f.partitions.iter().any(|p| p.kernels.len() > 1), "nothing is fused, so nothing is tested");
    let mut nodes = 0;
    for rank in 0..8 {
        let read = |folder: &Path| chakra::read(&folder.join(format!("trace.{rank}.et"))).unwrap();
        let (coarse, fine) = (read(&partitions), read(&kernels));
        nodes += fine.nodes.len();
        let mut seen = std::collections::HashSet::new();
        let mut by_name: std::collections::BTreeMap<&str, [u64; 3]> = Default::default();
        for node in &fine.nodes {
            assert!(node.deps().all(|d| seen.contains(&d)), "rank {rank}, node {}", node.id);
            assert!(seen.insert(node.id));
            if node.kind == NodeType::Comp {
                let sizes = [node.uint("num_ops").unwrap(), node.uint("tensor_size").unwrap(), node.duration_micros];
                assert!(sizes[0] > 0 && sizes[1] > 0);
                assert!(by_name.insert(&*node.name, sizes).is_none(), "{} twice", node.name);
            }
        }
        let mut used = 0;
        for node in coarse.nodes.iter().filter(|n| n.kind == NodeType::Comp && &*n.name != "optimizer") {
            let (pass, number) = node.name.rsplit_once(", partition ").unwrap();
            let members = &f.partitions[number.parse::<usize>().unwrap()].kernels;
            let (mut sum, mut nothing) = ([0u64; 3], 0);
            for kernel in members {
                let sizes = by_name[format!("{pass}, {kernel}").as_str()];
                sum.iter_mut().zip(sizes).for_each(|(s, x)| *s += x);
                nothing += u64::from(sizes[1] == 1);
            }
            used += members.len();
            assert_eq!((sum[0], sum[2]), (node.uint("num_ops").unwrap(), node.duration_micros), "{}", node.name);
            // A kernel that moves nothing across the partition's border is written as 1 byte.
            assert!(sum[1].abs_diff(node.uint("tensor_size").unwrap()) <= nothing, "{}", node.name);
        }
        assert_eq!(used, by_name.len() - usize::from(by_name.contains_key("optimizer")));
    }
    assert_eq!(fine["nodes"], nodes);
    let report: Value = serde_json::from_str(&out(&["trace", "check", &text(&kernels), "--format", "json"])).unwrap();
    assert_eq!(report["parallelism"]["pipeline"], 2);
    assert_eq!((report["mismatches"].as_array().unwrap().len(), report["faults"].as_array().unwrap().len()), (0, 0));
}

/// Ranks that disagree, each in its own way.
#[test]
fn mismatches_between_ranks_are_found() {
    let check = |name: &str, change: &dyn Fn(u64, &mut Vec<Node>)| -> Vec<(String, String)> {
        let folder = scratch(&format!("mismatch_{name}"));
        for rank in 0..4u64 {
            let mut trace = chakra::read(&corpus(&format!("stages/small.{rank}.et"))).unwrap();
            change(rank, &mut trace.nodes);
            chakra::write(&trace, &folder.join(format!("small.{rank}.et"))).unwrap();
        }
        std::fs::copy(corpus("stages/comm_group.json"), folder.join("comm_group.json")).unwrap();
        let output = flowspace(&["trace", "check", &text(&folder), "--format", "json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found: Vec<(String, String)> = report["mismatches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| (m["what"].as_str().unwrap().to_owned(), m["message"].as_str().unwrap().to_owned()))
            .chain(
                report["faults"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|f| ("fault".to_owned(), f.as_str().unwrap().to_owned())),
            )
            .collect();
        assert_eq!(output.status.code(), Some(i32::from(!found.is_empty())), "{found:?}");
        found
    };
    let first = |nodes: &mut Vec<Node>, kind: NodeType| nodes.iter().position(|n| n.kind == kind).unwrap();
    let set = |node: &mut Node, name: &str, value: Scalar| {
        node.attrs.iter_mut().find(|a| &*a.name == name).unwrap().value = Some(chakra::Value::One(value));
    };
    let words = |found: Vec<(String, String)>| found.into_iter().map(|(what, _)| what).collect::<Vec<_>>();

    assert!(check("none", &|_, _| {}).is_empty());
    assert_eq!(
        words(check("bytes", &|rank, nodes| if rank == 1 {
            let i = first(nodes, NodeType::Coll);
            set(&mut nodes[i], "comm_size", Scalar::Int64(1));
        })),
        ["bytes"]
    );
    assert_eq!(
        words(check("type", &|rank, nodes| if rank == 1 {
            let i = first(nodes, NodeType::Coll);
            set(&mut nodes[i], "comm_type", Scalar::Int64(CommType::Broadcast.number()));
        })),
        ["type"]
    );
    assert_eq!(
        words(check("order", &|rank, nodes| if rank == 1 {
            let all: Vec<usize> = (0..nodes.len()).filter(|i| nodes[*i].kind == NodeType::Coll).collect();
            let other = *all.iter().find(|i| nodes[**i].comm_type() != nodes[all[0]].comm_type()).unwrap();
            let attrs = nodes[all[0]].attrs.clone();
            nodes[all[0]].attrs = nodes[other].attrs.clone();
            nodes[other].attrs = attrs;
        })),
        ["order"]
    );
    assert_eq!(
        words(check("count", &|rank, nodes| if rank == 1 {
            let i = nodes.iter().rposition(|n| n.kind == NodeType::Coll).unwrap();
            nodes[i].kind = NodeType::Comp;
        })),
        ["count"]
    );
    assert_eq!(
        words(check("send", &|rank, nodes| if rank == 0 {
            let i = first(nodes, NodeType::Send);
            nodes[i].kind = NodeType::Comp;
        })),
        ["send"]
    );
    assert_eq!(
        words(check("message", &|rank, nodes| if rank == 0 {
            let i = first(nodes, NodeType::Send);
            set(&mut nodes[i], "comm_size", Scalar::Int64(1));
        })),
        ["bytes"]
    );
    let faults = check("graph", &|rank, nodes| {
        if rank == 0 {
            nodes[1].data_deps.push(9999);
        }
    });
    assert_eq!(faults.len(), 1);
    assert!(faults[0].1.contains("small.0.et: node 1: data_deps: there is no node 9999"), "{faults:?}");
}

/// Every form of a trace leads to the same dot, GraphML and timeline; the timeline is in the file's order, whatever the order of the
/// dependencies.
#[test]
fn graphs_and_timelines_of_every_form_are_one() {
    let folder = scratch("graph_forms");
    let mut trace = chakra::read(&corpus("stages/small.0.et")).unwrap();
    trace.nodes.reverse(); // children before their parents
    let et = folder.join("t.et");
    chakra::write(&trace, &et).unwrap();
    for (name, command) in [("t.json", "to-json"), ("t.txt", "to-text"), ("t.json.gz", "to-json"), ("u.et.gz", "to-et")]
    {
        let path = text(&folder.join(name));
        out(&["trace", command, &text(&et), "--out", &path]);
        for what in ["to-dot", "to-graphml", "timeline"] {
            assert!(out(&["trace", what, &text(&et)]) == out(&["trace", what, &path]), "{what} of {name}");
        }
    }
    let timeline: Value = serde_json::from_str(&out(&["trace", "timeline", &text(&et)])).unwrap();
    let spans: Vec<&Value> = timeline["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
    let ids: Vec<u64> = spans.iter().map(|e| e["args"]["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, trace.nodes.iter().map(|n| n.id).collect::<Vec<_>>());
    // No node begins before what it depends on has ended.
    let end = |id: u64| {
        let e = spans[ids.iter().position(|&i| i == id).unwrap()];
        e["ts"].as_u64().unwrap() + e["dur"].as_u64().unwrap()
    };
    for (node, span) in trace.nodes.iter().zip(&spans) {
        assert!(node.deps().all(|d| end(d) <= span["ts"].as_u64().unwrap()), "node {}", node.id);
    }
}

/// A trace whose end is missing leaves no half-written file behind, and what a link leads to is not removed.
#[test]
fn half_a_file_is_not_left() {
    let folder = scratch("half");
    let whole = std::fs::read(corpus("stages/small.0.et")).unwrap();
    let cut = folder.join("cut.et");
    std::fs::write(&cut, &whole[..whole.len() - 3]).unwrap();
    for (command, name) in
        [("to-json", "a.json"), ("to-et", "b.et"), ("to-dot", "c.dot"), ("to-graphml", "d.xml"), ("timeline", "e.json")]
    {
        let path = folder.join(name);
        let output = flowspace(&["trace", command, &text(&cut), "--out", &text(&path)]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains("the file ends inside a message"), "{command}: {error}");
        assert!(!path.exists(), "{command} left {name}");
    }
}

/// The nodes of a file by our reader, whose graph must be able to run.
fn running(path: &Path) -> Vec<Node> {
    let trace = chakra::read(path).unwrap();
    assert!(trace.warnings.is_empty());
    let links: Vec<chakra::graph::Links> = trace.nodes.iter().map(chakra::graph::Links::from).collect();
    let faults = chakra::graph::faults(&links, path);
    assert!(faults.is_empty(), "{faults:?}");
    trace.nodes
}

/// Name and dependencies by name, for comparison by hand.
fn by_name(nodes: &[Node]) -> Vec<String> {
    let name = |id: u64| nodes.iter().find(|n| n.id == id).unwrap().name.to_string();
    let short = |n: &str| n.replace("COMP_NODE_", "").replace("COMM_COLL_NODE_", "");
    let deps = |n: &Node| n.data_deps.iter().map(|d| short(&name(*d))).collect::<Vec<_>>().join(" ");
    nodes.iter().map(|n| format!("{} < {}", short(&n.name), deps(n)).trim_end_matches(" < ").to_owned()).collect()
}

#[test]
fn text_workloads_become_traces() {
    let folder = scratch("layers");
    let file = folder.join("w.txt");
    let trace = |head: &str, rows: &[&str], passes: &str| {
        std::fs::write(&file, format!("{head}\n{}\n{}\n", rows.len(), rows.join("\n"))).unwrap();
        let to = folder.join(format!("{}-{passes}", head.split(' ').next().unwrap()));
        out(&["trace", "generate", "--layers", &text(&file), "--ranks", "2", "--passes", passes, "--out", &text(&to)]);
        let nodes = running(&to.join("trace.0.et"));
        assert!(std::fs::read(to.join("trace.0.et")).unwrap() == std::fs::read(to.join("trace.1.et")).unwrap());
        assert!(nodes.iter().all(|n| n.flag("is_cpu_op") == Some(false)));
        nodes
    };
    let a = "a\t-1\t10\tALLGATHER\t100\t11\tALLREDUCE\t101\t12\tREDUCESCATTER\t102\t1";
    let b = "b -1 20 ALLGATHER 200 21 ALLREDUCE 201 22 ALLREDUCE 202 1";
    let quiet = "q -1 30 NONE 0 31 NONE 0 32 NONE 0 1";
    assert_eq!(by_name(&trace("MICRO", &[a, b, quiet], "1")), ["a_REDUCESCATTER", "b_ALLREDUCE"]);
    let data = trace("DATA", &[a, b], "2");
    let pass = [
        "a_FWD",
        "b_FWD < a_FWD",
        "b_BWD_WG < b_FWD",
        "b_ALLREDUCE < b_BWD_WG",
        "b_BWD_IG < b_BWD_WG",
        "a_BWD_WG < b_BWD_IG",
        "a_REDUCESCATTER < a_BWD_WG",
    ];
    assert_eq!(by_name(&data)[..7], pass);
    // The next pass uses the weights that this one reduced.
    assert_eq!((data[7].data_deps.as_slice(), data[8].data_deps.as_slice()), (&[6][..], &[7, 3][..]));
    assert_eq!(data.iter().map(|n| n.duration_micros).sum::<u64>(), 2 * (10 + 20 + 12 + 22 + 21));
    assert_eq!((data[3].comm_type(), data[3].uint("comm_size")), (Some(CommType::AllReduce), Some(202)));
    let forward = ["a_FWD", "a_ALLGATHER < a_FWD", "b_FWD < a_ALLGATHER", "b_ALLGATHER < b_FWD"];
    let model = by_name(&trace("MODEL", &[a, b], "1"));
    assert_eq!(model[..4], forward);
    assert_eq!(
        model[4..],
        [
            "b_BWD_IG < b_ALLGATHER",
            "b_ALLREDUCE < b_BWD_IG",
            "b_BWD_WG < b_BWD_IG",
            "a_BWD_IG < b_BWD_WG b_ALLREDUCE",
            "a_BWD_WG < a_BWD_IG",
        ]
    );
    let hybrid = by_name(&trace("HYBRID_DATA_MODEL", &[a, b], "1"));
    assert_eq!(hybrid[..4], forward);
    assert_eq!(
        hybrid[4..],
        [
            "b_BWD_IG < b_ALLGATHER",
            "b_IG_COMM__ALLREDUCE < b_BWD_IG",
            "b_BWD_WG < b_BWD_IG",
            "b_ALLREDUCE < b_BWD_WG",
            "a_BWD_IG < b_BWD_WG b_IG_COMM__ALLREDUCE",
            "a_BWD_WG < a_BWD_IG",
            "a_REDUCESCATTER < a_BWD_WG",
        ]
    );
    assert_eq!(trace("HYBRID_MODEL_DATA", &[a, b], "1").len(), 11);
    let tables = "t -1 1 ALLTOALL 1000 2 ALLTOALL 1001 3 NONE 0 1";
    let dlrm = by_name(&trace("HYBRID_DLRM 1", &[tables, a, b], "1"));
    assert_eq!(
        dlrm,
        [
            "t_FWD",
            "t_ALLTOALL < t_FWD",
            "a_FWD < t_FWD t_ALLTOALL",
            "b_FWD < a_FWD",
            "b_BWD_WG < b_FWD",
            "b_ALLREDUCE < b_BWD_WG",
            "b_BWD_IG < b_BWD_WG",
            "t_ALLTOALL < b_BWD_IG",
            "a_BWD_WG < b_BWD_IG",
            "a_REDUCESCATTER < a_BWD_WG",
            "a_BWD_IG < a_BWD_WG",
            "t_BWD_WG < a_BWD_IG t_ALLTOALL",
        ]
    );
    // What waits for a collective of nothing waits for the computation before it.
    assert_eq!(by_name(&trace("MODEL", &[quiet, b], "1"))[1], "b_FWD < q_FWD");
    for (wrong, wanted) in [
        ("HYBRID_TRANSFORMER\n1\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1", "line 1: expected MICRO, DATA"),
        ("DATA\nx\n", "line 2: expected the number of layers, found \"x\""),
        ("DATA\n2\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1", "line 3: 2 layers are announced, 1 are there"),
        ("DATA\n1\na -1 1 NONE 0", "line 3: expected 12 words, found 5"),
        ("DATA\n1\na -1 1 SUM 0 1 NONE 0 1 NONE 0 1", "line 3: forward pass: expected NONE, ALLREDUCE"),
        ("DATA\n1\na -1 1 NONE 0 -1 NONE 0 1 NONE 0 1", "line 3: input's gradient: expected a time"),
        (
            "DATA\n1\na -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1.5 1",
            "line 3: weight's gradient: expected whole bytes, found \"1.5\"",
        ),
        ("HYBRID_DLRM 3\n1\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1", "line 1: the last bottom layer is 3"),
        ("", "the file is empty"),
    ] {
        std::fs::write(&file, wrong).unwrap();
        let output = flowspace(&[
            "trace",
            "generate",
            "--layers",
            &text(&file),
            "--ranks",
            "2",
            "--out",
            &text(&folder.join("no")),
        ]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(wanted), "{wrong:?}: {error}");
        assert!(!folder.join("no").exists());
    }
}

#[test]
fn patterns_become_traces() {
    let folder = scratch("patterns");
    let to = text(&folder);
    let make = |name: &str| {
        let args = ["--runtime", "7", "--tensor-size", "64", "--comm-size", "4096"];
        let all: Vec<&str> =
            ["trace", "generate", "--pattern", name, "--ranks", "3", "--out", &to].into_iter().chain(args).collect();
        out(&all);
        assert!(folder.join(format!("{name}.2.et")).is_file() && !folder.join(format!("{name}.3.et")).exists());
        running(&folder.join(format!("{name}.1.et")))
    };
    for (name, kind, deps) in [
        ("one_comp_node", NodeType::Comp, &[0][..]),
        ("two_comp_nodes_independent", NodeType::Comp, &[0, 0]),
        ("two_comp_nodes_dependent", NodeType::Comp, &[0, 1]),
        ("one_remote_mem_load_node", NodeType::MemLoad, &[0]),
        ("one_remote_mem_store_node", NodeType::MemStore, &[0]),
        ("one_comm_send_node", NodeType::Send, &[0]),
        ("one_comm_recv_node", NodeType::Recv, &[0]),
    ] {
        let nodes = make(name);
        assert_eq!(nodes.iter().map(|n| n.data_deps.len()).collect::<Vec<_>>(), deps, "{name}");
        assert!(nodes.iter().all(|n| n.kind == kind && n.flag("is_cpu_op") == Some(false)), "{name}");
        let (us, size) = if kind == NodeType::Comp { (7, None) } else { (0, Some(64)) };
        assert!(nodes.iter().all(|n| (n.duration_micros, n.uint("tensor_size")) == (us, size)), "{name}");
    }
    for (name, kind, bytes) in [
        ("all_reduce", CommType::AllReduce, 4096),
        ("all_to_all", CommType::AllToAll, 4096),
        ("all_gather", CommType::AllGather, 4096),
        ("reduce_scatter", CommType::ReduceScatter, 4096),
        ("broadcast", CommType::Broadcast, 4096),
        ("barrier", CommType::Barrier, 0),
    ] {
        let nodes = make(name);
        assert_eq!(
            (nodes.len(), nodes[0].comm_type(), nodes[0].uint("comm_size")),
            (1, Some(kind), Some(bytes)),
            "{name}"
        );
    }
    let all = &make("one_metadata_node_all_types")[0];
    let arms: std::collections::BTreeSet<String> = all.attrs.iter().map(|a| a.value.as_ref().unwrap().arm()).collect();
    assert_eq!((all.kind, all.attrs.len(), arms.len()), (NodeType::Metadata, 30, 30));
    assert_eq!((all.int("sint64"), all.text("string").as_deref()), (Some(-9_876_543_210), Some("12345")));
    for wrong in [
        &["--pattern", "all_reduce"][..],
        &["--pattern", "all_reduce", "--ranks", "0"],
        &["--ranks", "2"],
        &["--pattern", "no", "--ranks", "1"],
    ] {
        let all: Vec<&str> = ["trace", "generate", "--out", &to].into_iter().chain(wrong.iter().copied()).collect();
        assert!(!flowspace(&all).status.success(), "{wrong:?}");
    }
}

/// What Chakra's own tools wrote is what is written here, where such files are at hand: names, types, dependencies, times and sizes.
#[test]
fn generated_as_chakras_tools_do() {
    let found = ["../shared/traces", "../../shared/traces"].iter().map(|p| root().join(p)).find(|p| p.is_dir());
    let Some(shared) = found else {
        println!("no ../shared/traces: traces of Chakra's tools are not compared");
        return;
    };
    let folder = scratch("as_chakra");
    let theirs = |path: &Path| {
        let mut nodes = chakra::read(path).unwrap().nodes;
        // Their counter goes on from rank to rank.
        let first = nodes.iter().map(|n| n.id).min().unwrap();
        for node in &mut nodes {
            node.id -= first;
            node.data_deps.iter_mut().for_each(|d| *d -= first);
            node.attrs.retain(|a| &*a.name != "is_cpu_op");
        }
        nodes
    };
    let tools = shared.join("generated-chakra-tools");
    let workload = tools.join("text/MLP_ModelParallel/MLP_ModelParallel.txt");
    out(&["trace", "generate", "--layers", &text(&workload), "--ranks", "8", "--out", &text(&folder)]);
    for rank in 0..8 {
        let written = theirs(&tools.join(format!("text/MLP_ModelParallel/MLP_ModelParallel.{rank}.et")));
        assert_eq!(theirs(&folder.join(format!("trace.{rank}.et"))), written);
    }
    for name in
        ["one_remote_mem_load_node", "two_comp_nodes_dependent", "one_comm_send_node", "one_metadata_node_all_types"]
    {
        out(&["trace", "generate", "--pattern", name, "--ranks", "1", "--out", &text(&folder)]);
        let (mut ours, mut written) =
            (theirs(&folder.join(format!("{name}.0.et"))), theirs(&tools.join(format!("{name}.0.et"))));
        for node in ours.iter_mut().chain(&mut written) {
            node.attrs.iter_mut().for_each(|a| a.doc = "".into());
        }
        assert_eq!(ours, written, "{name}");
    }
    for (name, other) in [("all_reduce", "ALL_REDUCE"), ("barrier", "BARRIER")] {
        out(&["trace", "generate", "--pattern", name, "--ranks", "1", "--out", &text(&folder)]);
        assert_eq!(theirs(&folder.join(format!("{name}.0.et"))), theirs(&tools.join(format!("{other}.0.et"))));
    }
}

/// Files without an end, or that nobody writes, are refused at once by every command that reads a trace.
#[cfg(unix)]
#[test]
fn inputs_without_an_end() {
    let folder = scratch("endless");
    let fifo = text(&folder.join("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let zeros = text(&folder.join("zeros.et"));
    std::fs::File::create(&zeros).unwrap().set_len(1 << 40).unwrap(); // a hole of a tebibyte
    let bomb = text(&folder.join("bomb.json.gz"));
    {
        use std::io::Write as _;
        let mut packed =
            flate2::write::GzEncoder::new(std::fs::File::create(&bomb).unwrap(), flate2::Compression::best());
        packed.write_all(b"{\"traceEvents\": [").unwrap();
        (0..256).for_each(|_| packed.write_all(&[b'['; 1 << 16]).unwrap());
        packed.finish().unwrap();
    }
    let (o, layer) = (text(&folder.join("o.et")), text(&folder.join("o")));
    let commands: [&[&str]; 15] = [
        &["info", "X"],
        &["flops", "X"],
        &["lower", "X"],
        &["link", "--device", "X", "--out", &o],
        &["convert", "--device", "X", "--out", &o],
        &["convert", "X", "--out", &o],
        &["replay", "X"],
        &["critical-path", "X"],
        &["report", "X"],
        &["to-json", "X"],
        &["to-text", "X"],
        &["to-et", "X", "--out", &o],
        &["to-dot", "X"],
        &["timeline", "X"],
        &["generate", "--layers", "X", "--ranks", "1", "--out", &layer],
    ];
    for command in commands {
        for input in ["/dev/zero", &fifo, &zeros, &bomb] {
            let args: Vec<&str> = ["trace"].iter().chain(command).map(|a| if *a == "X" { input } else { *a }).collect();
            let output = flowspace(&args);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {error}");
            assert!(!error.contains("panicked") && error.len() < 20_000, "{args:?}: {error}");
        }
    }
}
