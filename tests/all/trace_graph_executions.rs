//! Traces of executions whose blocks are mapped as graphs (dataflow chips, `software: free`): the prediction's work, in the prediction's time.

use super::trace_chains::{ORDERS, passes, replayed, replayed_by};
use super::trace_executions::{degrees, ranks, without_metadata};
use crate::scratch::Scratch;
use flowspace::execution::Machine;
use flowspace::execution::machine::{Peers, Traffic};
use flowspace::spec::Reader;
use flowspace::system::System;
use flowspace::trace::chakra::{self, CommType, Node, NodeType};
use flowspace::workload::{WorkloadSpec, language::LanguageModel};
use serde_json::Value;
use std::path::Path;

const DENSE: &str = "{kind: language_model, name: even, source: a test, layers: 8, hidden: 2048, heads: 16, vocab: 64, seq: 2048, global_batch: 8}";
const EXPERTS: &str = "{kind: language_model, name: some, source: a test, layers: 4, hidden: 1024, heads: 8, gated: true, vocab: 4096, seq: 1024, \
                       global_batch: 8, experts: {count: 4, top_k: 2, ffn: 1024, first_dense_layers: 1}}";

/// Eight SN30 in a ring whose links carry so much; of a small SRAM blocks take several partitions.
fn system(scratch: &Scratch, link: &str, sram: &str, more: &str) {
    let systems = Path::new(env!("CARGO_MANIFEST_DIR")).join("systems");
    let systems = systems.display();
    scratch.write(
        "s.yaml",
        &format!(
            "name: eight\nsource: a test\nchip: {{ from: {systems}/chips/sn30.yaml, sram: {sram} }}\nmemory: {systems}/memories/ddr.yaml\n{more}\
             network:\n  topology: custom\n  dimensions:\n    - {{ size: 8, topology: ring, link: {{ from: {systems}/links/pcie.yaml, {link} }} }}\n"
        ),
    );
}

/// What is predicted of an execution, and its trace in folder `out`: the ranks' nodes.
fn traced(scratch: &Scratch, model: &str, execution: &str) -> (Value, Vec<Vec<Node>>) {
    scratch.write("m.yaml", model);
    scratch.write("e.yaml", &format!("name: e\nsource: a test\nexecution: {{{execution}}}\n"));
    let common = ["--workload", "m.yaml", "--system", "s.yaml", "--execution", "e.yaml", "--format", "json"];
    let _ = std::fs::remove_dir_all(scratch.0.join("out"));
    let written: Value =
        serde_json::from_str(&scratch.succeed(&[&["trace", "generate", "--out", "out"], &common[..]].concat()))
            .unwrap();
    let map: Value = serde_json::from_str(&scratch.succeed(&[&["map"], &common[..]].concat())).unwrap();
    let chips = written["ranks"].as_u64().unwrap();
    let found = ranks(scratch, "out", chips, 1);
    assert_eq!(written["nodes"], found.nodes, "{execution}");
    for (kind, bytes) in &found.bytes {
        let short = kind.trim_start_matches("COMM_").trim_end_matches("_NODE");
        assert_eq!(written["bytes"][short].as_u64().map(u128::from), Some(*bytes), "{execution} {kind}");
    }
    // The prediction's own FLOP: its share of the peak times peak, chips and time.
    let (machine, model) = machine(scratch);
    let share = map["hardware_flop_utilization"].as_f64().unwrap() * map["iteration_s"].as_f64().unwrap();
    let wanted = share * chips as f64 * machine.peak(&model).unwrap();
    // Every pass has a last digit, and what has no product one FLOP.
    assert!((found.flop / wanted - 1.0).abs() < 1e-5, "{execution}: {} FLOP, predicted {wanted}", found.flop);
    scratch.succeed(&["trace", "check", "out"]);
    let of_rank = |rank| chakra::read(&scratch.0.join(format!("out/trace.{rank}.et"))).unwrap().nodes;
    (map, (0..chips).map(of_rank).collect())
}

fn machine(scratch: &Scratch) -> (Machine, LanguageModel) {
    let system = System::build(&System::load(&scratch.0.join("s.yaml")).unwrap()).unwrap();
    let tree = WorkloadSpec::load(&scratch.0.join("m.yaml")).unwrap();
    let Ok(WorkloadSpec::Language(model)) = Reader::read::<WorkloadSpec>(&tree) else { panic!("no language model") };
    (Machine::of_graphs(&system), *model)
}

