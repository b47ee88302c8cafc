//! Writing `.et`: fields in the schema's order, defaults left out, numbers packed, as the common protobuf libraries do.

use super::value::{Attr, Kind, Scalar, Value};
use super::wire::{WireType, put_bytes, put_number, put_numbers, put_tag, put_text, put_varint};
use super::{Metadata, Node, NodeType, Trace};
use crate::trace::error::TraceError;
use crate::trace::output;
use std::io::{self, Write};
use std::path::Path;

/// Writes a trace to a file, gzip if its name ends in `.gz`.
///
/// # Errors
/// [`TraceError`] when the file cannot be written.
pub fn write(trace: &Trace, path: &Path) -> Result<(), TraceError> {
    output::fill(Some(path), |out| write_to(trace, out).map(drop)).map_err(|e| TraceError::io(path, &e))
}

fn write_to<W: Write>(trace: &Trace, out: W) -> io::Result<W> {
    let mut writer = Writer::new(out, &trace.metadata)?;
    for node in &trace.nodes {
        writer.node(node)?;
    }
    Ok(writer.finish())
}

/// The bytes of a trace, not packed.
pub fn to_bytes(trace: &Trace) -> Vec<u8> {
    // Writing to a vector cannot fail.
    write_to(trace, Vec::new()).unwrap_or_default()
}

/// Writes node by node.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    message: Vec<u8>,
    head: Vec<u8>,
    scratch: Scratch,
}

/// Buffers that are used again for each message.
#[derive(Debug, Default)]
struct Scratch {
    outer: Vec<u8>,
    inner: Vec<u8>,
    numbers: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Starts a file with its metadata.
    ///
    /// # Errors
    /// Those of the writer underneath.
    pub fn new(out: W, metadata: &Metadata) -> io::Result<Self> {
        let mut writer = Self { out, message: Vec::new(), head: Vec::new(), scratch: Scratch::default() };
        put_text(&mut writer.message, 1, &metadata.version);
        for attr in &metadata.attrs {
            put_attr(&mut writer.message, 2, attr, &mut writer.scratch);
        }
        writer.message.extend_from_slice(&metadata.unknown);
        writer.flush_message()?;
        Ok(writer)
    }

    /// Writes one node.
    ///
    /// # Errors
    /// Those of the writer underneath.
    pub fn node(&mut self, node: &Node) -> io::Result<()> {
        encode_node(&mut self.message, node, &mut self.scratch);
        if self.message.is_empty() {
            // Node 0 with nothing in it: a message of length 0 would be the end of the file for Chakra's tools. Its id is said, although it is 0.
            put_tag(&mut self.message, 1, WireType::Varint);
            put_varint(&mut self.message, 0);
        }
        self.flush_message()
    }

    /// Writes one node that was made for it.
    ///
    /// # Errors
    /// Those of the writer underneath.
    pub fn made(&mut self, node: &Made<'_>) -> io::Result<()> {
        let (out, numbers) = (&mut self.message, &mut self.scratch.numbers);
        put_head(out, node.id, node.name, node.kind);
        put_numbers(out, 4, &node.ctrl_deps, numbers);
        put_numbers(out, 5, &node.data_deps, numbers);
        put_number(out, 6, node.start_micros);
        put_number(out, 7, node.duration_micros);
        for (field, io) in [(8, &node.inputs), (9, &node.outputs)] {
            if let Some(io) = io {
                put_io(out, field, *io, &[], &mut self.scratch.outer);
            }
        }
        out.extend_from_slice(&node.attrs);
        self.flush_message()
    }

    /// The writer underneath, which the caller flushes.
    pub fn finish(self) -> W {
        self.out
    }

    fn flush_message(&mut self) -> io::Result<()> {
        self.head.clear();
        put_varint(&mut self.head, self.message.len() as u64);
        self.out.write_all(&self.head)?;
        self.out.write_all(&self.message)?;
        self.message.clear();
        Ok(())
    }
}

