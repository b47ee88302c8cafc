//! Chakra traces as text protobuf: `metadata { ... }` and then a `node { ... }` for each node, each in protocol buffers' text format.

use super::pass::{Fault, Part, collect};
use super::read::{metadata_from_bytes, node_from_bytes};
use super::write::{metadata_bytes, node_bytes};
use super::{Metadata, Node, Trace};
use crate::trace::error::{MOST_ERRORS, TraceError, TraceErrors};
use crate::trace::intern::Interner;
use crate::trace::{input, schema};
use prost_reflect::{DynamicMessage, text_format::FormatOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

/// The schema nests messages three deep; text that nests far deeper is an attack on the parser's stack.
const DEEPEST: usize = 32;
/// No node's text is longer.
const LONGEST: usize = 1 << 30;

/// Writes a trace as text, node by node.
#[derive(Debug)]
pub struct TextWriter<W> {
    out: W,
}

impl<W: Write> TextWriter<W> {
    /// Starts with the metadata.
    ///
    /// # Errors
    /// Those of the writer underneath.
    pub fn new(out: W, metadata: &Metadata) -> io::Result<Self> {
        let mut writer = Self { out };
        writer.block("metadata", "GlobalMetadata", &metadata_bytes(metadata))?;
        Ok(writer)
    }

    /// Writes one node.
    ///
    /// # Errors
    /// Those of the writer underneath.
    pub fn node(&mut self, node: &Node) -> io::Result<()> {
        self.block("node", "Node", &node_bytes(node))
    }

    /// The writer underneath, which the caller flushes.
    pub fn finish(self) -> W {
        self.out
    }

    fn block(&mut self, word: &str, kind: &str, bytes: &[u8]) -> io::Result<()> {
        let kind = schema::descriptor(kind).map_err(io::Error::other)?;
        let message = DynamicMessage::decode(kind, bytes).map_err(io::Error::other)?;
        let text = message.to_text_format_with_options(&FormatOptions::new().pretty(true));
        writeln!(self.out, "{word} {{")?;
        for line in text.lines() {
            writeln!(self.out, "  {line}")?;
        }
        writeln!(self.out, "}}")
    }
}

/// Reads a text trace from a file, plain or gzip.
///
/// # Errors
/// [`TraceErrors`]: what cannot be read, with byte and node; up to twenty faulty nodes at once.
pub fn read(path: &Path) -> Result<Trace, TraceErrors> {
    read_from(input::open(path)?, path)
}

/// Reads a text trace from uncompressed bytes; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: impl Read, path: &Path) -> Result<Trace, TraceErrors> {
    collect(|take| parts(source, path, take), path)
}

/// Hands on piece by piece what [`read_from`] holds; after the first fault nothing, but the others are looked for all the same.
pub(super) fn parts(source: impl Read, path: &Path, take: &mut dyn FnMut(Part) -> io::Result<()>) -> Result<(), Fault> {
    let mut blocks = Blocks { bytes: BufReader::new(source), byte: 0 };
    let mut strings = Interner::default();
    let mut errors: Vec<TraceError> = Vec::new();
    let (mut index, mut metadata) = (0u64, false);
    loop {
        let block = match blocks.next() {
            Ok(Some(block)) => block,
            Ok(None) => break,
            Err((byte, message)) => {
                errors.push(TraceError::new(path, message).at(byte));
                break;
            }
        };
        let located = |message: String| TraceError::new(path, message).at(block.byte);
        match block.word.as_str() {
            "metadata" if metadata || index > 0 => {
                errors.push(located("`metadata` comes once, before the nodes".into()));
            }
            "metadata" => {
                metadata = true;
                match parse("GlobalMetadata", &block.text).and_then(|b| metadata_from_bytes(&b, &mut strings)) {
                    Ok(found) if errors.is_empty() => take(Part::Metadata(found))?,
                    Ok(_) => {}
                    Err(e) => errors.push(located(e).field("metadata")),
                }
            }
            "node" | "nodes" => {
                match parse("Node", &block.text).and_then(|b| node_from_bytes(&b, &mut strings)) {
                    Ok(node) if errors.is_empty() => take(Part::Node(node))?,
                    Ok(_) => {}
                    Err(e) => errors.push(located(e).node(format!("#{index}"))),
                }
                index += 1;
            }
            other => errors.push(located(format!("expected `metadata {{` or `node {{`, found {other:?}"))),
        }
        if errors.len() >= MOST_ERRORS {
            break;
        }
    }
    if !errors.is_empty() {
        return Err(TraceErrors(errors).into());
    }
    if !metadata && index == 0 {
        return Err(
            TraceError::new(path, "the file is empty; `metadata { ... }` and `node { ... }` are expected").into()
        );
    }
    Ok(())
}

