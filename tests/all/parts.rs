//! `flowspace study plan`, `work`, `submit`, `missing`, `status` and `merge` from outside.

use crate::scratch::Scratch;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    // How many depends on how fast a part is finished.
    assert!(kills > 0, "no worker was killed");
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
    // Copies of its own, or the study's files: either is refused where it was changed.
    succeed(&folder, &["study", "plan", "study.yaml", "--out", "there", "--parts", "3", "--no-copy"]);
    assert!(!folder.0.join("there/inputs").exists());
    folder.write("system.yaml", &SYSTEM.replace("100 GB/s", "120 GB/s"));
    let output = folder.run(&["study", "work", "there", "--part", "0"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("system.yaml was "), "{}", stderr(&output));
    succeed(&folder, &["study", "work", "run", "--part", "1"]);
    // Planned once more it is another study.
    let output = folder.run(&["study", "plan", "study.yaml", "--out", "run", "--parts", "3"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("the digest of inputs/system.yaml was "), "{}", stderr(&output));
    folder.write("system.yaml", SYSTEM);
    succeed(&folder, &["study", "plan", "study.yaml", "--out", "run", "--parts", "3"]);
    folder.write("run/inputs/system.yaml", &SYSTEM.replace("100 GB/s", "120 GB/s"));
    let output = folder.run(&["study", "work", "run", "--part", "0"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("the digest of inputs/system.yaml was "), "{}", stderr(&output));
    folder.write("run/inputs/system.yaml", SYSTEM);
    study(&folder, "[4, 8, 16]");
    let output = folder.run(&["study", "work", "there", "--part", "0"]);
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

/// A study whose files lie in several folders: references up and down again, a file that only names another, a chip of its own file.
fn scattered(name: &str) -> Scratch {
    let folder = Scratch::new(name);
    for below in ["models", "machines/chips", "studies/mine"] {
        fs::create_dir_all(folder.0.join(below)).unwrap();
    }
    folder.write("models/tiny.yaml", WORKLOAD);
    folder.write("models/named.yaml", "from: tiny.yaml\n");
    let at = SYSTEM.find("  {name: chip").unwrap();
    let (chip, rest) = SYSTEM[at..].split_once("}\n").unwrap();
    folder.write("machines/chips/c.yaml", &format!("{}}}\n", chip.trim_start()));
    let system = format!("{}{rest}", SYSTEM[..at].replace("chip:\n", "chip: ../machines/chips/c.yaml\n"));
    folder.write("machines/four.yaml", &system);
    let axes = "  - {name: cores, field: system.chip.cores, values: [4, 8, 12, 16]}\n  - {name: heads, field: workload.heads, values: [2, 4, 8]}\n";
    // By way of a folder that holds no file of the study.
    let study = format!(
        "name: scattered\nworkload: ../mine/../../models/named.yaml\nsystem: ../../machines/four.yaml\naxes:\n{axes}"
    );
    folder.write("studies/mine/study.yaml", &study);
    folder
}

#[test]
fn a_plan_carries_its_inputs() {
    let folder = scattered("parts-carried");
    succeed(&folder, &["study", "run", "studies/mine/study.yaml", "--out", "whole", "--no-plots"]);
    let output = folder.run(&["study", "plan", "studies/mine/study.yaml", "--out", "run", "--parts", "2"]);
    assert!(stderr(&output).contains("5 files of the study"), "{}", stderr(&output));
    let mut names: Vec<String> = Vec::new();
    let sheet: serde_json::Value = serde_json::from_str(&folder.read("run/plan.json")).unwrap();
    for input in sheet["of"]["inputs"].as_array().unwrap() {
        names.push(input["file"].as_str().unwrap().to_string());
        assert!(folder.0.join("run").join(names.last().unwrap()).is_file(), "{names:?}");
    }
    let places = ["machines/chips/c.yaml", "machines/four.yaml", "models/named.yaml", "models/tiny.yaml"];
    let expected: Vec<String> =
        places.iter().chain(&["studies/mine/study.yaml"]).map(|file| format!("inputs/{file}")).collect();
    assert_eq!(names, expected);
    // The files go away, and the run goes elsewhere.
    for gone in ["models", "machines", "studies"] {
        fs::rename(folder.0.join(gone), folder.0.join(format!("{gone}.gone"))).unwrap();
    }
    fs::create_dir(folder.0.join("elsewhere")).unwrap();
    fs::rename(folder.0.join("run"), folder.0.join("elsewhere/run")).unwrap();
    for part in ["0", "1"] {
        succeed(&folder, &["study", "work", "elsewhere/run", "--part", part, "--jobs", "1"]);
    }
    assert!(succeed(&folder, &["study", "status", "elsewhere/run"]).contains("2 of 2 parts finished"));
    succeed(&folder, &["study", "merge", "elsewhere/run", "--no-plots"]);
    assert_eq!(folder.read("elsewhere/run/results.csv"), folder.read("whole/results.csv"));
    // A row explains itself from what was carried.
    let shown = succeed(&folder, &["study", "show", "elsewhere/run", "--point", "5", "--resolved"]);
    assert!(shown.contains("cores: 8"), "{shown}");
    // A copy that is missing is an error that names it.
    fs::remove_file(folder.0.join("elsewhere/run/inputs/models/tiny.yaml")).unwrap();
    let output = folder.run(&["study", "merge", "elsewhere/run", "--no-plots"]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("tiny.yaml"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_carried_is_said() {
    let folder = scattered("parts-absolute");
    let root = folder.0.canonicalize().unwrap();
    let absolute =
        folder.read("studies/mine/study.yaml").replace("../../machines", &format!("{}/machines", root.display()));
    folder.write("studies/mine/study.yaml", &absolute);
    let output = folder.run(&["study", "plan", "studies/mine/study.yaml", "--out", "run", "--parts", "2"]);
    let text = stderr(&output);
    assert!(
        text.contains("3 files of the study") && text.matches("is named by an absolute path").count() == 2,
        "{text}"
    );
    assert!(!root.join("run/inputs/machines/four.yaml").exists());
    folder.write("machines/chips/c.yaml", &folder.read("machines/chips/c.yaml").replace("0.9", "0.8"));
    let output = folder.run(&["study", "work", "run", "--part", "0"]);
    assert!(output.status.code() == Some(3) && stderr(&output).contains("c.yaml was "), "{}", stderr(&output));
    // What lies where a copy is due is never written over: here the study itself.
    fs::create_dir(root.join("inputs")).unwrap();
    folder.write("inputs/study.yaml", &absolute.replace("../mine/../../", "../"));
    folder.write("inputs/models", "something else\n");
    let output = folder.run(&["study", "plan", "inputs/study.yaml", "--out", "."]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!root.join("plan.json").exists() && folder.read("inputs/models") == "something else\n");
    // Of the catalogue nothing is copied: it travels in the program.
    let output = folder.run(&["study", "plan", "quickstart", "--out", "shipped"]);
    assert!(output.status.success() && !root.join("shipped/inputs").exists(), "{}", stderr(&output));
}

/// Two points of some seconds each, as HiGHS is to prove them.
#[cfg(target_os = "linux")]
const SLOW: &str = "
name: slow
workload: gpt3-175b-training
system: sn30-1024-torus-2d
solve: {solver: highs}
axes:
  - {name: sram, field: system.chip.sram, values: [320 MB, 640 MB]}
";

/// Waits until something is there.
#[cfg(target_os = "linux")]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock.elapsed() < Duration::from_secs(300), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a worker in the middle of its first point.
#[cfg(target_os = "linux")]
fn ended_within(folder: &Scratch, point: &str) {
    let before = fs::read_dir(folder.0.join("run/begun")).unwrap().count();
    let mut child = worker(folder, 0);
    until("the point", || {
        let files: Vec<_> =
            fs::read_dir(folder.0.join("run/begun")).unwrap().map(|file| file.unwrap().path()).collect();
        let begun = files.iter().any(|file| fs::read_to_string(file).unwrap().ends_with(&format!("+ {point}\n")));
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the part is finished: {ended:?}");
        (files.len() > before && begun).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The process that a worker solves a point in.
#[cfg(target_os = "linux")]
fn process_of(worker: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.into_iter().find(|process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|of| of.trim() == worker.to_string()))
    })
}

#[test]
#[cfg(target_os = "linux")]
fn a_point_that_ends_its_process_gets_one_of_its_own() {
    let folder = Scratch::new("parts-apart");
    folder.write("study.yaml", SLOW);
    succeed(&folder, &["study", "run", "study.yaml", "--out", "whole", "--no-plots"]);
    for out in ["run", "first"] {
        if out == "first" {
            fs::rename(folder.0.join("run"), folder.0.join(out)).unwrap();
        }
        succeed(&folder, &["study", "plan", "study.yaml", "--out", "run", "--parts", "1"]);
        ended_within(&folder, "0");
        // It comes last now: the other one is begun first, and ends by itself.
        let mut child = worker(&folder, 0);
        until("the other point", || {
            let files = fs::read_dir(folder.0.join("run/begun")).unwrap();
            let texts: Vec<String> = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
            texts.iter().any(|text| text == "+ 1\n- 1\n+ 0\n").then_some(())
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let status = folder.run(&["study", "status", "run"]);
        let text = String::from_utf8(status.stdout).unwrap();
        assert!(text.contains("in the middle of points 0 (2 times)"), "{text}");
        let mut child = worker(&folder, 0);
        let id = child.id();
        if out == "run" {
            // The process of its own brings what a run brings.
            until("a process of its own", || process_of(id));
            assert!(child.wait().unwrap().success());
            succeed(&folder, &["study", "merge", "run", "--no-plots"]);
            assert_eq!(folder.read("run/results.csv"), folder.read("whole/results.csv"));
            let mut begun = fs::read_dir(folder.0.join("run/begun")).unwrap().map(|file| file.unwrap().file_name());
            assert!(begun.all(|name| !name.to_string_lossy().starts_with('.')), "an answer was left");
            continue;
        }
        // Ended as well (by the shell's own kill: a bare system has no program of that name), it leaves a row that says so, and the other point its own.
        let own = until("a process of its own", || process_of(id));
        assert!(Command::new("sh").args(["-c", &format!("kill -9 {own}")]).status().unwrap().success());
        assert!(child.wait().unwrap().success());
        succeed(&folder, &["study", "merge", "run", "--no-plots", "--columns", "reason,iteration_s"]);
        let (results, whole) = (folder.read("run/results.csv"), folder.read("whole/results.csv"));
        let rows: Vec<&str> = results.lines().collect();
        let reason = "2 processes ended in the middle of this point, and one that had nothing else to do was ended by signal 9 (SIGKILL";
        assert!(rows[1].starts_with("0,320 MB,failed,") && rows[1].contains(reason), "{results}");
        assert!(rows[2].starts_with("1,640 MB,optimal,") && whole.lines().count() == rows.len(), "{results}");
    }
    // A worker that ends takes the process with it.
    succeed(&folder, &["study", "plan", "study.yaml", "--out", "run-on", "--parts", "1"]);
    folder.write("run-on/begun/00000.a", "+ 0\n+ 1\n");
    folder.write("run-on/begun/00000.b", "+ 0\n+ 1\n");
    fs::rename(folder.0.join("run"), folder.0.join("second")).unwrap();
    fs::rename(folder.0.join("run-on"), folder.0.join("run")).unwrap();
    let mut child = worker(&folder, 0);
    let id = child.id();
    let own = until("a process of its own", || process_of(id));
    child.kill().unwrap();
    child.wait().unwrap();
    until("its end", || {
        let status = fs::read_to_string(format!("/proc/{own}/status")).unwrap_or_default();
        (status.is_empty() || status.contains("State:\tZ")).then_some(())
    });
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
    // A line of it that is damaged is told, and its point solved anew.
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, text.replacen("\"iteration_s\":\"", "\"iteration_s\":\"1", 1)).unwrap();
    let output = folder.run(&["study", "work", "run", "--part", "0"]);
    assert!(
        output.status.success() && stderr(&output).contains("note: 1 lines of journals are damaged"),
        "{}",
        stderr(&output)
    );
    fs::write(&journal, text).unwrap();
    fs::remove_file(folder.0.join("run/parts/00000.csv")).unwrap();
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
