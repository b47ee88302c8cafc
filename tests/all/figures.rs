//! What the documents say of the program is what the program says: every figure between markers is computed anew, every command
//! shown is parsed and, where its files are shipped, run, every path and option named exists.
//!
//! A marker is an HTML comment, which no reader of the document sees:
//!
//! ```text
//! takes <!--= sn30-json :: iteration_s :: .1f -->105.4<!--/--> s
//! ```
//!
//! `sn30-json` names a command of `docs/figures.txt` (`$`: the command shown last in the document), then comes an expression over its answer
//! ([`expression`]) and how the result is written. `<!--= table NAME -->` stands before a table that [`tables`] writes (`<!--= value NAME -->`: one figure), `<!--= sn30 :: lines
//! {from}..{to} -->` before lines of the answer's text, `<!--= 80-systems :: same FILE SHOWN -->` before a picture that the command writes.
//!
//! `FLOWSPACE_FIGURES=write` writes the documents anew (`scripts/figures.sh --write`), `FLOWSPACE_FIGURES_FULL=1` also runs the commands
//! marked `full`, which take long (`--full`). Figures of wall time are not checked: their tables are dated and name their commands. Points and
//! traces that are not shipped are taken from the folders `FLOWSPACE_POINTS` and `FLOWSPACE_TRACES`.

mod claims;
mod commands;
mod comparison;
mod document;
mod expression;
mod source;
mod tables;

use document::Piece;
use source::Sources;
use std::path::{Path, PathBuf};

/// The documents, by path from the root of the repository.
fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut all: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "studies/dfmodel/README.md"].map(PathBuf::from).into();
    for folder in ["docs", "docs/files", "validation"] {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        let names = entries.map(|entry| Path::new(folder).join(entry.unwrap().file_name()));
        all.extend(names.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    all.sort();
    all
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Whether the documents are to be written.
fn writing() -> bool {
    std::env::var("FLOWSPACE_FIGURES").is_ok_and(|word| word == "write")
}

/// Only the documents whose path contains this, or one of these between commas, for work on some of them.
fn wanted(path: &Path) -> bool {
    let has = |parts: String| parts.split(',').any(|part| path.display().to_string().contains(part));
    std::env::var("FLOWSPACE_FIGURES_ONLY").map_or(true, has)
}

#[test]
fn documents_say_what_the_program_says() {
    let mut faults = Vec::new();
    let mut sources = Sources::new(&root()).unwrap();
    for path in documents().into_iter().filter(|path| wanted(path)) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let name = path.display().to_string();
        let pieces = match document::pieces(&text) {
            Ok(pieces) => pieces,
            Err(fault) => {
                faults.push(format!("{name}:{fault}"));
                continue;
            }
        };
        sources.start(&name);
        let mut renewed = String::new();
        let mut written = 0;
        for piece in pieces {
            match piece {
                Piece::File { name: file, text, .. } => sources.write(&file, &text),
                Piece::Command { line, text, shown } => {
                    faults.extend(commands::fault(&text, shown, &mut sources).map(|f| format!("{name}:{line}: {f}")));
                }
                Piece::Marker { line, specification, content } => {
                    let stated = &text[content.clone()];
                    let found = match sources.figure(&specification, stated) {
                        Ok(found) => found,
                        Err(fault) => {
                            faults.push(format!("{name}:{line}: {specification}: {fault}"));
                            continue;
                        }
                    };
                    if found != stated {
                        if writing() {
                            renewed.push_str(&text[written..content.start]);
                            renewed.push_str(&found);
                            written = content.end;
                        } else {
                            faults.push(format!(
                                "{name}:{line}: {specification}:\n   stated {stated:?}\n  program {found:?}"
                            ));
                        }
                    }
                }
            }
        }
        if written > 0 {
            renewed.push_str(&text[written..]);
            std::fs::write(root().join(&path), renewed).unwrap();
        }
    }
    eprintln!("{}", sources.summary());
    assert!(
        faults.is_empty(),
        "{} faults (`scripts/figures.sh --write` renews figures):\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn documents_name_what_is_there() {
    let mut faults = Vec::new();
    for path in documents() {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let name = path.display();
        faults.extend(document::missing(&text, &root().join(&path), &root()).iter().map(|f| format!("{name}:{f}")));
        faults.extend(commands::unknown_options(&text).iter().map(|f| format!("{name}:{f}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
