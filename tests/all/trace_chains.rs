//! Traces of plans of several blocks (embedding, layers, head): they do the plan's work, in the plan's time.

use super::trace_executions::{degrees, ranks, without_metadata};
use crate::scratch::Scratch;
use flowspace::check::derive;
use flowspace::plan::{Figures, file};
use flowspace::spec::Loader;
use flowspace::system::options::Overlap;
use flowspace::trace::chakra::{self, Node, NodeType};
use flowspace::workload::Workload;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// A transformer of so many layers with embedding and head on eight chips, mapped with so many of each.
fn planned(
    scratch: &Scratch,
    (layers, vocabulary, capacity): (u64, u64, &str),
    [tp, pp, dp]: [u64; 3],
) -> (Workload, Figures, Overlap) {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors/base");
    scratch.write(
        "w.yaml",
        &format!(
            "kind: language_model\nname: whole\nsource: \"assumed: a test\"\nhidden: 1024\nheads: 16\nseq: 1024\nlayers: {layers}\n\
             vocab: {vocabulary}\nglobal_batch: 16\n"
        ),
    );
    let dimensions: String = [tp, pp, dp]
        .iter()
        .map(|n| format!("    - {{ size: {n}, link: {} }}\n", base.join("link.yaml").display()))
        .collect();
    scratch.write(
        "s.yaml",
        &format!(
            "name: eight\nsource: \"assumed: a test\"\nchip: {{ from: {}, style: kernel_by_kernel }}\nmemory: {{ from: {}, capacity: {capacity} }}\n\
             network:\n  topology: torus-3d\n  \
             dimensions:\n{dimensions}chips: 8\n",
            base.join("chip.yaml").display(),
            base.join("memory.yaml").display(),
        ),
    );
    let degrees = [tp, pp, dp].map(|n| n.to_string());
    let [tp, pp, dp] = degrees.each_ref().map(String::as_str);
    let common = ["map", "--workload", "w.yaml", "--system", "s.yaml", "--plan-out", "plan.yaml"];
    scratch.succeed(&[&common[..], &["--tp", tp, "--pp", pp, "--dp", dp]].concat());
    let read = file::read(&Loader.load(&scratch.0.join("plan.yaml"), None).unwrap()).unwrap();
    let figures = derive(&read.workload, &read.system, &read.decisions).unwrap();
    (read.workload, figures, read.system.overlap())
}

/// Seconds until the last of the ranks' nodes has ended, collectives and messages taking none.
pub(super) fn replayed(traces: &[Vec<Node>]) -> f64 {
    replayed_by(traces, &|node| if node.kind == NodeType::Comp { node.duration_micros } else { 0 })
}

