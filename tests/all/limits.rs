//! Limits of seconds, from outside: a search that would take long ends with a plan, a bound below it and the word for it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The object that `map` prints, with a limit of seconds, and its exit code.
fn map(workload: &Path, system: &str, more: &[&str]) -> (Value, i32) {
    let out = Command::new(env!("CARGO_BIN_EXE_flowspace"))
        .args(["map", "--workload", &workload.display().to_string()])
        .args(["--system", &root().join("systems").join(system).display().to_string(), "--format", "json"])
        .args(more)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&out.stderr)));
    (value, out.status.code().unwrap())
}

/// A plan with a bound that is not above it, or no plan and the word for that.
fn is_an_answer(value: &Value, code: i32) -> bool {
    let number = |key: &str| value.pointer(key).and_then(Value::as_f64);
    match (number("/objective"), number("/bound")) {
        (Some(objective), Some(bound)) => {
            assert!(bound <= objective && bound >= 0.0 && code == 0, "{value:#}");
            true
        }
        _ => {
            assert!(value["status"] == "time_limit" && code == 1, "{value:#}");
            false
        }
    }
}

/// Seven branches of three kernels beside each other: 16,386 ideals, whose shortest path takes seconds.
fn branches() -> String {
    let shape = "op: gemm_weight, m: 4096, k: 4096, n: 2048";
    let mut kernels = format!("  - {{ name: a, {shape}, rhs: x, output: t }}\n");
    for b in 0..7 {
        for (i, from) in ["t".to_string(), format!("u{b}_0"), format!("u{b}_1")].iter().enumerate() {
            kernels.push_str(&format!("  - {{ name: k{b}_{i}, {shape}, rhs: {from}, output: u{b}_{i} }}\n"));
        }
    }
    let last: Vec<String> = (0..7).map(|b| format!("u{b}_2")).collect();
    format!(
        "kind: graph\nname: branches\nsource: 'assumed: a test'\nglobal_batch: 1\n\
         inputs: [{{ name: x, rows: 4096, cols: 2048 }}]\noutputs: [y]\nkernels:\n{kernels}  \
         - {{ name: z, op: elementwise, m: 4096, n: 2048, inputs: [{}], output: y }}\n",
        last.join(", ")
    )
}

#[test]
fn a_shortest_path_ends_with_its_limit() {
    let folder = std::env::temp_dir().join(format!("flowspace-limits-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("branches.yaml");
    std::fs::write(&file, branches()).unwrap();
    let (value, code) = map(&file, "sn10-single.yaml", &["--time-limit", "0.1s"]);
    assert!(is_an_answer(&value, code), "{value:#}");
    assert_eq!(value["status"], "time_limit", "{value:#}");
    assert_eq!(value["reproducible"], false, "{value:#}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_joint_search_ends_with_its_limit() {
    let workload = root().join("workloads/gpt3-1t-training.yaml");
    let more = ["--sharding", "joint", "--split-dimensions", "--time-limit", "0.05s"];
    let (value, code) = map(&workload, "h100-dgx-1024.yaml", &more);
    is_an_answer(&value, code);
    assert_eq!(value["status"], "time_limit", "{value:#}");
}

/// A language model whose executions are searched: the best so far, or none.
#[test]
fn a_search_of_executions_ends_with_its_limit() {
    let workload = root().join("workloads/language/gpt3-175b.yaml");
    let (value, code) = map(&workload, "h100-dgx-1024.yaml", &["--time-limit", "0.000001s"]);
    assert!(value["status"] == "time_limit" || code == 0, "{value:#}");
    let (value, code) = map(&workload, "h100-dgx-1024.yaml", &["--time-limit", "1000s"]);
    assert_eq!((value["status"].as_str(), code), (Some("optimal"), 0), "{value:#}");
}
