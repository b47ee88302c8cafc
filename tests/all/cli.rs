//! The program from outside: what it prints, writes and reads back.

use super::scratch::Scratch;
use flowspace::mapping::degrees::Degrees;
use flowspace::mapping::instance::{self, Choice};
use flowspace::mapping::solver::{Limits, Milp, Solver, solve};
use flowspace::plan::file::{self, PlanFile};
use flowspace::spec::{Loader, Node};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A small file that the error cases use too.
fn base(name: &str) -> String {
    root().join("tests/errors/base").join(name).display().to_string()
}

fn flowspace(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowspace"));
    command.args(args).env_remove("RUST_BACKTRACE");
    command
}

fn run(args: &[&str]) -> Output {
    flowspace(args).output().unwrap()
}

/// Standard output of a run that must succeed.
#[track_caller]
fn succeed(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a run that must fail with exit code 1.
#[track_caller]
fn fail(args: &[&str]) -> String {
    let output = run(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}\n{text}");
    assert!(!text.contains("panicked") && !text.contains("internal error"), "{text}");
    text
}

#[track_caller]
fn json(args: &[&str]) -> Value {
    serde_json::from_str(&succeed(&[args, &["--format", "json"]].concat())).unwrap()
}

fn map_small<'a>(workload: &'a str, system: &'a str, more: &[&'a str]) -> Vec<&'a str> {
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
fn eight_heads(scratch: &Scratch) -> String {
    scratch.write("eight.yaml", &format!("from: {}\nheads: 8\nhead_dim: 48\n", base("transformer.yaml")))
}

/// A plan of the small graph, everything fused because the memory is slow; and where it is.
fn plan(scratch: &Scratch) -> String {
    let path = scratch.file("plan.yaml");
    let memory = format!("memory: {{ from: {}, bandwidth: 1 GB/s }}", base("memory.yaml"));
    let system = scratch.write("slow.yaml", &format!("from: {}\n{memory}\n", base("system.yaml")));
    succeed(&map_small(&base("workload.yaml"), &system, &["--tp", "1", "--pp", "1", "--plan-out", &path]));
    path
}