/// The same with nodes that take what `takes` says, microseconds.
pub(super) fn replayed_by(traces: &[Vec<Node>], takes: &dyn Fn(&Node) -> u64) -> f64 {
    let key = |n: &Node| (n.int("comm_src"), n.int("comm_dst"), n.int("comm_tag"));
    let mut sent: HashMap<_, u64> = HashMap::new();
    let mut ends: Vec<HashMap<u64, u64>> = vec![HashMap::new(); traces.len()];
    let mut at = vec![0; traces.len()];
    loop {
        let mut moved = false;
        for (rank, nodes) in traces.iter().enumerate() {
            while let Some(node) = nodes.get(at[rank]) {
                let arrived = if node.kind == NodeType::Recv {
                    let Some(end) = sent.get(&key(node)) else { break };
                    *end
                } else {
                    0
                };
                let ready = node.deps().map(|d| ends[rank][&d]).fold(arrived, u64::max);
                let end = ready + takes(node);
                if node.kind == NodeType::Send {
                    sent.insert(key(node), end);
                }
                ends[rank].insert(node.id, end);
                at[rank] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    assert!(traces.iter().zip(&at).all(|(nodes, at)| nodes.len() == *at), "a message is waited for that nobody sends");
    ends.iter().flat_map(HashMap::values).copied().max().unwrap_or(0) as f64 * 1e-6
}

#[test]
fn plans_of_several_blocks_have_traces() {
    for degrees in [[2, 2, 2], [2, 4, 1], [1, 4, 2], [8, 1, 1], [1, 2, 4]] {
        let scratch = Scratch::new("trace_chains");
        let (workload, f, overlap) = planned(&scratch, (4, 8192, "64 GB"), degrees);
        assert!(workload.is_chain());
        let microbatches = f.iteration.microbatches as u64;
        let mut whole = None;
        for granularity in ["partition", "kernel"] {
            let args = [
                "trace",
                "generate",
                "--plan",
                "plan.yaml",
                "--format",
                "json",
                "--out",
                granularity,
                "--granularity",
                granularity,
            ];
            let written: Value = serde_json::from_str(&scratch.succeed(&args)).unwrap();
            // A fused kernel that the chip runs beside the others may take no microsecond of its own.
            let found = ranks(&scratch, granularity, 8, u64::from(granularity == "partition"));
            assert_eq!(written["nodes"], found.nodes, "{degrees:?}");
            // Each partition as often as its block is repeated, for each microbatch, on each chip.
            let block = |kernel: &str| workload.kernels.iter().find(|k| k.name == kernel).unwrap().block;
            let of = |p: &flowspace::plan::PartitionFigures| workload.repeats(block(&p.kernels[0])) as f64;
            let planned: f64 = f.partitions.iter().map(|p| p.flop * of(p)).sum();
            let chips = (f.tp * f.dp * microbatches) as f64;
            assert!(
                (found.flop / (planned * chips) - 1.0).abs() < 1e-6,
                "{degrees:?}: {} {}",
                found.flop,
                planned * chips
            );
            let (bytes, flop) = whole.get_or_insert_with(|| (found.bytes.clone(), found.flop));
            assert!(*bytes == found.bytes && (*flop / found.flop - 1.0).abs() < 1e-6, "{degrees:?}");
            let report: Value =
                serde_json::from_str(&scratch.succeed(&["trace", "check", granularity, "--format", "json"])).unwrap();
            for list in ["mismatches", "faults"] {
                assert_eq!(report[list].as_array().unwrap().len(), 0, "{degrees:?}: {report}");
            }
        }
        let of_rank = |rank| chakra::read(&scratch.0.join(format!("partition/trace.{rank}.et"))).unwrap().nodes;
        let traces: Vec<Vec<Node>> = (0..8).map(of_rank).collect();
        // The embedding is on the first stage alone, the head on the last; what crosses is one tensor each way.
        let says = |nodes: &[Node], word: &str| nodes.iter().filter(|n| n.name.contains(word)).count();
        let stages = f.pp;
        let with = |word: &str| traces.iter().filter(|nodes| says(nodes, word) > 0).count() as u64;
        assert_eq!((with(", embedding 0"), with(", head 0")), (8 / stages, 8 / stages), "{degrees:?}");
        let messages: usize =
            traces.iter().map(|nodes| nodes.iter().filter(|n| n.kind == NodeType::Send).count()).sum();
        assert_eq!(messages as u64, 2 * microbatches * (stages - 1) * f.tp * f.dp, "{degrees:?}");
        // Without the network's seconds the iteration is the formula's of stages, at most (PP - 1) forward passes of the slowest less.
        let alone = |p: &flowspace::plan::PartitionFigures| {
            let work = if overlap == Overlap::None { p.compute_s + p.dram_s } else { p.compute_s.max(p.dram_s) };
            work + p.filling_s + p.overhead_s
        };
        let of_block = |b: usize| -> f64 {
            let here = |p: &&flowspace::plan::PartitionFigures| {
                workload.kernels.iter().any(|k| k.name == p.kernels[0] && k.block == b)
            };
            f.partitions.iter().filter(here).map(alone).sum()
        };
        let passes: Vec<f64> = f
            .stages
            .iter()
            .map(|s| s.of_blocks.iter().enumerate().map(|(b, n)| *n as f64 * of_block(b)).sum())
            .collect();
        let slowest = passes.iter().copied().fold(0.0, f64::max);
        let optimizer = f.stages.iter().map(|s| s.optimizer_s).fold(0.0, f64::max);
        let formula = passes.iter().sum::<f64>() + (microbatches - 1) as f64 * slowest;
        let step = replayed(&traces);
        assert!(step <= (formula + optimizer) * 1.01, "{degrees:?}: {step} s, {formula} s");
        assert!(step >= (formula - (stages - 1) as f64 * slowest / 2.0) * 0.99, "{degrees:?}: {step} s, {formula} s");
    }
}

#[test]
fn a_shipped_chain_has_a_trace() {
    let scratch = Scratch::new("trace_whole");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = |path: &str| root.join(path).display().to_string();
    let workload = shipped("workloads/language/gpt2-xl.yaml");
    // A chip without measured kernels: a language model is a chain of blocks there.
    let system = scratch.write(
        "s.yaml",
        &format!(
            "from: {}\nchip: {}\n",
            shipped("systems/sn10-8-torus-2d.yaml"),
            shipped("systems/chips/sn10-dfmodel.yaml")
        ),
    );
    let args = ["trace", "generate", "--workload", &workload, "--system", &system, "--microbatches", "2", "--out", "t"];
    let told = scratch.succeed(&args);
    assert!(told.contains("8 traces"), "{told}");
    ranks(&scratch, "t", 8, 1);
}

/// Which pass of which microbatch a rank runs, in the order of its trace: `F0` forward, `B0` backward, `W0` gradients of weights; chunks after the first
/// have a mark each.
pub(super) fn passes(nodes: &[Node]) -> String {
    let mut out: Vec<String> = Vec::new();
    for node in nodes.iter().filter(|n| n.kind == NodeType::Comp) {
        let Some(rest) = node.name.strip_prefix("microbatch ") else { continue };
        let (microbatch, rest) = rest.split_once(", ").unwrap();
        let chunk: usize =
            rest.split_once("of chunk ").map_or(0, |(_, c)| c.split(',').next().unwrap().parse().unwrap());
        let words = [("forward", 'F'), ("backward", 'B'), ("weight gradients", 'W')];
        let is = |word: &str| rest.split(", ").any(|part| part == word);
        let (_, letter) = words.into_iter().find(|(word, _)| is(word)).unwrap();
        let step = format!("{letter}{microbatch}{}", "'".repeat(chunk));
        if out.last() != Some(&step) {
            out.push(step);
        }
    }
    out.join(" ")
}

/// Orders of the first and the last of four stages for eight microbatches, by hand from the papers that `execution::passes` names.
pub(super) const ORDERS: [(&str, &str, &str); 4] = [
    ("gpipe", "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7", "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7"),
    ("1f1b", "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"),
    (
        "interleaved",
        "F0 F1 F2 F3 F0' F1' F2' F3' F4 F5 F6 B0' F7 B1' F4' B2' F5' B3' F6' B0 F7' B1 B2 B3 B4' B5' B6' B7' B4 B5 B6 B7",
        "F0 F1 F2 F3 F0' B0' F1' B1' F2' B2' F3' B3' F4 B0 F5 B1 F6 B2 F7 B3 F4' B4' F5' B5' F6' B6' F7' B7' B4 B5 B6 B7",
    ),
    (
        "zero_bubble",
        "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 W7",
        "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7",
    ),
];

/// Each schedule over the same plan: its order, the plan's work, and an iteration that takes what the plan and the schedule's bubble say.
#[test]
fn a_chain_has_a_trace_in_every_schedule() {
    let scratch = Scratch::new("trace_schedules");
    let (_, f, _) = planned(&scratch, (8, 64, "64 GB"), [1, 4, 2]);
    assert_eq!((f.pp, f.iteration.microbatches), (4, 8.0));
    let mut plain: Option<(f64, std::collections::BTreeMap<String, u128>)> = None;
    for (schedule, first, last) in ORDERS {
        for granularity in ["partition", "kernel"] {
            let out = format!("{schedule}-{granularity}");
            let args = ["--plan", "plan.yaml", "--granularity", granularity, "--schedule", schedule, "--out", &out];
            let told = scratch.succeed(&[&["trace", "generate", "--format", "json"], &args[..]].concat());
            let written: Value = serde_json::from_str(&told).unwrap();
            let found = ranks(&scratch, &out, 8, 0);
            assert_eq!(written["nodes"], found.nodes, "{out}");
            scratch.succeed(&["trace", "check", &out]);
            let of_rank = |rank| chakra::read(&scratch.0.join(format!("{out}/trace.{rank}.et"))).unwrap().nodes;
            let traces: Vec<Vec<Node>> = (0..8).map(of_rank).collect();
            // The pipeline is on a dimension inside that of the replicas.
            assert_eq!([passes(&traces[0]), passes(&traces[3])], [first, last], "{out}");
            assert_eq!([passes(&traces[4]), passes(&traces[7])], [first, last], "{out}");
            // Schedules differ in the order of the work, not in the work; interleaved, three crossings are seven.
            let mut bytes = found.bytes.clone();
            for way in ["COMM_SEND_NODE", "COMM_RECV_NODE"] {
                let n = bytes.get_mut(way).unwrap();
                *n = if schedule == "interleaved" { *n * 3 / 7 } else { *n };
            }
            let (flop, all) = plain.get_or_insert_with(|| (found.flop, bytes.clone()));
            assert!((*flop / found.flop - 1.0).abs() < 1e-6 && *all == bytes, "{out}: {bytes:?} {all:?}");
            // Hand-overs and the reduction of gradients take no time in this replay: the plan's iteration without them.
            let i = &f.iteration;
            let step = replayed(&traces);
            let weights = |rank: usize| -> f64 {
                let of = traces[rank].iter().filter(|n| n.name.contains(", weight gradients"));
                of.map(|n| n.duration_micros as f64).sum::<f64>() * 1e-6 / i.microbatches
            };
            let bubble = match schedule {
                "interleaved" => i.bubble_s / 2.0,
                "zero_bubble" => i.bubble_s - 2.0 * (0..3).map(weights).sum::<f64>(),
                _ => i.bubble_s,
            };
            let planned = i.work_s + bubble + i.optimizer_s;
            assert!((step / planned - 1.0).abs() < 0.01, "{out}: {step} s, planned {planned} s ({i:?})");
        }
    }
    // What no such trace can be made of.
    for (args, words) in [
        (&["--schedule", "interleaved", "--chunks", "3"][..], "has 2 repetitions of \"layers\", fewer than 3 chunks"),
        (&["--schedule", "interleaved", "--microbatches", "6"], "microbatches that pp = 4 divides, found 6"),
        (
            &["--schedule", "gpipe", "--chunks", "2"],
            "--chunks 2: the schedule gpipe has one piece on each stage: leave --chunks out, or give --schedule interleaved",
        ),
        (&["--schedule", "1f1"], "1f1b"),
        (&["--chunks", "2"], "--chunks 2: the schedule 1f1b has one piece on each stage"),
    ] {
        let out = scratch.run(&[&["trace", "generate", "--plan", "plan.yaml", "--out", "no"], args].concat());
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && err.contains(words), "{args:?}: {err}");
        assert!(!scratch.0.join("no").exists(), "{args:?}");
    }
    // All microbatches' activations are more than the plan's four of the first stage: 336 MiB more (its own 783 MiB have 336 of four).
    planned(&scratch, (8, 64, "900 MiB"), [1, 4, 2]);
    let out = scratch.run(&["trace", "generate", "--plan", "plan.yaml", "--out", "no", "--schedule", "gpipe"]);
    let err = String::from_utf8_lossy(&out.stderr);
    let words = "in the schedule gpipe stage 0 keeps activations of 8.0 microbatches and needs 1.093 GiB or more, the memory holds 900";
    assert!(!out.status.success() && err.contains(words), "{err}");
}

/// Degrees of plans are told by groups and messages as the plans have them, in every schedule.
#[test]
fn degrees_of_plans_are_recovered() {
    let scratch = Scratch::new("trace_plan_degrees");
    for [tp, pp, dp] in [[2, 2, 2], [2, 4, 1], [1, 4, 2], [8, 1, 1], [1, 2, 4], [1, 1, 8]] {
        planned(&scratch, (8, 8192, "64 GB"), [tp, pp, dp]);
        for (schedule, _, _) in ORDERS {
            let chunks = if schedule == "interleaved" { 2 } else { 1 };
            if chunks > 1 && pp == 1 {
                continue;
            }
            let _ = std::fs::remove_dir_all(scratch.0.join("out"));
            scratch.succeed(&["trace", "generate", "--plan", "plan.yaml", "--schedule", schedule, "--out", "out"]);
            let mut wanted = serde_json::json!({"tp": tp, "pp": pp, "dp": dp, "cp": 1, "ep": 1, "chunks": chunks});
            assert_eq!(degrees(&scratch, "out"), wanted, "{schedule}");
            without_metadata(&scratch, "out", 8);
            if pp == 2 {
                wanted["chunks"] = Value::Null;
            }
            assert_eq!(degrees(&scratch, "out"), wanted, "{schedule}");
        }
    }
}
