//! The commands behind the figures (`docs/figures.txt`), each run once in a folder that looks like the repository.

use super::commands;
use super::expression::{self, Data};
use super::tables;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What a command ended with.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Begins the error of a figure that this run leaves out.
pub const SKIPPED: &str = "left out: ";
/// What documents may name in the repository.
const SHIPPED: [&str; 6] = ["systems", "workloads", "studies", "validation", "docs", "tests"];
/// How many of the commands that took longest the summary names.
const SLOWEST: usize = 20;
/// Options whose values are written, not read.
const WRITTEN: [&str; 4] = ["--out", "--plan-out", "--plot", "--write-model"];

/// Folders of data that are not shipped, as the list names them, and the variables that say where they are.
const ELSEWHERE: [(&str, &str); 2] = [("POINTS", "FLOWSPACE_POINTS"), ("TRACES", "FLOWSPACE_TRACES")];

/// The commands and their answers.
pub struct Sources {
    root: PathBuf,
    scratch: PathBuf,
    /// Where the commands of the document at hand run: a folder of its own once it has written a file.
    own: Option<PathBuf>,
    document: String,
    listed: BTreeMap<String, (bool, String)>,
    answers: HashMap<String, Output>,
    data: HashMap<String, Data>,
    last: Option<String>,
    left_out: BTreeSet<String>,
    /// What each command took, for the summary.
    took: Vec<(Duration, String)>,
}

impl Drop for Sources {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// A folder in which the shipped files stand where they stand in the repository.
fn like_the_repository(root: &Path, at: &Path) {
    std::fs::create_dir_all(at).unwrap();
    for folder in SHIPPED {
        std::os::unix::fs::symlink(root.join(folder), at.join(folder)).unwrap();
    }
}

impl Sources {
    /// Reads the list of commands.
    pub fn new(root: &Path) -> Result<Self, String> {
        let scratch = std::env::temp_dir().join(format!("flowspace-figures-{}", std::process::id()));
        like_the_repository(root, &scratch.join("shared"));
        let text = std::fs::read_to_string(root.join("docs/figures.txt")).map_err(|e| e.to_string())?;
        let mut listed = BTreeMap::new();
        for line in text.replace("\\\n", " ").lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (head, command) =
                line.split_once(": ").ok_or(format!("docs/figures.txt: expected `name: command`, found {line:?}"))?;
            let (id, full) = head.strip_suffix(" [full]").map_or((head, false), |id| (id, true));
            let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
            if listed.insert(id.to_string(), (full, command)).is_some() {
                return Err(format!("docs/figures.txt: {id} stands twice"));
            }
        }
        Ok(Self {
            root: root.to_path_buf(),
            scratch,
            own: None,
            document: String::new(),
            listed,
            answers: HashMap::new(),
            data: HashMap::new(),
            last: None,
            left_out: BTreeSet::new(),
            took: Vec::new(),
        })
    }

    /// The repository.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Begins a document.
    pub fn start(&mut self, name: &str) {
        self.document = name.replace('/', "-");
        self.own = None;
        self.last = None;
    }

