//! Serving files: what `map` finds is what `check` derives from its file, what is pinned stays, and what changes in it is noticed.

use crate::scratch::Scratch;
use std::path::Path;

const MODEL: &str = "{kind: language_model, name: dense, source: test, layers: 4, hidden: 1024, heads: 8, kv_heads: 4, gated: true, \
     vocab: 2048, seq: 512, pass: inference, generated: 64, global_batch: 48, types: {weights: bf16, activations: bf16}}";
const EXPERTS: &str = "{kind: language_model, name: experts, source: test, layers: 4, hidden: 1024, heads: 8, vocab: 2048, seq: 512, \
     pass: inference, generated: 64, global_batch: 48, types: {weights: bf16, activations: bf16}, experts: {count: 8, top_k: 2, ffn: 1024}}";
/// Of one token 60 (1 - (1 - 4 / 60)) experts are four, whatever the last digit.
const SIXTY: &str = "{kind: language_model, name: sixty, source: test, layers: 24, hidden: 2048, heads: 16, gated: true, vocab: 2048, seq: 512, \
     pass: inference, generated: 64, global_batch: 1, types: {weights: bf16, activations: bf16}, experts: {count: 60, top_k: 4, ffn: 1408}}";

fn system(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("systems/{name}.yaml")).display().to_string()
}

fn best(scratch: &Scratch, args: &[&str]) -> serde_json::Value {
    let told: serde_json::Value =
        serde_json::from_str(&scratch.succeed(&[&["map"], args, &["--format", "json"]].concat())).unwrap();
    told["best"].clone()
}

#[test]
fn what_is_found_follows_from_its_file() {
    let scratch = Scratch::new("serving_files");
    scratch.write("dense.yaml", MODEL);
    scratch.write("experts.yaml", EXPERTS);
    scratch.write("sixty.yaml", SIXTY);
    let cases: [(&str, &str, &[&str]); 8] = [
        ("dense", "h100-dgx-8", &[]),
        ("dense", "h100-dgx-8", &["--tp", "4", "--pp", "2"]),
        ("dense", "h100-dgx-8", &["--batch", "7", "--goal", "latency"]),
        ("dense", "sn40l-8", &["--tp", "2"]),
        ("experts", "h100-dgx-8", &["--ep", "4"]),
        ("experts", "sn40l-8", &["--batch", "1,16", "--dp", "8"]),
        ("sixty", "sn40l-8", &["--batch", "1,2,8", "--tp", "1"]),
        ("sixty", "h100-dgx-8", &["--batch", "1,2,8", "--tp", "1"]),
    ];
    for (model, system_name, more) in cases {
        let (model, system) = (format!("{model}.yaml"), system(system_name));
        let common = ["--workload", &model, "--system", &system];
        let found = best(&scratch, &[&common, more, &["--plan-out", "s.yaml"]].concat());
        let text = scratch.read("s.yaml");
        let told = scratch.succeed(&["check", "s.yaml", "--plan-out", "again.yaml"]);
        assert!(told.ends_with("the figures of the file follow from its decisions\n"), "{more:?}: {told}");
        assert_eq!(text, scratch.read("again.yaml"), "{more:?}");
        // All degrees and the batch pinned: the same layout. No layout pinned: no worse.
        let pinned = text.replace("\npin: []\n", "\npin: [tp, pp, dp, ep, batch]\n");
        assert_ne!(pinned, text);
        scratch.write("pinned.yaml", &pinned);
        let same = best(&scratch, &["--plan", "pinned.yaml", "--plan-out", "same.yaml"]);
        assert_eq!(same, found, "{more:?}");
        assert!(scratch.read("same.yaml").contains("\npin:\n- tp\n"), "{}", scratch.read("same.yaml"));
        if !more.contains(&"--goal") {
            scratch.write("open.yaml", &text.replace("\npin: []\n", "\npin: [batch]\n"));
            let open = best(&scratch, &["--plan", "open.yaml"]);
            assert!(open["per_chip"].as_f64() >= found["per_chip"].as_f64(), "{more:?}");
        }
    }
}

