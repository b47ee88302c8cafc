//! Field paths of a study (`system.chip.cores`): checked against the schema of the files they point into, and applied
//! to located trees.
//!
//! The schema that `flowspace schema` prints is also what says whether a path leads anywhere, so a field that is added
//! to a chip can be an axis of a study without a line here. It says as well which values name other files; those are
//! read once, when the study is loaded ([`Fields::freeze`]), so that a file changed during a long run changes nothing.

use crate::spec::nearest::nearest;
use crate::spec::{FromNode, Loader, Node, Origin, Problem, Problems, Value, schema};
use crate::system::System;
use crate::workload::WorkloadSpec;
use serde_json::Value as Json;
use std::fmt;
use std::sync::LazyLock;

use super::spec::SolveSpec;

/// The three trees that the fields of a study belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Root {
    /// `workload`
    Workload,
    /// `system`
    System,
    /// `solve`
    Solve,
}

impl Root {
    /// Every root.
    pub const ALL: [Self; 3] = [Self::Workload, Self::System, Self::Solve];

    /// The first segment of its paths.
    pub fn word(self) -> &'static str {
        match self {
            Self::Workload => "workload",
            Self::System => "system",
            Self::Solve => "solve",
        }
    }
}

/// A field of the workload, the system or the solve settings: `system.network.dimensions.0.link`, or with `*` for every
/// entry of a list `system.network.dimensions.*.link`. The root alone stands for the whole tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldPath {
    /// The tree.
    pub root: Root,
    /// Keys and list positions (or `*`) from the root down.
    pub segments: Vec<String>,
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root.word())?;
        self.segments.iter().try_for_each(|segment| write!(f, ".{segment}"))
    }
}

impl FieldPath {
    /// Reads a path and checks that the schema has such a field.
    ///
    /// # Errors
    /// What is wrong with the path, naming the nearest field.
    pub fn parse(text: &str) -> Result<Self, String> {
        // As messages write the places of a list, with dots and brackets or with brackets alone.
        let dotted = text.replace(".[", "[").replace('[', ".").replace(']', "");
        let mut words = dotted.split('.');
        let first = words.next().unwrap_or_default();
        let root = Root::ALL.into_iter().find(|r| r.word() == first).ok_or_else(|| {
            let roots = Root::ALL.map(Root::word);
            let below = |root: &str| Self::parse(&format!("{root}.{text}")).is_ok();
            match nearest(first, &roots) {
                None if roots.iter().any(|root| below(root)) => {
                    let whole: Vec<String> =
                        roots.iter().filter(|root| below(root)).map(|root| format!("\"{root}.{text}\"")).collect();
                    format!("unknown field {text:?}; did you mean {}?", whole.join(" or "))
                }
                Some(near) => format!("unknown field {text:?}; did you mean {near:?} for {first:?}?"),
                None => format!("unknown field {text:?}; a field starts with workload., system. or solve."),
            }
        })?;
        let path = Self { root, segments: words.map(str::to_string).collect() };
        Fields::get().at(&path).map(|_| path)
    }

    /// Whether setting this field leaves nothing of what `before` was set to.
    pub fn hides(&self, before: &Self) -> bool {
        self.root == before.root
            && self.segments.len() <= before.segments.len()
            && self
                .segments
                .iter()
                .zip(&before.segments)
                .all(|(one, other)| one == other || (one == EVERY && other.parse::<usize>().is_ok()))
    }
}

/// The schemas of the three trees.
#[derive(Debug)]
pub struct Fields {
    workload: Json,
    system: Json,
    solve: Json,
}

/// What numbers a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amounts<'s> {
    /// Any.
    Numbers,
    /// Whole ones.
    Whole,
    /// With a unit, as in this example.
    Quantity(&'s str),
    /// None.
    None,
}

/// The segment that stands for every entry of a list.
const EVERY: &str = "*";

fn is_entry(segment: &str) -> bool {
    segment == EVERY || segment.parse::<usize>().is_ok()
}

/// What a value may be: the alternatives of its schema, references resolved.
type Alternatives<'s> = Vec<&'s Json>;