fn parse(kind: &str, text: &str) -> Result<Vec<u8>, String> {
    let kind = schema::descriptor(kind)?;
    let message = DynamicMessage::parse_text_format(kind, text).map_err(|e| e.to_string())?;
    Ok(prost::Message::encode_to_vec(&message))
}

/// One block of the text.
struct Block {
    word: String,
    text: String,
    byte: u64,
}

/// Cuts the text into blocks: a word, then what stands between braces.
struct Blocks<R> {
    bytes: BufReader<R>,
    byte: u64,
}

impl<R: Read> Blocks<R> {
    fn one(&mut self) -> Result<Option<u8>, (u64, String)> {
        let found = loop {
            match self.bytes.fill_buf() {
                Ok(buffer) => break buffer.first().copied(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err((self.byte, format!("cannot be read any further: {e}"))),
            }
        };
        if found.is_some() {
            self.bytes.consume(1);
            self.byte += 1;
        }
        Ok(found)
    }

    fn next(&mut self) -> Result<Option<Block>, (u64, String)> {
        let mut word: Vec<u8> = Vec::new();
        let mut start = self.byte;
        loop {
            match self.one()? {
                None if word.is_empty() => return Ok(None),
                None => return Err((start, "the file ends before the `{` of a block".into())),
                Some(b'#') => self.comment()?,
                Some(b'{') => break,
                Some(b' ' | b'\t' | b'\r' | b'\n' | b':' | b',' | b';') => {}
                Some(b) => {
                    if word.is_empty() {
                        start = self.byte - 1;
                    }
                    word.push(b);
                    if word.len() > 64 {
                        return Err((
                            start,
                            "expected `metadata {` or `node {`: this is no text of a Chakra trace".into(),
                        ));
                    }
                }
            }
        }
        let mut text = Vec::new();
        let mut depth = 1usize;
        let mut quote: Option<u8> = None;
        loop {
            let Some(b) = self.one()? else {
                return Err((self.byte, format!("the file ends inside the block that begins at byte {start}")));
            };
            match (quote, b) {
                (Some(_), b'\\') => {
                    text.push(b);
                    match self.one()? {
                        Some(escaped) => text.push(escaped),
                        None => continue,
                    }
                    continue;
                }
                (Some(q), _) if q == b => quote = None,
                (Some(_), _) => {}
                (None, b'"' | b'\'') => quote = Some(b),
                (None, b'#') => {
                    self.comment()?;
                    text.push(b'\n');
                    continue;
                }
                (None, b'{' | b'<' | b'[') => {
                    depth += 1;
                    if depth > DEEPEST {
                        return Err((self.byte, format!("messages nest more than {DEEPEST} deep")));
                    }
                }
                (None, b'}' | b'>' | b']') => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                _ => {}
            }
            text.push(b);
            if text.len() > LONGEST {
                return Err((start, "this block is longer than 1 GiB".into()));
            }
        }
        let utf8 = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| (start, "this block is not UTF-8".to_owned()));
        Ok(Some(Block { word: utf8(word)?, text: utf8(text)?, byte: start }))
    }

    fn comment(&mut self) -> Result<(), (u64, String)> {
        while let Some(b) = self.one()? {
            if b == b'\n' {
                break;
            }
        }
        Ok(())
    }
}
