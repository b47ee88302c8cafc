//! Execution files that stand alone: what `map` finds is what `check` derives from its file, what `map --execution` predicts by it, and what changes in it is noticed.

use crate::scratch::Scratch;
use std::path::Path;

const DENSE: &str = "{kind: language_model, name: dense, source: test, layers: 4, hidden: 1024, heads: 8, kv_heads: 4, gated: true, \
     vocab: 2048, seq: 512, global_batch: 16, types: {weights: bf16, activations: bf16}}";
const EXPERTS: &str = "{kind: language_model, name: experts, source: test, layers: 3, hidden: 1024, heads: 8, vocab: 2048, seq: 512, global_batch: 16, \
     types: {weights: bf16, activations: bf16}, experts: {count: 4, top_k: 2, ffn: 1024, first_dense_layers: 1}}";

fn system(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("systems/{name}.yaml")).display().to_string()
}

/// Seconds of an iteration, as JSON tells them.
fn seconds(scratch: &Scratch, args: &[&str]) -> f64 {
    // What is found follows from its file however well it was searched for.
    let told = scratch.succeed(&[&["map"], args, &["--joint-nodes", "3000", "--format", "json"]].concat());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    told["iteration_s"].as_f64().unwrap()
}

/// Without figures and the line that says where it comes from; what a figure is to the last digit depends on the order of sums.
fn body(text: &str) -> String {
    let (head, tail) = (text.find("\nresult:").unwrap(), text.find("\nworkload:").unwrap());
    let lines = text[..head].lines().chain(text[tail..].lines());
    lines.filter(|line| !line.starts_with("source:")).collect::<Vec<_>>().join("\n")
}

/// Of each kind of inner search, with experts, tokens and stages divided, and little memory.
#[test]
fn what_is_found_follows_from_its_file() {
    let scratch = Scratch::new("execution_files");
    scratch.write("dense.yaml", DENSE);
    scratch.write("experts.yaml", EXPERTS);
    let (gpus, ring, full) = (system("h100-dgx-8"), system("sn10-8-torus-2d"), system("sn40l-16-fully-connected"));
    // What no graph describes.
    scratch.write("adapted.yaml", &DENSE.replace("name: dense", "name: adapted, adapters: 16"));
    let cases: [(&str, &str, &[&str], &str); 14] = [
        ("dense", &gpus, &[], "execution"),
        ("dense", &gpus, &["--software", "free"], "layer"),
        ("adapted", &gpus, &[], "execution"),
        ("adapted", &gpus, &["--software", "free"], "layer"),
        ("dense", &gpus, &["--software", "free", "--tp", "4", "--recompute", "selective"], "layer"),
        ("dense", &gpus, &["--software", "free", "--pp", "2", "--zero", "1"], "layer"),
        ("experts", &gpus, &["--software", "free", "--ep", "4"], "expert_layer"),
        ("dense", &ring, &[], "blocks"),
        ("dense", &ring, &["--tp", "4", "--pp", "2"], "blocks"),
        ("dense", &ring, &["--recompute", "full"], "blocks"),
        ("dense", &ring, &["--cp", "2"], "blocks"),
        ("experts", &full, &["--ep", "4"], "blocks"),
        ("experts", &full, &["--tp", "4", "--ep", "2", "--cp", "2"], "blocks"),
        ("dense", &ring, &["--software", "generic"], "execution"),
    ];
    for (model, system, more, key) in cases {
        let model = format!("{model}.yaml");
        let common = ["--workload", &model, "--system", system];
        let found = seconds(&scratch, &[&common, more, &["--plan-out", "e.yaml"]].concat());
        let text = scratch.read("e.yaml");
        assert!(text.contains(&format!("\n{key}:")), "{more:?}: {text}");
        let told = scratch.succeed(&["check", "e.yaml", "--plan-out", "again.yaml"]);
        assert!(told.ends_with("the figures of the file follow from its decisions\n"), "{more:?}: {told}");
        assert!(body(&text) == body(&scratch.read("again.yaml")), "{more:?}");
        // Of software that the file's system does not name.
        let software: &[&str] = match more {
            ["--software", word, ..] => &["--software", word],
            _ => &[],
        };
        let given = seconds(&scratch, &[&common, software, &["--execution", "e.yaml"]].concat());
        assert!((given / found - 1.0).abs() < 1e-9, "{more:?}: {given} for {found}");
        // Nothing pinned: what is found is no slower; everything that was given is pinned: the same.
        if key != "blocks" || more.len() == 4 {
            let free = seconds(&scratch, &["--plan", "e.yaml"]);
            assert!(free <= found * (1.0 + 1e-9), "{more:?}: {free} for {found}");
        }
        let names: Vec<String> = more
            .iter()
            .filter_map(|option| option.strip_prefix("--"))
            .filter(|option| *option != "software")
            .map(|option| option.replace('-', "_"))
            .collect();
        scratch.write("pinned.yaml", &text.replace("\npin: []\n", &format!("\npin: [{}]\n", names.join(", "))));
        let pinned = seconds(&scratch, &["--plan", "pinned.yaml"]);
        assert!((pinned / found - 1.0).abs() < 1e-9, "{more:?}: {pinned} for {found}");
    }
}

