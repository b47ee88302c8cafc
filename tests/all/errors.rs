//! What the program says to wrong input: `errors/NAME.case` is a command and its files, `errors/NAME.expect` the exit code
//! and standard error, to the letter. `FLOWSPACE_BLESS=1 cargo test --test all errors::` writes the expectations anew; read them.
//!
//! A case starts with the command, then its files, each after a line `--- NAME`. The files of `errors/base` stand beside
//! them; a word of a command with blanks stands between single quotes. `--- NAME repeat N` writes the text N times (on one line), `--- NAME hex` the bytes that the text spells.
//! A case that starts with `# only without the feature NAME` (`cbc`, `milp`) is that.

use super::scratch::Scratch;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/errors")
}

/// Writes the files of a case and returns its command; `None` where the case is not for this build.
fn lay_out(case: &str, at: &Path) -> Option<Vec<String>> {
    std::fs::create_dir(at.join("base")).unwrap();
    for entry in std::fs::read_dir(folder().join("base")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, at.join("base").join(path.file_name().unwrap())).unwrap();
    }
    let (head, files) = case.split_once("\n--- ").map_or((case.trim_end(), ""), |(head, files)| (head, files));
    let command = match head.strip_prefix("# only without the feature ") {
        Some(condition) => {
            let (feature, command) = condition.split_once('\n').expect("a command after the condition");
            let built = match feature {
                "cbc" => cfg!(feature = "cbc"),
                "milp" => cfg!(feature = "milp"),
                _ => panic!("no such feature: {feature}"),
            };
            if built {
                return None;
            }
            command
        }
        None => head,
    };
    for section in files.split("\n--- ").filter(|s| !s.is_empty()) {
        let (title, text) = section.split_once('\n').unwrap_or((section, ""));
        let words: Vec<&str> = title.split_whitespace().collect();
        // The line break before the next section belongs to this text.
        let text = if text.is_empty() || text.ends_with('\n') { text.to_string() } else { format!("{text}\n") };
        let bytes = match words[1..] {
            [] => text.into_bytes(),
            ["repeat", times] => text.trim_end_matches('\n').repeat(times.parse().unwrap()).into_bytes(),
            ["hex"] => text.split_whitespace().map(|b| u8::from_str_radix(b, 16).unwrap()).collect(),
            _ => panic!("no such kind of file: {title}"),
        };
        std::fs::write(at.join(words[0]), bytes).unwrap();
    }
    Some(words(command.strip_prefix("$ flowspace").expect("a case starts with its command")))
}

/// The words of a command; what stands between single quotes is one of them.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in command.split('\'').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_string)),
            _ => words.push(part.to_string()),
        }
    }
    words
}

#[test]
fn messages_are_as_reviewed() {
    let bless = std::env::var_os("FLOWSPACE_BLESS").is_some();
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "case"))
        .collect();
    cases.sort();
    assert!(cases.len() > 80, "{} cases", cases.len());
    let mut faults = String::new();
    for path in &cases {
        let name = path.file_stem().unwrap().to_string_lossy();
        let scratch = Scratch::new(&name);
        let Some(words) = lay_out(&std::fs::read_to_string(path).unwrap(), &scratch.0) else { continue };
        let output = Command::new(env!("CARGO_BIN_EXE_flowspace"))
            .args(&words)
            .current_dir(&scratch.0)
            .env_remove("RUST_BACKTRACE")
            .env_remove("COLUMNS")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(1) || errors.contains("panicked") || errors.contains("internal error") {
            let _ = writeln!(faults, "== {name}: {}, and says\n{errors}", output.status);
            continue;
        }
        let found = format!("exit 1\n{errors}");
        let expectation = path.with_extension("expect");
        if bless {
            std::fs::write(&expectation, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&expectation).unwrap_or_default();
        if found != expected {
            let _ = writeln!(faults, "== {name}: expected\n{expected}-- found\n{found}");
        }
    }
    let stale = std::fs::read_dir(folder())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "expect") && !p.with_extension("case").exists());
    for path in stale {
        let _ = writeln!(faults, "== {}: no such case", path.display());
    }
    assert!(
        faults.is_empty(),
        "{faults}\nFLOWSPACE_BLESS=1 cargo test --test all errors:: writes what is found; read it"
    );
}
