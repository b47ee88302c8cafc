//! The axes of a study, resolved: labels, and the fields each of them sets.

use super::field::{FieldPath, Fields, Root};
use super::spec::{AxisOrder, AxisSpec, is_plain};
use crate::spec::{Node, Origin, Reader, Value};
use crate::units::{Bandwidth, Bytes, Frequency, Quantity};
use std::collections::HashMap;
use std::path::Path;

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Name, the header of its column.
    pub name: String,
    /// Its labelled values, at least one.
    pub values: Vec<AxisValue>,
    /// Where each has no less of anything than the one before: their positions from the least to the most.
    pub ranks: Option<Vec<usize>>,
}

/// One value of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisValue {
    /// What the rows call it.
    pub label: String,
    /// The fields it sets.
    pub overrides: Vec<Override>,
}

/// A field and what it is set to.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// The field.
    pub path: FieldPath,
    /// The value, with every file it names read in.
    pub value: Node,
    /// Where the study says so.
    pub origin: Origin,
}

/// Resolves an axis; notes every problem.
pub(super) fn resolve(spec: &AxisSpec, node: &Node, reader: &mut Reader) -> Option<Axis> {
    let name = spec.name.0.clone();
    if !is_plain(&name, "-_") {
        let at = node.get("name").unwrap_or(node);
        let message = format!("expected letters, digits, - and _ alone (it heads a column), found {name:?}");
        reader.within("name", |r| r.problem(at, message));
    }
    let values = match (&spec.field, &spec.values, &spec.points) {
        (Some(_), Some(values), None) => shorthand(values, node, reader),
        (None, None, Some(_)) => labelled(node, reader),
        (Some(_), None, None) => {
            reader.within("values", |r| r.problem(node, "missing; a field needs the list of its values"));
            None
        }
        (None, Some(_), None) => {
            reader.within("field", |r| r.problem(node, "missing; values need the field that takes them"));
            None
        }
        (None, None, None) => {
            reader.problem(node, "an axis needs either a field and its values, or points");
            None
        }
        _ => {
            let at = node.get("points").unwrap_or(node);
            reader.within("points", |r| {
                r.problem(at, "an axis has either a field and its values, or points, not both");
            });
            None
        }
    }?;
    unique(&values, reader);
    let values: Vec<AxisValue> = values.into_iter().map(|(value, _)| value).collect();
    let ranks = match spec.order {
        Some(AxisOrder::Ascending) => Some((0..values.len()).collect()),
        Some(AxisOrder::Descending) => Some((0..values.len()).rev().collect()),
        Some(AxisOrder::Unordered) => None,
        None => by_field(&values),
    };
    Some(Axis { name, values, ranks })
}

/// Fields of which more is never slower and never cheaper.
const GROWING: [&str; 4] = ["bandwidth", "capacity", "sram", "frequency"];

/// The order of values of one field that is known to act so, by how much they are.
fn by_field(values: &[AxisValue]) -> Option<Vec<usize>> {
    let amount = |value: &AxisValue| match value.overrides.as_slice() {
        [Override { path, value, .. }] if path.root == Root::System => {
            let grows = path.segments.last().is_some_and(|name| GROWING.contains(&name.as_str()));
            let text = text(value);
            let bytes = || Bytes::parse(&text).map(Quantity::base).ok();
            let bandwidth = || Bandwidth::parse(&text).map(Quantity::base).ok();
            let frequency = || Frequency::parse(&text).map(Quantity::base).ok();
            grows.then(|| bytes().or_else(bandwidth).or_else(frequency)).flatten()
        }
        _ => None,
    };
    let amounts: Vec<f64> = values.iter().map(amount).collect::<Option<_>>()?;
    let mut ranks: Vec<usize> = (0..values.len()).collect();
    ranks.sort_by(|a, b| amounts[*a].total_cmp(&amounts[*b]));
    Some(ranks)
}

