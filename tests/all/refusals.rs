//! What is not obeyed is refused, and what is not known is not stated: settings of studies, types and prices, files without an end.

use crate::scratch::Scratch;
use std::path::Path;

const TRAINED: &str = "{kind: language_model, name: small, source: test, layers: 4, hidden: 1024, heads: 8, vocab: 2048, seq: 512, global_batch: 64, \
     types: {weights: bf16, activations: bf16, gradients: bf16}}";
const SERVED: &str = "{kind: language_model, name: small, source: test, layers: 4, hidden: 1024, heads: 8, vocab: 2048, seq: 512, global_batch: 64, \
     pass: inference, generated: 64, types: {weights: bf16, activations: bf16}}";

fn catalogue(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systems").join(path).display().to_string()
}

/// A study over two chips, one with `kernels:` and one without; its rows by the label of the chip, and what it said.
fn study(scratch: &Scratch, workload: &str, software: &str, more: &str) -> (Vec<String>, String) {
    scratch.write("w.yaml", workload);
    let [of, sn40l, plain] = ["sn40l-8.yaml", "chips/sn40l.yaml", "chips/sn40l-dfmodel.yaml"].map(catalogue);
    let system = scratch.write("sys.yaml", &format!("from: {of}\n{software}"));
    scratch.write(
        "s.yaml",
        &format!(
            "name: two\nsource: test\nworkload: w.yaml\nsystem: {system}\naxes:\n  - name: chip\n    points:\n      kernels: {{ system.chip: {sn40l} }}\n      \
             none: {{ system.chip: {plain} }}\n{more}"
        ),
    );
    let _ = std::fs::remove_dir_all(scratch.0.join("out"));
    let output = scratch.run(&["study", "run", "s.yaml", "--no-plots", "--out", "out"]);
    let rows = scratch.read("out/results.csv").lines().skip(1).map(str::to_string).collect();
    (rows, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_study_refuses_what_it_would_not_obey() {
    let scratch = Scratch::new("refusals_study");
    let failed = |row: &str, with: &str| row.contains("failed") && row.contains(with);
    let (rows, said) = study(&scratch, TRAINED, "software: generic\n", "solve: { execution: { recompute: full } }\n");
    assert!(!rows[0].contains("failed") && failed(&rows[1], "solve.execution"), "{rows:?}");
    assert!(said.contains("rows of two kinds"), "{said}");
    let (rows, _) = study(&scratch, SERVED, "", "solve: { serving: { max_tpot: 1 s } }\n");
    assert!(!rows[0].contains("failed") && failed(&rows[1], "solve.serving"), "{rows:?}");
    let (rows, _) = study(&scratch, SERVED, "", "solve: { split_dimensions: true }\n");
    assert!(failed(&rows[0], "solve.split_dimensions") && !rows[1].contains("failed"), "{rows:?}");
    // A setting of graphs makes a graph of both, as with `map`: then there is nothing unlike.
    let (rows, said) = study(&scratch, TRAINED, "", "solve: { solver: exact }\n");
    assert!(rows.iter().all(|row| !row.contains("failed")) && !said.contains("rows of two kinds"), "{rows:?} {said}");
}

/// Where every kernel is a partition, pins say at most in which order they run.
#[test]
fn pins_that_cannot_be_are_refused_with_the_reason() {
    let scratch = Scratch::new("refusals_pins");
    let said = |pins: &str| {
        let graph = "{kind: graph, name: two, source: test, global_batch: 8, inputs: [{name: x, rows: 64, cols: 64}], outputs: [z], kernels: [\
             {name: a, op: gemm_weight, m: 64, k: 64, n: 64, rhs: x, output: y}, {name: b, op: gemm_weight, m: 64, k: 64, n: 64, rhs: y, output: z}]}";
        scratch.write("w.yaml", graph);
        let system = catalogue("h100-dgx-8.yaml");
        scratch.write(
            "s.yaml",
            &format!(
                "name: pins\nsource: test\nworkload: w.yaml\nsystem: {system}\naxes:\n  - {{ name: bw, field: system.memory.bandwidth, values: [1 TB/s] }}\n\
                 solve: {{ partitions: {pins} }}\n"
            ),
        );
        let _ = std::fs::remove_dir_all(scratch.0.join("out"));
        scratch.run(&["study", "run", "s.yaml", "--no-plots", "--out", "out"]);
        scratch.read("out/results.csv").lines().nth(1).unwrap_or_default().to_string()
    };
    let in_order = said("{ a: 0, b: 1 }");
    assert!(in_order.contains("optimal"), "{in_order}");
    for (pins, why) in [
        ("{ b: 0 }", "b is pinned to 0, but waits for 1 others: 1 is the first that it can have"),
        ("{ a: 1, b: 1 }", "a and b are both pinned to 1"),
        ("{ b: 7 }", "b is pinned to 7, and the last is 1"),
    ] {
        let row = said(pins);
        assert!(row.contains("infeasible") && row.contains(why), "{row}");
    }
}

#[test]
fn a_front_without_values_is_no_proof() {
    let scratch = Scratch::new("refusals_front");
    scratch.write("w.yaml", SERVED);
    let system = catalogue("h100-dgx-8.yaml");
    let text = |workload: &str| {
        format!(
            "name: flop\nsource: test\nworkload: {workload}\nsystem: {system}\naxes:\n  - {{ name: bw, field: system.memory.bandwidth, values: [1 TB/s, 2 TB/s] }}\n\
             search: {{ front: [max flop_per_s, min cost_usd] }}\n"
        )
    };
    scratch.write("s.yaml", &text("w.yaml"));
    let output = scratch.run(&["study", "run", "s.yaml", "--no-plots", "--out", "out"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("has a plan, and no flop_per_s"), "{said}");
    scratch.write("t.yaml", TRAINED);
    scratch.write("s.yaml", &text("t.yaml"));
    let told = scratch.succeed(&["study", "run", "s.yaml", "--no-plots", "--out", "trained"]);
    assert!(told.contains("proven"), "{told}");
    assert!(!scratch.read("trained/front.csv").lines().nth(1).unwrap_or_default().is_empty());
}

#[test]
fn a_second_memory_draws_power_in_every_account() {
    let scratch = Scratch::new("refusals_offload");
    scratch.write("w.yaml", TRAINED);
    for system in ["h100-dgx-8.yaml", "sn40l-8.yaml"] {
        scratch
            .write("with.yaml", &format!("from: {}\noffload: {}\n", catalogue(system), catalogue("memories/ddr.yaml")));
        for workload in ["resnet50-conv4", "w.yaml"] {
            let told =
                scratch.succeed(&["map", "--workload", workload, "--system", "with.yaml", "--plan-out", "p.yaml"]);
            assert!(told.contains("Optimal") || told.contains("Not proven"), "{told}");
            scratch.succeed(&["check", "p.yaml"]);
        }
    }
}

#[test]
fn words_without_a_peak_are_refused() {
    let scratch = Scratch::new("refusals_words");
    scratch.write("w.yaml", &TRAINED.replace("bf16", "fp32"));
    let system = catalogue("sn40l-8.yaml");
    let output = scratch.run(&["map", "--workload", "w.yaml", "--system", &system]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the chip states no peak for fp32"), "{said}");
}

/// A graph with its adjoint trains all of its weights: what is frozen is not mapped as if it were trained.
#[test]
fn frozen_weights_are_no_graph() {
    let scratch = Scratch::new("refusals_frozen");
    let mapped = |workload: &str, system: &str| {
        scratch.write("w.yaml", workload);
        scratch.run(&["map", "--workload", "w.yaml", "--system", &catalogue(system)])
    };
    for field in ["adapters: 16", "head_alone: true"] {
        let frozen = TRAINED.replace("types:", &format!("{field}, types:"));
        let output = mapped(&frozen, "sn40l-8.yaml");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains("training beside frozen weights"), "{said}");
        assert_eq!(mapped(&frozen, "h100-dgx-8.yaml").status.code(), Some(0));
    }
    assert_eq!(mapped(TRAINED, "sn40l-8.yaml").status.code(), Some(0));
}

#[test]
fn what_is_not_stated_is_not_summed() {
    let scratch = Scratch::new("refusals_money");
    scratch.write("w.yaml", TRAINED);
    scratch.write(
        "s.yaml",
        &format!(
            "from: {}\nchip: {{ from: {}, price: $0 }}\n",
            catalogue("h100-dgx-8.yaml"),
            catalogue("chips/h100.yaml")
        ),
    );
    let map = ["map", "--workload", "w.yaml", "--system", "s.yaml"];
    let told = scratch.succeed(&map);
    assert!(told.contains("not stated tokens/s/$") && told.contains("what an iteration costs is not known"), "{told}");
    let json: serde_json::Value =
        serde_json::from_str(&scratch.succeed(&[&map[..], &["--format", "json"]].concat())).unwrap();
    assert!(json["cost_usd"].is_null() && json["power_w"].is_f64(), "{json}");
    let output = scratch.run(&[&map[..], &["--objective", "cost"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("states no price"), "{said}");
}

#[cfg(unix)]
#[test]
fn files_without_an_end_are_refused() {
    let scratch = Scratch::new("refusals_device");
    for args in [
        &["validate", "--points", "/dev/zero"][..],
        &["plot", "/dev/zero"],
        &["place", "simulate", "/dev/zero", "--mapping", "/dev/zero"],
    ] {
        let output = scratch.run(args);
        assert!(!output.status.success() && !output.stderr.is_empty(), "{args:?}");
    }
    let trace =
        r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 5, "dur": -3}]}"#;
    scratch.write("t.json", trace);
    let output = scratch.run(&["trace", "report", "t.json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("expected a duration of at least 0, found -3 us"), "{said}");
}
