//! Calculon's application, execution and system files as our workload, execution and system.
//!
//! There is no mode that computes as Calculon does: its model differs from ours (no embedding and head, collectives of one latency,
//! efficiency by FLOP of a call). What is written is the same machine and the same run for our model, and every field that
//! goes another way is in the report. The files are read as YAML, of which JSON is a part, for the sake of lines.

pub mod schema;
mod write;

use crate::execution::ExecutionFile;
use crate::spec::{FileKind, Node, Origin, Problem, Problems, Reader};
use crate::system::System;
use crate::workload::language::LanguageModel;
use schema::{App, Exec, Sys};
use std::fmt;

/// What became of something that did not go straight into our files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The file says it; nothing of ours says it.
    Ignored,
    /// No file says it; this was taken.
    Assumed,
    /// It means something else here than there.
    Changed,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What became of it.
    pub kind: Kind,
    /// Which of our files it concerns: workload, execution, system.
    pub part: &'static str,
    /// The field of theirs (ignored, changed) or ours (assumed).
    pub field: String,
    /// What to know.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.kind {
            Kind::Ignored => "ignored",
            Kind::Assumed => "assumed",
            Kind::Changed => "changed",
        };
        write!(f, "{word}: {}: {}", self.field, self.text)
    }
}

/// The notes so far.
#[derive(Debug, Default)]
struct Notes(Vec<Note>);

impl Notes {
    fn add(&mut self, kind: Kind, part: &'static str, field: &str, text: impl Into<String>) {
        self.0.push(Note { kind, part, field: field.into(), text: text.into() });
    }
}

/// One of the three files.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Its name, for messages.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// What an import gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// File names (without folder) and their texts.
    pub files: Vec<(String, String)>,
    /// What was left out, assumed or changed.
    pub notes: Vec<Note>,
}

/// Reads the three files and writes ours, called `<name>-workload.yaml`, `<name>-execution.yaml` and `<name>-system.yaml`.
///
/// # Errors
/// All [`Problems`] of all three files, each with file, line and field.
pub fn import(app: Input, exec: Input, system: Input, name: &str) -> Result<Imported, Problems> {
    let mut problems = Vec::new();
    let app_file = app.name.to_string();
    let app: Option<(App, Node)> = read(app, &mut problems);
    let exec: Option<(Exec, Node)> = read(exec, &mut problems);
    let system: Option<(Sys, Node)> = read(system, &mut problems);
    let (Some((app, _)), Some((exec, exec_node)), Some((system, system_node))) = (app, exec, system) else {
        return Err(Problems(problems));
    };
    across(&app, &exec, &exec_node, &system, &system_node, &app_file, &mut problems);
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let mut notes = Notes::default();
    let trees = [
        ("workload", write::workload(&app, &exec, name, &mut notes)),
        ("execution", write::execution(&app, &exec, name, &mut notes)),
        ("system", write::system(&system, &exec, name, &mut notes)),
    ];
    notes.0.sort_by_key(|n| (n.part, n.kind));
    let mut files = Vec::new();
    for (part, tree) in trees {
        let body = serde_saphyr::to_string(&tree).map_err(|e| whole(&format!("cannot write YAML: {e}")))?;
        let mut text = format!("# Imported from Calculon's files: its {part}.\n");
        for note in notes.0.iter().filter(|n| n.part == part) {
            text.push_str(&format!("# {}\n", note.to_string().replace('\n', " ")));
        }
        text.push_str(body.trim_end());
        text.push('\n');
        files.push((format!("{name}-{part}.yaml"), text));
    }
    check(&files)?;
    Ok(Imported { files, notes: notes.0 })
}

/// What to say of a text that is no JSON.
fn no_json(text: &str, error: &serde_json::Error) -> String {
    match FileKind::of_text(text) {
        Some(kind) => kind.instead_of("one of Calculon's files (JSON)"),
        None => format!("not JSON: {error}"),
    }
}

