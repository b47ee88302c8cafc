//! Inference from outside: `flowspace map` of language models with `pass: inference`, and the measured points.

use std::path::PathBuf;
use std::process::{Command, Output};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn flowspace(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowspace"));
    command.current_dir(root()).args(args).env_remove("RUST_BACKTRACE").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeed(args: &[&str]) -> String {
    let output = flowspace(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn fail(args: &[&str]) -> String {
    let output = flowspace(args);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {message}");
    assert!(!message.contains("panicked"), "{message}");
    message
}

const LLAMA: [&str; 5] =
    ["map", "--workload", "workloads/language/llama3-8b-serving.yaml", "--system", "systems/a100-40gb-4.yaml"];

/// The whole answer is a file that a person can read; FLOWSPACE_BLESS=1 writes it anew.
#[test]
fn the_answer_is_as_it_was() {
    let found = succeed(&[&LLAMA[..], &["--batch", "1..256"]].concat());
    let path = root().join("tests/golden/inference-llama3-8b-a100.txt");
    if std::env::var_os("FLOWSPACE_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, expected, "differs from {}", path.display());
}

#[test]
fn limits_move_the_answer() {
    let json = |more: &[&str]| -> serde_json::Value {
        serde_json::from_str(&succeed(&[&LLAMA[..], &["--batch", "1..256", "--format", "json"], more].concat()))
            .unwrap()
    };
    let free = json(&[]);
    let held = json(&["--max-tpot", "12ms", "--max-ttft", "2s"]);
    let number = |v: &serde_json::Value, field: &str| v["best"][field].as_f64().unwrap();
    assert!(number(&held, "last_tpot_s") <= 0.012 && number(&held, "last_ttft_s") <= 2.0, "{held}");
    assert!(number(&free, "last_tpot_s") > 0.012 && number(&free, "per_chip") > number(&held, "per_chip"));
    let quick = json(&["--goal", "latency"]);
    assert!(number(&quick, "latency_s") <= number(&held, "latency_s"));
    assert_eq!(quick["best"]["batch"], 1);
    // The rates belong together.
    let chips = 4.0;
    assert!((number(&free, "generated_per_s") / chips - number(&free, "per_chip")).abs() < 1e-9);
    assert!(number(&free, "generated_per_s_per_usd") > 0.0 && number(&free, "generated_per_s_per_w") > 0.0);
}

#[test]
fn what_cannot_be_served_says_why() {
    let none = fail(&[&LLAMA[..], &["--max-tpot", "1us"]].concat());
    assert!(none.contains("keeps to the limits"), "{none}");
    let types = fail(&[
        "map",
        "--workload",
        "workloads/language/deepseek-v3-serving.yaml",
        "--system",
        "systems/a100-40gb-4.yaml",
    ]);
    assert!(types.contains("no peak for fp8"), "{types}");
    let file = std::env::temp_dir().join(format!("flowspace-inference-{}.yaml", std::process::id()));
    let model = root().join("workloads/language/llama3-405b.yaml");
    let words = format!("from: {}\npass: inference\nseq: 128\ngenerated: 16\nglobal_batch: 1\n", model.display());
    std::fs::write(&file, words).unwrap();
    let big = fail(&["map", "--workload", &file.display().to_string(), "--system", "systems/a100-40gb-4.yaml"]);
    let _ = std::fs::remove_file(&file);
    assert!(big.contains("no layout fits") && big.contains("weights"), "{big}");
    let degrees = fail(&[&LLAMA[..], &["--tp", "3"]].concat());
    assert!(degrees.contains("as given"), "{degrees}");
    for (option, value) in
        [("--batch", "0"), ("--batch", "9..3"), ("--max-ttft", "-1s"), ("--max-ttft", "1"), ("--goal", "cheap")]
    {
        let output = flowspace(&[&LLAMA[..], &[option, value]].concat());
        assert!(!output.status.success() && text(&output.stderr).contains(value), "{}", text(&output.stderr));
    }
    let training = fail(&[
        "map",
        "--workload",
        "workloads/language/llama3-8b.yaml",
        "--system",
        "systems/a100-40gb-4.yaml",
        "--batch",
        "4",
    ]);
    assert!(training.contains("pass: inference"), "{training}");
}

/// The shared points of inference and single kernels: their bound is in validation/bounds.yaml, and validate fails where it is missed.
#[test]
fn measured_points_are_within_their_bound() {
    let output = flowspace(&["validate", "inference", "kernels", "--format", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    for (name, least) in [("inference-kernels", 106), ("products", 18)] {
        let class = answer["classes"].as_array().unwrap().iter().find(|c| c["name"] == name).unwrap();
        assert!(class["mape_pct"].as_f64().unwrap() < 12.0, "{class}");
        assert!(class["n"].as_u64().unwrap() >= least, "{class}");
    }
}

/// Of every chip that measurements name, alone with the software of its kind: heads that share keys and values, and heads of their own, which caches may serve faster.
#[test]
fn ideal_software_serves_no_slower_than_what_is_known() {
    let scratch = crate::scratch::Scratch::new("ideal-serving");
    let root = root();
    for model in ["llama3.2-1b", "opt-1.3b"] {
        let from = root.join("workloads/language").join(model).display().to_string();
        scratch.write(
            &format!("{model}.yaml"),
            &format!("from: {from}.yaml\npass: inference\nseq: 512\ngenerated: 64\nglobal_batch: 8\n"),
        );
    }
    let list = std::fs::read_to_string(root.join("validation/chips.yaml")).unwrap();
    let of = |line: &str, field: &str| {
        let rest = line.split_once(&format!(" {field}: ../"))?.1;
        Some(root.join(&rest[..rest.find([',', ' '])?]).display().to_string())
    };
    let mut seen = 0;
    for line in list.lines().filter(|line| line.starts_with("  - { names:")) {
        let (Some(chip), Some(memory)) = (of(line, "chip"), of(line, "memory")) else { continue };
        let current = || {
            let text = std::fs::read_to_string(&chip).unwrap();
            let named = text.lines().find_map(|line| line.strip_prefix("generic: ../stacks/"));
            root.join("systems/stacks").join(named.unwrap_or("generic.yaml")).display().to_string()
        };
        let stack = of(line, "stack").unwrap_or_else(current);
        scratch.write(
            "s.yaml",
            &format!(
                "name: one\nsource: 'assumed: a test'\nchip: {chip}\nmemory: {memory}\nstack: {stack}\nnetwork: {{ topology: single-chip }}\nchips: 1\n"
            ),
        );
        for model in ["llama3.2-1b.yaml", "opt-1.3b.yaml"] {
            let per_second = |software: &str| -> Option<f64> {
                let map =
                    ["map", "--workload", model, "--system", "s.yaml", "--software", software, "--format", "json"];
                let run = scratch.run(&map);
                let told: serde_json::Value = serde_json::from_slice(&run.stdout).ok()?;
                told["best"]["generated_per_s"].as_f64()
            };
            let (Some(stack), Some(ideal)) = (per_second("stack"), per_second("ideal")) else { continue };
            assert!(ideal >= stack * (1.0 - 1e-9), "{line} {model}: {ideal} {stack}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}