/// Filling is part of a partition's computation in a trace: what waits for the network beside it is then replayed as beside it, and not behind.
const WITHOUT_FILLING: &str = "model: { pipeline_filling: ignored }\n";

/// On a network that takes next to no time the iteration is the prediction's, in every schedule.
#[test]
fn every_schedule_replays_to_the_prediction() {
    let scratch = Scratch::new("trace_graph_orders");
    // With filling the best mapping has no partition of gradients of weights alone, which a schedule would put off.
    system(&scratch, "bandwidth: 1000 TB/s, latency: 0 us", "40 MB", WITHOUT_FILLING);
    let mut plain = None;
    for (schedule, first, last) in ORDERS {
        let chunks = if schedule == "interleaved" { 2 } else { 1 };
        let execution = format!("tp: 2, pp: 4, micro_batch: 1, schedule: {schedule}, chunks: {chunks}");
        let (map, traces) = traced(&scratch, DENSE, &execution);
        // Two ranks a stage.
        assert_eq!([passes(&traces[0]), passes(&traces[7])], [first, last], "{schedule}");
        let (step, predicted) = (replayed(&traces), map["iteration_s"].as_f64().unwrap());
        assert!((step / predicted - 1.0).abs() < 0.01, "{schedule}: {step} s, predicted {predicted} s");
        // Schedules differ in the order of the work, not in the work.
        let sums = ranks(&scratch, "out", 8, 1);
        if chunks == 1 {
            let (flop, bytes) = plain.get_or_insert((sums.flop, sums.bytes.clone()));
            assert!((*flop / sums.flop - 1.0).abs() < 1e-9 && *bytes == sums.bytes, "{schedule}");
        }
        let wanted = serde_json::json!({"tp": 2, "pp": 4, "dp": 1, "cp": 1, "ep": 1, "chunks": chunks});
        assert_eq!(degrees(&scratch, "out"), wanted, "{schedule}");
        without_metadata(&scratch, "out", 8);
        assert_eq!(degrees(&scratch, "out"), wanted, "{schedule}");
    }
    let weights = |nodes: &[Node]| nodes.iter().any(|n| n.name.contains("weight gradients"));
    let (_, traces) = traced(&scratch, DENSE, "tp: 2, pp: 4, micro_batch: 1, schedule: zero_bubble");
    assert!(
        traces.iter().all(|nodes| weights(nodes)),
        "no partition of gradients of weights alone, so that nothing is tested"
    );
}

/// Collectives of one tensor-parallel group with the seconds that the network takes for them: they run beside a partition, or after it, as the system says.
#[test]
fn collectives_take_the_predictions_time() {
    let scratch = Scratch::new("trace_graph_collectives");
    for (overlap, execution) in [
        ("full", "tp: 4, micro_batch: 1, recompute: full"),
        ("none", "tp: 4, micro_batch: 1, recompute: selective"),
        ("compute_memory", "tp: 2, micro_batch: 2"),
    ] {
        // Twice as slow as the arithmetic beside it, or so.
        system(&scratch, "bandwidth: 20 GB/s", "40 MB", &format!("overlap: {overlap}\n{WITHOUT_FILLING}"));
        let (map, traces) = traced(&scratch, DENSE, execution);
        let (machine, _) = machine(&scratch);
        let tp = map["execution"]["tp"].as_u64().unwrap();
        let seconds = |node: &Node| {
            let size = node.uint("comm_size").unwrap() as f64;
            let (traffic, bytes) = match node.comm_type().unwrap() {
                CommType::AllReduce => (Traffic::AllReduce, size),
                CommType::AllGather => (Traffic::Gather, size * tp as f64),
                CommType::ReduceScatter => (Traffic::Gather, size),
                CommType::AllToAll => (Traffic::AllToAll, size),
                other => panic!("{other:?}"),
            };
            (machine.line(traffic, Peers::alone(tp, 1)).at(bytes) * 1e6).round() as u64
        };
        let takes = |node: &Node| match node.kind {
            NodeType::Comp => node.duration_micros,
            _ => seconds(node),
        };
        let (step, predicted) = (replayed_by(&traces, &takes), map["iteration_s"].as_f64().unwrap());
        assert!((step / predicted - 1.0).abs() < 0.01, "{overlap}: {step} s, predicted {predicted} s");
        // It is not the computation alone.
        let waited = map["iteration_parts_s"]["tp"].as_f64().unwrap();
        assert!(waited > 0.1 * predicted, "{overlap}: {waited} of {predicted}");
        assert!((replayed(&traces) / (predicted - waited) - 1.0).abs() < 0.01, "{overlap}");
    }
}

