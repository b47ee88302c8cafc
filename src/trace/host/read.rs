//! Reading an execution trace, node by node.

use super::args::{RawArgs, arguments};
use super::{HostNode, HostTrace, RECORD_PARAM_COMMS, comms};
use crate::trace::error::{MOST_ERRORS, TraceError, TraceErrors};
use crate::trace::intern::Interner;
use crate::trace::json::{Cutter, JsonFault};
use crate::trace::raw::{Key, Raw, field, integer, unsigned};
use crate::trace::{Collective, Text, detect, input};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// Schemas whose layout is known.
const KNOWN: [&str; 6] = ["1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.1.0", "1.1.1"];

/// Reads an execution trace from a file, plain or gzip.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte, node and field; up to twenty faulty nodes at once.
pub fn read(path: &Path) -> Result<HostTrace, TraceErrors> {
    read_from(input::open(path)?, path).map_err(|faults| detect::instead(path, detect::Format::Host, faults))
}

/// Reads an execution trace from uncompressed bytes; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: impl Read, path: &Path) -> Result<HostTrace, TraceErrors> {
    let mut cutter = Cutter::new(source);
    let mut reader =
        Reader { path, strings: Interner::default(), trace: HostTrace::default(), errors: Vec::new(), schema: None };
    let cut = reader.outer(&mut cutter);
    if reader.schema.is_none() && reader.trace.schema.is_empty() && !reader.errors.is_empty() {
        // Another format altogether: faults of its nodes would only confuse.
        reader.errors.clear();
        reader.errors.push(TraceError::new(path, "`schema` is missing: this is no execution trace of PyTorch"));
    } else if let Err(fault) = cut {
        reader.errors.push(TraceError::new(path, fault.message).at(fault.byte));
    }
    if !reader.errors.is_empty() {
        return Err(TraceErrors(reader.errors));
    }
    reader.trace.warnings.extend(version_warning(&reader.trace.schema));
    Ok(reader.trace)
}

/// A warning for a schema that is not known by its number.
fn version_warning(schema: &str) -> Option<String> {
    let number = schema.split('-').next().unwrap_or_default();
    if KNOWN.contains(&number) {
        return None;
    }
    Some(format!("schema {schema} is unknown here (known: {}); it was read by what its nodes hold", KNOWN.join(", ")))
}

struct Reader<'p> {
    path: &'p Path,
    strings: Interner,
    trace: HostTrace,
    errors: Vec<TraceError>,
    schema: Option<String>,
}

