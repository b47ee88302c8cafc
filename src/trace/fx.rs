//! FX and export graphs: the JSON of ATen nodes, format `aten-fx-json/1`.
//!
//! ```json
//! {"format": "aten-fx-json/1", "model": "m", "batch": 4, "mode": "train", "nodes": [
//!   {"id": 0, "name": "x", "op": "placeholder", "kind": "input", "out": [{"shape": [4, 8], "dtype": "float32", "bytes": 128}]},
//!   {"id": 1, "name": "w", "op": "placeholder", "kind": "param", "out": [{"shape": [8, 8], "dtype": "float32", "bytes": 256}]},
//!   {"id": 2, "name": "y", "op": "call_function", "target": "aten.mm.default", "args": [{"ref": "x"}, {"ref": "w"}], "kwargs": {},
//!    "out": [{"shape": [4, 8], "dtype": "float32", "bytes": 128}], "time_us": 3.5}]}
//! ```
//!
//! An argument is `{"ref": name of a node}`, a literal, a list of arguments, or an object that names a dtype, device or the like.
//! `kind` is `param`, `buffer` or `input`. Every fault of the file is reported at once.

use super::lower::program::{Origin, Part, Program, Step, Value};
use super::lower::views;
use super::ops::call::product;
use super::ops::{Arg, Call, Class, Element, Options, TensorArg, class_of, cost, plain_name};
use super::{TraceError, TraceErrors, input};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

/// The word in `format`.
pub const FORMAT: &str = "aten-fx-json/1";
/// Largest file read: 10 million nodes of 100 bytes.
const MAX_BYTES: u64 = 1 << 30;
/// Faults reported of one file.
const MAX_FAULTS: usize = 50;

/// Reads a graph file, plain or gzip.
///
/// # Errors
/// All faults of the file: not JSON, another format, nodes that lack a field or refer to one that is not there.
pub fn read(path: &Path, options: &Options) -> Result<Program, TraceErrors> {
    parse(&text(path)?, path, options)
}

/// The text of a graph file, unpacked.
///
/// # Errors
/// A file that cannot be read, or is too large.
pub(super) fn text(path: &Path) -> Result<Vec<u8>, TraceErrors> {
    let mut text = Vec::new();
    input::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|e| TraceError::new(path, format!("cannot be read: {e}")))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(TraceError::new(path, "larger than 1 GiB when unpacked").into());
    }
    Ok(text)
}

/// Reads a graph from its text; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &[u8], path: &Path, options: &Options) -> Result<Program, TraceErrors> {
    let document: Json =
        serde_json::from_slice(text).map_err(|e| TraceError::new(path, format!("not valid JSON: {e}")))?;
    let format = document.get("format").and_then(Json::as_str).unwrap_or("none");
    if format != FORMAT {
        return Err(TraceError::new(path, format!("expected {FORMAT:?}, found {format:?}")).field("format").into());
    }
    let Some(nodes) = document.get("nodes").and_then(Json::as_array) else {
        return Err(TraceError::new(path, "expected a list of nodes").field("nodes").into());
    };
    let mut reader = Reader {
        path,
        options,
        env: HashMap::new(),
        program: Program::default(),
        faults: Vec::new(),
        part: Part::Forward,
    };
    let stem = path.file_name().and_then(|n| n.to_str()).map_or("graph", |n| n.split('.').next().unwrap_or(n));
    reader.program.name = document.get("model").and_then(Json::as_str).unwrap_or(stem).to_string();
    reader.program.batch = document.get("batch").and_then(Json::as_u64).filter(|b| *b > 0);
    for (i, node) in nodes.iter().enumerate() {
        reader.node(i, node);
        if reader.faults.len() >= MAX_FAULTS {
            break;
        }
    }
    if reader.faults.is_empty() {
        reader.program.link();
        Ok(reader.program)
    } else {
        Err(TraceErrors(reader.faults))
    }
}

struct Reader<'p> {
    path: &'p Path,
    options: &'p Options,
    /// Results of each node so far.
    env: HashMap<String, Vec<Arg>>,
    program: Program,
    faults: Vec<TraceError>,
    part: Part,
}

