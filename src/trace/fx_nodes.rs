//! The nodes of an FX graph as they stand in the file: every call but `getitem`, which only picks one of several results of its
//! producer and is folded into it. ([`super::fx::read`] gives what the calls do; there views are no calls.)

use super::ops::{Class, Options, class_of, plain_name};
use super::{TraceErrors, fx};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::Path;

/// One call.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name, unique.
    pub name: String,
    /// What kind of operator it is.
    pub class: Class,
    /// Measured microseconds, as the file has them.
    pub time_us: Option<f64>,
    /// FLOP; zero where they are not known.
    pub flop: f64,
    /// Bytes read and written; zero for views.
    pub bytes: f64,
    /// Bytes of the parameters and buffers it reads.
    pub state_bytes: f64,
    /// Bytes of the graph's inputs it reads.
    pub input_bytes: f64,
    /// Bytes of its results that the graph gives out.
    pub output_bytes: f64,
    /// Whether it reads neither inputs nor what depends on these: a weight that is transposed, a range of numbers.
    pub constant: bool,
    /// Calls whose results it reads (positions), each with the bytes of the largest of these.
    pub reads: Vec<(usize, f64)>,
}

/// A graph file's nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Nodes {
    /// Name of the model, or of the file.
    pub name: String,
    /// Samples of the graph, where the file tells.
    pub batch: Option<u64>,
    /// The calls, in file order.
    pub nodes: Vec<Node>,
}

/// What a name stands for.
enum Named {
    /// A result of the call at a position, and its bytes.
    Call(usize, f64),
    /// Held from one iteration to the next.
    State(f64),
    /// An input of the graph, and its bytes.
    Input(f64),
}

fn refs<'j>(value: &'j Json, out: &mut Vec<&'j str>) {
    match value {
        Json::Array(items) => items.iter().for_each(|i| refs(i, out)),
        Json::Object(map) => match map.get("ref") {
            Some(Json::String(name)) => out.push(name),
            _ => map.values().for_each(|v| refs(v, out)),
        },
        _ => {}
    }
}

/// Reads a graph file, plain or gzip.
///
/// # Errors
/// All faults of the file, as [`fx::read`] finds them.
pub fn read(path: &Path, options: &Options) -> Result<Nodes, TraceErrors> {
    parse(&fx::text(path)?, path, options)
}

