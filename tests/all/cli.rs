//! The program from outside: what it prints.

use super::scratch::Scratch;
use flowspace::mapping::solver::Solver;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A small file that the error cases use too.
pub fn base(name: &str) -> String {
    root().join("tests/errors/base").join(name).display().to_string()
}

pub fn flowspace(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowspace"));
    command.args(args).env_remove("RUST_BACKTRACE");
    command
}

pub fn run(args: &[&str]) -> Output {
    flowspace(args).output().unwrap()
}

/// Standard output of a run that must succeed.
#[track_caller]
pub fn succeed(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a run that must fail with exit code 1.
#[track_caller]
pub fn fail(args: &[&str]) -> String {
    let output = run(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}\n{text}");
    assert!(!text.contains("panicked") && !text.contains("internal error"), "{text}");
    text
}

#[track_caller]
pub fn json(args: &[&str]) -> Value {
    serde_json::from_str(&succeed(&[args, &["--format", "json"]].concat())).unwrap()
}

pub fn map_small<'a>(workload: &'a str, system: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["map", "--workload", workload, "--system", system], more].concat()
}

#[test]
fn text_shows_the_answer_and_its_proof() {
    let (w, s) = (base("transformer.yaml"), base("system.yaml"));
    let text = succeed(&map_small(&w, &s, &[]));
    for part in [
        "small transformer on ring of eight (8 chips)",
        "status: optimal (gap ",
        "pipeline bubble",
        "capacity",
        "limited by",
        "price",
        "FFN0",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn json_has_every_key() {
    let (w, s) = (base("transformer.yaml"), base("system.yaml"));
    let answer = json(&map_small(&w, &s, &[]));
    let number = |at: &Value, key: &str| {
        at.get(key).and_then(Value::as_f64).unwrap_or_else(|| panic!("{key} is no number in {at:#}"))
    };
    assert_eq!(answer["workload"], "small transformer");
    assert_eq!(answer["system"], "ring of eight");
    assert_eq!(answer["status"], "optimal");
    assert!(["highs", "exact", "cbc"].contains(&answer["solver"].as_str().unwrap()));
    for key in [
        "objective",
        "bound",
        "gap",
        "nodes",
        "solve_s",
        "seed",
        "tile_count",
        "microbatch",
        "microbatches",
        "iteration_s",
        "samples_per_s",
        "utilization",
        "flop_per_iteration",
        "cost_usd",
        "power_w",
    ] {
        assert!(number(&answer, key) >= 0.0, "{key}");
    }
    assert!(number(&answer, "bound") <= number(&answer, "objective"));
    assert_eq!(number(&answer, "objective"), number(&answer, "iteration_s"));
    let degrees = &answer["degrees"];
    assert_eq!(number(degrees, "tp") * number(degrees, "pp") * number(degrees, "dp"), 8.0);
    // 1 chip in 8 has cost $1000 and 100 GB/s of memory; 8 links of 50 GB/s a direction at $2, no switches.
    assert_eq!(number(&answer, "cost_usd"), 8.0 * (1000.0 + 100.0) + 8.0 * 50.0 * 2.0);
    let memory = &answer["memory"];
    for key in ["weights_bytes", "live_bytes", "total_bytes", "capacity_bytes"] {
        assert!(number(memory, key) <= 1e9, "{key}");
    }
    assert_eq!(number(memory, "capacity_bytes"), 1e9);
    let sharding = answer["sharding"].as_object().unwrap();
    assert_eq!(sharding.len(), 18);
    let mut kernels = Vec::new();
    for partition in answer["partitions"].as_array().unwrap() {
        kernels.extend(partition["kernels"].as_array().unwrap().iter().map(|k| k.as_str().unwrap()));
        for key in ["compute_s", "dram_s", "network_s", "time_s", "sram_bytes"] {
            assert!(number(partition, key) >= 0.0, "{key}");
        }
        assert!(number(partition, "sram_bytes") <= 16e6);
    }
    kernels.sort_unstable();
    let mut named: Vec<&str> = sharding.keys().map(String::as_str).collect();
    named.sort_unstable();
    assert_eq!(kernels, named, "each kernel is in one partition");
}

/// Two of the four chips stand idle: the price is that of four, 4 x $33,000, and so it is said; of all four nothing is.
#[test]
fn idle_chips_that_are_paid_for_are_named() {
    let (w, s) = (base("llama.yaml"), base("gpu.yaml"));
    let two = map_small(&w, &s, &["--chips", "2"]);
    let text = succeed(&two);
    assert!(text.contains("2 of 4 chips are used; money, power and energy are of all 4"), "{text}");
    assert!(text.contains("$132_000"), "{text}");
    let answer = json(&two);
    assert_eq!((answer["chips"].as_u64(), answer["system_chips"].as_u64()), (Some(2), Some(4)));
    let whole = succeed(&map_small(&w, &s, &[]));
    assert!(!whole.contains("chips are used"), "{whole}");
}

#[test]
fn an_infeasible_point_says_what_is_short() {
    let scratch = Scratch::new("cli");
    let system = scratch.write(
        "s.yaml",
        &format!("from: {}\nmemory: {{ from: {}, capacity: 1 kB }}\n", base("system.yaml"), base("memory.yaml")),
    );
    let output = run(&map_small(&base("workload.yaml"), &system, &["--format", "json"]));
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["status"], "infeasible");
    let reason = &answer["infeasible"];
    assert_eq!(reason["resource"], "dram");
    assert_eq!(reason["unit"], "bytes");
    assert_eq!(reason["available"], 1000.0);
    assert!(reason["needed"].as_f64().unwrap() > 1000.0);
    assert!(reason["remedy"].as_str().unwrap().contains("a DRAM of "));
    assert!(String::from_utf8_lossy(&output.stderr).contains("infeasible: dram short"));
}

/// A limit of nodes stops MILPs; what elimination and the shortest path prove needs none, whichever solver is named.
#[test]
fn a_limit_of_nodes_does_not_stop_what_needs_no_solver() {
    let shipped = |path: &str| root().join(path).to_string_lossy().into_owned();
    let (workload, system) = (shipped("workloads/gpt3-175b-forward.yaml"), shipped("systems/sn10-8-torus-2d.yaml"));
    let free = ["map", "--workload", &workload, "--system", &system];
    let whole = json(&free);
    assert_eq!(whole["status"], "optimal");
    for limits in [&["--node-limit", "0"][..], &["--node-limit", "0", "--solver", "highs"]] {
        let limited = json(&[&free[..], limits].concat());
        assert_eq!(limited["status"], "optimal", "{limited:#}");
        assert_eq!(limited["objective"], whole["objective"]);
        assert_eq!(limited["proof"], "shortest_path");
    }
    assert_eq!(json(&[&free[..], &["--tp", "4", "--node-limit", "0"]].concat())["status"], "optimal");
}

/// The small transformer with eight heads, so that eight chips can share them.
pub fn eight_heads(scratch: &Scratch) -> String {
    scratch.write("eight.yaml", &format!("from: {}\nheads: 8\nhead_dim: 48\n", base("transformer.yaml")))
}

/// Wall-clock figures out.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, child) in map.iter_mut() {
                if key == "solve_s" || key == "seconds" {
                    *child = Value::Null;
                }
                without_times(child);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        _ => {}
    }
}

