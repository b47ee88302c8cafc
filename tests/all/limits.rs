//! Limits of seconds, from outside: a search that would take long ends with a plan, a bound below it and the word for it.

use super::scratch::Scratch;
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
    let folder = Scratch::new("limits");
    let file = PathBuf::from(folder.write("branches.yaml", &branches()));
    let (value, code) = map(&file, "sn10-single.yaml", &["--time-limit", "0.1s"]);
    assert!(is_an_answer(&value, code), "{value:#}");
    assert_eq!(value["status"], "time_limit", "{value:#}");
    assert_eq!(value["reproducible"], false, "{value:#}");
}

#[test]
fn a_joint_search_ends_with_its_limit() {
    let workload = root().join("workloads/gpt3-1t-training.yaml");
    // A machine may be quick enough for the longer ones; it is at some other place in the search when each ends.
    for limit in ["0.005s", "0.01s", "0.02s", "0.03s", "0.05s", "0.08s", "0.1s"] {
        let more = ["--sharding", "joint", "--split-dimensions", "--time-limit", limit];
        let (value, code) = map(&workload, "h100-dgx-1024.yaml", &more);
        is_an_answer(&value, code);
        let status = value["status"].as_str().unwrap();
        assert!(status == "time_limit" || (limit > "0.05s" && status == "optimal"), "{limit}: {value:#}");
    }
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

/// Products that nothing joins, or of which each reads one before it.
pub fn many(kernels: usize, joined: bool) -> String {
    let mut text = String::from(
        "kind: graph\nname: many\nsource: 'assumed: a test'\nglobal_batch: 1\ninputs: [{ name: x, rows: 512, cols: 2048 }]\nkernels:\n",
    );
    let mut read = vec![false; kernels];
    let mut state = 12345u64;
    for i in 0..kernels {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let from = (joined && i > 2).then(|| i - 1 - (state >> 33) as usize % i.min(60));
        let name = from.map_or("x".into(), |f| format!("t{f}"));
        from.into_iter().for_each(|f| read[f] = true);
        text.push_str(&format!(
            "  - {{ name: k{i}, op: gemm_weight, m: 512, k: 512, n: 2048, rhs: {name}, output: t{i} }}\n"
        ));
    }
    let outputs: Vec<String> = (0..kernels).filter(|k| !read[*k]).map(|k| format!("t{k}")).collect();
    format!("{text}outputs: [{}]\n", outputs.join(", "))
}

/// Inputs that took minutes and gigabytes beyond the limit: they end, with a plan or with the word for none.
#[test]
fn large_inputs_end_with_their_limit() {
    let folder = Scratch::new("large");
    for (kernels, joined) in [(2000, false), (2000, true), (5000, false), (5000, true)] {
        let file = PathBuf::from(folder.write("many.yaml", &many(kernels, joined)));
        let (value, code) = map(&file, "sn10-single.yaml", &["--time-limit", "0.2s"]);
        is_an_answer(&value, code);
        assert_eq!(value["status"], "time_limit", "{kernels} {joined}: {value:#}");
    }
    for batch in ["735134400", "963761198400"] {
        let model = root().join("workloads/language/gpt3-175b.yaml");
        let text = format!("from: {}\nname: large\nglobal_batch: {batch}\n", model.display());
        let file = PathBuf::from(folder.write("large.yaml", &text));
        for limit in ["0.01s", "100s"] {
            let (value, code) = map(&file, "a100-dgx-1024.yaml", &["--time-limit", limit]);
            assert!(value["status"] == "time_limit" || (value["status"] == "optimal" && code == 0), "{value:#}");
        }
    }
}
