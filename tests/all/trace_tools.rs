//! `flowspace trace` from outside, and the figures of generated traces.

use flowspace::trace::chakra::{self, CommType, Node, NodeType, Scalar};
use flowspace::trace::{detect, host, kineto};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn corpus(name: &str) -> PathBuf {
    root().join("tests/traces").join(name)
}

pub(super) fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("trace_tools_{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(super) fn flowspace(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowspace")).args(args).env_remove("RUST_BACKTRACE").output().unwrap()
}

pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Standard output of a run that must succeed.
pub(super) fn out(args: &[&str]) -> String {
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
    // Gloo records no parameters of its calls: on the host they are arguments of operators and of its threads' ranges, each once; on the device these ranges alone.
    for (side, expected) in [
        ("host", vec![("ALL_REDUCE", Some(10_528), 1), ("BROADCAST", Some(4), 1), ("BROADCAST", Some(20), 1)]),
        ("device", vec![("ALL_REDUCE", None, 1), ("BROADCAST", None, 2)]),
    ] {
        let file = text(&corpus(&format!("torch_ddp_rank0_{side}.json.gz")));
        let found: Value = serde_json::from_str(&out(&["trace", "info", "--format", "json", &file])).unwrap();
        let calls = found[0]["collectives"].as_array().unwrap();
        let calls =
            calls.iter().map(|c| (c["kind"].as_str().unwrap(), c["bytes"].as_u64(), c["count"].as_u64().unwrap()));
        assert_eq!(calls.collect::<Vec<_>>(), expected);
    }
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
/// Ranks that bring different bytes to an all-to-all are found, and each gets the most.
#[test]
fn uneven_all_to_alls() {
    let scratch = crate::scratch::Scratch::new("trace_uneven");
    for (bytes, out) in [("100", "less"), ("300", "more")] {
        let pattern = ["--pattern", "all_to_all", "--ranks", "2", "--comm-size", bytes, "--out", out];
        scratch.succeed(&[&["trace", "generate"], &pattern[..]].concat());
    }
    let (from, to) = (scratch.file("more/all_to_all.1.et"), scratch.file("less/all_to_all.1.et"));
    std::fs::copy(from, to).unwrap();
    let out = scratch.run(&["trace", "check", "less"]);
    let told = String::from_utf8(out.stdout).unwrap();
    assert!(!out.status.success() && told.contains("mismatch (bytes): rank 1, node 0"), "{told}");
    let of = |folder: &str| {
        let run = flowspace::trace::runs::load(Path::new(&scratch.file(folder)), None).unwrap();
        flowspace::trace::runs::uneven(&run)
    };
    assert_eq!(of("less"), [(0, [(0, 300)].into())].into());
    assert!(of("more").is_empty());
}

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

/// Ranks of two runs in one folder would be taken for one run: what is left of another run is named, and nothing is written.
#[test]
fn ranks_of_two_runs_are_not_mixed() {
    let folder = scratch("two_runs");
    let to = text(&folder);
    let pattern =
        |ranks: &str, name: &str| flowspace(&["trace", "generate", "--pattern", name, "--ranks", ranks, "--out", &to]);
    assert!(pattern("4", "all_reduce").status.success());
    // As many again, and other files beside them, are fine.
    assert!(pattern("4", "all_reduce").status.success());
    assert!(pattern("2", "all_gather").status.success());
    let refused = pattern("3", "all_reduce");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("all_reduce.3.et is of another run"), "{message}");
    // A language model's groups stand for all traces of the folder.
    let plan = ["--workload", "gpt3-175b", "--system", "selene-2022", "--out", &to, "--microbatches", "8"];
    let refused = flowspace(&[&["trace", "generate"], &plan[..]].concat());
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && message.contains("comm_group.json of the folder is that of one run"),
        "{message}"
    );
    assert!(!folder.join("comm_group.json").exists() && !folder.join("trace.0.et").exists());
}

/// Host and device trace of different processes are linked, since their operators may match, and it is said.
#[test]
fn traces_of_two_processes_are_told() {
    let file = |rank: u32, what: &str| text(&corpus(&format!("torch_ddp_rank{rank}_{what}.json.gz")));
    let link = |host: u32, device: u32| {
        let output = flowspace(&["trace", "link", "--host", &file(host, "host"), "--device", &file(device, "device")]);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(!link(0, 0).contains("process"));
    let told = link(0, 1);
    assert!(
        told.contains("warning: the host trace is of process") && told.contains("different ranks or in different runs"),
        "{told}"
    );
}

/// `trace report --plot` draws what its tables say: a figure for each analysis that the trace has something of.
#[test]
fn reports_are_drawn() {
    let folder = scratch("drawn");
    let stem = text(&folder.join("r"));
    out(&["trace", "report", &text(&corpus("kineto_streams.json")), "--plot", &stem]);
    let figure = |of: &str| std::fs::read_to_string(folder.join(format!("r-{of}.svg"))).unwrap();
    let report: Value =
        serde_json::from_str(&out(&["trace", "report", &text(&corpus("kineto_streams.json")), "--format", "json"]))
            .unwrap();
    for stream in report["idle"].as_array().unwrap() {
        assert!(figure("idle").contains(&format!("stream {}", stream["stream"])));
    }
    for t in report["kernel_types"].as_array().unwrap() {
        // A long name stands on several lines.
        let drawn = figure("running");
        assert!(t["kernel_type"].as_str().unwrap().to_lowercase().split(' ').all(|word| drawn.contains(word)));
    }
    assert!(figure("kernels").contains("<svg") && folder.join("r-kernels.png").is_file());
    let nowhere = flowspace(&["trace", "report", &text(&corpus("kineto_streams.json")), "--plot", "/no/such/folder/r"]);
    assert!(!nowhere.status.success() && String::from_utf8_lossy(&nowhere.stderr).contains("there is no folder"));
}
