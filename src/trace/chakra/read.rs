//! Reading `.et`, message by message.

use super::value::{Attr, Kind, Scalar, Value};
use super::wire::{Field, Message, WireFault, WireType};
use super::{Io, Metadata, Node, NodeType, Trace};
use crate::trace::error::{MOST_ERRORS, TraceError, TraceErrors};
use crate::trace::input;
use crate::trace::intern::{Interner, Text};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Protocol buffers allow no longer message.
const LONGEST_MESSAGE: u64 = 1 << 31;

/// A file of zeros is a file of empty messages: it is not read to its end.
const MOST_EMPTY: u64 = 1000;

/// Reads a trace from a file, plain or gzip.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte, node and field; up to twenty faulty nodes at once.
pub fn read(path: &Path) -> Result<Trace, TraceErrors> {
    read_from(input::open(path)?, path)
}

/// Reads a trace from uncompressed bytes; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: impl Read, path: &Path) -> Result<Trace, TraceErrors> {
    let mut reader = Reader::new(source, path)?;
    let mut errors = Vec::new();
    let mut nodes = Vec::new();
    for result in reader.by_ref() {
        match result {
            Ok(node) => nodes.push(node),
            Err(error) => errors.push(error),
        }
        if errors.len() >= MOST_ERRORS {
            break;
        }
    }
    if !errors.is_empty() {
        return Err(TraceErrors(errors));
    }
    Ok(Trace { metadata: reader.metadata, nodes, warnings: reader.warnings })
}

/// Yields node after node, and holds none.
pub struct Reader<R> {
    source: BufReader<R>,
    path: PathBuf,
    strings: Interner,
    message: Vec<u8>,
    /// Byte after the last message.
    byte: u64,
    index: u64,
    done: bool,
    metadata: Metadata,
    warnings: Vec<String>,
    /// Empty messages one after another.
    empty: u64,
    /// Attributes of the last node: the next has as many, as a rule.
    usual_attrs: usize,
}

impl<R: Read> Reader<R> {
    /// Reads the metadata.
    ///
    /// # Errors
    /// [`TraceErrors`] when the file does not begin with metadata, with the version's name when it is of a legacy schema.
    pub fn new(source: R, path: &Path) -> Result<Self, TraceErrors> {
        let mut reader = Self {
            source: BufReader::with_capacity(1 << 18, source),
            path: path.to_path_buf(),
            strings: Interner::default(),
            message: Vec::new(),
            byte: 0,
            index: 0,
            done: false,
            metadata: Metadata::default(),
            warnings: Vec::new(),
            empty: 0,
            usual_attrs: 0,
        };
        let Some(start) = reader.frame()? else {
            return Err(TraceError::new(path, "the file is empty; a Chakra trace begins with its metadata").into());
        };
        if let Some(version) = legacy_start(&reader.message) {
            return Err(TraceError::new(path, legacy_message(version)).at(start).into());
        }
        match metadata(&reader.message, &mut reader.strings) {
            Ok((found, early)) => {
                reader.metadata = found;
                if early {
                    reader
                        .warnings
                        .push("the metadata has the layout of October 2023, before versions were written".to_owned());
                }
            }
            Err(fault) => return Err(reader.located(start, "GlobalMetadata", fault).into()),
        }
        Ok(reader)
    }