impl Fields {
    /// The schemas, built once.
    pub fn get() -> &'static Self {
        static FIELDS: LazyLock<Fields> = LazyLock::new(|| Fields {
            workload: document::<WorkloadSpec>(),
            system: document::<System>(),
            solve: document::<SolveSpec>(),
        });
        &FIELDS
    }

    fn document(&self, root: Root) -> &Json {
        match root {
            Root::Workload => &self.workload,
            Root::System => &self.system,
            Root::Solve => &self.solve,
        }
    }

    /// The alternatives at a path.
    fn at(&self, path: &FieldPath) -> Result<Alternatives<'_>, String> {
        let document = self.document(path.root);
        let mut here = flat(document, document);
        let mut so_far = path.root.word().to_string();
        for segment in &path.segments {
            let below = child(&here, segment, document);
            if below.is_empty() {
                return Err(dead_end(&here, &so_far, segment, path));
            }
            here = below;
            so_far = format!("{so_far}.{segment}");
        }
        Ok(here)
    }

    /// What numbers the field at a path takes.
    pub fn amounts(&self, path: &FieldPath) -> Amounts<'_> {
        let here = self.at(path).unwrap_or_default();
        let is = |kind: &str| here.iter().any(|schema| schema.get("type").and_then(Json::as_str) == Some(kind));
        let example = here.iter().find_map(|schema| schema.get("examples")?.get(0)?.as_str());
        match example {
            _ if is("number") => Amounts::Numbers,
            Some(example) => Amounts::Quantity(example),
            None if is("integer") => Amounts::Whole,
            None => Amounts::None,
        }
    }

    /// `node`, to stand at `path`, with every file it names read in. Problems are noted in `problems`; where there are
    /// any the node is as far as it could be read.
    pub fn freeze(&self, node: &Node, path: &FieldPath, problems: &mut Vec<Problem>) -> Node {
        let document = self.document(path.root);
        let here = self.at(path).unwrap_or_default();
        // A whole tree may always be named by its file, like the part of a system that has a file of its own.
        let whole = path.segments.is_empty() && path.root != Root::Solve;
        freeze(node.clone(), &here, whole, document, &path.to_string(), problems)
    }
}

fn document<T: FromNode>() -> Json {
    schema::document::<T>("")
}

/// The alternatives of a schema: references followed, choices unfolded. A structure's own `anyOf` (which keys it
/// requires) is no choice of what it is.
fn flat<'s>(schema: &'s Json, document: &'s Json) -> Alternatives<'s> {
    if let Some(name) = schema.get("$ref").and_then(Json::as_str).and_then(|r| r.strip_prefix("#/$defs/")) {
        return match document.get("$defs").and_then(|d| d.get(name)) {
            Some(target) => flat(target, document),
            None => Vec::new(),
        };
    }
    if is_structure(schema) {
        return vec![schema];
    }
    match ["anyOf", "oneOf"].iter().find_map(|key| schema.get(key).and_then(Json::as_array)) {
        Some(choices) => choices.iter().flat_map(|choice| flat(choice, document)).collect(),
        None => vec![schema],
    }
}

fn is_structure(schema: &Json) -> bool {
    schema.get("properties").is_some_and(Json::is_object)
}

/// The alternatives of the field or entry `segment` below any of `here`.
fn child<'s>(here: &[&'s Json], segment: &str, document: &'s Json) -> Alternatives<'s> {
    here.iter()
        .flat_map(|schema| {
            // `from` is notation, not a field: by the time a path is applied it has been replaced by its file.
            let named = schema.get("properties").and_then(|p| p.get(segment)).filter(|_| segment != "from");
            let any = schema.get("additionalProperties").filter(|a| a.is_object());
            let entry = schema.get("items").filter(|_| is_entry(segment));
            named.or(any).or(entry)
        })
        .flat_map(|schema| flat(schema, document))
        .collect()
}

/// Why nothing is below `here`.
fn dead_end(here: &[&Json], so_far: &str, segment: &str, path: &FieldPath) -> String {
    let mut keys: Vec<&str> = here
        .iter()
        .filter_map(|schema| schema.get("properties").and_then(Json::as_object))
        .flat_map(|properties| properties.keys().map(String::as_str))
        .filter(|key| *key != "from")
        .collect();
    keys.dedup();
    if here.iter().any(|schema| schema.get("items").is_some()) {
        return format!(
            "{path:?} leads nowhere: {so_far} is a list, name its entry by number, or all: {so_far}.0, {so_far}.*",
            path = path.to_string()
        );
    }
    let remedy = match nearest(segment, &keys) {
        Some(near) => format!("did you mean {near:?}?"),
        None if keys.is_empty() => format!("{so_far} has no fields of its own"),
        None => format!("fields of {so_far}: {}", keys.join(", ")),
    };
    format!("unknown field {:?}; {remedy}", path.to_string())
}

