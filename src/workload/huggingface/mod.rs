//! Models as Hugging Face's `config.json` describes them, as language models of ours.
//!
//! `hf:config.json` stands for a workload of `kind: language_model`; fields may follow as in a URL
//! (`hf:config.json?pass=inference&generated=128`). A configuration says what a model is and nothing of what is done with it: pass,
//! sequence length and batch are options, and what is assumed where they are left out is told. Each family's layer is as its
//! code in `transformers` builds it ([`families`]); a `model_type` that is none of them is read by its fields, and every assumption is
//! noted.

mod beside;
pub mod config;
mod defaults;
pub mod families;
mod parts;
mod structure;
mod surrogates;
#[cfg(test)]
mod tests;
mod variants;

use crate::spec::{Loader, Node, Origin, Problem, Problems, Value};
use config::Config;
use std::path::Path;

/// What the texts of workloads that are configurations begin with.
pub const SCHEME: &str = "hf:";

/// Largest file whose escapes are looked at: a configuration has some kilobytes.
const MOST_BYTES: u64 = 64 << 20;

/// A configuration read.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The tree of a language model. Fields know where in the configuration they come from.
    pub tree: Node,
    /// What was assumed or left out: one sentence each.
    pub notes: Vec<String>,
}

/// The configuration that `hf:PATH?field=value&...` names; `None` for other texts.
///
/// # Errors
/// As [`read`].
pub fn named(text: &str) -> Option<Result<Imported, Problems>> {
    let rest = text.strip_prefix(SCHEME)?;
    let (path, fields) = rest.split_once('?').unwrap_or((rest, ""));
    let options: Vec<(String, String)> = fields
        .split('&')
        .filter(|field| !field.is_empty())
        .map(|field| {
            let (key, value) = field.split_once('=').unwrap_or((field, "true"));
            (key.to_string(), value.to_string())
        })
        .collect();
    Some(read(Path::new(path), &options))
}

/// Reads a configuration; `options` set fields of the language model (dots lead into its mappings).
///
/// # Errors
/// All [`Problems`] of the configuration: what is missing, is not what it should be, or contradicts something else.
pub fn read(path: &Path, options: &[(String, String)]) -> Result<Imported, Problems> {
    let node = load(path)?;
    if !matches!(node.value, Value::Map(_)) {
        let message = format!("expected a config.json (an object of fields), found {}", node.describe());
        return Err(Problem { origin: node.origin.clone(), field: String::new(), message }.into());
    }
    let mut config = Config::new(&node);
    let mut tree = Tree::new(&node);
    families::model(&mut config, &mut tree, options);
    let Config { mut problems, notes, .. } = config;
    if !problems.is_empty() {
        problems.sort_by_key(|p| p.origin.line);
        return Err(Problems(problems));
    }
    let mut tree = tree.finish(&name(&node, path), &notes);
    let origin = Origin::named("<command line>");
    for (key, value) in options {
        set(&mut tree, key, &origin, value);
    }
    Ok(Imported { tree, notes })
}

/// The tree of a file, of JSON whose characters are escaped in pairs too.
fn load(path: &Path) -> Result<Node, Problem> {
    Loader.load(path, None).or_else(|problem| {
        // What the loader does not open for its kind is not opened here either.
        let plain = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MOST_BYTES);
        let text = if plain { std::fs::read_to_string(path).ok() } else { None };
        match text.as_deref().and_then(surrogates::joined) {
            Some(text) => Node::parse(&path.display().to_string(), &text),
            None => Err(problem),
        }
    })
}

/// What the model is called: as the configuration says, else as its folder is, else as its type.
fn name(node: &Node, path: &Path) -> String {
    let text = |key: &str| match node.get(key).map(|n| &n.value) {
        Some(Value::Scalar { text, .. }) if !text.trim().is_empty() => Some(text.clone()),
        _ => None,
    };
    let last = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
    let stated = text("_name_or_path").and_then(|name| last(Path::new(&name)));
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).filter(|s| s != "config");
    let folder = || path.parent().and_then(last);
    stated.or(stem).or_else(folder).or_else(|| text("model_type")).unwrap_or_else(|| "model".into())
}

/// Sets a field of a tree, by a dotted path.
fn set(tree: &mut Node, key: &str, origin: &Origin, value: &str) {
    match key.split_once('.') {
        Some((first, rest)) => {
            let mut child = tree.get(first).cloned().unwrap_or(Node { origin: origin.clone(), value: Value::Null });
            set(&mut child, rest, origin, value);
            tree.set(first, origin.clone(), child);
        }
        None => tree.set(key, origin.clone(), Node::scalar(value, origin.clone())),
    }
}

/// The tree of a language model under construction.
#[derive(Debug)]
pub struct Tree {
    node: Node,
}

impl Tree {
    fn new(of: &Node) -> Self {
        Self { node: Node { origin: of.origin.clone(), value: Value::Map(Vec::new()) } }
    }

    /// Sets a field to a value that stood at `origin`.
    pub fn set(&mut self, key: &str, origin: &Origin, value: impl ToString) {
        self.node.set(key, origin.clone(), Node::scalar(value.to_string(), origin.clone()));
    }

    /// Sets a field of a mapping below `part`.
    pub fn set_in(&mut self, part: &str, key: &str, origin: &Origin, value: impl ToString) {
        let mut child =
            self.node.get(part).cloned().unwrap_or(Node { origin: origin.clone(), value: Value::Map(Vec::new()) });
        child.set(key, origin.clone(), Node::scalar(value.to_string(), origin.clone()));
        self.node.set(part, origin.clone(), child);
    }

    /// With kind, name and source before everything else.
    fn finish(self, name: &str, notes: &[String]) -> Node {
        let origin = self.node.origin.clone();
        let text =
            |text: &str| Node { origin: origin.clone(), value: Value::Scalar { text: text.to_string(), quoted: true } };
        let file = Path::new(origin.file.as_ref()).file_name().map(|n| n.to_string_lossy().into_owned());
        let mut source = format!("published: Hugging Face {}", file.as_deref().unwrap_or("config.json"));
        if !notes.is_empty() {
            source.push_str("; ");
            source.push_str(&notes.join("; "));
        }
        let mut entries = vec![
            ("kind".to_string(), origin.clone(), Node::scalar("language_model", origin.clone())),
            ("name".to_string(), origin.clone(), text(name)),
            ("source".to_string(), origin.clone(), text(&source)),
        ];
        if let Value::Map(rest) = self.node.value {
            entries.extend(rest);
        }
        Node { origin, value: Value::Map(entries) }
    }
}

/// The workload file that says the same.
pub fn yaml(imported: &Imported, from: &str) -> String {
    let mut out = format!("# Made by: flowspace import hf {from}\n");
    for note in &imported.notes {
        out.push_str(&format!("# {note}\n"));
    }
    let scalar = |node: &Node| match &node.value {
        // A JSON text is a YAML text.
        Value::Scalar { text, quoted } => {
            let plain = !quoted && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
            if plain { text.clone() } else { serde_json::Value::String(text.clone()).to_string() }
        }
        _ => String::new(),
    };
    if let Value::Map(entries) = &imported.tree.value {
        for (key, _, node) in entries {
            match &node.value {
                Value::Map(fields) => {
                    let inner: Vec<String> = fields.iter().map(|(k, _, n)| format!("{k}: {}", scalar(n))).collect();
                    out.push_str(&format!("{key}: {{ {} }}\n", inner.join(", ")));
                }
                _ => out.push_str(&format!("{key}: {}\n", scalar(node))),
            }
        }
    }
    out
}
