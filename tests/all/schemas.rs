//! `flowspace schema`: what it prints fits the files that are shipped.

use super::cli::{root, succeed};
use flowspace::spec::Node;
use serde_json::Value;
use std::path::PathBuf;

/// Faults of a value under a schema, for the keywords that the schemas use.
fn faults(schema: &Value, value: &Value, document: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let mut note = |text: String| out.push(text);
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "examples" | "default" => {}
            "$ref" => {
                let target = rule.as_str().unwrap().strip_prefix('#').unwrap();
                faults(document.pointer(target).expect("a reference leads somewhere"), value, document)
                    .into_iter()
                    .for_each(&mut note);
            }
            "anyOf" | "oneOf" => {
                let branches: Vec<Vec<String>> =
                    rule.as_array().unwrap().iter().map(|branch| faults(branch, value, document)).collect();
                let fitting = branches.iter().filter(|b| b.is_empty()).count();
                if fitting == 0 || (keyword == "oneOf" && fitting > 1) {
                    note(format!("{fitting} of {} fit {value}: {branches:?}", branches.len()));
                }
            }
            "type" => {
                let fits = match rule.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                if !fits {
                    note(format!("{value} is no {rule}"));
                }
            }
            "const" => {
                if rule != value {
                    note(format!("{value} is not {rule}"));
                }
            }
            "properties" | "items" | "required" | "additionalProperties" => {}
            "minimum" | "exclusiveMinimum" | "maximum" => {
                let (Some(x), Some(limit)) = (value.as_f64(), rule.as_f64()) else { continue };
                let fits = match keyword.as_str() {
                    "minimum" => x >= limit,
                    "maximum" => x <= limit,
                    _ => x > limit,
                };
                if !fits {
                    note(format!("{value} against {keyword} {rule}"));
                }
            }
            "minLength" => {
                if value.as_str().is_some_and(|s| (s.len() as u64) < rule.as_u64().unwrap()) {
                    note(format!("{value} is too short"));
                }
            }
            "minItems" => {
                if value.as_array().is_some_and(|items| (items.len() as u64) < rule.as_u64().unwrap()) {
                    note(format!("{value} has too few items"));
                }
            }
            other => panic!("the schema uses {other}, which this test does not know"),
        }
    }
    if let Some(object) = value.as_object() {
        let known = schema.get("properties").and_then(Value::as_object);
        for (key, child) in object {
            let rule = known.and_then(|k| k.get(key)).or_else(|| schema.get("additionalProperties"));
            match rule {
                Some(Value::Bool(false)) => out.push(format!("unknown key {key}")),
                Some(rule) if rule.is_object() => {
                    out.extend(faults(rule, child, document).into_iter().map(|f| format!("{key}: {f}")));
                }
                _ => {}
            }
        }
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !object.contains_key(key.as_str().unwrap()) {
                out.push(format!("{key} is missing"));
            }
        }
    }
    if let (Some(items), Some(rule)) = (value.as_array(), schema.get("items")) {
        out.extend(items.iter().flat_map(|item| faults(rule, item, document)));
    }
    out
}

/// Shipped files of each kind fit the schema of that kind, and a slip in each does not.
#[test]
fn schemas_describe_the_shipped_files() {
    let mut checked = 0;
    for (kind, folder) in [
        ("workload", "workloads"),
        ("system", "systems"),
        ("chip", "systems/chips"),
        ("memory", "systems/memories"),
        ("link", "systems/links"),
        ("switch", "systems/switches"),
        ("cores", "systems/cores"),
        ("study", "studies"),
        ("plan", "tests/golden/dfmodel"),
    ] {
        let schema: Value = serde_json::from_str(&succeed(&["schema", kind])).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(root().join(folder))
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.is_file())
            .collect();
        paths.sort();
        assert!(!paths.is_empty());
        for path in paths {
            let node = Node::parse(&path.display().to_string(), &std::fs::read_to_string(&path).unwrap()).unwrap();
            let mut value = node.to_json();
            let found = faults(&schema, &value, &schema);
            assert!(found.is_empty(), "{}: {found:#?}", path.display());
            value["colour"] = "blue".into();
            assert!(!faults(&schema, &value, &schema).is_empty(), "{}: an unknown key passes", path.display());
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked} files");
    assert!(succeed(&["schema", "columns"]).contains("iteration_s"));
}
