//! Dependencies of the top-level modules point one way: read off the code, not off a drawing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules from the bottom to the top: each may use those before it. ARCHITECTURE.md states the same line.
const ORDER: [&str; 21] = [
    "progress",
    "units",
    "deadline",
    "spec",
    "graph",
    "solver",
    "system",
    "model",
    "trace",
    "workload",
    "plan",
    "execution",
    "check",
    "mapping",
    "place",
    "explain",
    "report",
    "validate",
    "study",
    "import",
    "cli",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file that is not tests: comments left out, and all from a test module at the left margin on.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.iter().zip(lines.iter().skip(1)).position(|(a, b)| *a == "#[cfg(test)]" && b.ends_with('{'));
    let end = tests.unwrap_or(lines.len());
    lines.into_iter().enumerate().take(end).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Top-level names after `crate::` in a line; macros of the readers (`crate::spec!`, `crate::choice!`) are of `spec`.
fn used(line: &str) -> Vec<String> {
    let after = line.split("crate::").skip(1);
    after
        .map(|rest| {
            let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if rest[name.len()..].starts_with('!') { "spec".into() } else { name }
        })
        .collect()
}

/// For each module the modules it uses, with the first place.
fn arrows() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut paths = Vec::new();
    files(&root().join("src"), &mut paths);
    paths.sort();
    let mut arrows: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for path in paths {
        let inside = path.strip_prefix(root().join("src")).unwrap();
        let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs").to_string();
        if module == "main" || module == "lib" || inside.file_name().is_some_and(|n| n == "tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let of = arrows.entry(module.clone()).or_default();
        for (number, line) in code(&text) {
            for name in used(line).into_iter().filter(|name| *name != module) {
                let place = || format!("{}:{}: {}", inside.display(), number + 1, line.trim());
                of.entry(name).or_insert_with(place);
            }
        }
    }
    arrows
}

#[test]
fn modules_use_only_modules_below_them() {
    let arrows = arrows();
    let level = |name: &str| ORDER.iter().position(|m| *m == name);
    let mut faults = Vec::new();
    for (module, uses) in &arrows {
        let Some(at) = level(module) else {
            faults.push(format!("{module}: not in the order of modules"));
            continue;
        };
        for (name, place) in uses {
            if level(name).is_none_or(|below| below >= at) {
                faults.push(format!("{module} uses {name}: {place}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // The reader of the code sees what is there.
    assert!(arrows["mapping"].contains_key("model") && arrows["study"].contains_key("mapping"), "{arrows:?}");
    let known: BTreeSet<&str> = arrows.keys().map(String::as_str).collect();
    assert_eq!(known, ORDER.into_iter().collect(), "modules of the order that are not there");
}

#[test]
fn the_architecture_states_this_order() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let line = ORDER.join(" -> ");
    assert!(text.replace("\n    ", " ").contains(&line), "ARCHITECTURE.md should state\n    {line}");
}

#[test]
fn names_of_a_line() {
    assert_eq!(used("use crate::graph::{Axis, Op};"), ["graph"]);
    assert_eq!(used("crate::choice! {"), ["spec"]);
    assert_eq!(used("let x: crate::plan::Plan = crate::check::f();"), ["plan", "check"]);
}
