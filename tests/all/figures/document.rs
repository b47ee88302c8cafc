//! Markdown taken apart: files to be written, commands, markers; links and paths that lead nowhere.

use std::ops::Range;
use std::path::Path;

/// A part of a document that means something to the check, in order.
pub enum Piece {
    /// A fenced block with `file=NAME`: a file of the reader's own.
    File {
        /// Its name.
        name: String,
        /// Its text.
        text: String,
    },
    /// A command.
    Command {
        /// Where it stands.
        line: usize,
        /// The command.
        text: String,
        /// Whether it stands in a block of its own, and not in a sentence.
        shown: bool,
    },
    /// A marker and what stands between it and its end.
    Marker {
        /// Where it stands.
        line: usize,
        /// What it asks for.
        specification: String,
        /// Where the figure stands.
        content: Range<usize>,
    },
}

const OPEN: &str = "<!--=";
const CLOSE: &str = "<!--/-->";

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The pieces of a document.
pub fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut found: Vec<(usize, Piece)> = markers(text)?;
    for block in blocks(text) {
        if let Some(name) = block.info.split_whitespace().find_map(|word| word.strip_prefix("file=")) {
            found.push((block.start, Piece::File { name: name.into(), text: block.text }));
        } else {
            let joined = block.text.replace("\\\n", " ");
            for (i, line) in joined.lines().enumerate() {
                if let Some(command) = command(line) {
                    let at = line_of(text, block.start) + i;
                    found.push((block.start + i, Piece::Command { line: at, text: command, shown: true }));
                }
            }
        }
    }
    for (at, span) in spans(text) {
        if let Some(command) = command(&span) {
            found.push((at, Piece::Command { line: line_of(text, at), text: command, shown: false }));
        }
    }
    found.sort_by_key(|(at, _)| *at);
    Ok(found.into_iter().map(|(_, piece)| piece).collect())
}

/// A call of the program, without a prompt, build command or remark.
fn command(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches("$ ");
    let line = line.split("   #").next().unwrap_or(line).trim();
    let rest = line.strip_prefix("cargo run --release -- ").or_else(|| line.strip_prefix("flowspace "))?;
    // `flowspace` and one word is the name of a sub-command in a sentence.
    rest.contains(' ').then(|| format!("flowspace {rest}"))
}

fn markers(text: &str) -> Result<Vec<(usize, Piece)>, String> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(open) = text[from..].find(OPEN).map(|at| from + at) {
        let line = line_of(text, open);
        let head = text[open..].find("-->").map(|at| open + at).ok_or(format!("{line}: the marker does not end"))?;
        let start = head + "-->".len();
        let end = text[start..].find(CLOSE).map(|at| start + at).ok_or(format!("{line}: {CLOSE} is missing"))?;
        if text[start..end].contains(OPEN) {
            return Err(format!("{line}: a marker within a marker, or {CLOSE} is missing"));
        }
        let first = open == 0 || text[..open].ends_with('\n');
        if first && !text[start..].starts_with('\n') {
            // Markdown takes such a line for HTML as it stands.
            return Err(format!("{line}: a marker at the beginning of a line stands alone on it"));
        }
        if text[open..head].contains('|') {
            return Err(format!("{line}: a marker with a | would end a cell of a table"));
        }
        let specification = text[open + OPEN.len()..head].split_whitespace().collect::<Vec<_>>().join(" ");
        found.push((open, Piece::Marker { line, specification, content: start..end }));
        from = end + CLOSE.len();
    }
    Ok(found)
}

struct Block {
    start: usize,
    info: String,
    text: String,
}

/// Fenced and indented blocks of code.
fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut fenced: Option<Block> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            match fenced.take() {
                Some(block) => found.push(block),
                None => fenced = Some(Block { start: at + line.len(), info: info.trim().into(), text: String::new() }),
            }
        } else if let Some(block) = &mut fenced {
            block.text.push_str(line);
        } else if line.starts_with("    ") {
            found.push(Block { start: at, info: String::new(), text: line.into() });
        }
        at += line.len();
    }
    found
}

/// Text between backticks outside blocks, with its place; a span may go over the end of a line.
fn spans(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut paragraph = String::new();
    let mut start = 0;
    let mut fenced = false;
    let mut at = 0;
    let mut end = |paragraph: &mut String, start: usize| {
        let mut place = start;
        for (i, part) in paragraph.split('`').enumerate() {
            if i % 2 == 1 {
                found.push((place, part.split_whitespace().collect::<Vec<_>>().join(" ")));
            }
            place += part.len() + 1;
        }
        paragraph.clear();
    };
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        if fence || fenced || line.trim().is_empty() || line.starts_with("    ") {
            end(&mut paragraph, start);
            start = at + line.len();
            fenced ^= fence;
        } else {
            paragraph.push_str(line);
        }
        at += line.len();
    }
    end(&mut paragraph, start);
    found
}

/// First folders of paths in the repository.
const FOLDERS: [&str; 10] =
    ["src/", "tests/", "docs/", "systems/", "workloads/", "studies/", "validation/", "scripts/", "benches/", "proto/"];

/// Paths of the repository and links of a document that lead nowhere, each with its line.
pub fn missing(text: &str, document: &Path, root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, span) in spans(text) {
        for word in span.split_whitespace() {
            let word = word.trim_end_matches([',', '.', ';', ')']);
            let looks =
                FOLDERS.iter().any(|folder| word.starts_with(folder)) && !word.contains(['*', '<', '{', '|', '=']);
            // Names in capitals stand for what the reader puts there.
            let placeholder =
                word.split(['/', '.', '-']).any(|part| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()));
            if looks && (!placeholder || word.ends_with("README.md")) && !root.join(word).exists() {
                faults.push(format!("{}: there is no {word}", line_of(text, at)));
            }
        }
    }
    let folder = document.parent().unwrap();
    for (i, line) in text.lines().enumerate() {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            if file.contains("://") {
                continue;
            }
            let target = if file.is_empty() { document.to_path_buf() } else { folder.join(file) };
            let Ok(there) = std::fs::read(&target) else {
                faults.push(format!("{}: the link to {link} leads nowhere", i + 1));
                continue;
            };
            if let Some(anchor) = anchor {
                let there = String::from_utf8_lossy(&there).to_string();
                let headings =
                    there.lines().filter(|l| l.starts_with('#')).map(|l| slug(l.trim_start_matches('#').trim()));
                if !headings.into_iter().any(|heading| heading == anchor) {
                    faults.push(format!("{}: there is no heading #{anchor} in {}", i + 1, target.display()));
                }
            }
        }
    }
    faults
}

fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Words that begin with `--` in spans, with their lines.
pub fn options(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, span) in spans(text) {
        // Of what another program is called with nothing is known here.
        let first = span.split_whitespace().next().unwrap_or_default();
        if first.starts_with("--") || first == "flowspace" {
            let words = span.split_whitespace().take_while(|w| *w != "--").filter(|w| w.starts_with("--"));
            found.extend(words.map(|w| (line_of(text, at), w.trim_end_matches([',', '.']).to_string())));
        }
    }
    found
}
