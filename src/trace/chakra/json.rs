//! Reading Chakra traces from JSON: protocol buffers' own JSON mapping (as a list, as lines, or one object after another as Chakra's jsonizer prints
//! them), and the JSON that Chakra's feeder reads (`workload_graph`).

use super::pass::{Fault, Part, collect};
use super::read::{metadata_from_bytes, node_from_bytes};
use super::value::{Attr, Scalar};
use super::{Node, NodeType, Trace};
use crate::trace::error::{MOST_ERRORS, TraceError, TraceErrors};
use crate::trace::intern::Interner;
use crate::trace::json::{Cutter, JsonFault};
use crate::trace::{input, schema};
use prost_reflect::{DeserializeOptions, DynamicMessage};
use serde_json::Value;
use std::io::{self, Read};
use std::path::Path;

pub use super::json_text::{Form, JsonWriter};

/// Reads any of these JSON forms from a file, plain or gzip.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte, node and field; up to twenty faulty nodes at once.
pub fn read(path: &Path) -> Result<Trace, TraceErrors> {
    read_from(input::open(path)?, path)
}

/// Reads any of these JSON forms from uncompressed bytes; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: impl Read, path: &Path) -> Result<Trace, TraceErrors> {
    collect(|take| parts(source, path, take), path)
}

/// Hands on piece by piece what [`read_from`] holds.
pub(super) fn parts(source: impl Read, path: &Path, take: &mut dyn FnMut(Part) -> io::Result<()>) -> Result<(), Fault> {
    let mut reader =
        JsonReader { path, strings: Interner::default(), take, unwritten: None, errors: Vec::new(), count: 0 };
    if let Err(fault) = reader.all(&mut Cutter::new(source)) {
        reader.errors.push(TraceError::new(path, fault.message).at(fault.byte));
    }
    match reader.unwritten {
        _ if !reader.errors.is_empty() => Err(TraceErrors(reader.errors).into()),
        Some(e) => Err(e.into()),
        None => Ok(()),
    }
}

struct JsonReader<'p> {
    path: &'p Path,
    strings: Interner,
    take: &'p mut dyn FnMut(Part) -> io::Result<()>,
    /// Why the taker takes no more.
    unwritten: Option<io::Error>,
    errors: Vec<TraceError>,
    /// Objects read.
    count: u64,
}

