//! The models that `--write-model` writes, as other programs read them: HiGHS by its own readers, and the programs of CBC, GLPK and
//! SCIP where they are installed. Each finds the objective that the answer reports, which the relaxation does not.

use super::scratch::Scratch;
use flowspace_highs::{Ended, Model, Setting};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// A graph of a few kernels, in which what is fused matters.
const GRAPH: &str = "kind: graph
name: five
source: 'assumed: a test'
repeat: 3
global_batch: 8
micro_batch: 2
inputs: [{ name: x, rows: 96, cols: 64 }]
kernels:
  - { name: a, op: gemm_weight, m: 128, k: 96, n: 64, rhs: x, output: t }
  - { name: b, op: elementwise, m: 128, n: 64, inputs: [t], output: u }
  - { name: c, op: gemm_weight, m: 160, k: 128, n: 64, rhs: u, output: v }
  - { name: d, op: norm, m: 128, n: 64, inputs: [t], output: y }
  - { name: e, op: gemm_weight, m: 64, k: 160, n: 64, rhs: v, output: z }
";

/// One chip that fuses (with so much SRAM) or runs kernel by kernel.
fn system(style: &str, sram: &str) -> String {
    format!(
        "name: {style}
source: 'assumed: a test'
chip:
  name: chip
  style: {style}
  cores: 16
  lanes: 8
  stages: 2
  frequency: 1 GHz
  sram: {sram}
  efficiency: 0.9
  launch_overhead: 1 us
  price: $1
  power: 1 W
  source: 'assumed: a test'
memory: {{ name: m, bandwidth: 20 GB/s, price: $1/(GB/s), power: 1 W/(GB/s), source: 'assumed: a test' }}
network: {{ topology: single-chip }}
"
    )
}

/// The written model, and the objective that the answer says it has.
fn written(scratch: &Scratch, style: &str, sram: &str, more: &[&str], ending: &str) -> (String, f64) {
    let workload = scratch.write("workload.yaml", GRAPH);
    let chip = scratch.write("system.yaml", &system(style, sram));
    let to = scratch.file(&format!("model.{ending}"));
    let point = ["map", "--workload", &workload, "--system", &chip, "--format", "json", "--write-model", &to];
    let output = Command::new(env!("CARGO_BIN_EXE_flowspace")).args(point).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The first line says what one unit of the objective is.
    let text = scratch.read(&format!("model.{ending}"));
    let title = text.lines().next().unwrap();
    let unit = title.split("one unit of the objective is ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    (to, answer["layer_s"].as_f64().unwrap() / unit.parse::<f64>().unwrap())
}

/// What HiGHS makes of a file, whole or relaxed.
fn by_highs(file: &str, relaxed: bool) -> f64 {
    let mut model = Model::read(Path::new(file)).unwrap();
    model.set(c"solve_relaxation", Setting::Switch(relaxed)).unwrap();
    assert_eq!(model.run().unwrap(), Ended::Optimal, "{file}");
    model.figure(c"objective_function_value").unwrap()
}

/// What a program makes of a file: the number behind a word of what it prints, or of what it writes to a file; `None` where it is not
/// installed.
fn by_program(program: &str, args: &[&str], word: &str, written: Option<&str>) -> Option<f64> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = written.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or(printed);
    let behind = text.lines().filter_map(|line| line.split_once(word)).next_back();
    let number = behind.and_then(|(_, rest)| rest.split_whitespace().find_map(|w| w.parse().ok()));
    Some(number.unwrap_or_else(|| panic!("{program} {args:?}\n{text}")))
}

fn close(one: f64, other: f64, what: &str) {
    assert!((one / other - 1.0).abs() < 1e-5, "{what}: {one} and {other}");
}

#[test]
fn other_solvers_find_the_reported_objective() {
    let scratch = Scratch::new("other-solvers");
    let (mut loose, mut asked) = (0, 0);
    let limit = ["--max-partitions", "4"];
    let points: [(&str, &str, &[&str]); 4] = [
        ("dataflow", "40 KiB", &[]),
        ("dataflow", "72 KiB", &limit),
        ("dataflow", "1 MiB", &[]),
        ("kernel_by_kernel", "1 MiB", &[]),
    ];
    for (style, sram, more) in points {
        for ending in ["mps", "lp"] {
            let (file, reported) = written(&scratch, style, sram, more, ending);
            let what = format!("{style} {sram} {ending}");
            close(by_highs(&file, false), reported, &format!("HiGHS, {what}"));
            loose += u32::from(by_highs(&file, true) < reported * (1.0 - 1e-3));
            let glpk = if ending == "mps" { "--freemps" } else { "--lp" };
            let solution = scratch.file("glpk.txt");
            let answers = [
                by_program("cbc", &[&file, "solve", "quit"], "Objective value:", None),
                by_program("glpsol", &[glpk, &file, "--output", &solution], "Objective:  cost = ", Some(&solution)),
                by_program("scip", &["-c", &format!("read {file} optimize quit")], "Primal Bound       :", None),
            ];
            for (solver, answer) in ["CBC", "GLPK", "SCIP"].iter().zip(answers) {
                let Some(answer) = answer else { continue };
                asked += 1;
                close(answer, reported, &format!("{solver}, {what}"));
            }
        }
    }
    // Where the relaxation were as good, a reader that overlooks what must be whole would not be noticed.
    assert!(loose >= 4, "{loose}");
    println!("{asked} answers of programs that are installed");
}