/// A result as the file states it.
struct Stated {
    shape: Vec<u64>,
    element_bytes: u64,
    element: Element,
}

impl Reader<'_> {
    fn fault(&mut self, node: &str, field: &str, message: impl Into<String>) {
        self.faults.push(TraceError::new(self.path, message).node(node).field(field));
    }

    fn node(&mut self, index: usize, node: &Json) {
        let Some(name) = node.get("name").and_then(Json::as_str) else {
            self.fault(&index.to_string(), "name", "missing; expected the name of the node");
            return;
        };
        let Some(op) = node.get("op").and_then(Json::as_str) else {
            self.fault(name, "op", "missing; expected placeholder, get_attr, call_function or output");
            return;
        };
        if self.env.contains_key(name) {
            self.fault(name, "name", "this name stands twice");
        }
        let Some(outs) = self.outs(name, node) else { return };
        match op {
            "placeholder" | "get_attr" => {
                let parameter = op == "get_attr" || node.get("kind").and_then(Json::as_str) == Some("param");
                let origin = if parameter { Origin::Parameter } else { Origin::Input };
                let results = outs.into_iter().map(|o| o.map_or(Arg::None, |o| self.fresh(name, o, origin))).collect();
                self.env.insert(name.into(), results);
            }
            "call_function" => self.call(index, name, node, outs),
            "output" => {}
            other => self.fault(
                name,
                "op",
                format!("expected placeholder, get_attr, call_function or output, found {other:?}"),
            ),
        }
    }

    fn outs(&mut self, name: &str, node: &Json) -> Option<Vec<Option<Stated>>> {
        let list = match node.get("out") {
            None | Some(Json::Null) => return Some(Vec::new()),
            Some(Json::Array(list)) => list,
            Some(_) => {
                self.fault(name, "out", "expected a list of results");
                return None;
            }
        };
        let mut outs = Vec::with_capacity(list.len());
        for (i, out) in list.iter().enumerate() {
            let Some(shape) = out.get("shape").filter(|s| !s.is_null()) else {
                outs.push(None);
                continue;
            };
            let sizes: Option<Vec<u64>> = shape.as_array().and_then(|s| s.iter().map(Json::as_u64).collect());
            let (Some(shape), Some(dtype)) = (sizes, out.get("dtype").and_then(Json::as_str)) else {
                self.fault(name, &format!("out[{i}]"), "expected {shape: list of sizes, dtype: text, bytes: number}");
                return None;
            };
            let elements = product(&shape);
            let bytes = out.get("bytes").and_then(Json::as_u64);
            let element_bytes = match bytes {
                Some(b) if elements > 0 => (b / elements).max(1),
                _ => dtype_bytes(dtype),
            };
            outs.push(Some(Stated { shape, element_bytes, element: Element::parse(dtype) }));
        }
        Some(outs)
    }

    /// A value of its own, contiguous.
    fn fresh(&mut self, name: &str, out: Stated, origin: Origin) -> Arg {
        let storage = self.program.values.len();
        self.program.values.push(Value {
            name: name.into(),
            elements: product(&out.shape),
            element_bytes: out.element_bytes,
            float: out.element == Element::Float,
            shape: out.shape.clone(),
            origin,
            before: None,
        });
        let strides = Some(views::contiguous(&out.shape));
        Arg::Tensor(TensorArg {
            storage,
            offset: 0,
            shape: out.shape,
            strides,
            element_bytes: out.element_bytes,
            element: out.element,
        })
    }

    fn argument(&mut self, name: &str, field: &str, value: &Json, depth: usize) -> Arg {
        match value {
            Json::Null => Arg::None,
            Json::Bool(b) => Arg::Bool(*b),
            Json::Number(n) => n.as_i64().map_or_else(|| Arg::Float(n.as_f64().unwrap_or(f64::NAN)), Arg::Int),
            Json::String(s) => Arg::Text(s.clone()),
            Json::Array(items) if depth < 16 => {
                Arg::List(items.iter().map(|i| self.argument(name, field, i, depth + 1)).collect())
            }
            Json::Array(_) => {
                self.fault(name, field, "lists nested deeper than 16");
                Arg::None
            }
            Json::Object(map) => match map.get("ref") {
                Some(Json::String(target)) => match self.env.get(target) {
                    Some(results) if results.len() == 1 => results[0].clone(),
                    Some(results) => Arg::List(results.clone()),
                    None => {
                        self.fault(name, field, format!("refers to {target:?}, which no earlier node is called"));
                        Arg::None
                    }
                },
                Some(_) => {
                    self.fault(name, field, "ref: expected the name of a node");
                    Arg::None
                }
                None => Arg::Text(map.values().next().and_then(Json::as_str).unwrap_or_default().into()),
            },
        }
    }

    fn call(&mut self, index: usize, name: &str, node: &Json, outs: Vec<Option<Stated>>) {
        let Some(target) = node.get("target").and_then(Json::as_str) else {
            self.fault(name, "target", "missing; expected an operator such as aten.mm.default");
            return;
        };
        let mut inputs = Vec::new();
        match node.get("args") {
            Some(Json::Array(items)) => {
                for (i, item) in items.iter().enumerate() {
                    let arg = self.argument(name, &format!("args[{i}]"), item, 0);
                    inputs.push(arg);
                }
            }
            None | Some(Json::Null) => {}
            Some(_) => self.fault(name, "args", "expected a list"),
        }
        if let Some(Json::Object(map)) = node.get("kwargs") {
            for (key, value) in map {
                let arg = self.argument(name, &format!("kwargs.{key}"), value, 0);
                if matches!(arg, Arg::Tensor(_) | Arg::List(_))
                    || matches!(key.as_str(), "is_causal" | "beta" | "scale")
                {
                    inputs.push(arg);
                }
            }
        }
        let op = plain_name(target).to_string();
        if op.ends_with("getitem>") || op.ends_with("getitem") {
            let picked = match (inputs.first(), inputs.get(1)) {
                (Some(Arg::List(items)), Some(Arg::Int(i))) => {
                    usize::try_from(*i).ok().and_then(|i| items.get(i)).cloned().unwrap_or(Arg::None)
                }
                (Some(one), Some(Arg::Int(0))) => one.clone(),
                _ => Arg::None,
            };
            self.env.insert(name.into(), vec![picked]);
            return;
        }
        if class_of(&op) == Class::View {
            let results = views::apply(&op, &inputs, outs.iter().map(|o| o.as_ref().map(|o| o.shape.as_slice())));
            if let Some(results) = results {
                self.env.insert(name.into(), results);
                return;
            }
        }
        // The graph is in order: everything from the first backward operator on is the backward pass.
        if self.part == Part::Forward
            && (op.ends_with("_backward")
                || op.ends_with("_backward_data")
                || (op == "ones_like" && outs.iter().flatten().all(|o| o.shape.is_empty())))
        {
            self.part = Part::Backward;
        }
        let mutated: Vec<usize> = if op.ends_with('_') && !op.ends_with("__") { vec![0] } else { Vec::new() };
        let mut writes = Vec::new();
        let mut outputs = Vec::new();
        for out in outs {
            match out {
                Some(out) => {
                    let arg = self.fresh(name, out, Origin::Input);
                    writes.extend(arg.tensor().map(|t| t.storage));
                    outputs.push(arg);
                }
                None => outputs.push(Arg::None),
            }
        }
        if class_of(&op) == Class::Allocation || class_of(&op) == Class::Host {
            self.env.insert(name.into(), outputs);
            return;
        }
        self.env.insert(name.into(), outputs.clone());
        let shape = |a: Option<&Arg>| a.and_then(Arg::tensor).map(|t| t.shape.clone());
        let handed_back =
            !mutated.is_empty() && shape(inputs.first()).is_some_and(|s| Some(s) == shape(outputs.first()));
        let returned = if handed_back { vec![0] } else { Vec::new() };
        let call = Call { op, inputs, outputs, mutated, returned };
        let cost = cost(&call, self.options);
        let seconds =
            node.get("time_us").and_then(Json::as_f64).filter(|t| t.is_finite() && *t >= 0.0).map(|t| t * 1e-6);
        self.program.steps.push(Step {
            node: node.get("id").and_then(Json::as_u64).unwrap_or(index as u64),
            call,
            cost,
            part: self.part,
            sequence: None,
            seconds,
            reads: Vec::new(),
            writes,
            comm: None,
            inferred: false,
        });
    }
}

