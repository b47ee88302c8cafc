//! Imports of small files by hand, and of all cases beside the checkout.

use super::*;
use crate::execution::{Execution, Offload, Recompute, Schedule, Zero};
use crate::model::rate::chip_peak;
use crate::system::Overlap;
use serde_json::{Value as Json, json};

const APP: &str = r#"{"hidden": 12288, "feedforward": 49152, "seq_size": 2048, "attn_heads": 96, "attn_size": 128, "num_blocks": 96}"#;

fn exec(changes: &[(&str, Json)]) -> String {
    let mut exec = json!({
        "num_procs": 64, "tensor_par": 8, "pipeline_par": 8, "data_par": 1, "tensor_par_net": 0, "pipeline_par_net": 1,
        "data_par_net": 1, "batch_size": 64, "microbatch_size": 1, "datatype": "float16", "fused_activation": false,
        "attention_type": "multihead", "activation_recompute": "attn_only", "pipeline_interleaving": 3,
        "optimizer_sharding": false, "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "none", "seq_par_ag_redo": true,
        "data_par_overlap": false, "weight_offload": false, "activations_offload": false, "optimizer_offload": false,
        "training": true
    });
    for (key, value) in changes {
        if let Some(map) = exec.as_object_mut() {
            map.insert((*key).into(), value.clone());
        }
    }
    serde_json::to_string_pretty(&exec).unwrap()
}

fn system() -> String {
    let ops =
        json!({ "p2p": [1.0, null], "all_reduce": [2.0, -1], "all_gather": [1.5, -1], "reduce_scatter": [1.5, -1] });
    let net = |bandwidth: u64, size: u64, latency: f64| {
        json!({ "bandwidth": bandwidth, "efficiency": 0.5, "size": size, "latency": latency, "ops": ops,
                "must_be_filled": true, "processor_usage": 0.15 })
    };
    let memory = |gib: u64, gbps: u64| json!({ "GiB": gib, "GBps": gbps, "MB_efficiency": [[100, 0.75], [0, 0.3]] });
    let rate = |tflops: u64| json!({ "float16": { "tflops": tflops, "gflops_efficiency": [[128, 0.95], [0, 0.1]] } });
    let system = json!({ "matrix": rate(312), "vector": rate(78), "mem1": memory(80, 2048), "mem2": memory(512, 32),
        "processing_mode": "no_overlap", "networks": [net(300, 8, 1e-5), net(25, 65536, 2e-5)] });
    // With tabs, as editors write them.
    serde_json::to_string_pretty(&system).unwrap().replace("  ", "\t")
}

fn run(app: &str, exec: &str, system: &str) -> Result<Imported, Problems> {
    import(
        Input { name: "app.json", text: app },
        Input { name: "exec.json", text: exec },
        Input { name: "sys.json", text: system },
        "x",
    )
}

fn parts(imported: &Imported) -> (LanguageModel, Execution, System) {
    let node = |i: usize| Node::parse(&imported.files[i].0, &imported.files[i].1).unwrap();
    let execution: ExecutionFile = Reader::read(&node(1)).unwrap();
    (Reader::read(&node(0)).unwrap(), execution.execution, System::build(&node(2)).unwrap())
}

#[test]
fn korthikantis_run_by_hand() {
    let imported = run(APP, &exec(&[]), &system()).unwrap_or_else(|e| panic!("{e}"));
    let (model, execution, system) = parts(&imported);
    assert_eq!((model.layers, model.ffn(), model.vocab, model.global_batch), (96, 49152, Some(51200), 64));
    assert_eq!((execution.tp, execution.pp, execution.chunks), (8, 8, 3));
    assert_eq!((execution.schedule, execution.recompute), (Schedule::Interleaved, Recompute::Selective));
    assert!(execution.sequence_parallel && !execution.overlap_tp);
    assert!((chip_peak(&system.chip.0, &system.model, 2.0) / 312e12 - 1.0).abs() < 1e-12);
    assert_eq!(system.network.dimensions.iter().map(|d| d.size).collect::<Vec<_>>(), [8, 8]);
    assert_eq!(system.network.dimensions[0].link.0.bandwidth.0, 150e9);
    assert_eq!(system.memory.0.bandwidth.0, 2048e9 * 0.75);
    assert_eq!((system.chip_count(), system.overlap()), (64, Overlap::None));
    for (kind, field) in [
        (Kind::Ignored, "mem2"),
        (Kind::Ignored, "networks.ops"),
        (Kind::Assumed, "vocab"),
        (Kind::Changed, "networks.latency"),
    ] {
        let note = imported.notes.iter().find(|n| n.kind == kind && n.field == field);
        let note = note.unwrap_or_else(|| panic!("{field}: {:?}", imported.notes));
        let file = &imported.files.iter().find(|(name, _)| name.contains(note.part)).unwrap().1;
        assert!(file.contains(&format!("# {note}\n")), "{file}");
    }
}