/// A node to be written at once: it holds no text, and its attributes are bytes of the message as soon as they are given. Used again for the next
/// one, it allocates nothing.
#[derive(Debug, Default)]
pub struct Made<'a> {
    /// Unique in the file.
    pub id: u64,
    /// Name.
    pub name: &'a str,
    /// Kind.
    pub kind: NodeType,
    /// Nodes that control this one.
    pub ctrl_deps: Vec<u64>,
    /// Nodes whose results this one needs.
    pub data_deps: Vec<u64>,
    /// Start, us.
    pub start_micros: u64,
    /// Duration, us.
    pub duration_micros: u64,
    /// Values, shapes and types of the inputs.
    pub inputs: Option<[&'a str; 3]>,
    /// The same of the outputs.
    pub outputs: Option<[&'a str; 3]>,
    attrs: Vec<u8>,
    attr: Vec<u8>,
    numbers: Vec<u8>,
}

impl<'a> Made<'a> {
    /// Begins a node.
    pub fn begin(&mut self, id: u64, name: &'a str, kind: NodeType) {
        (self.id, self.name, self.kind) = (id, name, kind);
        self.ctrl_deps.clear();
        self.data_deps.clear();
        (self.start_micros, self.duration_micros) = (0, 0);
        (self.inputs, self.outputs) = (None, None);
        self.attrs.clear();
    }

    fn put(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        self.attr.clear();
        put_text(&mut self.attr, 1, name);
        value(&mut self.attr);
        put_bytes(&mut self.attrs, 10, &self.attr);
    }

    fn number(&mut self, name: &str, kind: Kind, bits: u64) {
        // Most of a file is such numbers: where all lengths are of one byte, it is put together in one go.
        let mut end = [0u8; 16];
        let mut length = 0;
        for mut rest in [u64::from(kind.tag(false)) << 3, bits] {
            loop {
                end[length] = rest as u8 | if rest >= 0x80 { 0x80 } else { 0 };
                length += 1;
                rest >>= 7;
                if rest == 0 {
                    break;
                }
            }
        }
        let end = &end[..length];
        match (u8::try_from(name.len()), u8::try_from(2 + name.len() + length)) {
            (Ok(of_name), Ok(whole)) if whole < 0x80 => {
                self.attrs.reserve(2 + usize::from(whole));
                self.attrs.extend_from_slice(&[10 << 3 | 2, whole, 1 << 3 | 2, of_name]);
                self.attrs.extend_from_slice(name.as_bytes());
                self.attrs.extend_from_slice(end);
            }
            _ => self.put(name, |out| out.extend_from_slice(end)),
        }
    }

    /// Adds a signed number.
    pub fn int(&mut self, name: &str, value: i64) {
        self.number(name, Kind::Int64, value as u64);
    }

    /// Adds a signed number of 32 bits.
    pub fn int32(&mut self, name: &str, value: i32) {
        self.number(name, Kind::Int32, i64::from(value) as u64);
    }

    /// Adds a number without sign.
    pub fn uint(&mut self, name: &str, value: u64) {
        self.number(name, Kind::Uint64, value);
    }

    /// Adds a truth value.
    pub fn flag(&mut self, name: &str, value: bool) {
        self.number(name, Kind::Bool, u64::from(value));
    }

    /// Adds a text.
    pub fn text(&mut self, name: &str, value: &str) {
        self.put(name, |out| put_bytes(out, Kind::String.tag(false), value.as_bytes()));
    }

    /// Adds a list of numbers without sign.
    pub fn uints(&mut self, name: &str, values: &[u64]) {
        let mut numbers = std::mem::take(&mut self.numbers);
        self.put(name, |out| {
            let mut list = Vec::new();
            put_numbers(&mut list, 1, values, &mut numbers);
            put_bytes(out, Kind::Uint64.tag(true), &list);
        });
        self.numbers = numbers;
    }
}

/// One node as a message, without its length.
pub(super) fn node_bytes(node: &Node) -> Vec<u8> {
    let mut out = Vec::new();
    encode_node(&mut out, node, &mut Scratch::default());
    out
}

/// The metadata as a message, without its length.
pub(super) fn metadata_bytes(metadata: &Metadata) -> Vec<u8> {
    let mut out = Vec::new();
    put_text(&mut out, 1, &metadata.version);
    for attr in &metadata.attrs {
        put_attr(&mut out, 2, attr, &mut Scratch::default());
    }
    out.extend_from_slice(&metadata.unknown);
    out
}

fn put_head(out: &mut Vec<u8>, id: u64, name: &str, kind: NodeType) {
    put_number(out, 1, id);
    put_text(out, 2, name);
    put_number(out, 3, i64::from(kind.number()) as u64);
}

fn encode_node(out: &mut Vec<u8>, node: &Node, scratch: &mut Scratch) {
    put_head(out, node.id, &node.name, node.kind);
    put_numbers(out, 4, &node.ctrl_deps, &mut scratch.numbers);
    put_numbers(out, 5, &node.data_deps, &mut scratch.numbers);
    put_number(out, 6, node.start_micros);
    put_number(out, 7, node.duration_micros);
    for (field, io) in [(8, &node.inputs), (9, &node.outputs)] {
        if let Some(io) = io {
            put_io(out, field, [&io.values, &io.shapes, &io.types], &io.unknown, &mut scratch.outer);
        }
    }
    for attr in &node.attrs {
        put_attr(out, 10, attr, scratch);
    }
    out.extend_from_slice(&node.unknown);
}

/// Values, shapes and types, and fields that the schema does not have.
fn put_io(out: &mut Vec<u8>, field: u32, [values, shapes, types]: [&str; 3], unknown: &[u8], scratch: &mut Vec<u8>) {
    scratch.clear();
    put_text(scratch, 1, values);
    put_text(scratch, 2, shapes);
    put_text(scratch, 3, types);
    scratch.extend_from_slice(unknown);
    put_bytes(out, field, scratch);
}

fn put_attr(out: &mut Vec<u8>, field: u32, attr: &Attr, scratch: &mut Scratch) {
    let Scratch { outer, inner, numbers } = scratch;
    outer.clear();
    put_text(outer, 1, &attr.name);
    put_text(outer, 2, &attr.doc);
    match &attr.value {
        None => {}
        Some(Value::One(scalar)) => put_scalar(outer, scalar.kind().tag(false), scalar),
        Some(Value::List(kind, items)) => {
            inner.clear();
            put_list(inner, *kind, items, numbers);
            put_bytes(outer, kind.tag(true), inner);
        }
    }
    outer.extend_from_slice(&attr.unknown);
    put_bytes(out, field, outer);
}

/// Items of a list message: strings and bytes one by one, everything else packed.
fn put_list(out: &mut Vec<u8>, kind: Kind, items: &[Scalar], scratch: &mut Vec<u8>) {
    match kind {
        Kind::String | Kind::Bytes => items.iter().for_each(|item| put_scalar(out, 1, item)),
        _ if items.is_empty() => {}
        _ => {
            scratch.clear();
            items.iter().for_each(|item| put_bare(scratch, item));
            put_bytes(out, 1, scratch);
        }
    }
}

/// A scalar with its tag; a member of a `oneof` is written even when it is 0.
fn put_scalar(out: &mut Vec<u8>, tag: u32, scalar: &Scalar) {
    match scalar {
        Scalar::String(text) => put_bytes(out, tag, text.as_bytes()),
        Scalar::Bytes(bytes) => put_bytes(out, tag, bytes),
        _ => {
            let wire = match scalar.kind() {
                Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => WireType::Eight,
                Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => WireType::Four,
                _ => WireType::Varint,
            };
            put_tag(out, tag, wire);
            put_bare(out, scalar);
        }
    }
}

/// A number without a tag.
fn put_bare(out: &mut Vec<u8>, scalar: &Scalar) {
    match scalar {
        Scalar::Double(x) => out.extend_from_slice(&x.to_le_bytes()),
        Scalar::Float(x) => out.extend_from_slice(&x.to_le_bytes()),
        Scalar::Int32(v) => put_varint(out, i64::from(*v) as u64),
        Scalar::Int64(v) => put_varint(out, *v as u64),
        Scalar::Uint32(v) => put_varint(out, u64::from(*v)),
        Scalar::Uint64(v) => put_varint(out, *v),
        // Zigzag: small magnitudes stay small, whatever their sign.
        Scalar::Sint32(v) => put_varint(out, u64::from((*v << 1 ^ *v >> 31) as u32)),
        Scalar::Sint64(v) => put_varint(out, (*v << 1 ^ *v >> 63) as u64),
        Scalar::Fixed32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Scalar::Fixed64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Scalar::Sfixed32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Scalar::Sfixed64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Scalar::Bool(b) => out.push(u8::from(*b)),
        Scalar::String(text) => out.extend_from_slice(text.as_bytes()),
        Scalar::Bytes(bytes) => out.extend_from_slice(bytes),
    }
}
