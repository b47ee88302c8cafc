//! The axes of a study, resolved: labels, and the fields each of them sets.

use super::field::{Amounts, FieldPath, Fields, Root};
use super::range;
use super::spec::{AxisOrder, AxisSpec, is_plain};
use crate::spec::{Node, Origin, Reader, Value};
use crate::units::{
    Area, Bandwidth, Bytes, EnergyPerByte, EnergyPerFlop, FlopRate, Frequency, Power, Price, PricePerBandwidth,
    PricePerCapacity, Quantity, Seconds,
};
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
    /// By rank, where the axis is one of rates by which times are divided, in base units: their ratios bound how much faster more is.
    pub rates: Option<Vec<f64>>,
    /// Whether the values between two of them count too.
    pub continuous: bool,
    /// Whether it is that of several workloads, the last value being their mix ([`super::mix`]).
    pub mixes: bool,
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
    let values = match (&spec.field, &spec.values, &spec.fields, &spec.points) {
        (Some(_), Some(values), None, None) => shorthand(values, node, reader),
        (None, None, Some(_), None) => together(node, reader),
        (None, None, None, Some(_)) => labelled(node, reader),
        (Some(_), None, None, None) => {
            reader.within("values", |r| r.problem(node, "missing; a field needs the list of its values"));
            None
        }
        (None, Some(_), None, None) => {
            reader.within("field", |r| r.problem(node, "missing; values need the field that takes them"));
            None
        }
        (None, None, None, None) => {
            reader.problem(node, "an axis needs a field and its values, fields, or points");
            None
        }
        _ => {
            let name = if spec.points.is_some() { "points" } else { "fields" };
            let at = node.get(name).unwrap_or(node);
            reader.within(name, |r| {
                r.problem(at, "an axis has one of a field and its values, fields, or points");
            });
            None
        }
    }?;
    unique(&values, reader);
    let values: Vec<AxisValue> = values.into_iter().map(|(value, _)| value).collect();
    let (ranks, rates) = match spec.order {
        Some(AxisOrder::Ascending) => (Some((0..values.len()).collect()), None),
        Some(AxisOrder::Descending) => (Some((0..values.len()).rev().collect()), None),
        Some(AxisOrder::Unordered) => (None, None),
        None => by_field(&values).map_or((None, None), |(ranks, rates)| (Some(ranks), rates)),
    };
    let continuous = continuous(spec, node, ranks.is_some(), reader);
    Some(Axis { name, values, ranks, rates, continuous, mixes: false })
}

/// Whether the field of an axis takes every number with the unit of a range.
///
/// # Errors
/// What it takes instead.
fn takes_any(spec: &AxisSpec, range: &Node) -> Result<(), String> {
    let Some(path) = spec.field.as_deref().and_then(|field| FieldPath::parse(field).ok()) else { return Ok(()) };
    let text = text(range);
    match Fields::get().amounts(&path) {
        Amounts::Numbers => Ok(()),
        Amounts::Whole => {
            Err(format!("{path} takes whole numbers alone: expected a list or a range of them, found {text:?}"))
        }
        Amounts::None => Err(format!("{path} has no values between two others, found {text:?}")),
        Amounts::Quantity(example) => {
            // One number with the unit.
            let unit = text.split("..").nth(1).and_then(|high| high.split_whitespace().nth(1)).unwrap_or_default();
            let unit = if unit == "continuous" { "" } else { unit };
            parses(example, format!("1 {unit}").trim()).map_err(|why| format!("{path}: {why}"))
        }
    }
}

/// Whether a text is of the quantity that has this example.
fn parses(example: &str, text: &str) -> Result<(), String> {
    fn of<Q: Quantity>(example: &str, text: &str) -> Option<Result<(), String>> {
        (Q::EXAMPLE == example).then(|| Q::parse(text).map(|_| ()).map_err(|e| e.to_string()))
    }
    let known = [
        of::<Bytes>,
        of::<Bandwidth>,
        of::<FlopRate>,
        of::<Seconds>,
        of::<Frequency>,
        of::<Power>,
        of::<Price>,
        of::<Area>,
        of::<PricePerBandwidth>,
        of::<PricePerCapacity>,
        of::<EnergyPerByte>,
        of::<EnergyPerFlop>,
    ];
    known.iter().find_map(|of| of(example, text)).unwrap_or(Ok(()))
}

/// Whether an axis has every value between two; notes where it cannot.
fn continuous(spec: &AxisSpec, node: &Node, ordered: bool, reader: &mut Reader) -> bool {
    let fields = || spec.fields.iter().flat_map(|table| &table.0).any(|(_, values)| range::is_continuous(values));
    if fields() {
        let at = node.get("fields").unwrap_or(node);
        let message = "a continuous range is that of one field: expected field and values, or ranges of points (log, linear, step)";
        reader.within("fields", |r| r.problem(at, message));
    }
    let Some(values) = spec.values.as_ref().filter(|values| range::is_continuous(values)) else { return false };
    let at = node.get("values").unwrap_or(node);
    if values.len() > 1 {
        let message =
            format!("a continuous range is all that its axis has, found {} values beside it", values.len() - 1);
        reader.within("values", |r| r.problem(at, message));
    } else if let Err(message) = takes_any(spec, &values[0]) {
        reader.within("values", |r| r.problem(at, message));
    } else if !ordered {
        let message = "what lies between two values is bounded by them along an ordered axis alone: say order: ascending, if no value is slower \
                       or cheaper than a lower one";
        reader.within("values", |r| r.problem(at, message));
    }
    true
}

