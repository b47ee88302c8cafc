//! Traces of executions of language models: `flowspace trace generate` in every schedule, read back by our reader.

use super::trace_chains::{ORDERS, passes, replayed};
use crate::scratch::Scratch;
use flowspace::trace::chakra::{self, CommGroups, Node, NodeType};
use std::collections::BTreeMap;

const DENSE: &str = "{kind: language_model, name: small, source: a test, layers: 8, hidden: 256, heads: 8, vocab: 1024, tied_embeddings: true, \
                     seq: 128, global_batch: 32}";
const EXPERTS: &str = "{kind: language_model, name: some, source: a test, layers: 4, hidden: 256, heads: 8, gated: true, vocab: 1024, seq: 128, \
                       global_batch: 32, experts: {count: 4, top_k: 2, ffn: 256, first_dense_layers: 1}}";

/// Sums of all ranks, checked on the way: every graph can run, every message is received as it was sent, every collective has all its ranks.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) flop: f64,
    pub(super) nodes: u64,
    pub(super) bytes: BTreeMap<String, u128>,
}

pub(super) fn ranks(scratch: &Scratch, folder: &str, ranks: u64, least_us: u64) -> Sums {
    let folder = scratch.0.join(folder);
    let groups = CommGroups::read(&folder.join("comm_group.json")).unwrap();
    let mut out = Sums::default();
    // Source, destination, tag: bytes as sent and as received.
    let mut messages: BTreeMap<(i64, i64, i64), [Vec<u64>; 2]> = BTreeMap::new();
    // Group: what each rank says there, in order.
    let mut calls: BTreeMap<String, BTreeMap<u64, Vec<(i64, u64)>>> = BTreeMap::new();
    for rank in 0..ranks {
        let path = folder.join(format!("trace.{rank}.et"));
        let nodes: Vec<Node> = chakra::read(&path).unwrap().nodes;
        let links: Vec<chakra::graph::Links> = nodes.iter().map(chakra::graph::Links::from).collect();
        assert!(chakra::graph::faults(&links, &path).is_empty());
        out.nodes += nodes.len() as u64;
        for node in &nodes {
            assert_eq!(node.flag("is_cpu_op"), Some(false));
            if node.kind == NodeType::Comp {
                assert!(
                    node.uint("num_ops") > Some(0)
                        && node.uint("tensor_size") > Some(0)
                        && node.duration_micros >= least_us
                );
                out.flop += if &*node.name == "optimizer" { 0.0 } else { node.number("num_ops").unwrap() };
                continue;
            }
            let size = node.uint("comm_size").unwrap();
            assert!(size > 0, "{}", node.name);
            let word = node.comm_type().map_or_else(|| node.kind.name(), |c| c.name().to_owned());
            *out.bytes.entry(word).or_default() += u128::from(size);
            match node.comm_type() {
                Some(kind) => {
                    let group = node.group().unwrap();
                    calls.entry(group).or_default().entry(rank).or_default().push((kind.number(), size));
                }
                None => {
                    let at = |name| node.int(name).unwrap();
                    let key = (at("comm_src"), at("comm_dst"), at("comm_tag"));
                    let received = node.kind == NodeType::Recv;
                    assert_eq!(if received { key.1 } else { key.0 }, rank as i64);
                    messages.entry(key).or_default()[usize::from(received)].push(size);
                }
            }
        }
    }
    for (key, [sent, received]) in &messages {
        assert!(sent.len() == 1 && sent == received, "{key:?}: {sent:?} {received:?}");
    }
    for (group, by_rank) in &calls {
        let members: Vec<u64> = by_rank.keys().copied().collect();
        assert_eq!(groups.0[group], members, "group {group}");
        let first = by_rank.values().next().unwrap();
        assert!(by_rank.values().all(|list| list == first), "group {group}: ranks differ");
    }
    out
}