    /// The first message.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What is odd but was read all the same.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn located(&self, start: u64, node: &str, fault: WireFault) -> TraceError {
        let error = TraceError::new(&self.path, fault.message).at(start + fault.at as u64).node(node);
        if fault.field.is_empty() { error } else { error.field(fault.field) }
    }

    /// Reads the next message into the buffer; gives the byte where its contents begin, or none at the end of the file.
    fn frame(&mut self) -> Result<Option<u64>, TraceError> {
        let fault = |path: &Path, byte: u64, message: String| TraceError::new(path, message).at(byte);
        let start = self.byte;
        let (mut length, mut shift) = (0u64, 0u32);
        loop {
            let mut one = [0u8];
            match self.source.read(&mut one) {
                Ok(0) if shift == 0 => return Ok(None),
                Ok(0) => {
                    return Err(fault(&self.path, self.byte, "the file ends inside the length of a message".into()));
                }
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(fault(&self.path, self.byte, format!("cannot be read any further: {e}"))),
            }
            self.byte += 1;
            let [b] = one;
            length |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                break;
            }
            shift += 7;
            if shift > 35 {
                return Err(fault(
                    &self.path,
                    start,
                    "expected the length of a message: this is no Chakra trace".into(),
                ));
            }
        }
        if length > LONGEST_MESSAGE {
            let message = format!("a message of {length} bytes is announced; 2 GiB is the most there can be");
            return Err(fault(&self.path, start, message));
        }
        let contents = self.byte;
        self.message.clear();
        let read = self.source.by_ref().take(length).read_to_end(&mut self.message);
        self.byte += self.message.len() as u64;
        if let Err(e) = read {
            return Err(fault(&self.path, self.byte, format!("cannot be read any further: {e}")));
        }
        if (self.message.len() as u64) < length {
            let other = if start == 0 { " (or it is no Chakra trace at all)" } else { "" };
            let message = format!(
                "the file ends inside a message: {length} bytes are announced at byte {start}, {} are there{other}",
                self.message.len()
            );
            return Err(fault(&self.path, self.byte, message));
        }
        Ok(Some(contents))
    }
}

impl<R: Read> Reader<R> {
    /// Reads the next message of a node; gives the byte where its contents begin.
    pub(crate) fn message(&mut self) -> Option<Result<u64, TraceError>> {
        loop {
            if self.done {
                return None;
            }
            let start = match self.frame() {
                Ok(Some(start)) => start,
                Ok(None) => {
                    self.done = true;
                    return None;
                }
                Err(error) => {
                    self.done = true;
                    return Some(Err(error.node(format!("#{}", self.index))));
                }
            };
            self.index += 1;
            if self.message.is_empty() {
                self.empty += 1;
                if self.empty > MOST_EMPTY {
                    self.done = true;
                    let message = "more than 1000 empty messages one after another: this is no Chakra trace";
                    return Some(Err(TraceError::new(&self.path, message).at(start)));
                }
                if self.warnings.len() < MOST_ERRORS {
                    self.warnings.push(format!(
                        "byte {start}: an empty message was skipped; Chakra's own tools stop reading here"
                    ));
                }
                continue;
            }
            self.empty = 0;
            return Some(Ok(start));
        }
    }

    /// The message that was read last, and the strings held so far.
    pub(crate) fn bytes(&mut self) -> (&[u8], &mut Interner) {
        (&self.message, &mut self.strings)
    }

    /// The node of the message that was read last, which begins at a byte.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn node(&mut self, start: u64) -> Result<Node, TraceError> {
        let index = self.index.saturating_sub(1);
        let mut node = Node::new(0, self.strings.get(""), NodeType::Invalid);
        node.attrs.reserve_exact(self.usual_attrs);
        let mut known = false;
        match decode_node(&self.message, &mut node, &mut known, &mut self.strings) {
            Ok(()) => {
                self.usual_attrs = node.attrs.len();
                Ok(node)
            }
            Err(fault) => {
                // A faulty node of a legacy file is no fault of the node.
                if index == 0
                    && let Some(version) = legacy_node(&self.message)
                {
                    self.done = true;
                    return Err(TraceError::new(&self.path, legacy_message(version)).at(start));
                }
                let name = if known { node.id.to_string() } else { format!("#{index}") };
                Err(self.located(start, &name, fault))
            }
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Node, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.message().map(|start| self.node(start?))
    }
}

fn legacy_message(version: &str) -> String {
    format!(
        "this is a Chakra trace of the legacy schema {version}, whose fields have other numbers; schema 0.0.4 and 1.0.0 can be read: \
         record or convert the trace again with a Chakra of November 2023 or later"
    )
}

/// Version of a legacy file whose first message is a node already.
fn legacy_start(bytes: &[u8]) -> Option<&'static str> {
    let first = Message::new(bytes).field().ok()?;
    if first.number != 1 || first.wire != WireType::Varint {
        return None;
    }
    Some(legacy_node(bytes).unwrap_or("0.0.1, 0.0.2 or 0.0.3 (there is no metadata)"))
}

