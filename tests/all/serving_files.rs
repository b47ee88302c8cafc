//! Serving files: what `map` finds is what `check` derives from its file, what is pinned stays, and what changes in it is noticed.

use crate::scratch::Scratch;
use std::path::Path;

const MODEL: &str = "{kind: language_model, name: dense, source: test, layers: 4, hidden: 1024, heads: 8, kv_heads: 4, gated: true, \
     vocab: 2048, seq: 512, pass: inference, generated: 64, global_batch: 48, types: {weights: bf16, activations: bf16}}";
const EXPERTS: &str = "{kind: language_model, name: experts, source: test, layers: 4, hidden: 1024, heads: 8, vocab: 2048, seq: 512, \
     pass: inference, generated: 64, global_batch: 48, types: {weights: bf16, activations: bf16}, experts: {count: 8, top_k: 2, ffn: 1024}}";

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
    let cases: [(&str, &str, &[&str]); 6] = [
        ("dense", "h100-dgx-8", &[]),
        ("dense", "h100-dgx-8", &["--tp", "4", "--pp", "2"]),
        ("dense", "h100-dgx-8", &["--batch", "7", "--goal", "latency"]),
        ("dense", "sn40l-8", &["--tp", "2"]),
        ("experts", "h100-dgx-8", &["--ep", "4"]),
        ("experts", "sn40l-8", &["--batch", "1,16", "--dp", "8"]),
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
