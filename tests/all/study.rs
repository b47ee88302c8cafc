//! `flowspace study run` and `flowspace plot` from outside: exit codes, files, interruption.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowspace-cli-study-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("workload.yaml"), WORKLOAD).unwrap();
        fs::write(path.join("system.yaml"), SYSTEM).unwrap();
        Self(path)
    }
    fn study(&self, axes: &str) {
        let text = format!("name: small\nworkload: workload.yaml\nsystem: system.yaml\naxes:\n{axes}");
        fs::write(self.0.join("study.yaml"), text).unwrap();
    }
    fn flowspace(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_flowspace")).current_dir(&self.0).args(args).output().unwrap()
    }
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const WORKLOAD: &str = "
kind: dfmodel_layer
name: tiny
source: made up
hidden: 256
heads: 4
head_dim: 64
seq: 64
layers: 4
pass: forward
global_batch: 8
";
const SYSTEM: &str = "
name: four chips
source: made up
chip:
  {name: chip, source: assumed here, style: dataflow, cores: 16, lanes: 8, stages: 4, frequency: 1 GHz, sram: 4 MB,
   efficiency: 0.9, price: $100, power: 10 W}
memory: {name: mem, source: assumed here, bandwidth: 100 GB/s, capacity: 1 GB, price: $1/(GB/s), power: 0.1 W/(GB/s)}
network:
  topology: ring
  dimensions: [{size: 4, link: {name: wire, source: assumed here, bandwidth: 10 GB/s, price: $1/(GB/s), power: 0.1 W/(GB/s)}}]
";

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_study_from_file_to_figures() {
    let folder = Folder::new("figures");
    folder.study(
        "  - {name: cores, field: system.chip.cores, values: [8, 16]}\n  - {name: layers, field: workload.layers, values: [4, 8]}\n",
    );
    let run = folder.flowspace(&["study", "run", "study.yaml"]);
    assert_eq!(code(&run), Some(0), "{}", stderr(&run));
    let summary = String::from_utf8(run.stdout).unwrap();
    assert!(
        summary.starts_with("4 points: 4 optimal, 0 stopped at a limit, 0 infeasible, 0 failed\n4 solved in "),
        "{summary}"
    );
    for text in ["most samples per second:\n", "16 / 4 (point 2)", "and million dollars", "and megawatt"] {
        assert!(summary.contains(text), "{summary}");
    }
    let figures = ["pareto-cost", "pareto-power", "heatmap-utilization", "bars", "bars-partitions", "roofline"];
    let file = |figure: &str| Path::new("outputs/small").join(format!("{figure}.svg")).display().to_string();
    let before: Vec<String> = figures.iter().map(|figure| folder.read(&file(figure))).collect();
    figures.iter().for_each(|figure| fs::remove_file(folder.0.join(file(figure))).unwrap());
    let plot = folder.flowspace(&["plot", "outputs/small/results.csv"]);
    assert_eq!(code(&plot), Some(0), "{}", stderr(&plot));
    let after: Vec<String> = figures.iter().map(|figure| folder.read(&file(figure))).collect();
    assert!(before == after, "the table alone gives the same figures");

    let pair = ["plot", "outputs/small/results.csv", "--x", "cost_usd", "--y", "samples_per_s", "--group", "cores"];
    for kind in ["scatter", "line", "pareto"] {
        let plot = folder.flowspace(&[&pair[..], &["--kind", kind, "--out", "pair", "--log-y"]].concat());
        assert_eq!(code(&plot), Some(0), "{}", stderr(&plot));
        assert!(folder.read("pair.svg").starts_with("<svg"));
    }
    let results = "outputs/small/results.csv";
    for kind in [
        &["pareto", "--x", "cost_usd", "--y", "samples_per_s", "--z", "power_w"][..],
        &["scatter", "--x", "cost_usd", "--y", "samples_per_s", "--z", "power_w", "--legend", "right"],
        &["heatmap", "--x", "cores", "--y", "layers", "--z", "utilization", "--order", "name"],
        &["line", "--x", "cores", "--y", "samples_per_s", "--font", "9", "--width", "88 mm", "--y-limits", "0:"],
        &["bars", "--title", "Bars"],
        &["roofline", "--legend", "bottom"],
        &["tornado", "--y", "samples_per_s"],
        &["parallel"],
        &["matrix", "--columns", "cost_usd,samples_per_s"],
        &["hypervolume", "--x", "cost_usd", "--y", "samples_per_s"],
    ] {
        let plot = folder.flowspace(&[&["plot", results, "--out", "one", "--kind"], kind].concat());
        assert_eq!(code(&plot), Some(0), "{kind:?}: {}", stderr(&plot));
        for end in ["svg", "png", "pdf"] {
            let file = folder.0.join(format!("one.{end}"));
            assert!(fs::metadata(&file).unwrap().len() > 500, "{kind:?}.{end}");
            fs::remove_file(file).unwrap();
        }
    }
    // The line says what it chose over.
    let line = ["plot", results, "--kind", "line", "--x", "cores", "--y", "samples_per_s", "--out", "line"];
    assert_eq!(code(&folder.flowspace(&line)), Some(0));
    assert!(folder.read("line.svg").contains("Of layers: the best by samples_per_s"), "{}", folder.read("line.svg"));
    // Two results over each other: a front each.
    fs::create_dir(folder.0.join("again")).unwrap();
    fs::write(folder.0.join("again/results.csv"), folder.read(results)).unwrap();
    let both = folder.flowspace(&["plot", results, "again/results.csv", "--out", "both"]);
    assert_eq!(code(&both), Some(0), "{}", stderr(&both));
    let svg = folder.read("both/pareto-cost-overlaid.svg");
    assert!(svg.contains("One front for each source") && svg.contains("again"), "{svg}");

    let names = folder.flowspace(&["plot", "outputs/small/results.csv", "--x", "status", "--y", "layer_s"]);
    assert_eq!(code(&names), Some(0), "{}", stderr(&names));
    let unknown = folder.flowspace(&["plot", "outputs/small/results.csv", "--x", "cost_us", "--y", "layer_s"]);
    assert_eq!(code(&unknown), Some(1));
    assert!(
        stderr(&unknown).contains("did you mean \"cost_usd\"") && stderr(&unknown).contains("axes are cores, layers"),
        "{}",
        stderr(&unknown)
    );
    let text = folder.flowspace(&["plot", "outputs/small/results.csv", "--x", "cost_usd", "--y", "status"]);
    assert_eq!(code(&text), Some(1));
    assert!(stderr(&text).contains("results.csv:2: column \"status\" is to be drawn as a number, found \"optimal\""));
    let timings = folder.flowspace(&["plot", "outputs/small/timings.csv"]);
    assert!(code(&timings) == Some(1) && stderr(&timings).contains("not the results of a study"));
}

