//! `flowspace validate`, `import calculon` and language models, from outside.

use super::scratch::Scratch;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn flowspace(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowspace")).args(args).env_remove("RUST_BACKTRACE").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Memory in closed form, and what fits: every row, within its bound, the same bytes twice.
#[test]
fn memory_is_predicted_within_its_bound() {
    let args = ["validate", "memory", "--format", "json"];
    let output = flowspace(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let classes: Vec<(&str, u64)> = json["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["name"].as_str().unwrap(), c["n"].as_u64().unwrap()))
        .collect();
    assert_eq!(classes, [("memory", 12), ("fit", 8)]);
    for key in ["mape_pct", "median_pct", "worst_pct", "bias_pct"] {
        assert!(json["classes"][0][key].as_f64().unwrap().abs() < 0.1, "{key}");
    }
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 20);
    assert!(rows.iter().all(|r| r["id"].is_string() && r["measured"].is_number() && r["predicted"].is_number()));
    assert_eq!(flowspace(&args).stdout, output.stdout);
}

/// Three chips' worth of memory said to be one: the class is worse than its bound, the exit code says so, figures are drawn.
#[test]
fn a_class_worse_than_its_bound_fails() {
    let scratch = Scratch::new("validate");
    let points = scratch.write(
        "p.csv",
        "id,workload,layers,hidden,heads,seq,vocab,global_batch,micro_batch,accelerator,chips,tp,pp,dp,recompute,seq_parallel,metric,value,unit,what
a,GPT train,48,6144,64,2048,51200,4,4,A100-80GB,8,8,1,1,selective,yes,activation_memory,3.1875,GiB,x
b,GPT train,48,6144,64,2048,51200,4,4,A100-80GB,,,,,full,no,iteration_time,1.42,s,x
",
    );
    let out = scratch.file("out");
    let output = flowspace(&["validate", "--points", &points, "--out", &out]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{stdout}\n{stderr}");
    // 9.5625 GiB are 200 % more than 3.1875 GiB.
    assert!(stdout.contains("+200.0 %") && stdout.contains("WORSE"), "{stdout}");
    assert!(stdout.contains("not predicted, the degrees of parallelism are not stated: 1 (b)"), "{stdout}");
    assert!(stderr.contains("columns that are not read: what"), "{stderr}");
    assert!(stderr.contains("not within its bound: memory: mean error 200.00 %, bound 2 %"), "{stderr}");
    for file in ["validation.json", "validation.csv", "validation-memory.svg", "validation-memory.png"] {
        assert!(PathBuf::from(&out).join(file).is_file(), "{file}");
    }
    let loose = scratch.write("b.yaml", "classes: { memory: { mape_pct: 250, bias_pct: 250, reason: a test } }\n");
    let output = flowspace(&["validate", "--points", &points, "--bounds", &loose]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn wrong_files_are_refused_with_every_fault() {
    let scratch = Scratch::new("validate");
    let points = scratch.write("p.csv", "id,metric,value,unit\na,mfu,x,s\n,time,1,s\n");
    let output = flowspace(&["validate", "--points", &points, "--points", &scratch.file("none.csv")]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for part in
        [":2: value: expected a number above zero", ":2: unit: expected a unit of mfu", ":3: id: expected", "none.csv"]
    {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let output = flowspace(&["validate", "memroy"]);
    assert!(text(&output.stderr).contains("expected megatron-sc21, korthikanti"), "{}", text(&output.stderr));
    let bounds = scratch.write("b.yaml", "classes: { nothing: { mape_pct: 1 } }\n");
    let output = flowspace(&["validate", "memory", "--bounds", &bounds]);
    let stderr = text(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("reason: missing"), "{stderr}");
}

/// The layer's graph where there is one, the field where there is none.
#[test]
fn language_models_are_mapped_or_refused_by_field() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let model = |file: &str| root.join("workloads/language").join(file).display().to_string();
    let system = root.join("systems/h100-dgx-8.yaml").display().to_string();
    let scratch = Scratch::new("validate");
    let forward = scratch
        .write("m.yaml", &format!("from: {}\npass: inference\nseq: 128\nglobal_batch: 8\n", model("llama3-8b.yaml")));
    let output = flowspace(&["map", "--workload", &forward, "--system", &system, "--tp", "8"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // A chip without `kernels:` is mapped by graph.
    let dataflow = root.join("systems/sn10-8-ring.yaml").display().to_string();
    let output = flowspace(&["map", "--workload", &model("deepseek-v3.yaml"), "--system", &dataflow]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("dram short: needs") && stderr.contains("enough: a DRAM of"), "{stderr}");
}

const APP: &str =
    r#"{"hidden": 512, "feedforward": 2048, "seq_size": 128, "attn_heads": 8, "attn_size": 64, "num_blocks": 4}"#;
const EXEC: &str = r#"{"num_procs": 8, "tensor_par": 2, "pipeline_par": 2, "data_par": 2, "tensor_par_net": 0, "pipeline_par_net": 0,
 "data_par_net": 0, "batch_size": 8, "microbatch_size": 1, "datatype": "float16", "fused_activation": false,
 "attention_type": "multihead", "activation_recompute": "none", "pipeline_interleaving": 1, "optimizer_sharding": true,
 "tensor_par_comm_type": "ar", "tensor_par_overlap": "none", "seq_par_ag_redo": false, "data_par_overlap": true,
 "weight_offload": false, "activations_offload": false, "optimizer_offload": false, "training": true}"#;
const SYSTEM: &str = r#"{"matrix": {"float16": {"tflops": 312, "gflops_efficiency": [[0, 0.9]]}},
 "vector": {"float16": {"tflops": 78, "gflops_efficiency": [[0, 0.9]]}},
 "mem1": {"GiB": 80, "GBps": 2048, "MB_efficiency": [[0, 0.9]]}, "mem2": {"GiB": 0, "GBps": 32, "MB_efficiency": [[0, 0.9]]},
 "processing_mode": "roofline",
 "networks": [{"bandwidth": 300, "efficiency": 0.65, "size": 8, "latency": 1e-05, "ops": {"p2p": [1.0, null]},
   "must_be_filled": true, "processor_usage": 0.15}]}"#;

/// The workload and system that come out are mapped by this program.
#[test]
fn calculons_files_become_ours() {
    let scratch = Scratch::new("validate");
    let (app, exec, system) =
        (scratch.write("a.json", APP), scratch.write("run.json", EXEC), scratch.write("s.json", SYSTEM));
    let out = scratch.file("out");
    let args = ["import", "calculon", &app, &exec, &system, "--out", &out];
    let output = flowspace(&args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("execution: changed: optimizer_sharding: ZeRO-1"), "{stderr}");
    assert!(stderr.contains("system: ignored: networks.processor_usage"), "{stderr}");
    let written = |part: &str| PathBuf::from(&out).join(format!("run-{part}.yaml")).display().to_string();
    let output = flowspace(&["map", "--workload", &written("workload"), "--system", &written("system")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = flowspace(&args);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("--force writes over it"));
    let broken = scratch.write("b.json", &EXEC.replace("\"batch_size\": 8", "\"batch_size\": 7"));
    let output = flowspace(&["import", "calculon", &app, &broken, &system, "--out", &out]);
    let stderr = text(&output.stderr);
    assert!(
        output.status.code() == Some(1) && stderr.contains("b.json:2: batch_size: expected a multiple"),
        "{stderr}"
    );
}

/// Runs of HPL on a machine of one's own: sizes and grid come from the row's columns, whatever its name. A larger matrix is computed at a higher
/// rate, a stated grid is no faster than the best, and what cannot be is said.
#[test]
fn hpl_points_of_ones_own_are_read_from_their_columns() {
    let scratch = Scratch::new("validate-hpl");
    let rows = [
        "small,h100-dgx-8,65536,1024,,,hpl_rmax,100,TFLOP/s",
        "large,h100-dgx-8,131072,1024,,,hpl_rmax,100,TFLOP/s",
        "narrow,h100-dgx-8,131072,1024,1,8,hpl_rmax,100,TFLOP/s",
        "usual,h100-dgx-8,,,,,hpl_rmax,100,TFLOP/s",
        // Called as runs that are shipped, on a machine that is not theirs.
        "hpl-summit,h100-dgx-8,131072,1024,1,8,hpl_rmax,100,TFLOP/s",
        "frontier-2022,own.yaml,131072,1024,1,8,hpl_rmax,100,TFLOP/s",
        "no-grid,h100-dgx-8,65536,1024,3,5,hpl_rmax,100,TFLOP/s",
        "nowhere,no-such-machine,65536,1024,,,hpl_rmax,100,TFLOP/s",
    ];
    let from = format!("from: {}\n", super::cli::root().join("systems/h100-dgx-8.yaml").display());
    let own = scratch.write("own.yaml", &from);
    let rows = rows.map(|row| row.replace("own.yaml", &own));
    let points = scratch.write("own.csv", &format!("id,system,n,nb,p,q,metric,value,unit\n{}\n", rows.join("\n")));
    let output = flowspace(&["validate", "--points", &points, "--format", "json"]);
    let answer: serde_json::Value =
        serde_json::from_str(&text(&output.stdout)).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    let found = |id: &str| {
        let list = answer["rows"].as_array().unwrap();
        list.iter().find(|p| p["id"] == id).unwrap_or_else(|| panic!("no {id} in {answer}")).clone()
    };
    let rate = |id: &str| found(id)["predicted"].as_f64().unwrap_or_else(|| panic!("{}", found(id)));
    assert!(rate("large") > rate("small"), "{} {}", rate("large"), rate("small"));
    assert!(rate("narrow") <= rate("large") * (1.0 + 1e-9));
    assert!(rate("usual") > 0.0);
    assert_eq!((rate("hpl-summit"), rate("frontier-2022")), (rate("narrow"), rate("narrow")));
    for (id, word) in [("no-grid", "no grid of 3 x 5"), ("nowhere", "no-such-machine")] {
        assert!(found(id).to_string().contains(word), "{}", found(id));
    }
}

/// What rows say of themselves beside their columns: a batch that ran at once, a model of another size, words multiplied with all their bits, whose library a collective was, and a
/// context that nobody states.
#[test]
fn rows_are_read_as_they_are_meant() {
    let scratch = Scratch::new("validate-meant");
    // (what was run, the batch, the chip, chips, the metric, notes)
    let rows = [
        (
            "at-once",
            "LLM inference LLaMA 7B",
            "60",
            "A100",
            1,
            "output_tokens_per_s",
            "FP16; static batch; input 128 / output 2048 tokens",
        ),
        (
            "waits",
            "LLM inference LLaMA 7B",
            "60",
            "A100",
            1,
            "output_tokens_per_s",
            "FP16; input 128 / output 2048 tokens",
        ),
        (
            "of-80",
            "LLM inference LLaMA 7B",
            "60",
            "A100-80GB",
            1,
            "output_tokens_per_s",
            "FP16; static batch; input 128 / output 2048 tokens",
        ),
        (
            "too-large",
            "LLM inference LLaMA 70B",
            "1",
            "A100",
            2,
            "output_tokens_per_s",
            "FP16; input 128 / output 128 tokens",
        ),
        (
            "lite",
            "DeepSeek-V3 16B MoE inference",
            "1",
            "H100",
            1,
            "output_tokens_per_s",
            "BF16; input 128 / output 128 tokens",
        ),
        (
            "unknown",
            "Llama-3 30B inference",
            "1",
            "H100",
            1,
            "output_tokens_per_s",
            "BF16; input 128 / output 128 tokens",
        ),
        ("exact", "FP32 GEMM M=8192 N=8192 K=8192", "", "H100", 1, "tflops_per_chip", "FP32"),
        ("rounded", "FP32 GEMM M=8192 N=8192 K=8192", "", "H100", 1, "tflops_per_chip", "TF32"),
        ("library", "all-reduce 1073741824 B", "", "H100", 8, "busbw", "torch.distributed NCCL 2.20 all_reduce"),
        ("tests", "all-reduce 1073741824 B", "", "H100", 8, "busbw", "nccl-tests"),
        (
            "context",
            "LLM inference Llama2-7B decode",
            "1",
            "RTX 4090",
            1,
            "tokens_per_s",
            "weights 4-bit; computes FP16",
        ),
    ];
    let mut file = String::from("id,workload,global_batch,accelerator,chips,metric,value,unit,source,notes\n");
    for (id, workload, batch, chip, chips, metric, notes) in rows {
        let unit = match metric {
            "busbw" => "GB/s",
            "tflops_per_chip" => "TFLOP/s",
            _ => "tok/s",
        };
        file.push_str(&format!("{id},{workload},{batch},{chip},{chips},{metric},50,{unit},a test,\"{notes}\"\n"));
    }
    let points = scratch.write("p.csv", &file);
    let output = flowspace(&["validate", "--points", &points, "--format", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let row = |id: &str| json["rows"].as_array().unwrap().iter().find(|row| row["id"] == id).unwrap();
    let predicted = |id: &str| row(id)["predicted"].as_f64().unwrap_or_else(|| panic!("{:#}", row(id)));
    let assumed = |id: &str| row(id)["assumed"].to_string();
    let larger = |id: &str| assumed(id).contains("chips with 86 GB: what is served fills the others");
    assert!(larger("at-once") && larger("too-large") && !larger("waits") && !larger("of-80"));
    assert_eq!(predicted("at-once"), predicted("of-80"));
    assert!(predicted("waits") < predicted("at-once"));
    assert!(assumed("lite").contains("sizes of DeepSeek-V2-Lite"), "{}", assumed("lite"));
    assert!(row("unknown")["predicted"].is_null(), "{:#}", row("unknown"));
    assert!(predicted("exact") < 67.0 && predicted("rounded") > 200.0);
    assert_eq!(predicted("library"), predicted("tests"));
    assert!(assumed("context").contains("a context of 128 tokens"));
}