/// One file, or its problems.
fn read<T: crate::spec::FromNode>(input: Input, problems: &mut Vec<Problem>) -> Option<(T, Node)> {
    // Said by the reader of JSON where it is none; then read again with lines. A tab may stand between JSON's words only.
    if let Err(error) = serde_json::from_str::<serde_json::Value>(input.text) {
        let origin = Origin { file: input.name.into(), line: error.line() };
        problems.push(Problem { origin, field: String::new(), message: no_json(input.text, &error) });
        return None;
    }
    let node = match Node::parse(input.name, &input.text.replace('\t', " ")) {
        Ok(node) => node,
        Err(problem) => {
            problems.push(problem);
            return None;
        }
    };
    // Three files in one order: where one stands in another's place, every field of it would be told.
    const MARKS: [(&str, &str); 3] = [
        ("an application of Calculon", "hidden"),
        ("an execution of Calculon", "num_procs"),
        ("a system of Calculon", "networks"),
    ];
    let due = T::expected();
    let other = MARKS.iter().find(|(what, mark)| *what != due && node.get(mark).is_some());
    let own = MARKS.iter().any(|(what, mark)| *what == due && node.get(mark).is_some());
    if let (Some((what, _)), false) = (other, own) {
        let message = format!("this is {what}, not {due}; the order is APP.json EXECUTION.json SYSTEM.json");
        problems.push(Problem { origin: node.origin.clone(), field: String::new(), message });
        return None;
    }
    match Reader::read::<T>(&node) {
        Ok(value) => Some((value, node)),
        Err(found) => {
            problems.extend(found.0);
            None
        }
    }
}

/// What one file cannot say by itself.
fn across(
    app: &App,
    exec: &Exec,
    at: &Node,
    system: &Sys,
    system_at: &Node,
    app_file: &str,
    problems: &mut Vec<Problem>,
) {
    let mut say = |node: &Node, field: &str, message: String| {
        let origin = node.get(field).unwrap_or(node).origin.clone();
        problems.push(Problem { origin, field: field.into(), message });
    };
    for (what, size) in [("hidden", app.hidden), ("feedforward", app.feedforward), ("attn_heads", app.attn_heads)] {
        if !size.is_multiple_of(exec.tensor_par) {
            say(
                at,
                "tensor_par",
                format!("expected a divisor of {what} = {size} of {app_file}, found {}", exec.tensor_par),
            );
        }
    }
    for (field, tier) in [
        ("tensor_par_net", exec.tensor_par_net),
        ("pipeline_par_net", exec.pipeline_par_net),
        ("data_par_net", exec.data_par_net),
    ] {
        if tier.0 >= system.networks.len() {
            say(
                at,
                field,
                format!("expected the number of one of {} networks, from 0, found {}", system.networks.len(), tier.0),
            );
        }
    }
    for (field, rates) in [("matrix", &system.matrix), ("vector", &system.vector)] {
        if !rates.0.iter().any(|(name, _)| name == exec.datatype.word()) {
            let known: Vec<&str> = rates.0.iter().map(|(name, _)| name.as_str()).collect();
            say(system_at, field, format!("has no rate for {}; rates: {}", exec.datatype, known.join(", ")));
        }
    }
    let reach = system.networks.iter().map(|n| n.size).max().unwrap_or(1);
    if reach < exec.num_procs {
        say(system_at, "networks", format!("the largest joins {reach} chips, num_procs is {}", exec.num_procs));
    }
    // Blocks are rounded up to a stage's share, chunks divide that.
    let (p, v) = (exec.pipeline_par, exec.pipeline_interleaving);
    if app.num_blocks < p || app.num_blocks.div_ceil(p) < v {
        say(
            at,
            "pipeline_par",
            format!("{p} stages of {v} chunks need more blocks, {app_file} has {}", app.num_blocks),
        );
    }
}

fn whole(message: &str) -> Problems {
    Problems(vec![Problem { origin: Origin::named("calculon"), field: String::new(), message: message.into() }])
}

/// Reads what is to be written, so that nothing is written that does not read.
fn check(files: &[(String, String)]) -> Result<(), Problems> {
    let mut problems = Vec::new();
    for (name, text) in files {
        let node = Node::parse(name, text)?;
        let read = match name.rsplit('-').next() {
            Some("workload.yaml") => Reader::read::<LanguageModel>(&node).map(|_| ()),
            Some("execution.yaml") => Reader::read::<ExecutionFile>(&node).map(|_| ()),
            _ => System::build(&node).map(|_| ()),
        };
        problems.extend(read.err().map_or(Vec::new(), |p| p.0));
    }
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

#[cfg(test)]
mod tests;