impl JsonReader<'_> {
    /// After the first fault nothing is handed on; the others are looked for all the same.
    fn hand_on(&mut self, part: Part) {
        if self.errors.is_empty() && self.unwritten.is_none() {
            self.unwritten = (self.take)(part).err();
        }
    }

    fn done(&self) -> bool {
        self.errors.len() >= MOST_ERRORS || self.unwritten.is_some()
    }

    fn all<R: Read>(&mut self, cutter: &mut Cutter<R>) -> Result<(), JsonFault> {
        match cutter.peek()? {
            None => return Err(cutter.fault("the file is empty; a Chakra trace is expected")),
            Some(b'[') => {
                cutter.enter_array()?;
                while let Some((byte, text)) = cutter.element(self.count == 0)? {
                    self.object(byte, text);
                    if self.done() {
                        return Ok(());
                    }
                }
                return cutter.end();
            }
            Some(_) => {}
        }
        while cutter.peek()?.is_some() {
            let (byte, text) = cutter.value()?;
            if self.count == 0 && is_feeder(text) {
                let mut inner = Cutter::new(text);
                self.feeder(&mut inner).map_err(|f| JsonFault { byte: byte + f.byte, ..f })?;
                return cutter.end();
            }
            self.object(byte, text);
            if self.done() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One object of protocol buffers' JSON: the metadata comes first.
    fn object(&mut self, byte: u64, text: &[u8]) {
        let index = self.count;
        self.count += 1;
        let parsed: Result<Value, _> = serde_json::from_slice(text);
        let value = match parsed {
            Ok(value) => value,
            Err(e) => {
                self.errors.push(TraceError::new(self.path, e.to_string()).at(byte).node(format!("#{index}")));
                return;
            }
        };
        // A node always has one of these; the metadata never has.
        let is_node = ["id", "name", "type", "ctrlDeps", "dataDeps", "ctrl_deps", "data_deps"]
            .iter()
            .any(|k| value.get(k).is_some());
        let result = if index == 0 && !is_node {
            message("GlobalMetadata", value)
                .and_then(|bytes| metadata_from_bytes(&bytes, &mut self.strings))
                .map(Part::Metadata)
        } else {
            let id = value.get("id").map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned));
            message("Node", value)
                .and_then(|bytes| node_from_bytes(&bytes, &mut self.strings))
                .map(Part::Node)
                .map_err(|e| format!("node {}: {e}", id.unwrap_or_else(|| format!("#{index}"))))
        };
        match result {
            Ok(part) => self.hand_on(part),
            Err(message) => self.errors.push(TraceError::new(self.path, message).at(byte)),
        }
    }

    fn feeder<R: Read>(&mut self, cutter: &mut Cutter<R>) -> Result<(), JsonFault> {
        cutter.enter_object()?;
        let mut first = true;
        while let Some(key) = cutter.key(first)? {
            first = false;
            if key != "workload_graph" {
                cutter.value()?;
                continue;
            }
            cutter.enter_array()?;
            let mut index = 0u64;
            while let Some((byte, text)) = cutter.element(index == 0)? {
                match self.feeder_node(text) {
                    Ok(node) => self.hand_on(Part::Node(node)),
                    Err((node, field, message)) => {
                        let node = node.unwrap_or_else(|| format!("#{index}"));
                        let error = TraceError::new(self.path, message).at(byte).node(node);
                        self.errors.push(if field.is_empty() { error } else { error.field(field) });
                    }
                }
                index += 1;
                if self.done() {
                    return Ok(());
                }
            }
        }
        cutter.end()
    }

    /// One node of the feeder's JSON; an error is node, field and message.
    fn feeder_node(&mut self, text: &[u8]) -> Result<Node, (Option<String>, String, String)> {
        let value: Value = serde_json::from_slice(text).map_err(|e| (None, String::new(), e.to_string()))?;
        let Value::Object(fields) = value else {
            return Err((None, String::new(), "expected a node (an object)".into()));
        };
        let id = fields.get("Id").map(Value::to_string);
        let fault = |field: &str, what: &str, found: &Value| {
            let found: String = found.to_string().chars().take(40).collect();
            (id.clone(), field.to_owned(), format!("expected {what}, found {found}"))
        };
        let mut node = Node::new(0, self.strings.get(""), NodeType::Invalid);
        for needed in ["Id", "Name", "NodeType"] {
            if !fields.contains_key(needed) {
                return Err((id.clone(), needed.to_owned(), "missing".into()));
            }
        }
        for (key, value) in &fields {
            let unsigned = || value.as_u64().ok_or_else(|| fault(key, "an integer of at least 0", value));
            let integer = || value.as_i64().ok_or_else(|| fault(key, "an integer", value));
            let small = || integer().and_then(|i| i32::try_from(i).map_err(|_| fault(key, "a 32-bit integer", value)));
            let ids = || -> Result<Vec<u64>, _> {
                let list = value.as_array().ok_or_else(|| fault(key, "a list of ids", value))?;
                list.iter().map(|v| v.as_u64().ok_or_else(|| fault(key, "a list of ids", v))).collect()
            };
            let scalar = match key.as_str() {
                "Id" => {
                    node.id = unsigned()?;
                    continue;
                }
                "Name" => {
                    let name = value.as_str().ok_or_else(|| fault(key, "a string", value))?;
                    node.name = self.strings.get(name);
                    continue;
                }
                "NodeType" => {
                    node.kind = NodeType::from_number(small()?);
                    continue;
                }
                "runtime" => {
                    node.duration_micros = unsigned()?;
                    continue;
                }
                "data_deps" => {
                    node.data_deps = ids()?;
                    continue;
                }
                "ctrlDeps" | "ctrl_deps" => {
                    node.ctrl_deps = ids()?;
                    continue;
                }
                // The kinds in which the feeder keeps them.
                "is_cpu_op" => Scalar::Bool(value.as_bool().ok_or_else(|| fault(key, "true or false", value))?),
                "comm_type" | "comm_size" | "num_ops" => Scalar::Int64(integer()?),
                "tensor_size" => Scalar::Uint64(unsigned()?),
                "comm_priority" | "comm_src" | "comm_dst" | "comm_tag" => Scalar::Int32(small()?),
                _ => match value {
                    Value::Bool(b) => Scalar::Bool(*b),
                    Value::String(s) => Scalar::String(self.strings.get(s)),
                    Value::Number(n) => match n.as_i64() {
                        Some(i) => Scalar::Int64(i),
                        None => Scalar::Double(n.as_f64().unwrap_or_default()),
                    },
                    other => return Err(fault(key, "a number, a string or a truth value", other)),
                },
            };
            node.attrs.push(Attr::new(self.strings.get(key), scalar));
        }
        Ok(node)
    }
}

/// Whether an object is the feeder's: it has the key, in a place where an object of protocol buffers has none.
fn is_feeder(text: &[u8]) -> bool {
    let mut cutter = Cutter::new(text);
    let mut found = || -> Result<bool, JsonFault> {
        cutter.enter_object()?;
        let mut first = true;
        while let Some(key) = cutter.key(first)? {
            first = false;
            if key == "workload_graph" {
                return Ok(true);
            }
            cutter.value()?;
        }
        Ok(false)
    };
    found().unwrap_or(false)
}

/// Bytes of a message from its JSON.
fn message(kind: &str, value: Value) -> Result<Vec<u8>, String> {
    let kind = schema::descriptor(kind)?;
    let options = DeserializeOptions::new();
    let message = DynamicMessage::deserialize_with_options(kind, value, &options).map_err(|e| e.to_string())?;
    Ok(prost::Message::encode_to_vec(&message))
}