/// Version of the schema that a node is of, where its fields tell that it is a legacy one.
fn legacy_node(bytes: &[u8]) -> Option<&'static str> {
    let mut message = Message::new(bytes);
    while !message.at_end() {
        let field = message.field().ok()?;
        match (field.number, field.wire) {
            // num_ops, comm_type, involved_dim, ...: before attributes existed.
            (12..=20, WireType::Varint | WireType::Length) | (8 | 10, WireType::Varint) => return Some("0.0.1"),
            // Attributes were field 11; inputs and outputs six strings in 5 to 10.
            (11, WireType::Length) | (6 | 7, WireType::Length) => return Some("0.0.2 or 0.0.3"),
            _ => {}
        }
    }
    None
}

/// The metadata, and whether attributes stood where the version is now.
fn metadata(bytes: &[u8], strings: &mut Interner) -> Result<(Metadata, bool), WireFault> {
    let mut out = Metadata::default();
    let mut early = false;
    let mut message = Message::new(bytes);
    while !message.at_end() {
        let field = message.field()?;
        match field.number {
            1 => {
                // No version begins with a line feed; every attribute does: it is the tag of its name.
                if field.contents.bytes().first() == Some(&0x0a) {
                    early = true;
                    out.attrs.push(attribute(field.message("attr")?, strings)?);
                } else {
                    out.version = field.text("version")?.to_owned();
                }
            }
            2 => out.attrs.push(attribute(field.message("attr")?, strings)?),
            _ => out.unknown.extend_from_slice(field.whole),
        }
    }
    Ok((out, early))
}

/// A message of a node from its bytes, for other doors into the same types.
pub(super) fn node_from_bytes(bytes: &[u8], strings: &mut Interner) -> Result<Node, String> {
    let mut node = Node::new(0, strings.get(""), NodeType::Invalid);
    decode_node(bytes, &mut node, &mut false, strings).map_err(|f| format!("{} {}", f.field, f.message))?;
    Ok(node)
}

/// The metadata from its bytes, for other doors into the same types.
pub(super) fn metadata_from_bytes(bytes: &[u8], strings: &mut Interner) -> Result<Metadata, String> {
    metadata(bytes, strings).map(|(found, _)| found).map_err(|f| format!("{} {}", f.field, f.message))
}

fn decode_node(bytes: &[u8], node: &mut Node, known: &mut bool, strings: &mut Interner) -> Result<(), WireFault> {
    let mut message = Message::new(bytes);
    while !message.at_end() {
        let field = message.field()?;
        match field.number {
            1 => {
                node.id = field.varint("id")?;
                *known = true;
            }
            2 => node.name = strings.get(field.text("name")?),
            // Enumerations are 32-bit numbers written as 64-bit ones.
            3 => node.kind = NodeType::from_number(field.varint("type")? as i32),
            4 => field.numbers("ctrl_deps", &mut node.ctrl_deps)?,
            5 => field.numbers("data_deps", &mut node.data_deps)?,
            6 => node.start_micros = field.varint("start_time_micros")?,
            7 => node.duration_micros = field.varint("duration_micros")?,
            8 => io(field.message("inputs")?, node.inputs.get_or_insert_default())?,
            9 => io(field.message("outputs")?, node.outputs.get_or_insert_default())?,
            10 => node.attrs.push(attribute(field.message("attr")?, strings)?),
            _ => node.unknown.extend_from_slice(field.whole),
        }
    }
    Ok(())
}

fn io(mut message: Message<'_>, out: &mut Io) -> Result<(), WireFault> {
    while !message.at_end() {
        let field = message.field()?;
        match field.number {
            1 => out.values = field.text("values")?.into(),
            2 => out.shapes = field.text("shapes")?.into(),
            3 => out.types = field.text("types")?.into(),
            _ => out.unknown.extend_from_slice(field.whole),
        }
    }
    Ok(())
}

