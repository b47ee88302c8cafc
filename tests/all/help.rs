//! What the program says of itself: help, completions, man pages, version.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn flowspace(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowspace")).args(words).env_remove("COLUMNS").output().unwrap()
}

fn said(words: &[&str]) -> String {
    let output = flowspace(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The heading that an option of a help text stands under.
fn heading<'t>(help: &'t str, option: &str) -> &'t str {
    let at = help.lines().position(|l| l.trim_start().trim_start_matches("-h, ").starts_with(option)).unwrap();
    help.lines().take(at).filter(|l| !l.starts_with(' ') && l.ends_with(':')).last().unwrap()
}

#[test]
fn options_stand_under_what_they_do() {
    let help = said(&["map", "--help"]);
    for (option, under) in [
        ("--workload", "Input:"),
        ("--tp", "Decisions"),
        ("--micro-batch", "Decisions"),
        ("--time-limit", "Search:"),
        ("--sharding", "Search:"),
        ("--joint-nodes", "Search:"),
        ("--pue", "Objective and money:"),
        ("--cp", "Executions of language models"),
        ("--max-tpot", "Inference of language models"),
        ("--plan-out", "Output:"),
        ("--format", "Output:"),
    ] {
        let found = heading(&help, option);
        assert!(found.starts_with(under), "{option} stands under {found:?}");
    }
    assert_eq!(heading(&said(&["explain", "--help"]), "--sharding"), "Search:");
    assert_eq!(
        heading(&said(&["explain", "--help"]), "--max-partitions"),
        "Decisions (free or searched where left out):"
    );
    for (option, under) in [("--workload", "Input:"), ("--objective", "Search:"), ("--out", "Output:")] {
        assert_eq!(heading(&said(&["place", "--help"]), option), under);
    }
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let commands = ["map", "check", "explain", "study", "plot", "import", "schema", "validate", "trace"];
    for shell in ["bash", "zsh", "fish"] {
        let text = said(&["completions", shell]);
        for command in commands {
            assert!(text.contains(command), "{shell}: {command}");
        }
        assert!(text.contains("max-tpot"), "{shell}");
    }
    assert!(said(&["man"]).contains(".TH flowspace 1"));
    let folder = std::env::temp_dir().join(format!("flowspace-man-{}", std::process::id()));
    let told = said(&["man", folder.to_str().unwrap()]);
    let pages: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(told.contains(&format!("pages of {} commands", pages.len())), "{told}");
    for command in commands {
        assert!(folder.join(format!("flowspace-{command}.1")).is_file(), "{command}");
    }
    assert!(folder.join("flowspace-trace-info.1").is_file() && folder.join(Path::new("flowspace.1")).is_file());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_version_has_commit_and_engines() {
    let version = said(&["--version"]);
    let lines: Vec<&str> = version.lines().collect();
    assert_eq!(lines[0], concat!("flowspace ", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("commit ") && lines[2].starts_with("engines: shortest path"), "{version}");
    assert_eq!(version.contains("CBC"), cfg!(feature = "cbc"));
    assert_eq!(said(&["-V"]).lines().count(), 1);
}

/// A search of less than two seconds, and any that no terminal looks at, writes no progress.
#[test]
fn progress_is_for_terminals() {
    let words = ["map", "--workload", "tests/errors/base/workload.yaml", "--system", "tests/errors/base/system.yaml"];
    let output = Command::new(env!("CARGO_BIN_EXE_flowspace"))
        .args(words)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
