//! Traces of plans of several blocks (embedding, layers, head): they do the plan's work, in the plan's time.

use super::trace_executions::ranks;
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

/// A transformer of four layers with embedding and head on eight chips, mapped with so many of each.
fn planned(scratch: &Scratch, [tp, pp, dp]: [u64; 3]) -> (Workload, Figures, Overlap) {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors/base");
    scratch.write(
        "w.yaml",
        "kind: language_model\nname: whole\nsource: \"assumed: a test\"\nhidden: 1024\nheads: 16\nseq: 1024\nlayers: 4\nvocab: 8192\nglobal_batch: 16\n",
    );
    let dimensions: String = [tp, pp, dp]
        .iter()
        .map(|n| format!("    - {{ size: {n}, link: {} }}\n", base.join("link.yaml").display()))
        .collect();
    scratch.write(
        "s.yaml",
        &format!(
            "name: eight\nsource: \"assumed: a test\"\nchip: {{ from: {}, style: kernel_by_kernel }}\nmemory: {{ from: {}, capacity: 64 GB }}\nnetwork:\n  topology: torus-3d\n  \
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
fn replayed(traces: &[Vec<Node>]) -> f64 {
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
                let end = ready + if node.kind == NodeType::Comp { node.duration_micros } else { 0 };
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
        let (workload, f, overlap) = planned(&scratch, degrees);
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