    /// Writes a file of the document's own.
    pub fn write(&mut self, name: &str, text: &str) {
        let own = self.scratch.join(&self.document);
        if self.own.is_none() {
            like_the_repository(&self.root, &own);
            self.own = Some(own.clone());
        }
        let path = own.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Writes what a command printed where it says (`> FILE`).
    pub fn keep(&self, name: &str, text: &str) {
        std::fs::write(self.folder().join(name), text).unwrap();
    }

    fn folder(&self) -> PathBuf {
        self.own.clone().unwrap_or_else(|| self.scratch.join("shared"))
    }

    /// Whether everything that a command reads is there; the missing file, where it should be shipped.
    pub fn needs(&self, words: &[String]) -> Result<bool, String> {
        let command = words.join(" ");
        if !full() && self.listed.values().any(|(full, listed)| *full && *listed == command) {
            return Ok(false);
        }
        let mut written = false;
        for word in words.iter().skip(1) {
            if std::mem::replace(&mut written, WRITTEN.contains(&word.as_str())) || word.starts_with("--") {
                continue;
            }
            if commands::is_placeholder(word) {
                return Ok(false);
            }
            let ends = [".yaml", ".csv", ".json", ".gz", ".txt", ".et", ".pb", ".xml", ".xcf"];
            let path = word
                .strip_prefix("trace:")
                .or_else(|| word.strip_prefix("hf:"))
                .map_or(word.as_str(), |w| w.split('?').next().unwrap_or(w));
            let is_path = word.contains('/') || ends.iter().any(|end| path.ends_with(end));
            if is_path && !word.contains(' ') && !self.folder().join(path).exists() {
                let shipped = SHIPPED.iter().any(|folder| path.starts_with(&format!("{folder}/")));
                return if shipped { Err(path.to_string()) } else { Ok(false) };
            }
        }
        Ok(true)
    }

    /// Runs a command, once for all documents that bring no files of their own.
    pub fn run(&mut self, command: &str, words: &[String]) -> Output {
        if self.own.is_none()
            && let Some(known) = self.answers.get(command)
        {
            return known.clone();
        }
        let begun = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_flowspace"))
            .args(&words[1..])
            .current_dir(self.folder())
            .env("COLUMNS", "110")
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_string();
        let output = Output {
            code: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        };
        self.took.push((begun.elapsed(), format!("{}: {command}", self.document)));
        self.data.remove(command);
        self.answers.insert(command.to_string(), output.clone());
        output
    }

    /// Notes the command that `$` stands for from here on.
    pub fn shown(&mut self, command: &str) {
        self.last = Some(command.to_string());
    }

    /// The answer of the command `id` of the list, or of the last one shown (`$`).
    pub fn data(&mut self, id: &str) -> Result<Data, String> {
        let command = if id == "$" {
            self.last.clone().ok_or("no command has been shown yet")?
        } else {
            let (is_full, command) = self.listed.get(id).ok_or(format!("docs/figures.txt has no {id}"))?;
            if *is_full && !full() {
                return Err(format!("{SKIPPED}{id}"));
            }
            let mut command = command.clone();
            for (folder, variable) in ELSEWHERE {
                if command.contains(&format!("{folder}/")) {
                    let there = std::env::var(variable).map_err(|_| format!("{SKIPPED}{id}"))?;
                    command = command.replace(&format!("{folder}/"), &format!("{}/", there.trim_end_matches('/')));
                }
            }
            command
        };
        if id != "$"
            && let Some(known) = self.data.get(&command)
        {
            return Ok(known.clone());
        }
        let words = commands::split(&command)?;
        let output = match self.answers.get(&command) {
            Some(known) => known.clone(),
            None => self.run(&command, &words),
        };
        if output.code != 0 && output.code != 2 {
            return Err(format!("{command}: exit code {}: {}", output.code, output.stderr));
        }
        let results = output.stdout.lines().find(|line| line.ends_with("results.csv") && !line.contains(' '));
        let data = match results.filter(|_| command.contains(" study run ")) {
            Some(path) => Data::Table(table(&self.folder().join(path))?),
            None => match serde_json::from_str(&output.stdout) {
                Ok(value) => Data::Json(value),
                Err(_) => Data::Text(output.stdout.clone()),
            },
        };
        self.data.insert(command, data.clone());
        Ok(data)
    }

    /// What stands behind a marker. A figure that this run leaves out stays as it is stated.
    pub fn figure(&mut self, specification: &str, stated: &str) -> Result<String, String> {
        let parts: Vec<&str> = specification.split(" :: ").collect();
        let found = match parts.as_slice() {
            [one] => match one.split_once(' ') {
                Some(("table", name)) => tables::table(name, self).map(|table| format!("\n{}\n", table.trim_end())),
                Some(("same", files)) => self.same(files).map(|()| stated.to_string()),
                Some(("value", name)) => tables::value(name, self),
                _ => Err("expected `table NAME`, `value NAME`, `SOURCE :: same FILE SHOWN`, `SOURCE :: lines {from}..{to} {from}+N` or `SOURCE :: EXPRESSION :: FORMAT`".into()),
            },
            [id, lines] if lines.starts_with("lines ") => self.lines(id, lines),
            // A file that the command of that name writes.
            [id, files] if files.starts_with("same ") => {
                self.data(id).and_then(|_| self.same(&files["same ".len()..])).map(|()| stated.to_string())
            }
            [id, what, format] => expression::text(what, format, id, &mut |id| self.data(id)),
            _ => Err("expected `SOURCE :: EXPRESSION :: FORMAT`".into()),
        };
        match found {
            Err(reason) if reason.starts_with(SKIPPED) => {
                self.left_out.insert(reason[SKIPPED.len()..].to_string());
                Ok(stated.to_string())
            }
            other => other,
        }
    }

    /// A file that a command has written must be one of the repository.
    fn same(&self, files: &str) -> Result<(), String> {
        let (made, shown) = files.split_once(' ').ok_or("expected the file written and the one shown")?;
        let made = std::fs::read(self.folder().join(made)).map_err(|e| format!("{made}: {e}"))?;
        let shown = self.root.join(shown);
        if super::writing() {
            return std::fs::write(shown, made).map_err(|e| e.to_string());
        }
        let there = std::fs::read(&shown).unwrap_or_default();
        if there == made { Ok(()) } else { Err("the file shown is another than the command writes".into()) }
    }

    /// Lines of an answer in a block: from a line with one text to the next with another, or so many more.
    fn lines(&mut self, id: &str, ranges: &str) -> Result<String, String> {
        self.data(id)?;
        let command =
            if id == "$" { self.last.clone() } else { self.listed.get(id).map(|(_, command)| command.clone()) };
        let output = command.and_then(|command| self.answers.get(&command)).ok_or("the command has not been run")?;
        let lines: Vec<&str> = output.stdout.lines().map(str::trim_end).collect();
        // Columns may be of other widths another time.
        let squeezed: Vec<String> = lines.iter().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let find = |text: &str, after: usize| {
            let at = squeezed.iter().skip(after).position(|l| l.contains(text));
            at.map(|at| at + after).ok_or(format!("no line of the answer has {text:?}"))
        };
        let mut out = String::from("\n```text\n");
        let mut next = 0;
        for range in ranges.trim_start_matches("lines ").split(" {").map(|range| range.trim_start_matches('{')) {
            let wrong = || format!("expected {{from}}..{{to}} or {{from}}+N, found {{{range}");
            let (from, rest) = range.split_once('}').ok_or_else(wrong)?;
            let first = find(from, next)?;
            let last = match (rest.strip_prefix("..{").and_then(|r| r.strip_suffix('}')), rest.strip_prefix('+')) {
                (Some(to), _) => find(to, first)?,
                (_, Some(more)) => first + more.parse::<usize>().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            };
            if next > 0 && first > next {
                out.push_str("...\n");
            }
            let chosen =
                lines.get(first..=last).ok_or_else(|| format!("the answer has no {rest} lines behind {from:?}"))?;
            chosen.iter().for_each(|line| out.push_str(&format!("{line}\n")));
            next = last + 1;
        }
        Ok(format!("{out}```\n"))
    }

    /// How much was run and left out, and what took longest.
    pub fn summary(&self) -> String {
        let mut slowest: Vec<&(Duration, String)> = self.took.iter().collect();
        slowest.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        let line = |(took, command): &&(Duration, String)| format!("\n{:6.1} s  {command}", took.as_secs_f64());
        let slowest: String = slowest.iter().take(SLOWEST).map(line).collect();
        let left: Vec<&str> = self.left_out.iter().map(String::as_str).collect();
        let rest = if left.is_empty() { String::new() } else { format!("; left out: {}", left.join(", ")) };
        format!("{} commands run{rest}{slowest}", self.took.len())
    }
}

fn full() -> bool {
    std::env::var_os("FLOWSPACE_FIGURES_FULL").is_some()
}

/// The rows of a CSV.
pub fn table(path: &Path) -> Result<Vec<BTreeMap<String, String>>, String> {
    let mut reader = csv::Reader::from_path(path).map_err(|e| format!("{}: {e}", path.display()))?;
    reader.deserialize().map(|row| row.map_err(|e: csv::Error| e.to_string())).collect()
}
