//! `--write-model`: the files are read back by their formats' definitions, and solved.

use super::cli::{base, eight_heads, json, map_small, succeed};
use super::plans::read_plan;
use super::scratch::Scratch;
use flowspace::mapping::amounts::{self, Choice};
use flowspace::mapping::degrees::Degrees;
use flowspace::mapping::solver::{Limits, Milp, solve};
use std::collections::HashMap;
use std::process::{Command, Stdio};

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
        let unit = amounts::build(&read.workload, &read.system, choice, f64::INFINITY).unwrap().lower_bound();
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
