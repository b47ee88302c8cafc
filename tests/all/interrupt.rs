//! Ctrl-C in a search of one point, from outside: it ends with the best plan so far, and says that it was interrupted. A second one ends the
//! program at once.
//!
//! When a child may be interrupted is read from what the system tells of it (which signals it catches, how much processor time it has
//! had), so that no test depends on how fast the machine is.
#![cfg(target_os = "linux")]

use super::limits::many;
use super::scratch::Scratch;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn start(folder: &Path, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_flowspace"))
        .current_dir(folder)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Whether a child has said what an interruption does.
fn catches(child: &Child) -> bool {
    const INTERRUPTION: u64 = 1 << 1;
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & INTERRUPTION != 0)
}

/// Processor time of a child, in the hundredths of a second that the system counts.
fn spent(child: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // Behind the name, which stands in brackets, user time is the twelfth field.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|i| fields.get(*i)?.parse::<u64>().ok()).sum()
}

/// Interrupts a child. The shell has a `kill` where the system has none.
fn interrupt(child: &Child) {
    let sent = Command::new("sh").arg("-c").arg(format!("kill -INT {}", child.id())).status().unwrap();
    assert!(sent.success());
}

/// Interrupts a child once it catches that and has had so much processor time.
fn interrupted(mut child: Child, after: u64) -> Output {
    while child.try_wait().unwrap().is_none() && !(catches(&child) && spent(&child) >= after) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    interrupt(&child);
    child.wait_with_output().unwrap()
}

fn told(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", told(out)))
}

/// Whether a plan file is feasible and has the figures that it states.
fn is_sound(folder: &Path, plan: &str) {
    let out = start(folder, &["check", plan]).wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", told(&out));
}

#[test]
fn a_search_ends_with_the_best_plan_so_far_and_goes_on_from_it() {
    let folder = Scratch::new("interrupt");
    // Minutes of search, whose first plan comes soon.
    folder.write("many.yaml", &many(2000, true));
    let long = ["map", "--workload", "many.yaml", "--system", "sn10-single"];
    let mut after = 50;
    // How soon there is a plan depends on the build.
    let first = loop {
        let args = [&long[..], &["--format", "json", "--plan-out", "plan.yaml"]].concat();
        let out = interrupted(start(&folder.0, &args), after);
        assert_eq!(out.status.code(), Some(130), "{}", told(&out));
        assert!(told(&out).contains("interrupted: ending with the best plan so far"), "{}", told(&out));
        let value = json(&out);
        assert_eq!(value["status"], "interrupted");
        assert!(value["statement"].as_str().unwrap().contains("the search was interrupted"), "{value:#}");
        if value["objective"].is_number() {
            break value;
        }
        assert!(told(&out).contains("error: no plan before the interruption, which does not prove"), "{}", told(&out));
        after *= 2;
    };
    assert_eq!((&first["left_open"], &first["reproducible"]), (&Value::from("interrupted"), &Value::from(false)));
    let number = |value: &Value, key: &str| value[key].as_f64().unwrap();
    assert!(number(&first, "bound") < number(&first, "objective"), "{first:#}");
    is_sound(&folder.0, "plan.yaml");

    // From a plan file there is a plan at once, whenever the interruption comes.
    let again = ["map", "--plan", "plan.yaml"];
    let out = interrupted(start(&folder.0, &[&again[..], &["--plan-out", "second.yaml"]].concat()), 0);
    assert_eq!(out.status.code(), Some(130), "{}", told(&out));
    let text = String::from_utf8(out.stdout.clone()).unwrap();
    assert!(text.contains("status: interrupted (gap "), "{text}");
    let said = "; the search was interrupted: the same command, left to run, goes on.";
    assert!(text.contains(said), "{text}");
    is_sound(&folder.0, "second.yaml");
    let out = interrupted(start(&folder.0, &[&again[..], &["--format", "json"]].concat()), 0);
    let second = json(&out);
    assert!(number(&second, "objective") <= number(&first, "objective") * (1.0 + 1e-9), "{second:#}");
    let out = interrupted(start(&folder.0, &["explain", "plan.yaml", "--format", "json"]), 0);
    assert_eq!(out.status.code(), Some(130), "{}", told(&out));
    assert!(json(&out)["statement"].as_str().unwrap().contains("the search was interrupted"), "{}", told(&out));
}

