//! Pages of documentation for kinds of files, made from the definitions that read them ([`super::schema`]): each field with its
//! notation, default, meaning, and an example. The examples come from whole files that the real reader reads.

use super::schema::{Definitions, Field, Structure};
use super::{FromNode, Node, Problem, Value};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a page has besides the fields.
#[derive(Debug, Clone, Copy)]
pub struct Page<'p> {
    /// Its heading.
    pub title: &'p str,
    /// What stands before the fields.
    pub intro: &'p str,
    /// Whole files: what each shows, and its text.
    pub examples: &'p [(&'p str, &'p str)],
    /// Structures that have a page of their own, and its file.
    pub elsewhere: &'p [(&'p str, &'p str)],
}

/// Longest example that stands in a table; longer ones are in the whole files alone.
const MOST_CHARACTERS: usize = 64;

/// Examples by structure and key.
type Found = BTreeMap<(String, String), String>;

/// The page of files that `T` reads.
///
/// # Errors
/// The [`Problem`] of an example that is no YAML.
pub fn render<T: FromNode>(page: &Page<'_>) -> Result<String, Problem> {
    let (structures, found) = gather::<T>(page)?;
    let mut out = format!("# {}\n\n{}\n", page.title, page.intro.trim());
    let here = |name: &str| structures.iter().any(|s| s.name == name);
    let link = |name: &str, title: &str| match page.elsewhere.iter().find(|(other, _)| *other == name) {
        Some((_, file)) if !here(name) => format!("[{}]({file})", article_only(title)),
        _ => format!("[{}](#{})", article_only(title), slug(&heading(title))),
    };
    let mut definitions = Definitions::default();
    T::schema(&mut definitions);
    let titles: BTreeMap<&str, &str> =
        definitions.structures().iter().map(|s| (s.name.as_str(), s.title.as_str())).collect();
    let notation = |value: &Json| words(value, &|name| link(name, titles.get(name).copied().unwrap_or(name)));
    for structure in &structures {
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "\n## {}\n\n{}\n\n| field | notation | default | meaning | example |\n|---|---|---|---|---|\n",
            heading(&structure.title),
            structure.description
        );
        for field in &structure.fields {
            let key = (structure.name.clone(), field.key.clone());
            let example = found.get(&key).map_or(String::new(), |text| {
                if text.chars().count() > MOST_CHARACTERS { "below".into() } else { format!("`{text}`") }
            });
            let row =
                [format!("`{}`", field.key), notation(&field.notation), default(field), field.doc.clone(), example];
            let _ = writeln!(out, "| {} |", row.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
        for field in &structure.fields {
            for (word, meaning) in choices(&field.notation) {
                let _ = write!(out, "\n- `{}: {word}`: {meaning}", field.key);
            }
        }
        if structure.fields.iter().any(|f| !choices(&f.notation).is_empty()) {
            out.push('\n');
        }
    }
    out.push_str("\n## Whole files\n");
    for (what, text) in page.examples {
        let _ = write!(out, "\n{what}:\n\n```yaml\n{}\n```\n", text.trim_end());
    }
    Ok(out)
}

/// Fields on the page that no example states, as `structure.field`.
///
/// # Errors
/// The [`Problem`] of an example that is no YAML.
pub fn without_example<T: FromNode>(page: &Page<'_>) -> Result<Vec<String>, Problem> {
    let (structures, found) = gather::<T>(page)?;
    let all = structures.iter().flat_map(|s| s.fields.iter().map(move |f| (s.name.clone(), f.key.clone())));
    Ok(all.filter(|key| !found.contains_key(key)).map(|(structure, key)| format!("{structure}.{key}")).collect())
}

/// The structures of the page in the order in which a reader meets them, and the examples.
fn gather<T: FromNode>(page: &Page<'_>) -> Result<(Vec<Structure>, Found), Problem> {
    let mut definitions = Definitions::default();
    let root = T::schema(&mut definitions);
    let mut order = Vec::new();
    let roots = references(&root);
    for name in &roots {
        visit(name, &definitions, page, &mut order);
    }
    let mut found = Found::new();
    for (what, text) in page.examples {
        collect(&Node::parse(what, text)?, &root, &definitions, &mut found);
    }
    Ok((order, found))
}

fn visit(name: &str, definitions: &Definitions, page: &Page<'_>, order: &mut Vec<Structure>) {
    let Some(structure) = definitions.structures().iter().find(|s| s.name == name) else { return };
    if order.iter().any(|known| known.name == name) {
        return;
    }
    order.push(structure.clone());
    for field in &structure.fields {
        for below in references(&field.notation) {
            if !page.elsewhere.iter().any(|(other, _)| *other == below) {
                visit(&below, definitions, page, order);
            }
        }
    }
}

/// Structures that a notation refers to, in order.
fn references(notation: &Json) -> Vec<String> {
    match notation {
        Json::Object(map) => map
            .iter()
            .flat_map(|(key, value)| match value.as_str().and_then(|text| text.strip_prefix("#/$defs/")) {
                Some(name) if key == "$ref" => vec![name.to_string()],
                _ => references(value),
            })
            .collect(),
        Json::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// Notes the first example of each field that `node` states.
fn collect(node: &Node, notation: &Json, definitions: &Definitions, found: &mut Found) {
    if let Some(structure) = named(notation, definitions) {
        let Value::Map(entries) = &node.value else { return };
        for (key, _, value) in entries {
            if let Some(field) = structure.fields.iter().find(|f| f.key == *key) {
                let at = (structure.name.clone(), key.clone());
                found.entry(at).or_insert_with(|| flow(value));
                collect(value, &field.notation, definitions, found);
            }
        }
    } else if let Some(alternatives) = notation.get("anyOf").and_then(Json::as_array) {
        if let Some(fitting) = alternatives.iter().find(|a| fits(node, a, definitions)) {
            collect(node, fitting, definitions, found);
        }
    } else if let (Value::List(items), Some(each)) = (&node.value, notation.get("items")) {
        items.iter().for_each(|item| collect(item, each, definitions, found));
    } else if let (Value::Map(entries), Some(each)) = (&node.value, notation.get("additionalProperties")) {
        entries.iter().for_each(|(_, _, value)| collect(value, each, definitions, found));
    }
}

fn named<'d>(notation: &Json, definitions: &'d Definitions) -> Option<&'d Structure> {
    let name = notation.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
    definitions.structures().iter().find(|s| s.name == name)
}

/// Whether a node may be meant by one alternative of a notation.
fn fits(node: &Node, notation: &Json, definitions: &Definitions) -> bool {
    match (&node.value, named(notation, definitions)) {
        (Value::Map(entries), Some(structure)) => entries.iter().all(|(key, _, value)| {
            let field = structure.fields.iter().find(|f| f.key == *key);
            key == "from"
                || field.is_some_and(|f| match (&value.value, choices(&f.notation).as_slice()) {
                    (Value::Scalar { text, .. }, [(only, _)]) => text == only,
                    _ => true,
                })
        }),
        (Value::Map(_), None) => notation.get("additionalProperties").is_some(),
        (Value::List(_), _) => notation.get("items").is_some(),
        _ => false,
    }
}

/// A value on one line, as a file could state it.
fn flow(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".into(),
        Value::Scalar { text, quoted } => {
            let looks_plain = !text.contains([':', '#', ',', '[', ']', '{', '}', '"', '\'', '\n']);
            if looks_plain || !quoted { text.clone() } else { format!("{text:?}") }
        }
        Value::List(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, _, value)| format!("{key}: {}", flow(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
    }
}

/// What may be written, in words; `link` names a structure.
fn words(notation: &Json, link: &dyn Fn(&str) -> String) -> String {
    let text = |key: &str| notation.get(key).and_then(Json::as_str);
    if let Some(name) = text("$ref").and_then(|r| r.strip_prefix("#/$defs/")) {
        return link(name);
    }
    if let Some(alternatives) = notation.get("anyOf").and_then(Json::as_array) {
        return alternatives.iter().map(|a| words(a, link)).collect::<Vec<_>>().join(", or ");
    }
    let listed = choices(notation);
    if !listed.is_empty() {
        return listed.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(word) = text("const") {
        return format!("`{word}`");
    }
    if let Some(all) = notation.get("enum").and_then(Json::as_array) {
        return all.iter().filter_map(Json::as_str).map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    let number = |key: &str| notation.get(key).and_then(Json::as_f64);
    match text("type") {
        Some("string") => match text("description") {
            Some(known) => known.split(" such as").next().unwrap_or(known).into(),
            None => "text".into(),
        },
        Some("boolean") => "`true`, `false`".into(),
        Some(kind @ ("integer" | "number")) => {
            let kind = if kind == "integer" { "whole number" } else { "number" };
            let least = match (number("minimum"), number("exclusiveMinimum")) {
                (Some(least), _) => format!(" from {least}"),
                (_, Some(least)) => format!(" above {least}"),
                _ => String::new(),
            };
            let most = number("maximum").map_or(String::new(), |most| format!(" to {most}"));
            format!("{kind}{least}{most}")
        }
        Some("array") => format!("list: {}", notation.get("items").map_or("anything".into(), |i| words(i, link))),
        Some("object") => {
            let each = notation.get("additionalProperties").map_or("anything".into(), |i| words(i, link));
            format!("table of names: {each}")
        }
        _ => "any YAML".into(),
    }
}

/// The words of a choice and what they mean.
fn choices(notation: &Json) -> Vec<(String, String)> {
    let alternatives = notation.get("oneOf").and_then(Json::as_array);
    let word = |a: &Json, key: &str| {
        a.get(key).and_then(Json::as_str).map(|t| t.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    alternatives.into_iter().flatten().filter_map(|a| Some((word(a, "const")?, word(a, "description")?))).collect()
}

fn default(field: &Field) -> String {
    match &field.default {
        Some(Json::String(text)) => format!("`{text}`"),
        Some(other) => format!("`{other}`"),
        None if field.required => "needed".into(),
        None => "-".into(),
    }
}

/// "a model: flowspace, dfmodel, or ..." is a model.
fn article_only(title: &str) -> &str {
    title.split(':').next().unwrap_or(title)
}

/// "a network dimension" as a heading.
fn heading(title: &str) -> String {
    let bare = article_only(title);
    let bare = ["a ", "an ", "the "].iter().find_map(|article| bare.strip_prefix(article)).unwrap_or(bare);
    let mut letters = bare.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The anchor that a heading gets.
fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}