impl Reader<'_> {
    fn outer<R: Read>(&mut self, cutter: &mut Cutter<R>) -> Result<(), JsonFault> {
        cutter.enter_object()?;
        let (mut first, mut nodes) = (true, false);
        while let Some(key) = cutter.key(first)? {
            first = false;
            if key == "nodes" {
                nodes = true;
                self.nodes(cutter)?;
                if self.errors.len() >= MOST_ERRORS {
                    return Ok(());
                }
                continue;
            }
            let (byte, text) = cutter.value()?;
            let Ok(raw) = serde_json::from_slice::<Raw<'_>>(text) else {
                return Err(JsonFault { byte, message: format!("`{key}`: this is not JSON") });
            };
            let wrong =
                |what: &str| JsonFault { byte, message: format!("`{key}`: expected {what}, found {}", raw.kind()) };
            match key.as_str() {
                "schema" => {
                    let schema = raw.text().ok_or_else(|| wrong("a string"))?;
                    if !schema.starts_with("1.") {
                        return Err(JsonFault {
                            byte,
                            message: format!(
                                "`schema`: {schema} cannot be read; schemas 1.x of PyTorch's execution trace observer can"
                            ),
                        });
                    }
                    self.schema = Some(schema.to_owned());
                }
                "pid" => self.trace.pid = Some(raw.integer().ok_or_else(|| wrong("an integer"))?),
                "start_ts" => self.trace.start_ts = Some(raw.integer().ok_or_else(|| wrong("an integer"))?),
                "finish_ts" => self.trace.finish_ts = Some(raw.integer().ok_or_else(|| wrong("an integer"))?),
                "time" => self.trace.time = raw.text().map(str::to_owned),
                _ => {}
            }
        }
        cutter.end()?;
        match self.schema.take() {
            Some(schema) => self.trace.schema = schema,
            None => return Err(cutter.fault("`schema` is missing: this is no execution trace")),
        }
        if !nodes {
            return Err(cutter.fault("`nodes` is missing"));
        }
        Ok(())
    }

    fn nodes<R: Read>(&mut self, cutter: &mut Cutter<R>) -> Result<(), JsonFault> {
        cutter.enter_array()?;
        let mut index = 0usize;
        while let Some((byte, text)) = cutter.element(index == 0)? {
            match serde_json::from_slice::<RawNode<'_>>(text) {
                Ok(raw) => {
                    let id = raw.id;
                    match self.node(raw) {
                        Ok(node) => self.trace.nodes.push(node),
                        Err((field, message)) => {
                            self.errors.push(TraceError::new(self.path, message).at(byte).node(id).field(field));
                        }
                    }
                }
                Err(e) => self.errors.push(faulty(self.path, byte, index, text, &e)),
            }
            index += 1;
            if self.errors.len() >= MOST_ERRORS {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A node from what was written; an error is a field and a message.
    fn node(&mut self, raw: RawNode<'_>) -> Result<HostNode, (&'static str, String)> {
        let strings = &mut self.strings;
        let mut node = HostNode {
            id: raw.id,
            name: strings.get(&raw.name),
            parent: raw.parent,
            rf_id: None,
            fw_parent: 0,
            seq_id: -1,
            scope: 0,
            tid: 0,
            fw_tid: 0,
            op_schema: strings.get(""),
            inputs: arguments(&raw.inputs, strings).map_err(|e| ("inputs", e))?,
            outputs: arguments(&raw.outputs, strings).map_err(|e| ("outputs", e))?,
            kernel_backend: None,
            kernel_file: None,
            collective: None,
            ts_us: None,
            dur_us: None,
            others: Vec::new(),
        };
        for (name, value) in &raw.attributes {
            attribute(&mut node, name, value, strings)?;
        }
        // Only the operator itself: other nodes have no such attributes.
        let described = node.collective.as_ref().is_some_and(|c| c.name.is_some());
        if &*node.name == RECORD_PARAM_COMMS {
            match (comms::from_inputs(&node), node.collective.as_deref_mut()) {
                (Some(found), None) => node.collective = Some(Box::new(found)),
                (Some(found), Some(c)) => {
                    c.seq = c.seq.or(found.seq);
                    c.rank = c.rank.or(found.rank);
                    if !described {
                        let Collective { name, .. } = found;
                        c.name = name;
                    }
                }
                (None, _) => {}
            }
        }
        Ok(node)
    }
}

/// Sets one field that is plain in 1.0.1 and an attribute later.
fn attribute(
    node: &mut HostNode,
    name: &str,
    value: &Raw<'_>,
    strings: &mut Interner,
) -> Result<(), (&'static str, String)> {
    let wrong = |field: &'static str, what: &str| (field, format!("expected {what}, found {}", value.kind()));
    let number = |field: &'static str| value.unsigned().ok_or_else(|| wrong(field, "an integer of at least 0"));
    let signed = |field: &'static str| value.integer().ok_or_else(|| wrong(field, "an integer"));
    let mut text = |field: &'static str| -> Result<Option<Text>, (&'static str, String)> {
        let text = value.text().ok_or_else(|| wrong(field, "a string"))?;
        Ok((!text.is_empty()).then(|| strings.get(text)))
    };
    match name {
        "rf_id" => node.rf_id = Some(number("rf_id")?),
        "fw_parent" => node.fw_parent = number("fw_parent")?,
        "seq_id" => node.seq_id = signed("seq_id")?,
        "scope" => node.scope = number("scope")?,
        "tid" => node.tid = number("tid")?,
        "fw_tid" => node.fw_tid = number("fw_tid")?,
        "op_schema" => {
            if let Some(schema) = text("op_schema")? {
                node.op_schema = schema;
            }
        }
        "kernel_backend" => node.kernel_backend = text("kernel_backend")?,
        "kernel_file" => node.kernel_file = text("kernel_file")?,
        "ts" => node.ts_us = Some(signed("ts")?),
        "dur" => node.dur_us = Some(signed("dur")?),
        _ => {
            if !comms::from_attribute(&mut node.collective, name, value, strings) {
                let shown = match value {
                    Raw::Str(s) => s.to_string(),
                    Raw::List(_) | Raw::Map | Raw::Null => return Ok(()),
                    other => other.kind(),
                };
                if !shown.is_empty() {
                    node.others.push((strings.get(name), strings.get(&shown)));
                }
            }
        }
    }
    Ok(())
}

/// The error of a node that is not what a node must be; its id is looked for once more, leniently.
fn faulty(path: &Path, byte: u64, index: usize, text: &[u8], error: &serde_json::Error) -> TraceError {
    #[derive(serde::Deserialize)]
    struct Id {
        id: u64,
    }
    let node = match serde_json::from_slice::<Id>(text) {
        Ok(found) => found.id.to_string(),
        Err(_) => format!("#{index} of the list"),
    };
    TraceError::new(path, error.to_string()).at(byte).node(node)
}