/// A figure or decision that is changed is no longer what follows, and is told by its name.
#[test]
fn what_is_changed_is_noticed() {
    let scratch = Scratch::new("execution_changes");
    scratch.write("dense.yaml", DENSE);
    let (gpus, ring) = (system("h100-dgx-8"), system("sn10-8-torus-2d"));
    scratch.succeed(&["map", "--workload", "dense.yaml", "--system", &ring, "--tp", "4", "--plan-out", "ring.yaml"]);
    let free = ["--software", "free", "--tp", "4", "--plan-out", "gpu.yaml"];
    scratch.succeed(&[&["map", "--workload", "dense.yaml", "--system", &gpus], &free[..]].concat());
    let changed = |file: &str, from: &str, to: &str, more: &[&str]| {
        let text = scratch.read(file);
        let at = text.find(from).unwrap_or_else(|| panic!("{from:?} is not in {text}"));
        scratch.write("changed.yaml", &format!("{}{to}{}", &text[..at], &text[at + from.len()..]));
        let out = scratch.run(&[&["check", "changed.yaml"], more].concat());
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    for (file, from, to) in [
        ("ring.yaml", "\n  iteration_s: ", "\n  iteration_s: 1"),
        ("ring.yaml", "\n  global_batch: 16", "\n  global_batch: 32"),
        ("ring.yaml", "\n  overlap_dp: true", "\n  overlap_dp: false"),
        ("gpu.yaml", "\n    reorder: true", "\n    reorder: false"),
        ("gpu.yaml", "\n  core: ", "\n  core: unfused #"),
        ("gpu.yaml", "\n  energy_j: ", "\n  energy_j: 1"),
    ] {
        let (code, err) = changed(file, from, to, &[]);
        assert_eq!(code, Some(1), "{from:?}: {err}");
        assert!(err.contains("changed.yaml: result.") && err.contains("the file says"), "{from:?}: {err}");
        let (code, err) = changed(file, from, to, &["--recost"]);
        assert_eq!(code, Some(0), "{from:?}: {err}");
    }
    // What cannot be is told as that, `--recost` or not.
    for (file, from, to, words) in [
        ("ring.yaml", "\n  tp: 4", "\n  tp: 3", "tp = 3 does not divide the 8 heads"),
        ("ring.yaml", "\n    LN1: ", "\n    LN9: ", "blocks.sharding: there is no kernel \"LN9\""),
        ("ring.yaml", "\n    QKV: ", "\n    LN1: ", "LN1"),
        ("gpu.yaml", "\n  core: ", "\n  core: fast #", "layer.core: expected one of"),
        (
            "gpu.yaml",
            "\nlayer:",
            "\nblocks: {tile_count: 1, sharding: {}, partitions: []}\nlayer:",
            "blocks: is no part",
        ),
        ("gpu.yaml", "\nworkload:", "\nworkloads:", "workloads: unknown key"),
        ("gpu.yaml", "\nlayer:", "\nexpert_layer: {core: unfused}\nlayer:", "expert_layer: dense has no such layers"),
        ("ring.yaml", "\n  tile_count: ", "\n  tile_count: 9999", "blocks.tile_count: expected at most"),
    ] {
        let (code, err) = changed(file, from, to, &["--recost"]);
        assert_eq!(code, Some(1), "{from:?}: {err}");
        assert!(err.contains(words), "{from:?}: {err}");
    }
}

/// The examples of the documentation say what follows from them.
#[test]
fn examples_follow() {
    let scratch = Scratch::new("execution_examples");
    for name in ["execution-layer", "execution-blocks"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/files/examples/{name}.yaml"));
        let told = scratch.succeed(&["check", &file.display().to_string()]);
        assert!(told.ends_with("the figures of the file follow from its decisions\n"), "{name}: {told}");
    }
}

/// The strategies of one kernel, or of two that follow each other, exchanged for others: what fits takes no less than the bound of the search. (Where one block hands its
/// result to another, what is best of either may change with the other.)
#[test]
fn no_neighbour_of_a_mapping_beats_its_bound() {
    let scratch = Scratch::new("execution_neighbours");
    let model = "{kind: language_model, name: small, source: test, layers: 2, hidden: 1024, heads: 8, gated: false, vocab: 32768, seq: 2048, global_batch: 8, \
         types: {weights: bf16, activations: bf16}}";
    scratch.write("small.yaml", model);
    let system = system("sn10-8-torus-2d");
    let common = ["--workload", "small.yaml", "--system", &system, "--format", "json"];
    let told = |args: &[&str]| -> Option<serde_json::Value> {
        let output = scratch.run(&[&["map"], &common[..], args].concat());
        (output.status.success()).then(|| serde_json::from_slice(&output.stdout).unwrap())
    };
    let found = told(&["--tp", "4", "--plan-out", "e.yaml"]).unwrap();
    let bound = found["bound"].as_f64().unwrap();
    let text = scratch.read("e.yaml");
    let from = text.find("\n  sharding:\n").unwrap() + "\n  sharding:\n".len();
    let to = from + text[from..].find("\n  partitions:").unwrap();
    let kernels: Vec<&str> = text[from..to].lines().collect();
    let others = |line: &str| -> Vec<String> {
        let (name, own) = line.split_once(": ").unwrap();
        let all = ["m", "\"n\"", "k", "outer", "replicate"].into_iter().filter(|s| *s != own);
        all.map(|s| format!("{name}: {s}")).collect()
    };
    let mut fits = 0;
    let mut takes = |lines: &[&str]| {
        scratch.write("other.yaml", &format!("{}{}{}", &text[..from], lines.join("\n"), &text[to..]));
        let Some(told) = told(&["--execution", "other.yaml"]) else { return };
        let seconds = told["iteration_s"].as_f64().unwrap();
        assert!(seconds >= bound * (1.0 - 1e-9), "{seconds} for {bound}: {lines:?}");
        fits += 1;
    };
    for k in 0..kernels.len() {
        for one in others(kernels[k]) {
            let mut lines = kernels.clone();
            lines[k] = &one;
            takes(&lines);
            for two in kernels.get(k + 1).into_iter().flat_map(|next| others(next)) {
                let mut lines = lines.clone();
                lines[k + 1] = &two;
                takes(&lines);
            }
        }
    }
    assert!(fits > 20, "{fits}");
}

/// A chip whose file names the software that is current on it: a plan elsewhere carries that, and is found again.
#[test]
fn a_plan_carries_the_current_software_of_its_chip() {
    let scratch = Scratch::new("execution-current");
    scratch.write(
        "s.yaml",
        "name: one\nsource: 'assumed: a test'\nchip: mi300x\nmemory: mi300x-192gb-hbm3\nnetwork: { topology: single-chip }\nchips: 1\n",
    );
    scratch.succeed(&["map", "--workload", "llama3.2-1b", "--system", "s.yaml", "--plan-out", "plan.yaml"]);
    scratch.succeed(&["check", "plan.yaml"]);
    scratch.succeed(&["map", "--plan", "plan.yaml"]);
    assert!(scratch.read("plan.yaml").contains("generic on CDNA 3"));
}