#[test]
fn what_is_changed_is_noticed() {
    let scratch = Scratch::new("serving_changes");
    scratch.write("dense.yaml", MODEL);
    let system = system("h100-dgx-8");
    let found = ["map", "--workload", "dense.yaml", "--system", &system, "--tp", "4", "--plan-out", "s.yaml"];
    scratch.succeed(&found);
    let changed = |from: &str, to: &str, more: &[&str]| {
        let text = scratch.read("s.yaml");
        let at = text.find(from).unwrap_or_else(|| panic!("{from:?} is not in {text}"));
        scratch.write("changed.yaml", &format!("{}{to}{}", &text[..at], &text[at + from.len()..]));
        let out = scratch.run(&[&["check", "changed.yaml"], more].concat());
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    for (from, to) in [
        ("\n  latency_s: ", "\n  latency_s: 1"),
        ("\n  wave: 24", "\n  wave: 12"),
        ("\n  batch: 48", "\n  batch: 56"),
        ("\n  generated: 64", "\n  generated: 65"),
        ("\n  memory_bytes: ", "\n  memory_bytes: 1"),
    ] {
        let (code, err) = changed(from, to, &[]);
        assert_eq!(code, Some(1), "{from:?}: {err}");
        assert!(err.contains("changed.yaml: result.") && err.contains("the file says"), "{from:?}: {err}");
        let (code, err) = changed(from, to, &["--recost"]);
        assert_eq!(code, Some(0), "{from:?}: {err}");
    }
    for (from, to, words) in [
        ("\n  tp: 4", "\n  tp: 3", "is 6 chips: expected the 8 of the system"),
        ("\n  wave: 24", "\n  wave: 25", "wave 25: expected 1 to 24, the sequences of a replica"),
        ("\n  wave: 24", "\n  wave: 0", "wave"),
        ("\n  ep: 1", "\n  ep: 2", "ep 2: expected a divisor of the 1 experts"),
        ("\n  batch: 48", "\n  batch: 0", "batch"),
        ("\nserve:", "\nserves:", "serves: unknown key"),
        ("\n  generated: 64", "\n  generated: many", "generated"),
        ("\n  pass: inference\n  generated: 64", "\n  pass: training", "pass: inference"),
    ] {
        let (code, err) = changed(from, to, &["--recost"]);
        assert_eq!(code, Some(1), "{from:?}: {err}");
        assert!(err.contains(words), "{from:?}: {err}");
    }
}

/// The example of the documentation says what follows from it, and states figures.
#[test]
fn the_example_follows() {
    let scratch = Scratch::new("serving_example");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/files/examples/serving.yaml");
    let told = scratch.succeed(&["check", &file.display().to_string()]);
    assert!(told.ends_with("the figures of the file follow from its decisions\n"), "{told}");
}

/// Least energy and least cost: never above what other objectives take of it, by token; a study's rows say the same, and name what was minimised.
#[test]
fn energy_and_cost_are_minimised() {
    let scratch = Scratch::new("serving_energy");
    scratch.write("dense.yaml", MODEL);
    let system = system("a100-40gb-4");
    let of = |objective: &str, batch: &str| {
        let args = ["map", "--workload", "dense.yaml", "--system", &system, "--objective", objective, "--batch", batch];
        let told: serde_json::Value =
            serde_json::from_str(&scratch.succeed(&[&args[..], &["--format", "json"]].concat())).unwrap();
        assert_eq!(told["objective"], objective);
        told
    };
    let by_token = |told: &serde_json::Value, what: &str| {
        let best = &told["best"];
        let of_batch = if what == "energy" { &best["energy"]["energy_j"] } else { &best["money"]["iteration_usd"] };
        of_batch.as_f64().unwrap() / (best["batch"].as_f64().unwrap() * 64.0)
    };
    let all: Vec<serde_json::Value> = ["time", "energy", "cost"].iter().map(|o| of(o, "1,7,48,300")).collect();
    for (i, what) in [(1, "energy"), (2, "cost")] {
        let least = by_token(&all[i], what);
        assert!((all[i]["value_by_token"].as_f64().unwrap() / least - 1.0).abs() < 1e-9, "{what}");
        assert!(all.iter().all(|other| by_token(other, what) >= least * (1.0 - 1e-9)), "{what}");
        assert!(all[i]["statement"].as_str().unwrap().contains(&format!("a lower {what} by token")), "{what}");
    }
    // Of these the fastest is not the most frugal: or nothing here would tell one objective from another.
    assert_ne!(of("time", "7")["best"]["layout"], of("energy", "7")["best"]["layout"]);
    let study = format!(
        "name: s\nworkload: dense.yaml\nsystem: {system}\naxes:\n  - {{ name: least, field: solve.objective, values: [time, energy, cost] }}\n"
    );
    scratch.write("study.yaml", &study);
    scratch.succeed(&["study", "run", "study.yaml", "--out", "out"]);
    let mut table = csv::Reader::from_path(scratch.file("out/results.csv")).unwrap();
    let names = table.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    let cell = |row: usize, name: &str| rows[row][names.iter().position(|n| n == name).unwrap()].to_string();
    let number = |row: usize, name: &str| cell(row, name).parse::<f64>().unwrap();
    for (row, objective, unit) in [(0, "time", "s"), (1, "energy", "J"), (2, "cost", "$")] {
        assert_eq!((cell(row, "minimized"), cell(row, "objective_unit")), (objective.into(), unit.into()));
        assert_eq!(cell(row, "mapped_as"), "layouts");
        let parts = ["chips", "memory", "links", "switches"].map(|part| number(row, &format!("energy_{part}_j")));
        assert!((parts.iter().sum::<f64>() / number(row, "energy_j") - 1.0).abs() < 1e-9);
        assert!((number(row, "j_per_generated_token") * 48.0 * 64.0 / number(row, "energy_j") - 1.0).abs() < 1e-9);
    }
    let found = of("energy", "48");
    assert!((number(1, "objective") / found["best"]["energy"]["energy_j"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert!((0..3).all(|row| number(row, "energy_j") >= number(1, "energy_j") * (1.0 - 1e-9)));
}

/// A language model that options of graphs make one graph says so in text, JSON and the rows of a study, on standard output.
#[test]
fn a_model_that_is_one_graph_says_so() {
    let scratch = Scratch::new("one_graph");
    scratch.write(
        "m.yaml",
        "{kind: language_model, name: m, source: test, layers: 2, hidden: 256, heads: 4, vocab: 512, seq: 128, global_batch: 8}",
    );
    let system = system("sn10-single");
    let map = ["map", "--workload", "m.yaml", "--system", &system, "--joint-nodes", "4"];
    let said = "mapped as one graph (1F1B, nothing computed again, no ZeRO; of serving one step of one token): --tiles is of graphs";
    for format in ["text", "json"] {
        let with = scratch.succeed(&[&map[..], &["--tiles", "4", "--format", format]].concat());
        assert!(with.contains(said), "{format}: {with}");
        let without = scratch.succeed(&[&map[..], &["--format", format]].concat());
        assert!(!without.contains("one graph"), "{format}: {without}");
    }
    let study = format!(
        "name: s\nworkload: m.yaml\nsystem: {system}\nsolve: {{ joint_nodes: 4 }}\naxes:\n  - {{ name: how, points: {{ all: {{ workload.global_batch: 8 }}, graph: {{ solve.tiles: 4 }} }} }}\n"
    );
    scratch.write("study.yaml", &study);
    scratch.run(&["study", "run", "study.yaml", "--out", "out"]);
    let mut table = csv::Reader::from_path(scratch.file("out/results.csv")).unwrap();
    let at = table.headers().unwrap().iter().position(|n| n == "mapped_as").unwrap();
    let rows: Vec<String> = table.records().map(|row| row.unwrap()[at].to_string()).collect();
    assert_eq!(rows, ["executions", "graph"]);
}
