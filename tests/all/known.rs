//! Plans fed back, and objectives beside the plan of least time, through the binary.

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

fn shipped(path: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path).to_string_lossy().into_owned()
}

fn json(args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_flowspace")).args(args).args(["--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{args:?}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(at: &Value, path: &str) -> f64 {
    at.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {at:#}"))
}

/// GPT-3 1T on 1,024 SN30. The plan of two passes takes 106.9 s, the best 105.4 s, and that one uses 39,955,915 J: what is told to be
/// the least energy, or money, is no more than what the default answer takes.
#[test]
fn least_energy_and_cost_are_no_more_than_those_of_the_plan_of_least_time() {
    let (w, s) = (shipped("workloads/gpt3-1t-training.yaml"), shipped("systems/sn30-1024-torus-2d.yaml"));
    let base = ["map", "--workload", &w, "--system", &s];
    let by_time = json(&base);
    assert!((number(&by_time, "/iteration_s") - 105.54).abs() < 0.01);
    for (objective, path) in [("energy", "/energy/energy_j"), ("cost", "/running/iteration_usd")] {
        let best = json(&[&base[..], &["--objective", objective]].concat());
        assert_eq!((&best["status"], &best["covers_sharding"]), (&"optimal".into(), &true.into()), "{best:#}");
        assert!(number(&best, "/objective") <= number(&by_time, path) * (1.0 + 1e-9), "{objective}");
        assert!((number(&best, "/objective") / number(&best, path) - 1.0).abs() < 1e-9);
    }
}

/// A plan file with nothing pinned is searched as it was found; and asked in two passes, with its tile count or under a limit, it is a
/// start. `explain` of it gains nothing negative.
#[test]
fn a_plan_that_is_fed_back_is_no_slower() {
    let folder = std::env::temp_dir().join(format!("flowspace-known-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("plan.yaml").to_string_lossy().into_owned();
    let (w, s) = (shipped("workloads/gpt3-1t-training.yaml"), shipped("systems/sn30-1024-torus-2d.yaml"));
    let found = json(&["map", "--workload", &w, "--system", &s, "--plan-out", &file]);
    let seconds = number(&found, "/iteration_s");
    let again = json(&["map", "--plan", &file]);
    assert_eq!((&again["status"], &again["covers_sharding"]), (&"optimal".into(), &true.into()));
    for more in [&[][..], &["--sharding", "two-pass"], &["--joint-nodes", "0"], &["--time-limit", "1ms"]] {
        let again = json(&[&["map", "--plan", &file][..], more].concat());
        assert!(number(&again, "/iteration_s") <= seconds * (1.0 + 1e-9), "{more:?}: {:#}", again["iteration_s"]);
    }
    for more in [&[][..], &["--sharding", "two-pass"]] {
        let told = json(&[&["explain", &file][..], more].concat());
        assert!(number(&told, "/best_iteration_s") <= seconds * (1.0 + 1e-9));
        for gain in told["gains"].as_array().unwrap() {
            assert!(number(gain, "/gain") >= -1e-9, "{gain:#}");
            assert!(number(gain, "/gain") >= number(gain, "/gain_same_decisions") - 1e-9, "{gain:#}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