/// Fields of the system of which more is never slower and never cheaper, and whether they are rates. Units are no rates: what they can hold at
/// once is a question of what fits.
const GROWING: [(&str, bool); 9] = [
    ("bandwidth", true),
    ("frequency", true),
    ("capacity", false),
    ("sram", false),
    ("cores", false),
    ("lanes", false),
    ("stages", false),
    ("stacks", false),
    ("vector_peak", false),
];

/// The order of values of fields that are known to act so, by how much they are; and how much, of one field that is a rate.
fn by_field(values: &[AxisValue]) -> Option<(Vec<usize>, Option<Vec<f64>>)> {
    let amount = |change: &Override| match change {
        Override { path, value, .. } if path.root == Root::System => {
            let (_, rate) = GROWING.iter().find(|(name, _)| path.segments.last().is_some_and(|last| last == name))?;
            let text = text(value);
            let bytes = || Bytes::parse(&text).map(Quantity::base).ok();
            let bandwidth = || Bandwidth::parse(&text).map(Quantity::base).ok();
            let frequency = || Frequency::parse(&text).map(Quantity::base).ok();
            let flops = || FlopRate::parse(&text).map(Quantity::base).ok();
            let count = || text.replace('_', "").parse::<u64>().map(|n| n as f64).ok();
            let amount = bytes().or_else(bandwidth).or_else(frequency).or_else(flops).or_else(count);
            amount.map(|amount| (amount, *rate))
        }
        _ => None,
    };
    let amounts: Vec<Vec<(f64, bool)>> =
        values.iter().map(|value| value.overrides.iter().map(amount).collect()).collect::<Option<_>>()?;
    let fields = |value: &AxisValue| value.overrides.iter().map(|change| change.path.clone()).collect::<Vec<_>>();
    let of_all = fields(values.first()?);
    if of_all.is_empty() || values.iter().any(|value| fields(value) != of_all) {
        return None;
    }
    let mut ranks: Vec<usize> = (0..values.len()).collect();
    ranks.sort_by(|a, b| amounts[*a][0].0.total_cmp(&amounts[*b][0].0));
    // Fields that change together have an order where each has that of the first.
    let rises = |field: usize| ranks.windows(2).all(|w| amounts[w[0]][field].0 <= amounts[w[1]][field].0);
    if !(0..of_all.len()).all(rises) {
        return None;
    }
    let rates: Vec<f64> = ranks.iter().map(|at| amounts[*at][0].0).collect();
    let divide = of_all.len() == 1 && amounts.iter().all(|amount| amount[0].1 && amount[0].0 > 0.0);
    Some((ranks, divide.then_some(rates)))
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
    let values = reader.within("values", |r| range::written_out(values, r));
    let read: Vec<Option<(AxisValue, Origin)>> = values
        .iter()
        .enumerate()
        .map(|(i, value)| reader.within(format!("values.[{i}]"), |r| named(value, &path, r)))
        .collect();
    read.into_iter().collect::<Option<Vec<_>>>().filter(|v| !v.is_empty())
}

/// A value of one field, called what it is.
fn named(value: &Node, path: &FieldPath, reader: &mut Reader) -> Option<(AxisValue, Origin)> {
    let label = label(value).or_else(|| {
        reader.problem(value, format!("{} has no label of its own; name it under points", value.describe()));
        None
    });
    let value = frozen(value, path, reader)?;
    let origin = value.origin.clone();
    let overrides = vec![Override { path: path.clone(), value, origin: origin.clone() }];
    Some((AxisValue { label: label?, overrides }, origin))
}

/// `fields:`: the first names the rows, the others change with it.
fn together(node: &Node, reader: &mut Reader) -> Option<Vec<(AxisValue, Origin)>> {
    let fields = node.get("fields")?;
    let Value::Map(entries) = &fields.value else { return None };
    let columns: Vec<Option<Vec<(AxisValue, Origin)>>> = entries
        .iter()
        .map(|(field, place, values)| {
            let at = Node { origin: place.clone(), value: Value::Null };
            let path = reader.within("fields", |r| path(field, &at, field, r))?;
            let Value::List(values) = &values.value else { return None };
            reader.within(format!("fields.{field}"), |r| {
                let values = range::written_out(values, r);
                values.iter().map(|value| named(value, &path, r)).collect()
            })
        })
        .collect();
    let mut columns = columns.into_iter().collect::<Option<Vec<_>>>()?.into_iter();
    let Some(mut first) = columns.next().filter(|first| !first.is_empty()) else {
        reader.within("fields", |r| r.problem(fields, "expected at least one field with one value"));
        return None;
    };
    for (column, (field, _, values)) in columns.zip(entries.iter().skip(1)) {
        if column.len() != first.len() {
            let message = format!(
                "expected as many values as {} has, {}, found {}: they change together",
                entries[0].0,
                first.len(),
                column.len()
            );
            reader.within(format!("fields.{field}"), |r| r.problem(values, message));
            return None;
        }
        first.iter_mut().zip(column).for_each(|((value, _), (other, _))| value.overrides.extend(other.overrides));
    }
    Some(first)
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
