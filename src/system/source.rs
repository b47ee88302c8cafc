//! Where a hardware number comes from.

use crate::spec::{FromNode, Node, Reader, Value, read::Table, schema::Definitions};
use serde::Serialize;
use serde_json::json;

/// The source of a part's numbers: one text for all of them, or one a field. A text starts with how far it can be
/// trusted: `datasheet`, `measured`, `published`, `derived`, `calibrated` (on which measurements) or `assumed`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Source {
    /// One source for every number.
    All(String),
    /// A source a field.
    Each(Table<String>),
}

/// First words a source may have.
const KINDS: [&str; 6] = ["datasheet", "measured", "published", "derived", "calibrated", "assumed"];

impl Source {
    /// Whether the number of a field was measured, or calibrated on measurements.
    pub fn is_measured(&self, field: &str) -> bool {
        let text = match self {
            Self::All(text) => Some(text),
            Self::Each(table) => table.0.iter().find(|(known, _)| known == field).map(|(_, text)| text),
        };
        text.is_some_and(|text| ["measured", "calibrated"].iter().any(|word| text.starts_with(word)))
    }
}

impl FromNode for Source {
    fn from_node(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::Map(_) => {
                let table = Table::<String>::from_node(node, reader)?;
                for (field, text) in &table.0 {
                    reader.within(field.clone(), |r| check_text(node.get(field).unwrap_or(node), text, r));
                }
                Some(Self::Each(table))
            }
            _ => {
                let text = String::from_node(node, reader)?;
                check_text(node, &text, reader);
                Some(Self::All(text))
            }
        }
    }
    fn schema(_: &mut Definitions) -> serde_json::Value {
        json!({ "anyOf": [
            { "type": "string", "examples": ["datasheet: NVIDIA H100, 2022"] },
            { "type": "object", "additionalProperties": { "type": "string" } }
        ] })
    }
    fn expected() -> String {
        "a source such as \"datasheet: NVIDIA H100, 2022\", or one for each field".into()
    }
}

fn check_text(node: &Node, text: &str, reader: &mut Reader) {
    let first: String = text.chars().take_while(|c| c.is_ascii_alphabetic()).collect();
    if !KINDS.contains(&first.as_str()) || text.len() < first.len() + 3 {
        reader.problem(
            node,
            format!("expected a text that starts with one of {} and then says which, found {text:?}", KINDS.join(", ")),
        );
    }
}

/// Notes every present number of `fields` that `source` does not cover, and every source of no number.
pub fn check_sources(source: &Source, fields: &[&str], node: &Node, reader: &mut Reader) {
    let Source::Each(table) = source else { return };
    for field in fields {
        if node.get(field).is_some() && !table.0.iter().any(|(f, _)| f == field) {
            let at = node.get(field).unwrap_or(node);
            reader.within(*field, |r| r.problem(at, format!("this number has no source: add {field:?} under source")));
        }
    }
    let at = node.get("source").unwrap_or(node);
    for (field, _) in &table.0 {
        if !fields.contains(&field.as_str()) {
            reader.within("source", |r| {
                r.problem(at, format!("{field:?} is not a number of this part; its numbers: {}", fields.join(", ")));
            });
        }
    }
}