fn read_plan(path: &str) -> PlanFile {
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

/// A free-format MPS file, read by the format's definition.
fn read_mps(text: &str) -> Milp {
    let mut milp = Milp::default();
    let (mut section, mut integer) = (String::new(), false);
    let (mut rows, mut columns): (HashMap<String, usize>, HashMap<String, usize>) = (HashMap::new(), HashMap::new());
    let (mut equal, mut right, mut terms) = (Vec::new(), Vec::new(), Vec::<Vec<(usize, f64)>>::new());
    let mut names = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('*') && !l.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with(' ') {
            section = words[0].to_string();
            continue;
        }
        match (section.as_str(), words.as_slice()) {
            ("ROWS", ["N", name]) => assert_eq!(*name, "cost"),
            ("ROWS", [kind, name]) => {
                assert!(["E", "G"].contains(kind));
                assert!(rows.insert((*name).into(), names.len()).is_none(), "row {name} twice");
                names.push((*name).to_string());
                equal.push(*kind == "E");
                right.push(0.0);
                terms.push(Vec::new());
            }
            ("COLUMNS", [_, "'MARKER'", word]) => integer = *word == "'INTORG'",
            ("COLUMNS", [column, row, value]) => {
                let value: f64 = value.parse().unwrap();
                let c = *columns.entry((*column).into()).or_insert_with(|| {
                    let c = milp.continuous((*column).into(), f64::INFINITY, 0.0);
                    milp.columns[c].integer = integer;
                    c
                });
                if *row == "cost" { milp.columns[c].cost = value } else { terms[rows[*row]].push((c, value)) }
            }
            ("RHS", [_, "cost", value]) => milp.constant = -value.parse::<f64>().unwrap(),
            ("RHS", [_, row, value]) => right[rows[*row]] = value.parse().unwrap(),
            ("BOUNDS", ["UP", _, column, value]) => milp.columns[columns[*column]].upper = value.parse().unwrap(),
            ("BOUNDS", ["LO", _, column, value]) => milp.columns[columns[*column]].lower = value.parse().unwrap(),
            ("BOUNDS", ["PL", _, column]) => milp.columns[columns[*column]].upper = f64::INFINITY,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(section, "ENDATA");
    for (r, name) in names.into_iter().enumerate() {
        let (terms, right) = (std::mem::take(&mut terms[r]), right[r]);
        if equal[r] { milp.equal(name, terms, right) } else { milp.at_least(name, terms, right) }
    }
    milp
}

/// A CPLEX LP file as far as the writer uses the format: one term or bound a line.
fn read_lp(text: &str) -> Milp {
    let mut milp = Milp::default();
    let mut columns: HashMap<String, usize> = HashMap::new();
    let mut section = "";
    let mut row: (String, Vec<(usize, f64)>) = (String::new(), Vec::new());
    for line in text.lines().filter(|l| !l.starts_with('\\')) {
        if !line.starts_with(' ') {
            section = line;
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut column = |name: &str, milp: &mut Milp| {
            *columns.entry(name.into()).or_insert_with(|| milp.continuous(name.into(), f64::INFINITY, 0.0))
        };
        match (section, words.as_slice()) {
            ("Minimize" | "Subject To", [label]) => row = (label.trim_end_matches(':').into(), Vec::new()),
            ("Minimize", [value, name]) => {
                let c = column(name, &mut milp);
                milp.columns[c].cost = value.parse().unwrap();
            }
            ("Subject To", [">=", right]) => {
                milp.at_least(row.0.clone(), std::mem::take(&mut row.1), right.parse().unwrap());
            }
            ("Subject To", ["=", right]) => {
                milp.equal(row.0.clone(), std::mem::take(&mut row.1), right.parse().unwrap())
            }
            ("Subject To", [value, name]) => row.1.push((column(name, &mut milp), value.parse().unwrap())),
            ("Bounds", [low, "<=", name, "<=", high]) => {
                let c = column(name, &mut milp);
                milp.columns[c].lower = low.parse().unwrap();
                milp.columns[c].upper = high.parse().unwrap();
            }
            ("Bounds", [name, "=", value]) => {
                let c = column(name, &mut milp);
                milp.columns[c].lower = value.parse().unwrap();
                milp.columns[c].upper = value.parse().unwrap();
            }
            ("Bounds", [name, ">=", low]) => {
                let c = column(name, &mut milp);
                milp.columns[c].lower = low.parse().unwrap();
            }
            ("General", [name]) => {
                let c = column(name, &mut milp);
                milp.columns[c].integer = true;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(section, "End");
    milp
}

/// The written models, read back and solved, have the plan's seconds of a layer as their optimum (the objective is in
/// units of the closed-form bound).
#[test]
fn written_models_are_the_problem() {
    let scratch = Scratch::new("cli");
    let (w, s) = (eight_heads(&scratch), base("system.yaml"));
    let plan = scratch.file("plan.yaml");
    let mut optima = Vec::new();
    for name in ["model.mps", "model.lp"] {
        let file = scratch.file(name);
        let answer = json(&map_small(&w, &s, &["--tp", "8", "--plan-out", &plan, "--write-model", &file]));
        let text = scratch.read(name);
        let milp = if name.ends_with("mps") { read_mps(&text) } else { read_lp(&text) };
        assert!(milp.columns.iter().any(|c| c.integer) && milp.rows.iter().any(|r| r.name.starts_with("F5_")));
        let solved = solve(&milp, &Limits::default(), None).unwrap();
        let read = read_plan(&plan);
        let d = &read.decisions;
        let degrees = Degrees::new(&read.system, d.uses.clone());
        let choice = Choice {
            degrees: &degrees,
            sharding: &d.sharding,
            tiles: d.tiles,
            weights_on_chip: d.weights_on_chip,
            longest: 1,
        };
        let unit = instance::build(&read.workload, &read.system, choice, f64::INFINITY).unwrap().lower_bound();
        let layer_s = answer["layer_s"].as_f64().unwrap();
        let ratio = solved.record.objective * unit / layer_s;
        assert!((ratio - 1.0).abs() < 1e-6, "{name}: {} x {unit} for {layer_s}", solved.record.objective);
        optima.push(solved.record.objective);
    }
    assert!((optima[0] - optima[1]).abs() < 1e-6, "{optima:?}");
}

/// CBC's own program reads the models, where it is installed.
#[test]
fn cbc_reads_the_written_models() {
    if Command::new("cbc").arg("-quit").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("skipped: no cbc on the path");
        return;
    }
    let scratch = Scratch::new("cli");
    let (w, s) = (base("workload.yaml"), base("system.yaml"));
    for name in ["model.mps", "model.lp"] {
        let file = scratch.file(name);
        succeed(&map_small(&w, &s, &["--write-model", &file]));
        let output = Command::new("cbc").args([&file, "solve", "quit"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Optimal solution found"), "{name}\n{text}");
    }
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

/// Faults of a value under a schema, for the keywords that the schemas use.
fn faults(schema: &Value, value: &Value, document: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let mut note = |text: String| out.push(text);
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "examples" | "default" => {}
            "$ref" => {
                let target = rule.as_str().unwrap().strip_prefix('#').unwrap();
                faults(document.pointer(target).expect("a reference leads somewhere"), value, document)
                    .into_iter()
                    .for_each(&mut note);
            }
            "anyOf" | "oneOf" => {
                let branches: Vec<Vec<String>> =
                    rule.as_array().unwrap().iter().map(|branch| faults(branch, value, document)).collect();
                let fitting = branches.iter().filter(|b| b.is_empty()).count();
                if fitting == 0 || (keyword == "oneOf" && fitting > 1) {
                    note(format!("{fitting} of {} fit {value}: {branches:?}", branches.len()));
                }
            }
            "type" => {
                let fits = match rule.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                if !fits {
                    note(format!("{value} is no {rule}"));
                }
            }
            "const" => {
                if rule != value {
                    note(format!("{value} is not {rule}"));
                }
            }
            "properties" | "items" | "required" | "additionalProperties" => {}
            "minimum" | "exclusiveMinimum" | "maximum" => {
                let (Some(x), Some(limit)) = (value.as_f64(), rule.as_f64()) else { continue };
                let fits = match keyword.as_str() {
                    "minimum" => x >= limit,
                    "maximum" => x <= limit,
                    _ => x > limit,
                };
                if !fits {
                    note(format!("{value} against {keyword} {rule}"));
                }
            }
            "minLength" => {
                if value.as_str().is_some_and(|s| (s.len() as u64) < rule.as_u64().unwrap()) {
                    note(format!("{value} is too short"));
                }
            }
            "minItems" => {
                if value.as_array().is_some_and(|items| (items.len() as u64) < rule.as_u64().unwrap()) {
                    note(format!("{value} has too few items"));
                }
            }
            other => panic!("the schema uses {other}, which this test does not know"),
        }
    }
    if let Some(object) = value.as_object() {
        let known = schema.get("properties").and_then(Value::as_object);
        for (key, child) in object {
            let rule = known.and_then(|k| k.get(key)).or_else(|| schema.get("additionalProperties"));
            match rule {
                Some(Value::Bool(false)) => out.push(format!("unknown key {key}")),
                Some(rule) if rule.is_object() => {
                    out.extend(faults(rule, child, document).into_iter().map(|f| format!("{key}: {f}")));
                }
                _ => {}
            }
        }
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !object.contains_key(key.as_str().unwrap()) {
                out.push(format!("{key} is missing"));
            }
        }
    }
    if let (Some(items), Some(rule)) = (value.as_array(), schema.get("items")) {
        out.extend(items.iter().flat_map(|item| faults(rule, item, document)));
    }
    out
}

/// Shipped files of each kind fit the schema of that kind, and a slip in each does not.
#[test]
fn schemas_describe_the_shipped_files() {
    let mut checked = 0;
    for (kind, folder) in [
        ("workload", "workloads"),
        ("system", "systems"),
        ("chip", "systems/chips"),
        ("memory", "systems/memories"),
        ("link", "systems/links"),
        ("switch", "systems/switches"),
        ("cores", "systems/cores"),
        ("study", "studies"),
        ("plan", "tests/golden/dfmodel"),
    ] {
        let schema: Value = serde_json::from_str(&succeed(&["schema", kind])).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(root().join(folder))
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.is_file())
            .collect();
        paths.sort();
        assert!(!paths.is_empty());
        for path in paths {
            let node = Node::parse(&path.display().to_string(), &std::fs::read_to_string(&path).unwrap()).unwrap();
            let mut value = node.to_json();
            let found = faults(&schema, &value, &schema);
            assert!(found.is_empty(), "{}: {found:#?}", path.display());
            value["colour"] = "blue".into();
            assert!(!faults(&schema, &value, &schema).is_empty(), "{}: an unknown key passes", path.display());
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked} files");
    assert!(succeed(&["schema", "columns"]).contains("iteration_s"));
}

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
