//! Writing Chakra traces as JSON: protocol buffers' own mapping (64-bit integers in quotes, enumerations by name, what is 0 or empty left out
//! unless it is a member of a `oneof`, bytes as base64). Written by hand, for the general mapping goes through a message of values and
//! takes six times as long; a test holds it against that.

use super::value::{Attr, Scalar, Value};
use super::{Io, Metadata, Node, NodeType};
use std::io::{self, Write};

/// How the objects of a trace follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A list: the metadata, then the nodes; one a line.
    Array,
    /// One object a line.
    Lines,
    /// Indented objects one after another without separator, as `chakra_jsonizer` prints them.
    Jsonizer,
}

/// Writes JSON node by node.
#[derive(Debug)]
pub struct JsonWriter<W> {
    out: W,
    form: Form,
    text: Text,
}

impl<W: Write> JsonWriter<W> {
    /// Starts with the metadata.
    ///
    /// # Errors
    /// Those of the writer underneath.
    pub fn new(mut out: W, form: Form, metadata: &Metadata) -> io::Result<Self> {
        if form == Form::Array {
            out.write_all(b"[\n")?;
        }
        let text = Text { bytes: Vec::new(), indented: form == Form::Jsonizer, depth: 0, first: true };
        let mut writer = Self { out, form, text };
        writer.text.open(b'{');
        writer.text.text("version", &metadata.version);
        writer.text.attrs(&metadata.attrs);
        writer.text.close(b'}');
        writer.object()?;
        Ok(writer)
    }

    /// Writes one node.
    ///
    /// # Errors
    /// Those of the writer underneath.
    pub fn node(&mut self, node: &Node) -> io::Result<()> {
        if self.form == Form::Array {
            self.out.write_all(b",\n")?;
        }
        self.text.node(node);
        self.object()
    }

    /// Ends the text; gives the writer underneath, which the caller flushes.
    ///
    /// # Errors
    /// Those of the writer underneath.
    pub fn finish(mut self) -> io::Result<W> {
        if self.form == Form::Array {
            self.out.write_all(b"\n]\n")?;
        }
        Ok(self.out)
    }

    fn object(&mut self) -> io::Result<()> {
        if self.form == Form::Lines {
            self.text.bytes.push(b'\n');
        }
        self.out.write_all(&self.text.bytes)?;
        self.text.bytes.clear();
        Ok(())
    }
}

/// One object being written.
#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    /// On many lines, and in ASCII alone, as Python's `json` does.
    indented: bool,
    depth: usize,
    /// Nothing stands yet in the innermost object or list.
    first: bool,
}

impl Text {
    fn open(&mut self, bracket: u8) {
        self.bytes.push(bracket);
        self.depth += 1;
        self.first = true;
    }

    fn close(&mut self, bracket: u8) {
        self.depth -= 1;
        if !self.first {
            self.line();
        }
        self.bytes.push(bracket);
        self.first = false;
    }

    fn line(&mut self) {
        if self.indented {
            self.bytes.push(b'\n');
            self.bytes.resize(self.bytes.len() + 2 * self.depth, b' ');
        }
    }

    /// What stands before each item of a list or object.
    fn item(&mut self) {
        if !self.first {
            self.bytes.push(b',');
        }
        self.first = false;
        self.line();
    }

    /// A key: names of the schema, which need no escapes.
    fn key(&mut self, key: &str) {
        self.item();
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.extend_from_slice(if self.indented { b"\": " } else { b"\":" });
    }

    fn string(&mut self, text: &str) {
        self.bytes.push(b'"');
        let mut rest = text;
        while let Some(at) =
            rest.bytes().position(|b| b < b' ' || matches!(b, b'"' | b'\\') || (b > 0x7e && self.indented))
        {
            let (plain, from) = rest.split_at(at);
            self.bytes.extend_from_slice(plain.as_bytes());
            let mut chars = from.chars();
            if let Some(c) = chars.next() {
                self.escaped(c);
            }
            rest = chars.as_str();
        }
        self.bytes.extend_from_slice(rest.as_bytes());
        self.bytes.push(b'"');
    }

