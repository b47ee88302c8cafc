//! `flowspace explain` from outside.

use super::cli::{root, run, succeed};
use super::scratch::Scratch;
use serde_json::Value;

/// `explain` says what binds, and what it says 10 % more of each resource takes is what `map` of such a system takes.
#[test]
fn explained_gains_are_those_of_a_search() {
    let out = Scratch::new("cli");
    let plan = out.file("plan.yaml");
    let (w, s) = ("workloads/gpt3-175b-forward.yaml", "systems/sn10-8-torus-2d.yaml");
    let (w, s) = (root().join(w).display().to_string(), root().join(s).display().to_string());
    succeed(&["map", "--workload", &w, "--system", &s, "--plan-out", &plan]);
    let text = succeed(&["explain", &plan, "--plot", &out.file("tornado")]);
    assert!(text.contains("what binds") && text.contains("DRAM bandwidth"), "{text}");
    assert!(out.read("tornado.svg").contains("<svg"));
    let explained: Value = serde_json::from_str(&succeed(&["explain", &plan, "--format", "json"])).unwrap();
    let gains = explained["gains"].as_array().unwrap();
    // Sorted, none negative, none above what 10 % can bring.
    let shares: Vec<f64> = gains.iter().map(|g| g["gain"].as_f64().unwrap()).collect();
    assert!(shares.windows(2).all(|pair| pair[0] >= pair[1]), "{shares:?}");
    assert!(shares.iter().all(|g| (-1e-9..=1.0 - 1.0 / 1.1 + 1e-9).contains(g)), "{shares:?}");
    // The same by hand: a memory of 110 GB/s instead of 100.
    let faster = out.write(
        "faster.yaml",
        &format!(
            "from: {s:?}\nname: faster\nsource: 'assumed: test'\nmemory: {{ from: {:?}, name: m, bandwidth: 110 GB/s, source: {{ bandwidth: 'assumed: test', \
             capacity: 'assumed: test', capacity_price: 'assumed: test', price: 'assumed: test', power: 'assumed: test' }} }}\n",
            root().join("systems/memories/ddr.yaml").display().to_string()
        ),
    );
    let by_hand = run(&["map", "--workload", &w, "--system", &faster, "--format", "json"]);
    let dram = gains.iter().find(|g| g["resource"] == "DRAM bandwidth").unwrap();
    if by_hand.status.success() && std::fs::read_to_string(&s).unwrap().contains("bandwidth: 100 GB/s") {
        let by_hand = String::from_utf8(by_hand.stdout).unwrap();
        let seconds = dram["iteration_s"].as_f64().unwrap();
        let digits = format!("{seconds}");
        assert!(by_hand.contains(&digits[..digits.len().min(10)]), "{seconds} in\n{by_hand}");
    }
    let csv = succeed(&["explain", &plan, "--format", "csv"]);
    assert_eq!(csv.lines().count(), gains.len() + 1, "{csv}");
}