fn freeze(
    node: Node,
    here: &[&Json],
    named_by_file: bool,
    document: &Json,
    field: &str,
    problems: &mut Vec<Problem>,
) -> Node {
    let structure = here.iter().any(|schema| is_structure(schema));
    let text = here.iter().any(|s| s.get("type").and_then(Json::as_str) == Some("string") && s.get("const").is_none());
    let reference = match &node.value {
        Value::Scalar { .. } => structure && (text || named_by_file),
        Value::Map(_) => structure && node.get("from").is_some(),
        _ => false,
    };
    let mut node = if reference {
        let named = match &node.value {
            Value::Scalar { text, .. } => WorkloadSpec::named(text, &node.origin),
            _ => None,
        };
        match named.unwrap_or_else(|| Loader.expand(&node, field).map_err(Problems::from)) {
            Ok(expanded) => expanded,
            Err(found) => {
                problems.extend(found.0);
                return node;
            }
        }
    } else {
        node
    };
    let mut below = |child_node: &mut Node, key: &str| {
        let alternatives = child(here, key, document);
        if !alternatives.is_empty() {
            *child_node =
                freeze(child_node.clone(), &alternatives, false, document, &format!("{field}.{key}"), problems);
        }
    };
    match &mut node.value {
        Value::Map(entries) => entries.iter_mut().for_each(|(key, _, child)| below(child, key)),
        Value::List(items) => items.iter_mut().enumerate().for_each(|(i, item)| below(item, &i.to_string())),
        _ => {}
    }
    node
}