#[test]
fn exit_codes_tell_points_without_a_plan_from_bad_input() {
    let folder = Folder::new("codes");
    folder.study("  - {name: dram, field: system.memory.capacity, values: [1 kB, 1 GB]}\n");
    let some = folder.flowspace(&["study", "run", "study.yaml", "--out", "o"]);
    assert_eq!(code(&some), Some(2), "{}", stderr(&some));
    assert!(folder.0.join("o/pareto-cost.svg").exists());

    folder.study("  - {name: dram, field: system.memory.capacity, values: [1 kB]}\n");
    let none = folder.flowspace(&["study", "run", "study.yaml", "--out", "none"]);
    assert_eq!(code(&none), Some(2), "{}", stderr(&none));
    assert!(stderr(&none).contains("note: no figures: no point has a plan"), "{}", stderr(&none));
    // Why is said there, each reason once with its points; where some have a plan the column says it.
    folder.study("  - {name: dram, field: system.memory.capacity, values: [1 kB, 1000 B, 2 kB]}\n");
    let told = stderr(&folder.flowspace(&["study", "run", "study.yaml", "--out", "reasons"]));
    assert!(told.contains("error: none of the 3 points has a plan\nerror: 2 points: infeasible: "), "{told}");
    assert!(told.contains("\nerror: 1 point: infeasible: "), "{told}");
    assert!(!stderr(&some).contains("none of the"), "{}", stderr(&some));
    let drawn = |entry: fs::DirEntry| entry.path().extension().is_some_and(|end| end == "svg" || end == "png");
    assert!(!fs::read_dir(folder.0.join("none")).unwrap().any(|entry| drawn(entry.unwrap())));

    folder.study("  - {name: dram, field: system.memory.capasity, values: [1 kB]}\n");
    let wrong = folder.flowspace(&["study", "run", "study.yaml", "--out", "wrong"]);
    assert_eq!(code(&wrong), Some(1));
    assert!(stderr(&wrong).contains("study.yaml:5: axes.[0].field: unknown field"), "{}", stderr(&wrong));
    assert!(!folder.0.join("wrong").exists());

    folder.study("  - {name: dram, field: system.memory.capacity, values: [1 GB]}\n");
    let blocked = folder.flowspace(&["study", "run", "study.yaml", "--out", "study.yaml/o"]);
    assert_eq!(code(&blocked), Some(1));
    assert!(stderr(&blocked).contains("cannot write study.yaml/o"), "{}", stderr(&blocked));

    let many = |name: &str, field: &str| {
        let values: Vec<String> = (1..=216).map(|i| i.to_string()).collect();
        format!("  - {{name: {name}, field: {field}, values: [{}]}}\n", values.join(", "))
    };
    folder.study(&(many("a", "workload.layers") + &many("b", "workload.heads") + &many("c", "solve.seed")));
    let begun = Instant::now();
    let large = folder.flowspace(&["study", "run", "study.yaml", "--out", "large"]);
    assert_eq!(code(&large), Some(1));
    assert!(stderr(&large).contains("the grid has 10077696 points"), "{}", stderr(&large));
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_goes_on_to_the_same_bytes() {
    let folder = Folder::new("interrupt");
    // So many that the signal comes before the last one on a busy machine, too.
    let values: Vec<String> = (1..=400).map(|i| i.to_string()).collect();
    folder.study(&format!("  - {{name: cores, field: system.chip.cores, values: [{}]}}\n", values.join(", ")));
    let arguments = ["study", "run", "study.yaml", "--no-plots", "--out"];
    let whole = folder.flowspace(&[&arguments[..], &["whole", "--jobs", "2"]].concat());
    assert_eq!(code(&whole), Some(0), "{}", stderr(&whole));

    let mut child = Command::new(env!("CARGO_BIN_EXE_flowspace"))
        .current_dir(&folder.0)
        .args(arguments)
        .args(["part", "--jobs", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = folder.0.join("part/journal.jsonl");
    let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    while lines() < 5 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    // The shell has a `kill` where the system has none.
    let sent = Command::new("sh").arg("-c").arg(format!("kill -INT {}", child.id())).status().unwrap();
    assert!(sent.success());
    let stopped = child.wait_with_output().unwrap();
    assert_eq!(code(&stopped), Some(130), "{}", stderr(&stopped));
    assert!(stderr(&stopped).contains("of 400 points finished; run the same command again to go on"));
    let known = lines();
    assert!((5..400).contains(&known), "{known}");
    let on = folder.flowspace(&[&arguments[..], &["part", "--jobs", "2"]].concat());
    assert_eq!(code(&on), Some(0), "{}", stderr(&on));
    let summary = String::from_utf8(on.stdout).unwrap();
    assert!(summary.contains(&format!("{} solved in ", 400 - known)), "{summary}");
    assert_eq!(folder.read("part/results.csv"), folder.read("whole/results.csv"));
}

/// Decisions of executions as axes, serving within a limit and beyond it, and what serving has no decision for.
#[test]
fn language_models_are_trained_and_served_in_one_study() {
    let folder = Folder::new("language");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = |path: &str| root.join(path).display().to_string();
    let study = format!(
        "name: language
workload: {serving}
system: {system}
axes:
  - name: task
    points:
      train: {{ workload: {training}, workload.global_batch: 16 }}
      serve: {{ workload: {serving} }}
  - name: case
    points:
      free: {{ solve.execution.tp: 8 }}
      full: {{ solve.execution.recompute: full }}
      quick: {{ solve.serving.max_tpot: 1 us }}
",
        serving = shipped("workloads/language/llama3-8b-serving.yaml"),
        training = shipped("workloads/language/llama3-8b.yaml"),
        system = shipped("systems/h100-dgx-8.yaml"),
    );
    fs::write(folder.0.join("study.yaml"), study).unwrap();
    let output = folder.flowspace(&["study", "run", "study.yaml", "--out", "out"]);
    assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    let text = folder.read("out/results.csv");
    let mut rows = text.lines();
    let header: Vec<&str> = rows.next().unwrap().split(',').collect();
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(',').collect()).collect();
    let get = |row: usize, name: &str| rows[row][header.iter().position(|h| *h == name).unwrap()];
    let number = |row: usize, name: &str| get(row, name).parse::<f64>().unwrap_or_else(|_| panic!("{row} {name}"));
    // Columns of text before the first reason are without commas, so positions hold in rows that have a plan.
    for (row, status) in ["optimal", "optimal", "optimal", "optimal", "failed", "infeasible"].iter().enumerate() {
        assert_eq!(get(row, "status"), *status, "row {row}");
    }
    assert_eq!((get(0, "tp"), get(1, "recompute"), get(3, "tp")), ("8", "full", "8"));
    // The system names no software: twice the error of published training runs, which the chip was part of; serving on it was not measured.
    assert_eq!((number(0, "error_band_pct"), number(3, "error_band_pct")), (16.6, 59.0));
    // By hand: 64 answers of 1,024 tokens in the time they take, on eight chips.
    let seconds = number(3, "iteration_s");
    let rate = 64.0 * 1024.0 / seconds;
    assert!((number(3, "generated_per_s") / rate - 1.0).abs() < 1e-9);
    assert!((number(3, "generated_per_s_per_chip") / (rate / 8.0) - 1.0).abs() < 1e-9);
    assert!(((number(3, "last_ttft_s") + 1023.0 * number(3, "tpot_s")) / seconds - 1.0).abs() < 1e-9);
    assert_eq!(number(3, "served_batch"), 64.0);
    assert!(get(0, "ttft_s").is_empty() && get(3, "schedule").is_empty());
    assert!(text.contains("serving has the decisions tp, pp, dp and ep alone"), "{text}");
    assert!(text.contains("none of") && text.contains("keeps the limit of the time for each further token"), "{text}");
}

/// A folder is one study's: another one does not write over its results.
#[test]
fn two_studies_do_not_share_a_folder() {
    let folder = Folder::new("shared");
    folder.study("  - { name: cores, field: system.chip.cores, values: [8, 16] }\n");
    let run = ["study", "run", "study.yaml", "--no-plots", "--out", "o"];
    assert_eq!(code(&folder.flowspace(&run)), Some(0));
    let before = ["o/results.csv", "o/journal.jsonl", "o/timings.csv"].map(|file| folder.read(file));
    let other = folder.read("study.yaml").replace("name: small", "name: other");
    fs::write(folder.0.join("study.yaml"), other).unwrap();
    let refused = folder.flowspace(&run);
    assert_eq!(code(&refused), Some(1));
    assert_eq!(stderr(&refused), "error: o holds the results of the study \"small\"; name another folder with --out\n");
    assert!(["o/results.csv", "o/journal.jsonl", "o/timings.csv"].map(|file| folder.read(file)) == before);
    // The same study, changed, goes on in its folder.
    folder.study("  - { name: cores, field: system.chip.cores, values: [8, 16, 32] }\n");
    let on = folder.flowspace(&run);
    let summary = String::from_utf8_lossy(&on.stdout).into_owned();
    assert!(code(&on) == Some(0) && summary.contains("1 solved in"), "{summary}{}", stderr(&on));
}

/// More jobs than points, or than a machine bears, are as many as are of use; none are none.
#[test]
fn any_number_of_jobs_gives_the_same_rows() {
    let folder = Folder::new("jobs");
    folder.study("  - { name: cores, field: system.chip.cores, values: [8, 16, 32] }\n");
    let with = |jobs: &str| {
        let run = folder.flowspace(&["study", "run", "study.yaml", "--no-plots", "--out", jobs, "--jobs", jobs]);
        (code(&run), stderr(&run))
    };
    for jobs in ["1", "256", "257", "4294967296", "18446744073709551615"] {
        let (code, told) = with(jobs);
        assert_eq!(code, Some(0), "{jobs}: {told}");
        assert_eq!(folder.read(&format!("{jobs}/results.csv")), folder.read("1/results.csv"), "{jobs}");
    }
    let [least, most] = ["least 1", "most 18446744073709551615"];
    for (jobs, at) in [("0", least), ("-1", least), ("1.5", least), ("18446744073709551616", most)] {
        let (code, told) = with(jobs);
        assert!(code == Some(1) && told.contains(&format!("expected a whole number of at {at}")), "{jobs}: {told}");
    }
}

/// Points that a limit stopped are hollow in a front, and the figure says how many.
#[test]
fn unproven_points_are_marked_in_a_front() {
    let folder = Folder::new("open");
    folder.study("  - { name: cores, field: system.chip.cores, values: [8, 16, 32] }\n");
    assert_eq!(code(&folder.flowspace(&["study", "run", "study.yaml", "--out", "o"])), Some(0));
    let said = |file: &str| folder.read(file).contains("not proven the best of their search");
    assert!(!said("o/pareto-cost.svg"));
    let open = folder.read("o/results.csv").replacen(",optimal,", ",node_limit,", 1);
    fs::write(folder.0.join("o/results.csv"), open).unwrap();
    assert_eq!(code(&folder.flowspace(&["plot", "o/results.csv"])), Some(0));
    assert!(folder.read("o/pareto-cost.svg").contains("Hollow: 1 of 3 are not proven the best of their search"));
    let pair =
        ["plot", "o/results.csv", "--x", "cost_usd", "--y", "samples_per_s", "--kind", "pareto", "--out", "pair"];
    assert_eq!(code(&folder.flowspace(&pair)), Some(0));
    assert!(said("pair.svg"));
}

/// Rows that a figure cannot show are counted on standard error, not left out without a word.
#[test]
fn what_a_plot_leaves_out_is_told() {
    let folder = Folder::new("left-out");
    fs::write(folder.0.join("p.csv"), "a,b\n1,2\n2,3\n1e300,4\n5,\n").unwrap();
    let plot = folder.flowspace(&["plot", "p.csv", "--x", "a", "--y", "b"]);
    assert_eq!(code(&plot), Some(0));
    let told = "note: not drawn: 2 of 4 rows, which lack a number between -1e150 and 1e150 in one of the columns\n";
    assert_eq!(stderr(&plot), told);
}

/// The font has no Chinese: its characters are written as numbers, in both files alike.
#[test]
fn characters_that_the_font_lacks_are_written_as_numbers() {
    let folder = Folder::new("glyphs");
    fs::write(folder.0.join("p.csv"), "a,b,name\n1,2,\u{4e2d}\u{6587} \u{e9}\n2,3,plain\n").unwrap();
    let plot = folder.flowspace(&["plot", "p.csv", "--x", "a", "--y", "b", "--group", "name"]);
    assert_eq!(code(&plot), Some(0), "{}", stderr(&plot));
    let svg = folder.read("b-over-a.svg");
    assert!(svg.contains("\\u4e2d\\u6587 \u{e9}") && !svg.contains('\u{4e2d}'), "{svg}");
}

/// A study that cannot work says so before anything is run, and the last good files stay.
#[test]
fn a_study_of_which_no_point_stands_is_not_run() {
    let folder = Folder::new("none");
    folder.study("  - { name: cores, field: system.chip.cores, values: [8, 16] }\n");
    let good = folder.flowspace(&["study", "run", "study.yaml"]);
    assert_eq!(code(&good), Some(0), "{}", stderr(&good));
    let files = ["outputs/small/results.csv", "outputs/small/pareto-cost.svg"];
    let before = files.map(|file| folder.read(file));
    // Each point is wrong in its own way: no problem is common to all.
    folder.study("  - { name: what, points: { a: { system.chip.cores: none }, b: { workload.layers: 0 } } }\n");
    let bad = folder.flowspace(&["study", "run", "study.yaml"]);
    assert_eq!(code(&bad), Some(1));
    assert!(stderr(&bad).contains("none of the 2 points can be solved"), "{}", stderr(&bad));
    assert!(files.map(|file| folder.read(file)) == before);
    // With one sound point among them it is run, and the others are rows.
    folder.study("  - { name: what, points: { a: { system.chip.cores: none }, b: { workload.layers: 2 } } }\n");
    assert_eq!(code(&folder.flowspace(&["study", "run", "study.yaml"])), Some(2));
}

/// Rows of a table by point, each a map of its columns.
fn rows(folder: &Folder, name: &str) -> Vec<std::collections::BTreeMap<String, String>> {
    let text = folder.read(name);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let row = |record: csv::StringRecord| {
        header.iter().zip(record.iter()).map(|(a, b)| (a.to_string(), b.to_string())).collect()
    };
    reader.records().map(|record| row(record.unwrap())).collect()
}

const FRONT_AXES: &str = "  - { name: wires, field: 'system.network.dimensions.*.link.bandwidth', values: [40 GB/s, 10 GB/s, 5 GB/s, 20 GB/s] }
  - { name: dram, field: system.memory.bandwidth, values: [1 GB/s, 2 GB/s, 4 GB/s, 8 GB/s, 16 GB/s] }
  - { name: memory, field: system.memory.capacity, values: [1 kB, 1 GB] }
  - { name: cores, field: system.chip.cores, values: [8, 16, 4] }
";

/// The front that is searched is that of all points, with fewer of them solved; a second run solves none; what is proven is written down.
#[test]
fn a_searched_front_is_that_of_all_points() {
    let folder = Folder::new("front");
    folder.study(FRONT_AXES);
    assert_eq!(code(&folder.flowspace(&["study", "run", "study.yaml", "--no-plots", "--out", "all"])), Some(2));
    let value = |row: &std::collections::BTreeMap<String, String>| {
        Some((row["samples_per_s"].parse::<f64>().ok()?, row["cost_usd"].parse::<f64>().ok()?))
    };
    let all: Vec<(f64, f64)> = rows(&folder, "all/results.csv").iter().filter_map(value).collect();
    assert_eq!(all.len(), 60);
    for (within, text) in [(0.0, "0 %"), (0.1, "10 %")] {
        let study = folder.read("study.yaml");
        let search = format!("search: {{ front: [max samples_per_s, min cost_usd], within: {text} }}\n");
        fs::write(folder.0.join("search.yaml"), study + &search).unwrap();
        let out = format!("front-{within}");
        let run = ["study", "run", "search.yaml", "--no-plots", "--out", &out];
        let first = folder.flowspace(&run);
        assert_eq!(code(&first), Some(0), "{}", stderr(&first));
        let front: Vec<(f64, f64)> = rows(&folder, &format!("{out}/front.csv")).iter().filter_map(value).collect();
        let reaches =
            |f: &(f64, f64), p: &(f64, f64)| f.0 * (1.0 + within + 1e-9) >= p.0 && f.1 <= p.1 * (1.0 + within + 1e-9);
        assert!(all.iter().all(|p| front.iter().any(|f| reaches(f, p))), "{front:?}");
        let beats = |a: &(f64, f64), b: &(f64, f64)| a != b && a.0 >= b.0 && a.1 <= b.1;
        if within == 0.0 {
            let mut expected: Vec<_> = all.iter().filter(|b| !all.iter().any(|a| beats(a, b))).copied().collect();
            let mut found = front.clone();
            for list in [&mut expected, &mut found] {
                list.sort_by(|a, b| a.partial_cmp(b).unwrap());
                list.dedup();
            }
            assert_eq!(found, expected);
        }
        let proof: serde_json::Value = serde_json::from_str(&folder.read(&format!("{out}/front.json"))).unwrap();
        let points = |what: &str| proof[what]["points"].as_u64().unwrap();
        let solved = rows(&folder, &format!("{out}/results.csv")).len() as u64;
        assert_eq!((points("solved"), points("open"), proof["points"].as_u64()), (solved, 0, Some(120)));
        assert!(solved < 60 && (within > 0.0 || front.len() > 2), "{proof}");
        // What was found is known from then on, and comes out byte for byte.
        let files = ["front.csv", "results.csv", "front.json"].map(|name| folder.read(&format!("{out}/{name}")));
        let again = folder.flowspace(&run);
        assert!(String::from_utf8_lossy(&again.stdout).contains("of them 0 now"), "{}", stderr(&again));
        assert_eq!(files, ["front.csv", "results.csv", "front.json"].map(|name| folder.read(&format!("{out}/{name}"))));
    }
}

/// What lies between the values of a continuous axis counts: no point of a grid of others is better than the front by more than was proven. Intervals that
/// are too wide for the tolerance are said to be, with what is proven all the same.
#[test]
fn the_front_of_continuous_axes_is_that_of_other_points() {
    let folder = Folder::new("continuous");
    let axes = |wires: &str, dram: &str, memory: &str| {
        format!(
            "  - {{ name: wires, field: 'system.network.dimensions.*.link.bandwidth', values: [5..40 GB/s {wires}] }}
  - {{ name: dram, field: system.memory.bandwidth, values: [1..16 GB/s {dram}] }}
  - {{ name: memory, field: system.memory.capacity, values: [1..1000000 kB {memory}] }}
  - {{ name: cores, field: system.chip.cores, values: [8, 16, 4] }}
"
        )
    };
    folder.study(&axes("log 14", "log 18", "log 5"));
    assert_eq!(code(&folder.flowspace(&["study", "run", "study.yaml", "--no-plots", "--out", "all"])), Some(2));
    let value = |row: &std::collections::BTreeMap<String, String>| {
        Some((row["samples_per_s"].parse::<f64>().ok()?, row["cost_usd"].parse::<f64>().ok()?))
    };
    let all: Vec<(f64, f64)> = rows(&folder, "all/results.csv").iter().filter_map(value).collect();
    assert!(all.len() > 1000, "{}", all.len());
    for (intervals, asked, wide) in [("continuous", 0.05, false), ("continuous 3", 0.01, true)] {
        folder.study(&axes(intervals, intervals, intervals));
        let search = format!("search: {{ front: [max samples_per_s, min cost_usd], within: {} % }}\n", 100.0 * asked);
        fs::write(folder.0.join("search.yaml"), folder.read("study.yaml") + &search).unwrap();
        let run = ["study", "run", "search.yaml", "--no-plots", "--out", &format!("front-{wide}")];
        let output = folder.flowspace(&run);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(code(&output), Some(if wide { 2 } else { 0 }), "{said}{}", stderr(&output));
        assert!(
            said.contains("proven: no point, and nothing between the values of wires, dram, memory, is better"),
            "{said}"
        );
        assert_eq!(said.contains("are too wide for the tolerance"), wide, "{said}");
        let proof: serde_json::Value = serde_json::from_str(&folder.read(&format!("front-{wide}/front.json"))).unwrap();
        let within = proof["within"].as_f64().unwrap();
        assert!(if wide { within > asked } else { within == asked }, "{proof}");
        assert_eq!(
            (proof["too_wide_axes"].as_array().unwrap().is_empty(), &proof["open"]["points"]),
            (!wide, &0.into())
        );
        let front: Vec<(f64, f64)> =
            rows(&folder, &format!("front-{wide}/front.csv")).iter().filter_map(value).collect();
        let reaches =
            |f: &(f64, f64), p: &(f64, f64)| f.0 * (1.0 + within + 1e-9) >= p.0 && f.1 <= p.1 * (1.0 + within + 1e-9);
        let missed: Vec<_> = all.iter().filter(|p| !front.iter().any(|f| reaches(f, p))).collect();
        assert!(missed.is_empty(), "{missed:?} {front:?}");
        // What is proven is no more than it takes: some point is better than the front.
        assert!(all.iter().any(|p| front.iter().all(|f| f.0 < p.0 || f.1 > p.1)), "{front:?}");
    }
}

/// An axis that does not act as it is said to is found out; what has no bound is refused with what has.
#[test]
fn a_searched_front_refuses_what_it_cannot_prove() {
    let folder = Folder::new("front-bad");
    let axis = "  - { name: cores, order: descending, field: system.chip.cores, values: [4, 8, 16, 32] }\n";
    let search = "search: { front: [max samples_per_s, min cost_usd] }\n";
    folder.study(axis);
    let study = folder.read("study.yaml");
    let run = |text: String| {
        fs::write(folder.0.join("study.yaml"), text).unwrap();
        let output = folder.flowspace(&["study", "run", "study.yaml", "--no-plots", "--out", "o"]);
        (code(&output), stderr(&output))
    };
    let (code, message) = run(study.clone() + search);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("one of cores does not act so; say order: unordered there"), "{message}");
    // Chips without a price are compared with none, and that is said; so is that nothing keeps a constraint.
    let axes = "  - { name: price, field: system.chip.price, values: [$0, $100] }\n";
    for (constraint, told) in [
        ("samples_per_s >= 1", "proven: no other point that states its price and power is better than the front"),
        ("cost_usd <= $1", "proven: no point that states its price and power has a plan that keeps the constraints"),
    ] {
        let search = format!("search: {{ front: [max samples_per_s, min cost_usd], constraints: [{constraint}] }}\n");
        folder.study(axes);
        let text = folder.read("study.yaml") + &search;
        fs::write(folder.0.join("study.yaml"), text).unwrap();
        let output = folder.flowspace(&["study", "run", "study.yaml", "--no-plots", "--out", "p"]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains(told), "{printed}");
        assert!(printed.contains("1 (50.00 %) not compared: their systems state no price or power"), "{printed}");
    }
    for (search, told) in [
        ("search: { front: [max utilization, min cost_usd] }", "utilization has no bound over many systems"),
        ("search: { front: [min samples_per_s, min cost_usd] }", "better when higher; write max samples_per_s"),
        ("search: { front: [max samples_per_s] }", "expected two to four objectives, found 1"),
        ("search: { front: [samples_per_s, min cost_usd] }", "expected an objective, as max samples_per_s"),
        ("search: { front: [min power_w, min cost_usd] }", "no objective depends on a mapping"),
        ("search: { front: [max samples_per_s, min cost_usd], within: 120 % }", "expected a percentage"),
        (
            "search: { front: [max samples_per_s, min cost_usd], constraints: [power_w < 2 MW] }",
            "expected a constraint",
        ),
        ("search: { front: [max samples_per_s, min cost_usd] }\nsolve: { objective: energy }", "solve.objective"),
    ] {
        let (code, message) = run(format!("{study}{search}\n"));
        assert_eq!(code, Some(1), "{message}");
        assert!(message.contains(told), "{search}: {message}");
    }
    // What has no bound is refused from an axis or a rule as well: what fits and what is fast would not be a question of more.
    for (axes, rest, told) in [
        (
            "  - { name: a, field: system.memory.bandwidth, values: [1 GB/s, 2 GB/s] }\n  - { name: b, points: { x: { solve.serving: { max_tpot: 20 ms } } } }\n",
            "",
            "study.yaml:6: solve.serving: with limits of time more of a chip may serve less",
        ),
        ("  - { name: b, points: { x: { solve.budget: { cost: $36M } } } }\n", "", "solve.budget: scaled to a budget"),
        (
            "  - { name: b, field: solve.objective, values: [time, energy] }\n",
            "",
            "solve.objective: a search of the front bounds",
        ),
        (
            "  - { name: a, field: system.memory.bandwidth, values: [1 GB/s, 2 GB/s] }\n",
            "rules: [{ when: { a: 1 GB/s }, set: { solve.blind_to: [network] } }]\n",
            "solve.blind_to: the bound of a search that is blind",
        ),
    ] {
        folder.study(axes);
        let (code, message) =
            run(folder.read("study.yaml") + rest + "search: { front: [max samples_per_s, min cost_usd] }\n");
        assert_eq!(code, Some(1), "{axes}: {message}");
        assert!(message.contains(told), "{axes}{rest}: {message}");
    }
    // Points that cannot be solved are compared with none, and are said to be.
    folder.study("  - { name: dram, field: system.memory.bandwidth, values: [1..16 GB/s continuous] }\n  - { name: b, points: { x: {}, y: { solve.tp: 7 } } }\n");
    let text = folder.read("study.yaml") + "search: { front: [max samples_per_s, min cost_usd], within: 5 % }\n";
    fs::write(folder.0.join("study.yaml"), text).unwrap();
    let output = folder.flowspace(&["study", "run", "study.yaml", "--no-plots", "--out", "f"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{printed}{}", stderr(&output));
    assert!(
        printed.contains("proven: no point, and nothing between the values of dram, that could be solved is better"),
        "{printed}"
    );
    assert!(printed.contains("not compared: the ends of their ranges could not be solved"), "{printed}");
    assert!(rows(&folder, "f/results.csv").iter().filter(|row| row["status"] == "failed").count() == 2, "{printed}");
    let dram = "  - { name: dram, field: system.memory.bandwidth, values: [1..16 GB/s continuous] }\n";
    let front = "search: { front: [max samples_per_s, min cost_usd], within: 1 % }\n";
    for (axes, rest, told) in [
        (
            dram,
            "",
            "study.yaml:5: axes.[0].values: a continuous range is for search: or sample:; a grid has values, as 1..8 TB/s log 12",
        ),
        (
            dram,
            "search: { front: [max samples_per_s, min cost_usd] }\n",
            "no front of a continuous axis is exact: give search.within",
        ),
        (
            "  - { name: a, fields: { system.memory.bandwidth: [1..16 GB/s continuous] } }\n",
            front,
            "a continuous range is that of one field",
        ),
        (
            "  - { name: a, field: system.memory.bandwidth, values: [1..16 GB/s continuous, 20 GB/s] }\n",
            front,
            "a continuous range is all that its axis has, found 1 values beside it",
        ),
        (
            "  - { name: a, field: system.memory.idle_share, values: [0.1..0.4 continuous 4] }\n",
            front,
            "bounded by them along an ordered axis alone: say order: ascending",
        ),
        (
            "  - { name: a, field: system.memory.bandwidth, values: [1..16 GB continuous] }\n",
            front,
            "axes.[0].values: system.memory.bandwidth: \"GB\" is not a unit of a bandwidth",
        ),
        (
            "  - { name: a, field: workload.layers, order: ascending, values: [1..16 continuous] }\n",
            front,
            "workload.layers takes whole numbers alone",
        ),
        (
            dram,
            "search: { front: [max samples_per_s, min cost_usd], within: 1 % }\nrules: [{ when: { dram: 1 GB/s }, set: { system.memory.capacity: 1 GB } }]\n",
            "axis \"dram\" is continuous",
        ),
    ] {
        folder.study(axes);
        let (code, message) = run(folder.read("study.yaml") + rest);
        assert_eq!(code, Some(1), "{message}");
        assert!(message.contains(told), "{axes}{rest}: {message}");
    }
}

/// A finished study is read by other commands: a point with its plan, rows by a condition, two tables against each other; and told of before it is run.
#[test]
fn finished_studies_are_asked() {
    let folder = Folder::new("asked");
    folder.study("  - { name: dram, field: system.memory.bandwidth, values: [50 GB/s, 100 GB/s] }\n  - { name: memory, points: { none: { system.memory.capacity: 1 kB }, ample: { system.memory.capacity: 1 GB } } }\n");
    let dry = folder.flowspace(&["study", "run", "study.yaml", "--out", "o", "--dry-run", "--jobs", "2"]);
    let said = String::from_utf8_lossy(&dry.stdout).into_owned();
    for part in [
        "small: 4 points = dram 2 x memory 2",
        "4 different, 0 of them solved",
        "4 points solved now",
        "4 points to solve, 2 at a time",
        "nothing was written",
    ] {
        assert!(said.contains(part), "{part}: {said}{}", stderr(&dry));
    }
    assert!(code(&dry) == Some(0) && !folder.0.join("o").exists());
    // Half of the points have no memory.
    assert_eq!(code(&folder.flowspace(&["study", "run", "study.yaml", "--out", "o", "--jobs", "2"])), Some(2));
    let said = folder.flowspace(&["study", "run", "study.yaml", "--out", "o", "--dry-run"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("nothing is left to solve"), "{said:?}");

    // Columns: what no row fills is left out, the axis has its numbers, and both can be asked for otherwise.
    let header = |name: &str| folder.read(name).lines().next().unwrap().to_string();
    let table = folder.read("o/results.csv");
    let first = header("o/results.csv");
    assert!(
        first.contains(",axis_dram_bytes_per_s,study,")
            && !first.contains("ttft_s")
            && table.contains(",50000000000,small,"),
        "{first}"
    );
    assert_eq!(code(&folder.flowspace(&["study", "run", "study.yaml", "--out", "o", "--columns", "all"])), Some(2));
    assert!(header("o/results.csv").contains(",ttft_s,"));
    assert_eq!(
        code(&folder.flowspace(&["study", "run", "study.yaml", "--out", "few", "--columns", "samples_per_s,tp"])),
        Some(2)
    );
    assert_eq!(header("few/results.csv"), "point,dram,memory,status,tp,samples_per_s,axis_dram_bytes_per_s,study,key");
    let wrong = folder.flowspace(&["study", "run", "study.yaml", "--columns", "samples_per_z"]);
    assert!(stderr(&wrong).contains("did you mean \"samples_per_s\""), "{}", stderr(&wrong));
    assert_eq!(code(&folder.flowspace(&["study", "run", "study.yaml", "--out", "o"])), Some(2));
    assert_eq!(folder.read("o/results.csv"), table);

    // Conditions.
    let chosen =
        folder.flowspace(&["study", "where", "o", "status == optimal and dram >= 0.1 TB/s", "--format", "csv"]);
    let rows = String::from_utf8_lossy(&chosen.stdout).into_owned();
    assert!(rows.lines().count() == 2 && rows.contains("\n3,100 GB/s,ample,"), "{rows}{}", stderr(&chosen));
    let json = folder.flowspace(&["study", "where", "o", "short_of == 'dram'", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json.as_array().unwrap().len(), &json[0]["short_of"]), (2, &serde_json::json!("dram")));
    let wrong = folder.flowspace(&["study", "where", "o", "status = optimal and power_w < 2 GB"]);
    assert!(
        code(&wrong) == Some(1) && stderr(&wrong).contains("character 30: a power and a size cannot be compared"),
        "{}",
        stderr(&wrong)
    );

    // Two tables.
    let same = folder.flowspace(&["study", "compare", "o", "few", "--columns", "samples_per_s"]);
    assert!(String::from_utf8_lossy(&same.stdout).contains("no column differs"), "{same:?}");
    let text = fs::read_to_string(folder.0.join("system.yaml")).unwrap();
    fs::write(folder.0.join("system.yaml"), text.replace("price: $100, power", "price: $200, power")).unwrap();
    assert_eq!(code(&folder.flowspace(&["study", "run", "study.yaml", "--out", "fast", "--no-plots"])), Some(2));
    let changed = folder.flowspace(&["study", "compare", "o", "fast", "--format", "json"]);
    let changed: serde_json::Value = serde_json::from_slice(&changed.stdout).unwrap();
    let price = changed["changes"].as_array().unwrap().iter().find(|c| c["column"] == "cost_usd").unwrap();
    assert!(changed["both"] == 4 && price["largest"].as_f64().unwrap() > 0.0, "{changed}");

    // A point: refused where an input is not what it was, shown where it is again.
    let point = |more: &[&str]| folder.flowspace(&[&["study", "show", "o", "--point", "3"], more].concat());
    let refused = point(&[]);
    assert!(code(&refused) == Some(1) && stderr(&refused).contains("system.yaml was changed"), "{}", stderr(&refused));
    fs::write(folder.0.join("system.yaml"), text).unwrap();
    let shown = String::from_utf8_lossy(&point(&[]).stdout).into_owned();
    assert!(shown.contains("dram: 100 GB/s") && shown.contains("samples/s"), "{shown}");
    fs::write(folder.0.join("plan.yaml"), point(&["--plan"]).stdout).unwrap();
    assert_eq!(code(&folder.flowspace(&["check", "plan.yaml"])), Some(0));
    assert!(String::from_utf8_lossy(&point(&["--explain"]).stdout).contains("bound by"));
    assert!(String::from_utf8_lossy(&point(&["--resolved"]).stdout).contains("100 GB/s"));
    let timeline: serde_json::Value = serde_json::from_slice(&point(&["--timeline"]).stdout).unwrap();
    assert!(timeline["traceEvents"].as_array().unwrap().len() > 6);
    let none = folder.flowspace(&["study", "show", "o", "--point", "0", "--plan"]);
    assert!(code(&none) == Some(1) && stderr(&none).contains("the point has no plan"), "{}", stderr(&none));
    let beyond = folder.flowspace(&["study", "show", "o", "--point", "4"]);
    assert!(stderr(&beyond).contains("its 4 points are numbered from 0 to 3"), "{}", stderr(&beyond));

    // The page, and the fronts as tables.
    let page = folder.read("o/report.html");
    assert!(page.contains("Content-Security-Policy") && page.contains("axis_dram_bytes_per_s"));
    let markdown = folder.flowspace(&["study", "report", "o", "--markdown"]);
    assert!(String::from_utf8_lossy(&markdown.stdout).contains("| dram | memory |"), "{markdown:?}");
    let latex = folder.flowspace(&["study", "report", "o", "--latex", "--all", "--columns", "dram,samples_per_s"]);
    let latex = String::from_utf8_lossy(&latex.stdout).into_owned();
    assert!(
        latex.contains("dram & samples\\_per\\_s") && latex.lines().filter(|l| l.ends_with("\\\\")).count() == 5,
        "{latex}"
    );
    assert_eq!(code(&folder.flowspace(&["study", "report", "o", "--columns", "tp"])), Some(1));
    let manifest: serde_json::Value = serde_json::from_str(&folder.read("o/manifest.json")).unwrap();
    assert!(
        manifest["inputs"].as_array().unwrap().iter().any(|i| i["file"].as_str().unwrap().ends_with("system.yaml")),
        "{manifest}"
    );
}

#[test]
fn what_was_altered_or_lost_is_said() {
    let folder = Folder::new("altered");
    folder.study("  - {name: cores, field: system.chip.cores, values: [8, 16]}\n");
    let run = ["study", "run", "study.yaml", "--out", "out", "--no-plots"];
    let whole = folder.flowspace(&run);
    assert!(code(&whole) == Some(0) && !stderr(&whole).contains("note:"), "{}", stderr(&whole));
    let results = folder.read("out/results.csv");
    let reads: [&[&str]; 4] = [
        &["study", "where", "out", "status == optimal"],
        &["study", "compare", "out", "out"],
        &["study", "report", "out", "--markdown"],
        &["plot", "out/results.csv", "--x", "cost_usd", "--y", "samples_per_s", "--out", "figure"],
    ];
    for read in reads {
        let output = folder.flowspace(read);
        assert!(!stderr(&output).contains("altered"), "{read:?}: {}", stderr(&output));
    }
    fs::write(folder.0.join("out/results.csv"), results.replace(",optimal,", ",feasible,")).unwrap();
    for read in reads {
        let output = folder.flowspace(read);
        let said = stderr(&output);
        assert!(said.contains("results.csv was altered since 2"), "{read:?}: {said}");
    }
    // A line of the journal that is damaged, and a journal that is gone.
    let journal = folder.0.join("out/journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, text.replacen("body", "bodi", 1)).unwrap();
    let output = folder.flowspace(&run);
    assert!(stderr(&output).contains("journal.jsonl: 1 lines are damaged"), "{}", stderr(&output));
    assert!(String::from_utf8(output.stdout).unwrap().contains("\n1 solved in "));
    fs::write(&journal, "").unwrap();
    let output = folder.flowspace(&run);
    assert!(stderr(&output).contains("had no points, though results.csv lies beside it"), "{}", stderr(&output));
    assert_eq!(folder.read("out/results.csv"), results);
}

#[test]
fn orders_of_hpl_do_not_compete() {
    let folder = Folder::new("hpl");
    fs::write(folder.0.join("workload.yaml"), "kind: hpl\nname: HPL\nsource: made up\nn: 4096\nblock: 512\n").unwrap();
    folder.study("  - {name: n, field: workload.n, values: [2048, 4_096]}\n");
    let run = folder.flowspace(&["study", "run", "study.yaml", "--out", "out", "--no-plots"]);
    assert_eq!(code(&run), Some(0), "{}", stderr(&run));
    let results = folder.read("out/results.csv");
    assert!(results.contains(",HPL n=2048,") && results.contains(",HPL n=4096,"), "{results}");
    // Solved again it is the same point.
    let shown = folder.flowspace(&["study", "show", "out", "--point", "1"]);
    assert!(code(&shown) == Some(0) && !stderr(&shown).contains("error"), "{}", stderr(&shown));
    // As it stands in the file it keeps its name.
    folder.study("  - {name: cores, field: system.chip.cores, values: [8, 16]}\n");
    folder.flowspace(&["study", "run", "study.yaml", "--out", "plain", "--no-plots"]);
    assert!(folder.read("plain/results.csv").contains(",HPL,"));
}