#[test]
fn every_schedule_has_a_trace_with_the_predictions_work() {
    let scratch = Scratch::new("trace_executions");
    let system = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/clusters/selene-2022.yaml");
    let system = system.display().to_string();
    let base = "tp: 2, pp: 2, dp: 2, micro_batch: 1";
    let mut plain = None;
    for (name, execution) in [
        ("1f1b", format!("{base}, schedule: 1f1b")),
        ("gpipe", format!("{base}, schedule: gpipe")),
        ("zero_bubble", format!("{base}, schedule: zero_bubble")),
        ("interleaved", format!("{base}, schedule: interleaved, chunks: 2")),
        ("sharded", format!("{base}, schedule: 1f1b, zero: 3, sequence_parallel: true, recompute: full")),
        ("context", "tp: 1, pp: 4, cp: 2, dp: 1, micro_batch: 2, zero: 1, recompute: selective".into()),
        ("experts", "tp: 1, pp: 2, dp: 4, ep: 2, micro_batch: 1, zero: 2".into()),
    ] {
        scratch.write("model.yaml", if name == "experts" { EXPERTS } else { DENSE });
        scratch.write("e.yaml", &format!("name: e\nsource: a test\nexecution: {{{execution}}}\n"));
        let common = ["--workload", "model.yaml", "--system", &system, "--execution", "e.yaml"];
        let args: Vec<&str> =
            ["trace", "generate", "--out", name, "--format", "json"].into_iter().chain(common).collect();
        let written: serde_json::Value = serde_json::from_str(&scratch.succeed(&args)).unwrap();
        let found = ranks(&scratch, name, 8, 1);
        assert_eq!(written["nodes"], found.nodes, "{name}");
        for (kind, bytes) in &found.bytes {
            let short = kind.trim_start_matches("COMM_").trim_end_matches("_NODE");
            assert_eq!(written["bytes"][short].as_u64().map(u128::from), Some(*bytes), "{name} {kind}");
        }
        // The prediction's own FLOP: its share of the peak times peak, chips and time.
        let args: Vec<&str> = ["map", "--format", "json"].into_iter().chain(common).collect();
        let map: serde_json::Value = serde_json::from_str(&scratch.succeed(&args)).unwrap();
        let (share, total) = (map["hardware_flop_utilization"].as_f64(), map["iteration_s"].as_f64());
        let wanted = share.unwrap() * total.unwrap() * 8.0 * 312e12;
        assert!((found.flop / wanted - 1.0).abs() < 1e-3, "{name}: {} FLOP, predicted {wanted}", found.flop);
        // Schedules differ in the order of the work, not in the work.
        if ["1f1b", "gpipe", "zero_bubble"].contains(&name) {
            let now = (found.flop.round(), found.bytes.clone());
            let (flop, bytes) = plain.get_or_insert_with(|| now.clone());
            assert!((*flop / now.0 - 1.0).abs() < 1e-6 && *bytes == now.1, "{name}: {now:?}");
        }
        scratch.succeed(&["trace", "check", name]);
    }
    // By hand, 1F1B: 8 layers, 16 microbatches of each of 2 replicas, hidden activation 128 x 256 x 2 bytes; two all-reduces a layer
    // each way, one of the embedding forward, one of the head backward, on 2 ranks.
    let reduces: u128 = 2 * 16 * 2 * (8 * 4 + 2) * (128 * 256 * 2);
    let bytes = plain.unwrap().1;
    assert_eq!(bytes["COMM_SEND_NODE"], bytes["COMM_RECV_NODE"]);
    assert!(bytes["ALL_REDUCE"] > reduces, "{bytes:?}");
}

/// Each schedule of an execution: its order, and an iteration that takes what is predicted. Software that costs nothing by itself, so that the only seconds
/// outside kernels are those of hand-overs, which take none in this replay.
#[test]
fn every_schedule_replays_to_the_predicted_iteration() {
    let scratch = Scratch::new("trace_execution_orders");
    let systems = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systems");
    scratch.write(
        "system.yaml",
        &format!(
            "name: four\nsource: a test\nchip: {0}/chips/a100.yaml\nmemory: {0}/memories/a100-80gb-hbm2e.yaml\nstack:\n  from: \
             {0}/stacks/megatron-lm-2022.yaml\n  host_microbatch: 0 ms\n  host_hand_over: 0 ms\n  host_iteration: 0 ms\nnetwork:\n  \
             topology: custom\n  dimensions:\n    - {{ size: 4, topology: switch, link: {0}/links/nvlink-3.yaml }}\n",
            systems.display()
        ),
    );
    scratch.write(
        "model.yaml",
        "{kind: language_model, name: even, source: a test, layers: 8, hidden: 2048, heads: 16, vocab: 16, seq: 2048, global_batch: 8}",
    );
    for (schedule, first, last) in ORDERS {
        let chunks = if schedule == "interleaved" { 2 } else { 1 };
        scratch.write(
            "e.yaml",
            &format!(
                "name: e\nsource: a test\nexecution: {{pp: 4, micro_batch: 1, schedule: {schedule}, chunks: {chunks}}}\n"
            ),
        );
        let common = ["--workload", "model.yaml", "--system", "system.yaml", "--execution", "e.yaml"];
        let args: Vec<&str> = ["trace", "generate", "--out", schedule].into_iter().chain(common).collect();
        scratch.succeed(&args);
        let of_rank = |rank| chakra::read(&scratch.0.join(format!("{schedule}/trace.{rank}.et"))).unwrap().nodes;
        let traces: Vec<Vec<Node>> = (0..4).map(of_rank).collect();
        assert_eq!([passes(&traces[0]), passes(&traces[3])], [first, last], "{schedule}");
        let args: Vec<&str> = ["map", "--format", "json"].into_iter().chain(common).collect();
        let map: serde_json::Value = serde_json::from_str(&scratch.succeed(&args)).unwrap();
        let part = |name: &str| map["iteration_parts_s"][name].as_f64().unwrap();
        // Each microbatch is handed over once, or once a chunk; three other stages fill and drain with theirs.
        let hop = part("hand_over") / 8.0 / chunks as f64;
        let predicted = part("total") - part("hand_over") - 3.0 * hop / chunks as f64;
        let step = replayed(&traces);
        assert!((step / predicted - 1.0).abs() < 0.01, "{schedule}: {step} s, predicted {predicted} s");
    }
}

