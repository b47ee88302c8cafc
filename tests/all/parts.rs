//! `flowspace study plan`, `work`, `submit`, `missing`, `status` and `merge` from outside.

use crate::scratch::Scratch;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const WORKLOAD: &str = "
kind: transformer
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

/// 4 x 3 x 3 points, in three parts.
fn planned(name: &str) -> Scratch {
    let folder = Scratch::new(name);
    folder.write("workload.yaml", WORKLOAD);
    folder.write("system.yaml", SYSTEM);
    study(&folder, "[4, 8, 12]");
    succeed(&folder, &["study", "run", "study.yaml", "--out", "whole", "--no-plots"]);
    succeed(&folder, &["study", "plan", "study.yaml", "--out", "run", "--parts", "3"]);
    folder
}

fn study(folder: &Scratch, layers: &str) {
    let axes = format!(
        "  - {{name: cores, field: system.chip.cores, values: [4, 8, 12, 16]}}\n  - {{name: layers, field: workload.layers, values: {layers}}}\n  - {{name: heads, field: workload.heads, values: [2, 4, 8]}}\n"
    );
    folder.write("study.yaml", &format!("name: small\nworkload: workload.yaml\nsystem: system.yaml\naxes:\n{axes}"));
}

fn succeed(folder: &Scratch, args: &[&str]) -> String {
    let output = folder.run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn worker(folder: &Scratch, part: u64) -> Child {
    Command::new(env!("CARGO_BIN_EXE_flowspace"))
        .args(["study", "work", "run", "--jobs", "1", "--part", &part.to_string()])
        .current_dir(&folder.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn racing_workers_killed_at_any_moment_give_the_bytes_of_a_run() {
    let folder = planned("parts-killed");
    let clock = Instant::now();
    let mut kills = 0;
    for part in 0..3 {
        let table = folder.0.join(format!("run/parts/{part:05}.csv"));
        // Two at a time, killed after ever longer times: the first attempts hardly begin, later ones end in the middle.
        for round in 1.. {
            assert!(clock.elapsed() < Duration::from_secs(300), "part {part} does not end");
            let mut pair = [worker(&folder, part), worker(&folder, part)];
            for (child, longer) in pair.iter_mut().zip([0, 7]) {
                std::thread::sleep(Duration::from_millis(5 * round + longer));
                kills += u32::from(child.try_wait().unwrap().is_none());
                child.kill().unwrap();
                child.wait().unwrap();
            }
            if table.exists() {
                break;
            }
            // A kill in the middle of a write.
            let torn = folder.0.join(format!("run/journal/{part:05}.torn-{round}"));
            fs::write(torn, "{\"sum\":\"0011\",\"body\":{\"key\":\"00").unwrap();
        }
    }
    assert!(kills >= 6, "{kills}");
    succeed(&folder, &["study", "merge", "run"]);
    assert_eq!(folder.read("run/results.csv"), folder.read("whole/results.csv"));
    assert_eq!(folder.read("run/timings.csv").lines().count(), 37);
}

#[test]
fn what_is_missing_is_named_and_nothing_is_merged() {
    let folder = planned("parts-missing");
    assert_eq!(succeed(&folder, &["study", "missing", "run"]), "0-2\n");
    succeed(&folder, &["study", "work", "run", "--part", "1"]);
    assert_eq!(succeed(&folder, &["study", "missing", "run"]), "0,2\n");
    let merge = folder.run(&["study", "merge", "run"]);
    assert_eq!(merge.status.code(), Some(4));
    assert!(stderr(&merge).starts_with("error: 2 of 3 parts are not finished: 0,2; "), "{}", stderr(&merge));
    assert!(!folder.0.join("run/results.csv").exists());
    assert_eq!(folder.run(&["study", "status", "run"]).status.code(), Some(4));
    let none = folder.run(&["study", "work", "run", "--part", "3"]);
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(stderr(&none), "error: there is no part 3: the study has 3 now, 0 to 2\n");
    let partial = folder.run(&["study", "merge", "run", "--partial"]);
    assert_eq!(partial.status.code(), Some(4));
    let rows = folder.read("run/partial.csv").lines().count() - 1;
    assert_eq!(rows, folder.read("run/parts/00001.csv").lines().count() - 1);
    assert!(!folder.0.join("run/results.csv").exists());
    for part in ["0", "2"] {
        succeed(&folder, &["study", "work", "run", "--part", part]);
    }
    succeed(&folder, &["study", "merge", "run"]);
    assert_eq!(folder.read("run/results.csv"), folder.read("whole/results.csv"));
    // A row lost afterwards is found, and the results of before stay.
    let part = folder.read("run/parts/00001.csv");
    folder.write("run/parts/00001.csv", &part.lines().take(3).map(|line| format!("{line}\n")).collect::<String>());
    let merge = folder.run(&["study", "merge", "run"]);
    assert_eq!(merge.status.code(), Some(1));
    assert!(stderr(&merge).contains("00001.csv: the row of point "), "{}", stderr(&merge));
    assert_eq!(folder.read("run/results.csv"), folder.read("whole/results.csv"));
}

#[test]
fn another_version_or_study_is_refused() {
    let folder = planned("parts-version");
    let manifest = folder.read("run/plan.json");
    let version = format!("\"version\": {:?}", env!("CARGO_PKG_VERSION"));
    folder.write("run/plan.json", &manifest.replace(&version, "\"version\": \"0.0.1\""));
    for command in [&["study", "work", "run", "--part", "0"][..], &["study", "merge", "run"]] {
        let output = folder.run(command);
        assert_eq!(output.status.code(), Some(3));
        assert!(stderr(&output).contains("the version of the program was 0.0.1"), "{}", stderr(&output));
    }
    folder.write("run/plan.json", &manifest);
    folder.write("system.yaml", &SYSTEM.replace("100 GB/s", "120 GB/s"));
    let output = folder.run(&["study", "work", "run", "--part", "0"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("system.yaml was "), "{}", stderr(&output));
    folder.write("system.yaml", SYSTEM);
    study(&folder, "[4, 8, 16]");
    let output = folder.run(&["study", "work", "run", "--part", "0"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("study.yaml was "), "{}", stderr(&output));
    // What is the same in the wider study is taken over.
    succeed(&folder, &["study", "plan", "study.yaml", "--out", "wider", "--parts", "1", "--reuse", "whole"]);
    let worked = succeed(&folder, &["study", "work", "wider", "--part", "0"]);
    assert_eq!(worked, "part 0: 36 of 36 points finished, 24 of them known from before, 12 solved now\n");
    succeed(&folder, &["study", "merge", "wider"]);
    succeed(&folder, &["study", "run", "study.yaml", "--out", "again", "--no-plots"]);
    assert_eq!(folder.read("wider/results.csv"), folder.read("again/results.csv"));
}

/// Cores and bandwidth of memory against the price, searched.
const SEARCH: &str = "
name: searched
workload: workload.yaml
system: system.yaml
axes:
  - {name: cores, field: system.chip.cores, values: [4, 6, 8, 10, 12, 14, 16]}
  - {name: memory, field: system.memory.bandwidth, values: [40 GB/s, 60 GB/s, 80 GB/s, 100 GB/s, 150 GB/s, 200 GB/s]}
search: {front: [max samples_per_s, min cost_usd], within: 2 %, at_once: 6}
";

#[test]
fn a_search_in_rounds_is_the_search() {
    let folder = Scratch::new("parts-search");
    folder.write("workload.yaml", WORKLOAD);
    folder.write("system.yaml", SYSTEM);
    folder.write("study.yaml", SEARCH);
    succeed(&folder, &["study", "run", "study.yaml", "--out", "whole", "--no-plots"]);
    succeed(&folder, &["study", "plan", "study.yaml", "--out", "run", "--parts", "4"]);
    let mut rounds = 0;
    let last = loop {
        let missing = succeed(&folder, &["study", "missing", "run", "--format", "lines"]);
        for part in missing.lines() {
            succeed(&folder, &["study", "work", "run", "--part", part]);
        }
        let merge = folder.run(&["study", "merge", "run", "--no-plots"]);
        rounds += 1;
        assert!(rounds < 40, "it does not end");
        match merge.status.code() {
            Some(75) => assert!(!folder.0.join("run/results.csv").exists()),
            code => {
                assert_eq!(code, Some(0), "{}", stderr(&merge));
                break String::from_utf8(merge.stdout).unwrap();
            }
        }
    };
    assert!(rounds > 2 && last.contains(&format!("solved in {rounds} rounds of parts")), "{rounds}: {last}");
    for file in ["results.csv", "front.csv", "front.json"] {
        assert_eq!(folder.read(&format!("run/{file}")), folder.read(&format!("whole/{file}")), "{file}");
    }
    // Merged once more it is the same.
    succeed(&folder, &["study", "merge", "run", "--no-plots"]);
    assert_eq!(folder.read("run/results.csv"), folder.read("whole/results.csv"));
}

#[test]
fn a_budget_of_time_ends_with_75_and_the_part_goes_on() {
    let folder = planned("parts-budget");
    let mut solved = 0;
    for attempt in 1.. {
        assert!(attempt < 100, "it does not end");
        let output = folder.run(&["study", "work", "run", "--part", "0", "--jobs", "1", "--time-budget", "1ms"]);
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        solved += text.rsplit(", ").next().and_then(|t| t.split(' ').next()).unwrap().parse::<u64>().unwrap();
        match output.status.code() {
            Some(75) => {}
            code => {
                assert_eq!(code, Some(0), "{}", stderr(&output));
                break;
            }
        }
    }
    // No point was solved twice.
    assert_eq!(solved, folder.read("run/parts/00000.csv").lines().count() as u64 - 1);
    assert!(!folder.0.join("run/results.csv").exists());
}

#[test]
fn two_proofs_that_differ_are_an_error_of_their_own() {
    let folder = planned("parts-disagree");
    // A whole part and one attempt more, whose journal says another time of the same point, under a checksum that matches.
    succeed(&folder, &["study", "work", "run", "--part", "0"]);
    fs::remove_file(folder.0.join("run/parts/00000.csv")).unwrap();
    let journal = fs::read_dir(folder.0.join("run/journal")).unwrap().next().unwrap().unwrap().path();
    let line = fs::read_to_string(&journal).unwrap().lines().next().unwrap().to_string();
    let body = line.split_once("\"body\":").unwrap().1.strip_suffix('}').unwrap();
    let at = body.find("\"iteration_s\":\"").unwrap() + "\"iteration_s\":\"".len();
    let other = format!("{}9{}", &body[..at], &body[at..]);
    let sum: String = blake3::hash(other.as_bytes()).to_hex().chars().take(32).collect();
    folder.write("run/journal/00000.zz", &format!("{{\"sum\":\"{sum}\",\"body\":{other}}}\n"));
    let output = folder.run(&["study", "work", "run", "--part", "0"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(stderr(&output).contains("both results are proven and differ: iteration_s is "), "{}", stderr(&output));
}

#[test]
fn parquet_stands_beside_the_table_or_the_answer_says_how() {
    let folder = planned("parts-parquet");
    let run = ["study", "run", "study.yaml", "--out", "typed", "--no-plots", "--parquet"];
    if !cfg!(feature = "parquet") {
        let output = folder.run(&run);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("cargo build --release --features parquet"), "{}", stderr(&output));
        assert!(!folder.0.join("typed").exists());
        return;
    }
    succeed(&folder, &run);
    (0..3).for_each(|part| {
        succeed(&folder, &["study", "work", "run", "--part", &part.to_string()]);
    });
    let merged = succeed(&folder, &["study", "merge", "run", "--no-plots", "--parquet"]);
    assert!(merged.ends_with("run/results.parquet\n"), "{merged}");
    let bytes = |file: &str| fs::read(folder.0.join(file)).unwrap();
    assert_eq!(bytes("run/results.csv"), bytes("whole/results.csv"));
    assert_eq!(bytes("run/results.parquet"), bytes("typed/results.parquet"));
    assert!(folder.read("run/manifest.json").contains("\"results.parquet\""));
    // A run without it leaves the file of before, and says so.
    let again = folder.run(&["study", "run", "study.yaml", "--out", "typed", "--no-plots"]);
    assert!(stderr(&again).contains("typed/results.parquet is of an earlier run"), "{}", stderr(&again));
    assert!(!folder.read("typed/manifest.json").contains("results.parquet"));
    folder.write("search.yaml", SEARCH);
    let searched = succeed(&folder, &["study", "run", "search.yaml", "--out", "front", "--no-plots", "--parquet"]);
    assert!(searched.contains("front/results.parquet\nfront/front.parquet\n"), "{searched}");
}

#[test]
fn what_is_submitted_is_printed() {
    let folder = planned("parts-submit");
    let command = ["study", "submit", "run", "--dry-run", "--time", "2h", "--cpus", "4", "--mem", "16 GiB"];
    let options = ["--partition", "long", "--max-running", "8", "--sbatch-arg=--qos=a b"];
    let text = succeed(&folder, &[&command[..], &options[..]].concat());
    let root = folder.0.canonicalize().unwrap().display().to_string();
    let text = text.replace(&root, "/shared").replace(env!("CARGO_BIN_EXE_flowspace"), "/bin/flowspace");
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/submit.txt");
    if std::env::var_os("FLOWSPACE_BLESS").is_some() {
        fs::write(golden, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(golden).unwrap());
    assert!(!folder.0.join("run/work.sbatch").exists());
    let none = folder.run(&["study", "submit", "run", "--dry-run", "--parts", "1,5"]);
    assert_eq!(stderr(&none), "error: there is no part 5: the study has 3 now, 0 to 2\n");
    let bad = folder.run(&["study", "submit", "run", "--dry-run", "--parts", "first"]);
    assert_eq!(stderr(&bad), "error: --parts: expected numbers such as 3,17,40-52, found \"first\", missing or all\n");
}
