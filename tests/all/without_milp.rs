//! A build without the feature `milp` answers with the exact engines, and refuses what needs a MILP (`errors/milp-*.case` has
//! those messages). Run it with `cargo test --release --no-default-features --test all without_milp::`: `.ci/run` lints that build, and
//! leaves these tests, which need a second compilation of everything, to whoever changes it.
#![cfg(not(feature = "milp"))]

use flowspace::solver::Solver;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn flowspace(words: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_flowspace")).args(words).current_dir(root()).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    output
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_point_is_proven_by_the_exact_engines() {
    let point = ["map", "--workload", "workloads/gpt3-175b-forward.yaml", "--system", "systems/sn10-8-torus-2d.yaml"];
    let output = flowspace(&[&point[..], &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["status"], &answer["solver"]), (&"optimal".into(), &"exact".into()));
}

#[test]
fn no_solver_is_built() {
    assert_eq!(Solver::built(), []);
}

/// The programme is written without a solver.
#[test]
fn a_model_is_written_for_other_solvers() {
    let path = std::env::temp_dir().join(format!("flowspace-without-{}.mps", std::process::id()));
    let to = path.display().to_string();
    let point = ["map", "--workload", "workloads/gpt3-175b-forward.yaml", "--system", "systems/sn10-8-torus-2d.yaml"];
    let output = flowspace(&[&point[..], &["--write-model", &to]].concat());
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("\nCOLUMNS\n") && text.ends_with("ENDATA\n"));
}
