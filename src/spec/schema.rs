//! JSON Schema (draft 2020-12) of the specification files, built from the same definitions that read them.

use super::read::FromNode;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Named sub-schemas met so far, and of each structure what a page of documentation says of it.
#[derive(Debug, Default)]
pub struct Definitions {
    named: Map<String, Value>,
    structures: Vec<Structure>,
}

/// A structure as its page describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Structure {
    /// Its name in `$defs`.
    pub name: String,
    /// What messages call it ("a chip").
    pub title: String,
    /// What it is.
    pub description: String,
    /// Its fields in the order in which they are defined.
    pub fields: Vec<Field>,
}

/// A field of a [`Structure`].
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its key in files.
    pub key: String,
    /// What it means.
    pub doc: String,
    /// The schema of its notation.
    pub notation: Value,
    /// What holds where it is left out; `None`: nothing does, or what its meaning says.
    pub default: Option<Value>,
    /// Whether it must be there.
    pub required: bool,
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

    /// The structures met so far, the outer ones behind those that they are made of.
    pub fn structures(&self) -> &[Structure] {
        &self.structures
    }

    /// Says what holds where `key` of the structure `name` is left out, for a default that depends on another key.
    pub fn note_default(&mut self, name: &str, key: &str, default: Value, remark: &str) {
        if let Some(field) = self.named.get_mut(name).and_then(|s| s.pointer_mut(&format!("/properties/{key}"))) {
            field["default"] = default.clone();
        }
        let known = self.structures.iter_mut().find(|s| s.name == name);
        if let Some(field) = known.and_then(|s| s.fields.iter_mut().find(|f| f.key == key))
            && field.default.is_none()
        {
            field.default = Some(default);
            field.doc = format!("{} {remark}", field.doc).trim_end().to_string();
        }
    }
}

/// An object schema under construction.
#[derive(Debug)]
pub struct Object {
    structure: Structure,
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl Object {
    /// Starts the object `name` with its title and description.
    pub fn new(name: &str, title: &str, description: &str) -> Self {
        let structure =
            Structure { name: name.into(), title: title.into(), description: tidy(description), fields: Vec::new() };
        Self { structure, properties: Map::new(), required: Vec::new() }
    }

    /// Adds a field of type `T`. Where it is `completed`, what holds without it follows from other fields, as its text says.
    pub fn field<T: FromNode + Serialize>(
        &mut self,
        definitions: &mut Definitions,
        key: &str,
        doc: &str,
        default: Option<T>,
        completed: bool,
    ) {
        let notation = T::schema(definitions);
        let mut schema = notation.clone();
        // Defaults of whole structures are those of their fields.
        let written = default.as_ref().map(FromNode::written).filter(|value| !value.is_object() && !value.is_null());
        let required = default.is_none() && !completed && T::absent().is_none();
        if let Value::Object(map) = &mut schema {
            let own = map.get("description").and_then(Value::as_str).map(str::to_string);
            let text = match own {
                Some(own) => format!("{} ({own})", tidy(doc)),
                None => tidy(doc),
            };
            map.insert("description".into(), Value::String(text));
            if let Some(default) = &written {
                map.insert("default".into(), default.clone());
            }
        }
        self.properties.insert(key.to_string(), schema);
        if required {
            self.required.push(key.to_string());
        }
        let field = Field { key: key.into(), doc: tidy(doc), notation, default: written, required };
        self.structure.fields.push(field);
    }

    /// The finished schema. `from:` (a base file whose keys are then replaced) may stand in for required keys.
    pub fn finish(mut self, definitions: &mut Definitions) -> Value {
        self.properties.insert(
            "from".into(),
            json!({ "type": "string", "description": "a file whose keys are taken, then replaced by those beside this one" }),
        );
        let schema = json!({
            "type": "object",
            "title": self.structure.title,
            "description": self.structure.description,
            "properties": self.properties,
            "additionalProperties": false,
            "anyOf": [ { "required": self.required }, { "required": ["from"] } ],
        });
        definitions.structures.push(self.structure);
        schema
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
