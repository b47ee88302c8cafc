//! JSON Schema (draft 2020-12) of the specification files, built from the same definitions that read them.

use super::read::FromNode;
use serde_json::{Map, Value, json};

/// Named sub-schemas met so far.
#[derive(Debug, Default)]
pub struct Definitions {
    named: Map<String, Value>,
}

impl Definitions {
    /// A reference to the schema `name`, building it at first use.
    pub fn define(&mut self, name: &str, build: impl FnOnce(&mut Self) -> Value) -> Value {
        if !self.named.contains_key(name) {
            // Held open first, so that a structure may refer to itself.
            self.named.insert(name.to_string(), Value::Null);
            let schema = build(self);
            self.named.insert(name.to_string(), schema);
        }
        json!({ "$ref": format!("#/$defs/{name}") })
    }
}

/// An object schema under construction.
#[derive(Debug)]
pub struct Object {
    description: String,
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl Object {
    /// Starts an object with a description.
    pub fn new(description: &str) -> Self {
        Self { description: tidy(description), properties: Map::new(), required: Vec::new() }
    }

    /// Adds a field of type `T`.
    pub fn field<T: FromNode>(&mut self, definitions: &mut Definitions, key: &str, doc: &str, has_default: bool) {
        let mut schema = T::schema(definitions);
        if let Value::Object(map) = &mut schema {
            let own = map.get("description").and_then(Value::as_str).map(str::to_string);
            let text = match own {
                Some(own) => format!("{} ({own})", tidy(doc)),
                None => tidy(doc),
            };
            map.insert("description".into(), Value::String(text));
        }
        self.properties.insert(key.to_string(), schema);
        if !has_default && T::absent().is_none() {
            self.required.push(key.to_string());
        }
    }

    /// The finished schema. `from:` (a base file whose keys are then replaced) may stand in for required keys.
    pub fn finish(mut self) -> Value {
        self.properties.insert(
            "from".into(),
            json!({ "type": "string", "description": "a file whose keys are taken, then replaced by those beside this one" }),
        );
        json!({
            "type": "object",
            "description": self.description,
            "properties": self.properties,
            "additionalProperties": false,
            "anyOf": [ { "required": self.required }, { "required": ["from"] } ],
        })
    }
}

/// Doc lines joined to one text.
fn tidy(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The complete schema document of `T`.
pub fn document<T: FromNode>(title: &str) -> Value {
    let mut definitions = Definitions::default();
    let root = T::schema(&mut definitions);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
    });
    if let (Value::Object(schema), Value::Object(root)) = (&mut schema, root) {
        schema.extend(root);
        schema.insert("$defs".into(), Value::Object(definitions.named));
    }
    schema
}