    fn escaped(&mut self, c: char) {
        let short = match c {
            '"' => b'"',
            '\\' => b'\\',
            '\u{8}' => b'b',
            '\u{c}' => b'f',
            '\n' => b'n',
            '\r' => b'r',
            '\t' => b't',
            '\u{7f}' => return self.bytes.push(0x7f),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    self.put(format_args!("\\u{unit:04x}"));
                }
                return;
            }
        };
        self.bytes.extend_from_slice(&[b'\\', short]);
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a vector cannot fail.
        let _ = self.bytes.write_fmt(what);
    }

    fn digits(&mut self, mut n: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (n % 10) as u8;
            n /= 10;
            at -= 1;
            if n == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(digits.get(at..).unwrap_or_default());
    }

    fn number(&mut self, n: i64) {
        if n < 0 {
            self.bytes.push(b'-');
        }
        self.digits(n.unsigned_abs());
    }

    /// 64-bit integers stand in quotes: JavaScript's numbers end at 2^53.
    fn quoted(&mut self, write: impl FnOnce(&mut Self)) {
        self.bytes.push(b'"');
        write(self);
        self.bytes.push(b'"');
    }

    fn float(
        &mut self,
        finite: bool,
        nan: bool,
        positive: bool,
        write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) {
        match () {
            // Writing a number to a vector cannot fail.
            () if finite => drop(write(&mut self.bytes)),
            () if nan => self.string("NaN"),
            () if positive => self.string("Infinity"),
            () => self.string("-Infinity"),
        }
    }

    fn text(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.key(key);
            self.string(text);
        }
    }

    fn long(&mut self, key: &str, n: u64) {
        if n != 0 {
            self.key(key);
            self.quoted(|t| t.digits(n));
        }
    }

    fn longs(&mut self, key: &str, list: &[u64]) {
        if !list.is_empty() {
            self.key(key);
            self.open(b'[');
            for &n in list {
                self.item();
                self.quoted(|t| t.digits(n));
            }
            self.close(b']');
        }
    }

    fn node(&mut self, node: &Node) {
        self.open(b'{');
        self.long("id", node.id);
        self.text("name", &node.name);
        match node.kind {
            NodeType::Invalid => {}
            NodeType::Other(number) => {
                self.key("type");
                self.number(number.into());
            }
            kind => {
                self.key("type");
                self.string(&kind.name());
            }
        }
        self.longs("ctrlDeps", &node.ctrl_deps);
        self.longs("dataDeps", &node.data_deps);
        self.long("startTimeMicros", node.start_micros);
        self.long("durationMicros", node.duration_micros);
        self.io("inputs", node.inputs.as_ref());
        self.io("outputs", node.outputs.as_ref());
        self.attrs(&node.attrs);
        self.close(b'}');
    }

    fn io(&mut self, key: &str, io: Option<&Io>) {
        if let Some(io) = io {
            self.key(key);
            self.open(b'{');
            self.text("values", &io.values);
            self.text("shapes", &io.shapes);
            self.text("types", &io.types);
            self.close(b'}');
        }
    }

    fn attrs(&mut self, attrs: &[Attr]) {
        if attrs.is_empty() {
            return;
        }
        self.key("attr");
        self.open(b'[');
        for attr in attrs {
            self.item();
            self.open(b'{');
            self.text("name", &attr.name);
            self.text("docString", &attr.doc);
            match &attr.value {
                None => {}
                Some(Value::One(scalar)) => {
                    self.key(scalar.kind().json_name(false));
                    self.scalar(scalar);
                }
                Some(Value::List(kind, items)) => {
                    self.key(kind.json_name(true));
                    self.open(b'{');
                    if !items.is_empty() {
                        self.key("values");
                        self.open(b'[');
                        for item in items {
                            self.item();
                            self.scalar(item);
                        }
                        self.close(b']');
                    }
                    self.close(b'}');
                }
            }
            self.close(b'}');
        }
        self.close(b']');
    }

    fn scalar(&mut self, scalar: &Scalar) {
        match scalar {
            Scalar::Double(x) => {
                self.float(x.is_finite(), x.is_nan(), *x > 0.0, |out| serde_json::to_writer(out, x));
            }
            Scalar::Float(x) => {
                self.float(x.is_finite(), x.is_nan(), *x > 0.0, |out| serde_json::to_writer(out, x));
            }
            Scalar::Int32(n) | Scalar::Sint32(n) | Scalar::Sfixed32(n) => self.number((*n).into()),
            Scalar::Uint32(n) | Scalar::Fixed32(n) => self.digits((*n).into()),
            Scalar::Int64(n) | Scalar::Sint64(n) | Scalar::Sfixed64(n) => self.quoted(|t| t.number(*n)),
            Scalar::Uint64(n) | Scalar::Fixed64(n) => self.quoted(|t| t.digits(*n)),
            Scalar::Bool(b) => self.bytes.extend_from_slice(if *b { b"true" } else { b"false" }),
            Scalar::String(text) => self.string(text),
            Scalar::Bytes(bytes) => self.quoted(|t| t.base64(bytes)),
        }
    }

    /// RFC 4648, padded.
    fn base64(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for three in bytes.chunks(3) {
            let bits = three.iter().fold(0u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - three.len()));
            for i in 0..4 {
                let digit = DIGITS.get((bits >> (18 - 6 * i) & 63) as usize).copied().unwrap_or_default();
                self.bytes.push(if i <= three.len() { digit } else { b'=' });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::chakra::value::Kind;
    use crate::trace::chakra::write::{metadata_bytes, node_bytes};
    use crate::trace::schema;
    use prost_reflect::{DynamicMessage, SerializeOptions};

    /// A message through the general mapping of protocol buffers.
    fn general(kind: &str, bytes: &[u8], indented: bool) -> String {
        let message = DynamicMessage::decode(schema::descriptor(kind).unwrap(), bytes).unwrap();
        let mut out = Vec::new();
        let options = SerializeOptions::new();
        if indented {
            message.serialize_with_options(&mut serde_json::Serializer::pretty(&mut out), &options).unwrap();
        } else {
            message.serialize_with_options(&mut serde_json::Serializer::new(&mut out), &options).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        if !indented {
            return text;
        }
        // Beyond ASCII by units of UTF-16.
        text.encode_utf16()
            .map(|u| {
                u8::try_from(u)
                    .ok()
                    .filter(u8::is_ascii)
                    .map_or_else(|| format!("\\u{u:04x}"), |b| char::from(b).into())
            })
            .collect()
    }

    fn scalars() -> Vec<Scalar> {
        vec![
            Scalar::Double(0.0),
            Scalar::Double(-0.0),
            Scalar::Double(1.5e300),
            Scalar::Double(f64::NAN),
            Scalar::Double(f64::INFINITY),
            Scalar::Float(0.1),
            Scalar::Float(f32::NEG_INFINITY),
            Scalar::Float(f32::NAN),
            Scalar::Int32(i32::MIN),
            Scalar::Int64(i64::MIN),
            Scalar::Int64(0),
            Scalar::Uint32(u32::MAX),
            Scalar::Uint64(u64::MAX),
            Scalar::Sint32(-7),
            Scalar::Sint64(-70_000_000_000),
            Scalar::Fixed32(9),
            Scalar::Fixed64(10),
            Scalar::Sfixed32(-11),
            Scalar::Sfixed64(-12),
            Scalar::Bool(false),
            Scalar::Bool(true),
            Scalar::String("".into()),
            Scalar::String("\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}\u{80}ü€😀".into()),
            Scalar::Bytes([].into()),
            Scalar::Bytes([0xff].into()),
            Scalar::Bytes([0xfb, 0xff].into()),
            Scalar::Bytes([1, 2, 3, 4].into()),
        ]
    }

    #[test]
    fn as_the_general_mapping_writes_it() {
        let scalars = scalars();
        let mut attrs: Vec<Attr> = scalars.iter().map(|s| Attr::new("a", s.clone())).collect();
        for kind in Kind::ALL {
            let items: Vec<Scalar> = scalars.iter().filter(|s| s.kind() == kind).cloned().collect();
            for items in [Vec::new(), items] {
                let value = Some(Value::List(kind, items));
                attrs.push(Attr { name: "l".into(), doc: "said".into(), value, unknown: Vec::new() });
            }
        }
        attrs.push(Attr { name: "".into(), doc: "".into(), value: None, unknown: Vec::new() });
        let mut full = Node::new(7, "n \"ü\"".into(), NodeType::Coll);
        full.ctrl_deps = vec![0, u64::MAX];
        full.data_deps = vec![1];
        (full.start_micros, full.duration_micros) = (5, u64::MAX);
        full.inputs = Some(Io::default());
        full.outputs =
            Some(Io { values: "[1]".into(), shapes: "[[]]".into(), types: "['T']".into(), unknown: Vec::new() });
        full.attrs = attrs.clone();
        let nodes = [
            full,
            Node::default(),
            Node::new(0, "".into(), NodeType::Other(-3)),
            Node::new(1, "".into(), NodeType::Other(99)),
        ];
        let metadata = Metadata { version: "0.0.4".into(), attrs, unknown: Vec::new() };
        for (form, indented) in [(Form::Lines, false), (Form::Jsonizer, true)] {
            let mut writer = JsonWriter::new(Vec::new(), form, &metadata).unwrap();
            let mut wanted = general("GlobalMetadata", &metadata_bytes(&metadata), indented);
            let end = if indented { "" } else { "\n" };
            wanted.push_str(end);
            for node in &nodes {
                writer.node(node).unwrap();
                wanted.push_str(&general("Node", &node_bytes(node), indented));
                wanted.push_str(end);
            }
            assert_eq!(String::from_utf8(writer.finish().unwrap()).unwrap(), wanted);
        }
    }
}