pub(super) fn attribute(mut message: Message<'_>, strings: &mut Interner) -> Result<Attr, WireFault> {
    let (mut name, mut doc) = (None, None);
    let (mut value, mut unknown) = (None, Vec::new());
    while !message.at_end() {
        let field = message.field()?;
        match field.number {
            1 => name = Some(strings.get(field.text("attr.name")?)),
            2 => doc = Some(strings.get(field.text("attr.doc_string")?)),
            number => match Kind::from_tag(number) {
                None => unknown.extend_from_slice(field.whole),
                Some((kind, false)) => value = Some(Value::One(scalar(kind, &field, strings)?)),
                Some((kind, true)) => {
                    // A second part of the same list is appended, as protocol buffers merge messages.
                    let mut items = match value.take() {
                        Some(Value::List(k, items)) if k == kind => items,
                        _ => Vec::new(),
                    };
                    list(kind, field.message("attr.value")?, &mut items, strings)?;
                    value = Some(Value::List(kind, items));
                }
            },
        }
    }
    let mut or_empty = |text: Option<Text>| text.unwrap_or_else(|| strings.get(""));
    Ok(Attr { name: or_empty(name), doc: or_empty(doc), value, unknown })
}

fn list(
    kind: Kind,
    mut message: Message<'_>,
    items: &mut Vec<Scalar>,
    strings: &mut Interner,
) -> Result<(), WireFault> {
    while !message.at_end() {
        let field = message.field()?;
        if field.number != 1 {
            continue;
        }
        if matches!(kind, Kind::String | Kind::Bytes) || field.wire != WireType::Length {
            items.push(scalar(kind, &field, strings)?);
            continue;
        }
        let mut packed = field.contents;
        while !packed.at_end() {
            let number = match width(kind) {
                None => packed.varint(),
                Some(bytes) => packed.fixed(bytes),
            };
            items.push(from_number(kind, number.map_err(|f| WireFault { field: "attr.value", ..f })?));
        }
    }
    Ok(())
}

/// Bytes of a kind of fixed width; none for varints.
pub(super) fn width(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => Some(8),
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => Some(4),
        _ => None,
    }
}

fn scalar(kind: Kind, field: &Field<'_>, strings: &mut Interner) -> Result<Scalar, WireFault> {
    let wanted = match kind {
        Kind::String => return Ok(Scalar::String(strings.get(field.text("attr.value")?))),
        Kind::Bytes => return Ok(Scalar::Bytes(field.message("attr.value")?.bytes().into())),
        _ => match width(kind) {
            None => WireType::Varint,
            Some(8) => WireType::Eight,
            Some(_) => WireType::Four,
        },
    };
    if field.wire != wanted {
        return Err(field.fault("attr.value", format!("expected {}, found another wire type", kind.name())));
    }
    Ok(from_number(kind, field.number_value))
}

/// The bits of a number as its kind reads them; longer ones are cut to 32 bits, as protocol buffers do.
#[inline]
pub(super) fn from_number(kind: Kind, bits: u64) -> Scalar {
    match kind {
        Kind::Double => Scalar::Double(f64::from_bits(bits)),
        Kind::Float => Scalar::Float(f32::from_bits(bits as u32)),
        Kind::Int32 => Scalar::Int32(bits as i32),
        Kind::Int64 => Scalar::Int64(bits as i64),
        Kind::Uint32 => Scalar::Uint32(bits as u32),
        Kind::Sint32 => {
            let bits = bits as u32;
            Scalar::Sint32((bits >> 1) as i32 ^ -((bits & 1) as i32))
        }
        Kind::Sint64 => Scalar::Sint64((bits >> 1) as i64 ^ -((bits & 1) as i64)),
        Kind::Fixed32 => Scalar::Fixed32(bits as u32),
        Kind::Fixed64 => Scalar::Fixed64(bits),
        Kind::Sfixed32 => Scalar::Sfixed32(bits as i32),
        Kind::Sfixed64 => Scalar::Sfixed64(bits as i64),
        Kind::Bool => Scalar::Bool(bits != 0),
        Kind::Uint64 | Kind::String | Kind::Bytes => Scalar::Uint64(bits),
    }
}