/// Of a language model `explain` is of the answer that `map` gives, on chips of both kinds and with each software; what more of a resource brings is what `map` finds on such a system.
#[test]
fn executions_are_explained_as_they_are_mapped() {
    let out = Scratch::new("cli");
    let faster = |system: &str, memory: &str, more: &str| {
        let sources = "bandwidth: 'assumed: test', capacity: 'assumed: test', capacity_price: 'assumed: test', price: 'assumed: test', power: 'assumed: test'";
        let of = |kind: &str, name: &str| root().join(format!("systems/{kind}{name}.yaml")).display().to_string();
        let text = format!(
            "from: {:?}\nname: faster\nsource: 'assumed: test'\nmemory: {{ from: {:?}, name: m, bandwidth: {more}, source: {{ {sources} }} }}\n",
            of("", system),
            of("memories/", memory)
        );
        out.write("faster.yaml", &text)
    };
    let json = |args: &[&str]| -> Value { serde_json::from_str(&succeed(args)).unwrap() };
    for (system, memory, more, software) in [
        ("sn10-8-torus-2d", "ddr", "110 GB/s", "free"),
        ("h100-dgx-8", "h100-80gb-hbm3", "3.685 TB/s", "generic"),
        ("h100-dgx-8", "h100-80gb-hbm3", "3.685 TB/s", "free"),
    ] {
        let more = faster(system, memory, more);
        // Some twenty searches: where pipelines fill of a model whose searches end.
        let model = if system.starts_with("sn") { "gpt2-medium" } else { "gpt3-6.7b" };
        let options = ["--workload", model, "--software", software, "--format", "json"];
        let explained = json(&[&["explain", "--system", system], &options[..]].concat());
        let mapped = json(&[&["map", "--system", system], &options[..]].concat());
        assert_eq!(explained["iteration_s"], mapped["iteration_s"], "{system}");
        assert_eq!(explained["execution"], mapped["execution"], "{system}");
        assert_eq!(explained["statement"], mapped["statement"], "{system}");
        let gains = explained["gains"].as_array().unwrap();
        let gain = |name: &str| gains.iter().find(|g| g["resource"] == name).unwrap();
        let by_hand = json(&[&["map", "--system", &more], &options[..]].concat());
        let (found, by_hand) = (gain("DRAM bandwidth")["iteration_s"].as_f64(), by_hand["iteration_s"].as_f64());
        let (found, by_hand) = (found.unwrap(), by_hand.unwrap());
        assert!((found / by_hand - 1.0).abs() < 1e-6, "{system}, {software}: {found} {by_hand}");
        for g in gains {
            let share = g["gain"].as_f64().unwrap();
            assert!((-1e-9..=1.0 - 1.0 / 1.1 + 1e-9).contains(&share), "{system}: {g}");
        }
        assert!(explained["difference"].is_object(), "{system}");
    }
    let refused = run(&["explain", "--workload", "gpt3-6.7b", "--system", "h100-dgx-8", "--tiles", "2"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("--tiles: for graphs"), "{said}");
}

/// A remedy is feasible: the PP that it names, given to `map`, has a plan.
#[test]
fn remedies_are_feasible() {
    let w = root().join("workloads/gpt3-1t-training.yaml").display().to_string();
    let s = root().join("systems/h100-dgx-1024.yaml").display().to_string();
    let output = run(&["explain", "--workload", &w, "--system", &s, "--pp", "8", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let remedies = told["remedies"].as_array().unwrap();
    let pp = remedies.iter().find(|r| r["lever"] == "PP").unwrap()["enough"].as_str().unwrap();
    succeed(&["map", "--workload", &w, "--system", &s, "--pp", pp]);
    // SRAM does not make up for DRAM.
    let sram = remedies.iter().find(|r| r["lever"] == "SRAM of a chip").unwrap();
    assert!(sram["enough"].is_null() && sram["why_not"].is_string(), "{sram}");
    assert!(remedies.iter().any(|r| r["lever"] == "DRAM capacity of a chip" && r["iteration_s"].is_number()));
}

/// So few partitions that no plan keeps to them: `map` names how many are enough, with which there is a plan, and `explain` takes the option too.
#[test]
fn too_few_partitions_are_told_with_how_many_are_enough() {
    let point = ["--workload", "gpt3-1t-training", "--system", "sn30-1024-torus-2d"];
    let with = |command: &str, more: &[&str]| run(&[&[command], &point[..], more].concat());
    let told = with("map", &["--max-partitions", "3", "--joint-nodes", "20"]);
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(1), "{text}");
    assert!(text.contains("no plan among the sets of shardings") && !text.contains("--node-limit"), "{text}");
    let enough = text.split("with --max-partitions ").nth(1).and_then(|rest| rest.split(' ').next());
    let enough: u64 = enough.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    let more = with("map", &["--max-partitions", &enough.to_string(), "--joint-nodes", "20"]);
    assert!(more.status.success(), "{enough}: {}", String::from_utf8_lossy(&more.stderr));
    let explained = with("explain", &["--max-partitions", "3", "--joint-nodes", "20"]);
    assert_eq!(String::from_utf8_lossy(&explained.stderr), text);
}
