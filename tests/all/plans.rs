//! Plan files from outside: written, checked, edited, pinned.

use super::cli::{base, fail, json, map_small, succeed};
use super::scratch::Scratch;
use flowspace::plan::file::{self, PlanFile};
use flowspace::spec::Loader;
use serde_json::Value;
use std::path::Path;

/// A plan of the small graph, everything fused because the memory is slow; and where it is.
fn plan(scratch: &Scratch) -> String {
    let path = scratch.file("plan.yaml");
    let memory = format!("memory: {{ from: {}, bandwidth: 1 GB/s }}", base("memory.yaml"));
    let system = scratch.write("slow.yaml", &format!("from: {}\n{memory}\n", base("system.yaml")));
    succeed(&map_small(&base("workload.yaml"), &system, &["--tp", "1", "--pp", "1", "--plan-out", &path]));
    path
}

pub fn read_plan(path: &str) -> PlanFile {
    file::read(&Loader.load(Path::new(path), None).unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

/// The plan with `key: value` instead of what stood there (the writer's list items are indented, keys are not).
fn edited(text: &str, key: &str, value: &str) -> String {
    let start = text.find(&format!("\n{key}:")).unwrap_or_else(|| panic!("{key} is not in\n{text}")) + 1;
    let mut end = start;
    for (i, line) in text[start..].split_inclusive('\n').enumerate() {
        if i > 0 && !line.starts_with([' ', '-']) {
            break;
        }
        end += line.len();
    }
    format!("{}{key}: {value}\n{}", &text[..start], &text[end..])
}

/// The decimal numbers of a text.
fn numbers(text: &str) -> Vec<f64> {
    text.split(|c: char| !(c.is_ascii_digit() || ".e-".contains(c)))
        .filter(|w| w.contains('.'))
        .filter_map(|w| w.parse().ok())
        .collect()
}

#[test]
fn a_plan_is_checked_edited_and_recosted() {
    let scratch = Scratch::new("cli");
    let path = plan(&scratch);
    assert!(succeed(&["check", &path]).contains("the figures of the file follow from its decisions"));
    let text = scratch.read("plan.yaml");
    assert_eq!(read_plan(&path).decisions.partition, [0, 0, 0], "the small graph is one partition\n{text}");

    // Cutting the partition costs a store and a load of h and a: the figures no longer follow.
    let split = scratch.write("split.yaml", &edited(&text, "partitions", "[[up], [act, down]]"));
    let message = fail(&["check", &split]);
    let line = message.lines().find(|l| l.contains("result.iteration_s")).unwrap_or_else(|| panic!("{message}"));
    let (said, gives) = line.split_once("its decisions give").unwrap();
    let stated = read_plan(&path).result.unwrap().iteration_s.unwrap();
    assert!(numbers(said).contains(&stated), "{line}");
    assert!(numbers(gives)[0] > stated, "{line}");
    assert!(message.contains("--recost"), "{message}");

    let again = scratch.file("again.yaml");
    succeed(&["check", &split, "--recost", "--plan-out", &again]);
    assert!(succeed(&["check", &again]).contains("follow"));
    assert_eq!(read_plan(&again).result.unwrap().iteration_s.unwrap(), numbers(gives)[0]);
    assert_eq!(read_plan(&again).decisions.partition, [0, 1, 1]);
}

/// Every figure of a plan is compared: each is changed by a hundredth, and the check names it.
#[test]
fn every_figure_of_a_plan_is_compared() {
    let scratch = Scratch::new("cli");
    let path = plan(&scratch);
    let text = scratch.read("plan.yaml");
    let result = text.split_once("\nresult:").expect("a plan has its figures").1;
    let mut seen = 0;
    for line in result.lines() {
        let Some((key, value)) = line.trim().split_once(": ") else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let changed = text.replace(line, &format!("  {key}: {}", value * 1.01));
        let message = fail(&["check", &scratch.write("changed.yaml", &changed)]);
        assert!(message.contains(&format!("result.{key}: ")), "{key}: {message}");
        seen += 1;
    }
    assert!(seen >= 7, "{seen} figures in\n{result}");
    assert!(Path::new(&path).exists());
}

/// A group of chips that cannot share a kernel is refused by the search and by the check of a pinned plan, in the same words: under DFModel's rules
/// two heads on eight chips, and a product of which no axis has eight parts. In our model both can be had.
#[test]
fn search_and_check_refuse_the_same_groups() {
    let scratch = Scratch::new("cli");
    let heads = "outer: 2, m: 64, k: 16, n: 64, lhs: y, rhs: x";
    let small = "m: 4, k: 4, n: 64, lhs: y, rhs: x";
    for (sizes, x, y, by, said) in [
        (heads, 32, (128, 16), "outer", "2 heads (a) are not divisible by TP = 8"),
        (small, 4, (4, 4), "m", "kernel a has no axis of 8 parts"),
    ] {
        let workload = scratch.write(
            "w.yaml",
            &format!(
                "kind: graph\nname: w\nsource: 'assumed: a test'\nglobal_batch: 8\ninputs:\n- {{ name: x, rows: {x}, cols: 64 }}\n\
                 - {{ name: y, rows: {}, cols: {} }}\noutputs: [t]\nkernels:\n- {{ name: a, op: gemm, {sizes}, output: t }}\n",
                y.0, y.1
            ),
        );
        succeed(&map_small(&workload, &base("system.yaml"), &["--tp", "8"]));
        let system = format!("from: {}\nmodel: {{ preset: dfmodel }}\n", base("system.yaml"));
        let system = scratch.write("system.yaml", &system);
        let path = scratch.file("plan.yaml");
        succeed(&map_small(&workload, &system, &["--tp", "1", "--plan-out", &path]));
        let text = edited(&scratch.read("plan.yaml"), "network_use", "[{ tp: 8 }]");
        let pinned = scratch.write("pinned.yaml", &edited(&text, "sharding", &format!("{{ a: {by} }}")));
        let refused = fail(&["check", &pinned]);
        assert!(refused.contains(said), "{refused}");
        let refused = fail(&map_small(&workload, &system, &["--tp", "8"]));
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn what_a_plan_pins_is_kept() {
    let scratch = Scratch::new("cli");
    let text = {
        plan(&scratch);
        scratch.read("plan.yaml")
    };
    let free = json(&["map", "--plan", &scratch.file("plan.yaml"), "--dp", "8"]);

    let split = edited(&text, "partitions", "[[up], [act, down]]");
    let pinned = edited(&split, "pin", "{ partitions: [act], network_use: true }");
    let answer = json(&["map", "--plan", &scratch.write("partition.yaml", &pinned)]);
    let of = |name: &str| {
        let holds = |p: &Value| p["kernels"].as_array().unwrap().contains(&Value::from(name));
        answer["partitions"].as_array().unwrap().iter().position(holds).unwrap()
    };
    assert_eq!(of("act"), 1, "{answer:#}");
    assert!(answer["objective"].as_f64() > free["objective"].as_f64(), "{answer:#}");

    // All eight chips in one group, up split by k, which no one would choose.
    let sharded = edited(&edited(&text, "network_use", "[{ tp: 8 }]"), "sharding", "{ up: k, act: n, down: m }");
    let pinned = edited(&sharded, "pin", "{ sharding: [up], network_use: true }");
    let answer = json(&["map", "--plan", &scratch.write("sharding.yaml", &pinned)]);
    assert_eq!(answer["sharding"]["up"], "k", "{answer:#}");
    assert_eq!(answer["degrees"]["tp"], 8);
    let all = edited(&sharded, "pin", "{ sharding: [all], network_use: true }");
    let answer = json(&["map", "--plan", &scratch.write("all.yaml", &all)]);
    assert_eq!(answer["sharding"], serde_json::json!({ "up": "k", "act": "n", "down": "m" }));

    let tiles = edited(&edited(&text, "tile_count", "64"), "pin", "{ tile_count: true }");
    assert_eq!(json(&["map", "--plan", &scratch.write("tiles.yaml", &tiles)])["tile_count"], 64);
}