/// Replicas that share the experts exchange tokens behind the layer's passes; what goes from block to block is exchanged once a microbatch.
#[test]
fn experts_are_exchanged_among_replicas() {
    let scratch = Scratch::new("trace_graph_experts");
    system(&scratch, "bandwidth: 100 GB/s", "640 MB", "");
    let (map, traces) = traced(&scratch, EXPERTS, "tp: 2, pp: 1, dp: 4, ep: 4, micro_batch: 1, zero: 1");
    let exchanged = |nodes: &[Node], pass: &str| {
        let of = |n: &&Node| n.comm_type() == Some(CommType::AllToAll) && n.name.contains(pass);
        nodes.iter().filter(of).map(|n| n.uint("comm_size").unwrap()).collect::<Vec<_>>()
    };
    let groups = chakra::CommGroups::read(&scratch.0.join("out/comm_group.json")).unwrap();
    let of_experts =
        |n: &&Node| n.group().is_some_and(|g| groups.0[&g].len() == 4 && n.comm_type() == Some(CommType::AllToAll));
    let parts = map["iteration_parts_s"]["ep"].as_f64().unwrap();
    assert!(parts > 0.0);
    let (machine, _) = machine(&scratch);
    let line = machine.line(Traffic::AllToAll, Peers::alone(4, 2));
    for nodes in &traces {
        // Three layers with experts and two microbatches.
        let all: Vec<&Node> = nodes.iter().filter(of_experts).collect();
        let seconds: f64 = all.iter().map(|n| line.at(n.uint("comm_size").unwrap() as f64)).sum();
        assert!(all.len() >= 3 * 2 * 4 && (seconds / parts - 1.0).abs() < 1e-3, "{} {seconds} {parts}", all.len());
        assert!(!exchanged(nodes, "forward").is_empty() && !exchanged(nodes, "backward").is_empty());
    }
    let wanted = serde_json::json!({"tp": 2, "pp": 1, "dp": 4, "cp": 1, "ep": 4, "chunks": 1});
    assert_eq!(degrees(&scratch, "out"), wanted);
}

/// Replicas that share the tokens of a sample gather keys and values forward and again backward, and scatter the sums of their gradients: six collectives a layer and microbatch.
#[test]
fn tokens_are_shared_among_replicas() {
    let scratch = Scratch::new("trace_graph_context");
    system(&scratch, "bandwidth: 100 GB/s", "640 MB", "");
    let (map, traces) = traced(&scratch, DENSE, "tp: 2, pp: 1, dp: 1, cp: 4, micro_batch: 2, zero: 1");
    let groups = chakra::CommGroups::read(&scratch.0.join("out/comm_group.json")).unwrap();
    let parts = map["iteration_parts_s"]["cp"].as_f64().unwrap();
    let (machine, _) = machine(&scratch);
    let line = machine.line(Traffic::Gather, Peers::alone(4, 2));
    for nodes in &traces {
        let of_tokens = |n: &&Node| n.group().is_some_and(|g| groups.0[&g].len() == 4 && !n.name.contains("step"));
        let inside = nodes.iter().filter(of_tokens).filter(|n| n.name.contains("layer"));
        let seconds = |n: &Node| {
            let size = n.uint("comm_size").unwrap() as f64;
            line.at(if n.comm_type() == Some(CommType::AllGather) { 4.0 * size } else { size })
        };
        let all: Vec<f64> = inside.map(seconds).collect();
        let sum: f64 = all.iter().sum();
        // Eight layers, four microbatches.
        assert!(all.len() == 8 * 4 * 6 && (sum / parts - 1.0).abs() < 1e-3, "{} {sum} {parts}", all.len());
    }
    let wanted = serde_json::json!({"tp": 2, "pp": 1, "dp": 1, "cp": 4, "ep": 1, "chunks": 1});
    assert_eq!(degrees(&scratch, "out"), wanted);
}