/// Sets the field `segments` of `tree` to `value`. `origin` is where the study says so, `path` the whole path for
/// messages. Mappings on the way that are left out in the tree begin empty.
///
/// # Errors
/// A [`Problem`] where the path leads nowhere in this tree, such as past the end of a list.
pub fn set(
    tree: &mut Node,
    segments: &[String],
    value: &Node,
    origin: &Origin,
    path: &FieldPath,
) -> Result<(), Problem> {
    let Some((segment, rest)) = segments.split_first() else {
        *tree = value.clone();
        return Ok(());
    };
    let problem = |message: String| Problem { origin: origin.clone(), field: path.to_string(), message };
    if tree.value == Value::Null {
        tree.value = Value::Map(Vec::new());
    }
    match &mut tree.value {
        Value::Map(entries) => {
            if !entries.iter().any(|(key, _, _)| key == segment) {
                entries.push((segment.clone(), origin.clone(), Node { origin: origin.clone(), value: Value::Null }));
            }
            let Some((_, place, child)) = entries.iter_mut().find(|(key, _, _)| key == segment) else { return Ok(()) };
            if rest.is_empty() {
                *place = origin.clone();
            }
            // `model: dfmodel` is short for `model: {preset: dfmodel}`.
            if segment == "model" && !rest.is_empty() && matches!(child.value, Value::Scalar { .. }) {
                let preset = child.clone();
                child.value = Value::Map(vec![("preset".into(), preset.origin.clone(), preset)]);
            }
            let missing_list = child.value == Value::Null && rest.first().is_some_and(|s| is_entry(s));
            if missing_list {
                return Err(problem(format!("leads nowhere: there is no list {segment:?} at this point")));
            }
            set(child, rest, value, origin, path)
        }
        Value::List(items) if segment == EVERY => {
            items.iter_mut().try_for_each(|item| set(item, rest, value, origin, path))
        }
        Value::List(items) => {
            let count = items.len();
            match segment.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
                Some(item) => set(item, rest, value, origin, path),
                None => {
                    Err(problem(format!("leads nowhere: the list has {count} entries at this point, counted from 0")))
                }
            }
        }
        _ => Err(problem(format!("leads nowhere: {} has no field {segment:?}", tree.describe()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).unwrap()
    }

    fn yaml(text: &str) -> Node {
        Node::parse("t.yaml", text).unwrap()
    }

    fn apply(tree: &str, field: &str, value: &str) -> Result<serde_json::Value, String> {
        let mut tree = yaml(tree);
        let path = path(field);
        let value = yaml(value);
        set(&mut tree, &path.segments, &value, &value.origin, &path).map_err(|p| p.to_string())?;
        Ok(tree.to_json())
    }

    #[test]
    fn paths_are_checked_against_the_schema() {
        for good in [
            "system",
            "workload",
            "workload.global_batch",
            "workload.kernels.3.flop",
            "system.chip",
            "system.chip.cores",
            "system.chip.source.cores",
            "system.network.dimensions.0.link.bandwidth",
            "system.network.dimensions.*.link",
            "system.model.pipeline",
            "solve.tp",
        ] {
            assert_eq!(path(good).to_string(), good);
        }
        for brackets in ["system.network.dimensions.[1].size", "system.network.dimensions[1].size"] {
            assert_eq!(path(brackets).to_string(), "system.network.dimensions.1.size");
        }
        let wrong = |text: &str| FieldPath::parse(text).unwrap_err();
        assert!(wrong("sytem.chip").contains("did you mean \"system\""), "{}", wrong("sytem.chip"));
        assert!(wrong("system.chpi").contains("did you mean \"chip\""));
        assert!(wrong("system.chip.zzzzzzz").contains("fields of system.chip: "));
        assert!(wrong("system.chip.cores.x").contains("has no fields of its own"));
        assert!(wrong("system.network.dimensions.link").contains("system.network.dimensions.0"));
        assert!(wrong("system.chip.from").contains("unknown field"));
        assert!(wrong("").contains("starts with"));
        assert!(wrong("chip.cores").contains("did you mean \"system.chip.cores\"?"), "{}", wrong("chip.cores"));
        assert!(wrong("system.").contains("unknown field"));
    }

    #[test]
    fn values_are_set_where_the_path_leads() {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(apply("{chip: {cores: 1}}", "system.chip.cores", "7"), Ok(json(r#"{"chip":{"cores":7}}"#)));
        assert_eq!(
            apply("{name: x}", "system.model.pipeline", "1f1b"),
            Ok(json(r#"{"name":"x","model":{"pipeline":"1f1b"}}"#))
        );
        assert_eq!(
            apply("model: dfmodel", "system.model.pipeline", "1f1b"),
            Ok(json(r#"{"model":{"preset":"dfmodel","pipeline":"1f1b"}}"#))
        );
        assert_eq!(
            apply("{network: {dimensions: [{size: 2}, {size: 4}]}}", "system.network.dimensions.1.size", "8"),
            Ok(json(r#"{"network":{"dimensions":[{"size":2},{"size":8}]}}"#))
        );
        assert_eq!(
            apply("{network: {dimensions: [{size: 2}, {size: 4}]}}", "system.network.dimensions.*.size", "8"),
            Ok(json(r#"{"network":{"dimensions":[{"size":8},{"size":8}]}}"#))
        );
        assert_eq!(apply("{a: 1}", "system", "{b: 2}"), Ok(json(r#"{"b":2}"#)));
    }

    #[test]
    fn a_field_hides_what_it_is_a_whole_of() {
        let hides = |one: &str, other: &str| path(one).hides(&path(other));
        assert!(hides("system.chip", "system.chip.cores") && !hides("system.chip.cores", "system.chip"));
        assert!(hides("system.network.dimensions.*.link", "system.network.dimensions.1.link.latency"));
        assert!(!hides("system.network.dimensions.1.link", "system.network.dimensions.*.link"));
        assert!(!hides("system.memory", "system.chip"));
    }

    #[test]
    fn paths_that_lead_nowhere_in_a_tree_say_so() {
        let past = apply("{network: {dimensions: [{size: 2}]}}", "system.network.dimensions.1.size", "8").unwrap_err();
        assert!(
            past.contains("t.yaml:1: system.network.dimensions.1.size: leads nowhere: the list has 1 entries"),
            "{past}"
        );
        let none = apply("{network: {}}", "system.network.dimensions.1.size", "8").unwrap_err();
        assert!(none.contains("no list \"dimensions\""), "{none}");
        let text = apply("{chip: 3}", "system.chip.cores", "8").unwrap_err();
        assert!(text.contains("has no field \"cores\""), "{text}");
    }
}