/// `field:` and `values:`.
fn shorthand(values: &[Node], node: &Node, reader: &mut Reader) -> Option<Vec<(AxisValue, Origin)>> {
    let field = node.get("field").unwrap_or(node);
    let path = path(&text(field), field, "field", reader);
    if values.is_empty() {
        let at = node.get("values").unwrap_or(node);
        reader.within("values", |r| r.problem(at, "the list is empty, so the grid would be; give at least one value"));
    }
    let path = path?;
    let read: Vec<Option<(AxisValue, Origin)>> = values
        .iter()
        .enumerate()
        .map(|(i, value)| {
            reader.within(format!("values.[{i}]"), |r| {
                let label = label(value).or_else(|| {
                    r.problem(value, format!("{} has no label of its own; name it under points", value.describe()));
                    None
                });
                let value = frozen(value, &path, r)?;
                let origin = value.origin.clone();
                let overrides = vec![Override { path: path.clone(), value, origin: origin.clone() }];
                Some((AxisValue { label: label?, overrides }, origin))
            })
        })
        .collect();
    read.into_iter().collect::<Option<Vec<_>>>().filter(|v| !v.is_empty())
}

/// `points:`.
fn labelled(node: &Node, reader: &mut Reader) -> Option<Vec<(AxisValue, Origin)>> {
    let points = node.get("points")?;
    let Value::Map(entries) = &points.value else { return None };
    if entries.is_empty() {
        reader.within("points", |r| {
            r.problem(points, "there are no points, so the grid would be empty; give at least one");
        });
    }
    let read: Vec<Option<(AxisValue, Origin)>> = entries
        .iter()
        .map(|(label, origin, fields)| {
            reader.within(format!("points.{label}"), |r| {
                if label.trim().is_empty() || label.contains('\n') {
                    r.problem(fields, "expected a label on one line");
                }
                let Value::Map(fields) = &fields.value else { return None };
                let overrides: Vec<Option<Override>> =
                    fields.iter().map(|(field, place, value)| field_override(field, place, value, r)).collect();
                let overrides = overrides.into_iter().collect::<Option<Vec<_>>>()?;
                Some((AxisValue { label: label.clone(), overrides }, origin.clone()))
            })
        })
        .collect();
    read.into_iter().collect::<Option<Vec<_>>>().filter(|v| !v.is_empty())
}

/// `field: value` of a table of fields, at `place`.
pub(super) fn field_override(field: &str, place: &Origin, value: &Node, reader: &mut Reader) -> Option<Override> {
    let at = Node { origin: place.clone(), value: Value::Null };
    let path = path(field, &at, field, reader)?;
    let value = reader.within(field.to_string(), |r| frozen(value, &path, r))?;
    Some(Override { path, value, origin: place.clone() })
}

fn text(node: &Node) -> String {
    match &node.value {
        Value::Scalar { text, .. } => text.clone(),
        _ => String::new(),
    }
}

fn path(text: &str, at: &Node, field: &str, reader: &mut Reader) -> Option<FieldPath> {
    match FieldPath::parse(text) {
        Ok(path) => Some(path),
        Err(message) => {
            reader.within(field.to_string(), |r| r.problem(at, message));
            None
        }
    }
}

fn frozen(value: &Node, path: &FieldPath, reader: &mut Reader) -> Option<Node> {
    let mut problems = Vec::new();
    let mut frozen = Fields::get().freeze(value, path, &mut problems);
    // Where a point cannot be built, the study's line says more than the first line of the file it names.
    frozen.origin = value.origin.clone();
    let read = problems.is_empty();
    for mut problem in problems {
        if problem.origin.file == value.origin.file {
            problem.field = reader.field();
        }
        reader.push(problem);
    }
    read.then_some(frozen)
}

/// What the rows call a value of the shorthand: the name of a file without folder and extension, or the text.
fn label(value: &Node) -> Option<String> {
    let text = match &value.value {
        Value::Scalar { text, .. } => text.as_str(),
        Value::Null => "null",
        _ => return None,
    };
    let path = Path::new(text);
    let is_file = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
    let stem = path.file_stem().filter(|_| is_file).map(|s| s.to_string_lossy().into_owned());
    Some(stem.unwrap_or_else(|| text.to_string())).filter(|label| !label.trim().is_empty() && !label.contains('\n'))
}

fn unique(values: &[(AxisValue, Origin)], reader: &mut Reader) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (value, origin) in values {
        if let Some(first) = seen.insert(&value.label, origin.line) {
            let at = Node { origin: origin.clone(), value: Value::Null };
            reader.problem(
                &at,
                format!("label {:?} stands twice (first on line {first}); name them under points", value.label),
            );
        }
    }
}