/// Reads a graph from its text; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &[u8], path: &Path, options: &Options) -> Result<Nodes, TraceErrors> {
    let program = fx::parse(text, path, options)?;
    // That it reads as a program says that it is JSON and that every reference is to an earlier node.
    let document: Json = serde_json::from_slice(text).unwrap_or(Json::Null);
    let costs: HashMap<u64, _> = program.steps.iter().map(|s| (s.node, &s.cost)).collect();
    let mut found = Nodes { name: program.name.clone(), batch: program.batch, nodes: Vec::new() };
    let mut named: HashMap<&str, Named> = HashMap::new();
    let list = document.get("nodes").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    for (index, node) in list.iter().enumerate() {
        let (Some(name), Some(op)) = (node.get("name").and_then(Json::as_str), node.get("op").and_then(Json::as_str))
        else {
            continue;
        };
        let outs = node.get("out").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        let largest = outs.iter().filter_map(|o| o.get("bytes").and_then(Json::as_f64)).fold(0.0, f64::max);
        if op != "call_function" {
            let kind = node.get("kind").and_then(Json::as_str);
            let state = op == "get_attr" || matches!(kind, Some("param" | "buffer"));
            if op == "output" {
                let mut list = Vec::new();
                node.get("args").into_iter().for_each(|v| refs(v, &mut list));
                list.sort_unstable();
                list.dedup();
                for r in list {
                    if let Some(Named::Call(i, bytes)) = named.get(r) {
                        found.nodes[*i].output_bytes += bytes;
                    }
                }
            }
            named.insert(name, if state { Named::State(largest) } else { Named::Input(largest) });
            continue;
        }
        let target = node.get("target").and_then(Json::as_str).unwrap_or_default();
        let mut list = Vec::new();
        ["args", "kwargs"].iter().filter_map(|k| node.get(k)).for_each(|v| refs(v, &mut list));
        let plain = plain_name(target);
        if plain.ends_with("getitem>") || plain.ends_with("getitem") {
            let picked = match list.first().and_then(|first| named.get(first)) {
                Some(Named::Call(i, _)) => Named::Call(*i, largest),
                Some(Named::State(bytes)) => Named::State(*bytes),
                Some(Named::Input(_)) => Named::Input(largest),
                None => Named::Input(0.0),
            };
            named.insert(name, picked);
            continue;
        }
        let mut reads: Vec<(usize, f64)> = Vec::new();
        let (mut state_bytes, mut input_bytes) = (0.0, 0.0);
        let mut constant = true;
        let mut held: Vec<&str> = Vec::new();
        for r in list {
            match named.get(r) {
                Some(Named::Call(i, bytes)) => {
                    constant &= found.nodes[*i].constant;
                    match reads.iter_mut().find(|(j, _)| j == i) {
                        Some((_, known)) => *known = known.max(*bytes),
                        None => reads.push((*i, *bytes)),
                    }
                }
                Some(Named::Input(bytes)) if !held.contains(&r) => {
                    held.push(r);
                    constant = false;
                    input_bytes += bytes;
                }
                Some(Named::State(bytes)) if !held.contains(&r) => {
                    held.push(r);
                    state_bytes += bytes;
                }
                _ => {}
            }
        }
        let id = node.get("id").and_then(Json::as_u64).unwrap_or(index as u64);
        let cost = costs.get(&id);
        let time_us = node.get("time_us").and_then(Json::as_f64).filter(|t| t.is_finite() && *t >= 0.0);
        named.insert(name, Named::Call(found.nodes.len(), largest));
        found.nodes.push(Node {
            name: name.into(),
            class: cost.map_or_else(|| class_of(plain), |c| c.class),
            time_us,
            flop: cost.and_then(|c| c.flop).unwrap_or(0) as f64,
            bytes: cost.map_or(0.0, |c| c.bytes() as f64),
            state_bytes,
            input_bytes,
            output_bytes: 0.0,
            constant,
            reads,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A split whose parts are picked, a weight, a view: four actors, getitem folded, the larger of two tensors counts.
    #[test]
    fn getitem_is_folded() {
        let text = r#"{"format": "aten-fx-json/1", "model": "m", "batch": 2, "nodes": [
            {"id": 0, "name": "x", "op": "placeholder", "kind": "input", "out": [{"shape": [4, 8], "dtype": "float32", "bytes": 128}]},
            {"id": 1, "name": "w", "op": "placeholder", "kind": "param", "out": [{"shape": [8, 8], "dtype": "float32", "bytes": 256}]},
            {"id": 2, "name": "s", "op": "call_function", "target": "aten.split.Tensor", "args": [{"ref": "x"}, 2],
             "out": [{"shape": [2, 8], "dtype": "float32", "bytes": 64}, {"shape": [2, 8], "dtype": "float32", "bytes": 64}], "time_us": 2.4},
            {"id": 3, "name": "g0", "op": "call_function", "target": "<built-in function getitem>", "args": [{"ref": "s"}, 0],
             "out": [{"shape": [2, 8], "dtype": "float32", "bytes": 64}]},
            {"id": 4, "name": "g1", "op": "call_function", "target": "<built-in function getitem>", "args": [{"ref": "s"}, 1],
             "out": [{"shape": [2, 8], "dtype": "float32", "bytes": 64}]},
            {"id": 5, "name": "t", "op": "call_function", "target": "aten.t.default", "args": [{"ref": "w"}],
             "out": [{"shape": [8, 8], "dtype": "float32", "bytes": 256}], "time_us": 1.0},
            {"id": 6, "name": "y", "op": "call_function", "target": "aten.mm.default", "args": [{"ref": "g0"}, {"ref": "t"}],
             "out": [{"shape": [2, 8], "dtype": "float32", "bytes": 64}], "time_us": 30.0},
            {"id": 7, "name": "z", "op": "call_function", "target": "aten.add.Tensor", "args": [{"ref": "y"}, {"ref": "g1"}],
             "out": [{"shape": [2, 8], "dtype": "float32", "bytes": 64}], "time_us": 5.0}]}"#;
        let found = parse(text.as_bytes(), Path::new("g.json"), &Options::default()).unwrap();
        let names: Vec<&str> = found.nodes.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["s", "t", "y", "z"]);
        assert_eq!(found.batch, Some(2));
        assert_eq!(found.nodes[1].state_bytes, 256.0);
        assert_eq!(found.nodes[2].reads, [(0, 64.0), (1, 256.0)]);
        assert_eq!(found.nodes[3].reads, [(2, 64.0), (0, 64.0)]);
        assert_eq!(found.nodes[2].flop, 2.0 * 2.0 * 8.0 * 8.0);
        assert_eq!(found.nodes[0].time_us, Some(2.4));
    }
}