/// What `trace check` says of a folder: degrees and what differs from what the files state.
pub(super) fn degrees(scratch: &Scratch, folder: &str) -> serde_json::Value {
    let told = scratch.succeed(&["trace", "check", folder, "--format", "json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert!(told["parallelism"]["differ"].as_array().unwrap().is_empty(), "{folder}: {told}");
    told["parallelism"]["degrees"].clone()
}

/// Takes the metadata out of a folder's files.
pub(super) fn without_metadata(scratch: &Scratch, folder: &str, ranks: u64) {
    for rank in 0..ranks {
        let path = scratch.0.join(format!("{folder}/trace.{rank}.et"));
        let mut trace = chakra::read(&path).unwrap();
        assert!(!std::mem::take(&mut trace.metadata.attrs).is_empty());
        chakra::write(&trace, &path).unwrap();
    }
}

/// Degrees are told by groups and messages as they were asked for, in every schedule; without the files' own statement, too, but for chunks of two stages, whose
/// messages do not tell them from microbatches.
#[test]
fn degrees_of_executions_are_recovered() {
    let scratch = Scratch::new("trace_degrees");
    let system = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/clusters/selene-2022.yaml");
    let system = system.display().to_string();
    scratch.write("dense.yaml", DENSE);
    scratch.write("experts.yaml", &EXPERTS.replace("layers: 4", "layers: 8"));
    // TP, PP, DP, CP, EP, ZeRO, sequence parallel.
    let cases = [
        ([2, 2, 2, 1, 1, 0], false),
        ([2, 4, 1, 1, 1, 1], false),
        ([1, 4, 2, 1, 1, 2], false),
        ([2, 4, 2, 1, 1, 3], true),
        ([1, 2, 1, 2, 1, 0], false),
        ([2, 2, 2, 2, 1, 2], true),
        ([1, 4, 1, 2, 1, 3], false),
        ([1, 2, 4, 1, 2, 1], false),
        ([1, 4, 4, 1, 4, 3], false),
        ([2, 2, 4, 1, 2, 2], true),
        ([1, 2, 2, 2, 2, 1], false),
        ([1, 4, 1, 1, 1, 0], false),
        ([2, 1, 1, 1, 1, 0], true),
        ([2, 1, 1, 2, 1, 0], true),
        ([1, 1, 4, 1, 1, 0], false),
        ([1, 1, 4, 1, 1, 2], false),
        ([1, 1, 4, 1, 1, 3], false),
    ];
    for (schedule, chunks) in [("gpipe", 1), ("1f1b", 1), ("zero_bubble", 1), ("interleaved", 2)] {
        for ([tp, pp, dp, cp, ep, zero], sequence) in cases {
            if schedule == "interleaved" && pp == 1 {
                continue;
            }
            let execution = format!(
                "tp: {tp}, pp: {pp}, dp: {dp}, cp: {cp}, ep: {ep}, zero: {zero}, sequence_parallel: {sequence}, micro_batch: 1, \
                 schedule: {schedule}, chunks: {chunks}"
            );
            scratch.write("e.yaml", &format!("name: e\nsource: a test\nexecution: {{{execution}}}\n"));
            let model = if ep > 1 { "experts.yaml" } else { "dense.yaml" };
            let _ = std::fs::remove_dir_all(scratch.0.join("out"));
            let common = ["--workload", model, "--system", &system, "--execution", "e.yaml", "--out", "out"];
            scratch.succeed(&[&["trace", "generate"], &common[..]].concat());
            let mut wanted = serde_json::json!({"tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "chunks": chunks});
            assert_eq!(degrees(&scratch, "out"), wanted, "{execution}");
            without_metadata(&scratch, "out", tp * pp * dp * cp);
            if pp == 2 {
                wanted["chunks"] = serde_json::Value::Null;
            }
            assert_eq!(degrees(&scratch, "out"), wanted, "{execution}");
        }
    }
    // A statement that groups and messages contradict.
    scratch.write("e.yaml", "name: e\nsource: a test\nexecution: {tp: 2, pp: 2, dp: 2, micro_batch: 1}\n");
    let _ = std::fs::remove_dir_all(scratch.0.join("out"));
    let args = ["--workload", "dense.yaml", "--system", &system, "--execution", "e.yaml", "--out", "out"];
    scratch.succeed(&[&["trace", "generate"], &args[..]].concat());
    for rank in 0..8 {
        let path = scratch.0.join(format!("out/trace.{rank}.et"));
        let mut trace = chakra::read(&path).unwrap();
        let attrs = &mut trace.metadata.attrs;
        attrs
            .iter_mut()
            .filter(|a| &*a.name == "tp")
            .for_each(|a| *a = chakra::Attr::new("tp", chakra::Scalar::Int64(4)));
        chakra::write(&trace, &path).unwrap();
    }
    let out = scratch.run(&["trace", "check", "out"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(!out.status.success(), "{text}");
    assert!(
        text.contains("mismatch (tp): the files state 4, groups and messages tell 2\n1 mismatches, 0 faults"),
        "{text}"
    );
}

/// Options beside an execution file take the place of what it says, and what cannot be is told with what can.
#[test]
fn options_beside_an_execution_file() {
    let scratch = Scratch::new("trace_execution_options");
    let system = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systems/clusters/selene-2022.yaml");
    let system = system.display().to_string();
    scratch.write("dense.yaml", DENSE);
    scratch.write("e.yaml", "name: e\nsource: a test\nexecution: {pp: 4, micro_batch: 1, schedule: 1f1b}\n");
    scratch.write(
        "i.yaml",
        "name: e\nsource: a test\nexecution: {pp: 4, micro_batch: 1, schedule: interleaved, chunks: 2}\n",
    );
    let run = |file: &str, more: &[&str]| {
        let common =
            ["trace", "generate", "--workload", "dense.yaml", "--system", &system, "--execution", file, "--out", "out"];
        let _ = std::fs::remove_dir_all(scratch.0.join("out"));
        scratch.run(&[&common[..], more].concat())
    };
    for (file, more, schedule, chunks) in [
        ("e.yaml", &[][..], "1f1b", 1),
        ("e.yaml", &["--schedule", "gpipe"], "gpipe", 1),
        ("e.yaml", &["--schedule", "interleaved"], "interleaved", 2),
        ("i.yaml", &["--schedule", "zero_bubble"], "zero_bubble", 1),
        ("i.yaml", &["--chunks", "2"], "interleaved", 2),
    ] {
        let out = run(file, more);
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains(&format!("EP 1, {schedule}\n")), "{more:?}: {text}");
        assert_eq!(degrees(&scratch, "out")["chunks"], chunks, "{more:?}");
    }
    for (file, more, words) in [
        (
            "e.yaml",
            &["--chunks", "2"][..],
            "--chunks 2: the schedule 1f1b has one piece on each stage: leave --chunks out, or give --schedule interleaved",
        ),
        (
            "e.yaml",
            &["--schedule", "gpipe", "--chunks", "4"],
            "--chunks 4: the schedule gpipe has one piece on each stage",
        ),
        (
            "e.yaml",
            &["--schedule", "interleaved", "--chunks", "1"],
            "--chunks 1: an interleaved schedule has two or more pieces on each stage",
        ),
        ("i.yaml", &["--chunks", "1"], "--chunks 1: an interleaved schedule has two or more pieces on each stage"),
    ] {
        let out = run(file, more);
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && err.contains(words), "{more:?}: {err}");
    }
}
