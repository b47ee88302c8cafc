//! `flowspace trace generate`: traces of plans, of text workloads, and patterns.

use super::trace_tools::{flowspace, out, root, scratch, text};
use flowspace::check::derive;
use flowspace::plan::{Plan, file};
use flowspace::spec::Loader;
use flowspace::trace::chakra::{self, CommGroups, CommType, Node, NodeType};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// What ASTRA-sim asks of a trace, checked by protobuf's own Python package, where it is installed (`FLOWSPACE_PROTOBUF`: it has to be): `scripts/et_check.py`.
#[test]
fn files_obey_the_simulator() {
    let folder = scratch("feeder");
    let (path, _) = plan_of_eight(&folder);
    let mut folders = Vec::new();
    for schedule in ["gpipe", "1f1b", "interleaved", "zero_bubble"] {
        let traces = folder.join(schedule);
        out(&["trace", "generate", "--plan", &text(&path), "--schedule", schedule, "--out", &text(&traces)]);
        folders.push(traces);
    }
    // Executions: of kernels on GPUs, of graphs on dataflow chips.
    let model = folder.join("m.yaml");
    std::fs::write(
        &model,
        "{kind: language_model, name: some, source: a test, layers: 4, hidden: 256, heads: 8, vocab: 1024, seq: 128, global_batch: 32, experts: {count: 4, \
         top_k: 2, ffn: 256, first_dense_layers: 1}}",
    )
    .unwrap();
    for (system, execution) in [
        ("clusters/selene-2022.yaml", "tp: 2, pp: 2, dp: 2, ep: 2, micro_batch: 1, sequence_parallel: true, zero: 3"),
        (
            "clusters/selene-2022.yaml",
            "tp: 1, pp: 2, dp: 1, cp: 4, ep: 2, micro_batch: 1, schedule: interleaved, chunks: 2",
        ),
        ("sn10-8-torus-2d.yaml", "tp: 2, pp: 2, dp: 2, ep: 2, micro_batch: 1, zero: 1, schedule: zero_bubble"),
    ] {
        let file = folder.join("e.yaml");
        std::fs::write(&file, format!("name: e\nsource: a test\nexecution: {{{execution}}}\n")).unwrap();
        let traces = folder.join(format!("execution-{}", folders.len()));
        let (model, system) = (text(&model), text(&root().join("systems").join(system)));
        let common = ["trace", "generate", "--workload", &model, "--system", &system, "--execution"];
        out(&[&common[..], &[&text(&file), "--out", &text(&traces)]].concat());
        folders.push(traces);
    }
    let recorded = root().join("tests/traces/torch_ddp");
    let converted = folder.join("converted");
    std::fs::create_dir_all(&converted).unwrap();
    out(&["trace", "convert", &text(&recorded), "--out", &text(&converted.join("trace"))]);
    folders.push(converted.clone());
    let check = |folders: &[PathBuf]| {
        let script = root().join("scripts/et_check.py");
        let done = Command::new("python3").arg(script).args(folders).output().ok()?;
        Some((done.status.code()?, String::from_utf8_lossy(&done.stdout).into_owned()))
    };
    let Some((code, told)) = check(&folders).filter(|(code, _)| *code != 3) else {
        assert!(std::env::var_os("FLOWSPACE_PROTOBUF").is_none(), "no Python with the package protobuf");
        println!("no Python with the package protobuf: its reader is not asked");
        return;
    };
    assert_eq!((code, told.matches(", 0 faults\n").count()), (0, folders.len()), "{told}");
    // It finds what is wrong.
    std::fs::remove_file(converted.join("comm_group.json")).unwrap();
    let (code, told) = check(&[converted]).unwrap();
    assert!(code == 1 && told.contains("does not list rank 0: "), "{told}");
}