/// Bytes of one element of a dtype, where the file does not tell.
fn dtype_bytes(dtype: &str) -> u64 {
    match dtype {
        d if d.contains("complex128") => 16,
        d if d.contains("64") => 8,
        d if d.contains("16") => 2,
        d if d.contains("8") || d.contains("bool") => 1,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: &str) -> Result<Program, TraceErrors> {
        let text = format!(r#"{{"format": "aten-fx-json/1", "model": "m", "batch": 2, "nodes": [{nodes}]}}"#);
        parse(text.as_bytes(), Path::new("g.json"), &Options::default())
    }

    const X: &str = r#"{"name": "x", "op": "placeholder", "kind": "input", "out": [{"shape": [2, 3], "dtype": "float32", "bytes": 24}]}"#;
    const W: &str = r#"{"name": "w", "op": "placeholder", "kind": "param", "out": [{"shape": [5, 3], "dtype": "float32", "bytes": 60}]}"#;

    #[test]
    fn views_are_followed_to_the_value_they_look_into() {
        let program = graph(&format!(
            r#"{X}, {W},
            {{"name": "t", "op": "call_function", "target": "aten.t.default", "args": [{{"ref": "w"}}], "out": [{{"shape": [3, 5], "dtype": "float32", "bytes": 60}}]}},
            {{"name": "y", "op": "call_function", "target": "aten.mm.default", "args": [{{"ref": "x"}}, {{"ref": "t"}}], "out": [{{"shape": [2, 5], "dtype": "float32", "bytes": 40}}]}}"#
        ))
        .unwrap();
        assert_eq!(program.steps.len(), 1);
        let mm = &program.steps[0];
        assert_eq!((mm.cost.flop, mm.reads.as_slice(), mm.writes.as_slice()), (Some(60), &[0, 1][..], &[2][..]));
        let t = mm.call.tensor(1).unwrap();
        assert_eq!((t.storage, t.strides.as_deref()), (1, Some(&[1, 3][..])));
        assert_eq!(program.values[1].origin, Origin::Parameter);
        assert_eq!(program.values[2].origin, Origin::Made(0));
    }

    #[test]
    fn all_faults_at_once() {
        let faults = graph(&format!(
            r#"{X}, {{"op": "placeholder"}}, {{"name": "a", "op": "call_magic"}},
            {{"name": "b", "op": "call_function", "target": "aten.mm.default", "args": [{{"ref": "q"}}, {{"ref": 3}}], "out": 7}},
            {{"name": "c", "op": "call_function", "target": "aten.mm.default", "args": [{{"ref": "q"}}, {{"ref": 3}}]}},
            {{"name": "d", "op": "call_function", "args": 5}}"#
        ))
        .unwrap_err();
        let text = faults.to_string();
        for part in [
            "node 1: name: missing",
            "call_magic",
            "node b: out: expected a list",
            "refers to \"q\"",
            "ref: expected the name",
            "node d: target: missing",
        ] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
        assert!(text.lines().all(|l| l.starts_with("g.json: ")), "{text}");
    }

    #[test]
    fn other_documents_are_refused() {
        let refuse =
            |text: &str| parse(text.as_bytes(), Path::new("g.json"), &Options::default()).unwrap_err().to_string();
        assert!(refuse("{").contains("not valid JSON"));
        assert!(refuse("[]").contains("aten-fx-json/1"));
        assert!(refuse(r#"{"format": "aten-fx-json/1"}"#).contains("nodes"));
        assert!(refuse(r#"{"format": "other"}"#).contains("found \"other\""));
    }
}