/// Executions of a language model: how far the search came is the machine's.
#[test]
fn a_search_of_executions_ends_so_too() {
    let folder = Scratch::new("interrupt-language");
    // A batch with thousands of divisors, each a size of a microbatch.
    folder.write("train.yaml", "from: gpt3-175b\nname: much\nglobal_batch: 963761198400\n");
    let system = ["--system", "a100-dgx-1024", "--format", "json"];
    let train = [&["map", "--workload", "train.yaml"], &system[..]].concat();
    let out = interrupted(start(&folder.0, &train), 0);
    assert_eq!(out.status.code(), Some(130), "{}", told(&out));
    let value = json(&out);
    // A plan that meets the bound of what was not looked at is proven all the same.
    if value["gap"] == 0.0 {
        assert_eq!(value["status"], "optimal", "{value:#}");
    } else {
        assert_eq!(value["status"], "interrupted", "{value:#}");
        assert!(value["statement"].as_str().unwrap().contains("the search was interrupted"), "{value:#}");
        assert_eq!(value["objective"].is_number(), value["reason"].is_null(), "{value:#}");
    }
}

/// Layouts for serving: which were looked at is the machine's.
#[test]
fn a_search_of_layouts_ends_so_too() {
    let folder = Scratch::new("interrupt-serving");
    let batches: Vec<String> = (1..=4000).map(|batch| batch.to_string()).collect();
    let batches = batches.join(",");
    let serve =
        ["map", "--workload", "deepseek-v3-serving", "--system", "h100-dgx-1024", "--format", "json", "--batch"];
    let out = interrupted(start(&folder.0, &[&serve[..], &[&batches]].concat()), 0);
    assert_eq!(out.status.code(), Some(130), "{}", told(&out));
    assert!(told(&out).contains("interrupted: ending with the best plan so far"), "{}", told(&out));
    let value = json(&out);
    assert!(value["statement"].as_str().unwrap().contains("the search was interrupted"), "{value:#}");
}

/// The comparison of engines, which comes after the search, ends too: every engine is told, with what it had.
#[test]
fn a_comparison_of_engines_ends_so_too() {
    let folder = Scratch::new("interrupt-engines");
    let all = ["map", "--workload", "gpt3-1t-training", "--system", "sn30-1024-torus-2d", "--all-solvers"];
    let out = interrupted(start(&folder.0, &all), 0);
    assert_eq!(out.status.code(), Some(130), "{}", told(&out));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    match told(&out).contains("error: no plan before the interruption") {
        true => assert!(text.is_empty(), "{text}"),
        false => assert!(text.contains("status: ") && text.contains("sub-problem"), "{text}{}", told(&out)),
    }
}

/// A second interruption ends the program wherever it is: here it waits for someone to read its answer, which is longer than a pipe holds.
#[test]
fn a_second_interruption_ends_the_program_at_once() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let folder = Scratch::new("interrupt-twice");
    folder.write("many.yaml", &many(2000, false));
    let first = ["map", "--workload", "many.yaml", "--system", "sn10-single", "--time-limit", "2s", "--plan-out"];
    start(&folder.0, &[&first[..], &["plan.yaml"]].concat()).wait_with_output().unwrap();
    // From a plan file there is an answer at once.
    let mut child = start(&folder.0, &["map", "--plan", "plan.yaml", "--format", "json"]);
    while !catches(&child) {
        assert!(child.try_wait().unwrap().is_none(), "it ends by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    interrupt(&child);
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("another interruption ends the program at once"), "{line}");
    interrupt(&child);
    // Nothing was read of it: without the second interruption it would wait for ever.
    for _ in 0..12_000 {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(130));
            let mut answer = String::new();
            child.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
            assert!(serde_json::from_str::<Value>(&answer).is_err(), "the answer is cut off");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("a second interruption did not end it");
}