#[test]
fn what_has_no_word_of_ours_is_told() {
    let told = |changes: &[(&str, Json)], field: &str| {
        let imported = run(APP, &exec(changes), &system()).unwrap_or_else(|e| panic!("{e}"));
        assert!(imported.notes.iter().any(|n| n.field.contains(field)), "{field}: {:?}", imported.notes);
        parts(&imported)
    };
    told(&[("tensor_par_comm_type", json!("p2p_rs_ag"))], "tensor_par_comm_type");
    assert!(told(&[("tensor_par_overlap", json!("ring"))], "tensor_par_overlap").1.overlap_tp);
    told(&[("fused_activation", json!(true))], "fused_activation");
    let (model, ..) = told(&[("attention_type", json!("multiquery"))], "attention_type");
    assert_eq!(model.kv_heads(), 1);
    let all = [("activations_offload", json!(true)), ("optimizer_offload", json!(true))];
    assert_eq!(told(&all, "activations_offload").1.offload, Offload::All);
    let sharded = [("data_par", json!(2)), ("num_procs", json!(128)), ("optimizer_sharding", json!(true))];
    assert_eq!(told(&sharded, "optimizer_sharding").1.zero, Zero::Optimizer);
    // 12 chips do not fill boxes of 8: two of 6.
    let uneven = [("tensor_par", json!(3)), ("pipeline_par", json!(4)), ("num_procs", json!(12))];
    let (.., system) = told(&uneven, "networks[0].size");
    assert_eq!(system.network.dimensions.iter().map(|d| d.size).collect::<Vec<_>>(), [6, 2]);
    let alone = [
        ("tensor_par", json!(1)),
        ("pipeline_par", json!(1)),
        ("num_procs", json!(1)),
        ("pipeline_interleaving", json!(1)),
    ];
    let (_, execution, system) = told(&alone, "tensor_par_comm_type");
    assert!(!execution.sequence_parallel && system.network.dimensions.is_empty());
}

#[test]
fn all_faults_of_all_files_come_at_once() {
    let app = APP.replace("\"hidden\": 12288", "\"hiden\": 12288").replace("96", "0");
    let exec_text = exec(&[("num_procs", json!(63)), ("datatype", json!("float64")), ("tensor_par_net", json!(-1))]);
    let sys = system().replace("\"no_overlap\"", "3").replace("null", "\"x\"");
    let problems = run(&app, &exec_text, &sys).unwrap_err().to_string();
    for part in [
        "app.json:1: hiden: unknown key; did you mean \"hidden\"?",
        "app.json:1: num_blocks: expected a whole number of at least 1",
        "exec.json:",
        "datatype: expected a data type: float8, float16, float32, bfloat16",
        "tensor_par_net: expected the number of a network",
        "processing_mode: expected a processing mode",
        "networks.[0].ops.p2p: expected a pair",
    ] {
        assert!(problems.contains(part), "{part}\n{problems}");
    }
    let exec_text = exec(&[
        ("num_procs", json!(63)),
        ("batch_size", json!(7)),
        ("microbatch_size", json!(2)),
        ("pipeline_par", json!(1)),
    ]);
    let problems = run(APP, &exec_text, &system()).unwrap_err().to_string();
    for part in
        ["num_procs: expected tensor_par", "batch_size: expected a multiple", "pipeline_interleaving: expected 1"]
    {
        assert!(problems.contains(part), "{part}\n{problems}");
    }
    let exec_text = exec(&[
        ("tensor_par", json!(5)),
        ("num_procs", json!(40)),
        ("datatype", json!("float8")),
        ("data_par_net", json!(2)),
    ]);
    let problems = run(APP, &exec_text, &system()).unwrap_err().to_string();
    for part in [
        "tensor_par: expected a divisor of hidden = 12288 of app.json",
        "data_par_net: expected the number of one of 2 networks",
        "sys.json:2: matrix: has no rate for float8; rates: float16",
    ] {
        assert!(problems.contains(part), "{part}\n{problems}");
    }
    let problems = run("{", "[]", "\"\"").unwrap_err().to_string();
    assert!(problems.contains("app.json:1: not JSON"), "{problems}");
    assert!(problems.contains("exec.json") && problems.contains("sys.json"), "{problems}");
}

/// Every case of the peer's results beside the checkout is read, but those that it refuses as well.
#[test]
fn cases_beside_the_checkout_are_read() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = ["../shared", "../../shared"].iter().map(|up| root.join(up).join("reference"));
    let Some(folder) = folder.into_iter().find(|f| f.join("calculon_cases.json").is_file()) else {
        println!("skipped: no reference beside the checkout");
        return;
    };
    let text = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
    let cases: Json = serde_json::from_str(&text("calculon_cases.json")).unwrap();
    let fields = cases["exec_fields"].as_array().unwrap();
    let mut read = 0;
    for case in cases["cases"].as_array().unwrap() {
        let values = case["exec"].as_array().unwrap();
        let pairs = fields.iter().zip(values).map(|(f, v)| (f.as_str().unwrap().to_string(), v.clone()));
        let exec = Json::Object(pairs.collect()).to_string();
        let word = |key: &str| case[key].as_str().unwrap();
        let app = text(&format!("calculon/apps/{}.json", word("app")));
        let system = text(&format!("calculon/systems/{}.json", word("system")));
        let imported = run(&app, &exec, &system);
        if word("status") == "ok" {
            let imported = imported.unwrap_or_else(|e| panic!("{}: {e}", word("id")));
            let (.., execution, system) = parts(&imported);
            assert_eq!(execution.chips(), system.chip_count(), "{}", word("id"));
            read += 1;
        }
    }
    assert_eq!(read, 103);
}