#[test]
fn the_same_command_gives_the_same_bytes() {
    let scratch = Scratch::new("cli");
    let (w, s) = (eight_heads(&scratch), base("system.yaml"));
    for more in [&[][..], &["--solver", "highs", "--tp", "8"], &["--model", "dfmodel", "--solver", "exact"]] {
        let once = |name: &str| {
            let plan = scratch.file(name);
            let mut answer = json(&map_small(&w, &s, &[more, &["--plan-out", &plan]].concat()));
            without_times(&mut answer);
            (answer.to_string(), scratch.read(name))
        };
        assert_eq!(once("a.yaml"), once("b.yaml"), "{more:?}");
    }
}

#[test]
fn solvers_agree() {
    let scratch = Scratch::new("cli");
    let (w, s) = (eight_heads(&scratch), base("system.yaml"));
    let mut solvers = vec!["auto", "exact"];
    solvers.extend(Solver::built().iter().map(|s| s.word()));
    let found: Vec<f64> = solvers
        .iter()
        .map(|solver| {
            let answer = json(&map_small(&w, &s, &["--solver", solver, "--tp", "8"]));
            assert_eq!(answer["status"], "optimal", "{solver}");
            answer["objective"].as_f64().unwrap()
        })
        .collect();
    assert!(found.iter().all(|x| (x / found[0] - 1.0).abs() < 1e-6), "{solvers:?}: {found:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (w, s) = (base("transformer.yaml"), base("system.yaml"));
    for args in [map_small(&w, &s, &[]), vec!["schema", "system"], vec!["schema", "plan"]] {
        let mut child = flowspace(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.is_empty(), "{args:?}: {} {text}", output.status);
    }
}

#[test]
fn help_and_version_are_answers() {
    for args in [&["--help"][..], &["--version"], &["map", "--help"], &["check", "--help"], &["schema", "--help"]] {
        assert!(succeed(args).contains("flowspace") || args[0] != "--version", "{args:?}");
    }
    assert_eq!(run(&[]).status.code(), Some(1));
}

/// All engines on one point: a line each, and they agree.
#[test]
fn all_solvers_agree_on_a_small_point() {
    let w = root().join("workloads/gpt3-175b-forward.yaml").display().to_string();
    let s = root().join("systems/sn10-8-torus-2d.yaml").display().to_string();
    let text = succeed(&["map", "--workload", &w, "--system", &s, "--tp", "8", "--all-solvers"]);
    for word in ["elimination", "shortest path", "highs", "agrees"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    assert!(!text.contains(" NO"), "{text}");
    assert!(text.contains("engine: "), "{text}");
}

/// An input that is carried from layer to layer and read by nobody is not handed on between stages; before, the checker refused the plan.
#[test]
fn what_nobody_reads_is_not_handed_on() {
    let scratch = Scratch::new("cli");
    let graph = "kind: graph\nname: unread\nsource: 'assumed: a test'\nglobal_batch: 4\nmicro_batch: 1\nrepeat: 8\n\
         inputs: [{ name: x, rows: 12, cols: 4, carried_from: z }, { name: i, rows: 12, cols: 4 }]\nkernels:\n  \
         - { name: a, op: gemm_weight, m: 24, n: 4, k: 12, rhs: i, output: y }\n  \
         - { name: b, op: gemm_weight, m: 12, n: 4, k: 24, rhs: y, output: z }\n";
    let workload = scratch.write("unread.yaml", graph);
    let answer = json(&map_small(&workload, &base("system.yaml"), &["--pp", "8"]));
    assert_eq!(answer["iteration_parts"]["p2p_s"].as_f64(), Some(0.0), "{answer:#}");
}