/// A node as written, in either layout.
struct RawNode<'a> {
    id: u64,
    name: Cow<'a, str>,
    parent: u64,
    inputs: RawArgs<'a>,
    outputs: RawArgs<'a>,
    attributes: Vec<(Cow<'a, str>, Raw<'a>)>,
}

impl<'de> Deserialize<'de> for RawNode<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = RawNode<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node (an object)")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut id, mut name, mut parent) = (None, None, None);
        let (mut inputs, mut outputs) = (RawArgs::default(), RawArgs::default());
        let mut attributes = Vec::new();
        let list = |map: &mut A, name: &str| field::<A, Vec<Raw<'de>>>(map, name);
        while let Some(Key(key)) = map.next_key()? {
            match &*key {
                "id" => id = Some(unsigned(&mut map, "id")?),
                "name" => name = Some(field::<A, Key<'de>>(&mut map, "name")?.0),
                "parent" | "ctrl_deps" => {
                    let raw: Raw<'de> = field(&mut map, &key)?;
                    parent = Some(raw.unsigned().ok_or_else(|| {
                        de::Error::custom(format!("`{key}`: expected the id of one node, found {}", raw.kind()))
                    })?);
                }
                "inputs" => inputs.take(field(&mut map, "inputs")?),
                "outputs" => outputs.take(field(&mut map, "outputs")?),
                "input_shapes" => inputs.shapes = list(&mut map, "input_shapes")?,
                "input_types" => inputs.types = list(&mut map, "input_types")?,
                "input_strides" => inputs.strides = Some(list(&mut map, "input_strides")?),
                "output_shapes" => outputs.shapes = list(&mut map, "output_shapes")?,
                "output_types" => outputs.types = list(&mut map, "output_types")?,
                "output_strides" => outputs.strides = Some(list(&mut map, "output_strides")?),
                "attrs" => attributes.extend(
                    field::<A, Vec<RawAttribute<'de>>>(&mut map, "attrs")?.into_iter().map(|a| (a.name, a.value)),
                ),
                "ts" | "dur" => {
                    let value = integer(&mut map, &key)?;
                    attributes.push((key, Raw::Int(value)));
                }
                _ => {
                    let value = field(&mut map, &key)?;
                    attributes.push((key, value));
                }
            }
        }
        Ok(RawNode {
            id: id.ok_or_else(|| de::Error::missing_field("id"))?,
            name: name.ok_or_else(|| de::Error::missing_field("name"))?,
            parent: parent.ok_or_else(|| de::Error::custom("`ctrl_deps` (or `parent`) is missing"))?,
            inputs,
            outputs,
            attributes,
        })
    }
}

/// `{"name": "rf_id", "type": "uint64", "value": 0}`.
struct RawAttribute<'a> {
    name: Cow<'a, str>,
    value: Raw<'a>,
}

impl<'de> Deserialize<'de> for RawAttribute<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AttributeVisitor;
        impl<'de> Visitor<'de> for AttributeVisitor {
            type Value = RawAttribute<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an attribute {name, type, value}")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut name, mut value) = (None, Raw::Null);
                while let Some(Key(key)) = map.next_key()? {
                    match &*key {
                        "name" => name = Some(field::<A, Key<'de>>(&mut map, "name")?.0),
                        "value" => value = field(&mut map, "value")?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(RawAttribute { name: name.ok_or_else(|| de::Error::missing_field("name"))?, value })
            }
        }
        deserializer.deserialize_map(AttributeVisitor)
    }
}

/// Inputs or outputs: the bare list of values (1.0.1), or an object of the four lists.
impl<'de> Deserialize<'de> for RawArgs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgsVisitor;
        impl<'de> Visitor<'de> for ArgsVisitor {
            type Value = RawArgs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of values, or an object of values, shapes and types")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element()? {
                    values.push(value);
                }
                Ok(RawArgs { values, ..RawArgs::default() })
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut out = RawArgs::default();
                while let Some(Key(key)) = map.next_key()? {
                    match &*key {
                        "values" => out.values = field(&mut map, "values")?,
                        "shapes" => out.shapes = field(&mut map, "shapes")?,
                        "types" => out.types = field(&mut map, "types")?,
                        "strides" => out.strides = Some(field(&mut map, "strides")?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(out)
            }
        }
        deserializer.deserialize_any(ArgsVisitor)
    }
}

impl<'a> RawArgs<'a> {
    /// What `inputs` holds, beside what `input_shapes` and the like may have brought already.
    fn take(&mut self, read: RawArgs<'a>) {
        self.values = read.values;
        if !read.shapes.is_empty() {
            self.shapes = read.shapes;
        }
        if !read.types.is_empty() {
            self.types = read.types;
        }
        if read.strides.is_some() {
            self.strides = read.strides;
        }
    }
}
