//! What is said of filling and draining of pipelines of tiles where a plan's time does not count them: what the same decisions take where it does.

use crate::scratch::Scratch;
use serde_json::Value;

/// A model of a system that counts them, beside the one that does not.
const CHARGED: &str = "model: { pipeline_filling: charged }\n";

const DENSE: &str = "{kind: language_model, name: dense, source: test, layers: 4, hidden: 1024, heads: 8, kv_heads: 4, gated: true, \
     vocab: 2048, seq: 512, global_batch: 16, types: {weights: bf16, activations: bf16}}";

fn json(scratch: &Scratch, args: &[&str]) -> Value {
    serde_json::from_str(&scratch.succeed(&[args, &["--format", "json"]].concat())).unwrap()
}

/// A number, or nothing.
fn number(value: &Value, key: &str) -> Option<f64> {
    value[key].as_f64()
}

fn given_system(scratch: &Scratch, name: &str, chips: &str) {
    scratch.write(&format!("{name}.yaml"), &format!("from: {chips}\n"));
    scratch.write(&format!("{name}-charged.yaml"), &format!("from: {chips}\n{CHARGED}"));
}

/// With every other decision pinned, and the tile count searched where filling counts.
#[test]
fn what_a_plan_would_take_is_what_it_takes() {
    let scratch = Scratch::new("filling");
    given_system(&scratch, "ring", "sn10-8-torus-2d");
    let out =
        json(&scratch, &["map", "--workload", "gpt3-175b-forward", "--system", "ring.yaml", "--plan-out", "plan.yaml"]);
    let with = number(&out, "with_filling_s").unwrap();
    let share = with / number(&out, "iteration_s").unwrap() - 1.0;
    assert!(share > 0.01, "{with}");
    let said = format!("with which this plan takes {:.2} % longer at the tile count that is then best", 100.0 * share);
    assert!(out["statement"].as_str().unwrap().contains(&said), "{out:#}");

    let text = scratch
        .read("plan.yaml")
        .replace("\nnetwork_use:\n", "\n  model: { pipeline_filling: charged }\nnetwork_use:\n");
    let tiles = text.lines().find(|line| line.starts_with("tile_count: ")).unwrap().to_string();
    let mut least = f64::INFINITY;
    for count in (0..=11).map(|i| 1u64 << i) {
        scratch.write("charged.yaml", &text.replace(&tiles, &format!("tile_count: {count}")));
        let recost = ["check", "charged.yaml", "--recost", "--plan-out", "recost.yaml"];
        if !scratch.run(&recost).status.success() {
            continue;
        }
        let plan = scratch.read("recost.yaml");
        let seconds = plan.lines().find_map(|line| line.trim().strip_prefix("iteration_s: ")).unwrap();
        least = least.min(seconds.parse::<f64>().unwrap());
    }
    assert!((least / with - 1.0).abs() < 1e-9, "{least} {with}");
}

/// Of executions, and on chips that run kernel by kernel nothing.
#[test]
fn executions_say_it_too() {
    let scratch = Scratch::new("filling_executions");
    scratch.write("dense.yaml", DENSE);
    given_system(&scratch, "ring", "sn10-8-torus-2d");
    let map = ["map", "--workload", "dense.yaml", "--tp", "4", "--pp", "2"];
    let out = json(&scratch, &[&map[..], &["--system", "ring.yaml", "--plan-out", "e.yaml"]].concat());
    let with = number(&out, "with_filling_s").unwrap();
    assert!(with > number(&out, "iteration_s").unwrap(), "{out:#}");
    assert!(out["statement"].as_str().unwrap().contains("with which this plan takes "), "{out:#}");
    // The same execution and blocks where filling counts, at some tile count.
    let text = scratch.read("e.yaml");
    let tiles = text.lines().find(|line| line.starts_with("  tile_count: ")).unwrap().to_string();
    let mut least = f64::INFINITY;
    for count in (0..=9).map(|i| 1u64 << i) {
        scratch.write("other.yaml", &text.replacen(&tiles, &format!("  tile_count: {count}"), 1));
        let given = ["map", "--workload", "dense.yaml", "--system", "ring-charged.yaml", "--execution", "other.yaml"];
        let run = scratch.run(&[&given[..], &["--format", "json"]].concat());
        if run.status.success() {
            let told: Value = serde_json::from_slice(&run.stdout).unwrap();
            assert!(told["with_filling_s"].is_null(), "{told:#}");
            least = least.min(number(&told, "iteration_s").unwrap());
        }
    }
    assert!((least / with - 1.0).abs() < 1e-9, "{least} {with}");
    let gpus = json(&scratch, &[&map[..], &["--system", "h100-dgx-8"]].concat());
    assert!(gpus["with_filling_s"].is_null(), "{gpus:#}");
}
